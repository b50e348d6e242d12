//! `lctl`: devices, parameters and statistics of the processes of this host, with the commands
//! and the output that users of the field know. It asks each process through its control
//! socket, which it finds in `/run/sateen` (see `run_dir`).
//!
//! Messages begin with `error: COMMAND:`, as in the field.

mod lnet;
mod samples;
mod settings;

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
use sateen_types::Nid;

use crate::control::{self, Answer, Command};
use crate::data_dir::DataDir;
use crate::params::{Device, Shown, WasSet, can_be_kept, check, dotted, fits};
use crate::refusal::Refusal;
use crate::run_dir;
use crate::{nids, node};

/// "No such file or directory", "invalid argument", "input/output error".
const ENOENT: u8 = 2;
const EINVAL: u8 = 22;
const EIO: u8 = 5;

/// Devices, parameters and statistics of the processes of this host.
#[derive(Debug, Parser)]
#[command(name = "lctl", version, disable_help_subcommand = true)]
pub(crate) struct Lctl {
    /// Ask only the process with this folder: a data folder, or one of /run/sateen.
    #[arg(long, value_name = "DIR", global = true)]
    data: Vec<PathBuf>,
    /// The command.
    #[command(subcommand)]
    command: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Lists devices: targets, clients, and their connections.
    #[command(visible_alias = "device_list")]
    Dl(DlArgs),
    /// Lists the NIDs by which the processes of this host are reached.
    #[command(name = "list_nids")]
    ListNids(NidsArgs),
    /// Asks whether a server listens on a NID.
    Ping(PingArgs),
    /// The networks of the processes of this host.
    Net(lnet::NetArgs),
    /// Whom the processes of this host talk with, and over which NIDs.
    Peer(lnet::PeerArgs),
    /// Shows the values of parameters.
    #[command(name = "get_param")]
    GetParam(GetArgs),
    /// Sets parameters.
    #[command(name = "set_param")]
    SetParam(SetArgs),
    /// Lists the names of parameters.
    #[command(name = "list_param")]
    ListParam(ListArgs),
}

#[derive(Debug, Args)]
struct DlArgs {
    /// Of connections to targets also the NID at which the target is reached.
    #[arg(short = 't', long = "target")]
    target: bool,
    /// As JSON, for programs.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct NidsArgs {
    /// As JSON, for programs.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct PingArgs {
    /// The NID, as ADDRESS[:PORT]@tcp.
    #[arg(value_parser = nids::resolve_one)]
    nid: Nid,
}

#[derive(Debug, Args)]
struct GetArgs {
    /// Values without names.
    #[arg(short = 'n', long = "no-name")]
    no_name: bool,
    /// Names without values.
    #[arg(short = 'N', long = "only-name", conflicts_with = "no_name")]
    only_name: bool,
    /// With -N, as by list_param: a = behind those that can be set, a / behind those that have
    /// others below them, an @ behind other names of something.
    #[arg(short = 'F', long = "classify", requires = "only_name")]
    classify: bool,
    /// The name before each line of a value.
    #[arg(short = 'H', long = "header", conflicts_with_all = ["no_name", "only_name"])]
    header: bool,
    /// Also what is below.
    #[arg(short = 'R', long = "recursive")]
    recursive: bool,
    /// As JSON, for programs: of statistics and timers also each number by itself.
    #[arg(long, conflicts_with_all = ["no_name", "header"])]
    json: bool,
    /// Names, with * for anything between two dots.
    #[arg(required = true, value_name = "PARAM")]
    patterns: Vec<String>,
}

#[derive(Debug, Clone, Args)]
struct SetArgs {
    /// Show values without names.
    #[arg(short = 'n', long = "no-name")]
    no_name: bool,
    /// Also for good, everywhere: the MGS keeps it and tells all servers and mounts.
    #[arg(short = 'P', long = "permanent")]
    permanent: bool,
    /// With -P: have the MGS keep it no more; what it was set to stays until the restart.
    #[arg(short = 'd', long = "delete", requires = "permanent")]
    delete: bool,
    /// The arguments are files with a PARAM=VALUE in each line, or with what the MGS keeps, as
    /// mgs.MGS.live.FSNAME shows it; they are set for good, as with -P.
    #[arg(short = 'F', long = "file", conflicts_with = "delete")]
    file: bool,
    /// What was set, as JSON, for programs.
    #[arg(long, conflicts_with_all = ["no_name", "delete"])]
    json: bool,
    /// Names, with * for anything between two dots, and their values; with -d only names, with
    /// -F files.
    #[arg(required = true, value_name = "PARAM=VALUE")]
    settings: Vec<String>,
}

#[derive(Debug, Args)]
struct ListArgs {
    /// A = behind those that can be set, a / behind those that have others below them, an @
    /// behind other names of something.
    #[arg(short = 'F', long = "classify")]
    classify: bool,
    /// Also what is below.
    #[arg(short = 'R', long = "recursive")]
    recursive: bool,
    /// Nothing below other names of something: each parameter once.
    #[arg(short = 'L', long = "no-links")]
    no_links: bool,
    /// As JSON, for programs.
    #[arg(long)]
    json: bool,
    /// Names, with * for anything between two dots.
    #[arg(required = true, value_name = "PARAM")]
    patterns: Vec<String>,
}

/// What went wrong.
struct Failure {
    what: String,
    code: u8,
}

/// Runs a command line.
pub(crate) fn run(lctl: &Lctl) -> ExitCode {
    let (name, failures) = match &lctl.command {
        What::Dl(args) => ("dl", dl(lctl, args)),
        What::ListNids(args) => ("list_nids", list_nids(lctl, args)),
        What::Ping(args) => ("ping", ping(args)),
        What::Net(args) => ("net", lnet::net(lctl, args)),
        What::Peer(args) => ("peer", lnet::peer(lctl, args)),
        What::GetParam(args) => ("get_param", get_param(lctl, args)),
        What::SetParam(args) => ("set_param", set_param(lctl, args)),
        What::ListParam(args) => ("list_param", list_param(lctl, args)),
    };
    let mut code = ExitCode::SUCCESS;
    for failure in failures {
        eprintln!("error: {name}: {}", failure.what);
        code = ExitCode::from(failure.code);
    }
    code
}

/// The answers of all processes that are asked.
struct Asked {
    answers: Vec<Answer>,
    failures: Vec<Failure>,
}

fn ask(lctl: &Lctl, command: &Command) -> Asked {
    let mut asked = Asked { answers: Vec::new(), failures: Vec::new() };
    let named = lctl.data.iter().map(|path| DataDir::at(path));
    let folders = if lctl.data.is_empty() {
        run_dir::all().map_err(|Refusal { what, hint, .. }| format!("{what}: {hint}"))
    } else {
        named.collect::<Result<_, _>>().map_err(|refusal| refusal.what)
    };
    let folders: Vec<DataDir> = match folders {
        Ok(folders) => folders,
        Err(what) => {
            asked.failures.push(Failure { what, code: ENOENT });
            return asked;
        }
    };
    if folders.is_empty() {
        let what = match rustix::process::geteuid().is_root() {
            true => {
                "no Sateen process runs on this host; start one with sateen serve, sateen up \
                 or mount -t sateen, or name its folder with --data"
            }
            false => {
                "none of your processes is one of Sateen's, and you do not see those of others: \
                 run it as root (sudo)"
            }
        };
        asked.failures.push(Failure { what: what.to_owned(), code: ENOENT });
    }
    for data in folders {
        match control::ask(&data, command.clone()) {
            Ok(Answer::Failed { what, hint }) => {
                asked.failures.push(Failure { what: format!("{what}: {hint}"), code: EIO });
            }
            Ok(answer) => asked.answers.push(answer),
            // One that is starting or ending has nothing to show; one that was named should.
            Err(error) if lctl.data.is_empty() && nobody_listens(&error) => {}
            Err(error) => {
                let denied = error.kind() == io::ErrorKind::PermissionDenied;
                let advice = if denied { ": run it as root (sudo)" } else { "" };
                let what = format!("{} does not answer: {error}{advice}", data.path().display());
                asked.failures.push(Failure { what, code: EIO });
            }
        }
    }
    asked
}

fn nobody_listens(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn dl(lctl: &Lctl, args: &DlArgs) -> Vec<Failure> {
    let Asked { answers, failures } = ask(lctl, &Command::Devices);
    let mut devices: Vec<Device> = Vec::new();
    for answer in answers {
        if let Answer::Devices(more) = answer {
            devices.extend(more);
        }
    }
    if !args.target {
        devices.iter_mut().for_each(|device| device.nid = None);
    }
    if args.json {
        println!("{:#}", serde_json::to_value(&devices).unwrap_or_default());
        return failures;
    }
    for (index, device) in devices.iter().enumerate() {
        println!("{}", device_line(index, device));
    }
    failures
}

fn device_line(index: usize, device: &Device) -> String {
    let Device { status, kind, name, uuid, refcount, nid } = device;
    let nid = nid.as_ref().map_or_else(String::new, |nid| format!(" {nid}"));
    format!("{index:3} {status} {kind} {name} {uuid} {refcount}{nid}")
}

fn list_nids(lctl: &Lctl, args: &NidsArgs) -> Vec<Failure> {
    let Asked { answers, failures } = ask(lctl, &Command::Nids);
    let mut all: BTreeSet<String> = BTreeSet::new();
    for answer in answers {
        if let Answer::Nids(nids) = answer {
            all.extend(nids);
        }
    }
    if args.json {
        println!("{:#}", serde_json::json!(all));
    } else {
        all.iter().for_each(|nid| println!("{nid}"));
    }
    failures
}

fn ping(args: &PingArgs) -> Vec<Failure> {
    match node::ping(args.nid) {
        Ok(()) => {
            // As in the field: the number that stands for a process, and its NID.
            println!("12345-{}", args.nid);
            Vec::new()
        }
        Err(why) => {
            let what = format!(
                "failed to ping {}: {why}; is its server started (sateen serve --nid), and does a \
                 firewall let its port through?",
                args.nid
            );
            vec![Failure { what, code: EIO }]
        }
    }
}

/// Parameters of all processes, by name.
fn params(asked: &mut Asked) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    for answer in std::mem::take(&mut asked.answers) {
        if let Answer::Params(more) = answer {
            all.extend(more);
        }
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn none_fits(pattern: &str) -> Failure {
    Failure {
        what: format!(
            "param_path '{pattern}': No such file or directory (see: lctl list_param -R '*')"
        ),
        code: ENOENT,
    }
}

fn get_param(lctl: &Lctl, args: &GetArgs) -> Vec<Failure> {
    if args.only_name {
        let GetArgs { classify, recursive, json, .. } = *args;
        return list(lctl, &args.patterns, Listing { classify, recursive, no_links: false }, json);
    }
    let mut failures = Vec::new();
    let mut json = Vec::new();
    for pattern in &args.patterns {
        let command = Command::Params { pattern: Some(pattern.clone()), below: args.recursive };
        let mut asked = ask(lctl, &command);
        let all = params(&mut asked);
        let nobody = !asked.failures.is_empty();
        failures.append(&mut asked.failures);
        if all.is_empty() && !nobody {
            failures.push(none_fits(pattern));
        }
        for Shown { name, value, writable, .. } in all {
            let (name, value) = (dotted(&name), value.unwrap_or_default());
            if args.json {
                json.push(as_json(&name, &value, writable));
            } else {
                print!("{}", value_text(&name, &value, args));
            }
        }
    }
    if args.json {
        println!("{:#}", serde_json::Value::Array(json));
    }
    failures
}

/// A parameter for programs: with its value as people see it and, of statistics, each line of it.
fn as_json(name: &str, value: &str, writable: bool) -> serde_json::Value {
    let mut all = serde_json::json!({ "name": name, "value": value, "writable": writable });
    if let (Some(all), Some(stats)) = (all.as_object_mut(), samples::of(value)) {
        all.insert("stats".to_owned(), stats);
    }
    all
}

/// A value with its name, as whole lines.
fn value_text(name: &str, value: &str, args: &GetArgs) -> String {
    let lines = value.trim_end();
    if args.no_name {
        return format!("{lines}\n");
    }
    if args.header {
        return lines.split('\n').map(|line| format!("{name}={line}\n")).collect();
    }
    match value.contains('\n') {
        true => format!("{name}=\n{lines}\n"),
        false => format!("{name}={value}\n"),
    }
}

fn list_param(lctl: &Lctl, args: &ListArgs) -> Vec<Failure> {
    let ListArgs { classify, recursive, no_links, .. } = *args;
    list(lctl, &args.patterns, Listing { classify, recursive, no_links }, args.json)
}

/// How names are listed.
#[derive(Debug, Clone, Copy, Default)]
struct Listing {
    classify: bool,
    recursive: bool,
    no_links: bool,
}

fn list(lctl: &Lctl, patterns: &[String], how: Listing, as_json: bool) -> Vec<Failure> {
    let mut asked = ask(lctl, &Command::Params { pattern: None, below: false });
    let all = params(&mut asked);
    let (mut failures, mut json) = (asked.failures, Vec::new());
    for pattern in patterns {
        let found = listed(pattern, &all, how);
        if found.is_empty() && failures.is_empty() {
            failures.push(none_fits(pattern));
        }
        if as_json {
            json.extend(found);
        } else {
            found.iter().for_each(|name| println!("{name}"));
        }
    }
    if as_json {
        println!("{:#}", serde_json::json!(json));
    }
    failures
}

/// How many parts of a name are another name of something.
const LINK_PARTS: usize = 2;

/// The names that fit, and those of whatever has names below it.
fn listed(pattern: &str, all: &[Shown], how: Listing) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for Shown { name, writable, is_link, .. } in all {
        let ends = name.match_indices('/').map(|(at, _)| at).chain([name.len()]);
        let parts_max = if *is_link && how.no_links { LINK_PARTS } else { usize::MAX };
        let mut above = false;
        for (end, parts) in ends.zip(1..).take(parts_max) {
            let part = name.get(..end).unwrap_or(name);
            let fitting = fits(pattern, part);
            if fitting || above && how.recursive {
                let mark = match (end < name.len(), writable) {
                    _ if !how.classify => "",
                    (true, _) if *is_link && parts == LINK_PARTS => "@",
                    (true, _) => "/",
                    (false, true) => "=",
                    (false, false) => "",
                };
                found.insert(format!("{}{mark}", dotted(part)));
            }
            above |= fitting;
        }
    }
    found
}

fn set_param(lctl: &Lctl, args: &SetArgs) -> Vec<Failure> {
    if args.file {
        return match settings::of_files(&args.settings) {
            Ok(settings) => {
                let args = SetArgs { settings, file: false, permanent: true, ..args.clone() };
                set_param(lctl, &args)
            }
            Err(failure) => vec![failure],
        };
    }
    let (mut failures, mut json) = (Vec::new(), Vec::new());
    for setting in &args.settings {
        let (pattern, value) = match setting.split_once('=') {
            Some((pattern, value)) => (pattern, Some(value)),
            None => (setting.as_str(), None),
        };
        let done = match (args.delete, value) {
            (true, _) => keep(lctl, pattern, None),
            (false, Some(value)) => set_one(lctl, args, (pattern, value), &mut json),
            (false, None) => {
                let what = format!("'{setting}' has no value: write it as PARAM=VALUE");
                vec![Failure { what, code: EINVAL }]
            }
        };
        failures.extend(done);
    }
    if args.json {
        println!("{:#}", serde_json::Value::Array(json));
    }
    failures
}

fn set_one(
    lctl: &Lctl,
    args: &SetArgs,
    (pattern, value): (&str, &str),
    json: &mut Vec<serde_json::Value>,
) -> Vec<Failure> {
    if let Err(wrong) = check(pattern, value) {
        return vec![Failure { what: format!("setting '{pattern}': {wrong}"), code: EINVAL }];
    }
    if args.permanent {
        if !can_be_kept(pattern, value) {
            let what = format!("'{pattern}' is done now, or not at all: leave out -P");
            return vec![Failure { what, code: EINVAL }];
        }
        if let Err(failures) = keeper(lctl) {
            return failures;
        }
    }
    let command = Command::SetParam { pattern: pattern.to_owned(), value: value.to_owned() };
    let Asked { answers, mut failures } = ask(lctl, &command);
    let mut found = false;
    for answer in answers {
        let Answer::Set(all) = answer else { continue };
        for WasSet { name, error } in all {
            found = true;
            match error {
                None if args.json => {
                    json.push(serde_json::json!({ "name": dotted(&name), "value": value }));
                }
                None if args.no_name => println!("{value}"),
                None => println!("{}={value}", dotted(&name)),
                Some(error) => failures.push(Failure {
                    what: format!("setting '{}': {error}", dotted(&name)),
                    code: EINVAL,
                }),
            }
        }
    }
    if args.permanent && failures.is_empty() {
        failures.extend(keep(lctl, pattern, Some(value)));
        if !found && failures.is_empty() {
            eprintln!(
                "warning: set_param: no parameter here fits '{pattern}'; it is kept for processes \
                 that have one (-d takes it back)"
            );
        }
    } else if !found && failures.is_empty() {
        failures.push(none_fits(pattern));
    }
    failures
}

/// How long it is waited for a process that has just been started to answer.
const START_MAX: Duration = Duration::from_secs(3);
const START_PAUSE: Duration = Duration::from_millis(50);

/// Any process of the file system can tell its MGS. Of several file systems on one host one has
/// to be chosen.
fn keeper(lctl: &Lctl) -> Result<DataDir, Vec<Failure>> {
    let begun = Instant::now();
    let Asked { answers, mut failures } = loop {
        let asked = ask(lctl, &Command::Status);
        let nobody = asked.answers.is_empty() && asked.failures.is_empty();
        if !nobody || begun.elapsed() >= START_MAX {
            break asked;
        }
        std::thread::sleep(START_PAUSE);
    };
    if answers.is_empty() && failures.is_empty() {
        let what = "no process of this host answers: those that run are just starting, as while \
                    they wait for their MGS, or ending; try it again when one does";
        failures.push(Failure { what: what.to_owned(), code: EIO });
    }
    let names: BTreeSet<&str> = answers
        .iter()
        .filter_map(|answer| match answer {
            Answer::Status(report) => Some(report.fsname.as_str()),
            _ => None,
        })
        .collect();
    if names.len() > 1 {
        let names: Vec<&str> = names.into_iter().collect();
        let what =
            format!("processes of {} run here: name one of them with --data", names.join(" and "));
        return Err(vec![Failure { what, code: EINVAL }]);
    }
    let folder = answers.iter().find_map(|answer| match answer {
        Answer::Status(report) => DataDir::at(&report.data).ok(),
        _ => None,
    });
    folder.ok_or(failures)
}

fn keep(lctl: &Lctl, pattern: &str, value: Option<&str>) -> Vec<Failure> {
    let folder = match keeper(lctl) {
        Ok(folder) => folder,
        Err(failures) => return failures,
    };
    let command =
        Command::KeepParam { pattern: pattern.to_owned(), value: value.map(str::to_owned) };
    match control::ask(&folder, command) {
        Ok(Answer::Kept) => Vec::new(),
        Ok(Answer::Failed { what, hint }) => {
            let doing = if value.is_some() { "is not kept" } else { "is not taken back" };
            vec![Failure { what: format!("'{pattern}' {doing}: {what}: {hint}"), code: EIO }]
        }
        Ok(_) => vec![Failure { what: "it answers something else".to_owned(), code: EIO }],
        Err(error) => {
            let what = format!("{} does not answer: {error}", folder.path().display());
            vec![Failure { what, code: EIO }]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn arguments_are_consistent() {
        Lctl::command().debug_assert();
    }

    #[test]
    fn lists_show_what_has_names_below_it() {
        let shown = |name: &str, writable| Shown {
            name: name.to_owned(),
            value: None,
            writable,
            is_link: name.contains("-MDT"),
        };
        let all = [
            shown("osc/fs-OST0000-osc-MDT0000/active", true),
            shown("osc/fs-OST0000/active", true),
            shown("osc/fs-OST0000/stats", true),
            shown("osc/fs-OST0000/import", false),
            shown("version", false),
        ];
        let list = |pattern: &str, classify, recursive| -> Vec<String> {
            let how = Listing { classify, recursive, no_links: false };
            listed(pattern, &all, how).into_iter().collect()
        };
        assert_eq!(list("osc.*", false, false), ["osc.fs-OST0000", "osc.fs-OST0000-osc-MDT0000"]);
        assert_eq!(list("*", true, false), ["osc/", "version"]);
        let below = list("osc.*", true, true);
        assert_eq!(
            below,
            [
                "osc.fs-OST0000-osc-MDT0000.active=",
                "osc.fs-OST0000-osc-MDT0000@",
                "osc.fs-OST0000.active=",
                "osc.fs-OST0000.import",
                "osc.fs-OST0000.stats=",
                "osc.fs-OST0000/"
            ]
        );
        assert!(list("osd.*", false, true).is_empty());
        let how = Listing { recursive: true, no_links: true, ..Listing::default() };
        let once: Vec<String> = listed("osc.*-MDT*", &all, how).into_iter().collect();
        assert_eq!(once, ["osc.fs-OST0000-osc-MDT0000"], "not what lies below");
        assert_eq!(listed("osc.fs-OST0000", &all, how).len(), 4);
    }

    #[test]
    fn values_have_their_names_where_they_are_wanted() {
        let text = |options: &str, value: &str| {
            let line = format!("lctl get_param {options} x");
            match Lctl::try_parse_from(line.split_whitespace()).unwrap().command {
                What::GetParam(args) => value_text("a.b", value, &args),
                other => panic!("{other:?}"),
            }
        };
        for (options, value, shown) in [
            ("", "7", "a.b=7\n"),
            ("", "one\ntwo\n", "a.b=\none\ntwo\n"),
            ("-n", "one\ntwo\n", "one\ntwo\n"),
            ("-H", "one\ntwo\n", "a.b=one\na.b=two\n"),
            ("-H", "7", "a.b=7\n"),
            ("-RH", "", "a.b=\n"),
        ] {
            assert_eq!(text(options, value), shown, "{options} {value}");
        }
        // What would have no effect is refused.
        for line in [
            "get_param -Hn x",
            "get_param -HN x",
            "get_param -F x",
            "get_param --json -n x",
            "get_param --json -H x",
            "get_param --json -F x",
            "set_param --json -n x=1",
            "set_param --json -P -d x",
        ] {
            let words = ["lctl"].into_iter().chain(line.split_whitespace());
            assert!(Lctl::try_parse_from(words).is_err(), "{line}");
        }
    }

    #[test]
    fn devices_look_as_in_the_field() {
        let device = |nid: Option<&str>| Device {
            status: "UP".to_owned(),
            kind: "osc".to_owned(),
            name: "fs-OST0007-osc-2f".to_owned(),
            uuid: "2f".to_owned(),
            refcount: 5,
            nid: nid.map(str::to_owned),
        };
        assert_eq!(device_line(3, &device(None)), "  3 UP osc fs-OST0007-osc-2f 2f 5");
        let with = device_line(351, &device(Some("10.0.0.12@tcp")));
        assert_eq!(with, "351 UP osc fs-OST0007-osc-2f 2f 5 10.0.0.12@tcp");
    }
}

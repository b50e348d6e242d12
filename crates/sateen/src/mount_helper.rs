//! `mount.sateen`: mounts a file system whose servers are elsewhere.
//!
//! It starts a process that serves the mount, waits until that answers, and leaves it behind;
//! `umount` ends it. What the process needs of the disk (log, control socket, locks) lies in a
//! folder of its own below `/run/sateen`, which `sateen status --data` shows too.

mod remount;

use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sateen_mount::Locking;
use sateen_types::Nid;
use sateen_wire::FsName;

use crate::cli::{MountArgs, RequestArgs, WakingArgs};
use crate::daemon::Server;
use crate::data_dir::DataDir;
use crate::node::mgc::Stop;
use crate::node::{self, How, Node};
use crate::refusal::{Outcome, Refusal};
use crate::ways::Net;
use crate::{background, killed, logging, mounts, nids, run_dir};

/// Half the size of a mount's log, which lies in memory as a rule.
const LOG_BYTES_MAX: u64 = 1 << 20;
/// How long a mount waits before it tries again, if it may.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Most minutes that it can be told to try for: a week.
const RETRY_MINUTES_MAX: u64 = 7 * 24 * 60;
/// The option that names OSTs that a mount does not use.
const EXCLUDE: &str = "exclude=";
/// How long the process of a mount that has just ended may take to write out what it has kept, and
/// to say goodbye: a little longer than it does take.
const PREDECESSOR_TIMEOUT: Duration = Duration::from_secs(75);
/// What mount(8) passes on without a meaning for a file system, or what is so anyway.
const IGNORED: [&str; 12] = [
    "defaults",
    "_netdev",
    "always_ping",
    "auto",
    "lazystatfs",
    "noauto",
    "nofail",
    "nouser",
    "nousers",
    "user",
    "user_xattr",
    "users",
];

/// Exit codes as mount(8) has them: wrong usage or no permission; and whatever else keeps it from
/// being mounted.
pub(crate) const USAGE: u8 = 1;
const FAILURE: u8 = 32;

/// Runs the command.
pub(crate) fn run(args: &MountArgs) -> ExitCode {
    let refused = |(code, refusal): (u8, Refusal)| {
        eprintln!("sateen: {refusal}");
        ExitCode::from(code)
    };
    try_run(args).unwrap_or_else(refused)
}

/// The same; an exit code stands beside each refusal.
fn try_run(args: &MountArgs) -> Result<ExitCode, (u8, Refusal)> {
    let usage = |refusal| (USAGE, refusal);
    let failure = |refusal| (FAILURE, refusal);
    background::keep_callers_files().map_err(failure)?;
    if let Some(namespace) = &args.namespace {
        enter(namespace).map_err(failure)?;
    }
    if remount::is_wanted(args) {
        let given = remount::Given::of(args).map_err(usage)?;
        mounts::require_root().map_err(usage)?;
        return remount::run(args, &given).map(|()| ExitCode::SUCCESS).map_err(failure);
    }
    let source = Source::parse(&args.source).map_err(usage)?;
    let how = options(args).map_err(usage)?;
    excluded(args, &source.fsname).map_err(usage)?;
    waking(args).map_err(usage)?;
    net(args).map_err(usage)?;
    mounts::require_root().map_err(usage)?;
    mounts::require_fuse().map_err(failure)?;
    let data = folder(&args.point).map_err(failure)?;
    if args.fake {
        return Ok(ExitCode::SUCCESS);
    }
    let done = if args.daemon.is_some() || args.foreground {
        serve(args, &source, how, &data)
    } else {
        start(args, &data)
    };
    done.map_err(failure)
}

/// Enters the mount namespace in which mount(8) is told to mount something (`--namespace`): it
/// leaves that to its helpers.
fn enter(namespace: &Path) -> Outcome<()> {
    let doing = || format!("enter the namespace {}", namespace.display());
    let file = std::fs::File::open(namespace).map_err(|error| Refusal::io(doing(), &error))?;
    let kind = Some(LinkNameSpaceType::Mount);
    move_into_link_name_space(file.as_fd(), kind).map_err(|e| Refusal::io(doing(), &e.into()))
}

fn start(args: &MountArgs, data: &DataDir) -> Outcome<ExitCode> {
    let mut command = background::program()?;
    command.arg("mount").args(background::waited_for());
    if args.read_only {
        command.arg("-r");
    }
    for options in &args.options {
        command.arg("-o").arg(options);
    }
    command.arg("--").arg(&args.source).arg(&args.point);
    background::leave_behind(command, &data.join("log"))
}

fn serve(args: &MountArgs, source: &Source, how: How, data: &DataDir) -> Outcome<ExitCode> {
    if let Some(waits) = args.daemon {
        background::begin(waits)?;
    }
    let _awake = waking(args)?.apply()?;
    net(args)?.apply();
    let point = mounts::prepare(&args.point)?;
    // The last mount there is gone from the tree before its process has said goodbye.
    data.wait_unused(PREDECESSOR_TIMEOUT)
        .map_err(|error| Refusal::io(format!("use {}", data.path().display()), &error))?;
    let lock = data.open()?;
    if args.daemon.is_some() {
        logging::to_file(data, LOG_BYTES_MAX)?;
    } else {
        logging::to_terminal();
    }
    logging::abort_on_panic();
    run_dir::clear_old();
    let mounted = node::Source { shown: args.source.clone(), below: source.below.clone() };
    let told = Stop::default();
    let until = Instant::now() + retry(args)?;
    let how = How { tried_until: Some(until), ..how };
    let mut said = false;
    let excluded = excluded(args, &source.fsname)?;
    let node = |stop: &Stop| loop {
        let node = Node::remote(&source.mgs, &source.fsname, mounted.clone(), stop);
        let refusal = match node {
            Ok(node) => {
                node.devices().exclude(&excluded);
                return Ok(node);
            }
            Err(refusal) if refusal.may_pass && Instant::now() < until => refusal,
            other => return other,
        };
        if stop.load(Ordering::Relaxed) {
            return Err(refusal);
        }
        if !core::mem::replace(&mut said, true) {
            eprintln!("{}; trying again for a while (retry)", refusal.what);
        }
        std::thread::sleep(RETRY_PAUSE);
    };
    let mut server = match Server::start(data.clone(), node, vec![point], how, &told) {
        Err(_) if told.load(Ordering::Relaxed) => {
            return match args.daemon.is_none_or(background::is_parent) {
                true => Err(Refusal::told_to_end()),
                // Nobody is there to read it.
                false => Ok(ExitCode::FAILURE),
            };
        }
        other => other?,
    };
    server.made_with(args.options.clone());
    background::announce(&mut server, args.daemon.is_some());
    let ended = server.run();
    drop(lock);
    ended.map(|()| ExitCode::SUCCESS)
}

/// What is to be mounted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// NIDs of the MGS.
    pub mgs: Vec<Nid>,
    /// Name of the file system.
    pub fsname: String,
    /// The directory of it, without slashes around; empty for all.
    pub below: String,
}

impl Source {
    pub(crate) fn parse(text: &str) -> Outcome<Source> {
        let wrong = |what: String| {
            Refusal::new(what, "write it like 10.0.0.1@tcp:/scratch, with the MGS's NID first")
        };
        let Some((list, path)) = text.split_once(":/") else {
            if text.starts_with('/') {
                return Err(Refusal::new(
                    format!("{text} is a place of this host, not a file system of servers"),
                    "mount NID:/FSNAME, like 10.0.0.1@tcp:/scratch; a target (mkfs.sateen) is not \
                     mounted but served: sateen serve FOLDER",
                ));
            }
            return Err(wrong(format!("{text:?} names no file system")));
        };
        let mgs = nids::resolve(list).map_err(|error| wrong(format!("{list:?}: {error}")))?;
        if mgs.contains(&Nid::Lo) {
            return Err(wrong(format!("{list} is reached by its own process only")));
        }
        let (fsname, below) = path.split_once('/').unwrap_or((path, ""));
        if fsname.is_empty() || FsName::new(fsname).is_none() {
            return Err(wrong(format!("{fsname:?} is no name of a file system")));
        }
        let below = below.trim_matches('/');
        if below.split('/').any(|name| name == "." || name == "..") {
            return Err(Refusal::new(
                format!("/{below} does not name a directory from the top"),
                format!("leave \".\" and \"..\" away: {list}:/{fsname}/DIRECTORY"),
            ));
        }
        Ok(Source { mgs, fsname: fsname.to_owned(), below: below.to_owned() })
    }
}

fn options(args: &MountArgs) -> Outcome<How> {
    let mut how = How::new(false);
    how.flags.read_only = args.read_only;
    how.requests = RequestArgs::of_mount(args.options.iter().flat_map(|list| list.split(',')))?;
    for option in args.options.iter().flat_map(|list| list.split(',')) {
        let known = option.is_empty()
            || IGNORED.contains(&option)
            || option.starts_with("x-")
            || how.flags.set(option);
        match option {
            "direct_io" => how.direct_io = true,
            // The OSTs are elsewhere: it gives none anyway.
            "nopassthrough" => {}
            "flock" => how.locking = Locking::Exact,
            "localflock" => how.locking = Locking::Local,
            "noflock" => how.locking = Locking::Refused,
            _ if minutes(option)?.is_some() => {}
            // See `excluded`.
            _ if option.starts_with(EXCLUDE) => {}
            // See below, `waking` and `net`.
            _ if RequestArgs::knows(option) => {}
            _ if WakingArgs::knows(option) || Net::knows(option) => {}
            _ if option.starts_with("network=") => {
                return Err(Refusal::new(
                    format!("the option {option:?} is not supported"),
                    "leave it out: servers are reached at the NIDs that they were started with \
                     (sateen serve --nid), from the one that answers",
                ));
            }
            _ if known => {}
            "user_fid2path" => {
                return Err(Refusal::new(
                    format!("the option {option:?} is not supported"),
                    "leave it out: lfs fid2path is for root alone, since a name may lie in a \
                     directory that its user must not look into",
                ));
            }
            "nosymfollow" | "lazytime" | "iversion" => {
                return Err(Refusal::new(
                    format!("the option {option:?} is not supported"),
                    "leave it out: it would have no effect",
                ));
            }
            _ => {
                return Err(Refusal::new(
                    format!("the option {option:?} is not known"),
                    "see mount.sateen --help for those that are",
                ));
            }
        }
    }
    Ok(how)
}

/// How the threads of the mount wait for work.
fn waking(args: &MountArgs) -> Outcome<WakingArgs> {
    WakingArgs::of_mount(args.options.iter().flat_map(|list| list.split(',')))
}

/// Over what the mount is connected with its servers.
fn net(args: &MountArgs) -> Outcome<Net> {
    Net::of_mount(args.options.iter().flat_map(|list| list.split(',')))
}

/// The minutes of an option `retry=MINUTES`, if it is one.
fn minutes(option: &str) -> Outcome<Option<u64>> {
    let Some(text) = option.strip_prefix("retry=") else { return Ok(None) };
    match text.parse() {
        Ok(minutes) if minutes <= RETRY_MINUTES_MAX => Ok(Some(minutes)),
        _ => Err(Refusal::new(
            format!("{option:?} does not say for how long to try"),
            format!("give it minutes, 0 to {RETRY_MINUTES_MAX}: retry=5"),
        )),
    }
}

/// The OSTs that the mount shall not use.
fn excluded(args: &MountArgs, fsname: &str) -> Outcome<Vec<u32>> {
    let mut osts = Vec::new();
    let options = args.options.iter().flat_map(|list| list.split(','));
    for list in options.filter_map(|option| option.strip_prefix(EXCLUDE)) {
        for name in list.split(':') {
            let of = name.strip_prefix(fsname).and_then(|rest| rest.strip_prefix("-OST"));
            let index = of.filter(|digits| digits.len() >= 4);
            match index.and_then(|digits| u32::from_str_radix(digits, 16).ok()) {
                Some(index) => osts.push(index),
                None => {
                    return Err(Refusal::new(
                        format!("{name:?} is no OST of {fsname}"),
                        format!(
                            "name OSTs as lfs osts does, with colons between: \
                             {EXCLUDE}{fsname}-OST0001:{fsname}-OST000a"
                        ),
                    ));
                }
            }
        }
    }
    Ok(osts)
}

/// For how long a mount is tried whose servers do not answer: the last that is said counts.
fn retry(args: &MountArgs) -> Outcome<Duration> {
    let mut told = 0;
    for option in args.options.iter().flat_map(|list| list.split(',')) {
        told = minutes(option)?.unwrap_or(told);
    }
    Ok(Duration::from_secs(60 * told))
}

/// The folder of a mount's process.
fn folder(point: &Path) -> Outcome<DataDir> {
    let shown = point.display();
    if let Ok(path) = std::path::absolute(point) {
        // Or it could not even be looked at.
        killed::free_mounts(&run_dir::of_mount(&path)?);
    }
    let path = point.canonicalize();
    let path = match path.map_err(|e| Refusal::io(format!("use the mount point {shown}"), &e)) {
        Ok(path) => path,
        // What is mounted there answers no more, and is cleared away later.
        Err(_) if is_left_behind(point) => {
            std::path::absolute(point).map_err(|e| Refusal::io(format!("use {shown}"), &e))?
        }
        Err(refusal) => return Err(refusal),
    };
    run_dir::of_mount(&path)
}

/// Whether a mount is there whose process is dead.
fn is_left_behind(point: &Path) -> bool {
    std::path::absolute(point).is_ok_and(|path| mounts::is_mounted(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn args(options: &[&str]) -> MountArgs {
        MountArgs {
            source: String::new(),
            point: "/".into(),
            options: options.iter().map(|&option| option.to_owned()).collect(),
            read_only: false,
            fake: false,
            foreground: false,
            daemon: None,
            namespace: None,
            ignored: crate::cli::MountIgnored::default(),
        }
    }

    #[test]
    fn sources_are_understood() {
        let source = Source::parse("10.0.0.1:7988@tcp:10.0.0.2@tcp1:/scratch").unwrap();
        assert_eq!(source.fsname, "scratch");
        assert_eq!(source.mgs.len(), 2);
        assert_eq!(Source::parse("10.0.0.1@tcp:/scratch/").unwrap().below, "");
        assert_eq!(Source::parse("10.0.0.1@tcp:/scratch/a/b/").unwrap().below, "a/b");
        for bad in [
            "",
            "10.0.0.1@tcp",
            "10.0.0.1:/scratch",
            "10.0.0.1@tcp:/",
            "10.0.0.1@tcp:/toolongname",
            "10.0.0.1@tcp:/a b",
            "0@lo:/scratch",
            "10.0.0.1@tcp:/scratch/a/../b",
        ] {
            assert!(Source::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn osts_are_excluded_by_their_names() {
        let of = |options: &[&str]| excluded(&args(options), "scratch");
        assert_eq!(of(&["ro"]), Ok(Vec::new()));
        let all = ["ro,exclude=scratch-OST0001:scratch-OST000a", "exclude=scratch-OST0100"];
        assert_eq!(of(&all), Ok(vec![1, 10, 256]));
        assert!(options(&args(&all)).is_ok());
        for bad in ["", "scratch", "OST0001", "other-OST0001", "scratch-MDT0000", "scratch-OST1"] {
            let refused = of(&[&format!("exclude={bad}")]).unwrap_err();
            assert!(refused.what.contains("no OST of scratch"), "{bad}: {}", refused.what);
        }
        assert!(of(&["exclude=scratch-OST0001:"]).is_err());
    }

    #[test]
    fn options_are_known_or_refused() {
        let all = ["ro,noatime", "defaults,user,_netdev,direct_io,nopassthrough"];
        let how = options(&args(&all)).unwrap();
        assert!(how.flags.read_only && how.flags.noatime && how.direct_io);
        assert!(!options(&args(&["ro,rw"])).unwrap().flags.read_only);
        let locking = |words: &[&str]| options(&args(words)).unwrap().locking;
        assert_eq!(locking(&["rw"]), Locking::Cluster);
        assert_eq!(locking(&["flock,noflock", "localflock"]), Locking::Local, "the last counts");
        assert_eq!(locking(&["localflock,noflock"]), Locking::Refused);
        assert_eq!(locking(&["noflock,flock"]), Locking::Exact);
        let requests = |words: &[&str]| options(&args(words)).map(|how| how.requests);
        assert_eq!(requests(&["rw"]), Ok(RequestArgs::default()));
        let said = requests(&["rw,transport=classic", "max_request=2M"]).unwrap();
        assert_eq!(said.to_args(), ["--transport", "classic", "--max-request", "2097152"]);
        for bad in ["transport=uring", "max_request=1"] {
            assert!(requests(&["rw", bad]).unwrap_err().what.contains(bad));
        }
        assert_eq!(retry(&args(&["ro", "retry=3"])), Ok(Duration::from_secs(180)));
        assert_eq!(retry(&args(&["ro,retry=3,retry=0"])), Ok(Duration::ZERO));
        for bad in ["retry=", "retry=x", "retry=-1", "retry=10081"] {
            assert!(options(&args(&[bad])).unwrap_err().what.contains(bad));
        }
        let refused = options(&args(&["rw,frobnicate"])).unwrap_err();
        assert!(refused.what.contains("frobnicate"));
        for (option, says) in [
            ("network=tcp1", "not supported"),
            ("user_fid2path", "not supported"),
            ("nosymfollow", "not supported"),
            ("lazytime", "not supported"),
            ("iversion", "not supported"),
        ] {
            let refused = options(&args(&["rw", option])).unwrap_err();
            assert!(refused.what.contains(says), "{option}: {}", refused.what);
        }
        let ignored = options(&args(&[&IGNORED.join(","), "x-systemd.automount"])).unwrap();
        assert_eq!(ignored.flags, How::new(false).flags, "they change nothing");
    }
}

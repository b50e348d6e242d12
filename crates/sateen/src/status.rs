//! `sateen status`: whether a file system runs, where it is mounted, its targets' space.

use std::io;
use std::process::ExitCode;

use crate::cli::StatusArgs;
use crate::control::{self, Answer, Command};
use crate::data_dir::{DataDir, User};
use crate::node::space_of;
use crate::refusal::{Outcome, Refusal};
use crate::report::{MountReport, Report, TargetReport, colours};
use crate::state::{Ended, State};
use crate::targets::{self, FSNAME};
use crate::{cluster, mounts};

/// What a process that was killed has left of itself.
const KILLED: &str = "its process was killed; what was synced is safe";

/// Exit code if it does not run, as other service programs have it, or not all of it does.
const NOT_ALL: u8 = 3;

/// Runs the command.
pub(crate) fn run(args: &StatusArgs) -> Outcome<ExitCode> {
    if let Some(what) = &args.what {
        return cluster::run(what, args.json);
    }
    let data = DataDir::at(&args.data.data)?;
    data.require()?;
    let report = report(&data)?;
    if args.json {
        let text = serde_json::to_string_pretty(&report)
            .map_err(|error| Refusal::io("print JSON", &error.into()))?;
        println!("{text}");
    } else {
        print!("{}", report.text(colours()));
    }
    Ok(if report.is_well() { ExitCode::SUCCESS } else { ExitCode::from(NOT_ALL) })
}

fn report(data: &DataDir) -> Outcome<Report> {
    let reading = |error| Refusal::io(format!("read {}", data.path().display()), &error);
    match data.user().map_err(reading)? {
        User::Nobody => at_rest(data),
        User::Checker(pid) => Err(data.is_checked(pid)),
        User::Process(pid) => match control::ask(data, Command::Status) {
            Ok(Answer::Status(report)) => Ok(report),
            Ok(_) => Err(Refusal::new("it gave an answer to another question", "try again")),
            // It may have ended in this very moment.
            Err(_) if data.user().map_err(reading)? == User::Nobody => at_rest(data),
            // Its socket is its owner's.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(Refusal::io(format!("ask whoever serves {}", data.path().display()), &error))
            }
            Err(error) => {
                let who = pid.map_or_else(String::new, |pid| format!(" {pid}"));
                Err(Refusal::new(
                    format!("process{who} uses the data folder but does not answer: {error}"),
                    "it may be starting or ending: try again; or look at its log",
                ))
            }
        },
    }
}

/// What can be told when nothing runs.
fn at_rest(data: &DataDir) -> Outcome<Report> {
    let state = State::load(data);
    let down = |target: targets::Target| {
        let space = space_of(&target.path).unwrap_or_default();
        TargetReport {
            name: target.label.target.to_string(),
            state: "down".to_owned(),
            bytes_total: space.bytes_total,
            bytes_used: space.bytes_total.saturating_sub(space.bytes_free),
            bytes_avail: space.bytes_avail,
        }
    };
    let mut targets: Vec<targets::Target> = targets::existing(data)?;
    targets.sort_by_key(|target| target.label.target);
    // A mount that is in the tree while nobody serves it is one that answers no more.
    let left = state.iter().flat_map(|state| &state.mounts).filter(|path| mounts::is_mounted(path));
    let mounts: Vec<MountReport> = left
        .map(|path| MountReport {
            path: path.clone(),
            state: "lost".to_owned(),
            transport: String::new(),
            max_request_bytes: 0,
            passthrough: false,
            not_given: None,
            left_open: 0,
        })
        .collect();
    let ended = state.map(|state| {
        state.ended.unwrap_or_else(|| Ended { at: 0, why: KILLED.to_owned(), failed: None })
    });
    Ok(Report {
        running: false,
        pid: None,
        fsname: targets.first().map_or(FSNAME, |target| &target.label.fsname).to_owned(),
        data: data.path().to_owned(),
        mount: mounts.first().map(|mount| mount.path.clone()),
        mounts,
        transport: None,
        uptime_s: 0,
        targets: targets.into_iter().map(down).collect(),
        ended,
    })
}

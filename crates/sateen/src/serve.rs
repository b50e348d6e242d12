//! `sateen serve`: runs targets for clients elsewhere, in the foreground.

use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use sateen_types::{Endpoint, Nid};

use crate::cli::ServeArgs;
use crate::daemon::Server;
use crate::node::mgc::Stop;
use crate::node::{How, Node};
use crate::refusal::{Outcome, Refusal};
use crate::targets::{self, Target};
use crate::{logging, nids, notify, run_dir};

/// Exit code of a start that will be refused again: who starts it anew when it has failed need not
/// (`RestartPreventExitStatus=` of the unit). It is EX_CONFIG of sysexits.h, which other services
/// use for the same.
const REFUSED_FOR_GOOD: u8 = 78;

/// Runs the command.
pub(crate) fn run(args: &ServeArgs) -> Outcome<ExitCode> {
    serve(args).or_else(|refusal| {
        if !refusal.lasts {
            return Err(refusal);
        }
        eprintln!("sateen: {refusal}");
        Ok(ExitCode::from(REFUSED_FOR_GOOD))
    })
}

fn serve(args: &ServeArgs) -> Outcome<ExitCode> {
    logging::to_terminal();
    logging::abort_on_panic();
    if args.nid.contains(&Nid::Lo) {
        return Err(Refusal::new(
            "0@lo is reached by nobody outside this process",
            "give an address of this host, like --nid 10.0.0.2@tcp",
        )
        .that_lasts());
    }
    let _awake = args.waking.apply()?;
    args.net.apply();
    let targets = open(&args.targets)?;
    let mgs = mgs_of(&targets)?;
    let names: Vec<String> = targets.iter().map(|target| target.label.target.to_string()).collect();
    let fsname = targets.first().map(|target| target.label.fsname.clone()).unwrap_or_default();
    let first = args.targets.first().map(PathBuf::as_path).unwrap_or(Path::new("/"));
    let data = run_dir::of_server(first)?;
    let told = Stop::default();
    let mut lock = None;
    let mut reached = String::new();
    let node = |stop: &Stop| {
        let node = Node::serve(targets, mgs, &args.nid, stop)?;
        let nids: Vec<String> = node.nids().iter().map(Nid::to_string).collect();
        reached = nids.join(" and ");
        // Only now: a target that is in use says better by whom.
        lock = Some(data.open()?);
        run_dir::clear_old();
        Ok(node)
    };
    let server = match Server::start(data.clone(), node, Vec::new(), How::new(false), &told) {
        // Told to end while it waited for the MGS.
        Err(_) if told.load(Ordering::Relaxed) => return Ok(ExitCode::SUCCESS),
        other => other?,
    };
    tracing::info!(
        targets = names.join(" "),
        fsname,
        at = reached,
        parent = parent_id(),
        "serving"
    );
    println!("serving {} of {fsname} at {reached}", names.join(" "));
    notify::tell("READY=1");
    let ended = server.run();
    drop(lock);
    ended.map(|()| ExitCode::SUCCESS)
}

/// The targets in these folders: of one file system, each there once.
fn open(paths: &[PathBuf]) -> Outcome<Vec<Target>> {
    let mut found: Vec<Target> = Vec::new();
    for path in paths {
        let target = targets::at(path)?;
        let me = target.label.target;
        if let Some(other) = found.iter().find(|other| other.label.fsname != target.label.fsname) {
            return Err(Refusal::new(
                format!(
                    "{} belongs to {}, and {} to {}",
                    other.path.display(),
                    other.label.fsname,
                    path.display(),
                    target.label.fsname
                ),
                "serve each file system with a process of its own",
            )
            .that_lasts());
        }
        if let Some(other) = found.iter().find(|other| other.label.target == me) {
            return Err(Refusal::new(
                format!("{} and {} are both {me}", other.path.display(), path.display()),
                "name each folder once; of two targets with one index, make one with another",
            )
            .that_lasts());
        }
        found.push(target);
    }
    Ok(found)
}

/// Where the MGS is; nowhere, if it is among the targets.
fn mgs_of(targets: &[Target]) -> Outcome<Vec<Nid>> {
    if targets.iter().any(|target| target.label.target == Endpoint::Mgs) {
        return Ok(Vec::new());
    }
    let nodes = targets.iter().map(|target| target.label.mgs_nodes.as_str());
    let Some(nodes) = nodes.clone().find(|nodes| !nodes.is_empty()) else {
        return Err(Refusal::new(
            "nothing says where the MGS is",
            "serve the MGT in the same process, or make targets with --mgsnode=NID",
        )
        .that_lasts());
    };
    nids::resolve(nodes).map_err(|error| {
        Refusal::new(
            format!("cannot use --mgsnode={nodes}: {error}"),
            "see whether its names can be looked up (/etc/hosts), or make the target anew",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_knows_what_is_refused_for_good() {
        let unit = include_str!("../../../packaging/sateen-target@.service");
        let line = format!("RestartPreventExitStatus={REFUSED_FOR_GOOD}");
        assert!(unit.lines().any(|it| it == line), "{unit}");
    }
}

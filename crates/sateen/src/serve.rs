//! `sateen serve`: runs targets for clients elsewhere, in the foreground.

use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};

use sateen_types::{Endpoint, Nid, parse_nids};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::ServeArgs;
use crate::node::Node;
use crate::node::mgc::Stop;
use crate::refusal::{Outcome, Refusal};
use crate::targets::{self, Target};
use crate::{logging, notify};

/// Runs the command.
pub(crate) fn run(args: &ServeArgs) -> Outcome<ExitCode> {
    logging::to_terminal();
    logging::abort_on_panic();
    if args.nid.contains(&Nid::Lo) {
        return Err(Refusal::new(
            "0@lo is reached by nobody outside this process",
            "give an address of this host, like --nid 10.0.0.2@tcp",
        ));
    }
    let targets = open(&args.targets)?;
    let mgs = mgs_of(&targets)?;
    let names: Vec<String> = targets.iter().map(|target| target.label.target.to_string()).collect();
    let fsname = targets.first().map(|target| target.label.fsname.clone()).unwrap_or_default();
    let stop = Stop::default();
    let signals = watch_signals(&stop)?;
    let node = match Node::serve(targets, mgs, &args.nid, &stop) {
        // Told to end while it waited for the MGS.
        Err(_) if stop.load(Ordering::Relaxed) => return Ok(ExitCode::SUCCESS),
        other => other?,
    };
    tracing::info!(targets = names.join(" "), fsname, parent = parent_id(), "serving");
    println!("serving {} of {fsname}", names.join(" "));
    notify::tell("READY=1");
    let signal = signals.recv().unwrap_or(SIGTERM);
    tracing::info!(signal, "ending");
    notify::tell("STOPPING=1");
    node.close().map(|()| ExitCode::SUCCESS)
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
            ));
        }
        if let Some(other) = found.iter().find(|other| other.label.target == me) {
            return Err(Refusal::new(
                format!("{} and {} are both {me}", other.path.display(), path.display()),
                "name each folder once; of two targets with one index, make one with another",
            ));
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
        ));
    };
    parse_nids(nodes).map_err(|error| {
        Refusal::new(format!("cannot use --mgsnode={nodes}: {error}"), "make the target anew")
    })
}

/// The first signal ends it in good order, the second one at once.
fn watch_signals(stop: &Stop) -> Outcome<Receiver<i32>> {
    let failed = |error: std::io::Error| Refusal::io("take signals", &error);
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(failed)?;
    let (sender, receiver) = channel();
    let stop = stop.clone();
    let watch = move || {
        for (count, signal) in signals.forever().enumerate() {
            if count > 0 {
                tracing::error!("a second signal: ending at once, as in a crash");
                std::process::exit(1);
            }
            stop.store(true, Ordering::Relaxed);
            // Nobody listens while it starts, and then the stop is enough.
            let _ = sender.send(signal);
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(watch).map_err(failed)?;
    Ok(receiver)
}

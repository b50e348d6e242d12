//! `sateen status` of a whole file system whose servers are elsewhere.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use sateen_types::units::format_size;
use serde::Serialize;

use crate::mount_helper::Source;
use crate::mounts::{self, Ours};
use crate::node::mgc::Stop;
use crate::node::{self, Node, Seen};
use crate::refusal::{Outcome, Refusal};

/// Exit code if not all that should run does.
const NOT_ALL: u8 = 3;

/// A file system of several servers. Its JSON is an interface: names stay.
#[derive(Debug, Serialize)]
struct Cluster {
    fsname: String,
    /// NIDs of the MGS.
    mgs: Vec<String>,
    targets: Vec<Row>,
}

/// One target.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    /// "up", "down", "failed", "foreign" or "inactive".
    state: String,
    nids: Vec<String>,
    bytes_total: u64,
    bytes_used: u64,
    bytes_avail: u64,
    files_total: u64,
    files_used: u64,
}

/// Runs the command: `what` is a mount, or NID:/FSNAME.
pub(crate) fn run(what: &str, json: bool) -> Outcome<ExitCode> {
    let source = source(what)?;
    let node =
        Node::remote(&source.mgs, &source.fsname, node::Source::default(), &Stop::default())?;
    let seen = node.look();
    node.close()?;
    let cluster = Cluster {
        fsname: source.fsname,
        mgs: source.mgs.iter().map(ToString::to_string).collect(),
        targets: seen.iter().map(row).collect(),
    };
    if json {
        let text = serde_json::to_string_pretty(&cluster)
            .map_err(|error| Refusal::io("print JSON", &error.into()))?;
        println!("{text}");
    } else {
        print!("{}", cluster.text());
    }
    let well = |row: &Row| row.state == "up" || row.state == "inactive";
    let all = cluster.targets.iter().all(well);
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::from(NOT_ALL) })
}

fn source(what: &str) -> Outcome<Source> {
    if what.contains('@') && what.contains(":/") && !Path::new(what).exists() {
        return Source::parse(what);
    }
    match mount(Path::new(what)).map_err(|error| Refusal::io(format!("look at {what}"), &error))? {
        Some(mount) if mount.source.contains(":/") => Source::parse(&mount.source),
        Some(_) => Err(Refusal::new(
            format!("{what} is on a file system in one process"),
            "name its data folder: sateen status --data DIR",
        )),
        None => Err(Refusal::new(
            format!("{what} is not on a mount of Sateen"),
            "name a mount, or the MGS and the file system, like 10.0.0.1@tcp:/scratch",
        )),
    }
}

/// The mount that a path names, or lies in.
fn mount(path: &Path) -> io::Result<Option<Ours>> {
    let point = std::path::absolute(path)?;
    // Looking at a mount may wait for servers that are gone.
    let named = mounts::ours()?.into_iter().rfind(|mount| mount.point == point);
    named.map_or_else(|| mounts::ours_of(path), |mount| Ok(Some(mount)))
}

fn row(seen: &Seen) -> Row {
    let space = seen.space.unwrap_or_default();
    Row {
        name: seen.info.target.to_string(),
        state: seen.state.to_owned(),
        nids: seen.info.nids.iter().map(|nid| nid.to_string()).collect(),
        bytes_total: space.bytes_total,
        bytes_used: space.bytes_total.saturating_sub(space.bytes_free),
        bytes_avail: space.bytes_avail,
        files_total: space.files_total,
        files_used: space.files_total.saturating_sub(space.files_free),
    }
}

impl Cluster {
    fn text(&self) -> String {
        let mut out =
            format!("{:<10} {}\n{:<10} {}\n\n", "fsname", self.fsname, "MGS", self.mgs.join(":"));
        out.push_str(&format!(
            "{:<10} {:<8} {:>9} {:>9} {:>9}  {}\n",
            "target", "state", "size", "used", "avail", "NIDs"
        ));
        for row in &self.targets {
            out.push_str(&format!(
                "{:<10} {:<8} {:>9} {:>9} {:>9}  {}\n",
                row.name,
                row.state,
                format_size(row.bytes_total),
                format_size(row.bytes_used),
                format_size(row.bytes_avail),
                row.nids.join(":")
            ));
        }
        out
    }
}

//! `sateen status` of a whole file system whose servers are elsewhere.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use sateen_types::units::format_size;
use serde::{Deserialize, Serialize};

use crate::control::{self, Answer};
use crate::data_dir::User;
use crate::mount_helper::Source;
use crate::mounts::{self, Ours};
use crate::node::mgc::Stop;
use crate::node::{self, Node, Seen};
use crate::refusal::{Outcome, PROCESS_GONE, Refusal};
use crate::run_dir;

/// Exit code if not all that should run does.
const NOT_ALL: u8 = 3;

/// A file system of several servers. Its JSON is an interface: names stay.
#[derive(Debug, Serialize)]
struct Cluster {
    fsname: String,
    /// NIDs of the MGS.
    mgs: Vec<String>,
    /// "up" or "down".
    mgs_state: String,
    /// The mount that was named, if one was.
    mount: Option<MountRow>,
    targets: Vec<Row>,
}

/// A mount of it here.
#[derive(Debug, Serialize)]
struct MountRow {
    path: PathBuf,
    /// "mounted", or "lost" if its process is gone.
    state: &'static str,
}

/// One target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Row {
    name: String,
    /// "up", "down", "failed", "foreign" or "inactive".
    state: String,
    nids: Vec<String>,
    /// Nothing is known of the space of a target that does not answer.
    bytes_total: Option<u64>,
    bytes_used: Option<u64>,
    bytes_avail: Option<u64>,
    files_total: Option<u64>,
    files_used: Option<u64>,
}

/// Runs the command: `what` is a mount, or NID:/FSNAME.
pub(crate) fn run(what: &str, json: bool) -> Outcome<ExitCode> {
    let (source, mount) = source(what)?;
    let mount = mount.map(|path| {
        // Whom to ask says it: the mount itself might wait for servers that are gone.
        let user = run_dir::of_mount(&path).ok().and_then(|data| data.user().ok());
        let state = if user == Some(User::Nobody) { "lost" } else { "mounted" };
        MountRow { path, state }
    });
    let is_lost = mount.as_ref().is_some_and(|mount| mount.state == "lost");
    let node = Node::remote(&source.mgs, &source.fsname, node::Source::default(), &Stop::default());
    let (mgs_state, targets) = match node {
        Ok(node) => {
            let seen = node.look();
            node.close()?;
            ("up", seen.iter().map(row).collect())
        }
        // It may be missed only here: who has it mounted knows where everybody is.
        Err(refusal) if refusal.may_pass => match known_by_mount(&source) {
            Some(rows) => ("down", rows),
            None => return Err(refusal),
        },
        Err(refusal) => return Err(refusal),
    };
    let cluster = Cluster {
        fsname: source.fsname,
        mgs: source.mgs.iter().map(ToString::to_string).collect(),
        mgs_state: mgs_state.to_owned(),
        mount,
        targets,
    };
    if json {
        let text = serde_json::to_string_pretty(&cluster)
            .map_err(|error| Refusal::io("print JSON", &error.into()))?;
        println!("{text}");
    } else {
        print!("{}", cluster.text());
    }
    let well = |row: &Row| row.state == "up" || row.state == "inactive";
    let all = cluster.mgs_state == "up" && !is_lost && cluster.targets.iter().all(well);
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::from(NOT_ALL) })
}

/// What a mount of it on this host knows.
fn known_by_mount(source: &Source) -> Option<Vec<Row>> {
    let is_of_it = |mount: &Ours| {
        Source::parse(&mount.source)
            .is_ok_and(|other| other.mgs == source.mgs && other.fsname == source.fsname)
    };
    let mounts = mounts::ours().unwrap_or_default().into_iter().filter(is_of_it);
    mounts.into_iter().find_map(|mount| {
        let data = run_dir::of_mount(&mount.point).ok()?;
        match control::ask(&data, control::Command::Look) {
            Ok(Answer::Targets(rows)) => Some(rows),
            _ => None,
        }
    })
}

/// What is named, and by which mount, if by one.
fn source(what: &str) -> Outcome<(Source, Option<PathBuf>)> {
    if what.contains('@') && what.contains(":/") && !Path::new(what).exists() {
        return Ok((Source::parse(what)?, None));
    }
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Refusal::new(
            format!("cannot look at {what}: {error}"),
            "name a mount, or the MGS and the file system, like 10.0.0.1@tcp:/scratch",
        ),
        _ => Refusal::io(format!("look at {what}"), &error),
    };
    match mount(Path::new(what)).map_err(failed)? {
        Some(mount) if mount.source.contains(":/") => {
            Ok((Source::parse(&mount.source)?, Some(mount.point)))
        }
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

/// As it is shown.
pub(crate) fn row(seen: &Seen) -> Row {
    let space = seen.space;
    Row {
        name: seen.info.target.to_string(),
        state: seen.state.to_owned(),
        nids: seen.info.nids.iter().map(|nid| nid.to_string()).collect(),
        bytes_total: space.map(|space| space.bytes_total),
        bytes_used: space.map(|space| space.bytes_total.saturating_sub(space.bytes_free)),
        bytes_avail: space.map(|space| space.bytes_avail),
        files_total: space.map(|space| space.files_total),
        files_used: space.map(|space| space.files_total.saturating_sub(space.files_free)),
    }
}

impl Cluster {
    fn text(&self) -> String {
        let mut out = format!("{:<10} {}\n", "fsname", self.fsname);
        if let Some(MountRow { path, state }) = &self.mount {
            let advice = if *state == "lost" { format!(": {PROCESS_GONE}") } else { String::new() };
            out.push_str(&format!("{:<10} {} ({state}{advice})\n", "mount", path.display()));
        }
        out.push('\n');
        out.push_str(&format!(
            "{:<10} {:<8} {:>9} {:>9} {:>9}  {}\n",
            "target", "state", "size", "used", "avail", "NIDs"
        ));
        // Its space is nobody's concern.
        let (nids, none) = (self.mgs.join(":"), "-");
        out.push_str(&format!(
            "{:<10} {:<8} {none:>9} {none:>9} {none:>9}  {nids}\n",
            "MGS", self.mgs_state
        ));
        let size = |bytes: Option<u64>| bytes.map_or_else(|| none.to_owned(), format_size);
        for row in &self.targets {
            out.push_str(&format!(
                "{:<10} {:<8} {:>9} {:>9} {:>9}  {}\n",
                row.name,
                row.state,
                size(row.bytes_total),
                size(row.bytes_used),
                size(row.bytes_avail),
                row.nids.join(":")
            ));
        }
        out
    }
}

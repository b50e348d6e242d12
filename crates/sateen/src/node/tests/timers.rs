//! Timers of the parts: nothing is measured while they are off, and each operation in all of its parts
//! while they are on. Needs root and /dev/fuse.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use sateen_testkit::can_mount;
use sateen_testkit::cluster::until;

use super::alone::alone;
use super::world::{Way, mounted};
use crate::node::Node;

const FILES: u64 = 20;

#[test]
fn parts_are_measured_while_their_timers_are_on() {
    if can_mount() {
        alone("node::tests::timers::parts_are_measured_while_their_timers_are_on", || {
            mounted(Way::Embedded, embedded);
            mounted(Way::Classic, embedded);
            mounted(Way::Tcp, over_tcp);
        });
    }
}

/// How often something was measured, and how long it took together.
type Times = BTreeMap<String, (u64, u64)>;

/// What a part's parameter shows.
fn times(node: &Node, part: &str) -> Times {
    let name = format!("{part}/timers");
    let all = node.devices().params();
    let text = all.iter().find(|param| param.name == name).unwrap().value();
    let measured = text.lines().filter(|line| line.contains(" samples [nsecs] "));
    let entry = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words[0].to_owned(), (words[1].parse().unwrap(), words[6].parse().unwrap()))
    };
    measured.map(entry).collect()
}

fn set(node: &Node, value: &str) {
    let set = node.devices().set("*.timers", value);
    assert_eq!(set.len(), PARTS.len());
    assert!(set.iter().all(|one| one.error.is_none()));
}

const PARTS: [&str; 8] = ["client", "fuse", "journal", "llite", "lnd", "osd", "rpc", "target"];

/// The parts of which each request of a program is one.
const VERBS: [&str; 3] = ["fuse", "llite", "client"];

fn work(point: &Path, name: &str) {
    for number in 0..FILES {
        let file = File::create(point.join(format!("{name}{number}"))).unwrap();
        file.write_all_at(&[7; 4096], 0).unwrap();
        file.sync_all().unwrap();
    }
}

/// Waits until all of [`work`] is counted: programs go on when they are answered, and some is done
/// after that.
fn is_counted(node: &Node) {
    for part in VERBS {
        until("all is counted", || {
            let times = times(node, part);
            let count = |op: &str| times.get(op).map_or(0, |(count, _)| *count);
            // Of what was closed before that some may come late.
            [count("create"), count("fsync")] == [FILES; 2] && count("close") >= FILES
        });
    }
}

fn embedded(point: &Path, node: &Node) {
    work(point, "before");
    assert!(PARTS.iter().all(|part| times(node, part).is_empty()));
    set(node, "1");
    work(point, "measured");
    is_counted(node);
    let all: BTreeMap<&str, Times> = PARTS.map(|part| (part, times(node, part))).into();
    let of = |part: &str, op: &str| {
        let times = &all[part];
        *times.get(op).unwrap_or_else(|| panic!("{part} has no {op}: {times:?}"))
    };
    let ((_, waits), (_, runs)) = (of("llite", "create"), of("client", "create"));
    assert!(waits >= runs && runs > 0, "{waits} and {runs}");
    let ((asked, waits), (done, runs)) =
        (of("rpc", "mds_reint_create"), of("target", "mds_reint_create"));
    assert_eq!([asked, done], [FILES; 2]);
    assert!(waits >= runs && runs > 0, "{waits} and {runs}");
    for (part, op) in [
        ("fuse", "write"),
        ("fuse", "fsync"),
        ("llite", "fsync"),
        ("target", "lock_wait"),
        ("osd", "sync"),
        ("journal", "commit"),
    ] {
        assert!(of(part, op).0 > 0, "{part} {op}");
    }
    assert!(all["lnd"].is_empty(), "there is no network");
    set(node, "clear");
    work(point, "anew");
    is_counted(node);
    set(node, "0");
    work(point, "after");
    assert!(VERBS.iter().all(|part| times(node, part).is_empty()), "to stop forgets");
}

fn over_tcp(point: &Path, node: &Node) {
    set(node, "1");
    work(point, "measured");
    let ((asked, waits), (sent, under_way)) =
        (times(node, "rpc")["mds_reint_create"], times(node, "lnd")["mds_reint_create"]);
    assert_eq!([asked, sent], [FILES; 2]);
    assert!(waits >= under_way && under_way > 0, "{waits} and {under_way}");
    set(node, "0");
}

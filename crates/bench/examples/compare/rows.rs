//! What is measured: groups of rows, in visits. A visit is what is done on one file system before
//! the next has its turn; reads of a visit begin cold, and are warm when they come again.
//!
//! Removals come after everything else, because ext4 passes over inodes that were just removed for
//! minutes, which would slow the creates of whatever lies on it; what many files cost comes behind
//! them, since these are removed as well.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::systems::{Kind, System};

/// Files of 3901 bytes and transfers of 47008 are those of IO500's hard phases.
const SMALL_BYTES: u64 = 3901;
const SHARED_BYTES: u64 = 47008;
const RANDOM_BYTES: u64 = 4096;
const MIB: u64 = 1 << 20;
/// What data is made of, so that another run can compare it.
const SIGNATURE: &str = "7";

/// What belongs together.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Names rather than data.
    pub(crate) metadata: bool,
    /// OSTs that a file lies on, where that can be chosen; others are asked only for one.
    pub(crate) stripes: u32,
    pub(crate) unit: &'static str,
}

pub(crate) const GROUPS: [Group; 9] = [
    Group { name: "empty", title: "empty files", metadata: true, stripes: 1, unit: "files/s" },
    Group {
        name: "small",
        title: "files of 3901 bytes",
        metadata: true,
        stripes: 1,
        unit: "files/s",
    },
    Group {
        name: "seq1",
        title: "1 MiB sequential, 1 stripe",
        metadata: false,
        stripes: 1,
        unit: "MiB/s",
    },
    Group {
        name: "seq4",
        title: "1 MiB sequential, 4 stripes",
        metadata: false,
        stripes: 4,
        unit: "MiB/s",
    },
    Group {
        name: "shared",
        title: "47008 bytes, shared file",
        metadata: false,
        stripes: 1,
        unit: "MiB/s",
    },
    Group {
        name: TWO,
        title: "47008 bytes, one file of two mounts",
        metadata: false,
        stripes: 1,
        unit: "MiB/s",
    },
    Group {
        name: "random",
        title: "4 KiB random",
        metadata: false,
        stripes: 1,
        unit: "operations/s",
    },
    Group {
        name: SEQ4K,
        title: "4 KiB sequential",
        metadata: false,
        stripes: 1,
        unit: "operations/s",
    },
    Group { name: MANY, title: "100 000 empty files", metadata: true, stripes: 1, unit: "files/s" },
];

/// The group of two processes, each on a mount of its own, that write one file in turns of 47008
/// bytes; what they have written is compared on a third mount. Where all mounts of a file system are
/// the same kernel's, they are one.
pub(crate) const TWO: &str = "two";

/// The group of one process that writes 4 KiB after 4 KiB, which is what a request costs: it is held
/// against FUSE with nothing behind it, so nothing is synced within the time.
pub(crate) const SEQ4K: &str = "seq4k";
/// The group of one process that looks at many files, and again: how many locks and inodes are kept.
pub(crate) const MANY: &str = "many";

/// The group that measures nothing but processes that nobody asks anything.
pub(crate) const IDLE: &str = "idle";
/// Its one row.
pub(crate) const IDLE_ROW: &str = "idle.cpu";

/// The group of this name.
pub(crate) fn group(name: &str) -> Option<&'static Group> {
    GROUPS.iter().find(|group| group.name == name)
}

/// One of the operations of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Create,
    Stat,
    Read,
    Remove,
    Write,
}

/// Whether the kernel's caches were dropped before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caches {
    /// It changes something, and finds caches as they are.
    Any,
    Cold,
    Warm,
}

/// One run of sateen-bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) op: Op,
    pub(crate) caches: Caches,
    /// Compares what is read, and is no measurement.
    pub(crate) verify: bool,
}

const fn step(op: Op, caches: Caches) -> Step {
    Step { op, caches, verify: false }
}
const VERIFY: Step = Step { op: Op::Read, caches: Caches::Any, verify: true };

/// What is done on a file system in a turn.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) group: &'static Group,
    pub(crate) processes: u32,
    pub(crate) steps: &'static [Step],
    /// The first and the last of a group: its folder is made, and removed.
    pub(crate) first: bool,
    pub(crate) last: bool,
}

const DATA: [&[Step]; 2] = [
    &[step(Op::Write, Caches::Any)],
    &[step(Op::Read, Caches::Cold), step(Op::Read, Caches::Warm), VERIFY],
];
const WRITE: [&[Step]; 1] = [&[step(Op::Write, Caches::Any)]];
const TOGETHER: [&[Step]; 1] = [&[step(Op::Write, Caches::Any), VERIFY]];
const EMPTY: [&[Step]; 2] = [
    &[step(Op::Create, Caches::Any)],
    &[step(Op::Stat, Caches::Cold), step(Op::Stat, Caches::Warm)],
];
const SMALL: [&[Step]; 3] = [
    &[step(Op::Create, Caches::Any)],
    &[step(Op::Stat, Caches::Cold), step(Op::Stat, Caches::Warm)],
    &[step(Op::Read, Caches::Cold), step(Op::Read, Caches::Warm), VERIFY],
];
const REMOVE: [&[Step]; 1] = [&[step(Op::Remove, Caches::Any)]];

/// All visits of a round, in their order, of the groups that are wanted.
pub(crate) fn visits(wanted: &[String], processes: &[u32]) -> Vec<Visit> {
    let mut all = Vec::new();
    let has = |group: &Group| wanted.iter().any(|name| name == group.name);
    let mut add = |group: &'static Group, processes, visits: &[&'static [Step]], ends| {
        for (at, steps) in visits.iter().enumerate() {
            let (first, last) = ends;
            let (first, last) = (first && at == 0, last && at + 1 == visits.len());
            all.push(Visit { group, processes, steps, first, last });
        }
    };
    let (many, rest): (Vec<_>, Vec<_>) =
        GROUPS.iter().filter(|group| has(group)).partition(|group| group.name == MANY);
    let (metadata, data): (Vec<_>, Vec<_>) = rest.into_iter().partition(|group| group.metadata);
    for &count in processes {
        for &group in &data {
            match group.name {
                TWO if count == 2 => add(group, count, &TOGETHER, (true, true)),
                SEQ4K if count == 1 => add(group, count, &WRITE, (true, true)),
                TWO | SEQ4K => {}
                _ => add(group, count, &DATA, (true, true)),
            }
        }
    }
    for &count in processes {
        for &group in &metadata {
            let visits: &[&[Step]] = if group.name == "empty" { &EMPTY } else { &SMALL };
            add(group, count, visits, (true, false));
        }
    }
    for &count in processes {
        for &group in &metadata {
            add(group, count, &REMOVE, (false, true));
        }
    }
    for &group in many.iter().filter(|_| processes.contains(&1)) {
        add(group, 1, &EMPTY, (true, true));
    }
    all
}

impl Step {
    /// The name of its row in this group.
    pub(crate) fn row(self, group: &Group) -> String {
        let op = match self.op {
            Op::Create => "create",
            Op::Stat => "stat",
            Op::Read => "read",
            Op::Remove => "remove",
            Op::Write => "write",
        };
        match self.caches {
            Caches::Any => format!("{}.{op}", group.name),
            Caches::Cold => format!("{}.{op}.cold", group.name),
            Caches::Warm => format!("{}.{op}.warm", group.name),
        }
    }
}

impl Visit {
    /// Whether it measures how fast data is written.
    pub(crate) fn writes_data(&self) -> bool {
        self.steps.iter().any(|step| step.op == Op::Write)
    }

    /// Whether a file system takes part: only Sateen can be told how many stripes a file has, and
    /// two mounts not all have.
    pub(crate) fn is_for(&self, system: &System) -> bool {
        match self.group.name {
            TWO => return system.known.kind == Kind::Local || system.others.len() > 1,
            // It takes minutes where a file takes a millisecond, and asks about Sateen alone.
            MANY => {
                return matches!(
                    system.known.name,
                    "ext4" | "sateen" | "sateen-tcp" | "sateen-shm"
                );
            }
            _ => {}
        }
        self.group.stripes == 1 || system.known.kind == Kind::Sateen
    }

    /// Operations of a process: files, or transfers.
    pub(crate) fn count(&self, kind: Kind, scale_percent: u32) -> u64 {
        let [local, null, sateen, peer] = match self.group.name {
            "empty" => [60_000, 30_000, 20_000, 3000],
            "small" => [20_000, 20_000, 8000, 2000],
            "seq1" | "seq4" => [1024; 4],
            "shared" | TWO => [512 * MIB / SHARED_BYTES; 4],
            MANY => [100_000; 4],
            SEQ4K => [512, 512, 512, 32].map(|mib| mib * MIB / RANDOM_BYTES),
            _ => [128 * MIB / RANDOM_BYTES; 4],
        };
        let all = match kind {
            Kind::Local => local,
            Kind::Null => null,
            Kind::Sateen => sateen,
            Kind::Peer => peer,
        };
        (all * u64::from(scale_percent) / 100 / u64::from(self.processes)).max(8)
    }

    /// What all processes together write or read with so many operations each.
    pub(crate) fn bytes(&self, count: u64) -> u64 {
        let each = match self.group.name {
            "empty" | MANY => 0,
            "small" => SMALL_BYTES,
            "shared" | TWO => SHARED_BYTES,
            "random" | SEQ4K => RANDOM_BYTES,
            _ => MIB,
        };
        count.saturating_mul(each).saturating_mul(self.processes.into())
    }

    /// The words that have sateen-bench do a step in a folder, which several mounts may show.
    pub(crate) fn words(&self, step: Step, count: u64, dirs: &[PathBuf]) -> Vec<OsString> {
        let line = if self.group.metadata {
            let small = self.group.name == "small";
            let bytes = if small { SMALL_BYTES } else { 0 };
            // Files of 3901 bytes are in one folder, empty ones in one for each process.
            let shared = if small { "" } else { "-u" };
            let what = match (step.op, step.verify) {
                (Op::Create, _) => format!("-C -w {bytes}"),
                (Op::Stat, _) => "-T".to_owned(),
                (Op::Remove, _) => "-r".to_owned(),
                (_, false) => format!("-E -e {bytes}"),
                (_, true) => format!("-E -X -w {bytes} -e {bytes}"),
            };
            format!("mdtest -F {shared} -n {count} -G {SIGNATURE} {what} -d")
        } else {
            let what = match (step.op, step.verify) {
                (Op::Write, _) if self.group.name == TWO => "-w -e -E",
                (Op::Write, _) if self.group.name == SEQ4K => "-w",
                (Op::Write, _) => "-w -e",
                (_, false) => "-r",
                (_, true) => "-R",
            };
            let sizes = match self.group.name {
                "shared" | TWO => format!("-b {SHARED_BYTES} -t {SHARED_BYTES} -s {count}"),
                "random" => {
                    let bytes = count * RANDOM_BYTES;
                    format!("-F -z --random-offset-seed 7 -b {bytes} -t {RANDOM_BYTES}")
                }
                SEQ4K => format!("-F -b {} -t {RANDOM_BYTES}", count * RANDOM_BYTES),
                _ => format!("-F -b {count}m -t 1m"),
            };
            format!("ior {what} -k -G {SIGNATURE} {sizes} -o")
        };
        let mut at = OsString::new();
        for dir in dirs {
            if !at.is_empty() {
                at.push("@");
            }
            at.push(if self.group.metadata { dir.clone() } else { dir.join("file") });
        }
        let words = line.split_whitespace().map(Into::into);
        words.chain([at]).collect()
    }

    /// What sateen-bench calls a step, and what its rate is multiplied with for the group's unit.
    pub(crate) fn reported(&self, step: Step) -> (&'static str, f64) {
        let in_operations = matches!(self.group.name, "random" | SEQ4K);
        let factor = if in_operations { (MIB / RANDOM_BYTES) as f64 } else { 1.0 };
        match step.op {
            Op::Create => ("File creation", 1.0),
            Op::Stat => ("File stat", 1.0),
            Op::Remove => ("File removal", 1.0),
            Op::Read if self.group.metadata => ("File read", 1.0),
            Op::Read => ("read", factor),
            Op::Write => ("write", factor),
        }
    }
}

/// A row in words: `empty files: stat, cold`.
pub(crate) fn title(row: &str) -> String {
    let mut parts = row.split('.');
    let name = parts.next().unwrap_or_default();
    let title = group(name).map_or(name, |group| group.title);
    format!("{title}: {}", parts.collect::<Vec<_>>().join(", "))
}

/// MiB of an operation, of rows whose rates are in MiB.
pub(crate) fn mib_of(row: &str) -> f64 {
    match row.split('.').next() {
        Some("shared" | TWO) => SHARED_BYTES as f64 / MIB as f64,
        _ => 1.0,
    }
}

/// Every row there is, in the order of the document.
pub(crate) fn all_rows() -> Vec<String> {
    let names: Vec<String> = GROUPS.iter().map(|group| group.name.to_owned()).collect();
    // With one process or with two there is each of them.
    let visits = visits(&names, &[1, 2]);
    let mut rows = Vec::new();
    for group in &GROUPS {
        for visit in visits.iter().filter(|visit| visit.group.name == group.name) {
            let measured = visit.steps.iter().filter(|step| !step.verify);
            for row in measured.map(|step| step.row(group)) {
                if !rows.contains(&row) {
                    rows.push(row);
                }
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_as_the_document_names_them() {
        let rows = all_rows();
        assert_eq!(rows.len(), 4 + 6 + 4 * 3 + 1 + 1 + 3, "{rows:?}");
        assert_eq!(rows.first().map(|row| title(row)).as_deref(), Some("empty files: create"));
        assert_eq!(title("random.read.cold"), "4 KiB random: read, cold");
    }

    #[test]
    fn everything_is_created_before_anything_is_removed() {
        let wanted = ["empty".to_owned(), "small".to_owned()];
        let visits = visits(&wanted, &[1, 2]);
        let position = |op, last: bool| {
            let mut found = visits.iter().map(|visit| visit.steps.iter().any(|step| step.op == op));
            if last { found.rposition(|is| is) } else { found.position(|is| is) }
        };
        assert!(position(Op::Create, true) < position(Op::Remove, false));
        assert_eq!(visits.iter().filter(|visit| visit.first).count(), 4);
        assert_eq!(visits.iter().filter(|visit| visit.last).count(), 4);
    }

    #[test]
    fn a_small_run_still_does_something() {
        for visit in visits(&["random".to_owned(), "empty".to_owned()], &[2]) {
            assert_eq!(visit.count(Kind::Peer, 0), 8);
            assert!(visit.count(Kind::Sateen, 100) > 1000);
        }
    }
}

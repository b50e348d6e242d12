//! What Sateen's rows are to reach: a gate, which must hold, and an aim.

use crate::numbers::Numbers;
use crate::rows::{self, IDLE_ROW};

/// What a number is held against.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Against {
    /// So many times the better of GlusterFS and MooseFS, or more.
    Peers(f64),
    /// More than both.
    AheadOfPeers,
    /// So many times ext4, or more.
    Ext4(f64),
    /// At most so many times as long as the null file system over io_uring takes.
    NullTime(f64),
    AtLeast(f64),
    AtMost(f64),
    Below(f64),
}

/// Which number of a row it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    Value,
    /// Processor time of the servers.
    Servers,
}

/// Rows of a group on a file system, or one of them.
struct Rule {
    system: &'static str,
    /// The beginning of the rows' names.
    rows: &'static str,
    of: Of,
    gate: &'static [Against],
    aim: &'static [Against],
}

const EMPTY: (&[Against], &[Against]) = (&[Against::Peers(4.0)], &[Against::NullTime(1.5)]);
const SEQUENTIAL: (&[Against], &[Against]) =
    (&[Against::Peers(1.5), Against::Ext4(0.7)], &[Against::Ext4(1.0)]);
const SMALL: (&[Against], &[Against]) = (&[Against::Peers(5.0)], &[]);
const SHARED: (&[Against], &[Against]) =
    (&[Against::Peers(2.0), Against::Ext4(0.4)], &[Against::Ext4(0.8)]);
const RANDOM: (&[Against], &[Against]) = (&[Against::Peers(5.0)], &[Against::Ext4(0.5)]);
const TCP: (&[Against], &[Against]) = (&[Against::AheadOfPeers], &[Against::Peers(2.0)]);

const TWO_MOUNTS: (&[Against], &[Against]) = (&[Against::Peers(2.0), Against::Ext4(0.4)], &[]);
const MANY: (&[Against], &[Against]) = (&[Against::Ext4(0.8)], &[]);
const SEQ4K: (&[Against], &[Against]) = (&[Against::NullTime(1.3)], &[]);
const SHM: (&[Against], &[Against]) = (&[Against::Peers(2.0)], &[Against::Peers(4.0)]);

const fn rule(
    system: &'static str,
    rows: &'static str,
    (gate, aim): (&'static [Against], &'static [Against]),
) -> Rule {
    Rule { system, rows, of: Of::Value, gate, aim }
}

const RULES: [Rule; 26] = [
    rule("sateen", "empty.", EMPTY),
    rule("sateen", "small.", SMALL),
    rule("sateen", "seq1.", SEQUENTIAL),
    rule("sateen", "seq4.", SEQUENTIAL),
    rule("sateen", "shared.", SHARED),
    rule("sateen", "random.", RANDOM),
    rule("sateen-no-passthrough", "seq1.", SEQUENTIAL),
    rule("sateen-no-passthrough", "seq4.", SEQUENTIAL),
    rule("sateen-tcp", "two.", TWO_MOUNTS),
    rule("sateen-shm", "two.", TWO_MOUNTS),
    rule("sateen-tcp", "empty.", TCP),
    rule("sateen-tcp", "small.", TCP),
    Rule {
        system: "sateen-tcp",
        rows: "empty.create",
        of: Of::Servers,
        gate: &[Against::AtMost(40.0)],
        aim: &[Against::AtMost(10.0)],
    },
    rule("sateen-shm", "empty.", SHM),
    rule("sateen-shm", "small.", SHM),
    Rule {
        system: "sateen-shm",
        rows: "empty.create",
        of: Of::Servers,
        gate: &[Against::AtMost(25.0)],
        aim: &[Against::AtMost(10.0)],
    },
    rule("sateen", IDLE_ROW, IDLE),
    rule("sateen-tcp", IDLE_ROW, IDLE),
    rule("sateen-shm", IDLE_ROW, IDLE),
    rule("sateen", MANY_STATS, MANY),
    rule("sateen-tcp", MANY_STATS, MANY),
    rule("sateen-shm", MANY_STATS, MANY),
    rule("sateen", "seq4k.", SEQ4K),
    rule("sateen-tcp", "seq4k.", SEQ4K),
    rule("sateen-shm", "seq4k.", SEQ4K),
    // What shall hold of a single process alone stands last: see `aim_of`.
    rule("sateen", "small.create", (&[], &[Against::AtLeast(12_000.0)])),
];
const IDLE: (&[Against], &[Against]) = (&[Against::Below(1.0)], &[Against::AtMost(IDLE_NONE)]);
/// What is asked of a repeated stat of many files.
const MANY_STATS: &str = "many.stat.warm";
/// What still counts as nothing: percent of a processor.
const IDLE_NONE: f64 = 0.05;

/// A condition with what is known of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    /// The condition, with numbers.
    pub(crate) words: String,
    /// Nothing if what it is held against was not measured.
    pub(crate) met: Option<bool>,
}

/// A row of Sateen's with its gate and its aim.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) system: &'static str,
    pub(crate) row: String,
    pub(crate) processes: u32,
    pub(crate) of: Of,
    pub(crate) value: Option<f64>,
    pub(crate) gate: Vec<Verdict>,
    pub(crate) aim: Vec<Verdict>,
}

/// Everything that was measured and has a gate or an aim.
pub(crate) fn judge(numbers: &Numbers) -> Vec<Judged> {
    let mut all = Vec::new();
    let mut rows = rows::all_rows();
    rows.push(IDLE_ROW.to_owned());
    let mut counts = numbers.processes();
    counts.push(0);
    // Warm reads are answered by the kernel's caches, for everybody: they are held against nothing, but
    // for so many files that it takes a client that keeps their locks.
    rows.retain(|row| !row.ends_with(".warm") || row == MANY_STATS);
    for rule in RULES.iter().filter(|rule| !rule.gate.is_empty()) {
        for row in rows.iter().filter(|row| row.starts_with(rule.rows)) {
            for &processes in &counts {
                let Some(cell) = numbers.cell(row, processes, rule.system) else { continue };
                let value = match rule.of {
                    Of::Value => cell.median(),
                    Of::Servers => cell.processor_us(|one| one.servers),
                };
                let hold = |against: &[Against]| -> Vec<Verdict> {
                    let hold = |one: &Against| one.hold(value, numbers, row, processes);
                    against.iter().map(hold).collect()
                };
                all.push(Judged {
                    system: rule.system,
                    row: row.clone(),
                    processes,
                    of: rule.of,
                    value,
                    gate: hold(rule.gate),
                    aim: hold(aim_of(rule, row, processes)),
                });
            }
        }
    }
    all
}

/// A rule's aim, or that of a rule for this one row of a single process.
fn aim_of(rule: &Rule, row: &str, processes: u32) -> &'static [Against] {
    let only = |other: &&Rule| {
        let alike = (other.system, other.of) == (rule.system, rule.of);
        other.gate.is_empty() && alike && other.rows == row && processes == 1
    };
    RULES.iter().find(only).map_or(rule.aim, |other| other.aim)
}

/// What another file system reached. What cannot be told of stripes has one.
fn other(numbers: &Numbers, row: &str, processes: u32, system: &str) -> Option<f64> {
    let row = row.replace("seq4.", "seq1.");
    numbers.cell(&row, processes, system)?.median()
}

impl Against {
    fn hold(self, value: Option<f64>, numbers: &Numbers, row: &str, processes: u32) -> Verdict {
        let of = |system| other(numbers, row, processes, system);
        let peers = || {
            // The better one, if only one was measured that one, and it is said which.
            let both = [("GlusterFS", of("gluster")), ("MooseFS", of("moosefs"))];
            let measured = both.into_iter().filter_map(|(name, rate)| Some((name, rate?)));
            measured.max_by(|one, other| one.1.total_cmp(&other.1))
        };
        let show = crate::document::number;
        let (limit, what) = match self {
            Against::Peers(times) => {
                let what = |name| format!("{times} × {name}");
                (peers().map(|(_, rate)| rate * times), what(peers().map_or("peer", |one| one.0)))
            }
            Against::AheadOfPeers => {
                let name = peers().map_or("peers", |(name, _)| name);
                (peers().map(|(_, rate)| rate), name.to_owned())
            }
            Against::Ext4(times) => {
                (of("ext4").map(|rate| rate * times), format!("{times} × ext4"))
            }
            Against::NullTime(times) => {
                (of("null-uring").map(|rate| rate / times), format!("null FUSE / {times}"))
            }
            Against::AtLeast(limit) | Against::AtMost(limit) | Against::Below(limit) => {
                (Some(limit), String::new())
            }
        };
        let (sign, holds): (&str, fn(f64, f64) -> bool) = match self {
            Against::AtMost(_) => ("≤", |value, limit| value <= limit),
            Against::Below(_) => ("<", |value, limit| value < limit),
            Against::AheadOfPeers => (">", |value, limit| value > limit),
            _ => ("≥", |value, limit| value >= limit),
        };
        let words = match (limit, what.is_empty()) {
            (Some(limit), true) => format!("{sign} {}", show(limit)),
            (Some(limit), false) => format!("{sign} {} ({what})", show(limit)),
            (None, _) => format!("{sign} {what}"),
        };
        let met = value.zip(limit).map(|(value, limit)| holds(value, limit));
        Verdict { words, met }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::{Round, Single};

    fn numbers(all: &[(&str, &str, f64)]) -> Numbers {
        let single = |(system, row, value): &(&str, &str, f64)| Single {
            round: 1,
            row: (*row).to_owned(),
            processes: 1,
            system: (*system).to_owned(),
            unit: "x/s".to_owned(),
            value: Some(*value),
            operations: 1,
            processor_us: None,
            failed: None,
            parts: None,
        };
        let singles = all.iter().map(single).collect();
        Numbers { rounds: vec![Round { round: 1, others_percent: None, verified: 0, singles }] }
    }

    #[test]
    fn the_better_peer_counts() {
        let all = [
            ("sateen", "empty.create", 4500.0),
            ("gluster", "empty.create", 1000.0),
            ("moosefs", "empty.create", 1100.0),
            ("null-uring", "empty.create", 6000.0),
        ];
        let judged = judge(&numbers(&all));
        let [one] = &judged[..] else { panic!("{judged:?}") };
        assert_eq!(one.gate[0].words, "≥ 4400 (4 × MooseFS)");
        assert_eq!((one.gate[0].met, one.aim[0].met), (Some(true), Some(true)));
    }

    #[test]
    fn what_was_not_measured_is_neither_met_nor_missed() {
        let judged =
            judge(&numbers(&[("sateen", "seq4.write", 100.0), ("ext4", "seq1.write", 200.0)]));
        let [one] = &judged[..] else { panic!("{judged:?}") };
        let met: Vec<_> = one.gate.iter().map(|verdict| verdict.met).collect();
        assert_eq!(met, [None, Some(false)], "four stripes are held against one of ext4");
    }

    #[test]
    fn an_aim_of_a_single_row_stands_beside_the_gate_of_all() {
        let judged =
            judge(&numbers(&[("sateen", "small.create", 13e3), ("sateen", "small.remove", 1.0)]));
        let [create, remove] = &judged[..] else { panic!("{judged:?}") };
        assert_eq!(create.aim[0].met, Some(true));
        assert!(remove.aim.is_empty());
    }
}

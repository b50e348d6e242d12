//! What was measured as a document: gates and aims first, then all rows, processor time, what is
//! durable when a row ends, and how it was done.

use std::fmt::Write as _;

use crate::gates::{self, Judged, Of, Verdict};
use crate::measure;
use crate::numbers::{Cell, Numbers, Processor, median};
use crate::rows::{self, GROUPS, Group, IDLE_ROW};
use crate::systems::{KNOWN, Kind, Known};

/// A measurement has so many rounds at least, or it is a first look.
const ROUNDS_MIN: usize = 5;
/// An idle machine: load when it began, and percent of a processor that others used meanwhile.
const LOAD_MAX: f64 = 0.5;
const OTHERS_PERCENT_MAX: f64 = 5.0;

/// What stands beside the numbers.
#[derive(Debug)]
pub(crate) struct Beside {
    pub(crate) facts: Vec<(String, String)>,
    /// Load of the machine when it began.
    pub(crate) load: Option<f64>,
    pub(crate) scale_percent: u32,
    /// Name of the file that holds the figure.
    pub(crate) figure: Option<String>,
    /// Name of the file that holds all single numbers.
    pub(crate) singles: String,
}

/// A number with as many digits as it is worth.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// The whole document.
pub(crate) fn write(numbers: &Numbers, beside: &Beside) -> String {
    let mut out = "# Performance on one machine\n\n".to_owned();
    for doubt in doubts(numbers, beside) {
        let _ = writeln!(out, "**{doubt}**\n");
    }
    let rounds = numbers.rounds.len();
    let _ = writeln!(
        out,
        "Sateen beside a local file system, FUSE with nothing behind it, and other file systems with servers, all on this one machine and through FUSE: `make compare`. Medians of {rounds} {}; all single numbers are in [{1}]({1}). What it does and how it is repeated: [bench.md](bench.md#beside-everything-at-once).\n",
        if rounds == 1 { "round" } else { "rounds" },
        beside.singles,
    );
    out.push_str("| | |\n|---|---|\n");
    for (name, value) in &beside.facts {
        let _ = writeln!(out, "| {name} | {} |", value.replace('|', "/"));
    }
    out.push('\n');
    if let Some(figure) = &beside.figure {
        let _ = writeln!(out, "![Rates of all rows as multiples of ext4's]({figure})\n");
    }
    judged(&mut out, numbers);
    rates(&mut out, numbers);
    processors(&mut out, numbers);
    durable(&mut out, numbers);
    method(&mut out, numbers);
    let failures = numbers.failures();
    if !failures.is_empty() {
        out.push_str("\n## What failed\n");
        for failure in failures {
            let _ = writeln!(out, "- {failure}");
        }
    }
    out
}

/// Why nobody should believe it.
fn doubts(numbers: &Numbers, beside: &Beside) -> Vec<String> {
    let mut doubts = Vec::new();
    let rounds = numbers.rounds.len();
    if rounds < ROUNDS_MIN || beside.scale_percent < 100 {
        let scale = beside.scale_percent;
        doubts.push(format!(
            "A quick run ({rounds} of {ROUNDS_MIN} rounds, {scale} % of the sizes): a first look, no numbers to be quoted."
        ));
    }
    let others: Vec<f64> = numbers.rounds.iter().filter_map(|one| one.others_percent).collect();
    let others = median(&others);
    let load = beside.load.unwrap_or(0.0);
    if load > LOAD_MAX || others.is_some_and(|others| others > OTHERS_PERCENT_MAX) {
        let others = others.map_or(String::new(), |others| {
            format!("; others used {others:.0} % of a processor while every file system was idle")
        });
        doubts.push(format!(
            "Measured on a busy machine (load {load} when it began{others}): rates are too low and scatter, verdicts are preliminary."
        ));
    }
    if !numbers.failures().is_empty() {
        doubts.push("Some rows failed: see the end.".to_owned());
    }
    doubts
}

fn shown(numbers: &Numbers) -> Vec<&'static Known> {
    KNOWN.iter().filter(|known| numbers.has(known.name)).collect()
}

fn judged(out: &mut String, numbers: &Numbers) {
    let all = gates::judge(numbers);
    if all.is_empty() {
        return;
    }
    out.push_str("## Gates and aims\n");
    let count = |of: fn(&Judged) -> &[Verdict]| {
        let all = || all.iter().map(of).filter(|verdicts| !verdicts.is_empty());
        let met = all().filter(|verdicts| together(verdicts) == Some(true)).count();
        format!("{met} of {}", all().count())
    };
    let _ = writeln!(
        out,
        "A gate is what a row must reach, an aim what it is wanted to. Peers are GlusterFS and MooseFS, of which the better one counts; null FUSE is the one over io_uring. Four stripes are held against what others do with one; warm rows against nothing, since the kernel's caches answer them for everybody, but for a repeated stat of 100 000 files, for which a client has to keep so many locks. Gates met: {}; aims: {}. A dash is what has no aim, or was not held against anything because that was not measured. Why rows miss their aim, part by part: [hot-path.md](hot-path.md#rows-that-miss-their-aim).\n",
        count(|one| &one.gate),
        count(|one| &one.aim),
    );
    out.push_str(
        "| row | processes | reached | gate | met | aim | met |\n|---|---|---|---|---|---|---|\n",
    );
    for one in &all {
        let title = KNOWN.iter().find(|known| known.name == one.system).map_or("", |one| one.title);
        let row = match (one.row == IDLE_ROW, one.of) {
            (true, _) => format!("{title}, idle, % of a processor"),
            (false, Of::Value) => format!("{title}, {}", rows::title(&one.row)),
            (false, Of::Servers) => {
                format!("{title}, {}: servers' processors, µs", rows::title(&one.row))
            }
        };
        let processes =
            if one.processes == 0 { "–".to_owned() } else { one.processes.to_string() };
        let value = one.value.map_or("–".to_owned(), number);
        let _ = writeln!(
            out,
            "| {row} | {processes} | {value} | {} | {} | {} | {} |",
            words(&one.gate),
            met(&one.gate),
            words(&one.aim),
            met(&one.aim)
        );
    }
    out.push('\n');
}

fn words(verdicts: &[Verdict]) -> String {
    let words: Vec<&str> = verdicts.iter().map(|one| one.words.as_str()).collect();
    if words.is_empty() { "–".to_owned() } else { words.join("; ") }
}

/// Whether all hold: one that does not decides it, one that is not known leaves it open.
fn together(verdicts: &[Verdict]) -> Option<bool> {
    if verdicts.iter().any(|one| one.met == Some(false)) {
        return Some(false);
    }
    let all = !verdicts.is_empty() && verdicts.iter().all(|one| one.met == Some(true));
    all.then_some(true)
}

fn met(verdicts: &[Verdict]) -> &'static str {
    match together(verdicts) {
        Some(true) => "yes",
        Some(false) => "**no**",
        None => "–",
    }
}

/// A table of rates: its title, what it shows, and which rows are in it.
type Part = (&'static str, &'static str, fn(&str) -> bool);

fn rates(out: &mut String, numbers: &Numbers) {
    let systems = shown(numbers);
    let parts: [Part; 3] = [
        (
            "Changes",
            "Creates, removals and writes, as caches are; writes with fsync of each file within the time.",
            |row| !row.ends_with(".cold") && !row.ends_with(".warm"),
        ),
        (
            "Cold",
            "Everything was written back and the kernel's caches were dropped just before; what servers and clients keep in their own memory stays.",
            |row| row.ends_with(".cold"),
        ),
        ("Warm", "The same once more, right after.", |row| row.ends_with(".warm")),
    ];
    out.push_str("## Rates\nMedians; behind each half of what lies between the smallest and the largest, in percent of it.\n\n");
    for (title, what, belongs) in parts {
        let rows: Vec<String> = rows::all_rows().into_iter().filter(|row| belongs(row)).collect();
        let mut lines = String::new();
        for row in &rows {
            for processes in numbers.processes() {
                let cells = systems.iter().map(|known| numbers.cell(row, processes, known.name));
                let cells: Vec<Option<Cell>> = cells.collect();
                let Some(unit) = cells.iter().flatten().next().map(|cell| cell.unit.clone()) else {
                    continue;
                };
                let name = rows::title(row);
                let name = name.trim_end_matches(", cold").trim_end_matches(", warm");
                let _ = write!(lines, "| {name} ({unit}) | {processes} |");
                for cell in &cells {
                    let _ = write!(lines, " {} |", rate(cell.as_ref()));
                }
                lines.push('\n');
            }
        }
        if !lines.is_empty() {
            let _ = writeln!(out, "### {title}\n{what}\n");
            out.push_str(&header("row | processes", &systems));
            let _ = writeln!(out, "{lines}");
        }
    }
}

fn header(first: &str, systems: &[&Known]) -> String {
    let titles: Vec<&str> = systems.iter().map(|known| known.title).collect();
    let columns = first.split('|').count() + titles.len();
    format!("| {first} | {} |\n|{}\n", titles.join(" | "), "---|".repeat(columns))
}

fn rate(cell: Option<&Cell>) -> String {
    let Some(cell) = cell else { return "–".to_owned() };
    let Some(median) = cell.median() else { return "failed".to_owned() };
    let doubt = if cell.failures.is_empty() { "" } else { ", **not all right**" };
    match cell.spread_percent().filter(|_| cell.values.len() > 1) {
        Some(spread) => format!("{} ±{spread:.0} %{doubt}", number(median)),
        None => format!("{}{doubt}", number(median)),
    }
}

fn processors(out: &mut String, numbers: &Numbers) {
    let systems = shown(numbers);
    out.push_str("## Processor time\nMicroseconds for an operation (a file, or a transfer), medians: what the file system's processes used (the servers + the process behind the mount, where those are several) and, behind a bar, what the programs that ask did, the kernel's work for them included. What the kernel's own threads do (writing back, loop devices) is not seen, so all of a local file system's own work stands behind the bar. Start and end of the programs are in it.\n\n");
    out.push_str(&header("row | processes", &systems));
    for row in rows::all_rows() {
        for processes in numbers.processes() {
            let cells = systems.iter().map(|known| numbers.cell(&row, processes, known.name));
            let cells: Vec<Option<Cell>> = cells.collect();
            if cells.iter().all(Option::is_none) {
                continue;
            }
            let _ = write!(out, "| {} | {processes} |", rows::title(&row));
            for cell in &cells {
                let _ = write!(out, " {} |", processor(cell.as_ref()));
            }
            out.push('\n');
        }
    }
    out.push('\n');
    let idle = |known: &Known| numbers.cell(IDLE_ROW, 0, known.name)?.median();
    let idle: Vec<String> = systems
        .iter()
        .filter_map(|known| Some(format!("{} {:.2}", known.title, idle(known)?)))
        .collect();
    if !idle.is_empty() {
        let _ = writeln!(
            out,
            "Mounted and asked for nothing, in percent of a processor: {}.\n",
            idle.join(", ")
        );
    }
}

fn processor(cell: Option<&Cell>) -> String {
    let Some(cell) = cell else { return "–".to_owned() };
    let part = |of: fn(&Processor) -> Option<f64>| cell.processor_us(of).map(number);
    let Some(programs) = part(|one| Some(one.programs)) else { return "failed".to_owned() };
    let own = [part(|one| one.servers), part(|one| one.client)];
    let own = own.into_iter().flatten().collect::<Vec<String>>().join(" + ");
    // A bar would end the cell.
    if own.is_empty() { format!("¦ {programs}") } else { format!("{own} ¦ {programs}") }
}

fn durable(out: &mut String, numbers: &Numbers) {
    out.push_str("## What is durable when a row ends\nEach file that is written is synced before it is closed, within the time; after creates and removals nothing is waited for, and reads change nothing. Sateen and MooseFS remove the data of files later than their names, which is not within the time; the next row begins when that is done.\n\n");
    out.push_str("| | is | writes, after fsync | creates and removals |\n|---|---|---|---|\n");
    for known in shown(numbers) {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} |",
            known.title, known.set_up, known.data, known.names
        );
    }
    out.push('\n');
}

fn method(out: &mut String, numbers: &Numbers) {
    let verified: u32 = numbers.rounds.iter().map(|round| round.verified).sum();
    let wrong = numbers.failures().iter().filter(|why| why.contains(measure::WRONG)).count();
    let _ = writeln!(
        out,
        "## How\nAll file systems are mounted at the same time, each on an ext4 of its own, fresh in every round, on a loop device with direct I/O over blocks that were written before. A row is measured on one after the other, and who comes first changes from row to row and from round to round. After the time, every byte of what was written is read and compared where the file system keeps it: {verified} times here, {wrong} times with something wrong.\n\nHow much is done in a row depends on the file system, so that a row takes long enough everywhere and nowhere too long; rates are compared, not times:\n"
    );
    let kinds = [
        ("local", Kind::Local),
        ("null", Kind::Null),
        ("Sateen", Kind::Sateen),
        ("peers", Kind::Peer),
    ];
    out.push_str(
        "| in all, of full size | local | null | Sateen | peers |\n|---|---|---|---|---|\n",
    );
    for group in &GROUPS {
        let _ = write!(out, "| {} |", group.title);
        for (_, kind) in kinds {
            let _ = write!(out, " {} |", amount(group, kind));
        }
        out.push('\n');
    }
    out.push_str("\nEmpty files are in a folder for each process, files of 3901 bytes in one for all; sequential and random data is in a file for each process, transfers of 47008 bytes go to one file of all. Two mounts are those of two clients on this host, a process on each; what they have written is compared on a third. A local file system has one. Random writes fill a new file. 4 KiB that follow each other are written by one process, and nothing is synced within the time, since FUSE with nothing behind it has nothing to sync; 100 000 files are made and looked at by one process, on ext4 and Sateen alone.\n");
}

fn amount(group: &Group, kind: Kind) -> String {
    let names = [group.name.to_owned()];
    let visits = rows::visits(&names, &[2, 1]);
    let count = visits.first().map_or(0, |v| v.count(kind, 100) * u64::from(v.processes));
    match group.name {
        rows::MANY if matches!(kind, Kind::Null | Kind::Peer) => "–".to_owned(),
        "empty" | "small" | rows::MANY => format!("{count} files"),
        "random" | rows::SEQ4K => format!("{} MiB", count / 256),
        "shared" | rows::TWO => format!("{} MiB", count * 47008 / (1 << 20) + 1),
        _ => format!("{count} MiB"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::{Round, Single};

    fn numbers() -> Numbers {
        let mut singles = Vec::new();
        for (system, value) in [("ext4", 50e3), ("sateen", 9e3), ("gluster", 1e3)] {
            for row in rows::all_rows() {
                singles.push(Single {
                    round: 1,
                    row,
                    processes: 1,
                    system: system.to_owned(),
                    unit: "files/s".to_owned(),
                    value: Some(value),
                    operations: 10,
                    processor_us: Some(Processor {
                        servers: Some(40.0),
                        client: None,
                        programs: 4.0,
                    }),
                    failed: None,
                    parts: None,
                });
            }
        }
        let round = Round { round: 1, others_percent: Some(80.0), verified: 3, singles };
        Numbers { rounds: vec![round] }
    }

    fn beside() -> Beside {
        Beside {
            facts: vec![("commit".to_owned(), "abc|def".to_owned())],
            load: Some(3.5),
            scale_percent: 5,
            figure: Some("x.svg".to_owned()),
            singles: "x.json".to_owned(),
        }
    }

    #[test]
    fn a_quick_run_on_a_busy_machine_says_so_first() {
        let text = write(&numbers(), &beside());
        let first: Vec<&str> = text.lines().take(5).collect();
        assert!(first[2].starts_with("**A quick run (1 of 5 rounds, 5 %"), "{first:?}");
        assert!(first[4].starts_with("**Measured on a busy machine (load 3.5"), "{first:?}");
        assert!(!text.contains("What failed"));
    }

    #[test]
    fn every_table_has_as_many_cells_in_each_line() {
        let text = write(&numbers(), &beside());
        let mut columns = None;
        let mut tables = 0;
        for line in text.lines() {
            if !line.starts_with('|') {
                columns = None;
                continue;
            }
            let cells = line.matches('|').count();
            tables += usize::from(columns.is_none());
            assert_eq!(*columns.get_or_insert(cells), cells, "{line}");
        }
        assert_eq!(tables, 8, "{text}");
    }

    #[test]
    fn a_failed_row_is_seen() {
        let mut numbers = numbers();
        let one = &mut numbers.rounds[0].singles[0];
        (one.value, one.processor_us, one.failed) = (None, None, Some("no space".to_owned()));
        let text = write(&numbers, &beside());
        assert!(
            text.contains("**Some rows failed") && text.contains("empty files: create: no space")
        );
        assert!(text.contains("| failed |"), "{text}");
    }

    #[test]
    fn the_figure_has_a_mark_for_each_other_than_ext4() {
        let svg = crate::chart::svg(&numbers()).unwrap();
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert_eq!(svg.matches("<title>GlusterFS: 0.020 × ext4").count(), rows::all_rows().len());
        assert!(crate::chart::svg(&Numbers { rounds: Vec::new() }).is_none());
    }
}

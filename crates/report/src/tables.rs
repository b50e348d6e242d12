//! The tables that papers print: rates by processes and transfer size, operations by scale, and
//! every result with its repetitions.

use std::collections::{BTreeMap, BTreeSet};

use crate::apart::{self, Amount, Parts};
use crate::markup::{number, size};
use crate::run::{Outcome, Run};

/// A table.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Titles of the columns.
    pub head: Vec<String>,
    /// Columns from the left that hold words; the others hold numbers.
    pub words: usize,
    /// The rows.
    pub rows: Vec<Vec<String>>,
}

fn scale(one: &Outcome) -> String {
    match (one.nodes, one.ranks_per_node()) {
        (Some(1), Some(each)) => format!("1 node × {each}"),
        (Some(nodes), Some(each)) => format!("{nodes} nodes × {each}"),
        _ if one.ranks == 1 => "1 process".to_owned(),
        _ => format!("{} processes", one.ranks),
    }
}

fn beside(label: &str, rest: &str) -> String {
    if label.is_empty() { rest.to_owned() } else { format!("{label}: {rest}") }
}

/// Rates that repeat are the best of all.
fn keep_best(cell: &mut f64, rate: f64) {
    *cell = cell.max(rate);
}

/// The amount that the runs of a program have in common, as far as they do.
fn amount(runs: &[Run], program: &str) -> Amount {
    let of = runs.iter().filter(|run| run.program == program);
    Amount::of(of.flat_map(|run| &run.outcomes))
}

/// Nodes, processes, and both in words.
type Scale = (Option<u64>, u64, String);

/// Of bandwidths: for each operation a table of nodes and processes, by transfer size and
/// whatever else differs.
fn by_transfer(runs: &[Run]) -> Vec<Table> {
    type Cells = BTreeMap<Scale, BTreeMap<(Parts, u64), f64>>;
    let amount = amount(runs, "ior");
    let mut all: BTreeMap<(bool, String, String, String), Cells> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.program == "ior") {
        for one in &run.outcomes {
            let Some(transfer) = one.transfer_bytes else { continue };
            let (operation, access) = (one.operation.clone(), one.access.clone());
            let key = (operation != "write", run.label.clone(), operation, access);
            let row = all.entry(key).or_default().entry((one.nodes, one.ranks, scale(one)));
            let column = (apart::parts(one, amount), transfer);
            keep_best(row.or_default().entry(column).or_default(), one.summary().best);
        }
    }
    let columns = |cells: &Cells| -> BTreeSet<(Parts, u64)> {
        cells.values().flat_map(|row| row.keys().cloned()).collect()
    };
    // One value is no table.
    all.retain(|_, cells| cells.len() > 1 || columns(cells).len() > 1);
    let every = all.iter().flat_map(|((_, label, operation, _), cells)| {
        columns(cells).into_iter().map(move |column| (beside(label, operation), column.0))
    });
    let every: Vec<(String, Parts)> = every.collect();
    let every: Vec<_> = every.iter().map(|(of, parts)| (of.clone(), parts)).collect();
    let differing = apart::differing_of(&every);
    let table = |((_, label, operation, _), cells): ((bool, String, String, String), Cells)| {
        let columns = columns(&cells);
        let of: Vec<&Parts> = columns.iter().map(|column| &column.0).collect();
        // What differs here tells columns apart; what differs elsewhere alone is the title's, and
        // how files are shared stands there in any case.
        let here = apart::differing(&of);
        let mut title = differing.clone();
        title.push(apart::ACCESS);
        title.sort_unstable();
        title.dedup();
        title.retain(|at| !here.contains(at));
        let more = of.first().map_or(String::new(), |parts| apart::words(parts, &title));
        let more = if more.is_empty() { more } else { format!(", {more}") };
        let head = |(parts, transfer): &(Parts, u64)| match apart::words(parts, &here) {
            words if words.is_empty() => size(*transfer),
            words => format!("{words}, {}", size(*transfer)),
        };
        let row = |(key, row): (&Scale, &BTreeMap<(Parts, u64), f64>)| {
            let cells = columns
                .iter()
                .map(|column| row.get(column).map_or("–".into(), |rate| number(*rate)));
            std::iter::once(key.2.clone()).chain(cells).collect()
        };
        Table {
            title: format!("{}{more} (MiB/s, best repetition)", beside(&label, &operation)),
            head: std::iter::once("Nodes × processes".to_owned())
                .chain(columns.iter().map(head))
                .collect(),
            words: 1,
            rows: cells.iter().map(row).collect(),
        }
    };
    all.into_iter().map(table).collect()
}

/// Nodes, processes, files or bytes, and all of it in words.
type Scaled = (Option<u64>, u64, u64, String);

/// What a row of operations is about: whose, which, and all that tells it apart.
type Named = (String, String, &'static str, Parts);

/// Of other workloads: operations by scale.
fn by_operation(runs: &[Run], program: &str, title: &str) -> Option<Table> {
    let amount = amount(runs, program);
    let mut columns: BTreeSet<Scaled> = BTreeSet::new();
    let mut rows: Vec<(Named, BTreeMap<Scaled, f64>)> = Vec::new();
    for run in runs.iter().filter(|run| run.program == program) {
        for one in &run.outcomes {
            let files = one.files.map(|files| format!(", {files} files each"));
            let records = one.transfer_bytes.map(|bytes| format!(", {}", size(bytes)));
            let what = files.or(records).unwrap_or_default();
            let more = one.files.or(one.transfer_bytes).unwrap_or(0);
            let column = (one.nodes, one.ranks, more, format!("{}{what}", scale(one)));
            columns.insert(column.clone());
            let parts = apart::parts(one, amount);
            let name = (run.label.clone(), one.operation.clone(), one.unit.name(), parts);
            let at = rows.iter().position(|row| row.0 == name).unwrap_or_else(|| {
                rows.push((name, BTreeMap::new()));
                rows.len() - 1
            });
            if let Some(row) = rows.get_mut(at) {
                keep_best(row.1.entry(column).or_default(), one.summary().best);
            }
        }
    }
    let named = rows.iter().map(|((label, operation, unit, parts), _)| {
        (format!("{} ({unit})", beside(label, operation)), parts)
    });
    let shown = apart::differing_of(&named.collect::<Vec<_>>());
    let row = |((label, operation, unit, parts), cells): &(Named, BTreeMap<_, f64>)| {
        let words = apart::words(parts, &shown);
        let words = if words.is_empty() { words } else { format!(", {words}") };
        let name = format!("{}{words} ({unit})", beside(label, operation));
        let cells = columns
            .iter()
            .map(|column| cells.get(column).map_or("–".into(), |rate| number(*rate)));
        std::iter::once(name).chain(cells).collect()
    };
    let more = columns.len() > 1 || runs.iter().filter(|run| run.program == program).count() > 1;
    more.then(|| Table {
        title: title.to_owned(),
        head: std::iter::once("Operation".to_owned())
            .chain(columns.iter().map(|column| column.3.clone()))
            .collect(),
        words: 1,
        rows: rows.iter().map(row).collect(),
    })
}

/// Tables that hold runs against each other.
pub fn between(runs: &[Run]) -> Vec<Table> {
    let mut tables = by_transfer(runs);
    for (program, title) in [
        ("mdtest", "Metadata rates, best repetition"),
        ("iozone", "Access patterns, best repetition"),
        ("io500", "IO500"),
    ] {
        tables.extend(by_operation(runs, program, title));
    }
    tables
}

/// The results of a run, a row for each outcome.
pub fn results(run: &Run) -> Table {
    let some = |value: Option<f64>| value.map_or("–".into(), number);
    let amount = Amount::of(run.outcomes.iter());
    let parts: Vec<Parts> = run.outcomes.iter().map(|one| apart::parts(one, amount)).collect();
    let named = run.outcomes.iter().zip(&parts).map(|(one, parts)| (one.operation.clone(), parts));
    let shown = apart::differing_of(&named.collect::<Vec<_>>());
    let row = |(one, parts): (&Outcome, &Parts)| {
        let all = one.summary();
        let best = one.best();
        let slowest = best.and_then(|best| best.ranks.iter().copied().reduce(f64::min));
        let words = apart::words(parts, &shown);
        let words = if words.is_empty() { words } else { format!(", {words}") };
        vec![
            one.operation.clone() + &words,
            scale(one),
            one.transfer_bytes.map_or("–".into(), size),
            one.files.map_or("–".into(), |files| files.to_string()),
            one.unit.name().to_owned(),
            one.repetitions.len().to_string(),
            number(all.best),
            number(all.median),
            number(all.mean),
            number(all.deviation),
            some(slowest),
            some(best.and_then(|best| best.sum_of_ranks)),
            some(best.and_then(|best| best.start_skew_s)),
            some(best.and_then(|best| best.seconds)),
            one.latency.map_or("–".into(), |all| number(all.p50_us)),
            one.latency.map_or("–".into(), |all| number(all.p99_us)),
            one.latency.map_or("–".into(), |all| number(all.max_us)),
        ]
    };
    let head = [
        "Operation",
        "Nodes × processes",
        "Transfer",
        "Files each",
        "Unit",
        "Repetitions",
        "Best",
        "Median",
        "Mean",
        "Std dev",
        "Slowest rank",
        "Sum of ranks*",
        "Start skew (s)",
        "Time (s)",
        "Latency 50 % (µs)",
        "99 % (µs)",
        "longest (µs)",
    ];
    Table {
        title: "Results".into(),
        head: head.map(str::to_owned).to_vec(),
        words: 2,
        rows: run.outcomes.iter().zip(&parts).map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apart::Aspect;
    use crate::figures::tests::a_run;
    use crate::run::Unit;

    #[test]
    fn bandwidths_stand_by_processes_and_transfer_size() {
        let runs = [
            a_run("", &["write"], 1, 4096),
            a_run("", &["write"], 1, 1 << 20),
            a_run("", &["write"], 2, 1 << 20),
        ];
        let tables = between(&runs);
        assert_eq!(tables.len(), 1);
        assert_eq!(tables[0].title, "write, file-per-process (MiB/s, best repetition)");
        assert_eq!(tables[0].head, ["Nodes × processes", "4 KiB", "1 MiB"]);
        assert_eq!(
            tables[0].rows,
            [["1 node × 1", "100.0", "100.0"], ["1 node × 2", "–", "200.0"]]
        );
        assert_eq!(between(&runs[..1]), [], "one value is no table");
    }

    /// A run with this told of all its outcomes.
    fn told(ranks: u64, transfer: u64, api: &str, rate: f64) -> Run {
        let mut run = a_run("", &["write", "read"], ranks, transfer);
        for one in &mut run.outcomes {
            one.aspects.insert(Aspect::Interface, api.into());
            if one.operation == "write" {
                one.aspects.insert(Aspect::Durable, "fsync".into());
            }
            one.repetitions.iter_mut().for_each(|one| one.rate = rate);
        }
        run
    }

    #[test]
    fn interfaces_stand_beside_each_other_as_in_papers() {
        let mib = 1 << 20;
        let runs = [
            told(1, mib, "POSIX", 1.0),
            told(2, mib, "POSIX", 2.0),
            told(1, mib, "MPIIO", 3.0),
            told(1, 4 * mib, "MPIIO", 4.0),
        ];
        let tables = between(&runs);
        let titles: Vec<&str> = tables.iter().map(|one| one.title.as_str()).collect();
        let tail = "file-per-process (MiB/s, best repetition)";
        assert_eq!(titles, [format!("write, {tail}"), format!("read, {tail}")]);
        for table in &tables {
            let head = ["Nodes × processes", "MPIIO, 1 MiB", "MPIIO, 4 MiB", "POSIX, 1 MiB"];
            assert_eq!(table.head, head);
            let rows = [["1 node × 1", "3.00", "4.00", "1.00"], ["1 node × 2", "–", "–", "2.00"]];
            assert_eq!(table.rows, rows, "none is another's repetition");
        }
        // What a whole table has in common and another has not, is in its title.
        let mut random = told(1, mib, "POSIX", 1.0);
        let mut more = told(2, mib, "POSIX", 1.0);
        for run in [&mut random, &mut more] {
            run.label = "b".into();
        }
        let tables =
            between(&[told(1, mib, "MPIIO", 3.0), told(2, mib, "MPIIO", 3.0), random, more]);
        assert_eq!(tables[0].title, format!("write, {}, MPIIO{}", &tail[..16], &tail[16..]));
        assert_eq!(tables[1].title, format!("b: write, {}, POSIX{}", &tail[..16], &tail[16..]));
        assert_eq!(tables[0].head, ["Nodes × processes", "1 MiB"]);
    }

    #[test]
    fn metadata_rates_of_other_files_or_directories_have_rows_of_their_own() {
        let of = |access: &str, bytes: &str, rate: f64| {
            let mut run = a_run("", &["File creation", "Directory creation"], 1, 4096);
            run.program = "mdtest";
            for one in &mut run.outcomes {
                (one.access, one.files, one.transfer_bytes) = (access.into(), Some(10), None);
                one.unit = Unit::Operations;
                one.repetitions.iter_mut().for_each(|one| one.rate = rate);
            }
            run.outcomes[0].aspects.insert(Aspect::FileBytes, bytes.into());
            run
        };
        let (shared, own) = ("shared directory", "directory of its own");
        let (empty, small) = ("empty files", "files of 4 KiB");
        let rows = |runs: &[Run]| -> Vec<String> {
            between(runs)[0].rows.iter().map(|row| row.join(" ")).collect()
        };
        let bytes = rows(&[of(shared, empty, 1.0), of(shared, small, 2.0)]);
        let wanted = [
            "File creation, empty files (ops/s) 1.00",
            "Directory creation (ops/s) 2.00",
            "File creation, files of 4 KiB (ops/s) 2.00",
        ];
        assert_eq!(bytes, wanted, "directories hold no bytes");
        let directories = rows(&[of(shared, empty, 1.0), of(own, empty, 2.0)]);
        let wanted = [
            "File creation, shared directory (ops/s) 1.00",
            "Directory creation, shared directory (ops/s) 1.00",
            "File creation, directory of its own (ops/s) 2.00",
            "Directory creation, directory of its own (ops/s) 2.00",
        ];
        assert_eq!(directories, wanted);
    }

    #[test]
    fn other_operations_stand_by_scale_and_name() {
        let mut runs = [a_run("a", &["File stat"], 1, 4096), a_run("b", &["File stat"], 1, 4096)];
        for run in &mut runs {
            run.program = "mdtest";
            run.outcomes[0].files = Some(10);
        }
        let table = &between(&runs)[0];
        assert_eq!(table.head, ["Operation", "1 node × 1, 10 files each"]);
        assert_eq!(table.rows[1], ["b: File stat (MiB/s)", "100.0"]);
    }

    #[test]
    fn nodes_that_nobody_told_are_not_made_up() {
        let mut run = a_run("", &["write"], 4, 4096);
        run.outcomes[0].nodes = None;
        assert_eq!(results(&run).rows[0][1], "4 processes");
    }

    #[test]
    fn every_outcome_has_a_row() {
        let table = results(&a_run("", &["write", "read"], 2, 4096));
        assert_eq!(table.rows.len(), 2);
        assert!(table.rows.iter().all(|row| row.len() == table.head.len()));
        assert_eq!(table.rows[0][6..9], ["200.0", "180.0", "180.0"]);
    }
}

//! The tables that papers print: rates by processes and transfer size, operations by scale, and
//! every result with its repetitions.

use std::collections::{BTreeMap, BTreeSet};

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

/// Of bandwidths: for each operation a table of nodes and processes by transfer size.
fn by_transfer(runs: &[Run]) -> Vec<Table> {
    type Cells = BTreeMap<(Option<u64>, u64, String), BTreeMap<u64, f64>>;
    let mut all: BTreeMap<(bool, String, String, String), Cells> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.program == "ior") {
        for one in &run.outcomes {
            let Some(transfer) = one.transfer_bytes else { continue };
            let (operation, access) = (one.operation.clone(), one.access.clone());
            let key = (operation != "write", run.label.clone(), operation, access);
            let row = all.entry(key).or_default().entry((one.nodes, one.ranks, scale(one)));
            keep_best(row.or_default().entry(transfer).or_default(), one.summary().best);
        }
    }
    let table =
        |((_, label, operation, access), cells): ((bool, String, String, String), Cells)| {
            let columns: BTreeSet<u64> =
                cells.values().flat_map(|row| row.keys().copied()).collect();
            let head = ["Nodes × processes".to_owned()].into_iter();
            let access = if access.is_empty() { access } else { format!(", {access}") };
            let title = format!("{}{access} (MiB/s, best repetition)", beside(&label, &operation));
            let row = |(key, row): (&(Option<u64>, u64, String), &BTreeMap<u64, f64>)| {
                let cells = columns
                    .iter()
                    .map(|column| row.get(column).map_or("–".into(), |rate| number(*rate)));
                std::iter::once(key.2.clone()).chain(cells).collect()
            };
            Table {
                title,
                head: head.chain(columns.iter().map(|bytes| size(*bytes))).collect(),
                words: 1,
                rows: cells.iter().map(row).collect(),
            }
        };
    let more = |table: &Table| table.rows.len() > 1 || table.head.len() > 2;
    all.into_iter().map(table).filter(more).collect()
}

/// Nodes, processes, files or bytes, and all of it in words.
type Scaled = (Option<u64>, u64, u64, String);

/// Of other workloads: operations by scale.
fn by_operation(runs: &[Run], program: &str, title: &str) -> Option<Table> {
    let mut columns: BTreeSet<Scaled> = BTreeSet::new();
    let mut rows: Vec<(String, BTreeMap<Scaled, f64>)> = Vec::new();
    for run in runs.iter().filter(|run| run.program == program) {
        for one in &run.outcomes {
            let files = one.files.map(|files| format!(", {files} files each"));
            let records = one.transfer_bytes.map(|bytes| format!(", {}", size(bytes)));
            let what = files.or(records).unwrap_or_default();
            let more = one.files.or(one.transfer_bytes).unwrap_or(0);
            let column = (one.nodes, one.ranks, more, format!("{}{what}", scale(one)));
            columns.insert(column.clone());
            let name = format!("{} ({})", beside(&run.label, &one.operation), one.unit.name());
            let at = rows.iter().position(|row| row.0 == name).unwrap_or_else(|| {
                rows.push((name, BTreeMap::new()));
                rows.len() - 1
            });
            if let Some(row) = rows.get_mut(at) {
                keep_best(row.1.entry(column).or_default(), one.summary().best);
            }
        }
    }
    let row = |(name, cells): &(String, BTreeMap<_, f64>)| {
        let cells = columns
            .iter()
            .map(|column| cells.get(column).map_or("–".into(), |rate| number(*rate)));
        std::iter::once(name.clone()).chain(cells).collect()
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
    let row = |one: &Outcome| {
        let all = one.summary();
        let best = one.best();
        let slowest = best.and_then(|best| best.ranks.iter().copied().reduce(f64::min));
        vec![
            one.operation.clone(),
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
        rows: run.outcomes.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::a_run;

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

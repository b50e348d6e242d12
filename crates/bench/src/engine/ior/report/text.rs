//! IOR's text: its header, a row for each phase, its summary of all repetitions.

use std::fmt::Write;

use super::{About, Ior, Kind, Results, Row, VERSION};
use crate::engine::ior::results::Total;
use crate::engine::shown::OWN_VERSION;
use crate::guard::Spread;
use crate::size::{KIB, MIB, human};
use crate::when;

/// `name                : value`
fn pair(out: &mut String, name: &str, value: impl std::fmt::Display) {
    // Writing into a string cannot fail; so everywhere here.
    let _ = writeln!(out, "{name:<20}: {value}");
}

/// A column of the rows: ten wide, fewer decimals for larger numbers.
fn column(value: f64) -> String {
    let decimals = match value {
        _ if value < 0.0 || !value.is_finite() => return "-         ".to_owned(),
        _ if value < 1.0 => 6,
        _ if value < 3600.0 => 2,
        _ => 0,
    };
    format!("{:<10}", format!("{value:.decimals$}"))
}

/// Everything before the results.
pub(super) fn header(about: &About, began: u64) -> String {
    let mut out = format!("IOR-{VERSION}: MPI Coordinated Test of Parallel I/O\n");
    pair(&mut out, "Began", when::ctime(began));
    pair(&mut out, "Command line", about.command_line.join(" "));
    pair(&mut out, "Machine", format!("Linux {}", about.nodes.root));
    pair(&mut out, "TestID", 0);
    pair(&mut out, "StartTime", when::ctime(began));
    pair(&mut out, "sateen-bench", OWN_VERSION);
    if let Some(room) = &about.room {
        out.push_str(&room.lines(about.place));
    }
    if about.test.verbose > 0 {
        pair(&mut out, "Participating tasks", about.ranks);
    }
    options(&mut out, about);
    out.push_str(
        "\nResults: \n\n\
         access    bw(MiB/s)  IOPS       Latency(s)  block(KiB) xfer(KiB)  open(s)    wr/rd(s)   \
         close(s)   total(s)   iter\n\
         ------    ---------  ----       ----------  ---------- ---------  --------   --------   \
         --------   --------   ----\n",
    );
    out
}

fn options(out: &mut String, about: &About) {
    let test = about.test;
    let either = |is: bool, yes: &'static str, no: &'static str| if is { yes } else { no };
    out.push_str("\nOptions: \n");
    pair(out, "api", api(about));
    pair(out, "apiVersion", &about.api_version);
    pair(out, "test filename", &test.file);
    pair(out, "access", either(test.file_per_rank, "file-per-process", "single-shared-file"));
    pair(out, "type", either(test.collective, "collective", "independent"));
    pair(out, "segments", test.segments);
    pair(out, "ordering in a file", either(test.random_offset > 0, "random", "sequential"));
    pair(out, "ordering inter file", readers(test));
    if test.reorder || test.reorder_random > 0 {
        pair(out, "task offset", test.node_offset);
    }
    if !test.reorder && test.reorder_random > 0 {
        pair(out, "reorder random seed", test.reorder_seed);
    }
    pair(out, "nodes", about.nodes.count);
    pair(out, "tasks", about.ranks);
    pair(out, "clients per node", about.nodes.ranks_on_root);
    pair(out, "memoryBuffer", "CPU");
    pair(out, "dataAccess", "CPU");
    pair(out, "GPUDirect", 0);
    pair(out, "repetitions", test.repetitions);
    pair(out, "xfersize", human(test.transfer));
    pair(out, "blocksize", human(test.block));
    pair(out, "aggregate filesize", human(test.expected_bytes(about.ranks)));
    if about.drops_caches {
        pair(out, "caches", "dropped on each node before reading");
    }
    if test.verbose > 0 {
        pair(out, "verbose", test.verbose);
    }
    if test.deadline > 0 {
        pair(out, "stonewallingTime", test.deadline);
        pair(out, "stoneWallingWearOut", u8::from(test.more.wear_out));
    }
}

/// Whose data is read.
pub(super) fn readers(test: &Ior) -> &'static str {
    match (test.reorder, test.reorder_random) {
        (true, _) => "constant task offset",
        (false, 1..) => "random task offset",
        (false, 0) => "no tasks offsets",
    }
}

pub(super) fn api(about: &About) -> &'static str {
    about.test.api.name()
}

/// A phase.
pub(super) fn row(about: &About, row: &Row) -> String {
    let (test, point) = (about.test, &row.point);
    format!(
        "{:<10}{} {} {}  {} {} {} {} {} {} {:<4}\n",
        row.kind.name(),
        column(point.bandwidth / MIB as f64),
        column(point.iops),
        column(point.latency_s),
        column(test.block as f64 / KIB as f64),
        column(test.transfer as f64 / KIB as f64),
        column(point.open_s),
        column(point.transfer_s),
        column(point.close_s),
        column(point.total_s),
        row.repetition
    )
}

/// A removal.
pub(super) fn removed(repetition: usize, seconds: f64) -> String {
    let none = "-          ";
    let (first, rest) = (none.repeat(2), none.repeat(5));
    format!("remove    {first}{none} {rest}{} {repetition:<4}\n", column(seconds))
}

/// Everything after the results.
pub(super) fn summary(about: &About, results: &Results) -> String {
    let mut out = String::new();
    for (kind, label) in [(Kind::Write, "Max Write: "), (Kind::Read, "Max Read:  ")] {
        if let Some(total) = results.total(kind, about) {
            let max = total.bandwidth.max;
            let (mib, mb) = (max / MIB as f64, max / 1e6);
            let _ = writeln!(out, "{label}{mib:.2} MiB/sec ({mb:.2} MB/sec)");
        }
    }
    out.push_str("\nSummary of all tests:\n");
    let _ = writeln!(
        out,
        "{:<9} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>13} Test# \
         #Tasks tPN reps fPP reord reordoff reordrand seed segcnt {:>8} {:>8} {:>9} {:>5} RefNum",
        "Operation",
        "Max(MiB)",
        "Min(MiB)",
        "Mean(MiB)",
        "StdDev",
        "Max(OPs)",
        "Min(OPs)",
        "Mean(OPs)",
        "StdDev",
        "Mean(s)",
        "Stonewall(s)",
        "Stonewall(MiB)",
        " blksiz",
        "xsize",
        "aggs(MiB)",
        "API"
    );
    for kind in [Kind::Write, Kind::Read] {
        if let Some(total) = results.total(kind, about) {
            out.push_str(&total_row(about, kind, &total));
        }
    }
    // Whoever reads IOR takes the lines until here that begin with an operation for rows of its
    // table. What IOR does not have comes behind, and its rows begin otherwise.
    pair(&mut out, "Finished", when::ctime(when::unix_seconds()));
    repetitions(&mut out, about, results);
    latencies(&mut out, results);
    out
}

fn total_row(about: &About, kind: Kind, total: &Total) -> String {
    let test = about.test;
    let mut out = format!("{:<9} ", kind.name());
    let scaled = |value: f64| value / MIB as f64;
    let (bandwidth, operations) = (&total.bandwidth, &total.operations);
    for value in [
        scaled(bandwidth.max),
        scaled(bandwidth.min),
        scaled(bandwidth.mean),
        scaled(bandwidth.deviation),
        operations.max,
        operations.min,
        operations.mean,
        operations.deviation,
    ] {
        let _ = write!(out, "{value:>10.2} ");
    }
    let _ = write!(out, "{:>10.5} ", total.mean_s);
    let _ = match total.stonewall {
        Some((seconds, rate)) => write!(out, "{seconds:>10.2} {:>13.2} ", scaled(rate)),
        None => write!(out, "{:>10} {:>13} ", "NA", "NA"),
    };
    let _ = writeln!(
        out,
        "{:>5} {:>6} {:>3} {:>4} {:>3} {:>5} {:>8} {:>9} {:>4} {:>6} {:>8} {:>8} {:>9.1} {:>3} {:>6}",
        0,
        about.ranks,
        about.nodes.ranks_on_root,
        test.repetitions,
        u8::from(test.file_per_rank),
        u8::from(test.reorder),
        test.node_offset,
        test.reorder_random,
        test.reorder_seed,
        test.segments,
        test.block,
        test.transfer,
        total.bytes as f64 / MIB as f64,
        api(about),
        test.reference
    );
    out
}

/// What rows of tables begin with that IOR does not have.
fn own_row(kind: Kind) -> String {
    format!("({})", kind.name())
}

/// What IOR does not have: the repetitions' best, middle and mean, and the ranks beside each
/// other in the best one.
fn repetitions(out: &mut String, about: &About, results: &Results) {
    let mib = |rate: f64| rate / MIB as f64;
    out.push_str("\nRepetitions, and ranks of the best one (MiB/s):\n");
    let _ = writeln!(
        out,
        "{:<9} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>13} {:>13} {:>13}",
        "Operation",
        "Best",
        "Median",
        "Mean",
        "StdDev",
        "SlowRank",
        "MidRank",
        "FastRank",
        "SumOfRanks(*)",
        "StartSkew(s)",
        "EndSkew(s)"
    );
    for kind in [Kind::Write, Kind::Read] {
        let rows = results.rows.iter().filter(|row| row.kind == kind);
        let best = rows.max_by(|a, b| a.point.bandwidth.total_cmp(&b.point.bandwidth));
        let (Some(total), Some(best)) = (results.total(kind, about), best) else { continue };
        let (slow, middle, fast) = best.spread.slowest_median_fastest();
        let all = total.bandwidth;
        let _ = write!(out, "{:<9}", own_row(kind));
        for rate in [all.max, all.median, all.mean, all.deviation, slow, middle, fast] {
            let _ = write!(out, " {:>10.2}", mib(rate));
        }
        let Spread { sum_of_ranks, start_skew_s, end_skew_s, .. } = &best.spread;
        let _ =
            writeln!(out, " {:>13.2} {start_skew_s:>13.6} {end_skew_s:>13.6}", mib(*sum_of_ranks));
    }
    out.push_str(
        "(*) for comparison only: each rank's bytes over its own time, added up. The result is \
         Best\n",
    );
}

/// What IOR does not have: how long single transfers took.
fn latencies(out: &mut String, results: &Results) {
    if results.latencies.is_empty() {
        return;
    }
    out.push_str("\nLatency of single transfers (us):\n");
    let _ = writeln!(
        out,
        "{:<9} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12} {:>12}",
        "Operation", "Count", "Mean", "50%", "90%", "99%", "99.9%", "Max"
    );
    for (kind, all) in &results.latencies {
        let _ = write!(out, "{:<9} {:>12}", own_row(*kind), all.count);
        for value in [all.mean_us, all.p50_us, all.p90_us, all.p99_us, all.p999_us, all.max_us] {
            let _ = write!(out, " {value:>12.1}");
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_iors() {
        assert_eq!(column(0.000385), "0.000385  ");
        assert_eq!(column(2594.123), "2594.12   ");
        assert_eq!(column(26413.4), "26413     ");
        assert_eq!(column(-1.0).len(), 10);
        assert_eq!(column(f64::NAN).len(), 10);
    }
}

//! Which figures a report has: rates over nodes, processes, transfer sizes and files per process
//! where runs differ in them, bars where they do not; and of each run its ranks beside each
//! other and its rates over time.

use std::collections::{BTreeMap, BTreeSet};

use crate::apart::{self, Amount, Parts};
use crate::markup::{number, size};
use crate::plot::{Axis, Bar, Bars, COLOURS, Chart, Point, Scale, Series, Style};
use crate::run::{Outcome, Run, Summary, Unit};

/// Values that lie further apart are shown by their logarithm.
const LINEAR_RATIO_MAX: f64 = 30.0;
/// Ranks that are shown by marks; more are a line, in order of their rates.
const DOTS_MAX: usize = 64;
/// Most points of a line of ranks or of time: more than a page is wide.
const POINTS_MAX: usize = 2000;
/// Fewer looks at a phase are no course of time.
const LOOKS_MIN: usize = 4;
/// Bars of a figure.
const BARS_MAX: usize = 48;

/// A figure.
#[derive(Debug, Clone, PartialEq)]
pub enum Figure {
    /// Lines or marks.
    Chart(Chart),
    /// Bars.
    Bars(Bars),
}

impl Figure {
    /// As SVG; `id` is unique in the page.
    pub fn svg(&self, id: &str) -> String {
        match self {
            Self::Chart(chart) => chart.svg(id),
            Self::Bars(bars) => bars.svg(id),
        }
    }

    /// What it shows.
    pub fn title(&self) -> &str {
        match self {
            Self::Chart(chart) => &chart.title,
            Self::Bars(bars) => &bars.title,
        }
    }

    /// The same in a sentence or two.
    pub fn caption(&self) -> &str {
        match self {
            Self::Chart(chart) => &chart.caption,
            Self::Bars(bars) => &bars.caption,
        }
    }
}

/// What rates may run along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Along {
    Nodes,
    Processes,
    Transfer,
    Files,
}

impl Along {
    fn value(self, outcome: &Outcome) -> Option<u64> {
        match self {
            Self::Nodes => outcome.nodes,
            Self::Processes => Some(outcome.ranks),
            Self::Transfer => outcome.transfer_bytes,
            Self::Files => outcome.files,
        }
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Nodes => ("nodes", "nodes"),
            Self::Processes => ("processes", "processes"),
            Self::Transfer => ("transfer size", "bytes of a transfer"),
            Self::Files => ("files per process", "files of each process"),
        }
    }

    fn name(self, value: u64) -> String {
        if self == Self::Transfer { size(value) } else { number_of(value) }
    }
}

fn number_of(value: u64) -> String {
    if value < 10_000 { value.to_string() } else { number(value as f64) }
}

/// An outcome with the run that it is of.
#[derive(Debug, Clone, Copy)]
struct Item<'a> {
    run: &'a Run,
    outcome: &'a Outcome,
}

/// Where the operation stands among the parts of a name.
const OPERATION: usize = 1;

impl Item<'_> {
    /// Everything about it but what runs along: what tells series apart.
    fn parts(&self, along: Option<Along>, amount: Amount) -> Parts {
        let one = self.outcome;
        let mut parts = vec![self.run.label.clone(), one.operation.clone()];
        let count = |count: u64, what: &str, more: &str| {
            format!("{} {what}{}", number_of(count), if count == 1 { "" } else { more })
        };
        let per_node = along == Some(Along::Nodes);
        parts.push(match along {
            Some(Along::Processes) => String::new(),
            Some(Along::Nodes) => {
                count(one.ranks_per_node().unwrap_or(one.ranks), "process", "es") + " per node"
            }
            _ => count(one.ranks, "process", "es"),
        });
        let nodes = one.nodes.filter(|_| !per_node);
        parts.push(nodes.map_or(String::new(), |nodes| count(nodes, "node", "s")));
        let transfer = one.transfer_bytes.filter(|_| along != Some(Along::Transfer));
        parts.push(transfer.map_or(String::new(), size));
        let files = one.files.filter(|_| along != Some(Along::Files));
        parts.push(files.map_or(String::new(), |files| format!("{} files", number_of(files))));
        parts.into_iter().map(Some).chain(apart::parts(one, amount)).collect()
    }
}

/// The amount that items have in common, as far as they do.
fn amount(items: &[Item]) -> Amount {
    Amount::of(items.iter().map(|item| item.outcome))
}

/// Names by the parts in which things differ; the operation if they do not.
fn names(all: &[&Parts]) -> Vec<String> {
    let mut shown = apart::differing(all);
    if shown.is_empty() {
        shown.push(OPERATION);
    }
    all.iter().map(|parts| apart::words(parts, &shown)).collect()
}

/// Figures that hold runs against each other.
pub fn between(runs: &[Run]) -> Vec<Figure> {
    let mut figures = Vec::new();
    let programs: BTreeSet<&str> = runs.iter().map(|run| run.program).collect();
    for program in programs {
        let of = runs.iter().filter(|run| run.program == program);
        let items: Vec<Item> = of
            .flat_map(|run| run.outcomes.iter().map(move |outcome| Item { run, outcome }))
            .collect();
        let before = figures.len();
        for along in [Along::Nodes, Along::Processes, Along::Transfer, Along::Files] {
            figures.extend(lines(&items, along, program));
        }
        if figures.len() == before {
            figures.extend(bars(&items));
        }
    }
    figures
}

fn subject(program: &str, unit: Unit) -> &'static str {
    match (program, unit) {
        ("mdtest", _) => "Metadata rates",
        ("iozone", Unit::Operations) => "Operations of access patterns",
        ("iozone", _) => "Bandwidth of access patterns",
        ("io500", _) => "IO500",
        _ => "Bandwidth",
    }
}

/// The rates of all repetitions at each value that runs have.
type Line = BTreeMap<u64, Vec<f64>>;

fn lines(items: &[Item], along: Along, program: &str) -> Vec<Figure> {
    let mut all: BTreeMap<(Unit, Parts), Line> = BTreeMap::new();
    let amount = amount(items);
    for item in items {
        let Some(value) = along.value(item.outcome).filter(|value| *value > 0) else { continue };
        let line = all.entry((item.outcome.unit, item.parts(Some(along), amount))).or_default();
        let rates = item.outcome.repetitions.iter().map(|one| one.rate);
        line.entry(value).or_default().extend(rates);
    }
    all.retain(|_, line| line.len() > 1);
    let units: BTreeSet<Unit> = all.keys().map(|key| key.0).collect();
    let mut figures = Vec::new();
    for unit in units {
        let of: Vec<(&Parts, &Line)> =
            all.iter().filter(|one| one.0.0 == unit).map(|(key, line)| (&key.1, line)).collect();
        let title = format!("{} over {}", subject(program, unit), along.words().0);
        for (what, chunk) in chunks(&of) {
            figures.push(Figure::Chart(line_chart(&format!("{title}{what}"), unit, along, &chunk)));
        }
    }
    figures
}

/// No more lines than there are colours: else a figure for each operation.
fn chunks<'a>(all: &[(&'a Parts, &'a Line)]) -> Vec<(String, Vec<(&'a Parts, &'a Line)>)> {
    if all.len() <= COLOURS {
        return vec![(String::new(), all.to_vec())];
    }
    let operation =
        |one: &(&Parts, &Line)| one.0.get(OPERATION).cloned().flatten().unwrap_or_default();
    let operations: BTreeSet<String> = all.iter().map(operation).collect();
    let mut found = Vec::new();
    for name in operations {
        let of: Vec<_> = all.iter().filter(|one| operation(one) == name).copied().collect();
        let parts = of.len().div_ceil(COLOURS);
        for (at, chunk) in of.chunks(COLOURS).enumerate() {
            let part = if parts > 1 { format!(" ({} of {parts})", at + 1) } else { String::new() };
            found.push((format!(": {name}{part}"), chunk.to_vec()));
        }
    }
    found
}

fn y_axis(unit: Unit, values: impl Iterator<Item = f64> + Clone) -> Axis {
    let positive = values.filter(|value| *value > 0.0);
    let low = positive.clone().fold(f64::INFINITY, f64::min);
    let high = positive.fold(0.0, f64::max);
    let log = high / low > LINEAR_RATIO_MAX;
    Axis::new(unit.name(), if log { Scale::Log } else { Scale::Linear })
}

fn line_chart(title: &str, unit: Unit, along: Along, lines: &[(&Parts, &Line)]) -> Chart {
    let names = names(&lines.iter().map(|one| one.0).collect::<Vec<_>>());
    let rates = || lines.iter().flat_map(|one| one.1.values().flatten().copied());
    let xs: BTreeSet<u64> = lines.iter().flat_map(|one| one.1.keys().copied()).collect();
    let series = lines.iter().zip(names).enumerate().map(|(colour, ((_, line), name))| {
        let point = |(x, rates): (&u64, &Vec<f64>)| {
            let all = Summary::of(rates);
            let at = along.name(*x);
            let title = format!("{name}, {at}: {} {}", number(all.median), unit.name());
            let range = Some((all.worst, all.best));
            Point { x: *x as f64, y: all.median, range, title }
        };
        let points = line.iter().map(point).collect();
        Series { name: name.clone(), colour, faint: false, style: Style::Marks, points }
    });
    let named = xs.iter().map(|value| (*value as f64, along.name(*value))).collect();
    Chart {
        title: title.to_owned(),
        caption: "Marks are medians of the repetitions, upright lines reach from the worst to \
                  the best."
            .to_owned(),
        x: Axis { named, ..Axis::new(along.words().1, Scale::Log) },
        y: y_axis(unit, rates()),
        series: series.collect(),
    }
}

fn bars(items: &[Item]) -> Vec<Figure> {
    let units: BTreeSet<Unit> = items.iter().map(|item| item.outcome.unit).collect();
    let labels: Vec<String> = labels(items);
    let amount = amount(items);
    let mut figures = Vec::new();
    for unit in units {
        let of: Vec<&Item> = items.iter().filter(|item| item.outcome.unit == unit).collect();
        let mut operations: Vec<&str> = Vec::new();
        for item in &of {
            if !operations.contains(&item.outcome.operation.as_str()) {
                operations.push(&item.outcome.operation);
            }
        }
        let parts: Vec<Parts> = of.iter().map(|item| item.parts(None, amount)).collect();
        let names = names(&parts.iter().collect::<Vec<_>>());
        let bar = |(item, name): (&&Item, String)| {
            let all = item.outcome.summary();
            let is = |operation: &&str| *operation == item.outcome.operation;
            Bar {
                name,
                group: operations.iter().position(is).unwrap_or(0),
                colour: labels.iter().position(|one| *one == item.run.label).unwrap_or(0),
                value: all.median,
                range: Some((all.worst, all.best)),
            }
        };
        let mut all: Vec<Bar> = of.iter().zip(names).map(bar).collect();
        all.sort_by_key(|bar| (bar.group, bar.colour));
        let program = of.first().map_or("", |item| item.run.program);
        for chunk in all.chunks(BARS_MAX) {
            figures.push(Figure::Bars(Bars {
                title: format!("{} ({})", subject(program, unit), unit.name()),
                caption: "Bars are medians of the repetitions, lines reach from the worst to the \
                          best."
                    .to_owned(),
                unit: unit.name().to_owned(),
                bars: chunk.to_vec(),
            }));
        }
    }
    figures
}

fn labels(items: &[Item]) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    for item in items {
        if !labels.contains(&item.run.label) {
            labels.push(item.run.label.clone());
        }
    }
    labels
}

/// Figures of a single run.
pub fn of_run(run: &Run) -> Vec<Figure> {
    let mut figures = Vec::new();
    let units: BTreeSet<Unit> = run.outcomes.iter().map(|one| one.unit).collect();
    for unit in units {
        let of: Vec<&Outcome> = run.outcomes.iter().filter(|one| one.unit == unit).collect();
        for chunk in of.chunks(COLOURS) {
            figures.extend(ranks(unit, chunk).map(Figure::Chart));
            figures.extend(course(unit, chunk).map(Figure::Chart));
        }
    }
    figures
}

/// No more than a line can show: evenly chosen, with the first and the last.
fn thinned<T>(all: impl ExactSizeIterator<Item = T>) -> impl Iterator<Item = T> {
    let last = all.len().saturating_sub(1);
    let step = last.div_ceil(POINTS_MAX - 1).max(1);
    let kept = move |at: usize| at.is_multiple_of(step) || at == last;
    all.enumerate().filter(move |one| kept(one.0)).map(|one| one.1)
}

/// The ranks of the best repetition beside each other.
fn ranks(unit: Unit, outcomes: &[&Outcome]) -> Option<Chart> {
    let mut series = Vec::new();
    let mut many = false;
    for (colour, outcome) in outcomes.iter().enumerate() {
        let Some(best) = outcome.best().filter(|best| best.ranks.len() > 1) else { continue };
        let mut rates = best.ranks.clone();
        let dots = rates.len() <= DOTS_MAX;
        if !dots {
            rates.sort_by(f64::total_cmp);
            many = true;
        }
        let name = &outcome.operation;
        let point = |(rank, rate): (usize, &f64)| Point {
            x: rank as f64,
            y: *rate,
            range: None,
            // A line of thousands has no names to be pointed at.
            title: match dots {
                true => format!("{name}, rank {rank}: {} {}", number(*rate), unit.name()),
                false => String::new(),
            },
        };
        let points = thinned(rates.iter().enumerate()).map(point).collect();
        let style = if dots { Style::Dots } else { Style::Line };
        series.push(Series { name: name.clone(), colour, faint: false, style, points });
    }
    let values = || series.iter().flat_map(|one| one.points.iter().map(|point| point.y));
    let y = y_axis(unit, values().collect::<Vec<_>>().into_iter());
    let order = if many { "ranks, slowest first" } else { "rank" };
    let most = series.iter().max_by_key(|one| one.points.len())?;
    let whole = most.points.iter().map(|point| (point.x, format!("{:.0}", point.x)));
    let whole: Vec<_> = whole.collect();
    Some(Chart {
        title: "Spread over ranks".into(),
        caption: "Each rank's own rate in the best repetition. Ranks that did alike lie level."
            .into(),
        x: Axis { named: whole, ..Axis::new(order, Scale::Linear) },
        y,
        series,
    })
}

/// Rates over time; the best repetition before the others.
fn course(unit: Unit, outcomes: &[&Outcome]) -> Option<Chart> {
    let mut series: Vec<Series> = Vec::new();
    for (colour, outcome) in outcomes.iter().enumerate() {
        let best = outcome.best();
        let mut of: Vec<Series> = Vec::new();
        for one in outcome.repetitions.iter().filter(|one| one.series.len() >= LOOKS_MIN) {
            let faint = best.is_some_and(|best| !std::ptr::eq(best, one));
            let point =
                |(x, y): (&f64, &f64)| Point { x: *x, y: *y, range: None, title: String::new() };
            let points = thinned(one.series_s.iter().zip(&one.series)).map(point).collect();
            let name = if faint { String::new() } else { outcome.operation.clone() };
            of.push(Series { name, colour, faint, style: Style::Steps, points });
        }
        // If the best was too short to have a course, another one stands for it.
        if let Some(first) =
            of.first_mut().filter(|_| best.is_some_and(|one| one.series.len() < LOOKS_MIN))
        {
            first.name.clone_from(&outcome.operation);
        }
        of.sort_by_key(|one| !one.faint);
        series.extend(of);
    }
    let points = series.iter().flat_map(|one| &one.points);
    let values: Vec<f64> = points.map(|point| point.y).collect();
    let y = y_axis(unit, values.iter().copied());
    (!series.is_empty()).then(|| Chart {
        title: "Rates over time".into(),
        caption: "Rates between two looks at the ranks' counts. Faint lines are other repetitions \
                  than the best."
            .into(),
        x: Axis::new("seconds since the phase began", Scale::Linear),
        // A phase that stands still for a moment has no logarithm.
        y: if values.contains(&0.0) { Axis::new(unit.name(), Scale::Linear) } else { y },
        series,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::apart::{Aspect, Aspects};
    use crate::run::Repetition;

    /// A run with an outcome for each operation.
    pub(crate) fn a_run(label: &str, operations: &[&str], ranks: u64, transfer: u64) -> Run {
        let outcome = |operation: &&str| Outcome {
            operation: (*operation).to_owned(),
            unit: Unit::Mib,
            nodes: Some(1),
            ranks,
            transfer_bytes: Some(transfer),
            files: None,
            access: "file-per-process".into(),
            bytes_per_rank: None,
            aspects: Aspects::new(),
            repetitions: vec![
                Repetition {
                    rate: 100.0 * ranks as f64,
                    ranks: vec![100.0; usize::try_from(ranks).unwrap()],
                    series_s: vec![1.0, 2.0, 3.0, 4.0],
                    series: vec![90.0, 110.0, 100.0, 100.0],
                    ..Repetition::default()
                },
                Repetition { rate: 80.0 * ranks as f64, ..Repetition::default() },
            ],
            latency: None,
        };
        Run {
            label: label.into(),
            source: format!("{label}{ranks}.json"),
            program: "ior",
            facts: vec![("Command line", "ior <b>".into())],
            outcomes: operations.iter().map(outcome).collect(),
            warnings: Vec::new(),
        }
    }

    fn titles(figures: &[Figure]) -> Vec<&str> {
        figures.iter().map(Figure::title).collect()
    }

    fn legend(figure: &Figure) -> Vec<String> {
        let Figure::Chart(chart) = figure else { panic!("{figure:?}") };
        chart.series.iter().map(|one| one.name.clone()).collect()
    }

    #[test]
    fn rates_run_along_what_runs_differ_in() {
        let ops = &["write", "read"];
        let runs =
            [a_run("", ops, 1, 1 << 20), a_run("", ops, 4, 1 << 20), a_run("", ops, 4, 1 << 16)];
        let figures = between(&runs);
        assert_eq!(titles(&figures), ["Bandwidth over processes", "Bandwidth over transfer size"]);
        assert_eq!(legend(&figures[0]), ["read", "write"]);
        let Figure::Chart(chart) = &figures[0] else { panic!() };
        let write = &chart.series[1].points;
        assert_eq!((write[0].x, write[0].y, write[0].range), (1.0, 90.0, Some((80.0, 100.0))));
        assert_eq!((write[1].x, write[1].y), (4.0, 360.0));
        assert_eq!(chart.x.named[1], (4.0, "4".into()));
    }

    #[test]
    fn rates_run_along_nodes_and_files() {
        let of = |label: &str, nodes: u64, ranks: u64, files: Option<u64>| {
            let mut run = a_run(label, &["File creation"], ranks, 0);
            run.program = "mdtest";
            for outcome in &mut run.outcomes {
                (outcome.unit, outcome.nodes) = (Unit::Operations, Some(nodes));
                (outcome.transfer_bytes, outcome.files) = (None, files);
            }
            run
        };
        // As many processes on each node: along nodes a line, and along processes none, since
        // they differ in nodes, too.
        let scaled = [of("a", 1, 2, Some(10)), of("a", 2, 4, Some(10)), of("a", 8, 16, Some(10))];
        let figures = between(&scaled);
        assert_eq!(titles(&figures), ["Metadata rates over nodes"]);
        let Figure::Chart(chart) = &figures[0] else { panic!("{figures:?}") };
        let points = |series: &Series| series.points.iter().map(|one| (one.x, one.y)).collect();
        let found: Vec<Vec<(f64, f64)>> = chart.series.iter().map(points).collect();
        assert_eq!(found, [vec![(1.0, 180.0), (2.0, 360.0), (8.0, 1440.0)]]);
        assert_eq!(chart.x.named.last(), Some(&(8.0, "8".into())));
        // Another number of processes on a node is another line.
        let denser = [of("a", 1, 4, Some(10)), of("a", 2, 8, Some(10))];
        let figures = between(&[&scaled[..], &denser[..]].concat());
        assert_eq!(titles(&figures)[0], "Metadata rates over nodes");
        assert_eq!(legend(&figures[0]), ["2 processes per node", "4 processes per node"]);

        let files =
            [of("a", 1, 2, Some(1000)), of("a", 1, 2, Some(50_000)), of("b", 1, 2, Some(9))];
        let figures = between(&files);
        assert_eq!(titles(&figures), ["Metadata rates over files per process"]);
        let Figure::Chart(chart) = &figures[0] else { panic!("{figures:?}") };
        assert_eq!(chart.series.len(), 1, "one value of b is no line");
        let xs: Vec<f64> = chart.series[0].points.iter().map(|one| one.x).collect();
        assert_eq!(xs, [1000.0, 50_000.0]);
        assert_eq!(chart.x.named[0], (1000.0, "1000".into()));
        let unknown = [of("a", 1, 2, None), of("b", 1, 2, None)];
        assert!(matches!(between(&unknown)[..], [Figure::Bars(_)]), "nothing to run along");
    }

    #[test]
    fn bars_of_runs_with_one_name_stay_apart() {
        let mut again = a_run("ext4", &["write", "read"], 2, 4096);
        again
            .outcomes
            .iter_mut()
            .flat_map(|one| &mut one.repetitions)
            .for_each(|one| one.rate *= 2.0);
        let runs = [
            a_run("ext4", &["write", "read"], 2, 4096),
            a_run("sateen", &["write", "read"], 2, 4096),
            again,
        ];
        let figures = between(&runs);
        let Figure::Bars(bars) = &figures[0] else { panic!("{figures:?}") };
        let found: Vec<_> =
            bars.bars.iter().map(|bar| (bar.name.as_str(), bar.colour, bar.value)).collect();
        let wanted = [
            ("ext4, write", 0, 180.0),
            ("ext4, write", 0, 360.0),
            ("sateen, write", 1, 180.0),
            ("ext4, read", 0, 180.0),
            ("ext4, read", 0, 360.0),
            ("sateen, read", 1, 180.0),
        ];
        assert_eq!(found, wanted, "runs of a name are neither one bar nor in each other's range");
        assert!(bars.bars.iter().all(|bar| bar.range.unwrap().1 <= bar.value * 1.2));
        let svg = bars.svg("f");
        let at = |line: &str| {
            line.split("<rect x=")
                .nth(1)?
                .split("y=\"")
                .nth(1)?
                .split('"')
                .next()?
                .parse::<f64>()
                .ok()
        };
        let tops: Vec<f64> = svg.lines().filter_map(at).collect();
        assert_eq!(tops.len(), wanted.len());
        assert!(tops.windows(2).all(|two| two[0] < two[1]), "each below the other: {tops:?}");
    }

    #[test]
    fn runs_of_one_name_are_a_line() {
        let runs = [
            a_run("ext4", &["write"], 1, 4096),
            a_run("ext4", &["write"], 2, 4096),
            a_run("sateen", &["write"], 1, 4096),
            a_run("sateen", &["write"], 2, 4096),
        ];
        assert_eq!(legend(&between(&runs)[0]), ["ext4", "sateen"]);
        let alike =
            [a_run("ext4", &["write", "read"], 2, 4096), a_run("sateen", &["write"], 2, 4096)];
        let figures = between(&alike);
        let Figure::Bars(bars) = &figures[0] else { panic!("{figures:?}") };
        let names: Vec<&str> = bars.bars.iter().map(|bar| bar.name.as_str()).collect();
        assert_eq!(names, ["ext4, write", "sateen, write", "ext4, read"]);
        assert_eq!((bars.bars[1].colour, bars.bars[2].group), (1, 1));
    }

    /// A run with this told of all its outcomes.
    fn told(ranks: u64, aspect: Aspect, words: &str) -> Run {
        let mut run = a_run("", &["write"], ranks, 4096);
        run.outcomes.iter_mut().for_each(|one| {
            one.aspects.insert(Aspect::Order, "sequential".into());
            one.aspects.insert(aspect, words.into());
        });
        run
    }

    #[test]
    fn measurements_that_differ_are_lines_of_their_own_named_by_the_difference() {
        for (aspect, one, other) in [
            (Aspect::Interface, "MPIIO", "POSIX"),
            (Aspect::PageCache, "O_DIRECT", "page cache"),
            (Aspect::Order, "random", "sequential"),
            (Aspect::FileBytes, "empty files", "files of 4 KiB"),
        ] {
            let runs = [told(1, aspect, one), told(2, aspect, one)];
            let figures = between(&runs);
            assert_eq!(legend(&figures[0]), ["write"], "nothing differs");
            let others = [told(1, aspect, other), told(2, aspect, other)];
            let figures = between(&[runs, others].concat());
            assert_eq!(titles(&figures), ["Bandwidth over processes"]);
            assert_eq!(legend(&figures[0]), [one, other]);
            let Figure::Chart(chart) = &figures[0] else { panic!() };
            let count = chart.series.iter().map(|one| one.points.len()).collect::<Vec<_>>();
            assert_eq!(count, [2, 2]);
            let alone = [told(1, aspect, one), told(1, aspect, other)];
            let Figure::Bars(bars) = &between(&alone)[0] else { panic!("{aspect:?}") };
            let names: Vec<&str> = bars.bars.iter().map(|bar| bar.name.as_str()).collect();
            assert_eq!(names, [one, other]);
        }
    }

    #[test]
    fn amounts_tell_lines_apart_unless_they_follow_the_processes() {
        let of = |ranks: u64, bytes: u64| {
            let mut run = a_run("", &["write"], ranks, 4096);
            run.outcomes[0].bytes_per_rank = Some(bytes);
            run
        };
        let same = between(&[of(1, 64 << 10), of(2, 64 << 10)]);
        assert_eq!(legend(&same[0]), ["write"]);
        let shared_out = between(&[of(1, 64 << 10), of(2, 32 << 10), of(4, 16 << 10)]);
        assert_eq!(legend(&shared_out[0]), ["write"], "64 KiB in all");
        let two = [of(1, 64 << 10), of(2, 64 << 10), of(1, 4 << 10), of(2, 4 << 10)];
        assert_eq!(legend(&between(&two)[0]), ["4 KiB each", "64 KiB each"]);
    }

    #[test]
    fn more_lines_than_colours_are_several_figures() {
        let sizes = [1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16];
        let runs: Vec<Run> = sizes
            .iter()
            .flat_map(|size| [1, 2].map(|ranks| a_run("", &["write", "read"], ranks, *size)))
            .collect();
        let figures = between(&runs);
        let wanted = [
            "Bandwidth over processes: read",
            "Bandwidth over processes: write",
            "Bandwidth over transfer size",
        ];
        assert_eq!(titles(&figures), wanted);
        assert_eq!(legend(&figures[0]).len(), 5);
    }

    #[test]
    fn a_run_shows_its_ranks_and_its_course() {
        let figures = of_run(&a_run("", &["write"], 4, 4096));
        assert_eq!(titles(&figures), ["Spread over ranks", "Rates over time"]);
        let Figure::Chart(chart) = &figures[0] else { panic!() };
        assert_eq!(chart.series[0].points.len(), 4);
        let Figure::Chart(chart) = &figures[1] else { panic!() };
        assert_eq!((chart.series.len(), chart.series[0].style), (1, Style::Steps));
        assert_eq!(of_run(&a_run("", &[], 4, 4096)), []);
    }

    #[test]
    fn lines_have_no_more_points_than_a_page_shows() {
        for len in [0, 1, 2, POINTS_MAX, POINTS_MAX + 1, 1_000_000] {
            let all: Vec<usize> = (0..len).collect();
            let found: Vec<usize> = thinned(all.iter().copied()).collect();
            assert!(found.len() <= POINTS_MAX && found.len() >= len.min(POINTS_MAX / 2), "{len}");
            assert_eq!((found.first(), found.last()), (all.first(), all.last()));
        }
        let run = a_run("", &["write"], 1_000_000, 4096);
        let Figure::Chart(chart) = &of_run(&run)[0] else { panic!("no chart") };
        assert_eq!(chart.series[0].points.last().unwrap().x, 999_999.0);
        assert!(chart.series[0].points.len() <= POINTS_MAX && chart.x.named.len() <= POINTS_MAX);
    }
}

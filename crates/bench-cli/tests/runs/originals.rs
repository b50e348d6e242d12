//! Parsers of what IOR, mdtest and IOzone print, written from their formats and knowing nothing of
//! this program.

use std::collections::BTreeMap;

/// A row of IOR's table of results.
#[derive(Debug)]
pub(crate) struct IorRow {
    pub(crate) access: String,
    pub(crate) values: BTreeMap<&'static str, f64>,
}

const IOR_COLUMNS: [&str; 10] = [
    "bw(MiB/s)",
    "IOPS",
    "Latency(s)",
    "block(KiB)",
    "xfer(KiB)",
    "open(s)",
    "wr/rd(s)",
    "close(s)",
    "total(s)",
    "iter",
];

/// What IOR printed.
#[derive(Debug)]
pub(crate) struct IorOutput {
    pub(crate) options: BTreeMap<String, String>,
    pub(crate) rows: Vec<IorRow>,
    /// The summary's rows by operation, with its columns by their titles; those that occur
    /// twice (StdDev) have a number behind them.
    pub(crate) summary: BTreeMap<String, BTreeMap<String, String>>,
    /// `Max Write` and `Max Read`, MiB/s.
    pub(crate) max: BTreeMap<String, f64>,
}

/// Reads what IOR printed.
pub(crate) fn ior(text: &str) -> IorOutput {
    // Warnings stand anywhere, also before everything else.
    let mut lines = text.lines().filter(|line| !line.starts_with("WARNING: "));
    let first = lines.next().unwrap();
    assert!(is_version(first, "IOR-", ": MPI Coordinated Test"), "{first}");
    let mut out = IorOutput {
        options: BTreeMap::new(),
        rows: Vec::new(),
        summary: BTreeMap::new(),
        max: BTreeMap::new(),
    };
    let mut in_table = false;
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if line.starts_with("access ") && line.contains("bw(MiB/s)") {
            assert_eq!(words[1..], IOR_COLUMNS);
            assert!(lines.next().unwrap().starts_with("------ "));
            in_table = true;
        } else if let Some(rest) = line.strip_prefix("Max ") {
            let (kind, rest) = rest.split_once(':').unwrap();
            let words: Vec<&str> = rest.split_whitespace().collect();
            assert_eq!(words[1], "MiB/sec");
            out.max.insert(kind.to_owned(), words[0].parse().unwrap());
            in_table = false;
        } else if line.starts_with("Operation") && line.contains("Max(MiB)") {
            summary(&mut out, line, &mut lines);
        } else if in_table && words.len() == 11 && ["write", "read"].contains(&words[0]) {
            // As fixed columns, which is how some read it.
            assert_eq!(line[..10].trim(), words[0]);
            assert_eq!(line[10..21].trim(), words[1]);
            let values = IOR_COLUMNS.into_iter().zip(&words[1..]);
            let values = values.map(|(name, value)| (name, value.parse().unwrap())).collect();
            out.rows.push(IorRow { access: words[0].to_owned(), values });
        } else if let Some((name, value)) = line.split_once(": ")
            && name.len() == 20
        {
            out.options.insert(name.trim().to_owned(), value.to_owned());
        }
    }
    out
}

fn summary<'a>(out: &mut IorOutput, title: &str, lines: &mut impl Iterator<Item = &'a str>) {
    let mut titles: Vec<String> = Vec::new();
    for word in title.split_whitespace() {
        let again = titles.iter().filter(|one| one.trim_end_matches('2') == word).count();
        titles.push(if again > 0 { format!("{word}2") } else { word.to_owned() });
    }
    let mut ended = false;
    for line in lines.by_ref() {
        let words: Vec<&str> = line.split_whitespace().collect();
        // IOR's own table is followed by this line without anything between.
        if line.starts_with("Finished ") {
            ended = true;
            break;
        }
        if words.is_empty() {
            continue;
        }
        assert!(["write", "read"].contains(&words[0]), "nothing else stands there: {line:?}");
        assert_eq!(words.len(), titles.len(), "{title}\n{line}");
        let row = titles.iter().cloned().zip(words.iter().map(|word| (*word).to_owned()));
        let again = out.summary.insert(words[0].to_owned(), row.collect());
        assert!(again.is_none(), "{line}");
    }
    assert!(ended, "the summary has no end");
}

/// Whether a line begins with a version of digits and dots between these two, as releases have
/// it; the originals' development versions say so behind them.
fn is_version(line: &str, before: &str, after: &str) -> bool {
    let rest = line.strip_prefix(before).and_then(|rest| rest.split_once(after));
    rest.is_some_and(|(version, _)| {
        let version = version.strip_suffix("+dev").unwrap_or(version);
        !version.is_empty() && version.chars().all(|one| one == '.' || one.is_ascii_digit())
    })
}

/// What mdtest printed: tasks, nodes, and the SUMMARY's rows as max, min, mean, deviation.
#[derive(Debug)]
pub(crate) struct MdtestOutput {
    pub(crate) tasks: usize,
    pub(crate) nodes: usize,
    pub(crate) iterations: usize,
    pub(crate) rates: BTreeMap<String, [f64; 4]>,
    pub(crate) times: BTreeMap<String, [f64; 4]>,
}

/// Reads what mdtest printed.
pub(crate) fn mdtest(text: &str) -> MdtestOutput {
    let mut out = MdtestOutput {
        tasks: 0,
        nodes: 0,
        iterations: 0,
        rates: BTreeMap::new(),
        times: BTreeMap::new(),
    };
    let first = text.lines().find(|line| !line.starts_with("WARNING: ")).unwrap();
    assert!(first.starts_with("-- started at "), "{text}");
    assert!(text.contains("\n-- finished at "), "{text}");
    let mut rates = true;
    let mut in_table = false;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if line.starts_with("mdtest-") {
            assert!(is_version(line, "mdtest-", " was launched with "), "{line}");
            out.tasks = words[4].parse().unwrap();
            out.nodes = words[8].parse().unwrap();
        } else if let Some(map) = line.strip_prefix("Nodemap: ") {
            assert!(map.len() == out.tasks && map.starts_with('1'), "{line}");
        } else if line.starts_with("SUMMARY ") {
            let (what, count) = line.split_once(" (of ").unwrap();
            // Only the development version has units here.
            let developed = text.contains("+dev was launched with ");
            let units = ["SUMMARY rate (in ops/sec):", "SUMMARY time (in ms/op):"];
            rates = what.starts_with("SUMMARY rate");
            let release = ["SUMMARY rate:", "SUMMARY time:"].contains(&what);
            assert!(release || developed && units.contains(&what), "{line}");
            out.iterations = count.strip_suffix(" iterations)").unwrap().parse().unwrap();
            in_table = true;
        } else if line.trim().is_empty() {
            in_table = false;
        } else if in_table && words.len() == 6 && words[2].parse::<f64>().is_ok() {
            let name = format!("{} {}", words[0], words[1]);
            let mut values = words[2..].iter().map(|word| word.parse().unwrap());
            let values = std::array::from_fn(|_| values.next().unwrap());
            let table = if rates { &mut out.rates } else { &mut out.times };
            assert!(table.insert(name, values).is_none(), "{line}");
        }
    }
    out
}

/// A test of IOzone's throughput mode.
#[derive(Debug)]
pub(crate) struct IozoneRow {
    /// As IOzone calls those who make it: `initial writers`.
    pub(crate) test: String,
    pub(crate) ranks: usize,
    /// What the children see together, and what the parent sees.
    pub(crate) children: f64,
    pub(crate) parent: f64,
}

/// Reads what IOzone printed.
pub(crate) fn iozone(text: &str) -> Vec<IozoneRow> {
    let mut found = Vec::new();
    let mut children = 0.0;
    for line in text.lines().map(str::trim) {
        let Some((what, value)) = line.split_once('=') else { continue };
        let value = value.split_whitespace().next().unwrap_or_default();
        if what.starts_with("Children see throughput for") {
            children = value.parse().unwrap();
        } else if let Some(rest) = what.strip_prefix("Parent sees throughput for") {
            let (ranks, test) = rest.trim().split_once(' ').unwrap();
            let (ranks, parent) = (ranks.parse().unwrap(), value.parse().unwrap());
            found.push(IozoneRow { test: test.trim().to_owned(), ranks, children, parent });
        }
    }
    found
}

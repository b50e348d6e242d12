//! What parsers of the originals' output hold on to: titles, names and how many columns there are,
//! in the order in which they stand, without what was measured.

use std::collections::BTreeSet;

use serde_json::Value;

/// A line without its numbers and with single spaces: `#` stands for each word that has digits.
fn bare(line: &str) -> String {
    let word = |word: &str| match word.contains(|one: char| one.is_ascii_digit()) {
        true if word.starts_with("Child[") => word.to_owned(),
        true => "#".to_owned(),
        false => word.to_owned(),
    };
    line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

/// Of IOR's text: names of what is said, titles, rows with the number of their columns.
pub(crate) fn ior(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with("WARNING: ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let first = words.first().copied().unwrap_or_default();
        match first {
            "access" | "------" | "Operation" if words.len() > 2 && !line.contains(" : ") => {
                found.push(line.trim_end().to_owned());
            }
            "Options:" | "Results:" | "Summary" => found.push(line.trim_end().to_owned()),
            "write" | "read" | "remove" => found.push(format!("{first} of {}", words.len())),
            "stonewalling" => found.push(bare(line)),
            "Max" => found.push(format!("Max {}", words[1])),
            "Commencing" => found.push(words[..4].join(" ")),
            _ if line.get(20..22) == Some(": ") => found.push(line[..20].trim().to_owned()),
            _ => {}
        }
        if first == "Finished" {
            break;
        }
    }
    found
}

/// Of mdtest's: how much is done, titles, rows with the number of their columns.
pub(crate) fn mdtest(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    // What it says of its doings stands anywhere.
    for line in
        text.lines().filter(|line| !line.starts_with("V-") && !line.starts_with("WARNING: "))
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.first().copied().unwrap_or_default() {
            "Operation" | "---------" => found.push(line.trim_end().to_owned()),
            "Directory" | "File" | "Tree" if line.starts_with("   ") => {
                // As fixed columns, too.
                let name = line.get(3..26).unwrap_or(line).trim_end();
                found.push(format!("{name} of {}", words.len()));
            }
            "SUMMARY" => found.push(line.to_owned()),
            "--" => found.push(words[..3].join(" ")),
            "Nodemap:" => found.push(line.to_owned()),
            "FS" => found.push(bare(line)),
            "Path" | "Command" => found.push(words[0].to_owned()),
            _ if line.contains(" was launched with ") || line.contains(" tasks, ") => {
                found.push(line.to_owned());
            }
            _ => {}
        }
        if line.starts_with("-- finished") {
            break;
        }
    }
    found
}

/// Of IOzone's throughput mode: all of its lines of each test.
pub(crate) fn iozone(text: &str) -> Vec<String> {
    let lines = text.lines().skip_while(|line| !line.contains("Throughput test with "));
    // Behind the tests come our tables, which the original has with an option.
    let lines = lines.take_while(|line| !line.starts_with("All bytes over"));
    let said = lines.map(bare).filter(|line| !line.is_empty() && !line.starts_with("WARNING: "));
    said.filter(|line| !line.starts_with("iozone test complete")).collect()
}

/// The names in a document and where they stand; of lists those of all elements.
pub(crate) fn json(value: &Value) -> BTreeSet<String> {
    fn names(value: &Value, at: &str, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(name, value)| {
                let at = format!("{at}/{name}");
                names(value, &at, found);
                found.insert(at);
            }),
            Value::Array(all) => all.iter().for_each(|one| names(one, at, found)),
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    names(value, "", &mut found);
    found
}

/// Holds ours against theirs: all of theirs in their order, and between it only what is known to
/// be ours.
pub(crate) fn in_order(ours: &[String], theirs: &[String], known: &[&str], what: &str) {
    assert!(theirs.len() > 5, "{what}: {theirs:?}");
    let mut rest = theirs.iter().peekable();
    for label in ours {
        match rest.peek() {
            Some(wanted) if *wanted == label => {
                rest.next();
            }
            wanted => assert!(
                known.contains(&label.as_str()),
                "{what}: {label:?} instead of {wanted:?}\nours: {ours:#?}\ntheirs: {theirs:#?}"
            ),
        }
    }
    let lacks: Vec<&String> = rest.collect();
    assert!(lacks.is_empty(), "{what}: {lacks:?} are not there\nours: {ours:#?}");
}

/// What ours has in IOR's text and release 4.0.0 has not, or only with `-v`.
pub(crate) const MORE_OF_IOR: [&str; 6] =
    ["sateen-bench", "memoryBuffer", "dataAccess", "GPUDirect", "Max Write:", "Max Read:"];

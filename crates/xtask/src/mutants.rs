//! Mutants: small changes of the code that tests should notice, as cargo-mutants lists them. Here
//! some are chosen, always the same for the same list and seed, and woven into the code all at once, each
//! behind a switch, so that one build serves them all. Used by `bin/mutants.rs`, which tries them.
#![allow(clippy::panic, clippy::expect_used, reason = "it serves tests only")]

use std::ops::{Range, RangeInclusive};

use serde_json::Value;

/// The module that woven code asks which mutant there is; `SATEEN_MUTANT` says it.
pub const SWITCH: &str = "
pub(crate) mod planted {
    static WHICH: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    pub(crate) fn is(number: u32) -> bool {
        let said = || std::env::var(\"SATEEN_MUTANT\").ok().and_then(|text| text.parse().ok());
        *WHICH.get_or_init(|| said().unwrap_or(0)) == number
    }
}
";

/// A line and a column, both from 1; columns are characters.
type Place = (usize, usize);

/// One with its number.
type Numbered<'a> = (u32, &'a Mutant);

/// One mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutant {
    /// The folder below `crates/` whose code it changes.
    pub room: String,
    /// The file, from the root.
    pub file: String,
    /// What it does, and where, in words.
    pub name: String,
    /// What of the file it replaces.
    changed: Range<Place>,
    /// The function in which that stands.
    function: Range<Place>,
    /// By what.
    replacement: String,
}

/// The mutants of a list that `cargo mutants --list --json` made, in the order of their names, but
/// for those outside of functions.
pub fn listed(json: &str) -> Vec<Mutant> {
    let all: Value = serde_json::from_str(json).expect("cargo-mutants lists in JSON");
    let all = all.as_array().expect("a list of mutants");
    let mut all: Vec<Mutant> = all.iter().filter_map(mutant).collect();
    all.sort_by(|a, b| (&a.file, &a.name).cmp(&(&b.file, &b.name)));
    all
}

fn mutant(value: &Value) -> Option<Mutant> {
    let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let file = text("file")?;
    Some(Mutant {
        room: file.strip_prefix("crates/")?.split('/').next()?.to_owned(),
        name: text("name")?,
        changed: span(value.get("span")?)?,
        function: span(value.get("function")?.get("span")?)?,
        replacement: text("replacement")?,
        file,
    })
}

fn span(value: &Value) -> Option<Range<Place>> {
    let place = |end: &str| {
        let number = |key| value.get(end)?.get(key)?.as_u64()?.try_into().ok();
        Some((number("line")?, number("column")?))
    };
    Some(place("start")?..place("end")?)
}

/// In which order mutants are taken: by chance, but always the same with the same seed.
pub fn rank(seed: u64, mutant: &Mutant) -> u64 {
    // FNV-1a, and the end of SplitMix64, without which the last letters would hardly count.
    let bytes = seed.to_le_bytes().into_iter().chain(mutant.name.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// How many of each room are taken, so that it is `count` of all: in proportion to how many there
/// are, but at least `least` of each that has so many.
pub fn shares(sizes: &[usize], count: usize, least: usize) -> Vec<usize> {
    let mut taken: Vec<usize> = sizes.iter().map(|size| least.min(*size)).collect();
    while taken.iter().sum::<usize>() < count {
        // Whoever would have the smallest part of its own.
        let fewest = sizes
            .iter()
            .zip(&mut taken)
            .filter(|(size, taken)| **taken < **size)
            .min_by(|a, b| ((*a.1 + 1) * b.0).cmp(&((*b.1 + 1) * a.0)));
        let Some((_, taken)) = fewest else { break };
        *taken += 1;
    }
    taken
}

/// A file with all of these mutants of it, and on which lines each stands. Each function that has
/// some becomes a choice between its copies.
pub fn woven(
    text: &str,
    mutants: &[(u32, &Mutant)],
) -> (String, Vec<(u32, RangeInclusive<usize>)>) {
    let mut functions: Vec<(Range<usize>, Vec<Numbered<'_>>)> = Vec::new();
    let mut sorted = mutants.to_vec();
    // Functions that stand in others are mutated with those.
    sorted.sort_by_key(|(_, one)| (one.function.start, std::cmp::Reverse(one.function.end)));
    for (number, one) in sorted {
        let range = offset(text, one.function.start)..offset(text, one.function.end);
        match functions.last_mut() {
            Some((outer, all)) if range.end <= outer.end => all.push((number, one)),
            _ => functions.push((range, vec![(number, one)])),
        }
    }
    let (mut out, mut lines, mut done) = (String::new(), Vec::new(), 0);
    for (range, all) in functions {
        let whole = part(text, range.clone());
        let at = body(whole);
        let head = part(whole, 0..at).replace("const fn ", "fn ");
        let boxed = head.rsplit_once("-> impl ").map(|(front, what)| {
            let life = if what.contains("+ '") { "" } else { "+ '_ " };
            (format!("{front}-> "), format!("Box<dyn {} {life}>", what.trim()))
        });
        let (open, close) = match &boxed {
            Some((_, kind)) => ("{ Box::new(", format!(") as {kind} }}")),
            None => ("", String::new()),
        };
        out.push_str(part(text, done..range.start));
        match &boxed {
            Some((front, kind)) => out.push_str(&format!("{front}{kind} ")),
            None => out.push_str(&head),
        }
        out.push('{');
        for (number, one) in all {
            let from = offset(text, one.changed.start) - range.start;
            let to = offset(text, one.changed.end) - range.start;
            let (before, after) = (part(whole, at..from), part(whole, to..whole.len()));
            out.push_str(&format!("\nif crate::planted::is({number})\n"));
            let first = line_count(&out);
            let replacement = &one.replacement;
            out.push_str(&format!("{open}{before}{replacement}{after}{close}"));
            lines.push((number, first..=line_count(&out)));
            out.push_str("\nelse");
        }
        out.push_str(&format!("\n{{ {open}{}{close} }}\n}}", part(whole, at..whole.len())));
        done = range.end;
    }
    out.push_str(part(text, done..text.len()));
    (out, lines)
}

fn line_count(text: &str) -> usize {
    text.matches('\n').count() + 1
}

fn part(text: &str, range: Range<usize>) -> &str {
    text.get(range).expect("places of this file")
}

fn offset(text: &str, (line, column): Place) -> usize {
    let start: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let rest = part(text, start..text.len());
    start + rest.char_indices().nth(column - 1).map_or(rest.len(), |(at, _)| at)
}

/// Where the body of a function begins, with its brace.
fn body(function: &str) -> usize {
    let mut start = 0;
    for line in function.split_inclusive('\n') {
        let code = line.trim_start();
        if code.starts_with("//") || code.starts_with("#[") {
            start += line.len();
        } else if let Some(at) = line.find('{') {
            return start + at;
        } else {
            start += line.len();
        }
    }
    panic!("a function without a body: {function}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "/// {\nconst fn a(b: u8) -> bool {\n    b == 1\n}\n\nfn c() -> impl \
                        Iterator<Item = u8> {\n    [1, 2].into_iter()\n}\n";
    const LIST: &str = r#"[
        {"file": "crates/x/src/lib.rs", "name": "3: replace == with !=", "replacement": "!=",
         "function": {"span": {"start": {"line": 2, "column": 1}, "end": {"line": 4, "column": 2}}},
         "span": {"start": {"line": 3, "column": 7}, "end": {"line": 3, "column": 9}}},
        {"file": "crates/x/src/lib.rs", "name": "3: replace a with true", "replacement": "true",
         "function": {"span": {"start": {"line": 1, "column": 1}, "end": {"line": 4, "column": 2}}},
         "span": {"start": {"line": 3, "column": 5}, "end": {"line": 3, "column": 11}}},
        {"file": "crates/x/src/lib.rs", "name": "7: replace c", "replacement": "std::iter::empty()",
         "function": {"span": {"start": {"line": 6, "column": 1}, "end": {"line": 8, "column": 2}}},
         "span": {"start": {"line": 7, "column": 5}, "end": {"line": 7, "column": 23}}},
        {"file": "crates/x/src/lib.rs", "name": "9: no function", "replacement": "0",
         "function": null,
         "span": {"start": {"line": 7, "column": 5}, "end": {"line": 7, "column": 23}}}
    ]"#;

    #[test]
    fn each_mutant_stands_behind_its_switch() {
        let all = listed(LIST);
        let numbered: Vec<(u32, &Mutant)> = (1..).zip(&all).collect();
        let (out, lines) = woven(TEXT, &numbered);
        let expected = "/// {\nfn a(b: u8) -> bool {\nif crate::planted::is(2)\n{\n    true\n}\n\
                        else\nif crate::planted::is(1)\n{\n    b != 1\n}\nelse\n{ {\n    b == 1\n} \
                        }\n}\n\nfn c() -> Box<dyn Iterator<Item = u8> + '_ > {\nif \
                        crate::planted::is(3)\n{ Box::new({\n    std::iter::empty()\n}) as \
                        Box<dyn Iterator<Item = u8> + '_ > }\nelse\n{ { Box::new({\n    \
                        [1, 2].into_iter()\n}) as Box<dyn Iterator<Item = u8> + '_ > } }\n}\n";
        assert_eq!(out, expected);
        assert_eq!(lines, [(2, 4..=6), (1, 9..=11), (3, 20..=22)]);
    }

    #[test]
    fn a_sample_is_the_same_again_and_each_room_has_its_part() {
        let all = listed(LIST);
        let order = |seed| {
            let mut names: Vec<&Mutant> = all.iter().collect();
            names.sort_by_key(|mutant| rank(seed, mutant));
            names
        };
        assert_eq!(order(1), order(1));
        assert!((2..20).any(|seed| order(seed) != order(1)), "the seed counts");
        assert_eq!(shares(&[100, 300, 10], 80, 15), [17, 53, 10]);
        assert_eq!(shares(&[2, 3], 80, 15), [2, 3], "there are no more");
    }
}

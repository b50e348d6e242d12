//! One reader for what the original programs have really printed (`tests/originals`) and for what
//! ours prints with the same options: it finds the same things in both.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::originals;
use crate::rig::{Folder, text};

const IOR: &str = include_str!("../originals/ior-4.0.0.txt");
const IOR_JSON: &str = include_str!("../originals/ior-4.0.0.json");
const IOR_DUMMY: &str = include_str!("../originals/ior-4.0.0-dummy.txt");
const MDTEST: &str = include_str!("../originals/mdtest-4.0.0.txt");
const MDTEST_DUMMY: &str = include_str!("../originals/mdtest-4.0.0-dummy.txt");
const IOZONE: &str = include_str!("../originals/iozone-3.489.txt");

/// The options of a command line that stands in some output behind these words.
fn options(output: &str, behind: &str) -> String {
    let line = output.lines().find_map(|line| line.trim_start().strip_prefix(behind)).unwrap();
    let words = line.trim_start_matches([' ', ':']).split_whitespace().skip(1);
    words.map(|word| word.trim_matches('\'')).collect::<Vec<_>>().join(" ")
}

#[test]
fn ior_is_read_like_the_original() {
    for theirs in [IOR, IOR_DUMMY] {
        let options = options(theirs, "Command line");
        let ours = originals::ior(&Folder::new().works(&format!("-np 2 ior {options}")));
        let theirs = originals::ior(theirs);
        assert_eq!(theirs.rows.len(), 4, "{options}");
        let rows = |out: &originals::IorOutput| -> Vec<(String, [String; 3])> {
            let names = ["block(KiB)", "xfer(KiB)", "iter"];
            let one = |row: &originals::IorRow| {
                (row.access.clone(), names.map(|name| row.values[name].to_string()))
            };
            out.rows.iter().map(one).collect()
        };
        assert_eq!(rows(&ours), rows(&theirs), "{options}");
        for name in theirs.options.keys() {
            assert!(ours.options.contains_key(name), "{options}: ours does not say {name}");
        }
        for name in [
            "api",
            "test filename",
            "access",
            "type",
            "segments",
            "ordering in a file",
            "ordering inter file",
            "task offset",
            "nodes",
            "tasks",
            "clients per node",
            "repetitions",
            "xfersize",
            "blocksize",
            "aggregate filesize",
        ] {
            assert_eq!(ours.options[name], theirs.options[name], "{options}: {name}");
        }
        for (operation, columns) in &theirs.summary {
            let mine = &ours.summary[operation];
            assert!(mine.keys().eq(columns.keys()), "{mine:?} {columns:?}");
            for name in ["#Tasks", "tPN", "reps", "fPP", "reord", "segcnt", "blksiz", "xsize"] {
                assert_eq!(mine[name], columns[name], "{options}: {operation} {name}");
            }
            assert_eq!(mine["aggs(MiB)"], columns["aggs(MiB)"]);
        }
    }
}

/// The names in a document and where they stand; of lists those of all elements.
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

#[test]
fn json_of_ior_has_the_same_names_and_the_same_place_in_a_report() {
    let folder = Folder::new();
    let theirs: Value = IOR_JSON.parse().unwrap();
    let options = theirs["Command line"].as_str().unwrap().trim_start_matches("ior ");
    let output = folder.run(&format!("--quiet -np 2 ior {options}"));
    assert!(output.status.success(), "{output:?}");
    let text = text(&output.stdout);
    let ours: Value = text.parse().unwrap();
    let all = |document: &Value| {
        let mut found = BTreeSet::new();
        names(document, "", &mut found);
        found
    };
    let (mine, original) = (all(&ours), all(&theirs));
    let lacks: Vec<&String> = original.difference(&mine).collect();
    assert!(lacks.is_empty(), "{lacks:?}");

    std::fs::write(folder.0.join("theirs.json"), IOR_JSON).unwrap();
    std::fs::write(folder.0.join("ours.json"), &text).unwrap();
    let read = folder.works("report a=theirs.json b=ours.json -o p.html --json");
    let read: Value = read.parse().unwrap();
    for at in [0, 1] {
        let outcome = |run: usize| &read["runs"][run]["outcomes"][at];
        let (theirs, ours) = (outcome(0), outcome(1));
        let same = ["operation", "unit", "nodes", "ranks", "transfer_bytes", "access"];
        for name in same.into_iter().chain(["bytes_per_rank"]) {
            assert_eq!(theirs[name], ours[name], "{name}");
        }
        assert_eq!(ours["bytes_per_rank"], 8 << 20);
        // What IOR does not say anywhere.
        let known = theirs["aspects"].as_object().unwrap();
        let more = ours["aspects"].as_object().unwrap();
        for (name, words) in known {
            assert_eq!(&more[name], words, "{name}");
        }
        let only_ours: Vec<&String> =
            more.keys().filter(|name| !known.contains_key(*name)).collect();
        assert_eq!(only_ours, if at == 0 { vec![] } else { vec!["dropped"] }, "{more:?}");
    }
}

#[test]
fn mdtest_is_read_like_the_original() {
    for theirs in [MDTEST, MDTEST_DUMMY] {
        let options = options(theirs, "Command line used");
        let ours = originals::mdtest(&Folder::new().works(&format!("-np 2 mdtest {options}")));
        let theirs = originals::mdtest(theirs);
        assert_eq!((theirs.tasks, theirs.nodes), (2, 1), "{options}");
        let facts = |out: &originals::MdtestOutput| (out.tasks, out.nodes, out.iterations);
        assert_eq!(facts(&ours), facts(&theirs), "{options}");
        assert!(ours.rates.keys().eq(theirs.rates.keys()), "{ours:?} {theirs:?}");
        assert!(ours.times.keys().eq(theirs.times.keys()), "{ours:?} {theirs:?}");
        assert!(theirs.rates.len() > 5 && theirs.rates["File stat"][1] > 0.0, "{theirs:?}");
    }
}

#[test]
fn iozone_is_read_like_the_original() {
    let options = options(IOZONE, "Command line used");
    let ours = originals::iozone(&Folder::new().works(&format!("-np 2 iozone {options}")));
    let theirs = originals::iozone(IOZONE);
    let tests = |rows: &[originals::IozoneRow]| -> Vec<(String, usize)> {
        rows.iter().map(|row| (row.test.clone(), row.ranks)).collect()
    };
    assert_eq!(tests(&ours), tests(&theirs));
    assert_eq!(theirs.len(), 6);
    assert!(theirs.iter().all(|row| row.children >= row.parent && row.parent > 0.0), "{theirs:?}");
}

//! One reader for what the original programs have really printed (`tests/originals`) and for what
//! ours prints with the same options: it finds the same things in both.

use serde_json::Value;

use crate::labels;
use crate::originals;
use crate::rig::{Folder, text};

const IOR: &str = include_str!("../originals/ior-4.0.0.txt");
const IOR_JSON: &str = include_str!("../originals/ior-4.0.0.json");
const IOR_DUMMY: &str = include_str!("../originals/ior-4.0.0-dummy.txt");
const MDTEST: &str = include_str!("../originals/mdtest-4.0.0.txt");
const MDTEST_DUMMY: &str = include_str!("../originals/mdtest-4.0.0-dummy.txt");
const IOZONE: &str = include_str!("../originals/iozone-3.489.txt");

/// Other options: what of them stands where.
const IOR_TEXTS: [&str; 5] = [
    IOR,
    IOR_DUMMY,
    include_str!("../originals/ior-4.0.0-random.txt"),
    include_str!("../originals/ior-4.0.0-shared.txt"),
    include_str!("../originals/ior-4.0.0-stonewall.txt"),
];
const IOR_JSONS: [&str; 3] = [
    IOR_JSON,
    include_str!("../originals/ior-4.0.0-reordered.json"),
    include_str!("../originals/ior-4.0.0-stonewall.json"),
];
const IOR_CSV: &str = include_str!("../originals/ior-4.0.0.csv");
const IOR_CSV_OPTIONS: &str =
    "-a POSIX -w -r -F -C -e -t 64k -b 4m -s 2 -i 2 -o f -O summaryFormat=CSV";
const MDTEST_TEXTS: [&str; 6] = [
    MDTEST,
    MDTEST_DUMMY,
    include_str!("../originals/mdtest-4.0.0-dirs.txt"),
    include_str!("../originals/mdtest-4.0.0-files.txt"),
    include_str!("../originals/mdtest-4.0.0-leaves.txt"),
    include_str!("../originals/mdtest-4.0.0-tree.txt"),
];
const IOZONE_TEXTS: [&str; 3] = [
    IOZONE,
    include_str!("../originals/iozone-3.508-operations.txt"),
    include_str!("../originals/iozone-3.508-patterns.txt"),
];

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

#[test]
fn json_of_ior_has_the_same_names_and_the_same_place_in_a_report() {
    let folder = Folder::new();
    let theirs: Value = IOR_JSON.parse().unwrap();
    let options = theirs["Command line"].as_str().unwrap().trim_start_matches("ior ");
    let output = folder.run(&format!("--quiet -np 2 ior {options}"));
    assert!(output.status.success(), "{output:?}");
    let text = text(&output.stdout);
    let ours: Value = text.parse().unwrap();
    let (mine, original) = (labels::json(&ours), labels::json(&theirs));
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

#[test]
fn text_of_ior_has_the_same_labels_in_the_same_order() {
    for theirs in IOR_TEXTS {
        let options = options(theirs, "Command line");
        let ours = Folder::new().works(&format!("-np 2 ior {options}"));
        labels::in_order(&labels::ior(&ours), &labels::ior(theirs), &labels::MORE_OF_IOR, &options);
        let (ours, theirs) = (originals::ior(&ours), originals::ior(theirs));
        assert_eq!(ours.rows.len(), theirs.rows.len(), "{options}");
        assert!(ours.summary.keys().eq(theirs.summary.keys()), "{options}");
    }
}

#[test]
fn json_of_ior_has_the_same_names_with_other_options() {
    for theirs in IOR_JSONS {
        // The original's warnings and words of a stonewall stand between, and are no JSON.
        let said = |line: &&str| {
            ["WARNING: ", "stonewalling ", "Pairs "].iter().any(|one| line.starts_with(one))
        };
        let lines: Vec<&str> = theirs.lines().filter(|line| !said(line)).collect();
        let theirs: Value = lines.join("\n").parse().unwrap();
        let options = theirs["Command line"].as_str().unwrap().trim_start_matches("ior ");
        let output = Folder::new().run(&format!("--quiet -np 2 ior {options}"));
        let ours: Value = text(&output.stdout).parse().unwrap();
        let (mine, original) = (labels::json(&ours), labels::json(&theirs));
        let lacks: Vec<&String> = original.difference(&mine).collect();
        assert!(lacks.is_empty() && original.len() > 60, "{options}: {lacks:?}");
    }
}

#[test]
fn csv_of_ior_has_the_same_columns() {
    let output = Folder::new().run(&format!("--quiet -np 2 ior {IOR_CSV_OPTIONS}"));
    let ours = text(&output.stdout);
    assert_eq!(ours.lines().next(), IOR_CSV.lines().next());
    // What is no measurement is the same, and all have as many decimals.
    let fixed = |line: &str| -> Vec<String> {
        let cells: Vec<&str> = line.split(',').collect();
        [0, 4, 5, 10, 11].map(|at| cells[at].to_owned()).to_vec()
    };
    let decimals = |line: &str| -> Vec<Option<usize>> {
        line.split(',').map(|cell| Some(cell.split_once('.')?.1.len())).collect()
    };
    let of = |text: &str| -> Vec<(Vec<String>, Vec<Option<usize>>)> {
        text.lines().skip(1).map(|line| (fixed(line), decimals(line))).collect()
    };
    assert_eq!(of(&ours), of(IOR_CSV));
    assert_eq!(IOR_CSV.lines().count(), 5);
}

#[test]
fn mdtest_has_the_same_labels_in_the_same_order() {
    for theirs in MDTEST_TEXTS {
        let options = options(theirs, "Command line used");
        let ours = Folder::new().works(&format!("-np 2 mdtest {options}"));
        labels::in_order(&labels::mdtest(&ours), &labels::mdtest(theirs), &[], &options);
        let (ours, theirs) = (originals::mdtest(&ours), originals::mdtest(theirs));
        assert!(ours.rates.keys().eq(theirs.rates.keys()), "{options}: {ours:?}");
        assert!(ours.times.keys().eq(theirs.times.keys()), "{options}: {ours:?}");
        assert!(theirs.rates.len() + theirs.times.len() > 5, "{options}: {theirs:?}");
    }
}

#[test]
fn iozone_has_the_same_lines_in_the_same_order() {
    for theirs in IOZONE_TEXTS {
        let options = options(theirs, "Command line used");
        let ours = Folder::new().works(&format!("-np 2 iozone {options}"));
        labels::in_order(&labels::iozone(&ours), &labels::iozone(theirs), &[], &options);
    }
}

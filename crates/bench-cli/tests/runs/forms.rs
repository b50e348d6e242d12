//! What public parsers of IOR and mdtest rely on beside the tables themselves: where a table
//! ends, what its title is, and that nothing else looks like a row of it.

use crate::mdtest::ALL;
use crate::rig::Folder;

/// The names of mdtest's that lines begin with, behind spaces. Some parsers look for them in all
/// that was printed, and take what follows for numbers.
fn mdtest_rows(text: &str) -> Vec<&'static str> {
    let row = |line: &str| ALL.into_iter().find(|name| line.trim_start().starts_with(name));
    text.lines().filter_map(row).collect()
}

#[test]
fn nothing_stands_between_the_summary_and_the_end() {
    let folder = Folder::new();
    let text = folder.works("-np 2 ior -b 64k -t 16k -i 2 -o f");
    let (_, table) = text.split_once("\nSummary of all tests:\n").unwrap();
    let table: Vec<&str> = table.lines().collect();
    let words = |line: &str| line.split_whitespace().next().unwrap_or_default().to_owned();
    let begin: Vec<String> = table[..4].iter().map(|line| words(line)).collect();
    assert_eq!(begin, ["Operation", "write", "read", "Finished"], "{text}");
    let behind = &table[4..];
    assert!(behind.iter().any(|line| line.contains("SumOfRanks")), "ours stands behind it");
    let like_rows = behind.iter().filter(|line| ["write", "read"].contains(&&*words(line)));
    assert_eq!(like_rows.count(), 0, "{text}");
}

#[test]
fn mdtest_title_is_that_of_the_release() {
    let folder = Folder::new();
    let text = folder.works("-np 2 mdtest -n 10 -i 2 -d x -P");
    assert!(text.contains("\n\nSUMMARY rate: (of 2 iterations)\n   Operation  "), "{text}");
    assert!(text.contains("\nSUMMARY time: (of 2 iterations)\n   Operation  "), "{text}");
    assert!(text.contains("\nmdtest-4.0.0 was launched with 2 total task(s) on 1 node(s)\n"));
    assert!(text.contains("\nNodemap: 11\n"), "both ranks are where the root is: {text}");
}

#[test]
fn each_operation_occurs_once() {
    let folder = Folder::new();
    for more in ["", " -v"] {
        let text = folder.works(&format!("-np 2 mdtest -n 10 -i 2 -d x{more}"));
        let mut found = mdtest_rows(&text);
        found.sort_unstable();
        assert_eq!(found, ALL, "{text}");
        let (_, behind) = text.split_once("-- finished at ").unwrap();
        assert!(behind.contains("SumOfRanks") && behind.contains("Latency"), "ours stand behind");
    }
}

#[test]
fn json_has_what_iors_has() {
    let folder = Folder::new();
    let line = "-np 2 ior -b 64k -t 16k -F -Z -X 5 -v -D 9 -o f -O summaryFormat=JSON";
    let json: serde_json::Value = serde_json::from_str(&folder.works(line)).unwrap();
    let test = &json["tests"][0];
    assert_eq!(json["Version"], "4.1.0");
    for (name, wanted) in [
        ("ordering inter file", "random task offset"),
        ("memoryBuffer", "CPU"),
        ("dataAccess", "CPU"),
        ("GPUDirect", "0"),
    ] {
        assert_eq!(test["Options"][name], wanted, "{name}");
    }
    assert!(test["Options"]["apiVersion"].is_string());
    for (name, wanted) in [
        ("task offset", 1),
        ("reorder random seed", 5),
        ("verbose", 1),
        ("stonewallingTime", 9),
        ("stoneWallingWearOut", 0),
    ] {
        assert_eq!(test["Options"][name], wanted, "{name}");
    }
    let parameters = &test["Parameters"];
    for name in ["maxTimeDuration", "outlierThreshold", "dryRun", "memoryPerTask"] {
        assert_eq!(parameters[name], 0, "{name}");
    }
    for name in ["memoryPerNode", "singleXferAttempt", "dataPacketType", "warningAsErrors"] {
        assert_eq!(parameters[name], 0, "{name}");
    }
    assert!(parameters["platform"].as_str().unwrap().ends_with("(Linux)"), "{parameters}");
    assert_eq!(parameters["options"], "summaryFormat=JSON");
    assert_eq!(parameters["data packet type"], "g");
}

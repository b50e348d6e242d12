//! `iozone` as users run it, and as parsers read it.

use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::originals;
use crate::rig::{Folder, children, runs, text, until};

/// The numbers of IOzone's lines: test, ranks, what children and the parent see.
fn parsed(out: &str) -> Vec<(String, usize, f64, f64)> {
    let rows = originals::iozone(out).into_iter();
    rows.map(|row| (row.test, row.ranks, row.children, row.parent)).collect()
}

const ALL: [&str; 13] = [
    "initial writers",
    "rewriters",
    "readers",
    "re-readers",
    "reverse readers",
    "stride readers",
    "random readers",
    "mixed workload",
    "random writers",
    "pwrite writers",
    "pread readers",
    "fwriters",
    "freaders",
];

#[test]
fn all_tests_run_and_what_is_read_is_what_was_written() {
    let folder = Folder::new();
    for line in [
        "-np 3 iozone -r 64k -s 2m -f x -+d",
        "iozone -r 1k -s 64 -c -e -C -+d",
        "iozone -r 16m -s 32m -+d",
    ] {
        let out = folder.works(line);
        let found = parsed(&out);
        let names: Vec<&str> = found.iter().map(|one| one.0.as_str()).collect();
        assert_eq!(names, ALL, "{line}");
        for (name, _, children, parent) in &found {
            assert!(*parent > 0.0 && *children >= *parent * 0.999, "{name}: {children} {parent}");
        }
        assert!(out.contains("iozone test complete."), "{out}");
        assert_eq!(folder.all(), [""; 0], "{line}");
    }
}

#[test]
fn the_table_has_a_column_for_each_number_of_ranks() {
    let folder = Folder::new();
    let out = folder.works("-np 3 iozone -i 0 -i 1 -i 8 -r 4k,1m -s 1m -t 1,3");
    let tables: Vec<&str> = out.split("Test/Number of Ranks =>").skip(1).collect();
    assert_eq!(tables.len(), 2, "one for each record size: {out}");
    for table in tables {
        let mut lines = table.lines();
        let head: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
        assert_eq!(head, ["1", "3"]);
        let rows: Vec<Vec<&str>> = lines
            .map(|line| line.split_whitespace().collect())
            .take_while(|row: &Vec<&str>| !row.is_empty())
            .collect();
        let names: Vec<&str> = rows.iter().map(|row| row[0]).collect();
        let wanted = ["initial_writers", "rewriters", "readers", "re_readers", "mixed_workload"];
        assert_eq!(names, wanted);
        assert!(
            rows.iter().all(|row| row[1..].iter().all(|rate| rate.parse::<f64>().unwrap() > 0.0))
        );
    }
}

#[test]
fn repetitions_are_summed_up_also_if_there_is_one() {
    let folder = Folder::new();
    let line = "iozone -i 0 -i 1 -r 4k,64k -s 256k -t 1,2";
    let rows = |out: &str| -> Vec<Vec<f64>> {
        let tables: Vec<&str> = out.split("\nRepetitions: ").skip(1).collect();
        assert_eq!(tables.len(), 2, "one for each record size: {out}");
        let rows = |table: &&str| {
            let rows = table.lines().skip(2).take_while(|line| !line.is_empty());
            rows.map(str::to_owned).collect::<Vec<_>>()
        };
        let rows = tables.iter().flat_map(rows);
        // Tests have names of one or two words: what stands behind the 20th column are numbers.
        rows.map(|row| row[20..].split_whitespace().map(|word| word.parse().unwrap()).collect())
            .collect()
    };
    let one = rows(folder.works(&format!("-np 2 {line}")).split("\nLatency").next().unwrap());
    assert_eq!(one.len(), 16, "4 tests, 2 record sizes, 2 numbers of ranks");
    for row in &one {
        let [_, best, median, mean, deviation] = row[..] else { panic!("{row:?}") };
        assert!(best > 0.0 && best == median && best == mean && deviation == 0.0, "{row:?}");
    }
    let json = folder.works(&format!("-np 2 --json {line} --repetitions 3"));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let all = json["repeated"].as_array().unwrap();
    assert_eq!(all.len(), 16);
    for one in all {
        let same = |point: &&serde_json::Value| {
            ["operation", "record_bytes", "tasks"].iter().all(|key| point[key] == one[key])
        };
        let points: Vec<_> = json["summary"].as_array().unwrap().iter().filter(same).collect();
        assert_eq!(points.len(), 3, "{one}");
        for what in ["bandwidth", "iops"] {
            let mut rates: Vec<f64> =
                points.iter().map(|point| point[what].as_f64().unwrap()).collect();
            rates.sort_by(f64::total_cmp);
            let value = |name: &str| one[what][name].as_f64().unwrap();
            assert_eq!((value("min"), value("max")), (rates[0], rates[2]), "{what}: {one}");
            let mean = rates.iter().sum::<f64>() / 3.0;
            assert!((value("median") / rates[1] - 1.0).abs() < 1e-9, "{what}: {one}");
            assert!((value("mean") / mean - 1.0).abs() < 1e-9, "{what}: {one}");
            let square: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
            let deviation = (square / 2.0).sqrt();
            assert!((value("std_dev") - deviation).abs() < 1e-6 * mean, "{what}: {one}");
        }
    }
}

#[test]
fn random_4k_operations_of_files_that_an_earlier_run_has_left() {
    let folder = Folder::new();
    folder.works("-np 2 iozone -i 0 -c -e -w -r 64k --total 4m -+n");
    assert_eq!(folder.all(), ["iozone.DUMMY.0", "iozone.DUMMY.1"]);
    let size = std::fs::metadata(folder.0.join("iozone.DUMMY.1")).unwrap().len();
    assert_eq!(size, 2 << 20, "a half of all");
    let json = folder.works("-np 2 --json iozone -i 2 -w -c -O -r 4k --total 4m -+n -+d");
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    let summary = value["summary"].as_array().unwrap();
    let names: Vec<&str> = summary.iter().map(|one| one["operation"].as_str().unwrap()).collect();
    assert_eq!(names, ["random readers", "random writers"]);
    for one in summary {
        assert_eq!((one["bytes"].as_u64(), one["tasks"].as_u64()), (Some(4 << 20), Some(2)));
        assert_eq!(one["latency"]["count"].as_u64(), Some(1024), "each record once");
        let (iops, bandwidth) = (one["iops"].as_f64().unwrap(), one["bandwidth"].as_f64().unwrap());
        assert!(iops > 0.0 && (bandwidth / iops - 4096.0).abs() < 1e-6);
    }
    let out = folder.works("-np 2 iozone -i 2 -w -c -O -r 4k -s 2m -+n");
    assert!(out.contains("ops/sec") && !out.contains("kB/sec"), "{out}");
    // Somebody else writes into a file.
    let path = folder.0.join("iozone.DUMMY.1");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[5000] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let output = folder.run("-np 2 --quiet iozone -i 1 -w -r 4k -s 2m -+n -+d");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(text(&output.stderr).contains("wrong data in iozone.DUMMY.1 at 5000"), "{output:?}");
    folder.works("-np 2 iozone -i 1 -w -r 4k -s 2m -+n");
    // One word of each 4 KiB is always compared, unless the files are said to be somebody else's.
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[8192] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    for record in ["4k", "64k", "1k"] {
        let output = folder.run(&format!("-np 2 --quiet iozone -i 1 -w -r {record} -s 2m -+n"));
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let found = text(&output.stderr);
        assert!(found.contains("wrong data in iozone.DUMMY.1 at 8192"), "{found}");
    }
    let out = folder.works("-np 2 iozone -r 4k -s 2m -+E");
    let names: Vec<String> = parsed(&out).into_iter().map(|one| one.0).collect();
    let reads = ["readers", "re-readers", "reverse readers", "stride readers", "random readers"];
    assert_eq!(names, [&reads[..], &["pread readers", "freaders"]].concat());
    assert_eq!(folder.all().len(), 2, "they are left");
}

#[test]
fn pwrite_needs_no_files_of_another_test() {
    let folder = Folder::new();
    let out = folder.works("-np 2 iozone -i 9 -i 10 -r 4k -s 64k -+d");
    let names: Vec<String> = parsed(&out).into_iter().map(|one| one.0).collect();
    assert_eq!(names, ["pwrite writers", "pread readers"]);
    assert_eq!(folder.all(), [""; 0]);
}

#[test]
fn files_may_be_named_and_some_ranks_may_rest() {
    let folder = Folder::new();
    folder.works("-np 3 iozone -i 0 -w -t 2 -s 64k -F a b");
    assert_eq!(folder.all(), ["a", "b"]);
    folder.works("iozone --api DUMMY -r 4k -s 1m");
}

#[test]
fn what_goes_wrong_is_said_and_leaves_nothing() {
    let folder = Folder::new();
    let said = folder.fails("-np 2 iozone -i 1 -s 64k", 1);
    assert!(said.contains("open iozone.DUMMY.") && said.contains("No such file"), "{said}");
    for line in
        ["-np 2 iozone -t 3", "iozone -r 32m", "iozone -i 4", "iozone -s 5 -r 4", "iozone -+q"]
    {
        assert!(!folder.fails(line, 2).is_empty(), "{line}");
    }
    // What IOzone has says so, and what there is instead.
    for (line, wanted) in [
        ("iozone -a", "sateen-bench: -a: IOzone has it, iozone here has not: say what is to be"),
        (
            "-np 2 iozone -Rb out.xls",
            "sateen-bench: -R: IOzone has it, iozone here has not: use --json",
        ),
        ("iozone -i 4", "-i 4: IOzone writes one record over and over"),
        ("iozone -i 12", "-i 12: IOzone has pwritev and preadv"),
        ("mdtest -n 1 -R", "sateen-bench: -R: mdtest has it, mdtest here has not"),
        ("ior -f script", "sateen-bench: -f: IOR has it, ior here has not"),
    ] {
        let said = folder.fails(line, 2);
        assert!(said.contains(wanted), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert_eq!(folder.all(), [""; 0]);
}

#[test]
fn a_vanished_rank_ends_the_run_and_leaves_nothing() {
    let folder = Folder::new();
    let mut command = folder.command("-np 3 iozone -i 0 -r 1k -s 64g");
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("the files of all ranks", || folder.all().len() == 3);
    let ranks = children(child.id());
    let pid = Pid::from_raw(ranks[1].try_into().unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("was killed by signal 9"), "{output:?}");
    assert!(ranks.iter().all(|rank| !runs(*rank)), "no rank is left");
    assert_eq!(folder.all(), [""; 0], "no file is left");
}

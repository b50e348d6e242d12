//! IOR runs whose numbers have to fit together, in each form of the report.

use std::process::{Command, Stdio};

use crate::originals;
use crate::rig::{Folder, flags_of, text};

/// Whether two numbers are the same within what two decimals may hide.
fn near(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 0.02 || (a - b).abs() < 0.02
}

#[test]
fn a_shared_file_is_written_and_read_by_all_ranks() {
    let folder = Folder::new();
    let text = folder.works("-np 3 ior -w -r -b 256k -t 64k -s 4 -i 2 -o file -k -e -g");
    let out = originals::ior(&text);
    assert_eq!(out.options["tasks"], "3");
    assert_eq!(out.options["access"], "single-shared-file");
    assert_eq!(out.options["aggregate filesize"], "3 MiB");
    let kinds: Vec<&str> = out.rows.iter().map(|row| row.access.as_str()).collect();
    assert_eq!(kinds, ["write", "read", "write", "read"]);
    for row in &out.rows {
        let value = |name| row.values[name];
        assert_eq!((value("block(KiB)"), value("xfer(KiB)")), (256.0, 64.0));
        let (rate, seconds) = (value("bw(MiB/s)"), value("total(s)"));
        // What two decimals hide of the rate counts for more the longer it takes.
        let in_all = near(rate * seconds, 3.0) || (rate - 3.0 / seconds).abs() < 0.006;
        assert!(in_all, "3 MiB in all: {row:?}");
        assert!(near(value("IOPS") * value("wr/rd(s)"), 48.0), "48 transfers: {row:?}");
        let parts = value("open(s)").max(value("wr/rd(s)")).max(value("close(s)"));
        assert!(parts <= seconds + 1e-6, "{row:?}");
    }
    for (operation, max) in [("write", "Write"), ("read", "Read")] {
        let rates: Vec<f64> = out
            .rows
            .iter()
            .filter(|row| row.access == operation)
            .map(|row| row.values["bw(MiB/s)"])
            .collect();
        let summary = &out.summary[operation];
        let value = |name: &str| summary[name].parse::<f64>().unwrap();
        assert!(near(value("Max(MiB)"), rates[0].max(rates[1])));
        assert!(near(value("Min(MiB)"), rates[0].min(rates[1])));
        assert!(near(value("Mean(MiB)"), (rates[0] + rates[1]) / 2.0));
        assert!(near(out.max[max], value("Max(MiB)")));
        assert_eq!((summary["#Tasks"].as_str(), summary["reps"].as_str()), ("3", "2"));
        assert_eq!((summary["blksiz"].as_str(), summary["xsize"].as_str()), ("262144", "65536"));
        assert_eq!((value("aggs(MiB)"), summary["API"].as_str()), (3.0, "POSIX"));
        assert_eq!(summary["Stonewall(s)"], "NA");
    }
    assert_eq!(folder.all(), ["file"]);
    assert_eq!(std::fs::metadata(folder.0.join("file")).unwrap().len(), 3 << 20);
}

#[test]
fn files_of_their_own_in_several_directories_are_removed_again() {
    let folder = Folder::new();
    for dir in ["a", "b"] {
        std::fs::create_dir(folder.0.join(dir)).unwrap();
    }
    let text = folder.works("-np 3 ior -F -b 64k -t 4k -o a/f@b/f -C -m -i 2 -z");
    assert!(text.contains("WARNING: -C moves by whole nodes, and there is one"), "{text}");
    let out = originals::ior(&text);
    assert_eq!(out.options["access"], "file-per-process");
    assert_eq!(out.options["ordering in a file"], "random");
    assert_eq!(out.rows.len(), 4);
    assert_eq!(folder.all(), ["a", "b"]);
    folder.works("-np 3 ior -F -w -b 64k -t 4k -o a/f@b/f -k -m -i 2");
    let wanted = [
        "a",
        "a/f.00000000.0",
        "a/f.00000000.1",
        "a/f.00000002.0",
        "a/f.00000002.1",
        "b",
        "b/f.00000001.0",
        "b/f.00000001.1",
    ];
    assert_eq!(folder.all(), wanted);
}

#[test]
fn several_names_of_one_file_are_used_in_turn() {
    let folder = Folder::new();
    std::fs::create_dir(folder.0.join("a")).unwrap();
    std::os::unix::fs::symlink("a", folder.0.join("b")).unwrap();
    let line = "-np 2 ior -w -r -R -b 47008 -t 47008 -s 8 -C -k -G 7 -o a/f@b/f";
    let text = folder.works(line);
    let out = originals::ior(&text);
    assert_eq!(out.options["access"], "single-shared-file");
    let found = std::fs::metadata(folder.0.join("a/f")).unwrap();
    assert_eq!(found.len(), 2 * 8 * 47008);
    // Two files are not one.
    let output = folder.run("-np 2 ior -w -b 64k -t 64k -o f@g");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("must be of one file"), "{output:?}");
}

#[test]
fn directories_of_their_own_are_removed_again() {
    let folder = Folder::new();
    let text = folder.works("-np 2 ior -F -u -b 64k -t 64k -o f");
    assert_eq!(originals::ior(&text).rows.len(), 2);
    assert_eq!(folder.all(), [""; 0]);
}

#[test]
fn past_the_cache_the_same_is_read() {
    // Where the file system of temporary files has no O_DIRECT, it says so.
    let folder = Folder::new();
    let output = folder.run("-np 2 ior -B -w -R -b 64k -t 8k -F -o f");
    let refused = text(&output.stderr).contains("Invalid argument");
    assert!(output.status.success() || refused, "{output:?}");
    assert_eq!(folder.all(), [""; 0]);
}

#[test]
fn a_stonewall_ends_writing_and_ranks_end_alike() {
    let folder = Folder::new();
    let line = "-np 2 ior -w -r -F -Y -b 64m -t 4k -s 8192 -D 1 -O stoneWallingWearOut=1 -k -o f";
    let text = folder.works(line);
    let out = originals::ior(&text);
    assert!(text.contains("stonewalling pairs accessed min: "), "{text}");
    assert!(text.contains("WARNING: Expected aggregate file size       = 1099511627776"), "{text}");
    let summary = &out.summary["write"];
    assert!(summary["Stonewall(s)"].parse::<f64>().unwrap() >= 1.0, "{summary:?}");
    let size = |rank| std::fs::metadata(folder.0.join(format!("f.{rank:08}"))).unwrap().len();
    assert_eq!(size(0), size(1), "worn out");
    assert!(size(0) > 0 && size(0) < 8192 * (64 << 20));
}

#[test]
fn ranks_read_what_another_node_has_written() {
    // Nodes as if there were three; the data proves whose it is.
    let folder = Folder::new();
    let nodes = "-O numNodes=3,numTasksOnNode0=1";
    for how in ["-C", "-C -Q 2", "-Z", "-ZZ -X 5"] {
        for own in ["-F", ""] {
            let line = format!("-np 3 ior -w -W -R {how} {own} -b 64k -t 16k -s 2 -o f {nodes}");
            let text = folder.works(&line);
            assert!(!text.contains("WARNING"), "{text}");
            assert_eq!(originals::ior(&text).rows.len(), 2);
        }
    }
    assert_eq!(folder.all(), [""; 0]);
}

#[test]
fn a_run_that_lasts_says_how_far_it_is() {
    let folder = Folder::new();
    let line = "-np 2 ior -w -a DUMMY -b 1024g -t 4k -s 1024 -D 4 -o f";
    let mut said = String::new();
    // Whoever says so may be kept from running until it is over.
    let shown = (0..5).any(|_| {
        said = text(&folder.run(line).stderr);
        said.starts_with("write 1/1: ") && said.contains(" of 2 ranks done, ")
    });
    assert!(shown, "{said:?}");
    let quiet = text(&folder.run(&format!("--quiet {line}")).stderr);
    assert_eq!(crate::rig::beside_warnings(&quiet), "");
}

/// Everything that a terminal is given by the program with these arguments, in a wide window.
fn on_a_terminal(folder: &Folder, line: &str) -> String {
    let program = env!("CARGO_BIN_EXE_sateen-bench");
    let mut script = Command::new("script");
    script.args(["-qec", &format!("stty cols 200; exec {program} {line}"), "/dev/null"]);
    script.current_dir(&folder.0).env("TERM", "xterm").stdin(Stdio::null());
    let output = script.output().unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
    text(&output.stdout)
}

#[test]
fn on_a_terminal_a_bar_shows_how_far_a_run_is() {
    let folder = Folder::new();
    let line = "-np 2 ior -w -a DUMMY -b 1024g -t 4k -s 1024 -D 2 -o f";
    // A bar is drawn over itself: each time its line is cleared, and what ends it clears it too.
    let bars_of = |said: &str| -> Vec<String> {
        let bars = said.split(['\r', '\n']).filter(|part| part.contains(" ["));
        bars.map(str::to_owned).collect()
    };
    let mut said = String::new();
    // Whoever draws it may be kept from running until it is over.
    let drawn = (0..5).any(|_| {
        said = on_a_terminal(&folder, line);
        let bars = bars_of(&said);
        bars.len() >= 3 && bars.iter().any(|bar| bar.contains("[=="))
    });
    let bars = bars_of(&said);
    assert!(drawn, "three bars, and it moves: {said:?}");
    for bar in &bars {
        assert!(bar.contains("write 1/1 [") && bar.contains("] "), "{bar:?}");
        for part in [" %, now ", " MiB/s, mean ", " of 2 ranks done, ", " s left"] {
            assert!(bar.contains(part), "{part}: {bar:?}");
        }
    }
    let (_, after) = said.rsplit_once("ranks done, ").unwrap();
    let cleared = after.find("\u{1b}[2K").unwrap();
    assert!(cleared < after.find("Max Write:").unwrap(), "{after:?}");
    assert!(!said.contains("write 1/1: "), "no lines beside it: {said:?}");
    for silent in ["--quiet", "--json"] {
        let said = on_a_terminal(&folder, &format!("{silent} {line}"));
        assert!(!said.contains("write 1/1") && !said.contains('\u{1b}'), "{silent}: {said:?}");
        assert!(!said.contains("ranks done"), "{silent}: {said:?}");
    }
    assert_eq!(folder.all(), [""; 0]);
}

#[test]
fn what_one_run_has_written_until_its_stonewall_another_reads() {
    let folder = Folder::new();
    let with = "-F -b 64m -t 64k -s 1024 -k -o f -O stoneWallingStatusFile=status";
    folder.works(&format!("-np 2 ior -w {with} -Y -D 1 -O stoneWallingWearOut=1 -G 5"));
    let count: u64 = std::fs::read_to_string(folder.0.join("status")).unwrap().parse().unwrap();
    let text = folder.works(&format!("-np 2 ior -R {with} -G 5"));
    let mib: f64 = originals::ior(&text).summary["read"]["aggs(MiB)"].parse().unwrap();
    assert!(near(mib, (2 * count) as f64 / 16.0), "{count}: {text}");
}

#[test]
fn json_and_csv_say_what_the_text_says() {
    let folder = Folder::new();
    let json = folder.works("-np 2 ior -b 64k -t 16k -o f -O summaryFormat=JSON");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let results = json["tests"][0]["Results"].as_array().unwrap();
    assert_eq!(results[0]["access"], "write");
    assert_eq!(results[1]["access"], "read");
    assert_eq!(results[2]["access"], "remove");
    assert_eq!((&results[0]["blockKiB"], &results[0]["xferKiB"]), (&64.0.into(), &16.0.into()));
    let value = |name: &str| results[0][name].as_f64().unwrap();
    assert!(near(value("bwMiB") * value("totalTime"), 0.125));
    assert_eq!(json["tests"][0]["Parameters"]["transferSize"], 16384);
    assert_eq!(json["tests"][0]["Options"]["tasks"], 2);
    assert_eq!(json["summary"][0]["operation"], "write");
    assert_eq!(json["summary"][0]["numTasks"], 2);
    assert_eq!(json["summary"][1]["latency"]["count"], 8);
    let also = folder.works("ior -b 64k -t 16k -o f --json");
    assert!(serde_json::from_str::<serde_json::Value>(&also).is_ok());

    let csv = folder.works("-np 2 ior -b 64k -t 16k -o f -O summaryFormat=CSV");
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0][..4], ["access", "bw(MiB/s)", "IOPS", "Latency"]);
    assert!(lines.iter().all(|line| line.len() == 12), "{csv}");
    assert_eq!((lines[1][0], lines[1][10], lines[2][0]), ("write", "2", "read"));
    folder.works("ior -b 64k -t 16k -o f -O summaryFormat=CSV,summaryFile=out.csv");
    let kept = std::fs::read_to_string(folder.0.join("out.csv")).unwrap();
    assert_eq!(kept.lines().count(), 3);
}

#[test]
fn the_engine_alone_needs_no_files() {
    let folder = Folder::new();
    let text = folder.works("-np 2 ior -a DUMMY -b 64m -t 4k");
    assert_eq!(originals::ior(&text).rows.len(), 2);
    assert_eq!(folder.all(), [""; 0]);
}

#[test]
fn files_of_mpi_need_ranks_of_mpi() {
    let folder = Folder::new();
    std::fs::write(folder.0.join("c.ini"), "[ior-hard]\nAPI = MPIIO\n").unwrap();
    for line in ["ior -a MPIIO", "-np 2 ior -O api=mpiio,preallocate=1 -w", "-np 2 io500 c.ini"] {
        let said = folder.fails(line, 2);
        assert!(said.contains("its feature mpi and start it under mpirun or srun"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    for line in ["mdtest -a MPIIO -n 1", "iozone --api MPIIO"] {
        let said = folder.fails(line, 2);
        assert!(said.contains("MPIIO: only ior measures files of MPI"), "{said}");
    }
    for line in ["ior -p", "ior --mpiio.useFileView", "ior -O showHints=1", "ior -U c.ini"] {
        let said = folder.fails(line, 2);
        assert!(said.contains("they are options of -a MPIIO"), "{said}");
    }
    assert_eq!(folder.all(), ["c.ini"]);
}

#[test]
fn past_the_cache_is_with_o_direct() {
    let folder = Folder::new();
    let line = "ior -w -b 64k -t 64k -O minTimeDuration=600 -o f";
    let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap().unsigned_abs();
    assert_eq!(flags_of(&folder, line, "f") & direct, 0);
    assert_eq!(flags_of(&folder, &format!("{line} -B"), "f") & direct, direct);
    let iozone = "iozone -i 0 -r 4k -s 64m --repetitions 100000 -f z";
    assert_eq!(flags_of(&folder, iozone, "z.DUMMY.0") & direct, 0);
    assert_eq!(flags_of(&folder, &format!("{iozone} -I"), "z.DUMMY.0") & direct, direct);
}

#[test]
fn a_file_that_is_there_is_removed_or_used() {
    use std::os::unix::fs::MetadataExt;
    let folder = Folder::new();
    let line = "ior -w -b 64k -t 64k -o f -k";
    let file = |name: &str| folder.0.join(name);
    std::fs::write(file("f"), "before").unwrap();
    // What has another name is not gone with the file's.
    std::fs::hard_link(file("f"), file("other")).unwrap();
    folder.works(&format!("{line} -E"));
    let (found, other) = (file("f").metadata().unwrap(), file("other").metadata().unwrap());
    assert_eq!((found.ino(), other.len()), (other.ino(), 64 << 10), "the same file was written");
    folder.works(line);
    let other = file("other").metadata().unwrap();
    assert_ne!(file("f").metadata().unwrap().ino(), other.ino(), "another file");
    assert_eq!(other.nlink(), 1);
}

#[test]
fn one_line_of_options_does_for_writing_and_reading() {
    let folder = Folder::new();
    let with = "-e -u -b 64k -t 64k -o f -k";
    let wrote = folder.works(&format!("-np 2 ior -w {with}"));
    assert!(!wrote.contains("WARNING: -e") && wrote.contains("WARNING: -u: without"), "{wrote}");
    let read = folder.works(&format!("-np 2 ior -r {with}"));
    assert!(read.contains("WARNING: -e, -Y: nothing is written (-w)"), "{read}");
    assert_eq!(originals::ior(&read).rows.len(), 1);
    assert_eq!(folder.all(), ["f"], "-u without -F makes no directories");
}

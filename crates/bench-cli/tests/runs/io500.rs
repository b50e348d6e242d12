//! `io500` as users run it: whole runs, single phases, broken runs, and its files as parsers
//! written for the original read them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::rig::{Folder, children, runs, text, until};

const PHASES: [&str; 14] = [
    "ior-easy-write",
    "mdtest-easy-write",
    "timestamp",
    "ior-hard-write",
    "mdtest-hard-write",
    "find",
    "ior-easy-read",
    "mdtest-easy-stat",
    "ior-hard-read",
    "mdtest-hard-stat",
    "mdtest-easy-delete",
    "mdtest-hard-read",
    "mdtest-hard-delete",
    "ior-rnd4K-easy-read",
];

/// A small run: its work is done long before the stonewall.
pub(crate) const SMALL: &str = "[global]\ndatadir = data\nresultdir = results\n[debug]\nstonewall-time = 250\n\
                     [ior-easy]\nblockSize = 4m\ntransferSize = 1m\n[ior-hard]\nsegmentCount = 50\n\
                     [mdtest-easy]\nn = 300\n[mdtest-hard]\nn = 300\n";

fn folder(config: &str) -> Folder {
    let folder = Folder::new();
    fs::write(folder.0.join("c.ini"), config).unwrap();
    folder
}

/// The file of the last run.
fn result(folder: &Folder, name: &str) -> String {
    let mut runs: Vec<_> = fs::read_dir(folder.0.join("results"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    runs.sort();
    fs::read_to_string(runs.last().unwrap().join(name)).unwrap()
}

/// Lines of a summary: phase to score, unit, seconds, and whether it is valid.
fn summary(text: &str) -> Vec<(String, f64, String, f64, bool)> {
    let mut found = Vec::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("[RESULT]").or(line.strip_prefix("[      ]")) else {
            continue;
        };
        assert_eq!(&rest[..1], " ", "{line}");
        let words: Vec<&str> = rest.split_whitespace().collect();
        assert_eq!((words[3], words[4], words[6]), (":", "time", "seconds"), "{line}");
        let number = |text: &str| text.parse::<f64>().unwrap();
        let valid = !line.ends_with(" [INVALID]");
        let unit = words[2].to_owned();
        found.push((words[0].to_owned(), number(words[1]), unit, number(words[5]), valid));
    }
    found
}

/// An ini file as others read it: section to names to values.
fn ini(text: &str) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    let mut section = String::new();
    for line in text.lines().filter(|line| !line.starts_with([';', '#']) && !line.is_empty()) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.to_owned();
            all.insert(section.clone(), BTreeMap::new());
        } else {
            let (name, value) = line.split_once('=').unwrap();
            let values: &mut BTreeMap<_, _> = all.get_mut(&section).unwrap();
            values.insert(name.trim().to_owned(), value.trim().to_owned());
        }
    }
    all
}

fn names(folder: &Folder, dir: &str) -> Vec<String> {
    folder.all().into_iter().filter(|name| name.starts_with(dir)).collect()
}

#[test]
fn a_whole_run_is_scored_and_leaves_its_results_alone() {
    let folder = folder(SMALL);
    let out = folder.works("-np 2 io500 c.ini");
    let lines = summary(&out);
    assert_eq!(lines, summary(&result(&folder, "result_summary.txt")));
    let order: Vec<&str> = lines.iter().map(|line| line.0.as_str()).collect();
    assert_eq!(order, PHASES);
    for (name, score, unit, _, valid) in &lines {
        assert_eq!(*score > 0.0, name != "timestamp", "{name}");
        assert_eq!(unit, if name.starts_with("ior") { "GiB/s" } else { "kIOPS" }, "{name}");
        assert_eq!(*valid, !name.ends_with("-write"), "{name} was shorter than the rules say");
    }
    let mean = |unit: &str| {
        let scores = lines.iter().filter(|line| line.2 == unit && line.1 > 0.0);
        let scores: Vec<f64> =
            scores.filter(|line| line.0 != "ior-rnd4K-easy-read").map(|line| line.1).collect();
        scores.iter().map(|score| score.ln()).sum::<f64>() / scores.len() as f64
    };
    let total = ((mean("GiB/s") + mean("kIOPS")) / 2.0).exp();
    let said = out.lines().find(|line| line.starts_with("[SCORE ] Bandwidth ")).unwrap();
    let words: Vec<&str> = said.split_whitespace().collect();
    let found: f64 =
        words[words.iter().position(|word| *word == "TOTAL").unwrap() + 1].parse().unwrap();
    assert!((found / total - 1.0).abs() < 1e-3, "{found} {total}");
    assert!(said.ends_with(" [INVALID]"), "{said}");
    assert!(out.contains("ERROR INVALID stonewall-time is 250 s, the rules want 300 s"), "{out}");
    assert!(out.contains("ERROR INVALID it wrote for "), "{out}");

    let details = ini(&result(&folder, "result.txt"));
    assert_eq!(details["run"]["procs"], "2");
    assert!(
        details["ior-easy-write"]["exe"].starts_with("./ior --dataPacketType=timestamp -C -Q 1")
    );
    assert!(details["SCORE"]["SCORE"].starts_with(&format!("{found:.6}")));
    // By two ranks 300 files each, twice; the files of ior: two and one. No directories.
    assert_eq!(details["find"]["total-files"], (4 * 300 + 3).to_string());
    let fit = (0..300).filter(|number| number.to_string().contains("01")).count() * 2;
    assert_eq!(details["find"]["found"], fit.to_string());
    assert!(result(&folder, "ior-easy-write.txt").contains("Max Write:"));
    assert!(result(&folder, "mdtest-hard-delete.txt").contains("File removal"));
    assert_eq!(names(&folder, "data"), ["data"], "files are gone");
    let json: serde_json::Value = serde_json::from_str(&result(&folder, "result.json")).unwrap();
    assert_eq!(json["summary"].as_array().unwrap().len(), 14);
    assert_eq!((json["valid"].as_bool(), json["tasks"].as_u64()), (Some(false), Some(2)));
    for one in json["summary"].as_array().unwrap() {
        phase_is_told(one);
    }
}

/// What of a phase by two ranks stands beside its score, in the same unit.
fn phase_is_told(one: &serde_json::Value) {
    let phase = one["operation"].as_str().unwrap();
    let engine = phase.starts_with("ior") || phase.starts_with("mdtest");
    let numbers = |of: &serde_json::Value| -> Vec<f64> {
        of.as_array().into_iter().flatten().map(|one| one.as_f64().unwrap()).collect()
    };
    let ranks = numbers(&one["ranks"]);
    assert_eq!(ranks.len(), if engine { 2 } else { 0 }, "{one}");
    assert_eq!(one.get("latency").is_some(), engine, "{one}");
    assert_eq!(one.get("series").is_some(), phase != "timestamp", "{one}");
    if phase == "timestamp" {
        return;
    }
    // What was done by some moment over that time: all of it, and so the rate, which the end of
    // the phase may be later than.
    let score = one["score"].as_f64().unwrap();
    let (until, rates) = (numbers(&one["series"]["seconds"]), numbers(&one["series"]["rates"]));
    assert!(!until.is_empty() && until.len() == rates.len(), "{one}");
    assert!(until.windows(2).all(|two| two[0] < two[1]), "{one}");
    let begins = std::iter::once(0.0).chain(until.iter().copied());
    let done: f64 =
        begins.zip(&until).zip(&rates).map(|((begin, end), rate)| rate * (end - begin)).sum();
    if !engine {
        let wanted = (4 * 300 + 3) as f64 / 1e3;
        assert!((done / wanted - 1.0).abs() < 1e-6, "{phase}: {done}");
        return;
    }
    let sum = one["sum_of_ranks"].as_f64().unwrap();
    assert!((ranks.iter().sum::<f64>() / sum - 1.0).abs() < 1e-9, "{one}");
    // Each rank's own time is no longer than that of all.
    assert!(sum >= score * 0.999, "{one}");
    let (count, wanted) = match phase {
        "ior-easy-write" | "ior-easy-read" => (8, 8.0 / 1024.0),
        "ior-hard-write" | "ior-hard-read" => (100, 100.0 * 47008.0 / f64::from(1 << 30)),
        "ior-rnd4K-easy-read" => (2048, 8.0 / 1024.0),
        _ => (600, 0.6),
    };
    assert_eq!(one["latency"]["count"], count, "{one}");
    assert!((done / wanted - 1.0).abs() < 1e-6, "{phase}: {done}, not {wanted}");
    let quantile = |name: &str| one["latency"][name].as_f64().unwrap();
    assert!(quantile("p50_us") > 0.0 && quantile("p50_us") <= quantile("p99_us"), "{one}");
    assert!(quantile("p99_us") <= quantile("max_us"), "{one}");
    let skew = |name: &str| one[name].as_f64().unwrap();
    assert!(skew("start_skew") >= 0.0 && skew("end_skew") >= 0.0, "{one}");
}

#[test]
fn lines_of_published_results_run_and_write_what_ranks_have_measured() {
    let folder = Folder::new();
    for dir in ["ior-easy", "mdtest-easy", "r"] {
        fs::create_dir(folder.0.join(dir)).unwrap();
    }
    let easy = "--dataPacketType=timestamp -C -Q 1 -g -G 1747863423 -k -e -o ior-easy/ior_file_easy \
                -O stoneWallingStatusFile=r/ior-easy.stonewall -t 64k -b 1m -F";
    let write = "-w -D 300 -O stoneWallingWearOut=1 -O \
                 saveRankPerformanceDetailsCSV=r/ior-easy-write.csv -a POSIX";
    let read = "-r -R -O saveRankPerformanceDetailsCSV=r/ior-easy-read.csv -a POSIX";
    for (kind, line) in [("write", write), ("read", read)] {
        folder.works(&format!("-np 2 ior {easy} {line}"));
        let csv = fs::read_to_string(folder.0.join(format!("r/ior-easy-{kind}.csv"))).unwrap();
        let mut lines = csv.lines();
        assert_eq!(
            lines.next().unwrap(),
            "access,rank,runtime-with-openclose,runtime,throughput-withopenclose,throughput"
        );
        for rank in 0..2 {
            let row: Vec<&str> = lines.next().unwrap().split(',').collect();
            assert_eq!((row[0], row[1]), (kind, rank.to_string().as_str()), "{csv}");
            let [whole, moving, slow, fast] =
                [2, 3, 4, 5].map(|at| row[at].parse::<f64>().unwrap());
            assert!(whole >= moving && moving > 0.0, "{csv}");
            for bytes in [whole * slow, moving * fast] {
                assert!((bytes / f64::from(1 << 20) - 1.0).abs() < 1e-6, "{csv}");
            }
        }
        assert_eq!(lines.next(), None, "{csv}");
    }
    let easy = "--dataPacketType=timestamp -n 200 -u -L -F -P -G 1747863423 -N 1 -d mdtest-easy -x \
                r/mdtest-easy.stonewall";
    let file = |kind: &str| format!("--saveRankPerformanceDetails=r/mdtest-easy-{kind}.csv");
    for (kind, how, column) in
        [("write", "-C -Y -W 300", 12), ("stat", "-T", 14), ("delete", "-r", 18)]
    {
        folder.works(&format!("-np 2 mdtest {easy} {how} {} -a POSIX", file(kind)));
        let csv = fs::read_to_string(folder.0.join(format!("r/mdtest-easy-{kind}.csv"))).unwrap();
        let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!((rows.len(), rows[0].len()), (4, 24), "{csv}");
        let names = ["rank", "items", "rate-Directory creation", "time-Directory creation"];
        assert_eq!(rows[0][..4], names);
        let title = ["File creation", "File stat", "File read", "File removal"][(column - 12) / 2];
        assert_eq!(rows[0][column], format!("rate-{title}"));
        for (row, (name, count)) in
            rows[1..].iter().zip([("all", 400.0), ("0", 200.0), ("1", 200.0)])
        {
            assert_eq!((row[0], row[1]), (name, if name == "all" { "200" } else { "" }), "{csv}");
            assert_eq!(row.len(), if name == "all" { 24 } else { 20 }, "{csv}");
            let value = |at: usize| row[at].parse::<f64>().unwrap();
            assert!((value(column) * value(column + 1) / count - 1.0).abs() < 1e-6, "{csv}");
            assert!(row[2..column].iter().all(|value| value.is_empty()), "{csv}");
        }
    }
    let said = folder.fails("ior -O saveRankPerformanceDetailsCSV=no/where.csv -o f", 1);
    assert!(said.contains("create no/where.csv"), "{said}");
}

#[test]
fn a_result_can_be_verified() {
    let folder = folder(SMALL);
    let json = folder.works("--json io500 c.ini --timestamp T");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["result_dir"], "results/T");
    let hash = folder.works("io500 c.ini --config-hash");
    let details = ini(&result(&folder, "result.txt"));
    assert_eq!(hash, format!("config-hash     = {}\n", details["run"]["config-hash"]));
    let said = folder.fails("io500 c.ini --verify results/T/result.txt", 1);
    assert!(said.contains("[OK] But this is an invalid run!"), "{said}");
    let path = folder.0.join("results/T/result.txt");
    let changed =
        fs::read_to_string(&path).unwrap().replace("SCORE           = ", "SCORE           = 9");
    fs::write(&path, changed).unwrap();
    let said = folder.fails("io500 c.ini --verify results/T/result.txt", 1);
    assert!(said.contains("the hash of the scores is"), "{said}");
    fs::write(folder.0.join("d.ini"), format!("{SMALL}[find]\nnproc = 1\n")).unwrap();
    let said = folder.fails("io500 d.ini --verify results/T/result.txt", 1);
    assert!(said.contains("the hash of the configuration is"), "{said}");
    // What was written down of the configuration says the same.
    let again = folder.works("io500 results/T/config.ini --config-hash");
    assert_eq!(again, hash);
}

#[test]
fn single_phases_can_be_run() {
    let folder = folder(SMALL);
    let out = folder.works("-np 2 io500 c.ini --phase ior-hard-write,ior-hard-read");
    for (name, score, ..) in summary(&out) {
        assert_eq!(score > 0.0, name.starts_with("ior-hard"), "{name}");
    }
    assert_eq!(names(&folder, "data"), ["data"]);
    fs::write(folder.0.join("c.ini"), format!("{SMALL}run = 0\n[mdtest-easy-stat]\nrun = FALSE\n"))
        .unwrap();
    let out = folder.works("io500 c.ini");
    for (name, score, ..) in summary(&out) {
        let not =
            name.starts_with("mdtest-hard") || name == "mdtest-easy-stat" || name == "timestamp";
        assert_eq!(score == 0.0, not, "{name}");
    }
    assert!(out.contains("ERROR INVALID find has found nothing"), "{out}");
}

#[test]
fn what_would_be_run_is_shown_and_all_options_are_listed() {
    let folder = folder(SMALL);
    let out = folder.works("-np 2 io500 c.ini --dry-run --timestamp T");
    assert!(out.contains("ERROR INVALID dry run"), "{out}");
    let details = ini(&fs::read_to_string(folder.0.join("results/T/result.txt")).unwrap());
    assert!(details["mdtest-hard-read"]["exe"].ends_with("-E -X -a POSIX"));
    assert_eq!(names(&folder, "data"), [""; 0]);
    // Not over what a run has measured, nor beside one that broke.
    let again = folder.fails("io500 c.ini --dry-run --timestamp T", 2);
    assert!(again.contains("holds the results"), "{again}");
    folder.fails("io500 c.ini --dry-run --resume", 2);
    folder.fails("io500 c.ini --cleanup --timestamp ..", 2);
    let listed = folder.works("io500 --list");
    assert!(listed.starts_with("# Supported and current values of the ini file:\n[global]\n# "));
    fs::write(folder.0.join("all.ini"), &listed).unwrap();
    fs::write(folder.0.join("empty.ini"), "").unwrap();
    let hash = |file: &str| folder.works(&format!("io500 {file} --config-hash"));
    assert_eq!(hash("all.ini"), hash("empty.ini"));
    assert!(!folder.works("io500 --list-mandatory").contains("mdworkbench"));
}

/// A run that waits before a phase.
fn waiting(folder: &Folder, phase: &str, more: &str) -> Child {
    fs::create_dir(folder.0.join("pause")).unwrap();
    fs::write(folder.0.join("pause").join(phase), "").unwrap();
    let line = format!("-np 2 --quiet io500 c.ini --timestamp T {more}");
    let child =
        folder.command(&line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let section = format!("[{phase}]\n");
    until("the pause", || {
        fs::read_to_string(folder.0.join("results/T/result.txt"))
            .unwrap_or_default()
            .contains(&section)
    });
    child
}

fn break_off(folder: &Folder, phase: &str) {
    let child = waiting(folder, phase, "");
    kill_process(Pid::from_raw(child.id().try_into().unwrap()).unwrap(), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("with --timestamp T and --resume it goes on"), "{said}");
    assert!(names(folder, "data/T").len() > 5, "its files are there");
    fs::remove_dir_all(folder.0.join("pause")).unwrap();
}

const PAUSING: &str = "[debug]\npause-dir = pause\n";

#[test]
fn a_broken_run_goes_on() {
    for phase in ["mdtest-hard-write", "ior-easy-read", "mdtest-hard-delete"] {
        let folder = folder(&format!("{SMALL}{PAUSING}"));
        break_off(&folder, phase);
        let before = summary(&result(&folder, "result_summary.txt"));
        assert_eq!(before.len(), PHASES.iter().position(|name| *name == phase).unwrap());
        let said = folder.fails("-np 3 io500 c.ini --resume", 2);
        assert!(said.contains("the broken run had 2 ranks"), "{said}");
        let out = folder.run("-np 2 --quiet io500 c.ini --resume");
        assert!(out.status.success(), "{phase}: {out:?}");
        let after = summary(&text(&out.stdout));
        let order: Vec<&str> = after.iter().map(|line| line.0.as_str()).collect();
        assert_eq!(order, PHASES);
        assert_eq!(after[..before.len()], before, "what was done stays as it was measured");
        assert_eq!(after, summary(&result(&folder, "result_summary.txt")));
        // Half a removal cannot be done again.
        let (_, score, .., valid) = &after[before.len()];
        let lost = phase.ends_with("delete");
        assert!(lost == (*score == 0.0) && !(lost && *valid), "{after:?}");
        let details = result(&folder, "result.txt");
        assert_eq!(details.matches(&format!("[{phase}]")).count(), 1, "{details}");
        assert!(details.contains("INVALID the run broke"), "{details}");
        let said = folder.fails("io500 c.ini --verify results/T/result.txt", 1);
        assert!(said.contains("[OK] But this is an invalid run!"), "{said}");
        assert_eq!(names(&folder, "data"), ["data"]);
        folder.fails("-np 2 io500 c.ini --resume", 2);
    }
}

#[test]
fn a_vanished_rank_ends_a_run_that_can_go_on() {
    let folder = folder(&format!("{SMALL}{PAUSING}"));
    let child = waiting(&folder, "find", "");
    let ranks = children(child.id());
    assert_eq!(ranks.len(), 2);
    kill_process(Pid::from_raw(ranks[1].try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = text(&output.stderr);
    assert!(said.contains("was killed by signal 9; the other ranks were ended"), "{said}");
    assert!(ranks.iter().all(|rank| !runs(*rank)), "no rank is left");
    fs::remove_dir_all(folder.0.join("pause")).unwrap();
    folder.works("-np 2 io500 c.ini --resume");
    assert_eq!(names(&folder, "data"), ["data"]);
}

#[test]
fn what_a_broken_run_has_left_is_cleaned_up() {
    let folder = folder(&format!("{SMALL}{PAUSING}"));
    break_off(&folder, "find");
    folder.works("-np 2 io500 c.ini --cleanup");
    assert_eq!(names(&folder, "data"), ["data"]);
    assert!(result(&folder, "result.txt").contains("[find]"), "what it measured stays");
    let said = folder.fails("io500 c.ini --cleanup", 2);
    assert!(said.contains("no broken run has left files in data"), "{said}");
}

#[test]
fn directories_that_somebody_has_prepared_are_used_as_they_are() {
    let folder = folder(&format!("{SMALL}{PAUSING}"));
    let families = ["ior-easy", "ior-hard", "mdtest-easy", "mdtest-hard"];
    // A directory that was made anew would have another mode, as it would have no striping.
    let prepare = || {
        for family in families {
            let dir = folder.0.join("data/T").join(family);
            fs::create_dir_all(&dir).unwrap();
            fs::set_permissions(&dir, PermissionsExt::from_mode(0o2751)).unwrap();
        }
    };
    let are_as_prepared = || {
        for family in families {
            let mode = fs::metadata(folder.0.join("data/T").join(family)).unwrap().mode();
            assert_eq!(mode & 0o7777, 0o2751, "{family}");
        }
    };
    prepare();
    let child = waiting(&folder, "ior-easy-read", "");
    are_as_prepared();
    assert!(names(&folder, "data/T").len() > 600, "files are in them");
    fs::remove_dir_all(folder.0.join("pause")).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    // As in IO500 they are gone with the run's files.
    assert_eq!(names(&folder, "data"), ["data"]);

    // One that breaks while it writes begins again in the same directory.
    prepare();
    fs::remove_dir_all(folder.0.join("results")).unwrap();
    break_off(&folder, "mdtest-hard-write");
    are_as_prepared();
    let child = waiting(&folder, "ior-easy-read", "--resume");
    are_as_prepared();
    fs::remove_dir_all(folder.0.join("pause")).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");

    // Where there is a file, it is somebody's.
    prepare();
    fs::write(folder.0.join("data/T/mdtest-easy/mine"), "").unwrap();
    let said = folder.fails("-np 2 io500 c.ini --timestamp T", 2);
    assert!(said.contains("data/T holds the files of a run"), "{said}");
    assert!(folder.0.join("data/T/mdtest-easy/mine").exists());
}

#[test]
fn wrong_data_makes_a_run_invalid() {
    let folder = folder(&format!("{SMALL}{PAUSING}"));
    let child = waiting(&folder, "ior-easy-read", "");
    let path = folder.0.join("data/T/ior-easy/ior_file_easy.00000001");
    let mut bytes = fs::read(&path).unwrap();
    bytes[70_000] ^= 1;
    fs::write(&path, bytes).unwrap();
    fs::remove_dir_all(folder.0.join("pause")).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let out = text(&output.stdout);
    assert!(out.contains("ERROR INVALID 1 transfers held other data than was written"), "{out}");
    let line = summary(&out).into_iter().find(|line| line.0 == "ior-easy-read").unwrap();
    assert!(!line.4, "{line:?}");
}

#[test]
fn another_program_may_find() {
    let config = format!("{SMALL}[find]\nexternal-script = ./find.sh\nexternal-extra-args = -x\n");
    let folder = folder(&config);
    // It is no rank: neither the ranks' memory nor the rank's number is there.
    let script = "#!/bin/sh\n[ \"$1\" = -x ] || exit 1\n[ -z \"$SATEEN_BENCH_RANK\" ] || exit 2\n\
                  [ \"$(readlink /proc/self/fd/0)\" = /dev/null ] || exit 3\n\
                  echo some\necho MATCHED 5/1000\n";
    let path = folder.0.join("find.sh");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    folder.works("-np 2 io500 c.ini");
    let details = ini(&result(&folder, "result.txt"));
    assert_eq!(
        (details["find"]["found"].as_str(), details["find"]["total-files"].as_str()),
        ("5", "1000")
    );
    fs::write(&path, "#!/bin/sh\nexit 4\n").unwrap();
    let out = folder.works("io500 c.ini --phase find,mdtest-hard-write");
    assert!(out.contains("ERROR INVALID ./find.sh: exit status: 4"), "{out}");
    // What cannot be started is refused before anything is written.
    fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    let script = "[find]: external-script: ./find.sh is no program that runs here";
    for _ in 0..2 {
        let said = folder.fails("-np 2 io500 c.ini --timestamp T", 2);
        assert!(said.contains(script), "{said}");
        // The second time it is not even there.
        let _ = fs::remove_file(&path);
    }
    assert!(!folder.0.join("results/T").exists());
    folder.works("io500 c.ini --phase mdtest-hard-write");
    fs::write(folder.0.join("c.ini"), config.replace("./find.sh", "true")).unwrap();
    folder.works("io500 c.ini --phase find");
}

#[test]
fn find_says_how_far_it_is() {
    let config = format!("{SMALL}[find]\nexternal-script = ./find.sh\n");
    let folder = folder(&config);
    let path = folder.0.join("find.sh");
    // It goes on until that is said.
    let script = "#!/bin/sh\nleft=600\n\
                  until grep -q 'find 1/1: for ' said || [ $((left -= 1)) = 0 ]; do sleep 0.1; done\n\
                  echo MATCHED 5/1000\n";
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    let said = folder.0.join("said");
    let mut command = folder.command("io500 c.ini --phase find");
    let output = command.stderr(fs::File::create(&said).unwrap()).output().unwrap();
    let said = fs::read_to_string(&said).unwrap();
    assert!(said.contains("find 1/1: for "), "{output:?}: {said}");
}

#[test]
fn a_phase_uses_what_an_earlier_run_has_left() {
    let folder = folder(SMALL);
    let all = "ior-easy-write,ior-hard-write,mdtest-easy-write,mdtest-hard-write";
    let out = folder.works(&format!("-np 2 io500 c.ini --keep --timestamp A --phase {all}"));
    assert!(out.contains("--files-of A uses them"), "{out}");
    let kept = fs::read_to_string(folder.0.join("results/A/result.txt")).unwrap();
    let files = names(&folder, "data/A").len();
    assert!(files > 1200, "its files are there");
    let reads = "ior-easy-read,ior-hard-read,ior-rnd4K-easy-read,mdtest-easy-stat,\
                 mdtest-hard-read,find";
    let line = format!("-np 2 io500 c.ini --files-of A --timestamp B --phase {reads}");
    let out = folder.works(&line);
    for (name, score, ..) in summary(&out) {
        assert_eq!(score > 0.0, reads.split(',').any(|one| one == name), "{name}");
    }
    let details = ini(&fs::read_to_string(folder.0.join("results/B/result.txt")).unwrap());
    assert_eq!(
        (details["run"]["files-of"].as_str(), details["find"]["found"].as_str()),
        ("A", "4")
    );
    assert_eq!(fs::read_to_string(folder.0.join("results/A/result.txt")).unwrap(), kept);
    assert_eq!(names(&folder, "data/A").len(), files, "they are another run's");
    for (more, why) in [
        ("--phase ior-easy-write", "[ior-easy-write]: the run A has written its files already"),
        ("--phase timestamp", "[timestamp]: the run A has its timestamp already"),
        ("--timestamp A --phase find", "results would be written over"),
    ] {
        let said = folder.fails(&format!("-np 2 io500 c.ini --files-of A {more}"), 2);
        assert!(said.contains(why), "{said}");
    }
    let said = folder.fails("-np 3 io500 c.ini --files-of A --phase ior-easy-read", 2);
    assert!(said.contains("--files-of A: that run had 2 ranks"), "{said}");
    fs::write(folder.0.join("d.ini"), SMALL.replace("transferSize = 1m", "transferSize = 2m"))
        .unwrap();
    let said = folder.fails("-np 2 io500 d.ini --files-of A --phase ior-easy-read", 2);
    assert!(said.contains("that run had [ior-easy] transferSize = 1m"), "{said}");
    // Nor is it taken for a run that broke, nor written over.
    for line in ["--cleanup", "--resume"] {
        let said = folder.fails(&format!("-np 2 io500 c.ini {line}"), 2);
        assert!(said.contains("no broken run has left files in data"), "{said}");
    }
    let said = folder.fails("-np 2 io500 c.ini --timestamp A --phase mdtest-easy-write", 2);
    assert!(said.contains("data/A holds the files of a run"), "{said}");
    fs::write(folder.0.join("d.ini"), format!("{SMALL}[global]\ntimestamp-resultdir = FALSE\n"))
        .unwrap();
    let said = folder.fails("-np 2 io500 d.ini --files-of A --phase ior-easy-read", 2);
    assert!(said.contains("results would be written over"), "{said}");
    assert_eq!(names(&folder, "data/A").len(), files);
    // What a phase has removed is not there for another.
    folder.works("-np 2 io500 c.ini --files-of A --phase mdtest-easy-delete");
    let said = folder.fails("-np 2 io500 c.ini --files-of A --phase mdtest-easy-stat", 2);
    assert!(said.contains("the run A has left no files of mdtest-easy"), "{said}");
    let said = folder.fails("-np 2 io500 c.ini --files-of no --phase mdtest-easy-stat", 2);
    assert!(said.contains("--files-of no: results/no holds no results"), "{said}");
    folder.works("-np 2 io500 c.ini --cleanup --timestamp A");
    assert_eq!(names(&folder, "data"), ["data"]);
}

#[test]
fn a_phase_without_files_is_refused_before_anything_is_done() {
    let folder = folder(SMALL);
    for line in [
        "-np 2 io500 c.ini --phase ior-easy-read",
        "io500 c.ini --phase mdtest-hard-delete,ior-hard-write",
    ] {
        let said = folder.fails(line, 2);
        assert!(said.contains("]: it needs the files of "), "{said}");
    }
    folder.fails("io500 c.ini --keep --cleanup", 2);
    assert_eq!(folder.all(), ["c.ini"]);
    // find has its timestamp whatever else is run.
    let out = folder.works("io500 c.ini --phase mdtest-hard-write,find");
    let find = summary(&out).into_iter().find(|one| one.0 == "find").unwrap();
    assert!(find.1 > 0.0, "{out}");
}

#[test]
fn data_is_of_the_kind_that_the_configuration_says() {
    let folder = folder(&format!("{SMALL}[global]\ndataPacketType = random\n"));
    folder.works("io500 c.ini --keep --timestamp A --phase mdtest-hard-write");
    let find = |name: &String| name.ends_with("file.mdtest.0.7");
    let file = folder.all().into_iter().find(find).unwrap();
    let data = fs::read(folder.0.join(file)).unwrap();
    let high = data.chunks_exact(8).map(|word| u32::from_le_bytes(word[4..].try_into().unwrap()));
    assert!(high.collect::<std::collections::BTreeSet<_>>().len() > 400, "no rank in each word");
    let hard = "--phase mdtest-hard-read,mdtest-hard-delete";
    let out = folder.works(&format!("io500 c.ini --files-of A --timestamp B {hard}"));
    assert!(!out.contains("other data"), "{out}");
    fs::write(folder.0.join("c.ini"), "[global]\ndataPacketType = x\n").unwrap();
    assert!(folder.fails("io500 c.ini", 2).contains("invalid value 'x'"));
}

#[test]
fn a_wrong_configuration_is_refused_before_anything_is_done() {
    let folder = Folder::new();
    for (config, why) in [
        ("[nothing]\n", "c.ini:1: there is no section nothing"),
        ("[ior-easy]\nblockSize = 3m\n", "[ior-easy-write]: -b: the block size must be"),
        ("[ior-easy]\ntransferSize = x\n", "[ior-easy-write]: invalid value 'x'"),
        ("[global]\napi = DFS\n", "invalid value 'DFS'"),
        ("[global]\nio-buffers-on-gpu = 1\n", "io-buffers-on-gpu"),
        ("[debug]\nstonewall-time = 0\n", "stonewall-time"),
        ("[mdtest-easy]\nn = 0\n", "[mdtest-easy-write]: -n"),
    ] {
        fs::write(folder.0.join("c.ini"), config).unwrap();
        for line in ["io500 c.ini", "-np 2 io500 c.ini"] {
            let said = folder.fails(line, 2);
            assert!(said.contains(why), "{config}: {said}");
        }
    }
    fs::write(folder.0.join("c.ini"), "").unwrap();
    for (line, code) in [
        ("io500", 2),
        ("io500 c.ini --mode=extended", 2),
        ("io500 c.ini --phase x", 2),
        ("io500 c.ini --resume --cleanup", 2),
        ("io500 c.ini --timestamp a/b", 2),
        ("io500 c.ini --resume", 2),
        ("io500 no.ini", 1),
        ("io500 no.ini --verify x", 1),
    ] {
        assert!(!folder.fails(line, code).is_empty(), "{line}");
    }
    assert_eq!(folder.all(), ["c.ini"]);
}

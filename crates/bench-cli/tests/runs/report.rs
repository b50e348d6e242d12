//! Reports of real runs: a page, CSV and JSON; and what is no run is refused in words.

use serde_json::{Value, json};

use crate::rig::{Folder, text};

/// Runs with this line; its JSON in a file.
fn measured(folder: &Folder, name: &str, line: &str) {
    let output = folder.run(&format!("--quiet --json {line}"));
    assert!(output.status.success(), "{line}: {output:?}");
    std::fs::write(folder.0.join(name), output.stdout).unwrap();
}

fn read(folder: &Folder, name: &str) -> String {
    std::fs::read_to_string(folder.0.join(name)).unwrap()
}

#[test]
fn runs_become_a_page_and_tables() {
    let folder = Folder::new();
    for ranks in [1, 3] {
        let line = format!("-np {ranks} ior -w -r -F -b 64k -t 16k -i 2 -o f");
        measured(&folder, &format!("ior{ranks}.json"), &line);
    }
    measured(&folder, "md.json", "-np 2 mdtest -F -n 20 -i 2 -d x");
    // Whoever takes the samples may be kept from running until it is over.
    let sampled = (0..5).any(|_| {
        measured(&folder, "long.json", "-np 2 ior -w -a DUMMY -b 1024g -t 4k -s 1024 -D 4 -o f");
        let long: Value = serde_json::from_str(&read(&folder, "long.json")).unwrap();
        let rates = &long["tests"][0]["Results"][0]["seriesMiB"]["rates"];
        rates.as_array().is_some_and(|rates| rates.len() > 3)
    });
    assert!(sampled, "{}", read(&folder, "long.json"));
    let line = "report one=ior1.json one=ior3.json md.json long.json -o all.html --csv csv --json";
    let json: Value = serde_json::from_str(&folder.works(line)).unwrap();
    let page = read(&folder, "all.html");
    for wanted in [
        "Bandwidth over processes",
        "Metadata rates (ops/s)",
        "Spread over ranks",
        "Rates over time",
        "W-SHORT",
        "one (ior3.json)",
    ] {
        assert!(page.contains(wanted), "{wanted}: {page}");
    }
    assert!(page.contains("write, file-per-process (MiB/s, best repetition)"), "{page}");
    let runs = json["runs"].as_array().unwrap();
    assert_eq!(
        (runs.len(), &runs[0]["label"], &runs[2]["program"]),
        (4, &"one".into(), &"mdtest".into())
    );
    let ior: Value = serde_json::from_str(&read(&folder, "ior3.json")).unwrap();
    let row = &runs[1]["outcomes"][0];
    assert_eq!(row["repetitions"][0]["rate"], ior["tests"][0]["Results"][0]["bwMiB"]);
    assert_eq!(row["repetitions"][0]["ranks"].as_array().unwrap().len(), 3);
    assert_eq!(
        runs[1]["warnings"].as_array().unwrap().len(),
        ior["pitfalls"].as_array().unwrap().len()
    );
    assert!(runs[3]["outcomes"][0]["repetitions"][0]["series"].as_array().unwrap().len() > 3);
    let results = read(&folder, "csv/results.csv");
    // Of ior twice write and read, of mdtest four operations, each of two repetitions; one more.
    assert_eq!(results.lines().count(), 1 + 2 * (2 + 2 + 4) + 1, "{results}");
    assert!(read(&folder, "csv/warnings.csv").contains("W-REPEATS"));
    assert!(read(&folder, "csv/series.csv").lines().count() > 4);
}

#[test]
fn a_report_does_not_overwrite_its_runs() {
    let folder = Folder::new();
    let at = |name: &str| folder.0.join(name);
    measured(&folder, "run.json", "-np 2 ior -w -a DUMMY -b 64k -t 16k -o f");
    measured(&folder, "other.json", "-np 2 ior -w -a DUMMY -b 32k -t 16k -o f");
    std::fs::create_dir(at("csv")).unwrap();
    std::fs::hard_link(at("run.json"), at("hard")).unwrap();
    std::fs::hard_link(at("run.json"), at("csv/warnings.csv")).unwrap();
    std::os::unix::fs::symlink("run.json", at("soft")).unwrap();
    std::fs::hard_link(at("run.json"), at("report.html")).unwrap();
    let (before, all) = (read(&folder, "run.json"), folder.all());
    for line in [
        "report run.json -o run.json",
        "report other.json me=run.json -o csv/../run.json",
        "report run.json -o hard",
        "report run.json -o soft",
        "report soft -o hard",
        "report run.json",
        "report run.json --csv csv",
        "report run.json --csv csv -o page.html --json",
    ] {
        let said = folder.fails(line, 2);
        assert!(said.contains("run.json") || said.contains("soft"), "{line}: {said}");
        assert!(said.contains("would be overwritten") && said.contains("-o"), "{line}: {said}");
        assert_eq!((read(&folder, "run.json"), folder.all()), (before.clone(), all.clone()));
    }
    // The shell has it open already.
    let end = std::fs::OpenOptions::new().append(true).open(at("hard")).unwrap();
    let output = folder.command("report run.json --json").stdout(end).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(text(&output.stderr).contains("standard output is the same file"), "{output:?}");
    assert_eq!(read(&folder, "run.json"), before);
    folder.works("report run.json other.json -o page.html --csv new");
    folder.works("report run.json other.json -o page.html --csv new");
}

#[test]
fn what_every_workload_writes_is_read() {
    let folder = Folder::new();
    measured(&folder, "zone.json", "-np 3 iozone -i 0 -i 1 -r 4k,1m -s 1m -t 1,3");
    std::fs::write(folder.0.join("c.ini"), crate::io500::SMALL).unwrap();
    folder.works("-np 2 io500 c.ini --timestamp T");
    let line = "report zone.json a=results/T/result.json b=results/T/result.txt -o p.html --json";
    let json: Value = serde_json::from_str(&folder.works(line)).unwrap();
    let programs: Vec<&Value> = (0..3).map(|run| &json["runs"][run]["program"]).collect();
    assert_eq!(programs, ["iozone", "io500", "io500"]);
    let best = |run: usize, operation: &str| {
        let all = json["runs"][run]["outcomes"].as_array().unwrap();
        let found = all.iter().find(|one| one["operation"] == operation);
        found.unwrap_or_else(|| panic!("{all:?}"))["repetitions"][0]["rate"].as_f64().unwrap()
    };
    let of = |run: usize, operation: &str| {
        let all = json["runs"][run]["outcomes"].as_array().unwrap();
        all.iter().find(|one| one["operation"] == operation).unwrap().clone()
    };
    for phase in ["ior-hard-read", "mdtest-easy-delete"] {
        let (told, bare) = (of(1, phase), of(2, phase));
        let measured = &told["repetitions"][0];
        assert_eq!(measured["ranks"].as_array().unwrap().len(), 2, "{told}");
        assert!(measured["sum_of_ranks"].as_f64().is_some(), "{told}");
        assert!(!measured["series"].as_array().unwrap().is_empty(), "{told}");
        assert!(told["latency"]["p99_us"].as_f64().unwrap() > 0.0, "{told}");
        // The original's file has nowhere to say it.
        assert!(bare["latency"].is_null() && bare["repetitions"][0]["ranks"] == json!([]));
    }
    for operation in ["ior-easy-write", "mdtest-hard-stat", "find", "SCORE of all"] {
        let (json, text) = (best(1, operation), best(2, operation));
        assert!((json / text - 1.0).abs() < 0.01 && json > 0.0, "{operation}: {json} {text}");
    }
    let warnings = json["runs"][1]["warnings"].as_array().unwrap();
    for run in [1, 2] {
        assert_eq!(json["runs"][run]["outcomes"][0]["nodes"], 1, "both say so");
    }
    let invalid = |one: &Value| one["message"].as_str().unwrap().contains("INVALID");
    assert!(warnings.iter().any(invalid), "{warnings:?}");
    let page = read(&folder, "p.html");
    for wanted in ["Bandwidth of access patterns over", "IO500 (kIOPS)", "IO500 (GiB/s)"] {
        assert!(page.contains(wanted), "{wanted}");
    }
    // Of the one run that says it, in both units; and each rank can be pointed at.
    let (_, whole) = page.split_once("results/T/result.json").unwrap();
    assert!(whole.matches(">Spread over ranks<").count() >= 2, "{page}");
    for point in ["ior-hard-read, rank 1: ", "mdtest-easy-delete, rank 0: "] {
        assert_eq!(page.matches(point).count(), 1, "{point}");
    }
}

#[test]
fn different_measurements_of_one_folder_are_no_repetitions_of_each_other() {
    let folder = Folder::new();
    measured(&folder, "plain.json", "ior -w -F -b 64k -t 16k -o f");
    measured(&folder, "random.json", "ior -w -F -b 64k -t 16k -o f -z");
    let plain = read(&folder, "plain.json");
    // Not every folder takes O_DIRECT, and not every build has MPI-IO.
    for (name, old, new) in [
        ("direct.json", "\"posix.odirect\": false", "\"posix.odirect\": true"),
        ("mpiio.json", "\"api\": \"POSIX\"", "\"api\": \"MPIIO\""),
    ] {
        let other = plain.replace(old, new);
        assert_ne!(other, plain, "{old}");
        std::fs::write(folder.0.join(name), other).unwrap();
    }
    let files = "plain.json random.json direct.json mpiio.json plain.json";
    folder.works(&format!("report {files} -o ior.html"));
    let page = read(&folder, "ior.html");
    for (name, count) in [
        ("POSIX, page cache, sequential", 2),
        ("POSIX, page cache, random", 1),
        ("POSIX, O_DIRECT, sequential", 1),
        ("MPIIO, sequential", 1),
    ] {
        let bars = page.matches(&format!(">{name}<title>")).count();
        assert_eq!(bars, count, "{name}: {page}");
    }
    let titles = "MPIIO, sequential, 16 KiB|POSIX, O_DIRECT, sequential, 16 KiB|\
                  POSIX, page cache, random, 16 KiB|POSIX, page cache, sequential, 16 KiB";
    for title in titles.split('|') {
        assert_eq!(page.matches(&format!(">{title}</th>")).count(), 1, "{title}: {page}");
    }
    assert!(!page.contains("no fsync"), "nothing differs there");

    for (name, line) in [("0", ""), ("4k", "-w 4k"), ("own", "-u"), ("again", "")] {
        measured(&folder, &format!("{name}.json"), &format!("mdtest -F -n 5 {line} -d x"));
    }
    folder.works("report 0.json 4k.json own.json again.json -o md.html");
    let page = read(&folder, "md.html");
    for name in [
        "File creation, shared directory, empty files (ops/s)",
        "File creation, shared directory, files of 4 KiB (ops/s)",
        "File creation, directory of its own, empty files (ops/s)",
    ] {
        assert_eq!(page.matches(&format!(">{name}</th>")).count(), 1, "{name}: {page}");
    }
    folder.works("report 0.json again.json -o same.html");
    let page = read(&folder, "same.html");
    assert!(
        page.contains(">File creation (ops/s)</th>") && !page.contains("empty files"),
        "{page}"
    );
}

#[test]
fn operations_of_iozone_are_shown_as_such_where_they_were_asked_for() {
    let folder = Folder::new();
    let line = "iozone -i 0 -i 2 -r 4k -s 64k -w -f z";
    measured(&folder, "ops.json", &format!("{line} -O"));
    measured(&folder, "bytes.json", line);
    let json: Value = folder.works("report ops.json bytes.json -o p.html --json").parse().unwrap();
    let wrote: Value = read(&folder, "ops.json").parse().unwrap();
    let (ops, bytes) = (&json["runs"][0]["outcomes"][0], &json["runs"][1]["outcomes"][0]);
    assert_eq!((ops["unit"].as_str(), bytes["unit"].as_str()), (Some("ops/s"), Some("MiB/s")));
    let near =
        |a: &Value, b: &Value| (a.as_f64().unwrap() / b.as_f64().unwrap() - 1.0).abs() < 1e-9;
    let first = &wrote["summary"][0];
    assert!(near(&ops["repetitions"][0]["rate"], &first["iops"]), "{ops} {first}");
    let (own, shown) = (&first["ranks"][0], &ops["repetitions"][0]["ranks"][0]);
    assert!((own.as_f64().unwrap() / 4096.0 / shown.as_f64().unwrap() - 1.0).abs() < 1e-9);
    let page = read(&folder, "p.html");
    assert!(page.contains("Operations of access patterns (ops/s)"), "{page}");
}

#[test]
fn two_file_systems_need_no_names() {
    let folder = Folder::new();
    for name in ["a", "b"] {
        std::fs::create_dir(folder.0.join(name)).unwrap();
        measured(&folder, &format!("{name}.json"), &format!("ior -w -b 64k -t 16k -o {name}/f"));
    }
    let json: Value =
        serde_json::from_str(&folder.works("report a.json b.json -o p.html --json")).unwrap();
    let label = |run: usize| json["runs"][run]["label"].as_str().unwrap().to_owned();
    assert_ne!(label(0), label(1), "{json}");
    assert!(label(0).ends_with('a') && label(1).ends_with('b'), "{json}");
}

#[test]
fn without_a_word_the_page_has_a_name() {
    let folder = Folder::new();
    measured(&folder, "ior.json", "ior -w -b 64k -t 16k -o f");
    assert_eq!(folder.works("report ior.json"), "report.html\n");
    assert!(read(&folder, "report.html").starts_with("<!DOCTYPE html>"));
    assert_eq!(folder.all(), ["ior.json", "report.html"]);
}

#[test]
fn names_of_files_are_no_markup() {
    let folder = Folder::new();
    measured(&folder, "ior.json", "ior -w -b 64k -t 16k -o <img>f");
    folder.works("report <script>=ior.json -o page.html");
    let page = read(&folder, "page.html");
    assert!(!page.contains("<img") && !page.contains("<script"), "{page}");
    assert!(page.contains("&lt;img") && page.contains("&lt;script&gt;"), "{page}");
}

#[test]
fn what_is_no_run_is_refused_and_nothing_is_written() {
    let folder = Folder::new();
    measured(&folder, "good.json", "ior -w -b 64k -t 16k -o f");
    let half = read(&folder, "good.json");
    let later = half.replace("\"format\": 1", "\"format\": 2");
    assert_ne!(later, half);
    for (content, why) in [
        ("", "it is empty"),
        ("\u{0}\u{1}garbage", "it is no JSON"),
        ("{}", "neither sateen-bench nor IOR has written it"),
        (&half[..half.len() / 2], "it is no JSON"),
        (later.as_str(), "its format is 2, and this program reads 1"),
        (
            "{\"sateenBench\":{\"format\":1,\"program\":\"ior\"},\"Version\":\"4\"}",
            "it is not whole",
        ),
    ] {
        std::fs::write(folder.0.join("bad.json"), content).unwrap();
        let said = folder.fails("report good.json bad.json -o page.html", 2);
        assert!(said.contains("bad.json: ") && said.contains(why), "{said}");
    }
    assert!(folder.fails("report nothing.json", 2).contains("nothing.json: No such file"));
    assert!(folder.fails("report .", 2).contains("directory"));
    assert!(folder.fails("report", 2).contains("RUN"));
    assert!(folder.fails("report good.json -o no/where.html", 1).contains("no/where.html"));
    assert_eq!(folder.all(), ["bad.json", "good.json"]);
    let help = text(&folder.run("report --help").stdout);
    assert!(help.contains("--csv") && help.contains("Runs of one NAME belong together"), "{help}");
}

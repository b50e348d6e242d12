//! mdtest runs whose numbers have to fit together.

use crate::originals;
use crate::rig::Folder;

pub(crate) const ALL: [&str; 10] = [
    "Directory creation",
    "Directory removal",
    "Directory rename",
    "Directory stat",
    "File creation",
    "File read",
    "File removal",
    "File stat",
    "Tree creation",
    "Tree removal",
];

#[test]
fn all_phases_run_and_leave_nothing() {
    let folder = Folder::new();
    let text = folder.works("-np 3 mdtest -n 40 -i 3 -w 100 -e 100 -X -d here -P");
    let out = originals::mdtest(&text);
    assert_eq!((out.tasks, out.nodes, out.iterations), (3, 1, 3));
    assert_eq!(out.rates.keys().map(String::as_str).collect::<Vec<_>>(), ALL);
    assert_eq!(out.times.keys().map(String::as_str).collect::<Vec<_>>(), ALL);
    assert!(text.contains("3 tasks, 120 files/directories\n"), "{text}");
    for (name, [max, min, mean, deviation]) in &out.rates {
        assert!(max >= mean && mean >= min && *min > 0.0, "{name}");
        assert!(*deviation >= 0.0 && *deviation <= max - min + 0.01, "{name}");
        let count = if name.starts_with("Tree") { 1.0 } else { 120.0 };
        let [longest, shortest, ..] = out.times[name];
        // Rates and times have three decimals.
        assert!(count / (max + 0.0006) <= shortest + 0.0006, "{name}: {max} {shortest}");
        assert!(count / (min - 0.0006) >= longest - 0.0006, "{name}: {min} {longest}");
    }
    assert_eq!(folder.all(), [""; 0]);
}

#[test]
fn trees_have_the_directories_and_items_that_mdtest_makes() {
    let folder = Folder::new();
    folder.works("-np 2 mdtest -C -F -I 2 -z 1 -b 2 -u -d .");
    let mut wanted = vec!["test-dir.0-0".to_owned()];
    for rank in 0..2 {
        let base = format!("test-dir.0-0/mdtest_tree.{rank}.0");
        wanted.push(base.clone());
        for (dir, below) in [
            (0, String::new()),
            (1, format!("/mdtest_tree.{rank}.1")),
            (2, format!("/mdtest_tree.{rank}.2")),
        ] {
            if dir > 0 {
                wanted.push(format!("{base}{below}"));
            }
            for item in [2 * dir, 2 * dir + 1] {
                wanted.push(format!("{base}{below}/file.mdtest.{rank}.{item}"));
            }
        }
    }
    wanted.sort();
    assert_eq!(folder.all(), wanted);
    let text = folder.works("-np 2 mdtest -T -F -I 2 -z 1 -b 2 -u -d .");
    let out = originals::mdtest(&text);
    assert!(out.rates["File stat"][0] > 0.0);
    assert_eq!(out.rates["File creation"], [0.0; 4], "not run");
    folder.works("-np 2 mdtest -r -F -I 2 -z 1 -b 2 -u -d .");
    assert_eq!(folder.all(), [""; 0]);
}

#[test]
fn other_ranks_items_are_found_with_a_stride() {
    for options in ["-n 10", "-n 10 -u", "-I 3 -z 2 -b 2 -L -u", "-n 6 -I 3 -z 1 -b 2", "-n 7 -S"] {
        let folder = Folder::new();
        let check = if options.contains("-S") { "" } else { "-X" };
        let line = format!("-np 3 mdtest {options} -N 1 -w 3901 -e 3901 {check} -d x -i 2");
        let text = folder.works(&line);
        assert!(text.contains("Shifting ranks by 1 for each phase."), "{text}");
        assert_eq!(folder.all(), [""; 0], "{options}");
    }
}

#[test]
fn files_of_all_are_removed_by_one_at_the_rate_of_one() {
    let folder = Folder::new();
    let json = folder.works("-np 3 mdtest -S -n 500 -i 2 -d x --json");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    for (name, count) in [("File creation", 1500.0), ("File removal", 500.0)] {
        let rows = json["summary"].as_array().unwrap();
        let row = rows.iter().find(|row| row["operation"] == name).unwrap();
        for at in 0..2 {
            let value = |what: &str| row[what][at].as_f64().unwrap();
            let found = value("rates") * value("seconds");
            assert!((found / count - 1.0).abs() < 1e-9, "{name}: {found} of {count}: {row}");
        }
    }
    let text = folder.works("-np 3 mdtest -S -n 500 -d x");
    assert!(originals::mdtest(&text).rates["File removal"][1] > 0.0, "{text}");
    assert_eq!(folder.all(), [""; 0]);
}

#[test]
fn the_directories_of_all_trees_are_counted() {
    let folder = Folder::new();
    // Four trees of three directories each.
    let json = folder.works("-np 2 mdtest -n 12 -I 3 -z 1 -b 2 -d x --json");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    for name in ["Tree creation", "Tree removal"] {
        let rows = json["summary"].as_array().unwrap();
        let row = rows.iter().find(|row| row["operation"] == name).unwrap();
        let value = |what: &str| row[what][0].as_f64().unwrap();
        let found = value("rates") * value("seconds");
        assert!((found / 12.0 - 1.0).abs() < 1e-9, "{name}: {found}: {row}");
    }
}

#[test]
fn ranks_may_have_directories_of_their_own() {
    let folder = Folder::new();
    folder.works("-np 3 mdtest -n 4 -u -C -d a@b");
    let all = folder.all();
    assert!(all.contains(&"a/test-dir.0-0/mdtest_tree.2.0/file.mdtest.2.3".to_owned()), "{all:?}");
    assert!(all.contains(&"b/test-dir.0-0/mdtest_tree.1.0/dir.mdtest.1.0".to_owned()), "{all:?}");
    folder.works("-np 3 mdtest -n 4 -u -r -d a@b");
    assert_eq!(folder.all(), ["a", "b"], "what was there before stays");
}

#[test]
fn a_stonewall_ends_creation_and_a_later_run_knows_where() {
    let folder = Folder::new();
    let text = folder.works("-np 2 mdtest -F -C -n 10000000 -W 1 -x status -d x");
    assert!(text.contains("Continue stonewall hit min: "), "{text}");
    let count: usize = std::fs::read_to_string(folder.0.join("status")).unwrap().parse().unwrap();
    let files = folder.all().iter().filter(|path| path.contains("file.mdtest.")).count();
    assert_eq!(files, 2 * count, "all ranks have made as many as the fastest");
    folder.works("-np 2 mdtest -F -T -r -n 10000000 -x status -d x");
    assert_eq!(folder.all(), ["status", "x"]);
}

#[test]
fn json_says_what_the_text_says() {
    let folder = Folder::new();
    let json = folder.works("-np 2 mdtest -n 20 -i 2 -d x --json");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["tasks"], &json["items_per_task"]), (&2.into(), &20.into()));
    let rows = json["summary"].as_array().unwrap();
    assert_eq!(rows.len(), ALL.len());
    let create = rows.iter().find(|row| row["operation"] == "File creation").unwrap();
    assert_eq!(create["rates"].as_array().unwrap().len(), 2);
    assert_eq!(create["latency"]["count"], 80);
}

#[test]
fn rates_or_times_or_both_are_said() {
    let folder = Folder::new();
    let said = |option: &str| {
        let text = folder.works(&format!("mdtest -F -n 20 -d x {option}"));
        let out = originals::mdtest(&text);
        (out.rates.contains_key("File creation"), out.times.contains_key("File creation"))
    };
    assert_eq!([said(""), said("-Z"), said("-P")], [(true, false), (false, true), (true, true)]);
}

#[test]
fn before_directories_and_before_files_it_waits_if_that_is_asked_for() {
    let folder = Folder::new();
    for (what, pauses) in [("-F", 1), ("", 2)] {
        let began = std::time::Instant::now();
        folder.works(&format!("-np 2 mdtest {what} -n 1 -i 2 -p 1 -d x"));
        let took = began.elapsed().as_secs();
        assert!(took >= 2 * pauses, "{what}: {took} s, with {pauses} pauses in each iteration");
    }
}

#[test]
fn the_engine_alone_needs_no_files() {
    let folder = Folder::new();
    let text = folder.works("-np 2 mdtest -a DUMMY -n 10000 -d x");
    assert_eq!(originals::mdtest(&text).rates.len(), ALL.len());
    assert_eq!(folder.all(), [""; 0]);
}

#[test]
fn a_single_directory_is_not_renamed() {
    let folder = Folder::new();
    let out = originals::mdtest(&folder.works("-np 2 mdtest -n 1 -d x -P"));
    assert_eq!(out.rates["Directory rename"], [0.0; 4]);
    assert_eq!(out.times["Directory rename"], [0.0; 4]);
    assert!(out.rates["Directory creation"][0] > 0.0);
    let out = originals::mdtest(&folder.works("-np 2 mdtest -n 2 -d x"));
    assert!(out.rates["Directory rename"][0] > 0.0);
}

#[test]
fn each_iteration_is_said_if_asked_for() {
    let folder = Folder::new();
    let line = "mdtest -F -n 10 -i 2 -d x";
    let text = folder.works(&format!("{line} -v"));
    let said = text.split("\n\nSUMMARY").next().unwrap();
    let head = "V-1: Rank   0 Line     0 ";
    let wanted = format!("\n{head}main: * iteration 2 *\n{head}   File creation     : ");
    assert!(said.contains(&wanted), "{text}");
    assert_eq!(said.matches(" ops/sec").count(), 2 * 6, "{text}");
    originals::mdtest(&text);
    assert!(!folder.works(line).contains("iteration 2"));
}

//! Scripts, which nothing compiles: they parse, say what they are for, can be started, and
//! refuse what makes no sense before they do anything; and `make help` knows what `make` can do.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use sateen_xtask::{Source, repository, sources};

fn scripts() -> Vec<Source> {
    let all = sources(&[".sh", "run"]);
    assert!(all.len() > 8, "scripts were found");
    all
}

fn run(program: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).envs(environment.iter().copied()).current_dir(repository());
    command.output().unwrap_or_else(|error| panic!("{program}: {error}"))
}

#[test]
fn scripts_parse_and_can_be_started() {
    let mut broken = Vec::new();
    for script in scripts() {
        let path = &script.path;
        let mut lines = script.text.lines();
        let first = lines.next().unwrap_or_default();
        let interpreter = first.strip_prefix("#!");
        // What has none is sourced, and begins with what it is for.
        let purpose = if interpreter.is_some() { lines.next().unwrap_or_default() } else { first };
        if !purpose.starts_with("# ") {
            broken.push(format!("{path}: it does not begin with what it is for"));
        }
        let mode = repository().join(path).metadata().unwrap().permissions().mode();
        if interpreter.is_some() && mode & 0o111 == 0 {
            broken.push(format!("{path}: it cannot be executed"));
        }
        let shell = if interpreter == Some("/bin/sh") { "sh" } else { "bash" };
        let parsed = run(shell, &["-n", path], &[]);
        if !parsed.status.success() {
            broken.push(String::from_utf8_lossy(&parsed.stderr).into_owned());
        }
        if interpreter.is_some() && !script.text.contains("\nset -e") {
            broken.push(format!("{path}: it goes on after a failure"));
        }
    }
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
}

#[test]
fn make_knows_what_it_says() {
    let makefile = std::fs::read_to_string(repository().join("Makefile")).unwrap();
    let phony = makefile.lines().find_map(|line| line.strip_prefix(".PHONY: ")).unwrap();
    let targets: BTreeSet<&str> = phony.split(' ').filter(|target| *target != "help").collect();
    let rule = |target: &&str| makefile.contains(&format!("\n{target}:\n"));
    assert!(targets.iter().all(rule), "each of {targets:?} has a rule");
    let help = makefile.lines().filter_map(|line| line.trim().strip_prefix("@echo \"make "));
    let said: BTreeSet<&str> = help.map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(said, targets);
    for word in makefile.split_whitespace() {
        let script = word.trim_start_matches('@');
        if script.starts_with("scripts/") {
            assert!(repository().join(script).exists(), "the Makefile starts {script}");
        }
    }
}

#[test]
fn a_comparison_of_nothing_is_refused() {
    for (name, value, said) in [
        ("SYSTEMS", "ext4 floppy", "floppy is none of ext4"),
        ("STONEWALL", "soon", "are numbers"),
        ("ROUNDS", "0", "1 or more"),
    ] {
        let refused = run("scripts/io500-compare.sh", &[], &[(name, value)]);
        let errors = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(1) && errors.contains(said), "{name}: {refused:?}");
        assert!(refused.stdout.is_empty(), "{refused:?}");
    }
    for (name, value, said) in [
        ("SYSTEMS", "ext4 floppy", "floppy is none of ext4"),
        ("ROWS", "empty full", "full is none of empty"),
        ("SCALE", "small", "are numbers"),
        ("ROUNDS", "0", "1 or more"),
        ("WHERE", "/tmp/a,b", "no comma can be in it"),
    ] {
        let refused = run("scripts/compare.sh", &[], &[(name, value)]);
        let errors = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(1) && errors.contains(said), "{name}: {refused:?}");
        assert!(refused.stdout.is_empty(), "{refused:?}");
    }
    for (name, value) in [("FILES", "many"), ("MIB", "0"), ("TURNS", "-1")] {
        let refused = run("scripts/one-core.sh", &[], &[(name, value)]);
        let errors = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(1) && errors.contains("are numbers"), "{refused:?}");
        assert!(refused.stdout.is_empty(), "{refused:?}");
    }
    for peer in ["gluster", "moosefs"] {
        let script = format!("bench/peers/{peer}.sh");
        for arguments in [&[][..], &["start", "x"][..], &["begin", "x", "y"][..]] {
            let refused = run(&script, arguments, &[]);
            let errors = String::from_utf8_lossy(&refused.stderr);
            assert!(refused.status.code() == Some(1), "{refused:?}");
            assert!(errors.contains("start|mount|stop DIR MOUNT"), "{errors}");
        }
    }
}

#[test]
fn long_tests_know_their_steps() {
    let list = run("scripts/test-long.sh", &["--list"], &[]);
    let list = String::from_utf8(list.stdout).unwrap();
    let script = std::fs::read_to_string(repository().join("scripts/test-long.sh")).unwrap();
    let listed: BTreeSet<&str> =
        list.lines().skip(1).map(|line| line.split_whitespace().next().unwrap()).collect();
    let functions = script.lines().filter_map(|line| line.strip_prefix("step_"));
    let written: BTreeSet<&str> = functions.map(|line| line.split('(').next().unwrap()).collect();
    assert_eq!(listed, written);
    for (arguments, seed, said) in
        [(&["kill9", "kill10"][..], "1", "kill10 is no step"), (&["kill9"], "soon", "SEED=soon")]
    {
        let refused = run("scripts/test-long.sh", arguments, &[("SEED", seed)]);
        let errors = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(1) && errors.contains(said), "{refused:?}");
        assert!(refused.stdout.is_empty(), "{refused:?}");
    }
}

#[test]
fn a_sample_of_nothing_is_refused() {
    for (name, value) in [("MUTANTS", "0"), ("MUTANT_SEED", "any"), ("MUTANT_SEEDS", "-1")] {
        let refused = run("scripts/mutants.sh", &[], &[(name, value)]);
        let errors = String::from_utf8_lossy(&refused.stderr);
        let said = "MUTANT_SEED and MUTANT_SEEDS are numbers";
        assert!(refused.status.code() == Some(1) && errors.contains(said), "{name}: {refused:?}");
        assert!(refused.stdout.is_empty(), "{refused:?}");
    }
    let (all, none) = (&[][..], &["04", "no-such-bug"][..]);
    for (patches, name, value, said) in [
        (all, "PLANT_SEEDS", "0", "PLANT_SEEDS and PLANT_BLOCK are numbers"),
        (all, "PLANT_BLOCK", "some", "PLANT_SEEDS and PLANT_BLOCK are numbers"),
        (none, "PLANT_SEEDS", "1", "has no-such-bug in its name"),
    ] {
        let refused = run("scripts/plants.sh", patches, &[(name, value)]);
        let errors = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(1) && errors.contains(said), "{name}: {refused:?}");
        assert!(refused.stdout.is_empty(), "{refused:?}");
    }
}

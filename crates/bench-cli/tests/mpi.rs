//! Ranks that MPI has started: the same workloads, the same output.
#![cfg(feature = "mpi")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "runs/originals.rs"]
mod originals;
#[path = "runs/rig.rs"]
#[allow(dead_code, reason = "what tests of local ranks need")]
mod rig;

use std::process::{Command, Output};

use rig::{Folder, children, runs, text, until};

/// mpirun with so many ranks of this line.
fn mpirun(folder: &Folder, ranks: usize, line: &str) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "-np", &ranks.to_string()]);
    command.arg(env!("CARGO_BIN_EXE_sateen-bench")).arg("--quiet");
    command.args(line.split_whitespace()).current_dir(&folder.0);
    command
}

fn works(folder: &Folder, ranks: usize, line: &str) -> String {
    let Output { status, stdout, stderr } = mpirun(folder, ranks, line).output().unwrap();
    assert!(status.success(), "{line}: {status}\n{}", text(&stderr));
    text(&stdout)
}

#[test]
fn ior_runs_over_mpi() {
    let folder = Folder::new();
    let out = works(&folder, 3, "ior -w -W -R -b 256k -t 64k -s 2 -i 2 -o file -e -g");
    let out = originals::ior(&out);
    assert!(out.max["Write"] > 0.0);
    assert_eq!((out.options["tasks"].as_str(), out.options["nodes"].as_str()), ("3", "1"));
    let kinds: Vec<&str> = out.rows.iter().map(|row| row.access.as_str()).collect();
    assert_eq!(kinds, ["write", "read", "write", "read"]);
    assert!(out.rows.iter().all(|row| row.values["bw(MiB/s)"] > 0.0), "{:?}", out.rows);
    assert_eq!(out.summary["write"]["aggs(MiB)"], "1.5");
    assert_eq!(folder.all(), [""; 0]);
}

#[test]
fn mdtest_runs_over_mpi() {
    let folder = Folder::new();
    let out = works(&folder, 3, "mdtest -n 30 -N 1 -u -w 100 -e 100 -X -i 2 -d x");
    let out = originals::mdtest(&out);
    assert_eq!((out.tasks, out.nodes, out.iterations), (3, 1, 2));
    assert_eq!((out.rates.len(), out.times.len()), (10, 0));
    assert!(out.rates["File creation"][1] > 0.0);
    assert_eq!(folder.all(), [""; 0]);
}

#[test]
fn iozone_and_io500_run_over_mpi() {
    let folder = Folder::new();
    let out = works(&folder, 3, "iozone -r 64k -s 1m -t 1,3 -+d");
    assert!(out.contains("iozone test complete.") && out.contains("\nfreaders "), "{out}");
    let config = "[global]\ndatadir = data\n[debug]\nstonewall-time = 250\n[ior-easy]\n\
                  blockSize = 4m\n[ior-hard]\nsegmentCount = 20\n[mdtest-easy]\nn = 300\n\
                  [mdtest-hard]\nn = 300\n";
    std::fs::write(folder.0.join("c.ini"), config).unwrap();
    let out = works(&folder, 3, "io500 c.ini --timestamp T");
    assert_eq!(out.matches("[RESULT]").count(), 12, "{out}");
    assert!(!out.contains(" 0.000000 GiB/s"), "{out}");
    assert_eq!(folder.all().iter().filter(|name| name.starts_with("data")).count(), 1);
    // What is wrong is said once, whichever rank reads it.
    let output = mpirun(&folder, 3, "io500 no.ini").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    std::fs::write(folder.0.join("c.ini"), "[nothing]\n").unwrap();
    let output = mpirun(&folder, 3, "io500 c.ini").output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(text(&output.stderr).matches("there is no section nothing").count(), 1);
}

#[test]
fn what_mpi_ranks_write_local_ranks_read() {
    let folder = Folder::new();
    works(&folder, 2, "ior -w -b 64k -t 16k -s 3 -o f -k -G 4");
    folder.works("-np 2 ior -R -b 64k -t 16k -s 3 -o f -k -G 4");
    folder.fails("-np 2 ior -R -b 64k -t 16k -s 3 -o f -k -G 5", 3);
}

#[test]
fn senseless_options_are_refused_once() {
    let folder = Folder::new();
    for (line, wanted) in [("ior -C -Z -o f", "-C, -Z: "), ("--np 2 ior -o f", "-np: MPI")] {
        let output = mpirun(&folder, 2, line).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}");
        let said = text(&output.stderr);
        assert_eq!(said.matches("sateen-bench: ").count(), 1, "{said}");
        assert!(said.contains(wanted), "{said}");
    }
}

#[test]
fn a_failed_rank_ends_all() {
    let folder = Folder::new();
    let output = mpirun(&folder, 2, "ior -w -F -o no/f").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("No such file or directory"));
}

#[test]
fn a_killed_rank_ends_all() {
    let folder = Folder::new();
    let mut command = mpirun(&folder, 2, "ior -w -F -b 1g -t 4k -s 1000 -D 600 -o f");
    let mut child = command.spawn().unwrap();
    until("the files of all ranks", || folder.all().len() == 2);
    let ranks = children(child.id());
    assert_eq!(ranks.len(), 2);
    let pid = rustix::process::Pid::from_raw(ranks[1].try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    assert!(!child.wait().unwrap().success());
    until("the end of the ranks", || ranks.iter().all(|rank| !runs(*rank)));
}

//! What goes wrong: a message, an exit code, and nothing left behind.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use sateen_testkit::skipped;

use crate::rig::{Folder, children, runs, text, until};

/// A run that is writing, started in a folder; its ranks' processes.
fn writing(folder: &Folder) -> (std::process::Child, Vec<u32>) {
    running(folder, "-np 3 ior -w -F -b 1g -t 4k -s 1000 -D 600 -o f")
}

/// The same of a run of three ranks, of which each makes a file at least.
fn running(folder: &Folder, line: &str) -> (std::process::Child, Vec<u32>) {
    let mut command = folder.command(line);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("the files of all ranks", || folder.all().len() >= 3);
    let ranks = children(child.id());
    assert_eq!(ranks.len(), 3);
    (child, ranks)
}

fn kill(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), signal).unwrap();
}

#[test]
fn a_rank_that_is_killed_ends_the_run() {
    for line in [
        "-np 3 ior -w -F -b 1g -t 4k -s 1000 -D 600 -o f",
        "-np 3 mdtest -F -n 1000000 -d d",
        "-np 3 iozone -i 0 -r 4k -s 64g -f f",
    ] {
        let folder = Folder::new();
        let (child, ranks) = running(&folder, line);
        kill(ranks[1], Signal::KILL);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{line}");
        let said = text(&output.stderr);
        let wanted =
            format!("(process {}) was killed by signal 9; the other ranks were ended", ranks[1]);
        assert!(said.contains(&wanted), "{line}: {said}");
        assert!(ranks.iter().all(|rank| !runs(*rank)), "{line}: no rank is left");
        assert_eq!(folder.all(), [""; 0], "{line}: no file is left");
    }
}

#[test]
fn the_others_remove_what_the_first_rank_has_made() {
    for (line, enough) in [
        ("-np 2 mdtest -n 200000 -d md1", 100),
        ("-np 2 mdtest -F -u -n 200000 -d md1@md2", 100),
        ("-np 2 mdtest -F -u -n 200000 -d md1@old", 100),
        ("-np 2 ior -w -F -u -b 1g -t 4k -s 1000 -D 600 -o f", 5),
    ] {
        let folder = Folder::new();
        std::fs::create_dir(folder.0.join("old")).unwrap();
        let mut command = folder.command(line);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        until("files", || folder.all().len() >= enough);
        let ranks = children(child.id());
        let rank0 = ranks.iter().find(|pid| {
            let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
            environ.split(|byte| *byte == 0).any(|one| one.starts_with(b"SATEEN_BENCH_RANK=0:"))
        });
        kill(*rank0.unwrap(), Signal::KILL);
        let output = child.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert!(said.contains("rank 0 (process"), "{line}: {said}");
        assert_eq!(folder.all(), ["old"], "{line}: what was there before, and nothing else");
    }
}

#[test]
fn a_killed_launcher_takes_its_ranks_along() {
    let folder = Folder::new();
    let (mut child, ranks) = writing(&folder);
    kill(child.id(), Signal::KILL);
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    until("the end of the ranks", || ranks.iter().all(|rank| !runs(*rank)));
}

#[test]
fn an_interrupted_run_cleans_up() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let folder = Folder::new();
        let (child, ranks) = writing(&folder);
        kill(child.id(), signal);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(code));
        assert!(text(&output.stderr).contains("interrupted"), "{output:?}");
        assert!(ranks.iter().all(|rank| !runs(*rank)), "no rank is left");
        assert_eq!(folder.all(), [""; 0], "no file is left");
    }
}

#[test]
fn an_interrupted_rank_alone_cleans_up() {
    let folder = Folder::new();
    let mut command = folder.command("ior -w -b 1g -t 4k -s 1000 -D 600 -o f");
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until("the file", || folder.all().len() == 1);
    kill(child.id(), Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("interrupted"), "{output:?}");
    assert_eq!(folder.all(), [""; 0]);
}

#[test]
fn senseless_options_are_refused_before_anything_is_done() {
    let folder = Folder::new();
    for line in [
        "-np 2 ior -b 3m -t 2m -o f",
        "-np 2 ior -C -Z -o f",
        "-np 2 ior -O nothing=1 -o f",
        "-np 2 mdtest -d x",
        "-np 2 mdtest -n 1 -d a@b@c -u",
        "-np 0 ior -o f",
        "-np 100000 ior -o f",
        "ior -b x",
        "ior --nothing",
        "nothing",
        "",
    ] {
        let said = folder.fails(line, 2);
        assert!(!said.is_empty(), "{line}");
        assert_eq!(folder.all(), [""; 0], "{line}");
    }
    let said = folder.fails("iozone -t 1,2 -f f", 2);
    assert!(said.contains("-t 2: 2 ranks are to work, and there is 1: start as many"), "{said}");
    assert!(said.contains("-np 2 iozone") && said.contains("mpirun -n 2"), "{said}");
    let said = folder.fails("-np 2 iozone -t 4 -f f", 2);
    assert!(said.contains("there are 2: start as many (sateen-bench -np 4 iozone"), "{said}");
    let output = folder.command("-np 2 ior -o f").env("PMIX_RANK", "0").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let joins = cfg!(feature = "mpi");
    let why = if joins { "MPI has started the ranks already" } else { "MPI has started this" };
    assert!(text(&output.stderr).contains(why), "{output:?}");
}

#[test]
fn a_folder_that_is_not_there_is_said() {
    let folder = Folder::new();
    for line in ["-np 2 ior -o no/f", "ior -o no/f", "-np 2 mdtest -n 1 -d no/where"] {
        let said = folder.fails(line, 1);
        assert!(said.contains("No such file or directory"), "{line}: {said}");
        assert_eq!(said.lines().count(), 1, "said once: {said}");
    }
    let said = folder.fails("ior -r -o f", 1);
    assert!(said.starts_with("sateen-bench: open f: No such file"), "{said}");
}

#[test]
fn a_file_that_is_too_short_is_said() {
    let folder = Folder::new();
    folder.works("ior -w -b 64k -t 16k -o f -k");
    let said = folder.fails("ior -r -b 64k -t 16k -s 2 -o f -k", 1);
    assert!(said.contains("read f at 65536: unexpected end of file"), "{said}");
}

#[test]
fn a_folder_without_permission_is_said() {
    let folder = Folder::new();
    let closed = folder.0.join("closed");
    std::fs::create_dir(&closed).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o555);
    std::fs::set_permissions(&closed, mode).unwrap();
    // Root may do everything, unless it has given that up.
    let mut program = vec![env!("CARGO_BIN_EXE_sateen-bench").to_owned()];
    if rustix::process::geteuid().is_root() {
        let without = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"];
        program.splice(0..0, without.map(str::to_owned));
    }
    for line in ["-np 2 ior -w -F -o f", "-np 2 mdtest -n 3 -d .", "-np 2 iozone"] {
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]).args(line.split(' ')).current_dir(&closed);
        let output = command.output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {said}");
        assert!(said.contains("Permission denied"), "{line}: {said}");
        assert_eq!(folder.all(), ["closed"]);
    }
}

/// A file system of 4 MiB and 64 inodes, or nothing without the right to mount.
struct Small(Folder);

impl Small {
    fn new() -> Option<Self> {
        let folder = Folder::new();
        let options = ["-t", "tmpfs", "-o", "size=4m,nr_inodes=64", "sateen-bench"];
        let mounted = Command::new("mount").args(options).arg(&folder.0).status().unwrap();
        if !mounted.success() {
            skipped("mounting needs root");
            return None;
        }
        Some(Self(folder))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0.0).status();
    }
}

#[test]
fn a_full_disk_is_said_and_is_empty_again() {
    let Some(Small(folder)) = &Small::new() else { return };
    for line in
        ["-np 2 ior -w -F -b 64m -t 256k -o f", "ior -w -b 64m -t 256k -o f", "-np 2 iozone -s 64m"]
    {
        let said = folder.fails(line, 1);
        assert!(said.contains("No space left on device"), "{line}: {said}");
        assert_eq!(folder.all(), [""; 0], "{line}");
    }
    for line in
        ["-np 2 mdtest -n 1000 -F -d x", "-np 2 mdtest -n 1000 -u -d x", "mdtest -n 10 -w 1m -d x"]
    {
        let said = folder.fails(line, 1);
        assert!(said.contains("No space left on device"), "{line}: {said}");
        assert_eq!(folder.all(), [""; 0], "{line}");
    }
}

#[test]
fn an_io500_on_a_full_disk_is_said_and_cleaned_up_when_asked() {
    let Some(Small(folder)) = &Small::new() else { return };
    let other = Folder::new();
    let config = format!(
        "[global]\ndatadir = {}/data\nresultdir = results\n[ior-easy]\nblockSize = 64m\n",
        folder.0.display()
    );
    std::fs::write(other.0.join("c.ini"), config).unwrap();
    let said = other.fails("-np 2 io500 c.ini", 1);
    assert!(said.contains("No space left on device") && said.contains("--cleanup"), "{said}");
    assert!(folder.all().len() > 2, "it may go on when there is room");
    other.works("-np 2 io500 c.ini --cleanup");
    assert_eq!(folder.all(), ["data"]);
}

#[test]
fn copies_that_srun_has_started_without_mpi_are_refused() {
    let folder = Folder::new();
    let run = |tasks: &str, more: Option<&str>| {
        let mut command = folder.command("--quiet ior -w -b 64k -t 64k -o f");
        command.env("SLURM_STEP_NUM_TASKS", tasks).env_remove("PMIX_RANK").env_remove("PMI_RANK");
        more.map(|name| command.env(name, "0"));
        command.output().unwrap()
    };
    let refused = run("4", None);
    assert_eq!(refused.status.code(), Some(2));
    let said = text(&refused.stderr);
    assert!(said.contains("srun has started this 4 times without MPI (--mpi=none)"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(run("1", None).status.success(), "one alone is no harm");
    if !cfg!(feature = "mpi") {
        let said = text(&run("4", Some("PMIX_RANK")).stderr);
        assert!(said.contains("MPI has started this, but it was built without"), "{said}");
    }
}

#[test]
fn iozones_list_of_hosts_is_refused_in_words() {
    let folder = Folder::new();
    let said = folder.fails("iozone -+m hosts -t 2 -f f", 2);
    assert!(said.contains("-+m: there is no list of hosts, MPI places the ranks"), "{said}");
    assert_eq!(folder.all(), [""; 0]);
}

//! Ranks that a real Slurm on this host has started: `srun` with PMIx, and without MPI.
//!
//! As root, with munged, slurmctld, slurmd and srun of Debian; they run from a folder of the test
//! and speak to each other over loopback.
#![cfg(feature = "srun")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "runs/originals.rs"]
#[allow(dead_code, reason = "what other runs print")]
mod originals;
#[path = "runs/rig.rs"]
#[allow(dead_code, reason = "what tests of local ranks need")]
mod rig;

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output};

use rig::{Folder, text, until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_sateen-bench");

/// A cluster of one node, which is this host.
struct Slurm {
    folder: Folder,
    daemons: Vec<Child>,
}

impl Slurm {
    fn start() -> Slurm {
        let folder = Folder::new();
        let at = |name: &str| folder.0.join(name).display().to_string();
        for name in ["state", "spool", "work"] {
            fs::create_dir(folder.0.join(name)).unwrap();
        }
        let mut key = [0; 1024];
        File::open("/dev/urandom").unwrap().read_exact(&mut key).unwrap();
        fs::write(at("key"), key).unwrap();
        fs::set_permissions(at("key"), Permissions::from_mode(0o400)).unwrap();
        let name = text(&Command::new("hostname").arg("-s").output().unwrap().stdout);
        let host = name.trim();
        // Held together, so that they differ.
        let free = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [controller, node] = free.each_ref().map(|port| port.local_addr().unwrap().port());
        drop(free);
        let conf = [
            "ClusterName=test".to_owned(),
            format!("SlurmctldHost={host}(127.0.0.1)"),
            format!("SlurmctldPort={controller}"),
            format!("SlurmdPort={node}"),
            "SlurmUser=root".to_owned(),
            format!("AuthInfo=socket={}", at("munge")),
            format!("StateSaveLocation={}", at("state")),
            format!("SlurmdSpoolDir={}", at("spool")),
            format!("SlurmctldPidFile={}", at("slurmctld.pid")),
            format!("SlurmdPidFile={}", at("slurmd.pid")),
            "ProctrackType=proctrack/pgid".to_owned(),
            "TaskPlugin=task/none".to_owned(),
            "MpiDefault=pmix".to_owned(),
            format!("NodeName={host} NodeAddr=127.0.0.1 CPUs=1 State=UNKNOWN"),
            format!("PartitionName=all Nodes={host} Default=YES State=UP OverSubscribe=YES"),
        ];
        fs::write(at("slurm.conf"), conf.join("\n") + "\n").unwrap();
        let mut slurm = Slurm { folder, daemons: Vec::new() };
        let munge = [("--socket", "munge"), ("--key-file", "key"), ("--seed-file", "seed")];
        let munge = munge.map(|(option, name)| format!("{option}={}", at_in(&slurm, name)));
        let pid = format!("--pid-file={}", at_in(&slurm, "munged.pid"));
        slurm.daemon(
            "munged",
            &[&["--foreground".to_owned(), "--force".to_owned(), pid], &munge[..]].concat(),
        );
        let socket = slurm.folder.0.join("munge");
        until("munged answers", || socket.exists());
        slurm.daemon("slurmctld", &["-D".to_owned()]);
        slurm.daemon("slurmd", &["-D".to_owned()]);
        until("the node is idle", || {
            let mut command = slurm.command("sinfo");
            let output = command.args(["--noheader", "--format=%t"]).output().unwrap();
            text(&output.stdout).trim() == "idle"
        });
        slurm
    }

    /// A program that finds this Slurm.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.folder.0.join("slurm.conf"));
        command.current_dir(self.folder.0.join("work"));
        command
    }

    fn daemon(&mut self, program: &str, options: &[String]) {
        let log = File::create(self.folder.0.join(format!("{program}.log"))).unwrap();
        let mut command = self.command(program);
        command.args(options).stdout(log.try_clone().unwrap()).stderr(log);
        self.daemons.push(command.spawn().unwrap_or_else(|error| panic!("{program}: {error}")));
    }

    /// `srun` of this line.
    fn srun(&self, options: &str, line: &str) -> Output {
        let mut command = self.command("srun");
        command.args(["--quiet", "--overcommit"]).args(options.split_whitespace());
        command.arg(PROGRAM).args(line.split_whitespace()).output().unwrap()
    }

    /// The same, and it works.
    fn works(&self, options: &str, line: &str) -> String {
        let Output { status, stdout, stderr } = self.srun(options, &format!("--quiet {line}"));
        assert!(status.success(), "{line}: {status}\n{}", text(&stderr));
        text(&stdout)
    }

    /// What runs have left.
    fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.0.join("work")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn at_in(slurm: &Slurm, name: &str) -> String {
    slurm.folder.0.join(name).display().to_string()
}

impl Drop for Slurm {
    fn drop(&mut self) {
        // The one that was started last first. What has ended by itself needs neither.
        for mut daemon in self.daemons.drain(..).rev() {
            let pid = rustix::process::Pid::from_child(&daemon);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = daemon.wait();
        }
    }
}

#[test]
fn srun_starts_ranks() {
    let slurm = Slurm::start();
    for mpi in ["", "--mpi=pmix"] {
        let line = "ior -w -W -R -b 256k -t 64k -s 2 -i 2 -o file -F -e -C -g";
        let out = originals::ior(&slurm.works(&format!("-n 3 {mpi}"), line));
        assert_eq!((out.options["tasks"].as_str(), out.options["nodes"].as_str()), ("3", "1"));
        assert_eq!(out.summary["write"]["aggs(MiB)"], "1.5");
        let out =
            originals::mdtest(&slurm.works(&format!("-n 3 {mpi}"), "mdtest -n 20 -F -d tree"));
        assert!(out.rates["File creation"][0] > 0.0);
    }
    // One rank joins nobody, and starts its own.
    let out = originals::ior(&slurm.works("-n 1 --mpi=none", "-np 2 ior -b 64k -t 64k -o file"));
    assert_eq!(out.options["tasks"], "2");
    assert_eq!(slurm.left(), [""; 0]);

    // What is refused is refused once, with its exit code.
    let refused = slurm.srun("-n 2", "ior -b 3 -t 2 -o file");
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    let alone = slurm.srun("-n 2 --mpi=none", "ior -b 64k -t 64k -o file");
    assert_eq!(alone.status.code(), Some(2));
    assert!(text(&alone.stderr).contains("without MPI (--mpi=none)"), "{}", text(&alone.stderr));
    assert_eq!(slurm.left(), [""; 0]);

    // A step that is ended cleans up.
    let mut command = slurm.command("srun");
    command.args(["--quiet", "--overcommit", "-n", "2", "-J", "ended", PROGRAM]);
    command.args("--quiet ior -w -b 1g -t 64k -s 1024 -o file -F -D 600".split_whitespace());
    let mut srun = command.spawn().unwrap();
    until("it writes", || slurm.left().len() == 2);
    assert!(slurm.command("scancel").args(["--name", "ended"]).status().unwrap().success());
    assert!(!srun.wait().unwrap().success());
    until("nothing is left", || slurm.left().is_empty());
}

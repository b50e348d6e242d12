//! A mounted file system for a test to work on, in one process or of several servers: what
//! programs see must be the same.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, Server, ok, run_folder, text};
use sateen_testkit::network::has_ip;
use sateen_testkit::program::Program;
use sateen_testkit::transport;

use crate::BINARY;

/// What the kernel keeps of files. Who empties it does so for all: alone, and not while others
/// count on what they have read.
pub(crate) static KERNEL_CACHES: RwLock<()> = RwLock::new(());

/// Until this is dropped nobody here empties the kernel's caches.
pub(crate) fn with_kernel_caches() -> RwLockReadGuard<'static, ()> {
    KERNEL_CACHES.read().unwrap_or_else(PoisonError::into_inner)
}

/// Who serves a file system.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Servers {
    /// Everything is in one process.
    Embedded,
    /// The same, whose kernel is given files of any size.
    Given,
    /// An MGS and an MDT in one process, two OSTs in another, each mount in one more; all on hosts of
    /// their own, over TCP.
    Separate,
}

/// Declares each of these functions as two tests: one with the servers embedded, one with them
/// separate.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod embedded {
            $(#[test] fn $name() { super::$name($crate::rig::Servers::Embedded) })*
        }
        mod separate {
            $(#[test] fn $name() { super::$name($crate::rig::Servers::Separate) })*
        }
    };
}
pub(crate) use on_both;

/// Declares each of these functions as a test whose kernel is given files of any size.
macro_rules! on_given {
    ($($name:ident),* $(,)?) => {
        mod given {
            $(#[test] fn $name() { super::$name($crate::rig::Servers::Given) })*
        }
    };
}
pub(crate) use on_given;

/// A file system with mounts, which is taken down and removed in the end, however that comes.
pub(crate) enum Rig {
    Embedded(Program),
    /// It has one mount, which stands in for all that a test asks for.
    Given {
        program: Program,
        mounts: Vec<PathBuf>,
    },
    Separate {
        cluster: Cluster,
        mds: Server,
        oss: Server,
    },
}

impl Rig {
    /// Nothing, where nothing can be mounted.
    pub(crate) fn start(servers: Servers, name: &str, mounts: u8, direct_io: bool) -> Option<Rig> {
        if !can_mount() {
            return None;
        }
        Some(match servers {
            Servers::Given => {
                // The same test of another way may run beside it.
                let name = &format!("given-{name}");
                let program = Program::new(BINARY, name, 1, &["--passthrough"]).unwrap();
                program.up().unwrap();
                let mut lctl = Command::new(BINARY);
                lctl.args(["lctl", "--data"]).arg(program.data());
                // For later starts, too.
                ok(lctl.args(["set_param", "-P", "llite.*.passthrough_min_kb=0"]));
                let mounts = vec![program.mnt().to_owned(); usize::from(mounts)];
                Rig::Given { program, mounts }
            }
            Servers::Embedded => {
                let options: &[&str] = if direct_io { &["--direct-io"] } else { &[] };
                let program = Program::new(BINARY, name, usize::from(mounts), options).unwrap();
                program.up().unwrap();
                Rig::Embedded(program)
            }
            Servers::Separate => {
                if !has_ip() {
                    return None;
                }
                let mut cluster = Cluster::on_hosts(BINARY, name);
                let (mds, oss) = cluster.start();
                let options: &[&str] = if direct_io { &["direct_io"] } else { &[] };
                for number in 0..mounts {
                    cluster.mount_with(&format!("mnt{number}"), options);
                }
                Rig::Separate { cluster, mds, oss }
            }
        })
    }

    pub(crate) fn mounts(&self) -> &[PathBuf] {
        match self {
            Rig::Embedded(program) => program.mounts(),
            Rig::Given { mounts, .. } => mounts,
            Rig::Separate { cluster, .. } => &cluster.mounts,
        }
    }

    /// The first mount point.
    pub(crate) fn mnt(&self) -> &Path {
        &self.mounts()[0]
    }

    /// A folder of the local disk for the test's own.
    pub(crate) fn local(&self) -> PathBuf {
        let local = self.mnt().with_file_name("local");
        fs::create_dir_all(&local).unwrap();
        local
    }

    /// Runs a shell script on the mount, with `$MNT`, and `$LOCAL` of the local disk; its output
    /// if it went well.
    pub(crate) fn shell(&self, script: &str) -> String {
        let local = self.local();
        let output = Command::new("bash")
            .args(["-euo", "pipefail", "-c", script])
            .env("MNT", self.mnt())
            .env("LOCAL", &local)
            .env("HOME", &local)
            .current_dir(self.mnt())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{script}\n{}", text(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What `lctl get_param -n` shows of the processes behind the mounts.
    pub(crate) fn params(&self, pattern: &str) -> String {
        let get = |data: &Path| {
            let mut lctl = Command::new(BINARY);
            ok(lctl.args(["lctl", "--data"]).arg(data).args(["get_param", "-n", pattern]))
        };
        match self {
            Rig::Embedded(program) | Rig::Given { program, .. } => get(program.data()),
            Rig::Separate { cluster, .. } => {
                cluster.mounts.iter().map(|mount| get(&run_folder(mount))).collect()
            }
        }
    }

    /// Over what each of the mounts is served.
    pub(crate) fn transports(&self) -> Vec<String> {
        match self {
            Rig::Embedded(program) | Rig::Given { program, .. } => {
                let mut status = Command::new(BINARY);
                let status = status.args(["status", "--json", "--data"]).arg(program.data());
                transport::of_mounts(&status.output().unwrap().stdout)
            }
            Rig::Separate { cluster, .. } => {
                cluster.mounts.iter().map(|mount| cluster.transport(mount)).collect()
            }
        }
    }

    /// How often programs have opened or made files, by each of the mounts, in any order.
    pub(crate) fn opens(&self) -> Vec<u64> {
        let mut opens = Vec::new();
        for line in self.params("llite.*.stats").lines() {
            let mut words = line.split_whitespace();
            match (words.next(), words.next()) {
                // Each mount's begins so.
                (Some("snapshot_time" | "snapshot_time:"), _) => opens.push(0),
                (Some("open" | "create"), Some(times)) => {
                    *opens.last_mut().unwrap() += times.parse::<u64>().unwrap();
                }
                _ => {}
            }
        }
        opens
    }

    /// Ends it, and checks what the work has left.
    pub(crate) fn end(self) {
        match self {
            Rig::Embedded(program) | Rig::Given { program, .. } => {
                program.down().unwrap();
                program.fsck().unwrap();
            }
            Rig::Separate { cluster, mds, oss } => drop(cluster.finish([oss, mds])),
        }
    }
}

/// Copies a program, to be executed. Not by this process: what it has open for writing a program
/// that another test is just starting may have, too, and then it cannot be executed.
pub(crate) fn copy_program(from: &str, to: &Path) {
    let output = Command::new("cp").arg(from).arg(to).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
}

/// Where a program is, or nothing if it is missing and need not be there.
pub(crate) fn tool(name: &str) -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(cache.map(|cache| cache.join("sateen-tools/bin")));
    let found = folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    if found.is_none() {
        sateen_testkit::skipped(format_args!("there is no {name}"));
    }
    found
}

/// Whether all of these programs are there.
pub(crate) fn tools(names: &[&str]) -> bool {
    names.iter().all(|name| tool(name).is_some())
}

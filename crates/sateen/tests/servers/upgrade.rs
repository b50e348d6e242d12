//! Servers are stopped in good order and started again, one after the other, as for an upgrade,
//! while programs on two mounts are at work: none of them may notice but by having to wait. What
//! is open stays open and locked, what was written is there, and no mount is thrown out.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::fs::{FlockOperation, flock};
use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, Server, until};

use crate::{BINARY, bytes, write_durably};

/// Each server is stopped so often.
const ROUNDS: u64 = 3;
/// Whoever works has done so much since before anybody is stopped, and after that again.
const STEPS: u64 = 3;
/// Names in the directory that is listed again and again.
pub(super) const NAMES: usize = 40;
const SERVERS: [(u8, &str); 4] = [(1, "mgt"), (4, "mdt0"), (2, "ost0"), (3, "ost1")];

type Told = std::io::Result<()>;

/// One program: how far it is, and the first thing that went wrong.
struct Program {
    name: String,
    steps: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

/// All of them.
#[derive(Default)]
pub(super) struct Programs {
    all: Vec<Program>,
    over: Arc<AtomicBool>,
    wrong: Arc<Mutex<Vec<String>>>,
}

fn other(what: impl Into<String>) -> std::io::Error {
    std::io::Error::other(what.into())
}

impl Programs {
    /// Starts one that does its step again and again, with the number of it.
    pub(super) fn start(&mut self, name: &str, mut step: impl FnMut(u64) -> Told + Send + 'static) {
        let (steps, over, wrong) =
            (Arc::<AtomicU64>::default(), self.over.clone(), self.wrong.clone());
        let (counted, called) = (steps.clone(), name.to_owned());
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let number = counted.load(Ordering::Relaxed);
                if let Err(error) = step(number) {
                    wrong.lock().unwrap().push(format!("{called}, step {number}: {error}"));
                    return;
                }
                counted.store(number + 1, Ordering::Relaxed);
            }
        });
        self.all.push(Program { name: name.to_owned(), steps, thread });
    }

    fn nothing_is_wrong(&self, cluster: &Cluster) {
        let wrong = self.wrong.lock().unwrap();
        assert!(wrong.is_empty(), "{wrong:#?}\n{}", cluster.logs());
    }

    /// Waits until each has done some steps more.
    pub(super) fn get_on(&self, cluster: &Cluster, when: &str) {
        let count = |program: &Program| program.steps.load(Ordering::Relaxed);
        let before: Vec<u64> = self.all.iter().map(count).collect();
        let names: Vec<&str> = self.all.iter().map(|program| program.name.as_str()).collect();
        until(&format!("{names:?} get on {when}"), || {
            self.nothing_is_wrong(cluster);
            self.all.iter().zip(&before).all(|(program, before)| count(program) >= before + STEPS)
        });
    }

    /// Ends them; how many steps each has done.
    pub(super) fn end(self, cluster: &Cluster) -> Vec<(String, u64)> {
        self.over.store(true, Ordering::Relaxed);
        let wrong = self.wrong.clone();
        let done = self.all.into_iter().map(|program| {
            program.thread.join().unwrap();
            (program.name, program.steps.load(Ordering::Relaxed))
        });
        let done = done.collect();
        let wrong = wrong.lock().unwrap();
        assert!(wrong.is_empty(), "{wrong:#?}\n{}", cluster.logs());
        done
    }
}

/// Writes a file, syncs it, and reads it.
pub(super) fn writes(programs: &mut Programs, mount: &Path, name: &str) {
    let path = mount.join(name);
    programs.start(name, move |number| {
        let content = bytes(200_000 + number as usize % 7 * 30_000, number + 1);
        write_durably(&path, &content)?;
        if fs::read(&path)? == content { Ok(()) } else { Err(other("it is not what was written")) }
    });
}

/// Makes files, renames and removes them.
pub(super) fn makes(programs: &mut Programs, mount: &Path, name: &str) {
    let folder = mount.join(name);
    fs::create_dir(&folder).unwrap();
    programs.start(name, move |number| {
        let (new, renamed) = (folder.join(format!("new{number}")), folder.join("renamed"));
        fs::write(&new, number.to_le_bytes())?;
        fs::rename(&new, &renamed)?;
        if new.exists() || fs::read(&renamed)? != number.to_le_bytes() {
            return Err(other("it was not renamed"));
        }
        if number.is_multiple_of(3) { fs::remove_file(&renamed) } else { Ok(()) }
    });
}

/// Appends lines to one file, beside others. One that is open all the time.
pub(super) fn appends(programs: &mut Programs, mount: &Path, name: &str) {
    let mut log = OpenOptions::new().append(true).create(true).open(mount.join("log")).unwrap();
    let called = name.to_owned();
    programs.start(name, move |number| {
        log.write_all(format!("{called} {number}\n").as_bytes())?;
        if number.is_multiple_of(4) { log.sync_all() } else { Ok(()) }
    });
}

/// Has a file without a name open and locked, and writes and reads it.
pub(super) fn holds(programs: &mut Programs, mount: &Path, name: &str) {
    let path = mount.join(name);
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
    fs::remove_file(&path).unwrap();
    programs.start(name, move |number| {
        file.write_all_at(&number.to_le_bytes(), number % 512 * 8)?;
        let mut read = Vec::new();
        file.seek(SeekFrom::Start(0))?;
        file.read_to_end(&mut read)?;
        let words = read.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        let right = words.enumerate().all(|(at, word)| word % 512 == at as u64 && word <= number);
        let len = (number + 1).min(512) * 8;
        if right && read.len() as u64 == len && file.metadata()?.len() == len {
            return Ok(());
        }
        Err(other("the file without a name is not what was written"))
    });
}

/// Somebody else has locked the file all the time.
pub(super) fn is_locked_out(programs: &mut Programs, mount: &Path, name: &str) {
    let file = File::open(mount.join("locked")).unwrap();
    programs.start(name, move |_| match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(()),
        Ok(()) => Err(other("what another mount has locked was free")),
        Err(error) => Err(error.into()),
    });
}

/// Reads what nobody changes, and lists it.
pub(super) fn reads(programs: &mut Programs, mount: &Path, name: &str) {
    let (folder, content) = (mount.join("constant"), bytes(50_000, 5));
    programs.start(name, move |number| {
        let found = fs::read(folder.join(format!("{}", number % NAMES as u64)))?;
        let listed = fs::read_dir(&folder)?.collect::<Result<Vec<_>, _>>()?.len();
        let missing = fs::metadata(folder.join("missing")).map(|_| ());
        match missing {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            _ => return Err(other(format!("there is what was never made: {missing:?}"))),
        }
        if found == content && listed == NAMES { Ok(()) } else { Err(other("it has changed")) }
    });
}

/// What the programs have appended is there, in the order of each.
pub(super) fn appended(mount: &Path, done: &[(String, u64)]) {
    let log = fs::read_to_string(mount.join("log")).unwrap();
    for (name, steps) in done.iter().filter(|(name, _)| name.starts_with("appends")) {
        let lines = log.lines().filter_map(|line| line.strip_prefix(name.as_str()));
        let numbers: Vec<u64> = lines.map(|line| line.trim().parse().unwrap()).collect();
        assert_eq!(numbers, (0..*steps).collect::<Vec<_>>(), "{name}");
    }
    let all: u64 = done.iter().filter(|(name, _)| name.starts_with("appends")).map(|d| d.1).sum();
    assert_eq!(log.lines().count() as u64, all);
}

#[test]
fn servers_are_restarted_under_load_and_nobody_notices() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "upgrade");
    cluster.make(2);
    let mut servers: Vec<Option<Server>> =
        SERVERS.iter().map(|(host, folder)| Some(cluster.serve(*host, &[*folder]))).collect();
    cluster.knows_osts("mdt0", 2);
    let mounts: Vec<PathBuf> = ["one", "two"].map(|name| cluster.mount(name)).into();
    let constant = mounts[0].join("constant");
    fs::create_dir(&constant).unwrap();
    for number in 0..NAMES {
        fs::write(constant.join(number.to_string()), bytes(50_000, 5)).unwrap();
    }
    let locked = File::create(mounts[0].join("locked")).unwrap();
    flock(&locked, FlockOperation::LockExclusive).unwrap();

    let mut programs = Programs::default();
    for (number, mount) in mounts.iter().enumerate() {
        writes(&mut programs, mount, &format!("writes{number}"));
        makes(&mut programs, mount, &format!("makes{number}"));
        appends(&mut programs, mount, &format!("appends{number}"));
        holds(&mut programs, mount, &format!("holds{number}"));
        reads(&mut programs, mount, &format!("reads{number}"));
    }
    is_locked_out(&mut programs, &mounts[1], "is locked out");
    programs.get_on(&cluster, "from the start");
    for round in 0..ROUNDS {
        for (server, (host, folder)) in servers.iter_mut().zip(SERVERS) {
            server.take().unwrap().end();
            *server = Some(cluster.serve(host, &[folder]));
            programs.get_on(&cluster, &format!("after {folder} was restarted in round {round}"));
        }
    }
    let done = programs.end(&cluster);
    println!("{done:?}");
    for mount in &mounts {
        appended(mount, &done);
    }
    drop(locked);
    let again = File::open(mounts[1].join("locked")).unwrap();
    flock(&again, FlockOperation::LockExclusive).unwrap();
    drop(again);
    let logs = cluster.logs();
    assert!(!logs.contains("evict"), "{logs}");
    cluster.finish(servers.into_iter().flatten().rev());
}

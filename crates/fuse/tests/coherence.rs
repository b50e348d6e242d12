//! The kernel's caches against locks that are taken back all the time.
//!
//! Two mounts of one tree, a lock server that revokes every millisecond, and
//! processes on both mounts that make directories, rename, write unaligned
//! records, write through mappings and append. No process may hang, and none may
//! see anything older than what was announced to it. `COHERENCE_SECONDS` makes it
//! longer than the seconds CI gives it. Needs root and /dev/fuse.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    unreachable_pub,
    reason = "test helpers"
)]
#![allow(unsafe_code, reason = "memory shared between processes")]
#[path = "coherence/load.rs"]
mod load;
#[path = "coherence/locks.rs"]
mod locks;
#[path = "common/patience.rs"]
mod patience;
#[path = "coherence/server.rs"]
mod server;
#[path = "common/transport.rs"]
mod transport;

use load::{Board, LINE, Load, word};
use patience::{Clock, HANG};
use sateen_fuse::{MountOptions, Session, TransportChoice, UnmountMode};
use server::Server;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Each process does more than this, on however busy a machine.
const TURNS_MIN: u64 = 20;
/// More locks than this of each kind are given back.
const GIVEN_BACK_MIN: u64 = 100;
const SECONDS_DEFAULT: f64 = 3.0;

/// (what it does, which mount, whose announcements it checks)
const PROCESSES: [(&str, usize, usize); 15] = [
    ("record_write", 0, 0),
    ("record_write", 1, 0),
    ("record_read", 0, 1),
    ("record_read", 1, 0),
    ("map_write", 0, 0),
    ("map_write", 1, 0),
    ("map_read", 0, 5),
    ("map_read", 1, 4),
    ("append", 0, 0),
    ("append", 1, 0),
    ("size_read", 0, 9),
    ("rename", 0, 0),
    ("names_read", 1, 11),
    ("mkdir", 1, 0),
    ("dirs_read", 0, 13),
];

/// The body of the load's processes; does nothing when run as a test.
#[test]
fn load_process() {
    let Ok(text) = std::env::var("COHERENCE_LOAD") else { return };
    let words: Vec<&str> = text.split('\n').collect();
    let [role, board, dir, me, peer] = words.as_slice() else { panic!("{text}") };
    let load = Load {
        board: Board::open(Path::new(board)),
        dir: PathBuf::from(dir),
        me: me.parse().unwrap(),
        peer: peer.parse().unwrap(),
    };
    load.run(role);
}

struct Test {
    base: PathBuf,
    server: std::sync::Arc<Server>,
    sessions: Vec<Session>,
    board: Board,
}

impl Test {
    fn new(name: &str, transport: TransportChoice) -> Test {
        let base = std::env::temp_dir().join(format!("sateen-{name}-{}", std::process::id()));
        let server = Server::new();
        let mut sessions = Vec::new();
        for id in 0..2 {
            let dir = base.join(id.to_string());
            fs::create_dir_all(&dir).unwrap();
            let asked = transport::asked(transport);
            let options = MountOptions { transport: asked, ..MountOptions::new(dir) };
            let session = Session::mount(options, server.client(id)).unwrap();
            transport::check(&session, transport);
            server.attach(id, session.notifier());
            sessions.push(session);
        }
        Test { base, server, sessions, board: Board::new() }
    }

    fn start(&self, index: usize, (role, mount, peer): (&str, usize, usize)) -> Child {
        let dir = self.base.join(mount.to_string());
        let board = self.board.path();
        let text = format!("{role}\n{}\n{}\n{index}\n{peer}", board.display(), dir.display());
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "load_process", "--nocapture", "--quiet"])
            .env("COHERENCE_LOAD", text)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Kills everything and lets go of the mounts, so that a failure ends.
    fn abort(&self, children: &mut [Child], why: &str) -> ! {
        for child in children.iter() {
            let stack = fs::read_to_string(format!("/proc/{}/stack", child.id()));
            eprintln!("process {}:\n{}", child.id(), stack.unwrap_or_default());
        }
        for session in &self.sessions {
            let _ = session.unmount(UnmountMode::Force);
        }
        for child in children {
            let _ = child.kill();
        }
        panic!("{why}");
    }

    /// Revokes and watches until the time is over, then waits for everybody.
    fn drive(&self, mut children: Vec<Child>, processes: &[(&str, usize, usize)], time: Duration) {
        let mut clock = Clock::new();
        let mut seen = vec![(0, Duration::ZERO); processes.len()];
        let mut turn = 0u64;
        let mut running = vec![true; processes.len()];
        while running.contains(&true) {
            let elapsed = clock.turn();
            turn = turn
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            self.server.revoke_some(turn >> 33);
            let all = (0..processes.len()).all(|i| self.board.get(word::PROGRESS + i) > TURNS_MIN)
                && self.given_back().into_iter().all(|count| count > GIVEN_BACK_MIN);
            if elapsed > time && (all || elapsed > time + HANG) {
                self.board.word(word::STOP).store(1, Ordering::SeqCst);
            }
            for index in 0..processes.len() {
                if !running[index] {
                    continue;
                }
                match children[index].try_wait().unwrap() {
                    Some(status) if status.success() => running[index] = false,
                    Some(status) => {
                        self.abort(&mut children, &format!("{:?}: {status}", processes[index]))
                    }
                    None => {}
                }
                let progress = self.board.get(word::PROGRESS + index);
                if progress != seen[index].0 {
                    seen[index] = (progress, elapsed);
                } else if running[index] && elapsed - seen[index].1 > HANG {
                    self.abort(&mut children, &format!("{:?} hangs", processes[index]));
                }
            }
        }
    }

    /// How many meta locks and how many data locks.
    fn given_back(&self) -> [u64; 2] {
        let counters = &self.server.counters;
        [&counters.meta, &counters.data].map(|count| count.load(Ordering::Relaxed))
    }

    fn report(&self, processes: &[(&str, usize, usize)]) {
        let mut stale = 0;
        for (index, (role, mount, _)) in processes.iter().enumerate() {
            let get = |word| self.board.get(word + index);
            stale += get(word::STALE);
            println!(
                "shown: {role:13} mount {mount}: {:8} turns, {:8} checks, {} stale",
                get(word::PROGRESS),
                get(word::CHECKED),
                get(word::STALE)
            );
            assert!(get(word::PROGRESS) > TURNS_MIN, "{role} did next to nothing");
        }
        let c = &self.server.counters;
        let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let (meta, data, rounds) =
            (get(&c.meta).max(1), get(&c.data).max(1), get(&c.rounds).max(1));
        println!(
            "shown: meta locks given back: {meta} (epoch {:.1} us, attributes {:.1} us), unknown {}",
            get(&c.epoch_ns) as f64 / 1e3 / meta as f64,
            get(&c.attr_ns) as f64 / 1e3 / meta as f64,
            get(&c.unknown)
        );
        println!(
            "shown: data locks given back: {data}, {:.2} ms each, at most {:.0} ms",
            get(&c.data_ns) as f64 / 1e6 / data as f64,
            get(&c.data_max_ns) as f64 / 1e6
        );
        println!(
            "shown: rounds: {:.3} each, at most {} (pages {:.1} us, at most {:.1} ms)",
            rounds as f64 / data as f64,
            get(&c.rounds_max),
            get(&c.pages_ns) as f64 / 1e3 / rounds as f64,
            get(&c.pages_max_ns) as f64 / 1e6
        );
        println!(
            "held back: in rounds {} (tired {}), between rounds {} (tired {}), at most {:.1} ms",
            get(&c.waits),
            get(&c.waits_tired),
            get(&c.drains),
            get(&c.drains_tired),
            get(&c.found_max_ns) as f64 / 1e6
        );
        assert!(meta > GIVEN_BACK_MIN && data > GIVEN_BACK_MIN, "hardly anything was revoked");
        assert_eq!(stale, 0);
    }

    /// Every line appended is in the log once and whole.
    fn check_log(&self, processes: &[(&str, usize, usize)]) {
        let log = fs::read_to_string(self.base.join("0/log")).unwrap();
        let mut next = vec![1; processes.len()];
        for line in log.lines() {
            assert_eq!(line.len() + 1, LINE);
            let mut words = line.split_whitespace().map(|word| word.parse::<usize>().unwrap());
            let (who, version) = (words.next().unwrap(), words.next().unwrap());
            assert_eq!(version, next[who], "line of process {who}");
            next[who] += 1;
        }
        for (index, (role, ..)) in processes.iter().enumerate() {
            if *role == "append" {
                assert_eq!(next[index] as u64 - 1, self.board.get(word::SEEN + index));
            }
        }
    }
}

impl Drop for Test {
    fn drop(&mut self) {
        self.sessions.clear();
        let _ = fs::remove_dir_all(&self.base);
    }
}

fn run(name: &str, transport: TransportChoice) {
    let seconds = std::env::var("COHERENCE_SECONDS").ok().and_then(|text| text.parse().ok());
    let time = Duration::from_secs_f64(seconds.unwrap_or(SECONDS_DEFAULT));
    let test = Test::new(name, transport);
    println!("transport {}", test.sessions[0].transport().name());
    let processes = PROCESSES;
    fs::write(test.base.join("0/mapped"), vec![0; 64 * 4096]).unwrap();
    fs::write(test.base.join("1/records"), vec![0; 16 * load::RECORD]).unwrap();
    fs::write(test.base.join("0/log"), "").unwrap();
    let mut children = Vec::new();
    for (index, process) in processes.iter().enumerate() {
        children.push(test.start(index, *process));
        if process.0 == "mkdir" {
            while !test.base.join(format!("0/m{index}")).exists() {
                std::thread::yield_now();
            }
        }
    }
    test.drive(children, &processes, time);
    test.report(&processes);
    test.check_log(&processes);
}

#[test]
fn classic() {
    run("coherence-classic", TransportChoice::Classic);
}

#[test]
fn uring() {
    run("coherence-uring", TransportChoice::Uring);
}

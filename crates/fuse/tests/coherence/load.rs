//! What the processes in the two mounts do, and how they know what is stale.
//!
//! Each process announces in memory shared by all what it has made visible, and
//! counts its progress there; a reader takes the announcement before it looks,
//! so that anything older is stale. Processes, not threads: a page fault of the
//! process that serves it would wait for itself.
use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Length of a record: IO500's unaligned size.
pub const RECORD: usize = 47008;
/// Length of a line of the log.
pub const LINE: usize = 64;
const WORDS: usize = 512;
const PAGE: usize = 4096;

/// Words of the shared memory.
pub mod word {
    /// Set to end the load.
    pub const STOP: usize = 0;
    /// One per process: operations done.
    pub const PROGRESS: usize = 8;
    /// One per process: versions announced (lines appended, names renamed...).
    pub const SEEN: usize = 64;
    /// One per process: things found stale.
    pub const STALE: usize = 128;
    /// One per process: things checked.
    pub const CHECKED: usize = 192;
}

/// Memory shared by all processes of a test: an array of counters. Never in a file on a disk: a
/// store would wait for a disk that is busy, and look like a process that hangs.
pub struct Board {
    words: *mut AtomicU64,
    file: File,
}

// SAFETY: the counters are atomic and the mapping is never undone.
unsafe impl Send for Board {}
// SAFETY: as above.
unsafe impl Sync for Board {}

impl Board {
    pub fn new() -> Board {
        let file: File = memfd_create("board", MemfdFlags::CLOEXEC).unwrap().into();
        file.set_len((WORDS * 8) as u64).unwrap();
        Board { words: map(&file, WORDS * 8, true).cast(), file }
    }

    /// The board of a process that runs, by its `path`.
    pub fn open(path: &Path) -> Board {
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        Board { words: map(&file, WORDS * 8, true).cast(), file }
    }

    /// Where other processes find it while this one lives.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    pub fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < WORDS);
        // SAFETY: within the mapping, which is page-aligned and shared as
        // atomics by everybody.
        unsafe { &*self.words.add(index) }
    }

    pub fn get(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::SeqCst)
    }

    fn add(&self, index: usize) {
        self.word(index).fetch_add(1, Ordering::SeqCst);
    }
}

/// Maps a file shared; stays mapped for the life of the process.
pub fn map(file: &File, len: usize, write: bool) -> *mut u8 {
    let access = if write { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
    let fd = file.as_raw_fd();
    // SAFETY: a new mapping at an address the kernel chooses.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, fd, 0) };
    assert!(at != libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
    at.cast()
}

/// One process of the load.
pub struct Load {
    pub board: Board,
    pub dir: PathBuf,
    /// Index of this process.
    pub me: usize,
    /// Index of the process on the other mount whose announcements it checks.
    pub peer: usize,
}

impl Load {
    pub fn run(&self, role: &str) {
        match role {
            "record_write" => self.record_write(),
            "record_read" => self.record_read(),
            "map_write" => self.map_write(),
            "map_read" => self.map_read(),
            "append" => self.append(),
            "rename" => self.rename(),
            "names_read" => self.names_read(),
            "mkdir" => self.mkdir(),
            "dirs_read" => self.dirs_read(),
            "size_read" => self.size_read(),
            other => panic!("no role {other}"),
        }
    }

    fn each(&self, mut body: impl FnMut(u64)) {
        let mut turn = 1;
        while self.board.get(word::STOP) == 0 {
            body(turn);
            self.board.add(word::PROGRESS + self.me);
            turn += 1;
        }
    }

    fn announce(&self, version: u64) {
        self.board.word(word::SEEN + self.me).store(version, Ordering::SeqCst);
    }

    fn announced(&self) -> u64 {
        self.board.get(word::SEEN + self.peer)
    }

    fn check(&self, fresh: bool, what: &str, detail: impl Fn() -> String) {
        self.board.add(word::CHECKED + self.me);
        if !fresh {
            self.board.add(word::STALE + self.me);
            eprintln!("stale {what}: {}", detail());
        }
    }

    fn open(&self, name: &str) -> File {
        let mut options = OpenOptions::new();
        let path = self.dir.join(name);
        options.read(true).write(true).create(true).truncate(false).open(path).unwrap()
    }

    /// Writes the version all over a record that nobody else writes.
    fn record_write(&self) {
        let file = self.open("records");
        self.each(|version| {
            let bytes: Vec<u8> = version.to_ne_bytes().repeat(RECORD / 8);
            file.write_all_at(&bytes, (self.me * RECORD) as u64).unwrap();
            self.announce(version);
        });
    }

    /// Reads the peer's record, through an old descriptor and a new one.
    fn record_read(&self) {
        let old = self.open_read("records");
        self.each(|turn| {
            let new = turn.is_multiple_of(2).then(|| File::open(self.dir.join("records")).unwrap());
            let version = self.announced();
            let mut bytes = vec![0; RECORD];
            let at = (self.peer * RECORD) as u64;
            let file = new.as_ref().unwrap_or(&old);
            if version == 0 || file.read_exact_at(&mut bytes, at).is_err() {
                self.check(version == 0, "record", || "shorter than written".into());
                return;
            }
            let oldest = words(&bytes).min().unwrap();
            self.check(oldest >= version, "record", || format!("{oldest}, announced {version}"));
        });
    }

    fn open_read(&self, name: &str) -> File {
        let path = self.dir.join(name);
        while !path.exists() {
            std::thread::yield_now();
        }
        File::open(path).unwrap()
    }

    /// Stores the version into a mapped page; no system call tells anybody.
    fn map_write(&self) {
        let file = self.open("mapped");
        let slots = map(&file, 64 * PAGE, true);
        // SAFETY: within the mapping; others only read this word.
        let slot = unsafe { &*slots.add(self.me * PAGE).cast::<AtomicU64>() };
        self.each(|version| {
            slot.store(version, Ordering::SeqCst);
            self.announce(version);
        });
    }

    /// Reads the peer's page, by mapping and by read in turn.
    fn map_read(&self) {
        let file = self.open_read("mapped");
        let slots = map(&file, 64 * PAGE, false);
        // SAFETY: within the mapping, whose file is as long.
        let slot = unsafe { &*slots.add(self.peer * PAGE).cast::<AtomicU64>() };
        self.each(|turn| {
            let version = self.announced();
            let found = if turn.is_multiple_of(2) {
                slot.load(Ordering::SeqCst)
            } else {
                let mut bytes = [0; 8];
                file.read_exact_at(&mut bytes, (self.peer * PAGE) as u64).unwrap();
                u64::from_ne_bytes(bytes)
            };
            self.check(found >= version, "page", || format!("{found}, announced {version}"));
        });
    }

    /// Appends lines; the test checks at the end that each is there once.
    fn append(&self) {
        let mut options = OpenOptions::new();
        let path = self.dir.join("log");
        let mut file = options.append(true).create(true).open(path).unwrap();
        self.each(|version| {
            let line = format!("{:>4} {version:>58}\n", self.me);
            assert_eq!(line.len(), LINE);
            file.write_all(line.as_bytes()).unwrap();
            self.announce(version);
        });
    }

    /// The file must be at least as long as the lines announced.
    fn size_read(&self) {
        let file = self.open_read("log");
        self.each(|turn| {
            let lines = self.announced();
            let by_name = turn.is_multiple_of(2);
            let metadata =
                if by_name { fs::metadata(self.dir.join("log")) } else { file.metadata() };
            let len = metadata.unwrap().len();
            self.check(len >= lines * LINE as u64, "size", || format!("{len}, lines {lines}"));
        });
    }

    /// One name that moves on for ever; no name comes twice.
    fn rename(&self) {
        let name = |version: u64| self.dir.join(format!("r{}.{version}", self.me));
        File::create_new(name(0)).unwrap();
        self.each(|version| {
            fs::rename(name(version - 1), name(version)).unwrap();
            self.announce(version);
        });
    }

    fn names_read(&self) {
        let name = |version: u64| {
            CString::new(format!("{}/r{}.{version}", self.dir.display(), self.peer)).unwrap()
        };
        let there = |version| {
            // SAFETY: the path is a C string.
            unsafe { libc::access(name(version).as_ptr(), libc::F_OK) == 0 }
        };
        self.each(|_| {
            let version = self.announced();
            if version == 0 {
                return;
            }
            self.check(!there(version - 1), "old name", || format!("{}", version - 1));
            // It may have been renamed just before that is announced, or more
            // often; the announcement is looked at last.
            let fresh = there(version) || there(version + 1) || self.announced() > version;
            self.check(fresh, "new name", || format!("{version}"));
            // Not there yet, most likely: the negative entry must go in time.
            there(version + 2);
        });
    }

    fn mkdir(&self) {
        let root = self.dir.join(format!("m{}", self.me));
        fs::create_dir(&root).unwrap();
        self.each(|version| {
            fs::create_dir(root.join(version.to_string())).unwrap();
            self.announce(version);
            if version > 8 {
                fs::remove_dir(root.join((version - 8).to_string())).unwrap();
            }
        });
    }

    /// A directory announced is in the listing, unless it is old enough to go.
    fn dirs_read(&self) {
        let root = self.dir.join(format!("m{}", self.peer));
        self.each(|turn| {
            let version = self.announced();
            if version == 0 {
                return;
            }
            let path = root.join(version.to_string());
            let found = if turn.is_multiple_of(2) {
                path.exists()
            } else {
                let all = fs::read_dir(&root).unwrap();
                all.map(|entry| entry.unwrap().path()).any(|entry| entry == path)
            };
            let gone = self.announced() >= version + 7;
            self.check(found || gone, "directory", || format!("{version}"));
        });
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
}

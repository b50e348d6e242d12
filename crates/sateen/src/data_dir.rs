//! The data folder: what lies where, whose it is, and that only one process uses it.
//!
//! | entry | is |
//! |---|---|
//! | `lock` | says that the folder is Sateen's; locked (flock) by the process that serves or checks it, and holds its pid |
//! | `mgt`, `mdt0000`…, `ost0000`… | the targets |
//! | `mnt` | the default mount point |
//! | `control.sock` | where the serving process takes commands |
//! | `guard.lock` | held by the guard of the serving process |
//! | `state.json` | what the serving process was, or how it ended |
//! | `log`, `log.old` | its log |
//!
//! Others may pass through it, because `mnt` lies in it; what else is in it is its owner's. The
//! locks, too: whoever may open a file may lock it, and keep a file system from starting.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};

use crate::refusal::{Outcome, Refusal};

/// First line of the lock file.
const OURS: &str = "sateen data folder\n";
/// Longest lock file that is read.
const LOCK_BYTES_MAX: u64 = 4096;
/// What stands behind the pid of a process that only checks.
const CHECKS: &str = "fsck";
/// For so long somebody may look who has the lock, and share it meanwhile: an instant, unless
/// others keep him from the processor.
const LOOK_MAX: Duration = Duration::from_secs(10);
/// For so long a lock that is not shared may be that of somebody who removes what is old.
const REMOVAL_MAX: Duration = Duration::from_millis(50);
/// How long to wait before trying to lock again.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// A data folder, by its absolute path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DataDir {
    path: PathBuf,
}

/// The lock on a data folder; dropping it, or the death of the process, gives it back.
#[derive(Debug)]
pub(crate) struct DataLock {
    _file: File,
}

/// Who uses a data folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    /// Nobody.
    Nobody,
    /// A process; its pid, if it has written it down yet.
    Process(Option<u32>),
    /// One that only checks it.
    Checker(u32),
}

impl DataDir {
    /// The folder at this path, which need not exist.
    pub(crate) fn at(path: &Path) -> Outcome<DataDir> {
        let path = std::path::absolute(path)
            .map_err(|error| Refusal::io(format!("resolve {}", path.display()), &error))?;
        Ok(DataDir { path })
    }

    /// The folder's path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Something in the folder.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Where it is mounted if nothing else is said.
    pub(crate) fn default_mount(&self) -> PathBuf {
        self.join("mnt")
    }

    /// Refuses a folder that is not a file system's.
    pub(crate) fn require(&self) -> Outcome<()> {
        self.refuse_a_target()?;
        match self.is_ours() {
            Ok(true) => Ok(()),
            Ok(false) => Err(Refusal::new(
                format!("{} holds no Sateen file system", self.path.display()),
                "name its data folder with --data DIR, or make one with: sateen up --data DIR; \
                 a mount (MOUNT) or a cluster (NID:/FSNAME) is looked at with: sateen status MOUNT",
            )),
            Err(error) => Err(Refusal::io(format!("read {}", self.path.display()), &error)),
        }
    }

    /// Refuses a folder that is a single target, which is locked like a data folder.
    pub(crate) fn refuse_a_target(&self) -> Outcome<()> {
        let data = self.path.display();
        if !self.join("label").exists() {
            return Ok(());
        }
        Err(Refusal::new(
            format!("{data} is one target of a file system, not a data folder"),
            format!(
                "serve it with: sateen serve {data}; end that by its process (or systemctl stop); \
                 choose another folder for: sateen up --data DIR"
            ),
        ))
    }

    /// Makes the folder if there is none, and locks it.
    pub(crate) fn open(&self) -> Outcome<DataLock> {
        self.open_as("")
    }

    /// The same, for `fsck`.
    pub(crate) fn open_to_check(&self) -> Outcome<DataLock> {
        self.open_as(CHECKS)
    }

    fn open_as(&self, role: &str) -> Outcome<DataLock> {
        let shown = self.path.display();
        make_durably(&self.path)
            .map_err(|error| Refusal::io(format!("make the data folder {shown}"), &error))?;
        let failed = |error| Refusal::io(format!("use the data folder {shown}"), &error);
        if !self.is_ours().map_err(failed)? && !self.is_empty().map_err(failed)? {
            return Err(Refusal::new(
                format!("{shown} is not empty, and what is in it is not Sateen's"),
                "choose a new or an empty folder with --data DIR",
            ));
        }
        let mut file = open_lock(&self.join("lock")).map_err(failed)?;
        if !try_lock(&file).map_err(failed)? {
            return Err(self.in_use());
        }
        if !is_at(&file, &self.join("lock")).map_err(failed)? {
            // Whoever had it has removed the folder.
            return self.open_as(role);
        }
        let text = format!("{OURS}{} {role}", std::process::id());
        let text = format!("{}\n", text.trim_end());
        // Never empty, not even for a moment: an empty lock beside targets is not one of ours.
        let written = file.write_all(text.as_bytes());
        written.and_then(|()| file.set_len(text.len() as u64)).map_err(failed)?;
        file.sync_all().and_then(|()| sync_dir(&self.path)).map_err(failed)?;
        Ok(DataLock { _file: file })
    }

    fn in_use(&self) -> Refusal {
        let by = match read_user(&self.join("lock")) {
            User::Process(Some(pid)) => format!(" by process {pid}"),
            User::Checker(pid) => return self.is_checked(pid),
            User::Process(None) | User::Nobody => String::new(),
        };
        let data = self.path.display();
        Refusal::new(
            format!("the file system in {data} is already running{by}"),
            format!(
                "see it with: sateen status --data {data}; stop it with: sateen down --data {data}"
            ),
        )
    }

    /// What is said to whoever wants something of it while it is checked.
    pub(crate) fn is_checked(&self, pid: u32) -> Refusal {
        Refusal::new(
            format!("process {pid} checks the file system in {}", self.path.display()),
            "wait until that has ended (sateen fsck), or end it",
        )
    }

    /// Whether this process holds the lock, as the kernel has it: what stands in the file may by
    /// now be somebody else's number, or be one of another PID namespace.
    pub(crate) fn is_locked_by(&self, pid: u32) -> bool {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let (Ok(lock), Ok(open)) = (fs::metadata(self.join("lock")), process.join("fd").read_dir())
        else {
            return false;
        };
        open.flatten().any(|entry| {
            let info = fs::read_to_string(process.join("fdinfo").join(entry.file_name()));
            // Only then: a look at any other file of its may wait for a mount that hangs.
            let locked = info.is_ok_and(|info| info.lines().any(is_exclusive));
            locked
                && fs::metadata(entry.path())
                    .is_ok_and(|file| (file.dev(), file.ino()) == (lock.dev(), lock.ino()))
        })
    }

    /// Who holds the lock now.
    pub(crate) fn user(&self) -> io::Result<User> {
        let path = self.join("lock");
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(User::Nobody),
            Err(error) => return Err(error),
        };
        // A shared lock, so that two who only look do not see each other.
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(User::Nobody),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(read_user(&path)),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until nobody holds the lock; false after `timeout`.
    pub(crate) fn wait_unused(&self, timeout: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + timeout;
        while self.user()? != User::Nobody {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(true)
    }

    fn is_ours(&self) -> io::Result<bool> {
        let mut text = String::new();
        match File::open(self.join("lock")) {
            Ok(file) => file.take(LOCK_BYTES_MAX).read_to_string(&mut text)?,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        // An empty one is from a start that was cut off before it had done anything.
        Ok(text.starts_with(OURS) || (text.is_empty() && self.holds_only_lock()?))
    }

    fn holds_only_lock(&self) -> io::Result<bool> {
        for entry in fs::read_dir(&self.path)? {
            if entry?.file_name() != "lock" {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_empty(&self) -> io::Result<bool> {
        Ok(fs::read_dir(&self.path)?.next().is_none())
    }
}

/// Makes a folder with its parents, all names durable: what is synced inside a folder is lost
/// with the folder's own name.
pub(crate) fn make_durably(path: &Path) -> io::Result<()> {
    let Some(parent) = path.parent() else { return Ok(()) };
    if !path.is_dir() {
        make_durably(parent)?;
        match DirBuilder::new().mode(0o755).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if !path.is_dir() {
                    return Err(io::ErrorKind::NotADirectory.into());
                }
            }
            other => other?,
        }
    }
    // Also if it exists: whoever made it may have died before.
    sync_dir(parent)
}

/// Locks a file for this process alone; false if another has it.
fn try_lock(file: &File) -> io::Result<bool> {
    let begun = Instant::now();
    loop {
        if take(file, FlockOperation::NonBlockingLockExclusive)? {
            return Ok(true);
        }
        // Those who only look share it.
        let is_shared = take(file, FlockOperation::NonBlockingLockShared)?;
        if is_shared {
            flock(file, FlockOperation::Unlock)?;
        }
        if begun.elapsed() >= if is_shared { LOOK_MAX } else { REMOVAL_MAX } {
            return Ok(false);
        }
        std::thread::sleep(LOCK_PAUSE);
    }
}

/// Whether a lock was there to be had at once.
fn take(file: &File, lock: FlockOperation) -> io::Result<bool> {
    match flock(file, lock) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Who has locked a lock file that is locked.
fn read_user(path: &Path) -> User {
    let mut text = String::new();
    let read =
        File::open(path).and_then(|file| file.take(LOCK_BYTES_MAX).read_to_string(&mut text));
    let said = text.strip_prefix(OURS).filter(|_| read.is_ok()).unwrap_or_default();
    let mut words = said.split_whitespace();
    match (words.next().and_then(|pid| pid.parse().ok()), words.next()) {
        (Some(pid), Some(CHECKS)) => User::Checker(pid),
        (pid, _) => User::Process(pid),
    }
}

/// Whether a line of a file's fdinfo is that of a lock of flock(2) that nobody shares.
fn is_exclusive(line: &str) -> bool {
    let mut words = line.split_whitespace().skip(1);
    line.starts_with("lock:") && words.any(|word| word == "FLOCK") && words.any(|w| w == "WRITE")
}

/// Whether an open file is the one that has this name.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (open.dev(), open.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Opens a lock file, which nobody else may.
pub(crate) fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(path)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Makes names in a folder durable.
pub(crate) fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Opens a log in a data folder to append to it.
pub(crate) fn open_log(path: &Path) -> io::Result<File> {
    let log = File::options().append(true).create(true).mode(0o600).open(path)?;
    // It may be a link to something that is everybody's, as /dev/null.
    if log.metadata()?.is_file() {
        log.set_permissions(fs::Permissions::from_mode(0o600))?;
    }
    Ok(log)
}

/// Writes a small file of its owner's so that a crash leaves the old one or the new one, durably.
pub(crate) fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(true).mode(0o600);
    // What it overwrites is what it has made itself.
    options.custom_flags(OFlags::NOFOLLOW.bits() as i32);
    let mut file = options.open(&temporary)?;
    // Also if it was made otherwise.
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    file.write_all(bytes)?;
    file.rewind()?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    sync_dir(path.parent().unwrap_or(Path::new("/")))
}

/// Writes over a small file that is there, durably: what a crash leaves of it is neither the old one
/// nor the new one.
pub(crate) fn write_in_place(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = File::options();
    let mut file = options.write(true).custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path)?;
    file.write_all(bytes)?;
    file.set_len(bytes.len() as u64)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn a_folder_is_made_locked_and_given_back() {
        let scratch = Scratch::new("data");
        let data = DataDir::at(&scratch.path().join("a/b")).unwrap();
        assert_eq!(data.user().unwrap(), User::Nobody);
        let lock = data.open().unwrap();
        assert_eq!(data.user().unwrap(), User::Process(Some(std::process::id())));
        let second = data.open().unwrap_err();
        assert!(second.what.contains(&format!("process {}", std::process::id())), "{second}");
        assert!(second.hint.contains("sateen down"));
        drop(lock);
        assert_eq!(data.user().unwrap(), User::Nobody);
        data.require().unwrap();
        let _lock = data.open_to_check().unwrap();
        assert_eq!(data.user().unwrap(), User::Checker(std::process::id()));
        assert!(data.open().unwrap_err().what.contains("checks the file system"));
    }

    #[test]
    fn the_kernel_says_who_holds_the_lock() {
        let scratch = Scratch::new("held");
        let data = DataDir::at(scratch.path()).unwrap();
        let me = std::process::id();
        assert!(!data.is_locked_by(me), "there is none");
        let lock = data.open().unwrap();
        assert!(data.is_locked_by(me) && !data.is_locked_by(1) && !data.is_locked_by(u32::MAX));
        drop(lock);
        assert!(!data.is_locked_by(me), "it is there, and nobody has it");
        let file = File::open(data.join("lock")).unwrap();
        flock(&file, FlockOperation::NonBlockingLockShared).unwrap();
        assert!(!data.is_locked_by(me), "a shared one is that of somebody who looks");
    }

    #[test]
    fn a_long_look_keeps_nobody_from_starting() {
        let scratch = Scratch::new("look");
        let data = DataDir::at(scratch.path()).unwrap();
        drop(data.open().unwrap());
        let look = File::open(data.join("lock")).unwrap();
        flock(&look, FlockOperation::NonBlockingLockShared).unwrap();
        let looking = std::thread::spawn(move || {
            std::thread::sleep(4 * REMOVAL_MAX);
            drop(look);
        });
        let lock = data.open().unwrap();
        looking.join().unwrap();
        assert_eq!(data.user().unwrap(), User::Process(Some(std::process::id())));
        drop(lock);
    }

    #[test]
    fn locks_are_their_owners() {
        let scratch = Scratch::new("modes");
        let path = scratch.path().join("lock");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        drop(open_lock(&path).unwrap());
        assert_eq!(mode(), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        drop(open_lock(&path).unwrap());
        assert_eq!(mode(), 0o600, "also one that was made otherwise");
    }

    #[test]
    fn a_folder_of_others_is_refused() {
        let scratch = Scratch::new("others");
        fs::write(scratch.path().join("thesis.tex"), b"...").unwrap();
        let data = DataDir::at(scratch.path()).unwrap();
        assert!(data.open().unwrap_err().what.contains("not empty"));
        assert!(data.require().is_err());
        let file = DataDir::at(&scratch.path().join("thesis.tex/data")).unwrap();
        assert!(file.open().unwrap_err().hint.contains("file"));
        fs::write(scratch.path().join("lock"), b"").unwrap();
        assert!(data.open().is_err(), "an empty lock file beside a thesis");
    }

    #[test]
    fn nothing_is_overwritten_through_a_link() {
        let scratch = Scratch::new("link");
        let (letter, state) = (scratch.path().join("letter"), scratch.path().join("state.json"));
        fs::write(&letter, b"Dear").unwrap();
        std::os::unix::fs::symlink(&letter, scratch.path().join("state.new")).unwrap();
        assert!(write_durably(&state, b"{}").is_err());
        assert_eq!(fs::read(&letter).unwrap(), b"Dear");
        fs::remove_file(scratch.path().join("state.new")).unwrap();
        write_durably(&state, b"{}").unwrap();
        assert_eq!(fs::read(&state).unwrap(), b"{}");
    }

    #[test]
    fn a_start_that_was_cut_off_is_no_obstacle() {
        let scratch = Scratch::new("cut");
        fs::write(scratch.path().join("lock"), b"").unwrap();
        DataDir::at(scratch.path()).unwrap().open().unwrap();
    }
}

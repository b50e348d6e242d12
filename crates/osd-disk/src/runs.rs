//! Runs of a target of which nothing is lost, though they did not end in good order.
//!
//! A server that is killed leaves what it has written in the kernel's page cache. As long as the
//! machine is not started anew, and the file system below stays mounted, all of it is there for the
//! next run, whose start writes it out. So each run writes down, in the file `runs` of the target's
//! folder, under which kernel and which mount of the file system it is; the next one compares.
//!
//! What could make that wrong, and what is done about it:
//! - The power goes, or the kernel dies: its boot id is another one.
//! - The file system below is mounted anew, after a disk has gone and come back, or a snapshot was
//!   put in its place: its folder in `/sys/fs` is another one. (The kernel numbers these folders in
//!   order, over all mount and network namespaces, and uses no number again.)
//! - The disk could not write something. The kernel says so to the first who asks, and whoever of us
//!   that is, a store, a start, a stop or `fsck`, removes the file, and those of the targets beside it
//!   ([`forget_beside`]): only they ask with `syncfs`. What another program hears by a `syncfs` of its
//!   own (`sync -f`), between the death of a server and its next start, stays unknown; so it does
//!   where targets on one disk are not beside each other, in one folder. Linux before 5.8 says
//!   nothing, and is not believed.
//! - The folder was filled from a backup: the file names its own number and the time of its birth,
//!   which nobody can set.
//! - The file system below is a program that may have died itself (FUSE), or lies elsewhere: only
//!   those are trusted that have such a folder, and a disk of their own: ext4, XFS and F2FS.
//!
//! The file need not be durable: where it could be lost it says nothing.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rustix::fs::syncfs;

use crate::folder::TargetFolder;

/// The file in a target's folder.
pub const FILE: &str = "runs";
/// The same, being written.
pub const FILE_NEW: &str = "runs.new";

/// Runs that are remembered, also those of servers that were refused soon after they had begun. A
/// client that has been away for more takes what it wrote for lost.
const RUNS_MAX: usize = 400;
/// Longest file that is read.
const BYTES_MAX: u64 = 8 << 10;
/// Its first line.
const TITLE: &str = "sateen runs 1";

/// What a target's folder says of its runs.
#[derive(Debug)]
pub struct Runs {
    path: PathBuf,
    /// Kernel and mount; `None` where they cannot be told.
    here: Option<String>,
    /// Boot epochs, the last run last.
    epochs: Vec<u64>,
}

impl Runs {
    /// Those that this kernel has seen on this mount. None if there is any doubt.
    pub fn of(folder: &TargetFolder) -> Runs {
        let path = folder.path().join(FILE);
        let here = here(&folder.objects());
        let epochs = match (&here, read(&path)) {
            (Some(here), Ok((text, file))) => parse(&text, here, &file).unwrap_or_default(),
            _ => Vec::new(),
        };
        Runs { path, here, epochs }
    }

    /// Boot epochs of the runs of which nothing is lost, the last one last.
    pub(crate) fn survived(&self) -> &[u64] {
        &self.epochs
    }

    /// A run begins. If that cannot be written down the next one knows of none.
    ///
    /// # Errors
    /// The file system's, if what there was cannot be removed either.
    pub(crate) fn begin(&self, boot_epoch: u64) -> io::Result<()> {
        let Some(here) = &self.here else { return self.forget() };
        let new = self.path.with_file_name(FILE_NEW);
        let written = forget(&new).and_then(|()| File::create_new(&new)).and_then(|mut file| {
            let mut text = format!("{TITLE}\n{here}\n{}\n", which(&file)?);
            let all = self.epochs.iter().chain([&boot_epoch]);
            for epoch in all.skip((self.epochs.len() + 1).saturating_sub(RUNS_MAX)) {
                let _ = writeln!(text, "{epoch:016x}");
            }
            file.write_all(text.as_bytes())
        });
        written.and_then(|()| fs::rename(&new, &self.path)).or_else(|error| {
            tracing::warn!(%error, path = %self.path.display(), "cannot note the run");
            self.forget()
        })
    }

    /// Something may be lost, of this run or of one before.
    ///
    /// # Errors
    /// The file system's.
    pub fn forget(&self) -> io::Result<()> {
        forget(&self.path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Writes out all that is on the file system of a target.
///
/// # Errors
/// The file system's, which it says once; no target beside this one counts as kept then.
pub fn sync_below(target: &Path) -> io::Result<()> {
    let synced = File::open(target).and_then(|folder| Ok(syncfs(folder)?));
    synced_below(target, synced)
}

/// The same by a descriptor of it that has been there for long: a fresh one is not told of an error
/// that somebody else was told.
///
/// # Errors
/// As [`sync_below`].
pub(crate) fn sync_below_by(open: &File, target: &Path) -> io::Result<()> {
    synced_below(target, syncfs(open).map_err(io::Error::from))
}

fn synced_below(target: &Path, synced: io::Result<()>) -> io::Result<()> {
    if synced.is_err() {
        forget_beside(target)?;
    }
    synced
}

/// The disk below a target could not write something, which may be of any target there is beside it:
/// all their runs are forgotten.
///
/// # Errors
/// The file system's.
pub(crate) fn forget_beside(target: &Path) -> io::Result<()> {
    let own = forget(&target.join(FILE));
    let Some(parent) = target.parent() else { return own };
    let mut others = Ok(());
    for entry in fs::read_dir(parent)? {
        others = others.and(forget(&entry?.path().join(FILE)));
    }
    own.and(others)
}

/// Removes a file of runs.
pub(crate) fn forget(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            Ok(())
        }
        other => other,
    }
}

/// What is in a file, and which it is.
fn read(path: &Path) -> io::Result<(String, String)> {
    let mut text = String::new();
    let file = File::open(path)?;
    let which = which(&file)?;
    file.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok((text, which))
}

/// Which file it is: a copy is another one.
fn which(file: &File) -> io::Result<String> {
    let meta = file.metadata()?;
    let born = meta.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    Ok(format!("file {}, born {}", meta.ino(), born.unwrap_or_default().as_nanos()))
}

/// The runs in a file, if it is whole and was written here.
fn parse(text: &str, here: &str, file: &str) -> Option<Vec<u64>> {
    let rest = text.strip_prefix(TITLE)?.strip_prefix('\n')?;
    let rest = rest.strip_prefix(here)?.strip_prefix('\n')?;
    let rest = rest.strip_prefix(file)?.strip_prefix('\n')?;
    let mut epochs = Vec::new();
    for line in rest.strip_suffix('\n')?.split('\n') {
        epochs.push(u64::from_str_radix(line, 16).ok().filter(|_| line.len() == 16)?);
    }
    (epochs.len() <= RUNS_MAX).then_some(epochs)
}

/// Which kernel this is, and which mount of which file system a folder is on.
fn here(folder: &Path) -> Option<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    if !tells_of_errors(&release) {
        return None;
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let meta = fs::metadata(folder).ok()?;
    let kind = match rustix::fs::statfs(folder).ok()?.f_type.cast_unsigned() {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0xf2f5_2010 => "f2fs",
        _ => return None,
    };
    let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    let device = fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let mounted = Path::new("/sys/fs").join(kind).join(device.file_name()?);
    let mounted = fs::metadata(mounted).ok()?.ino();
    let (boot, ino) = (boot.trim(), meta.ino());
    Some(format!("boot {boot}, {kind} {major}:{minor} mounted as {mounted}, folder {ino}"))
}

/// Whether `syncfs` of this Linux tells of data that could not be written: since 5.8.
fn tells_of_errors(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (5, 8),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::FolderError;
    use crate::testing::{Scratch, SmallDisk};

    /// A folder that nobody has, but perhaps for a moment a program that another test starts: until it
    /// runs it has what this process had open, and the lock with it.
    fn target(path: &Path) -> TargetFolder {
        let mut tries = 0;
        let folder = loop {
            match TargetFolder::open(path) {
                Err(FolderError::InUse { .. }) if tries < 500 => {
                    tries += 1;
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                folder => break folder.unwrap(),
            }
        };
        fs::create_dir_all(folder.objects()).unwrap();
        folder
    }

    #[test]
    fn runs_are_known_as_long_as_the_file_system_stays_mounted() {
        let scratch = Scratch::new("runs");
        let image = scratch.path().join("image");
        File::create(&image).unwrap().set_len(32 << 20).unwrap();
        let mount = |name: &str| {
            let point = scratch.path().join(name);
            fs::create_dir_all(&point).unwrap();
            SmallDisk::ext4_in(&image, point)
        };
        let Some(disk) = mount("first") else { return };
        let path = disk.0.join("ost0");
        assert_eq!(Runs::of(&target(&path)).survived(), [0_u64; 0]);
        for run in 1..=RUNS_MAX as u64 + 5 {
            let folder = target(&path);
            let runs = Runs::of(&folder);
            assert_eq!(runs.survived().last().copied().unwrap_or(0), run - 1);
            runs.begin(run).unwrap();
        }
        let all: Vec<u64> = (6..=RUNS_MAX as u64 + 5).collect();
        assert_eq!(Runs::of(&target(&path)).survived(), all);
        // A copy is another folder.
        fs::create_dir(disk.0.join("copy")).unwrap();
        let copy = target(&disk.0.join("copy"));
        fs::copy(path.join(FILE), copy.path().join(FILE)).unwrap();
        assert_eq!(Runs::of(&copy).survived(), [0_u64; 0]);
        drop(copy);
        drop(disk);
        let disk = SmallDisk::mounted(&image, scratch.path().join("first")).unwrap();
        assert_eq!(Runs::of(&target(&disk.0.join("ost0"))).survived(), [0_u64; 0]);
    }

    #[test]
    fn what_was_forgotten_and_what_is_damaged_says_nothing() {
        let scratch = Scratch::new("runs-damaged");
        let Some(disk) = SmallDisk::ext4(&scratch, 32) else { return };
        let folder = target(&disk.0.join("ost0"));
        let runs = Runs::of(&folder);
        runs.begin(7).unwrap();
        runs.forget().unwrap();
        runs.forget().unwrap();
        assert_eq!(Runs::of(&folder).survived(), [0_u64; 0]);
        runs.begin(7).unwrap();
        let good = fs::read_to_string(runs.path()).unwrap();
        assert_eq!(Runs::of(&folder).survived(), [7]);
        let here = runs.here.clone().unwrap();
        let (_, file) = read(runs.path()).unwrap();
        assert_eq!(parse(&good, &here, &file), Some(vec![7]));
        for len in 0..good.len() {
            assert_eq!(parse(&good[..len], &here, &file), None, "{len}");
        }
        let more = good.clone() + "1\n";
        for bad in [good.replace("7\n", "g\n"), good.replace("runs 1", "runs 2"), more] {
            assert_eq!(parse(&bad, &here, &file), None, "{bad}");
        }
        let mounted_anew = here.replace("mounted as ", "mounted as 1");
        assert_ne!(mounted_anew, here);
        assert_eq!(parse(&good, &mounted_anew, &file), None);
        assert_eq!(parse(&good, &here, "file 1, born 0"), None);
        // From a backup.
        fs::remove_file(runs.path()).unwrap();
        fs::write(runs.path(), &good).unwrap();
        assert_eq!(Runs::of(&folder).survived(), [0_u64; 0]);
    }

    #[test]
    fn old_kernels_are_not_believed() {
        for (release, tells) in
            [("6.18.44-fc", true), ("5.8.0", true), ("5.4.0-150-generic", false), ("what", false)]
        {
            assert_eq!(tells_of_errors(release), tells, "{release}");
        }
    }

    #[test]
    fn file_systems_of_programs_and_of_memory_are_not_trusted() {
        let scratch = Scratch::new("runs-tmpfs");
        let Some(disk) = SmallDisk::new(&scratch, "4m") else { return };
        let folder = target(&disk.0.join("ost0"));
        Runs::of(&folder).begin(7).unwrap();
        assert_eq!(Runs::of(&folder).survived(), [0_u64; 0]);
        assert!(!folder.path().join(FILE).exists());
    }
}

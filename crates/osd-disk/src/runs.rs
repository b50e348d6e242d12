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
//! - The disk could not write something: whoever hears that first, the store or its start, removes
//!   the file ([`Runs::forget`]).
//! - The file system below is a program that may have died itself (FUSE), or lies elsewhere: only
//!   those are trusted that have such a folder, and a disk of their own: ext4, XFS and F2FS.
//!
//! The file need not be durable: where it could be lost it says nothing.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::folder::TargetFolder;

/// The file in a target's folder.
pub const FILE: &str = "runs";
/// The same, being written.
pub const FILE_NEW: &str = "runs.new";

/// Runs that are remembered. A client that has been away for more takes what it wrote for lost.
const RUNS_MAX: usize = 64;
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
            (Some(here), Ok(text)) => parse(&text, here).unwrap_or_default(),
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
        let mut text = format!("{TITLE}\n{here}\n");
        let all = self.epochs.iter().chain([&boot_epoch]);
        for epoch in all.skip((self.epochs.len() + 1).saturating_sub(RUNS_MAX)) {
            text.push_str(&format!("{epoch:016x}\n"));
        }
        let new = self.path.with_file_name(FILE_NEW);
        fs::write(&new, text).and_then(|()| fs::rename(&new, &self.path)).or_else(|error| {
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

/// Removes a file of runs.
pub(crate) fn forget(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// The runs in a file, if it is whole and was written here.
fn parse(text: &str, here: &str) -> Option<Vec<u64>> {
    let rest = text.strip_prefix(TITLE)?.strip_prefix('\n')?;
    let rest = rest.strip_prefix(here)?.strip_prefix('\n')?;
    let mut epochs = Vec::new();
    for line in rest.strip_suffix('\n')?.split('\n') {
        epochs.push(u64::from_str_radix(line, 16).ok().filter(|_| line.len() == 16)?);
    }
    (epochs.len() <= RUNS_MAX).then_some(epochs)
}

/// Which kernel this is, and which mount of which file system a folder is on.
fn here(folder: &Path) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, SmallDisk};

    fn target(path: &Path) -> TargetFolder {
        let folder = TargetFolder::open(path).unwrap();
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
        for len in 0..good.len() {
            assert_eq!(parse(&good[..len], &here), None, "{len}");
        }
        for bad in [good.replace('7', "g"), good.replace("runs 1", "runs 2"), good.clone() + "1\n"]
        {
            assert_eq!(parse(&bad, &here), None, "{bad}");
        }
        assert_eq!(parse(&good, "elsewhere"), None);
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

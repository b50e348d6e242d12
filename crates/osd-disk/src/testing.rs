//! What this crate's tests share.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that goes with the test.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let unique = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("sateen-osd-disk-{name}-{unique}"));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A small file system that goes with the test.
#[derive(Debug)]
pub(crate) struct SmallDisk(pub(crate) PathBuf);

impl SmallDisk {
    /// `None` if the test may not make one. In CI it must.
    pub(crate) fn new(scratch: &Scratch, size: &str) -> Option<SmallDisk> {
        if !rustix::process::geteuid().is_root() {
            sateen_testkit::skipped("needs root");
            return None;
        }
        let path = scratch.path().join("small");
        std::fs::create_dir(&path).unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(&path);
        assert!(mount.status().unwrap().success());
        Some(SmallDisk(path))
    }
}

impl SmallDisk {
    /// An ext4 of so many MiB. `None` if the test may not make one.
    pub(crate) fn ext4(scratch: &Scratch, mib: u64) -> Option<SmallDisk> {
        let disk = Self::new(scratch, &format!("{}m", mib + 1))?;
        let (image, path) = (disk.0.join("image"), scratch.path().join("ext4"));
        File::create(&image).unwrap().set_len(mib << 20).unwrap();
        std::fs::create_dir(&path).unwrap();
        // The image stays as long as the loop device has it open.
        Self::ext4_in(&image, path)
    }

    /// A new ext4 in an image. `None` if the test may not make one.
    pub(crate) fn ext4_in(image: &Path, path: PathBuf) -> Option<SmallDisk> {
        if !ran("mkfs.ext4", &["-q", "-F", "-b", "4096"], &[image]) {
            // It is needed for nothing else.
            sateen_testkit::skipped("needs mkfs.ext4");
            return None;
        }
        Self::mounted(image, path)
    }

    /// The ext4 of an image. `None` if the test may not mount it.
    pub(crate) fn mounted(image: &Path, path: PathBuf) -> Option<SmallDisk> {
        if !ran("mount", &["-o", "loop"], &[image, &path]) {
            sateen_testkit::skipped("needs a loop device");
            return None;
        }
        Some(SmallDisk(path))
    }
}

fn ran(program: &str, args: &[&str], last: &[&Path]) -> bool {
    let status = std::process::Command::new(program).args(args).args(last).status();
    status.is_ok_and(|status| status.success())
}

/// An ext4 that finds the disk broken where a file lies, when it writes.
#[derive(Debug)]
pub(crate) struct BrokenDisk {
    /// Goes first.
    pub(crate) ext4: SmallDisk,
    below: SmallDisk,
}

impl BrokenDisk {
    /// One that is whole yet. `None` if the test may not make one.
    pub(crate) fn new(scratch: &Scratch) -> Option<BrokenDisk> {
        let below = SmallDisk::new(scratch, "20m")?;
        let (image, path) = (below.0.join("image"), scratch.path().join("ext4"));
        File::create(&image).unwrap().set_len(16 << 20).unwrap();
        std::fs::create_dir(&path).unwrap();
        let ext4 = SmallDisk::ext4_in(&image, path)?;
        Some(BrokenDisk { ext4, below })
    }

    /// From now on whatever is written to the blocks of this file, of which there is one extent, is
    /// refused. They are taken from the disk below, and it has no others.
    pub(crate) fn breaks_below(&self, file: &Path) {
        use rustix::fs::{FallocateFlags, fallocate};
        let told = std::process::Command::new("filefrag").arg("-v").arg(file).output().unwrap();
        let told = String::from_utf8(told.stdout).unwrap();
        // 0:        0..       0:       1234..      1234:      1:             last,eof
        let extent = told.lines().find(|line| line.trim_start().starts_with("0:")).unwrap();
        let first = extent.split(':').nth(2).unwrap().split("..").next().unwrap();
        let first: u64 = first.trim().parse().unwrap();
        let image = File::options().write(true).open(self.below.0.join("image")).unwrap();
        fallocate(&image, FallocateFlags::empty(), 0, 16 << 20).unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let mut filler = File::create(self.below.0.join("filler")).unwrap();
        fallocate(&image, punch, first * 4096, 4096).unwrap();
        while std::io::Write::write_all(&mut filler, &[0; 4096]).is_ok() {}
    }

    /// It is whole again, but for what it has refused.
    pub(crate) fn is_mended(&self) {
        std::fs::remove_file(self.below.0.join("filler")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// A small generator of pseudo-random numbers; `SEED` chooses the sequence.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// Prints its seed, so that a failure can be repeated.
    pub(crate) fn seeded(default: u64) -> Self {
        Self(sateen_testkit::seed_or(default))
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// How many pages of a file are in memory; asking brings none there.
pub(crate) fn pages_in_memory(file: &File, range: Range<u64>) -> usize {
    let (len, fd) = ((range.end - range.start) as usize, file.as_raw_fd());
    let mut pages = vec![0_u8; len.div_ceil(4096)];
    let (read, shared) = (libc::PROT_READ, libc::MAP_SHARED);
    // SAFETY: a mapping of its own, of which nothing is touched, and which is gone again before
    // this returns; `pages` has a byte for each of its pages.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), len, read, shared, fd, range.start as i64);
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(libc::mincore(at, len, pages.as_mut_ptr()), 0);
        libc::munmap(at, len);
    }
    pages.iter().filter(|page| **page & 1 == 1).count()
}

//! The system calls that neither std nor rustix can offer without `unsafe`: memory that
//! processes share, memory that is locked, a close that tells whether it worked, a look at a file that asks for no
//! more than `stat` does, one at what of a file is in memory, and the clocks of processes. The only
//! file of this room with `unsafe`.
#![allow(unsafe_code, reason = "memory shared between processes; calls of the C library")]

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use rustix::mm::{MapFlags, ProtFlags};
use rustix::path::Arg;

/// Bytes at the beginning that are words of 32 bits, which futexes need; the rest are words of
/// 64 bits.
pub(crate) const HEAD_BYTES: usize = 4096;

/// Memory that several processes share. All of it is atomic words, so that whatever another
/// process writes there, reading it is no undefined behaviour.
#[derive(Debug)]
pub(crate) struct Shared {
    base: NonNull<AtomicU64>,
    bytes: usize,
}

// SAFETY: it owns its mapping, which belongs to the process and not to a thread.
unsafe impl Send for Shared {}
// SAFETY: all that a reference gives are atomics.
unsafe impl Sync for Shared {}

impl Shared {
    /// Maps `bytes` of a file, which must be that long and stay so.
    pub(crate) fn map(file: impl AsFd, bytes: usize) -> io::Result<Self> {
        if bytes <= HEAD_BYTES || !bytes.is_multiple_of(HEAD_BYTES) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses aliases nothing of ours.
        let base =
            unsafe { rustix::mm::mmap(ptr::null_mut(), bytes, prot, MapFlags::SHARED, file, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { base, bytes })
    }

    /// The words of 32 bits.
    pub(crate) fn head(&self) -> &[AtomicU32] {
        // SAFETY: the mapping is page-aligned, longer than the head, lives as long as self, and
        // is only ever seen as atomics; the two slices do not overlap.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), HEAD_BYTES / 4) }
    }

    /// The words of 64 bits behind them.
    pub(crate) fn body(&self) -> &[AtomicU64] {
        // SAFETY: as above; the body begins HEAD_BYTES behind the base and ends with the mapping.
        unsafe {
            let body = self.base.as_ptr().add(HEAD_BYTES / 8);
            std::slice::from_raw_parts(body, (self.bytes - HEAD_BYTES) / 8)
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no reference outlives self.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "the range was mapped");
    }
}

/// Memory of this process alone, every page of it there and locked, as long as this exists.
#[derive(Debug)]
pub(crate) struct Locked {
    base: NonNull<c_void>,
    bytes: usize,
}

/// What pages are filled with: not the zeros that a host of virtual machines may keep nowhere.
const FILL: u8 = 0xa5;

impl Locked {
    /// Takes so many bytes in a mapping of their own. What an allocator gives may be part of one
    /// that was there before, and then whoever locks what is mapped later does not lock it.
    pub(crate) fn map(bytes: usize) -> io::Result<Self> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses aliases nothing of ours.
        let base =
            unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, prot, MapFlags::PRIVATE) }?;
        let base = NonNull::new(base).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { base, bytes })
    }

    /// Locks them, which brings them into memory, and fills them.
    pub(crate) fn lock(&mut self) -> io::Result<()> {
        // SAFETY: the range is the mapping of self, whose contents this does not change.
        unsafe { rustix::mm::mlock(self.base.as_ptr(), self.bytes) }?;
        // SAFETY: it is writable and that long, and nobody else has a pointer into it.
        unsafe { self.base.as_ptr().cast::<u8>().write_bytes(FILL, self.bytes) };
        Ok(())
    }

    /// How many they are.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes as u64
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and nobody has a pointer into it. What is
        // unmapped is not locked any more.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "the range was mapped");
    }
}

unsafe extern "C" {
    /// The C library's close, so that what intercepts its calls sees this one, too.
    safe fn close(fd: c_int) -> c_int;
}

/// Closes a descriptor and says what the file system answered: some report only here that
/// data could not be written.
pub(crate) fn close_checked(fd: OwnedFd) -> io::Result<()> {
    match close(fd.into_raw_fd()) {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What the C library's lstat says of a name. std asks for the time of birth beside it, which
/// nobody uses here, and which the kernel keeps for no FUSE file system: each look would be a
/// request to it.
pub(crate) fn lstat(path: &Path) -> io::Result<libc::stat> {
    let mut found = MaybeUninit::uninit();
    let done = path.into_with_c_str(|path| {
        // SAFETY: the path ends with a NUL, and there is room for what is written.
        let code = unsafe { libc::lstat(path.as_ptr(), found.as_mut_ptr()) };
        Ok(if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) })
    });
    done??;
    // SAFETY: it worked, so it has written all of it.
    Ok(unsafe { found.assume_init() })
}

/// cachestat(2) of Linux 6.5; the number is the same on all machines that Rust's Linux has, but
/// Alpha.
const CACHESTAT: libc::c_long = 451;

/// What part of a file is asked for.
#[repr(C)]
struct CacheRange {
    offset: u64,
    /// 0 would be all behind it.
    bytes: u64,
}

/// Pages of it.
#[repr(C)]
#[derive(Default)]
struct CacheFound {
    cached: u64,
    dirty: u64,
    in_writeback: u64,
    evicted: u64,
    evicted_recently: u64,
}

// What the kernel reads and writes.
const _: () = assert!(size_of::<CacheRange>() == 16 && size_of::<CacheFound>() == 40);

/// Bytes of a part of a file that are in this node's page cache, in whole pages. Older kernels do
/// not know it, and newer ones do not tell everybody.
pub(crate) fn cached(fd: impl AsFd, part: Range<u64>) -> io::Result<u64> {
    if part.is_empty() {
        return Ok(0);
    }
    let range = CacheRange { offset: part.start, bytes: part.end - part.start };
    let mut found = CacheFound::default();
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: the descriptor is open as long as it is borrowed, and the kernel reads the first
    // struct and writes the second, whose sizes are asserted above.
    let code = unsafe { libc::syscall(CACHESTAT, fd, &raw const range, &raw mut found, 0_u32) };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(found.cached.saturating_mul(page_bytes()))
}

/// Bytes of a page of memory.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: it reads a constant of the system.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.unsigned_abs().max(1)
}

/// The kernel gives no process a higher number (`PID_MAX_LIMIT`).
const PID_MAX: u32 = 1 << 22;

/// Processor time of a process so far, with its threads that ended: to the nanosecond, where
/// `/proc/PID/stat` has ticks of 10 ms.
pub(crate) fn process_time(pid: u32) -> io::Result<Duration> {
    // The C library shifts what is larger into the number of another clock: this process's own.
    if pid == 0 || pid > PID_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut clock = MaybeUninit::uninit();
    // SAFETY: there is room for what is written.
    match unsafe { libc::clock_getcpuclockid(pid, clock.as_mut_ptr()) } {
        0 => {}
        code => return Err(io::Error::from_raw_os_error(code)),
    }
    let mut time = MaybeUninit::uninit();
    // SAFETY: the clock was written above, and there is room for what is written.
    if unsafe { libc::clock_gettime(clock.assume_init(), time.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it worked, so it has written all of it.
    let time: libc::timespec = unsafe { time.assume_init() };
    let part = u32::try_from(time.tv_nsec).unwrap_or_default();
    Ok(Duration::new(time.tv_sec.unsigned_abs(), part))
}

/// Processor time of this process's children that ended and were waited for, and of theirs: to the
/// microsecond.
pub(crate) fn ended_children_time() -> io::Result<Duration> {
    let mut used = MaybeUninit::uninit();
    // SAFETY: there is room for what is written.
    if unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, used.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it worked, so it has written all of it.
    let used: libc::rusage = unsafe { used.assume_init() };
    let of = |time: libc::timeval| {
        let part = Duration::from_micros(time.tv_usec.unsigned_abs());
        Duration::from_secs(time.tv_sec.unsigned_abs()) + part
    };
    Ok(of(used.ru_utime) + of(used.ru_stime))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn two_mappings_are_the_same_memory() {
        let fd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, 2 * HEAD_BYTES as u64).unwrap();
        assert!(Shared::map(&fd, HEAD_BYTES).is_err(), "no body");
        assert!(Shared::map(&fd, HEAD_BYTES + 1).is_err());
        let one = Shared::map(&fd, 2 * HEAD_BYTES).unwrap();
        let other = Shared::map(&fd, 2 * HEAD_BYTES).unwrap();
        one.head().last().unwrap().store(7, Ordering::Release);
        one.body().first().unwrap().store(8, Ordering::Release);
        one.body().last().unwrap().store(9, Ordering::Release);
        assert_eq!(other.head().last().unwrap().load(Ordering::Acquire), 7);
        assert_eq!(other.body().first().unwrap().load(Ordering::Acquire), 8);
        assert_eq!(other.body().last().unwrap().load(Ordering::Acquire), 9);
        assert_eq!((one.head().len(), one.body().len()), (1024, 512));
    }

    #[test]
    fn what_is_in_memory_of_a_file_is_known() {
        use io::{Seek, Write};
        // A file that is in memory alone: an overlay would hide the pages of the one below it.
        let fd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = std::fs::File::from(fd);
        let all = 0..u64::MAX;
        let found = cached(&file, all.clone());
        if found.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ENOSYS)) {
            eprintln!("this kernel is older than 6.5");
            return;
        }
        assert_eq!(found.unwrap(), 0);
        file.write_all(&[7; 1 << 20]).unwrap();
        assert_eq!(cached(&file, all.clone()).unwrap(), 1 << 20);
        assert_eq!(cached(&file, 4096..12288).unwrap(), 8192);
        assert_eq!(cached(&file, 1 << 20..2 << 20).unwrap(), 0);
        assert_eq!(cached(&file, 4096..4096).unwrap(), 0, "nothing, and not all behind it");
        file.seek(io::SeekFrom::Start(9 << 20)).unwrap();
        file.write_all(&[7; 4096]).unwrap();
        assert_eq!(
            cached(&file, all.clone()).unwrap(),
            (1 << 20) + 4096,
            "holes are not in memory"
        );
        let (read, _write) = rustix::pipe::pipe().unwrap();
        assert_eq!(cached(&read, all).unwrap_or(0), 0, "a pipe has no pages");
    }

    #[test]
    fn processes_have_clocks() {
        let own = std::process::id();
        let before = process_time(own).unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(60);
        let work = Duration::from_millis(1);
        while process_time(own).unwrap() - before < work && std::time::Instant::now() < until {}
        assert!(process_time(own).unwrap() - before >= work, "it goes on by less than a tick");
        assert!(process_time(u32::MAX).is_err() && process_time(0x3fff_ffff).is_err());
        let before = ended_children_time().unwrap();
        let mut child = std::process::Command::new("/bin/true").spawn().unwrap();
        child.wait().unwrap();
        assert!(ended_children_time().unwrap() > before);
    }

    #[test]
    fn close_tells() {
        let file = std::fs::File::open("/dev/null").unwrap();
        close_checked(file.into()).unwrap();
    }

    #[test]
    fn what_is_known_of_a_name_is_what_std_says() {
        let exe = std::env::current_exe().unwrap();
        for path in [exe.as_path(), Path::new("/proc/self/exe"), Path::new("/")] {
            let (found, wanted) = (lstat(path).unwrap(), std::fs::symlink_metadata(path).unwrap());
            assert_eq!(found.st_size.unsigned_abs(), wanted.len(), "{path:?}");
            assert_eq!(found.st_mode & libc::S_IFMT == libc::S_IFDIR, wanted.is_dir(), "{path:?}");
        }
        assert_eq!(lstat(Path::new("/no/such")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(lstat(Path::new("a\0b")).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}

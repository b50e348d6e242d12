//! mount(2) and umount2(2) for a FUSE connection.
//!
//! Called by the session. Needs CAP_SYS_ADMIN; there is no set-uid helper.
//!
//! A path says little about what is mounted there: somebody may have taken the mount out of the
//! tree and put a disk in its place, or have mounted one on top of it. So a mount remembers its
//! device, and nothing else is ever unmounted.
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::{MountFlags as Sys, UnmountFlags};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use crate::{fusectl, mountinfo};

/// Largest `max_write` accepted, in bytes.
pub const REQUEST_MAX: u32 = 16 << 20;
/// Room that each request needs, however little data it may have: the largest extended attribute, 64 KiB,
/// with its name. The kernel does not look whether an entry of io_uring has it.
pub(crate) const PAYLOAD_MIN: u32 = (64 << 10) + (4 << 10);
/// Where root can say how many pages a request of the kernel may have; not there before Linux 6.13.
const MAX_PAGES_LIMIT: &str = "/proc/sys/fs/fuse/max_pages_limit";
/// What it is where nothing is said.
const MAX_PAGES_DEFAULT: u32 = 256;
/// Most threads of the classic transport.
pub(crate) const THREADS_MAX: usize = 256;
/// Most levels of file systems on each other that the kernel allows.
pub(crate) const STACK_DEPTH_MAX: u32 = 2;
/// Most entries of one io_uring queue.
pub(crate) const RING_DEPTH_MAX: u32 = 1024;
/// So much memory the entries of one queue may come to have, each of which must hold the largest
/// request: of large ones there are fewer.
const RING_BYTES_MAX: u64 = 160 << 20;
/// But not fewer than this, however large they are.
const RING_DEPTH_LARGE_MIN: u32 = 20;

/// Which transport to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// io_uring where the kernel has it, else /dev/fuse.
    #[default]
    Auto,
    /// /dev/fuse.
    Classic,
    /// io_uring, or no mount.
    Uring,
}

/// The generic flags of a mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountFlags {
    /// ro
    pub read_only: bool,
    /// nodev
    pub nodev: bool,
    /// nosuid
    pub nosuid: bool,
    /// noexec
    pub noexec: bool,
    /// noatime
    pub noatime: bool,
    /// nodiratime
    pub nodiratime: bool,
    /// relatime
    pub relatime: bool,
    /// strictatime
    pub strictatime: bool,
    /// sync
    pub sync: bool,
    /// dirsync
    pub dirsync: bool,
}

impl MountFlags {
    /// Sets the flag that an `-o` option names; false if it names none.
    pub fn set(&mut self, option: &str) -> bool {
        match option {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "nodev" => self.nodev = true,
            "dev" => self.nodev = false,
            "nosuid" => self.nosuid = true,
            "suid" => self.nosuid = false,
            "noexec" => self.noexec = true,
            "exec" => self.noexec = false,
            "noatime" => self.noatime = true,
            "atime" => self.noatime = false,
            "nodiratime" => self.nodiratime = true,
            "diratime" => self.nodiratime = false,
            "relatime" => self.relatime = true,
            "norelatime" => self.relatime = false,
            "strictatime" => self.strictatime = true,
            "sync" => self.sync = true,
            "async" => self.sync = false,
            "dirsync" => self.dirsync = true,
            _ => return false,
        }
        true
    }

    fn sys(self) -> Sys {
        [
            (self.read_only, Sys::RDONLY),
            (self.nodev, Sys::NODEV),
            (self.nosuid, Sys::NOSUID),
            (self.noexec, Sys::NOEXEC),
            (self.noatime, Sys::NOATIME),
            (self.nodiratime, Sys::NODIRATIME),
            (self.relatime, Sys::RELATIME),
            (self.strictatime, Sys::STRICTATIME),
            (self.sync, Sys::SYNCHRONOUS),
            (self.dirsync, Sys::DIRSYNC),
        ]
        .into_iter()
        .filter(|(on, _)| *on)
        .fold(Sys::empty(), |all, (_, flag)| all | flag)
    }
}

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// An existing directory.
    pub mountpoint: PathBuf,
    /// What df and /proc/mounts name as the source.
    pub fsname: String,
    /// Generic flags.
    pub flags: MountFlags,
    /// Users other than the one who mounted may use it.
    pub allow_other: bool,
    /// The kernel checks permissions by mode and ACL.
    pub default_permissions: bool,
    /// Largest WRITE, in bytes; the kernel caps it by its own page limit.
    pub max_write: u32,
    /// Largest read-ahead, in bytes.
    pub max_readahead: u32,
    /// Most requests in the background (read-ahead, asynchronous I/O).
    pub max_background: u16,
    /// Granularity of time stamps, in nanoseconds.
    pub time_gran: u32,
    /// Threads of the classic transport.
    pub threads: usize,
    /// Which transport to use.
    pub transport: TransportChoice,
    /// Requests in flight per io_uring queue (one queue per CPU).
    /// Far more than `max_background`, of which all may be READs of one CPU that read ahead for
    /// programs that are gone, from servers that are away: whoever waits for an answer must find
    /// room beside them. The memory of an entry is not there before it is used, and the kernel uses
    /// the one that it used last.
    pub ring_depth: u32,
    /// Levels of the stack of file systems that this mount may be the top of, where the file system
    /// asks for [`crate::Caps::PASSTHROUGH`]: 1 takes backing files of ext4, XFS and tmpfs, and
    /// lets an overlay be mounted over this; 2 takes an overlay's as well, and lets nothing.
    pub stack_depth: u32,
}

impl MountOptions {
    /// The defaults for a mount at `mountpoint`.
    pub fn new(mountpoint: impl Into<PathBuf>) -> MountOptions {
        MountOptions {
            mountpoint: mountpoint.into(),
            fsname: "sateen".to_owned(),
            flags: MountFlags { nodev: true, nosuid: true, ..MountFlags::default() },
            allow_other: true,
            default_permissions: true,
            max_write: 1 << 20,
            max_readahead: 1 << 20,
            max_background: 64,
            time_gran: 1,
            threads: 4,
            transport: TransportChoice::Auto,
            ring_depth: 80,
            stack_depth: 1,
        }
    }

    /// Asks for requests of up to so many bytes; the kernel reads ahead as far at least.
    pub fn ask_for(&mut self, bytes: u32) {
        self.max_write = bytes;
        self.max_readahead = self.max_readahead.max(bytes);
    }

    /// Pages of the largest request: what `max_write` needs, and what each needs, within the kernel's
    /// limit.
    pub(crate) fn max_pages(&self, page_size: u32) -> u16 {
        let limit = max_pages_limit().unwrap_or(MAX_PAGES_DEFAULT);
        let need = self.max_write.max(PAYLOAD_MIN).div_ceil(page_size);
        need.clamp(1, limit.clamp(1, u32::from(u16::MAX))) as u16
    }

    /// Entries of a queue whose requests are so large, and how many of them the kernel may have in
    /// the background: so many that there is room beside them, as with all entries.
    pub(crate) fn depth_for(&self, payload: u64) -> (u32, u16) {
        let fits = u32::try_from(RING_BYTES_MAX / payload.max(1)).unwrap_or(u32::MAX);
        let depth = self.ring_depth.min(fits.max(RING_DEPTH_LARGE_MIN));
        if depth == self.ring_depth {
            return (depth, self.max_background);
        }
        let beside = u16::try_from(depth / 5 * 4).unwrap_or(u16::MAX).max(1);
        (depth, self.max_background.min(beside))
    }
}

/// How many pages the kernel lets a request have, if it can be told.
pub fn max_pages_limit() -> Option<u32> {
    std::fs::read_to_string(MAX_PAGES_LIMIT).ok()?.trim().parse().ok()
}

/// How to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmountMode {
    /// Only if nobody uses it; else EBUSY.
    Clean,
    /// Out of the tree now; the connection ends with the last open file.
    Detach,
    /// The connection is aborted, open files get errors.
    Force,
}

/// Where a file system was mounted, and which it is.
#[derive(Clone, Debug)]
pub(crate) struct Mounted {
    path: PathBuf,
    /// Major and minor number.
    device: (u32, u32),
    /// The connection, as long as somebody serves it.
    connection: Weak<OwnedFd>,
}

pub(crate) fn mount(connection: &Arc<OwnedFd>, options: &MountOptions) -> std::io::Result<Mounted> {
    // As the kernel names it, and before there is anything that could be asked.
    let path = options.mountpoint.canonicalize()?;
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        connection.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    if options.default_permissions {
        data.push_str(",default_permissions");
    }
    let data = std::ffi::CString::new(data).map_err(|_| Errno::INVAL)?;
    rustix::mount::mount(
        options.fsname.as_str(),
        path.as_path(),
        "fuse.sateen",
        options.flags.sys(),
        data.as_c_str(),
    )?;
    match device_of(&path) {
        Ok(device) => Ok(Mounted { path, device, connection: Arc::downgrade(connection) }),
        Err(error) => {
            // The first error is what is told.
            let _ = rustix::mount::unmount(&path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
            Err(error)
        }
    }
}

/// Has the kernel give what is mounted at a path these flags in place of those that it has. Of times
/// of reading it keeps what it has if none of the flags says anything; `dirsync` it never changes.
///
/// # Errors
/// mount(2)'s: `EBUSY` says that something is open for writing, and cannot become read-only.
pub fn remount(point: &Path, flags: MountFlags) -> std::io::Result<()> {
    Ok(rustix::mount::mount_remount(point, flags.sys(), c"")?)
}

/// The device of what is mounted at a path, without a question to it.
fn device_of(path: &Path) -> std::io::Result<(u32, u32)> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT | AtFlags::SYMLINK_NOFOLLOW;
    let stat = statx(CWD, path, flags, StatxFlags::TYPE)?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor))
}

/// Lets the kernel read ahead as far as was agreed on: whatever INIT says, it begins with
/// 128 KiB. Only a hint, so a failure is no more than a slower reader.
pub(crate) fn raise_readahead(mounted: &Mounted, options: &MountOptions) {
    if let Err(error) = try_raise_readahead(mounted, options) {
        tracing::debug!(%error, "read-ahead stays at the kernel's default");
    }
}

fn try_raise_readahead(mounted: &Mounted, options: &MountOptions) -> std::io::Result<()> {
    let (major, minor) = mounted.device;
    let knob = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    std::fs::write(knob, (options.max_readahead / 1024).to_string())
}

impl Mounted {
    /// Unmounts it. `EINVAL` says that it is not there, or that something else is mounted on top
    /// of it; by force its connection ends all the same, if fusectl can be had.
    pub(crate) fn unmount(&self, mode: UnmountMode) -> std::io::Result<()> {
        let flags = match mode {
            UnmountMode::Clean => UnmountFlags::empty(),
            UnmountMode::Detach => UnmountFlags::DETACH,
            UnmountMode::Force => UnmountFlags::FORCE | UnmountFlags::DETACH,
        };
        let aborted = mode == UnmountMode::Force && self.abort().is_ok();
        let unmounted = match mountinfo::last_at(&mountinfo::all()?, &self.path) {
            Some(mount) if mount.device == self.device => {
                rustix::mount::unmount(&self.path, flags | UnmountFlags::NOFOLLOW)
            }
            _ => Err(Errno::INVAL),
        };
        match unmounted {
            Err(Errno::INVAL) if aborted => {
                tracing::warn!(
                    mountpoint = %self.path.display(),
                    "ended, though it is not what is mounted there now"
                );
                Ok(())
            }
            result => result.map_err(std::io::Error::from),
        }
    }

    /// Ends the connection, wherever it is mounted. One that has ended left its number to the next
    /// that anybody mounts.
    fn abort(&self) -> std::io::Result<()> {
        if !self.is_connected() {
            return Err(Errno::INVAL.into());
        }
        fusectl::abort(self.device)
    }

    /// Whether the kernel still has requests for the connection: it calls one that is over an error.
    pub(crate) fn is_connected(&self) -> bool {
        let Some(connection) = self.connection.upgrade() else { return false };
        let mut asked = [PollFd::new(&connection, PollFlags::empty())];
        // A signal may keep it from looking, and says nothing.
        let looked = poll(&mut asked, Some(&Timespec::default())).is_ok();
        !looked || !asked.iter().any(|answer| answer.revents().contains(PollFlags::ERR))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_large_requests_there_are_fewer() {
        let options = MountOptions::new("/");
        for (payload_mib, depth, background) in
            [(1, 80, 64), (2, 80, 64), (4, 40, 32), (8, 20, 16), (16, 20, 16)]
        {
            assert_eq!(options.depth_for(payload_mib << 20), (depth, background), "{payload_mib}");
        }
        assert_eq!(options.depth_for(0), (80, 64));
        let few = MountOptions { ring_depth: 4, ..options };
        assert_eq!(few.depth_for(16 << 20), (4, 64), "as it was said");
    }

    #[test]
    fn what_is_asked_for_is_read_ahead_as_well() {
        let mut options = MountOptions::new("/");
        let limit = max_pages_limit().unwrap_or(MAX_PAGES_DEFAULT);
        assert_eq!(u32::from(options.max_pages(4096)), limit.min(256));
        options.ask_for(64 << 10);
        assert_eq!((options.max_pages(4096), options.max_readahead), (17, 1 << 20), "for a value");
        options.ask_for(REQUEST_MAX);
        assert_eq!(options.max_readahead, REQUEST_MAX);
        assert_eq!(u32::from(options.max_pages(4096)), limit.min(4096));
    }
}

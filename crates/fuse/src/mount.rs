//! mount(2) and umount2(2) for a FUSE connection.
//!
//! Called by the session. Needs CAP_SYS_ADMIN; there is no set-uid helper.
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::mount::{MountFlags as Sys, UnmountFlags};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Largest `max_write` accepted, in bytes.
pub(crate) const WRITE_MAX: u32 = 16 << 20;
/// Most threads of the classic transport.
pub(crate) const THREADS_MAX: usize = 256;
/// Most entries of one io_uring queue.
pub(crate) const RING_DEPTH_MAX: u32 = 1024;

/// Which transport to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// io_uring where the kernel has it, else /dev/fuse.
    #[default]
    Auto,
    /// /dev/fuse.
    Classic,
    /// io_uring; falls back to /dev/fuse with a warning.
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
        }
    }

    /// Pages of the largest request: what `max_write` and `max_readahead` need,
    /// within the kernel's limit.
    pub(crate) fn max_pages(&self, page_size: u32) -> u16 {
        let limit = std::fs::read_to_string("/proc/sys/fs/fuse/max_pages_limit")
            .ok()
            .and_then(|text| text.trim().parse::<u32>().ok())
            .unwrap_or(256);
        let need = self.max_write.max(self.max_readahead).div_ceil(page_size);
        need.clamp(1, limit.clamp(1, u32::from(u16::MAX))) as u16
    }
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

pub(crate) fn mount(device: &File, options: &MountOptions) -> rustix::io::Result<()> {
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    if options.default_permissions {
        data.push_str(",default_permissions");
    }
    let data = std::ffi::CString::new(data).map_err(|_| rustix::io::Errno::INVAL)?;
    rustix::mount::mount(
        options.fsname.as_str(),
        options.mountpoint.as_path(),
        "fuse.sateen",
        options.flags.sys(),
        data.as_c_str(),
    )
}

/// Lets the kernel read ahead as far as was agreed on: whatever INIT says, it begins with
/// 128 KiB. Only a hint, so a failure is no more than a slower reader.
pub(crate) fn raise_readahead(options: &MountOptions) {
    if let Err(error) = try_raise_readahead(options) {
        tracing::debug!(%error, "read-ahead stays at the kernel's default");
    }
}

fn try_raise_readahead(options: &MountOptions) -> std::io::Result<()> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT | AtFlags::SYMLINK_NOFOLLOW;
    let stat = statx(CWD, options.mountpoint.as_path(), flags, StatxFlags::TYPE)?;
    let (major, minor) = (stat.stx_dev_major, stat.stx_dev_minor);
    let knob = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    std::fs::write(knob, (options.max_readahead / 1024).to_string())
}

pub(crate) fn unmount(mountpoint: &Path, mode: UnmountMode) -> rustix::io::Result<()> {
    let flags = match mode {
        UnmountMode::Clean => UnmountFlags::empty(),
        UnmountMode::Detach => UnmountFlags::DETACH,
        UnmountMode::Force => UnmountFlags::FORCE | UnmountFlags::DETACH,
    };
    rustix::mount::unmount(mountpoint, flags | UnmountFlags::NOFOLLOW)
}

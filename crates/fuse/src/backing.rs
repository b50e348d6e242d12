//! Files that the kernel reads and writes in place of asking for it: passthrough.
//!
//! A file system registers an open file ([`Backings::open`]) and names it in the answer to an OPEN
//! or CREATE; reads, writes and mappings of that open go to the file from then on. It cannot be
//! taken back. The life of a [`Backing`]:
//!
//! 1. *registered*: the kernel holds the file, and whose rights it was registered with.
//! 2. *in use*: an open was answered with it. All opens of that inode have to be answered with
//!    this very one now, and none as cached: the kernel gives programs EIO otherwise. So whoever
//!    answers keeps one for each inode, until the last RELEASE.
//! 3. *dropped*: no open can be answered with it any more. Opens that have it, and mappings that
//!    outlive them, keep the file itself.
//!
//! What the kernel does with such a file is asked in `tests/passthrough.rs`.
use crate::abi;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

/// FUSE_DEV_IOC_BACKING_OPEN: _IOW(229, 1, struct fuse_backing_map).
const BACKING_OPEN: libc::c_ulong = 0x4010_e501;
/// FUSE_DEV_IOC_BACKING_CLOSE: _IOW(229, 2, u32).
const BACKING_CLOSE: libc::c_ulong = 0x4004_e502;

/// As whom files are read and written: not as root, and as nobody for whom a file system keeps room, either
/// (`resuid=` of ext4, which some set to 65534): a number that no user has.
const NOBODY: libc::uid_t = u32::MAX - 2;

/// Where one mount's backing files are registered; any open /dev/fuse of its connection is as
/// good as another. Cloned freely.
#[derive(Clone, Debug)]
pub struct Backings {
    device: Arc<OwnedFd>,
}

impl Backings {
    pub(crate) fn new(device: Arc<OwnedFd>) -> Backings {
        Backings { device }
    }

    /// Registers a regular file. The kernel opens it anew for each open that it is named for, with
    /// that open's flags, whatever `file` itself is open for; it is read and written with the
    /// credentials of whoever calls this, but for what a file system keeps for root alone ([`Lowered`]).
    ///
    /// # Errors
    /// `EPERM` if [`crate::Caps::PASSTHROUGH`] was not agreed on, or without CAP_SYS_ADMIN; `ELOOP`
    /// if the file's own file system is a stack too high for the mount.
    pub fn open(&self, file: impl AsFd) -> io::Result<Backing> {
        let fd = file.as_fd().as_raw_fd();
        let map = abi::BackingMap { fd, ..abi::BackingMap::default() };
        let _lowered = Lowered::now()?;
        // SAFETY: the request reads one structure of the size that its number states, which `map`
        // is; both descriptors are open for the length of the call.
        let id = unsafe { libc::ioctl(self.device.as_raw_fd(), BACKING_OPEN, &raw const map) };
        if id < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Backing { device: self.device.clone(), id })
    }
}

/// This thread without root's right to the last of a disk, until it is dropped: what is registered
/// meanwhile is written without it. What ext4 keeps back is for whoever serves the file system, who has to
/// write down that something was removed.
struct Lowered {
    before: CapabilitySets,
    user: libc::c_int,
}

impl Lowered {
    fn now() -> io::Result<Lowered> {
        let before = capabilities(None)?;
        let effective = before.effective - CapabilitySet::SYS_RESOURCE;
        set_capabilities(None, CapabilitySets { effective, ..before })?;
        // SAFETY: a number of this thread alone; no memory is read or written. Who may not change it
        // is not root, who is what this is about.
        let user = unsafe { libc::setfsuid(NOBODY) };
        Ok(Lowered { before, user })
    }
}

impl Drop for Lowered {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::setfsuid(self.user.cast_unsigned()) };
        set_capabilities(None, self.before).expect("a thread takes again what it is permitted");
    }
}

/// One registered file; dropped, it is registered no more.
#[derive(Debug)]
pub struct Backing {
    device: Arc<OwnedFd>,
    id: i32,
}

impl Backing {
    /// The kernel's number of it.
    pub fn id(&self) -> i32 {
        self.id
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        let id = self.id.cast_unsigned();
        // SAFETY: the request reads one u32, which `id` is; the descriptor is open.
        let done = unsafe { libc::ioctl(self.device.as_raw_fd(), BACKING_CLOSE, &raw const id) };
        if done < 0 {
            // A connection that is over has none.
            let error = io::Error::last_os_error();
            tracing::debug!(id, %error, "a backing file was not given back");
        }
    }
}

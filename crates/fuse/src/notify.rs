//! Messages to the kernel about its caches.
//!
//! Called by whoever gives back a lock. Each call returns when the kernel has
//! done it; calls may wait for kernel locks that requests in flight hold, so
//! they must run on threads that no request depends on (`inc_epoch` waits for
//! nothing).
use crate::abi::{self, notify_code};
use rustix::fd::AsFd;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Most inodes of one [`Notifier::prune`].
pub const NOTIFY_PRUNE_MAX: usize = 4096;

/// Tells one mount's kernel side what is no longer true. Cloned freely. `false`
/// says that the kernel did not know the inode or name, which is success, unless
/// an answer that introduces it was given and not yet taken up: the kernel may
/// install it afterwards, with the validity stated there. As long as the kernel
/// holds references of an inode (LOOKUPs answered minus FORGETs) and it is not
/// found, call again; it will be found, or forgotten.
#[derive(Clone, Debug)]
pub struct Notifier {
    device: Arc<OwnedFd>,
}

impl Notifier {
    pub(crate) fn new(device: Arc<OwnedFd>) -> Notifier {
        Notifier { device }
    }

    /// Drops the inode's attributes and its pages in `offset..offset + len`
    /// (`len` 0: to the end; `offset` negative: attributes only). Waits for
    /// pages that READs or WRITEs in flight have locked.
    pub fn inval_inode(&self, ino: u64, offset: i64, len: i64) -> io::Result<bool> {
        let message = abi::NotifyInvalInode { ino, off: offset, len };
        self.send(notify_code::INVAL_INODE, &[message.as_bytes()])
    }

    /// Drops a name. Waits for the parent's inode lock, which creates, removes
    /// and (without parallel directory operations) lookups in it hold.
    pub fn inval_entry(&self, parent: u64, name: &[u8]) -> io::Result<bool> {
        self.entry(parent, name, 0)
    }

    /// Makes the kernel ask again for a name before it is used next, without
    /// dropping what is below it.
    pub fn expire_entry(&self, parent: u64, name: &[u8]) -> io::Result<bool> {
        self.entry(parent, name, 1)
    }

    fn entry(&self, parent: u64, name: &[u8], flags: u32) -> io::Result<bool> {
        let message = abi::NotifyInvalEntry { parent, namelen: name_len(name)?, flags };
        self.send(notify_code::INVAL_ENTRY, &[message.as_bytes(), name, &[0]])
    }

    /// Drops a name that is known to be removed, if it still means `child`.
    pub fn delete(&self, parent: u64, child: u64, name: &[u8]) -> io::Result<bool> {
        let namelen = name_len(name)?;
        let message = abi::NotifyDelete { parent, child, namelen, padding: 0 };
        self.send(notify_code::DELETE, &[message.as_bytes(), name, &[0]])
    }

    /// Makes every cached name of the mount be asked for again; takes no lock.
    pub fn inc_epoch(&self) -> io::Result<bool> {
        self.send(notify_code::INC_EPOCH, &[])
    }

    /// Puts `data` into the inode's page cache at `offset`.
    pub fn store(&self, ino: u64, offset: u64, data: &[u8]) -> io::Result<bool> {
        let size = u32::try_from(data.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let message = abi::NotifyStore { nodeid: ino, offset, size, padding: 0 };
        self.send(notify_code::STORE, &[message.as_bytes(), data])
    }

    /// Asks the kernel to forget the inodes that nobody uses; at most
    /// [`NOTIFY_PRUNE_MAX`] of them.
    pub fn prune(&self, inos: &[u64]) -> io::Result<bool> {
        if inos.len() > NOTIFY_PRUNE_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let message = abi::NotifyPrune { count: inos.len() as u32, ..Default::default() };
        self.send(notify_code::PRUNE, &[message.as_bytes(), inos.as_bytes()])
    }

    /// Asks the kernel to send again every request that was read and not yet
    /// answered (those have the top bit of `unique` set).
    pub fn resend(&self) -> io::Result<bool> {
        self.send(notify_code::RESEND, &[])
    }

    fn send(&self, code: i32, parts: &[&[u8]]) -> io::Result<bool> {
        match write_message(self.device.as_ref(), 0, code, parts) {
            // What the kernel does not have it cannot have wrong.
            Err(rustix::io::Errno::NOENT) => Ok(false),
            other => other.map(|()| true).map_err(io::Error::from),
        }
    }
}

fn name_len(name: &[u8]) -> io::Result<u32> {
    if name.is_empty() || name.len() > abi::NAME_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(name.len() as u32)
}

/// Most parts of a message besides the header.
const PARTS_MAX: usize = 3;

/// Writes a header and up to three parts to the device in one piece.
pub(crate) fn write_message(
    device: impl AsFd,
    unique: u64,
    error: i32,
    parts: &[&[u8]],
) -> rustix::io::Result<()> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let len = len + size_of::<abi::OutHeader>();
    let header = abi::OutHeader { len: len as u32, error, unique };
    let mut slices = [IoSlice::new(&[]); PARTS_MAX + 1];
    let all = [header.as_bytes()].into_iter().chain(parts.iter().copied());
    for (slot, part) in slices.iter_mut().zip(all) {
        *slot = IoSlice::new(part);
    }
    let used = slices.get(..=parts.len()).ok_or(rustix::io::Errno::INVAL)?;
    rustix::io::writev(device, used).map(drop)
}

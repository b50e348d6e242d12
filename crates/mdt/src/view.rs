//! Reading the store for one operation: inodes and directories with the errors that
//! programs expect.

use sateen_osd::{Key, Prefetched, Store};
use sateen_target::{Core, Fault};
use sateen_types::{Attr, Errno, Fid, Timespec, seq};
use sateen_wire::disk::mdt::Inode;

/// The store as one operation sees it.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) store: &'a Store,
    pub(crate) fetched: &'a Prefetched,
    pub(crate) hash_key: u64,
    index: u32,
}

impl<'a> View<'a> {
    pub(crate) fn new(core: &'a Core, fetched: &'a Prefetched, index: u32) -> View<'a> {
        View { store: &core.store, fetched, hash_key: core.config.hash_key, index }
    }

    pub(crate) fn get(&self, key: &Key) -> Result<Option<&'a [u8]>, Fault> {
        Ok(self.store.get(key, self.fetched)?)
    }

    /// Refuses files of other MDTs.
    pub(crate) fn check(&self, fid: Fid) -> Result<(), Fault> {
        if seq::mdt_of(fid.seq) == self.index { Ok(()) } else { Err(Errno::EREMOTEIO.into()) }
    }

    /// An inode, if it exists.
    pub(crate) fn inode(&self, fid: Fid) -> Result<Option<Inode<'a>>, Fault> {
        self.check(fid)?;
        let Some(bytes) = self.get(&keys(fid))? else { return Ok(None) };
        match Inode::decode(bytes) {
            Ok(inode) => Ok(Some(inode)),
            Err(error) => {
                tracing::error!(%fid, %error, "inode record is damaged");
                Err(Errno::EIO.into())
            }
        }
    }

    /// An inode that somebody has a handle of.
    pub(crate) fn file(&self, fid: Fid) -> Result<Inode<'a>, Fault> {
        self.inode(fid)?.ok_or(Fault::Errno(Errno::ESTALE))
    }

    /// A directory that still has a name.
    pub(crate) fn dir(&self, fid: Fid) -> Result<Inode<'a>, Fault> {
        let inode = self.inode(fid)?.ok_or(Fault::Errno(Errno::ENOENT))?;
        if !inode.attr.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        if inode.attr.nlink == 0 {
            return Err(Errno::ENOENT.into());
        }
        Ok(inode)
    }
}

fn keys(fid: Fid) -> Key {
    crate::keys::inode(fid)
}

/// The time and number of the transaction being built.
#[derive(Clone, Copy)]
pub(crate) struct Stamp {
    pub(crate) time: Timespec,
    pub(crate) transno: u64,
}

impl Stamp {
    /// The inode changed: its change time moves, never back, and its version grows.
    pub(crate) fn touch(&self, attr: &mut Attr) {
        attr.ctime = attr.ctime.max(self.time);
        attr.version = self.transno;
    }

    /// Its content changed, too.
    pub(crate) fn touch_content(&self, attr: &mut Attr) {
        self.touch(attr);
        attr.mtime = attr.ctime;
    }
}

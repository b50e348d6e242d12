//! The end of an inode: its records go, and its objects into the unlink llog.

use std::sync::Arc;

use sateen_osd::Batch;
use sateen_target::Fault;
use sateen_types::{Errno, Fid, Layout};
use sateen_wire::codec::Wire;
use sateen_wire::disk::mdt::{Counters, Inode};

use crate::keys;
use crate::layouts::LayoutCache;
use crate::mdt::Mdt;
use crate::view::View;

/// Most extended attributes of one inode.
pub(crate) const XATTRS_MAX: u32 = 1024;

/// An inode whose removal stands in the batch.
#[derive(Debug)]
pub(crate) struct Doomed {
    fid: Fid,
    /// How long it is, or as long as what is set aside for it, as far as that is known.
    size: u64,
    layout: Option<Arc<Layout>>,
    late_writers: bool,
}

/// Puts the removal of an inode into the batch. `late_writers`: somebody may still be
/// writing to its objects.
pub(crate) fn destroy(
    view: &View<'_>,
    tx: &mut Batch,
    layouts: &mut LayoutCache,
    (inode, late_writers): (&Inode<'_>, bool),
) -> Result<Doomed, Fault> {
    let fid = inode.attr.fid;
    if inode.xattrs > 0 {
        let prefix = keys::xattrs(fid);
        let limit = XATTRS_MAX as usize + 1;
        let mut after = Some(prefix);
        while let Some(at) = after {
            after = view.store.scan(&prefix, &at, limit, view.fetched, |key, _| tx.remove(key))?;
        }
    }
    tx.remove(&keys::inode(fid));
    let mut layout = None;
    if inode.attr.maybe_objects && !inode.layout.is_empty() {
        layout = layouts.get(inode.layout)?;
        tx.put_with(&keys::unlink(fid), |out| {
            late_writers.put(out);
            out.extend_from_slice(inode.layout);
        });
    }
    let size = inode.attr.size.max(inode.attr.blocks.saturating_mul(512));
    Ok(Doomed { fid, size, layout, late_writers })
}

/// Puts the number of inodes into the batch, as it will be.
pub(crate) fn count(tx: &mut Batch, inodes: u64, change: i64) -> u64 {
    let inodes = inodes.saturating_add_signed(change);
    tx.put(&keys::counters(), &Counters { inodes });
    inodes
}

impl Mdt {
    /// The transaction with the removal was committed.
    pub(crate) fn destroyed(&mut self, doomed: Doomed, transno: u64) {
        if let Some(layout) = doomed.layout {
            let what = (doomed.fid, Some(doomed.size));
            self.llog.unlink(transno, what, layout, doomed.late_writers);
        }
        self.locks.forget(doomed.fid);
    }

    /// Destroys an inode that has neither a name nor an open any more.
    pub(crate) fn destroy_orphan(
        &mut self,
        fid: Fid,
        fetched: &sateen_osd::Prefetched,
    ) -> Result<(), Fault> {
        if self.opens.is_open(fid) || !self.startup.knows_opens() {
            // Before it is known who has it open: the start comes to it again.
            return Ok(());
        }
        let view = View::new(&self.core, fetched, self.config.index);
        let tx = &mut self.batch;
        tx.clear();
        tx.remove(&keys::orphan(fid));
        let mut doomed = None;
        let mut inodes = self.inodes;
        match view.inode(fid)? {
            Some(inode) if inode.attr.nlink == 0 => {
                // No session is left, so the mark means that a writer was lost.
                let late = inode.attr.size_stale;
                doomed = Some(destroy(&view, tx, &mut self.layouts, (&inode, late))?);
                inodes = count(tx, inodes, -1);
            }
            Some(_) => {
                tracing::error!(%fid, "an orphan record of a file with a name");
                return Err(Errno::EIO.into());
            }
            None => {}
        }
        let transno = self.core.commit(&self.batch);
        self.inodes = inodes;
        if let Some(doomed) = doomed {
            self.destroyed(doomed, transno);
        }
        Ok(())
    }
}

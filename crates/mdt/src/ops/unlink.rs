//! `Unlink`: `unlink` and `rmdir`.

use sateen_ldlm::{LockTable, Need};
use sateen_osd::Batch;
use sateen_target::Fault;
use sateen_types::{Attr, Errno, Fid, FileKind};
use sateen_wire::disk::mdt::Inode;
use sateen_wire::{Grants, Ibits, MdtReply};

use super::{put_inode, reads_size};
use crate::destroy::{Doomed, count, destroy};
use crate::keys;
use crate::layouts::LayoutCache;
use crate::mdt::Mdt;
use crate::names::{Found, find, remove, without_link};
use crate::op::{Op, Outcome};
use crate::opens::Opens;
use crate::view::{Stamp, View};

pub(super) fn run(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    (parent, name): (Fid, &[u8]),
    directory: bool,
) -> Result<Outcome, Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let dir = view.dir(parent);
    let found = find(&view, parent, name);
    let mut dir = dir?;
    let Found::Entry { place, fid, kind } = found? else { return Err(Errno::ENOENT.into()) };
    match (kind == FileKind::Directory, directory) {
        (true, false) => return Err(Errno::EISDIR.into()),
        (false, true) => return Err(Errno::ENOTDIR.into()),
        _ => {}
    }
    let inode = view.inode(fid)?.ok_or(Errno::EIO)?;
    if inode.entries > 0 {
        return Err(Errno::ENOTEMPTY.into());
    }
    let victim = Victim::new(&inode.attr, (&mdt.opens, &mdt.locks), op);
    op.need(&mut mdt.locks, &[Need::all_gone(parent, Ibits::UPDATE), victim.need()])?;

    let stamp = op.stamp(&mdt.core);
    let tx = &mut mdt.batch;
    tx.clear();
    remove(&view, tx, &place)?;
    dir.entries -= 1;
    dir.attr.nlink -= u32::from(directory);
    stamp.touch_content(&mut dir.attr);
    put_inode(tx, &dir);
    let changed = dir.attr;
    let mut cx =
        Losing { view: &view, tx, layouts: &mut mdt.layouts, scratch: &mut mdt.scratch, stamp };
    let (attr, doomed) = victim.lose(&mut cx, inode, (parent, name))?;
    let mut inodes = mdt.inodes;
    if doomed.is_some() {
        inodes = count(tx, inodes, -1);
    }
    let transno = op.commit(&mut mdt.core, &mut mdt.batch);
    mdt.inodes = inodes;
    mdt.lost_name(&attr, doomed, transno);
    let body = MdtReply::Removed { attr: Some(attr), parent: Some(changed) };
    Ok(Outcome::ok(body, transno, Grants::NONE))
}

/// An inode that is about to lose a name.
pub(super) struct Victim {
    fid: Fid,
    /// It was the last one.
    last: bool,
    /// Somebody has it open.
    open: bool,
    /// An OST out of use has still to cut it.
    stuck: bool,
}

/// What losing a name needs.
pub(super) struct Losing<'a, 'b> {
    pub(super) view: &'a View<'b>,
    pub(super) tx: &'a mut Batch,
    pub(super) layouts: &'a mut LayoutCache,
    pub(super) scratch: &'a mut Vec<u8>,
    pub(super) stamp: Stamp,
}

impl Victim {
    pub(super) fn new(attr: &Attr, (opens, locks): (&Opens, &LockTable), op: &Op<'_>) -> Victim {
        let last = attr.is_dir() || attr.nlink <= 1;
        let stuck = locks.is_stuck(&reads_size(attr.fid));
        // Of what is made again it is not known yet: those that nobody has open go later.
        let open = op.again.is_some() || opens.is_open(attr.fid);
        Victim { fid: attr.fid, last, open, stuck }
    }

    /// What nobody else may have cached of it. Data that an OST out of use has still to cut go
    /// with the rest of the object: nobody can reach them meanwhile.
    pub(super) const fn need(&self) -> Need {
        let name = Ibits::LOOKUP.union(Ibits::UPDATE);
        let bits = match (self.last && !self.open, self.stuck) {
            (true, false) => Ibits::ALL,
            (true, true) => Ibits::ALL.without(Ibits::DATA),
            (false, _) => name,
        };
        Need::all_gone(self.fid, bits)
    }

    /// Puts the loss into the batch: one name less, an orphan, or the end. Returns the
    /// attributes as they are then.
    pub(super) fn lose(
        &self,
        cx: &mut Losing<'_, '_>,
        mut inode: Inode<'_>,
        (parent, name): (Fid, &[u8]),
    ) -> Result<(Attr, Option<Doomed>), Fault> {
        cx.stamp.touch(&mut inode.attr);
        inode.attr.nlink = if self.last { 0 } else { inode.attr.nlink - 1 };
        if self.last && !self.open {
            // Who had it open has closed it when all writes had ended, or was lost.
            let late = inode.attr.size_stale || self.stuck;
            let doomed = destroy(cx.view, cx.tx, cx.layouts, (&inode, late))?;
            return Ok((inode.attr, Some(doomed)));
        }
        if self.last {
            cx.tx.put_with(&keys::orphan(self.fid), |_| ());
        }
        cx.scratch.clear();
        without_link(inode.links, parent, name, cx.scratch);
        let inode = Inode { links: cx.scratch, ..inode };
        put_inode(cx.tx, &inode);
        Ok((inode.attr, None))
    }
}

impl Mdt {
    /// The transaction in which an inode lost a name was committed.
    pub(super) fn lost_name(&mut self, attr: &Attr, doomed: Option<Doomed>, transno: u64) {
        if attr.nlink == 0
            && let Some(file) = self.opens.get_mut(attr.fid)
        {
            file.orphan = true;
        }
        if let Some(doomed) = doomed {
            self.destroyed(doomed, transno);
        }
    }
}

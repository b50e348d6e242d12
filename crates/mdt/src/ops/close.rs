//! `Close`: the last reference to an open is gone. Ends write sessions and orphans.

use sateen_target::Fault;
use sateen_types::{Attr, Errno, Fid};
use sateen_wire::{OpenId, SizeReport};

use super::report::{accessed, apply, changes, of_size, read_at, shared, wrote};
use super::xattr::drop_capabilities;
use super::{put_inode, shares_data, writes_data};
use crate::destroy::{count, destroy};
use crate::keys;
use crate::mdt::Mdt;
use crate::op::{Op, Outcome};
use crate::opens::{OpenFile, Purpose};
use crate::view::View;

pub(super) fn run(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    (fid, id): (Fid, OpenId),
    report: Option<&SizeReport>,
) -> Result<Outcome, Fault> {
    let Some((opened, purpose)) = mdt.clients.opened(op.client, id) else {
        // An earlier run has closed it, and nobody has heard of that.
        let is_closed = mdt.recovery.is_closed(op.client, id);
        return if is_closed { Ok(Outcome::done(0)) } else { Err(Errno::EBADF.into()) };
    };
    let Some(file) = mdt.opens.get(fid).filter(|_| opened == fid) else {
        return Err(Errno::EBADF.into());
    };
    let write = purpose.write;
    let last = file.opens == 1 && file.orphan;
    let mut atime = None;
    if !last && report.is_some_and(|report| report.atime.is_some()) {
        let view = View::new(&mdt.core, op.fetched, mdt.config.index);
        if let Some(inode) = view.inode(fid)? {
            atime = read_at(&mut mdt.locks, op, &inode.attr, report)?;
        }
    }
    let Some(file) = mdt.opens.get(fid) else { return Err(Errno::EBADF.into()) };
    // A reader's close may bring what the same client has written through another open.
    let holder = mdt.locks.covers(op.client, &writes_data(fid));
    let report = report.filter(|report| of_size(report));
    let shares = !holder && mdt.locks.covers(op.client, &shares_data(fid));
    let part = report.filter(|_| shares);
    let report = report.filter(|_| holder);
    if !write && !last && atime.is_none() && report.is_none() && part.is_none() {
        closed(mdt, op, (fid, id), purpose);
        return Ok(Outcome::done(0));
    }
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let stamp = op.stamp(&mdt.core);
    let tx = &mut mdt.batch;
    tx.clear();
    let (mut doomed, mut noted) = (None, None);
    let mut inodes = mdt.inodes;
    if let Some(mut inode) = view.inode(fid)? {
        let before = inode.attr;
        if let Some(report) = report.filter(|report| changes(&before, report)) {
            drop_capabilities(&view, tx, &mut inode)?;
            apply(&mut inode.attr, report, &stamp);
        }
        if let Some(part) = part {
            drop_capabilities(&view, tx, &mut inode)?;
            shared(&mut inode.attr, part, &stamp);
        }
        accessed(&mut inode.attr, atime, &stamp);
        if write && file.writers == 1 {
            end_session(&mut inode.attr, file, (report, part.is_some()));
        }
        if last {
            let late = inode.attr.size_stale;
            tx.remove(&keys::orphan(fid));
            doomed = Some(destroy(&view, tx, &mut mdt.layouts, (&inode, late))?);
            inodes = count(tx, inodes, -1);
        } else if inode.attr != before {
            inode.attr.version = stamp.transno;
            put_inode(tx, &inode);
            noted = Some(inode.attr);
        }
    }
    let mut transno = 0;
    if !mdt.batch.is_empty() {
        transno = op.commit(&mut mdt.core, &mut mdt.batch);
    }
    mdt.inodes = inodes;
    if let Some(report) = report {
        mdt.opens.reported(fid, wrote(report));
    } else if part.is_some() {
        mdt.opens.shared_wrote(fid);
    }
    closed(mdt, op, (fid, id), purpose);
    if let Some(doomed) = doomed {
        mdt.destroyed(doomed, transno);
    }
    Ok(noted.map_or_else(|| Outcome::done(transno), |attr| Outcome::noted(attr, transno)))
}

/// The open is gone, and with it what programs have locked through it.
fn closed(mdt: &mut Mdt, op: &Op<'_>, (fid, id): (Fid, OpenId), purpose: Purpose) {
    mdt.clients.close(op.client, id);
    mdt.opens.close(fid, op.client, purpose);
    mdt.file_locks.closed(op.client, fid, id);
}

/// The last writer closes: the size is the truth from here on, unless somebody was lost who
/// could have known better; and where nothing was written there are no objects.
fn end_session(attr: &mut Attr, file: &OpenFile, (report, shared): (Option<&SizeReport>, bool)) {
    if !file.known && report.is_none() {
        return;
    }
    attr.size_stale = false;
    if file.fresh && !file.wrote && !shared && !report.is_some_and(wrote) {
        attr.maybe_objects = false;
    }
}

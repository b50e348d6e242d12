//! `Enqueue` and `Cancel`: a lock for its own sake, and locks given back.

use sateen_ldlm::Need;
use sateen_target::Fault;
use sateen_types::{Errno, Fid};
use sateen_wire::{Grants, Ibits, LockId, MdtReply, SizeReport};

use super::report::{accessed, apply, changes, of_size, wrote};
use super::xattr::drop_capabilities;
use super::{put_inode, reads_size, shown, writes_data};
use crate::mdt::Mdt;
use crate::op::{Op, Outcome};
use crate::view::View;

pub(super) fn run(mdt: &mut Mdt, op: &mut Op<'_>, need: Need) -> Result<Outcome, Fault> {
    if need.bits.is_empty() {
        return Err(Errno::EINVAL.into());
    }
    if need.bits.intersects(Ibits::DATA) {
        op.need_fences()?;
    }
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let attr = view.file(need.fid)?.attr;
    if mdt.locks.is_stuck(&need) {
        return Err(Errno::EIO.into());
    }
    let now = op.now.mono_ns;
    let Some(grant) = mdt.locks.enqueue(now, op.client, &mut op.ticket, &need) else {
        // Without a ticket there is nothing to wait for: the table is full.
        return Err(if op.ticket.is_some() { Fault::Blocked } else { Errno::EAGAIN.into() });
    };
    let mut grants = Grants::NONE;
    let _fits = grants.push(grant);
    let attr = shown(&mdt.opens, &mdt.locks, op.client, attr);
    Ok(Outcome::ok(MdtReply::Inode { attr }, 0, grants))
}

pub(super) fn cancel(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    (fid, id): (Fid, LockId),
    report: Option<&SizeReport>,
) -> Result<Outcome, Fault> {
    let (mut transno, mut noted) = (0, None);
    let writer = report.is_some_and(of_size) && mdt.locks.covers(op.client, &writes_data(fid));
    let reader = mdt.locks.covers(op.client, &reads_size(fid));
    if let Some(report) = report.filter(|_| reader) {
        let view = View::new(&mdt.core, op.fetched, mdt.config.index);
        if let Some(mut inode) = view.inode(fid)? {
            let (before, stamp) = (inode.attr, op.stamp(&mdt.core));
            mdt.batch.clear();
            if writer && changes(&before, report) {
                drop_capabilities(&view, &mut mdt.batch, &mut inode)?;
                apply(&mut inode.attr, report, &stamp);
            } else if !writer {
                // Nobody is asked to forget the old atime: a cancel must not wait.
                let news = report.atime.filter(|at| *at > before.atime);
                accessed(&mut inode.attr, news, &stamp);
            }
            if inode.attr != before {
                put_inode(&mut mdt.batch, &inode);
                noted = Some(inode.attr);
                transno = op.commit(&mut mdt.core, &mut mdt.batch);
            }
        }
        if writer {
            mdt.opens.reported(fid, wrote(report));
        }
    }
    mdt.locks.cancel(op.client, fid, id);
    Ok(noted.map_or_else(|| Outcome::done(transno), |attr| Outcome::noted(attr, transno)))
}

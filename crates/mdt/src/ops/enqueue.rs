//! `Enqueue`, `Cancel` and `GoesOn`: a lock for its own sake, and locks given back, at once or slowly.

use sateen_ldlm::{Break, Need};
use sateen_target::Fault;
use sateen_types::{Errno, Fid};
use sateen_wire::{GivenBack, Grants, Ibits, LockId, LockMode, MdtReply, SizeReport};

use super::report::{accessed, apply, changes, of_size, shared, wrote};
use super::xattr::drop_capabilities;
use super::{put_inode, reads_data, shares_data, shown, writes_data};
use crate::mdt::Mdt;
use crate::op::{Op, Outcome};
use crate::view::View;

pub(super) fn run(mdt: &mut Mdt, op: &mut Op<'_>, need: Need) -> Result<Outcome, Fault> {
    if need.bits.is_empty() || matches!(need.mode, LockMode::Group | LockMode::Part) {
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
    if op.asks_again && mdt.locks.is_grouped(&need) {
        return op.leave_to_group();
    }
    let now = op.now.mono_ns;
    if op.ticket.is_none() && mdt.locks.breaks_parts(op.client, &need) {
        mdt.contention.breaks_parts(now, need.fid, (op.client, Break::ByWhole));
    }
    let need = need.in_mode(mode_for(mdt, op, &need));
    let Some(grant) = mdt.locks.enqueue(now, op.client, &mut op.ticket, &need) else {
        // Without a ticket there is nothing to wait for: the table is full.
        return Err(if op.ticket.is_some() { Fault::Blocked } else { Errno::EAGAIN.into() });
    };
    if grant.mode.is_shared() {
        mdt.contention.granted(grant.mode == LockMode::Cr);
    }
    let mut grants = Grants::NONE;
    let _fits = grants.push(grant);
    let attr = shown(&mdt.opens, &mdt.locks, op.client, attr);
    Ok(Outcome::ok(MdtReply::Inode { attr }, 0, grants))
}

/// The mode to wait for. Who would share the data gets it for himself, or with readers, as long as
/// that is no trouble: only then may it be cached.
fn mode_for(mdt: &mut Mdt, op: &Op<'_>, need: &Need) -> LockMode {
    let keeps = match need.mode {
        LockMode::Cw => LockMode::Pw,
        LockMode::Cr => LockMode::Pr,
        other => return other,
    };
    let now = op.now.mono_ns;
    if op.ticket.is_none() && mdt.locks.has_other_writer(op.client, need.fid) {
        mdt.contention.met(now, need.fid);
    }
    let contended = mdt.contention.is_contended(now, need.fid);
    if contended { need.mode } else { keeps }
}

/// Gives back a lock, with what is to be said of the size, and others.
pub(super) fn cancel(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    (fid, id): (Fid, LockId),
    report: Option<&SizeReport>,
    more: &[GivenBack],
) -> Result<Outcome, Fault> {
    let done = cancel_one(mdt, op, (fid, id), report);
    // An error of the first is the answer: the client holds none of the others any more.
    if matches!(&done, Ok(_) | Err(Fault::Errno(_))) {
        for other in more {
            mdt.locks.cancel(op.client, other.fid, other.id);
        }
    }
    done
}

/// A holder is slow with giving a lock back, and says how much was done for that.
pub(super) fn goes_on(mdt: &mut Mdt, op: &Op<'_>, (fid, id): (Fid, LockId), done: u64) -> Outcome {
    mdt.locks.goes_on(op.now.mono_ns, (op.client, fid, id), done);
    Outcome::done(0)
}

fn cancel_one(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    (fid, id): (Fid, LockId),
    report: Option<&SizeReport>,
) -> Result<Outcome, Fault> {
    let (mut transno, mut noted) = (0, None);
    // One that is not known changes nothing, whatever else its client has: it was given back before a
    // crash, and who shared the file then may have all of it for himself now.
    let report = report.filter(|_| mdt.locks.has(op.client, fid, id));
    let writer = report.is_some_and(of_size) && mdt.locks.covers(op.client, &writes_data(fid));
    let shares =
        !writer && report.is_some_and(of_size) && mdt.locks.covers(op.client, &shares_data(fid));
    let reader = mdt.locks.covers(op.client, &reads_data(fid));
    if let Some(report) = report.filter(|_| reader) {
        let view = View::new(&mdt.core, op.fetched, mdt.config.index);
        if let Some(mut inode) = view.inode(fid)? {
            let (before, stamp) = (inode.attr, op.stamp(&mdt.core));
            mdt.batch.clear();
            if writer && changes(&before, report) {
                drop_capabilities(&view, &mut mdt.batch, &mut inode)?;
                apply(&mut inode.attr, report, &stamp);
            } else if shares {
                drop_capabilities(&view, &mut mdt.batch, &mut inode)?;
                shared(&mut inode.attr, report, &stamp);
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
        } else if shares {
            mdt.opens.shared_wrote(fid);
        }
    }
    mdt.locks.cancel(op.client, fid, id);
    Ok(noted.map_or_else(|| Outcome::done(transno), |attr| Outcome::noted(attr, transno)))
}

//! `EnqueuePart`: the records of a comb, to write them, for who writes a file in turns with others; and
//! what of that a client had of the run before.
//!
//! A part is granted of a file that is contended, or of which somebody has one already. Who has the file
//! to himself is better served by all of it, and where parts are broken all the time by `Cw`. A range is
//! cut where another client's part begins, so that who asks for more than he needs yet takes nothing from
//! anybody.

use sateen_ldlm::{Break, Need, PARTS_PER_FILE_MAX};
use sateen_target::Fault;
use sateen_types::{Comb, Errno, Fid};
use sateen_wire::{COMBS, Grants, HeldPart, Ibits, LockMode, MdtReply};

use super::{is_regular, reclaim, shown};
use crate::mdt::Mdt;
use crate::op::{Op, Outcome};
use crate::view::View;

pub(super) fn run(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    (fid, asked): (Fid, Comb),
) -> Result<Outcome, Fault> {
    if mdt.core.exports.features(op.client).is_none_or(|all| all & COMBS == 0) {
        return Err(Errno::EINVAL.into());
    }
    if !mdt.config.parts {
        // Before anything is counted: who asks in vain is to be no trouble to others.
        return Err(Errno::EOPNOTSUPP.into());
    }
    op.need_fences()?;
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let attr = view.file(fid)?.attr;
    if !is_regular(&attr) {
        return Err(Errno::EINVAL.into());
    }
    let comb = if asked.is_range() { mdt.locks.fitted(op.client, (fid, asked)) } else { asked };
    let part = Need::part(fid, comb);
    if mdt.locks.is_stuck(&part) {
        return Err(Errno::EIO.into());
    }
    if op.asks_again && mdt.locks.is_grouped(&part) {
        return op.leave_to_group();
    }
    let need = part_or_more(mdt, op, &part);
    let Some(grant) = mdt.locks.enqueue(op.now.mono_ns, op.client, &mut op.ticket, &need) else {
        return Err(if op.ticket.is_some() { Fault::Blocked } else { Errno::EAGAIN.into() });
    };
    let mut grants = Grants::NONE;
    let _fits = grants.push(grant);
    let attr = shown(&mdt.opens, &mdt.locks, op.client, attr);
    let reply = match grant.mode {
        LockMode::Part => {
            mdt.contention.part_granted(comb != asked);
            MdtReply::Parted { attr, comb }
        }
        mode => {
            if mode == LockMode::Cw {
                mdt.contention.granted(false);
            }
            MdtReply::Inode { attr }
        }
    };
    Ok(Outcome::ok(reply, 0, grants))
}

/// What to wait for.
fn part_or_more(mdt: &mut Mdt, op: &Op<'_>, part: &Need) -> Need {
    let (now, fid) = (op.now.mono_ns, part.fid);
    if op.ticket.is_none() {
        // Parts that do not meet are no meeting.
        let is_in_way = mdt.locks.in_conflict(op.client, part);
        if is_in_way && mdt.locks.has_other_writer(op.client, fid) {
            mdt.contention.met(now, fid);
        }
        if mdt.locks.breaks_parts(op.client, part) {
            mdt.contention.breaks_parts(now, fid, (op.client, Break::ByPart));
        }
    }
    let is_contended = mdt.contention.is_contended(now, fid);
    let there_are = mdt.locks.parts_of(fid);
    let shared = Need::of(fid, LockMode::Cw, Ibits::DATA);
    // Who was one too many is not when all have gone for him. If he got a part then, the next who asks
    // would be one too many, and so on: they would take turns, each time with all of them called back,
    // and nobody would be told to go on without.
    let goes_without = op.ticket.is_some_and(|ticket| mdt.locks.waits_for(ticket, &shared));
    let granted = !goes_without
        && (is_contended || there_are > 0)
        && there_are < PARTS_PER_FILE_MAX
        && !mdt.contention.parts_are_off(now, fid);
    let asks_first = op.ticket.is_none();
    let need = match (granted, is_contended) {
        (true, _) => {
            if asks_first && there_are > 0 {
                // Those whom a look has taken theirs from, and who ask behind it, are to find that so.
                mdt.contention.goes_on(now, fid);
            }
            return *part;
        }
        (false, true) => shared,
        (false, false) => Need::of(fid, LockMode::Pw, Ibits::DATA),
    };
    // Also where there are too many.
    if asks_first && mdt.locks.breaks_parts(op.client, &need) {
        mdt.contention.breaks_parts(now, fid, (op.client, Break::ByWhole));
    }
    need
}

/// Parts of the run before; see [`super::reclaim`] for the other locks.
pub(super) fn reclaim(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    parts: &[HeldPart],
) -> Result<Outcome, Fault> {
    let claims = parts.iter().map(|part| (part.fid, part.id, part.comb));
    reclaim::take_each(mdt, op, claims, |mdt, client, (fid, id, comb)| {
        mdt.locks.parts_of(fid) < 2 * PARTS_PER_FILE_MAX
            && mdt.locks.reclaim_part(client, (fid, comb), id)
    })
}

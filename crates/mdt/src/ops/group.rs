//! `EnqueueGroup`: the data of a file for a group; and what of that a client had of the run before.

use sateen_ldlm::{Joined, Need};
use sateen_target::Fault;
use sateen_types::{Errno, Fid};
use sateen_wire::{Grants, HeldGroup, Ibits, LockMode, MdtReply};

use super::{is_regular, reclaim, shown};
use crate::mdt::Mdt;
use crate::op::{Op, Outcome};
use crate::view::View;

pub(super) fn run(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    (fid, gid): (Fid, u64),
) -> Result<Outcome, Fault> {
    if gid == 0 || !op.asks_again {
        return Err(Errno::EINVAL.into());
    }
    op.need_fences()?;
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let attr = view.file(fid)?.attr;
    if !is_regular(&attr) {
        return Err(Errno::EINVAL.into());
    }
    let need = Need::of(fid, LockMode::Group, Ibits::DATA);
    if mdt.locks.is_stuck(&need) {
        return Err(Errno::EIO.into());
    }
    let grant = match mdt.locks.join_group(op.now.mono_ns, op.client, &mut op.ticket, (fid, gid)) {
        Joined::Granted(grant) => grant,
        Joined::Taken => return op.leave_to_group(),
        Joined::Full => return Err(Errno::EAGAIN.into()),
        Joined::Wait => return Err(Fault::Blocked),
    };
    let mut grants = Grants::NONE;
    let _fits = grants.push(grant);
    let attr = shown(&mdt.opens, &mdt.locks, op.client, attr);
    Ok(Outcome::ok(MdtReply::Inode { attr }, 0, grants))
}

/// Group locks of the run before; see [`super::reclaim`] for the others.
pub(super) fn reclaim(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    groups: &[HeldGroup],
) -> Result<Outcome, Fault> {
    let claims = groups.iter().map(|group| (group.fid, group.id, group.gid));
    reclaim::take_each(mdt, op, claims, |mdt, client, (fid, id, gid)| {
        mdt.locks.reclaim_group(client, (fid, gid), id)
    })
}

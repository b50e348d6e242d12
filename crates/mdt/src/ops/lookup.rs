//! `Lookup`: a name in a directory, or that there is none.

use sateen_target::Fault;
use sateen_types::{Errno, Fid};
use sateen_wire::{Grants, Ibits, LockMode, MdtReply, Reply};

use super::glimpse::Seen;
use super::{is_regular, reads_size};
use crate::mdt::Mdt;
use crate::names::{Found, find};
use crate::op::{Op, Outcome};
use crate::view::View;

pub(super) fn run(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    (parent, name): (Fid, &[u8]),
    (want_parent, want): (Ibits, Ibits),
) -> Result<Outcome, Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    view.check(parent)?;
    let mut grants = Grants::NONE;
    let Found::Entry { fid, .. } = find(&view, parent, name)? else {
        view.dir(parent)?;
        op.grant(&mut mdt.locks, &mut grants, parent, (LockMode::Pr, want_parent));
        return Ok(Outcome::Reply(Reply { grants, ..Reply::error(Errno::ENOENT) }));
    };
    let Some(inode) = view.inode(fid)? else {
        tracing::error!(%parent, %fid, "a directory entry without an inode");
        return Err(Errno::EIO.into());
    };
    let attr = inode.attr;
    // Of a file that cannot be cut for now this is what can be told.
    let stuck = mdt.locks.is_stuck(&reads_size(fid));
    let seen = if !want.is_empty() && is_regular(&attr) && !stuck {
        op.look(&mut mdt.locks, &attr)?
    } else {
        Seen::NOTHING
    };
    op.grant(&mut mdt.locks, &mut grants, parent, (LockMode::Pr, want_parent));
    op.grant_inode(&mut mdt.locks, &mut grants, fid, (want, LockMode::Pr));
    let attr = seen.shown((&mdt.opens, &mdt.locks), (op, attr));
    Ok(Outcome::ok(MdtReply::Inode { attr }, 0, grants))
}

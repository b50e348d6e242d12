//! `GetAttr`: attributes of an inode, with the locks wanted on it.

use sateen_target::Fault;
use sateen_types::Fid;
use sateen_wire::{Grants, Ibits, LockMode, MdtReply};

use super::glimpse::Seen;
use super::{is_regular, reads_size};
use crate::mdt::Mdt;
use crate::op::{Op, Outcome};
use crate::view::View;

pub(super) fn run(mdt: &mut Mdt, op: &mut Op<'_>, fid: Fid, want: Ibits) -> Result<Outcome, Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let attr = view.file(fid)?.attr;
    // Of a file that cannot be cut for now this is what can be told.
    let stuck = mdt.locks.is_stuck(&reads_size(fid));
    let seen = if !want.is_empty() && is_regular(&attr) && !stuck {
        op.look(&mut mdt.locks, &attr)?
    } else {
        Seen::NOTHING
    };
    let mut grants = Grants::NONE;
    op.grant_inode(&mut mdt.locks, &mut grants, fid, (want, LockMode::Pr));
    let attr = seen.shown((&mdt.opens, &mdt.locks), (op, attr));
    Ok(Outcome::ok(MdtReply::Inode { attr }, 0, grants))
}

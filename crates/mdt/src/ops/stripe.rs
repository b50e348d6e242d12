//! `SetStripe` and `GetStripe`: the default policy of a directory, the layout of a file.

use sateen_ldlm::Need;
use sateen_target::Fault;
use sateen_types::{Errno, Fid, StripePolicy};
use sateen_wire::{Grants, Ibits, MdtReply};

use super::{is_regular, put_inode};
use crate::alloc::resolve;
use crate::mdt::Mdt;
use crate::op::{Op, Outcome};
use crate::view::View;

/// A policy that says nothing takes a directory's own away.
const NOTHING: StripePolicy = StripePolicy { stripe_count: 0, stripe_size: 0, stripe_offset: None };

pub(super) fn set(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    fid: Fid,
    policy: &StripePolicy,
) -> Result<Outcome, Fault> {
    policy.check().map_err(|_| Errno::EINVAL)?;
    if policy.stripe_offset.is_some_and(|index| !mdt.alloc.has(index)) {
        return Err(Errno::EINVAL.into());
    }
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let attr = view.file(fid)?.attr;
    let regular = is_regular(&attr);
    if !regular && !attr.is_dir() {
        return Err(Errno::EINVAL.into());
    }
    if attr.maybe_objects {
        return Err(Errno::EEXIST.into());
    }
    op.need(&mut mdt.locks, &[Need::all_gone(fid, Ibits::UPDATE.union(Ibits::LAYOUT))])?;
    let mut made = None;
    if regular {
        made = mdt.alloc.choose(&resolve(Some(*policy), None), attr.layout_gen + 1)?;
    }
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let mut inode = view.file(fid)?;
    inode.policy = (made.is_none() && *policy != NOTHING).then_some(*policy);
    if let Some(made) = &made {
        inode.layout = &made.bytes;
        inode.attr.layout_gen = made.layout.generation;
    }
    let stamp = op.stamp(&mdt.core);
    stamp.touch(&mut inode.attr);
    mdt.batch.clear();
    put_inode(&mut mdt.batch, &inode);
    Ok(Outcome::done(op.commit(&mut mdt.core, &mut mdt.batch)))
}

pub(super) fn get(mdt: &mut Mdt, op: &Op<'_>, fid: Fid) -> Result<Outcome, Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let inode = view.file(fid)?;
    let layout = mdt.layouts.get(inode.layout)?;
    let body = MdtReply::Striping { layout, policy: inode.policy };
    Ok(Outcome::ok(body, 0, Grants::NONE))
}

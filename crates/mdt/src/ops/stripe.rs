//! `SetStripe`, `SetLayout` and `GetStripe`: the default policy of a directory, the layout of a
//! file. What is not said of a file comes from its directory.

use sateen_ldlm::Need;
use sateen_target::Fault;
use sateen_types::{Attr, Errno, Fid, StripePolicy};
use sateen_wire::{Grants, Ibits, MdtReply};

use super::{is_regular, put_inode};
use crate::alloc::resolve;
use crate::layouts::Made;
use crate::mdt::Mdt;
use crate::names::parent_of;
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
    if policy.stripe_offset.is_some_and(|index| !mdt.alloc.is_active(index)) {
        return Err(Errno::EINVAL.into());
    }
    let (attr, inherited) = without_objects(mdt, op, fid)?;
    let mut made = None;
    if is_regular(&attr) {
        made = mdt.alloc.choose(&resolve(Some(*policy), inherited), attr.layout_gen + 1)?;
    }
    let policy = (made.is_none() && *policy != NOTHING).then_some(*policy);
    put(mdt, op, fid, (made, policy))
}

/// Puts a file on the OSTs that its owner has chosen one by one.
pub(super) fn set_layout(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    fid: Fid,
    (stripe_size, osts): (u32, &[u32]),
) -> Result<Outcome, Fault> {
    let (attr, inherited) = without_objects(mdt, op, fid)?;
    if !is_regular(&attr) {
        return Err(Errno::EISDIR.into());
    }
    let wish = StripePolicy { stripe_size, ..NOTHING };
    let size = resolve(Some(wish), inherited).stripe_size;
    let made = mdt.alloc.on(size, osts, attr.layout_gen + 1)?;
    put(mdt, op, fid, (Some(made), None))
}

/// A file without objects, or a directory, that nobody else believes anything of; and what its
/// directory hands to new files.
fn without_objects(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    fid: Fid,
) -> Result<(Attr, Option<StripePolicy>), Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let inode = view.file(fid)?;
    let attr = inode.attr;
    if !is_regular(&attr) && !attr.is_dir() {
        return Err(Errno::EINVAL.into());
    }
    if attr.maybe_objects {
        return Err(Errno::EEXIST.into());
    }
    let mut inherited = None;
    if is_regular(&attr) {
        let parent = view.inode(parent_of(inode.links))?;
        inherited = parent.and_then(|parent| parent.policy);
    }
    op.need(&mut mdt.locks, &[Need::all_gone(fid, Ibits::UPDATE.union(Ibits::LAYOUT))])?;
    Ok((attr, inherited))
}

/// Writes a layout, or a policy.
fn put(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    fid: Fid,
    (made, policy): (Option<Made>, Option<StripePolicy>),
) -> Result<Outcome, Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let mut inode = view.file(fid)?;
    inode.policy = policy;
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

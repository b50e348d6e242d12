//! `SetStripe`, `SetLayout` and `GetStripe`: the default policy of a directory, the layout of a
//! file, and the OSTs that are chosen one by one for either. What is not said of a file comes from
//! its directory.

use sateen_ldlm::Need;
use sateen_target::Fault;
use sateen_types::{Attr, Errno, Fid, StripePolicy};
use sateen_wire::{Grants, Ibits, MdtReply, MdtRequest};

use super::create::handed_by;
use super::{is_regular, put_inode};
use crate::alloc::Inherited;
use crate::layouts::Made;
use crate::mdt::Mdt;
use crate::names::parent_of;
use crate::op::{Op, Outcome};
use crate::replays::Change;
use crate::view::View;

/// The generation of what stands in the place of a layout in a directory.
const OF_DIRECTORY: u32 = 0;
/// A policy that says nothing takes a directory's own away.
const NOTHING: StripePolicy = StripePolicy { stripe_count: 0, stripe_size: 0, stripe_offset: None };

pub(super) fn set(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    fid: Fid,
    policy: &StripePolicy,
) -> Result<Outcome, Fault> {
    policy.check().map_err(|_| Errno::EINVAL)?;
    let is_away = |index| op.again.is_none() && !mdt.alloc.is_active(index);
    if policy.stripe_offset.is_some_and(is_away) {
        return Err(Errno::EINVAL.into());
    }
    let (attr, inherited) = without_objects(mdt, op, fid)?;
    let mut made = op.again.and_then(Change::striping);
    // What is said of a file stays with it: it may have to lie elsewhere before it is written.
    if is_regular(&attr) && op.again.is_none() {
        made = mdt.alloc.place(Some(*policy), &inherited, attr.layout_gen + 1)?;
    }
    put(mdt, op, fid, (made, said(policy)))
}

/// What is stored of a policy.
fn said(policy: &StripePolicy) -> Option<StripePolicy> {
    (*policy != NOTHING).then_some(*policy)
}

/// What comes nearest to a list of OSTs, for whoever does not look at the list.
fn nearest(stripe_size: u32, osts: &[u32]) -> Result<StripePolicy, Errno> {
    let stripe_count = i32::try_from(osts.len()).map_err(|_| Errno::EINVAL)?;
    Ok(StripePolicy { stripe_count, stripe_size, stripe_offset: osts.first().copied() })
}

/// Whether an answer can be one to this request.
pub(super) fn is_answered(request: &MdtRequest, answer: &MdtReply) -> bool {
    let MdtReply::Striping { policy, .. } = answer else { return false };
    match request {
        MdtRequest::SetStripe { policy: asked, .. } => *policy == said(asked),
        MdtRequest::SetLayout { stripe_size, osts, .. } => {
            policy.is_some() && *policy == nearest(*stripe_size, osts).ok()
        }
        _ => false,
    }
}

/// Puts a file, or the new files of a directory, on the OSTs that its owner has chosen one by
/// one.
pub(super) fn set_layout(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    fid: Fid,
    (stripe_size, osts): (u32, &[u32]),
) -> Result<Outcome, Fault> {
    let (attr, inherited) = without_objects(mdt, op, fid)?;
    let made = if let Some(again) = op.again {
        again.striping().ok_or(Errno::EINVAL)?
    } else if attr.is_dir() {
        mdt.alloc.on(stripe_size, osts, OF_DIRECTORY)?
    } else {
        let wish = StripePolicy { stripe_size, ..NOTHING };
        let size = mdt.alloc.resolve(Some(wish), inherited.policy).stripe_size;
        mdt.alloc.on(size, osts, attr.layout_gen + 1)?
    };
    put(mdt, op, fid, (Some(made), Some(nearest(stripe_size, osts)?)))
}

/// A file without objects, or a directory, that nobody else believes anything of; and what its
/// directory hands to new files.
fn without_objects(mdt: &mut Mdt, op: &mut Op<'_>, fid: Fid) -> Result<(Attr, Inherited), Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let inode = view.file(fid)?;
    let attr = inode.attr;
    if !is_regular(&attr) && !attr.is_dir() {
        return Err(Errno::EINVAL.into());
    }
    if attr.maybe_objects {
        return Err(Errno::EEXIST.into());
    }
    let mut inherited = Inherited::default();
    if is_regular(&attr)
        && let Some(parent) = view.inode(parent_of(inode.links))?
    {
        inherited = handed_by(&mut mdt.layouts, &parent)?;
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
    if inode.attr.is_dir() {
        // The list of OSTs that was part of what it said until now.
        inode.layout = &[];
    }
    if let Some(made) = &made {
        inode.layout = &made.bytes;
        inode.attr.layout_gen = made.layout.generation;
    }
    let stamp = op.stamp(&mdt.core);
    stamp.touch(&mut inode.attr);
    mdt.batch.clear();
    put_inode(&mut mdt.batch, &inode);
    let transno = op.commit(&mut mdt.core, &mut mdt.batch);
    let layout = made.map(|made| made.layout);
    let body = MdtReply::Striping { layout, policy };
    Ok(Outcome::ok(body, transno, Grants::NONE))
}

pub(super) fn get(mdt: &mut Mdt, op: &Op<'_>, fid: Fid) -> Result<Outcome, Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let inode = view.file(fid)?;
    let layout = mdt.layouts.get(inode.layout)?;
    let policy = inode.policy.filter(|_| inode.attr.is_dir());
    let default = mdt.alloc.default_policy();
    let body = MdtReply::Striped { layout, policy, default };
    Ok(Outcome::ok(body, 0, Grants::NONE))
}

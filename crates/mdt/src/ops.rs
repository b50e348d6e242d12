//! The operations, one file each. An operation looks (and may stop: fetch this, that lock
//! has to go first), then writes one batch, then changes what is only in memory. It changes
//! nothing before it is sure to succeed.

mod close;
mod create;
mod enqueue;
mod file_lock;
mod getattr;
mod glimpse;
mod grant_seq;
mod group;
mod link;
mod links;
mod lookup;
mod no_room;
mod open;
mod part;
mod readdir;
mod readlink;
mod reclaim;
mod reconstruct;
mod rename;
mod replay;
mod report;
mod setattr;
mod statfs;
mod stripe;
mod sync;
mod tmpfile;
mod unlink;
mod xattr;

use sateen_ldlm::{LockTable, Need};
use sateen_osd::Batch;
use sateen_target::Fault;
use sateen_types::{Attr, ClientId, Fid, FileKind};
use sateen_wire::disk::mdt::Inode;
use sateen_wire::{Ibits, LockMode, MdtRequest, RenameFlags};

use crate::keys;
use crate::mdt::Mdt;
use crate::op::{Op, Outcome};
use crate::opens::Opens;

pub(crate) use reclaim::LINKABLE;
pub(crate) use reconstruct::run as reconstruct;
pub(crate) use replay::again;

/// `st_size` of a directory: what programs are used to.
pub(crate) const DIR_SIZE: u64 = 4096;
/// `st_blocks` of a directory.
pub(crate) const DIR_BLOCKS: u64 = 8;
/// Most hard links of a file, as ext4 has it.
pub(crate) const LINK_MAX: u32 = 65000;
/// Largest file, as on Linux.
pub(crate) const FILE_SIZE_MAX: u64 = i64::MAX as u64;

pub(crate) const S_ISUID: u32 = 0o4000;
pub(crate) const S_ISGID: u32 = 0o2000;
pub(crate) const S_IXGRP: u32 = 0o0010;

/// Executes one request.
pub(crate) fn run(mdt: &mut Mdt, op: &mut Op<'_>, request: &MdtRequest) -> Result<Outcome, Fault> {
    match request {
        MdtRequest::GetAttr { fid, want } => getattr::run(mdt, op, *fid, *want),
        MdtRequest::Lookup { parent, name, want_parent, want } => {
            lookup::run(mdt, op, (*parent, name.as_bytes()), (*want_parent, *want))
        }
        MdtRequest::Create { .. } => create::run(mdt, op, request),
        MdtRequest::Open { fid, flags, open_id, cred, want } => open::run(
            mdt,
            op,
            *fid,
            &open::Intent { flags: *flags, id: *open_id, cred: *cred, want: *want },
        ),
        MdtRequest::Close { fid, open_id, report } => {
            close::run(mdt, op, (*fid, *open_id), report.as_ref())
        }
        MdtRequest::Unlink { parent, name, directory } => {
            unlink::run(mdt, op, (*parent, name.as_bytes()), *directory)
        }
        MdtRequest::Rename { parent, name, new_parent, new_name, flags } => rename::run(
            mdt,
            op,
            (*parent, name.as_bytes()),
            (*new_parent, new_name.as_bytes()),
            (*flags, None),
        ),
        MdtRequest::Link { fid, parent, name } => {
            link::run(mdt, op, *fid, (*parent, name.as_bytes()))
        }
        MdtRequest::SetAttr { fid, set, cred } => setattr::run(mdt, op, *fid, set, cred),
        MdtRequest::ReadDir { fid, after, count, plus } => {
            readdir::run(mdt, op, *fid, *after, (*count, *plus))
        }
        MdtRequest::ReadLink { fid } => readlink::run(mdt, op, *fid),
        MdtRequest::GetXattr { fid, name } => xattr::get(mdt, op, *fid, name.as_bytes()),
        MdtRequest::ListXattr { fid } => xattr::list(mdt, op, *fid),
        MdtRequest::SetXattr { fid, name, value, mode } => {
            xattr::set(mdt, op, *fid, name.as_bytes(), (value, *mode))
        }
        MdtRequest::RemoveXattr { fid, name } => xattr::remove(mdt, op, *fid, name.as_bytes()),
        MdtRequest::SetStripe { fid, policy } => stripe::set(mdt, op, *fid, policy),
        MdtRequest::GetStripe { fid } => stripe::get(mdt, op, *fid),
        MdtRequest::Enqueue { fid, mode, bits } => {
            enqueue::run(mdt, op, Need::of(*fid, *mode, *bits))
        }
        MdtRequest::EnqueueGroup { fid, gid } => group::run(mdt, op, (*fid, *gid)),
        MdtRequest::EnqueuePart { fid, comb } => part::run(mdt, op, (*fid, *comb)),
        MdtRequest::Cancel { fid, id, report, more } => {
            enqueue::cancel(mdt, op, (*fid, *id), report.as_ref(), more)
        }
        MdtRequest::ReportSize { fid, report, glimpsed, version } => {
            report::run(mdt, op, *fid, report, glimpsed.then_some(*version))
        }
        MdtRequest::AnswerGlimpse { fid, question, told } => {
            glimpse::answer(mdt, op, (*fid, *question), *told)
        }
        MdtRequest::GoesOn { fid, id, done } => Ok(enqueue::goes_on(mdt, op, (*fid, *id), *done)),
        MdtRequest::SetFileLock { fid, open_id, lock, wait } => {
            file_lock::set(mdt, op, (*fid, *open_id), (lock, *wait))
        }
        MdtRequest::TestFileLock { fid, open_id, lock } => {
            file_lock::test(mdt, op, (*fid, *open_id), lock)
        }
        MdtRequest::LeaveFileLock { fid, wait } => Ok(file_lock::leave(mdt, op, *fid, *wait)),
        MdtRequest::Sync { upto } => Ok(sync::run(mdt, *upto)),
        MdtRequest::GrantSeq => grant_seq::run(mdt, op),
        MdtRequest::StatFs => Ok(statfs::run(mdt)),
        MdtRequest::SetLayout { fid, stripe_size, osts } => {
            stripe::set_layout(mdt, op, *fid, (*stripe_size, osts))
        }
        MdtRequest::GetLinks { fid } => links::run(mdt, op, *fid),
        MdtRequest::NoRoom { fid, ost, unwritten } => {
            no_room::run(mdt, op, *fid, (*ost, *unwritten))
        }
        MdtRequest::Reclaim { .. } => reclaim::run(mdt, op, request),
        MdtRequest::ReclaimGroups { groups } => group::reclaim(mdt, op, groups),
        MdtRequest::ReclaimParts { parts } => part::reclaim(mdt, op, parts),
        MdtRequest::Replay { changes, last } => replay::run(mdt, op, (changes, *last)),
        MdtRequest::Tmpfile { .. } => tmpfile::run(mdt, op, request),
        MdtRequest::RenameWhiteout {
            parent,
            name,
            new_parent,
            new_name,
            no_replace,
            fid,
            cred,
        } => {
            let flags = RenameFlags { no_replace: *no_replace, exchange: false };
            let (from, to) = ((*parent, name.as_bytes()), (*new_parent, new_name.as_bytes()));
            rename::run(mdt, op, from, to, (flags, Some((*fid, *cred))))
        }
    }
}

/// Writes an inode.
pub(crate) fn put_inode(tx: &mut Batch, inode: &Inode<'_>) {
    tx.put_with(&keys::inode(inode.attr.fid), |out| inode.put(out));
}

/// What stands in the way of reading a file's size: somebody else's lock for writing data.
pub(crate) const fn reads_size(fid: Fid) -> Need {
    Need::of(fid, LockMode::Pr, Ibits::DATA)
}

/// What whoever writes a file's data holds.
pub(crate) const fn writes_data(fid: Fid) -> Need {
    Need::of(fid, LockMode::Pw, Ibits::DATA)
}

/// What whoever writes a file's data beside others holds.
pub(crate) const fn shares_data(fid: Fid) -> Need {
    Need::of(fid, LockMode::Cw, Ibits::DATA)
}

/// What whoever reads a file's data holds at least.
pub(crate) const fn reads_data(fid: Fid) -> Need {
    Need::of(fid, LockMode::Cr, Ibits::DATA)
}

/// Attributes as they are shown: the size counts as stale only if nobody here knows it. While
/// objects are still to be cut it is what the truncate has made it, and what they have now would
/// mislead whoever asks them.
pub(crate) fn shown(opens: &Opens, locks: &LockTable, client: ClientId, mut attr: Attr) -> Attr {
    let reads = reads_size(attr.fid);
    let known =
        || opens.get(attr.fid).is_some_and(|file| file.known) && !locks.in_conflict(client, &reads);
    if attr.size_stale && (locks.is_held(&reads) || known()) {
        attr.size_stale = false;
    }
    attr
}

/// Whether this is a regular file.
pub(crate) fn is_regular(attr: &Attr) -> bool {
    attr.kind() == FileKind::Regular
}

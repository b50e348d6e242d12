//! The operations, one file each.
//!
//! `begin` looks at what it needs, changes nothing before it has all of it, and says what
//! comes next; it is called again after a miss, after I/O that asks for it, and after waiting.
//! `done` goes on after object I/O.

mod allocate;
mod alone;
mod connect;
mod destroy;
mod fence;
mod getattr;
mod list;
mod punch;
mod read;
mod seek;
mod size;
pub(crate) mod start;
mod statfs;
mod sweep;
mod sync;
mod times;
mod write;

use sateen_osd::{ObjectDone, ObjectError, ObjectStat};
use sateen_target::{Fault, Outbox, Service};
use sateen_types::{Endpoint, Errno, ObjectId, seq};
use sateen_wire::{Header, OBJECTS_PER_RPC_MAX, ObjectAttr, OstReply, OstRequest};

use crate::op::{Op, Step, Work};
use crate::ost::Ost;

/// Highest byte of an object that may exist, plus one: what a signed file offset can say.
const OBJECT_BYTES_MAX: u64 = i64::MAX as u64;

/// Runs an operation from its start.
pub(crate) fn begin(ost: &mut Ost, id: u64, op: &mut Op, out: &mut Outbox) -> Result<Step, Fault> {
    let Work::Request { header, request, .. } = &mut op.work else {
        return match &op.work {
            Work::Connect(_) => connect::begin(ost, op, out),
            Work::Start(_) => start::begin(ost, op),
            Work::Sweep(_) => sweep::begin(ost, op),
            Work::Settle => crate::ending::begin(ost),
            Work::Refresh | Work::Request { .. } => Ok(statfs::ask(ost, op)),
        };
    };
    match request {
        OstRequest::Write { .. } | OstRequest::WriteMany { .. } | OstRequest::Append { .. } => {
            write::begin(ost, op)
        }
        OstRequest::Read { .. } => read::begin(ost, op),
        OstRequest::Punch { .. } => punch::begin(ost, op),
        OstRequest::Destroy { .. } => destroy::begin(ost, op),
        OstRequest::Sync { .. } => sync::begin(ost, op, out),
        OstRequest::GetAttr { objects } => Ok(getattr::begin(objects)),
        OstRequest::List { seq, from_oid, count } => list::begin(*seq, *from_oid, *count),
        OstRequest::Fence { client } => {
            let client = *client;
            only_from_mdt(header)?;
            fence::begin(ost, id, op, client)
        }
        OstRequest::StatFs => Ok(statfs::ask(ost, op)),
        OstRequest::Seek { object, offset, hole } => seek::begin(*object, *offset, *hole),
        OstRequest::Allocate { .. } | OstRequest::ZeroRange { .. } => allocate::begin(ost, op),
        OstRequest::SetSize { .. } => size::begin(ost, op),
        OstRequest::SetTimes { object, atime, mtime } => Ok(times::begin(*object, *atime, *mtime)),
        OstRequest::Alone { object } => Ok(alone::begin(*object)),
    }
}

/// Goes on after object I/O that went well.
pub(crate) fn done(ost: &mut Ost, op: &mut Op, done: ObjectDone) -> Result<Step, Fault> {
    let Work::Request { request, .. } = &op.work else {
        return match &op.work {
            Work::Refresh => {
                statfs::learn(ost, op, &done)?;
                Ok(Step::End)
            }
            _ => Ok(Step::Again),
        };
    };
    match request {
        OstRequest::Write { .. } | OstRequest::WriteMany { .. } | OstRequest::Append { .. } => {
            write::done(ost, op, done)
        }
        OstRequest::Read { .. } => read::done(op, done),
        OstRequest::Punch { .. } | OstRequest::Destroy { .. } => {
            op.phase += 1;
            if let ObjectDone::Removed(removed) = done {
                op.removed = removed;
            }
            Ok(Step::Again)
        }
        OstRequest::Sync { .. } => Ok(sync::done(ost, op)),
        OstRequest::GetAttr { .. } | OstRequest::List { .. } => getattr::done(done),
        OstRequest::StatFs => statfs::done(ost, op, done),
        OstRequest::Seek { .. } => seek::done(done),
        OstRequest::Allocate { .. } | OstRequest::ZeroRange { .. } => allocate::done(ost, op, done),
        OstRequest::SetSize { .. } => size::done(&done),
        OstRequest::SetTimes { .. } => times::done(&done),
        OstRequest::Alone { .. } => alone::done(&done),
        OstRequest::Fence { .. } => Err(unexpected()),
    }
}

/// Goes on after object I/O that failed.
pub(crate) fn failed(
    ost: &mut Ost,
    op: &mut Op,
    error: &ObjectError,
    out: &mut Outbox,
) -> Result<Step, Fault> {
    let promises_nothing = match &op.work {
        Work::Refresh => true,
        Work::Request { request, .. } => matches!(
            request,
            OstRequest::Read { .. }
                | OstRequest::GetAttr { .. }
                | OstRequest::List { .. }
                | OstRequest::StatFs
                | OstRequest::Seek { .. }
                | OstRequest::Alone { .. }
                | OstRequest::SetTimes { .. }
        ),
        Work::Connect(_) | Work::Start(_) | Work::Sweep(_) | Work::Settle => false,
    };
    ost.space.doubt();
    if write::found_no_room(op, error) {
        return Ok(write::nothing_of_it(ost, op));
    }
    // What cannot be read harms its reader alone, and of times nothing is promised; what could not
    // be written or made durable may already have been promised.
    if error.poisons() && !promises_nothing {
        tracing::error!(%error, "the object store failed: the target stops");
        let now = ost.now;
        ost.on_poisoned(now, out);
        return Err(Fault::Errno(Errno::EIO));
    }
    Err(Fault::Errno(if error.poisons() { Errno::EIO } else { error.errno() }))
}

/// The object store answered something else than it was asked.
fn unexpected() -> Fault {
    tracing::error!("the object store answered something else than it was asked");
    Fault::Errno(Errno::EIO)
}

/// Requests that clients have no business with.
fn only_from_mdt(header: &Header) -> Result<(), Fault> {
    match header.from {
        Endpoint::Mdt(_) => Ok(()),
        _ => Err(Fault::Errno(Errno::EPERM)),
    }
}

/// Objects are cut and removed by nobody but the MDT that has their files: another one would
/// decide by what it does not know.
fn only_from_mdt_of<'a>(
    header: &Header,
    objects: impl IntoIterator<Item = &'a ObjectId>,
) -> Result<(), Fault> {
    let Endpoint::Mdt(index) = header.from else { return Err(Fault::Errno(Errno::EPERM)) };
    match objects.into_iter().find(|object| seq::mdt_of(object.fid.seq) != index) {
        None => Ok(()),
        Some(object) => {
            tracing::warn!(from = %header.from, %object, "an MDT asked for a file of another");
            Err(Fault::Errno(Errno::EPERM))
        }
    }
}

/// The end of a range of an object.
fn end_of(offset: u64, len: u64) -> Result<u64, Fault> {
    match offset.checked_add(len) {
        Some(end) if end <= OBJECT_BYTES_MAX => Ok(end),
        _ => Err(Fault::Errno(Errno::EFBIG)),
    }
}

/// Whether a range of an object is allocated already, as far as sizes can tell: then writing
/// to it takes no space.
fn is_allocated(stat: &ObjectStat, end: u64) -> bool {
    stat.exists && end <= stat.size && stat.blocks.saturating_mul(512) >= stat.size
}

/// The answer that lists objects.
fn objects_reply(stats: &[ObjectStat]) -> Result<OstReply, Fault> {
    if stats.len() > OBJECTS_PER_RPC_MAX {
        return Err(Fault::Errno(Errno::EOVERFLOW));
    }
    let attr = |stat: &ObjectStat| ObjectAttr {
        object: stat.object,
        size: stat.size,
        blocks: stat.blocks,
        mtime: stat.mtime,
        ctime: stat.ctime,
        atime: stat.atime,
    };
    Ok(OstReply::Objects(stats.iter().map(attr).collect()))
}

//! One operation from its arrival to its answer.
//!
//! Life of an operation:
//! 1. It arrives and takes its places behind earlier ones (`order`): `Waiting`.
//! 2. It runs; whatever it misses in memory is fetched (`Fetching`) and it runs again from
//!    its start, keeping its places, so that nothing it looked at can change meanwhile.
//! 3. Its object I/O is under way: `Io`; it goes on when that is done.
//! 4. It is answered (perhaps once the journal is durable), gives up its places, and those
//!    behind it may run.

use sateen_osd::{Key, ObjectOp, Prefetched};
use sateen_types::{ClientId, Errno, ObjectId};
use sateen_wire::spans;
use sateen_wire::{Bulk, Header, Message, OstReply, OstRequest, Reply, ReplyBody};
use smallvec::SmallVec;

use crate::order::{Class, Ranges};

/// Most operations under way at once, waiting or running; more are answered `EAGAIN`.
pub const OPS_MAX: usize = 1 << 16;

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Work {
    /// A client or target connects.
    Connect(Box<Message>),
    /// A request.
    Request {
        /// Its header.
        header: Header,
        /// What it asks.
        request: OstRequest,
        /// What came with it.
        bulk: Bulk,
    },
    /// Read what the last run left; everything else waits for it.
    Start(crate::ops::start::Start),
    /// Forget tombstones that nobody needs, from this key on.
    Sweep(Key),
    /// Ask how much space there is.
    Refresh,
    /// Sync everything, and write down that nothing of this run is lost.
    Settle,
}

/// Where an operation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// For earlier operations, or for its turn.
    Waiting,
    /// For the index.
    Fetching,
    /// For the object store.
    Io,
}

/// The objects of an operation: one in most cases, which takes no memory beside it.
pub(crate) type Objects = SmallVec<[ObjectId; 1]>;

/// An operation.
#[derive(Debug)]
pub(crate) struct Op {
    /// What it does.
    pub(crate) work: Work,
    /// Its objects, each once.
    pub(crate) objects: Objects,
    /// What it does to them.
    pub(crate) class: Class,
    /// Where it stands.
    pub(crate) state: State,
    /// Earlier operations it waits for.
    pub(crate) blockers: usize,
    /// Later operations that wait for it.
    pub(crate) followers: Vec<u64>,
    /// The step it has reached: each operation counts for itself, from 0.
    pub(crate) phase: u8,
    /// Bytes it has taken from the free space.
    pub(crate) charged: u64,
    /// Bytes that its range has yet to take.
    pub(crate) to_come: u64,
    /// Bytes of its range that are done.
    pub(crate) done: u64,
    /// Bytes of its client's grant that it has used up.
    pub(crate) granted: u64,
    /// Bytes of the OST's own memory that it reads into.
    pub(crate) buffered: usize,
    /// How far the journal must be durable before it is answered.
    pub(crate) mark: u64,
    /// How far the count of written bytes had come when it asked how much space there is.
    pub(crate) written: u128,
    /// Of the objects that it removes, those that were there.
    pub(crate) removed: Vec<ObjectId>,
    /// Its client has gone: it must not begin anything any more, nor answer.
    pub(crate) orphaned: bool,
    /// What was fetched for it.
    pub(crate) fetched: Prefetched,
}

/// What an operation needs next.
#[derive(Debug)]
pub(crate) enum Step {
    /// Object I/O.
    Io(ObjectOp),
    /// To run again, after whoever it now waits for.
    Again,
    /// To be answered.
    Answer(Reply, Bulk),
    /// To be answered when everything up to a transno is durable.
    Durable(Reply, u64),
    /// Nothing: it is over.
    End,
}

impl Step {
    /// A good answer that became no transaction.
    pub(crate) fn answer(reply: OstReply) -> Step {
        Step::Answer(good(reply, 0), Bulk::None)
    }
}

/// A good answer to a request that became transaction `transno`, or none (0).
pub(crate) fn good(reply: OstReply, transno: u64) -> Reply {
    Reply { transno, ..Reply::ok(ReplyBody::Ost(reply)) }
}

impl Op {
    /// An operation without objects.
    pub(crate) fn new(work: Work) -> Op {
        Op {
            work,
            objects: Objects::new(),
            class: Class::Read,
            state: State::Waiting,
            blockers: 0,
            followers: Vec::new(),
            phase: 0,
            charged: 0,
            to_come: 0,
            done: 0,
            granted: 0,
            removed: Vec::new(),
            buffered: 0,
            mark: 0,
            written: 0,
            orphaned: false,
            fetched: Prefetched::default(),
        }
    }

    /// The operation of a request.
    ///
    /// # Errors
    /// What is wrong with its objects, or the ranges it brings.
    pub(crate) fn request(header: Header, request: OstRequest, bulk: Bulk) -> Result<Op, Errno> {
        let (class, mut objects) = places(&request);
        if objects.len() > sateen_wire::OBJECTS_PER_RPC_MAX {
            return Err(Errno::E2BIG);
        }
        if objects.iter().any(|object| !object.fid.is_valid()) {
            return Err(Errno::EINVAL);
        }
        if let OstRequest::WriteMany { pieces, .. } = &request {
            let Bulk::Data(data) = &bulk else { return Err(Errno::EPROTO) };
            if spans::extent_of(pieces)?.0 != data.len() as u64 {
                return Err(Errno::EINVAL);
            }
        }
        if objects.len() > 1 {
            objects.sort_unstable();
            objects.dedup();
        }
        let work = Work::Request { header, request, bulk };
        Ok(Op { objects, class, ..Op::new(work) })
    }

    /// The bytes that it reads or writes.
    pub(crate) fn ranges(&self) -> Ranges {
        Ranges::One(match &self.work {
            Work::Request { request: OstRequest::WriteMany { pieces, .. }, .. } => {
                return Ranges::Many(pieces.clone());
            }
            Work::Request { request: OstRequest::Write { offset, .. }, bulk, .. } => {
                let Bulk::Data(data) = bulk else { return Ranges::One((*offset, 0)) };
                (*offset, data.len() as u64)
            }
            Work::Request { request: OstRequest::Allocate { offset, len, .. }, .. } => {
                (*offset, *len)
            }
            Work::Request { request: OstRequest::Read { offset, len, .. }, .. } => {
                (*offset, u64::from(*len))
            }
            // Where the end is, is seen when it is done; and a write, wherever it goes, sets a time.
            Work::Request {
                request: OstRequest::Append { .. } | OstRequest::SetTimes { .. },
                ..
            } => (0, u64::MAX),
            _ => (0, 0),
        })
    }

    /// The client it works for; `None` for the OST's own work.
    pub(crate) fn client(&self) -> Option<ClientId> {
        match &self.work {
            Work::Request { header, .. } => Some(header.client),
            Work::Connect(_) | Work::Start(_) | Work::Sweep(_) | Work::Refresh | Work::Settle => {
                None
            }
        }
    }
}

/// The objects a request concerns, and how.
fn places(request: &OstRequest) -> (Class, Objects) {
    let one = |object: &ObjectId| Objects::from_elem(*object, 1);
    let all = |objects: &[ObjectId]| Objects::from_slice(objects);
    match request {
        OstRequest::Read { object, .. }
        | OstRequest::Seek { object, .. }
        | OstRequest::Alone { object } => (Class::Read, one(object)),
        OstRequest::GetAttr { objects } => (Class::Read, all(objects)),
        OstRequest::Write { object, .. }
        | OstRequest::WriteMany { object, .. }
        | OstRequest::Append { object, .. }
        | OstRequest::SetTimes { object, .. } => (Class::Write, one(object)),
        OstRequest::Allocate { object, punch_hole, .. } => {
            (if *punch_hole { Class::Exclusive } else { Class::Write }, one(object))
        }
        OstRequest::ZeroRange { object, .. } => (Class::Exclusive, one(object)),
        OstRequest::Sync { objects, .. } => (Class::Sync, all(objects)),
        OstRequest::Punch { object, .. } | OstRequest::SetSize { object, .. } => {
            (Class::Exclusive, one(object))
        }
        OstRequest::Destroy { objects, .. } => (Class::Exclusive, all(objects)),
        OstRequest::List { .. } | OstRequest::Fence { .. } | OstRequest::StatFs => {
            (Class::Read, Objects::new())
        }
    }
}

//! How often what was done, by all clients and by each, and how many bytes it moved. Plain
//! counters: the OST has one owner at a time.

use sateen_types::{ClientId, ClientStats, StatName, Stats};
use sateen_wire::{OstReply, OstRequest, Reply, ReplyBody};

/// How many kinds of operations are counted.
const KINDS: usize = 12;

/// What an OST counts.
pub type OstStats = Stats<KINDS>;

/// The names of what is counted, as the field's `obdfilter.*.stats` has them.
pub const OST_STATS: [StatName; KINDS] = [
    StatName::bytes("read_bytes"),
    StatName::bytes("write_bytes"),
    StatName::reqs("getattr"),
    StatName::reqs("punch"),
    StatName::reqs("sync"),
    StatName::reqs("destroy"),
    StatName::reqs("statfs"),
    StatName::reqs("prealloc"),
    StatName::reqs("seek"),
    StatName::reqs("get_info"),
    StatName::reqs("setattr"),
    StatName::pieces("write_many"),
];

const READ_BYTES: usize = 0;
const WRITE_BYTES: usize = 1;
/// Those of several pieces, beside their bytes.
const WRITE_MANY: usize = 11;

/// The counters of an OST.
pub(crate) type Counters = ClientStats<KINDS>;

/// The place of what is only counted.
fn place(request: &OstRequest) -> Option<usize> {
    Some(match request {
        OstRequest::GetAttr { .. } => 2,
        OstRequest::Punch { .. } => 3,
        OstRequest::Sync { .. } => 4,
        OstRequest::Destroy { .. } => 5,
        OstRequest::StatFs => 6,
        OstRequest::Allocate { .. } | OstRequest::ZeroRange { .. } => 7,
        OstRequest::Seek { .. } => 8,
        OstRequest::List { .. } | OstRequest::Alone { .. } => 9,
        OstRequest::SetSize { .. } | OstRequest::SetTimes { .. } => 10,
        OstRequest::Read { .. }
        | OstRequest::Write { .. }
        | OstRequest::WriteMany { .. }
        | OstRequest::Append { .. }
        | OstRequest::Fence { .. } => return None,
    })
}

/// A request was answered.
pub(crate) fn done(counters: &mut Counters, client: ClientId, request: &OstRequest, reply: &Reply) {
    if reply.error.is_some() {
        return;
    }
    match &reply.body {
        ReplyBody::Ost(OstReply::Read { len }) => counters.add(client, READ_BYTES, (*len).into()),
        ReplyBody::Ost(OstReply::Written { len: 0, .. } | OstReply::Appended { len: 0, .. }) => {}
        ReplyBody::Ost(OstReply::Written { len, .. } | OstReply::Appended { len, .. }) => {
            counters.add(client, WRITE_BYTES, (*len).into());
            if let OstRequest::WriteMany { pieces, .. } = request {
                counters.add(client, WRITE_MANY, pieces.len() as u64);
            }
        }
        _ => {
            if let Some(place) = place(request) {
                counters.count(client, place);
            }
        }
    }
}

//! How often what was done, by all clients and by each, and how many bytes it moved. Plain
//! counters: the OST has one owner at a time.

use std::collections::BTreeMap;

use sateen_types::{ClientId, StatName, Stats};
use sateen_wire::{OstReply, OstRequest, Reply, ReplyBody};

/// How many kinds of operations are counted.
const KINDS: usize = 10;

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
];

const READ_BYTES: usize = 0;
const WRITE_BYTES: usize = 1;

/// The counters of an OST.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) all: OstStats,
    pub(crate) clients: BTreeMap<ClientId, OstStats>,
}

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
        OstRequest::List { .. } => 9,
        OstRequest::Read { .. } | OstRequest::Write { .. } | OstRequest::Fence { .. } => {
            return None;
        }
    })
}

impl Counters {
    /// A request was answered.
    pub(crate) fn done(&mut self, client: ClientId, request: &OstRequest, reply: &Reply) {
        if reply.error.is_some() {
            return;
        }
        let (place, size) = match &reply.body {
            ReplyBody::Ost(OstReply::Read { len }) => (READ_BYTES, Some(*len)),
            ReplyBody::Ost(OstReply::Written { len, .. }) => (WRITE_BYTES, Some(*len)),
            _ => match place(request) {
                Some(place) => (place, None),
                None => return,
            },
        };
        let own = self.clients.entry(client).or_default();
        for stats in [&mut self.all, own] {
            match size {
                Some(size) => stats.add(place, size.into()),
                None => stats.count(place),
            }
        }
    }

    /// A client has gone.
    pub(crate) fn gone(&mut self, client: ClientId) {
        self.clients.remove(&client);
    }

    /// Begins anew.
    pub(crate) fn clear(&mut self) {
        *self = Counters::default();
    }
}

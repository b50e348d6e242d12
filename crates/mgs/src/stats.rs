//! How often the MGS was asked for what, by all and by each. Plain counters: the MGS has one
//! owner at a time.

use sateen_types::{ClientId, ClientStats, StatName, Stats};
use sateen_wire::{MgsRequest, Request};

/// How many kinds of requests are counted.
const KINDS: usize = 5;

/// What an MGS counts.
pub type MgsStats = Stats<KINDS>;

/// The names of what is counted. In the field a lock tells of changes, and so whoever waits for
/// one counts as `ldlm_enqueue`, once it has heard.
pub const MGS_STATS: [StatName; KINDS] = [
    StatName::reqs("mgs_target_reg"),
    StatName::reqs("mgs_set_info"),
    StatName::reqs("mgs_get_info"),
    StatName::reqs("mgs_config_read"),
    StatName::reqs("ldlm_enqueue"),
];

/// The counters of an MGS.
pub(crate) type Counters = ClientStats<KINDS>;

fn place(request: &MgsRequest) -> usize {
    match request {
        MgsRequest::Register { .. } | MgsRequest::Replace { .. } => 0,
        MgsRequest::SetParam { .. } => 1,
        MgsRequest::GetFileSystem => 2,
        MgsRequest::GetConfig | MgsRequest::GetParams => 3,
        MgsRequest::WaitConfig { .. } => WAITED,
    }
}

const WAITED: usize = 4;

/// A request of a client went well.
pub(crate) fn done(counters: &mut Counters, client: ClientId, request: &Request) {
    if let Request::Mgs(request) = request {
        counters.count(client, place(request));
    }
}

/// A client that has waited for a change is told of it.
pub(crate) fn told(counters: &mut Counters, client: ClientId) {
    counters.count(client, WAITED);
}

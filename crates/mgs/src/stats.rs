//! How often the MGS was asked for what, by all and by each. Plain counters: the MGS has one
//! owner at a time.

use std::collections::BTreeMap;

use sateen_types::{ClientId, StatName, Stats};
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
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) all: MgsStats,
    clients: BTreeMap<ClientId, MgsStats>,
}

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

impl Counters {
    /// A request of a client went well.
    pub(crate) fn done(&mut self, client: ClientId, request: &Request) {
        if let Request::Mgs(request) = request {
            self.count(client, place(request));
        }
    }

    /// A client that has waited for a change is told of it.
    pub(crate) fn told(&mut self, client: ClientId) {
        self.count(client, WAITED);
    }

    fn count(&mut self, client: ClientId, place: usize) {
        self.all.count(place);
        self.clients.entry(client).or_default().count(place);
    }

    /// What was counted of one client.
    pub(crate) fn of(&self, client: ClientId) -> MgsStats {
        self.clients.get(&client).copied().unwrap_or_default()
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

//! What a file system elsewhere looks like from here: which of its targets answer, how much
//! space they have. A client that mounts nothing asks, and waits for nobody long; or that of a
//! mount, which knows all targets also while the MGS is away.

use std::sync::Arc;
use std::time::Duration;

use sateen_client::{Client, Connection, ImportInfo};
use sateen_reactor::Reactor;
use sateen_wire::{StatFs, TargetInfo};

use super::mounted::{Native, Targets, wait_for};
use super::{Node, lock};

/// How long targets may take to take a connection, and to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// One target.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// What the MGS says of it.
    pub info: TargetInfo,
    /// "up"; "down" if it does not answer; "failed" after a disk error; "foreign" if its address
    /// belongs to another file system; "inactive" if it was taken out of use.
    pub state: &'static str,
    /// Its space, if it answers.
    pub space: Option<StatFs>,
}

/// Looks at all targets by way of a client, after the node's owner has let go of it.
pub(crate) struct Looker {
    reactor: Arc<Reactor>,
    infos: Vec<TargetInfo>,
    client: Arc<Client>,
}

impl Node {
    /// What looks at all targets by way of a mount's client.
    pub(crate) fn looker(&self, client: Arc<Client>) -> Looker {
        let infos = lock(&self.clients).told.clone();
        Looker { reactor: self.reactor.clone(), infos, client }
    }

    /// Looks at all targets of a file system elsewhere.
    pub(crate) fn look(&self) -> Vec<Seen> {
        let infos = lock(&self.clients).told.clone();
        let native = Native::unconnected(
            &self.reactor,
            Targets { file_system: self.file_system, elsewhere: &infos },
        );
        let client = native.client().clone();
        let mounting = client.clone();
        // One that does not answer is shown as such.
        let _ = wait_for(&self.reactor, PATIENCE, async move { mounting.mount().await });
        // OSTs that were taken out of use are not asked.
        lock(&self.clients).add(&client);
        self.devices.apply();
        let looker = Looker { reactor: self.reactor.clone(), infos, client };
        let seen = looker.look();
        native.leave();
        seen
    }
}

impl Looker {
    /// What the targets are like now.
    pub(crate) fn look(self) -> Vec<Seen> {
        let Looker { reactor, infos, client } = self;
        let asking = client.clone();
        let spaces = wait_for(&reactor, PATIENCE, async move { asking.target_spaces().await });
        let spaces = spaces.unwrap_or_default();
        let imports = client.imports();
        let stands = client.connections();
        let seen = infos.into_iter().map(|info| {
            let target = info.target;
            let active = !info.inactive
                && imports
                    .iter()
                    .find(|i| i.target == target)
                    .is_none_or(|i: &ImportInfo| i.active);
            let stands = stands.iter().find(|(other, _)| *other == target);
            let space = spaces.iter().find(|row| row.target == target).and_then(|row| row.space);
            let state = match stands.map(|(_, stands)| *stands) {
                _ if !active => "inactive",
                Some(Connection::Failed) => "failed",
                Some(Connection::Foreign) => "foreign",
                Some(Connection::Open) if space.is_some() => "up",
                Some(Connection::Open | Connection::Waiting) | None => "down",
            };
            Seen { info, state, space }
        });
        seen.collect()
    }
}

//! After a crash of the first MDT a client that has lost nothing goes on as itself: nothing of it fails,
//! and what it has open stays so. One that has lost a change does not.

use std::collections::BTreeSet;

use sateen_types::{ClientId, Endpoint};

use super::{Running, World};

/// What a client was when the MDT crashed.
#[derive(Debug, Clone)]
pub(super) struct Before {
    incarnation: ClientId,
    /// What it had open: names of programs' descriptors.
    open: BTreeSet<u64>,
    /// A change that it was answered for is lost.
    has_lost: bool,
}

impl World {
    /// The first MDT crashes. Who has not heard of an earlier crash yet is what it was before that.
    pub(super) fn remember_clients(&mut self) {
        for node in &mut self.nodes {
            let well = node.open.iter().flatten().filter(|(_, lost)| !lost);
            let before = Before {
                incarnation: node.client.incarnation(),
                open: well.map(|(handle, _)| handle.id).collect(),
                has_lost: false,
            };
            if !node.dirty.contains(&Endpoint::Mdt(0)) || node.before_crash.is_none() {
                node.before_crash = Some(before);
            }
        }
    }

    /// Changes of these clients were lost.
    pub(super) fn cannot_go_on(&mut self, losers: &BTreeSet<ClientId>) {
        for node in self.nodes.iter_mut().filter(|node| losers.contains(&node.id)) {
            if let Some(before) = &mut node.before_crash {
                // One that has gone on as another before may have lost a change of its former self.
                let me = node.client.incarnation();
                before.has_lost |= before.incarnation == me && me == node.id;
            }
        }
    }

    /// A client uses a connection to the MDT that there is.
    pub(super) fn is_back(&mut self, client: ClientId) {
        let Some(node) = self.nodes.iter_mut().find(|node| node.id == client) else { return };
        let Some(before) = node.before_crash.take() else { return };
        if before.incarnation != node.client.incarnation() {
            self.report.count("client goes on as another after a crash", 1);
            return;
        }
        for (handle, lost) in node.open.iter_mut().flatten() {
            *lost &= !before.open.contains(&handle.id);
        }
        self.report.count("client goes on as itself after a crash", 1);
        if before.has_lost {
            self.fail(format!("client-{:x} goes on, and has lost changes", client.0));
        }
    }

    /// Whether the client has gone on as another since an operation began, or may have before and the
    /// operation goes by what that one had.
    pub(super) fn was_thrown_out(&self, running: &Running) -> bool {
        let node = self.nodes.get(running.node).filter(|node| node.id == running.client);
        running.lost || node.is_none_or(|node| node.client.incarnation() != running.incarnation)
    }
}

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

    /// The first MDT has gone on. Changes that it has made again after a crash are there again, and
    /// what it has not made when it answers is lost.
    pub(super) fn changes_come_back(&mut self, me: Endpoint) {
        if me != Endpoint::Mdt(0) {
            return;
        }
        let Some(mdt) = self.hosts.get_mut(&me).and_then(crate::host::Host::mdt) else { return };
        let (replayed, answers) = (mdt.take_replayed(), mdt.has_begun());
        let any = !replayed.is_empty();
        if any {
            let made: BTreeSet<ClientId> = replayed.iter().map(|(client, ..)| *client).collect();
            self.report.count("change made again after a crash", replayed.len() as u64);
            self.report.count("client with changes made again", made.len() as u64);
            // What has begun before goes by names as they were, also of clients that have come since.
            self.running.values_mut().for_each(|running| running.mdt_hit = true);
            self.remember_names();
        }
        for (_, first, transno) in replayed {
            let known = self.model.replayed(first, transno);
            self.report.count("name or file made again after a crash", u64::from(known));
        }
        // And what it meets under them is another file, perhaps, which others leave alone then.
        if any {
            for running in self.running.values_mut() {
                let touched = running.op.touches(&self.model.now);
                running.touched.extend(touched);
            }
        }
        for node in &mut self.nodes {
            if let Some(before) = node.before_crash.as_mut().filter(|before| before.has_lost) {
                before.has_lost &= self.model.misses(node.id);
            }
        }
        if answers && core::mem::take(&mut self.sizes_unseen) {
            self.model.nothing_comes_back();
            self.sizes_survived();
        }
    }

    /// A client uses a connection to the MDT that there is.
    pub(super) fn is_back(&mut self, client: ClientId) {
        let Some(node) = self.nodes.iter_mut().find(|node| node.id == client) else { return };
        let Some(before) = node.before_crash.take() else { return };
        let node_speaks = node.speaks;
        let as_itself = before.incarnation == node.client.incarnation();
        self.locking.known.is_back(client, as_itself);
        if !as_itself {
            self.report.count("client goes on as another after a crash", 1);
            if node_speaks && !self.thrown_out.contains(&before.incarnation) {
                self.fail(format!("client-{:x} goes on as another, and need not", client.0));
            }
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

    /// Whether a client has lost changes with an MDT at some time: it has gone on as another since.
    pub(super) fn has_lost_changes(&self, running: &Running) -> bool {
        let node = self.nodes.get(running.node).filter(|node| node.id == running.client);
        node.is_none_or(|node| !node.speaks || node.client.incarnation() != node.id)
    }

    /// Whether the client has gone on as another since an operation began, or may have before and the
    /// operation goes by what that one had.
    pub(super) fn was_thrown_out(&self, running: &Running) -> bool {
        let node = self.nodes.get(running.node).filter(|node| node.id == running.client);
        running.lost || node.is_none_or(|node| node.client.incarnation() != running.incarnation)
    }
}

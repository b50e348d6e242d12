//! What an OST has lost, and clients write again: who has it, and that no fsync of theirs may say that
//! it is lost.

use std::collections::{BTreeMap, BTreeSet};

use sateen_types::{ClientId, Endpoint, Fid};
use sateen_wire::{Body, CLAIM_SLOT, Message, OstRequest, Request};

use super::{Node, Running, World};
use crate::data::{Keepers, NEVER};
use crate::work::Op;

/// Clients that tell OSTs what those have lost, and of which files they have begun to.
pub(super) type Telling = BTreeMap<(ClientId, u32), BTreeSet<Fid>>;

/// Who would write again what an OST loses of a file now.
pub(super) fn keepers_of(nodes: &[Node], fid: Fid) -> Keepers {
    let mut keepers = Keepers::default();
    for node in nodes.iter().filter(|node| !node.dead) {
        let (some, all) = node.client.writes_again(fid);
        keepers.some.extend(some.then_some(node.id));
        keepers.all.extend(all.then_some(node.id));
    }
    keepers
}

impl World {
    /// A client has sent this. What an OST has lost goes before anything else.
    pub(super) fn is_told_again(&mut self, message: &Message) {
        let (Endpoint::Client(client), Endpoint::Ost(ost)) =
            (message.header.from, message.header.to)
        else {
            return;
        };
        match &message.body {
            Body::Request(Request::Ost(OstRequest::Write { object, .. }))
                if message.header.slot == CLAIM_SLOT =>
            {
                self.report.count("lost write told again", 1);
                self.telling.entry((client, ost)).or_default().insert(object.fid);
            }
            Body::Request(Request::Ost(_)) => {
                // If the last piece was refused this goes out in the same step.
                self.gives_up_telling();
                self.telling.remove(&(client, ost));
            }
            _ => {}
        }
    }

    /// A client is lost, and with it what it was about to write again.
    pub(super) fn is_told_no_more(&mut self, client: ClientId, settles_ns: u64) {
        let all = core::mem::take(&mut self.telling).into_iter();
        let (mine, others): (Telling, Telling) = all.partition(|((of, _), _)| *of == client);
        self.telling = others;
        for ((_, ost), fids) in mine {
            for fid in fids {
                self.report.count("client lost while it wrote again what was lost", 1);
                self.model.data.entry(fid).or_default().was_writing_again(client, ost, settles_ns);
            }
        }
    }

    /// A client that has what it was about to write again no more, though it lives: somebody else got the
    /// lock, or the OST has no room for it. Of what it has told any may be there, and nothing that comes after it.
    fn gives_up_telling(&mut self) {
        if self.telling.is_empty() {
            return;
        }
        let mut given_up = Vec::new();
        for ((client, ost), fids) in &mut self.telling {
            let node = self.nodes.iter().find(|node| node.id == *client && !node.dead);
            let Some(node) = node else { continue };
            let gone = fids.extract_if(.., |fid| !node.client.writes_again(*fid).0);
            given_up.extend(gone.map(|fid| (*client, *ost, fid)));
        }
        for (client, ost, fid) in given_up {
            self.report.count("written again in part, and given up", 1);
            self.model.data.entry(fid).or_default().was_writing_again(client, ost, NEVER);
        }
    }

    /// Whether an operation is an fsync of a client that has everything that an OST has lost.
    pub(super) fn has_promised(&self, running: &Running) -> bool {
        let Op::Fsync { handle } = &running.op else { return false };
        let data = self.model.data.get(&handle.fid);
        data.is_some_and(|data| data.promised().contains(&running.client))
    }

    /// Clients that have not any more what an OST has lost may say so: they have given back the lock,
    /// cut the file, or had no room, which they may at any time; or synced it.
    pub(super) fn promises_end(&mut self) {
        self.gives_up_telling();
        if self.promises.is_empty() {
            return;
        }
        let last_op = self.next_op - 1;
        self.promises.retain(|fid| {
            let Some(data) = self.model.data.get_mut(fid) else { return false };
            for client in data.promised().clone() {
                let node = self.nodes.iter().find(|node| node.id == client && !node.dead);
                if node.is_none_or(|node| !node.client.writes_again(*fid).1) {
                    data.need_not_promise(client, last_op);
                }
            }
            !data.promised().is_empty()
        });
    }
}

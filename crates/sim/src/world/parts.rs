//! What becomes of the parts of files that the first MDT grants in the full world, counted, so that a world in
//! which nobody is given any is missed (`report::FULL`). Who writes in turns there is told in [`super::rowing`].
//!
//! Life of a part: it is granted; it is called back when somebody wants bytes of it, if anybody does; and its
//! client gives it back, or has it claimed after a crash of the MDT, or is lost with it.

use std::collections::{BTreeMap, BTreeSet};

use sateen_mdt::Parts as Counted;
use sateen_types::{ClientId, Endpoint};
use sateen_wire::{Body, Callback, GivenBack, LockId, LockMode, MdtReply, MdtRequest};
use sateen_wire::{Message, ReplyBody, Request};

use super::{Event, World};
use crate::host::Host;
use crate::random::Random;

/// Of so many records that are written where clients have parts one is followed by the end of the
/// MDT: else few have any when it ends. Half of these ends are crashes.
const RECORDS_PER_END: u64 = 9;
/// How long the MDT is away then, at most: 400 ms.
const DOWN_NS: u64 = 400_000_000;

/// Those that clients have, as far as messages tell, and whether they were called back; and randomness of its
/// own: the choices of everything else go on as without it.
#[derive(Debug)]
pub(super) struct Parts {
    held: BTreeMap<(ClientId, LockId), bool>,
    random: Random,
}

impl Parts {
    pub(super) fn new(seed: u64) -> Parts {
        let random = Random::new(seed.rotate_left(37) ^ 0x9a27);
        Parts { held: BTreeMap::new(), random }
    }

    /// A client gives one back, if it is one.
    fn goes(&mut self, client: ClientId, id: LockId) -> u64 {
        u64::from(self.held.remove(&(client, id)).is_some())
    }
}

impl World {
    /// A message is sent that may be of a part.
    pub(super) fn tells_of_parts(&mut self, message: &Message) {
        if !self.has_rowers() {
            return;
        }
        let (client, held) = (message.header.client, &mut self.parts.held);
        match &message.body {
            Body::Reply(reply) => {
                let ReplyBody::Mdt(MdtReply::Parted { .. }) = &reply.body else { return };
                let parts = reply.grants.iter().filter(|grant| grant.mode == LockMode::Part);
                parts.for_each(|grant| {
                    held.entry((client, grant.id)).or_default();
                });
            }
            Body::Request(Request::Mdt(MdtRequest::ReclaimParts { parts })) => {
                parts.iter().for_each(|part| {
                    held.insert((client, part.id), false);
                });
            }
            Body::Callback(Callback::Blocking { id, .. }) => {
                let Some(was_called) = held.get_mut(&(client, *id)) else { return };
                let again = core::mem::replace(was_called, true);
                self.report.count("part called back", u64::from(!again));
            }
            Body::Request(Request::Mdt(MdtRequest::Cancel { id, more, .. })) => {
                let others = more.iter().map(|GivenBack { id, .. }| *id);
                let gone = [*id].into_iter().chain(others);
                let gone = gone.map(|id| self.parts.goes(client, id)).sum();
                self.report.count("part given back", gone);
            }
            _ => {}
        }
    }

    /// A record of a file that is written in turns is written: the MDT crashes, or is stopped in good order,
    /// and those who have parts have them claimed.
    pub(super) fn ends_behind_parts(&mut self) {
        let is_there = |client: ClientId| {
            let mut living = self.nodes.iter().filter(|node| node.stays());
            living.any(|node| node.client.incarnation() == client)
        };
        let holders: BTreeSet<ClientId> =
            self.parts.held.keys().map(|(client, _)| *client).collect();
        let are_held = holders.into_iter().any(is_there);
        let faulty = self.config.network_faults && self.config.crashes;
        if !are_held || !faulty || !self.parts.random.one_in(RECORDS_PER_END) {
            return;
        }
        let mdt = Endpoint::Mdt(0);
        if self.parts.random.one_in(2) {
            self.report.count("stop behind parts", 1);
            return self.stops_next(mdt);
        }
        let down_ns = self.parts.random.within(1_000_000, DOWN_NS);
        self.report.count("crash behind parts", 1);
        self.after(0, Event::Crash(mdt, down_ns));
    }

    /// A run of a target ends: what the first MDT has granted in it.
    pub(super) fn parts_of_a_run(&mut self, target: Endpoint) {
        if target != Endpoint::Mdt(0) || !self.has_rowers() {
            return;
        }
        self.parts.held.clear();
        let Some(mdt) = self.hosts.get(&target).and_then(Host::running_mdt) else { return };
        let Counted { granted, broken, cut } = mdt.parts();
        for (kind, count) in
            [("part granted", granted), ("part broken", broken), ("range cut", cut)]
        {
            self.report.count(kind, count);
        }
    }
}

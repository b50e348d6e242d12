//! Targets that are stopped in good order, and started again after a while: nobody may notice. No
//! operation is excused for that, nothing is rolled back, what is open stays so, and no client is
//! thrown out, unless it was cut off while it was waited for.
//!
//! The other faults go on meanwhile: clients die while they are waited for, the network is bad, and
//! a target that has yet to hear of what its clients had crashes, and waits for them once more.

use std::collections::{BTreeMap, BTreeSet};

use sateen_target::Ending;
use sateen_types::{ClientId, Endpoint};
use sateen_wire::{Body, MdtRequest, Message, Request};

use super::leave::Leaving;
use super::{Event, Node, World};
use crate::host::Want;
use crate::random::Random;

/// Operations between two of them, on average.
const OPERATIONS_PER_STOP: u64 = 160;
/// How long a target is away at most: 1 s.
const AWAY_NS: u64 = 1_000_000_000;
/// How long clients of an MDT are waited for: 20 s. A partition lasts 6 s.
pub(crate) const WINDOW_NS: u64 = 20_000_000_000;
/// Of so many claims one meets a crash of who makes it, or of who hears it: within 150 µs.
const CRASH_ONE_IN: u64 = 5;
const CRASH_WITHIN_NS: u64 = 150_000;
/// Of so many messages that a target has sent before it ends one is lost with its connection.
const LOST_ONE_IN: u64 = 4;

/// What is under way of it, and randomness of its own: the choices of everything else go on as
/// without it.
#[derive(Debug)]
pub(super) struct Orderly {
    random: Random,
    next: u64,
    /// Which is to be stopped next, and now.
    chosen: Option<Endpoint>,
    /// Targets that are at their end, in which of their runs, and how long they are to be away.
    ending: BTreeMap<Endpoint, (u64, u64)>,
    /// MDTs that wait for their clients, and since when.
    waiting: BTreeMap<Endpoint, u64>,
    /// Targets that were stopped in good order at some time.
    stopped: BTreeSet<Endpoint>,
    /// Clients that were there when an OST was stopped, and have not connected to it since. One that
    /// misses a whole run may be told at an fsync that something may be lost.
    unheard: BTreeSet<(ClientId, Endpoint)>,
}

impl Orderly {
    pub(super) fn new(seed: u64) -> Orderly {
        let mut random = Random::new(seed.rotate_left(29) ^ 0x0bde);
        let next = random.within(1, 2 * OPERATIONS_PER_STOP);
        Orderly {
            random,
            next,
            chosen: None,
            ending: BTreeMap::new(),
            waiting: BTreeMap::new(),
            stopped: BTreeSet::new(),
            unheard: BTreeSet::new(),
        }
    }
}

impl World {
    /// Somebody stops a target, if it is time for that.
    pub(super) fn maybe_stop(&mut self, operations: u64, works: bool) {
        if self.config.given
            || !works
            || (operations < self.orderly.next && self.orderly.chosen.is_none())
            || !self.orderly.ending.is_empty()
        {
            return;
        }
        let (random, chosen) = (&mut self.orderly.random, self.orderly.chosen.take());
        let by_chance = match random.below(8) {
            0..=3 => Endpoint::Mdt(0),
            4 => Endpoint::Mdt(random.below(self.shape.mdts.into()) as u32),
            _ => Endpoint::Ost(random.below(self.shape.osts.into()) as u32),
        };
        let target = chosen.unwrap_or(by_chance);
        let away_ns = random.within(1_000_000, AWAY_NS);
        // Who has promised nothing may have nothing to ask for long, and then is not taken up.
        let speak = self.nodes.iter().all(|node| node.dead || node.speaks);
        if !speak && matches!(target, Endpoint::Mdt(_)) {
            return;
        }
        let living = self.nodes.iter().filter(|node| !node.dead).map(|node| node.id);
        if living.into_iter().any(|client| self.orderly.unheard.contains(&(client, target))) {
            return;
        }
        // One that does not serve yet has nothing that it could leave to its next run.
        let now = self.now();
        let stands = self.late.is_at_it() || self.silence.stands(target);
        let Some(host) = self.hosts.get_mut(&target).filter(|_| !stands) else { return };
        if !host.serves() {
            return;
        }
        // One whose disk is slow does not end in time, and loses what that has not taken.
        if host.slow_ns > 0 {
            return;
        }
        self.orderly.next = operations + self.orderly.random.within(1, 2 * OPERATIONS_PER_STOP);
        let boots = host.boots;
        self.orderly.ending.insert(target, (boots, away_ns));
        self.note(|| format!("{target} is stopped"));
        let Some(host) = self.hosts.get_mut(&target) else { return };
        let wants = host.stop(now, &mut self.random);
        self.perform(target, wants);
    }

    /// Somebody stops this target as soon as he can.
    pub(super) fn stops_next(&mut self, target: Endpoint) {
        self.orderly.chosen = Some(target);
    }

    /// A target that is at its end has gone on with that.
    pub(super) fn goes_on_ending(&mut self, target: Endpoint) {
        if self.nobody_ends() {
            return;
        }
        let Some((boots, away_ns)) = self.orderly.ending.get(&target).copied() else { return };
        let Some(host) = self.hosts.get_mut(&target) else { return };
        if host.boots != boots || host.process.is_none() {
            self.orderly.ending.remove(&target);
            return;
        }
        match host.ending() {
            Ending::Working => return,
            // As after a crash: it says itself that its clients will have lost everything.
            Ending::Lost => self.crash_target(target, away_ns),
            Ending::Clean => self.has_ended(target, away_ns),
        }
        self.orderly.ending.remove(&target);
    }

    fn has_ended(&mut self, target: Endpoint, away_ns: u64) {
        match target {
            // What it has answered is judged while it is away.
            Endpoint::Mdt(0) => self.layouts_changed(),
            // A write that is asked again, and finds no room then, may have been done in part: it
            // is not simply refused, but fails.
            Endpoint::Ost(_) if self.is_small => {
                let clients: Vec<_> = self.nodes.iter().map(|node| node.id).collect();
                clients.into_iter().for_each(|client| self.client_is_dirty(client, target));
            }
            _ => {}
        }
        self.parts_of_a_run(target);
        let Some(host) = self.hosts.get_mut(&target) else { return };
        host.process = None;
        self.silence.ends(target);
        self.registrar_dies(target);
        if self.config.network_faults {
            self.loses_its_last_words(target);
            self.dies_loudly(target);
        }
        let kind = match target {
            Endpoint::Mdt(0) => "orderly restart of MDT0000",
            Endpoint::Mdt(_) => "orderly restart of another MDT",
            _ => "orderly restart of OST",
        };
        self.report.count(kind, 1);
        self.note(|| format!("{target} has ended in good order"));
        self.orderly.stopped.insert(target);
        let clients = self.nodes.iter().map(|node| (node.id, target));
        self.orderly.unheard.extend(clients.filter(|_| matches!(target, Endpoint::Ost(_))));
        self.after(away_ns, Event::Start(target));
    }

    fn loses_its_last_words(&mut self, target: Endpoint) {
        let random = &mut self.orderly.random;
        let lost = self.queue.iter().filter_map(|(key, event)| match event {
            Event::Deliver(message, _) if message.header.from == target => {
                random.one_in(LOST_ONE_IN).then_some(*key)
            }
            _ => None,
        });
        let lost: Vec<_> = lost.collect();
        self.report.count("message lost with a target that ended", lost.len() as u64);
        for key in lost {
            self.queue.remove(&key);
        }
    }

    /// Whether a target was stopped in good order at some time.
    pub(super) fn has_stopped(&self, target: Endpoint) -> bool {
        self.orderly.stopped.contains(&target)
    }

    /// Whether no target is at its end.
    pub(super) fn nobody_ends(&self) -> bool {
        self.orderly.ending.is_empty()
    }

    /// A client has connected to what runs now.
    pub(super) fn has_heard(&mut self, client: ClientId, target: Endpoint) {
        self.orderly.unheard.remove(&(client, target));
    }

    /// It is started again.
    pub(super) fn starts_again(&mut self, target: Endpoint) {
        self.note(|| format!("{target} starts after a stop"));
        self.start_host(target);
    }

    /// What a client tells an MDT that was started again.
    pub(super) fn claims(&mut self, message: &Message) {
        match &message.body {
            Body::Request(Request::Mdt(MdtRequest::Reclaim {
                locks, opens, file_locks, ..
            })) => {
                self.report.count("claimed: lock", locks.len() as u64);
                self.report.count("claimed: open", opens.len() as u64);
                self.report.count("claimed: file lock", file_locks.len() as u64);
            }
            Body::Request(Request::Mdt(MdtRequest::ReclaimGroups { groups })) => {
                self.report.count("claimed: group lock", groups.len() as u64);
            }
            Body::Request(Request::Mdt(MdtRequest::ReclaimParts { parts })) => {
                self.report.count("claimed: part", parts.len() as u64);
            }
            Body::Request(Request::Mdt(MdtRequest::Replay { changes, .. })) => {
                self.report.count("claimed: change", changes.len() as u64);
            }
            _ => return,
        }
        let random = &mut self.orderly.random;
        if !self.config.crashes || !random.one_in(CRASH_ONE_IN) {
            return;
        }
        // Few are under way for so short a time that no other crash meets them.
        let after = random.below(CRASH_WITHIN_NS);
        let down_ns = random.within(1_000_000, AWAY_NS);
        let crash = match (message.header.from, random.one_in(2)) {
            (Endpoint::Client(client), true) => Event::CrashClient(client),
            _ => Event::Crash(message.header.to, down_ns),
        };
        self.report.count("crash around a claim", 1);
        self.after(after, crash);
    }

    /// Whom an MDT throws out while it waits for the clients of its last run was cut off from it.
    pub(super) fn absences_are_right(&mut self, me: Endpoint, wants: &[Want]) {
        let Some(mdt) = self.hosts.get(&me).and_then(crate::host::Host::running_mdt) else {
            self.orderly.waiting.remove(&me);
            return;
        };
        let status = mdt.recovery_status();
        let since_ns = self.orderly.waiting.get(&me).copied();
        match (status.recovering, since_ns) {
            (true, None) => {
                self.orderly.waiting.insert(me, self.now_ns);
            }
            (false, Some(_)) => {
                self.orderly.waiting.remove(&me);
                self.report.count("client taken up", status.completed);
            }
            _ => {}
        }
        let Some(since_ns) = since_ns else { return };
        for (at, client) in wants.iter().filter_map(super::silence::evicted) {
            if !self.is_at_work(at, client) || self.silence.was_lost_since(at, me, since_ns) {
                continue;
            }
            return self.fail(format!("{me} does not take up {at} after it was started again"));
        }
    }

    /// Whether a client is there and speaks. One that says its goodbye may connect once more, because
    /// something that was late has met an MDT that had heard it, and knows nothing of that.
    fn is_at_work(&self, at: Endpoint, client: ClientId) -> bool {
        let is_it = |node: &&Node| Endpoint::Client(node.id) == at && !node.dead;
        let node = self.nodes.iter().find(is_it);
        node.is_some_and(|node| {
            let stays = !matches!(node.leaving, Leaving::Unmounting(_));
            stays && node.speaks && node.client.incarnation() == client
        })
    }
}

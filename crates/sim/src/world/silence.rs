//! Who is silent, and whose fault that is: clients that die without anybody telling the MDTs, which
//! have to notice; and targets that stand still for a while, as a process does that is stopped,
//! while what is sent to them waits. Of those who speak all the time none may be thrown out for
//! that.
//!
//! Held against each eviction for silence: the client was dead, had gone on as another, or the
//! network had lost what it said.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sateen_types::{ClientId, Endpoint};
use sateen_wire::{Body, Callback, Message};

use super::{Event, Node, World};
use crate::host::{Host, Want};
use crate::random::Random;

/// How long clients may be silent in worlds in which they die: 8 s. Partitions last 6 s, and a
/// request is sent again every 4 s.
pub(super) const PATIENCE_NS: u64 = 8_000_000_000;
/// After so long an MDT that has all its time has thrown out a dead client.
pub(super) const NOTICED_NS: u64 = PATIENCE_NS + 2_000_000_000;
/// Operations between two targets that stand still, on average.
const OPERATIONS_PER_STILL: u64 = 2500;
/// For how long: from here to there, which is longer than anybody may be silent, or may take to
/// give a lock back.
const STILL_NS: (u64, u64) = (1_000_000_000, 24_000_000_000);
/// The network has to lose so much of what a client says, one after the other, before an MDT may
/// take it for dead: what is asked again every 4 s is said twice within the patience.
const LOST_MIN: usize = 2;
/// Or to bring it later than this.
pub(super) const LATE_NS: u64 = 200_000_000;

/// What is known of it, and randomness of its own: the choices of everything else go on as
/// without it.
#[derive(Debug)]
pub(super) struct Silence {
    random: Random,
    next: u64,
    /// Targets that stand still, and until when.
    still: BTreeMap<Endpoint, u64>,
    /// When the network lost what one said to the other, the last times.
    lost: BTreeMap<(Endpoint, Endpoint), VecDeque<u64>>,
    /// How many clients each run of an MDT has thrown out for their silence.
    evicted: BTreeMap<(Endpoint, u64), u64>,
    /// Clients that have not promised to speak: what they were before an eviction, or when nobody
    /// heard their goodbye, an MDT may know for ever.
    mute: BTreeSet<Endpoint>,
}

impl Silence {
    pub(super) fn new(seed: u64) -> Silence {
        let mut random = Random::new(seed.rotate_left(41) ^ 0x51e);
        let next = random.within(1, 2 * OPERATIONS_PER_STILL);
        Silence {
            random,
            next,
            still: BTreeMap::new(),
            lost: BTreeMap::new(),
            evicted: BTreeMap::new(),
            mute: BTreeSet::new(),
        }
    }

    /// A client has not promised to speak.
    pub(super) fn is_mute(&mut self, client: ClientId) {
        self.mute.insert(Endpoint::Client(client));
    }

    /// A target's process has died: what stood still has ended.
    pub(super) fn ends(&mut self, target: Endpoint) {
        self.still.remove(&target);
    }

    /// What one said to another was lost on the way.
    pub(super) fn lost(&mut self, message: &Message, now_ns: u64) {
        let lost = self.lost.entry((message.header.from, message.header.to)).or_default();
        lost.push_back(now_ns);
        if lost.len() > LOST_MIN {
            lost.pop_front();
        }
    }

    /// Whether any target does.
    pub(super) fn is_any_still(&self) -> bool {
        !self.still.is_empty()
    }

    /// Whether a target stands still.
    pub(super) fn stands(&self, target: Endpoint) -> bool {
        self.still.contains_key(&target)
    }

    /// Whether the network has lost enough of it since then.
    pub(super) fn was_lost_since(&self, from: Endpoint, to: Endpoint, since_ns: u64) -> bool {
        let lost = self.lost.get(&(from, to)).into_iter().flatten();
        lost.filter(|lost| **lost >= since_ns).count() >= LOST_MIN
    }

    /// Whether the network has lost enough of it within the time that whoever hears nothing waits.
    fn was_lost(&self, from: Endpoint, to: Endpoint, now_ns: u64) -> bool {
        self.was_lost_since(from, to, now_ns.saturating_sub(PATIENCE_NS))
    }
}

impl World {
    /// A target stands still from now on, if it is time for that. Not while it is still open what
    /// a lost client has done: what it has sent would come much later.
    pub(super) fn maybe_stand_still(&mut self) {
        let works = self.next_op <= self.config.operations;
        if !works || self.report.operations < self.silence.next {
            return;
        }
        let open = self.now_ns < self.lost_ns + super::faults::LATE_NS || !self.settling.is_empty();
        if open || self.late.is_at_it() {
            return;
        }
        let random = &mut self.silence.random;
        self.silence.next = self.report.operations + random.within(1, 2 * OPERATIONS_PER_STILL);
        let targets: Vec<Endpoint> = self.shape.mdts().chain(self.shape.osts()).collect();
        let for_ns = random.within(STILL_NS.0, STILL_NS.1);
        let Some(target) = random.pick(&targets).copied() else { return };
        if self.hosts.get(&target).is_none_or(|host| host.process.is_none()) {
            return;
        }
        self.report.count("target stands still", 1);
        self.note(|| format!("{target} stands still for {for_ns} ns"));
        self.silence.still.insert(target, self.now_ns + for_ns);
    }

    /// What happens at a target that stands still happens when it goes on, in this order.
    pub(super) fn waits(&mut self, event: Event) -> Option<Event> {
        if self.silence.still.is_empty() {
            return Some(event);
        }
        let target = match &event {
            Event::Deliver(message, _) => message.header.to,
            Event::Disk(target, _) | Event::Tick(target, _) => *target,
            _ => return Some(event),
        };
        let Some(until_ns) = self.silence.still.get(&target).copied() else { return Some(event) };
        if until_ns <= self.now_ns {
            self.silence.still.remove(&target);
            self.note(|| format!("{target} goes on"));
            return Some(event);
        }
        self.after(until_ns - self.now_ns, event);
        None
    }

    /// What a client that is lost now has sent arrives until then, or never.
    pub(super) fn all_arrived_ns(&self) -> u64 {
        let goes_on = self.silence.still.values().copied().max().unwrap_or_default();
        goes_on.max(self.now_ns) + super::faults::LATE_NS
    }

    /// Nobody who speaks is thrown out for silence.
    pub(super) fn evictions_are_right(&mut self, me: Endpoint, wants: &[Want]) {
        let evicted: Vec<(Endpoint, ClientId)> = wants.iter().filter_map(evicted).collect();
        if evicted.is_empty() {
            return;
        }
        let Some(host) = self.hosts.get(&me) else { return };
        let Some(all) = host.running_mdt().map(sateen_mdt::Mdt::evicted_silent) else { return };
        let before = self.silence.evicted.insert((me, host.boots), all).unwrap_or_default();
        let silent = all - before;
        self.report.count("client noticed to be silent", silent);
        if silent as usize != evicted.len() {
            return;
        }
        for (at, client) in evicted {
            let alive = |node: &Node| Endpoint::Client(node.id) == at && !node.dead;
            let is_it = |node: &&Node| alive(node) && node.client.incarnation() == client;
            let Some(node) = self.nodes.iter().find(is_it) else { continue };
            self.report.count("client cut off for too long", 1);
            if !node.speaks {
                return self.fail(format!("{me} evicts {at}, which has promised nothing"));
            }
            if !self.silence.was_lost(at, me, self.now_ns) {
                return self.fail(format!("{me} evicts {at}, which speaks"));
            }
        }
    }

    /// Nobody is thrown out because his own calls kept his kernel from what it was told to drop; and
    /// nobody at all where nothing goes wrong.
    pub(super) fn evicted_are_not_stuck(&mut self, me: Endpoint, wants: &[Want]) {
        for (at, client) in wants.iter().filter_map(evicted) {
            let alive = |node: &Node| Endpoint::Client(node.id) == at && !node.dead;
            let is_it = |node: &&Node| alive(node) && node.client.incarnation() == client;
            let Some(node) = self.nodes.iter().find(is_it) else { continue };
            let calm = !self.config.network_faults && !self.config.crashes;
            let stuck = node.kernel.stuck().or_else(|| calm.then(|| "nothing is wrong".to_owned()));
            if let Some(why) = stuck {
                let all = self.kernels_wait();
                return self.fail(format!("{me} evicts {at}: {why}{all}"));
            }
        }
    }

    /// Whether targets know clients that are gone.
    pub(super) fn knows_the_dead(&self) -> bool {
        let living = self.living();
        self.hosts.values().any(|host| self.dead_at(host, &living).next().is_some())
    }

    /// The incarnations that there are.
    pub(super) fn living(&self) -> Vec<ClientId> {
        let living = self.nodes.iter().filter(|node| !node.dead);
        living.map(|node| node.client.incarnation()).collect()
    }

    /// The connections that a target has of clients that are gone, and should not have. That an MDT
    /// counts how long it hears nothing of them, although nobody is left who speaks, the end of a world
    /// sees to.
    fn dead_at<'a>(
        &'a self,
        host: &'a Host,
        living: &'a [ClientId],
    ) -> impl Iterator<Item = ClientId> + 'a {
        let is_mdt = matches!(host.me, Endpoint::Mdt(_));
        let all = host.clients().into_iter().filter(|(client, _)| !living.contains(client));
        let excused = move |at: &Endpoint| is_mdt && self.silence.mute.contains(at);
        all.filter(move |(_, at)| !excused(at)).map(|(id, _)| id)
    }

    /// At rest nothing is left of clients that are gone, on any target.
    pub(super) fn nothing_leaks(&mut self) {
        let living = self.living();
        let left = self.hosts.values().find_map(|host| {
            let dead = self.dead_at(host, &living).next();
            let connected = dead.map(|client| format!("a connection of {client:?}, which is gone"));
            Some((host.me, connected.or_else(|| leaked(host, &living))?))
        });
        if let Some((target, what)) = left {
            self.fail(format!("at the end {target} has {what}"));
        }
    }
}

pub(super) fn evicted(want: &Want) -> Option<(Endpoint, ClientId)> {
    let Want::Send(message) = want else { return None };
    matches!(message.body, Body::Callback(Callback::Evicted))
        .then_some((message.header.to, message.header.client))
}

/// What a target has of clients that are neither among the living nor connected.
fn leaked(host: &Host, living: &[ClientId]) -> Option<String> {
    let connected = host.clients();
    let is_connected = |client: &ClientId| connected.iter().any(|(other, _)| other == client);
    let is_dead = |client: &ClientId| !living.contains(client) && !is_connected(client);
    if let Some(client) = host.granted_to().into_iter().find(is_dead) {
        return Some(format!("promised space to {client:?}, which is gone"));
    }
    let opens = host.running_mdt().into_iter().flat_map(sateen_mdt::Mdt::open_files);
    let mut of_dead = opens.filter(|(client, _)| is_dead(client));
    of_dead.next().map(|(client, files)| format!("{files} files open at {client:?}, which is gone"))
}

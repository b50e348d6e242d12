//! Rails: the several ways to a peer that has more than one address.
//!
//! Everything that may need an order goes over one connection, as to a peer with one address (see
//! [`super`]). Data alone is spread: reads and writes at OSTs, each of which is asked, answered and
//! asked again by itself. Each address of the peer is a rail for it, with a connection of its own,
//! which is dialled when there is something to spread; where the one connection stands, that is its
//! rail. A request takes the rail with the least bytes under way, weighed with its health; of
//! equals that which has carried least.
//!
//! Life of a rail: idle (never needed), up, down (refused, broken, or not there: tried again after
//! a pause that doubles), up. One on which nothing comes while something was asked there is
//! suspect: what is asked again goes over another, and so does all else, until something comes.
//! Health is 1000, halves with each failure, and comes back by 100 a second while it is up.
//!
//! An address may have got another owner. So on a new connection a target is tried with one request
//! first; if what is there does not know us, that request is asked again elsewhere, and this
//! address is left alone for a while by what is meant for that target.
//!
//! Whoever answers has to know as well: [`Beside`] remembers on which connection a request came,
//! if that is not the one its sender is reached on, and the answer goes there.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sateen_types::{ClientId, Endpoint, Errno, NIDS_MAX};
use sateen_wire::{Body, Bulk, Header, Message, OstRequest, Reply, ReplyBody, Request};

use super::connection::{Connection, Key, key};
use super::stream::Address;

/// The health of a rail that has not failed of late.
pub const HEALTH_MAX: u32 = 1000;
/// So much of it comes back in a second.
const HEALTH_PER_S: u64 = 100;
/// One that is worse is not avoided any more than this.
const HEALTH_MIN: u64 = 50;
/// How long a rail that failed is left alone: at first, and at most.
const RETRY_MS: u64 = 1000;
const RETRY_MS_MAX: u64 = 16_000;
/// How long whoever does not answer for a target, or does not know us, is not tried again.
const WRONG_MS: u64 = 30_000;
/// A request that is asked again before this says nothing about its rail.
const SUSPECT_MS: u64 = 500;
/// What each request counts beside its data.
const REQUEST_BYTES: u64 = 4096;
/// Rails whose bytes under way differ by less have as little: a few bytes that are asked for
/// together with many do not send all the many one way.
const ABOUT_BYTES: u64 = 256 << 10;
/// Of rails with as little under way that goes first which has carried least, but counts at most so
/// much less than the others: one that was away does not get everything.
const BEHIND_BYTES: u64 = 4 << 20;
/// Most requests of one peer of which it is remembered where they came.
const CAME_MAX: usize = 1 << 14;

/// Whether a message may go beside the others: data, whose order nobody relies on.
pub(super) fn is_spread(body: &Body) -> bool {
    matches!(
        body,
        Body::Request(Request::Ost(
            OstRequest::Read { .. } | OstRequest::Write { .. } | OstRequest::WriteMany { .. }
        ))
    )
}

/// How much of a rail a request takes: what it brings, or what its answer will.
fn bytes_of(message: &Message) -> u64 {
    let data = match (&message.body, &message.bulk) {
        (Body::Request(Request::Ost(OstRequest::Read { len, .. })), _) => u64::from(*len),
        (_, Bulk::Data(data)) => data.len() as u64,
        _ => 0,
    };
    data + REQUEST_BYTES
}

/// Messages, and their bytes, of a connection or of many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Messages that were sent, or wait for it.
    pub sent: u64,
    /// Messages that came in.
    pub received: u64,
    /// Bytes of those sent.
    pub sent_bytes: u64,
    /// Bytes of those that came in.
    pub received_bytes: u64,
    /// Messages that were lost with a connection, as far as it is known here: requests without an
    /// answer.
    pub dropped: u64,
}

impl Counts {
    /// Adds others.
    pub fn add(&mut self, other: Counts) {
        self.sent += other.sent;
        self.received += other.received;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.dropped += other.dropped;
    }
}

/// The same, as a connection counts them.
#[derive(Debug, Default)]
pub(super) struct Counting {
    sent: AtomicU64,
    received: AtomicU64,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    dropped: AtomicU64,
}

impl Counting {
    pub(super) fn sent(&self, bytes: usize) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.sent_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn received(&self, bytes: usize) {
        self.received.fetch_add(1, Ordering::Relaxed);
        self.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn dropped(&self, messages: usize) {
        self.dropped.fetch_add(messages as u64, Ordering::Relaxed);
    }

    pub(super) fn now(&self) -> Counts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            sent: of(&self.sent),
            received: of(&self.received),
            sent_bytes: of(&self.sent_bytes),
            received_bytes: of(&self.received_bytes),
            dropped: of(&self.dropped),
        }
    }

    /// What there is, once.
    pub(super) fn take(&self) -> Counts {
        let of = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        Counts {
            sent: of(&self.sent),
            received: of(&self.received),
            sent_bytes: of(&self.sent_bytes),
            received_bytes: of(&self.received_bytes),
            dropped: of(&self.dropped),
        }
    }
}

/// How a rail stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RailState {
    /// Nothing was to be sent there so far.
    Idle,
    /// It is connected.
    Up,
    /// It is connected, and what was asked there is not answered, nor anything else said.
    Suspect,
    /// It is not connected, and is tried again when there is something to be sent.
    Down,
}

#[derive(Debug)]
struct Rail {
    /// Its own connection, if it is not that for everything else.
    own: Option<Arc<Connection>>,
    /// Connections that are open, with that for everything else.
    open: u32,
    was_up: bool,
    health: u32,
    /// When it was that.
    health_ms: u64,
    /// Failures since it was up last.
    failures: u32,
    retry_ms: u64,
    /// Nothing has come since then, though something was asked.
    suspect_ms: Option<u64>,
    /// Bytes under way.
    owed: u64,
    /// Bytes that it has carried, or that others have while it was away.
    carried: u64,
}

impl Default for Rail {
    fn default() -> Rail {
        Rail {
            own: None,
            open: 0,
            was_up: false,
            health: HEALTH_MAX,
            health_ms: 0,
            failures: 0,
            retry_ms: 0,
            suspect_ms: None,
            owed: 0,
            carried: 0,
        }
    }
}

impl Rail {
    fn health(&self, now_ms: u64) -> u32 {
        if self.open == 0 || self.suspect_ms.is_some() {
            return self.health;
        }
        let back = now_ms.saturating_sub(self.health_ms) * HEALTH_PER_S / 1000;
        (u64::from(self.health) + back).min(u64::from(HEALTH_MAX)) as u32
    }

    fn fails(&mut self, now_ms: u64) {
        (self.health, self.health_ms) = (self.health(now_ms) / 2, now_ms);
    }

    /// It is to be left alone for a while.
    fn is_away(&mut self, now_ms: u64) {
        self.fails(now_ms);
        let pause_ms = RETRY_MS_MAX.min(RETRY_MS << self.failures.min(10));
        self.retry_ms = now_ms + pause_ms;
        self.failures = self.failures.saturating_add(1);
    }

    /// Whether nothing has come on a connection since it was suspected.
    fn is_suspect(&mut self, on: &Connection, now_ms: u64) -> bool {
        let suspect = self.suspect_ms.is_some_and(|since_ms| !on.is_heard_since(since_ms));
        if !suspect && self.suspect_ms.take().is_some() {
            self.health_ms = now_ms;
        }
        suspect
    }

    fn cost(&self, bytes: u64, now_ms: u64) -> u64 {
        let health = u64::from(self.health(now_ms)).max(HEALTH_MIN);
        (self.owed + bytes).saturating_mul(u64::from(HEALTH_MAX)) / health / ABOUT_BYTES
    }

    fn state(&self) -> RailState {
        match (self.open, self.suspect_ms) {
            (0, _) if !self.was_up && self.failures == 0 => RailState::Idle,
            (0, _) => RailState::Down,
            (_, Some(_)) => RailState::Suspect,
            _ => RailState::Up,
        }
    }
}

/// Whether a rail's own connection leads to a target.
#[derive(Debug, Clone, Copy)]
enum Lead {
    Right,
    /// It is tried with this request, or was and is not; until then with no other.
    Tried(Key, u64),
    WrongUntil(u64),
}

/// Whether an answer says that whoever gave it does not know us, or is not the one.
fn is_strange(reply: &Reply) -> bool {
    let strange = matches!(
        reply.error,
        Some(Errno::ESTALE | Errno::ENODEV | Errno::ESHUTDOWN | Errno::EPROTONOSUPPORT)
    );
    // An object's own `ESTALE` tells of the target, as all that it answers does.
    let tells = reply.last_committed != 0 || reply.transno != 0;
    strange && !tells && reply.body == ReplyBody::Empty
}

#[derive(Debug)]
struct UnderWay {
    on: Arc<Connection>,
    bytes: u64,
    since_ms: u64,
}

/// All rails of this process, by the address that they lead to.
#[derive(Debug, Default)]
pub(super) struct Rails {
    all: BTreeMap<Address, Rail>,
    /// Data that was asked for, or sent, and is not answered.
    under_way: BTreeMap<Key, UnderWay>,
    leads: BTreeMap<(Address, Endpoint), Lead>,
}

impl Rails {
    /// The rail for a message to a peer with these addresses, of which `one` is the connection for
    /// everything else; `None` if there is none but that one, or not even that. What is not
    /// connected, and may be, is dialled for those that come after.
    pub(super) fn choose(
        &mut self,
        message: &Message,
        (addresses, one): (&[Address], Option<&Arc<Connection>>),
        now_ms: u64,
        mut dial: impl FnMut(Address) -> io::Result<Arc<Connection>>,
    ) -> Option<Arc<Connection>> {
        let to = message.header.to;
        let (key, bytes) = (key(&message.header, to), bytes_of(message));
        // Who answers at all is found out by what goes there alone.
        let one = one?;
        let before = self.asked_again(&key, now_ms);
        let mut best: Option<((bool, u64, u64), Arc<Connection>)> = None;
        for address in addresses {
            let rail = self.all.entry(*address).or_default();
            let shared = Some(one).filter(|one| one.peer == *address);
            let Some(on) = rail.own.as_ref().or(shared) else {
                if now_ms >= rail.retry_ms {
                    match dial(*address) {
                        Ok(dialled) => rail.own = Some(dialled),
                        // No thread for it.
                        Err(_) => rail.is_away(now_ms),
                    }
                }
                continue;
            };
            if !on.is_open() {
                continue;
            }
            let leads = match self.leads.get(&(*address, to)) {
                Some(Lead::Right) | None => true,
                Some(Lead::Tried(other, until_ms)) => *other == key || now_ms >= *until_ms,
                Some(Lead::WrongUntil(until_ms)) => now_ms >= *until_ms,
            };
            if rail.own.is_some() && !leads {
                continue;
            }
            let on = on.clone();
            let suspect = rail.is_suspect(&on, now_ms);
            if !suspect && before.as_ref().is_some_and(|before| Arc::ptr_eq(before, &on)) {
                // It is only slow: it has it, and would get it twice.
                return Some(on);
            }
            let cost = (suspect, rail.cost(bytes, now_ms), rail.carried);
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, on));
            }
        }
        let (_, on) = best?;
        self.forget(&key);
        let rail = self.all.entry(on.peer).or_default();
        let is_own = rail.own.as_ref().is_some_and(|own| Arc::ptr_eq(own, &on));
        let lead = self.leads.get(&(on.peer, to));
        if is_own && !matches!(lead, Some(Lead::Right)) {
            self.leads.insert((on.peer, to), Lead::Tried(key, now_ms + WRONG_MS));
        }
        rail.owed += bytes;
        rail.carried += bytes;
        let carried = rail.carried;
        for address in addresses {
            if let Some(rail) = self.all.get_mut(address) {
                rail.carried = rail.carried.max(carried.saturating_sub(BEHIND_BYTES));
            }
        }
        self.under_way.insert(key, UnderWay { on: on.clone(), bytes, since_ms: now_ms });
        Some(on)
    }

    /// Where a request that is asked again was asked before. If nothing at all has come there since,
    /// that rail is suspect from now on.
    fn asked_again(&mut self, key: &Key, now_ms: u64) -> Option<Arc<Connection>> {
        let UnderWay { on, since_ms, .. } = self.under_way.get(key)?;
        let rail = self.all.entry(on.peer).or_default();
        let long = now_ms >= since_ms + SUSPECT_MS;
        if long && rail.suspect_ms.is_none() && !on.is_heard_since(*since_ms) {
            rail.fails(now_ms);
            rail.suspect_ms = Some(*since_ms);
        }
        Some(on.clone())
    }

    /// A request is answered on a connection. False if that is the answer of somebody who is not
    /// the one, and it is to be asked again elsewhere.
    pub(super) fn answered(
        &mut self,
        (key, on): (&Key, &Connection),
        reply: &Reply,
        now_ms: u64,
    ) -> bool {
        let is_it = |other: &Arc<Connection>| std::ptr::eq(Arc::as_ptr(other), on);
        let strange = is_strange(reply);
        // An answer may come another way than it was asked for.
        if self.under_way.get(key).is_some_and(|asked| !strange || is_it(&asked.on)) {
            self.forget(key);
        }
        let is_own = self.all.get(&on.peer).and_then(|rail| rail.own.as_ref()).is_some_and(is_it);
        let lead = self.leads.get_mut(&(on.peer, key.1));
        let Some(lead) = lead.filter(|lead| is_own && !matches!(lead, Lead::Right)) else {
            return true;
        };
        *lead = if strange { Lead::WrongUntil(now_ms + WRONG_MS) } else { Lead::Right };
        !strange
    }

    /// A request will not be answered, or not there.
    pub(super) fn forget(&mut self, key: &Key) {
        if let Some(UnderWay { on, bytes, .. }) = self.under_way.remove(key)
            && let Some(rail) = self.all.get_mut(&on.peer)
        {
            rail.owed = rail.owed.saturating_sub(bytes);
        }
    }

    /// A connection to this address is open.
    pub(super) fn opened(&mut self, address: Address, now_ms: u64) {
        let rail = self.all.entry(address).or_default();
        rail.open += 1;
        (rail.was_up, rail.failures) = (true, 0);
        if rail.open == 1 {
            (rail.suspect_ms, rail.health_ms) = (None, now_ms);
        }
    }

    /// A connection that was dialled is gone, or was never there.
    pub(super) fn closed(&mut self, connection: &Connection, was_open: bool, now_ms: u64) {
        let is_it = |other: &Arc<Connection>| std::ptr::eq(Arc::as_ptr(other), connection);
        let rail = self.all.entry(connection.peer).or_default();
        rail.is_away(now_ms);
        rail.open = rail.open.saturating_sub(u32::from(was_open));
        if rail.own.take_if(|own| is_it(own)).is_some() {
            self.leads.retain(|(address, _), _| *address != connection.peer);
        }
        let lost = self.under_way.extract_if(.., |_, asked| is_it(&asked.on));
        let bytes: u64 = lost.map(|(_, asked)| asked.bytes).sum();
        rail.owed = rail.owed.saturating_sub(bytes);
    }

    /// Connections of rails to addresses at which nobody is looked for any more: they are not used
    /// again.
    pub(super) fn retire(&mut self, told: impl Fn(Address) -> bool) -> Vec<Arc<Connection>> {
        // Whoever is found there later has to prove himself anew.
        self.leads.retain(|(address, _), _| told(*address));
        let gone = self.all.iter_mut().filter(|(address, _)| !told(**address));
        gone.filter_map(|(_, rail)| rail.own.take()).collect()
    }

    /// The connections of rails.
    pub(super) fn own(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.all.values().filter_map(|rail| rail.own.as_ref())
    }

    /// That to this address.
    pub(super) fn own_to(&self, address: Address) -> Option<&Arc<Connection>> {
        self.all.get(&address)?.own.as_ref()
    }

    /// How the way to this address stands, its health, and how often it could not be gone since it
    /// last was.
    pub(super) fn standing(&self, address: Address, now_ms: u64) -> (RailState, u32, u32) {
        let idle = (RailState::Idle, HEALTH_MAX, 0);
        let stands = |rail: &Rail| (rail.state(), rail.health(now_ms), rail.failures);
        self.all.get(&address).map_or(idle, stands)
    }
}

/// Requests that came on another connection than that on which their sender is reached.
#[derive(Debug, Default)]
pub(super) struct Beside {
    of: BTreeMap<Endpoint, Others>,
}

#[derive(Debug, Default)]
struct Others {
    /// The connections.
    rails: Vec<Arc<Connection>>,
    /// The last of each incarnation at each target in each slot.
    came: BTreeMap<(ClientId, Endpoint, u16), Came>,
}

/// Generation and sequence of a request, and where it came last.
type Came = (u32, u64, Arc<Connection>);

impl Beside {
    /// How many endpoints there are.
    pub(super) fn len(&self) -> usize {
        self.of.len()
    }

    /// Whether an endpoint has asked on this connection.
    pub(super) fn has(&self, endpoint: Endpoint, on: &Arc<Connection>) -> bool {
        let others = self.of.get(&endpoint);
        others.is_some_and(|others| others.rails.iter().any(|rail| Arc::ptr_eq(rail, on)))
    }

    /// A request came beside; its answer goes there. Beyond its limits it goes where all else does.
    pub(super) fn came(&mut self, header: &Header, on: &Arc<Connection>) {
        let others = self.of.entry(header.from).or_default();
        if !others.rails.iter().any(|rail| Arc::ptr_eq(rail, on)) {
            if others.rails.len() >= NIDS_MAX {
                others.rails.retain(|rail| !rail.is_closed());
            }
            if others.rails.len() >= NIDS_MAX {
                return;
            }
            others.rails.push(on.clone());
        }
        let place = (header.client, header.to, header.slot);
        let came = (header.generation, header.seq, on.clone());
        let room = others.came.len() < CAME_MAX;
        match others.came.get_mut(&place) {
            // A late copy of a request before that.
            Some(last) if last.0 == header.generation && last.1 > header.seq => {}
            Some(last) => *last = came,
            None if room => drop(others.came.insert(place, came)),
            None => {}
        }
    }

    /// A request came where its sender is reached: so does its answer. What is under way beside is
    /// answered there all the same: this may be a late copy of a request before that.
    pub(super) fn came_home(&mut self, header: &Header) {
        let Some(others) = self.of.get_mut(&header.from) else { return };
        let place = (header.client, header.to, header.slot);
        let is_it = |last: &Came| (last.0, last.1) == (header.generation, header.seq);
        if others.came.get(&place).is_some_and(is_it) {
            others.came.remove(&place);
        }
    }

    /// Where an answer goes, if not where its receiver is reached.
    pub(super) fn answer_to(&mut self, header: &Header) -> Option<Arc<Connection>> {
        let others = self.of.get_mut(&header.to)?;
        let place = (header.client, header.from, header.slot);
        let (generation, seq, _) = others.came.get(&place)?;
        if (*generation, *seq) != (header.generation, header.seq) {
            return None;
        }
        let (.., on) = others.came.remove(&place)?;
        on.is_open().then_some(on)
    }

    /// A connection is gone.
    pub(super) fn closed(&mut self, is_it: impl Fn(&Arc<Connection>) -> bool) {
        self.of.retain(|_, others| {
            others.rails.retain(|rail| !is_it(rail));
            others.came.retain(|_, (.., on)| !is_it(on));
            !others.rails.is_empty()
        });
    }

    /// The connections beside, and whose they are.
    pub(super) fn rails(&self) -> impl Iterator<Item = (&Endpoint, &Arc<Connection>)> {
        let all = self.of.iter();
        all.flat_map(|(endpoint, others)| others.rails.iter().map(move |rail| (endpoint, rail)))
    }
}

//! Imports: the client's side of a connection to one target.
//!
//! Life of an import: closed, connecting, open; back to connecting when the target says that
//! it does not know us (it restarted or evicted us). One that evicted us refuses the
//! incarnation for ever: the client goes on as another, and all its imports with it. Life of
//! a slot: free, busy with one request (sent again until it is answered), answered, free.
//! Sequences of a slot rise by one, so that the target executes each request once.
//!
//! What an OST had not answered when the connection was lost is asked again on the next one:
//! it changes nothing to execute it twice, as long as the client is the one that holds the
//! locks, and it says itself which run of the OST it is about. (But an append that may have been
//! executed fails.) So is what the MGS had not, of
//! which clients only want to know something. What an MDT had not answered waits for what the next
//! run says of the one before: if that ended in good order, or has crashed and what it took of ours is
//! made again, everything goes on as it was ([`claims`]); otherwise it fails: the locks and opens that
//! it went by are gone.

mod answers;
mod call;
mod claims;
mod line;
mod pending;
mod replay;
mod room;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sateen_types::{ClientId, Endpoint, Errno, Fid, Result};
use sateen_wire::{
    BULK_MAX, Body, Bulk, CLAIM_SLOT, FEATURES, Header, Message, Reply, ReplyBody, Request, SPEAKS,
};

use crate::client::Connection;
use crate::ended::EndedWell;
use crate::inspect::{ImportInfo, ImportState};
use crate::port::Port;
use crate::stats::{self, RequestStats};
use crate::sync::{Waiters, Woken, lock, until};
use crate::uncommitted::Uncommitted;
use crate::unstable::Unstable;
use answers::{gives, is_unknown};
pub(crate) use call::Call;
pub(crate) use claims::UnderWay;
use claims::{Claims, Run};
use line::{Line, Rank};
use pending::Pending;
pub(crate) use room::{InUse, WAITED_FOR};

/// Requests in flight to one target, at most, unless it is set otherwise.
pub(crate) const RPCS_IN_FLIGHT: usize = 64;
/// What it can be set to, at most.
pub(crate) const RPCS_IN_FLIGHT_MAX: usize = 512;
/// Bytes of a page, in which the size of a request's data is set.
const PAGE_BYTES: u64 = 4096;
/// Pages that one request carries, at most, and unless it is set otherwise.
const RPC_PAGES_MAX: u32 = (BULK_MAX as u64 / PAGE_BYTES) as u32;
/// Slots beside those, for what others may wait for: requests that wait for another client's lock
/// must not keep this one from giving back its own. So many for sizes, closes and what is asked
/// while a lock is in use, which may have to wait at the target themselves, and as many again for
/// cancels, which never do, and for what keeps the connection.
const SLOTS_KEPT: usize = 8;
/// A request that is not answered is sent again after this: 1 s. While the connection stands,
/// it is sent again after twice as long each time, since the target most likely has it.
const RESEND_NS: u64 = 1_000_000_000;
/// But not less often than this: 4 s. Whoever has to give a lock back within 20 s has seven tries
/// then to finish what goes by it.
pub(crate) const RESEND_MAX_NS: u64 = 4_000_000_000;

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "in place, a request takes no memory beside its slot")]
enum SlotState {
    Free,
    Busy(Pending),
    Answered(Answered),
}

#[derive(Debug)]
struct Answered {
    reply: Result<Reply>,
    bulk: Bulk,
    /// The target's, when it answered.
    boot_epoch: u64,
}

#[derive(Debug)]
struct Slot {
    seq: u64,
    /// The call that waits for its answer; 0 if nobody does.
    owner: u64,
    state: SlotState,
    /// Its task.
    waiting: Waiters,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Closed,
    Connecting {
        attempt: u64,
        sent_ns: u64,
    },
    /// The MDT is being told of what is held, or the OST what it has lost, and nothing else is asked:
    /// see [`claims`] and [`replay`].
    Recovering,
    Open,
}

/// Why a target refuses to connect, until it is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// It has stopped after a disk error: whoever needs it gets `EIO`.
    Failed,
    /// It is one of another file system: the right one is waited for.
    Foreign,
}

#[derive(Debug)]
struct State {
    /// The incarnation that requests are made as, and which of the client's eras it is.
    me: ClientId,
    era: u64,
    link: Link,
    /// Nothing is to be connected until what the last connection stood for is forgotten.
    held: bool,
    /// Why it refused to connect, if it did.
    trouble: Option<Trouble>,
    /// The network could not deliver the last that was sent, or lost who was to answer.
    silent: bool,
    /// It has refused this incarnation for ever, and there was no connection since.
    evicted: bool,
    /// Attempts to connect, of all incarnations: the target tells them apart by it.
    attempts: u64,
    attempted_ns: u64,
    generation: u32,
    boot_epoch: u64,
    /// What both sides of the connection can do, as the target has told.
    features: u64,
    slots: Vec<Slot>,
    free: Vec<u16>,
    /// Waiting for the connection.
    opening: Waiters,
    /// Waiting for a slot.
    line: Line,
    last_committed: u64,
    /// The last run that this client was connected to for good: what it was answered is of that.
    answered_by: u64,
    /// The MDT has given something to this client, or may have.
    given: bool,
    uncommitted: Uncommitted,
    /// When the last new request was sent.
    asked_ns: u64,
    /// Calls so far: each has a number of its own.
    calls: u64,
    /// The administrator has taken the target out of use.
    inactive: bool,
    /// Of an MDT: boot epochs of the run that has given what is held, and of those that were told of
    /// it since. None if nothing is held.
    runs: Vec<u64>,
    claims: Claims,
    /// The last connection was given up from here: the target may go on counting in the slots.
    slots_kept: bool,
    /// Requests in flight, at most.
    rpcs_max: usize,
    /// Those among them that change something, as it was set: see [`State::mod_rpcs_max`].
    mod_rpcs_set: Option<usize>,
    /// What was answered.
    stats: RequestStats,
}

/// One import.
#[derive(Debug)]
pub(crate) struct Import {
    /// Where the client is reached.
    address: Endpoint,
    target: Endpoint,
    file_system: u64,
    /// Pages of data in one request, at most.
    rpc_pages_max: AtomicU32,
    /// Whether the target is promised that it hears something all the time.
    speaks: AtomicBool,
    /// How often the target was told of what is held.
    taken_up: AtomicU64,
    ended: Arc<EndedWell>,
    unstable: Arc<Unstable>,
    state: Mutex<State>,
}

/// What a target answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) reply: Reply,
    pub(crate) bulk: Bulk,
    /// The client's stamp when the request was sent.
    pub(crate) stamp: u64,
    /// The target's, when it answered.
    pub(crate) boot_epoch: u64,
}

/// What an arriving message means to the client above.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// Nothing more to do but to wake; grants were sent with this stamp.
    Answer,
    /// We are connected; `restarted` if it is another incarnation of the target than before, and
    /// `follows` if the one before ended in good order.
    Connected { restarted: bool, follows: bool },
    /// An MDT that was started again wants to know what we hold, on this connection. If it has
    /// crashed, the last transaction that is surely there.
    Recovering(u32, Option<u64>),
    /// It knows, and has heard of what others hold.
    Recovered,
    /// An MDT does not know the connection. What that means it says to the next.
    Unknown,
    /// An MDT knows nothing of what we hold: all that is void.
    Forgotten,
    /// An OST or the MGS does not know us.
    Lost,
    /// The target will never again know this incarnation.
    Refused(ClientId),
    /// The target has stopped after a disk error, as was not known.
    Failed,
    /// At its address is one of another file system, as was not known.
    Foreign,
    /// Old, repeated, or not understood.
    Ignored,
}

impl Slot {
    fn new() -> Slot {
        Slot { seq: 0, owner: 0, state: SlotState::Free, waiting: Waiters::default() }
    }

    /// Whether it is asked here whether the target is there.
    fn is_ping(&self) -> bool {
        matches!(&self.state, SlotState::Busy(pending) if pending.unheard)
    }
}

impl State {
    /// A request was refused, because the target does not know the connection. The first of several
    /// has ended that here, too, and no slot counts on; but each still has its number.
    fn refused(&mut self, header: &Header) {
        let slot = self.slots.get_mut(usize::from(header.slot));
        if let Some(Slot { state: SlotState::Busy(pending), .. }) = slot {
            pending.refused(header);
        }
    }

    fn has_failed(&self) -> bool {
        self.trouble == Some(Trouble::Failed)
    }

    /// Ends the connection; who is to be woken. What is `kept` waits for the next.
    fn close(&mut self, kept: bool) -> (Woken, Woken) {
        self.link = Link::Closed;
        self.held = true;
        self.slots_kept = false;
        (self.last_committed, self.given) = (0, false);
        self.uncommitted.gave_up();
        self.runs.clear();
        self.claims = Claims::default();
        for slot in &mut self.slots {
            slot.seq = 0;
        }
        self.give_up(kept)
    }

    /// Fails what is in flight, but not what is `kept`; who is to be woken.
    fn give_up(&mut self, kept: bool) -> (Woken, Woken) {
        let boot_epoch = self.boot_epoch;
        for (number, slot) in (0..).zip(&mut self.slots) {
            match &slot.state {
                SlotState::Busy(pending) if pending.unheard || pending.left => {
                    slot.state = SlotState::Free;
                    self.free.push(number);
                }
                // A goodbye to somebody who knows us no more is said.
                SlotState::Busy(pending) if !kept || pending.is_goodbye() => {
                    let (reply, bulk) = (Err(Errno::EIO), Bulk::None);
                    let answered = Answered { reply, bulk, boot_epoch };
                    slot.state = SlotState::Answered(answered);
                }
                _ => {}
            }
        }
        (self.all_answers(), self.everybody())
    }

    /// Everybody who waits for the connection, or for a slot.
    fn everybody(&mut self) -> Woken {
        self.opening.take().and(self.line.take())
    }

    /// Everybody who waits for an answer.
    fn all_answers(&mut self) -> Woken {
        self.slots.iter_mut().fold(Woken::default(), |all, slot| all.and(slot.waiting.take()))
    }
}

impl State {
    /// How the connection stands, as far as it is known. A ping waits for nothing at the target: if
    /// one had to be sent again, nobody is there.
    fn seen(&self) -> ImportState {
        let unanswered = |slot: &Slot| match &slot.state {
            SlotState::Busy(pending) => pending.unheard && pending.copies > 1,
            SlotState::Free | SlotState::Answered(_) => false,
        };
        match self.link {
            Link::Closed if self.evicted => ImportState::Evicted,
            Link::Closed => ImportState::Disconnected,
            Link::Connecting { .. } => ImportState::Connecting,
            Link::Recovering => ImportState::Recovering,
            Link::Open if self.silent || self.slots.iter().any(unanswered) => {
                ImportState::Disconnected
            }
            Link::Open => ImportState::Full,
        }
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn take_slot(&mut self) -> Option<u16> {
        if let Some(free) = self.free.pop() {
            return Some(free);
        }
        // There are as many as were ever in flight at once: to most targets that is few.
        let slot = u16::try_from(self.slots.len()).ok()?;
        self.slots.push(Slot::new());
        Some(slot)
    }
}

impl Import {
    pub(crate) fn new(
        address: Endpoint,
        (target, file_system): (Endpoint, u64),
        (me, era): (ClientId, u64),
        (ended, unstable): (Arc<EndedWell>, Arc<Unstable>),
    ) -> Import {
        Import {
            address,
            target,
            file_system,
            rpc_pages_max: AtomicU32::new(RPC_PAGES_MAX),
            speaks: AtomicBool::new(false),
            taken_up: AtomicU64::new(0),
            ended,
            unstable,
            state: Mutex::new(State {
                me,
                era,
                held: false,
                trouble: None,
                silent: false,
                evicted: false,
                link: Link::Closed,
                attempts: 0,
                attempted_ns: 0,
                generation: 0,
                boot_epoch: 0,
                features: 0,
                slots: Vec::new(),
                free: Vec::new(),
                opening: Waiters::default(),
                line: Line::default(),
                last_committed: 0,
                answered_by: 0,
                given: false,
                uncommitted: Uncommitted::default(),
                asked_ns: 0,
                calls: 0,
                inactive: false,
                runs: Vec::new(),
                claims: Claims::default(),
                slots_kept: false,
                rpcs_max: RPCS_IN_FLIGHT,
                mod_rpcs_set: None,
                stats: RequestStats::default(),
            }),
        }
    }

    fn header(&self, client: ClientId, (generation, slot): (u32, u16), seq: u64) -> Header {
        let file_system = self.file_system;
        let between = Header::between(self.address, self.target, client);
        Header { generation, slot, seq, file_system, ..between }
    }

    /// Whether changes of this inode may be lost, or of any; whoever asks tells.
    pub(crate) fn take_lost_changes(&self, fid: Option<Fid>) -> bool {
        let mut state = lock(&self.state);
        match fid {
            Some(fid) => state.uncommitted.take_lost(fid),
            None => state.uncommitted.show_all_lost(),
        }
    }

    /// A change of this inode may be lost, and whoever was told of it did not hear it.
    pub(crate) fn lose_change(&self, fid: Fid) {
        lock(&self.state).uncommitted.lose(fid);
    }

    /// Everything up to this transno is known to be durable.
    pub(crate) fn last_committed(&self) -> u64 {
        lock(&self.state).last_committed
    }

    /// Whether a message was sent on the connection that there is now.
    pub(crate) fn is_current(&self, header: &Header) -> bool {
        let state = lock(&self.state);
        state.link == Link::Open
            && state.me == header.client
            && state.generation == header.generation
    }

    /// What there is to be seen of it from outside.
    pub(crate) fn info(&self) -> ImportInfo {
        let state = lock(&self.state);
        ImportInfo {
            target: self.target,
            active: !state.inactive,
            state: state.seen(),
            asked: state.slots.iter().any(Slot::is_ping),
            generation: state.generation,
            features: state.features,
            attempts: state.attempts,
            in_flight: state.in_flight(),
            rpcs_max: state.rpcs_max,
            mod_rpcs_max: state.mod_rpcs_max(),
            rpc_pages_max: self.rpc_pages_max.load(Ordering::Relaxed),
            stats: state.stats,
        }
    }

    /// Counts anew.
    pub(crate) fn clear_stats(&self) {
        lock(&self.state).stats = RequestStats::default();
    }

    /// How many requests may be in flight.
    ///
    /// # Errors
    /// `ERANGE` unless it is 1 to [`RPCS_IN_FLIGHT_MAX`].
    pub(crate) fn set_rpcs_max(&self, max: usize) -> Result<()> {
        if !(1..=RPCS_IN_FLIGHT_MAX).contains(&max) {
            return Err(Errno::ERANGE);
        }
        let woken = {
            let mut state = lock(&self.state);
            state.rpcs_max = max;
            state.everybody()
        };
        woken.wake();
        Ok(())
    }

    /// Bytes of data that one request carries, at most.
    pub(crate) fn rpc_bytes_max(&self) -> u64 {
        u64::from(self.rpc_pages_max.load(Ordering::Relaxed)) * PAGE_BYTES
    }

    /// How many pages of data one request may carry.
    ///
    /// # Errors
    /// `ERANGE` unless it is 1 to [`RPC_PAGES_MAX`].
    pub(crate) fn set_rpc_pages_max(&self, pages: u32) -> Result<()> {
        if !(1..=RPC_PAGES_MAX).contains(&pages) {
            return Err(Errno::ERANGE);
        }
        self.rpc_pages_max.store(pages, Ordering::Relaxed);
        Ok(())
    }

    /// Has those look who wait for a slot: one that others have not may be theirs now.
    pub(crate) fn look_for_slots(&self) {
        let line = lock(&self.state).line.take();
        line.wake();
    }

    /// Whether a request is under way, or was given up and may be, that adds a name to a directory.
    pub(crate) fn may_add_names(&self, dir: Fid) -> bool {
        lock(&self.state).slots.iter().any(|slot| match &slot.state {
            SlotState::Busy(pending) => pending.may_add_names(dir),
            SlotState::Free | SlotState::Answered(_) => false,
        })
    }

    /// The same of one that adds or removes a name.
    pub(crate) fn may_change_names(&self, dir: Fid) -> bool {
        lock(&self.state).slots.iter().any(|slot| match &slot.state {
            SlotState::Busy(pending) => pending.may_add_names(dir) || pending.removes_from(dir),
            SlotState::Free | SlotState::Answered(_) => false,
        })
    }

    /// Of the connection.
    pub(crate) fn generation(&self) -> u32 {
        lock(&self.state).generation
    }

    pub(crate) fn is_mdt(&self) -> bool {
        matches!(self.target, Endpoint::Mdt(_))
    }

    /// Whether there is a connection.
    pub(crate) fn is_open(&self) -> bool {
        lock(&self.state).link == Link::Open
    }

    /// Whether the target can do this, as it has said when it was connected to last.
    pub(crate) fn agrees(&self, feature: u64) -> bool {
        lock(&self.state).features & feature != 0
    }

    /// How the connection stands.
    pub(crate) fn stands(&self) -> Connection {
        let state = lock(&self.state);
        match (state.link, state.trouble) {
            (Link::Open, _) => Connection::Open,
            (_, Some(Trouble::Failed)) => Connection::Failed,
            (_, Some(Trouble::Foreign)) => Connection::Foreign,
            (_, None) => Connection::Waiting,
        }
    }

    /// Starts to connect, also if that had to wait.
    pub(crate) fn connect(&self, port: &dyn Port) {
        lock(&self.state).held = false;
        self.try_connect(port);
    }

    /// Starts to connect, unless that has to wait, is under way, or done.
    pub(crate) fn try_connect(&self, port: &dyn Port) {
        let message = {
            let mut state = lock(&self.state);
            if state.link != Link::Closed || state.held || state.inactive {
                return;
            }
            let now = port.now().mono_ns;
            if state.trouble.is_some() && now < state.attempted_ns + RESEND_NS {
                return;
            }
            state.attempts += 1;
            state.attempted_ns = now;
            let attempt = state.attempts;
            state.link = Link::Connecting { attempt, sent_ns: now };
            self.connect_message(state.me, attempt)
        };
        port.send(message);
    }

    /// Whether the target is promised to hear something at least every 4 s, from the next
    /// connection on. What is asked whenever nothing else is, is sent again as often as that.
    pub(crate) fn promise_to_speak(&self, speaks: bool) {
        self.speaks.store(speaks, Ordering::Relaxed);
    }

    fn connect_message(&self, me: ClientId, attempt: u64) -> Message {
        let speaks = self.speaks.load(Ordering::Relaxed);
        let features = if speaks { FEATURES } else { FEATURES & !SPEAKS };
        Message {
            header: self.header(me, (0, 0), attempt),
            body: Body::Request(Request::Connect { features }),
            bulk: Bulk::None,
        }
    }

    /// Waits until the connection is open.
    ///
    /// # Errors
    /// `EIO` if the target is not in use, or has stopped after a disk error.
    pub(crate) async fn opened(&self) -> Result<()> {
        let opened = |s: &mut State| match (s.inactive, s.link) {
            (true, _) => Some(Err(Errno::EIO)),
            (false, Link::Open) => Some(Ok(())),
            (false, _) => s.has_failed().then_some(Err(Errno::EIO)),
        };
        until(&self.state, |s| &mut s.opening, opened).await
    }

    /// Whether the target is in use.
    pub(crate) fn is_active(&self) -> bool {
        !lock(&self.state).inactive
    }

    /// Takes the target out of use: whoever waits for it gets `EIO` now, and so does whoever asks
    /// from now on. What was sent may still be executed; it is never sent again. In its place
    /// the next connection asks something harmless in the same slot, and is in step with the
    /// target again when that is answered.
    ///
    /// Back into use it is connected to anew, by [`Import::connect`].
    pub(crate) fn set_active(&self, active: bool) {
        let (answers, line) = {
            let mut state = lock(&self.state);
            if state.inactive != active {
                return;
            }
            state.inactive = !active;
            if active {
                // It is asked anew.
                state.trouble = None;
                return;
            }
            self.give_up_replay();
            // Of one that was closed by the target nothing goes on.
            state.slots_kept |= state.link == Link::Open;
            state.link = Link::Closed;
            for slot in &mut state.slots {
                // What was answered is still fetched by who asked.
                if let SlotState::Busy(pending) = &mut slot.state {
                    slot.owner = 0;
                    pending.ask_something_harmless();
                }
            }
            (state.all_answers().and(self.is_cut_off()), state.everybody())
        };
        answers.wake();
        line.wake();
    }

    /// Asks whether the target is there, if there is a connection and it is not being asked.
    pub(crate) fn probe(&self, port: &dyn Port) {
        let ping = {
            let mut state = lock(&self.state);
            let asks = state.link == Link::Open && !state.slots.iter().any(Slot::is_ping);
            if asks { self.ping(&mut state, port) } else { None }
        };
        if let Some(message) = ping {
            port.send(message);
        }
    }

    fn ping(&self, state: &mut State, port: &dyn Port) -> Option<Message> {
        if !state.has_slot(Rank::GivesBack, state.line.put_by()) {
            return None;
        }
        let slot = state.take_slot()?;
        self.begin(state, port, slot, (Request::Ping, Bulk::None).into(), (0, false))
    }

    /// A reply arrived. `arrived` is called for the locks it grants and whatever else it says of
    /// what is held, with the request's stamp and pin, before anybody is woken.
    pub(crate) fn on_reply(
        &self,
        port: &dyn Port,
        header: &Header,
        (mut reply, bulk): (Reply, Bulk),
        arrived: impl FnOnce(&Request, &Reply, (u64, bool)),
    ) -> Arrival {
        if let ReplyBody::Connected { features, boot_epoch, generation, follows, durable } =
            reply.body
        {
            let run = Run { boot_epoch, follows, durable };
            return self.on_connected(port, header, (run, generation), features);
        }
        if header.generation == 0 {
            return self.on_refused(header, &reply);
        }
        let now_ns = port.measured_ns();
        let mut took = None;
        let (woken, arrival) = {
            let mut state = lock(&self.state);
            if header.client != state.me {
                return Arrival::Ignored;
            }
            let refused = reply.error == Some(Errno::ESTALE) && is_unknown(&reply);
            if refused {
                state.refused(header);
            }
            let connected = matches!(state.link, Link::Open | Link::Recovering);
            if header.generation != state.generation || !connected {
                return Arrival::Ignored;
            }
            if refused {
                if !matches!(self.target, Endpoint::Mdt(_)) {
                    return Arrival::Lost;
                }
                // Not held: what it has of us it says to the next connection.
                state.link = Link::Closed;
                return Arrival::Unknown;
            }
            if header.slot == CLAIM_SLOT {
                drop(state);
                return if self.is_mdt() {
                    self.on_claimed(port, header, &reply)
                } else {
                    self.on_told(port, header, &reply)
                };
            }
            if state.link != Link::Open {
                return Arrival::Ignored;
            }
            state.last_committed = state.last_committed.max(reply.last_committed);
            let State {
                slots, uncommitted, given, boot_epoch, stats: request_stats, silent, ..
            } = &mut *state;
            let Some(slot) = slots.get_mut(usize::from(header.slot)) else {
                return Arrival::Ignored;
            };
            let SlotState::Busy(pending) = &mut slot.state else { return Arrival::Ignored };
            if slot.seq != header.seq {
                return Arrival::Ignored;
            }
            if pending.was_not_delivered(&reply) {
                *silent = true;
                return Arrival::Ignored;
            }
            *silent = false;
            if pending.comes_again(&reply, port.now().mono_ns) {
                slot.seq += 1;
                return Arrival::Ignored;
            }
            uncommitted.answered(&pending.message.body, &reply);
            *given |= gives(&pending.message.body, &reply);
            if let Body::Request(request) = &pending.message.body {
                stats::answered(request_stats, self.target, request, &reply);
                took = now_ns.map(|now_ns| (request.called(), now_ns, pending.sent_ns));
            }
            if pending.is_doubtful(&reply) {
                reply.error = Some(Errno::EIO);
            }
            let written = replay::written(&pending.message, &reply);
            let nobody_waits = pending.unheard || pending.left;
            if let (false, Body::Request(request)) = (pending.unheard, &pending.message.body) {
                arrived(request, &reply, (pending.stamp, pending.pin));
            }
            let woken = if nobody_waits {
                slot.state = SlotState::Free;
                state.free.push(header.slot);
                state.call_next()
            } else {
                let answered = Answered { reply: Ok(reply), bulk, boot_epoch: *boot_epoch };
                slot.state = SlotState::Answered(answered);
                slot.waiting.take()
            };
            if let Some(written) = written {
                self.keep_written(&state, written);
            }
            (woken, Arrival::Answer)
        };
        // Before whoever waits goes on and looks.
        if let Some((called, now_ns, sent_ns)) = took {
            port.took(called, now_ns.saturating_sub(sent_ns));
        }
        woken.wake();
        arrival
    }

    /// The connection is void, which is no MDT's: slots begin anew, every request in flight fails
    /// with `EIO` or, at an OST or the MGS, waits for the next connection, and there will be no other before
    /// [`Import::connect`]. False if that has been done for this connection.
    pub(crate) fn lost(&self, header: &Header) -> bool {
        let (answers, line) = {
            let mut state = lock(&self.state);
            let current = state.me == header.client && state.generation == header.generation;
            if !matches!(state.link, Link::Open | Link::Recovering) || !current {
                return false;
            }
            state.close(matches!(self.target, Endpoint::Ost(_) | Endpoint::Mgs))
        };
        answers.and(self.is_cut_off()).wake();
        line.wake();
        true
    }

    /// The client goes on as another incarnation: whatever there was is void, and there will be
    /// no connection before [`Import::connect`]. Returns who is to be woken.
    pub(crate) fn renew(&self, me: ClientId, era: u64) -> (Woken, Woken) {
        let mut state = lock(&self.state);
        (state.me, state.era) = (me, era);
        let (answers, line) = state.close(false);
        (answers.and(self.is_cut_off()), line)
    }

    /// Sends again what has waited too long, and connects again if that was refused. A target
    /// that was asked nothing for `ping_ns`, if that is not 0, is asked whether it is there.
    pub(crate) fn tick(&self, port: &dyn Port, ping_ns: u64) {
        let now = port.now().mono_ns;
        let mut again = Vec::new();
        let opened;
        {
            let mut state = lock(&self.state);
            let due = ping_ns > 0 && state.link == Link::Open && now >= state.asked_ns + ping_ns;
            // One is enough: it is sent again like any other request.
            if due && !state.slots.iter().any(Slot::is_ping) {
                again.extend(self.ping(&mut state, port));
            }
            if let Link::Connecting { attempt, sent_ns } = state.link
                && now >= sent_ns + RESEND_NS
            {
                state.link = Link::Connecting { attempt, sent_ns: now };
                again.push(self.connect_message(state.me, attempt));
            }
            let open = state.link == Link::Open;
            for slot in &mut state.slots {
                if let SlotState::Busy(pending) = &mut slot.state
                    && open
                    && pending.is_due(now)
                {
                    again.push(pending.patiently_again(now));
                }
            }
            again.extend(self.claim_again(&mut state, now));
            opened = self.replay_again(&mut state, port, &mut again);
        }
        for message in again {
            port.send(message);
        }
        opened.wake();
        if lock(&self.state).attempts > 0 {
            self.try_connect(port);
        }
    }
}

#[cfg(test)]
mod tests;

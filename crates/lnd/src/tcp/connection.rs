//! One connection: two threads, one that reads and delivers, one that writes what the socket
//! did not take at once. The reader looks for a moment whether something comes before it sleeps
//! ([`super::polled`]), unless others do who wait for it ([`super::looking`]).
//!
//! A sender writes to the socket itself if nothing is queued, so that in the usual case no
//! thread is woken. It never waits: what the socket does not take goes into the queue, and
//! the writer sends it. Messages leave in the order in which they were handed in.
//!
//! A message costs the kernel more than us, so some travel together. A request for whose answer
//! nobody waits ([`Body::is_patient`]) waits in the queue for the next message that goes this way,
//! or for [`COMPANY_WAIT`]; it goes at once if a callback comes, or whoever waits in the end says so
//! ([`Connection::hurry`]). Its answer waits for the answers to what was read with it: the reader
//! sends it before it reads on, or reads from a disk ([`send_gathered`]). So nothing waits for what
//! could hang.
//!
//! The queue is bounded by who fills it: a server reads no further requests of a peer while more
//! than [`QUEUE_BYTES_MAX`] wait for that peer, or than [`QUEUE_BYTES_FAIR`] while too much waits
//! for all peers together; a client has only so many requests in flight.
//! Only the side that was connected to stops reading, or two could wait for each other. A peer
//! for which so much waits, and that takes nothing at all, is given up.
//!
//! Life of a connection: opening (dialled ones; messages queue up), open, closed. Requests that
//! wait for one that never opens are answered with `ESHUTDOWN`, like those to nobody; those that
//! were given to one that was open, and not answered, with `ECONNRESET`, also if they were still
//! queued: the peer is there, and whoever says goodbye to it has to say so again. An answer that
//! had come in by then, but was not delivered, is not delivered after that: whoever asked asks
//! again, over another connection, with another buffer for the data.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, IoSlice};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use sateen_meter::{Begun, Part, begin, is_on};
use sateen_polling::Polling;
use sateen_types::{ClientId, Copied, Endpoint, Errno, copied};
use sateen_wire::{Body, Bulk, Front, HEADER_BYTES, Header, Kind, Message, Reply};

use super::Shared;
use super::frame::{Frame, Incoming, LOOK, Received, Refused, STALL};
use super::inbound::Inbound;
use super::rails::Counting;
use super::stream::{Address, Stream};
use crate::shm;

/// Most bytes that wait for a peer that does not read, for [`STALL`]; then it is given up. For
/// one that reads more may wait.
pub const QUEUE_BYTES_MAX: usize = 256 << 20;
/// So much may always wait for a peer, whatever waits for others.
pub const QUEUE_BYTES_FAIR: usize = 1 << 20;
/// How long opening may take.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// A peer that confirms nothing for this long is gone: 40 s. The kernel counts the time, too, in
/// which a peer that is there takes nothing because others' bulk comes in first; whoever is kept
/// waiting for longer has lost his locks anyway.
const SILENCE_MAX_MS: u32 = 40_000;
/// The same where the peer has other addresses: 10 s. Whoever has to give back a lock hears of it on
/// another in time.
const SILENCE_OF_SEVERAL_MAX_MS: u32 = 10_000;
/// How long a request waits for others to travel with.
pub const COMPANY_WAIT: Duration = Duration::from_millis(1);
/// Most messages that wait so, and that are sent together.
const COMPANY_MAX: usize = 16;
/// Of the memory for messages without their bulk so much is kept; few are longer.
const SCRATCH_BYTES_KEPT: usize = 64 << 10;

/// Most requests of a connection of which it is remembered that they are not answered; whoever
/// sent one more hears nothing if the connection breaks, and sends it again some time.
const ASKED_MAX: usize = 1 << 16;

/// What names a request among those of everybody who shares the connection. With the generation,
/// because slots begin anew with each, and an answer to one of before may be on its way.
pub(super) type Key = (ClientId, Endpoint, u32, u16, u64);

pub(super) fn key(header: &Header, target: Endpoint) -> Key {
    (header.client, target, header.generation, header.slot, header.seq)
}

thread_local! {
    /// The connection whose answers this thread, its reader, gathers.
    static GATHERS: RefCell<Option<Arc<Connection>>> = RefCell::default();
}

/// This thread may be at something for long: the answers that it gathers go before.
pub(super) fn send_gathered() {
    let connection = GATHERS.with_borrow(Option::clone);
    if let Some(connection) = connection {
        connection.hurry();
    }
}

/// A request that is not answered yet.
#[derive(Debug)]
struct Asked {
    header: Header,
    /// Since when, and what it asks for, if that is measured.
    measured: Option<Box<Measured>>,
}

/// When a request was handed in, and what it is called.
type Measured = (Begun, &'static str);

#[derive(Debug)]
struct Queued {
    frame: Frame,
    /// The request's header, to be answered if it is never sent.
    request: Option<Header>,
    _counted: Counted,
}

/// Bytes that wait for any peer, until this is dropped.
#[derive(Debug)]
struct Counted {
    bytes: usize,
    all: Arc<AtomicUsize>,
}

impl Counted {
    fn new(bytes: usize, all: &Arc<AtomicUsize>) -> Counted {
        all.fetch_add(bytes, Ordering::Relaxed);
        Counted { bytes, all: all.clone() }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[derive(Debug)]
enum Link {
    Opening,
    Open(Arc<Stream>),
    Closed,
}

#[derive(Debug)]
struct Outgoing {
    link: Link,
    /// It was open once.
    was_open: bool,
    queue: VecDeque<Queued>,
    queued_bytes: usize,
    /// The writer is at the first of the queue.
    writing: bool,
    /// Since then all of the queue waits for company: nobody is at it.
    held_since: Option<Instant>,
    /// The writer looks at the queue soon without being told.
    looks: bool,
    /// Requests have waited for company so often.
    holds: u64,
    /// The answer to this request waits for those to what was read with it.
    gathered: Option<Key>,
    /// Requests in the queue: one that is sent again while it waits there is not queued twice, or
    /// a peer that is slow would get ever more of them.
    queued: BTreeSet<Key>,
    /// Requests that were sent or wait for it, until the answers come.
    asked: BTreeMap<Key, Asked>,
    /// Readers' buffers, until the answers come.
    buffers: BTreeMap<Key, BytesMut>,
}

impl Outgoing {
    /// What a request is answered that was given to a connection which closed before it was sent.
    fn unanswered(&self) -> Errno {
        if self.was_open { Errno::ECONNRESET } else { Errno::ESHUTDOWN }
    }

    /// Whether whoever has a message may send it, after what waits for company: the writer is at
    /// nothing.
    fn is_free(&self) -> bool {
        let free = self.queue.is_empty() || self.held_since.is_some();
        free && !self.writing && matches!(self.link, Link::Open(_))
    }

    /// Puts a message into the queue, unless it is a request that is there.
    fn push(&mut self, frame: Frame, request: Option<Header>, waiting: &Arc<AtomicUsize>) {
        if let Some(header) = &request
            && !self.queued.insert(key(header, header.to))
        {
            return;
        }
        self.queued_bytes += frame.left();
        let _counted = Counted::new(frame.left(), waiting);
        self.queue.push_back(Queued { frame, request, _counted });
    }

    /// Takes the first of the queue out of it.
    fn pop(&mut self) -> Option<Queued> {
        let queued = self.queue.pop_front()?;
        self.queued_bytes = self.queued_bytes.saturating_sub(queued.frame.left());
        if let Some(header) = &queued.request {
            self.queued.remove(&key(header, header.to));
        }
        Some(queued)
    }

    /// Nothing waits for company any more: sends of the queue what the socket takes now, many
    /// messages at once. What is left is the writer's, the error of a broken socket with it.
    fn send_together(&mut self) {
        self.held_since = None;
        let Link::Open(stream) = &self.link else { return };
        let stream = stream.clone();
        while !self.queue.is_empty() {
            let mut parts = [IoSlice::new(&[]); 2 * COMPANY_MAX];
            let frames = self.queue.iter().flat_map(|queued| queued.frame.parts());
            let mut count = 0;
            for (place, part) in parts.iter_mut().zip(frames.filter(|part| !part.is_empty())) {
                *place = part;
                count += 1;
            }
            let sent = stream.send(parts.get(..count).unwrap_or_default(), false);
            let Ok(mut sent) = sent else { return };
            while let Some(first) = self.queue.front_mut() {
                let before = first.frame.left();
                let others = first.frame.advance(sent);
                if first.frame.left() > 0 {
                    self.queued_bytes = self.queued_bytes.saturating_sub(sent);
                    break;
                }
                // What `pop` takes off is what was left.
                self.queued_bytes = self.queued_bytes.saturating_sub(before);
                sent = others;
                drop(self.pop());
            }
        }
    }
}

/// What somebody found who looked for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Looked {
    Nothing,
    /// Somebody else is at it.
    Busy,
    Took,
    /// There is something behind it.
    TookOneOfSome,
}

/// A connection to one peer.
#[derive(Debug)]
pub(super) struct Connection {
    /// Where it listens, or came from.
    pub(super) peer: Address,
    /// It is over shared memory, as far as is known.
    shm: AtomicBool,
    /// The higher, the younger.
    pub(super) number: u64,
    /// Endpoints whose messages go this way because they were heard of here.
    pub(super) speaks_for: AtomicUsize,
    /// Bytes that wait for any peer.
    waiting: Arc<AtomicUsize>,
    /// The peer has opened it: it asks, and answers are sent.
    pub(super) accepted: bool,
    /// The address on this side, once it is open.
    pub(super) local: OnceLock<SocketAddr>,
    /// [`Link::Open`] and [`Link::Closed`] for those who cannot wait.
    open: AtomicBool,
    closed: AtomicBool,
    /// Data was spread over it: [`super::rails`] counts what is under way.
    pub(super) is_rail: AtomicBool,
    pub(super) counts: Counting,
    /// When what came in last was done with, 0 before that; until it is the reader is at it.
    came_ms: AtomicU64,
    at_it: AtomicBool,
    out: Mutex<Outgoing>,
    /// What comes in; from when it is open.
    inbound: Mutex<Option<Inbound>>,
    /// Requests that wait for their answers, as far as is known.
    asked: AtomicUsize,
    /// There is something to be sent.
    woken: Condvar,
    /// Something was sent.
    drained: Condvar,
}

impl Connection {
    fn new(shared: &Shared, peer: Address, accepted: bool) -> Arc<Connection> {
        let out = Outgoing {
            link: Link::Opening,
            was_open: false,
            queue: VecDeque::new(),
            queued_bytes: 0,
            writing: false,
            held_since: None,
            looks: false,
            holds: 0,
            gathered: None,
            queued: BTreeSet::new(),
            asked: BTreeMap::new(),
            buffers: BTreeMap::new(),
        };
        let (out, woken, drained) = (Mutex::new(out), Condvar::new(), Condvar::new());
        let number = shared.connections.fetch_add(1, Ordering::Relaxed);
        let (speaks_for, waiting) = (AtomicUsize::new(0), shared.waiting.clone());
        let (came_ms, at_it) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(Connection {
            peer,
            shm: AtomicBool::new(peer.shm),
            number,
            speaks_for,
            waiting,
            accepted,
            local: OnceLock::new(),
            open: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            is_rail: AtomicBool::new(false),
            counts: Counting::default(),
            came_ms,
            at_it,
            out,
            inbound: Mutex::default(),
            asked: AtomicUsize::new(0),
            woken,
            drained,
        })
    }

    /// Whether something came in since then, or would have if it had been read: the reader is still
    /// at what came before. It delivers that, which may end in a disk that hangs; waits for room
    /// for its bulk; or for the peer to take answers.
    pub(super) fn is_heard_since(&self, since_ms: u64) -> bool {
        let came_ms = self.came_ms.load(Ordering::Relaxed);
        self.at_it.load(Ordering::Relaxed) || came_ms != 0 && came_ms >= since_ms
    }

    fn lock(&self) -> MutexGuard<'_, Outgoing> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to connect to a peer. Messages may be sent at once.
    ///
    /// # Errors
    /// No thread could be started.
    pub(super) fn dial(shared: &Arc<Shared>, peer: Address) -> io::Result<Arc<Connection>> {
        let connection = Connection::new(shared, peer, false);
        let (dialling, shared) = (connection.clone(), shared.clone());
        thread("tcp-in", move || {
            match reach(&shared, peer) {
                Ok(stream) => {
                    shared.reached(peer);
                    dialling.run(&shared, stream);
                }
                Err(error) => shared.not_reached(peer, &error),
            }
            dialling.close(&shared);
        })?;
        Ok(connection)
    }

    /// Serves a connection that somebody else has opened.
    ///
    /// # Errors
    /// No thread could be started.
    pub(super) fn accept(
        shared: &Arc<Shared>,
        peer: Address,
        stream: Stream,
    ) -> io::Result<Arc<Connection>> {
        let connection = Connection::new(shared, peer, true);
        let (serving, shared) = (connection.clone(), shared.clone());
        thread("tcp-in", move || {
            serving.run(&shared, stream);
            serving.close(&shared);
        })?;
        Ok(connection)
    }

    /// Until the connection ends.
    fn run(self: &Arc<Connection>, shared: &Arc<Shared>, stream: Stream) {
        let stream = Arc::new(stream);
        let writer = (self.clone(), shared.clone());
        let silence_max_ms = match !self.accepted && shared.has_others(self.peer) {
            true => SILENCE_OF_SEVERAL_MAX_MS,
            false => SILENCE_MAX_MS,
        };
        let ended = self
            .open(shared, stream.clone(), silence_max_ms)
            .and_then(|()| thread("tcp-out", move || writer.0.write(&writer.1)))
            .and_then(|()| self.read(shared, &stream));
        match ended {
            Ok(()) => tracing::debug!(peer = %self.peer, "the peer closed the connection"),
            Err(error) => {
                let who = shared.routes().who(self.peer);
                tracing::info!(who, peer = %self.peer, %error, "the connection is lost");
            }
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// Whether anybody waits for an answer.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) > 0
    }

    /// The memory that it shares with a peer that it has come to.
    pub(super) fn looked_at(&self) -> Option<Arc<Stream>> {
        match &self.lock().link {
            Link::Open(stream) if !self.accepted && stream.is_shm() => Some(stream.clone()),
            _ => None,
        }
    }

    /// Where the peer is, and how it is reached.
    pub(super) fn reached_at(&self) -> Address {
        Address { shm: self.shm.load(Ordering::Relaxed), ..self.peer }
    }

    fn open(&self, shared: &Shared, stream: Arc<Stream>, silence_max_ms: u32) -> io::Result<()> {
        // Of shared memory there is none.
        let mut local = None;
        if let Stream::Tcp(stream) = &*stream {
            tune(stream, silence_max_ms)?;
            local = Some(stream.local_addr()?);
        }
        self.shm.store(stream.is_shm(), Ordering::Relaxed);
        let mut out = self.lock();
        if matches!(out.link, Link::Closed) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if let Some(local) = local {
            self.local.get_or_init(|| local);
        }
        if !self.accepted {
            // Before anybody can close it.
            shared.rails().opened(self.peer, shared.now_ms());
        }
        out.link = Link::Open(stream);
        out.was_open = true;
        self.open.store(true, Ordering::Relaxed);
        drop(out);
        if self.shm.load(Ordering::Relaxed) && !self.accepted {
            shared.shm_turn.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }

    /// Takes a message. If the connection is closed a request comes back as its header, with what
    /// it is answered.
    pub(super) fn send(&self, mut message: Message) -> Option<(Header, Errno)> {
        let header = message.header;
        let request = matches!(message.body, Body::Request(_)).then_some(header);
        let mut buffer = None;
        match (core::mem::take(&mut message.bulk), request) {
            (Bulk::Buffer(readers), Some(_)) => buffer = Some(readers),
            (Bulk::Buffer(filled), None) => message.bulk = Bulk::Data(filled.freeze()),
            (bulk, _) => message.bulk = bulk,
        }
        let patient = message.body.is_patient();
        let measured = measured(&message.body);
        // Encoded, and its checksum made, before anybody has to wait for it.
        let mut frame = Frame::of(message);
        let mut out = self.lock();
        if matches!(out.link, Link::Closed) {
            return request.map(|header| (header, out.unanswered()));
        }
        self.counts.sent(frame.left());
        if request.is_some() && out.asked.len() < ASKED_MAX {
            out.asked.insert(key(&header, header.to), Asked { header, measured });
            self.asked.store(out.asked.len(), Ordering::Relaxed);
        }
        if let Some(buffer) = buffer
            && out.buffers.len() < ASKED_MAX
        {
            out.buffers.insert(key(&header, header.to), buffer);
        }
        if !out.is_free() {
            out.push(frame, request, &self.waiting);
            drop(out);
            self.woken.notify_one();
            return None;
        }
        let waits = match request {
            Some(_) => patient,
            None => out.gathered.is_some_and(|asked| asked == key(&header, header.from)),
        };
        if waits && out.queue.len() + 1 < COMPANY_MAX {
            out.held_since.get_or_insert_with(Instant::now);
            out.holds += u64::from(request.is_some());
            out.push(frame, request, &self.waiting);
            // An answer is sent by the reader, if by nobody before.
            let told = out.looks || request.is_none();
            drop(out);
            if !told {
                self.woken.notify_one();
            }
            return None;
        }
        match (&out.link, out.queue.is_empty()) {
            (Link::Open(stream), true) => {
                if frame.send(stream, false).is_ok() {
                    return None;
                }
                // The reader hears of a broken socket as well, and closes.
                out.push(frame, request, &self.waiting);
            }
            _ => {
                out.push(frame, request, &self.waiting);
                out.send_together();
            }
        }
        self.leave_to_writer(out);
        None
    }

    /// What is in the queue still is sent by the writer.
    fn leave_to_writer(&self, out: MutexGuard<'_, Outgoing>) {
        let left = !out.queue.is_empty();
        drop(out);
        if left {
            self.woken.notify_one();
        }
    }

    /// What waits for company goes now.
    pub(super) fn hurry(&self) {
        let mut out = self.lock();
        if out.held_since.is_some() {
            out.send_together();
            self.leave_to_writer(out);
        }
    }

    /// The reader reads on: what was gathered goes.
    fn end_gathering(&self) {
        let mut out = self.lock();
        out.gathered = None;
        if out.held_since.is_some() {
            out.send_together();
            self.leave_to_writer(out);
        }
    }

    /// The writer's thread.
    fn write(&self, shared: &Shared) {
        let mut out = self.lock();
        loop {
            let stream = match &out.link {
                Link::Closed => return,
                Link::Opening => None,
                Link::Open(stream) => Some(stream.clone()),
            };
            if let Some(since) = out.held_since {
                let left = COMPANY_WAIT.saturating_sub(since.elapsed());
                if left.is_zero() {
                    out.send_together();
                } else {
                    out = self.look_in(out, left);
                }
                continue;
            }
            let next = stream.and_then(|stream| Some((stream, out.pop()?)));
            let Some((stream, mut queued)) = next else {
                // Who keeps something back does so again: to look now and then costs less than to
                // be woken each time. Where nothing was for so long one is woken.
                if out.looks {
                    let holds = out.holds;
                    out = self.look_in(out, COMPANY_WAIT);
                    out.looks = out.holds != holds;
                } else {
                    out = self.woken.wait(out).unwrap_or_else(PoisonError::into_inner);
                }
                continue;
            };
            out.writing = true;
            drop(out);
            self.drained.notify_all();
            let sent = self.send_all(&mut queued.frame, &stream);
            out = self.lock();
            out.writing = false;
            if let Err(error) = sent {
                tracing::debug!(peer = %self.peer, %error, "cannot send");
                drop(out);
                return self.close(shared);
            }
        }
    }

    /// The writer waits so long for something to do.
    fn look_in<'a>(
        &self,
        mut out: MutexGuard<'a, Outgoing>,
        left: Duration,
    ) -> MutexGuard<'a, Outgoing> {
        out.looks = true;
        self.woken.wait_timeout(out, left).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Sends all of a message, however slowly the peer takes it.
    ///
    /// # Errors
    /// The socket's; `TimedOut` if it takes nothing, and too much waits behind the message.
    fn send_all(&self, frame: &mut Frame, stream: &Stream) -> io::Result<()> {
        let (mut left, mut since) = (frame.left(), Instant::now());
        loop {
            match frame.send(stream, true) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            if core::mem::replace(&mut left, frame.left()) != frame.left() {
                since = Instant::now();
            } else if since.elapsed() >= STALL && self.lock().queued_bytes > QUEUE_BYTES_MAX {
                tracing::warn!(peer = %self.peer, "the peer does not read; giving it up");
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }

    /// Whoever asks and does not take the answers is asked to wait.
    fn wait_for_room(&self, shared: &Shared) {
        let full = |out: &Outgoing| {
            let much = self.waiting.load(Ordering::Relaxed) > shared.limits.waiting_bytes;
            let bytes_max = if much { QUEUE_BYTES_FAIR } else { QUEUE_BYTES_MAX };
            out.queued_bytes > bytes_max && !matches!(out.link, Link::Closed)
        };
        if !self.accepted {
            return;
        }
        let mut out = self.lock();
        while full(&out) {
            // That less waits for others nobody tells.
            let waited = self.drained.wait_timeout(out, LOOK);
            out = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The reader's thread: what comes is delivered on it, but for what somebody has looked for.
    fn read(self: &Arc<Connection>, shared: &Shared, stream: &Arc<Stream>) -> io::Result<()> {
        let looked_at = !self.accepted && stream.is_shm();
        let mut polling = Polling::of_process();
        let own = if looked_at { Polling::new(Duration::ZERO) } else { polling.clone() };
        *self.inbound() = Some(Inbound::new(stream.clone(), own));
        let ended = self.read_on(shared, stream, looked_at.then_some(&mut polling));
        // Nobody reads any more; the last one to know a stream closes it.
        *self.inbound() = None;
        ended
    }

    /// As a connection that others look at, if it says how to look for what comes.
    fn read_on(
        self: &Arc<Connection>,
        shared: &Shared,
        stream: &Arc<Stream>,
        mut looked_at: Option<&mut Polling>,
    ) -> io::Result<()> {
        loop {
            let mut inbound = self.inbound();
            while let Some(polling) = &mut looked_at
                && inbound.as_mut().is_some_and(|inbound| inbound.is_dry())
            {
                // Nobody could look for anything otherwise.
                drop(inbound);
                let ended = shared.wait(stream, polling)?;
                inbound = self.inbound();
                if ended {
                    break;
                }
            }
            let Some(inbound) = &mut *inbound else { return Ok(()) };
            if !self.take(shared, inbound)? {
                return Ok(());
            }
        }
    }

    /// What comes in, for whoever reads it.
    fn inbound(&self) -> MutexGuard<'_, Option<Inbound>> {
        self.inbound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever waits for an answer looks for it himself: delivers one, if all of it is there, and
    /// nobody else is at it. Before that it is told, since delivering may take long.
    ///
    /// Callbacks and what there is no buffer for are left to the reader: he may wait for the kernel,
    /// which may wait for this very thread, or for room.
    pub(super) fn look(self: &Arc<Connection>, shared: &Shared, before: impl FnOnce()) -> Looked {
        let mut guard = match self.inbound.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Looked::Busy,
        };
        let Some(inbound) = &mut *guard else { return Looked::Nothing };
        let Some(Front { kind, header, .. }) = inbound.whole() else { return Looked::Nothing };
        let bulk = Message::has_bulk(inbound.stream.buffer());
        let has_room = || self.lock().buffers.contains_key(&key(&header, header.from));
        if kind != Kind::Reply || bulk && !has_room() {
            inbound.leave();
            return Looked::Nothing;
        }
        before();
        match self.take(shared, inbound) {
            Ok(true) if inbound.has_more() => Looked::TookOneOfSome,
            Ok(true) => Looked::Took,
            ended => {
                // The reader ends then.
                *guard = None;
                drop(guard);
                if let Err(error) = ended {
                    let who = shared.routes().who(self.peer);
                    tracing::info!(who, peer = %self.peer, %error, "the connection is lost");
                }
                self.close(shared);
                Looked::Took
            }
        }
    }

    /// Takes a message and delivers it, when it has come; false at the end.
    fn take(self: &Arc<Connection>, shared: &Shared, inbound: &mut Inbound) -> io::Result<bool> {
        if inbound.gathers && !Message::is_whole(inbound.stream.buffer()) {
            self.end_gathering();
            GATHERS.take();
            inbound.gathers = false;
        }
        let taken = self.take_next(shared, inbound)?;
        if self.at_it.load(Ordering::Relaxed) {
            self.came_ms.store(shared.now_ms(), Ordering::Relaxed);
            self.at_it.store(false, Ordering::Relaxed);
        }
        Ok(taken)
    }

    fn take_next(
        self: &Arc<Connection>,
        shared: &Shared,
        inbound: &mut Inbound,
    ) -> io::Result<bool> {
        let Inbound { stream, scratch, said, gathers, .. } = inbound;
        let Some(incoming) = Received::read(stream, scratch)? else { return Ok(false) };
        self.at_it.store(true, Ordering::Relaxed);
        let received = match incoming {
            Incoming::Message(received) => received,
            Incoming::Refused(refused) => {
                if !core::mem::replace(said, true) {
                    tracing::warn!(peer = %self.peer, "a message is refused: {}", refused.why);
                }
                self.refuse(shared, &refused)?;
                self.wait_for_room(shared);
                return Ok(true);
            }
        };
        self.counts.received(HEADER_BYTES + scratch.len() + received.bulk_len());
        let header = received.message.header;
        let reply = matches!(received.message.body, Body::Reply(_));
        // Half an answer is none: whoever waits for it is told if it ends there.
        let in_part = received.has_bulk();
        let buffer = match (reply, in_part) {
            (false, _) => None,
            (true, true) => self.buffer_for(&header),
            (true, false) => self.answered(&header)?,
        };
        // Before the bulk, for which there may be no room for long: who is heard of is known.
        if !reply && !shared.heard_of(&received.message, self) {
            return Err(io::Error::other("it speaks for too many"));
        }
        copied(Copied::LndAhead, received.bulk_len().min(stream.buffer().len()));
        let message = received.read_bulk(stream, buffer, |len| {
            shared.bulk.take(len, || matches!(self.lock().link, Link::Closed))
        })?;
        if reply && in_part {
            self.answered(&header)?;
        }
        let message = self.believed(shared, message);
        match &message.body {
            // It may be about what waits here.
            Body::Callback(_) => self.hurry(),
            // Of those that are asked: by whom that is read is not the same thread each time.
            body if self.accepted && body.is_patient() && Message::is_whole(stream.buffer()) => {
                self.lock().gathered = Some(key(&header, header.to));
                if !core::mem::replace(gathers, true) {
                    GATHERS.set(Some(self.clone()));
                }
            }
            _ => {}
        }
        (shared.deliver)(message);
        if scratch.capacity() > SCRATCH_BYTES_KEPT {
            *scratch = Vec::new();
        }
        self.wait_for_room(shared);
        Ok(true)
    }

    /// A message is of another version: who sent a request hears so, and who waits for an answer.
    fn refuse(&self, shared: &Shared, refused: &Refused) -> io::Result<()> {
        let (header, reply) = (refused.header, Reply::error(refused.errno));
        match refused.kind {
            Kind::Request => {
                self.send(Message::reply_to(&header, reply, Bulk::None));
            }
            Kind::Reply => {
                self.answered(&header)?;
                let message = Message { header, body: Body::Reply(reply), bulk: Bulk::None };
                (shared.deliver)(self.believed(shared, message));
            }
            Kind::Callback => {}
        }
        Ok(())
    }

    /// What came, or that it is to be asked again: it is the answer of somebody who is not the one.
    fn believed(&self, shared: &Shared, message: Message) -> Message {
        let Body::Reply(reply) = &message.body else { return message };
        if !self.is_rail.load(Ordering::Relaxed) {
            return message;
        }
        let asked = key(&message.header, message.header.from);
        if shared.rails().answered((&asked, self), reply, shared.now_ms()) {
            return message;
        }
        let body = Body::Reply(Reply::error(Errno::ECONNRESET));
        Message { header: message.header, body, bulk: Bulk::None }
    }

    /// The buffer that waits for an answer's bulk.
    fn buffer_for(&self, header: &Header) -> Option<BytesMut> {
        self.lock().buffers.remove(&key(header, header.from))
    }

    /// All of an answer has come; the buffer for its bulk, if it is there still.
    ///
    /// # Errors
    /// `NotConnected` if whoever asked has been told that there will be none.
    fn answered(&self, header: &Header) -> io::Result<Option<BytesMut>> {
        let mut out = self.lock();
        if matches!(out.link, Link::Closed) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let key = key(header, header.from);
        let asked = out.asked.remove(&key);
        self.asked.store(out.asked.len(), Ordering::Relaxed);
        let buffer = out.buffers.remove(&key);
        drop(out);
        if let Some((begun, called)) = asked.and_then(|asked| asked.measured).as_deref() {
            begun.end(Part::Lnd, || *called);
        }
        Ok(buffer)
    }

    /// Ends the connection. Requests that were not answered are answered here.
    pub(super) fn close(&self, shared: &Shared) {
        let (was_open, unsent, queue, mut asked) = {
            let mut out = self.lock();
            let link = core::mem::replace(&mut out.link, Link::Closed);
            let is_first = !self.closed.swap(true, Ordering::Relaxed);
            self.open.store(false, Ordering::Relaxed);
            let was_open = is_first.then_some(out.was_open);
            if let Link::Open(stream) = link {
                stream.shutdown();
            }
            out.buffers.clear();
            out.queued_bytes = 0;
            let (queue, asked) = (core::mem::take(&mut out.queue), core::mem::take(&mut out.asked));
            (was_open, out.unanswered(), queue, asked)
        };
        self.counts.dropped(asked.len());
        self.woken.notify_all();
        self.drained.notify_all();
        shared.closed(self, was_open);
        let answer = |header: &Header, errno| {
            (shared.deliver)(Message::reply_to(header, Reply::error(errno), Bulk::None));
        };
        for header in queue.into_iter().filter_map(|queued| queued.request) {
            asked.remove(&key(&header, header.to));
            answer(&header, unsent);
        }
        for Asked { header, .. } in asked.values() {
            answer(header, Errno::ECONNRESET);
        }
    }
}

/// Those of a request, if they are measured. On the heap, where nobody measures they need no room.
fn measured(body: &Body) -> Option<Box<Measured>> {
    let asks = is_on(Part::Lnd) && matches!(body, Body::Request(_));
    asks.then(|| Box::new((begin(Part::Lnd), body.called())))
}

/// Connects to whoever listens there: over shared memory if it is on this host, and lets us.
fn reach(shared: &Shared, peer: Address) -> io::Result<Stream> {
    match shm::reach(&shared.ways, peer.at) {
        Err(error) if shared.ways.tcp && !peer.shm => {
            tracing::debug!(%peer, %error, "not over shared memory");
            TcpStream::connect_timeout(&peer.at, DIAL_TIMEOUT).map(Stream::Tcp)
        }
        other => other.map(Stream::Shm),
    }
}

/// Small messages go at once, and a peer that has vanished is noticed.
fn tune(stream: &TcpStream, silence_max_ms: u32) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(STALL))?;
    stream.set_write_timeout(Some(LOOK))?;
    rustix::net::sockopt::set_socket_keepalive(stream, true)?;
    rustix::net::sockopt::set_tcp_keepidle(stream, Duration::from_secs(5))?;
    rustix::net::sockopt::set_tcp_keepintvl(stream, Duration::from_secs(5))?;
    rustix::net::sockopt::set_tcp_keepcnt(stream, 3)?;
    rustix::net::sockopt::set_tcp_user_timeout(stream, silence_max_ms)?;
    Ok(())
}

fn thread(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
}

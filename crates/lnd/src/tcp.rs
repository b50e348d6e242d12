//! The network of a process: connections over TCP, or over shared memory with processes of its host.
//!
//! An endpoint is reached over the addresses that [`Tcp::set_route`] was told, which are
//! tried in turn, or, if it was told none, over the connection on which a request of it came
//! last: so replies and callbacks find their clients. Data takes all addresses at once
//! ([`rails`]).

mod budget;
mod connection;
mod frame;
mod inbound;
mod looking;
mod polled;
mod rails;
mod shown;
mod stream;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sateen_types::{Endpoint, Errno};
use sateen_wire::{Body, Bulk, Header, Message, Reply};

use budget::Budget;
use connection::Connection;
pub use connection::{COMPANY_WAIT, QUEUE_BYTES_FAIR, QUEUE_BYTES_MAX};
pub use looking::Looker;
use rails::{Beside, Rails};
pub use rails::{Counts, HEALTH_MAX, RailState};
use shown::Gone;
pub use shown::{Net, Peer};
pub use stream::Address;
use stream::Stream;

use crate::shm::{self, SHM_CONNECTIONS_MAX, SHM_DESCRIPTORS};

/// Most connections of one process; more are closed at once.
pub const CONNECTIONS_MAX: usize = 8192;
/// Most endpoints that are reached over connections of theirs, all together; a connection that
/// speaks for one more is closed.
pub const ENDPOINTS_MAX: usize = 1 << 16;
/// Of them on one connection; a process has few.
pub const SPEAKS_FOR_MAX: usize = 1024;
/// Most bytes that wait for peers which do not read, before the connections that have more than
/// [`QUEUE_BYTES_FAIR`] of it are read no further.
pub const WAITING_BYTES_MAX: usize = 1 << 30;
/// Most bytes of bulk that came in and that somebody in the process still holds; beyond that no
/// more is read. A write under way is held.
pub const BULK_BYTES_MAX: usize = 256 << 20;
/// How long nobody is accepted after that has failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Receives what comes in, on the thread of the connection, or of somebody who looks for answers.
pub type Deliver = Box<dyn Fn(Message) + Send + Sync>;

/// How much there may be.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// See [`BULK_BYTES_MAX`].
    pub bulk_bytes: usize,
    /// See [`WAITING_BYTES_MAX`].
    pub waiting_bytes: usize,
    /// See [`CONNECTIONS_MAX`].
    pub connections: usize,
    /// See [`SHM_CONNECTIONS_MAX`].
    pub shm_connections: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            bulk_bytes: BULK_BYTES_MAX,
            waiting_bytes: WAITING_BYTES_MAX,
            connections: CONNECTIONS_MAX,
            shm_connections: SHM_CONNECTIONS_MAX,
        }
    }
}

/// Over what connections may go.
#[derive(Debug, Clone)]
pub struct Ways {
    /// The folder in which processes of this host meet that share memory; with none, nobody does.
    pub folder: Option<PathBuf>,
    /// Over TCP, where memory is not shared.
    pub tcp: bool,
}

/// Over TCP alone.
impl Default for Ways {
    fn default() -> Ways {
        Ways { folder: None, tcp: true }
    }
}

#[derive(Default)]
struct Routes {
    /// Addresses of endpoints, the one to be tried next first.
    told: BTreeMap<Endpoint, Vec<Address>>,
    /// Connections on which endpoints were heard of.
    heard: BTreeMap<Endpoint, Arc<Connection>>,
    dialled: BTreeMap<Address, Arc<Connection>>,
    /// By their numbers.
    accepted: BTreeMap<u64, Arc<Connection>>,
    /// Requests that came elsewhere.
    beside: Beside,
    /// Where nobody was found at the last attempt.
    unreached: BTreeSet<Address>,
}

impl Routes {
    /// Who is reached at an address, or may be, for people.
    fn who(&self, address: Address) -> String {
        let are_there = self.told.iter().filter(|(_, all)| all.contains(&address));
        are_there.map(|(endpoint, _)| endpoint.to_string()).collect::<Vec<_>>().join(" ")
    }

    /// A request came on another connection than that on which its sender is reached. False if
    /// there is no room for more.
    fn came_beside(&mut self, header: &Header, on: &Arc<Connection>) -> bool {
        // Whoever closes it takes it out of the routes afterwards.
        if on.is_closed() {
            return true;
        }
        if !self.beside.has(header.from, on)
            && (self.beside.len() >= ENDPOINTS_MAX
                || on.speaks_for.fetch_add(1, Ordering::Relaxed) >= SPEAKS_FOR_MAX)
        {
            return false;
        }
        self.beside.came(header, on);
        true
    }

    /// Nobody was found there. True, if that is news: it is tried again for as long as it takes.
    fn missed(&mut self, address: Address) -> bool {
        let Routes { told, unreached, .. } = self;
        // Who has moved is not looked for there any more.
        unreached.retain(|other| told.values().any(|all| all.contains(other)));
        unreached.insert(address)
    }

    /// Somebody was found there. True, if that is news.
    fn found(&mut self, address: Address) -> bool {
        self.unreached.remove(&address)
    }
}

struct Shared {
    deliver: Deliver,
    bulk: Arc<Budget>,
    limits: Limits,
    ways: Ways,
    /// Bytes that wait for peers.
    waiting: Arc<AtomicUsize>,
    /// There were so many connections.
    connections: AtomicU64,
    /// So many times a connection over shared memory was opened here, or one was closed.
    shm_turn: AtomicU64,
    /// So many look for answers.
    lookers: AtomicUsize,
    /// What times are counted from.
    began: Instant,
    routes: Mutex<Routes>,
    /// Never locked together with the routes.
    rails: Mutex<Rails>,
    gone: Mutex<Gone>,
    closing: AtomicBool,
}

/// The network of one process. Dropping it ends all connections.
pub struct Tcp {
    shared: Arc<Shared>,
    listening: Vec<SocketAddr>,
    met: Vec<(SocketAddr, Arc<shm::Listener>)>,
}

impl std::fmt::Debug for Tcp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tcp").field("listening", &self.listening).finish_non_exhaustive()
    }
}

impl Shared {
    fn now_ms(&self) -> u64 {
        // From 1: 0 is for what has not been yet.
        1 + self.began.elapsed().as_millis() as u64
    }

    fn routes(&self) -> MutexGuard<'_, Routes> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rails(&self) -> MutexGuard<'_, Rails> {
        self.rails.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gone(&self) -> MutexGuard<'_, Gone> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request came on a connection. False if there is no room for more. Of several connections
    /// the youngest that is open is the peer's: what is left to be read of an older one says nothing
    /// about where its answers are awaited. Data says nothing about that at all, and is answered
    /// where it came.
    fn heard_of(&self, message: &Message, on: &Arc<Connection>) -> bool {
        let endpoint = message.header.from;
        let mut routes = self.routes();
        match routes.heard.get(&endpoint) {
            Some(known) if Arc::ptr_eq(known, on) => {
                routes.beside.came_home(&message.header);
                return true;
            }
            Some(known) if rails::is_spread(&message.body) && !known.is_closed() => {
                return routes.came_beside(&message.header, on);
            }
            Some(known) if known.number > on.number && !known.is_closed() => return true,
            None if routes.heard.len() >= ENDPOINTS_MAX => return false,
            _ => {}
        }
        // Whoever closes it takes it out of the routes afterwards.
        if on.is_closed() {
            return true;
        }
        if on.speaks_for.fetch_add(1, Ordering::Relaxed) >= SPEAKS_FOR_MAX {
            return false;
        }
        let before = routes.heard.insert(endpoint, on.clone());
        if let Some(before) = &before {
            before.speaks_for.fetch_sub(1, Ordering::Relaxed);
        }
        drop(routes);
        // The last one to know a connection closes its socket.
        drop(before);
        true
    }

    fn not_reached(&self, peer: Address, error: &io::Error) {
        let (is_news, who) = {
            let mut routes = self.routes();
            (routes.missed(peer), routes.who(peer))
        };
        if is_news {
            tracing::warn!(who, %peer, %error, "cannot connect: trying on");
        } else {
            tracing::debug!(who, %peer, %error, "cannot connect");
        }
    }

    fn reached(&self, peer: Address) {
        let (is_news, who) = {
            let mut routes = self.routes();
            (routes.found(peer), routes.who(peer))
        };
        if is_news {
            tracing::info!(who, %peer, "connected again");
        }
    }

    /// A connection is gone: said several times, the first time with whether it ever was open.
    fn closed(&self, connection: &Connection, was_open: Option<bool>) {
        let is_it = |other: &Arc<Connection>| std::ptr::eq(Arc::as_ptr(other), connection);
        if let Some(was_open) = was_open
            && !connection.accepted
        {
            self.rails().closed(connection, was_open, self.now_ms());
        }
        let mut routes = self.routes();
        routes.heard.retain(|_, other| !is_it(other));
        routes.accepted.retain(|_, other| !is_it(other));
        routes.beside.closed(is_it);
        if routes.dialled.get(&connection.peer).is_some_and(is_it) {
            routes.dialled.remove(&connection.peer);
            // Another address of the same endpoint is next.
            let meant = |all: &&mut Vec<Address>| all.first() == Some(&connection.peer);
            routes.told.values_mut().filter(meant).for_each(|all| all.rotate_left(1));
        }
        drop(routes);
        if connection.reached_at().shm && !connection.accepted {
            self.shm_turn.fetch_add(1, Ordering::Release);
        }
        self.gone().add(connection);
    }

    /// Whether whoever is reached at an address is reached at others, too.
    fn has_others(&self, address: Address) -> bool {
        self.routes().told.values().any(|all| all.len() > 1 && all.contains(&address))
    }

    /// The rail for a message that may go beside all others, if its receiver has several.
    fn rail(self: &Arc<Shared>, message: &Message) -> Option<Arc<Connection>> {
        if !rails::is_spread(&message.body) || self.closing.load(Ordering::Relaxed) {
            return None;
        }
        let (addresses, one) = {
            let routes = self.routes();
            let all = routes.told.get(&message.header.to).filter(|all| all.len() > 1)?;
            let one = all.first().and_then(|first| routes.dialled.get(first));
            if one.is_some_and(|one| one.reached_at().shm) {
                // It is on this host: the others would lead to the same memory.
                return None;
            }
            (all.clone(), one.cloned())
        };
        let dial = |address| Connection::dial(self, address);
        let ways = (addresses.as_slice(), one.as_ref());
        let rail = self.rails().choose(message, ways, self.now_ms(), dial)?;
        rail.is_rail.store(true, Ordering::Relaxed);
        Some(rail)
    }

    /// The connection for a message, which is opened if need be.
    fn connection_for(
        self: &Arc<Shared>,
        message: &Message,
    ) -> io::Result<Option<Arc<Connection>>> {
        let mut routes = match &message.body {
            Body::Request(_) => match self.rail(message) {
                Some(rail) => return Ok(Some(rail)),
                None => self.routes(),
            },
            _ => self.routes(),
        };
        let to = message.header.to;
        if let Body::Reply(_) = &message.body
            && let Some(rail) = routes.beside.answer_to(&message.header)
        {
            return Ok(Some(rail));
        }
        let Some(address) = routes.told.get(&to).and_then(|all| all.first().copied()) else {
            return Ok(routes.heard.get(&to).cloned());
        };
        if let Some(connection) = routes.dialled.get(&address) {
            return Ok(Some(connection.clone()));
        }
        if self.closing.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let connection = Connection::dial(self, address)?;
        routes.dialled.insert(address, connection.clone());
        Ok(Some(connection))
    }

    /// Serves whoever comes, by one way or the other, until the network ends.
    fn accept<S>(
        self: &Arc<Shared>,
        next: impl Fn() -> io::Result<(S, Address)>,
        open: impl Fn(S) -> io::Result<Stream>,
    ) {
        while !self.closing.load(Ordering::Relaxed) {
            let (stream, peer) = match next() {
                Ok(accepted) => accepted,
                Err(_) if self.closing.load(Ordering::Relaxed) => return,
                Err(error) => {
                    // Out of descriptors, for instance: others may end meanwhile.
                    tracing::warn!(%error, "cannot accept a connection");
                    std::thread::sleep(ACCEPT_PAUSE);
                    continue;
                }
            };
            if self.is_full(peer) {
                tracing::warn!(%peer, "too many connections");
                continue;
            }
            let stream = match open(stream) {
                Ok(stream) => stream,
                Err(error) => {
                    tracing::warn!(%peer, %error, "cannot serve a connection");
                    continue;
                }
            };
            let mut routes = self.routes();
            if self.closing.load(Ordering::Relaxed) {
                return;
            }
            match Connection::accept(self, peer, stream) {
                Ok(connection) => drop(routes.accepted.insert(connection.number, connection)),
                Err(error) => tracing::warn!(%peer, %error, "cannot serve a connection"),
            }
        }
    }

    /// Whether there are as many connections of this way as there may be. One over shared memory
    /// counts by the descriptors that it has.
    fn is_full(&self, peer: Address) -> bool {
        let routes = self.routes();
        let shm = routes.accepted.values().filter(|other| other.peer.shm).count();
        let counted = routes.accepted.len() + (SHM_DESCRIPTORS - 1) * shm;
        counted >= self.limits.connections || peer.shm && shm >= self.limits.shm_connections
    }

    fn accept_tcp(self: &Arc<Shared>, listener: &TcpListener) {
        let next = || listener.accept().map(|(stream, peer)| (stream, peer.into()));
        self.accept(next, |stream: TcpStream| Ok(Stream::Tcp(stream)));
    }

    /// Whoever shares memory comes from where it has met us: from there it would over TCP, too.
    fn accept_shm(self: &Arc<Shared>, listener: &shm::Listener, at: SocketAddr) {
        let next = || Ok((listener.accept()?, Address { at, shm: true }));
        self.accept(next, |stream: UnixStream| shm::welcome(stream).map(Stream::Shm));
    }
}

/// Whether these are the same addresses, and only another is to be tried first.
fn is_rotation(known: &[Address], told: &[Address]) -> bool {
    known.len() == told.len()
        && (0..told.len()).any(|at| {
            let (before, after) = told.split_at(at);
            known.iter().eq(after.iter().chain(before))
        })
}

impl Tcp {
    /// Listens on addresses (port 0: any) and delivers what comes in.
    ///
    /// # Errors
    /// An address cannot be used.
    pub fn start(listen: &[SocketAddr], deliver: Deliver) -> io::Result<Tcp> {
        Tcp::start_with(listen, deliver, Limits::default())
    }

    /// The same with other limits.
    ///
    /// # Errors
    /// As [`Tcp::start`].
    pub fn start_with(listen: &[SocketAddr], deliver: Deliver, limits: Limits) -> io::Result<Tcp> {
        let listen: Vec<Address> = listen.iter().copied().map(Address::from).collect();
        Tcp::start_over(&listen, deliver, limits, Ways::default())
    }

    /// The same over other ways: who listens at an address is met there by whoever shares memory,
    /// too, where that is possible.
    ///
    /// # Errors
    /// As [`Tcp::start`]; or memory cannot be shared where there is no other way.
    pub fn start_over(
        listen: &[Address],
        deliver: Deliver,
        limits: Limits,
        ways: Ways,
    ) -> io::Result<Tcp> {
        let shared = Arc::new(Shared {
            deliver,
            bulk: Budget::new(limits.bulk_bytes),
            limits,
            ways,
            waiting: Arc::default(),
            connections: AtomicU64::new(0),
            // Whoever has seen none yet looks.
            shm_turn: AtomicU64::new(1),
            lookers: AtomicUsize::new(0),
            began: Instant::now(),
            routes: Mutex::default(),
            rails: Mutex::default(),
            gone: Mutex::default(),
            closing: AtomicBool::new(false),
        });
        let mut tcp = Tcp { shared, listening: Vec::new(), met: Vec::new() };
        for address in listen {
            tcp.listen(*address)?;
        }
        Ok(tcp)
    }

    fn listen(&mut self, address: Address) -> io::Result<()> {
        let Address { mut at, shm } = address;
        let tcp = self.shared.ways.tcp && !shm;
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let listener = if tcp { Some(TcpListener::bind(at)?) } else { None };
        if let Some(listener) = &listener {
            at = listener.local_addr()?;
        }
        if self.met.iter().any(|(met, _)| *met == at) {
            // Under another NID that it was given.
            return self.take_tcp(listener, at);
        }
        // Before anybody is taken over TCP: who comes from this host then shares memory.
        match shm::listen(&self.shared.ways, at) {
            Ok(listener) => {
                let (shared, listener) = (self.shared.clone(), Arc::new(listener));
                self.met.push((at, listener.clone()));
                thread("shm-accept").spawn(move || shared.accept_shm(&listener, at))?;
            }
            Err(error) if tcp && error.kind() == io::ErrorKind::Unsupported => {}
            // Another server is met there: whoever looks for this one on this host would find that.
            Err(error) if tcp && error.kind() != io::ErrorKind::AddrInUse => {
                tracing::warn!(%at, %error, "cannot share memory with processes of this host");
            }
            Err(error) => return Err(error),
        }
        self.take_tcp(listener, at)
    }

    /// Takes whoever comes over TCP, if it listens there.
    fn take_tcp(&mut self, listener: Option<TcpListener>, at: SocketAddr) -> io::Result<()> {
        let Some(listener) = listener else { return Ok(()) };
        self.listening.push(at);
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name("tcp-accept".to_owned());
        thread.spawn(move || shared.accept_tcp(&listener)).map(drop)
    }

    /// Where it listens, ports included.
    pub fn listening(&self) -> &[SocketAddr] {
        &self.listening
    }

    /// The address from which an endpoint was heard of last.
    pub fn peer(&self, endpoint: Endpoint) -> Option<Address> {
        self.shared.routes().heard.get(&endpoint).map(|connection| connection.reached_at())
    }

    /// The address of this process on that connection.
    pub fn local(&self, endpoint: Endpoint) -> Option<SocketAddr> {
        self.shared.routes().heard.get(&endpoint)?.local.get().copied()
    }

    /// The address at which an endpoint is tried next, or is reached.
    pub fn route(&self, endpoint: Endpoint) -> Option<Address> {
        let routes = self.shared.routes();
        let address = routes.told.get(&endpoint)?.first().copied()?;
        let dialled = routes.dialled.get(&address);
        Some(dialled.map_or(address, |connection| connection.reached_at()))
    }

    /// The endpoints of which something came in within this time, or would have if it had been
    /// read: the thread that reads from them was kept from it in this process. None of them is
    /// silent.
    pub fn heard(&self, within: Duration) -> Vec<Endpoint> {
        let since_ms = self.shared.now_ms().saturating_sub(within.as_millis() as u64);
        let routes = self.shared.routes();
        let Routes { told, heard, dialled, beside, .. } = &*routes;
        let answers = told.iter().filter_map(|(endpoint, all)| {
            Some((endpoint, all.first().and_then(|address| dialled.get(address))?))
        });
        let all = heard.iter().chain(beside.rails()).chain(answers);
        let heard = all.filter(|(_, connection)| connection.is_heard_since(since_ms));
        let mut all: Vec<Endpoint> = heard.map(|(endpoint, _)| *endpoint).collect();
        let several = told.iter().filter(|(_, all)| all.len() > 1);
        let several: Vec<_> = several.map(|(to, all)| (*to, all.clone())).collect();
        drop(routes);
        if !several.is_empty() {
            let rails = self.shared.rails();
            let heard =
                |at: &Address| rails.own_to(*at).is_some_and(|rail| rail.is_heard_since(since_ms));
            all.extend(several.iter().filter(|(_, at)| at.iter().any(heard)).map(|(to, _)| *to));
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Says where an endpoint is reached; nowhere, if the list is empty.
    pub fn set_route(&self, endpoint: Endpoint, addresses: Vec<impl Into<Address>>) {
        let addresses: Vec<Address> = addresses.into_iter().map(Into::into).collect();
        let mut routes = self.shared.routes();
        let known = routes.told.get(&endpoint);
        if addresses.is_empty() {
            routes.told.remove(&endpoint);
        } else if known.is_none_or(|known| !is_rotation(known, &addresses)) {
            routes.told.insert(endpoint, addresses);
        }
        let told: BTreeSet<Address> = routes.told.values().flatten().copied().collect();
        drop(routes);
        let retired = self.shared.rails().retire(|address| told.contains(&address));
        for rail in retired {
            rail.close(&self.shared);
        }
    }

    /// What answers for an endpoint is not it, or nothing does: its next address is tried from
    /// now on. Others may go on using the connection.
    pub fn try_next(&self, endpoint: Endpoint) {
        if let Some(all) = self.shared.routes().told.get_mut(&endpoint) {
            all.rotate_left(1);
        }
    }

    /// Somebody waits for the answer to what was sent as if nobody did: what waits for company
    /// ([`COMPANY_WAIT`]) goes now.
    pub fn hurry(&self) {
        let all: Vec<_> = self.shared.routes().dialled.values().cloned().collect();
        all.iter().for_each(|connection| connection.hurry());
    }

    /// This thread may be at something for long: what it was to send with others goes before.
    pub fn send_gathered(&self) {
        connection::send_gathered();
    }

    /// Sends a message and waits for nothing. A request that reaches nobody is answered with
    /// `ESHUTDOWN`, one whose connection was there and broke, with `ECONNRESET`: it may have arrived;
    /// replies and callbacks to nobody get lost, as their receiver did.
    pub fn send(&self, message: Message) {
        let to = message.header.to;
        let named = connection::key(&message.header, to);
        let request =
            matches!(message.body, Body::Request(_)).then_some((message.header, Errno::ESHUTDOWN));
        let lost = match self.shared.connection_for(&message) {
            Ok(Some(connection)) => {
                let lost = connection.send(message);
                if lost.is_some() && connection.is_rail.load(Ordering::Relaxed) {
                    self.shared.rails().forget(&named);
                }
                lost
            }
            Ok(None) => request,
            Err(error) => {
                tracing::warn!(%to, %error, "cannot open a connection");
                request
            }
        };
        if let Some((header, errno)) = lost {
            let reply = Reply::error(errno);
            (self.shared.deliver)(Message::reply_to(&header, reply, Bulk::None));
        }
    }
}

impl Drop for Tcp {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        for (_, listener) in &self.met {
            listener.close();
        }
        for address in &self.listening {
            // Wakes the thread that accepts, so that it sees the end.
            let _ = TcpStream::connect(address);
        }
        let all: Vec<_> = {
            let routes = self.shared.routes();
            routes.dialled.values().chain(routes.accepted.values()).cloned().collect()
        };
        let rails: Vec<_> = self.shared.rails().own().cloned().collect();
        for connection in all.into_iter().chain(rails) {
            connection.close(&self.shared);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_nobody_is_there_is_news_once() {
        let [here, there] = ["10.0.0.1:988", "10.0.0.2:988"]
            .map(|text| Address::from(text.parse::<SocketAddr>().unwrap()));
        let mut routes = Routes::default();
        routes.told.insert(Endpoint::Ost(1), vec![here]);
        routes.told.insert(Endpoint::Ost(3), vec![there, here]);
        assert_eq!(routes.who(here), "OST0001 OST0003");
        assert!(!routes.found(here), "it was never missed");
        assert!(routes.missed(here) && !routes.missed(here));
        assert!(routes.missed(there) && !routes.missed(here), "each by itself");
        assert!(routes.found(here) && !routes.found(here));
        assert!(routes.missed(here), "another time");
        routes.told.clear();
        routes.told.insert(Endpoint::Ost(3), vec![here]);
        assert!(!routes.missed(here));
        assert_eq!(routes.unreached.len(), 1, "nobody is looked for at the other any more");
    }
}

//! TCP between processes.
//!
//! An endpoint is reached over the addresses that [`Tcp::set_route`] was told, which are
//! tried in turn, or, if it was told none, over the connection on which a request of it came
//! last: so replies and callbacks find their clients.

mod budget;
mod connection;
mod frame;
mod polled;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sateen_types::{Endpoint, Errno};
use sateen_wire::{Body, Bulk, Message, Reply};

use budget::Budget;
use connection::Connection;
pub use connection::{COMPANY_WAIT, QUEUE_BYTES_FAIR, QUEUE_BYTES_MAX};

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

/// Receives what comes in, on the thread of the connection.
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
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            bulk_bytes: BULK_BYTES_MAX,
            waiting_bytes: WAITING_BYTES_MAX,
            connections: CONNECTIONS_MAX,
        }
    }
}

#[derive(Default)]
struct Routes {
    /// Addresses of endpoints, the one to be tried next first.
    told: BTreeMap<Endpoint, Vec<SocketAddr>>,
    /// Connections on which endpoints were heard of.
    heard: BTreeMap<Endpoint, Arc<Connection>>,
    dialled: BTreeMap<SocketAddr, Arc<Connection>>,
    accepted: BTreeMap<SocketAddr, Arc<Connection>>,
    /// Where nobody was found at the last attempt.
    unreached: BTreeSet<SocketAddr>,
}

impl Routes {
    /// Who is reached at an address, or may be, for people.
    fn who(&self, address: SocketAddr) -> String {
        let are_there = self.told.iter().filter(|(_, all)| all.contains(&address));
        are_there.map(|(endpoint, _)| endpoint.to_string()).collect::<Vec<_>>().join(" ")
    }

    /// Nobody was found there. True, if that is news: it is tried again for as long as it takes.
    fn missed(&mut self, address: SocketAddr) -> bool {
        let Routes { told, unreached, .. } = self;
        // Who has moved is not looked for there any more.
        unreached.retain(|other| told.values().any(|all| all.contains(other)));
        unreached.insert(address)
    }

    /// Somebody was found there. True, if that is news.
    fn found(&mut self, address: SocketAddr) -> bool {
        self.unreached.remove(&address)
    }
}

struct Shared {
    deliver: Deliver,
    bulk: Arc<Budget>,
    limits: Limits,
    /// Bytes that wait for peers.
    waiting: Arc<AtomicUsize>,
    /// There were so many connections.
    connections: AtomicU64,
    /// What times are counted from.
    began: Instant,
    routes: Mutex<Routes>,
    closing: AtomicBool,
}

/// The TCP network of one process. Dropping it ends all connections.
pub struct Tcp {
    shared: Arc<Shared>,
    listening: Vec<SocketAddr>,
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

    /// A request of this endpoint came on a connection. False if there is no room for more. Of
    /// several connections the youngest that is open is the peer's: what is left to be read of an
    /// older one says nothing about where its answers are awaited.
    fn heard_of(&self, endpoint: Endpoint, on: &Arc<Connection>) -> bool {
        let mut routes = self.routes();
        match routes.heard.get(&endpoint) {
            Some(known) if Arc::ptr_eq(known, on) => return true,
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

    fn not_reached(&self, peer: SocketAddr, error: &io::Error) {
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

    fn reached(&self, peer: SocketAddr) {
        let (is_news, who) = {
            let mut routes = self.routes();
            (routes.found(peer), routes.who(peer))
        };
        if is_news {
            tracing::info!(who, %peer, "connected again");
        }
    }

    fn closed(&self, connection: &Connection) {
        let is_it = |other: &Arc<Connection>| std::ptr::eq(Arc::as_ptr(other), connection);
        let mut routes = self.routes();
        routes.heard.retain(|_, other| !is_it(other));
        routes.accepted.retain(|_, other| !is_it(other));
        if routes.dialled.get(&connection.peer).is_some_and(is_it) {
            routes.dialled.remove(&connection.peer);
            // Another address of the same endpoint is next.
            let meant = |all: &&mut Vec<SocketAddr>| all.first() == Some(&connection.peer);
            routes.told.values_mut().filter(meant).for_each(|all| all.rotate_left(1));
        }
    }

    /// The connection to an endpoint, which is opened if need be.
    fn connection(self: &Arc<Shared>, to: Endpoint) -> io::Result<Option<Arc<Connection>>> {
        let mut routes = self.routes();
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

    fn accept(self: &Arc<Shared>, listener: &TcpListener) {
        while !self.closing.load(Ordering::Relaxed) {
            let (stream, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of descriptors, for instance: others may end meanwhile.
                    tracing::warn!(%error, "cannot accept a connection");
                    std::thread::sleep(ACCEPT_PAUSE);
                    continue;
                }
            };
            let mut routes = self.routes();
            if self.closing.load(Ordering::Relaxed) {
                return;
            }
            if routes.accepted.len() >= self.limits.connections {
                tracing::warn!(%peer, "too many connections");
                continue;
            }
            match Connection::accept(self, peer, stream) {
                Ok(connection) => drop(routes.accepted.insert(peer, connection)),
                Err(error) => tracing::warn!(%peer, %error, "cannot serve a connection"),
            }
        }
    }
}

/// Whether these are the same addresses, and only another is to be tried first.
fn is_rotation(known: &[SocketAddr], told: &[SocketAddr]) -> bool {
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
        let shared = Arc::new(Shared {
            deliver,
            bulk: Budget::new(limits.bulk_bytes),
            limits,
            waiting: Arc::default(),
            connections: AtomicU64::new(0),
            began: Instant::now(),
            routes: Mutex::default(),
            closing: AtomicBool::new(false),
        });
        let mut tcp = Tcp { shared, listening: Vec::new() };
        for address in listen {
            let listener = TcpListener::bind(address)?;
            tcp.listening.push(listener.local_addr()?);
            let shared = tcp.shared.clone();
            let thread = std::thread::Builder::new().name("tcp-accept".to_owned());
            thread.spawn(move || shared.accept(&listener))?;
        }
        Ok(tcp)
    }

    /// Where it listens, ports included.
    pub fn listening(&self) -> &[SocketAddr] {
        &self.listening
    }

    /// The address from which an endpoint was heard of last.
    pub fn peer(&self, endpoint: Endpoint) -> Option<SocketAddr> {
        self.shared.routes().heard.get(&endpoint).map(|connection| connection.peer)
    }

    /// The address at which an endpoint is tried next, or is reached.
    pub fn route(&self, endpoint: Endpoint) -> Option<SocketAddr> {
        self.shared.routes().told.get(&endpoint).and_then(|all| all.first().copied())
    }

    /// The endpoints of which something came in within this time, or would have if it had been
    /// read: the thread that reads from them was kept from it in this process. None of them is
    /// silent.
    pub fn heard(&self, within: Duration) -> Vec<Endpoint> {
        let since_ms = self.shared.now_ms().saturating_sub(within.as_millis() as u64);
        let routes = self.shared.routes();
        let Routes { told, heard, dialled, .. } = &*routes;
        let answers = told.iter().filter_map(|(endpoint, all)| {
            Some((endpoint, all.first().and_then(|address| dialled.get(address))?))
        });
        let all = heard.iter().chain(answers);
        let heard = all.filter(|(_, connection)| connection.is_heard_since(since_ms));
        heard.map(|(endpoint, _)| *endpoint).collect()
    }

    /// Says where an endpoint is reached; nowhere, if the list is empty.
    pub fn set_route(&self, endpoint: Endpoint, addresses: Vec<SocketAddr>) {
        let mut routes = self.shared.routes();
        let known = routes.told.get(&endpoint);
        if addresses.is_empty() {
            routes.told.remove(&endpoint);
        } else if known.is_none_or(|known| !is_rotation(known, &addresses)) {
            routes.told.insert(endpoint, addresses);
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
        let request =
            matches!(message.body, Body::Request(_)).then_some((message.header, Errno::ESHUTDOWN));
        let lost = match self.shared.connection(to) {
            Ok(Some(connection)) => connection.send(message),
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
        for address in &self.listening {
            // Wakes the thread that accepts, so that it sees the end.
            let _ = std::net::TcpStream::connect(address);
        }
        let all: Vec<_> = {
            let routes = self.shared.routes();
            routes.dialled.values().chain(routes.accepted.values()).cloned().collect()
        };
        for connection in all {
            connection.close(&self.shared);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_nobody_is_there_is_news_once() {
        let [here, there]: [SocketAddr; 2] =
            ["10.0.0.1:988", "10.0.0.2:988"].map(|text| text.parse().unwrap());
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

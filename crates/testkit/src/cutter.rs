//! Connections that break. A [`Cutter`] stands between networks: whoever connects to a server's
//! address in one of them reaches, through it, the server in another. In a storm it breaks the
//! connections that go through it, each once, at a place in the stream of bytes and in a way that
//! chance decides; whoever connects again gets another. In a calm it only passes on.
//!
//! Life of a connection: accepted; dialled in the server's network; two threads pass on what comes
//! each way; its [`Plan`] strikes at a byte of one of them, or it ends because an end closes it.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed; where it did says more than an error"
)]

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::connect_unspec;
use rustix::net::sockopt::set_socket_linger;

use crate::network::Door;
use crate::random::{Random, mix};

/// Bytes that are passed on at a time.
const PIECE_BYTES: usize = 64 << 10;
/// A connection breaks after at most so many bytes one way, each of these as often: among its
/// first messages, among many small ones, in or between large ones.
const AFTER_BYTES_MAX: [u64; 5] = [2 << 10, 128 << 10, 512 << 10, 4 << 20, 4 << 20];
/// It breaks with the next bytes after a time that is at least this, and up to as much more.
const LIFE_MS: u64 = 20;
const LIFE_MORE_MS: u64 = 1000;
/// How long it is silent before it breaks: usually less than this.
const PAUSE_MS: u64 = 300;
/// One in so many is silent for longer: for 1 s and up to as much more.
const LONG_PAUSE_ONE_IN: u64 = 12;
const LONG_PAUSE_MS: u64 = 1000;
const LONG_PAUSE_MORE_MS: u64 = 2000;
/// How long an end may take to see that the other will send no more.
const FINISH: Duration = Duration::from_secs(2);
/// The longest that nobody looks whether something has ended.
const LOOK: Duration = Duration::from_millis(20);
/// How long dialling may take.
const DIAL: Duration = Duration::from_secs(5);

/// A way through a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From who dialled to the server.
    There,
    /// From the server.
    Back,
}

/// How a connection breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// Both ends get a reset.
    Reset,
    /// One end is told that nothing more comes; what goes the other way still arrives, until
    /// that end closes.
    Finished,
    /// One way nothing more is taken for a while, though all of the other arrives; then a reset.
    Stalled,
    /// The same, both ways.
    Silent,
    /// What goes one way is taken and lost for a while, though all of the other arrives; then a
    /// reset.
    Lost,
}

const HOWS: [How; 6] =
    [How::Reset, How::Reset, How::Finished, How::Stalled, How::Silent, How::Lost];

/// Looks on. Connections have numbers.
pub trait Watch: Send + Sync {
    /// These bytes go one way, or would: whether they `arrive`. After some that do not, none do.
    fn saw(&self, connection: u64, way: Way, bytes: &[u8], arrive: bool);
    /// From now on nothing arrives either way, because the connection was broken.
    fn broke(&self, connection: u64);
}

/// When and how a connection breaks.
#[derive(Debug, Clone, Copy)]
struct Plan {
    how: How,
    way: Way,
    after_bytes: u64,
    life: Duration,
    pause: Duration,
    /// Where it breaks in the bytes that come when its life is over.
    place: u64,
}

impl Plan {
    fn of(seed: u64, connection: u64) -> Plan {
        let mut random = Random::new(seed ^ mix(connection));
        let way = if random.one_in(2) { Way::There } else { Way::Back };
        let after_bytes_max = random.pick(&AFTER_BYTES_MAX).copied().unwrap_or_default();
        let pause_ms = if random.one_in(LONG_PAUSE_ONE_IN) {
            LONG_PAUSE_MS + random.below(LONG_PAUSE_MORE_MS)
        } else {
            random.below(PAUSE_MS)
        };
        Plan {
            how: random.pick(&HOWS).copied().unwrap_or(How::Reset),
            way,
            after_bytes: random.below(after_bytes_max),
            life: Duration::from_millis(LIFE_MS + random.below(LIFE_MORE_MS)),
            pause: Duration::from_millis(pause_ms),
            place: random.number(),
        }
    }
}

/// Connections to a server's address that are made in one network, and lead to the server in
/// another.
#[derive(Debug, Clone)]
pub struct Line {
    /// Where they are made.
    pub from: Door,
    /// Where the server is.
    pub to: Door,
    /// Its address, in both.
    pub address: SocketAddr,
}

struct Shared {
    seed: u64,
    watch: Arc<dyn Watch>,
    is_storm: AtomicBool,
    has_ended: AtomicBool,
    connections: AtomicU64,
    broken: Mutex<BTreeMap<How, u64>>,
}

/// See the module. Dropping it takes no new connections; those that there are stay.
pub struct Cutter {
    shared: Arc<Shared>,
    accepting: Option<thread::JoinHandle<()>>,
}

impl std::fmt::Debug for Cutter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cutter").field("seed", &self.shared.seed).finish_non_exhaustive()
    }
}

impl Cutter {
    /// One for all these lines. It is calm.
    ///
    /// # Panics
    /// If an address is taken.
    pub fn start(seed: u64, lines: Vec<Line>, watch: Arc<dyn Watch>) -> Cutter {
        let listen = |line: Line| {
            let listener = line.from.within(|| TcpListener::bind(line.address)).unwrap();
            listener.set_nonblocking(true).unwrap();
            (listener, line)
        };
        let listening: Vec<_> = lines.into_iter().map(listen).collect();
        let shared = Arc::new(Shared {
            seed,
            watch,
            is_storm: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            broken: Mutex::default(),
        });
        let accepting = shared.clone();
        let accepting = Some(thread::spawn(move || accept(&accepting, &listening)));
        Cutter { shared, accepting }
    }

    /// Begins to break connections, or stops to.
    pub fn storm(&self, is_storm: bool) {
        self.shared.is_storm.store(is_storm, Ordering::Relaxed);
    }

    /// How many connections broke so.
    pub fn broken(&self) -> BTreeMap<How, u64> {
        self.shared.broken.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many connections there were.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Cutter {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Relaxed);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

fn accept(shared: &Arc<Shared>, listening: &[(TcpListener, Line)]) {
    let look = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    while !shared.has_ended.load(Ordering::Relaxed) {
        let sockets = listening.iter().map(|(listener, _)| listener);
        let mut waiting: Vec<_> = sockets.map(|one| PollFd::new(one, PollFlags::IN)).collect();
        poll(&mut waiting, Some(&look)).unwrap();
        for (listener, line) in listening {
            let Ok((stream, _)) = listener.accept() else { continue };
            let number = shared.connections.fetch_add(1, Ordering::Relaxed);
            let (shared, line) = (shared.clone(), line.clone());
            thread::spawn(move || {
                // Whose server is not there has his connection closed.
                let _ = relay(shared, number, stream, &line);
            });
        }
    }
}

/// Passes on what comes on a connection, both ways, until it ends.
fn relay(shared: Arc<Shared>, number: u64, dialled: TcpStream, line: &Line) -> io::Result<()> {
    line.to.enter();
    let server = TcpStream::connect_timeout(&line.address, DIAL)?;
    for stream in [&dialled, &server] {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        set_socket_linger(stream, Some(Duration::ZERO))?;
    }
    let plan = Plan::of(shared.seed, number);
    let (is_over, is_silent) = (AtomicBool::new(false), AtomicBool::new(false));
    let relay = Arc::new(Relay { shared, number, plan, dialled, server, is_over, is_silent });
    let other = relay.clone();
    thread::spawn(move || other.pass(Way::Back));
    relay.pass(Way::There);
    Ok(())
}

/// One connection.
struct Relay {
    shared: Arc<Shared>,
    number: u64,
    plan: Plan,
    dialled: TcpStream,
    server: TcpStream,
    is_over: AtomicBool,
    /// Nothing arrives either way any more.
    is_silent: AtomicBool,
}

impl Relay {
    fn saw(&self, way: Way, bytes: &[u8], arrive: bool) {
        self.shared.watch.saw(self.number, way, bytes, arrive);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Ends both connections with a reset.
    fn reset(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        for stream in [&self.dialled, &self.server] {
            // One that has ended already is as good.
            if connect_unspec(stream).is_err() {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }

    /// One way, on a thread of its own.
    fn pass(&self, way: Way) {
        let (mut from, mut to) = match way {
            Way::There => (&self.dialled, &self.server),
            Way::Back => (&self.server, &self.dialled),
        };
        let mut piece = vec![0; PIECE_BYTES];
        let (mut passed, mut since) = (0, None);
        loop {
            let read = match from.read(&mut piece) {
                Ok(0) => {
                    let _ = to.shutdown(Shutdown::Write);
                    break;
                }
                Ok(read) => read,
                Err(_) => return self.reset(),
            };
            let bytes = piece.get(..read).unwrap_or_default();
            if self.is_silent.load(Ordering::Relaxed) {
                self.saw(way, bytes, false);
                self.wait_over(self.plan.pause + FINISH);
                return;
            }
            let place = self.place(way, read as u64, &mut passed, &mut since);
            let (arrives, lost) = bytes.split_at(place.unwrap_or(read as u64) as usize);
            // Before an answer to it can be seen.
            self.saw(way, arrives, true);
            if to.write_all(arrives).is_err() {
                return self.reset();
            }
            if place.is_some() {
                self.saw(way, lost, false);
                return self.strike(way, from, to);
            }
        }
        // The one thread that is left still has to be ended by somebody.
        if self.is_over.swap(true, Ordering::Relaxed) {
            self.reset();
        }
    }

    /// Where in this many bytes that have come the connection breaks, if it does.
    fn place(
        &self,
        way: Way,
        read: u64,
        passed: &mut u64,
        since: &mut Option<Instant>,
    ) -> Option<u64> {
        if way != self.plan.way || !self.shared.is_storm.load(Ordering::Relaxed) {
            return None;
        }
        let begun = *since.get_or_insert_with(Instant::now);
        let left = self.plan.after_bytes.saturating_sub(*passed);
        *passed += read;
        let left = if begun.elapsed() > self.plan.life {
            left.min(self.plan.place % (read + 1))
        } else {
            left
        };
        (left < read).then_some(left)
    }

    /// Breaks the connection.
    fn strike(&self, way: Way, mut from: &TcpStream, to: &TcpStream) {
        match self.plan.how {
            How::Reset => {}
            How::Finished => {
                let _ = to.shutdown(Shutdown::Write);
                self.wait_over(FINISH);
            }
            How::Stalled => self.wait_over(self.plan.pause),
            How::Silent => {
                self.is_silent.store(true, Ordering::Relaxed);
                self.wait_over(self.plan.pause);
            }
            How::Lost => {
                let _ = from.set_read_timeout(Some(LOOK));
                let (since, mut piece) = (Instant::now(), vec![0; PIECE_BYTES]);
                while since.elapsed() < self.plan.pause && !self.is_over() {
                    match from.read(&mut piece) {
                        Ok(0) => break,
                        Ok(read) => self.saw(way, piece.get(..read).unwrap_or_default(), false),
                        Err(_) => {}
                    }
                }
            }
        }
        self.shared.watch.broke(self.number);
        let mut broken = self.shared.broken.lock().unwrap_or_else(PoisonError::into_inner);
        *broken.entry(self.plan.how).or_default() += 1;
        drop(broken);
        self.reset();
    }

    /// Until the connection is over, or so long.
    fn wait_over(&self, most: Duration) {
        let since = Instant::now();
        while since.elapsed() < most && !self.is_over() {
            thread::sleep(LOOK);
        }
    }
}

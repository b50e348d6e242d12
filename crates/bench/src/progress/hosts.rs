//! What ranks of other hosts have done, for the root, which shows it: beside MPI, whose calls a
//! second thread may not make while the first one measures, and beside the measuring loop.
//!
//! 1. Before anything is measured the root opens a socket and tells all where it is, with a
//!    token of this run.
//! 2. On each other host one rank's thread, which looks at the counts there in any case (rates
//!    over time), sends the root a datagram after each look. It never waits: what cannot be sent
//!    at once is not sent.
//! 3. The root's thread takes what has come when it looks itself. Of each sender the last
//!    message counts, while it is fresh and of the same phase.
//!
//! Where no datagram comes through, the root knows its own host, and says so. What comes is
//! shown and nothing else: results are gathered by MPI.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::comm::Communicator;
use crate::error::Result;

/// Who has said nothing for so long is not seen any more: looks are four times a second.
const FRESH: Duration = Duration::from_secs(3);
/// Addresses of the root that are tried.
const ADDRESSES_MAX: usize = 8;
/// Messages that are taken at one look.
const TAKEN_MAX: usize = 4096;
/// Bytes of the token, and of a message with it: then words of 64 bits.
const TOKEN: usize = 16;
const WORDS: usize = 8;
const MESSAGE: usize = TOKEN + 8 * WORDS;

/// What some ranks have done in a phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Told {
    /// Which phase, counted from the first.
    pub(super) stage: u64,
    /// The sender.
    pub(super) rank: u64,
    /// How many ranks it speaks of.
    pub(super) ranks: u64,
    /// Operations of all of them.
    pub(super) done: u64,
    /// How many have done all that they will do.
    pub(super) over: u64,
    /// The counts of the slowest and of the fastest of them.
    pub(super) slowest: u64,
    pub(super) fastest: u64,
}

impl Told {
    fn put(&self, token: &[u8; TOKEN], number: u64) -> Vec<u8> {
        let Self { stage, rank, ranks, done, over, slowest, fastest } = *self;
        let words = [number, stage, rank, ranks, done, over, slowest, fastest];
        token.iter().copied().chain(words.into_iter().flat_map(u64::to_le_bytes)).collect()
    }

    /// The message with its number, if it is one of this run.
    fn take(bytes: &[u8], token: &[u8; TOKEN]) -> Option<(u64, Self)> {
        let rest = bytes.strip_prefix(token.as_slice()).filter(|_| bytes.len() == MESSAGE)?;
        let mut words =
            rest.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
        let mut next = || words.next().unwrap_or_default();
        let number = next();
        let told = Self {
            stage: next(),
            rank: next(),
            ranks: next(),
            done: next(),
            over: next(),
            slowest: next(),
            fastest: next(),
        };
        (told.over <= told.ranks && told.slowest <= told.fastest).then_some((number, told))
    }
}

/// The way from other hosts to the root.
#[derive(Debug)]
pub(super) struct Hosts {
    socket: UdpSocket,
    token: [u8; TOKEN],
    /// Where the root may be reached; nowhere at the root itself.
    to: Vec<SocketAddr>,
    number: AtomicU64,
    /// The last message of each sender: its number, and when it came.
    last: Mutex<BTreeMap<u64, (u64, Instant, Told)>>,
}

impl Hosts {
    /// Opens it, all ranks together; nothing where it cannot be or nobody needs it: all see
    /// each other.
    pub(super) fn meet(comm: &dyn Communicator) -> Option<Self> {
        // Either all ranks find this or none.
        if (0..comm.size()).all(|rank| comm.done(rank).is_some()) {
            return None;
        }
        // Who fails here is told when something is to be done.
        Self::open(comm).ok().flatten()
    }

    fn open(comm: &dyn Communicator) -> Result<Option<Self>> {
        let mine = if comm.is_root() { Self::listen() } else { None };
        let said = mine.as_ref().map(Self::invitation).unwrap_or_default();
        let said = comm.broadcast(said.as_bytes())?;
        if comm.is_root() {
            return Ok(mine);
        }
        Ok(Self::invited(&String::from_utf8_lossy(&said)))
    }

    fn listen() -> Option<Self> {
        let mut token = [0; TOKEN];
        let flags = rustix::rand::GetRandomFlags::empty();
        let whole = rustix::rand::getrandom(&mut token, flags).ok()? == TOKEN;
        whole.then(|| Self::bound(token, Vec::new()))?
    }

    fn bound(token: [u8; TOKEN], to: Vec<SocketAddr>) -> Option<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        socket.set_nonblocking(true).ok()?;
        let (number, last) = (AtomicU64::new(0), Mutex::default());
        Some(Self { socket, token, to, number, last })
    }

    /// The token and the addresses, as words.
    fn invitation(&self) -> String {
        let token: String = self.token.iter().map(|byte| format!("{byte:02x}")).collect();
        let port = self.socket.local_addr().map_or(0, |address| address.port());
        let table = fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
        let all = own_addresses(&table).into_iter().map(|address| format!(" {address}:{port}"));
        token + &all.collect::<String>()
    }

    fn invited(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let hex = words.next().filter(|hex| hex.len() == 2 * TOKEN && hex.is_ascii())?;
        let mut token = [0; TOKEN];
        for (at, byte) in token.iter_mut().enumerate() {
            *byte = u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()?;
        }
        let to: Vec<SocketAddr> =
            words.take(ADDRESSES_MAX).filter_map(|word| word.parse().ok()).collect();
        if to.is_empty() { None } else { Self::bound(token, to) }
    }

    /// Tells the root, if this is somebody else, and does not wait.
    pub(super) fn tell(&self, told: &Told) {
        let number = self.number.fetch_add(1, Ordering::Relaxed) + 1;
        let message = told.put(&self.token, number);
        for to in &self.to {
            // It is told again soon.
            let _ = self.socket.send_to(&message, to);
        }
    }

    /// What the others have said of this phase.
    pub(super) fn told(&self, comm: &dyn Communicator, stage: u64, now: Instant) -> Vec<Told> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = [0; MESSAGE + 1];
        for _ in 0..TAKEN_MAX {
            let Ok((count, _)) = self.socket.recv_from(&mut bytes) else { break };
            let found = bytes.get(..count).and_then(|bytes| Told::take(bytes, &self.token));
            // Whom the root sees itself would count twice.
            let unseen = |told: &Told| {
                let rank = usize::try_from(told.rank).ok();
                rank.is_some_and(|rank| rank < comm.size() && comm.done(rank).is_none())
            };
            let Some((number, told)) = found.filter(|(_, told)| unseen(told)) else { continue };
            // It comes once by each way, and maybe later than one that was sent after it.
            let newer = last.get(&told.rank).is_none_or(|(before, ..)| *before < number);
            if newer {
                last.insert(told.rank, (number, now, told));
            }
        }
        let fresh = last.values().filter(|(_, came, _)| now.duration_since(*came) < FRESH);
        fresh.map(|(.., told)| *told).filter(|told| told.stage == stage).collect()
    }
}

/// The host's own addresses in the kernel's table of routes; those that only the host itself
/// reaches if there are no others.
fn own_addresses(table: &str) -> Vec<Ipv4Addr> {
    let mut all: Vec<Ipv4Addr> = Vec::new();
    let mut before = None;
    for line in table.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            before = address.parse::<Ipv4Addr>().ok();
        } else if line == "/32 host LOCAL"
            && let Some(address) = before.filter(|one| !all.contains(one))
        {
            all.push(address);
        }
    }
    let (here, mut there): (Vec<Ipv4Addr>, Vec<Ipv4Addr>) =
        all.into_iter().partition(|one| IpAddr::from(*one).is_loopback());
    if there.is_empty() {
        there = here;
    }
    there.truncate(ADDRESSES_MAX);
    there
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    /// Ranks that see themselves alone.
    struct Apart(AtomicU64, usize);

    impl Communicator for Apart {
        fn rank(&self) -> usize {
            0
        }
        fn size(&self) -> usize {
            self.1
        }
        fn barrier(&self) -> Result<()> {
            Ok(())
        }
        fn all_gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
            Ok(vec![mine.to_vec(); self.1])
        }
        fn is_stopped(&self) -> bool {
            false
        }
        fn abort(&self, _: &str) {}
        fn done(&self, rank: usize) -> Option<&AtomicU64> {
            (rank == 0).then_some(&self.0)
        }
    }

    fn told(rank: u64, done: u64) -> Told {
        Told { stage: 3, rank, ranks: 2, done, over: 1, slowest: 1, fastest: done }
    }

    /// Waits for datagrams on loopback, which may need a moment.
    fn comes(root: &Hosts, comm: &Apart, wanted: &[Told]) {
        let end = Instant::now() + Duration::from_secs(60);
        while root.told(comm, 3, Instant::now()) != wanted {
            assert!(Instant::now() < end, "{wanted:?} does not come");
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_others_have_done_comes_to_the_root() {
        let comm = Apart(AtomicU64::new(0), 5);
        let root = Hosts::meet(&comm).unwrap();
        let port = root.socket.local_addr().unwrap().port();
        let there = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let [two, four] = [2, 4].map(|_| Hosts::bound(root.token, vec![there, there]).unwrap());
        two.tell(&told(2, 10));
        four.tell(&told(4, 7));
        comes(&root, &comm, &[told(2, 10), told(4, 7)]);
        two.tell(&told(2, 30));
        comes(&root, &comm, &[told(2, 30), told(4, 7)]);
        assert_eq!(root.told(&comm, 4, Instant::now()), [], "of another phase");
        let later = Instant::now() + FRESH;
        assert_eq!(root.told(&comm, 3, later), [], "they have fallen silent");

        // What others send, what is late, of nobody, of one that the root sees itself.
        let strange = Hosts::bound([7; TOKEN], vec![there]).unwrap();
        strange.tell(&told(2, 99));
        for bytes in [Vec::new(), root.token.to_vec(), told(2, 99).put(&root.token, 1)] {
            strange.socket.send_to(&bytes, there).unwrap();
        }
        strange
            .socket
            .send_to(&[told(2, 99).put(&root.token, 99), vec![0]].concat(), there)
            .unwrap();
        let wrong = Told { over: 3, ..told(2, 99) };
        for told in [wrong, told(5, 99), told(u64::MAX, 99), told(0, 99)] {
            two.tell(&told);
        }
        four.tell(&told(4, 8));
        comes(&root, &comm, &[told(2, 30), told(4, 8)]);
    }

    #[test]
    fn an_invitation_is_understood_or_refused() {
        let root = Hosts::listen().unwrap();
        let text = root.invitation();
        let guest = Hosts::invited(&text).unwrap();
        assert_eq!(guest.token, root.token);
        let port = root.socket.local_addr().unwrap().port();
        assert!(!guest.to.is_empty() && guest.to.iter().all(|to| to.port() == port), "{text}");
        let token = "00".repeat(TOKEN);
        for text in
            ["", "x", &token, &format!("{token} x"), &format!("zz{} 1.2.3.4:5", &token[2..])]
        {
            assert!(Hosts::invited(text).is_none(), "{text}");
        }
        let many = " 1.2.3.4:5".repeat(99);
        assert_eq!(Hosts::invited(&(token + &many)).unwrap().to.len(), ADDRESSES_MAX);
    }

    #[test]
    fn addresses_are_those_that_others_reach() {
        let table = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n\
                     |-- 127.0.0.1\n  /32 host LOCAL\n  |-- 10.1.2.0\n  /24 link UNICAST\n\
                     |-- 10.1.2.3\n  /32 host LOCAL\n|-- 10.1.2.255\n /32 link BROADCAST\nLocal:\n\
                     |-- 10.1.2.3\n  /32 host LOCAL\n";
        assert_eq!(own_addresses(table), [Ipv4Addr::new(10, 1, 2, 3)]);
        let alone = "|-- 127.0.0.1\n/32 host LOCAL\n";
        assert_eq!(own_addresses(alone), [Ipv4Addr::LOCALHOST]);
        assert_eq!(own_addresses(""), [Ipv4Addr::LOCALHOST; 0]);
    }
}

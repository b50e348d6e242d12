//! Shared memory between processes of one host: what a connection is made of instead of a socket.
//!
//! A server that listens at an address is met by others of its host at a unix socket that is named
//! after it ([`meeting`]), where it hands out memory with two rings ([`ring`]), one each way. From
//! then on the socket carries nothing; that it is closed tells the other that its peer is gone,
//! however that died. A reader looks at its ring for a moment, and then sleeps until its bell (an
//! eventfd) is rung, which the writer does only for one who sleeps. All else (messages, who is
//! told what when a connection breaks, what travels together, what is refused) is the same as over
//! TCP, because it is the same code: this is a stream of bytes like a socket's.

mod mapping;
mod meeting;
mod ring;

use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::tcp::Ways;
use mapping::Mapping;
pub use meeting::{Listener, dial, welcome};
use ring::{Reader, Sleeper, Waiter, Writer};

/// Most connections over shared memory that a process takes, for each takes 4 MiB; whoever comes
/// then is met over TCP.
pub const SHM_CONNECTIONS_MAX: usize = 128;

/// Files that each of them keeps open: the socket and two bells.
pub(crate) const SHM_DESCRIPTORS: usize = 3;

/// Looks whether somebody shares memory with this process who listens at an address, and leaves again.
///
/// # Errors
/// Why nobody does.
pub fn meet(ways: &Ways, at: SocketAddr) -> io::Result<()> {
    reach(ways, at).map(drop)
}

/// A connection to whoever listens at an address of this host.
///
/// # Errors
/// There is none; `Unsupported` if none is wanted.
pub(crate) fn reach(ways: &Ways, at: SocketAddr) -> io::Result<Stream> {
    dial(folder(ways)?, at)
}

/// Listens in this way, too, at an address.
///
/// # Errors
/// Somebody does already; `Unsupported` if nobody is to.
pub(crate) fn listen(ways: &Ways, at: SocketAddr) -> io::Result<Listener> {
    Listener::bind(folder(ways)?, at)
}

fn folder(ways: &Ways) -> io::Result<&Path> {
    let none = || io::Error::new(io::ErrorKind::Unsupported, "no memory is to be shared here");
    ways.folder.as_deref().ok_or_else(none)
}

/// Whoever writes looks at least this often whether the peer is still there.
const LOOK: Duration = Duration::from_secs(1);

/// One end of a connection.
#[derive(Debug)]
pub struct Stream {
    /// Closed with the process of the other end.
    socket: UnixStream,
    /// Rung when something has come.
    bell: OwnedFd,
    peers_bell: OwnedFd,
    /// Locked for no longer than it takes to read what is there.
    reader: Mutex<Reader>,
    sleeper: Sleeper,
    /// So many look at the ring, so that no bell has to be rung.
    lookers: AtomicUsize,
    writer: Mutex<Outward>,
    waiter: Waiter,
    /// Here, or there as whoever wrote has found.
    closed: AtomicBool,
}

/// What is behind the lock of who writes.
#[derive(Debug)]
struct Outward {
    writer: Writer,
    /// Then it was looked whether anybody is there still.
    looked: Instant,
}

/// Which end: of who listens, or of who came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Listens,
    Came,
}

/// What a sleep was ended by.
enum Woken {
    Rung,
    Gone,
    InVain,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream {
    fn new(
        end: End,
        socket: UnixStream,
        mapping: Mapping,
        [bell, peers_bell]: [OwnedFd; 2],
    ) -> Stream {
        let (mapping, read, written) = match end {
            End::Listens => (Arc::new(mapping), 0, 1),
            End::Came => (Arc::new(mapping), 1, 0),
        };
        let writer = Writer::new(&mapping, written);
        let reader = Reader::new(&mapping, read);
        Stream {
            socket,
            bell,
            peers_bell,
            sleeper: reader.sleeper(),
            reader: Mutex::new(reader),
            lookers: AtomicUsize::new(0),
            waiter: writer.waiter(),
            writer: Mutex::new(Outward { writer, looked: Instant::now() }),
            closed: AtomicBool::new(false),
        }
    }

    /// Reads what is there now; nothing, if there is nothing.
    ///
    /// # Errors
    /// `InvalidData` if the peer says nonsense.
    pub fn try_read(&self, bytes: &mut [u8]) -> io::Result<Option<usize>> {
        Ok(Some(lock(&self.reader).read(bytes)?).filter(|count| *count > 0))
    }

    /// Bytes that can be read now.
    ///
    /// # Errors
    /// As [`Stream::try_read`].
    pub fn there(&self) -> io::Result<usize> {
        lock(&self.reader).there()
    }

    /// Reads, and sleeps until there is something; zero bytes at the end.
    ///
    /// # Errors
    /// As [`Stream::try_read`]; `WouldBlock` if there was nothing for so long.
    pub fn read(&self, bytes: &mut [u8], limit: Duration) -> io::Result<usize> {
        loop {
            let count = lock(&self.reader).read(bytes)?;
            if count > 0 || self.closed.load(Ordering::Relaxed) {
                return Ok(count);
            }
            match self.sleep_if_empty(limit)? {
                Woken::Rung => {}
                // What it has written before is there.
                Woken::Gone => return lock(&self.reader).read(bytes),
                Woken::InVain => {
                    return match lock(&self.reader).read(bytes)? {
                        0 => Err(io::ErrorKind::WouldBlock.into()),
                        count => Ok(count),
                    };
                }
            }
        }
    }

    /// Sleeps until there may be something to read, but no longer than this; whether it has ended,
    /// so that nothing more will come than is there.
    ///
    /// # Errors
    /// As [`Stream::try_read`].
    pub fn wait(&self, limit: Duration) -> io::Result<bool> {
        let ended = || self.closed.load(Ordering::Relaxed);
        if ended() {
            return Ok(true);
        }
        self.sleeper.falls_asleep();
        self.leave_it_to_lookers();
        Ok(matches!(self.sleep_if_told(limit)?, Woken::Gone) || ended())
    }

    /// Who is about to sleep need not be woken as long as somebody looks, and each bell would have its
    /// processor for nothing. Whoever looks last says that the reader sleeps, and looks once more.
    fn leave_it_to_lookers(&self) {
        if self.lookers.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.sleeper.is_awake();
        // Either the last of them is seen to have gone, or what he says of this comes after it: see
        // `end_looking`.
        fence(Ordering::SeqCst);
        if self.lookers.load(Ordering::Relaxed) == 0 {
            self.sleeper.falls_asleep();
        }
    }

    /// This thread looks at the ring from now on, again and again: no bell has to be rung.
    pub fn begin_looking(&self) {
        self.lookers.fetch_add(1, Ordering::Relaxed);
        self.sleeper.is_awake();
    }

    /// It does not any more, and has to look once more after this: of what has come until now nobody
    /// was told.
    pub fn end_looking(&self) {
        // After all that others have shown who looked until now.
        if self.lookers.fetch_sub(1, Ordering::AcqRel) == 1 {
            fence(Ordering::SeqCst);
            // As if the reader fell asleep only now. If it is awake its bell is rung in vain.
            self.sleeper.falls_asleep();
        }
    }

    /// Wakes the thread that sleeps here.
    pub fn wake_reader(&self) {
        // It fails only if it was rung more often than can be counted.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    fn sleep_if_empty(&self, limit: Duration) -> io::Result<Woken> {
        self.sleeper.falls_asleep();
        self.sleep_if_told(limit)
    }

    /// Sleeps, if there is still nothing after it was told that this thread does, or that it need not
    /// be woken.
    fn sleep_if_told(&self, limit: Duration) -> io::Result<Woken> {
        let woken = if self.there()? == 0 { self.sleep(limit)? } else { Woken::Rung };
        self.sleeper.is_awake();
        Ok(woken)
    }

    fn sleep(&self, limit: Duration) -> io::Result<Woken> {
        let mut both =
            [PollFd::new(&self.bell, PollFlags::IN), PollFd::new(&self.socket, PollFlags::IN)];
        let limit = limit.try_into().ok();
        match poll(&mut both, limit.as_ref()) {
            Ok(0) => return Ok(Woken::InVain),
            Err(Errno::INTR) => return Ok(Woken::Rung),
            other => drop(other?),
        }
        let [bell, socket] = both.map(|one| !one.revents().is_empty());
        if bell {
            // Somebody else may have rung meanwhile, and that counts as well.
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        }
        Ok(if socket { Woken::Gone } else { Woken::Rung })
    }

    /// Writes some of these bytes; how many. Who may block waits for room, but no longer than this.
    ///
    /// # Errors
    /// `WouldBlock` if there is no room; `BrokenPipe` if it is closed, here or there; `InvalidData` if the
    /// peer says nonsense.
    pub fn write(&self, parts: &[IoSlice<'_>], blocking: Option<Duration>) -> io::Result<usize> {
        let mut slept = false;
        loop {
            if self.closed.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let mut outward = lock(&self.writer);
            let Outward { writer, looked } = &mut *outward;
            let count = writer.write(parts)?;
            let sleeps = count > 0 && writer.must_wake();
            if sleeps {
                // It fails only if it was rung more often than can be counted.
                let _ = rustix::io::write(&self.peers_bell, &1_u64.to_ne_bytes());
            }
            // Our reader sees it as well, unless it is kept by what it has read; so not each time that
            // the peer sleeps, which would be a system call for each message to whoever is asked rarely.
            if looked.elapsed() > LOOK {
                *looked = Instant::now();
                if self.is_left() {
                    self.closed.store(true, Ordering::Relaxed);
                    continue;
                }
            }
            if count > 0 {
                return Ok(count);
            }
            let limit = match blocking {
                Some(limit) if !slept => limit,
                _ => return Err(io::ErrorKind::WouldBlock.into()),
            };
            if writer.is_full()? {
                drop(outward);
                self.waiter.sleep(limit);
                slept = true;
            }
        }
    }

    /// Nothing more is written here. (Nor was it ever needed to say so and to read on; but who proves
    /// the other end has to.)
    pub fn finish(&self) {
        // The peer may have closed it before, which is as good.
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Whether the process of the other end has left it.
    pub fn is_left(&self) -> bool {
        // That it is left the kernel says without being asked for anything else.
        let mut socket = [PollFd::new(&self.socket, PollFlags::empty())];
        poll(&mut socket, Some(&rustix::event::Timespec::default())).is_ok_and(|count| count > 0)
    }

    /// Whether it was ended here, or was found to be.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Ends it at both ends: what is in the rings can still be read.
    pub fn shutdown(&self) {
        self.closed.store(true, Ordering::Relaxed);
        // The peer may have closed it before, which is as good.
        let _ = self.socket.shutdown(Shutdown::Both);
        self.waiter.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_secs(120);

    fn pair() -> (Stream, Stream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let listens = std::thread::spawn(move || welcome(ours).unwrap());
        let came = meeting::come(theirs).unwrap();
        (listens.join().unwrap(), came)
    }

    fn write(stream: &Stream, bytes: &[u8]) -> io::Result<usize> {
        stream.write(&[IoSlice::new(bytes)], None)
    }

    #[test]
    fn what_one_end_writes_wakes_the_other() {
        let (listens, came) = pair();
        let echo = std::thread::spawn(move || {
            let mut bytes = [0; 9];
            loop {
                match listens.read(&mut bytes, LONG).unwrap() {
                    0 => return,
                    count => assert_eq!(write(&listens, &bytes[..count]).unwrap(), count),
                }
            }
        });
        let mut bytes = [0; 9];
        for round in 0..2000_u32 {
            assert_eq!(write(&came, &round.to_ne_bytes()).unwrap(), 4);
            assert_eq!(came.read(&mut bytes, LONG).unwrap(), 4);
            assert_eq!(bytes[..4], round.to_ne_bytes());
        }
        assert!(came.try_read(&mut bytes).unwrap().is_none());
        let nothing = came.read(&mut bytes, Duration::from_millis(10)).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        drop(came);
        echo.join().unwrap();
    }

    #[test]
    fn who_falls_asleep_while_somebody_looks_is_not_woken_until_nobody_does() {
        let (listens, came) = pair();
        let must_wake = || lock(&came.writer).writer.must_wake();
        listens.begin_looking();
        listens.sleeper.falls_asleep();
        listens.leave_it_to_lookers();
        assert!(!must_wake(), "a bell for nothing");
        listens.end_looking();
        assert!(must_wake(), "nobody would come");
        // Nobody looks.
        listens.sleeper.falls_asleep();
        listens.leave_it_to_lookers();
        assert!(must_wake());
    }

    #[test]
    fn what_was_written_before_the_end_is_read_and_nothing_can_be_written_after_it() {
        let (listens, came) = pair();
        write(&came, b"last words").unwrap();
        drop(came);
        let mut bytes = [0; 20];
        assert_eq!(listens.read(&mut bytes, LONG).unwrap(), 10);
        assert_eq!(listens.read(&mut bytes, LONG).unwrap(), 0);
        listens.shutdown();
        assert_eq!(write(&listens, b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(listens.read(&mut bytes, LONG).unwrap(), 0);
    }

    #[test]
    fn who_waits_for_room_is_told_of_it_and_of_the_end() {
        let (listens, came) = pair();
        let listens = Arc::new(listens);
        let all = vec![3; ring::RING_BYTES];
        assert_eq!(write(&listens, &all).unwrap(), all.len());
        assert_eq!(write(&listens, b"x").unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let waits = || {
            let listens = listens.clone();
            std::thread::spawn(move || listens.write(&[IoSlice::new(b"more")], Some(LONG)))
        };
        let begun = Instant::now();
        let waiting = waits();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(came.read(&mut vec![0; all.len()], LONG).unwrap(), all.len());
        assert_eq!(waiting.join().unwrap().unwrap(), 4);
        while write(&listens, &all).is_ok() {}
        let waiting = waits();
        std::thread::sleep(Duration::from_millis(50));
        listens.shutdown();
        assert_eq!(waiting.join().unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert!(begun.elapsed() < LONG, "nobody slept until he looked by himself");
    }
}

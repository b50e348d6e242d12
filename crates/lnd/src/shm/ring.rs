//! A stream of bytes from one process to another: a ring in memory that both have mapped, with one
//! who writes and one who reads.
//!
//! Two numbers count the bytes that were ever written and ever read. Each end keeps its own, and
//! shows it to the other in the shared memory; what it sees there of the other's is held against
//! its own before it is believed, so that a peer that writes nonsense ends its own connection and
//! can do nothing else.
//!
//! **Order.** The writer copies bytes in and then shows its number with `Release`; the reader sees
//! it with `Acquire`, and so the bytes. Likewise the reader has copied bytes out before it shows
//! that there is room. Sleeping is Dekker's way, so that nobody sleeps over what has come: the
//! reader says that it sleeps, and then looks once more; the writer shows its number, and then
//! looks whether the reader sleeps. Between the two steps each has a `SeqCst` fence, so that of two
//! who do so at the same time at least one sees the other. The writer that waits for room does it
//! the same way.
//!
//! The reader sleeps on what else may wake it (`stream.rs`), the writer, which is rare, on a futex
//! in the shared memory, and never for long, since nobody tells it of a peer that died.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

use rustix::thread::futex;
use sateen_types::{Copied, copied};

use super::mapping::Mapping;

/// Bytes that a ring holds: the largest request of a mount, and some beside it.
pub(super) const RING_BYTES: usize = 2 << 20;
/// Before the bytes of all rings: a page for their words.
const WORDS_BYTES: usize = 4096;
/// Each word has a line of the cache for itself, and its neighbour, which is fetched along.
const APART: usize = 128;
const WRITTEN: usize = 0;
const READER_SLEEPS: usize = APART;
const READ: usize = 2 * APART;
const WRITER_WAITS: usize = 3 * APART;
const WORDS_APART: usize = 4 * APART;
/// What two rings take, one each way.
pub(super) const BOTH_BYTES: usize = WORDS_BYTES + 2 * RING_BYTES;
/// A writer that waits is woken once there is so much room.
const ROOM_TOLD: u64 = RING_BYTES as u64 / 2;

/// One of the two rings.
#[derive(Debug, Clone)]
struct Ring {
    mapping: Arc<Mapping>,
    number: usize,
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Ring {
    fn word(&self, which: usize) -> usize {
        self.number * WORDS_APART + which
    }

    fn written(&self) -> &AtomicU64 {
        self.mapping.word64(self.word(WRITTEN))
    }

    fn read(&self) -> &AtomicU64 {
        self.mapping.word64(self.word(READ))
    }

    fn reader_sleeps(&self) -> &AtomicU32 {
        self.mapping.word32(self.word(READER_SLEEPS))
    }

    fn writer_waits(&self) -> &AtomicU32 {
        self.mapping.word32(self.word(WRITER_WAITS))
    }

    /// Where the byte with this number lies, and how many lie behind it before the ring's end.
    fn place(&self, count: u64) -> (usize, usize) {
        let at = (count % RING_BYTES as u64) as usize;
        (WORDS_BYTES + self.number * RING_BYTES + at, RING_BYTES - at)
    }
}

/// The end that writes.
#[derive(Debug)]
pub(super) struct Writer {
    ring: Ring,
    written: u64,
}

/// The end that reads.
#[derive(Debug)]
pub(super) struct Reader {
    ring: Ring,
    read: u64,
}

impl Writer {
    /// The end of the ring with this number, 0 or 1, which is new.
    pub(super) fn new(mapping: &Arc<Mapping>, number: usize) -> Writer {
        Writer { ring: Ring { mapping: mapping.clone(), number }, written: 0 }
    }

    fn room(&self) -> io::Result<usize> {
        let read = self.ring.read().load(Ordering::Acquire);
        match self.written.checked_sub(read) {
            Some(held) if held <= RING_BYTES as u64 => Ok(RING_BYTES - held as usize),
            _ => Err(wrong("the peer has read what was not written")),
        }
    }

    /// Writes of these bytes what there is room for; how many. The reader may sleep still.
    ///
    /// # Errors
    /// `InvalidData` if the peer says nonsense.
    pub(super) fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let room = self.room()?;
        let mut left = room;
        for part in parts {
            let mut bytes = part.get(..part.len().min(left)).unwrap_or_default();
            left -= bytes.len();
            while !bytes.is_empty() {
                let (at, behind) = self.ring.place(self.written);
                let (now, rest) = bytes.split_at(bytes.len().min(behind));
                self.ring.mapping.copy_in(at, now);
                self.written += now.len() as u64;
                bytes = rest;
            }
        }
        if left < room {
            copied(Copied::ShmOut, room - left);
            self.ring.written().store(self.written, Ordering::Release);
        }
        Ok(room - left)
    }

    /// Whether the reader sleeps, and has to be woken by whoever is told so here; after a write.
    pub(super) fn must_wake(&self) -> bool {
        fence(Ordering::SeqCst);
        let sleeps = self.ring.reader_sleeps();
        sleeps.load(Ordering::Relaxed) != 0 && sleeps.swap(0, Ordering::Relaxed) != 0
    }

    /// What waits for room, without this end in its hands.
    pub(super) fn waiter(&self) -> Waiter {
        Waiter(self.ring.clone())
    }

    /// Whether there is no room still, now that the reader knows who waits.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub(super) fn is_full(&self) -> io::Result<bool> {
        self.ring.writer_waits().store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        Ok(self.room()? == 0)
    }
}

/// Whoever waits for room.
#[derive(Debug)]
pub(super) struct Waiter(Ring);

impl Waiter {
    /// Sleeps until there may be room, but no longer than this.
    pub(super) fn sleep(&self, limit: Duration) {
        let limit = limit.try_into().ok();
        // Woken, out of time, or there was nothing to wait for: whoever waits looks himself.
        let _ = futex::wait(self.0.writer_waits(), futex::Flags::empty(), 1, limit.as_ref());
    }

    /// There may be room, or never will be again.
    pub(super) fn wake(&self) {
        self.0.writer_waits().store(0, Ordering::Relaxed);
        // It can fail only for what is no memory.
        let _ = futex::wake(self.0.writer_waits(), futex::Flags::empty(), 1);
    }
}

impl Reader {
    /// The end of the ring with this number, 0 or 1, which is new.
    pub(super) fn new(mapping: &Arc<Mapping>, number: usize) -> Reader {
        Reader { ring: Ring { mapping: mapping.clone(), number }, read: 0 }
    }

    /// Bytes that there are to read.
    ///
    /// # Errors
    /// `InvalidData` if the peer says nonsense.
    pub(super) fn there(&self) -> io::Result<usize> {
        let written = self.ring.written().load(Ordering::Acquire);
        match written.checked_sub(self.read) {
            Some(held) if held <= RING_BYTES as u64 => Ok(held as usize),
            _ => Err(wrong("the peer has written more than there is room for")),
        }
    }

    /// Reads what there is, into what there is room for; how many bytes.
    ///
    /// # Errors
    /// As [`Reader::there`].
    pub(super) fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let there = self.there()?;
        let count = there.min(bytes.len());
        if count == 0 {
            return Ok(0);
        }
        let mut left = bytes.get_mut(..count).unwrap_or_default();
        while !left.is_empty() {
            let (at, behind) = self.ring.place(self.read);
            let (now, rest) = left.split_at_mut(left.len().min(behind));
            self.ring.mapping.copy_out(at, now);
            self.read += now.len() as u64;
            left = rest;
        }
        copied(Copied::ShmIn, count);
        self.ring.read().store(self.read, Ordering::Release);
        fence(Ordering::SeqCst);
        let room = (RING_BYTES - (there - count)) as u64;
        if self.ring.writer_waits().load(Ordering::Relaxed) != 0 && room >= ROOM_TOLD {
            Waiter(self.ring.clone()).wake();
        }
        Ok(count)
    }

    /// Who tells the writer whether this end sleeps, without having it in its hands.
    pub(super) fn sleeper(&self) -> Sleeper {
        Sleeper(self.ring.clone())
    }
}

/// Whether the end that reads sleeps.
#[derive(Debug)]
pub(super) struct Sleeper(Ring);

impl Sleeper {
    /// It will, if it finds nothing now: it has to look once more after this.
    pub(super) fn falls_asleep(&self) {
        self.0.reader_sleeps().store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// It sleeps no more.
    pub(super) fn is_awake(&self) {
        self.0.reader_sleeps().store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::thread::{spawn, yield_now};

    use super::*;

    /// Both ends of a ring, which share nothing but the memory, and what another process could do
    /// to it.
    fn ring() -> (Writer, Reader, Mapping) {
        let (ours, file) = Mapping::make(BOTH_BYTES).unwrap();
        let [theirs, evil] = [(); 2].map(|()| Mapping::of(&file, BOTH_BYTES).unwrap());
        (Writer::new(&Arc::new(ours), 1), Reader::new(&Arc::new(theirs), 1), evil)
    }

    fn may_sleep(reader: &Reader) -> io::Result<bool> {
        reader.sleeper().falls_asleep();
        Ok(reader.there()? == 0)
    }

    fn write(writer: &mut Writer, bytes: &[u8]) -> usize {
        writer.write(&[IoSlice::new(bytes)]).unwrap()
    }

    /// The byte with this number of a stream that repeats nowhere near.
    fn byte(count: u64) -> u8 {
        (count.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
    }

    #[test]
    fn bytes_come_out_as_they_went_in_around_the_end_too() {
        let (mut writer, mut reader, _) = ring();
        let mut read = [0; 7];
        assert_eq!(reader.read(&mut read).unwrap(), 0);
        let parts = [IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(b"cde")];
        assert_eq!(writer.write(&parts).unwrap(), 5);
        assert_eq!(reader.read(&mut read).unwrap(), 5);
        assert_eq!(&read[..5], b"abcde");
        // So that the next lies across the end.
        let most = vec![1; RING_BYTES - 8];
        assert_eq!(write(&mut writer, &most), most.len());
        assert_eq!(reader.read(&mut vec![0; RING_BYTES]).unwrap(), most.len());
        assert_eq!(write(&mut writer, b"around"), 6);
        assert_eq!(reader.read(&mut read).unwrap(), 6);
        assert_eq!(&read[..6], b"around");
    }

    #[test]
    fn a_full_ring_takes_nothing_and_an_empty_one_all() {
        let (mut writer, mut reader, _) = ring();
        let much = vec![7; RING_BYTES + 100];
        assert_eq!(write(&mut writer, &much), RING_BYTES);
        assert_eq!(write(&mut writer, b"x"), 0);
        assert!(writer.is_full().unwrap());
        assert_eq!(reader.read(&mut [0; 3]).unwrap(), 3);
        assert!(!writer.is_full().unwrap());
        assert_eq!(write(&mut writer, b"abcdef"), 3);
        assert_eq!(reader.read(&mut vec![0; RING_BYTES * 2]).unwrap(), RING_BYTES);
        assert!((reader.there().unwrap() == 0));
        assert_eq!(write(&mut writer, &much), RING_BYTES);
    }

    #[test]
    fn who_sleeps_is_woken_once_and_who_does_not_is_not() {
        let (mut writer, mut reader, _) = ring();
        write(&mut writer, b"a");
        assert!(!writer.must_wake());
        assert!(!may_sleep(&reader).unwrap(), "something has come");
        reader.sleeper().is_awake();
        reader.read(&mut [0; 9]).unwrap();
        assert!(may_sleep(&reader).unwrap());
        write(&mut writer, b"b");
        assert!(writer.must_wake() && !writer.must_wake());
    }

    #[test]
    fn nonsense_of_the_peer_is_refused_and_our_own_numbers_are_not_taken_from_there() {
        let (mut writer, mut reader, evil) = ring();
        write(&mut writer, b"abc");
        let (written, read) = (WORDS_APART + WRITTEN, WORDS_APART + READ);
        for nonsense in [4 + RING_BYTES as u64, 1 << 40, u64::MAX] {
            evil.word64(written).store(nonsense, Ordering::SeqCst);
            assert!(reader.read(&mut [0; 9]).is_err() && reader.there().is_err());
        }
        evil.word64(written).store(3, Ordering::SeqCst);
        assert_eq!(reader.read(&mut [0; 9]).unwrap(), 3);
        evil.word64(written).store(2, Ordering::SeqCst);
        assert!(reader.read(&mut [0; 9]).is_err(), "less than was read");
        for nonsense in [4, u64::MAX] {
            evil.word64(read).store(nonsense, Ordering::SeqCst);
            assert!(writer.write(&[IoSlice::new(b"x")]).is_err() && writer.is_full().is_err());
        }
        // What we have written is not forgotten because somebody else says so.
        evil.word64(read).store(3, Ordering::SeqCst);
        evil.word64(written).store(0, Ordering::SeqCst);
        assert_eq!(write(&mut writer, b"d"), 1);
        assert_eq!(evil.word64(written).load(Ordering::SeqCst), 4);
    }

    /// Whatever a peer writes anywhere, and whenever: what we do ends, by an error or not, and what
    /// comes is bytes.
    #[test]
    fn a_peer_that_scribbles_breaks_nothing_but_the_stream() {
        const ROUNDS: u32 = 20_000;
        let (mut writer, mut reader, evil) = ring();
        let done = Arc::new(AtomicU32::new(0));
        let told = done.clone();
        let scribbling = spawn(move || {
            let mut state = 0x1234_5678_9abc_def1_u64;
            let mut chance = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state
            };
            while told.load(Ordering::Relaxed) == 0 {
                // Mostly what could be, or the ends would stop at once and for good.
                let range = [64, RING_BYTES as u64, 8 * RING_BYTES as u64, u64::MAX];
                let value = chance() % range[(chance() % 4) as usize];
                let word = [WRITTEN, READER_SLEEPS, READ, WRITER_WAITS][(chance() % 4) as usize];
                evil.word64(WORDS_APART + word).store(value, Ordering::Relaxed);
                evil.copy_in((chance() % (BOTH_BYTES as u64 - 64)) as usize, &[value as u8; 64]);
            }
        });
        let (mut held, mut refused) = (vec![0; 3 * RING_BYTES], 0);
        for round in 0..ROUNDS {
            let len = (round as usize * 7919) % 5000;
            refused += u32::from(writer.write(&[IoSlice::new(&held[..len])]).is_err());
            writer.must_wake();
            match reader.read(&mut held[..len]) {
                Ok(count) => assert!(count <= len),
                Err(_) => refused += 1,
            }
            // Each may have ended; another connection has ends of its own.
            if round % 16 == 0
                && may_sleep(&reader).unwrap_or(true)
                && !writer.is_full().is_ok_and(|full| full)
            {
                writer.waiter().sleep(Duration::from_micros(50));
                writer = Writer::new(&writer.ring.mapping, 1);
                reader = Reader::new(&reader.ring.mapping, 1);
            }
        }
        done.store(1, Ordering::Relaxed);
        scribbling.join().unwrap();
        assert!(refused > 0, "it was not noticed");
    }

    #[test]
    fn a_stream_is_whole_while_both_ends_are_at_it_and_nobody_sleeps_for_ever() {
        const TOTAL: u64 = 40 << 20;
        let (mut writer, mut reader, _) = ring();
        let wakes = Arc::new(AtomicU32::new(0));
        let rung = wakes.clone();
        let writing = spawn(move || {
            let (mut written, mut len) = (0, 1);
            while written < TOTAL {
                len = (len * 37 + 11) % 300_007;
                let end = (written + len).min(TOTAL);
                let piece: Vec<u8> = (written..end).map(byte).collect();
                let mut left = &piece[..];
                while !left.is_empty() {
                    let done = write(&mut writer, left);
                    left = &left[done..];
                    if writer.must_wake() {
                        rung.fetch_add(1, Ordering::SeqCst);
                        let _ = futex::wake(&rung, futex::Flags::PRIVATE, 1);
                    }
                    if done == 0 && writer.is_full().unwrap() {
                        // A wake-up that got lost would take all the time there is.
                        writer.waiter().sleep(Duration::from_secs(600));
                    }
                }
                written = end;
            }
        });
        let (mut read, mut buffer, mut len) = (0, vec![0; 70_001], 1);
        while read < TOTAL {
            len = (len * 31 + 7) % buffer.len();
            let count = reader.read(&mut buffer[..len.max(1)]).unwrap();
            for (at, found) in (read..).zip(&buffer[..count]) {
                assert_eq!(*found, byte(at), "byte {at}");
            }
            read += count as u64;
            if count == 0 {
                let before = wakes.load(Ordering::SeqCst);
                if may_sleep(&reader).unwrap() {
                    let _ = futex::wait(&wakes, futex::Flags::PRIVATE, before, None);
                }
                reader.sleeper().is_awake();
                yield_now();
            }
        }
        writing.join().unwrap();
        assert!((reader.there().unwrap() == 0));
    }
}

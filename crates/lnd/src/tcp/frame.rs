//! Messages as bytes on a stream: header, extensions and body in one piece, then the bulk. Each
//! thread keeps a few of the buffers that messages are made in.
//!
//! Nothing that comes in is believed: lengths are held against the protocol's limits before
//! anything is reserved, checksums before anything is delivered.

use std::cell::RefCell;
use std::io::{self, IoSlice, Read};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use sateen_types::Errno;
use sateen_wire::{Bulk, Front, HEADER_BYTES, Header, HeaderError, Kind, Message};

use super::budget::Held;
use super::stream::Stream;

/// A peer that stops in the middle of a message for so long is given up: what it had begun holds
/// memory that others wait for.
pub(super) const STALL: Duration = Duration::from_secs(10);
/// Whoever waits for a peer to take something looks at least this often whether it still does.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// What comes in of a message must come at this rate at least, beyond [`STALL`]: a byte now and
/// then would hold memory as a peer that stops does.
const BYTES_PER_S_MIN: u64 = 128 << 10;

/// The same for bulk that takes of what all together may hold: the largest has come, or is given
/// up, before those who wait for room lose their locks.
const HELD_BYTES_PER_S_MIN: u64 = 2 << 20;

/// The rest of a message that has begun.
struct Paced<R> {
    stream: R,
    since: Instant,
    bytes: u64,
    bytes_per_s_min: u64,
}

impl<R: Read> Paced<R> {
    fn new(stream: R, bytes_per_s_min: u64) -> Paced<R> {
        Paced { stream, since: Instant::now(), bytes: 0, bytes_per_s_min }
    }
}

impl<R: Read> Read for Paced<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let allowed = STALL + Duration::from_millis(self.bytes * 1000 / self.bytes_per_s_min);
        if self.since.elapsed() > allowed {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "a message comes too slowly"));
        }
        let read = self.stream.read(buffer)?;
        self.bytes += read as u64;
        Ok(read)
    }
}

/// Buffers that a thread keeps, and bytes of each: messages without their bulk are small.
const KEPT_MAX: usize = 4;
const KEPT_BYTES_MAX: usize = 1 << 10;

thread_local! {
    static KEPT: RefCell<Vec<Vec<u8>>> = RefCell::default();
}

/// A message on its way out.
#[derive(Debug)]
pub(super) struct Frame {
    head: Vec<u8>,
    bulk: Bytes,
    sent: usize,
}

impl Drop for Frame {
    fn drop(&mut self) {
        let head = core::mem::take(&mut self.head);
        if head.capacity() > KEPT_BYTES_MAX {
            return;
        }
        // A thread that ends keeps nothing any more.
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEPT_MAX {
                kept.push(head);
            }
        });
    }
}

impl Frame {
    /// The bytes of a message. A reader's buffer in it stays at home.
    pub(super) fn of(message: Message) -> Frame {
        let mut head = KEPT.with(|kept| kept.borrow_mut().pop()).unwrap_or_default();
        message.encode_into(&mut head);
        let bulk = match message.bulk {
            Bulk::Data(data) => data,
            Bulk::None | Bulk::Buffer(_) => Bytes::new(),
        };
        Frame { head, bulk, sent: 0 }
    }

    /// Bytes that are still to be sent.
    pub(super) fn left(&self) -> usize {
        self.head.len() + self.bulk.len() - self.sent
    }

    /// The bytes that are still to be sent: of the message, and of its bulk.
    pub(super) fn parts(&self) -> [IoSlice<'_>; 2] {
        let head = self.head.get(self.sent..).unwrap_or_default();
        let bulk = self.bulk.get(self.sent.saturating_sub(self.head.len())..);
        [IoSlice::new(head), IoSlice::new(bulk.unwrap_or_default())]
    }

    /// So many more bytes are sent, or all that are left. How many of them were another's.
    pub(super) fn advance(&mut self, bytes: usize) -> usize {
        let own = bytes.min(self.left());
        self.sent += own;
        bytes - own
    }

    /// Sends as much as is taken.
    ///
    /// # Errors
    /// The stream's; `WouldBlock` only if it must not block and takes nothing now.
    pub(super) fn send(&mut self, stream: &Stream, blocking: bool) -> io::Result<()> {
        while self.left() > 0 {
            let sent = stream.send(&self.parts(), blocking)?;
            self.advance(sent);
        }
        Ok(())
    }
}

/// A message that came in, and its bulk.
pub(super) struct Received {
    pub(super) message: Message,
    /// Bytes of bulk that follow on the stream.
    bulk_len: usize,
    bulk_crc: Option<u32>,
}

/// What came in.
#[allow(clippy::large_enum_variant, reason = "returned by value once per message, never stored")]
pub(super) enum Incoming {
    /// A message.
    Message(Received),
    /// One of another version, all of it: whoever sent it, or waits for it, is to be told.
    Refused(Refused),
}

/// A message that is not understood, because it is of another version.
pub(super) struct Refused {
    pub(super) kind: Kind,
    pub(super) header: Header,
    pub(super) why: HeaderError,
    pub(super) errno: Errno,
}

/// Nothing came, for now: [`STALL`] ends no connection that is idle.
fn is_pause(kind: io::ErrorKind) -> bool {
    use io::ErrorKind as K;
    matches!(kind, K::Interrupted | K::WouldBlock)
}

fn invalid(what: impl core::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}

impl Refused {
    /// The rest of it, which nobody looks at: the next message begins behind it.
    fn read(
        stream: &mut impl Read,
        front: &Front,
        (why, errno): (HeaderError, Errno),
    ) -> io::Result<Incoming> {
        let Front { kind, header, .. } = *front;
        if kind == Kind::Request && !matches!(why, HeaderError::Version(_)) {
            // Its slot would wait for this number, and the sender go on to the next.
            return Err(invalid(why));
        }
        let bulk = u64::from(front.bulk_len());
        if io::copy(&mut stream.take(bulk), &mut io::sink())? < bulk {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Incoming::Refused(Refused { kind, header, why, errno }))
    }
}

impl Received {
    /// Whether its bulk is yet to come.
    pub(super) fn has_bulk(&self) -> bool {
        self.bulk_len > 0
    }

    /// Bytes of it.
    pub(super) fn bulk_len(&self) -> usize {
        self.bulk_len
    }

    /// Reads everything but the bulk; `None` at the end of the stream. `scratch` is reused.
    ///
    /// # Errors
    /// The socket's; `InvalidData` for what is no message.
    pub(super) fn read(
        stream: &mut impl Read,
        scratch: &mut Vec<u8>,
    ) -> io::Result<Option<Incoming>> {
        let mut header = [0; HEADER_BYTES];
        let first = loop {
            match stream.read(&mut header) {
                // Between messages a peer may be silent for as long as it likes.
                Err(error) if is_pause(error.kind()) => {}
                other => break other?,
            }
        };
        if first == 0 {
            return Ok(None);
        }
        let mut stream = Paced::new(stream, BYTES_PER_S_MIN);
        stream.read_exact(header.get_mut(first..).unwrap_or_default())?;
        let front = Front::decode(&header).map_err(invalid)?;
        let rest = front.rest_len();
        scratch.clear();
        let read = stream.by_ref().take(rest as u64).read_to_end(scratch)?;
        if read < rest {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match front.with(scratch) {
            Ok((message, bulk)) => {
                let (bulk_len, bulk_crc) = (bulk.len as usize, bulk.crc);
                Ok(Some(Incoming::Message(Received { message, bulk_len, bulk_crc })))
            }
            Err(why) => match why.refusal() {
                Some(errno) => Refused::read(&mut stream, &front, (why, errno)).map(Some),
                None => Err(invalid(why)),
            },
        }
    }

    /// Reads the bulk, behind what `buffer` holds if there is one, or into what there is `room`
    /// for.
    ///
    /// # Errors
    /// As [`Received::read`].
    pub(super) fn read_bulk(
        mut self,
        stream: &mut impl Read,
        buffer: Option<BytesMut>,
        room: impl FnOnce(usize) -> Option<Held>,
    ) -> io::Result<Message> {
        self.message.bulk = match buffer {
            Some(mut buffer) => {
                let at = buffer.len();
                buffer.resize(at + self.bulk_len, 0);
                let into = buffer.get_mut(at..).unwrap_or_default();
                Paced::new(stream, BYTES_PER_S_MIN).read_exact(into)?;
                self.check(into)?;
                Bulk::Buffer(buffer)
            }
            None if self.bulk_len == 0 => Bulk::None,
            None => {
                let mut held = room(self.bulk_len).ok_or(io::ErrorKind::NotConnected)?;
                let stream = Paced::new(stream, HELD_BYTES_PER_S_MIN);
                let mut bulk = stream.take(self.bulk_len as u64);
                let read = bulk.read_to_end(held.data())?;
                if read < self.bulk_len {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                self.check(held.as_ref())?;
                Bulk::Data(held.into_bytes())
            }
        };
        Ok(self.message)
    }

    fn check(&self, bulk: &[u8]) -> io::Result<()> {
        let wrong = self.bulk_crc.is_some_and(|crc| crc != sateen_wire::disk::crc32c(bulk));
        if wrong { Err(invalid("the bulk's checksum does not match")) } else { Ok(()) }
    }
}

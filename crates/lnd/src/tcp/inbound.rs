//! What comes in on a connection: bytes read ahead, of which messages are made.

use std::io::{BufRead, BufReader};
use std::sync::Arc;

use sateen_polling::Polling;
use sateen_wire::{Front, Message};

use super::polled::Polled;
use super::stream::Stream;

/// Bytes read ahead of small messages: of a socket so many that one system call brings those that wait,
/// and one with a small file whole. What is read ahead of a bulk is copied twice.
const READ_BUFFER_BYTES: usize = 8 << 10;

/// The same of shared memory, where reading costs no more than the copy: what is read ahead of a bulk
/// is copied twice.
const SHM_READ_BUFFER_BYTES: usize = 4 << 10;

/// For whoever reads next; one at a time.
#[derive(Debug)]
pub(super) struct Inbound {
    pub(super) stream: BufReader<Polled>,
    /// The memory of messages without their bulk.
    pub(super) scratch: Vec<u8>,
    /// It was said that some are refused.
    pub(super) said: bool,
    /// Answers are gathered.
    pub(super) gathers: bool,
    /// A message comes in parts: it is left to the connection's own reader, which waits for the rest.
    is_left: bool,
}

impl Inbound {
    pub(super) fn new(stream: Arc<Stream>, polling: Polling) -> Inbound {
        let bytes = if stream.is_shm() { SHM_READ_BUFFER_BYTES } else { READ_BUFFER_BYTES };
        let stream = BufReader::with_capacity(bytes, Polled::new(stream, polling));
        Inbound { stream, scratch: Vec::new(), said: false, gathers: false, is_left: false }
    }

    /// The connection's own reader finds nothing to read. (If what is there is nonsense, it finds that.)
    pub(super) fn is_dry(&mut self) -> bool {
        self.is_left = false;
        self.stream.buffer().is_empty() && self.stream.get_ref().stream().there() == Ok(0)
    }

    /// The header of the message that is next, if all of it is there: whoever takes it waits for
    /// nothing. What is not whole is left to the connection's own reader.
    pub(super) fn whole(&mut self) -> Option<Front> {
        if self.is_left || self.stream.buffer().is_empty() && self.there() == 0 {
            return None;
        }
        // What is there is read without waiting; what is nonsense, or the end, is the reader's.
        let front = self.stream.fill_buf().ok().and_then(|bytes| {
            let front = Front::decode(bytes.first_chunk()?).ok()?;
            Some((front, Message::claimed_len(bytes)?))
        });
        let has = self.stream.buffer().len() as u64 + self.there();
        match front {
            Some((front, len)) if has >= len => Some(front),
            _ => {
                self.leave();
                None
            }
        }
    }

    /// What is next is for the connection's own reader, which is woken.
    pub(super) fn leave(&mut self) {
        self.is_left = true;
        self.stream.get_ref().stream().wake_reader();
    }

    /// Whether anything is there that somebody has to see to.
    pub(super) fn has_more(&self) -> bool {
        !self.stream.buffer().is_empty() || self.there() > 0
    }

    /// What is nonsense counts as nothing: the reader finds it.
    fn there(&self) -> u64 {
        self.stream.get_ref().stream().there().unwrap_or(0)
    }
}

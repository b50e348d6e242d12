//! What comes in on a connection: bytes read ahead, of which messages are made.

use std::io::{BufRead, BufReader};
use std::sync::Arc;

use sateen_polling::Polling;
use sateen_wire::Message;

use super::polled::Polled;
use super::stream::Stream;

/// Bytes read ahead of small messages.
const READ_BUFFER_BYTES: usize = 64 << 10;

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
        let stream = BufReader::with_capacity(READ_BUFFER_BYTES, Polled::new(stream, polling));
        Inbound { stream, scratch: Vec::new(), said: false, gathers: false, is_left: false }
    }

    /// The connection's own reader finds nothing to read. (If what is there is nonsense, it finds that.)
    pub(super) fn is_dry(&mut self) -> bool {
        self.is_left = false;
        self.stream.buffer().is_empty() && self.stream.get_ref().stream().there() == Ok(0)
    }

    /// Whether somebody else could take a message without waiting for anything.
    pub(super) fn is_whole(&mut self) -> bool {
        let there = |stream: &BufReader<Polled>| stream.get_ref().stream().there();
        if self.is_left || self.stream.buffer().is_empty() && there(&self.stream) == Ok(0) {
            return false;
        }
        // What is there is read without waiting; what is nonsense, or the end, is the reader's.
        let claimed = self.stream.fill_buf().ok().and_then(Message::claimed_len);
        let has = self.stream.buffer().len() as u64 + there(&self.stream).unwrap_or(0);
        let whole = claimed.is_some_and(|claimed| has >= claimed);
        if !whole {
            self.is_left = true;
            self.stream.get_ref().stream().wake_reader();
        }
        whole
    }
}

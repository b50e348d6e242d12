//! A stream of which the reader looks for a moment whether something comes before it sleeps.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Instant;

use sateen_polling::Polling;

use super::stream::Stream;

/// Reads from a stream, as [`Polling`] says.
#[derive(Debug)]
pub(super) struct Polled {
    stream: Arc<Stream>,
    polling: Polling,
}

impl Polled {
    pub(super) fn new(stream: Arc<Stream>, polling: Polling) -> Polled {
        Polled { stream, polling }
    }

    /// What is read from.
    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }
}

impl Read for Polled {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let idle_since = Instant::now();
        let mut came = None;
        let Polled { stream, polling } = self;
        if polling.is_on() {
            let found = polling.look(idle_since, || {
                came = stream.try_read(buffer)?;
                Ok(came.is_some())
            })?;
            debug_assert_eq!(found, came.is_some());
        }
        if let Some(count) = came {
            return Ok(count);
        }
        let read = self.stream.read(buffer);
        self.polling.waited(idle_since.elapsed());
        read
    }
}

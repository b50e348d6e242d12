//! Answers over shared memory are read by whoever waits for them.
//!
//! A connection's own reader is a thread that sleeps until its bell is rung, and wakes then whoever
//! has asked: two wake-ups for each answer, of which each takes a processor that has halted 25 us.
//! The threads that serve the kernel's queues look for more to do before they sleep; they look here
//! as well, and take an answer as soon as it is in the memory, on the thread that then completes
//! the program's request. As long as anybody looks nobody is told that the reader sleeps, so that
//! the server rings no bell. Whoever stops looking says so again, and sees to what has come
//! meanwhile (`shm.rs`, `shm/ring.rs`).
//!
//! Only messages of which all is there are taken so: what comes in parts is left to the reader, who
//! may wait for the rest.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use sateen_polling::Polling;

use super::connection::Connection;
use super::frame::STALL;
use super::stream::Stream;
use super::{Shared, Tcp};

/// Looks for the answers of a network; of one thread.
pub struct Looker {
    shared: Arc<Shared>,
    /// The connections over shared memory that were opened here, as of this turn of theirs.
    all: Vec<(Arc<Connection>, Arc<Stream>)>,
    turn: u64,
    /// Which of them are looked at.
    at: Vec<usize>,
}

impl std::fmt::Debug for Looker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Looker").field("connections", &self.all.len()).finish_non_exhaustive()
    }
}

impl Tcp {
    /// Somebody who is going to look for answers.
    pub fn looker(&self) -> Looker {
        self.shared.lookers.fetch_add(1, Ordering::Relaxed);
        Looker { shared: self.shared.clone(), all: Vec::new(), turn: 0, at: Vec::new() }
    }
}

impl Looker {
    /// Begins to look where answers are awaited. False if that is nowhere.
    pub fn begin(&mut self) -> bool {
        let turn = self.shared.shm_turn.load(Ordering::Acquire);
        if core::mem::replace(&mut self.turn, turn) != turn {
            let routes = self.shared.routes();
            let open = routes.dialled.values();
            let all = open.filter_map(|one| Some((one.clone(), one.looked_at()?)));
            self.all = all.collect();
        }
        for (at, (connection, stream)) in self.all.iter().enumerate() {
            if connection.is_asked()
                && let Some(memory) = stream.shm()
            {
                memory.begin_looking();
                self.at.push(at);
            }
        }
        !self.at.is_empty()
    }

    /// Takes what has come. Whether anything had.
    pub fn look(&self) -> bool {
        let mut found = false;
        for (connection, _) in self.at.iter().filter_map(|at| self.all.get(*at)) {
            while connection.look(&self.shared) {
                found = true;
            }
        }
        found
    }

    /// Looks no more. Whether anything has come meanwhile.
    pub fn end(&mut self) -> bool {
        let mut found = false;
        while let Some(at) = self.at.pop() {
            let Some((connection, stream)) = self.all.get(at) else { continue };
            if let Some(memory) = stream.shm() {
                memory.end_looking();
            }
            // Also what was read ahead: nobody else knows of it.
            while connection.look(&self.shared) {
                found = true;
            }
        }
        found
    }
}

impl Drop for Looker {
    fn drop(&mut self) {
        self.end();
        self.shared.lookers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    /// The reader of a connection waits until there may be something to read; whether it has ended.
    /// It looks for that first, unless others do.
    pub(super) fn wait(&self, stream: &Stream, polling: &mut Polling) -> io::Result<bool> {
        let Some(memory) = stream.shm() else { return Ok(true) };
        let looks = self.lookers.load(Ordering::Relaxed) == 0;
        let idle_since = Instant::now();
        if looks
            && polling.is_on()
            && polling.look(idle_since, || Ok(memory.there()? > 0 || memory.is_closed()))?
        {
            return Ok(false);
        }
        let ended = memory.wait(STALL);
        if looks {
            polling.waited(idle_since.elapsed());
        }
        ended
    }
}

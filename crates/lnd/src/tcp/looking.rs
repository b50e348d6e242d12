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
//! Only answers of which all is there are taken so, and only if what they bring has its buffer: who
//! takes them waits for nothing. All else is left to the reader. Nor does anybody wait for one who
//! is at an answer that takes long: before he begins he looks no more at all others.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use sateen_polling::Polling;

use super::connection::{Connection, Looked};
use super::frame::STALL;
use super::stream::Stream;
use super::{Shared, Tcp};

/// So many answers are taken of a connection at the end of looking, before it is left to its reader:
/// as fast as they may come, a queue has other work.
const LAST_MAX: usize = 8;

/// A connection that is looked at.
type At = (Arc<Connection>, Arc<Stream>);

/// Looks for the answers of a network; of one thread.
pub struct Looker {
    shared: Arc<Shared>,
    /// The connections over shared memory that were opened here, as of this turn of theirs.
    all: Vec<(Weak<Connection>, Weak<Stream>)>,
    turn: u64,
    /// Which of them are looked at.
    at: Vec<At>,
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

/// Looks at a connection no more. If something has come of which nobody was told, the reader is.
fn leave((_, stream): &At) {
    let Some(memory) = stream.shm() else { return };
    memory.end_looking();
    if memory.there().is_ok_and(|there| there > 0) {
        memory.wake_reader();
    }
}

impl Looker {
    /// Begins to look where answers are awaited. False if that is nowhere.
    pub fn begin(&mut self) -> bool {
        let turn = self.shared.shm_turn.load(Ordering::Acquire);
        if core::mem::replace(&mut self.turn, turn) != turn {
            let routes = self.shared.routes();
            let open = routes.dialled.values();
            let all = open
                .filter_map(|one| Some((Arc::downgrade(one), Arc::downgrade(&one.looked_at()?))));
            self.all = all.collect();
        }
        for (connection, stream) in &self.all {
            let (Some(connection), Some(stream)) = (connection.upgrade(), stream.upgrade()) else {
                continue;
            };
            if connection.is_asked()
                && let Some(memory) = stream.shm()
            {
                memory.begin_looking();
                self.at.push((connection, stream));
            }
        }
        !self.at.is_empty()
    }

    /// Takes an answer of each that has one. Whether any had.
    pub fn look(&mut self) -> bool {
        for at in 0..self.at.len() {
            if matches!(self.look_at(at), Looked::Took | Looked::TookOneOfSome) {
                return true;
            }
        }
        false
    }

    /// Takes an answer of one, which is the only one that is looked at from then on: to deliver it may
    /// take long, and whoever is to read what the others say has to be told so.
    fn look_at(&mut self, at: usize) -> Looked {
        let Some((connection, _)) = self.at.get(at) else { return Looked::Nothing };
        let connection = connection.clone();
        let all = &mut self.at;
        connection.look(&self.shared, || {
            all.swap(0, at);
            all.drain(1..).for_each(|other| leave(&other));
        })
    }

    /// Looks no more. Whether anything has come meanwhile.
    pub fn end(&mut self) -> bool {
        let all = core::mem::take(&mut self.at);
        for (_, stream) in &all {
            if let Some(memory) = stream.shm() {
                memory.end_looking();
            }
        }
        let mut found = false;
        for (connection, stream) in &all {
            // Also what was read ahead: nobody else knows of it.
            let mut left = true;
            for _ in 0..LAST_MAX {
                let looked = connection.look(&self.shared, || ());
                found |= matches!(looked, Looked::Took | Looked::TookOneOfSome);
                match looked {
                    Looked::TookOneOfSome => continue,
                    Looked::Took | Looked::Nothing => left = false,
                    // Whoever it is may be asleep, or have looked before this came.
                    Looked::Busy => left = stream.there() != Ok(0),
                }
                break;
            }
            if left {
                stream.wake_reader();
            }
        }
        // Its memory, for the next time.
        self.at = all;
        self.at.clear();
        found
    }
}

impl Drop for Looker {
    fn drop(&mut self) {
        self.at.drain(..).for_each(|at| leave(&at));
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
            return Ok(memory.is_closed());
        }
        let ended = memory.wait(STALL);
        if looks {
            polling.waited(idle_since.elapsed());
        }
        ended
    }
}

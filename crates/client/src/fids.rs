//! FIDs for new files, out of sequences that an MDT granted to this client.

use std::sync::Mutex;

use sateen_types::{Fid, SEQ_OBJECTS_MAX, Seq};

use crate::sync::{Waiters, lock};

#[derive(Debug, Default)]
struct State {
    seq: Option<Seq>,
    next: u32,
    asking: bool,
    /// How often everything was forgotten: a sequence asked for before is not ours any more.
    life: u64,
    waiters: Waiters,
}

/// The sequence in use.
#[derive(Debug, Default)]
pub(crate) struct Fids {
    state: Mutex<State>,
}

/// What to do for a FID.
pub(crate) enum Draw {
    /// Here it is.
    Fid(Fid),
    /// Ask the MDT for a sequence, and put it into [`Fids::refill`] with this number.
    Ask(u64),
}

impl Fids {
    /// A FID that was never used; waits while another task asks for a sequence.
    pub(crate) async fn draw(&self) -> Draw {
        crate::sync::until(
            &self.state,
            |s| &mut s.waiters,
            |s| {
                if let Some(seq) = s.seq
                    && s.next <= SEQ_OBJECTS_MAX
                {
                    s.next += 1;
                    return Some(Draw::Fid(Fid::new(seq, s.next - 1)));
                }
                if s.asking {
                    return None;
                }
                s.asking = true;
                Some(Draw::Ask(s.life))
            },
        )
        .await
    }

    /// What the MDT answered; `None` if it failed, and the next one asks again.
    pub(crate) fn refill(&self, life: u64, seq: Option<Seq>) {
        let woken = {
            let mut state = lock(&self.state);
            state.asking = false;
            if seq.is_some() && life == state.life {
                state.seq = seq;
                state.next = 1;
            }
            state.waiters.take()
        };
        woken.wake();
    }

    /// The sequence is no longer ours: the MDT restarted, or has thrown us out.
    pub(crate) fn forget(&self) {
        let mut state = lock(&self.state);
        state.seq = None;
        state.life += 1;
    }
}

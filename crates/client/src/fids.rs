//! FIDs for new files, out of sequences that an MDT granted to this client.
//!
//! A sequence is granted once it is durable, and that may take as long as the MDT's disk likes.
//! So the next one is asked for while there are FIDs left, and no create waits for it but the
//! first.

use std::collections::VecDeque;
use std::sync::Mutex;

use sateen_types::{Fid, SEQ_OBJECTS_MAX, Seq, seq};

use crate::sync::{Waiters, lock};

/// With fewer FIDs left than these the next sequence is asked for: at 50 000 creates a second
/// there is a third of a second for the answer.
const LEFT_MIN: u32 = 1 << 14;
/// If it is refused it is asked for again after so many: who is refused now may be for long.
const REFUSED_PAUSE: u32 = 1 << 10;

/// Sequences remembered: more than requests under way can have their FIDs from.
const GRANTED_MAX: usize = 8;

#[derive(Debug, Default)]
struct State {
    seq: Option<Seq>,
    next: u32,
    /// The sequence after that.
    spare: Option<Seq>,
    /// It is not asked for before this FID of the sequence in use.
    pause: u32,
    asking: bool,
    /// How often everything was forgotten: a sequence asked for before is not ours any more.
    life: u64,
    /// The last sequences that were granted, from the moment that the answer came. A request may be
    /// under way with a FID of one that is used up.
    granted: VecDeque<Seq>,
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
    /// Here it is; and ask for a sequence as with `Ask`, which nobody waits for.
    Last(Fid, u64),
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
                if s.next > SEQ_OBJECTS_MAX
                    && let Some(spare) = s.spare.take()
                {
                    (s.seq, s.next, s.pause) = (Some(spare), 1, 0);
                }
                if let Some(seq) = s.seq
                    && s.next <= SEQ_OBJECTS_MAX
                {
                    let fid = Fid::new(seq, s.next);
                    s.next += 1;
                    let enough = SEQ_OBJECTS_MAX - fid.oid >= LEFT_MIN;
                    if enough || s.asking || s.spare.is_some() || fid.oid < s.pause {
                        return Some(Draw::Fid(fid));
                    }
                    s.asking = true;
                    return Some(Draw::Last(fid, s.life));
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

    /// What the MDT answered; `None` if it failed: the next one who needs it, or a later one ahead
    /// of need, asks again.
    pub(crate) fn refill(&self, life: u64, seq: Option<Seq>) {
        let woken = {
            let mut state = lock(&self.state);
            state.asking = false;
            let is_left = state.seq.is_some() && state.next <= SEQ_OBJECTS_MAX;
            match seq {
                _ if life != state.life => {}
                None => state.pause = state.next.saturating_add(REFUSED_PAUSE),
                Some(_) if is_left => state.spare = seq,
                Some(_) => (state.seq, state.next, state.pause) = (seq, 1, 0),
            }
            state.waiters.take()
        };
        woken.wake();
    }

    /// An MDT has granted this one, of which whoever asked has yet to hear.
    pub(crate) fn was_granted(&self, seq: Seq) {
        let mut state = lock(&self.state);
        if !state.granted.contains(&seq) {
            state.granted.push_back(seq);
        }
        if state.granted.len() > GRANTED_MAX {
            state.granted.pop_front();
        }
    }

    /// Those that were granted last.
    pub(crate) fn granted(&self) -> Vec<Seq> {
        lock(&self.state).granted.iter().copied().collect()
    }

    /// The sequence is no longer ours: an MDT restarted, or has thrown us out, or all have.
    pub(crate) fn forget(&self, mdt: Option<u32>) {
        let mut state = lock(&self.state);
        (state.seq, state.spare) = (None, None);
        state.granted.retain(|granted| mdt.is_some_and(|mdt| mdt != seq::mdt_of(*granted)));
        state.life += 1;
    }
}

#[cfg(test)]
mod tests {
    use core::pin::pin;
    use core::task::{Context, Poll, Waker};

    use super::*;

    fn draw(fids: &Fids) -> Draw {
        match pin!(fids.draw()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(draw) => draw,
            Poll::Pending => panic!("nobody asks: there is nothing to wait for"),
        }
    }

    /// Draws up to the FID that says that there are few left; its number for the answer.
    fn draw_to_last(fids: &Fids, seq: u64) -> u64 {
        for oid in 1.. {
            match draw(fids) {
                Draw::Fid(fid) => assert_eq!((fid.seq, fid.oid), (Seq(seq), oid)),
                Draw::Last(fid, life) => {
                    assert_eq!((fid.seq, fid.oid), (Seq(seq), oid));
                    assert_eq!(SEQ_OBJECTS_MAX - oid, LEFT_MIN - 1);
                    return life;
                }
                Draw::Ask(_) => panic!("{oid} of {seq} is waited for"),
            }
        }
        unreachable!()
    }

    fn first(fids: &Fids, seq: u64) {
        let Draw::Ask(life) = draw(fids) else { panic!("there is no sequence") };
        fids.refill(life, Some(Seq(seq)));
    }

    #[test]
    fn nobody_waits_for_the_next_sequence() {
        let fids = Fids::default();
        first(&fids, 7);
        let life = draw_to_last(&fids, 7);
        for _ in 1..LEFT_MIN / 2 {
            assert!(matches!(draw(&fids), Draw::Fid(fid) if fid.seq == Seq(7)), "it is asked once");
        }
        fids.refill(life, Some(Seq(8)));
        for _ in LEFT_MIN / 2..=LEFT_MIN - 1 {
            assert!(matches!(draw(&fids), Draw::Fid(fid) if fid.seq == Seq(7)), "none is left out");
        }
        draw_to_last(&fids, 8);
    }

    #[test]
    fn a_sequence_that_was_not_granted_is_asked_for_again() {
        let fids = Fids::default();
        first(&fids, 7);
        let life = draw_to_last(&fids, 7);
        fids.refill(life, None);
        for _ in 0..REFUSED_PAUSE {
            assert!(matches!(draw(&fids), Draw::Fid(_)), "not by everybody");
        }
        let Draw::Last(_, life) = draw(&fids) else { panic!("it may be granted now") };
        fids.refill(life, None);
        // Whoever needs it asks at once, and of the next one nobody is kept from asking.
        let needed = (0..LEFT_MIN).find_map(|_| match draw(&fids) {
            Draw::Ask(life) => Some(life),
            Draw::Last(_, life) => {
                fids.refill(life, None);
                None
            }
            Draw::Fid(_) => None,
        });
        fids.refill(needed.unwrap(), Some(Seq(8)));
        draw_to_last(&fids, 8);
    }

    #[test]
    fn what_was_granted_before_all_was_forgotten_is_not_used() {
        let fids = Fids::default();
        first(&fids, 7);
        let life = draw_to_last(&fids, 7);
        fids.refill(life, Some(Seq(8)));
        fids.forget(None);
        let Draw::Ask(later) = draw(&fids) else { panic!("the spare is forgotten, too") };
        fids.refill(life, Some(Seq(9)));
        fids.refill(later, Some(Seq(10)));
        assert!(matches!(draw(&fids), Draw::Fid(fid) if fid.seq == Seq(10)));
    }
}

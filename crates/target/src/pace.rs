//! How soon a target wants to be told that time went by, and how old a change may get before it is
//! made durable.
//!
//! Whoever waits for a change asks for its group commit, and has it at once; so does whoever waits
//! for anything else, and is answered by an event. Ticks are for what no event brings: deadlines,
//! repeated questions, looks at who is silent. A target that has nothing of the kind rests, and
//! costs its process nothing.

/// Time between ticks while something may go on with each: 5 ms.
pub const TICK_NS: u64 = 5_000_000;
/// Time between ticks while something is repeated if it is not answered: 50 ms.
const SLOW_NS: u64 = 50_000_000;
/// Time between ticks of targets that rest: 1 s.
pub const REST_NS: u64 = 1_000_000_000;

/// How old a change may get that nobody waits for, if nothing else is set: 50 ms. It bounds what a
/// crash can take from those who did not ask for durability.
pub const COMMIT_AGE_NS: u64 = 50_000_000;

/// What ticks are for, at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Pace {
    /// Something goes on with a tick, or with a group commit that it did not ask for: each tick
    /// starts one.
    #[default]
    Soon,
    /// Something is asked again in a while.
    Slow,
    /// Nothing but to look now and then who is silent.
    Rest,
}

impl Pace {
    /// Time until the next tick.
    pub const fn ns(self) -> u64 {
        match self {
            Pace::Soon => TICK_NS,
            Pace::Slow => SLOW_NS,
            Pace::Rest => REST_NS,
        }
    }
}

//! What is still to happen, in order of time, and of what happens at one time in the order in which
//! it was put here.
//!
//! Nearly all events are targets that are told that time goes by, and looks whether a program has a
//! turn: most of them find nothing to do. Each of both kinds comes again after always the same time,
//! so that the next is behind all others of its kind: they stand in lines, and cost no search.

use std::collections::{BTreeMap, VecDeque};

use sateen_target::TICK_NS;
use sateen_types::Endpoint;

use crate::world::{Event, WORK_NS};

/// When, and which of those of that time: as one number, which costs one comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(u128);

impl Key {
    const NEVER: Key = Key(u128::MAX);

    fn of(at_ns: u64, number: u64) -> Key {
        Key(u128::from(at_ns) << 64 | u128::from(number))
    }

    const fn at_ns(self) -> u64 {
        (self.0 >> 64) as u64
    }
}

/// See the module.
pub(crate) struct Queue {
    ticks: VecDeque<(Key, Endpoint, u64)>,
    work: VecDeque<Key>,
    others: BTreeMap<Key, Event>,
    /// The first of each.
    first_tick: Key,
    first_work: Key,
    first_other: Key,
    next: u64,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue {
            ticks: VecDeque::new(),
            work: VecDeque::new(),
            others: BTreeMap::new(),
            first_tick: Key::NEVER,
            first_work: Key::NEVER,
            first_other: Key::NEVER,
            next: 0,
        }
    }
}

impl Queue {
    /// Something is to happen after so many nanoseconds from now.
    pub(crate) fn after(&mut self, now_ns: u64, ns: u64, event: Event) {
        let key = Key::of(now_ns + ns, self.next);
        self.next += 1;
        match event {
            Event::Tick(target, boots) if ns == TICK_NS => {
                self.first_tick = self.first_tick.min(key);
                self.ticks.push_back((key, target, boots));
            }
            Event::Work if ns == WORK_NS => {
                self.first_work = self.first_work.min(key);
                self.work.push_back(key);
            }
            other => {
                self.first_other = self.first_other.min(key);
                self.others.insert(key, other);
            }
        }
    }

    /// What happens next, and when.
    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        if self.first_tick < self.first_work && self.first_tick < self.first_other {
            let (key, target, boots) = self.ticks.pop_front()?;
            self.first_tick = self.ticks.front().map_or(Key::NEVER, |(key, ..)| *key);
            return Some((key.at_ns(), Event::Tick(target, boots)));
        }
        if self.first_work < self.first_other {
            let key = self.work.pop_front()?;
            self.first_work = self.work.front().copied().unwrap_or(Key::NEVER);
            return Some((key.at_ns(), Event::Work));
        }
        let (key, event) = self.others.pop_first()?;
        self.finds_first();
        Some((key.at_ns(), event))
    }

    /// The next tick, and when, if nothing else comes before it.
    pub(crate) fn next_tick(&self) -> Option<(u64, Endpoint, u64)> {
        let is_next = self.first_tick < self.first_work && self.first_tick < self.first_other;
        let (key, target, boots) = self.ticks.front().filter(|_| is_next)?;
        Some((key.at_ns(), *target, *boots))
    }

    /// It happens, and is followed by another.
    pub(crate) fn tick_again(&mut self) {
        if let Some((key, target, boots)) = self.ticks.pop_front() {
            let again = Key::of(key.at_ns() + TICK_NS, self.next);
            self.next += 1;
            self.ticks.push_back((again, target, boots));
            self.first_tick = self.ticks.front().map_or(Key::NEVER, |(key, ..)| *key);
        }
    }

    fn finds_first(&mut self) {
        self.first_other = self.others.first_key_value().map_or(Key::NEVER, |(key, _)| *key);
    }

    /// All but what comes again and again, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, &Event)> {
        self.others.iter()
    }

    /// The same, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&Key, &mut Event)> {
        self.others.iter_mut()
    }

    /// One of them.
    pub(crate) fn get(&self, key: &Key) -> Option<&Event> {
        self.others.get(key)
    }

    /// One of them does not happen.
    pub(crate) fn remove(&mut self, key: &Key) {
        self.others.remove(key);
        self.finds_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_happens_in_order_whichever_line_it_stands_in() {
        let mut queue = Queue::default();
        let mut random = crate::random::Random::new(7);
        let (mut due, mut number, mut now_ns) = (Vec::new(), 0, 0);
        for _ in 0..3000 {
            let (ns, event) = match random.below(5) {
                0 => (TICK_NS, Event::Tick(Endpoint::Mgs, number)),
                // One that a target has slept through.
                1 => (random.below(9 * TICK_NS), Event::Tick(Endpoint::Mgs, number)),
                2 => (WORK_NS, Event::Work),
                3 => (random.below(3) * WORK_NS, Event::Calm),
                _ => {
                    let first = due.iter().min().copied();
                    let popped = queue.pop().map(|(at, event)| (at, kind(&event)));
                    assert_eq!(popped, first.map(|(at, _, kind)| (at, kind)));
                    due.retain(|one| Some(*one) != first);
                    now_ns = first.map_or(now_ns, |(at, ..)| at);
                    continue;
                }
            };
            due.push((now_ns + ns, number, kind(&event)));
            queue.after(now_ns, ns, event);
            number += 1;
        }
        assert!(due.len() > 500);
    }

    fn kind(event: &Event) -> u64 {
        match event {
            Event::Tick(_, number) => *number,
            Event::Work => u64::MAX,
            _ => u64::MAX - 1,
        }
    }
}

//! The order of operations on one object.
//!
//! Reads and writes of an object run side by side. But several clients may share a lock to read and
//! write: where a write overlaps a write or a read the later of the two waits, so that each write is
//! done as a whole, and each read sees all of it or nothing. What cuts or removes runs alone, and a sync waits for the
//! writes that came before it. Each operation takes its place on all its objects at once when it arrives, and waits
//! for the earlier ones that it must not overtake. Places are taken in one order on all
//! objects, so that no two operations can wait for each other.

use std::collections::BTreeMap;

use sateen_types::ObjectId;
use sateen_wire::spans::{self, Span, Spans};
use smallvec::SmallVec;

/// What an operation does to its objects, as far as others must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Looks at bytes or sizes.
    Read,
    /// Adds or overwrites bytes.
    Write,
    /// Makes durable what was written before it.
    Sync,
    /// Cuts or removes.
    Exclusive,
}

impl Class {
    /// Whether an operation of class `later` has to wait for one of class `self` that came
    /// before it.
    fn holds_up(self, later: Class) -> bool {
        match (self, later) {
            (Class::Exclusive, _) | (_, Class::Exclusive) => true,
            (Class::Write, Class::Sync) => true,
            (Class::Read | Class::Write | Class::Sync, _) => false,
        }
    }
}

/// Which bytes of the object: offset and length. Of no account but for reads and writes; what only
/// looks at sizes and holes has none.
pub(crate) type Range = (u64, u64);

/// All ranges of an operation: one entry, so that who waits for it waits once, and it leaves at once.
#[derive(Debug, Clone)]
pub(crate) enum Ranges {
    One(Range),
    /// They rise, and none overlaps another.
    Many(Spans),
}

impl Ranges {
    fn iter(&self) -> impl Iterator<Item = Range> + '_ {
        let (one, many) = match self {
            Ranges::One(range) => (Some(*range), &[][..]),
            Ranges::Many(spans) => (None, &spans[..]),
        };
        one.into_iter().chain(many.iter().map(Span::range))
    }

    fn overlap(&self, other: &Ranges) -> bool {
        match (self, other) {
            (Ranges::One(one), Ranges::One(other)) => spans::overlap(*one, *other),
            _ => spans::meet(self.iter(), other.iter()),
        }
    }
}

/// Operations on one object, those that run and those that wait.
#[derive(Debug, Default)]
struct Places {
    taken: SmallVec<[(u64, Class, Ranges); 1]>,
    /// How many of them are not reads: with none, a read need not look at the others.
    others: usize,
}

/// All objects that something is being done to.
#[derive(Debug, Default)]
pub(crate) struct Order {
    objects: BTreeMap<ObjectId, Places>,
}

impl Order {
    /// Operation `id` takes its place on an object; `before` is told of each operation that
    /// it has to wait for.
    pub(crate) fn enter(
        &mut self,
        object: ObjectId,
        id: u64,
        (class, ranges): (Class, Ranges),
        mut before: impl FnMut(u64),
    ) {
        let places = self.objects.entry(object).or_default();
        let is_read = class == Class::Read;
        if !is_read || places.others > 0 {
            for (earlier, theirs, of) in &places.taken {
                let both = match (*theirs, class) {
                    (Class::Write, Class::Write | Class::Read) | (Class::Read, Class::Write) => {
                        ranges.overlap(of)
                    }
                    _ => false,
                };
                if both || theirs.holds_up(class) {
                    before(*earlier);
                }
            }
        }
        places.taken.push((id, class, ranges));
        places.others += usize::from(!is_read);
    }

    /// The operation has ended.
    pub(crate) fn leave(&mut self, object: ObjectId, id: u64) {
        let Some(places) = self.objects.get_mut(&object) else { return };
        if let Some(at) = places.taken.iter().position(|(theirs, ..)| *theirs == id) {
            let (_, class, _) = places.taken.swap_remove(at);
            places.others -= usize::from(class != Class::Read);
        }
        if places.taken.is_empty() {
            self.objects.remove(&object);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_whom() {
        let mut order = Order::default();
        let object = ObjectId::default();
        let mut enter = |id, class| {
            let mut before = Vec::new();
            let ranges = Ranges::One((id, 1));
            order.enter(object, id, (class, ranges), |other| before.push(other));
            before
        };
        assert_eq!(enter(1, Class::Write), []);
        assert_eq!(enter(2, Class::Read), []);
        assert_eq!(enter(3, Class::Sync), [1]);
        assert_eq!(enter(4, Class::Write), []);
        assert_eq!(enter(5, Class::Exclusive), [1, 2, 3, 4]);
        assert_eq!(enter(6, Class::Read), [5]);
        assert_eq!(enter(7, Class::Sync), [1, 4, 5]);
        for id in 1..=7 {
            assert_eq!(order.objects.len(), 1);
            order.leave(object, id);
        }
        assert!(order.objects.is_empty());
    }

    #[test]
    fn writes_that_overlap_are_done_one_after_the_other() {
        let mut order = Order::default();
        let object = ObjectId::default();
        let mut enter = |id, class, range| {
            let mut before = Vec::new();
            order.enter(object, id, (class, Ranges::One(range)), |other| before.push(other));
            before
        };
        assert_eq!(enter(1, Class::Write, (0, 100)), []);
        assert_eq!(enter(2, Class::Write, (100, 100)), []);
        assert_eq!(enter(3, Class::Write, (99, 2)), [1, 2]);
        assert_eq!(enter(4, Class::Write, (0, 1)), [1]);
        assert_eq!(enter(5, Class::Write, (50, u64::MAX)), [1, 2, 3]);
    }

    #[test]
    fn each_piece_of_a_write_has_its_place() {
        let mut order = Order::default();
        let object = ObjectId::default();
        let comb = |from: u64| {
            Ranges::Many((0..3).map(|at| Span { offset: from + 20 * at, len: 10 }).collect())
        };
        let mut enter = |id, class, ranges| {
            let mut before = Vec::new();
            order.enter(object, id, (class, ranges), |other| before.push(other));
            before
        };
        assert_eq!(enter(1, Class::Write, comb(0)), []);
        assert_eq!(enter(2, Class::Write, comb(10)), [], "they lie between each other");
        assert_eq!(enter(3, Class::Write, comb(29)), [1, 2], "its last meets none of them");
        assert_eq!(enter(4, Class::Write, Ranges::One((40, 1))), [1], "the last of the first");
        assert_eq!(enter(5, Class::Read, Ranges::One((15, 20))), [1, 2, 3]);
        assert_eq!(enter(6, Class::Write, comb(5)), [1, 2, 3, 5], "each once");
        for id in 1..=6 {
            assert_eq!(order.objects.len(), 1);
            order.leave(object, id);
        }
        assert!(order.objects.is_empty());
    }

    #[test]
    fn a_read_comes_before_or_behind_a_write_that_it_overlaps() {
        let mut order = Order::default();
        let object = ObjectId::default();
        let mut enter = |id, class, range| {
            let mut before = Vec::new();
            order.enter(object, id, (class, Ranges::One(range)), |other| before.push(other));
            before
        };
        assert_eq!(enter(1, Class::Read, (0, 100)), []);
        assert_eq!(enter(2, Class::Read, (50, 100)), []);
        assert_eq!(enter(3, Class::Write, (90, 20)), [1, 2]);
        assert_eq!(enter(4, Class::Read, (100, 100)), [3]);
        assert_eq!(enter(5, Class::Read, (0, 90)), []);
        assert_eq!(enter(6, Class::Read, (0, 0)), [], "it looks at no bytes");
        order.leave(object, 3);
        assert_eq!(order.objects.get(&object).map(|places| places.others), Some(0));
    }
}

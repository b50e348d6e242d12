//! Which operation a thread of `sateen fill` does next. It repeats itself from run to run, so that
//! a later run knows which files an earlier one has left.

/// What is done next. Files are numbers of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Makes the next one.
    Create(u64),
    /// Looks one up, which is there or not.
    Stat(u64, bool),
    /// Removes one that is there.
    Unlink(u64),
    /// The one that was to be removed is not there any more.
    Nothing,
}

/// How far a thread is.
#[derive(Debug, Clone)]
pub(super) struct Course {
    random: u64,
    /// The first one that was not made yet.
    next: u64,
    /// Those that were removed again, a bit each.
    removed: Vec<u64>,
    live: u64,
}

impl Course {
    /// Of the thread of this number.
    pub(super) fn new(thread: u64) -> Course {
        let random = thread.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Course { random, next: 0, removed: Vec::new(), live: 0 }
    }

    /// How many are there.
    pub(super) fn live(&self) -> u64 {
        self.live
    }

    /// Those that were made, the ones among them that are gone included.
    pub(super) fn made(&self) -> u64 {
        self.next
    }

    /// While it fills: 18 of 20 are creates.
    pub(super) fn filling(&mut self) -> Step {
        match self.draw(20) {
            0 if self.live > 0 => self.stat(),
            1 if self.live > 0 => self.unlink(),
            _ => self.create(),
        }
    }

    /// Afterwards, in equal parts.
    pub(super) fn mixed(&mut self, turn: u32) -> Step {
        match turn % 3 {
            0 => self.create(),
            1 => self.stat(),
            _ => self.unlink(),
        }
    }

    pub(super) fn draw(&mut self, below: u64) -> u64 {
        // xorshift64: any will do that repeats itself.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below.max(1)
    }

    pub(super) fn is_removed(&self, file: u64) -> bool {
        let word = self.removed.get((file / 64) as usize).copied().unwrap_or_default();
        word >> (file % 64) & 1 == 1
    }

    fn create(&mut self) -> Step {
        self.next += 1;
        self.live += 1;
        Step::Create(self.next - 1)
    }

    fn stat(&mut self) -> Step {
        let file = self.draw(self.next);
        Step::Stat(file, !self.is_removed(file))
    }

    fn unlink(&mut self) -> Step {
        let file = self.draw(self.next);
        if self.is_removed(file) {
            return Step::Nothing;
        }
        let word = (file / 64) as usize;
        if self.removed.len() <= word {
            self.removed.resize(word + 1, 0);
        }
        if let Some(word) = self.removed.get_mut(word) {
            *word |= 1 << (file % 64);
        }
        self.live -= 1;
        Step::Unlink(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_repeats_itself_and_knows_what_is_there() {
        let (mut course, mut again) = (Course::new(0), Course::new(0));
        let mut there = std::collections::BTreeSet::new();
        for turn in 0..20_000 {
            let step = if turn < 10_000 { course.filling() } else { course.mixed(turn) };
            let same = if turn < 10_000 { again.filling() } else { again.mixed(turn) };
            assert_eq!(step, same);
            match step {
                Step::Create(file) => assert!(there.insert(file)),
                Step::Stat(file, is_there) => assert_eq!(there.contains(&file), is_there),
                Step::Unlink(file) => assert!(there.remove(&file)),
                Step::Nothing => {}
            }
            assert_eq!(course.live(), there.len() as u64);
        }
        assert!(course.made() > 12_000);
        assert_ne!(Course::new(1).draw(1 << 40), Course::new(0).draw(1 << 40));
    }
}

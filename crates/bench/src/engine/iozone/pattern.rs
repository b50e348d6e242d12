//! The tests: by which calls a rank reads or writes, and which record comes next.

use crate::pattern::mix;

/// A test of IOzone's throughput mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Test {
    InitialWrite,
    Rewrite,
    Read,
    Reread,
    ReverseRead,
    StrideRead,
    RandomRead,
    Mixed,
    RandomWrite,
    Pwrite,
    Pread,
    Fwrite,
    Fread,
}

/// By which calls records are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// `write` or `read`, from record to record.
    Next,
    /// `lseek` before each.
    Seek,
    /// `pwrite` or `pread`.
    At,
    /// Through a buffer of the program, as stdio's.
    Buffered,
}

/// Which record comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Forward,
    Reverse,
    Stride,
    Chance,
}

impl Test {
    /// All, in the order of a run.
    pub const ALL: [Self; 13] = [
        Self::InitialWrite,
        Self::Rewrite,
        Self::Read,
        Self::Reread,
        Self::ReverseRead,
        Self::StrideRead,
        Self::RandomRead,
        Self::Mixed,
        Self::RandomWrite,
        Self::Pwrite,
        Self::Pread,
        Self::Fwrite,
        Self::Fread,
    ];

    /// Its number for -i.
    pub(super) fn number(self) -> u8 {
        match self {
            Self::InitialWrite | Self::Rewrite => 0,
            Self::Read | Self::Reread => 1,
            Self::RandomRead | Self::RandomWrite => 2,
            Self::ReverseRead => 3,
            Self::StrideRead => 5,
            Self::Fwrite => 6,
            Self::Fread => 7,
            Self::Mixed => 8,
            Self::Pwrite => 9,
            Self::Pread => 10,
        }
    }

    /// IOzone's name of it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::InitialWrite => "initial writers",
            Self::Rewrite => "rewriters",
            Self::Read => "readers",
            Self::Reread => "re-readers",
            Self::ReverseRead => "reverse readers",
            Self::StrideRead => "stride readers",
            Self::RandomRead => "random readers",
            Self::Mixed => "mixed workload",
            Self::RandomWrite => "random writers",
            Self::Pwrite => "pwrite writers",
            Self::Pread => "pread readers",
            Self::Fwrite => "fwriters",
            Self::Fread => "freaders",
        }
    }

    /// Its second time.
    pub(super) fn is_retest(self) -> bool {
        matches!(self, Self::Rewrite | Self::Reread)
    }

    /// Whether it makes files that are not there.
    pub(super) fn makes(self) -> bool {
        matches!(self, Self::InitialWrite | Self::Pwrite)
    }

    /// Whether it begins with an empty file, as the original does with `creat`: pages that are there
    /// already take half the time.
    pub(super) fn empties(self) -> bool {
        self == Self::Pwrite
    }

    /// Whether no rank writes in it, whatever their number.
    pub(super) fn only_reads(self) -> bool {
        self != Self::Mixed && !self.writes(0, 1, None)
    }

    /// Whether a rank writes in it; some of them do in the mixed one.
    pub(super) fn writes(self, rank: usize, ranks: usize, readers: Option<u8>) -> bool {
        match self {
            Self::InitialWrite
            | Self::Rewrite
            | Self::RandomWrite
            | Self::Pwrite
            | Self::Fwrite => true,
            Self::Mixed => match readers {
                // As many whole readers as there are in that share.
                Some(percent) => rank >= usize::from(percent) * ranks / 100,
                None => rank % 2 == 1,
            },
            _ => false,
        }
    }

    /// By which calls.
    pub fn call(self) -> Call {
        match self {
            Self::InitialWrite | Self::Rewrite | Self::Read | Self::Reread => Call::Next,
            Self::Pwrite | Self::Pread => Call::At,
            Self::Fwrite | Self::Fread => Call::Buffered,
            _ => Call::Seek,
        }
    }

    fn way(self) -> Way {
        match self {
            Self::ReverseRead => Way::Reverse,
            Self::StrideRead => Way::Stride,
            Self::RandomRead | Self::RandomWrite | Self::Mixed => Way::Chance,
            _ => Way::Forward,
        }
    }
}

/// The records of a file in the order of a test; each comes once.
#[derive(Debug)]
pub struct Order {
    way: Way,
    count: u64,
    stride: u64,
    shuffled: Vec<u32>,
}

impl Order {
    /// The order of a test for a rank.
    pub fn new(test: Test, count: u64, stride: u64, rank: usize) -> Self {
        let way = test.way();
        let chance = way == Way::Chance;
        let shuffled = if chance { shuffle(count, rank as u64) } else { Vec::new() };
        Self { way, count, stride: stride.min(count).max(1), shuffled }
    }

    /// The number of the record that comes `at`th.
    #[inline]
    pub(super) fn record(&self, at: u64) -> u64 {
        match self.way {
            Way::Forward => at,
            Way::Reverse => self.count - 1 - at,
            Way::Stride => self.strided(at),
            Way::Chance => {
                let at = usize::try_from(at).ok().and_then(|at| self.shuffled.get(at));
                at.map_or(0, |record| u64::from(*record))
            }
        }
    }

    /// Every so manieth record, then those behind them, until all were there.
    fn strided(&self, at: u64) -> u64 {
        let (each, more) = (self.count / self.stride, self.count % self.stride);
        // The first rounds have a record more.
        let long = more * (each + 1);
        let (round, inside) = if at < long {
            (at / (each + 1), at % (each + 1))
        } else {
            (more + (at - long) / each, (at - long) % each)
        };
        round + inside * self.stride
    }
}

fn shuffle(count: u64, rank: u64) -> Vec<u32> {
    let mut state = rank.wrapping_mul(0x5851_f42d_4c95_7f2d) ^ count;
    let mut all: Vec<u32> = (0..u32::try_from(count).unwrap_or(u32::MAX)).collect();
    for at in (1..all.len()).rev() {
        let other = usize::try_from(mix(&mut state) % (at as u64 + 1)).unwrap_or(0);
        all.swap(at, other);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(test: Test, count: u64, stride: u64, rank: usize) -> Vec<u64> {
        let order = Order::new(test, count, stride, rank);
        (0..count).map(|at| order.record(at)).collect()
    }

    #[test]
    fn each_record_comes_once() {
        for test in Test::ALL {
            for (count, stride) in [(1, 17), (16, 17), (17, 17), (100, 17), (100, 7), (5, 1)] {
                let mut found = order(test, count, stride, 3);
                found.sort_unstable();
                assert_eq!(found, (0..count).collect::<Vec<_>>(), "{test:?} {count} {stride}");
            }
        }
    }

    #[test]
    fn orders_are_those_of_their_names() {
        assert_eq!(order(Test::Read, 4, 17, 0), [0, 1, 2, 3]);
        assert_eq!(order(Test::ReverseRead, 4, 17, 0), [3, 2, 1, 0]);
        assert_eq!(order(Test::StrideRead, 8, 3, 0), [0, 3, 6, 1, 4, 7, 2, 5]);
        let random = order(Test::RandomRead, 100, 17, 0);
        assert_ne!(random, (0..100).collect::<Vec<_>>());
        assert_ne!(random, order(Test::RandomRead, 100, 17, 1), "each rank otherwise");
    }

    #[test]
    fn the_mixed_test_has_readers_and_writers() {
        let writers =
            |readers| (0..10).filter(|rank| Test::Mixed.writes(*rank, 10, readers)).count();
        assert_eq!((writers(None), writers(Some(0)), writers(Some(100))), (5, 10, 0));
        assert_eq!((writers(Some(30)), writers(Some(35)), writers(Some(39))), (7, 7, 7));
        assert!(!Test::Read.writes(1, 2, None) && Test::Fwrite.writes(0, 2, None));
    }
}

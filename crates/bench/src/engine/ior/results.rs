//! The numbers that follow from what the ranks measured, by IOR's rules: a bandwidth is all
//! bytes over the time from the first open to the last close.

use super::transfer::Stonewall;
use crate::guard::Work;
use crate::stats::{Deviation, Summary};

/// What one rank has measured in a phase; seconds of the common clock.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Measured {
    pub(super) open: (f64, f64),
    pub(super) transfer: (f64, f64),
    pub(super) close: (f64, f64),
    pub(super) count: u64,
    pub(super) wrong: u64,
    /// Size of the file afterwards.
    pub(super) size: u64,
}

impl Measured {
    fn words(&self) -> [u64; 9] {
        let times = [
            self.open.0,
            self.open.1,
            self.transfer.0,
            self.transfer.1,
            self.close.0,
            self.close.1,
        ];
        let [a, b, c, d, e, f] = times.map(f64::to_bits);
        [a, b, c, d, e, f, self.count, self.wrong, self.size]
    }

    /// What the guard must know of it.
    pub(super) fn work(&self, rank: usize, transfer: u64) -> Work {
        let (begin_s, end_s) = (self.open.0, self.close.1);
        Work { rank, begin_s, end_s, amount: self.count * transfer }
    }

    /// As ranks send it.
    pub(super) fn to_bytes(self) -> Vec<u8> {
        self.words().into_iter().flat_map(u64::to_le_bytes).collect()
    }

    /// As ranks have sent it.
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let mut words =
            bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
        let mut next = || words.next().unwrap_or_default();
        let mut span = || (f64::from_bits(next()), f64::from_bits(next()));
        let (open, transfer, close) = (span(), span(), span());
        Self { open, transfer, close, count: next(), wrong: next(), size: next() }
    }
}

/// The result of a phase.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Point {
    /// Bytes that all ranks moved.
    pub(super) bytes: u64,
    /// Bytes that the files have afterwards.
    pub(super) bytes_found: u64,
    /// Bytes a second.
    pub(super) bandwidth: f64,
    /// Transfers a second, while transfers were made.
    pub(super) iops: f64,
    /// Mean of a transfer, of the rank where it is smallest.
    pub(super) latency_s: f64,
    pub(super) open_s: f64,
    pub(super) transfer_s: f64,
    pub(super) close_s: f64,
    pub(super) total_s: f64,
    /// Transfers with wrong data.
    pub(super) wrong: u64,
    pub(super) stonewall: Option<Stonewall>,
}

/// From the first beginning to the last end.
fn span(all: &[Measured], part: impl Fn(&Measured) -> (f64, f64)) -> (f64, f64) {
    let begin = all.iter().map(|one| part(one).0).fold(f64::INFINITY, f64::min);
    let end = all.iter().map(|one| part(one).1).fold(f64::NEG_INFINITY, f64::max);
    (begin, end)
}

impl Point {
    /// The result of what all ranks measured.
    pub(super) fn of(all: &[Measured], transfer: u64, shared: bool) -> Self {
        let (open, moving) = (span(all, |one| one.open), span(all, |one| one.transfer));
        let close = span(all, |one| one.close);
        let count: u64 = all.iter().map(|one| one.count).sum();
        let bytes = count * transfer;
        let sizes = all.iter().map(|one| one.size);
        let total_s = close.1 - open.0;
        let transfer_s = moving.1 - moving.0;
        let means = all.iter().filter(|one| one.count > 0);
        let means = means.map(|one| (one.transfer.1 - one.transfer.0) / one.count as f64);
        Self {
            bytes,
            bytes_found: if shared { sizes.min().unwrap_or(0) } else { sizes.sum() },
            bandwidth: bytes as f64 / total_s,
            iops: count as f64 / transfer_s,
            latency_s: means.fold(f64::INFINITY, f64::min),
            open_s: open.1 - open.0,
            transfer_s,
            close_s: close.1 - close.0,
            total_s,
            wrong: all.iter().map(|one| one.wrong).sum(),
            stonewall: None,
        }
    }
}

/// The repetitions of a phase together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Total {
    /// Bytes a second.
    pub(super) bandwidth: Summary,
    /// Transfers a second, over the whole time.
    pub(super) operations: Summary,
    pub(super) mean_s: f64,
    /// Mean seconds until the stonewall, and bytes a second of a rank until then, as IOR.
    pub(super) stonewall: Option<(f64, f64)>,
    /// Bytes of the first repetition.
    pub(super) bytes: u64,
}

impl Total {
    /// Sums repetitions up; nothing if there were none.
    pub(super) fn of(points: &[Point], transfer: u64, ranks: usize) -> Option<Self> {
        let first = points.first()?;
        let bandwidths: Vec<f64> = points.iter().map(|point| point.bandwidth).collect();
        let operations: Vec<f64> = bandwidths.iter().map(|rate| rate / transfer as f64).collect();
        let seconds = points.iter().map(|point| point.total_s).sum::<f64>();
        let walls: Vec<Stonewall> = points.iter().filter_map(|point| point.stonewall).collect();
        let until: f64 = walls.iter().map(|wall| wall.seconds).sum();
        let moved: f64 = walls.iter().map(|wall| (wall.count_sum * transfer) as f64).sum();
        let moved = moved / ranks as f64;
        Some(Self {
            bandwidth: Summary::of(&bandwidths, Deviation::Population),
            operations: Summary::of(&operations, Deviation::Population),
            mean_s: seconds / points.len() as f64,
            stonewall: (!walls.is_empty()).then(|| (until / walls.len() as f64, moved / until)),
            bytes: first.bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(start: f64, count: u64) -> Measured {
        Measured {
            open: (start, start + 0.5),
            transfer: (start + 0.5, start + 2.5),
            close: (start + 2.5, start + 3.0),
            count,
            wrong: 1,
            size: count * 10,
        }
    }

    #[test]
    fn a_bandwidth_is_all_bytes_over_the_longest_time() {
        let all = [rank(0.0, 4), rank(1.0, 8)];
        let point = Point::of(&all, 10, false);
        assert_eq!((point.bytes, point.bytes_found, point.wrong), (120, 120, 2));
        assert_eq!((point.total_s, point.bandwidth), (4.0, 30.0));
        assert_eq!((point.transfer_s, point.iops), (3.0, 4.0));
        assert_eq!((point.open_s, point.close_s), (1.5, 1.5));
        assert_eq!(point.latency_s, 0.25, "of the faster rank");
        assert_eq!(Point::of(&all, 10, true).bytes_found, 40);
    }

    #[test]
    fn what_a_rank_sends_arrives() {
        let sent = rank(7.25, 9);
        assert_eq!(Measured::from_bytes(&sent.to_bytes()), sent);
    }

    #[test]
    fn repetitions_are_summed_up() {
        let wall = Stonewall { seconds: 2.0, count_min: 3, count_max: 5, count_sum: 8 };
        let point = |bandwidth, total_s| Point {
            bytes: 120,
            bandwidth,
            total_s,
            stonewall: Some(wall),
            ..Point::default()
        };
        let total = Total::of(&[point(30.0, 4.0), point(60.0, 2.0)], 10, 2).unwrap();
        assert_eq!((total.bandwidth.max, total.bandwidth.mean), (60.0, 45.0));
        assert_eq!((total.operations.min, total.mean_s), (3.0, 3.0));
        assert_eq!(total.stonewall, Some((2.0, 20.0)));
        assert_eq!(Total::of(&[], 10, 2), None);
    }
}

//! A comb: records of one length at one distance, as one of several writers of a file has them who
//! write it in turns. It has no end, so that whoever has one needs no other when he gets further.
//!
//! A range of a file is one, too: what has the largest distance has one record alone.

/// Largest distance from one record to the next.
pub const COMB_STRIDE_MAX: u64 = 1 << 40;
/// Most bytes of a range.
pub const RANGE_BYTES_MAX: u64 = COMB_STRIDE_MAX - 1;
/// Largest offset of a first record.
pub const COMB_START_MAX: u64 = 1 << 62;

/// The bytes `start + k * stride + u`, for all `k` from 0 on and `u` less than `record_len`; for `k = 0` alone
/// if it is a range.
///
/// There is a gap behind each record: records that touch their next would be all of the file's tail.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Comb {
    start: u64,
    record_len: u64,
    stride: u64,
}

impl Comb {
    /// Records of `record_len` bytes at `start` and each `stride` from there; `None` if that is no comb.
    pub const fn new(start: u64, record_len: u64, stride: u64) -> Option<Comb> {
        let valid = start <= COMB_START_MAX
            && 1 <= record_len
            && record_len < stride
            && stride <= COMB_STRIDE_MAX;
        if valid { Some(Comb { start, record_len, stride }) } else { None }
    }

    /// `len` bytes from `start` on; `None` if that is no comb.
    pub const fn range(start: u64, len: u64) -> Option<Comb> {
        Comb::new(start, len, COMB_STRIDE_MAX)
    }

    /// Whether it is a range: one record alone.
    pub const fn is_range(&self) -> bool {
        self.stride == COMB_STRIDE_MAX
    }

    /// Where the first record begins.
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// Bytes of a record.
    pub const fn record_len(&self) -> u64 {
        self.record_len
    }

    /// From the begin of one record to that of the next.
    pub const fn stride(&self) -> u64 {
        self.stride
    }

    /// Whether these bytes, at least one, are all in one record.
    pub const fn has(&self, offset: u64, len: u64) -> bool {
        if len < 1 || len > self.record_len || offset < self.start {
            return false;
        }
        let behind = offset - self.start;
        let behind = if self.is_range() { behind } else { behind % self.stride };
        behind <= self.record_len - len
    }

    /// Whether a byte is in both.
    ///
    /// Combs have no end, so that where they begin counts only modulo the gcd of their strides: on a
    /// circle of that length each is an arc, and by Bézout any two bytes at the same place of the circle
    /// come together somewhere. The one answer that is not exact is that they meet where no file can
    /// have a byte any more. Of a range, which has an end, it is asked where the other's next record begins.
    pub const fn meets(&self, other: &Comb) -> bool {
        if self.is_range() {
            return match other.next_from(self.start) {
                Some(next) => next < self.start + self.record_len,
                None => false,
            };
        }
        if other.is_range() {
            return other.meets(self);
        }
        let circle = gcd(self.stride, other.stride);
        let ahead = (other.start % circle + circle - self.start % circle) % circle;
        self.record_len > ahead || other.record_len > circle - ahead
    }

    /// This range, cut where another comb's records begin; `None` if its first byte is one of them.
    pub const fn before(&self, other: &Comb) -> Option<Comb> {
        let next = match other.next_from(self.start) {
            Some(next) => next,
            None => return Some(*self),
        };
        if next <= self.start {
            return None;
        }
        let free = next - self.start;
        let record_len = if self.record_len < free { self.record_len } else { free };
        Some(Comb { start: self.start, record_len, stride: self.stride })
    }

    /// Where the first record begins that ends behind `offset`, which is no larger than what a comb may
    /// begin at; `None` if there is none.
    const fn next_from(&self, offset: u64) -> Option<u64> {
        let end = self.start + self.record_len;
        if end > offset {
            return Some(self.start);
        }
        if self.is_range() {
            return None;
        }
        Some(self.start + ((offset - end) / self.stride + 1) * self.stride)
    }
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comb(start: u64, record_len: u64, stride: u64) -> Comb {
        Comb::new(start, record_len, stride).expect("a comb")
    }

    #[test]
    fn only_records_with_gaps_between_are_a_comb() {
        for (start, record_len, stride) in [
            (0, 0, 2),
            (0, 2, 2),
            (0, 3, 2),
            (0, 1, COMB_STRIDE_MAX + 1),
            (COMB_START_MAX + 1, 1, 2),
        ] {
            assert_eq!(Comb::new(start, record_len, stride), None);
        }
        let widest = comb(COMB_START_MAX, COMB_STRIDE_MAX - 1, COMB_STRIDE_MAX);
        assert!(widest.has(COMB_START_MAX, COMB_STRIDE_MAX - 1) && widest.meets(&widest));
    }

    #[test]
    fn a_range_is_in_a_comb_if_it_is_in_one_record() {
        let comb = comb(100, 10, 30);
        for (offset, len) in [(100, 10), (109, 1), (130, 10), (135, 5), (100 + 30 * 1_000_000, 3)] {
            assert!(comb.has(offset, len), "{offset} {len}");
        }
        for (offset, len) in [
            (100, 0),
            (99, 1),
            (70, 10),
            (100, 11),
            (110, 1),
            (135, 6),
            (100, 40),
            (u64::MAX, u64::MAX),
        ] {
            assert!(!comb.has(offset, len), "{offset} {len}");
        }
    }

    /// Bytes that are looked at: beyond the last start by twice the largest lcm.
    const BYTES: usize = 30 + 2 * 24 * 23;

    fn bytes_of(comb: &Comb) -> Vec<u64> {
        let mut bytes = vec![0; BYTES.div_ceil(64)];
        for byte in 0..BYTES {
            bytes[byte / 64] |= u64::from(comb.has(byte as u64, 1)) << (byte % 64);
        }
        bytes
    }

    #[test]
    fn all_small_ones_meet_as_their_bytes_do() {
        let mut all = Vec::new();
        for stride in 2..=24 {
            for record_len in 1..stride {
                for start in [0, 1, 7, stride - 1, 29] {
                    let comb = comb(start, record_len, stride);
                    all.push((comb, bytes_of(&comb)));
                }
            }
        }
        let mut met = 0;
        for (a, a_bytes) in &all {
            for (b, b_bytes) in &all {
                let common = a_bytes.iter().zip(b_bytes).any(|(a, b)| a & b != 0);
                assert_eq!(a.meets(b), common, "{a:?} {b:?}");
                met += usize::from(common);
            }
        }
        assert!(met > all.len() && met < all.len() * all.len());
    }

    fn range(start: u64, len: u64) -> Comb {
        Comb::range(start, len).expect("a range")
    }

    #[test]
    fn ranges_meet_as_their_bytes_do_and_what_is_cut_is_as_long_as_can_be() {
        let mut others = vec![range(0, 7), range(11, 1), range(30, 40)];
        for stride in 2..=24 {
            for record_len in [1, 2, stride / 2, stride - 1] {
                for start in [0, 5, stride, 31] {
                    others.extend(Comb::new(start, record_len, stride));
                }
            }
        }
        let (mut cut, mut whole, mut none) = (0, 0, 0);
        for start in 0..40 {
            for len in [1, 2, 5, 13, 60] {
                let one = range(start, len);
                for other in &others {
                    let taken = |byte: &u64| other.has(*byte, 1);
                    let free = (start..start + len).take_while(|byte| !taken(byte)).count() as u64;
                    let meets = (start..start + len).any(|byte| taken(&byte));
                    assert_eq!(
                        (one.meets(other), other.meets(&one)),
                        (meets, meets),
                        "{one:?} {other:?}"
                    );
                    let longest = (free > 0).then(|| range(start, free));
                    assert_eq!(one.before(other), longest, "{one:?} {other:?}");
                    cut += u32::from(0 < free && free < len);
                    whole += u32::from(free == len);
                    none += u32::from(free == 0);
                }
            }
        }
        assert!(cut > 1000 && whole > 1000 && none > 1000, "{cut} {whole} {none}");
    }

    #[test]
    fn a_range_has_one_record_however_long_the_file_is() {
        let longest = range(100, RANGE_BYTES_MAX);
        assert!(longest.is_range() && longest.has(100 + (1 << 30), 1 << 20));
        assert!(!range(0, 100).has(COMB_STRIDE_MAX, 1) && !comb(0, 1, 2).is_range());
        assert_eq!(longest.before(&range(5000, 10)), Some(range(100, 4900)));
        assert_eq!(longest.before(&range(0, 101)), None, "its first byte is another's");
        assert_eq!(longest.before(&range(0, 100)), Some(longest));
        let far = range(7 * COMB_STRIDE_MAX, 1 << 30);
        assert!(!far.meets(&range(0, 1 << 30)) && far.meets(&comb(0, 47_008, 94_016)));
        // Records that are written in turns, which lie at no power of two.
        let in_turns = comb(47_008, 47_008, 3 * 47_008);
        assert_eq!(range(0, 1 << 24).before(&in_turns), Some(range(0, 47_008)));
        assert_eq!(range(94_016, 1 << 24).before(&in_turns), Some(range(94_016, 2 * 47_008)));
        let last = range(COMB_START_MAX, RANGE_BYTES_MAX);
        assert!(last.meets(&comb(3, 1, 2)) && last.meets(&last) && !last.meets(&range(0, 1)));
        assert_eq!(Comb::range(0, RANGE_BYTES_MAX + 1), None);
    }

    /// `x` and `y` so that `a * x + b * y` is the gcd.
    fn bezout(a: i128, b: i128) -> (i128, i128) {
        if b == 0 {
            return (1, 0);
        }
        let (x, y) = bezout(b, a % b);
        (y, x - a / b * y)
    }

    /// A byte that two combs have that meet, wherever it lies.
    fn made(a: &Comb, b: &Comb) -> Option<i128> {
        let (s, t) = (i128::from(a.stride), i128::from(b.stride));
        let (start_a, start_b) = (i128::from(a.start), i128::from(b.start));
        let circle = i128::from(gcd(a.stride, b.stride));
        let ahead = (start_b - start_a).rem_euclid(circle);
        // Its place in a record of each.
        let (u, v) =
            if ahead < i128::from(a.record_len) { (ahead, 0) } else { (0, circle - ahead) };
        let steps = (start_b + v - start_a - u) / circle;
        let times = bezout(s, t).0.checked_mul(steps % (t / circle))? % (t / circle);
        let lcm = s / circle * t;
        let byte = start_a + u + s * times.rem_euclid(t / circle);
        let first = start_a.max(start_b) + i128::from(a.record_len + b.record_len);
        Some(byte + (first - byte).max(0) / lcm * lcm + lcm)
    }

    #[test]
    fn of_large_ones_a_meeting_that_is_found_can_be_made() {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut below = |max: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % max
        };
        let (mut met, mut apart) = (0, 0);
        for _ in 0..200_000 {
            let unit = 1 << below(30);
            let mut any = || {
                let stride = (2 + below(COMB_STRIDE_MAX / unit - 1)) * unit;
                let record_len = (1 + below(unit.max(2))).min(stride - 1);
                comb(below(COMB_START_MAX), record_len, stride.min(COMB_STRIDE_MAX))
            };
            let (a, b) = (any(), any());
            assert_eq!(a.meets(&b), b.meets(&a), "{a:?} {b:?}");
            if !a.meets(&b) {
                apart += 1;
                continue;
            }
            let byte = made(&a, &b).expect("no overflow");
            for comb in [a, b] {
                let place = (byte - i128::from(comb.start)).rem_euclid(i128::from(comb.stride));
                assert!(byte >= i128::from(comb.start), "{comb:?} {byte}");
                assert!(place < i128::from(comb.record_len), "{a:?} {b:?} {byte}");
            }
            met += 1;
        }
        assert!(met > 1000 && apart > 1000, "{met} {apart}");
    }
}

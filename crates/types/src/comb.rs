//! A comb: records of one length at one distance, as one of several writers of a file has them who
//! write it in turns. It has no end, so that whoever has one needs no other when he gets further.
//!
//! A range of a file is one, too: of the largest distance, so that its second record lies where files
//! hardly ever have anything.

/// Largest distance from one record to the next.
pub const COMB_STRIDE_MAX: u64 = 1 << 40;
/// Most bytes of a range.
pub const RANGE_BYTES_MAX: u64 = COMB_STRIDE_MAX - 1;
/// Largest offset of a first record.
pub const COMB_START_MAX: u64 = 1 << 62;

/// The bytes `start + k * stride + u`, for all `k` from 0 on and `u` less than `record_len`.
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

    /// `len` bytes from `start` on, and as many a [`COMB_STRIDE_MAX`] further, and so on; `None` if that
    /// is no comb.
    pub const fn range(start: u64, len: u64) -> Option<Comb> {
        Comb::new(start, len, COMB_STRIDE_MAX)
    }

    /// Whether it is a range.
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
        1 <= len
            && len <= self.record_len
            && self.start <= offset
            && (offset - self.start) % self.stride <= self.record_len - len
    }

    /// Whether a byte is in both.
    ///
    /// Combs have no end, so that where they begin counts only modulo the gcd of their strides: on a
    /// circle of that length each is an arc, and by Bézout any two bytes at the same place of the circle
    /// come together somewhere. The one answer that is not exact is that they meet where no file can
    /// have a byte any more.
    pub const fn meets(&self, other: &Comb) -> bool {
        let (circle, ahead) = self.ahead(other);
        self.record_len > ahead || other.record_len > circle - ahead
    }

    /// The circle of two combs, and how far on it the other one's records begin behind this one's.
    const fn ahead(&self, other: &Comb) -> (u64, u64) {
        let circle = gcd(self.stride, other.stride);
        (circle, (other.start % circle + circle - self.start % circle) % circle)
    }

    /// This comb, with its records cut where they would meet another one's; `None` if they begin there.
    pub const fn before(&self, other: &Comb) -> Option<Comb> {
        let (circle, ahead) = self.ahead(other);
        if ahead == 0 || other.record_len > circle - ahead {
            return None;
        }
        let record_len = if self.record_len < ahead { self.record_len } else { ahead };
        Some(Comb { start: self.start, record_len, stride: self.stride })
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

    #[test]
    fn what_is_cut_meets_no_more_and_is_as_long_as_can_be() {
        let (mut cut, mut whole, mut none) = (0, 0, 0);
        for (stride, other_stride) in [(24, 24), (24, 12), (24, 18), (12, 24), (23, 24)] {
            for (record_len, other_len) in [(1, 1), (5, 3), (11, 2), (7, 11)] {
                for (start, other_start) in (0..30).flat_map(|a| (0..30).map(move |b| (a, b))) {
                    let one = comb(start, record_len, stride);
                    let other = comb(other_start, other_len, other_stride);
                    let longest = (1..=record_len)
                        .filter_map(|len| Comb::new(start, len, stride))
                        .rfind(|shorter| !shorter.meets(&other));
                    assert_eq!(one.before(&other), longest, "{one:?} {other:?}");
                    match longest {
                        Some(longest) if longest == one => whole += 1,
                        Some(_) => cut += 1,
                        None => none += 1,
                    }
                }
            }
        }
        assert!(cut > 100 && whole > 100 && none > 100, "{cut} {whole} {none}");
    }

    #[test]
    fn ranges_are_cut_where_the_next_begins() {
        let range = |start, len| Comb::range(start, len).expect("a range");
        let longest = range(100, RANGE_BYTES_MAX);
        assert!(longest.is_range() && longest.has(100 + (1 << 30), 1 << 20));
        assert_eq!(longest.before(&range(5000, 10)), Some(range(100, 4900)));
        assert_eq!(longest.before(&range(0, 101)), None, "its first byte is another's");
        // It comes round to where the other begins.
        assert_eq!(longest.before(&range(0, 100)), Some(range(100, RANGE_BYTES_MAX - 99)));
        assert!(!range(0, 100).meets(&range(100, 100)) && range(0, 101).meets(&range(100, 100)));
        assert_eq!(Comb::range(0, RANGE_BYTES_MAX + 1), None);
        assert!(!comb(0, 1, 2).is_range());
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

//! Ranges of one object that one request names.
//!
//! They rise, and none overlaps another: so what is done twice comes to the same, whether two requests
//! meet is seen by walking along both, and no request can wait for itself.

use std::sync::Arc;

use sateen_types::Errno;

use crate::codec::{DecodeError, Input, Wire, put_vec, take_vec};
use crate::wire_struct;

/// Most ranges of one request.
pub const SPANS_MAX: usize = 64;
/// Highest byte of an object that may be written, plus one: what a signed file offset can say.
const END_MAX: u64 = i64::MAX as u64;

wire_struct! {
    /// A range of an object.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Span {
        /// Where it begins.
        pub offset: u64,
        /// How many bytes it has.
        pub len: u32,
    }
}

impl Span {
    /// The range as offset and length.
    pub const fn range(&self) -> (u64, u64) {
        (self.offset, self.len as u64)
    }
}

/// Ranges as a request has them: whoever keeps a copy of it, or looks at them later, shares them.
pub type Spans = Arc<[Span]>;

impl Wire for Spans {
    fn put(&self, out: &mut Vec<u8>) {
        put_vec(out, self);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let all: Vec<Span> = take_vec(input, SPANS_MAX)?;
        Ok(all.into())
    }
}

/// How many bytes they have together, and where the last one ends.
///
/// # Errors
/// `EINVAL` for none, too many, an empty one, or one that does not lie behind that before it; `EFBIG` for
/// one that goes where no file reaches.
pub fn extent_of(spans: &[Span]) -> Result<(u64, u64), Errno> {
    if spans.is_empty() || spans.len() > SPANS_MAX {
        return Err(Errno::EINVAL);
    }
    let (mut bytes, mut end) = (0u64, 0u64);
    for span in spans {
        if span.len == 0 || span.offset < end {
            return Err(Errno::EINVAL);
        }
        let its_end = span.offset.checked_add(u64::from(span.len));
        end = its_end.filter(|end| *end <= END_MAX).ok_or(Errno::EFBIG)?;
        bytes = bytes.checked_add(u64::from(span.len)).ok_or(Errno::EFBIG)?;
    }
    Ok((bytes, end))
}

/// Whether two ranges (offset and length) have a byte in common.
pub const fn overlap((at, len): (u64, u64), (other, other_len): (u64, u64)) -> bool {
    at < other.saturating_add(other_len) && other < at.saturating_add(len)
}

/// Whether any of these ranges overlaps any of those: both rise, and none overlaps its own.
pub fn meet(
    these: impl IntoIterator<Item = (u64, u64)>,
    those: impl IntoIterator<Item = (u64, u64)>,
) -> bool {
    let (mut these, mut those) = (these.into_iter(), those.into_iter());
    let (mut one, mut other) = (these.next(), those.next());
    while let (Some(left), Some(right)) = (one, other) {
        if overlap(left, right) {
            return true;
        }
        // The one that ends first meets nothing that comes later.
        if left.0.saturating_add(left.1) <= right.0.saturating_add(right.1) {
            one = these.next();
        } else {
            other = those.next();
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(all: &[(u64, u32)]) -> Vec<Span> {
        all.iter().map(|(offset, len)| Span { offset: *offset, len: *len }).collect()
    }

    #[test]
    fn what_cannot_be_written_is_refused() {
        assert_eq!(extent_of(&spans(&[(0, 5), (5, 1), (100, 7)])), Ok((13, 107)));
        for wrong in [&[][..], &[(0, 0)], &[(0, 5), (4, 1)], &[(9, 1), (0, 1)], &[(0, 1), (0, 1)]] {
            assert_eq!(extent_of(&spans(wrong)), Err(Errno::EINVAL), "{wrong:?}");
        }
        for far in [(u64::MAX, 1), (u64::MAX - 1, u32::MAX), (END_MAX, 1), (END_MAX - 1, 2)] {
            assert_eq!(extent_of(&spans(&[(0, 1), far])), Err(Errno::EFBIG), "{far:?}");
        }
        assert_eq!(extent_of(&spans(&[(END_MAX - 1, 1)])), Ok((1, END_MAX)));
        let many: Vec<(u64, u32)> = (0..=SPANS_MAX as u64).map(|at| (2 * at, 1)).collect();
        assert_eq!(extent_of(&spans(&many)), Err(Errno::EINVAL));
        assert_eq!(extent_of(&spans(&many[1..])), Ok((64, 129)));
    }

    #[test]
    fn more_than_there_may_be_are_not_decoded() {
        let many: Spans = (0..SPANS_MAX as u64).map(|offset| Span { offset, len: 1 }).collect();
        let bytes = many.to_vec();
        assert_eq!(Spans::from_bytes(&bytes), Ok(many));
        let mut lying = bytes.clone();
        lying[0] += 1;
        assert_eq!(Spans::from_bytes(&lying), Err(DecodeError::TooLong));
    }

    /// Against sets of bytes.
    #[test]
    fn they_meet_if_they_have_a_byte_in_common() {
        // Bits say which of eight bytes are there: runs of them are ranges.
        let ranges = |bits: u32| {
            let mut all: Vec<(u64, u64)> = Vec::new();
            for at in (0..8).filter(|at| bits >> at & 1 == 1) {
                match all.last_mut() {
                    Some((from, len)) if *from + *len == at => *len += 1,
                    _ => all.push((at, 1)),
                }
            }
            all
        };
        for one in 0..256u32 {
            for other in 0..256u32 {
                assert_eq!(meet(ranges(one), ranges(other)), one & other != 0, "{one} {other}");
            }
        }
    }
}

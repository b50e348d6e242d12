//! Slowing changes down when they outrun the disk.
//!
//! While a checkpoint runs, changes fill the next memtable; if it were full before the
//! checkpoint ends, everybody would have to stop until it does. Instead the answer to each
//! change is held back a little, and a little more the fuller the memtable gets, until as
//! much comes in as the disk takes. The same when the journal's disk cannot keep up. The
//! delay has a ceiling that no operation notices as a stall.

use sateen_journal::FRAME_PAYLOAD_MAX;

/// Longest delay of one answer: 40 ms.
const DELAY_NS_MAX: u64 = 40_000_000;

/// How long to hold back the answer to a change: nothing below a full memtable (1000 per
/// mille) and half a frame of pending bytes, then rising with the cube, so that it bites
/// late, up to the ceiling at twice the memtable and a whole frame.
pub(super) fn delay_ns(fill_permille: usize, pending_bytes: usize) -> u64 {
    let memory = fill_permille.saturating_sub(1000);
    let half = FRAME_PAYLOAD_MAX / 2;
    let journal = pending_bytes.saturating_sub(half).saturating_mul(1000) / half;
    let level = memory.max(journal).min(1000) as u64;
    DELAY_NS_MAX * level.pow(3) / 1_000_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_rise_smoothly_to_the_ceiling() {
        assert_eq!(delay_ns(999, 0), 0);
        assert_eq!(delay_ns(1000, FRAME_PAYLOAD_MAX / 2), 0);
        assert_eq!(delay_ns(2000, 0), DELAY_NS_MAX);
        assert_eq!(delay_ns(9000, usize::MAX), DELAY_NS_MAX);
        assert_eq!(delay_ns(0, FRAME_PAYLOAD_MAX), DELAY_NS_MAX);
        let mut before = 0;
        for fill in (1000..=2000).step_by(10) {
            let delay = delay_ns(fill, 0);
            assert!(delay >= before && delay - before <= DELAY_NS_MAX / 30, "{fill}");
            before = delay;
        }
    }
}

//! Who is taken for a reader from front to back, and how far ahead the kernel is asked.

use super::*;
use crate::testing::Random;

const MIB: u64 = 1 << 20;
const SIZE: u64 = 64 * MIB;

/// Reads from front to back, of which all that was not asked for before waits. What was asked for.
fn forward(streams: &mut Streams, (start, len): (u64, u64), size: u64) -> Vec<Range<u64>> {
    let mut asked: Vec<Range<u64>> = Vec::new();
    for offset in (start..size).step_by(len as usize) {
        let due = streams.pass(offset, len).due;
        let known = asked.last().map_or(0, |last| last.end);
        if due.is_some() || offset + len > known {
            asked.extend(streams.wait(offset, len, size));
        }
    }
    asked
}

#[test]
fn a_reader_is_asked_ahead_for_in_growing_steps_up_to_the_end() {
    for len in [4096, 128 << 10, MIB, 16 * MIB] {
        let asked = forward(&mut Streams::default(), (0, len), SIZE);
        let first = asked.first().unwrap();
        assert_eq!(first.start, len, "with the second request");
        assert_eq!(asked.last().unwrap().end, SIZE, "and never beyond");
        for pair in asked.windows(2) {
            assert_eq!(pair[0].end, pair[1].start, "without gap, and nothing twice");
        }
        let most = (4 * len).clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX) + len;
        assert!(asked.iter().all(|range| range.end - range.start <= most), "{len}: {asked:?}");
        let few = SIZE / (most / 4) + 10;
        assert!((asked.len() as u64) < few, "{len}: {} times", asked.len());
    }
}

#[test]
fn more_is_due_before_the_end_of_what_was_asked_for() {
    let mut streams = Streams::default();
    assert_eq!(streams.pass(0, MIB).due, None);
    assert_eq!(streams.wait(0, MIB, SIZE), None, "one request is no stream");
    assert_eq!(streams.pass(MIB, MIB).due, None);
    assert_eq!(streams.wait(MIB, MIB, SIZE), Some(MIB..4 * MIB));
    assert_eq!(streams.wait(MIB, MIB, SIZE), None, "it is on its way");
    assert_eq!(streams.pass(2 * MIB, MIB).due, Some(4 * MIB), "half of it is passed");
    assert_eq!(streams.wait(2 * MIB, MIB, SIZE), Some(4 * MIB..7 * MIB));
    assert_eq!(streams.pass(3 * MIB, MIB).due, None);
    assert_eq!(streams.pass(4 * MIB, MIB).due, Some(7 * MIB));
    // All that comes is in memory.
    streams.is_there(7 * MIB);
    assert_eq!(streams.pass(5 * MIB, MIB).due, None);
    assert_eq!(streams.pass(6 * MIB, MIB).due, Some(9 * MIB));
}

#[test]
fn requests_that_overtake_each_other_are_one_stream() {
    let mut streams = Streams::default();
    let mut asked = Vec::new();
    for turn in 0..8 {
        for nth in [1, 0, 3, 2] {
            let offset = (4 * turn + nth) * MIB;
            let due = streams.pass(offset, MIB).due;
            if due.is_some() || turn == 0 {
                asked.extend(streams.wait(offset, MIB, SIZE));
            }
        }
    }
    assert!(asked.len() > 4, "{asked:?}");
    assert!(asked.windows(2).all(|pair| pair[0].end <= pair[1].start), "{asked:?}");
}

#[test]
fn several_readers_are_told_apart() {
    let mut streams = Streams::default();
    let mut asked = [0; STREAMS_MAX];
    for turn in 0..16 {
        for (reader, asked) in asked.iter_mut().enumerate() {
            let offset = reader as u64 * 100 * MIB + turn * MIB;
            streams.pass(offset, MIB);
            *asked += usize::from(streams.wait(offset, MIB, 1 << 40).is_some());
        }
    }
    assert!(asked.iter().all(|count| *count >= 4), "{asked:?}");
}

#[test]
fn for_who_jumps_or_comes_backwards_nothing_is_asked() {
    let mut random = Random::seeded(5);
    let mut streams = Streams::default();
    let size = 1 << 40;
    for _ in 0..10_000 {
        let offset = random.below(size / 4096) * 4096;
        assert_eq!(streams.pass(offset, 4096).due, None);
        assert_eq!(streams.wait(offset, 4096, size), None);
    }
    for offset in (0..SIZE / MIB).rev().map(|nth| nth * MIB) {
        assert_eq!(streams.pass(offset, MIB).due, None);
        assert_eq!(streams.wait(offset, MIB, SIZE), None);
    }
}

#[test]
fn a_reader_goes_on_where_the_object_has_grown() {
    let mut streams = Streams::default();
    let asked = forward(&mut streams, (0, MIB), 8 * MIB);
    assert_eq!(asked.last().unwrap().end, 8 * MIB);
    let grown = forward(&mut streams, (8 * MIB, MIB), SIZE);
    assert_eq!(grown.first().unwrap().start, 8 * MIB);
    assert_eq!(grown.last().unwrap().end, SIZE);
}

#[test]
fn the_last_bytes_of_all_are_read_without_a_count_that_overflows() {
    let mut streams = Streams::default();
    for offset in [u64::MAX - 8192, u64::MAX - 4096, u64::MAX - 1] {
        streams.pass(offset, 4096);
        let asked = streams.wait(offset, 4096, u64::MAX);
        assert!(asked.is_none_or(|range| range.start < range.end));
    }
    streams.is_there(u64::MAX);
    assert_eq!(streams.wait(0, u64::MAX, 0), None);
}

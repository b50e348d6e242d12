//! Reading a segment's frames, and telling the end of the log from damage within it.

use std::io;

use sateen_journal::{Decoded, FRAME_HEADER_BYTES, decode_frame};

use super::shelf::Shelf;
use super::{JournalError, PAGE};

/// The page behind a frame of `len` bytes at `at`.
fn behind(at: usize, len: usize) -> usize {
    (at + len).next_multiple_of(PAGE as usize)
}

/// Gives the payload of each frame that continues the log after `last`, which is raised, to
/// `replay`. Returns where the last one stands, and where the next one should; both are the
/// same if there is none.
pub(super) fn frames<E: From<JournalError>>(
    epoch: u64,
    segment: &[u8],
    last: &mut u64,
    replay: &mut impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(usize, usize), E> {
    let mut at = PAGE as usize;
    let mut last_frame = at;
    while let Some(rest) = segment.get(at..)
        && let Decoded::Frame { first, last: upto, payload, len } = decode_frame(epoch, rest)
        && first == *last + 1
    {
        replay(payload)?;
        *last = upto;
        last_frame = at;
        at = behind(at, len);
    }
    Ok((last_frame, at))
}

/// Whether a frame newer than `last` stands anywhere behind `at`. What an earlier use of the
/// file left is older, and the write that was cut off is no frame.
pub(super) fn holds_newer(epoch: u64, segment: &[u8], at: usize, last: u64) -> bool {
    let mut at = at;
    while let Some(rest) = segment.get(at..).filter(|rest| rest.len() > FRAME_HEADER_BYTES) {
        if let Decoded::Frame { first, .. } = decode_frame(epoch, rest)
            && first > last
        {
            return true;
        }
        at += PAGE as usize;
    }
    false
}

/// Whether a file of this length holds a frame newer than `last` anywhere.
pub(super) fn holds_newer_file(
    shelf: &impl Shelf,
    (file, len): (u64, u64),
    epoch: u64,
    last: u64,
) -> io::Result<bool> {
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    let read = shelf.read(file, 0, &mut bytes)?;
    bytes.truncate(read);
    Ok(holds_newer(epoch, &bytes, PAGE as usize, last))
}

//! The journal: the order in which a target's transactions become durable.
//!
//! Pure. An [`Appender`] collects records (one per transaction) and hands them out as
//! [`Frame`]s, one per group commit; the disk backend writes a frame with one write and one
//! sync. Recovery feeds what it finds to [`decode_frame`] and stops at the first frame that
//! is torn, which is the end of what was ever acknowledged.
//!
//! A frame on disk, little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 4 | magic `SJF1` |
//! | 4 | length of the payload |
//! | 8 | epoch of the journal, changed whenever it is made anew, so that frames left in recycled segments are not believed |
//! | 8 | transno of the first record |
//! | 8 | transno of the last record |
//! | 4 | CRC-32C of the payload |
//! | 4 | CRC-32C of the 36 bytes before |
//! | n | records: u32 length, u64 transno, bytes |

use std::collections::VecDeque;

use sateen_wire::codec::{Input, Wire};
use sateen_wire::disk::crc32c;

/// Bytes of a frame before its payload.
pub const FRAME_HEADER_BYTES: usize = 40;
/// Largest payload of a frame, unless one record alone is larger: what does not fit goes into
/// the next one.
pub const FRAME_PAYLOAD_MAX: usize = 16 << 20;

const RECORD_HEADER_BYTES: usize = 12;
const MAGIC: u32 = 0x3146_4a53;

/// Collects records between two group commits.
#[derive(Debug)]
pub struct Appender {
    epoch: u64,
    /// Frames that are full, oldest first: bytes with room for the header, first, last.
    full: VecDeque<(Vec<u8>, u64, u64)>,
    buffer: Vec<u8>,
    spare: Vec<u8>,
    header: Vec<u8>,
    first: u64,
    last: u64,
}

/// One group commit's worth of records, ready to be written.
#[derive(Debug)]
pub struct Frame {
    /// Header and payload.
    pub bytes: Vec<u8>,
    /// Transno of the first record.
    pub first: u64,
    /// Transno of the last record: once the frame is durable, so is everything up to here.
    pub last: u64,
}

impl Appender {
    /// An empty appender of the journal with this epoch, after transno `last`.
    pub fn new(epoch: u64, last: u64) -> Appender {
        let (buffer, spare, header) = (Vec::new(), Vec::new(), Vec::new());
        Appender { epoch, full: VecDeque::new(), buffer, spare, header, first: 0, last }
    }

    /// Transno of the last record ever appended.
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Bytes waiting to be written.
    pub fn pending_bytes(&self) -> usize {
        self.full.iter().fold(self.buffer.len(), |sum, (bytes, ..)| sum + bytes.len())
    }

    /// Appends the record of the next transaction and returns its transno.
    pub fn append(&mut self, record: &[u8]) -> u64 {
        let len = self.buffer.len() + RECORD_HEADER_BYTES + record.len();
        if !self.buffer.is_empty() && len > FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX {
            let full = core::mem::take(&mut self.buffer);
            self.full.push_back((full, self.first, self.last));
        }
        if self.buffer.is_empty() {
            self.buffer.resize(FRAME_HEADER_BYTES, 0);
            self.first = self.last + 1;
        }
        self.last += 1;
        (record.len() as u32).put(&mut self.buffer);
        self.last.put(&mut self.buffer);
        self.buffer.extend_from_slice(record);
        self.last
    }

    /// Takes everything appended so far as one frame, or as much as fits into one.
    pub fn take(&mut self) -> Option<Frame> {
        let (mut bytes, first, last) = match self.full.pop_front() {
            Some(full) => full,
            None if self.buffer.is_empty() => return None,
            None => {
                let next = core::mem::take(&mut self.spare);
                (core::mem::replace(&mut self.buffer, next), self.first, self.last)
            }
        };
        let payload = bytes.get(FRAME_HEADER_BYTES..).unwrap_or_default();
        let crc = crc32c(payload);
        let len = payload.len() as u32;
        // The scratch is kept: a frame's bytes can only be appended to.
        let header = &mut self.header;
        header.clear();
        MAGIC.put(header);
        len.put(header);
        self.epoch.put(header);
        first.put(header);
        last.put(header);
        crc.put(header);
        crc32c(header).put(header);
        if let Some(front) = bytes.get_mut(..FRAME_HEADER_BYTES) {
            front.copy_from_slice(header);
        }
        Some(Frame { bytes, first, last })
    }

    /// Gives a written frame's buffer back, so that steady work allocates nothing.
    pub fn recycle(&mut self, mut bytes: Vec<u8>) {
        bytes.clear();
        if bytes.capacity() > self.spare.capacity() && bytes.capacity() <= FRAME_PAYLOAD_MAX {
            self.spare = bytes;
        }
    }
}

/// What stands at some place of a journal.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// A whole frame of this journal's epoch.
    Frame {
        /// Transno of the first record.
        first: u64,
        /// Transno of the last record.
        last: u64,
        /// The records, for [`records`].
        payload: &'a [u8],
        /// Bytes of header and payload.
        len: usize,
    },
    /// No frame of this epoch: the end of the journal, or a torn write.
    End,
}

/// Reads the frame at the front of `bytes`.
pub fn decode_frame(epoch: u64, bytes: &[u8]) -> Decoded<'_> {
    decode(epoch, bytes).unwrap_or(Decoded::End)
}

fn decode(epoch: u64, bytes: &[u8]) -> Option<Decoded<'_>> {
    let (header, rest) = bytes.split_first_chunk::<FRAME_HEADER_BYTES>()?;
    let (fields, crc) = header.split_last_chunk::<4>()?;
    if crc32c(fields) != u32::from_le_bytes(*crc) {
        return None;
    }
    let mut input = Input::new(fields);
    let magic = u32::take(&mut input).ok()?;
    let len = u32::take(&mut input).ok()? as usize;
    let found_epoch = u64::take(&mut input).ok()?;
    let first = u64::take(&mut input).ok()?;
    let last = u64::take(&mut input).ok()?;
    let payload_crc = u32::take(&mut input).ok()?;
    if magic != MAGIC || found_epoch != epoch || first > last {
        return None;
    }
    let payload = rest.get(..len)?;
    if crc32c(payload) != payload_crc {
        return None;
    }
    Some(Decoded::Frame { first, last, payload, len: FRAME_HEADER_BYTES + len })
}

/// The records of a frame's payload: (transno, bytes). The payload's checksum was right, so
/// a record that does not fit is an error of the writer, reported as `Err` once.
pub fn records(payload: &[u8]) -> impl Iterator<Item = Result<(u64, &[u8]), Malformed>> {
    let mut input = Input::new(payload);
    let mut broken = false;
    core::iter::from_fn(move || {
        if input.is_empty() || broken {
            return None;
        }
        let mut next = || {
            let len = u32::take(&mut input).ok()? as usize;
            let transno = u64::take(&mut input).ok()?;
            Some((transno, input.bytes(len).ok()?))
        };
        let record = next();
        broken = record.is_none();
        Some(record.ok_or(Malformed))
    })
}

/// A record that does not fit into its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("a journal record does not fit into its frame")
    }
}

impl core::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> Frame {
        let mut appender = Appender::new(9, 4);
        assert_eq!(appender.append(b"one"), 5);
        assert_eq!(appender.append(b""), 6);
        assert_eq!(appender.append(b"three"), 7);
        appender.take().unwrap()
    }

    #[test]
    fn frames_round_trip() {
        let frame = frame();
        let Decoded::Frame { first, last, payload, len } = decode_frame(9, &frame.bytes) else {
            panic!("a whole frame");
        };
        assert_eq!((first, last, len), (5, 7, frame.bytes.len()));
        let all: Vec<_> = records(payload).map(|r| r.unwrap()).collect();
        assert_eq!(all, [(5, &b"one"[..]), (6, b""), (7, b"three")]);
        assert_eq!(decode_frame(8, &frame.bytes), Decoded::End);
    }

    #[test]
    fn what_does_not_fit_goes_into_the_next_frame() {
        let mut appender = Appender::new(9, 0);
        let record = vec![7; 5 << 20];
        for transno in 1..=7 {
            assert_eq!(appender.append(&record), transno);
        }
        let mut next = 1;
        let mut frames = 0;
        while let Some(frame) = appender.take() {
            let Decoded::Frame { first, last, payload, .. } = decode_frame(9, &frame.bytes) else {
                panic!("a whole frame");
            };
            assert!(payload.len() <= FRAME_PAYLOAD_MAX);
            assert_eq!((first, next), (frame.first, frame.first));
            for found in records(payload) {
                assert_eq!(found, Ok((next, &record[..])));
                next += 1;
            }
            assert_eq!(last, next - 1);
            frames += 1;
            appender.recycle(frame.bytes);
        }
        assert_eq!((next, frames, appender.pending_bytes()), (8, 3, 0));
        assert_eq!(appender.append(b"after"), 8);
        let frame = appender.take().unwrap();
        assert_eq!((frame.first, frame.last), (8, 8));
    }

    #[test]
    fn a_frame_cut_or_changed_anywhere_is_the_end() {
        let frame = frame();
        for cut in 0..frame.bytes.len() {
            assert_eq!(decode_frame(9, &frame.bytes[..cut]), Decoded::End);
            let mut bad = frame.bytes.clone();
            bad[cut] ^= 0x40;
            assert_eq!(decode_frame(9, &bad), Decoded::End, "byte {cut}");
        }
    }

    /// What a frame says of itself, in place of what the appender wrote there, with sums that fit.
    fn saying(frame: &Frame, at: usize, field: &[u8]) -> Vec<u8> {
        let mut bytes = frame.bytes.clone();
        bytes[at..at + field.len()].copy_from_slice(field);
        let crc = crc32c(&bytes[..FRAME_HEADER_BYTES - 4]);
        bytes[FRAME_HEADER_BYTES - 4..FRAME_HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn what_is_whole_but_no_frame_of_this_journal_is_the_end() {
        let frame = frame();
        assert_ne!(decode_frame(9, &saying(&frame, 0, b"SJF1")), Decoded::End, "as it was");
        assert_eq!(decode_frame(9, &saying(&frame, 0, b"SJF2")), Decoded::End);
        assert_eq!(decode_frame(9, &saying(&frame, 8, &8_u64.to_le_bytes())), Decoded::End);
        assert_eq!(decode_frame(9, &saying(&frame, 16, &8_u64.to_le_bytes())), Decoded::End);
        // A frame of one record begins and ends with it.
        assert_ne!(decode_frame(9, &saying(&frame, 16, &7_u64.to_le_bytes())), Decoded::End);
    }

    #[test]
    fn records_that_do_not_fit_are_told_of_once() {
        let frame = frame();
        let payload = &frame.bytes[FRAME_HEADER_BYTES..];
        let cut: Vec<_> = records(&payload[..payload.len() - 1]).collect();
        assert_eq!(cut, [Ok((5, &b"one"[..])), Ok((6, b"")), Err(Malformed)]);
        assert_eq!(records(&[]).count(), 0);
    }

    #[test]
    fn what_waits_is_counted() {
        let mut appender = Appender::new(9, 4);
        assert_eq!((appender.last(), appender.pending_bytes()), (4, 0));
        assert!(appender.is_empty() && appender.take().is_none());
        appender.append(b"one");
        let one = FRAME_HEADER_BYTES + RECORD_HEADER_BYTES + 3;
        assert_eq!((appender.last(), appender.pending_bytes()), (5, one));
        assert!(!appender.is_empty());
        // What is full counts, too.
        appender.append(&vec![7; FRAME_PAYLOAD_MAX]);
        let large = FRAME_HEADER_BYTES + RECORD_HEADER_BYTES + FRAME_PAYLOAD_MAX;
        assert_eq!((appender.last(), appender.pending_bytes()), (6, one + large));
    }

    #[test]
    fn a_frame_is_filled_to_its_last_byte() {
        let half = FRAME_PAYLOAD_MAX / 2 - RECORD_HEADER_BYTES;
        for (more, frames) in [(0, 1), (1, 2)] {
            let mut appender = Appender::new(9, 0);
            appender.append(&vec![7; half]);
            appender.append(&vec![7; half + more]);
            let taken: Vec<_> = core::iter::from_fn(|| appender.take()).collect();
            assert_eq!(taken.len(), frames, "{more} bytes more than fit");
            assert_eq!(taken[0].bytes.len() == FRAME_HEADER_BYTES + FRAME_PAYLOAD_MAX, more == 0);
        }
    }

    #[test]
    fn the_largest_buffer_is_used_again_but_none_that_is_too_large() {
        /// The buffer of the frame after the next one is the one that was given back last.
        fn after_next(appender: &mut Appender) -> *const u8 {
            appender.append(b"next");
            appender.take().unwrap();
            appender.append(b"after");
            appender.take().unwrap().bytes.as_ptr()
        }
        let mut appender = Appender::new(9, 0);
        let (small, large) = (Vec::with_capacity(1000), Vec::with_capacity(2000));
        let huge = Vec::with_capacity(FRAME_PAYLOAD_MAX + 1);
        let wanted = large.as_ptr();
        appender.recycle(large);
        appender.recycle(small);
        appender.recycle(huge);
        assert_eq!(after_next(&mut appender), wanted);
        let most = Vec::with_capacity(FRAME_PAYLOAD_MAX);
        let wanted = most.as_ptr();
        appender.recycle(most);
        assert_eq!(after_next(&mut appender), wanted);
    }
}

//! The first page of a segment.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | magic `SATEENJ1` |
//! | 4 | version of the format |
//! | 4 | zero |
//! | 8 | features that must be known to touch the journal: none yet |
//! | 8 | epoch of the journal, as in its frames |
//! | 8 | number of the segment in the log |
//! | 8 | the log's last transno before this segment |
//! | 8 | length of the segment in bytes |
//! | 4 | CRC-32C of the 56 bytes before |
//!
//! Little-endian; the rest of the page is zero.

use sateen_wire::codec::{DecodeError, Input, Wire};
use sateen_wire::disk::crc32c;

use super::PAGE;

const MAGIC: u64 = 0x314a_4e45_4554_4153;
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 60;
/// Longest segment that is believed.
const SEGMENT_BYTES_MAX: u64 = 1 << 30;

const _: () = assert!(HEADER_BYTES <= 512, "a device writes a sector whole or not at all");

/// What a segment says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) epoch: u64,
    pub(super) seq: u64,
    pub(super) before: u64,
    pub(super) bytes: u64,
}

/// What stands where a header should.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeaderRead {
    Header(Header),
    /// Never begun.
    Zeros,
    Newer(u32),
    Unreadable,
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut page = Vec::with_capacity(PAGE as usize);
        MAGIC.put(&mut page);
        VERSION.put(&mut page);
        0u32.put(&mut page);
        0u64.put(&mut page);
        self.epoch.put(&mut page);
        self.seq.put(&mut page);
        self.before.put(&mut page);
        self.bytes.put(&mut page);
        let crc = crc32c(&page);
        crc.put(&mut page);
        page.resize(PAGE as usize, 0);
        page
    }

    pub(super) fn decode(page: &[u8]) -> HeaderRead {
        if page.iter().all(|byte| *byte == 0) {
            return HeaderRead::Zeros;
        }
        Self::read(page).unwrap_or(HeaderRead::Unreadable)
    }

    fn read(page: &[u8]) -> Result<HeaderRead, DecodeError> {
        let head = page.get(..HEADER_BYTES).ok_or(DecodeError::Short)?;
        let (fields, crc) = head.split_last_chunk::<4>().ok_or(DecodeError::Short)?;
        if crc32c(fields) != u32::from_le_bytes(*crc) {
            return Ok(HeaderRead::Unreadable);
        }
        let mut input = Input::new(fields);
        let magic = u64::take(&mut input)?;
        let version = u32::take(&mut input)?;
        let _zero = u32::take(&mut input)?;
        let features = u64::take(&mut input)?;
        let epoch = u64::take(&mut input)?;
        let seq = u64::take(&mut input)?;
        let before = u64::take(&mut input)?;
        let bytes = u64::take(&mut input)?;
        if magic != MAGIC {
            return Ok(HeaderRead::Unreadable);
        }
        if version > VERSION || features != 0 {
            return Ok(HeaderRead::Newer(version));
        }
        if !(2 * PAGE..=SEGMENT_BYTES_MAX).contains(&bytes) || seq == 0 || seq == u64::MAX {
            return Ok(HeaderRead::Unreadable);
        }
        Ok(HeaderRead::Header(Self { epoch, seq, before, bytes }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip_and_notice_every_changed_byte() {
        let header = Header { epoch: 77, seq: 3, before: 500, bytes: 1 << 20 };
        let page = header.encode();
        assert_eq!(page.len() as u64, PAGE);
        assert_eq!(Header::decode(&page), HeaderRead::Header(header));
        assert_eq!(Header::decode(&vec![0; PAGE as usize]), HeaderRead::Zeros);
        for at in 0..HEADER_BYTES {
            let mut bad = page.clone();
            bad[at] ^= 4;
            assert_eq!(Header::decode(&bad), HeaderRead::Unreadable, "byte {at}");
        }
    }

    /// Damaged in a few places, most with their checksum made right again, or cut.
    #[test]
    fn damaged_headers_do_no_harm() {
        let mut random = crate::testing::Random::seeded(1);
        let mut believed = 0;
        for round in 0..100_000 {
            let header = Header {
                epoch: random.below(1 << 31),
                seq: 1 + random.below(1 << 31),
                before: random.below(1 << 31),
                bytes: 2 * PAGE + random.below(1 << 20),
            };
            let mut page = header.encode();
            for _ in 0..round % 5 {
                let at = random.below(HEADER_BYTES as u64 + 4) as usize;
                page[at] ^= 1 << random.below(8);
            }
            if random.below(4) > 0 {
                let crc = crc32c(&page[..HEADER_BYTES - 4]);
                page[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
            }
            if random.below(8) == 0 {
                page.truncate(random.below(HEADER_BYTES as u64) as usize);
            }
            let taken = super::super::header_is_believed(&page);
            assert!(taken || round % 5 > 0 || page.len() < HEADER_BYTES, "{header:?} is refused");
            believed += u64::from(taken);
        }
        assert!((30_000..90_000).contains(&believed), "{believed} of 100000 believed");
    }

    #[test]
    fn a_newer_format_is_refused_not_misread() {
        let header = Header { epoch: 77, seq: 3, before: 500, bytes: 1 << 20 };
        for at in [8, 16] {
            let mut page = header.encode();
            page[at] += 1;
            let crc = crc32c(&page[..HEADER_BYTES - 4]);
            page[HEADER_BYTES - 4..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
            assert!(matches!(Header::decode(&page), HeaderRead::Newer(_)), "byte {at}");
        }
    }
}

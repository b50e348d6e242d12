//! The first page of a segment of the journal, as it is and with its checksum made right.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sateen_osd_disk::journal::header_is_believed;
use sateen_wire::disk::crc32c;

/// Bytes before the checksum.
const FIELDS: usize = 56;

fuzz_target!(|bytes: &[u8]| {
    header_is_believed(bytes);
    let mut page = bytes.to_vec();
    if let Some((fields, rest)) = page.split_at_mut_checked(FIELDS)
        && let Some(crc) = rest.first_chunk_mut()
    {
        *crc = crc32c(fields).to_le_bytes();
        header_is_believed(&page);
    }
});

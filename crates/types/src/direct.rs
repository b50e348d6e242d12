//! How data has to lie that goes to a disk, or comes from it, past the page cache (`O_DIRECT`).

/// What its address, its place in the file and its length are to be multiples of: Linux wants no more
/// than a disk's block, and no block is larger than the smallest page.
pub const DIRECT_ALIGN: usize = 4096;
/// What is smaller goes through the page cache, whoever asks: to copy it is quicker than to wait for
/// the disk, and small pieces of a file go to it together.
pub const DIRECT_BYTES_MIN: usize = 64 << 10;

/// So many bytes behind this address is the next one at which such data may begin.
pub const fn to_direct_align(address: usize) -> usize {
    address.wrapping_neg() % DIRECT_ALIGN
}

/// Whether data of this length, at this place of a file, may go past the page cache, if it lies well
/// in memory.
pub const fn suits_direct(offset: u64, len: usize) -> bool {
    len >= DIRECT_BYTES_MIN
        && len.is_multiple_of(DIRECT_ALIGN)
        && offset.is_multiple_of(DIRECT_ALIGN as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_pieces_of_whole_blocks_suit() {
        let piece = DIRECT_BYTES_MIN;
        assert!(suits_direct(0, piece) && suits_direct(4096, piece + 4096));
        assert!(!suits_direct(512, piece) && !suits_direct(0, piece + 512));
        assert!(!suits_direct(0, piece - DIRECT_ALIGN));
        for address in [0, 1, 4095, 4096, 5000] {
            let skip = to_direct_align(address);
            assert!(skip < DIRECT_ALIGN && (address + skip).is_multiple_of(DIRECT_ALIGN));
        }
    }
}

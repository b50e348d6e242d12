//! What targets write down: formats shared by all targets. Each kind of target has its
//! records in a module of its own.

pub mod mdt;
pub mod mgs;
pub mod ost;
pub mod stopped;

/// CRC-32C, the checksum of every header, frame and record.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
mod tests {
    #[test]
    fn crc_is_castagnoli() {
        assert_eq!(super::crc32c(b"123456789"), 0xe306_9283);
    }
}

//! Requests of the kernel, in one piece and in the pieces that io_uring brings them in.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sateen_fuse::{Op, arg_len, decode, decode_contiguous};

/// Bytes of the header that every request has.
const HEADER: usize = 40;

fuzz_target!(|bytes: &[u8]| {
    let Ok((decoded, payload)) = decode_contiguous(bytes) else { return };
    assert!(payload <= bytes.len());
    if let Some(len) = decoded.write_len {
        assert!(payload + len <= bytes.len());
    }
    if let Op::BatchForget { items } = &decoded.request.op {
        assert!(items.len() * 16 <= bytes.len());
    }
    let (header, body) = bytes.split_at(HEADER);
    let opcode = u32::from_ne_bytes(header[4..8].try_into().unwrap());
    let (arg, payload) = body.split_at(arg_len(opcode).unwrap());
    assert_eq!(decode(header, arg, payload), Ok(decoded));
});

//! Bodies of messages, behind the checksum.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sateen_wire::Body;
use sateen_wire::codec::Wire;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(body) = Body::from_bytes(bytes) {
        assert_eq!(Body::from_bytes(&body.to_vec()), Ok(body));
    }
});

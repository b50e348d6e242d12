//! Whole messages, checksums included.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sateen_wire::Message;

fuzz_target!(|bytes: &[u8]| {
    if let Ok((message, _)) = Message::decode(bytes) {
        let again = Message::decode(&message.encode()).map(|(message, _)| message);
        assert_eq!(again, Ok(message));
    }
});

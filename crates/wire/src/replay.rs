//! Changes that a client was answered for and that a crash of its MDT has taken, as it tells the next
//! run of them, which makes them again.

use bytes::Bytes;
use sateen_types::Timespec;

use crate::codec::{DecodeError, Input, Wire, put_vec, take_vec};
use crate::wire_struct;

/// Most changes in one message.
pub const REPLAY_MAX: usize = 1024;
/// Bytes of requests and answers beyond which no further change is put into a message: 1 MiB. One
/// alone is never larger than this again.
pub const REPLAY_BYTES_MAX: usize = 1 << 20;

wire_struct! {
    /// A change, and what was decided the first time.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Replayed {
        /// The transaction that it was.
        pub transno: u64,
        /// The time that it was given.
        pub time: Timespec,
        /// The request, an encoded [`crate::MdtRequest`]; read one by one, so that no message nests
        /// in itself.
        pub request: Bytes,
        /// Its answer, an encoded [`crate::MdtReply`].
        pub answer: Bytes,
    }
}

/// At most [`REPLAY_MAX`].
impl Wire for Vec<Replayed> {
    fn put(&self, out: &mut Vec<u8>) {
        put_vec(out, self);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        take_vec(input, REPLAY_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_a_limit() {
        let time = Timespec { sec: 1, nsec: 2 };
        let one = Replayed { transno: 5, time, request: Bytes::new(), answer: Bytes::new() };
        let mut all = vec![one.clone(); REPLAY_MAX];
        assert_eq!(Vec::<Replayed>::from_bytes(&Wire::to_vec(&all)), Ok(all.clone()));
        all.push(one);
        assert_eq!(Vec::<Replayed>::from_bytes(&Wire::to_vec(&all)), Err(DecodeError::TooLong));
    }
}

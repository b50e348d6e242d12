//! Requests to the MGS and its replies: which targets there are.

use sateen_types::{Endpoint, Nid};

use crate::codec::{DecodeError, Input, Wire, put_vec, take_vec};
use crate::{wire_enum, wire_struct};

/// Most targets of one file system.
pub const TARGETS_MAX: usize = 1 << 16;

impl Wire for Nid {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Nid::Lo => 0u8.put(out),
            Nid::Tcp { addr, net } => {
                1u8.put(out);
                out.extend_from_slice(&addr.octets());
                net.put(out);
            }
        }
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::take(input)? {
            0 => Nid::Lo,
            1 => Nid::Tcp { addr: input.array::<4>()?.into(), net: u16::take(input)? },
            _ => return Err(DecodeError::Invalid),
        })
    }
}

wire_struct! {
    /// One target of the file system.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct TargetInfo {
        /// Which.
        pub target: Endpoint,
        /// Where it is reached.
        pub nid: Nid,
        /// Taken out of use by the administrator.
        pub inactive: bool,
    }
}

impl Wire for Vec<TargetInfo> {
    fn put(&self, out: &mut Vec<u8>) {
        put_vec(out, self);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        take_vec(input, TARGETS_MAX)
    }
}

wire_enum! {
    /// A request to the MGS.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum MgsRequest {
        /// The configuration. Answer: `Config`.
        1 => GetConfig,
        /// A target announces itself. Refused with `EEXIST` if the index is taken by another
        /// target. Answer: `Config`.
        2 => Register {
            /// The target.
            info: TargetInfo,
            /// The target's own id, written when it was made.
            uuid: u64,
        },
    }
}

wire_enum! {
    /// What the MGS answers.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum MgsReply {
        /// All that a client must know to mount.
        1 => Config {
            /// Grows with every change.
            version: u64,
            /// The targets, by kind and index.
            targets: Vec<TargetInfo>,
        },
    }
}

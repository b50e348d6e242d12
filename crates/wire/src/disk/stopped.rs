//! What a target writes down as it stops in good order, so that its clients can go on with the
//! next run.
//!
//! All of it stands under one tag, `R`: alone it is the key of the [`StopMark`], which is written
//! last, and which the next run removes before it does anything. Records without the mark are of a
//! run that got no further, and count for nothing.
//!
//! | key behind the tag | value |
//! |---|---|
//! | nothing | [`StopMark`] |
//! | client | [`StoppedClient`] |
//! | client, slot | [`StoppedSlot`] |

use sateen_types::Endpoint;

use crate::codec::{DecodeError, Input, Wire, put_vec, take_vec};
use crate::lock::LockId;
use crate::mdt::OpenId;
use crate::message::Reply;
use crate::reclaim::{HeldFileLock, HeldOpen};
use crate::wire_struct;

/// Most runs that an OST remembers.
pub const CLEAN_RUNS_MAX: usize = 64;

/// First byte of the keys.
pub const TAG: u8 = b'R';

wire_struct! {
    /// The target stopped in good order.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct StopMark {
        /// Of the run that ended so.
        pub boot_epoch: u64,
    }
}

wire_struct! {
    /// A client that may come back.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct StoppedClient {
        /// Where it is reached.
        pub peer: Endpoint,
        /// The number of the attempt by which it last connected: those before are overtaken.
        pub attempt: u64,
    }
}

wire_struct! {
    /// A slot of a client.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct StoppedSlot {
        /// Its last request that was executed.
        pub seq: u64,
        /// The answer to that, without locks, in case it is asked again.
        pub reply: Reply,
        /// What it has opened, if that is open still.
        pub open: Option<HeldOpen>,
        /// What it has closed.
        pub closed: Option<OpenId>,
        /// The lock that it has given back.
        pub cancelled: Option<LockId>,
        /// The lock of a program that it has asked for, and what its owner has within that range.
        pub file_lock: Option<HeldFileLock>,
        /// See there.
        pub has: Vec<HeldFileLock>,
    }
}

/// Runs of an OST of which nothing is lost, in the order of time. It stands alone under the tag,
/// and stays: what is durable of them later runs cannot take back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CleanRuns {
    /// Their boot epochs.
    pub epochs: Vec<u64>,
}

impl Wire for CleanRuns {
    fn put(&self, out: &mut Vec<u8>) {
        put_vec(out, &self.epochs);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        Ok(CleanRuns { epochs: take_vec(input, CLEAN_RUNS_MAX)? })
    }
}

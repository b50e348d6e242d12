//! What a client had of an MDT that was stopped or has crashed, as it tells the next run of it.
//!
//! After a stop in good order everything whose giving back the MDT has not answered counts as held: a
//! lock whose `Cancel` is under way, an open whose `Close` is. The MDT knows what of it was executed.
//! After a crash it does not, and others may have had such a lock since: it is not told of.

use sateen_types::{Comb, Fid, Seq};

use crate::codec::{DecodeError, Input, Wire, put_vec, take_vec};
use crate::file_lock::FileLock;
use crate::lock::{Ibits, LockId, LockMode};
use crate::mdt::{OpenFlags, OpenId};
use crate::wire_struct;

/// Most entries of each list in one message.
pub const RECLAIM_MAX: usize = 4096;

wire_struct! {
    /// A lock that is held.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct HeldLock {
        /// The inode.
        pub fid: Fid,
        /// Its name, which it keeps.
        pub id: LockId,
        /// The mode.
        pub mode: LockMode,
        /// The parts covered.
        pub bits: Ibits,
    }
}

wire_struct! {
    /// A group lock that is held, or given back and not answered.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct HeldGroup {
        /// The file.
        pub fid: Fid,
        /// Its name, which it keeps.
        pub id: LockId,
        /// The group.
        pub gid: u64,
    }
}

wire_struct! {
    /// A part of a file's data that is held, or given back and not answered.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct HeldPart {
        /// The file.
        pub fid: Fid,
        /// Its name, which it keeps.
        pub id: LockId,
        /// Its records.
        pub comb: Comb,
    }
}

/// Most locks that one `Cancel` gives back beside its first.
pub const GIVEN_BACK_MAX: usize = 255;

wire_struct! {
    /// A lock that is given back.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct GivenBack {
        /// The inode.
        pub fid: Fid,
        /// The lock.
        pub id: LockId,
    }
}

/// At most [`GIVEN_BACK_MAX`].
impl Wire for Vec<GivenBack> {
    fn put(&self, out: &mut Vec<u8>) {
        put_vec(out, self);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        take_vec(input, GIVEN_BACK_MAX)
    }
}

wire_struct! {
    /// A file that is open.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct HeldOpen {
        /// The name of the open.
        pub open_id: OpenId,
        /// The file.
        pub fid: Fid,
        /// What for; it is not cut again.
        pub flags: OpenFlags,
        /// Its `Close` has not been answered. After a crash it may have been executed, and the file
        /// be gone with it.
        pub closing: bool,
    }
}

wire_struct! {
    /// A lock of a program.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct HeldFileLock {
        /// The file.
        pub fid: Fid,
        /// Through which open; one that is told of in this message or before it.
        pub open_id: OpenId,
        /// The lock, which is no `Unlock`.
        pub lock: FileLock,
    }
}

macro_rules! wire_lists {
    ($($t:ty),*) => {$(
        /// At most [`RECLAIM_MAX`].
        impl Wire for Vec<$t> {
            fn put(&self, out: &mut Vec<u8>) {
                put_vec(out, self);
            }
            fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
                take_vec(input, RECLAIM_MAX)
            }
        }
    )*};
}
wire_lists!(HeldLock, HeldGroup, HeldPart, HeldOpen, HeldFileLock, Seq);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_a_limit() {
        let mut seqs = vec![Seq(7); RECLAIM_MAX];
        assert_eq!(
            Vec::<Seq>::from_bytes(&Wire::to_vec(&seqs)).map(|seqs| seqs.len()),
            Ok(RECLAIM_MAX)
        );
        seqs.push(Seq(7));
        assert_eq!(Vec::<Seq>::from_bytes(&Wire::to_vec(&seqs)), Err(DecodeError::TooLong));
        let mut given = vec![GivenBack { fid: Fid::ROOT, id: LockId(1) }; GIVEN_BACK_MAX];
        assert_eq!(Vec::<GivenBack>::from_bytes(&Wire::to_vec(&given)).as_ref(), Ok(&given));
        given.push(GivenBack { fid: Fid::ROOT, id: LockId(1) });
        let taken = Vec::<GivenBack>::from_bytes(&Wire::to_vec(&given));
        assert_eq!(taken, Err(DecodeError::TooLong));
    }
}

//! Sequences of FIDs: granting them to clients, and whether a client may use a FID.
//!
//! Life of a sequence: granted durably to one client incarnation; used by its creates; given
//! up when the client goes, or, after a restart after which its client did not come back, when
//! the objects under it were compared with the inodes (`startup`).

use std::collections::BTreeMap;

use sateen_types::{ClientId, Errno, Fid, Seq, seq};
use sateen_wire::disk::mdt::SeqState;

/// Most sequences that one client incarnation may draw.
pub const SEQS_PER_CLIENT_MAX: u32 = 1 << 16;

#[derive(Debug)]
struct Granted {
    client: ClientId,
    /// Highest object id used so far: FIDs above it need no look into the store.
    high: u32,
}

/// The sequences of one MDT.
#[derive(Debug)]
pub(crate) struct Seqs {
    mdt: u32,
    pub(crate) state: SeqState,
    granted: BTreeMap<Seq, Granted>,
}

impl Seqs {
    /// What a new MDT starts with.
    pub(crate) fn first(mdt: u32) -> Option<SeqState> {
        seq::super_first(mdt, 0).map(|next| SeqState { round: 0, next })
    }

    pub(crate) fn new(mdt: u32, state: SeqState) -> Seqs {
        Seqs { mdt, state, granted: BTreeMap::new() }
    }

    /// The next sequence, and the state to be written with its grant.
    pub(crate) fn next(&self) -> Result<(Seq, SeqState), Errno> {
        let seq = self.state.next;
        let mut after = SeqState { next: Seq(seq.0 + 1), ..self.state };
        let first = seq::super_first(self.mdt, after.round).ok_or(Errno::ENOSPC)?;
        if after.next.0 >= first.0 + seq::SUPER_WIDTH {
            after.round += 1;
            after.next = seq::super_first(self.mdt, after.round).ok_or(Errno::ENOSPC)?;
        }
        Ok((seq, after))
    }

    /// Notes a grant.
    pub(crate) fn grant(&mut self, seq: Seq, client: ClientId, state: SeqState) {
        self.state = state;
        self.granted.insert(seq, Granted { client, high: 0 });
    }

    /// Notes a grant of the run before. Which of its FIDs were used nobody knows.
    pub(crate) fn grant_again(&mut self, seq: Seq, client: ClientId) {
        self.granted.insert(seq, Granted { client, high: u32::MAX });
    }

    /// Whether somebody has it.
    pub(crate) fn is_granted(&self, seq: Seq) -> bool {
        self.granted.contains_key(&seq)
    }

    /// Whether this client has it.
    pub(crate) fn is_of(&self, seq: Seq, client: ClientId) -> bool {
        self.granted.get(&seq).is_some_and(|granted| granted.client == client)
    }

    /// Whether `client` may name a new file so. `Ok(true)`: nobody can have used it before.
    pub(crate) fn check(&self, client: ClientId, fid: Fid) -> Result<bool, Errno> {
        match self.granted.get(&fid.seq) {
            Some(granted) if granted.client == client => Ok(fid.oid > granted.high),
            _ => Err(Errno::EINVAL),
        }
    }

    /// A FID was used.
    pub(crate) fn used(&mut self, fid: Fid) {
        if let Some(granted) = self.granted.get_mut(&fid.seq) {
            granted.high = granted.high.max(fid.oid);
        }
    }

    /// A client is gone.
    pub(crate) fn forget(&mut self, seq: Seq) {
        self.granted.remove(&seq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn super_sequences_follow_each_other() {
        let first = Seqs::first(3).unwrap();
        let last = SeqState { round: 0, next: Seq(first.next.0 + seq::SUPER_WIDTH - 1) };
        let seqs = Seqs::new(3, last);
        let (seq, after) = seqs.next().unwrap();
        assert_eq!(seq, last.next);
        assert_eq!(after.round, 1);
        assert_eq!(seq::mdt_of(after.next), 3);
    }

    #[test]
    fn fids_belong_to_whom_they_were_granted() {
        let mut seqs = Seqs::new(0, Seqs::first(0).unwrap());
        let (seq, state) = seqs.next().unwrap();
        seqs.grant(seq, ClientId(1), state);
        let fid = Fid::new(seq, 5);
        assert_eq!(seqs.check(ClientId(1), fid), Ok(true));
        assert_eq!(seqs.check(ClientId(2), fid), Err(Errno::EINVAL));
        seqs.used(fid);
        assert_eq!(seqs.check(ClientId(1), fid), Ok(false));
        assert_eq!(seqs.check(ClientId(1), Fid::new(seq, 6)), Ok(true));
        assert_eq!(seqs.check(ClientId(1), Fid::new(Seq(seq.0 + 1), 1)), Err(Errno::EINVAL));
    }
}

//! What is lost of a file with its clients and with the MDT, and whose fsync may tell of it.

use std::collections::BTreeSet;

use sateen_types::ClientId;

use super::pieces::{Keepers, NOBODY, Piece};
use super::{Data, NEVER};

impl Data {
    /// What this client knows to be durable it knows no more.
    fn gives_up(&mut self, client: ClientId) {
        let all = self.pending.iter_mut().chain(&mut self.maybe);
        all.filter(|piece| piece.client == client).for_each(|piece| piece.client = NOBODY);
    }

    /// A client is lost with what it kept, or some of it: whoever reads from `settles_ns` on
    /// sees what. Whether it kept anything.
    fn keeper_lost(&mut self, client: ClientId, settles_ns: u64) -> bool {
        let (lost, left) = core::mem::take(&mut self.kept)
            .into_iter()
            .partition::<Vec<_>, _>(|piece| piece.client == client);
        self.kept = left;
        let tagged = self.maybe.iter_mut();
        tagged.filter(|piece| piece.client == client).for_each(|piece| piece.client = NOBODY);
        let kept_any = !lost.is_empty();
        for piece in lost {
            self.also(piece.offset, piece.bytes, settles_ns.max(piece.settles_ns));
        }
        kept_any
    }

    /// Whether an fsync of this client may say that something was lost.
    pub fn may_hear(&self, client: ClientId) -> bool {
        self.may_hear.contains_key(&client)
    }

    /// An fsync of this client, with this number, failed.
    pub fn told(&mut self, client: ClientId, op: u64) {
        self.perhaps_told(client);
        self.heard(client, op);
    }

    /// An fsync of this client, with this number, has said all there was to say.
    pub(super) fn heard(&mut self, client: ClientId, op: u64) {
        if self.may_hear.get(&client).is_some_and(|since| op > *since) {
            self.may_hear.remove(&client);
        }
    }

    /// An fsync of this client failed, or a synchronous write, perhaps in its fsync. As in
    /// Linux, the next one speaks of later writes only.
    pub fn perhaps_told(&mut self, client: ClientId) {
        self.lost.retain(|piece| piece.client != client);
        self.gives_up(client);
    }

    /// The file was removed, and a crash has brought it back: what its clients wrote before and
    /// did not sync, nobody remembers any more.
    pub fn is_back(&mut self) {
        self.lost.clear();
        for piece in &mut self.pending {
            piece.client = NOBODY;
        }
    }

    /// This client's next fsync may say that something was lost.
    pub fn let_hear(&mut self, client: ClientId, op: u64) {
        self.may_hear.insert(client, op);
    }

    /// An OST crashed: whoever has unsynced writes may hear of it, and has not all of them. `op` is the
    /// last operation that has begun. How many may not.
    pub fn everybody_may_hear_of_a_loss(&mut self, op: u64, keepers: &Keepers) -> usize {
        let (promised, others): (Vec<_>, Vec<_>) =
            self.writers.iter().copied().partition(|client| keepers.all.contains(client));
        others.into_iter().for_each(|client| self.let_hear(client, op));
        let count = promised.len();
        self.promised.extend(promised);
        count
    }

    /// Who has promised to tell of no loss.
    pub fn promised(&self) -> &BTreeSet<ClientId> {
        &self.promised
    }

    /// A client has not everything any more that an OST has lost, or has synced it. `op` as above.
    pub fn need_not_promise(&mut self, client: ClientId, op: u64) {
        if self.promised.remove(&client) {
            self.let_hear(client, op);
        }
    }

    /// A client is lost, which may have known the size best. If it `goes_on` as another it may tell of
    /// what it kept; that is the last operation that has begun.
    pub fn writer_lost(&mut self, client: ClientId, settles_ns: u64, goes_on: Option<u64>) {
        let kept_any = self.keeper_lost(client, settles_ns);
        if let Some(op) = goes_on.filter(|_| kept_any) {
            self.let_hear(client, op);
        }
        if self.writers.contains(&client) {
            self.size_doubtful(settles_ns);
        }
    }

    /// What stands in memory of the MDT and of clients about the size is lost, and of the
    /// MDT's transactions those above `upto`.
    pub fn mdt_lost(&mut self, upto: u64, settles_ns: u64) {
        self.cut_to = self.cut_to.filter(|(transno, _)| *transno <= upto);
        for (transno, (low, high)) in core::mem::take(&mut self.resized) {
            if transno > upto {
                self.may_be_cut(low, settles_ns);
                self.may_be_cut(high, settles_ns);
                if low < high {
                    self.loosen(low, high, settles_ns);
                }
            }
        }
        // Who has lost nothing goes on, with what it keeps; of the others it is found out later.
        for Piece { offset, bytes, .. } in self.kept.clone() {
            self.also(offset, bytes, NEVER);
        }
        self.size_doubtful(settles_ns);
    }

    /// The MDT is back, and has this size on its disk, or at least this one if it is stale.
    /// False if it cannot be.
    pub fn mdt_back(&mut self, size: u64, stale: bool, settles_ns: u64) -> bool {
        if !stale {
            let right = self.may_be_size(size);
            if right {
                self.unreliable = false;
                self.settle_size(size);
            }
            return right;
        }
        if let Some((low, high, _)) = self.sizes {
            self.sizes = Some((low.max(size.min(high)), high, settles_ns));
            self.cuts.retain(|cut| *cut >= size);
        }
        true
    }

    pub(super) fn size_doubtful(&mut self, settles_ns: u64) {
        self.unreliable = true;
        let cut_to = self.cut_to.map_or(0, |(_, size)| size);
        self.loosen(self.synced_size.max(cut_to).min(self.size()), self.size(), settles_ns);
    }
}

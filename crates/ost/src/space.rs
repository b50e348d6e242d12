//! Space: how much is free, how much of it is promised to whom.
//!
//! A grant is a promise to one client that so many bytes of later writes will find room, so
//! that it may answer its programs before the OST has the data. Called by the operations
//! that take space; never does I/O itself: what is free comes from a `statfs` that the
//! service asks for now and then, and what was written since is counted on top.
//!
//! 1. `give` promises some of what is neither taken nor promised.
//! 2. `charge`, when a write begins, turns the promise into space taken.
//! 3. `finished`, when it has ended: the next `statfs` sees it.

use std::collections::BTreeMap;

use sateen_types::ClientId;
use sateen_types::units::MIB;
use sateen_wire::StatFs;

/// Most bytes promised to one client.
pub(crate) const GRANT_CLIENT_MAX: u64 = 256 * MIB;
/// What one client may be promised even when many share little space.
const GRANT_CLIENT_MIN: u64 = 2 * MIB;
/// What a client may hold of what it was promised unasked: as much as it keeps of writes, by
/// default.
const AHEAD_MAX: u64 = 64 * MIB;
/// What is left must be so many times what is promised unasked.
const PLENTY: u64 = 256;
/// Most bytes kept back for the file system below and for our own metadata.
const RESERVE_MAX: u64 = 256 * MIB;
/// The reserve is at most this part of a small store.
const RESERVE_PART: u64 = 16;

/// The accounts of one OST.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// What the store said last, and `finished` at the moment it was asked.
    known: Option<(StatFs, u128)>,
    grants: BTreeMap<ClientId, u64>,
    /// Sum of `grants`.
    promised: u64,
    /// Bytes of writes that were begun, and that have ended, since the start. Ranges to be
    /// allocated count by pieces.
    started: u128,
    finished: u128,
    /// What is left to do of the ranges that there was room for. Writes and promises do not look
    /// at it, but another range does: both would fail, and what they had of the store until then
    /// would be full.
    to_come: u128,
    /// It became scarce: ask the store soon.
    scarce: bool,
}

impl Space {
    /// To be remembered when a `statfs` is asked for, and given to [`Space::learn`].
    pub(crate) fn mark(&self) -> u128 {
        self.finished
    }

    /// The store's answer to a `statfs` asked at `mark`.
    pub(crate) fn learn(&mut self, statfs: StatFs, mark: u128) {
        if self.known.is_none_or(|(_, older)| older <= mark) {
            self.known = Some((statfs, mark));
            self.scarce = false;
        }
    }

    /// Whether something was written since the store was asked.
    pub(crate) fn is_old(&self) -> bool {
        self.known.is_none_or(|(_, mark)| mark != self.started)
    }

    /// Whether the store should be asked at once.
    pub(crate) fn is_scarce(&self) -> bool {
        self.scarce
    }

    /// Something freed or failed: what is known is worth little.
    pub(crate) fn doubt(&mut self) {
        self.scarce = true;
    }

    fn reserve(statfs: &StatFs) -> u64 {
        (statfs.bytes_total / RESERVE_PART).min(RESERVE_MAX)
    }

    /// Bytes neither taken nor promised; `None` while the store was not asked.
    fn available(&self) -> Option<u64> {
        let (statfs, mark) = self.known.as_ref()?;
        Some(statfs.bytes_avail.saturating_sub(self.gone(statfs, *mark)))
    }

    /// A write of `len` bytes begins, for which the client uses up `claimed` bytes of its
    /// grant. Returns how many it had. The charge holds until [`Space::finished`], whether or
    /// not it [`Space::fits`].
    pub(crate) fn charge(&mut self, client: ClientId, claimed: u64, len: u64) -> u64 {
        let held = self.grants.get_mut(&client);
        let used = held.as_deref().copied().unwrap_or(0).min(claimed);
        if let Some(held) = held {
            *held -= used;
        }
        self.promised -= used;
        self.started += u128::from(len);
        used
    }

    /// Whether there is room for all that was promised and begun. While the store was not
    /// asked there is: it will say so itself if there is not.
    pub(crate) fn fits(&self) -> bool {
        self.known.is_none_or(|(statfs, mark)| self.gone(&statfs, mark) <= statfs.bytes_avail)
    }

    /// Whether there is room for so much of a range that was not begun yet, likewise. `own` is what
    /// is known already to come of it.
    pub(crate) fn has_room_for(&self, len: u64, own: u64) -> bool {
        let others = self.to_come - u128::from(own);
        self.available().is_none_or(|available| u128::from(len) + others <= u128::from(available))
    }

    /// So much is to come of a range, of which `own` was.
    pub(crate) fn comes(&mut self, own: &mut u64, len: u64) {
        assert!(self.to_come >= u128::from(*own), "only what was to come does not any more");
        self.to_come -= u128::from(core::mem::replace(own, len));
        self.to_come += u128::from(len);
    }

    /// Bytes of the store that are spoken for.
    fn gone(&self, statfs: &StatFs, mark: u128) -> u64 {
        self.taken(statfs, mark).saturating_add(self.promised)
    }

    /// The same without promises.
    fn taken(&self, statfs: &StatFs, mark: u128) -> u64 {
        let unseen = u64::try_from(self.started - mark).unwrap_or(u64::MAX);
        Self::reserve(statfs).saturating_add(unseen)
    }

    /// A write that was charged has ended.
    pub(crate) fn finished(&mut self, len: u64) {
        self.finished += u128::from(len);
        assert!(self.finished <= self.started, "only what was charged ends");
    }

    /// Promises a client up to `wanted` bytes more, and returns how many.
    pub(crate) fn give(&mut self, client: ClientId, wanted: u64) -> u64 {
        let Some(available) = self.available() else { return 0 };
        let sharers = 4 * (self.grants.len() as u64).max(1);
        let cap = (available / sharers).clamp(GRANT_CLIENT_MIN, GRANT_CLIENT_MAX);
        let held = self.grants.entry(client).or_insert(0);
        let given = wanted.min(cap.saturating_sub(*held)).min(available);
        *held += given;
        self.promised += given;
        if given < wanted {
            self.scarce = true;
        }
        given
    }

    /// What a client was promised and has not used.
    pub(crate) fn granted(&self, client: ClientId) -> u64 {
        self.grants.get(&client).copied().unwrap_or(0)
    }

    /// Whom something is promised.
    pub(crate) fn clients(&self) -> impl Iterator<Item = ClientId> + '_ {
        self.grants.iter().filter(|(_, grant)| **grant > 0).map(|(client, _)| *client)
    }

    /// Whether so many bytes may be promised to somebody who has not asked, and may never use
    /// them.
    pub(crate) fn is_plenty_for(&self, bytes: u64) -> bool {
        self.available().is_some_and(|available| bytes <= available / PLENTY)
    }

    /// How much of this may be promised to a client that has not asked.
    pub(crate) fn ahead(&self, client: ClientId, bytes: u64) -> u64 {
        bytes.min(AHEAD_MAX.saturating_sub(self.granted(client)))
    }

    /// The client is gone, or has forgotten: its grant goes back.
    pub(crate) fn release(&mut self, client: ClientId) {
        self.promised -= self.grants.remove(&client).unwrap_or(0);
    }

    /// What `df` is told: without what is kept back, so that it shows none left when writes
    /// are refused. Promises do not count: they may never be used.
    pub(crate) fn shown(&self) -> Option<StatFs> {
        let (statfs, mark) = self.known.as_ref()?;
        let gone = self.taken(statfs, *mark);
        Some(StatFs {
            bytes_free: statfs.bytes_free.saturating_sub(gone),
            bytes_avail: statfs.bytes_avail.saturating_sub(gone),
            ..*statfs
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statfs(bytes: u64) -> StatFs {
        StatFs { bytes_total: bytes, bytes_free: bytes, bytes_avail: bytes, ..StatFs::default() }
    }

    #[test]
    fn promises_never_exceed_what_is_free() {
        let mut space = Space::default();
        assert_eq!(space.give(ClientId(1), 1), 0, "nothing is known yet");
        space.learn(statfs(16 * MIB), 0);
        let free = 15 * MIB;
        let mut promised = 0;
        for client in 0..20 {
            promised += space.give(ClientId(client), 8 * MIB);
            assert!(promised <= free);
        }
        assert_eq!(promised, free, "all of it can be promised");
        assert_eq!(space.charge(ClientId(0), 4096, 4096), 4096);
        assert!(space.fits(), "what was promised has room");
        assert_eq!(space.charge(ClientId(98), 1 << 40, 1), 0, "a grant nobody gave is none");
        assert!(!space.fits(), "nothing is left without a grant");
        space.release(ClientId(1));
        space.charge(ClientId(99), 0, MIB);
        assert!(space.fits());
    }

    #[test]
    fn the_longest_range_can_be_asked_for_again_and_again() {
        let (mut space, longest) = (Space::default(), i64::MAX as u64);
        space.learn(statfs(16 * MIB), 0);
        for _ in 0..4 {
            space.charge(ClientId(1), 0, longest);
            assert!(!space.fits());
            space.finished(longest);
        }
        space.learn(statfs(16 * MIB), space.mark());
        space.charge(ClientId(1), 0, MIB);
        assert!(space.fits());
    }

    #[test]
    fn what_was_written_since_is_taken() {
        let mut space = Space::default();
        space.learn(statfs(128 * MIB), 0);
        space.charge(ClientId(1), 0, 100 * MIB);
        assert!(space.fits());
        space.charge(ClientId(1), 0, 28 * MIB);
        assert!(!space.fits());
        space.finished(100 * MIB);
        let mark = space.mark();
        space.finished(28 * MIB);
        space.learn(statfs(200 * MIB), mark);
        space.charge(ClientId(1), 0, 100 * MIB);
        assert!(space.fits());
        space.learn(statfs(0), 0);
        assert!(space.shown().is_some_and(|s| s.bytes_avail > 0), "an older answer is ignored");
    }
}

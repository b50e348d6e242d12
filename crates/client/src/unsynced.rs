//! Objects that were written and not synced, of inodes that this client has dropped.
//!
//! An inode goes when the kernel has forgotten it and its last handle is closed; what it wrote
//! may still be in the memory of OSTs. One line per object stays here: that it was written, and
//! under which boot epoch. That is enough, because
//! - an fsync of the file under a new inode syncs all objects of its layout anyhow (nothing says
//!   that nobody else has written); from here it only learns which answers it must not believe:
//!   those of an OST that has restarted since;
//! - a sync of the whole mount needs the objects' names and no more;
//! - the size was reported by the close, or goes with the lock as the inode is dropped.
//!
//! A line goes when its object is synced, by whomever, or its file has lost its last name. An
//! OST's `last_committed` does not tell: it speaks of the records about objects, not of their
//! bytes. Therefore, when there are too many lines, the client begins to sync them itself, and
//! when that is too slow, writes to the OST that is behind wait for it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use sateen_types::{Errno, Fid, ObjectId, Result};

use crate::by_stripe::ByStripe;
use crate::client::Client;
use crate::ended::EndedWell;
use crate::inode::Unsynced;
use crate::loss::{Asker, Loss};
use crate::patience;
use crate::sync::{Waiters, join_all, lock, until};

/// With more lines than this the client begins to sync. A line is about 100 bytes, so that
/// this is a few megabytes.
const OBJECTS_MAX: usize = 65_536;
/// With more than this, writes to OSTs that have more than their share of them wait.
const OBJECTS_LIMIT: usize = 2 * OBJECTS_MAX;
/// Objects in one request of the client's own. What cuts or removes one of them waits for all.
const SYNC_OBJECTS_MAX: usize = 256;
/// After a sync that failed, the next one waits so long: 1 s.
const SYNC_AGAIN_NS: u64 = 1_000_000_000;

/// The last writes of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Written {
    boot_epoch: u64,
    /// When the inode was dropped, to tell these writes from later ones of the same object.
    stamp: u64,
}

#[derive(Debug, Default)]
struct OfOst {
    objects: BTreeMap<ObjectId, Written>,
    /// The client is syncing them.
    syncing: bool,
}

#[derive(Debug, Default)]
struct State {
    osts: BTreeMap<u32, OfOst>,
    /// Files of which acknowledged writes may be lost. There are as many as an OST lost by a
    /// restart, however much is written otherwise.
    lost: BTreeMap<Fid, Loss>,
    waiters: Waiters,
}

impl State {
    fn lose(&mut self, fid: Fid, loss: Loss) {
        if loss != Loss::None {
            self.lost.entry(fid).or_default().add(loss);
        }
    }

    fn count(&self) -> usize {
        self.osts.values().map(|ost| ost.objects.len()).sum()
    }
}

/// The objects of all OSTs.
#[derive(Debug, Default)]
pub(crate) struct UnsyncedObjects {
    state: Mutex<State>,
    /// How many there are, to be looked at by every write.
    count: AtomicUsize,
}

fn objects_of(fid: Fid) -> core::ops::RangeInclusive<ObjectId> {
    ObjectId { fid, stripe: 0 }..=ObjectId { fid, stripe: u32::MAX }
}

impl OfOst {
    fn remove(&mut self, fid: Fid) -> Vec<(ObjectId, Written)> {
        let found: Vec<_> = self.objects.range(objects_of(fid)).map(|(o, w)| (*o, *w)).collect();
        for (object, _) in &found {
            self.objects.remove(object);
        }
        found
    }

    /// Whether these are still the last writes of the object.
    fn is_last(&self, (object, written): &(ObjectId, Written)) -> bool {
        self.objects.get(object) == Some(written)
    }
}

impl UnsyncedObjects {
    /// Changes the table, counts anew, and wakes those who wait for room.
    fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let (value, woken) = {
            let mut state = lock(&self.state);
            let value = change(&mut state);
            self.count.store(state.count(), Ordering::Relaxed);
            (value, state.waiters.take())
        };
        woken.wake();
        value
    }

    /// An inode is dropped, with what it leaves to be synced. Returns the OSTs that the client
    /// is now to sync itself, by [`Client::sync_in_background`].
    pub(crate) fn leave(
        &self,
        fid: Fid,
        unsynced: ByStripe<Unsynced>,
        loss: Loss,
        (stamp, ended): (u64, &EndedWell),
    ) -> Vec<u32> {
        if unsynced.is_empty() && loss == Loss::None {
            return Vec::new();
        }
        // Nobody is to be woken: there is less room than before. The caller holds locks.
        let mut state = lock(&self.state);
        state.lose(fid, loss);
        for (stripe, at) in unsynced.into_iter().filter(|(_, at)| !ended.has(*at)) {
            let ost = state.osts.entry(at.ost).or_default();
            let written = Written { boot_epoch: at.boot_epoch, stamp };
            let before = ost.objects.insert(ObjectId { fid, stripe }, written);
            // Written before and after a restart.
            let is_durable = |boot_epoch| ended.has(Unsynced { boot_epoch, ..at });
            let before = before.filter(|before| !is_durable(before.boot_epoch));
            let lost = before.is_some_and(|before| before.boot_epoch != at.boot_epoch);
            state.lose(fid, Loss::found(lost));
        }
        let count = state.count();
        self.count.store(count, Ordering::Relaxed);
        let mut due = Vec::new();
        for (index, ost) in state.osts.iter_mut().filter(|_| count > OBJECTS_MAX) {
            if !ost.syncing && !ost.objects.is_empty() {
                ost.syncing = true;
                due.push(*index);
            }
        }
        due
    }

    /// What was left of a file, and whether some of it may be lost: whoever asks syncs it, and
    /// says so.
    pub(crate) fn take(&self, fid: Fid) -> (ByStripe<Unsynced>, Loss) {
        self.update(|state| {
            let mut unsynced = ByStripe::default();
            for (index, ost) in &mut state.osts {
                for (object, written) in ost.remove(fid) {
                    let at = Unsynced { ost: *index, boot_epoch: written.boot_epoch };
                    unsynced.insert(object.stripe, at);
                }
            }
            (unsynced, state.lost.remove(&fid).unwrap_or_default())
        })
    }

    /// What was written to an OST in runs that ended in good order has not to be synced.
    pub(crate) fn drop_durable(&self, ost: u32, ended: &EndedWell) {
        self.update(|state| {
            if let Some(of_ost) = state.osts.get_mut(&ost) {
                let is_durable = |boot_epoch| ended.has(Unsynced { ost, boot_epoch });
                of_ost.objects.retain(|_, written| !is_durable(written.boot_epoch));
            }
        });
    }

    /// Whether anything is left of a file.
    pub(crate) fn has(&self, fid: Fid) -> bool {
        let state = lock(&self.state);
        let mut osts = state.osts.values();
        state.lost.contains_key(&fid)
            || osts.any(|ost| ost.objects.range(objects_of(fid)).next().is_some())
    }

    /// Whether some of what was left of a file may be lost, and its owner was not told.
    pub(crate) fn has_lost(&self, fid: Fid) -> bool {
        lock(&self.state).lost.contains_key(&fid)
    }

    /// Objects that are left, and files that lost some.
    pub(crate) fn census(&self) -> (usize, usize) {
        (self.count.load(Ordering::Relaxed), lock(&self.state).lost.len())
    }

    /// Somebody may have nothing to wait for any more.
    pub(crate) fn wake(&self) {
        self.update(|_| ());
    }

    /// Waits until there is room to write to an OST, or it is out of use.
    ///
    /// # Errors
    /// `EINTR` if nobody waits any more.
    pub(crate) async fn room(&self, ost: u32, in_use: impl Fn() -> bool) -> Result<()> {
        if self.count.load(Ordering::Relaxed) <= OBJECTS_LIMIT {
            return Ok(());
        }
        let has_room = |state: &mut State| {
            let count = state.count();
            let share = OBJECTS_MAX / state.osts.len().max(1);
            let own = state.osts.get(&ost).map_or(0, |ost| ost.objects.len());
            if count <= OBJECTS_LIMIT || own <= share || !in_use() {
                return Some(Ok(()));
            }
            patience::is_over().then_some(Err(Errno::EINTR))
        };
        until(&self.state, |state| &mut state.waiters, has_room).await
    }

    /// Some objects of one OST are durable, or the OST could not make them so.
    fn synced(&self, ost: u32, objects: &[(ObjectId, Written)], lost: bool) {
        self.update(|state| {
            for line in objects {
                let Some(of_ost) = state.osts.get_mut(&ost) else { return };
                if of_ost.is_last(line) {
                    of_ost.objects.remove(&line.0);
                    state.lose(line.0.fid, Loss::found(lost));
                }
            }
        });
    }

    /// Whether the client need not sync more by itself; then it has ended.
    fn is_enough(&self, ost: u32, stopped: bool) -> bool {
        self.update(|state| {
            let count = state.count();
            let Some(of_ost) = state.osts.get_mut(&ost) else { return true };
            let enough = stopped || count <= OBJECTS_MAX || of_ost.objects.is_empty();
            of_ost.syncing = !enough;
            enough
        })
    }
}

impl Client {
    /// Syncs what inodes that were dropped have left on one OST. Objects stay in the table
    /// until they are durable: a file's own fsync asks for them once more and gets the OST's
    /// own word.
    ///
    /// # Errors
    /// The first one met. What may be lost is noted, to be told by the file's next fsync.
    async fn sync_left_on(&self, ost: u32) -> Result<()> {
        let mut by_epoch: BTreeMap<u64, Vec<(ObjectId, Written)>> = BTreeMap::new();
        if let Some(of_ost) = lock(&self.unsynced.state).osts.get(&ost) {
            for (object, written) in &of_ost.objects {
                by_epoch.entry(written.boot_epoch).or_default().push((*object, *written));
            }
        }
        let mut result = Ok(());
        for (boot_epoch, all) in by_epoch {
            for part in all.chunks(SYNC_OBJECTS_MAX) {
                let objects: Vec<_> = part.iter().map(|(object, _)| *object).collect();
                match self.ost_sync(ost, &objects, boot_epoch).await {
                    Some(synced) => {
                        self.unsynced.synced(ost, part, synced.is_err());
                        result = result.and(synced);
                    }
                    // The connection was lost: the next sync learns whether the OST, too.
                    None => return Err(Errno::EIO),
                }
            }
        }
        result
    }

    /// Syncs what inodes that were dropped have left on all OSTs.
    ///
    /// # Errors
    /// `EIO` if some of it may be lost, also if that was found earlier and not told yet; the
    /// file's own fsync is told all the same. The OSTs' otherwise.
    pub(crate) async fn sync_left(&self) -> Result<()> {
        let osts: Vec<u32> = lock(&self.unsynced.state).osts.keys().copied().collect();
        let syncs = osts.into_iter().map(|ost| {
            let sync: std::pin::Pin<Box<dyn Future<Output = Result<()>> + Send + '_>> =
                Box::pin(self.sync_left_on(ost));
            sync
        });
        let synced: Result<()> = join_all(syncs.collect()).await.into_iter().collect();
        let lost = self.unsynced.update(|state| {
            let told = state.lost.values_mut().map(|loss| loss.tell(Asker::Everybody));
            told.fold(false, |any, told| any | told)
        });
        if lost { synced.and(Err(Errno::EIO)) } else { synced }
    }

    /// Syncs what dropped inodes have left on one OST until there is room again. One such task
    /// per OST: one that does not answer keeps back nobody else's.
    pub(crate) fn sync_in_background(self: &Arc<Client>, ost: u32) {
        let client = self.clone();
        self.port.spawn(Box::pin(async move {
            loop {
                let synced = client.sync_left_on(ost).await;
                if client.unsynced.is_enough(ost, client.is_stopped()) {
                    return;
                }
                if let Err(error) = synced {
                    tracing::warn!(ost, %error, "closed files could not be synced");
                    client.port.sleep(SYNC_AGAIN_NS).await;
                }
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use core::pin::pin;
    use core::task::{Context, Waker};

    use sateen_types::Seq;

    use super::*;

    fn fid(oid: usize) -> Fid {
        Fid::new(Seq(0x2_0000_0400), oid as u32)
    }

    /// A file with an object on one OST is dropped.
    fn leave(left: &UnsyncedObjects, oid: usize, (ost, boot_epoch): (u32, u64)) -> Vec<u32> {
        left.leave(
            fid(oid),
            ByStripe::from_iter([(0, Unsynced { ost, boot_epoch })]),
            Loss::None,
            (1, &EndedWell::default()),
        )
    }

    fn has_room(left: &UnsyncedObjects, ost: u32) -> bool {
        goes_on(left, ost, true)
    }

    fn goes_on(left: &UnsyncedObjects, ost: u32, in_use: bool) -> bool {
        pin!(left.room(ost, || in_use)).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn writes_wait_for_the_ost_that_is_behind() {
        let left = UnsyncedObjects::default();
        leave(&left, 1, (1, 5));
        let due: Vec<_> =
            (2..OBJECTS_LIMIT + 1).flat_map(|oid| leave(&left, oid, (0, 5))).collect();
        assert_eq!(due, [0, 1], "each is synced by one task");
        assert!(has_room(&left, 0) && has_room(&left, 1));
        leave(&left, OBJECTS_LIMIT + 1, (0, 5));
        assert!(!has_room(&left, 0));
        assert!(has_room(&left, 1), "it is another's fault");
        assert!(goes_on(&left, 0, false), "nobody waits for one that is out of use");
        left.synced(
            0,
            &[(ObjectId { fid: fid(2), stripe: 0 }, Written { boot_epoch: 5, stamp: 1 })],
            false,
        );
        assert!(has_room(&left, 0));
        assert!(!left.is_enough(0, false) && left.is_enough(0, true));
    }

    #[test]
    fn a_sync_speaks_only_for_the_writes_before_it() {
        let left = UnsyncedObjects::default();
        leave(&left, 1, (0, 5));
        let (object, before) =
            (ObjectId { fid: fid(1), stripe: 0 }, Written { boot_epoch: 5, stamp: 1 });
        // Opened, written and dropped again while the sync was on its way.
        let again = ByStripe::from_iter([(0, Unsynced { ost: 0, boot_epoch: 5 })]);
        left.leave(fid(1), again, Loss::None, (2, &EndedWell::default()));
        left.synced(0, &[(object, before)], false);
        assert!(left.has(fid(1)));
        left.synced(0, &[(object, Written { stamp: 2, ..before })], false);
        assert!(!left.has(fid(1)));
    }

    #[test]
    fn writes_before_and_after_a_restart_may_be_lost() {
        let left = UnsyncedObjects::default();
        leave(&left, 1, (0, 5));
        leave(&left, 1, (0, 6));
        let (unsynced, loss) = left.take(fid(1));
        assert_eq!(loss, Loss::New);
        assert_eq!(unsynced.get(0).map(|at| at.boot_epoch), Some(6));
        assert!(!left.has(fid(1)));
        assert_eq!(left.census(), (0, 0));
    }

    #[test]
    fn what_a_run_that_ended_well_had_is_durable() {
        let (left, ended) = (UnsyncedObjects::default(), EndedWell::default());
        leave(&left, 1, (0, 5));
        leave(&left, 2, (1, 5));
        ended.add(0, 5);
        let later = |ost, boot_epoch| ByStripe::from_iter([(0, Unsynced { ost, boot_epoch })]);
        left.leave(fid(1), later(0, 6), Loss::None, (2, &ended));
        left.leave(fid(3), later(0, 5), Loss::None, (2, &ended));
        left.drop_durable(0, &ended);
        assert!(!left.has(fid(3)) && left.has(fid(2)));
        let (unsynced, loss) = left.take(fid(1));
        assert_eq!((unsynced.get(0).map(|at| at.boot_epoch), loss), (Some(6), Loss::None));
    }
}

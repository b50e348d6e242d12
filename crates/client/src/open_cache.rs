//! Opens that are kept: a file that programs open again is not closed at its MDT each time.
//!
//! The close of an open is kept back: the MDT has the file open for this client still, and the next
//! open of its kind (for reading alone, or for writing) takes that over, if its attributes are known
//! under locks. It costs no request then. Not so the close of who has made the file, because most are
//! not opened again soon, and a file that is removed while it is open has to be removed twice, its
//! name first; nor of opens to execute, which keep others from writing, or with `O_TRUNC`. Where the
//! servers are in this process it is the second close that is kept back.
//!
//! **An open for reading lives as long as the locks on the inode's names and attributes**, one for
//! writing as long as these and the lock for writing its data. Whoever removes the last name takes the
//! first back: then it is closed, before the lock is given back, and the file goes. So it is also when
//! the kernel forgets the inode, and when the file has lost its last name here. Whoever reads, writes
//! or cuts the file elsewhere, executes it, or wants to know its size, takes the lock for writing.
//! What is to be told of size and times has been told before an open is kept: by a report instead of
//! the close. So the write session that an open for writing keeps at the MDT keeps nobody from
//! anything, and the MDT's size is the truth as after the close.
//!
//! **Who removes a file's last name himself closes what is kept of it first**, if he is told to, as where
//! the servers are in this process: a file that is open when its name goes has to be removed twice.
//! Where they are not it is closed after that, because a close travels with the next message, and
//! meanwhile the kernel would keep the whole directory from others. So is one that a rename replaces.
//! Which inode a name is of only the kernel's names know, so an inode has a hash of the name by which
//! it was found.
//!
//! **Of what the kernel forgets a few are closed at a time** at each MDT. A kernel that needs memory forgets
//! tens of thousands of inodes at once, and as many requests would wait for a slot, each with a task.
//! Until its turn comes an open stays where it is: a lock that is asked back, and who leaves, find it
//! there.
//!
//! A close for which nobody waits may fail: then the MDT has the file open until this client is gone. That
//! is counted, and logged.
//!
//! What a restart of an MDT needs to know of opens lies elsewhere (`Client::at_mdts`), and these are
//! among it. After an eviction those from before are void, like all opens.

use std::collections::{BTreeMap, VecDeque};
use std::hash::Hasher;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use sateen_types::{Attr, Errno, FastHasher, FastMap, Fid, FileKind, seq};
use sateen_wire::{Ibits, OpenId};

use crate::client::Client;
use crate::inode::{Inode, InodeState};
use crate::llite::{File, OpenHow};
use crate::patience::to_the_end;
use crate::stats::Verb;
use crate::sync::{Side, join_all, join_few, lock};

/// Most that a client keeps; the oldest go for others. An MDT has a record for each, and is told of each
/// when it is started again.
const KEPT_MAX: usize = 32_768;

/// Closes for which nobody waits, at one MDT at once.
const CLOSES_MAX: usize = 8;

/// How many there are, in which order they came, and how many were of use.
#[derive(Debug, Default)]
pub(crate) struct OpenCache {
    kept: Arc<AtomicUsize>,
    reused: AtomicU64,
    /// What is kept of a file is closed before its last name is removed.
    closes_first: AtomicBool,
    /// How often that was the case.
    closed_first: AtomicU64,
    /// Those that an MDT has refused to close, and has open for nobody.
    unclosed: AtomicU64,
    order: Arc<Mutex<Order>>,
    /// What is to be closed, by the index of the MDT that has it.
    closing: Mutex<BTreeMap<u32, Closing>>,
}

/// Inodes of one MDT with opens that are of no use any more, and for which nobody waits.
#[derive(Debug, Default)]
struct Closing {
    waiting: VecDeque<Arc<Inode>>,
    /// Tasks that close them.
    tasks: usize,
}

impl Closing {
    /// One more. Whether it takes one more task.
    fn add(&mut self, inode: Arc<Inode>) -> bool {
        self.waiting.push_back(inode);
        let more = self.tasks < CLOSES_MAX;
        self.tasks += usize::from(more);
        more
    }

    /// Whose turn it is with a task; with nobody left it ends.
    fn next(&mut self) -> Option<Arc<Inode>> {
        let next = self.waiting.pop_front();
        self.tasks -= usize::from(next.is_none());
        next
    }
}

/// Those that were kept, oldest first; some are gone since.
#[derive(Debug, Default)]
struct Order {
    next: u64,
    all: VecDeque<(u64, Weak<Inode>)>,
    /// By which name each was found. Of two of one hash one is known, and a file with two kept opens until
    /// one of them goes.
    named: FastMap<u32, Fid>,
}

/// A hash of a name of a directory, never 0.
fn name_hash(dir: Fid, name: &[u8]) -> u32 {
    let mut hasher = FastHasher::default();
    hasher.write_u64(dir.seq.0);
    hasher.write_u32(dir.oid);
    hasher.write(name);
    (hasher.finish() as u32).max(1)
}

impl OpenCache {
    /// How many are kept, and how many were taken over, closed before their file's last name was removed,
    /// or not closed, so far.
    pub(crate) fn census(&self) -> (usize, u64, u64, u64) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (reused, first) = (count(&self.reused), count(&self.closed_first));
        (self.kept.load(Ordering::Relaxed), reused, first, count(&self.unclosed))
    }

    /// The number of the next that is kept, of this inode, and room for it. The inode, which is locked, was
    /// found by a name of this hash.
    fn place(&self, inode: &Arc<Inode>, named: u32) -> (u64, Place) {
        self.kept.fetch_add(1, Ordering::Relaxed);
        let mut order = lock(&self.order);
        order.next += 1;
        let number = order.next;
        order.all.push_back((number, Arc::downgrade(inode)));
        if named != 0 {
            order.named.insert(named, inode.fid);
        }
        let (kept, order) = (self.kept.clone(), self.order.clone());
        (number, Place { kept, order, named, fid: inode.fid })
    }

    /// Of which inode something is kept that was found by this name, if it is known; another's name may
    /// have the same hash.
    fn found_by(&self, dir: Fid, name: &[u8]) -> Option<Fid> {
        if !self.closes_first.load(Ordering::Relaxed) || self.kept.load(Ordering::Relaxed) == 0 {
            return None;
        }
        lock(&self.order).named.get(&name_hash(dir, name)).copied()
    }

    /// Whether there are too many.
    fn is_full(&self) -> bool {
        self.kept.load(Ordering::Relaxed) > KEPT_MAX
    }

    /// One is there yet.
    fn again(&self, number: u64, inode: &Arc<Inode>) {
        lock(&self.order).all.push_back((number, Arc::downgrade(inode)));
    }

    /// Those that are too many by now, oldest first, and some that are to be looked at, because many
    /// will be gone.
    fn surplus(&self) -> Vec<(u64, Weak<Inode>)> {
        let kept = self.kept.load(Ordering::Relaxed);
        let mut order = lock(&self.order);
        // Of each that was taken over a number is left, which goes in its turn.
        let gone = order.all.len().saturating_sub(2 * KEPT_MAX);
        let surplus = kept.saturating_sub(KEPT_MAX).max(gone).min(order.all.len());
        order.all.drain(..surplus).collect()
    }
}

/// One of the places that there are.
#[derive(Debug)]
struct Place {
    kept: Arc<AtomicUsize>,
    order: Arc<Mutex<Order>>,
    named: u32,
    fid: Fid,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.kept.fetch_sub(1, Ordering::Relaxed);
        if self.named == 0 {
            return;
        }
        let mut order = lock(&self.order);
        if order.named.get(&self.named) == Some(&self.fid) {
            order.named.remove(&self.named);
        }
    }
}

/// An open that no program has any more, and the MDT still has.
#[derive(Debug)]
pub(crate) struct KeptOpen {
    pub(crate) id: OpenId,
    /// When the MDT was asked for it: one from before an eviction is void.
    pub(crate) asked_at: u64,
    era: u64,
    number: u64,
    _place: Place,
}

/// Those of one inode.
#[derive(Debug, Default)]
pub(crate) struct KeptOpens {
    read: Option<KeptOpen>,
    write: Option<KeptOpen>,
    /// Its turn to have what is of no use closed is about to come.
    queued: bool,
}

impl KeptOpens {
    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.read.is_none() && self.write.is_none()
    }

    fn of(&self, write: bool) -> &Option<KeptOpen> {
        if write { &self.write } else { &self.read }
    }

    fn of_mut(&mut self, write: bool) -> &mut Option<KeptOpen> {
        if write { &mut self.write } else { &mut self.read }
    }
}

/// Whether the MDT has one such open for another of its kind.
fn is_plain(how: OpenHow) -> bool {
    (how.read || how.write) && !how.truncate && !how.exec
}

impl InodeState {
    /// Whether the locks are there, and stay, under which an open is kept.
    fn keeps_opens(&self, write: bool) -> bool {
        self.covers(Ibits::META) && (!write || self.keeps_session())
    }

    /// Whether nobody else has anything to do with the data: a write session may stay.
    fn keeps_session(&self) -> bool {
        let own = self.locks.iter().any(|held| held.owns_data() && !held.cancelling);
        own && !self.is_sharing() && !self.is_given()
    }

    /// Whether an open of that kind that is kept is of use still, and may stay.
    fn open_stays(&self, write: bool) -> bool {
        let is_forgotten = self.lookups == 0 && self.opens == 0;
        let has_name = !self.nameless && self.attr.is_some_and(|attr| attr.nlink > 0);
        has_name && !is_forgotten && self.keeps_opens(write)
    }

    /// What is kept of it, if it cannot be of use any more, or must not stay.
    fn take_useless_opens(&mut self) -> [Option<KeptOpen>; 2] {
        if self.kept_opens.is_empty() {
            return [None, None];
        }
        [false, true].map(|write| {
            if self.open_stays(write) {
                return None;
            }
            self.rare_if_any()?.kept_opens.of_mut(write).take()
        })
    }

    /// Whether there is such an open, and whether it has to be queued for that.
    fn has_useless_open(&mut self) -> (bool, bool) {
        let is_useless = |write| self.kept_opens.of(write).is_some() && !self.open_stays(write);
        if !is_useless(false) && !is_useless(true) {
            return (false, false);
        }
        (true, !core::mem::replace(&mut self.kept_opens.queued, true))
    }

    /// Its turn has come.
    fn take_queued_opens(&mut self) -> [Option<KeptOpen>; 2] {
        if let Some(rare) = self.rare_if_any() {
            rare.kept_opens.queued = false;
        }
        self.take_useless_opens()
    }

    /// Whether that with this number is there yet.
    fn has_old_open(&self, number: u64) -> bool {
        let KeptOpens { read, write, .. } = &self.kept_opens;
        [read, write].into_iter().flatten().any(|kept| kept.number == number)
    }

    /// Takes it, if it is.
    fn take_old_open(&mut self, number: u64) -> Option<KeptOpen> {
        let KeptOpens { read, write, .. } = &mut self.rare_if_any()?.kept_opens;
        let mut all = [read, write].into_iter();
        all.find(|kept| kept.as_ref().is_some_and(|kept| kept.number == number))?.take()
    }
}

impl Client {
    /// Takes over an open that was kept, with the attributes that are known: the file counts as open
    /// from here on.
    pub(crate) fn take_kept_open(
        self: &Arc<Client>,
        inode: &Arc<Inode>,
        how: OpenHow,
    ) -> Option<(KeptOpen, Attr)> {
        if how.exec {
            return None;
        }
        let lost_at = self.lost_at(inode.fid);
        let mut state = lock(&inode.state);
        let is_there = state.kept_opens.of(how.write).as_ref()?.asked_at >= lost_at;
        // From an open for writing on no page may stand under a lock for reading.
        let no_pages = !how.write || state.read_locks().next().is_none();
        let fits = is_there && is_plain(how) && no_pages && state.keeps_opens(how.write);
        let Some(attr) = fits.then(|| state.tell()).flatten() else {
            // Who cuts the file, for one, begins an open of his own, and may need to be alone.
            let old = if how.write { state.kept_opens.write.take() } else { None };
            drop(state);
            self.close_kept(inode, [old]);
            return None;
        };
        let kept = state.kept_opens.of_mut(how.write).take()?;
        state.begin_open(how);
        if how.write {
            state.forbid_pages();
        }
        self.open_cache.reused.fetch_add(1, Ordering::Relaxed);
        self.count(Verb::LockHit);
        Some((kept, attr))
    }

    /// Whether an open whose last descriptor is gone may be kept, once what is to be told is told.
    pub(crate) fn may_keep_open(&self, file: &File) -> bool {
        if !is_plain(file.how) || self.has_file_locks(file.inode.fid, file.id) {
            return false;
        }
        let state = lock(&file.inode.state);
        // To ask an MDT of this process costs little, and a file that is removed has to be closed then.
        let is_worth_it = state.was_open || !self.osts_are_here.load(Ordering::Relaxed);
        let is_file = |attr: Attr| attr.kind() == FileKind::Regular && attr.nlink > 0;
        // A file without a name may go at its last close, and nobody takes a lock back for that.
        let is_file = !state.nameless && state.attr.is_some_and(is_file);
        let write = file.how.write;
        let held = state.keeps_opens(write) && state.lookups > 0;
        // What could not be written out is told by open, and to whoever opens the file anew.
        let is_sound = !write || state.late.count() == 0;
        !file.made
            && is_worth_it
            && is_sound
            && is_file
            && held
            && state.kept_opens.of(write).is_none()
    }

    /// Keeps the open, if it still may be, and nothing is to be told. It has ended for this client then,
    /// and not for the MDT.
    pub(crate) fn keep_open(self: &Arc<Client>, file: &File, era: u64) -> bool {
        if !self.may_keep_open(file) {
            return false;
        }
        let write = file.how.write;
        {
            let mut state = lock(&file.inode.state);
            // What others here have written since, their closes tell, and those at the MDT have to be closes.
            let told = !state.is_untold() && state.unreported_atime.is_none();
            let is_free = state.kept_opens.of(write).is_none();
            if !told || !is_free || !state.keeps_opens(write) || state.nameless {
                return false;
            }
            let (number, _place) = self.open_cache.place(&file.inode, state.named);
            let kept = KeptOpen { id: file.id, asked_at: file.asked_at, era, number, _place };
            *state.kept_opens.of_mut(write) = Some(kept);
            state.was_open = true;
            state.end_open(file.how);
        }
        self.close_surplus();
        true
    }

    /// Closes the oldest, if there are too many.
    fn close_surplus(self: &Arc<Client>) {
        for (number, inode) in self.open_cache.surplus() {
            let Some(inode) = inode.upgrade() else { continue };
            let old = {
                let mut state = lock(&inode.state);
                if self.open_cache.is_full() {
                    state.take_old_open(number)
                } else {
                    if state.has_old_open(number) {
                        self.open_cache.again(number, &inode);
                    }
                    None
                }
            };
            self.close_kept(&inode, [old]);
        }
    }

    /// Closes what is kept of an inode, unless it is still of use: at once, since somebody waits for
    /// what he is to find closed.
    pub(crate) fn close_useless(self: &Arc<Client>, inode: &Arc<Inode>) {
        let useless = lock(&inode.state).take_useless_opens();
        self.close_kept(inode, useless);
    }

    /// What is kept of a file is closed before its last name is removed from here, not behind it.
    pub fn set_closes_first(&self) {
        self.open_cache.closes_first.store(true, Ordering::Relaxed);
    }

    /// By which name an inode is found, for [`Client::closes_before`]; 0 where nothing is closed first.
    pub(crate) fn hash_of_name(&self, dir: Fid, name: &[u8]) -> u32 {
        if self.open_cache.closes_first.load(Ordering::Relaxed) { name_hash(dir, name) } else { 0 }
    }

    /// An inode was found by a name.
    pub(crate) fn is_named(&self, inode: &Inode, dir: Fid, name: &[u8]) {
        let named = self.hash_of_name(dir, name);
        if named != 0 {
            lock(&inode.state).named = named;
        }
    }

    /// Closes what is kept of the inode with this name, which is about to be removed, if it is its last
    /// one: a request that is polled behind this comes behind it.
    pub(crate) fn closes_before(self: &Arc<Client>, dir: Fid, name: &[u8]) -> Option<Side<'_, ()>> {
        let fid = self.open_cache.found_by(dir, name)?;
        // Another MDT may be slower.
        if seq::mdt_of(fid.seq) != seq::mdt_of(dir.seq) {
            return None;
        }
        let inode = self.inodes.find(fid)?;
        let KeptOpens { read, write, .. } = {
            let mut state = lock(&inode.state);
            // It may have another name by now.
            let is_it = state.named == name_hash(dir, name);
            let goes = is_it && state.opens == 0 && state.attr.is_some_and(|attr| attr.nlink == 1);
            let kept = state.rare_if_any().filter(|_| goes).map(|rare| &mut rare.kept_opens)?;
            KeptOpens { read: kept.read.take(), write: kept.write.take(), queued: kept.queued }
        };
        if read.is_none() && write.is_none() {
            // They are on their way already.
            return None;
        }
        self.open_cache.closed_first.fetch_add(1, Ordering::Relaxed);
        Some(Box::pin(async move {
            for kept in [read, write].into_iter().flatten() {
                to_the_end(self.close_one(&inode, &kept)).await;
            }
            // The kernel may have forgotten it meanwhile.
            self.retire(inode);
        }))
    }

    /// Closes these. Who asks the MDT for something next comes behind them.
    fn close_kept(
        self: &Arc<Client>,
        inode: &Arc<Inode>,
        kept: impl IntoIterator<Item = Option<KeptOpen>>,
    ) {
        for kept in kept.into_iter().flatten() {
            let (client, inode) = (self.clone(), inode.clone());
            self.port.spawn(Box::pin(async move {
                to_the_end(client.close_one(&inode, &kept)).await;
                drop(kept);
                client.retire(inode);
            }));
        }
    }

    /// The same when its turn comes, for which nobody waits. Whether there is anything: then the inode is
    /// retired behind it.
    pub(crate) fn close_useless_in_turn(self: &Arc<Client>, inode: &Arc<Inode>) -> bool {
        let (is_there, is_new) = lock(&inode.state).has_useless_open();
        let mdt = seq::mdt_of(inode.fid.seq);
        if is_new && lock(&self.open_cache.closing).entry(mdt).or_default().add(inode.clone()) {
            self.port.spawn(Box::pin(self.clone().close_in_turn(mdt)));
        }
        is_there
    }

    /// Closes what is to be closed at an MDT until there is nothing left.
    async fn close_in_turn(self: Arc<Client>, mdt: u32) {
        let next = || lock(&self.open_cache.closing).get_mut(&mdt).and_then(Closing::next);
        while let Some(inode) = next() {
            let useless = lock(&inode.state).take_queued_opens();
            for kept in useless.into_iter().flatten() {
                to_the_end(self.close_one(&inode, &kept)).await;
            }
            self.retire(inode);
        }
    }

    /// Closes one, unless the MDT has forgotten this client, and with it the open.
    async fn close_one(&self, inode: &Inode, kept: &KeptOpen) {
        if kept.asked_at < self.lost_at(inode.fid) {
            return;
        }
        let closing = self.close_at_mdt(inode.fid, kept.id, None, Some(kept.era));
        if let Err(error) = closing.await {
            self.is_not_closed(inode.fid, kept.asked_at, error);
        }
    }

    /// The close of a kept open has failed, for which the MDT was asked at `asked_at`.
    fn is_not_closed(&self, fid: Fid, asked_at: u64, error: Errno) {
        // It has ended by itself: the MDT has forgotten this client, or knows of no such open, or it
        // is asked nothing any more and is about to forget this client.
        let is_void = asked_at < self.lost_at(fid) || self.is_stopped();
        if is_void || error == Errno::EBADF {
            tracing::debug!(%fid, %error, "a kept open is not closed");
            return;
        }
        let unclosed = self.open_cache.unclosed.fetch_add(1, Ordering::Relaxed) + 1;
        // An MDT that cannot close one can close none: not a line for each.
        if unclosed.is_power_of_two() {
            tracing::warn!(
                %fid, %error, unclosed,
                "a file stays open at its MDT: if it is removed its space is free when this client has gone"
            );
        }
    }

    /// Closes all that are kept for writing: what ends otherwise than by closes, the size of that nobody
    /// knows for sure.
    pub async fn close_kept_writes(self: &Arc<Client>) {
        let inodes = self.inodes.all();
        // One MDT that does not answer keeps nobody from closing those of others.
        let mut of_mdts: BTreeMap<u32, Vec<(Arc<Inode>, KeptOpen)>> = BTreeMap::new();
        for inode in inodes {
            // Most have nothing rare, and get none.
            let kept =
                lock(&inode.state).rare_if_any().and_then(|rare| rare.kept_opens.write.take());
            if let Some(kept) = kept {
                of_mdts.entry(seq::mdt_of(inode.fid.seq)).or_default().push((inode, kept));
            }
        }
        let all = of_mdts.into_values().map(|opens| -> Side<'_, ()> {
            Box::pin(async move {
                let closes =
                    opens.into_iter().map(|(inode, kept)| -> Side<'_, Result<(), Errno>> {
                        Box::pin(async move {
                            self.close_one(&inode, &kept).await;
                            Ok(())
                        })
                    });
                join_few(CLOSES_MAX, closes).await;
            })
        });
        join_all(all.collect()).await;
    }
}

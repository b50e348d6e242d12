//! Programs' locks, flock(2) and fcntl(2): asked for at the MDT, one by one, and kept in mind here.
//!
//! Life of a lock that is waited for: it is asked for under the name of a wait; the MDT answers at
//! once that it is queued, and no slot is held. When it is the wait's turn the MDT says so, and the
//! same is asked again, which is granted; and it is asked again every [`ASK_AGAIN_NS`] in any case,
//! because whoever asks hears if the MDT has forgotten this client. Whoever stops to wait leaves.
//!
//! A grant may cross the signal that ends the wait: then nobody hears of the lock, and what its
//! owner had before is restored. For that the client keeps what it was granted; and because an answer
//! changes that, one owner asks for one thing at a time. Nobody can be in the way of what was there
//! before, unless the grant was less: others may have come in. So a lock that only becomes weaker is
//! not asked for before nothing can cross it any more; where one grows and is weaker in a part, that
//! part stays so.
//!
//! What is given back, or shared, is so after what is kept of the file was written out.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use sateen_ldlm::{Range, Ranges};
use sateen_types::{Errno, Fid, Result, seq};
use sateen_wire::{
    FILE_LOCK_END_MAX, FileLock, FileLockMode, FileLockState, HeldFileLock, MdtReply, MdtRequest,
    OpenId, WaitId,
};

use crate::client::Client;
use crate::llite::File;
use crate::mdc::MdtAnswer;
use crate::patience::{self, to_the_end};
use crate::sync::{Waiters, lock, until};

/// Between two requests for a lock that is waited for: 10 s.
const ASK_AGAIN_NS: u64 = 10_000_000_000;
/// How long a close waits for its owner's locks to be given back: 1 s. A kernel that closes files
/// of a program that has ended cannot be interrupted in it.
const CLOSE_NS: u64 = 1_000_000_000;

#[derive(Debug)]
struct Wait {
    id: WaitId,
    /// The MDT has said that it is its turn.
    turn: bool,
}

#[derive(Debug, Default)]
struct OfFile {
    flock: Ranges,
    posix: Ranges,
    /// Owners with a request on its way, of each kind.
    asking: Vec<(bool, u64)>,
    waits: Vec<Wait>,
    /// What owners with a request on its way had within its range before it was answered.
    before: Vec<((bool, u64), Vec<Range>)>,
    waiters: Waiters,
}

impl OfFile {
    fn ranges(&mut self, flock: bool) -> &mut Ranges {
        if flock { &mut self.flock } else { &mut self.posix }
    }

    /// The MDT has answered a request of an owner: this is from now on what there is.
    fn answered(&mut self, flock: bool, new: Range) {
        let (key, ranges) = ((flock, new.owner.id), self.ranges(flock));
        let before = ranges.within(&new);
        ranges.set(new);
        if self.asking.contains(&key) {
            self.before.retain(|(of, _)| *of != key);
            self.before.push((key, before));
        }
    }

    fn is_idle(&self) -> bool {
        let none = self.flock.is_empty() && self.posix.is_empty();
        none && self.asking.is_empty() && self.waits.is_empty()
    }
}

/// The locks that this client's programs have.
#[derive(Debug, Default)]
pub(crate) struct FileLocks {
    files: BTreeMap<Fid, OfFile>,
    waits: u64,
}

impl FileLocks {
    fn file(&mut self, fid: Fid) -> &mut OfFile {
        self.files.entry(fid).or_default()
    }

    fn tidy(&mut self, fid: Fid) {
        if self.files.get(&fid).is_some_and(OfFile::is_idle) {
            self.files.remove(&fid);
        }
    }
}

/// An owner has a request on its way; no other of his is sent before this goes.
struct Asking<'a> {
    client: &'a Client,
    fid: Fid,
    key: (bool, u64),
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let woken = {
            let mut locks = lock(&self.client.file_locks);
            let file = locks.file(self.fid);
            file.asking.retain(|key| *key != self.key);
            file.before.retain(|(of, _)| *of != self.key);
            let woken = file.waiters.take();
            locks.tidy(self.fid);
            woken
        };
        woken.wake();
    }
}

/// A wait that turns are told to.
struct Waiting<'a> {
    client: &'a Client,
    fid: Fid,
    id: WaitId,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut locks = lock(&self.client.file_locks);
        locks.file(self.fid).waits.retain(|wait| wait.id != self.id);
        locks.tidy(self.fid);
    }
}

/// Why a wait ends, or does not.
enum Turn {
    /// Ask again.
    Again,
    /// Nobody waits any more.
    Over,
    /// The open is lost, and with it everything that was locked through it.
    Lost,
}

impl Client {
    /// Takes a lock of a program, changes it or gives it back, for whoever has `lock.owner`.
    /// `heard` is asked once it is there, or is sure to be, and says the same from then on: whether
    /// somebody is told. If nobody is, what was before is restored. Waiting ends as any verb does
    /// when nobody waits any more.
    ///
    /// # Errors
    /// `EAGAIN` if it is not free and is not waited for; `EINTR` if nobody waits any more, which one
    /// that is given back survives while OSTs do not take what was written under it; `EDEADLK`; `ENOLCK`; `EIO` if the open was lost with an eviction.
    pub async fn set_file_lock(
        self: &Arc<Client>,
        handle: u64,
        lock: FileLock,
        wait: bool,
        mut heard: impl FnMut() -> bool + Send,
    ) -> Result<()> {
        let era = self.era();
        let file = self.file(handle)?;
        self.locks_files.store(true, Ordering::SeqCst);
        if lock.mode == FileLockMode::Unlock {
            return self.unlock(&file, era, lock).await;
        }
        if lock.mode == FileLockMode::Read && self.has_write_lock(&file, &lock) {
            self.write_out_of(&file).await?;
        }
        let waiting = wait.then(|| self.begin_wait(file.inode.fid));
        self.take_lock(&file, (era, lock), waiting.as_ref(), &mut heard).await
    }

    async fn take_lock(
        &self,
        file: &File,
        (era, lock): (u64, FileLock),
        waiting: Option<&Waiting<'_>>,
        heard: &mut (impl FnMut() -> bool + Send),
    ) -> Result<()> {
        let mut queued = false;
        let fid = file.inode.fid;
        loop {
            let state = {
                let asking = self.ask_alone(fid, &lock).await;
                let weaker = asking.is_ok() && self.only_weakens(file, &lock);
                if weaker && !heard() {
                    return Err(Errno::EINTR);
                }
                let ask = self.ask_for(file, (era, lock), waiting.map(|w| w.id));
                let state = match &asking {
                    Ok(_) if weaker => to_the_end(ask).await,
                    Ok(_) => ask.await,
                    Err(errno) => Err(*errno),
                };
                if state == Ok(FileLockState::Granted) {
                    let before = self.had_before(fid, &lock);
                    if weaker || heard() {
                        return Ok(());
                    }
                    to_the_end(self.restore(file, (era, lock), before)).await;
                    return Err(Errno::EINTR);
                }
                state
            };
            match (state, waiting) {
                (Ok(FileLockState::Queued), Some(waiting)) => {
                    queued = true;
                    match self.turn_of(file, waiting).await {
                        Turn::Again => {}
                        Turn::Over => {
                            self.leave(file.inode.fid, era, waiting.id).await;
                            return Err(Errno::EINTR);
                        }
                        Turn::Lost => return Err(Errno::EIO),
                    }
                }
                (Ok(FileLockState::Busy), _) => return Err(Errno::EAGAIN),
                (Ok(_), _) => return Err(Errno::EPROTO),
                (Err(errno), waiting) => {
                    if let Some(waiting) = waiting.filter(|_| queued) {
                        self.leave(file.inode.fid, era, waiting.id).await;
                    }
                    return Err(errno);
                }
            }
        }
    }

    /// One request for a lock.
    async fn ask_for(
        &self,
        file: &File,
        (era, lock): (u64, FileLock),
        wait: Option<WaitId>,
    ) -> Result<FileLockState> {
        let fid = file.inode.fid;
        let request = MdtRequest::SetFileLock { fid, open_id: file.id, lock, wait };
        match self.mdt_in(era, fid, request).await {
            Ok(MdtAnswer { body: MdtReply::FileLock { state, .. }, .. }) => Ok(state),
            Ok(_) => Err(Errno::EPROTO),
            Err(errno) => Err(errno),
        }
    }

    /// Whether a lock's owner could write under some of it so far.
    fn has_write_lock(&self, file: &File, want: &FileLock) -> bool {
        let new = Range::of(self.id(), file.id, want);
        let mut locks = lock(&self.file_locks);
        let pieces = locks.file(file.inode.fid).ranges(want.flock).within(&new);
        let has = pieces.iter().any(|piece| piece.mode == FileLockMode::Write);
        locks.tidy(file.inode.fid);
        has
    }

    /// Whether a lock's owner has all of it already, and at least so.
    fn only_weakens(&self, file: &File, want: &FileLock) -> bool {
        let new = Range::of(self.id(), file.id, want);
        let mut locks = lock(&self.file_locks);
        let pieces = locks.file(file.inode.fid).ranges(want.flock).within(&new);
        let weakens = |piece: &Range| match want.mode {
            FileLockMode::Read => piece.mode != FileLockMode::Unlock,
            FileLockMode::Write => piece.mode == FileLockMode::Write,
            FileLockMode::Unlock => true,
        };
        pieces.iter().all(weakens)
    }

    /// The MDT has answered a request for a lock. Called before anybody hears of it, and before
    /// anything that comes later: what is kept here is at any moment what the MDT has said last.
    pub(crate) fn file_lock_answered(
        &self,
        (fid, open): (Fid, OpenId),
        asked: &FileLock,
        state: FileLockState,
    ) {
        let done = match state {
            FileLockState::Granted => *asked,
            // What was to be changed is gone.
            _ if asked.flock => FileLock { mode: FileLockMode::Unlock, ..*asked },
            _ => return,
        };
        let mut locks = lock(&self.file_locks);
        locks.file(fid).answered(done.flock, Range::of(self.id(), open, &done));
        locks.tidy(fid);
    }

    /// What its owner had within a range before the last request was answered.
    fn had_before(&self, fid: Fid, asked: &FileLock) -> Vec<Range> {
        let key = (asked.flock, asked.owner);
        let mut locks = lock(&self.file_locks);
        let Some(file) = locks.files.get_mut(&fid) else { return Vec::new() };
        let at = file.before.iter().position(|(of, _)| *of == key);
        at.map(|at| file.before.swap_remove(at).1).unwrap_or_default()
    }

    /// Nobody has heard of a lock that was granted: what its owner had before.
    async fn restore(&self, file: &File, (era, granted): (u64, FileLock), before: Vec<Range>) {
        let (fid, flock) = (file.inode.fid, granted.flock);
        for piece in before {
            // Asked for again it could be refused, and what there is of it be gone as well.
            if (granted.mode, piece.mode) == (FileLockMode::Read, FileLockMode::Write) {
                continue;
            }
            let set = |open_id: OpenId, lock: FileLock| {
                self.mdt_in(era, fid, MdtRequest::SetFileLock { fid, open_id, lock, wait: None })
            };
            let lock = piece.lock(flock);
            let restored = set(piece.open, lock).await;
            let piece = match restored.map(|answer| answer.body) {
                Ok(MdtReply::FileLock { state: FileLockState::Granted, .. }) => piece,
                // What it stood for is gone, as when its open was closed meanwhile.
                _ => {
                    let mode = FileLockMode::Unlock;
                    if let Err(error) = set(file.id, FileLock { mode, ..lock }).await {
                        tracing::debug!(%fid, %error, "a lock that nobody waited for stays");
                    }
                    Range { mode, ..piece }
                }
            };
            lock_of(&self.file_locks, fid, flock, piece);
        }
    }

    /// Before others may get what is locked, or look at it, the OSTs have what was written under the
    /// lock: they are not to miss it, even if this client dies. It is as where nothing is kept. What
    /// cannot be written out is told by syncs and closes.
    ///
    /// # Errors
    /// `EINTR` if nobody waits any more: the lock is as it was.
    async fn write_out_of(&self, file: &File) -> Result<()> {
        self.settle(&file.inode).await.map(drop)
    }

    /// Gives a lock back. What its owner asks for next has to wait for that from the beginning on:
    /// else a lock that is taken while this writes out would be given back by it.
    async fn unlock(&self, file: &File, era: u64, lock: FileLock) -> Result<()> {
        let _asking = self.ask_alone(file.inode.fid, &lock).await?;
        self.write_out_of(file).await?;
        to_the_end(self.ask_for(file, (era, lock), None)).await.map(drop)
    }

    /// Waits until no other request of a lock's owner is on its way.
    async fn ask_alone(&self, fid: Fid, what: &FileLock) -> Result<Asking<'_>> {
        let key = (what.flock, what.owner);
        until(
            &self.file_locks,
            |locks| &mut locks.file(fid).waiters,
            |locks| {
                let file = locks.file(fid);
                if !file.asking.contains(&key) {
                    file.asking.push(key);
                    return Some(Ok(()));
                }
                patience::is_over().then_some(Err(Errno::EINTR))
            },
        )
        .await?;
        Ok(Asking { client: self, fid, key })
    }

    fn begin_wait(&self, fid: Fid) -> Waiting<'_> {
        let mut locks = lock(&self.file_locks);
        locks.waits += 1;
        let id = WaitId { id: locks.waits };
        locks.file(fid).waits.push(Wait { id, turn: false });
        Waiting { client: self, fid, id }
    }

    /// Waits for the turn of a wait that is queued, for a while.
    async fn turn_of(&self, file: &File, waiting: &Waiting<'_>) -> Turn {
        let turn = until(
            &self.file_locks,
            |locks| &mut locks.file(waiting.fid).waiters,
            |locks| {
                if file.lost.load(Ordering::SeqCst) {
                    return Some(Turn::Lost);
                }
                if patience::is_over() {
                    return Some(Turn::Over);
                }
                let mut waits = locks.file(waiting.fid).waits.iter_mut();
                let wait = waits.find(|wait| wait.id == waiting.id)?;
                core::mem::take(&mut wait.turn).then_some(Turn::Again)
            },
        );
        self.not_longer_than(ASK_AGAIN_NS, turn).await.unwrap_or(Turn::Again)
    }

    async fn leave(&self, fid: Fid, era: u64, wait: WaitId) {
        let left = self.mdt_in(era, fid, MdtRequest::LeaveFileLock { fid, wait });
        // An MDT that was lost has forgotten the wait.
        if let Err(error) = to_the_end(left).await {
            tracing::debug!(%fid, %error, "the MDT did not hear that nobody waits for a lock");
        }
    }

    /// An MDT says that it is a wait's turn. Of one that is over it is to hear that.
    pub(crate) fn on_file_lock_turn(self: &Arc<Client>, fid: Fid, wait: WaitId) {
        let era = self.era();
        let woken = {
            let mut locks = lock(&self.file_locks);
            let file = locks.file(fid);
            let woken = match file.waits.iter_mut().find(|known| known.id == wait) {
                Some(known) => {
                    known.turn = true;
                    Some(file.waiters.take())
                }
                None => None,
            };
            locks.tidy(fid);
            woken
        };
        if let Some(woken) = woken {
            return woken.wake();
        }
        let client = self.clone();
        self.port.spawn(Box::pin(async move { client.leave(fid, era, wait).await }));
    }

    /// Whether a lock of a program could be taken now: what is in its way.
    ///
    /// # Errors
    /// `EIO` if the open was lost with an eviction.
    pub async fn test_file_lock(
        self: &Arc<Client>,
        handle: u64,
        lock: FileLock,
    ) -> Result<Option<FileLock>> {
        let era = self.era();
        let file = self.file(handle)?;
        let (fid, open_id) = (file.inode.fid, file.id);
        let request = MdtRequest::TestFileLock { fid, open_id, lock };
        match self.mdt_in(era, fid, request).await?.body {
            MdtReply::FileLock { state: FileLockState::Granted, .. } => Ok(None),
            MdtReply::FileLock { holder: Some(holder), .. } => Ok(Some(holder)),
            _ => Err(Errno::EPROTO),
        }
    }

    /// A program has closed a descriptor: what it has locked with fcntl(2), through whichever, goes.
    /// That is waited for, though not for long, and goes on in any case.
    pub async fn closed_by(self: &Arc<Client>, handle: u64, owner: u64) {
        let era = self.era();
        let Ok(file) = self.file(handle) else { return };
        let fid = file.inode.fid;
        let has = |locks: &mut FileLocks| {
            let file = locks.files.get(&fid);
            file.is_some_and(|file| file.posix.iter().any(|held| held.owner.id == owner))
        };
        if !has(&mut lock(&self.file_locks)) {
            return;
        }
        let (start, end, mode) = (0, FILE_LOCK_END_MAX, FileLockMode::Unlock);
        let all = FileLock { owner, flock: false, mode, start, end, pid: 0 };
        let ended: Arc<Mutex<(bool, Waiters)>> = Arc::default();
        let (client, tells) = (self.clone(), ended.clone());
        self.port.spawn(Box::pin(async move {
            if let Err(error) = client.unlock(&file, era, all).await {
                tracing::debug!(%fid, %error, "a close has not given its locks back");
            }
            let woken = {
                let mut ended = lock(&tells);
                ended.0 = true;
                ended.1.take()
            };
            woken.wake();
        }));
        let given_back = until(&ended, |ended| &mut ended.1, |ended| ended.0.then_some(()));
        self.not_longer_than(CLOSE_NS, given_back).await;
    }

    /// Whether something is locked through an open, which others may wait for.
    pub(crate) fn has_file_locks(&self, fid: Fid, open: OpenId) -> bool {
        if !self.locks_files.load(Ordering::SeqCst) {
            return false;
        }
        let locks = lock(&self.file_locks);
        let Some(file) = locks.files.get(&fid) else { return false };
        file.flock.iter().chain(file.posix.iter()).any(|held| held.open == open)
    }

    /// An open is closed, or about to be: the MDT drops what was locked through it.
    pub(crate) fn forget_file_locks(&self, fid: Fid, open: OpenId) {
        if !self.locks_files.load(Ordering::SeqCst) {
            return;
        }
        let mut locks = lock(&self.file_locks);
        if let Some(file) = locks.files.get_mut(&fid) {
            file.flock.drop_those(|held| held.open == open);
            file.posix.drop_those(|held| held.open == open);
        }
        locks.tidy(fid);
    }

    /// One MDT has forgotten this client, or all have, and the files are marked: nobody has locks
    /// any more, and whoever waits for one looks.
    pub(crate) fn lose_file_locks(&self, mdt: Option<u32>) {
        let mut woken = Vec::new();
        {
            let mut locks = lock(&self.file_locks);
            let concerned = |fid: &Fid| mdt.is_none_or(|mdt| mdt == seq::mdt_of(fid.seq));
            for (_, file) in locks.files.iter_mut().filter(|(fid, _)| concerned(fid)) {
                (file.flock, file.posix) = (Ranges::default(), Ranges::default());
                woken.push(file.waiters.take());
            }
            locks.files.retain(|_, file| !file.is_idle());
        }
        woken.into_iter().for_each(crate::sync::Woken::wake);
    }

    /// The locks that programs have of files of one MDT, so far as it has answered for them.
    pub(crate) fn file_locks_of(&self, mdt: u32) -> Vec<HeldFileLock> {
        let locks = lock(&self.file_locks);
        let mut all = Vec::new();
        for (fid, file) in locks.files.iter().filter(|(fid, _)| seq::mdt_of(fid.seq) == mdt) {
            for (flock, ranges) in [(true, &file.flock), (false, &file.posix)] {
                let held = |held: &Range| HeldFileLock {
                    fid: *fid,
                    open_id: held.open,
                    lock: held.lock(flock),
                };
                all.extend(ranges.iter().map(held));
            }
        }
        all
    }

    /// How many locked ranges this client's programs have.
    pub fn file_locks_held(&self) -> usize {
        let locks = lock(&self.file_locks);
        locks.files.values().map(|file| file.flock.len() + file.posix.len()).sum()
    }
}

fn lock_of(locks: &Mutex<FileLocks>, fid: Fid, flock: bool, piece: Range) {
    let mut locks = lock(locks);
    locks.file(fid).ranges(flock).set(piece);
    locks.tidy(fid);
}

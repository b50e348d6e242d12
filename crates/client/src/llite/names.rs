//! Names: lookup, create, link, unlink, rename.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use sateen_types::{Attr, DirCookie, Errno, Fid, Layout, Name, Result};
use sateen_wire::{
    Cred, DIR_ENTRIES_MAX, Grants, Ibits, MdtReply, MdtRequest, OpenFlags, OpenId, RenameFlags,
};

use super::{Entry, Known};
use crate::client::Client;
use crate::inode::{Inode, InodeState};
use crate::mdc::MdtAnswer;
use crate::statahead::Changing;
use crate::stats::Verb;
use crate::sync::lock;

/// A new inode, or the one that a create found.
pub(crate) struct Made {
    pub(crate) attr: Attr,
    pub(crate) layout: Option<Arc<Layout>>,
    pub(crate) existed: bool,
    pub(crate) grants: Grants,
    pub(crate) stamp: u64,
}

/// What is to be made.
pub(crate) struct Make<'a> {
    pub(crate) mode: u32,
    pub(crate) rdev: u32,
    pub(crate) symlink: &'a [u8],
    pub(crate) open: Option<(OpenFlags, OpenId)>,
    pub(crate) exclusive: bool,
    pub(crate) cred: Cred,
}

/// A call that may add a name to a directory.
struct Adding<'a> {
    dir: Arc<Inode>,
    _changing: ChangingName<'a>,
}

impl Drop for Adding<'_> {
    fn drop(&mut self) {
        lock(&self.dir.state).names.has_added();
    }
}

/// A call that changes a name of a directory.
struct ChangingName<'a> {
    client: &'a Client,
    dir: Arc<Inode>,
    _ahead: Changing<'a>,
}

impl Drop for ChangingName<'_> {
    fn drop(&mut self) {
        lock(&self.dir.state).dir_pages.end_change(self.client.stamp());
    }
}

/// How often a name is looked up again whose inode was gone before its attributes were there.
const LOOKED_UP_AGAIN_MAX: u32 = 64;

impl Client {
    fn holds_names(&self, dir: Fid) -> bool {
        self.known_inode(dir).is_some_and(|inode| lock(&inode.state).covers(Ibits::UPDATE))
    }

    /// Whether a name cannot be in a directory: then nobody needs to be asked.
    pub(super) fn is_absent(&self, dir: Fid, name: &Name) -> bool {
        let inode = self.known_inode(dir);
        let is_absent =
            inode.is_some_and(|inode| !lock(&inode.state).may_have_name(name.as_bytes()));
        if is_absent {
            self.count(Verb::LockHit);
        }
        is_absent
    }

    /// A name is about to be asked for in a directory, until what is returned goes. A directory of
    /// which nothing is known yet counts it as well: others may learn its names before this call
    /// is sent, which may wait for a FID or for the connection first.
    fn asks_for_name(&self, fid: Fid, name: &Name) -> Adding<'_> {
        let dir = self.inode(fid);
        lock(&dir.state).names.adds(name.as_bytes());
        Adding { dir, _changing: self.changes_name(fid, name) }
    }

    /// A name of a directory is about to be changed, until what is returned goes: what was looked up
    /// ahead and listed of it is of no use.
    fn changes_name(&self, fid: Fid, name: &Name) -> ChangingName<'_> {
        let dir = self.inode(fid);
        lock(&dir.state).dir_pages.begin_change();
        ChangingName { client: self, dir, _ahead: self.statahead.changes_name(fid, name) }
    }

    /// A name is not in a directory, as the MDT has said under its lock: whoever looks for one is
    /// mostly about to make it, and to look for the next. If there were several, all names are
    /// asked for, and nobody waits for that.
    fn missed_a_name(self: &Arc<Client>, dir: Fid) {
        let Some(inode) = self.inodes.find(dir) else { return };
        if !lock(&inode.state).names.missed(&self.known_names) {
            return;
        }
        // One that was given up may be done behind the listing.
        if self.may_add_names(dir) {
            return lock(&inode.state).names.are_unknown();
        }
        let client = self.clone();
        self.port.spawn(Box::pin(async move {
            let count = DIR_ENTRIES_MAX as u32;
            let request =
                MdtRequest::ReadDir { fid: dir, after: DirCookie::START, count, plus: false };
            let answer = client.mdt(dir, request).await;
            let state = &mut *lock(&inode.state);
            match answer.map(|answer| (answer.body, answer.stamp)) {
                Ok((MdtReply::Entries { entries, end: true, .. }, stamp)) => {
                    state.has_names(stamp, entries.iter().map(|entry| entry.name.as_bytes()));
                }
                _ => state.names.are_not_learned(),
            }
        }));
    }

    /// Whether what a request sent at `stamp` found of an inode stands under a lock for these
    /// bits that has been there ever since.
    fn stands(&self, fid: Fid, bits: Ibits, stamp: u64) -> bool {
        let inode = self.inodes.find(fid);
        inode.is_some_and(|inode| lock(&inode.state).stands(bits, stamp))
    }

    /// The question for a name, with all that may be kept of the answer.
    pub(super) fn lookup_request(&self, parent: Fid, name: Name) -> MdtRequest {
        let want = Ibits::META.union(Ibits::DATA);
        let want_parent = if self.holds_names(parent) { Ibits::NONE } else { Ibits::META };
        MdtRequest::Lookup { parent, name, want_parent, want }
    }

    /// Finds a name.
    ///
    /// # Errors
    /// `ENOTDIR`, and the MDT's; a missing name is no error but an entry without inode.
    pub async fn lookup(self: &Arc<Client>, parent: Fid, name: &[u8]) -> Result<Entry> {
        if let Some(entry) = self.looked_up_ahead(parent, name).await {
            return Ok(entry);
        }
        let mut again = LOOKED_UP_AGAIN_MAX;
        loop {
            let wanted = Name::new(name)?;
            if self.is_absent(parent, &wanted) {
                return Ok(Entry { inode: None, held: true, since: None });
            }
            let request = self.lookup_request(parent, wanted);
            let answer = match self.mdt_stamped(parent, request).await {
                Ok(answer) => answer,
                Err((Errno::ENOENT, stamp)) => {
                    let held = self.stands(parent, Ibits::UPDATE, stamp);
                    if held {
                        self.missed_a_name(parent);
                    }
                    return Ok(Entry { inode: None, held, since: None });
                }
                Err((errno, _)) => return Err(errno),
            };
            let MdtReply::Inode { attr } = answer.body else { return Err(Errno::EPROTO) };
            match self.entry((parent, name), attr, answer.stamp).await {
                // It was removed, or replaced, before all of it was known. The kernel would ask
                // once more, and give the program the error if that happens again.
                Err(Errno::ESTALE) if again > 0 => again -= 1,
                entry => return entry,
            }
        }
    }

    /// An entry of a directory that was found or made by a request sent at `stamp`.
    pub(crate) async fn entry(
        self: &Arc<Client>,
        (parent, name): (Fid, &[u8]),
        attr: Attr,
        stamp: u64,
    ) -> Result<Entry> {
        let inode = self.inode(attr.fid);
        let known = self.know(&inode, attr, stamp).await?;
        self.is_named(&inode, parent, name);
        let by_parent = self.stands(parent, Ibits::UPDATE, stamp);
        let by_itself = !by_parent && self.stands(attr.fid, Ibits::LOOKUP, stamp);
        let since = by_itself.then_some(stamp);
        Ok(Entry { inode: Some(known), held: by_parent || by_itself, since })
    }

    pub(crate) async fn make(
        self: &Arc<Client>,
        parent: Fid,
        name: &[u8],
        make: Make<'_>,
    ) -> Result<Made> {
        let name = Name::new(name)?;
        let _adding = self.asks_for_name(parent, &name);
        let era = self.era();
        let fid = self.new_fid(parent, era).await?;
        let (open, open_id) = match make.open {
            Some((flags, id)) => (Some(flags), id),
            None => (None, OpenId { id: 0 }),
        };
        let regular = make.mode & 0o170_000 == 0o100_000;
        let want = if regular { Ibits::META.union(Ibits::DATA) } else { Ibits::META };
        let request = MdtRequest::Create {
            parent,
            name,
            fid,
            mode: make.mode,
            rdev: make.rdev,
            cred: make.cred,
            symlink: Bytes::copy_from_slice(make.symlink),
            policy: None,
            open,
            open_id,
            exclusive: make.exclusive,
            want,
        };
        let answer = self.mdt_in(era, parent, request).await?;
        let (grants, stamp) = (answer.grants, answer.stamp);
        let MdtReply::Created { attr, layout, existed, parent: dir } = answer.body else {
            return Err(Errno::EPROTO);
        };
        if !existed {
            let dir = dir.filter(|dir| dir.fid == parent);
            self.own_change(&self.inode(parent), dir, stamp).await;
        }
        Ok(Made { attr, layout, existed, grants, stamp })
    }

    /// Makes a directory, symbolic link, device node, FIFO, socket, or an unopened file.
    ///
    /// # Errors
    /// As `mkdir`, `symlink` and `mknod`.
    pub async fn mknod(
        self: &Arc<Client>,
        parent: Fid,
        name: &[u8],
        mode: u32,
        rdev: u32,
        symlink: &[u8],
        cred: Cred,
    ) -> Result<Entry> {
        let make = Make { mode, rdev, symlink, open: None, exclusive: true, cred };
        let made = self.make(parent, name, make).await?;
        let entry = self.entry((parent, name), made.attr, made.stamp).await?;
        if made.attr.is_dir() {
            let inode = self.inode(made.attr.fid);
            lock(&inode.state).is_empty_dir(made.stamp, &self.known_names);
        }
        Ok(entry)
    }

    /// Removes a name; `directory` for `rmdir`.
    ///
    /// # Errors
    /// As `unlink` and `rmdir`.
    pub async fn unlink(
        self: &Arc<Client>,
        parent: Fid,
        name: &[u8],
        directory: bool,
    ) -> Result<()> {
        let name = Name::new(name)?;
        let _changing = self.changes_name(parent, &name);
        let mut closing = self.closes_before(parent, name.as_bytes());
        let mut removing = pin!(self.mdt(parent, MdtRequest::Unlink { parent, name, directory }));
        let mut answer = None;
        let both = poll_fn(|context| {
            closing.take_if(|closing| closing.as_mut().poll(context).is_ready());
            if answer.is_none() {
                let Poll::Ready(removed) = removing.as_mut().poll(context) else {
                    return Poll::Pending;
                };
                answer = Some(removed);
            }
            if closing.is_some() {
                Poll::Pending
            } else {
                answer.take().map_or(Poll::Pending, Poll::Ready)
            }
        });
        let answer = both.await?;
        let MdtReply::Removed { attr, parent: dir } = answer.body else {
            return Err(Errno::EPROTO);
        };
        let dir = dir.filter(|dir| dir.fid == parent);
        self.own_change(&self.inode(parent), dir, answer.stamp).await;
        self.lost_a_name(attr, answer.stamp).await;
        Ok(())
    }

    /// An inode lost a name through this client.
    async fn lost_a_name(self: &Arc<Client>, attr: Option<Attr>, sent: u64) {
        let Some(attr) = attr else { return };
        let inode = self.inodes.find(attr.fid);
        let Some(inode) = inode else {
            if attr.nlink == 0 {
                self.unsynced.take(attr.fid);
                self.dirty.take_failed(attr.fid);
            }
            return;
        };
        self.own_change(&inode, Some(attr), sent).await;
        if attr.nlink == 0 {
            let stamp = self.stamp();
            inode.update(|state| {
                state.nameless = true;
                if state.opens == 0 && state.kept_opens.is_empty() {
                    // The MDT has forgotten all locks on it.
                    state.locks.clear();
                    state.lost_locks();
                    state.cancelled_at = stamp;
                    // Nobody asks for it any more, and its OSTs would not have it.
                    self.unstable.forget(attr.fid);
                }
            });
        }
        self.retire(inode);
    }

    /// Renames, with the flags of `renameat2`.
    ///
    /// # Errors
    /// As `renameat2`; what could not be written out of a file that was to replace another.
    pub async fn rename(
        self: &Arc<Client>,
        from: (Fid, &[u8]),
        to: (Fid, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        let (parent, new_parent) = (from.0, to.0);
        let name = Name::new(from.1)?;
        let new_name = Name::new(to.1)?;
        if !flags.no_replace && !flags.exchange {
            self.write_out_what_replaces((parent, &name), (new_parent, &new_name)).await?;
        }
        let _adding = self.asks_for_name(new_parent, &new_name);
        let _changing = self.changes_name(parent, &name);
        let hashes = |dir, name| self.hash_of_name(dir, name);
        let named = (hashes(parent, from.1), hashes(new_parent, to.1));
        let request = MdtRequest::Rename { parent, name, new_parent, new_name, flags };
        let answer = self.mdt(parent, request).await?;
        self.renamed((parent, new_parent), named, answer).await
    }

    /// Renames, and leaves a whiteout under the old name.
    ///
    /// # Errors
    /// As `renameat2` with `RENAME_WHITEOUT`.
    pub async fn rename_whiteout(
        self: &Arc<Client>,
        from: (Fid, &[u8]),
        to: (Fid, &[u8]),
        no_replace: bool,
        cred: Cred,
    ) -> Result<()> {
        let (parent, new_parent) = (from.0, to.0);
        let (name, new_name) = (Name::new(from.1)?, Name::new(to.1)?);
        if !no_replace {
            self.write_out_what_replaces((parent, &name), (new_parent, &new_name)).await?;
        }
        let _adding = self.asks_for_name(new_parent, &new_name);
        let _changing = self.changes_name(parent, &name);
        let era = self.era();
        let fid = self.new_fid(parent, era).await?;
        let hashes = |dir, name| self.hash_of_name(dir, name);
        let named = (hashes(parent, from.1), hashes(new_parent, to.1));
        let request = MdtRequest::RenameWhiteout {
            parent,
            name,
            new_parent,
            new_name,
            no_replace,
            fid,
            cred,
        };
        let answer = self.mdt_in(era, parent, request).await?;
        self.renamed((parent, new_parent), named, answer).await
    }

    async fn renamed(
        self: &Arc<Client>,
        (parent, new_parent): (Fid, Fid),
        (old_name, new_name): (u32, u32),
        answer: MdtAnswer,
    ) -> Result<()> {
        let MdtReply::Renamed { moved, swapped, replaced, parent: old, new_parent: new } =
            answer.body
        else {
            return Err(Errno::EPROTO);
        };
        let sent = answer.stamp;
        let old = old.filter(|dir| dir.fid == parent);
        self.own_change(&self.inode(parent), old, sent).await;
        if new_parent != parent {
            let new = new.filter(|dir| dir.fid == new_parent);
            self.own_change(&self.inode(new_parent), new, sent).await;
        }
        self.moved(moved, new_name, sent).await;
        if let Some(swapped) = swapped {
            self.moved(swapped, old_name, sent).await;
        }
        self.lost_a_name(replaced, sent).await;
        Ok(())
    }

    /// An inode was moved by a request sent at `sent`, to a name of this hash: its ctime is new, and what
    /// was known of it is old.
    async fn moved(&self, fid: Fid, named: u32, sent: u64) {
        let inode = self.inodes.find(fid);
        if let Some(inode) = inode {
            lock(&inode.state).named = named;
            self.own_change(&inode, None, sent).await;
        }
    }

    /// A further name for a file.
    ///
    /// # Errors
    /// As `link`.
    pub async fn link(self: &Arc<Client>, fid: Fid, parent: Fid, name: &[u8]) -> Result<Entry> {
        let new_name = Name::new(name)?;
        let _adding = self.asks_for_name(parent, &new_name);
        let request = MdtRequest::Link { fid, parent, name: new_name };
        let answer = self.mdt(parent, request).await?;
        let MdtReply::Inode { attr } = answer.body else { return Err(Errno::EPROTO) };
        let sent = answer.stamp;
        self.own_change(&self.inode(parent), None, sent).await;
        let inode = self.inode(fid);
        inode.update(|state| state.nameless = false);
        self.own_change(&inode, Some(attr), sent).await;
        self.entry((parent, name), attr, sent).await
    }

    /// The kernel is about to hear of an inode: one reference more. Says whether its attributes
    /// may be cached; asked at the last moment, because an invalidation that finds the inode
    /// referenced waits until the kernel knows it.
    pub fn introduce(&self, fid: Fid) -> bool {
        self.inode(fid).update(|state| {
            state.lookups += 1;
            state.tell().is_some()
        })
    }

    /// The same of the inode that an entry names, with what the kernel is to be told: nobody has
    /// told it of locks that went before it had heard of the inode. The folder it has heard of.
    pub fn introduce_entry(&self, entry: Entry) -> Entry {
        let Some(known) = entry.inode else { return entry };
        self.inode(known.attr.fid).update(|state| {
            state.lookups += 1;
            let held = |since| state.stands(Ibits::LOOKUP, since);
            let held = entry.held && entry.since.is_none_or(held);
            // If it was asked for once more meanwhile, what was known first is old.
            let now = state.tell().filter(|_| known.held);
            let known = Known { attr: now.unwrap_or(known.attr), held: now.is_some() };
            Entry { inode: Some(known), held, ..entry }
        })
    }

    /// The kernel has forgotten `count` references. The last one drops the inode, and gives
    /// its locks back.
    pub fn forget(self: &Arc<Client>, fid: Fid, count: u64) {
        let inode = self.inodes.find(fid);
        let Some(inode) = inode else { return };
        inode.update(|state| state.lookups = state.lookups.saturating_sub(count));
        self.retire(inode);
    }

    /// Lets go of an inode that neither the kernel nor an open file refers to: gives its locks
    /// back, and drops it. Called with the handle of whoever may have been the last to need it,
    /// at the end of what could have been its last use: a FORGET, a close, an open that failed,
    /// a sync, a callback, a removal.
    pub(crate) fn retire(self: &Arc<Client>, inode: Arc<Inode>) {
        if self.close_useless_in_turn(&inode) {
            // It comes here again.
            return;
        }
        let has_locks = {
            let mut state = lock(&inode.state);
            // One for the table, one here.
            if Arc::strong_count(&inode) == 2 {
                state.slim();
            }
            if inode.fid == Fid::ROOT || !state.is_idle() {
                return;
            }
            !state.locks.is_empty()
        };
        if !has_locks {
            return self.drop_idle(inode);
        }
        let begun = lock(&self.retiring).begin(inode);
        if let Some(mdt) = begun {
            let client = self.clone();
            self.port.spawn(Box::pin(async move { client.cancel_retired(mdt).await }));
        }
    }

    /// Cancels the locks of inodes of an MDT that nobody needs, some together, until there are none.
    async fn cancel_retired(self: &Arc<Client>, mdt: u32) {
        loop {
            let inodes = lock(&self.retiring).next(mdt);
            if inodes.is_empty() {
                return;
            }
            // Before any of them is let go: from then on a callback finds the cancel on its way.
            for inode in &inodes {
                self.lets_others_write(inode).await;
            }
            let (era, mut given) = (self.era(), Vec::new());
            for inode in &inodes {
                // Somebody may have come for it meanwhile.
                let idle = |state: &mut InodeState| state.is_idle().then(|| state.let_all_go());
                let gone = inode.update(idle).unwrap_or_default();
                let tells = gone.iter().any(|(_, report)| report.is_some());
                let gone = gone.into_iter();
                given.extend(gone.map(|(id, report)| (inode.clone(), id, report)));
                if tells {
                    // The next ones are not let go before this has been answered.
                    self.cancel_together(era, core::mem::take(&mut given)).await;
                }
            }
            self.cancel_together(era, given).await;
            // Or come, and gone.
            inodes.into_iter().for_each(|inode| self.retire(inode));
        }
    }

    /// Drops an inode about which nothing is known that anybody could need. Takes the caller's
    /// handle, because any but the table's own says that somebody needs it.
    fn drop_idle(self: &Arc<Client>, inode: Arc<Inode>) {
        let fid = inode.fid;
        drop(inode);
        let due = {
            let mut part = self.inodes.part(fid);
            let Some(inode) = part.find(fid) else { return };
            let mut state = lock(&inode.state);
            // One for the table, one here: a task that is using it may be about to note
            // something.
            let unused = Arc::strong_count(&inode) == 2 && state.is_idle();
            if !unused || !state.locks.is_empty() || !state.cancels.is_empty() {
                return;
            }
            let stamp = self.stamp();
            part.remove(fid, stamp);
            self.unstable.forget(fid);
            // Before anybody can meet a new inode, and sync the file without knowing of this.
            let unsynced = state.rare_if_any().map(|rare| core::mem::take(&mut rare.unsynced));
            let (unsynced, mut loss) = (unsynced.unwrap_or_default(), state.loss);
            // Written after the last close, and nobody has asked since.
            loss.add(state.late.left());
            let due = (!state.nameless)
                .then(|| self.unsynced.leave(fid, unsynced, loss, (stamp, &self.ended)));
            if state.nameless || !self.unsynced.has_lost(fid) {
                self.dirty.take_failed(fid);
            }
            due
        };
        let Some(due) = due else {
            self.unsynced.take(fid);
            return;
        };
        for ost in due {
            self.sync_in_background(ost);
        }
    }

    /// Attributes with no claim to be cached.
    pub(crate) fn unheld(attr: Attr) -> Known {
        Known { attr, held: false }
    }
}

#[cfg(test)]
mod tests {
    use core::future::{pending, ready};
    use core::task::{Context, Waker};

    use sateen_types::{ClientId, Seq, Timestamp};
    use sateen_wire::{LockId, LockMode, Message};

    use super::*;
    use crate::client::ClientConfig;
    use crate::held::{Granted, Held};
    use crate::port::{KernelInval, Port, Task};

    /// Nobody answers.
    struct Alone;

    impl Port for Alone {
        fn now(&self) -> Timestamp {
            Timestamp::default()
        }
        fn send(&self, _: Message) {}
        fn spawn(&self, mut task: Task) {
            let ended = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(ended.is_ready(), "there is nothing to wait for");
        }
        fn sleep(&self, _: u64) -> Task {
            Box::pin(pending())
        }
        fn invalidate(
            &self,
            _: KernelInval,
        ) -> core::pin::Pin<Box<dyn Future<Output = bool> + Send>> {
            Box::pin(ready(true))
        }
        fn can_prune(&self) -> bool {
            false
        }
        fn prune(&self, _: Vec<sateen_types::Ino>) {}
    }

    #[test]
    fn an_inode_that_the_kernel_forgot_is_dropped() {
        let client = Client::new(ClientConfig { id: ClientId(1), file_system: 0 }, Arc::new(Alone));
        let known = || client.inodes.len();
        for locked in [false, true] {
            let fid = Fid::new(Seq(0x2_0000_0400), 1);
            client.introduce(fid);
            client.introduce(fid);
            if locked {
                let held = Held::new(LockId(7), (LockMode::Pr, Ibits::META), Granted::new(0, 0));
                lock(&client.inode(fid).state).locks.push(held);
            }
            client.forget(fid, 1);
            assert_eq!(known(), 1, "one reference is left");
            client.forget(fid, 1);
            assert_eq!(known(), 0, "locked: {locked}");
        }
    }
}

//! Group locks: the data of a file for those who work together, on this client and on others. They name
//! the same group, and see to it themselves that what they write does not overlap.
//!
//! A member is an open file. Life of its membership: it asks ([`Client::lock_group`]), and joins those of
//! this client who are there; the first asks the MDT, which has everybody else give back what they hold.
//! As long as it is a member it uses the group's lock, so that nobody here gives that back; the MDT never
//! asks for it. It leaves by its own wish, or when it is closed, and with the last one the lock goes.
//!
//! Under the lock nothing is kept: every write goes to its OSTs, in however many objects, and is told like
//! one under a shared lock; what is read comes from there. So the objects' ends are the truth about the
//! size, as long as nobody else may keep anything. Pages that the kernel reads stand under the lock, and go
//! with it: what another member writes meanwhile they do not have.
//!
//! Everybody else waits ([`crate::outsiders`]), but for those of this client: they are served under the
//! group's lock, whatever they do with the data, though members may be at it yet. A kernel holds the inode's
//! lock while it asks for a change of size or times, for a write, and for much else, or pages; a member's
//! write on the same mount would wait for those, where nobody could kill it, and they for the member. So of
//! all that comes from here only two wait, for which the kernel holds nothing: who wants another group,
//! and an open that empties the file, which the MDT refuses to members, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use sateen_types::{Errno, Fid, FileKind, Result};
use sateen_wire::{Ibits, LockId, MdtReply, MdtRequest};

use crate::client::Client;
use crate::held::Held;
use crate::inode::{Inode, InodeState};
use crate::llite::File;
use crate::locks::DataUse;
use crate::mdc::MdtAnswer;
use crate::outsiders::Pauses;
use crate::patience::{self, to_the_end};
use crate::sync::{lock, until};

/// The group that has an inode's data, as far as this client belongs to it.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// 0 if there is none.
    gid: u64,
    /// Open files that belong to it.
    members: u32,
    /// The MDT is asked.
    asking: bool,
    /// So many are about to join, and wait for nobody who may take for ever: others ask for nothing
    /// meanwhile.
    coming: u32,
}

impl Group {
    /// Whether there is nothing to be remembered.
    pub(crate) fn is_none(&self) -> bool {
        self.gid == 0 && self.members == 0 && !self.asking && self.coming == 0
    }

    /// Whether somebody is about to join one.
    pub(crate) fn is_coming(&self) -> bool {
        self.coming > 0
    }

    /// Which.
    pub(crate) fn gid(&self) -> u64 {
        self.gid
    }

    /// The MDT has forgotten this client. Who asks it goes on to the answer.
    pub(crate) fn forgotten(&mut self) {
        self.members = 0;
        if !self.asking {
            self.gid = 0;
        }
    }
}

/// What an open file has to do with groups.
#[derive(Debug, Default)]
enum Membership {
    #[default]
    None,
    /// It is about to join one.
    Joins,
    Member {
        gid: u64,
        used: DataUse,
    },
    /// The file is closed: it joins none any more.
    Closed,
}

/// The same, and what goes by it.
#[derive(Debug, Default)]
pub(crate) struct InGroup {
    membership: Mutex<Membership>,
    /// It is worth looking.
    is_member: AtomicBool,
    /// Its program does not wait for groups (`O_NONBLOCK`).
    nonblock: AtomicBool,
}

impl InGroup {
    fn now(&self) -> MutexGuard<'_, Membership> {
        lock(&self.membership)
    }

    /// Notes whether its program waits for groups.
    pub(crate) fn set_nonblock(&self, nonblock: bool) {
        self.nonblock.store(nonblock, Ordering::Relaxed);
    }

    /// Puts the group's lock to use, if the open file is a member.
    ///
    /// # Errors
    /// `EIO` if the MDT has forgotten this client.
    pub(crate) fn use_lock(&self, inode: &Arc<Inode>) -> Result<Option<DataUse>> {
        if !self.is_member.load(Ordering::SeqCst) {
            return Ok(None);
        }
        let membership = self.now();
        let Membership::Member { used, .. } = &*membership else { return Ok(None) };
        let mut state = lock(&inode.state);
        let held = state.locks.iter_mut().find(|held| held.id == used.id()).ok_or(Errno::EIO)?;
        held.users += 1;
        Ok(Some(DataUse::of_group(inode, held.id)))
    }
}

/// Somebody is about to join a group; over on drop.
struct Coming<'a>(&'a Inode);

impl<'a> Coming<'a> {
    fn begin(inode: &'a Inode) -> Coming<'a> {
        lock(&inode.state).group.coming += 1;
        Coming(inode)
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.0.update(|state| state.group.coming = state.group.coming.saturating_sub(1));
    }
}

/// How it stands with a group that is wanted.
enum Turn {
    /// Others of this client belong to it.
    Joined(LockId),
    /// The MDT is to be asked, by this one.
    Ask,
    /// Another has the file, and it is not to be waited for.
    Taken,
}

impl InodeState {
    /// What one who wants to join a group has to do; `None` for waiting.
    fn joins(&mut self, gid: u64, nonblock: bool) -> Option<Turn> {
        let (own, members, asking) = (self.group.gid, self.group.members, self.group.asking);
        let told = self.cancels.is_empty();
        match self.locks.iter_mut().find(|held| held.is_group()) {
            Some(held) if own == gid && members > 0 && !held.cancelling => {
                held.users += 1;
                let id = held.id;
                self.group.members += 1;
                Some(Turn::Joined(id))
            }
            Some(_) => (nonblock && own != gid && members > 0).then_some(Turn::Taken),
            None if asking || !told => None,
            None => {
                (self.group.gid, self.group.asking) = (gid, true);
                Some(Turn::Ask)
            }
        }
    }

    /// The lock for which the MDT was asked with a request of this stamp has come, if it has.
    fn joined(&mut self, gid: u64, stamp: Option<u64>) -> Option<LockId> {
        self.group.asking = false;
        let mine = |held: &&mut Held| {
            held.is_group() && stamp.is_some_and(|stamp| held.is_pinned_by(stamp))
        };
        let id = self.locks.iter_mut().find(mine).map(|held| {
            held.unpin(stamp.unwrap_or_default());
            held.id
        });
        if id.is_some() {
            self.group.gid = gid;
            self.group.members += 1;
        } else {
            self.group_may_be_over();
        }
        id
    }

    /// A member leaves. The lock, if it is to be given back.
    fn leaves(&mut self, used: &DataUse) -> Option<LockId> {
        // If it is not there the MDT has forgotten this client, and the members with it.
        if !used.is_there(self) {
            return None;
        }
        self.group.members = self.group.members.saturating_sub(1);
        (self.group.members == 0).then(|| used.id())
    }

    /// A lock is gone for good: perhaps it was the group's.
    pub(crate) fn group_may_be_over(&mut self) {
        if self.group.gid == 0 || self.group.members > 0 || self.group.asking {
            return;
        }
        if self.cancels.is_empty() && !self.locks.iter().any(Held::is_group) {
            self.group.gid = 0;
        }
    }
}

impl Client {
    /// Makes an open file a member of a group: from now on what is read and written through it goes
    /// beside what other members do, and nobody else reads or writes the file before all have left.
    /// Waits for others to give it back, and for another group to have done.
    ///
    /// # Errors
    /// `EINVAL` for group 0, for what is no regular file, and if it is a member already; `EAGAIN` if
    /// another group has the file and the program does not wait (`O_NONBLOCK`); `EOPNOTSUPP` if the
    /// kernel reads and writes the file itself; `EINTR` if nobody waits any more.
    pub async fn lock_group(self: &Arc<Client>, handle: u64, gid: u64) -> Result<()> {
        let file = self.file(handle)?;
        let regular = lock(&file.inode.state).attr.map(|attr| attr.kind() == FileKind::Regular);
        if gid == 0 || regular == Some(false) {
            return Err(Errno::EINVAL);
        }
        if !self.has_groups(file.inode.fid) {
            return Err(Errno::EOPNOTSUPP);
        }
        {
            let mut now = file.group.now();
            if !matches!(*now, Membership::None) {
                return Err(Errno::EINVAL);
            }
            *now = Membership::Joins;
        }
        let joined = self.join(&file, gid).await;
        let left = {
            let mut now = file.group.now();
            let is_open = matches!(*now, Membership::Joins);
            match joined {
                Ok(used) if is_open => {
                    *now = Membership::Member { gid, used };
                    file.group.is_member.store(true, Ordering::SeqCst);
                    return Ok(());
                }
                Err(errno) if is_open => {
                    *now = Membership::None;
                    return Err(errno);
                }
                // It was closed meanwhile.
                joined => joined?,
            }
        };
        self.leave_group(&file.inode, left).await;
        Err(Errno::EBADF)
    }

    /// Takes part in a group, with its lock in use.
    async fn join(self: &Arc<Client>, file: &File, gid: u64) -> Result<DataUse> {
        let inode = &file.inode;
        let mut pauses = Pauses::uncounted();
        loop {
            let nonblock = file.group.nonblock.load(Ordering::Relaxed);
            let coming = Coming::begin(inode);
            if lock(&inode.state).given.is_none() {
                self.leave_data(inode).await;
            }
            let turn = until(
                &inode.state,
                |state| &mut state.waiters,
                |state| match () {
                    () if state.given.is_some() => Some(Err(Errno::EOPNOTSUPP)),
                    () if patience::is_over() => Some(Err(Errno::EINTR)),
                    () => state.joins(gid, nonblock).map(Ok),
                },
            );
            match turn.await? {
                Turn::Joined(id) => return Ok(DataUse::of_group(inode, id)),
                Turn::Taken => return Err(Errno::EAGAIN),
                Turn::Ask => {}
            }
            match self.ask_for_group(inode, gid).await? {
                Some(Some(id)) => return Ok(DataUse::of_group(inode, id)),
                // It was not to be kept.
                Some(None) => {}
                None if nonblock => return Err(Errno::EAGAIN),
                None => {
                    drop(coming);
                    self.pause(&mut pauses).await?;
                }
            }
        }
    }

    /// What this client has of the data the MDT would call back for its own group, and the group's lock
    /// would then come too early to be believed.
    async fn leave_data(self: &Arc<Client>, inode: &Arc<Inode>) {
        let own: Vec<_> = {
            let state = lock(&inode.state);
            let data = state.locks.iter().filter(|held| held.bits.intersects(Ibits::DATA));
            data.filter(|held| !held.is_group()).map(|held| held.id).collect()
        };
        for id in own {
            self.give_back(inode, id).await;
        }
    }

    /// Asks the MDT, once: `None` if another group has the file, and else the lock, unless it is not to
    /// be kept.
    async fn ask_for_group(
        self: &Arc<Client>,
        inode: &Arc<Inode>,
        gid: u64,
    ) -> Result<Option<Option<LockId>>> {
        let fid = inode.fid;
        let answer = self.mdt_pinned(fid, MdtRequest::EnqueueGroup { fid, gid }).await;
        let stamp = answer.as_ref().ok().map(|answer| answer.stamp);
        let id = inode.update(|state| {
            if let Ok(MdtAnswer { body: MdtReply::Inode { attr }, stamp, .. }) = &answer {
                state.learn(*attr, *stamp);
            }
            state.joined(gid, stamp)
        });
        let answer = answer?;
        if matches!(answer.body, MdtReply::Grouped) {
            return Ok(None);
        }
        if id.is_none() {
            self.hand_back(inode, &answer.grants).await;
        }
        Ok(Some(id))
    }

    /// Whether whoever reads or writes a file from here may do so beside a group.
    pub fn is_beside_group(&self, fid: Fid) -> bool {
        let inode = self.inodes.find(fid);
        inode.is_some_and(|inode| lock(&inode.state).locks.iter().any(Held::is_group))
    }

    /// Has an open file leave its group. When this returns the MDT knows it, if it was the last one here.
    ///
    /// # Errors
    /// `EINVAL` if it is no member of this group.
    pub async fn unlock_group(self: &Arc<Client>, handle: u64, gid: u64) -> Result<()> {
        let file = self.file(handle)?;
        let used = {
            let mut now = file.group.now();
            match &*now {
                Membership::Member { gid: own, .. } if *own == gid => {}
                _ => return Err(Errno::EINVAL),
            }
            file.group.is_member.store(false, Ordering::SeqCst);
            match core::mem::take(&mut *now) {
                Membership::Member { used, .. } => used,
                _ => return Err(Errno::EINVAL),
            }
        };
        to_the_end(self.leave_group(&file.inode, used)).await;
        Ok(())
    }

    async fn leave_group(self: &Arc<Client>, inode: &Arc<Inode>, used: DataUse) {
        let last = inode.update(|state| state.leaves(&used));
        drop(used);
        if let Some(id) = last {
            self.give_back(inode, id).await;
        }
    }

    /// An open file is being closed, and belongs to no group any more. Nobody waits for that.
    pub(crate) fn leave_group_of(self: &Arc<Client>, file: &File) {
        let was = core::mem::replace(&mut *file.group.now(), Membership::Closed);
        let Membership::Member { used, .. } = was else { return };
        file.group.is_member.store(false, Ordering::SeqCst);
        let (client, inode) = (self.clone(), file.inode.clone());
        self.port.spawn(Box::pin(async move {
            client.leave_group(&inode, used).await;
            client.retire(inode);
        }));
    }

    /// The program that has a file open waits for groups, or does not.
    pub fn set_nonblock(&self, handle: u64, nonblock: bool) {
        if let Some(file) = self.files.of(handle).get(&handle) {
            file.group.set_nonblock(nonblock);
        }
    }

    /// The size, while a group's lock is in use: members keep nothing, so that the objects know it.
    pub(crate) async fn size_in_group(&self, inode: &Inode) -> Result<u64> {
        let asked = self.attr_after_cancels(inode, Ibits::NONE).await?;
        let (attr, _) = self.settle_size(inode, asked, Ibits::NONE).await?;
        Ok(attr.size)
    }
}

#[cfg(test)]
mod tests {
    use sateen_wire::LockMode;

    use super::*;
    use crate::held::Granted;

    fn grouped(users: u32) -> InodeState {
        let mut state = InodeState::default();
        let mut held = Held::new(LockId(1), (LockMode::Group, Ibits::DATA), Granted::new(0, 0));
        held.users = users;
        state.locks.push(held);
        state.group = Group { gid: 7, members: users, ..Group::default() };
        state
    }

    #[test]
    fn who_names_the_same_group_joins_until_the_last_has_left() {
        let mut state = grouped(1);
        assert!(matches!(state.joins(7, false), Some(Turn::Joined(LockId(1)))));
        assert_eq!((state.group.members, state.locks[0].users), (2, 2));
        assert!(
            matches!(state.joins(8, true), Some(Turn::Taken)) && state.joins(8, false).is_none()
        );
        state.group.members = 0;
        assert!(state.joins(7, true).is_none(), "it goes, and is asked for anew");
        state.locks.clear();
        state.group_may_be_over();
        assert!(state.group.is_none());
        assert!(matches!(state.joins(8, false), Some(Turn::Ask)) && state.joins(8, true).is_none());
        assert!(state.joined(8, Some(3)).is_none() && state.group.is_none(), "it did not come");
    }

    #[test]
    fn others_go_by_a_groups_lock_whatever_they_do() {
        use crate::locks::Access::{Look, Put, Read, Share, Write};
        let state = grouped(1);
        let held = &state.locks[0];
        for access in [Look, Put, Read, Share, Write] {
            assert!(held.allows(access, None), "{access:?}");
        }
        assert!(held.may_have_pages() && held.is_shared() && held.shares_writes());
    }
}

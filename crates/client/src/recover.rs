//! An MDT that was started again, and has lost nothing of this client but what it had in memory: its
//! clients tell it what they hold.
//!
//! Steps:
//! 1. A request is refused, because the MDT does not know the connection. Nothing is dropped: the
//!    import connects, and the answer says which run the MDT follows. If that is the one that this
//!    client was connected to, it goes on as what it was; otherwise everything is lost
//!    ([`Client::on_forgotten`]), or it was thrown out.
//! 2. What is held is put together and told in `Reclaim`s, one after the other, in a slot of their
//!    own. Whatever else wants to be asked waits for the connection as always. Callbacks are not
//!    listened to: they are repeated.
//! 3. The last of them is answered when the other clients have told theirs. Then what the former run
//!    had not answered is sent again in its slots, which go on counting; and the line is woken.
//!
//! **What is told is what the MDT has.** It is everything that the former run has answered for, and
//! the client does not know to be given back: a lock whose `Cancel` is under way, an open whose
//! `Close` is. For that, what an answer says is noted before anybody can hear of the answer, with the
//! import locked ([`Client::note_answer`]); an answer of the former run that comes later is not
//! listened to. So nothing can be added while it is put together. A lock can be let go meanwhile:
//! that moves it, with the inode locked, from the inode's locks to its cancels, and the inode stays
//! in the table until there are no cancels; so it is met in one of the two places, and counts. Its
//! `Cancel` comes after the last `Reclaim`, because nothing is sent before, and finds the lock, with
//! what it says of the size. A lock that is in neither place has had its cancel answered.
//!
//! **After a crash** the MDT has lost its last transactions, too. Those that this client was answered
//! for it has made again first ([`crate::uncommitted`]), by `Replay`s that go before the `Reclaim`s;
//! if that cannot be it is as after an eviction. Otherwise what it holds is as good as before, but for
//! what it has learned of others' changes, which may be lost: names and attributes of an inode that is
//! not known to be unchanged since are forgotten, here and by the kernel, and so are their locks. With
//! changes of its own under way nothing is known of what has become of them, and all of that is. The
//! data stays, because it lies at the OSTs, and with it the locks on it. What an unanswered request may
//! have given back is not told of, since others may have it: the MDT cannot know.
//!
//! A cancel that was in a slot may have been executed by the former run, whose answer was lost. The
//! MDT knows that of its slots, and takes such a lock for gone; the cancel, sent again in the same
//! slot, is answered as it was. Should it have taken the lock for held all the same, nobody would
//! give it back: so whoever has sent a cancel or a close, and finds that the MDT was told of what is
//! held before it was answered, sends another. That carries no size: if the first one was executed,
//! it has told it. One for a lock that the MDT does not know changes nothing.
//!
//! **Who is leaving** has written out and told everything before it says goodbye, and needs nothing any
//! more. An MDT that has heard the goodbye, and crashes before it is durable, waits for the client, and
//! others may have its locks by then: with a goodbye under way nothing is told to be held, and goodbye is
//! said again.
//!
//! Locks that nobody needs are given back many with one cancel. Of those beside its first, which say
//! nothing of a size, the MDT does not know whether it was executed: they are not told, by whichever
//! way the run has ended, and the cancel finds nothing of them.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use sateen_types::{Comb, Endpoint, Errno, Fid, FileKind, seq};
use sateen_wire::{
    FileLock, FileLockMode, Grant, Header, HeldFileLock, HeldGroup, HeldLock, HeldOpen, HeldPart,
    LockId, LockMode, MdtReply, MdtRequest, OpenFlags, OpenId, RECLAIM_MAX, Reply, ReplyBody,
    Request,
};

use crate::client::Client;
use crate::held::Held;
use crate::import::UnderWay;
use crate::inode::{Inode, InodeState};
use crate::sync::lock;

/// An open that an MDT has answered for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AtMdt {
    fid: Fid,
    flags: OpenFlags,
}

/// Lists of what is held, as messages that each have as much as one can.
#[derive(Debug, Default)]
struct Lists(Vec<MdtRequest>);

impl Lists {
    /// Puts a list into the messages from this one on.
    fn put<T: Clone>(
        &mut self,
        from: usize,
        all: &[T],
        of: impl Fn(&mut MdtRequest) -> Option<&mut Vec<T>>,
    ) {
        for (at, part) in (from..).zip(all.chunks(RECLAIM_MAX)) {
            while self.0.len() <= at {
                self.0.push(nothing());
            }
            if let Some(list) = self.0.get_mut(at).and_then(&of) {
                list.extend_from_slice(part);
            }
        }
    }

    /// That is all.
    fn end(mut self) -> Vec<MdtRequest> {
        if let Some(MdtRequest::Reclaim { last, .. }) = self.0.last_mut() {
            *last = true;
        }
        self.0
    }
}

/// What of a program's lock is held whether or not a request of its owner was executed.
fn surely_held(held: &HeldFileLock, asked: &HeldFileLock) -> Vec<HeldFileLock> {
    use FileLockMode::{Read, Unlock, Write};
    let (lock, new) = (held.lock, asked.lock);
    let concerned = held.fid == asked.fid && (lock.flock, lock.owner) == (new.flock, new.owner);
    if !concerned || new.end < lock.start || lock.end < new.start {
        return vec![*held];
    }
    let piece = |start, end| HeldFileLock { lock: FileLock { start, end, ..lock }, ..*held };
    let before = (lock.start < new.start).then(|| piece(lock.start, new.start - 1));
    let after = (new.end < lock.end).then(|| piece(new.end + 1, lock.end));
    let mode = match (lock.mode, new.mode) {
        (_, Unlock) => None,
        (old, new) if old == new => Some(old),
        // It is gone before another is looked for.
        _ if lock.flock => None,
        // As long as it is not granted the old one stays.
        (Read, Write) | (Write, Read) => Some(Read),
        (old, _) => Some(old),
    };
    let within = mode.map(|mode| {
        let (start, end) = (lock.start.max(new.start), lock.end.min(new.end));
        HeldFileLock { lock: FileLock { start, end, mode, ..lock }, ..*held }
    });
    before.into_iter().chain(within).chain(after).collect()
}

/// A lock that is held or given back.
#[derive(Debug, Clone, Copy)]
struct HeldNow {
    lock: HeldLock,
    comb: Option<Comb>,
}

impl HeldNow {
    fn is_group(&self) -> bool {
        self.lock.mode == LockMode::Group
    }

    /// As a part is told of.
    fn part(&self) -> Option<HeldPart> {
        let HeldLock { fid, id, .. } = self.lock;
        self.comb.map(|comb| HeldPart { fid, id, comb })
    }
}

/// The locks on an inode, with those that are given back and of which nothing was heard.
fn held_or_leaving(fid: Fid, state: &InodeState) -> impl Iterator<Item = HeldNow> {
    let held = |held: &Held| (held.id, Some((held.mode, held.bits)), held.comb());
    let held = state.locks.iter().map(held);
    let leaving = state.cancels.iter().filter(|leaving| !leaving.answered);
    let all = held.chain(leaving.map(|leaving| (leaving.id, leaving.was, leaving.comb)));
    all.filter_map(move |(id, was, comb)| {
        was.map(|(mode, bits)| HeldNow { lock: HeldLock { fid, id, mode, bits }, comb })
    })
}

fn nothing() -> MdtRequest {
    MdtRequest::Reclaim {
        locks: Vec::new(),
        opens: Vec::new(),
        seqs: Vec::new(),
        file_locks: Vec::new(),
        last: false,
    }
}

impl Client {
    /// How often the MDT of `fid` was told of what is held.
    pub(crate) fn taken_up(&self, fid: Fid) -> u64 {
        let import = self.import(Endpoint::Mdt(seq::mdt_of(fid.seq)));
        import.map_or(0, |import| import.taken_up())
    }

    /// A target has answered. Called with its import locked, before anybody hears of it.
    pub(crate) fn note_answer(&self, request: &Request, reply: &Reply) {
        // Not executed.
        let grouped = matches!(reply.body, ReplyBody::Mdt(MdtReply::Grouped));
        if reply.error == Some(Errno::EAGAIN) || grouped {
            return;
        }
        let Request::Mdt(request) = request else { return };
        let done = match &reply.body {
            ReplyBody::Mdt(done) if reply.error.is_none() => Some(done),
            _ => None,
        };
        match (request, done) {
            (MdtRequest::Cancel { fid, id, more, .. }, _) => {
                self.is_given_back(*fid, *id);
                more.iter().for_each(|other| self.is_given_back(other.fid, other.id));
            }
            (MdtRequest::Close { open_id, .. }, _) => {
                self.at_mdts.of(open_id.id).remove(&open_id.id);
            }
            (MdtRequest::Open { fid, flags, open_id, .. }, Some(MdtReply::Opened { .. }))
            | (MdtRequest::Tmpfile { fid, flags, open_id, .. }, Some(MdtReply::Created { .. })) => {
                self.is_open_at_mdt(*fid, *open_id, *flags);
            }
            (
                MdtRequest::Create { open: Some(flags), open_id, .. },
                Some(MdtReply::Created { attr, .. }),
            ) if attr.kind() == FileKind::Regular => {
                self.is_open_at_mdt(attr.fid, *open_id, *flags);
            }
            (MdtRequest::GrantSeq, Some(MdtReply::Sequence(seq))) => self.fids.was_granted(*seq),
            (
                MdtRequest::SetFileLock { fid, open_id, lock, .. },
                Some(MdtReply::FileLock { state, .. }),
            ) => self.file_lock_answered((*fid, *open_id), lock, *state),
            _ => {}
        }
    }

    fn is_given_back(&self, fid: Fid, id: LockId) {
        let inode = self.inodes.find(fid);
        if let Some(inode) = inode {
            let mut state = lock(&inode.state);
            let Some(rare) = state.rare_if_any() else { return };
            let cancels = rare.cancels.iter_mut().filter(|leaving| leaving.id == id);
            cancels.for_each(|leaving| leaving.answered = true);
        }
    }

    fn is_open_at_mdt(&self, fid: Fid, open: OpenId, flags: OpenFlags) {
        let flags = OpenFlags { truncate: false, ..flags };
        self.at_mdts.of(open.id).insert(open.id, AtMdt { fid, flags });
    }

    /// An MDT knows of no opens any more, or none does.
    pub(crate) fn closed_at(&self, mdt: Option<u32>) {
        let concerned = |at: &AtMdt| mdt.is_none_or(|mdt| mdt == seq::mdt_of(at.fid.seq));
        self.at_mdts.all().for_each(|mut part| part.retain(|_, at| !concerned(at)));
    }

    /// An MDT that this client may go on with does not know yet what it holds.
    /// If it has crashed, everything up to a transaction is `sure` to be there.
    pub(crate) fn on_recovering(
        self: &Arc<Client>,
        header: &Header,
        (generation, sure): (u32, Option<u64>),
    ) {
        let (Some(import), Endpoint::Mdt(mdt)) = (self.import(header.from), header.from) else {
            return;
        };
        let Some(sure) = sure else {
            tracing::info!(target = %header.from, "it was started again: telling it what is held");
            // An earlier crash may have left of these that the run since has not seen them open. Nor
            // was that told of what others of then may have given back, and may have no more.
            let UnderWay { closes, beside, goodbye, .. } = import.under_way(false);
            let at_crash = import.under_way(true);
            let unsure = at_crash.closes.clone();
            let under_way = UnderWay { closes, beside, goodbye, ..at_crash };
            let held = self.held_of(mdt, &under_way, &unsure);
            return import.claim(self.port.as_ref(), generation, held);
        };
        tracing::warn!(target = %header.from, "it has crashed: telling it what is held");
        let under_way = import.under_way(false);
        let doubtful = self.doubt(mdt, if under_way.changes { 0 } else { sure });
        let (client, port) = (self.clone(), self.port.clone());
        self.port.spawn(Box::pin(async move {
            if !doubtful.is_empty() {
                client.kernel_forgets(&doubtful, false).await;
            }
            let held = client.held_of(mdt, &under_way, &under_way.closes);
            import.claim(port.as_ref(), generation, held);
            // Of inodes whose locks were forgotten nobody would ask for these.
            for inode in client.inodes_of(mdt) {
                client.close_useless_in_turn(&inode);
            }
        }));
    }

    /// Names and attributes are forgotten, with their locks, where they may have been learned from a
    /// transaction above `sure`. Returns the inodes of which the kernel may know something.
    fn doubt(&self, mdt: u32, sure: u64) -> Vec<(Fid, Weak<Inode>)> {
        let mut doubtful = Vec::new();
        for inode in self.inodes_of(mdt) {
            let stamp = self.stamp();
            if inode.update(|state| state.doubt(sure, stamp)) {
                doubtful.push((inode.fid, Arc::downgrade(&inode)));
            }
        }
        doubtful
    }

    fn inodes_of(&self, mdt: u32) -> Vec<Arc<Inode>> {
        self.inodes.those(|inode| seq::mdt_of(inode.fid.seq) == mdt)
    }

    /// Everything that an MDT has given to this client, in messages, but for what is `under_way` back:
    /// also not what programs have locked through opens whose closes it is `unsure` of, because it does
    /// not know whether it has executed them, or they were under way when it did not.
    /// Who says goodbye tells of nothing.
    fn held_of(&self, mdt: u32, under_way: &UnderWay, unsure: &BTreeSet<u64>) -> Vec<MdtRequest> {
        if under_way.goodbye {
            return Lists(vec![nothing()]).end();
        }
        let mut opens = Vec::new();
        for part in self.at_mdts.all() {
            for (id, at) in part.iter().filter(|(_, at)| seq::mdt_of(at.fid.seq) == mdt) {
                let (open_id, closing) = (OpenId { id: *id }, under_way.closes.contains(id));
                opens.push(HeldOpen { open_id, fid: at.fid, flags: at.flags, closing });
            }
        }
        opens.sort_unstable_by_key(|open: &HeldOpen| open.open_id);
        let mut file_locks = self.file_locks_of(mdt);
        // Those that went with a close of which nobody has heard yet.
        file_locks.retain(|held| {
            let open = opens.binary_search_by_key(&held.open_id.id, |open| open.open_id.id);
            open.is_ok() && !unsure.contains(&held.open_id.id)
        });
        for asked in &under_way.file_locks {
            file_locks = file_locks.iter().flat_map(|held| surely_held(held, asked)).collect();
        }
        let mut seqs = self.fids.granted();
        seqs.retain(|seq| seq::mdt_of(*seq) == mdt);
        let mut lists = Lists(vec![nothing()]);
        let mut locks = self.locks_of(mdt);
        let UnderWay { cancels, beside, .. } = under_way;
        locks.retain(|held| !cancels.contains(&held.id) && !beside.contains(&held.id));
        lists.put(0, &locks, |message| match message {
            MdtRequest::Reclaim { locks, .. } => Some(locks),
            _ => None,
        });
        lists.put(0, &opens, |message| match message {
            MdtRequest::Reclaim { opens, .. } => Some(opens),
            _ => None,
        });
        lists.put(0, &seqs, |message| match message {
            MdtRequest::Reclaim { seqs, .. } => Some(seqs),
            _ => None,
        });
        // None before its open.
        let after = opens.len().div_ceil(RECLAIM_MAX).saturating_sub(1);
        lists.put(after, &file_locks, |message| match message {
            MdtRequest::Reclaim { file_locks, .. } => Some(file_locks),
            _ => None,
        });
        let mut groups = self.group_locks_of(mdt);
        groups.retain(|held| !cancels.contains(&held.id) && !beside.contains(&held.id));
        let groups = groups.chunks(RECLAIM_MAX);
        let groups = groups.map(|groups| MdtRequest::ReclaimGroups { groups: groups.to_vec() });
        let mut parts = self.parts_of(mdt);
        parts.retain(|held| !cancels.contains(&held.id) && !beside.contains(&held.id));
        let parts = parts.chunks(RECLAIM_MAX);
        let parts = parts.map(|parts| MdtRequest::ReclaimParts { parts: parts.to_vec() });
        groups.chain(parts).chain(lists.end()).collect()
    }

    /// Those that are no group's, and no parts.
    fn locks_of(&self, mdt: u32) -> Vec<HeldLock> {
        let mut locks = Vec::new();
        for inode in self.inodes_of(mdt) {
            let fid = inode.fid;
            let state = lock(&inode.state);
            let whole =
                held_or_leaving(fid, &state).filter(|held| !held.is_group() && held.comb.is_none());
            locks.extend(whole.map(|held| held.lock));
        }
        locks
    }

    fn parts_of(&self, mdt: u32) -> Vec<HeldPart> {
        let mut parts = Vec::new();
        for inode in self.inodes_of(mdt) {
            let state = lock(&inode.state);
            parts.extend(held_or_leaving(inode.fid, &state).filter_map(|held| held.part()));
        }
        parts
    }

    fn group_locks_of(&self, mdt: u32) -> Vec<HeldGroup> {
        let mut groups = Vec::new();
        for inode in self.inodes_of(mdt) {
            let fid = inode.fid;
            let state = lock(&inode.state);
            let gid = state.group.gid();
            let held = held_or_leaving(fid, &state).filter(HeldNow::is_group);
            groups.extend(held.map(|held| HeldGroup { fid, id: held.lock.id, gid }));
        }
        groups
    }

    /// Takes over the locks that an answer brought, and notes what else it says of what is held.
    pub(crate) fn take_over(&self, request: &Request, reply: &Reply, (stamp, pin): (u64, bool)) {
        let comb = match &reply.body {
            ReplyBody::Mdt(MdtReply::Parted { comb, .. }) => Some(*comb),
            _ => None,
        };
        let install = |grant: &Grant| self.install(grant, comb, (stamp, pin));
        reply.grants.iter().for_each(install);
        self.note_answer(request, reply);
    }

    /// An MDT to which this client is connected again knows nothing of what it holds, and the
    /// import is closed until that is forgotten here.
    pub(crate) fn on_forgotten(self: &Arc<Client>, header: &Header) {
        let (Some(import), Endpoint::Mdt(index)) = (self.import(header.from), header.from) else {
            return;
        };
        tracing::warn!(target = %header.from, "it has lost what was open: connecting again");
        let stale: Vec<(Fid, Weak<Inode>)> = self.drop_everything(Some(index));
        if self.is_stopped() {
            // Nobody asks any more. What the MDT knows now is the connection by which it said so,
            // and to that, too, goodbye is said.
            import.connect(self.port.as_ref());
        } else {
            self.connect_without(stale, vec![import]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_request_may_have_changed_is_told_as_far_as_it_is_sure() {
        use FileLockMode::{Read, Unlock, Write};
        let of = |flock, mode, start, end| HeldFileLock {
            fid: Fid::ROOT,
            open_id: OpenId { id: 1 },
            lock: FileLock { owner: 5, flock, mode, start, end, pid: 0 },
        };
        let sure = |held: HeldFileLock, asked: HeldFileLock| {
            let told = surely_held(&held, &asked);
            told.iter().map(|held| (held.lock.mode, held.lock.start, held.lock.end)).collect()
        };
        let held = of(false, Write, 0, 99);
        let told: Vec<_> = sure(held, of(false, Unlock, 10, 19));
        assert_eq!(told, [(Write, 0, 9), (Write, 20, 99)]);
        let told: Vec<_> = sure(held, of(false, Read, 90, 120));
        assert_eq!(told, [(Write, 0, 89), (Read, 90, 99)]);
        let told: Vec<_> = sure(of(false, Read, 0, 9), of(false, Write, 0, 9));
        assert_eq!(told, [(Read, 0, 9)]);
        let told: Vec<_> = sure(of(true, Read, 0, 9), of(true, Write, 0, 9));
        assert!(told.is_empty());
        let told: Vec<_> = sure(held, of(true, Unlock, 0, 99));
        assert_eq!(told, [(Write, 0, 99)], "of another kind");
    }

    #[test]
    fn no_message_has_more_than_it_can() {
        let mut lists = Lists(vec![nothing()]);
        let all: Vec<HeldOpen> = (0..=RECLAIM_MAX as u64)
            .map(|id| HeldOpen {
                open_id: OpenId { id },
                fid: Fid::ROOT,
                flags: OpenFlags::default(),
                closing: false,
            })
            .collect();
        lists.put(1, &all, |message| match message {
            MdtRequest::Reclaim { opens, .. } => Some(opens),
            _ => None,
        });
        let counts = lists.0.iter().map(|message| match message {
            MdtRequest::Reclaim { opens, .. } => opens.len(),
            _ => 0,
        });
        assert_eq!(counts.collect::<Vec<_>>(), [0, RECLAIM_MAX, 1]);
    }
}

//! Commit on sharing: nobody is answered by what another client's change has made before that change
//! is durable.
//!
//! After a crash clients have the changes made again that they were answered for
//! ([`crate::replays`]). What was executed and never answered, and what was answered to a client that
//! died with the MDT, nobody tells of. Who had built upon it, would be lost with it: therefore it is
//! kept here what of the file system is not durable yet, and whose it is; and an answer to anybody
//! else that looks at that waits for the group commit, which it asks for at once.
//!
//! What counts is what a replay looks at (`ops/replay`), and no more:
//! - names: what each stands for, or that there is none;
//! - of an inode what is neither size nor time: owner, mode, lists of permissions and other
//!   attributes, layout and policy, and its links;
//! - of a file, where its size is to be cut or its objects to be born: whether it may have objects;
//! - whether a directory is empty, where one is removed; and where directories are moved, who lies
//!   below whom;
//! - of a list of names all of them.
//!
//! Sizes, times and counts of links that a `stat` shows are none of that: makers of different names in
//! one directory do not wait for each other.

use std::collections::VecDeque;

use sateen_target::Fault;
use sateen_types::{Attr, ClientId, FastMap, Fid, Name, name_hash};
use sateen_wire::{MdtReply, MdtRequest, ReplyBody, SPEAKS};

use crate::mdt::Mdt;
use crate::op::Outcome;

/// Most things that are kept: more than the journal takes between two commits. Beyond them the next
/// change counts as one of everything.
const KEPT_MAX: usize = 1 << 17;

/// A thing of the file system that a client's change may be about. Names have the 48 bits of their
/// hash, the others what no hash is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Thing {
    fid: Fid,
    what: u64,
}

impl Thing {
    /// An inode, but for its size and times.
    const fn inode(fid: Fid) -> Thing {
        Thing { fid, what: 1 << 48 }
    }

    /// Whether a file may have objects, and how far.
    const fn objects(fid: Fid) -> Thing {
        Thing { fid, what: 2 << 48 }
    }

    /// All names in a directory.
    const fn names(fid: Fid) -> Thing {
        Thing { fid, what: 3 << 48 }
    }

    /// Which directory lies below which.
    const TREE: Thing = Thing { fid: Fid::ROOT, what: 4 << 48 };
}

/// What a request has to do with a thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Its answer comes from it.
    Looks,
    /// It changes it, whatever it was.
    Changes,
    /// It changes what it has looked at.
    Both,
}

/// Who has changed a thing last.
#[derive(Debug, Clone, Copy)]
struct Changed {
    by: ClientId,
    transno: u64,
    /// The last change by anybody else, if that is not known to be durable.
    by_others: u64,
}

/// What is not durable yet.
#[derive(Debug)]
pub(crate) struct Sharing {
    is_on: bool,
    things: FastMap<Thing, Changed>,
    /// Each of them once, about in the order of their changes.
    order: VecDeque<(u64, Thing)>,
    /// Up to this one any transaction may have changed anything.
    all: u64,
}

impl Default for Sharing {
    fn default() -> Sharing {
        Sharing { is_on: true, things: FastMap::default(), order: VecDeque::new(), all: 0 }
    }
}

impl Sharing {
    /// The last transaction of another client that made what is looked at here; 0 if there is none.
    fn others(&self, client: ClientId, thing: &Thing) -> u64 {
        match self.things.get(thing) {
            None => 0,
            Some(changed) if changed.by == client => changed.by_others,
            Some(changed) => changed.transno,
        }
    }

    fn change(&mut self, client: ClientId, thing: Thing, transno: u64) {
        if let Some(changed) = self.things.get_mut(&thing) {
            if changed.by != client {
                (changed.by, changed.by_others) = (client, changed.transno);
            }
            changed.transno = transno;
        } else if self.things.len() < KEPT_MAX {
            self.things.insert(thing, Changed { by: client, transno, by_others: 0 });
            self.order.push_back((transno, thing));
        } else {
            self.all = transno;
        }
    }

    /// The last change of a thing goes by what others had made up to this transaction: who has made
    /// it, and has not been answered yet, must not be answered sooner for what comes after it.
    fn stands_on(&mut self, thing: &Thing, upto: u64) {
        if let Some(changed) = self.things.get_mut(thing) {
            changed.by_others = changed.by_others.max(upto);
        }
    }

    /// Everything up to this transaction is durable.
    pub(crate) fn durable(&mut self, committed: u64) {
        while let Some((transno, thing)) = self.order.front().copied()
            && transno <= committed
        {
            self.order.pop_front();
            match self.things.get(&thing) {
                // It was changed once more since.
                Some(changed) if changed.transno > committed => {
                    self.order.push_back((changed.transno, thing));
                }
                _ => {
                    self.things.remove(&thing);
                }
            }
        }
    }
}

impl Mdt {
    /// A request was executed. Returns up to which transaction everything has to be durable before
    /// its client hears of that.
    pub(crate) fn share(
        &mut self,
        client: ClientId,
        request: &MdtRequest,
        result: &Result<Outcome, Fault>,
        moves_tree: bool,
    ) -> u64 {
        if !self.sharing.is_on {
            return 0;
        }
        let reply = match result {
            Ok(
                Outcome::Reply(reply)
                | Outcome::Durable(reply, _)
                | Outcome::Punch(reply, _)
                | Outcome::WhenCut(reply, _),
            ) => Some(reply),
            Err(Fault::Errno(_)) => None,
            Err(Fault::Miss | Fault::Blocked) => return 0,
        };
        let committed = self.core.store.committed();
        // What is answered once more after a crash is durable by now.
        let transno = reply.map_or(0, |reply| reply.transno);
        let changes = transno > committed;
        let body = reply.and_then(|reply| match &reply.body {
            ReplyBody::Mdt(body) => Some(body),
            _ => None,
        });
        let hash_key = self.core.config.hash_key;
        let sharing = &mut self.sharing;
        let mut upto = sharing.all;
        let mut used = |thing: Thing, how: Use| {
            if how != Use::Changes {
                upto = upto.max(sharing.others(client, &thing));
            }
            if how != Use::Looks && changes {
                sharing.change(client, thing, transno);
            }
        };
        if moves_tree {
            used(Thing::TREE, Use::Both);
        }
        uses(request, (body, changes), hash_key, &mut used);
        if upto <= committed {
            return 0;
        }
        if changes {
            let sharing = &mut self.sharing;
            uses(request, (body, changes), hash_key, &mut |thing, how| {
                if how != Use::Looks {
                    sharing.stands_on(&thing, upto);
                }
            });
        }
        // Who lives in this process dies with it.
        let outlives = self.core.exports.features(client).is_some_and(|all| all & SPEAKS != 0);
        if outlives { upto } else { 0 }
    }

    /// Whether who looks at what another client has changed waits until that is durable.
    pub fn commit_on_sharing(&self) -> bool {
        self.sharing.is_on
    }

    /// Has everybody wait for that, or nobody.
    pub fn set_commit_on_sharing(&mut self, is_on: bool) {
        if is_on && !self.sharing.is_on {
            // What was changed meanwhile nobody knows.
            let all = self.core.store.transno();
            self.sharing = Sharing { all, ..Sharing::default() };
        }
        self.sharing.is_on = is_on;
    }
}

/// Calls `used` with all things that a request has to do with.
fn uses(
    request: &MdtRequest,
    (reply, changes): (Option<&MdtReply>, bool),
    hash_key: u64,
    used: &mut impl FnMut(Thing, Use),
) {
    match request {
        MdtRequest::GetAttr { fid, .. }
        | MdtRequest::ReadLink { fid }
        | MdtRequest::GetXattr { fid, .. }
        | MdtRequest::ListXattr { fid }
        | MdtRequest::GetStripe { fid }
        | MdtRequest::GetLinks { fid }
        | MdtRequest::Enqueue { fid, .. }
        | MdtRequest::EnqueueGroup { fid, .. }
        | MdtRequest::EnqueuePart { fid, .. }
        | MdtRequest::Tmpfile { parent: fid, .. } => used(Thing::inode(*fid), Use::Looks),
        MdtRequest::ReadDir { fid, .. } => {
            used(Thing::inode(*fid), Use::Looks);
            used(Thing::names(*fid), Use::Looks);
            if let Some(MdtReply::Entries { entries, .. }) = reply {
                for entry in entries.iter().filter(|entry| entry.attr.is_some()) {
                    used(Thing::inode(entry.fid), Use::Looks);
                }
            }
        }
        MdtRequest::Lookup { .. }
        | MdtRequest::Create { .. }
        | MdtRequest::Unlink { .. }
        | MdtRequest::Rename { .. }
        | MdtRequest::RenameWhiteout { .. }
        | MdtRequest::Link { .. } => uses_names(request, (reply, changes), hash_key, used),
        MdtRequest::Open { fid, flags, .. } => {
            opened(*fid, (flags.write, flags.truncate), changes, used);
        }
        MdtRequest::SetAttr { fid, set, .. } => {
            let decides = set.mode.is_some() || set.uid.is_some() || set.gid.is_some();
            used(Thing::inode(*fid), if decides { Use::Both } else { Use::Looks });
            if set.size.is_some() {
                used(Thing::objects(*fid), Use::Both);
            }
        }
        MdtRequest::SetXattr { fid, .. } | MdtRequest::RemoveXattr { fid, .. } => {
            used(Thing::inode(*fid), Use::Both);
        }
        MdtRequest::SetStripe { fid, .. }
        | MdtRequest::SetLayout { fid, .. }
        | MdtRequest::NoRoom { fid, .. } => {
            used(Thing::inode(*fid), Use::Both);
            used(Thing::objects(*fid), Use::Looks);
        }
        MdtRequest::Close { fid, .. }
        | MdtRequest::Cancel { fid, .. }
        | MdtRequest::ReportSize { fid, .. } => used(Thing::objects(*fid), Use::Changes),
        // Programs' locks lie in memory. What is durable when it is answered, or nobody can build
        // upon.
        MdtRequest::SetFileLock { .. }
        | MdtRequest::TestFileLock { .. }
        | MdtRequest::LeaveFileLock { .. }
        | MdtRequest::AnswerGlimpse { .. }
        | MdtRequest::GoesOn { .. }
        | MdtRequest::Sync { .. }
        | MdtRequest::GrantSeq
        | MdtRequest::StatFs
        | MdtRequest::Reclaim { .. }
        | MdtRequest::ReclaimGroups { .. }
        | MdtRequest::ReclaimParts { .. }
        | MdtRequest::Replay { .. } => {}
    }
}

/// The same of one that goes by names.
fn uses_names(
    request: &MdtRequest,
    (reply, changes): (Option<&MdtReply>, bool),
    hash_key: u64,
    used: &mut impl FnMut(Thing, Use),
) {
    let named = |parent: Fid, name: &Name| Thing {
        fid: parent,
        what: name_hash(hash_key, name.as_bytes()),
    };
    match request {
        MdtRequest::Lookup { parent, name, .. } => {
            used(named(*parent, name), Use::Looks);
            if let Some(MdtReply::Inode { attr }) = reply {
                used(Thing::inode(attr.fid), Use::Looks);
            }
        }
        MdtRequest::Create { parent, name, open, .. } => {
            used(Thing::inode(*parent), Use::Looks);
            match reply {
                Some(MdtReply::Created { attr, existed: true, .. }) => {
                    used(named(*parent, name), Use::Looks);
                    let open = open.unwrap_or_default();
                    opened(attr.fid, (open.write, open.truncate), changes, used);
                }
                // Nobody else can know the new inode but by this name.
                _ => {
                    used(named(*parent, name), Use::Both);
                    used(Thing::names(*parent), Use::Changes);
                }
            }
        }
        MdtRequest::Unlink { parent, name, .. } => {
            used(named(*parent, name), Use::Both);
            used(Thing::names(*parent), Use::Changes);
            if let Some(MdtReply::Removed { attr: Some(attr), .. }) = reply {
                lost_name(attr, used);
            }
        }
        MdtRequest::Rename { parent, name, new_parent, new_name, .. }
        | MdtRequest::RenameWhiteout { parent, name, new_parent, new_name, .. } => {
            for (dir, name) in [(*parent, name), (*new_parent, new_name)] {
                used(Thing::inode(dir), Use::Looks);
                used(named(dir, name), Use::Both);
                used(Thing::names(dir), Use::Changes);
            }
            if let Some(MdtReply::Renamed { replaced: Some(attr), .. }) = reply {
                lost_name(attr, used);
            }
        }
        MdtRequest::Link { fid, parent, name } => {
            used(named(*parent, name), Use::Both);
            used(Thing::names(*parent), Use::Changes);
            used(Thing::inode(*fid), Use::Both);
        }
        _ => {}
    }
}

/// An inode has lost a name: whether it was the last, or a directory was empty, others may have made so.
fn lost_name(attr: &Attr, used: &mut impl FnMut(Thing, Use)) {
    used(Thing::inode(attr.fid), Use::Looks);
    if attr.is_dir() {
        used(Thing::names(attr.fid), Use::Looks);
    }
}

/// A file that existed was opened. One that begins to write it, or empties it, has made it a file that
/// may have objects; others rely on that it is one.
fn opened(
    fid: Fid,
    (write, truncate): (bool, bool),
    changes: bool,
    used: &mut impl FnMut(Thing, Use),
) {
    used(Thing::inode(fid), Use::Looks);
    if truncate {
        used(Thing::objects(fid), Use::Both);
    } else if write {
        used(Thing::objects(fid), if changes { Use::Changes } else { Use::Looks });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);

    fn thing(oid: u32) -> Thing {
        Thing::inode(Fid::new(sateen_types::Seq(7), oid))
    }

    #[test]
    fn who_has_built_on_another_and_was_not_answered_waits_for_what_follows_too() {
        let mut sharing = Sharing::default();
        sharing.change(A, thing(1), 10);
        // It goes by that, and makes another thing of it.
        let upto = sharing.others(B, &thing(1));
        sharing.change(B, thing(2), 11);
        sharing.stands_on(&thing(2), upto);
        assert_eq!(sharing.others(B, &thing(2)), 10);
        sharing.change(B, thing(2), 12);
        assert_eq!((sharing.others(B, &thing(2)), sharing.others(A, &thing(2))), (10, 12));
    }

    #[test]
    fn each_waits_for_the_last_change_of_another() {
        let mut sharing = Sharing::default();
        let seen = |sharing: &Sharing| [A, B].map(|client| sharing.others(client, &thing(1)));
        sharing.change(A, thing(1), 10);
        assert_eq!(seen(&sharing), [0, 10]);
        sharing.change(A, thing(1), 11);
        assert_eq!(seen(&sharing), [0, 11]);
        sharing.change(B, thing(1), 12);
        assert_eq!(seen(&sharing), [12, 11]);
        sharing.change(B, thing(1), 13);
        sharing.change(A, thing(1), 14);
        assert_eq!(seen(&sharing), [13, 14]);
        sharing.durable(13);
        assert_eq!(seen(&sharing), [13, 14], "its own is not durable");
        sharing.durable(14);
        assert_eq!(seen(&sharing), [0, 0]);
        assert!(sharing.things.is_empty() && sharing.order.is_empty());
    }

    #[test]
    fn what_is_changed_again_and_again_is_kept_once() {
        let mut sharing = Sharing::default();
        for transno in 1..10_000 {
            sharing.change(A, thing(0), transno);
            sharing.change(A, thing(transno as u32), transno);
            sharing.durable(transno.saturating_sub(100));
            assert!(sharing.things.len() <= 102 && sharing.order.len() == sharing.things.len());
        }
        sharing.durable(10_000);
        assert!(sharing.things.is_empty() && sharing.order.is_empty());
    }

    #[test]
    fn what_is_too_much_counts_as_a_change_of_everything() {
        let mut sharing = Sharing::default();
        for transno in 1..=KEPT_MAX as u64 {
            sharing.change(A, thing(transno as u32), transno);
        }
        assert_eq!(sharing.all, 0);
        let next = KEPT_MAX as u64 + 1;
        sharing.change(A, thing(next as u32), next);
        assert_eq!((sharing.all, sharing.things.len()), (next, KEPT_MAX));
    }
}

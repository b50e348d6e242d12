//! Changes that an MDT has answered for and may not have made durable yet.
//!
//! A crash of the MDT may lose them. Each is kept, request and answer, until the MDT says that it has
//! committed that far. Those that are left when it comes back, and that it does not have, it is told of
//! (`Replay`), and makes them again before anything else: nothing is lost then.
//!
//! If it cannot, or if one of them is of a kind that is not made again, the client goes on as another,
//! and whoever then syncs the directory or file that was changed must not be told that all is well:
//! the next fsync of each inode that they are about says so, once. Some of them may have been
//! committed, only that this client had not heard: an fsync too many says `EIO` then, none too few.

use std::collections::{BTreeMap, VecDeque};

use sateen_types::{Fid, Timespec};
use sateen_wire::codec::Wire;
use sateen_wire::{
    Body, MdtReply, MdtRequest, REPLAY_BYTES_MAX, REPLAY_MAX, Replayed, Reply, ReplyBody, Request,
};

use crate::loss::{Asker, Loss};

/// Most changes that are kept, and most bytes of all of them, with names, values and layouts. An MDT
/// commits every few milliseconds; who would go beyond waits for a commit.
const KEPT_MAX: usize = 1 << 14;
const KEPT_BYTES_MAX: usize = 16 << 20;
/// For those who wait for nothing, and have been asked before it was known, there is as much again.
/// What goes beyond that is as if it could not be made again.
const BEYOND: usize = 2;

/// Room for so many is kept while there are none: some MiB.
const ROOM_MAX: usize = 1 << 12;

/// What one transaction changed: directories, or an inode itself.
type Changed = [Fid; 2];

/// A change that can be made again.
#[derive(Debug)]
struct Kept {
    request: MdtRequest,
    time: Timespec,
    answer: MdtReply,
}

#[derive(Debug)]
struct Line {
    transno: u64,
    /// What of it is to be told at an fsync.
    changed: Option<Changed>,
    /// In place: to keep a change takes no memory beside the line.
    kept: Option<Kept>,
}

/// Those of one MDT.
#[derive(Debug, Default)]
pub(crate) struct Uncommitted {
    /// In the order of their transnos. Answers come nearly in that order, and the MDT commits
    /// every few milliseconds: there are few.
    lines: VecDeque<Line>,
    /// Bytes of those that are kept.
    bytes: usize,
    /// The MDT was started again without those that are left.
    missing: bool,
    /// Inodes of which changes may be lost. As many as were changed just before a restart.
    lost: BTreeMap<Fid, Loss>,
}

impl Uncommitted {
    /// A request was answered.
    pub(crate) fn answered(&mut self, request: &Body, reply: &Reply) {
        if reply.transno > reply.last_committed
            && let Body::Request(Request::Mdt(request)) = request
        {
            let Reply { transno, time, .. } = *reply;
            let room = self.lines.len() < BEYOND * KEPT_MAX && self.bytes < BEYOND * KEPT_BYTES_MAX;
            let kept = match &reply.body {
                ReplyBody::Mdt(answer) if reply.error.is_none() && room && is_kept(request) => {
                    let (request, answer) = (request.clone(), answer.clone());
                    Some(Kept { request, time, answer })
                }
                _ => None,
            };
            self.bytes += kept.as_ref().map_or(0, Kept::bytes);
            let line = Line { transno, changed: changed_by(request), kept };
            let at = self.lines.partition_point(|other| other.transno <= transno);
            self.lines.insert(at, line);
        }
        while self.lines.front().is_some_and(|line| line.transno <= reply.last_committed) {
            let gone = self.lines.pop_front().and_then(|line| line.kept);
            self.bytes -= gone.as_ref().map_or(0, Kept::bytes);
        }
        if self.lines.is_empty() && self.lines.capacity() > ROOM_MAX {
            self.lines.shrink_to(ROOM_MAX);
        }
    }

    /// Up to which one the MDT has to commit before a further change is asked for, if it has to.
    pub(crate) fn full(&self) -> Option<u64> {
        let full = self.lines.len() >= KEPT_MAX || self.bytes >= KEPT_BYTES_MAX;
        self.lines.back().filter(|_| full).map(|line| line.transno)
    }

    /// The MDT has restarted.
    pub(crate) fn restarted(&mut self) {
        let changed = self.lines.drain(..).filter_map(|line| line.changed).flatten();
        self.lost.extend(changed.map(|fid| (fid, Loss::New)));
        (self.bytes, self.missing) = (0, false);
    }

    /// The MDT was started again, and has everything up to this transaction. Whether all else can be
    /// made again.
    pub(crate) fn has_upto(&mut self, transno: u64) -> bool {
        self.lines.retain(|line| line.transno > transno);
        let kept = self.lines.iter().filter_map(|line| line.kept.as_ref());
        self.bytes = kept.map(Kept::bytes).sum();
        self.missing = !self.lines.is_empty();
        self.lines.iter().all(|line| line.kept.is_some())
    }

    /// Whether there is nothing to be made again.
    pub(crate) const fn misses_nothing(&self) -> bool {
        !self.missing
    }

    /// What is missing, in messages that each have as much as one can.
    pub(crate) fn replays(&self) -> Vec<MdtRequest> {
        let mut messages: Vec<Vec<Replayed>> = Vec::new();
        let mut bytes = 0;
        for line in self.lines.iter().filter(|_| self.missing) {
            let Some(kept) = &line.kept else { continue };
            let (request, answer) = (kept.request.to_vec().into(), kept.answer.to_vec().into());
            let (transno, time) = (line.transno, kept.time);
            let replayed = Replayed { transno, time, request, answer };
            let more = replayed.request.len() + replayed.answer.len();
            match messages.last_mut().filter(|all| all.len() < REPLAY_MAX) {
                Some(all) if bytes + more <= REPLAY_BYTES_MAX => {
                    all.push(replayed);
                    bytes += more;
                }
                _ => {
                    messages.push(vec![replayed]);
                    bytes = more;
                }
            }
        }
        let count = messages.len();
        let all = (1..).zip(messages);
        all.map(|(at, changes)| MdtRequest::Replay { changes, last: at == count }).collect()
    }

    /// The MDT has made again what was missing, and it is durable.
    pub(crate) fn replayed(&mut self) {
        self.lines.clear();
        (self.bytes, self.missing) = (0, false);
    }

    /// The connection is void. What is missing then is lost.
    pub(crate) fn gave_up(&mut self) {
        if self.missing {
            self.restarted();
        }
    }

    /// A change of this inode may be lost.
    pub(crate) fn lose(&mut self, fid: Fid) {
        self.lost.insert(fid, Loss::New);
    }

    /// Whether a change of this inode may be lost, to be told to one who syncs it.
    pub(crate) fn take_lost(&mut self, fid: Fid) -> bool {
        self.lost.remove(&fid).is_some()
    }

    /// Whether any change may be lost, to be told to one who syncs everything. Those who sync
    /// an inode are told all the same.
    pub(crate) fn show_all_lost(&mut self) -> bool {
        let told = self.lost.values_mut().map(|loss| loss.tell(Asker::Everybody));
        told.fold(false, |any, told| any | told)
    }
}

/// Whether a change is of a kind that is made again.
const fn is_kept(request: &MdtRequest) -> bool {
    // A sequence is durable before it is granted, and nothing else has a number of its own.
    !matches!(
        request,
        MdtRequest::GrantSeq
            | MdtRequest::Reclaim { .. }
            | MdtRequest::ReclaimGroups { .. }
            | MdtRequest::ReclaimParts { .. }
            | MdtRequest::Replay { .. }
    )
}

impl Kept {
    /// What it takes in memory.
    fn bytes(&self) -> usize {
        let beside = match &self.request {
            MdtRequest::Create { name, symlink, .. } => name.as_bytes().len() + symlink.len(),
            MdtRequest::Unlink { name, .. }
            | MdtRequest::Link { name, .. }
            | MdtRequest::RemoveXattr { name, .. } => name.as_bytes().len(),
            MdtRequest::Rename { name, new_name, .. }
            | MdtRequest::RenameWhiteout { name, new_name, .. } => {
                name.as_bytes().len() + new_name.as_bytes().len()
            }
            MdtRequest::SetXattr { name, value, .. } => name.as_bytes().len() + value.len(),
            MdtRequest::SetLayout { osts, .. } => size_of_val(&osts[..]),
            _ => 0,
        };
        let layout = match &self.answer {
            MdtReply::Created { layout, .. }
            | MdtReply::Opened { layout, .. }
            | MdtReply::Striping { layout, .. } => layout.as_deref(),
            _ => None,
        };
        let components = layout.map_or(&[][..], |layout| &layout.components);
        let osts: usize = components.iter().map(|part| size_of_val(&part.osts[..])).sum();
        size_of::<Kept>() + beside + osts + size_of_val(components)
    }
}

/// Whether a request waits for a commit while no more changes can be kept: what a program wants
/// changed. What gives something back, or tells what has been, does not wait.
pub(crate) const fn waits_for_room(request: &Request) -> bool {
    matches!(
        request,
        Request::Mdt(
            MdtRequest::Create { .. }
                | MdtRequest::Tmpfile { .. }
                | MdtRequest::Open { .. }
                | MdtRequest::Unlink { .. }
                | MdtRequest::Rename { .. }
                | MdtRequest::RenameWhiteout { .. }
                | MdtRequest::Link { .. }
                | MdtRequest::SetAttr { .. }
                | MdtRequest::SetXattr { .. }
                | MdtRequest::RemoveXattr { .. }
                | MdtRequest::SetStripe { .. }
                | MdtRequest::SetLayout { .. }
        )
    )
}

/// The inodes whose fsync promises that this change is there.
fn changed_by(request: &MdtRequest) -> Option<Changed> {
    match request {
        MdtRequest::Create { parent, fid, .. } | MdtRequest::Link { parent, fid, .. } => {
            Some([*parent, *fid])
        }
        MdtRequest::Unlink { parent, .. } => Some([*parent, *parent]),
        MdtRequest::Rename { parent, new_parent, .. }
        | MdtRequest::RenameWhiteout { parent, new_parent, .. } => Some([*parent, *new_parent]),
        MdtRequest::SetAttr { fid, .. }
        | MdtRequest::Tmpfile { fid, .. }
        | MdtRequest::SetXattr { fid, .. }
        | MdtRequest::RemoveXattr { fid, .. }
        | MdtRequest::SetStripe { fid, .. }
        | MdtRequest::SetLayout { fid, .. } => Some([*fid, *fid]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use sateen_wire::{ReplyBody, SetAttr};

    use super::*;

    fn fid(oid: u32) -> Fid {
        Fid { oid, ..Fid::ROOT }
    }

    fn answered(all: &mut Uncommitted, of: Fid, transno: u64, last_committed: u64) {
        let cred = sateen_wire::Cred { uid: 0, gid: 0, umask: 0 };
        let request = MdtRequest::SetAttr { fid: of, set: SetAttr::default(), cred };
        let reply = Reply { transno, last_committed, ..Reply::ok(ReplyBody::Mdt(MdtReply::Done)) };
        all.answered(&Body::Request(Request::Mdt(request)), &reply);
    }

    #[test]
    fn what_was_not_committed_at_a_restart_is_told_once() {
        let mut all = Uncommitted::default();
        answered(&mut all, fid(1), 5, 3);
        answered(&mut all, fid(3), 7, 3);
        answered(&mut all, fid(2), 6, 5);
        // A read: it brings news only.
        answered(&mut all, fid(9), 0, 6);
        assert_eq!(all.lines.len(), 1);
        all.restarted();
        assert!(!all.take_lost(fid(1)) && !all.take_lost(fid(2)) && !all.take_lost(fid(9)));
        assert!(all.take_lost(fid(3)) && !all.take_lost(fid(3)));
        answered(&mut all, fid(4), 1, 0);
        all.restarted();
        assert!(all.show_all_lost() && !all.show_all_lost());
        assert!(all.take_lost(fid(4)), "whoever made it is told as well");
        answered(&mut all, fid(5), 2, 0);
        assert!(all.has_upto(u64::MAX));
        all.restarted();
        assert!(!all.take_lost(fid(5)));
        answered(&mut all, fid(6), 2, 0);
        answered(&mut all, fid(7), 3, 0);
        assert!(all.has_upto(2));
        assert!(!all.take_lost(fid(7)), "it is made again, as far as is known");
        all.gave_up();
        assert!(!all.take_lost(fid(6)) && all.take_lost(fid(7)));
    }

    #[test]
    fn what_is_missing_is_told_in_order_with_its_answer() {
        let mut all = Uncommitted::default();
        for transno in [9, 5, 7] {
            answered(&mut all, fid(transno as u32), transno, 3);
        }
        assert!(all.replays().is_empty(), "nothing is known to be missing");
        assert!(all.has_upto(6));
        let told = all.replays();
        let [MdtRequest::Replay { changes, last: true }] = &told[..] else { panic!("{told:?}") };
        assert_eq!(changes.iter().map(|one| one.transno).collect::<Vec<_>>(), [7, 9]);
        let request = MdtRequest::from_bytes(&changes[0].request);
        assert!(matches!(request, Ok(MdtRequest::SetAttr { fid: of, .. }) if of == fid(7)));
        assert_eq!(MdtReply::from_bytes(&changes[0].answer), Ok(MdtReply::Done));
        all.replayed();
        all.gave_up();
        assert!(all.replays().is_empty() && !all.take_lost(fid(7)));
    }

    #[test]
    fn messages_have_a_limit_and_so_has_what_is_kept() {
        let mut all = Uncommitted::default();
        let value = bytes::Bytes::from(vec![1; 65536]);
        let name = sateen_types::Name::new(b"user.a").unwrap();
        let mode = sateen_wire::XattrMode::Any;
        let request = MdtRequest::SetXattr { fid: fid(1), name, value, mode };
        let request = Body::Request(Request::Mdt(request));
        let reply = |transno| Reply { transno, ..Reply::ok(ReplyBody::Mdt(MdtReply::Done)) };
        let mut kept = 0;
        while all.bytes < BEYOND * KEPT_BYTES_MAX {
            let full = all.bytes >= KEPT_BYTES_MAX;
            assert_eq!(all.full(), full.then_some(kept));
            kept += 1;
            all.answered(&request, &reply(kept));
        }
        assert!((500..513).contains(&kept), "names and the changes themselves count, too");
        assert!(all.has_upto(0));
        let told = all.replays();
        assert!(told.len() > 15 && told.len() as u64 <= kept);
        assert!(told.iter().all(|one| one.to_vec().len() < REPLAY_BYTES_MAX + 100_000));
        let lasts = told.iter().filter(|one| matches!(one, MdtRequest::Replay { last: true, .. }));
        assert_eq!(lasts.count(), 1);
        all.answered(&request, &reply(kept + 1));
        assert!(!all.has_upto(kept), "one beyond is as one that cannot be made again");
        let read = Reply { last_committed: kept + 1, ..reply(0) };
        all.answered(&request, &read);
        assert_eq!((all.bytes, all.full()), (0, None));
    }
}

//! Changes that an MDT has answered for and may not have made durable yet.
//!
//! A restart of the MDT may lose them, and whoever then syncs the directory or file that was
//! changed must not be told that all is well. Each change leaves a line until the MDT says that
//! it has committed that far; the lines that are left when it comes back from a restart are
//! changes that may be lost, and the next fsync of each inode they are about says so, once.
//! Some of them may have been committed, only that this client had not heard: an fsync too many
//! says `EIO` then, none too few.
//!
//! With replay the requests themselves will be kept here, and made again.

use std::collections::{BTreeMap, VecDeque};

use sateen_types::Fid;
use sateen_wire::{Body, MdtRequest, Reply, Request};

use crate::loss::{Asker, Loss};

/// What one transaction changed: directories, or an inode itself.
type Changed = [Fid; 2];

/// Those of one MDT.
#[derive(Debug, Default)]
pub(crate) struct Uncommitted {
    /// In the order of their transnos. Answers come nearly in that order, and the MDT commits
    /// every few milliseconds: there are few.
    lines: VecDeque<(u64, Changed)>,
    /// Inodes of which changes may be lost. As many as were changed just before a restart.
    lost: BTreeMap<Fid, Loss>,
}

impl Uncommitted {
    /// A request was answered.
    pub(crate) fn answered(&mut self, request: &Body, reply: &Reply) {
        if reply.transno > reply.last_committed
            && let Body::Request(Request::Mdt(request)) = request
            && let Some(changed) = changed_by(request)
        {
            let at = self.lines.partition_point(|(transno, _)| *transno <= reply.transno);
            self.lines.insert(at, (reply.transno, changed));
        }
        while self.lines.front().is_some_and(|(transno, _)| *transno <= reply.last_committed) {
            self.lines.pop_front();
        }
    }

    /// The MDT has restarted.
    pub(crate) fn restarted(&mut self) {
        let changed = self.lines.drain(..).flat_map(|(_, changed)| changed);
        self.lost.extend(changed.map(|fid| (fid, Loss::New)));
    }

    /// The MDT was started again, and has everything up to this transaction.
    pub(crate) fn has_upto(&mut self, transno: u64) {
        self.lines.retain(|(of, _)| *of > transno);
        self.restarted();
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
        let reply = Reply { transno, last_committed, ..Reply::ok(ReplyBody::Empty) };
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
        all.has_upto(u64::MAX);
        all.restarted();
        assert!(!all.take_lost(fid(5)));
        answered(&mut all, fid(6), 2, 0);
        answered(&mut all, fid(7), 3, 0);
        all.has_upto(2);
        assert!(!all.take_lost(fid(6)) && all.take_lost(fid(7)));
    }
}

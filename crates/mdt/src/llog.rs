//! The llogs in memory: objects to be destroyed or cut once that is durable, and the records
//! that go when it is done.
//!
//! Life of an unlink record: written with the removal of the inode; durable; `Destroy` sent
//! to each object's OST, soon; all answered; the record is removed. Life of a punch record: written
//! with the new size; durable; `Punch` sent; all answered, which means durably cut, so the
//! request is answered, the file's data is free again, and the record is removed. Records
//! found at the start begin at "durable".

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use sateen_osd::Key;
use sateen_types::{Fid, FidMap, Layout, ObjectId, Seq};
use sateen_wire::{Header, LockId, Reply};

use crate::keys;
use crate::op::Punch;
use crate::osp::{Job, Osp, Removal};

/// Records removed with one transaction.
pub(crate) const DONE_PER_BATCH_MAX: usize = 1024;

#[derive(Debug)]
struct Unlink {
    transno: u64,
    fid: Fid,
    layout: Arc<Layout>,
    late_writers: bool,
    /// How long it was, if it is of this run: what the last one left has waited for long enough.
    size: Option<u64>,
}

/// A truncate on its way.
#[derive(Debug)]
pub(crate) struct Cutting {
    pub(crate) punch: Punch,
    /// The target's lock on the file's data meanwhile.
    pub(crate) hold: Option<LockId>,
    /// Whom to answer.
    pub(crate) answer: Option<(Header, Reply)>,
    /// Nobody waits for it, because an OST that has still to cut is out of use.
    pub(crate) stuck: bool,
    sent: bool,
    /// OSTs that have not cut yet, each as often as it has objects.
    left: Vec<u32>,
}

impl Cutting {
    /// OSTs that have still to cut.
    pub(crate) fn osts(&self) -> Vec<u32> {
        if self.sent {
            return self.left.clone();
        }
        self.punch.layout.objects().map(|(_, ost)| ost).collect()
    }
}

/// Both llogs.
#[derive(Debug, Default)]
pub(crate) struct Llog {
    unlinks: VecDeque<Unlink>,
    /// Stripes of removed files that are still there. Counting would not do: what the start
    /// finds without a file is destroyed once more.
    destroying: FidMap<Vec<u32>>,
    /// Objects that the start found without a file, and what they were found under.
    strays: BTreeMap<ObjectId, Seq>,
    /// Those of them that are not destroyed yet: an inode that is gone may have gone with a
    /// transaction that a crash takes back. From this one on it cannot.
    waiting: VecDeque<(u64, u32, ObjectId)>,
    punches: BTreeMap<u64, Cutting>,
    done: Vec<Key>,
}

impl Llog {
    /// An unlink record was written by this transaction.
    pub(crate) fn unlink(
        &mut self,
        transno: u64,
        (fid, size): (Fid, Option<u64>),
        layout: Arc<Layout>,
        late_writers: bool,
    ) {
        self.unlinks.push_back(Unlink { transno, fid, layout, late_writers, size });
    }

    /// A punch record was written by this transaction.
    pub(crate) fn punch(
        &mut self,
        transno: u64,
        punch: Punch,
        hold: Option<LockId>,
        answer: Option<(Header, Reply)>,
    ) {
        let (stuck, sent, left) = (false, false, Vec::new());
        self.punches.insert(transno, Cutting { punch, hold, answer, stuck, sent, left });
    }

    /// Everything up to `committed` is durable: hands what that frees to the OSTs. Returns
    /// truncates that need no OST after all.
    pub(crate) fn durable(&mut self, committed: u64, osp: &mut Osp) -> Vec<u64> {
        while self.unlinks.front().is_some_and(|next| next.transno <= committed) {
            let Some(unlink) = self.unlinks.pop_front() else { break };
            let mut sent = Vec::new();
            for (stripe, ost) in unlink.layout.objects() {
                let object = ObjectId { fid: unlink.fid, stripe };
                let late_writers = unlink.late_writers;
                let bytes_of = |size| unlink.layout.object_size(stripe, size);
                let bytes = unlink.size.map_or(u64::MAX, bytes_of);
                if osp.destroy(ost, Removal { object, late_writers, bytes }) {
                    sent.push(stripe);
                }
            }
            if sent.is_empty() {
                self.done.push(keys::unlink(unlink.fid));
            } else {
                self.destroying.insert(unlink.fid, sent);
            }
        }
        while self.waiting.front().is_some_and(|(transno, ..)| *transno <= committed) {
            let Some((_, ost, object)) = self.waiting.pop_front() else { break };
            osp.destroy(ost, Removal { object, late_writers: true, bytes: 0 });
        }
        let mut idle = Vec::new();
        for (transno, cutting) in self.punches.range_mut(..=committed) {
            if core::mem::replace(&mut cutting.sent, true) {
                continue;
            }
            let punch = &cutting.punch;
            for (stripe, ost) in punch.layout.objects() {
                let object = ObjectId { fid: punch.fid, stripe };
                let size = punch.layout.object_size(stripe, punch.size);
                let job = Job::Punch { version: *transno, object, size };
                if osp.push(ost, job) {
                    cutting.left.push(ost);
                }
            }
            if cutting.left.is_empty() {
                idle.push(*transno);
            }
        }
        idle
    }

    /// An object on an OST was found to have no file as of a transaction, and is destroyed
    /// once that is durable; false if it is already known.
    pub(crate) fn stray(&mut self, transno: u64, (ost, object): (u32, ObjectId), seq: Seq) -> bool {
        let new = self.strays.insert(object, seq).is_none();
        if new {
            self.waiting.push_back((transno, ost, object));
        }
        new
    }

    /// OSTs have destroyed objects, durably. Returns the sequences of those that were strays,
    /// each as often as it had one.
    pub(crate) fn destroyed(&mut self, objects: &[ObjectId]) -> Vec<Seq> {
        for object in objects {
            let Some(left) = self.destroying.get_mut(&object.fid) else { continue };
            left.retain(|stripe| *stripe != object.stripe);
            if left.is_empty() {
                self.destroying.remove(&object.fid);
                self.done.push(keys::unlink(object.fid));
            }
        }
        objects.iter().filter_map(|object| self.strays.remove(object)).collect()
    }

    /// All truncates that are not done.
    pub(crate) fn cuttings(&mut self) -> impl Iterator<Item = &mut Cutting> {
        self.punches.values_mut()
    }

    /// The truncate that a transaction has begun, if it is not done.
    pub(crate) fn cutting_by(&mut self, transno: u64) -> Option<&mut Cutting> {
        self.punches.get_mut(&transno)
    }

    /// An OST has cut one object, durably, or needs to cut none. Returns the truncate if that was
    /// the last.
    pub(crate) fn punched(&mut self, transno: u64, ost: Option<u32>) -> Option<Cutting> {
        let cutting = self.punches.get_mut(&transno)?;
        if let Some(at) = cutting.left.iter().position(|left| Some(*left) == ost) {
            cutting.left.swap_remove(at);
        }
        if !cutting.left.is_empty() {
            return None;
        }
        self.done.push(keys::punch(transno));
        self.punches.remove(&transno)
    }

    /// Whether it is not waited for that this truncate is done.
    pub(crate) fn is_stuck(&self, transno: u64) -> bool {
        self.punches.get(&transno).is_some_and(|cutting| cutting.stuck)
    }

    /// Another record that is not needed any more.
    pub(crate) fn remove(&mut self, key: Key) {
        self.done.push(key);
    }

    /// Records to be removed now.
    pub(crate) fn take_done(&mut self) -> impl Iterator<Item = Key> + '_ {
        let from = self.done.len().saturating_sub(DONE_PER_BATCH_MAX);
        self.done.drain(from..)
    }

    /// Whether records are to be removed.
    pub(crate) fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    /// Whether a removal is not durable yet.
    pub(crate) fn has_unlinks(&self) -> bool {
        !self.unlinks.is_empty()
    }

    /// Whether nothing is on its way.
    pub(crate) fn is_idle(&self) -> bool {
        self.unlinks.is_empty()
            && self.destroying.is_empty()
            && self.punches.is_empty()
            && self.done.is_empty()
    }

    /// Whether somebody waits for a truncate.
    pub(crate) fn has_answers(&self) -> bool {
        self.punches.values().any(|cutting| cutting.answer.is_some())
    }

    /// Everybody who waits for a truncate.
    pub(crate) fn take_answers(&mut self) -> Vec<Header> {
        self.punches
            .values_mut()
            .filter_map(|c| c.answer.take())
            .map(|(header, _)| header)
            .collect()
    }
}

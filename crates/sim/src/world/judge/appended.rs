//! Where an append went that began when the end of its file was known, and ended when it was not any
//! more. Either somebody was lost meanwhile with writes that he kept, and where these would have ended
//! nothing is: whoever appends asks once it has the lock, and so does this. Or an OST has crashed under
//! the append itself, and has lost some of it, so that its objects end in the middle of what was written:
//! then it went to the end that was known when the OST crashed.

use sateen_types::{Endpoint, Fid, ObjectId};

use super::shown_op;
use crate::work::Op;
use crate::world::{Running, World};

impl World {
    /// Where a write that has ended was put; `bytes` are those that it has told of, or all if it
    /// failed.
    pub(super) fn place_of(&mut self, running: &Running, bytes: &[u8]) -> u64 {
        let Op::Write { handle, offset, .. } = &running.op else { return 0 };
        if !handle.how.append {
            return *offset;
        }
        let data = self.model.data.entry(handle.fid).or_default();
        if data.is_certain() {
            return data.size();
        }
        self.report.count("append to an end that a crash has left open", 1);
        let reach = self.reach(handle.fid);
        let len = bytes.len() as u64;
        let begin = reach.checked_sub(len).filter(|at| self.stored(handle.fid, *at, len) == bytes);
        if let (Some(at), Some(begin)) = (running.end_then, begin)
            && self.is_twice(handle.fid, (at, begin), bytes)
        {
            let what = "was done in part at the end, and once more behind that";
            self.fail(format!("{}: {what}: at {at} and at {begin}", shown_op(&running.op)));
        }
        let begin =
            begin.or_else(|| running.end_then.filter(|at| self.is_torn(handle.fid, *at, bytes)));
        let data = self.model.data.entry(handle.fid).or_default();
        data.appended_at(begin.unwrap_or(reach))
    }

    /// The two places where an append may be that has ended, and is kept still, if the end was open and
    /// no object tells: where the objects end, if who was lost had kept what made the file longer; or where
    /// the file was known to end, if the MDT had been told of that, and an OST has lost what was there.
    pub(super) fn kept_at(&mut self, running: &Running, bytes: &[u8]) -> Option<[u64; 2]> {
        let Op::Write { handle, .. } = &running.op else { return None };
        let data = self.model.data.get(&handle.fid).filter(|_| handle.how.append)?;
        let known = (!data.is_certain()).then(|| data.size())?;
        let reach = self.reach(handle.fid);
        let len = bytes.len() as u64;
        let is_there =
            reach.checked_sub(len).is_some_and(|at| self.stored(handle.fid, at, len) == bytes);
        let is_torn = running.end_then.is_some_and(|at| self.is_torn(handle.fid, at, bytes));
        if is_there || is_torn || reach >= known {
            return None;
        }
        self.report.count("append to one of two ends", 1);
        Some([reach, known])
    }

    /// Whether all that the objects have from a place on may be what a crash has left of these bytes:
    /// that shows where they ended, or some of them, and not where the file did before.
    fn is_torn(&self, fid: Fid, at: u64, bytes: &[u8]) -> bool {
        let Some(len) = self.reach(fid).checked_sub(at) else { return false };
        let there = self.stored(fid, at, len);
        len <= bytes.len() as u64 && there.iter().zip(bytes).all(|(is, was)| is == was || *is == 0)
    }

    /// Whether these bytes, which lie at `begin`, lie also from `at` to there, as far as they go.
    fn is_twice(&self, fid: Fid, (at, begin): (u64, u64), bytes: &[u8]) -> bool {
        let Some(len) = begin.checked_sub(at) else { return false };
        // A few bytes are the same by chance.
        let first = bytes.get(..len as usize).filter(|first| first.len() >= 16);
        first.is_some_and(|first| {
            first.iter().any(|byte| *byte != 0) && self.stored(fid, at, len) == first
        })
    }

    /// How far a file's objects show that it goes.
    fn reach(&self, fid: Fid) -> u64 {
        let layout = self.model.data.get(&fid).and_then(|data| data.layout.as_ref());
        let Some(layout) = layout else { return 0 };
        let shown = layout.objects().map(|(stripe, ost)| {
            let host = self.hosts.get(&Endpoint::Ost(ost));
            let image = host.and_then(|host| host.disk.objects.image(ObjectId { fid, stripe }));
            layout.size_proven(stripe, image.map_or(0, |image| image.len() as u64))
        });
        shown.max().unwrap_or(0)
    }

    /// What a file's objects hold in a range; zeros where there is nothing.
    pub(super) fn stored(&self, fid: Fid, offset: u64, len: u64) -> Vec<u8> {
        let mut there = vec![0; len as usize];
        let layout = self.model.data.get(&fid).and_then(|data| data.layout.as_ref());
        let Some(layout) = layout else { return there };
        for chunk in layout.chunks(offset, len) {
            let Some(host) = self.hosts.get(&Endpoint::Ost(chunk.ost)) else { continue };
            let object = ObjectId { fid, stripe: chunk.stripe };
            let image = host.disk.objects.image(object).unwrap_or_default();
            let from = (chunk.object_offset as usize).min(image.len());
            let to = ((chunk.object_offset + chunk.len) as usize).min(image.len());
            let at = (chunk.file_offset - offset) as usize;
            if let Some(place) = there.get_mut(at..at + (to - from)) {
                place.copy_from_slice(image.get(from..to).unwrap_or_default());
            }
        }
        there
    }
}

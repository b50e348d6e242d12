//! What operations may have done to a file that a fault has caught.

use sateen_types::{Fid, Result as Answer};

use super::answers::strayed_to;
use super::shown_op;
use crate::data::{Data, NEVER};
use crate::work::{Op, Out, may_be_kept};
use crate::world::again::keepers_of;
use crate::world::{Running, World};

impl World {
    /// A fault caught the operation: it may have happened in part. What of it can still happen
    /// has happened at `late_ns`.
    pub(in crate::world) fn judge_failed(
        &mut self,
        running: &Running,
        result: &Answer<Out>,
        late_ns: u64,
    ) {
        let client = running.client;
        // The MDT may have lost the transaction that it had answered.
        let holds = result.is_ok() && !running.mdt_hit;
        let last_op = self.next_op - 1;
        match &running.op {
            Op::Write { handle, data: bytes, .. } => {
                // A write may end in the middle, at the object that failed.
                let done = match result {
                    Ok(Out::Written(done)) => (*done).min(bytes.len()),
                    _ => 0,
                };
                let (acked, rest) = bytes.split_at(done);
                let told = if result.is_ok() { acked } else { bytes };
                let offset = self.place_of(running, told);
                let rest_at = offset + done as u64;
                // Who was lost with an append knew where the end was, which nobody knows since, and may
                // have sent it there; an OST may not have heard of it yet.
                let end = self.model.data.get(&handle.fid).map_or(0, Data::size);
                let is_lost = running.dead && handle.how.append && end != offset;
                let also: &[u8] = if is_lost { rest } else { &[] };
                let parts = [(offset, acked, true), (rest_at, rest, false), (end, also, false)];
                for (offset, bytes, acked) in parts {
                    if !bytes.is_empty() {
                        self.part_failed(running, (handle.fid, offset, bytes), acked, late_ns);
                    }
                }
                let data = self.model.data.entry(handle.fid).or_default();
                // One that was in doubt has failed before its sync could tell of anything.
                let is_hit = running.ost_hit || running.mdt_hit;
                if handle.how.sync && result.is_err() && running.in_doubt && !is_hit {
                    return;
                }
                if handle.how.sync && result.is_err() {
                    data.perhaps_told(client);
                } else if handle.how.sync
                    && let Err(what) = data.synced(client, running.id)
                {
                    self.fail(format!("{}: {what}", shown_op(&running.op)));
                }
            }
            Op::Allocate { handle, offset, len, how } => {
                let data = self.model.data.entry(handle.fid).or_default();
                // The next fsync may name the run of the OST before: it says that something may
                // be lost, of which nothing is.
                data.let_hear(client, last_op);
                let (at, zeros) = data.zeroed_by((*offset, *len), *how);
                if !zeros.is_empty() {
                    let write = (handle.fid, at, &zeros[..]);
                    self.part_failed(running, write, result.is_ok(), late_ns);
                }
            }
            Op::Truncate { at, size } => {
                let strayed = strayed_to(&running.op, result);
                if let Some(fid) = strayed.or(self.model.now.find_file(at.dir(), &at.name)) {
                    self.may_be_cut(fid, (*size, running.transno), holds, late_ns);
                }
            }
            Op::Open { at, how, .. } if how.truncate => {
                let opened = match result {
                    Ok(Out::Opened(handle)) => Some(handle.fid),
                    _ => None,
                };
                if let Some(fid) = opened.or(self.model.now.find_file(at.dir(), &at.name)) {
                    self.may_be_cut(fid, (0, running.transno), holds, late_ns);
                }
            }
            Op::Fsync { handle } => {
                let data = self.model.data.entry(handle.fid).or_default();
                if result.is_err() && running.mdt_hit {
                    // It may have failed because the client was thrown out, before any OST
                    // could say what is lost: the next one does.
                    data.perhaps_told(client);
                } else if result.is_err() {
                    data.told(client, running.id);
                }
            }
            _ => {}
        }
        if let Ok(Out::Opened(handle)) = result {
            self.layout(handle.fid);
        }
    }

    /// A part of a write that a fault caught; `acked` if the program was told that it is written.
    fn part_failed(
        &mut self,
        running: &Running,
        (fid, offset, bytes): (Fid, u64, &[u8]),
        acked: bool,
        late_ns: u64,
    ) {
        let kept = match &running.op {
            Op::Write { handle, data, .. } => self.keeps_writes && may_be_kept(handle, data),
            _ => false,
        };
        // Others may have been granted locks by an MDT that has forgotten this one's.
        if !running.dead && !running.mdt_hit {
            if !acked || !kept {
                return self.write_ended(running, (fid, offset, bytes), acked);
            }
            // It may be kept, and its OST have heard nothing of it.
            let data = self.model.data.entry(fid).or_default();
            data.keep(running.client, offset, bytes.len());
            return data.may_have_written(running.client, (offset, bytes), self.now_ns, acked);
        }
        let data = self.model.data.entry(fid).or_default();
        if kept && acked && !running.dead {
            data.may_keep_caught(running.client, running.incarnation, running.id);
        }
        let settles_ns = if running.dead { late_ns } else { NEVER };
        data.may_have_written(running.client, (offset, bytes), settles_ns, acked);
    }

    /// Nothing of a write is under way any more, so what the objects have is what it did.
    fn write_ended(&mut self, running: &Running, write: (Fid, u64, &[u8]), acked: bool) {
        let (fid, offset, bytes) = write;
        let data = self.model.data.entry(fid).or_default();
        if !data.unseen.is_empty() {
            // An OST crashed while it was open whether the file would stay, and has perhaps lost
            // what lay here before: that is held against what it may have first.
            data.may_have_written(running.client, (offset, bytes), self.now_ns, acked);
            return self.look_again(fid);
        }
        if data.layout.is_none() {
            return data.may_have_written(running.client, (offset, bytes), self.now_ns, acked);
        }
        let there = self.stored(fid, offset, bytes.len() as u64);
        let keepers = keepers_of(&self.nodes, fid);
        let data = self.model.data.entry(fid).or_default();
        if let Err(what) = data.ended(running.client, (offset, bytes), &there, (acked, &keepers)) {
            self.fail(format!("{}: {what}", shown_op(&running.op)));
        }
    }

    fn may_be_cut(&mut self, fid: Fid, (size, transno): (u64, u64), done: bool, late_ns: u64) {
        let data = self.model.data.entry(fid).or_default();
        if done { data.cut(size, transno) } else { data.may_be_cut(size, late_ns) }
    }
}

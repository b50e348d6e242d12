//! What answers say of times, where the kernel is given files: the mtime is that of the last change,
//! whoever made it and whoever knows of it, and stays so; reading sets neither mtime nor ctime.

use sateen_types::{Fid, Result as Answer};

use crate::work::{Op, Out, Touched};
use crate::world::{Running, World, timestamp};

/// What an operation does to the mtime of a file.
enum Change {
    /// It has set it while it ran.
    Made,
    /// Or not.
    Perhaps,
    /// It was set to what was asked for.
    Set,
}

/// Whether it sets no time but the atime.
fn only_reads(op: &Op) -> bool {
    match op {
        Op::Close { handle } => !handle.how.write,
        Op::Open { create, how, .. } => create.is_none() && !how.write && !how.truncate,
        Op::Read { .. }
        | Op::Seek { .. }
        | Op::Stat { .. }
        | Op::Fstat { .. }
        | Op::Fsync { .. }
        | Op::FsyncDir { .. }
        | Op::GetXattr { .. }
        | Op::GetStripe { .. }
        | Op::GetLinks { .. }
        | Op::Readdir { .. }
        | Op::StatFs
        | Op::SetLock { .. }
        | Op::TestLock { .. }
        | Op::Peek { .. } => true,
        _ => false,
    }
}

/// The inodes that it is about, as far as that was known when it began.
fn about(running: &Running) -> impl Iterator<Item = Fid> {
    let named = running.touched.iter().filter_map(|(touched, _)| match touched {
        Touched::Inode(fid) => Some(*fid),
        _ => None,
    });
    named.chain(running.op.handle().map(|handle| handle.fid))
}

impl World {
    /// An operation ended.
    pub(super) fn judge_times(
        &mut self,
        running: &Running,
        result: &Answer<Out>,
    ) -> Result<(), String> {
        if !self.config.given {
            return Ok(());
        }
        let is_caught = running.mdt_hit || running.ost_hit || running.in_doubt;
        if !only_reads(&running.op) {
            for fid in about(running) {
                if let Some(data) = self.model.data.get_mut(&fid) {
                    data.times.touched();
                }
            }
        }
        if let (Op::Stat { .. } | Op::Fstat { .. }, Ok(Out::Attr(attr))) = (&running.op, result) {
            // By its own writes a client knows the mtime; which ctime the MDT has set when it was told it
            // asks when it has to.
            let is_quiet = self.nobody_changes(running, attr.fid) && attr.ctime > attr.mtime;
            let Some(data) = self.model.data.get_mut(&attr.fid).filter(|_| !is_caught) else {
                return Ok(());
            };
            data.times.saw_mtime(attr.mtime)?;
            self.report.count("mtime held against the model", 1);
            return if is_quiet { data.times.saw_ctime(attr.ctime) } else { Ok(()) };
        }
        let Some((fid, change)) = self.changes_mtime(running, result) else { return Ok(()) };
        let (from, to) = (timestamp(running.began_ns).wall(), timestamp(self.now_ns).wall());
        let times = &mut self.model.data.entry(fid).or_default().times;
        match change {
            Some(_) if is_caught => times.forget(),
            Some(Change::Made) => times.changed(from, to),
            Some(Change::Perhaps) => times.may_be_changed(from, to),
            Some(Change::Set) => {
                if let (Op::Touch { mtime, .. }, Ok(Out::Attr(attr))) = (&running.op, result) {
                    times.changed(*mtime, *mtime);
                    return times.saw_mtime(attr.mtime);
                }
            }
            None => times.forget(),
        }
        Ok(())
    }

    /// Which file's mtime an operation was to change, and what it did; `None` if nobody knows.
    fn changes_mtime(
        &self,
        running: &Running,
        result: &Answer<Out>,
    ) -> Option<(Fid, Option<Change>)> {
        match (&running.op, result) {
            (op @ Op::Open { how, .. }, Ok(Out::Opened(handle))) => {
                let is_made = how.truncate || self.names_new(op);
                is_made.then_some((handle.fid, Some(Change::Made)))
            }
            (Op::Tmpfile { .. }, Ok(Out::Opened(handle))) => Some((handle.fid, Some(Change::Made))),
            (Op::Write { handle, data, .. }, Ok(_)) => {
                // Of `fallocate`, which is what these may be, local file systems do not say.
                let change =
                    if data.iter().all(|byte| *byte == 0) { Change::Perhaps } else { Change::Made };
                Some((handle.fid, Some(change)))
            }
            (Op::Allocate { handle, .. }, Ok(_)) => Some((handle.fid, Some(Change::Perhaps))),
            (Op::Truncate { .. }, Ok(Out::Attr(attr))) => Some((attr.fid, Some(Change::Made))),
            (Op::Touch { .. }, Ok(Out::Attr(attr))) => Some((attr.fid, Some(Change::Set))),
            (Op::Write { handle, .. } | Op::Allocate { handle, .. }, Err(_)) => {
                Some((handle.fid, None))
            }
            (Op::Truncate { at, .. } | Op::Touch { at, .. } | Op::Open { at, .. }, _) => {
                let fid = self.model.now.find_file(at.dir(), &at.name)?;
                Some((fid, None))
            }
            _ => None,
        }
    }

    /// Whether nobody has a file open to write, or changes it, or will have told of it.
    fn nobody_changes(&self, running: &Running, fid: Fid) -> bool {
        let Some(node) = self.nodes.get(running.node) else { return false };
        let writes = node.open.iter().flatten().any(|(open, _)| open.fid == fid && open.how.write);
        let others = self.running.values().filter(|other| !only_reads(&other.op));
        let changes = others.flat_map(about).any(|of| of == fid);
        !writes && !changes && !node.kernel.is_closing()
    }
}

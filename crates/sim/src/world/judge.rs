//! Holds what operations answered against the model.

mod answers;
mod appended;
mod data;
mod failed;
mod settled;
mod times;

use sateen_types::{Endpoint, Errno, Fid, Result as Answer};

use super::faults::{BEFORE_CRASHES_MAX, touched_inodes};
use super::{Running, Settling, World};
use crate::kernel::Handle;
use crate::names::Names;
use crate::work::{At, Op, Out};
use answers::{
    after_answer, is_of_both, judge_names, led_astray, made_by, opens_symlink, strayed_to,
    touched_alone, with_any_of,
};

/// A short form of what an operation is.
pub(super) fn shown_op(op: &Op) -> String {
    match op {
        Op::Write { handle, offset, data } => {
            format!("write {} {offset}+{} {:?}", handle.fid, data.len(), handle.how)
        }
        op => format!("{op:?}"),
    }
}

/// A short form of what an operation answered.
pub(super) fn shown(result: &Answer<Out>) -> String {
    match result {
        Ok(Out::Bytes(bytes)) => format!("{} bytes", bytes.len()),
        Ok(Out::Entries(entries)) => format!("{} entries", entries.len()),
        Ok(Out::Attr(attr)) => {
            format!("{} {:o} nlink {} size {}", attr.fid, attr.mode, attr.nlink, attr.size)
        }
        Ok(Out::Opened(handle)) => format!("{} {:?}", handle.fid, handle.how),
        Ok(other) => format!("{other:?}"),
        Err(errno) => errno.name().to_owned(),
    }
}

impl World {
    /// An operation ended.
    pub(super) fn judge(&mut self, running: Running, result: Answer<Out>) {
        if let Op::Peek { .. } = running.op {
            return;
        }
        if let Some(handle) = running.op.handle() {
            self.may_be_another(&running, handle.fid);
        }
        if core::mem::take(&mut self.moved) {
            let asked = matches!(running.op, Op::NoRoom { .. } | Op::Write { .. });
            self.report.count("file moved before its first write", u64::from(asked));
            self.layouts_changed();
        }
        if let Ok(Out::Opened(handle)) = &result {
            let lost = running.mdt_hit;
            let node = self.nodes.get_mut(running.node).filter(|node| node.id == running.client);
            if let Some(open) = node.and_then(|node| node.open.get_mut(running.worker)) {
                let owner = running.worker as u64 + 1;
                open.push((Handle { owner, ..*handle }, lost));
            }
        }
        self.may_get_objects(&running, &result);
        if let Op::Close { handle } = &running.op {
            // Handles are unique within a client only.
            let node = self.nodes.get_mut(running.node).filter(|node| node.id == running.client);
            for open in node.into_iter().flat_map(|node| &mut node.open) {
                open.retain(|(other, _)| other != handle);
            }
        }
        if let Err(what) = self.judge_times(&running, &result) {
            let shown_result = shown(&result);
            self.fail(format!("{} answered {shown_result}: {what}", shown_op(&running.op)));
        }
        if self.judge_lock(&running, &result) || self.judge_group(&running, &result) {
            return;
        }
        if let (Some(fid), Err(Errno::EIO)) = (running.op.synced(), &result) {
            self.model.must_hear.remove(&(running.client, fid));
        }
        if self.is_refused(&running, &result) {
            self.report.count("write refused for want of space", 1);
            self.judge_failed(&running, &result, self.now_ns);
            return;
        }
        if self.is_excused(&running, &result) {
            self.report.count("operation caught by a fault", 1);
            self.judge_failed(&running, &result, self.now_ns);
            self.report
                .count(if result.is_ok() { "caught: answered" } else { "caught: failed" }, 1);
            if running.op.changes_names() {
                self.may_be_remembered(&running, &result);
                let (dead_client, mut running) = (None, running);
                running.touched.extend(strayed_to(&running.op, &result).map(touched_alone));
                self.settling.push(Settling { running, result, dead_client, durable_from: None });
            }
            return;
        }
        let touched: Vec<Fid> = match &running.op {
            Op::Remove { .. } | Op::Rename { .. } => touched_inodes(&running).collect(),
            _ => Vec::new(),
        };
        let judged = if running.mdt_hit && !matches!(running.op, Op::Fsync { .. }) {
            self.judge_cached(&running, &result)
        } else {
            self.judge_strictly(&running, &result)
        };
        if let Err(what) = judged {
            let shown_result = shown(&result);
            self.fail(format!("{} answered {shown_result}: {what}", shown_op(&running.op)));
        }
        for fid in touched {
            self.look_again(fid);
        }
    }

    /// A file that is, or perhaps was, opened for writing may have objects from then on.
    pub(super) fn may_get_objects(&mut self, running: &Running, result: &Answer<Out>) {
        let Op::Open { at, how, .. } = &running.op else { return };
        if !how.write {
            return;
        }
        let opened = match result {
            Ok(Out::Opened(handle)) => Some(handle.fid),
            _ => None,
        };
        for fid in opened.into_iter().chain(self.model.now.find_file(at.dir(), &at.name)) {
            self.model.data.entry(fid).or_default().may_have_objects = true;
        }
    }

    /// Whether a write found no room, or not for all of it.
    fn is_refused(&self, running: &Running, result: &Answer<Out>) -> bool {
        let data = match &running.op {
            Op::Write { data, .. } => data,
            Op::Allocate { .. } => {
                return self.is_small && matches!(result, Err(Errno::ENOSPC));
            }
            _ => return false,
        };
        let refused = match result {
            Ok(Out::Written(done)) => *done < data.len() && !running.ost_hit && !running.mdt_hit,
            result => matches!(result, Err(Errno::ENOSPC)),
        };
        self.is_small && refused
    }

    /// Whether what the operation did is open: it failed because a target was lost, or it
    /// changed something while the MDT was.
    fn is_excused(&self, running: &Running, result: &Answer<Out>) -> bool {
        let op = &running.op;
        let told = matches!(op, Op::Fsync { .. } if self.may_hear(running));
        let failed = matches!(result, Err(Errno::EIO)) && !told;
        let by_ost = running.ost_hit && op.may_need_objects() && !self.has_promised(running);
        let changes = match op {
            Op::Write { .. } | Op::Allocate { .. } | Op::Truncate { .. } => true,
            Op::Open { how, .. } if how.truncate => true,
            op => op.changes_names(),
        };
        // The MDT has forgotten the open, and with it a file that had no name is gone.
        let out = running.mdt_hit && self.was_thrown_out(running);
        let opened = op.handle().is_some() || matches!(op, Op::Tmpfile { .. });
        let void = opened && out && matches!(result, Err(Errno::ESTALE | Errno::EBADF));
        let writes = matches!(op, Op::Write { .. } | Op::Allocate { .. });
        let wrote = running.ost_hit && writes && result.is_ok();
        let ok = wrote || running.mdt_hit && result.is_ok() && changes;
        failed && (out || by_ost || running.in_doubt) || ok || void
    }

    /// A change was answered as the MDT was lost, perhaps with it: the caches of clients that
    /// have not heard of that go by the change all the same.
    fn may_be_remembered(&mut self, running: &Running, result: &Answer<Out>) {
        let Some(before) = self.before_crashes.front() else { return };
        let Some(after) = after_answer(before, &running.op, result) else { return };
        // Who has heard that it removed a file forgets what it wrote there, also if the crash
        // brings the file back: no fsync of it tells of that any more.
        let gone = before.inodes.keys().filter(|fid| !after.inodes.contains_key(fid));
        for fid in gone {
            if let Some(data) = self.model.data.get_mut(fid) {
                data.perhaps_told(running.client);
            }
        }
        self.before_crashes.truncate(BEFORE_CRASHES_MAX - 1);
        self.before_crashes.push_front(after);
    }

    /// Caches of clients that do not hear of the crash of now soon go by what there is, and by
    /// changes of which it is still open whether an earlier crash met them.
    pub(super) fn remember_names(&mut self) {
        let unheard = self.nodes.iter().any(|node| node.dirty.contains(&Endpoint::Mdt(0)));
        // What began before its client heard goes by what the client knew then.
        if !unheard && !self.running.values().any(|running| running.mdt_hit) {
            self.before_crashes.clear();
        }
        let now = self.model.now.clone();
        let answered = self.settling.iter();
        let perhaps = answered.fold(now.clone(), |names, Settling { running, result, .. }| {
            after_answer(&names, &running.op, result).unwrap_or(names)
        });
        self.before_crashes.truncate(BEFORE_CRASHES_MAX - 2);
        for names in [perhaps, now] {
            if self.before_crashes.front() != Some(&names) {
                self.before_crashes.push_front(names);
            }
        }
    }

    /// Whether no target had the time to say how much space it has, and none has ever said so.
    fn may_lack_space(&self, op: &Op) -> bool {
        self.config.crashes && matches!(op, Op::StatFs)
    }

    /// The client may not have heard yet that the MDT was lost: what it answers is so now, or
    /// was so before.
    fn judge_cached(&mut self, running: &Running, result: &Answer<Out>) -> Result<(), String> {
        self.report.count("answer of a client that may not have heard of a crash", 1);
        let op = &running.op;
        // Its client has gone on as another, and this is how a program hears of what that has cost.
        // A write with `O_SYNC` tells of what an OST has lost as well.
        if matches!(result, Err(Errno::EIO)) {
            if self.may_tell_loss(running)
                || self.may_refuse_rename(running)
                || self.may_lack_space(op)
            {
                return Ok(());
            }
            if self.may_tell_change(running) {
                self.written_not_synced(running);
                return Ok(());
            }
        }
        // The crash may have met what made it, and of that nothing is known yet.
        if let (Op::Fstat { handle }, Ok(Out::Attr(attr))) = (op, result)
            && attr.fid == handle.fid
            && !self.model.now.inodes.contains_key(&handle.fid)
        {
            return Ok(());
        }
        let fits = |names: &Names| match (led_astray(names, op), result) {
            (Some(None), Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ESTALE)) => Ok(()),
            (Some(Some(fid)), Ok(Out::Strayed(found))) if fid == *found => Ok(()),
            (Some(to), _) => Err(format!("its path should lead to {to:?}")),
            (None, result) => match (result, op.verdict(names)) {
                (Ok(out), Ok(())) => judge_names(names, op, out),
                (Err(errno), Err(right)) if *errno == right => Ok(()),
                // What the path went by is gone. The kernel repeats such a walk, and finds no name.
                (Err(Errno::ESTALE), Err(Errno::ENOENT)) => Ok(()),
                // What should be made is a symbolic link by a name in the cache.
                (Err(Errno::ELOOP), Ok(())) if opens_symlink(names, op) => Ok(()),
                (_, verdict) => Err(format!("it should be {verdict:?}")),
            },
        };
        // What it went by is gone, and another has the name. The kernel looks the name up anew
        // then, and repeats the call.
        let is_gone = |at: &At, names: &Names| {
            let fid = names.find(at.dir(), &at.name);
            fid.is_some_and(|fid| !self.model.now.inodes.contains_key(&fid))
        };
        let went_by = op.paths();
        if matches!(result, Err(Errno::ESTALE))
            && self.before_crashes.iter().any(|names| went_by.iter().any(|at| is_gone(at, names)))
        {
            return Ok(());
        }
        let refused = |names: &Names| {
            matches!(result, Err(Errno::EEXIST)) && self.may_refuse_stripe(names, op)
        };
        if refused(&self.model.now) || self.before_crashes.iter().any(refused) {
            return Ok(());
        }
        // One of two names from then, and the other as it is now.
        let is_refused_by_both = |names: &Names| {
            let alone = |at: &&At| fits(&self.model.now.with_name_of(names, at.dir(), &at.name));
            result.is_err() && went_by.len() == 2 && went_by.iter().any(|at| alone(at).is_ok())
        };
        let now = fits(&self.model.now);
        let may_be = |names: &Names| {
            let is_of_both = || is_of_both((names, &self.model.now), op, result);
            fits(names).is_ok() || is_of_both() || is_refused_by_both(names)
        };
        if now.is_ok() || self.before_crashes.iter().any(may_be) {
            return Ok(());
        }
        // Or so as others leave it whom nobody has kept apart from it.
        let met = with_any_of(&self.model.now, self.met_by(running)).iter().any(|now| {
            let mut then = self.before_crashes.iter();
            fits(now).is_ok() || then.any(|then| is_of_both((then, now), op, result))
        });
        self.report.count("answer of what another changed meanwhile", u64::from(met));
        if met { Ok(()) } else { now }
    }

    /// Operations of which nobody can tell yet what they did, at an inode of this one's that one of the
    /// two has for itself: a change that came back has shown that they go by names of the same.
    fn met_by<'a>(&'a self, running: &'a Running) -> impl Iterator<Item = &'a Op> {
        let settling = self.settling.iter().map(|settling| &settling.running);
        let others = self.running.values().chain(settling);
        let met = others.filter(|other| other.id != running.id && other.meets(&running.touched));
        met.map(|other| &other.op)
    }

    fn judge_strictly(&mut self, running: &Running, result: &Answer<Out>) -> Result<(), String> {
        let op = &running.op;
        let verdict = op.verdict(&self.model.now);
        let out = match (result, verdict) {
            (Ok(out), Ok(())) => out,
            (Err(errno), Err(right)) if *errno == right => return Ok(()),
            // Before it is asked whether that could be.
            (Err(Errno::EIO), Err(_)) if self.may_refuse_rename(running) => return Ok(()),
            (Err(errno), Err(right)) => {
                return Err(format!("{} instead of {}", errno.name(), right.name()));
            }
            (Ok(_), Err(right)) => return Err(format!("it should be {}", right.name())),
            // Written data was lost in a crash, and this is how the program hears of it.
            (Err(Errno::EIO), Ok(())) if self.may_tell_loss(running) => return Ok(()),
            (Err(Errno::EIO), Ok(())) if self.may_tell_change(running) => {
                self.written_not_synced(running);
                return Ok(());
            }
            (Err(Errno::EIO), Ok(())) if self.may_refuse_rename(running) => return Ok(()),
            (Err(Errno::EIO), Ok(())) if self.may_lack_space(op) => return Ok(()),
            // Whether a file that was open for writing has objects is the MDT's to know.
            (Err(Errno::EEXIST), Ok(())) if self.may_refuse_stripe(&self.model.now, op) => {
                return Ok(());
            }
            (Err(_), Ok(())) => return Err("it should succeed".to_owned()),
        };
        self.judge_data(running, out)?;
        judge_names(&self.model.now, op, out)?;
        let made = made_by(op, out);
        if let Some(fid) = made
            && self.names_new(op)
            && !self.model.made.insert(fid)
        {
            return Err(format!("{fid} was made before"));
        }
        if let Some(mutation) = op.mutation(&self.model.now, made) {
            if running.transno == 0 {
                return Err("a change without a transaction".to_owned());
            }
            self.model.change(running.client, running.transno, mutation);
            self.commit_model(Endpoint::Mdt(0));
        }
        Ok(())
    }

    /// Whether the layout of a file may not be chosen any more.
    fn may_refuse_stripe(&self, names: &Names, op: &Op) -> bool {
        let Op::SetStripe { at, .. } = op else { return false };
        let fid = names.find_file(at.dir(), &at.name);
        let data = fid.and_then(|fid| self.model.data.get(&fid));
        data.is_some_and(|data| data.may_have_objects)
    }

    /// Whether what it makes is not there yet.
    fn names_new(&self, op: &Op) -> bool {
        match op {
            Op::Open { at, .. } | Op::Mkdir { at } | Op::Symlink { at, .. } => {
                self.model.now.find(at.dir(), &at.name).is_none()
            }
            Op::Rename { from, to, whiteout: true, .. } => {
                let find = |at: &At| self.model.now.find(at.dir(), &at.name);
                find(from) != find(to)
            }
            _ => false,
        }
    }

    /// What its client is now, if it may have kept something of this file.
    fn may_be_another(&mut self, running: &Running, fid: Fid) {
        let node = self.nodes.get(running.node).filter(|node| node.id == running.client);
        let Some(node) = node.filter(|_| self.keeps_writes) else { return };
        if let Some(data) = self.model.data.get_mut(&fid) {
            data.is_now(running.client, node.client.incarnation(), running.id - 1);
        }
    }

    fn may_hear(&self, running: &Running) -> bool {
        let data = running.op.handle().and_then(|handle| self.model.data.get(&handle.fid));
        data.is_some_and(|data| data.may_hear(running.client))
    }

    fn may_tell_loss(&mut self, running: &Running) -> bool {
        if !self.may_hear(running) {
            return false;
        }
        let handle = match &running.op {
            Op::Fsync { handle } => handle,
            Op::Write { handle, .. } if handle.how.sync => handle,
            _ => return false,
        };
        self.written_not_synced(running);
        match self.model.data.get_mut(&handle.fid) {
            // Perhaps because the client was thrown out, before any OST could say what is lost:
            // the next one does.
            Some(data) if running.mdt_hit => data.perhaps_told(running.client),
            Some(data) => data.told(running.client, running.id),
            None => {}
        }
        self.report.count("loss told by fsync", 1);
        true
    }

    /// A write with `O_SYNC` whose sync has failed is there all the same.
    fn written_not_synced(&mut self, running: &Running) {
        let Op::Write { handle, data: bytes, .. } = &running.op else { return };
        let offset = self.place_of(running, bytes);
        let data = self.model.data.entry(handle.fid).or_default();
        data.may_have_written(running.client, (offset, bytes), self.now_ns, true);
    }

    /// What was kept of a file and could not be written out a rename tells of, if no program has heard
    /// of it, and leaves the file where it is. Those that have it open are told as ever.
    fn may_refuse_rename(&mut self, running: &Running) -> bool {
        let Op::Rename { from, .. } = &running.op else { return false };
        let file = self.model.now.find_file(from.dir(), &from.name);
        file.into_iter().for_each(|fid| self.may_be_another(running, fid));
        let data = file.and_then(|fid| self.model.data.get(&fid));
        let may = self.keeps_writes && data.is_some_and(|data| data.may_hear(running.client));
        self.report.count("loss told by a rename", u64::from(may));
        may
    }

    /// A client that had to go on as another after a crash of the MDT cannot know which of its changes
    /// are lost: once after each crash an fsync may say that some are. That of a file may say it to
    /// others, too: what an OST has lost is not told apart from it.
    fn may_tell_change(&mut self, running: &Running) -> bool {
        let boots = self.hosts.get(&Endpoint::Mdt(0)).map_or(0, |host| host.boots);
        let synced = match &running.op {
            Op::Write { handle, .. } if handle.how.sync => Some(handle.fid),
            op => op.synced(),
        };
        let Some(fid) = synced else { return false };
        let of_directory = matches!(running.op, Op::FsyncDir { .. });
        let may = (!of_directory || self.has_lost_changes(running))
            && boots > 1
            && self.told_in.insert((running.client, fid), boots) != Some(boots);
        self.report.count("lost change told by fsync", u64::from(may));
        may
    }
}

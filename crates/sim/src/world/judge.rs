//! Holds what operations answered against the model.

mod answers;

use sateen_client::SpaceTotal;
use std::collections::BTreeSet;

use sateen_types::{
    Component, Endpoint, Errno, Fid, ObjectId, Result as Answer, STRIPE_SIZE_DEFAULT, StripePolicy,
};

use super::again::keepers_of;
use super::faults::{BEFORE_CRASHES_MAX, touched_inodes};
use super::{Running, Settling, World};
use crate::data::NEVER;
use crate::invariants::Records;
use crate::kernel::Handle;
use crate::names::Names;
use crate::work::{At, Op, Out, Touched, may_be_kept};
use answers::{
    after_answer, is_of_both, judge_names, led_astray, made_by, opens_symlink, strayed_to,
    touched_alone,
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
        if self.judge_lock(&running, &result) {
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
        if perhaps != now {
            self.before_crashes.push_front(perhaps);
        }
        self.before_crashes.push_front(now);
    }

    /// The client may not have heard yet that the MDT was lost: what it answers is so now, or
    /// was so before.
    fn judge_cached(&mut self, running: &Running, result: &Answer<Out>) -> Result<(), String> {
        self.report.count("answer of a client that may not have heard of a crash", 1);
        let op = &running.op;
        // Its client has gone on as another, and this is how a program hears of what that has cost.
        // A write with `O_SYNC` tells of what an OST has lost as well.
        if matches!(result, Err(Errno::EIO)) {
            if self.may_tell_loss(running) || self.may_refuse_rename(running) {
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
        now
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
            // No target had the time to say how much space it has, and none has ever said so.
            (Err(Errno::EIO), Ok(())) if self.config.crashes && matches!(op, Op::StatFs) => {
                return Ok(());
            }
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
        let Op::Write { handle, offset, data: bytes } = &running.op else { return };
        let data = self.model.data.entry(handle.fid).or_default();
        let offset = if handle.how.append { data.size() } else { *offset };
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

    fn layout(&mut self, fid: Fid) {
        let data = self.model.data.entry(fid).or_default();
        if data.layout.is_none() {
            data.layout = self.layouts.get(&fid).cloned();
        }
    }

    /// Files without objects may have got other layouts: those that the MDT has count.
    pub(super) fn layouts_changed(&mut self) {
        let Some(host) = self.hosts.get_mut(&Endpoint::Mdt(0)) else { return };
        if host.process.is_none() {
            return;
        }
        let records = Records::of(host);
        for (fid, data) in self.model.data.iter_mut().filter(|(_, data)| !data.is_written) {
            if let Some(layout) = records.inodes.get(fid).and_then(|inode| inode.layout.clone()) {
                self.layouts.insert(*fid, layout.clone());
                data.layout = Some(layout);
            }
        }
    }

    /// A file that an open has made lies as its directory says.
    fn follows_policy(&self, op: &Op, fid: Fid) -> Result<(), String> {
        let Op::Open { at, .. } = op else { return Ok(()) };
        if !self.names_new(op) {
            return Ok(());
        }
        let data = self.model.data.get(&fid);
        let layout = data.and_then(|data| data.layout.as_ref()).ok_or("it has no layout")?;
        let dir = self.model.now.inodes.get(&at.dir());
        let policy = dir.and_then(|dir| dir.policy).unwrap_or(StripePolicy::DEFAULT);
        let named = dir.map(|dir| dir.osts.as_slice()).unwrap_or_default();
        // Those that it names, in its order.
        let in_order = |osts: &[u32]| {
            let mut rest = named.iter();
            named.is_empty() || osts.iter().all(|ost| rest.any(|named| named == ost))
        };
        let size = if policy.stripe_size == 0 { STRIPE_SIZE_DEFAULT } else { policy.stripe_size };
        // OSTs that are away or full are left out.
        let most = if policy.stripe_count > 0 { policy.stripe_count as usize } else { usize::MAX };
        let right = |part: &Component| {
            let number = !part.osts.is_empty() && part.osts.len() <= most;
            part.stripe_size == size && number && in_order(&part.osts)
        };
        if layout.components.iter().all(right) {
            return Ok(());
        }
        Err(format!("{fid} has {layout:?}, made under {policy:?} on {named:?}"))
    }

    /// A file lies on the OSTs that were chosen for it, if any were.
    fn lies_on(&self, fid: Fid, osts: &[u32], stripe_size: u32) -> Result<(), String> {
        let layout = self.model.data.get(&fid).and_then(|data| data.layout.as_ref());
        let right = |part: &Component| {
            part.osts == osts && (stripe_size == 0 || part.stripe_size == stripe_size)
        };
        if osts.is_empty() || layout.is_some_and(|layout| layout.components.iter().all(right)) {
            return Ok(());
        }
        Err(format!("{fid} has {layout:?}, and was put on {osts:?}"))
    }

    /// What a whole file system says of its space.
    fn judge_space(&self, space: &SpaceTotal) -> Result<(), String> {
        let stores = self.hosts.values().filter(|host| matches!(host.me, Endpoint::Ost(_)));
        let total = stores.map(|host| host.disk.objects.bytes_max()).sum::<u64>();
        let calm = !self.config.network_faults && !self.config.crashes;
        // One that is away, though in good order, does not tell of its.
        let mut osts = self.hosts.keys().filter(|target| matches!(target, Endpoint::Ost(_)));
        let calm = calm && !osts.any(|ost| self.has_stopped(*ost));
        let all = if calm { space.bytes_total == total } else { space.bytes_total <= total };
        let less = space.bytes_free <= space.bytes_total && space.files_free <= space.files_total;
        if all && less { Ok(()) } else { Err(format!("of {total} bytes in all: {space:?}")) }
    }

    fn judge_data(&mut self, running: &Running, out: &Out) -> Result<(), String> {
        let (client, asked_of) = (running.client, self.asked_of(running));
        match (&running.op, out) {
            (Op::Open { how, .. }, Out::Opened(handle)) => {
                self.layout(handle.fid);
                self.follows_policy(&running.op, handle.fid)?;
                let data = self.model.data.entry(handle.fid).or_default();
                if how.truncate {
                    data.cut(0, running.transno);
                }
                Ok(())
            }
            (Op::Write { handle, offset, data: bytes }, Out::Written(written)) => {
                let data = self.model.data.entry(handle.fid).or_default();
                if *written != bytes.len() {
                    return Err(format!("only {written} bytes"));
                }
                let offset = if handle.how.append { data.size() } else { *offset };
                let kept = self.keeps_writes && may_be_kept(handle, bytes);
                data.wrote(client, offset, bytes, kept);
                if handle.how.sync { data.synced(client, running.id) } else { Ok(()) }
            }
            (Op::Tmpfile { .. }, Out::Opened(handle)) => {
                self.layout(handle.fid);
                if !self.model.made.insert(handle.fid) {
                    return Err(format!("{} was made before", handle.fid));
                }
                Ok(())
            }
            (Op::Allocate { handle, offset, len, how }, Out::Done) => {
                let data = self.model.data.entry(handle.fid).or_default();
                let (at, zeros) = data.zeroed_by((*offset, *len), *how);
                data.zeroed(client, (*offset, *len), *how, (at, &zeros));
                Ok(())
            }
            (Op::Read { handle, offset, len }, Out::Bytes(bytes)) => {
                self.judge_read(running, handle.fid, (*offset, *len), bytes)
            }
            (Op::Seek { handle, offset, hole }, Out::Offset(Some(found))) => {
                // What lies before the data, and a byte in the hole, read as zeros.
                let size = self.model.data.entry(handle.fid).or_default().size();
                let (from, len) = match hole {
                    true if *found < size => (*found, 1),
                    true => return Ok(()),
                    false => (*offset, found.checked_sub(*offset).ok_or("it went back")?),
                };
                self.judge_read(running, handle.fid, (from, len), &vec![0; len as usize])
            }
            (Op::Truncate { at, size }, Out::Attr(attr)) => {
                let fid = self.model.now.find(at.dir(), &at.name).ok_or("gone")?;
                if attr.size != *size {
                    return Err(format!("{} bytes instead of {size}", attr.size));
                }
                self.model.data.entry(fid).or_default().cut(*size, running.transno);
                Ok(())
            }
            // A directory may have been opened by a program that wanted a file; its size says nothing.
            (Op::Stat { .. } | Op::Fstat { .. }, Out::Attr(attr)) if !attr.is_dir() => {
                let Some(data) = self.model.data.get_mut(&attr.fid) else { return Ok(()) };
                let right = data.size();
                if data.saw_size(attr.size, asked_of) {
                    return Ok(());
                }
                Err(format!("{} bytes instead of {right}", attr.size))
            }
            (Op::Fsync { handle }, Out::Done) => {
                self.model.data.entry(handle.fid).or_default().synced(client, running.id)?;
                self.synced(running)
            }
            (Op::Close { handle }, Out::Done) if handle.how.write && self.keeps_writes => {
                self.model.data.entry(handle.fid).or_default().wrote_out(client);
                Ok(())
            }
            (Op::FsyncDir { .. }, Out::Done) => self.synced(running),
            (Op::StatFs, Out::Space(space)) => self.judge_space(space),
            (Op::SetStripe { osts, policy, .. }, Out::Changed(fid)) => {
                let data = self.model.data.get(fid);
                if data.is_some_and(|data| data.is_written) {
                    return Err("it has objects".to_owned());
                }
                self.layouts_changed();
                // Of a directory the names say it.
                let of_file = !self.model.now.is_dir(*fid);
                if of_file { self.lies_on(*fid, osts, policy.stripe_size) } else { Ok(()) }
            }
            (Op::GetStripe { .. }, Out::Striping(fid, Some(layout), _)) => {
                let known = self.model.data.get(fid).and_then(|data| data.layout.as_ref());
                match known {
                    Some(known) if known != layout && !self.model.now.is_dir(*fid) => {
                        Err(format!("{layout:?} instead of {known:?}"))
                    }
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// The time that an answer tells of, if that is not before the last crash of an OST.
    fn asked_of(&self, running: &Running) -> Option<u64> {
        (running.began_ns > self.ost_crashed_ns).then_some(self.now_ns)
    }

    fn judge_read(
        &mut self,
        running: &Running,
        fid: Fid,
        range: (u64, u64),
        bytes: &[u8],
    ) -> Result<(), String> {
        // An OST crashed when the file was perhaps going, and what is left of it was not looked
        // at yet.
        self.look_again(fid);
        let asked_of = self.asked_of(running);
        let data = self.model.data.entry(fid).or_default();
        if !data.unseen.is_empty() {
            self.report.count("read before a crash was looked into", 1);
            return Ok(());
        }
        data.check_read(range, bytes, asked_of)
    }

    /// What was done before an fsync began is durable now.
    fn synced(&mut self, running: &Running) -> Result<(), String> {
        // One that began before its client heard of a crash may have been answered before that.
        if let Some(fid) = running.op.synced().filter(|_| !running.mdt_hit)
            && self.model.must_hear.contains(&(running.client, fid))
        {
            return Err("a change of it was lost with the MDT".to_owned());
        }
        let Some(host) = self.hosts.get_mut(&Endpoint::Mdt(0)) else { return Ok(()) };
        let durable = host.disk_transno();
        if durable < running.floor {
            return Err(format!("transno {} is not durable, only {durable}", running.floor));
        }
        self.model.promised = self.model.promised.max(running.floor);
        self.report.count("fsync believed", 1);
        Ok(())
    }

    /// A fault caught the operation: it may have happened in part. What of it can still happen
    /// has happened at `late_ns`.
    pub(super) fn judge_failed(&mut self, running: &Running, result: &Answer<Out>, late_ns: u64) {
        let client = running.client;
        // The MDT may have lost the transaction that it had answered.
        let holds = result.is_ok() && !running.mdt_hit;
        let last_op = self.next_op - 1;
        match &running.op {
            Op::Write { handle, offset, data: bytes } => {
                let data = self.model.data.entry(handle.fid).or_default();
                let offset = if handle.how.append { data.size() } else { *offset };
                // A write may end in the middle, at the object that failed.
                let done = match result {
                    Ok(Out::Written(done)) => (*done).min(bytes.len()),
                    _ => 0,
                };
                let (acked, rest) = bytes.split_at(done);
                let rest_at = offset + done as u64;
                for (offset, bytes, acked) in [(offset, acked, true), (rest_at, rest, false)] {
                    if !bytes.is_empty() {
                        self.part_failed(running, (handle.fid, offset, bytes), acked, late_ns);
                    }
                }
                let data = self.model.data.entry(handle.fid).or_default();
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
        let mut there = vec![0; bytes.len()];
        let Some(layout) = data.layout.clone() else {
            return data.may_have_written(running.client, (offset, bytes), self.now_ns, acked);
        };
        for chunk in layout.chunks(offset, bytes.len() as u64) {
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
        let keepers = keepers_of(&self.nodes, fid);
        if let Err(what) = data.ended(running.client, (offset, bytes), &there, (acked, &keepers)) {
            self.fail(format!("{}: {what}", shown_op(&running.op)));
        }
    }

    fn may_be_cut(&mut self, fid: Fid, (size, transno): (u64, u64), done: bool, late_ns: u64) {
        let data = self.model.data.entry(fid).or_default();
        if done { data.cut(size, transno) } else { data.may_be_cut(size, late_ns) }
    }

    /// Looks at the operations that a fault caught, once what the MDT has is durable.
    pub(super) fn settle(&mut self) {
        if self.settling.is_empty() {
            return;
        }
        let Some(host) = self.hosts.get_mut(&Endpoint::Mdt(0)) else { return };
        // Before that changes may come back.
        if !host.serves() {
            return;
        }
        let (boots, transno, durable) = (host.boots, host.transno(), host.durable());
        let Some(mdt) = host.mdt() else { return };
        let is_ready = |settling: &mut Settling| {
            if settling.dead_client.is_some_and(|dead| mdt.is_connected(dead)) {
                return false;
            }
            match settling.durable_from {
                Some((boot, upto)) if boot == boots => durable >= upto,
                _ => {
                    settling.durable_from = Some((boots, transno));
                    false
                }
            }
        };
        let ready: Vec<Settling> = self.settling.extract_if(.., is_ready).collect();
        if ready.is_empty() {
            return;
        }
        let names = Records::of(host).names();
        let touched: Vec<Fid> =
            ready.iter().flat_map(|settling| touched_inodes(&settling.running)).collect();
        for (at, settling) in ready.iter().enumerate() {
            let others = ready.iter().enumerate().filter(|(other, _)| *other != at);
            let shared = self.changed_by_others(others.map(|(_, other)| &other.running), &names);
            if let Err(what) = self.settle_one(settling, (&names, &shared)) {
                let (op, answer) = (shown_op(&settling.running.op), shown(&settling.result));
                self.fail(format!("{op}, caught by a fault, answered {answer}: {what}"));
            }
        }
        for fid in touched {
            self.look_again(fid);
        }
    }

    /// Inodes that others may have changed meanwhile who go by names: which inodes these stand for a
    /// crash may have changed since they began, and then nobody has kept them apart.
    fn changed_by_others<'a>(
        &'a self,
        ready: impl Iterator<Item = &'a Running>,
        found: &Names,
    ) -> BTreeSet<Fid> {
        let later = self.settling.iter().map(|settling| &settling.running);
        let all = ready.chain(later).chain(self.running.values());
        let named = all.filter(|running| running.op.changes_names()).flat_map(|running| {
            running.touched.iter().filter_map(|(touched, _)| match touched {
                Touched::Name(dir, name) => Some((*dir, name)),
                _ => None,
            })
        });
        let stands_for =
            |(dir, name): (Fid, &Vec<u8>)| [self.model.now.find(dir, name), found.find(dir, name)];
        named.flat_map(stands_for).flatten().collect()
    }

    /// It happened or it did not; anything else is wrong, but for inodes that are `shared`.
    fn settle_one(
        &mut self,
        settling: &Settling,
        (found, shared): (&Names, &BTreeSet<Fid>),
    ) -> Result<(), String> {
        let running = &settling.running;
        let before = &self.model.now;
        let made = match &running.op {
            // The device that has taken the old name.
            Op::Rename { from, whiteout: true, .. } => found
                .find(from.dir(), &from.name)
                .filter(|fid| before.find(from.dir(), &from.name) != Some(*fid)),
            _ => running.touched.iter().find_map(|(touched, _)| match touched {
                Touched::Name(dir, name) if before.find(*dir, name).is_none() => {
                    found.find(*dir, name)
                }
                _ => None,
            }),
        };
        let agree = |names: &Names, shared: &BTreeSet<Fid>| -> Option<String> {
            running.touched.iter().find_map(|(touched, _)| match touched {
                Touched::Name(dir, name) => {
                    let (right, is) = (names.find(*dir, name), found.find(*dir, name));
                    (right != is).then(|| format!("name {dir}: {is:?} instead of {right:?}"))
                }
                Touched::Inode(fid) if !shared.contains(fid) => {
                    let (right, is) = (names.inodes.get(fid), found.inodes.get(fid));
                    let alike = match (right, is) {
                        (Some(right), Some(is)) => right.is_like(is),
                        (right, is) => right.is_none() && is.is_none(),
                    };
                    (!alike).then(|| format!("inode {fid}: {is:?} instead of {right:?}"))
                }
                Touched::Inode(_) | Touched::Entries(_) | Touched::Place(_) => None,
            })
        };
        if let Op::SetStripe { .. } = running.op {
            self.layouts_changed();
        }
        let before = &self.model.now;
        // What it alone accounts for it has done, also to what others may have changed.
        let nobody = BTreeSet::new();
        if agree(before, &nobody).is_none() {
            return Ok(());
        }
        let mutation = match (&running.op, strayed_to(&running.op, &settling.result)) {
            (op, Some(fid)) if op.mutation_of(before, fid).is_some() => op.mutation_of(before, fid),
            (op, _) if op.verdict(before).is_ok() => op.mutation(before, made),
            _ => None,
        };
        let mut after = before.clone();
        mutation.iter().for_each(|mutation| after.apply(mutation));
        if mutation.is_none() || agree(&after, &nobody).is_some() {
            let Some(not_before) = agree(before, shared) else { return Ok(()) };
            if mutation.is_none() {
                return Err(format!("it could not change anything, but {not_before}"));
            }
            if let Some(not_after) = agree(&after, shared) {
                return Err(format!("half done: {not_before}; {not_after}"));
            }
        }
        let Some(mutation) = mutation else { return Ok(()) };
        self.report.count("caught operation had happened", 1);
        if let (Op::Open { .. }, Some(fid)) = (&running.op, made) {
            self.model.data.entry(fid).or_default().may_have_objects = true;
        }
        self.model.made.extend(made);
        self.model.change(running.client, 0, mutation);
        Ok(())
    }
}

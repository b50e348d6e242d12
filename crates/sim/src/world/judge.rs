//! Holds what operations answered against the model.

use sateen_types::{Endpoint, Errno, Fid, Result as Answer};

use super::{Running, Settling, World};
use crate::invariants::Records;
use crate::names::{Names, Node};
use crate::work::{At, Op, Out, Touched};

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
        if let Ok(Out::Opened(handle)) = &result {
            let lost = running.excusable;
            let node = self.nodes.get_mut(running.node).filter(|node| node.id == running.client);
            if let Some(open) = node.and_then(|node| node.open.get_mut(running.worker)) {
                open.push((*handle, lost));
            }
        }
        if let Op::Close { handle } = &running.op {
            // Handles are unique within a client only.
            let node = self.nodes.get_mut(running.node).filter(|node| node.id == running.client);
            for open in node.into_iter().flat_map(|node| &mut node.open) {
                open.retain(|(other, _)| other != handle);
            }
        }
        if running.excusable {
            self.report.count("operation caught by a fault", 1);
            self.judge_data_leniently(&running, &result);
            if running.op.changes_names() {
                let dead_client = false;
                self.settling.push(Settling { running, result, dead_client, durable_from: None });
            }
            return;
        }
        if let Err(what) = self.judge_strictly(&running, &result) {
            let shown_result = shown(&result);
            self.fail(format!("{} answered {shown_result}: {what}", shown_op(&running.op)));
        }
    }

    fn judge_strictly(&mut self, running: &Running, result: &Answer<Out>) -> Result<(), String> {
        let op = &running.op;
        let verdict = op.verdict(&self.model.now);
        let out = match (result, verdict) {
            (Ok(out), Ok(())) => out,
            (Err(errno), Err(right)) if *errno == right => return Ok(()),
            (Err(errno), Err(right)) => {
                return Err(format!("{} instead of {}", errno.name(), right.name()));
            }
            (Ok(_), Err(right)) => return Err(format!("it should be {}", right.name())),
            // Written data was lost in a crash, and this is how the program hears of it.
            (Err(Errno::EIO), Ok(())) if self.may_tell_loss(running) => return Ok(()),
            (Err(_), Ok(())) => return Err("it should succeed".to_owned()),
        };
        self.judge_data(running, out)?;
        let made = match out {
            Out::Opened(handle) => Some(handle.fid),
            Out::Attr(attr) => Some(attr.fid),
            _ => None,
        };
        self.judge_names(op, out, made)?;
        if let Some(mutation) = op.mutation(&self.model.now, made) {
            if running.transno == 0 {
                return Err("a change without a transaction".to_owned());
            }
            self.model.change(running.transno, mutation);
            self.commit_model(Endpoint::Mdt(0));
        }
        Ok(())
    }

    fn may_tell_loss(&mut self, running: &Running) -> bool {
        let handle = match &running.op {
            Op::Fsync { handle } => handle,
            Op::Write { handle, offset, data: bytes } if handle.how.sync => {
                let data = self.model.data.entry(handle.fid).or_default();
                let offset = if handle.how.append { data.size() } else { *offset };
                data.may_have_written(running.client, offset, bytes, true);
                handle
            }
            _ => return false,
        };
        let told = self.model.data.get_mut(&handle.fid).is_some_and(|data| {
            let may = data.crashed.remove(&running.client);
            data.told(running.client);
            may
        });
        if told {
            self.report.count("loss told by fsync", 1);
        }
        told
    }

    fn judge_names(&mut self, op: &Op, out: &Out, made: Option<Fid>) -> Result<(), String> {
        if let Out::Strayed(fid) = out {
            return Err(format!("the path leads to {fid}"));
        }
        let expected = |at: &At| self.model.now.find(at.dir(), &at.name);
        match (op, out) {
            (Op::Open { at, .. } | Op::Mkdir { at } | Op::Symlink { at, .. }, _) => {
                let fid = made.ok_or("no inode")?;
                match expected(at) {
                    Some(right) if right != fid => Err(format!("{fid} instead of {right}")),
                    Some(_) => Ok(()),
                    None if self.model.made.insert(fid) => Ok(()),
                    None => Err(format!("{fid} was made before")),
                }
            }
            (Op::Stat { at } | Op::Truncate { at, .. } | Op::Chmod { at, .. }, Out::Attr(attr)) => {
                let fid = if at.name.is_empty() { Some(at.dir()) } else { expected(at) };
                let inode = fid.and_then(|fid| self.model.now.inodes.get(&fid)).ok_or("gone")?;
                let mut right = (fid, inode.mode, inode.nlink, Some(inode.kind()));
                if let Op::Chmod { mode, .. } = op {
                    right.1 = *mode;
                }
                let kind = Some(attr.kind());
                let got = (Some(attr.fid), attr.mode & 0o7777, attr.nlink, kind);
                if got != right {
                    return Err(format!("{got:x?} instead of {right:x?}"));
                }
                Ok(())
            }
            (Op::Readlink { at }, Out::Bytes(bytes)) => {
                let inode = expected(at).and_then(|fid| self.model.now.inodes.get(&fid));
                match inode.map(|inode| &inode.node) {
                    Some(Node::Symlink(target)) if target == bytes => Ok(()),
                    other => Err(format!("{bytes:?} instead of {other:?}")),
                }
            }
            (Op::Readdir { at }, Out::Entries(entries)) => {
                let mut got: Vec<(&[u8], Fid)> =
                    entries.iter().map(|entry| (entry.name.as_bytes(), entry.fid)).collect();
                got.sort_unstable();
                let there = self.model.now.entries(at.dir()).into_iter().flatten();
                let right: Vec<(&[u8], Fid)> =
                    there.map(|(name, fid)| (name.as_slice(), *fid)).collect();
                if got == right { Ok(()) } else { Err(format!("{got:?} instead of {right:?}")) }
            }
            _ => Ok(()),
        }
    }

    fn layout(&mut self, fid: Fid) {
        let data = self.model.data.entry(fid).or_default();
        if data.layout.is_none() {
            data.layout = self.layouts.get(&fid).cloned();
        }
    }

    fn judge_data(&mut self, running: &Running, out: &Out) -> Result<(), String> {
        let client = running.client;
        match (&running.op, out) {
            (Op::Open { how, .. }, Out::Opened(handle)) => {
                self.layout(handle.fid);
                let data = self.model.data.entry(handle.fid).or_default();
                if how.truncate {
                    data.cut(0);
                }
                Ok(())
            }
            (Op::Write { handle, offset, data: bytes }, Out::Written(written)) => {
                let data = self.model.data.entry(handle.fid).or_default();
                if *written != bytes.len() {
                    return Err(format!("only {written} bytes"));
                }
                let offset = if handle.how.append { data.size() } else { *offset };
                data.wrote(client, offset, bytes);
                if handle.how.sync { data.synced(client) } else { Ok(()) }
            }
            (Op::Read { handle, offset, len }, Out::Bytes(bytes)) => {
                let data = self.model.data.entry(handle.fid).or_default();
                data.check_read(*offset, *len, bytes)
            }
            (Op::Truncate { at, size }, Out::Attr(attr)) => {
                let fid = self.model.now.find(at.dir(), &at.name).ok_or("gone")?;
                if attr.size != *size {
                    return Err(format!("{} bytes instead of {size}", attr.size));
                }
                self.model.data.entry(fid).or_default().cut(*size);
                Ok(())
            }
            (Op::Stat { .. }, Out::Attr(attr)) => {
                let Some(data) = self.model.data.get(&attr.fid) else { return Ok(()) };
                if data.wild || data.may_be_size(attr.size) {
                    return Ok(());
                }
                Err(format!("{} bytes instead of {}", attr.size, data.size()))
            }
            (Op::Fsync { handle }, Out::Done) => {
                self.model.data.entry(handle.fid).or_default().synced(client)?;
                self.synced(running)
            }
            (Op::FsyncDir { .. }, Out::Done) => self.synced(running),
            _ => Ok(()),
        }
    }

    /// What was done before an fsync began is durable now.
    fn synced(&mut self, running: &Running) -> Result<(), String> {
        let Some(host) = self.hosts.get_mut(&Endpoint::Mdt(0)) else { return Ok(()) };
        let durable = host.disk_transno();
        if durable < running.floor {
            return Err(format!("transno {} is not durable, only {durable}", running.floor));
        }
        self.model.promised = self.model.promised.max(running.floor);
        self.report.count("fsync believed", 1);
        Ok(())
    }

    /// A fault caught the operation: it may have happened in part.
    pub(super) fn judge_data_leniently(&mut self, running: &Running, result: &Answer<Out>) {
        let client = running.client;
        match &running.op {
            Op::Write { handle, offset, data: bytes } => {
                let data = self.model.data.entry(handle.fid).or_default();
                let offset = if handle.how.append { data.size() } else { *offset };
                if handle.how.append && !data.is_certain() {
                    data.wild = true;
                }
                data.crashed.insert(client);
                data.may_have_written(client, offset, bytes, result.is_ok());
            }
            Op::Truncate { at, size } => {
                if let Some(fid) = self.model.now.find(at.dir(), &at.name) {
                    self.may_be_cut(fid, *size, result.is_ok());
                }
            }
            Op::Open { at, how, .. } if how.truncate => {
                let opened = match result {
                    Ok(Out::Opened(handle)) => Some(handle.fid),
                    _ => None,
                };
                if let Some(fid) = opened.or(self.model.now.find(at.dir(), &at.name)) {
                    self.may_be_cut(fid, 0, result.is_ok());
                }
            }
            Op::Fsync { handle } => {
                let data = self.model.data.entry(handle.fid).or_default();
                match result {
                    Ok(_) => {
                        if let Err(what) = data.synced(client) {
                            self.fail(format!("{} in a crash: {what}", shown_op(&running.op)));
                        }
                    }
                    Err(_) => data.told(client),
                }
            }
            _ => {}
        }
        if let Ok(Out::Opened(handle)) = result {
            self.layout(handle.fid);
        }
    }

    fn may_be_cut(&mut self, fid: Fid, size: u64, done: bool) {
        let data = self.model.data.entry(fid).or_default();
        if done { data.cut(size) } else { data.may_be_cut(size) }
    }

    /// Looks at the operations that a fault caught, once what the MDT has is durable.
    pub(super) fn settle(&mut self) {
        if self.settling.is_empty() {
            return;
        }
        let Some(host) = self.hosts.get_mut(&Endpoint::Mdt(0)) else { return };
        let (boots, transno, durable) = (host.boots, host.transno(), host.durable());
        let Some(mdt) = host.mdt() else { return };
        let mut ready = Vec::new();
        let mut waiting = Vec::new();
        for mut settling in core::mem::take(&mut self.settling) {
            if settling.dead_client && mdt.is_connected(settling.running.client) {
                waiting.push(settling);
                continue;
            }
            match settling.durable_from {
                Some((boot, upto)) if boot == boots && durable >= upto => ready.push(settling),
                Some((boot, _)) if boot == boots => waiting.push(settling),
                _ => {
                    settling.durable_from = Some((boots, transno));
                    waiting.push(settling);
                }
            }
        }
        self.settling = waiting;
        if ready.is_empty() {
            return;
        }
        let names = Records::of(host).names();
        for settling in ready {
            if let Err(what) = self.settle_one(&settling, &names) {
                let (op, answer) = (shown_op(&settling.running.op), shown(&settling.result));
                self.fail(format!("{op}, caught by a fault, answered {answer}: {what}"));
            }
        }
    }

    /// It happened or it did not; anything else is wrong.
    fn settle_one(&mut self, settling: &Settling, found: &Names) -> Result<(), String> {
        let running = &settling.running;
        let before = &self.model.now;
        let made = running.touched.iter().find_map(|(touched, _)| match touched {
            Touched::Name(dir, name) if before.find(*dir, name).is_none() => found.find(*dir, name),
            _ => None,
        });
        let agree = |names: &Names| -> Option<String> {
            running.touched.iter().find_map(|(touched, _)| match touched {
                Touched::Name(dir, name) => {
                    let (right, is) = (names.find(*dir, name), found.find(*dir, name));
                    (right != is).then(|| format!("name {dir}: {is:?} instead of {right:?}"))
                }
                Touched::Inode(fid) => {
                    let mode = |names: &Names| {
                        names.inodes.get(fid).map(|inode| (inode.mode, inode.nlink))
                    };
                    let (right, is) = (mode(names), mode(found));
                    (right != is).then(|| format!("inode {fid}: {is:?} instead of {right:?}"))
                }
                Touched::Entries(_) | Touched::Place(_) => None,
            })
        };
        let Some(not_before) = agree(before) else { return Ok(()) };
        let mutation = match running.op.verdict(before) {
            Ok(()) => running.op.mutation(before, made),
            Err(_) => None,
        };
        let Some(mutation) = mutation else {
            return Err(format!("it could not change anything, but {not_before}"));
        };
        let mut after = before.clone();
        after.apply(&mutation);
        if let Some(not_after) = agree(&after) {
            return Err(format!("half done: {not_before}; {not_after}"));
        }
        self.report.count("caught operation had happened", 1);
        self.model.made.extend(made);
        self.model.change(0, mutation);
        Ok(())
    }
}

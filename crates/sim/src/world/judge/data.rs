//! What answers say of bytes, sizes, layouts and space.

use sateen_client::SpaceTotal;
use sateen_types::{Component, Endpoint, Fid, STRIPE_SIZE_DEFAULT, StripePolicy};

use crate::invariants::Records;
use crate::work::{Op, Out, may_be_kept};
use crate::world::{Handle, Running, World};

impl World {
    pub(super) fn layout(&mut self, fid: Fid) {
        let data = self.model.data.entry(fid).or_default();
        if data.layout.is_none() {
            data.layout = self.layouts.get(&fid).cloned();
        }
    }

    /// Files without objects may have got other layouts: those that the MDT has count.
    pub(in crate::world) fn layouts_changed(&mut self) {
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

    /// A write was answered as if it had been done.
    fn judge_written(
        &mut self,
        running: &Running,
        handle: Handle,
        bytes: &[u8],
        asked_of: Option<u64>,
    ) -> Result<(), String> {
        let client = running.client;
        let kept = self.keeps_writes && may_be_kept(&handle, bytes);
        if let Some(places) = if kept { self.kept_at(running, bytes) } else { None } {
            let now_ns = self.now_ns;
            let data = self.model.data.entry(handle.fid).or_default();
            for at in places {
                data.may_have_written(client, (at, bytes), now_ns, false);
            }
            return Ok(());
        }
        let offset = self.place_of(running, bytes);
        let data = self.model.data.entry(handle.fid).or_default();
        if handle.how.append {
            // It has seen that this is the end.
            data.saw_size(offset, asked_of);
        }
        data.wrote(client, offset, bytes, kept);
        if handle.how.sync { data.synced(client, running.id) } else { Ok(()) }
    }

    pub(super) fn judge_data(&mut self, running: &Running, out: &Out) -> Result<(), String> {
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
            (Op::Write { handle, data: bytes, .. }, Out::Written(written)) => {
                if *written != bytes.len() {
                    return Err(format!("only {written} bytes"));
                }
                self.judge_written(running, *handle, bytes, asked_of)
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
            (Op::Touch { mtime, .. }, Out::Attr(attr)) if attr.mtime != *mtime => {
                Err(format!("{:?} instead of {mtime:?}", attr.mtime))
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
}

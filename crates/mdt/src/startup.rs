//! The start of an MDT: what the last run left is found and finished.
//!
//! In steps, each of which may stop for the index: the base records (made if this is the
//! first start); the clients of that run, of whom those that were lost may not write any more; what
//! was written down if it ended in good order; the unlink and punch llogs; then clients that may come
//! back are waited for (`recovery`); orphans that nobody has open; reply slots, and sequences whose
//! clients have not come back. Requests are held until these are through. The objects of those
//! sequences are then compared with the inodes while requests are served: nobody creates under
//! them any more.

use std::collections::BTreeMap;

use sateen_ldlm::Need;
use sateen_osd::{Batch, Key, Prefetched};
use sateen_target::Fault;
use sateen_types::{Attr, ClientId, Errno, Fid, ObjectId, Seq, Timestamp};
use sateen_wire::Ibits;
use sateen_wire::codec::Wire;
use sateen_wire::disk::mdt::{
    ClientRecord, Counters, Inode, PunchRecord, ReplySlot, RunRecord, SeqState, UnlinkRecord, tag,
};
use sateen_wire::disk::stopped::{self, StopMark};

use crate::keys;
use crate::mdt::Mdt;
use crate::op::Punch;
use crate::osp::Job;
use crate::seqs::Seqs;
use crate::view::View;
use crate::work::Work;

/// Records read at once.
const PAGE: usize = 1024;

/// Where the start stands.
#[derive(Debug)]
pub(crate) struct Startup {
    phase: Phase,
    after: Key,
    /// Of each sequence: OSTs whose list of its objects is still to come, and objects without
    /// a file that are still there. Forgotten earlier, they would stay for ever if the MDT
    /// crashed once more.
    listing: BTreeMap<Seq, usize>,
    /// The last transaction that there was. There is none of this run before it has noted which one it
    /// follows, or another crash would make one of the last run of it.
    found: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Base,
    Clients,
    Stopped,
    Unlinks,
    Punches,
    Window,
    Orphans,
    Slots,
    Grants,
    Serving,
}

impl Startup {
    pub(crate) fn new(found: u64) -> Startup {
        Startup { phase: Phase::Base, after: Key::EMPTY, listing: BTreeMap::new(), found }
    }

    /// Whether requests can be executed.
    pub(crate) fn serving(&self) -> bool {
        self.phase == Phase::Serving
    }

    /// Whether it is known who was a client of the last run.
    pub(crate) fn knows_clients(&self) -> bool {
        !matches!(self.phase, Phase::Base | Phase::Clients | Phase::Stopped)
    }

    /// Whether clients of the last run are waited for.
    pub(crate) fn in_window(&self) -> bool {
        self.phase == Phase::Window
    }

    /// They are not any more.
    pub(crate) fn window_ended(&mut self) {
        self.phase = Phase::Orphans;
    }

    /// Whether it is known who has what open.
    pub(crate) fn knows_opens(&self) -> bool {
        matches!(self.phase, Phase::Orphans | Phase::Slots | Phase::Grants | Phase::Serving)
    }

    /// Whether nothing of the last run is left.
    pub(crate) fn finished(&self) -> bool {
        self.serving() && self.listing.is_empty()
    }

    fn tag(&self) -> Option<(u8, Phase)> {
        Some(match self.phase {
            Phase::Clients => (tag::CLIENT, Phase::Stopped),
            Phase::Stopped => (stopped::TAG, Phase::Unlinks),
            Phase::Unlinks => (tag::UNLINK, Phase::Punches),
            Phase::Punches => (tag::PUNCH, Phase::Window),
            Phase::Orphans => (tag::ORPHAN, Phase::Slots),
            Phase::Slots => (tag::SLOT, Phase::Grants),
            Phase::Grants => (tag::GRANT, Phase::Serving),
            Phase::Base | Phase::Window | Phase::Serving => return None,
        })
    }
}

fn root(now: Timestamp) -> Attr {
    Attr {
        fid: Fid::ROOT,
        mode: 0o040_755,
        nlink: 2,
        uid: 0,
        gid: 0,
        projid: 0,
        rdev: 0,
        size: crate::ops::DIR_SIZE,
        blocks: crate::ops::DIR_BLOCKS,
        atime: now.wall(),
        mtime: now.wall(),
        ctime: now.wall(),
        btime: now.wall(),
        version: 1,
        layout_gen: 0,
        size_stale: false,
        maybe_objects: false,
    }
}

impl Mdt {
    /// One step; queues itself until requests can be served.
    pub(crate) fn startup_step(
        &mut self,
        now: Timestamp,
        fetched: &Prefetched,
    ) -> Result<(), Fault> {
        match self.startup.tag() {
            None if self.startup.phase == Phase::Base => self.base(now, fetched)?,
            None if self.startup.in_window() && !self.open_window() => {
                self.begin_run();
                self.startup.window_ended();
            }
            None => return Ok(()),
            Some((tag, next)) => self.page(Key::tag(tag), next, fetched)?,
        }
        if self.startup.serving() {
            // Of the last run it is not known who was lost in it.
            self.doubt_glimpses();
            // An OST may have been out of use before all of them were found.
            self.look_at_cuttings = true;
        } else {
            self.works.push_front(Work::Startup);
        }
        Ok(())
    }

    fn base(&mut self, now: Timestamp, fetched: &Prefetched) -> Result<(), Fault> {
        let view = View::new(&self.core, fetched, self.config.index);
        let counters = view.get(&keys::counters());
        let state = view.get(&keys::seq_state());
        let mark = view.get(&keys::stopped());
        let run = view.get(&keys::run());
        let (counters, state, mark, run) = (counters?, state?, mark?, run?);
        let durable = self.startup.found;
        debug_assert_eq!(durable, self.core.store.transno(), "nothing was done before this");
        let has_run = durable > 0;
        let damaged = |_| Errno::EIO;
        let boot_epoch = self.core.config.boot_epoch;
        let this = RunRecord { boot_epoch, durable: u64::MAX };
        match (counters, state) {
            (Some(counters), Some(state)) => {
                self.inodes = Counters::from_bytes(counters).map_err(damaged)?.inodes;
                let state = SeqState::from_bytes(state).map_err(damaged)?;
                let mark = mark.map(StopMark::from_bytes).transpose().map_err(damaged)?;
                let run = run.map(RunRecord::from_bytes).transpose().map_err(damaged)?;
                self.seqs = Seqs::new(self.config.index, state);
                let followed = match (mark, run) {
                    (Some(StopMark { boot_epoch }), _) => RunRecord { boot_epoch, ..this },
                    // Of what those since have done nobody was answered anything.
                    (None, Some(run)) => RunRecord { durable: run.durable.min(durable), ..run },
                    (None, None) => this,
                };
                // Whatever is done from here on a crash may take.
                let mut tx = Batch::new();
                tx.put(&keys::run(), &followed);
                if mark.is_some() {
                    tx.remove(&keys::stopped());
                }
                let first = self.core.commit(&tx);
                match (mark, run) {
                    (Some(mark), _) => self.recovery.follow(mark.boot_epoch, first),
                    (None, Some(_)) => {
                        self.recovery.follow_crash(followed.boot_epoch, followed.durable);
                    }
                    (None, None) => {}
                }
            }
            // They are the first transaction of all: a target that has any without them has lost
            // them, and a new root over its files would lose those, too.
            (counters, state) if counters.is_some() || state.is_some() || has_run => {
                let (counters, sequences) = (counters.is_some(), state.is_some());
                tracing::error!(
                    counters,
                    sequences,
                    "records that every MDT has are missing: restore the target from a backup"
                );
                return Err(Fault::Errno(Errno::EIO));
            }
            _ => {
                let state = Seqs::first(self.config.index).ok_or(Errno::EINVAL)?;
                let mut tx = Batch::new();
                tx.put(&keys::seq_state(), &state);
                tx.put(&keys::run(), &this);
                self.inodes = u64::from(self.config.index == 0);
                tx.put(&keys::counters(), &Counters { inodes: self.inodes });
                if self.config.index == 0 {
                    tx.put_with(&keys::inode(Fid::ROOT), |out| Inode::new(root(now)).put(out));
                }
                self.core.commit(&tx);
                self.seqs = Seqs::new(self.config.index, state);
            }
        }
        self.startup.phase = Phase::Clients;
        Ok(())
    }

    /// Reads one page of the records of this phase.
    fn page(&mut self, prefix: Key, next: Phase, fetched: &Prefetched) -> Result<(), Fault> {
        let mut found: Vec<(Key, Vec<u8>)> = Vec::new();
        let after = if self.startup.after < prefix { prefix } else { self.startup.after };
        let more = self.core.store.scan(&prefix, &after, PAGE, fetched, |key, value| {
            found.push((*key, value.to_vec()));
        })?;
        let mut tx = Batch::new();
        for (key, value) in found {
            self.leftover(&key, &value, &mut tx)?;
        }
        if !tx.is_empty() {
            self.core.commit(&tx);
        }
        if more.is_none() && self.startup.phase == Phase::Stopped {
            self.take_up();
        }
        match more {
            Some(key) => self.startup.after = key,
            // What is read next may lie before what was read last.
            None => (self.startup.phase, self.startup.after) = (next, Key::EMPTY),
        }
        Ok(())
    }

    /// One record of the last run.
    fn leftover(&mut self, key: &Key, value: &[u8], tx: &mut Batch) -> Result<(), Fault> {
        let damaged = |_| Errno::EIO;
        match self.startup.phase {
            Phase::Clients => {
                let client = keys::number_of(key).map(ClientId).ok_or(Errno::EIO)?;
                let record = ClientRecord::from_bytes(value).map_err(damaged)?;
                if !self.recovery.expect(client, &record) {
                    self.fence_old(client, record);
                }
            }
            Phase::Stopped => {
                self.recovery.found(Mdt::stopped_key(key)?, value)?;
                tx.remove(key);
            }
            Phase::Orphans => {
                let fid = keys::fid_of(key).ok_or(Errno::EIO)?;
                self.works.push_back(Work::Orphan(fid));
            }
            Phase::Unlinks => {
                let fid = keys::fid_of(key).ok_or(Errno::EIO)?;
                let record = UnlinkRecord::from_bytes(value).map_err(damaged)?;
                // How long it was is not written down.
                self.llog.unlink(0, (fid, None), record.layout.into(), record.late_writers);
            }
            Phase::Punches => {
                let transno = keys::number_of(key).ok_or(Errno::EIO)?;
                let PunchRecord { fid, size, layout } =
                    PunchRecord::from_bytes(value).map_err(damaged)?;
                let hold = self.locks.hold(&Need::all_gone(fid, Ibits::DATA));
                let punch = Punch { fid, size, layout: layout.into() };
                self.llog.punch(transno, punch, hold, None);
            }
            Phase::Slots => {
                let (client, slot) = keys::slot_of(key).ok_or(Errno::EIO)?;
                let done = ReplySlot::from_bytes(value).map_err(damaged)?;
                // Of those that are back it is known what they have asked, also in another run.
                if self.recovery.executed((client, slot), done) {
                    self.clients.used_slot(client, slot);
                } else {
                    tx.remove(key);
                }
            }
            Phase::Grants => {
                let seq = keys::number_of(key).ok_or(Errno::EIO).map(Seq)?;
                if self.seqs.is_granted(seq) {
                    return Ok(());
                }
                let osts = self.osp.indices();
                if osts.is_empty() {
                    tx.remove(key);
                } else {
                    self.startup.listing.insert(seq, osts.len());
                }
                for ost in osts {
                    self.osp.push(ost, Job::List { seq, from_oid: 1 });
                }
            }
            Phase::Base | Phase::Window | Phase::Serving => {}
        }
        Ok(())
    }

    /// An object of a sequence has no file.
    pub(crate) fn startup_stray(&mut self, ost: u32, object: ObjectId, seq: Seq) {
        let now = self.core.store.transno();
        if self.llog.stray(now, (ost, object), seq) {
            *self.startup.listing.entry(seq).or_default() += 1;
        }
    }

    /// One OST's objects of a sequence are all compared, or one without a file is destroyed.
    pub(crate) fn startup_done(&mut self, seq: Seq) {
        let Some(left) = self.startup.listing.get_mut(&seq) else { return };
        *left -= 1;
        if *left == 0 {
            self.startup.listing.remove(&seq);
            self.llog.remove(keys::grant(seq));
        }
    }
}

//! An OST that is late: the MDT restarts, and reaches the OSTs of a file later than a client does
//! that was writing to it before and has not heard of the restart. Its writes go on until the
//! fences come, and are answered. Others look at the file meanwhile: what they find is good for
//! the moment, and nothing that the MDT may believe.
//!
//! The programs of the main world leave a file alone that one of them writes to. So those who look
//! here do so unseen ([`Op::Peek`]): what they find is not judged, but what the MDT makes of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use sateen_types::{ClientId, Endpoint, Layout};
use sateen_wire::{Ibits, LockMode};

use super::{Event, Node, World};
use crate::host::Host;
use crate::invariants::{Records, size_covers_objects};
use crate::kernel::Handle;
use crate::random::Random;
use crate::work::chooser::{Chooser, FILE_BYTES_MAX};
use crate::work::{At, Op, Touched};

/// Operations between two of these faults, on average.
const OPERATIONS_PER_LATE: u64 = 350;
/// How long the MDT is down at most: 100 ms.
const DOWN_NS: u64 = 100_000_000;
/// How long it does not hear an OST: from here to there.
const DEAF_NS: (u64, u64) = (50_000_000, 1_000_000_000);
/// Its next attempt to connect may take so long then, with some time to write: 2.5 s.
const ATTEMPT_NS: u64 = 2_500_000_000;
/// So many turns of the writer one write is begun.
const TURNS_PER_WRITE: u64 = 25;
/// And one look of each other program.
const TURNS_PER_PEEK: u64 = 4;
/// Bytes of a write.
const WRITE_BYTES_MAX: u64 = 9000;

/// The fault, and its own randomness: the choices of everything else go on as without it.
#[derive(Debug)]
pub(super) struct Late {
    random: Random,
    next: u64,
    watch: Option<Watch>,
}

/// A file with a writer who has not heard.
#[derive(Debug)]
struct Watch {
    at: At,
    handle: Handle,
    writer: ClientId,
    /// The program on its node.
    worker: usize,
    until_ns: u64,
}

impl Late {
    pub(super) fn new(seed: u64) -> Late {
        let random = Random::new(seed.rotate_left(17) ^ 0x1a7e);
        Late { random, next: OPERATIONS_PER_LATE, watch: None }
    }

    /// Whether an operation would be at the file that is watched.
    pub(super) fn bars(&self, touched: &[(Touched, bool)]) -> bool {
        let Some(watch) = &self.watch else { return false };
        touched.iter().any(|(touched, _)| *touched == Touched::Inode(watch.handle.fid))
    }

    /// Whether a file is watched.
    pub(super) fn is_at_it(&self) -> bool {
        self.watch.is_some()
    }

    fn data(&mut self) -> Vec<u8> {
        let (len, seed) = (self.random.within(1, WRITE_BYTES_MAX), self.random.any());
        (0..len).map(|i| (seed >> (i % 8 * 8)) as u8 | 1).collect()
    }
}

impl World {
    pub(super) fn maybe_late(&mut self) {
        let ends = self.next_op > self.config.operations;
        if ends || self.report.operations < self.late.next || self.late.watch.is_some() {
            return;
        }
        let Some((watch, layout)) = self.find_writer() else { return };
        self.late.next =
            self.report.operations + self.late.random.within(1, 2 * OPERATIONS_PER_LATE);
        let (mdt, writer) = (Endpoint::Mdt(0), Endpoint::Client(watch.writer));
        self.report.count("OST late behind an MDT", 1);
        self.note(|| format!("{mdt} will restart unheard by {writer}: {}", watch.handle.fid));
        let down_ns = self.late.random.within(1_000_000, DOWN_NS);
        let osts: BTreeSet<u32> = layout.objects().map(|(_, ost)| ost).collect();
        for ost in osts {
            let deaf_ns = self.late.random.within(DEAF_NS.0, DEAF_NS.1);
            self.network.cut(mdt, Endpoint::Ost(ost));
            self.after(deaf_ns, Event::Mend(mdt, Endpoint::Ost(ost)));
        }
        self.network.cut(mdt, writer);
        let until_ns = self.now_ns + DEAF_NS.1 + ATTEMPT_NS;
        self.after(DEAF_NS.1 + ATTEMPT_NS, Event::Mend(mdt, writer));
        self.after(DEAF_NS.1 + 2 * ATTEMPT_NS, Event::Late);
        self.late.watch = Some(Watch { until_ns, ..watch });
        self.crash_target(mdt, down_ns);
    }

    /// Somebody who may write to a file as he has a lock for that, and has nothing else to do.
    fn find_writer(&mut self) -> Option<(Watch, Arc<Layout>)> {
        let mdt = self.hosts.get(&Endpoint::Mdt(0)).and_then(Host::running_mdt)?;
        let owns = |node: &Node, fid| {
            mdt.lock_holders(fid).any(|held| {
                held.client == node.client.incarnation()
                    && held.mode.covers(LockMode::Pw)
                    && held.bits.contains(Ibits::DATA)
            })
        };
        let mut all = Vec::new();
        for node in self.nodes.iter().filter(|node| node.stays() && node.dirty.is_empty()) {
            for (worker, open) in node.open.iter().enumerate() {
                if node.busy.get(worker).is_none_or(|busy| *busy) {
                    continue;
                }
                let writes = |how: crate::kernel::How| how.write && !how.append && !how.sync;
                let mine = open.iter().filter(|(handle, lost)| !lost && writes(handle.how));
                all.extend(mine.map(|(handle, _)| (node.id, worker, *handle)));
            }
            all.retain(|(id, _, handle)| *id != node.id || owns(node, handle.fid));
        }
        all.retain(|(.., handle)| self.is_free(&[(Touched::Inode(handle.fid), true)]));
        let (writer, worker, handle) = self.late.random.pick(&all).copied()?;
        let layout = self.model.data.get(&handle.fid)?.layout.clone()?;
        let names = &self.model.now;
        let (random, osts) = (&mut self.late.random, self.shape.osts);
        let at = Chooser { random, names, osts, given: false }.named(handle.fid)?;
        Some((Watch { at, handle, writer, worker, until_ns: 0 }, layout))
    }

    /// What a program does that has to do with the file that is watched; whether it has.
    pub(super) fn give_late_op(&mut self, index: usize, worker: usize) -> bool {
        let Some(watch) = &self.late.watch else { return false };
        let Some(node) = self.nodes.get(index) else { return false };
        if self.now_ns >= watch.until_ns {
            return false;
        }
        let (fid, handle) = (watch.handle.fid, watch.handle);
        if node.id != watch.writer {
            if !self.late.random.one_in(TURNS_PER_PEEK) {
                return false;
            }
            let at = watch.at.clone();
            self.begin(index, worker, Op::Peek { at }, Vec::new());
            return true;
        }
        if worker != watch.worker {
            return false;
        }
        let has = |open: &Vec<(Handle, bool)>| open.iter().any(|(other, _)| *other == handle);
        let size = self.model.data.get(&fid).map_or(0, |data| data.size());
        let goes_on = node.open.get(worker).is_some_and(has) && size < FILE_BYTES_MAX;
        let touched = vec![(Touched::Inode(fid), true)];
        if goes_on && self.is_free(&touched) && self.late.random.one_in(TURNS_PER_WRITE) {
            let op = Op::Write { handle, offset: size, data: self.late.data() };
            self.begin(index, worker, op, touched);
        }
        true
    }

    /// All are fenced who could have written: if the MDT knows the size it is the right one.
    pub(super) fn late_is_over(&mut self) {
        let Some(watch) = self.late.watch.take() else { return };
        let fid = watch.handle.fid;
        let Some(host) = self.hosts.get_mut(&Endpoint::Mdt(0)) else { return };
        if host.process.is_none() {
            return;
        }
        let records = Records::of(host);
        self.report.count("size looked at behind a late OST", 1);
        if let Err(what) = size_covers_objects(&records, &self.hosts, Some(fid)) {
            self.fail(format!("behind a late OST: {what}"));
        }
    }
}

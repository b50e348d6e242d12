//! Work that no request stands behind: it may stop for the index like a request, and is
//! started again.

use std::collections::BTreeSet;

use sateen_osd::Prefetched;
use sateen_target::{Fault, Outbox};
use sateen_types::{Fid, Seq, Timestamp};
use sateen_wire::{Ibits, OBJECTS_PER_RPC_MAX, ObjectAttr};

use crate::mdt::Mdt;
use crate::osp::Job;
use crate::view::View;

/// One piece of work.
#[derive(Debug)]
pub(crate) enum Work {
    /// The next step of the start.
    Startup,
    /// Make the next change again that a crash has taken.
    Replay,
    /// Destroy an inode that lost its last open.
    Orphan(Fid),
    /// Hold the objects of a sequence against the inodes.
    Reconcile { ost: u32, seq: Seq, objects: Vec<ObjectAttr> },
    /// Give time to whoever cannot give a lock back because an OST is away, and throw out who has
    /// had his.
    Overdue,
}

impl Mdt {
    /// Does the work at hand, until it stops for the index.
    pub(crate) fn run_works(&mut self, now: Timestamp, out: &mut Outbox) {
        while let Some(work) = self.works.pop_front() {
            self.run_work(now, (work, Prefetched::default()), out);
        }
    }

    pub(crate) fn run_work(
        &mut self,
        now: Timestamp,
        (work, fetched): (Work, Prefetched),
        out: &mut Outbox,
    ) {
        let done = match &work {
            Work::Startup => self.startup_step(now, &fetched),
            Work::Replay => self.replay_step(now, &fetched),
            Work::Orphan(fid) => self.destroy_orphan(*fid, &fetched),
            Work::Reconcile { ost, seq, objects } => {
                self.reconcile((*ost, *seq), objects, &fetched)
            }
            Work::Overdue => self.spare_who_waits(now, &fetched),
        };
        match done {
            Ok(()) | Err(Fault::Blocked) => {}
            Err(Fault::Miss) => {
                let id = self.core.fetch_wanted(out);
                self.working.insert(id, (work, fetched));
            }
            Err(Fault::Errno(error)) => {
                tracing::error!(?work, %error, "the MDT could not do its own work");
                if matches!(work, Work::Startup) {
                    // Nobody will ever be served, and nobody shall wait for it.
                    self.stop(out);
                }
            }
        }
    }

    /// Looks for clients that are late with a lock. Those that cannot finish their reads and
    /// writes because the file's OST is away are not: nobody would get at the data any sooner
    /// without them. Once it answers they have all of their time.
    fn spare_who_waits(&mut self, now: Timestamp, fetched: &Prefetched) -> Result<(), Fault> {
        let away = self.alloc.away();
        let called =
            if away.is_empty() { Default::default() } else { self.locks.called_on(Ibits::DATA) };
        let (mut missed, mut spared) = (false, BTreeSet::new());
        for fid in called {
            let inode = match View::new(&self.core, fetched, self.config.index).inode(fid) {
                Err(Fault::Miss) => {
                    missed = true;
                    continue;
                }
                inode => inode.ok().flatten(),
            };
            // Of a layout that cannot be read nobody can wait for an OST.
            let layout = inode.and_then(|inode| self.layouts.get(inode.layout).ok().flatten());
            if layout.is_some_and(|layout| layout.objects().any(|(_, ost)| away.contains(&ost))) {
                spared.insert(fid);
            }
        }
        self.locks.give_time(now.mono_ns, &spared, Ibits::DATA);
        if missed {
            return Err(Fault::Miss);
        }
        self.may_evict = true;
        Ok(())
    }

    /// Destroys the objects that belong to no inode, and asks for more.
    fn reconcile(
        &mut self,
        (ost, seq): (u32, Seq),
        objects: &[ObjectAttr],
        fetched: &Prefetched,
    ) -> Result<(), Fault> {
        let view = View::new(&self.core, fetched, self.config.index);
        let mut missed = false;
        let mut strays = Vec::new();
        let mut last = None;
        for object in objects.iter().map(|attr| attr.object) {
            let known = match last {
                Some((fid, known)) if fid == object.fid => known,
                _ => match view.inode(object.fid) {
                    Ok(inode) => inode.is_some(),
                    Err(Fault::Miss) => {
                        missed = true;
                        continue;
                    }
                    Err(fault) => return Err(fault),
                },
            };
            last = Some((object.fid, known));
            if !known {
                strays.push(object);
            }
        }
        if missed {
            return Err(Fault::Miss);
        }
        for object in strays {
            tracing::info!(%object, ost, "destroying an object whose file was lost in a crash");
            self.startup_stray(ost, object, seq);
        }
        let page = OBJECTS_PER_RPC_MAX / 2;
        match objects.last().filter(|_| objects.len() >= page) {
            Some(last) => {
                let from_oid = last.object.fid.oid + 1;
                self.osp.push(ost, Job::List { seq, from_oid });
            }
            None => self.startup_done(seq),
        }
        Ok(())
    }
}

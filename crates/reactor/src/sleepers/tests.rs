//! How many jobs are under way at once, and what passes those that wait.

use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use sateen_osd::ObjectOp;
use sateen_target::IoId;
use sateen_types::{Endpoint, Fid, ObjectId};
use sateen_wire::{Message, Span};

use crate::router::Receiver;
use crate::run_loop::{Begun, Driven, Work};
use crate::sleepers::{MANY_PIECES, REMOVALS_MAX, SHARE_MAX, Share, Sleepers};
use crate::sync::{Arc, lock};

#[derive(Default)]
struct Counts {
    syncs: usize,
    syncs_max: usize,
    removals: usize,
    removals_max: usize,
    changes: usize,
    reads: usize,
    /// Which objects are written.
    writes: Vec<ObjectId>,
    commits: usize,
    ended: usize,
    go_on: bool,
}

/// A target whose disk hangs until it is told to go on.
#[derive(Default)]
struct Hanging {
    counts: Mutex<Counts>,
    changed: Condvar,
}

impl Hanging {
    fn wait(&self, what: &str, until: impl Fn(&Counts) -> bool) {
        let began = Instant::now();
        let mut counts = lock(&self.counts);
        while !until(&counts) {
            assert!(began.elapsed() < Duration::from_secs(120), "{what}");
            counts = self.changed.wait_timeout(counts, Duration::from_secs(1)).unwrap().0;
        }
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut lock(&self.counts));
        self.changed.notify_all();
    }
}

impl Receiver for Hanging {
    fn receive(self: Arc<Self>, _: Message) {}
}

impl Driven for Hanging {
    fn flush(self: Arc<Self>) {
        self.count(|counts| counts.commits += 1);
    }
    fn commit(self: Arc<Self>, _: Begun) {}
    fn object(self: Arc<Self>, _: IoId, op: ObjectOp) {
        let sync = matches!(op, ObjectOp::Sync { .. });
        let removal = matches!(op, ObjectOp::Remove { .. });
        self.count(|counts| match op {
            ObjectOp::Sync { .. } => {
                counts.syncs += 1;
                counts.syncs_max = counts.syncs_max.max(counts.syncs);
            }
            ObjectOp::Read { .. } => counts.reads += 1,
            ObjectOp::WriteMany { object, .. } => counts.writes.push(object),
            ObjectOp::Remove { .. } => {
                counts.removals += 1;
                counts.removals_max = counts.removals_max.max(counts.removals);
            }
            _ => counts.changes += 1,
        });
        self.wait("it is told to go on", |counts| counts.go_on);
        self.count(|counts| {
            counts.syncs -= usize::from(sync);
            counts.removals -= usize::from(removal);
            counts.ended += 1;
        });
    }
    fn tick(self: Arc<Self>) -> bool {
        false
    }
    fn checkpoint(self: Arc<Self>) {}
}

#[test]
fn syncs_that_hang_keep_nothing_else_waiting() {
    let sleepers = Arc::new(Sleepers::default());
    let host = Arc::new(Hanging::default());
    let target = Endpoint::Ost(0);
    let object = ObjectId { fid: Fid::ROOT, stripe: 0 };
    let syncs = SHARE_MAX + 10;
    for id in 0..syncs {
        let sync = ObjectOp::Sync { objects: vec![object] };
        sleepers.push(target, Work::Object(host.clone(), IoId(id as u64), sync));
    }
    host.wait("as many syncs as may", |counts| counts.syncs == SHARE_MAX);
    for removals in 1..=5 {
        let removal = ObjectOp::Remove { objects: vec![object] };
        sleepers.push(target, Work::Object(host.clone(), IoId(2000 + removals), removal));
    }
    host.wait("as many removals as may", |counts| counts.removals == REMOVALS_MAX);
    let cut = ObjectOp::Punch { object, size: 0 };
    sleepers.push(target, Work::Object(host.clone(), IoId(1000), cut));
    host.wait("a change passes them all", |counts| counts.changes == 1);
    let read =
        ObjectOp::Read { object, offset: 0, len: 0, buffer: Default::default(), direct: false };
    sleepers.push(target, Work::Object(host.clone(), IoId(1002), read));
    host.wait("and so does a read", |counts| counts.reads == 1);
    // A place that a group commit leaves is nobody's.
    for commits in 1..=5 {
        sleepers.push(target, Work::Flush(host.clone()));
        host.wait("so does a group commit", |counts| counts.commits == commits);
    }
    let elsewhere = Work::Object(host.clone(), IoId(1001), ObjectOp::Sync { objects: vec![] });
    sleepers.push(Endpoint::Ost(1), elsewhere);
    host.wait("another target has its own", |counts| counts.syncs == SHARE_MAX + 1);
    host.count(|counts| counts.go_on = true);
    sleepers.stop();
    let counts = lock(&host.counts);
    assert_eq!(counts.ended, syncs + 5 + 3, "all are done");
    assert_eq!((counts.syncs_max, counts.removals_max), (SHARE_MAX + 1, REMOVALS_MAX));
}

#[test]
fn writes_of_many_pieces_wait_for_those_of_their_lane() {
    let sleepers = Arc::new(Sleepers::default());
    let host = Arc::new(Hanging::default());
    let target = Endpoint::Ost(0);
    let object = |oid| ObjectId { fid: Fid { oid, ..Fid::ROOT }, stripe: 0 };
    let first = object(1);
    // As of every fourth file, of which an OST of four has the first object.
    let others = || (1..100).map(|n| object(1 + 4 * n));
    let is_beside = |other: &ObjectId| Share::of_writes(*other) == Share::of_writes(first);
    let (beside, elsewhere) = (others().find(is_beside), others().find(|other| !is_beside(other)));
    let write = |object| {
        let pieces = vec![Span { offset: 0, len: 1 }; MANY_PIECES].into();
        let op = ObjectOp::WriteMany { object, pieces, data: Default::default() };
        sleepers.push(target, Work::Object(host.clone(), IoId(0), op));
    };
    for _ in 0..3 {
        write(first);
    }
    // One of another lane does not wait for them, nor does a change of the same object.
    let elsewhere = elsewhere.unwrap();
    write(elsewhere);
    host.wait("one of each", |counts| counts.writes.len() == 2);
    let cut = ObjectOp::Punch { object: first, size: 0 };
    sleepers.push(target, Work::Object(host.clone(), IoId(1), cut));
    host.wait("a change passes them", |counts| counts.changes == 1);
    write(beside.unwrap());
    let mut begun = lock(&host.counts).writes.clone();
    begun.sort_unstable();
    let mut once = [first, elsewhere];
    once.sort_unstable();
    assert_eq!(begun, once, "the others wait");
    host.count(|counts| counts.go_on = true);
    sleepers.stop();
    let counts = lock(&host.counts);
    assert_eq!((counts.ended, counts.writes.len()), (6, 5), "all are done");
}

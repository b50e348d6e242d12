//! Programs of the full world that join groups and leave them, through crashes of all kinds.
//!
//! They meet at one file, which is another after a while: one that nobody has open, and with which nobody
//! else has anything to do meanwhile, because he would wait for as long as they like. What groups do with
//! what they write, the world of contention looks at ([`super::teams`]). Whoever waits gets a signal.

use std::sync::Arc;

use sateen_client::OpenHow;
use sateen_types::{Errno, Fid, Result as Answer};

use super::{Event, Running, World};
use crate::file_locks::Alarm;
use crate::kernel::Handle;
use crate::names::Node;
use crate::random::Random;
use crate::work::chooser::Chooser;
use crate::work::{Op, Out, Touched};

/// Operations while programs meet at one file, on average.
const OPERATIONS_PER_FILE: u64 = 300;
/// So many turns of a program one has to do with it.
const TURNS_PER_OPERATION: u64 = 4;
/// And so many operations one closes the file.
const TURNS_PER_CLOSE: u64 = 12;
/// A signal comes after as long: from here to there.
const ALARM_NS: (u64, u64) = (1_000_000, 1_000_000_000);

/// The file, and its own randomness.
#[derive(Debug)]
pub(super) struct Grouping {
    random: Random,
    file: Option<Fid>,
    next: u64,
}

impl Grouping {
    pub(super) fn new(seed: u64) -> Grouping {
        Grouping { random: Random::new(seed.rotate_left(23) ^ 0x6009), file: None, next: 0 }
    }

    /// Whether somebody would have to wait for those who meet.
    pub(super) fn bars(&self, op: &Op, touched: &[(Touched, bool)]) -> bool {
        let meets = |fid| touched.iter().any(|(what, _)| *what == Touched::Inode(fid));
        !matches!(op, Op::Close { .. }) && self.file.is_some_and(meets)
    }
}

impl World {
    /// Another file, if nobody has the one before any more.
    fn meet_elsewhere(&mut self) {
        let open = |fid: Fid, world: &World| {
            let all = world.nodes.iter().flat_map(|node| node.open.iter().flatten());
            all.into_iter().any(|(handle, _)| handle.fid == fid)
        };
        if self.report.operations < self.grouping.next
            || self.grouping.file.is_some_and(|fid| open(fid, self))
        {
            return;
        }
        let inodes = &self.model.now.inodes;
        let files = inodes.iter().filter(|(_, inode)| inode.node == Node::File);
        let files: Vec<Fid> = files.map(|(fid, _)| *fid).collect();
        let chosen = self.grouping.random.pick(&files).copied();
        let is_free =
            |fid: &Fid| !open(*fid, self) && self.is_free(&[(Touched::Inode(*fid), true)]);
        self.grouping.file = chosen.filter(is_free);
        let some = self.grouping.random.within(1, 2 * OPERATIONS_PER_FILE);
        self.grouping.next = self.report.operations + some;
    }

    /// What a program of this node with these open files does about groups, if it does.
    pub(super) fn group(&mut self, node: usize, open: &[(Handle, u64, bool)]) -> Option<Op> {
        if self.config.given {
            return None;
        }
        self.meet_elsewhere();
        let random = &mut self.grouping.random;
        if !random.one_in(TURNS_PER_OPERATION) {
            return None;
        }
        let file = self.grouping.file?;
        let Some((handle, ..)) = open.iter().find(|(handle, ..)| handle.fid == file) else {
            let names = &self.model.now;
            let osts = self.shape.osts;
            let at = Chooser { random, names, osts, given: false }.named(file)?;
            let how = OpenHow { read: true, nonblock: random.one_in(4), ..OpenHow::default() };
            return Some(Op::Open { at, create: None, how });
        };
        let handle = *handle;
        let mut of_node = self.nodes.get(node).into_iter().flat_map(|node| &node.open).flatten();
        // One that is lost is of no more use.
        let is_lost = of_node.any(|(other, lost)| *other == handle && *lost);
        if is_lost || random.one_in(TURNS_PER_CLOSE) {
            return Some(Op::Close { handle });
        }
        let gid = 1 + u64::from(random.one_in(3));
        let alarm = random.one_in(2).then(Arc::default);
        Some(Op::Group { handle, gid, alarm })
    }

    /// An operation comes on top: of all else there is as much as without, and of faults for all else.
    pub(super) fn takes_no_turn(&mut self) {
        self.config.operations += 1;
        for next in [&mut self.next_fault, &mut self.next_hunt, &mut self.next_leave] {
            *next += 1;
        }
    }

    /// An operation begins; whoever waits gets a signal.
    pub(super) fn group_begins(&mut self, running: &Running) {
        let Op::Group { alarm, .. } = &running.op else { return };
        self.takes_no_turn();
        if let Some(alarm) = alarm.clone() {
            let after = self.grouping.random.within(ALARM_NS.0, ALARM_NS.1);
            self.after(after, Event::Alarm(alarm));
        }
    }

    /// An operation that has to do with groups has ended; whether there is nothing else to judge.
    pub(super) fn judge_group(&mut self, running: &Running, result: &Answer<Out>) -> bool {
        let Op::Group { alarm, .. } = &running.op else { return false };
        let rung = alarm.as_deref().is_some_and(Alarm::has_rung);
        let counted = match result {
            Ok(_) if alarm.is_some() => "group joined",
            Ok(_) => "group left",
            // It is a member already, or of the other one, or of none.
            Err(Errno::EINVAL) => "group that cannot be joined or left",
            // It does not wait.
            Err(Errno::EAGAIN) if alarm.is_some() => "group not waited for",
            Err(Errno::EINTR) if rung => "wait for a group given up",
            Err(Errno::EIO | Errno::EBADF | Errno::ESTALE) if running.mdt_hit => "group lost",
            Err(errno) => {
                self.fail(format!("{:?} answered {}", running.op, errno.name()));
                return true;
            }
        };
        self.report.count(counted, 1);
        true
    }
}

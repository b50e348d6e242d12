//! Programs that lock files, flock(2) and fcntl(2), and what they are told.
//!
//! Most of them meet at one file, which is another after a while. Whoever waits for a lock gets a
//! signal some time later, if it is not there before: the others may have ended, and two who wait
//! for each other with locks of flock(2) wait for ever.

use std::sync::Arc;

use sateen_client::OpenHow;
use sateen_types::{Errno, Fid, Result as Answer};
use sateen_wire::{FileLock, FileLockMode};

use super::{Running, World};
use crate::file_locks::{Alarm, FileLocks, UNITS, range};
use crate::kernel::Handle;
use crate::names::Node;
use crate::random::Random;
use crate::work::chooser::Chooser;
use crate::work::{Op, Out};

/// Operations while programs meet at one file, on average.
const OPERATIONS_PER_FILE: u64 = 300;
/// So many turns of a program one has to do with it.
const TURNS_PER_OPERATION: u64 = 3;
/// And so many operations one closes the file.
const TURNS_PER_CLOSE: u64 = 12;
/// A signal comes after as long: from here to there.
const ALARM_NS: (u64, u64) = (1_000_000, 400_000_000);
/// The owner of a lock of flock(2) is the open: its number and this.
const FLOCK: u64 = 1 << 32;

/// The file, what is known of locks, and their own randomness.
#[derive(Debug)]
pub(super) struct Locking {
    random: Random,
    file: Option<Fid>,
    next: u64,
    pub(super) known: FileLocks,
}

impl Locking {
    pub(super) fn new(seed: u64) -> Locking {
        let random = Random::new(seed.rotate_left(41) ^ 0x10c5);
        Locking { random, file: None, next: 0, known: FileLocks::default() }
    }
}

/// What a program does about a lock.
pub(crate) fn lock_op(random: &mut Random, handle: Handle) -> Op {
    let flock = random.one_in(2);
    let owner = if flock { FLOCK | handle.id } else { handle.owner };
    let first = random.below(UNITS);
    let last = random.within(first, UNITS - 1);
    // That of flock(2) is of all, as is most of what is given back.
    let (start, end) = match random.below(100) {
        0..=39 if !flock => range(first, last),
        _ => range(0, UNITS - 1),
    };
    let mode = match random.below(100) {
        0..=29 => FileLockMode::Unlock,
        30..=44 => FileLockMode::Read,
        _ => FileLockMode::Write,
    };
    let pid = handle.owner as u32;
    let lock = FileLock { owner, flock, mode, start, end, pid };
    if mode != FileLockMode::Unlock && random.one_in(8) {
        return Op::TestLock { handle, lock };
    }
    let waits = mode != FileLockMode::Unlock && !random.one_in(6);
    Op::SetLock { handle, lock, alarm: waits.then(Arc::default) }
}

impl World {
    /// What a program of this node with these open files does about locks, if it does.
    pub(super) fn lock(&mut self, node: usize, open: &[(Handle, u64, bool)]) -> Option<Op> {
        let works = self.report.operations >= self.locking.next;
        let random = &mut self.locking.random;
        if works {
            let inodes = &self.model.now.inodes;
            let files = inodes.iter().filter(|(_, inode)| inode.node == Node::File);
            let files: Vec<Fid> = files.map(|(fid, _)| *fid).collect();
            self.locking.file = random.pick(&files).copied();
            let some = random.within(1, 2 * OPERATIONS_PER_FILE);
            self.locking.next = self.report.operations + some;
        }
        if !random.one_in(TURNS_PER_OPERATION) {
            return None;
        }
        let file = self.locking.file?;
        if let Some((handle, ..)) = open.iter().find(|(handle, ..)| handle.fid == file) {
            let mut of_node =
                self.nodes.get(node).into_iter().flat_map(|node| &node.open).flatten();
            // One that is lost is of no more use.
            let is_lost = of_node.any(|(other, lost)| other == handle && *lost);
            let close = Op::Close { handle: *handle };
            let closes = is_lost || random.one_in(TURNS_PER_CLOSE);
            return Some(if closes { close } else { lock_op(random, *handle) });
        }
        let names = &self.model.now;
        let osts = self.shape.osts;
        let at = Chooser { random, names, osts, given: false }.named(file)?;
        let how = OpenHow { read: true, ..OpenHow::default() };
        Some(Op::Open { at, create: None, how })
    }

    /// Whether a program has something to do with an open file beside locking it: not with one that
    /// was opened for that.
    pub(super) fn is_not_for_locks(&self, handle: &Handle) -> bool {
        handle.how.write || self.locking.file != Some(handle.fid)
    }

    /// An operation begins; whoever waits gets a signal.
    pub(super) fn lock_begins(&mut self, running: &Running) {
        let (client, id) = (running.client, running.id);
        let known = &mut self.locking.known;
        if matches!(running.op, Op::SetLock { .. } | Op::TestLock { .. }) {
            // Of all else there is as much as without, and of faults for all else.
            self.config.operations += 1;
            for next in [&mut self.next_fault, &mut self.next_hunt, &mut self.next_leave] {
                *next += 1;
            }
        }
        match &running.op {
            Op::SetLock { handle, lock, alarm } => {
                known.begins(client, handle.fid, lock, id);
                if let Some(alarm) = alarm.clone() {
                    let after = self.locking.random.within(ALARM_NS.0, ALARM_NS.1);
                    self.after(after, super::Event::Alarm(alarm));
                }
            }
            Op::TestLock { handle, lock } => known.begins_test(client, handle.fid, lock, id),
            Op::Close { handle } => {
                known.closes(client, handle.fid, (FLOCK | handle.id, handle.owner));
            }
            _ => {}
        }
    }

    /// An operation that has to do with locks has ended; whether there is nothing else to judge.
    pub(super) fn judge_lock(&mut self, running: &Running, result: &Answer<Out>) -> bool {
        let now_ns = self.now_ns;
        let judged = match &running.op {
            Op::SetLock { handle, lock, alarm } => {
                self.judge_set(running, (*handle, lock, alarm.as_deref()), result)
            }
            Op::TestLock { handle, lock } => self.judge_test(running, (*handle, lock), result),
            Op::Close { handle } => {
                let owners = (FLOCK | handle.id, handle.owner);
                let (known, client) = (&mut self.locking.known, running.client);
                let is_done = !running.mdt_hit && result.is_ok();
                let took_ns = if is_done { now_ns - running.began_ns } else { u64::MAX };
                let hears_late = self.config.given;
                known.closed(client, handle.fid, owners, (took_ns, now_ns), hears_late);
                return false;
            }
            _ => return false,
        };
        if let Err(what) = judged {
            let shown = super::judge::shown(result);
            self.fail(format!("{:?} answered {shown}: {what}", running.op));
        }
        let began = self.running.values().map(|running| running.began_ns).min();
        self.locking.known.tidy(began.unwrap_or(now_ns));
        true
    }

    fn judge_set(
        &mut self,
        running: &Running,
        (handle, lock, alarm): (Handle, &FileLock, Option<&Alarm>),
        result: &Answer<Out>,
    ) -> Result<(), String> {
        let (client, fid, now_ns) = (running.client, handle.fid, self.now_ns);
        let is_out = self.was_thrown_out(running);
        let known = &mut self.locking.known;
        let gives_back = lock.mode == FileLockMode::Unlock;
        let hit = running.mdt_hit;
        let counted = match result {
            Ok(_) if gives_back => "lock given back",
            Ok(_) if alarm.is_some() => "lock waited for, or free",
            Ok(_) => "lock granted at once",
            Err(Errno::EAGAIN) => "lock refused",
            Err(Errno::EINTR) => "wait for a lock given up",
            Err(Errno::EDEADLK) => "deadlock found",
            Err(_) => "lock lost",
        };
        let right = match result {
            Ok(_) if gives_back => {
                known.given_back(client, fid, lock, now_ns);
                Ok(())
            }
            // What the MDT has forgotten others may have by now.
            Ok(_) if hit => Ok(()),
            Ok(_) => known.granted(client, fid, lock),
            Err(errno) if hit && (is_out || *errno != Errno::EIO) => Ok(()),
            Err(Errno::EAGAIN) if alarm.is_none() => {
                let in_way = known.may_be_in_way(client, fid, lock, running.began_ns);
                if in_way { Ok(()) } else { Err("nobody can have been in its way".to_owned()) }
            }
            Err(Errno::EINTR) if alarm.is_some_and(Alarm::has_rung) => Ok(()),
            Err(Errno::EDEADLK) if alarm.is_some() && !lock.flock => {
                let waited_for = known.may_have_another(client, lock.owner, running.id);
                if waited_for { Ok(()) } else { Err("nobody can be waiting for it".to_owned()) }
            }
            Err(_) => Err("it should succeed".to_owned()),
        };
        if result.is_err() {
            known.failed(running.id, hit, now_ns);
        }
        self.report.count(counted, 1);
        right
    }

    fn judge_test(
        &mut self,
        running: &Running,
        (handle, lock): (Handle, &FileLock),
        result: &Answer<Out>,
    ) -> Result<(), String> {
        let (client, fid) = (running.client, handle.fid);
        let is_out = running.mdt_hit && self.was_thrown_out(running);
        let known = &mut self.locking.known;
        let missed = known.missed(client, fid, lock, running.id);
        match result {
            Ok(Out::InWay(None)) if missed && !running.mdt_hit => {
                Err("somebody was in its way all the time".to_owned())
            }
            Ok(Out::InWay(None)) => Ok(()),
            Ok(Out::InWay(Some(holder))) => {
                let in_way = known.may_be_in_way(client, fid, lock, running.began_ns);
                let conflicts = !holder.mode.compatible(lock.mode) && holder.flock == lock.flock;
                let fits = conflicts && holder.start <= lock.end && lock.start <= holder.end;
                if running.mdt_hit || in_way && fits {
                    Ok(())
                } else {
                    Err("nobody can have been in its way".to_owned())
                }
            }
            Err(_) if is_out => Ok(()),
            _ => Err("it should succeed".to_owned()),
        }
    }
}

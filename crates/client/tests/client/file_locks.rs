//! Programs' locks: turns, signals, closes, and what of it goes with an eviction.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sateen_client::{OpenHow, Patience};
use sateen_types::{Errno, Result};
use sateen_wire::FileLockMode::{Read, Unlock, Write};
use sateen_wire::{
    Body, Bulk, Callback, FILE_LOCK_END_MAX, FileLock, FileLockMode, FileLockState, Header,
    MdtReply, MdtRequest, Message, Reply, WaitId,
};

use crate::rig::{CRED, FILE, Rig, Verb, attr, reply};

fn lock(mode: FileLockMode, (start, end): (u64, u64)) -> FileLock {
    FileLock { owner: 5, flock: false, mode, start, end, pid: 77 }
}

fn all(mode: FileLockMode) -> FileLock {
    lock(mode, (0, FILE_LOCK_END_MAX))
}

/// The file is open; the handle, and a header of the MDT's.
fn open(rig: &Rig) -> (u64, Header) {
    let client = rig.client.clone();
    let how = OpenHow { read: true, ..OpenHow::default() };
    let mut open = rig.start(async move { client.open(FILE, how, CRED).await });
    let (header, _) = rig.take_mdt();
    rig.answer(&header, reply(MdtReply::Opened { attr: attr(4, 0), layout: None }, &[]));
    (rig.poll(&mut open).unwrap().unwrap().handle, header)
}

/// A program that locks, and can be signalled.
struct Locking {
    verb: Verb<Result<()>>,
    patience: Arc<Patience>,
    gone: Arc<AtomicBool>,
}

impl Locking {
    fn start(rig: &Rig, handle: u64, lock: FileLock, wait: bool) -> Locking {
        let (client, patience) = (rig.client.clone(), Arc::new(Patience::default()));
        let gone = Arc::new(AtomicBool::new(false));
        let is_gone = gone.clone();
        let set = async move {
            let heard = || !is_gone.load(Ordering::Relaxed);
            client.set_file_lock(handle, lock, wait, heard).await
        };
        let verb = rig.start(patience.clone().run(set));
        Locking { verb, patience, gone }
    }

    fn signal(&self) {
        self.gone.store(true, Ordering::Relaxed);
        self.patience.end();
    }
}

/// The next request is one for a lock: which, and under which wait.
fn asked(rig: &Rig) -> (Header, FileLock, Option<WaitId>) {
    match rig.take_mdt() {
        (header, MdtRequest::SetFileLock { fid: FILE, lock, wait, .. }) => (header, lock, wait),
        other => panic!("{other:?}"),
    }
}

fn says(rig: &Rig, to: &Header, state: FileLockState) {
    rig.answer(to, reply(MdtReply::FileLock { state, holder: None }, &[]));
}

/// A lock is taken at once.
fn take(rig: &Rig, handle: u64, lock: FileLock) {
    let mut locking = Locking::start(rig, handle, lock, false);
    says(rig, &asked(rig).0, FileLockState::Granted);
    assert_eq!(rig.poll(&mut locking.verb), Some(Ok(())));
}

fn turn(rig: &Rig, like: &Header, wait: WaitId) {
    let body = Body::Callback(Callback::FileLockTurn { fid: FILE, wait });
    rig.client.on_message(Message { header: like.reply(), body, bulk: Bulk::None });
    rig.run();
}

#[test]
fn a_turn_may_come_before_the_answer_and_is_taken() {
    let rig = Rig::mounted();
    let (handle, _) = open(&rig);
    for early in [true, false] {
        let mut locking = Locking::start(&rig, handle, all(Write), true);
        let (header, what, wait) = asked(&rig);
        assert_eq!(what, all(Write));
        if early {
            turn(&rig, &header, wait.unwrap());
        }
        says(&rig, &header, FileLockState::Queued);
        assert!(rig.poll(&mut locking.verb).is_none());
        if !early {
            assert!(rig.is_silent(), "it waits");
            turn(&rig, &header, wait.unwrap());
            assert!(rig.poll(&mut locking.verb).is_none());
        }
        let (header, what, again) = asked(&rig);
        assert_eq!((what, again), (all(Write), wait));
        says(&rig, &header, FileLockState::Granted);
        assert_eq!(rig.poll(&mut locking.verb), Some(Ok(())));
        // One that comes late meets nobody, which the MDT is told.
        turn(&rig, &header, wait.unwrap());
        let (left, request) = rig.take_mdt();
        assert_eq!(request, MdtRequest::LeaveFileLock { fid: FILE, wait: wait.unwrap() });
        rig.answer(&left, reply(MdtReply::Done, &[]));
    }
    assert_eq!(rig.client.file_locks_held(), 1);
}

#[test]
fn who_waits_asks_again_after_a_while_and_leaves_at_a_signal() {
    let rig = Rig::mounted();
    let (handle, _) = open(&rig);
    let mut locking = Locking::start(&rig, handle, all(Write), true);
    let (header, _, wait) = asked(&rig);
    says(&rig, &header, FileLockState::Queued);
    assert!(rig.poll(&mut locking.verb).is_none() && rig.is_silent());
    rig.time_passes();
    assert!(rig.poll(&mut locking.verb).is_none());
    let (header, _, again) = asked(&rig);
    assert_eq!(again, wait);
    says(&rig, &header, FileLockState::Queued);
    assert!(rig.poll(&mut locking.verb).is_none());
    locking.signal();
    assert!(rig.poll(&mut locking.verb).is_none(), "the MDT is told first");
    let (left, request) = rig.take_mdt();
    assert_eq!(request, MdtRequest::LeaveFileLock { fid: FILE, wait: wait.unwrap() });
    rig.answer(&left, reply(MdtReply::Done, &[]));
    assert_eq!(rig.poll(&mut locking.verb), Some(Err(Errno::EINTR)));
    assert_eq!(rig.client.file_locks_held(), 0);
}

#[test]
fn a_grant_that_crosses_a_signal_leaves_what_was_before() {
    let rig = Rig::mounted();
    let (handle, _) = open(&rig);
    take(&rig, handle, lock(Read, (10, 19)));
    let mut locking = Locking::start(&rig, handle, lock(Write, (5, 29)), true);
    let (header, ..) = asked(&rig);
    locking.signal();
    assert!(rig.poll(&mut locking.verb).is_none(), "it may be there");
    says(&rig, &header, FileLockState::Granted);
    for right in [lock(Unlock, (5, 9)), lock(Read, (10, 19)), lock(Unlock, (20, 29))] {
        assert!(rig.poll(&mut locking.verb).is_none());
        let (header, restored, wait) = asked(&rig);
        assert_eq!((restored, wait), (right, None));
        says(&rig, &header, FileLockState::Granted);
    }
    assert_eq!(rig.poll(&mut locking.verb), Some(Err(Errno::EINTR)));
    assert_eq!(rig.client.file_locks_held(), 1);
}

#[test]
fn a_lock_that_becomes_weaker_is_not_crossed_by_a_signal() {
    let rig = Rig::mounted();
    let (handle, _) = open(&rig);
    take(&rig, handle, all(Write));
    let client = rig.client.clone();
    let late =
        rig.now(async move { client.set_file_lock(handle, all(Read), true, || false).await });
    assert_eq!(late, Err(Errno::EINTR));
    assert!(rig.is_silent(), "others could come in at once");
    let mut locking = Locking::start(&rig, handle, all(Read), true);
    let (header, ..) = asked(&rig);
    locking.signal();
    assert!(rig.poll(&mut locking.verb).is_none());
    says(&rig, &header, FileLockState::Granted);
    assert_eq!(rig.poll(&mut locking.verb), Some(Ok(())), "the program was to be told before");
    assert!(rig.is_silent());
    // One that grows as well: what became weaker stays so, rather than be asked for in vain.
    take(&rig, handle, all(Unlock));
    take(&rig, handle, lock(Write, (10, 19)));
    let mut locking = Locking::start(&rig, handle, lock(Read, (5, 29)), true);
    let (header, ..) = asked(&rig);
    locking.signal();
    assert!(rig.poll(&mut locking.verb).is_none());
    says(&rig, &header, FileLockState::Granted);
    for right in [lock(Unlock, (5, 9)), lock(Unlock, (20, 29))] {
        assert!(rig.poll(&mut locking.verb).is_none());
        let (header, restored, _) = asked(&rig);
        assert_eq!(restored, right);
        says(&rig, &header, FileLockState::Granted);
    }
    assert_eq!(rig.poll(&mut locking.verb), Some(Err(Errno::EINTR)));
    assert_eq!(rig.client.file_locks_held(), 1);
}

#[test]
fn one_owner_asks_for_one_thing_at_a_time_and_waits_hold_up_nobody() {
    let rig = Rig::mounted();
    let (handle, _) = open(&rig);
    let mut first = Locking::start(&rig, handle, lock(Write, (0, 0)), true);
    let (header, ..) = asked(&rig);
    let mut second = Locking::start(&rig, handle, lock(Write, (9, 9)), false);
    assert!(rig.is_silent());
    let other = FileLock { owner: 6, ..lock(Write, (9, 9)) };
    let mut third = Locking::start(&rig, handle, other, false);
    says(&rig, &asked(&rig).0, FileLockState::Busy);
    assert_eq!(rig.poll(&mut third.verb), Some(Err(Errno::EAGAIN)), "of another owner");
    says(&rig, &header, FileLockState::Queued);
    assert!(rig.poll(&mut first.verb).is_none());
    assert!(rig.poll(&mut second.verb).is_none());
    says(&rig, &asked(&rig).0, FileLockState::Granted);
    assert_eq!(rig.poll(&mut second.verb), Some(Ok(())), "the first waits, and nothing is asked");
}

#[test]
fn a_flock_that_is_changed_in_vain_is_gone() {
    let rig = Rig::mounted();
    let (handle, _) = open(&rig);
    let flock = |mode| FileLock { flock: true, ..all(mode) };
    for state in [FileLockState::Busy, FileLockState::Queued] {
        take(&rig, handle, flock(Read));
        assert_eq!(rig.client.file_locks_held(), 1);
        let wait = state == FileLockState::Queued;
        let mut locking = Locking::start(&rig, handle, flock(Write), wait);
        says(&rig, &asked(&rig).0, state);
        assert_eq!(rig.poll(&mut locking.verb).is_none(), wait);
        assert_eq!(rig.client.file_locks_held(), 0, "as flock(2) says");
    }
}

#[test]
fn a_close_gives_back_what_its_program_has_locked_and_asks_nothing_else() {
    let rig = Rig::mounted();
    let (handle, _) = open(&rig);
    let close = |owner| {
        let client = rig.client.clone();
        rig.begin(async move { client.closed_by(handle, owner).await })
    };
    take(&rig, handle, lock(Read, (10, 19)));
    take(&rig, handle, FileLock { flock: true, owner: 6, ..all(Write) });
    assert_eq!(rig.poll(&mut close(6)), Some(()), "that one is the open's");
    assert!(rig.is_silent());
    let mut closing = close(5);
    assert_eq!(rig.poll(&mut closing), None);
    let (header, what, _) = asked(&rig);
    assert_eq!(what, FileLock { pid: 0, ..all(Unlock) });
    // It goes on for as long as it takes; but who closes waits only for a moment.
    let mut slow = close(5);
    assert_eq!(rig.poll(&mut slow), None);
    rig.time_passes();
    assert_eq!((rig.poll(&mut closing), rig.poll(&mut slow)), (Some(()), Some(())));
    says(&rig, &header, FileLockState::Granted);
    says(&rig, &asked(&rig).0, FileLockState::Granted);
    assert_eq!(rig.client.file_locks_held(), 1);
    let client = rig.client.clone();
    let mut closing = rig.start(async move { client.close(handle).await });
    rig.answer(&rig.take(), reply(MdtReply::Done, &[]));
    assert_eq!(rig.poll(&mut closing), Some(Ok(())));
    assert_eq!(rig.client.file_locks_held(), 0);
}

#[test]
fn an_eviction_ends_waits_and_takes_all_locks() {
    let rig = Rig::mounted();
    let (handle, header) = open(&rig);
    take(&rig, handle, lock(Write, (0, 9)));
    let mut locking = Locking::start(&rig, handle, lock(Write, (20, 29)), true);
    says(&rig, &asked(&rig).0, FileLockState::Queued);
    assert!(rig.poll(&mut locking.verb).is_none());
    rig.evict(&header);
    assert_eq!(rig.poll(&mut locking.verb), Some(Err(Errno::EIO)));
    assert_eq!(rig.client.file_locks_held(), 0);
    let client = rig.client.clone();
    let again =
        rig.now(async move { client.set_file_lock(handle, all(Unlock), false, || true).await });
    assert_eq!(again, Err(Errno::EIO), "nobody writes under a lock that he has lost");
}

#[test]
fn what_the_mdt_refuses_is_told() {
    let rig = Rig::mounted();
    let (handle, _) = open(&rig);
    for errno in [Errno::EDEADLK, Errno::ENOLCK] {
        let mut locking = Locking::start(&rig, handle, all(Write), true);
        rig.answer(&asked(&rig).0, Reply { transno: 1, ..Reply::error(errno) });
        assert_eq!(rig.poll(&mut locking.verb), Some(Err(errno)));
        assert!(rig.is_silent());
    }
    let client = rig.client.clone();
    let mut test = rig.start(async move { client.test_file_lock(handle, all(Read)).await });
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::TestFileLock { .. }), "{request:?}");
    let holder = Some(all(Write));
    rig.answer(&header, reply(MdtReply::FileLock { state: FileLockState::Busy, holder }, &[]));
    assert_eq!(rig.poll(&mut test), Some(Ok(holder)));
}

//! Programs' locks: who is told what, what ends them, and what the MDT waits for.

use sateen_mdt::CALLBACK_LIMIT_NS;
use sateen_target::Outbox;
use sateen_types::{ClientId, Errno, Fid};
use sateen_wire::FileLockMode::{Read, Unlock, Write};
use sateen_wire::*;

use crate::harness::*;

fn lock(mode: FileLockMode) -> FileLock {
    FileLock { owner: 5, flock: false, mode, start: 0, end: FILE_LOCK_END_MAX, pid: 77 }
}

fn set(fid: Fid, open_id: OpenId, lock: FileLock, wait: Option<u64>) -> MdtRequest {
    MdtRequest::SetFileLock { fid, open_id, lock, wait: wait.map(|id| WaitId { id }) }
}

fn said(world: &mut World, client: ClientId, request: MdtRequest) -> FileLockState {
    let MdtReply::FileLock { state, .. } = world.ok(client, request) else { panic!() };
    state
}

/// A file that both have open.
fn shared() -> (World, Fid, [OpenId; 2]) {
    let mut world = World::with_clients(1);
    let fid = world.mknod(A, ROOT, "f");
    let opens = [A, B].map(|client| open(&mut world, client, fid));
    for fake in world.clients.values_mut() {
        fake.obliging = false;
        fake.callbacks.clear();
    }
    (world, fid, opens)
}

fn open(world: &mut World, client: ClientId, fid: Fid) -> OpenId {
    let flags = OpenFlags { write: true, truncate: false, exec: false };
    let open_id = world.open_id(client);
    let (cred, want) = (Cred::default(), Ibits::NONE);
    world.ok(client, MdtRequest::Open { fid, flags, open_id, cred, want });
    open_id
}

/// Whether a client was told that it is its turn.
fn is_told(world: &mut World, client: ClientId, fid: Fid, id: u64) -> bool {
    let told: Vec<_> = world.clients.get_mut(&client).unwrap().callbacks.drain(..).collect();
    told.contains(&Callback::FileLockTurn { fid, wait: WaitId { id } })
}

#[test]
fn who_waits_holds_no_request_and_is_told_until_he_asks() {
    let (mut world, fid, [a, b]) = shared();
    assert_eq!(said(&mut world, A, set(fid, a, lock(Write), None)), FileLockState::Granted);
    let busy = world.ok(B, set(fid, b, lock(Read), None));
    let holder = Some(FileLock { pid: 0, ..lock(Write) });
    assert_eq!(busy, MdtReply::FileLock { state: FileLockState::Busy, holder });
    let test = |open_id, owner| {
        let lock = FileLock { owner, ..lock(Read) };
        MdtRequest::TestFileLock { fid, open_id, lock }
    };
    assert_eq!(said(&mut world, B, test(b, 5)), FileLockState::Busy);
    let own = world.ok(A, test(a, 6));
    let holder = Some(lock(Write));
    assert_eq!(own, MdtReply::FileLock { state: FileLockState::Busy, holder }, "with its process");
    assert_eq!(said(&mut world, B, set(fid, b, lock(Read), Some(3))), FileLockState::Queued);
    assert!(!is_told(&mut world, B, fid, 3));
    assert_eq!(said(&mut world, A, set(fid, a, lock(Unlock), None)), FileLockState::Granted);
    assert!(is_told(&mut world, B, fid, 3));
    world.tick(500);
    assert!(!is_told(&mut world, B, fid, 3));
    for _ in 0..3 {
        world.tick(1_100);
    }
    assert!(is_told(&mut world, B, fid, 3), "again");
    assert_eq!(said(&mut world, A, set(fid, a, lock(Write), None)), FileLockState::Busy);
    assert_eq!(said(&mut world, B, set(fid, b, lock(Read), Some(3))), FileLockState::Granted);
    world.clients.get_mut(&B).unwrap().callbacks.clear();
    for _ in 0..3 {
        world.tick(1_100);
    }
    assert!(!is_told(&mut world, B, fid, 3));
}

#[test]
fn what_is_left_is_the_next_ones() {
    let (mut world, fid, [a, b]) = shared();
    said(&mut world, A, set(fid, a, lock(Write), None));
    said(&mut world, B, set(fid, b, lock(Write), Some(1)));
    let other = FileLock { owner: 6, ..lock(Write) };
    said(&mut world, B, set(fid, b, other, Some(2)));
    world.close(A, fid, a, None);
    assert!(is_told(&mut world, B, fid, 1), "a close lets go");
    for _ in 0..2 {
        let wait = WaitId { id: 1 };
        assert_eq!(world.ok(B, MdtRequest::LeaveFileLock { fid, wait }), MdtReply::Done);
    }
    assert!(is_told(&mut world, B, fid, 2));
}

#[test]
fn locks_need_an_open_and_a_range() {
    let (mut world, fid, [a, b]) = shared();
    let elsewhere = world.mknod(A, ROOT, "g");
    let (none, more) = (OpenId { id: 999 }, FILE_LOCK_END_MAX + 1);
    for (request, errno) in [
        (set(fid, none, lock(Write), None), Errno::EBADF),
        (set(elsewhere, a, lock(Write), None), Errno::EBADF),
        (set(fid, a, FileLock { start: 2, end: 1, ..lock(Write) }, None), Errno::EINVAL),
        (set(fid, a, FileLock { end: more, ..lock(Write) }, None), Errno::EINVAL),
    ] {
        assert_eq!(world.err(A, request), errno);
    }
    said(&mut world, B, set(fid, b, lock(Write), None));
    world.close(B, fid, b, None);
    assert_eq!(world.err(B, set(fid, b, lock(Write), None)), Errno::EBADF, "behind its close");
    assert_eq!(said(&mut world, A, set(fid, a, lock(Write), None)), FileLockState::Granted);
}

/// That may have been closed by a close that has overtaken this, or before a crash.
#[test]
fn what_is_given_back_through_a_closed_open_is_given_back() {
    let (mut world, fid, [a, b]) = shared();
    let none = OpenId { id: 999 };
    said(&mut world, A, set(fid, a, lock(Write), None));
    assert_eq!(said(&mut world, A, set(fid, none, lock(Unlock), None)), FileLockState::Granted);
    assert_eq!(said(&mut world, B, set(fid, b, lock(Write), None)), FileLockState::Granted);
    assert_eq!(said(&mut world, A, set(fid, none, lock(Unlock), None)), FileLockState::Granted);
    let busy = said(&mut world, A, set(fid, a, lock(Write), None));
    assert_eq!(busy, FileLockState::Busy, "that was not his");
    let range = FileLock { start: 2, end: 1, ..lock(Unlock) };
    assert_eq!(world.err(A, set(fid, none, range, None)), Errno::EINVAL);
}

#[test]
fn whoever_does_not_take_his_turn_is_thrown_out_and_the_next_is_asked() {
    let (mut world, fid, [a, b]) = shared();
    said(&mut world, A, set(fid, a, lock(Write), None));
    said(&mut world, B, set(fid, b, lock(Write), Some(1)));
    said(&mut world, A, set(fid, a, lock(Unlock), None));
    said(&mut world, A, set(fid, a, lock(Write), Some(1)));
    let seconds = CALLBACK_LIMIT_NS / 1_000_000_000;
    for _ in 0..seconds + 3 {
        world.tick(1_000);
    }
    assert!(!world.mdt.is_connected(ClientId(B.0)));
    assert!(is_told(&mut world, A, fid, 1));
    assert!(!world.mdt.file_locks().knows(B));
}

#[test]
fn what_a_lost_client_had_is_free_when_the_osts_refuse_it() {
    let (mut world, fid, [a, b]) = shared();
    said(&mut world, A, set(fid, a, lock(Write), None));
    assert_eq!(said(&mut world, B, set(fid, b, lock(Write), Some(8))), FileLockState::Queued);
    world.cut_off = true;
    let (now, mut out) = (world.now, Outbox::new());
    world.mdt.evict_client(now, A, &mut out);
    world.rest();
    assert!(!is_told(&mut world, B, fid, 8), "it may still write under it");
    assert_eq!(said(&mut world, B, set(fid, b, lock(Write), Some(8))), FileLockState::Queued);
    world.cut_off = false;
    world.tick(2_100);
    world.rest();
    assert!(is_told(&mut world, B, fid, 8));
    assert_eq!(said(&mut world, B, set(fid, b, lock(Write), Some(8))), FileLockState::Granted);
    // One that says goodbye lets go at once.
    let header = world.header(Call { client: B, slot: 900, seq: 1 });
    world.deliver(header, Request::Disconnect);
    assert!(world.mdt.file_locks().is_empty());
}

#[test]
fn a_run_gives_no_locks_before_those_of_the_last_are_refused() {
    let (mut world, fid, [a, _]) = shared();
    said(&mut world, A, set(fid, a, lock(Write), None));
    world.rest();
    world.cut_off = true;
    world.crash(world.frames.len());
    world.connect(B);
    let open_id = world.open_id(B);
    let flags = OpenFlags { write: false, truncate: false, exec: false };
    let (cred, want) = (Cred::default(), Ibits::NONE);
    world.ok(B, MdtRequest::Open { fid, flags, open_id, cred, want });
    let call = world.start(B, set(fid, open_id, lock(Write), None));
    let gives_back = set(fid, open_id, lock(Unlock), None);
    assert_eq!(said(&mut world, B, gives_back), FileLockState::Granted, "that waits for nobody");
    world.rest();
    assert_eq!(world.reply(call), None);
    world.cut_off = false;
    world.tick(2_100);
    world.rest();
    let Some(ReplyBody::Mdt(body)) = world.reply(call).map(|reply| reply.body) else { panic!() };
    assert_eq!(body, MdtReply::FileLock { state: FileLockState::Granted, holder: None });
}

#[test]
fn a_ring_of_waits_is_refused() {
    let (mut world, fid, [a, b]) = shared();
    let at = |start| FileLock { start, end: start, ..lock(Write) };
    said(&mut world, A, set(fid, a, at(0), None));
    said(&mut world, B, set(fid, b, at(1), None));
    assert_eq!(said(&mut world, A, set(fid, a, at(1), Some(1))), FileLockState::Queued);
    assert_eq!(world.err(B, set(fid, b, at(0), Some(1))), Errno::EDEADLK);
    assert_eq!(said(&mut world, B, set(fid, b, at(0), None)), FileLockState::Busy);
}

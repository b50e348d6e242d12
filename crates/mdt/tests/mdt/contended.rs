//! Files that two clients write at a time: when they share them, and what becomes of the size.

use sateen_types::{ClientId, Fid, Timespec};
use sateen_wire::*;

use crate::harness::*;

const DATA: Ibits = Ibits::DATA;
/// For so long a file stays shared: 2 s.
const SOON_NS: u64 = 2_000_000_000;

fn share(world: &mut World, client: ClientId, fid: Fid) -> Grant {
    let reply = world.call(client, MdtRequest::Enqueue { fid, mode: LockMode::Cw, bits: DATA });
    *reply.grants.iter().next().expect("a lock")
}

fn open_for_writing(world: &mut World, client: ClientId, fid: Fid) -> OpenId {
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let open_id = world.open_id(client);
    let cred = Cred::default();
    world.ok(client, MdtRequest::Open { fid, flags, open_id, cred, want: Ibits::NONE });
    open_id
}

/// Both have it open, and share it; their opens and locks.
fn shared(world: &mut World, for_ns: u64) -> (Fid, [(ClientId, OpenId, Grant); 2]) {
    world.mdt.set_contention(4, for_ns);
    let fid = world.mknod(A, ROOT, "f");
    let opens = [A, B].map(|client| open_for_writing(world, client, fid));
    for round in 0..4 {
        let client = if round % 2 == 0 { A } else { B };
        assert_eq!(share(world, client, fid).mode, LockMode::Pw, "round {round}");
    }
    let a = share(world, A, fid);
    assert_eq!(a.mode, LockMode::Cw, "they have met often enough");
    let b = share(world, B, fid);
    assert_eq!((b.mode, world.mdt.shared_locks()), (LockMode::Cw, 2));
    (fid, [(A, opens[0], a), (B, opens[1], b)])
}

#[test]
fn what_a_lock_tells_that_is_not_known_is_not_taken_for_another_s() {
    let mut world = World::with_clients(2);
    let (fid, [(_, _, a), (_, two, b)]) = shared(&mut world, SOON_NS);
    world.ok(
        A,
        MdtRequest::Cancel { fid, id: a.id, report: Some(report(5000, true)), more: vec![] },
    );
    world.ok(
        B,
        MdtRequest::Cancel { fid, id: b.id, report: Some(report(3000, true)), more: vec![] },
    );
    assert_eq!(world.stat(A, fid).size, 5000, "the furthest that was told");
    // As after a crash: B has all of it by then, and what he told as one of several comes again.
    world.tick(2_100);
    world.tick(100);
    world.rest();
    assert_eq!(share(&mut world, B, fid).mode, LockMode::Pw);
    world.ok(
        B,
        MdtRequest::Cancel { fid, id: b.id, report: Some(report(3000, true)), more: vec![] },
    );
    world.close(B, fid, two, None);
    assert_eq!(world.stat(A, fid).size, 5000);
}

#[test]
fn who_reads_what_others_write_shares_it_and_tells_the_atime_alone() {
    let mut world = World::with_clients(2);
    world.mdt.set_contention(4, SOON_NS);
    let fid = world.mknod(A, ROOT, "f");
    let open = open_for_writing(&mut world, A, fid);
    let look = |world: &mut World| {
        let reply = world.call(B, MdtRequest::Enqueue { fid, mode: LockMode::Cr, bits: DATA });
        *reply.grants.iter().next().expect("a lock")
    };
    // Who could share it counts as a writer does: A has it each time that B asks.
    for round in 0..3 {
        assert_eq!(share(&mut world, A, fid).mode, LockMode::Pw, "round {round}");
        assert_eq!(look(&mut world).mode, LockMode::Pr, "round {round}");
    }
    assert_eq!(share(&mut world, A, fid).mode, LockMode::Pw);
    let b = look(&mut world);
    assert_eq!(b.mode, LockMode::Cr, "they have met often enough");
    let a = share(&mut world, A, fid);
    assert_eq!((a.mode, world.mdt.lock_holders(fid).count()), (LockMode::Cw, 2));
    assert_eq!((world.mdt.shared_locks(), world.mdt.shared_read_locks()), (2, 1));
    // What a reader says of the size nobody looks at; the atime is taken from him.
    let atime = Timespec { sec: 1 << 40, nsec: 0 };
    let told = SizeReport { size: 77, blocks: 7, mtime: None, atime: Some(atime) };
    world.ok(B, MdtRequest::Cancel { fid, id: b.id, report: Some(told), more: vec![] });
    world.close(A, fid, open, Some(report(5000, true)));
    let attr = world.stat(A, fid);
    assert_eq!((attr.size, attr.atime), (5000, atime));
    // One of who has given it back is not.
    let late = SizeReport { atime: Some(Timespec { sec: 1 << 41, nsec: 0 }), ..told };
    world.ok(B, MdtRequest::ReportSize { fid, report: late, glimpsed: false, version: 0 });
    assert_eq!(world.stat(A, fid).atime, atime);
}

#[test]
fn the_furthest_that_any_of_them_tells_is_the_size() {
    let mut world = World::with_clients(2);
    let (fid, [(_, one, _), (_, two, b)]) = shared(&mut world, SOON_NS);
    for client in [A, B] {
        world.clients.get_mut(&client).unwrap().obliging = false;
    }
    // One tells with a close, and keeps the lock; the other when he is called back.
    world.close(A, fid, one, Some(report(5000, true)));
    let call = world.start(A, MdtRequest::GetAttr { fid, want: Ibits::META });
    assert_eq!(world.reply(call), None, "both have to give it back, the caller, too");
    let own = world.clients.get_mut(&A).unwrap().callbacks.pop_front();
    let Some(Callback::Blocking { id, .. }) = own else { panic!("{own:?}") };
    world.ok(A, MdtRequest::Cancel { fid, id, report: None, more: vec![] });
    assert_eq!(world.reply(call), None);
    world.ok(
        B,
        MdtRequest::Cancel { fid, id: b.id, report: Some(report(3000, true)), more: vec![] },
    );
    let ReplyBody::Mdt(MdtReply::Inode { attr }) = world.reply(call).unwrap().body else {
        panic!()
    };
    assert_eq!((attr.size, attr.size_stale), (5000, false));
    world.close(B, fid, two, None);
    let attr = world.stat(B, fid);
    assert_eq!((attr.size, attr.size_stale, attr.maybe_objects), (5000, false, true));
}

#[test]
fn a_lost_one_leaves_the_size_unknown_whatever_the_other_tells() {
    let mut world = World::with_clients(2);
    let (fid, [_, (_, two, _)]) = shared(&mut world, 60 * SOON_NS);
    let mut out = sateen_target::Outbox::new();
    world.mdt.evict_client(world.now, A, &mut out);
    world.tick(3_000);
    world.rest();
    world.close(B, fid, two, Some(report(3000, true)));
    let attr = world.stat(B, fid);
    assert!(attr.size_stale && attr.maybe_objects && attr.size == 3000);
}

#[test]
fn who_does_not_share_any_more_has_it_alone_after_a_while() {
    let mut world = World::with_clients(2);
    let (fid, [(_, _, a), _]) = shared(&mut world, SOON_NS);
    assert_eq!(share(&mut world, A, fid).id, a.id, "nothing is called back meanwhile");
    // Then all are asked, and oblige.
    world.tick(2_100);
    world.tick(100);
    world.rest();
    assert_eq!(world.mdt.lock_holders(fid).count(), 0);
    assert_eq!(share(&mut world, A, fid).mode, LockMode::Pw);
    // Another who asks soon brings it back at once.
    assert_eq!(share(&mut world, B, fid).mode, LockMode::Cw);
    // Never, if it is so set.
    world.mdt.set_contention(0, SOON_NS);
    world.tick(100);
    world.rest();
    assert_eq!(world.mdt.lock_holders(fid).count(), 0);
    for client in [A, B, A, B, A, B] {
        assert_eq!(share(&mut world, client, fid).mode, LockMode::Pw);
    }
}

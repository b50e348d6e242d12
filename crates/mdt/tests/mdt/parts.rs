//! Parts of files that two clients write in turns: when they are granted, when not any more, and that
//! neither losses nor a restart mix them up.

use sateen_ldlm::{PARTS_PER_FILE_MAX, Parts};
use sateen_types::{ClientId, Comb, Errno, Fid};
use sateen_wire::*;

use crate::harness::*;

const DATA: Ibits = Ibits::DATA;
/// For so long a file stays shared: 2 s.
const SOON_NS: u64 = 2_000_000_000;
const C: ClientId = ClientId(3);

fn world() -> World {
    let mut world = World::new(2);
    world.features = SPEAKS | GROUPS | COMBS;
    for client in [A, B, C] {
        world.connect(client);
    }
    world.settle();
    world.mdt.set_contention(4, SOON_NS);
    world.mdt.set_grants_parts(true);
    world
}

/// The records of one of ten writers.
fn comb(number: u64) -> Comb {
    Comb::new(1000 * number, 1000, 10_000).unwrap()
}

/// Asks for a part; what came of it.
fn ask(world: &mut World, client: ClientId, fid: Fid, comb: Comb) -> Grant {
    let reply = world.call(client, MdtRequest::EnqueuePart { fid, comb });
    let grant = *reply.grants.iter().next().expect("a lock");
    match reply.body {
        ReplyBody::Mdt(MdtReply::Parted { comb: told, .. }) => {
            assert_eq!((grant.mode, told), (LockMode::Part, comb));
        }
        ReplyBody::Mdt(MdtReply::Inode { .. }) => assert_ne!(grant.mode, LockMode::Part),
        body => panic!("{body:?}"),
    }
    grant
}

fn part(world: &mut World, client: ClientId, fid: Fid, number: u64) -> Grant {
    let grant = ask(world, client, fid, comb(number));
    assert_eq!(grant.mode, LockMode::Part);
    grant
}

fn enqueue(world: &mut World, client: ClientId, fid: Fid, mode: LockMode) -> Grant {
    let reply = world.call(client, MdtRequest::Enqueue { fid, mode, bits: DATA });
    *reply.grants.iter().next().expect("a lock")
}

fn open(world: &mut World, client: ClientId, fid: Fid) -> OpenId {
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let (open_id, cred) = (world.open_id(client), Cred::default());
    world.ok(client, MdtRequest::Open { fid, flags, open_id, cred, want: Ibits::NONE });
    open_id
}

/// A file that two have open and share, each under `Cw`.
fn contended(world: &mut World) -> (Fid, [OpenId; 2]) {
    let fid = world.mknod(A, ROOT, "f");
    let opens = [A, B].map(|client| open(world, client, fid));
    for client in [A, B, A, B, A, B] {
        enqueue(world, client, fid, LockMode::Cw);
    }
    assert_eq!(modes(world, fid), [LockMode::Cw, LockMode::Cw]);
    (fid, opens)
}

/// The modes of the locks on a file's data.
fn modes(world: &World, fid: Fid) -> Vec<LockMode> {
    let held = world.mdt.lock_holders(fid).filter(|held| held.bits.intersects(DATA));
    held.map(|held| held.mode).collect()
}

fn called(world: &mut World, client: ClientId) -> Option<LockId> {
    match world.clients.get_mut(&client).unwrap().callbacks.pop_front()? {
        Callback::Blocking { id, .. } => Some(id),
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_writes_a_contended_file_at_a_distance_keeps_his_records_whoever_else_writes_his() {
    let mut world = world();
    let (fid, [one, two]) = contended(&mut world);
    let a = part(&mut world, A, fid, 0);
    assert_eq!(modes(&world, fid), [LockMode::Part], "shared locks have gone for it");
    for client in [A, B, C] {
        world.clients.get_mut(&client).unwrap().obliging = false;
    }
    let b = part(&mut world, B, fid, 1);
    part(&mut world, C, fid, 2);
    assert_eq!(part(&mut world, A, fid, 0).id, a.id);
    // They stay when the file is not contended any more, and others may have more of them.
    world.tick(2_100);
    world.tick(2_100);
    assert_eq!(modes(&world, fid).len(), 3);
    part(&mut world, C, fid, 3);
    assert!([A, B, C].iter().all(|client| called(&mut world, *client).is_none()));
    assert_eq!(world.mdt.parts(), Parts { granted: 5, ..Parts::default() });
    // Who tells what he has written tells it as one of several, and no less is true after it.
    let tell = |size| MdtRequest::ReportSize {
        fid,
        report: report(size, true),
        glimpsed: false,
        version: 0,
    };
    world.ok(A, tell(5000));
    world.ok(B, tell(2000));
    // Who looks has all of them given back, but that breaks nothing.
    let look = world.start(C, MdtRequest::GetAttr { fid, want: Ibits::META });
    for client in [A, B, C, C] {
        let id = called(&mut world, client).expect("its part, or a second one");
        assert_eq!(world.reply(look), None);
        let told = if client == B { Some(report(7000, true)) } else { None };
        world.ok(client, MdtRequest::Cancel { fid, id, report: told, more: vec![] });
    }
    assert_ne!(a.id, b.id);
    let ReplyBody::Mdt(MdtReply::Inode { attr }) = world.reply(look).unwrap().body else {
        panic!()
    };
    assert_eq!((attr.size, attr.size_stale), (7000, false));
    assert_eq!(world.mdt.parts(), Parts { granted: 5, ..Parts::default() });
    world.close(A, fid, one, None);
    world.close(B, fid, two, None);
    assert_eq!(world.stat(B, fid).size, 7000);
}

#[test]
fn who_has_the_file_to_himself_gets_all_of_it() {
    let mut world = world();
    let fid = world.mknod(A, ROOT, "f");
    open(&mut world, A, fid);
    let a = ask(&mut world, A, fid, comb(0));
    assert_eq!(a.mode, LockMode::Pw);
    assert_eq!(ask(&mut world, A, fid, comb(1)).id, a.id);
    // The next meets him, and is one of those who make it contended.
    assert_eq!(ask(&mut world, B, fid, comb(1)).mode, LockMode::Pw);
    for client in [A, B] {
        assert_eq!(ask(&mut world, client, fid, comb(0)).mode, LockMode::Pw);
    }
    assert_eq!(ask(&mut world, A, fid, comb(0)).mode, LockMode::Part);
    assert_eq!(ask(&mut world, B, fid, comb(1)).mode, LockMode::Part);
}

#[test]
fn nobody_gets_one_if_that_is_so_set_and_then_those_that_there_are_go() {
    let mut world = world();
    let (fid, _) = contended(&mut world);
    part(&mut world, A, fid, 0);
    world.mdt.set_grants_parts(false);
    let request = MdtRequest::EnqueuePart { fid, comb: comb(1) };
    assert_eq!(world.err(B, request), Errno::EOPNOTSUPP);
    assert_eq!(modes(&world, fid), [LockMode::Part], "who has asked in vain has done nothing");
    assert_eq!(enqueue(&mut world, B, fid, LockMode::Cw).mode, LockMode::Cw);
    assert_eq!(modes(&world, fid), [LockMode::Cw]);
    let fid = world.mknod(A, ROOT, "g");
    // And none of a file that is never shared.
    world.mdt.set_grants_parts(true);
    world.mdt.set_contention(0, SOON_NS);
    for client in [A, B, A, B, A, B] {
        assert_eq!(ask(&mut world, client, fid, comb(client.0)).mode, LockMode::Pw);
    }
}

#[test]
fn a_file_whose_parts_do_not_last_has_none_for_a_while_and_is_shared() {
    let mut world = world();
    let (fid, _) = contended(&mut world);
    for round in 0..4 {
        part(&mut world, A, fid, 0);
        part(&mut world, B, fid, 1);
        // More than a part, of one who has one himself.
        let grant = enqueue(&mut world, B, fid, LockMode::Cw);
        assert_eq!((grant.mode, modes(&world, fid).len()), (LockMode::Cw, 1), "round {round}");
    }
    assert_eq!(world.mdt.parts().broken, 4);
    assert_eq!(ask(&mut world, A, fid, comb(0)).mode, LockMode::Cw);
    assert_eq!(ask(&mut world, B, fid, comb(1)).mode, LockMode::Cw);
    world.tick(2_100);
    world.tick(100);
    world.rest();
    for client in [A, B] {
        enqueue(&mut world, client, fid, LockMode::Cw);
    }
    part(&mut world, A, fid, 0);
    // One that meets another's is a break, too.
    for client in [B, C] {
        part(&mut world, client, fid, 0);
    }
    assert_eq!(world.mdt.parts().broken, 6);
}

#[test]
fn what_is_no_file_is_refused_and_so_is_who_does_not_know_of_them() {
    let mut world = world();
    let fid = world.mknod(A, ROOT, "f");
    let comb = comb(0);
    assert_eq!(world.err(A, MdtRequest::EnqueuePart { fid: ROOT, comb }), Errno::EINVAL);
    let bare = MdtRequest::Enqueue { fid, mode: LockMode::Part, bits: DATA };
    assert_eq!(world.err(A, bare), Errno::EINVAL);
    assert!(matches!(
        world.ok(B, MdtRequest::EnqueueGroup { fid, gid: 7 }),
        MdtReply::Inode { .. }
    ));
    assert_eq!(world.ok(A, MdtRequest::EnqueuePart { fid, comb }), MdtReply::Grouped);
    let mut old = World::with_clients(1);
    let fid = old.mknod(A, ROOT, "f");
    assert_eq!(old.err(A, MdtRequest::EnqueuePart { fid, comb }), Errno::EINVAL);
}

#[test]
fn a_file_with_parts_is_not_moved() {
    let mut world = world();
    let (fid, _) = contended(&mut world);
    part(&mut world, A, fid, 0);
    let MdtReply::Striped { layout: Some(layout), .. } = world.ok(A, MdtRequest::GetStripe { fid })
    else {
        panic!()
    };
    let ost = layout.components[0].osts[0];
    let refused = MdtRequest::NoRoom { fid, ost, unwritten: true };
    let MdtReply::Opened { layout: Some(now), .. } = world.ok(A, refused) else { panic!() };
    assert_eq!(now.generation, layout.generation);
}

#[test]
fn a_lost_one_holds_up_those_alone_who_need_its_records() {
    let mut world = world();
    let (fid, _) = contended(&mut world);
    part(&mut world, A, fid, 0);
    part(&mut world, B, fid, 1);
    // The OSTs cannot be told for now.
    world.gone.extend([0, 1]);
    let mut out = sateen_target::Outbox::new();
    world.mdt.evict_client(world.now, A, &mut out);
    world.tick(1_000);
    part(&mut world, C, fid, 2);
    let [same, whole] = [
        MdtRequest::EnqueuePart { fid, comb: comb(0) },
        MdtRequest::Enqueue { fid, mode: LockMode::Pr, bits: DATA },
    ]
    .map(|request| world.start(C, request));
    world.tick(1_000);
    world.tick(1_000);
    assert!(world.reply(same).is_none() && world.reply(whole).is_none());
    assert!(modes(&world, fid).len() >= 2);
    world.gone.clear();
    for _ in 0..20 {
        world.tick(500);
        world.rest();
    }
    assert!(world.reply(same).is_some() && world.reply(whole).is_some());
}

/// Tells the rest of what a client has, which is nothing.
fn last() -> MdtRequest {
    let (locks, opens, seqs, file_locks) = (vec![], vec![], vec![], vec![]);
    MdtRequest::Reclaim { locks, opens, seqs, file_locks, last: true }
}

#[test]
fn a_restart_leaves_each_what_he_has() {
    let mut world = world();
    let (fid, _) = contended(&mut world);
    let held = [(A, 0), (B, 1)].map(|(client, number)| {
        let id = part(&mut world, client, fid, number).id;
        (client, HeldPart { fid, id, comb: comb(number) })
    });
    world.stop();
    world.restart();
    world.mdt.set_grants_parts(true);
    for (client, part) in held {
        assert!(world.reconnect(client).is_some());
        world.ok(client, MdtRequest::ReclaimParts { parts: vec![part] });
        world.ok(client, MdtRequest::ReclaimParts { parts: vec![part] });
    }
    assert!(world.reconnect(C).is_some());
    let calls = [A, B, C].map(|client| world.start(client, last()));
    world.settle();
    assert!(calls.iter().all(|call| world.reply(*call).is_some_and(|reply| reply.error.is_none())));
    assert_eq!(modes(&world, fid), [LockMode::Part, LockMode::Part]);
    part(&mut world, C, fid, 2);
    for (client, held) in held {
        assert_eq!(called(&mut world, client), None);
        let report = Some(report(1000 * client.0, true));
        world.ok(client, MdtRequest::Cancel { fid, id: held.id, report, more: vec![] });
    }
    assert_eq!(world.stat(C, fid).size, 2000);
}

#[test]
fn who_claims_what_he_cannot_have_is_refused() {
    let mut world = world();
    let (fid, _) = contended(&mut world);
    let (a, b) = (part(&mut world, A, fid, 0), part(&mut world, B, fid, 1));
    world.stop();
    world.restart();
    for client in [A, B, C] {
        assert!(world.reconnect(client).is_some());
    }
    let claim = |id, number| HeldPart { fid, id, comb: comb(number) };
    world.ok(A, MdtRequest::ReclaimParts { parts: vec![claim(a.id, 0)] });
    let wrong = MdtRequest::ReclaimParts { parts: vec![claim(b.id, 0)] };
    assert_eq!(world.err(B, wrong), Errno::ESTALE);
    let locks = vec![HeldLock { fid, id: LockId(77), mode: LockMode::Part, bits: DATA }];
    let (opens, seqs, file_locks) = (vec![], vec![], vec![]);
    let bare = MdtRequest::Reclaim { locks, opens, seqs, file_locks, last: true };
    assert_eq!(world.err(C, bare), Errno::ESTALE);
    let call = world.start(A, last());
    for _ in 0..10 {
        world.tick(500);
        world.rest();
    }
    assert!(world.reply(call).is_some_and(|reply| reply.error.is_none()));
    assert_eq!(modes(&world, fid), [LockMode::Part]);
}

#[test]
fn nobody_waits_for_a_part_of_what_an_ost_out_of_use_has_to_cut() {
    let mut world = world();
    let (fid, _) = contended(&mut world);
    part(&mut world, A, fid, 0);
    world.gone.extend([0, 1]);
    let set = SetAttr { size: Some(1), ..SetAttr::default() };
    let cut = world.start(A, MdtRequest::SetAttr { fid, set, cred: Cred::default() });
    world.rest();
    let request = MdtRequest::EnqueuePart { fid, comb: comb(1) };
    let waits = world.start(B, request.clone());
    world.rest();
    assert!([cut, waits].iter().all(|call| world.reply(*call).is_none()));
    for ost in [0, 1] {
        world.mdt.set_ost_active(ost, false);
    }
    world.tick(5);
    assert_eq!(world.reply(cut).map(|reply| reply.error), Some(None));
    assert_eq!(world.reply(waits).map(|reply| reply.error), Some(Some(Errno::EIO)));
    assert_eq!(world.err(B, request), Errno::EIO);
    world.gone.clear();
    for ost in [0, 1] {
        world.mdt.set_ost_active(ost, true);
    }
    for _ in 0..3 {
        world.tick(2_100);
        world.rest();
    }
    assert!(ask(&mut world, B, fid, comb(1)).bits.intersects(DATA));
}

#[test]
fn who_asks_for_one_too_many_gets_none_and_breaks_the_others() {
    let mut world = world();
    let (fid, _) = contended(&mut world);
    let most = u64::from(PARTS_PER_FILE_MAX);
    let comb = |number| Comb::new(10 * number, 10, 10 * (most + 2)).unwrap();
    for number in 0..most {
        assert_eq!(ask(&mut world, A, fid, comb(number)).mode, LockMode::Part);
    }
    let there_were = |granted, broken| Parts { granted, broken, cut: 0 };
    let are_held = modes(&world, fid).len() as u64;
    assert_eq!((world.mdt.parts(), are_held), (there_were(most, 0), most));
    world.clients.get_mut(&A).unwrap().obliging = false;
    let waits = world.start(B, MdtRequest::EnqueuePart { fid, comb: comb(most) });
    assert_eq!(world.mdt.parts(), there_were(most, 1));
    while world.reply(waits).is_none() {
        let id = called(&mut world, A).expect("all of its parts are in the way");
        world.ok(A, MdtRequest::Cancel { fid, id, report: None, more: vec![] });
    }
    let grants = world.reply(waits).unwrap().grants;
    assert_eq!(grants.iter().map(|grant| grant.mode).collect::<Vec<_>>(), [LockMode::Cw]);
    assert_eq!(modes(&world, fid), [LockMode::Cw]);
    assert_eq!(world.mdt.parts(), there_were(most, 1), "it was one break");
}

/// A range of a file, in KiB: what is granted of it.
fn range(world: &mut World, client: ClientId, fid: Fid, (from, len): (u64, u64)) -> (u64, u64) {
    let comb = Comb::range(from << 10, len << 10).unwrap();
    let reply = world.call(client, MdtRequest::EnqueuePart { fid, comb });
    match reply.body {
        ReplyBody::Mdt(MdtReply::Parted { comb, .. }) => {
            assert!(comb.is_range());
            (comb.start() >> 10, comb.record_len() >> 10)
        }
        body => panic!("{body:?}"),
    }
}

#[test]
fn a_range_is_cut_where_the_part_of_another_begins() {
    let mut world = world();
    let (fid, _) = contended(&mut world);
    // The first has all that he wants, and gives it back to one who begins within.
    assert_eq!(range(&mut world, A, fid, (0, 16_384)), (0, 16_384));
    let before = world.mdt.parts();
    assert_eq!(range(&mut world, B, fid, (8192, 16_384)), (8192, 16_384));
    assert_eq!(world.mdt.parts().broken, before.broken + 1);
    // From then on nobody takes anything from anybody.
    for client in [A, B, C] {
        world.clients.get_mut(&client).unwrap().obliging = false;
    }
    assert_eq!(range(&mut world, A, fid, (100, 16_384)), (100, 8092));
    assert_eq!(range(&mut world, C, fid, (30_000, 1 << 29)), (30_000, 1 << 29));
    assert_eq!(range(&mut world, B, fid, (24_576, 16_384)), (24_576, 5424));
    // His own are in nobody's way.
    assert_eq!(range(&mut world, B, fid, (10_000, 16_384)), (10_000, 16_384));
    let Parts { granted, broken, cut } = world.mdt.parts();
    assert_eq!((granted - before.granted, broken - before.broken, cut), (5, 1, 2));
    assert!([A, C].iter().all(|client| called(&mut world, *client).is_none()));
}

#[test]
fn a_range_is_cut_for_records_that_are_written_in_turns() {
    let mut world = world();
    let (fid, _) = contended(&mut world);
    let in_turns = Comb::new(1 << 20, 1 << 20, 8 << 20).unwrap();
    assert_eq!(ask(&mut world, A, fid, in_turns).mode, LockMode::Part);
    for client in [A, B] {
        world.clients.get_mut(&client).unwrap().obliging = false;
    }
    assert_eq!(range(&mut world, B, fid, (3 << 10, 16 << 10)), (3 << 10, 6 << 10));
    assert!(called(&mut world, A).is_none());
}

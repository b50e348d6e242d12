//! Two clients and their locks.

use sateen_types::{ClientId, Errno, Fid};
use sateen_wire::*;

use crate::fsck;
use crate::harness::*;

fn getattr(fid: Fid, want: Ibits) -> MdtRequest {
    MdtRequest::GetAttr { fid, want }
}

fn grant(reply: &Reply) -> Grant {
    *reply.grants.iter().next().expect("a lock")
}

fn deaf(world: &mut World, client: ClientId) {
    world.clients.get_mut(&client).unwrap().obliging = false;
}

fn callback(world: &mut World, client: ClientId) -> Option<Callback> {
    world.clients.get_mut(&client).unwrap().callbacks.pop_front()
}

#[test]
fn a_change_waits_until_the_other_client_has_let_go() {
    for cold in [false, true] {
        let mut world = World::with_clients(1);
        world.cold = cold;
        deaf(&mut world, B);
        let file = world.mknod(A, ROOT, "f");
        let held = grant(&world.call(B, getattr(ROOT, Ibits::META)));
        let request = world.create_request(A, ROOT, "g", 0o100_644);
        let call = world.start(A, request);
        assert_eq!(callback(&mut world, B), Some(Callback::Blocking { fid: ROOT, id: held.id }));
        assert_eq!(world.reply(call), None);
        // What does not need the directory changed goes on; nobody gets the lock now.
        assert_eq!(world.stat(B, file).nlink, 1);
        assert!(world.call(B, getattr(ROOT, Ibits::XATTR)).grants.iter().next().is_some());
        world.ok(B, MdtRequest::Cancel { fid: ROOT, id: held.id, report: None, more: vec![] });
        world.rest();
        assert!(world.reply(call).is_some_and(|reply| reply.error.is_none()));
        assert!(!world.call(B, getattr(ROOT, Ibits::META)).grants.is_empty());
    }
}

#[test]
fn a_reply_after_contention_brings_no_lock() {
    let mut world = World::with_clients(1);
    let (reply, _) = world.creat(A, ROOT, "f", Ibits::DATA);
    let ReplyBody::Mdt(MdtReply::Created { attr, .. }) = reply.body else { panic!() };
    // A is called back and obliges; B's answer is right, but not to be cached.
    let reply = world.call(B, getattr(attr.fid, Ibits::META.union(Ibits::DATA)));
    assert!(reply.grants.is_empty());
    let reply = world.call(B, getattr(attr.fid, Ibits::META.union(Ibits::DATA)));
    assert_eq!(reply.grants.iter().count(), 2);
}

#[test]
fn what_a_request_makes_is_locked_whomever_it_met_in_the_directory() {
    let mut world = World::with_clients(1);
    let both = Ibits::META.union(Ibits::DATA);
    assert!(!world.call(B, getattr(ROOT, Ibits::META)).grants.is_empty());
    // B is called back and obliges; of the new file nobody else has ever heard.
    let (reply, _) = world.creat(A, ROOT, "f", both);
    let held: Vec<Grant> = reply.grants.iter().copied().collect();
    assert_eq!(
        held.iter().map(|grant| grant.mode).collect::<Vec<_>>(),
        [LockMode::Pr, LockMode::Pw]
    );
    assert!(held.iter().all(|grant| grant.fid != ROOT));
    assert_eq!(world.mdt.lock_holders(held[0].fid).count(), 2);
}

#[test]
fn the_holders_size_comes_with_the_cancel() {
    let mut world = World::with_clients(1);
    deaf(&mut world, A);
    let (reply, id) = world.creat(A, ROOT, "f", Ibits::DATA);
    let held = grant(&reply);
    let fid = held.fid;
    let listed = world.start(
        B,
        MdtRequest::ReadDir {
            fid: ROOT,
            after: sateen_types::DirCookie::START,
            count: 10,
            plus: true,
        },
    );
    let ReplyBody::Mdt(MdtReply::Entries { entries, .. }) = world.reply(listed).unwrap().body
    else {
        panic!()
    };
    assert_eq!(entries[0].attr, None, "A knows better");
    let call = world.start(B, MdtRequest::Enqueue { fid, mode: LockMode::Pr, bits: Ibits::DATA });
    assert_eq!(callback(&mut world, A), Some(Callback::Blocking { fid, id: held.id }));
    let cancel =
        MdtRequest::Cancel { fid, id: held.id, report: Some(report(777, true)), more: vec![] };
    world.ok(A, cancel);
    let ReplyBody::Mdt(MdtReply::Inode { attr }) = world.reply(call).unwrap().body else {
        panic!()
    };
    assert_eq!((attr.size, attr.size_stale), (777, false));
    // A late report from who holds nothing is not believed.
    world.close(A, fid, id, Some(report(5, true)));
    let attr = world.stat(B, fid);
    assert_eq!((attr.size, attr.size_stale, attr.maybe_objects), (777, false, true));
}

#[test]
fn writers_take_turns() {
    let mut world = World::with_clients(1);
    let fid = world.mknod(A, ROOT, "f");
    let lock = MdtRequest::Enqueue { fid, mode: LockMode::Pw, bits: Ibits::DATA };
    for round in 0..6 {
        let client = if round % 2 == 0 { A } else { B };
        assert_eq!(grant(&world.call(client, lock.clone())).mode, LockMode::Pw);
        assert_eq!(world.mdt.lock_holders(fid).count(), 1);
    }
}

#[test]
fn who_does_not_answer_is_evicted_everywhere_before_others_get_his_data() {
    let mut world = World::with_clients(2);
    deaf(&mut world, A);
    let (reply, _) = world.creat(A, ROOT, "f", Ibits::META.union(Ibits::DATA));
    let fid = grant(&reply).fid;
    let lock = MdtRequest::Enqueue { fid, mode: LockMode::Pw, bits: Ibits::DATA };
    let call = world.start(B, lock);
    for _ in 0..19 {
        world.tick(1_000);
    }
    assert!(world.clients[&A].callbacks.len() > 10, "asked again and again");
    assert_eq!(world.reply(call), None);
    world.cut_off = true;
    world.tick(1_100);
    assert_eq!(world.clients[&A].callbacks.back(), Some(&Callback::Evicted));
    assert_eq!(world.reply(call), None, "A could still be writing");
    world.cut_off = false;
    world.tick(2_100);
    world.rest();
    assert_eq!(world.osts[&0].fenced, [A]);
    assert!(world.reply(call).is_some_and(|reply| reply.error.is_none()));
    let attr = world.stat(B, fid);
    assert!(attr.size_stale, "nobody knows the size");
    assert_eq!(world.err(A, getattr(fid, Ibits::NONE)), Errno::ESTALE);
    // Its objects are destroyed with tombstones.
    world.ok(B, World::unlink_request(ROOT, "f", false));
    world.rest();
    assert!(!world.osts[&0].tombstones.is_empty());
    fsck::check(&fsck::image(&world.frames));
}

#[test]
fn a_glimpse_settles_the_size_unless_it_is_old() {
    let mut world = World::with_clients(1);
    let (reply, _) = world.creat(A, ROOT, "f", Ibits::DATA);
    let fid = grant(&reply).fid;
    let now = world.now;
    let mut out = sateen_target::Outbox::new();
    world.mdt.evict_client(now, A, &mut out);
    world.tick(5_000);
    world.rest();
    let attr = world.stat(B, fid);
    assert!(attr.size_stale);
    let glimpse = |size, version| MdtRequest::ReportSize {
        fid,
        report: report(size, false),
        glimpsed: true,
        version,
    };
    // Once to learn that A cannot write any more.
    world.ok(B, glimpse(2, attr.version));
    let attr = world.stat(B, fid);
    world.ok(B, glimpse(1, attr.version - 1));
    assert!(world.stat(B, fid).size_stale, "an old glimpse");
    world.ok(B, glimpse(4096, attr.version));
    let attr = world.stat(B, fid);
    assert_eq!((attr.size, attr.size_stale), (4096, false));
}

#[test]
fn a_disconnect_frees_everything() {
    let mut world = World::with_clients(1);
    let (reply, _) = world.creat(A, ROOT, "f", Ibits::META.union(Ibits::DATA));
    let fid = grant(&reply).fid;
    world.ok(B, World::unlink_request(ROOT, "f", false));
    deaf(&mut world, A);
    let wanted = world.start(B, getattr(fid, Ibits::META));
    assert_eq!(world.reply(wanted), None, "behind A's lock");
    let slot = world.clients[&A].seqs.keys().max().unwrap() + 1;
    let header = world.header(Call { client: A, slot, seq: 1 });
    world.deliver(header, Request::Disconnect);
    world.rest();
    assert_eq!(world.mdt.lock_holders(fid).count(), 0);
    let image = fsck::image(&world.frames);
    fsck::check(&image);
    assert_eq!(fsck::inodes(&image).len(), 1, "the orphan went with its last open");
    assert_eq!(fsck::of(&image, b'G').count(), 1, "B's sequence");
    assert!(world.reply(wanted).is_some());
}

#[test]
fn negative_lookups_bring_the_directorys_lock() {
    let mut world = World::with_clients(1);
    let request = MdtRequest::Lookup {
        parent: ROOT,
        name: name("nothing"),
        want_parent: Ibits::UPDATE,
        want: Ibits::META,
    };
    let reply = world.call(A, request);
    assert_eq!(reply.error, Some(Errno::ENOENT));
    assert_eq!((grant(&reply).fid, grant(&reply).bits), (ROOT, Ibits::UPDATE));
}

#[test]
fn a_failed_disk_is_told_to_everybody_who_waits() {
    use sateen_target::{Effect, Outbox, Service};
    let mut world = World::with_clients(1);
    deaf(&mut world, B);
    world.call(B, getattr(ROOT, Ibits::META));
    let request = world.create_request(A, ROOT, "g", 0o100_644);
    let call = world.start(A, request);
    let mut out = Outbox::new();
    world.mdt.on_poisoned(world.now, &mut out);
    let told: Vec<_> = out.drain().collect();
    assert!(told.iter().any(|effect| matches!(
        effect,
        Effect::Send(Message { header, body: Body::Reply(reply), .. })
            if header.slot == call.slot && header.client == A && reply.error == Some(Errno::EIO)
    )));
}

#[test]
fn a_lost_holder_leaves_the_size_unknown_though_others_close_well() {
    let mut world = World::with_clients(1);
    let (reply, id) = world.creat(A, ROOT, "f", Ibits::DATA);
    let fid = grant(&reply).fid;
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let open_id = world.open_id(B);
    let cred = Cred::default();
    world.ok(B, MdtRequest::Open { fid, flags, open_id, cred, want: Ibits::NONE });
    world.ok(B, MdtRequest::Enqueue { fid, mode: LockMode::Pw, bits: Ibits::DATA });
    let mut out = sateen_target::Outbox::new();
    world.mdt.evict_client(world.now, B, &mut out);
    world.tick(3_000);
    world.rest();
    world.close(A, fid, id, None);
    let attr = world.stat(A, fid);
    assert!(attr.size_stale && attr.maybe_objects);
}

/// A writes and cannot give the lock back; B asks for the size. The file lies on OST 0 of two.
fn writer_and_reader(world: &mut World) -> (Fid, Call) {
    deaf(world, A);
    let open_id = world.open_id(A);
    let mut request = world.create_request(A, ROOT, "f", 0o100_644);
    let MdtRequest::Create { open, open_id: id, want, policy, .. } = &mut request else { panic!() };
    *open = Some(OpenFlags { write: true, ..OpenFlags::default() });
    (*id, *want) = (open_id, Ibits::DATA);
    *policy = Some(sateen_types::StripePolicy {
        stripe_count: 1,
        stripe_size: 0,
        stripe_offset: Some(0),
    });
    let fid = grant(&world.call(A, request)).fid;
    world.rest();
    world.checkpoint();
    let call = world.start(B, MdtRequest::Enqueue { fid, mode: LockMode::Pr, bits: Ibits::DATA });
    (fid, call)
}

fn seconds(world: &mut World, seconds: u64) {
    for _ in 0..seconds {
        world.tick(1_000);
    }
}

fn is_evicted(world: &World, client: ClientId) -> bool {
    world.clients[&client].callbacks.contains(&Callback::Evicted)
}

#[test]
fn who_waits_for_an_ost_is_not_evicted() {
    for cold in [false, true] {
        let mut world = World::with_clients(2);
        world.cold = cold;
        let (_, call) = writer_and_reader(&mut world);
        world.gone.insert(0);
        seconds(&mut world, 120);
        assert!(!is_evicted(&world, A), "nobody could give that back");
        assert_eq!(world.reply(call), None);
        world.gone.clear();
        seconds(&mut world, 18);
        assert!(!is_evicted(&world, A), "all of the time, from when the OST is back");
        // He does not do it then, either.
        seconds(&mut world, 6);
        assert!(is_evicted(&world, A));
        world.rest();
        assert!(world.reply(call).is_some());
    }
}

#[test]
fn who_writes_out_slowly_is_not_evicted_as_long_as_he_goes_on() {
    for cold in [false, true] {
        let mut world = World::with_clients(1);
        world.cold = cold;
        let (fid, call) = writer_and_reader(&mut world);
        let Some(Callback::Blocking { id, .. }) = callback(&mut world, A) else { panic!() };
        for second in 1..=60 {
            seconds(&mut world, 1);
            if second % 15 == 0 {
                world.ok(A, MdtRequest::GoesOn { fid, id, done: second << 20 });
            }
        }
        assert!(!is_evicted(&world, A) && world.reply(call).is_none());
        // The same again is nothing new; nor is what others say.
        seconds(&mut world, 10);
        world.ok(A, MdtRequest::GoesOn { fid, id, done: 60 << 20 });
        world.ok(B, MdtRequest::GoesOn { fid, id, done: 90 << 20 });
        seconds(&mut world, 8);
        assert!(!is_evicted(&world, A));
        seconds(&mut world, 4);
        assert!(is_evicted(&world, A), "he does nothing any more");
        world.rest();
        assert!(world.reply(call).is_some());
    }
}

#[test]
fn who_has_no_ost_to_wait_for_is_evicted_while_one_is_away() {
    // Another than the file's is away; the file's, but it is out of use; a lock that no data
    // stands under.
    for case in 0..3 {
        let mut world = World::with_clients(2);
        let (_, mut call) = writer_and_reader(&mut world);
        world.gone.insert(u32::from(case == 0));
        match case {
            1 => {
                world.gone.insert(0);
                world.mdt.set_ost_active(0, false);
            }
            2 => {
                world.clients.get_mut(&A).unwrap().callbacks.clear();
                world.call(A, getattr(ROOT, Ibits::META));
                let request = world.create_request(B, ROOT, "g", 0o100_644);
                call = world.start(B, request);
            }
            _ => {}
        }
        seconds(&mut world, 22);
        assert!(is_evicted(&world, A), "case {case}");
        world.gone.clear();
        seconds(&mut world, 4);
        world.rest();
        assert!(world.reply(call).is_some(), "case {case}");
    }
}

#[test]
fn a_crowded_table_asks_the_oldest_back_and_evicts_who_keeps_them() {
    let mut world = World::with_clients(1);
    let files: Vec<Fid> = (0..40).map(|n| world.mknod(A, ROOT, &format!("f{n}"))).collect();
    let has = |world: &World, client| {
        let own = |fid: &&Fid| world.mdt.lock_holders(**fid).any(|held| held.client == client);
        files.iter().filter(own).count()
    };
    world.tick(10);
    world.rest();
    let a_has = has(&world, A);
    // Room for twenty locks.
    world.mdt.set_lock_bytes(40 * sateen_ldlm::LOCK_BYTES, 20 * sateen_ldlm::LOCK_BYTES);
    assert_eq!(world.mdt.locks().1.limit, 40);
    for fid in &files {
        world.call(B, getattr(*fid, Ibits::META));
        world.rest();
    }
    world.tick(10);
    world.rest();
    let (locks, bounds, reclaimed) = world.mdt.locks();
    assert!(locks <= bounds.reclaim && reclaimed > 0, "{locks}, {reclaimed}, {a_has}");
    // The youngest stayed.
    let last = files.last().unwrap();
    assert!(world.mdt.lock_holders(*last).any(|held| held.client == B));
    assert!(has(&world, B) > 0 && has(&world, B) < files.len());
    // Nobody waits, and all the same who does not answer is evicted.
    deaf(&mut world, A);
    deaf(&mut world, B);
    world.mdt.set_lock_bytes(40 * sateen_ldlm::LOCK_BYTES, 0);
    world.tick(10);
    for _ in 0..25 {
        world.tick(1_000);
        world.rest();
    }
    assert!(!world.mdt.is_connected(B));
}

#[test]
fn locks_that_nobody_needs_go_with_one_cancel() {
    let mut world = World::with_clients(1);
    let file = |world: &mut World, name: &str| world.mknod(A, ROOT, name);
    let files = ["a", "b", "c"].map(|name| file(&mut world, name));
    let held = files.map(|fid| grant(&world.call(B, getattr(fid, Ibits::META))));
    let of = |at: usize| GivenBack { fid: files[at], id: held[at].id };
    deaf(&mut world, B);
    let change = MdtRequest::SetAttr {
        fid: files[1],
        set: SetAttr { mode: Some(0o600), ..SetAttr::default() },
        cred: Cred::default(),
    };
    let call = world.start(A, change);
    assert_eq!(world.reply(call), None);
    // What is unknown, or another's, changes nothing.
    let wrong = GivenBack { fid: files[0], id: held[1].id };
    let more = vec![wrong, of(1), GivenBack { fid: ROOT, id: LockId(7) }];
    world.ok(A, MdtRequest::Cancel { fid: ROOT, id: LockId(8), report: None, more: more.clone() });
    assert_eq!(world.reply(call), None, "it is B's");
    let (fid, id) = (files[0], held[0].id);
    world.ok(B, MdtRequest::Cancel { fid, id, report: None, more });
    world.rest();
    assert!(world.reply(call).is_some_and(|reply| reply.error.is_none()));
    let has = |fid| world.mdt.lock_holders(fid).any(|held| held.client == B);
    assert_eq!(files.map(has), [false, false, true]);
}

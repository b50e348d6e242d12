//! Truncates that an OST has still to carry out: what can be said of the file meanwhile, and what
//! if the OST is taken out of use: nobody waits for it, nobody gets at the data before, and
//! nothing of it stays when it is back.

use sateen_osd::{Batch, Key};
use sateen_target::Service;
use sateen_types::{Errno, Fid, Layout, Timespec};
use sateen_wire::*;

use crate::harness::*;

const META: Ibits = Ibits::LOOKUP.union(Ibits::UPDATE).union(Ibits::PERM);
const DATA: Ibits = Ibits::DATA;
const MIB: u64 = 1 << 20;

/// A file of 3 MiB that A has made, has open, and may write to.
fn written(world: &mut World) -> (Fid, OpenId, Layout) {
    let (made, open_id) = world.creat(A, ROOT, "f", META.union(DATA));
    let ReplyBody::Mdt(MdtReply::Created { attr, layout: Some(layout), .. }) = made.body else {
        panic!()
    };
    assert!(holds(world, A, attr.fid));
    world.write(&layout, attr.fid, 3 * MIB);
    let mtime = Some(Timespec { sec: 9, nsec: 0 });
    let report = SizeReport { size: 3 * MIB, blocks: 6144, mtime, atime: None };
    let fid = attr.fid;
    world.ok(A, MdtRequest::ReportSize { fid, report, glimpsed: false, version: 0 });
    (fid, open_id, (*layout).clone())
}

/// Whether a client may read or write the file's data.
fn holds(world: &World, client: sateen_types::ClientId, fid: Fid) -> bool {
    let id = world.clients[&client].id;
    world.mdt.lock_holders(fid).any(|held| held.client.0 == id && held.bits.intersects(DATA))
}

fn cut_to(fid: Fid, size: u64) -> MdtRequest {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    MdtRequest::SetAttr { fid, set, cred: Cred::default() }
}

fn lock(fid: Fid) -> MdtRequest {
    MdtRequest::Enqueue { fid, mode: LockMode::Pr, bits: DATA }
}

/// All OSTs answer again, and all are in use.
fn all_back(world: &mut World) {
    world.gone.clear();
    for ost in 0..world.osts.len() as u32 {
        world.mdt.set_ost_active(ost, true);
    }
    for _ in 0..3 {
        world.tick(2_100);
        world.rest();
    }
}

#[test]
fn who_waits_is_told_the_size_and_refused_the_data() {
    let mut world = World::with_clients(1);
    let (fid, _, _) = written(&mut world);
    world.gone.insert(0);
    let cut = world.start(A, cut_to(fid, 1));
    world.rest();
    let looks = world.start(B, MdtRequest::GetAttr { fid, want: META.union(DATA) });
    let locks = world.start(B, lock(fid));
    world.rest();
    assert!([cut, looks, locks].iter().all(|call| world.reply(*call).is_none()));

    world.mdt.set_ost_active(0, false);
    world.tick(5);
    assert_eq!(world.reply(cut).map(|reply| reply.error), Some(None));
    assert_eq!(world.reply(looks).map(|reply| reply.error), Some(None));
    assert_eq!(world.reply(locks).map(|reply| reply.error), Some(Some(Errno::EIO)));
    assert_eq!(world.err(B, lock(fid)), Errno::EIO);
    let attr = world.stat(B, fid);
    assert_eq!((attr.size, attr.size_stale), (1, false), "nobody has to ask the OST");
    assert_eq!(world.err(A, cut_to(fid, 0)), Errno::EIO);
    assert_eq!(world.objects(), 3.min(world.osts.len()), "nothing is cut yet");

    all_back(&mut world);
    world.ok(B, lock(fid));
    assert!(world.mdt.is_idle());
}

#[test]
fn who_has_truncated_may_not_write_either() {
    let mut world = World::with_clients(1);
    let (fid, _, _) = written(&mut world);
    world.clients.get_mut(&A).unwrap().obliging = false;
    world.gone.insert(0);
    let cut = world.start(A, cut_to(fid, 1));
    world.rest();
    assert!(holds(&world, A, fid));
    world.mdt.set_ost_active(0, false);
    world.tick(5);
    let reply = world.reply(cut).unwrap();
    assert_eq!(reply.error, None);
    let called = world.clients[&A].callbacks.front().cloned();
    let Some(Callback::Blocking { fid: of, id }) = called else { panic!("{called:?}") };
    assert_eq!(of, fid);
    world.ok(A, MdtRequest::Cancel { fid, id, report: None, more: vec![] });
    assert!(!holds(&world, A, fid));
    assert_eq!(
        world.err(A, MdtRequest::Enqueue { fid, mode: LockMode::Pw, bits: DATA }),
        Errno::EIO
    );
    all_back(&mut world);
    world.ok(A, MdtRequest::Enqueue { fid, mode: LockMode::Pw, bits: DATA });
}

#[test]
fn an_open_that_truncates_is_open_but_has_no_data() {
    let mut world = World::with_clients(1);
    let (fid, first, _) = written(&mut world);
    world.close(A, fid, first, None);
    world.gone.insert(0);
    let open_id = world.open_id(B);
    let flags = OpenFlags { write: true, truncate: true, exec: false };
    let want = META.union(DATA);
    let open =
        world.start(B, MdtRequest::Open { fid, flags, open_id, cred: Cred::default(), want });
    world.rest();
    assert_eq!(world.reply(open), None);
    world.mdt.set_ost_active(0, false);
    world.rest();
    let reply = world.reply(open).unwrap();
    assert_eq!(reply.error, None);
    assert!(reply.grants.iter().all(|grant| !grant.bits.intersects(DATA)), "{reply:?}");
    assert!(!holds(&world, B, fid));
    world.close(B, fid, open_id, None);
    all_back(&mut world);
    assert_eq!(world.stat(A, fid).size, 0);
    world.ok(A, World::unlink_request(ROOT, "f", false));
    world.rest();
    assert_eq!(world.objects(), 0, "it was not open any more");
    assert!(world.mdt.is_idle());
}

#[test]
fn its_name_can_go() {
    for replaced in [false, true] {
        let mut world = World::with_clients(1);
        let (fid, open_id, _) = written(&mut world);
        world.close(A, fid, open_id, Some(report(3 * MIB, true)));
        world.gone.insert(0);
        let cut = world.start(A, cut_to(fid, 1));
        world.rest();
        world.mdt.set_ost_active(0, false);
        world.tick(5);
        assert_eq!(world.reply(cut).map(|reply| reply.error), Some(None));
        if replaced {
            world.mknod(B, ROOT, "g");
            world.ok(B, World::rename_request((ROOT, "g"), (ROOT, "f")));
        } else {
            world.ok(B, World::unlink_request(ROOT, "f", false));
        }
        all_back(&mut world);
        assert_eq!(world.objects(), 0);
        assert!(world.mdt.is_idle());
    }
}

#[test]
fn what_a_start_finds_is_not_waited_for_either() {
    let mut world = World::with_clients(1);
    let (fid, open_id, _) = written(&mut world);
    world.close(A, fid, open_id, Some(report(3 * MIB, true)));
    world.gone.insert(0);
    world.start(A, cut_to(fid, 1));
    world.rest();
    world.checkpoint();
    world.held_prefetches = Some(Vec::new());
    world.crash(world.frames.len());
    // The parameter is there before the records of the last run are read.
    world.mdt.set_ost_active(0, false);
    for _ in 0..100 {
        let held = world.held_prefetches.replace(Vec::new());
        let more = held.as_ref().is_some_and(|held| !held.is_empty());
        world.held_prefetches = held;
        world.release_prefetches();
        world.held_prefetches = Some(Vec::new());
        if !more {
            break;
        }
    }
    world.held_prefetches = None;
    world.rest();
    world.connect(B);
    assert_eq!(world.err(B, lock(fid)), Errno::EIO);
    assert_eq!(world.stat(B, fid).size, 1);
    all_back(&mut world);
    world.ok(B, lock(fid));
}

#[test]
fn only_osts_that_have_still_to_cut_count() {
    let mut world = World::with_clients(2);
    let (fid, _, layout) = written(&mut world);
    assert_eq!(layout.objects().count(), 2);
    world.gone.insert(1);
    let cut = world.start(A, cut_to(fid, 0));
    world.rest();
    assert_eq!(world.reply(cut), None);
    // It has cut already.
    world.mdt.set_ost_active(0, false);
    world.tick(5);
    assert_eq!(world.reply(cut), None, "the other OST is waited for");
    let locks = world.start(B, lock(fid));
    assert_eq!(world.reply(locks), None);
    world.gone.clear();
    for _ in 0..3 {
        world.tick(2_100);
        world.rest();
    }
    assert_eq!(world.reply(cut).map(|reply| reply.error), Some(None));
    assert_eq!(world.reply(locks).map(|reply| reply.error), Some(None));
}

#[test]
fn objects_that_are_still_to_be_cut_do_not_tell_the_size() {
    let mut world = World::with_clients(2);
    // It stays open: nobody but its writer would know the size.
    let (fid, _, _) = written(&mut world);
    world.gone.insert(1);
    world.start(A, cut_to(fid, MIB / 2));
    world.rest();
    world.crash(world.frames.len());
    world.connect(B);
    // The other OST has cut already. Who asked the objects now could tell the MDT after the cut.
    let attr = world.stat(B, fid);
    assert_eq!((attr.size, attr.size_stale), (MIB / 2, false));
    all_back(&mut world);
    let attr = world.stat(B, fid);
    assert_eq!((attr.size, attr.size_stale), (MIB / 2, true));
}

/// A start that takes several looks at records of one kind misses none of those that it reads
/// after them, which may lie before them in the index.
#[test]
fn a_start_with_many_records_of_one_kind_misses_none_of_another() {
    for tag in *b"KOUPS" {
        let mut world = World::with_clients(1);
        // It stays open, so that the inode says that the objects know better.
        let (fid, _, _) = written(&mut world);
        world.gone.insert(0);
        world.start(A, cut_to(fid, 1));
        world.rest();
        let removed = sateen_osd::StoreLimits::default().scan_removed_max as u64 + 1;
        for part in (0..removed).step_by(512) {
            let mut gone = Batch::new();
            for n in part..part + 512 {
                // Above any transno and any client.
                gone.remove(&Key::tag(tag).with(&((1 << 40) + n).to_be_bytes()));
            }
            world.mdt.store().commit(&gone);
        }
        world.flush();
        world.crash(world.frames.len());
        world.connect(B);
        let kind = char::from(tag);
        let attr = world.stat(B, fid);
        assert_eq!((attr.size, attr.size_stale), (1, false), "{kind}: its truncate is known");
        all_back(&mut world);
        assert_eq!(world.osts[&0].objects.values().copied().collect::<Vec<_>>(), [1], "{kind}");
        let listed = |r: &OstRequest| matches!(r, OstRequest::List { .. });
        assert!(world.osts[&0].seen.iter().any(listed), "{kind}: so are its clients' sequences");
        assert!(world.mdt.is_idle(), "{kind}");
    }
}

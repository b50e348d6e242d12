//! Crashes at every group commit: what comes back is whole, and what was begun is finished.

use sateen_osd::{Batch, Key};
use sateen_target::Service;
use sateen_wire::*;

use crate::fsck;
use crate::harness::*;

/// A life with a bit of everything, in which group commits happen here and there.
fn life(cold: bool) -> World {
    let mut world = World::with_clients(2);
    world.cold = cold;
    let dir = world.mkdir(A, ROOT, "dir");
    world.flush();
    let mut open = Vec::new();
    for i in 0..6 {
        let (reply, id) = world.creat(A, dir, &format!("f{i}"), Ibits::DATA);
        let ReplyBody::Mdt(MdtReply::Created { attr, layout: Some(layout), .. }) = reply.body
        else {
            panic!()
        };
        world.write(&layout, attr.fid, 3 << 20);
        if i % 3 == 0 {
            open.push((attr.fid, id));
        } else {
            world.close(A, attr.fid, id, Some(report(3 << 20, true)));
        }
        if i % 2 == 0 {
            world.flush();
        }
    }
    world.ok(B, World::unlink_request(dir, "f0", false));
    world.flush();
    world.ok(B, World::unlink_request(dir, "f1", false));
    world.ok(B, World::rename_request((dir, "f2"), (dir, "f4")));
    world.flush();
    let fid = world.lookup(A, dir, "f5").unwrap().fid;
    let set = SetAttr { size: Some(1 << 20), ..SetAttr::default() };
    world.ok(A, MdtRequest::SetAttr { fid, set, cred: Cred::default() });
    world.ok(A, MdtRequest::Link { fid, parent: ROOT, name: name("hard") });
    world.mkdir(B, dir, "sub");
    world.flush();
    let (fid, id) = open.pop().unwrap();
    world.close(A, fid, id, Some(report(3 << 20, true)));
    world.ok(B, World::rename_request((dir, "sub"), (ROOT, "sub")));
    world.flush();
    // Not flushed: lost with the crash.
    let (reply, _) = world.creat(B, ROOT, "late", Ibits::DATA);
    let ReplyBody::Mdt(MdtReply::Created { attr, layout: Some(layout), .. }) = reply.body else {
        panic!()
    };
    world.write(&layout, attr.fid, 1);
    world
}

#[test]
fn every_group_commit_is_a_place_to_start_from() {
    let commits = life(false).frames.len();
    assert!(commits > 8, "{commits}");
    for crash in 0..=commits {
        let mut world = life(false);
        world.crash(crash);
        fsck::check(&fsck::image(&world.frames));
        world.rest();
        world.tick(2_000);
        world.rest();
        let image = fsck::image(&world.frames);
        fsck::check(&image);
        assert!(world.mdt.is_idle(), "crash after {crash}");
        for tag in *b"OUPSG" {
            assert_eq!(fsck::of(&image, tag).count(), 0, "{} after {crash}", char::from(tag));
        }
        // Every object belongs to a file, and lies within its size unless that is unknown.
        let inodes = fsck::inodes(&image);
        for (object, size) in world.osts.values().flat_map(|ost| &ost.objects) {
            let inode = inodes.get(&object.fid).expect("an object of a file that is");
            assert!(inode.attr.maybe_objects);
            assert!(inode.attr.size_stale || *size <= inode.attr.size, "crash after {crash}");
        }
    }
}

#[test]
fn a_checkpoint_in_between_changes_nothing() {
    for cold in [false, true] {
        let mut world = life(cold);
        let commits = world.frames.len();
        if !cold {
            world.checkpoint();
        }
        world.crash(world.frames.len().max(commits));
        world.cold = cold;
        world.connect(A);
        world.rest();
        world.tick(2_000);
        world.rest();
        let image = fsck::image(&world.frames);
        fsck::check(&image);
        assert!(world.mdt.is_idle());
        let dir = world.lookup(A, ROOT, "dir").unwrap().fid;
        let names: Vec<String> = world.list(A, dir, 3).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), 3, "{names:?}");
        let hard = world.lookup(A, ROOT, "hard").unwrap();
        assert_eq!((hard.nlink, hard.size), (2, 1 << 20));
        assert_eq!(world.lookup(A, dir, "f5").unwrap().fid, hard.fid);
    }
}

#[test]
fn osts_that_come_late_are_told_everything() {
    let mut world = life(false);
    world.cut_off = true;
    world.crash(world.frames.len());
    world.connect(A);
    world.rest();
    assert!(!world.mdt.is_idle());
    let dir = world.lookup(A, ROOT, "dir").unwrap().fid;
    world.ok(A, World::unlink_request(dir, "f4", false));
    world.rest();
    world.cut_off = false;
    world.restart_osts();
    for _ in 0..4 {
        world.tick(2_100);
        world.rest();
    }
    assert!(world.mdt.is_idle());
    let image = fsck::image(&world.frames);
    let inodes = fsck::inodes(&image);
    assert!(
        world.osts.values().flat_map(|ost| ost.objects.keys()).all(|o| inodes.contains_key(&o.fid))
    );
    // They restart in the middle: what was in flight is sent again.
    world.cut_off = true;
    world.ok(A, World::unlink_request(ROOT, "hard", false));
    world.ok(A, World::unlink_request(dir, "f5", false));
    world.rest();
    world.cut_off = false;
    world.restart_osts();
    for _ in 0..4 {
        world.tick(2_100);
        world.rest();
    }
    assert!(world.mdt.is_idle());
}

#[test]
fn an_object_without_a_file_goes_also_if_the_next_start_is_cut_short() {
    let mut world = life(false);
    world.deaf = [0, 1].into();
    world.crash(world.frames.len());
    world.rest();
    assert!(!world.mdt.is_idle(), "the object of the file that was lost is still there");
    world.deaf.clear();
    world.crash(world.frames.len());
    for _ in 0..2 {
        world.rest();
        world.tick(2_100);
    }
    world.rest();
    assert!(world.mdt.is_idle());
    let image = fsck::image(&world.frames);
    let inodes = fsck::inodes(&image);
    for object in world.osts.values().flat_map(|ost| ost.objects.keys()) {
        assert!(inodes.contains_key(&object.fid), "{object} belongs to no file");
    }
}

#[test]
fn objects_do_not_go_before_the_unlink_that_a_start_finds_is_durable() {
    let mut world = life(false);
    world.cut_off = true;
    world.crash(world.frames.len());
    world.connect(A);
    world.rest();
    let dir = world.lookup(A, ROOT, "dir").unwrap().fid;
    let fid = world.lookup(A, dir, "f4").unwrap().fid;
    let objects = |world: &World| {
        world.osts.values().flat_map(|ost| ost.objects.keys()).filter(|o| o.fid == fid).count()
    };
    let before = objects(&world);
    assert!(before > 0);
    // The objects are listed when the inode is gone, but its going is not durable.
    let durable = world.frames.len();
    world.ok(A, World::unlink_request(dir, "f4", false));
    world.cut_off = false;
    world.restart_osts();
    for _ in 0..3 {
        world.tick(2_100);
    }
    assert_eq!(world.frames.len(), durable, "nothing was committed meanwhile");
    assert_eq!(objects(&world), before);
    world.crash(durable);
    world.rest();
    world.connect(A);
    assert_eq!(world.lookup(A, dir, "f4").unwrap().fid, fid);
    assert_eq!(objects(&world), before, "the file is there, and all of it");
}

#[test]
fn an_unlink_record_stays_until_each_object_is_destroyed() {
    let mut world = World::with_clients(2);
    let (reply, id) = world.creat(A, ROOT, "wide", Ibits::DATA);
    let ReplyBody::Mdt(MdtReply::Created { attr, layout: Some(layout), .. }) = reply.body else {
        panic!()
    };
    world.write(&layout, attr.fid, 3 << 20);
    world.close(A, attr.fid, id, Some(report(3 << 20, true)));
    world.deaf = [0, 1].into();
    world.ok(A, World::unlink_request(ROOT, "wide", false));
    world.rest();
    // Only OST 0 hears of it, and twice: the start also finds its object without a file.
    world.crash(world.frames.len());
    world.rest();
    world.deaf.remove(&0);
    world.tick(2_100);
    world.rest();
    assert_eq!((world.osts[&0].objects.len(), world.osts[&1].objects.len()), (0, 1));
    assert_eq!(fsck::of(&fsck::image(&world.frames), b'U').count(), 1);
    world.deaf.clear();
    world.tick(2_100);
    world.rest();
    assert_eq!((world.objects(), world.mdt.is_idle()), (0, true));
    assert_eq!(fsck::of(&fsck::image(&world.frames), b'U').count(), 0);
}

#[test]
fn a_start_that_fails_keeps_nobody_waiting() {
    let mut world = World::new(1);
    let mut damage = Batch::new();
    let counters = Key::tag(disk::mdt::tag::COUNTERS);
    damage.put_with(&counters, |out| out.push(1));
    world.mdt.store().commit(&damage);
    world.flush();
    world.crash(world.frames.len());
    world.clients.entry(A).or_default();
    let header = world.header(Call { client: A, slot: 0, seq: 0 });
    world.deliver(header, Request::Connect { features: 0 });
    let call = world.start(A, MdtRequest::GetAttr { fid: ROOT, want: Ibits::NONE });
    let answer = world.reply(call).and_then(|reply| reply.error);
    assert_eq!(answer, Some(sateen_types::Errno::EIO));
}

/// An MDT that has lost any of its base records does not make itself anew.
#[test]
fn a_target_without_its_base_records_does_not_start() {
    let tags = [disk::mdt::tag::COUNTERS, disk::mdt::tag::SEQ];
    for lost in [&tags[..1], &tags[1..], &tags[..]] {
        let mut world = World::with_clients(1);
        let kept = world.mkdir(A, ROOT, "kept");
        world.rest();
        let mut damage = Batch::new();
        for tag in lost {
            damage.remove(&Key::tag(*tag));
        }
        world.mdt.store().commit(&damage);
        world.flush();
        world.crash(world.frames.len());
        world.clients.entry(A).or_default();
        let header = world.header(Call { client: A, slot: 0, seq: 0 });
        world.deliver(header, Request::Connect { features: 0 });
        let call = world.start(A, MdtRequest::GetAttr { fid: kept, want: Ibits::NONE });
        let answer = world.reply(call).and_then(|reply| reply.error);
        assert_eq!(answer, Some(sateen_types::Errno::EIO), "{lost:?}");
        let records = fsck::image(&world.frames);
        assert_eq!(fsck::of(&records, tags[0]).count(), usize::from(!lost.contains(&tags[0])));
    }
}

#[test]
fn sequences_of_the_last_run_are_not_good_any_more() {
    let mut world = World::with_clients(1);
    let old = world.fid(A);
    world.rest();
    world.crash(world.frames.len());
    world.connect(A);
    let mut request = world.create_request(A, ROOT, "x", 0o100_644);
    if let MdtRequest::Create { fid, .. } = &mut request {
        assert_ne!(fid.seq, old.seq, "never granted twice");
        *fid = old;
    }
    assert_eq!(world.err(A, request), sateen_types::Errno::EINVAL);
}

#[test]
fn requests_wait_for_the_start() {
    let mut world = life(true);
    let frames = world.frames.len();
    world.held_prefetches = Some(Vec::new());
    world.crash(frames);
    let fake = world.clients.entry(A).or_default();
    fake.obliging = true;
    let header = world.header(Call { client: A, slot: 0, seq: 0 });
    world.deliver(header, Request::Connect { features: 0 });
    assert_eq!(world.clients[&A].generation, 0, "who is a client is not known yet");
    world.release_prefetches();
    world.rest();
    assert_ne!(world.clients[&A].generation, 0);
    world.ok(A, MdtRequest::GetAttr { fid: ROOT, want: Ibits::NONE });
}

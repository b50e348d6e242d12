//! Files come and go, and so do their objects.

use sateen_target::Service;
use sateen_types::Errno;
use sateen_wire::*;

use crate::fsck;
use crate::harness::*;

fn created(reply: Reply) -> (sateen_types::Attr, std::sync::Arc<sateen_types::Layout>, Grants) {
    assert_eq!(reply.error, None);
    let grants = reply.grants;
    let ReplyBody::Mdt(MdtReply::Created { attr, layout, .. }) = reply.body else { panic!() };
    (attr, layout.unwrap(), grants)
}

#[test]
fn a_new_mdt_has_an_empty_root() {
    let mut world = World::with_clients(2);
    let root = world.stat(A, ROOT);
    assert_eq!((root.mode, root.nlink, root.uid), (0o040_755, 2, 0));
    assert!(world.list(A, ROOT, 10).is_empty());
    assert_eq!(world.lookup(A, ROOT, "x"), Err(Errno::ENOENT));
    let MdtReply::StatFs(statfs) = world.ok(A, MdtRequest::StatFs) else { panic!() };
    assert_eq!(statfs.files_total - statfs.files_free, 1);
    world.mdt.on_space(disk(2 << 40, 1 << 40));
    let MdtReply::StatFs(statfs) = world.ok(A, MdtRequest::StatFs) else { panic!() };
    assert_eq!((statfs.bytes_total, statfs.bytes_free), (2 << 40, 1 << 40));
}

fn disk(bytes_total: u64, bytes_free: u64) -> StatFs {
    StatFs { bytes_total, bytes_free, bytes_avail: bytes_free, ..StatFs::default() }
}

#[test]
fn a_full_disk_takes_no_new_names_but_lets_go_of_old_ones() {
    let mut world = World::with_clients(2);
    let file = world.mknod(A, ROOT, "file");
    world.mdt.on_space(disk(1 << 40, 1 << 20));
    let make = world.create_request(A, ROOT, "dir", 0o040_755);
    assert_eq!(world.err(A, make.clone()), Errno::ENOSPC);
    let link = MdtRequest::Link { fid: file, parent: ROOT, name: name("link") };
    assert_eq!(world.err(A, link), Errno::ENOSPC);
    let again = world.create_request(A, ROOT, "file", 0o100_644);
    assert_eq!(world.err(A, again), Errno::EEXIST, "what is there is said first");
    world.ok(A, World::rename_request((ROOT, "file"), (ROOT, "moved")));
    world.ok(A, World::unlink_request(ROOT, "moved", false));
    world.mdt.on_space(disk(1 << 40, 1 << 39));
    world.ok(A, make);
}

#[test]
fn files_are_made_listed_and_removed_whatever_is_in_memory() {
    for cold in [false, true] {
        let mut world = World::with_clients(2);
        world.cold = cold;
        let dir = world.mkdir(A, ROOT, "dir");
        let mut names = Vec::new();
        for i in 0..40 {
            let text = format!("file{i}");
            names.push((text.clone(), world.mknod(B, dir, &text)));
        }
        for count in [1, 7, 100] {
            let mut listed = world.list(A, dir, count);
            listed.sort();
            let mut sorted = names.clone();
            sorted.sort();
            assert_eq!(listed, sorted);
        }
        assert_eq!(world.lookup(A, dir, "file7").unwrap().fid, names[7].1);
        assert_eq!(world.err(A, World::unlink_request(ROOT, "dir", true)), Errno::ENOTEMPTY);
        for (text, _) in &names {
            world.ok(A, World::unlink_request(dir, text, false));
        }
        world.ok(A, World::unlink_request(ROOT, "dir", true));
        assert!(world.list(A, ROOT, 10).is_empty());
        world.rest();
        fsck::check(&fsck::image(&world.frames));
        assert!(world.mdt.is_idle());
    }
}

#[test]
fn a_write_session_brings_the_size_home() {
    // Who has written it still has the lock under which it did.
    for remover in [A, B] {
        let mut world = World::with_clients(2);
        let (reply, id) = world.creat(A, ROOT, "f", Ibits::META.union(Ibits::DATA));
        let (attr, layout, grants) = created(reply);
        assert!(attr.maybe_objects && !attr.size_stale, "nobody else can know better");
        assert!(grants.iter().any(|g| g.mode == LockMode::Pw && g.bits == Ibits::DATA));
        assert!(grants.iter().any(|g| g.mode == LockMode::Pr && g.bits == Ibits::META));
        world.write(&layout, attr.fid, 3 << 20);
        world.close(A, attr.fid, id, Some(report(3 << 20, true)));
        let attr = world.stat(B, attr.fid);
        assert_eq!((attr.size, attr.size_stale, attr.maybe_objects), (3 << 20, false, true));
        assert_eq!(attr.mtime.sec, 5);
        // The last name goes, and the objects with it.
        assert_eq!(world.objects(), 2);
        world.ok(remover, World::unlink_request(ROOT, "f", false));
        assert_eq!(world.objects(), 2, "not before that is durable");
        world.rest();
        assert_eq!(world.objects(), 0);
        assert!(world.mdt.is_idle());
        assert_eq!(world.osts[&0].tombstones.len(), 0, "nobody could write any more");
    }
}

#[test]
fn a_file_never_written_costs_no_ost_anything() {
    let mut world = World::with_clients(2);
    let (reply, id) = world.creat(A, ROOT, "f", Ibits::DATA);
    let (attr, ..) = created(reply);
    world.close(A, attr.fid, id, Some(report(0, false)));
    assert!(!world.stat(A, attr.fid).maybe_objects);
    world.ok(A, World::unlink_request(ROOT, "f", false));
    world.rest();
    let destroys = |ost: &FakeOst| ost.seen.iter().any(|r| matches!(r, OstRequest::Destroy { .. }));
    assert!(!world.osts.values().any(destroys));
}

#[test]
fn an_open_file_outlives_its_name() {
    let mut world = World::with_clients(1);
    let (reply, id) = world.creat(A, ROOT, "f", Ibits::DATA);
    let (attr, layout, _) = created(reply);
    world.write(&layout, attr.fid, 100);
    let MdtReply::Removed { attr: Some(removed), parent: Some(dir) } =
        world.ok(B, World::unlink_request(ROOT, "f", false))
    else {
        panic!()
    };
    assert_eq!(removed.nlink, 0);
    assert_eq!(dir, world.stat(B, ROOT));
    world.rest();
    fsck::check(&fsck::image(&world.frames));
    assert_eq!(world.stat(A, attr.fid).nlink, 0);
    let link = MdtRequest::Link { fid: attr.fid, parent: ROOT, name: name("again") };
    assert_eq!(world.err(A, link), Errno::ENOENT);
    assert_eq!(world.objects(), 1);
    world.close(A, attr.fid, id, Some(report(100, true)));
    world.rest();
    assert_eq!(world.objects(), 0);
    assert_eq!(
        world.err(A, MdtRequest::GetAttr { fid: attr.fid, want: Ibits::NONE }),
        Errno::ESTALE
    );
}

#[test]
fn a_truncate_is_answered_when_the_objects_are_cut() {
    let mut world = World::with_clients(2);
    let (reply, id) = world.creat(A, ROOT, "f", Ibits::DATA);
    let (attr, layout, _) = created(reply);
    world.write(&layout, attr.fid, 3 << 20);
    world.close(A, attr.fid, id, Some(report(3 << 20, true)));
    let set = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    let request =
        |size| MdtRequest::SetAttr { fid: attr.fid, set: set(size), cred: Cred::default() };
    world.cut_off = true;
    let call = world.start(A, request(1 << 20));
    // Nobody gets at the data meanwhile, whatever he asks.
    let want = MdtRequest::GetAttr { fid: attr.fid, want: Ibits::DATA };
    let other = world.start(B, want);
    world.rest();
    assert_eq!((world.reply(call), world.reply(other)), (None, None));
    world.cut_off = false;
    world.tick(2_000);
    world.rest();
    let reply = world.reply(call).expect("answered now");
    assert_eq!(reply.error, None);
    assert!(world.reply(other).is_some());
    assert_eq!(world.osts.values().flat_map(|ost| ost.objects.values()).sum::<u64>(), 1 << 20);
    world.rest();
    assert!(world.mdt.is_idle(), "the record is gone, too");
    assert_eq!(fsck::of(&fsck::image(&world.frames), b'P').count(), 0);
    // Growing needs no OST.
    let before = world.osts[&0].seen.len();
    world.ok(A, request(1 << 30));
    assert_eq!(world.osts[&0].seen.len(), before);
    assert_eq!(world.stat(B, attr.fid).size, 1 << 30);
}

#[test]
fn requests_run_once() {
    let mut world = World::with_clients(1);
    let request = world.create_request(A, ROOT, "f", 0o100_644);
    let call = world.start(A, request.clone());
    let first = world.reply(call).unwrap();
    let transno = first.transno;
    world.clients.get_mut(&A).unwrap().replies.clear();
    world.deliver(world.header(call), Request::Mdt(request.clone()));
    assert_eq!(world.reply(call).unwrap().transno, transno);
    // The same as a new request is refused: the name, and then the FID, are taken.
    assert_eq!(world.err(A, request.clone()), Errno::EEXIST);
    let MdtRequest::Create { fid, .. } = &request else { panic!() };
    let mut again = world.create_request(A, ROOT, "g", 0o100_644);
    if let MdtRequest::Create { fid: other, .. } = &mut again {
        *other = *fid;
    }
    assert_eq!(world.err(A, again), Errno::EEXIST);
    // And nobody creates under another's sequence.
    let mut stolen = world.create_request(A, ROOT, "h", 0o100_644);
    let theirs = world.fid(B);
    if let MdtRequest::Create { fid, .. } = &mut stolen {
        *fid = theirs;
    }
    assert_eq!(world.err(A, stolen), Errno::EINVAL);
    assert_eq!(world.list(A, ROOT, 10).len(), 1);
}

//! Files without a name: they go with their last close, unless they are given one.

use sateen_target::Outbox;
use sateen_types::{Errno, Fid, Layout};
use sateen_wire::*;

use crate::fsck;
use crate::harness::*;

/// Opened for writing by A, and written.
fn tmpfile(world: &mut World, parent: Fid, linkable: bool) -> (Fid, OpenId) {
    let (fid, open_id) = (world.fid(A), world.open_id(A));
    let request = MdtRequest::Tmpfile {
        parent,
        fid,
        mode: 0o666,
        cred: Cred { uid: 5, gid: 6, umask: 0o22 },
        flags: OpenFlags { write: true, truncate: false, exec: false },
        open_id,
        linkable,
        want: Ibits::META.union(Ibits::DATA),
    };
    let MdtReply::Created { attr, layout, existed: false, .. } = world.ok(A, request) else {
        panic!()
    };
    assert_eq!((attr.fid, attr.mode, attr.nlink, attr.uid), (fid, 0o100_644, 0, 5));
    let layout: &Layout = layout.as_ref().unwrap();
    world.write(layout, fid, 3 << 20);
    (fid, open_id)
}

fn link(world: &mut World, fid: Fid, text: &str) -> Option<Errno> {
    world.call(A, MdtRequest::Link { fid, parent: ROOT, name: name(text) }).error
}

fn check(world: &mut World) {
    world.rest();
    fsck::check(&fsck::image(&world.frames));
}

fn inodes(world: &World) -> usize {
    fsck::of(&fsck::image(&world.frames), b'I').count()
}

#[test]
fn a_file_without_a_name_goes_with_its_close() {
    let mut world = World::with_clients(3);
    let dir = world.stat(A, ROOT);
    world.tick(1000);
    let (fid, open_id) = tmpfile(&mut world, ROOT, false);
    assert_eq!(world.stat(A, ROOT), dir, "its directory does not know it");
    check(&mut world);
    assert_eq!((inodes(&world), world.objects()), (2, 3));
    assert_eq!(link(&mut world, fid, "name"), Some(Errno::ENOENT), "O_EXCL");
    world.close(A, fid, open_id, Some(report(3 << 20, true)));
    check(&mut world);
    assert_eq!((inodes(&world), world.objects()), (1, 0));
    assert_eq!(world.err(A, MdtRequest::GetAttr { fid, want: Ibits::NONE }), Errno::ESTALE);
}

#[test]
fn a_link_keeps_it_and_there_is_one_first_name_only() {
    let mut world = World::with_clients(3);
    let (fid, open_id) = tmpfile(&mut world, ROOT, true);
    assert_eq!(link(&mut world, fid, "name"), None);
    assert_eq!(world.lookup(B, ROOT, "name").unwrap().nlink, 1);
    check(&mut world);
    world.close(A, fid, open_id, Some(report(3 << 20, true)));
    check(&mut world);
    assert_eq!(world.lookup(B, ROOT, "name").unwrap().size, 3 << 20);
    assert_eq!(world.objects(), 3);
    world.ok(B, World::unlink_request(ROOT, "name", false));
    check(&mut world);
    assert_eq!((inodes(&world), world.objects()), (1, 0));
    // It loses its name while it is open: it is like any other file then.
    let (fid, open_id) = tmpfile(&mut world, ROOT, true);
    assert_eq!(link(&mut world, fid, "name"), None);
    world.ok(B, World::unlink_request(ROOT, "name", false));
    assert_eq!(link(&mut world, fid, "again"), Some(Errno::ENOENT));
    check(&mut world);
    world.close(A, fid, open_id, Some(report(3 << 20, true)));
    check(&mut world);
    assert_eq!((inodes(&world), world.objects()), (1, 0));
}

#[test]
fn it_inherits_as_a_file_with_a_name_does() {
    let mut world = World::with_clients(1);
    let dir = world.mkdir(A, ROOT, "dir");
    let set = SetAttr { mode: Some(0o2775), gid: Some(77), ..SetAttr::default() };
    world.ok(A, MdtRequest::SetAttr { fid: dir, set, cred: Cred::default() });
    let (fid, _) = tmpfile(&mut world, dir, true);
    assert_eq!(world.stat(A, fid).gid, 77);
    let file = world.mknod(A, ROOT, "file");
    let (fid, open_id) = (world.fid(A), world.open_id(A));
    let request = |parent, fid| MdtRequest::Tmpfile {
        parent,
        fid,
        mode: 0o600,
        cred: Cred::default(),
        flags: OpenFlags::default(),
        open_id,
        linkable: true,
        want: Ibits::NONE,
    };
    assert_eq!(world.err(A, request(file, fid)), Errno::ENOTDIR);
    assert_eq!(world.err(A, request(dir, file)), Errno::EEXIST, "a FID that is in use");
    let others = world.fid(B);
    assert_eq!(world.err(A, request(dir, others)), Errno::EINVAL);
    world.ok(A, request(dir, fid));
    check(&mut world);
}

/// Once the MDT has cleared away, there is the root alone.
fn nothing_is_left(world: &mut World) {
    for _ in 0..3 {
        world.tick(2_100);
        world.rest();
    }
    check(world);
    assert_eq!((inodes(world), world.objects()), (1, 0));
}

#[test]
fn it_goes_with_a_crash_and_with_whoever_had_it_open() {
    let mut world = World::with_clients(3);
    tmpfile(&mut world, ROOT, true);
    check(&mut world);
    assert_eq!(world.objects(), 3);
    world.crash(world.frames.len());
    world.restart_osts();
    nothing_is_left(&mut world);
    world.connect(A);
    world.connect(B);
    tmpfile(&mut world, ROOT, true);
    check(&mut world);
    let (now, mut out) = (world.now, Outbox::new());
    world.mdt.evict_client(now, sateen_types::ClientId(world.clients[&A].id), &mut out);
    world.clients.get_mut(&A).unwrap().obliging = false;
    nothing_is_left(&mut world);
    // A link that was answered and lost with the MDT: the file is gone, and no name leads to it.
    let mut world = World::with_clients(3);
    let (fid, _) = tmpfile(&mut world, ROOT, true);
    world.flush();
    let frames = world.frames.len();
    assert_eq!(link(&mut world, fid, "name"), None);
    world.crash(frames);
    world.restart_osts();
    nothing_is_left(&mut world);
}

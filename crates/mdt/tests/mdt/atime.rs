//! Access times: told by readers, as long as they hold the data.

use sateen_types::{ClientId, Fid, Timespec};
use sateen_wire::*;

use crate::harness::*;

const META: Ibits = Ibits::META;
const DATA: Ibits = Ibits::DATA;

fn at(sec: i64) -> Timespec {
    Timespec { sec, nsec: 0 }
}

fn read_at(sec: i64) -> SizeReport {
    SizeReport { size: 9, blocks: 9, mtime: None, atime: Some(at(sec)) }
}

/// `client` opens a file for reading, with all locks.
fn open(world: &mut World, client: ClientId, fid: Fid) -> (OpenId, Grants) {
    open_how(world, client, fid, OpenFlags::default())
}

fn open_how(world: &mut World, client: ClientId, fid: Fid, flags: OpenFlags) -> (OpenId, Grants) {
    let open_id = world.open_id(client);
    let (cred, want) = (Cred::default(), META.union(DATA));
    let reply = world.call(client, MdtRequest::Open { fid, flags, open_id, cred, want });
    assert_eq!(reply.error, None);
    (open_id, reply.grants)
}

#[test]
fn a_reader_tells_the_atime_as_he_closes() {
    let mut world = World::with_clients(1);
    let fid = world.mknod(A, ROOT, "file");
    let before = world.stat(A, fid);
    let (open_id, _) = open(&mut world, A, fid);
    world.close(A, fid, open_id, Some(read_at(50)));
    let after = world.stat(B, fid);
    assert_eq!((after.atime, after.mtime, after.ctime), (at(50), before.mtime, before.ctime));
    assert_eq!(after.size, before.size, "the size is not his to tell");
    assert!(after.version > before.version);
    // Older than what is known.
    let (open_id, _) = open(&mut world, A, fid);
    world.close(A, fid, open_id, Some(read_at(40)));
    assert_eq!(world.stat(B, fid), after);
    // In a report of its own, and for a directory.
    let tell = |fid, sec| MdtRequest::ReportSize {
        fid,
        report: read_at(sec),
        glimpsed: false,
        version: 0,
    };
    world.ok(A, tell(fid, 60));
    assert_eq!(world.stat(B, fid).atime, at(60));
    let root = world.stat(B, ROOT);
    world.ok(A, tell(ROOT, 70));
    let told = world.stat(B, ROOT);
    assert_eq!((told.atime, told.size, told.mtime), (at(70), root.size, root.mtime));
    world.rest();
    crate::fsck::check(&crate::fsck::image(&world.frames));
}

#[test]
fn whoever_holds_no_data_says_nothing_of_its_atime() {
    let mut world = World::with_clients(1);
    let fid = world.mknod(A, ROOT, "file");
    let (open_id, grants) = open(&mut world, A, fid);
    let data = *grants.iter().find(|grant| grant.bits.intersects(DATA)).unwrap();
    world.ok(A, MdtRequest::Cancel { fid, id: data.id, report: Some(read_at(50)), more: vec![] });
    assert_eq!(world.stat(B, fid).atime, at(50), "told with the lock");
    let set = SetAttr { atime: Some(TimeSet::At(at(20))), ..SetAttr::default() };
    world.ok(B, MdtRequest::SetAttr { fid, set, cred: Cred::default() });
    world.close(A, fid, open_id, Some(read_at(55)));
    assert_eq!(world.stat(B, fid).atime, at(20), "it may have been read before that");
}

#[test]
fn who_may_write_and_has_only_read_says_nothing_of_the_size() {
    let mut world = World::with_clients(1);
    let fid = world.mknod(A, ROOT, "file");
    let flags = OpenFlags { write: true, truncate: false, exec: false };
    let (write_id, _) = open_how(&mut world, A, fid, flags);
    let (read_id, _) = open(&mut world, A, fid);
    let written = SizeReport { size: 1000, blocks: 8, mtime: Some(at(10)), atime: None };
    let tell = |report| MdtRequest::ReportSize { fid, report, glimpsed: false, version: 0 };
    world.ok(A, tell(written));
    assert_eq!(world.stat(A, fid).size, 1000);
    // He believes what was before somebody cut the file.
    let stale = SizeReport { size: 5000, blocks: 16, ..read_at(50) };
    world.ok(A, tell(stale));
    assert_eq!((world.stat(A, fid).size, world.stat(A, fid).atime), (1000, at(50)));
    let stale = SizeReport { size: 5000, blocks: 16, ..read_at(60) };
    world.close(A, fid, read_id, Some(stale));
    assert_eq!((world.stat(A, fid).size, world.stat(A, fid).atime), (1000, at(60)));
    world.close(A, fid, write_id, None);
    assert_eq!(world.stat(A, fid).size, 1000);
}

#[test]
fn others_forget_the_atime_but_not_the_data() {
    let mut world = World::with_clients(1);
    let fid = world.mknod(A, ROOT, "file");
    world.clients.get_mut(&B).unwrap().obliging = false;
    let (open_id, _) = open(&mut world, A, fid);
    let (_, grants) = open(&mut world, B, fid);
    let meta = *grants.iter().find(|grant| !grant.bits.intersects(DATA)).unwrap();
    let report = Some(read_at(50));
    let close = world.start(A, MdtRequest::Close { fid, open_id, report });
    world.tick(5);
    assert!(world.reply(close).is_none(), "B has the old one to show");
    let asked: Vec<_> = world.clients.get_mut(&B).unwrap().callbacks.drain(..).collect();
    assert_eq!(asked, [Callback::Blocking { fid, id: meta.id }]);
    world.ok(B, MdtRequest::Cancel { fid, id: meta.id, report: None, more: vec![] });
    assert_eq!(world.reply(close).map(|reply| reply.error), Some(None));
    assert_eq!(world.stat(B, fid).atime, at(50));
    // Who has the names and attributes, but not the data, has no atime to show.
    let other = world.mknod(A, ROOT, "other");
    world.ok(B, MdtRequest::GetAttr { fid: other, want: META });
    let (open_id, _) = open(&mut world, A, other);
    world.close(A, other, open_id, Some(read_at(50)));
    assert!(world.clients[&B].callbacks.is_empty());
}

#[test]
fn who_gives_his_data_back_waits_for_nobody() {
    let third = ClientId(3);
    let mut world = World::with_clients(2);
    world.connect(third);
    let fid = world.mknod(A, ROOT, "file");
    for client in [A, B] {
        world.clients.get_mut(&client).unwrap().obliging = false;
    }
    let (open_id, _) = open(&mut world, A, fid);
    open(&mut world, B, fid);
    // Somebody wants to write: both are to give their data back.
    let set = SetAttr { size: Some(3), ..SetAttr::default() };
    world.start(third, MdtRequest::SetAttr { fid, set, cred: Cred::default() });
    world.tick(5);
    let report = Some(read_at(50));
    let close = world.start(A, MdtRequest::Close { fid, open_id, report });
    world.tick(5);
    assert_eq!(world.reply(close).map(|reply| reply.error), Some(None), "B is not waited for");
}

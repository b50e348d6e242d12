//! What an OST answers to those who have an object read and written by somebody else, too: appends,
//! sizes, times, and who has it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "test code")]

mod common;

use common::{Peer, World, append, message, object, unpack, write};
use sateen_target::Ending;
use sateen_types::{Errno, ObjectId, Timespec};
use sateen_wire::{Bulk, CLAIM_SLOT, ObjectAttr, OstReply, OstRequest, Request};

const MIB: u64 = 1 << 20;

fn appended(
    world: &mut World,
    peer: &mut Peer,
    object: ObjectId,
    data: &[u8],
) -> Result<(u64, u32), Errno> {
    let (request, bulk) = append(object, 1, data);
    let ticket = world.send(peer, request, bulk);
    match unpack(world.wait(ticket).0)? {
        OstReply::Appended { offset, len, .. } => Ok((offset, len)),
        other => panic!("{other:?}"),
    }
}

fn attr(world: &mut World, peer: &mut Peer, object: ObjectId) -> ObjectAttr {
    match world.call(peer, OstRequest::GetAttr { objects: vec![object] }) {
        Ok(OstReply::Objects(attrs)) => attrs[0],
        other => panic!("{other:?}"),
    }
}

fn set_size(object: ObjectId, size: u64, version: u64) -> OstRequest {
    OstRequest::SetSize { object, layout_gen: 1, size, version }
}

#[test]
fn an_append_goes_where_the_object_ends_and_is_done_once() {
    let mut world = World::new(1, 64 * MIB);
    let mut client = world.client(1);
    let a = object(1, 0);
    assert_eq!(appended(&mut world, &mut client, a, b"one"), Ok((0, 3)), "it is born");
    world.write(&mut client, a, 10, b"x").unwrap();
    assert_eq!(appended(&mut world, &mut client, a, b""), Ok((0, 0)));
    let (request, bulk) = append(a, 1, b"two");
    let again = message(&client, 77, 1, Request::Ost(request), bulk);
    let ticket = (client.client, 77, 1);
    world.deliver(again.clone());
    // It comes once more while it is being done, and when it was.
    world.deliver(again.clone());
    let first = unpack(world.wait(ticket).0).unwrap();
    assert!(matches!(first, OstReply::Appended { offset: 11, len: 3, boot_epoch: 1, .. }));
    world.settle();
    assert!(!world.has(ticket), "one answer");
    world.deliver(again.clone());
    assert_eq!(unpack(world.wait(ticket).0), Ok(first.clone()));
    // On the client's next connection, if it counts on.
    assert_eq!(world.connect(&mut client), None);
    let mut moved = again.clone();
    moved.header.generation = client.generation;
    world.deliver(moved);
    assert_eq!(unpack(world.wait(ticket).0), Ok(first));
    // What was sent on the one before comes late.
    world.deliver(again);
    assert_eq!(unpack(world.wait(ticket).0), Err(Errno::ESTALE));
    assert_eq!(world.disk.image(a).as_deref(), Some(&b"one\0\0\0\0\0\0\0xtwo"[..]));
}

#[test]
fn what_must_not_be_appended_is_refused() {
    let mut world = World::new(1, 64 * MIB);
    let (mut client, mut mdt) = (world.client(1), world.mdt());
    let a = object(1, 0);
    let (request, bulk) = write(a, 2, 0, b"x");
    let ticket = world.send(&mut client, request, bulk);
    unpack(world.wait(ticket).0).unwrap();
    assert_eq!(appended(&mut world, &mut client, a, b"y"), Err(Errno::ESTALE), "an old layout");
    assert_eq!(world.call(&mut client, set_size(a, 9, 1)), Err(Errno::ESTALE));
    let (request, bulk) = append(a, 2, b"y");
    assert_eq!(world.call(&mut client, request.clone()), Err(Errno::EPROTO), "without bytes");
    // What a crash has lost is written again where it was, and never appended.
    world.deliver(message(&client, CLAIM_SLOT, 1, Request::Ost(request), bulk));
    let told = world.wait((client.client, CLAIM_SLOT, 1)).0;
    assert_eq!(unpack(told), Err(Errno::EINVAL));
    let destroy = OstRequest::Destroy { objects: vec![a], late_writers: true };
    assert_eq!(world.call(&mut mdt, destroy), Ok(OstReply::Done));
    let (request, bulk) = append(a, 2, b"y");
    let ticket = world.send(&mut client, request, bulk);
    assert_eq!(unpack(world.wait(ticket).0), Err(Errno::ESTALE), "it is dead");
    assert_eq!(world.call(&mut client, set_size(a, 9, 1)), Err(Errno::ESTALE));
    let times = OstRequest::SetTimes { object: a, atime: None, mtime: Some(Timespec::default()) };
    assert_eq!(world.call(&mut client, times), Ok(OstReply::Done));
    assert_eq!(world.disk.image(a), None);
    assert_eq!(world.call(&mut client, set_size(a, 1 << 63, 1)), Err(Errno::EFBIG));
}

#[test]
fn of_an_append_there_is_as_much_as_there_is_room_for() {
    let mut world = World::new(1, 4 * MIB);
    let mut client = world.client(1);
    let a = object(1, 0);
    world.settle();
    // The OST keeps some back, so it is the disk that has less than it said.
    world.write(&mut client, a, 0, &vec![1; 3 * MIB as usize]).unwrap();
    let mut done = 3 * MIB;
    loop {
        match appended(&mut world, &mut client, a, &[2; 300_000]) {
            Ok((offset, len)) => {
                assert_eq!(offset, done);
                done += u64::from(len);
            }
            Err(error) => {
                assert_eq!(error, Errno::ENOSPC);
                break;
            }
        }
    }
    assert!(done > 3 * MIB);
    assert_eq!(attr(&mut world, &mut client, a).size, done);
}

#[test]
fn a_size_that_is_set_lets_an_object_grow_and_never_cuts() {
    let mut world = World::new(1, 64 * MIB);
    let (mut client, mut mdt) = (world.client(1), world.mdt());
    let (a, b) = (object(1, 0), object(1, 1));
    world.write(&mut client, a, 0, b"ab").unwrap();
    world.call(&mut client, set_size(a, 5, 7)).unwrap();
    assert_eq!(world.disk.image(a).as_deref(), Some(&b"ab\0\0\0"[..]));
    // Others have written behind it since: it may be done twice.
    world.write(&mut client, a, 8, b"c").unwrap();
    world.call(&mut client, set_size(a, 5, 7)).unwrap();
    assert_eq!(attr(&mut world, &mut client, a).size, 9);
    // It comes when the object was cut by a later version.
    let punch = OstRequest::Punch { object: a, size: 1, version: 9 };
    world.call(&mut mdt, punch).unwrap();
    world.call(&mut client, set_size(a, 5, 8)).unwrap();
    assert_eq!(world.disk.image(a).as_deref(), Some(&b"a"[..]));
    world.call(&mut client, set_size(a, 2, 9)).unwrap();
    assert_eq!(world.disk.image(a).as_deref(), Some(&b"a\0"[..]));
    // It makes an object, with its record, also an empty one.
    world.call(&mut client, set_size(b, 0, 1)).unwrap();
    assert_eq!(world.disk.image(b).as_deref(), Some(&b""[..]));
    world.sync(&mut client, vec![a, b]).unwrap();
    world.crash();
    world.connect(&mut client);
    assert_eq!(world.disk.image(a).as_deref(), Some(&b"a\0"[..]));
    assert_eq!(world.disk.image(b).as_deref(), Some(&b""[..]));
}

#[test]
fn what_was_appended_and_grew_is_synced_at_a_stop() {
    for seed in 1..=10 {
        let mut world = World::new(seed, 64 * MIB);
        let mut client = world.client(1);
        let (a, b) = (object(1, 0), object(2, 0));
        appended(&mut world, &mut client, a, b"appended").unwrap();
        world.call(&mut client, set_size(b, 3, 1)).unwrap();
        assert_eq!(world.stop(), Ending::Clean);
        assert_eq!(world.disk.given_synced(), 1, "and what was given away");
        world.crash();
        assert_eq!(world.disk.image(a).as_deref(), Some(&b"appended"[..]));
        assert_eq!(world.disk.image(b).as_deref(), Some(&[0; 3][..]));
    }
}

#[test]
fn times_are_told_and_set() {
    let mut world = World::new(1, 64 * MIB);
    let mut client = world.client(1);
    let a = object(1, 0);
    let none = attr(&mut world, &mut client, a);
    assert_eq!(none, ObjectAttr { object: a, ..ObjectAttr::default() });
    world.write(&mut client, a, 0, b"x").unwrap();
    let born = attr(&mut world, &mut client, a);
    assert!(born.mtime.sec > 0 && born.ctime.sec > 0 && born.atime.sec > 0, "{born:?}");
    let (atime, mtime) = (Timespec { sec: 5, nsec: 6 }, Timespec { sec: -7, nsec: 8 });
    let mut set = |world: &mut World, atime, mtime| {
        let request = OstRequest::SetTimes { object: a, atime, mtime };
        assert_eq!(world.call(&mut client, request), Ok(OstReply::Done));
        attr(world, &mut client, a)
    };
    let after = set(&mut world, Some(atime), None);
    assert_eq!((after.atime, after.mtime), (atime, born.mtime));
    assert!(after.ctime >= born.ctime);
    let after = set(&mut world, None, Some(mtime));
    assert_eq!((after.atime, after.mtime), (atime, mtime));
    let other = OstRequest::SetTimes { object: object(9, 0), atime: None, mtime: Some(mtime) };
    assert_eq!(world.call(&mut client, other), Ok(OstReply::Done));
    assert_eq!(world.disk.image(object(9, 0)), None, "it is not made by that");
}

#[test]
fn who_has_an_object_is_asked_of_the_store() {
    let mut world = World::new(1, 64 * MIB);
    let mut client = world.client(1);
    let a = object(1, 0);
    let alone = OstRequest::Alone { object: a };
    assert_eq!(world.call(&mut client, alone.clone()), Ok(OstReply::Alone { alone: true }));
    world.write(&mut client, a, 0, b"x").unwrap();
    world.disk.somebody_has(Some(a));
    assert_eq!(world.call(&mut client, alone.clone()), Ok(OstReply::Alone { alone: false }));
    world.disk.somebody_has(None);
    assert_eq!(world.call(&mut client, alone), Ok(OstReply::Alone { alone: true }));
}

/// An append has no place before it is done: what comes after it waits, and it for what came before.
#[test]
fn an_append_is_done_in_its_turn() {
    let mut world = World::new(1, 64 * MIB);
    let mut client = world.client(1);
    let a = object(1, 0);
    world.write(&mut client, a, 0, b"begin").unwrap();
    world.settle();
    let read = OstRequest::Read { object: a, offset: 0, len: 100 };
    let before = world.send(&mut client, read.clone(), Bulk::None);
    assert_eq!(world.hold_objects(), 1);
    let (request, bulk) = append(a, 1, b"ned");
    let append = world.send(&mut client, request, bulk);
    world.settle();
    assert!(!world.has(append), "somebody reads what it may add to");
    let (request, bulk) = write(a, 1, 5, b"N");
    let write = world.send(&mut client, request, bulk);
    let behind = world.send(&mut client, read, Bulk::None);
    world.release();
    world.settle();
    let Bulk::Data(first) = world.wait(before).1 else { panic!("bytes") };
    let Bulk::Data(then) = world.wait(behind).1 else { panic!("bytes") };
    assert_eq!((&first[..], &then[..]), (&b"begin"[..], &b"beginNed"[..]));
    assert!(world.has(append) && world.has(write));
}

/// Whoever comes with an older layout than a size that was set is refused, also if the object was
/// large enough.
#[test]
fn a_size_of_a_newer_layout_is_remembered() {
    let mut world = World::new(1, 64 * MIB);
    let (mut client, mut mdt) = (world.client(1), world.mdt());
    let (a, b) = (object(1, 0), object(1, 1));
    world.write(&mut client, a, 0, b"abc").unwrap();
    let newer = |object, version| OstRequest::SetSize { object, layout_gen: 2, size: 1, version };
    world.call(&mut client, newer(a, 1)).unwrap();
    assert_eq!(world.write(&mut client, a, 0, b"x").unwrap_err(), Errno::ESTALE);
    assert_eq!(world.disk.image(a).as_deref(), Some(&b"abc"[..]));
    // Also if it comes late.
    world.write(&mut client, b, 0, b"abc").unwrap();
    world.call(&mut mdt, OstRequest::Punch { object: b, size: 2, version: 9 }).unwrap();
    world.call(&mut client, newer(b, 8)).unwrap();
    assert_eq!(world.write(&mut client, b, 0, b"x").unwrap_err(), Errno::ESTALE);
    // What a crash has lost is not made by it: it may have been removed since.
    let c = object(3, 0);
    world.deliver(message(&client, CLAIM_SLOT, 1, Request::Ost(set_size(c, 9, 1)), Bulk::None));
    let told = world.wait((client.client, CLAIM_SLOT, 1)).0;
    assert_eq!(unpack(told), Err(Errno::ESTALE));
    assert_eq!(world.disk.image(c), None);
}

#[test]
fn times_that_the_store_refuses_stop_no_ost() {
    let mut world = World::new(1, 64 * MIB);
    let mut client = world.client(1);
    let a = object(1, 0);
    world.write(&mut client, a, 0, b"x").unwrap();
    world.disk.refuses_times.store(true, std::sync::atomic::Ordering::Relaxed);
    let times = OstRequest::SetTimes { object: a, atime: None, mtime: Some(Timespec::default()) };
    assert!(world.call(&mut client, times).is_err());
    world.write(&mut client, a, 0, b"y").unwrap();
    world.sync(&mut client, vec![a]).unwrap();
}

/// A write sets a time, too: which of the two was later must be seen.
#[test]
fn times_are_set_in_their_turn() {
    let mut world = World::new(1, 64 * MIB);
    let mut client = world.client(1);
    let a = object(1, 0);
    world.write(&mut client, a, 0, b"x").unwrap();
    world.settle();
    let (request, bulk) = write(a, 1, 5, b"y");
    let before = world.send(&mut client, request, bulk);
    assert_eq!(world.hold_objects(), 1);
    let mtime = Timespec { sec: 7, nsec: 8 };
    let times = OstRequest::SetTimes { object: a, atime: None, mtime: Some(mtime) };
    let times = world.send(&mut client, times, Bulk::None);
    world.settle();
    assert!(!world.has(times), "a write is under way");
    world.release();
    world.settle();
    assert!(world.has(before) && world.has(times));
    assert_eq!(attr(&mut world, &mut client, a).mtime, mtime);
}

//! What an OST answers, request by request.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "test code")]

mod common;

use bytes::{BufMut, Bytes, BytesMut};
use common::{Peer, World, message, object, unpack, write};
use sateen_types::{ClientId, Errno, Fid, ObjectId, Seq, seq};
use sateen_wire::{Bulk, CLAIM_SLOT, OstReply, OstRequest, Request};

const MIB: u64 = 1 << 20;

fn size(world: &mut World, peer: &mut Peer, object: ObjectId) -> u64 {
    match world.call(peer, OstRequest::GetAttr { objects: vec![object] }) {
        Ok(OstReply::Objects(attrs)) => attrs[0].size,
        other => panic!("{other:?}"),
    }
}

/// Of 100 bytes of 7, those from 10 to 60 are a hole.
fn has_hole(world: &mut World, peer: &mut Peer, object: ObjectId) {
    let read = OstRequest::Read { object, offset: 0, len: 100 };
    let ticket = world.send(peer, read, Bulk::Buffer(BytesMut::with_capacity(100)));
    let (_, Bulk::Buffer(found)) = world.wait(ticket) else { panic!("bytes") };
    assert_eq!(
        (&found[..10], &found[10..60], &found[60..]),
        (&[7; 10][..], &[0; 50][..], &[7; 40][..])
    );
}

#[test]
fn objects_are_born_written_read_and_listed() {
    let mut world = World::new(1, 64 * MIB);
    let mut client = world.client(1);
    let (a, b) = (object(1, 0), object(1, 3));
    assert_eq!(size(&mut world, &mut client, a), 0);
    let written = world.write(&mut client, a, 4, b"hello").unwrap();
    assert!(matches!(written, OstReply::Written { len: 5, boot_epoch: 1, .. }));
    world.write(&mut client, b, 0, b"other").unwrap();
    assert_eq!(size(&mut world, &mut client, a), 9);

    // A reader's buffer keeps what it held, and comes back in the same shape.
    let mut buffer = BytesMut::with_capacity(64);
    buffer.put_slice(b"head");
    let request = OstRequest::Read { object: a, offset: 2, len: 64 };
    let ticket = world.send(&mut client, request.clone(), Bulk::Buffer(buffer));
    let (reply, bulk) = world.wait(ticket);
    assert_eq!(unpack(reply), Ok(OstReply::Read { len: 7 }));
    assert_eq!(bulk, Bulk::Buffer(BytesMut::from(&b"head\0\0hello"[..])));
    let ticket = world.send(&mut client, request, Bulk::None);
    assert_eq!(world.wait(ticket).1, Bulk::Data(Bytes::from_static(b"\0\0hello")));

    let seq = Seq(0x2_0000_0400);
    for request in [
        OstRequest::List { seq, from_oid: 0, count: 10 },
        OstRequest::GetAttr { objects: vec![a, b] },
    ] {
        let Ok(OstReply::Objects(attrs)) = world.call(&mut client, request) else { panic!() };
        let all: Vec<_> = attrs.iter().map(|attr| (attr.object, attr.size)).collect();
        assert_eq!(all, [(a, 9), (b, 5)]);
    }
    let behind = OstRequest::List { seq, from_oid: 2, count: 10 };
    assert_eq!(world.call(&mut client, behind), Ok(OstReply::Objects(Vec::new())));
    let hole = OstRequest::Seek { object: a, offset: 0, hole: true };
    assert_eq!(world.call(&mut client, hole), Ok(OstReply::Offset { offset: Some(9) }));
    let data = OstRequest::Seek { object: a, offset: 9, hole: false };
    assert_eq!(world.call(&mut client, data), Ok(OstReply::Offset { offset: None }));
}

#[test]
fn impossible_requests_are_refused() {
    let mut world = World::new(1, 64 * MIB);
    let mut client = world.client(1);
    let a = object(1, 0);
    assert_eq!(world.write(&mut client, a, i64::MAX as u64, b"x"), Err(Errno::EFBIG));
    assert_eq!(world.write(&mut client, a, u64::MAX, b"xx"), Err(Errno::EFBIG));
    // A disk that says EINVAL would stop the target.
    let offset = 1 << 63;
    for request in [
        OstRequest::Read { object: a, offset, len: 1 },
        OstRequest::Seek { object: a, offset, hole: false },
    ] {
        assert_eq!(world.call(&mut client, request), Err(Errno::EINVAL));
    }
    let (no_bulk, _) = write(a, 1, 0, b"");
    assert_eq!(world.call(&mut client, no_bulk), Err(Errno::EPROTO));
    let huge = OstRequest::Read { object: a, offset: 0, len: u32::MAX };
    assert_eq!(world.call(&mut client, huge), Err(Errno::EINVAL));
    let none = OstRequest::List { seq: Seq(0x2_0000_0400), from_oid: 0, count: 0 };
    assert_eq!(world.call(&mut client, none), Err(Errno::EINVAL));
    let nobody = ObjectId::default();
    assert_eq!(world.write(&mut client, nobody, 0, b"x"), Err(Errno::EINVAL));
    let many = OstRequest::GetAttr { objects: vec![a; 5000] };
    assert_eq!(world.call(&mut client, many), Err(Errno::E2BIG));
    for request in [
        OstRequest::Destroy { objects: vec![a], late_writers: false },
        OstRequest::Punch { object: a, size: 0, version: 9 },
        OstRequest::Fence { client: client.client },
    ] {
        assert_eq!(world.call(&mut client, request), Err(Errno::EPERM), "clients must not");
    }
    let mut mdt = world.mdt();
    let first = seq::super_first(1, 0).unwrap();
    let others = ObjectId { fid: Fid::new(first, 1), stripe: 0 };
    world.write(&mut client, others, 0, b"x").unwrap();
    for request in [
        OstRequest::Destroy { objects: vec![a, others], late_writers: false },
        OstRequest::Punch { object: others, size: 0, version: 9 },
    ] {
        assert_eq!(world.call(&mut mdt, request), Err(Errno::EPERM), "it is another MDT's file");
    }
    assert_eq!(size(&mut world, &mut client, others), 1);
}

#[test]
fn a_layout_that_has_passed_is_refused() {
    let mut world = World::new(1, 64 * MIB);
    let mut client = world.client(1);
    let a = object(1, 0);
    let mut put = |world: &mut World, layout_gen| {
        let (request, bulk) = write(a, layout_gen, 0, b"x");
        let ticket = world.send(&mut client, request, bulk);
        unpack(world.wait(ticket).0).map(|_| ())
    };
    assert_eq!(put(&mut world, 2), Ok(()));
    assert_eq!(put(&mut world, 1), Err(Errno::ESTALE));
    assert_eq!(put(&mut world, 3), Ok(()));
    assert_eq!(put(&mut world, 2), Err(Errno::ESTALE));
}

#[test]
fn nobody_overtakes_what_cuts() {
    for seed in sateen_testkit::seeds(50) {
        println!("SEED={seed}");
        let mut world = World::new(seed, 64 * MIB);
        let (mut client, mut mdt) = (world.client(1), world.mdt());
        let a = object(1, 0);
        let mut send = |world: &mut World, offset, data: &[u8]| {
            let (request, bulk) = write(a, 1, offset, data);
            world.send(&mut client, request, bulk)
        };
        send(&mut world, 0, b"aaaa");
        send(&mut world, 4, b"bbbb");
        let cut = OstRequest::Punch { object: a, size: 2, version: 5 };
        world.send(&mut mdt, cut.clone(), Bulk::None);
        send(&mut world, 6, b"cc");
        world.send(&mut mdt, cut, Bulk::None);
        world.settle();
        assert_eq!(world.disk.image(a).as_deref(), Some(&b"aa\0\0\0\0cc"[..]));

        send(&mut world, 0, b"zz");
        let destroy = OstRequest::Destroy { objects: vec![a, a], late_writers: false };
        let ticket = world.send(&mut mdt, destroy, Bulk::None);
        world.settle();
        assert_eq!(unpack(world.wait(ticket).0), Ok(OstReply::Done));
        assert_eq!(world.disk.image(a), None);
    }
}

/// A file has a place on every OST, and objects on few.
#[test]
fn the_removal_of_what_never_was_is_no_transaction() {
    let mut world = World::new(1, 64 * MIB);
    let (mut client, mut mdt) = (world.client(1), world.mdt());
    let (a, b) = (object(1, 0), object(1, 1));
    world.write(&mut client, a, 0, b"x").unwrap();
    let mut destroy = |world: &mut World, objects: &[ObjectId]| {
        let request = OstRequest::Destroy { objects: objects.to_vec(), late_writers: false };
        let ticket = world.send(&mut mdt, request, Bulk::None);
        let reply = world.wait(ticket).0;
        (unpack(reply.clone()), reply.transno)
    };
    assert_eq!(destroy(&mut world, &[b]), (Ok(OstReply::Done), 0));
    let (done, transno) = destroy(&mut world, &[b, a]);
    assert!(done == Ok(OstReply::Done) && transno > 0, "{done:?} {transno}");
    assert_eq!(world.disk.image(a), None);
    assert_eq!(destroy(&mut world, &[a, b]), (Ok(OstReply::Done), 0), "it is gone");
    world.crash();
    world.connect(&mut client);
    assert_eq!(world.disk.image(a), None);
}

#[test]
fn a_sync_of_an_earlier_boot_fails() {
    let mut world = World::new(1, 64 * MIB);
    let mut client = world.client(1);
    let a = object(1, 0);
    world.write(&mut client, a, 0, b"x").unwrap();
    let sync = |boot_epoch| OstRequest::Sync { objects: vec![a], boot_epoch };
    assert_eq!(world.call(&mut client, sync(1)), Ok(OstReply::Done));
    assert!(world.flushes > 0, "the record of the new object is durable, too");
    world.crash();
    assert_eq!(world.connect(&mut client), None);
    assert_eq!(world.call(&mut client, sync(1)), Err(Errno::EIO));
    assert_eq!(world.call(&mut client, sync(2)), Ok(OstReply::Done));
    assert_eq!(world.call(&mut client, sync(0)), Ok(OstReply::Done));
}

#[test]
fn a_range_that_is_emptied_keeps_its_space() {
    let mut world = World::new(1, 16 * MIB);
    let mut one = world.client(1);
    let a = object(1, 0);
    world.write(&mut one, a, 0, &[7; 100]).unwrap();
    let zero = |offset, len, keep_size, layout_gen| OstRequest::ZeroRange {
        object: a,
        layout_gen,
        offset,
        len,
        keep_size,
    };
    assert_eq!(world.call(&mut one, zero(10, 50, false, 1)), Ok(OstReply::Done));
    has_hole(&mut world, &mut one, a);
    assert_eq!(world.call(&mut one, zero(90, 200, true, 1)), Ok(OstReply::Done));
    assert_eq!(size(&mut world, &mut one, a), 100);
    assert_eq!(world.call(&mut one, zero(90, 200, false, 1)), Ok(OstReply::Done));
    assert_eq!(size(&mut world, &mut one, a), 290);
    assert_eq!(world.call(&mut one, zero(0, 0, false, 1)), Err(Errno::EINVAL));
    assert_eq!(world.call(&mut one, zero(0, 20 * MIB, false, 1)), Err(Errno::ENOSPC));
    // Whoever comes with an older layout is too late, also for an object that is not there yet.
    assert_eq!(world.call(&mut one, zero(0, 10, false, 2)), Ok(OstReply::Done));
    assert_eq!(world.call(&mut one, zero(0, 10, false, 1)), Err(Errno::ESTALE));
}

/// The bytes are there, but the record that was to be journaled with them is not.
#[test]
fn a_hole_is_punched_into_what_a_killed_process_left() {
    let mut world = World::new(1, 64 * MIB);
    let (mut one, a) = (world.client(1), object(1, 0));
    world.write(&mut one, a, 0, &[7; 100]).unwrap();
    world.kill();
    world.connect(&mut one);
    assert_eq!(size(&mut world, &mut one, a), 100);
    let (object, layout_gen, offset, len) = (a, 1, 10, 50);
    let (punch_hole, keep_size) = (true, true);
    let punch = OstRequest::Allocate { object, layout_gen, offset, len, punch_hole, keep_size };
    assert_eq!(world.call(&mut one, punch), Ok(OstReply::Done));
    has_hole(&mut world, &mut one, a);
}

#[test]
fn what_must_be_durable_waits_for_the_journal() {
    let mut world = World::new(1, 64 * MIB);
    let (mut client, mut mdt) = (world.client(1), world.mdt());
    world.settle();
    let a = object(1, 0);
    let (request, bulk) = write(a, 1, 0, b"x");
    let written = world.send(&mut client, request, bulk);
    world.settle_objects();
    assert!(world.has(written), "a write need not");
    let sync = OstRequest::Sync { objects: vec![a], boot_epoch: 0 };
    let cut = OstRequest::Punch { object: a, size: 0, version: 4 };
    let tickets = [
        world.send(&mut client, sync, Bulk::None),
        world.send(&mut mdt, cut.clone(), Bulk::None),
        world.send(&mut mdt, cut, Bulk::None),
        world.send(
            &mut mdt,
            OstRequest::Destroy { objects: vec![object(2, 0)], late_writers: false },
            Bulk::None,
        ),
        world.send(&mut mdt, OstRequest::Fence { client: ClientId(77) }, Bulk::None),
    ];
    world.settle_objects();
    assert!(tickets.iter().all(|ticket| !world.has(*ticket)));
    world.settle();
    assert!(tickets.iter().all(|ticket| world.has(*ticket)));
}

#[test]
fn writers_without_a_connection_are_refused() {
    let mut world = World::new(1, 64 * MIB);
    let mut client = world.client(1);
    let a = object(1, 0);
    let (request, bulk) = write(a, 1, 0, b"late");
    let late = message(&client, 900, 1, Request::Ost(request), bulk);
    world.crash();
    world.deliver(late.clone());
    assert_eq!(unpack(world.wait((client.client, 900, 1)).0), Err(Errno::ESTALE));
    world.connect(&mut client);
    world.deliver(late.clone());
    world.settle();
    assert_eq!(world.disk.image(a), None, "a message of an earlier boot is dropped");

    let old = message(&client, 901, 1, late_body(&late), late.bulk.clone());
    world.deliver(message(&client, 0, 1, Request::Disconnect, Bulk::None));
    world.connect(&mut client);
    world.deliver(old);
    world.settle();
    assert_eq!(world.disk.image(a), None, "so is one of an earlier connection");
}

fn late_body(message: &sateen_wire::Message) -> Request {
    match &message.body {
        sateen_wire::Body::Request(request) => request.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_queued_dies_with_its_client() {
    let mut world = World::new(1, 64 * MIB);
    let (mut client, mut mdt) = (world.client(1), world.mdt());
    let a = object(1, 0);
    world.write(&mut client, a, 0, b"aaaa").unwrap();
    world.send(&mut mdt, OstRequest::Punch { object: a, size: 1, version: 3 }, Bulk::None);
    let (request, bulk) = write(a, 1, 0, b"bbbb");
    let ticket = world.send(&mut client, request, bulk);
    world.deliver(message(&client, 999, 1, Request::Disconnect, Bulk::None));
    world.settle();
    assert!(!world.has(ticket), "nobody is there to be answered");
    assert_eq!(world.disk.image(a).as_deref(), Some(&b"a"[..]));
}

#[test]
fn nobody_reads_beyond_the_end_of_all_objects() {
    let mut world = World::new(1, 64 * MIB);
    let mut client = world.client(1);
    let a = object(1, 0);
    world.write(&mut client, a, 0, b"x").unwrap();
    let mut read =
        |offset, len| world.call(&mut client, OstRequest::Read { object: a, offset, len });
    let end = i64::MAX as u64;
    for (offset, len) in [(end - 1, 4096), (end, 2)] {
        assert_eq!(read(offset, len), Ok(OstReply::Read { len: 0 }));
    }
    assert_eq!(read(end + 1, 1), Err(Errno::EINVAL));
    assert_eq!(read(0, 4096), Ok(OstReply::Read { len: 1 }));
}

#[test]
fn nothing_is_kept_for_whom_a_client_was_before() {
    let mut world = World::new(1, 64 * MIB);
    let mut before = world.client(1);
    let a = object(1, 0);
    world.write(&mut before, a, 0, b"x").unwrap();
    // It was thrown out, perhaps by an MDT that this OST has not heard of yet.
    let mut after = before;
    after.client = ClientId(2);
    assert_eq!(world.connect(&mut after), None);
    let exports: Vec<ClientId> = world.ost.exports().map(|(client, ..)| client).collect();
    assert_eq!(exports, [after.client]);
    assert_eq!(world.write(&mut before, a, 0, b"late"), Err(Errno::ESTALE));
    assert!(world.write(&mut after, a, 0, b"y").is_ok());
    // A connect of then that the network had kept.
    let mut late = message(&before, 0, 0, Request::Connect { features: 0 }, Bulk::None);
    late.header.seq = before.attempt;
    world.deliver(late);
    world.settle();
    assert_eq!(world.ost.exports().count(), 1);
    assert!(world.write(&mut after, a, 0, b"z").is_ok());
}

#[test]
fn a_late_connect_of_an_mdt_that_has_restarted_takes_nothing_from_it() {
    let mut world = World::new(1, 64 * MIB);
    let mut before = world.mdt();
    let mut now = before;
    (now.client, now.attempt) = (ClientId(before.client.0 + 1), 0);
    assert_eq!(world.connect(&mut now), None);
    // The network had kept it.
    assert_eq!(world.connect(&mut before), None);
    assert_eq!(world.call(&mut now, OstRequest::Fence { client: ClientId(5) }), Ok(OstReply::Done));
}

#[test]
fn a_fence_waits_for_what_is_under_way_and_holds_for_ever() {
    for seed in sateen_testkit::seeds(50) {
        println!("SEED={seed}");
        let mut world = World::new(seed, 64 * MIB);
        let (mut client, mut mdt) = (world.client(1), world.mdt());
        let a = object(1, 0);
        let first = write(a, 1, 0, b"first");
        let under_way = world.send(&mut client, first.0, first.1);
        let fence = OstRequest::Fence { client: client.client };
        assert_eq!(world.call(&mut mdt, fence), Ok(OstReply::Done));
        let then = world.disk.image(a);
        assert!(!world.has(under_way));
        let (request, bulk) = write(a, 1, 0, b"later");
        let ticket = world.send(&mut client, request, bulk);
        assert_eq!(unpack(world.wait(ticket).0), Err(Errno::ESTALE));
        world.settle();
        assert_eq!(world.disk.image(a), then, "nothing happens after the answer");
        assert_eq!(world.connect(&mut client), Some(Errno::ESTALE));
        world.crash();
        assert_eq!(world.connect(&mut client), Some(Errno::ESTALE), "not after a restart");
        world.client(2);
    }
}

/// Nor is anybody answered whose sync or read ends after the fence.
#[test]
fn a_fence_waits_for_no_sync_and_no_read() {
    let mut world = World::new(1, 64 * MIB);
    let (mut client, mut mdt) = (world.client(1), world.mdt());
    let a = object(1, 0);
    assert!(world.write(&mut client, a, 0, b"first").is_ok());
    let sync = OstRequest::Sync { objects: vec![a], boot_epoch: 1 };
    let read = OstRequest::Read { object: a, offset: 0, len: 5 };
    let tickets = [sync, read].map(|request| world.send(&mut client, request, Bulk::None));
    assert!(world.hold_objects() >= 2);
    let (request, bulk) = write(a, 1, 0, b"other");
    world.send(&mut client, request, bulk);
    let fence = OstRequest::Fence { client: client.client };
    let fence = world.send(&mut mdt, fence, Bulk::None);
    assert!(!world.has(fence), "there is a write under way");
    assert_eq!(unpack(world.wait(fence).0), Ok(OstReply::Done));
    world.release();
    world.settle();
    assert!(tickets.into_iter().all(|ticket| !world.has(ticket)));
}

#[test]
fn a_dead_object_is_not_raised_while_a_writer_of_its_time_is_left() {
    for seed in sateen_testkit::seeds(20) {
        println!("SEED={seed}");
        let mut world = World::new(seed, 64 * MIB);
        let (mut one, mut two, mut mdt) = (world.client(1), world.client(2), world.mdt());
        let a = object(1, 0);
        world.write(&mut one, a, 0, b"alive").unwrap();
        assert_eq!(
            world.call(&mut mdt, OstRequest::Fence { client: one.client }),
            Ok(OstReply::Done)
        );
        let destroy = |late_writers| OstRequest::Destroy { objects: vec![a], late_writers };
        assert_eq!(world.call(&mut mdt, destroy(true)), Ok(OstReply::Done));
        let mut young = world.client(3);
        assert_eq!(world.call(&mut mdt, destroy(false)), Ok(OstReply::Done));
        for peer in [&mut two, &mut young] {
            assert_eq!(world.write(peer, a, 0, b"x"), Err(Errno::ESTALE));
        }
        if seed % 2 == 0 {
            world.start_checkpoint();
            world.settle();
        }
        world.crash();
        assert_eq!(world.connect(&mut two), None);
        assert_eq!(world.connect(&mut young), None);
        assert_eq!(world.write(&mut two, a, 0, b"x"), Err(Errno::ESTALE), "after a restart");
        assert_eq!(world.disk.image(a), None);
        // The MDT's repetition after its own crash is harmless.
        world.connect(&mut mdt);
        assert_eq!(world.call(&mut mdt, destroy(true)), Ok(OstReply::Done));
        world.deliver(message(&two, 999, 1, Request::Disconnect, Bulk::None));
        for _ in 0..20 {
            world.tick();
            world.settle();
        }
        assert_eq!(world.write(&mut young, a, 0, b"x"), Err(Errno::ESTALE), "it was there, too");
        world.deliver(message(&young, 999, 1, Request::Disconnect, Bulk::None));
        for _ in 0..20 {
            world.tick();
            world.settle();
        }
        let mut new = world.client(9);
        assert!(world.write(&mut new, a, 0, b"x").is_ok(), "nobody can know it any more");
    }
}

#[test]
fn tombstones_of_writers_who_do_not_come_back_go_in_time() {
    let mut world = World::new(3, 64 * MIB);
    let (mut mdt, _silent) = (world.mdt(), world.client(2));
    let objects: Vec<_> = (1..=700).map(|oid| object(oid, 0)).collect();
    let destroy = OstRequest::Destroy { objects: objects.clone(), late_writers: true };
    assert_eq!(world.call(&mut mdt, destroy), Ok(OstReply::Done));
    world.start_checkpoint();
    world.settle();
    world.crash();
    let mut new = world.client(9);
    assert_eq!(world.write(&mut new, objects[5], 0, b"x"), Err(Errno::ESTALE));
    world.now.mono_ns += 301_000_000_000;
    for _ in 0..20 {
        world.tick();
        world.settle();
    }
    for object in [objects[0], objects[255], objects[256], objects[699]] {
        assert!(world.write(&mut new, object, 0, b"x").is_ok(), "{object}");
    }
}

#[test]
fn a_write_brings_a_grant_for_the_next_while_there_is_plenty() {
    // Twice what it needed, so that it soon has enough for many.
    for (disk, expected) in [(1 << 40, 2 * MIB), (64 * MIB, 0)] {
        let mut world = World::new(1, disk);
        let mut peer = world.client(1);
        looks(&mut world);
        let block = vec![7u8; MIB as usize];
        match world.write(&mut peer, object(1, 0), 0, &block) {
            Ok(OstReply::Written { granted, .. }) => assert_eq!(granted, expected, "{disk}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_write_that_the_disk_has_no_room_for_says_how_much_it_took() {
    let mut world = World::new(1, 16 * MIB);
    let mut peer = world.client(1);
    let a = object(1, 0);
    let write = world.write(&mut peer, a, 16 * MIB - 4096, &[7; 8192]);
    match write {
        Ok(OstReply::Written { len, granted, .. }) => assert_eq!((len, granted), (4096, 0)),
        other => panic!("{other:?}"),
    }
    // Not refused: the object may have been born by then.
    let nothing = OstReply::Written { len: 0, boot_epoch: 1, granted: 0 };
    assert_eq!(world.write(&mut peer, a, 16 * MIB, &[7; 8192]), Ok(nothing));
}

/// The OST looks how much space there is.
fn looks(world: &mut World) {
    world.now.mono_ns += 10_000_000_000;
    world.tick();
    world.settle();
}

/// Writes over the same bytes of an object again and again, each time without the grant that the
/// write before brought; how much was promised in the end, which is so much or all that there is.
fn collect(world: &mut World, peer: &mut Peer, object: ObjectId, wanted: u64) -> u64 {
    let piece = vec![7; 16 << 10];
    let mut promised = 0;
    while promised < wanted {
        looks(world);
        match world.write(peer, object, 0, &piece) {
            Ok(OstReply::Written { granted: 0, .. }) => break,
            Ok(OstReply::Written { granted, .. }) => promised += granted,
            other => panic!("{other:?}"),
        }
    }
    promised
}

#[test]
fn space_is_promised_once_and_refused_early() {
    let mut world = World::new(1, 16 * MIB);
    let (mut one, mut two) = (world.client(1), world.client(2));
    let b = object(2, 0);
    let promised = collect(&mut world, &mut one, b, 3 * MIB);
    assert!(promised >= 2 * MIB, "{promised}");
    let a = object(1, 0);
    let block = vec![7u8; MIB as usize];
    let mut written = 0;
    let refused = loop {
        match world.write(&mut two, a, written, &block) {
            Ok(_) => written += MIB,
            Err(errno) => break errno,
        }
        assert!(written < 17 * MIB);
    };
    assert_eq!(refused, Errno::ENOSPC);
    assert!(written + promised < 16 * MIB, "the promise was left alone");
    assert!(written >= 11 * MIB, "{written}");
    assert!(world.write(&mut two, a, 0, &block).is_ok(), "overwriting takes no space");
    let full = OstRequest::Allocate {
        object: a,
        layout_gen: 1,
        offset: 0,
        len: 15 * MIB,
        punch_hole: false,
        keep_size: false,
    };
    assert_eq!(world.call(&mut two, full), Err(Errno::ENOSPC));
    // Whoever holds the promise can use it.
    for at in 0..promised / MIB {
        let request =
            OstRequest::Write { object: b, layout_gen: 1, offset: at * MIB, grant_used: MIB };
        let ticket = world.send(&mut one, request, Bulk::Data(Bytes::from(block.clone())));
        assert!(unpack(world.wait(ticket).0).is_ok());
    }
    // What is removed can be written again at once.
    let mut mdt = world.mdt();
    let destroy = OstRequest::Destroy { objects: vec![a], late_writers: false };
    assert_eq!(world.call(&mut mdt, destroy), Ok(OstReply::Done));
    assert!(world.write(&mut two, object(3, 0), 0, &block).is_ok());
    let Ok(OstReply::StatFs(statfs)) = world.call(&mut two, OstRequest::StatFs) else { panic!() };
    assert!(statfs.bytes_avail < statfs.bytes_total && statfs.bytes_avail > 10 * MIB);
}

#[test]
fn a_refused_write_uses_its_grant_up() {
    let mut world = World::new(1, 16 * MIB);
    let mut client = world.client(1);
    let a = object(1, 0);
    let (newer, bulk) = write(a, 2, 0, b"x");
    let ticket = world.send(&mut client, newer, bulk);
    unpack(world.wait(ticket).0).unwrap();
    let mut all_used_up = || {
        let promised = collect(&mut world, &mut client, object(2, 0), u64::MAX);
        let request =
            OstRequest::Write { object: a, layout_gen: 1, offset: 0, grant_used: promised };
        let ticket = world.send(&mut client, request, Bulk::Data(Bytes::from_static(b"x")));
        assert_eq!(unpack(world.wait(ticket).0), Err(Errno::ESTALE));
        promised
    };
    let first = all_used_up();
    assert!(first >= 2 * MIB, "{first}");
    assert_eq!(all_used_up(), first, "what was used up is promised to nobody");
}

fn allocate(object: ObjectId, offset: u64, len: u64) -> OstRequest {
    let (layout_gen, punch_hole, keep_size) = (1, false, false);
    OstRequest::Allocate { object, layout_gen, offset, len, punch_hole, keep_size }
}

/// How many 512-byte blocks an object has.
fn blocks(world: &mut World, peer: &mut Peer, object: ObjectId) -> u64 {
    match world.call(peer, OstRequest::GetAttr { objects: vec![object] }) {
        Ok(OstReply::Objects(objects)) => objects[0].blocks,
        other => panic!("{other:?}"),
    }
}

#[test]
fn of_two_ranges_that_do_not_fit_together_one_is_refused_before_it_takes_anything() {
    for seed in 1..20 {
        let mut world = World::new(seed, 16 * MIB);
        let (mut one, mut two) = (world.client(1), world.client(2));
        looks(&mut world);
        let (a, b) = (object(1, 0), object(2, 0));
        let first = world.send(&mut one, allocate(a, 0, 10 * MIB), Bulk::None);
        let second = world.send(&mut two, allocate(b, 0, 10 * MIB), Bulk::None);
        world.settle();
        assert_eq!(unpack(world.wait(first).0), Ok(OstReply::Done), "seed {seed}");
        assert_eq!(unpack(world.wait(second).0), Err(Errno::ENOSPC), "seed {seed}");
        assert_eq!(blocks(&mut world, &mut two, b), 0, "seed {seed}");
        // Two that do fit are both done, and nothing is left of what was to come.
        let both = [(3, &mut one), (4, &mut two)].map(|(oid, client)| {
            world.send(client, allocate(object(oid, 0), 0, 2 * MIB), Bulk::None)
        });
        world.settle();
        for ticket in both {
            assert_eq!(unpack(world.wait(ticket).0), Ok(OstReply::Done), "seed {seed}");
        }
    }
}

#[test]
fn what_was_to_come_of_a_range_does_not_when_nobody_waits_for_it_any_more() {
    let mut world = World::new(1, 16 * MIB);
    let (mut one, mut two) = (world.client(1), world.client(2));
    looks(&mut world);
    world.send(&mut one, allocate(object(1, 0), 0, 10 * MIB), Bulk::None);
    assert_eq!(world.allocations(), [(0, MIB, true)]);
    world.deliver(message(&one, 999, 1, Request::Disconnect, Bulk::None));
    world.settle();
    let second = world.call(&mut two, allocate(object(2, 0), 0, 12 * MIB));
    assert_eq!(second, Ok(OstReply::Done), "a piece of the first was done");
}

#[test]
fn a_range_is_allocated_in_pieces_and_grows_with_the_last() {
    let mut world = World::new(1, 16 * MIB);
    let mut client = world.client(1);
    world.settle();
    let a = object(1, 0);
    let ticket = world.send(&mut client, allocate(a, 100, 2 * MIB + 5), Bulk::None);
    let mut seen = Vec::new();
    while !world.has(ticket) {
        let now = world.allocations();
        if now.first() != seen.last() {
            seen.extend(now);
        }
        assert!(world.step());
    }
    let second = 100 + MIB;
    assert_eq!(seen, [(100, MIB, true), (second, MIB, true), (second + MIB, 5, false)]);
    assert_eq!(size(&mut world, &mut client, a), 100 + 2 * MIB + 5);
    // One of the length of a piece is a piece.
    let ticket = world.send(&mut client, allocate(object(2, 0), 0, MIB), Bulk::None);
    assert_eq!(world.allocations(), [(0, MIB, false)]);
    assert!(unpack(world.wait(ticket).0).is_ok());
}

#[test]
fn what_a_long_range_has_yet_to_take_others_may_have() {
    let mut world = World::new(1, 16 * MIB);
    let (mut one, mut two) = (world.client(1), world.client(2));
    world.settle();
    let (a, b) = (object(1, 0), object(2, 0));
    let ticket = world.send(&mut one, allocate(a, 0, 15 * MIB), Bulk::None);
    assert!(!world.allocations().is_empty());
    assert!(world.write(&mut two, b, 0, &vec![7; 2 * MIB as usize]).is_ok());
    // So there is too little for all of it, and nobody takes it for longer than it was.
    assert_eq!(unpack(world.wait(ticket).0), Err(Errno::ENOSPC));
    assert_eq!(size(&mut world, &mut one, a), 0);
}

#[test]
fn a_range_that_takes_no_space_takes_none_from_others() {
    let mut world = World::new(1, 16 * MIB);
    let (mut one, mut two) = (world.client(1), world.client(2));
    world.settle();
    let (a, b) = (object(1, 0), object(2, 0));
    let block = vec![7; MIB as usize];
    for at in 0..12 {
        world.write(&mut one, a, at * MIB, &block).unwrap();
    }
    // All of it is allocated, but whether it is takes two questions.
    let ticket = world.send(&mut one, allocate(a, 0, 12 * MIB), Bulk::None);
    assert!(world.write(&mut two, b, 0, &block).is_ok());
    while world.allocations().is_empty() {
        assert!(world.step());
    }
    assert!(world.write(&mut two, b, MIB, &block).is_ok());
    assert_eq!(unpack(world.wait(ticket).0), Ok(OstReply::Done));
    // Nor does one that is refused in the end.
    let ticket = world.send(&mut one, allocate(a, 0, i64::MAX as u64), Bulk::None);
    assert!(world.write(&mut two, b, 0, &block).is_ok());
    assert_eq!(unpack(world.wait(ticket).0), Err(Errno::ENOSPC));
}

#[test]
fn the_longest_range_is_refused_as_often_as_it_is_asked_for() {
    let mut world = World::new(1, 16 * MIB);
    let mut client = world.client(1);
    let a = object(1, 0);
    world.settle();
    for _ in 0..4 {
        let len = i64::MAX as u64;
        let request = OstRequest::Allocate {
            object: a,
            layout_gen: 1,
            offset: 0,
            len,
            punch_hole: false,
            keep_size: true,
        };
        assert_eq!(world.call(&mut client, request), Err(Errno::ENOSPC));
    }
    assert!(world.write(&mut client, a, 0, b"x").is_ok());
}

#[test]
fn a_poisoned_target_answers_everybody() {
    let mut world = World::new(1, 64 * MIB);
    let (mut client, mut mdt) = (world.client(1), world.mdt());
    let a = object(1, 0);
    let mut tickets = Vec::new();
    for n in 0..4 {
        let (request, bulk) = write(a, 1, n, b"x");
        tickets.push(world.send(&mut client, request, bulk));
        let cut = OstRequest::Punch { object: a, size: 0, version: n + 1 };
        tickets.push(world.send(&mut mdt, cut, Bulk::None));
        let destroy = OstRequest::Destroy { objects: vec![object(9, 0)], late_writers: false };
        tickets.push(world.send(&mut mdt, destroy, Bulk::None));
    }
    for _ in 0..3 {
        world.step();
    }
    world.poison();
    world.settle();
    let failed = tickets.iter().filter(|ticket| {
        let (reply, _) = &world.answers[ticket];
        reply.error == Some(Errno::EIO)
    });
    assert!(failed.count() >= 9);
    assert_eq!(world.connect(&mut client), Some(Errno::EIO));
}

/// A write that an OST had answered before a crash, told again.
fn tell_again(
    world: &mut World,
    peer: &Peer,
    seq: u64,
    object: ObjectId,
) -> Result<OstReply, Errno> {
    let (request, bulk) = write(object, 1, 0, b"again");
    world.deliver(message(peer, CLAIM_SLOT, seq, Request::Ost(request), bulk));
    unpack(world.wait((peer.client, CLAIM_SLOT, seq)).0)
}

#[test]
fn what_is_told_again_makes_no_object() {
    let mut world = World::new(7, 1 << 30);
    let (mut client, mut mdt) = (world.client(1), world.mdt());
    let (there, gone) = (object(1, 0), object(2, 0));
    for object in [there, gone] {
        world.write(&mut client, object, 0, b"first").unwrap();
        world.sync(&mut client, vec![object]).unwrap();
    }
    let destroy = OstRequest::Destroy { objects: vec![gone], late_writers: false };
    assert_eq!(world.call(&mut mdt, destroy), Ok(OstReply::Done));
    world.crash();
    assert_eq!(world.connect(&mut client), None);
    let written = tell_again(&mut world, &client, 1, there);
    assert!(
        matches!(written, Ok(OstReply::Written { len: 5, granted: 0, .. })),
        "{written:?}: nobody counts a grant"
    );
    assert_eq!(tell_again(&mut world, &client, 2, gone), Err(Errno::ESTALE));
    assert_eq!(tell_again(&mut world, &client, 3, object(3, 0)), Err(Errno::ESTALE));
    let all = OstRequest::List { seq: there.fid.seq, from_oid: 0, count: 9 };
    assert_eq!(world.connect(&mut mdt), None);
    let OstReply::Objects(all) = world.call(&mut mdt, all).unwrap() else { panic!("objects") };
    assert_eq!(all.iter().map(|attr| attr.object).collect::<Vec<_>>(), [there]);
}

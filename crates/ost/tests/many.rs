//! Pieces of an object that come in one request: all in their order, as far as there is room, or none.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "test code")]

mod common;

use bytes::Bytes;
use common::{Peer, World, message, object, unpack, write, write_many};
use sateen_types::{Errno, ObjectId};
use sateen_wire::{Bulk, CLAIM_SLOT, OstReply, OstRequest, Request, Span};

const MIB: u64 = 1 << 20;

fn write_pieces(
    world: &mut World,
    peer: &mut Peer,
    object: ObjectId,
    pieces: &[(u64, &[u8])],
) -> Result<OstReply, Errno> {
    let (request, bulk) = write_many(object, 1, pieces);
    let ticket = world.send(peer, request, bulk);
    unpack(world.wait(ticket).0)
}

fn written(reply: Result<OstReply, Errno>) -> u32 {
    match reply {
        Ok(OstReply::Written { len, .. }) => len,
        other => panic!("{other:?}"),
    }
}

#[test]
fn pieces_go_where_they_belong() {
    let mut world = World::new(1, 64 * MIB);
    let mut client = world.client(1);
    let a = object(1, 0);
    let pieces: [(u64, &[u8]); 4] = [(2, b"ab"), (4, b"c"), (7, b"def"), (20, b"g")];
    assert_eq!(written(write_pieces(&mut world, &mut client, a, &pieces)), 7);
    assert_eq!(world.disk.image(a).unwrap(), b"\0\0abc\0\0def\0\0\0\0\0\0\0\0\0\0g");
    let (_, _, _, stats) = world.ost.exports().next().unwrap();
    let mut text = String::new();
    stats.write(&sateen_ost::OST_STATS, &mut text).unwrap();
    assert_eq!(
        text,
        "write_bytes               1 samples [bytes] 7 7 7 49\n\
         write_many                1 samples [pieces] 4 4 4 16\n"
    );
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut world = World::new(1, 64 * MIB);
    let mut client = world.client(1);
    let a = object(1, 0);
    let far = i64::MAX as u64;
    type Pieces<'a> = &'a [(u64, u32)];
    let wrong: [(Pieces<'_>, u32, Errno); 9] = [
        (&[], 0, Errno::EINVAL),
        (&[(0, 0), (5, 1)], 1, Errno::EINVAL),
        (&[(5, 2), (0, 2)], 4, Errno::EINVAL),
        (&[(0, 2), (1, 2)], 4, Errno::EINVAL),
        (&[(0, 2), (5, 2)], 5, Errno::EINVAL),
        (&[(0, 2), (5, 2)], 3, Errno::EINVAL),
        (&[(0, 1), (u64::MAX, 1)], 2, Errno::EFBIG),
        (&[(0, 1), (far, 1)], 2, Errno::EFBIG),
        (&[(0, u32::MAX), (1 << 40, u32::MAX)], 2, Errno::EINVAL),
    ];
    let mut ask = |pieces: &[(u64, u32)], bulk: Bulk| {
        let spans = pieces.iter().map(|(offset, len)| Span { offset: *offset, len: *len });
        let pieces = spans.collect();
        let request = OstRequest::WriteMany { object: a, layout_gen: 1, pieces, grant_used: 0 };
        let ticket = world.send(&mut client, request, bulk);
        unpack(world.wait(ticket).0)
    };
    for (pieces, len, errno) in wrong {
        let bulk = Bulk::Data(Bytes::from(vec![7; len as usize]));
        assert_eq!(ask(pieces, bulk), Err(errno), "{pieces:?}");
    }
    assert_eq!(ask(&[(0, 1)], Bulk::None), Err(Errno::EPROTO));
    let many: Vec<(u64, u32)> = (0..65).map(|at| (2 * at, 1)).collect();
    let bulk = |len| Bulk::Data(Bytes::from(vec![7; len]));
    assert_eq!(ask(&many, bulk(65)), Err(Errno::EINVAL));
    assert!(ask(&many[1..], bulk(64)).is_ok());
}

#[test]
fn they_are_refused_as_one() {
    let mut world = World::new(1, 64 * MIB);
    let mut client = world.client(1);
    let a = object(1, 0);
    let (newer, bulk) = write(a, 2, 0, b"x");
    let ticket = world.send(&mut client, newer, bulk);
    unpack(world.wait(ticket).0).unwrap();
    let pieces: [(u64, &[u8]); 2] = [(0, b"a"), (5, b"b")];
    assert_eq!(write_pieces(&mut world, &mut client, a, &pieces), Err(Errno::ESTALE));
    assert_eq!(world.disk.image(a).unwrap(), b"x");
    // What is told again after a crash is told piece by piece.
    let (request, bulk) = write_many(a, 2, &pieces);
    world.deliver(message(&client, CLAIM_SLOT, 1, Request::Ost(request), bulk));
    let told = world.wait((client.client, CLAIM_SLOT, 1)).0;
    assert_eq!(unpack(told), Err(Errno::EINVAL));
}

#[test]
fn all_of_them_take_space() {
    let mut world = World::new(1, 64 * MIB);
    let mut client = world.client(1);
    world.now.mono_ns += 10_000_000_000;
    world.tick();
    world.settle();
    let before = world.ost.statfs().unwrap().bytes_avail;
    let pieces: [(u64, &[u8]); 3] = [(0, &[7; 1000]), (5000, &[7; 2000]), (9000, &[7; 4000])];
    let (request, bulk) = write_many(object(1, 0), 1, &pieces);
    let ticket = world.send(&mut client, request, bulk);
    assert_eq!(written(unpack(world.wait(ticket).0)), 7000);
    assert_eq!(world.ost.statfs().unwrap().bytes_avail, before - 7000);
}

#[test]
fn a_disk_that_is_full_between_two_says_how_much_it_took() {
    let (disk, page) = (64 << 10, [7; 4096]);
    // Where the second lies, and how much there is room for.
    for (second, len) in [(disk - 2048, 4096 + 2048), (disk, 4096), (2 * disk, 4096)] {
        let mut world = World::new(1, disk);
        let mut client = world.client(1);
        let a = object(1, 0);
        let pieces: [(u64, &[u8]); 3] =
            [(disk - 8192, &page), (second, &page), (second + 8192, &page)];
        let reply = write_pieces(&mut world, &mut client, a, &pieces);
        let Ok(OstReply::Written { len: took, granted, .. }) = reply else { panic!("{reply:?}") };
        assert_eq!((took, granted), (len, 0), "no more is promised");
        let image = world.disk.image(a).unwrap();
        let from = (disk - 8192) as usize;
        assert_eq!(image[from..from + 4096], page);
        assert!(image.len() as u64 <= disk);
        // If it is the first nothing was written, and the object may be born.
        let pieces: [(u64, &[u8]); 2] = [(2 * disk, &page), (3 * disk, &page)];
        assert_eq!(written(write_pieces(&mut world, &mut client, object(2, 0), &pieces)), 0);
    }
}

/// Of two requests whose pieces meet one comes first, whole; those that lie between each other's run side by
/// side.
#[test]
fn who_meets_one_of_them_waits() {
    for (second, together) in [(11, true), (19, false)] {
        let mut world = World::new(1, 64 * MIB);
        let (mut one, mut two) = (world.client(1), world.client(2));
        let a = object(1, 0);
        world.write(&mut one, a, 60, b"z").unwrap();
        let (request, bulk) = write_many(a, 1, &[(0, b"aaaaaaaaaa"), (20, b"aaaaaaaaaa")]);
        let first = world.send(&mut one, request, bulk);
        assert!(world.hold_objects() >= 1);
        let (request, bulk) = write_many(a, 1, &[(second, b"bb"), (40, b"b")]);
        let other = world.send(&mut two, request, bulk);
        world.settle_objects();
        assert_eq!(world.has(other), together);
        world.release();
        world.wait(first);
        if !together {
            world.wait(other);
            assert_eq!(world.disk.image(a).unwrap()[18..22], *b"\0bba");
        }
    }
}

//! Clients of which an OST hears nothing for long: their connections end, and nothing else.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "test code")]

mod common;

use common::{Peer, World, object, write};
use sateen_types::Errno;
use sateen_wire::{Bulk, OstReply, OstRequest};

const MIB: u64 = 1 << 20;
/// A step of time as an OST that is called all the while lives it: 100 ms.
const STEP_NS: u64 = 100_000_000;

/// Time goes by, in which the MDT asks for space now and then, as it does.
fn live(world: &mut World, mdt: &mut Peer, seconds: u64) {
    for step in 0..seconds * 10 {
        world.now.mono_ns += STEP_NS - 5_000_000;
        world.tick();
        if step % 20 == 0 {
            let ticket = world.send(mdt, OstRequest::StatFs, Bulk::None);
            world.settle_objects();
            world.answers.remove(&ticket);
        }
    }
}

#[test]
fn who_is_silent_is_disconnected_and_may_come_back() {
    let mut world = World::new(1, 1 << 40);
    let (mut idle, mut busy, mut mdt) = (world.client(1), world.client(2), world.mdt());
    live(&mut world, &mut mdt, 2);
    let block = vec![7u8; MIB as usize];
    let granted = |written: Result<OstReply, Errno>| match written {
        Ok(OstReply::Written { granted, .. }) => granted,
        other => panic!("{other:?}"),
    };
    assert!(granted(world.write(&mut idle, object(1, 0), 0, &block)) > 0);
    let (request, bulk) = write(object(2, 0), 1, 0, b"slow");
    let under_way = world.send(&mut busy, request, bulk);
    assert!(world.hold_objects() >= 1);
    live(&mut world, &mut mdt, 298);
    assert_eq!(world.ost.exports().count(), 3);
    live(&mut world, &mut mdt, 4);
    let left: Vec<_> = world.ost.exports().map(|(client, ..)| client).collect();
    assert_eq!(left, [busy.client, mdt.client], "who waits for an answer asks for it again");
    assert_eq!(world.ost.granted_to().count(), 0, "what it was promised others may have");
    world.release();
    assert!(world.wait(under_way).0.error.is_none());
    // It is not refused: it had nothing to ask.
    let (request, bulk) = write(object(1, 0), 1, 0, b"again");
    let ticket = world.send(&mut idle, request, bulk);
    assert_eq!(world.wait(ticket).0.error, Some(Errno::ESTALE));
    assert_eq!(world.connect(&mut idle), None);
    assert!(granted(world.write(&mut idle, object(1, 0), 0, &block)) > 0);
    live(&mut world, &mut mdt, 2);
    let left: Vec<_> = world.ost.exports().map(|(client, ..)| client).collect();
    assert_eq!(left, [idle.client, mdt.client], "the other asks for nothing any more");
}

#[test]
fn an_ost_that_did_not_listen_ends_no_connection() {
    let mut world = World::new(1, 64 * MIB);
    let (mut mdt, _client) = (world.mdt(), world.client(1));
    for _ in 0..10 {
        world.now.mono_ns += 600_000_000_000;
        world.tick();
    }
    // Nor does one that hears nobody.
    for _ in 0..6_000 {
        world.now.mono_ns += STEP_NS;
        world.tick();
    }
    assert_eq!(world.ost.exports().count(), 2);
    live(&mut world, &mut mdt, 290);
    assert_eq!(world.ost.exports().count(), 2);
}

//! Stops in good order: nothing is lost, whatever a crash of the machine would have taken.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "test code")]

mod common;

use common::{World, object, unpack, write};
use sateen_target::{Ending, Service};
use sateen_types::Errno;
use sateen_wire::{Bulk, OstRequest};

const MIB: u64 = 1 << 20;

fn sync(boot_epoch: u64) -> OstRequest {
    OstRequest::Sync { objects: vec![object(1, 0)], boot_epoch }
}

#[test]
fn what_was_written_is_there_and_a_sync_across_it_succeeds() {
    for seed in 1..=10 {
        let mut world = World::new(seed, 64 * MIB);
        let mut client = world.client(1);
        assert_eq!(world.follows, 0);
        for oid in 1..=20 {
            world.write(&mut client, object(oid, 0), 0, b"written").unwrap();
        }
        world.sync(&mut client, vec![object(3, 0)]).unwrap();
        assert_eq!(world.stop(), Ending::Clean);
        // Not a byte depends on the machine living on.
        world.crash();
        world.connect(&mut client);
        assert_eq!(world.follows, 1);
        for oid in 1..=20 {
            assert_eq!(world.disk.image(object(oid, 0)).as_deref(), Some(&b"written"[..]));
        }
        world.call(&mut client, sync(1)).unwrap();
        // Once more: the chain holds.
        world.write(&mut client, object(1, 0), 0, b"again").unwrap();
        assert_eq!(world.stop(), Ending::Clean);
        world.crash();
        world.connect(&mut client);
        assert_eq!(world.follows, 2);
        world.call(&mut client, sync(1)).unwrap();
        world.call(&mut client, sync(2)).unwrap();
        // A crash loses what was written in that run, and no more.
        world.write(&mut client, object(1, 0), 0, b"lost?").unwrap();
        world.crash();
        world.connect(&mut client);
        assert_eq!(world.follows, 2, "the run that ended so last, which is not the one before");
        assert_eq!(world.call(&mut client, sync(3)), Err(Errno::EIO));
        world.call(&mut client, sync(2)).unwrap();
    }
}

#[test]
fn what_was_begun_is_finished_and_nothing_is_begun() {
    let mut world = World::new(1, 64 * MIB);
    let mut client = world.client(1);
    world.settle();
    let (request, bulk) = write(object(1, 0), 1, 0, b"begun");
    let begun = world.send(&mut client, request, bulk);
    while world.hold_objects() == 0 {
        assert!(world.step());
    }
    world.begin_stop();
    let (request, bulk) = write(object(2, 0), 1, 0, b"late");
    let late = world.send(&mut client, request, bulk);
    let asked = world.send(&mut client, OstRequest::StatFs, Bulk::None);
    world.settle();
    assert_eq!(world.ost.ending(), Ending::Working);
    world.release();
    assert_eq!(world.stop(), Ending::Clean);
    assert!(unpack(world.wait(begun).0).is_ok());
    assert!(!world.has(late) && !world.has(asked));
    world.crash();
    assert_eq!(world.disk.image(object(1, 0)).as_deref(), Some(&b"begun"[..]));
}

#[test]
fn what_takes_too_long_ends_as_in_a_crash() {
    let mut world = World::new(1, 64 * MIB);
    let mut client = world.client(1);
    world.settle();
    let (request, bulk) = write(object(1, 0), 1, 0, b"slow");
    world.send(&mut client, request, bulk);
    while world.hold_objects() == 0 {
        assert!(world.step());
    }
    assert_eq!(world.stop(), Ending::Lost);
    world.crash();
    world.connect(&mut client);
    assert_eq!(world.follows, 0);
    assert_eq!(world.call(&mut client, sync(1)), Err(Errno::EIO));
    // Nor can one that a disk error has stopped.
    world.poison();
    assert_eq!(world.stop(), Ending::Lost);
}

#[test]
fn what_the_disk_has_of_a_run_that_was_killed_is_not_lost() {
    for seed in 1..=10 {
        let mut world = World::new(seed, 64 * MIB);
        let mut client = world.client(1);
        world.write(&mut client, object(1, 0), 0, b"in order").unwrap();
        assert_eq!(world.stop(), Ending::Clean);
        world.crash();
        world.connect(&mut client);
        world.write(&mut client, object(1, 0), 0, b"then killed").unwrap();
        world.kill_known(vec![2]);
        world.connect(&mut client);
        assert_eq!(world.follows, 2);
        // A client that has missed this one is told all the same.
        world.kill_known(vec![2, 3]);
        world.connect(&mut client);
        assert_eq!(world.follows, 3);
        for run in 1..=3 {
            world.call(&mut client, sync(run)).unwrap();
        }
        assert_eq!(world.disk.image(object(1, 0)).as_deref(), Some(&b"then killed"[..]));
        // A stop in good order writes down all of them.
        assert_eq!(world.stop(), Ending::Clean);
        world.crash();
        world.connect(&mut client);
        assert_eq!(world.follows, 4);
        for run in 1..=4 {
            world.call(&mut client, sync(run)).unwrap();
        }
        // And another kernel knows nothing of the run that it has not seen.
        world.write(&mut client, object(1, 0), 0, b"lost?").unwrap();
        world.crash();
        world.connect(&mut client);
        assert_eq!(world.follows, 4);
        assert_eq!(world.call(&mut client, sync(5)), Err(Errno::EIO));
    }
}

//! Objects of removed files go together, a while later: what the MDT does meanwhile, and what makes
//! them go before.

use sateen_target::{Ending, Pace, Service};
use sateen_types::{Fid, Layout};
use sateen_wire::*;

use crate::fsck;
use crate::harness::*;

const DELAY_MS: u64 = 1000;

/// One that waits for a second, over two OSTs, and rests.
fn gathering() -> World {
    let mut world = World::with_clients(2);
    world.gather_removals(DELAY_MS);
    world.rest();
    assert_eq!((world.mdt.pace(), world.mdt.is_idle()), (Pace::Rest, true));
    world
}

/// A file with an object on each OST.
fn file(world: &mut World, text: &str, size: u64) -> (Fid, Layout) {
    let before = world.objects();
    let (reply, id) = world.creat(A, ROOT, text, Ibits::META.union(Ibits::DATA));
    let ReplyBody::Mdt(MdtReply::Created { attr, layout: Some(layout), .. }) = reply.body else {
        panic!("{reply:?}")
    };
    world.write(&layout, attr.fid, size);
    world.close(A, attr.fid, id, Some(report(size, true)));
    assert_eq!(world.objects(), before + 2);
    (attr.fid, (*layout).clone())
}

fn removed(world: &mut World, text: &str) {
    world.ok(A, World::unlink_request(ROOT, text, false));
}

/// The requests that were to destroy something.
fn requests(world: &World) -> usize {
    let destroys = |request: &&OstRequest| matches!(request, OstRequest::Destroy { .. });
    world.osts.values().flat_map(|ost| &ost.seen).filter(destroys).count()
}

/// What was removed is durable, and waits.
#[track_caller]
fn waits(world: &mut World, objects: usize) {
    world.rest();
    assert_eq!(world.objects(), objects);
    assert_eq!(world.mdt.pace(), Pace::Rest, "nothing is to be done");
    assert!(!world.mdt.is_idle(), "and yet it is not over");
}

fn records(world: &World) -> usize {
    fsck::of(&fsck::image(&world.frames), b'U').count()
}

#[test]
fn they_go_together_with_the_tick_of_one_that_rests() {
    let mut world = gathering();
    for number in 0..10 {
        file(&mut world, &format!("f{number}"), 3 << 20);
        removed(&mut world, &format!("f{number}"));
        world.rest();
    }
    waits(&mut world, 20);
    assert_eq!((requests(&world), records(&world)), (0, 10));
    world.stand_still(Pace::Rest.ns() / 1_000_000);
    assert_eq!((world.objects(), requests(&world)), (0, 2), "each OST was asked once");
    world.rest();
    assert_eq!((world.mdt.pace(), world.mdt.is_idle()), (Pace::Rest, true));
    assert_eq!(records(&world), 0);
}

#[test]
fn a_large_file_goes_at_once() {
    let mut world = gathering();
    file(&mut world, "small", 3 << 20);
    removed(&mut world, "small");
    waits(&mut world, 2);
    // Both of its objects are large, and take the others along.
    file(&mut world, "large", 600 << 20);
    removed(&mut world, "large");
    world.rest();
    assert_eq!((world.objects(), world.mdt.is_idle()), (0, true));
}

#[test]
fn whoever_finds_no_room_does_not_wait_for_them() {
    let mut world = gathering();
    let (other, _) = file(&mut world, "other", 3 << 20);
    let (_, layout) = file(&mut world, "f", 3 << 20);
    let full = layout.components[0].osts[0];
    removed(&mut world, "f");
    waits(&mut world, 4);
    world.ok(A, MdtRequest::NoRoom { fid: other, ost: full, unwritten: false });
    assert!(world.mdt.pace() < Pace::Rest, "a tick is to come");
    world.tick(50);
    assert_eq!(world.osts[&full].objects.len(), 1);
    assert_eq!(world.objects(), 3, "the other OST has room");
}

#[test]
fn what_is_set_holds_for_those_that_wait() {
    let mut world = gathering();
    file(&mut world, "f", 3 << 20);
    removed(&mut world, "f");
    waits(&mut world, 2);
    world.mdt.set_destroy_delay_ns(0);
    assert_eq!((world.mdt.destroy_delay_ns(), world.mdt.pace()), (0, Pace::Slow));
    world.tick(50);
    assert_eq!(world.objects(), 0);
}

#[test]
fn an_end_in_good_order_leaves_none() {
    let mut world = gathering();
    file(&mut world, "waits", 3 << 20);
    removed(&mut world, "waits");
    waits(&mut world, 2);
    // Of this one not even the removal is durable.
    file(&mut world, "f", 3 << 20);
    world.keeps_flushes = true;
    removed(&mut world, "f");
    world.begin_stop();
    // Whatever somebody sets now.
    world.mdt.set_destroy_delay_ns(DELAY_MS * 1_000_000);
    world.keeps_flushes = false;
    assert_eq!(world.stop(), Ending::Clean);
    assert_eq!((world.objects(), records(&world)), (0, 0));
}

#[test]
fn an_end_waits_a_moment_for_an_ost_that_does_not_answer_and_the_next_run_goes_on() {
    let mut world = gathering();
    file(&mut world, "f", 3 << 20);
    removed(&mut world, "f");
    waits(&mut world, 2);
    world.gone.insert(0);
    world.begin_stop();
    world.tick(DELAY_MS - 50);
    assert_eq!((world.mdt.ending(), world.objects()), (Ending::Working, 1));
    world.tick(50);
    world.rest();
    assert_eq!((world.mdt.ending(), records(&world)), (Ending::Clean, 1));
    world.gone.clear();
    world.restart();
    world.rest();
    assert_eq!(world.objects(), 0);
}

#[test]
fn what_a_crash_finds_waiting_goes_at_the_next_start() {
    let mut world = gathering();
    file(&mut world, "f", 3 << 20);
    removed(&mut world, "f");
    waits(&mut world, 2);
    world.crash_under_clients();
    assert_eq!(world.mdt.destroy_delay_ns(), DELAY_MS * 1_000_000);
    world.rest();
    assert_eq!(world.objects(), 0);
}

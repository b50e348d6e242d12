//! The first write of a file finds no room: it goes elsewhere, unless it must not.

use sateen_types::{Errno, Fid, StripePolicy};
use sateen_wire::*;

use crate::fsck::finish;
use crate::harness::*;

const ONE: StripePolicy = StripePolicy { stripe_count: 1, stripe_size: 0, stripe_offset: None };

fn refused(fid: Fid, ost: u32) -> MdtRequest {
    MdtRequest::NoRoom { fid, ost, unwritten: true }
}

/// A new file that A has open for writing.
fn new_file(world: &mut World, parent: Fid, text: &str) -> (Fid, OpenId) {
    let (reply, id) = world.creat(A, parent, text, Ibits::META.union(Ibits::DATA));
    let ReplyBody::Mdt(MdtReply::Created { attr, .. }) = reply.body else { panic!("{reply:?}") };
    (attr.fid, id)
}

/// Where a file lies, and the generation of that.
fn lies(world: &mut World, fid: Fid) -> (Vec<u32>, u32) {
    match world.ok(A, MdtRequest::GetStripe { fid }) {
        MdtReply::Striped { layout: Some(layout), policy: None, .. } => {
            (layout.components[0].osts.clone(), layout.generation)
        }
        other => panic!("{other:?}"),
    }
}

/// Whether a file moves when its first OST has no room.
fn moves(world: &mut World, fid: Fid) -> bool {
    let (osts, generation) = lies(world, fid);
    let MdtReply::Opened { attr, layout: Some(layout) } = world.ok(A, refused(fid, osts[0])) else {
        panic!()
    };
    assert_eq!(layout.generation, attr.layout_gen);
    let now = lies(world, fid);
    assert_eq!(now, (layout.components[0].osts.clone(), layout.generation));
    if now == (osts.clone(), generation) {
        return false;
    }
    assert!(!now.0.contains(&osts[0]) && now.1 == generation + 1, "{osts:?} {now:?}");
    true
}

#[test]
fn a_file_that_nobody_has_written_goes_where_there_is_room() {
    let mut world = World::with_clients(3);
    world.ok(A, MdtRequest::SetStripe { fid: ROOT, policy: ONE });
    let (fid, id) = new_file(&mut world, ROOT, "f");
    let first = lies(&mut world, fid).0;
    assert!(moves(&mut world, fid));
    // New files avoid it at once.
    for text in ["a", "b", "c", "d"] {
        let other = world.mknod(A, ROOT, text);
        assert_ne!(lies(&mut world, other).0, first);
    }
    assert!(moves(&mut world, fid), "to the last of three");
    assert!(!moves(&mut world, fid), "none has room");
    // What is written goes with it.
    let now = lies(&mut world, fid);
    let mut layout = sateen_types::Layout::raid0(1 << 20, now.0).unwrap();
    layout.generation = now.1;
    world.write(&layout, fid, 3 << 20);
    world.close(A, fid, id, Some(report(3 << 20, true)));
    assert_eq!(world.objects(), 1);
    world.ok(A, World::unlink_request(ROOT, "f", false));
    world.rest();
    assert_eq!(world.objects(), 0);
    finish(world);
}

#[test]
fn a_file_stays_where_it_has_to_lie() {
    let mut world = World::with_clients(4);
    // As its owner says.
    let (on, at, size) = ("on", "at", "size");
    for text in [on, at, size] {
        let fid = world.mknod(A, ROOT, text);
        let request = match text {
            "on" => MdtRequest::SetLayout { fid, stripe_size: 0, osts: vec![2] },
            "at" => MdtRequest::SetStripe {
                fid,
                policy: StripePolicy { stripe_offset: Some(2), ..ONE },
            },
            _ => MdtRequest::SetStripe { fid, policy: ONE },
        };
        world.ok(A, request);
        new_file(&mut world, ROOT, text);
        assert_eq!(moves(&mut world, fid), text == "size", "{text}");
    }
    // As its directory says.
    let dir = world.mkdir(A, ROOT, "dir");
    let policy = StripePolicy { stripe_offset: Some(1), ..ONE };
    world.ok(A, MdtRequest::SetStripe { fid: dir, policy });
    let (fid, _) = new_file(&mut world, dir, "f");
    assert!(!moves(&mut world, fid));
    world.ok(A, MdtRequest::SetLayout { fid: dir, stripe_size: 0, osts: vec![3] });
    let (fid, _) = new_file(&mut world, dir, "g");
    assert!(!moves(&mut world, fid));
    let mut world = World::with_clients(4);
    let dir = world.mkdir(A, ROOT, "dir");
    world.ok(A, MdtRequest::SetLayout { fid: dir, stripe_size: 0, osts: vec![3, 1] });
    let (fid, _) = new_file(&mut world, dir, "h");
    assert!(moves(&mut world, fid), "to those that are left of the list");
    assert_eq!(lies(&mut world, fid).0, [1]);
    assert_eq!(world.err(A, refused(dir, 1)), Errno::EINVAL);
    finish(world);
}

#[test]
fn a_file_stays_if_somebody_may_have_written_it() {
    let cases = ["written", "not said to be unwritten", "closed", "another's", "cut"];
    for case in cases {
        let mut world = World::with_clients(3);
        world.ok(A, MdtRequest::SetStripe { fid: ROOT, policy: ONE });
        let (fid, id) = new_file(&mut world, ROOT, "f");
        let (osts, generation) = lies(&mut world, fid);
        let mut request = refused(fid, osts[0]);
        let mut asks = A;
        match case {
            "written" => {
                let tell = MdtRequest::ReportSize {
                    fid,
                    report: report(10, true),
                    glimpsed: false,
                    version: 0,
                };
                world.ok(A, tell);
            }
            "closed" => world.close(A, fid, id, Some(report(0, false))),
            "another's" => asks = B,
            "cut" => {
                let set = SetAttr { size: Some(0), ..SetAttr::default() };
                world.ok(A, MdtRequest::SetAttr { fid, set, cred: Cred::default() });
            }
            _ => request = MdtRequest::NoRoom { fid, ost: osts[0], unwritten: false },
        }
        world.ok(asks, request);
        assert_eq!(lies(&mut world, fid), (osts.clone(), generation), "{case}");
        // The OST is avoided all the same.
        let other = world.mknod(A, ROOT, "other");
        assert_ne!(lies(&mut world, other).0, osts, "{case}");
        finish(world);
    }
}

//! Group locks: nobody waits for people at the MDT, members pass, and a restart takes nothing from them.

use sateen_types::{ClientId, Errno, Fid};
use sateen_wire::*;

use crate::harness::*;

const DATA: Ibits = Ibits::DATA;

fn world() -> World {
    let mut world = World::new(2);
    world.features = SPEAKS | GROUPS;
    world.connect(A);
    world.connect(B);
    world.settle();
    world
}

fn open(world: &mut World, client: ClientId, fid: Fid, truncate: bool) -> MdtReply {
    let flags = OpenFlags { write: true, truncate, ..OpenFlags::default() };
    let (open_id, cred) = (world.open_id(client), Cred::default());
    world.ok(client, MdtRequest::Open { fid, flags, open_id, cred, want: Ibits::NONE })
}

fn join(world: &mut World, client: ClientId, fid: Fid, gid: u64) -> Option<Grant> {
    let reply = world.call(client, MdtRequest::EnqueueGroup { fid, gid });
    match reply.body {
        ReplyBody::Mdt(MdtReply::Inode { .. }) => reply.grants.iter().next().copied(),
        ReplyBody::Mdt(MdtReply::Grouped) => None,
        body => panic!("{body:?}"),
    }
}

fn cut(fid: Fid) -> MdtRequest {
    let set = SetAttr { size: Some(10), ..SetAttr::default() };
    MdtRequest::SetAttr { fid, set, cred: Cred::default() }
}

#[test]
fn whoever_a_group_is_in_the_way_of_is_told_so_and_nothing_is_done() {
    let mut world = world();
    let fid = world.mknod(A, ROOT, "f");
    open(&mut world, A, fid, false);
    let a = join(&mut world, A, fid, 7).expect("nobody else has it");
    assert_eq!(a.mode, LockMode::Group);
    // Opening it waits for nobody, or no second process of a job could.
    assert!(matches!(open(&mut world, B, fid, false), MdtReply::Opened { .. }));
    let version = world.stat(B, fid).version;
    for mode in [LockMode::Pr, LockMode::Pw, LockMode::Cr, LockMode::Cw] {
        for client in [A, B] {
            let enqueue = MdtRequest::Enqueue { fid, mode, bits: DATA };
            assert_eq!(world.ok(client, enqueue), MdtReply::Grouped, "{mode:?}");
        }
    }
    assert_eq!(world.ok(B, cut(fid)), MdtReply::Grouped);
    assert_eq!(open(&mut world, B, fid, true), MdtReply::Grouped);
    // Also one of its own client: it is a member who does that by no open.
    assert_eq!(open(&mut world, A, fid, true), MdtReply::Grouped);
    assert_eq!(join(&mut world, B, fid, 8), None);
    assert!(world.clients[&A].callbacks.is_empty());
    let attr = world.stat(B, fid);
    assert!(attr.version == version && attr.size_stale, "the objects know the size");
    let chmod = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let chmod = MdtRequest::SetAttr { fid, set: chmod, cred: Cred::default() };
    assert!(matches!(world.ok(B, chmod), MdtReply::Inode { .. }));
    let b = join(&mut world, B, fid, 7).expect("the same group");
    assert!(matches!(world.ok(B, cut(fid)), MdtReply::Inode { .. }), "a member");
    for (client, lock) in [(A, a), (B, b)] {
        let report = Some(report(5000, true));
        world.ok(client, MdtRequest::Cancel { fid, id: lock.id, report, more: vec![] });
    }
    assert_eq!(world.stat(B, fid).size, 5000);
    assert!(join(&mut world, B, fid, 8).is_some());
}

#[test]
fn what_is_no_group_or_no_file_is_refused_and_so_is_who_does_not_know_of_them() {
    let mut world = world();
    let fid = world.mknod(A, ROOT, "f");
    assert_eq!(world.err(A, MdtRequest::EnqueueGroup { fid, gid: 0 }), Errno::EINVAL);
    assert_eq!(world.err(A, MdtRequest::EnqueueGroup { fid: ROOT, gid: 7 }), Errno::EINVAL);
    let bits = DATA;
    let group = MdtRequest::Enqueue { fid, mode: LockMode::Group, bits };
    assert_eq!(world.err(A, group), Errno::EINVAL);
    let mut old = World::with_clients(1);
    let fid = old.mknod(A, ROOT, "f");
    assert_eq!(old.err(A, MdtRequest::EnqueueGroup { fid, gid: 7 }), Errno::EINVAL);
}

#[test]
fn a_restart_leaves_members_what_they_have() {
    let mut world = world();
    let fid = world.mknod(A, ROOT, "f");
    open(&mut world, A, fid, false);
    let a = join(&mut world, A, fid, 7).unwrap();
    world.stop();
    world.restart();
    assert!(world.reconnect(A).is_some() && world.reconnect(B).is_some());
    let groups = vec![HeldGroup { fid, id: a.id, gid: 7 }];
    world.ok(A, MdtRequest::ReclaimGroups { groups });
    let last = MdtRequest::Reclaim {
        locks: vec![],
        opens: vec![],
        seqs: vec![],
        file_locks: vec![],
        last: true,
    };
    let calls = [A, B].map(|client| world.start(client, last.clone()));
    world.settle();
    assert!(calls.iter().all(|call| world.reply(*call).is_some_and(|reply| reply.error.is_none())));
    let enqueue = MdtRequest::Enqueue { fid, mode: LockMode::Pr, bits: DATA };
    assert_eq!(world.ok(B, enqueue), MdtReply::Grouped);
    assert!(join(&mut world, B, fid, 8).is_none() && join(&mut world, B, fid, 7).is_some());
}

//! Changes that a crash has taken are made again, in their order, and once.

use sateen_types::{Attr, ClientId, Errno, Fid, StripePolicy, Timespec};
use sateen_wire::*;

use crate::fsck;
use crate::harness::*;
use crate::returning::Had;

const WRITE: OpenFlags = OpenFlags { write: true, truncate: false, exec: false };

/// A change, and its answer.
type Done = (MdtRequest, Reply);

/// Two clients that speak; each has had something.
fn world() -> World {
    let mut world = World::of_speakers(2);
    world.mkdir(A, ROOT, "of a");
    world.mkdir(B, ROOT, "of b");
    world.rest();
    // Here they build on what the other has made.
    world.mdt.set_commit_on_sharing(false);
    world
}

/// A change that is answered, and not durable.
fn change(world: &mut World, client: ClientId, request: MdtRequest) -> Done {
    let call = world.start(client, request.clone());
    let reply = world.reply(call).expect("an answer");
    assert_eq!(reply.error, None, "{request:?}");
    assert!(reply.transno > reply.last_committed, "{request:?}");
    (request, reply)
}

fn made(world: &mut World, client: ClientId, parent: Fid, text: &str, mode: u32) -> (Done, Fid) {
    let request = world.create_request(client, parent, text, mode);
    let done = change(world, client, request);
    let ReplyBody::Mdt(MdtReply::Created { attr, .. }) = done.1.body else { panic!() };
    (done, attr.fid)
}

fn replay(done: &[Done]) -> MdtRequest {
    let told = |(request, reply): &Done| replayed(request, reply);
    MdtRequest::Replay { changes: done.iter().map(told).collect(), last: true }
}

/// Everybody tells what he had, and the window ends.
fn come_back(world: &mut World, opens: [Vec<HeldOpen>; 2]) {
    let claims: Vec<Call> = [A, B]
        .into_iter()
        .zip(opens)
        .map(|(client, opens)| {
            let claim = world.claim(client, Had::opens(opens));
            world.start(client, claim)
        })
        .collect();
    world.rest();
    for call in claims {
        assert_eq!(world.reply(call).unwrap().error, None, "{call:?}");
    }
}

/// What does not depend on the number of the transaction.
fn seen(world: &mut World, fid: Fid) -> Attr {
    Attr { version: 0, ..world.stat(A, fid) }
}

#[test]
fn changes_of_all_clients_are_made_again_in_their_order() {
    let mut world = world();
    let gone = world.mknod(B, ROOT, "gone");
    world.rest();
    let (first, dir) = made(&mut world, A, ROOT, "dir", 0o040_755);
    let open_id = world.open_id(B);
    let mut request = world.create_request(B, dir, "f", 0o100_640);
    if let MdtRequest::Create { open, open_id: id, .. } = &mut request {
        (*open, *id) = (Some(WRITE), open_id);
    }
    let second = change(&mut world, B, request);
    let ReplyBody::Mdt(MdtReply::Created { attr, layout, .. }) = &second.1.body else { panic!() };
    let (file, layout) = (attr.fid, layout.clone().unwrap());
    world.tick(50);
    let third = change(&mut world, A, World::rename_request((dir, "f"), (ROOT, "g")));
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let fourth =
        change(&mut world, A, MdtRequest::SetAttr { fid: file, set, cred: Cred::default() });
    let told = Some(report(70, true));
    let mut request = MdtRequest::Close { fid: file, open_id, report: told };
    // Who holds the data tells the size.
    let lock = MdtRequest::Enqueue { fid: file, mode: LockMode::Pw, bits: Ibits::DATA };
    world.ok(B, lock);
    let fifth = change(&mut world, B, request.clone());
    let sixth = change(&mut world, B, World::unlink_request(ROOT, "gone", false));
    let value = bytes::Bytes::from_static(b"v");
    let fid = dir;
    request = MdtRequest::SetXattr { fid, name: name("user.a"), value, mode: XattrMode::Any };
    let seventh = change(&mut world, A, request);
    let before = [seen(&mut world, dir), seen(&mut world, file), seen(&mut world, ROOT)];
    assert_eq!((before[1].size, before[1].size_stale), (70, false));

    world.crash_under_clients();
    world.tick(3000);
    for client in [A, B] {
        assert!(world.reconnect(client).is_some_and(|run| run != 0));
    }
    let of_b = world.start(B, replay(&[second, fifth, sixth]));
    world.rest();
    assert_eq!(world.reply(of_b), None, "another may have what comes before");
    assert_eq!(world.mdt.recovery_status().replayed, 0);
    let of_a = world.start(A, replay(&[first, third, fourth, seventh]));
    world.rest();
    for call in [of_a, of_b] {
        assert_eq!(world.reply(call).unwrap().error, None);
    }
    assert_eq!(world.mdt.recovery_status().replayed, 7);
    come_back(&mut world, [Vec::new(), Vec::new()]);
    assert_eq!([seen(&mut world, dir), seen(&mut world, file), seen(&mut world, ROOT)], before);
    assert_eq!(world.lookup(A, ROOT, "g").unwrap().fid, file);
    assert_eq!(world.lookup(A, ROOT, "gone"), Err(Errno::ENOENT));
    assert_eq!(world.err(A, MdtRequest::GetAttr { fid: gone, want: Ibits::NONE }), Errno::ESTALE);
    let body = world.ok(A, MdtRequest::GetStripe { fid: file });
    assert_eq!(
        body,
        MdtReply::Striped { layout: Some(layout), policy: None, default: StripePolicy::DEFAULT }
    );
    world.rest();
    fsck::check(&fsck::image(&world.frames));
}

#[test]
fn what_is_open_without_a_name_stays() {
    let mut world = world();
    let (reply, open_id) = world.creat(A, ROOT, "f", Ibits::NONE);
    let ReplyBody::Mdt(MdtReply::Created { attr, .. }) = reply.body else { panic!() };
    world.rest();
    let removed = change(&mut world, B, World::unlink_request(ROOT, "f", false));
    world.crash_under_clients();
    let open = HeldOpen { open_id, fid: attr.fid, flags: WRITE, closing: false };
    for client in [A, B] {
        world.reconnect(client);
    }
    let early = world.claim(A, Had::opens(vec![open]));
    let early = world.start(A, early);
    let of_b = world.start(B, replay(&[removed]));
    world.rest();
    assert_eq!(world.reply(of_b).unwrap().error, None);
    let last = world.claim(B, Had::default());
    world.ok(B, last);
    world.rest();
    assert_eq!(world.reply(early).unwrap().error, None);
    assert_eq!(world.stat(A, attr.fid).nlink, 0);
    world.close(A, attr.fid, open_id, None);
    world.rest();
    assert_eq!(
        world.err(A, MdtRequest::GetAttr { fid: attr.fid, want: Ibits::NONE }),
        Errno::ESTALE
    );
    fsck::check(&fsck::image(&world.frames));
}

#[test]
fn who_builds_on_what_is_lost_cannot_go_on_and_others_can() {
    let mut world = world();
    let (_, dir) = made(&mut world, A, ROOT, "dir", 0o040_755);
    let (builds, _) = made(&mut world, B, dir, "f", 0o100_644);
    world.crash_under_clients();
    for client in [A, B] {
        world.reconnect(client);
    }
    // The first has forgotten what it did.
    let nothing = world.claim(A, Had::default());
    let goes_on = world.start(A, nothing);
    let refused = world.start(B, replay(&[builds]));
    world.rest();
    assert_eq!(world.reply(goes_on).unwrap().error, None);
    assert!(world.reply(refused).is_none_or(|reply| reply.error.is_some()));
    assert_eq!(world.reconnect(B), None, "it has to go on as another");
    assert_eq!(world.lookup(A, ROOT, "dir"), Err(Errno::ENOENT));
    world.mkdir(A, ROOT, "dir");
    fsck::check(&fsck::image(&world.frames));
}

#[test]
fn another_file_is_not_removed_under_the_same_name() {
    let mut world = world();
    let one = world.mknod(A, ROOT, "one");
    let two = world.mknod(A, ROOT, "two");
    world.rest();
    change(&mut world, A, World::rename_request((ROOT, "one"), (ROOT, "two")));
    let removed = change(&mut world, B, World::unlink_request(ROOT, "two", false));
    world.crash_under_clients();
    for client in [A, B] {
        world.reconnect(client);
    }
    let nothing = world.claim(A, Had::default());
    world.start(A, nothing);
    world.start(B, replay(&[removed]));
    world.rest();
    assert_eq!(world.reconnect(B), None, "it has to go on as another");
    assert_eq!(world.lookup(A, ROOT, "one").unwrap().fid, one);
    assert_eq!(world.lookup(A, ROOT, "two").unwrap().fid, two);
}

#[test]
fn a_crash_in_between_makes_nothing_twice() {
    let mut world = world();
    let (first, _) = made(&mut world, A, ROOT, "x", 0o100_644);
    let moved = change(&mut world, A, World::rename_request((ROOT, "x"), (ROOT, "y")));
    let (again, fid) = made(&mut world, A, ROOT, "x", 0o100_644);
    let all = [first, moved, again];
    for _ in 0..2 {
        world.crash_under_clients();
        for client in [A, B] {
            assert_eq!(world.reconnect(client), Some(101), "the last that has answered");
        }
        let nothing = world.claim(B, Had::default());
        world.start(B, nothing);
        let told = world.start(A, replay(&all));
        world.rest();
        assert_eq!(world.reply(told).unwrap().error, None);
    }
    assert_eq!(world.mdt.recovery_status().replayed, 0, "they were there");
    come_back(&mut world, [Vec::new(), Vec::new()]);
    assert_eq!(world.lookup(A, ROOT, "x").unwrap().fid, fid);
    assert_eq!(world.list(A, ROOT, 100).len(), 4);
    fsck::check(&fsck::image(&world.frames));
    // What this run has answered for is followed by the next.
    let (done, _) = made(&mut world, A, ROOT, "z", 0o100_644);
    world.crash_under_clients();
    for client in [A, B] {
        assert_eq!(world.reconnect(client), Some(103));
    }
    let told = world.start(A, replay(&[done]));
    let nothing = world.claim(B, Had::default());
    world.start(B, nothing);
    world.rest();
    assert_eq!(world.reply(told).unwrap().error, None);
    assert_eq!(world.mdt.recovery_status().replayed, 1);
}

#[test]
fn who_does_not_come_is_not_waited_for_for_ever() {
    let mut world = world();
    let (done, _) = made(&mut world, B, ROOT, "f", 0o100_644);
    world.crash_under_clients();
    world.reconnect(B);
    world.start(B, replay(&[done]));
    for _ in 0..70 {
        world.tick(1000);
        // Somebody is heard all the while.
        world.reconnect(B);
    }
    assert_eq!(world.mdt.recovery_status().replayed, 1);
    // It has connected anew since, and asks once more.
    let nothing = MdtRequest::Replay { changes: Vec::new(), last: true };
    world.ok(B, nothing);
    let last = world.claim(B, Had::default());
    world.ok(B, last);
    world.lookup(B, ROOT, "f").unwrap();
}

#[test]
fn what_nobody_can_read_costs_its_client_everything() {
    for bad in 0..4 {
        let mut world = world();
        let (mut done, _) = made(&mut world, B, ROOT, "f", 0o100_644);
        world.crash_under_clients();
        for client in [A, B] {
            world.reconnect(client);
        }
        let nothing = world.claim(A, Had::default());
        world.start(A, nothing);
        match bad {
            // In itself, which would nest for ever.
            0 => done.0 = replay(&[done.clone()]),
            1 => done.0 = MdtRequest::GrantSeq,
            // A FID of somebody else.
            2 => {
                let theirs = world.fid(A);
                if let MdtRequest::Create { fid, .. } = &mut done.0 {
                    *fid = theirs;
                }
            }
            _ => {}
        }
        let mut told = replay(&[done]);
        if let (3, MdtRequest::Replay { changes, .. }) = (bad, &mut told) {
            changes[0].answer = bytes::Bytes::from_static(b"no answer");
            changes[0].time = Timespec { sec: 1, nsec: 1 };
        }
        world.start(B, told);
        world.rest();
        assert_eq!(world.reconnect(B), None, "{bad}");
        assert_eq!(world.lookup(A, ROOT, "f"), Err(Errno::ENOENT), "{bad}");
    }
}

#[test]
fn what_others_have_lost_of_the_same_file_is_in_nobodys_way() {
    let mut world = world();
    let fid = world.mknod(A, ROOT, "f");
    world.rest();
    change(&mut world, A, MdtRequest::Link { fid, parent: ROOT, name: name("g") });
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let request = MdtRequest::SetAttr { fid, set, cred: Cred::default() };
    let second = change(&mut world, B, request);
    world.crash_under_clients();
    for client in [A, B] {
        world.reconnect(client);
    }
    let nothing = world.claim(A, Had::default());
    world.start(A, nothing);
    let told = world.start(B, replay(&[second]));
    world.rest();
    assert_eq!(world.reply(told).unwrap().error, None);
    let last = world.claim(B, Had::default());
    world.ok(B, last);
    let attr = world.stat(B, fid);
    assert_eq!((attr.mode & 0o7777, attr.nlink), (0o600, 1));
    fsck::check(&fsck::image(&world.frames));
}

#[test]
fn many_are_made_in_batches_and_others_are_heard_meanwhile() {
    const MANY: u64 = 2500;
    let mut world = world();
    let all: Vec<Done> = (0..MANY)
        .map(|number| made(&mut world, A, ROOT, &format!("f{number}"), 0o100_644).0)
        .collect();
    world.crash_under_clients();
    for client in [A, B] {
        world.reconnect(client);
    }
    let early = world.claim(B, Had::default());
    world.start(B, early);
    world.keeps_flushes = true;
    let chunks = all.chunks(REPLAY_MAX);
    let mut calls = Vec::new();
    for (at, chunk) in (1..=chunks.len()).zip(chunks) {
        let MdtRequest::Replay { changes, .. } = replay(chunk) else { panic!() };
        let last = at * REPLAY_MAX >= all.len();
        calls.push(world.start(A, MdtRequest::Replay { changes, last }));
    }
    let last = calls.pop().unwrap();
    assert!(calls.into_iter().all(|call| world.reply(call).is_some()));
    assert_eq!((world.mdt.recovery_status().replayed, world.reply(last)), (1000, None));
    let ping = Call { client: B, slot: 9, seq: 1 };
    world.deliver(world.header(ping), Request::Ping);
    assert!(world.reply(ping).is_some(), "it is heard");
    world.tick(100);
    assert_eq!(world.mdt.recovery_status().replayed, 1000, "they are not durable");
    world.keeps_flushes = false;
    world.flush();
    assert_eq!(world.mdt.recovery_status().replayed, MANY);
    assert_eq!(world.reply(last).unwrap().error, None);
}

#[test]
fn what_cannot_be_an_answer_changes_nothing() {
    let mut world = world();
    let file = world.mknod(A, ROOT, "f");
    world.rest();
    let value = bytes::Bytes::from_static(b"v");
    let mode = XattrMode::Any;
    let request = MdtRequest::SetXattr { fid: file, name: name("user.a"), value, mode };
    let (request, mut reply) = change(&mut world, A, request);
    let attr = world.stat(A, file);
    reply.body = ReplyBody::Mdt(MdtReply::Inode { attr });
    world.crash_under_clients();
    for client in [A, B] {
        world.reconnect(client);
    }
    let nothing = world.claim(B, Had::default());
    world.start(B, nothing);
    world.start(A, replay(&[(request, reply)]));
    world.rest();
    assert_eq!(world.reconnect(A), None, "it has to go on as another");
    let asked = MdtRequest::ListXattr { fid: file };
    assert_eq!(world.ok(B, asked), MdtReply::Bytes(bytes::Bytes::new()));
}

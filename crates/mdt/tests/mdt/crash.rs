//! Crashes under clients that come back: what they had is theirs, and what was executed is not done
//! again.

use sateen_target::Service as _;
use sateen_types::{ClientId, Errno, Fid};
use sateen_wire::*;

use crate::fsck;
use crate::harness::*;
use crate::returning::Had;

const META: Ibits = Ibits::META;
const DATA: Ibits = Ibits::DATA;
const WRITE: OpenFlags = OpenFlags { write: true, truncate: false, exec: false };

fn open(fid: Fid, open_id: OpenId) -> HeldOpen {
    HeldOpen { open_id, fid, flags: WRITE, closing: false }
}

/// It crashes; the first client had these opens, the other nothing.
fn crash(world: &mut World, opens: &[HeldOpen]) {
    world.crash_under([(A, Had::opens(opens.to_vec())), (B, Had::default())]);
}

/// A transaction of its own is not one of the last run, of which a client would believe that its own
/// of that number is there.
#[test]
fn what_a_start_does_before_it_knows_anything_is_not_durable_of_before() {
    let mut world = World::of_speakers(2);
    world.mknod(A, ROOT, "f");
    world.flush();
    world.checkpoint();
    let durable = world.mdt.store().transno();
    world.evicted_at_start = Some(ClientId(99));
    world.crash_under_clients();
    assert!(world.reconnect(A).is_some());
    assert_eq!(world.clients[&A].durable, durable);
}

/// Whoever looks in from outside takes what has not come back by then for lost: one that crashes before
/// waits for everybody once more.
#[test]
fn a_run_has_begun_when_another_would_not_wait_for_the_clients_of_the_one_before() {
    let mut world = World::of_speakers(2);
    world.mknod(A, ROOT, "f");
    world.mknod(B, ROOT, "g");
    world.flush();
    world.crash_under_clients();
    world.keeps_flushes = true;
    for client in [A, B] {
        assert!(world.reconnect(client).is_some_and(|run| run != 0));
        let claim = world.claim(client, Had::default());
        world.start(client, claim);
    }
    assert!(!world.mdt.recovery_status().recovering, "all have come back");
    assert!(!world.mdt.has_begun());
    world.flush();
    assert!(world.mdt.has_begun());
}

/// It waits until that is known, and comes before anybody can go on with what he had.
#[test]
fn who_is_thrown_out_before_it_is_known_who_was_there_does_not_come_back() {
    let mut world = World::of_speakers(2);
    world.mknod(A, ROOT, "f");
    world.mknod(B, ROOT, "g");
    world.flush();
    world.checkpoint();
    world.evicted_at_start = Some(A);
    world.crash_under_clients();
    assert!(world.reconnect(A).is_none(), "it was thrown out");
    assert!(world.reconnect(B).is_some());
}

#[test]
fn a_client_that_lost_nothing_goes_on_as_itself() {
    let mut world = World::of_speakers(2);
    let (reply, id) = world.creat(A, ROOT, "f", META.union(DATA));
    let ReplyBody::Mdt(MdtReply::Created { attr, .. }) = reply.body else { panic!() };
    world.flush();
    let durable = reply.transno;
    // Nobody is told that this is there.
    world.mknod(B, ROOT, "lost");
    let before = 100 + world.boots;
    world.crash_under_clients();
    assert_eq!(world.reconnect(A), Some(before));
    let told = world.clients[&A].durable;
    assert!(durable <= told && told < u64::MAX);
    let had = world.claim(A, Had::new(&reply.grants, vec![open(attr.fid, id)]));
    let told = world.start(A, had);
    world.rest();
    let status = world.mdt.recovery_status();
    assert!(status.recovering && status.crashed && status.expected == 2);
    assert_eq!(world.reply(told), None, "the other may have something");
    assert_eq!(world.reconnect(B), Some(before));
    let b = world.claim(B, Had::default());
    world.ok(B, b);
    world.rest();
    assert_eq!(world.reply(told).unwrap().error, None);
    assert!(world.osts.values().all(|ost| ost.fenced.is_empty()));
    let data = reply.grants.iter().find(|grant| grant.bits.intersects(DATA)).unwrap();
    let holders: Vec<_> = world.mdt.lock_holders(attr.fid).collect();
    assert!(holders.iter().any(|held| held.client.0 == 1 && held.bits.contains(data.bits)));
    world.close(A, attr.fid, id, Some(report(7, true)));
    assert_eq!(world.stat(B, attr.fid).size, 7);
    world.mknod(A, ROOT, "g");
    fsck::check(&fsck::image(&world.frames));
}

#[test]
fn what_is_there_is_answered_once_more_and_the_rest_is_done() {
    let mut world = World::of_speakers(2);
    let [gone, old, linked] = ["gone", "old", "linked"].map(|text| world.mknod(A, ROOT, text));
    let dir = world.mkdir(A, ROOT, "dir");
    world.flush();
    let made = MdtRequest::Create {
        parent: ROOT,
        name: name("made"),
        fid: world.fid(A),
        mode: 0o100_644,
        rdev: 0,
        cred: Cred::default(),
        symlink: bytes::Bytes::new(),
        policy: None,
        open: Some(WRITE),
        open_id: world.open_id(A),
        exclusive: true,
        want: Ibits::NONE,
    };
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let opened = world.open_id(A);
    let truncate = OpenFlags { truncate: true, ..WRITE };
    let cred = Cred::default();
    let requests = [
        made.clone(),
        World::unlink_request(ROOT, "gone", false),
        World::rename_request((ROOT, "old"), (dir, "new")),
        MdtRequest::Link { fid: linked, parent: dir, name: name("second") },
        MdtRequest::SetAttr { fid: linked, set, cred },
        MdtRequest::SetXattr {
            fid: linked,
            name: name("user.x"),
            value: bytes::Bytes::from_static(b"x"),
            mode: XattrMode::Create,
        },
        MdtRequest::Open { fid: linked, flags: truncate, open_id: opened, cred, want: Ibits::NONE },
    ];
    let calls: Vec<(Call, Reply)> =
        (10..).zip(&requests).map(|(slot, request)| world.ask_in(slot, request)).collect();
    world.flush();
    let not_there = World::unlink_request(dir, "new", false);
    let lost = world.ask_in(30, &not_there).0;
    crash(&mut world, &[]);
    // Somebody else has gone on with it.
    world.ok(
        B,
        MdtRequest::SetAttr { fid: linked, set: SetAttr { mode: Some(0o640), ..set }, cred },
    );
    for ((call, before), request) in calls.into_iter().zip(&requests) {
        let again = world.ask_again(call, request);
        assert_eq!(again.error, None, "{request:?}");
        let opens = matches!(request, MdtRequest::Open { .. });
        assert!(opens || again.transno == before.transno, "{request:?}: it is done again");
        let body = |reply: &Reply| match &reply.body {
            ReplyBody::Mdt(body) => core::mem::discriminant(body),
            other => panic!("{other:?}"),
        };
        assert_eq!(body(&again), body(&before));
        assert_eq!(world.ask_again(call, request), again, "it is kept");
    }
    assert_eq!(world.stat(B, linked).mode & 0o777, 0o640, "it is not done again");
    assert_eq!(world.lookup(B, dir, "new").unwrap().fid, old);
    assert_eq!(world.ask_again(lost, &not_there).error, None, "it was lost, and is done now");
    assert_eq!(world.lookup(B, dir, "new").err(), Some(Errno::ENOENT));
    assert_eq!(world.err(B, MdtRequest::GetAttr { fid: gone, want: META }), Errno::ESTALE);
    let MdtRequest::Create { fid, open_id, .. } = made else { panic!() };
    world.close(A, fid, open_id, None);
    world.close(A, linked, opened, None);
    fsck::check(&fsck::image(&world.frames));
}

#[test]
fn slots_are_known_after_a_second_crash_too() {
    let mut world = World::of_speakers(2);
    let request = world.create_request(A, ROOT, "once", 0o100_644);
    let (call, before) = world.ask_in(9, &request);
    world.flush();
    // One within the window, and one after it.
    world.crash_under_clients();
    assert_eq!(world.reconnect(A), Some(101));
    world.flush();
    for _ in 0..2 {
        crash(&mut world, &[]);
    }
    let again = world.ask_again(call, &request);
    assert_eq!((again.error, again.transno), (None, before.transno));
}

#[test]
fn an_open_that_is_being_closed_may_be_gone_with_its_file() {
    let mut world = World::of_speakers(2);
    let (reply, id) = world.creat(A, ROOT, "f", META.union(DATA));
    let ReplyBody::Mdt(MdtReply::Created { attr, .. }) = reply.body else { panic!() };
    let fid = attr.fid;
    world.ok(A, World::unlink_request(ROOT, "f", false));
    world.flush();
    let close = MdtRequest::Close { fid, open_id: id, report: None };
    let (call, _) = world.ask_in(11, &close);
    world.flush();
    let closing = HeldOpen { closing: true, ..open(fid, id) };
    let had = Had::new(&reply.grants, vec![closing]);
    world.crash_under([(A, had), (B, Had::default())]);
    assert_eq!(world.ask_again(call, &close).error, None);
    // One that nobody has closed cannot be gone.
    let before = 100 + world.boots;
    world.crash_under_clients();
    assert_eq!(world.reconnect(A), Some(before));
    assert_eq!(world.reconnect(B), Some(before));
    let nothing = world.claim(B, Had::default());
    world.start(B, nothing);
    let wrong = world.claim(A, Had::opens(vec![open(fid, id)]));
    assert_eq!(world.err(A, wrong), Errno::ESTALE);
    assert_eq!(world.reconnect(A), None);
}

#[test]
fn who_was_thrown_out_stays_out() {
    let mut world = World::of_speakers(2);
    world.cut_off = true;
    let now = world.now;
    let a = ClientId(world.clients[&A].id);
    let mut out = sateen_target::Outbox::new();
    world.mdt.evict_client(now, a, &mut out);
    world.flush();
    world.crash_under_clients();
    assert_eq!(world.reconnect(A), None);
    assert!(world.reconnect(B).is_some_and(|follows| follows != 0));
}

#[test]
fn who_has_promised_nothing_is_not_waited_for() {
    let mut world = World::with_clients(1);
    world.flush();
    world.crash_under_clients();
    assert!(!world.mdt.recovery_status().recovering);
    assert_eq!(world.reconnect(A), None);
}

/// An open for writing, sent in this slot and answered, as far as the client has heard it.
fn open_in(world: &mut World, slot: u16, fid: Fid) -> (OpenId, Call, MdtRequest, Reply) {
    let (open_id, cred) = (world.open_id(A), Cred::default());
    let request = MdtRequest::Open { fid, flags: WRITE, open_id, cred, want: Ibits::NONE };
    let (call, reply) = world.ask_in(slot, &request);
    (open_id, call, request, reply)
}

/// A file that was made with a layout, closed, and never written.
fn unwritten(world: &mut World) -> Fid {
    let (reply, id) = world.creat(A, ROOT, "f", META);
    let ReplyBody::Mdt(MdtReply::Created { attr, .. }) = reply.body else { panic!() };
    world.close(A, attr.fid, id, None);
    world.flush();
    attr.fid
}

/// Whether a file's session has begun, by what is stored.
fn has_begun(world: &mut World, fid: Fid) -> bool {
    world.stat(B, fid).maybe_objects
}

#[test]
fn a_session_begins_anew_where_the_open_that_had_begun_it_is_lost() {
    let mut world = World::of_speakers(2);
    let fid = unwritten(&mut world);
    assert!(!has_begun(&mut world, fid));
    // Nobody hears that this was executed.
    let (first_id, first, request, reply) = open_in(&mut world, 10, fid);
    assert!(reply.transno > 0);
    let (second, _, _, reply) = open_in(&mut world, 11, fid);
    let (third, ..) = open_in(&mut world, 12, fid);
    assert_eq!(reply.transno, 0, "it stands on the first one");
    let opens = vec![open(fid, second), open(fid, third)];
    crash(&mut world, &opens);
    assert!(has_begun(&mut world, fid));
    let again = world.ask_again(first, &request);
    assert_eq!((again.error, again.transno), (None, 0), "it is done now");
    // That was durable before anybody could write.
    crash(&mut world, &[]);
    assert!(has_begun(&mut world, fid));
    let opens = [open(fid, first_id), open(fid, second), open(fid, third)];
    crash(&mut world, &opens);
    for id in [first_id, second, third] {
        world.close(A, fid, id, None);
    }
    assert!(has_begun(&mut world, fid), "what was written meanwhile nobody knows");
    fsck::check(&fsck::image(&world.frames));
}

#[test]
fn a_session_begins_anew_where_another_client_had_begun_it() {
    let mut world = World::of_speakers(2);
    world.mdt.set_commit_on_sharing(false);
    let fid = unwritten(&mut world);
    let (.., reply) = open_in(&mut world, 10, fid);
    assert!(reply.transno > 0);
    let (open_id, cred) = (world.open_id(B), Cred::default());
    let request = MdtRequest::Open { fid, flags: WRITE, open_id, cred, want: Ibits::NONE };
    let call = world.start(B, request);
    assert_eq!(world.reply(call).unwrap().transno, 0);
    let had = Had::opens(vec![open(fid, open_id)]);
    world.crash_under([(A, Had::default()), (B, had)]);
    assert!(has_begun(&mut world, fid));
}

#[test]
fn an_open_that_is_being_closed_begins_no_session() {
    let mut world = World::of_speakers(2);
    let fid = unwritten(&mut world);
    open_in(&mut world, 10, fid);
    let (second, ..) = open_in(&mut world, 11, fid);
    let close = MdtRequest::Close { fid, open_id: second, report: None };
    let (call, _) = world.ask_in(12, &close);
    let closing = HeldOpen { closing: true, ..open(fid, second) };
    crash(&mut world, &[closing]);
    assert!(!has_begun(&mut world, fid));
    assert_eq!(world.ask_again(call, &close).error, None);
}

/// A client that claims this open is lost; the other comes with nothing.
fn is_lost_with(world: &mut World, before: u64, open: HeldOpen) {
    assert_eq!(world.reconnect(A), Some(before));
    assert_eq!(world.reconnect(B), Some(before));
    let b = world.claim(B, Had::default());
    world.start(B, b);
    let wrong = world.claim(A, Had::opens(vec![open]));
    assert_eq!(world.err(A, wrong), Errno::ESTALE);
    assert_eq!(world.reconnect(A), None);
}

#[test]
fn no_session_begins_anew_after_a_stop_in_good_order() {
    let mut world = World::of_speakers(2);
    let fid = unwritten(&mut world);
    let before = 100 + world.boots;
    assert_eq!(world.stop(), sateen_target::Ending::Clean);
    world.restart();
    let never = open(fid, world.open_id(A));
    is_lost_with(&mut world, before, never);
}

#[test]
fn no_session_begins_anew_in_a_file_that_has_lost_its_layout() {
    let mut world = World::new(0);
    world.features = SPEAKS;
    world.connect(A);
    world.connect(B);
    let fid = world.mknod(A, ROOT, "made when there was no OST");
    world.flush();
    world.add_ost(0);
    let (.., reply) = open_in(&mut world, 10, fid);
    assert!(reply.transno > 0);
    let (second, ..) = open_in(&mut world, 11, fid);
    let before = 100 + world.boots;
    world.crash_under_clients();
    is_lost_with(&mut world, before, open(fid, second));
}

//! Looking at a file that another client writes: who is asked what, and what the answer is worth.

use sateen_target::Service;
use sateen_types::{Attr, ClientId, Fid, Timespec};
use sateen_wire::*;

use crate::harness::*;

const DATA: Ibits = Ibits::DATA;

fn all() -> Ibits {
    Ibits::META.union(DATA)
}

/// A is writing a file, and answers for itself what it is asked.
fn written(world: &mut World) -> (Fid, OpenId, Grant) {
    let (reply, open_id) = world.creat(A, ROOT, "f", DATA);
    world.clients.get_mut(&A).unwrap().obliging = false;
    let grant = *reply.grants.iter().next().expect("a lock");
    (grant.fid, open_id, grant)
}

/// The question that A has been put.
fn question(world: &mut World) -> u64 {
    let asked = world.clients.get_mut(&A).unwrap().callbacks.pop_front();
    let Some(Callback::Glimpse { question, .. }) = asked else { panic!("{asked:?}") };
    question
}

fn answer(world: &mut World, fid: Fid, question: u64, told: Option<SizeReport>) {
    world.ok(A, MdtRequest::AnswerGlimpse { fid, question, told });
}

fn told(size: u64, mtime_s: i64) -> Option<SizeReport> {
    let time = |sec| Some(Timespec { sec, nsec: 0 });
    Some(SizeReport { size, blocks: size.div_ceil(512), mtime: time(mtime_s), atime: time(7) })
}

fn looks(world: &mut World, client: ClientId, fid: Fid) -> Call {
    world.start(client, MdtRequest::GetAttr { fid, want: all() })
}

fn seen(reply: Option<Reply>) -> Attr {
    let Some(ReplyBody::Mdt(MdtReply::Inode { attr })) = reply.as_ref().map(|reply| &reply.body)
    else {
        panic!("{reply:?}")
    };
    *attr
}

#[test]
fn the_writer_says_what_it_has_and_keeps_its_lock() {
    for cold in [false, true] {
        let mut world = World::with_clients(1);
        let (fid, open_id, held) = written(&mut world);
        world.cold = cold;
        let before = world.stat(B, fid);
        let call = looks(&mut world, B, fid);
        assert_eq!(world.reply(call), None);
        let asked = question(&mut world);
        let now = world.now.wall_ns / 1_000_000_000;
        answer(&mut world, fid, asked, told(777, now));
        let reply = world.reply(call);
        let attr = seen(reply.clone());
        assert_eq!((attr.size, attr.blocks, attr.mtime.sec), (777, 2, now));
        assert!(!attr.size_stale && attr.version == before.version);
        assert!(attr.ctime >= before.ctime && attr.ctime >= attr.mtime);
        // Its lock does not cover the size, so that nobody keeps it.
        let grants = reply.unwrap().grants;
        assert!(!grants.is_empty());
        assert!(grants.iter().all(|grant| !grant.bits.intersects(DATA)), "{grants:?}");
        assert!(world.mdt.lock_holders(fid).any(|lock| lock.client.0 == world.clients[&A].id
            && lock.mode == held.mode
            && lock.bits == DATA));
        // Nothing of it was stored: a report does that.
        assert_eq!(world.stat(B, fid).size, 0);
        world.close(A, fid, open_id, Some(report(900, true)));
        assert_eq!(world.stat(B, fid).size, 900);
        assert_eq!(world.mdt.glimpses(), (1, 1));
    }
}

/// A time that the MDT knows, as one that was set, and may be yet to come, is no change.
#[test]
fn what_the_writer_has_reported_before_makes_no_new_ctime() {
    let mut world = World::with_clients(1);
    let (fid, ..) = written(&mut world);
    let now = world.now.wall_ns / 1_000_000_000;
    let report = told(777, now + 1000).unwrap();
    world.ok(A, MdtRequest::ReportSize { fid, report, glimpsed: false, version: 0 });
    let before = world.stat(B, fid);
    assert_eq!(before.mtime.sec, now + 1000);
    world.now.wall_ns += 10_000_000_000;
    let call = looks(&mut world, B, fid);
    let asked = question(&mut world);
    answer(&mut world, fid, asked, told(800, now + 1000));
    let attr = seen(world.reply(call));
    assert_eq!((attr.size, attr.ctime), (800, before.ctime));
}

#[test]
fn one_that_looks_up_the_name_asks_as_well_and_may_keep_the_directory() {
    let mut world = World::with_clients(1);
    let (fid, ..) = written(&mut world);
    let (want, want_parent) = (all(), Ibits::META);
    let call =
        world.start(B, MdtRequest::Lookup { parent: ROOT, name: name("f"), want_parent, want });
    let asked = question(&mut world);
    answer(&mut world, fid, asked, told(55, 3));
    let reply = world.reply(call).unwrap();
    let of: Vec<Fid> = reply.grants.iter().map(|grant| grant.fid).collect();
    assert_eq!(of, [ROOT, fid]);
    assert_eq!(seen(Some(reply)).size, 55);
}

#[test]
fn who_comes_later_is_answered_by_another_question() {
    let mut world = World::with_clients(1);
    let (fid, ..) = written(&mut world);
    let first = looks(&mut world, B, fid);
    let asked = question(&mut world);
    let second = looks(&mut world, B, fid);
    let third = looks(&mut world, B, fid);
    answer(&mut world, fid, asked, told(100, 3));
    assert_eq!(seen(world.reply(first)).size, 100);
    assert!(world.reply(second).is_none() && world.reply(third).is_none());
    let next = question(&mut world);
    // What comes twice, or of another run, is no answer.
    answer(&mut world, fid, asked, told(100, 3));
    answer(&mut world, fid, next + 1, told(100, 3));
    assert_eq!(world.reply(second), None);
    answer(&mut world, fid, next, told(130, 4));
    assert_eq!(seen(world.reply(second)).size, 130);
    assert_eq!(seen(world.reply(third)).size, 130);
}

#[test]
fn a_writer_that_cannot_say_has_its_lock_called_back() {
    let mut world = World::with_clients(1);
    let (fid, _, held) = written(&mut world);
    let call = looks(&mut world, B, fid);
    let asked = question(&mut world);
    // Without an mtime it is no answer either.
    answer(&mut world, fid, asked, Some(report(5, false)));
    let called = world.clients.get_mut(&A).unwrap().callbacks.pop_front();
    assert_eq!(called, Some(Callback::Blocking { fid, id: held.id }));
    let report = Some(report(777, true));
    world.ok(A, MdtRequest::Cancel { fid, id: held.id, report, more: vec![] });
    let attr = seen(world.reply(call));
    assert_eq!((attr.size, attr.size_stale), (777, false));
}

#[test]
fn a_cancel_that_the_question_has_crossed_answers_it() {
    let mut world = World::with_clients(1);
    let (fid, _, held) = written(&mut world);
    let call = looks(&mut world, B, fid);
    let asked = question(&mut world);
    let report = Some(report(777, true));
    world.ok(A, MdtRequest::Cancel { fid, id: held.id, report, more: vec![] });
    let attr = seen(world.reply(call));
    assert_eq!((attr.size, attr.size_stale), (777, false));
    answer(&mut world, fid, asked, None);
    assert!(world.clients[&A].callbacks.is_empty());
}

#[test]
fn a_writer_that_does_not_answer_is_evicted_and_the_size_is_found_out() {
    let mut world = World::with_clients(1);
    let (fid, ..) = written(&mut world);
    let call = looks(&mut world, B, fid);
    for _ in 0..19 {
        world.tick(1_000);
    }
    let asked = world.clients[&A].callbacks.iter();
    assert!(asked.filter(|asked| matches!(asked, Callback::Glimpse { .. })).count() > 10);
    assert_eq!(world.reply(call), None);
    world.tick(1_100);
    assert_eq!(world.clients[&A].callbacks.back(), Some(&Callback::Evicted));
    world.tick(2_100);
    world.rest();
    assert!(seen(world.reply(call)).size_stale, "nobody knows the size");
}

#[test]
fn whoever_goes_while_he_waits_is_not_missed() {
    let mut world = World::with_clients(1);
    let (fid, ..) = written(&mut world);
    looks(&mut world, B, fid);
    let asked = question(&mut world);
    let mut out = sateen_target::Outbox::new();
    world.mdt.evict_client(world.now, B, &mut out);
    world.rest();
    answer(&mut world, fid, asked, told(100, 3));
    for _ in 0..30 {
        world.tick(1_000);
    }
    assert!(!world.clients[&A].callbacks.contains(&Callback::Evicted));
    assert_eq!(world.stat(A, fid).fid, fid);
    assert!(world.mdt.store().committed() > 0);
}

/// B opens the file, and is answered these attributes under these locks.
fn opens(world: &mut World, fid: Fid) -> (Attr, Grants) {
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let (open_id, cred) = (world.open_id(B), Cred::default());
    let call = world.start(B, MdtRequest::Open { fid, flags, open_id, cred, want: all() });
    let reply = world.reply(call).expect("nobody is waited for");
    let ReplyBody::Mdt(MdtReply::Opened { attr, .. }) = reply.body else { panic!("{reply:?}") };
    (attr, reply.grants)
}

#[test]
fn one_more_who_opens_a_file_for_writing_takes_it_from_nobody() {
    for cold in [false, true] {
        let mut world = World::with_clients(1);
        let (fid, open_id, _) = written(&mut world);
        world.cold = cold;
        let (attr, grants) = opens(&mut world, fid);
        assert!(attr.size_stale, "A knows better, and was not asked");
        assert!(grants.iter().all(|grant| !grant.bits.intersects(DATA)), "{grants:?}");
        assert_eq!(world.clients[&A].callbacks.len(), 0);
        // Whoever wants to write takes it.
        let write = MdtRequest::Enqueue { fid, mode: LockMode::Pw, bits: DATA };
        let call = world.start(B, write);
        assert_eq!(world.reply(call), None);
        let asked = world.clients.get_mut(&A).unwrap().callbacks.pop_front();
        let Some(Callback::Blocking { id, .. }) = asked else { panic!("{asked:?}") };
        let report = Some(report(500, true));
        world.ok(A, MdtRequest::Cancel { fid, id, report, more: vec![] });
        let attr = seen(world.reply(call));
        assert_eq!((attr.size, attr.size_stale), (500, false));
        // The session goes on until both have closed it.
        world.close(A, fid, open_id, None);
        assert!(world.stat(A, fid).size_stale);
    }
}

#[test]
fn readers_keep_a_file_that_one_more_opens_for_writing() {
    let mut world = World::with_clients(1);
    let (fid, _, held) = written(&mut world);
    let told = Some(report(500, true));
    world.ok(A, MdtRequest::Cancel { fid, id: held.id, report: told, more: vec![] });
    assert_eq!(world.call(A, MdtRequest::GetAttr { fid, want: all() }).grants.iter().count(), 2);
    let (attr, grants) = opens(&mut world, fid);
    assert_eq!((attr.size, attr.size_stale), (500, false), "nobody writes");
    assert!(grants.iter().all(|grant| !grant.bits.intersects(DATA)), "{grants:?}");
    assert_eq!(world.clients[&A].callbacks.len(), 0);
}

#[test]
fn who_empties_a_file_or_begins_to_write_it_calls_back() {
    let mut world = World::with_clients(1);
    let (fid, _, held) = written(&mut world);
    let flags = OpenFlags { write: true, truncate: true, ..OpenFlags::default() };
    let (open_id, cred) = (world.open_id(B), Cred::default());
    let call = world.start(B, MdtRequest::Open { fid, flags, open_id, cred, want: all() });
    assert_eq!(world.reply(call), None);
    let asked = world.clients.get_mut(&A).unwrap().callbacks.pop_front();
    assert_eq!(asked, Some(Callback::Blocking { fid, id: held.id }));
    // A reader of a file that nobody has open: what there is changes with the session.
    let mut world = World::with_clients(1);
    let fid = world.mknod(A, ROOT, "f");
    world.clients.get_mut(&A).unwrap().obliging = false;
    assert_eq!(world.call(A, MdtRequest::GetAttr { fid, want: all() }).grants.iter().count(), 2);
    let (open_id, flags) = (world.open_id(B), OpenFlags { truncate: false, ..flags });
    let call = world.start(B, MdtRequest::Open { fid, flags, open_id, cred, want: all() });
    assert_eq!(world.reply(call), None);
    assert_eq!(world.clients[&A].callbacks.len(), 1);
}

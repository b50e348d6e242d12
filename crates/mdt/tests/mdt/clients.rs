//! Clients that come, go, and are lost: who is refused, and what may happen before that.

use sateen_osd::{Batch, Key};
use sateen_target::{Outbox, Service};
use sateen_types::{Attr, ClientId, Endpoint, Errno, Fid, Timespec};
use sateen_wire::codec::Wire;
use sateen_wire::disk::mdt::ClientRecord;
use sateen_wire::*;

use crate::fsck;
use crate::harness::*;

const META: Ibits = Ibits::META;
const DATA: Ibits = Ibits::DATA;

/// Clients that a restart would have to have fenced.
fn recorded(world: &World) -> usize {
    let image = fsck::image(&world.frames);
    let records = fsck::of(&image, b'K').map(|(_, value)| ClientRecord::from_bytes(value).unwrap());
    records.filter(|record| !record.refused).count()
}

pub fn connect_as(world: &mut World, at: ClientId, id: u64, attempt: u64) {
    let fake = world.clients.get_mut(&at).unwrap();
    if fake.id != id {
        *fake = FakeClient { id, obliging: true, ..FakeClient::default() };
    }
    let header = world.header(Call { client: at, slot: 0, seq: attempt });
    world.deliver(Header { generation: 0, ..header }, Request::Connect { features: 0 });
}

/// A file that A was writing when the MDT crashed.
fn crashed_under_a_writer() -> (World, Fid) {
    let mut world = World::with_clients(2);
    let (reply, _) = world.creat(A, ROOT, "f", META.union(DATA));
    let ReplyBody::Mdt(MdtReply::Created { attr, layout: Some(layout), .. }) = reply.body else {
        panic!()
    };
    world.write(&layout, attr.fid, 3 << 20);
    let (lost, _) = world.creat(A, ROOT, "gone", DATA);
    assert!(lost.error.is_none());
    world.rest();
    let set = SetAttr { size: Some(1), ..SetAttr::default() };
    world.cut_off = true;
    world.start(A, MdtRequest::SetAttr { fid: attr.fid, set, cred: Cred::default() });
    world.flush();
    world.crash(world.frames.len());
    (world, attr.fid)
}

#[test]
fn whoever_may_be_writing_is_recorded_until_he_has_gone() {
    let mut world = World::with_clients(1);
    assert_eq!(recorded(&world), 2);
    let header = world.header(Call { client: A, slot: 900, seq: 1 });
    world.deliver(header, Request::Disconnect);
    world.rest();
    assert_eq!(recorded(&world), 1);
    let (now, mut out) = (world.now, Outbox::new());
    world.cut_off = true;
    world.mdt.evict_client(now, B, &mut out);
    world.rest();
    assert_eq!(recorded(&world), 1, "an OST may still take what he writes");
    world.crash(world.frames.len());
    world.cut_off = false;
    world.tick(2_100);
    world.rest();
    assert_eq!(world.osts[&0].fenced, [B], "the restart forgets nobody");
    assert_eq!(recorded(&world), 0);
    assert!(world.mdt.is_idle());
    // The next one has nobody to tell, and still knows who has no business here.
    world.crash(world.frames.len());
    world.rest();
    assert_eq!(world.osts[&0].fenced, [B]);
    world.clients.entry(B).or_default();
    connect_as(&mut world, B, B.0, 9);
    let refusal = world.reply(Call { client: B, slot: 0, seq: 9 }).unwrap();
    assert_eq!(refusal.error, Some(Errno::ESTALE));
}

#[test]
fn an_ost_out_of_use_is_not_waited_for_and_refuses_the_lost_later() {
    let mut world = World::with_clients(1);
    let (reply, _) = world.creat(B, ROOT, "f", META.union(DATA));
    let fid = reply.grants.iter().next().unwrap().fid;
    world.cut_off = true;
    let osts: Vec<u32> = world.osts.keys().copied().collect();
    for ost in &osts {
        world.mdt.set_ost_active(*ost, false);
    }
    let (now, mut out) = (world.now, Outbox::new());
    world.mdt.evict_client(now, B, &mut out);
    world.rest();
    world.ok(A, MdtRequest::Enqueue { fid, mode: LockMode::Pw, bits: DATA });
    assert_eq!(recorded(&world), 2, "it may still write there");
    // The next run has to know, too.
    world.crash(world.frames.len());
    world.cut_off = false;
    for _ in 0..3 {
        world.tick(2_100);
        world.rest();
    }
    for ost in &osts {
        assert!(world.osts[ost].fenced.contains(&B));
    }
    assert_eq!(recorded(&world), 0);
}

#[test]
fn clients_of_the_last_run_are_refused_before_anybody_gets_their_data() {
    let (mut world, fid) = crashed_under_a_writer();
    world.connect(B);
    // Names are served meanwhile, and new files.
    assert_eq!(world.lookup(B, ROOT, "f").unwrap().fid, fid);
    let (made, _) = world.creat(B, ROOT, "new", META.union(DATA));
    assert!(made.error.is_none());
    assert!(made.grants.iter().all(|grant| !grant.bits.intersects(DATA)), "not even this");
    let flags = OpenFlags { write: true, truncate: false, exec: false };
    let open_id = world.open_id(B);
    let cred = Cred::default();
    let set = SetAttr { size: Some(7), ..SetAttr::default() };
    let asked = [
        MdtRequest::Enqueue { fid, mode: LockMode::Pr, bits: DATA },
        MdtRequest::Open { fid, flags, open_id, cred, want: DATA },
        MdtRequest::SetAttr { fid, set, cred },
    ];
    let calls = asked.map(|request| world.start(B, request));
    world.rest();
    assert!(calls.iter().all(|call| world.reply(*call).is_none()), "A could still be writing");
    world.cut_off = false;
    for _ in 0..3 {
        world.tick(2_100);
        world.rest();
    }
    for call in calls {
        assert_eq!(world.reply(call).map(|reply| reply.error), Some(None));
    }
    for ost in world.osts.values() {
        let fence = |request: &OstRequest| matches!(request, OstRequest::Fence { .. });
        let first = ost.seen.iter().rposition(fence).unwrap();
        let touches = |request: &OstRequest| {
            matches!(request, OstRequest::Punch { .. } | OstRequest::List { .. })
        };
        assert!(!ost.seen[..first].iter().any(touches), "a late write would undo it");
        assert!(ost.seen[first..].iter().any(touches));
        assert_eq!(ost.fenced, [A, B]);
    }
}

fn glimpse(fid: Fid, size: u64, version: u64) -> MdtRequest {
    MdtRequest::ReportSize { fid, report: report(size, false), glimpsed: true, version }
}

/// A glimpse that may be older than the last write of a client that was lost is not believed; but
/// whoever asks again sees that he has to look once more.
fn believed_in_the_end(world: &mut World, fid: Fid, seen: u64) {
    world.ok(B, glimpse(fid, 4096, seen));
    let attr = world.stat(B, fid);
    assert!(attr.size_stale, "others may have written since");
    assert_ne!(attr.version, seen);
    world.ok(B, glimpse(fid, 8192, attr.version));
    let attr = world.stat(B, fid);
    assert_eq!((attr.size, attr.size_stale), (8192, false));
}

#[test]
fn a_glimpse_from_before_the_fence_is_not_believed_after_a_restart() {
    let mut world = World::with_clients(2);
    let (reply, _) = world.creat(A, ROOT, "f", META.union(DATA));
    let ReplyBody::Mdt(MdtReply::Created { attr, .. }) = reply.body else { panic!() };
    world.rest();
    // One OST comes late: there A is not refused yet.
    world.gone = [1].into();
    world.crash(world.frames.len());
    world.connect(B);
    let seen = world.stat(B, attr.fid);
    assert!(seen.size_stale);
    // It is answered all the same: for now B may go by what it has seen.
    world.ok(B, glimpse(attr.fid, 4096, seen.version));
    assert_eq!(world.stat(B, attr.fid), seen);
    world.gone.clear();
    world.tick(2_100);
    world.rest();
    assert!(world.osts[&1].fenced.contains(&A));
    believed_in_the_end(&mut world, attr.fid, seen.version);
}

/// Nobody finds that again once the inode is changed, since what is told of its objects does not say
/// whether it is from before somebody has set a time.
#[test]
fn when_a_file_was_written_is_noted_before_the_fence() {
    let mut world = World::with_clients(2);
    let (reply, _) = world.creat(A, ROOT, "f", META.union(DATA));
    let ReplyBody::Mdt(MdtReply::Created { attr: Attr { fid, .. }, .. }) = reply.body else {
        panic!()
    };
    world.rest();
    world.gone = [1].into();
    world.crash(world.frames.len());
    world.connect(B);
    let seen = world.stat(B, fid);
    let mtime = Timespec::from_ns(world.now.wall_ns);
    assert!(seen.size_stale && seen.ctime < mtime);
    let glimpse_at = |version, mtime| {
        let report = SizeReport { mtime: Some(mtime), ..report(4096, false) };
        MdtRequest::ReportSize { fid, report, glimpsed: true, version }
    };
    world.ok(B, glimpse_at(seen.version, mtime));
    let noted = world.stat(B, fid);
    assert_eq!((noted.mtime, noted.ctime, noted.size), (mtime, mtime, seen.size));
    assert!(noted.size_stale && noted.version > seen.version);
    // Neither what goes by something older, nor the same once more.
    world.ok(B, glimpse_at(seen.version, seen.mtime));
    world.ok(B, glimpse_at(noted.version, mtime));
    assert_eq!(world.stat(B, fid), noted);
    world.tick(10);
    let set = SetAttr { mode: Some(0o700), ..SetAttr::default() };
    world.ok(B, MdtRequest::SetAttr { fid, set, cred: Cred::default() });
    world.gone.clear();
    world.tick(2_100);
    world.rest();
    let seen = world.stat(B, fid);
    assert!(seen.ctime > mtime && seen.size_stale);
    believed_in_the_end(&mut world, fid, seen.version);
    assert_eq!(world.stat(B, fid).mtime, mtime);
}

#[test]
fn a_glimpse_from_before_the_fence_is_not_believed_after_an_eviction() {
    let mut world = World::with_clients(2);
    let (reply, _) = world.creat(A, ROOT, "f", META.union(DATA));
    let ReplyBody::Mdt(MdtReply::Created { attr, .. }) = reply.body else { panic!() };
    world.cut_off = true;
    let (now, mut out) = (world.now, Outbox::new());
    world.mdt.evict_client(now, A, &mut out);
    let seen = world.stat(B, attr.fid);
    assert!(seen.size_stale);
    world.cut_off = false;
    world.tick(2_100);
    world.rest();
    assert!(world.osts.values().all(|ost| ost.fenced == [A]));
    believed_in_the_end(&mut world, attr.fid, seen.version);
}

/// Nobody waits for an OST out of use; once it is used again, what comes from there is to be
/// believed only when it refuses the client, too.
#[test]
fn a_glimpse_from_before_an_ost_came_back_is_not_believed_after_its_fence() {
    let mut world = World::with_clients(2);
    let (reply, _) = world.creat(A, ROOT, "f", META.union(DATA));
    let ReplyBody::Mdt(MdtReply::Created { attr, .. }) = reply.body else { panic!() };
    world.gone = [1].into();
    world.mdt.set_ost_active(1, false);
    let (now, mut out) = (world.now, Outbox::new());
    world.mdt.evict_client(now, A, &mut out);
    world.tick(2_100);
    world.rest();
    assert!(world.osts[&0].fenced.contains(&A) && !world.osts[&1].fenced.contains(&A));
    let seen = world.stat(B, attr.fid);
    world.ok(B, glimpse(attr.fid, 4096, seen.version));
    let seen = world.stat(B, attr.fid);
    world.mdt.set_ost_active(1, true);
    world.ok(B, glimpse(attr.fid, 4096, seen.version));
    assert_eq!(world.stat(B, attr.fid), seen, "A may still write there");
    world.gone.clear();
    world.tick(2_100);
    world.rest();
    assert!(world.osts[&1].fenced.contains(&A));
    believed_in_the_end(&mut world, attr.fid, seen.version);
}

#[test]
fn a_client_of_the_last_run_comes_as_another() {
    let (mut world, fid) = crashed_under_a_writer();
    world.cut_off = false;
    world.clients.entry(A).or_default();
    connect_as(&mut world, A, A.0, 5);
    let refusal = world.reply(Call { client: A, slot: 0, seq: 5 }).unwrap();
    assert_eq!(refusal.error, Some(Errno::ESTALE));
    connect_as(&mut world, A, 77, 6);
    assert_ne!(world.clients[&A].generation, 0);
    world.tick(2_100);
    world.rest();
    world.ok(A, MdtRequest::GetAttr { fid, want: META });
}

#[test]
fn a_client_that_goes_on_as_another_leaves_nothing_behind() {
    let mut world = World::with_clients(1);
    let (reply, _) = world.creat(A, ROOT, "f", DATA);
    let fid = reply.grants.iter().next().unwrap().fid;
    world.clients.get_mut(&A).unwrap().obliging = false;
    let call = world.start(B, MdtRequest::Enqueue { fid, mode: LockMode::Pw, bits: DATA });
    assert_eq!(world.reply(call), None);
    // Somebody else has thrown it out.
    connect_as(&mut world, A, 77, 2);
    world.rest();
    assert_eq!(world.osts[&0].fenced, [A]);
    assert!(world.reply(call).is_some_and(|reply| reply.error.is_none()));
    assert!(world.mdt.is_connected(ClientId(77)) && !world.mdt.is_connected(A));
    let late = Header {
        from: Endpoint::Client(A),
        client: A,
        generation: 0,
        ..world.header(Call { client: A, slot: 0, seq: 1 })
    };
    world.deliver(late, Request::Connect { features: 0 });
    assert!(world.mdt.is_connected(ClientId(77)), "an old attempt that comes late");
}

#[test]
fn a_request_that_waits_for_the_index_is_void_once_its_client_has_connected_anew() {
    let mut world = World::with_clients(1);
    world.mkdir(A, ROOT, "dir");
    world.cold = true;
    world.rest();
    world.held_prefetches = Some(Vec::new());
    let request = world.create_request(A, ROOT, "twice", 0o100_644);
    let call = world.start(A, request);
    assert_eq!(world.reply(call), None);
    connect_as(&mut world, A, A.0, 3);
    world.release_prefetches();
    world.rest();
    assert_eq!(world.lookup(B, ROOT, "twice"), Err(Errno::ENOENT), "it was given up");
}

/// More than the journal takes at once: requests are held until it is written.
pub fn fill_journal(world: &mut World) {
    let mut large = Batch::new();
    for key in 0..144u8 {
        large.put_with(&Key::tag(b'~').with(&[key]), |out| out.resize(out.len() + (60 << 10), 7));
    }
    world.mdt.store().commit(&large);
}

#[test]
fn nobody_is_evicted_whose_answer_waits_for_the_journal() {
    let mut world = World::with_clients(1);
    let (reply, _) = world.creat(A, ROOT, "f", DATA);
    let fid = reply.grants.iter().next().unwrap().fid;
    world.clients.get_mut(&A).unwrap().obliging = false;
    let wants = world.start(B, MdtRequest::Enqueue { fid, mode: LockMode::Pw, bits: DATA });
    let asked = world.clients.get_mut(&A).unwrap().callbacks.pop_front();
    let Some(Callback::Blocking { id, .. }) = asked else { panic!("{asked:?}") };
    fill_journal(&mut world);
    let gives = MdtRequest::Cancel { fid, id, report: None, more: vec![] };
    let header = world.header(Call { client: A, slot: 900, seq: 1 });
    let body = Body::Request(Request::Mdt(gives));
    let mut out = Outbox::new();
    world.mdt.on_message(world.now, Message { header, body, bulk: Bulk::None }, &mut out);
    for _ in 0..(sateen_mdt::CALLBACK_LIMIT_NS + 1_000_000_000) / 50_000_000 {
        world.now.mono_ns += 50_000_000;
        world.mdt.on_tick(world.now, &mut out);
    }
    out.drain().for_each(drop);
    assert!(world.mdt.is_connected(A));
    world.rest();
    assert!(world.mdt.is_connected(A));
    assert_eq!(world.reply(wants).map(|reply| reply.error), Some(None));
}

#[test]
fn a_goodbye_is_heard_when_nothing_else_is() {
    let mut world = World::with_clients(1);
    let (reply, _) = world.creat(A, ROOT, "f", DATA);
    let fid = reply.grants.iter().next().unwrap().fid;
    assert!(world.mdt.lock_holders(fid).any(|held| held.client == A));
    fill_journal(&mut world);
    let mut out = Outbox::new();
    let mut send = |world: &mut World, slot, seq, request| {
        let header = world.header(Call { client: A, slot, seq });
        let message = Message { header, body: Body::Request(request), bulk: Bulk::None };
        world.mdt.on_message(world.now, message, &mut out);
        out.drain().for_each(drop);
    };
    for seq in 1..=sateen_mdt::HELD_MAX as u64 {
        let get = MdtRequest::GetAttr { fid, want: Ibits::NONE };
        send(&mut world, 900, seq, Request::Mdt(get));
    }
    send(&mut world, 901, 1, Request::Disconnect);
    world.rest();
    assert!(!world.mdt.lock_holders(fid).any(|held| held.client == A));
}

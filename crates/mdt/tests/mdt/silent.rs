//! Clients of which nothing is heard: who is thrown out, and who is not although it is silent.

use sateen_mdt::{MD_STATS, PATIENCE};
use sateen_target::{Outbox, Service};
use sateen_types::{ClientId, Endpoint, Errno, Fid};
use sateen_wire::*;

use crate::clients::{connect_as, fill_journal};
use crate::harness::*;

const DATA: Ibits = Ibits::DATA;
/// Longer than anybody may be silent who was not before, in milliseconds.
const LONG_MS: u64 = PATIENCE.min_ns / 1_000_000 + 1_500;

/// A client promises to speak.
fn promises(world: &mut World, client: ClientId) {
    let id = world.clients[&client].id;
    let header = world.header(Call { client, slot: 0, seq: 1 });
    world.deliver(Header { generation: 0, ..header }, Request::Connect { features: SPEAKS });
    assert_eq!(world.clients[&client].id, id);
}

/// Two clients that have promised it.
fn speaking(osts: u32) -> World {
    let mut world = World::with_clients(osts);
    for client in [A, B] {
        promises(&mut world, client);
    }
    world
}

fn speaks(world: &mut World, client: ClientId) {
    let seq = world.clients.get_mut(&client).unwrap().seqs.entry(900).or_default();
    *seq += 1;
    let call = Call { client, slot: 900, seq: *seq };
    world.deliver(world.header(call), Request::Ping);
    assert!(world.reply(call).is_some_and(|reply| reply.error.is_none()), "{client:?} is known");
}

/// Time goes by, in which these say something every second.
pub fn listen(world: &mut World, ms: u64, speakers: &[ClientId]) {
    for _ in 0..ms / 1_000 {
        for client in speakers {
            speaks(world, *client);
        }
        world.tick(1_000);
    }
    world.tick(ms % 1_000);
}

/// How many clients were thrown out, by reason.
fn evictions(world: &World) -> Vec<String> {
    let mut text = String::new();
    world.mdt.stats().write(&MD_STATS, &mut text).unwrap();
    let words = text.lines().filter(|line| line.starts_with("evict"));
    let first = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    words.map(first).collect()
}

fn open(world: &mut World, client: ClientId, fid: Fid, flags: OpenFlags) -> Reply {
    let open_id = world.open_id(client);
    let cred = Cred::default();
    world.call(client, MdtRequest::Open { fid, flags, open_id, cred, want: Ibits::NONE })
}

#[test]
fn who_is_silent_leaves_nothing_behind() {
    let mut world = speaking(2);
    let (reply, _) = world.creat(B, ROOT, "file", Ibits::META.union(DATA));
    let fid = reply.grants.iter().next().unwrap().fid;
    // A file without a name, and one that is executed.
    let (reply, _) = world.creat(B, ROOT, "gone", Ibits::NONE);
    let ReplyBody::Mdt(MdtReply::Created { attr, layout: Some(layout), .. }) = reply.body else {
        panic!("{reply:?}")
    };
    world.write(&layout, attr.fid, 1 << 20);
    world.ok(B, World::unlink_request(ROOT, "gone", false));
    let program = world.mknod(B, ROOT, "program");
    let [write, exec] = [(true, false), (false, true)].map(|(write, exec)| OpenFlags {
        write,
        truncate: false,
        exec,
    });
    assert_eq!(open(&mut world, B, program, exec).error, None);
    assert_eq!(open(&mut world, A, program, write).error, Some(Errno::ETXTBSY));
    world.rest();
    world.cut_off = true;
    listen(&mut world, LONG_MS - 3_000, &[A]);
    assert!(world.mdt.is_connected(B) && world.objects() > 0);
    assert!(world.mdt.open_files().any(|(client, _)| client == B));
    listen(&mut world, 3_000, &[A]);
    assert!(world.mdt.is_connected(A) && !world.mdt.is_connected(B));
    assert_eq!(evictions(&world), ["evict_silent 1"]);
    assert_eq!(world.mdt.evicted_silent(), 1);
    assert!(world.mdt.open_files().all(|(client, _)| client != B));
    assert_eq!(open(&mut world, A, program, write).error, None, "nobody wanted a lock for that");
    // What it could still be writing to others get when the OSTs refuse it.
    let wants = world.start(A, MdtRequest::Enqueue { fid, mode: LockMode::Pw, bits: DATA });
    world.rest();
    assert_eq!(world.reply(wants), None);
    world.cut_off = false;
    for _ in 0..3 {
        world.tick(2_100);
        world.rest();
    }
    assert_eq!(world.reply(wants).map(|reply| reply.error), Some(None));
    assert!(world.osts.values().all(|ost| ost.fenced == [B]));
    assert_eq!(world.objects(), 0, "nobody has it open any more");
    // If it was only cut off, it comes back as another.
    connect_as(&mut world, B, B.0, 9);
    let refusal = world.reply(Call { client: B, slot: 0, seq: 9 }).unwrap();
    assert_eq!(refusal.error, Some(Errno::ESTALE));
    connect_as(&mut world, B, 77, 10);
    world.ok(B, MdtRequest::GetAttr { fid, want: Ibits::META });
}

#[test]
fn who_has_not_promised_to_speak_may_be_silent() {
    let mut world = World::with_clients(1);
    promises(&mut world, A);
    listen(&mut world, 2 * LONG_MS, &[A]);
    assert!(world.mdt.is_connected(B));
    assert_eq!(world.mdt.heard(B).ago_ns / 1_000_000_000, 2 * LONG_MS / 1_000);
    // It is its connection of now that counts, as when it was updated.
    promises(&mut world, B);
    listen(&mut world, LONG_MS - 3_000, &[A]);
    assert!(world.mdt.is_connected(B));
    assert_eq!(world.mdt.heard(B).gap_ns / 1_000_000_000, 2 * LONG_MS / 1_000);
    // It was silent for so long that it may be so for longer than others.
    listen(&mut world, 3 * LONG_MS, &[A]);
    assert!(world.mdt.is_connected(B));
}

#[test]
fn many_who_are_silent_go_some_at_a_time() {
    let mut world = speaking(1);
    for client in 1000..1100 {
        let client = ClientId(client);
        world.clients.entry(client).or_default().id = client.0;
        connect_as(&mut world, client, client.0, 1);
        promises(&mut world, client);
    }
    let mut left = Vec::new();
    for _ in 0..LONG_MS / 1_000 + 5 {
        listen(&mut world, 1_000, &[A, B]);
        left.push(world.mdt.exports().count());
    }
    left.dedup();
    assert_eq!(left, [102, 38, 2]);
}

#[test]
fn nobody_is_evicted_by_who_did_not_listen() {
    let mut world = speaking(1);
    let (reply, _) = world.creat(B, ROOT, "file", DATA);
    let fid = reply.grants.iter().next().unwrap().fid;
    world.clients.get_mut(&B).unwrap().obliging = false;
    let wants = world.start(A, MdtRequest::Enqueue { fid, mode: LockMode::Pw, bits: DATA });
    assert_eq!(world.clients[&B].callbacks.len(), 1);
    // Its process is stopped for an hour, in which B gives the lock back and everybody speaks; it
    // has not read that yet when it goes on.
    for _ in 0..5 {
        world.stand_still(3_600_000);
    }
    assert!(world.mdt.is_connected(A) && world.mdt.is_connected(B));
    let asked = world.clients.get_mut(&B).unwrap().callbacks.pop_front();
    let Some(Callback::Blocking { id, .. }) = asked else { panic!("{asked:?}") };
    world.start(B, MdtRequest::Cancel { fid, id, report: None, more: vec![] });
    world.rest();
    assert_eq!(world.reply(wants).map(|reply| reply.error), Some(None));
    // Nobody at all is heard: that is its own network.
    world.tick(10 * LONG_MS);
    assert!(world.mdt.is_connected(A) && world.mdt.is_connected(B));
    // The network has heard of one of them, but could not bring what it says.
    world.mdt.on_heard(&[]);
    for _ in 0..LONG_MS / 1_000 {
        world.mdt.on_heard(&[Endpoint::Client(B), Endpoint::Ost(0)]);
        listen(&mut world, 1_000, &[A]);
    }
    assert!(world.mdt.is_connected(B));
    assert!(evictions(&world).is_empty());
    // And now it has not.
    world.mdt.on_heard(&[]);
    listen(&mut world, LONG_MS, &[A]);
    assert!(!world.mdt.is_connected(B));
}

#[test]
fn nobody_is_evicted_while_requests_are_held() {
    let mut world = speaking(1);
    fill_journal(&mut world);
    let mut out = Outbox::new();
    let get = MdtRequest::GetAttr { fid: ROOT, want: Ibits::NONE };
    let header = world.header(Call { client: A, slot: 901, seq: 1 });
    let body = Body::Request(Request::Mdt(get));
    world.mdt.on_message(world.now, Message { header, body, bulk: Bulk::None }, &mut out);
    for seq in 1..2 * LONG_MS / 50 {
        world.now.mono_ns += 50_000_000;
        let header = world.header(Call { client: A, slot: 902, seq });
        let body = Body::Request(Request::Ping);
        world.mdt.on_message(world.now, Message { header, body, bulk: Bulk::None }, &mut out);
        world.mdt.on_tick(world.now, &mut out);
    }
    out.drain().for_each(drop);
    assert!(world.mdt.is_connected(B));
    world.rest();
    listen(&mut world, 2_000, &[A]);
    assert!(!world.mdt.is_connected(B), "its time was over long ago");
}

#[test]
fn who_is_not_wanted_is_thrown_out() {
    let mut world = World::with_clients(1);
    assert_eq!(world.mdt.want_out(ClientId(4711)), Err(Errno::ENOENT));
    assert_eq!(world.mdt.want_out(B), Ok(()));
    world.tick(50);
    assert!(!world.mdt.is_connected(B) && world.mdt.is_connected(A));
    assert_eq!(evictions(&world), ["evict_admin 1"]);
    assert_eq!(world.mdt.want_out(B), Err(Errno::ENOENT), "it is gone");
}

#[test]
fn evictions_are_counted_by_reason() {
    let mut world = speaking(1);
    let (reply, _) = world.creat(A, ROOT, "file", DATA);
    let fid = reply.grants.iter().next().unwrap().fid;
    world.clients.get_mut(&A).unwrap().obliging = false;
    world.start(B, MdtRequest::Enqueue { fid, mode: LockMode::Pw, bits: DATA });
    listen(&mut world, sateen_mdt::CALLBACK_LIMIT_NS / 1_000_000 + 2_000, &[B]);
    assert_eq!(evictions(&world), ["evict_callback 1"]);
    connect_as(&mut world, B, 77, 2);
    let (now, mut out) = (world.now, Outbox::new());
    world.mdt.evict_client(now, ClientId(77), &mut out);
    assert_eq!(evictions(&world), ["evict_callback 1", "evict_succeeded 1", "evict_admin 1"]);
    world.mdt.clear_stats();
    assert!(evictions(&world).is_empty());
}

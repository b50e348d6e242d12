//! Restarts in good order: clients come back as themselves, and nobody but them sees a gap.

use sateen_osd::{Batch, Key};
use sateen_target::{Ending, Service};
use sateen_types::{ClientId, Endpoint, Errno, Fid, Layout, ObjectId, Seq};
use sateen_wire::codec::Wire;
use sateen_wire::disk::stopped::{self, StopMark};
use sateen_wire::*;

use crate::fsck;
use crate::harness::*;

const C: ClientId = ClientId(3);
const META: Ibits = Ibits::META;
const DATA: Ibits = Ibits::DATA;
const WRITE: OpenFlags = OpenFlags { write: true, truncate: false, exec: false };
const READ: OpenFlags = OpenFlags { write: false, truncate: false, exec: false };

/// What a client tells.
#[derive(Default, Clone)]
struct Had {
    locks: Vec<HeldLock>,
    opens: Vec<HeldOpen>,
    seqs: Vec<Seq>,
    file_locks: Vec<HeldFileLock>,
}

impl Had {
    fn grants(mut self, reply: &Reply) -> Had {
        let held = |grant: &Grant| {
            let Grant { id, fid, mode, bits } = *grant;
            HeldLock { fid, id, mode, bits }
        };
        self.locks.extend(reply.grants.iter().map(held));
        self
    }

    fn open(mut self, fid: Fid, open_id: OpenId, flags: OpenFlags) -> Had {
        self.opens.push(HeldOpen { open_id, fid, flags, closing: false });
        self
    }

    fn claim(self, last: bool) -> MdtRequest {
        let Had { locks, opens, seqs, file_locks } = self;
        MdtRequest::Reclaim { locks, opens, seqs, file_locks, last }
    }
}

fn seq_of(world: &World, client: ClientId) -> Had {
    Had { seqs: vec![world.clients[&client].fids.unwrap().0], ..Had::default() }
}

/// Stops in good order and starts again; both clients connect, and may tell what they had.
fn again(world: &mut World) {
    assert_eq!(world.stop(), Ending::Clean);
    fsck::check(&fsck::image(&world.frames));
    let before = 100 + world.boots;
    world.restart();
    for client in [A, B] {
        assert_eq!(world.reconnect(client), Some(before));
    }
}

/// A client tells everything; nobody waits for B any more.
fn come_back(world: &mut World, had: Had) {
    let b = seq_of(world, B).claim(true);
    let told = [world.start(A, had.claim(true)), world.start(B, b)];
    world.rest();
    for call in told {
        assert_eq!(world.reply(call).unwrap().error, None, "{call:?}");
    }
}

/// A request whose answer got lost is sent once more.
fn resend(world: &mut World, call: Call, request: MdtRequest) -> Option<Reply> {
    world.clients.get_mut(&call.client).unwrap().replies.remove(&(call.slot, call.seq));
    world.deliver(world.header(call), Request::Mdt(request));
    world.rest();
    world.reply(call)
}

fn made(reply: &Reply) -> (Fid, Layout) {
    let ReplyBody::Mdt(MdtReply::Created { attr, layout: Some(layout), .. }) = &reply.body else {
        panic!("{reply:?}")
    };
    (attr.fid, (**layout).clone())
}

fn open_request(fid: Fid, open_id: OpenId, flags: OpenFlags) -> MdtRequest {
    MdtRequest::Open { fid, flags, open_id, cred: Cred::default(), want: Ibits::NONE }
}

#[test]
fn a_writer_goes_on_under_its_old_lock() {
    for cold in [false, true] {
        let mut world = World::with_clients(2);
        world.cold = cold;
        let (reply, id) = world.creat(A, ROOT, "f", META.union(DATA));
        let (fid, layout) = made(&reply);
        world.write(&layout, fid, 3 << 20);
        let had = seq_of(&world, A).grants(&reply).open(fid, id, WRITE);
        assert!(had.locks.iter().any(|lock| lock.mode == LockMode::Pw && lock.bits == DATA));
        again(&mut world);
        for fake in world.clients.values_mut() {
            fake.obliging = false;
        }
        let early = world.start(B, MdtRequest::GetAttr { fid, want: DATA });
        // In two messages, the first of them twice.
        let first = Had { locks: had.locks.clone(), ..Had::default() };
        for _ in 0..2 {
            world.ok(A, first.clone().claim(false));
        }
        let told = world.start(A, had.clone().claim(true));
        world.rest();
        assert_eq!((world.reply(told), world.reply(early)), (None, None), "B may have something");
        assert!(world.mdt.recovery_status().recovering);
        let b = seq_of(&world, B);
        world.ok(B, b.claim(true));
        assert_eq!(world.reply(told).unwrap().error, None);
        let status = world.mdt.recovery_status();
        assert_eq!((status.expected, status.completed, status.recovering), (2, 2, false));
        // The size is asked of its holder, by the name that he knows.
        world.rest();
        assert_eq!(world.reply(early), None);
        let data = had.locks.iter().find(|lock| lock.bits == DATA).unwrap();
        let asked = world.clients.get_mut(&A).unwrap().callbacks.pop_front();
        let Some(Callback::Glimpse { id: of, question, .. }) = asked else { panic!("{asked:?}") };
        assert_eq!(of, data.id);
        // What the run before has asked is no question of this one.
        let told = Some(report(77, true));
        let before = question.wrapping_sub(1);
        world.ok(A, MdtRequest::AnswerGlimpse { fid, question: before, told });
        assert_eq!(world.reply(early), None);
        let report = Some(report(3 << 20, true));
        world.ok(A, MdtRequest::Cancel { fid, id: data.id, report, more: vec![] });
        let ReplyBody::Mdt(MdtReply::Inode { attr }) = world.reply(early).unwrap().body else {
            panic!()
        };
        assert_eq!((attr.size, attr.size_stale), (3 << 20, false));
        // Its sequence and its open are its own.
        world.mknod(A, ROOT, "g");
        world.close(A, fid, id, None);
        assert!(!world.stat(B, fid).size_stale);
        assert!(world.osts.values().all(|ost| ost.fenced.is_empty()));
        fsck::check(&fsck::image(&world.frames));
    }
}

#[test]
fn a_size_that_nobody_told_is_looked_for() {
    let mut world = World::with_clients(1);
    let (reply, id) = world.creat(A, ROOT, "f", META.union(DATA));
    let (fid, layout) = made(&reply);
    world.write(&layout, fid, 5);
    let had = seq_of(&world, A).open(fid, id, WRITE);
    again(&mut world);
    come_back(&mut world, had);
    // It has said nothing of its lock, nor of the size.
    world.close(A, fid, id, None);
    assert!(world.stat(B, fid).size_stale);
}

/// Sends a request in this slot.
fn start_in(world: &mut World, client: ClientId, slot: u16, request: MdtRequest) -> Call {
    let seq = world.clients.get_mut(&client).unwrap().seqs.entry(slot).or_default();
    *seq += 1;
    let call = Call { client, slot, seq: *seq };
    world.deliver(world.header(call), Request::Mdt(request));
    call
}

#[test]
fn what_was_done_is_answered_once_more_and_the_rest_is_done() {
    let mut world = World::with_clients(1);
    let [gone, kept] = ["gone", "kept"].map(|text| world.mknod(A, ROOT, text));
    let close_id = world.open_id(A);
    world.ok(A, open_request(gone, close_id, WRITE));
    let (reply, id) = world.creat(A, ROOT, "held", DATA);
    let held = made(&reply).0;
    world.clients.get_mut(&A).unwrap().obliging = false;
    let open_id = world.open_id(A);
    let open = open_request(kept, open_id, READ);
    let opened = start_in(&mut world, A, 5, open.clone());
    let unlink = World::unlink_request(ROOT, "gone", false);
    let unlinked = start_in(&mut world, B, 7, unlink.clone());
    let close = MdtRequest::Close { fid: gone, open_id: close_id, report: None };
    let closed = start_in(&mut world, A, 6, close.clone());
    for call in [opened, unlinked, closed] {
        assert_eq!(world.reply(call).unwrap().error, None, "{call:?}");
    }
    let before = world.reply(unlinked).unwrap();
    // Somebody waits for a lock: this one was not executed.
    let wait = MdtRequest::GetAttr { fid: held, want: DATA };
    let waits = start_in(&mut world, B, 8, wait.clone());
    assert_eq!(world.reply(waits), None);

    // A knows neither that the first is open nor that the second is closed.
    let had = seq_of(&world, A).grants(&reply).open(held, id, WRITE).open(gone, close_id, WRITE);
    again(&mut world);
    let told = resend(&mut world, unlinked, unlink).unwrap();
    assert_eq!((told.error, told.transno, told.body), (None, before.transno, before.body));
    come_back(&mut world, had);
    assert!(resend(&mut world, opened, open).is_some_and(|reply| reply.error.is_none()));
    assert!(resend(&mut world, closed, close.clone()).is_some_and(|reply| reply.error.is_none()));
    assert_eq!(resend(&mut world, waits, wait), None);
    world.clients.get_mut(&A).unwrap().obliging = true;
    world.settle();
    assert_eq!(world.reply(waits).unwrap().error, None);
    world.close(A, kept, open_id, None);
    assert_eq!(world.err(A, close), Errno::EBADF);
    assert_eq!(world.err(B, MdtRequest::GetAttr { fid: gone, want: META }), Errno::ESTALE);
    fsck::check(&fsck::image(&world.frames));
    // Slots whose last request was asked once more go on like the others.
    let cancel = MdtRequest::Cancel { fid: held, id: LockId(1), report: None, more: vec![] };
    let mut last = start_in(&mut world, A, 5, cancel.clone());
    let had = seq_of(&world, A).open(held, id, WRITE);
    again(&mut world);
    come_back(&mut world, had);
    assert!(resend(&mut world, last, cancel.clone()).is_some(), "as if it had not been executed");
    for _ in 0..2 {
        last = start_in(&mut world, A, 5, cancel.clone());
        assert!(world.reply(last).is_some());
    }
}

#[test]
fn what_a_lost_answer_has_opened_is_open_after_two_stops() {
    let mut world = World::with_clients(1);
    let (fid, open_id) = (world.fid(A), world.open_id(A));
    let request = MdtRequest::Tmpfile {
        parent: ROOT,
        fid,
        mode: 0o600,
        cred: Cred::default(),
        flags: READ,
        open_id,
        linkable: false,
        want: Ibits::NONE,
    };
    let made = start_in(&mut world, A, 5, request.clone());
    assert_eq!(world.reply(made).unwrap().error, None);
    // Nobody asks again between the two.
    for _ in 0..2 {
        let had = seq_of(&world, A);
        again(&mut world);
        come_back(&mut world, had);
    }
    assert_eq!(resend(&mut world, made, request).unwrap().error, None);
    assert_eq!(world.stat(A, fid).nlink, 0);
    world.close(A, fid, open_id, None);
    assert_eq!(world.err(A, MdtRequest::GetAttr { fid, want: META }), Errno::ESTALE);
}

#[test]
fn what_has_no_name_stays_as_long_as_it_is_open() {
    for back in [true, false] {
        let mut world = World::with_clients(1);
        let (reply, id) = world.creat(A, ROOT, "f", Ibits::NONE);
        let (fid, layout) = made(&reply);
        world.write(&layout, fid, 5);
        world.ok(B, World::unlink_request(ROOT, "f", false));
        let (unnamed, unnamed_id) = (world.fid(A), world.open_id(A));
        let tmpfile = MdtRequest::Tmpfile {
            parent: ROOT,
            fid: unnamed,
            mode: 0o600,
            cred: Cred::default(),
            flags: WRITE,
            open_id: unnamed_id,
            linkable: true,
            want: Ibits::NONE,
        };
        world.ok(A, tmpfile);
        let had = seq_of(&world, A).open(fid, id, WRITE).open(unnamed, unnamed_id, WRITE);
        again(&mut world);
        world.rest();
        assert_eq!(world.objects(), 1);
        if back {
            come_back(&mut world, had);
            world.rest();
            assert_eq!(world.objects(), 1);
            let link = |fid, text| MdtRequest::Link { fid, parent: ROOT, name: name(text) };
            assert_eq!(world.err(A, link(fid, "no")), Errno::ENOENT);
            world.ok(A, link(unnamed, "yes"));
            world.close(A, fid, id, None);
        } else {
            world.ok(
                B,
                MdtRequest::Reclaim {
                    locks: Vec::new(),
                    opens: Vec::new(),
                    seqs: Vec::new(),
                    file_locks: Vec::new(),
                    last: false,
                },
            );
            // A says goodbye: it has nothing open any more.
            let call = Call { client: A, slot: 9, seq: 1 };
            world.deliver(world.header(call), Request::Disconnect);
            world.ok(B, Had::default().claim(true));
        }
        for _ in 0..3 {
            world.rest();
            world.tick(2_000);
        }
        assert_eq!(world.objects(), 0, "back: {back}");
        let image = fsck::image(&world.frames);
        fsck::check(&image);
        assert_eq!(fsck::of(&image, b'O').count(), 0);
        assert_eq!(world.lookup(B, ROOT, "yes").is_ok(), back);
    }
}

#[test]
fn locks_of_programs_stay() {
    let mut world = World::with_clients(1);
    let fid = world.mknod(A, ROOT, "f");
    let [a, b] = [A, B].map(|client| {
        let id = world.open_id(client);
        world.ok(client, open_request(fid, id, READ));
        id
    });
    let (mode, end) = (FileLockMode::Write, FILE_LOCK_END_MAX);
    let lock = FileLock { owner: 5, flock: false, mode, start: 3, end, pid: 7 };
    let set = |open_id, start| {
        let lock = FileLock { start, ..lock };
        MdtRequest::SetFileLock { fid, open_id, lock, wait: None }
    };
    world.ok(A, set(a, 3));
    let mut had = seq_of(&world, A).open(fid, a, READ);
    had.file_locks.push(HeldFileLock { fid, open_id: a, lock });
    again(&mut world);
    // Nobody slips in.
    let early = world.start(B, set(b, 0));
    let mut other = seq_of(&world, B).open(fid, b, READ);
    let told = world.start(B, other.clone().claim(true));
    world.rest();
    assert_eq!((world.reply(early), world.reply(told)), (None, None));
    world.ok(A, had.clone().claim(true));
    let ReplyBody::Mdt(MdtReply::FileLock { state, .. }) = world.reply(early).unwrap().body else {
        panic!()
    };
    assert_eq!(state, FileLockState::Busy);
    // Two that exclude each other cannot be.
    again(&mut world);
    // Not of the owner whose last request the MDT knows: of that one it knows what there is.
    let lock = FileLock { owner: 6, ..lock };
    other.file_locks.push(HeldFileLock { fid, open_id: b, lock });
    let told = world.start(A, had.claim(true));
    assert_eq!(world.err(B, other.claim(true)), Errno::ESTALE);
    world.rest();
    assert_eq!(world.reply(told).unwrap().error, None);
}

#[test]
fn a_truncate_is_finished_first() {
    for in_time in [true, false] {
        let mut world = World::with_clients(1);
        let (reply, id) = world.creat(A, ROOT, "f", META.union(DATA));
        let (fid, layout) = made(&reply);
        world.write(&layout, fid, 3 << 20);
        let told = report(3 << 20, true);
        world.ok(A, MdtRequest::ReportSize { fid, report: told, glimpsed: false, version: 0 });
        world.cut_off = true;
        let set = SetAttr { size: Some(0), ..SetAttr::default() };
        let cut = world.start(A, MdtRequest::SetAttr { fid, set, cred: Cred::default() });
        world.begin_stop();
        world.tick(1_000);
        assert_eq!((world.mdt.ending(), world.reply(cut)), (Ending::Working, None));
        world.cut_off = !in_time;
        world.tick(3_000);
        if !in_time {
            assert_eq!(world.stop(), Ending::Lost);
            world.restart();
            assert_eq!(world.reconnect(A), None, "it is refused");
            continue;
        }
        assert_eq!(world.reply(cut).unwrap().error, None);
        let had = seq_of(&world, A).grants(&reply).open(fid, id, WRITE);
        again(&mut world);
        come_back(&mut world, had);
        let object = ObjectId { fid, stripe: 0 };
        assert_eq!(world.osts[&0].objects.get(&object), Some(&0));
        world.close(A, fid, id, None);
    }
}

/// So many seconds, in which somebody is heard.
fn seconds(world: &mut World, seconds: u64) {
    let peer = Endpoint::Client(C);
    for _ in 0..seconds {
        world.mdt.on_heard(&[peer]);
        world.tick(1_000);
    }
}

#[test]
fn who_stays_away_is_lost_and_a_stranger_waits_for_that() {
    let mut world = World::with_clients(1);
    let (reply, id) = world.creat(B, ROOT, "f", META.union(DATA));
    let (fid, layout) = made(&reply);
    world.write(&layout, fid, 5);
    assert_eq!(world.stop(), Ending::Clean);
    world.restart();
    world.reconnect(A);
    let had = seq_of(&world, A);
    let told = world.start(A, had.claim(true));
    // B tells of an open, and no more.
    world.reconnect(B);
    world.ok(B, Had::default().open(fid, id, WRITE).claim(false));
    let stranger = FakeClient { id: 77, ..FakeClient::default() };
    world.clients.insert(C, stranger);
    assert_eq!(world.reconnect(C), Some(0), "it had nothing");
    let looks = world.start(C, MdtRequest::GetAttr { fid, want: META });
    // Nobody is heard: the time does not count.
    world.tick(300_000);
    seconds(&mut world, 54);
    assert_eq!((world.reply(told), world.reply(looks)), (None, None));
    seconds(&mut world, 7);
    world.rest();
    assert_eq!(world.reply(told).unwrap().error, None);
    assert_eq!(world.reply(looks).unwrap().error, None);
    assert_eq!(world.osts[&0].fenced, [ClientId(world.clients[&B].id)]);
    assert_eq!(world.reconnect(B), None);
    let status = world.mdt.recovery_status();
    assert_eq!((status.expected, status.completed, status.recovering), (2, 1, false));
    // What it may have written last nobody has told.
    let id = world.open_id(A);
    world.ok(A, open_request(fid, id, WRITE));
    assert!(world.stat(A, fid).size_stale);
    for _ in 0..3 {
        world.rest();
        world.tick(2_000);
    }
    let image = fsck::image(&world.frames);
    fsck::check(&image);
    assert_eq!(fsck::of(&image, b'G').count(), 1, "A's");
    assert!(world.mdt.is_idle());
}

#[test]
fn who_had_nothing_has_nothing_to_lose() {
    let mut world = World::with_clients(1);
    let fid = world.mknod(A, ROOT, "f");
    world.clients.insert(C, FakeClient { id: 77, ..FakeClient::default() });
    assert_eq!(world.reconnect(C), Some(0));
    assert_eq!(world.stop(), Ending::Clean);
    // Away until the window ends, or back; and what it tells of cannot be.
    for (away, had) in [
        (true, Had::default()),
        (false, Had::default()),
        (false, Had::default().open(fid, OpenId { id: 1 }, READ)),
    ] {
        let wrong = !had.opens.is_empty();
        let (frames, clients) = (world.frames.clone(), world.clients.clone());
        world.restart();
        for client in [A, B] {
            world.reconnect(client);
            let had = seq_of(&world, client);
            world.start(client, had.claim(true));
        }
        if away {
            seconds(&mut world, 61);
            assert_eq!(world.mdt.recovery_status().completed, 2);
            assert_eq!(world.reconnect(C), Some(0), "it begins anew");
        } else {
            assert!(world.reconnect(C).unwrap() > 0);
            let told = world.start(C, had.claim(true));
            world.rest();
            let error = world.reply(told).unwrap().error;
            assert_eq!(error, wrong.then_some(Errno::ESTALE));
        }
        if !wrong {
            // A crash costs those something that had something.
            world.restart();
            assert_eq!(world.reconnect(A), None);
            assert_eq!(world.reconnect(C), Some(0));
            assert!(!world.osts[&0].fenced.contains(&ClientId(77)));
        }
        (world.frames, world.clients) = (frames, clients);
    }
}

#[test]
fn a_crash_before_the_mark_or_in_the_window_is_a_crash() {
    let mut world = World::with_clients(1);
    world.mknod(A, ROOT, "f");
    world.flush();
    let before = world.frames.len();
    assert_eq!(world.stop(), Ending::Clean);
    let whole = world.frames.clone();
    for frames in before..whole.len() {
        world.frames.clone_from(&whole);
        let clients = std::mem::take(&mut world.clients);
        world.crash(frames);
        world.clients = clients;
        assert_eq!(world.reconnect(A), None, "{frames} of {}", whole.len());
    }
    world.frames = whole;
    world.restart();
    assert!(world.reconnect(A).unwrap() > 0);
    world.rest();
    let had = seq_of(&world, A);
    world.ok(A, had.claim(false));
    world.restart();
    assert_eq!(world.reconnect(A), None);
    world.rest();
    let image = fsck::image(&world.frames);
    assert_eq!(fsck::of(&image, stopped::TAG).count(), 0);
    // Nor is a stop one in good order before clients are served.
    world.connect(A);
    assert_eq!(world.stop(), Ending::Clean);
    world.restart();
    assert_eq!(world.stop(), Ending::Lost);
}

#[test]
fn wrong_claims_cost_everything() {
    let foreign = Fid::new(Seq(sateen_types::seq::super_first(1, 0).unwrap().0), 1);
    for wrong in 0..8 {
        let mut world = World::with_clients(1);
        let (reply, id) = world.creat(A, ROOT, "f", META.union(DATA));
        let (fid, _) = made(&reply);
        let other = world.clients[&B].fids.unwrap().0;
        let had = seq_of(&world, A).grants(&reply).open(fid, id, WRITE);
        again(&mut world);
        world.ok(A, had.claim(false));
        let lock = |fid, id| HeldLock { fid, id: LockId(id), mode: LockMode::Pw, bits: DATA };
        let open_id = OpenId { id: 50 };
        let lock_of = |mode, end| FileLock { owner: 1, flock: false, mode, start: 5, end, pid: 0 };
        let mut had = Had::default();
        match wrong {
            0 => had.locks.push(lock(fid, 1 << 60)),
            1 => had.locks.push(lock(foreign, 1)),
            2 => had = had.open(Fid { oid: 999, ..fid }, open_id, READ),
            3 => had = had.open(foreign, open_id, READ),
            4 => had.seqs.push(world.clients[&A].fids.unwrap().0),
            5 => had.seqs.push(Seq(other.0 + 77)),
            6 => {
                let lock = lock_of(FileLockMode::Read, 9);
                had.file_locks.push(HeldFileLock { fid, open_id, lock });
            }
            _ => {
                had = had.open(fid, open_id, READ);
                let lock = lock_of(FileLockMode::Read, 3);
                had.file_locks.push(HeldFileLock { fid, open_id, lock });
            }
        }
        assert_eq!(world.err(B, had.claim(wrong % 2 == 0)), Errno::ESTALE, "{wrong}");
        world.rest();
        assert_eq!(world.reconnect(B), None, "{wrong}");
        assert_eq!(world.osts[&0].fenced, [ClientId(world.clients[&B].id)]);
        // Nobody else is worse off.
        assert_eq!(world.call(A, Had::default().claim(true)).error, None);
        world.mknod(A, ROOT, "g");
    }
    // Nobody may claim anything who was not there, or is back.
    let mut world = World::with_clients(1);
    assert_eq!(world.err(A, Had::default().claim(true)), Errno::ESTALE);
    again(&mut world);
    let had = seq_of(&world, A);
    come_back(&mut world, had);
    world.ok(A, Had::default().claim(true));
    world.mknod(A, ROOT, "g");
}

#[test]
fn what_was_written_down_may_be_damaged() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..60 {
        let mut world = World::with_clients(1);
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round);
            (random >> 33) as u8
        };
        let client = ClientId(world.clients[&A].id);
        assert_eq!(world.stop(), Ending::Clean);
        let image = fsck::image(&world.frames);
        let all: Vec<_> = fsck::of(&image, stopped::TAG).collect();
        let (key, value) = all[usize::from(next()) % all.len()];
        let (mut key, mut value) = (key.to_vec(), value.to_vec());
        match next() % 3 {
            0 => value.truncate(usize::from(next()) % value.len()),
            1 => {
                let at = usize::from(next()) % value.len();
                value[at] ^= 1 << (next() % 8);
            }
            _ => key.extend((0..next() % 5).map(|_| next())),
        }
        let mut tx = Batch::new();
        tx.put_with(&Key::tag(stopped::TAG).with(&key), |out| out.extend_from_slice(&value));
        world.mdt.store().commit(&tx);
        world.flush();
        world.restart();
        // It does not start, or somebody does not come back, or nothing that mattered was damaged.
        let id = ClientId(world.clients[&A].id);
        assert_eq!(id, client);
        world.reconnect(A);
        world.rest();
    }
    // The mark itself.
    let mut world = World::with_clients(1);
    assert_eq!(world.stop(), Ending::Clean);
    let mut tx = Batch::new();
    let mark = StopMark { boot_epoch: 5 }.to_vec();
    tx.put_with(&Key::tag(stopped::TAG), |out| out.extend_from_slice(&mark[1..]));
    world.mdt.store().commit(&tx);
    world.flush();
    world.restart();
    assert_eq!(world.reconnect(A), None);
    assert!(!world.mdt.is_idle());
}

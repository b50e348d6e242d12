//! Targets that cannot be reached for a while, or restart: what waits and what is asked again.

#![allow(clippy::indexing_slicing)]

use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use sateen_client::{Connection, OpenHow, Patience};
use sateen_types::{Attr, Endpoint, Errno, Falloc, Fid, Layout, Nid, Result};
use sateen_wire::{
    FsName, Header, LockMode, MdtReply, MdtRequest, MgsReply, MgsRequest, OstReply, OstRequest,
    Reply, ReplyBody, Request, SetAttr, StatFs, TargetInfo, TimeSet,
};

use crate::rig::{CRED, FILE, Rig, Verb, WRITE, attr, grant, reply};

const SECOND_NS: u64 = 1_000_000_000;

/// A file on this OST is open for writing under a lock for it.
pub(crate) fn open(rig: &Rig, ost: u32) -> u64 {
    open_striped(rig, vec![ost])
}

fn open_striped(rig: &Rig, osts: Vec<u32>) -> u64 {
    let client = rig.client.clone();
    let mut open = rig.start(async move { client.open(FILE, WRITE, CRED).await });
    let layout = Some(Arc::new(Layout::raid0(1 << 20, osts).unwrap()));
    let lock = grant(1, LockMode::Pw, sateen_wire::Ibits::DATA);
    let opened = MdtReply::Opened { attr: attr(0, 0), layout };
    rig.answer(&rig.take(), reply(opened, &[lock]));
    rig.poll(&mut open).unwrap().unwrap().handle
}

/// It is open without a lock.
fn open_unlocked(rig: &Rig) -> u64 {
    let client = rig.client.clone();
    let mut open = rig.start(async move { client.open(FILE, WRITE, CRED).await });
    rig.answer(&rig.take(), reply(MdtReply::Opened { attr: attr(0, 0), layout: None }, &[]));
    rig.poll(&mut open).unwrap().unwrap().handle
}

/// A write of ten bytes waits for its OST.
pub(crate) fn start_write(rig: &Rig, handle: u64) -> Verb<Result<usize>> {
    let (client, data) = (rig.client.clone(), Bytes::from_static(b"0123456789"));
    rig.start(async move { client.write(handle, 0, data, false).await })
}

pub(crate) fn take_write(rig: &Rig) -> Header {
    let (header, request) = rig.take_ost();
    assert!(matches!(request, OstRequest::Write { .. }), "{request:?}");
    header
}

pub(crate) fn written(boot_epoch: u64) -> Reply {
    Reply::ok(ReplyBody::Ost(OstReply::Written { len: 10, boot_epoch, granted: 0 }))
}

#[test]
fn a_request_that_reached_nobody_is_sent_again() {
    let rig = Rig::with_osts(1);
    let handle = open(&rig, 0);
    let mut writing = start_write(&rig, handle);
    let first = take_write(&rig);
    for nobody in [Errno::ESHUTDOWN, Errno::ENODEV] {
        rig.answer(&first, Reply::error(nobody));
        assert!(rig.poll(&mut writing).is_none() && rig.is_silent(), "it waits");
        rig.later(SECOND_NS);
        assert_eq!(take_write(&rig), first, "the same request");
    }
    rig.answer(&first, written(5));
    assert_eq!(rig.poll(&mut writing), Some(Ok(10)));
}

#[test]
fn what_an_ost_had_not_answered_is_asked_again_after_its_restart() {
    let rig = Rig::with_osts(1);
    let handle = open(&rig, 0);
    let mut writing = start_write(&rig, handle);
    let before = take_write(&rig);
    rig.answer(&before, Reply::error(Errno::ESTALE));
    let connect = rig.take();
    assert_eq!((connect.to, connect.generation), (Endpoint::Ost(0), 0));
    rig.later(SECOND_NS / 2);
    assert!(rig.is_silent(), "there is no connection to ask on");
    let connected =
        ReplyBody::Connected { features: 6, boot_epoch: 6, generation: 9, follows: 0, durable: 0 };
    rig.answer(&connect, Reply::ok(connected));
    let info = rig.client.imports().into_iter().find(|info| info.target == Endpoint::Ost(0));
    assert_eq!(info.map(|info| info.features), Some(6), "what both can do is kept");
    rig.later(SECOND_NS / 2);
    let again = take_write(&rig);
    assert_eq!((again.generation, again.seq, again.slot), (9, 1, before.slot));
    // Of the connection before: nobody cares.
    rig.answer(&before, written(5));
    assert!(rig.poll(&mut writing).is_none());
    rig.answer(&again, written(6));
    assert_eq!(rig.poll(&mut writing), Some(Ok(10)));
}

#[test]
fn an_ost_out_of_use_fails_at_once_and_comes_back_in_step() {
    let rig = Rig::with_osts(1);
    let ost = Endpoint::Ost(0);
    let handle = open(&rig, 0);
    let mut writing = start_write(&rig, handle);
    let sent = take_write(&rig);
    rig.client.set_active(ost, false).unwrap();
    assert_eq!(rig.poll(&mut writing), Some(Err(Errno::EIO)), "nobody waits for it");
    let client = rig.client.clone();
    let later = async move { client.write(handle, 0, Bytes::from_static(b"x"), false).await };
    assert_eq!(rig.now(later), Err(Errno::EIO));
    rig.later(4 * SECOND_NS);
    assert!(rig.is_silent(), "what was written is not sent again");
    assert!(rig.client.set_active(Endpoint::Mdt(0), false).is_err());
    rig.client.set_active(ost, true).unwrap();
    let connect = rig.take();
    assert_eq!((connect.to, connect.generation), (ost, 0));
    let mut writing = start_write(&rig, handle);
    let connected =
        ReplyBody::Connected { features: 0, boot_epoch: 5, generation: 9, follows: 0, durable: 0 };
    rig.answer(&connect, Reply::ok(connected));
    let (ping, request) = rig.take_request();
    assert_eq!(request, Request::Ping);
    assert_eq!((ping.generation, ping.slot, ping.seq), (9, sent.slot, sent.seq));
    assert!(rig.poll(&mut writing).is_none());
    let new = take_write(&rig);
    assert_ne!(new.slot, sent.slot, "it is not known yet whether the other was executed");
    rig.answer(&new, written(5));
    assert_eq!(rig.poll(&mut writing), Some(Ok(10)));
    // It was: the OST answers as it did then.
    rig.answer(&ping, written(5));
    let mut writing = start_write(&rig, handle);
    let next = take_write(&rig);
    assert_eq!((next.slot, next.seq), (sent.slot, sent.seq + 1), "and the slot goes on");
    rig.answer(&next, written(5));
    rig.client.set_active(ost, false).unwrap();
    assert_eq!(rig.poll(&mut writing), Some(Ok(10)), "what it has answered counts");
}

#[test]
fn locks_go_back_though_all_slots_wait() {
    let rig = Rig::with_osts(1);
    open(&rig, 0);
    // As many as there is room for wait at the MDT, perhaps for somebody in the same position.
    let wait = || {
        let client = rig.client.clone();
        rig.start(async move { client.open(FILE, WRITE, CRED).await })
    };
    let mut waiting: Vec<_> = (0..64).map(|_| wait()).collect();
    let headers: Vec<Header> = (0..64).map(|_| rig.take()).collect();
    let mut late = wait();
    assert!(rig.is_silent(), "there is no slot for another");
    rig.call_back(1, &headers[0]);
    rig.kernel_is_done();
    let (cancel, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Cancel { .. }), "{request:?}");
    assert!(headers.iter().all(|header| header.slot != cancel.slot));
    rig.answer(&cancel, Reply::ok(ReplyBody::Mdt(MdtReply::Done)));
    // The slots that are kept are for nothing else.
    assert!(rig.poll(&mut late).is_none() && rig.is_silent());
    // So is it heard whether the MDT is there.
    rig.client.ping_every(2 * SECOND_NS);
    rig.later(2 * SECOND_NS);
    let sent = std::iter::from_fn(|| rig.take_if_any());
    assert!(sent.map(|(_, request)| request).any(|request| request == Request::Ping));
    rig.answer(&headers[0], Reply::error(Errno::EACCES));
    assert_eq!(rig.poll(&mut waiting[0]).map(|opened| opened.err()), Some(Some(Errno::EACCES)));
    assert!(rig.poll(&mut late).is_none());
    let (next, _) = rig.take_mdt();
    assert_eq!(next.slot, headers[0].slot);
}

#[test]
fn a_write_that_may_have_been_done_before_is_not_simply_refused() {
    let rig = Rig::with_osts(1);
    let handle = open(&rig, 0);
    let mut writing = start_write(&rig, handle);
    rig.answer(&take_write(&rig), Reply::error(Errno::ESTALE));
    let connected =
        ReplyBody::Connected { features: 0, boot_epoch: 6, generation: 9, follows: 0, durable: 0 };
    rig.answer(&rig.take(), Reply::ok(connected));
    rig.later(SECOND_NS);
    rig.answer(&take_write(&rig), Reply::error(Errno::ENOSPC));
    assert_eq!(rig.poll(&mut writing), Some(Err(Errno::EIO)));
}

/// As by an OST that has heard nothing of the client for long.
#[test]
fn one_that_was_refused_with_its_connection_was_not_done() {
    for (copies, told) in [(1, Errno::ENOSPC), (2, Errno::EIO)] {
        let rig = Rig::with_osts(1);
        let handle = open(&rig, 0);
        let mut writing = start_write(&rig, handle);
        let mut header = take_write(&rig);
        if copies == 2 {
            rig.later(SECOND_NS);
            header = take_write(&rig);
        }
        rig.answer(&header, Reply::error(Errno::ESTALE));
        let connected = ReplyBody::Connected {
            features: 0,
            boot_epoch: 5,
            generation: 9,
            follows: 0,
            durable: 0,
        };
        rig.answer(&rig.take(), Reply::ok(connected));
        rig.answer(&take_write(&rig), Reply::error(Errno::ENOSPC));
        let mut wrote = rig.poll(&mut writing);
        if told == Errno::ENOSPC {
            // Nothing can be there, so the file may lie elsewhere; here it may not.
            assert_eq!(wrote, None);
            let (header, request) = rig.take_mdt();
            assert!(matches!(request, MdtRequest::NoRoom { unwritten: true, .. }), "{request:?}");
            rig.answer(&header, Reply::error(Errno::ENOSPC));
            wrote = rig.poll(&mut writing);
        }
        assert_eq!(wrote, Some(Err(told)), "sent {copies} times");
    }
}

/// The first answer ends the connection; the others are as true.
#[test]
fn nor_were_those_that_were_refused_beside_it() {
    for late in [false, true] {
        let rig = Rig::with_osts(1);
        let handle = open(&rig, 0);
        let mut writing = [start_write(&rig, handle), start_write(&rig, handle)];
        let headers = [take_write(&rig), take_write(&rig)];
        let refused = || Reply::error(Errno::ESTALE);
        rig.answer(&headers[0], refused());
        let connect = rig.take();
        if !late {
            rig.answer(&headers[1], refused());
        }
        let connected = ReplyBody::Connected {
            features: 0,
            boot_epoch: 5,
            generation: 9,
            follows: 0,
            durable: 0,
        };
        rig.answer(&connect, Reply::ok(connected));
        let again = [take_write(&rig), take_write(&rig)];
        if late {
            // It is about a connection before this one, in which the number may mean another.
            rig.answer(&headers[1], refused());
        }
        again.iter().for_each(|header| rig.answer(header, Reply::error(Errno::ENOSPC)));
        let mut told = [None, None];
        // One waits for the other, and then asks whether the file may lie elsewhere.
        for _ in 0..16 {
            for (told, writing) in told.iter_mut().zip(&mut writing) {
                *told = told.or_else(|| rig.poll(writing));
            }
            if let Some((header, request)) = rig.take_if_any() {
                assert!(matches!(request, Request::Mdt(_)), "{request:?}");
                rig.answer(&header, Reply::error(Errno::ENOSPC));
            }
        }
        let second = if late { Errno::EIO } else { Errno::ENOSPC };
        assert_eq!(told, [Some(Err(Errno::ENOSPC)), Some(Err(second))], "late: {late}");
    }
}

#[test]
fn what_the_mgs_had_not_answered_it_is_asked_on_its_next_connection() {
    let rig = Rig::with_osts(0);
    let client = rig.client.clone();
    let mut checked = rig.start(async move { client.check_targets().await });
    let mut asked = [rig.take(), rig.take()];
    asked.sort_by_key(|header| header.to == Endpoint::Mgs);
    rig.answer(&asked[0], reply(MdtReply::StatFs(StatFs::default()), &[]));
    // It has heard nothing of the client for long.
    rig.answer(&asked[1], Reply::error(Errno::ESTALE));
    let connected =
        ReplyBody::Connected { features: 0, boot_epoch: 5, generation: 9, follows: 0, durable: 0 };
    let connect = rig.take();
    assert_eq!(connect.to, Endpoint::Mgs);
    rig.answer(&connect, Reply::ok(connected));
    let (again, request) = rig.take_request();
    assert_eq!((again.to, again.generation), (Endpoint::Mgs, 9));
    assert_eq!(request, Request::Mgs(MgsRequest::GetFileSystem));
    let fsname = FsName::new("sateen").unwrap();
    let named = MgsReply::FileSystem { fsname, uuid: 3, hash_key: 0 };
    rig.answer(&again, Reply::ok(ReplyBody::Mgs(named)));
    let states = rig.poll(&mut checked).expect("all have answered");
    let mgs = states.iter().find(|state| state.target == Endpoint::Mgs);
    assert!(mgs.is_some_and(|state| state.connected), "{states:?}");
}

#[test]
fn nor_is_one_simply_short() {
    let rig = Rig::with_osts(1);
    let handle = open(&rig, 0);
    let mut writing = start_write(&rig, handle);
    rig.answer(&take_write(&rig), Reply::error(Errno::ESTALE));
    let connected =
        ReplyBody::Connected { features: 0, boot_epoch: 6, generation: 9, follows: 0, durable: 0 };
    rig.answer(&rig.take(), Reply::ok(connected));
    rig.later(SECOND_NS);
    let in_part = OstReply::Written { len: 4, boot_epoch: 6, granted: 0 };
    rig.answer(&take_write(&rig), Reply::ok(ReplyBody::Ost(in_part)));
    assert_eq!(rig.poll(&mut writing), Some(Err(Errno::EIO)));
}

#[test]
fn an_ost_that_comes_later_is_used_once_the_mgs_has_told_of_it() {
    let rig = Rig::with_osts(1);
    let handle = open(&rig, 7);
    let mut writing = start_write(&rig, handle);
    assert!(rig.is_silent(), "nobody knows where that is");
    let info = |target| TargetInfo { target, nids: Nid::Lo.into(), inactive: false };
    rig.client.learn(&[info(Endpoint::Ost(0)), info(Endpoint::Ost(7))]);
    rig.accept(Endpoint::Ost(7));
    assert!(rig.poll(&mut writing).is_none());
    rig.time_passes();
    assert!(rig.poll(&mut writing).is_none());
    rig.answer(&take_write(&rig), written(5));
    assert_eq!(rig.poll(&mut writing), Some(Ok(10)));
}

#[test]
fn an_idle_client_asks_the_mdt_whether_it_is_there() {
    let rig = Rig::with_osts(1);
    rig.later(60 * SECOND_NS);
    assert!(rig.is_silent(), "within one process there is no need");
    rig.client.ping_every(2 * SECOND_NS);
    rig.time_passes();
    let (ping, request) = rig.take_request();
    assert_eq!((ping.to, request), (Endpoint::Mdt(0), Request::Ping));
    assert!(rig.is_silent(), "OSTs never call back");
    // One that reaches nobody is sent again, and stays the only one.
    rig.answer(&ping, Reply::error(Errno::ESHUTDOWN));
    rig.later(4 * SECOND_NS);
    assert_eq!(rig.take_request().0, ping);
    assert!(rig.is_silent());
    rig.answer(&ping, Reply::ok(ReplyBody::Empty));
    rig.time_passes();
    // This one hears that the MDT has restarted.
    let (ping, request) = rig.take_request();
    assert_eq!(request, Request::Ping);
    rig.answer(&ping, Reply::error(Errno::ESTALE));
    rig.kernel_is_done();
    let (connect, request) = rig.take_request();
    assert_eq!((connect.to, connect.generation), (Endpoint::Mdt(0), 0));
    let speaks = Request::Connect { features: sateen_wire::FEATURES };
    assert_eq!(request, speaks, "who asks whenever it is idle may promise that");
    let before = rig.client.incarnation();
    rig.answer(&connect, Reply::error(Errno::ESTALE));
    assert_ne!(rig.client.incarnation(), before, "and goes on as another");
}

#[test]
fn what_is_not_answered_is_sent_again_less_and_less_often() {
    let rig = Rig::with_osts(1);
    let handle = open(&rig, 0);
    let mut writing = start_write(&rig, handle);
    let first = take_write(&rig);
    let mut seconds = Vec::new();
    for second in 1..=40 {
        rig.later(SECOND_NS);
        if let Some((header, _)) = rig.take_if_any() {
            assert_eq!(header, first);
            seconds.push(second);
        }
    }
    assert_eq!(seconds, [1, 3, 7, 11, 15, 19, 23, 27, 31, 35, 39]);
    // The connection broke: the target may never have had it.
    rig.answer(&first, Reply::error(Errno::ECONNRESET));
    rig.time_passes();
    assert_eq!(take_write(&rig), first);
    rig.later(SECOND_NS);
    assert_eq!(take_write(&rig), first);
    rig.answer(&first, written(5));
    assert_eq!(rig.poll(&mut writing), Some(Ok(10)));
}

#[test]
fn a_new_connection_brings_the_request_at_once_and_without_its_grant() {
    let rig = Rig::with_osts(1);
    let handle = open(&rig, 0);
    // So many bytes are granted by the answer.
    let mut writing = start_write(&rig, handle);
    let granted = OstReply::Written { len: 10, boot_epoch: 5, granted: 1 << 20 };
    rig.answer(&take_write(&rig), Reply::ok(ReplyBody::Ost(granted)));
    assert_eq!(rig.poll(&mut writing), Some(Ok(10)));
    let used = |request: &OstRequest| match request {
        OstRequest::Write { grant_used, .. } => *grant_used,
        other => panic!("{other:?}"),
    };
    let mut writing = start_write(&rig, handle);
    let (before, request) = rig.take_ost();
    assert_eq!(used(&request), 10);
    rig.answer(&before, Reply::error(Errno::ESTALE));
    let connected =
        ReplyBody::Connected { features: 0, boot_epoch: 6, generation: 9, follows: 0, durable: 0 };
    rig.answer(&rig.take(), Reply::ok(connected));
    let (again, request) = rig.take_ost();
    assert_eq!(used(&request), 0, "the new connection has none");
    rig.answer(&again, written(6));
    assert_eq!(rig.poll(&mut writing), Some(Ok(10)));
}

#[test]
fn a_target_that_has_failed_is_not_waited_for() {
    let rig = Rig::with_osts(1);
    let handle = open(&rig, 0);
    let mut waiting = start_write(&rig, handle);
    rig.answer(&take_write(&rig), Reply::error(Errno::ESTALE));
    let connect = rig.take();
    rig.answer(&connect, Reply::error(Errno::EIO));
    assert_eq!(rig.poll(&mut waiting), Some(Err(Errno::EIO)));
    let (client, data) = (rig.client.clone(), Bytes::from_static(b"0123456789"));
    assert_eq!(rig.now(async move { client.write(handle, 0, data, false).await }), Err(Errno::EIO));
    let stands = |rig: &Rig| {
        let all = rig.client.connections();
        all.iter().find(|(target, _)| *target == Endpoint::Ost(0)).map(|(_, how)| *how)
    };
    assert_eq!(stands(&rig), Some(Connection::Failed));
    // Somebody has started it again.
    rig.later(SECOND_NS);
    rig.accept(Endpoint::Ost(0));
    assert_eq!(stands(&rig), Some(Connection::Open));
    let mut writing = start_write(&rig, handle);
    rig.answer(&take_write(&rig), written(5));
    assert_eq!(rig.poll(&mut writing), Some(Ok(10)));
}

#[test]
fn an_allocation_is_of_the_run_that_answered() {
    let rig = Rig::with_osts(1);
    let handle = open(&rig, 0);
    let client = rig.client.clone();
    let mut allocating =
        rig.start(async move { client.allocate(handle, (0, 4096), Falloc::Allocate, false).await });
    rig.answer(&rig.take(), Reply::error(Errno::ESTALE));
    let connected =
        ReplyBody::Connected { features: 0, boot_epoch: 6, generation: 9, follows: 0, durable: 0 };
    rig.answer(&rig.take(), Reply::ok(connected));
    let (again, request) = rig.take_ost();
    assert!(matches!(request, OstRequest::Allocate { .. }), "{request:?}");
    rig.answer(&again, Reply::ok(ReplyBody::Ost(OstReply::Done)));
    assert!(rig.poll(&mut allocating).is_none(), "it asks how much space that took");
    rig.answer(&rig.take(), Reply::ok(ReplyBody::Ost(OstReply::Objects(Vec::new()))));
    assert_eq!(rig.poll(&mut allocating), Some(Ok(())));
    assert_eq!(fsync(&rig, handle), (Ok(()), vec![6]));
}

#[test]
fn a_slot_is_free_again_when_an_answer_comes_too_late_for_who_asked() {
    for answered_first in [false, true] {
        let rig = Rig::with_osts(1);
        let handle = open(&rig, 0);
        let client = rig.client.clone();
        let allocate = (0, 4096);
        let mut allocating = rig
            .start(async move { client.allocate(handle, allocate, Falloc::Allocate, false).await });
        let (header, _) = rig.take_ost();
        rig.answer(&header, Reply::ok(ReplyBody::Ost(OstReply::Done)));
        assert!(rig.poll(&mut allocating).is_none(), "it asks how much space that took");
        let glimpse = rig.take();
        let late = Reply::ok(ReplyBody::Ost(OstReply::Objects(Vec::new())));
        if answered_first {
            // It has come, and whoever asked goes before it looks.
            rig.answer(&glimpse, late);
            drop(allocating);
        } else {
            rig.later(2 * SECOND_NS);
            assert_eq!(rig.poll(&mut allocating), Some(Ok(())), "it does not wait for ever");
            rig.answer(&glimpse, late);
        }
        let imports = rig.client.imports();
        let ost = imports.iter().find(|import| import.target == Endpoint::Ost(0)).unwrap();
        assert_eq!(ost.in_flight, 0);
    }
}

#[test]
fn a_file_grows_with_its_last_object_when_all_have_room() {
    let rig = Rig::with_osts(2);
    let handle = open_striped(&rig, vec![0, 1]);
    let client = rig.client.clone();
    let end = 3 << 20;
    let mut allocating =
        rig.start(async move { client.allocate(handle, (0, end), Falloc::Allocate, false).await });
    // The third MiB is in the first object again.
    let (second, request) = rig.take_ost();
    let OstRequest::Allocate { keep_size, len, .. } = request else { panic!("{request:?}") };
    assert_eq!((second.to, keep_size, len), (Endpoint::Ost(1), true, 1 << 20));
    rig.answer(&second, Reply::ok(ReplyBody::Ost(OstReply::Done)));
    assert!(rig.poll(&mut allocating).is_none());
    let (first, request) = rig.take_ost();
    let OstRequest::Allocate { keep_size, len, .. } = request else { panic!("{request:?}") };
    assert_eq!((first.to, keep_size, len), (Endpoint::Ost(0), false, 2 << 20));
    rig.answer(&first, Reply::error(Errno::ENOSPC));
    assert_eq!(rig.poll(&mut allocating), Some(Err(Errno::ENOSPC)));
    hears_of_objects_without_growth(&rig, handle);
}

/// The object may have got its name before there was no room for what was to be written.
#[test]
fn a_write_without_room_may_have_made_objects() {
    let nothing = OstReply::Written { len: 0, boot_epoch: 5, granted: 0 };
    let nothing = Reply::ok(ReplyBody::Ost(nothing));
    for (answer, full) in [
        (nothing, Errno::ENOSPC),
        (Reply::error(Errno::EDQUOT), Errno::EDQUOT),
        (Reply::error(Errno::EFBIG), Errno::EFBIG),
    ] {
        let rig = Rig::with_osts(1);
        let handle = open(&rig, 0);
        let mut writing = start_write(&rig, handle);
        rig.answer(&take_write(&rig), answer);
        assert_eq!(rig.poll(&mut writing), Some(Err(full)));
        hears_of_objects_without_growth(&rig, handle);
    }
}

/// The MDT hears that the file may have objects, or it would not have them removed with it.
fn hears_of_objects_without_growth(rig: &Rig, handle: u64) {
    let client = rig.client.clone();
    let mut closing = rig.start(async move { client.close(handle).await });
    let told = loop {
        assert!(rig.poll(&mut closing).is_none());
        match rig.take_request() {
            (_, Request::Mdt(MdtRequest::Close { report, .. })) => break report,
            (header, Request::Ost(OstRequest::GetAttr { .. })) => {
                rig.answer(&header, Reply::ok(ReplyBody::Ost(OstReply::Objects(Vec::new()))));
            }
            other => panic!("{other:?}"),
        }
    };
    let told = told.unwrap();
    assert!(told.size == 0 && told.mtime.is_some(), "{told:?}");
}

#[test]
fn what_is_no_file_is_not_opened_by_who_would_make_one() {
    let rig = Rig::with_osts(1);
    let client = rig.client.clone();
    let mut creating =
        rig.start(async move { client.create(Fid::ROOT, b"x", 0o644, WRITE, CRED).await });
    let (mut header, mut request) = rig.take_mdt();
    if request == MdtRequest::GrantSeq {
        rig.answer(&header, reply(MdtReply::Sequence(sateen_types::Seq(0x2_0000_0400)), &[]));
        assert!(rig.poll(&mut creating).is_none());
        (header, request) = rig.take_mdt();
    }
    assert!(matches!(request, MdtRequest::Create { .. }), "{request:?}");
    // Another client has made a fifo of that name.
    let attr = Attr { mode: 0o010_644, ..attr(3, 0) };
    let made = MdtReply::Created { attr, layout: None, existed: true, parent: None };
    rig.answer(&header, reply(made, &[]));
    let refused = rig.poll(&mut creating).map(|created| created.map(drop));
    assert_eq!(refused, Some(Err(Errno::ESTALE)), "the kernel looks again");
    assert_eq!(rig.client.census().files, 0);
}

/// Answers whatever is asked well until the verb has ended; the boot epochs that OSTs were asked
/// to sync.
fn finish<T>(rig: &Rig, verb: &mut Verb<T>) -> (T, Vec<u64>) {
    let mut epochs = Vec::new();
    loop {
        if let Some(value) = rig.poll(verb) {
            return (value, epochs);
        }
        while let Some((header, request)) = rig.take_if_any() {
            let body = match request {
                Request::Ost(OstRequest::Sync { boot_epoch, .. }) => {
                    epochs.push(boot_epoch);
                    ReplyBody::Ost(OstReply::Done)
                }
                Request::Mdt(_) => ReplyBody::Mdt(MdtReply::Done),
                other => panic!("{other:?}"),
            };
            rig.answer(&header, Reply::ok(body));
        }
    }
}

fn fsync(rig: &Rig, handle: u64) -> (Result<()>, Vec<u64>) {
    let client = rig.client.clone();
    finish(rig, &mut rig.start(async move { client.fsync_file(handle).await }))
}

fn sync_all(rig: &Rig) -> Result<()> {
    let client = rig.client.clone();
    finish(rig, &mut rig.start(async move { client.sync_all().await })).0
}

#[test]
fn a_sync_of_everything_leaves_a_loss_to_the_program_that_had_it() {
    for everybody_first in [true, false] {
        let rig = Rig::with_osts(1);
        let handle = open(&rig, 0);
        // The OST has restarted between them.
        for boot_epoch in [5, 6] {
            let mut writing = start_write(&rig, handle);
            rig.answer(&take_write(&rig), written(boot_epoch));
            assert_eq!(rig.poll(&mut writing), Some(Ok(10)));
        }
        if everybody_first {
            assert_eq!(sync_all(&rig), Err(Errno::EIO));
            assert_eq!(sync_all(&rig), Ok(()), "once is enough");
        }
        assert_eq!(fsync(&rig, handle).0, Err(Errno::EIO));
        assert_eq!(fsync(&rig, handle).0, Ok(()));
        assert_eq!(sync_all(&rig), Ok(()), "whoever it belongs to knows");
    }
}

#[test]
fn a_verb_that_nobody_waits_for_asks_nothing_that_would_wait() {
    let rig = Rig::with_osts(1);
    let handle = open(&rig, 0);
    // The OST is lost, and does not come back.
    let mut first = start_write(&rig, handle);
    rig.answer(&take_write(&rig), Reply::error(Errno::ESTALE));
    let connect = rig.take();
    assert_eq!(connect.to, Endpoint::Ost(0));
    let patience = Arc::new(Patience::default());
    let (client, data) = (rig.client.clone(), Bytes::from_static(b"0123456789"));
    let waited = patience.clone();
    let mut second =
        rig.start(waited.run(async move { client.write(handle, 20, data, false).await }));
    assert!(rig.is_silent());
    patience.end();
    assert_eq!(rig.poll(&mut second), Some(Err(Errno::EINTR)));
    let connected =
        ReplyBody::Connected { features: 0, boot_epoch: 6, generation: 9, follows: 0, durable: 0 };
    rig.answer(&connect, Reply::ok(connected));
    rig.answer(&take_write(&rig), written(6));
    assert_eq!(rig.poll(&mut first), Some(Ok(10)));
    assert!(rig.is_silent(), "it is not written later on");
    // Nor does the file reach that far.
    let client = rig.client.clone();
    let read = async move { client.read(handle, 10, 20, bytes::BytesMut::new()).await };
    assert!(rig.now(read).is_ok_and(|read| read.is_empty()));
}

#[test]
fn what_a_verb_has_asked_goes_on_without_anybody_who_waits() {
    let rig = Rig::with_osts(1);
    let (patience, client) = (Arc::new(Patience::default()), rig.client.clone());
    let open = async move { client.open(FILE, WRITE, CRED).await };
    let mut open = rig.start(patience.clone().run(open));
    let asked = rig.take();
    patience.end();
    assert!(rig.poll(&mut open).is_none(), "it may have been executed");
    let opened = MdtReply::Opened { attr: attr(0, 0), layout: None };
    rig.answer(&asked, reply(opened, &[]));
    let opened = rig.poll(&mut open).unwrap().unwrap();
    assert_eq!(rig.client.census().files, 1);
    // Whoever gets it closes it.
    let client = rig.client.clone();
    let mut closing = rig.start(async move { client.close(opened.handle).await });
    rig.answer(&rig.take(), reply(MdtReply::Done, &[]));
    assert_eq!(rig.poll(&mut closing), Some(Ok(())));
    assert_eq!(rig.client.census().files, 0);
}

#[test]
fn an_fsync_whose_error_nobody_heard_says_it_again() {
    let rig = Rig::with_osts(1);
    let handle = open(&rig, 0);
    assert_eq!(fsync(&rig, handle).0, Ok(()));
    rig.client.not_told(FILE);
    assert_eq!(fsync(&rig, handle).0, Err(Errno::EIO));
    assert_eq!(fsync(&rig, handle).0, Ok(()));
}

/// An open that waits at the MDT, if there is room for it.
fn fill_slot(rig: &Rig) -> Option<(Verb<Result<()>>, Header)> {
    let client = rig.client.clone();
    let open = rig.start(async move { client.open(FILE, WRITE, CRED).await.map(drop) });
    rig.take_if_any().map(|(header, _)| (open, header))
}

/// As many as there is room for.
fn fill_slots(rig: &Rig) -> Vec<(Verb<Result<()>>, Header)> {
    let all: Vec<_> = (0..64).map_while(|_| fill_slot(rig)).collect();
    assert_eq!(all.len(), 64);
    all
}

/// It keeps a lock in use that the others may wait for.
#[test]
fn a_file_is_emptied_though_all_slots_wait() {
    let rig = Rig::with_osts(1);
    open(&rig, 0);
    let _waiting = fill_slots(&rig);
    let (client, cut) = (rig.client.clone(), OpenHow { truncate: true, ..WRITE });
    let mut opening = rig.start(async move { client.open(FILE, cut, CRED).await });
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Open { flags, .. } if flags.truncate), "{request:?}");
    rig.answer(&header, Reply::error(Errno::EACCES));
    assert_eq!(rig.poll(&mut opening).map(|opened| opened.err()), Some(Some(Errno::EACCES)));
}

/// Who keeps nobody waiting for a lock waits for a slot as everybody does: many of them at once
/// would take those in which locks are given back.
#[test]
fn what_has_no_lock_in_use_takes_no_slot_that_is_kept() {
    let rig = Rig::with_osts(1);
    open_unlocked(&rig);
    let mut waiting = fill_slots(&rig);
    let (client, cut) = (rig.client.clone(), OpenHow { truncate: true, ..WRITE });
    let mut opening = rig.start(async move { client.open(FILE, cut, CRED).await });
    assert!(rig.is_silent(), "there is no slot for it");
    let client = rig.client.clone();
    let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let _chmod = rig.start(async move { client.setattr(FILE, mode, CRED).await });
    assert!(rig.is_silent(), "nor for this");
    rig.answer(&waiting[0].1, Reply::error(Errno::EACCES));
    assert!(rig.poll(&mut waiting[0].0).is_some());
    assert!(rig.poll(&mut opening).is_none());
    let (_, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Open { flags, .. } if flags.truncate), "{request:?}");
}

/// Whether somebody was told that he may go on.
#[derive(Default)]
struct Told(AtomicBool);

impl Wake for Told {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// It waits for a slot with the others, and then a lock comes that somebody has in use until it is
/// done.
#[test]
fn a_file_is_emptied_though_the_lock_came_after_all_slots_were_taken() {
    let rig = Rig::with_osts(1);
    let handle = open_unlocked(&rig);
    let mut waiting = fill_slots(&rig);
    let (client, cut) = (rig.client.clone(), OpenHow { truncate: true, ..WRITE });
    let mut opening = rig.start(async move { client.open(FILE, cut, CRED).await });
    assert!(rig.is_silent(), "there is no slot for it");
    // The lock comes with another open's answer, which nobody has fetched yet.
    let (_first, header) = waiting.remove(0);
    let layout = Some(Arc::new(Layout::raid0(1 << 20, vec![0]).unwrap()));
    let lock = grant(1, LockMode::Pw, sateen_wire::Ibits::DATA);
    let opened = MdtReply::Opened { attr: attr(0, 0), layout };
    rig.answer(&header, reply(opened, &[lock]));
    let told = Arc::new(Told::default());
    assert!(rig.poll_for(&mut opening, told.clone()).is_none() && rig.is_silent());
    told.0.store(false, Ordering::SeqCst);
    let _writing = start_write(&rig, handle);
    assert!(rig.is_silent(), "not while it is emptied");
    assert!(told.0.load(Ordering::SeqCst), "it is this that others may wait for now");
    assert!(rig.poll(&mut opening).is_none());
    let (_, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Open { flags, .. } if flags.truncate), "{request:?}");
}

/// A lock that nobody needs any more goes back, also if who asked for it went before it came.
#[test]
fn a_lock_that_nobody_waited_for_goes_back() {
    let rig = Rig::with_osts(1);
    for dropped in [false, true] {
        let handle = open_unlocked(&rig);
        let (patience, client) = (Arc::new(Patience::default()), rig.client.clone());
        let read = async move { client.read(handle, 0, 10, bytes::BytesMut::new()).await };
        let mut reading = Some(rig.start(patience.clone().run(read)));
        let (asked, request) = rig.take_mdt();
        assert!(matches!(request, MdtRequest::Enqueue { .. }), "{request:?}");
        if dropped {
            reading = None;
        } else {
            patience.end();
        }
        if let Some(reading) = &mut reading {
            assert_eq!(rig.poll(reading), Some(Err(Errno::EINTR)));
        }
        let client = rig.client.clone();
        let mut closing = rig.start(async move { client.close(handle).await });
        rig.answer(&rig.take(), reply(MdtReply::Done, &[]));
        assert_eq!(rig.poll(&mut closing), Some(Ok(())));
        let lock = grant(3, LockMode::Pr, sateen_wire::Ibits::DATA);
        rig.answer(&asked, reply(MdtReply::Inode { attr: attr(0, 0) }, &[lock]));
        let (cancel, request) = rig.take_mdt();
        assert!(matches!(request, MdtRequest::Cancel { .. }), "{request:?}");
        rig.answer(&cancel, reply(MdtReply::Done, &[]));
        assert_eq!(rig.client.census().locks, 0);
    }
}

/// A program that is gone takes no lock from others, and leaves nothing that waits for a slot.
#[test]
fn a_lock_is_not_asked_for_when_nobody_waits_for_it_any_more() {
    let rig = Rig::with_osts(1);
    let handle = open_unlocked(&rig);
    let mut waiting = fill_slots(&rig);
    for gone in [true, false] {
        let (patience, client) = (Arc::new(Patience::default()), rig.client.clone());
        let read = async move { client.read(handle, 0, 10, bytes::BytesMut::new()).await };
        let mut reading = rig.start(patience.clone().run(read));
        assert!(rig.is_silent(), "there is no slot for it");
        if gone {
            patience.end();
            assert_eq!(rig.poll(&mut reading), Some(Err(Errno::EINTR)));
            rig.run();
        }
        let (mut open, header) = waiting.pop().unwrap();
        rig.answer(&header, Reply::error(Errno::EACCES));
        assert!(rig.poll(&mut open).is_some());
        rig.run();
        let sent = rig.take_if_any().map(|(_, request)| request);
        let asks = matches!(sent, Some(Request::Mdt(MdtRequest::Enqueue { .. })));
        assert_eq!((asks, sent.is_some()), (!gone, !gone), "{sent:?}");
        if gone {
            // The slot that it did not take.
            waiting.extend(fill_slot(&rig));
        }
    }
}

#[test]
fn an_open_that_nobody_waited_for_is_closed_though_all_slots_wait() {
    let rig = Rig::with_osts(1);
    let handle = open(&rig, 0);
    let _waiting = fill_slots(&rig);
    // Each has the lock in use.
    let touch = |_| {
        let client = rig.client.clone();
        let mtime = SetAttr { mtime: Some(TimeSet::Now), ..SetAttr::default() };
        (rig.start(async move { client.setattr(FILE, mtime, CRED).await }), rig.take())
    };
    let mut others: Vec<_> = (0..8).map(touch).collect();
    let (patience, client) = (Arc::new(Patience::default()), rig.client.clone());
    patience.end();
    let mut closing = rig.start(patience.run(async move { client.close(handle).await }));
    assert!(rig.is_silent(), "there is no slot for it");
    rig.answer(&others[0].1, Reply::error(Errno::EACCES));
    // Whoever was given a slot fetches the answer first.
    assert!(rig.poll(&mut others[0].0).is_some_and(|set| set.is_err()));
    assert!(rig.poll(&mut closing).is_none());
    let (close, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Close { .. }), "{request:?}");
    rig.answer(&close, reply(MdtReply::Done, &[]));
    assert_eq!(rig.poll(&mut closing), Some(Ok(())));
}

/// No kernel waits for a close: the goodbye would overtake what it tells.

#[test]
fn a_file_does_not_grow_by_what_was_not_asked() {
    let rig = Rig::with_osts(2);
    let handle = open_striped(&rig, vec![0, 1]);
    let mut writing = start_write(&rig, handle);
    rig.answer(&take_write(&rig), Reply::error(Errno::ESTALE));
    // The first OST restarts.
    let connect = rig.take();
    let (patience, client) = (Arc::new(Patience::default()), rig.client.clone());
    let range = (0, 3 << 20);
    let allocate = async move { client.allocate(handle, range, Falloc::Allocate, false).await };
    let mut allocating = rig.start(patience.clone().run(allocate));
    let (second, _) = rig.take_ost();
    assert_eq!(second.to, Endpoint::Ost(1));
    rig.answer(&second, Reply::ok(ReplyBody::Ost(OstReply::Done)));
    assert!(rig.poll(&mut allocating).is_none() && rig.is_silent());
    patience.end();
    assert_eq!(rig.poll(&mut allocating), Some(Err(Errno::EINTR)));
    let connected =
        ReplyBody::Connected { features: 0, boot_epoch: 6, generation: 9, follows: 0, durable: 0 };
    rig.answer(&connect, Reply::ok(connected));
    rig.answer(&take_write(&rig), written(6));
    assert_eq!(rig.poll(&mut writing), Some(Ok(10)));
    let client = rig.client.clone();
    let read = async move { client.read(handle, 10, 20, bytes::BytesMut::new()).await };
    assert!(rig.now(read).is_ok_and(|read| read.is_empty()), "it has ten bytes");
}

//! Targets that cannot be reached for a while, or restart: what waits and what is asked again.

use bytes::Bytes;
use sateen_types::{Endpoint, Errno, Layout, Nid, Result};
use sateen_wire::{
    Header, LockMode, MdtReply, OstReply, OstRequest, Reply, ReplyBody, Request, TargetInfo,
};

use crate::rig::{CRED, FILE, Rig, Verb, WRITE, attr, grant, reply};

const SECOND_NS: u64 = 1_000_000_000;

/// A file on this OST is open for writing under a lock for it.
fn open(rig: &Rig, ost: u32) -> u64 {
    let client = rig.client.clone();
    let mut open = rig.start(async move { client.open(FILE, WRITE, CRED).await });
    let layout = Some(std::sync::Arc::new(Layout::raid0(1 << 20, vec![ost]).unwrap()));
    let lock = grant(1, LockMode::Pw, sateen_wire::Ibits::DATA);
    let opened = MdtReply::Opened { attr: attr(0, 0), layout };
    rig.answer(&rig.take(), reply(opened, &[lock]));
    rig.poll(&mut open).unwrap().unwrap().handle
}

/// A write of ten bytes waits for its OST.
fn start_write(rig: &Rig, handle: u64) -> Verb<Result<usize>> {
    let (client, data) = (rig.client.clone(), Bytes::from_static(b"0123456789"));
    rig.start(async move { client.write(handle, 0, data, false).await })
}

fn take_write(rig: &Rig) -> Header {
    let (header, request) = rig.take_ost();
    assert!(matches!(request, OstRequest::Write { .. }), "{request:?}");
    header
}

fn written(boot_epoch: u64) -> Reply {
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
    let connected = ReplyBody::Connected { features: 0, boot_epoch: 6, generation: 9 };
    rig.answer(&connect, Reply::ok(connected));
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
    let connected = ReplyBody::Connected { features: 0, boot_epoch: 5, generation: 9 };
    rig.answer(&connect, Reply::ok(connected));
    assert!(rig.poll(&mut writing).is_none());
    let new = take_write(&rig);
    assert_ne!(new.slot, sent.slot, "it is not known yet whether the other was executed");
    rig.answer(&new, written(5));
    assert_eq!(rig.poll(&mut writing), Some(Ok(10)));
    rig.later(SECOND_NS / 2);
    let (ping, request) = rig.take_request();
    assert_eq!(request, Request::Ping);
    assert_eq!((ping.generation, ping.slot, ping.seq), (9, sent.slot, sent.seq));
    // It was: the OST answers as it did then.
    rig.answer(&ping, written(5));
    let mut writing = start_write(&rig, handle);
    let next = take_write(&rig);
    assert_eq!((next.slot, next.seq), (sent.slot, sent.seq + 1), "and the slot goes on");
    rig.answer(&next, written(5));
    assert_eq!(rig.poll(&mut writing), Some(Ok(10)));
}

#[test]
fn a_write_that_may_have_been_done_before_is_not_simply_refused() {
    let rig = Rig::with_osts(1);
    let handle = open(&rig, 0);
    let mut writing = start_write(&rig, handle);
    rig.answer(&take_write(&rig), Reply::error(Errno::ESTALE));
    let connected = ReplyBody::Connected { features: 0, boot_epoch: 6, generation: 9 };
    rig.answer(&rig.take(), Reply::ok(connected));
    rig.later(SECOND_NS);
    rig.answer(&take_write(&rig), Reply::error(Errno::ENOSPC));
    assert_eq!(rig.poll(&mut writing), Some(Err(Errno::EIO)));
}

#[test]
fn an_ost_that_comes_later_is_used_once_the_mgs_has_told_of_it() {
    let rig = Rig::with_osts(1);
    let handle = open(&rig, 7);
    let mut writing = start_write(&rig, handle);
    assert!(rig.is_silent(), "nobody knows where that is");
    let info = |target| TargetInfo { target, nid: Nid::Lo, inactive: false };
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
    let connect = rig.take();
    assert_eq!((connect.to, connect.generation), (Endpoint::Mdt(0), 0));
    let before = rig.client.incarnation();
    rig.answer(&connect, Reply::error(Errno::ESTALE));
    assert_ne!(rig.client.incarnation(), before, "and goes on as another");
}

#[test]
fn a_goodbye_to_nobody_is_said() {
    let rig = Rig::with_osts(2);
    let client = rig.client.clone();
    let mut leaving = rig.start(async move { client.unmount().await });
    for target in [Endpoint::Ost(1), Endpoint::Ost(0), Endpoint::Mdt(0), Endpoint::Mgs] {
        let (goodbye, request) = rig.take_request();
        assert_eq!((goodbye.to, request), (target, Request::Disconnect));
        assert!(rig.is_silent(), "one after the other");
        rig.answer(&goodbye, Reply::error(Errno::ESHUTDOWN));
        let left = rig.poll(&mut leaving).is_some();
        assert_eq!(left, target == Endpoint::Mgs);
    }
}

#[test]
fn a_goodbye_to_one_that_has_restarted_is_said() {
    let rig = Rig::with_osts(1);
    let client = rig.client.clone();
    let mut leaving = rig.start(async move { client.unmount().await });
    let (goodbye, _) = rig.take_request();
    assert_eq!(goodbye.to, Endpoint::Ost(0));
    rig.answer(&goodbye, Reply::error(Errno::ESTALE));
    assert!(rig.poll(&mut leaving).is_none());
    let mut told = Vec::new();
    while let Some((header, request)) = rig.take_if_any() {
        if request == Request::Disconnect {
            told.push(header.to);
            rig.answer(&header, Reply::ok(ReplyBody::Empty));
        }
        // It ends with the last goodbye, which is what is looked at.
        let _ = rig.poll(&mut leaving);
    }
    assert_eq!(told, [Endpoint::Mdt(0), Endpoint::Mgs], "the others hear it");
}

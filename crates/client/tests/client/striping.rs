//! Which OSTs are asked for what, and in which order.

use bytes::Bytes;
use sateen_client::{OpenHow, Opened};
use sateen_types::{Errno, Layout};
use sateen_wire::{
    Grant, Header, Ibits, LockMode, MdtReply, MdtRequest, OstReply, OstRequest, Reply, ReplyBody,
    Request,
};

use crate::rig::{CRED, FILE, Rig, Verb, attr, grant, reply};

const STRIPE: u64 = 64 << 10;

fn ost(body: OstReply) -> Reply {
    Reply::ok(ReplyBody::Ost(body))
}

fn written(granted: u64) -> Reply {
    ost(OstReply::Written { len: STRIPE as u32, boot_epoch: 5, granted })
}

/// The test's file, of two stripes, is open for writing, and nothing is to be waited for.
fn open(rig: &Rig, locks: &[Grant]) -> Opened {
    let client = rig.client.clone();
    let how = OpenHow { read: true, write: true, ..OpenHow::default() };
    let mut open = rig.start(async move { client.open(FILE, how, CRED).await });
    let (header, _) = rig.take_mdt();
    let layout = Some(std::sync::Arc::new(Layout::raid0(STRIPE as u32, vec![0, 1]).unwrap()));
    rig.answer(&header, reply(MdtReply::Opened { attr: attr(4, 0), layout }, locks));
    rig.poll(&mut open).unwrap().unwrap()
}

/// The MDT says that everything is durable.
fn mdt_syncs(rig: &Rig) {
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Sync { .. }), "{request:?}");
    rig.answer(&header, reply(MdtReply::Done, &[]));
}

/// A write of two stripes begins.
fn start_write(rig: &Rig, handle: u64, at: u64) -> Verb<sateen_types::Result<usize>> {
    let (client, both) = (rig.client.clone(), Bytes::from(vec![1; 2 * STRIPE as usize]));
    rig.start(async move { client.write(handle, at, both, false).await })
}

fn take_write(rig: &Rig, from: u32) -> (Header, u64) {
    let (header, request) = rig.take_ost();
    assert_eq!(header.to, sateen_types::Endpoint::Ost(from));
    let OstRequest::Write { grant_used, .. } = request else { panic!("{request:?}") };
    (header, grant_used)
}

#[test]
fn without_grants_a_refused_piece_is_the_last_one() {
    let rig = Rig::with_osts(2);
    let locks = [grant(1, LockMode::Pw, Ibits::DATA), grant(2, LockMode::Pr, Ibits::META)];
    let handle = open(&rig, &locks).handle;
    let start = |at: u64| start_write(&rig, handle, at);
    let mut write = start(0);
    mdt_syncs(&rig);
    assert!(rig.poll(&mut write).is_none());
    let (first, granted) = take_write(&rig, 0);
    assert_eq!(granted, 0);
    assert!(rig.is_silent(), "the second piece waits for the first");
    rig.answer(&first, Reply::error(Errno::ENOSPC));
    assert_eq!(rig.poll(&mut write), Some(Err(Errno::ENOSPC)));
    assert!(rig.is_silent(), "nothing lies behind the end of the file");
    // The first has room, the second has not: a short write.
    let mut write = start(0);
    rig.answer(&take_write(&rig, 0).0, written(4 * STRIPE));
    assert!(rig.poll(&mut write).is_none());
    rig.answer(&take_write(&rig, 1).0, Reply::error(Errno::ENOSPC));
    assert_eq!(rig.poll(&mut write), Some(Ok(STRIPE as usize)));
    let client = rig.client.clone();
    let size = async move { client.getattr(FILE).await.unwrap().attr.size };
    assert_eq!(rig.now(size), STRIPE);
}

#[test]
fn pieces_that_have_grants_go_side_by_side() {
    let rig = Rig::with_osts(2);
    let locks = [grant(1, LockMode::Pw, Ibits::DATA), grant(2, LockMode::Pr, Ibits::META)];
    let handle = open(&rig, &locks).handle;
    let start = |at: u64| start_write(&rig, handle, at);
    let mut write = start(0);
    mdt_syncs(&rig);
    for index in 0..2 {
        assert!(rig.poll(&mut write).is_none());
        let (header, _) = take_write(&rig, index);
        rig.answer(&header, written(STRIPE + u64::from(index)));
    }
    assert_eq!(rig.poll(&mut write), Some(Ok(2 * STRIPE as usize)));
    let mut write = start(2 * STRIPE);
    let (first, second) = (take_write(&rig, 0), take_write(&rig, 1));
    assert_eq!((first.1, second.1), (STRIPE, STRIPE), "both claim their grants");
    // Refused by a full queue, it comes again with the same claim: it was not used up.
    rig.answer(&second.0, Reply::error(Errno::EAGAIN));
    assert!(rig.poll(&mut write).is_none());
    rig.time_passes();
    assert!(rig.poll(&mut write).is_none());
    let again = take_write(&rig, 1);
    assert_eq!(again.1, STRIPE);
    rig.answer(&first.0, written(0));
    rig.answer(&again.0, written(0));
    assert_eq!(rig.poll(&mut write), Some(Ok(2 * STRIPE as usize)));
}

#[test]
fn a_sync_covers_what_others_may_have_written() {
    let rig = Rig::with_osts(2);
    let locks = [grant(1, LockMode::Pw, Ibits::DATA), grant(2, LockMode::Pr, Ibits::META)];
    open(&rig, &locks);
    let start = || {
        let client = rig.client.clone();
        rig.start(async move { client.fsync(FILE).await })
    };
    let mut sync = start();
    for _ in 0..2 {
        let (header, request) = rig.take_ost();
        assert!(matches!(request, OstRequest::Sync { boot_epoch: 0, .. }), "{request:?}");
        rig.answer(&header, ost(OstReply::Done));
    }
    assert!(rig.poll(&mut sync).is_none());
    mdt_syncs(&rig);
    assert_eq!(rig.poll(&mut sync), Some(Ok(())));
    // Under the lock for writing nobody else has written since.
    let mut sync = start();
    mdt_syncs(&rig);
    assert_eq!(rig.poll(&mut sync), Some(Ok(())));
}

#[test]
fn a_sync_that_finds_another_under_way_ends_no_sooner_and_no_better() {
    let rig = Rig::with_osts(2);
    let locks = [grant(1, LockMode::Pw, Ibits::DATA), grant(2, LockMode::Pr, Ibits::META)];
    let handle = open(&rig, &locks).handle;
    let client = rig.client.clone();
    let data = Bytes::from_static(&[1; 100]);
    let mut write = rig.start(async move { client.write(handle, 0, data, false).await });
    mdt_syncs(&rig);
    assert!(rig.poll(&mut write).is_none());
    rig.answer(&take_write(&rig, 0).0, written(0));
    assert_eq!(rig.poll(&mut write), Some(Ok(100)));
    let start = || {
        let client = rig.client.clone();
        rig.start(async move { client.fsync(FILE).await })
    };
    let mut first = start();
    let mut second = start();
    // The MDT is quick.
    let mut syncs = Vec::new();
    loop {
        while !rig.is_silent() {
            match rig.take_request() {
                (header, Request::Mdt(_)) => rig.answer(&header, reply(MdtReply::Done, &[])),
                (header, Request::Ost(OstRequest::Sync { .. })) => syncs.push(header),
                other => panic!("{other:?}"),
            }
        }
        assert!(rig.poll(&mut first).is_none() && rig.poll(&mut second).is_none());
        if rig.is_silent() {
            break;
        }
    }
    assert_eq!(syncs.len(), 2, "one for each OST");
    for header in syncs {
        rig.answer(&header, Reply::error(Errno::EIO));
    }
    assert_eq!(rig.poll(&mut first), Some(Err(Errno::EIO)));
    let mut ended = rig.poll(&mut second);
    while ended.is_none() {
        match rig.take_request() {
            (header, Request::Mdt(_)) => rig.answer(&header, reply(MdtReply::Done, &[])),
            (header, Request::Ost(_)) => rig.answer(&header, ost(OstReply::Done)),
            other => panic!("{other:?}"),
        }
        ended = rig.poll(&mut second);
    }
    assert_eq!(ended, Some(Err(Errno::EIO)), "its bytes were among those that failed");
}

//! What an OST has lost in a crash: it is written again before anything else is asked, an fsync
//! succeeds then; and not when others may have written there.

use std::sync::Arc;

use sateen_client::ImportState;
use sateen_types::{Endpoint, Errno, Falloc, Layout, Result};
use sateen_wire::{
    CLAIM_SLOT, GROUPS, Header, Ibits, LockMode, MANY, MdtReply, MdtRequest, OstReply, OstRequest,
    Reply, ReplyBody, Request,
};

use crate::network::{start_write, take_write, written};
use crate::rig::{CRED, FILE, Rig, Verb, WRITE, attr, grant, reply};

const OST: Endpoint = Endpoint::Ost(0);
const MIB: u64 = 1 << 20;
const SECOND_NS: u64 = 1_000_000_000;

/// A client that has had ten bytes written in run 5, and would write them again; a message to its MDT.
fn writer() -> (Rig, u64, Header) {
    let rig = Rig::with_osts(1);
    rig.client.set_dirty_max(4 * MIB, 4 * MIB);
    rig.client.set_unstable_max(4 * MIB, 4 * MIB);
    let client = rig.client.clone();
    let mut open = rig.start(async move { client.open(FILE, WRITE, CRED).await });
    let (header, _) = rig.take_mdt();
    let layout = Some(Arc::new(Layout::raid0(1 << 20, vec![0]).unwrap()));
    let opened = MdtReply::Opened { attr: attr(0, 0), layout };
    rig.answer(&header, reply(opened, &[grant(1, LockMode::Pw, Ibits::DATA)]));
    let handle = rig.poll(&mut open).unwrap().unwrap().handle;
    let mut writing = start_write(&rig, handle);
    rig.answer(&take_write(&rig), written(5));
    assert_eq!(rig.poll(&mut writing), Some(Ok(10)));
    assert_eq!(rig.client.unstable_bytes(0), 10);
    (rig, handle, header)
}

/// A client whose OST has answered for ten bytes, and for three pieces of ten that came together so far as
/// there was room for them.
fn writer_of_pieces(room: u32) -> (Rig, u64) {
    let rig = Rig::with_features(1, 1, GROUPS | MANY);
    rig.client.set_dirty_max(4 * MIB, 4 * MIB);
    rig.client.set_unstable_max(4 * MIB, 4 * MIB);
    let handle = crate::network::open(&rig, 0);
    let says =
        |len, granted| Reply::ok(ReplyBody::Ost(OstReply::Written { len, boot_epoch: 5, granted }));
    let mut writing = start_write(&rig, handle);
    rig.answer(&take_write(&rig), says(10, MIB));
    assert_eq!(rig.poll(&mut writing), Some(Ok(10)));
    for offset in [100, 200, 300] {
        let (client, data) = (rig.client.clone(), bytes::Bytes::from(vec![offset as u8; 10]));
        let kept = rig.now(async move { client.write(handle, offset, data, false).await });
        assert_eq!(kept, Ok(10));
    }
    rig.later(SECOND_NS);
    let (header, request) = rig.take_ost();
    assert!(matches!(request, OstRequest::WriteMany { .. }), "{request:?}");
    rig.answer(&header, says(room, 0));
    // Nor is there for one by itself.
    for _ in room / 10..3 {
        rig.answer(&take_write(&rig), says(0, 0));
    }
    (rig, handle)
}

#[test]
fn pieces_that_came_together_are_told_one_by_one() {
    for (room, told) in [
        (30, &[(0, 10), (100, 10), (200, 10), (300, 10)][..]),
        (20, &[(0, 10), (100, 10), (200, 10)]),
        (13, &[(0, 10), (100, 10), (200, 3)]),
        (0, &[(0, 10)]),
    ] {
        let (rig, _) = writer_of_pieces(room);
        assert_eq!(rig.client.unstable_bytes(0), 10 + u64::from(room));
        let connect = crash_unnoticed(&rig);
        restarted(&rig, &connect, 6, 0);
        for (offset, len) in told {
            let (header, bytes, request) = rig.take_with_data();
            assert_eq!(header.slot, CLAIM_SLOT);
            let Request::Ost(OstRequest::Write { offset: at, grant_used: 0, .. }) = request else {
                panic!("{request:?}")
            };
            assert_eq!((at, bytes), (*offset, *len));
            let len = bytes as u32;
            let body = OstReply::Written { len, boot_epoch: 6, granted: 0 };
            rig.answer(&header, Reply::ok(ReplyBody::Ost(body)));
        }
        let info = rig.client.import_info(OST).unwrap();
        assert_eq!(info.state, ImportState::Full);
    }
}

/// The OST crashes, as is found when it is asked whether it is there.
fn crash_unnoticed(rig: &Rig) -> Header {
    rig.client.probe(OST);
    crash(rig, &rig.take())
}

/// The OST does not know the connection of this message, and is asked for another.
fn crash(rig: &Rig, known: &Header) -> Header {
    rig.answer(known, Reply::error(Errno::ESTALE));
    loop {
        let (header, request) = rig.take_request();
        match request {
            Request::Connect { .. } => {
                assert_eq!(header.to, OST);
                return header;
            }
            Request::Mdt(_) => rig.answer(&header, reply(MdtReply::Done, &[])),
            other => panic!("{other:?}"),
        }
    }
}

/// It is another run.
fn restarted(rig: &Rig, connect: &Header, boot_epoch: u64, follows: u64) {
    let generation = boot_epoch as u32 + 3;
    let body =
        ReplyBody::Connected { features: 0, boot_epoch, generation, follows, durable: follows };
    rig.answer(connect, Reply::ok(body));
}

/// It is told again what it has lost.
fn take_again(rig: &Rig) -> Header {
    let header = take_write(rig);
    assert_eq!(header.slot, CLAIM_SLOT);
    header
}

fn start_fsync(rig: &Rig, handle: u64) -> Verb<Result<()>> {
    let client = rig.client.clone();
    rig.start(async move { client.fsync_file(handle).await })
}

/// The runs that an fsync asks for, which say what they say.
fn sync(rig: &Rig, fsync: &mut Verb<Result<()>>, says: impl Fn(u64) -> Reply) -> Result<()> {
    loop {
        let (header, request) = rig.take_request();
        match request {
            Request::Ost(OstRequest::Sync { boot_epoch, .. }) => {
                rig.answer(&header, says(boot_epoch));
            }
            Request::Mdt(MdtRequest::ReportSize { .. } | MdtRequest::Sync { .. }) => {
                rig.answer(&header, reply(MdtReply::Done, &[]));
            }
            other => panic!("{other:?}"),
        }
        if let Some(synced) = rig.poll(fsync) {
            return synced;
        }
    }
}

fn done(only: u64) -> impl Fn(u64) -> Reply {
    move |boot_epoch| {
        let known = boot_epoch == only || boot_epoch == 0;
        let done = Reply::ok(ReplyBody::Ost(OstReply::Done));
        if known { done } else { Reply { last_committed: 1, ..Reply::error(Errno::EIO) } }
    }
}

/// A read is under way when the OST crashes.
fn start_read(rig: &Rig, handle: u64) -> Verb<Result<bytes::BytesMut>> {
    let client = rig.client.clone();
    rig.start(async move { client.read(handle, 0, 10, bytes::BytesMut::new()).await })
}

#[test]
fn what_was_lost_is_written_again_before_anything_is_asked() {
    let (rig, handle, _) = writer();
    let mut under_way = start_write(&rig, handle);
    let asked = take_write(&rig);
    let connect = crash(&rig, &asked);
    restarted(&rig, &connect, 6, 0);
    let again = take_again(&rig);
    let info = rig.client.import_info(OST).unwrap();
    assert_eq!(info.state, ImportState::Recovering);
    let mut later = start_write(&rig, handle);
    assert!(rig.is_silent(), "the rest waits");
    rig.later(2 * SECOND_NS);
    assert_eq!(take_again(&rig), again, "no answer is no reason to go on");
    rig.answer(&again, written(6));
    for write in [&mut under_way, &mut later] {
        assert!(rig.poll(write).is_none());
        let header = take_write(&rig);
        assert_ne!(header.slot, CLAIM_SLOT);
        rig.answer(&header, written(6));
        assert_eq!(rig.poll(write), Some(Ok(10)));
    }
    let mut fsync = start_fsync(&rig, handle);
    assert_eq!(sync(&rig, &mut fsync, done(6)), Ok(()), "nothing is lost");
    assert_eq!(rig.client.unstable_bytes(0), 0, "it is durable");
}

#[test]
fn a_sync_that_names_the_run_before_is_asked_of_the_one_that_has_it_now() {
    let (rig, handle, _) = writer();
    let mut fsync = start_fsync(&rig, handle);
    let asked = loop {
        let (header, request) = rig.take_request();
        if let Request::Ost(OstRequest::Sync { boot_epoch, .. }) = request {
            assert_eq!(boot_epoch, 5);
            break header;
        }
        rig.answer(&header, reply(MdtReply::Done, &[]));
    };
    let connect = crash(&rig, &asked);
    restarted(&rig, &connect, 6, 0);
    // It crashes once more before it has answered, and there it has it.
    let again = take_again(&rig);
    let connect = crash(&rig, &again);
    restarted(&rig, &connect, 7, 0);
    let again = take_again(&rig);
    rig.answer(&again, written(7));
    assert_eq!(sync(&rig, &mut fsync, done(7)), Ok(()));
}

#[test]
fn what_is_refused_is_lost_and_told() {
    let (rig, handle, _) = writer();
    let mut fsync = start_fsync(&rig, handle);
    let asked = loop {
        let (header, request) = rig.take_request();
        if matches!(request, Request::Ost(OstRequest::Sync { .. })) {
            break header;
        }
        rig.answer(&header, reply(MdtReply::Done, &[]));
    };
    let connect = crash(&rig, &asked);
    restarted(&rig, &connect, 6, 0);
    let again = take_again(&rig);
    rig.answer(&again, Reply { last_committed: 1, ..Reply::error(Errno::ESTALE) });
    assert_eq!(sync(&rig, &mut fsync, done(6)), Err(Errno::EIO));
}

#[test]
fn nothing_is_written_again_after_a_stop_in_good_order() {
    let (rig, handle, _) = writer();
    let mut read = start_read(&rig, handle);
    let (asked, _) = rig.take_ost();
    let connect = crash(&rig, &asked);
    restarted(&rig, &connect, 6, 5);
    let (header, request) = rig.take_ost();
    assert!(matches!(request, OstRequest::Read { .. }), "{request:?}");
    assert_ne!(header.slot, CLAIM_SLOT);
    assert_eq!(rig.client.unstable_bytes(0), 0);
    assert!(rig.poll(&mut read).is_none());
}

#[test]
fn nothing_is_written_again_when_others_may_write_or_the_range_is_emptied() {
    let (rig, handle, _) = writer();
    let client = rig.client.clone();
    let mut punch =
        rig.start(async move { client.allocate(handle, (0, 5), Falloc::PunchHole, true).await });
    let (header, request) = rig.take_ost();
    assert!(matches!(request, OstRequest::Allocate { .. }), "{request:?}");
    assert_eq!(rig.client.unstable_bytes(0), 0, "before it is asked for");
    rig.answer(&header, Reply::ok(ReplyBody::Ost(OstReply::Done)));
    assert!(rig.poll(&mut punch).is_none());

    let (rig, _, mdt) = writer();
    let connect = crash_unnoticed(&rig);
    restarted(&rig, &connect, 6, 0);
    let again = take_again(&rig);
    // Another client wants the file: it waits for what is on its way.
    rig.call_back(1, &mdt);
    rig.kernel_is_done();
    assert!(rig.is_silent());
    rig.answer(&again, written(6));
    let (_, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Cancel { .. }), "{request:?}");

    let (rig, _, mdt) = writer();
    rig.call_back(1, &mdt);
    rig.kernel_is_done();
    let (_, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Cancel { .. }), "{request:?}");
    let connect = crash_unnoticed(&rig);
    restarted(&rig, &connect, 6, 0);
    while let Some((header, _)) = rig.take_if_any() {
        assert_ne!(header.slot, CLAIM_SLOT);
    }
}

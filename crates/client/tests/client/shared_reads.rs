//! Reads of a file that others write at the same time: what goes past the kernel's pages is read
//! under a shared lock, what fills them is not.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sateen_client::OpenHow;
use sateen_types::{Errno, Layout, Result};
use sateen_wire::{
    Bulk, Header, Ibits, LockMode, MdtReply, MdtRequest, OstReply, OstRequest, Reply, ReplyBody,
};

use crate::rig::{CRED, FILE, Rig, Verb, WRITE, attr, grant, reply};

const DATA: Ibits = Ibits::DATA;
const STRIPE: u64 = 1 << 20;

fn reads() -> OpenHow {
    OpenHow { read: true, ..OpenHow::default() }
}

/// A file of ten bytes, on two OSTs, that is open.
fn opened(rig: &Rig, how: OpenHow) -> u64 {
    let client = rig.client.clone();
    let mut open = rig.start(async move { client.open(FILE, how, CRED).await });
    let layout = Some(Arc::new(Layout::raid0(STRIPE as u32, vec![0, 1]).unwrap()));
    rig.answer(&rig.take(), reply(MdtReply::Opened { attr: attr(0, 10), layout }, &[]));
    rig.poll(&mut open).unwrap().unwrap().handle
}

/// Reads ten bytes there.
fn start(rig: &Rig, handle: u64, offset: u64, past: bool) -> Verb<Result<BytesMut>> {
    let client = rig.client.clone();
    rig.start(async move {
        let buffer = BytesMut::new();
        match past {
            true => client.read_past_cache(handle, offset, 10, buffer).await,
            false => client.read(handle, offset, 10, buffer).await,
        }
    })
}

/// The lock that is asked for, and its mode.
fn take_enqueue(rig: &Rig) -> (Header, LockMode) {
    match rig.take_mdt() {
        (header, MdtRequest::Enqueue { mode, bits: DATA, .. }) => (header, mode),
        other => panic!("{other:?}"),
    }
}

fn granted(rig: &Rig, to: &Header, id: u64, mode: LockMode) {
    rig.answer(to, reply(MdtReply::Inode { attr: attr(3, 10) }, &[grant(id, mode, DATA)]));
}

/// An OST is read, and has so much.
fn ost_has(rig: &Rig, bytes: &'static [u8]) {
    let (header, request) = rig.take_ost();
    assert!(matches!(request, OstRequest::Read { len: 10, .. }), "{request:?}");
    let len = bytes.len() as u32;
    let reply = Reply::ok(ReplyBody::Ost(OstReply::Read { len }));
    rig.answer_with(&header, reply, Bulk::Buffer(BytesMut::from(bytes)));
}

#[test]
fn what_is_kept_nowhere_is_read_under_a_shared_lock_and_pages_are_not() {
    for (how, asks, pages) in
        [(reads(), LockMode::Cr, LockMode::Pr), (WRITE, LockMode::Cw, LockMode::Pw)]
    {
        let rig = Rig::with_osts(2);
        rig.client.introduce(FILE);
        let handle = opened(&rig, how);
        let mut read = start(&rig, handle, 0, true);
        let (enqueue, mode) = take_enqueue(&rig);
        assert_eq!(mode, asks);
        granted(&rig, &enqueue, 1, asks);
        // Nothing is known of the size, and nobody is asked.
        assert!(rig.poll(&mut read).is_none());
        ost_has(&rig, b"0123456789");
        assert_eq!(&rig.poll(&mut read).unwrap().unwrap()[..], b"0123456789");
        // The lock stays; what is read is read anew each time.
        let mut read = start(&rig, handle, 0, true);
        ost_has(&rig, b"abcdefghij");
        assert_eq!(&rig.poll(&mut read).unwrap().unwrap()[..], b"abcdefghij");
        // A page needs more, and so does what lies in two objects.
        for (offset, past) in [(0, false), (STRIPE - 5, true)] {
            let _read = start(&rig, handle, offset, past);
            assert_eq!(take_enqueue(&rig).1, pages, "{offset}");
        }
        // The kernel has nothing of it that it would have to forget.
        rig.call_back(1, &enqueue);
        let invals = rig.kernel_says(true);
        assert!(invals.iter().all(|what| !format!("{what:?}").contains("Data")), "{invals:?}");
        rig.kernel_is_done();
        let (_, request) = rig.take_mdt();
        assert!(matches!(request, MdtRequest::Cancel { .. }), "{request:?}");
    }
}

/// An answer may come over another connection than that on which the buffer waits.
#[test]
fn what_comes_beside_its_buffer_is_read_all_the_same() {
    let rig = Rig::with_osts(2);
    let handle = opened(&rig, reads());
    let mut read = start(&rig, handle, 0, true);
    let (enqueue, _) = take_enqueue(&rig);
    granted(&rig, &enqueue, 1, LockMode::Cr);
    assert!(rig.poll(&mut read).is_none());
    let answer = |len| Reply::ok(ReplyBody::Ost(OstReply::Read { len }));
    let data = || Bulk::Data(Bytes::from_static(b"0123456789"));
    rig.answer_with(&rig.take_ost().0, answer(10), data());
    assert_eq!(&rig.poll(&mut read).unwrap().unwrap()[..], b"0123456789");
    for (len, bulk) in [(9, data()), (11, data()), (10, Bulk::None)] {
        let mut read = start(&rig, handle, 0, true);
        rig.answer_with(&rig.take_ost().0, answer(len), bulk);
        assert_eq!(rig.poll(&mut read), Some(Err(Errno::EPROTO)), "{len}");
    }
}

/// Others may have got the lock meanwhile, and have written what no OST has heard of.
#[test]
fn what_was_read_when_the_lock_was_lost_is_not_shown() {
    let rig = Rig::with_osts(2);
    let handle = opened(&rig, reads());
    let mut read = start(&rig, handle, 0, true);
    let (enqueue, _) = take_enqueue(&rig);
    granted(&rig, &enqueue, 1, LockMode::Cr);
    assert!(rig.poll(&mut read).is_none());
    let (ost, _) = rig.take_ost();
    rig.evict(&enqueue);
    let answer = Reply::ok(ReplyBody::Ost(OstReply::Read { len: 10 }));
    rig.answer_with(&ost, answer, Bulk::Buffer(BytesMut::from(&b"0123456789"[..])));
    assert_eq!(rig.poll(&mut read), Some(Err(Errno::EIO)));
}

#[test]
fn where_an_object_ends_the_size_has_to_be_known() {
    let rig = Rig::with_osts(2);
    let handle = opened(&rig, reads());
    let mut read = start(&rig, handle, 5, true);
    let (enqueue, _) = take_enqueue(&rig);
    granted(&rig, &enqueue, 1, LockMode::Cr);
    assert!(rig.poll(&mut read).is_none());
    ost_has(&rig, b"56");
    // It may be a hole: under a lock that keeps writers away the size says.
    assert!(rig.poll(&mut read).is_none());
    let (enqueue, mode) = take_enqueue(&rig);
    assert_eq!(mode, LockMode::Pr);
    granted(&rig, &enqueue, 2, LockMode::Pr);
    assert!(rig.poll(&mut read).is_none());
    let (header, request) = rig.take_ost();
    assert!(matches!(request, OstRequest::Read { len: 5, .. }), "{request:?}");
    let two = Reply::ok(ReplyBody::Ost(OstReply::Read { len: 2 }));
    rig.answer_with(&header, two, Bulk::Buffer(BytesMut::from(&b"56"[..])));
    assert_eq!(&rig.poll(&mut read).unwrap().unwrap()[..], b"56\0\0\0");
    // Who has that needs no other.
    let _read = start(&rig, handle, 0, true);
    assert!(matches!(rig.take_ost().1, OstRequest::Read { .. }));
}

#[test]
fn the_atime_is_told_by_whichever_lock_goes_last() {
    let rig = Rig::with_osts(2);
    rig.later(3_600_000_000_000);
    let handle = opened(&rig, reads());
    let mut read = start(&rig, handle, 0, true);
    let (enqueue, _) = take_enqueue(&rig);
    granted(&rig, &enqueue, 1, LockMode::Cr);
    assert!(rig.poll(&mut read).is_none());
    ost_has(&rig, b"0123456789");
    assert!(rig.poll(&mut read).unwrap().is_ok());
    // The file is opened for writing as well, and its lock comes beside.
    let writes = opened(&rig, WRITE);
    let client = rig.client.clone();
    let data = Bytes::from_static(b"0123456789");
    let mut write = rig.start(async move { client.write(writes, 0, data, false).await });
    let (enqueue, mode) = take_enqueue(&rig);
    assert_eq!(mode, LockMode::Cw);
    granted(&rig, &enqueue, 2, LockMode::Cw);
    assert!(rig.poll(&mut write).is_none());
    while let Some((header, request)) = rig.take_if_any() {
        let reply = match format!("{request:?}") {
            text if text.contains("Write") => {
                Reply::ok(ReplyBody::Ost(OstReply::Written { len: 10, boot_epoch: 5, granted: 0 }))
            }
            _ => reply(MdtReply::Done, &[]),
        };
        rig.answer(&header, reply);
        rig.poll(&mut write);
    }
    let told = |id: u64| {
        rig.call_back(id, &enqueue);
        rig.kernel_is_done();
        let (header, request) = rig.take_mdt();
        rig.answer(&header, reply(MdtReply::Done, &[]));
        let MdtRequest::Cancel { report, .. } = request else { panic!("{request:?}") };
        report.map(|report| (report.size, report.mtime.is_some(), report.atime.map(|at| at.sec)))
    };
    // A cancel of the one could come after that of the other.
    assert_eq!(told(1), None, "the size is told by the lock that it was written under");
    assert_eq!(told(2), Some((10, true, Some(3600))));
}

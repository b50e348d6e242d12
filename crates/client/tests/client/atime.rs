//! What reading does to the atime, and when the MDT hears of it.

use bytes::BytesMut;
use sateen_client::{AtimePolicy, OpenHow};
use sateen_types::{Attr, DirCookie, Fid, Timespec};
use sateen_wire::{Ibits, LockMode, MdtReply, MdtRequest, SizeReport};

use crate::rig::{CRED, FILE, Rig, attr, grant, reply};

const HOUR_NS: u64 = 3_600_000_000_000;

/// A rig one hour after the start of time.
fn rig() -> Rig {
    let rig = Rig::mounted();
    rig.later(HOUR_NS);
    rig
}

fn open(rig: &Rig, atime: AtimePolicy, attr: Attr, mode: LockMode) -> u64 {
    let client = rig.client.clone();
    let how = OpenHow { read: true, write: mode == LockMode::Pw, atime, ..OpenHow::default() };
    let mut open = rig.start(async move { client.open(FILE, how, CRED).await });
    let locks = [grant(1, mode, Ibits::DATA), grant(2, LockMode::Pr, Ibits::META)];
    rig.answer(&rig.take(), reply(MdtReply::Opened { attr, layout: None }, &locks));
    rig.poll(&mut open).unwrap().unwrap().handle
}

/// Reads at the end, where there is nothing to be got from an OST.
fn read(rig: &Rig, handle: u64) {
    let client = rig.client.clone();
    let read = async move { client.read(handle, 100, 10, BytesMut::new()).await };
    assert_eq!(rig.now(read).unwrap().len(), 0);
}

fn atime(rig: &Rig) -> i64 {
    let client = rig.client.clone();
    rig.now(async move { client.getattr(FILE).await.unwrap().attr.atime.sec })
}

/// Opens what is kept open.
fn open_again(rig: &Rig, atime: AtimePolicy, mode: LockMode) -> u64 {
    let client = rig.client.clone();
    let how = OpenHow { read: true, write: mode == LockMode::Pw, atime, ..OpenHow::default() };
    rig.now(async move { client.open(FILE, how, CRED).await.unwrap().handle })
}

/// Closes, and keeps it open; what was told of the atime.
fn close(rig: &Rig, handle: u64) -> Timespec {
    let client = rig.client.clone();
    let mut close = rig.start(async move { client.close(handle).await });
    let (header, request) = rig.take_mdt();
    let MdtRequest::ReportSize { report, .. } = request else { panic!("{request:?}") };
    rig.answer(&header, reply(MdtReply::Done, &[]));
    rig.poll(&mut close).unwrap().unwrap();
    report.atime.unwrap()
}

/// Closes, of which nobody hears.
fn close_silently(rig: &Rig, handle: u64) {
    let client = rig.client.clone();
    rig.now(async move { client.close(handle).await }).unwrap();
    assert!(rig.is_silent());
}

#[test]
fn the_first_read_after_a_change_sets_the_atime_and_the_close_tells_it() {
    for mode in [LockMode::Pr, LockMode::Pw] {
        let rig = rig();
        rig.client.introduce(FILE);
        let handle = open(&rig, AtimePolicy::Relative, attr(4, 10), mode);
        assert_eq!(atime(&rig), 1);
        read(&rig, handle);
        assert_eq!(atime(&rig), 3600, "at once");
        rig.later(HOUR_NS);
        read(&rig, handle);
        assert_eq!(atime(&rig), 3600, "not before a day is over");
        assert!(rig.is_silent(), "nobody was asked");
        let told = Timespec { sec: 3600, nsec: 1 };
        assert_eq!(close(&rig, handle), told);
        let handle = open_again(&rig, AtimePolicy::Relative, mode);
        read(&rig, handle);
        close_silently(&rig, handle);
        let handle = open_again(&rig, AtimePolicy::Relative, mode);
        rig.later(23 * HOUR_NS);
        read(&rig, handle);
        assert_eq!(close(&rig, handle).sec, 25 * 3600, "a day is over");
    }
}

#[test]
fn a_mount_can_leave_it_alone_or_set_it_each_time() {
    let rig = rig();
    rig.client.introduce(FILE);
    let handle = open(&rig, AtimePolicy::Never, attr(4, 10), LockMode::Pr);
    read(&rig, handle);
    assert_eq!(atime(&rig), 1);
    close_silently(&rig, handle);
    let handle = open_again(&rig, AtimePolicy::Strict, LockMode::Pr);
    read(&rig, handle);
    rig.later(HOUR_NS);
    read(&rig, handle);
    assert_eq!(atime(&rig), 7200);
    assert_eq!(close(&rig, handle).sec, 7200);
}

#[test]
fn a_lock_that_is_given_back_takes_the_atime_along() {
    let rig = rig();
    let handle = open(&rig, AtimePolicy::Relative, attr(4, 10), LockMode::Pr);
    read(&rig, handle);
    let header = {
        let client = rig.client.clone();
        let mut asked = rig.start(async move { client.readlink(FILE).await });
        let header = rig.take();
        rig.answer(&header, reply(MdtReply::Bytes(bytes::Bytes::new()), &[]));
        rig.poll(&mut asked).unwrap().unwrap();
        header
    };
    rig.call_back(1, &header);
    rig.kernel_is_done();
    let (_, request) = rig.take_mdt();
    let MdtRequest::Cancel { report: Some(report), .. } = request else { panic!("{request:?}") };
    let told = Some(Timespec { sec: 3600, nsec: 1 });
    assert_eq!(report, SizeReport { size: 10, blocks: 0, mtime: None, atime: told });
}

#[test]
fn attributes_are_given_back_while_a_report_is_under_way() {
    let rig = rig();
    let handle = open(&rig, AtimePolicy::Relative, attr(4, 10), LockMode::Pr);
    read(&rig, handle);
    let client = rig.client.clone();
    let mut closing = rig.start(async move { client.close(handle).await });
    let (close, _) = rig.take_mdt();
    // The MDT takes the report only when others have given theirs back, who do as we do.
    rig.call_back(2, &close);
    rig.kernel_is_done();
    let (_, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Cancel { report: None, .. }), "{request:?}");
    // The data's lock waits for the report.
    rig.call_back(1, &close);
    rig.kernel_is_done();
    assert!(rig.is_silent());
    rig.answer(&close, reply(MdtReply::Done, &[]));
    rig.poll(&mut closing);
    rig.kernel_is_done();
    let (_, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Cancel { report: None, .. }), "{request:?}");
}

#[test]
fn a_listing_tells_it_without_waiting() {
    let rig = rig();
    rig.client.introduce(FILE);
    let client = rig.client.clone();
    let mut known = rig.start(async move { client.getattr(FILE).await });
    let dir = Attr { mode: 0o040_755, ..attr(4, 4096) };
    let locks = [grant(2, LockMode::Pr, Ibits::META)];
    rig.answer(&rig.take(), reply(MdtReply::Inode { attr: dir }, &locks));
    rig.poll(&mut known).unwrap().unwrap();
    for again in [false, true] {
        let client = rig.client.clone();
        let list =
            async move { client.readdir(FILE, DirCookie::START, 5, AtimePolicy::Relative).await };
        if again {
            // That nothing is in it is known.
            assert!(rig.now(list).is_ok());
        } else {
            let mut list = rig.start(list);
            let entries = MdtReply::Entries { entries: Vec::new(), end: true, parent: Fid::ROOT };
            rig.answer(&rig.take(), reply(entries, &[]));
            assert!(rig.poll(&mut list).unwrap().is_ok());
        }
        assert_eq!(atime(&rig), 3600);
        rig.run();
        if again {
            assert!(rig.is_silent(), "once");
            continue;
        }
        let (header, request) = rig.take_mdt();
        let MdtRequest::ReportSize { report, glimpsed: false, .. } = request else {
            panic!("{request:?}")
        };
        assert_eq!((report.atime.map(|at| at.sec), report.mtime), (Some(3600), None));
        rig.answer(&header, reply(MdtReply::Done, &[]));
    }
}

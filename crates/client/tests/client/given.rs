//! Files that the kernel reads and writes itself: what the MDT is told of them, when that ends, and what
//! is not believed of them meanwhile.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sateen_client::{OpenHow, Patience, Way};
use sateen_types::{Errno, Layout, ObjectId, StripePolicy, Timespec};
use sateen_wire::{
    Header, Ibits, LockMode, MdtReply, MdtRequest, ObjectAttr, OstReply, OstRequest, Reply,
    ReplyBody, Request, SetAttr, SizeReport, TimeSet,
};

use crate::rig::{CRED, FILE, Rig, Verb, WRITE, attr, grant, reply};

const META: Ibits = Ibits::META;
const DATA: Ibits = Ibits::DATA;
const READ: OpenHow = OpenHow { read: true, write: false, ..WRITE };
const MIB: u64 = 1 << 20;

fn at(sec: i64) -> Timespec {
    Timespec { sec, nsec: 0 }
}

/// Its object, last written then.
fn object(size: u64, mtime: i64) -> ObjectAttr {
    let object = ObjectId { fid: FILE, stripe: 0 };
    ObjectAttr { object, size, blocks: 8, mtime: at(mtime), ctime: at(mtime), atime: at(1) }
}

/// Opens the file of ten bytes, of which the MDT is asked.
fn open(rig: &Rig, how: OpenHow) -> (u64, Header) {
    let client = rig.client.clone();
    let mut open = rig.start(async move { client.open(FILE, how, CRED).await });
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Open { .. }), "{request:?}");
    let layout = Some(Arc::new(Layout::raid0(1 << 20, vec![0]).unwrap()));
    let locks = [grant(1, LockMode::Pw, DATA), grant(2, LockMode::Pr, META)];
    rig.answer(&header, reply(MdtReply::Opened { attr: attr(0, 10), layout }, &locks));
    let mut opened = rig.poll(&mut open);
    if opened.is_none() {
        // It is given.
        rig.answer(&take_look(rig), looks(object(10, 2)));
        opened = rig.poll(&mut open);
    }
    (opened.unwrap().unwrap().handle, header)
}

fn looks(object: ObjectAttr) -> Reply {
    Reply::ok(ReplyBody::Ost(OstReply::Objects(vec![object])))
}

/// Its object is looked at.
fn take_look(rig: &Rig) -> Header {
    let (header, request) = rig.take_ost();
    assert!(matches!(request, OstRequest::GetAttr { .. }), "{request:?}");
    header
}

/// The kernel is given the file by this open.
fn give(rig: &Rig, handle: u64) {
    let client = rig.client.clone();
    let mut way = rig.start(async move { client.way_of(handle, true).await });
    rig.answer(&take_look(rig), looks(object(10, 2)));
    assert_eq!(ends(rig, &mut way), Ok(Way::Given));
    assert!(rig.is_given() && rig.is_silent());
}

/// A client whose kernel has the file, by an open of this kind.
fn given(how: OpenHow) -> (Rig, u64, Header) {
    let rig = Rig::with_osts(1);
    rig.client.set_passthrough(Some(0));
    let (handle, header) = open(&rig, how);
    give(&rig, handle);
    (rig, handle, header)
}

fn start_close(rig: &Rig, handle: u64) -> Verb<Result<(), Errno>> {
    let client = rig.client.clone();
    rig.start(async move { client.close(handle).await })
}

/// The verb goes on to its next request.
fn goes_on<T>(rig: &Rig, verb: &mut Verb<T>) {
    assert!(rig.poll(verb).is_none(), "it needs an answer");
}

/// The kernel drops its pages, and the verb ends.
fn ends<T>(rig: &Rig, verb: &mut Verb<T>) -> T {
    goes_on(rig, verb);
    rig.kernel_is_done();
    rig.poll(verb).unwrap()
}

fn take_close<T>(rig: &Rig, closing: &mut Verb<T>) -> (Header, Option<SizeReport>) {
    goes_on(rig, closing);
    let (header, request) = rig.take_mdt();
    let MdtRequest::Close { report, .. } = request else { panic!("{request:?}") };
    (header, report)
}

fn done(rig: &Rig, header: &Header) {
    rig.answer(header, reply(MdtReply::Done, &[]));
}

fn sizes(report: Option<SizeReport>) -> Option<(u64, Option<Timespec>)> {
    report.map(|report| (report.size, report.mtime))
}

#[test]
fn it_stays_given_until_the_mdt_has_heard_what_was_written() {
    let (rig, handle, _) = given(WRITE);
    let mut closing = start_close(&rig, handle);
    rig.answer(&take_look(&rig), looks(object(20, 7)));
    let (close, report) = take_close(&rig, &mut closing);
    assert_eq!(sizes(report), Some((20, Some(at(7)))));
    // Who asks now is answered by the object, and not with what the MDT may say yet.
    let client = rig.client.clone();
    let mut stat = rig.start(async move { client.getattr(FILE).await });
    rig.answer(&take_look(&rig), looks(object(20, 7)));
    let known = rig.poll(&mut stat).unwrap().unwrap();
    assert_eq!((known.attr.size, known.held), (20, false));
    assert!(rig.is_given());
    done(&rig, &close);
    assert_eq!(ends(&rig, &mut closing), Ok(()));
    assert!(!rig.is_given() && rig.is_silent(), "all was told");
}

#[test]
fn who_opens_meanwhile_is_given_it_as_well_and_what_he_writes_is_told() {
    let (rig, first, _) = given(WRITE);
    let mut closing = start_close(&rig, first);
    rig.answer(&take_look(&rig), looks(object(20, 7)));
    let (close, _) = take_close(&rig, &mut closing);
    let (second, _) = open(&rig, READ);
    let client = rig.client.clone();
    assert_eq!(rig.now(async move { client.way_of(second, true).await }), Ok(Way::Given));
    done(&rig, &close);
    assert_eq!(rig.poll(&mut closing), Some(Ok(())));
    assert!(rig.is_given(), "another has it");
    // The last one looks, whoever it is.
    let mut closing = start_close(&rig, second);
    rig.answer(&take_look(&rig), looks(object(30, 8)));
    let (close, report) = take_close(&rig, &mut closing);
    assert_eq!(sizes(report), Some((30, Some(at(8)))));
    done(&rig, &close);
    assert_eq!(ends(&rig, &mut closing), Ok(()));
    assert!(!rig.is_given());
}

#[test]
fn an_open_that_fails_under_a_close_does_not_end_it() {
    let (rig, handle, _) = given(WRITE);
    let mut closing = start_close(&rig, handle);
    let look = take_look(&rig);
    let (client, patience) = (rig.client.clone(), Arc::new(Patience::default()));
    patience.end();
    let cut = OpenHow { truncate: true, ..WRITE };
    let failed = rig.now(patience.run(async move { client.open(FILE, cut, CRED).await.err() }));
    assert_eq!(failed, Some(Errno::EINTR));
    assert!(rig.is_given());
    rig.answer(&look, looks(object(20, 7)));
    let (close, report) = take_close(&rig, &mut closing);
    assert_eq!(sizes(report), Some((20, Some(at(7)))));
    done(&rig, &close);
    assert_eq!(ends(&rig, &mut closing), Ok(()));
    assert!(!rig.is_given());
}

#[test]
fn a_writers_close_asks_until_it_knows_what_was_written() {
    let (rig, handle, _) = given(WRITE);
    let mut closing = start_close(&rig, handle);
    for _ in 0..3 {
        rig.answer(&take_look(&rig), Reply::error(Errno::EIO));
        goes_on(&rig, &mut closing);
        assert!(rig.is_silent(), "the session must not end");
        rig.last_wakes();
        goes_on(&rig, &mut closing);
    }
    rig.answer(&take_look(&rig), looks(object(20, 7)));
    let (close, report) = take_close(&rig, &mut closing);
    assert_eq!(sizes(report), Some((20, Some(at(7)))));
    done(&rig, &close);
    assert_eq!(ends(&rig, &mut closing), Ok(()));
    assert!(!rig.is_given());
}

#[test]
fn a_readers_close_is_told_whatever_the_object_says() {
    let (rig, handle, _) = given(READ);
    let mut closing = start_close(&rig, handle);
    rig.answer(&take_look(&rig), Reply::error(Errno::EIO));
    let (close, report) = take_close(&rig, &mut closing);
    assert_eq!(report, None);
    done(&rig, &close);
    // What was read is told later.
    goes_on(&rig, &mut closing);
    rig.answer(&take_look(&rig), Reply::error(Errno::EIO));
    goes_on(&rig, &mut closing);
    assert!(rig.is_given());
    rig.last_wakes();
    goes_on(&rig, &mut closing);
    let read = ObjectAttr { atime: at(9), ..object(10, 2) };
    rig.answer(&take_look(&rig), looks(read));
    goes_on(&rig, &mut closing);
    let (header, request) = rig.take_mdt();
    let MdtRequest::ReportSize { report, .. } = request else { panic!("{request:?}") };
    assert_eq!((report.mtime, report.atime), (None, Some(at(9))));
    done(&rig, &header);
    assert_eq!(ends(&rig, &mut closing), Ok(()));
    assert!(!rig.is_given());
}

#[test]
fn what_is_stored_through_a_mapping_after_the_last_close_is_told() {
    let (rig, handle, _) = given(WRITE);
    rig.map_given(true);
    let mut closing = start_close(&rig, handle);
    rig.answer(&take_look(&rig), looks(object(10, 7)));
    let (close, report) = take_close(&rig, &mut closing);
    assert_eq!(sizes(report), Some((10, Some(at(7)))));
    done(&rig, &close);
    assert_eq!(rig.poll(&mut closing), Some(Ok(())), "nobody waits for who has it mapped");
    for _ in 0..3 {
        assert!(rig.is_given() && rig.is_silent());
        rig.last_wakes();
    }
    rig.map_given(false);
    rig.last_wakes();
    rig.answer(&take_look(&rig), looks(object(10, 8)));
    let (told, request) = rig.take_mdt();
    let MdtRequest::ReportSize { report, .. } = request else { panic!("{request:?}") };
    assert_eq!(sizes(Some(report)), Some((10, Some(at(8)))));
    assert!(rig.is_given());
    done(&rig, &told);
    rig.kernel_is_done();
    rig.run();
    assert!(!rig.is_given() && rig.is_silent());
}

/// The client connects to all targets as somebody new.
fn comes_back(rig: &Rig) {
    rig.kernel_is_done();
    let mut connected = 0;
    while let Some((header, request)) = rig.take_if_any() {
        match request {
            Request::Connect { .. } => {
                connected += 1;
                let (features, boot_epoch, generation, follows) = (0, 5, 4, 0);
                let body =
                    ReplyBody::Connected { features, boot_epoch, generation, follows, durable: 0 };
                rig.answer(&header, Reply::ok(body));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(connected, 3);
}

#[test]
fn what_the_kernel_wrote_through_an_open_that_was_lost_is_told_at_its_end() {
    let (rig, handle, header) = given(WRITE);
    let before = rig.client.incarnation();
    rig.evict(&header);
    comes_back(&rig);
    assert_ne!(rig.client.incarnation(), before);
    assert!(rig.is_given(), "the kernel was not told");
    let mut closing = start_close(&rig, handle);
    let (enqueue, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Enqueue { .. }), "{request:?}");
    let body = MdtReply::Inode { attr: attr(3, 10) };
    rig.answer(&enqueue, reply(body, &[grant(9, LockMode::Pw, DATA)]));
    assert!(rig.poll(&mut closing).is_none());
    rig.answer(&take_look(&rig), looks(object(20, 7)));
    goes_on(&rig, &mut closing);
    let (told, request) = rig.take_mdt();
    let MdtRequest::ReportSize { report, glimpsed: false, .. } = request else {
        panic!("{request:?}")
    };
    assert_eq!(sizes(Some(report)), Some((20, Some(at(7)))));
    assert!(rig.is_given());
    done(&rig, &told);
    assert_eq!(ends(&rig, &mut closing), Err(Errno::EIO), "it may be that it is not saved");
    assert!(!rig.is_given());
}

#[test]
fn who_unmounts_tells_what_the_kernel_wrote() {
    let (rig, _, _) = given(WRITE);
    let client = rig.client.clone();
    let mut leaving = rig.start(async move { client.unmount().await });
    rig.answer(&take_look(&rig), looks(object(20, 7)));
    goes_on(&rig, &mut leaving);
    let (told, request) = rig.take_mdt();
    let MdtRequest::ReportSize { report, .. } = request else { panic!("{request:?}") };
    assert_eq!(sizes(Some(report)), Some((20, Some(at(7)))));
    done(&rig, &told);
    goes_on(&rig, &mut leaving);
    assert!(matches!(rig.take_request().1, Request::Disconnect));
}

#[test]
fn the_mtime_that_only_an_object_knows_is_told_with_the_size_after_a_crash() {
    // Written after the last change that the MDT knows of, or before somebody set a time.
    for (is_on, mtime, told) in [(true, 7, true), (true, 1, false), (false, 7, false)] {
        let rig = Rig::with_osts(1);
        rig.client.set_passthrough(is_on.then_some(0));
        let client = rig.client.clone();
        let mut stat = rig.start(async move { client.getattr(FILE).await });
        let stale = sateen_types::Attr { size_stale: true, ..attr(5, 10) };
        let body = MdtReply::Inode { attr: stale };
        rig.answer(&rig.take(), reply(body, &[grant(2, LockMode::Pr, META)]));
        goes_on(&rig, &mut stat);
        let (stripe, _) = rig.take_mdt();
        let layout = Some(Arc::new(Layout::raid0(1 << 20, vec![0]).unwrap()));
        rig.answer(
            &stripe,
            reply(MdtReply::Striped { layout, policy: None, default: StripePolicy::DEFAULT }, &[]),
        );
        goes_on(&rig, &mut stat);
        rig.answer(&take_look(&rig), looks(object(20, mtime)));
        goes_on(&rig, &mut stat);
        let (report, request) = rig.take_mdt();
        let MdtRequest::ReportSize { report: said, glimpsed: true, .. } = request else {
            panic!("{request:?}")
        };
        let mtime = told.then(|| at(mtime));
        assert_eq!((said.size, said.mtime), (20, mtime));
        done(&rig, &report);
        goes_on(&rig, &mut stat);
        let again = rig.take();
        rig.answer(&again, reply(MdtReply::Inode { attr: stale }, &[]));
        let known = rig.poll(&mut stat).unwrap().unwrap().attr;
        assert_eq!((known.size, known.mtime), (20, mtime.unwrap_or(at(1))));
    }
}

/// A client that asks how an open of a file is to be answered which an earlier run has left open.
fn asks_of_left(mapped: bool, refused: bool) -> (Rig, u64, Result<Way, Errno>) {
    let rig = Rig::with_osts(1);
    rig.client.left_open([FILE]);
    rig.map_given(mapped);
    rig.refuse_to_give(refused);
    let (handle, _) = open(&rig, READ);
    let client = rig.client.clone();
    if !mapped {
        let way = rig.now(async move { client.way_of(handle, false).await });
        return (rig, handle, way);
    }
    let mut way = rig.start(async move { client.way_of(handle, false).await });
    rig.answer(&take_look(&rig), looks(object(30, 7)));
    goes_on(&rig, &mut way);
    // What the MDT knows of it.
    rig.answer(&rig.take(), reply(MdtReply::Inode { attr: attr(0, 10) }, &[]));
    let way = rig.poll(&mut way).unwrap_or_else(|| ends(&rig, &mut way));
    (rig, handle, way)
}

#[test]
fn what_an_earlier_run_has_left_open_is_given_whoever_opens_it() {
    let (rig, handle, way) = asks_of_left(true, false);
    assert_eq!((way, rig.client.left_count()), (Ok(Way::Given), 1));
    let client = rig.client.clone();
    let mut stat = rig.start(async move { client.getattr(FILE).await });
    rig.answer(&take_look(&rig), looks(object(30, 7)));
    assert_eq!(rig.poll(&mut stat).unwrap().unwrap().attr.size, 30, "it was written on");
    let mut closing = start_close(&rig, handle);
    rig.answer(&take_look(&rig), looks(object(40, 8)));
    let (close, report) = take_close(&rig, &mut closing);
    assert_eq!(sizes(report), Some((40, Some(at(8)))));
    done(&rig, &close);
    assert_eq!(rig.poll(&mut closing), Some(Ok(())));
    assert!(rig.is_given(), "as long as it is left open");
    rig.run();
    rig.map_given(false);
    rig.last_wakes();
    rig.answer(&take_look(&rig), looks(object(40, 8)));
    rig.kernel_is_done();
    rig.run();
    assert!(!rig.is_given() && rig.is_silent());
    assert_eq!(rig.client.left_count(), 0);
}

#[test]
fn what_nobody_has_any_more_is_opened_as_ever() {
    let (rig, _, way) = asks_of_left(false, false);
    assert_eq!((way, rig.client.left_count()), (Ok(Way::Ordinary), 0));
    assert!(!rig.is_given() && rig.is_silent());
}

#[test]
fn what_is_left_open_and_cannot_be_given_is_not_opened() {
    let (rig, _, way) = asks_of_left(true, true);
    assert_eq!((way, rig.client.left_count()), (Err(Errno::EBUSY), 1));
}

/// Ten bytes are written by who is asked.
fn write(rig: &Rig, handle: u64) {
    let client = rig.client.clone();
    let bytes = Bytes::from_static(b"0123456789");
    let mut writing = rig.start(async move { client.write(handle, 0, bytes, false).await });
    let (header, request) = rig.take_ost();
    assert!(matches!(request, OstRequest::Write { .. }), "{request:?}");
    let written = OstReply::Written { len: 10, boot_epoch: 5, granted: 0 };
    rig.answer(&header, Reply::ok(ReplyBody::Ost(written)));
    assert_eq!(rig.poll(&mut writing), Some(Ok(10)));
}

/// The OST has it all: the kernel may write over any of it without a word.
#[test]
fn nothing_of_a_given_file_is_written_again_after_a_crash_of_its_ost() {
    let rig = Rig::with_osts(1);
    rig.client.set_passthrough(Some(0));
    rig.client.set_unstable_max(4 * MIB, 4 * MIB);
    let (handle, _) = open(&rig, WRITE);
    write(&rig, handle);
    assert_eq!(rig.client.writes_again(FILE), (true, true));
    let client = rig.client.clone();
    let mut way = rig.start(async move { client.way_of(handle, true).await });
    let (told, request) = rig.take_mdt();
    let MdtRequest::ReportSize { report, .. } = request else { panic!("{request:?}") };
    assert!(report.mtime.is_some(), "what was not told would not be known any more");
    done(&rig, &told);
    goes_on(&rig, &mut way);
    rig.answer(&take_look(&rig), looks(object(10, 2)));
    assert_eq!(ends(&rig, &mut way), Ok(Way::Given));
    assert_eq!((rig.client.writes_again(FILE).0, rig.client.unstable_bytes(0)), (false, 0));
    write(&rig, handle);
    assert_eq!((rig.client.writes_again(FILE).0, rig.client.unstable_bytes(0)), (false, 0));
}

#[test]
fn a_sync_goes_by_the_run_that_its_ost_is_at() {
    let (rig, handle, _) = given(WRITE);
    rig.client.probe(sateen_types::Endpoint::Ost(0));
    rig.answer(&rig.take(), Reply::error(Errno::ESTALE));
    let (connect, request) = rig.take_request();
    assert!(matches!(request, Request::Connect { .. }), "{request:?}");
    let (features, boot_epoch, generation, follows) = (0, 6, 9, 0);
    let body = ReplyBody::Connected { features, boot_epoch, generation, follows, durable: 0 };
    rig.answer(&connect, Reply::ok(body));
    for (run, right) in [(5, Err(Errno::EIO)), (6, Ok(()))] {
        let client = rig.client.clone();
        let mut syncing = rig.start(async move { client.fsync_file(handle).await });
        let mut runs = Vec::new();
        let synced = loop {
            if let Some(synced) = rig.poll(&mut syncing) {
                break synced;
            }
            let (header, request) = rig.take_request();
            match request {
                Request::Ost(OstRequest::Sync { boot_epoch, .. }) => {
                    runs.push(boot_epoch);
                    let done = Reply::ok(ReplyBody::Ost(OstReply::Done));
                    let is_right = boot_epoch == 6;
                    rig.answer(&header, if is_right { done } else { Reply::error(Errno::EIO) });
                }
                Request::Ost(OstRequest::GetAttr { .. }) => {
                    // The first sync is not to hear of the other run before it has failed.
                    let early = runs.is_empty() && right.is_err();
                    let look = looks(object(10, 2));
                    rig.answer(&header, if early { Reply::error(Errno::EIO) } else { look });
                }
                Request::Mdt(_) => done(&rig, &header),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!((synced, runs), (right, vec![run]));
    }
}

#[test]
fn a_read_that_is_asked_beside_sets_the_atime() {
    let (rig, first, _) = given(READ);
    let (handle, _) = open(&rig, OpenHow { direct: true, ..READ });
    let client = rig.client.clone();
    assert_eq!(rig.now(async move { client.way_of(handle, true).await }), Ok(Way::Beside));
    rig.pass(50_000_000_000);
    let client = rig.client.clone();
    let mut reading =
        rig.start(async move { client.read_past_cache(handle, 0, 4, BytesMut::new()).await });
    rig.answer(&take_look(&rig), looks(object(10, 2)));
    goes_on(&rig, &mut reading);
    let (header, request) = rig.take_ost();
    assert!(header.direct && matches!(request, OstRequest::Read { .. }), "{request:?}");
    let read = Reply::ok(ReplyBody::Ost(OstReply::Read { len: 4 }));
    let bytes = sateen_wire::Bulk::Buffer(BytesMut::from(&b"0123"[..]));
    rig.answer_with(&header, read, bytes);
    assert!(rig.poll(&mut reading).unwrap().is_ok());
    let client = rig.client.clone();
    let mut stat = rig.start(async move { client.getattr(FILE).await });
    rig.answer(&take_look(&rig), looks(object(10, 2)));
    let read_at = rig.poll(&mut stat).unwrap().unwrap().attr.atime;
    assert!(read_at.sec >= 50, "{read_at:?}");
    for handle in [first, handle] {
        let mut closing = start_close(&rig, handle);
        let is_last = handle != first;
        if is_last {
            rig.answer(&take_look(&rig), looks(object(10, 2)));
        }
        let (close, report) = take_close(&rig, &mut closing);
        let right = is_last.then_some((None, Some(read_at)));
        assert_eq!(report.map(|report| (report.mtime, report.atime)), right);
        done(&rig, &close);
        let closed = if is_last { Some(ends(&rig, &mut closing)) } else { rig.poll(&mut closing) };
        assert_eq!(closed, Some(Ok(())));
    }
}

#[test]
fn who_sets_a_time_meanwhile_keeps_a_file_from_being_given() {
    let rig = Rig::with_osts(1);
    rig.client.set_passthrough(Some(0));
    let (handle, _) = open(&rig, WRITE);
    let client = rig.client.clone();
    let mut way = rig.start(async move { client.way_of(handle, true).await });
    let look = take_look(&rig);
    let client = rig.client.clone();
    let set = SetAttr { mtime: Some(TimeSet::At(at(-5))), ..SetAttr::default() };
    let mut setting = rig.start(async move { client.setattr(FILE, set, CRED).await });
    rig.kernel_is_done();
    goes_on(&rig, &mut setting);
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::SetAttr { .. }), "{request:?}");
    rig.answer(&look, looks(object(10, 2)));
    assert_eq!(rig.poll(&mut way), Some(Ok(Way::Ordinary)));
    assert!(!rig.is_given());
    let now = sateen_types::Attr { mtime: at(-5), ..attr(4, 10) };
    rig.answer(&header, reply(MdtReply::Inode { attr: now }, &[]));
    assert_eq!(rig.poll(&mut setting).unwrap().unwrap().attr.mtime, at(-5));
}

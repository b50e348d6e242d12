//! Others look at what is written from here, and this client at what others write.

use bytes::Bytes;
use sateen_client::{OpenHow, Verb};
use sateen_types::{Attr, Fid, Seq};
use sateen_wire::{
    Body, Bulk, Callback, Header, Ibits, LockId, LockMode, MdtReply, MdtRequest, Message, OstReply,
    OstRequest, Reply, ReplyBody, Request, SizeReport,
};

use crate::rig::{CRED, FILE, Rig, WRITE, attr, grant, reply};

const META: Ibits = Ibits::META;
const DATA: Ibits = Ibits::DATA;
const PAGE: u64 = 4096;

fn asks(rig: &Rig, like: &Header, (id, question): (u64, u64)) {
    let callback = Callback::Glimpse { fid: FILE, id: LockId(id), question };
    let (header, body) = (like.reply(), Body::Callback(callback));
    rig.client.on_message(Message { header, body, bulk: Bulk::None });
    rig.run();
}

/// What is said to a question.
fn said(rig: &Rig, question: u64) -> Option<SizeReport> {
    let (header, request) = rig.take_mdt();
    let MdtRequest::AnswerGlimpse { fid, question: to, told } = request else {
        panic!("{request:?}")
    };
    assert_eq!((fid, to), (FILE, question));
    rig.answer(&header, reply(MdtReply::Done, &[]));
    told
}

/// The file is open for writing, under locks 1 and 2.
fn open(rig: &Rig) -> (u64, Header) {
    let client = rig.client.clone();
    let mut open = rig.start(async move { client.open(FILE, WRITE, CRED).await });
    let (header, _) = rig.take_mdt();
    let layout = Some(std::sync::Arc::new(sateen_types::Layout::raid0(1 << 20, vec![0]).unwrap()));
    let locks = [grant(1, LockMode::Pw, DATA), grant(2, LockMode::Pr, META)];
    rig.answer(&header, reply(MdtReply::Opened { attr: attr(0, 0), layout }, &locks));
    (rig.poll(&mut open).unwrap().unwrap().handle, header)
}

#[test]
fn what_is_kept_is_told_and_neither_written_out_nor_reported_for_that() {
    let rig = Rig::with_osts(1);
    rig.client.set_dirty_max(4 << 20, 4 << 20);
    let (handle, header) = open(&rig);
    let write = |offset: u64| {
        let client = rig.client.clone();
        let data = Bytes::from(vec![1; PAGE as usize]);
        rig.begin(async move { client.write(handle, offset, data, false).await })
    };
    // The first is on its way: it has not ended.
    let mut first = write(0);
    assert!(rig.poll(&mut first).is_none());
    let (to_ost, request) = rig.take_request();
    assert!(matches!(request, Request::Ost(OstRequest::Write { .. })), "{request:?}");
    asks(&rig, &header, (1, 70));
    assert_eq!(said(&rig, 70).map(|told| told.size), Some(0));
    let written = OstReply::Written { len: PAGE as u32, boot_epoch: 5, granted: 8 << 20 };
    rig.answer(&to_ost, Reply::ok(ReplyBody::Ost(written)));
    assert_eq!(rig.poll(&mut first), Some(Ok(PAGE as usize)));
    // The second is kept.
    assert_eq!(rig.poll(&mut write(PAGE)).unwrap(), Ok(PAGE as usize));
    assert!(rig.is_silent());
    asks(&rig, &header, (1, 71));
    let told = said(&rig, 71).expect("it is being written");
    assert_eq!((told.size, told.mtime.is_some()), (2 * PAGE, true));
    assert!(rig.is_silent(), "nothing is written out");
    // Asked once more it says what there is then.
    assert_eq!(rig.poll(&mut write(2 * PAGE)).unwrap(), Ok(PAGE as usize));
    asks(&rig, &header, (1, 71));
    assert_eq!(said(&rig, 71).map(|told| told.size), Some(3 * PAGE));
    assert_eq!(rig.client.verb_stats().samples(Verb::LockGlimpse as usize), 3);
}

#[test]
fn of_a_lock_that_is_not_there_nothing_is_said() {
    let rig = Rig::with_osts(1);
    let (_, header) = open(&rig);
    asks(&rig, &header, (9, 70));
    assert_eq!(said(&rig, 70), None, "perhaps its grant is on its way");
    asks(&rig, &header, (2, 71));
    assert_eq!(said(&rig, 71), None, "it is none on the data");
    // One that is given back has told what there was.
    rig.call_back(1, &header);
    rig.kernel_is_done();
    let (cancel, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Cancel { .. }));
    asks(&rig, &header, (1, 72));
    assert_eq!(said(&rig, 72), None);
    rig.answer(&cancel, reply(MdtReply::Done, &[]));
}

#[test]
fn a_size_that_another_tells_is_shown_and_not_kept() {
    let rig = Rig::mounted();
    let stat = || {
        let client = rig.client.clone();
        rig.start(async move { client.getattr(FILE).await })
    };
    // The MDT gives the attributes along, but not the data.
    for size in [10, 30] {
        let mut first = stat();
        let (header, _) = rig.take_mdt();
        let answer = MdtReply::Inode { attr: attr(4, size) };
        rig.answer(&header, reply(answer, &[grant(2, LockMode::Pr, META)]));
        let known = rig.poll(&mut first).unwrap().unwrap();
        assert_eq!((known.attr.size, known.held), (size, false));
    }
}

#[test]
fn what_was_told_before_the_lock_came_does_not_come_over_what_is_known_under_it() {
    let rig = Rig::mounted();
    let client = rig.client.clone();
    let how = OpenHow { read: true, ..OpenHow::default() };
    let mut open = rig.start(async move { client.open(FILE, how, CRED).await });
    let (header, _) = rig.take_mdt();
    rig.answer(&header, reply(MdtReply::Opened { attr: attr(4, 0), layout: None }, &[]));
    let handle = rig.poll(&mut open).unwrap().unwrap().handle;
    // A look that another client answers: it takes its time.
    let client = rig.client.clone();
    let mut late = rig.start(async move { client.getattr(FILE).await });
    let (asked, _) = rig.take_mdt();
    // The writer is lost meanwhile, with what it had not written out; its lock is free.
    let client = rig.client.clone();
    let mut read =
        rig.start(async move { client.read(handle, 100, 10, bytes::BytesMut::new()).await });
    let (enqueue, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Enqueue { .. }), "{request:?}");
    let locks = [grant(5, LockMode::Pr, META), grant(6, LockMode::Pr, DATA)];
    rig.answer(&enqueue, reply(MdtReply::Inode { attr: attr(4, 20) }, &locks));
    assert_eq!(rig.poll(&mut read).unwrap().unwrap().len(), 0);
    let told = Attr { size: 30, ..attr(4, 0) };
    rig.answer(&asked, reply(MdtReply::Inode { attr: told }, &[]));
    rig.poll(&mut late).unwrap().unwrap();
    let client = rig.client.clone();
    let known = rig.now(async move { client.getattr(FILE).await }).unwrap();
    assert_eq!((known.attr.size, known.held), (20, true));
}

/// A question that has to be put again because of what this client gave back meanwhile is put to the
/// writer, too: what the MDT has is older than what he said.
#[test]
fn who_asks_once_more_asks_the_writer_again() {
    let rig = Rig::mounted();
    let stat = || {
        let client = rig.client.clone();
        rig.start(async move { client.getattr(FILE).await })
    };
    let shown = |size| MdtReply::Inode { attr: attr(4, size) };
    let mut first = stat();
    let (header, _) = rig.take_mdt();
    rig.answer(&header, reply(shown(10), &[grant(2, LockMode::Pr, META)]));
    assert_eq!(rig.poll(&mut first).unwrap().unwrap().attr.size, 10);
    let mut second = stat();
    let (asked, _) = rig.take_mdt();
    // Somebody changes the mode.
    rig.call_back(2, &header);
    rig.kernel_is_done();
    let (cancel, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Cancel { .. }), "{request:?}");
    rig.answer(&cancel, reply(MdtReply::Done, &[]));
    rig.answer(&asked, reply(shown(30), &[]));
    assert!(rig.poll(&mut second).is_none());
    let (again, request) = rig.take_mdt();
    let MdtRequest::GetAttr { fid: FILE, want } = request else { panic!("{request:?}") };
    assert!(want.contains(DATA), "the writer is not asked");
    rig.answer(&again, reply(shown(40), &[grant(3, LockMode::Pr, META)]));
    assert_eq!(rig.poll(&mut second).unwrap().unwrap().attr.size, 40);
}

/// Of a file that another client writes the MDT does not tell the size, and the OSTs have not what he
/// keeps. Which file a name is shows with its attributes: then the MDT asks him.
#[test]
fn who_opens_what_another_writes_asks_for_the_size_where_it_is_shown() {
    let layout =
        || Some(std::sync::Arc::new(sateen_types::Layout::raid0(1 << 20, vec![0]).unwrap()));
    let stale = Attr { size_stale: true, maybe_objects: true, ..attr(3, 10) };
    let locks = [grant(2, LockMode::Pr, META)];
    let rig = Rig::with_osts(1);
    let client = rig.client.clone();
    let mut open = rig.start(async move { client.open(FILE, WRITE, CRED).await });
    let (header, _) = rig.take_mdt();
    rig.answer(&header, reply(MdtReply::Opened { attr: stale, layout: layout() }, &locks));
    let opened = rig.poll(&mut open).expect("nobody is asked").unwrap();
    assert!(!opened.known.held && rig.is_silent());
    // Nobody believes that size, either.
    let client = rig.client.clone();
    let mut stat = rig.start(async move { client.getattr(FILE).await });
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::GetAttr { .. }), "{request:?}");
    rig.answer(&header, reply(MdtReply::Inode { attr: attr(3, 7 * PAGE) }, &[]));
    let known = rig.poll(&mut stat).unwrap().unwrap();
    assert_eq!((known.attr.size, known.held), (7 * PAGE, false));

    let rig = Rig::with_osts(1);
    let client = rig.client.clone();
    let mut create =
        rig.start(async move { client.create(Fid::ROOT, b"f", 0o644, WRITE, CRED).await });
    let (header, mut request) = rig.take_mdt();
    let mut last = header;
    if request == MdtRequest::GrantSeq {
        rig.answer(&last, reply(MdtReply::Sequence(Seq(0x2_0000_0500)), &[]));
        assert!(rig.poll(&mut create).is_none());
        (last, request) = rig.take_mdt();
    }
    assert!(matches!(request, MdtRequest::Create { .. }), "{request:?}");
    let body = MdtReply::Created { attr: stale, layout: layout(), existed: true, parent: None };
    rig.answer(&last, reply(body, &locks));
    assert!(rig.poll(&mut create).is_none());
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::GetAttr { .. }), "not the OSTs: {request:?}");
    rig.answer(&header, reply(MdtReply::Inode { attr: attr(3, 7 * PAGE) }, &[]));
    let (entry, opened) = rig.poll(&mut create).unwrap().unwrap();
    assert_eq!(opened.known.attr.size, 7 * PAGE);
    assert_eq!(entry.inode.map(|known| known.attr.size), Some(7 * PAGE));
}

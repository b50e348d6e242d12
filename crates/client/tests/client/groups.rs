//! Group locks: who joins, how members read and write, and that others wait without a request, or are
//! served with the members of their client.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sateen_client::OpenHow;
use sateen_types::{Errno, Layout, Result};
use sateen_wire::{
    Bulk, Header, Ibits, LockId, LockMode, MdtReply, MdtRequest, OstReply, OstRequest, Reply,
    ReplyBody, SetAttr, TimeSet,
};

use crate::rig::{CRED, FILE, Rig, Verb, WRITE, attr, grant, reply};

const DATA: Ibits = Ibits::DATA;
const STRIPE: u64 = 1 << 20;

fn opened(rig: &Rig, how: OpenHow) -> u64 {
    let client = rig.client.clone();
    let mut open = rig.start(async move { client.open(FILE, how, CRED).await });
    let layout = Some(Arc::new(Layout::raid0(STRIPE as u32, vec![0, 1]).unwrap()));
    rig.answer(&rig.take(), reply(MdtReply::Opened { attr: attr(0, 10), layout }, &[]));
    rig.poll(&mut open).unwrap().unwrap().handle
}

fn joins(rig: &Rig, handle: u64, gid: u64) -> Verb<Result<()>> {
    let client = rig.client.clone();
    rig.begin(async move { client.lock_group(handle, gid).await })
}

/// The group that is asked for.
fn take_group(rig: &Rig) -> (Header, u64) {
    match rig.take_mdt() {
        (header, MdtRequest::EnqueueGroup { fid: FILE, gid }) => (header, gid),
        other => panic!("{other:?}"),
    }
}

fn granted(rig: &Rig, to: &Header) {
    let stale = sateen_types::Attr { size_stale: true, ..attr(3, 10) };
    let group = grant(1, LockMode::Group, DATA);
    rig.answer(to, reply(MdtReply::Inode { attr: stale }, &[group]));
}

/// A member of group 7.
fn member(rig: &Rig, how: OpenHow) -> u64 {
    let handle = opened(rig, how);
    let mut join = joins(rig, handle, 7);
    assert!(rig.poll(&mut join).is_none());
    let (asked, gid) = take_group(rig);
    assert_eq!(gid, 7);
    granted(rig, &asked);
    rig.poll(&mut join).unwrap().unwrap();
    handle
}

#[test]
fn who_joins_asks_once_for_all_of_its_client_and_the_last_gives_it_back() {
    let rig = Rig::with_osts(2);
    rig.client.introduce(FILE);
    let one = member(&rig, WRITE);
    let two = opened(&rig, WRITE);
    let quick = opened(&rig, OpenHow { nonblock: true, ..WRITE });
    assert_eq!(rig.poll(&mut joins(&rig, two, 0)), Some(Err(Errno::EINVAL)));
    assert_eq!(rig.poll(&mut joins(&rig, one, 7)), Some(Err(Errno::EINVAL)), "it has joined");
    assert_eq!(rig.poll(&mut joins(&rig, quick, 8)), Some(Err(Errno::EAGAIN)));
    assert_eq!(rig.poll(&mut joins(&rig, two, 7)), Some(Ok(())));
    assert!(rig.is_silent());
    let leave = |handle, gid| {
        let client = rig.client.clone();
        rig.begin(async move { client.unlock_group(handle, gid).await })
    };
    assert_eq!(rig.poll(&mut leave(one, 8)), Some(Err(Errno::EINVAL)));
    assert_eq!(rig.poll(&mut leave(one, 7)), Some(Ok(())));
    assert!(rig.is_silent());
    let mut last = leave(two, 7);
    assert!(rig.poll(&mut last).is_none());
    rig.kernel_is_done();
    assert!(rig.poll(&mut last).is_none());
    let (cancel, request) = rig.take_mdt();
    assert!(
        matches!(request, MdtRequest::Cancel { id: LockId(1), report: None, .. }),
        "{request:?}"
    );
    rig.answer(&cancel, reply(MdtReply::Done, &[]));
    assert_eq!(rig.poll(&mut last), Some(Ok(())));
}

#[test]
fn who_finds_another_group_asks_again_or_not() {
    let rig = Rig::with_osts(2);
    let (patient, quick) = (opened(&rig, WRITE), opened(&rig, OpenHow { nonblock: true, ..WRITE }));
    let mut join = joins(&rig, quick, 7);
    assert!(rig.poll(&mut join).is_none());
    rig.answer(&take_group(&rig).0, reply(MdtReply::Grouped, &[]));
    assert_eq!(rig.poll(&mut join), Some(Err(Errno::EAGAIN)));
    let mut join = joins(&rig, patient, 7);
    for _ in 0..3 {
        assert!(rig.poll(&mut join).is_none());
        rig.answer(&take_group(&rig).0, reply(MdtReply::Grouped, &[]));
        assert!(rig.poll(&mut join).is_none() && rig.is_silent(), "it waits here");
        rig.time_passes();
    }
    assert!(rig.poll(&mut join).is_none());
    granted(&rig, &take_group(&rig).0);
    assert_eq!(rig.poll(&mut join), Some(Ok(())));
}

#[test]
fn a_member_writes_and_reads_in_as_many_objects_as_it_likes() {
    let rig = Rig::with_osts(2);
    let handle = member(&rig, WRITE);
    let client = rig.client.clone();
    let data = Bytes::from_static(b"0123456789");
    let mut write = rig.begin(async move { client.write(handle, STRIPE - 5, data, false).await });
    assert!(rig.poll(&mut write).is_none());
    for _ in 0..2 {
        let (header, request) = rig.take_ost();
        assert!(matches!(request, OstRequest::Write { .. }), "{request:?}");
        let body = OstReply::Written { len: 5, boot_epoch: 5, granted: 0 };
        rig.answer(&header, Reply::ok(ReplyBody::Ost(body)));
        rig.run();
        if let Some(written) = rig.poll(&mut write) {
            assert_eq!(written, Ok(10));
        }
    }
    assert!(rig.is_silent());
    // A member reads from the OSTs.
    let client = rig.client.clone();
    let mut look = rig
        .begin(async move { client.read_past_cache(handle, STRIPE - 5, 5, BytesMut::new()).await });
    assert!(rig.poll(&mut look).is_none());
    let (header, request) = rig.take_ost();
    assert!(matches!(request, OstRequest::Read { len: 5, .. }), "{request:?}");
    let whole = Reply::ok(ReplyBody::Ost(OstReply::Read { len: 5 }));
    rig.answer_with(&header, whole, Bulk::Buffer(BytesMut::from(&b"01234"[..])));
    assert_eq!(&rig.poll(&mut look).unwrap().unwrap()[..], b"01234");
}

/// Reads past the pages.
fn looks(rig: &Rig, handle: u64) -> Verb<Result<BytesMut>> {
    let client = rig.client.clone();
    rig.begin(async move { client.read_past_cache(handle, 0, 10, BytesMut::new()).await })
}

/// The OST is asked, and answers.
fn is_read(rig: &Rig, read: &mut Verb<Result<BytesMut>>) {
    assert!(rig.poll(read).is_none());
    let (header, request) = rig.take_ost();
    assert!(matches!(request, OstRequest::Read { len: 10, .. }), "{request:?}");
    let whole = Reply::ok(ReplyBody::Ost(OstReply::Read { len: 10 }));
    rig.answer_with(&header, whole, Bulk::Buffer(BytesMut::from(&b"0123456789"[..])));
    assert_eq!(&rig.poll(read).unwrap().unwrap()[..], b"0123456789");
}

fn is_told_of_a_group(rig: &Rig) {
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Enqueue { bits: DATA, .. }), "{request:?}");
    rig.answer(&header, reply(MdtReply::Grouped, &[]));
}

fn reads() -> OpenHow {
    OpenHow { read: true, ..OpenHow::default() }
}

#[test]
fn all_of_a_members_client_are_served_as_it_is() {
    let rig = Rig::with_osts(2);
    let _member = member(&rig, WRITE);
    let other = opened(&rig, reads());
    is_read(&rig, &mut looks(&rig, other));
    let client = rig.client.clone();
    let mut pages = rig.begin(async move { client.read(other, 0, 10, BytesMut::new()).await });
    is_read(&rig, &mut pages);
    let client = rig.client.clone();
    let set = SetAttr { mtime: Some(TimeSet::Now), ..SetAttr::default() };
    let mut touch = rig.start(async move { client.setattr(FILE, set, CRED).await });
    // The atime of those reads comes first.
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::ReportSize { .. }), "{request:?}");
    rig.answer(&header, reply(MdtReply::Done, &[]));
    rig.run();
    assert!(rig.poll(&mut touch).is_none());
    let (_, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::SetAttr { .. }), "{request:?}");
}

#[test]
fn so_many_wait_for_a_group_of_others_until_one_of_their_own_belongs_to_it() {
    let rig = Rig::with_osts(2);
    let other = opened(&rig, reads());
    let mut reads: Vec<_> = (0..17).map(|_| looks(&rig, other)).collect();
    let mut refused = Vec::new();
    for read in &mut reads {
        assert!(rig.poll(read).is_none());
        is_told_of_a_group(&rig);
        refused.extend(rig.poll(read));
        assert!(rig.is_silent(), "it waits here, or not at all");
    }
    assert_eq!(refused, [Err(Errno::EBUSY)], "the last one");
    reads.truncate(16);
    // Who gives up makes room.
    drop(reads.pop());
    let mut read = looks(&rig, other);
    assert!(rig.poll(&mut read).is_none());
    is_told_of_a_group(&rig);
    assert!(rig.poll(&mut read).is_none());
    rig.time_passes();
    assert!(rig.poll(&mut read).is_none());
    is_told_of_a_group(&rig);
    let handle = opened(&rig, WRITE);
    let mut join = joins(&rig, handle, 7);
    assert!(rig.poll(&mut join).is_none());
    let (asked, _) = take_group(&rig);
    // Meanwhile nobody asks for what would have to be given back for the group.
    let mut late = looks(&rig, other);
    assert!(rig.poll(&mut late).is_none() && rig.is_silent());
    granted(&rig, &asked);
    assert_eq!(rig.poll(&mut join), Some(Ok(())));
    for read in reads.iter_mut().chain([&mut read, &mut late]) {
        is_read(&rig, read);
    }
    assert!(rig.is_silent());
}

//! Writes that are kept: when OSTs hear of them, who waits for that, and who is told when it
//! fails.

mod paced;
mod pieces;
mod slowly;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sateen_client::{OpenHow, Patience};
use sateen_types::{Attr, Endpoint, Errno, Falloc, Fid, Layout, Result};
use sateen_wire::{
    Bulk, Cred, FILE_LOCK_END_MAX, FileLock, FileLockMode, FileLockState, GROUPS, Grant, Header,
    Ibits, LockMode, MANY, MdtReply, MdtRequest, OstReply, OstRequest, RenameFlags, Reply,
    ReplyBody, Request, SetAttr,
};

use crate::rig::{CRED, FILE, Rig, Verb, WRITE, attr, grant, reply};

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
/// What one piece of a file counts beside its bytes.
const BESIDE: u64 = 1024 + 256;
const OST: Endpoint = Endpoint::Ost(0);
/// Somebody who looks at what was written through a handle.
type Look = fn(&Rig, u64) -> Verb<Result<()>>;
/// More than the client keeps anything for.
const AGE_NS: u64 = 1_100_000_000;

fn ost(body: OstReply) -> Reply {
    Reply::ok(ReplyBody::Ost(body))
}

fn layout(osts: &[u32]) -> Option<Arc<Layout>> {
    Some(Arc::new(Layout::raid0(64 << 10, osts.to_vec()).unwrap()))
}

/// The file is open under the lock for writing, on these OSTs.
fn open_with(rig: &Rig, how: OpenHow, osts: &[u32]) -> (u64, Header) {
    open_of(rig, FILE, how, osts)
}

fn open_of(rig: &Rig, fid: Fid, how: OpenHow, osts: &[u32]) -> (u64, Header) {
    let client = rig.client.clone();
    let mut open = rig.start(async move { client.open(fid, how, CRED).await });
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Open { .. }), "{request:?}");
    let last = 2 * u64::from(fid.oid);
    let locks =
        [grant(last - 1, LockMode::Pw, Ibits::DATA), grant(last, LockMode::Pr, Ibits::META)]
            .map(|grant| Grant { fid, ..grant });
    let attr = Attr { fid, ..attr(0, 0) };
    let answer = MdtReply::Opened { attr, layout: layout(osts) };
    rig.answer(&header, reply(answer, &locks));
    (rig.poll(&mut open).unwrap().unwrap().handle, header)
}

/// A client that keeps up to 4 MiB for an OST, and has written the first page of a file: it has a
/// grant of 8 MiB for more.
fn keeper() -> (Rig, u64, Header) {
    keeper_at(Rig::with_osts(1))
}

/// The same of OSTs that take several pieces at once.
fn keeper_of_many() -> (Rig, u64, Header) {
    keeper_at(Rig::with_features(1, 1, GROUPS | MANY))
}

fn keeper_at(rig: Rig) -> (Rig, u64, Header) {
    rig.client.set_dirty_max(4 * MIB, 4 * MIB);
    let (handle, header) = open_with(&rig, WRITE, &[0]);
    assert!(rig.client.keeps_writes(handle));
    let mut write = start_write(&rig, handle, 0, PAGE);
    // Nothing is promised yet.
    assert_eq!(take_write(&rig), (0, PAGE, 0));
    written_last(&rig, PAGE, 8 * MIB);
    assert_eq!(rig.poll(&mut write), Some(Ok(PAGE as usize)));
    (rig, handle, header)
}

thread_local! {
    /// The last request that was taken.
    static LAST: core::cell::Cell<Option<Header>> = const { core::cell::Cell::new(None) };
}

/// Offset, length and grant of the write that an OST is asked for next.
fn take_write(rig: &Rig) -> (u64, u64, u64) {
    let (header, len, request) = rig.take_with_data();
    LAST.set(Some(header));
    let Request::Ost(OstRequest::Write { offset, grant_used, .. }) = request else {
        panic!("{request:?}")
    };
    (offset, len, grant_used)
}

fn answer_last(rig: &Rig, body: Reply) {
    rig.answer(&LAST.get().unwrap(), body);
}

fn written_last(rig: &Rig, len: u64, granted: u64) {
    answer_last(rig, ost(OstReply::Written { len: len as u32, boot_epoch: 5, granted }));
}

fn start_write(rig: &Rig, handle: u64, at: u64, len: u64) -> Verb<Result<usize>> {
    let (client, bytes) = (rig.client.clone(), Bytes::from(vec![7; len as usize]));
    rig.start(async move { client.write(handle, at, bytes, false).await })
}

/// A write that is answered at once, without any request.
fn keep(rig: &Rig, handle: u64, at: u64, len: u64) {
    let (client, bytes) = (rig.client.clone(), Bytes::from(vec![7; len as usize]));
    let done = rig.now(async move { client.write(handle, at, bytes, false).await });
    assert_eq!(done, Ok(len as usize));
    rig.run();
}

/// What the close of a descriptor says.
fn flush(rig: &Rig, handle: u64) -> Result<()> {
    rig.client.flush_file(handle)
}

fn size(rig: &Rig) -> u64 {
    let client = rig.client.clone();
    rig.now(async move { client.getattr(FILE).await }).unwrap().attr.size
}

#[test]
fn small_writes_in_order_are_a_request_for_each_run() {
    let (rig, handle, _) = keeper();
    rig.client.set_rpc_pages_max(OST, 256).unwrap();
    let mut requests = 0;
    for page in 0..1024 {
        keep(&rig, handle, page * PAGE, PAGE);
        if !rig.is_silent() {
            assert_eq!(take_write(&rig), (requests * MIB, MIB, MIB));
            written_last(&rig, MIB, MIB);
            requests += 1;
            assert_eq!(page, requests * 256 - 1, "as soon as there is one");
        }
    }
    assert_eq!((requests, rig.client.dirty_bytes(0)), (4, 0));
    assert_eq!((rig.client.grant(0), size(&rig)), (8 * MIB, 4 * MIB));
    // What is no run goes when it is old.
    keep(&rig, handle, 4 * MIB, PAGE);
    keep(&rig, handle, 4 * MIB + PAGE, PAGE);
    rig.later(AGE_NS / 2);
    assert!(rig.is_silent());
    rig.later(AGE_NS / 2);
    assert_eq!(take_write(&rig), (4 * MIB, 2 * PAGE, 2 * PAGE));
    written_last(&rig, 2 * PAGE, 0);
    assert!(rig.is_silent());
}

#[test]
fn without_a_grant_a_write_waits_for_its_ost() {
    let rig = Rig::with_osts(1);
    rig.client.set_dirty_max(4 * MIB, 4 * MIB);
    let (handle, _) = open_with(&rig, WRITE, &[0]);
    for (granted, left) in [(0, 0), (PAGE, PAGE)] {
        let mut write = start_write(&rig, handle, 0, PAGE);
        assert_eq!(take_write(&rig), (0, PAGE, 0));
        written_last(&rig, PAGE, granted);
        assert_eq!((rig.poll(&mut write), rig.client.grant(0)), (Some(Ok(PAGE as usize)), left));
    }
    keep(&rig, handle, 0, PAGE);
    // The same bytes once more take nothing more.
    keep(&rig, handle, 0, PAGE);
    // Others are kept when those before have been written out, and brought another grant.
    let mut write = start_write(&rig, handle, PAGE, PAGE);
    assert_eq!(take_write(&rig), (0, PAGE, PAGE));
    written_last(&rig, PAGE, PAGE);
    assert_eq!(rig.poll(&mut write), Some(Ok(PAGE as usize)));
    assert!(rig.is_silent());
    // The OST is full: whoever writes is told.
    let mut write = start_write(&rig, handle, 2 * PAGE, PAGE);
    assert_eq!(take_write(&rig), (PAGE, PAGE, PAGE));
    written_last(&rig, PAGE, 0);
    assert!(rig.poll(&mut write).is_none());
    assert_eq!(take_write(&rig), (2 * PAGE, PAGE, 0));
    answer_last(&rig, Reply::error(Errno::ENOSPC));
    assert!(rig.poll(&mut write).is_none());
    let (header, request) = rig.take_mdt();
    assert_eq!(request, MdtRequest::NoRoom { fid: FILE, ost: 0, unwritten: false });
    let answer = MdtReply::Opened { attr: attr(0, 0), layout: layout(&[0]) };
    rig.answer(&header, reply(answer, &[]));
    assert_eq!(rig.poll(&mut write), Some(Err(Errno::ENOSPC)));
}

#[test]
fn who_looks_at_the_data_waits_until_it_is_written_out() {
    let looks: [Look; 5] = [
        |rig, handle| {
            let client = rig.client.clone();
            rig.start(async move { client.seek(handle, 0, true).await.map(drop) })
        },
        |rig, handle| {
            let client = rig.client.clone();
            let punch = Falloc::PunchHole;
            rig.start(async move { client.allocate(handle, (0, 99), punch, true).await })
        },
        |rig, _| {
            let client = rig.client.clone();
            let set = SetAttr { size: Some(5), ..SetAttr::default() };
            rig.start(async move { client.setattr(FILE, set, Cred::default()).await.map(drop) })
        },
        |rig, handle| {
            let client = rig.client.clone();
            rig.start(async move { client.fsync_file(handle).await })
        },
        |rig, handle| {
            let client = rig.client.clone();
            rig.start(async move { client.close(handle).await })
        },
    ];
    for (number, look) in looks.into_iter().enumerate() {
        let (rig, handle, _) = keeper();
        keep(&rig, handle, 0, PAGE);
        let mut looks = look(&rig, handle);
        assert_eq!(take_write(&rig), (0, PAGE, PAGE), "{number}");
        assert!(rig.poll(&mut looks).is_none() && rig.is_silent(), "{number} does not wait");
        written_last(&rig, PAGE, PAGE);
        assert!(rig.poll(&mut looks).is_none() && !rig.is_silent(), "{number} does not go on");
    }
}

#[test]
fn who_looks_at_the_data_of_which_only_a_part_is_kept_waits_as_well() {
    let (rig, handle, _) = keeper();
    let read = |offset, len| {
        let (client, buffer) = (rig.client.clone(), BytesMut::from(&b"before"[..]));
        rig.begin(async move { client.read(handle, offset, len, buffer).await })
    };
    keep(&rig, handle, 8 * PAGE, 2 * PAGE);
    // What is kept is read at once, as far as the file goes.
    for offset in [8 * PAGE, 9 * PAGE + 10, 10 * PAGE - 5] {
        let bytes = rig.poll(&mut read(offset, 2 * PAGE as u32)).unwrap().unwrap();
        let len = (10 * PAGE - offset) as usize;
        assert_eq!(bytes, [b"before".as_slice(), &vec![7; len]].concat());
    }
    assert_eq!(rig.poll(&mut read(10 * PAGE, 9)).unwrap().unwrap(), "before", "the end");
    assert!(rig.is_silent());
    let mut looks = read(8 * PAGE - 1, 2);
    assert!(rig.poll(&mut looks).is_none());
    assert_eq!(take_write(&rig), (8 * PAGE, 2 * PAGE, 2 * PAGE));
    assert!(rig.poll(&mut looks).is_none() && rig.is_silent(), "it does not wait");
    // Also for what is on its way.
    let mut looks = read(8 * PAGE, 2);
    assert!(rig.poll(&mut looks).is_none() && rig.is_silent());
    written_last(&rig, 2 * PAGE, 2 * PAGE);
    assert!(rig.poll(&mut looks).is_none() && !rig.is_silent(), "it does not go on");
}

#[test]
fn bytes_elsewhere_are_read_without_that() {
    let (rig, handle, _) = keeper();
    keep(&rig, handle, 8 * PAGE, PAGE);
    let (client, buffer) = (rig.client.clone(), BytesMut::new());
    let mut read = rig.start(async move { client.read(handle, 0, 20, buffer).await });
    let (header, request) = rig.take_ost();
    assert!(matches!(request, OstRequest::Read { .. }), "{request:?}");
    rig.answer_with(&header, ost(OstReply::Read { len: 0 }), Bulk::Buffer(BytesMut::new()));
    assert_eq!(rig.poll(&mut read).unwrap().map(|bytes| bytes.len()), Ok(20));
    assert_eq!((rig.client.dirty_bytes(0), size(&rig)), (PAGE, 9 * PAGE));
}

#[test]
fn nothing_is_kept_of_what_is_on_its_way() {
    let (rig, handle, _) = keeper();
    keep(&rig, handle, 0, PAGE);
    assert_eq!(flush(&rig, handle), Ok(()), "a close waits for nothing");
    let client = rig.client.clone();
    let looks = rig.start(async move { client.seek(handle, 0, true).await });
    assert_eq!(take_write(&rig), (0, PAGE, PAGE));
    // While somebody waits for all that was written, a write goes to the OST behind that.
    let mut write = start_write(&rig, handle, 0, PAGE);
    assert!(rig.is_silent(), "the younger bytes could come first");
    written_last(&rig, PAGE, PAGE);
    drop(looks);
    assert!(rig.poll(&mut write).is_none());
    assert_eq!(take_write(&rig), (0, PAGE, PAGE));
    written_last(&rig, PAGE, PAGE);
    assert_eq!(rig.poll(&mut write), Some(Ok(PAGE as usize)));
    // One that is written out unasked lets others be kept, and they go after it.
    keep(&rig, handle, 0, PAGE);
    rig.later(AGE_NS);
    assert_eq!(take_write(&rig), (0, PAGE, PAGE));
    keep(&rig, handle, 0, 2 * PAGE);
    rig.later(AGE_NS);
    assert_eq!(take_write(&rig), (0, PAGE, PAGE), "it is sent again");
    assert!(rig.is_silent(), "older bytes are on their way");
    written_last(&rig, PAGE, PAGE);
    assert_eq!(take_write(&rig), (0, 2 * PAGE, 2 * PAGE));
}

#[test]
fn a_lock_goes_back_after_what_was_written_under_it() {
    let (rig, handle, header) = keeper();
    keep(&rig, handle, PAGE, PAGE);
    rig.call_back(1, &header);
    assert_eq!(take_write(&rig), (PAGE, PAGE, PAGE));
    rig.kernel_is_done();
    assert!(rig.is_silent(), "the lock is given back before its data is");
    written_last(&rig, PAGE, PAGE);
    rig.kernel_is_done();
    let (_, request) = rig.take_mdt();
    let MdtRequest::Cancel { report: Some(report), .. } = request else { panic!("{request:?}") };
    assert_eq!(report.size, 2 * PAGE);
}

#[test]
fn what_is_not_written_out_is_told_once_to_every_descriptor() {
    let (rig, handle, _) = keeper();
    let (other, _) = open_with(&rig, WRITE, &[0]);
    keep(&rig, handle, 0, PAGE);
    rig.later(AGE_NS);
    take_write(&rig);
    answer_last(&rig, Reply::error(Errno::EIO));
    assert_eq!(flush(&rig, handle), Err(Errno::EIO));
    let (later, _) = open_with(&rig, WRITE, &[0]);
    assert_eq!(flush(&rig, handle), Ok(()));
    assert_eq!(flush(&rig, later), Ok(()), "it was opened after that");
    let client = rig.client.clone();
    let mut sync = rig.start(async move { client.fsync_file(other).await });
    while let Some((header, request)) = rig.take_if_any() {
        let answer = match request {
            Request::Ost(_) => ost(OstReply::Done),
            _ => reply(MdtReply::Done, &[]),
        };
        rig.answer(&header, answer);
        if let Some(done) = rig.poll(&mut sync) {
            assert_eq!(done, Err(Errno::EIO));
            assert_eq!(flush(&rig, other), Ok(()));
            return;
        }
    }
    panic!("the sync does not end");
}

/// Something that was kept could not be written out, and nobody has heard of it.
fn fails(rig: &Rig, handle: u64) {
    keep(rig, handle, 0, PAGE);
    rig.later(AGE_NS);
    take_write(rig);
    answer_last(rig, Reply::error(Errno::ENOSPC));
}

/// The end of a program closes, too, and nobody hears what that says.
#[test]
fn a_close_takes_nothing_from_a_sync_or_a_rename() {
    let (rig, handle, _) = keeper();
    fails(&rig, handle);
    assert_eq!((flush(&rig, handle), flush(&rig, handle)), (Err(Errno::ENOSPC), Ok(())));
    assert_eq!(synced(&rig, handle), Err(Errno::ENOSPC));
    assert_eq!((synced(&rig, handle), flush(&rig, handle)), (Ok(()), Ok(())));

    let (rig, handle, _) = keeper();
    assert!(rig.client.introduce(FILE));
    fails(&rig, handle);
    assert_eq!(flush(&rig, handle), Err(Errno::ENOSPC));
    assert_eq!(renames(&rig, true), Err(Errno::ENOSPC));
}

#[test]
fn a_sync_that_is_not_waited_for_takes_nothing_from_the_next() {
    let (rig, handle, _) = keeper();
    keep(&rig, handle, 0, PAGE);
    rig.later(AGE_NS);
    take_write(&rig);
    // Afterwards nothing would be kept.
    keep(&rig, handle, PAGE, PAGE);
    answer_last(&rig, Reply::error(Errno::ENOSPC));
    let patience = Arc::new(Patience::default());
    let client = rig.client.clone();
    let syncs = async move { client.fsync_file(handle).await };
    let mut sync = rig.begin(patience.clone().run(syncs));
    assert!(rig.poll(&mut sync).is_none());
    take_write(&rig);
    patience.end();
    assert_eq!(rig.poll(&mut sync), Some(Err(Errno::EINTR)));
    written_last(&rig, PAGE, PAGE);
    assert_eq!(synced(&rig, handle), Err(Errno::ENOSPC));
}

#[test]
fn what_cannot_be_written_out_at_the_end_is_told_by_the_close_itself() {
    let (rig, handle, _) = keeper();
    keep(&rig, handle, 0, PAGE);
    assert_eq!(flush(&rig, handle), Ok(()));
    let client = rig.client.clone();
    let mut close = rig.start(async move { client.close(handle).await });
    take_write(&rig);
    answer_last(&rig, Reply::error(Errno::EIO));
    assert_eq!(ends(&rig, &mut close), Err(Errno::EIO));
    // A kernel has told nobody of that: who opens the file next hears of it, once.
    let (next, _) = open_with(&rig, WRITE, &[0]);
    assert_eq!(synced(&rig, next), Err(Errno::EIO));
    assert_eq!(synced(&rig, next), Ok(()));
    let (after, _) = open_with(&rig, WRITE, &[0]);
    assert_eq!(synced(&rig, after), Ok(()));
}

#[test]
fn what_nobody_has_heard_of_is_told_after_the_kernel_has_forgotten_the_file() {
    let rig = failed_before();
    rig.client.forget(FILE, 1);
    rig.run();
    while let Some((header, _)) = rig.take_if_any() {
        rig.answer(&header, reply(MdtReply::Done, &[]));
    }
    assert_eq!(rig.client.census().inodes, 0);
    let (next, _) = open_with(&rig, WRITE, &[0]);
    assert_eq!(synced(&rig, next), Err(Errno::EIO));
    assert_eq!(synced(&rig, next), Ok(()));
}

fn synced(rig: &Rig, handle: u64) -> Result<()> {
    let client = rig.client.clone();
    let mut sync = rig.begin(async move { client.fsync_file(handle).await });
    ends(rig, &mut sync)
}

/// What a verb gives, whose further requests are answered with success.
fn ends<T>(rig: &Rig, verb: &mut Verb<T>) -> T {
    loop {
        if let Some(value) = rig.poll(verb) {
            return value;
        }
        let (header, request) = rig.take_request();
        let answer = match request {
            Request::Ost(OstRequest::GetAttr { .. }) => ost(OstReply::Objects(Vec::new())),
            Request::Ost(_) => ost(OstReply::Done),
            _ => reply(MdtReply::Done, &[]),
        };
        rig.answer(&header, answer);
    }
}

#[test]
fn what_may_be_too_far_for_an_ost_is_not_kept() {
    let (rig, handle, _) = keeper();
    let far = (1 << 40) - PAGE;
    keep(&rig, handle, far, PAGE);
    let mut write = start_write(&rig, handle, far + PAGE, PAGE);
    assert_eq!(take_write(&rig), (far, PAGE, PAGE), "what is kept goes first");
    written_last(&rig, PAGE, PAGE);
    assert!(rig.poll(&mut write).is_none());
    assert_eq!(take_write(&rig), (far + PAGE, PAGE, PAGE));
    answer_last(&rig, Reply::error(Errno::EFBIG));
    assert_eq!(rig.poll(&mut write), Some(Err(Errno::EFBIG)));
}

#[test]
fn the_end_of_a_mount_waits_as_long_as_osts_take_something() {
    let (rig, handle, _) = keeper();
    keep(&rig, handle, 0, PAGE);
    keep(&rig, handle, 8 * PAGE, PAGE);
    let client = rig.client.clone();
    let mut leaving = rig.start(async move { client.unmount().await });
    assert_eq!(take_write(&rig), (0, PAGE, PAGE));
    let first = LAST.get().unwrap();
    assert_eq!(take_write(&rig), (8 * PAGE, PAGE, PAGE));
    rig.answer(&first, ost(OstReply::Written { len: PAGE as u32, boot_epoch: 5, granted: 0 }));
    let mut goodbyes = || {
        rig.later(AGE_NS);
        assert!(rig.poll(&mut leaving).is_none());
        // What is not answered is sent again.
        let sent = std::iter::from_fn(|| rig.take_if_any());
        sent.filter(|(_, request)| *request == Request::Disconnect).count()
    };
    assert_eq!(goodbyes(), 0, "one was taken");
    assert_eq!(goodbyes(), 1, "and then none any more");
}

#[test]
fn a_long_write_is_not_kept() {
    let (rig, handle, _) = keeper();
    let long = 256 << 10;
    keep(&rig, handle, 0, long - 1);
    assert_eq!(rig.client.dirty_bytes(0), long - 1);
    let mut write = start_write(&rig, handle, MIB, long);
    assert_eq!(take_write(&rig), (0, long - 1, long - 1), "what is kept goes first");
    written_last(&rig, long - 1, long - 1);
    assert!(rig.poll(&mut write).is_none() && !rig.is_silent());
    assert_eq!(rig.client.dirty_bytes(0), 0);
}

#[test]
fn all_osts_together_have_a_bound() {
    let (rig, handle, _) = keeper();
    rig.client.set_dirty_max(4 * MIB, PAGE + BESIDE);
    keep(&rig, handle, 0, PAGE);
    let mut write = start_write(&rig, handle, PAGE, PAGE);
    assert_eq!(take_write(&rig), (0, PAGE, PAGE), "there is no room for both");
    assert!(rig.poll(&mut write).is_none());
    written_last(&rig, PAGE, PAGE);
    assert_eq!(rig.poll(&mut write), Some(Ok(PAGE as usize)));
    assert_eq!(rig.client.dirty_bytes(0), PAGE);
    // It does not count for one that has a bound of its own.
    rig.client.set_dirty_max_of(OST, 4 * MIB).unwrap();
    rig.run();
    take_write(&rig);
    written_last(&rig, PAGE, PAGE);
    keep(&rig, handle, 0, 3 * PAGE);
}

#[test]
fn osts_that_are_silent_keep_nobody_from_writing_to_others() {
    let rig = Rig::with_osts(2);
    rig.client.set_dirty_max(4 * MIB, 2 * (PAGE + BESIDE));
    let (silent, _) = open_with(&rig, WRITE, &[1]);
    let mut write = start_write(&rig, silent, 0, PAGE);
    take_write(&rig);
    written_last(&rig, PAGE, 8 * MIB);
    assert_eq!(rig.poll(&mut write), Some(Ok(PAGE as usize)));
    keep(&rig, silent, 4 * PAGE, 2 * PAGE);
    rig.later(AGE_NS);
    assert_eq!(take_write(&rig), (4 * PAGE, 2 * PAGE, 2 * PAGE));
    let unanswered = LAST.get().unwrap();
    // That is all that may be kept for both. It is nothing that the other could write out.
    let (handle, _) = open_of(&rig, Fid { oid: 2, ..FILE }, WRITE, &[0]);
    for page in 0..3 {
        let mut write = start_write(&rig, handle, page * PAGE, PAGE);
        let (offset, len, _) = take_write(&rig);
        assert_eq!((offset, len), (page * PAGE, PAGE), "it goes past what is kept");
        written_last(&rig, PAGE, 8 * MIB);
        assert_eq!(rig.poll(&mut write), Some(Ok(PAGE as usize)));
    }
    // Whoever writes to the one that is silent waits for it.
    let mut waits = start_write(&rig, silent, 8 * PAGE, PAGE);
    assert!(rig.is_silent());
    let len = 2 * PAGE as u32;
    let done = ost(OstReply::Written { len, boot_epoch: 5, granted: 8 * MIB });
    rig.answer(&unanswered, done);
    assert_eq!(rig.poll(&mut waits), Some(Ok(PAGE as usize)));
    keep(&rig, handle, 0, PAGE);
    assert_eq!((rig.client.dirty_bytes(0), rig.client.dirty_bytes(1)), (PAGE, PAGE));
}

fn start_rename(rig: &Rig, flags: RenameFlags) -> Verb<Result<()>> {
    let client = rig.client.clone();
    let (from, to) = ((Fid::ROOT, b"new".as_slice()), (Fid::ROOT, b"old".as_slice()));
    rig.start(async move { client.rename(from, to, flags).await })
}

/// The MDT is asked which file a name is, with no lock, and says that it is the test's.
fn is_looked_up(rig: &Rig, rename: &mut Verb<Result<()>>) {
    let (header, request) = rig.take_mdt();
    let MdtRequest::Lookup { want, want_parent, .. } = request else { panic!("{request:?}") };
    assert_eq!((want, want_parent), (Ibits::NONE, Ibits::NONE));
    rig.answer(&header, reply(MdtReply::Inode { attr: attr(0, PAGE) }, &[]));
    assert!(rig.poll(rename).is_none());
}

/// The MDT is asked to rename.
fn is_renamed(rig: &Rig) {
    let (_, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Rename { .. }), "{request:?}");
}

#[test]
fn a_file_that_replaces_another_is_written_out_first() {
    let (rig, handle, _) = keeper();
    keep(&rig, handle, 0, PAGE);
    let mut rename = start_rename(&rig, RenameFlags::default());
    is_looked_up(&rig, &mut rename);
    assert_eq!(take_write(&rig), (0, PAGE, PAGE));
    assert!(rig.is_silent(), "the MDT hears of it before the OST");
    written_last(&rig, PAGE, PAGE);
    assert!(rig.poll(&mut rename).is_none());
    is_renamed(&rig);
    // Where nothing is kept nobody is asked.
    let (rig, _, _) = keeper();
    let _rename = start_rename(&rig, RenameFlags::default());
    is_renamed(&rig);
    // Nor where both stay, or where nothing is replaced.
    for (no_replace, exchange) in [(true, false), (false, true)] {
        let (rig, handle, _) = keeper();
        keep(&rig, handle, 0, PAGE);
        let _rename = start_rename(&rig, RenameFlags { no_replace, exchange });
        is_renamed(&rig);
    }
}

#[test]
fn a_file_that_could_not_be_written_out_replaces_none() {
    let (rig, handle, _) = keeper();
    keep(&rig, handle, 0, PAGE);
    let mut rename = start_rename(&rig, RenameFlags::default());
    is_looked_up(&rig, &mut rename);
    take_write(&rig);
    answer_last(&rig, Reply::error(Errno::ENOSPC));
    assert_eq!(rig.poll(&mut rename), Some(Err(Errno::ENOSPC)));
    assert!(rig.is_silent(), "the old file is left where it is");
    // Who knows it may do it all the same; and who has it open is told as ever.
    let mut rename = start_rename(&rig, RenameFlags::default());
    assert!(rig.poll(&mut rename).is_none());
    is_renamed(&rig);
    assert_eq!(flush(&rig, handle), Err(Errno::ENOSPC));
}

/// What is asked of the MDT next about a lock, which is granted.
fn is_locked(rig: &Rig) -> FileLockMode {
    let (header, request) = rig.take_mdt();
    let MdtRequest::SetFileLock { lock, .. } = request else { panic!("{request:?}") };
    let state = FileLockState::Granted;
    rig.answer(&header, reply(MdtReply::FileLock { state, holder: None }, &[]));
    lock.mode
}

fn start_lock(rig: &Rig, handle: u64, mode: FileLockMode, flock: bool) -> Verb<Result<()>> {
    let client = rig.client.clone();
    let lock = FileLock { owner: 5, flock, mode, start: 0, end: FILE_LOCK_END_MAX, pid: 77 };
    rig.begin(async move { client.set_file_lock(handle, lock, false, || true).await })
}

#[test]
fn a_programs_lock_goes_after_what_was_written_under_it() {
    for (mode, flock) in
        [FileLockMode::Unlock, FileLockMode::Read].into_iter().flat_map(|m| [(m, false), (m, true)])
    {
        let (rig, handle, _) = keeper();
        keep(&rig, handle, 0, PAGE);
        let mut taken = start_lock(&rig, handle, FileLockMode::Write, flock);
        assert!(rig.poll(&mut taken).is_none());
        assert_eq!(is_locked(&rig), FileLockMode::Write, "who takes it waits for no OST");
        assert_eq!(rig.poll(&mut taken), Some(Ok(())));
        let mut given = start_lock(&rig, handle, mode, flock);
        assert!(rig.poll(&mut given).is_none());
        assert_eq!(take_write(&rig), (0, PAGE, PAGE));
        assert!(rig.poll(&mut given).is_none() && rig.is_silent(), "it goes before");
        written_last(&rig, PAGE, PAGE);
        assert!(rig.poll(&mut given).is_none());
        assert_eq!(is_locked(&rig), mode);
        assert_eq!(rig.poll(&mut given), Some(Ok(())));
        // Where nothing is kept it waits for nothing.
        let mut given = start_lock(&rig, handle, FileLockMode::Unlock, flock);
        assert!(rig.poll(&mut given).is_none());
        assert_eq!(is_locked(&rig), FileLockMode::Unlock);
    }
}

/// A close waits for its write-out for a while and no longer; what its program locks then is not
/// given back by it.
#[test]
fn what_is_locked_again_stays_though_a_close_is_late() {
    let (rig, handle, _) = keeper();
    let lock = |mode| {
        let mut verb = start_lock(&rig, handle, mode, false);
        assert!(rig.poll(&mut verb).is_none());
        verb
    };
    let mut taken = lock(FileLockMode::Write);
    is_locked(&rig);
    assert_eq!(rig.poll(&mut taken), Some(Ok(())));
    keep(&rig, handle, 0, PAGE);
    let client = rig.client.clone();
    let mut closed = rig.start(async move { client.closed_by(handle, 5).await });
    assert_eq!(take_write(&rig), (0, PAGE, PAGE));
    rig.later(1_050_000_000);
    assert_eq!(rig.poll(&mut closed), Some(()), "it does not wait for ever");
    let mut again = lock(FileLockMode::Write);
    // The write may be sent again meanwhile.
    while let Some((_, asked)) = rig.take_if_any() {
        assert!(matches!(asked, Request::Ost(_)), "it would be gone with the next answer");
    }
    written_last(&rig, PAGE, PAGE);
    assert!(rig.poll(&mut again).is_none());
    assert_eq!(is_locked(&rig), FileLockMode::Unlock);
    assert!(rig.poll(&mut again).is_none());
    assert_eq!(is_locked(&rig), FileLockMode::Write);
    assert_eq!(rig.poll(&mut again), Some(Ok(())));
}

#[test]
fn a_lock_for_reading_that_gives_nothing_back_waits_for_no_ost() {
    for flock in [false, true] {
        let (rig, handle, _) = keeper();
        keep(&rig, handle, 0, PAGE);
        let mut taken = start_lock(&rig, handle, FileLockMode::Read, flock);
        assert!(rig.poll(&mut taken).is_none());
        assert_eq!(is_locked(&rig), FileLockMode::Read);
        assert_eq!(rig.poll(&mut taken), Some(Ok(())));
    }
}

#[test]
fn who_does_not_wait_for_that_has_the_lock_still() {
    let (rig, handle, _) = keeper();
    keep(&rig, handle, 0, PAGE);
    let patience = Arc::new(Patience::default());
    let (client, mode, end) = (rig.client.clone(), FileLockMode::Unlock, FILE_LOCK_END_MAX);
    let lock = FileLock { owner: 5, flock: false, mode, start: 0, end, pid: 77 };
    let gives = async move { client.set_file_lock(handle, lock, false, || true).await };
    let mut given = rig.begin(patience.clone().run(gives));
    assert!(rig.poll(&mut given).is_none());
    take_write(&rig);
    patience.end();
    assert_eq!(rig.poll(&mut given), Some(Err(Errno::EINTR)));
    assert!(rig.is_silent());
}

#[test]
fn so_do_those_that_a_close_gives_back() {
    // Of fcntl, which go with any close of their program.
    let (rig, handle, _) = keeper();
    let mut taken = start_lock(&rig, handle, FileLockMode::Write, false);
    assert!(rig.poll(&mut taken).is_none());
    is_locked(&rig);
    assert_eq!(rig.poll(&mut taken), Some(Ok(())));
    keep(&rig, handle, 0, PAGE);
    let client = rig.client.clone();
    let mut closed = rig.start(async move { client.closed_by(handle, 5).await });
    assert_eq!(take_write(&rig), (0, PAGE, PAGE));
    assert!(rig.poll(&mut closed).is_none() && rig.is_silent(), "it goes before");
    written_last(&rig, PAGE, PAGE);
    assert_eq!(is_locked(&rig), FileLockMode::Unlock);
    assert_eq!(rig.poll(&mut closed), Some(()));
    // Of flock, also through a descriptor that only reads.
    let (rig, handle, _) = keeper();
    let how = OpenHow { write: false, read: true, ..WRITE };
    let (reads, _) = open_with(&rig, how, &[0]);
    let mut taken = start_lock(&rig, reads, FileLockMode::Write, true);
    assert!(rig.poll(&mut taken).is_none());
    is_locked(&rig);
    assert_eq!(rig.poll(&mut taken), Some(Ok(())));
    keep(&rig, handle, 0, PAGE);
    let client = rig.client.clone();
    let mut close = rig.start(async move { client.close(reads).await });
    assert_eq!(take_write(&rig), (0, PAGE, PAGE));
    assert!(rig.poll(&mut close).is_none() && rig.is_silent(), "it goes before");
    written_last(&rig, PAGE, PAGE);
    assert!(rig.poll(&mut close).is_none());
    let (_, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Close { .. }), "{request:?}");
}

/// A file was written and closed, and a close that nobody waited for has found its OST full.
fn failed_before() -> Rig {
    let (rig, handle, _) = keeper();
    assert!(rig.client.introduce(FILE));
    keep(&rig, handle, 0, PAGE);
    let client = rig.client.clone();
    let mut close = rig.start(async move { client.close(handle).await });
    take_write(&rig);
    answer_last(&rig, Reply::error(Errno::ENOSPC));
    assert_eq!(ends(&rig, &mut close), Err(Errno::ENOSPC));
    rig
}

/// The MDT is asked which file a name is, and then, or at once, to rename it; what the rename says
/// without that.
fn renames(rig: &Rig, looks_up: bool) -> Result<()> {
    let mut rename = start_rename(rig, RenameFlags::default());
    if looks_up {
        let (header, request) = rig.take_mdt();
        assert!(matches!(request, MdtRequest::Lookup { .. }), "{request:?}");
        rig.answer(&header, reply(MdtReply::Inode { attr: attr(0, PAGE) }, &[]));
    }
    let told = rig.poll(&mut rename);
    assert_eq!(told.is_none(), !rig.is_silent());
    told.unwrap_or_else(|| {
        is_renamed(rig);
        Ok(())
    })
}

#[test]
fn a_file_that_could_not_be_written_out_before_replaces_none_either() {
    let rig = failed_before();
    assert_eq!(renames(&rig, true), Err(Errno::ENOSPC));
    assert_eq!(renames(&rig, false), Ok(()), "who renames it knows");
    let (next, _) = open_with(&rig, WRITE, &[0]);
    assert_eq!(synced(&rig, next), Err(Errno::ENOSPC), "and whoever syncs it is told as ever");
    // Whose program has heard of it may rename it; the MDT may still be asked.
    let rig = failed_before();
    let (next, _) = open_with(&rig, WRITE, &[0]);
    assert_eq!(synced(&rig, next), Err(Errno::ENOSPC));
    assert_eq!(renames(&rig, true), Ok(()));
    assert_eq!(renames(&rig, false), Ok(()));
}

#[test]
fn nor_does_one_that_the_kernel_has_forgotten_since() {
    for heard in [false, true] {
        let rig = failed_before();
        rig.client.forget(FILE, 1);
        rig.run();
        while let Some((header, _)) = rig.take_if_any() {
            rig.answer(&header, reply(MdtReply::Done, &[]));
        }
        assert_eq!(rig.client.census().inodes, 0);
        if heard {
            let (next, _) = open_with(&rig, WRITE, &[0]);
            assert_eq!(synced(&rig, next), Err(Errno::EIO));
            assert_eq!(renames(&rig, true), Ok(()));
        } else {
            assert_eq!(renames(&rig, true), Err(Errno::ENOSPC));
        }
        assert_eq!(renames(&rig, false), Ok(()));
    }
}

#[test]
fn what_an_evicted_client_kept_is_lost_and_told() {
    let (rig, handle, header) = keeper();
    keep(&rig, handle, 0, PAGE);
    rig.evict(&header);
    assert_eq!((rig.client.dirty_bytes(0), rig.client.grant(0)), (0, 0));
    assert_eq!(flush(&rig, handle), Err(Errno::EIO));
    assert_eq!(flush(&rig, handle), Ok(()), "once");
    // Also what was on its way.
    let (rig, handle, header) = keeper();
    keep(&rig, handle, 0, PAGE);
    rig.later(AGE_NS);
    take_write(&rig);
    rig.evict(&header);
    assert_eq!(flush(&rig, handle), Err(Errno::EIO));
    assert_eq!(rig.client.dirty_bytes(0), 0);
}

#[test]
fn a_write_waits_for_room() {
    let (rig, handle, _) = keeper();
    rig.client.set_dirty_max_of(OST, 2 * PAGE + BESIDE).unwrap();
    assert_eq!(rig.client.set_dirty_max_of(Endpoint::Ost(7), 0), Err(Errno::ENOENT));
    assert_eq!(rig.client.set_dirty_max_of(OST, u64::MAX), Err(Errno::ERANGE));
    keep(&rig, handle, 0, 2 * PAGE);
    let mut write = start_write(&rig, handle, 8 * PAGE, PAGE);
    assert_eq!(take_write(&rig), (0, 2 * PAGE, 2 * PAGE));
    assert!(rig.poll(&mut write).is_none());
    written_last(&rig, 2 * PAGE, 2 * PAGE);
    assert_eq!(rig.poll(&mut write), Some(Ok(PAGE as usize)));
    assert!(rig.is_silent() && rig.client.dirty_bytes(0) == PAGE);
    // What could never be kept goes to the OST, after that.
    let mut write = start_write(&rig, handle, 8 * PAGE, 3 * PAGE);
    assert_eq!(take_write(&rig), (8 * PAGE, PAGE, PAGE));
    written_last(&rig, PAGE, PAGE);
    assert!(rig.poll(&mut write).is_none());
    assert_eq!(take_write(&rig), (8 * PAGE, 3 * PAGE, 3 * PAGE));
    written_last(&rig, 3 * PAGE, 3 * PAGE);
    assert_eq!(rig.poll(&mut write), Some(Ok(3 * PAGE as usize)));
}

#[test]
fn a_byte_here_and_there_counts_for_what_it_takes() {
    let (rig, handle, _) = keeper();
    let files_max = 50;
    rig.client.set_dirty_max_of(OST, files_max * (1 + BESIDE)).unwrap();
    keep(&rig, handle, 0, 1);
    for oid in 2..=files_max {
        let (handle, _) = open_of(&rig, Fid { oid: oid as u32, ..FILE }, WRITE, &[0]);
        keep(&rig, handle, 0, 1);
    }
    // The same byte, which takes nothing more.
    keep(&rig, handle, 0, 1);
    assert_eq!(rig.client.dirty_bytes(0), files_max, "as long as nobody counts them");
    let mut waits = start_write(&rig, handle, PAGE, 1);
    for _ in 0..files_max {
        assert!(rig.poll(&mut waits).is_none());
        assert_eq!(take_write(&rig), (0, 1, 1));
    }
    assert!(rig.poll(&mut waits).is_none() && rig.is_silent(), "it is not kept");
    written_last(&rig, 1, 1);
    assert_eq!(rig.poll(&mut waits), Some(Ok(1)), "there is room");
    assert_eq!(rig.client.dirty_bytes(0), files_max);
}

#[test]
fn what_pieces_count_beside_their_bytes_goes_with_them() {
    let (rig, handle, _) = keeper();
    // All that there is room for, again and again.
    let (pieces, len) = (200, 2);
    rig.client.set_dirty_max_of(OST, 1024 + pieces * (256 + len)).unwrap();
    for _ in 0..3 {
        for piece in 0..pieces {
            keep(&rig, handle, piece * PAGE, len);
        }
        assert!(rig.is_silent());
        let client = rig.client.clone();
        let mut seek = rig.start(async move { client.seek(handle, 0, true).await });
        for piece in 0..pieces {
            assert!(rig.poll(&mut seek).is_none());
            assert_eq!(take_write(&rig), (piece * PAGE, len, len));
            written_last(&rig, len, len);
        }
        assert!(rig.poll(&mut seek).is_none() && !rig.is_silent());
        rig.take();
    }
}

#[test]
fn opens_that_want_every_write_done_keep_none() {
    for how in [OpenHow { sync: true, ..WRITE }, OpenHow { direct: true, ..WRITE }] {
        let (rig, kept, _) = keeper();
        let (handle, _) = open_with(&rig, how, &[0]);
        assert!(!rig.client.keeps_writes(handle) && rig.client.keeps_writes(kept));
        let _write = start_write(&rig, handle, 0, PAGE);
        assert_eq!(take_write(&rig), (0, PAGE, PAGE));
    }
}

#[test]
fn where_every_ost_was_told_to_keep_nothing_no_open_does() {
    let rig = Rig::with_osts(2);
    rig.client.set_dirty_max(4 * MIB, 4 * MIB);
    let keeps = |ost, bytes| {
        rig.client.set_dirty_max_of(Endpoint::Ost(ost), bytes).unwrap();
        let (handle, _) = open_with(&rig, WRITE, &[0]);
        rig.client.keeps_writes(handle)
    };
    assert_eq!(
        [(0, 0), (1, 0), (1, MIB)].map(|(ost, bytes)| keeps(ost, bytes)),
        [true, false, true]
    );
}

#[test]
fn an_unmount_writes_out_what_is_kept() {
    let (rig, handle, _) = keeper();
    keep(&rig, handle, 0, PAGE);
    let client = rig.client.clone();
    let mut unmount = rig.start(async move { client.unmount().await });
    assert_eq!(take_write(&rig), (0, PAGE, PAGE));
    assert!(rig.is_silent(), "the OST is still needed");
    written_last(&rig, PAGE, 0);
    assert!(rig.poll(&mut unmount).is_none());
    let (_, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::ReportSize { .. }), "{request:?}");
}

#[test]
fn what_an_ost_had_not_answered_is_sent_again_without_the_grant() {
    let (rig, handle, _) = keeper();
    keep(&rig, handle, 0, PAGE);
    // It has restarted, as whoever asks it hears.
    let client = rig.client.clone();
    let mut seek = rig.start(async move { client.seek(handle, 0, true).await });
    assert_eq!(take_write(&rig), (0, PAGE, PAGE));
    answer_last(&rig, Reply::error(Errno::ESTALE));
    let (connect, request) = rig.take_request();
    assert!(matches!(request, Request::Connect { .. }), "{request:?}");
    keep_while(&rig, handle);
    let connected =
        ReplyBody::Connected { features: 0, boot_epoch: 6, generation: 4, follows: 0, durable: 0 };
    rig.answer(&connect, Reply::ok(connected));
    assert_eq!(take_write(&rig), (0, PAGE, 0));
    answer_last(&rig, ost(OstReply::Written { len: PAGE as u32, boot_epoch: 6, granted: 0 }));
    assert!(rig.poll(&mut seek).is_none());
}

/// A grant of before the restart is void: nothing is kept by it.
fn keep_while(rig: &Rig, handle: u64) {
    let _write = start_write(rig, handle, 4 * PAGE, PAGE);
    assert_eq!(rig.client.grant(0), 0);
}

#[test]
fn a_size_is_told_of_only_what_is_there() {
    let (rig, handle, _) = keeper();
    keep(&rig, handle, PAGE, PAGE);
    let client = rig.client.clone();
    let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let mut chmod = rig.start(async move { client.setattr(FILE, mode, CRED).await });
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::SetAttr { .. }), "it waits for no data: {request:?}");
    // The MDT knows nothing of the second page.
    let old = Attr { size: PAGE, size_stale: true, ..attr(8, PAGE) };
    rig.answer(&header, reply(MdtReply::Inode { attr: old }, &[]));
    assert_eq!(rig.poll(&mut chmod).unwrap().unwrap().attr.size, 2 * PAGE);
    assert!(rig.is_silent() && rig.client.dirty_bytes(0) == PAGE);
}

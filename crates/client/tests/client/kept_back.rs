//! A close for which nobody waits may be kept back by the network. Whoever waits for its answer, or
//! for what it gives free, says so.

use std::sync::Arc;

use bytes::Bytes;
use sateen_client::OpenHow;
use sateen_types::Layout;
use sateen_wire::{
    FILE_LOCK_END_MAX, FileLock, FileLockMode, FileLockState, Header, Ibits, LockMode, MdtReply,
    MdtRequest, OstReply, Reply, ReplyBody,
};

use crate::rig::{CRED, FILE, Rig, Verb, WRITE, attr, grant, reply};

/// The file is open under a lock for its data; the handle, and a header of the MDT's.
fn open(rig: &Rig, how: OpenHow) -> (u64, Header) {
    let client = rig.client.clone();
    let mut open = rig.start(async move { client.open(FILE, how, CRED).await });
    let layout = Some(Arc::new(Layout::raid0(1 << 20, vec![0]).unwrap()));
    let opened = MdtReply::Opened { attr: attr(0, 0), layout };
    let (header, _) = rig.take_mdt();
    rig.answer(&header, reply(opened, &[grant(1, LockMode::Pw, Ibits::DATA)]));
    (rig.poll(&mut open).unwrap().unwrap().handle, header)
}

fn write(rig: &Rig, handle: u64) {
    let (client, data) = (rig.client.clone(), Bytes::from_static(b"0123456789"));
    let mut writing = rig.start(async move { client.write(handle, 0, data, false).await });
    let (to_ost, _) = rig.take_ost();
    let written = OstReply::Written { len: 10, boot_epoch: 5, granted: 0 };
    rig.answer(&to_ost, Reply::ok(ReplyBody::Ost(written)));
    assert_eq!(rig.poll(&mut writing), Some(Ok(10)));
}

fn close(rig: &Rig, handle: u64) -> Verb<sateen_types::Result<()>> {
    let client = rig.client.clone();
    rig.start(async move { client.close(handle).await })
}

#[test]
fn a_close_for_which_nobody_waits_may_be_kept_back() {
    let rig = Rig::with_osts(1);
    let (handle, _) = open(&rig, WRITE);
    write(&rig, handle);
    let mut closing = close(&rig, handle);
    assert!(rig.is_kept_back());
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Close { report: Some(_), .. }), "{request:?}");
    rig.answer(&header, reply(MdtReply::Done, &[]));
    assert_eq!(rig.poll(&mut closing), Some(Ok(())));
}

#[test]
fn an_fsync_that_waits_for_its_report_does_not_wait_for_others_to_travel_with() {
    let rig = Rig::with_osts(1);
    let (handle, _) = open(&rig, WRITE);
    let (other, _) = open(&rig, WRITE);
    write(&rig, handle);
    let _closing = close(&rig, handle);
    assert!(rig.is_kept_back());
    let client = rig.client.clone();
    let _syncing = rig.start(async move { client.fsync_file(other).await });
    assert!(!rig.is_kept_back());
}

#[test]
fn an_open_that_empties_the_file_does_not_wait_either() {
    let rig = Rig::with_osts(1);
    let (handle, _) = open(&rig, WRITE);
    write(&rig, handle);
    let _closing = close(&rig, handle);
    assert!(rig.is_kept_back());
    let client = rig.client.clone();
    let cut = OpenHow { truncate: true, ..WRITE };
    let _opening = rig.start(async move { client.open(FILE, cut, CRED).await });
    assert!(!rig.is_kept_back());
}

#[test]
fn a_lock_that_others_want_does_not_wait_either() {
    let rig = Rig::with_osts(1);
    let (handle, header) = open(&rig, WRITE);
    write(&rig, handle);
    let _closing = close(&rig, handle);
    assert!(rig.is_kept_back());
    rig.call_back(1, &header);
    rig.kernel_is_done();
    assert!(!rig.is_kept_back());
}

#[test]
fn a_close_that_unlocks_for_others_goes_at_once() {
    let rig = Rig::with_osts(1);
    let (handle, _) = open(&rig, WRITE);
    let (mode, end) = (FileLockMode::Write, FILE_LOCK_END_MAX);
    let lock = FileLock { owner: 5, flock: true, mode, start: 0, end, pid: 77 };
    let client = rig.client.clone();
    let mut locking =
        rig.start(async move { client.set_file_lock(handle, lock, false, || true).await });
    let (asked, _) = rig.take_mdt();
    let state = FileLockState::Granted;
    rig.answer(&asked, reply(MdtReply::FileLock { state, holder: None }, &[]));
    assert_eq!(rig.poll(&mut locking), Some(Ok(())));
    let _closing = close(&rig, handle);
    assert!(matches!(rig.take_mdt().1, MdtRequest::Close { .. }));
    assert!(!rig.is_kept_back());
}

//! Answers, callbacks and reports that meet each other on the way.

use std::sync::Arc;

use bytes::Bytes;
use sateen_client::{KernelInval, OpenHow, Patience};
use sateen_types::{Errno, Fid, Layout, Timespec};
use sateen_wire::{
    Ibits, LockMode, MdtReply, MdtRequest, OstReply, OstRequest, Reply, ReplyBody, Request,
    SetAttr, TimeSet, XattrMode,
};

use crate::rig::{CRED, FILE, Rig, WRITE, attr, grant, reply};

const META: Ibits = Ibits::META;
const DATA: Ibits = Ibits::DATA;

fn inode(version: u64, size: u64) -> MdtReply {
    MdtReply::Inode { attr: attr(version, size) }
}

/// The client and its kernel know the file under these locks.
fn known(rig: &Rig, locks: &[sateen_wire::Grant], version: u64) -> sateen_wire::Header {
    let client = rig.client.clone();
    let mut stat = rig.start(async move { client.getattr(FILE).await });
    let (header, _) = rig.take_mdt();
    rig.answer(&header, reply(inode(version, 10), locks));
    let known = rig.poll(&mut stat).unwrap().unwrap();
    assert_eq!(known.attr.version, version);
    rig.client.introduce(FILE);
    header
}

#[test]
fn attributes_learned_under_a_lost_lock_are_not_believed_under_the_next() {
    let rig = Rig::mounted();
    let header = known(&rig, &[grant(1, LockMode::Pr, META), grant(2, LockMode::Pr, DATA)], 4);
    rig.call_back(1, &header);
    rig.kernel_is_done();
    let (cancel, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Cancel { .. }));
    rig.answer(&cancel, reply(MdtReply::Done, &[]));
    // The lock comes back with an answer that says nothing of the attributes.
    let client = rig.client.clone();
    let mut list = rig.start(async move { client.listxattr(FILE).await });
    let (header, _) = rig.take_mdt();
    let nothing = MdtReply::Bytes(Bytes::new());
    rig.answer(&header, reply(nothing, &[grant(3, LockMode::Pr, META)]));
    rig.poll(&mut list).unwrap().unwrap();
    let client = rig.client.clone();
    let _asks = rig.start(async move { client.getattr(FILE).await });
    assert!(matches!(rig.take_mdt().1, MdtRequest::GetAttr { .. }));
}

#[test]
fn an_answer_older_than_an_own_change_is_not_cached() {
    let rig = Rig::mounted();
    let client = rig.client.clone();
    let mut stat = rig.start(async move { client.getattr(FILE).await });
    let (asked, _) = rig.take_mdt();
    let client = rig.client.clone();
    let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let mut chmod = rig.start(async move { client.setattr(FILE, mode, CRED).await });
    let (kind, _) = rig.take_mdt();
    let locks = [grant(1, LockMode::Pr, META), grant(2, LockMode::Pr, DATA)];
    rig.answer(&kind, reply(inode(4, 10), &locks));
    assert!(rig.poll(&mut chmod).is_none());
    let (set, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::SetAttr { .. }));
    rig.answer(&set, reply(inode(5, 10), &[]));
    assert_eq!(rig.poll(&mut chmod).unwrap().unwrap().attr.version, 5);
    // What was asked before comes now.
    rig.answer(&asked, reply(inode(4, 10), &locks));
    let stat = rig.poll(&mut stat).unwrap().unwrap();
    assert_eq!(stat.attr.version, 5, "the newer of the two");
}

#[test]
fn a_repeated_callback_does_not_overtake_the_cancel() {
    let rig = Rig::mounted();
    let header = known(&rig, &[grant(1, LockMode::Pr, META), grant(2, LockMode::Pr, DATA)], 4);
    rig.call_back(2, &header);
    rig.kernel_is_done();
    assert!(matches!(rig.take_mdt().1, MdtRequest::Cancel { .. }));
    rig.call_back(2, &header);
    assert!(rig.is_silent(), "the cancel on its way is the answer");
    rig.call_back(9, &header);
    let (_, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Cancel { id, .. } if id.0 == 9), "never heard of");
}

#[test]
fn a_lock_granted_before_a_cancel_is_not_installed_after_it() {
    let rig = Rig::mounted();
    let client = rig.client.clone();
    let mut stat = rig.start(async move { client.getattr(FILE).await });
    let (asked, _) = rig.take_mdt();
    // Its grant is still on its way when it is asked back.
    rig.call_back(1, &asked);
    let (cancel, _) = rig.take_mdt();
    rig.answer(&cancel, reply(MdtReply::Done, &[]));
    rig.answer(&asked, reply(inode(4, 10), &[grant(1, LockMode::Pr, META.union(DATA))]));
    if rig.poll(&mut stat).is_none() {
        let (again, _) = rig.take_mdt();
        rig.answer(&again, reply(inode(6, 10), &[]));
        let known = rig.poll(&mut stat).unwrap().unwrap();
        assert!(!known.held);
    }
    let client = rig.client.clone();
    let _asks = rig.start(async move { client.getattr(FILE).await });
    assert!(matches!(rig.take_mdt().1, MdtRequest::GetAttr { .. }));
}

#[test]
fn a_read_that_waits_for_a_lock_takes_one_that_comes_along() {
    let rig = Rig::mounted();
    let client = rig.client.clone();
    let how = OpenHow { read: true, ..OpenHow::default() };
    let mut open = rig.start(async move { client.open(FILE, how, CRED).await });
    let (header, _) = rig.take_mdt();
    rig.answer(&header, reply(MdtReply::Opened { attr: attr(4, 0), layout: None }, &[]));
    let handle = rig.poll(&mut open).unwrap().unwrap().handle;
    let client = rig.client.clone();
    let buffer = bytes::BytesMut::new();
    let mut read = rig.start(async move { client.read(handle, 0, 10, buffer).await });
    let (enqueue, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Enqueue { .. }), "{request:?}");
    // Meanwhile a stat brings a lock, which is asked back at once: the kernel's answer to
    // that waits for the read, and the MDT with the enqueue for the lock.
    let client = rig.client.clone();
    let mut stat = rig.start(async move { client.getattr(FILE).await });
    let (header, _) = rig.take_mdt();
    rig.answer(&header, reply(inode(4, 0), &[grant(2, LockMode::Pr, DATA)]));
    rig.call_back(2, &header);
    assert!(rig.poll(&mut stat).is_some());
    assert!(rig.poll(&mut read).is_some(), "served under the lock that is being given back");
    rig.kernel_is_done();
    assert!(matches!(rig.take_mdt().1, MdtRequest::Cancel { .. }));
    rig.answer(&enqueue, reply(inode(4, 0), &[grant(3, LockMode::Pr, DATA)]));
}

#[test]
fn a_lock_that_nothing_was_read_under_goes_without_waiting_for_reads() {
    let rig = Rig::mounted();
    let client = rig.client.clone();
    let how = OpenHow { read: true, ..OpenHow::default() };
    let mut open = rig.start(async move { client.open(FILE, how, CRED).await });
    rig.answer(&rig.take(), reply(MdtReply::Opened { attr: attr(4, 0), layout: None }, &[]));
    let handle = rig.poll(&mut open).unwrap().unwrap().handle;
    let client = rig.client.clone();
    let buffer = bytes::BytesMut::new();
    let mut read = rig.start(async move { client.read(handle, 0, 10, buffer).await });
    let (for_reading, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Enqueue { mode: LockMode::Pr, .. }), "{request:?}");
    // Now the file is open for writing: no page may be read under a lock for reading any more.
    let client = rig.client.clone();
    let how = OpenHow { write: true, ..OpenHow::default() };
    let mut open = rig.start(async move { client.open(FILE, how, CRED).await });
    rig.answer(&rig.take(), reply(MdtReply::Opened { attr: attr(4, 0), layout: None }, &[]));
    rig.poll(&mut open).unwrap().unwrap();
    // Such a lock comes with a stat, is asked back, and is the answer to the read as well.
    let client = rig.client.clone();
    let mut stat = rig.start(async move { client.getattr(FILE).await });
    let (header, _) = rig.take_mdt();
    let locks = [grant(2, LockMode::Pr, DATA)];
    rig.answer(&header, reply(inode(4, 0), &locks));
    assert!(rig.poll(&mut stat).is_some());
    rig.call_back(2, &header);
    rig.answer(&for_reading, reply(inode(4, 0), &locks));
    assert!(rig.poll(&mut read).is_none());
    let (_, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Enqueue { mode: LockMode::Pw, .. }), "{request:?}");
    // The MDT grants that when the other is cancelled. The kernel has dropped attributes and
    // must not be asked for pages: it would wait for the read.
    rig.kernel_goes_on();
    assert!(matches!(rig.take_mdt().1, MdtRequest::Cancel { .. }));
}

#[test]
fn a_close_does_not_report_the_size_that_a_truncating_open_is_taking_away() {
    let rig = Rig::mounted();
    let write = OpenHow { write: true, ..OpenHow::default() };
    let client = rig.client.clone();
    let mut open = rig.start(async move { client.open(FILE, write, CRED).await });
    let (header, _) = rig.take_mdt();
    let layout = Some(Arc::new(Layout::raid0(1 << 20, vec![0]).unwrap()));
    let locks = [grant(1, LockMode::Pw, DATA), grant(2, LockMode::Pr, META)];
    rig.answer(&header, reply(MdtReply::Opened { attr: attr(4, 0), layout }, &locks));
    let handle = rig.poll(&mut open).unwrap().unwrap().handle;
    let client = rig.client.clone();
    let bytes = Bytes::from_static(b"0123456789");
    let mut writing = rig.start(async move { client.write(handle, 0, bytes, false).await });
    let (sync, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Sync { upto: 4 }), "{request:?}");
    rig.answer(&sync, reply(MdtReply::Done, &[]));
    // There is no such OST; but what it may have counts, and would be reported.
    let written = loop {
        match rig.poll(&mut writing) {
            Some(written) => break written,
            // The MGS may yet tell of it.
            None => rig.time_passes(),
        }
    };
    assert!(written.is_err());

    let client = rig.client.clone();
    let cut = OpenHow { truncate: true, ..write };
    let mut open = rig.start(async move { client.open(FILE, cut, CRED).await });
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Open { .. }), "{request:?}");
    let client = rig.client.clone();
    let mut close = rig.start(async move { client.close(handle).await });
    assert!(rig.is_silent(), "nothing is said of the size meanwhile");
    rig.answer(&header, reply(MdtReply::Opened { attr: attr(5, 0), layout: None }, &[]));
    assert!(rig.poll(&mut open).unwrap().is_ok());
    assert!(rig.poll(&mut close).is_none());
    let (_, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Close { report: None, .. }), "{request:?}");
}

#[test]
fn the_times_of_what_was_renamed_are_asked_for_anew() {
    let rig = Rig::mounted();
    known(&rig, &[grant(1, LockMode::Pr, META), grant(2, LockMode::Pr, DATA)], 4);
    let client = rig.client.clone();
    let root = Fid::ROOT;
    let mut rename = rig.start(async move {
        client.rename((root, b"old"), (root, b"new"), sateen_wire::RenameFlags::default()).await
    });
    let (header, _) = rig.take_mdt();
    let (parent, new_parent) = (None, None);
    let renamed =
        MdtReply::Renamed { moved: FILE, swapped: None, replaced: None, parent, new_parent };
    rig.answer(&header, reply(renamed, &[]));
    assert!(rig.poll(&mut rename).is_none());
    assert_eq!(rig.kernel_says(true), [KernelInval::Attr(FILE.ino())]);
    assert_eq!(rig.poll(&mut rename), Some(Ok(())));
    let client = rig.client.clone();
    let mut stat = rig.start(async move { client.getattr(FILE).await });
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::GetAttr { .. }), "{request:?}");
    rig.answer(&header, reply(inode(5, 10), &[]));
    assert_eq!(rig.poll(&mut stat).unwrap().unwrap().attr.version, 5);
}

#[test]
fn a_program_that_runs_is_not_cut_by_an_open_for_reading() {
    let rig = Rig::mounted();
    let open = |how: OpenHow| {
        let client = rig.client.clone();
        rig.begin(async move { client.open(FILE, how, CRED).await.map(|opened| opened.handle) })
    };
    let read = OpenHow { read: true, ..OpenHow::default() };
    let cut = OpenHow { truncate: true, ..read };
    let mut exec = open(OpenHow { exec: true, ..read });
    assert_eq!(rig.poll(&mut exec), None);
    let (header, _) = rig.take_mdt();
    let held = [grant(1, LockMode::Pr, Ibits::META.union(Ibits::DATA))];
    let body = MdtReply::Opened { attr: attr(4, 0), layout: None };
    rig.answer(&header, reply(body, &held));
    let running = rig.poll(&mut exec).unwrap().unwrap();
    rig.client.introduce(FILE);
    assert_eq!(rig.poll(&mut open(cut)), Some(Err(Errno::ETXTBSY)));
    assert!(rig.is_silent(), "nobody is asked to cut it");
    let client = rig.client.clone();
    let mut close = rig.start(async move { client.close(running).await });
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Close { .. }), "{request:?}");
    rig.answer(&header, reply(MdtReply::Done, &[]));
    assert_eq!(rig.poll(&mut close), Some(Ok(())));
    assert_eq!(rig.poll(&mut open(cut)), None);
    let (_, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Open { flags, .. } if flags.truncate), "{request:?}");
}

/// A grant that came too late to be believed does not make the next ones come too late, for ever:
/// others want the lock each time that it is granted.
#[test]
fn a_grant_that_is_not_believed_does_not_spoil_the_next() {
    let rig = Rig::with_osts(1);
    let client = rig.client.clone();
    let mut open = rig.start(async move { client.open(FILE, WRITE, CRED).await });
    let layout = Some(Arc::new(Layout::raid0(1 << 20, vec![0]).unwrap()));
    rig.answer(&rig.take(), reply(MdtReply::Opened { attr: attr(0, 0), layout }, &[]));
    let handle = rig.poll(&mut open).unwrap().unwrap().handle;
    let (client, data) = (rig.client.clone(), Bytes::from_static(b"0123456789"));
    let mut write = rig.start(async move { client.write(handle, 0, data, false).await });
    let (first, _) = rig.take_mdt();
    // The callback of an older lock comes late, and is answered while this one is asked for.
    rig.call_back(1, &first);
    rig.answer(&rig.take(), reply(MdtReply::Done, &[]));
    let (mut id, mut asked) = (1, vec![first]);
    for _ in 0..20 {
        for header in asked.drain(..) {
            id += 1;
            rig.answer(&header, reply(inode(0, 0), &[grant(id, LockMode::Pw, DATA)]));
            // What a message causes happens before the next one is read.
            assert!(rig.poll(&mut write).is_none());
            rig.call_back(id, &header);
        }
        assert!(rig.poll(&mut write).is_none());
        while let Some((header, request)) = rig.take_if_any() {
            match request {
                Request::Mdt(MdtRequest::Cancel { .. }) => {
                    rig.answer(&header, reply(MdtReply::Done, &[]));
                }
                Request::Mdt(MdtRequest::Enqueue { .. }) => asked.push(header),
                Request::Ost(OstRequest::Write { .. }) => return,
                other => panic!("{other:?}"),
            }
        }
    }
    panic!("it asks again and again");
}

/// A stat that took long, because of an OST, tells an older size than what is known under a lock
/// that was granted meanwhile: appends would go by it.
#[test]
fn an_older_version_says_nothing_of_the_size_that_a_lock_covers() {
    let rig = Rig::with_osts(1);
    let client = rig.client.clone();
    let mut open = rig.start(async move { client.open(FILE, WRITE, CRED).await });
    let layout = Some(Arc::new(Layout::raid0(1 << 20, vec![0]).unwrap()));
    rig.answer(&rig.take(), reply(MdtReply::Opened { attr: attr(9, 5), layout }, &[]));
    let handle = rig.poll(&mut open).unwrap().unwrap().handle;
    let client = rig.client.clone();
    let mut stat = rig.start(async move { client.getattr(FILE).await });
    let (old, _) = rig.take_mdt();
    let start_read = || {
        let client = rig.client.clone();
        rig.start(async move { client.read(handle, 10, 10, Default::default()).await })
    };
    let mut read = start_read();
    let (asked, _) = rig.take_mdt();
    rig.answer(&asked, reply(inode(12, 20), &[grant(2, LockMode::Pw, DATA)]));
    assert!(rig.poll(&mut read).is_none());
    assert!(matches!(rig.take_ost().1, OstRequest::Read { .. }));
    rig.answer(&old, reply(inode(9, 5), &[]));
    assert!(rig.poll(&mut stat).unwrap().is_ok());
    let _again = start_read();
    assert!(matches!(rig.take_ost().1, OstRequest::Read { .. }), "the file has 20 bytes");
}

/// An answer that was on its way while another one brought a lock may be older than that lock:
/// others may have changed the file in between.
#[test]
fn an_answer_from_before_a_lock_is_not_believed_under_it() {
    let rig = Rig::mounted();
    let client = rig.client.clone();
    let mut stat = rig.start(async move { client.getattr(FILE).await });
    let (old, _) = rig.take_mdt();
    let client = rig.client.clone();
    let mut list = rig.start(async move { client.listxattr(FILE).await });
    let (asked, _) = rig.take_mdt();
    let nothing = MdtReply::Bytes(Bytes::new());
    let locks = [grant(3, LockMode::Pr, META), grant(4, LockMode::Pr, DATA)];
    rig.answer(&asked, reply(nothing, &locks));
    rig.poll(&mut list).unwrap().unwrap();
    rig.answer(&old, reply(inode(4, 10), &[]));
    rig.poll(&mut stat).unwrap().unwrap();
    let client = rig.client.clone();
    let mut again = rig.start(async move { client.getattr(FILE).await });
    let (asked, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::GetAttr { .. }));
    // What comes now is known, until the locks go.
    rig.answer(&asked, reply(inode(5, 11), &[]));
    assert_eq!(rig.poll(&mut again).unwrap().unwrap().attr.size, 11);
    let client = rig.client.clone();
    assert_eq!(rig.now(async move { client.getattr(FILE).await }).unwrap().attr.version, 5);
}

/// A file on one OST is open under a lock for it.
fn open_for(rig: &Rig, how: OpenHow) -> u64 {
    let client = rig.client.clone();
    let mut open = rig.start(async move { client.open(FILE, how, CRED).await });
    let layout = Some(Arc::new(Layout::raid0(1 << 20, vec![0]).unwrap()));
    let opened = MdtReply::Opened { attr: attr(0, 0), layout };
    rig.answer(&rig.take(), reply(opened, &[grant(1, LockMode::Pw, DATA)]));
    rig.poll(&mut open).unwrap().unwrap().handle
}

fn written() -> Reply {
    Reply::ok(ReplyBody::Ost(OstReply::Written { len: 10, boot_epoch: 5, granted: 0 }))
}

/// A write that its program has given up ends when it ends: what it then says of the size must
/// not undo a cut that came after it.
#[test]
fn a_file_is_cut_behind_the_writes_under_way() {
    let rig = Rig::with_osts(1);
    let handle = open_for(&rig, WRITE);
    let (client, data) = (rig.client.clone(), Bytes::from_static(b"0123456789"));
    let mut writing = rig.start(async move { client.write(handle, 0, data, false).await });
    let (to_ost, _) = rig.take_ost();
    let client = rig.client.clone();
    let size = SetAttr { size: Some(3), ..SetAttr::default() };
    let mut cut = rig.start(async move { client.setattr(FILE, size, CRED).await });
    assert!(rig.is_silent(), "it waits for the write");
    let (client, data) = (rig.client.clone(), Bytes::from_static(b"0123456789"));
    let mut later = rig.start(async move { client.write(handle, 0, data, false).await });
    assert!(rig.is_silent(), "which begins when the file is cut");
    rig.answer(&to_ost, written());
    assert_eq!(rig.poll(&mut writing), Some(Ok(10)));
    assert!(rig.poll(&mut cut).is_none());
    let (told, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::ReportSize { .. }), "{request:?}");
    rig.answer(&told, reply(MdtReply::Done, &[]));
    assert!(rig.poll(&mut cut).is_none() && rig.poll(&mut later).is_none());
    let (set, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::SetAttr { .. }), "{request:?}");
    assert!(rig.is_silent());
    rig.answer(&set, reply(inode(5, 3), &[]));
    assert_eq!(rig.poll(&mut cut).unwrap().unwrap().attr.size, 3);
    assert!(rig.poll(&mut later).is_none());
    let (_, request) = rig.take_ost();
    assert!(matches!(request, OstRequest::Write { .. }), "{request:?}");
}

/// What is closed everywhere nobody writes to, or its objects could come back after they were
/// removed: a write whose program was killed goes on when the kernel has closed the file.
#[test]
fn a_file_is_closed_behind_the_writes_under_way() {
    let rig = Rig::with_osts(1);
    let handle = open_for(&rig, WRITE);
    let write = || {
        let (client, data) = (rig.client.clone(), Bytes::from_static(b"0123456789"));
        rig.begin(async move { client.write(handle, 0, data, false).await })
    };
    let mut writing = write();
    assert!(rig.poll(&mut writing).is_none());
    let (to_ost, _) = rig.take_ost();
    let client = rig.client.clone();
    let mut close = rig.start(async move { client.close(handle).await });
    assert!(rig.is_silent() && rig.poll(&mut close).is_none(), "it waits for the write");
    assert_eq!(rig.poll(&mut write()), Some(Err(Errno::EINTR)), "none begins any more");
    rig.answer(&to_ost, written());
    assert_eq!(rig.poll(&mut writing), Some(Ok(10)));
    assert!(rig.poll(&mut close).is_none());
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Close { report: Some(_), .. }), "{request:?}");
    rig.answer(&header, reply(MdtReply::Done, &[]));
    assert_eq!(rig.poll(&mut close), Some(Ok(())));
}

/// It waits while another program cuts the file. By the time that this is done its program is gone,
/// and the file must not be emptied on its behalf.
#[test]
fn an_open_that_nobody_waits_for_does_not_empty_the_file() {
    let rig = Rig::with_osts(1);
    let handle = open_for(&rig, WRITE);
    let (client, data) = (rig.client.clone(), Bytes::from_static(b"0123456789"));
    let mut writing = rig.start(async move { client.write(handle, 0, data, false).await });
    let (to_ost, _) = rig.take_ost();
    let client = rig.client.clone();
    let size = SetAttr { size: Some(3), ..SetAttr::default() };
    let mut cut = rig.start(async move { client.setattr(FILE, size, CRED).await });
    assert!(rig.poll(&mut cut).is_none());
    let (patience, client) = (Arc::new(Patience::default()), rig.client.clone());
    let how = OpenHow { truncate: true, ..WRITE };
    let mut open =
        rig.start(patience.clone().run(async move { client.open(FILE, how, CRED).await }));
    assert!(rig.is_silent() && rig.poll(&mut open).is_none(), "it waits for the cut");
    patience.end();
    assert_eq!(rig.poll(&mut open).unwrap().err(), Some(Errno::EINTR));
    rig.answer(&to_ost, written());
    assert_eq!(rig.poll(&mut writing), Some(Ok(10)));
    assert!(rig.poll(&mut cut).is_none());
    rig.answer(&rig.take_mdt().0, reply(MdtReply::Done, &[]));
    assert!(rig.poll(&mut cut).is_none());
    let (set, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::SetAttr { .. }), "{request:?}");
    rig.answer(&set, reply(inode(5, 3), &[]));
    assert_eq!(rig.poll(&mut cut).unwrap().unwrap().attr.size, 3);
    assert!(rig.is_silent(), "nobody asks for anything more");
}

/// However long they take: a write that was given up goes on all the same, and what it says of the
/// size would undo the cut.
#[test]
fn a_file_is_emptied_behind_the_writes_under_way() {
    for killed in [false, true] {
        let rig = Rig::with_osts(1);
        let handle = open_for(&rig, WRITE);
        let (client, data) = (rig.client.clone(), Bytes::from_static(b"0123456789"));
        let mut writing = rig.start(async move { client.write(handle, 0, data, false).await });
        let (to_ost, _) = rig.take_ost();
        let (patience, client) = (Arc::new(Patience::default()), rig.client.clone());
        let how = OpenHow { truncate: true, ..WRITE };
        let mut open =
            rig.start(patience.clone().run(async move { client.open(FILE, how, CRED).await }));
        // The MDT is asked for nothing; what the client does beside that is not looked at.
        let asks = || {
            let sent = std::iter::from_fn(|| rig.take_if_any());
            sent.filter(|(_, request)| matches!(request, Request::Mdt(_))).count() > 0
        };
        for _ in 0..10 {
            rig.later(2_000_000_000);
            assert!(rig.poll(&mut open).is_none() && !asks(), "it waits for the write");
        }
        if killed {
            patience.end();
            assert_eq!(rig.poll(&mut open).unwrap().err(), Some(Errno::EINTR));
        }
        rig.answer(&to_ost, written());
        assert_eq!(rig.poll(&mut writing), Some(Ok(10)));
        if killed {
            assert!(rig.is_silent(), "nobody asks for anything more");
        } else {
            assert!(rig.poll(&mut open).is_none());
            let (header, request) = rig.take_mdt();
            assert!(matches!(request, MdtRequest::Open { flags, .. } if flags.truncate));
            let opened = MdtReply::Opened { attr: attr(5, 0), layout: None };
            rig.answer(&header, reply(opened, &[]));
            assert_eq!(rig.poll(&mut open).unwrap().unwrap().known.attr.size, 0);
        }
    }
}

/// What was stored through a mapping is written some time, and would set the mtime then.
#[test]
fn a_time_is_set_behind_what_was_stored_through_a_mapping() {
    let write_only = OpenHow { read: false, ..WRITE };
    for (how, mapped) in [(WRITE, true), (write_only, false)] {
        let rig = Rig::with_osts(1);
        open_for(&rig, how);
        rig.client.introduce(FILE);
        let client = rig.client.clone();
        let mtime = Some(TimeSet::At(Timespec { sec: 7, nsec: 0 }));
        let set = SetAttr { mtime, ..SetAttr::default() };
        let mut touch = rig.start(async move { client.setattr(FILE, set, CRED).await });
        assert_eq!(rig.is_silent(), mapped, "only what is open for both can be mapped to store");
        if mapped {
            assert_eq!(rig.kernel_says(true), [KernelInval::Data(FILE.ino())]);
            assert!(rig.poll(&mut touch).is_none());
        }
        assert!(matches!(rig.take_mdt().1, MdtRequest::SetAttr { .. }));
    }
}

/// An answer with attributes from before may be on its way to the kernel.
#[test]
fn the_kernel_is_told_of_what_this_client_changes_without_an_answer_that_says_how() {
    let rig = Rig::mounted();
    known(&rig, &[grant(1, LockMode::Pr, META), grant(2, LockMode::Pr, DATA)], 4);
    let set = || {
        let (client, value) = (rig.client.clone(), Bytes::from_static(b"value"));
        rig.begin(async move { client.setxattr(FILE, b"user.x", value, XattrMode::Any).await })
    };
    let mut first = set();
    assert!(rig.poll(&mut first).is_none());
    rig.answer(&rig.take(), reply(MdtReply::Done, &[]));
    assert!(rig.poll(&mut first).is_none(), "the kernel is told first");
    assert_eq!(rig.kernel_says(true), [KernelInval::Attr(FILE.ino())]);
    assert_eq!(rig.poll(&mut first), Some(Ok(())));
    // It was given nothing since.
    let mut second = set();
    assert!(rig.poll(&mut second).is_none());
    rig.answer(&rig.take(), reply(MdtReply::Done, &[]));
    assert_eq!(rig.poll(&mut second), Some(Ok(())));
}

/// A name is found, and what the kernel is to hear of it stands under the inode's lock.
fn look_up(rig: &Rig, id: u64, version: u64) -> sateen_client::Entry {
    let client = rig.client.clone();
    let mut lookup = rig.start(async move { client.lookup(Fid::ROOT, b"x").await });
    let locks = [grant(id, LockMode::Pr, META), grant(id + 1, LockMode::Pr, DATA)];
    rig.answer(&rig.take(), reply(inode(version, 10), &locks));
    rig.poll(&mut lookup).unwrap().unwrap()
}

/// Nobody tells a kernel that it must forget what it has not heard of.
#[test]
fn what_the_kernel_hears_stands_under_locks_that_are_still_there() {
    let rig = Rig::mounted();
    let first = look_up(&rig, 1, 4);
    assert!(first.held && first.inode.unwrap().held);
    // It is the last that anybody knows of it: its locks go.
    rig.client.forget(FILE, 0);
    rig.run();
    while let Some((cancel, request)) = rig.take_if_any() {
        assert!(matches!(request, Request::Mdt(MdtRequest::Cancel { .. })), "{request:?}");
        rig.answer(&cancel, reply(MdtReply::Done, &[]));
    }
    // Others have changed it; that was heard, and not told to the kernel either.
    let second = look_up(&rig, 3, 6);
    let told = rig.client.introduce_entry(first);
    assert!(!told.held, "the name may lead elsewhere");
    let known = told.inode.unwrap();
    assert_eq!((known.held, known.attr.version), (true, 6));
    let told = rig.client.introduce_entry(second);
    assert!(told.held && told.inode.unwrap().held);
}

#[test]
fn a_name_that_is_not_there_is_known_from_the_answer_that_brings_the_lock() {
    let rig = Rig::mounted();
    let client = rig.client.clone();
    let mut lookup = rig.start(async move { client.lookup(FILE, b"x").await });
    let missing = reply(MdtReply::Done, &[grant(1, LockMode::Pr, META)]);
    let missing = Reply { grants: missing.grants, ..Reply::error(Errno::ENOENT) };
    rig.answer(&rig.take(), missing);
    let entry = rig.poll(&mut lookup).unwrap().unwrap();
    assert!(entry.inode.is_none() && entry.held);
}

/// Whoever waits for others, and not for an answer of his own, is let go.
#[test]
fn a_verb_that_nobody_waits_for_waits_for_nobody() {
    let rig = Rig::with_osts(1);
    let handle = open_for(&rig, WRITE);
    let append = || {
        let (client, data) = (rig.client.clone(), Bytes::from_static(b"0123456789"));
        rig.begin(async move { client.write(handle, 0, data, true).await })
    };
    let mut first = append();
    assert!(rig.poll(&mut first).is_none());
    let (to_ost, _) = rig.take_ost();
    let patience = Arc::new(Patience::default());
    let (client, data) = (rig.client.clone(), Bytes::from_static(b"x"));
    let second = async move { client.write(handle, 0, data, true).await };
    let mut second = rig.start(patience.clone().run(second));
    patience.end();
    assert_eq!(rig.poll(&mut second), Some(Err(Errno::EINTR)));
    rig.answer(&to_ost, written());
    assert_eq!(rig.poll(&mut first), Some(Ok(10)));

    // The size is being told, and the MDT does not answer.
    let touch = || {
        let (client, now) = (rig.client.clone(), Some(TimeSet::Now));
        let set = SetAttr { mtime: now, ..SetAttr::default() };
        async move { client.setattr(FILE, set, CRED).await.map(drop) }
    };
    let _first = rig.start(touch());
    assert!(matches!(rig.take_mdt().1, MdtRequest::ReportSize { .. }));
    let patience = Arc::new(Patience::default());
    let mut second = rig.start(patience.clone().run(touch()));
    patience.end();
    assert_eq!(rig.poll(&mut second), Some(Err(Errno::EINTR)));
    assert!(rig.is_silent());
}

/// Others make and remove it again and again, and its size has to be asked for each time.
#[test]
fn a_name_whose_file_is_gone_already_is_looked_up_again() {
    let rig = Rig::with_osts(1);
    let client = rig.client.clone();
    let mut looking = rig.start(async move { client.lookup(Fid::ROOT, b"lock").await });
    for version in 1..5 {
        let (header, request) = rig.take_mdt();
        assert!(matches!(request, MdtRequest::Lookup { .. }), "{request:?}");
        let found = sateen_types::Attr { size_stale: true, ..attr(version, 0) };
        rig.answer(&header, reply(MdtReply::Inode { attr: found }, &[]));
        assert!(rig.poll(&mut looking).is_none());
        let (header, request) = rig.take_mdt();
        assert!(matches!(request, MdtRequest::GetStripe { .. }), "{request:?}");
        let gone = Reply { last_committed: version, ..Reply::error(Errno::ESTALE) };
        rig.answer(&header, gone);
        assert!(rig.poll(&mut looking).is_none(), "there may be another");
    }
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Lookup { .. }), "{request:?}");
    rig.answer(&header, Reply { last_committed: 9, ..Reply::error(Errno::ENOENT) });
    assert!(rig.poll(&mut looking).unwrap().unwrap().inode.is_none());
}

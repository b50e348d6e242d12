//! Opens that are kept: when the MDT hears of a close, and when it need not be asked for an open.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sateen_client::{Client, OpenHow};
use sateen_types::{Attr, Endpoint, Errno, Fid, Layout, Result, Seq};
use sateen_wire::{
    FILE_LOCK_END_MAX, FileLock, FileLockMode, FileLockState, Grant, Header, Ibits, LockMode,
    MdtReply, MdtRequest, OpenId, OstReply, OstRequest, RenameFlags, Reply, ReplyBody, Request,
};

use crate::rig::{CRED, FILE, Rig, Verb, WRITE, attr, grant, reply};

const META: Ibits = Ibits::META;
const DATA: Ibits = Ibits::DATA;
const READ: OpenHow = OpenHow { read: true, write: false, ..WRITE };

fn layout() -> Option<Arc<Layout>> {
    Some(Arc::new(Layout::raid0(1 << 20, vec![0]).unwrap()))
}

fn mode_of(how: OpenHow) -> LockMode {
    if how.write { LockMode::Pw } else { LockMode::Pr }
}

/// Opens the file, which the MDT is asked for, and grants its data in this mode.
fn open_in(rig: &Rig, how: OpenHow, mode: LockMode) -> (u64, Header) {
    let client = rig.client.clone();
    let mut open = rig.start(async move { client.open(FILE, how, CRED).await });
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Open { .. }), "{request:?}");
    let data = if mode == LockMode::Pw { 3 } else { 1 };
    let locks = [grant(data, mode, DATA), grant(2, LockMode::Pr, META)];
    let body = MdtReply::Opened { attr: attr(1, 10), layout: layout() };
    rig.answer(&header, reply(body, &locks));
    (rig.poll(&mut open).unwrap().unwrap().handle, header)
}

fn open(rig: &Rig, how: OpenHow) -> (u64, Header) {
    open_in(rig, how, mode_of(how))
}

/// Opens it, which asks nobody.
fn open_again(rig: &Rig, how: OpenHow) -> Result<u64> {
    let client = rig.client.clone();
    let opened = rig.now(async move { client.open(FILE, how, CRED).await });
    assert!(rig.is_silent());
    opened.map(|opened| opened.handle)
}

/// Closes it, of which the MDT hears: by that number.
fn close(rig: &Rig, handle: u64) -> OpenId {
    let client = rig.client.clone();
    let mut closing = rig.start(async move { client.close(handle).await });
    let closed = is_closed(rig);
    assert_eq!(rig.poll(&mut closing), Some(Ok(())));
    closed
}

fn is_closed(rig: &Rig) -> OpenId {
    let (header, request) = rig.take_mdt();
    let MdtRequest::Close { open_id, .. } = request else { panic!("{request:?}") };
    rig.answer(&header, reply(MdtReply::Done, &[]));
    open_id
}

/// Closes it, of which nobody hears.
fn close_here(rig: &Rig, handle: u64) {
    let client = rig.client.clone();
    assert_eq!(rig.now(async move { client.close(handle).await }), Ok(()));
    assert!(rig.is_silent());
}

/// The file was opened and closed, and is kept.
fn kept(how: OpenHow) -> (Rig, u64, Header) {
    let rig = Rig::with_osts(1);
    let (first, header) = open(&rig, how);
    assert!(rig.client.introduce(FILE), "the kernel knows it");
    close_here(&rig, first);
    assert_eq!((rig.client.census().files, rig.client.census().opens_kept), (0, 1));
    (rig, first, header)
}

/// What the client asks of the MDT by itself, which is done.
fn all_asked(rig: &Rig) -> Vec<MdtRequest> {
    let mut asked = Vec::new();
    while let Some((header, request)) = rig.take_if_any() {
        let Request::Mdt(request) = request else { panic!("{request:?}") };
        asked.push(request);
        rig.answer(&header, reply(MdtReply::Done, &[]));
    }
    asked
}

#[test]
fn a_close_is_kept_back_and_the_next_open_of_its_kind_asks_nobody() {
    for how in [READ, WRITE] {
        let (rig, first, _) = kept(how);
        for round in 1..=3 {
            let handle = open_again(&rig, how).unwrap();
            assert_eq!(handle, first, "the MDT has it open under this number");
            let census = rig.client.census();
            assert_eq!((census.files, census.opens_kept, census.opens_reused), (1, 0, round));
            close_here(&rig, handle);
        }
        // Two at a time are two for the MDT, and one of them is kept.
        let third = open_again(&rig, how).unwrap();
        let (fourth, _) = open(&rig, how);
        close_here(&rig, fourth);
        assert_eq!(close(&rig, third), OpenId { id: third });
    }
}

#[test]
fn one_of_each_kind_is_kept_and_neither_serves_for_the_other() {
    let (rig, writing, _) = kept(WRITE);
    let (reading, _) = open_in(&rig, READ, LockMode::Pw);
    close_here(&rig, reading);
    assert_eq!(rig.client.census().opens_kept, 2);
    assert_eq!(open_again(&rig, READ), Ok(reading));
    assert_eq!(open_again(&rig, OpenHow { read: false, append: true, ..WRITE }), Ok(writing));
    for how in [WRITE, OpenHow { exec: true, ..READ }, OpenHow { truncate: true, ..READ }] {
        let (rig, ..) = kept(READ);
        let client = rig.client.clone();
        let opening = rig.start(async move { client.open(FILE, how, CRED).await });
        let (_, request) = rig.take_mdt();
        assert!(matches!(request, MdtRequest::Open { .. }), "{how:?}: {request:?}");
        drop(opening);
    }
}

/// Whoever opens the file like this asks the MDT, and what is kept for writing is closed.
fn opens_alone(rig: &Rig, how: OpenHow, kept: u64) {
    let client = rig.client.clone();
    let opening = rig.start(async move { client.open(FILE, how, CRED).await });
    let asked = [rig.take_mdt().1, rig.take_mdt().1];
    let opens = |asked: &MdtRequest| matches!(asked, MdtRequest::Open { .. });
    let closes = |asked: &MdtRequest| matches!(asked, MdtRequest::Close { open_id, .. } if *open_id == OpenId { id: kept });
    assert!(asked.iter().any(opens) && asked.iter().any(closes), "{asked:?}");
    drop(opening);
}

#[test]
fn who_empties_the_file_has_it_open_alone() {
    let (rig, writing, _) = kept(WRITE);
    opens_alone(&rig, OpenHow { truncate: true, ..WRITE }, writing);
}

/// Under a lock for reading that came meanwhile there may be pages.
#[test]
fn an_open_for_writing_is_not_taken_over_beside_a_lock_for_reading() {
    let (rig, writing, _) = kept(WRITE);
    open_in(&rig, READ, LockMode::Pr);
    opens_alone(&rig, WRITE, writing);
}

#[test]
fn no_page_is_read_under_a_lock_for_reading_beside_an_open_that_was_taken_over() {
    let rig = Rig::with_osts(1);
    let (reading, _) = open(&rig, READ);
    rig.client.introduce(FILE);
    // There are no pages yet, so that the lock for reading stays.
    let (writing, _) = open(&rig, WRITE);
    close_here(&rig, writing);
    assert_eq!(open_again(&rig, WRITE), Ok(writing));
    // It is granted once more, and then it is all that is left.
    let (_, header) = open_in(&rig, READ, LockMode::Pr);
    rig.call_back(3, &header);
    rig.kernel_is_done();
    let asked = all_asked(&rig);
    assert!(matches!(asked[..], [MdtRequest::Cancel { .. }]), "{asked:?}");
    let client = rig.client.clone();
    let read = rig.start(async move { client.read(reading, 0, 10, BytesMut::new()).await });
    let (_, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Enqueue { .. }), "{request:?}");
    drop(read);
}

/// What was locked through an open ends with its close.
#[test]
fn who_has_locked_through_an_open_closes_it() {
    for (how, flock) in [(READ, false), (READ, true), (WRITE, false), (WRITE, true)] {
        let rig = Rig::with_osts(1);
        let (handle, _) = open(&rig, how);
        rig.client.introduce(FILE);
        let mode = FileLockMode::Read;
        let lock = FileLock { owner: 5, flock, mode, start: 0, end: FILE_LOCK_END_MAX, pid: 77 };
        let client = rig.client.clone();
        let locks = async move { client.set_file_lock(handle, lock, false, || true).await };
        let mut locking = rig.start(locks);
        let (header, request) = rig.take_mdt();
        assert!(matches!(request, MdtRequest::SetFileLock { .. }), "{request:?}");
        let body = MdtReply::FileLock { state: FileLockState::Granted, holder: None };
        rig.answer(&header, reply(body, &[]));
        assert_eq!(rig.poll(&mut locking), Some(Ok(())));
        assert_eq!(close(&rig, handle), OpenId { id: handle });
        assert_eq!((rig.client.census().opens_kept, rig.client.file_locks_held()), (0, 0));
    }
}

/// It is told by open: whoever took this one over would hear of it, or nobody.
#[test]
fn an_open_of_a_file_that_could_not_be_written_out_is_closed() {
    let rig = Rig::with_osts(1);
    rig.client.set_dirty_max(4 << 20, 4 << 20);
    let (handle, _) = open(&rig, WRITE);
    assert!(rig.client.introduce(FILE) && rig.client.keeps_writes(handle));
    let write = |offset| {
        let (client, bytes) = (rig.client.clone(), Bytes::from_static(&[7; 4096]));
        async move { client.write(handle, offset, bytes, false).await }
    };
    let mut first = rig.start(write(0));
    // That the file has objects is durable before.
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Sync { .. }), "{request:?}");
    rig.answer(&header, reply(MdtReply::Done, &[]));
    assert!(rig.poll(&mut first).is_none());
    let (header, ..) = rig.take_with_data();
    let written = OstReply::Written { len: 4096, boot_epoch: 5, granted: 8 << 20 };
    rig.answer(&header, Reply::ok(ReplyBody::Ost(written)));
    assert_eq!(rig.poll(&mut first), Some(Ok(4096)));
    // This one is kept, and fails when it is old.
    assert_eq!(rig.now(write(4096)), Ok(4096));
    rig.later(1_100_000_000);
    let (header, request) = rig.take_ost();
    assert!(matches!(request, OstRequest::Write { .. }), "{request:?}");
    rig.answer(&header, Reply::error(Errno::EIO));
    let client = rig.client.clone();
    let mut closing = rig.start(async move { client.close(handle).await });
    let (header, open_id) = loop {
        let (header, request) = rig.take_request();
        match request {
            Request::Mdt(MdtRequest::Close { open_id, .. }) => break (header, open_id),
            Request::Ost(OstRequest::GetAttr { .. }) => {
                rig.answer(&header, Reply::ok(ReplyBody::Ost(OstReply::Objects(Vec::new()))));
                assert!(rig.poll(&mut closing).is_none());
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(open_id, OpenId { id: handle });
    rig.answer(&header, reply(MdtReply::Done, &[]));
    assert_eq!(rig.poll(&mut closing), Some(Err(Errno::EIO)));
    assert_eq!(rig.client.census().opens_kept, 0);
}

#[test]
fn what_was_written_is_told_before_the_open_is_kept() {
    let (rig, first, _) = kept(WRITE);
    let handle = open_again(&rig, WRITE).unwrap();
    let client = rig.client.clone();
    let bytes = Bytes::from_static(&[7; 20]);
    let mut writing = rig.start(async move { client.write(handle, 10, bytes, false).await });
    // That the file has objects is durable before.
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Sync { .. }), "{request:?}");
    rig.answer(&header, reply(MdtReply::Done, &[]));
    assert!(rig.poll(&mut writing).is_none());
    let (header, _, request) = rig.take_with_data();
    assert!(matches!(request, Request::Ost(OstRequest::Write { .. })), "{request:?}");
    let written = OstReply::Written { len: 20, boot_epoch: 1, granted: 0 };
    rig.answer(&header, Reply::ok(ReplyBody::Ost(written)));
    assert_eq!(rig.poll(&mut writing), Some(Ok(20)));
    let client = rig.client.clone();
    let mut closing = rig.start(async move { client.close(handle).await });
    let (header, request) = rig.take_mdt();
    let MdtRequest::ReportSize { report, glimpsed: false, .. } = request else {
        panic!("{request:?}")
    };
    assert!(report.size == 30 && report.mtime.is_some());
    assert_eq!(rig.client.census().opens_kept, 0, "not before it is told");
    rig.answer(&header, reply(MdtReply::Done, &[]));
    assert_eq!(rig.poll(&mut closing), Some(Ok(())));
    assert_eq!(open_again(&rig, WRITE), Ok(first));
}

#[test]
fn who_has_made_a_file_closes_it() {
    let rig = Rig::with_osts(1);
    let client = rig.client.clone();
    let mut create =
        rig.start(async move { client.create(Fid::ROOT, b"f", 0o644, WRITE, CRED).await });
    let (header, request) = rig.take_mdt();
    assert_eq!(request, MdtRequest::GrantSeq);
    rig.answer(&header, reply(MdtReply::Sequence(Seq(FILE.seq.0)), &[]));
    assert!(rig.poll(&mut create).is_none());
    let (header, request) = rig.take_mdt();
    let MdtRequest::Create { fid, .. } = request else { panic!("{request:?}") };
    let locks = [grant(3, LockMode::Pw, DATA), grant(2, LockMode::Pr, META)];
    let locks = locks.map(|grant| Grant { fid, ..grant });
    let attr = Attr { fid, ..attr(1, 0) };
    let body = MdtReply::Created { attr, layout: layout(), existed: false, parent: None };
    rig.answer(&header, reply(body, &locks));
    let created = rig.poll(&mut create).or_else(|| {
        rig.kernel_is_done();
        rig.poll(&mut create)
    });
    let (_, opened) = created.unwrap().unwrap();
    assert!(rig.client.introduce(fid));
    close(&rig, opened.handle);
}

#[test]
fn who_does_not_hold_the_data_keeps_no_open_for_writing() {
    for mode in [LockMode::Pr, LockMode::Cw] {
        let rig = Rig::with_osts(1);
        let (first, _) = open_in(&rig, WRITE, mode);
        rig.client.introduce(FILE);
        close(&rig, first);
        assert_eq!(rig.client.census().opens_kept, 0, "{mode:?}");
    }
}

#[test]
fn who_takes_a_lock_back_has_it_closed_first() {
    for (how, lock) in [(READ, 2), (WRITE, 2), (WRITE, 3)] {
        let (rig, first, header) = kept(how);
        rig.call_back(lock, &header);
        // Before the kernel has dropped anything.
        assert_eq!(is_closed(&rig), OpenId { id: first });
        rig.kernel_is_done();
        let asked = all_asked(&rig);
        assert!(matches!(asked[..], [MdtRequest::Cancel { .. }]), "{how:?} {lock}: {asked:?}");
        assert_eq!(rig.client.census().opens_kept, 0);
        open(&rig, how);
    }
}

/// Nobody waits for the answer, so that no program hears of it.
#[test]
fn a_close_that_the_mdt_refuses_is_counted_if_it_has_the_file_open_still() {
    for (error, unclosed) in [(Errno::EIO, 1), (Errno::EBADF, 0)] {
        let (rig, first, header) = kept(WRITE);
        rig.call_back(3, &header);
        let (header, request) = rig.take_mdt();
        let MdtRequest::Close { open_id, .. } = request else { panic!("{request:?}") };
        assert_eq!(open_id, OpenId { id: first });
        rig.answer(&header, Reply::error(error));
        rig.kernel_is_done();
        let asked = all_asked(&rig);
        assert!(matches!(asked[..], [MdtRequest::Cancel { .. }]), "{asked:?}");
        let census = rig.client.census();
        assert_eq!((census.opens_kept, census.opens_unclosed), (0, unclosed), "{error}");
    }
}

#[test]
fn what_the_kernel_forgets_is_closed() {
    for how in [READ, WRITE] {
        let (rig, first, _) = kept(how);
        rig.client.forget(FILE, 1);
        rig.run();
        assert_eq!(is_closed(&rig), OpenId { id: first });
        assert_eq!(rig.client.census().opens_kept, 0);
    }
}

/// Files of which opens are kept: more than there are closes at once.
const MANY: u32 = 30;
const CLOSES_MAX: usize = 8;

/// Opens that many files, and closes them, of which the MDT does not hear.
fn many_kept() -> (Rig, Vec<Fid>) {
    many_kept_of(READ)
}

fn many_kept_of(how: OpenHow) -> (Rig, Vec<Fid>) {
    let rig = Rig::with_osts(1);
    let files: Vec<Fid> = (1..=MANY).map(|at| Fid::new(FILE.seq, at)).collect();
    for (&file, at) in files.iter().zip(1..) {
        let client = rig.client.clone();
        let mut open = rig.start(async move { client.open(file, how, CRED).await });
        let (header, _) = rig.take_mdt();
        let of = |id, mode, bits| Grant { fid: file, ..grant(id, mode, bits) };
        let attr = Attr { fid: file, ..attr(1, 10) };
        let body = MdtReply::Opened { attr, layout: layout() };
        rig.answer(
            &header,
            reply(body, &[of(2 * at, mode_of(how), DATA), of(2 * at + 1, LockMode::Pr, META)]),
        );
        let opened = rig.poll(&mut open).unwrap().unwrap().handle;
        assert!(rig.client.introduce(file), "the kernel knows {file}");
        close_here(&rig, opened);
    }
    assert_eq!(rig.client.census().opens_kept, MANY as usize);
    (rig, files)
}

#[test]
fn of_many_that_the_kernel_forgets_at_once_a_few_are_closed_at_a_time() {
    let (rig, files) = many_kept();
    let others = rig.tasks();
    for &file in &files {
        rig.client.forget(file, 1);
        rig.run();
    }
    assert_eq!(rig.tasks() - others, CLOSES_MAX, "each would be woken for every slot that is free");
    let mut closed = Vec::new();
    while let Some((header, request)) = rig.take_if_any() {
        // Locks are given back as well, when their opens are closed.
        if let Request::Mdt(MdtRequest::Close { fid, .. }) = request {
            closed.push(fid);
        }
        rig.answer(&header, reply(MdtReply::Done, &[]));
        rig.run();
    }
    assert_eq!(closed, files, "those that were forgotten first, first");
    assert_eq!((rig.client.census().opens_kept, rig.tasks()), (0, others));
    // And again, after all tasks have ended.
    let (first, header) = open(&rig, READ);
    assert!(rig.client.introduce(FILE), "the kernel knows it");
    close_here(&rig, first);
    rig.call_back(2, &header);
    rig.run();
    assert_eq!(is_closed(&rig), OpenId { id: first });
}

#[test]
fn the_close_of_a_lock_that_others_want_comes_before_those_of_what_was_forgotten() {
    let (rig, files) = many_kept();
    let (wanted, forgotten) = files.split_first().unwrap();
    assert_eq!(*wanted, FILE);
    for &file in forgotten {
        rig.client.forget(file, 1);
    }
    rig.run();
    let (header, _) = rig.take_mdt();
    rig.call_back(3, &header);
    rig.run();
    let mut asked = all_asked(&rig).into_iter();
    let is_of = |request: &MdtRequest| match request {
        MdtRequest::Close { fid, .. } | MdtRequest::Cancel { fid, .. } => fid == wanted,
        _ => false,
    };
    let first = asked.find(is_of);
    assert!(matches!(first, Some(MdtRequest::Close { .. })), "before the lock: {first:?}");
}

#[test]
fn a_lock_that_others_want_of_what_was_forgotten_is_behind_its_close() {
    let (rig, files) = many_kept();
    // The last of the queue, whose lock another client wants.
    for &file in files.iter().rev() {
        rig.client.forget(file, 1);
    }
    rig.run();
    let (header, _) = rig.take_mdt();
    rig.call_back(3, &header);
    rig.run();
    let asked = all_asked(&rig);
    let closed =
        |request: &MdtRequest| matches!(request, MdtRequest::Close { fid, .. } if *fid == FILE);
    let cancelled =
        |request: &MdtRequest| matches!(request, MdtRequest::Cancel { fid, .. } if *fid == FILE);
    let close = asked.iter().position(closed).unwrap();
    assert!(asked.iter().position(cancelled).is_none_or(|cancel| close < cancel), "{asked:?}");
    assert_eq!(asked.iter().filter(|request| closed(request)).count(), 1);
}

#[test]
fn who_leaves_closes_what_was_forgotten_and_is_kept_for_writing_still() {
    let (rig, files) = many_kept_of(WRITE);
    for &file in &files {
        rig.client.forget(file, 1);
    }
    rig.run();
    let client = rig.client.clone();
    let mut leaving = rig.start(async move { client.close_kept_writes().await });
    let (mut closed, mut has_left) = (Vec::new(), false);
    while let Some((header, request)) = rig.take_if_any() {
        if let Request::Mdt(MdtRequest::Close { fid, .. }) = request {
            closed.push(fid);
        }
        rig.answer(&header, reply(MdtReply::Done, &[]));
        has_left = has_left || rig.poll(&mut leaving).is_some();
    }
    assert!(has_left);
    closed.sort();
    assert_eq!(closed, files, "each once");
}

#[test]
fn what_was_to_be_closed_is_void_after_an_eviction() {
    let (rig, files) = many_kept();
    let others = rig.tasks();
    for &file in &files {
        rig.client.forget(file, 1);
    }
    rig.run();
    let (header, _) = rig.take_mdt();
    // Those that were under way go with the connection.
    while rig.take_if_any().is_some() {}
    rig.evict(&header);
    rig.kernel_is_done();
    for target in [Endpoint::Mgs, Endpoint::Mdt(0), Endpoint::Ost(0)] {
        rig.accept(target);
    }
    rig.run();
    assert!(rig.is_silent(), "{:?}", rig.take_if_any());
    assert_eq!((rig.client.census().opens_kept, rig.tasks()), (0, others));
}

#[test]
fn what_was_kept_open_ends_with_an_eviction() {
    for how in [READ, WRITE] {
        let (rig, _, header) = kept(how);
        rig.evict(&header);
        rig.kernel_is_done();
        for target in [Endpoint::Mgs, Endpoint::Mdt(0), Endpoint::Ost(0)] {
            rig.accept(target);
        }
        assert_eq!(rig.client.census().opens_kept, 0);
        let (handle, _) = open(&rig, how);
        let client: &Client = &rig.client;
        assert_ne!(client.still_open(handle), Err(Errno::EIO));
    }
}

#[test]
fn who_leaves_closes_what_is_kept_for_writing() {
    let (rig, first, _) = kept(WRITE);
    let client = rig.client.clone();
    let leaving = rig.start(async move { client.unmount().await });
    assert_eq!(is_closed(&rig), OpenId { id: first });
    drop(leaving);
}

fn look_up(rig: &Rig, nlink: u32) {
    let client = rig.client.clone();
    let mut looking = rig.start(async move { client.lookup(Fid::ROOT, b"name").await });
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Lookup { .. }), "{request:?}");
    let attr = Attr { nlink, ..attr(1, 10) };
    rig.answer(&header, reply(MdtReply::Inode { attr }, &[]));
    assert!(rig.poll(&mut looking).unwrap().is_ok());
}

/// A file that was found by a name of the root directory, opened and closed, and is kept.
fn kept_by_name(how: OpenHow, nlink: u32) -> (Rig, u64) {
    let rig = Rig::with_osts(1);
    rig.client.set_closes_first();
    look_up(&rig, nlink);
    let (first, _) = open(&rig, how);
    assert!(rig.client.introduce(FILE), "the kernel knows it");
    close_here(&rig, first);
    look_up(&rig, nlink);
    assert_eq!(rig.client.census().opens_kept, 1);
    (rig, first)
}

fn remove(rig: &Rig, name: &'static [u8]) -> Verb<Result<()>> {
    let client = rig.client.clone();
    rig.start(async move { client.unlink(Fid::ROOT, name, false).await })
}

fn is_removed(rig: &Rig, removing: &mut Verb<Result<()>>, nlink: u32) {
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Unlink { .. }), "{request:?}");
    let attr = Some(Attr { nlink, ..attr(2, 10) });
    rig.answer(&header, reply(MdtReply::Removed { attr, parent: None }, &[]));
    let done = rig.poll(removing).or_else(|| {
        rig.kernel_is_done();
        rig.poll(removing)
    });
    assert_eq!(done, Some(Ok(())));
}

#[test]
fn who_removes_the_last_name_has_closed_the_file_before() {
    for how in [READ, WRITE] {
        let (rig, first) = kept_by_name(how, 1);
        let mut removing = remove(&rig, b"name");
        // Both are on their way, in this order.
        assert_eq!(is_closed(&rig), OpenId { id: first });
        is_removed(&rig, &mut removing, 0);
        let census = rig.client.census();
        assert_eq!((census.opens_kept, census.opens_closed_first), (0, 1));
        assert!(all_asked(&rig).is_empty(), "there is nothing to be closed any more");
    }
}

/// One that is slow to answer is waited for: until then the MDT may have it open.
#[test]
fn a_removal_ends_with_the_close_before_it() {
    let (rig, _) = kept_by_name(READ, 1);
    let mut removing = remove(&rig, b"name");
    let (closing, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Close { .. }), "{request:?}");
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Unlink { .. }), "{request:?}");
    let attr = Some(Attr { nlink: 0, ..attr(2, 10) });
    rig.answer(&header, reply(MdtReply::Removed { attr, parent: None }, &[]));
    assert_eq!(rig.poll(&mut removing), None);
    rig.answer(&closing, reply(MdtReply::Done, &[]));
    rig.kernel_is_done();
    assert_eq!(rig.poll(&mut removing), Some(Ok(())));
}

fn renames(rig: &Rig, from: &'static [u8], to: &'static [u8]) {
    let client = rig.client.clone();
    let (from, to) = ((Fid::ROOT, from), (Fid::ROOT, to));
    let flags = RenameFlags::default();
    let mut renaming = rig.start(async move { client.rename(from, to, flags).await });
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Rename { .. }), "{request:?}");
    let (parent, new_parent) = (None, None);
    let body = MdtReply::Renamed { moved: FILE, swapped: None, replaced: None, parent, new_parent };
    rig.answer(&header, reply(body, &[]));
    let done = rig.poll(&mut renaming).or_else(|| {
        rig.kernel_is_done();
        rig.poll(&mut renaming)
    });
    assert_eq!(done, Some(Ok(())));
}

/// Asks for the file's attributes: it has one name.
fn knows(rig: &Rig) {
    let client = rig.client.clone();
    let mut asking = rig.start(async move { client.getattr(FILE).await });
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::GetAttr { .. }), "{request:?}");
    let attr = Attr { nlink: 1, ..attr(1, 10) };
    rig.answer(&header, reply(MdtReply::Inode { attr }, &[]));
    assert!(rig.poll(&mut asking).unwrap().is_ok());
}

/// As editors and `git` do: written under another name, moved to its own, and read from there.
#[test]
fn who_removes_the_name_that_a_file_was_moved_to_has_closed_it_before() {
    let rig = Rig::with_osts(1);
    rig.client.set_closes_first();
    look_up(&rig, 1);
    renames(&rig, b"name", b"new");
    let (first, _) = open(&rig, READ);
    assert!(rig.client.introduce(FILE), "the kernel knows it");
    close_here(&rig, first);
    let mut removing = remove(&rig, b"new");
    assert_eq!(is_closed(&rig), OpenId { id: first });
    is_removed(&rig, &mut removing, 0);
    assert_eq!(rig.client.census().opens_closed_first, 1);
}

#[test]
fn what_keeps_a_name_or_is_open_or_has_another_name_is_not_closed_before() {
    // It has a further name.
    let (rig, _) = kept_by_name(READ, 2);
    let mut removing = remove(&rig, b"name");
    is_removed(&rig, &mut removing, 1);
    // A program has it open: there is more to come.
    let (rig, first) = kept_by_name(READ, 1);
    let (second, _) = open(&rig, WRITE);
    let mut removing = remove(&rig, b"name");
    is_removed(&rig, &mut removing, 0);
    all_asked(&rig);
    assert_ne!(first, second);
    // Somebody else's name.
    let (rig, _) = kept_by_name(READ, 1);
    let mut removing = remove(&rig, b"other");
    is_removed(&rig, &mut removing, 1);
    assert_eq!(rig.client.census().opens_kept, 1);
    // It has another one by now, and its old name is another file's.
    let (rig, _) = kept_by_name(READ, 1);
    renames(&rig, b"name", b"other");
    knows(&rig);
    let mut removing = remove(&rig, b"name");
    is_removed(&rig, &mut removing, 1);
    assert_eq!(rig.client.census().opens_closed_first, 0);
    // It was taken over since, and closed.
    let (rig, _) = kept_by_name(READ, 1);
    let handle = open_again(&rig, READ).unwrap();
    let mut removing = remove(&rig, b"name");
    is_removed(&rig, &mut removing, 0);
    close(&rig, handle);
}

//! An MDT that has crashed: whoever has lost nothing with it goes on.

use std::sync::Arc;

use sateen_client::{KernelInval, OpenHow};
use sateen_types::{Attr, Endpoint, Errno, Fid, Layout, Seq};
use sateen_wire::codec::Wire;
use sateen_wire::{
    FILE_LOCK_END_MAX, FileLock, FileLockMode, FileLockState, Grant, Header, Ibits, LockId,
    LockMode, MdtReply, MdtRequest, Reply, ReplyBody, Request, XattrMode,
};

use crate::rig::{CRED, FILE, Rig, WRITE, attr, grant, reply};

/// The last transaction that there is.
const DURABLE: u64 = 3;

/// The file is open for writing under locks, and its attributes are known.
fn open(rig: &Rig, attr: Attr, transno: u64) -> (u64, Header) {
    let client = rig.client.clone();
    let mut open = rig.start(async move { client.open(FILE, WRITE, CRED).await });
    let header = rig.take();
    let layout = Some(Arc::new(Layout::raid0(1 << 20, vec![0]).unwrap()));
    let locks = [grant(1, LockMode::Pw, Ibits::DATA), grant(2, LockMode::Pr, Ibits::META)];
    let answer = reply(MdtReply::Opened { attr, layout }, &locks);
    rig.answer(&header, Reply { transno, ..answer });
    (rig.poll(&mut open).unwrap().unwrap().handle, header)
}

fn crashed(follows: u64) -> Reply {
    let (boot_epoch, generation, durable) = (6, 9, DURABLE);
    Reply::ok(ReplyBody::Connected { features: 0, boot_epoch, generation, follows, durable })
}

fn reconnects(rig: &Rig, says: Reply) {
    let (connect, request) = rig.take_request();
    assert!(matches!(request, Request::Connect { .. }), "{request:?}");
    rig.answer(&connect, says);
}

/// Locks and opens that are told, and which of the opens are being closed.
fn take_claim(rig: &Rig) -> (Header, Vec<u64>, Vec<bool>) {
    let (header, request) = rig.take_mdt();
    let MdtRequest::Reclaim { locks, opens, last: true, .. } = request else {
        panic!("{request:?}")
    };
    let mut locks: Vec<u64> = locks.iter().map(|held| held.id.0).collect();
    locks.sort_unstable();
    (header, locks, opens.iter().map(|open| open.closing).collect())
}

/// Something is asked, and the MDT does not know the connection.
fn asks_and_hears(rig: &Rig, says: Reply) {
    let client = rig.client.clone();
    let mut asks = rig.begin(async move { client.listxattr(FILE).await });
    assert!(rig.poll(&mut asks).is_none());
    rig.answer(&rig.take(), Reply::error(Errno::ESTALE));
    reconnects(rig, says);
}

#[test]
fn what_is_unchanged_stays_known() {
    let rig = Rig::with_osts(1);
    let before = rig.client.incarnation();
    let (handle, _) = open(&rig, attr(DURABLE, 0), DURABLE);
    asks_and_hears(&rig, crashed(5));
    let (claim, locks, opens) = take_claim(&rig);
    assert_eq!((locks, opens), (vec![1, 2], vec![false]));
    rig.answer(&claim, reply(MdtReply::Done, &[]));
    assert_eq!(rig.take().slot, 0, "what was asked is asked again");
    let client = rig.client.clone();
    assert!(rig.now(async move { client.getattr(FILE).await }).is_ok());
    assert!(rig.kernel_says(true).is_empty());
    assert_eq!(rig.client.still_open(handle), Ok(()));
    assert_eq!(rig.client.incarnation(), before);
}

#[test]
fn what_others_may_have_lost_is_forgotten_first() {
    let rig = Rig::with_osts(1);
    let (handle, _) = open(&rig, attr(DURABLE + 1, 0), 0);
    asks_and_hears(&rig, crashed(5));
    assert!(rig.is_silent(), "the kernel has to forget first");
    assert_eq!(rig.kernel_says(true), [KernelInval::Names]);
    assert!(rig.is_silent());
    assert_eq!(rig.kernel_says(true), [KernelInval::Attr(FILE.ino())]);
    let (claim, locks, _) = take_claim(&rig);
    assert_eq!(locks, [1], "the data is at the OSTs");
    rig.answer(&claim, reply(MdtReply::Done, &[]));
    rig.take();
    assert_eq!(rig.client.still_open(handle), Ok(()));
    // An older version is news.
    let client = rig.client.clone();
    let mut stat = rig.start(async move { client.getattr(FILE).await });
    let locks = [grant(3, LockMode::Pr, Ibits::META)];
    rig.answer(&rig.take(), reply(MdtReply::Inode { attr: attr(2, 77) }, &locks));
    assert_eq!(rig.poll(&mut stat).unwrap().unwrap().attr.size, 77);
}

#[test]
fn with_a_change_under_way_nothing_is_known() {
    let rig = Rig::with_osts(1);
    open(&rig, attr(DURABLE, 0), DURABLE);
    let client = rig.client.clone();
    let _change = rig.start(async move { client.removexattr(FILE, b"user.x").await });
    rig.answer(&rig.take(), Reply::error(Errno::ESTALE));
    reconnects(&rig, crashed(5));
    rig.kernel_is_done();
    let (claim, locks, _) = take_claim(&rig);
    assert_eq!(locks, [1]);
    rig.answer(&claim, reply(MdtReply::Done, &[]));
    assert!(matches!(rig.take_mdt().1, MdtRequest::RemoveXattr { .. }));
}

#[test]
fn who_may_have_lost_a_change_that_nobody_can_name_goes_on_as_another() {
    for (transno, heard, follows, is_lost) in
        [(DURABLE, 0, 5, false), (DURABLE + 1, 0, 5, false), (2, 0, 4, true), (2, 2, 4, false)]
    {
        let rig = Rig::with_osts(1);
        let before = rig.client.incarnation();
        let (handle, _) = open(&rig, attr(transno, 0), transno);
        let client = rig.client.clone();
        let mut asks = rig.start(async move { client.listxattr(FILE).await });
        let answer = Reply { last_committed: heard, ..Reply::error(Errno::EINVAL) };
        rig.answer(&rig.take(), answer);
        assert!(rig.poll(&mut asks).is_some());
        asks_and_hears(&rig, crashed(follows));
        let what = format!("{transno}, {heard} heard, behind {follows}");
        assert_eq!(rig.client.incarnation() != before, is_lost, "{what}");
        let open = rig.client.still_open(handle);
        assert_eq!(open.is_err(), is_lost, "{what}");
    }
}

/// A client that was answered for a change that is not there, and what it tells the next run first.
fn misses_a_change(rig: &Rig) -> (u64, Header) {
    let (handle, _) = open(rig, attr(DURABLE + 1, 0), DURABLE + 1);
    asks_and_hears(rig, crashed(5));
    rig.kernel_is_done();
    let (header, request) = rig.take_mdt();
    let MdtRequest::Replay { changes, last: true } = request else { panic!("{request:?}") };
    let [change] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!(change.transno, DURABLE + 1);
    let request = MdtRequest::from_bytes(&change.request);
    assert!(matches!(request, Ok(MdtRequest::Open { fid: FILE, .. })), "{request:?}");
    let answer = MdtReply::from_bytes(&change.answer);
    assert!(matches!(answer, Ok(MdtReply::Opened { .. })), "{answer:?}");
    (handle, header)
}

#[test]
fn a_change_that_is_missing_is_made_again_before_anything_is_told() {
    let rig = Rig::with_osts(1);
    let before = rig.client.incarnation();
    let (handle, replay) = misses_a_change(&rig);
    rig.answer(&replay, reply(MdtReply::Done, &[]));
    let (claim, _, opens) = take_claim(&rig);
    assert_eq!(opens, [false]);
    rig.answer(&claim, reply(MdtReply::Done, &[]));
    assert!(matches!(rig.take_mdt().1, MdtRequest::ListXattr { .. }));
    assert_eq!(rig.client.still_open(handle), Ok(()));
    assert_eq!(rig.client.incarnation(), before);
    // It is durable now: another crash has nothing to be told of.
    let client = rig.client.clone();
    let _asks = rig.start(async move { client.listxattr(FILE).await });
    rig.answer(&rig.take(), Reply::error(Errno::ESTALE));
    let (boot_epoch, generation, follows, durable) = (7, 10, 6, DURABLE);
    let says = ReplyBody::Connected { features: 0, boot_epoch, generation, follows, durable };
    reconnects(&rig, Reply::ok(says));
    rig.kernel_is_done();
    take_claim(&rig);
}

#[test]
fn a_change_that_cannot_be_made_again_is_lost_and_an_fsync_says_so() {
    let rig = Rig::with_osts(1);
    let before = rig.client.incarnation();
    let (handle, replay) = misses_a_change(&rig);
    rig.answer(&replay, Reply { last_committed: 1, ..Reply::error(Errno::ESTALE) });
    assert_ne!(rig.client.incarnation(), before);
    assert!(rig.client.still_open(handle).is_err());
}

#[test]
fn what_is_being_given_back_is_not_told() {
    let rig = Rig::with_osts(1);
    let (handle, header) = open(&rig, attr(DURABLE, 0), DURABLE);
    let client = rig.client.clone();
    let _closing = rig.start(async move { client.close(handle).await });
    let (_, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Close { .. }), "{request:?}");
    rig.call_back(2, &header);
    rig.kernel_is_done();
    let (cancel, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Cancel { id: LockId(2), .. }), "{request:?}");
    rig.answer(&cancel, Reply::error(Errno::ESTALE));
    reconnects(&rig, crashed(5));
    rig.kernel_is_done();
    let (_, locks, opens) = take_claim(&rig);
    assert_eq!((locks, opens), (vec![1], vec![true]));
}

#[test]
fn who_was_given_nothing_asks_again() {
    let rig = Rig::mounted();
    let client = rig.client.clone();
    let mut asks = rig.start(async move { client.listxattr(FILE).await });
    rig.answer(&rig.take(), Reply::error(Errno::ESTALE));
    reconnects(&rig, crashed(0));
    let again = rig.take();
    assert_eq!(again.generation, 9);
    rig.answer(&again, Reply::error(Errno::EACCES));
    assert_eq!(rig.poll(&mut asks), Some(Err(Errno::EACCES)));
}

/// What a client keeps has a limit, and nobody goes beyond it who can wait.
#[test]
fn who_has_much_that_is_not_durable_waits_for_a_commit() {
    let rig = Rig::with_osts(1);
    let value = bytes::Bytes::from(vec![7; 60_000]);
    let set = || {
        let (client, value) = (rig.client.clone(), value.clone());
        rig.start(async move { client.setxattr(FILE, b"user.x", value, XattrMode::Any).await })
    };
    let mut transno = 0;
    let (synced, mut waits) = loop {
        let mut changes = set();
        let (header, request) = rig.take_mdt();
        if let MdtRequest::Sync { upto } = request {
            assert_eq!(upto, transno);
            break (header, changes);
        }
        assert!(matches!(request, MdtRequest::SetXattr { .. }), "{request:?}");
        transno += 1;
        rig.answer(&header, Reply { transno, ..reply(MdtReply::Done, &[]) });
        rig.poll(&mut changes).unwrap().unwrap();
    };
    assert!((260..280).contains(&transno), "16 MiB: {transno}");
    assert!(rig.is_silent(), "the change waits");
    // Whoever only looks does not.
    let client = rig.client.clone();
    let mut looks = rig.start(async move { client.listxattr(FILE).await });
    rig.answer(&rig.take(), reply(MdtReply::Bytes(bytes::Bytes::new()), &[]));
    rig.poll(&mut looks).unwrap().unwrap();
    rig.answer(&synced, Reply { last_committed: transno, ..reply(MdtReply::Done, &[]) });
    assert!(rig.poll(&mut waits).is_none());
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::SetXattr { .. }), "{request:?}");
    rig.answer(&header, Reply { transno: transno + 1, ..reply(MdtReply::Done, &[]) });
    rig.poll(&mut waits).unwrap().unwrap();
}

/// A run that began after a crash has not been told of what may have been given back before it. If it
/// ends in good order before it hears of that, the next one is not told of it either.
#[test]
fn what_was_doubtful_at_a_crash_is_not_told_after_a_stop() {
    for closes in [false, true] {
        let rig = Rig::with_osts(1);
        let (handle, _) = open(&rig, attr(DURABLE, 0), DURABLE);
        let set = |mode| {
            let client = rig.client.clone();
            let (owner, flock, start, end, pid) = (5, true, 0, FILE_LOCK_END_MAX, 7);
            let lock = FileLock { owner, flock, mode, start, end, pid };
            rig.start(async move { client.set_file_lock(handle, lock, false, || true).await })
        };
        let mut write = set(FileLockMode::Write);
        let granted = MdtReply::FileLock { state: FileLockState::Granted, holder: None };
        rig.answer(&rig.take(), reply(granted, &[]));
        rig.poll(&mut write).unwrap().unwrap();
        let client = rig.client.clone();
        let _changes = if closes {
            rig.start(async move { client.close(handle).await })
        } else {
            set(FileLockMode::Read)
        };
        let told = || {
            let (header, request) = rig.take_mdt();
            let MdtRequest::Reclaim { opens, file_locks, .. } = request else {
                panic!("{request:?}")
            };
            assert_eq!(opens.iter().map(|open| open.closing).collect::<Vec<_>>(), [closes]);
            (header, file_locks.len())
        };
        rig.answer(&rig.take(), Reply::error(Errno::ESTALE));
        reconnects(&rig, crashed(5));
        let (claim, locks) = told();
        assert_eq!(locks, 0, "a flock that is changed, or closed, is gone first");
        rig.answer(&claim, reply(MdtReply::Done, &[]));
        rig.answer(&rig.take(), Reply::error(Errno::ESTALE));
        let (boot_epoch, generation, follows, durable) = (7, 10, 6, u64::MAX);
        let stopped =
            ReplyBody::Connected { features: 0, boot_epoch, generation, follows, durable };
        reconnects(&rig, Reply::ok(stopped));
        assert_eq!(told().1, 0, "another may have it");
    }
}

/// The MDT may have heard the goodbye: then others have what this client had, and the crash has taken
/// only that it is gone.
#[test]
fn who_says_goodbye_holds_nothing_any_more() {
    let rig = Rig::with_osts(1);
    open(&rig, attr(DURABLE, 0), DURABLE);
    let client = rig.client.clone();
    let mut leaving = rig.start(async move { client.unmount().await });
    let mut goodbye = None;
    while let Some((header, request)) = rig.take_if_any() {
        assert_eq!(request, Request::Disconnect);
        if header.to == Endpoint::Mdt(0) {
            goodbye = Some(header);
        } else {
            rig.answer(&header, Reply::ok(ReplyBody::Empty));
            assert!(rig.poll(&mut leaving).is_none());
        }
    }
    rig.answer(&goodbye.expect("a goodbye to the MDT"), Reply::error(Errno::ESTALE));
    reconnects(&rig, crashed(5));
    let (claim, locks, opens) = take_claim(&rig);
    assert_eq!((locks, opens), (vec![], vec![]));
    rig.answer(&claim, reply(MdtReply::Done, &[]));
    let (again, request) = rig.take_request();
    assert_eq!(request, Request::Disconnect);
    rig.answer(&again, Reply::ok(ReplyBody::Empty));
    assert!(rig.poll(&mut leaving).is_some());
}

/// What it has made is gone each time, before it hears of it: it makes another, of another FID.
#[test]
fn a_file_without_a_name_is_made_again_after_each_crash() {
    let rig = Rig::with_osts(1);
    let client = rig.client.clone();
    let mut making = rig.start(async move { client.tmpfile(Fid::ROOT, 0o600, WRITE, CRED).await });
    let (header, request) = rig.take_mdt();
    assert_eq!(request, MdtRequest::GrantSeq);
    rig.answer(&header, reply(MdtReply::Sequence(Seq(0x2_0000_0700)), &[]));
    assert!(rig.poll(&mut making).is_none());
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..10 {
        let (header, request) = rig.take_mdt();
        let MdtRequest::Tmpfile { fid, .. } = request else { panic!("{request:?}") };
        assert!(seen.insert(fid), "{fid:?} once more");
        rig.answer(&header, Reply { last_committed: 1, ..Reply::error(Errno::ESTALE) });
        assert!(rig.poll(&mut making).is_none());
    }
    // Or the directory is gone.
    while let (header, MdtRequest::Tmpfile { .. }) = rig.take_mdt() {
        rig.answer(&header, Reply { last_committed: 1, ..Reply::error(Errno::ESTALE) });
        if let Some(made) = rig.poll(&mut making) {
            assert_eq!(made.err(), Some(Errno::ESTALE));
            break;
        }
    }
}

/// It was made, and somebody has removed it since: whoever wanted to be the one that makes it has it
/// without a name, others make another.
#[test]
fn a_file_that_was_made_and_removed_before_its_client_heard_of_it_is_made_again() {
    for exclusive in [false, true] {
        let rig = Rig::with_osts(1);
        let client = rig.client.clone();
        let how = OpenHow { exclusive, ..WRITE };
        let create = async move { client.create(Fid::ROOT, b"file", 0o640, how, CRED).await };
        let mut making = rig.start(create);
        let (header, request) = rig.take_mdt();
        assert_eq!(request, MdtRequest::GrantSeq);
        rig.answer(&header, reply(MdtReply::Sequence(Seq(0x2_0000_0700)), &[]));
        assert!(rig.poll(&mut making).is_none());
        let (header, request) = rig.take_mdt();
        let MdtRequest::Create { fid: first, .. } = request else { panic!("{request:?}") };
        rig.answer(&header, Reply { last_committed: 1, ..Reply::error(Errno::ESTALE) });
        assert!(rig.poll(&mut making).is_none());
        let (header, request) = rig.take_mdt();
        let fid = match request {
            MdtRequest::Create { fid, mode: 0o100_640, .. } if !exclusive => fid,
            MdtRequest::Tmpfile { fid, mode: 0o640, linkable: false, .. } if exclusive => fid,
            other => panic!("{other:?}"),
        };
        assert_ne!(fid, first);
        let layout = Some(Arc::new(Layout::raid0(1 << 20, vec![0]).unwrap()));
        let attr = Attr { fid, nlink: u32::from(!exclusive), ..attr(1, 0) };
        let (existed, parent) = (false, None);
        let locks = [grant(1, LockMode::Pw, Ibits::DATA), grant(2, LockMode::Pr, Ibits::META)]
            .map(|grant| Grant { fid, ..grant });
        let created = MdtReply::Created { attr, layout, existed, parent };
        rig.answer(&header, reply(created, &locks));
        let (entry, opened) = rig.poll(&mut making).unwrap().unwrap();
        assert_eq!((entry.inode.unwrap().attr.fid, opened.known.attr.fid), (fid, fid));
        assert!(!exclusive || !entry.held, "it has no name");
    }
}

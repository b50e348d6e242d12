//! Targets that were stopped in good order and started again: nobody notices.

use std::sync::Arc;

use bytes::Bytes;
use sateen_types::{Endpoint, Errno, Layout, Seq};
use sateen_wire::{
    FileLock, FileLockMode, FileLockState, GivenBack, Header, HeldLock, HeldOpen, Ibits, LockId,
    LockMode, MdtReply, MdtRequest, OpenFlags, OstReply, OstRequest, Reply, ReplyBody, Request,
};

use crate::rig::{CRED, FILE, Rig, Verb, WRITE, attr, grant, reply};

const SECOND_NS: u64 = 1_000_000_000;
const META: Ibits = Ibits::META;
const DATA: Ibits = Ibits::DATA;

/// The file is open for writing under locks; its handle, and the open's header.
fn open(rig: &Rig) -> (u64, Header) {
    let client = rig.client.clone();
    let mut open = rig.start(async move { client.open(FILE, WRITE, CRED).await });
    let header = rig.take();
    let layout = Some(Arc::new(Layout::raid0(1 << 20, vec![0]).unwrap()));
    let locks = [grant(1, LockMode::Pw, DATA), grant(2, LockMode::Pr, META)];
    rig.answer(&header, reply(MdtReply::Opened { attr: attr(0, 0), layout }, &locks));
    (rig.poll(&mut open).unwrap().unwrap().handle, header)
}

fn connected(boot_epoch: u64, generation: u32, follows: u64) -> Reply {
    Reply::ok(ReplyBody::Connected {
        features: 0,
        boot_epoch,
        generation,
        follows,
        durable: u64::MAX,
    })
}

/// What a `Reclaim` tells.
#[derive(Debug, Default, PartialEq)]
struct Told {
    locks: Vec<(u64, LockMode)>,
    opens: usize,
    seqs: Vec<Seq>,
    file_locks: Vec<FileLock>,
    last: bool,
}

fn take_claim(rig: &Rig) -> (Header, Told) {
    let (header, request) = rig.take_mdt();
    let MdtRequest::Reclaim { locks, opens, seqs, file_locks, last } = request else {
        panic!("{request:?}")
    };
    assert_eq!(header.slot, 1023, "a slot of its own");
    assert!(locks.iter().all(|held: &HeldLock| held.fid == FILE));
    let write = OpenFlags { write: true, ..OpenFlags::default() };
    assert!(opens.iter().all(|open: &HeldOpen| open.fid == FILE && open.flags == write));
    let locks = locks.iter().map(|held| (held.id.0, held.mode)).collect();
    let file_locks = file_locks.iter().map(|held| held.lock).collect();
    (header, Told { locks, opens: opens.len(), seqs, file_locks, last })
}

/// The MDT does not know the connection any more, and then says this to a new one.
fn restarts(rig: &Rig, asked: &Header, says: Reply) {
    rig.answer(asked, Reply::error(Errno::ESTALE));
    reconnects(rig, says);
}

fn reconnects(rig: &Rig, says: Reply) {
    let (connect, request) = rig.take_request();
    assert!(matches!(request, Request::Connect { .. }), "{request:?}");
    rig.answer(&connect, says);
}

fn done(rig: &Rig, to: &Header) {
    rig.answer(to, reply(MdtReply::Done, &[]));
}

type Stat = Verb<sateen_types::Result<sateen_client::Known>>;

/// Somebody asks for an attribute, and the MDT has heard that.
fn ask(rig: &Rig) -> (Stat, Header) {
    let client = rig.client.clone();
    let mut stat = rig.begin(async move { client.getattr(FILE).await });
    assert!(rig.poll(&mut stat).is_none());
    (stat, rig.take())
}

fn held() -> Told {
    Told {
        locks: vec![(1, LockMode::Pw), (2, LockMode::Pr)],
        opens: 1,
        last: true,
        ..Told::default()
    }
}

#[test]
fn an_mdt_that_stopped_in_good_order_takes_everything_up() {
    let rig = Rig::with_osts(1);
    let before = rig.client.incarnation();
    let (handle, _) = open(&rig);
    let client = rig.client.clone();
    let mut asks = rig.start(async move { client.listxattr(FILE).await });
    let asked = rig.take();
    restarts(&rig, &asked, connected(6, 9, 5));
    let (claim, told) = take_claim(&rig);
    assert_eq!(told, held());
    assert_eq!((claim.generation, claim.seq), (9, 1));
    // Nothing else is asked before all others have told, and nothing listened to.
    let client = rig.client.clone();
    let mut later = rig.start(async move { client.readlink(FILE).await });
    rig.call_back(1, &claim);
    rig.answer(&asked, Reply::error(Errno::EACCES));
    assert!(rig.is_silent() && rig.poll(&mut asks).is_none());
    rig.later(SECOND_NS);
    assert_eq!(take_claim(&rig).0, claim, "it is sent again");
    done(&rig, &claim);
    let again = rig.take();
    let same = Header { generation: 9, ..asked };
    assert_eq!(again, same, "the slot goes on");
    rig.answer(&again, reply(MdtReply::Bytes(Bytes::new()), &[]));
    assert_eq!(rig.poll(&mut asks), Some(Ok(Bytes::new())));
    assert!(rig.poll(&mut later).is_none());
    rig.answer(&rig.take(), Reply::error(Errno::EINVAL));
    assert_eq!(rig.poll(&mut later).map(|l| l.err()), Some(Some(Errno::EINVAL)));
    // What stands under the locks is known without asking, and the kernel was told nothing.
    let client = rig.client.clone();
    assert!(rig.now(async move { client.getattr(FILE).await }).is_ok());
    assert_eq!(rig.client.still_open(handle), Ok(()));
    assert_eq!(rig.client.incarnation(), before);
    assert!(rig.kernel_says(true).is_empty());
    // The next time it is told from this run on.
    let client = rig.client.clone();
    let _asks = rig.start(async move { client.getxattr(FILE, b"user.a").await });
    restarts(&rig, &rig.take(), connected(7, 10, 6));
    let (claim, told) = take_claim(&rig);
    assert_eq!((claim.seq, told), (2, held()));
}

#[test]
fn what_is_being_given_back_is_told_and_given_back_afterwards() {
    let rig = Rig::with_osts(1);
    let (handle, header) = open(&rig);
    // One cancel is in a slot, and one has not got there.
    rig.call_back(2, &header);
    rig.kernel_is_done();
    let (cancel, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Cancel { id: LockId(2), .. }), "{request:?}");
    let client = rig.client.clone();
    let mut closing = rig.start(async move { client.close(handle).await });
    rig.answer(&cancel, Reply::error(Errno::ESTALE));
    rig.call_back(1, &header);
    rig.kernel_is_done();
    reconnects(&rig, connected(6, 9, 5));
    let (claim, mut told) = take_claim(&rig);
    told.locks.sort_by_key(|lock| lock.0);
    assert_eq!(told, held());
    assert!(rig.poll(&mut closing).is_none() && rig.is_silent());
    done(&rig, &claim);
    let (again, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Cancel { id: LockId(2), .. }), "{request:?}");
    assert_eq!((again.slot, again.seq), (cancel.slot, cancel.seq));
    // The answer may be that of the run before, and the lock then be held all the same.
    done(&rig, &again);
    let once_more = std::iter::from_fn(|| rig.take_if_any()).find(|(_, request)| {
        matches!(request, Request::Mdt(MdtRequest::Cancel { id: LockId(2), report: None, .. }))
    });
    assert!(once_more.is_some_and(|(header, _)| header != again));
}

#[test]
fn a_cancel_that_was_answered_gives_the_lock_back() {
    let rig = Rig::with_osts(1);
    let (_, header) = open(&rig);
    rig.call_back(2, &header);
    rig.kernel_is_done();
    done(&rig, &rig.take());
    let (_asks, asked) = {
        let client = rig.client.clone();
        let verb = rig.start(async move { client.listxattr(FILE).await });
        (verb, rig.take())
    };
    restarts(&rig, &asked, connected(6, 9, 5));
    assert_eq!(take_claim(&rig).1.locks, [(1, LockMode::Pw)]);
}

#[test]
fn programs_locks_and_sequences_are_told() {
    let rig = Rig::mounted();
    let (handle, _) = open(&rig);
    let client = rig.client.clone();
    let lock =
        FileLock { owner: 5, flock: false, mode: FileLockMode::Write, start: 3, end: 9, pid: 7 };
    let mut locking =
        rig.start(async move { client.set_file_lock(handle, lock, false, || true).await });
    let granted = MdtReply::FileLock { state: FileLockState::Granted, holder: None };
    rig.answer(&rig.take(), reply(granted, &[]));
    assert_eq!(rig.poll(&mut locking), Some(Ok(())));
    let client = rig.client.clone();
    let mut making = rig.start(async move { client.mknod(FILE, b"x", 0o644, 0, b"", CRED).await });
    rig.answer(&rig.take(), reply(MdtReply::Sequence(FILE.seq), &[]));
    assert!(rig.poll(&mut making).is_none());
    let (made, request) = rig.take_mdt();
    let MdtRequest::Create { fid, .. } = request else { panic!("{request:?}") };
    assert_eq!(fid.seq, FILE.seq);
    restarts(&rig, &made, connected(6, 9, 5));
    let (_, told) = take_claim(&rig);
    assert_eq!((told.seqs, told.file_locks), (vec![FILE.seq], vec![lock]));
}

#[test]
fn a_restart_in_the_middle_begins_it_anew() {
    let rig = Rig::mounted();
    open(&rig);
    let (_asks, asked) = {
        let client = rig.client.clone();
        let verb = rig.start(async move { client.listxattr(FILE).await });
        (verb, rig.take())
    };
    restarts(&rig, &asked, connected(6, 9, 5));
    let (claim, _) = take_claim(&rig);
    restarts(&rig, &claim, connected(7, 10, 6));
    // What the run in between was told counts for nothing.
    let (again, told) = take_claim(&rig);
    assert_eq!((again.seq, again.generation, told), (claim.seq, 10, held()));
    done(&rig, &again);
    assert_eq!(rig.take(), Header { generation: 10, ..asked });
}

#[test]
fn what_cannot_be_taken_up_is_lost_like_with_an_eviction() {
    let rig = Rig::mounted();
    let before = rig.client.incarnation();
    let (handle, _) = open(&rig);
    let client = rig.client.clone();
    let mut asks = rig.start(async move { client.listxattr(FILE).await });
    let asked = rig.take();
    restarts(&rig, &asked, connected(6, 9, 5));
    let refused = Reply { last_committed: 7, ..Reply::error(Errno::ESTALE) };
    rig.answer(&take_claim(&rig).0, refused);
    assert_eq!(rig.poll(&mut asks).map(|asks| asks.err()), Some(Some(Errno::EIO)));
    assert_ne!(rig.client.incarnation(), before);
    assert_eq!(rig.client.still_open(handle), Err(Errno::EIO));
}

#[test]
fn an_mdt_that_was_not_stopped_in_good_order_has_forgotten_everything() {
    let rig = Rig::mounted();
    let before = rig.client.incarnation();
    let (handle, _) = open(&rig);
    let client = rig.client.clone();
    let mut asks = rig.start(async move { client.listxattr(FILE).await });
    let asked = rig.take();
    restarts(&rig, &asked, connected(6, 9, 0));
    assert_eq!(rig.poll(&mut asks).map(|asks| asks.err()), Some(Some(Errno::EIO)));
    assert_eq!(rig.client.still_open(handle), Err(Errno::EIO));
    assert!(rig.is_silent(), "the kernel has to forget first");
    rig.kernel_is_done();
    reconnects(&rig, connected(6, 10, 0));
    let (_, stat) = ask(&rig);
    assert_eq!((stat.generation, stat.client), (10, before));
}

#[test]
fn what_was_written_before_an_ost_was_stopped_is_durable() {
    for follows in [5, 0] {
        let rig = Rig::with_osts(1);
        let (handle, _) = open(&rig);
        let write = |boot_epoch, restart: Option<Reply>| {
            let (client, data) = (rig.client.clone(), Bytes::from_static(b"0123456789"));
            let mut writing = rig.start(async move { client.write(handle, 0, data, false).await });
            let mut header = rig.take();
            if let Some(says) = restart {
                rig.answer(&header, Reply::error(Errno::ESTALE));
                reconnects(&rig, says);
                header = rig.take();
            }
            let written = OstReply::Written { len: 10, boot_epoch, granted: 0 };
            rig.answer(&header, Reply::ok(ReplyBody::Ost(written)));
            assert_eq!(rig.poll(&mut writing), Some(Ok(10)));
        };
        write(5, None);
        write(6, Some(connected(6, 9, follows)));
        let client = rig.client.clone();
        let mut sync = rig.start(async move { client.fsync_file(handle).await });
        while let Some((header, request)) = rig.take_if_any() {
            let body = match request {
                Request::Ost(OstRequest::Sync { boot_epoch, .. }) => {
                    assert_eq!(boot_epoch, 6);
                    ReplyBody::Ost(OstReply::Done)
                }
                _ => ReplyBody::Mdt(MdtReply::Done),
            };
            rig.answer(&header, Reply::ok(body));
            if let Some(synced) = rig.poll(&mut sync) {
                assert_eq!(synced.err(), (follows == 0).then_some(Errno::EIO));
            }
        }
        assert_eq!(rig.client.imports().len(), 3, "{:?}", Endpoint::Ost(0));
    }
}

/// Asked of the run before, and answered by the next one.
#[test]
fn a_sync_that_is_under_way_asks_nothing_of_the_run_that_is_there_now() {
    let rig = Rig::with_osts(1);
    let (handle, _) = open(&rig);
    let (client, data) = (rig.client.clone(), Bytes::from_static(b"0123456789"));
    let mut writing = rig.start(async move { client.write(handle, 0, data, false).await });
    let written = OstReply::Written { len: 10, boot_epoch: 5, granted: 0 };
    rig.answer(&rig.take(), Reply::ok(ReplyBody::Ost(written)));
    assert_eq!(rig.poll(&mut writing), Some(Ok(10)));
    let client = rig.client.clone();
    let _sync = rig.start(async move { client.fsync_file(handle).await });
    let sent = std::iter::from_fn(|| rig.take_if_any());
    let (sync, _) = sent
        .filter(|(_, request)| matches!(request, Request::Ost(_)))
        .last()
        .expect("the object is synced");
    rig.answer(&sync, Reply::error(Errno::ESTALE));
    reconnects(&rig, connected(6, 9, 5));
    let (_, request) = rig.take_ost();
    assert!(matches!(request, OstRequest::Sync { boot_epoch: 6, .. }), "{request:?}");
}

/// Of those beside the first the MDT cannot say whether it has executed that: others may have them.
#[test]
fn what_is_given_back_beside_another_is_not_told() {
    for durable in [u64::MAX, 5] {
        let rig = Rig::with_osts(1);
        let (handle, _) = open(&rig);
        let client = rig.client.clone();
        let mut closing = rig.start(async move { client.close(handle).await });
        let (close, request) = rig.take_mdt();
        assert!(matches!(request, MdtRequest::Close { .. }), "{request:?}");
        done(&rig, &close);
        assert_eq!(rig.poll(&mut closing), Some(Ok(())));
        drop(closing);
        rig.run();
        let (cancel, request) = rig.take_mdt();
        let MdtRequest::Cancel { id, report: None, more, .. } = &request else {
            panic!("{request:?}")
        };
        assert_eq!(*id, LockId(1), "nobody needs the inode any more");
        assert_eq!(more[..], [GivenBack { fid: FILE, id: LockId(2) }]);
        rig.answer(&cancel, Reply::error(Errno::ESTALE));
        let says =
            ReplyBody::Connected { features: 0, boot_epoch: 6, generation: 9, follows: 5, durable };
        reconnects(&rig, Reply::ok(says));
        rig.kernel_is_done();
        let (claim, told) = take_claim(&rig);
        // A run that was stopped knows of the first what it has executed, one that has crashed of none.
        let locks = if durable == u64::MAX { vec![(1, LockMode::Pw)] } else { vec![] };
        assert_eq!(told, Told { locks, last: true, ..Told::default() });
        done(&rig, &claim);
        let (again, request) = rig.take_mdt();
        assert!(
            matches!(&request, MdtRequest::Cancel { more, .. } if more.len() == 1),
            "{request:?}"
        );
        assert_eq!((again.slot, again.seq), (cancel.slot, cancel.seq));
        done(&rig, &again);
        while let Some((header, request)) = rig.take_if_any() {
            assert!(matches!(request, Request::Mdt(MdtRequest::Cancel { .. })), "{request:?}");
            done(&rig, &header);
        }
        assert_eq!(rig.client.census().locks, 0);
    }
}

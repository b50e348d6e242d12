//! A client that was thrown out: what was going on fails, and then it goes on as another.

use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use std::task::Wake;

use sateen_client::{Client, KernelInval};
use sateen_types::{ClientId, Endpoint, Errno, Layout, Nid, Seq};
use sateen_wire::{
    Header, Ibits, LockMode, MdtReply, MdtRequest, OstReply, OstRequest, Reply, ReplyBody, Request,
    TargetInfo,
};

use crate::rig::{CRED, FILE, Rig, WRITE, attr, grant, reply};

const META: Ibits = Ibits::META;
const DATA: Ibits = Ibits::DATA;
const TARGETS: [Endpoint; 3] = [Endpoint::Mgs, Endpoint::Mdt(0), Endpoint::Ost(0)];

/// The file is open for writing under a lock for it; the handle, and the open's header.
fn open(rig: &Rig) -> (u64, Header) {
    open_on(rig, 0)
}

/// The same, on this OST.
fn open_on(rig: &Rig, ost: u32) -> (u64, Header) {
    let client = rig.client.clone();
    let mut open = rig.start(async move { client.open(FILE, WRITE, CRED).await });
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Open { .. }), "{request:?}");
    opened(rig, &header, ost);
    (rig.poll(&mut open).unwrap().unwrap().handle, header)
}

/// The MDT grants an open, and locks with it.
fn opened(rig: &Rig, header: &Header, ost: u32) {
    let layout = Some(Arc::new(Layout::raid0(1 << 20, vec![ost]).unwrap()));
    let locks = [grant(1, LockMode::Pw, DATA), grant(2, LockMode::Pr, META)];
    // Nothing has to be durable before it is written to.
    let attr = attr(0, 0);
    rig.answer(header, reply(MdtReply::Opened { attr, layout }, &locks));
}

/// Ten bytes are written.
fn write(rig: &Rig, handle: u64) {
    let client = rig.client.clone();
    let bytes = Bytes::from_static(b"0123456789");
    let mut writing = rig.start(async move { client.write(handle, 0, bytes, false).await });
    let (header, request) = rig.take_request();
    assert!(matches!(request, Request::Ost(OstRequest::Write { .. })), "{request:?}");
    let written = OstReply::Written { len: 10, boot_epoch: 5, granted: 0 };
    rig.answer(&header, Reply::ok(ReplyBody::Ost(written)));
    assert_eq!(rig.poll(&mut writing), Some(Ok(10)));
}

/// The client connects to all targets as somebody new.
fn comes_back(rig: &Rig, before: ClientId) -> ClientId {
    let now = rig.client.incarnation();
    assert_ne!(now, before, "the old one is refused for ever");
    assert!(rig.is_silent(), "the kernel believes things that are not so any more");
    rig.kernel_is_done();
    TARGETS.iter().for_each(|target| rig.accept(*target));
    now
}

fn stat(rig: &Rig) -> Header {
    let client = rig.client.clone();
    let mut stat = rig.start(async move { client.getattr(FILE).await });
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::GetAttr { .. }), "nothing is cached: {request:?}");
    rig.answer(&header, reply(MdtReply::Inode { attr: attr(9, 10) }, &[]));
    assert_eq!(rig.poll(&mut stat).unwrap().unwrap().attr.version, 9);
    header
}

#[test]
fn an_evicted_client_goes_on_as_another() {
    let rig = Rig::with_osts(1);
    let before = rig.client.incarnation();
    let (_, header) = open(&rig);
    rig.evict(&header);
    let now = comes_back(&rig, before);
    let header = stat(&rig);
    assert_eq!((header.client, header.from), (now, Endpoint::Client(before)));
    assert_eq!((header.seq, header.slot), (1, header.slot), "slots begin anew");
    // What was said to the old one is not for the new one.
    rig.evict(&Header { client: before, ..header });
    rig.call_back(1, &Header { client: before, ..header });
    assert!(rig.is_silent());
    assert_eq!(rig.client.incarnation(), now);
}

#[test]
fn a_refused_connection_tells_of_an_eviction_too() {
    let rig = Rig::with_osts(1);
    let before = rig.client.incarnation();
    let client = rig.client.clone();
    let mut asks = rig.start(async move { client.getattr(FILE).await });
    let (header, _) = rig.take_mdt();
    // The MDT has restarted: it knows nobody, and that this one was there before.
    rig.answer(&header, Reply::error(Errno::ESTALE));
    let (connect, request) = rig.take_request();
    assert!(matches!(request, Request::Connect { .. }));
    assert_eq!(connect.client, before);
    assert!(rig.poll(&mut asks).is_none(), "it is not known yet what that means");
    rig.answer(&connect, Reply::error(Errno::ESTALE));
    assert!(rig.poll(&mut asks).unwrap().is_err_and(|errno| errno == Errno::EIO));
    comes_back(&rig, before);
    stat(&rig);
}

#[test]
fn what_is_in_flight_fails_and_is_not_done_by_the_successor() {
    let rig = Rig::with_osts(1);
    let before = rig.client.incarnation();
    let (handle, header) = open(&rig);
    let client = rig.client.clone();
    let bytes = Bytes::from_static(b"0123456789");
    let mut writing = rig.start(async move { client.write(handle, 0, bytes, false).await });
    rig.take();
    let client = rig.client.clone();
    let mut asks = rig.start(async move { client.listxattr(FILE).await });
    rig.take();
    rig.evict(&header);
    assert_eq!(rig.poll(&mut writing), Some(Err(Errno::EIO)));
    assert_eq!(rig.poll(&mut asks), Some(Err(Errno::EIO)));
    comes_back(&rig, before);
    assert!(rig.is_silent());
}

/// Learns of an OST as soon as it is woken.
struct Learner(Arc<Client>);

impl Wake for Learner {
    fn wake(self: Arc<Self>) {
        let target = Endpoint::Ost(7);
        self.0.learn(&[TargetInfo { target, nids: Nid::Lo.into(), inactive: false }]);
    }
}

#[test]
fn an_ost_that_is_learned_of_meanwhile_is_of_the_new_era() {
    let rig = Rig::with_osts(1);
    let before = rig.client.incarnation();
    let client = rig.client.clone();
    let mut asks = rig.begin(async move { client.listxattr(FILE).await });
    assert!(rig.poll_for(&mut asks, Arc::new(Learner(rig.client.clone()))).is_none());
    let asked = rig.take();
    rig.evict(&asked);
    rig.accept(Endpoint::Ost(7));
    comes_back(&rig, before);
    let (handle, _) = open_on(&rig, 7);
    write(&rig, handle);
}

#[test]
fn a_write_that_waits_for_the_connection_goes_with_its_lock() {
    let rig = Rig::with_osts(1);
    let before = rig.client.incarnation();
    let (handle, header) = open(&rig);
    // The OST is lost first: the write waits until it is there again.
    write(&rig, handle);
    let client = rig.client.clone();
    let mut seek = rig.start(async move { client.statfs().await });
    let lost = loop {
        let header = rig.take();
        if header.to == Endpoint::Ost(0) {
            break header;
        }
        rig.answer(&header, Reply::error(Errno::EIO));
        assert!(rig.poll(&mut seek).is_none());
    };
    rig.answer(&lost, Reply::error(Errno::ESTALE));
    assert!(rig.poll(&mut seek).is_none(), "it is asked again on the next connection");
    let connect = rig.take();
    assert_eq!(connect.to, Endpoint::Ost(0));
    let client = rig.client.clone();
    let bytes = Bytes::from_static(b"too late");
    let mut writing = rig.start(async move { client.write(handle, 0, bytes, false).await });
    rig.evict(&header);
    assert_eq!(rig.poll(&mut writing), Some(Err(Errno::EIO)));
    comes_back(&rig, before);
    assert!(rig.is_silent(), "somebody else may hold the lock by now");
}

#[test]
fn what_was_open_is_lost_and_says_so() {
    let rig = Rig::with_osts(1);
    let before = rig.client.incarnation();
    let (handle, header) = open(&rig);
    write(&rig, handle);
    rig.evict(&header);
    comes_back(&rig, before);
    let client = rig.client.clone();
    let calls = rig.now(async move {
        let read = client.read(handle, 0, 10, BytesMut::new()).await.map(|bytes| bytes.len());
        let wrote = client.write(handle, 0, Bytes::from_static(b"x"), false).await;
        (read, wrote, client.close(handle).await, client.close(handle).await)
    });
    let eio = Errno::EIO;
    let gone = Err(Errno::EBADF);
    let all = (Err(eio), Err(eio), Err(eio), gone);
    assert_eq!(calls, all);
    // Opened anew it works.
    let (handle, _) = open(&rig);
    write(&rig, handle);
}

#[test]
fn another_mdt_that_restarts_takes_no_open_away() {
    let rig = Rig::with(2, 1);
    let client = rig.client.clone();
    let mut open = rig.start(async move { client.open(FILE, WRITE, CRED).await });
    let (header, _) = rig.take_mdt();
    rig.answer(&Header { to: Endpoint::Mdt(1), ..header }, Reply::error(Errno::ESTALE));
    // It has given nothing, and there is nothing to be forgotten.
    rig.accept(Endpoint::Mdt(1));
    opened(&rig, &header, 0);
    let handle = rig.poll(&mut open).unwrap().unwrap().handle;
    write(&rig, handle);
}

#[test]
fn a_loss_is_looked_into_once_by_whoever_syncs_first() {
    for told in [true, false] {
        let rig = Rig::with_osts(1);
        let before = rig.client.incarnation();
        let (old, header) = open(&rig);
        write(&rig, old);
        rig.evict(&header);
        comes_back(&rig, before);
        if told {
            let client = rig.client.clone();
            let mut sync = rig.start(async move { client.fsync_file(old).await });
            let (header, request) = rig.take_request();
            let epoch = |request| match request {
                Request::Ost(OstRequest::Sync { boot_epoch, .. }) => boot_epoch,
                other => panic!("{other:?}"),
            };
            assert_eq!(epoch(request), 5);
            rig.answer(&header, Reply::ok(ReplyBody::Ost(OstReply::Done)));
            assert_eq!(rig.poll(&mut sync), Some(Err(Errno::EIO)));
        }
        let (new, _) = open(&rig);
        let client = rig.client.clone();
        let mut sync = rig.start(async move { client.fsync_file(new).await });
        let (header, _) = rig.take_mdt();
        rig.answer(&header, reply(MdtReply::Inode { attr: attr(9, 10) }, &[]));
        assert!(rig.poll(&mut sync).is_none());
        let mut epochs = Vec::new();
        while let Some((header, Request::Ost(request))) = rig.take_if_any() {
            let OstRequest::Sync { boot_epoch, .. } = request else { panic!("{request:?}") };
            epochs.push(boot_epoch);
            rig.answer(&header, Reply::ok(ReplyBody::Ost(OstReply::Done)));
        }
        // The epoch says whether the OST has restarted since, and lost it.
        assert_eq!(epochs.contains(&5), !told, "{epochs:?}");
    }
}

#[test]
fn a_close_has_nothing_to_tell_of_what_was_saved() {
    let rig = Rig::with_osts(1);
    let before = rig.client.incarnation();
    let (handle, header) = open(&rig);
    rig.evict(&header);
    comes_back(&rig, before);
    let client = rig.client.clone();
    assert_eq!(rig.now(async move { client.close(handle).await }), Ok(()));
}

#[test]
fn an_fsync_does_not_answer_for_what_a_restart_has_lost() {
    let rig = Rig::with_osts(1);
    let before = rig.client.incarnation();
    let (handle, header) = open(&rig);
    rig.evict(&header);
    comes_back(&rig, before);
    let client = rig.client.clone();
    assert_eq!(rig.now(async move { client.fsync_file(handle).await }), Err(Errno::EIO));
    // A directory, or whatever is synced by its name.
    let client = rig.client.clone();
    let mut sync = rig.start(async move { client.fsync(FILE).await });
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::GetAttr { .. }), "{request:?}");
    let gone = Reply { last_committed: 1, ..Reply::error(Errno::ESTALE) };
    rig.answer(&header, gone);
    assert_eq!(rig.poll(&mut sync), Some(Err(Errno::EIO)));
}

#[test]
fn a_sequence_granted_to_the_old_one_is_not_used() {
    let rig = Rig::with_osts(1);
    let before = rig.client.incarnation();
    let (_, header) = open(&rig);
    let client = rig.client.clone();
    let make = |client: Arc<Client>| async move {
        client.mknod(sateen_types::Fid::ROOT, b"dir", 0o040_755, 0, b"", CRED).await.map(|_| ())
    };
    let mut first = rig.start(make(client));
    let (asked, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::GrantSeq), "{request:?}");
    rig.answer(&asked, reply(MdtReply::Sequence(Seq(0x2_0000_0500)), &[]));
    rig.evict(&header);
    assert_eq!(rig.poll(&mut first), Some(Err(Errno::EIO)));
    comes_back(&rig, before);
    let mut second = rig.start(make(rig.client.clone()));
    assert!(rig.poll(&mut second).is_none());
    let (_, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::GrantSeq), "{request:?}");
}

#[test]
fn a_size_that_is_never_settled_is_given_up_at_last() {
    let rig = Rig::with_osts(1);
    let client = rig.client.clone();
    let mut asks = rig.start(async move { client.getattr(FILE).await });
    let mut version = 1;
    let end = loop {
        if let Some(end) = rig.poll(&mut asks) {
            break end;
        }
        if rig.is_silent() {
            rig.time_passes();
            continue;
        }
        let (header, request) = rig.take_mdt();
        // Whatever is reported, the file has changed once more.
        let body = match request {
            MdtRequest::GetAttr { .. } => {
                version += 1;
                MdtReply::Inode {
                    attr: sateen_types::Attr { size_stale: true, ..attr(version, 0) },
                }
            }
            MdtRequest::GetStripe { .. } => MdtReply::Striped {
                policy: None,
                layout: None,
                default: sateen_types::StripePolicy::DEFAULT,
            },
            MdtRequest::ReportSize { .. } => MdtReply::Done,
            other => panic!("{other:?}"),
        };
        rig.answer(&header, reply(body, &[]));
        assert!(version < 100_000, "it never ends");
    };
    assert!(end.is_err_and(|errno| errno == Errno::EIO));
}

/// The MDT has restarted meanwhile, and may have given the number of the attributes to a change that
/// the size was not looked up after.
#[test]
fn a_size_looked_up_before_the_restart_is_not_told_after_it() {
    let rig = Rig::with_osts(1);
    let before = rig.client.incarnation();
    let client = rig.client.clone();
    let mut asks = rig.start(async move { client.getattr(FILE).await });
    let (header, _) = rig.take_mdt();
    let stale = sateen_types::Attr { size_stale: true, ..attr(7, 0) };
    rig.answer(&header, reply(MdtReply::Inode { attr: stale }, &[]));
    assert!(rig.poll(&mut asks).is_none());
    let (stripe, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::GetStripe { .. }), "{request:?}");
    let layout = Some(Arc::new(Layout::raid0(1 << 20, vec![0]).unwrap()));
    rig.answer(
        &stripe,
        reply(
            MdtReply::Striped {
                policy: None,
                layout,
                default: sateen_types::StripePolicy::DEFAULT,
            },
            &[],
        ),
    );
    assert!(rig.poll(&mut asks).is_none());
    let (glimpse, request) = rig.take_ost();
    assert!(matches!(request, OstRequest::GetAttr { .. }), "{request:?}");
    rig.answer(&glimpse, Reply::ok(ReplyBody::Ost(OstReply::Objects(Vec::new()))));
    // Nobody has looked at the answer yet.
    rig.evict(&header);
    comes_back(&rig, before);
    assert!(rig.poll(&mut asks).is_none());
    let (again, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::GetAttr { .. }), "{request:?}");
    rig.answer(&again, reply(MdtReply::Inode { attr: attr(8, 10) }, &[]));
    let known = rig.poll(&mut asks).unwrap().unwrap();
    assert_eq!((known.attr.version, known.attr.size), (8, 10));
}

/// An fsync, answered by all as if they had nothing to say; what it says.
fn fsync(rig: &Rig) -> Result<(), Errno> {
    let client = rig.client.clone();
    let mut sync = rig.start(async move { client.fsync(FILE).await });
    loop {
        if let Some(said) = rig.poll(&mut sync) {
            return said;
        }
        let (header, request) = rig.take_request();
        let body = match request {
            Request::Mdt(MdtRequest::Sync { .. }) => ReplyBody::Mdt(MdtReply::Done),
            Request::Mdt(MdtRequest::GetAttr { .. }) => {
                ReplyBody::Mdt(MdtReply::Inode { attr: attr(9, 0) })
            }
            Request::Mdt(MdtRequest::GetStripe { .. }) => ReplyBody::Mdt(MdtReply::Striped {
                layout: None,
                policy: None,
                default: sateen_types::StripePolicy::DEFAULT,
            }),
            Request::Ost(_) => ReplyBody::Ost(OstReply::Done),
            other => panic!("{other:?}"),
        };
        rig.answer(&header, Reply::ok(body));
    }
}

#[test]
fn one_fsync_tells_of_lost_data_and_of_lost_changes() {
    let rig = Rig::with_osts(1);
    // Whoever was told of both did not hear it.
    rig.client.not_told(FILE);
    assert_eq!(fsync(&rig), Err(Errno::EIO));
    assert_eq!(fsync(&rig), Ok(()));
}

/// An answer on its way to the kernel makes it know an inode, and believe attributes that stood
/// under a lock that is lost by then.
#[test]
fn a_kernel_that_does_not_know_an_inode_yet_is_told_again() {
    let rig = Rig::with_osts(1);
    let before = rig.client.incarnation();
    let (_, header) = open(&rig);
    rig.client.introduce(FILE);
    rig.evict(&header);
    assert_eq!(rig.kernel_says(true), [KernelInval::Names]);
    let attr = [KernelInval::Attr(FILE.ino())];
    for _ in 0..3 {
        assert_eq!(rig.kernel_says(false), attr);
        assert!(rig.is_silent());
        rig.last_wakes();
    }
    // Now it has the answer.
    assert_eq!(rig.kernel_says(true), attr);
    assert!(rig.is_silent());
    comes_back(&rig, before);
}

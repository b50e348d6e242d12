//! What a client keeps of files that the kernel has forgotten: nothing, or what it needs for an
//! fsync that may still come.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use sateen_client::{Census, Client, OpenHow};
use sateen_types::{Attr, Endpoint, Errno, Falloc, Fid, Layout, ObjectId, Result};
use sateen_wire::{
    Grant, Header, Ibits, LockId, LockMode, MdtReply, MdtRequest, ObjectAttr, OstReply, OstRequest,
    Reply, ReplyBody, Request,
};

use crate::rig::{CRED, FILE, Rig, WRITE, attr, reply};

const STRIPE: u64 = 64 << 10;
/// The OSTs' boot epoch.
const EPOCH: u64 = 5;
const NOTHING: Census = Census {
    inodes: 0,
    locks: 0,
    files: 0,
    unsynced: 0,
    lost: 0,
    dirty_bytes: 0,
    opens_kept: 0,
    opens_reused: 0,
    opens_closed_first: 0,
    opens_unclosed: 0,
    kept_in_parts: 0,
};
/// The root stays.
const ROOT_ONLY: Census = Census { inodes: 1, ..NOTHING };

/// The targets: they know names, grant every lock, and remember what they were asked.
struct Targets {
    rig: Rig,
    stripes: u32,
    names: RefCell<BTreeMap<Vec<u8>, Fid>>,
    locks: RefCell<u64>,
    /// Which objects were synced, with the epoch named.
    synced: RefCell<Vec<(u32, ObjectId, u64)>>,
    cancels: RefCell<Vec<MdtRequest>>,
}

impl Targets {
    fn new(stripes: u32) -> Targets {
        Targets {
            rig: Rig::with_osts(2),
            stripes,
            names: RefCell::default(),
            locks: RefCell::new(0),
            synced: RefCell::default(),
            cancels: RefCell::default(),
        }
    }

    fn layout(&self) -> Option<Arc<Layout>> {
        let osts = (0..self.stripes).map(|stripe| stripe % 2).collect();
        Some(Arc::new(Layout::raid0(STRIPE as u32, osts).unwrap()))
    }

    fn grants(&self, fid: Fid) -> [Grant; 2] {
        let mut locks = self.locks.borrow_mut();
        *locks += 2;
        let grant = |id, mode, bits| Grant { id: LockId(id), fid, mode, bits };
        let (data, meta) = (Ibits::DATA, Ibits::META);
        [grant(*locks, LockMode::Pw, data), grant(*locks + 1, LockMode::Pr, meta)]
    }

    fn mdt(&self, request: MdtRequest) -> Reply {
        let attr = |fid: Fid| Attr { fid, ..attr(0, 0) };
        match request {
            MdtRequest::GrantSeq => reply(MdtReply::Sequence(FILE.seq), &[]),
            MdtRequest::Create { name, fid, .. } => {
                self.names.borrow_mut().insert(name.as_bytes().to_vec(), fid);
                let layout = self.layout();
                let body =
                    MdtReply::Created { attr: attr(fid), layout, existed: false, parent: None };
                reply(body, &self.grants(fid))
            }
            MdtRequest::Lookup { name, .. } => {
                let fid = self.names.borrow().get(name.as_bytes()).copied().unwrap();
                reply(MdtReply::Inode { attr: attr(fid) }, &self.grants(fid))
            }
            MdtRequest::GetAttr { fid, .. } => reply(MdtReply::Inode { attr: attr(fid) }, &[]),
            MdtRequest::GetStripe { .. } => reply(
                MdtReply::Striped {
                    layout: self.layout(),
                    policy: None,
                    default: sateen_types::StripePolicy::DEFAULT,
                },
                &[],
            ),
            MdtRequest::Open { fid, .. } => {
                let body = MdtReply::Opened { attr: attr(fid), layout: self.layout() };
                reply(body, &self.grants(fid))
            }
            MdtRequest::Unlink { name, .. } => {
                let fid = self.names.borrow_mut().remove(name.as_bytes()).unwrap();
                let gone = Attr { nlink: 0, ..attr(fid) };
                reply(MdtReply::Removed { attr: Some(gone), parent: None }, &[])
            }
            MdtRequest::Cancel { .. } => {
                self.cancels.borrow_mut().push(request);
                reply(MdtReply::Done, &[])
            }
            MdtRequest::Close { .. } | MdtRequest::Sync { .. } | MdtRequest::ReportSize { .. } => {
                reply(MdtReply::Done, &[])
            }
            other => panic!("{other:?}"),
        }
    }

    fn ost(&self, index: u32, request: OstRequest) -> Reply {
        let body = match request {
            OstRequest::Write { .. } => {
                OstReply::Written { len: 1, boot_epoch: EPOCH, granted: 1 << 30 }
            }
            OstRequest::Sync { objects, boot_epoch } => {
                let objects = objects.into_iter().map(|object| (index, object, boot_epoch));
                self.synced.borrow_mut().extend(objects);
                OstReply::Done
            }
            OstRequest::Allocate { .. } => OstReply::Done,
            OstRequest::GetAttr { objects } => {
                let attr = |object| ObjectAttr {
                    object,
                    size: STRIPE,
                    blocks: STRIPE / 512,
                    ..ObjectAttr::default()
                };
                OstReply::Objects(objects.into_iter().map(attr).collect())
            }
            other => panic!("{other:?}"),
        };
        Reply::ok(ReplyBody::Ost(body))
    }

    /// What the target says to a request.
    fn reply_to(&self, header: &Header, request: Request) -> Reply {
        match (header.to, request) {
            (_, Request::Mdt(request)) => self.mdt(request),
            (Endpoint::Ost(index), Request::Ost(request)) => self.ost(index, request),
            other => panic!("{other:?}"),
        }
    }

    /// Answers all that was asked.
    fn serve(&self) {
        while let Some((header, request)) = self.rig.take_if_any() {
            let reply = self.reply_to(&header, request);
            self.rig.answer(&header, reply);
        }
    }

    /// Runs a verb to its end.
    fn run<T, F>(&self, verb: impl FnOnce(Arc<Client>) -> F) -> T
    where
        F: Future<Output = T> + 'static,
    {
        let mut verb = self.rig.begin(verb(self.rig.client.clone()));
        for _ in 0..100_000 {
            if let Some(value) = self.rig.poll(&mut verb) {
                self.serve();
                return value;
            }
            self.serve();
        }
        panic!("it never ends")
    }

    /// A new file that the kernel knows, with its handle.
    fn create(&self, name: &str) -> (Fid, u64) {
        let owned = name.to_owned();
        let make = |client: Arc<Client>| async move {
            client.create(Fid::ROOT, owned.as_bytes(), 0o644, WRITE, CRED).await
        };
        let (entry, opened) = self.run(make).unwrap();
        let fid = entry.inode.unwrap().attr.fid;
        self.rig.client.introduce(fid);
        (fid, opened.handle)
    }

    /// One byte into the file's first stripe.
    fn write(&self, handle: u64) {
        let byte = Bytes::from_static(b"x");
        let wrote = self.run(|client| async move { client.write(handle, 0, byte, false).await });
        assert_eq!(wrote, Ok(1));
    }

    fn close(&self, handle: u64) {
        assert_eq!(self.run(|client| async move { client.close(handle).await }), Ok(()));
    }

    fn forget(&self, fid: Fid) {
        self.rig.client.forget(fid, 1);
        self.rig.run();
        self.serve();
    }

    /// A file that was written and closed, and that the kernel has forgotten.
    fn leave(&self, name: &str) -> Fid {
        let (fid, handle) = self.create(name);
        self.write(handle);
        self.close(handle);
        self.forget(fid);
        fid
    }

    /// Looks a file up again, and opens it.
    fn open_again(&self, name: &str) -> (Fid, u64) {
        let owned = name.to_owned();
        let lookup =
            |client: Arc<Client>| async move { client.lookup(Fid::ROOT, owned.as_bytes()).await };
        let fid = self.run(lookup).unwrap().inode.unwrap().attr.fid;
        self.rig.client.introduce(fid);
        let opened = self.run(|client| async move { client.open(fid, WRITE, CRED).await });
        (fid, opened.unwrap().handle)
    }

    fn fsync(&self, handle: u64) -> Result<()> {
        self.run(|client| async move { client.fsync_file(handle).await })
    }

    fn unlink(&self, name: &str) {
        let owned = name.to_owned();
        let unlink = |client: Arc<Client>| async move {
            client.unlink(Fid::ROOT, owned.as_bytes(), false).await
        };
        assert_eq!(self.run(unlink), Ok(()));
    }

    fn census(&self) -> Census {
        self.rig.client.census()
    }
}

#[test]
fn files_that_were_written_and_forgotten_leave_one_line_each() {
    let targets = Targets::new(1);
    let files = 10_000;
    for n in 0..files {
        targets.leave(&format!("file{n}"));
    }
    assert_eq!(targets.census(), Census { unsynced: files, ..ROOT_ONLY });
    assert_eq!(targets.run(|client| async move { client.sync_all().await }), Ok(()));
    assert_eq!(targets.census(), ROOT_ONLY);
    assert_eq!(targets.synced.borrow().len(), files, "each was synced");
    assert!(targets.synced.borrow().iter().all(|(_, _, epoch)| *epoch == EPOCH));
}

#[test]
fn an_fsync_covers_what_was_written_before_the_file_was_forgotten() {
    let targets = Targets::new(1);
    let fid = targets.leave("file");
    let (again, handle) = targets.open_again("file");
    assert_eq!(again, fid);
    assert_eq!(targets.fsync(handle), Ok(()));
    // It names the epoch: an OST that has restarted since must not say that all is well.
    assert_eq!(*targets.synced.borrow(), [(0, ObjectId { fid, stripe: 0 }, EPOCH)]);
    targets.close(handle);
    targets.forget(fid);
    assert_eq!(targets.census(), ROOT_ONLY);
}

#[test]
fn a_loss_is_told_by_the_fsync_of_a_file_that_was_forgotten() {
    let targets = Targets::new(1);
    let fid = targets.leave("file");
    let (_, handle) = targets.open_again("file");
    let client = targets.rig.client.clone();
    let mut sync = targets.rig.start(async move { client.fsync_file(handle).await });
    while let Some((header, request)) = targets.rig.take_if_any() {
        let lost = matches!(request, Request::Ost(OstRequest::Sync { boot_epoch: EPOCH, .. }));
        let reply = targets.reply_to(&header, request);
        targets.rig.answer(&header, if lost { Reply::error(Errno::EIO) } else { reply });
    }
    assert_eq!(targets.rig.poll(&mut sync), Some(Err(Errno::EIO)));
    assert_eq!(targets.fsync(handle), Ok(()), "it was told");
    targets.close(handle);
    targets.forget(fid);
    assert_eq!(targets.census(), ROOT_ONLY);
}

#[test]
fn temporary_files_leave_nothing() {
    let targets = Targets::new(2);
    for n in 0..100 {
        // Removed while it is open, after it was closed, and after it was forgotten.
        let (fid, handle) = targets.create("open");
        targets.write(handle);
        targets.unlink("open");
        targets.close(handle);
        targets.forget(fid);
        let (fid, handle) = targets.create("closed");
        targets.write(handle);
        targets.close(handle);
        targets.unlink("closed");
        targets.forget(fid);
        targets.leave("forgotten");
        targets.unlink("forgotten");
        // And after it was forgotten, and opened again.
        targets.leave("again");
        let (fid, handle) = targets.open_again("again");
        targets.unlink("again");
        targets.close(handle);
        targets.forget(fid);
        assert_eq!(targets.census(), ROOT_ONLY, "round {n}");
    }
    assert!(targets.synced.borrow().is_empty(), "nobody wants them on a disk");
}

#[test]
fn a_forget_during_a_close_leaves_nothing() {
    for write in [false, true] {
        let targets = Targets::new(1);
        let (fid, handle) = targets.create("file");
        if write {
            targets.write(handle);
        }
        let client = targets.rig.client.clone();
        let mut close = targets.rig.start(async move { client.close(handle).await });
        let (header, request) = targets.rig.take_mdt();
        assert!(matches!(request, MdtRequest::Close { .. }), "{request:?}");
        // The kernel waits for no RELEASE.
        targets.forget(fid);
        targets.rig.answer(&header, reply(MdtReply::Done, &[]));
        assert_eq!(targets.rig.poll(&mut close), Some(Ok(())));
        targets.rig.run();
        targets.serve();
        let unsynced = usize::from(write);
        assert_eq!(targets.census(), Census { unsynced, ..ROOT_ONLY }, "written: {write}");
    }
}

#[test]
fn a_report_that_failed_goes_with_the_lock() {
    let targets = Targets::new(1);
    let (fid, handle) = targets.create("file");
    targets.write(handle);
    let client = targets.rig.client.clone();
    let mut close = targets.rig.start(async move { client.close(handle).await });
    let (header, request) = targets.rig.take_mdt();
    assert!(matches!(request, MdtRequest::Close { report: Some(_), .. }), "{request:?}");
    targets.rig.answer(&header, Reply { last_committed: 1, ..Reply::error(Errno::EBUSY) });
    assert_eq!(targets.rig.poll(&mut close), Some(Err(Errno::EBUSY)));
    targets.forget(fid);
    let reports = targets.cancels.borrow().iter().filter(|cancel| has_report(cancel)).count();
    assert_eq!(reports, 1, "{:?}", targets.cancels.borrow());
    assert_eq!(targets.census(), Census { unsynced: 1, ..ROOT_ONLY });
}

fn has_report(cancel: &MdtRequest) -> bool {
    matches!(cancel, MdtRequest::Cancel { report: Some(report), .. } if report.size == 1)
}

#[test]
fn an_open_that_fails_leaves_nothing() {
    let targets = Targets::new(1);
    for truncate in [false, true] {
        let client = targets.rig.client.clone();
        let how = OpenHow { truncate, ..WRITE };
        let mut open = targets.rig.start(async move { client.open(FILE, how, CRED).await });
        let (header, _) = targets.rig.take_mdt();
        targets.rig.answer(&header, Reply { last_committed: 1, ..Reply::error(Errno::ENOENT) });
        assert!(targets.rig.poll(&mut open).unwrap().is_err());
        assert_eq!(targets.census(), NOTHING, "truncate: {truncate}");
    }
}

#[test]
fn what_the_kernel_never_heard_of_goes_in_time() {
    let targets = Targets::new(1);
    let (fid, handle) = targets.create("file");
    targets.close(handle);
    targets.forget(fid);
    let lookup = |client: Arc<Client>| async move { client.lookup(Fid::ROOT, b"file").await };
    // The program that asked is gone.
    assert!(targets.run(lookup).unwrap().inode.is_some());
    assert_eq!(targets.census().inodes, 2);
    targets.rig.time_passes();
    targets.serve();
    assert_eq!(targets.census(), ROOT_ONLY);
}

#[test]
fn a_file_that_was_lost_leaves_nothing_but_what_is_unsynced() {
    let targets = Targets::new(1);
    let (fid, handle) = targets.create("file");
    targets.write(handle);
    let client = targets.rig.client.clone();
    let mut asks = targets.rig.start(async move { client.listxattr(fid).await });
    let (header, _) = targets.rig.take_mdt();
    targets.rig.evict(&header);
    assert!(targets.rig.poll(&mut asks).unwrap().is_err());
    targets.forget(fid);
    let closed = targets.rig.client.clone();
    assert_eq!(targets.rig.now(async move { closed.close(handle).await }), Err(Errno::EIO));
    assert_eq!(targets.census(), Census { unsynced: 1, ..ROOT_ONLY });
}

#[test]
fn too_much_that_is_unsynced_is_synced_without_being_asked() {
    let stripes = 2000;
    let targets = Targets::new(stripes);
    let limit = 65_536;
    let files = limit / stripes as usize + 1;
    for n in 0..files {
        let (fid, handle) = targets.create(&format!("file{n}"));
        let len = u64::from(stripes) * STRIPE;
        let allocate = move |client: Arc<Client>| async move {
            client.allocate(handle, (0, len), Falloc::Allocate, false).await
        };
        assert_eq!(targets.run(allocate), Ok(()));
        targets.close(handle);
        assert!(targets.synced.borrow().is_empty(), "not before there is need");
        targets.rig.client.forget(fid, 1);
        targets.rig.run();
        if n + 1 < files {
            targets.serve();
        }
    }
    // One of the OSTs loses some of it.
    let mut lost = None;
    for _ in 0..files * stripes as usize {
        let Some((header, request)) = targets.rig.take_if_any() else { break };
        let sync = matches!(request, Request::Ost(OstRequest::Sync { .. }));
        if let Request::Ost(OstRequest::Sync { objects, boot_epoch: EPOCH }) = &request
            && lost.is_none()
        {
            assert!(objects.len() <= 256, "one that is cut waits for all of them");
            lost = objects.first().map(|object| object.fid);
            targets.rig.answer(&header, Reply::error(Errno::EIO));
            continue;
        }
        let reply = targets.reply_to(&header, request);
        assert!(sync || matches!(reply.body, ReplyBody::Mdt(_)));
        targets.rig.answer(&header, reply);
    }
    let census = targets.census();
    assert_eq!(census, Census { unsynced: 0, lost: 1, ..ROOT_ONLY });
    assert!(targets.synced.borrow().len() >= limit);
    // Whoever syncs that file is told, once.
    let names = targets.names.borrow().clone();
    let (name, _) = names.iter().find(|(_, fid)| Some(**fid) == lost).unwrap();
    let (fid, handle) = targets.open_again(std::str::from_utf8(name).unwrap());
    assert_eq!(targets.fsync(handle), Err(Errno::EIO));
    assert_eq!(targets.fsync(handle), Ok(()));
    targets.close(handle);
    targets.forget(fid);
    assert_eq!(targets.census(), ROOT_ONLY);
}

/// Beyond its limit a client asks the kernel to forget what was not used for longest; what is
/// open or was just used stays.
#[test]
fn what_is_not_used_is_to_be_forgotten() {
    let targets = Targets::new(1);
    targets.rig.client.set_inodes_max(4);
    let files: Vec<_> = ["a", "b", "c", "d", "e", "f"].map(|name| targets.create(name)).into();
    for (_, handle) in &files[1..] {
        targets.close(*handle);
    }
    // The hand comes by for the first time; then two are used once more.
    targets.rig.time_passes();
    assert_eq!(targets.rig.unused(), [], "all are new");
    for name in ["c", "d"] {
        let name = name.as_bytes();
        let look = |client: Arc<Client>| async move { client.lookup(Fid::ROOT, name).await };
        let fid = targets.run(look).unwrap().inode.unwrap().attr.fid;
        targets.rig.client.introduce(fid);
    }
    targets.rig.time_passes();
    let ino = |at: usize| files[at].0.ino();
    assert_eq!(targets.rig.unused(), [ino(1), ino(4), ino(5)], "seven with the root, and four");
    for at in [1, 4, 5] {
        targets.forget(files[at].0);
    }
    assert_eq!(targets.census().inodes, 4);
    let given_back = |cancel: &MdtRequest| match cancel {
        MdtRequest::Cancel { more, .. } => 1 + more.len(),
        _ => 0,
    };
    let cancels = targets.cancels.borrow();
    assert_eq!(cancels.iter().map(given_back).sum::<usize>(), 6, "their locks are given back");
    assert_eq!(cancels.len(), 3, "those of a file with one request");
    targets.rig.time_passes();
    assert_eq!(targets.rig.unused(), [], "there is room again");
}

const MDT: Endpoint = Endpoint::Mdt(0);

/// Four files that were made and closed, each with two locks.
fn four_files(targets: &Targets) -> Vec<Fid> {
    let files: Vec<_> = ["a", "b", "c", "d"].map(|name| targets.create(name)).into();
    files.iter().for_each(|(_, handle)| targets.close(*handle));
    files.into_iter().map(|(fid, _)| fid).collect()
}

fn inos(fids: &[Fid]) -> Vec<sateen_types::Ino> {
    fids.iter().map(|fid| fid.ino()).collect()
}

#[test]
fn as_many_locks_are_kept_as_is_set() {
    let targets = Targets::new(1);
    let client = &targets.rig.client;
    client.set_inodes_max(1);
    client.set_lru_size(MDT, 8).unwrap();
    let files = four_files(&targets);
    let info = client.lru_info(MDT).unwrap();
    assert_eq!((info.locks, info.lru_size, client.unused_locks(0)), (8, 8, 8));
    for _ in 0..4 {
        targets.rig.time_passes();
        assert_eq!(targets.rig.unused(), [], "the number of inodes is nothing to go by");
    }
    client.set_lru_size(MDT, 5).unwrap();
    // The hand comes by for the first time.
    targets.rig.time_passes();
    assert_eq!(targets.rig.unused(), []);
    targets.rig.time_passes();
    assert_eq!(targets.rig.unused(), inos(&files[..2]), "three locks too many, two for each");
    targets.forget(files[0]);
    targets.forget(files[1]);
    assert_eq!(client.lru_info(MDT).unwrap().locks, 4);
    targets.rig.time_passes();
    assert_eq!(targets.rig.unused(), []);
    // Back to what the number of inodes says.
    client.set_lru_size(MDT, 0).unwrap();
    targets.rig.time_passes();
    assert_eq!(targets.rig.unused(), inos(&files[2..]));
    assert_eq!(client.set_lru_size(Endpoint::Ost(0), 1), Err(Errno::EOPNOTSUPP));
}

#[test]
fn what_is_not_used_for_long_goes_and_what_is_open_stays() {
    let targets = Targets::new(1);
    let client = targets.rig.client.clone();
    assert_eq!(client.lru_info(MDT).unwrap().max_age_ms, 3_900_000);
    let files = four_files(&targets);
    targets.create("open");
    client.set_lru_max_age(MDT, 1000).unwrap();
    targets.rig.time_passes();
    targets.rig.time_passes();
    let look = |client: Arc<Client>| async move { client.lookup(Fid::ROOT, b"b").await };
    targets.run(look).unwrap();
    client.introduce(files[1]);
    assert_eq!(targets.rig.unused(), []);
    targets.rig.time_passes();
    targets.rig.time_passes();
    assert_eq!(targets.rig.unused(), inos(&[files[0], files[2], files[3]]), "a second has passed");
    targets.rig.time_passes();
    assert_eq!(targets.rig.unused(), [], "they are not asked again at once");
    targets.rig.time_passes();
    assert_eq!(targets.rig.unused(), inos(&[files[1]]));
    // The kernel may keep them: they are asked again when as much time has passed.
    targets.rig.time_passes();
    targets.rig.time_passes();
    assert_eq!(targets.rig.unused(), inos(&[files[0], files[2], files[3]]));
}

#[test]
fn what_is_unused_goes_when_that_is_asked_for() {
    let targets = Targets::new(1);
    let files = four_files(&targets);
    let (_, handle) = targets.create("open");
    let client = targets.rig.client.clone();
    client.drop_unused(MDT).unwrap();
    assert_eq!(targets.rig.unused(), inos(&files));
    targets.forget(files[0]);
    // What is left is asked once more: it may have been a directory of what has gone since.
    let look = |client: Arc<Client>| async move { client.lookup(Fid::ROOT, b"b").await };
    targets.rig.time_passes();
    assert_eq!(targets.rig.unused(), inos(&files[1..]));
    targets.run(look).unwrap();
    client.introduce(files[1]);
    targets.rig.time_passes();
    assert_eq!(targets.rig.unused(), inos(&files[2..]), "one was used since");
    targets.forget(files[2]);
    targets.forget(files[3]);
    targets.rig.time_passes();
    assert_eq!(targets.rig.unused(), []);
    targets.close(handle);
    targets.rig.time_passes();
    assert_eq!(targets.rig.unused(), [], "that was all");
    let counted = client.verb_stats();
    assert_eq!(counted.samples(sateen_client::Verb::LockUnused as usize), 18);
}

/// A kernel that cannot be asked to forget keeps its inodes; their locks go all the same.
#[test]
fn locks_go_also_where_the_kernel_cannot_be_asked_to_forget() {
    let targets = Targets::new(1);
    let files = four_files(&targets);
    targets.rig.cannot_prune();
    targets.rig.client.drop_unused(MDT).unwrap();
    for _ in 0..200 {
        targets.rig.run();
        targets.rig.kernel_goes_on();
        targets.serve();
    }
    assert_eq!(targets.rig.client.lru_info(MDT).unwrap().locks, 0);
    assert_eq!(targets.census(), Census { inodes: 5, ..ROOT_ONLY });
    assert_eq!(targets.cancels.borrow().len(), 8);
    assert_eq!(files.len(), 4);
}

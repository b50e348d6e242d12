//! A client whose targets are played by the test: it takes the requests one by one, and
//! answers them when it likes.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use sateen_client::{AtimePolicy, Client, ClientConfig, KernelInval, OpenHow, Port, Task};
use sateen_types::{Attr, ClientId, Endpoint, Fid, Ino, Nid, ObjectId, Seq, Timespec, Timestamp};
use sateen_wire::{
    Body, Bulk, Callback, Cred, GROUPS, Grant, Grants, Header, Ibits, LockId, LockMode, MdtReply,
    MdtRequest, Message, MgsReply, OstRequest, Reply, ReplyBody, Request, TargetInfo,
};

pub(crate) const FILE: Fid = Fid::new(Seq(0x2_0000_0400), 1);
pub(crate) const CRED: Cred = Cred { uid: 0, gid: 0, umask: 0 };
/// For reading and writing.
pub(crate) const WRITE: OpenHow = OpenHow {
    read: true,
    write: true,
    append: false,
    truncate: false,
    exclusive: false,
    sync: false,
    direct: false,
    exec: false,
    nonblock: false,
    atime: AtimePolicy::Relative,
};

#[derive(Default)]
struct Outside {
    sent: Vec<Message>,
    /// A request for whose answer nobody waits was sent, and nothing that would have taken it along.
    kept_back: bool,
    tasks: Vec<Task>,
    /// Invalidations that the kernel is at, until the test lets them end.
    invals: Vec<(KernelInval, Told)>,
    sleeps: Vec<Arc<AtomicBool>>,
    /// Inodes that the kernel was asked to forget.
    unused: Vec<Ino>,
    /// The kernel cannot be asked that.
    cannot_prune: bool,
    /// How much later it is than at the start.
    passed_ns: u64,
    /// Inodes whose objects the kernel has.
    given: Vec<Ino>,
    /// Programs have what it was given mapped.
    mapped: bool,
    /// It takes no object.
    takes_none: bool,
}

#[derive(Default)]
struct TestPort(Mutex<Outside>);

/// What the kernel says to an invalidation, once it has.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Option<bool>>>);

impl Future for Told {
    type Output = bool;
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<bool> {
        self.0.lock().unwrap().map_or(Poll::Pending, Poll::Ready)
    }
}

struct Flag(Arc<AtomicBool>);

impl Future for Flag {
    type Output = bool;
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<bool> {
        if self.0.load(Ordering::Relaxed) { Poll::Ready(true) } else { Poll::Pending }
    }
}

impl Port for TestPort {
    fn now(&self) -> Timestamp {
        let passed_ns = self.0.lock().unwrap().passed_ns;
        Timestamp { mono_ns: 1 + passed_ns, wall_ns: 1 + passed_ns as i64 }
    }
    fn send(&self, message: Message) {
        let mut outside = self.0.lock().unwrap();
        outside.kept_back = message.body.is_patient();
        outside.sent.push(message);
    }
    fn hurry(&self) {
        self.0.lock().unwrap().kept_back = false;
    }
    fn spawn(&self, task: Task) {
        self.0.lock().unwrap().tasks.push(task);
    }
    /// Time stands still until the test lets it pass.
    fn sleep(&self, _: u64) -> Task {
        let over = Arc::new(AtomicBool::new(false));
        self.0.lock().unwrap().sleeps.push(over.clone());
        Box::pin(async move {
            Flag(over).await;
        })
    }
    fn invalidate(&self, what: KernelInval) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        let told = Told::default();
        self.0.lock().unwrap().invals.push((what, told.clone()));
        Box::pin(told)
    }
    fn can_prune(&self) -> bool {
        !self.0.lock().unwrap().cannot_prune
    }
    fn prune(&self, inodes: Vec<Ino>) {
        self.0.lock().unwrap().unused.extend(inodes);
    }
    fn give(&self, ino: Ino, _: (u32, ObjectId)) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        let mut outside = self.0.lock().unwrap();
        let takes = !outside.takes_none;
        outside.given.extend(takes.then_some(ino));
        Box::pin(std::future::ready(takes))
    }
    fn alone(&self, _: (u32, ObjectId)) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        Box::pin(std::future::ready(!self.0.lock().unwrap().mapped))
    }
    fn take_back(&self, ino: Ino, _: (u32, ObjectId)) {
        self.0.lock().unwrap().given.retain(|given| *given != ino);
    }
}

struct Nobody;

impl Wake for Nobody {
    fn wake(self: Arc<Self>) {}
}

/// A verb that runs.
pub(crate) struct Verb<T>(Pin<Box<dyn Future<Output = T>>>);

/// The client and its surroundings.
pub(crate) struct Rig {
    pub(crate) client: Arc<Client>,
    port: Arc<TestPort>,
}

/// Attributes of the test's file.
pub(crate) fn attr(version: u64, size: u64) -> Attr {
    let time = Timespec { sec: 1, nsec: 0 };
    Attr {
        fid: FILE,
        mode: 0o100_644,
        nlink: 1,
        uid: 0,
        gid: 0,
        projid: 0,
        rdev: 0,
        size,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        version,
        layout_gen: 1,
        size_stale: false,
        maybe_objects: true,
    }
}

/// A lock on the test's file.
pub(crate) fn grant(id: u64, mode: LockMode, bits: Ibits) -> Grant {
    Grant { id: LockId(id), fid: FILE, mode, bits }
}

/// A good answer with locks.
pub(crate) fn reply(body: MdtReply, grants: &[Grant]) -> Reply {
    let mut all = Grants::NONE;
    for grant in grants {
        assert!(all.push(*grant));
    }
    Reply { grants: all, ..Reply::ok(ReplyBody::Mdt(body)) }
}

impl Rig {
    /// A client that has mounted a file system of one MDT.
    pub(crate) fn mounted() -> Rig {
        Rig::with_osts(0)
    }

    /// The same with OSTs.
    pub(crate) fn with_osts(osts: u32) -> Rig {
        Rig::with(1, osts)
    }

    /// A client that has mounted a file system of so many targets.
    pub(crate) fn with(mdts: u32, osts: u32) -> Rig {
        Rig::with_features(mdts, osts, GROUPS)
    }

    /// The same, and what these can do.
    pub(crate) fn with_features(mdts: u32, osts: u32, features: u64) -> Rig {
        let port = Arc::new(TestPort::default());
        let client = Client::new(ClientConfig { id: ClientId(7), file_system: 3 }, port.clone());
        let rig = Rig { client, port };
        let mounting = rig.client.clone();
        let mut mount = rig.start(async move { mounting.mount().await });
        let connected =
            ReplyBody::Connected { features, boot_epoch: 5, generation: 3, follows: 0, durable: 0 };
        let connect = rig.take();
        assert_eq!(connect.to, Endpoint::Mgs);
        rig.answer(&connect, Reply::ok(connected.clone()));
        assert!(rig.poll(&mut mount).is_none());
        let targets: Vec<Endpoint> =
            (0..mdts).map(Endpoint::Mdt).chain((0..osts).map(Endpoint::Ost)).collect();
        let infos = targets.iter().map(|target| TargetInfo {
            target: *target,
            nids: Nid::Lo.into(),
            inactive: false,
        });
        let config = MgsReply::Config { version: 1, targets: infos.collect() };
        rig.answer(&rig.take(), Reply::ok(ReplyBody::Mgs(config)));
        let mut mounted = rig.poll(&mut mount);
        for _ in &targets {
            let connect = rig.take();
            assert!(targets.contains(&connect.to), "{:?}", connect.to);
            rig.answer(&connect, Reply::ok(connected.clone()));
            mounted = mounted.or_else(|| rig.poll(&mut mount));
        }
        mounted.unwrap().unwrap();
        rig
    }

    /// The next thing that the client wants is a connection to this target, and it gets it.
    pub(crate) fn accept(&self, target: Endpoint) {
        let (connect, request) = self.take_request();
        assert_eq!(connect.to, target, "{request:?}");
        assert!(matches!(request, Request::Connect { .. }), "{request:?}");
        let connected = ReplyBody::Connected {
            features: 0,
            boot_epoch: 5,
            generation: 3,
            follows: 0,
            durable: 0,
        };
        self.answer(&connect, Reply::ok(connected));
    }

    /// The MDT has thrown the client out.
    pub(crate) fn evict(&self, like: &Header) {
        let (header, body) = (like.reply(), Body::Callback(Callback::Evicted));
        self.client.on_message(Message { header, body, bulk: Bulk::None });
        self.run();
    }

    pub(crate) fn start<T>(&self, verb: impl Future<Output = T> + 'static) -> Verb<T> {
        let mut verb = self.begin(verb);
        assert!(self.poll(&mut verb).is_none(), "it needs an answer");
        verb
    }

    /// A verb that has not begun.
    pub(crate) fn begin<T>(&self, verb: impl Future<Output = T> + 'static) -> Verb<T> {
        Verb(Box::pin(verb))
    }

    /// What a verb gives that needs no answer.
    pub(crate) fn now<T>(&self, verb: impl Future<Output = T> + 'static) -> T {
        self.poll(&mut Verb(Box::pin(verb))).unwrap()
    }

    /// Whoever sleeps has slept enough.
    pub(crate) fn time_passes(&self) {
        for over in self.port.0.lock().unwrap().sleeps.drain(..) {
            over.store(true, Ordering::Relaxed);
        }
        self.run();
    }

    /// The clock goes on, and whoever sleeps has slept enough.
    pub(crate) fn later(&self, ns: u64) {
        self.pass(ns);
        self.time_passes();
    }

    /// The inodes that the kernel was asked to forget since the last time.
    pub(crate) fn unused(&self) -> Vec<Ino> {
        core::mem::take(&mut self.port.0.lock().unwrap().unused)
    }

    /// The kernel is one that cannot be asked to forget.
    pub(crate) fn cannot_prune(&self) {
        self.port.0.lock().unwrap().cannot_prune = true;
    }

    /// The clock goes on, and nobody has noticed.
    pub(crate) fn pass(&self, ns: u64) {
        self.port.0.lock().unwrap().passed_ns += ns;
    }

    /// The client looks after its connections; others who sleep go on sleeping. Its ticker was
    /// the first to sleep.
    pub(crate) fn tick(&self) {
        let ticker = self.port.0.lock().unwrap().sleeps.remove(0);
        ticker.store(true, Ordering::Relaxed);
        self.run();
    }

    /// Runs everything that can run; what the verb gave, if it has ended.
    pub(crate) fn poll<T>(&self, verb: &mut Verb<T>) -> Option<T> {
        self.poll_for(verb, Arc::new(Nobody))
    }

    /// The same; whenever it may go on, somebody is told.
    pub(crate) fn poll_for<T>(
        &self,
        verb: &mut Verb<T>,
        told: Arc<impl Wake + Send + Sync + 'static>,
    ) -> Option<T> {
        let waker = Waker::from(told);
        let mut context = Context::from_waker(&waker);
        for _ in 0..8 {
            if let Poll::Ready(value) = verb.0.as_mut().poll(&mut context) {
                return Some(value);
            }
            self.run();
        }
        None
    }

    /// Runs the client's own tasks.
    pub(crate) fn run(&self) {
        let waker = Waker::from(Arc::new(Nobody));
        let mut context = Context::from_waker(&waker);
        for _ in 0..4 {
            let tasks = std::mem::take(&mut self.port.0.lock().unwrap().tasks);
            for mut task in tasks {
                if task.as_mut().poll(&mut context).is_pending() {
                    self.port.0.lock().unwrap().tasks.push(task);
                }
            }
        }
    }

    /// The client's own tasks that have not ended.
    pub(crate) fn tasks(&self) -> usize {
        self.port.0.lock().unwrap().tasks.len()
    }

    /// The oldest request that was sent: its header.
    pub(crate) fn take(&self) -> Header {
        self.take_request().0
    }

    pub(crate) fn take_request(&self) -> (Header, Request) {
        let (header, _, request) = self.take_with_data();
        (header, request)
    }

    /// The same, with how many bytes go with it.
    pub(crate) fn take_with_data(&self) -> (Header, u64, Request) {
        let message = self.port.0.lock().unwrap().sent.remove(0);
        let len = if let Bulk::Data(data) = &message.bulk { data.len() } else { 0 };
        match message.body {
            Body::Request(request) => (message.header, len as u64, request),
            other => panic!("{other:?}"),
        }
    }

    /// The same, if there is one.
    pub(crate) fn take_if_any(&self) -> Option<(Header, Request)> {
        (!self.is_silent()).then(|| self.take_request())
    }

    pub(crate) fn take_mdt(&self) -> (Header, MdtRequest) {
        match self.take_request() {
            (header, Request::Mdt(request)) => (header, request),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn take_ost(&self) -> (Header, OstRequest) {
        match self.take_request() {
            (header, Request::Ost(request)) => (header, request),
            other => panic!("{other:?}"),
        }
    }

    /// Whether the kernel has the file's object.
    pub(crate) fn is_given(&self) -> bool {
        self.port.0.lock().unwrap().given.contains(&FILE.ino())
    }

    /// Programs have the object mapped from now on, or not any more.
    pub(crate) fn map_given(&self, mapped: bool) {
        self.port.0.lock().unwrap().mapped = mapped;
    }

    /// The kernel takes no object from now on.
    pub(crate) fn refuse_to_give(&self, refuse: bool) {
        self.port.0.lock().unwrap().takes_none = refuse;
    }

    /// Whether the network may keep something back for a moment.
    pub(crate) fn is_kept_back(&self) -> bool {
        self.port.0.lock().unwrap().kept_back
    }

    /// Whether nothing was sent that was not taken.
    pub(crate) fn is_silent(&self) -> bool {
        self.port.0.lock().unwrap().sent.is_empty()
    }

    pub(crate) fn answer(&self, to: &Header, reply: Reply) {
        self.answer_with(to, reply, Bulk::None);
    }

    /// The same, with data.
    pub(crate) fn answer_with(&self, to: &Header, reply: Reply, bulk: Bulk) {
        self.client.on_message(Message::reply_to(to, reply, bulk));
        self.run();
    }

    /// The MDT asks for a lock.
    pub(crate) fn call_back(&self, id: u64, like: &Header) {
        let callback = Callback::Blocking { fid: FILE, id: LockId(id) };
        let header = like.reply();
        self.client.on_message(Message {
            header,
            body: Body::Callback(callback),
            bulk: Bulk::None,
        });
        self.run();
    }

    /// The kernel is done with every invalidation, also with those that follow.
    pub(crate) fn kernel_is_done(&self) {
        for _ in 0..4 {
            self.kernel_goes_on();
        }
    }

    /// The kernel is done with the invalidations that it is at, but not with those that follow.
    pub(crate) fn kernel_goes_on(&self) {
        self.kernel_says(true);
    }

    /// The kernel answers the invalidations that it is at: whether it knows the inodes.
    pub(crate) fn kernel_says(&self, known: bool) -> Vec<KernelInval> {
        let invals = core::mem::take(&mut self.port.0.lock().unwrap().invals);
        let whats = invals.iter().map(|(what, _)| *what).collect();
        for (_, told) in invals {
            *told.0.lock().unwrap() = Some(known);
        }
        self.run();
        whats
    }

    /// Who was the last to sleep has slept enough.
    pub(crate) fn last_wakes(&self) {
        let last = self.port.0.lock().unwrap().sleeps.pop().unwrap();
        last.store(true, Ordering::Relaxed);
        self.run();
    }
}

//! The process around a client, as the client sees it: the reactor, and the kernel's caches.
//!
//! What the kernel is told of names and attributes waits for nothing and is told at once.
//! Pages are different: the kernel waits for READs in flight, so that these messages have
//! threads of their own (`drops`), on which no request depends. While one of them waits, an unmount
//! may wait for it and attributes for the unmount (`turns`): then these go there, too.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use sateen_client::{Client, KernelInval, Port, Task};
use sateen_fuse::{KernelOffer, NOTIFY_PRUNE_MAX, Notifier, ROOT_INO};
use sateen_meter::{Part, Took, is_on};
use sateen_mount::GivenFiles;
use sateen_osd::ObjectStore;
use sateen_osd_disk::objects::GivenFile;
use sateen_reactor::Reactor;
use sateen_types::{Fid, Ino, ObjectId, Timestamp};
use sateen_wire::Message;

use super::drops::Drops;
use super::turns::Turns;

type Known = Pin<Box<dyn Future<Output = bool> + Send>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See the module.
pub(crate) struct ClientPort {
    reactor: Arc<Reactor>,
    kernel: Kernel,
    /// Of OSTs of this process, if the kernel may be given their files.
    giving: OnceLock<Giving>,
}

/// Where an OST of this process keeps its objects.
pub(crate) struct OstFiles {
    pub objects: Arc<dyn ObjectStore>,
    /// In this folder.
    pub folder: PathBuf,
}

/// Those of the OSTs of this process, by the OSTs' numbers.
pub(crate) type Stores = HashMap<u32, OstFiles>;

/// Files that a kernel can be given, and those that it has.
pub(crate) struct Giving {
    pub stores: Stores,
    pub given: Arc<GivenFiles>,
}

impl ClientPort {
    /// A port without a mount.
    pub(crate) fn new(reactor: Arc<Reactor>) -> ClientPort {
        ClientPort { reactor, kernel: Kernel::default(), giving: OnceLock::new() }
    }

    /// The mount is there: what was to be invalidated since it began to be made is now.
    /// A kernel that keeps no names need not be told to forget them. `root` is what it knows as
    /// its first inode.
    pub(crate) fn attach(
        &self,
        notifier: Notifier,
        offer: &KernelOffer,
        root: Fid,
    ) -> io::Result<()> {
        let keeps_names = offer.has_inc_epoch();
        let telling = Telling { notifier, keeps_names, root: root.ino() };
        self.kernel.attach(telling, offer.has_prune())
    }

    /// The kernel may be given files from now on.
    pub(crate) fn gives(&self, giving: Giving) {
        // Whoever comes first is the only one.
        let _ = self.giving.set(giving);
    }

    /// The mount is gone, and with it all that the kernel believed.
    pub(crate) fn detach(&self) {
        *lock(&self.kernel.state) = State::Gone;
    }
}

impl Port for ClientPort {
    fn now(&self) -> Timestamp {
        self.reactor.clock.now()
    }

    fn send(&self, message: Message) {
        self.reactor.router.send(message);
    }

    fn hurry(&self) {
        self.reactor.router.hurry();
    }

    fn measured_ns(&self) -> Option<u64> {
        is_on(Part::Rpc).then(|| self.reactor.clock.mono_ns())
    }

    fn took(&self, called: &'static str, ns: u64) {
        Took::of_ns(ns).count(Part::Rpc, || called);
    }

    fn spawn(&self, task: Task) {
        self.reactor.executor.spawn(task);
    }

    fn sleep(&self, ns: u64) -> Task {
        Box::pin(self.reactor.timers.sleep(ns))
    }

    fn invalidate(&self, what: KernelInval) -> Known {
        self.kernel.invalidate(what)
    }

    fn can_prune(&self) -> bool {
        matches!(&*lock(&self.kernel.state), State::Here { unused: Some(_), .. })
    }

    fn prune(&self, inodes: Vec<Ino>) {
        self.kernel.prune(inodes);
    }

    fn give(&self, ino: Ino, (ost, object): (u32, ObjectId)) -> Known {
        let given = self.giving.get().is_some_and(|giving| giving.give(ino, ost, object));
        at_once(given)
    }

    fn alone(&self, (ost, object): (u32, ObjectId)) -> Known {
        let store = self.giving.get().and_then(|giving| giving.stores.get(&ost));
        let alone = store.is_none_or(|store| {
            store.objects.alone(object).unwrap_or_else(|error| {
                // Leases are there, or it would not have been given away. So somebody may have it, and it
                // stays so until this can be found out.
                tracing::warn!(%object, %error, "it cannot be found out whether a file is mapped");
                false
            })
        });
        at_once(alone)
    }

    fn take_back(&self, ino: Ino, (ost, object): (u32, ObjectId)) {
        let Some(giving) = self.giving.get() else { return };
        giving.given.take_back(ino);
        if let Some(store) = giving.stores.get(&ost) {
            store.objects.take_back(object);
        }
    }
}

impl Giving {
    /// Whether the kernel has the object's file now.
    fn give(&self, ino: Ino, ost: u32, object: ObjectId) -> bool {
        let Some(OstFiles { objects: store, .. }) = self.stores.get(&ost) else { return false };
        let given = match store.give(object) {
            Ok(given) => given,
            Err(error) => {
                tracing::debug!(%object, %error, "an object was not given away");
                return false;
            }
        };
        // One that is none of a disk's, or is not there, is not given.
        let Some(given) = given else { return false };
        let file = given.file.and_then(|file| file.downcast::<GivenFile>().ok());
        let told = file.map(|file| self.given.give(ino, &*file));
        if let Some(Ok(())) = told {
            return true;
        }
        if let Some(Err(error)) = told {
            tracing::warn!(%object, %error, "the kernel did not take a file; it asks as ever");
        }
        store.take_back(object);
        false
    }
}

/// The kernel's side of one mount.
#[derive(Default)]
struct Kernel {
    state: Mutex<State>,
    turns: Arc<Turns>,
}

enum State {
    /// Being mounted: what is to be invalidated is kept.
    Coming(Vec<Job>),
    /// Mounted.
    Here { telling: Telling, jobs: Drops<Job>, unused: Option<SyncSender<Vec<Ino>>> },
    /// Unmounted.
    Gone,
}

/// How the kernel is told.
#[derive(Clone)]
struct Telling {
    notifier: Notifier,
    keeps_names: bool,
    root: Ino,
}

impl Default for State {
    fn default() -> State {
        State::Coming(Vec::new())
    }
}

struct Job {
    what: KernelInval,
    done: Arc<Mutex<Done>>,
}

#[derive(Default)]
struct Done {
    known: Option<bool>,
    waker: Option<Waker>,
}

impl Kernel {
    fn attach(&self, telling: Telling, prunes: bool) -> io::Result<()> {
        let (notifier, turns) = (telling.notifier.clone(), self.turns.clone());
        let unused = if prunes { Some(start_pruning(notifier, turns)?) } else { None };
        let (tells, turns) = (telling.clone(), self.turns.clone());
        let jobs = Drops::start(move |job| serve(&tells, &turns, job))?;
        let mut state = lock(&self.state);
        if let State::Coming(early) = &mut *state {
            early.drain(..).for_each(|job| jobs.push(job));
            *state = State::Here { telling, jobs, unused };
        }
        Ok(())
    }

    fn invalidate(&self, what: KernelInval) -> Known {
        if let Some(known) = self.at_once(what) {
            return at_once(known);
        }
        let done = Arc::new(Mutex::new(Done::default()));
        let job = Job { what, done: done.clone() };
        match &mut *lock(&self.state) {
            State::Gone => return at_once(true),
            State::Here { jobs, .. } => jobs.push(job),
            State::Coming(early) => early.push(job),
        }
        Box::pin(Told(done))
    }

    /// Tells the kernel what waits for nothing.
    fn at_once(&self, what: KernelInval) -> Option<bool> {
        if what.drops_pages() {
            return None;
        }
        let inode = matches!(what, KernelInval::Attr(_));
        let _turn = if inode { Some(self.turns.short()?) } else { None };
        // Not under the lock: who unmounts wants it.
        let telling = match &*lock(&self.state) {
            State::Here { telling, .. } => telling.clone(),
            State::Coming(_) | State::Gone => return None,
        };
        Some(tell(&telling, what))
    }

    fn prune(&self, inodes: Vec<Ino>) {
        if let State::Here { unused: Some(unused), .. } = &*lock(&self.state) {
            // If the thread is behind, the same will be asked for again.
            let _ = unused.try_send(inodes);
        }
    }
}

/// A thread that asks the kernel to forget inodes. Their pages are dropped, too, which waits for
/// READs in flight: no invalidation may wait behind that, because READs wait for those.
fn start_pruning(notifier: Notifier, turns: Arc<Turns>) -> io::Result<SyncSender<Vec<Ino>>> {
    let (sender, receiver) = sync_channel::<Vec<Ino>>(1);
    let prune = move || {
        for inodes in receiver {
            for some in inodes.chunks(NOTIFY_PRUNE_MAX) {
                let _turn = turns.long();
                if let Err(error) = notifier.prune(some) {
                    // It is going, or does not know all of them any more.
                    tracing::debug!(%error, "the kernel was not asked to forget inodes");
                }
            }
        }
    };
    std::thread::Builder::new().name("prune".to_owned()).spawn(prune)?;
    Ok(sender)
}

/// One of the threads has a job.
fn serve(telling: &Telling, turns: &Turns, Job { what, done }: Job) {
    let known = {
        let _turn = what.drops_pages().then(|| turns.long());
        tell(telling, what)
    };
    let waker = {
        let mut done = lock(&done);
        done.known = Some(known);
        done.waker.take()
    };
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Tells the kernel. Returns whether it knew the inode.
fn tell(Telling { notifier, keeps_names, root }: &Telling, what: KernelInval) -> bool {
    let known = |ino: Ino| if ino == *root { ROOT_INO } else { ino };
    let told = match what {
        KernelInval::Names if !keeps_names => Ok(true),
        KernelInval::Names => notifier.inc_epoch(),
        KernelInval::Attr(ino) => notifier.inval_inode(known(ino), -1, 0),
        KernelInval::Data(ino) => notifier.inval_inode(known(ino), 0, 0),
        KernelInval::Pages(ino, offset, len) => {
            let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
            notifier.inval_inode(known(ino), number(offset), number(len.max(1)))
        }
    };
    told.unwrap_or_else(|error| {
        let gone = [rustix::io::Errno::NODEV, rustix::io::Errno::NOTCONN];
        if !gone.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error())) {
            tracing::error!(?what, %error, "the kernel did not take an invalidation");
        }
        // Nothing is left that could believe it.
        true
    })
}

/// An answer that is there already. It has no size, so that its box takes no memory.
struct AtOnce<const ANSWER: bool>;

impl<const ANSWER: bool> Future for AtOnce<ANSWER> {
    type Output = bool;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<bool> {
        Poll::Ready(ANSWER)
    }
}

fn at_once(answer: bool) -> Known {
    if answer { Box::pin(AtOnce::<true>) } else { Box::pin(AtOnce::<false>) }
}

/// A job as a future.
struct Told(Arc<Mutex<Done>>);

impl Future for Told {
    type Output = bool;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<bool> {
        let mut done = lock(&self.0);
        match done.known {
            Some(known) => Poll::Ready(known),
            None => {
                done.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Brings a client its messages.
pub(crate) struct ToClient(pub(crate) Arc<Client>);

impl sateen_reactor::Receiver for ToClient {
    fn receive(self: Arc<Self>, message: Message) {
        self.0.on_message(message);
    }
}

//! The process around a simulated client: what it asks for is kept until the world takes it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sateen_client::{KernelInval, Port, Task};
use sateen_types::{Ino, ObjectId, Timestamp};
use sateen_wire::Message;

use crate::disk::SimObjects;
use crate::executor::{Raised, Signal, lock};
use crate::world::timestamp;

/// What a client wants done.
pub(crate) enum Wish {
    Send(Box<Message>),
    Spawn(Task),
    Sleep(u64, Arc<Signal<()>>),
    Invalidate(KernelInval, Arc<Signal<bool>>),
    Prune(Vec<Ino>),
}

/// The virtual time that all clients go by.
#[derive(Debug, Default)]
pub(crate) struct Clock(AtomicU64);

impl Clock {
    pub(crate) fn set(&self, now_ns: u64) {
        self.0.store(now_ns, Ordering::Relaxed);
    }
}

/// The objects of each OST of a process.
pub(crate) type Stores = Arc<Mutex<BTreeMap<u32, Arc<SimObjects>>>>;

/// An object that a kernel reads and writes itself.
#[derive(Debug, Clone)]
pub(crate) struct Backing {
    pub(crate) store: Arc<SimObjects>,
    pub(crate) object: ObjectId,
}

/// See the module.
pub(crate) struct SimPort {
    clock: Arc<Clock>,
    wishes: Mutex<Vec<Wish>>,
    /// Those of the OSTs that this client shares a process with.
    stores: Stores,
    given: Mutex<BTreeMap<Ino, Backing>>,
    /// How often it was asked whether anybody has a file mapped.
    asked: AtomicU64,
}

impl SimPort {
    pub(crate) fn new(clock: Arc<Clock>, stores: Stores) -> SimPort {
        let (wishes, given, asked) = (Mutex::default(), Mutex::default(), AtomicU64::new(0));
        SimPort { clock, wishes, stores, given, asked }
    }

    /// What an inode was given.
    pub(crate) fn backing(&self, ino: Ino) -> Option<Backing> {
        lock(&self.given).get(&ino).cloned()
    }

    pub(crate) fn take(&self) -> Vec<Wish> {
        core::mem::take(&mut lock(&self.wishes))
    }

    fn wish(&self, wish: Wish) {
        lock(&self.wishes).push(wish);
    }
}

impl Port for SimPort {
    fn now(&self) -> Timestamp {
        timestamp(self.clock.0.load(Ordering::Relaxed))
    }

    fn send(&self, message: Message) {
        self.wish(Wish::Send(Box::new(message)));
    }

    fn spawn(&self, task: Task) {
        self.wish(Wish::Spawn(task));
    }

    fn sleep(&self, ns: u64) -> Task {
        let signal = Signal::new();
        self.wish(Wish::Sleep(ns, signal.clone()));
        Box::pin(Raised(signal))
    }

    fn invalidate(&self, what: KernelInval) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        let signal = Signal::new();
        self.wish(Wish::Invalidate(what, signal.clone()));
        Box::pin(Raised(signal))
    }

    fn can_prune(&self) -> bool {
        true
    }

    fn prune(&self, inodes: Vec<Ino>) {
        self.wish(Wish::Prune(inodes));
    }

    fn give(
        &self,
        ino: Ino,
        (ost, object): (u32, ObjectId),
    ) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        let store = lock(&self.stores).get(&ost).cloned();
        let store = store.filter(|store| store.image(object).is_some());
        let is_given = store.is_some();
        if let Some(store) = store {
            lock(&self.given).insert(ino, Backing { store, object });
        }
        Box::pin(std::future::ready(is_given))
    }

    /// Nobody maps files here. The kernel lets go of what was closed a moment later.
    fn alone(&self, _at: (u32, ObjectId)) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready(asked % 3 != 1))
    }

    fn take_back(&self, ino: Ino, _at: (u32, ObjectId)) {
        lock(&self.given).remove(&ino);
    }
}

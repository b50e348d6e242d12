//! The process around a simulated client: what it asks for is kept until the world takes it.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sateen_client::{KernelInval, Port, Task};
use sateen_types::{Ino, Timestamp};
use sateen_wire::Message;

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

/// See the module.
pub(crate) struct SimPort {
    clock: Arc<Clock>,
    wishes: Mutex<Vec<Wish>>,
}

impl SimPort {
    pub(crate) fn new(clock: Arc<Clock>) -> SimPort {
        SimPort { clock, wishes: Mutex::default() }
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
}

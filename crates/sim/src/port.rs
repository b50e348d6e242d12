//! The process around a simulated client: what it asks for is kept until the world takes it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use sateen_client::{KernelInval, Port, Task};
use sateen_types::{Ino, Timestamp};
use sateen_wire::Message;

use crate::executor::{Raised, Signal, lock};

/// What a client wants done.
pub(crate) enum Wish {
    Send(Box<Message>),
    Spawn(Task),
    Sleep(u64, Arc<Signal<()>>),
    Invalidate(KernelInval, Arc<Signal<bool>>),
    Prune(Vec<Ino>),
}

#[derive(Default)]
struct State {
    now: Timestamp,
    wishes: Vec<Wish>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct SimPort(Mutex<State>);

impl SimPort {
    pub(crate) fn set_now(&self, now: Timestamp) {
        lock(&self.0).now = now;
    }

    pub(crate) fn take(&self) -> Vec<Wish> {
        core::mem::take(&mut lock(&self.0).wishes)
    }

    fn wish(&self, wish: Wish) {
        lock(&self.0).wishes.push(wish);
    }
}

impl Port for SimPort {
    fn now(&self) -> Timestamp {
        lock(&self.0).now
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

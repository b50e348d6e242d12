//! What a mounted client gets from its process: the reactor's time, network and tasks, and
//! the way to the kernel.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use sateen_client::{KernelInval, Port, Task};
use sateen_fuse::Notifier;
use sateen_reactor::Reactor;
use sateen_types::Timestamp;
use sateen_wire::Message;

use crate::notify::Notifiers;

/// The port of one mount.
pub struct MountPort {
    reactor: Arc<Reactor>,
    notifiers: Notifiers,
}

impl MountPort {
    pub(crate) fn new(reactor: Arc<Reactor>) -> io::Result<MountPort> {
        Ok(MountPort { reactor, notifiers: Notifiers::start()? })
    }

    pub(crate) fn attach(&self, notifier: Notifier) {
        self.notifiers.attach(notifier);
    }

    pub(crate) fn stop(&self) {
        self.notifiers.stop();
    }

    /// Runs a future to its end while this thread waits. Never called on a thread that
    /// serves requests.
    pub(crate) fn block_on<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let cell = Arc::new((Mutex::new(None), Condvar::new()));
        let filled = cell.clone();
        self.reactor.executor.spawn(Box::pin(async move {
            let value = future.await;
            *filled.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
            filled.1.notify_one();
        }));
        let mut slot = cell.0.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(value) = slot.take() {
                return value;
            }
            slot = cell.1.wait(slot).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Port for MountPort {
    fn now(&self) -> Timestamp {
        self.reactor.clock.now()
    }

    fn send(&self, message: Message) {
        self.reactor.router.send(message);
    }

    fn spawn(&self, task: Task) {
        self.reactor.executor.spawn(task);
    }

    fn sleep(&self, ns: u64) -> Task {
        Box::pin(self.reactor.timers.sleep(ns))
    }

    fn invalidate(&self, what: KernelInval) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        Box::pin(self.notifiers.tell(what))
    }
}

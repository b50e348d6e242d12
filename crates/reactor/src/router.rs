//! The in-process network `0@lo`: from an endpoint to whoever receives for it.
//!
//! Sending moves the message into the sender's run loop; it is received on the same thread
//! once the sender has returned there. Messages between two parties stay in order as long
//! as they are sent from one thread.
//!
//! Each thread remembers whom it has sent to, as long as nobody comes or goes: so sending waits for
//! nobody, and writes nothing that others read who send to somebody else.
//!
//! What is for nobody here goes up, if there is an uplink: a network that reaches other
//! processes. What comes from there is for somebody here or for nobody: see
//! [`Router::deliver`].

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Weak;
use std::sync::atomic::AtomicU64 as Numbers;
use std::time::Duration;

use sateen_types::{Endpoint, Errno};
use sateen_wire::{Body, Bulk, Message, Reply};

use crate::run_loop::{self, Work};
use crate::sync::{
    Arc, AtomicBool, AtomicU64, Ordering, PoisonError, RwLock, RwLockWriteGuard, thread_local,
};

/// Most endpoints in one process.
pub const ENDPOINTS_MAX: usize = 1 << 16;
/// Most that a thread remembers.
const REMEMBERED_MAX: usize = 32;

/// Whoever receives messages: a target, a client.
pub trait Receiver: Send + Sync {
    /// A message arrived, on this very thread, with no lock of the sender held.
    fn receive(self: Arc<Self>, message: Message);

    /// Of an uplink: what it keeps back, to send it with others, goes now.
    fn hurry(&self) {}

    /// Of an uplink: this thread is about to read from a disk, and what is kept back for it to send
    /// goes before.
    fn before_disk(&self) {}

    /// Of an uplink: the endpoints that it has heard of within this time, or would have if it had
    /// had the time to read what they sent.
    fn heard(&self, _within: Duration) -> Vec<Endpoint> {
        Vec::new()
    }
}

/// Who is reached where. Shared by everything in the process.
#[derive(Default)]
pub struct Router {
    table: RwLock<Table>,
    /// Tells the table as it is from all that any router has ever had; 0 as long as nobody was
    /// added. Changed under the table's lock, before the table is.
    version: AtomicU64,
    has_uplink: AtomicBool,
}

/// Where the next version comes from. Of no account to anybody but to tell them apart.
static VERSIONS: Numbers = Numbers::new(1);

/// What a thread remembers of a table of this version. It keeps nobody from going.
#[derive(Default)]
struct Remembered {
    version: u64,
    receivers: Vec<(Endpoint, Weak<dyn Receiver>)>,
}

thread_local! {
    static REMEMBERED: RefCell<Remembered> = RefCell::default();
}

impl Remembered {
    fn find(&self, version: u64, to: Endpoint) -> Option<Arc<dyn Receiver>> {
        if self.version != version {
            return None;
        }
        let (_, receiver) = self.receivers.iter().find(|(endpoint, _)| *endpoint == to)?;
        receiver.upgrade()
    }

    fn note(&mut self, version: u64, to: Endpoint, receiver: &Arc<dyn Receiver>) {
        if self.version != version || self.receivers.len() >= REMEMBERED_MAX {
            self.receivers.clear();
            self.version = version;
        }
        self.receivers.push((to, Arc::downgrade(receiver)));
    }
}

#[derive(Default)]
struct Table {
    here: BTreeMap<Endpoint, Arc<dyn Receiver>>,
    uplink: Option<Arc<dyn Receiver>>,
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_set().entries(table.here.keys()).finish()
    }
}

impl Router {
    /// The table, to be changed: what threads remember of it is old from here on.
    fn change(&self) -> RwLockWriteGuard<'_, Table> {
        let table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let version = VERSIONS.fetch_add(1, Ordering::Relaxed);
        self.version.store(version, Ordering::SeqCst);
        table
    }

    /// Adds an endpoint, replacing what was there. False if there is no room.
    pub fn add(&self, endpoint: Endpoint, receiver: Arc<dyn Receiver>) -> bool {
        let mut table = self.change();
        if table.here.len() >= ENDPOINTS_MAX && !table.here.contains_key(&endpoint) {
            return false;
        }
        table.here.insert(endpoint, receiver);
        true
    }

    /// Removes an endpoint; messages to it get lost from now on.
    pub fn remove(&self, endpoint: Endpoint) {
        let gone = {
            let mut table = self.change();
            table.here.remove(&endpoint)
        };
        // Its destructor may send.
        drop(gone);
    }

    /// Whatever is for nobody here goes to the uplink from now on; with `None`, nowhere.
    pub fn set_uplink(&self, uplink: Option<Arc<dyn Receiver>>) {
        let before = {
            let mut table = self.change();
            self.has_uplink.store(uplink.is_some(), Ordering::SeqCst);
            core::mem::replace(&mut table.uplink, uplink)
        };
        // Its destructor may send.
        drop(before);
    }

    /// The endpoints elsewhere that are not silent: see [`Receiver::heard`].
    pub fn heard(&self, within: Duration) -> Vec<Endpoint> {
        let uplink = {
            let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
            table.uplink.clone()
        };
        uplink.map_or_else(Vec::new, |uplink| uplink.heard(within))
    }

    /// Somebody waits for the answer to what was sent as if nobody did: the uplink keeps nothing
    /// back of what this thread has sent.
    pub fn hurry(&self) {
        let uplink = {
            let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
            table.uplink.clone()
        };
        if let Some(uplink) = uplink {
            run_loop::run(Work::Hurry(uplink));
        }
    }

    /// This thread is about to read from a disk, which may take long: nothing waits for that.
    pub(crate) fn before_disk(&self) {
        if !self.has_uplink.load(Ordering::SeqCst) {
            return;
        }
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let uplink = table.uplink.clone();
        drop(table);
        if let Some(uplink) = uplink {
            uplink.before_disk();
        }
    }

    /// Takes a message that came from the uplink. It never goes back there: a request to
    /// nobody is answered with `ENODEV`, so that the sender tells a process without that
    /// target from none at all; replies and callbacks to nobody get lost.
    pub fn deliver(&self, message: Message) {
        if let Some(receiver) = self.here(message.header.to) {
            return run_loop::run(Work::Deliver(receiver, message));
        }
        tracing::debug!(to = %message.header.to, from = %message.header.from, "to nobody here");
        if matches!(message.body, Body::Request(_)) {
            let reply = Reply::error(Errno::ENODEV);
            self.send(Message::reply_to(&message.header, reply, Bulk::None));
        }
    }

    /// Sends a message. A request to nobody is answered with `ESHUTDOWN`; replies and
    /// callbacks to nobody get lost, as their receiver did.
    pub fn send(&self, message: Message) {
        if let Some(work) = self.work(message) {
            run_loop::run(work);
        }
    }

    pub(crate) fn work(&self, message: Message) -> Option<Work> {
        let to = message.header.to;
        if let Some(receiver) = self.receiver(to) {
            return Some(Work::Deliver(receiver, message));
        }
        tracing::debug!(%to, from = %message.header.from, "a message to nobody");
        if !matches!(message.body, Body::Request(_)) {
            return None;
        }
        let reply = Reply::error(Errno::ESHUTDOWN);
        let answer = Message::reply_to(&message.header, reply, message.bulk);
        Some(Work::Deliver(self.receiver(answer.header.to)?, answer))
    }

    fn here(&self, endpoint: Endpoint) -> Option<Arc<dyn Receiver>> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.here.get(&endpoint).cloned()
    }

    fn receiver(&self, endpoint: Endpoint) -> Option<Arc<dyn Receiver>> {
        let version = self.version.load(Ordering::SeqCst);
        // A thread that ends remembers nobody any more.
        let known = REMEMBERED.try_with(|known| known.borrow().find(version, endpoint));
        if let Ok(Some(known)) = known {
            return Some(known);
        }
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let receiver = table.here.get(&endpoint).or(table.uplink.as_ref()).cloned()?;
        // Nobody changes it now.
        let version = self.version.load(Ordering::SeqCst);
        drop(table);
        let _ = REMEMBERED.try_with(|known| known.borrow_mut().note(version, endpoint, &receiver));
        Some(receiver)
    }
}

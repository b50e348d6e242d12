//! What a client needs of the process it lives in.

use std::future::Future;
use std::pin::Pin;

use sateen_types::{Ino, ObjectId, Timestamp};
use sateen_wire::Message;

/// A future that runs on its own.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Something that the kernel must stop believing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelInval {
    /// Every cached name of the mount.
    Names,
    /// An inode's attributes.
    Attr(Ino),
    /// An inode's pages, and its attributes with them.
    Data(Ino),
    /// Those of its pages that hold bytes of this range: offset and length.
    Pages(Ino, u64, u64),
}

impl KernelInval {
    /// Whether the kernel drops pages, and so waits for READs of them that are under way.
    pub const fn drops_pages(&self) -> bool {
        matches!(self, KernelInval::Data(_) | KernelInval::Pages(..))
    }
}

/// The process around a client.
pub trait Port: Send + Sync {
    /// The time.
    fn now(&self) -> Timestamp;
    /// Sends a message to the endpoint in its header. The reply comes through
    /// [`crate::Client::on_message`], perhaps before this returns.
    fn send(&self, message: Message);
    /// Somebody waits for the answer to a request that was sent as if nobody did
    /// ([`sateen_wire::Body::is_patient`]): it is kept back no longer. Waits for nothing.
    fn hurry(&self) {}
    /// The monotonic clock, if somebody measures how long requests take: read when an answer comes.
    fn measured_ns(&self) -> Option<u64> {
        None
    }
    /// A request of this name was answered so long after its last copy had been sent. Called while
    /// nothing of the client's is locked.
    fn took(&self, _called: &'static str, _ns: u64) {}
    /// Runs a task to its end.
    fn spawn(&self, task: Task);
    /// Ends after `ns` nanoseconds.
    fn sleep(&self, ns: u64) -> Task;
    /// Ends when the kernel has dropped it, with whether the kernel knew the inode at all.
    /// Never called while one of the client's mutexes is held; the kernel may well send
    /// requests before it ends.
    fn invalidate(&self, what: KernelInval) -> Pin<Box<dyn Future<Output = bool> + Send>>;
    /// Whether the kernel can be asked to forget inodes.
    fn can_prune(&self) -> bool;
    /// Asks the kernel to forget those of these inodes that no program uses: it will say so of
    /// each that it has forgotten. Nobody waits for it.
    fn prune(&self, inodes: Vec<Ino>);
    /// Gives the kernel an object for an inode, which lies with this OST. Whether it can: only an OST
    /// of this very process has files to give away, and none of an object that does not exist.
    fn give(&self, _ino: Ino, _at: (u32, ObjectId)) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        Box::pin(std::future::ready(false))
    }
    /// Whether nobody but its OST has an object that was given, open or mapped. May be false for a
    /// moment without a reason.
    fn alone(&self, _at: (u32, ObjectId)) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        Box::pin(std::future::ready(true))
    }
    /// The opposite of [`Port::give`]: no open has it any more.
    fn take_back(&self, _ino: Ino, _at: (u32, ObjectId)) {}
}

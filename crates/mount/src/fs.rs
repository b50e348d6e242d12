//! The file system as the kernel sees it: each request becomes a task of the client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sateen_client::Client;
use sateen_fuse::{Caps, Filesystem, KernelOffer, Op, Reply, Request};
use sateen_reactor::Executor;
use sateen_types::Fid;

use crate::requests::Call;

/// One mount's file system.
pub struct KernelFs {
    client: Arc<Client>,
    executor: Executor,
    direct_io: bool,
    /// The kernel can be told to forget names. Otherwise it must not keep any: each use of one
    /// asks again, and what it is told is right.
    keeps_names: AtomicBool,
}

impl KernelFs {
    /// Serves a client that is connected. With `direct_io` reads bypass the page cache, too.
    pub fn new(client: Arc<Client>, executor: Executor, direct_io: bool) -> KernelFs {
        KernelFs { client, executor, direct_io, keeps_names: AtomicBool::new(false) }
    }

    fn forget(&self, ino: u64, count: u64) {
        if let Some(fid) = Fid::from_ino(ino) {
            self.client.forget(fid, count);
        }
    }
}

impl Filesystem for KernelFs {
    fn init(&self, offer: &KernelOffer) -> Caps {
        self.keeps_names.store(offer.has_inc_epoch(), Ordering::Relaxed);
        // Names from READDIRPLUS would be believed without a lock on the inode, and cost a
        // lookup each all the same.
        let ours = Caps::HANDLE_KILLPRIV_V2 | Caps::POSIX_ACL | Caps::DONT_MASK;
        let wanted = offer.recommended() | ours & offer.caps;
        wanted - Caps::DO_READDIRPLUS - Caps::READDIRPLUS_AUTO
    }

    fn dispatch(&self, request: Request, reply: Reply) {
        match request.op {
            Op::Forget { ino, nlookup } => self.forget(ino, nlookup),
            Op::BatchForget { items } => {
                for (ino, nlookup) in items {
                    self.forget(ino, nlookup);
                }
            }
            // What waits, waits for locks, which others give back, or lose, within seconds.
            Op::Interrupt { .. } => {}
            _ => {
                let call = Call {
                    client: self.client.clone(),
                    direct_io: self.direct_io,
                    keeps_names: self.keeps_names.load(Ordering::Relaxed),
                };
                self.executor.spawn(Box::pin(call.run(request, reply)));
            }
        }
    }
}

//! The file system as the kernel sees it: each request becomes a task of the client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sateen_client::{AtimePolicy, Client};
use sateen_fuse::{Caps, Filesystem, KernelOffer, MountFlags, Op, Reply, Request};
use sateen_reactor::Executor;
use sateen_types::Fid;

use crate::requests::Call;

/// What reading does to atimes on a mount.
#[derive(Debug, Clone, Copy, Default)]
pub struct Atime {
    /// To those of files.
    pub files: AtimePolicy,
    /// To those of directories.
    pub folders: AtimePolicy,
}

impl Atime {
    /// What the flags of a mount ask for. The kernel leaves atimes to us.
    pub fn of(flags: &MountFlags) -> Atime {
        let files = match flags {
            MountFlags { read_only: true, .. } | MountFlags { noatime: true, .. } => {
                AtimePolicy::Never
            }
            MountFlags { strictatime: true, .. } => AtimePolicy::Strict,
            _ => AtimePolicy::Relative,
        };
        Atime { files, folders: if flags.nodiratime { AtimePolicy::Never } else { files } }
    }
}

/// One mount's file system.
pub struct KernelFs {
    client: Arc<Client>,
    executor: Executor,
    direct_io: bool,
    atime: Atime,
    /// The kernel can be told to forget names. Otherwise it must not keep any: each use of one
    /// asks again, and what it is told is right.
    keeps_names: AtomicBool,
}

impl KernelFs {
    /// Serves a client that is connected. With `direct_io` reads bypass the page cache, too.
    pub fn new(client: Arc<Client>, executor: Executor, direct_io: bool, atime: Atime) -> KernelFs {
        KernelFs { client, executor, direct_io, atime, keeps_names: AtomicBool::new(false) }
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
                    atime: self.atime,
                    keeps_names: self.keeps_names.load(Ordering::Relaxed),
                };
                self.executor.spawn(Box::pin(call.run(request, reply)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_decide_what_reading_does() {
        let atime = |options: &str| {
            let mut flags = MountFlags::default();
            assert!(options.split(',').all(|option| flags.set(option)));
            let Atime { files, folders } = Atime::of(&flags);
            (files, folders)
        };
        use AtimePolicy::{Never, Relative, Strict};
        assert_eq!(atime("rw"), (Relative, Relative));
        assert_eq!(atime("relatime,nodiratime"), (Relative, Never));
        assert_eq!(atime("strictatime"), (Strict, Strict));
        assert_eq!(atime("noatime"), (Never, Never));
        assert_eq!(atime("ro,strictatime"), (Never, Never));
    }
}

//! Between the kernel and the client: kernel requests become verbs of the client.
//!
//! Serves the root directory, empty, and the space of the object targets.

use std::sync::Arc;
use std::time::Duration;

use sateen_fuse::{Attr, Filesystem, Op, ROOT_INO, Reply, Request, StatfsOut};
use sateen_osd::ObjectStore;
use sateen_types::Errno;

/// Size of the units that statfs counts in.
const FRAGMENT_BYTES: u64 = 4096;

/// One mount.
pub(crate) struct FuseFs {
    stores: Vec<Arc<dyn ObjectStore>>,
}

impl FuseFs {
    /// A mount over these object stores.
    pub(crate) fn new(stores: Vec<Arc<dyn ObjectStore>>) -> FuseFs {
        FuseFs { stores }
    }

    fn statfs(&self) -> StatfsOut {
        let mut sum = StatfsOut {
            bsize: 1 << 20,
            frsize: FRAGMENT_BYTES as u32,
            namelen: sateen_types::NAME_MAX as u32,
            ..StatfsOut::default()
        };
        for space in self.stores.iter().filter_map(|store| store.statfs().ok()) {
            sum.blocks += space.bytes_total / FRAGMENT_BYTES;
            sum.bfree += space.bytes_free / FRAGMENT_BYTES;
            sum.bavail += space.bytes_avail / FRAGMENT_BYTES;
        }
        sum
    }
}

impl Filesystem for FuseFs {
    fn dispatch(&self, request: Request, mut reply: Reply) {
        let root = Attr { ino: ROOT_INO, mode: 0o40755, nlink: 2, ..Attr::default() };
        match request.op {
            Op::Getattr { .. } => reply.attr(&root, Duration::ZERO),
            Op::Statfs { .. } => reply.statfs(&self.statfs()),
            Op::Opendir { .. } => reply.opened(0, 0),
            Op::Readdir { .. } | Op::Readdirplus { .. } => {
                let entries = reply.dir_buffer();
                reply.directory(entries);
            }
            Op::Releasedir { .. } => reply.ok(),
            Op::Lookup { .. } => reply.error(Errno::ENOENT.raw()),
            _ => reply.error(Errno::ENOSYS.raw()),
        }
    }
}

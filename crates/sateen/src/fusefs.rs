//! Between the kernel and the client: kernel requests become verbs of the client.
//!
//! Serves the root directory, empty, and the space of the targets.

use std::sync::Arc;
use std::time::Duration;

use sateen_client::Client;
use sateen_fuse::{Attr, Filesystem, Op, ROOT_INO, Reply, Request, StatfsOut};
use sateen_reactor::Executor;
use sateen_types::Errno;

/// Size of the units that statfs counts in.
const FRAGMENT_BYTES: u64 = 4096;

/// One mount.
pub(crate) struct FuseFs {
    client: Arc<Client>,
    executor: Executor,
}

impl FuseFs {
    /// A mount of this client.
    pub(crate) fn new(client: Arc<Client>, executor: Executor) -> FuseFs {
        FuseFs { client, executor }
    }

    fn statfs(&self, reply: Reply) {
        let client = self.client.clone();
        self.executor.spawn(Box::pin(async move {
            match client.statfs().await {
                Ok(space) => reply.statfs(&StatfsOut {
                    blocks: space.bytes_total / FRAGMENT_BYTES,
                    bfree: space.bytes_free / FRAGMENT_BYTES,
                    bavail: space.bytes_avail / FRAGMENT_BYTES,
                    files: space.files_total,
                    ffree: space.files_free,
                    bsize: 1 << 20,
                    namelen: sateen_types::NAME_MAX as u32,
                    frsize: FRAGMENT_BYTES as u32,
                }),
                Err(errno) => reply.error(errno.raw()),
            }
        }));
    }
}

impl Filesystem for FuseFs {
    fn dispatch(&self, request: Request, mut reply: Reply) {
        let root = Attr { ino: ROOT_INO, mode: 0o40755, nlink: 2, ..Attr::default() };
        match request.op {
            Op::Getattr { .. } => reply.attr(&root, Duration::ZERO),
            Op::Statfs { .. } => self.statfs(reply),
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

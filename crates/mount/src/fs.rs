//! The file system as the kernel sees it: each request becomes a task of the client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use bytes::Bytes;
use sateen_client::{AtimePolicy, Client, hearing};
use sateen_fuse::{
    Caps, Filesystem, KernelOffer, Look, MountFlags, Op, ROOT_INO, Reply, Request, opcode_name,
};
use sateen_meter::timed;
use sateen_reactor::Executor;
use sateen_types::{Copied, Errno, Fid, copied};

use crate::given::GivenFiles;
use crate::interrupts::{Entered, Interrupts, Sleep, waits_for_lock};
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

/// What is durable when a call has returned, without an fsync.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Durable {
    /// Changes of directories: names made, moved and removed.
    pub names: bool,
    /// Writes, and changes of attributes.
    pub files: bool,
}

impl Durable {
    /// What the flags of a mount ask for. The kernel does nothing for them.
    pub fn of(flags: &MountFlags) -> Durable {
        Durable { names: flags.dirsync || flags.sync, files: flags.sync }
    }
}

/// Those flags of a mount that the kernel leaves to us. A remount may change them.
#[derive(Debug, Default)]
struct Flags(AtomicU8);

impl Flags {
    /// Their places.
    fn places(flags: &mut MountFlags) -> [&mut bool; 6] {
        let MountFlags { read_only, noatime, nodiratime, strictatime, sync, dirsync, .. } = flags;
        [read_only, noatime, nodiratime, strictatime, sync, dirsync]
    }

    fn set(&self, mut flags: MountFlags) {
        let places = Flags::places(&mut flags).into_iter().enumerate();
        let bits = places.fold(0, |bits, (at, flag)| bits | u8::from(*flag) << at);
        self.0.store(bits, Ordering::Relaxed);
    }

    fn get(&self) -> MountFlags {
        let (bits, mut flags) = (self.0.load(Ordering::Relaxed), MountFlags::default());
        for (at, flag) in Flags::places(&mut flags).into_iter().enumerate() {
            *flag = bits & 1 << at != 0;
        }
        flags
    }
}

/// Among whom locks of flock(2) and fcntl(2) hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Locking {
    /// All mounts of the file system. What a program has locked with fcntl(2) goes with any of its
    /// closes only if the file was opened after the first such lock of the mount; else with the last
    /// close of the open. So nobody pays for closes who never locks like that.
    #[default]
    Cluster,
    /// The same, and the kernel tells of every close.
    Exact,
    /// The programs of this mount; the kernel keeps them.
    Local,
    /// There are none: whoever wants one is told `ENOSYS`.
    Refused,
}

impl Locking {
    /// Whether the MDT has them.
    pub(crate) fn is_cluster(self) -> bool {
        matches!(self, Locking::Cluster | Locking::Exact)
    }
}

/// One mount's file system.
pub struct KernelFs {
    client: Arc<Client>,
    executor: Executor,
    direct_io: bool,
    flags: Flags,
    locking: Locking,
    /// Somebody has locked something with fcntl(2).
    fcntl_locks: Arc<AtomicBool>,
    /// Some program has a file that does not wait for groups.
    nonblock: Arc<AtomicBool>,
    /// What the kernel's first inode is.
    root: Fid,
    interrupts: Arc<Interrupts>,
    /// The kernel can be told to forget names. Otherwise it must not keep any: each use of one
    /// asks again, and what it is told is right.
    keeps_names: AtomicBool,
    lookers: Option<Lookers>,
    given: Option<Arc<GivenFiles>>,
}

/// Makes somebody who looks for what requests wait for.
pub type Lookers = Box<dyn Fn() -> Option<Box<dyn Look>> + Send + Sync>;

impl KernelFs {
    /// Serves a client that is connected. With `direct_io` reads bypass the page cache, too.
    pub fn new(client: Arc<Client>, executor: Executor, direct_io: bool) -> KernelFs {
        let keeps_names = AtomicBool::new(false);
        KernelFs {
            client,
            executor,
            direct_io,
            flags: Flags::default(),
            locking: Locking::default(),
            fcntl_locks: Arc::default(),
            nonblock: Arc::default(),
            root: Fid::ROOT,
            interrupts: Interrupts::new(None, false, Executor::default()),
            keeps_names,
            lookers: None,
            given: None,
        }
    }

    /// The same, with somebody for each of the kernel's queues who looks for what requests wait for.
    #[must_use]
    pub fn looking(self, lookers: Lookers) -> KernelFs {
        KernelFs { lookers: Some(lookers), ..self }
    }

    /// The same, whose kernel is given files that it reads and writes itself, if it takes them.
    #[must_use]
    pub fn giving(self, given: Arc<GivenFiles>) -> KernelFs {
        KernelFs { given: Some(given), ..self }
    }

    /// The same, with locks that hold so far.
    #[must_use]
    pub fn locking(self, locking: Locking) -> KernelFs {
        KernelFs { locking, ..self }
    }

    /// Heeds these flags of its mount from now on: what reading does to atimes, and what is durable
    /// when a call has returned.
    pub fn heed(&self, flags: MountFlags) {
        self.flags.set(flags);
    }

    /// The same, of what is below a directory. The client must know it for as long as it is
    /// mounted: it is introduced here.
    #[must_use]
    pub fn below(self, root: Fid) -> KernelFs {
        if root != Fid::ROOT {
            self.client.introduce(root);
        }
        KernelFs { root, ..self }
    }

    /// The same, of a file system whose targets may be gone for hours: programs that wait for
    /// them can be interrupted.
    #[must_use]
    pub fn interruptible(self, sleep: Sleep) -> KernelFs {
        let interrupts = Interrupts::new(Some(sleep), true, self.executor.clone());
        KernelFs { interrupts, ..self }
    }

    /// The same, of one whose targets are always there: programs wait for long only for locks and files
    /// that others have, and that can be interrupted.
    #[must_use]
    pub fn interruptible_locks(self, sleep: Sleep) -> KernelFs {
        let interrupts = Interrupts::new(Some(sleep), false, self.executor.clone());
        KernelFs { interrupts, ..self }
    }

    /// A request whose program may stop waiting for it, if it is one.
    fn serve(&self, call: Call, mut request: Request, mut reply: Reply) {
        let (unique, code) = (request.unique, reply.opcode());
        let long = if waits_for_lock(&request.op) { reply.waits_long() } else { None };
        if long.is_none() && waits_for_lock(&request.op) {
            // The mount would not hear any more of who gives the locks back.
            return reply.error(Errno::ENOLCK.raw());
        }
        let asker = (unique, request.pid);
        let kept = self.interrupts.may_be_given_up(&request.op) || self.client.may_write_again();
        let lends = reply.lends_payload() && kept;
        if let (true, Op::Write { data, .. }) = (lends, &mut request.op) {
            // The kernel gets its memory back with the answer, whoever gives that; and from where
            // the request is entered that may be somebody else. Nor can it be had back from who
            // keeps the bytes beyond the answer.
            copied(Copied::MountWrite, data.len());
            *data = Bytes::copy_from_slice(data);
        }
        let Entered { reply, patience, early, watch } =
            self.interrupts.begin(asker, &request.op, reply);
        let Some(patience) = patience else {
            if !self.interrupts.may_come_late(&request.op) {
                let verb = move || timed(code, opcode_name, call.run(request, long, reply));
                return self.executor.spawn_made(verb);
            }
            let interrupts = self.interrupts.clone();
            let reads = matches!(request.op, Op::Read { .. });
            let enter = move || interrupts.begin_late(asker, reads);
            return self.executor.spawn_made(move || {
                hearing(timed(code, opcode_name, call.run(request, long, reply)), enter)
            });
        };
        if early {
            self.executor.spawn(Box::pin(self.interrupts.clone().look_after(unique)));
        }
        if watch {
            self.executor.spawn(Box::pin(self.interrupts.clone().watch()));
        }
        let interrupts = self.interrupts.clone();
        self.executor.spawn_made(move || async move {
            // Made here, or the task would have room for it twice.
            patience.run(timed(code, opcode_name, call.run(request, long, reply))).await;
            interrupts.end(unique);
        });
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
        let locks = match self.locking {
            Locking::Cluster | Locking::Exact | Locking::Refused => {
                Caps::FLOCK_LOCKS | Caps::POSIX_LOCKS
            }
            Locking::Local => Caps::default(),
        };
        let gives = if self.given.is_some() { Caps::PASSTHROUGH } else { Caps::default() };
        let wanted = offer.recommended() | (ours | locks | gives) & offer.caps;
        wanted - Caps::DO_READDIRPLUS - Caps::READDIRPLUS_AUTO
    }

    fn looker(&self) -> Option<Box<dyn Look>> {
        self.lookers.as_ref().and_then(|looker| looker())
    }

    fn dispatch(&self, mut request: Request, reply: Reply) {
        if self.root != Fid::ROOT {
            request.op.replace_ino(ROOT_INO, self.root.ino());
        }
        match request.op {
            Op::Forget { ino, nlookup } => self.forget(ino, nlookup),
            Op::BatchForget { items } => {
                for (ino, nlookup) in items {
                    self.forget(ino, nlookup);
                }
            }
            Op::Interrupt { unique } => {
                if self.interrupts.is_here(unique) {
                    let look_after = self.interrupts.clone().look_after(unique);
                    self.executor.spawn(Box::pin(look_after));
                }
            }
            _ => {
                let flags = self.flags.get();
                let call = Call {
                    client: self.client.clone(),
                    root: self.root,
                    direct_io: self.direct_io,
                    locking: self.locking,
                    fcntl_locks: self.fcntl_locks.clone(),
                    nonblock: self.nonblock.clone(),
                    given: self.given.clone(),
                    atime: Atime::of(&flags),
                    durable: Durable::of(&flags),
                    keeps_names: self.keeps_names.load(Ordering::Relaxed),
                };
                self.serve(call, request, reply);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_kept_one_by_one() {
        let kept = Flags::default();
        for option in ["ro", "noatime", "nodiratime", "strictatime", "sync", "dirsync", "rw"] {
            let mut flags = MountFlags::default();
            assert!(flags.set(option));
            kept.set(flags);
            assert_eq!(kept.get(), flags, "{option}");
        }
    }

    #[test]
    fn options_decide_what_is_durable_at_once() {
        let durable = |options: &str| {
            let mut flags = MountFlags::default();
            assert!(options.split(',').all(|option| flags.set(option)));
            Durable::of(&flags)
        };
        assert_eq!(durable("rw"), Durable::default());
        assert_eq!(durable("dirsync"), Durable { names: true, files: false });
        assert_eq!(durable("sync"), Durable { names: true, files: true });
        assert_eq!(durable("sync,async"), Durable::default());
    }

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

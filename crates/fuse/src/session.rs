//! A mounted file system: negotiation with the kernel, the threads that serve
//! it, and its end.
//!
//! The life of a session:
//!
//! 1. /dev/fuse is opened and mounted; the kernel sends INIT.
//! 2. INIT is answered with what both sides want.
//! 3. Threads serve requests.
//! 4. The connection ends: unmounted (by us or from outside) or aborted. The
//!    last thread calls [`Filesystem::destroy`]; [`Session::join`] returns.
use crate::Filesystem;
use crate::abi::{self, opcode};
use crate::backing::Backings;
use crate::caps::{Caps, KernelOffer, Limits, init_out};
use crate::classic::{self, Device, Pool};
use crate::mount::{self, MountOptions, Mounted, TransportChoice, UnmountMode};
use crate::notify::{Notifier, write_message};
use crate::queues::{self, NoUring, Prepared};
use crate::ring::QueueShared;
use rustix::io::Errno;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use zerocopy::FromBytes;

/// How long dropping a session waits for its threads before it aborts the
/// connection.
const DROP_WAIT: Duration = Duration::from_secs(2);

/// The transport in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// /dev/fuse.
    Classic,
    /// io_uring.
    Uring,
}

impl Transport {
    /// "classic" or "io_uring".
    pub fn name(self) -> &'static str {
        match self {
            Transport::Classic => "classic",
            Transport::Uring => "io_uring",
        }
    }
}

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// It was unmounted, by [`Session::unmount`] or from outside.
    Unmounted,
    /// The connection was aborted through fusectl.
    Aborted,
    /// Reading from the device failed with this errno.
    Failed(i32),
}

/// Why a file system could not be mounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The device cannot be opened.
    #[error("/dev/fuse cannot be opened: {0} (is the fuse module loaded, and is this root?)")]
    Device(#[source] io::Error),
    /// mount(2) failed.
    #[error("cannot mount at {mountpoint}: {source}")]
    Mount {
        /// Where.
        mountpoint: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The kernel's first message is not what it should be.
    #[error("the kernel's INIT was not understood: {0}")]
    Init(&'static str),
    /// The kernel is too old.
    #[error("the kernel's FUSE protocol 7.{0} is too old: 7.36 (Linux 5.17) is the oldest served")]
    Old(u32),
    /// An option is out of range.
    #[error("option out of range: {0}")]
    Option(&'static str),
    /// io_uring was asked for by name.
    #[error("requests cannot come over io_uring: {0}")]
    Uring(#[from] NoUring),
    /// Talking to the device failed.
    #[error("negotiation with the kernel failed: {0}")]
    Io(#[from] io::Error),
}

/// A mounted file system. Dropping it unmounts.
#[derive(Debug)]
pub struct Session {
    options: MountOptions,
    device: Arc<OwnedFd>,
    notifier: Notifier,
    offer: KernelOffer,
    caps: Caps,
    transport: Transport,
    max_write: u32,
    shared: Arc<Shared>,
}

/// What the threads share with the session.
pub(crate) struct Shared {
    fs: Arc<dyn Filesystem>,
    state: Mutex<State>,
    ended: Condvar,
    mounted: Mounted,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    reason: Option<EndReason>,
    destroyed: bool,
    /// The file system is served by another session, or by none: it does not end with this one.
    given_up: bool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers why the session ends, if that is not known yet.
    fn note(&self, reason: EndReason) {
        let mut state = self.state();
        state.reason = state.reason.or(Some(reason));
    }

    /// Starts a thread of the session; `body` runs until the connection ends
    /// and says why it did, if it served at all.
    pub(crate) fn spawn(
        self: &Arc<Shared>,
        name: String,
        body: impl FnOnce(&dyn Filesystem) -> Option<EndReason> + Send + 'static,
    ) -> io::Result<()> {
        self.state().running += 1;
        let guard = Running { shared: self.clone(), reason: None };
        // If the thread cannot be started, the closure and its guard are dropped.
        thread::Builder::new().name(name).spawn(move || {
            let mut guard = guard;
            guard.reason = body(guard.shared.fs.as_ref());
            if let Some(EndReason::Failed(_)) = guard.reason
                && !guard.shared.state().given_up
                && guard.shared.mounted.is_connected()
            {
                // Requests of a thread that is no more would wait for ever.
                let _ = guard.shared.mounted.unmount(UnmountMode::Force);
            }
        })?;
        Ok(())
    }
}

/// One running thread; counts it off however it ends.
struct Running {
    shared: Arc<Shared>,
    reason: Option<EndReason>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.running -= 1;
        state.reason = state.reason.or(self.reason);
        if state.running == 0 && state.reason.is_some() && !state.given_up {
            drop(state);
            self.shared.fs.destroy();
            self.shared.state().destroyed = true;
            self.shared.ended.notify_all();
        }
    }
}

impl Session {
    /// Mounts `fs` and serves it.
    pub fn mount(options: MountOptions, fs: Arc<dyn Filesystem>) -> Result<Session, MountError> {
        check(&options)?;
        match Session::try_mount(options.clone(), fs.clone()) {
            // The kernel waits for queues that it does not take: another connection has to do without.
            Err(MountError::Uring(why)) if options.transport == TransportChoice::Auto => {
                warn(&why);
                let options = MountOptions { transport: TransportChoice::Classic, ..options };
                Session::try_mount(options, fs)
            }
            result => result,
        }
    }

    fn try_mount(options: MountOptions, fs: Arc<dyn Filesystem>) -> Result<Session, MountError> {
        let file = Arc::new(OwnedFd::from(Device::open().map_err(MountError::Device)?));
        let mounted = mount::mount(&file, &options).map_err(|source| MountError::Mount {
            mountpoint: options.mountpoint.clone(),
            source,
        })?;
        let shared = Arc::new(Shared {
            fs,
            state: Mutex::new(State::default()),
            ended: Condvar::new(),
            mounted,
        });
        Session::start(options, &shared, file).inspect_err(|_| {
            // Nothing serves it: out of the tree with it.
            shared.state().given_up = true;
            let _ = shared.mounted.unmount(UnmountMode::Force);
        })
    }

    fn start(
        options: MountOptions,
        shared: &Arc<Shared>,
        fd: Arc<OwnedFd>,
    ) -> Result<Session, MountError> {
        let page_size = rustix::param::page_size() as u32;
        let max_pages = options.max_pages(page_size);
        let max_write = options.max_write.min(u32::from(max_pages) * page_size);
        let payload = u32::from(max_pages) * page_size;
        let (depth, max_background) = options.depth_for(u64::from(payload));
        let limits = Limits {
            max_write,
            max_readahead: options.max_readahead,
            max_background,
            time_gran: options.time_gran,
            max_pages,
            stack_depth: options.stack_depth,
        };
        let (unique, offer) = read_init(&fd)?;
        let required = Caps::SETXATTR_EXT | Caps::MAX_PAGES | Caps::BIG_WRITES | Caps::INIT_EXT;
        if !offer.caps.contains(required) {
            let absent = "a capability that every kernel since 5.17 has is absent";
            return Err(MountError::Init(absent));
        }
        let wanted = (shared.fs.init(&offer) & offer.caps) | required;
        // Pages under write-back would change without any upcall.
        let caps = wanted - Caps::WRITEBACK_CACHE - Caps::OVER_IO_URING;
        let payload = payload as usize;
        let prepared = match prepare_queues(&options, &offer, shared, &fd, (depth, payload)) {
            Err(why) if options.transport == TransportChoice::Auto => {
                warn(&why);
                None
            }
            prepared => prepared?,
        };
        let caps = if prepared.is_some() { caps | Caps::OVER_IO_URING } else { caps };
        write_message(fd.as_ref(), unique, 0, &[&init_out(&limits, caps)])
            .map_err(|errno| MountError::Io(errno.into()))?;
        // The kernel was promised all of them, and lets no request pass before it has them.
        let (queues, transport) = match prepared.map(Prepared::register) {
            None => (Vec::new(), Transport::Classic),
            Some((queues, Ok(()))) => (queues, Transport::Uring),
            Some((queues, Err(error))) => {
                queues.iter().for_each(|queue| queue.stop());
                return Err(NoUring::Queues(error).into());
            }
        };
        let readers = match transport {
            Transport::Classic => options.threads,
            Transport::Uring => 1,
        };
        start_readers(shared, &fd, readers, payload, &Arc::new(queues)).map_err(MountError::Io)?;
        mount::raise_readahead(&shared.mounted, &options);
        let notifier = Notifier::new(fd.clone());
        let shared = shared.clone();
        Ok(Session { options, device: fd, notifier, offer, caps, transport, max_write, shared })
    }

    /// The way to tell the kernel what is no longer true.
    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }

    /// The way to give the kernel files that it reads and writes itself.
    pub fn backings(&self) -> Backings {
        Backings::new(self.device.clone())
    }

    /// The transport in use.
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// Bytes of the largest request: less than was asked for if the kernel's limit is lower.
    pub fn max_request(&self) -> u32 {
        self.max_write
    }

    /// What the kernel offered.
    pub fn offer(&self) -> KernelOffer {
        self.offer
    }

    /// What was agreed on.
    pub fn caps(&self) -> Caps {
        self.caps
    }

    /// The options it was mounted with.
    pub fn options(&self) -> &MountOptions {
        &self.options
    }

    /// Unmounts. EINVAL says that it is not mounted any more, or that something else was mounted
    /// on top of it; by force it ends then, too, if fusectl can be had.
    pub fn unmount(&self, mode: UnmountMode) -> io::Result<()> {
        if self.ended().is_some() {
            return Ok(());
        }
        self.shared.mounted.unmount(mode)
    }

    /// Why the session ended, if it has.
    pub fn ended(&self) -> Option<EndReason> {
        let state = self.shared.state();
        if state.destroyed { state.reason } else { None }
    }

    /// Waits until the connection has ended and the file system is destroyed.
    pub fn join(&self) -> EndReason {
        self.wait(None).unwrap_or(EndReason::Unmounted)
    }

    /// Like [`Session::join`], but not longer than `timeout`.
    pub fn join_timeout(&self, timeout: Duration) -> Option<EndReason> {
        self.wait(Some(Instant::now() + timeout))
    }

    fn wait(&self, deadline: Option<Instant>) -> Option<EndReason> {
        let mut state = self.shared.state();
        while !state.destroyed {
            state = match deadline {
                None => self.shared.ended.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.checked_duration_since(Instant::now())?;
                    let waited = self.shared.ended.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        state.reason
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.ended().is_some() {
            return;
        }
        if self.unmount(UnmountMode::Clean).is_err() {
            // If that fails too, whoever waits below is told so.
            let _ = self.unmount(UnmountMode::Force);
        }
        if self.join_timeout(DROP_WAIT).is_none() {
            tracing::warn!(
                mountpoint = %self.options.mountpoint.display(),
                "connection still busy after unmounting"
            );
        }
    }
}

/// Says why a mount for which nothing was said is served over /dev/fuse.
fn warn(why: &NoUring) {
    tracing::warn!("serving /dev/fuse: {why}; {}", why.what_to_do());
}

/// The io_uring queues, if they are wanted.
fn prepare_queues(
    options: &MountOptions,
    offer: &KernelOffer,
    shared: &Arc<Shared>,
    fd: &Arc<OwnedFd>,
    (depth, payload): (u32, usize),
) -> Result<Option<Prepared>, NoUring> {
    if options.transport == TransportChoice::Classic {
        return Ok(None);
    }
    if !offer.caps.contains(Caps::OVER_IO_URING) {
        return Err(NoUring::not_offered());
    }
    if payload < mount::PAYLOAD_MIN as usize {
        return Err(NoUring::FewPages);
    }
    queues::prepare(shared, fd, depth, payload).map(Some).map_err(NoUring::Queues)
}

/// Starts the threads that read /dev/fuse; the first to end stops the queues.
fn start_readers(
    shared: &Arc<Shared>,
    fd: &Arc<OwnedFd>,
    count: usize,
    payload: usize,
    queues: &Arc<Vec<Arc<QueueShared>>>,
) -> io::Result<()> {
    let payload = payload.max(mount::PAYLOAD_MIN as usize);
    let pool = Arc::new(Pool::new(payload));
    for index in 0..count {
        let own = match index {
            0 => fd.clone(),
            _ => Arc::new(Device::clone_of(fd)?),
        };
        let device = Arc::new(Device { fd: own, pool: pool.clone() });
        let (session, queues) = (shared.clone(), queues.clone());
        shared.spawn(format!("fuse-{index}"), move |fs| {
            let forgets = !queues.is_empty();
            let reason = classic::serve(&device, fs, payload + abi::HEADER_ROOM, forgets);
            session.note(reason);
            queues.iter().for_each(|queue| queue.stop());
            Some(reason)
        })?;
    }
    Ok(())
}

fn check(options: &MountOptions) -> Result<(), MountError> {
    let page = rustix::param::page_size() as u32;
    if !(page..=mount::REQUEST_MAX).contains(&options.max_write) {
        return Err(MountError::Option("max_write"));
    }
    if !(1..=mount::THREADS_MAX).contains(&options.threads) {
        return Err(MountError::Option("threads"));
    }
    if !(1..=mount::RING_DEPTH_MAX).contains(&options.ring_depth) {
        return Err(MountError::Option("ring_depth"));
    }
    if !(1..=mount::STACK_DEPTH_MAX).contains(&options.stack_depth) {
        return Err(MountError::Option("stack_depth"));
    }
    if options.max_background == 0 {
        return Err(MountError::Option("max_background"));
    }
    Ok(())
}

/// Reads INIT: its number and what the kernel offers.
fn read_init(fd: &OwnedFd) -> Result<(u64, KernelOffer), MountError> {
    // The kernel refuses reads into less than 8 KiB.
    let mut message = vec![0; 2 * abi::HEADER_ROOM];
    let len = loop {
        match rustix::io::read(fd, &mut message) {
            Ok(len) => break len,
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
    };
    let message = message.get(..len).unwrap_or_default();
    let (header, body) = abi::InHeader::read_from_prefix(message)
        .map_err(|_| MountError::Init("shorter than a header"))?;
    if header.opcode != opcode::INIT {
        return Err(MountError::Init("another operation came first"));
    }
    let (major, offer) =
        KernelOffer::decode(body).ok_or(MountError::Init("shorter than its first words"))?;
    if major != abi::MAJOR {
        return Err(MountError::Init("major version is not 7"));
    }
    if offer.minor < abi::MINOR_MIN {
        return Err(MountError::Old(offer.minor));
    }
    Ok((header.unique, offer))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test")]
mod tests {
    use super::*;
    use crate::op::Request;
    use crate::queues::tests::REFUSING;
    use crate::reply::Reply;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    /// Answers everything with an error, and counts its ends.
    #[derive(Default)]
    struct Refusing(AtomicUsize);

    impl Filesystem for Refusing {
        fn dispatch(&self, _: Request, _: Reply) {}

        fn destroy(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The kernel waits for every queue that it was promised: without one of them nobody would
    /// ever be served.
    #[test]
    fn a_mount_with_a_queue_too_few_is_served_over_the_device() {
        if !sateen_testkit::can_mount() {
            return;
        }
        let path = std::env::temp_dir().join(format!("sateen-queue-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        REFUSING.store(true, Ordering::SeqCst);
        let fs = Arc::new(Refusing::default());
        // Who asked for them is told.
        let by_name =
            MountOptions { transport: TransportChoice::Uring, ..MountOptions::new(&path) };
        let refused = Session::mount(by_name, fs.clone());
        assert!(matches!(&refused, Err(MountError::Uring(_))), "{refused:?}");
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0, "nothing is mounted there");
        let session = Session::mount(MountOptions::new(&path), fs.clone()).unwrap();
        REFUSING.store(false, Ordering::SeqCst);
        assert_eq!(session.transport(), Transport::Classic);
        let (sender, answer) = channel();
        let asked = path.join("file");
        thread::spawn(move || sender.send(std::fs::metadata(asked).map(drop)).unwrap());
        let patience = Duration::from_secs(120);
        let answer = answer.recv_timeout(patience);
        if answer.is_err() {
            session.unmount(UnmountMode::Force).unwrap();
        }
        assert!(answer.is_ok_and(|answer| answer.is_err()), "somebody serves it");
        session.unmount(UnmountMode::Clean).unwrap();
        assert!(session.join_timeout(patience).is_some());
        assert_eq!(fs.0.load(Ordering::SeqCst), 1);
        std::fs::remove_dir(&path).unwrap();
    }
}

//! One mount: a client, its port, and the kernel's connection to it.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use sateen_client::{Client, ClientConfig, Connection, Port, Task};
use sateen_fuse::{Caps, MountError, MountFlags, MountOptions, Session};
use sateen_osd_disk::objects::has_leases;
use sateen_reactor::Reactor;
use sateen_types::units::MIB;
use sateen_types::{ClientId, Endpoint, Errno, Fid};
use sateen_wire::TargetInfo;

use super::mgc::Stop;
use super::network::why_silent;
use super::port::{ClientPort, Giving, Stores, ToClient};
use crate::cli::RequestArgs;
use crate::logging;
use crate::refusal::{Outcome, Refusal};
use sateen_mount::{GivenFiles, KernelFs, Locking, Lookers, Sleep};

/// How long connecting to all targets of this process, or saying goodbye to any, may take.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(60);
/// How long connecting to targets elsewhere may take: they may be starting.
const REMOTE_PATIENCE: Duration = Duration::from_secs(5);
/// How long an MDT elsewhere hears nothing of a client at most: 2 s.
const PING_NS: u64 = 2_000_000_000;
/// So much a mount keeps of what programs write for an OST, if nothing else is set, and for all of
/// them together.
const DIRTY_BYTES: u64 = 32 * MIB;
const DIRTY_IN_ALL_BYTES: u64 = 512 * MIB;
/// A file is given to the kernel from this size on. To give a smaller one away, and to take it back, costs
/// more than the requests that are spared.
const GIVEN_BYTES_MIN: u64 = MIB;
/// So much a file system has to keep for root at least, for its files to be given away where nobody asks
/// for that: what is given is written past the room that targets leave for their journals, and who
/// removes something has to write that down.
const RESERVE_BYTES_MIN: u64 = 16 * MIB;
/// What is to be done where programs of an earlier run, which was killed, have files still that the kernel
/// was given.
pub(crate) const LEFT_HINT: &str =
    "end the programs that have used it since before it was killed, and start it again";
/// So often whoever waits looks whether it is still to.
const STOP_LOOK: Duration = Duration::from_millis(100);

/// Whether the kernel is given files that it reads and writes itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passthrough {
    /// It is not, and why, if anybody could expect it.
    Never(&'static str),
    /// If that is possible.
    Perhaps,
    /// Or nothing is mounted.
    Always,
}

/// How to mount.
#[derive(Debug, Clone, Copy)]
pub(crate) struct How {
    /// Nothing but mappings uses the kernel's page cache.
    pub direct_io: bool,
    /// For the only mount of a process.
    pub passthrough: Passthrough,
    /// Among whom flock and fcntl locks hold.
    pub locking: Locking,
    /// The kernel's own flags.
    pub flags: MountFlags,
    /// Over what the kernel's requests come, and how large they may be.
    pub requests: RequestArgs,
    /// Until when servers that do not answer are tried again.
    pub tried_until: Option<Instant>,
}

impl How {
    /// As file systems that users bring along are mounted.
    pub(crate) fn new(direct_io: bool) -> How {
        let (locking, flags) = (Locking::default(), MountOptions::new("/").flags);
        let (requests, passthrough) = (RequestArgs::default(), Passthrough::Never(""));
        How { direct_io, passthrough, locking, flags, requests, tried_until: None }
    }
}

/// A mount. It stays connected until [`Mounted::leave`].
pub(crate) struct Mounted {
    /// The kernel's connection.
    pub session: Session,
    reactor: Arc<Reactor>,
    client: Arc<Client>,
    fs: Arc<KernelFs>,
    port: Arc<ClientPort>,
    /// Why its kernel is given no files; empty if that is no question.
    not_given: String,
    left: Once,
}

impl Mounted {
    /// Connects a new client to the targets of a file system, and mounts it; with somebody who looks
    /// for answers, if they come over a network.
    pub(crate) fn new(
        reactor: &Arc<Reactor>,
        path: &Path,
        (source, targets): (&Source, Targets<'_>),
        (how, lookers, stores, left): (How, Option<Lookers>, Stores, Vec<Fid>),
        stop: &Stop,
    ) -> Outcome<Mounted> {
        let (client, port) = connect(reactor, targets, how.tried_until, stop)?;
        let root = match directory(reactor, &client, &source.below) {
            Ok(root) => root,
            Err(refusal) => {
                say_goodbye(reactor, &client);
                return Err(refusal);
            }
        };
        let mut options = MountOptions::new(path);
        options.fsname.clone_from(&source.shown);
        options.flags = how.flags;
        options.transport = how.requests.transport;
        if let Some(bytes) = how.requests.max_request {
            options.ask_for(bytes);
        }
        let executor = reactor.executor.clone();
        let mut fs =
            KernelFs::new(client.clone(), executor, how.direct_io).below(root).locking(how.locking);
        fs.heed(how.flags);
        if let Some(lookers) = lookers {
            fs = fs.looking(lookers);
        }
        let given = Arc::new(GivenFiles::default());
        let folders: Vec<PathBuf> = stores.values().map(|store| store.folder.clone()).collect();
        // What an earlier run has left open is given in any case.
        // The kernel stacks other file systems less high on a mount that may be given files.
        let may_give = match how.passthrough {
            Passthrough::Never(_) => false,
            Passthrough::Perhaps => without_reserve(&folders).is_none(),
            Passthrough::Always => true,
        };
        let gives = may_give || !left.is_empty();
        client.left_open(left.iter().copied());
        if gives {
            fs = fs.giving(given.clone());
            port.gives(Giving { stores, given: given.clone() });
        }
        let timers = reactor.timers.clone();
        let sleep: Sleep = Arc::new(move |ns| Box::pin(timers.sleep(ns)));
        fs = match targets.elsewhere.is_empty() {
            true => fs.interruptible_locks(sleep),
            false => fs.interruptible(sleep),
        };
        let fs = Arc::new(fs);
        #[cfg(not(test))]
        let served = fs.clone();
        #[cfg(test)]
        let served = Arc::new(super::tests::costs::Counted(fs.clone()));
        let session = Session::mount(options, served).map_err(|error| {
            port.detach();
            say_goodbye(reactor, &client);
            not_mounted(&error)
        })?;
        if !session.offer().has_inc_epoch() {
            tracing::warn!("this kernel lacks FUSE_NOTIFY_INC_EPOCH (7.44): it keeps no names");
        }
        let attached = port.attach(session.notifier(), &session.offer(), root);
        let attached = attached.map_err(|error| Refusal::io("start threads", &error));
        let can_give = || match gives {
            true => can_give(&session, (&given, &folders)),
            false => Ok(()),
        };
        let why_not = attached.and_then(|()| {
            let why_not = why_not(how.passthrough, left.is_empty(), (can_give(), &folders))?;
            if why_not.is_none() {
                client.set_passthrough(Some(GIVEN_BYTES_MIN));
            }
            take_over(reactor, &client, left).map(|()| why_not.unwrap_or_default())
        });
        let not_given = match why_not {
            Ok(why_not) => why_not,
            Err(refusal) => {
                drop(session);
                port.detach();
                say_goodbye(reactor, &client);
                return Err(refusal);
            }
        };
        let left = Once::new();
        Ok(Mounted { session, reactor: reactor.clone(), client, fs, port, not_given, left })
    }

    /// Heeds these flags from now on: it was remounted.
    pub(crate) fn heed(&self, flags: MountFlags) {
        self.fs.heed(flags);
    }

    /// Its client, for whoever has something to tell it.
    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Why its kernel is given no files; `None` if it is, or nobody would expect it.
    pub(crate) fn why_not_given(&self) -> Option<&str> {
        match self.not_given.as_str() {
            "" if self.client.passthrough_min().is_some() && !self.client.gives_files() => {
                Some("switched off with lctl")
            }
            "" => None,
            why_not => Some(why_not),
        }
    }

    /// The mount is gone: the client gives everything back. Returns when it has, whoever
    /// called first.
    pub(crate) fn leave(&self) {
        self.left.call_once(|| {
            self.port.detach();
            say_goodbye(&self.reactor, &self.client);
        });
    }
}

#[cfg(test)]
impl Mounted {
    /// Nothing that is sent to the client arrives, until it hears again.
    pub(crate) fn deafen(&self) {
        self.reactor.router.remove(self.client.endpoint());
    }

    pub(crate) fn hear_again(&self) {
        let receiver = Arc::new(ToClient(self.client.clone()));
        self.reactor.router.add(self.client.endpoint(), receiver);
    }
}

/// Why the kernel is given no files, if it is not, after it was tried whether it takes those of these folders.
///
/// # Errors
/// It has to be given them, and does not take them.
fn why_not(
    wanted: Passthrough,
    none_left: bool,
    (can_give, folders): (Outcome<()>, &[PathBuf]),
) -> Outcome<Option<String>> {
    let refused = match can_give {
        Err(refusal) if !none_left => return Err(Refusal { hint: LEFT_HINT.into(), ..refusal }),
        Err(refusal) if wanted == Passthrough::Always => return Err(refusal),
        Err(refusal) => Some(refusal.what),
        Ok(()) => None,
    };
    let why_not = match wanted {
        Passthrough::Never(why) => return Ok(Some(why.to_owned())),
        Passthrough::Always => None,
        Passthrough::Perhaps => refused.or_else(|| without_reserve(folders)),
    };
    if let Some(why_not) = &why_not {
        tracing::info!("the kernel is given no files: {why_not}");
    }
    Ok(why_not)
}

/// That one of these folders lies where nothing is kept for root, if so.
fn without_reserve(folders: &[PathBuf]) -> Option<String> {
    let too_little =
        |folder: &&PathBuf| root_reserve(folder).is_none_or(|kept| kept < RESERVE_BYTES_MIN);
    let folder = folders.iter().find(too_little)?.display();
    Some(format!("the file system of {folder} keeps no room for root"))
}

/// Bytes that the file system of a folder keeps for root. Of others than ext4 it is not known what the
/// difference of what is free and what is to be had means.
fn root_reserve(folder: &Path) -> Option<u64> {
    const EXT4_SUPER_MAGIC: u64 = 0xef53;
    if u64::try_from(rustix::fs::statfs(folder).ok()?.f_type) != Ok(EXT4_SUPER_MAGIC) {
        return None;
    }
    let space = rustix::fs::statvfs(folder).ok()?;
    let device = rustix::fs::stat(folder).ok()?.st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    // What ext4 keeps for itself is in neither, and root's writes take nothing of it.
    let link = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok();
    let name = link.as_ref().and_then(|link| link.file_name()?.to_str());
    let own = name.and_then(|name| {
        let path = format!("/sys/fs/ext4/{name}/reserved_clusters");
        std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()
    });
    let kept = space.f_bfree.saturating_sub(space.f_bavail);
    Some(kept.saturating_sub(own.unwrap_or(0)).saturating_mul(space.f_frsize))
}

/// What is to be done about a mount that the kernel refuses.
fn not_mounted(error: &MountError) -> Refusal {
    let what = format!("cannot mount: {error}");
    match error {
        MountError::Uring(why) => {
            let hint = "or let it be served over /dev/fuse where there is no io_uring: \
                        transport=auto, which is so without it";
            Refusal::new(what, format!("{}; {hint}", why.what_to_do())).that_lasts()
        }
        _ => Refusal::new(
            what,
            "see whether another FUSE file system can be mounted here; in a container, start it \
             with --device /dev/fuse --cap-add SYS_ADMIN",
        ),
    }
}

/// Files of these folders can be given to the kernel from now on, if it takes them.
fn can_give(session: &Session, (given, folders): (&GivenFiles, &[PathBuf])) -> Outcome<()> {
    let hint = "start it without --passthrough, and with --mount if it was started with it before";
    if !session.caps().contains(Caps::PASSTHROUGH) {
        let lacks = "this kernel lacks FUSE_PASSTHROUGH (Linux 6.9)";
        return Err(Refusal::new(lacks, hint).that_lasts());
    }
    let backings = session.backings();
    for folder in folders {
        let file = nameless(folder).map_err(|error| Refusal::io("make a file", &error))?;
        if !has_leases(&file) {
            // Nobody could say whether a file that was given is mapped still.
            let what = format!("the file system of {} grants no leases", folder.display());
            let needs = "--passthrough needs fcntl(2) with F_SETLEASE";
            return Err(Refusal::new(what, format!("{needs}; {hint}")).that_lasts());
        }
        backings.open(&file).map_err(|error| {
            let what = format!("the kernel takes no files of {}: {error}", folder.display());
            let needs =
                "--passthrough needs CAP_SYS_ADMIN, and a file system that lies over no other";
            Refusal::new(what, format!("{needs}; or {hint}")).that_lasts()
        })?;
    }
    given.attach(backings);
    Ok(())
}

/// Has the kernel given what programs of an earlier run have open or mapped still.
fn take_over(reactor: &Reactor, client: &Arc<Client>, left: Vec<Fid>) -> Outcome<()> {
    for fid in left {
        let taker = client.clone();
        let taken = async move { taker.take_over_left(fid).await };
        match wait_for(reactor, CLIENT_TIMEOUT, taken).unwrap_or(Err(Errno::ETIMEDOUT)) {
            // It had no name any more.
            Ok(()) | Err(Errno::ENOENT | Errno::ESTALE) => {}
            Err(errno) => {
                let what = format!("a program of an earlier run has a file open ({fid}): {errno}");
                return Err(Refusal::new(what, LEFT_HINT));
            }
        }
    }
    let left = client.left_count();
    if left > 0 {
        tracing::warn!(left, "programs of an earlier run have files open or mapped still");
    }
    Ok(())
}

/// A file that goes with its descriptor.
fn nameless(folder: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE.bits().cast_signed();
    File::options().read(true).write(true).mode(0o600).custom_flags(flags).open(folder)
}

/// A client that no mount stands before: its verbs are called from here.
pub(crate) struct Native {
    reactor: Arc<Reactor>,
    client: Arc<Client>,
}

impl Native {
    /// Connects a new client.
    pub(crate) fn new(reactor: &Arc<Reactor>) -> Outcome<Native> {
        let (client, port) = connect(reactor, Targets::default(), None, &Stop::default())?;
        // No kernel believes anything.
        port.detach();
        Ok(Native { reactor: reactor.clone(), client })
    }

    /// A new client that is not connected yet.
    pub(super) fn unconnected(reactor: &Arc<Reactor>, targets: Targets<'_>) -> Native {
        let (client, port) = make(reactor, targets);
        port.detach();
        Native { reactor: reactor.clone(), client }
    }

    pub(super) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Says goodbye.
    pub(super) fn leave(&self) {
        say_goodbye(&self.reactor, &self.client);
    }

    /// Runs verbs of the client to their end; `ETIMEDOUT` if that takes too long.
    ///
    /// # Errors
    /// The verbs'.
    pub(crate) fn run<T: Send + 'static, F>(
        &self,
        verbs: impl FnOnce(Arc<Client>) -> F,
    ) -> sateen_types::Result<T>
    where
        F: Future<Output = sateen_types::Result<T>> + Send + 'static,
    {
        let done = wait_for(&self.reactor, CLIENT_TIMEOUT, verbs(self.client.clone()));
        done.unwrap_or(Err(Errno::ETIMEDOUT))
    }
}

/// What a client is to connect to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Targets<'a> {
    /// Id of the file system; 0 if it is not known.
    pub file_system: u64,
    /// Where they are; empty if all are in this process.
    pub elsewhere: &'a [TargetInfo],
}

/// What is mounted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Source {
    /// As `df` shows it.
    pub shown: String,
    /// The directory of the file system; empty for all of it.
    pub below: String,
}

impl Source {
    /// All of a file system.
    pub(crate) fn all(shown: &str) -> Source {
        Source { shown: shown.to_owned(), below: String::new() }
    }
}

fn say_goodbye(reactor: &Reactor, client: &Arc<Client>) {
    let leaving = client.clone();
    if wait_for(reactor, CLIENT_TIMEOUT, async move { leaving.unmount().await }).is_none() {
        tracing::warn!("the targets did not hear the client's goodbye");
    }
    reactor.router.remove(client.endpoint());
}

/// Why a directory cannot be mounted.
enum Wrong {
    Missing(String),
    NoDirectory(String),
    Failed(Errno),
}

async fn find(client: Arc<Client>, path: String) -> Result<Fid, Wrong> {
    let (mut at, mut walked) = (Fid::ROOT, String::new());
    for name in path.split('/').filter(|name| !name.is_empty()) {
        walked = format!("{walked}/{name}");
        let found = client.lookup(at, name.as_bytes()).await.map_err(Wrong::Failed)?;
        let Some(known) = found.inode else { return Err(Wrong::Missing(walked)) };
        if !known.attr.is_dir() {
            return Err(Wrong::NoDirectory(walked));
        }
        at = known.attr.fid;
    }
    Ok(at)
}

/// The directory at this path of the file system.
fn directory(reactor: &Reactor, client: &Arc<Client>, path: &str) -> Outcome<Fid> {
    if path.is_empty() {
        return Ok(Fid::ROOT);
    }
    match wait_for(reactor, REMOTE_PATIENCE, find(client.clone(), path.to_owned())) {
        Some(Ok(fid)) => Ok(fid),
        Some(Err(Wrong::Missing(path))) => Err(Refusal::new(
            format!("the file system has no directory {path}"),
            "mount all of it and make the directory, or name one that is there",
        )),
        Some(Err(Wrong::NoDirectory(path))) => Err(Refusal::new(
            format!("{path} of the file system is no directory"),
            "name a directory; symbolic links are not followed here",
        )),
        Some(Err(Wrong::Failed(errno))) => {
            Err(Refusal::new(format!("cannot look up {path}: {errno}"), logging::advice()))
        }
        None => Err(Refusal::new(format!("looking up {path} takes too long"), logging::advice())),
    }
}

/// A new client, in this process.
fn make(reactor: &Arc<Reactor>, targets: Targets<'_>) -> (Arc<Client>, Arc<ClientPort>) {
    let port = Arc::new(ClientPort::new(reactor.clone()));
    let id = ClientId(sateen_reactor::random());
    let as_port: Arc<dyn Port> = port.clone();
    let config = ClientConfig { id, file_system: targets.file_system };
    let client = Client::new(config, as_port);
    client.set_dirty_max(DIRTY_BYTES, DIRTY_IN_ALL_BYTES);
    if targets.elsewhere.is_empty() {
        client.set_osts_are_here();
        client.set_closes_first();
    } else {
        client.ping_every(PING_NS);
        client.set_read_ahead_forward(true);
    }
    reactor.router.add(client.endpoint(), Arc::new(ToClient(client.clone())));
    (client, port)
}

/// What comes of a future, unless it takes too long or `stop` is set.
fn receive<T>(from: &Receiver<T>, patience: Duration, stop: &Stop) -> Option<T> {
    let until = Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match from.recv_timeout(left.min(STOP_LOOK)) {
            Ok(done) => return Some(done),
            Err(RecvTimeoutError::Timeout) if !left.is_zero() && !stop.load(Ordering::Relaxed) => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
        }
    }
}

/// A new client, connected to all targets that it needs; they may take until then.
fn connect(
    reactor: &Arc<Reactor>,
    targets: Targets<'_>,
    until: Option<Instant>,
    stop: &Stop,
) -> Outcome<(Arc<Client>, Arc<ClientPort>)> {
    let (client, port) = make(reactor, targets);
    let mounting = client.clone();
    let elsewhere = targets.elsewhere;
    let patience = if elsewhere.is_empty() { CLIENT_TIMEOUT } else { REMOTE_PATIENCE };
    let mount = begin(reactor, async move { mounting.mount().await });
    let mut done = receive(&mount, patience, stop);
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    let told_to_end = || stop.load(Ordering::Relaxed);
    if let (None, Some(left)) = (&done, left.filter(|left| !left.is_zero() && !told_to_end())) {
        let refusal = silent(&client, elsewhere);
        if refusal.may_pass {
            // The same client goes on asking: each new one would be another to the targets.
            tracing::warn!("{}; trying again", refusal.what);
            done = receive(&mount, left, stop);
        }
    }
    let refusal = match done {
        Some(Ok(())) => return Ok((client, port)),
        Some(Err(errno)) => refused(&client, errno),
        None if told_to_end() => Refusal::told_to_end(),
        None => silent(&client, elsewhere),
    };
    reactor.router.remove(client.endpoint());
    Err(refusal)
}

/// The targets without which there can be no client, and whose connection stands like this.
fn needed(client: &Client, how: Connection) -> Vec<Endpoint> {
    let mut all = client.connections();
    all.retain(|(target, now)| *now == how && !matches!(target, Endpoint::Ost(_)));
    all.into_iter().map(|(target, _)| target).collect()
}

fn refused(client: &Client, errno: Errno) -> Refusal {
    match needed(client, Connection::Failed).first() {
        Some(failed) => Refusal::new(
            format!("{failed} has stopped after a disk error"),
            "look at the log of its server and at its disk, and start it again",
        ),
        None => Refusal::new(format!("the client cannot connect: {errno}"), logging::advice()),
    }
}

fn silent(client: &Client, elsewhere: &[TargetInfo]) -> Refusal {
    if let Some(foreign) = needed(client, Connection::Foreign).first() {
        return Refusal::new(
            format!("at the address of {foreign} is a target of another file system"),
            "serve each target where the MGS believes it to be, or give it another --nid",
        );
    }
    let missing = needed(client, Connection::Waiting);
    let found = elsewhere.iter().find(|info| missing.contains(&info.target));
    match (found, missing.first()) {
        (Some(info), _) => Refusal::new(
            format!("{} does not answer ({})", info.target, {
                let nids: Vec<_> = info.nids.iter().collect();
                why_silent(&nids, &info.target.to_string())
            }),
            "see whether its server runs (sateen serve) and listens on that NID",
        )
        .that_may_pass(),
        (None, missing) => Refusal::new(
            match missing {
                Some(missing) => format!("{missing} does not answer"),
                None => "the targets do not answer".to_owned(),
            },
            format!("{}, and at the disk: it may be hanging", logging::advice()),
        ),
    }
}

/// Runs a future to its end; `None` if that takes too long. Not for threads of a run loop.
pub(super) fn wait_for<T: Send + 'static>(
    reactor: &Reactor,
    patience: Duration,
    future: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    begin(reactor, future).recv_timeout(patience).ok()
}

/// Runs a future; what comes of it is received.
fn begin<T: Send + 'static>(
    reactor: &Reactor,
    future: impl Future<Output = T> + Send + 'static,
) -> Receiver<T> {
    let (sender, receiver) = channel();
    let sender = Mutex::new(sender);
    let task: Task = Box::pin(async move {
        let result = future.await;
        // Nobody listens any more only after a timeout.
        let _ = sender.lock().unwrap_or_else(PoisonError::into_inner).send(result);
    });
    reactor.executor.spawn(task);
    receiver
}

#[cfg(test)]
mod tests {
    use sateen_fuse::NoUring;

    use super::*;

    #[test]
    fn who_asked_for_io_uring_is_told_why_not_and_what_to_do() {
        let eperm = io::Error::from(rustix::io::Errno::PERM);
        for (why, words) in [
            (NoUring::SwitchedOff, ["EOPNOTSUPP", "enable_uring"]),
            (NoUring::Absent, ["EOPNOTSUPP", "Linux 6.14"]),
            (NoUring::FewPages, ["EINVAL", "sysctl fs.fuse.max_pages_limit"]),
            (NoUring::Queues(eperm), ["os error 1", "sysctl kernel.io_uring_disabled=0"]),
        ] {
            let refusal = not_mounted(&why.into());
            let said = refusal.to_string();
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
            assert!(said.contains("transport=auto") && refusal.lasts, "{said}");
        }
    }
}

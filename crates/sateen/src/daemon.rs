//! The serving process: from the mount's first answer to the last checkpoint.
//!
//! The main thread waits for one of these, and acts on them one after the other: a command on the
//! control socket, a signal, mounts that are out of the tree and whose servers are gone, a mount
//! that ended. A mount that is lost from outside (umount) is reported; with the last one gone the
//! process ends in good order. One without mounts serves clients elsewhere.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sateen_client::ImportInfo;
use sateen_fuse::{EndReason, MountFlags, UnmountMode};
use sateen_types::units::format_size;
use sateen_types::{Endpoint, Name, Nid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cluster;
use crate::control::{self, Answer, Command};
use crate::data_dir::DataDir;
use crate::guard::{Guard, Guarded};
use crate::node::mgc::Stop;
use crate::node::{How, Keeper, LEFT_HINT, Mounted, Node, Passthrough};
use crate::params::{Param, Shown, fits, reaches};
use crate::refusal::{Outcome, Refusal};
use crate::report::{MountReport, Report};
use crate::state::{self, Ended, State};
use crate::up::NO_PASSTHROUGH;
use crate::{mounts, notify};

/// How long an aborted connection may take to end.
const ABORT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the connection of a mount that somebody else has unmounted may take to end.
const GONE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long nobody answers a mount that is out of the tree until those who are in it get errors.
const FORSAKEN_AFTER: Duration = Duration::from_secs(8);
/// How often is looked whether that is so.
const FORSAKEN_LOOK: Duration = Duration::from_secs(1);
/// How long the caller of `down` may take to read its answer.
const ANSWER_GRACE: Duration = Duration::from_secs(2);

/// From when on after the first signal a second one is another. timeout(1) sends its signal twice,
/// to its child and to its group; and a terminal that closes SIGHUP, by its shell and by the kernel,
/// at any time.
const SECOND_SIGNAL: Duration = Duration::from_secs(1);

/// What the main thread waits for.
enum Event {
    /// Unmount and end; the answer goes back once it is done.
    Down { force: bool, caller: Caller },
    /// SIGTERM, SIGINT or SIGHUP.
    Signal(i32),
    /// Mounts are all out of the tree (umount -l), and no MDT is there.
    Forsaken,
    /// A mount ended.
    Ended { mount: usize, reason: EndReason },
}

/// Whoever asked for the end, on the control thread.
struct Caller {
    answer: Sender<Answer>,
    /// Closed once the answer has been written to the socket.
    written: Receiver<()>,
}

/// A mount and whether it is still there.
struct Mount {
    path: PathBuf,
    /// Its device, by which it is found wherever it is moved to.
    device: Option<(u32, u32)>,
    mounted: Arc<Mounted>,
    /// Ended, and not because we wanted it to.
    lost: bool,
    /// Goes after the mount itself.
    guarded: Option<Arc<Guarded>>,
}

impl Mount {
    /// What it is to whoever asks.
    fn state(&self) -> &'static str {
        match self.lost {
            true => "lost",
            // Out of the tree, but somebody is still in it (umount -l).
            false if !mounts::is_mounted(&self.path) => "detached",
            false => "mounted",
        }
    }

    /// Whether it is in the tree, be it moved, or under something else.
    fn is_somewhere(&self) -> bool {
        let by_path = || mounts::is_mounted(&self.path);
        self.device.map_or_else(by_path, mounts::has_device)
    }

    /// Whether it is out of the tree, with somebody in it, and no MDT answers him.
    fn is_forsaken(&self) -> bool {
        use sateen_client::ImportState::{Full, Recovering};
        let is_mdt = |import: &ImportInfo| matches!(import.target, Endpoint::Mdt(_));
        let imports = self.mounted.client().imports();
        let mut mdts = imports.iter().filter(|import| is_mdt(import));
        mdts.all(|mdt| !matches!(mdt.state, Full | Recovering)) && !self.is_somewhere()
    }

    /// Unmounts it; its path if it is in use, or does not end although it must.
    fn end(&mut self, force: bool) -> Result<(), PathBuf> {
        let session = &self.mounted.session;
        let detached = match session.unmount(UnmountMode::Clean) {
            Ok(()) => false,
            // Somebody else's umount was first, and the connection is about to end.
            Err(error) if is_gone(&error) && session.join_timeout(GONE_TIMEOUT).is_some() => false,
            Err(_) if !force => return Err(self.path.clone()),
            Err(_) => {
                tracing::warn!(mount = %self.path.display(), "in use; programs will get errors");
                let forced = session.unmount(UnmountMode::Force);
                if let Err(error) = &forced {
                    tracing::warn!(%error, mount = %self.path.display(), "cannot unmount");
                }
                forced.is_err_and(|error| is_gone(&error))
            }
        };
        // A mount that is out of the tree already cannot be ended from here where fusectl is not to
        // be had: its connection ends with this process.
        if !detached && session.join_timeout(ABORT_TIMEOUT).is_none() {
            return Err(self.path.clone());
        }
        self.mounted.leave();
        Ok(())
    }
}

/// Why not everything could be unmounted.
struct Busy {
    /// Programs use this one.
    mount: PathBuf,
    /// These were unmounted before.
    unmounted: Vec<PathBuf>,
}

/// Whether a mount could not be unmounted because it is out of the tree.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::InvalidInput
}

/// What the control thread shows.
struct Shared {
    data: DataDir,
    started: Instant,
    mounts: Mutex<Vec<Mount>>,
    node: Mutex<Option<Node>>,
    fsname: String,
}

/// A running node with its mounts and its control socket.
pub(crate) struct Server {
    shared: Arc<Shared>,
    state: State,
    events: Receiver<Event>,
    /// Of its mounts, if it has any.
    guard: Option<Guard>,
    /// Why it is to end at once, if it is.
    unwanted: Option<String>,
}

/// What is to be said where the kernel sends smaller requests than it was asked for.
fn smaller_requests(path: &Path, (asked, sent): (u32, u32), limit: Option<u32>) -> Option<String> {
    if sent >= asked {
        return None;
    }
    let [asked_for, sent] = [asked, sent].map(|bytes| format_size(bytes.into()));
    let pages = asked.div_ceil(rustix::param::page_size() as u32);
    let what_to_do = match limit {
        Some(_) => format!("before it is mounted, as root: sysctl fs.fuse.max_pages_limit={pages}"),
        None => "a larger one needs Linux 6.13".to_owned(),
    };
    let path = path.display();
    Some(format!(
        "{path}: the kernel's requests have {sent} at most, not {asked_for}; {what_to_do}"
    ))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn report(&self) -> Report {
        let mounts = lock(&self.mounts);
        let transport =
            mounts.first().map(|mount| mount.mounted.session.transport().name().to_owned());
        let mounts: Vec<MountReport> = mounts
            .iter()
            .map(|mount| MountReport {
                path: mount.path.clone(),
                state: mount.state().to_owned(),
                transport: mount.mounted.session.transport().name().to_owned(),
                max_request_bytes: u64::from(mount.mounted.session.max_request()),
                passthrough: mount.mounted.client().gives_files(),
                not_given: mount.mounted.why_not_given().map(str::to_owned),
                left_open: mount.mounted.client().left_count() as u64,
            })
            .collect();
        let targets = lock(&self.node).as_ref().map(Node::report);
        Report {
            running: true,
            pid: Some(std::process::id()),
            fsname: self.fsname.clone(),
            data: self.data.path().to_owned(),
            mount: mounts.first().map(|mount| mount.path.clone()),
            mounts,
            transport,
            uptime_s: self.started.elapsed().as_secs(),
            targets: targets.unwrap_or_default(),
            ended: None,
        }
    }
}

impl Server {
    /// Starts the node, mounts, and returns when every mount has answered. A signal sets `told`,
    /// which nothing else does, and what the node is given that waits for others to start; nothing
    /// is mounted then.
    pub(crate) fn start(
        data: DataDir,
        node: impl FnOnce(&Stop) -> Outcome<Node>,
        points: Vec<PathBuf>,
        how: How,
        told: &Stop,
    ) -> Outcome<Server> {
        let (sender, events) = channel();
        // The node's own end sets it, too.
        let stop = Stop::default();
        watch_signals(sender.clone(), [told.clone(), stop.clone()])?;
        let node = node(&stop)?;
        if told.load(Ordering::Relaxed) {
            node.close()?;
            return Err(Refusal::told_to_end());
        }
        if points.len() > 1 && !node.left_open()?.is_empty() {
            node.close()?;
            // Mounts do not hear of what others' kernels write.
            let what =
                "programs of an earlier run have files open still, which only one mount can have";
            return Err(Refusal::new(what, LEFT_HINT));
        }
        let guard = if points.is_empty() { None } else { Some(Guard::start(&data, &points)?) };
        let mut mounts = Vec::new();
        for (place, path) in points.into_iter().enumerate() {
            let mounted = Arc::new(node.mount(&path, how)?);
            let device = mounts::device_of(&path);
            let guarded = guard.as_ref().zip(device).map(|(guard, at)| guard.watch(place, at));
            mounts.push(Mount { path: path.clone(), device, mounted, lost: false, guarded });
            // The first answer; from here on the mount works for everybody.
            std::fs::metadata(&path).map_err(|error| {
                Refusal::io(format!("use the mount {}", path.display()), &error)
            })?;
        }
        let first = mounts.first().map(|mount| mount.mounted.session.transport().name());
        let state = State {
            pid: std::process::id(),
            mounts: mounts.iter().map(|mount| mount.path.clone()).collect(),
            transport: first.unwrap_or_default().to_owned(),
            data: data.path().canonicalize().unwrap_or_else(|_| data.path().to_owned()),
            direct_io: how.direct_io,
            passthrough: how.passthrough == Passthrough::Always,
            no_passthrough: how.passthrough == Passthrough::Never(NO_PASSTHROUGH),
            gives: mounts.iter().any(|mount| mount.mounted.client().gives_files()),
            options: Vec::new(),
            ended: None,
        };
        let shared = Arc::new(Shared {
            data,
            started: Instant::now(),
            mounts: Mutex::new(mounts),
            fsname: node.fsname().to_owned(),
            node: Mutex::new(Some(node)),
        });
        // A disk may be full of what can be removed through the mount only.
        save(&state, &shared.data);
        let server = Server { shared, state, events, guard, unwanted: None };
        if let Err(refusal) = server.watch(&sender) {
            // What the threads hold would stay in the tree when they end with the process.
            return Err(server.give_up(refusal));
        }
        let State { mounts, transport, .. } = &server.state;
        if !mounts.is_empty() {
            tracing::info!(?mounts, transport, "serving");
        }
        server.remarks().iter().for_each(|remark| tracing::warn!("{remark}"));
        Ok(server)
    }

    /// Starts what tells the main thread of things.
    fn watch(&self, sender: &Sender<Event>) -> Outcome<()> {
        for (index, mount) in lock(&self.shared.mounts).iter().enumerate() {
            let (mounted, guarded) = (mount.mounted.clone(), mount.guarded.clone());
            watch_mount(index, mounted, guarded, sender.clone())?;
        }
        watch_forsaken(self.shared.clone(), sender.clone())?;
        watch_control(self.shared.clone(), sender.clone())
    }

    /// Ends a start that has failed with everything mounted.
    fn give_up(self, why: Refusal) -> Refusal {
        tracing::error!("it does not start: {}", why.what);
        self.unmount_forced();
        if let Err(refusal) = self.close() {
            tracing::warn!("{}", refusal.what);
        }
        if let Some(guard) = self.guard {
            guard.dismiss();
        }
        why
    }

    /// Notes the options that its mount was made with, for whoever remounts it.
    pub(crate) fn made_with(&mut self, options: Vec<String>) {
        self.state.options = options;
        save(&self.state, &self.shared.data);
    }

    /// The data folder.
    pub(crate) fn data(&self) -> &DataDir {
        &self.shared.data
    }

    /// What the user is told when it runs.
    pub(crate) fn greeting(&self) -> String {
        let mounts: Vec<String> =
            self.state.mounts.iter().map(|path| path.display().to_string()).collect();
        let targets = lock(&self.shared.node).as_ref().map_or(0, |node| node.report().len());
        let targets = if targets > 0 { format!("{targets} targets, ") } else { String::new() };
        format!(
            "{} is mounted on {} ({targets}{}, process {})",
            self.shared.fsname,
            mounts.join(" and "),
            self.state.transport,
            self.state.pid
        )
    }

    /// What else the user is told: what he has asked for and does not get.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let mounts = lock(&self.shared.mounts);
        let sessions = mounts.iter().map(|mount| (&mount.path, &mount.mounted.session));
        let all = sessions.filter_map(|(path, session)| {
            let size = (session.options().max_write, session.max_request());
            smaller_requests(path, size, sateen_fuse::max_pages_limit())
        });
        all.collect()
    }

    /// It is to end in good order as soon as it runs.
    pub(crate) fn is_unwanted(&mut self, why: &str) {
        self.unwanted = Some(why.to_owned());
    }

    /// Serves until it is told to end, or the last mount is gone.
    pub(crate) fn run(mut self) -> Outcome<()> {
        let (why, caller) = self.wait();
        tracing::info!("ending: {why}");
        notify::tell("STOPPING=1");
        let closed = self.close();
        if let Some(guard) = self.guard {
            guard.dismiss();
        }
        let failed = closed.as_ref().err().map(|refusal| refusal.what.clone());
        self.state.ended = Some(Ended { at: state::now(), why, failed });
        save(&self.state, &self.shared.data);
        control::remove(&self.shared.data);
        if let Some(caller) = caller {
            let answer = match &closed {
                Ok(()) => Answer::Down,
                Err(Refusal { what, hint, .. }) => {
                    Answer::Failed { what: what.clone(), hint: hint.clone() }
                }
            };
            // The control thread carries it to the caller, unless that has gone away; the
            // process must not end before.
            if caller.answer.send(answer).is_ok() {
                let _ = caller.written.recv_timeout(ANSWER_GRACE);
            }
        }
        closed
    }

    /// Waits for the reason to end. Everything is unmounted then.
    fn wait(&mut self) -> (String, Option<Caller>) {
        if let Some(why) = self.unwanted.take() {
            self.unmount_forced();
            return (why, None);
        }
        while let Ok(event) = self.events.recv() {
            match event {
                Event::Down { force, caller } => match self.unmount_all(force) {
                    Ok(()) => return ("it was told to (sateen down)".to_owned(), Some(caller)),
                    Err(Busy { mount, unmounted }) => {
                        // A caller that has gone away needs no answer.
                        let _ = caller.answer.send(Answer::Busy { mount, unmounted });
                    }
                },
                Event::Signal(signal) => {
                    self.unmount_forced();
                    return (format!("signal {}", signal_name(signal)), None);
                }
                Event::Forsaken => {
                    let why = "it was unmounted while in use, and its servers do not answer";
                    tracing::warn!("{why}; programs will get errors");
                    for mount in lock(&self.shared.mounts).iter().filter(|mount| !mount.lost) {
                        // Where that cannot be done from here, the end of this process does it.
                        let _ = mount.mounted.session.unmount(UnmountMode::Force);
                    }
                    return (why.to_owned(), None);
                }
                Event::Ended { mount, reason } => {
                    if let Some(why) = self.mount_ended(mount, reason) {
                        return (why, None);
                    }
                }
            }
        }
        ("internal error: nobody can tell it anything any more".to_owned(), None)
    }

    /// A mount ended by itself. Returns why to end if it was the last.
    fn mount_ended(&mut self, index: usize, reason: EndReason) -> Option<String> {
        let mut mounts = lock(&self.shared.mounts);
        let mount = mounts.get_mut(index)?;
        mount.lost = true;
        let how = match reason {
            EndReason::Unmounted => "was unmounted from outside".to_owned(),
            EndReason::Aborted => "was aborted from outside".to_owned(),
            EndReason::Failed(errno) => {
                format!("failed: {}", io::Error::from_raw_os_error(errno))
            }
        };
        let what = format!("the mount {} {how}", mount.path.display());
        // An umount is how a mount is meant to end.
        match reason {
            EndReason::Unmounted => tracing::info!("{what}"),
            EndReason::Aborted | EndReason::Failed(_) => tracing::warn!("{what}"),
        }
        mounts.iter().all(|mount| mount.lost).then_some(what)
    }

    /// Unmounts everything, up to the first mount that is in use, if not forced.
    fn unmount_all(&self, force: bool) -> Result<(), Busy> {
        let mut mounts = lock(&self.shared.mounts);
        let mut unmounted = Vec::new();
        let mut busy = None;
        for mount in mounts.iter_mut().filter(|mount| !mount.lost) {
            let was_there = mounts::is_mounted(&mount.path);
            match mount.end(force) {
                Ok(()) if was_there => unmounted.push(mount.path.clone()),
                Ok(()) => {}
                Err(mount) => {
                    busy.get_or_insert(mount);
                    // What must end must not wait for another that does not.
                    if !force {
                        break;
                    }
                }
            }
        }
        busy.map_or(Ok(()), |mount| Err(Busy { mount, unmounted }))
    }

    fn unmount_forced(&self) {
        if let Err(Busy { mount, .. }) = self.unmount_all(true) {
            tracing::warn!(mount = %mount.display(), "still busy, left behind");
        }
    }

    fn close(&self) -> Outcome<()> {
        // Also of a mount that would not end: what it keeps of programs' writes is for the OSTs of this
        // process, too, which are about to end.
        for mount in lock(&self.shared.mounts).iter() {
            mount.mounted.leave();
        }
        let node = lock(&self.shared.node).take();
        node.map_or(Ok(()), Node::close)
    }
}

/// Nothing depends on the file but what is told later.
fn save(state: &State, data: &DataDir) {
    if let Err(error) = state.save(data) {
        tracing::warn!(%error, "cannot write state.json");
    }
}

fn signal_name(signal: i32) -> &'static str {
    signal_hook::low_level::signal_name(signal).unwrap_or("?")
}

fn thread(name: &str, body: impl FnOnce() + Send + 'static) -> Outcome<()> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(body);
    started.map(drop).map_err(|error| Refusal::io("start a thread", &error))
}

/// Whether somebody means a signal that comes so long after the first.
fn is_meant(signal: i32, after: Duration) -> bool {
    signal != SIGHUP && after >= SECOND_SIGNAL
}

/// The first signal ends it in good order, a second one at once, if somebody means it.
fn watch_signals(events: Sender<Event>, stops: [Stop; 2]) -> Outcome<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])
        .map_err(|error| Refusal::io("take signals", &error))?;
    thread("signals", move || {
        let mut first: Option<Instant> = None;
        for signal in signals.forever() {
            match first {
                None => {
                    first = Some(Instant::now());
                    stops.iter().for_each(|stop| stop.store(true, Ordering::Relaxed));
                    // Without a main thread there is nothing left to end.
                    let _ = events.send(Event::Signal(signal));
                }
                Some(first) if is_meant(signal, first.elapsed()) => {
                    tracing::error!("a second signal: ending at once, as in a crash");
                    std::process::exit(1);
                }
                Some(_) => {}
            }
        }
    })
}

fn watch_mount(
    mount: usize,
    mounted: Arc<Mounted>,
    guarded: Option<Arc<Guarded>>,
    events: Sender<Event>,
) -> Outcome<()> {
    thread("mount", move || {
        let reason = mounted.session.join();
        if let Some(guarded) = guarded {
            guarded.over();
        }
        mounted.leave();
        // The main thread may have ended first, having unmounted it.
        let _ = events.send(Event::Ended { mount, reason });
    })
}

/// Looks whether all mounts are out of the tree, and nobody answers.
fn watch_forsaken(shared: Arc<Shared>, events: Sender<Event>) -> Outcome<()> {
    if lock(&shared.mounts).is_empty() {
        return Ok(());
    }
    thread("forsaken", move || {
        let mut since = Instant::now();
        loop {
            std::thread::sleep(FORSAKEN_LOOK);
            let mounts = lock(&shared.mounts);
            let mut left = mounts.iter().filter(|mount| !mount.lost).peekable();
            if left.peek().is_none() {
                return;
            }
            if !left.all(Mount::is_forsaken) {
                since = Instant::now();
            } else if since.elapsed() >= FORSAKEN_AFTER {
                // The main thread may be ending already.
                let _ = events.send(Event::Forsaken);
                return;
            }
        }
    })
}

fn watch_control(shared: Arc<Shared>, events: Sender<Event>) -> Outcome<()> {
    let listener = control::listen(&shared.data)
        .map_err(|error| Refusal::io("make the control socket", &error))?;
    thread("control", move || {
        for stream in listener.incoming() {
            let mut writing = None;
            let served = stream.and_then(|stream| {
                let answer = |command| answer(&shared, &events, command, &mut writing);
                control::serve_one(stream, answer)
            });
            drop(writing);
            if let Err(error) = served {
                tracing::debug!(%error, "a command was not understood");
            }
        }
    })
}

/// Answers `lctl`.
fn for_lctl(shared: &Shared, command: Command) -> Answer {
    let ending = || Answer::Failed {
        what: "it is ending".to_owned(),
        hint: "start it again first".to_owned(),
    };
    if let Command::KeepParam { pattern, value } = command {
        // Not under the lock: the MGS may take its time, and the node shall be able to end.
        let keeper = lock(&shared.node).as_ref().map(Node::keeper);
        return keeper.map_or_else(ending, |keeper| keep(&keeper, &pattern, value.as_deref()));
    }
    let node = lock(&shared.node);
    let Some(node) = node.as_ref() else { return ending() };
    let devices = node.devices();
    match command {
        Command::Devices => Answer::Devices(devices.list()),
        Command::Nids => Answer::Nids(node.nids().iter().map(Nid::to_string).collect()),
        Command::Links => {
            let (nets, peers) = node.links();
            Answer::Links { nets, peers }
        }
        Command::SetParam { pattern, value } => Answer::Set(devices.set(&pattern, &value)),
        Command::Params { pattern, below } => {
            let mut all = devices.params();
            let is_meant = if below { reaches } else { fits };
            all.retain(|param| pattern.as_deref().is_none_or(|p| is_meant(p, &param.name)));
            let shown = |param: Param<'_>| Shown {
                value: pattern.is_some().then(|| param.value()),
                writable: param.writable(),
                is_link: param.is_link,
                name: param.name,
            };
            Answer::Params(all.into_iter().map(shown).collect())
        }
        Command::Status
        | Command::Look
        | Command::Down { .. }
        | Command::Remounted { .. }
        | Command::KeepParam { .. } => ending(),
    }
}

fn keep(keeper: &Keeper, pattern: &str, value: Option<&str>) -> Answer {
    let name = |text: &str| Name::new(text.as_bytes());
    let (Ok(name), Ok(value)) = (name(pattern), value.map(name).transpose()) else {
        return Answer::Failed {
            what: format!("{pattern:?} or its value cannot be kept"),
            hint: "names and values have 1 to 255 bytes, and no slashes".to_owned(),
        };
    };
    match keeper.keep(name, value) {
        Ok(()) => Answer::Kept,
        Err(Refusal { what, hint, .. }) => Answer::Failed { what, hint },
    }
}

/// Answers who has remounted something.
fn heed(shared: &Shared, point: &Path, options: &[String]) -> Answer {
    let mut flags = MountFlags::default();
    // Others are the kernel's alone.
    for option in options {
        flags.set(option);
    }
    match lock(&shared.mounts).iter().find(|mount| mount.path == point) {
        Some(mount) => {
            tracing::info!(mount = %point.display(), ?flags, "remounted");
            mount.mounted.heed(flags);
            Answer::Heeded
        }
        None => Answer::Failed {
            what: format!("it has not mounted {}", point.display()),
            hint: "name the mount point as findmnt does".to_owned(),
        },
    }
}

/// Answers who asks for the whole file system.
fn look(shared: &Shared) -> Answer {
    let client = lock(&shared.mounts).first().map(|mount| mount.mounted.client().clone());
    let looker = client.and_then(|client| Some(lock(&shared.node).as_ref()?.looker(client)));
    // Not under the lock: targets may take their time, and the node shall be able to end.
    match looker {
        Some(looker) => Answer::Targets(looker.look().iter().map(cluster::row).collect()),
        None => Answer::Failed {
            what: "it has nothing mounted".to_owned(),
            hint: "name a mount, or the MGS and the file system".to_owned(),
        },
    }
}

/// Answers a command. `writing` is to be dropped when the answer has been written.
fn answer(
    shared: &Shared,
    events: &Sender<Event>,
    command: Command,
    writing: &mut Option<Sender<()>>,
) -> Answer {
    match command {
        Command::Status => Answer::Status(shared.report()),
        Command::Look => look(shared),
        Command::Remounted { point, options } => heed(shared, &point, &options),
        Command::Devices
        | Command::Nids
        | Command::Links
        | Command::Params { .. }
        | Command::SetParam { .. }
        | Command::KeepParam { .. } => for_lctl(shared, command),
        Command::Down { force } => {
            let (answer, answered) = channel();
            let (open, written) = channel();
            *writing = Some(open);
            let asked = events.send(Event::Down { force, caller: Caller { answer, written } });
            match asked.map(|()| answered.recv()) {
                Ok(Ok(answer)) => answer,
                _ => Answer::Ending,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_comes_twice_is_one() {
        let [at_once, later] = [20, 1500].map(Duration::from_millis);
        for signal in [SIGTERM, SIGINT] {
            assert!(!is_meant(signal, at_once) && is_meant(signal, later));
        }
        assert!(!is_meant(SIGHUP, at_once) && !is_meant(SIGHUP, later));
    }

    #[test]
    fn smaller_requests_are_said_with_what_makes_them_larger() {
        let said = |asked, sent, limit| smaller_requests(Path::new("/mnt"), (asked, sent), limit);
        assert_eq!(said(4 << 20, 4 << 20, Some(1024)), None);
        assert_eq!(said(4 << 20, 16 << 20, None), None);
        let text = said(4 << 20, 1 << 20, Some(256)).unwrap();
        assert!(text.starts_with("/mnt: ") && text.contains("1.0M at most, not 4.0M"), "{text}");
        assert!(text.contains("fs.fuse.max_pages_limit="), "{text}");
        assert!(said(4 << 20, 1 << 20, None).unwrap().contains("Linux 6.13"));
    }
}

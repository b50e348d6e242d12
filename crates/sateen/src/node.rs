//! What one process runs on one reactor: targets, clients, or both.
//!
//! | made by | runs |
//! |---|---|
//! | [`Node::embedded`] | a whole file system: all its targets, and clients, in one process |
//! | [`Node::serve`] | some targets of a file system, for clients elsewhere: see `serving` |
//! | [`Node::remote`] | clients of targets elsewhere |
//!
//! Life: it is made, which recovers every target and registers it with the MGS;
//! [`Node::mount`] makes a client and mounts it; [`Node::close`] makes everything durable and
//! ends. A process that dies anywhere in between is a crash, which the journals are for.

pub(crate) mod backend;
mod copies;
pub(crate) mod devices;
mod drops;
mod ending;
mod look;
pub(crate) mod mgc;
mod mounted;
mod network;
mod open_files;
mod port;
mod serving;
#[cfg(test)]
mod tests;
mod timers;
mod turns;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sateen_client::Client;
use sateen_mdt::{CALLBACK_LIMIT_NS, Mdt, MdtConfig};
use sateen_mgs::{FileSystem, Mgs};
use sateen_osd::{ObjectStore, Store};
use sateen_osd_disk::folder::TargetFolder;
use sateen_osd_disk::objects::ObjectOptions;
use sateen_ost::Ost;
use sateen_reactor::{HostError, HostParts, Reactor, TargetHost};
use sateen_target::{CoreConfig, Ending, Label, Outbox};
use sateen_types::{Endpoint, Fid, Name, Nid, StripePolicy, Timestamp};
use sateen_wire::{FsName, ParamInfo, StatFs, TargetInfo};

use self::backend::Opened;
use self::devices::{Devices, Naming, Shows};
pub(crate) use self::look::Seen;
use self::mgc::{Mgc, Stop};
use self::mounted::Targets;
pub(crate) use self::mounted::{How, Mounted, Native, Source};
pub(crate) use self::mounted::{LEFT_HINT, Passthrough};
use self::network::Network;
pub(crate) use self::network::{ping, set_ways};
use self::port::{OstFiles, Stores};
use self::serving::{Follower, MOUNT_PATIENCE};
use crate::logging;
use crate::params::{Device, NetShown, Param, PeerShown};
use crate::refusal::{Outcome, Refusal};
use crate::report::TargetReport;
use crate::targets::{FSNAME, Target};

/// How long the MGS of the same process may take for one answer; its disk may be busy.
const LOCAL_PATIENCE: Duration = Duration::from_secs(30);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Clients in this process, which are told of targets that come later.
#[derive(Default)]
struct Clients {
    all: Vec<Weak<Client>>,
    /// What they were told last: one that comes later may have asked the MGS before that.
    told: Vec<TargetInfo>,
}

impl Clients {
    fn add(&mut self, client: &Arc<Client>) {
        client.learn(&self.told);
        self.all.push(Arc::downgrade(client));
    }

    fn learn(&mut self, targets: &[TargetInfo]) {
        self.told = targets.to_vec();
        self.all.retain(|client| client.strong_count() > 0);
        for client in self.all.iter().filter_map(Weak::upgrade) {
            client.learn(targets);
        }
    }
}

/// What this process runs.
pub(crate) struct Node {
    reactor: Arc<Reactor>,
    targets: Vec<Running>,
    /// The MDTs among them, which are told of OSTs that come later.
    mdts: Vec<Arc<TargetHost<Mdt>>>,
    clients: Arc<Mutex<Clients>>,
    /// How long a client may take to answer an MDT's callback.
    callback_limit_ns: u64,
    /// What new files get where nothing is said.
    stripe: StripePolicy,
    fsname: String,
    /// Its id; 0 until it is known.
    file_system: u64,
    source: Source,
    follower: Option<Follower>,
    network: Option<Arc<Network>>,
    devices: Arc<Devices>,
    /// Where it is reached, and where the MGS is; nowhere, if that is in this process.
    nids: Vec<Nid>,
    mgs: Vec<Nid>,
    /// Set when clients are not to wait for servers any more.
    stop: Stop,
}

/// A running target.
struct Running {
    target: Endpoint,
    path: PathBuf,
    host: Arc<dyn Host>,
    objects: Option<Arc<dyn ObjectStore>>,
    /// Locked as long as the target runs.
    _folder: TargetFolder,
}

/// A host, whatever its service.
pub(crate) trait Host: Send + Sync {
    /// Has it answer what it has done, and note what its clients need to go on with its next run.
    fn begin_end(&self);
    /// How far that is.
    fn ending(&self) -> Ending;
    /// Makes everything durable and leaves nothing to replay.
    fn close(&self) -> Result<(), HostError>;
    /// Whether a disk error stopped it.
    fn is_poisoned(&self) -> bool;
    /// Its parameters.
    fn params(&self, naming: &Naming, out: &mut Vec<Param<'static>>);
    /// Its devices.
    fn devices(&self, naming: &Naming, out: &mut Vec<Device>);
}

impl<S: Shows + 'static> Host for Arc<TargetHost<S>> {
    fn begin_end(&self) {
        TargetHost::begin_end(self);
    }

    fn ending(&self) -> Ending {
        TargetHost::ending(self)
    }

    fn close(&self) -> Result<(), HostError> {
        self.commit_all()?;
        self.write_checkpoint()
    }

    fn is_poisoned(&self) -> bool {
        TargetHost::is_poisoned(self)
    }

    fn params(&self, naming: &Naming, out: &mut Vec<Param<'static>>) {
        S::params(self, naming, out);
    }

    fn devices(&self, naming: &Naming, out: &mut Vec<Device>) {
        S::devices(self, naming, out);
    }
}

/// What new files get where all OSTs are folders of one disk: one object, since more of them bring
/// no more bandwidth, and each wants its own look when the file is removed.
const ON_ONE_HOST: StripePolicy = StripePolicy { stripe_count: 1, ..StripePolicy::DEFAULT };

impl Node {
    fn new(fsname: &str, source: Source, callback_limit_ns: u64) -> Outcome<Node> {
        open_files::raise_limit();
        let reactor = Arc::new(Reactor::default());
        reactor.start().map_err(|error| Refusal::io("start threads", &error))?;
        let clients = Arc::<Mutex<Clients>>::default();
        Ok(Node {
            devices: Arc::new(Devices::new(fsname, clients.clone())),
            clients,
            nids: Vec::new(),
            mgs: Vec::new(),
            reactor,
            targets: Vec::new(),
            mdts: Vec::new(),
            callback_limit_ns,
            stripe: StripePolicy::DEFAULT,
            fsname: fsname.to_owned(),
            file_system: 0,
            source,
            follower: None,
            network: None,
            stop: Stop::default(),
        })
    }

    /// Starts all targets of a file system.
    pub(crate) fn embedded(targets: &[Target]) -> Outcome<Node> {
        Node::embedded_with(targets, CALLBACK_LIMIT_NS)
    }

    /// Starts all targets; the MDTs evict clients that take longer to answer a callback.
    fn embedded_with(targets: &[Target], callback_limit_ns: u64) -> Outcome<Node> {
        let mut node = Node::new(FSNAME, Source::all(FSNAME), callback_limit_ns)?;
        node.stripe = ON_ONE_HOST;
        let osts: Vec<u32> = targets.iter().filter_map(Target::ost_index).collect();
        let mut in_order: Vec<&Target> = targets.iter().collect();
        // An MDT talks to its OSTs from the first moment.
        in_order.sort_by_key(|target| matches!(target.label.target, Endpoint::Mdt(_)));
        for (target, opened) in open_all(&in_order)? {
            node.start_target(target, opened, &osts)?;
        }
        node.targets.sort_by_key(|running| running.target);
        let mut mgc = Mgc::new(&node.reactor, Vec::new(), Arc::new(AtomicBool::new(false)));
        mgc.register(targets, Nid::Lo.into(), Some(LOCAL_PATIENCE))?;
        node.devices.keep(mgc.params(Some(LOCAL_PATIENCE))?);
        mgc.leave();
        Ok(node)
    }

    fn start_target(&mut self, target: &Target, mut opened: Opened, osts: &[u32]) -> Outcome<()> {
        let config = CoreConfig {
            me: target.label.target,
            boot_epoch: opened.boot_epoch,
            hash_key: target.label.hash_key,
        };
        match target.label.target {
            Endpoint::Ost(_) => {
                let about = target.label.fs_uuid;
                let runs = std::mem::take(&mut opened.survived);
                let ost = |store, _, _: &mut Outbox| {
                    Ost::new(config, store).of(about).nothing_lost_of(runs)
                };
                self.host(target, opened, ost).map(drop)
            }
            Endpoint::Mdt(index) => {
                let (callback_limit_ns, stripe) = (self.callback_limit_ns, self.stripe);
                let file_system = target.label.fs_uuid;
                let osts = osts.iter().copied();
                let host = self.host(target, opened, |store, now, out| {
                    let mdt = MdtConfig::new(index, osts);
                    let mdt = MdtConfig { callback_limit_ns, file_system, stripe, ..mdt };
                    Mdt::new(config, store, mdt, now, out)
                });
                self.mdts.push(host?);
                Ok(())
            }
            Endpoint::Mgs | Endpoint::Client(_) => {
                let fsname = FsName::new(&target.label.fsname).unwrap_or_default();
                let Label { fs_uuid: uuid, hash_key, .. } = target.label;
                let file_system = FileSystem { fsname, uuid, hash_key };
                let mgs = |store, _, _: &mut Outbox| Mgs::new(config, store).of(file_system);
                self.host(target, opened, mgs).map(drop)
            }
        }
    }

    fn host<S: Shows + 'static>(
        &mut self,
        target: &Target,
        opened: Opened,
        service: impl FnOnce(Store, Timestamp, &mut Outbox) -> S,
    ) -> Outcome<Arc<TargetHost<S>>> {
        let me = target.label.target;
        let objects = opened.objects.clone();
        let mut first = Outbox::new();
        let parts = HostParts {
            me,
            service: service(opened.store, self.reactor.clock.now(), &mut first),
            index: opened.index,
            objects: opened.objects,
            journal: opened.journal,
            journal_bytes: opened.journal_bytes,
            first,
        };
        let host = TargetHost::start(&self.reactor, parts)
            .map_err(|error| Refusal::new(format!("cannot start {me}: {error}"), "use fewer"))?;
        let any: Arc<dyn Host> = Arc::new(host.clone());
        self.devices.add(any.clone());
        self.targets.push(Running {
            target: me,
            path: target.path.clone(),
            host: any,
            objects,
            _folder: opened.folder,
        });
        Ok(host)
    }

    /// The files that a run before this one, which was killed, has given away, and that programs have open
    /// or mapped still.
    pub(crate) fn left_open(&self) -> Outcome<Vec<Fid>> {
        let mut left = Vec::new();
        for objects in self.targets.iter().filter_map(|running| running.objects.as_ref()) {
            let found = objects.left_open().map_err(|error| {
                Refusal::new(
                    format!("cannot find out who has its files: {error}"),
                    logging::advice(),
                )
            })?;
            left.extend(found.into_iter().map(|object| object.fid));
        }
        left.sort_unstable();
        left.dedup();
        Ok(left)
    }

    /// Makes a client and mounts it.
    pub(crate) fn mount(&self, path: &Path, how: How) -> Outcome<Mounted> {
        let elsewhere = match self.network {
            Some(_) => lock(&self.clients).told.clone(),
            None => Vec::new(),
        };
        let targets = Targets { file_system: self.file_system, elsewhere: &elsewhere };
        let from = (&self.source, targets);
        let lookers = self.network.as_ref().map(network::lookers);
        let stores = self.targets.iter().filter_map(|running| match running.target {
            Endpoint::Ost(ost) => {
                let (objects, folder) = (running.objects.clone()?, running.path.clone());
                Some((ost, OstFiles { objects, folder }))
            }
            _ => None,
        });
        let stores: Stores = stores.collect();
        let left = self.left_open()?;
        let how = (how, lookers, stores, left);
        let mounted = Mounted::new(&self.reactor, path, from, how, &self.stop)?;
        let mut clients = lock(&self.clients);
        clients.add(mounted.client());
        drop(clients);
        self.devices.apply();
        Ok(mounted)
    }

    /// What `lctl` sees of it.
    pub(crate) fn devices(&self) -> &Arc<Devices> {
        &self.devices
    }

    /// Where it is reached; one that has mounts alone, by which NIDs its servers see it.
    pub(crate) fn nids(&self) -> Vec<Nid> {
        if self.network.is_none() {
            return vec![Nid::Lo];
        }
        if !self.nids.is_empty() {
            return self.nids.clone();
        }
        let told = lock(&self.clients).told.clone();
        let targets = told.iter().flat_map(|info| info.nids.iter());
        network::own_nids(&self.mgs.iter().copied().chain(targets).collect::<Vec<_>>())
    }

    /// What goes over which of its NIDs, and over those of others.
    pub(crate) fn links(&self) -> (Vec<NetShown>, Vec<PeerShown>) {
        let links = |network: &Arc<Network>| (network.nets(), network.peers());
        self.network.as_ref().map(links).unwrap_or_default()
    }

    /// What sets parameters for good: it is asked after the node's owner has let go of it.
    pub(crate) fn keeper(&self) -> Keeper {
        Keeper {
            reactor: self.reactor.clone(),
            mgs: self.mgs.clone(),
            devices: self.devices.clone(),
        }
    }

    /// Makes a client that is not mounted.
    pub(crate) fn client(&self) -> Outcome<Native> {
        Native::new(&self.reactor)
    }

    /// Name of the file system.
    pub(crate) fn fsname(&self) -> &str {
        &self.fsname
    }

    /// The targets' states and space.
    pub(crate) fn report(&self) -> Vec<TargetReport> {
        self.targets.iter().map(Running::report).collect()
    }

    /// Makes everything durable and ends all threads. Call it when nothing is mounted.
    pub(crate) fn close(mut self) -> Outcome<()> {
        if let Some(follower) = self.follower.take() {
            follower.stop();
        }
        ending::end(&self.targets);
        // Whoever sends anything from now on sends it again to the next process.
        drop(self.network.take());
        let mut failed = Vec::new();
        for running in &self.targets {
            // Also what no program has synced: a stop in good order leaves nothing to luck.
            let synced = sateen_osd_disk::runs::sync_below(&running.path);
            if running.host.close().is_err() || synced.is_err() {
                failed.push(running.target.to_string());
            }
        }
        self.reactor.stop();
        if failed.is_empty() {
            return Ok(());
        }
        Err(Refusal::new(
            format!("{} had stopped after a disk error", failed.join(", ")),
            format!("{}, and at the disk; then start the file system again", logging::advice()),
        ))
    }
}

/// Opens all stores at once: each may have a journal to replay.
fn open_all<'a>(targets: &[&'a Target]) -> Outcome<Vec<(&'a Target, Opened)>> {
    let osts = targets.iter().filter(|target| target.ost_index().is_some()).count();
    let files_open_max = open_files::objects_per_ost(targets.len(), osts);
    std::thread::scope(|scope| {
        let start = |target: &&'a Target| {
            let options = ObjectOptions { files_open_max, sharers: sharers(target, targets) };
            let target = *target;
            (target, scope.spawn(move || backend::open(target, options)))
        };
        let opening: Vec<_> = targets.iter().map(start).collect();
        let mut opened = Vec::new();
        for (target, thread) in opening {
            let store = thread.join().unwrap_or_else(|_| {
                Err(Refusal::new(
                    format!("opening {} failed", target.label.target),
                    logging::advice(),
                ))
            })?;
            opened.push((target, store));
        }
        Ok(opened)
    })
}

/// Sets parameters for good.
pub(crate) struct Keeper {
    reactor: Arc<Reactor>,
    mgs: Vec<Nid>,
    devices: Arc<Devices>,
}

impl Keeper {
    /// Has the MGS keep a parameter, or none of this name any more. Everybody else is told by it.
    pub(crate) fn keep(&self, name: Name, value: Option<Name>) -> Outcome<()> {
        let mut mgc = Mgc::new(&self.reactor, self.mgs.clone(), Stop::default());
        let patience = if self.mgs.is_empty() { LOCAL_PATIENCE } else { MOUNT_PATIENCE };
        let kept = match value {
            None => take_back(&mut mgc, name, patience),
            value => mgc.set_param(name, value, patience),
        };
        mgc.leave();
        self.devices.keep(kept?);
        Ok(())
    }
}

/// Has the MGS keep no parameter of this name any more, if it does.
fn take_back(mgc: &mut Mgc, name: Name, patience: Duration) -> Outcome<Vec<ParamInfo>> {
    let known = mgc.params(Some(patience))?;
    if !known.iter().any(|param| param.name == name) {
        return Err(Refusal::new(
            "none is kept under this name",
            "name it as it was set; lctl get_param mgs.MGS.live.* shows those that are kept",
        ));
    }
    mgc.set_param(name, None, patience)
}

/// How many OSTs lie on the disk of this target.
fn sharers(target: &Target, targets: &[&Target]) -> u32 {
    let disk = |target: &Target| std::fs::metadata(&target.path).map(|meta| meta.dev()).ok();
    let mine = disk(target);
    let osts = targets.iter().filter(|other| other.ost_index().is_some());
    osts.filter(|other| disk(other) == mine).count() as u32
}

impl Running {
    fn report(&self) -> TargetReport {
        let space = match &self.objects {
            Some(objects) => objects.statfs().ok(),
            None => space_of(&self.path),
        };
        let space = space.unwrap_or_default();
        TargetReport {
            name: self.target.to_string(),
            state: if self.host.is_poisoned() { "failed" } else { "up" }.to_owned(),
            bytes_total: space.bytes_total,
            bytes_used: space.bytes_total.saturating_sub(space.bytes_free),
            bytes_avail: space.bytes_avail,
        }
    }
}

/// Space of the disk that a folder is on.
pub(crate) fn space_of(path: &Path) -> Option<StatFs> {
    let space = rustix::fs::statvfs(path).ok()?;
    Some(StatFs {
        bytes_total: space.f_blocks.saturating_mul(space.f_frsize),
        bytes_free: space.f_bfree.saturating_mul(space.f_frsize),
        bytes_avail: space.f_bavail.saturating_mul(space.f_frsize),
        files_total: space.f_files,
        files_free: space.f_ffree,
        object_bytes_max: 0,
    })
}

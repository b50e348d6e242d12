//! Targets for clients elsewhere, and clients of targets elsewhere: what a process with a
//! network does beyond running what it has.
//!
//! A server starts in this order:
//!
//! 1. All its targets are opened, and thereby locked.
//! 2. Its MGT runs, if it has one, and the network.
//! 3. The MGS says which file system it is. Targets of another are refused; those that were
//!    just made belong to this one from now on.
//! 4. OSTs run, then everything is registered, and the configuration comes back.
//! 5. MDTs run: they must know all OSTs that were ever registered, or what the last run left
//!    there would not be found.
//! 6. A thread follows the configuration: targets that are added are used at once.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use sateen_lnd::Limits;
use sateen_mdt::{CALLBACK_LIMIT_NS, Mdt};
use sateen_mgs::FileSystem;
use sateen_reactor::TargetHost;
use sateen_target::{COMPAT_REPLACES, Label};
use sateen_types::{Endpoint, NIDS_MAX, Name, Nid, Nids};
use sateen_wire::TargetInfo;

use super::backend::{self, Opened};
use super::devices::Devices;
use super::mgc::{Config, Mgc, Stop, Waker};
use super::network::{self, Network};
use super::{Clients, Node, Source, lock, open_all, open_files};
use crate::refusal::{Outcome, Refusal};
use crate::targets::Target;

/// How long a client that mounts waits for an MGS that says nothing.
pub(super) const MOUNT_PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait before asking again for a configuration that was refused.
const PAUSE: Duration = Duration::from_secs(1);

/// Follows the configuration, on a thread of its own.
pub(super) struct Follower {
    stop: Stop,
    waker: Waker,
    thread: JoinHandle<()>,
}

impl Follower {
    /// Ends it.
    pub(super) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.waker.wake();
        // A panic has been reported by the thread itself.
        let _ = self.thread.join();
    }
}

/// Whoever is told of a configuration.
struct Followers {
    network: Weak<Network>,
    mdts: Vec<Arc<TargetHost<Mdt>>>,
    clients: Arc<Mutex<Clients>>,
    devices: Arc<Devices>,
}

fn set_routes(network: &Network, config: &Config) {
    for info in &config.targets {
        network.set_route(info.target, &info.nids.iter().collect::<Vec<_>>());
    }
}

fn all_of(nids: &[Nid]) -> Outcome<Nids> {
    Nids::new(nids).ok_or_else(|| {
        Refusal::new(
            format!("{} NIDs are more than a target can have", nids.len()),
            format!("give at most {NIDS_MAX} with --nid"),
        )
        .that_lasts()
    })
}

/// Registers targets, which are reached at `nids`. One that is to move must not be served any more
/// where it was: its folder would be a copy, and what is written to either lost to the other.
fn register(mgc: &mut Mgc, targets: &[Target], nids: Nids, file_system: FileSystem) -> Outcome<()> {
    let known = mgc.config(None)?.targets;
    for target in targets {
        let what = target.label.target;
        let Some(before) = known.iter().find(|info| info.target == what) else { continue };
        // Who is asked at an address of this process is this process, whatever it was called.
        let is_own = |nid: &Nid| nids.iter().any(|own| own == *nid || same_place(own, *nid));
        if before.nids.iter().any(|nid| nids.iter().any(|own| own == nid)) {
            continue;
        }
        // Whether it is the one that is known the MGS says, and nothing changes by that.
        mgc.register(core::slice::from_ref(target), before.nids, None)?;
        let elsewhere = before.nids.iter().filter(|nid| !is_own(nid));
        let served = |nid: &Nid| network::serves(*nid, what, file_system.uuid);
        if let Some(nid) = elsewhere.into_iter().find(served) {
            return Err(Refusal::new(
                format!("{what} is served at {nid} already"),
                format!(
                    "end that server first if {what} is to be served here; if {} is a copy of its \
                     folder, do not serve it: what is written to one would be missing in the other",
                    target.path.display()
                ),
            )
            .that_lasts());
        }
        tracing::info!(target_name = %what, before = %shown(before.nids), now = %shown(nids), "it moves");
    }
    mgc.register(targets, nids, None)
}

/// Whether two NIDs, of whatever network, are the same address and port.
fn same_place(one: Nid, other: Nid) -> bool {
    match (network::address(one), network::address(other)) {
        (Some(one), Some(other)) => one.at == other.at,
        (one, other) => one == other,
    }
}

fn shown(nids: Nids) -> String {
    nids.iter().map(|nid| nid.to_string()).collect::<Vec<_>>().join(":")
}

/// Has the MGS keep the parameters that targets were made with. What it does not take is tried
/// again at the next start: a target is served without them, too.
fn hand_over_params(targets: &[Target], mgc: &mut Mgc) {
    for target in targets {
        let what = target.label.target;
        let params = match backend::params(&target.path) {
            Ok(params) if params.is_empty() => continue,
            Ok(params) => params,
            Err(error) => {
                tracing::warn!(target_name = %what, %error, "cannot read its parameters");
                continue;
            }
        };
        if let Err(why) = hand_over(target, &params, mgc) {
            tracing::warn!(target_name = %what, why, "its parameters are to be set again");
        }
    }
}

/// Each is forgotten once the MGS has it: it may be set to something else at any time, and that
/// counts from then on.
fn hand_over(target: &Target, mut params: &[String], mgc: &mut Mgc) -> Result<(), String> {
    while let Some((param, left)) = params.split_first() {
        let (name, value) = param.split_once('=').unwrap_or((param, ""));
        let text = |text: &str| {
            Name::new(text.as_bytes()).map_err(|_| format!("{param} is damaged: set it"))
        };
        mgc.set_param(text(name)?, Some(text(value)?), MOUNT_PATIENCE).map_err(|r| r.what)?;
        tracing::info!(target_name = %target.label.target, param, "the MGS keeps it");
        backend::leave_params(&target.path, left).map_err(|error| error.to_string())?;
        params = left;
    }
    Ok(())
}

fn osts(targets: &[TargetInfo]) -> Vec<u32> {
    let index = |info: &TargetInfo| match info.target {
        Endpoint::Ost(index) => Some(index),
        _ => None,
    };
    targets.iter().filter_map(index).collect()
}

impl Followers {
    fn learn(&self, config: &Config) {
        if let Some(network) = self.network.upgrade() {
            set_routes(&network, config);
        }
        for mdt in &self.mdts {
            for ost in osts(&config.targets) {
                mdt.inspect(|mdt| mdt.add_ost(ost));
            }
        }
        lock(&self.clients).learn(&config.targets);
    }

    fn follow(&self, mut mgc: Mgc, mut version: u64, stop: &Stop) {
        while !stop.load(Ordering::Relaxed) {
            match mgc.newer(version) {
                Ok(config) => {
                    tracing::info!(
                        version = config.version,
                        targets = config.targets.len(),
                        "the configuration has changed"
                    );
                    version = config.version;
                    self.learn(&config);
                    match mgc.params(None) {
                        Ok(params) => self.devices.keep(params),
                        Err(_) if stop.load(Ordering::Relaxed) => {}
                        Err(refusal) => tracing::warn!("no parameters: {}", refusal.what),
                    }
                }
                Err(_) if stop.load(Ordering::Relaxed) => {}
                Err(refusal) => {
                    tracing::warn!("cannot follow the configuration: {}", refusal.what);
                    std::thread::sleep(PAUSE);
                }
            }
        }
        mgc.leave();
    }
}

impl Node {
    /// Runs targets that lie on this host, listening on `nids`; `mgs` is where the MGS is, and
    /// empty if it is among them. Waits for the MGS until `stop` says otherwise.
    pub(crate) fn serve(
        targets: Vec<Target>,
        mgs: Vec<Nid>,
        nids: &[Nid],
        stop: &Stop,
    ) -> Outcome<Node> {
        let fsname = targets.first().map(|target| target.label.fsname.clone()).unwrap_or_default();
        let mut node = Node::new(&fsname, Source::all(&fsname), CALLBACK_LIMIT_NS)?;
        let in_order: Vec<&Target> = targets.iter().collect();
        let mut opened: Vec<(Target, Opened)> =
            open_all(&in_order)?.into_iter().map(|(target, open)| (target.clone(), open)).collect();
        node.start_those(&mut opened, &[], |target| target == Endpoint::Mgs)?;
        let nids = match nids {
            [] => vec![network::own_nid(mgs.first().copied())?],
            nids => nids.to_vec(),
        };
        let reached = all_of(&nids)?;
        let objects = targets.iter().filter(|target| target.ost_index().is_some()).count();
        let connections = open_files::connections(targets.len(), objects);
        let limits = Limits { connections, ..Limits::default() };
        let network = Arc::new(Network::start(&node.reactor.router, &nids, limits)?);
        if !mgs.is_empty() {
            network.set_route(Endpoint::Mgs, &mgs);
        }
        node.devices.set_network(&network);
        node.network = Some(network.clone());
        (node.nids, node.mgs) = (nids.clone(), mgs.clone());

        let mut mgc = Mgc::new(&node.reactor, mgs, stop.clone()).over(&network);
        let names: Vec<String> = targets.iter().map(|it| it.label.target.to_string()).collect();
        let what = format!("{} of {fsname}", names.join(" "));
        mgc.tell(format!("starting {what}"));
        let file_system = mgc.file_system(None)?;
        node.file_system = file_system.uuid;
        for (target, open) in &mut opened {
            join(target, open, file_system)?;
            replace(target, open, |target| mgc.register(&[target], reached, None))?;
        }
        let mut targets = targets.to_vec();
        for target in &mut targets {
            // That has been said.
            target.label.compat &= !COMPAT_REPLACES;
        }
        node.start_those(&mut opened, &[], |target| matches!(target, Endpoint::Ost(_)))?;
        register(&mut mgc, &targets, reached, file_system)?;
        hand_over_params(&targets, &mut mgc);
        let config = mgc.config(None)?;
        set_routes(&network, &config);
        node.start_those(&mut opened, &osts(&config.targets), |_| true)?;
        node.targets.sort_by_key(|running| running.target);
        node.devices.keep(mgc.params(None)?);
        mgc.tell(format!("serving {what}"));
        node.follow(mgc, config.version, stop)?;
        Ok(node)
    }

    fn start_those(
        &mut self,
        opened: &mut Vec<(Target, Opened)>,
        osts: &[u32],
        which: impl Fn(Endpoint) -> bool,
    ) -> Outcome<()> {
        let (now, later): (Vec<_>, Vec<_>) =
            opened.drain(..).partition(|(target, _)| which(target.label.target));
        *opened = later;
        for (target, open) in now {
            self.start_target(&target, open, osts)?;
        }
        Ok(())
    }

    /// Clients only, of the file system that the MGS at `mgs` manages. `stop` ends every waiting
    /// for servers.
    pub(crate) fn remote(mgs: &[Nid], fsname: &str, source: Source, stop: &Stop) -> Outcome<Node> {
        let mut node = Node::new(fsname, source, CALLBACK_LIMIT_NS)?;
        node.stop = stop.clone();
        let network = Arc::new(Network::start(&node.reactor.router, &[], Limits::default())?);
        network.set_route(Endpoint::Mgs, mgs);
        node.devices.set_network(&network);
        node.network = Some(network.clone());
        node.mgs = mgs.to_vec();
        let mut mgc = Mgc::new(&node.reactor, mgs.to_vec(), stop.clone()).over(&network);
        let FileSystem { fsname: known, uuid, .. } = mgc.file_system(Some(MOUNT_PATIENCE))?;
        node.file_system = uuid;
        if known.as_str() != fsname {
            return Err(Refusal::new(
                format!("the MGS there manages {}, not {fsname}", known.as_str()),
                format!("mount {}, or name the MGS of {fsname}", known.as_str()),
            ));
        }
        let config = mgc.config(Some(MOUNT_PATIENCE))?;
        if !config.targets.iter().any(|info| matches!(info.target, Endpoint::Mdt(0))) {
            return Err(Refusal::new(
                format!("{fsname} has no MDT0000 yet"),
                "make one with mkfs.sateen --mdt --index=0 and serve it",
            )
            .that_may_pass());
        }
        set_routes(&network, &config);
        node.devices.keep(mgc.params(Some(MOUNT_PATIENCE))?);
        lock(&node.clients).told.clone_from(&config.targets);
        node.follow(mgc, config.version, stop)?;
        Ok(node)
    }

    fn follow(&mut self, mgc: Mgc, version: u64, stop: &Stop) -> Outcome<()> {
        let mgs = self.mgs.first().or(self.nids.first());
        self.devices.set_mgc(mgs.copied().unwrap_or(Nid::Lo), mgc.id());
        let followers = Followers {
            network: self.network.as_ref().map(Arc::downgrade).unwrap_or_default(),
            mdts: self.mdts.clone(),
            clients: self.clients.clone(),
            devices: self.devices.clone(),
        };
        let (told, waker) = (stop.clone(), mgc.waker());
        let body = move || followers.follow(mgc, version, &told);
        let thread = std::thread::Builder::new().name("mgc".to_owned()).spawn(body);
        let thread = thread.map_err(|error| Refusal::io("start threads", &error))?;
        self.follower = Some(Follower { stop: stop.clone(), waker, thread });
        Ok(())
    }
}

/// A target that takes the place of a lost one is registered before it runs, and forgets that it
/// has once the MGS knows: a later one may take its own place.
fn replace(
    target: &mut Target,
    open: &Opened,
    register: impl FnOnce(Target) -> Outcome<()>,
) -> Outcome<()> {
    if target.label.compat & COMPAT_REPLACES == 0 {
        return Ok(());
    }
    register(target.clone())?;
    target.label.compat &= !COMPAT_REPLACES;
    open.folder.set_label(&target.label.encode()).map_err(|error| {
        Refusal::io(format!("write the label of {}", target.path.display()), &error)
    })
}

/// A target belongs to the file system of its MGS, or does from now on.
fn join(target: &mut Target, open: &Opened, file_system: FileSystem) -> Outcome<()> {
    let FileSystem { fsname, uuid, hash_key } = file_system;
    let Label { fs_uuid, fsname: own, target: me, .. } = &target.label;
    let path = target.path.display();
    if own != fsname.as_str() {
        return Err(Refusal::new(
            format!("{path} is {me} of {own}, and the MGS manages {}", fsname.as_str()),
            format!("serve it with the MGS of {own}: make it with --mgsnode naming that"),
        )
        .that_lasts());
    }
    if *fs_uuid != 0 && *fs_uuid != uuid {
        return Err(Refusal::new(
            format!("{path} is {me} of another file system with the name {own}"),
            "serve it with the MGS that it was first served with",
        )
        .that_lasts());
    }
    if *fs_uuid != uuid {
        // Nothing is in it yet that was put in place by another key.
        (target.label.fs_uuid, target.label.hash_key) = (uuid, hash_key);
        open.folder
            .set_label(&target.label.encode())
            .map_err(|error| Refusal::io(format!("write the label of {path}"), &error))?;
    }
    Ok(())
}

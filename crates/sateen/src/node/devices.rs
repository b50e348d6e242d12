//! What `lctl` sees of a process: its targets and clients as devices, with their parameters
//! under the field's names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use sateen_client::{
    Census, CleanStats, Client, DirPagesStats, ImportInfo, ImportState, LLITE_STATS, MDC_STATS,
    OSC_STATS, ReadAheadStats, StataheadStats,
};
use sateen_mdt::{MD_STATS, Mdt, Parts, RecoveryStatus};
use sateen_mgs::{MGS_STATS, Mgs};
use sateen_ost::{OST_STATS, Ost};
use sateen_reactor::TargetHost;
use sateen_target::Service;
use sateen_types::units::{KIB, MIB};
use sateen_types::{
    ClientId, Endpoint, Name, Nid, STRIPE_SIZE_DEFAULT, StatName, Stats, StripePolicy,
};
use sateen_wire::{ParamInfo, StatFs};

use super::network::Network;
use super::{Clients, Host, copies, timers};
use crate::params::{
    CLEAR, Device, Param, WasSet, age_ms, client_id, fits, number, stats_text, stripe_count,
    stripe_size,
};

const SECOND_NS: u64 = 1_000_000_000;
/// So long a target may take to answer whether it is there: it is asked twice within that.
const PROBE: Duration = Duration::from_secs(3);
/// How often it is looked whether it has.
const PROBE_LOOK: Duration = Duration::from_millis(10);
const MILLISECOND_NS: u64 = 1_000_000;

/// The devices of a process.
#[derive(Default)]
pub(crate) struct Devices {
    fsname: String,
    hosts: Mutex<Vec<Arc<dyn Host>>>,
    clients: Arc<Mutex<Clients>>,
    network: Mutex<Weak<Network>>,
    /// The client of the MGS, once it follows the configuration.
    mgc: Mutex<Option<Device>>,
    /// What was set for good: also for whoever comes later.
    kept: Mutex<Vec<ParamInfo>>,
    /// What holds for this process alone, whatever is set for good: which OSTs it leaves alone.
    own: Mutex<Vec<ParamInfo>>,
    /// The parameters that were there when that was applied.
    known: Mutex<BTreeSet<String>>,
}

/// What names are made of.
pub(crate) struct Naming {
    fsname: String,
    network: Weak<Network>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Devices {
    pub(super) fn new(fsname: &str, clients: Arc<Mutex<Clients>>) -> Devices {
        Devices { fsname: fsname.to_owned(), clients, ..Devices::default() }
    }

    pub(super) fn add(&self, host: Arc<dyn Host>) {
        lock(&self.hosts).push(host);
    }

    pub(super) fn set_network(&self, network: &Arc<Network>) {
        *lock(&self.network) = Arc::downgrade(network);
    }

    /// The client of the MGS at this NID follows the configuration from now on.
    pub(super) fn set_mgc(&self, mgs: Nid, client: ClientId) {
        *lock(&self.mgc) = Some(up("mgc", format!("MGC{mgs}"), uuid_of(client), 1));
    }

    fn clients(&self) -> Vec<Arc<Client>> {
        lock(&self.clients).all.iter().filter_map(Weak::upgrade).collect()
    }

    fn naming(&self) -> Naming {
        Naming { fsname: self.fsname.clone(), network: lock(&self.network).clone() }
    }

    /// All parameters, by name.
    pub(crate) fn params(&self) -> Vec<Param<'static>> {
        let naming = self.naming();
        let version = || format!("sateen: {}", env!("CARGO_PKG_VERSION"));
        let mut all = vec![Param::shown("version".to_owned(), version)];
        let hosts = lock(&self.hosts).clone();
        for host in &hosts {
            host.params(&naming, &mut all);
        }
        for client in self.clients() {
            of_client(&client, &naming, &mut all);
        }
        timers::params(&mut all);
        all.push(copies::param());
        let healthy = !hosts.iter().any(|host| host.is_poisoned());
        let health = move || if healthy { "healthy" } else { "NOT HEALTHY" }.to_owned();
        all.push(Param::shown("health_check".to_owned(), health));
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// All devices, in the order of `lctl dl`.
    pub(crate) fn list(&self) -> Vec<Device> {
        let naming = self.naming();
        let mut all = Vec::new();
        for host in lock(&self.hosts).iter() {
            host.devices(&naming, &mut all);
        }
        // Behind the MGS, if that is here, as in the field.
        let at = all.iter().take_while(|device| device.kind == "mgs").count();
        all.splice(at..at, lock(&self.mgc).clone());
        for client in self.clients() {
            client_devices(&client, &naming, &mut all);
        }
        all
    }

    /// Sets all parameters that fit a pattern.
    pub(crate) fn set(&self, pattern: &str, value: &str) -> Vec<WasSet> {
        let fitting = self.params().into_iter().filter(|param| fits(pattern, &param.name));
        fitting
            .map(|param| {
                let error = param.set(value).err();
                if error.is_none() {
                    tracing::info!(param = param.name, value, "set");
                }
                WasSet { name: param.name, error }
            })
            .collect()
    }

    /// What was set for good is set here, too. What is kept as before is left as it is: somebody
    /// may have set it to something else for a while.
    pub(crate) fn keep(&self, params: Vec<ParamInfo>) {
        let before = core::mem::replace(&mut *lock(&self.kept), params.clone());
        let all = self.params();
        for info in params.iter().filter(|info| !before.contains(info)) {
            apply_to(info, &all, |name| !self.is_own(name));
        }
        self.apply();
    }

    /// The same for those who have come since.
    pub(crate) fn apply(&self) {
        let kept = lock(&self.kept).clone();
        let all = self.params();
        let mut known = lock(&self.known);
        for info in &kept {
            apply_to(info, &all, |name| !known.contains(name) && !self.is_own(name));
        }
        for info in lock(&self.own).clone() {
            apply_to(&info, &all, |name| !known.contains(name));
        }
        *known = all.iter().map(|param| param.name.clone()).collect();
    }

    fn is_own(&self, name: &str) -> bool {
        let fits_one =
            |info: &ParamInfo| fits(&String::from_utf8_lossy(info.name.as_bytes()), name);
        lock(&self.own).iter().any(fits_one)
    }

    /// Mounts of this process do not use these OSTs, also those that come to be.
    pub(crate) fn exclude(&self, osts: &[u32]) {
        let param = |ost: &u32| {
            let name = format!("osc.*-{}-osc-*.active", Endpoint::Ost(*ost));
            let name = Name::new(name.as_bytes()).ok()?;
            Some(ParamInfo { name, value: Name::new(b"0").ok()? })
        };
        *lock(&self.own) = osts.iter().filter_map(param).collect();
    }
}

/// Sets what fits and is new.
fn apply_to(info: &ParamInfo, all: &[Param<'static>], new: impl Fn(&str) -> bool) {
    let name = String::from_utf8_lossy(info.name.as_bytes());
    let value = String::from_utf8_lossy(info.value.as_bytes());
    let fitting = all.iter().filter(|param| param.writable() && fits(&name, &param.name));
    for param in fitting.filter(|param| new(&param.name) && param.value() != value) {
        match param.set(&value) {
            Ok(()) => tracing::info!(param = param.name, %value, "set for good"),
            Err(error) => tracing::warn!(param = param.name, %value, error, "not set"),
        }
    }
}

/// What of a service is shown.
pub(crate) trait Shows: Service + Sized {
    /// Its parameters.
    fn params(host: &Arc<TargetHost<Self>>, naming: &Naming, out: &mut Vec<Param<'static>>);
    /// Its devices.
    fn devices(host: &Arc<TargetHost<Self>>, naming: &Naming, out: &mut Vec<Device>);
}

impl Naming {
    /// `scratch-OST0000`.
    fn of(&self, target: Endpoint) -> String {
        format!("{}-{target}", self.fsname)
    }

    fn nid(&self, peer: Endpoint) -> Nid {
        self.network.upgrade().map_or(Nid::Lo, |network| network.nid_of(peer))
    }

    /// Where a client here reaches a target; without a network it is in this process.
    fn server(&self, target: Endpoint) -> Option<Nid> {
        self.network.upgrade().map_or(Some(Nid::Lo), |network| network.route_to(target))
    }
}

fn uuid_of(client: ClientId) -> String {
    format!("{:016x}", client.0)
}

fn up(kind: &str, name: String, uuid: String, refcount: usize) -> Device {
    Device { status: "UP".to_owned(), kind: kind.to_owned(), name, uuid, refcount, nid: None }
}

impl Device {
    fn or_inactive(self, active: bool) -> Device {
        if active { self } else { Device { status: "IN".to_owned(), ..self } }
    }
}

/// The numbers of a `statfs`, as parameters.
fn space(
    prefix: &str,
    space: impl Fn() -> StatFs + Clone + 'static,
    out: &mut Vec<Param<'static>>,
) {
    type Pick = fn(&StatFs) -> u64;
    let fields: [(&str, Pick); 5] = [
        ("kbytestotal", |s| s.bytes_total / KIB),
        ("kbytesfree", |s| s.bytes_free / KIB),
        ("kbytesavail", |s| s.bytes_avail / KIB),
        ("filestotal", |s| s.files_total),
        ("filesfree", |s| s.files_free),
    ];
    for (name, pick) in fields {
        let space = space.clone();
        out.push(Param::shown(format!("{prefix}/{name}"), move || pick(&space()).to_string()));
    }
}

/// The clients of a target by their NIDs: who they are, and what they have had done together.
fn exports<const N: usize>(
    prefix: &str,
    clients: impl Iterator<Item = (Nid, ClientId, Stats<N>)>,
    names: &'static [StatName; N],
    out: &mut Vec<Param<'static>>,
) {
    let mut by_nid: BTreeMap<Nid, (Vec<String>, Stats<N>)> = BTreeMap::new();
    for (nid, client, stats) in clients {
        let (uuids, sum) = by_nid.entry(nid).or_default();
        uuids.push(uuid_of(client));
        sum.merge(&stats);
    }
    for (nid, (uuids, stats)) in by_nid {
        let name = |leaf: &str| format!("{prefix}/exports/{nid}/{leaf}");
        out.push(Param::shown(name("uuid"), move || uuids.join("\n")));
        let text = move || stats_text(|out| stats.write(names, out));
        out.push(Param::shown(name("stats"), text));
    }
}

/// When each client of an MDT was heard of, by their NIDs.
fn heard(
    host: &Arc<TargetHost<Mdt>>,
    prefix: &str,
    naming: &Naming,
    out: &mut Vec<Param<'static>>,
) {
    let seconds = |ns: u64| format!("{:.1}", ns as f64 / 1e9);
    let all: Vec<_> = host.inspect(|mdt| {
        mdt.exports().map(|(client, peer, _)| (client, peer, mdt.heard(client))).collect()
    });
    let mut by_nid: BTreeMap<Nid, String> = BTreeMap::new();
    for (client, peer, heard) in all {
        let (ago, gap) = (seconds(heard.ago_ns), seconds(heard.gap_ns));
        let text = by_nid.entry(naming.nid(peer)).or_default();
        let line_break = if text.is_empty() { "" } else { "\n" };
        text.push_str(&format!(
            "{line_break}{}:\n    last_heard: {ago}\n    longest_gap: {gap}",
            uuid_of(client)
        ));
    }
    for (nid, text) in by_nid {
        out.push(Param::shown(format!("{prefix}/exports/{nid}/export"), move || text.clone()));
    }
}

/// How long clients of an MDT may be silent, in seconds.
fn silence(host: &Arc<TargetHost<Mdt>>, prefix: &str, out: &mut Vec<Param<'static>>) {
    type Pick = fn(&mut (u64, u64)) -> &mut u64;
    let limits: [(&str, Pick); 2] = [("at_min", |(min, _)| min), ("at_max", |(_, max)| max)];
    for (name, pick) in limits {
        let (shown, set) = (host.clone(), host.clone());
        let show =
            move || (*pick(&mut shown.inspect(|mdt| mdt.silence_ns())) / SECOND_NS).to_string();
        out.push(Param::shown(format!("{prefix}/{name}"), show).set_by(move |value| {
            let seconds = number(value).unwrap_or(1);
            set.inspect(|mdt| {
                let mut limits = mdt.silence_ns();
                *pick(&mut limits) = seconds.saturating_mul(SECOND_NS);
                mdt.set_silence_ns(limits.0, limits.1);
            });
            Ok(())
        }));
    }
}

/// Throwing a client of an MDT out, by its id.
fn evict_client(host: &Arc<TargetHost<Mdt>>, prefix: &str) -> Param<'static> {
    let host = host.clone();
    // There is nothing to be seen.
    let param = Param::shown(format!("{prefix}/evict_client"), String::new);
    param.set_by(move |value| {
        let unknown = || format!("no client '{value}' is connected: see mdt.*.exports.*.uuid");
        let client = client_id(value).ok_or_else(unknown)?;
        host.inspect(|mdt| mdt.want_out(client)).map_err(|_| unknown())
    })
}

/// How clients of the run before come back, and how long they have for it.
fn recovery(host: &Arc<TargetHost<Mdt>>, prefix: &str, out: &mut Vec<Param<'static>>) {
    let seen = host.clone();
    let status = move || {
        let of = seen.inspect(|mdt| mdt.recovery_status());
        let status = match (of.recovering, of.happened) {
            (true, _) => "RECOVERING",
            (false, true) => "COMPLETE",
            (false, false) => "INACTIVE",
        };
        let after = match (of.happened, of.crashed) {
            (false, _) => "nothing",
            (true, true) => "a crash",
            (true, false) => "a stop",
        };
        let RecoveryStatus { expected, completed, replayed, duration_ns, .. } = of;
        let evicted = if of.recovering { 0 } else { expected.saturating_sub(completed) };
        format!(
            "status: {status}\nafter: {after}\nrecovery_duration: {}\n\
             completed_clients: {completed}/{expected}\nreplayed_requests: {replayed}\n\
             evicted_clients: {evicted}",
            duration_ns / SECOND_NS
        )
    };
    out.push(Param::shown(format!("{prefix}/recovery_status"), status));
    let (shown, set) = (host.clone(), host.clone());
    let limit = move || (shown.inspect(|mdt| mdt.recovery_time_soft_ns()) / SECOND_NS).to_string();
    out.push(Param::shown(format!("{prefix}/recovery_time_soft"), limit).set_by(move |value| {
        let seconds = number(value).unwrap_or(1);
        set.inspect(|mdt| mdt.set_recovery_time_soft_ns(seconds.saturating_mul(SECOND_NS)));
        Ok(())
    }));
    let (shown, set) = (host.clone(), host.clone());
    let is_on = move || u8::from(shown.inspect(|mdt| mdt.commit_on_sharing())).to_string();
    out.push(Param::shown(format!("{prefix}/commit_on_sharing"), is_on).set_by(move |value| {
        let is_on = number(value) != Some(0);
        set.inspect(|mdt| mdt.set_commit_on_sharing(is_on));
        Ok(())
    }));
}

/// When files become shared by those who write them, and how often that was so.
fn contention(host: &Arc<TargetHost<Mdt>>, prefix: &str, out: &mut Vec<Param<'_>>) {
    let (shown, set) = (host.clone(), host.clone());
    let locks = move || shown.inspect(|mdt| mdt.contention().0).to_string();
    out.push(Param::shown(format!("{prefix}/contended_locks"), locks).set_by(move |value| {
        let locks = u32::try_from(number(value).unwrap_or(0)).unwrap_or(u32::MAX);
        set.inspect(|mdt| mdt.set_contention(locks, mdt.contention().1));
        Ok(())
    }));
    let (shown, set) = (host.clone(), host.clone());
    let seconds = move || (shown.inspect(|mdt| mdt.contention().1) / SECOND_NS).to_string();
    out.push(Param::shown(format!("{prefix}/contention_seconds"), seconds).set_by(move |value| {
        let ns = number(value).unwrap_or(1).saturating_mul(SECOND_NS);
        set.inspect(|mdt| mdt.set_contention(mdt.contention().0, ns));
        Ok(())
    }));
    let shown = host.clone();
    let granted = move || shown.inspect(|mdt| mdt.shared_locks()).to_string();
    out.push(Param::shown(format!("{prefix}/shared_grants"), granted));
    parts(host, prefix, out);
}

/// Whether each of those who write a file in turns may have his part of it, and what came of that.
fn parts(host: &Arc<TargetHost<Mdt>>, prefix: &str, out: &mut Vec<Param<'_>>) {
    let (shown, set) = (host.clone(), host.clone());
    let is_on = move || u8::from(shown.inspect(|mdt| mdt.grants_parts())).to_string();
    out.push(Param::shown(format!("{prefix}/parts"), is_on).set_by(move |value| {
        let is_on = number(value) != Some(0);
        set.inspect(|mdt| mdt.set_grants_parts(is_on));
        Ok(())
    }));
    let mut counter = |name: &str, counter: fn(Parts) -> u64| {
        let shown = host.clone();
        let count = move || counter(shown.inspect(|mdt| mdt.parts())).to_string();
        out.push(Param::shown(format!("{prefix}/parts_{name}"), count));
    };
    counter("granted", |parts| parts.granted);
    counter("broken", |parts| parts.broken);
    counter("cut", |parts| parts.cut);
}

/// What an MDT's new files get where neither they nor their directories say anything.
fn default_stripes(host: &Arc<TargetHost<Mdt>>, prefix: &str, out: &mut Vec<Param<'_>>) {
    let (shown, set) = (host.clone(), host.clone());
    let count = move || shown.inspect(|mdt| mdt.default_policy().stripe_count).to_string();
    out.push(Param::shown(format!("{prefix}/stripecount"), count).set_by(move |value| {
        let stripe_count = stripe_count(value)?;
        set.inspect(|mdt| {
            mdt.set_default_policy(StripePolicy { stripe_count, ..mdt.default_policy() });
        });
        Ok(())
    }));
    let (shown, set) = (host.clone(), host.clone());
    let size = move || match shown.inspect(|mdt| mdt.default_policy().stripe_size) {
        0 => STRIPE_SIZE_DEFAULT.to_string(),
        size => size.to_string(),
    };
    out.push(Param::shown(format!("{prefix}/stripesize"), size).set_by(move |value| {
        let stripe_size = stripe_size(value)?;
        set.inspect(|mdt| {
            mdt.set_default_policy(StripePolicy { stripe_size, ..mdt.default_policy() });
        });
        Ok(())
    }));
}

/// How many locks an MDT has granted, and how much memory they may take.
fn lock_table(host: &Arc<TargetHost<Mdt>>, prefix: &str, out: &mut Vec<Param<'_>>) {
    type Pick = fn(&Mdt) -> u64;
    let shown: [(&str, Pick); 6] = [
        ("lock_count", |mdt| mdt.locks().0 as u64),
        ("lock_reclaimed", |mdt| mdt.locks().2),
        ("glimpses_asked", |mdt| mdt.glimpses().0),
        ("glimpses_told", |mdt| mdt.glimpses().1),
        ("pool/granted", |mdt| mdt.locks().0 as u64),
        ("pool/limit", |mdt| mdt.locks().1.limit as u64),
    ];
    for (name, pick) in shown {
        let host = host.clone();
        let show = move || host.inspect(|mdt| pick(mdt)).to_string();
        out.push(Param::shown(format!("{prefix}/{name}"), show));
    }
    type Part = fn(&mut (u64, u64)) -> &mut u64;
    let limits: [(&str, Part); 2] = [
        ("lock_limit_mb", |(limit, _)| limit),
        ("lock_reclaim_threshold_mb", |(_, reclaim)| reclaim),
    ];
    for (name, part) in limits {
        let (shown, set) = (host.clone(), host.clone());
        let show = move || (*part(&mut shown.inspect(|mdt| mdt.lock_bytes())) / MIB).to_string();
        out.push(Param::shown(format!("{prefix}/{name}"), show).set_by(move |value| {
            let mb = number(value).unwrap_or(1);
            set.inspect(|mdt| {
                let mut bytes = mdt.lock_bytes();
                *part(&mut bytes) = mb.saturating_mul(MIB);
                mdt.set_lock_bytes(bytes.0, bytes.1);
            });
            Ok(())
        }));
    }
}

/// How old a change of a target may get that nobody waits for.
fn commit_age<S: Service + 'static>(
    host: &Arc<TargetHost<S>>,
    prefix: &str,
    out: &mut Vec<Param<'static>>,
) {
    let (shown, set) = (host.clone(), host.clone());
    let age = move || (shown.commit_age_ns() / MILLISECOND_NS).to_string();
    out.push(Param::shown(format!("{prefix}/commit_age_ms"), age).set_by(move |value| {
        let ms = number(value).unwrap_or(1);
        set.set_commit_age_ns(ms.saturating_mul(MILLISECOND_NS));
        Ok(())
    }));
}

/// How long no file must have been removed before the OSTs destroy objects of those that were.
fn destroy_delay(host: &Arc<TargetHost<Mdt>>, prefix: &str, out: &mut Vec<Param<'static>>) {
    let (shown, set) = (host.clone(), host.clone());
    let delay = move || (shown.inspect(|mdt| mdt.destroy_delay_ns()) / MILLISECOND_NS).to_string();
    out.push(Param::shown(format!("{prefix}/destroy_delay_ms"), delay).set_by(move |value| {
        let ms = number(value).unwrap_or(1);
        set.inspect(|mdt| mdt.set_destroy_delay_ns(ms.saturating_mul(MILLISECOND_NS)));
        Ok(())
    }));
}

impl Shows for Mgs {
    fn params(host: &Arc<TargetHost<Self>>, naming: &Naming, out: &mut Vec<Param<'static>>) {
        let clients: Vec<_> = host.inspect(|mgs| mgs.exports().collect());
        let count = clients.len();
        out.push(Param::shown("mgs/MGS/num_exports".to_owned(), move || count.to_string()));
        let of = clients.into_iter().map(|(id, peer, stats)| (naming.nid(peer), id, stats));
        exports("mgs/MGS", of, &MGS_STATS, out);
        let (shown, cleared) = (host.clone(), host.clone());
        let stats = move || {
            let stats = shown.inspect(|mgs| mgs.stats());
            stats_text(|out| stats.write(&MGS_STATS, out))
        };
        out.push(Param::shown("mgs/MGS/stats".to_owned(), stats).set_by(move |_| {
            cleared.inspect(Mgs::clear_stats);
            Ok(())
        }));
        let (host, name) = (host.clone(), naming.fsname.clone());
        let live = move || {
            let Some((version, targets, params)) = host.inspect(|mgs| mgs.live()) else {
                return String::new();
            };
            let mut text = format!("fsname: {name}\nversion: {version}\ntargets:\n");
            for info in targets {
                text.push_str(&format!("- {name}-{} {}\n", info.target, info.nids));
            }
            text.push_str("params:\n");
            for ParamInfo { name, value } in params {
                let [name, value] = [&name, &value].map(|n| String::from_utf8_lossy(n.as_bytes()));
                text.push_str(&format!("- {name}={value}\n"));
            }
            text
        };
        out.push(Param::shown(format!("mgs/MGS/live/{}", naming.fsname), live));
    }

    fn devices(host: &Arc<TargetHost<Self>>, _: &Naming, out: &mut Vec<Device>) {
        let count = host.inspect(|mgs| mgs.exports().count());
        out.push(up("mgs", "MGS".to_owned(), "MGS".to_owned(), count));
    }
}

impl Shows for Mdt {
    fn params(host: &Arc<TargetHost<Self>>, naming: &Naming, out: &mut Vec<Param<'static>>) {
        let me = host.me();
        let prefix = format!("mdt/{}", naming.of(me));
        let clients: Vec<_> = host.inspect(|mdt| mdt.exports().collect());
        let count = clients.len();
        out.push(Param::shown(format!("{prefix}/num_exports"), move || count.to_string()));
        let of = clients.into_iter().map(|(id, peer, stats)| (naming.nid(peer), id, stats));
        exports(&prefix, of, &MD_STATS, out);
        heard(host, &prefix, naming, out);
        silence(host, &prefix, out);
        out.push(evict_client(host, &prefix));
        recovery(host, &prefix, out);
        let (shown, cleared) = (host.clone(), host.clone());
        let stats = move || {
            let stats = shown.inspect(|mdt| mdt.stats());
            stats_text(|out| stats.write(&MD_STATS, out))
        };
        out.push(Param::shown(format!("{prefix}/md_stats"), stats).set_by(move |_| {
            cleared.inspect(Mdt::clear_stats);
            Ok(())
        }));
        let seen = host.clone();
        space(&prefix, move || seen.inspect(|mdt| mdt.statfs()), out);
        commit_age(host, &prefix, out);
        destroy_delay(host, &prefix, out);
        let locked = host.inspect(|mdt| mdt.file_locks().len()).to_string();
        out.push(Param::shown(format!("{prefix}/file_locks"), move || locked.clone()));
        let (shown, set) = (host.clone(), host.clone());
        let limit = move || (shown.inspect(|mdt| mdt.callback_limit_ns()) / SECOND_NS).to_string();
        out.push(Param::shown(format!("{prefix}/ldlm_timeout"), limit).set_by(move |value| {
            let seconds = number(value).unwrap_or(1);
            set.inspect(|mdt| mdt.set_callback_limit_ns(seconds.saturating_mul(SECOND_NS)));
            Ok(())
        }));
        contention(host, &format!("ldlm/namespaces/mdt-{}", naming.of(me)), out);
        lock_table(host, &format!("ldlm/namespaces/mdt-{}", naming.of(me)), out);
        let lod = format!("lod/{}-mdtlov", naming.of(me));
        default_stripes(host, &lod, out);
        let (shown, set, known) = (host.clone(), host.clone(), host.clone());
        let percent = move || format!("{}%", shown.inspect(|mdt| mdt.balanced_percent()));
        out.push(Param::shown(format!("{lod}/qos_threshold_rr"), percent).set_by(move |value| {
            let percent = number(value).unwrap_or(0);
            set.inspect(|mdt| mdt.set_balanced_percent(percent));
            Ok(())
        }));
        let osts = known.inspect(|mdt| mdt.osts());
        let (all, used) = (osts.len(), osts.iter().filter(|(_, active)| *active).count());
        out.push(Param::shown(format!("{lod}/numobd"), move || all.to_string()));
        out.push(Param::shown(format!("{lod}/activeobd"), move || used.to_string()));
        for (ost, active) in osts {
            // Under both names that the field has had for it.
            for kind in ["osp", "osc"] {
                let name = format!("{kind}/{}-osc-{me}/active", naming.of(Endpoint::Ost(ost)));
                let set = host.clone();
                let shown = move || u8::from(active).to_string();
                let param = Param::shown(name, shown).link(kind == "osc");
                out.push(param.set_by(move |value| {
                    set.inspect(|mdt| mdt.set_ost_active(ost, value == "1"));
                    Ok(())
                }));
            }
        }
    }

    fn devices(host: &Arc<TargetHost<Self>>, naming: &Naming, out: &mut Vec<Device>) {
        let me = host.me();
        let name = naming.of(me);
        let (count, osts) = host.inspect(|mdt| (mdt.exports().count(), mdt.osts()));
        out.push(up("mdt", name.clone(), format!("{name}_UUID"), count));
        for (ost, active) in osts {
            let osp = format!("{}-osc-{me}", naming.of(Endpoint::Ost(ost)));
            let osp = up("osp", osp, format!("{name}-mdtlov_UUID"), 1).or_inactive(active);
            let nid = naming.server(Endpoint::Ost(ost)).map(|nid| nid.to_string());
            out.push(Device { nid, ..osp });
        }
    }
}

impl Shows for Ost {
    fn params(host: &Arc<TargetHost<Self>>, naming: &Naming, out: &mut Vec<Param<'static>>) {
        let me = host.me();
        let prefix = format!("obdfilter/{}", naming.of(me));
        let clients: Vec<_> = host.inspect(|ost| ost.exports().collect());
        let count = clients.len();
        out.push(Param::shown(format!("{prefix}/num_exports"), move || count.to_string()));
        let granted: u64 = clients.iter().map(|(_, _, granted, _)| granted).sum();
        out.push(Param::shown(format!("{prefix}/tot_granted"), move || granted.to_string()));
        let of = clients.into_iter().map(|(id, peer, _, stats)| (naming.nid(peer), id, stats));
        exports(&prefix, of, &OST_STATS, out);
        let (shown, cleared) = (host.clone(), host.clone());
        let stats = move || {
            let stats = shown.inspect(|ost| ost.stats());
            stats_text(|out| stats.write(&OST_STATS, out))
        };
        out.push(Param::shown(format!("{prefix}/stats"), stats).set_by(move |_| {
            cleared.inspect(Ost::clear_stats);
            Ok(())
        }));
        let seen = host.clone();
        space(&prefix, move || seen.inspect(|ost| ost.statfs()).unwrap_or_default(), out);
        commit_age(host, &prefix, out);
    }

    fn devices(host: &Arc<TargetHost<Self>>, naming: &Naming, out: &mut Vec<Device>) {
        let me = host.me();
        let name = naming.of(me);
        let count = host.inspect(|ost| ost.exports().count());
        out.push(up("obdfilter", name.clone(), format!("{name}_UUID"), count));
    }
}

/// Kind and name of a client's connection to a target: `osc`, `scratch-OST0000-osc-2f…`.
fn connection(client: &Client, fsname: &str, target: Endpoint) -> Option<(&'static str, String)> {
    let kind = match target {
        Endpoint::Mdt(_) => "mdc",
        Endpoint::Ost(_) => "osc",
        Endpoint::Mgs | Endpoint::Client(_) => return None,
    };
    Some((kind, format!("{fsname}-{target}-{kind}-{}", uuid_of(client.id()))))
}

fn client_devices(client: &Client, naming: &Naming, out: &mut Vec<Device>) {
    let (fsname, uuid) = (&naming.fsname, uuid_of(client.id()));
    out.push(up("llite", format!("{fsname}-{uuid}"), uuid.clone(), 1));
    for info in client.imports() {
        if let Some((kind, name)) = connection(client, fsname, info.target) {
            let nid = naming.server(info.target).map(|nid| nid.to_string());
            let device = up(kind, name, uuid.clone(), info.in_flight).or_inactive(info.active);
            out.push(Device { nid, ..device });
        }
    }
}

fn of_client(client: &Arc<Client>, naming: &Naming, out: &mut Vec<Param<'static>>) {
    let fsname = &naming.fsname;
    let uuid = uuid_of(client.id());
    let prefix = format!("llite/{fsname}-{uuid}");
    let (shown, cleared) = (client.clone(), client.clone());
    let stats = move || {
        let stats = shown.verb_stats();
        stats_text(|out| stats.write(&LLITE_STATS, out))
    };
    out.push(Param::shown(format!("{prefix}/stats"), stats).set_by(move |_| {
        cleared.clear_verb_stats();
        Ok(())
    }));
    statahead(client, &prefix, out);
    passthrough(client, &prefix, out);
    read_ahead(client, &prefix, out);
    kept(client, &prefix, out);
    let counted = client.clone();
    let tables = move || {
        let census = counted.census();
        let Census { inodes, locks, files, unsynced, lost, dirty_bytes, .. } = census;
        let Census { opens_kept, opens_reused, opens_closed_first, opens_unclosed, .. } = census;
        format!(
            "inodes: {inodes}\nlocks: {locks}\nfiles: {files}\nunsynced: {unsynced}\nlost: {lost}\n\
             dirty_bytes: {dirty_bytes}\nopens_kept: {opens_kept}\nopens_reused: {opens_reused}\n\
             opens_closed_first: {opens_closed_first}\nopens_unclosed: {opens_unclosed}"
        )
    };
    out.push(Param::shown(format!("{prefix}/tables"), tables));
    out.push(Param::shown(format!("{prefix}/uuid"), move || uuid.clone()));
    for info in client.imports() {
        if let Some((kind, name)) = connection(client, fsname, info.target) {
            let prefix = format!("{kind}/{name}");
            of_import(client, &prefix, info, out);
            if let Endpoint::Mdt(mdt) = info.target {
                lru(client, mdt, &format!("ldlm/namespaces/{name}"), out);
            }
            // Within one process there is nothing to be checked.
            if naming.network.strong_count() > 0 {
                out.push(Param::shown(format!("{prefix}/checksums"), || "1".to_owned()));
                let kind = || "[crc32c]".to_owned();
                out.push(Param::shown(format!("{prefix}/checksum_type"), kind));
            }
        }
    }
}

/// Whether its kernel is given files.
fn passthrough(client: &Arc<Client>, prefix: &str, out: &mut Vec<Param<'static>>) {
    let (shown, set) = (client.clone(), client.clone());
    let gives = move || u8::from(shown.gives_files()).to_string();
    let nothing = |_| "this mount has no files to give: sateen status says why".to_owned();
    out.push(
        Param::shown(format!("{prefix}/passthrough"), gives)
            .set_by(move |value| set.switch_passthrough(value == "1").map_err(nothing)),
    );
    let (shown, set) = (client.clone(), client.clone());
    let min = move || (shown.passthrough_min().unwrap_or_default() >> 10).to_string();
    out.push(Param::shown(format!("{prefix}/passthrough_min_kb"), min).set_by(move |value| {
        let bytes = number(value).unwrap_or_default() << 10;
        set.set_passthrough_min(bytes).map_err(nothing)
    }));
}

/// How far ahead a client looks names up that a program may look up next.
fn statahead(client: &Arc<Client>, prefix: &str, out: &mut Vec<Param<'static>>) {
    let (shown, set) = (client.clone(), client.clone());
    let max = move || shown.statahead_max().to_string();
    out.push(Param::shown(format!("{prefix}/statahead_max"), max).set_by(move |value| {
        let max = number(value).and_then(|max| usize::try_from(max).ok()).unwrap_or(usize::MAX);
        set.set_statahead_max(max).map_err(|errno| errno.to_string())
    }));
    let (shown, set) = (client.clone(), client.clone());
    let agl = move || u8::from(shown.statahead_agl()).to_string();
    out.push(Param::shown(format!("{prefix}/statahead_agl"), agl).set_by(move |value| {
        set.set_statahead_agl(value == "1");
        Ok(())
    }));
    let (shown, cleared) = (client.clone(), client.clone());
    let stats = move || {
        let StataheadStats { begun, wrong, sizes, hits, misses } = shown.statahead_stats();
        format!(
            "statahead total: {begun}\nstatahead wrong: {wrong}\nagl total: {sizes}\n\
             hit total: {hits}\nmiss total: {misses}"
        )
    };
    out.push(Param::shown(format!("{prefix}/statahead_stats"), stats).set_by(move |_| {
        cleared.clear_statahead_stats();
        Ok(())
    }));
}

/// What a client keeps of what programs have read, as the field shows it, and how often that was of use.
fn kept(client: &Arc<Client>, prefix: &str, out: &mut Vec<Param<'static>>) {
    type Shown = fn(&Client) -> (u64, CleanStats);
    type Set = fn(&Client, u64) -> sateen_types::Result<()>;
    let directories: Shown = |client| {
        let DirPagesStats { bytes, hits, reclaimed } = client.dir_pages_stats();
        (client.dir_pages_max(), CleanStats { bytes, hits, reclaimed })
    };
    let all: [(&str, Shown, Set); 2] = [
        (
            "max_cached_mb",
            |client| (client.clean_max(), client.clean_stats()),
            Client::set_clean_max,
        ),
        ("max_cached_dirs_mb", directories, Client::set_dir_pages_max),
    ];
    for (name, shown, set) in all {
        let (of_shown, of_set) = (client.clone(), client.clone());
        let shown = move || {
            let (max, CleanStats { bytes, hits, reclaimed }) = shown(&of_shown);
            let (max, used) = (max / MIB, bytes.div_ceil(MIB));
            let unused = max.saturating_sub(used);
            format!(
                "{name}: {max}\nused_mb: {used}\nunused_mb: {unused}\n\
                 reclaim_count: {reclaimed}\nhits: {hits}"
            )
        };
        out.push(Param::shown(format!("{prefix}/{name}"), shown).set_by(move |value| {
            let bytes = number(value).unwrap_or(u64::MAX).saturating_mul(MIB);
            set(&of_set, bytes).map_err(|errno| errno.to_string())
        }));
    }
}

/// How much a client reads before programs ask for it.
fn read_ahead(client: &Arc<Client>, prefix: &str, out: &mut Vec<Param<'static>>) {
    type Shown = fn(&Client) -> u64;
    type Set = fn(&Client, u64) -> sateen_types::Result<()>;
    let bounds: [(&str, Shown, Set); 3] = [
        ("max_read_ahead_mb", Client::read_ahead_max, Client::set_read_ahead_max),
        (
            "max_read_ahead_per_file_mb",
            Client::read_ahead_per_file,
            Client::set_read_ahead_per_file,
        ),
        ("max_read_ahead_whole_mb", Client::read_ahead_whole, Client::set_read_ahead_whole),
    ];
    for (name, shown, set) in bounds {
        let (of_shown, of_set) = (client.clone(), client.clone());
        let shown = move || (shown(&of_shown) / MIB).to_string();
        out.push(Param::shown(format!("{prefix}/{name}"), shown).set_by(move |value| {
            let bytes = number(value).unwrap_or(u64::MAX).saturating_mul(MIB);
            set(&of_set, bytes).map_err(|errno| errno.to_string())
        }));
    }
    let (of_shown, of_set) = (client.clone(), client.clone());
    let shown = move || (of_shown.read_ahead_slow_ns() / 1000).to_string();
    out.push(Param::shown(format!("{prefix}/read_ahead_slow_us"), shown).set_by(move |value| {
        let ns = number(value).unwrap_or(u64::MAX).saturating_mul(1000);
        of_set.set_read_ahead_slow_ns(ns).map_err(|errno| errno.to_string())
    }));
    let (shown, cleared) = (client.clone(), client.clone());
    let stats = move || {
        let ReadAheadStats { hits, misses, discarded, refused } = shown.read_ahead_stats();
        let lines = [
            ("hits", hits),
            ("misses", misses),
            ("read but discarded", discarded),
            ("hit max r-a issue", refused),
        ];
        stats_text(|out| {
            let mut lines = lines.into_iter();
            lines.try_for_each(|(name, pages)| writeln!(out, "{name:<25} {pages} samples [pages]"))
        })
    };
    out.push(Param::shown(format!("{prefix}/read_ahead_stats"), stats).set_by(move |_| {
        cleared.clear_read_ahead_stats();
        Ok(())
    }));
}

/// The locks that a client holds of an MDT, and how many it keeps.
fn lru(client: &Arc<Client>, mdt: u32, prefix: &str, out: &mut Vec<Param<'static>>) {
    let target = Endpoint::Mdt(mdt);
    let Ok(info) = client.lru_info(target) else { return };
    let set = client.clone();
    let size = Param::shown(format!("{prefix}/lru_size"), move || info.lru_size.to_string());
    out.push(size.set_by(move |value| {
        let done = match value {
            CLEAR => set.drop_unused(target),
            _ => set.set_lru_size(target, number(value).map_or(0, |locks| locks as usize)),
        };
        done.map_err(|errno| errno.to_string())
    }));
    let set = client.clone();
    let age = Param::shown(format!("{prefix}/lru_max_age"), move || info.max_age_ms.to_string());
    out.push(age.set_by(move |value| {
        let ms = age_ms(value).unwrap_or(1);
        set.set_lru_max_age(target, ms).map_err(|errno| errno.to_string())
    }));
    out.push(Param::shown(format!("{prefix}/lock_count"), move || info.locks.to_string()));
    let seen = client.clone();
    let unused = move || seen.unused_locks(mdt).to_string();
    out.push(Param::shown(format!("{prefix}/lock_unused_count"), unused));
}

/// What there is to be seen of a connection. A target that nobody needs is asked nothing, so that it
/// is asked now whether it is there.
fn import_text(client: &Client, info: ImportInfo) -> String {
    let target = info.target;
    if info.active {
        client.probe(target);
    }
    let end = Instant::now() + PROBE;
    let mut seen = client.import_info(target).unwrap_or(info);
    while seen.active && seen.asked && seen.state == ImportState::Full && Instant::now() < end {
        std::thread::sleep(PROBE_LOOK);
        seen = client.import_info(target).unwrap_or(seen);
    }
    let state = if seen.active { seen.state.name() } else { "INACTIVE" };
    format!(
        "import:\n    target: {target}\n    state: {state}\n    connection:\n       \
         connection_attempts: {}\n       generation: {}\n       features: {:#x}",
        seen.attempts, seen.generation, seen.features
    )
}

fn of_import(client: &Arc<Client>, prefix: &str, info: ImportInfo, out: &mut Vec<Param<'static>>) {
    let target = info.target;
    let names = if matches!(target, Endpoint::Ost(_)) { &OSC_STATS } else { &MDC_STATS };
    let stats = move || stats_text(|out| info.stats.write(names, out));
    let cleared = client.clone();
    out.push(
        Param::shown(format!("{prefix}/stats"), stats).set_by(move |_| {
            cleared.clear_request_stats(target).map_err(|errno| errno.to_string())
        }),
    );
    let set = client.clone();
    let max =
        Param::shown(format!("{prefix}/max_rpcs_in_flight"), move || info.rpcs_max.to_string());
    out.push(max.set_by(move |value| {
        let max = number(value).and_then(|max| usize::try_from(max).ok()).unwrap_or(0);
        set.set_rpcs_max(target, max).map_err(|errno| errno.to_string())
    }));
    out.push(Param::shown(format!("{prefix}/rpcs_in_flight"), move || info.in_flight.to_string()));
    if matches!(target, Endpoint::Mdt(_)) {
        let set = client.clone();
        let max = move || info.mod_rpcs_max.to_string();
        let param = Param::shown(format!("{prefix}/max_mod_rpcs_in_flight"), max);
        out.push(param.set_by(move |value| {
            let max = number(value).and_then(|max| usize::try_from(max).ok()).unwrap_or(0);
            set.set_mod_rpcs_max(target, max).map_err(|errno| errno.to_string())
        }));
    }
    let asked = client.clone();
    out.push(Param::shown(format!("{prefix}/import"), move || import_text(&asked, info)));
    if let Endpoint::Ost(index) = target {
        let set = client.clone();
        let active = move || u8::from(info.active).to_string();
        out.push(Param::shown(format!("{prefix}/active"), active).set_by(move |value| {
            set.set_active(target, value == "1").map_err(|errno| errno.to_string())
        }));
        let set = client.clone();
        let pages = move || info.rpc_pages_max.to_string();
        out.push(Param::shown(format!("{prefix}/max_pages_per_rpc"), pages).set_by(move |value| {
            let pages = number(value).and_then(|pages| u32::try_from(pages).ok()).unwrap_or(0);
            set.set_rpc_pages_max(target, pages).map_err(|errno| errno.to_string())
        }));
        let (kept, set) = (client.clone(), client.clone());
        let max = move || (kept.dirty_max(index) / MIB).to_string();
        out.push(Param::shown(format!("{prefix}/max_dirty_mb"), max).set_by(move |value| {
            let bytes = number(value).unwrap_or(u64::MAX).saturating_mul(MIB);
            set.set_dirty_max_of(target, bytes).map_err(|errno| errno.to_string())
        }));
        let kept = client.clone();
        let bytes = move || kept.dirty_bytes(index).to_string();
        out.push(Param::shown(format!("{prefix}/cur_dirty_bytes"), bytes));
        let kept = client.clone();
        let limit = move || kept.dirty_limit(index).to_string();
        out.push(Param::shown(format!("{prefix}/cur_dirty_limit_bytes"), limit));
        let (kept, set) = (client.clone(), client.clone());
        let max = move || (kept.unstable_max(index) / MIB).to_string();
        out.push(Param::shown(format!("{prefix}/max_unstable_mb"), max).set_by(move |value| {
            let bytes = number(value).unwrap_or(u64::MAX).saturating_mul(MIB);
            set.set_unstable_max_of(target, bytes).map_err(|errno| errno.to_string())
        }));
        let kept = client.clone();
        let bytes = move || kept.unstable_bytes(index).to_string();
        out.push(Param::shown(format!("{prefix}/cur_unstable_bytes"), bytes));
        let client = client.clone();
        let grant = move || client.grant(index).to_string();
        out.push(Param::shown(format!("{prefix}/cur_grant_bytes"), grant));
    }
}

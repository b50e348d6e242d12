//! Test sizing: how many nodes and threads fill the servers, how many bytes defeat the caches, how long
//! it all takes.
//!
//! The order is that of Intel CRT-DC's talk of 2014. What the servers could carry says how many nodes must
//! pull; what one slow thread does says how many threads, and their cores again how many nodes; what a node
//! does in practice corrects both. Memory, and how much of it is locked away, says how many bytes make a
//! read come from the servers. Then the set of tests has a duration, which is when one begins to leave
//! tests out.

use anyhow::{Context, bail, ensure};
use serde::Serialize;

use crate::hardware::Hardware;
use crate::show::list;
use crate::table::DIRECTIONS;
use crate::units::{Rate, Size, digits, time};

/// Data this many times what the cache holds: by the time a file is read from its start again, the cache
/// has let go of it.
const CACHE_FACTOR: f64 = 1.5;

/// File systems slow down as they fill.
const FULL: f64 = 0.8;

/// A run shorter than this measures its own start.
const RUN_SECONDS_MIN: f64 = 10.0;

/// Locking more than this leaves the node no room to live.
const LOCK_MAX: f64 = 0.95;

/// What the sizing starts from, beside the hardware.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// What one thread does in the slowest of the tests.
    pub thread_rate: Rate,
    /// What one node does in practice, all its threads together.
    pub node_rate: Option<Rate>,
    /// Cores of a node, instead of the description's.
    pub cores: Option<u32>,
    /// Memory of a node, instead of the description's.
    pub memory: Option<Size>,
    /// The share of a node's memory that is locked away.
    pub lock: f64,
    /// Patterns, such as IOzone's.
    pub tests: u32,
    /// How often each is repeated.
    pub repeats: u32,
}

/// One step of the reasoning.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// What is settled.
    pub what: &'static str,
    /// To what.
    pub value: String,
    /// Why.
    pub because: String,
}

/// Amounts with or without memory locked away.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Volume {
    /// What caches of a node can hold.
    pub cache: Size,
    /// What a node writes and reads.
    pub per_node: Size,
    /// All nodes together.
    pub total: Size,
    /// The whole set of tests.
    pub seconds: f64,
    /// The shortest single run.
    pub shortest_seconds: f64,
}

/// A sized test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// What the servers could carry.
    pub servers_limit: Rate,
    /// Nodes whose ports carry that.
    pub nodes_by_network: u32,
    /// Slow threads that do that.
    pub threads: u32,
    /// Nodes that have so many cores.
    pub nodes_by_cores: u32,
    /// Nodes that do it in practice, if known.
    pub nodes_in_practice: Option<u32>,
    /// Nodes of the largest test.
    pub nodes: u32,
    /// Nodes of all tests.
    pub node_counts: Vec<u32>,
    /// Threads per node of all tests.
    pub thread_counts: Vec<u32>,
    /// With memory locked away.
    pub locked: Volume,
    /// Without.
    pub unlocked: Volume,
    /// The reasoning.
    pub steps: Vec<Step>,
    /// What could spoil it.
    pub warnings: Vec<String>,
}

/// Sizes a test of a described system.
pub fn plan(hardware: &Hardware, request: &Request) -> anyhow::Result<Plan> {
    check(request)?;
    let cores = request
        .cores
        .or(hardware.clients.cores)
        .context(
            "clients.cores is missing: how many threads a node can run; give --cores, or write cores = N \
             under [clients] (`plan --example lfs09` prints a description that has all)",
        )?;
    ensure!(cores >= 1, "--cores 0: there must be at least one");
    let memory = request.memory.or(hardware.clients.memory).context(
        "clients.memory is missing: what the caches of a node can hold; give --memory, or write memory = \
         \"64 GB\" under [clients] (`plan --example lfs09` prints a description that has all)",
    )?;
    let limit = DIRECTIONS.map(|way| hardware.servers_limit(way)).into_iter().fold(0.0, f64::max);
    let node_network =
        DIRECTIONS.map(|way| hardware.node_network(way)).into_iter().fold(0.0, f64::max);

    let nodes_by_network = whole(limit / node_network)?;
    let threads = whole(limit / request.thread_rate.0)?;
    let nodes_by_cores = threads.div_ceil(cores);
    let nodes_in_practice = request.node_rate.map(|rate| whole(limit / rate.0)).transpose()?;
    let needed = nodes_by_network.max(nodes_by_cores).max(nodes_in_practice.unwrap_or(1));
    let nodes = needed.checked_next_power_of_two().unwrap_or(needed).min(hardware.clients.nodes);

    let mut plan = Plan {
        servers_limit: Rate(limit),
        nodes_by_network,
        threads,
        nodes_by_cores,
        nodes_in_practice,
        nodes,
        node_counts: doubled(nodes),
        thread_counts: doubled(cores),
        locked: NO_VOLUME,
        unlocked: NO_VOLUME,
        steps: Vec::new(),
        warnings: Vec::new(),
    };
    let node_ceiling = request.node_rate.map_or(node_network, |rate| rate.0.min(node_network));
    let pace = Pace { limit, node_ceiling, thread: request.thread_rate.0, request };
    plan.locked = pace.volume(&plan, memory.0 * (1.0 - request.lock));
    plan.unlocked = pace.volume(&plan, memory.0);
    plan.steps = steps(&plan, hardware, request, (cores, memory, needed));
    plan.warnings = warnings(&plan, hardware, request, needed);
    Ok(plan)
}

const NO_VOLUME: Volume = Volume {
    cache: Size(0.0),
    per_node: Size(0.0),
    total: Size(0.0),
    seconds: 0.0,
    shortest_seconds: 0.0,
};

fn check(request: &Request) -> anyhow::Result<()> {
    if !(0.0..=LOCK_MAX).contains(&request.lock) {
        bail!(
            "--lock {}: a share of memory from 0 to {} %; a node needs the rest to live",
            100.0 * request.lock,
            100.0 * LOCK_MAX
        );
    }
    ensure!(request.tests >= 1, "--tests 0: there must be at least one");
    ensure!(request.repeats >= 1, "--repeats 0: there must be at least one");
    if let Some(rate) = request.node_rate {
        ensure!(
            rate >= request.thread_rate,
            "--node-ceiling {rate} is less than one thread's --thread-rate {}",
            request.thread_rate
        );
    }
    Ok(())
}

/// Rounded up, for what comes whole; a hair above a whole number is that number.
fn whole(value: f64) -> anyhow::Result<u32> {
    let up = (value * (1.0 - 1e-9)).ceil().max(1.0);
    ensure!(up <= f64::from(u32::MAX), "{up} nodes or threads: is a rate much too small?");
    Ok(up as u32)
}

/// 1, 2, 4 and so on, and the last itself.
fn doubled(last: u32) -> Vec<u32> {
    let mut counts: Vec<u32> = std::iter::successors(Some(1_u32), |count| count.checked_mul(2))
        .take_while(|count| *count < last)
        .collect();
    counts.push(last);
    counts
}

/// The next number that one would write down: 1, 1.5, 2, 3, 4, 5, 6, 8 and their tens.
fn round_up(value: f64) -> f64 {
    let ten = 10.0_f64.powf(value.log10().floor());
    let steps = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    let step = steps.into_iter().find(|step| step * ten >= value * (1.0 - 1e-9));
    step.unwrap_or(10.0) * ten
}

/// How fast runs go, at the slow end.
struct Pace<'a> {
    limit: f64,
    node_ceiling: f64,
    thread: f64,
    request: &'a Request,
}

impl Pace<'_> {
    fn rate(&self, nodes: u32, threads: u32) -> f64 {
        let node = (f64::from(threads) * self.thread).min(self.node_ceiling);
        (f64::from(nodes) * node).min(self.limit)
    }

    fn volume(&self, plan: &Plan, cache: f64) -> Volume {
        let per_node = round_up(CACHE_FACTOR * cache);
        let mut seconds = 0.0;
        for &nodes in &plan.node_counts {
            for &threads in &plan.thread_counts {
                seconds += f64::from(nodes) * per_node / self.rate(nodes, threads);
            }
        }
        // At their fastest, nodes share nothing but the servers.
        let fastest = (f64::from(plan.nodes) * self.node_ceiling).min(self.limit);
        let alone = per_node / self.node_ceiling;
        Volume {
            cache: Size(cache),
            per_node: Size(per_node),
            total: Size(per_node * f64::from(plan.nodes)),
            seconds: seconds * f64::from(self.request.tests) * f64::from(self.request.repeats),
            shortest_seconds: alone.min(f64::from(plan.nodes) * per_node / fastest),
        }
    }
}

fn step(what: &'static str, value: impl ToString, because: String) -> Step {
    Step { what, value: value.to_string(), because }
}

fn steps(
    plan: &Plan,
    hardware: &Hardware,
    request: &Request,
    (cores, memory, needed): (u32, Size, u32),
) -> Vec<Step> {
    let servers = &hardware.servers;
    let clients = &hardware.clients;
    let limit = plan.servers_limit;
    let ports = format!("{} servers x {} x {}", servers.count, servers.nics, servers.nic_rate);
    let is_by_drives = DIRECTIONS
        .into_iter()
        .all(|way| hardware.servers_limit(way) < hardware.servers_network(way));
    let mut steps = vec![step(
        "servers' limit",
        limit,
        if is_by_drives { "the drives, less than the ports".to_string() } else { ports },
    )];
    let port =
        format!("{} a node: {limit} / {0}", Rate(f64::from(clients.nics) * clients.nic_rate.0));
    steps.push(step("nodes by network", plan.nodes_by_network, port));
    let slow = format!("a thread of the slowest test does {}: {limit} / {0}", request.thread_rate);
    steps.push(step("threads", plan.threads, slow));
    steps.push(step(
        "nodes by cores",
        plan.nodes_by_cores,
        format!("{} / {cores} cores a node", plan.threads),
    ));
    if let (Some(nodes), Some(rate)) = (plan.nodes_in_practice, request.node_rate) {
        steps.push(step(
            "nodes in practice",
            nodes,
            format!("a node does {rate}: {limit} / {rate}"),
        ));
    }
    let used = if plan.nodes >= needed {
        format!(
            "at least {needed}; node counts are doubled from test to test, up to the {} there are",
            clients.nodes
        )
    } else {
        format!("all there are, of {needed} that it takes")
    };
    steps.push(step("nodes used", plan.nodes, used));
    let lock = digits(100.0 * request.lock);
    let left = format!("{lock} % of {memory} locked away");
    steps.push(step("cache left", plan.locked.cache, left));
    let beyond =
        format!("{CACHE_FACTOR} times the cache, rounded up; the same for every number of threads");
    steps.push(step("bytes per node", plan.locked.per_node, beyond.clone()));
    steps.push(step("  without the lock", plan.unlocked.per_node, format!("{beyond} ({memory})")));
    let all = |volume: &Volume| format!("{} nodes x {}", plan.nodes, volume.per_node);
    steps.push(step("bytes in all", plan.locked.total, all(&plan.locked)));
    steps.push(step("  without the lock", plan.unlocked.total, all(&plan.unlocked)));
    let runs = plan.node_counts.len() * plan.thread_counts.len();
    let set = format!(
        "{} tests x {} repeats x {runs} runs ({} nodes; {} threads), threads at {}",
        request.tests,
        request.repeats,
        counts(&plan.node_counts),
        counts(&plan.thread_counts),
        request.thread_rate
    );
    steps.push(step("time", time(plan.locked.seconds), set));
    steps.push(step(
        "  without the lock",
        time(plan.unlocked.seconds),
        "the same runs".to_string(),
    ));
    steps
}

fn counts(counts: &[u32]) -> String {
    let all: Vec<String> = counts.iter().map(u32::to_string).collect();
    all.join(" ")
}

fn warnings(plan: &Plan, hardware: &Hardware, request: &Request, needed: u32) -> Vec<String> {
    let mut warnings = Vec::new();
    if plan.nodes < needed {
        warnings.push(format!(
            "only {} of {needed} nodes: the servers' limit may not show",
            hardware.clients.nodes
        ));
    }
    if request.node_rate.is_none() {
        warnings.push(
            "what a node does in practice is not given (--node-ceiling): one node rarely fills its port; \
             run ior on one with all its cores"
                .to_string(),
        );
    }
    if request.repeats < 3 {
        warnings.push(format!(
            "{} repeats: with less than 3 a spoilt run is not seen",
            request.repeats
        ));
    }
    let smallest =
        plan.thread_counts.last().map_or(0.0, |most| plan.locked.per_node.0 / f64::from(*most));
    let transfer = hardware.clients.transfer;
    if smallest < transfer.0 {
        warnings.push(format!(
            "a thread's share, {}, is less than one call of {transfer}",
            Size(smallest)
        ));
    }
    if plan.locked.shortest_seconds < RUN_SECONDS_MIN {
        warnings.push(format!(
            "the shortest run takes {}: below {} the start of the threads is what is measured; lock less memory away",
            time(plan.locked.shortest_seconds),
            time(RUN_SECONDS_MIN)
        ));
    }
    let Some(storage) = hardware.storage else {
        warnings.push(
            "storage.capacity is not given: whether the data fill the file system is not checked"
                .to_string(),
        );
        return warnings;
    };
    let copies = f64::from(hardware.servers.copies);
    let used = storage.used.map_or(0.0, |used| used.0);
    let volumes = [("with the lock", &plan.locked), ("without the lock", &plan.unlocked)];
    for (which, volume) in volumes {
        let full = (used + copies * volume.total.0) / storage.capacity.0;
        if full > FULL {
            warnings.push(format!(
                "{which} the data fill the file system to {} %: beyond {} % it slows down, and the result is of that",
                digits(100.0 * full),
                digits(100.0 * FULL)
            ));
        }
    }
    warnings
}

impl Plan {
    /// As text.
    pub fn text(&self, name: &str) -> String {
        let mut lines = vec![format!("Sizing a test of {name}"), String::new()];
        lines.extend(
            self.steps
                .iter()
                .map(|step| format!("  {:<19} {:>9}  {}", step.what, step.value, step.because)),
        );
        let per_thread = self.thread_counts.iter().map(|threads| {
            format!(
                "{threads:>4} threads a node: {} each",
                Size(self.locked.per_node.0 / f64::from(*threads))
            )
        });
        lines.extend(list(
            "Bytes per thread, so that a node always moves the same",
            &per_thread.collect::<Vec<_>>(),
        ));
        lines.extend(list("Warnings", &self.warnings));
        lines.join("\n") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_rounded_up_to_what_one_writes_down() {
        assert_eq!(round_up(9.6e9), 1e10);
        assert_eq!(round_up(9.6e10), 1e11);
        assert_eq!(round_up(1e9), 1e9);
        assert_eq!(round_up(1.01e9), 1.5e9);
        assert_eq!(round_up(2.7e12), 3e12);
    }

    #[test]
    fn counts_double_up_to_the_last() {
        assert_eq!(doubled(24), [1, 2, 4, 8, 16, 24]);
        assert_eq!(doubled(1), [1]);
        assert_eq!(doubled(128), [1, 2, 4, 8, 16, 32, 64, 128]);
    }

    #[test]
    fn a_whole_quotient_stays_whole() {
        assert_eq!(whole(48e9 / 0.05e9).unwrap(), 960);
        assert_eq!(whole(8.1).unwrap(), 9);
        assert_eq!(whole(0.2).unwrap(), 1);
        assert!(whole(1e12).is_err());
    }
}

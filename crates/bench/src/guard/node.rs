//! A quick check of every node before a run: a single sick one makes all of them wait.
//!
//! The first rank of each node looks how busy its processors are with others' work, how much
//! memory is free, how fast it computes and copies, and how fast its links are; the root holds
//! the nodes against each other. Afterwards the counters of errors and of throttling are read
//! once more.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Code, Pitfall, Placement};
use crate::comm::Communicator;
use crate::error::Result;
use crate::stats::median;

/// How long others' work is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Looks at a node's own speed; the best counts.
const TRIES: u32 = 3;
/// Steps of computing in each.
const STEPS: u32 = 2_000_000;
/// Bytes of copying in each: more than caches of processors hold.
const COPY_BYTES: usize = 8 << 20;
/// Others may have this share of the processors.
const BUSY_SHARE_MAX: f64 = 0.1;
/// So much of the memory that is not locked must be free.
const FREE_SHARE_MIN: f64 = 0.25;
/// A node is slow below this share of the median node.
const SPEED_SHARE_MIN: f64 = 0.8;

/// How a node is.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Vitals {
    /// Share of the processors that others used.
    busy: f64,
    /// Share of the memory that is free, of what is not locked.
    free: f64,
    /// Steps a second.
    compute: f64,
    /// Bytes a second.
    copy: f64,
    /// Bytes a second of its physical links; 0 if they do not tell.
    links: f64,
}

impl Vitals {
    fn words(&self) -> [f64; 5] {
        [self.busy, self.free, self.compute, self.copy, self.links]
    }

    fn from_words(words: [f64; 5]) -> Self {
        let [busy, free, compute, copy, links] = words;
        Self { busy, free, compute, copy, links }
    }
}

/// A node as one rank sees it.
#[derive(Debug)]
pub(super) struct Health {
    vitals: Vitals,
    errors: u64,
}

impl Health {
    /// Looks at this node, all ranks together; without a check at the links alone.
    pub(super) fn take(comm: &dyn Communicator, check: bool) -> Result<Self> {
        let (links, errors) = (link_rate(Path::new("/sys")), errors_of(Path::new("/sys")));
        let mut vitals = Vitals { links: links.unwrap_or(0) as f64, ..Vitals::default() };
        if check {
            comm.barrier()?;
            let before = Jiffies::now();
            // All ranks sleep: one that waits for the others may turn in circles, which is work.
            std::thread::sleep(LOOK);
            vitals.busy = Jiffies::now().busy_since(&before);
            vitals.free = free_memory(&fs::read_to_string("/proc/meminfo").unwrap_or_default());
            comm.barrier()?;
        }
        Ok(Self { vitals, errors })
    }

    /// How each node is: its first rank measures its speed, alone there.
    pub(super) fn gather(
        &self,
        comm: &dyn Communicator,
        placement: &Placement,
    ) -> Result<Vec<(String, Vitals)>> {
        let leads = placement.leads(comm.rank());
        let mut mine = self.vitals;
        // A single node has nothing to be compared with.
        if leads && placement.nodes() > 1 {
            (mine.compute, mine.copy) = speed();
        }
        let bytes: Vec<u8> = mine.words().iter().flat_map(|word| word.to_le_bytes()).collect();
        let all = comm.all_gather(&bytes)?;
        let vitals = |rank: &usize| {
            let bytes = all.get(*rank).map_or(&[][..], Vec::as_slice);
            let mut words =
                bytes.chunks_exact(8).map(|word| word.try_into().map_or(0.0, f64::from_le_bytes));
            let vitals = Vitals::from_words(std::array::from_fn(|_| words.next().unwrap_or(0.0)));
            (placement.name(placement.of(*rank)).to_owned(), vitals)
        };
        Ok(placement.leaders().iter().map(vitals).collect())
    }

    /// Errors and throttling since the first look.
    pub(super) fn new_errors(&self) -> u64 {
        errors_of(Path::new("/sys")).saturating_sub(self.errors)
    }
}

/// Bytes a second of each node's links together, where they tell.
pub(super) fn links(nodes: &[(String, Vitals)]) -> Vec<Option<u64>> {
    let of = |(_, node): &(String, Vitals)| (node.links > 0.0).then_some(node.links as u64);
    nodes.iter().map(of).collect()
}

/// One of the numbers that nodes are compared by.
type Part = fn(&Vitals) -> f64;

/// What is wrong with the nodes.
pub(super) fn sick(nodes: &[(String, Vitals)]) -> Option<Pitfall> {
    let middle = |of: Part| median(nodes.iter().map(|node| of(&node.1)));
    let compared: [(Part, &str); 3] = [
        (|node| node.compute, "computes"),
        (|node| node.copy, "copies memory"),
        (|node| node.links, "is linked"),
    ];
    let mut found = Vec::new();
    for (name, node) in nodes {
        let mut ills = Vec::new();
        if node.busy > BUSY_SHARE_MAX {
            ills.push(format!("other work has {:.0} % of its processors", node.busy * 100.0));
        }
        if node.free > 0.0 && node.free < FREE_SHARE_MIN {
            ills.push(format!(
                "only {:.0} % of its memory that is not locked are free",
                node.free * 100.0
            ));
        }
        for (of, what) in compared {
            let (mine, middle) = (of(node), middle(of));
            if middle > 0.0 && mine < middle * SPEED_SHARE_MIN {
                let share = mine / middle * 100.0;
                ills.push(format!("it {what} at {share:.0} % of the median node's speed"));
            }
        }
        if !ills.is_empty() {
            found.push(format!("{name}: {}", ills.join(", ")));
        }
    }
    let severity = found.len() as f64;
    (!found.is_empty()).then(|| Pitfall::new(Code::Node, None, severity, found.join("; ")))
}

/// What went wrong on the nodes during the run; a number of each rank.
pub(super) fn errors(of: &[u64], placement: &Placement) -> Option<Pitfall> {
    let leaders = placement.leaders();
    let bad = leaders.iter().filter_map(|rank| Some((rank, of.get(*rank)?)));
    let bad = bad.filter(|(_, count)| **count > 0);
    let said: Vec<String> = bad
        .map(|(rank, count)| {
            let name = placement.name(placement.of(*rank));
            format!("{name}: {count} errors of its links or slow-downs for heat during the run")
        })
        .collect();
    (!said.is_empty()).then(|| Pitfall::new(Code::Node, Some("after"), 0.0, said.join("; ")))
}

/// The processors' time so far.
struct Jiffies {
    idle: u64,
    all: u64,
}

impl Jiffies {
    fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// The line of all processors: user, nice, system, idle, iowait, irq, softirq, steal.
    fn parse(text: &str) -> Self {
        let line = text.lines().next().unwrap_or_default();
        let words = line.split_whitespace().skip(1).take(8);
        let words: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        let at = |at: usize| words.get(at).copied().unwrap_or(0);
        Self { idle: at(3) + at(4), all: words.iter().sum() }
    }

    fn busy_since(&self, before: &Self) -> f64 {
        let all = self.all.saturating_sub(before.all);
        let idle = self.idle.saturating_sub(before.idle);
        if all == 0 { 0.0 } else { 1.0 - idle.min(all) as f64 / all as f64 }
    }
}

/// Share of the memory that is free, or can be made so, of what is not locked: `memblock` takes
/// most of it on purpose, and what it leaves is all that there is for the run.
fn free_memory(meminfo: &str) -> f64 {
    let of = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    let locked = of("Mlocked:").unwrap_or(0.0);
    let all = of("MemTotal:").map(|all| all - locked);
    of("MemAvailable:").zip(all).map_or(0.0, |(free, all)| free / all.max(1.0))
}

/// Steps and bytes a second.
fn speed() -> (f64, f64) {
    let from = vec![1_u8; COPY_BYTES];
    let mut to = vec![0_u8; COPY_BYTES];
    let (mut compute, mut copy) = (0.0_f64, 0.0_f64);
    for _ in 0..TRIES {
        let start = Instant::now();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..STEPS {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
        std::hint::black_box(state);
        compute = compute.max(f64::from(STEPS) / start.elapsed().as_secs_f64().max(1e-9));
        let start = Instant::now();
        to.copy_from_slice(&from);
        std::hint::black_box(&mut to);
        copy = copy.max(COPY_BYTES as f64 / start.elapsed().as_secs_f64().max(1e-9));
    }
    (compute, copy)
}

fn number(path: impl AsRef<Path>) -> Option<u64> {
    // `100 Gb/sec (4X EDR)`, or the number alone.
    let text = fs::read_to_string(path).ok()?;
    let word = text.split_whitespace().next()?;
    word.parse::<f64>().ok().filter(|value| *value > 0.0).map(|value| value as u64)
}

fn below(dir: impl AsRef<Path>) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Ports of a fabric.
fn ports(sys: &Path) -> Vec<std::path::PathBuf> {
    below(sys.join("class/infiniband")).iter().flat_map(|card| below(card.join("ports"))).collect()
}

/// Cards, rather than what is made of them or of nothing.
fn cards(sys: &Path) -> Vec<std::path::PathBuf> {
    let mut all = below(sys.join("class/net"));
    all.retain(|card| card.join("device").exists());
    all
}

/// Bytes a second of all physical links that are up and tell.
fn link_rate(sys: &Path) -> Option<u64> {
    let megabits = cards(sys).iter().filter_map(|card| number(card.join("speed"))).sum::<u64>();
    let gigabits = ports(sys).iter().filter_map(|port| number(port.join("rate"))).sum::<u64>();
    let bytes = megabits * 125_000 + gigabits * 125_000_000;
    (bytes > 0).then_some(bytes)
}

/// Errors of the physical links, and how often processors were slowed down for heat.
fn errors_of(sys: &Path) -> u64 {
    let card = |card: &std::path::PathBuf| {
        ["rx_errors", "tx_errors"]
            .iter()
            .filter_map(|name| number(card.join("statistics").join(name)))
            .sum::<u64>()
    };
    let port = |port: &std::path::PathBuf| {
        ["symbol_error", "port_rcv_errors", "link_downed"]
            .iter()
            .filter_map(|name| number(port.join("counters").join(name)))
            .sum::<u64>()
    };
    let heat = below(sys.join("devices/system/cpu"));
    let heat =
        heat.iter().filter_map(|cpu| number(cpu.join("thermal_throttle/core_throttle_count")));
    cards(sys).iter().map(card).sum::<u64>()
        + ports(sys).iter().map(port).sum::<u64>()
        + heat.sum::<u64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, change: impl FnOnce(&mut Vitals)) -> (String, Vitals) {
        let mut vitals = Vitals { busy: 0.01, free: 0.9, compute: 1e9, copy: 1e10, links: 1e10 };
        change(&mut vitals);
        (name.to_owned(), vitals)
    }

    #[test]
    fn sick_nodes_are_named_with_what_they_have() {
        let well = [node("a", |_| {}), node("b", |_| {}), node("c", |_| {})];
        assert_eq!(sick(&well), None);
        let [a, b, _] = well;
        let said = |c| sick(&[a.clone(), b.clone(), c]).unwrap().message;
        assert_eq!(
            said(node("c", |one| one.busy = 0.5)),
            "c: other work has 50 % of its processors"
        );
        assert_eq!(
            said(node("c", |one| one.free = 0.1)),
            "c: only 10 % of its memory that is not locked are free"
        );
        let slow = said(node("c", |one| (one.compute, one.links) = (4e8, 1e9)));
        assert_eq!(
            slow,
            "c: it computes at 40 % of the median node's speed, it is linked at 10 % of the \
             median node's speed"
        );
        assert_eq!(sick(&[node("alone", |one| (one.compute, one.copy) = (0.0, 0.0))]), None);
        let linked = links(&[a, node("d", |one| one.links = 0.0)]);
        assert_eq!(linked, [Some(10_000_000_000), None]);
    }

    #[test]
    fn errors_during_the_run_are_told() {
        let placement = Placement::said(2, 1, 2);
        assert_eq!(errors(&[0, 0], &placement), None);
        assert!(errors(&[0, 3], &placement).unwrap().message.starts_with("node1: 3 errors"));
    }

    #[test]
    fn what_the_kernel_counts_is_read() {
        let before = Jiffies::parse("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 1 1 1\n");
        let after = Jiffies::parse("cpu  130 0 100 760 110 0 0 0 0 0\n");
        assert!((after.busy_since(&before) - 0.3).abs() < 1e-9);
        assert_eq!(Jiffies::parse("").busy_since(&Jiffies::parse("")), 0.0);
        assert_eq!(free_memory("MemTotal:  100 kB\nMemFree: 1 kB\nMemAvailable:   40 kB\n"), 0.4);
        // What memblock has taken is not missing, and what others take of the rest is.
        let with = |available: u32| {
            let locked = "MemTotal: 1000 kB\nMlocked: 900 kB\n";
            free_memory(&format!("{locked}MemAvailable: {available} kB\n"))
        };
        let free = |share| sick(&[node("a", |one| one.free = share)]);
        assert_eq!((with(60), free(with(60))), (0.6, None));
        let said = free(with(20)).unwrap().message;
        assert_eq!(said, "a: only 20 % of its memory that is not locked are free");
    }

    #[test]
    fn links_that_are_there_are_counted() {
        let name = format!("sateen-bench-sys-{}", std::process::id());
        let sys = std::env::temp_dir().join(name);
        let write = |path: &str, text: &str| {
            let path = sys.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(link_rate(&sys), None);
        write("class/net/eth0/device/x", "");
        write("class/net/eth0/speed", "10000\n");
        write("class/net/eth0/statistics/rx_errors", "7\n");
        write("class/net/down/device/x", "");
        write("class/net/down/speed", "-1\n");
        write("class/net/bridge/speed", "40000\n");
        write("class/infiniband/mlx/ports/1/rate", "100 Gb/sec (4X EDR)\n");
        assert_eq!(link_rate(&sys), Some(13_750_000_000));
        assert_eq!(errors_of(&sys), 7);
        write("devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "5\n");
        assert_eq!(errors_of(&sys), 12);
        fs::remove_dir_all(sys).unwrap();
    }
}

//! The pitfalls of measuring, watched: whatever makes the numbers of a run mean less than they
//! seem to becomes a warning with a code that never changes.
//!
//! | file | watches for | codes |
//! |---|---|---|
//! | `cache` | reading from memory what a device or a network should deliver | W-CACHE, W-FAST |
//! | `spread` | ranks that start late, lag behind, or are added up | W-SKEW, W-STRAGGLER, W-SUM |
//! | `equal` | nodes that move different amounts | W-UNEQUAL |
//! | `repeats` | too few repetitions, and short ones | W-REPEATS, W-SHORT |
//! | `room` | a file system that is nearly full | W-FULL |
//! | `node` | a node that is busy, short of memory, slower than the others, or has errors | W-NODE |
//! | `leftovers` | files of earlier runs | W-LEFTOVERS |
//!
//! An engine has a [`Guard`] on every rank: it is begun before the first phase, told of each
//! phase after it, outside its time, and asked at the end. Nothing of it runs while operations
//! are measured. What it says goes to standard error and into the JSON; the tables of the
//! original tools stay as they are.

mod cache;
mod equal;
mod leftovers;
mod node;
mod place;
mod repeats;
mod room;
mod spread;

use std::path::Path;

use clap::Args;
use serde::Serialize;

pub use cache::{Looking, Reading, ToRead, shared_out};
pub use leftovers::Mine;
pub use place::Placement;
pub use room::ToCome;
pub use spread::{Spread, Unit, Work};

use crate::comm::Communicator;
use crate::error::{Error, Result};
use crate::io::Space;
use crate::size;

/// What is to be done about pitfalls.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Pitfalls")]
pub struct Options {
    /// Drop each node's caches before phases that read (root; they are the whole machine's).
    #[arg(long, global = true)]
    pub drop_caches: bool,
    /// What a node's devices or network can deliver in a second; reading faster is flagged.
    #[arg(long, global = true, value_name = "SIZE", value_parser = size::parse)]
    pub node_rate: Option<u64>,
    /// Do not check the health of the nodes before the run (a tenth of a second).
    #[arg(long, global = true)]
    pub no_self_check: bool,
    /// Who has written what is read and was not written in this run; known to workloads that are
    /// made of others.
    #[arg(skip)]
    pub written_before: Before,
}

/// What is known of files that a run reads and has not written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Before {
    /// Nothing.
    #[default]
    Unknown,
    /// Somebody has, but caches were dropped since.
    Dropped,
    /// The same ranks have written them, just now.
    JustNow,
    /// Ranks of an earlier run have, on nodes that may be the same.
    Earlier,
}

/// Which pitfall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Code {
    /// Memory answers, or may.
    #[serde(rename = "W-CACHE")]
    Cache,
    /// A node reads faster than its devices or its network could.
    #[serde(rename = "W-FAST")]
    Fast,
    /// Nodes, or ranks of one node, move different amounts.
    #[serde(rename = "W-UNEQUAL")]
    Unequal,
    /// Ranks did not start together.
    #[serde(rename = "W-SKEW")]
    Skew,
    /// Ranks are far slower than the others.
    #[serde(rename = "W-STRAGGLER")]
    Straggler,
    /// The rates of the ranks added up say more than was reached.
    #[serde(rename = "W-SUM")]
    Sum,
    /// Too few repetitions.
    #[serde(rename = "W-REPEATS")]
    Repeats,
    /// A phase was short.
    #[serde(rename = "W-SHORT")]
    Short,
    /// The file system is nearly full.
    #[serde(rename = "W-FULL")]
    Full,
    /// A node is not well.
    #[serde(rename = "W-NODE")]
    Node,
    /// Earlier runs have left files.
    #[serde(rename = "W-LEFTOVERS")]
    Leftovers,
}

impl Code {
    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cache => "W-CACHE",
            Self::Fast => "W-FAST",
            Self::Unequal => "W-UNEQUAL",
            Self::Skew => "W-SKEW",
            Self::Straggler => "W-STRAGGLER",
            Self::Sum => "W-SUM",
            Self::Repeats => "W-REPEATS",
            Self::Short => "W-SHORT",
            Self::Full => "W-FULL",
            Self::Node => "W-NODE",
            Self::Leftovers => "W-LEFTOVERS",
        }
    }
}

/// A pitfall that a run has met.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pitfall {
    /// Which.
    pub code: Code,
    /// The phase that met it, or none if it is about the whole run.
    pub phase: Option<&'static str>,
    /// What was found, with numbers.
    pub message: String,
    /// How bad it is beside others of its code and phase: the worst is kept.
    #[serde(skip)]
    severity: f64,
}

impl Pitfall {
    fn new(code: Code, phase: Option<&'static str>, severity: f64, message: String) -> Self {
        Self { code, phase, message, severity }
    }

    /// The line on standard error.
    pub(crate) fn line(&self) -> String {
        let phase = self.phase.map_or(String::new(), |phase| format!("{phase}: "));
        format!("warning {}: {phase}{}", self.code.name(), self.message)
    }
}

/// Those that were found; of one code and phase the worst.
#[derive(Debug, Default)]
pub(crate) struct Found(Vec<Pitfall>);

impl Found {
    fn add(&mut self, new: impl IntoIterator<Item = Pitfall>) {
        for one in new {
            let same = |old: &&mut Pitfall| (old.code, old.phase) == (one.code, one.phase);
            match self.0.iter_mut().find(same) {
                Some(old) if old.severity >= one.severity => {}
                Some(old) => *old = one,
                None => self.0.push(one),
            }
        }
    }
}

/// What a run is, as far as the guard must know.
#[derive(Debug, Clone, Copy)]
pub struct Plan<'a> {
    /// Where files are.
    pub place: &'a Path,
    /// Whether what is measured is a file system at all.
    pub real: bool,
    /// How often everything is done.
    pub repetitions: usize,
}

/// The watch over a run, on one rank.
pub struct Guard<'a> {
    comm: &'a dyn Communicator,
    options: &'a Options,
    real: bool,
    /// Which rank is where.
    pub placement: Placement,
    source: cache::Source,
    health: node::Health,
    /// What each node's links can carry.
    links: Vec<Option<u64>>,
    found: Found,
}

impl<'a> Guard<'a> {
    /// Looks at the nodes; all ranks together.
    pub fn begin(
        comm: &'a dyn Communicator,
        options: &'a Options,
        plan: Plan,
        placement: Placement,
    ) -> Result<Self> {
        if plan.real {
            check_everywhere(comm, options, &placement)?;
        }
        let source = if plan.real { cache::Source::of(plan.place) } else { cache::Source::None };
        let health = node::Health::take(comm, !options.no_self_check)?;
        let nodes = health.gather(comm, &placement)?;
        let mut found = Found::default();
        if !options.no_self_check {
            found.add(node::sick(&nodes));
        }
        found.add(repeats::few(plan.repetitions));
        let (real, links) = (plan.real, node::links(&nodes));
        Ok(Self { comm, options, real, placement, source, health, links, found })
    }

    /// Tells of the room of the file system, before the run or after it; the root does.
    pub fn room(&mut self, space: &Space, to_come: ToCome) {
        self.found.add(room::full(space, to_come));
    }

    /// Looks for what earlier runs have left in a directory; the root does.
    pub fn leftovers(&mut self, dir: &Path, mine: Mine) {
        if self.real {
            self.found.add(leftovers::look(dir, mine));
        }
    }

    /// Looks whether files that a run makes by these names are there already; the root does.
    pub fn leftover_files<'f>(&mut self, files: impl Iterator<Item = &'f Path>) {
        if self.real {
            self.found.add(leftovers::named(files));
        }
    }

    /// Tells of other runs whose files are in a directory; the root does.
    pub fn leftover_runs(&mut self, dir: &Path, names: &[String]) {
        if self.real {
            self.found.add(leftovers::runs(dir, names));
        }
    }

    /// Before a phase that reads what this run has not written: looks what of it this rank's node
    /// has in memory, as far as the kernel tells (Linux 6.5). All ranks together, before anything
    /// is measured. Files are opened for it, which is why nobody looks where caches were dropped:
    /// what is measured then is to be cold. `files` is what this rank reads, or a sample.
    pub fn before_reading_others(
        &mut self,
        phase: &'static str,
        files: impl FnOnce() -> Vec<ToRead>,
    ) -> Result<()> {
        let known = matches!(self.options.written_before, Before::JustNow | Before::Dropped);
        if !self.real || self.options.drop_caches || known {
            return Ok(());
        }
        // Where the file system is memory, that is said anyway.
        let looks = !matches!(self.source, cache::Source::Memory(_) | cache::Source::None);
        let mine = if looks { cache::Resident::of(&files()) } else { cache::Resident::default() };
        let bytes = self.comm.all_gather_u64(mine.bytes)?.into_iter();
        let all = bytes.zip(self.comm.all_gather_u64(mine.of)?);
        let all: Vec<_> = all.map(|(bytes, of)| cache::Resident { bytes, of }).collect();
        self.found.add(cache::resident(phase, &all, &self.placement));
        Ok(())
    }

    /// Before a phase that reads: drops the caches if that is wished, and notes what devices
    /// have delivered so far. All ranks together; a barrier of the phase follows.
    pub fn before_reading(&self) -> Result<cache::Before> {
        if self.options.drop_caches {
            if self.real && self.placement.leads(self.comm.rank()) {
                cache::drop_caches()?;
            }
            // All wait: what one node still writes back is load on the file system of all.
            self.comm.barrier()?;
        }
        Ok(cache::Before(self.source.delivered()))
    }

    /// What was delivered since to each rank.
    pub fn after_reading(&self, before: cache::Before) -> Result<Vec<u64>> {
        let delivered =
            self.source.delivered().zip(before.0).map(|(now, then)| now.saturating_sub(then));
        self.comm.all_gather_u64(delivered.unwrap_or(u64::MAX))
    }

    /// What was found so far.
    pub(crate) fn found(&self) -> &[Pitfall] {
        &self.found.0
    }

    /// Whether the same ranks have written before the run what is read in it.
    pub fn written_before(&self) -> bool {
        matches!(self.options.written_before, Before::JustNow | Before::Earlier)
    }

    /// Whether caches are dropped before reading.
    pub fn drops_caches(&self) -> bool {
        self.options.drop_caches
    }

    /// Tells of a phase: what each rank has done, in bytes or in operations.
    pub fn phase(&mut self, name: &'static str, unit: Unit, works: &[Work]) -> Spread {
        self.judged(name, unit, works, Spread::of(works))
    }

    /// The same where the workload has a rule of its own for what the result is.
    pub fn phase_by_rule(
        &mut self,
        name: &'static str,
        unit: Unit,
        works: &[Work],
        rate: f64,
    ) -> Spread {
        self.judged(name, unit, works, Spread { rate, ..Spread::of(works) })
    }

    fn judged(&mut self, name: &'static str, unit: Unit, works: &[Work], all: Spread) -> Spread {
        self.found.add(all.pitfalls(name, unit, works, &self.placement));
        self.found.add(equal::unequal(name, unit, works, &self.placement));
        self.found.add(repeats::short(name, all.seconds));
        all
    }

    /// Tells of a phase that has read bytes.
    pub fn read(&mut self, reading: &Reading) {
        let limits = cache::Limits { asked: self.options.node_rate, links: &self.links };
        let earlier = self.options.written_before == Before::Earlier;
        self.found.add(cache::found(reading, &self.placement, &self.source, limits, earlier));
    }

    /// Tells of a phase that has written bytes; whether they had to be durable.
    pub fn written(&mut self, name: &'static str, durable: bool) {
        if self.real && !durable {
            self.found.add(cache::not_durable(name, &self.source));
        }
    }

    /// Tells that a phase looks at names that its own node has made.
    pub fn own_names(&mut self, name: &'static str) {
        self.found.add(self.knows_names(name));
    }

    /// Tells of a phase that looks at names that another run, or another node, has made.
    pub fn others_names(&mut self, looking: &Looking) {
        // What a command has dropped is its word.
        if self.real && self.options.written_before != Before::Dropped {
            self.found.add(cache::names(looking, &self.placement, &self.source));
        }
    }

    /// What is wrong with a phase that looks at names that its own node has made.
    pub(crate) fn knows_names(&self, name: &'static str) -> Option<Pitfall> {
        (self.real && !self.options.drop_caches).then(|| cache::own_names(name))
    }

    /// Looks at the nodes once more; the worst of each kind that was found, all ranks together.
    pub fn finish(&mut self) -> Result<Vec<Pitfall>> {
        let errors = self.comm.all_gather_u64(self.health.new_errors())?;
        self.found.add(node::errors(&errors, &self.placement));
        let mut all = std::mem::take(&mut self.found.0);
        all.sort_by_key(|one| one.code);
        Ok(all)
    }
}

/// Up to `most` numbers below `count`, evenly spread.
pub fn sample(count: u64, most: u64) -> impl Iterator<Item = u64> {
    let taken = count.min(most);
    let at = move |index: u64| u128::from(index) * u128::from(count) / u128::from(taken.max(1));
    (0..taken).filter_map(move |index| u64::try_from(at(index)).ok())
}

/// Refuses what cannot be done here, before anything is begun.
pub fn check(options: &Options) -> Result<()> {
    if options.drop_caches { cache::may_drop() } else { Ok(()) }
}

/// The same at every node, all ranks together: if one alone left, the others would wait for it.
fn check_everywhere(
    comm: &dyn Communicator,
    options: &Options,
    placement: &Placement,
) -> Result<()> {
    let mine = check(options).err().map_or(String::new(), |error| error.to_string());
    let all = comm.all_gather(mine.as_bytes())?;
    let Some((rank, why)) = all.iter().enumerate().find(|(_, why)| !why.is_empty()) else {
        return Ok(());
    };
    let why = String::from_utf8_lossy(why);
    let node = placement.name(placement.of(rank));
    Err(Error::usage(if placement.nodes() > 1 { format!("{node}: {why}") } else { why.into() }))
}

/// Says them on standard error: of each code the worst, and which other phases met it.
pub fn say(pitfalls: &[Pitfall]) {
    for line in lines(pitfalls) {
        eprintln!("sateen-bench: {line}");
    }
}

/// The same as lines.
pub(crate) fn lines(pitfalls: &[Pitfall]) -> Vec<String> {
    let mut lines = Vec::new();
    for same in pitfalls.chunk_by(|a, b| a.code == b.code) {
        let Some(worst) = same.iter().max_by(|a, b| a.severity.total_cmp(&b.severity)) else {
            continue;
        };
        let others = same.iter().filter(|one| one.phase != worst.phase);
        let others: Vec<&str> = others.filter_map(|one| one.phase).collect();
        let others = if others.is_empty() {
            String::new()
        } else {
            format!(" (also: {})", others.join(", "))
        };
        lines.push(format!("{}{others}", worst.line()));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_one_kind_the_worst_is_kept() {
        let mut found = Found::default();
        let one = |phase, severity, message: &str| {
            Pitfall::new(Code::Short, Some(phase), severity, message.into())
        };
        found.add([one("write", 1.0, "a"), one("write", 3.0, "b"), one("write", 2.0, "c")]);
        found.add([one("read", 0.5, "d")]);
        assert_eq!(found.0.len(), 2);
        found.add([Pitfall::new(Code::Repeats, None, 0.0, "e".into())]);
        let said = lines(&found.0);
        assert_eq!(said, ["warning W-SHORT: write: b (also: read)", "warning W-REPEATS: e"]);
    }

    #[test]
    fn samples_are_evenly_spread() {
        assert_eq!(sample(3, 8).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(sample(100, 4).collect::<Vec<_>>(), [0, 25, 50, 75]);
        assert_eq!(sample(u64::MAX, 2).collect::<Vec<_>>(), [0, u64::MAX / 2]);
        assert_eq!(sample(0, 4).count(), 0);
    }

    #[test]
    fn codes_are_the_same_in_text_and_json() {
        for code in [Code::Cache, Code::Fast, Code::Unequal, Code::Skew, Code::Straggler] {
            assert_eq!(serde_json::to_value(code).unwrap(), code.name());
        }
        for code in [Code::Sum, Code::Repeats, Code::Short, Code::Full, Code::Node] {
            assert_eq!(serde_json::to_value(code).unwrap(), code.name());
        }
        assert_eq!(serde_json::to_value(Code::Leftovers).unwrap(), Code::Leftovers.name());
    }
}

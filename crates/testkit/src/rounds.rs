//! Rounds of up, load, crash, fsck, up, check: what `kill9` and `power_cut` of the command
//! line's tests run.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::forgetfs::Loss;
use crate::load::{Checked, Load};
use crate::program::Program;
use crate::random::{Random, mix};
use crate::{env_number, seed};

/// Rounds, unless the environment (`ROUNDS`) says otherwise.
const ROUNDS: u64 = 5;
/// Threads that work.
const WORKERS: usize = 4;
/// The load runs that long at least, and up to as much longer, in milliseconds.
const LOAD_MS: u64 = 500;
/// And until so much is done, on however slow a machine; but no longer than this.
const STEPS_MIN: u64 = 40;
const STEPS_PATIENCE: Duration = Duration::from_secs(120);
/// Every so many rounds it is taken down in good order, too.
const DOWN_EVERY: u64 = 4;

/// See the module.
#[derive(Debug)]
pub struct Rounds {
    binary: String,
    name: String,
    power: bool,
}

impl Rounds {
    /// Rounds of the program at `binary`.
    pub fn new(binary: &str, name: &str) -> Rounds {
        Rounds { binary: binary.to_owned(), name: name.to_owned(), power: false }
    }

    /// The disk below forgets what was not synced.
    #[must_use]
    pub fn with_power_cuts(mut self) -> Rounds {
        self.power = true;
        self
    }

    /// Runs them, and prints a line for each and a sum that says how to repeat them.
    ///
    /// # Errors
    /// Something was lost or damaged.
    pub fn run(self) -> Result<()> {
        let rounds = env_number("ROUNDS", ROUNDS);
        println!("{}: ROUNDS={rounds}", self.name);
        let seed = seed();
        let started = Instant::now();
        let options = ["--mdts", "2", "--osts", "4"];
        let mut program = Program::new(&self.binary, &self.name, 2, &options)?;
        if self.power {
            program.forget()?;
        }
        program.up()?;
        let mut load = Load::new(program.mounts(), WORKERS)?;
        let mut sum = Checked::default();
        for round in 1..=rounds {
            let one = one_round(&mut program, &mut load, mix(seed ^ mix(round)))
                .with_context(|| format!("round {round} of SEED={seed}\n{}", program.log()))?;
            let Checked { syncs, entries, bytes, lost } = one;
            let at = started.elapsed().as_secs_f32();
            println!(
                "round {round}: {syncs} syncs kept, {lost} unsynced operations lost, {entries} entries and {} KiB checked (at {at:.1} s)",
                bytes >> 10
            );
            sum.syncs += syncs;
            sum.lost += lost;
            sum.bytes += bytes;
            if round % DOWN_EVERY == 0 {
                program.down()?;
                program.fsck().context("after a stop in good order")?;
                program.up()?;
                load.check().context("after a stop in good order")?;
            }
        }
        program.down()?;
        program.fsck().context("in the end")?;
        println!(
            "shown: {}: SEED={seed}: {rounds} rounds, {} syncs kept, {} unsynced operations lost, {} MiB checked, {:.0} s",
            self.name,
            sum.syncs,
            sum.lost,
            sum.bytes >> 20,
            started.elapsed().as_secs_f32()
        );
        ensure!(sum.syncs > 0, "the load never synced anything");
        // A disk that forgot nothing would have shown nothing.
        ensure!(!self.power || sum.lost > 0, "no power cut has lost anything that was not synced");
        Ok(())
    }
}

fn one_round(program: &mut Program, load: &mut Load, seed: u64) -> Result<Checked> {
    let mut random = Random::new(seed);
    let pid = program.pid()?;
    program.set_stripes(if random.one_in(2) { 1 } else { -1 })?;
    let running = load.start(seed);
    let load_ms = env_number("LOAD_MS", LOAD_MS);
    std::thread::sleep(Duration::from_millis(load_ms + random.below(load_ms)));
    let slow = Instant::now();
    while running.steps().iter().sum::<u64>() < STEPS_MIN
        && running.alive().contains(&true)
        && slow.elapsed() < STEPS_PATIENCE
    {
        std::thread::sleep(Duration::from_millis(5));
    }
    program.kill(pid, || running.killed())?;
    load.join(running)?;
    let some = Loss::Some { seed: random.number() };
    program.cut_power(if random.one_in(2) { Loss::All } else { some })?;
    program.fsck().context("after the crash")?;
    program.up()?;
    load.check()
}

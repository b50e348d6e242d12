//! What proofs of the whole program need, from outside: nothing here knows its insides.
//!
//! | module | is |
//! |---|---|
//! | [`cluster`] | a file system of several server processes, and mounts of it |
//! | [`cutter`] | connections between networks, which it breaks at random |
//! | [`disk`] | what file system a folder is on, and an ext4 for tests that have to have one |
//! | [`forgetfs`] | a file system that loses, on demand, what was not synced |
//! | [`fuse_limit`] | how many pages a request of FUSE may have |
//! | [`hosts`] | networks that are plugged into one switch, as hosts are |
//! | [`load`] | work on a mount that remembers what it was promised, and checks it after a crash |
//! | [`network`] | a network of its own for some processes |
//! | [`program`] | a file system run by the real binary: up, kill, fsck, down |
//! | [`random`] | chance that a seed decides |
//! | [`rounds`] | up, load, crash, fsck, up, check, again and again |
//! | [`transport`] | over what the kernel's requests come |
//! | [`watchdog`] | what ends a test that hangs |

pub mod cluster;
pub mod cutter;
pub mod disk;
pub mod forgetfs;
pub mod fuse_limit;
pub mod hosts;
pub mod load;
pub mod network;
pub mod program;
pub mod random;
pub mod rounds;
pub mod transport;
pub mod watchdog;

use std::io::Write as _;

/// Whether tests that mount can run here. In CI they must.
///
/// # Panics
/// As [`skipped`].
pub fn can_mount() -> bool {
    let root = rustix::process::geteuid().is_root();
    let device = std::fs::File::options().read(true).write(true).open("/dev/fuse");
    let possible = root && device.is_ok();
    if !possible {
        skipped("needs root and /dev/fuse");
    }
    possible
}

/// Says that a test passes itself over, and why: past the harness, which shows nothing of tests
/// that pass, so that `make test` can count them.
///
/// # Panics
/// With `CI=true`: there a test that is skipped has failed.
pub fn skipped(why: impl std::fmt::Display) {
    let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!ci, "in CI no test may be passed over: {why}");
    // Where nobody can be told, there is nothing to count either.
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

/// What chance goes by in a test, which is printed: `SEED`, or always the same, so that a test
/// that passes passes again. With `SEED=random` it is another each time.
///
/// # Panics
/// If it is anything else.
pub fn seed() -> u64 {
    seed_or(1)
}

/// What chance goes by in a test that is to see something new with each change of what it tests, and
/// the same whenever that is tested again, so that nobody's change fails for chance's sake: `SEED`, or
/// what these crates' sources are at the last commit, of which Git knows the hashes. It is printed.
/// Where there is no Git, or no repository, it is another each time.
///
/// # Panics
/// As [`seed`].
pub fn fresh_seed(of: &[&str]) -> u64 {
    seed_or(sources_number(of).unwrap_or_else(|| Seed::Random.number()))
}

/// Of the first 48 bits of each hash, so that what is added to it has room.
fn sources_number(of: &[&str]) -> Option<u64> {
    let mut git = std::process::Command::new("git");
    git.current_dir(env!("CARGO_MANIFEST_DIR")).arg("rev-parse");
    git.args(of.iter().map(|name| format!("HEAD:crates/{name}/src")));
    let said = git.output().ok().filter(|output| output.status.success())?;
    let hashes = String::from_utf8(said.stdout).ok()?;
    hashes
        .lines()
        .try_fold(0, |all, hash| Some(all ^ u64::from_str_radix(hash.get(..12)?, 16).ok()?))
}

/// The same as [`seed`] for a test whose usual seed is this one.
///
/// # Panics
/// As [`seed`].
pub fn seed_or(usual: u64) -> u64 {
    let said = std::env::var("SEED").ok();
    let seed = Seed::said(said.as_deref()).map_or(usual, Seed::number);
    println!("SEED={seed}");
    seed
}

/// The seeds of a test that goes through several of them and prints each: `SEED` alone, or
/// `SEEDS` of them from it on; else `SEEDS` or `count` of them, from 1 on, or with `SEED=random`
/// from anywhere on.
///
/// # Panics
/// As [`seed`].
pub fn seeds(count: u64) -> Vec<u64> {
    let said = std::env::var("SEED").ok();
    let said = Seed::said(said.as_deref());
    // Who says a seed and no number means this one.
    let count = if matches!(said, Some(Seed::Number(_))) { 1 } else { count };
    seeds_of(said, env_number("SEEDS", count))
}

fn seeds_of(said: Option<Seed>, count: u64) -> Vec<u64> {
    let first = said.map_or(1, Seed::number);
    (first..first + count).collect()
}

/// What `SEED` says, if it says anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seed {
    Number(u64),
    Random,
}

impl Seed {
    fn said(text: Option<&str>) -> Option<Seed> {
        let text = text?.trim();
        if text == "random" {
            return Some(Seed::Random);
        }
        let number = text.parse();
        assert!(number.is_ok(), "SEED={text} is neither a number nor random");
        number.ok().map(Seed::Number)
    }

    fn number(self) -> u64 {
        match self {
            Seed::Number(seed) => seed,
            Seed::Random => {
                let now = std::time::UNIX_EPOCH.elapsed().map_or(1, |now| now.as_nanos() as u64);
                random::mix(now) >> 32
            }
        }
    }
}

/// A number from the environment, or the default.
///
/// # Panics
/// If it is no number.
pub fn env_number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => {
            let number = text.trim().parse();
            assert!(number.is_ok(), "{name}={text} is no number");
            number.unwrap_or(default)
        }
        Err(_) => default,
    }
}

/// Cases of a property that proptest tries: `PROPTEST_CASES`, or so many. proptest itself looks
/// there only where a test does not say how many, and ours all do.
///
/// # Panics
/// If it is no number, or one too large.
pub fn cases(usual: u32) -> u32 {
    let cases = u32::try_from(env_number("PROPTEST_CASES", usual.into()));
    assert!(cases.is_ok(), "PROPTEST_CASES is too large");
    cases.unwrap_or(usual)
}

/// Time that all threads of this process have had a processor for.
pub fn processor_time() -> std::time::Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    std::time::Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_number_or_another_each_time() {
        assert_eq!(Seed::said(None), None);
        assert_eq!(Seed::said(Some("7")), Some(Seed::Number(7)));
        assert_eq!(Seed::said(Some("random")), Some(Seed::Random));
        assert!(std::panic::catch_unwind(|| Seed::said(Some("often"))).is_err());
        assert_ne!(Seed::Random.number(), Seed::Random.number());
    }

    #[test]
    fn a_seed_that_is_said_or_random_begins() {
        assert_eq!(seeds_of(None, 3), [1, 2, 3]);
        assert_eq!(seeds_of(Some(Seed::Number(9)), 1), [9]);
        assert_eq!(seeds_of(Some(Seed::Number(9)), 3), [9, 10, 11]);
        let random = seeds_of(Some(Seed::Random), 3);
        assert_eq!(random, [random[0], random[0] + 1, random[0] + 2]);
        assert_ne!(random, seeds_of(Some(Seed::Random), 3));
    }
}

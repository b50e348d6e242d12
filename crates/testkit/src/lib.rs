//! What proofs of the whole program need, from outside: nothing here knows its insides.
//!
//! | module | is |
//! |---|---|
//! | [`cluster`] | a file system of several server processes, and mounts of it |
//! | [`forgetfs`] | a file system that loses, on demand, what was not synced |
//! | [`load`] | work on a mount that remembers what it was promised, and checks it after a crash |
//! | [`program`] | a file system run by the real binary: up, kill, fsck, down |
//! | [`random`] | chance that a seed decides |
//! | [`rounds`] | up, load, crash, fsck, up, check, again and again |

pub mod cluster;
pub mod forgetfs;
pub mod load;
pub mod program;
pub mod random;
pub mod rounds;

/// Whether tests that mount can run here. In CI they must.
///
/// # Panics
/// With `CI=true`, if they cannot.
pub fn can_mount() -> bool {
    let root = rustix::process::geteuid().is_root();
    let device = std::fs::File::options().read(true).write(true).open("/dev/fuse");
    let possible = root && device.is_ok();
    let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(possible || !ci, "CI must run as root with /dev/fuse");
    if !possible {
        eprintln!("skipped: needs root and /dev/fuse");
    }
    possible
}

/// What chance goes by in a test, which is printed: `SEED`, or always the same, so that a test
/// that passes passes again. With `SEED=random` it is another each time.
///
/// # Panics
/// If it is anything else.
pub fn seed() -> u64 {
    let seed = match std::env::var("SEED") {
        Ok(text) if text == "random" => {
            let now = std::time::UNIX_EPOCH.elapsed().map_or(1, |now| now.as_nanos() as u64);
            random::mix(now) >> 32
        }
        _ => env_number("SEED", 1),
    };
    println!("SEED={seed}");
    seed
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

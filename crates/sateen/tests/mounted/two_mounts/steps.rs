//! Two mounts of one file system, and a folder of the local disk that is done the same to:
//! whatever one mount does, the other must see at once, and both must look like the local
//! folder, error numbers included: names, content, owners, modes, links, extended attributes, and
//! the times that a program has set. Times that nobody has set are the same on both mounts. When
//! something was read last is left out: looking changes it. So is the ctime after a write: the
//! MDT's clock says it when it hears of it, and the writer does not ask.
//!
//! Files have stripes of 64 KiB on all OSTs, so that most of what is done to them is done to
//! several objects. Some descriptors stay open over many steps, whatever becomes of their files.
//!
//! After each step its paths are compared, and all that there is: always, or now and then, so
//! that caches grow old in between. `STEPS` steps; `SEED` repeats them.

use std::path::Path;
use std::process::Command;

use sateen_testkit::cluster::ok;
use sateen_testkit::env_number;
use sateen_testkit::random::Random;

use super::ops::{Op, Place, There};
use super::seen::{larger_than, seen, seen_by, times, touched};
use crate::BINARY;
use crate::rig::{Rig, Servers, on_both};

on_both!(what_one_mount_does_the_other_sees, all_is_the_same_after_each_step);

const STRIPE_BYTES: u64 = 64 << 10;

fn what_one_mount_does_the_other_sees(servers: Servers) {
    alternate(servers, "two-steps", env_number("STEPS", 1500), 3);
}

fn all_is_the_same_after_each_step(servers: Servers) {
    alternate(servers, "two-each", env_number("STEPS", 300), 1);
}

/// Has all that is made on a mount from now on striped over all OSTs; how many these are.
fn stripe(mnt: &Path) -> u64 {
    let size = STRIPE_BYTES.to_string();
    ok(Command::new(BINARY).args(["lfs", "setstripe", "-c", "-1", "-S", &size]).arg(mnt));
    let probe = mnt.join("probe");
    std::fs::write(&probe, b"x").unwrap();
    let shown = ok(Command::new(BINARY).args(["lfs", "getstripe", "-c"]).arg(&probe));
    std::fs::remove_file(&probe).unwrap();
    shown.trim().parse().unwrap()
}

/// What was done, in numbers.
#[derive(Default)]
struct Sums {
    succeeded: u64,
    by_held: u64,
    compared: u64,
    /// Of those that were compared, files that have more than a row of stripes.
    wide: u64,
}

fn alternate(servers: Servers, name: &str, steps: u64, whole_one_in: u64) {
    let Some(rig) = Rig::start(servers, name, 2, false) else { return };
    println!("STEPS={steps}");
    let seed = sateen_testkit::seed();
    let stripes = stripe(rig.mnt());
    assert!(stripes > 1, "{stripes} stripes");
    let mut random = Random::new(seed);
    let mut mounts = [0, 1].map(|number| Place::new(&rig.mounts()[number]));
    let mut local = Place::new(&rig.local());
    let mut sums = Sums::default();
    for step in 0..steps {
        let op = Op::any(&mut random, &There::below(&local.root), &local.open());
        let chosen = random.below(2) as usize;
        let actor = op.held().map_or(chosen, |number| number % 2);
        let when = format!("seed {seed} step {step}: {op:?}");
        // Whose descriptor is closed now was open until now.
        let before = local.paths(&op, &There::below(&local.root));
        let here = mounts[actor].perform(&op).map_err(|error| error.raw_os_error());
        let there = local.perform(&op).map_err(|error| error.raw_os_error());
        assert_eq!(here, there, "{when}, against the local disk");
        sums.succeeded += u64::from(here.is_ok());
        sums.by_held += u64::from(matches!(op, Op::Held(..)));
        let mut paths = local.paths(&op, &There::below(&local.root));
        paths.extend(before);
        paths.sort();
        paths.dedup();
        assert_eq!(touched(&mounts[1 - actor], &paths), touched(&local, &paths), "{when}");
        let [one, other] = [0, 1].map(|number| times(&mounts[number], &op, &paths));
        assert_eq!(one, other, "{when}, times of {paths:?}");
        if let Some(number) = op.held() {
            assert_eq!(seen_by(&mounts[actor], number), seen_by(&local, number), "{when}");
        }
        // By turns first.
        if random.below(whole_one_in) == 0 {
            compare(&mounts, &local, actor, &when);
            sums.compared += 1;
            sums.wide += larger_than(&local.root, stripes * STRIPE_BYTES);
        }
    }
    let Sums { succeeded, by_held, compared, wide } = sums;
    println!(
        "shown: {name} {servers:?}: {steps} steps by two mounts, {succeeded} did something, \
         {by_held} on descriptors that stayed open; all compared after {compared} of them, with \
         {wide} times a file of more than {stripes} stripes"
    );
    assert!(succeeded >= steps / 3, "only {succeeded} of {steps} steps did anything");
    assert!(wide >= compared / 8, "only {wide} files of more than {stripes} stripes were compared");
    assert!(by_held >= steps / 12, "only {by_held} steps on descriptors that stayed open");
    drop((mounts, local));
    rig.end();
}

/// Holds all that both mounts show against the local folder.
fn compare(mounts: &[Place; 2], local: &Place, actor: usize, when: &str) {
    let want = seen(&local.root);
    for mount in [&mounts[1 - actor], &mounts[actor]] {
        assert_eq!(seen(&mount.root), want, "{when}, {:?}", mount.root);
    }
    for number in local.open() {
        let seen = seen_by(&mounts[number % 2], number);
        assert_eq!(seen, seen_by(local, number), "{when}, descriptor {number}");
    }
}

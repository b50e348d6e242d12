//! The MDT is killed again and again while programs on two mounts make, rename, write and remove files
//! and sync none of it. What it has answered for within the last commit's time is gone with its
//! memory; the mounts have it made again, and no program notices but by having to wait.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, Server};

use crate::upgrade::{Programs, appended, appends, holds, makes};
use crate::{BINARY, bytes};

/// It is killed so often, at most; it has to have lost something by then.
const ROUNDS: u64 = 12;
/// And so often at least.
const ROUNDS_MIN: u64 = 5;

/// What should be there: content and modification time of each file.
type There = Arc<Mutex<BTreeMap<PathBuf, (Vec<u8>, i64, i64)>>>;

/// Makes directories and files in them, writes, moves and links them, and leaves them.
fn leaves(programs: &mut Programs, mount: &Path, name: &str, there: &There) {
    let (mount, called, there) = (mount.to_owned(), name.to_owned(), there.clone());
    fs::create_dir(mount.join(name)).unwrap();
    programs.start(name, move |number| {
        let folder = PathBuf::from(&called).join(format!("folder{}", number / 20));
        let at = mount.join(&folder);
        if number.is_multiple_of(20) {
            fs::create_dir(&at)?;
        }
        let content = bytes(100 + number as usize % 5 * 3000, number + 1);
        let (new, name) = (at.join("new"), format!("file{number}"));
        fs::write(&new, &content)?;
        fs::rename(&new, at.join(&name))?;
        if number.is_multiple_of(5) {
            fs::hard_link(at.join(&name), at.join(format!("link{number}")))?;
        }
        if number.is_multiple_of(7) {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o640);
            fs::set_permissions(at.join(&name), mode)?;
        }
        let is = fs::metadata(at.join(&name))?;
        let seen = (content, is.mtime(), is.mtime_nsec());
        there.lock().unwrap().insert(folder.join(name), seen);
        Ok(())
    });
}

/// How many changes MDTs have made again.
pub(super) fn made_again(logs: &str) -> u64 {
    let told = logs.lines().filter(|line| line.contains("clients of the last run are back"));
    let number = |line: &str| -> Option<u64> {
        let (_, rest) = line.split_once("replayed")?;
        let digits = rest.trim_start_matches(|c: char| !c.is_ascii_digit());
        digits.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
    };
    told.filter_map(number).sum()
}

#[test]
fn an_mdt_is_killed_under_changes_and_none_is_lost() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "replayed");
    cluster.make(2);
    let mgs = cluster.serve(1, &["mgt"]);
    let oss = cluster.serve(2, &["ost0", "ost1"]);
    let mut mds: Option<Server> = Some(cluster.serve(4, &["mdt0"]));
    cluster.knows_osts("mdt0", 2);
    let mounts: Vec<PathBuf> = ["one", "two"].map(|name| cluster.mount(name)).into();
    let there = There::default();
    let mut programs = Programs::default();
    for (number, mount) in mounts.iter().enumerate() {
        leaves(&mut programs, mount, &format!("leaves{number}"), &there);
        makes(&mut programs, mount, &format!("makes{number}"));
        appends(&mut programs, mount, &format!("appends{number}"));
        holds(&mut programs, mount, &format!("holds{number}"));
    }
    programs.get_on(&cluster, "from the start");
    let mut again = 0;
    for round in 0..ROUNDS {
        std::thread::sleep(Duration::from_millis(37 * round % 60));
        mds.take().unwrap().crash();
        mds = Some(cluster.serve(4, &["mdt0"]));
        programs.get_on(&cluster, &format!("after the MDT was killed in round {round}"));
        again = made_again(&cluster.logs());
        if round >= ROUNDS_MIN && again > 20 {
            break;
        }
    }
    let done = programs.end(&cluster);
    println!("{done:?}, {again} changes were made again");
    let logs = cluster.logs();
    assert!(again > 0, "the MDT has never lost anything: {logs}");
    assert!(!logs.contains("evict"), "{logs}");
    for mount in &mounts {
        for (path, (content, mtime, nsec)) in &*there.lock().unwrap() {
            let is = fs::metadata(mount.join(path)).unwrap();
            assert_eq!((is.mtime(), is.mtime_nsec()), (*mtime, *nsec), "{path:?}");
            assert!(fs::read(mount.join(path)).unwrap() == *content, "{path:?}");
        }
        appended(mount, &done);
    }
    cluster.finish([mgs, oss].into_iter().chain(mds));
}

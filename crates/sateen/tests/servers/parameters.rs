//! Parameters do what they say: not only are they taken, what they are about goes otherwise. Those of
//! locks, of what is asked for ahead, and of commits that others wait for.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, ok, run_folder, server_folder, until};

use crate::trips::counted;
use crate::{BINARY, as_program, param, set_param, write_durably};

const MIB: usize = 1 << 20;
/// What a lock counts at an MDT.
const LOCK_BYTES: u64 = 168;

/// A number among the parameters of the MDT.
fn of_mdt(cluster: &Cluster, name: &str) -> u64 {
    let mut lctl = as_program("lctl");
    let lctl = lctl.arg("--data").arg(server_folder(&cluster.path("mgt")));
    let shown = ok(lctl.args(["get_param", "-n", &format!("ldlm.namespaces.mdt-*.{name}")]));
    shown.trim().parse().unwrap()
}

/// What a mount counts in lines of `name: number` or `name number`.
fn line(mount: &Path, of: &str, name: &str) -> u64 {
    let shown = param(mount, of);
    let line = shown.lines().find_map(|line| line.strip_prefix(name));
    let line = line.unwrap_or_else(|| panic!("{name} in {shown}"));
    line.trim_start_matches(':').split_whitespace().next().unwrap().parse().unwrap()
}

/// Asks for what is true now, which the kernel cannot answer alone.
fn look(path: &Path) -> u64 {
    statx(CWD, path, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS).unwrap().stx_size
}

#[test]
fn what_a_lock_answers_is_counted() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "lock_hit");
    let (mds, oss) = cluster.start();
    let (here, there) = (cluster.mount("here"), cluster.mount("there"));
    write_durably(&there.join("file"), b"seven b").unwrap();
    let counts =
        |of: &str, name: &str| counted(&run_folder(&here), of).get(name).copied().unwrap_or(0);
    // The first asks the MDT, and has the lock for the next.
    assert_eq!(look(&here.join("file")), 7);
    assert_eq!(look(&here.join("file")), 7);
    let before = [counts("llite.*.stats", "lock_hit"), counts("mdc.*.stats", "mds_getattr")];
    assert_eq!(look(&here.join("file")), 7);
    let after = [counts("llite.*.stats", "lock_hit"), counts("mdc.*.stats", "mds_getattr")];
    assert!(after[0] > before[0], "{before:?} and {after:?}");
    assert_eq!(after[1], before[1], "nobody was asked");
    cluster.finish([oss, mds]);
}

#[test]
fn an_mdt_gives_as_many_locks_as_it_has_memory_for() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "lock_limit");
    let (mds, oss) = cluster.start();
    let mnt = cluster.mount("mnt");
    let at_mds = server_folder(&cluster.path("mgt"));
    let files = |name: &str, count: u64| {
        (0..count).for_each(|n| drop(File::create_new(mnt.join(format!("{name}{n}"))).unwrap()));
    };
    files("before", 100);
    assert!(of_mdt(&cluster, "lock_count") >= 100);
    assert_eq!(of_mdt(&cluster, "lock_reclaimed"), 0);
    // Beyond nothing at all, each is asked back.
    set_param(&at_mds, "ldlm.namespaces.mdt-*.lock_reclaim_threshold_mb=0");
    files("asked", 100);
    until("locks are asked back", || of_mdt(&cluster, "lock_reclaimed") >= 100);
    until("they are given back", || of_mdt(&cluster, "lock_count") < 100);
    // Up to the limit nobody is asked, and beyond it there are none to be had along with answers.
    set_param(&at_mds, "ldlm.namespaces.mdt-*.lock_reclaim_threshold_mb=1048576");
    set_param(&at_mds, "ldlm.namespaces.mdt-*.lock_limit_mb=1");
    let limit = (1 << 20) / LOCK_BYTES;
    assert_eq!(of_mdt(&cluster, "pool.limit"), limit);
    let mut most = 0;
    for turn in 0..8 {
        files(&format!("many{turn}-"), limit / 4);
        most = most.max(of_mdt(&cluster, "lock_count"));
    }
    // Few are waited for, as those on the directory itself.
    assert!(most > limit / 2 && most <= limit + limit / 10, "{most} of {limit}");
    set_param(&at_mds, "ldlm.namespaces.mdt-*.lock_limit_mb=1024");
    files("after", limit);
    assert!(of_mdt(&cluster, "lock_count") > limit + limit / 10);
    cluster.finish([oss, mds]);
}

#[test]
fn one_file_is_read_ahead_as_far_as_is_set() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "per_file");
    let (mds, oss) = cluster.start();
    let (here, there) = (cluster.mount("here"), cluster.mount("there"));
    let content = crate::bytes(32 * MIB, 5);
    set_param(&run_folder(&there), "llite.*.read_ahead_slow_us=0");
    set_param(&run_folder(&there), "llite.*.max_cached_mb=0");
    let stats = "llite.*.read_ahead_stats";
    // By steps, of which the kernel guesses nothing. Files that nobody there has read yet.
    let hits = |name: &str, mib: &str| {
        write_durably(&here.join(name), &content).unwrap();
        set_param(&run_folder(&there), &format!("llite.*.max_read_ahead_per_file_mb={mib}"));
        set_param(&run_folder(&there), &format!("{stats}=clear"));
        let file = File::open(there.join(name)).unwrap();
        let mut bytes = vec![0; MIB / 16];
        for at in (0..content.len()).step_by(MIB / 2) {
            file.read_exact_at(&mut bytes, at as u64).unwrap();
            assert!(bytes == content[at..at + bytes.len()]);
        }
        (line(&there, stats, "hits"), line(&there, stats, "hit max r-a issue"))
    };
    let pages = (32 * 2 * (MIB / 16) / 4096) as u64;
    let (found, stopped) = hits("far", "64");
    assert!(found > pages / 2, "{found} of {pages}, {stopped}");
    let (found, _) = hits("not", "0");
    assert_eq!(found, 0);
    cluster.finish([oss, mds]);
}

#[test]
fn sizes_are_asked_for_ahead_where_that_is_set() {
    const FILES: u64 = 60;
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "agl");
    let (mds, oss) = cluster.start();
    let writer = cluster.mount("writer");
    let at_mds = server_folder(&cluster.path("mgt"));
    let mut lctl = as_program("lctl");
    let lctl = lctl.arg("--data").arg(&at_mds);
    let writers_id = ok(lctl.args(["get_param", "-n", "mdt.*.exports.*.uuid"]));
    let (holder, there) = (cluster.mount("holder"), cluster.mount("there"));
    // Files that one has written and another holds open to write: when the one is thrown out, only the
    // OSTs know how long they are.
    let mut open = Vec::new();
    for name in ["with", "without"] {
        fs::create_dir(writer.join(name)).unwrap();
        for number in 0..FILES {
            let name = format!("{name}/file{number}");
            let file = File::create_new(writer.join(&name)).unwrap();
            file.write_all_at(&[1; 300], 0).unwrap();
            file.sync_all().unwrap();
            let held = File::options().write(true).open(holder.join(&name)).unwrap();
            open.push((file, held));
        }
    }
    set_param(&at_mds, &format!("mdt.*.evict_client={}", writers_id.trim()));
    for (name, agl) in [("with", "1"), ("without", "0")] {
        set_param(&run_folder(&there), &format!("llite.*.statahead_agl={agl}"));
        set_param(&run_folder(&there), "llite.*.statahead_stats=clear");
        let listed = fs::read_dir(there.join(name)).unwrap();
        let sizes = listed.map(|entry| entry.unwrap().metadata().unwrap().len());
        assert_eq!(sizes.sum::<u64>(), 300 * FILES);
        let asked = line(&there, "llite.*.statahead_stats", "agl total");
        assert!(line(&there, "llite.*.statahead_stats", "statahead total") > 0, "{name}");
        assert!(if agl == "1" { asked > FILES / 4 } else { asked == 0 }, "{name}: {asked}");
    }
    drop(open);
    cluster.finish([oss, mds]);
}

#[test]
fn who_looks_at_what_another_has_made_waits_where_that_is_set() {
    const FILES: u64 = 20;
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "sharing");
    let (mds, oss) = cluster.start();
    let (here, there) = (cluster.mount("here"), cluster.mount("there"));
    let at_mds = server_folder(&cluster.path("mgt"));
    // By themselves changes stay where a crash takes them.
    set_param(&at_mds, "mdt.*.commit_age_ms=60000");
    set_param(&at_mds, "journal.timers=1");
    let commits = || counted(&at_mds, "journal.timers").get("commit").copied().unwrap_or(0);
    for (name, is_on) in [("waits", true), ("goes on", false), ("waits again", true)] {
        set_param(&at_mds, &format!("mdt.*.commit_on_sharing={}", u8::from(is_on)));
        let shared = |number: u64| {
            let folder = format!("{name}{number}");
            fs::create_dir(here.join(&folder)).unwrap();
            assert!(there.join(&folder).is_dir());
        };
        // What was done before is shared, too.
        ok(as_program("lfs").arg("df").arg(&here));
        shared(FILES);
        let before = commits();
        (0..FILES).for_each(shared);
        let made = commits() - before;
        if is_on {
            assert!(made >= FILES, "{name}: {made}");
        } else {
            assert!(made < FILES / 2, "{name}: {made}");
        }
    }
    cluster.finish([oss, mds]);
}

#[test]
fn objects_of_removed_files_wait_for_as_long_as_is_set() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "removals");
    let (mds, oss) = cluster.start();
    let mnt = cluster.mount("mnt");
    let at_mds = server_folder(&cluster.path("mgt"));
    let osts = ["ost0", "ost1"];
    set_param(&at_mds, "mdt.*.destroy_delay_ms=60000");
    for round in 0..2 {
        let path = mnt.join("file");
        write_durably(&path, b"content").unwrap();
        fs::remove_file(&path).unwrap();
        File::open(&mnt).unwrap().sync_all().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(2500));
        // On a disk that is nearly full nothing waits.
        let disk = rustix::fs::statvfs(cluster.path("ost0")).unwrap();
        let waits = disk.f_bavail > disk.f_blocks / 6 && disk.f_ffree > disk.f_files / 6;
        let there = !osts.iter().all(|ost| cluster.has_no_objects(ost));
        assert!(there || !waits, "it has waited for two seconds");
        if round == 0 {
            set_param(&at_mds, "mdt.*.destroy_delay_ms=0");
            cluster.wait_for_no_objects(&osts);
            set_param(&at_mds, "mdt.*.destroy_delay_ms=60000");
        }
    }
    // An end in good order does not leave it to the next run.
    let found = cluster.finish([mds, oss]);
    assert!(found.starts_with("clean: 1 inodes, 0 entries, 0 objects"), "{found}");
}

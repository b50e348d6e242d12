//! Files that several mounts write at a time: they share them after a while, without a lock for each
//! record, a third mount finds every record, and none is of two writes.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, ok, run_folder, server_folder, until};

use crate::trips::counted;
use crate::{BINARY, as_program};

/// Bytes of a record, as io500's hard pattern has them: they share pages, and some lie in two objects.
const RECORD: usize = 47_008;
/// Records of each mount.
const RECORDS: usize = 600;
const MIB: usize = 1 << 20;

fn record(number: usize) -> Vec<u8> {
    let pattern = (number as u64 + 1).to_le_bytes();
    pattern.iter().copied().cycle().take(RECORD).collect()
}

fn for_writing(path: &Path) -> File {
    OpenOptions::new().write(true).open(path).unwrap()
}

fn lctl(folder: &Path, words: &[&str]) -> String {
    ok(as_program("lctl").arg("--data").arg(folder).args(words))
}

/// Requests for locks that a mount has sent.
fn enqueues(mount: &Path) -> u64 {
    counted(&run_folder(mount), "mdc.*.stats").get("ldlm_enqueue").copied().unwrap_or(0)
}

fn striped(path: &Path) {
    ok(as_program("lfs").args(["setstripe", "-c", "2", "-S", "1M"]).arg(path));
}

/// Both mounts write their records of a file, which lie between each other.
fn interleaved(mounts: [&Path; 2], name: &str) {
    thread::scope(|scope| {
        for (me, mount) in mounts.into_iter().enumerate() {
            scope.spawn(move || {
                let file = for_writing(&mount.join(name));
                for number in (0..2 * RECORDS).skip(me).step_by(2) {
                    file.write_all_at(&record(number), (number * RECORD) as u64).unwrap();
                }
                file.sync_all().unwrap();
            });
        }
    });
}

#[test]
fn two_mounts_share_a_file_that_both_write_and_a_third_finds_all_of_it() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "contended");
    let (mds, oss) = cluster.start();
    let (one, two) = (cluster.mount("one"), cluster.mount("two"));
    let mds_folder = server_folder(&cluster.path("mgt"));
    let set = |what: &str| lctl(&mds_folder, &["set_param", what]);
    set("ldlm.namespaces.*.contended_locks=4");
    set("ldlm.namespaces.*.contention_seconds=1");
    let shared = || {
        let text = lctl(&mds_folder, &["get_param", "-n", "ldlm.namespaces.*.shared_grants"]);
        text.lines().map(|line| line.parse::<u64>().unwrap()).sum::<u64>()
    };
    let verify = |mount: &Path, name: &str| {
        let file = File::open(mount.join(name)).unwrap();
        assert_eq!(file.metadata().unwrap().len(), (2 * RECORDS * RECORD) as u64);
        let mut bytes = vec![0; RECORD];
        for number in 0..2 * RECORDS {
            file.read_exact_at(&mut bytes, (number * RECORD) as u64).unwrap();
            assert!(bytes == record(number), "record {number}");
        }
    };
    striped(&one.join("hard"));
    let before = [enqueues(&one), enqueues(&two)];
    interleaved([&one, &two], "hard");
    let asked: u64 =
        [&one, &two].iter().map(|mount| enqueues(mount)).sum::<u64>() - before.iter().sum::<u64>();
    println!("{asked} requests for locks, {} shared locks", shared());
    // A record in 22 lies in two objects, and needs the file alone.
    assert!(shared() > 0 && asked < (2 * RECORDS / 2) as u64, "{asked} of {}", 2 * RECORDS);
    let three = cluster.mount("three");
    verify(&three, "hard");

    // Records that lie in two objects, and that both mounts write at the same place, are of one of
    // them; and so are those that lie in one.
    striped(&one.join("same"));
    let places = [MIB - RECORD / 2, 2 * MIB - 1000, 3 * MIB + 5000];
    for round in 0..60 {
        thread::scope(|scope| {
            for (me, mount) in [&one, &two].into_iter().enumerate() {
                let file = for_writing(&mount.join("same"));
                scope.spawn(move || {
                    for place in places {
                        let bytes = vec![2 * round + me as u8 + 1; RECORD];
                        file.write_all_at(&bytes, place as u64).unwrap();
                    }
                });
            }
        });
        let file = File::open(three.join("same")).unwrap();
        for place in places {
            let mut bytes = vec![0; RECORD];
            file.read_exact_at(&mut bytes, place as u64).unwrap();
            let first = bytes[0];
            assert!([2 * round + 1, 2 * round + 2].contains(&first), "round {round}: {first}");
            assert!(bytes.iter().all(|byte| *byte == first), "round {round}, at {place}");
        }
    }

    // Who writes alone has the file to himself again: what he asks of it he knows.
    let file = for_writing(&one.join("hard"));
    until("it is over", || {
        thread::sleep(Duration::from_millis(1200));
        file.write_all_at(&record(0), 0).unwrap();
        let getattrs = || counted(&run_folder(&one), "mdc.*.stats").get("mds_getattr").copied();
        fs::metadata(one.join("hard")).unwrap();
        let before = getattrs();
        file.write_all_at(&record(0), 0).unwrap();
        fs::metadata(one.join("hard")).unwrap();
        before == getattrs()
    });
    drop(file);
    verify(&three, "hard");

    // Never, if it is so set.
    set("ldlm.namespaces.*.contended_locks=0");
    let before = shared();
    striped(&one.join("alone"));
    interleaved([&one, &two], "alone");
    verify(&three, "alone");
    assert_eq!(shared(), before);
    cluster.finish([oss, mds]);
}

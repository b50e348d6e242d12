//! Files that several mounts write at a time, or read and write: they share them after a while, without
//! a lock for each record, each finds every record, and none is of two writes.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
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
/// Records that are written again and again, an even number: some lie in two objects.
const PLACES: usize = 50;
/// Linux's, here.
const O_DIRECT: i32 = 0o40000;

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
    both_write_and_a_third_finds_all_of_it("contended", false);
}

#[test]
fn the_same_where_each_may_have_his_part() {
    both_write_and_a_third_finds_all_of_it("contended-parts", true);
}

fn both_write_and_a_third_finds_all_of_it(name: &str, parts: bool) {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, name);
    let (mds, oss) = cluster.start();
    let (one, two) = (cluster.mount("one"), cluster.mount("two"));
    let mds_folder = server_folder(&cluster.path("mgt"));
    let set = |what: &str| lctl(&mds_folder, &["set_param", what]);
    set("ldlm.namespaces.*.contended_locks=4");
    set("ldlm.namespaces.*.contention_seconds=1");
    set(&format!("ldlm.namespaces.*.parts={}", u8::from(parts)));
    let told = |what: &str| {
        let name = format!("ldlm.namespaces.*.{what}");
        let text = lctl(&mds_folder, &["get_param", "-n", &name]);
        text.lines().map(|line| line.parse::<u64>().unwrap()).sum::<u64>()
    };
    let shared = || told("shared_grants") + told("parts_granted");
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

/// Whoever reads through this descriptor goes past the kernel's pages.
fn past_pages(path: &Path) -> File {
    OpenOptions::new().read(true).custom_flags(O_DIRECT).open(path).unwrap()
}

/// The record that is there, which must be of one write.
fn read_record(file: &File, place: usize, who: &str) -> usize {
    let mut bytes = vec![0; RECORD];
    file.read_exact_at(&mut bytes, (place * RECORD) as u64).unwrap();
    let version = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize - 1;
    assert!(bytes == record(version), "{who}: record {place} is of several writes");
    version
}

/// Whether a record lies in two objects.
fn is_split(place: usize) -> bool {
    place * RECORD / MIB != (place * RECORD + RECORD - 1) / MIB
}

/// Each mount writes a record, and the other reads it, in turns.
fn in_turns(
    files: [&File; 2],
    rounds: core::ops::Range<usize>,
    look: impl Fn(usize, usize, usize),
) {
    for round in rounds {
        let (me, place) = (round % 2, round % PLACES);
        files[me].write_all_at(&record(round), (place * RECORD) as u64).unwrap();
        assert_eq!(read_record(files[1 - me], place, "the other mount"), round);
        look(round, me, place);
    }
}

#[test]
fn two_mounts_read_and_write_a_file_in_turns_and_each_finds_what_the_other_wrote() {
    each_finds_what_the_other_wrote("looks", false);
}

#[test]
fn the_same_where_each_may_have_his_part_which_the_other_breaks() {
    each_finds_what_the_other_wrote("looks-parts", true);
}

fn each_finds_what_the_other_wrote(name: &str, parts: bool) {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, name);
    let (mds, oss) = cluster.start();
    let (one, two) = (cluster.mount("one"), cluster.mount("two"));
    let mds_folder = server_folder(&cluster.path("mgt"));
    lctl(&mds_folder, &["set_param", "ldlm.namespaces.*.contended_locks=4"]);
    let parts = format!("ldlm.namespaces.*.parts={}", u8::from(parts));
    lctl(&mds_folder, &["set_param", &parts]);
    striped(&one.join("turns"));
    let open =
        |mount: &Path| OpenOptions::new().read(true).write(true).open(mount.join("turns")).unwrap();
    let (first, second) = (open(&one), open(&two));
    let files = [&first, &second];
    in_turns(files, 0..PLACES, |_, _, _| ());

    // They share it: a record in 22 lies in two objects, and has to be asked for.
    let before = enqueues(&one) + enqueues(&two);
    in_turns(files, PLACES..PLACES + RECORDS, |_, _, _| ());
    let asked = enqueues(&one) + enqueues(&two) - before;
    println!("{asked} requests for locks in {RECORDS} turns");
    assert!(asked < (RECORDS / 2) as u64, "{asked} in {RECORDS} turns");

    // Whoever has the file open otherwise finds it as well, also where the kernel keeps pages.
    let cached = [&one, &two].map(|mount| File::open(mount.join("turns")).unwrap());
    let direct = [&one, &two].map(|mount| past_pages(&mount.join("turns")));
    in_turns(files, 0..200, |round, me, place| {
        for mount in [me, 1 - me] {
            assert_eq!(read_record(&direct[mount], place, "past the pages"), round);
            if round % 3 == 0 {
                assert_eq!(read_record(&cached[mount], place, "through pages"), round);
            }
        }
    });

    // All at once: what was there before a read began has to be found, or what came after it.
    let written: Vec<AtomicUsize> = (0..PLACES).map(|_| AtomicUsize::new(0)).collect();
    in_turns(files, 0..PLACES, |round, _, place| written[place].store(round, Ordering::SeqCst));
    thread::scope(|scope| {
        for me in 0..2 {
            let (written, file) = (&written, files[me]);
            scope.spawn(move || {
                for round in (PLACES + me..RECORDS).step_by(2) {
                    let place = round % PLACES;
                    file.write_all_at(&record(round), (place * RECORD) as u64).unwrap();
                    written[place].store(round, Ordering::SeqCst);
                }
            });
            for (reader, who) in [(file, "a writer"), (&direct[me], "past the pages")] {
                scope.spawn(move || {
                    // Of what its own mount writes in two objects a read may find a part, as of any
                    // file of one kernel.
                    let is_torn = |place: &usize| is_split(*place) && place % 2 == me;
                    let places = (0..PLACES).cycle().filter(|place| !is_torn(place));
                    for place in places.take(4 * PLACES) {
                        let least = written[place].load(Ordering::SeqCst);
                        let found = read_record(reader, place, who);
                        assert!(found >= least, "{who}: {found} at {place}, not {least}");
                    }
                });
            }
            let pages = &cached[me];
            scope.spawn(move || {
                for place in (0..PLACES).cycle().take(4 * PLACES) {
                    // Between two pages a kernel may find what was written in between.
                    let mut word = [0; 8];
                    let least = written[place].load(Ordering::SeqCst);
                    pages.read_exact_at(&mut word, (place * RECORD) as u64).unwrap();
                    let found = u64::from_le_bytes(word) as usize - 1;
                    assert!(found >= least, "pages: {found} at {place}, not {least}");
                }
            });
        }
    });
    drop((first, second, cached, direct));
    cluster.finish([oss, mds]);
}

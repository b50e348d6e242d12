//! Where new files go, on OSTs with disks of their own: in turn while those are about equally
//! full, and where there is more room when they are not.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, ok, until};

use crate::{BINARY, SmallDisk, as_program, bytes, written_out};

const OSTS: u32 = 3;
/// Files of a sample; each has one object.
const SAMPLE: u32 = 120;
/// As far as a share of them may be from what free space says: it is known from a moment ago.
const OFF_MAX: u32 = 8;

/// Makes files in a new folder, and says how many have their object on which OST.
fn sample(mnt: &Path, number: &mut u32) -> BTreeMap<u32, u32> {
    *number += 1;
    let dir = mnt.join(format!("sample{number}"));
    fs::create_dir(&dir).unwrap();
    ok(as_program("lfs").args(["setstripe", "-c", "1"]).arg(&dir));
    for file in 0..SAMPLE {
        fs::write(dir.join(format!("file{file}")), b"x").unwrap();
    }
    // A file has its object when its OST hears of what was written.
    written_out(mnt);
    let shown = ok(as_program("lfs").args(["getstripe", "-r"]).arg(&dir));
    let mut count: BTreeMap<u32, u32> = (0..OSTS).map(|ost| (ost, 0)).collect();
    for row in shown.lines().filter(|line| line.starts_with('\t')) {
        if let Ok(ost) = row.split_whitespace().next().unwrap_or_default().parse() {
            *count.entry(ost).or_default() += 1;
        }
    }
    assert_eq!(count.values().sum::<u32>(), SAMPLE, "{shown}");
    count
}

/// Files below a folder of the disk.
fn files_below(folder: &Path) -> u32 {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { files_below(&path) } else { 1 }).sum()
}

/// How many files of a sample free space gives each OST.
fn by_space(mnt: &Path) -> BTreeMap<u32, u32> {
    let mut free: Option<BTreeMap<u32, u64>> = None;
    // One that does not answer within a second is shown without it.
    until("all OSTs say how much is free", || {
        let shown = as_program("lfs").args(["df", "--json"]).arg(mnt).output().unwrap();
        let rows: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        let of = |ost: u32| {
            let name = format!("OST{ost:04x}");
            let row = rows.as_array()?.iter().find(|row| row["target"] == name.as_str())?;
            Some((ost, row["bytes_avail"].as_u64()?))
        };
        free = (0..OSTS).map(of).collect();
        free.is_some()
    });
    let free = free.unwrap();
    let all: u64 = free.values().sum();
    free.into_iter().map(|(ost, free)| (ost, (u64::from(SAMPLE) * free / all) as u32)).collect()
}

fn is_near(count: &BTreeMap<u32, u32>, expected: &BTreeMap<u32, u32>) -> bool {
    count.iter().all(|(ost, count)| count.abs_diff(expected[ost]) <= OFF_MAX)
}

#[test]
fn objects_are_balanced_by_count_and_by_free_space() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "balance");
    let folders: Vec<String> = (0..OSTS).map(|ost| format!("ost{ost}")).collect();
    let _disks: Vec<SmallDisk> =
        folders.iter().map(|folder| SmallDisk::at(cluster.path(folder), "400m")).collect();
    cluster.make(OSTS);
    let mds = cluster.serve(1, &["mgt", "mdt0"]);
    let oss = cluster.serve(2, &folders.iter().map(String::as_str).collect::<Vec<_>>());
    let mnt = cluster.mount("mnt");
    let mut number = 0;
    let equal: BTreeMap<u32, u32> = (0..OSTS).map(|ost| (ost, SAMPLE / OSTS)).collect();

    // Equally full: in turn, whoever asks. So are the objects on the disks.
    until("all OSTs are used", || sample(&mnt, &mut number) == equal);
    let objects = || folders.iter().map(|ost| files_below(&cluster.path(ost).join("objects")));
    let before: Vec<u32> = objects().collect();
    assert_eq!(sample(&mnt, &mut number), equal);
    let made: Vec<u32> = objects().zip(&before).map(|(now, before)| now - before).collect();
    assert_eq!(made, vec![SAMPLE / OSTS; OSTS as usize]);

    // One is half full: it gets what its free space is of all.
    let filler = mnt.join("filler");
    ok(as_program("lfs").args(["setstripe", "-c", "1", "-i", "0"]).arg(&filler));
    fs::write(&filler, bytes(200 << 20, 3)).unwrap();
    let expected = by_space(&mnt);
    assert!(expected[&0] + 3 * OFF_MAX < SAMPLE / OSTS + OFF_MAX, "{expected:?}");
    let mut last = BTreeMap::new();
    until("the MDT knows who has more room", || {
        last = sample(&mnt, &mut number);
        last[&0] < SAMPLE / OSTS - OFF_MAX
    });
    last = sample(&mnt, &mut number);
    println!("by free space: {last:?} of {expected:?}");
    assert!(is_near(&last, &expected), "{last:?}, and free space says {expected:?}");

    // The same again once there is as much room as before.
    fs::remove_file(&filler).unwrap();
    until("they are equally full", || sample(&mnt, &mut number) == equal);
    cluster.umount(&mnt);
    oss.end();
    mds.end();
    cluster.fsck();
}

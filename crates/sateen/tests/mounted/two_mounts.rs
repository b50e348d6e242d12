//! Two mounts of one file system: what each does at the same time as the other, and what it sees
//! of that. What they do by turns is held against the local disk in `steps`.

mod ops;
mod seen;
mod steps;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Dir, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;
use sateen_testkit::random::Random;

use crate::rig::{Rig, Servers, on_both, tools};

on_both!(
    appended_records_stay_whole,
    a_replaced_file_is_always_whole,
    a_directory_that_stays_open_is_listed_anew,
    an_open_file_outlives_its_name,
    one_of_two_makes_a_file,
    names_change_places,
    mappings_see_what_the_other_mount_wrote,
    a_busy_file_is_given_to_others,
    both_empty_a_file_at_once,
);

/// A page of memory.
const PAGE_BYTES: usize = 4096;

/// Records appended by both mounts at once: none is torn, lost, or lies over another. The largest
/// are as large as the kernel leaves whole, wherever the buffer begins.
fn appended_records_stay_whole(servers: Servers) {
    const LARGEST_BYTES: usize = (1 << 20) - PAGE_BYTES;
    let Some(rig) = Rig::start(servers, "two-append", 2, false) else { return };
    // From a buffer that begins on a page, a page more.
    let kinds = [(4000, 150, 1), (130_001, 20, 1), (LARGEST_BYTES, 12, 1), (1 << 20, 12, 0)];
    for (bytes, records, skew) in kinds {
        let name = format!("log.{bytes}");
        let there = Barrier::new(2);
        std::thread::scope(|scope| {
            for (who, mount) in rig.mounts().iter().enumerate() {
                let (path, there) = (mount.join(&name), &there);
                let what = (records, bytes, skew);
                scope.spawn(move || append(&path, who as u8, what, there));
            }
        });
        for mount in rig.mounts() {
            let content = fs::read(mount.join(&name)).unwrap();
            assert_eq!(content.len(), 2 * records * bytes);
            let mut next = [0_usize; 2];
            for record in content.chunks(bytes) {
                let who = usize::from(record[0]);
                let torn = record[1..].iter().any(|byte| *byte != next[who] as u8);
                assert!(!torn, "a torn record of {bytes} bytes");
                next[who] += 1;
            }
            assert_eq!(next, [records; 2]);
        }
    }
    rig.end();
}

/// Appends records, each by one call, from a buffer that begins so far behind that of a page.
fn append(path: &Path, who: u8, (records, bytes, skew): (usize, usize, usize), there: &Barrier) {
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    let mut buffer = vec![0_u8; bytes + PAGE_BYTES + skew];
    let begin = buffer.as_ptr().align_offset(PAGE_BYTES) + skew;
    there.wait();
    for n in 0..records {
        let record = &mut buffer[begin..begin + bytes];
        record.fill(n as u8);
        record[0] = who;
        assert_eq!(file.write(record).unwrap(), bytes);
    }
}

/// Whoever lists a directory again by the same descriptor sees what others have done meanwhile.
fn a_directory_that_stays_open_is_listed_anew(servers: Servers) {
    let Some(rig) = Rig::start(servers, "two-rewind", 2, false) else { return };
    let (here, there) = (rig.mnt(), &rig.mounts()[1]);
    let mut dir = Dir::read_from(File::open(here).unwrap()).unwrap();
    let mut listed = || {
        dir.rewind();
        let names = dir.by_ref().map(|entry| entry.unwrap().file_name().to_owned());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.retain(|name| name != "." && name != "..");
        names
    };
    for round in 0..3 {
        assert_eq!(listed(), [""; 0], "{round}");
        File::create(there.join("new")).unwrap();
        assert_eq!(listed(), ["new"], "{round}");
        fs::remove_file(there.join("new")).unwrap();
    }
    drop(dir);
    rig.end();
}

/// A file that one mount has open, and whose name the other takes away: by removing it, and by
/// putting another in its place.
fn an_open_file_outlives_its_name(servers: Servers) {
    let Some(rig) = Rig::start(servers, "two-unlinked", 2, false) else { return };
    let (here, there) = (rig.mnt(), &rig.mounts()[1]);
    for replace in [false, true] {
        let path = here.join("file");
        fs::write(&path, [1; 5000]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        if replace {
            fs::write(there.join("other"), b"other").unwrap();
            fs::rename(there.join("other"), there.join("file")).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"other");
        } else {
            fs::remove_file(there.join("file")).unwrap();
            assert_eq!(File::open(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        // What is done to it from here on is nobody else's.
        file.write_all_at(&[2; 3000], 4000).unwrap();
        file.set_len(6500).unwrap();
        file.sync_all().unwrap();
        assert_eq!(file.metadata().unwrap().len(), 6500);
        let mut content = vec![0; 7000];
        assert_eq!(file.read_at(&mut content, 0).unwrap(), 6500);
        assert!(content[..4000].iter().all(|byte| *byte == 1));
        assert!(content[4000..6500].iter().all(|byte| *byte == 2));
        assert_eq!(there.join("file").exists(), replace);
    }
    fs::remove_file(there.join("file")).unwrap();
    rig.end();
}

/// Of two who make a file at the same moment, and insist on having made it, one does.
fn one_of_two_makes_a_file(servers: Servers) {
    const ROUNDS: usize = 200;
    let Some(rig) = Rig::start(servers, "two-exclusive", 2, false) else { return };
    let start = Barrier::new(2);
    let made = std::thread::scope(|scope| {
        let makers = rig.mounts().iter().map(|mount| {
            let start = &start;
            scope.spawn(move || {
                let make = |round: usize| {
                    start.wait();
                    let made = match round % 3 {
                        0 => File::create_new(mount.join(format!("f{round}"))).map(drop),
                        1 => fs::create_dir(mount.join(format!("f{round}"))),
                        _ => symlink("nowhere", mount.join(format!("f{round}"))),
                    };
                    made.map_err(|error| error.kind())
                };
                (0..ROUNDS).map(make).collect::<Vec<_>>()
            })
        });
        let makers: Vec<_> = makers.collect();
        makers.into_iter().map(|maker| maker.join().unwrap()).collect::<Vec<_>>()
    });
    for (round, (one, other)) in made[0].iter().zip(&made[1]).enumerate() {
        let exists = Err(io::ErrorKind::AlreadyExists);
        let right = (*one == Ok(()) && *other == exists) || (*one == exists && *other == Ok(()));
        assert!(right, "{round}: {one:?} and {other:?}");
    }
    assert_eq!(fs::read_dir(rig.mnt()).unwrap().count(), ROUNDS);
    rig.end();
}

/// `RENAME_EXCHANGE`: whoever looks on sees both names, each as before or as after.
fn names_change_places(servers: Servers) {
    let Some(rig) = Rig::start(servers, "two-exchange", 2, false) else { return };
    let (here, there) = (rig.mnt(), &rig.mounts()[1]);
    fs::create_dir_all(here.join("d/inner")).unwrap();
    fs::write(here.join("file"), b"file").unwrap();
    fs::write(there.join("d/inner/other"), b"other").unwrap();
    let exchange = |one: &str, other: &str| {
        renameat_with(CWD, here.join(one), CWD, here.join(other), RenameFlags::EXCHANGE)
    };
    exchange("file", "d/inner/other").unwrap();
    assert_eq!(fs::read(there.join("file")).unwrap(), b"other");
    assert_eq!(fs::read(there.join("d/inner/other")).unwrap(), b"file");
    // A file and a directory, and links are counted right in the parents.
    exchange("file", "d/inner").unwrap();
    assert!(there.join("file/other").is_file() && there.join("d/inner").is_file());
    let links = |path: &str| fs::metadata(there.join(path)).unwrap().nlink();
    assert_eq!((links("d"), links("file"), links("")), (2, 2, 4));
    assert_eq!(exchange("file", "missing").unwrap_err(), Errno::NOENT);
    assert_eq!(exchange("d", "d/inner").unwrap_err(), Errno::INVAL);
    rig.end();
}

/// Shared mappings of one file by both mounts, in turns: the pages that a kernel keeps of what
/// it has read are not those that the other has written since.
fn mappings_see_what_the_other_mount_wrote(servers: Servers) {
    if !tools(&["fio"]) {
        return;
    }
    let Some(rig) = Rig::start(servers, "two-mapped", 2, false) else { return };
    let there = rig.mounts()[1].file_name().unwrap().display().to_string();
    let script = r#"
        map() {
            fio --name=m --filename=$1/file --ioengine=mmap --size=8M --bs=64k --fallocate=none \
                --verify=pattern --verify_pattern=$2 --verify_fatal=1 --minimal "${@:3}" >>$LOCAL/log
        }
        here=$MNT; there=$MNT/../THERE
        for round in 1 2 3; do
            map $here 0xa$round --rw=write --do_verify=0
            map $there 0xa$round --rw=read --verify_only
            map $there 0xb$round --rw=randwrite --do_verify=0
            map $here 0xb$round --rw=read --verify_only
        done
    "#;
    rig.shell(&script.replace("THERE", &there));
    rig.end();
}

/// Both know the file, and both cut it to nothing at the same moment: neither waits for the other
/// to give back what it knows by.
fn both_empty_a_file_at_once(servers: Servers) {
    let Some(rig) = Rig::start(servers, "two-empty", 2, false) else { return };
    fs::write(rig.mnt().join("file"), b"content").unwrap();
    std::thread::scope(|scope| {
        for mount in rig.mounts() {
            let path = mount.join("file");
            scope.spawn(move || {
                for round in 0..200 {
                    assert!(fs::metadata(&path).unwrap().len() <= 7);
                    let mut file = File::create(&path).unwrap();
                    if round % 3 == 0 {
                        file.write_all(b"content").unwrap();
                    }
                }
            });
        }
    });
    rig.end();
}

/// A mount that reads and writes a file with many calls at a time, without a pause, gives it to
/// another all the same, in time: nobody is thrown out, which would show as `EIO`.
fn a_busy_file_is_given_to_others(servers: Servers) {
    const FILE_BYTES: usize = 4 << 20;
    const BLOCK_BYTES: usize = 64 << 10;
    const WORKERS: u64 = 8;
    /// Takes one to three seconds where nothing else runs.
    const BUSY: Duration = Duration::from_secs(120);
    let Some(rig) = Rig::start(servers, "two-busy", 2, false) else { return };
    let (here, there) = (rig.mnt().join("file"), rig.mounts()[1].join("file"));
    fs::write(&here, vec![7; FILE_BYTES]).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let work = |worker: u64| {
            // Two go through the page cache.
            let flags = if worker < 2 { 0 } else { OFlags::DIRECT.bits() as i32 };
            let mut open = OpenOptions::new();
            let file = open.read(true).write(true).custom_flags(flags).open(&here).unwrap();
            let mut random = Random::new(worker);
            let mut block = vec![7; BLOCK_BYTES];
            while !stop.load(Ordering::Relaxed) {
                let at = random.below((FILE_BYTES / BLOCK_BYTES) as u64) * BLOCK_BYTES as u64;
                if worker.is_multiple_of(2) {
                    file.read_exact_at(&mut block, at).unwrap();
                } else {
                    file.write_all_at(&block, at).unwrap();
                }
            }
        };
        let workers: Vec<_> =
            (0..WORKERS).map(|worker| scope.spawn(move || work(worker))).collect();
        // A failure here must not leave them running.
        let seen = scope.spawn(|| {
            for round in 0..15 {
                assert_eq!(fs::metadata(&there).unwrap().len(), FILE_BYTES as u64);
                let file = OpenOptions::new().read(true).write(true).open(&there).unwrap();
                file.write_all_at(&[7; 100], round * 1000).unwrap();
                let mut block = vec![0; BLOCK_BYTES];
                file.read_exact_at(&mut block, 0).unwrap();
                assert!(block.iter().all(|byte| *byte == 7));
            }
        });
        let begun = Instant::now();
        while !seen.is_finished() && begun.elapsed() < BUSY {
            std::thread::sleep(Duration::from_millis(10));
        }
        let in_time = seen.is_finished();
        stop.store(true, Ordering::Relaxed);
        let seen = seen.join();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        seen.unwrap();
        assert!(in_time, "the other mount did not get its turn in {BUSY:?}");
    });
    rig.end();
}

/// A file that one mount replaces by rename is never missing for the other, and always whole.
fn a_replaced_file_is_always_whole(servers: Servers) {
    const STALE: i32 = Errno::STALE.raw_os_error();
    let Some(rig) = Rig::start(servers, "two-replace", 2, false) else { return };
    let (here, there) = (rig.mnt(), rig.mounts()[1].join("config"));
    let version = |n: u8| vec![n; 1000 + usize::from(n) * 40];
    fs::write(here.join("config"), version(0)).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..=100 {
                fs::write(here.join("new"), version(n)).unwrap();
                fs::rename(here.join("new"), here.join("config")).unwrap();
            }
            stop.store(true, Ordering::Release);
        });
        let mut last = 0;
        loop {
            let over = stop.load(Ordering::Acquire);
            let bytes = match fs::read(&there) {
                // Replaced twice while it was being opened: docs/semantics.md.
                Err(error) if error.raw_os_error() == Some(STALE) => continue,
                bytes => bytes.unwrap(),
            };
            let now = bytes[0];
            assert_eq!(bytes, version(now), "a mixture");
            assert!(now >= last, "version {now} after {last}");
            last = now;
            if over {
                break;
            }
        }
        assert_eq!(last, 100, "the last version is seen");
    });
    rig.end();
}

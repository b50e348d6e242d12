//! What names cost over the network: how many requests a mount sends to the MDT.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::thread;
use std::time::Duration;

use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, ok, run_folder, server_folder, until};

use crate::{BINARY, as_program};

/// As many files as are made in a test.
const FILES: u64 = 100;
/// A directory of more names than that is not read by a mount that makes names in it.
const READ_MAX: u64 = 4096;
/// Requests by which a mount finds its way in a directory that it does not know yet.
const FEW: u64 = 12;
/// A mount that asks nothing for so long has done what it was called back for.
const QUIET: Duration = Duration::from_millis(250);

/// How often each thing was counted under a parameter.
pub(crate) fn counted(folder: &Path, name: &str) -> BTreeMap<String, u64> {
    let mut lctl = as_program("lctl");
    let text = ok(lctl.arg("--data").arg(folder).args(["get_param", "-n", name]));
    let samples = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let (name, samples) = (words.next()?, words.next()?);
        (words.next()? == "samples").then(|| (name.to_owned(), samples.parse().unwrap()))
    });
    samples.collect()
}

/// What a mount has asked of the MDT while something was done. Left out is what no call waits for:
/// closes, that the mount is there, and a sequence for the names of further files; and what it
/// still gives back because of what others did before.
fn asked(mnt: &Path, work: impl FnOnce()) -> BTreeMap<String, u64> {
    let look = || counted(&run_folder(mnt), "mdc.*.stats");
    let mut before = look();
    until("the mount asks for nothing", || {
        thread::sleep(QUIET);
        let last = std::mem::replace(&mut before, look());
        last == before
    });
    work();
    let mut after = look();
    for (name, times) in &mut after {
        *times -= before.get(name).copied().unwrap_or(0);
    }
    let unwaited = ["obd_ping", "mds_close", "mds_other"];
    after.retain(|name, times| *times > 0 && !unwaited.contains(&name.as_str()));
    after
}

fn only(name: &str, times: u64) -> BTreeMap<String, u64> {
    BTreeMap::from([(name.to_owned(), times)])
}

fn create(path: &Path) {
    drop(File::create_new(path).unwrap());
}

/// Rounds of a test that counts: a kernel short of memory forgets names that it then asks for again,
/// which is no fault of the mount's. What costs too much in each of them does so always.
const ROUNDS: u32 = 3;

type Counted = Result<(), String>;

fn counts(what: &str, found: &BTreeMap<String, u64>, wanted: &BTreeMap<String, u64>) -> Counted {
    if found == wanted { Ok(()) } else { Err(format!("{what}: {found:?}, not {wanted:?}")) }
}

fn counts_at_most(what: &str, found: &BTreeMap<String, u64>, most: u64) -> Counted {
    let all = found.values().sum::<u64>();
    if all <= most { Ok(()) } else { Err(format!("{what}: {found:?}, more than {most}")) }
}

/// Two mounts, a third that is mounted in the middle, and the folder `name` in all of them.
fn creates_cost_one_round_trip(cluster: &mut Cluster, mounts: [&Path; 2], name: &str) -> Counted {
    let [here, there] = mounts;
    let at_mdt = || counted(&server_folder(&cluster.path("mgt")), "mdt.*.md_stats");
    let (nothing, one_each) = (BTreeMap::new(), only("mds_reint_create", FILES));
    let files = |dir: &Path, kind: &str| -> Vec<_> {
        (0..FILES).map(|number| dir.join(format!("{kind}{number}"))).collect()
    };

    // In a directory that the mount has made it knows what there is.
    fs::create_dir(here.join(name)).unwrap();
    let own = files(&here.join(name), "file");
    create(&here.join(name).join("first"));
    let before = at_mdt();
    let trips = asked(here, || own.iter().for_each(|path| create(path)));
    counts("own files", &trips, &one_each)?;
    // The server counts the same, and has opened them at once.
    let after = at_mdt();
    let at_server = |name: &str| {
        let [before, after] = [&before, &after].map(|all| all.get(name).copied().unwrap_or(0));
        after - before
    };
    for (name, times) in [("mknod", FILES), ("open", FILES), ("getattr", 0)] {
        counts("at the MDT", &only(name, at_server(name)), &only(name, times))?;
    }
    // So does mkdir; and what is not there is known without asking.
    let dirs = files(&here.join(name), "dir");
    let trips = asked(here, || dirs.iter().for_each(|path| fs::create_dir(path).unwrap()));
    counts("own folders", &trips, &one_each)?;
    let missing = files(&here.join(name), "missing");
    let absent = || missing.iter().for_each(|path| assert!(!path.exists()));
    counts("what is missing", &asked(here, absent), &nothing)?;
    // And what is there: its attributes came with it.
    let present = || own.iter().for_each(|path| assert!(fs::metadata(path).unwrap().is_file()));
    counts("what is there", &asked(here, present), &nothing)?;

    // Another's directory is read after some names that were looked up in vain, and then what is
    // not there is known without asking, names that nobody has looked up among it.
    let shared = there.join(name);
    fs::write(shared.join("first there"), b"").unwrap();
    let missing = files(&shared, "new");
    let absent = || missing.iter().for_each(|path| assert!(!path.exists()));
    counts_at_most("another's, missing", &asked(there, absent), FEW)?;
    counts("another's, missing, again", &asked(there, absent), &nothing)?;
    let cold = files(&shared, "cold");
    let trips = asked(there, || cold.iter().for_each(|path| drop(File::create(path).unwrap())));
    counts("another's, cold", &trips, &one_each)?;
    // `O_EXCL` makes the kernel look once more, which costs nothing then.
    let trips = asked(there, || missing.iter().for_each(|path| create(path)));
    counts("another's, exclusively", &trips, &one_each)?;
    // So it is from the first on in a mount that has seen nothing yet, but for a few.
    let new = cluster.mount(&format!("new-{name}"));
    let first = files(&new.join(name), "first");
    let trips = asked(&new, || first.iter().for_each(|path| create(path)));
    counts("the first of a mount", &only("made", trips["mds_reint_create"]), &only("made", FILES))?;
    counts_at_most("the first of a mount", &trips, FILES + FEW)?;

    // What is known not to be there goes with the directory's lock when another makes it.
    let (by_here, by_there) = (here.join(name).join("late"), shared.join("late"));
    assert!(!by_there.exists());
    // But for one look at the directory, if what was reported of it is answered just now.
    let looks = || (0..10).for_each(|_| assert!(!by_there.exists()));
    counts_at_most("known", &asked(there, looks), 1)?;
    create(&by_here);
    assert!(by_there.exists(), "it is not believed to be missing any more");
    fs::remove_file(&by_there).unwrap();
    until("it is gone there, too", || !by_here.exists());
    Ok(())
}

/// What two mounts ask at most that make names in one directory at the same time, and one that makes
/// names where there are more than it would read.
fn creates_cost_more([here, there]: [&Path; 2], name: &str) -> Counted {
    let unwaited = |mut trips: BTreeMap<String, u64>| {
        trips.remove("ldlm_cancel");
        trips
    };
    let make = |dir: &Path, kind: &str, names: u64| {
        (0..names).for_each(|number| create(&dir.join(format!("{kind}{number}"))));
    };
    let (mine, theirs) = (here.join(name), there.join(name));
    fs::create_dir(&mine).unwrap();
    assert!(theirs.is_dir());
    let mut at_there = BTreeMap::new();
    let at_here = asked(here, || {
        at_there = asked(there, || {
            thread::scope(|both| {
                both.spawn(|| make(&mine, "here", FILES));
                both.spawn(|| make(&theirs, "there", FILES));
            });
        });
    });
    // Each change by the other takes back what was known of the directory: its attributes, and that
    // the name is not there, for which the kernel looks twice with `O_EXCL`.
    for (who, trips) in [("here, together", at_here), ("there, together", at_there)] {
        let trips = unwaited(trips);
        let made = trips.get("mds_reint_create").copied().unwrap_or(0);
        counts(who, &only("made", made), &only("made", FILES))?;
        counts_at_most(who, &trips, 4 * FILES + FEW)?;
    }
    make(&mine, "many", READ_MAX);
    let large = asked(there, || make(&theirs, "large", FILES));
    counts_at_most("in a large one", &unwaited(large), 2 * FILES + FEW)
}

#[test]
fn a_create_costs_two_round_trips_in_a_large_directory_and_four_at_most_among_others() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "trips2");
    let (mds, oss) = cluster.start();
    let (here, there) = (cluster.mount("here"), cluster.mount("there"));
    let mut rounds = (1..=ROUNDS).map(|round| {
        creates_cost_more([&here, &there], &format!("both{round}"))
            .inspect_err(|error| eprintln!("round {round}: {error}"))
    });
    assert!(rounds.any(|round| round.is_ok()), "it costs more each time");
    drop(rounds);
    cluster.finish([oss, mds]);
}

#[test]
fn a_create_costs_one_round_trip() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "trips");
    let (mds, oss) = cluster.start();
    let (here, there) = (cluster.mount("here"), cluster.mount("there"));
    let mut rounds = (1..=ROUNDS).map(|round| {
        creates_cost_one_round_trip(&mut cluster, [&here, &there], &format!("own{round}"))
            .inspect_err(|error| eprintln!("round {round}: {error}"))
    });
    assert!(rounds.any(|round| round.is_ok()), "it costs more each time");
    drop(rounds);
    cluster.finish([oss, mds]);
}

/// Reads a file from its beginning to its end, as a program that is started again and again does.
fn read(path: &Path) -> usize {
    fs::read(path).unwrap().len()
}

#[test]
fn a_file_that_is_opened_again_and_again_asks_nobody_and_goes_when_it_is_removed() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "trips3");
    let (mds, oss) = cluster.start();
    let (here, there) = (cluster.mount("here"), cluster.mount("there"));
    let (mine, theirs) = (here.join("f"), there.join("f"));
    fs::write(&theirs, [7; 5000]).unwrap();
    let closes = || counted(&run_folder(&here), "mdc.*.stats").get("mds_close").copied();
    // Known, locked, and closed, of which the MDT does not hear.
    assert_eq!(read(&mine), 5000);
    let before = closes();
    let again = asked(&here, || (0..FILES).for_each(|_| assert_eq!(read(&mine), 5000)));
    assert_eq!(again, BTreeMap::new(), "{FILES} more");
    assert_eq!(closes(), before);
    // What others change is seen, and what was kept is closed for them.
    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    fs::set_permissions(&theirs, mode(0o640)).unwrap();
    fs::write(&theirs, [8; 6000]).unwrap();
    // The other mount may still be telling what it has written.
    let mut rounds = (0..5).map(|_| asked(&here, || assert_eq!(read(&mine), 6000)));
    assert!(rounds.any(|again| again.is_empty()), "once more");
    // Nobody has it open: it goes with its name, from there and from here.
    fs::remove_file(&theirs).unwrap();
    cluster.wait_for_no_objects(&["ost0", "ost1"]);
    assert_eq!(File::open(&mine).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    fs::write(&mine, [9; 7000]).unwrap();
    (0..4).for_each(|_| assert_eq!(read(&mine), 7000));
    fs::remove_file(&mine).unwrap();
    cluster.wait_for_no_objects(&["ost0", "ost1"]);
    // Who has it open still reads it after it was removed, from there and from here.
    for name in [&mine, &theirs] {
        fs::write(&theirs, [1; 8000]).unwrap();
        (0..3).for_each(|_| assert_eq!(read(&mine), 8000));
        let mut open = File::open(&mine).unwrap();
        fs::remove_file(name).unwrap();
        // The locks on it are this mount's again, and nobody will want them any more.
        assert_eq!(std::os::unix::fs::MetadataExt::nlink(&open.metadata().unwrap()), 0);
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut open, &mut bytes).unwrap();
        assert_eq!(bytes, [1; 8000]);
        drop(open);
        cluster.wait_for_no_objects(&["ost0", "ost1"]);
    }
    cluster.finish([oss, mds]);
}

/// What a mount has asked of servers, of all kinds, and what its kernel has asked of it, while something
/// was done.
fn all_asked(mnt: &Path, work: impl Fn()) -> [BTreeMap<String, u64>; 2] {
    let look = |names: &[&str]| {
        let mut all = BTreeMap::new();
        for name in names {
            let mut lctl = as_program("lctl");
            let text = ok(lctl.arg("--data").arg(run_folder(mnt)).args(["get_param", "-n", *name]));
            for line in text.lines() {
                let mut words = line.split_whitespace();
                let (Some(name), Some(samples)) = (words.next(), words.next()) else { continue };
                if words.next() == Some("samples") && name != "obd_ping" {
                    *all.entry(name.to_owned()).or_default() += samples.parse::<u64>().unwrap();
                }
            }
        }
        all
    };
    let of_all = || [look(&["mdc.*.stats", "osc.*.stats"]), look(&["llite.*.stats"])];
    let mut before = of_all();
    until("the mount asks for nothing", || {
        thread::sleep(QUIET);
        let last = std::mem::replace(&mut before, of_all());
        last == before
    });
    work();
    // What nobody waits for is late.
    thread::sleep(QUIET);
    let mut after = of_all();
    for (after, before) in after.iter_mut().zip(&before) {
        for (name, times) in after.iter_mut() {
            *times -= before.get(name).copied().unwrap_or(0);
        }
        // What answered a verb from what is known is no request.
        after.retain(|name, times| *times > 0 && !name.starts_with("lock_"));
    }
    after
}

/// Opens a file for reading and writing, as mdtest does, and only reads.
fn read_by_a_writer(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut file = File::options().read(true).write(true).open(path).unwrap();
    std::io::Read::read_to_end(&mut file, &mut bytes).unwrap();
    bytes
}

fn xattr(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 100];
    match rustix::fs::getxattr(path, name, &mut value) {
        Ok(len) => {
            value.truncate(len);
            Some(value)
        }
        Err(errno) => {
            assert_eq!(errno, rustix::io::Errno::NODATA);
            None
        }
    }
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
}

#[test]
fn what_is_done_again_asks_nobody_and_sees_what_others_do() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "trips_again");
    let (mds, oss) = cluster.start();
    let (here, there) = (cluster.mount("here"), cluster.mount("there"));
    let (mine, theirs) = (here.join("f"), there.join("f"));
    fs::write(&theirs, [7; 3901]).unwrap();
    let looks = |of: &Path, len: u64| assert_eq!(fs::metadata(of).unwrap().len(), len);
    let writer_reads = |byte: u8, len: usize| {
        assert!(read_by_a_writer(&mine) == vec![byte; len]);
    };
    let reads = |byte: u8, len: usize| assert!(fs::read(&mine).unwrap() == vec![byte; len]);
    // Whatever costs a request does so once. A kernel short of memory forgets.
    let asks_nobody = |what: &str, kernel: &[&str], work: &dyn Fn()| {
        let mut last = Default::default();
        let quiet = (0..5).any(|_| {
            last = all_asked(&here, work);
            let allowed = |name: &String| kernel.contains(&name.as_str());
            last[0].is_empty() && last[1].keys().all(allowed)
        });
        assert!(quiet, "{what}: {last:?}");
    };
    let of_opens = ["open", "close"];
    let of_writers = ["open", "close", "read_bytes", "getattr"];
    looks(&mine, 3901);
    writer_reads(7, 3901);
    asks_nobody("opened for writing, and read", &of_writers, &|| writer_reads(7, 3901));
    reads(7, 3901);
    asks_nobody("stat", &[], &|| looks(&mine, 3901));
    asks_nobody("read", &of_opens, &|| reads(7, 3901));
    // By turns, each kind of open is kept.
    asks_nobody("both", &of_writers, &|| {
        reads(7, 3901);
        writer_reads(7, 3901);
    });

    // Extended attributes, and targets of links.
    let (link, value) = (here.join("link"), |path: &Path| xattr(path, "user.a"));
    std::os::unix::fs::symlink("f", there.join("link")).unwrap();
    set_xattr(&theirs, "user.a", b"one");
    let points = |to: &str| assert_eq!(fs::read_link(&link).unwrap(), Path::new(to));
    points("f");
    assert_eq!((value(&mine), xattr(&mine, "user.b")), (Some(b"one".to_vec()), None));
    asks_nobody("readlink", &[], &|| points("f"));
    asks_nobody("getxattr", &["getxattr"], &|| {
        assert_eq!((value(&mine), xattr(&mine, "user.b")), (Some(b"one".to_vec()), None));
    });
    set_xattr(&theirs, "user.a", b"two");
    assert_eq!(value(&mine), Some(b"two".to_vec()));
    set_xattr(&mine, "user.b", b"three");
    assert_eq!(xattr(&mine, "user.b"), Some(b"three".to_vec()));
    fs::remove_file(there.join("link")).unwrap();
    std::os::unix::fs::symlink("g", there.join("link")).unwrap();
    points("g");
    fs::remove_file(&link).unwrap();

    // What is kept open for writing keeps nobody from anything, nor his changes from this mount.
    fs::write(&theirs, [8; 5000]).unwrap();
    writer_reads(8, 5000);
    looks(&theirs, 5000);
    asks_nobody("after a write there", &of_writers, &|| writer_reads(8, 5000));
    File::options().write(true).open(&theirs).unwrap().set_len(100).unwrap();
    looks(&mine, 100);
    writer_reads(8, 100);
    asks_nobody("after a cut there", &of_writers, &|| writer_reads(8, 100));
    // Its own writes are told with the close, and seen.
    fs::write(&mine, [9; 200]).unwrap();
    writer_reads(9, 200);
    {
        let mut file = File::options().read(true).write(true).open(&mine).unwrap();
        file.write_all(&[1; 300]).unwrap();
    }
    writer_reads(1, 300);
    looks(&theirs, 300);
    assert!(fs::read(&theirs).unwrap() == [1; 300]);
    writer_reads(1, 300);
    writer_reads(1, 300);
    // Neither a rename nor a chmod there, nor the end of the file.
    fs::rename(&theirs, there.join("g")).unwrap();
    assert_eq!(File::open(&mine).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    assert!(read_by_a_writer(&here.join("g")) == [1; 300]);
    assert!(read_by_a_writer(&here.join("g")) == [1; 300]);
    fs::remove_file(there.join("g")).unwrap();
    cluster.wait_for_no_objects(&["ost0", "ost1"]);
    fs::write(&mine, [2; 400]).unwrap();
    (0..3).for_each(|_| writer_reads(2, 400));
    fs::remove_file(&mine).unwrap();
    cluster.wait_for_no_objects(&["ost0", "ost1"]);
    cluster.finish([oss, mds]);
}

#[test]
fn who_looks_at_what_he_lists_finds_it_looked_up() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "trips4");
    let (mds, oss) = cluster.start();
    let (here, there) = (cluster.mount("here"), cluster.mount("there"));
    let hits = |of: &Path| {
        let mut lctl = as_program("lctl");
        let text = ok(lctl.arg("--data").arg(run_folder(of)).args([
            "get_param",
            "-n",
            "llite.*.statahead_stats",
        ]));
        let hits = text.lines().find_map(|line| line.strip_prefix("hit total: "));
        hits.unwrap().parse::<u64>().unwrap()
    };
    let look = |dir: &Path| {
        let sizes =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
        sizes.sum::<u64>()
    };
    // Files that a mount has written are its own until another looks: then it is asked twice.
    for (name, sum, times) in [("short", 3 * FILES, 2), ("long", 5 * FILES, 1)] {
        fs::create_dir(here.join(name)).unwrap();
        for number in 0..FILES {
            let mut file = File::create_new(here.join(name).join(format!("file{number}"))).unwrap();
            file.write_all(&vec![1; (sum / FILES) as usize]).unwrap();
            // Of what is still kept by its writer nobody else keeps the size.
            file.sync_all().unwrap();
        }
        if times == 1 {
            let clear = ["set_param", "ldlm.namespaces.*-mdc-*.lru_size=clear"];
            ok(as_program("lctl").arg("--data").arg(run_folder(&here)).args(clear));
            thread::sleep(QUIET);
        }
        let before = hits(&there);
        let trips = asked(&there, || assert_eq!(look(&there.join(name)), sum));
        // The second time by its name or by its FID, as the answers come.
        let looks = trips["mds_getattr_lock"] + trips.get("mds_getattr").copied().unwrap_or(0);
        assert!((FILES..=times * FILES + FEW).contains(&looks), "{times} times each: {trips:?}");
        assert!(hits(&there) >= before + FILES * 3 / 4, "{name}: {} hits", hits(&there) - before);
        let again = asked(&there, || assert_eq!(look(&there.join(name)), sum));
        assert_eq!(again.get("mds_getattr_lock"), None, "{again:?}");
    }
    cluster.finish([oss, mds]);
}

/// As many names as take several questions of a kernel.
const LISTED: u64 = 400;

/// The names in a directory, each of which is there once.
fn names(dir: &Path) -> BTreeSet<String> {
    once(fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()))
}

fn once(names: impl Iterator<Item = String>) -> BTreeSet<String> {
    let names: Vec<String> = names.collect();
    let all: BTreeSet<String> = names.iter().cloned().collect();
    assert_eq!(all.len(), names.len(), "{names:?}");
    all
}

/// Changes of a directory by all calls that change one: what is there by then, at first nothing.
fn change(dir: &Path, by: &str, mut see: impl FnMut(&BTreeSet<String>)) {
    let mut there = names(dir);
    let name = |kind: &str| format!("{kind} by {by}");
    let mut is = |there: &mut BTreeSet<String>, gone: Option<&str>, new: Option<&str>| {
        if let Some(gone) = gone {
            assert!(there.remove(&name(gone)));
        }
        there.extend(new.map(name));
        see(there);
    };
    let at = |kind: &str| dir.join(name(kind));
    create(&at("file"));
    is(&mut there, None, Some("file"));
    fs::create_dir(at("folder")).unwrap();
    is(&mut there, None, Some("folder"));
    std::os::unix::fs::symlink("a", at("symlink")).unwrap();
    is(&mut there, None, Some("symlink"));
    fs::hard_link(at("file"), at("link")).unwrap();
    is(&mut there, None, Some("link"));
    fs::rename(at("file"), at("moved")).unwrap();
    is(&mut there, Some("file"), Some("moved"));
    fs::rename(at("moved"), at("symlink")).unwrap();
    is(&mut there, Some("moved"), None);
    fs::rename(at("link"), at("folder").join("away")).unwrap();
    is(&mut there, Some("link"), None);
    fs::rename(at("folder").join("away"), at("back")).unwrap();
    is(&mut there, None, Some("back"));
    for kind in ["back", "symlink"] {
        fs::remove_file(at(kind)).unwrap();
        is(&mut there, Some(kind), None);
    }
    fs::remove_dir(at("folder")).unwrap();
    is(&mut there, Some("folder"), None);
}

#[test]
fn a_directory_that_is_listed_again_asks_nobody_and_shows_what_anybody_does() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "trips_dirs");
    let (mds, oss) = cluster.start();
    let (here, there) = (cluster.mount("here"), cluster.mount("there"));
    let (mine, theirs) = (here.join("d"), there.join("d"));
    fs::create_dir(&theirs).unwrap();
    assert_eq!(names(&mine), BTreeSet::new());
    let name = |number: u64| format!("file{number}");
    (0..LISTED).for_each(|number| create(&theirs.join(name(number))));
    let all: BTreeSet<String> = (0..LISTED).map(name).collect();
    // What is open no kernel forgets, however short of memory it is.
    let open = File::open(&mine).unwrap();
    let asks_nobody = |what: &str| {
        assert_eq!(names(&mine), all);
        let again = || (0..5).for_each(|_| assert_eq!(names(&mine), all));
        let [asked, _] = all_asked(&here, again);
        assert!(asked.is_empty(), "{what}: {asked:?}");
    };
    asks_nobody("listed again");
    let shown = |names_of: &BTreeSet<String>| {
        assert_eq!(names(&mine), *names_of);
        assert_eq!(names(&theirs), *names_of);
        // What was found a moment ago is known now.
        assert_eq!(names(&mine), *names_of);
    };
    for (dir, by) in [(&theirs, "there"), (&mine, "here")] {
        change(dir, by, shown);
        asks_nobody(by);
    }

    // Whoever is at it sees what stays once, whatever comes and goes meanwhile.
    for (dir, by) in [(&theirs, "there"), (&mine, "here")] {
        let kept = once(fs::read_dir(&mine).unwrap().enumerate().map(|(number, entry)| {
            let other = dir.join(format!("other {by}"));
            match number % 40 {
                0 => create(&other),
                20 => fs::remove_file(other).unwrap(),
                _ => {}
            }
            entry.unwrap().file_name().into_string().unwrap()
        }));
        assert!(kept.is_superset(&all), "{kept:?}");
        // Whether it is there goes by where the listing ended.
        let _ = fs::remove_file(dir.join(format!("other {by}")));
        // From the beginning once more, and by places that were told.
        let mut open = rustix::fs::Dir::read_from(File::open(&mine).unwrap()).unwrap();
        let read = |open: &mut rustix::fs::Dir| {
            let names = open.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned());
            let mut names = once(names);
            assert!(names.remove(".") && names.remove(".."));
            names
        };
        assert_eq!(read(&mut open), all);
        create(&dir.join("new"));
        open.rewind();
        assert!(read(&mut open).contains("new"), "{by}");
        fs::remove_file(dir.join("new")).unwrap();
        open.rewind();
        assert_eq!(read(&mut open), all);
    }
    asks_nobody("in the end");
    // It can be switched off.
    let set = ["set_param", "llite.*.max_cached_dirs_mb=0"];
    ok(as_program("lctl").arg("--data").arg(run_folder(&here)).args(set));
    for _ in 0..2 {
        let [asked, _] = all_asked(&here, || assert_eq!(names(&mine), all));
        assert!(!asked.is_empty());
    }
    let get = ["get_param", "-n", "llite.*.max_cached_dirs_mb"];
    let shown = ok(as_program("lctl").arg("--data").arg(run_folder(&here)).args(get));
    assert!(shown.starts_with("max_cached_dirs_mb: 0\nused_mb: 0\n"), "{shown}");
    drop(open);
    cluster.finish([oss, mds]);
}

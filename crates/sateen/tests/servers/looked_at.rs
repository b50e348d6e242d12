//! One mount writes, another looks: `stat` sees all that was written before it, and nothing that was
//! not begun by its end, and the writer keeps its lock, its pages and what it has not written out.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, ok, run_folder, server_folder, until};

use crate::trips::counted;
use crate::{BINARY, as_program};

/// How often somebody looks.
const LOOKS: usize = 200;
const MIB: usize = 1 << 20;
/// Written at most, of each size.
const BYTES_MAX: u64 = 512 << 20;

fn of_locks(mount: &Path, name: &str) -> u64 {
    counted(&run_folder(mount), "llite.*.stats").get(name).copied().unwrap_or(0)
}

fn asked(server: &Path, name: &str) -> u64 {
    let name = format!("ldlm.namespaces.*.{name}");
    let mut lctl = as_program("lctl");
    let text = ok(lctl.arg("--data").arg(server).args(["get_param", "-n", &name]));
    text.lines().map(|line| line.parse::<u64>().unwrap()).sum()
}

/// Appends pieces through one mount while the other looks. How many it has written.
fn looked_at(from: &Path, by: &Path, piece: usize) -> u64 {
    let mut file = File::create_new(from).unwrap();
    let (begun, ended) = (AtomicU64::new(0), AtomicU64::new(0));
    let done = AtomicBool::new(false);
    let bytes = vec![7; piece];
    thread::scope(|scope| {
        scope.spawn(|| {
            // Should the other end with a failure, this one ends, too.
            while !done.load(Ordering::SeqCst) && ended.load(Ordering::SeqCst) < BYTES_MAX {
                begun.fetch_add(piece as u64, Ordering::SeqCst);
                file.write_all(&bytes).unwrap();
                ended.fetch_add(piece as u64, Ordering::SeqCst);
                thread::sleep(Duration::from_micros(500));
            }
        });
        let looks = || {
            let mut last = (0, 0, 0);
            for look in 0..LOOKS {
                let least = ended.load(Ordering::SeqCst);
                let seen = fs::metadata(by).map_err(|error| error.to_string())?;
                let most = begun.load(Ordering::SeqCst);
                if !(least..=most).contains(&seen.len()) {
                    return Err(format!("look {look}: {least} <= {} <= {most}?", seen.len()));
                }
                let now = (seen.len(), seen.mtime(), seen.mtime_nsec());
                if now.0 < last.0 || (now.1, now.2) < (last.1, last.2) {
                    return Err(format!("look {look}: {now:?} after {last:?}"));
                }
                last = now;
            }
            Ok(())
        };
        let seen = looks();
        done.store(true, Ordering::SeqCst);
        seen.unwrap();
    });
    let written = ended.into_inner();
    assert_eq!(fs::metadata(by).unwrap().len(), written, "it has not been closed");
    written
}

/// Writes a file of 64 MiB over and over, for so long, while somebody looks at it or nobody does:
/// MiB a second, and looks a second.
fn rates(from: &Path, by: Option<&Path>, piece: usize, seconds: u64) -> (f64, f64) {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(from).unwrap();
    let done = AtomicBool::new(false);
    let (bytes, pieces) = (vec![7; piece], (64 * MIB / piece) as u64);
    let (begun, limit) = (Instant::now(), Duration::from_secs(seconds));
    thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut looks = 0_u32;
            while let Some(by) = by.filter(|_| !done.load(Ordering::Relaxed)) {
                fs::metadata(by).unwrap();
                looks += 1;
            }
            looks
        });
        let mut written = 0_u64;
        while begun.elapsed() < limit {
            let at = written % pieces * piece as u64;
            file.write_all_at(&bytes, at).unwrap();
            written += 1;
        }
        let took = begun.elapsed().as_secs_f64();
        done.store(true, Ordering::Relaxed);
        let looks = f64::from(looks.join().unwrap());
        (written as f64 * piece as f64 / MIB as f64 / took, looks / took)
    })
}

/// What it costs, for whoever reads the output: nothing is asserted of rates. `LOOKED_AT_SECONDS`
/// is how long each is measured.
fn tell_rates(one: &Path, two: &Path) {
    let seconds = std::env::var("LOOKED_AT_SECONDS").ok().and_then(|s| s.parse().ok());
    let seconds = seconds.unwrap_or(1);
    for piece in [MIB, 4096] {
        let (from, by) = (one.join("rates"), two.join("rates"));
        for round in 0..3 {
            let (alone, _) = rates(&from, None, piece, seconds);
            let (beside, looks) = rates(&from, Some(&by), piece, seconds);
            println!(
                "round {round}, pieces of {piece}: alone {alone:.0} MiB/s, \
                 looked at {beside:.0} MiB/s, {looks:.0} looks/s"
            );
        }
    }
}

#[test]
fn a_look_at_what_another_mount_writes_costs_it_nothing() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "looked-at");
    let (mds, oss) = cluster.start();
    let (one, two) = (cluster.mount("one"), cluster.mount("two"));
    let server = server_folder(&cluster.path("mgt"));
    // What is written through, and what is kept.
    for (name, piece) in [("large", MIB), ("small", 4096)] {
        let (from, by) = (one.join(name), two.join(name));
        // The name is known to both, and nobody has anything of the file.
        let before = of_locks(&one, "lock_callback");
        let told = (of_locks(&one, "lock_glimpse"), asked(&server, "glimpses_told"));
        let written = looked_at(&from, &by, piece);
        let called = of_locks(&one, "lock_callback") - before;
        let glimpses = of_locks(&one, "lock_glimpse") - told.0;
        println!("{written} bytes in pieces of {piece}: {glimpses} glimpses, {called} called back");
        // The lock on the folder, in which it was made, may have been.
        assert!(called <= 4, "{called} locks were called back");
        assert!(glimpses >= LOOKS as u64, "{glimpses} looks were answered");
        assert!(asked(&server, "glimpses_told") - told.1 >= LOOKS as u64);

        // It is closed now: whoever looks once more may keep what he sees.
        until("the lock is given back", || {
            fs::metadata(&by).unwrap();
            let before = asked(&server, "glimpses_asked");
            let getattrs = || counted(&run_folder(&two), "mdc.*.stats").get("mds_getattr").copied();
            let asked_before = getattrs();
            assert_eq!(fs::metadata(&by).unwrap().len(), written);
            before == asked(&server, "glimpses_asked") && asked_before == getattrs()
        });
        // And all of it is there.
        let file = OpenOptions::new().read(true).open(&by).unwrap();
        let mut last = vec![0; piece];
        file.read_exact_at(&mut last, written - piece as u64).unwrap();
        assert!(last.iter().all(|byte| *byte == 7));
    }
    tell_rates(&one, &two);
    cluster.finish([oss, mds]);
}

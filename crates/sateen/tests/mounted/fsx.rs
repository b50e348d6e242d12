//! fsx: random reads, writes, truncations, mappings and more on one file, each compared with what
//! it should be; through the page cache, past it, and through two mounts by turns.
//! `FSX_OPERATIONS` operations; `SEED` repeats them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sateen_testkit::env_number;
use sateen_testkit::random::Random;

use crate::rig::{Rig, Servers, on_both, on_given, tool};

on_both!(through_the_page_cache, with_direct_io, through_two_mounts_by_turns);
on_given!(through_the_page_cache);

/// What fsx does, and how often beside other things.
const FSX_CONFIG: &str = "
flen = 3000000
[opsize]
min = 1
max = 200000
[weights]
close_open = CLOSE_OPEN
invalidate = 1.0
truncate = 10.0
fsync = 1.0
fdatasync = 1.0
read = 10.0
write = 10.0
mapread = 10.0
mapwrite = 10.0
punch_hole = 2.0
posix_fallocate = 2.0
copy_file_range = 2.0
";

/// How often it closes and opens the file, beside other things.
const CLOSE_OPEN_SELDOM: f32 = 1.0;
const CLOSE_OPEN_OFTEN: f32 = 12.0;

/// Of so many operations at least one has opened the file by each of two mounts: expected are more
/// than eight times as many.
const OPERATIONS_EACH_OPEN: u64 = 100;

struct Fsx {
    child: Child,
    operations: u64,
    seed: u64,
    log: std::path::PathBuf,
}

impl Fsx {
    fn start(rig: &Rig, file: &Path, close_open: f32) -> Option<Fsx> {
        let fsx = tool("fsx")?;
        let operations = env_number("FSX_OPERATIONS", 20_000);
        println!("FSX_OPERATIONS={operations}");
        let seed = sateen_testkit::seed();
        let local = rig.local();
        let (config, log) = (local.join("fsx.toml"), local.join("fsx.log"));
        fs::write(&config, FSX_CONFIG.replace("CLOSE_OPEN", &format!("{close_open:.1}"))).unwrap();
        let child = Command::new(fsx)
            .args(["-N", &operations.to_string(), "-S", &seed.to_string(), "-P"])
            .arg(&local)
            .arg("-f")
            .arg(&config)
            .arg(file)
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Some(Fsx { child, operations, seed, log })
    }

    fn running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end; how many operations it has done.
    fn check(mut self) -> u64 {
        let status = self.child.wait().unwrap();
        let said = fs::read_to_string(&self.log).unwrap();
        let lines: Vec<&str> = said.lines().collect();
        let last = lines[lines.len().saturating_sub(60)..].join("\n");
        assert!(status.success(), "SEED={}:\n{last}", self.seed);
        self.operations
    }
}

fn through_one_mount(servers: Servers, name: &str, direct_io: bool) {
    let Some(rig) = Rig::start(servers, name, 1, direct_io) else { return };
    let Some(fsx) = Fsx::start(&rig, &rig.mnt().join("file"), CLOSE_OPEN_SELDOM) else { return };
    let operations = fsx.check();
    println!("shown: {name} {servers:?}: {operations} operations");
    rig.end();
}

fn through_the_page_cache(servers: Servers) {
    through_one_mount(servers, "fsx", false);
}

fn with_direct_io(servers: Servers) {
    through_one_mount(servers, "fsx-direct", true);
}

/// Whenever it opens the file again, it may get there through the other mount: the name that it
/// is given is a symbolic link, which is turned to and fro meanwhile.
fn through_two_mounts_by_turns(servers: Servers) {
    let Some(rig) = Rig::start(servers, "fsx-two", 2, false) else { return };
    let local = rig.local();
    let (name, next) = (local.join("file"), local.join("next"));
    fs::write(rig.mnt().join("file"), b"").unwrap();
    symlink(rig.mnt().join("file"), &name).unwrap();
    let Some(mut fsx) = Fsx::start(&rig, &name, CLOSE_OPEN_OFTEN) else { return };
    let (before, mut random) = (rig.opens(), Random::new(fsx.seed));
    while fsx.running() {
        let mount = random.pick(rig.mounts()).unwrap();
        symlink(mount.join("file"), &next).unwrap();
        fs::rename(&next, &name).unwrap();
        // Short beside the time between two openings, so that either is as likely.
        std::thread::sleep(Duration::from_millis(1));
    }
    let operations = fsx.check();
    let opens = rig.opens();
    let opens: Vec<u64> = opens.iter().zip(&before).map(|(now, before)| now - before).collect();
    println!(
        "shown: fsx-two {servers:?}: {operations} operations, opened {opens:?} times by mounts"
    );
    let least = (operations / OPERATIONS_EACH_OPEN).max(1);
    assert!(
        opens.len() == 2 && opens.iter().all(|opens| *opens >= least),
        "opened {opens:?} times"
    );
    rig.end();
}

//! A disk below a target that begins to answer `EIO`: the target says so and stops, programs are
//! told, the rest goes on; and when the disk works again, so does the file system, with all that
//! was synced. Needs root and /dev/fuse.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, clippy::indexing_slicing)]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use sateen_testkit::can_mount;
use sateen_testkit::forgetfs::ForgetFs;
use sateen_testkit::watchdog::Watchdog;
use sateen_types::Errno;
use serde_json::Value;

/// What is soon, or never.
const PATIENCE: Duration = Duration::from_secs(120);

/// A file system of which one target has a disk of its own, which this process serves.
struct Fs {
    scratch: PathBuf,
    data: PathBuf,
    disk: Option<ForgetFs>,
    _watched: Watchdog,
}

impl Fs {
    /// Makes a file system, and puts a target of it onto the disk.
    fn new(target: &str) -> Fs {
        let name = format!("sateen-failing-{target}-{}", std::process::id());
        let scratch = std::env::temp_dir().join(name);
        fs::create_dir(&scratch).unwrap();
        let _watched = Watchdog::over(&scratch);
        let mut fs_ = Fs { data: scratch.join("data"), scratch, disk: None, _watched };
        fs_.ok(&fs_.up());
        fs_.ok(&["down"]);
        let (place, made) = (fs_.data.join(target), fs_.scratch.join("made"));
        fs::rename(&place, &made).unwrap();
        fs::create_dir(&place).unwrap();
        fs_.disk = Some(ForgetFs::mount(&place).unwrap());
        let copied = Command::new("cp").arg("-a").arg(made.join(".")).arg(&place).status();
        assert!(copied.unwrap().success());
        fs_
    }

    fn up(&self) -> Vec<String> {
        let mnt = self.mnt();
        let words = ["up", "--mount", mnt.to_str().unwrap(), "--mdts", "1", "--osts", "1"];
        words.map(str::to_owned).to_vec()
    }

    fn mnt(&self) -> PathBuf {
        self.scratch.join("mnt")
    }

    fn disk(&mut self) -> &mut ForgetFs {
        self.disk.as_mut().unwrap()
    }

    fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sateen"));
        command.arg(&args[0]).arg("--data").arg(&self.data).args(&args[1..]).output().unwrap()
    }

    fn ok<S: AsRef<OsStr> + std::fmt::Debug>(&self, args: &[S]) {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
    }

    /// It is ended by force, which fails, and is not there any more when that is said.
    fn ends(&self) {
        let ended = self.run(&["down", "--force"]);
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains("it ended, but") && said.contains("disk error"), "{ended:?}");
        let again = self.run(&["down"]);
        assert!(again.stdout.starts_with(b"not running"), "{again:?} {ended:?}");
    }

    /// Each target's state, as `status --json` says it. With which exit code is not looked at
    /// here: it tells scripts that something failed, and this test what.
    fn states(&self) -> Vec<(String, String)> {
        let status: Value =
            serde_json::from_slice(&self.run(&["status", "--json"]).stdout).unwrap();
        assert_eq!(status["running"], true, "{status}");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let targets = status["targets"].as_array().unwrap();
        targets.iter().map(|target| (text(&target["name"]), text(&target["state"]))).collect()
    }

    fn wait_failed(&self, failed: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let states = self.states();
            let right = |(name, state): &(String, String)| {
                state == if name == failed { "failed" } else { "up" }
            };
            if states.iter().all(right) {
                return;
            }
            assert!(Instant::now() < deadline, "{states:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Fs {
    fn drop(&mut self) {
        self.run(&["down", "--force"]);
        self.disk = None;
        let _ = fs::remove_dir_all(&self.scratch);
    }
}

fn write_and_sync(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text)?;
    File::open(path)?.sync_all()
}

fn is_eio<T: std::fmt::Debug>(result: io::Result<T>) {
    assert_eq!(result.unwrap_err().raw_os_error(), Some(Errno::EIO.raw()));
}

/// A file system with a file that was synced, on which the disk of one target fails; and what is
/// to be seen of that. Then the disk comes back, and everything goes on.
fn fails_and_is_there_again(name: &str, meanwhile: impl Fn(&Path), afterwards: impl Fn(&Path)) {
    if !can_mount() {
        return;
    }
    let mut fs_ = Fs::new(&name.to_lowercase());
    let mnt = fs_.mnt();
    fs_.ok(&fs_.up());
    let kept = mnt.join("kept");
    write_and_sync(&kept, "kept").unwrap();
    File::open(&mnt).unwrap().sync_all().unwrap();
    fs_.disk().fail_after(0);
    is_eio(write_and_sync(&mnt.join("lost"), "lost"));
    fs_.wait_failed(name);
    assert!(fs_.disk().fails());
    meanwhile(&mnt);
    fs_.ends();
    fs_.disk().remount().unwrap();
    fs_.ok(&fs_.up());
    assert!(fs_.states().iter().all(|(_, state)| state == "up"));
    assert_eq!(fs::read(&kept).unwrap(), b"kept");
    afterwards(&mnt);
    write_and_sync(&mnt.join("new"), "new").unwrap();
    fs_.ok(&["down"]);
    fs_.ok(&["fsck"]);
}

#[test]
fn an_ost_whose_disk_fails_says_so_and_is_there_again_with_its_disk() {
    // The names are another target's, which goes on.
    let names_go_on = |mnt: &Path| {
        fs::create_dir(mnt.join("folder")).unwrap();
        File::open(mnt.join("folder")).unwrap().sync_all().unwrap();
        is_eio(fs::write(mnt.join("folder/other"), "other"));
    };
    fails_and_is_there_again("OST0000", names_go_on, |mnt| assert!(mnt.join("folder").is_dir()));
}

#[test]
fn an_mdt_whose_disk_fails_says_so_and_is_there_again_with_its_disk() {
    let nothing_is_made = |mnt: &Path| is_eio(fs::create_dir(mnt.join("folder")));
    fails_and_is_there_again("MDT0000", nothing_is_made, |mnt| {
        assert!(!mnt.join("lost").exists() && !mnt.join("folder").exists());
    });
}

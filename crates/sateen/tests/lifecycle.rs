//! The life of a file system as a user sees it: `up`, `status`, `down`, what is refused, and
//! what happens when something goes wrong outside. Needs root and /dev/fuse.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, clippy::indexing_slicing)]

#[path = "lifecycle/again.rs"]
mod again;
#[path = "lifecycle/ends.rs"]
mod ends;
#[path = "lifecycle/full.rs"]
mod full;
#[path = "lifecycle/groups.rs"]
mod groups;
#[path = "lifecycle/interrupted.rs"]
mod interrupted;
#[path = "lifecycle/left_behind.rs"]
mod left_behind;
#[path = "lifecycle/locked.rs"]
mod locked;
#[path = "lifecycle/requests.rs"]
mod requests;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use sateen_testkit::can_mount;
use sateen_testkit::watchdog::Watchdog;
use serde_json::Value;

/// A data folder that is taken down and removed in the end, however the test ends.
struct Fs {
    data: PathBuf,
    _watched: Watchdog,
}

impl Fs {
    fn new(name: &str) -> Fs {
        let data = std::env::temp_dir().join(format!("sateen-life-{name}-{}", std::process::id()));
        fs::create_dir(&data).unwrap();
        Fs { _watched: Watchdog::over(&data), data }
    }

    fn mnt(&self) -> PathBuf {
        self.data.join("mnt")
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_sateen"))
            .arg(args[0])
            .arg("--data")
            .arg(&self.data)
            .args(&args[1..])
            .output()
            .unwrap()
    }

    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let text = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {text}{errors}");
        text
    }

    /// What a refused command says.
    fn refused(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {text}");
        assert!(text.contains("what to do:"), "{text}");
        text
    }

    fn log(&self) -> String {
        fs::read_to_string(self.data.join("log")).unwrap_or_default()
    }

    /// What `status` says, and its exit code. On a busy machine the process may not answer in
    /// time; that it does not answer at all is nothing that a test here waits for.
    fn asked(&self) -> (Value, Option<i32>) {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let output = self.run(&["status", "--json"]);
            if let Ok(status) = serde_json::from_slice(&output.stdout) {
                return (status, output.status.code());
            }
            assert!(Instant::now() < deadline, "{}", String::from_utf8_lossy(&output.stderr));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn status(&self) -> Value {
        self.asked().0
    }

    fn wait_ended(&self) -> Value {
        let deadline = Instant::now() + Duration::from_secs(180);
        loop {
            let output = self.run(&["status", "--json"]);
            let status = serde_json::from_slice::<Value>(&output.stdout);
            if let Some(status) = status.ok().filter(|status| status["running"] == false) {
                assert_eq!(output.status.code(), Some(3), "{status}");
                return status;
            }
            assert!(Instant::now() < deadline, "still running");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Fs {
    fn drop(&mut self) {
        self.run(&["down", "--force"]);
        // A test may have put a disk of its own there.
        let _ = rustix::mount::unmount(&self.data, rustix::mount::UnmountFlags::DETACH);
        let _ = fs::remove_dir_all(&self.data);
    }
}

fn kill(pid: &Value, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.as_i64().unwrap() as i32).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

fn umount(path: &Path) {
    assert!(Command::new("umount").arg(path).status().unwrap().success());
}

#[test]
fn up_status_down() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("plain");
    assert!(fs_.refused(&["status"]).contains("holds no Sateen file system"));
    assert!(fs_.refused(&["down"]).contains("sateen up"));
    let text = fs_.ok(&["up", "--osts", "2"]);
    assert!(text.contains(fs_.mnt().to_str().unwrap()), "{text}");
    assert!(fs::read_dir(fs_.mnt()).is_ok());

    let status = fs_.status();
    assert_eq!(status["running"], true);
    assert_eq!(status["mount"], fs_.mnt().to_str().unwrap());
    assert!(["io_uring", "classic"].contains(&status["transport"].as_str().unwrap()));
    let targets = status["targets"].as_array().unwrap();
    let names: Vec<&str> = targets.iter().map(|t| t["name"].as_str().unwrap()).collect();
    for name in ["MDT0000", "OST0000", "OST0001"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(targets.iter().all(|t| t["bytes_total"].as_u64().unwrap() > 0));

    let sync = |path: &Path| {
        Command::new(env!("CARGO_BIN_EXE_sateen")).arg("sync").arg(path).output().unwrap()
    };
    assert!(sync(&fs_.mnt()).status.success());
    assert_eq!(sync(Path::new("/proc/self")).status.code(), Some(1));

    let second = fs_.refused(&["up"]);
    assert!(second.contains(&format!("process {}", status["pid"])), "{second}");
    assert!(fs_.ok(&["status"]).contains("running"));

    let open = fs::File::open(fs_.mnt()).unwrap();
    let busy = fs_.refused(&["down"]);
    assert!(busy.contains("in use") && busy.contains(&std::process::id().to_string()), "{busy}");
    assert_eq!(fs_.status()["running"], true, "a refused down leaves everything as it was");
    drop(open);
    assert!(fs_.ok(&["down"]).contains("stopped"));
    assert!(fs_.ok(&["down"]).contains("not running"));
    let status = fs_.status();
    assert_eq!((&status["running"], &status["pid"]), (&Value::Bool(false), &Value::Null));
    assert_eq!(status["targets"].as_array().unwrap().len(), names.len());

    assert!(fs_.refused(&["up", "--osts", "1"]).contains("--osts 2"));
    fs_.ok(&["up", "--osts", "3"]);
    assert!(fs_.status()["targets"].as_array().unwrap().len() > names.len());
}

/// On the mount its own modes decide who reads what. Below the data folder nobody else does.
#[test]
fn other_users_read_through_the_mount_only() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("others");
    fs_.ok(&["up", "--osts", "1"]);
    // By a way that leads through no folder of somebody else's, such as TMPDIR.
    let cat = |path: &Path| {
        let user = ["--reuid=65534", "--regid=65534", "--clear-groups", "cat"];
        let path = path.strip_prefix(&fs_.data).unwrap();
        Command::new("setpriv").args(user).arg(path).current_dir(&fs_.data).output().unwrap()
    };
    for (name, mode) in [("public", 0o644), ("secret", 0o600)] {
        let path = fs_.mnt().join(name);
        fs::write(&path, name).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        fs::File::open(&path).unwrap().sync_all().unwrap();
        assert_eq!(cat(&path).stdout, if mode == 0o644 { b"public".as_slice() } else { b"" });
    }
    let found = Command::new("find").arg(fs_.data.join("ost0000/objects")).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    let objects: Vec<&Path> = found.lines().map(Path::new).filter(|path| path.is_file()).collect();
    assert!(objects.iter().any(|path| fs::read(path).unwrap() == b"secret"), "{found}");
    let (log, state) = (fs_.data.join("log"), fs_.data.join("state.json"));
    for path in objects.into_iter().chain([log.as_path(), &state]) {
        let refused = cat(path);
        assert!(!refused.status.success() && refused.stdout.is_empty(), "{}", path.display());
    }
    let mode = |name: &str| fs::metadata(fs_.data.join(name)).unwrap().permissions().mode() & 0o777;
    for target in ["mgt", "mdt0000", "ost0000"] {
        assert_eq!(mode(target), 0o700, "{target}");
    }
    assert_eq!(mode("control.sock"), 0o600);
    // What they may not ask they are told to ask as somebody else.
    // Not by this process: what it has open for writing a program that another test is just
    // starting may have, too, and then it cannot be executed.
    let mut cp = Command::new("cp");
    cp.arg(env!("CARGO_BIN_EXE_sateen")).arg(fs_.data.join("program"));
    assert!(cp.status().unwrap().success());
    for args in ["status --data .", "lctl dl", "lctl dl --data ."] {
        let user = ["--reuid=65534", "--regid=65534", "--clear-groups", "./program"];
        let mut asks = Command::new("setpriv");
        let said = asks.args(user).args(args.split(' ')).current_dir(&fs_.data).output().unwrap();
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(!said.status.success() && text.contains("run it as root"), "{args:?}: {text}");
    }
    // Who may open a lock may hold it, and nothing starts.
    for name in ["lock", "guard.lock", "mgt/lock", "mdt0000/lock", "ost0000/lock"] {
        let mut flock = Command::new("setpriv");
        flock.args(["--reuid=65534", "--regid=65534", "--clear-groups", "flock", "--nonblock"]);
        let tried = flock.args([name, "true"]).current_dir(&fs_.data).output().unwrap();
        let said = String::from_utf8(tried.stderr).unwrap();
        assert!(!tried.status.success() && said.contains("denied"), "{name}: {said}");
    }
}

#[test]
fn a_killed_process_is_no_obstacle() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("killed");
    fs_.ok(&["up"]);
    kill(&fs_.status()["pid"], rustix::process::Signal::KILL);
    let status = fs_.wait_ended();
    assert!(status["ended"]["why"].as_str().unwrap().contains("killed"), "{status}");
    assert_eq!(status["mounts"][0]["state"], "lost");
    fs_.ok(&["up"]);
    assert!(fs::read_dir(fs_.mnt()).is_ok());
    kill(&fs_.status()["pid"], rustix::process::Signal::KILL);
    fs_.wait_ended();
    assert!(fs_.ok(&["down"]).contains("cleared away"));
    assert!(fs::read_dir(fs_.mnt()).is_ok());
}

/// In the foreground it logs to the terminal, and Ctrl-C ends it as `down` would.
#[test]
fn in_the_foreground_ctrl_c_ends_it() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("foreground");
    let mut up = Command::new(env!("CARGO_BIN_EXE_sateen"));
    up.args(["up", "--foreground", "--data"]).arg(&fs_.data);
    let mut child = up.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    let is_mounted = || {
        let said = fs_.run(&["status", "--json"]).stdout;
        serde_json::from_slice::<Value>(&said)
            .is_ok_and(|status| status["mounts"][0]["state"] == "mounted")
    };
    while !is_mounted() {
        assert!(Instant::now() < deadline && child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(fs_.status()["pid"], child.id());
    fs::write(fs_.mnt().join("file"), b"file").unwrap();
    kill(&Value::from(child.id()), rustix::process::Signal::INT);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("INFO"), "{said}");
    assert!(!fs_.mnt().join("file").exists(), "the mount is gone");
    fs_.ok(&["up"]);
    assert_eq!(fs::read(fs_.mnt().join("file")).unwrap(), b"file");
}

#[test]
fn a_mount_lost_from_outside_is_reported() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("lost");
    let second = fs_.data.with_extension("second");
    fs_.ok(&["up", "--mount", fs_.mnt().to_str().unwrap(), "--mount", second.to_str().unwrap()]);
    umount(&second);
    let deadline = Instant::now() + Duration::from_secs(60);
    while fs_.status()["mounts"][1]["state"] != "lost" {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(10));
    }
    let status = fs_.status();
    assert_eq!(
        (&status["mounts"][0]["state"], &status["running"]),
        (&"mounted".into(), &true.into())
    );
    assert_eq!(fs_.asked().1, Some(3), "not all of it is there");
    umount(&fs_.mnt());
    let status = fs_.wait_ended();
    let why = status["ended"]["why"].as_str().unwrap();
    assert!(why.contains("unmounted from outside"), "{why}");
    fs::remove_dir(second).unwrap();
}

#[test]
fn a_mount_that_was_detached_under_a_program_is_shown_and_can_be_ended() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("detached");
    fs_.ok(&["up"]);
    let open = fs::File::open(fs_.mnt()).unwrap();
    rustix::mount::unmount(fs_.mnt(), rustix::mount::UnmountFlags::DETACH).unwrap();
    assert_eq!(fs_.status()["mounts"][0]["state"], "detached");
    assert_eq!(fs_.asked().1, Some(3));
    let busy = fs_.refused(&["down"]);
    assert!(busy.contains("in use"), "{busy}");
    fs_.ok(&["down", "--force"]);
    assert!(fs_.wait_ended()["ended"]["why"].as_str().unwrap().contains("sateen down"));
    drop(open);
    fs_.ok(&["up"]);
}

#[test]
fn signals_end_it_in_good_order() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("signal");
    fs_.ok(&["up"]);
    let open = fs::File::open(fs_.mnt()).unwrap();
    kill(&fs_.status()["pid"], rustix::process::Signal::TERM);
    let status = fs_.wait_ended();
    assert!(status["ended"]["why"].as_str().unwrap().contains("SIGTERM"), "{status}");
    assert_eq!(status["mounts"].as_array().unwrap().len(), 0, "nothing is left in the tree");
    drop(open);
}

#[test]
fn what_cannot_work_is_refused_with_advice() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("refused");
    let elsewhere = Fs::new("refused-mounts");
    fs::write(elsewhere.data.join("file"), b"").unwrap();
    let full = elsewhere.data.to_str().unwrap();
    assert!(fs_.refused(&["up", "--mount", full]).contains("not empty"));
    let file = elsewhere.data.join("file");
    assert!(fs_.refused(&["up", "--mount", file.to_str().unwrap()]).contains("not a folder"));
    assert!(fs_.refused(&["up", "--mount", "/proc"]).contains("already"));
    let not_ours = elsewhere.refused(&["up"]);
    assert!(not_ours.contains("not Sateen's"), "{not_ours}");
    let mounts: Vec<String> =
        ["a", "b"].map(|name| elsewhere.data.join(name).to_str().unwrap().to_owned()).to_vec();
    let several = ["up", "--passthrough", "--mount", &mounts[0], "--mount", &mounts[1]];
    let several = fs_.refused(&several);
    assert!(several.contains("--passthrough is for one mount, and there are 2"), "{several}");

    fs_.ok(&["up"]);
    fs_.ok(&["down"]);
    let label = fs_.data.join("ost0002/label");
    let mut bytes = fs::read(&label).unwrap();
    bytes[8] = 99;
    fs::write(&label, bytes).unwrap();
    let newer = fs_.refused(&["up"]);
    assert!(newer.contains("99") && newer.contains("newer sateen"), "{newer}");

    let usage = Command::new(env!("CARGO_BIN_EXE_sateen")).arg("sideways").output().unwrap();
    assert_eq!(usage.status.code(), Some(2));
}

/// Without /dev/fuse, as another user, and without the right to mount.
#[test]
fn what_the_machine_lacks_is_said() {
    if !can_mount() {
        return;
    }
    let fs = Fs::new("lacks");
    let hidden = "mount -t tmpfs tmpfs /dev && mknod /dev/null c 1 3 && exec \"$@\"";
    let cases: [(&[&str], &str); 3] = [
        (&["unshare", "--mount", "sh", "-c", hidden, "sh"], "there is no /dev/fuse"),
        // Who may look below folders of others, or the program would not be found.
        (
            &["setpriv", "--reuid=12", "--inh-caps=+dac_override", "--ambient-caps=+dac_override"],
            "mounting needs root",
        ),
        (&["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"], "mount"),
    ];
    for (way, why) in cases {
        let mut command = Command::new(way[0]);
        command.args(&way[1..]).arg(env!("CARGO_BIN_EXE_sateen"));
        let output = command.args(["up", "--data"]).arg(&fs.data).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{way:?}: {said}");
        assert!(said.contains(why) && said.contains("what to do:"), "{way:?}: {said}");
    }
    // And nothing is in the way once it is there.
    fs.ok(&["up"]);
    fs.ok(&["down"]);
}

#[test]
fn a_full_disk_is_refused_with_advice() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("full");
    let small = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
        .arg(&fs_.data)
        .status()
        .unwrap();
    assert!(small.success());
    let full = fs_.refused(&["up"]);
    umount(&fs_.data);
    assert!(full.contains("1.0M free") || full.contains("free space"), "{full}");
}

/// Fills the disk below with data, then names: programs get `ENOSPC`, nothing stops, `df` tells
/// what there is, and what is removed can be used again.
#[test]
fn a_disk_that_fills_up_gives_enospc_and_goes_on() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("filling");
    let small = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=2g", "tmpfs"])
        .arg(&fs_.data)
        .status()
        .unwrap();
    assert!(small.success());
    fs_.ok(&["up", "--osts", "2"]);
    let below = rustix::fs::statvfs(&fs_.data).unwrap();
    let shown = rustix::fs::statvfs(fs_.mnt()).unwrap();
    let bytes = |space: &rustix::fs::StatVfs| space.f_blocks * space.f_frsize;
    assert!(bytes(&shown) <= bytes(&below), "two OSTs do not make one disk larger");

    let big = fs_.mnt().join("big");
    let block = vec![7; 1 << 20];
    let mut file = fs::File::create(&big).unwrap();
    let full = (0..2048).find_map(|_| std::io::Write::write_all(&mut file, &block).err());
    assert_eq!(
        full.and_then(|error| error.raw_os_error()),
        Some(rustix::io::Errno::NOSPC.raw_os_error())
    );
    drop(file);
    // What others put on the disk takes even the room that is kept for names. The file system may
    // take some of it meanwhile, or give some back.
    let filler = fs_.data.join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    let left = || {
        let space = rustix::fs::statvfs(&fs_.data).unwrap();
        space.f_bavail * space.f_frsize
    };
    while left() > 4 << 20 && std::io::Write::write_all(&mut file, &block).is_ok() {}
    drop(file);
    let full = (0..100_000).find_map(|n| fs::create_dir(fs_.mnt().join(format!("d{n}"))).err());
    assert_eq!(
        full.and_then(|error| error.raw_os_error()),
        Some(rustix::io::Errno::NOSPC.raw_os_error())
    );
    fs::remove_file(&big).unwrap();
    fs::remove_file(&filler).unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    while let Err(error) = fs::write(fs_.mnt().join("small"), &block) {
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NOSPC.raw_os_error()));
        assert!(Instant::now() < deadline, "room that was freed is not used");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(fs::read(fs_.mnt().join("small")).unwrap(), block);
    fs_.ok(&["down"]);
    fs_.ok(&["fsck"]);
    umount(&fs_.data);
}

/// A process may have few files open, and has many more objects: each is opened when it is
/// needed, and no target stops.
#[test]
fn a_low_limit_of_open_files_stops_nothing() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("nofile");
    // Hard and soft.
    let up = Command::new("sh")
        .args(["-c", "ulimit -n 400 && exec \"$@\"", "sh", env!("CARGO_BIN_EXE_sateen")])
        .args(["up", "--osts", "2", "--data"])
        .arg(&fs_.data)
        .output()
        .unwrap();
    assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
    let mnt = fs_.mnt();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let folder = mnt.join(format!("d{thread}"));
            scope.spawn(move || {
                fs::create_dir(&folder).unwrap();
                for n in 0..200 {
                    let mut file = fs::File::create(folder.join(format!("f{n}"))).unwrap();
                    std::io::Write::write_all(&mut file, format!("{thread} {n}").as_bytes())
                        .unwrap();
                    file.sync_all().unwrap();
                }
            });
        }
    });
    let pid = fs_.status()["pid"].as_i64().unwrap();
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    assert!(open < 400, "{open} of 400 files are open");
    for target in fs_.status()["targets"].as_array().unwrap() {
        assert_eq!(target["state"], "up", "{target}");
    }
    for n in 0..200 {
        assert_eq!(fs::read(mnt.join(format!("d3/f{n}"))).unwrap(), format!("3 {n}").as_bytes());
    }
    fs_.ok(&["down"]);
    fs_.ok(&["fsck"]);
}

/// An OST without its objects would serve zeros in their place.
#[test]
fn an_ost_whose_objects_are_gone_is_not_served() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("no-objects");
    fs_.ok(&["up", "--osts", "1"]);
    fs::write(fs_.mnt().join("file"), b"precious").unwrap();
    fs_.ok(&["down"]);
    let (objects, away) = (fs_.data.join("ost0000/objects"), fs_.data.join("kept"));
    fs::rename(&objects, &away).unwrap();
    let checked = fs_.run(&["fsck"]);
    let text = String::from_utf8(checked.stdout).unwrap();
    assert_eq!(checked.status.code(), Some(1), "{text}");
    assert!(text.contains("OST0000: damage: the folder `objects` is missing"), "{text}");
    fs_.refused(&["up"]);
    assert!(!objects.exists(), "neither makes another");
    fs::rename(&away, &objects).unwrap();
    fs_.ok(&["fsck"]);
    fs_.ok(&["up"]);
    assert_eq!(fs::read(fs_.mnt().join("file")).unwrap(), b"precious");
}

/// The first file below a folder that holds these bytes.
fn holding(folder: &Path, bytes: &[u8]) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.into_iter().find_map(|path| match path.is_dir() {
        true => holding(&path, bytes),
        false => fs::read(&path).is_ok_and(|there| there == bytes).then_some(path),
    })
}

#[test]
fn what_cannot_be_read_harms_its_reader_alone() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("unreadable");
    fs_.ok(&["up", "--osts", "1"]);
    let [broken, sound] = ["broken", "sound"].map(|name| fs_.mnt().join(name));
    for file in [&broken, &sound] {
        fs::write(file, file.file_name().unwrap().as_encoded_bytes()).unwrap();
    }
    fs_.ok(&["down"]);
    let object = holding(&fs_.data.join("ost0000/objects"), b"broken").unwrap();
    fs::remove_file(&object).unwrap();
    fs::create_dir(&object).unwrap();
    fs_.ok(&["up"]);
    for _ in 0..2 {
        let error = fs::read(&broken).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()), "{error}");
    }
    assert_eq!(fs::read(&sound).unwrap(), b"sound");
    fs::write(&sound, "still served").unwrap();
    fs::File::open(&sound).unwrap().sync_all().unwrap();
    fs_.ok(&["down"]);
}

/// A process that was killed but whose connection to the kernel lives on: what happens when
/// one of its threads waits in the kernel for an answer of its own. The guard must free the
/// programs on the mount.
#[test]
fn programs_do_not_hang_when_the_process_dies_badly() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("guard");
    fs_.ok(&["up"]);
    let pid = fs_.status()["pid"].clone();
    let process = rustix::process::Pid::from_raw(pid.as_i64().unwrap() as i32).unwrap();
    let pidfd = rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty()).unwrap();
    // Its devices, kept open by this process.
    let kept: Vec<_> = fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .flatten()
        .filter(|entry| fs::read_link(entry.path()).is_ok_and(|to| to == Path::new("/dev/fuse")))
        .map(|entry| {
            let number = entry.file_name().to_str().unwrap().parse().unwrap();
            let flags = rustix::process::PidfdGetfdFlags::empty();
            rustix::process::pidfd_getfd(&pidfd, number, flags).unwrap()
        })
        .collect();
    assert!(!kept.is_empty());
    kill(&pid, rustix::process::Signal::KILL);
    let begun = Instant::now();
    let looked = Command::new("stat").arg("-f").arg(fs_.mnt()).output().unwrap();
    assert!(!looked.status.success(), "{looked:?}");
    assert!(begun.elapsed() < Duration::from_secs(120));
    drop(kept);
    fs_.wait_ended();
    fs_.ok(&["up"]);
}

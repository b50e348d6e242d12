//! `make install` and `make uninstall`, into a folder of the test's.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const BINARY: &str = env!("CARGO_BIN_EXE_sateen");

/// Everything below a folder that is no folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Whether a program is there; CI must have it.
fn has(program: &str, package: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        sateen_testkit::skipped(format_args!("there is no {program} (Debian's package {package})"));
    }
    found
}

/// systemd takes every line of the unit for what is meant; it need not run for that.
fn unit_is_right(unit: &str, dest: &Path) {
    let share = dest.join("opt/sateen/share/man");
    for page in unit.lines().find(|line| line.starts_with("Documentation=")).unwrap().split("man:")
    {
        let Some((name, section)) = page.trim().trim_end_matches(')').split_once('(') else {
            continue;
        };
        let path = share.join(format!("man{section}/{name}.{section}"));
        assert!(path.exists(), "the unit names {}", path.display());
    }
    if !has("systemd-analyze", "systemd") {
        return;
    }
    let folder = dest.join("units");
    fs::create_dir(&folder).unwrap();
    let path = folder.join("sateen-target@.service");
    let verify = |text: &str| {
        fs::write(&path, text.replace("/opt/sateen/bin/sateen", BINARY)).unwrap();
        let mut command = Command::new("systemd-analyze");
        let output = command
            .args(["verify", "--man=no", "--recursive-errors=no"])
            .arg(&path)
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(verify(unit), (true, String::new()));
    // It looks: a line that means nothing, and a value that means nothing.
    let unknown = unit.replace("KillMode=", "KilMode=");
    assert!(verify(&unknown).1.contains("KilMode"));
    let nonsense = unit.replace("Type=notify", "Type=notified");
    assert!(verify(&nonsense).1.contains("notified"));
    fs::remove_dir_all(folder).unwrap();
}

/// The manual pages are set without a warning.
fn pages_are_right(man: &Path) {
    if !has("groff", "groff-base") {
        return;
    }
    let set = |pages: &[PathBuf]| {
        let mut command = Command::new("groff");
        let output = command.args(["-ww", "-man", "-Tutf8", "-z"]).args(pages).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let mut pages = files(man);
    pages.sort();
    assert!(pages.len() > 50);
    assert_eq!(set(&pages), (true, String::new()));
    // It looks.
    let bad = man.join("bad.1");
    fs::write(&bad, ".TH bad 1\n.SH NAME\n.NOTHING\n").unwrap();
    assert!(set(std::slice::from_ref(&bad)).1.contains("NOTHING"));
    fs::remove_file(bad).unwrap();
}

#[test]
fn what_is_installed_works_and_can_be_taken_away() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let dest = std::env::temp_dir().join(format!("sateen-install-{}", std::process::id()));
    let script = |what: &str| {
        let mut command = Command::new("sh");
        command.arg(root.join("scripts/install.sh")).arg(what);
        command.env("SATEEN", BINARY).env("DESTDIR", &dest).env("PREFIX", "/opt/sateen");
        run(&mut command);
    };
    script("install");
    let at = |path: &str| dest.join(path.trim_start_matches('/'));
    assert_eq!(fs::read(at("/opt/sateen/bin/sateen")).unwrap(), fs::read(BINARY).unwrap());
    for link in [
        "/opt/sateen/bin/lfs",
        "/opt/sateen/bin/lctl",
        "/opt/sateen/bin/sateen-bench",
        "/usr/sbin/mkfs.sateen",
        "/usr/sbin/mount.sateen",
        "/usr/sbin/mount.fuse.sateen",
    ] {
        let to = fs::read_link(at(link)).unwrap();
        assert_eq!(to, Path::new("/opt/sateen/bin/sateen"), "{link}");
    }
    // The names are what the program goes by.
    let called = dest.join("mkfs.sateen");
    std::os::unix::fs::symlink(at("/opt/sateen/bin/sateen"), &called).unwrap();
    assert!(run(Command::new(&called).arg("--help")).contains("--mgsnode"));
    fs::remove_file(called).unwrap();
    let called = dest.join("sateen-bench");
    std::os::unix::fs::symlink(at("/opt/sateen/bin/sateen"), &called).unwrap();
    let ranks = run(Command::new(&called).args(["-np", "2", "mdtest", "-a", "DUMMY", "-n", "9"]));
    assert!(ranks.contains("2 total task(s)") && ranks.contains("File creation"), "{ranks}");
    // This program does not link MPI, and says so rather than run once for each of MPI's ranks.
    let mut started_by_mpi = Command::new(&called);
    started_by_mpi.env("OMPI_COMM_WORLD_SIZE", "2").args(["mdtest", "-a", "DUMMY", "-n", "9"]);
    let refused = started_by_mpi.output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("feature mpi"), "{said}");
    fs::remove_file(called).unwrap();

    let unit = fs::read_to_string(at("/usr/lib/systemd/system/sateen-target@.service")).unwrap();
    assert!(unit.contains("ExecStart=/opt/sateen/bin/sateen serve"), "{unit}");
    assert!(!unit.contains("@BINDIR@") && unit.contains("Type=notify"));
    // A name or a disk may come late, and nobody may be there to start it again.
    let (head, service) = unit.split_once("[Service]").unwrap();
    assert!(head.contains("StartLimitIntervalSec=0\n") && service.contains("RestartSec=5\n"));
    unit_is_right(&unit, &dest);
    let share = at("/opt/sateen/share");
    pages_are_right(&share.join("man"));
    for page in ["man1/sateen.1", "man1/sateen-serve.1", "man1/lfs.1", "man8/mount.sateen.8"] {
        let text = fs::read_to_string(share.join("man").join(page)).unwrap();
        assert!(text.contains(".TH"), "{page}");
    }
    assert!(share.join("bash-completion/completions/sateen").exists());
    // A second time over the first.
    let before = files(&dest);
    script("install");
    assert_eq!(files(&dest).len(), before.len());

    script("uninstall");
    assert_eq!(files(&dest), Vec::<PathBuf>::new());
    fs::remove_dir_all(dest).unwrap();
}

/// Lustre has `lfs` and `lctl`, and its users type them: they stay what they are, now and when
/// Sateen goes again.
#[test]
fn what_is_somebody_elses_stays_so() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let dest = std::env::temp_dir().join(format!("sateen-others-{}", std::process::id()));
    let script = |what: &str, prefix: &Path, dest: &Path, path: &str| {
        let mut command = Command::new("sh");
        command.arg(root.join("scripts/install.sh")).arg(what);
        command.env("SATEEN", BINARY).env("DESTDIR", dest).env("PREFIX", prefix);
        command.env("SBINDIR", prefix.join("sbin")).env("UNITDIR", prefix.join("units"));
        run(command.env("PATH", path))
    };
    let path = std::env::var("PATH").unwrap();
    // Where the links would be: a program, and a link to one.
    let at = |name: &str| dest.join("usr").join(name);
    let theirs = ["bin/lfs", "share/man/man1/lfs.1", "share/man/man1/lfs-df.1"];
    for name in theirs {
        fs::create_dir_all(at(name).parent().unwrap()).unwrap();
        fs::write(at(name), "Lustre's").unwrap();
    }
    std::os::unix::fs::symlink("/nowhere/lustre-lctl", at("bin/lctl")).unwrap();
    let all = || {
        let mut all = files(&dest);
        all.sort();
        all
    };
    let before = all();
    let said = script("install", Path::new("/usr"), &dest, &path);
    assert!(said.contains("lfs stays what it is") && said.contains("sateen lctl"), "{said}");
    assert!(at("bin/sateen-bench").is_symlink() && at("share/man/man1/sateen-lfs.1").exists());
    assert!(!at("share/man/man8/lctl.8").exists());
    let whole = || {
        theirs.iter().for_each(|name| assert_eq!(fs::read(at(name)).unwrap(), b"Lustre's"));
        assert_eq!(fs::read_link(at("bin/lctl")).unwrap(), Path::new("/nowhere/lustre-lctl"));
    };
    whole();
    // What is ours by now is put there again; what has come since stays when ours goes.
    script("install", Path::new("/usr"), &dest, &path);
    fs::remove_file(at("sbin/mkfs.sateen")).unwrap();
    fs::write(at("sbin/mkfs.sateen"), "another").unwrap();
    script("uninstall", Path::new("/usr"), &dest, &path);
    whole();
    assert_eq!(fs::read(at("sbin/mkfs.sateen")).unwrap(), b"another");
    fs::remove_file(at("sbin/mkfs.sateen")).unwrap();
    assert_eq!(all(), before);

    // Where a shell finds them, if this is the system itself.
    let elsewhere = dest.join("local");
    let path = format!("{}:{path}", at("bin").display());
    ["bin/lfs", "bin/lctl"].iter().for_each(|link| fs::remove_file(at(link)).unwrap());
    std::os::unix::fs::symlink("/bin/true", at("bin/lfs")).unwrap();
    fs::create_dir(dest.join("before")).unwrap();
    fs::copy(BINARY, dest.join("before/sateen")).unwrap();
    std::os::unix::fs::symlink(dest.join("before/sateen"), at("bin/lctl")).unwrap();
    let said = script("install", &elsewhere, Path::new(""), &path);
    assert!(said.contains("lfs stays") && !said.contains("lctl stays"), "{said}");
    assert!(!elsewhere.join("bin/lfs").exists() && elsewhere.join("bin/lctl").is_symlink());
    script("uninstall", &elsewhere, Path::new(""), &path);
    assert_eq!(files(&elsewhere), Vec::<PathBuf>::new());
    fs::remove_dir_all(dest).unwrap();
}

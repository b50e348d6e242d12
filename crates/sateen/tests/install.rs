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
    let share = at("/opt/sateen/share");
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

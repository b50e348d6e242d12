//! `lfs` and `fsck` on a real file system, as a user types them. Needs root and /dev/fuse.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, clippy::indexing_slicing)]

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sateen_testkit::can_mount;

/// A data folder that is taken down and removed in the end, however the test ends.
struct Fs {
    data: PathBuf,
}

impl Fs {
    fn new(name: &str) -> Fs {
        let data = std::env::temp_dir().join(format!("sateen-lfs-{name}-{}", std::process::id()));
        fs::create_dir(&data).unwrap();
        Fs { data }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.data.join("mnt").join(name)
    }

    fn sateen(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sateen"));
        command.arg(args[0]).arg("--data").arg(&self.data).args(&args[1..]).output().unwrap()
    }

    fn ok(&self, args: &[&str]) -> String {
        let output = self.sateen(args);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{args:?}: {text}{errors}");
        text
    }
}

impl Drop for Fs {
    fn drop(&mut self) {
        self.sateen(&["down", "--force"]);
        let _ = fs::remove_dir_all(&self.data);
    }
}

/// Runs `lfs`: its exit code and what it said.
fn lfs(args: &[&str], path: &Path) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sateen"));
    let output = command.arg0("lfs").args(args).arg(path).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn good(args: &[&str], path: &Path) -> String {
    let (code, text, errors) = lfs(args, path);
    assert_eq!(code, 0, "{args:?}: {text}{errors}");
    text
}

#[test]
fn striping_and_space_of_a_mount() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("tools");
    fs_.ok(&["up", "--osts", "3"]);
    let file = fs_.path("f");
    good(&["setstripe", "-c", "2", "-S", "4M", "-i", "1"], &file);
    let fid = good(&["path2fid"], &file);
    let (seq, rest) = fid.trim_matches(['[', ']', '\n']).split_once(':').unwrap();
    let oid = rest.split(':').next().unwrap();
    let number = u32::from_str_radix(&oid[2..], 16).unwrap();
    let shown = file.display();
    let head = format!("{shown}\nlmm_stripe_count:  2\nlmm_stripe_size:   4194304\n");
    let objects: String =
        [1, 2].map(|ost| format!("\t{ost:6}\t{number:14}\t{oid:>13}\t{seq:>14}\n")).concat();
    let text = good(&["getstripe"], &file);
    assert!(text.starts_with(&head), "{text}");
    assert!(text.contains("lmm_stripe_offset: 1\n\tobdidx\t\t objid\t\t objid\t\t group\n"));
    assert!(text.ends_with(&format!("{objects}\n")), "{text}");
    for (flag, value) in [("-c", "2\n"), ("-S", "4194304\n"), ("-i", "1\n")] {
        assert_eq!(good(&["getstripe", flag], &file), value);
    }

    let (code, _, errors) = lfs(&["setstripe", "-c", "1"], &file);
    assert_eq!(
        errors,
        format!("lfs setstripe: setstripe error for '{shown}': stripe already set\n")
    );
    assert_eq!(code, 17);
    let (code, _, errors) = lfs(&["setstripe", "-i", "9"], &fs_.path("g"));
    assert!(code == 22 && errors.contains("lfs df"), "{code} {errors}");
    assert!(!fs_.path("g").exists(), "nothing is left of it");
    assert_eq!(lfs(&["setstripe", "-S", "1k"], &fs_.path("g")).0, 22);
    assert_eq!(lfs(&["getstripe"], &fs_.path("g")).0, 2);
    assert_eq!(lfs(&["getstripe"], Path::new("/proc/self/status")).0, 25);

    let dir = fs_.path("d");
    fs::create_dir(&dir).unwrap();
    good(&["setstripe", "-c", "1", "-S", "64K"], &dir);
    let line = "stripe_count:  1 stripe_size:   65536 pattern:       raid0 stripe_offset: -1\n";
    assert_eq!(good(&["getstripe", "-d"], &dir), line);
    fs::write(dir.join("child"), vec![7; 200_000]).unwrap();
    let text = good(&["getstripe"], &dir);
    assert!(text.starts_with(&format!("{}\n{line}\n", dir.display())), "{text}");
    assert!(text.contains(&format!("{}\nlmm_stripe_count:  1\n", dir.join("child").display())));

    let text = good(&["df"], &file);
    let rows: Vec<&str> = text.lines().collect();
    assert!(rows[0].starts_with("UUID                   1K-blocks        Used   Available Use% "));
    let mnt = fs_.data.join("mnt").canonicalize().unwrap();
    for (row, target) in rows[1..].iter().zip(["MDT:0", "OST:0", "OST:1", "OST:2"]) {
        assert!(row.starts_with(&format!("sateen-{}000", &target[..3])), "{text}");
        assert!(row.ends_with(&format!(" {}[{target}]", mnt.display())), "{text}");
    }
    assert!(rows[5].is_empty() && rows[6].starts_with("filesystem_summary:"), "{text}");
    assert!(good(&["df", "-h"], &file).contains("bytes"));
    assert!(good(&["df", "-i"], &file).contains("IUse%"));

    fs::write(&file, vec![9; 9 << 20]).unwrap();
    let pid = fs_.ok(&["status"]);
    let pid = pid.split("(process ").nth(1).unwrap().split(')').next().unwrap().to_owned();
    let running = fs_.sateen(&["fsck"]);
    let errors = String::from_utf8_lossy(&running.stderr).into_owned();
    assert!(running.status.code() == Some(2) && errors.contains(&pid), "{errors}");
    fs_.ok(&["down"]);
    let text = fs_.ok(&["fsck"]);
    assert!(text.starts_with("clean: 4 inodes, 3 entries, 3 objects checked"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&fs_.ok(&["fsck", "--json"])).unwrap();
    assert_eq!((&json["clean"], &json["checked"]["inodes"]), (&true.into(), &4.into()));

    // An object that belongs to no file.
    let lost = fs_.data.join("ost0000/objects/2ffffffff/0");
    fs::create_dir_all(&lost).unwrap();
    fs::write(lost.join("1.0"), b"lost").unwrap();
    let damaged = fs_.sateen(&["fsck"]);
    let text = String::from_utf8_lossy(&damaged.stdout).into_owned();
    assert_eq!(damaged.status.code(), Some(1), "{text}");
    assert!(text.contains("OST0000: damage: object [0x2ffffffff:0x1:0x0].0 of 4 bytes"), "{text}");
}

//! `lfs`, `lctl` and `fsck` on a real file system, as a user types them. Needs root and /dev/fuse.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::fs::{CWD, FileType, Gid, Mode, Uid, XattrFlags, mknodat};
use rustix::io::Errno;
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use sateen_mount::{OSTS_XATTR, STRIPE_XATTR};
use sateen_testkit::can_mount;
use sateen_testkit::cluster::until;
use sateen_testkit::watchdog::Watchdog;
use sateen_types::StripePolicy;
use sateen_wire::codec::Wire;

/// A data folder that is taken down and removed in the end, however the test ends.
struct Fs {
    data: PathBuf,
    _watched: Watchdog,
}

impl Fs {
    fn new(name: &str) -> Fs {
        let data = std::env::temp_dir().join(format!("sateen-lfs-{name}-{}", std::process::id()));
        fs::create_dir(&data).unwrap();
        Fs { _watched: Watchdog::over(&data), data }
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

fn space_is_shown(fs_: &Fs, file: &Path) {
    let mut text = String::new();
    // A target on a busy disk may take longer than it is waited for.
    until("all targets tell of their space", || {
        text = lfs(&["df"], file).1;
        !text.contains("temporarily unavailable")
    });
    let rows: Vec<&str> = text.lines().collect();
    assert!(rows[0].starts_with("UUID                   1K-blocks        Used   Available Use% "));
    let mnt = fs_.data.join("mnt").canonicalize().unwrap();
    for (row, target) in rows[1..].iter().zip(["MDT:0", "OST:0", "OST:1", "OST:2"]) {
        assert!(row.starts_with(&format!("sateen-{}000", &target[..3])), "{text}");
        assert!(row.ends_with(&format!(" {}[{target}]", mnt.display())), "{text}");
    }
    assert!(rows[5].is_empty() && rows[6].starts_with("filesystem_summary:"), "{text}");
    assert!(lfs(&["df", "-h"], file).1.contains("bytes"));
    assert!(lfs(&["df", "-i"], file).1.contains("IUse%"));
    until("one OST is shown alone", || {
        let one = lfs(&["df", "-Ho1"], file).1;
        one.starts_with("sateen-OST0001_UUID ") && one.lines().count() == 1
    });
    let sum = lfs(&["df", "-s"], file).1;
    assert!(sum.starts_with("filesystem_summary: ") && sum.lines().count() == 1, "{sum}");
    until("all OSTs answer", || {
        good(&["df", "-lN", "-u", "avail", "-o"], file).lines().count() == 3
    });
    let (code, _, errors) = lfs(&["df", "-m7"], file);
    assert_eq!(errors, "lfs df: sateen has no MDT0007 (see: lfs mdts)\n");
    assert_eq!(code, 19);
}

/// Asks for striping as another user does, who may not find the way to this file.
fn striped_by_somebody(file: &fs::File, name: &str, value: &[u8]) -> Result<(), Errno> {
    let set = || {
        let (user, group) = (Uid::from_raw(65534), Gid::from_raw(65534));
        set_thread_groups(&[group]).unwrap();
        set_thread_res_gid(group, group, group).unwrap();
        set_thread_res_uid(user, user, user).unwrap();
        rustix::fs::fsetxattr(file, name, value, XattrFlags::empty())
    };
    std::thread::scope(|scope| scope.spawn(set).join()).unwrap()
}

/// Whoever may make files in a directory for all must not say where those of others lie.
fn only_its_owner_says_where_a_directory_lies(dir: &Path) {
    let before = good(&["getstripe", "-d"], dir);
    fs::set_permissions(dir, fs::Permissions::from_mode(0o1777)).unwrap();
    let two = StripePolicy { stripe_count: 2, stripe_size: 65536, stripe_offset: None }.to_vec();
    let mut on_first = 65536u32.to_vec();
    vec![0u32].put(&mut on_first);
    let open = fs::File::open(dir).unwrap();
    for (name, value) in [(STRIPE_XATTR, &two), (OSTS_XATTR, &on_first)] {
        assert_eq!(striped_by_somebody(&open, name, value), Err(Errno::PERM), "{name}");
    }
    assert_eq!(good(&["getstripe", "-d"], dir), before);
    // What is its own it may stripe.
    let own = dir.join("own");
    // Not opened to be written, which settles it.
    let mode = Mode::from_raw_mode(0o644);
    mknodat(CWD, &own, FileType::RegularFile, mode, 0).unwrap();
    let file = fs::File::open(&own).unwrap();
    chown(&own, Some(65534), Some(65534)).unwrap();
    assert_eq!(striped_by_somebody(&file, STRIPE_XATTR, &two), Ok(()));
    assert_eq!(good(&["getstripe", "-c"], &own), "2\n");
    fs::remove_file(&own).unwrap();
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

    // Until something is written it can be changed.
    good(&["setstripe", "-c", "1"], &file);
    good(&["setstripe", "-c", "2", "-S", "4M", "-i", "1"], &file);
    fs::write(&file, b"written").unwrap();
    let (code, _, errors) = lfs(&["setstripe", "-c", "1"], &file);
    assert_eq!(
        errors,
        format!("lfs setstripe: setstripe error for '{shown}': stripe already set\n")
    );
    assert_eq!(code, 17);
    let (code, _, errors) = lfs(&["setstripe", "-i", "9"], &fs_.path("g"));
    assert!(code == 22 && errors.contains("lfs osts"), "{code} {errors}");
    assert!(!fs_.path("g").exists(), "nothing is left of it");
    assert_eq!(lfs(&["setstripe", "-S", "1k"], &fs_.path("g")).0, 22);
    assert_eq!(lfs(&["getstripe"], &fs_.path("g")).0, 2);
    assert_eq!(lfs(&["getstripe"], Path::new("/proc/self/status")).0, 25);

    let dir = fs_.path("d");
    fs::create_dir(&dir).unwrap();
    good(&["setstripe", "-c", "1", "-S", "64K"], &dir);
    only_its_owner_says_where_a_directory_lies(&dir);
    let line = "stripe_count:  1 stripe_size:   65536 pattern:       raid0 stripe_offset: -1\n";
    assert_eq!(good(&["getstripe", "-d"], &dir), line);
    fs::write(dir.join("child"), vec![7; 200_000]).unwrap();
    let text = good(&["getstripe"], &dir);
    assert!(text.starts_with(&format!("{}\n{line}\n", dir.display())), "{text}");
    assert!(text.contains(&format!("{}\nlmm_stripe_count:  1\n", dir.join("child").display())));

    space_is_shown(&fs_, &file);
    mounts_that_are_not_there_are_told_with_those_that_are(&fs_);

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

/// Runs `lfs` with several paths.
fn many(args: &[&str], paths: &[&Path]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sateen"));
    let output = command.arg0("lfs").args(args).args(paths).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// The OSTs of a file, or those that a directory names.
fn objects(path: &Path) -> Vec<u32> {
    let text = good(&["getstripe", "-q"], path);
    let rows = text.lines().skip(1);
    rows.filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect()
}

/// What the file system says of stripes can be said anew.
fn stripes_of_the_file_system(fs_: &Fs, dir: &Path) {
    let (before, after) = (dir.join("before"), dir.join("after"));
    fs::write(&before, b"one").unwrap();
    fs_.good_lctl(&["set_param", "lod.*.stripecount=-1", "lod.*.stripesize=2M"]);
    fs::write(&after, b"all").unwrap();
    assert_eq!((objects(&before).len(), objects(&after).len()), (1, 4));
    let line = "stripe_count:  -1 stripe_size:   2097152 pattern:       raid0 stripe_offset: -1\n";
    assert_eq!(good(&["getstripe", "-d"], dir), line);
    let json: serde_json::Value =
        serde_json::from_str(&good(&["getstripe", "-d", "--json"], dir)).unwrap();
    assert_eq!(
        (&json[0]["policy"], &json[0]["default"]["stripe_count"]),
        (&serde_json::Value::Null, &serde_json::json!(-1))
    );
    fs_.good_lctl(&["set_param", "lod.*.stripecount=0", "lod.*.stripesize=0"]);
    let kept = fs_.good_lctl(&["get_param", "-n", "lod.*.stripecount", "lod.*.stripesize"]);
    assert_eq!(kept, "-1\n1048576\n");
}

#[test]
fn striping_is_inherited_and_chosen_ost_by_ost() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("striping");
    fs_.ok(&["up", "--osts", "4"]);
    let (dir, sub) = (fs_.path("d"), fs_.path("d/sub"));
    fs::create_dir(&dir).unwrap();
    good(&["setstripe", "-c", "2", "-S", "128K", "-i", "3"], &dir);
    fs::create_dir(&sub).unwrap();
    assert_eq!(good(&["getstripe", "-d", "-c"], &sub), "2\n", "directories inherit it, too");
    // A file says some of it, its directory the rest.
    good(&["setstripe", "-c", "3"], &sub.join("three"));
    let text = good(&["getstripe", "-c", "-S", "-i"], &sub.join("three"));
    let expected = "lmm_stripe_count:  3\nlmm_stripe_size:   131072\nlmm_stripe_offset: 3\n";
    assert!(text.ends_with(expected), "{text}");
    good(&["setstripe", "-o", "2,0-1"], &sub.join("chosen"));
    assert_eq!(objects(&sub.join("chosen")), [2, 0, 1]);
    assert_eq!(good(&["getstripe", "-S"], &sub.join("chosen")), "131072\n");
    good(&["setstripe", "-o", "0-3", "-i", "2", "-S", "64K"], &sub.join("turned"));
    assert_eq!(objects(&sub.join("turned")), [2, 3, 0, 1]);
    let content: Vec<u8> = (0..1_000_000u32).map(|n| n as u8 ^ (n >> 8) as u8).collect();
    fs::write(sub.join("turned"), &content).unwrap();
    assert!(fs::read(sub.join("turned")).unwrap() == content);

    // Several paths: those that can be are done, and the code is the last failure's.
    let (code, text, errors) =
        many(&["getstripe", "-c"], &[&sub.join("chosen"), &sub.join("none"), &sub.join("turned")]);
    assert_eq!((code, text.as_str()), (2, "3\n4\n"), "{errors}");
    assert!(errors.starts_with("lfs getstripe: ") && errors.contains("none"), "{errors}");
    let (code, _, errors) =
        many(&["setstripe", "-c", "1"], &[&sub.join("one"), &sub.join("turned"), &sub.join("two")]);
    assert!(code == 17 && errors.contains("stripe already set"), "{errors}");
    assert_eq!(objects(&sub.join("two")).len(), 1);
    let recursive = good(&["getstripe", "-r", "-q"], &dir);
    assert_eq!(recursive.matches("obdidx").count(), 5, "{recursive}");
    assert_eq!(good(&["getstripe", "-q"], &dir).matches("obdidx").count(), 0);
    let only = good(&["getstripe", "-r", "-O", "3"], &dir);
    assert!(only.contains("turned") && !only.contains("chosen"), "{only}");
    let (code, _, errors) = lfs(&["getstripe", "-r", "-O", "7"], &dir);
    assert_eq!((code, &*errors), (19, "lfs getstripe: sateen has no OST0007 (see: lfs osts)\n"));

    // A directory names the OSTs of its new files, and of those of its new directories.
    good(&["setstripe", "-o", "3,1", "-S", "128K"], &dir);
    let below = fs_.path("d/below");
    fs::create_dir(&below).unwrap();
    fs::write(below.join("f"), &content).unwrap();
    fs::write(below.join("g"), b"g").unwrap();
    for file in ["f", "g"] {
        assert_eq!(objects(&below.join(file)), [3, 1]);
    }
    assert!(fs::read(below.join("f")).unwrap() == content);
    for of in [&dir, &below] {
        let line = "stripe_count:  2 stripe_size:   131072 pattern:       raid0 stripe_offset: 3\n";
        let shown = good(&["getstripe", "-d"], of);
        assert!(shown.starts_with(line), "{shown}");
        assert_eq!(objects(of)[..2], [3, 1], "{shown}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&good(&["getstripe", "-d", "--json"], &below)).unwrap();
    assert_eq!(json[0]["policy"]["osts"], serde_json::json!([3, 1]));
    good(&["setstripe", "-o", "0", "-i", "0"], &below.join("own"));
    assert_eq!(objects(&below.join("own")), [0]);
    good(&["setstripe", "-d"], &below);
    assert_eq!(good(&["getstripe", "-d"], &below).lines().count(), 1);
    fs::write(below.join("free"), b"free").unwrap();
    assert_eq!(objects(&below.join("free")).len(), 1, "what the file system says");

    good(&["setstripe", "-d"], &dir);
    let raw = good(&["getstripe", "-d", "-R"], &dir);
    assert!(raw.starts_with("stripe_count:  0 stripe_size:   0 "), "{raw}");
    assert!(good(&["getstripe", "-d"], &dir).starts_with("stripe_count:  1 "));
    stripes_of_the_file_system(&fs_, &dir);
    for (args, path, code, says) in [
        (&["setstripe", "-d"][..], sub.join("one"), 22, "for directories"),
        (&["setstripe", "-o", "9"], dir.clone(), 22, "lfs osts"),
        (&["setstripe", "-o", "9"], dir.join("nine"), 22, "lfs osts"),
        (&["setstripe", "-o", "1,1"], dir.join("nine"), 22, "twice"),
        (&["setstripe", "-c", "2001"], dir.join("nine"), 22, "1 to 2000"),
        (&["setstripe", "-S", "100K"], dir.join("nine"), 22, "multiple of 64K"),
        (&["setstripe", "-i", "-7"], dir.join("nine"), 22, "lfs osts"),
    ] {
        let (was, _, errors) = lfs(args, &path);
        assert!(was == code && errors.contains(says), "{args:?}: {was} {errors}");
    }
    assert!(!dir.join("nine").exists());
    fs_.ok(&["down"]);
    assert!(fs_.ok(&["fsck"]).starts_with("clean"));
}

#[test]
fn fids_lead_to_all_their_names_and_targets_answer() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("names");
    fs_.ok(&["up", "--osts", "2"]);
    let mnt = fs_.data.join("mnt").canonicalize().unwrap();
    fs::create_dir_all(mnt.join("a/b c")).unwrap();
    fs::write(mnt.join("a/b c/file"), b"x").unwrap();
    fs::hard_link(mnt.join("a/b c/file"), mnt.join("a/other")).unwrap();
    let fid = good(&["path2fid"], &mnt.join("a/other")).trim().to_owned();
    let paths = |args: &[&str], fid: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sateen"));
        let output =
            command.arg0("lfs").arg("fid2path").args(args).arg(&mnt).arg(fid).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    let shown = mnt.display();
    assert_eq!(paths(&[], &fid).1, format!("{shown}/a/b c/file\n{shown}/a/other\n"));
    assert_eq!(paths(&["-l", "1", "-n"], &fid).1, "other\n");
    assert_eq!(paths(&["-f", "-l", "0"], &fid).1, format!("{fid} {shown}/a/b c/file\n"));
    // Names follow.
    fs::rename(mnt.join("a/b c"), mnt.join("moved")).unwrap();
    fs::remove_file(mnt.join("a/other")).unwrap();
    assert_eq!(paths(&[], fid.trim_matches(['[', ']'])).1, format!("{shown}/moved/file\n"));
    let dir = good(&["path2fid"], &mnt.join("moved")).trim().to_owned();
    assert_eq!(paths(&[], &dir).1, format!("{shown}/moved\n"));
    let root = good(&["path2fid"], &mnt).trim().to_owned();
    assert_eq!(paths(&[], &root).1, format!("{shown}\n"));
    fs::remove_file(mnt.join("moved/file")).unwrap();
    let (code, _, errors) = paths(&[], &fid);
    assert!(code == 2 && errors.contains(&fid), "{code} {errors}");
    let (code, _, errors) = paths(&[], "nonsense");
    assert!(code == 22 && errors.contains("is no FID"), "{errors}");
    let (code, _, errors) = paths(&[], "[0x200000404:0x99999999999:0x0]");
    assert!(code == 2 && errors.contains("no file can have"), "{errors}");
    names_need_not_be_utf8(&mnt);

    assert_eq!(
        good(&["osts"], &mnt),
        "OBDS:\n0: sateen-OST0000_UUID ACTIVE\n1: sateen-OST0001_UUID ACTIVE\n"
    );
    assert_eq!(good(&["mdts"], &mnt), "MDTS:\n0: sateen-MDT0000_UUID ACTIVE\n");
    // A target on a busy disk may take longer than it is waited for.
    let osts = "sateen-OST0000 active.\nsateen-OST0001 active.\n";
    until("all OSTs answer", || lfs(&["check", "osts"], &mnt).1 == osts);
    until("all answer", || lfs(&["check", "all"], &mnt).1.lines().count() == 4);
    until("the MGS answers", || lfs(&["check", "mgts"], &mnt).1 == "MGS active.\n");
    let json: serde_json::Value = serde_json::from_str(&good(&["osts", "--json"], &mnt)).unwrap();
    assert_eq!((&json[1]["target"], &json[1]["active"]), (&"OST0001".into(), &true.into()));
    let json: serde_json::Value = serde_json::from_str(&lfs(&["df", "--json"], &mnt).1).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 3);
    let json = |args: &[&str], path: &Path| -> serde_json::Value {
        serde_json::from_str(&good(args, path)).unwrap()
    };
    let wide = mnt.join("wide");
    good(&["setstripe", "-c", "2", "-i", "1", "-S", "64K"], &wide);
    let fid = good(&["path2fid"], &wide);
    let striping = json(&["getstripe", "--json"], &wide);
    assert_eq!(striping[0]["fid"], fid.trim());
    let component = &striping[0]["layout"]["components"][0];
    assert_eq!((&component["stripe_count"], &component["stripe_size"]), (&2.into(), &65536.into()));
    assert_eq!(component["objects"][0], serde_json::json!({ "ost": 1, "stripe": 0 }));
    assert_eq!(json(&["path2fid", "--json"], &wide)[0]["fid"], fid.trim());
    let names = Command::new(env!("CARGO_BIN_EXE_sateen"))
        .args(["lfs", "fid2path", "--json"])
        .arg(&mnt)
        .arg(fid.trim())
        .output()
        .unwrap();
    let names: serde_json::Value = serde_json::from_slice(&names.stdout).unwrap();
    assert_eq!(names[0]["path"], wide.to_str().unwrap());
    fs::remove_file(&wide).unwrap();
    // A full disk behind the output is no success.
    let mut printed = Command::new(env!("CARGO_BIN_EXE_sateen"));
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let printed = printed.arg0("lfs").arg("osts").arg(&mnt).stdout(full).output().unwrap();
    let said = String::from_utf8_lossy(&printed.stderr).into_owned();
    assert!(printed.status.code() == Some(28) && said.contains("cannot print"), "{said}");
    let (code, _, errors) = lfs(&["osts"], Path::new("/proc"));
    assert!(code == 25 && errors.contains("not on a Sateen"), "{errors}");
}

/// What is shown of a path are its bytes; JSON has them beside what can be read of them.
fn names_need_not_be_utf8(mnt: &Path) {
    let dir = mnt.join("bytes");
    fs::create_dir(&dir).unwrap();
    let odd = dir.join(std::ffi::OsStr::from_bytes(b"odd\xff\nname"));
    fs::write(&odd, b"x").unwrap();
    let run = |args: &[&str], paths: &[&Path]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sateen"));
        let output = command.arg0("lfs").args(args).args(paths).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    let bytes = odd.as_os_str().as_bytes();
    let shown = run(&["getstripe", "-v"], &[&odd]);
    assert!(shown.starts_with(bytes), "{}", shown.escape_ascii());
    let shown = run(&["path2fid"], &[&odd, mnt]);
    assert!(shown.starts_with(bytes), "{}", shown.escape_ascii());
    for args in [["getstripe", "--json"], ["path2fid", "--json"]] {
        let json: serde_json::Value = serde_json::from_slice(&run(&args, &[&odd, mnt])).unwrap();
        let [named, plain] = [&json[0], &json[1]].map(|value| value["path_bytes"].as_array());
        let named: Vec<u8> =
            named.unwrap().iter().map(|byte| byte.as_u64().unwrap() as u8).collect();
        assert_eq!((&named[..], plain), (bytes, None));
    }
    fs::remove_dir_all(&dir).unwrap();
}

impl Fs {
    /// Runs `lctl` for this file system alone: its exit code and what it said.
    fn lctl(&self, args: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sateen"));
        let output =
            command.arg0("lctl").arg("--data").arg(&self.data).args(args).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    }

    fn good_lctl(&self, args: &[&str]) -> String {
        let (code, text, errors) = self.lctl(args);
        assert_eq!(code, 0, "{args:?}: {text}{errors}");
        text
    }
}

fn mounts_that_are_not_there_are_told_with_those_that_are(fs_: &Fs) {
    let nowhere = Path::new("nothing-of-this-name");
    let mounted = format!("sateen on {}", fs_.data.join("mnt").display());
    for args in [&["check", "all"][..], &["osts"]] {
        let (code, _, errors) = lfs(args, nowhere);
        assert_eq!(code, 2, "{errors}");
        assert!(errors.contains("'nothing-of-this-name' is neither a path nor"), "{errors}");
        assert!(errors.contains("name one of ") && errors.contains(&mounted), "{errors}");
    }
    let fid = "[0x200000007:0x1:0x0]";
    let (code, _, errors) = lfs(&["fid2path", "nothing-of-this-name"], Path::new(fid));
    assert!(code == 2 && errors.contains(&mounted), "{errors}");
}

/// The number of samples of one statistic.
fn samples(stats: &str, name: &str) -> u64 {
    let lines = stats.lines().filter(|line| line.split_whitespace().next() == Some(name));
    lines.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn statistics_say_what_was_done() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("stats");
    fs_.ok(&["up", "--osts", "2"]);
    fs::create_dir(fs_.path("d")).unwrap();
    fs::write(fs_.path("d/f"), vec![5; 3 << 20]).unwrap();
    fs::rename(fs_.path("d/f"), fs_.path("d/g")).unwrap();
    assert_eq!(fs::read(fs_.path("d/g")).unwrap().len(), 3 << 20);
    let (path, how) = (fs_.path("d/g"), XattrFlags::empty());
    for name in ["user.a", "user.b"] {
        rustix::fs::setxattr(&path, name, b"v", how).unwrap();
        rustix::fs::removexattr(&path, name).unwrap();
    }
    rustix::fs::listxattr(&path, &mut [0_u8; 100]).unwrap();
    fs::remove_file(fs_.path("d/g")).unwrap();
    fs::remove_dir(fs_.path("d")).unwrap();

    let md = fs_.good_lctl(&["get_param", "mdt.*.md_stats"]);
    assert!(md.starts_with("mdt.sateen-MDT0000.md_stats=\nsnapshot_time             "), "{md}");
    for name in ["mkdir", "mknod", "open", "rename", "unlink", "rmdir"] {
        assert!(samples(&md, name) >= 1, "{name}: {md}");
    }
    assert_eq!(samples(&md, "mkdir"), 1);
    let ost = fs_.good_lctl(&["get_param", "obdfilter.*.stats"]);
    let bytes: u64 = ost
        .lines()
        .filter(|line| line.starts_with("write_bytes"))
        .map(|line| line.split_whitespace().nth(6).unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(bytes, 3 << 20, "{ost}");
    assert!(ost.contains("samples [bytes]"), "{ost}");
    // The same of each client, and as the client saw it.
    let own = fs_.good_lctl(&["get_param", "obdfilter.*.exports.0@lo.stats"]);
    assert_eq!(samples(&own, "write_bytes"), samples(&ost, "write_bytes"), "{own}");
    let own = fs_.good_lctl(&["get_param", "mdt.*.exports.*.stats"]);
    assert_eq!(samples(&own, "rename"), 1, "{own}");
    let osc = fs_.good_lctl(&["get_param", "osc.*.stats"]);
    assert_eq!(samples(&osc, "write_bytes"), samples(&ost, "write_bytes"), "{osc}");
    let llite = fs_.good_lctl(&["get_param", "llite.*.stats"]);
    let written = llite.lines().find(|line| line.starts_with("write_bytes")).unwrap();
    assert_eq!(written.split_whitespace().nth(6), Some("3145728"), "{llite}");
    assert_eq!((samples(&llite, "rename"), samples(&llite, "mkdir")), (1, 1));
    let attributes = ["setxattr", "removexattr", "listxattr"].map(|name| samples(&llite, name));
    assert_eq!(attributes, [2, 2, 1], "{llite}");
    let tables = fs_.good_lctl(&["get_param", "llite.*.tables"]);
    assert!(tables.contains("inodes: ") && tables.contains("\nlost: 0"), "{tables}");
    let mdc = fs_.good_lctl(&["get_param", "mdc.*.stats"]);
    assert_eq!(samples(&mdc, "mds_reint_rename"), 1, "{mdc}");
    // Cleared, they begin anew.
    fs_.good_lctl(&["set_param", "mdt.*.md_stats=clear", "llite.*.stats=clear"]);
    let md = fs_.good_lctl(&["get_param", "-n", "mdt.*.md_stats"]);
    assert!(md.starts_with("snapshot_time") && samples(&md, "rename") == 0, "{md}");
    let numbers = ["num_exports", "kbytestotal", "kbytesfree", "filesfree"];
    for name in numbers.map(|name| format!("*.*.{name}")) {
        let text = fs_.good_lctl(&["get_param", &name]);
        assert!(
            text.contains("obdfilter.sateen-OST0001.") && text.contains("mdt.sateen"),
            "{text}"
        );
    }
}

#[test]
fn locks_are_kept_as_is_set_and_dropped_when_asked() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("lru");
    fs_.ok(&["up", "--osts", "1"]);
    (0..50).for_each(|n| fs::write(fs_.path(&format!("f{n}")), b"x").unwrap());
    let lru = |name: &str| {
        let shown = format!("ldlm.namespaces.*-mdc-*.{name}");
        fs_.good_lctl(&["get_param", "-n", &shown]).trim().to_owned()
    };
    assert_eq!([lru("lru_size"), lru("lru_max_age")], ["0", "3900000"]);
    let count = |name: &str| lru(name).parse::<u64>().unwrap();
    assert!(count("lock_unused_count") >= 50 && count("lock_count") >= 50);
    let granted = fs_.good_lctl(&["get_param", "-n", "ldlm.namespaces.mdt-*.lock_count"]);
    assert!(granted.trim().parse::<u64>().unwrap() >= 50, "{granted}");
    fs_.good_lctl(&["set_param", "ldlm.namespaces.*.lru_size=4000000"]);
    fs_.good_lctl(&["set_param", "ldlm.namespaces.*.lru_max_age=2h"]);
    assert_eq!([lru("lru_size"), lru("lru_max_age")], ["4000000", "7200000"]);
    fs_.good_lctl(&["set_param", "ldlm.namespaces.*.lru_size=clear"]);
    // A mount that its kernel cannot be asked by gives the locks back itself.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while count("lock_unused_count") > 4 && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(count("lock_unused_count") <= 4, "of the root");
    assert_eq!(lru("lru_size"), "4000000", "what is kept has not changed");
    let stats = fs_.good_lctl(&["get_param", "llite.*.stats"]);
    assert!(samples(&stats, "lock_unused") >= 50, "{stats}");
    assert_eq!(fs::read(fs_.path("f7")).unwrap(), b"x");
}

#[test]
fn timers_are_shown_where_somebody_wants_to_know() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("timers");
    fs_.ok(&["up", "--osts", "1"]);
    let write = || (0..20).for_each(|n| fs::write(fs_.path(&format!("f{n}")), b"x").unwrap());
    let timed = |part: &str| {
        let text = fs_.good_lctl(&["get_param", "-n", &format!("{part}.timers")]);
        text.lines().filter(|line| line.contains(" samples [nsecs] ")).count()
    };
    write();
    assert_eq!([timed("fuse"), timed("rpc")], [0; 2], "nobody has wanted to know");
    let set = fs_.good_lctl(&["set_param", "*.timers=1", "copies=1"]);
    assert_eq!(set.lines().count(), 9, "{set}");
    (0..20).for_each(|n| fs::remove_file(fs_.path(&format!("f{n}"))).unwrap());
    write();
    let mdc = fs_.good_lctl(&["get_param", "-n", "rpc.timers"]);
    assert_eq!(samples(&mdc, "mds_reint_create"), 20, "one word for one thing: {mdc}");
    let texts = [mdc, fs_.good_lctl(&["get_param", "-n", "fuse.timers"])];
    for text in texts {
        let lines = text.lines().filter(|line| line.contains(" samples [nsecs] "));
        let widths: BTreeSet<usize> = lines.map(str::len).collect();
        assert_eq!(widths.len(), 1, "numbers stand below each other: {text}");
    }
    let json = fs_.good_lctl(&["get_param", "--json", "*.timers"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let fuse = json.as_array().unwrap().iter().find(|one| one["name"] == "fuse.timers").unwrap();
    let unlink = fuse["stats"].as_array().unwrap().iter().find(|one| one["name"] == "unlink");
    let unlink = unlink.unwrap();
    assert_eq!((&unlink["samples"], &unlink["unit"]), (&20.into(), &"nsecs".into()));
    assert!(unlink["p50"].as_u64() <= unlink["p99"].as_u64(), "{unlink}");
    assert!(unlink["p99"].as_u64() <= unlink["max"].as_u64() && unlink["min"].is_u64());
    fs_.good_lctl(&["set_param", "*.timers=0", "copies=0"]);
    write();
    assert_eq!([timed("fuse"), timed("rpc")], [0; 2], "what is off is off");
    let (code, _, errors) = fs_.lctl(&["set_param", "fuse.timers=2"]);
    assert!(code == 22 && errors.contains("0 to 1, or clear"), "{errors}");
}

/// Intents: the lookup that the kernel makes before a create costs no round trip where the client
/// knows that the name is not there, and the create itself opens, locks and tells the attributes.
#[test]
fn a_create_is_one_request() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("intents");
    fs_.ok(&["up"]);
    let create = |name: &str| drop(fs::File::create_new(fs_.path(name)).unwrap());
    fs::create_dir(fs_.path("new")).unwrap();
    create("new/first");
    let asked = || {
        let mdc = fs_.good_lctl(&["get_param", "mdc.*.stats"]);
        let asks = ["mds_getattr", "mds_getattr_lock", "ldlm_enqueue", "mds_open"];
        let creates = samples(&mdc, "mds_reint_create");
        (asks.iter().map(|name| samples(&mdc, name)).sum::<u64>(), creates)
    };
    let (asks, creates) = asked();
    for n in 0..50 {
        create(&format!("new/{n}"));
    }
    assert_eq!(asked(), (asks, creates + 50), "in a directory that it has made");
    // In any other: a name that was looked for, and is not there under the directory's lock. With
    // O_EXCL the kernel would look again.
    for n in 0..50 {
        assert!(!fs_.path(&n.to_string()).exists());
    }
    let (asks, creates) = asked();
    for n in 0..50 {
        drop(fs::File::create(fs_.path(&n.to_string())).unwrap());
    }
    assert_eq!(asked(), (asks, creates + 50), "names that are known not to be there");
}

fn devices_are_listed(fs_: &Fs) {
    let devices = fs_.good_lctl(&["dl"]);
    for device in [
        "UP mgs MGS MGS ",
        "UP mdt sateen-MDT0000 sateen-MDT0000_UUID ",
        "UP osp sateen-OST0001-osc-MDT0000 sateen-MDT0000-mdtlov_UUID ",
        "UP obdfilter sateen-OST0000 sateen-OST0000_UUID ",
        "UP osc sateen-OST0001-osc-",
    ] {
        assert!(devices.contains(device), "{device}: {devices}");
    }
    assert!(devices.starts_with("  0 UP "), "{devices}");
    let json: serde_json::Value = serde_json::from_str(&fs_.good_lctl(&["dl", "--json"])).unwrap();
    assert_eq!(json.as_array().unwrap().len(), devices.lines().count());
    assert!(!devices.contains(" 0@lo") && !json.to_string().contains("\"nid\""), "{devices}");
    let devices = fs_.good_lctl(&["dl", "-t"]);
    let with = |kind: &str| {
        let lines = devices.lines().filter(|line| line.contains(&format!(" UP {kind} ")));
        lines.map(|line| line.ends_with(" 0@lo")).collect::<Vec<_>>()
    };
    assert_eq!([with("mdc"), with("osc"), with("osp")].concat(), [true; 5]);
    let json: serde_json::Value =
        serde_json::from_str(&fs_.good_lctl(&["dl", "-t", "--json"])).unwrap();
    assert!(json.as_array().unwrap().iter().any(|device| device["nid"] == "0@lo"), "{json}");
}

fn names_and_values_come_in_every_form(fs_: &Fs) {
    // The MDTs' osc is another name of their osp.
    let links = fs_.good_lctl(&["list_param", "-F", "osc.*-MDT0000"]);
    assert_eq!(links.lines().next(), Some("osc.sateen-OST0000-osc-MDT0000@"));
    let below = |args: &[&str]| fs_.good_lctl(&[&["list_param"], args].concat()).lines().count();
    assert_eq!((below(&["-R", "osc.*-MDT0000"]), below(&["-RL", "osc.*-MDT0000"])), (4, 2));
    assert_eq!(fs_.good_lctl(&["get_param", "-NF", "osc.*-MDT0000"]), links);
    let json = fs_.good_lctl(&["get_param", "--json", "-NF", "osc.*-MDT0000"]);
    let names: Vec<String> = serde_json::from_str(&json).unwrap();
    assert_eq!(names, links.lines().collect::<Vec<_>>());
    let all = fs_.good_lctl(&["get_param", "-R", "lod"]);
    for line in ["numobd=2\n", "activeobd=2\n", "qos_threshold_rr=17%\n"] {
        assert!(all.contains(&format!("lod.sateen-MDT0000-mdtlov.{line}")), "{all}");
    }
    let lines = fs_.good_lctl(&["get_param", "-H", "mgs.MGS.live.sateen"]);
    assert!(lines.lines().count() > 4, "{lines}");
    assert!(lines.lines().all(|line| line.starts_with("mgs.MGS.live.sateen=")), "{lines}");
}

/// What the MGS keeps goes into a file, and out of it.
fn what_is_kept_goes_through_a_file(fs_: &Fs) {
    let live = || fs_.good_lctl(&["get_param", "mgs.MGS.live.sateen"]);
    let (before, file) = (live(), fs_.data.join("kept"));
    fs::write(&file, &before).unwrap();
    fs_.good_lctl(&["set_param", "-P", "-d", "lod.*.qos_threshold_rr"]);
    assert!(!live().contains("qos_threshold_rr"), "{}", live());
    let set = fs_.good_lctl(&["set_param", "-F", file.to_str().unwrap()]);
    let mut lines = set.lines();
    assert_eq!(lines.next(), Some("lod.sateen-MDT0000-mdtlov.qos_threshold_rr=20"));
    let slots = lines.next().unwrap_or_default();
    assert!(slots.starts_with("mdc.") && slots.ends_with(".max_mod_rpcs_in_flight=7"), "{set}");
    assert_eq!(lines.next(), None);
    let params = |text: &str| text.split("params:").nth(1).map(str::to_owned);
    assert_eq!(params(&live()), params(&before));
}

#[test]
fn parameters_are_listed_set_and_kept() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("params");
    fs_.ok(&["up", "--osts", "2"]);
    devices_are_listed(&fs_);
    names_and_values_come_in_every_form(&fs_);

    let one = "osc.*-OST0000-*.max_rpcs_in_flight";
    assert!(fs_.good_lctl(&["get_param", one]).ends_with(".max_rpcs_in_flight=64\n"));
    assert!(fs_.good_lctl(&["set_param", &format!("{one}=8")]).ends_with("_flight=8\n"));
    let json = fs_.good_lctl(&["set_param", "--json", &format!("{one}=8"), "*.*.ldlm_timeout=20"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json[0]["name"].as_str().unwrap().ends_with(".max_rpcs_in_flight"), "{json}");
    let expected = serde_json::json!({ "name": "mdt.sateen-MDT0000.ldlm_timeout", "value": "20" });
    assert_eq!((&json[0]["value"], &json[1]), (&"8".into(), &expected));
    assert_eq!(fs_.good_lctl(&["get_param", "-n", "osc.*.max_rpcs_in_flight"]), "8\n64\n");
    fs::write(fs_.path("file"), vec![1; 9 << 20]).unwrap();
    let names = fs_.good_lctl(&["list_param", "-F", "osc.*-OST0000-*.*"]);
    assert!(names.lines().any(|name| name.ends_with(".max_rpcs_in_flight=")), "{names}");
    let above = fs_.good_lctl(&["list_param", "obdfilter.*"]);
    assert_eq!(above, "obdfilter.sateen-OST0000\nobdfilter.sateen-OST0001\n");
    for (args, code, says) in [
        (&["set_param", "osc.*.max_rpcs_in_flight=0"][..], 22, "use 1 to 512"),
        (&["set_param", "mdc.*.max_mod_rpcs_in_flight=0"], 22, "use 1 to 511"),
        (&["set_param", "llite.*.statahead_max=513"], 22, "use 0 to 512"),
        (&["set_param", "llite.*.statahead_agl=2"], 22, "use 0 to 1"),
        (&["set_param", "llite.*.passthrough=2"], 22, "use 0 to 1"),
        (&["set_param", "llite.*.passthrough_min_kb=-1"], 22, "use 0 to 1073741824"),
        (&["set_param", "-P", "llite.*.statahead_stats=clear"], 22, "leave out -P"),
        (&["set_param", "llite.*.max_read_ahead_mb=1048577"], 22, "use 0 to 1048576"),
        (&["set_param", "llite.*.max_cached_mb=1048577"], 22, "use 0 to 1048576"),
        (&["set_param", "llite.*.max_cached_dirs_mb=-1"], 22, "use 0 to 1048576"),
        (&["set_param", "llite.*.max_read_ahead_per_file_mb=-1"], 22, "use 0 to 1048576"),
        (&["set_param", "-P", "llite.*.read_ahead_stats=clear"], 22, "leave out -P"),
        (&["set_param", "-F", "/nowhere"], 2, "cannot read '/nowhere'"),
        (&["set_param", "--json", "osc.*.max_rpcs=8"], 22, "max_rpcs_in_flight"),
        (&["set_param", "osc.*.max_rpcs_in_flight"], 22, "PARAM=VALUE"),
        (&["set_param", "mdt.*.max_rpcs_in_flight=8"], 2, "list_param"),
        (&["set_param", "-P", "osc.*.max_rpcs_in_flight=many"], 22, "use 1 to 512"),
        (&["set_param", "-P", "*.*.stats=clear"], 22, "leave out -P"),
        (&["get_param", "osc.*.nothing"], 2, "No such file"),
        (&["list_param", "nothing"], 2, "No such file"),
    ] {
        let (was, _, errors) = fs_.lctl(args);
        assert!(was == code && errors.contains(says), "{args:?}: {was} {errors}");
        assert!(errors.starts_with(&format!("error: {}:", args[0])), "{errors}");
    }
    assert_eq!(fs_.good_lctl(&["get_param", "-n", "lod.*.qos_threshold_rr"]), "17%\n");
    assert_eq!(fs_.good_lctl(&["list_nids"]), "0@lo\n");
    assert_eq!(fs_.good_lctl(&["list_nids", "--json"]), "[\n  \"0@lo\"\n]\n");
    let listed = fs_.good_lctl(&["list_param", "--json", "health_check"]);
    assert_eq!(listed, "[\n  \"health_check\"\n]\n");
    assert_eq!(fs_.good_lctl(&["get_param", "health_check"]), "health_check=healthy\n");

    // For good: over a restart, for mounts to come.
    fs_.good_lctl(&["set_param", "-P", "osc.*.max_rpcs_in_flight=16", "lod.*.qos_threshold_rr=19"]);
    fs_.good_lctl(&["set_param", "mdc.*.max_mod_rpcs_in_flight=511"]);
    let mods = || fs_.good_lctl(&["get_param", "-n", "mdc.*.max_mod_rpcs_in_flight"]);
    assert_eq!(mods(), "63\n");
    fs_.good_lctl(&["set_param", "-P", "mdc.*.max_mod_rpcs_in_flight=7"]);
    assert_eq!(mods(), "7\n");
    let small = [
        ("llite.*.statahead_max", "32", "8"),
        ("llite.*.statahead_agl", "1", "0"),
        ("llite.*.max_read_ahead_mb", "256", "128"),
        ("llite.*.read_ahead_slow_us", "250", "0"),
        ("llite.*.max_read_ahead_per_file_mb", "64", "16"),
        ("llite.*.max_read_ahead_whole_mb", "2", "0"),
        ("ldlm.namespaces.*-mdc-*.lru_size", "0", "4000000"),
        ("ldlm.namespaces.*-mdc-*.lru_max_age", "3900000", "7200000"),
    ];
    for (name, before, now) in small {
        assert_eq!(fs_.good_lctl(&["get_param", "-n", name]), format!("{before}\n"));
        fs_.good_lctl(&["set_param", "-P", &format!("{name}={now}")]);
        assert_eq!(fs_.good_lctl(&["get_param", "-n", name]), format!("{now}\n"));
    }
    // What is set for a while stays when something else is set for good.
    fs_.good_lctl(&["set_param", "osc.*.max_rpcs_in_flight=24"]);
    fs_.good_lctl(&["set_param", "-P", "lod.*.qos_threshold_rr=20"]);
    assert_eq!(fs_.good_lctl(&["get_param", "-n", "osc.*.max_rpcs_in_flight"]), "24\n24\n");
    fs_.ok(&["down"]);
    fs_.ok(&["up"]);
    assert_eq!(fs_.good_lctl(&["get_param", "-n", "osc.*.max_rpcs_in_flight"]), "16\n16\n");
    assert_eq!(fs_.good_lctl(&["get_param", "-n", "lod.*.qos_threshold_rr"]), "20%\n");
    assert_eq!(mods(), "7\n");
    for (name, _, now) in small {
        assert_eq!(fs_.good_lctl(&["get_param", "-n", name]), format!("{now}\n"));
        fs_.good_lctl(&["set_param", "-P", "-d", name]);
    }
    let live = fs_.good_lctl(&["get_param", "mgs.MGS.live.sateen"]);
    assert!(live.contains("- osc.*.max_rpcs_in_flight=16\n"), "{live}");
    fs_.good_lctl(&["set_param", "-P", "-d", "osc.*.max_rpcs_in_flight"]);
    let (code, _, said) = fs_.lctl(&["set_param", "-P", "-d", "osc.*.max_rpcs_in_flight"]);
    assert_eq!(code, 5, "{said}");
    assert!(said.contains("is not taken back: none is kept under this name"), "{said}");
    fs_.ok(&["down"]);
    fs_.ok(&["up"]);
    assert_eq!(fs_.good_lctl(&["get_param", "-n", "osc.*.max_rpcs_in_flight"]), "64\n64\n");
    assert_eq!(fs_.good_lctl(&["get_param", "-n", "lod.*.qos_threshold_rr"]), "20%\n");
    what_is_kept_goes_through_a_file(&fs_);
}

#[test]
fn an_ost_out_of_use_is_shown_and_avoided() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("inactive");
    fs_.ok(&["up", "--osts", "3"]);
    let mnt = fs_.data.join("mnt").canonicalize().unwrap();
    for name in ["there", "wide"] {
        let (count, index) = if name == "wide" { ("3", "0") } else { ("1", "1") };
        good(&["setstripe", "-c", count, "-i", index, "-S", "64K"], &mnt.join(name));
        fs::write(mnt.join(name), vec![8; 400_000]).unwrap();
    }
    let set = fs_.good_lctl(&["set_param", "osc.*-OST0001*.active=0"]);
    assert!(set.contains("osc.sateen-OST0001-osc-MDT0000.active=0\n"), "{set}");
    assert!(good(&["df"], &mnt).contains("\nOST0001             : inactive device\n"));
    assert!(!good(&["df", "-l"], &mnt).contains("OST0001"));
    assert!(good(&["df", "-lv"], &mnt).contains("\nOST0001             : inactive device\n"));
    assert!(good(&["osts"], &mnt).contains("\n1: sateen-OST0001_UUID INACTIVE\n"));
    until("the others answer", || {
        let (code, text, _) = lfs(&["check", "osts"], &mnt);
        assert!(text.contains("sateen-OST0001 inactive.\n"), "{text}");
        code == 0
    });
    let devices = fs_.good_lctl(&["dl"]);
    assert!(devices.contains(" IN osp sateen-OST0001-osc-MDT0000 "), "{devices}");
    assert!(devices.contains(" IN osc sateen-OST0001-osc-"), "{devices}");

    let is_eio = |error: std::io::Error| error.raw_os_error() == Some(5);
    for name in ["there", "wide"] {
        assert!(is_eio(fs::read(mnt.join(name)).unwrap_err()), "{name}");
        let mut options = fs::File::options();
        let file = options.write(true).open(mnt.join(name)).unwrap();
        assert!(is_eio(file.set_len(5).unwrap_err()), "what is to be cut cannot be reached");
    }
    for number in 0..6 {
        let path = mnt.join(format!("new{number}"));
        fs::write(&path, vec![1; 200_000]).unwrap();
        let objects = good(&["getstripe", "-O", "1"], &path);
        assert_eq!(objects, "", "nothing new lies there");
    }
    let (code, _, errors) = lfs(&["setstripe", "-i", "1"], &mnt.join("wanted"));
    assert!(code == 22 && errors.contains("active"), "{errors}");
    let (code, ..) = lfs(&["setstripe", "-o", "1"], &mnt.join("wanted"));
    assert_eq!(code, 22);
    fs::remove_file(mnt.join("wide")).unwrap();

    fs_.good_lctl(&["set_param", "osc.*-OST0001*.active=1"]);
    assert_eq!(fs::read(mnt.join("there")).unwrap(), vec![8; 400_000]);
    assert!(!good(&["df"], &mnt).contains("inactive device"));
    fs::write(mnt.join("there"), b"again").unwrap();
    assert_eq!(fs::read(mnt.join("there")).unwrap(), b"again");
    // For good it is out of use after a restart, too.
    fs_.good_lctl(&["set_param", "-P", "osc.*-OST0001*.active=0"]);
    fs_.ok(&["down"]);
    fs_.ok(&["up"]);
    assert!(good(&["osts"], &mnt).contains("1: sateen-OST0001_UUID INACTIVE"));
    assert!(fs_.good_lctl(&["dl"]).contains(" IN osp sateen-OST0001-osc-MDT0000 "));
    fs_.good_lctl(&["set_param", "-P", "osc.*-OST0001*.active=1"]);
    assert_eq!(fs::read(mnt.join("there")).unwrap(), b"again");
    fs_.ok(&["down"]);
    assert!(fs_.ok(&["fsck"]).starts_with("clean"));
}

//! Targets of each kind that do not fit: of a newer format, with an index that another has or
//! that cannot be, served twice. And options that nobody knows.

use std::fs;
use std::process::Command;

use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, refused, refused_for_good, text};

use crate::{BINARY, as_program};

/// Kind, index and folder of the targets of the usual file system.
const TARGETS: [(&str, Option<u32>, &str, &str); 3] = [
    ("mgs", None, "mgt", "MGS"),
    ("mdt", Some(0), "mdt0", "MDT0000"),
    ("ost", Some(0), "ost0", "OST0000"),
];

#[test]
fn a_newer_format_is_refused_of_each_kind() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::new(BINARY, "newer");
    cluster.make(1);
    for (kind, index, folder, _) in TARGETS {
        let label = cluster.path(folder).join("label");
        let bytes = fs::read(&label).unwrap();
        let mut newer = bytes.clone();
        newer[8] = 99;
        fs::write(&label, &newer).unwrap();
        for said in [
            refused_for_good(&mut cluster.command(1, &[folder])),
            // Also beside others.
            refused_for_good(&mut cluster.command(1, &["mgt", "mdt0", "ost0"])),
        ] {
            assert!(said.contains("disk format 99") && said.contains("newer sateen"), "{said}");
            assert!(said.contains(folder), "{said}");
        }
        let said = refused(&mut cluster.mkfs(kind, index, folder));
        assert!(said.contains("holds a target"), "{said}");
        assert_eq!(fs::read(&label).unwrap(), newer, "nothing was done to it");
        fs::write(&label, &bytes).unwrap();
    }
    // Nothing of it has stayed.
    let all = cluster.serve(1, &["mgt", "mdt0", "ost0"]);
    all.end();
    cluster.fsck();
}

#[test]
fn a_part_of_the_targets_is_not_called_damaged() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::new(BINARY, "part");
    let (mds, oss) = cluster.start();
    oss.end();
    mds.end();
    let check = |folders: &[&str]| {
        let folders = folders.iter().map(|folder| cluster.path(folder));
        let output = Command::new(BINARY).arg("fsck").args(folders).output().unwrap();
        (output.status.code(), text(&output))
    };
    let (code, said) = check(&["mgt", "mdt0", "ost0"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("of this file system's targets OST0001 was not named"), "{said}");
    assert!(!said.contains("damage"), "{said}");
    fs::create_dir(cluster.path("empty")).unwrap();
    let (code, said) = check(&["mgt", "mdt0", "ost0", "empty"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("holds no target") && !said.contains("mkfs"), "{said}");
    let (code, said) = check(&["mgt", "mdt0", "ost0", "ost1"]);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn an_index_that_another_has_is_refused_of_each_kind() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "indexes");
    let (mds, oss) = cluster.start();
    for (kind, index, folder, name) in TARGETS {
        // The folder holds it; it is served; and another has its place.
        let said = refused(&mut cluster.mkfs(kind, index, folder));
        assert!(said.contains(&format!("holds {name} of scratch")), "{said}");
        let said = refused(&mut cluster.command(4, &[folder]));
        assert!(said.contains("in use by another server"), "{said}");
        let second = format!("second-{kind}");
        sateen_testkit::cluster::ok(&mut cluster.mkfs(kind, index, &second));
        match kind {
            // One by itself is the MGS of another file system.
            "mgs" => {
                let said = refused_for_good(&mut cluster.command(4, &["mgt", &second]));
                assert!(said.contains("are both MGS"), "{said}");
            }
            _ => {
                let said = refused_for_good(&mut cluster.command(4, &[&second]));
                assert!(said.contains(&format!("{name} is not the target that")), "{said}");
                assert!(said.contains("another --index"), "{said}");
                assert_eq!(said.contains("--replace"), kind == "ost", "{said}");
                fs::remove_dir_all(cluster.path(&second)).unwrap();
            }
        }
    }
    let mkfs = |args: &[&str]| {
        let node = format!("--mgsnode={}", cluster.nid(1));
        let mut mkfs = as_program("mkfs.sateen");
        mkfs.arg("--fsname=scratch").args(args);
        if !args.contains(&"--mgs") {
            mkfs.arg(node);
        }
        refused(mkfs.arg(cluster.path("bad")))
    };
    for (args, says) in [
        (&["--mgs", "--index=1"][..], "there is one MGS"),
        (&["--mdt"], "an MDT needs an index"),
        (&["--mdt", "--index=4294967295"], "is more than an MDT can have"),
        (&["--ost", "--index=4294967295"], "is more than an OST can have"),
    ] {
        let said = mkfs(args);
        assert!(said.contains(says), "{args:?}: {said}");
        assert!(!cluster.path("bad").exists(), "nothing was made");
    }

    // An MGS that another file system has: what belongs to the first is not its.
    mds.end();
    oss.end();
    let stranger = cluster.serve(1, &["second-mgs"]);
    for (folder, name) in [("mdt0", "MDT0000"), ("ost0", "OST0000")] {
        let said = refused_for_good(&mut cluster.command(4, &[folder]));
        let which = format!("{name} of another file system with the name scratch");
        assert!(said.contains(&which), "{said}");
        assert!(said.contains("the MGS that it was first served with"), "{said}");
    }
    stranger.end();
    fs::remove_dir_all(cluster.path("second-mgs")).unwrap();
    let servers = [cluster.serve(1, &["mgt", "mdt0"]), cluster.serve(2, &["ost0", "ost1"])];
    let mnt = cluster.mount("mnt");
    fs::write(mnt.join("file"), b"as before").unwrap();
    cluster.finish(servers);
}

#[test]
fn options_that_nobody_knows_are_named_with_what_to_do() {
    let run = |program: &str, args: &[&str]| {
        let mut command = match program {
            "sateen" => Command::new(BINARY),
            program => as_program(program),
        };
        let output = command.args(args).output().unwrap();
        (output.status.code(), text(&output))
    };
    for (program, args, says) in [
        ("mkfs.sateen", &["--mgs", "--fsname=a", "--frobnicate", "/x"][..], "see mkfs.sateen"),
        ("mkfs.sateen", &["--mgs", "--fsname=a", "--backfstype=zfs", "/x"], "leave it out"),
        ("mkfs.sateen", &["--fsname=a", "/x"], "see mkfs.sateen"),
        ("sateen", &["serve", "--frobnicate", "/x"], "see sateen serve"),
        ("sateen", &["serve"], "see sateen serve"),
        ("sateen", &["serve", "--nid", "10.0.0.1", "/x"], "see sateen serve"),
        ("sateen", &["frobnicate"], "see sateen --help"),
        ("lfs", &["--frobnicate"], "see lfs --help"),
        ("lfs", &["frobnicate"], "see lfs --help"),
        ("lfs", &["setstripe", "--frobnicate", "/x"], "see lfs setstripe"),
        ("lfs", &["setstripe", "-C", "8", "/x"], "leave it out"),
        ("lfs", &["getstripe", "--frobnicate", "/x"], "see lfs getstripe"),
        ("lfs", &["df", "--frobnicate"], "see lfs df"),
        ("lfs", &["osts", "--frobnicate"], "see lfs osts"),
        ("lfs", &["mdts", "--frobnicate"], "see lfs mdts"),
        ("lfs", &["check", "frobnicate"], "see lfs check"),
        ("lfs", &["path2fid", "--frobnicate", "/x"], "see lfs path2fid"),
        ("lfs", &["fid2path", "--frobnicate", "/x"], "see lfs fid2path"),
        ("lctl", &["frobnicate"], "see lctl --help"),
        ("lctl", &["--frobnicate", "dl"], "see lctl --help"),
        ("lctl", &["dl", "--frobnicate"], "see lctl dl"),
        ("lctl", &["get_param", "--frobnicate", "x"], "see lctl get_param"),
        ("lctl", &["set_param", "--frobnicate", "x=1"], "see lctl set_param"),
        ("lctl", &["conf_param", "a.b=1"], "set_param -P"),
        ("lctl", &["ping", "frobnicate"], "see lctl ping"),
        ("lctl", &["pool_new", "a.b"], "no pools"),
        ("lfs", &["migrate", "-c", "2", "/x"], "lfs setstripe"),
        ("lfs", &["getstripe", "--json", "-F", "/x"], "see lfs getstripe"),
        ("lfs", &["getstripe", "--json", "-L", "/x"], "see lfs getstripe"),
        ("lfs", &["getstripe", "--json", "-g", "/x"], "see lfs getstripe"),
        ("lfs", &["getstripe", "--json", "-m", "/x"], "see lfs getstripe"),
        ("lctl", &["get_param", "--json", "-n", "version"], "see lctl get_param"),
        ("lctl", &["get_param", "--json", "-H", "version"], "see lctl get_param"),
        ("lctl", &["set_param", "--json", "-n", "a=1"], "see lctl set_param"),
        ("lctl", &["set_param", "--json", "-P", "-d", "a"], "see lctl set_param"),
    ] {
        let (code, said) = run(program, args);
        assert_eq!(code, Some(2), "{program} {args:?}: {said}");
        let (what, hint) = said.split_once("what to do: ").unwrap_or_else(|| panic!("{said}"));
        assert!(hint.contains(says), "{program} {args:?}: {said}");
        let word = args.iter().find(|word| word.contains("frobnicate"));
        assert!(word.is_none_or(|word| what.contains(word)), "{program} {args:?}: {said}");
        assert!(!said.contains("as a value"), "{said}");
    }
    // Those of a mount come behind -o. mount(8) has other exit codes.
    let (code, said) = run("mount.sateen", &["--frobnicate", "10.0.0.1@tcp:/a", "/mnt"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("what to do: see mount.sateen"), "{said}");
    let (code, said) = run("mount.sateen", &["10.0.0.1@tcp:/a", "/mnt", "-o", "rw,frobnicate"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("\"frobnicate\" is not known") && said.contains("what to do:"), "{said}");
}

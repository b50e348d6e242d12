//! Halves of a file system, and peers that do not answer as they should: what is said, and what
//! works again when the rest comes.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Signal, kill_process};
use sateen_testkit::can_mount;
use sateen_testkit::cluster::{
    Cluster, REFUSED_WITHIN, ok, refused, refused_for_good, run_folder, server_folder, text, until,
};
use sateen_wire::{Header, Kind, Lengths, PROTOCOL_VERSION};

use crate::synced::sent;
use crate::{BINARY, as_program, osts_of};

/// A version of the protocol that nobody speaks here.
pub(crate) const OTHER_VERSION: u16 = PROTOCOL_VERSION + 1;

#[test]
fn a_target_is_not_taken_for_a_data_folder() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::new(BINARY, "target");
    cluster.make(1);
    let mgs = cluster.serve(1, &["mgt"]);
    // Served or not: nothing waits for the server to end, and nobody is told to make one there.
    for target in ["mgt", "ost0"] {
        for what in ["up", "status", "down"] {
            let mut command = Command::new(BINARY);
            let said = refused(command.args([what, "--data"]).arg(cluster.path(target)));
            assert!(said.contains("is one target of a file system"), "{what}: {said}");
            assert!(said.contains("sateen serve"), "{what}: {said}");
        }
    }
    // Nor is either mounted.
    let device = cluster.path("ost0");
    let mut mount = Command::new(BINARY);
    let said = refused(mount.arg("mount").arg(&device).arg(cluster.path("mnt")));
    assert!(said.contains("sateen serve"), "{said}");
    cluster.finish([mgs]);
}

#[test]
fn a_copy_of_what_is_served_is_refused() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "copy");
    cluster.make(1);
    let mut servers = vec![cluster.serve(1, &["mgt", "mdt0", "ost0"])];
    let mnt = cluster.mount("mnt");
    fs::write(mnt.join("file"), "whole").unwrap();
    for target in ["ost0", "mdt0"] {
        let copy = format!("{target}.copy");
        ok(Command::new("cp").arg("-r").arg(cluster.path(target)).arg(cluster.path(&copy)));
        let said = refused_for_good(&mut cluster.command(2, &[&copy]));
        assert!(said.contains(" is served at 127.0.0.1:") && said.contains(&copy), "{said}");
        fs::remove_dir_all(cluster.path(&copy)).unwrap();
    }
    assert_eq!(fs::read(mnt.join("file")).unwrap(), b"whole");
    // Where it was nobody serves it any more: it moves.
    cluster.umount(&mnt);
    servers.pop().unwrap().end();
    servers.push(cluster.serve(1, &["mgt", "mdt0"]));
    servers.push(cluster.serve(2, &["ost0"]));
    let mnt = cluster.mount("mnt");
    assert_eq!(fs::read(mnt.join("file")).unwrap(), b"whole");
    cluster.umount(&mnt);
    cluster.finish(servers);
}

#[test]
fn half_a_file_system_says_what_is_missing() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "half");
    cluster.make(1);
    let mgs = cluster.serve(1, &["mgt"]);
    let said = refused(&mut cluster.mount_command("mnt"));
    assert!(said.contains("has no MDT0000 yet"), "{said}");

    // Names need no OST, and data does.
    let mds = cluster.serve(3, &["mdt0"]);
    let mnt = cluster.mount("mnt");
    fs::create_dir(mnt.join("dir")).unwrap();
    let full = fs::write(mnt.join("dir/before"), b"data").unwrap_err();
    assert_eq!(full.raw_os_error(), Some(28), "{full}");
    // A file without stripes is as long as there are numbers.
    let (hole, most) = (mnt.join("dir/hole"), i64::MAX as u64);
    let mode = Mode::from_raw_mode(0o600);
    mknodat(CWD, &hole, FileType::RegularFile, mode, 0).unwrap();
    let script = "truncate($ARGV[0], $ARGV[1]) or die $!";
    ok(Command::new("perl").args(["-e", script]).arg(&hole).arg(most.to_string()));
    assert_eq!(fs::metadata(&hole).unwrap().len(), most);
    let df = ok(Command::new("df").arg(&mnt));
    assert!(df.contains("scratch"), "{df}");
    let checked = ok(as_program("lfs").args(["check", "mdts"]).arg(&mnt));
    assert!(checked.contains("scratch-MDT0000") && checked.contains("active"), "{checked}");

    let oss = cluster.serve(2, &["ost0"]);
    let path = mnt.join("dir/after");
    until("the OST is used", || fs::write(&path, b"data").is_ok());
    assert_eq!(fs::read(&path).unwrap(), b"data");
    assert_eq!(osts_of(&path), [0]);
    until("what could not be written can be now", || {
        fs::write(mnt.join("dir/before"), b"data").is_ok()
    });
    assert_eq!(fs::read(mnt.join("dir/before")).unwrap(), b"data");
    // It gets them when it is open for writing.
    let file = fs::File::options().write(true).open(&hole).unwrap();
    file.write_all_at(b"data", 1).unwrap();
    file.set_len(6).unwrap();
    assert_eq!(fs::read(&hole).unwrap(), b"\0data\0");
    drop(file);
    cluster.finish([oss, mds, mgs]);
}

#[test]
fn a_server_that_stands_still_is_named() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "still");
    cluster.make(1);
    let servers =
        [cluster.serve(1, &["mgt"]), cluster.serve(3, &["mdt0"]), cluster.serve(2, &["ost0"])];
    cluster.knows_osts("mdt0", 1);
    let as_a_whole = |of: &str| Command::new(BINARY).arg("status").arg(of).output().unwrap();
    for (server, name) in servers.iter().zip(["the MGS", "MDT0000"]) {
        kill_process(server.pid(), Signal::STOP).unwrap();
        let said = refused(&mut cluster.mount_command("mnt"));
        assert!(said.contains(&format!("{name} does not answer")), "{said}");
        let begun = Instant::now();
        let status = as_a_whole(&cluster.source());
        assert!(!status.status.success(), "{}", text(&status));
        // With a moment in which this machine stands still.
        assert!(begun.elapsed() < REFUSED_WITHIN, "{:?}", begun.elapsed());
        kill_process(server.pid(), Signal::CONT).unwrap();
    }
    // Nothing of the tries is left; with `retry` the mount waits for whoever stands still.
    kill_process(servers[0].pid(), Signal::STOP).unwrap();
    let mut waiting = cluster.mount_command("mnt");
    let mut waiting = waiting.args(["-o", "retry=2"]).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(14));
    assert!(waiting.try_wait().unwrap().is_none(), "it is tried again");
    kill_process(servers[0].pid(), Signal::CONT).unwrap();
    cluster.mounts.push(cluster.path("mnt"));
    assert!(waiting.wait().unwrap().success());
    fs::write(cluster.path("mnt/file"), b"file").unwrap();
    let [mgs, mds, oss] = servers;
    cluster.finish([oss, mds, mgs]);
}

#[test]
fn another_version_of_the_protocol_is_named() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::new(BINARY, "version");
    let listener = TcpListener::bind(("127.0.0.1", cluster.port)).unwrap();
    // Nobody waits for it: it ends with the process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || answer_as_another(stream.unwrap()));
        }
    });
    for mut command in [cluster.mount_command("mnt"), {
        let mut ping = as_program("lctl");
        ping.arg("ping").arg(cluster.nid(1));
        ping
    }] {
        let ours = format!(
            "speaks version {OTHER_VERSION} of the protocol, this sateen version {PROTOCOL_VERSION}"
        );
        // Who stands still for some seconds when it is asked is not known to be of another.
        until("the version is named", || {
            let output = command.output().unwrap();
            let said = text(&output);
            println!("{said}");
            assert!(!output.status.success(), "{said}");
            said.contains(&ours)
        });
    }
}

/// Answers every message as a peer of version 9 may: with a header that has its place for ever,
/// and a body of its own.
pub(crate) fn answer_as_another(mut stream: std::net::TcpStream) -> Option<()> {
    loop {
        let mut head = [0; sateen_wire::HEADER_BYTES];
        stream.read_exact(&mut head).ok()?;
        let (_, _, header, lengths) = Header::decode_any(&head).unwrap();
        let rest = usize::from(lengths.extensions) + (lengths.body + lengths.bulk) as usize;
        stream.read_exact(&mut vec![0; rest]).ok()?;
        let lengths = Lengths { extensions: 0, body: 3, bulk: 0, body_crc: 0 };
        let mut answer = header.reply().encode(Kind::Reply, lengths);
        answer[4..6].copy_from_slice(&OTHER_VERSION.to_le_bytes());
        let (fields, crc) = answer.split_last_chunk_mut::<4>().unwrap();
        *crc = sateen_wire::disk::crc32c(fields).to_le_bytes();
        stream.write_all(&answer).ok()?;
        stream.write_all(b"new").ok()?;
    }
}

#[test]
fn parameters_are_listed_and_told_without_values() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "listed");
    let (mds, oss) = cluster.start();
    let mnt = cluster.mount("mnt");
    let folder = run_folder(&mnt);
    let lctl = |args: &[&str]| as_program("lctl").arg("--data").arg(&folder).args(args).output();
    let good = |args: &[&str]| {
        let output = lctl(args).unwrap();
        assert!(output.status.success(), "{}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let one = "osc.*OST0001*.max_rpcs_in_flight";
    let names = good(&["get_param", "-N", one]);
    assert!(names.starts_with("osc.scratch-OST0001-osc-"), "{names}");
    assert!(names.ends_with(".max_rpcs_in_flight\n") && names.lines().count() == 1, "{names}");
    assert_eq!(good(&["get_param", "-N", "-F", one]), names.replace('\n', "=\n"));
    assert_eq!(good(&["get_param", "-N", "-F", "version"]), "version\n");
    let above = good(&["list_param", "-F", "osc"]);
    assert_eq!(above, "osc/\n");
    let below = good(&["list_param", "-R", "-F", "osc"]);
    assert!(below.lines().any(|line| line == names.trim_end().to_owned() + "="), "{below}");
    assert!(below.lines().all(|line| line.starts_with("osc")), "{below}");
    assert!(good(&["get_param", "-n", "mdc.*.import"]).contains("features: 0x3b"));
    let mgs = |args: &[&str]| {
        let folder = server_folder(&cluster.path("mgt"));
        ok(as_program("lctl").arg("--data").arg(folder).args(args))
    };
    let stats = mgs(&["get_param", "-n", "mgs.MGS.stats"]);
    for (name, least) in [("mgs_target_reg", 3), ("mgs_get_info", 2), ("mgs_config_read", 4)] {
        let line = stats.lines().find(|line| line.starts_with(name)).expect(&stats);
        let times: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(times >= least && line.ends_with("samples [reqs]"), "{stats}");
    }
    assert!(mgs(&["get_param", "mgs.MGS.exports.*.stats"]).contains("mgs_config_read"));
    mgs(&["set_param", "mgs.MGS.stats=clear"]);
    assert!(!mgs(&["get_param", "mgs.MGS.stats"]).contains("mgs_target_reg"));

    // What nothing here has is kept, and said.
    let output = lctl(&["set_param", "-P", "osc.*-OST0099*.max_rpcs_in_flight=9"]).unwrap();
    let said = text(&output);
    assert!(output.status.success() && said.contains("no parameter here fits"), "{said}");
    let output = lctl(&["set_param", "-P", &format!("{one}=9")]).unwrap();
    let said = text(&output);
    assert!(output.status.success() && !said.contains("warning"), "{said}");
    cluster.finish([oss, mds]);
}

#[test]
fn what_goes_over_the_wire_is_shown_and_its_size_is_set() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "wire");
    let (mds, oss) = cluster.start();
    let mnt = cluster.mount("mnt");
    let lctl = |args: &[&str]| {
        let mut lctl = as_program("lctl");
        lctl.arg("--data").arg(run_folder(&mnt)).args(args).output().unwrap()
    };
    let get = |name: &str| text(&lctl(&["get_param", "-n", name]));
    assert_eq!(get("osc.*.checksums"), "1\n1\n");
    assert_eq!(get("osc.*.checksum_type"), "[crc32c]\n[crc32c]\n");
    assert_eq!(get("osc.*.max_pages_per_rpc"), "4096\n4096\n");
    for (set, says) in [
        ("osc.*.checksums=0", "'checksums' cannot be set: all that goes over a network has"),
        ("osc.*.max_pages_per_rpc=0", "use 1 to 4096"),
        ("osc.*.max_pages_per_rpc=4097", "use 1 to 4096"),
    ] {
        for how in [&["set_param", set][..], &["set_param", "-P", set]] {
            let refused = lctl(how);
            assert_eq!(refused.status.code(), Some(22), "{set}: {}", text(&refused));
            assert!(text(&refused).contains(says), "{set}: {}", text(&refused));
        }
    }
    // 64 KiB each: one write of the kernel, of 1 MiB, is so many requests.
    assert!(lctl(&["set_param", "-P", "osc.*.max_pages_per_rpc=16"]).status.success());
    assert_eq!(get("osc.*.max_pages_per_rpc"), "16\n16\n");
    let path = mnt.join("file");
    ok(as_program("lfs").args(["setstripe", "-c", "1", "-i", "0"]).arg(&path));
    let content = crate::bytes(1 << 20, 4);
    let stats = || {
        let line = |name: &str| {
            let stats = get("osc.*OST0000*.stats");
            let found = stats.lines().find(|line| line.starts_with(name)).map(str::to_owned);
            let words = found.unwrap_or_default();
            words.split_whitespace().nth(1).map_or(0, |times| times.parse::<u64>().unwrap())
        };
        line("ost_write")
    };
    let before = stats();
    crate::write_durably(&path, &content).unwrap();
    let written = stats();
    // One more if the program's memory begins within a page: then it is two writes.
    assert!((16..=17).contains(&(written - before)), "{before:?}, {written:?}");
    let other = cluster.mount("other");
    assert!(fs::read(other.join("file")).unwrap() == content);
    let pages = ok(as_program("lctl").arg("--data").arg(run_folder(&other)).args([
        "get_param",
        "-n",
        "osc.*.max_pages_per_rpc",
    ]));
    assert_eq!(pages, "16\n16\n", "who comes later has it, too");
    cluster.finish([oss, mds]);
}

#[test]
fn a_mount_waits_for_what_it_is_told_to_wait_for() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "dirsync");
    let (mds, oss) = cluster.start();
    let script = "cd $MNT; mkdir d; mkfifo p; ln -s x s; : >f; ln f l; mv f g; mv g d/g; \
                  rm l s p; rm d/g; rmdir d";
    // Of the names, `mv` between two directories for both. Of the file, a write and a change of the
    // size, of which the OST has nothing new.
    for (option, names, file) in [("rw", 0, [0, 0]), ("dirsync", 13, [0, 0]), ("sync", 13, [2, 1])]
    {
        let mnt = cluster.path(option);
        ok(cluster.mount_command(option).args(["-o", option, "-o", "retry=2"]));
        cluster.mounts.push(mnt.clone());
        ok(Command::new("bash").args(["-euc", script]).env("MNT", &mnt));
        assert_eq!(sent(&mnt, "mdc", "mds_sync"), names, "{option}");
        let mut open = fs::File::create(mnt.join("file")).unwrap();
        let synced = || [sent(&mnt, "mdc", "mds_sync"), sent(&mnt, "osc", "ost_sync")];
        let before = synced();
        open.write_all(b"x").unwrap();
        open.set_len(9).unwrap();
        let after = synced();
        drop(open);
        assert_eq!([0, 1].map(|at| after[at] - before[at]), file, "{option}");
        fs::remove_file(mnt.join("file")).unwrap();
        cluster.umount(&mnt);
    }
    cluster.finish([oss, mds]);
}

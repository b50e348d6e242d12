//! The rows of docs/semantics.md about servers that restart, mounts that are cut off, and calls
//! that were given up: each is as it is written there.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, ok, server_folder, until};

use crate::trips::counted;
use crate::waiting::{call_after, end, go_on, is_waiting, signal, stop};
use crate::{
    BINARY, as_program, bytes, keeps_nothing, with_the_power_gone, write_durably, written_out,
};
use sateen_testkit::network::{Network, has_ip};

/// How long an idle mount may show what it has, with time for a machine that has much to do and
/// stands still for seconds.
const HEARS_WITHIN: Duration = Duration::from_secs(60);
/// The same where it has not: 2 s, and looking again and again. So it is after one of a few
/// restarts at least.
const HEARS_ONCE_WITHIN: Duration = Duration::from_millis(2500);
const RESTARTS_MAX: u32 = 15;

#[test]
fn an_idle_mount_hears_of_the_restart_of_an_mdt() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "row-idle");
    let (mut mds, oss) = cluster.start();
    let (idle, busy) = (cluster.mount("idle"), cluster.mount("busy"));
    let mut passed = Vec::new();
    while !passed.iter().any(|passed| *passed <= HEARS_ONCE_WITHIN) {
        assert!(passed.len() < RESTARTS_MAX as usize, "{passed:?}");
        write_durably(&idle.join("old"), b"content").unwrap();
        File::open(&idle).unwrap().sync_all().unwrap();
        let before = fs::metadata(idle.join("old")).unwrap();
        assert!(!idle.join("new").exists());
        mds.crash();
        mds = cluster.serve(1, &["mgt", "mdt0"]);
        until("the busy one goes on", || fs::write(busy.join("after"), b"after").is_ok());
        // The MDT knows nothing of what the idle one has, and does not ask for it.
        fs::rename(busy.join("old"), busy.join("new")).unwrap();
        fs::set_permissions(busy.join("new"), fs::Permissions::from_mode(0o604)).unwrap();
        let since = Instant::now();
        let now = || fs::metadata(idle.join("new")).ok().filter(|_| !idle.join("old").exists());
        until("the idle one has heard", || now().is_some_and(|meta| meta.mode() & 0o777 == 0o604));
        passed.push(since.elapsed());
        assert!(passed.iter().all(|passed| *passed < HEARS_WITHIN), "{passed:?}");
        assert_eq!(now().unwrap().ino(), before.ino(), "after a restart, too");
        assert_eq!(fs::read(idle.join("new")).unwrap(), b"content");
        fs::remove_file(idle.join("new")).unwrap();
    }
    cluster.finish([oss, mds]);
}

/// The files of objects below a target's folder.
fn objects(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(objects(&path)),
            false => found.push(path),
        }
    }
    found
}

#[test]
fn an_end_that_was_not_synced_may_be_gone_with_its_ost() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "row-end");
    let (mds, oss) = cluster.start();
    let (mnt, other) = (cluster.mount("mnt"), cluster.mount("other"));
    let content = bytes(2 << 20, 21);
    let synced = 1 << 20;
    ok(as_program("lfs").args(["setstripe", "-c", "1"]).arg(mnt.join("file")));
    let file = File::options().write(true).open(mnt.join("file")).unwrap();
    file.write_all_at(&content[..synced], 0).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(&content[synced..], synced as u64).unwrap();
    written_out(&mnt);
    oss.crash();
    // A power cut, which takes what the disk has not got.
    let mut cut = 0;
    for object in
        ["ost0", "ost1"].iter().flat_map(|ost| objects(&cluster.path(ost).join("objects")))
    {
        if fs::metadata(&object).unwrap().len() == content.len() as u64 {
            File::options().write(true).open(object).unwrap().set_len(synced as u64).unwrap();
            cut += 1;
        }
    }
    assert_eq!(cut, 1, "one object has it all");
    with_the_power_gone(&cluster, &["ost0", "ost1"]);
    let oss = cluster.serve(2, &["ost0", "ost1"]);
    let shown = |mount: &Path| {
        let read = fs::read(mount.join("file")).unwrap();
        assert!(read[..synced] == content[..synced], "what was synced is there");
        assert!(read[synced..].iter().all(|byte| *byte == 0), "and nothing else but zeros");
        read.len()
    };
    // Who knows the old size shows that.
    assert_eq!(shown(&mnt), content.len());
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(5), "it is told");
    drop(file);
    // Everybody else does, too, since the close has told the MDT.
    assert_eq!([shown(&mnt), shown(&other)], [content.len(); 2]);
    cluster.finish([oss, mds]);
}

#[test]
fn what_was_given_up_may_be_done_later() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "row-late");
    let (mds, oss) = cluster.start();
    let (mnt, other) = (cluster.mount("mnt"), cluster.mount("other"));
    keeps_nothing(&mnt);
    let path = mnt.join("file");
    let content = bytes(20_000, 31);
    write_durably(&path, &content).unwrap();
    stop(&oss);
    // A write that is given up, and then another by the same program, which waits for its answer.
    let open = "sysopen($f, $ARGV[0], O_RDWR) or die;";
    let given_up = |name: &str| {
        let mark = cluster.path(name);
        let say = format!("symlink('x', '{}') or die", mark.display());
        (say, move || until("the first is given up", || mark.is_symlink()))
    };
    let (say, is_given_up) = given_up("given-up");
    let program = format!(
        "my $n = syswrite($f, 'x' x 5000); defined $n and exit 97; {say}; \
         sysseek($f, 4000, 0); syswrite($f, 'y' x 5000) == 5000 and exit 98; 0"
    );
    let mut child = call_after(open, &program, &path);
    assert!(is_waiting(&mut child), "there is nobody to answer");
    signal(&child, Signal::INT);
    is_given_up();
    assert!(is_waiting(&mut child), "the second waits, too");
    go_on(&oss);
    assert_eq!(end(child, "it ends").code(), Some(98), "the first was given up, the second not");
    // Both mounts see the same, and it stays so: of each byte what was there or was written.
    let now = fs::read(other.join("file")).unwrap();
    assert!(fs::read(&path).unwrap() == now);
    assert_eq!(now.len(), content.len());
    for (at, byte) in now.iter().enumerate() {
        let may = match at {
            0..4000 => [content[at], b'x'],
            4000..5000 => [b'x', b'y'],
            5000..9000 => [b'y', b'y'],
            _ => [content[at], content[at]],
        };
        assert!(may.contains(byte), "{at}: {byte}");
    }
    std::thread::sleep(Duration::from_secs(1));
    assert!(fs::read(&path).unwrap() == now && fs::read(other.join("file")).unwrap() == now);

    // A truncate waits for what was given up before it, so that there is no end of it either.
    stop(&oss);
    let (say, is_given_up) = given_up("given-up-again");
    let program = format!(
        "my $n = syswrite($f, 'z' x 5000); defined $n and exit 97; {say}; \
         truncate($f, 0) and exit 98; 0"
    );
    let mut child = call_after(open, &program, &path);
    assert!(is_waiting(&mut child), "there is nobody to answer");
    signal(&child, Signal::INT);
    is_given_up();
    std::thread::sleep(Duration::from_secs(1));
    go_on(&oss);
    assert_eq!(end(child, "it ends").code(), Some(98));
    let now = fs::read(other.join("file")).unwrap();
    assert!(now.is_empty(), "{} bytes", now.len());
    assert!(fs::read(&path).unwrap() == now);
    cluster.finish([oss, mds]);
}

/// Two networks with a cable between them.
struct Cable {
    servers: Network,
    away: Network,
}

const SERVERS: &str = "10.99.0.1";

impl Cable {
    fn new() -> Cable {
        let (servers, away) = (Network::new(), Network::new());
        let there = away.id().to_string();
        servers
            .ip(&["link", "add", "here", "type", "veth", "peer", "name", "there", "netns", &there]);
        servers.ip(&["addr", "add", &format!("{SERVERS}/24"), "dev", "here"]);
        away.ip(&["addr", "add", "10.99.0.2/24", "dev", "there"]);
        let cable = Cable { servers, away };
        cable.plug(true);
        cable.servers.ip(&["link", "set", "here", "up"]);
        cable
    }

    fn plug(&self, way: bool) {
        self.away.ip(&["link", "set", "there", if way { "up" } else { "down" }]);
    }
}

fn cat(path: &Path) -> Child {
    let mut command = Command::new("cat");
    command.arg(path).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_mount_that_is_cut_off_shows_what_it_has() {
    if !can_mount() || !has_ip() {
        return;
    }
    // A kernel may drop pages at any time. Then nobody has them, and who reads them waits.
    assert!((0..3).any(|_| is_shown_while_cut_off()), "the kernel has dropped it, each time");
}

/// False if it was not there any more when it was looked at.
fn is_shown_while_cut_off() -> bool {
    let mut cluster = Cluster::new(BINARY, "row-cut");
    let cable = Cable::new();
    let nid = format!("{SERVERS}:{}@tcp", cluster.port);
    let mkfs = |args: &[&str], folder: &str| {
        let mut mkfs = as_program("mkfs.sateen");
        ok(mkfs.arg("--fsname=scratch").args(args).arg(cluster.path(folder)));
    };
    let node = format!("--mgsnode={nid}");
    mkfs(&["--mgs"], "mgt");
    mkfs(&["--mdt", "--index=0", &node], "mdt0");
    mkfs(&["--ost", "--index=0", &node], "ost0");
    let mut serve = Command::new(BINARY);
    serve.args(["serve", "--nid", &nid]);
    serve.args(["mgt", "mdt0", "ost0"].map(|folder| cluster.path(folder)));
    let server = cluster.start_as(&mut cable.servers.inside(&serve), 1);
    let mounts = [(&cable.away, "away"), (&cable.servers, "near")].map(|(network, name)| {
        let point = cluster.path(name);
        fs::create_dir(&point).unwrap();
        let mut mount = Command::new(BINARY);
        mount.arg("mount").arg(format!("{nid}:/scratch")).arg(&point);
        ok(&mut network.inside(&mount));
        point
    });
    cluster.mounts.extend(mounts.clone());
    let [away, near] = mounts;
    fs::write(near.join("kept"), b"before").unwrap();
    fs::write(near.join("unknown"), b"unknown").unwrap();
    // The kernel has them closed a moment later; what the others have is not to depend on it.
    let at_mdt = server_folder(&cluster.path("mgt"));
    until("both are closed", || counted(&at_mdt, "mdt.*.md_stats").get("close") == Some(&2));
    let kept = Arc::new(File::open(away.join("kept")).unwrap());
    let before = (6, b"before".to_vec());
    assert_eq!(shown(&kept, &away).unwrap(), before);
    let is_there = || {
        let (kept, away, (tell, told)) = (kept.clone(), away.clone(), channel());
        std::thread::spawn(move || tell.send(shown(&kept, &away)));
        let seen = told.recv_timeout(Duration::from_secs(60));
        seen.map(|seen| assert_eq!(seen.unwrap(), before)).is_ok()
    };

    cable.plug(false);
    // Whoever wants to change it waits until the other is thrown out.
    let (path, begun) = (near.join("kept"), Instant::now());
    let writer = std::thread::spawn(move || {
        let mut file = File::options().write(true).truncate(true).open(path).unwrap();
        file.write_all(b"after").unwrap();
    });
    let mut waits = cat(&away.join("unknown"));
    let mut was_there = true;
    while was_there && !writer.is_finished() {
        was_there = is_there();
        std::thread::sleep(Duration::from_millis(100));
    }
    writer.join().unwrap();
    if !was_there {
        cable.plug(true);
        waits.wait().unwrap();
        return false;
    }
    assert!(begun.elapsed() > Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(fs::read(near.join("kept")).unwrap(), b"after");
    let has_heard_nothing = is_there();
    assert!(waits.try_wait().unwrap().is_none(), "what it has not it waits for");
    cable.plug(true);
    // What was under way may fail, but ends.
    let waited = waits.wait_with_output().unwrap();
    assert!(!waited.status.success() || waited.stdout == b"unknown", "{waited:?}");
    until("it has heard", || kept.read_at(&mut [0; 6], 0).is_err());
    // Whoever looked has let go of it by now.
    until("nobody else has it", || Arc::strong_count(&kept) == 1);
    drop(kept);
    until("what is there is seen", || {
        fs::read(away.join("kept")).is_ok_and(|read| read == b"after")
    });
    assert_eq!(fs::read(away.join("unknown")).unwrap(), b"unknown");
    cluster.finish([server]);
    has_heard_nothing
}

/// From pages and attributes that the kernel has; to open it anew the MDT would be asked.
fn shown(kept: &File, away: &Path) -> io::Result<(u64, Vec<u8>)> {
    let mut read = [0; 6];
    let len = kept.read_at(&mut read, 0)?;
    Ok((fs::metadata(away.join("kept"))?.len(), read[..len].to_vec()))
}

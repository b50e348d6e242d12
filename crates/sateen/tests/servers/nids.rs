//! Servers that are reached by two addresses, of which one stops answering, or never has.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType};
use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, ok, refused, run_folder, text, until};
use sateen_testkit::network::{Network, has_ip};

use crate::{BINARY, as_program, bytes, write_durably};

/// A connection on which nothing is confirmed any more is given up after 40 s.
const SILENCE: Duration = Duration::from_secs(300);
/// The second address of a host.
const OTHER: u8 = 10;

/// The command that serves folders at both addresses.
fn at_both(cluster: &Cluster, host: u8, folders: &[&str]) -> Command {
    let mut command = cluster.command(host, folders);
    command.arg("--nid").arg(cluster.nid(host + OTHER));
    command
}

fn mount(cluster: &mut Cluster, source: &str, name: &str) -> PathBuf {
    let point = cluster.path(name);
    fs::create_dir(&point).unwrap();
    ok(as_program("mount.sateen").arg(source).arg(&point).args(["-o", "retry=2"]));
    cluster.mounts.push(point.clone());
    point
}

#[test]
fn whoever_comes_back_at_one_of_its_addresses_is_found_there() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "nids");
    let mgs = format!("{}:{}", cluster.nid(1), cluster.nid(1 + OTHER));
    ok(&mut cluster.mkfs("mgs", None, "mgt"));
    for (kind, folder) in [("mdt", "mdt0"), ("ost", "ost0")] {
        let mut mkfs = as_program("mkfs.sateen");
        mkfs.arg(format!("--{kind}")).args(["--fsname=scratch", "--index=0"]);
        ok(mkfs.arg(format!("--mgsnode={mgs}")).arg(cluster.path(folder)));
    }
    let mds = cluster.start_as(&mut at_both(&cluster, 1, &["mgt", "mdt0"]), 1);
    let oss = cluster.start_as(&mut at_both(&cluster, 2, &["ost0"]), 2);
    cluster.knows_osts("mgt", 1);
    let source = format!("{mgs}:/scratch");
    let mnt = mount(&mut cluster, &source, "mnt");
    let content = bytes(3 << 20, 4);
    write_durably(&mnt.join("before"), &content).unwrap();

    // The MGS: nobody can tell where it is now. The MDT in the same process: the MGS tells.
    mds.crash();
    let mds = cluster.serve(1 + OTHER, &["mgt", "mdt0"]);
    until("the mount goes on", || write_durably(&mnt.join("during"), &content).is_ok());
    oss.crash();
    let oss = cluster.serve(2 + OTHER, &["ost0"]);
    assert!(fs::read(mnt.join("before")).unwrap() == content);
    // Who stands still for a moment counts as one that does not answer.
    until("status shows both where they are", || {
        let mut status = Command::new(BINARY);
        let output = status.args(["status", "--json"]).arg(&source).output().unwrap();
        println!("{}", text(&output));
        let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let is_right = |(at, host): (usize, u8)| {
            let row = &shown["targets"][at];
            row["nids"] == serde_json::json!([cluster.nid(host + OTHER)]) && row["state"] == "up"
        };
        output.status.success() && [(0, 1), (1, 2)].into_iter().all(is_right)
    });
    let new = mount(&mut cluster, &source, "new");
    assert!(fs::read(new.join("during")).unwrap() == content);
    cluster.finish([oss, mds]);
}

/// An address at which whoever connects hears nothing at all, not even a refusal.
struct Silent {
    _socket: OwnedFd,
    _waiting: Vec<TcpStream>,
}

impl Silent {
    /// Its queue of connections is full, and so the kernel lets each new one fall.
    fn at(address: SocketAddr) -> Silent {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&socket, &address).unwrap();
        rustix::net::listen(&socket, 0).unwrap();
        let mut waiting = Vec::new();
        let soon = Duration::from_millis(300);
        while let Ok(stream) = TcpStream::connect_timeout(&address, soon) {
            waiting.push(stream);
            assert!(waiting.len() < 10, "{address} has room for everybody");
        }
        Silent { _socket: socket, _waiting: waiting }
    }
}

#[test]
fn the_mgs_is_found_behind_addresses_where_it_is_not() {
    // Some 5 s where nothing else is to be done, and much less than until a dead connection is.
    const SECONDS_MAX: u64 = 60;
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "elsewhere");
    let _silent = Silent::at(format!("127.0.0.9:{}", cluster.port).parse().unwrap());
    // Its kernel takes connections, and nobody reads from them.
    let _deaf = TcpListener::bind(("127.0.0.8", cluster.port)).unwrap();
    let (mds, oss) = cluster.start();
    // A server of ours, but without the MGS.
    let wrong = [9, 8, 2].map(|host| cluster.nid(host)).join(":");
    let begun = Instant::now();
    let source = format!("{wrong}:{}", cluster.source());
    let mnt = mount(&mut cluster, &source, "mnt");
    assert!(begun.elapsed() < Duration::from_secs(SECONDS_MAX), "{:?}", begun.elapsed());
    fs::write(mnt.join("file"), b"file").unwrap();
    // A target whose MGS may be at any of them, too.
    let node = format!("--mgsnode={wrong}:{}", cluster.nid(1));
    let mut mkfs = as_program("mkfs.sateen");
    ok(mkfs.args(["--ost", "--fsname=scratch", "--index=2", &node]).arg(cluster.path("ost2")));
    let new = cluster.serve(3, &["ost2"]);
    let osts = || ok(as_program("lfs").arg("osts").arg(&mnt));
    until("the mount hears of it", || osts().contains("OST0002"));
    // Nodes may have an option each, and names: one that nobody has is not waited for.
    let mut mkfs = as_program("mkfs.sateen");
    mkfs.args(["--ost", "--fsname=scratch", "--index=3"]).arg(format!("--mgsnode={wrong}"));
    let local = format!("localhost:{}@tcp", cluster.port);
    ok(mkfs.arg(format!("--mgsnode={local}")).arg(cluster.path("ost3")));
    let unknown = format!("no-such-host.invalid@tcp:{}", cluster.source());
    let said = refused(as_program("mount.sateen").arg(unknown).arg(cluster.path("mnt")));
    assert!(said.contains("no-such-host.invalid is not known"), "{said}");
    // And where it is at none of them, that is said of each.
    fs::create_dir(cluster.path("nowhere")).unwrap();
    let mut nowhere = as_program("mount.sateen");
    let said = refused(nowhere.arg(format!("{wrong}:/scratch")).arg(cluster.path("nowhere")));
    assert!(said.contains("the MGS does not answer"), "{said}");
    for host in [9, 8, 2] {
        assert!(said.contains(&cluster.nid(host)), "{said}");
    }
    cluster.finish([new, oss, mds]);
}

/// Writes files into a folder, one after the other, until it is told to stop.
struct Writer {
    thread: std::thread::JoinHandle<()>,
    written: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Writer {
    fn start(folder: &Path, content: Vec<u8>) -> Writer {
        let (written, stop) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (count, told, folder) = (written.clone(), stop.clone(), folder.to_owned());
        let thread = std::thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                let number = count.load(Ordering::Relaxed) % 20;
                write_durably(&folder.join(format!("file{number}")), &content).unwrap();
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Writer { thread, written, stop }
    }

    fn goes_on(&self) {
        let before = self.written.load(Ordering::Relaxed);
        let begun = Instant::now();
        while self.written.load(Ordering::Relaxed) <= before + 3 {
            assert!(begun.elapsed() < SILENCE, "the writer goes on");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

#[test]
fn an_address_that_vanishes_is_gone_around() {
    if !can_mount() || !has_ip() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "vanish");
    let network = Network::new();
    cluster.make(1);
    let mds = network.inside(&cluster.command(1, &["mgt", "mdt0"]));
    let mds = cluster.start_as(&mut { mds }, 1);
    let oss = network.inside(&at_both(&cluster, 2, &["ost0"]));
    let oss = cluster.start_as(&mut { oss }, 2);
    cluster.knows_osts("mgt", 1);
    let mnt = cluster.path("mnt");
    fs::create_dir(&mnt).unwrap();
    let mut mount = Command::new(BINARY);
    mount.arg("mount").args(["-o", "retry=2"]).arg(cluster.source()).arg(&mnt);
    ok(&mut network.inside(&mount));
    cluster.mounts.push(mnt.clone());

    let content = bytes(1 << 20, 8);
    let writer = Writer::start(&mnt, content.clone());
    writer.goes_on();
    // Nothing gets there any more, also on connections that are open. No server is told.
    network.ip(&["route", "add", "unreachable", "127.0.0.2/32", "table", "local"]);
    let silent = network.inside(Command::new(BINARY).args(["lctl", "ping", &cluster.nid(2)]));
    assert!(!{ silent }.output().unwrap().status.success(), "the address is gone");
    writer.goes_on();
    writer.end();
    until("it is connected", || {
        let mut lctl = as_program("lctl");
        lctl.arg("--data").arg(run_folder(&mnt)).args(["get_param", "-n", "osc.*.import"]);
        ok(&mut lctl).contains("state: FULL")
    });
    assert!(fs::read(mnt.join("file0")).unwrap() == content);
    cluster.finish([oss, mds]);
}

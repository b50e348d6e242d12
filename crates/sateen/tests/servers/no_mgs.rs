//! Servers that look for their MGS where something else is: they say so within seconds, do no
//! harm, wait, and serve when it is there; and whoever has started them can end them meanwhile.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, Server, ok, server_folder, until};
use sateen_wire::PROTOCOL_VERSION;

use crate::refusals::{OTHER_VERSION, answer_as_another};
use crate::{BINARY, as_program};

/// What it says first, of which there may be more later.
const WAITS: &str = "the MGS does not answer, waiting for it";

/// It says so within seconds, and again after a minute: then also why, if whoever it asked for that
/// stood still the first time.
const SAYS_WITHIN: Duration = Duration::from_secs(90);

/// Listens at an address, and answers as a web server does whatever it is told.
const WEB_SERVER: &str = r#"
use IO::Socket::INET;
my $all = IO::Socket::INET->new(LocalAddr => $ARGV[0], LocalPort => $ARGV[1], Listen => 50,
    ReuseAddr => 1) or die "listen: $!";
$| = 1; print "listens\n";
while (my $one = $all->accept) { sysread($one, my $b, 9); print $one "HTTP/1.1 400 No\r\n\r\n" }
"#;

fn web_server(host: &str, port: u16) -> Child {
    let mut perl = Command::new("perl");
    let perl = perl.args(["-e", WEB_SERVER, host, &port.to_string()]).stdout(Stdio::piped());
    let mut child = perl.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "listens\n");
    child
}

/// Waits until the server with this number has said something more; how long that took.
fn says(cluster: &Cluster, host: u8, before: usize, what: &str) {
    let begun = Instant::now();
    let log = || fs::read_to_string(cluster.path(&format!("log{host}"))).unwrap();
    while !log()[before..].contains(what) {
        let (log, passed) = (log(), begun.elapsed());
        assert!(passed < SAYS_WITHIN, "it does not say {what:?}: {}", &log[before..]);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Starts an OST's server, which must say why it waits for its MGS.
fn waits(cluster: &Cluster, host: u8, folder: &str, why: &str) -> Server {
    let log = cluster.path(&format!("log{host}"));
    let before = fs::metadata(log).map_or(0, |meta| meta.len() as usize);
    let server = cluster.begin(host, &[folder]);
    says(cluster, host, before, WAITS);
    says(cluster, host, before, why);
    server
}

#[test]
fn a_server_waits_for_an_mgs_that_is_something_else() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "no-mgs");
    cluster.make(2);
    // A web server, and a server of ours that serves something else.
    let mut web = web_server("127.0.0.1", cluster.port);
    let other = format!("{} takes connections, but does not answer as an MGS", cluster.nid(1));
    let mut first = waits(&cluster, 2, "ost0", &other);
    let second = waits(&cluster, 3, "ost1", &other);
    // It is told to end, and starts again where the other one waits.
    second.end();
    let mut mkfs = as_program("mkfs.sateen");
    mkfs.args(["--ost", "--fsname=scratch", "--index=7"]);
    let node = format!("--mgsnode={}", cluster.nid(2));
    ok(mkfs.arg(node).arg(cluster.path("ost7")));
    let why = format!("{} takes connections, but does not answer as an MGS", cluster.nid(2));
    let astray = waits(&cluster, 4, "ost7", &why);
    web.kill().unwrap();
    web.wait().unwrap();

    // Now the MGS is where it is looked for. The third looks where a server is that is none.
    let mds = cluster.serve(1, &["mgt", "mdt0"]);
    cluster.wait_ready(&mut first);
    let second = cluster.serve(3, &["ost1"]);
    cluster.knows_osts("mgt", 2);
    let mnt = cluster.mount("mnt");
    let content = crate::bytes(3 << 20, 8);
    fs::write(mnt.join("file"), &content).unwrap();
    assert!(fs::read(mnt.join("file")).unwrap() == content);
    let osts = ok(as_program("lfs").arg("osts").arg(&mnt));
    assert!(osts.contains("OST0001") && !osts.contains("OST0007"), "{osts}");
    astray.end();
    fs::remove_dir_all(cluster.path("ost7")).unwrap();
    cluster.finish([second, first, mds]);
}

#[test]
fn a_server_waits_for_an_mgs_of_another_version() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::new(BINARY, "mgs-version");
    cluster.make(1);
    let listener = TcpListener::bind(("127.0.0.1", cluster.port)).unwrap();
    // Nobody waits for it: it ends with the process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || answer_as_another(stream.unwrap()));
        }
    });
    let why = format!(
        "speaks version {OTHER_VERSION} of the protocol, this sateen version {PROTOCOL_VERSION}"
    );
    let server = waits(&cluster, 2, "ost0", &why);
    server.end();
}

#[test]
fn an_mgs_of_another_file_system_is_not_believed() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "mgs-foreign");
    cluster.make(1);
    let mgs = cluster.serve(1, &["mgt"]);
    let (mds, oss) = (cluster.serve(4, &["mdt0"]), cluster.serve(2, &["ost0"]));
    cluster.knows_osts("mdt0", 1);
    let mnt = cluster.mount("mnt");
    fs::write(mnt.join("before"), b"before").unwrap();
    // While they run, its address gets another owner, whose file system has the same name.
    mgs.end();
    ok(&mut cluster.mkfs("mgs", None, "newmgt"));
    let foreign = cluster.serve(1, &["newmgt"]);
    fs::write(mnt.join("during"), b"during").unwrap();
    assert_eq!(fs::read(mnt.join("before")).unwrap(), b"before");
    let lctl = |folder: &str, args: &[&str]| {
        let folder = server_folder(&cluster.path(folder));
        ok(as_program("lctl").arg("--data").arg(folder).args(args))
    };
    let timeout = || lctl("mdt0", &["get_param", "-n", "mdt.*.ldlm_timeout"]);
    let set = |mgs: &str, value: u32| {
        lctl(mgs, &["set_param", "-P", &format!("mdt.*.ldlm_timeout={value}")]);
    };
    let before = timeout();
    set("newmgt", 9);
    // Longer than it takes to be heard of.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(timeout(), before, "nothing that it says is believed");
    let heard = lctl("newmgt", &["get_param", "-n", "mgs.MGS.stats"]);
    assert!(!heard.contains("mgs_target_reg"), "and nothing is told to it: {heard}");
    foreign.end();
    let mgs = cluster.serve(1, &["mgt"]);
    set("mgt", 7);
    until("its own is believed", || timeout() == "7\n");
    cluster.umount(&mnt);
    for server in [oss, mds, mgs] {
        server.end();
    }
    fs::remove_dir_all(cluster.path("newmgt")).unwrap();
    cluster.fsck();
}

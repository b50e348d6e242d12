//! Servers that are started before their MGS, or where something else is in its place: what they
//! say, to people and to the service manager, and that they go on when it is there.

use std::fs::{self, File};
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, PATIENCE, Server, ok, until};

use crate::refusals::answer_as_another;
use crate::{BINARY, leave_port};

/// A server says within seconds what is in the place of its MGS, and again after a minute: then
/// also if that stood still the first time.
const NAMED_WITHIN: Duration = Duration::from_secs(90);

/// A service manager that hears what one process tells it.
struct Manager(UnixDatagram);

impl Manager {
    /// Hears what the process of this command will tell.
    fn of(cluster: &Cluster, command: &mut Command) -> Manager {
        let socket = cluster.path("notify");
        // Of the process before, if there was one.
        let _ = fs::remove_file(&socket);
        let manager = UnixDatagram::bind(&socket).unwrap();
        command.env("NOTIFY_SOCKET", &socket);
        Manager(manager)
    }

    /// What it is told next, if it is told something for so long.
    fn next(&self, patience: Duration) -> Option<String> {
        self.0.set_read_timeout(Some(patience)).unwrap();
        let mut told = [0; 4096];
        let len = self.0.recv(&mut told).ok()?;
        Some(String::from_utf8(told[..len].to_vec()).unwrap())
    }

    /// What it is told until that is this.
    fn until(&self, wanted: impl Fn(&str) -> bool) -> Vec<String> {
        let mut all = Vec::new();
        while !all.last().is_some_and(|told: &String| wanted(told)) {
            all.push(self.next(PATIENCE).unwrap_or_else(|| panic!("it was told {all:?}")));
        }
        all
    }
}

/// Starts a server of the OST at the second address, whose log is `log2`.
fn start(cluster: &Cluster) -> (Server, Manager) {
    let mut command = cluster.command(2, &["ost0"]);
    let manager = Manager::of(cluster, &mut command);
    let log = File::create(cluster.path("log2")).unwrap();
    let child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
    (Server::of(child), manager)
}

#[test]
fn servers_start_in_any_order_and_say_when_they_are_ready() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::new(BINARY, "order");
    ok(&mut cluster.mkfs("mgs", None, "mgt"));
    ok(&mut cluster.mkfs("mdt", Some(0), "mdt0"));
    ok(&mut cluster.mkfs("ost", Some(0), "ost0"));
    let (mut oss, manager) = start(&cluster);
    let mut mdt = cluster.begin(3, &["mdt0"]);
    let told = manager.until(|told| told.contains("the MGS does not answer, waiting"));
    assert_eq!(told[0], "STATUS=starting OST0000 of scratch");
    assert!(told[1].starts_with(&told[0]) && told[1].contains(&cluster.nid(1)), "{told:?}");
    assert_eq!(manager.next(Duration::from_millis(1500)), None, "it is not ready without its MGS");
    let said = || fs::read_to_string(cluster.path("log2")).unwrap();
    assert!(said().contains("the MGS does not answer"), "{}", said());

    let mgs = cluster.serve(1, &["mgt"]);
    cluster.wait_ready(&mut oss);
    cluster.wait_ready(&mut mdt);
    let told = manager.until(|told| told == "READY=1");
    assert!(!told.iter().any(|told| told.contains("waiting")), "{told:?}");
    assert_eq!(told[told.len() - 2], "STATUS=serving OST0000 of scratch");
    // Later, too, the service manager can say what is missing.
    mgs.end();
    let told = manager.until(|told| told.contains("the MGS does not answer, waiting"));
    assert!(told[0].starts_with("STATUS=serving OST0000 of scratch; "), "{told:?}");
    let mgs = cluster.serve(1, &["mgt"]);
    manager.until(|told| told == "STATUS=serving OST0000 of scratch");
    oss.end();
    manager.until(|told| told == "STOPPING=1");

    // Who waits can be told to end.
    mgs.end();
    mdt.end();
    let (waiting, _manager) = start(&cluster);
    until("it waits", || said().contains("the MGS does not answer"));
    waiting.end();
}

#[test]
fn a_server_says_what_is_in_the_place_of_its_mgs() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "inplace");
    cluster.make(2);
    // What is there ends with this process, or when nobody takes its connections any more.
    let listen = |answer: fn(std::net::TcpStream)| {
        let listener = TcpListener::bind(("127.0.0.1", cluster.port)).unwrap();
        std::thread::spawn(move || {
            // The last connection is the one that tells it to end.
            for stream in listener.incoming().map(Result::unwrap) {
                let mut first = [0];
                if stream.peek(&mut first).is_ok_and(|len| len == 1 && first == *b"!") {
                    leave_port(&listener);
                    return;
                }
                std::thread::spawn(move || answer(stream));
            }
        })
    };
    let end = |thread: std::thread::JoinHandle<()>| {
        use std::io::Write;
        let mut last = std::net::TcpStream::connect(("127.0.0.1", cluster.port)).unwrap();
        last.write_all(b"!").unwrap();
        thread.join().unwrap();
    };
    let is_named = |says: &str| {
        let begun = Instant::now();
        let (server, manager) = start(&cluster);
        let complains = |told: &str| told.contains("the MGS does not answer");
        let told = manager.until(|told| complains(told) && told.contains(says));
        assert!(begun.elapsed() < NAMED_WITHIN, "{:?}", begun.elapsed());
        let log = fs::read_to_string(cluster.path("log2")).unwrap();
        assert!(log.contains(says), "{told:?}\n{log}");
        assert!(log.contains("see whether its server runs"), "{log}");
        server
    };
    // A server of something else.
    let other = listen(|mut stream| drop(stream.read_to_end(&mut Vec::new())));
    is_named("does not answer as an MGS").end();
    end(other);
    // One of a later version.
    let later = listen(|stream| {
        answer_as_another(stream);
    });
    is_named(&format!("speaks version {} of the protocol", sateen_wire::PROTOCOL_VERSION + 1))
        .end();
    end(later);
    // One of ours without the MGS; that comes to the address afterwards, and all is well.
    let wrong = cluster.begin(1, &["ost1"]);
    until("it listens", || std::net::TcpStream::connect(("127.0.0.1", cluster.port)).is_ok());
    let mut oss = is_named("does not answer as an MGS");
    wrong.end();
    let mds = cluster.serve(1, &["mgt", "mdt0"]);
    cluster.wait_ready(&mut oss);
    cluster.knows_osts("mgt", 1);
    let mnt = cluster.mount("mnt");
    fs::write(mnt.join("file"), b"file").unwrap();
    cluster.finish([oss, mds]);
}

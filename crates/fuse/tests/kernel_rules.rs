//! What this kernel does with its caches, asked one question at a time.
//!
//! What Sateen's rules for coherence rely on is asserted; what the rules merely
//! avoid is printed, since a later kernel may do better. Needs root and /dev/fuse.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub,
    reason = "test helpers"
)]
#![allow(unsafe_code, reason = "a mapping of a file")]
#[path = "common/patience.rs"]
mod patience;
#[path = "kernel_rules/probe.rs"]
mod probe;
#[path = "common/transport.rs"]
mod transport;

use patience::{Clock, comes};
use probe::{Choices, Mounted};
use sateen_fuse::{ROOT_INO, TransportChoice, open_flags};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Long enough to say that a call waits.
const A_WHILE: Duration = Duration::from_millis(100);

fn new(name: &str) -> Mounted {
    Mounted::new(name, Choices { open_flags: open_flags::KEEP_CACHE, ..Choices::default() })
}

fn has_epoch(mounted: &Mounted) -> bool {
    let has = mounted.session.as_ref().unwrap().offer().has_inc_epoch();
    let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(has || !ci, "CI needs a kernel with FUSE_NOTIFY_INC_EPOCH (7.44)");
    has
}

#[test]
fn lookup_in_flight_is_stale_after_inc_epoch() {
    let m = new("epoch");
    if !has_epoch(&m) {
        return sateen_testkit::skipped("this kernel has no FUSE_NOTIFY_INC_EPOCH");
    }
    let path = m.dir.join("file");
    fs::metadata(&path).unwrap();
    fs::metadata(&path).unwrap();
    assert_eq!(m.probe.count("lookup"), 1, "the name is cached");
    m.notifier().inc_epoch().unwrap();
    m.probe.hold(&["lookup"]);
    let stat = m.spawn("file", |path| fs::metadata(path).unwrap());
    m.probe.wait_held("lookup");
    m.notifier().inc_epoch().unwrap();
    m.probe.answer_all();
    stat.join().unwrap();
    assert_eq!(m.probe.count("lookup"), 2);
    fs::metadata(&path).unwrap();
    assert_eq!(m.probe.count("lookup"), 3, "the answer in flight was not believed");
    fs::metadata(&path).unwrap();
    assert_eq!(m.probe.count("lookup"), 3, "a later one is");
}

#[test]
fn mkdir_in_flight_is_stale_after_inc_epoch() {
    let m = new("epoch-mkdir");
    if !has_epoch(&m) {
        return sateen_testkit::skipped("this kernel has no FUSE_NOTIFY_INC_EPOCH");
    }
    m.probe.hold(&["mkdir"]);
    let mkdir = m.spawn("made", |path| fs::create_dir(path).unwrap());
    m.probe.wait_held("mkdir");
    m.notifier().inc_epoch().unwrap();
    m.probe.answer_all();
    mkdir.join().unwrap();
    let before = m.probe.count("lookup");
    fs::metadata(m.dir.join("made")).unwrap();
    assert_eq!(m.probe.count("lookup"), before + 1, "the answer in flight was not believed");
}

#[test]
fn readdirplus_must_not_make_names_valid() {
    for valid in [Duration::ZERO, probe::LONG] {
        let choices = Choices { readdirplus: true, entry_valid_plus: valid, ..Choices::default() };
        let m = Mounted::new(&format!("plus{}", valid.as_secs()), choices);
        if !has_epoch(&m) {
            return sateen_testkit::skipped("this kernel has no FUSE_NOTIFY_INC_EPOCH");
        }
        m.probe.hold(&["readdirplus"]);
        let list = m.spawn("", |path| fs::read_dir(path).unwrap().count());
        m.probe.wait_held("readdirplus");
        m.notifier().inc_epoch().unwrap();
        m.probe.answer_all();
        assert!(list.join().unwrap() > 0);
        let before = m.probe.count("lookup");
        fs::metadata(m.dir.join("file")).unwrap();
        let asked = m.probe.count("lookup") > before;
        println!("READDIRPLUS in flight at inc_epoch, names valid {valid:?}: asked again {asked}");
        assert!(asked || !valid.is_zero());
    }
}

#[test]
fn attributes_in_flight_are_ignored_after_inval_inode() {
    let m = new("attr");
    let file = File::open(m.dir.join("file")).unwrap();
    m.notifier().inval_inode(2, -1, 0).unwrap();
    m.probe.hold(&["getattr"]);
    let again = file.try_clone().unwrap();
    let stat = m.spawn("", move |_| again.metadata().unwrap());
    m.probe.wait_held("getattr");
    assert!(m.notifier().inval_inode(2, -1, 0).unwrap());
    m.probe.answer_all();
    stat.join().unwrap();
    let before = m.probe.count("getattr");
    file.metadata().unwrap();
    assert_eq!(m.probe.count("getattr"), before + 1, "the answer in flight was not believed");
    file.metadata().unwrap();
    assert_eq!(m.probe.count("getattr"), before + 1, "a later one is");
}

#[test]
fn setattr_in_flight() {
    let m = new("setattr");
    let file = File::open(m.dir.join("file")).unwrap();
    m.probe.hold(&["setattr"]);
    let again = file.try_clone().unwrap();
    let chmod = m.spawn("", move |_| again.set_permissions(fs::Permissions::from_mode(0o600)));
    m.probe.wait_held("setattr");
    m.notifier().inval_inode(2, -1, 0).unwrap();
    m.probe.answer_all();
    chmod.join().unwrap().unwrap();
    let before = m.probe.count("getattr");
    file.metadata().unwrap();
    let asked = m.probe.count("getattr") > before;
    println!("SETATTR in flight at inval_inode, attributes valid: asked again {asked}");
    m.notifier().inval_inode(2, -1, 0).unwrap();
    let before = m.probe.count("getattr");
    file.metadata().unwrap();
    assert_eq!(m.probe.count("getattr"), before + 1);
}

/// An inode that an answer in flight introduces cannot be invalidated yet, and
/// its attributes are believed; the invalidation has to be repeated.
#[test]
fn a_new_inode_in_flight_is_found_later() {
    let m = new("new");
    m.probe.hold(&["lookup"]);
    let open = m.spawn("file", |path| File::open(path).unwrap());
    m.probe.wait_held("lookup");
    assert!(!m.notifier().inval_inode(2, -1, 0).unwrap(), "unknown as yet");
    m.probe.answer_all();
    let file = open.join().unwrap();
    let before = m.probe.count("getattr");
    file.metadata().unwrap();
    let asked = m.probe.count("getattr") > before;
    println!("LOOKUP of a new inode in flight at inval_inode: asked again {asked}");
    assert!(m.notifier().inval_inode(2, -1, 0).unwrap(), "known now");
    let before = m.probe.count("getattr");
    file.metadata().unwrap();
    assert_eq!(m.probe.count("getattr"), before + 1);
}

#[test]
fn directories_need_inval_inode_too() {
    let m = new("dirs");
    if !has_epoch(&m) {
        return sateen_testkit::skipped("this kernel has no FUSE_NOTIFY_INC_EPOCH");
    }
    let dir = File::open(m.dir.join("dir")).unwrap();
    dir.metadata().unwrap();
    let asks = |file: &File| {
        let before = m.probe.count("getattr") + m.probe.count("lookup");
        file.metadata().unwrap();
        m.probe.count("getattr") + m.probe.count("lookup") > before
    };
    assert!(!asks(&dir), "cached");
    m.notifier().inc_epoch().unwrap();
    println!("fstat of a directory asks again after inc_epoch: {}", asks(&dir));
    m.notifier().inval_inode(3, -1, 0).unwrap();
    assert!(asks(&dir), "asked again after inval_inode");
    fs::metadata(&m.dir).unwrap();
    m.notifier().inc_epoch().unwrap();
    let before = m.probe.count("getattr");
    fs::metadata(&m.dir).unwrap();
    println!("stat of the root asks again after inc_epoch: {}", m.probe.count("getattr") > before);
    m.notifier().inval_inode(ROOT_INO, -1, 0).unwrap();
    let before = m.probe.count("getattr");
    fs::metadata(&m.dir).unwrap();
    assert_eq!(m.probe.count("getattr"), before + 1);
}

#[test]
fn the_listing_cache_of_the_kernel() {
    let dir_flags = open_flags::CACHE_DIR | open_flags::KEEP_CACHE;
    let m = Mounted::new("listing", Choices { dir_flags, ..Choices::default() });
    let list = || fs::read_dir(&m.dir).unwrap().count();
    let asks = || {
        let before = m.probe.count("readdir");
        list();
        m.probe.count("readdir") > before
    };
    list();
    assert!(!asks(), "cached");
    if has_epoch(&m) {
        m.notifier().inc_epoch().unwrap();
    }
    println!("a cached listing is read again after inc_epoch: {}", asks());
    m.notifier().inval_inode(ROOT_INO, -1, 0).unwrap();
    println!("... after inval_inode of the attributes: {}", asks());
    m.notifier().inval_inode(ROOT_INO, 0, 0).unwrap();
    assert!(asks(), "... after inval_inode of the pages");
    m.notifier().inval_inode(ROOT_INO, 0, 0).unwrap();
    m.probe.hold(&["readdir"]);
    let listing = m.spawn("", |path| fs::read_dir(path).unwrap().count());
    m.probe.wait_held("readdir");
    m.notifier().inval_inode(ROOT_INO, 0, 0).unwrap();
    m.probe.answer_all();
    listing.join().unwrap();
    println!("... READDIR in flight at inval_inode of the pages: {}", asks());
}

fn map(file: &File) -> *const u8 {
    let (read, shared) = (libc::PROT_READ, libc::MAP_SHARED);
    let none = std::ptr::null_mut();
    // SAFETY: a new mapping at an address the kernel chooses.
    let at = unsafe { libc::mmap(none, 4096, read, shared, file.as_raw_fd(), 0) };
    assert!(at != libc::MAP_FAILED);
    at.cast_const().cast()
}

/// What O_DIRECT reads into.
#[repr(align(4096))]
struct Page([u8; 4096]);

/// The first byte, by another call than `pread`.
fn first_byte_by_readv(file: &File) -> u8 {
    let mut page = Page([0; 4096]);
    let into = libc::iovec { iov_base: page.0.as_mut_ptr().cast(), iov_len: page.0.len() };
    // SAFETY: one buffer, as long as is said.
    let read = unsafe { libc::preadv(file.as_raw_fd(), &raw const into, 1, 0) };
    assert_eq!(read, 4096);
    page.0[0]
}

fn first_byte(file: &File) -> u8 {
    let mut byte = [0];
    file.read_exact_at(&mut byte, 0).unwrap();
    byte[0]
}

/// A writer open for direct I/O beside readers of the page cache.
#[test]
fn direct_writes_beside_cached_reads() {
    let marked_flags = open_flags::DIRECT_IO | open_flags::PARALLEL_DIRECT_WRITES;
    let choices =
        Choices { open_flags: open_flags::KEEP_CACHE, marked_flags, ..Choices::default() };
    let m = Mounted::new("direct", choices);
    m.probe.set_data(2, &[1; 4096]);
    let reader = File::open(m.dir.join("file")).unwrap();
    let mut options = OpenOptions::new();
    let writer = options.write(true).custom_flags(libc::O_DSYNC).open(m.dir.join("file")).unwrap();
    let mapped = map(&reader);
    // SAFETY: within the mapping of a file of that length.
    let mapped_byte = || unsafe { mapped.read_volatile() };
    assert_eq!((first_byte(&reader), mapped_byte()), (1, 1));
    let reads = m.probe.count("read");
    assert_eq!((first_byte(&reader), m.probe.count("read")), (1, reads), "cached");

    writer.write_all_at(&[2; 4096], 0).unwrap();
    assert_eq!((first_byte(&reader), mapped_byte()), (2, 2), "seen at once");

    // While the WRITE is in flight, a reader brings the old page back.
    m.probe.hold(&["write"]);
    let write = m.spawn("", move |_| {
        writer.write_all_at(&[3; 4096], 0).unwrap();
        writer
    });
    m.probe.wait_held("write");
    let during = (first_byte(&reader), mapped_byte());
    let (start, n) = (Instant::now(), m.notifier());
    ends(move || n.inval_inode(2, 0, 0), "inval_inode beside a direct WRITE");
    let inval = start.elapsed();
    assert_eq!((first_byte(&reader), mapped_byte()), (2, 2), "not written yet");
    m.probe.answer_all();
    let _writer = write.join().unwrap();
    println!(
        "direct WRITE in flight: readers saw {during:?}, inval_inode took {inval:?}; after it {:?}",
        (first_byte(&reader), mapped_byte())
    );
    m.notifier().inval_inode(2, 0, 0).unwrap();
    assert_eq!((first_byte(&reader), mapped_byte()), (3, 3));
}

/// What fills a program's buffer comes with an owner, and what fills pages does not, also through one
/// descriptor: only of the first is nothing kept.
#[test]
fn reads_past_the_page_cache_have_an_owner() {
    for (flags, open_flags, past) in [
        (0, open_flags::KEEP_CACHE, 0),
        (libc::O_DIRECT, open_flags::KEEP_CACHE, 1),
        (0, open_flags::DIRECT_IO | open_flags::PARALLEL_DIRECT_WRITES, 1),
    ] {
        let m = Mounted::new("owners", Choices { open_flags, ..Choices::default() });
        m.probe.set_data(2, &[1; 8192]);
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(flags);
        let file = options.open(m.dir.join("file")).unwrap();
        let counts = || (m.probe.count("read"), m.probe.owned_reads());
        let mapped = map(&file);
        // SAFETY: within the mapping of a file of that length.
        assert_eq!(unsafe { mapped.read_volatile() }, 1);
        let (reads, owned) = counts();
        assert!(reads > 0 && owned == 0, "{reads} READs of a mapping, {owned} with an owner");
        // Behind what the mapping has.
        m.notifier().inval_inode(2, 0, 0).unwrap();
        let mut page = Page([0; 4096]);
        file.read_exact_at(&mut page.0, 0).unwrap();
        let (after, owned) = counts();
        assert_eq!((page.0[0], after > reads, owned), (1, true, past), "{flags:x} {open_flags:x}");
        assert_eq!(first_byte_by_readv(&file), 1);
        assert_eq!(counts().1, 2 * past);
    }
}

#[test]
fn appends_show_in_the_flags() {
    let choices = Choices { open_flags: open_flags::DIRECT_IO, ..Choices::default() };
    let m = Mounted::new("append", choices);
    let path = m.dir.join("file");
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    // Another client made the file longer; the kernel does not know.
    m.probe.set_data(2, &[7; 1000]);
    file.write_all(b"appended").unwrap();
    let (offset, flags, len) = m.probe.last_write();
    assert_eq!((offset, len), (0, 8), "the kernel's idea of the end");
    assert_ne!(flags as i32 & libc::O_APPEND, 0);
    let before = m.probe.count("getattr");
    assert_eq!(file.metadata().unwrap().len(), 1008, "the size is asked for");
    assert_eq!(m.probe.count("getattr"), before + 1);
    file.write_all(b"again").unwrap();
    assert_eq!(m.probe.last_write().0, 1008);
    assert_eq!(fs::read(&path).unwrap().len(), 1013);
}

/// Whether the kernel knew it does not matter.
fn ignore(_known: bool) {}

/// Makes a call that must not wait for what is held back meanwhile.
fn ends(call: impl FnOnce() -> io::Result<bool> + Send + 'static, what: &str) {
    let thread = std::thread::spawn(call);
    assert!(comes(|| thread.is_finished()), "{what} waits");
    ignore(thread.join().unwrap().unwrap());
}

/// Makes a call that must not end before `release` has run.
fn waits(
    call: impl FnOnce() -> io::Result<bool> + Send + 'static,
    release: impl FnOnce(),
    what: &str,
) {
    let thread = std::thread::spawn(call);
    let mut clock = Clock::new();
    while clock.turn() < A_WHILE {
        assert!(!thread.is_finished(), "{what} does not wait");
    }
    release();
    ignore(thread.join().unwrap().unwrap());
}

#[test]
fn who_waits_for_whom() {
    let m = new("waits");
    m.probe.set_data(2, &[1; 4096]);
    fs::metadata(m.dir.join("file")).unwrap();
    m.probe.hold(&["mkdir"]);
    let mkdir = m.spawn("made", fs::create_dir);
    m.probe.wait_held("mkdir");
    if has_epoch(&m) {
        let n = m.notifier();
        ends(move || n.inc_epoch(), "inc_epoch beside MKDIR");
    }
    let n = m.notifier();
    ends(move || n.inval_inode(1, -1, 0), "attributes beside MKDIR");
    let n = m.notifier();
    let entry = move || n.inval_entry(1, b"file");
    waits(entry, || m.probe.answer_all(), "inval_entry beside a MKDIR in its directory");
    mkdir.join().unwrap().unwrap();

    m.probe.hold(&["read"]);
    let read = m.spawn("file", |path| fs::read(path).unwrap().len());
    m.probe.wait_held("read");
    let n = m.notifier();
    ends(move || n.inval_inode(2, -1, 0), "attributes beside READ");
    let n = m.notifier();
    ends(move || n.inval_inode(2, 1 << 30, 0), "other pages beside READ");
    let n = m.notifier();
    let pages = move || n.inval_inode(2, 0, 0);
    waits(pages, || m.probe.answer_all(), "inval_inode beside a READ of its pages");
    assert_eq!(read.join().unwrap(), 4096);
}

/// The group of a group lock by value is the field's call: of its number the kernel copies 8 bytes from
/// there first. Without a direction nothing is copied, and the number comes as it is.
#[test]
fn what_an_ioctl_brings() {
    // _IOW('f', 158, long) and _IO('f', 158).
    const AT: u32 = 0x4008_669e;
    const BY_VALUE: u32 = 0x669e;
    let m = new("ioctl");
    m.probe.set_data(2, &[1; 4096]);
    let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(m.dir.join("file"));
    let file = file.unwrap();
    let call = |cmd: u32, arg: usize| {
        // SAFETY: the kernel copies what it is told to, or says that it cannot.
        let done = unsafe { libc::ioctl(file.as_raw_fd(), cmd as _, arg) };
        if done < 0 { io::Error::last_os_error().raw_os_error() } else { None }
    };
    assert_eq!(call(AT, 77), Some(libc::EFAULT), "the field's programs");
    assert!(m.probe.ioctls().is_empty(), "nobody is asked");
    let group = 77u64;
    assert_eq!(call(AT, &raw const group as usize), None);
    assert_eq!(call(BY_VALUE, 78), None);
    let came = m.probe.ioctls();
    let seen: Vec<_> = came.iter().map(|arg| (arg.cmd, arg.data.to_vec())).collect();
    assert_eq!(seen, [(AT, group.to_ne_bytes().to_vec()), (BY_VALUE, Vec::new())]);
    assert_eq!(came[1].arg, 78);
    // What fcntl(2) changes nobody is told; each READ brings it.
    let nonblock = |on: bool| {
        let flag = if on { libc::O_NONBLOCK } else { 0 };
        // SAFETY: it has no pointers.
        let set = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_DIRECT | flag) };
        assert_eq!(set, 0);
    };
    for on in [true, false] {
        nonblock(on);
        assert_eq!(call(BY_VALUE, 1), None);
        assert_eq!(m.probe.ioctls()[0].flags, 0, "an ioctl does not say");
        file.read_at(&mut [0; 512], 0).unwrap();
        assert_eq!(m.probe.last_read_flags() as i32 & libc::O_NONBLOCK != 0, on);
    }
}

/// Not a test of speed: prints what the notifications cost when idle.
#[test]
fn costs_when_idle() {
    const TIMES: u32 = 2000;
    let m = new("costs");
    m.probe.set_data(2, &vec![1; 1 << 20]);
    let file = File::open(m.dir.join("file")).unwrap();
    let n = m.notifier();
    let mut read = vec![0; 1 << 20];
    let mut time = |what: &str, refill: bool, call: &dyn Fn()| {
        let mut total = Duration::ZERO;
        let times = if refill { TIMES / 20 } else { TIMES };
        for _ in 0..times {
            if refill {
                file.read_exact_at(&mut read, 0).unwrap();
                fs::metadata(m.dir.join("file")).unwrap();
            }
            let start = Instant::now();
            call();
            total += start.elapsed();
        }
        println!("{what}: {:.2} us", total.as_secs_f64() * 1e6 / f64::from(times));
    };
    if has_epoch(&m) {
        time("inc_epoch", false, &|| ignore(n.inc_epoch().unwrap()));
    }
    time("inval_entry, unknown name", false, &|| ignore(n.inval_entry(1, b"unknown").unwrap()));
    time("expire_entry", true, &|| ignore(n.expire_entry(1, b"file").unwrap()));
    time("inval_entry", true, &|| ignore(n.inval_entry(1, b"file").unwrap()));
    time("inval_inode, attributes", false, &|| ignore(n.inval_inode(2, -1, 0).unwrap()));
    time("inval_inode, no pages cached", false, &|| ignore(n.inval_inode(2, 0, 0).unwrap()));
    time("inval_inode, 256 pages cached", true, &|| ignore(n.inval_inode(2, 0, 0).unwrap()));
    time("inval_inode, unknown inode", false, &|| ignore(n.inval_inode(99, 0, 0).unwrap()));
}

/// The daemon of the next test; does nothing when run as a test.
#[test]
fn killed_daemon() {
    let Ok(text) = std::env::var("KILLED_DAEMON") else { return };
    let (transport, dir) = text.split_once(' ').unwrap();
    let transport =
        if transport == "Uring" { TransportChoice::Uring } else { TransportChoice::Classic };
    let choices = Choices { open_flags: open_flags::KEEP_CACHE, ..Choices::default() };
    let m = Mounted::at(dir.into(), transport, choices);
    m.probe.set_data(2, &[1; 4096]);
    m.probe.hold(&["read"]);
    println!("\nready");
    m.probe.wait_held("read");
    println!("held");
    m.notifier().inval_inode(2, 0, 0).unwrap();
    println!("never reached");
}

/// A daemon killed while a notification waits for one of its own requests: the
/// waiting thread keeps the device open, so that the kernel does not notice.
/// A forced unmount by somebody else ends it.
#[test]
fn a_forced_unmount_frees_the_callers_of_a_killed_daemon() {
    for transport in [TransportChoice::Classic, TransportChoice::Uring] {
        let name = format!("sateen-killed-{transport:?}-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        let mut daemon = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed_daemon", "--nocapture"])
            .env("KILLED_DAEMON", format!("{transport:?} {}", dir.display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let path = dir.join("file");
        let mut lines = BufReader::new(daemon.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "ready"));
        let read = std::thread::spawn(move || fs::read(path));
        assert!(lines.any(|line| line.unwrap() == "held"));
        std::thread::sleep(A_WHILE);
        daemon.kill().unwrap();
        std::thread::sleep(5 * A_WHILE);
        println!("{transport:?}: the caller of a killed daemon hangs: {}", !read.is_finished());
        let target = std::ffi::CString::new(dir.to_str().unwrap()).unwrap();
        // SAFETY: the path is a C string.
        unsafe { libc::umount2(target.as_ptr(), libc::MNT_FORCE | libc::MNT_DETACH) };
        assert!(comes(|| read.is_finished()), "still hangs");
        read.join().unwrap().unwrap_err();
        daemon.wait().unwrap();
        let _ = fs::remove_dir(&dir);
    }
}

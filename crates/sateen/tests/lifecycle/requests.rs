//! How the kernel's requests come: over what `up` is told, and as large as the kernel lets them.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::fs::XattrFlags;
use sateen_testkit::can_mount;
use sateen_testkit::fuse_limit::FuseLimit;

use super::Fs;

const MIB: usize = 1 << 20;

fn has_io_uring() -> bool {
    let switch = fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    switch.is_ok_and(|value| value.trim() == "Y")
}

/// Over what the mount of a file system is served, by the report for programs and that for people.
fn transport(fs_: &Fs) -> String {
    let status = fs_.status();
    let name = status["mounts"][0]["transport"].as_str().unwrap().to_owned();
    assert_eq!(status["transport"], name.as_str());
    assert!(fs_.ok(&["status"]).contains(&format!("\ntransport  {name}\n")));
    name
}

#[test]
fn they_come_over_what_is_said() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("transport");
    for bad in ["uring", "Classic", ""] {
        let output = fs_.run(&["up", "--transport", bad]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("io_uring") && said.contains("classic"), "{said}");
    }
    let text = fs_.ok(&["up", "--osts", "1", "--transport", "classic"]);
    assert!(text.contains("classic"), "{text}");
    assert_eq!(transport(&fs_), "classic");
    let bytes: Vec<u8> = (0..3_000_001_u32).map(|at| (at % 251) as u8).collect();
    let file = fs_.mnt().join("file");
    fs::write(&file, &bytes).unwrap();
    fs_.ok(&["down"]);
    // It is not kept.
    let mut told = vec![&["up"][..], &["up", "--transport", "auto"]];
    let by_name = &["up", "--transport", "io_uring"];
    if has_io_uring() {
        told.push(by_name);
    } else {
        let output = fs_.run(by_name);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("EOPNOTSUPP") && said.contains("transport=auto"), "{said}");
    }
    for args in told {
        fs_.ok(args);
        let want = if has_io_uring() { "io_uring" } else { "classic" };
        assert_eq!(transport(&fs_), want, "{args:?}");
        assert!(fs::read(&file).unwrap() == bytes);
        fs_.ok(&["down"]);
    }
}

/// Writes so many bytes at once past the page cache, and reads them at once; how many requests
/// that were. At least so many are waited for, since one is counted when it was answered.
fn at_once(fs_: &Fs, bytes: usize, wanted: u64) -> (u64, u64) {
    let path = fs_.mnt().join("large");
    let direct = OFlags::DIRECT.bits().cast_signed();
    let file: File = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(direct)
        .open(&path)
        .unwrap();
    fs_.ok(&["lctl", "set_param", "fuse.timers=1"]);
    let mut memory = vec![0; bytes + 4096];
    let skew = memory.as_ptr().align_offset(4096);
    let buffer = &mut memory[skew..skew + bytes];
    for (at, byte) in buffer.iter_mut().enumerate() {
        *byte = (at % 253) as u8;
    }
    assert_eq!(file.write_at(buffer, 0).unwrap(), bytes);
    let written = buffer.to_vec();
    buffer.fill(0);
    let read = file.read_at(buffer, 0).unwrap();
    assert!(read == bytes && buffer == written, "what was written is read");
    let count = |shown: &str, name: &str| -> u64 {
        let row = shown.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("");
        row.split_whitespace().next().unwrap_or("0").parse().unwrap()
    };
    let counts = || {
        let shown = fs_.ok(&["lctl", "get_param", "-n", "fuse.timers"]);
        (count(&shown, "write "), count(&shown, "read "))
    };
    let end = Instant::now() + Duration::from_secs(10);
    while counts() < (wanted, wanted) && Instant::now() < end {
        thread::sleep(Duration::from_millis(5));
    }
    let counts = counts();
    fs_.ok(&["lctl", "set_param", "fuse.timers=0"]);
    // By another way, too.
    drop(file);
    assert!(fs::read(&path).unwrap() == written);
    counts
}

fn max_request(fs_: &Fs) -> u64 {
    fs_.status()["mounts"][0]["max_request_bytes"].as_u64().unwrap()
}

/// A mount with these options; what it says on standard error.
fn up(fs_: &Fs, transport: &str, size: &str) -> String {
    let args = ["up", "--osts", "2", "--no-passthrough", "--transport", transport];
    let output = fs_.run(&[&args[..], &["--max-request", size]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

/// The largest extended attribute that there can be is one request, with its name.
fn largest_value(fs_: &Fs) {
    let path = fs_.mnt().join("valued");
    fs::write(&path, "").unwrap();
    let name = format!("user.{}", "n".repeat(250));
    let value: Vec<u8> = (0..65_536_u32).map(|at| (at % 249) as u8).collect();
    rustix::fs::setxattr(&path, &name, &value, XattrFlags::empty()).unwrap();
    let mut read = vec![0; 65_536];
    assert_eq!(rustix::fs::getxattr(&path, &name, &mut read[..]), Ok(65_536));
    assert!(read == value);
    fs::remove_file(&path).unwrap();
}

#[test]
fn they_are_as_large_as_the_kernel_lets_them() {
    if !can_mount() {
        return;
    }
    let fs_ = Fs::new("requests");
    for bad in ["0", "64k", "133000", "17M", "4x"] {
        let output = fs_.run(&["up", "--max-request", bad]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("multiple of 4K"), "{said}");
    }
    let transports: &[&str] = if has_io_uring() { &["io_uring", "classic"] } else { &["classic"] };
    let Some(limit) = FuseLimit::set(1024).unwrap() else { return };
    for name in transports {
        assert_eq!(up(&fs_, name, "4M"), "", "nothing to be said");
        assert_eq!((transport(&fs_).as_str(), max_request(&fs_)), (*name, 4 << 20));
        assert!(fs_.ok(&["status"]).contains("\nrequests   up to 4.0M\n"));
        assert_eq!(at_once(&fs_, 4 * MIB, 1), (1, 1), "one request each, {name}");
        assert_eq!(at_once(&fs_, 9 * MIB, 3), (3, 3), "{name}");
        fs_.ok(&["down"]);
        // Smaller ones are to be had, too.
        up(&fs_, name, "128k");
        assert_eq!(max_request(&fs_), 128 << 10);
        assert_eq!(at_once(&fs_, MIB, 8), (8, 8), "{name}");
        largest_value(&fs_);
        fs_.ok(&["down"]);
    }
    limit.change(256).unwrap();
    for name in transports {
        let said = up(&fs_, name, "4M");
        assert!(said.contains("1.0M at most, not 4.0M"), "{said}");
        assert!(said.contains("sysctl fs.fuse.max_pages_limit=1024"), "{said}");
        assert!(fs_.log().contains("fs.fuse.max_pages_limit=1024"), "{}", fs_.log());
        assert_eq!((transport(&fs_).as_str(), max_request(&fs_)), (*name, 1 << 20));
        assert_eq!(at_once(&fs_, 4 * MIB, 4), (4, 4), "{name}");
        fs_.ok(&["down"]);
    }
}

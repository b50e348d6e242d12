//! Files that the kernel is given (decision 0007): opens of all kinds beside each other, what the mount
//! does not hear of, and what is left of it after a crash.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use sateen_testkit::cluster::ok;
use sateen_testkit::disk::LoopedExt4;
use sateen_testkit::random::Random;
use sateen_testkit::{can_mount, skipped};

use crate::BINARY;
use crate::rig::{Rig, Servers, with_kernel_caches};

const PAGE_BYTES: usize = 4096;
const PAGES: u64 = 64;

fn samples(rig: &Rig, name: &str) -> u64 {
    let stats = rig.params("llite.*.stats");
    let line = stats.lines().find(|line| line.split_whitespace().next() == Some(name));
    line.map_or(0, |line| line.split_whitespace().nth(1).unwrap().parse().unwrap())
}

#[test]
fn the_mount_does_not_hear_of_writes_and_the_object_has_them() {
    let Some(rig) = Rig::start(Servers::Given, "given-writes", 1, false) else { return };
    let path = rig.mnt().join("file");
    fs::write(&path, vec![b'a'; PAGES as usize * PAGE_BYTES]).unwrap();
    let (written, asked) = (samples(&rig, "write_bytes"), samples(&rig, "read_bytes"));
    let file = File::options().read(true).write(true).open(&path).unwrap();
    for page in 0..PAGES {
        file.write_all_at(&[b'b'; PAGE_BYTES], page * PAGE_BYTES as u64).unwrap();
    }
    let mut there = vec![0; PAGES as usize * PAGE_BYTES];
    file.read_exact_at(&mut there, 0).unwrap();
    assert!(there.iter().all(|byte| *byte == b'b'));
    assert_eq!(samples(&rig, "write_bytes"), written, "the kernel asks for writes");
    assert_eq!(samples(&rig, "read_bytes"), asked, "the kernel asks for reads");
    // Who goes past it is asked for, and finds the same.
    let beside = File::options().read(true).custom_flags(O_DIRECT).open(&path).unwrap();
    let mut page = vec![0; PAGE_BYTES];
    beside.read_exact_at(&mut page, 0).unwrap();
    assert!(page.iter().all(|byte| *byte == b'b'));
    assert!(samples(&rig, "read_bytes") > asked, "a direct read is asked for");
}

/// Also of a file that a CREATE finds there: its answer comes with attributes.
#[test]
fn sizes_and_times_are_those_of_the_object() {
    let Some(rig) = Rig::start(Servers::Given, "given-times", 1, false) else { return };
    let path = rig.mnt().join("file");
    fs::write(&path, b"as it was made").unwrap();
    let Rig::Given { program, .. } = &rig else { unreachable!("it has one process") };
    // A kernel that knows the name opens it.
    program.down().unwrap();
    program.up().unwrap();
    let made = OpenOptions::new().create(true).append(true).open(&path).unwrap();
    let written = samples(&rig, "write_bytes");
    (&made).write_all(b", and more").unwrap();
    assert_eq!(samples(&rig, "write_bytes"), written, "the kernel asks for writes");
    let now = fs::metadata(&path).unwrap();
    assert_eq!(now.len(), 24);
    drop(made);
    // At once, while the close is under way.
    program.down().unwrap();
    program.up().unwrap();
    let again = fs::metadata(&path).unwrap();
    assert_eq!((again.len(), again.modified().unwrap()), (24, now.modified().unwrap()));
}

/// By default. Small ones are asked for, whoever opens them.
#[test]
fn only_large_files_are_given() {
    let Some(rig) = Rig::start(Servers::Embedded, "given-large", 1, false) else { return };
    let Rig::Embedded(program) = &rig else { unreachable!("it has one process") };
    let status = || {
        let mut command = Command::new(BINARY);
        ok(command.arg("status").arg("--data").arg(program.data()))
    };
    if !status().contains(" (passthrough)") {
        return skipped(format!("it cannot be given files here: {}", status()));
    }
    for (bytes, is_given) in [(3901, false), ((1 << 20) - 1, false), (1 << 20, true)] {
        let path = rig.mnt().join(format!("file{bytes}"));
        fs::write(&path, vec![b'a'; bytes]).unwrap();
        for write in [true, false] {
            let (written, read) = (samples(&rig, "write_bytes"), samples(&rig, "read_bytes"));
            let file = File::options().read(true).write(write).open(&path).unwrap();
            if write {
                file.write_all_at(b"A", 0).unwrap();
                assert_eq!(samples(&rig, "write_bytes") == written, is_given, "{bytes}");
            }
            file.read_exact_at(&mut [0; 4], 0).unwrap();
            assert_eq!(samples(&rig, "read_bytes") == read, is_given, "{bytes}");
        }
    }
    rig.end();
}

#[test]
fn it_is_shown_and_can_be_switched_off_and_on() {
    let Some(rig) = Rig::start(Servers::Given, "given-switch", 1, false) else { return };
    let Rig::Given { program, .. } = &rig else { unreachable!("it has one process") };
    let sateen = |args: &[&str]| {
        let mut command = Command::new(BINARY);
        ok(command.args(&args[..1]).arg("--data").arg(program.data()).args(&args[1..]))
    };
    let path = rig.mnt().join("file");
    fs::write(&path, vec![b'a'; PAGE_BYTES]).unwrap();
    for (is_on, shown) in [(true, "1\n"), (false, "0\n"), (true, "1\n")] {
        let value = format!("llite.*.passthrough={}", u8::from(is_on));
        sateen(&["lctl", "set_param", &value]);
        assert_eq!(rig.params("llite.*.passthrough"), shown);
        assert_eq!(sateen(&["status"]).contains(" (passthrough)"), is_on);
        let written = samples(&rig, "write_bytes");
        // Nobody has it open, and its giving, which may end a moment later, says nothing of others.
        let new = rig.mnt().join(format!("new{is_on}"));
        fs::write(&new, b"made").unwrap();
        let before = samples(&rig, "write_bytes");
        assert!(before > written, "what is new is asked for");
        let file = File::options().write(true).open(&new).unwrap();
        file.write_all_at(b"M", 0).unwrap();
        assert_eq!(samples(&rig, "write_bytes") == before, is_on);
        drop(file);
        fs::remove_file(&new).unwrap();
    }
}

#[test]
fn what_was_synced_outlives_a_kill() {
    let Some(rig) = Rig::start(Servers::Given, "given-kill", 1, false) else { return };
    let Rig::Given { program, .. } = &rig else { unreachable!("it has one process") };
    let path = rig.mnt().join("file");
    fs::write(&path, b"as it was made").unwrap();
    let file = File::options().append(true).read(true).open(&path).unwrap();
    let written = samples(&rig, "write_bytes");
    file.write_all_at(b"AS", 0).unwrap();
    (&file).write_all(b", and more").unwrap();
    file.sync_all().unwrap();
    assert_eq!(samples(&rig, "write_bytes"), written, "the kernel asks for writes");
    program.kill(program.pid().unwrap(), || ()).unwrap();
    drop(file);
    program.up().unwrap();
    let there = fs::read_to_string(&path).unwrap();
    // Linux appends what is written at a place, too.
    assert_eq!(there, "as it was madeAS, and more");
    program.down().unwrap();
    program.fsck().unwrap();
    program.up().unwrap();
}

/// A program that has a file open and mapped, and does what it is told.
struct Left {
    program: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Left {
    fn start(path: &Path) -> Left {
        let mut command = Command::new("perl");
        command.args(["-e", LEFT]).arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = command.spawn().unwrap();
        let said = BufReader::new(program.stdout.take().unwrap());
        let mut left = Left { program, said };
        assert_eq!(left.said(), "ready");
        left
    }

    fn said(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn asked(&mut self, what: &str) -> String {
        writeln!(self.program.stdin.as_mut().unwrap(), "{what}").unwrap();
        self.said()
    }

    fn end(mut self) {
        drop(self.program.stdin.take());
        assert!(self.program.wait().unwrap().success());
    }
}

const LEFT: &str = r#"
$| = 1;
open(my $file, "+<", $ARGV[0]) or die "open: $!";
# mmap on x86-64: PROT_READ | PROT_WRITE, MAP_SHARED
my $at = syscall(9, 0, 4096, 3, 1, fileno($file), 0);
$at > 0 or die "mmap: $!";
print "ready\n";
while (my $what = <STDIN>) {
    if ($what eq "store\n") {
        # By read(2) from a pipe into the mapping, and by the descriptor; and the file becomes longer.
        pipe(my $out, my $in) or die; syswrite($in, "m"); syscall(0, fileno($out), $at, 1) == 1 or die "store: $!";
        sysseek($file, 1, 0); syswrite($file, "w") == 1 or die "write: $!";
        sysseek($file, 4096, 0); syswrite($file, "tail") == 4 or die "write: $!";
        print "stored\n";
    } else {
        print unpack("P3", pack("Q", $at)), "\n";
    }
}
"#;

#[test]
fn what_a_killed_run_has_left_open_is_one_file_with_what_is_opened_since() {
    let Some(rig) = Rig::start(Servers::Given, "given-left", 1, false) else { return };
    let Rig::Given { program, .. } = &rig else { unreachable!("it has one process") };
    let path = rig.mnt().join("file");
    fs::write(&path, vec![b'a'; PAGE_BYTES]).unwrap();
    let status = || {
        let mut command = Command::new(BINARY);
        ok(command.arg("status").arg("--data").arg(program.data()))
    };
    let in_use = "1 files in use since an earlier run";
    let mut left = Left::start(&path);
    for run in 0..2 {
        program.kill(program.pid().unwrap(), || ()).unwrap();
        program.up().unwrap();
        assert!(status().contains(in_use), "{run}: {}", status());
    }
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let mut there = [0; 3];
    file.read_exact_at(&mut there, 0).unwrap();
    assert_eq!(&there, b"aaa");
    assert_eq!(left.asked("store"), "stored");
    file.read_exact_at(&mut there, 0).unwrap();
    assert_eq!(&there, b"mwa");
    assert_eq!(fs::metadata(&path).unwrap().len(), 4100);
    file.write_all_at(b"o", 2).unwrap();
    assert_eq!(left.asked("show"), "mwo");
    drop(file);
    assert_eq!(fs::read(&path).unwrap().len(), 4100);
    left.end();
    let until = Instant::now() + Duration::from_secs(20);
    while status().contains("in use") {
        assert!(Instant::now() < until, "{}", status());
        std::thread::sleep(Duration::from_millis(20));
    }
    program.down().unwrap();
    program.fsck().unwrap();
    program.up().unwrap();
    let there = fs::read(&path).unwrap();
    assert_eq!((&there[..3], &there[4096..]), (&b"mwo"[..], &b"tail"[..]));
}

/// A folder that goes in the end, with what is in it.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("sateen-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What ext4 keeps for root is for those who serve the file system: who removes something has to write
/// that down.
#[test]
fn a_disk_that_given_writes_have_filled_has_room_for_its_servers() {
    if !can_mount() {
        return;
    }
    let folder = Folder::new("given-full");
    let disk = match LoopedExt4::below(&folder.0, 400) {
        Ok(disk) => disk,
        Err(error) => return skipped(format!("needs an ext4 of its own: {error:#}")),
    };
    let (data, mnt) = (disk.path().join("data"), folder.0.join("mnt"));
    let sateen = |args: &[&str]| {
        let mut command = Command::new(BINARY);
        ok(command.args(&args[..1]).arg("--data").arg(&data).args(&args[1..]))
    };
    sateen(&["up", "--passthrough", "--osts", "1", "--mount", mnt.to_str().unwrap()]);
    let path = mnt.join("file");
    fs::write(&path, vec![b'a'; 1 << 20]).unwrap();
    let file = File::options().append(true).open(&path).unwrap();
    let bytes = vec![b'x'; 1 << 20];
    let full = (0..400).find_map(|_| (&file).write_all(&bytes).err()).unwrap();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    let below = rustix::fs::statvfs(&data).unwrap();
    assert!(below.f_bavail < 256, "{} blocks are left", below.f_bavail);
    assert!(below.f_bfree > below.f_blocks / 25, "{} of {}", below.f_bfree, below.f_blocks);
    drop(file);
    fs::remove_file(&path).unwrap();
    File::open(&mnt).unwrap().sync_all().unwrap();
    // Objects go after their names.
    sateen_testkit::cluster::until("there is room again", || {
        fs::write(mnt.join("again"), &bytes).is_ok()
    });
    sateen(&["down"]);
    sateen(&["fsck"]);
}

/// Where the file system below keeps nothing for root nobody is given anything, unless that was asked for.
#[test]
fn without_room_for_its_servers_none_are_given() {
    if !can_mount() {
        return;
    }
    let folder = Folder::new("given-no-reserve");
    let (disk, mnt) = (Tmpfs::below(&folder.0), folder.0.join("mnt"));
    are_given_if_that_is_asked_for(&disk.0, &mnt);
    // What an ext4 of this size keeps for itself is as much as is asked for, but not for root.
    let disk = match LoopedExt4::made_with(&folder.0, 1024, &["-m", "0"]) {
        Ok(disk) => disk,
        Err(error) => return skipped(format!("needs an ext4 of its own: {error:#}")),
    };
    are_given_if_that_is_asked_for(disk.path(), &mnt);
}

fn are_given_if_that_is_asked_for(disk: &Path, mnt: &Path) {
    let data = disk.join("data");
    let sateen = |args: &[&str]| {
        let mut command = Command::new(BINARY);
        ok(command.args(&args[..1]).arg("--data").arg(&data).args(&args[1..]))
    };
    let up = ["up", "--osts", "1", "--mount", mnt.to_str().unwrap(), "--passthrough"];
    sateen(&up[..5]);
    let status = sateen(&["status"]);
    assert!(status.contains("(no passthrough: the file system of "), "{status}");
    assert!(status.contains(" keeps no room for root)"), "{status}");
    sateen(&["down"]);
    sateen(&up);
    let status = sateen(&["status"]);
    assert!(status.contains(" (passthrough)"), "{status}");
    sateen(&["down"]);
}

/// A file system in memory.
struct Tmpfs(std::path::PathBuf);

impl Tmpfs {
    fn below(folder: &Path) -> Tmpfs {
        let point = folder.join("tmpfs");
        fs::create_dir(&point).unwrap();
        ok(Command::new("mount").args(["-t", "tmpfs", "-o", "size=512m", "tmpfs"]).arg(&point));
        Tmpfs(point)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Descriptors that a kernel was given the file by are those of the file system below.
#[test]
fn a_given_descriptor_takes_no_other_ways() {
    let Some(rig) = Rig::start(Servers::Given, "given-ways", 1, false) else { return };
    let path = rig.mnt().join("file");
    fs::write(&path, vec![b'a'; 2 * PAGE_BYTES]).unwrap();
    let mut open = File::options();
    let file = open.read(true).write(true).open(&path).unwrap();
    // As mount(8) has it done where it finds the helper.
    let remount = |options| {
        let mut mount = Command::new(BINARY);
        ok(mount.args(["mount", "-o", options, "sateen"]).arg(rig.mnt()))
    };
    let written = samples(&rig, "write_bytes");
    remount("remount,sync");
    file.write_all_at(b"A", 0).unwrap();
    assert_eq!(samples(&rig, "write_bytes"), written, "the kernel has it still");
    open.open(&path).unwrap().write_all_at(b"B", 1).unwrap();
    assert!(samples(&rig, "write_bytes") > written, "a new one is asked for");
    remount("remount,async");
    // Of any alignment is what was opened so.
    let mut bytes = [0; 3];
    let direct = open.custom_flags(O_DIRECT).open(&path).unwrap();
    direct.read_exact_at(&mut bytes, 1).unwrap();
    assert_eq!(&bytes, b"Baa");
    let flags = rustix::fs::fcntl_getfl(&file).unwrap();
    rustix::fs::fcntl_setfl(&file, flags | OFlags::DIRECT).unwrap();
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"ABa", "the file below was opened without, and stays so");
    drop((file, direct));
    rig.end();
}

#[test]
fn a_mapping_that_outlives_its_open_and_later_opens_see_each_other() {
    let Some(rig) = Rig::start(Servers::Given, "given-mapped", 1, false) else { return };
    let _caches = with_kernel_caches();
    let path = rig.mnt().join("file");
    fs::write(&path, vec![b'a'; 2 * PAGE_BYTES]).unwrap();
    let output = Command::new("perl").args(["-e", MAPPED]).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::read(&path).unwrap()[..3], *b"mwa");
}

/// Maps a file, closes it, and then goes by the mapping and new opens in turns.
const MAPPED: &str = r#"
open(my $first, "+<", $ARGV[0]) or die "open: $!";
# mmap on x86-64: PROT_READ | PROT_WRITE, MAP_SHARED
my $at = syscall(9, 0, 4096, 3, 1, fileno($first), 0);
$at > 0 or die "mmap: $!";
close($first);
sub fresh { open(my $f, "<", $ARGV[0]) or die "open: $!"; sysread($f, my $b, 3); $b }
sub mapped { unpack("P3", pack("Q", $at)) }
for my $turn (1 .. 3) {
    select(undef, undef, undef, 0.05 * $turn);
    # Stores through the mapping: read(2) from a pipe into it.
    pipe(my $out, my $in) or die; syswrite($in, "m"); syscall(0, fileno($out), $at, 1) == 1 or die "store: $!";
    fresh() =~ /^m/ or die "a new open does not see the mapping: " . fresh();
    open(my $w, "+<", $ARGV[0]) or die "open: $!";
    sysseek($w, 1, 0); syswrite($w, "w"); close($w);
    mapped() eq "mwa" or die "the mapping does not see a write: " . mapped();
}
"#;

/// So long files are opened in all ways.
const STORM: Duration = Duration::from_secs(4);
const THREADS: u64 = 4;
const FILES: usize = 3;
const O_DIRECT: i32 = OFlags::DIRECT.bits().cast_signed();
const O_SYNC: i32 = OFlags::SYNC.bits().cast_signed();

/// Each thread has a page of each file, which holds what it wrote last, and appends its own records to
/// another. Every open and every call has to succeed.
#[test]
fn opens_of_all_kinds_beside_each_other() {
    let Some(rig) = Rig::start(Servers::Given, "given-storm", 1, false) else { return };
    let mnt = rig.mnt();
    for file in 0..FILES {
        fs::write(mnt.join(format!("f{file}")), vec![0; PAGES as usize * PAGE_BYTES]).unwrap();
        fs::write(mnt.join(format!("log{file}")), b"").unwrap();
    }
    let seed = sateen_testkit::seed();
    let until = Instant::now() + STORM;
    let counts: Vec<[usize; FILES]> = std::thread::scope(|scope| {
        let storm = |thread| move || storm(mnt, thread, seed, until);
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(storm(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for file in 0..FILES {
        let log = fs::read_to_string(mnt.join(format!("log{file}"))).unwrap();
        for (thread, counts) in counts.iter().enumerate() {
            let own = format!("{thread};");
            assert_eq!(log.matches(&own).count(), counts[file], "thread {thread}, log {file}");
        }
        assert_eq!(log.len(), 2 * counts.iter().map(|counts| counts[file]).sum::<usize>());
    }
    println!("{counts:?} records");
}

fn storm(mnt: &Path, thread: u64, seed: u64, until: Instant) -> [usize; FILES] {
    let mut random = Random::new(seed ^ thread);
    let (mut last, mut records) = ([0; FILES], [0; FILES]);
    let at = thread * PAGE_BYTES as u64;
    while Instant::now() < until {
        let file = random.below(FILES as u64) as usize;
        let path = mnt.join(format!("f{file}"));
        let open = |options: &mut OpenOptions| {
            options.open(&path).unwrap_or_else(|error| panic!("{options:?}: {error}"))
        };
        let kind = random.below(8);
        let mut page = [0; PAGE_BYTES];
        match kind {
            0 | 1 => open(File::options().read(true)).read_exact_at(&mut page, at).unwrap(),
            2 => {
                let direct = open(File::options().read(true).custom_flags(O_DIRECT));
                direct.read_exact_at(&mut page, at).unwrap();
            }
            3 => {
                let mut all = Vec::new();
                open(File::options().read(true)).read_to_end(&mut all).unwrap();
                page.copy_from_slice(&all[at as usize..][..PAGE_BYTES]);
            }
            4 => {
                let log = mnt.join(format!("log{file}"));
                let mut log = File::options().append(true).open(log).unwrap();
                log.write_all(format!("{thread};").as_bytes()).unwrap();
                records[file] += 1;
                continue;
            }
            5 => {
                // Another file, in effect: everybody may find it empty or not.
                let cut = mnt.join("cut");
                let options = &mut File::options();
                let cut = options.write(true).create(true).truncate(true).open(cut).unwrap();
                cut.write_all_at(b"cut", 0).unwrap();
                continue;
            }
            _ => {
                last[file] = random.below(255) as u8 + 1;
                let flags = [0, O_SYNC, O_DIRECT][random.below(3) as usize];
                let open = open(File::options().read(true).write(true).custom_flags(flags));
                open.write_all_at(&[last[file]; PAGE_BYTES], at).unwrap();
                if random.below(2) == 0 {
                    open.read_exact_at(&mut page, at).unwrap();
                } else {
                    continue;
                }
            }
        }
        assert!(page.iter().all(|byte| *byte == last[file]), "kind {kind}, file {file}");
    }
    records
}

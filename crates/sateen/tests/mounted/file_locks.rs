//! flock and fcntl locks on two mounts of one file system: they hold for both.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;
use sateen_testkit::cluster::{ok, text};

use crate::rig::{Rig, Servers, on_both, tools};

on_both!(
    a_lock_of_flock_holds_on_all_mounts,
    locks_of_fcntl_hold_on_all_mounts,
    any_close_of_a_file_gives_back_its_programs_fcntl_locks,
    the_first_fcntl_locks_of_a_mount_go_with_their_opens,
    whoever_waits_is_let_go_by_signals_and_gets_his_turn,
    two_who_wait_for_each_other_are_told,
    a_counter_under_locks_of_both_kinds_is_right,
    those_of_directories_hold_on_one_mount,
    many_wait_at_once_and_the_mount_goes_on,
);

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(120);

const WITHOUT_WAITING: FlockOperation = FlockOperation::NonBlockingLockExclusive;

fn read_write(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// Waits until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What every script here begins with: `lock(FILE, KIND, FROM, LENGTH)` is `fcntl` with `F_SETLK`,
/// and `waited` the same with `F_SETLKW`.
const WORDS: &str = "use Fcntl qw(:DEFAULT :flock); use POSIX qw(:errno_h :signal_h); $| = 1; \
    sub packed { pack('s s x4 q q i x4', $_[0], 0, $_[1], $_[2], 0) } \
    sub lock { fcntl($_[0], F_SETLK, packed(@_[1..3])) } \
    sub waited { fcntl($_[0], F_SETLKW, packed(@_[1..3])) } \
    sub file { open(my $f, '+<', $_[0]) or die $!; $f } ";

fn perl(script: &str, files: &[&Path]) -> Command {
    let mut perl = Command::new("perl");
    perl.args(["-e", &format!("{WORDS}{script}")]).args(files);
    perl
}

/// What a script says.
fn says(script: &str, files: &[&Path]) -> String {
    let output = perl(script, files).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{script}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// A script that runs, and is talked with by lines.
struct Script {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Script {
    fn start(script: &str, files: &[&Path]) -> Script {
        Script::of(perl(script, files))
    }

    fn on_first_processor(script: &str, files: &[&Path]) -> Script {
        let perl = perl(script, files);
        let mut pinned = Command::new("taskset");
        pinned.args(["-c", "0"]).arg(perl.get_program()).args(perl.get_args());
        Script::of(pinned)
    }

    fn of(mut command: Command) -> Script {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Script { child, lines }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn go(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    fn signal(&self, name: &str) {
        ok(Command::new("kill").args(["-s", name, &self.child.id().to_string()]));
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// A file on both mounts, which hear of closes from now on.
fn files(rig: &Rig) -> [std::path::PathBuf; 2] {
    let files = [0, 1].map(|mount| rig.mounts()[mount].join("file"));
    fs::write(&files[0], "").unwrap();
    for file in &files {
        let file = read_write(file);
        fcntl_lock(&file, FlockOperation::LockShared).unwrap();
        fcntl_lock(&file, FlockOperation::Unlock).unwrap();
    }
    files
}

fn a_lock_of_flock_holds_on_all_mounts(servers: Servers) {
    let Some(rig) = Rig::start(servers, "flock", 2, false) else { return };
    let [here, there] = files(&rig);
    let (one, two, other) = (read_write(&here), read_write(&here), read_write(&there));
    flock(&one, FlockOperation::LockExclusive).unwrap();
    for file in [&two, &other] {
        assert_eq!(flock(file, WITHOUT_WAITING), Err(Errno::WOULDBLOCK));
    }
    flock(&one, FlockOperation::LockShared).unwrap();
    flock(&other, FlockOperation::NonBlockingLockShared).unwrap();
    assert_eq!(flock(&one, WITHOUT_WAITING), Err(Errno::WOULDBLOCK));
    // As on Linux it is gone now.
    flock(&other, WITHOUT_WAITING).unwrap();
    flock(&other, FlockOperation::Unlock).unwrap();
    flock(&one, WITHOUT_WAITING).unwrap();
    // It belongs to the open, and goes with the last descriptor: moments later.
    let same = one.try_clone().unwrap();
    drop(one);
    assert_eq!(flock(&other, WITHOUT_WAITING), Err(Errno::WOULDBLOCK));
    drop(same);
    until("a close gives it back", || flock(&other, WITHOUT_WAITING).is_ok());
    // The program flock(1) waits for it.
    let mut waiting = waiting(Command::new("flock").arg(&here).args(["echo", "mine"]));
    assert!(waiting.try_wait().unwrap().is_none());
    flock(&other, FlockOperation::Unlock).unwrap();
    assert!(waiting.wait().unwrap().success());
    let refused = |file: &File| {
        flock(file, FlockOperation::LockExclusive).unwrap();
        let tried = Command::new("flock").args(["-n"]).arg(&here).arg("true").status().unwrap();
        !tried.success()
    };
    assert!(refused(&other));
    drop((two, other));
    rig.end();
}

/// Starts a program, and gives it time to wait for something.
fn waiting(command: &mut Command) -> Child {
    let child = command.stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(200));
    child
}

fn locks_of_fcntl_hold_on_all_mounts(servers: Servers) {
    let Some(rig) = Rig::start(servers, "fcntl", 2, false) else { return };
    let [here, there] = files(&rig);
    let hold = "my $f = file($ARGV[0]); lock($f, F_WRLCK, 10, 10) or die $!; print \"there\\n\"; \
                <STDIN>; lock($f, F_UNLCK, 15, 1) or die $!; print \"split\\n\"; <STDIN>; \
                lock($f, F_RDLCK, 10, 5) or die $!; print \"shared\\n\"; <STDIN>;";
    let mut holder = Script::start(hold, &[&here]);
    assert_eq!(holder.line(), "there");
    let tries = "my $f = file($ARGV[0]); for my $range ([0, 10], [10, 1], [15, 1], [19, 1], [20, 0]) \
                 { print lock($f, F_WRLCK, @$range) ? 'y' : $! == EAGAIN ? 'n' : die $!; \
                   lock($f, F_UNLCK, 0, 0) or die $!; }";
    for file in [&here, &there] {
        assert_eq!(says(tries, &[file]), "ynnny");
    }
    // Who has it: elsewhere that is nobody's process.
    let get = "my $f = file($ARGV[0]); my $lock = packed(F_WRLCK, 0, 0); \
               fcntl($f, F_GETLK, $lock) or die $!; my @l = unpack('s s x4 q q i', $lock); \
               print $l[0] == F_WRLCK ? 'write' : 'other', \" $l[2]+$l[3] \", $l[4] ? 'process' : 'nobody'";
    assert_eq!(says(get, &[&here]), "write 10+10 process");
    assert_eq!(says(get, &[&there]), "write 10+10 nobody");
    // F_OFD_GETLK is 36: the kernel says -1, whoever it is.
    let get = "my $f = file($ARGV[0]); my $lock = packed(F_WRLCK, 0, 0); \
               fcntl($f, 36, $lock) or die $!; print join(' ', (unpack('s s x4 q q i', $lock))[0, 4])";
    for file in [&here, &there] {
        assert_eq!(says(get, &[file]), "1 -1", "F_WRLCK");
    }
    holder.go();
    assert_eq!(holder.line(), "split");
    assert_eq!(says(tries, &[&there]), "ynyny");
    holder.go();
    assert_eq!(holder.line(), "shared");
    let reads = "my $f = file($ARGV[0]); print lock($f, F_RDLCK, 10, 5) ? 'y' : 'n', \
                 lock($f, F_WRLCK, 10, 5) ? 'y' : 'n', lock($f, F_RDLCK, 16, 1) ? 'y' : 'n'";
    assert_eq!(says(reads, &[&there]), "ynn");
    // Those of flock(2) are others.
    flock(read_write(&there), WITHOUT_WAITING).unwrap();
    // A program that is killed has none.
    holder.kill();
    assert_eq!(says(tries, &[&there]), "yyyyy");
    rig.end();
}

fn any_close_of_a_file_gives_back_its_programs_fcntl_locks(servers: Servers) {
    let Some(rig) = Rig::start(servers, "fcntl-close", 2, false) else { return };
    let [here, there] = files(&rig);
    let free = |path: &Path| {
        says("print lock(file($ARGV[0]), F_WRLCK, 0, 0) ? 'free' : 'taken'", &[path]) == "free"
    };
    let (one, other) = (read_write(&here), read_write(&here));
    fcntl_lock(&one, FlockOperation::LockExclusive).unwrap();
    assert!(!free(&there) && !free(&here));
    drop(other);
    assert!(free(&there), "as soon as it has returned");
    // Also if somebody else has the file open: the lock is not his.
    fcntl_lock(&one, FlockOperation::LockExclusive).unwrap();
    let mut sleep = Command::new("sleep");
    let mut heir = sleep.arg("600").stdin(one.try_clone().unwrap()).spawn().unwrap();
    assert!(!free(&there));
    drop(one);
    assert!(free(&there));
    heir.kill().unwrap();
    heir.wait().unwrap();
    drop(sleep);
    // Of a program that ends, too.
    let script = "my $f = file($ARGV[0]); lock($f, F_WRLCK, 0, 0) or die $!; \
                  if (!fork) { <STDIN>; exit } print \"there\\n\"; <STDIN>;";
    let mut script = Script::start(script, &[&here]);
    assert_eq!(script.line(), "there");
    assert!(!free(&there));
    script.kill();
    assert!(free(&there), "a child that has inherited the file does not have the lock");
    rig.end();
}

/// Nobody is told of the closes of what was opened before, but of writers whose writes may be kept.
fn the_first_fcntl_locks_of_a_mount_go_with_their_opens(servers: Servers) {
    let Some(rig) = Rig::start(servers, "fcntl-first", 2, false) else { return };
    let [here, there] = [0, 1].map(|mount| rig.mounts()[mount].join("file"));
    let other = read_write(&there);
    let is_free = || {
        let free = fcntl_lock(&other, WITHOUT_WAITING).is_ok();
        fcntl_lock(&other, FlockOperation::Unlock).unwrap();
        free
    };
    for first in [true, false] {
        let one = File::open(&here).unwrap();
        fcntl_lock(&one, FlockOperation::LockShared).unwrap();
        // What this keeps of the file is not closed before the end.
        let mut sleep = Command::new("sleep");
        let mut heir = sleep.arg("600").stdin(one.try_clone().unwrap()).spawn().unwrap();
        assert!(!is_free());
        drop(one);
        assert_eq!(is_free(), !first);
        heir.kill().unwrap();
        heir.wait().unwrap();
        drop(sleep);
        until("the last close gives it back", is_free);
    }
    drop(other);
    rig.end();
}

fn whoever_waits_is_let_go_by_signals_and_gets_his_turn(servers: Servers) {
    let Some(rig) = Rig::start(servers, "lock-signals", 2, false) else { return };
    let [here, there] = files(&rig);
    let holder = read_write(&there);
    flock(&holder, FlockOperation::LockExclusive).unwrap();
    fcntl_lock(&holder, FlockOperation::LockExclusive).unwrap();
    // A handler without SA_RESTART ends it; with it, and at a signal that only stops, it goes on.
    for waits in ["flock($f, LOCK_EX)", "waited($f, F_WRLCK, 0, 0)"] {
        let script = format!(
            "my $f = file($ARGV[0]); my $rang = 0; \
             sigaction(SIGALRM, POSIX::SigAction->new(sub {{ $rang++ }})); alarm 1; \
             print {waits} ? 'got it' : $! == EINTR ? 'interrupted' : $!, $rang;"
        );
        assert_eq!(says(&script, &[&here]), "interrupted1", "{waits}");
        let script = format!(
            "my $f = file($ARGV[0]); my $set = POSIX::SigSet->new; \
             sigaction(SIGUSR1, POSIX::SigAction->new(sub {{}}, $set, SA_RESTART)); \
             print \"waits\\n\"; print {waits} ? \"got it\\n\" : \"$!\\n\"; <STDIN>;"
        );
        let mut again = Script::start(&script, &[&here]);
        assert_eq!(again.line(), "waits");
        std::thread::sleep(Duration::from_millis(200));
        for signal in ["USR1", "STOP", "CONT"] {
            again.signal(signal);
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(again.child.try_wait().unwrap().is_none());
        let change = |how| match waits.starts_with("flock") {
            true => flock(&holder, how),
            false => fcntl_lock(&holder, how),
        };
        change(FlockOperation::Unlock).unwrap();
        assert_eq!(again.line(), "got it", "{waits}");
        let begun = Instant::now();
        again.end();
        change(FlockOperation::LockExclusive).unwrap();
        assert!(begun.elapsed() < PATIENCE);
        // One that is killed waits no more, and takes nothing from others.
        let mut killed = Script::start(&script, &[&here]);
        assert_eq!(killed.line(), "waits");
        std::thread::sleep(Duration::from_millis(200));
        killed.kill();
        change(FlockOperation::Unlock).unwrap();
        // Its mount may tell the MDT a moment after it is gone.
        until("nobody waits any more", || change(WITHOUT_WAITING).is_ok());
    }
    drop(holder);
    rig.end();
}

fn two_who_wait_for_each_other_are_told(servers: Servers) {
    let Some(rig) = Rig::start(servers, "deadlock", 2, false) else { return };
    let [here, there] = files(&rig);
    let script = "my $f = file($ARGV[0]); my ($mine, $other) = @ARGV[1, 2]; \
                  lock($f, F_WRLCK, $mine, 1) or die $!; print \"there\\n\"; <STDIN>; \
                  print waited($f, F_WRLCK, $other, 1) ? \"got it\\n\" : $! == EDEADLK ? \
                  \"deadlock\\n\" : \"$!\\n\"; close $f; print \"closed\\n\"; <STDIN>;";
    let mut one = Script::start(script, &[&here, Path::new("0"), Path::new("5")]);
    let mut two = Script::start(script, &[&there, Path::new("5"), Path::new("0")]);
    assert_eq!((one.line(), two.line()), ("there".into(), "there".into()));
    one.go();
    std::thread::sleep(Duration::from_millis(300));
    two.go();
    assert_eq!((two.line(), two.line()), ("deadlock".into(), "closed".into()));
    assert_eq!((one.line(), one.line()), ("got it".into(), "closed".into()));
    one.end();
    two.end();
    rig.end();
}

/// Four programs on two mounts add to one number, two of them in a file under flock, two under
/// locks of fcntl: each by turns with one of the other mount.
fn a_counter_under_locks_of_both_kinds_is_right(servers: Servers) {
    const TURNS: u32 = 150;
    let Some(rig) = Rig::start(servers, "lock-count", 2, false) else { return };
    let script = "my ($kind, $turns) = @ARGV[1, 2]; my $f = file($ARGV[0]); \
        for (1 .. $turns) { \
          $kind eq 'flock' ? flock($f, LOCK_EX) : waited($f, F_WRLCK, 0, 0) or die $!; \
          sysseek($f, 0, 0); sysread($f, my $n, 20); $n = ($n || 0) + 1; \
          sysseek($f, 0, 0); syswrite($f, sprintf('%019d ', $n)) == 20 or die $!; \
          $kind eq 'flock' ? flock($f, LOCK_UN) : lock($f, F_UNLCK, 0, 0) or die $!; }";
    let mut running = Vec::new();
    for kind in ["flock", "fcntl"] {
        for mount in rig.mounts() {
            let file = mount.join(kind);
            read_write(&file);
            let turns = TURNS.to_string();
            let words = [&file, Path::new(kind), Path::new(&turns)];
            running.push(Script::start(script, &words));
        }
    }
    running.into_iter().for_each(Script::end);
    for kind in ["flock", "fcntl"] {
        let number = fs::read_to_string(rig.mnt().join(kind)).unwrap();
        assert_eq!(number.trim().parse(), Ok(2 * TURNS), "{kind}");
    }
    rig.end();
}

/// The kernel keeps those of directories and fifos to itself.
fn those_of_directories_hold_on_one_mount(servers: Servers) {
    let Some(rig) = Rig::start(servers, "lock-dir", 2, false) else { return };
    let [here, there] = [0, 1].map(|mount| rig.mounts()[mount].join("dir"));
    fs::create_dir(&here).unwrap();
    let (one, two, other) = (File::open(&here), File::open(&here), File::open(&there));
    let (one, two, other) = (one.unwrap(), two.unwrap(), other.unwrap());
    flock(&one, FlockOperation::LockExclusive).unwrap();
    assert_eq!(flock(&two, WITHOUT_WAITING), Err(Errno::WOULDBLOCK));
    flock(&other, WITHOUT_WAITING).unwrap();
    drop((one, two, other));
    rig.end();
}

/// So many wait on one processor that none would be left for others: some are told.
fn many_wait_at_once_and_the_mount_goes_on(servers: Servers) {
    const WAITING: usize = 100;
    if !tools(&["taskset"]) {
        return;
    }
    let Some(rig) = Rig::start(servers, "lock-many", 2, false) else { return };
    let [here, there] = files(&rig);
    let holder = read_write(&there);
    flock(&holder, FlockOperation::LockExclusive).unwrap();
    let script = format!(
        "for (1 .. {WAITING}) {{ next if fork; my $f = file($ARGV[0]); \
           exit(flock($f, LOCK_EX) ? 1 : $! == ENOLCK ? 2 : 3) }} \
         print \"wait\\n\"; <STDIN>; my %ends; while (wait > 0) {{ $ends{{$? >> 8}}++ }} \
         print join(' ', map {{ $ends{{$_}} || 0 }} 1 .. 3), \"\\n\";"
    );
    let mut script = Script::on_first_processor(&script, &[&here]);
    assert_eq!(script.line(), "wait");
    std::thread::sleep(Duration::from_secs(1));
    // Whoever comes to the same processor is served.
    ok(Command::new("taskset").args(["-c", "0", "stat"]).arg(&here));
    flock(&holder, FlockOperation::Unlock).unwrap();
    script.go();
    let ends: Vec<usize> = script.line().split(' ').map(|n| n.parse().unwrap()).collect();
    script.end();
    assert_eq!(ends.iter().sum::<usize>(), WAITING);
    // Over /dev/fuse all of them may wait.
    assert!(ends[0] >= 40 && ends[2] == 0, "{ends:?}");
    drop(holder);
    rig.end();
}

/// A call that locks a file.
type Locks = fn(&File, FlockOperation) -> Result<(), Errno>;

/// What each option of a mount makes of locks.
#[test]
fn a_mount_has_the_locks_that_its_options_say() {
    let Some(rig) = Rig::start(Servers::Separate, "lock-options", 1, false) else { return };
    let Rig::Separate { mut cluster, mds, oss } = rig else { panic!("separate servers") };
    let mut mount = |name: &str, option: &str| cluster.mount_with(name, &[option]).join("file");
    let (local, none) = (mount("local", "flock,localflock"), mount("none", "noflock"));
    let exact = mount("exact", "flock");
    let all = cluster.mounts[0].join("file");
    fs::write(&all, "").unwrap();
    let holder = read_write(&all);
    let kinds: [Locks; 2] = [|file, how| flock(file, how), |file, how| fcntl_lock(file, how)];
    for lock in kinds {
        lock(&holder, FlockOperation::LockExclusive).unwrap();
        let (one, two) = (read_write(&local), read_write(&local));
        lock(&one, WITHOUT_WAITING).unwrap();
        assert_eq!(lock(&read_write(&none), WITHOUT_WAITING), Err(Errno::NOSYS));
        drop((one, two));
        lock(&holder, FlockOperation::Unlock).unwrap();
    }
    // With `flock` the first lock goes with any close, too.
    let (one, two) = (read_write(&exact), read_write(&exact));
    let other = read_write(&all);
    fcntl_lock(&one, FlockOperation::LockExclusive).unwrap();
    assert_eq!(fcntl_lock(&other, WITHOUT_WAITING), Err(Errno::AGAIN));
    drop(two);
    // Which waits for that, but not for long: processors are busy beside other tests.
    until("a close gives back what is locked", || fcntl_lock(&other, WITHOUT_WAITING).is_ok());
    drop((one, other));
    let (one, two) = (read_write(&local), read_write(&local));
    flock(&one, WITHOUT_WAITING).unwrap();
    assert_eq!(flock(&two, WITHOUT_WAITING), Err(Errno::WOULDBLOCK));
    drop((one, two, holder));
    drop(cluster.finish([oss, mds]));
}

//! Descriptors: what goes on behind them when the other takes the name away, and files that have
//! none; programs that run.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::{Command, Stdio};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, fchmod, fsetxattr, linkat, openat};
use rustix::io::Errno;
use sateen_testkit::cluster::until;

use crate::side::{PAGE, Side, bytes, cases, fails, piece, shows, warm};

cases!(
    a_removed_file_is_read_on,
    a_removed_file_is_written_on,
    a_removed_file_is_shared_by_two_descriptors,
    a_removed_file_is_cut_and_longer_again,
    a_removed_file_is_synced,
    a_removed_file_changes_its_mode,
    a_removed_file_keeps_attributes,
    a_removed_file_gets_no_name,
    a_removed_file_has_no_links_for_both,
    many_removed_files_stay_open,
    a_removed_file_beside_its_successor,
    a_file_that_was_renamed_over_goes_on,
    a_descriptor_without_access_sees_what_becomes_of_it,
    a_descriptor_is_opened_again,
    a_descriptor_reads_on_after_chmod,
    a_file_without_a_name_is_not_seen,
    a_file_without_a_name_gets_one,
    a_file_without_a_name_does_not_replace,
    a_file_without_a_name_in_the_others_directory,
    a_file_without_a_name_is_written_after_it_has_one,
    a_name_of_a_nameless_file_is_removed,
    a_running_program_is_not_written,
    a_running_program_is_replaced,
    a_program_changed_by_the_other_runs_changed,
    a_program_open_for_writing_elsewhere_runs,
    a_removed_program_runs_on,
    a_script_changed_by_the_other_runs_changed,
);

fn a_removed_file_is_read_on(a: &Side, b: &Side) {
    let content = bytes(1, 3 * PAGE);
    a.write("f", &content);
    let file = b.open("f");
    a.unlink("f");
    shows(&file, &content);
    b.missing("f");
}

fn a_removed_file_is_written_on(a: &Side, b: &Side) {
    a.write("f", "one");
    let file = b.open_rw("f");
    a.unlink("f");
    file.write_all_at(b"written", 2).unwrap();
    shows(&file, "onwritten");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
}

fn a_removed_file_is_shared_by_two_descriptors(a: &Side, b: &Side) {
    a.write("f", "one");
    let [here, there] = [a, b].map(|side| side.open_rw("f"));
    a.unlink("f");
    for round in 0..5 {
        let content = bytes(round, 1000 * (round + 1));
        here.write_all_at(&content, 0).unwrap();
        shows(&there, &content);
        there.write_all_at(b"there", 500).unwrap();
        assert_eq!(piece(&here, 500, 5), b"there");
    }
}

fn a_removed_file_is_cut_and_longer_again(a: &Side, b: &Side) {
    a.write("f", bytes(1, PAGE));
    let [here, there] = [a, b].map(|side| side.open_rw("f"));
    b.unlink("f");
    here.set_len(3).unwrap();
    shows(&there, bytes(1, 3));
    there.set_len(10).unwrap();
    assert_eq!(piece(&here, 3, 20), [0; 7]);
}

fn a_removed_file_is_synced(a: &Side, b: &Side) {
    a.write("f", "one");
    let file = b.open_rw("f");
    a.unlink("f");
    file.write_all_at(b"two", 0).unwrap();
    file.sync_all().unwrap();
    shows(&file, "two");
}

fn a_removed_file_changes_its_mode(a: &Side, b: &Side) {
    a.write("f", "one");
    let [here, there] = [a, b].map(|side| side.open("f"));
    a.unlink("f");
    assert_eq!(there.metadata().unwrap().mode() & 0o777, 0o644);
    fchmod(&here, Mode::from_raw_mode(0o600)).unwrap();
    assert_eq!(there.metadata().unwrap().mode() & 0o777, 0o600);
}

fn a_removed_file_keeps_attributes(a: &Side, b: &Side) {
    a.write("f", "one");
    a.set("f", "user.a", "value");
    let [here, there] = [a, b].map(|side| side.open("f"));
    a.unlink("f");
    let get = |name: &str| {
        let mut value = [0; 10];
        rustix::fs::fgetxattr(&there, name, &mut value).map(|len| value[..len].to_vec())
    };
    assert_eq!(get("user.a").unwrap(), b"value");
    fsetxattr(&here, "user.b", b"more", rustix::fs::XattrFlags::empty()).unwrap();
    assert_eq!(get("user.b").unwrap(), b"more");
}

/// Gives an open file a name by way of its descriptor.
fn link_open(file: &File, side: &Side, name: &str) -> Result<(), Errno> {
    let fd = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, fd, CWD, side.at(name), AtFlags::SYMLINK_FOLLOW)
}

fn a_removed_file_gets_no_name(a: &Side, b: &Side) {
    a.write("f", "one");
    let file = b.open("f");
    a.unlink("f");
    fails(link_open(&file, b, "g"), Errno::NOENT);
    a.missing("g");
}

fn a_removed_file_has_no_links_for_both(a: &Side, b: &Side) {
    a.write("f", "one");
    b.link("f", "g");
    let files = [a, b].map(|side| side.open("f"));
    a.unlink("f");
    assert_eq!(files.each_ref().map(|file| file.metadata().unwrap().nlink()), [1, 1]);
    b.unlink("g");
    assert_eq!(files.each_ref().map(|file| file.metadata().unwrap().nlink()), [0, 0]);
}

fn many_removed_files_stay_open(a: &Side, b: &Side) {
    let mut files = Vec::new();
    for number in 0..30 {
        let name = format!("f{number}");
        a.write(&name, bytes(number, 100 + number));
        files.push(b.open(&name));
    }
    for number in 0..30 {
        a.unlink(format!("f{number}"));
    }
    b.lists(".", &[]);
    for (number, file) in files.iter().enumerate() {
        shows(file, bytes(number, 100 + number));
    }
}

fn a_removed_file_beside_its_successor(a: &Side, b: &Side) {
    let mut files = Vec::new();
    for round in 0..5 {
        a.write("f", bytes(round, 100));
        files.push(b.open("f"));
        a.unlink("f");
        b.missing("f");
    }
    for (round, file) in files.iter().enumerate() {
        shows(file, bytes(round, 100));
    }
}

fn a_file_that_was_renamed_over_goes_on(a: &Side, b: &Side) {
    a.write("f", "old");
    a.write("g", "new");
    let file = b.open_rw("f");
    let _open = warm(a, b);
    a.rename("g", "f");
    file.write_all_at(b"er", 3).unwrap();
    shows(&file, "older");
    b.holds("f", "new");
    a.holds("f", "new");
}

fn a_descriptor_without_access_sees_what_becomes_of_it(a: &Side, b: &Side) {
    a.write("f", "one");
    let path = b.opened("f", OFlags::PATH);
    let size = || path.metadata().unwrap().len();
    assert_eq!(size(), 3);
    a.append("f", "two");
    assert_eq!(size(), 6);
    a.chmod("f", 0o600);
    assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
    a.rename("f", "g");
    let again = fs::read(format!("/proc/self/fd/{}", path.as_raw_fd())).unwrap();
    assert_eq!(again, b"onetwo");
}

fn a_descriptor_is_opened_again(a: &Side, b: &Side) {
    a.write("f", "one");
    let file = b.open("f");
    a.rename("f", "g");
    a.write("f", "another");
    let again = || fs::read(format!("/proc/self/fd/{}", file.as_raw_fd()));
    assert_eq!(again().unwrap(), b"one");
    a.put("g", 0, "two");
    assert_eq!(again().unwrap(), b"two");
    a.unlink("g");
    assert_eq!(again().unwrap(), b"two");
}

fn a_descriptor_reads_on_after_chmod(a: &Side, b: &Side) {
    a.write("f", "one");
    let file = b.open_rw("f");
    a.chmod("f", 0);
    a.chown("f", 1000, 1000);
    shows(&file, "one");
    file.write_all_at(b"two", 0).unwrap();
    a.holds("f", "two");
}

fn nameless(side: &Side, folder: &str) -> File {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    File::from(openat(CWD, side.at(folder), flags, Mode::from_raw_mode(0o640)).unwrap())
}

fn a_file_without_a_name_is_not_seen(a: &Side, b: &Side) {
    let before = b.stat(".");
    let file = nameless(a, ".");
    file.write_all_at(b"one", 0).unwrap();
    b.lists(".", &[]);
    assert_eq!(crate::side::modified(&b.stat(".")), crate::side::modified(&before));
}

fn a_file_without_a_name_gets_one(a: &Side, b: &Side) {
    b.missing("f");
    let file = nameless(a, ".");
    file.write_all_at(b"one", 0).unwrap();
    link_open(&file, a, "f").unwrap();
    b.holds("f", "one");
    assert_eq!((b.nlink("f"), b.mode("f")), (1, 0o640));
    assert_eq!(b.ino("f"), file.metadata().unwrap().ino());
}

fn a_file_without_a_name_does_not_replace(a: &Side, b: &Side) {
    a.missing("f");
    b.write("f", "other");
    let file = nameless(a, ".");
    fails(link_open(&file, a, "f"), Errno::EXIST);
    b.unlink("f");
    link_open(&file, a, "f").unwrap();
    b.holds("f", "");
}

fn a_file_without_a_name_in_the_others_directory(a: &Side, b: &Side) {
    b.missing("d");
    a.mkdir("d");
    let file = nameless(b, "d");
    file.write_all_at(b"one", 0).unwrap();
    a.mkdir("e");
    link_open(&file, b, "e/f").unwrap();
    a.holds("e/f", "one");
    a.lists("d", &[]);
}

fn a_file_without_a_name_is_written_after_it_has_one(a: &Side, b: &Side) {
    let file = nameless(a, ".");
    link_open(&file, a, "f").unwrap();
    b.holds("f", "");
    for round in 1..5 {
        let content = bytes(round, 1000 * round);
        file.write_all_at(&content, 0).unwrap();
        b.holds("f", &content);
    }
}

fn a_name_of_a_nameless_file_is_removed(a: &Side, b: &Side) {
    let file = nameless(a, ".");
    file.write_all_at(b"one", 0).unwrap();
    link_open(&file, a, "f").unwrap();
    b.holds("f", "one");
    b.unlink("f");
    a.missing("f");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    shows(&file, "one");
    fails(link_open(&file, a, "g"), Errno::NOENT);
}

/// A program on `a`, copied by another process, which has it open for writing no longer.
fn program(side: &Side, from: &str, name: &str) {
    let output = Command::new("cp").arg(from).arg(side.at(name)).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn a_running_program_is_not_written(a: &Side, b: &Side) {
    program(a, "/bin/sleep", "sleep");
    warm(a, b);
    let mut running = Command::new(a.at("sleep")).arg("600").spawn().unwrap();
    let refused = b.open_with("sleep", OFlags::WRONLY).map(drop);
    running.kill().unwrap();
    running.wait().unwrap();
    fails(refused, Errno::TXTBSY);
    // The kernel says later that nobody runs it any more.
    until("it can be written", || b.open_with("sleep", OFlags::WRONLY).is_ok());
}

fn a_running_program_is_replaced(a: &Side, b: &Side) {
    program(a, "/bin/sleep", "program");
    let mut running = Command::new(a.at("program")).arg("600").spawn().unwrap();
    program(b, "/bin/echo", "new");
    b.rename("new", "program");
    let output = Command::new(a.at("program")).arg("600").output();
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(output.unwrap().stdout, b"600\n");
}

fn a_program_changed_by_the_other_runs_changed(a: &Side, b: &Side) {
    program(a, "/bin/true", "program");
    assert!(Command::new(b.at("program")).status().unwrap().success());
    // Who runs it is forgotten later.
    until("it can be written", || {
        Command::new("cp").arg("/bin/false").arg(a.at("program")).output().unwrap().status.success()
    });
    assert!(!Command::new(b.at("program")).status().unwrap().success());
}

fn a_program_open_for_writing_elsewhere_runs(a: &Side, b: &Side) {
    program(a, "/bin/true", "program");
    let writing = a.open_rw("program");
    assert!(Command::new(b.at("program")).status().unwrap().success());
    let here = Command::new(a.at("program")).status().map_err(|error: io::Error| error.kind());
    assert_eq!(here.unwrap_err(), io::ErrorKind::ExecutableFileBusy);
    drop(writing);
}

fn a_removed_program_runs_on(a: &Side, b: &Side) {
    program(a, "/bin/cat", "program");
    let mut command = Command::new(a.at("program"));
    let mut running = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    b.unlink("program");
    a.missing("program");
    let mut input = running.stdin.take().unwrap();
    input.write_all(b"through it").unwrap();
    drop(input);
    assert_eq!(running.wait_with_output().unwrap().stdout, b"through it");
}

fn a_script_changed_by_the_other_runs_changed(a: &Side, b: &Side) {
    a.write("script", "#!/bin/sh\necho one\n");
    a.chmod("script", 0o755);
    let said = || Command::new(b.at("script")).output().unwrap().stdout;
    assert_eq!(said(), b"one\n");
    a.write("script", "#!/bin/sh\necho the other\n");
    assert_eq!(said(), b"the other\n");
}

//! Names that come, go, and come to mean something else.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirEntryExt, FileTypeExt, MetadataExt};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, linkat, mknodat};
use rustix::io::Errno;

use crate::side::{Side, cases, fails, make_new, warm};

cases!(
    a_new_file_is_found,
    a_new_file_is_listed,
    a_file_made_by_mknod_is_found,
    a_fifo_is_found,
    a_socket_is_found,
    a_character_device_is_found,
    a_block_device_is_found,
    a_new_directory_is_found,
    a_directory_in_a_new_directory_is_found,
    a_symbolic_link_is_found,
    a_symbolic_link_of_the_longest_path,
    a_dangling_link_gets_its_target,
    a_link_loses_its_target,
    a_link_by_way_of_a_directory_that_was_missing,
    a_hard_link_is_found,
    a_hard_link_of_a_symbolic_link,
    a_hard_link_in_another_directory,
    a_hard_link_survives_the_first_name,
    links_are_counted_as_they_come,
    links_are_counted_as_they_go,
    a_removed_file_is_gone,
    a_removed_file_is_not_listed,
    a_removed_symbolic_link_is_gone,
    a_removed_fifo_is_gone,
    a_removed_directory_is_gone,
    a_file_made_anew_is_another,
    a_directory_made_anew_is_empty,
    a_directory_filled_by_the_other_is_not_removed,
    a_directory_emptied_by_the_other_is_removed,
    an_exclusive_create_meets_the_others_file,
    an_exclusive_create_after_a_removal,
    an_exclusive_create_meets_the_others_link,
    a_plain_create_opens_the_others_file,
    a_truncating_create_empties_the_others_file,
    mkdir_meets_the_others_name,
    symlink_meets_the_others_name,
    link_meets_the_others_name,
    mknod_meets_the_others_name,
    unlink_of_what_is_gone,
    rmdir_of_what_is_gone,
    link_of_what_is_gone,
    unlink_of_a_file_that_became_a_directory,
    rmdir_of_a_directory_that_became_a_file,
    a_file_becomes_a_directory,
    a_directory_becomes_a_file,
    a_file_becomes_a_symbolic_link,
    a_symbolic_link_becomes_a_file,
    a_way_through_a_directory_that_became_a_file,
    no_create_in_a_removed_directory,
    a_create_in_the_others_new_directory,
    a_name_of_255_bytes,
    a_name_of_256_bytes_is_refused_to_both,
    a_name_that_is_not_utf8,
    names_that_differ_by_little,
    a_tree_of_forty_levels,
    many_names_that_were_missing,
    a_name_made_and_removed_by_turns,
    a_name_made_here_and_removed_there,
    inode_numbers_are_the_same,
    a_mode_is_what_was_asked_for,
);

fn a_new_file_is_found(a: &Side, b: &Side) {
    b.missing("f");
    a.write("f", "one");
    b.holds("f", "one");
}

fn a_new_file_is_listed(a: &Side, b: &Side) {
    a.write("f", "");
    b.lists(".", &["f"]);
    a.write("g", "");
    b.lists(".", &["f", "g"]);
}

fn a_file_made_by_mknod_is_found(a: &Side, b: &Side) {
    b.missing("f");
    a.mknod("f", FileType::RegularFile, 0);
    assert_eq!((b.kind("f").is_file(), b.size("f"), b.mode("f")), (true, 0, 0o640));
    b.write("f", "written");
    a.holds("f", "written");
}

fn a_fifo_is_found(a: &Side, b: &Side) {
    b.missing("f");
    a.mknod("f", FileType::Fifo, 0);
    assert!(b.kind("f").is_fifo());
}

fn a_socket_is_found(a: &Side, b: &Side) {
    b.missing("f");
    a.mknod("f", FileType::Socket, 0);
    assert!(b.kind("f").is_socket());
}

fn a_character_device_is_found(a: &Side, b: &Side) {
    b.missing("f");
    a.mknod("f", FileType::CharacterDevice, rustix::fs::makedev(10, 300));
    assert!(b.kind("f").is_char_device());
    assert_eq!(b.stat("f").rdev(), rustix::fs::makedev(10, 300));
}

fn a_block_device_is_found(a: &Side, b: &Side) {
    b.missing("f");
    a.mknod("f", FileType::BlockDevice, rustix::fs::makedev(7, 200));
    assert!(b.kind("f").is_block_device());
    assert_eq!(b.stat("f").rdev(), rustix::fs::makedev(7, 200));
}

fn a_new_directory_is_found(a: &Side, b: &Side) {
    b.missing("d");
    b.missing("d/f");
    a.mkdir("d");
    assert!(b.kind("d").is_dir());
    b.lists("d", &[]);
}

fn a_directory_in_a_new_directory_is_found(a: &Side, b: &Side) {
    b.missing("d/e");
    a.mkdir("d");
    b.missing("d/e");
    a.mkdir("d/e");
    b.lists("d/e", &[]);
    b.mkdir("d/e/f");
    a.lists("d/e", &["f"]);
}

fn a_symbolic_link_is_found(a: &Side, b: &Side) {
    b.missing("l");
    a.symlink("some/where", "l");
    b.points("l", "some/where");
    assert_eq!(b.size("l"), "some/where".len() as u64);
}

fn a_symbolic_link_of_the_longest_path(a: &Side, b: &Side) {
    let long = "x/".repeat(2047);
    b.missing("l");
    a.symlink(&long, "l");
    b.points("l", &long);
}

fn a_dangling_link_gets_its_target(a: &Side, b: &Side) {
    a.symlink("f", "l");
    b.points("l", "f");
    fails(fs::read(b.at("l")), Errno::NOENT);
    a.write("f", "there");
    assert_eq!(fs::read(b.at("l")).unwrap(), b"there");
}

fn a_link_loses_its_target(a: &Side, b: &Side) {
    a.write("f", "there");
    a.symlink("f", "l");
    assert_eq!(fs::read(b.at("l")).unwrap(), b"there");
    a.unlink("f");
    fails(fs::read(b.at("l")), Errno::NOENT);
    fails(fs::metadata(b.at("l")), Errno::NOENT);
    b.points("l", "f");
}

fn a_link_by_way_of_a_directory_that_was_missing(a: &Side, b: &Side) {
    a.symlink("d/f", "l");
    fails(fs::read(b.at("l")), Errno::NOENT);
    a.mkdir("d");
    fails(fs::read(b.at("l")), Errno::NOENT);
    a.write("d/f", "there");
    assert_eq!(fs::read(b.at("l")).unwrap(), b"there");
}

fn a_hard_link_is_found(a: &Side, b: &Side) {
    a.write("f", "one");
    warm(a, b);
    b.missing("g");
    a.link("f", "g");
    b.holds("g", "one");
    assert_eq!((b.nlink("f"), b.nlink("g")), (2, 2));
    assert_eq!(b.ino("f"), b.ino("g"));
    b.write("g", "other");
    a.holds("f", "other");
}

fn a_hard_link_of_a_symbolic_link(a: &Side, b: &Side) {
    a.symlink("nowhere", "l");
    warm(a, b);
    b.missing("m");
    linkat(CWD, a.at("l"), CWD, a.at("m"), AtFlags::empty()).unwrap();
    b.points("m", "nowhere");
    assert_eq!((b.nlink("l"), b.ino("l")), (2, a.ino("m")));
}

fn a_hard_link_in_another_directory(a: &Side, b: &Side) {
    a.mkdir("d");
    a.write("f", "one");
    let open = warm(a, b);
    b.missing("d/g");
    a.link("f", "d/g");
    b.lists("d", &["g"]);
    b.holds("d/g", "one");
    assert_eq!(b.nlink("f"), 2);
    drop(open);
}

fn a_hard_link_survives_the_first_name(a: &Side, b: &Side) {
    a.write("f", "one");
    a.link("f", "g");
    let open = warm(a, b);
    a.unlink("f");
    b.missing("f");
    b.holds("g", "one");
    assert_eq!(b.nlink("g"), 1);
    drop(open);
}

fn links_are_counted_as_they_come(a: &Side, b: &Side) {
    a.write("f", "one");
    let file = b.open("f");
    for number in 2..6 {
        let name = format!("g{number}");
        b.missing(&name);
        let side = if number % 2 == 0 { a } else { b };
        side.link("f", &name);
        assert_eq!((a.nlink("f"), b.nlink("f")), (number, number));
        assert_eq!(file.metadata().unwrap().nlink(), number);
    }
}

fn links_are_counted_as_they_go(a: &Side, b: &Side) {
    a.write("f", "one");
    for name in ["g", "h", "i"] {
        a.link("f", name);
    }
    let file = b.open("i");
    let _open = warm(a, b);
    for (left, name) in [(3, "f"), (2, "g"), (1, "h"), (0, "i")] {
        a.unlink(name);
        b.missing(name);
        assert_eq!(file.metadata().unwrap().nlink(), left);
    }
}

fn a_removed_file_is_gone(a: &Side, b: &Side) {
    a.write("f", "one");
    warm(a, b);
    a.unlink("f");
    b.missing("f");
}

fn a_removed_file_is_not_listed(a: &Side, b: &Side) {
    a.write("f", "one");
    a.write("g", "one");
    let _open = warm(a, b);
    a.unlink("f");
    b.lists(".", &["g"]);
    a.unlink("g");
    b.lists(".", &[]);
}

fn a_removed_symbolic_link_is_gone(a: &Side, b: &Side) {
    a.write("f", "one");
    a.symlink("f", "l");
    let _open = warm(a, b);
    assert_eq!(fs::read(b.at("l")).unwrap(), b"one");
    a.unlink("l");
    b.missing("l");
    b.holds("f", "one");
}

fn a_removed_fifo_is_gone(a: &Side, b: &Side) {
    a.mknod("f", FileType::Fifo, 0);
    warm(a, b);
    a.unlink("f");
    b.missing("f");
    b.lists(".", &[]);
}

fn a_removed_directory_is_gone(a: &Side, b: &Side) {
    a.mkdir("d");
    warm(a, b);
    a.rmdir("d");
    b.missing("d");
    b.missing("d/f");
    b.lists(".", &[]);
}

fn a_file_made_anew_is_another(a: &Side, b: &Side) {
    a.write("f", "the old content");
    let before = b.ino("f");
    let old = b.open("f");
    let _open = warm(a, b);
    a.unlink("f");
    a.write("f", "new");
    b.holds("f", "new");
    assert_ne!(b.ino("f"), before);
    crate::side::shows(&old, "the old content");
}

fn a_directory_made_anew_is_empty(a: &Side, b: &Side) {
    a.mkdir("d");
    a.write("d/f", "one");
    warm(a, b);
    a.unlink("d/f");
    a.rmdir("d");
    a.mkdir("d");
    b.lists("d", &[]);
    b.missing("d/f");
    b.write("d/f", "two");
    a.holds("d/f", "two");
}

fn a_directory_filled_by_the_other_is_not_removed(a: &Side, b: &Side) {
    a.mkdir("d");
    b.lists("d", &[]);
    a.write("d/f", "one");
    fails(fs::remove_dir(b.at("d")), Errno::NOTEMPTY);
    a.holds("d/f", "one");
}

fn a_directory_emptied_by_the_other_is_removed(a: &Side, b: &Side) {
    a.mkdir("d");
    a.write("d/f", "one");
    let open = warm(a, b);
    a.unlink("d/f");
    drop(open);
    b.rmdir("d");
    a.missing("d");
}

fn an_exclusive_create_meets_the_others_file(a: &Side, b: &Side) {
    b.missing("f");
    a.write("f", "one");
    fails(make_new(&b.at("f")), Errno::EXIST);
    b.holds("f", "one");
}

fn an_exclusive_create_after_a_removal(a: &Side, b: &Side) {
    a.write("f", "one");
    warm(a, b);
    a.unlink("f");
    make_new(&b.at("f")).unwrap();
    a.holds("f", "");
}

fn an_exclusive_create_meets_the_others_link(a: &Side, b: &Side) {
    b.missing("f");
    a.symlink("nowhere", "f");
    fails(make_new(&b.at("f")), Errno::EXIST);
    b.missing("nowhere");
}

fn a_plain_create_opens_the_others_file(a: &Side, b: &Side) {
    b.missing("f");
    a.write("f", "one");
    let file = b.opened("f", OFlags::CREATE | OFlags::RDWR);
    crate::side::shows(&file, "one");
}

fn a_truncating_create_empties_the_others_file(a: &Side, b: &Side) {
    b.missing("f");
    a.write("f", "one");
    let old = a.open("f");
    crate::side::shows(&old, "one");
    drop(b.opened("f", OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY));
    crate::side::shows(&old, "");
    a.holds("f", "");
}

/// Makes something of each kind on `a` under a name that `b` knows to be missing, and tries `what`
/// of it on `b`.
fn meets(a: &Side, b: &Side, what: impl Fn(&Side, &str) -> Result<(), Errno>) {
    for name in ["file", "folder", "link"] {
        b.missing(name);
    }
    a.write("file", "one");
    a.mkdir("folder");
    a.symlink("file", "link");
    for name in ["file", "folder", "link"] {
        fails(what(b, name), Errno::EXIST);
    }
}

fn mkdir_meets_the_others_name(a: &Side, b: &Side) {
    meets(a, b, |b, name| rustix::fs::mkdir(b.at(name), Mode::from_raw_mode(0o755)));
}

fn symlink_meets_the_others_name(a: &Side, b: &Side) {
    meets(a, b, |b, name| rustix::fs::symlink("nowhere", b.at(name)));
}

fn link_meets_the_others_name(a: &Side, b: &Side) {
    b.write("own", "own");
    meets(a, b, |b, name| rustix::fs::link(b.at("own"), b.at(name)));
    assert_eq!(a.nlink("own"), 1);
}

fn mknod_meets_the_others_name(a: &Side, b: &Side) {
    meets(a, b, |b, name| mknodat(CWD, b.at(name), FileType::Fifo, Mode::from_raw_mode(0o600), 0));
}

fn unlink_of_what_is_gone(a: &Side, b: &Side) {
    a.write("f", "one");
    warm(a, b);
    a.unlink("f");
    fails(fs::remove_file(b.at("f")), Errno::NOENT);
}

fn rmdir_of_what_is_gone(a: &Side, b: &Side) {
    a.mkdir("d");
    warm(a, b);
    a.rmdir("d");
    fails(fs::remove_dir(b.at("d")), Errno::NOENT);
}

fn link_of_what_is_gone(a: &Side, b: &Side) {
    a.write("f", "one");
    warm(a, b);
    a.unlink("f");
    fails(fs::hard_link(b.at("f"), b.at("g")), Errno::NOENT);
    a.missing("g");
}

fn unlink_of_a_file_that_became_a_directory(a: &Side, b: &Side) {
    a.write("f", "one");
    warm(a, b);
    a.unlink("f");
    a.mkdir("f");
    fails(fs::remove_file(b.at("f")), Errno::ISDIR);
    b.rmdir("f");
    a.missing("f");
}

fn rmdir_of_a_directory_that_became_a_file(a: &Side, b: &Side) {
    a.mkdir("d");
    warm(a, b);
    a.rmdir("d");
    a.write("d", "one");
    fails(fs::remove_dir(b.at("d")), Errno::NOTDIR);
    b.unlink("d");
    a.missing("d");
}

fn a_file_becomes_a_directory(a: &Side, b: &Side) {
    a.write("f", "one");
    let _open = warm(a, b);
    a.unlink("f");
    a.mkdir("f");
    a.write("f/g", "two");
    assert!(b.kind("f").is_dir());
    b.lists("f", &["g"]);
    b.holds("f/g", "two");
}

fn a_directory_becomes_a_file(a: &Side, b: &Side) {
    a.mkdir("d");
    b.missing("d/f");
    warm(a, b);
    a.rmdir("d");
    a.write("d", "one");
    b.holds("d", "one");
    fails(b.open_with("d", OFlags::DIRECTORY), Errno::NOTDIR);
    fails(fs::metadata(b.at("d/f")), Errno::NOTDIR);
}

fn a_file_becomes_a_symbolic_link(a: &Side, b: &Side) {
    a.write("f", "one");
    a.write("g", "two");
    let _open = warm(a, b);
    a.unlink("f");
    a.symlink("g", "f");
    b.points("f", "g");
    assert_eq!(fs::read(b.at("f")).unwrap(), b"two");
    fails(b.open_with("f", OFlags::NOFOLLOW), Errno::LOOP);
}

fn a_symbolic_link_becomes_a_file(a: &Side, b: &Side) {
    a.write("g", "two");
    a.symlink("g", "f");
    warm(a, b);
    assert_eq!(fs::read(b.at("f")).unwrap(), b"two");
    a.unlink("f");
    a.write("f", "one");
    b.holds("f", "one");
    fails(fs::read_link(b.at("f")), Errno::INVAL);
    b.write("f", "changed");
    a.holds("g", "two");
}

fn a_way_through_a_directory_that_became_a_file(a: &Side, b: &Side) {
    a.mkdir("d");
    a.write("d/f", "one");
    warm(a, b);
    a.unlink("d/f");
    a.rmdir("d");
    a.write("d", "");
    fails(fs::read(b.at("d/f")), Errno::NOTDIR);
    fails(make_new(&b.at("d/g")), Errno::NOTDIR);
}

fn no_create_in_a_removed_directory(a: &Side, b: &Side) {
    a.mkdir("d");
    b.missing("d/f");
    warm(a, b);
    a.rmdir("d");
    fails(make_new(&b.at("d/f")), Errno::NOENT);
    fails(fs::create_dir(b.at("d/f")), Errno::NOENT);
    fails(rustix::fs::symlink("nowhere", b.at("d/f")), Errno::NOENT);
}

fn a_create_in_the_others_new_directory(a: &Side, b: &Side) {
    b.missing("d");
    fails(make_new(&b.at("d/f")), Errno::NOENT);
    a.mkdir("d");
    b.write("d/f", "one");
    a.holds("d/f", "one");
}

fn a_name_of_255_bytes(a: &Side, b: &Side) {
    let long = "n".repeat(255);
    b.missing(&long);
    a.write(&long, "one");
    b.holds(&long, "one");
    b.lists(".", &[&long]);
    let other = "ä".repeat(127);
    b.rename(&long, &other);
    a.missing(&long);
    a.holds(&other, "one");
}

fn a_name_of_256_bytes_is_refused_to_both(a: &Side, b: &Side) {
    let long = "n".repeat(256);
    for side in [a, b] {
        fails(make_new(&side.at(&long)), Errno::NAMETOOLONG);
        fails(fs::symlink_metadata(side.at(&long)), Errno::NAMETOOLONG);
        side.lists(".", &[]);
    }
}

fn a_name_that_is_not_utf8(a: &Side, b: &Side) {
    let name = OsStr::from_bytes(b"\xff\xfe \x01\n\x80");
    b.missing(name);
    a.write(name, "one");
    b.holds(name, "one");
    assert_eq!(crate::side::names_in(&b.at(".")), [name]);
    b.unlink(name);
    a.missing(name);
}

fn names_that_differ_by_little(a: &Side, b: &Side) {
    let names = ["\n", " ", "  ", " a", "...", "A", "a", "a ", "a.", "\u{e4}", "a\u{308}"];
    for name in names {
        b.missing(name);
        a.write(name, name);
    }
    for name in names {
        b.holds(name, name);
    }
    let mut sorted = names;
    sorted.sort();
    b.lists(".", &sorted);
}

fn a_tree_of_forty_levels(a: &Side, b: &Side) {
    let path = "deep/".repeat(40);
    b.missing(&path);
    fs::create_dir_all(a.at(&path)).unwrap();
    b.lists(&path, &[]);
    b.write(format!("{path}f"), "one");
    a.holds(format!("{path}f"), "one");
    fs::remove_dir_all(a.at("deep")).unwrap();
    b.missing(&path);
    b.missing("deep");
}

fn many_names_that_were_missing(a: &Side, b: &Side) {
    let names: Vec<String> = (100..200).map(|number| format!("f{number}")).collect();
    for name in &names {
        b.missing(name);
    }
    for name in &names {
        a.mknod(name, FileType::RegularFile, 0);
    }
    for name in &names {
        assert!(b.kind(name).is_file());
    }
    b.lists(".", &names.iter().map(String::as_str).collect::<Vec<_>>());
}

fn a_name_made_and_removed_by_turns(a: &Side, b: &Side) {
    for _ in 0..10 {
        for (one, other) in [(a, b), (b, a)] {
            other.missing("f");
            one.write("f", "one");
            other.holds("f", "one");
            other.lists(".", &["f"]);
            one.unlink("f");
        }
    }
}

fn a_name_made_here_and_removed_there(a: &Side, b: &Side) {
    for round in 0..10 {
        b.missing("d");
        a.mkdir("d");
        a.write("d/f", [round]);
        b.holds("d/f", [round]);
        b.unlink("d/f");
        a.missing("d/f");
        b.rmdir("d");
        a.missing("d");
    }
}

fn inode_numbers_are_the_same(a: &Side, b: &Side) {
    a.write("file", "one");
    b.mkdir("folder");
    a.symlink("file", "link");
    b.mknod("fifo", FileType::Fifo, 0);
    for name in [".", "file", "folder", "link", "fifo"] {
        assert_eq!(a.ino(name), b.ino(name), "{name}");
    }
    for side in [a, b] {
        for entry in fs::read_dir(side.at(".")).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(entry.ino(), side.ino(entry.file_name()), "{:?}", entry.file_name());
        }
    }
}

fn a_mode_is_what_was_asked_for(a: &Side, b: &Side) {
    for mode in [0o000, 0o400, 0o604, 0o755] {
        let name = format!("{mode:o}");
        b.missing(&name);
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        drop(rustix::fs::open(a.at(&name), flags, Mode::from_raw_mode(mode)).unwrap());
        // Nothing in these modes is taken away by the usual masks.
        assert_eq!(b.mode(&name), mode);
    }
}

//! Directories: what is listed while the other changes them, their counts and their times.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, mkdirat, statat, unlinkat};
use rustix::io::Errno;

use crate::side::{Side, cases, changed, fails, modified, open_in, shows, warm};

cases!(
    a_list_by_the_same_descriptor,
    a_list_goes_on_while_names_come,
    a_list_goes_on_while_names_go,
    a_place_in_a_list_stays,
    a_place_in_a_list_whose_name_is_gone,
    a_list_of_all_kinds,
    a_list_of_five_hundred,
    a_list_begins_with_itself_and_its_parent,
    an_empty_directory_is_listed,
    a_list_after_all_was_removed,
    directories_are_counted_as_they_come,
    directories_are_counted_as_they_go,
    files_are_not_counted_in_directories,
    a_create_changes_the_directorys_times,
    a_removal_changes_the_directorys_times,
    a_mkdir_changes_the_directorys_times,
    an_rmdir_changes_the_directorys_times,
    a_link_changes_the_directorys_times,
    a_symlink_changes_the_directorys_times,
    a_write_leaves_the_directorys_times,
    names_below_a_descriptor_come_and_go,
    a_stat_by_a_descriptor_of_a_directory,
    a_mkdir_by_a_descriptor,
    an_unlink_by_a_descriptor,
    a_removed_directory_takes_nothing,
    a_directory_removed_under_a_descriptor,
    a_directory_replaced_under_a_descriptor,
    the_parent_by_a_descriptor,
    a_tree_removed_by_the_other,
    two_levels_that_change_by_turns,
);

/// The names that a descriptor lists, from its beginning.
#[track_caller]
fn listed(dir: &mut Dir) -> Vec<String> {
    dir.rewind();
    let names = dir.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned());
    let mut names: Vec<_> = names.filter(|name| name != "." && name != "..").collect();
    names.sort();
    names
}

fn make(side: &Side, names: impl Iterator<Item = String>) {
    for name in names {
        side.mknod(&name, FileType::RegularFile, 0);
    }
}

fn a_list_by_the_same_descriptor(a: &Side, b: &Side) {
    let mut dir = Dir::new(b.open(".")).unwrap();
    assert_eq!(listed(&mut dir), [""; 0]);
    a.write("f", "");
    assert_eq!(listed(&mut dir), ["f"]);
    a.mkdir("d");
    assert_eq!(listed(&mut dir), ["d", "f"]);
    a.rename("f", "g");
    assert_eq!(listed(&mut dir), ["d", "g"]);
    a.unlink("g");
    a.rmdir("d");
    assert_eq!(listed(&mut dir), [""; 0]);
}

/// Reads some names, has the other do something, and reads on: how often each name came.
fn read_between(b: &Side, what: impl FnOnce()) -> BTreeMap<String, u32> {
    let mut dir = Dir::new(b.open(".")).unwrap();
    let mut times = BTreeMap::new();
    let mut next = |dir: &mut Dir| {
        let entry = dir.next()?.unwrap();
        *times.entry(entry.file_name().to_str().unwrap().to_owned()).or_default() += 1;
        Some(())
    };
    for _ in 0..50 {
        next(&mut dir).unwrap();
    }
    what();
    while next(&mut dir).is_some() {}
    times
}

fn a_list_goes_on_while_names_come(a: &Side, b: &Side) {
    make(a, (0..400).map(|number| format!("stays{number}")));
    b.all();
    let times = read_between(b, || make(a, (0..200).map(|number| format!("comes{number}"))));
    for number in 0..400 {
        assert_eq!(times.get(&format!("stays{number}")), Some(&1), "{number}");
    }
    assert!(times.values().all(|times| *times == 1), "some came twice");
}

fn a_list_goes_on_while_names_go(a: &Side, b: &Side) {
    make(a, (0..400).map(|number| format!("stays{number}")));
    make(a, (0..200).map(|number| format!("goes{number}")));
    b.all();
    let times = read_between(b, || {
        for number in 0..200 {
            a.unlink(format!("goes{number}"));
        }
    });
    for number in 0..400 {
        assert_eq!(times.get(&format!("stays{number}")), Some(&1), "{number}");
    }
    assert!(times.values().all(|times| *times == 1), "some came twice");
}

/// Reads all names, with the place behind each.
fn places(dir: &mut Dir) -> Vec<(String, i64)> {
    dir.rewind();
    dir.map(|entry| {
        let entry = entry.unwrap();
        (entry.file_name().to_str().unwrap().to_owned(), entry.offset())
    })
    .collect()
}

fn next_name(dir: &mut Dir) -> Option<String> {
    Some(dir.next()?.unwrap().file_name().to_str().unwrap().to_owned())
}

fn a_place_in_a_list_stays(a: &Side, b: &Side) {
    make(a, (0..100).map(|number| format!("f{number}")));
    let mut dir = Dir::new(b.open(".")).unwrap();
    let places = places(&mut dir);
    make(a, (0..100).map(|number| format!("new{number}")));
    for at in [1, 20, 50, 80] {
        dir.seek(places[at].1).unwrap();
        // What is new may lie between.
        let next = std::iter::from_fn(|| next_name(&mut dir)).find(|name| name.starts_with('f'));
        assert_eq!(next.as_ref(), Some(&places[at + 1].0), "after entry {at}");
    }
}

fn a_place_in_a_list_whose_name_is_gone(a: &Side, b: &Side) {
    make(a, (0..60).map(|number| format!("f{number}")));
    let mut dir = Dir::new(b.open(".")).unwrap();
    let places = places(&mut dir);
    a.unlink(&places[30].0);
    dir.seek(places[30].1).unwrap();
    assert_eq!(next_name(&mut dir).as_ref(), Some(&places[31].0));
    a.unlink(&places[32].0);
    dir.seek(places[30].1).unwrap();
    assert_eq!(next_name(&mut dir).as_ref(), Some(&places[31].0));
    assert_eq!(next_name(&mut dir).as_ref(), Some(&places[33].0));
}

fn a_list_of_all_kinds(a: &Side, b: &Side) {
    b.lists(".", &[]);
    a.write("file", "");
    a.mkdir("folder");
    a.symlink("file", "link");
    a.mknod("fifo", FileType::Fifo, 0);
    a.mknod("socket", FileType::Socket, 0);
    a.mknod("device", FileType::CharacterDevice, rustix::fs::makedev(10, 300));
    let dir = Dir::new(b.open(".")).unwrap();
    for entry in dir {
        let entry = entry.unwrap();
        let want = match entry.file_name().to_str().unwrap() {
            "file" => FileType::RegularFile,
            "link" => FileType::Symlink,
            "fifo" => FileType::Fifo,
            "socket" => FileType::Socket,
            "device" => FileType::CharacterDevice,
            _ => FileType::Directory,
        };
        assert_eq!(entry.file_type(), want, "{:?}", entry.file_name());
    }
    b.lists(".", &["device", "fifo", "file", "folder", "link", "socket"]);
}

fn a_list_of_five_hundred(a: &Side, b: &Side) {
    b.lists(".", &[]);
    let mut names: Vec<String> =
        (0..500).map(|number| format!("some longer name {number}")).collect();
    make(a, names.iter().cloned());
    names.sort();
    b.lists(".", &names.iter().map(String::as_str).collect::<Vec<_>>());
    for name in names.iter().step_by(2) {
        a.unlink(name);
    }
    b.lists(".", &names.iter().skip(1).step_by(2).map(String::as_str).collect::<Vec<_>>());
}

fn a_list_begins_with_itself_and_its_parent(a: &Side, b: &Side) {
    a.mkdir("d");
    a.write("d/f", "");
    warm(a, b);
    a.mkdir("p");
    a.rename("d", "p/d");
    let mut dir = Dir::new(b.open("p/d")).unwrap();
    for want in [(".", b.ino("p/d")), ("..", b.ino("p"))] {
        let entry = dir.next().unwrap().unwrap();
        assert_eq!((entry.file_name().to_str().unwrap(), entry.ino()), want);
    }
}

fn an_empty_directory_is_listed(a: &Side, b: &Side) {
    a.mkdir("d");
    for _ in 0..2 {
        b.lists("d", &[]);
    }
    a.write("d/f", "");
    b.lists("d", &["f"]);
}

fn a_list_after_all_was_removed(a: &Side, b: &Side) {
    make(a, (0..50).map(|number| format!("f{number}")));
    let _open = warm(a, b);
    for number in 0..50 {
        a.unlink(format!("f{number}"));
    }
    b.lists(".", &[]);
}

fn directories_are_counted_as_they_come(a: &Side, b: &Side) {
    let folder = b.open(".");
    for number in 0..5 {
        assert_eq!(b.nlink("."), 2 + number);
        a.mkdir(format!("d{number}"));
        assert_eq!(b.nlink("."), 3 + number);
        assert_eq!(folder.metadata().unwrap().nlink(), 3 + number);
    }
}

fn directories_are_counted_as_they_go(a: &Side, b: &Side) {
    for name in ["d", "e", "f"] {
        a.mkdir(name);
    }
    let _open = warm(a, b);
    for (left, name) in [(4, "d"), (3, "e"), (2, "f")] {
        a.rmdir(name);
        assert_eq!(b.nlink("."), left);
    }
}

fn files_are_not_counted_in_directories(a: &Side, b: &Side) {
    assert_eq!(b.nlink("."), 2);
    a.write("f", "");
    a.symlink(".", "l");
    a.mknod("p", FileType::Fifo, 0);
    assert_eq!(b.nlink("."), 2);
}

/// Does something in `d` that must change its times.
#[track_caller]
fn touches(a: &Side, b: &Side, what: impl FnOnce()) {
    let folder = b.open("d");
    let _open = warm(a, b);
    let before = b.stat("d");
    what();
    let after = b.stat("d");
    assert!(modified(&after) > modified(&before), "mtime");
    assert!(changed(&after) > changed(&before), "ctime");
    assert_eq!(modified(&folder.metadata().unwrap()), modified(&after));
}

fn a_create_changes_the_directorys_times(a: &Side, b: &Side) {
    a.mkdir("d");
    touches(a, b, || a.write("d/f", "one"));
}

fn a_removal_changes_the_directorys_times(a: &Side, b: &Side) {
    a.mkdir("d");
    a.write("d/f", "one");
    touches(a, b, || a.unlink("d/f"));
}

fn a_mkdir_changes_the_directorys_times(a: &Side, b: &Side) {
    a.mkdir("d");
    touches(a, b, || a.mkdir("d/e"));
}

fn an_rmdir_changes_the_directorys_times(a: &Side, b: &Side) {
    a.mkdir("d");
    a.mkdir("d/e");
    touches(a, b, || a.rmdir("d/e"));
}

fn a_link_changes_the_directorys_times(a: &Side, b: &Side) {
    a.mkdir("d");
    a.write("f", "one");
    touches(a, b, || a.link("f", "d/g"));
}

fn a_symlink_changes_the_directorys_times(a: &Side, b: &Side) {
    a.mkdir("d");
    touches(a, b, || a.symlink("nowhere", "d/l"));
}

fn a_write_leaves_the_directorys_times(a: &Side, b: &Side) {
    a.mkdir("d");
    a.write("d/f", "one");
    let _open = warm(a, b);
    let before = b.stat("d");
    a.put("d/f", 0, "two");
    a.chmod("d/f", 0o600);
    let after = b.stat("d");
    assert_eq!((modified(&before), changed(&before)), (modified(&after), changed(&after)));
}

fn names_below_a_descriptor_come_and_go(a: &Side, b: &Side) {
    a.mkdir("d");
    let folder = b.open("d");
    let open = || open_in(&folder, "f", OFlags::RDONLY);
    for round in 0..4 {
        fails(open(), Errno::NOENT);
        a.write("d/f", [round]);
        shows(&open().unwrap(), [round]);
        a.unlink("d/f");
    }
    fails(open(), Errno::NOENT);
}

fn a_stat_by_a_descriptor_of_a_directory(a: &Side, b: &Side) {
    a.write("f", "one");
    let folder = b.open(".");
    let size = || statat(&folder, "f", AtFlags::empty()).unwrap().st_size;
    assert_eq!(size(), 3);
    a.append("f", "more");
    assert_eq!(size(), 7);
    a.cut("f", 1);
    assert_eq!(size(), 1);
}

fn a_mkdir_by_a_descriptor(a: &Side, b: &Side) {
    a.missing("d");
    mkdirat(b.open("."), "d", Mode::from_raw_mode(0o755)).unwrap();
    a.lists("d", &[]);
}

fn an_unlink_by_a_descriptor(a: &Side, b: &Side) {
    a.write("f", "one");
    a.mkdir("d");
    let folder = b.open(".");
    let _open = warm(a, b);
    unlinkat(&folder, "f", AtFlags::empty()).unwrap();
    unlinkat(&folder, "d", AtFlags::REMOVEDIR).unwrap();
    a.missing("f");
    a.missing("d");
}

fn a_removed_directory_takes_nothing(a: &Side, b: &Side) {
    a.mkdir("d");
    let folder = b.open("d");
    fails(open_in(&folder, "f", OFlags::RDONLY), Errno::NOENT);
    a.rmdir("d");
    // The kernel of `b` was not the one that removed it: docs/semantics.md.
    let made = open_in(&folder, "f", OFlags::CREATE | OFlags::WRONLY).map(drop);
    assert!([Err(Errno::NOENT), Err(Errno::STALE)].contains(&made), "{made:?}");
    let made = mkdirat(&folder, "e", Mode::from_raw_mode(0o755));
    assert!([Err(Errno::NOENT), Err(Errno::STALE)].contains(&made), "{made:?}");
}

fn a_directory_removed_under_a_descriptor(a: &Side, b: &Side) {
    a.mkdir("d");
    let mut dir = Dir::new(b.open("d")).unwrap();
    assert_eq!(listed(&mut dir), [""; 0]);
    a.rmdir("d");
    b.missing("d");
    // It cannot be looked at from here: docs/semantics.md.
    dir.rewind();
    let entry = dir.next().map(|entry| entry.map(drop));
    assert!(matches!(entry, None | Some(Err(Errno::STALE | Errno::NOENT))), "{entry:?}");
}

fn a_directory_replaced_under_a_descriptor(a: &Side, b: &Side) {
    a.mkdir("d");
    let old = b.open("d");
    let ino = b.ino("d");
    a.rmdir("d");
    a.mkdir("d");
    a.write("d/f", "one");
    assert_ne!(b.ino("d"), ino);
    b.lists("d", &["f"]);
    let found = open_in(&old, "f", OFlags::RDONLY).map(drop);
    assert!([Err(Errno::NOENT), Err(Errno::STALE)].contains(&found), "{found:?}");
}

fn the_parent_by_a_descriptor(a: &Side, b: &Side) {
    a.mkdir("d");
    a.mkdir("d/e");
    let folder = b.open("d/e");
    let parent =
        || File::from(rustix::fs::openat(&folder, "..", OFlags::RDONLY, Mode::empty()).unwrap());
    assert_eq!(parent().metadata().unwrap().ino(), b.ino("d"));
    a.mkdir("d/g");
    assert_eq!(parent().metadata().unwrap().nlink(), 4);
    a.rename("d/e", "e");
    b.lists("e", &[]);
    assert_eq!(parent().metadata().unwrap().ino(), b.ino("."));
}

fn a_tree_removed_by_the_other(a: &Side, b: &Side) {
    for folder in ["d/e/f", "d/g"] {
        fs::create_dir_all(a.at(folder)).unwrap();
        a.write(format!("{folder}/file"), folder);
    }
    let open = warm(a, b);
    fs::remove_dir_all(b.at("d")).unwrap();
    a.missing("d/e/f/file");
    a.missing("d");
    a.lists(".", &[]);
    drop(open);
}

fn two_levels_that_change_by_turns(a: &Side, b: &Side) {
    for round in 0..5 {
        let name = format!("d{round}");
        b.missing(&name);
        a.mkdir(&name);
        b.mkdir(format!("{name}/below"));
        a.lists(&name, &["below"]);
        assert_eq!((a.nlink(&name), a.nlink(".")), (3, 3 + round));
        a.write(format!("{name}/below/f"), "one");
        b.lists(&format!("{name}/below"), &["f"]);
    }
}

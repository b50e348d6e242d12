//! Names that move: over something, between directories, with what is below them.

use std::fs;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, mkdirat, openat, statat};
use rustix::io::Errno;

use crate::side::{Side, cases, changed, fails, modified, open_in, shows, warm};

cases!(
    a_renamed_file_has_its_new_name,
    a_renamed_file_is_the_same_inode,
    a_rename_over_a_file,
    a_rename_over_one_of_two_links,
    a_rename_over_an_empty_directory,
    a_rename_over_a_directory_that_the_other_filled,
    a_rename_of_a_directory_over_a_file,
    a_rename_of_a_file_over_a_directory,
    a_rename_over_another_name_of_itself,
    a_rename_of_what_is_gone,
    a_rename_into_what_is_gone,
    noreplace_meets_the_others_name,
    noreplace_after_a_removal,
    two_files_change_places,
    a_file_and_a_directory_change_places,
    directories_of_two_parents_change_places,
    an_exchange_with_what_is_gone,
    a_rename_between_directories,
    a_rename_changes_the_times_of_both_parents,
    a_rename_changes_the_ctime,
    a_moved_directory_is_counted_in_its_parents,
    the_parent_of_a_moved_directory,
    a_deep_path_moves_under_a_descriptor,
    a_directory_moves_with_what_is_below_it,
    what_was_missing_below_a_new_name_is_there,
    what_was_there_below_an_old_name_is_missing,
    a_directory_is_not_moved_below_itself,
    an_old_name_is_made_anew,
    an_old_name_of_a_directory_is_made_anew,
    an_open_file_goes_on_under_its_new_name,
    an_open_file_that_was_renamed_over,
    a_create_in_a_directory_that_moved,
    a_mkdir_by_a_descriptor_that_moved,
    a_symbolic_link_moves,
    a_symbolic_link_is_renamed_over,
    a_fifo_moves,
    a_rename_leaves_a_whiteout_for_both,
    a_name_moves_by_turns,
    directories_swap_by_three_renames,
    a_rename_there_and_back,
    a_list_after_renames,
);

fn a_renamed_file_has_its_new_name(a: &Side, b: &Side) {
    a.write("f", "one");
    b.missing("g");
    let _open = warm(a, b);
    a.rename("f", "g");
    b.missing("f");
    b.holds("g", "one");
    b.lists(".", &["g"]);
}

fn a_renamed_file_is_the_same_inode(a: &Side, b: &Side) {
    a.write("f", "one");
    let file = b.open("f");
    let ino = b.ino("f");
    a.rename("f", "g");
    assert_eq!((b.ino("g"), file.metadata().unwrap().ino()), (ino, ino));
    assert_eq!(file.metadata().unwrap().nlink(), 1);
}

fn a_rename_over_a_file(a: &Side, b: &Side) {
    a.write("f", "new");
    a.write("g", "what was there");
    let ino = b.ino("f");
    let _open = warm(a, b);
    a.rename("f", "g");
    b.holds("g", "new");
    b.missing("f");
    assert_eq!(b.ino("g"), ino);
}

fn a_rename_over_one_of_two_links(a: &Side, b: &Side) {
    a.write("f", "new");
    a.write("g", "old");
    a.link("g", "h");
    let _open = warm(a, b);
    assert_eq!(b.nlink("h"), 2);
    a.rename("f", "g");
    assert_eq!(b.nlink("h"), 1);
    b.holds("h", "old");
    b.holds("g", "new");
}

fn a_rename_over_an_empty_directory(a: &Side, b: &Side) {
    a.mkdir("d");
    a.write("d/f", "one");
    a.mkdir("e");
    b.missing("e/f");
    warm(a, b);
    a.rename("d", "e");
    b.missing("d");
    b.lists("e", &["f"]);
    b.holds("e/f", "one");
    assert_eq!(b.nlink("."), 3);
}

fn a_rename_over_a_directory_that_the_other_filled(a: &Side, b: &Side) {
    a.mkdir("d");
    a.mkdir("e");
    warm(a, b);
    a.write("e/f", "one");
    fails(fs::rename(b.at("d"), b.at("e")), Errno::NOTEMPTY);
    a.unlink("e/f");
    b.rename("d", "e");
    a.missing("d");
}

fn a_rename_of_a_directory_over_a_file(a: &Side, b: &Side) {
    b.mkdir("d");
    a.mkdir("e");
    warm(a, b);
    a.rmdir("e");
    a.write("e", "one");
    fails(fs::rename(b.at("d"), b.at("e")), Errno::NOTDIR);
}

fn a_rename_of_a_file_over_a_directory(a: &Side, b: &Side) {
    b.write("f", "one");
    a.write("g", "two");
    warm(a, b);
    a.unlink("g");
    a.mkdir("g");
    fails(fs::rename(b.at("f"), b.at("g")), Errno::ISDIR);
}

fn a_rename_over_another_name_of_itself(a: &Side, b: &Side) {
    a.write("f", "one");
    b.missing("g");
    b.link("f", "g");
    a.rename("f", "g");
    b.lists(".", &["f", "g"]);
    assert_eq!(b.nlink("f"), 2);
}

fn a_rename_of_what_is_gone(a: &Side, b: &Side) {
    a.write("f", "one");
    warm(a, b);
    a.rename("f", "g");
    fails(fs::rename(b.at("f"), b.at("h")), Errno::NOENT);
    b.holds("g", "one");
}

fn a_rename_into_what_is_gone(a: &Side, b: &Side) {
    a.mkdir("d");
    a.write("f", "one");
    warm(a, b);
    a.rmdir("d");
    fails(fs::rename(b.at("f"), b.at("d/f")), Errno::NOENT);
    b.holds("f", "one");
}

fn noreplace_meets_the_others_name(a: &Side, b: &Side) {
    b.write("f", "one");
    b.missing("g");
    a.write("g", "two");
    fails(b.rename_with("f", "g", RenameFlags::NOREPLACE), Errno::EXIST);
    a.holds("g", "two");
}

fn noreplace_after_a_removal(a: &Side, b: &Side) {
    b.write("f", "one");
    a.write("g", "two");
    warm(a, b);
    a.unlink("g");
    b.rename_with("f", "g", RenameFlags::NOREPLACE).unwrap();
    a.holds("g", "one");
    a.missing("f");
}

fn two_files_change_places(a: &Side, b: &Side) {
    a.write("f", "one");
    a.write("g", "other");
    let inos = [b.ino("f"), b.ino("g")];
    let _open = warm(a, b);
    a.exchange("f", "g");
    b.holds("f", "other");
    b.holds("g", "one");
    assert_eq!([b.ino("g"), b.ino("f")], inos);
}

fn a_file_and_a_directory_change_places(a: &Side, b: &Side) {
    a.mkdir("p");
    a.mkdir("p/d");
    a.write("p/d/f", "below");
    a.write("g", "one");
    let _open = warm(a, b);
    assert_eq!((b.nlink("."), b.nlink("p")), (3, 3));
    a.exchange("p/d", "g");
    b.holds("p/d", "one");
    b.holds("g/f", "below");
    assert_eq!((b.nlink("."), b.nlink("p")), (4, 2));
}

fn directories_of_two_parents_change_places(a: &Side, b: &Side) {
    for name in ["p", "q", "p/d", "q/d"] {
        a.mkdir(name);
    }
    a.write("p/d/f", "from p");
    a.write("q/d/g", "from q");
    let open = warm(a, b);
    a.exchange("p/d", "q/d");
    b.lists("p/d", &["g"]);
    b.lists("q/d", &["f"]);
    b.missing("p/d/f");
    assert_eq!(b.ino("p/d/.."), b.ino("p"));
    assert_eq!(b.ino("q/d/.."), b.ino("q"));
    drop(open);
}

fn an_exchange_with_what_is_gone(a: &Side, b: &Side) {
    a.write("f", "one");
    a.write("g", "two");
    warm(a, b);
    a.unlink("g");
    fails(b.rename_with("f", "g", RenameFlags::EXCHANGE), Errno::NOENT);
    a.holds("f", "one");
}

fn a_rename_between_directories(a: &Side, b: &Side) {
    a.mkdir("d");
    a.mkdir("e");
    a.write("d/f", "one");
    b.missing("e/f");
    let _open = warm(a, b);
    a.rename("d/f", "e/f");
    b.lists("d", &[]);
    b.lists("e", &["f"]);
    b.holds("e/f", "one");
    b.missing("d/f");
}

fn a_rename_changes_the_times_of_both_parents(a: &Side, b: &Side) {
    a.mkdir("d");
    a.mkdir("e");
    a.write("d/f", "one");
    let _open = warm(a, b);
    let before = ["d", "e"].map(|name| b.stat(name));
    a.rename("d/f", "e/f");
    for (before, name) in before.iter().zip(["d", "e"]) {
        let after = b.stat(name);
        assert!(modified(&after) > modified(before), "mtime of {name}");
        assert!(changed(&after) > changed(before), "ctime of {name}");
    }
}

fn a_rename_changes_the_ctime(a: &Side, b: &Side) {
    a.write("f", "one");
    let file = b.open("f");
    let _open = warm(a, b);
    let before = b.stat("f");
    a.rename("f", "g");
    let after = file.metadata().unwrap();
    assert!(changed(&after) > changed(&before));
    assert_eq!(modified(&after), modified(&before));
    assert_eq!(changed(&b.stat("g")), changed(&after));
}

fn a_moved_directory_is_counted_in_its_parents(a: &Side, b: &Side) {
    for name in ["p", "q", "p/d"] {
        a.mkdir(name);
    }
    let _open = warm(a, b);
    assert_eq!((b.nlink("p"), b.nlink("q")), (3, 2));
    a.rename("p/d", "q/d");
    assert_eq!((b.nlink("p"), b.nlink("q")), (2, 3));
}

fn the_parent_of_a_moved_directory(a: &Side, b: &Side) {
    for name in ["p", "q", "p/d"] {
        a.mkdir(name);
    }
    let folder = b.open("p/d");
    let parent = || statat(&folder, "..", AtFlags::empty()).unwrap().st_ino;
    assert_eq!(parent(), b.ino("p"));
    // Until its new name is looked up the kernel may take the old parent: docs/semantics.md.
    a.rename("p/d", "q/e");
    assert!([b.ino("p"), b.ino("q")].contains(&parent()));
    assert_eq!(b.ino("q/e/.."), b.ino("q"));
    assert_eq!(parent(), b.ino("q"));
    a.rename("q/e", "e");
    b.lists("e", &[]);
    assert_eq!(parent(), b.ino("."));
}

fn a_deep_path_moves_under_a_descriptor(a: &Side, b: &Side) {
    fs::create_dir_all(a.at("p/one/two/three")).unwrap();
    a.mkdir("q");
    a.write("p/one/two/three/f", "deep");
    let folder = b.open("p/one/two/three");
    let _open = warm(a, b);
    a.rename("p/one", "q/moved");
    shows(&open_in(&folder, "f", OFlags::RDONLY).unwrap(), "deep");
    b.missing("p/one/two/three/f");
    b.holds("q/moved/two/three/f", "deep");
    let up = openat(&folder, "../../..", OFlags::RDONLY, Mode::empty()).unwrap();
    assert_eq!(rustix::fs::fstat(up).unwrap().st_ino, b.ino("q"));
    open_in(&folder, "g", OFlags::CREATE | OFlags::WRONLY).unwrap();
    a.lists("q/moved/two/three", &["f", "g"]);
}

fn a_directory_moves_with_what_is_below_it(a: &Side, b: &Side) {
    fs::create_dir_all(a.at("d/below")).unwrap();
    a.write("d/f", "one");
    a.write("d/below/g", "two");
    let open = warm(a, b);
    a.rename("d", "e");
    b.lists("e", &["below", "f"]);
    b.holds("e/f", "one");
    b.holds("e/below/g", "two");
    b.missing("d/below/g");
    drop(open);
}

fn what_was_missing_below_a_new_name_is_there(a: &Side, b: &Side) {
    a.mkdir("d");
    a.write("d/f", "one");
    a.mkdir("e");
    b.missing("e/f");
    b.missing("e/d/f");
    a.rename("d", "e/d");
    b.holds("e/d/f", "one");
    a.rename("e/d/f", "e/f");
    b.holds("e/f", "one");
    b.missing("e/d/f");
}

fn what_was_there_below_an_old_name_is_missing(a: &Side, b: &Side) {
    a.mkdir("d");
    a.write("d/f", "one");
    let _open = warm(a, b);
    a.rename("d", "e");
    b.missing("d/f");
    a.mkdir("d");
    b.missing("d/f");
    b.lists("d", &[]);
}

fn a_directory_is_not_moved_below_itself(a: &Side, b: &Side) {
    a.mkdir("x");
    a.mkdir("y");
    warm(a, b);
    a.rename("y", "x/y");
    fails(fs::rename(b.at("x"), b.at("x/y/x")), Errno::INVAL);
    fails(fs::rename(b.at("x/y"), b.at("x")), Errno::NOTEMPTY);
    a.rename("x/y", "y");
    b.rename("x", "y/x");
    a.lists("y", &["x"]);
}

fn an_old_name_is_made_anew(a: &Side, b: &Side) {
    a.write("f", "one");
    let _open = warm(a, b);
    a.rename("f", "g");
    a.write("f", "another");
    b.holds("f", "another");
    b.holds("g", "one");
    assert_ne!(b.ino("f"), b.ino("g"));
}

fn an_old_name_of_a_directory_is_made_anew(a: &Side, b: &Side) {
    a.mkdir("d");
    a.write("d/f", "one");
    let folder = b.open("d");
    let _open = warm(a, b);
    a.rename("d", "e");
    a.mkdir("d");
    b.lists("d", &[]);
    b.write("d/g", "new");
    shows(&open_in(&folder, "f", OFlags::RDONLY).unwrap(), "one");
    fails(open_in(&folder, "g", OFlags::RDONLY), Errno::NOENT);
    a.lists("e", &["f"]);
}

fn an_open_file_goes_on_under_its_new_name(a: &Side, b: &Side) {
    a.write("f", "one");
    let file = b.open_rw("f");
    a.rename("f", "g");
    file.write_all_at(b"two", 3).unwrap();
    a.holds("g", "onetwo");
    a.missing("f");
}

fn an_open_file_that_was_renamed_over(a: &Side, b: &Side) {
    a.write("f", "new");
    a.write("g", "old content");
    let file = b.open("g");
    let _open = warm(a, b);
    a.rename("f", "g");
    shows(&file, "old content");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    b.holds("g", "new");
}

fn a_create_in_a_directory_that_moved(a: &Side, b: &Side) {
    a.mkdir("d");
    b.missing("e/f");
    warm(a, b);
    a.rename("d", "e");
    fails(crate::side::make_new(&b.at("d/f")), Errno::NOENT);
    b.write("e/f", "one");
    a.holds("e/f", "one");
}

fn a_mkdir_by_a_descriptor_that_moved(a: &Side, b: &Side) {
    a.mkdir("d");
    let folder = b.open("d");
    a.rename("d", "e");
    mkdirat(&folder, "below", Mode::from_raw_mode(0o755)).unwrap();
    a.lists("e", &["below"]);
    assert_eq!(a.nlink("e"), 3);
}

fn a_symbolic_link_moves(a: &Side, b: &Side) {
    a.mkdir("d");
    a.write("f", "outside");
    a.write("d/f", "inside");
    a.symlink("f", "l");
    warm(a, b);
    assert_eq!(fs::read(b.at("l")).unwrap(), b"outside");
    a.rename("l", "d/l");
    b.missing("l");
    assert_eq!(fs::read(b.at("d/l")).unwrap(), b"inside");
}

fn a_symbolic_link_is_renamed_over(a: &Side, b: &Side) {
    a.write("x", "x");
    a.write("y", "y");
    a.symlink("x", "l");
    a.symlink("y", "m");
    warm(a, b);
    assert_eq!(fs::read(b.at("l")).unwrap(), b"x");
    a.rename("m", "l");
    b.points("l", "y");
    assert_eq!(fs::read(b.at("l")).unwrap(), b"y");
}

fn a_fifo_moves(a: &Side, b: &Side) {
    a.mknod("f", FileType::Fifo, 0);
    a.write("g", "file");
    let _open = warm(a, b);
    a.rename("f", "g");
    assert!(b.kind("g").is_fifo());
    b.missing("f");
}

fn a_rename_leaves_a_whiteout_for_both(a: &Side, b: &Side) {
    a.write("f", "one");
    b.missing("g");
    let _open = warm(a, b);
    a.rename_with("f", "g", RenameFlags::WHITEOUT).unwrap();
    b.holds("g", "one");
    assert_eq!((b.stat("f").mode(), b.stat("f").rdev()), (0o020_000, 0));
}

fn a_name_moves_by_turns(a: &Side, b: &Side) {
    a.write("f0", "one");
    for round in 0..20 {
        let (one, other) = if round % 2 == 0 { (b, a) } else { (a, b) };
        let (from, to) = (format!("f{round}"), format!("f{}", round + 1));
        other.missing(&to);
        one.rename(&from, &to);
        other.missing(&from);
        other.holds(&to, "one");
        other.lists(".", &[&to]);
    }
}

fn directories_swap_by_three_renames(a: &Side, b: &Side) {
    a.mkdir("d");
    a.mkdir("e");
    a.write("d/f", "from d");
    a.write("e/f", "from e");
    let _open = warm(a, b);
    a.rename("d", "t");
    b.rename("e", "d");
    a.rename("t", "e");
    for side in [a, b] {
        side.holds("d/f", "from e");
        side.holds("e/f", "from d");
        side.missing("t");
    }
}

fn a_rename_there_and_back(a: &Side, b: &Side) {
    a.write("f", "one");
    let _open = warm(a, b);
    for _ in 0..5 {
        a.rename("f", "g");
        b.missing("f");
        b.rename("g", "f");
        a.missing("g");
        a.holds("f", "one");
    }
}

fn a_list_after_renames(a: &Side, b: &Side) {
    for name in ["f1", "f2", "f3"] {
        a.write(name, name);
    }
    let _open = warm(a, b);
    a.rename("f1", "g1");
    b.lists(".", &["f2", "f3", "g1"]);
    a.rename("f2", "f3");
    b.lists(".", &["f3", "g1"]);
    a.mkdir("d");
    a.rename("f3", "d/f3");
    b.lists(".", &["d", "g1"]);
    b.lists("d", &["f3"]);
}

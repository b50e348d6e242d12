//! Modes, owners, times and extended attributes that the other changes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags, fchmod,
    fchown, fgetxattr, fsetxattr, futimens, lsetxattr, removexattr, setxattr, utimensat,
};
use rustix::io::Errno;

use crate::side::{Side, as_c, cases, changed, fails, modified, time, warm};

cases!(
    a_mode_is_seen,
    a_mode_is_seen_by_an_open_descriptor,
    a_mode_by_a_descriptor_is_seen,
    a_mode_of_a_directory_is_seen,
    modes_by_turns,
    an_owner_is_seen,
    a_group_is_seen,
    an_owner_of_a_symbolic_link_is_seen,
    an_owner_by_a_descriptor_is_seen,
    an_owner_takes_set_id_away,
    a_mode_of_one_of_two_links,
    times_that_are_set_are_seen,
    times_of_a_directory_are_seen,
    times_of_a_symbolic_link_are_seen,
    times_by_a_descriptor_are_seen,
    times_before_1970_and_far_ahead,
    one_of_two_times_is_set,
    times_are_set_to_now,
    times_that_were_set_go_with_a_write,
    times_that_were_set_stay_under_an_open_writer,
    the_ctime_follows_a_mode,
    the_ctime_follows_an_owner,
    the_ctime_follows_a_link,
    the_ctime_follows_an_unlink,
    the_ctime_follows_an_attribute,
    an_attribute_is_seen,
    an_attribute_that_was_missing_is_seen,
    an_attribute_is_replaced,
    an_attribute_is_removed,
    an_attribute_is_listed,
    attributes_are_no_longer_listed,
    an_attribute_by_a_descriptor,
    an_attribute_of_a_directory,
    an_attribute_of_a_symbolic_link,
    an_attribute_without_a_value,
    an_attribute_of_64_kib,
    an_attribute_becomes_shorter,
    an_attribute_of_a_name_that_is_not_utf8,
    an_attribute_that_the_other_has_made,
    an_attribute_that_the_other_has_removed,
    attributes_go_along_with_a_rename,
    attributes_of_a_file_made_anew,
    fifty_attributes,
    an_attribute_changes_by_turns,
);

fn a_mode_is_seen(a: &Side, b: &Side) {
    a.write("f", "one");
    let _open = warm(a, b);
    for mode in [0o600, 0o755, 0o000, 0o7777, 0o644] {
        a.chmod("f", mode);
        assert_eq!(b.mode("f"), mode);
    }
}

fn a_mode_is_seen_by_an_open_descriptor(a: &Side, b: &Side) {
    a.write("f", "one");
    let file = b.open("f");
    for mode in [0o600, 0o755, 0o640] {
        a.chmod("f", mode);
        assert_eq!(file.metadata().unwrap().mode() & 0o7777, mode);
    }
}

fn a_mode_by_a_descriptor_is_seen(a: &Side, b: &Side) {
    a.write("f", "one");
    let _open = warm(a, b);
    fchmod(a.open("f"), Mode::from_raw_mode(0o711)).unwrap();
    assert_eq!(b.mode("f"), 0o711);
}

fn a_mode_of_a_directory_is_seen(a: &Side, b: &Side) {
    a.mkdir("d");
    let folder = b.open("d");
    let _open = warm(a, b);
    for mode in [0o700, 0o1777, 0o2755] {
        a.chmod("d", mode);
        assert_eq!(b.mode("d"), mode);
        assert_eq!(folder.metadata().unwrap().mode() & 0o7777, mode);
    }
}

fn modes_by_turns(a: &Side, b: &Side) {
    a.write("f", "one");
    for round in 0..20 {
        let (one, other) = if round % 2 == 0 { (a, b) } else { (b, a) };
        one.chmod("f", 0o600 + round);
        assert_eq!((other.mode("f"), one.mode("f")), (0o600 + round, 0o600 + round));
    }
}

fn owner(side: &Side, name: &str) -> (u32, u32) {
    let meta = side.stat(name);
    (meta.uid(), meta.gid())
}

fn an_owner_is_seen(a: &Side, b: &Side) {
    a.write("f", "one");
    let file = b.open("f");
    let _open = warm(a, b);
    a.chown("f", 1234, 0);
    assert_eq!(owner(b, "f"), (1234, 0));
    assert_eq!(file.metadata().unwrap().uid(), 1234);
    a.chown("f", 4_000_000_000, 0);
    assert_eq!(owner(b, "f"), (4_000_000_000, 0));
}

fn a_group_is_seen(a: &Side, b: &Side) {
    a.mkdir("d");
    let _open = warm(a, b);
    a.chown("d", 0, 77);
    assert_eq!(owner(b, "d"), (0, 77));
}

fn an_owner_of_a_symbolic_link_is_seen(a: &Side, b: &Side) {
    a.write("f", "one");
    a.symlink("f", "l");
    warm(a, b);
    a.chown("l", 12, 13);
    assert_eq!((owner(b, "l"), owner(b, "f")), ((12, 13), (0, 0)));
}

fn an_owner_by_a_descriptor_is_seen(a: &Side, b: &Side) {
    a.write("f", "one");
    let _open = warm(a, b);
    fchown(a.open("f"), Some(Uid::from_raw(5)), Some(Gid::from_raw(6))).unwrap();
    assert_eq!(owner(b, "f"), (5, 6));
}

fn an_owner_takes_set_id_away(a: &Side, b: &Side) {
    a.write("f", "one");
    a.chmod("f", 0o6755);
    let _open = warm(a, b);
    assert_eq!(b.mode("f"), 0o6755);
    a.chown("f", 5, 6);
    assert_eq!(b.mode("f"), 0o755);
}

fn a_mode_of_one_of_two_links(a: &Side, b: &Side) {
    a.write("f", "one");
    a.link("f", "g");
    let _open = warm(a, b);
    a.chmod("f", 0o611);
    assert_eq!(b.mode("g"), 0o611);
    b.chown("g", 7, 8);
    assert_eq!(owner(a, "f"), (7, 8));
}

fn both_times(last_access: Timespec, last_modification: Timespec) -> Timestamps {
    Timestamps { last_access, last_modification }
}

#[track_caller]
fn set_times(side: &Side, name: &str, atime: Timespec, mtime: Timespec) {
    let times = both_times(atime, mtime);
    utimensat(CWD, side.at(name), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

fn times(side: &Side, name: &str) -> [(i64, i64); 2] {
    let meta = side.stat(name);
    [(meta.atime(), meta.atime_nsec()), modified(&meta)]
}

fn times_that_are_set_are_seen(a: &Side, b: &Side) {
    a.write("f", "one");
    let file = b.open("f");
    let _open = warm(a, b);
    for second in [1000, 2_000_000_000] {
        set_times(a, "f", time(second, 1), time(second + 5, 999_999_999));
        assert_eq!(times(b, "f"), [(second, 1), (second + 5, 999_999_999)]);
        assert_eq!(modified(&file.metadata().unwrap()), (second + 5, 999_999_999));
    }
}

fn times_of_a_directory_are_seen(a: &Side, b: &Side) {
    a.mkdir("d");
    let _open = warm(a, b);
    set_times(a, "d", time(1000, 1), time(2000, 2));
    assert_eq!(times(b, "d"), [(1000, 1), (2000, 2)]);
}

fn times_of_a_symbolic_link_are_seen(a: &Side, b: &Side) {
    a.symlink("nowhere", "l");
    warm(a, b);
    set_times(a, "l", time(1000, 1), time(2000, 2));
    assert_eq!(times(b, "l"), [(1000, 1), (2000, 2)]);
}

fn times_by_a_descriptor_are_seen(a: &Side, b: &Side) {
    a.write("f", "one");
    let _open = warm(a, b);
    futimens(a.open("f"), &both_times(time(1000, 1), time(2000, 2))).unwrap();
    assert_eq!(times(b, "f"), [(1000, 1), (2000, 2)]);
}

fn times_before_1970_and_far_ahead(a: &Side, b: &Side) {
    a.write("f", "one");
    let _open = warm(a, b);
    for second in [-1_000_000, 0, 8_000_000_000] {
        set_times(a, "f", time(second, 5), time(second, 6));
        assert_eq!(times(b, "f"), [(second, 5), (second, 6)]);
    }
}

fn one_of_two_times_is_set(a: &Side, b: &Side) {
    a.write("f", "one");
    set_times(a, "f", time(1000, 1), time(2000, 2));
    let _open = warm(a, b);
    set_times(a, "f", time(0, UTIME_OMIT), time(3000, 3));
    assert_eq!(times(b, "f")[1], (3000, 3));
    set_times(b, "f", time(4000, 4), time(0, UTIME_OMIT));
    assert_eq!(times(a, "f"), [(4000, 4), (3000, 3)]);
}

fn times_are_set_to_now(a: &Side, b: &Side) {
    a.write("f", "one");
    set_times(a, "f", time(1000, 1), time(2000, 2));
    let _open = warm(a, b);
    set_times(a, "f", time(0, UTIME_NOW), time(0, UTIME_NOW));
    assert!(times(b, "f").iter().all(|time| time.0 > 1_500_000_000));
}

fn times_that_were_set_go_with_a_write(a: &Side, b: &Side) {
    a.write("f", "one");
    set_times(a, "f", time(1000, 1), time(2000, 2));
    let _open = warm(a, b);
    b.put("f", 0, "two");
    assert!(times(a, "f")[1].0 > 1_500_000_000);
}

fn times_that_were_set_stay_under_an_open_writer(a: &Side, b: &Side) {
    a.write("f", "one");
    let writer = a.open_rw("f");
    writer.write_all_at(b"two", 0).unwrap();
    set_times(b, "f", time(1000, 1), time(2000, 2));
    assert_eq!(times(a, "f")[1], (2000, 2));
    drop(writer);
    assert_eq!((times(b, "f")[1], times(a, "f")[1]), ((2000, 2), (2000, 2)));
}

/// Does something that must change the ctime of `f` and nothing of its mtime.
#[track_caller]
fn moves_ctime(a: &Side, b: &Side, what: impl FnOnce()) {
    let file = b.open("f");
    let _open = warm(a, b);
    let before = b.stat("f");
    what();
    let after = file.metadata().unwrap();
    assert!(changed(&after) > changed(&before), "ctime");
    assert_eq!(modified(&after), modified(&before));
    assert_eq!(changed(&a.stat("f")), changed(&after));
}

fn the_ctime_follows_a_mode(a: &Side, b: &Side) {
    a.write("f", "one");
    moves_ctime(a, b, || a.chmod("f", 0o600));
}

fn the_ctime_follows_an_owner(a: &Side, b: &Side) {
    a.write("f", "one");
    moves_ctime(a, b, || a.chown("f", 5, 6));
}

fn the_ctime_follows_a_link(a: &Side, b: &Side) {
    a.write("f", "one");
    moves_ctime(a, b, || a.link("f", "g"));
}

fn the_ctime_follows_an_unlink(a: &Side, b: &Side) {
    a.write("f", "one");
    a.link("f", "g");
    moves_ctime(a, b, || a.unlink("g"));
}

fn the_ctime_follows_an_attribute(a: &Side, b: &Side) {
    a.write("f", "one");
    moves_ctime(a, b, || a.set("f", "user.a", "value"));
}

fn value(text: &str) -> Option<Vec<u8>> {
    Some(text.as_bytes().to_vec())
}

fn an_attribute_is_seen(a: &Side, b: &Side) {
    a.write("f", "one");
    a.set("f", "user.a", "value");
    assert_eq!(b.get("f", "user.a"), value("value"));
    for name in ["trusted.a", "security.a"] {
        a.set("f", name, name);
        assert_eq!(b.get("f", name), value(name));
    }
}

fn an_attribute_that_was_missing_is_seen(a: &Side, b: &Side) {
    a.write("f", "one");
    let _open = warm(a, b);
    for _ in 0..2 {
        assert_eq!(b.get("f", "user.a"), None);
    }
    a.set("f", "user.a", "value");
    assert_eq!(b.get("f", "user.a"), value("value"));
}

fn an_attribute_is_replaced(a: &Side, b: &Side) {
    a.write("f", "one");
    for text in ["one", "another one", "2", "one"] {
        a.set("f", "user.a", text);
        assert_eq!(b.get("f", "user.a"), value(text));
        assert_eq!(b.get("f", "user.a"), value(text));
    }
}

fn an_attribute_is_removed(a: &Side, b: &Side) {
    a.write("f", "one");
    a.set("f", "user.a", "value");
    assert_eq!(b.get("f", "user.a"), value("value"));
    a.unset("f", "user.a");
    assert_eq!(b.get("f", "user.a"), None);
}

fn an_attribute_is_listed(a: &Side, b: &Side) {
    a.write("f", "one");
    let before = b.attributes("f");
    a.set("f", "user.a", "value");
    a.set("f", "user.longer", "value");
    let after: Vec<_> =
        b.attributes("f").into_iter().filter(|name| !before.contains(name)).collect();
    assert_eq!(after, ["user.a", "user.longer"]);
}

fn attributes_are_no_longer_listed(a: &Side, b: &Side) {
    a.write("f", "one");
    let before = b.attributes("f");
    a.set("f", "user.a", "value");
    assert_ne!(b.attributes("f"), before);
    a.unset("f", "user.a");
    assert_eq!(b.attributes("f"), before);
}

fn an_attribute_by_a_descriptor(a: &Side, b: &Side) {
    a.write("f", "one");
    let [here, there] = [a, b].map(|side| side.open("f"));
    for text in ["value", "other value"] {
        fsetxattr(&here, "user.a", text.as_bytes(), XattrFlags::empty()).unwrap();
        let mut got = [0; 20];
        let len = fgetxattr(&there, "user.a", &mut got).unwrap();
        assert_eq!(&got[..len], text.as_bytes());
    }
}

fn an_attribute_of_a_directory(a: &Side, b: &Side) {
    a.mkdir("d");
    let _open = warm(a, b);
    assert_eq!(b.get("d", "user.a"), None);
    a.set("d", "user.a", "value");
    assert_eq!(b.get("d", "user.a"), value("value"));
}

fn an_attribute_of_a_symbolic_link(a: &Side, b: &Side) {
    a.symlink("nowhere", "l");
    warm(a, b);
    a.set("l", "trusted.a", "value");
    assert_eq!(b.get("l", "trusted.a"), value("value"));
    // As on Linux, where such a link has no attributes of users.
    fails(lsetxattr(b.at("l"), "user.a", b"v", XattrFlags::empty()), Errno::PERM);
}

fn an_attribute_without_a_value(a: &Side, b: &Side) {
    a.write("f", "one");
    assert_eq!(b.get("f", "user.a"), None);
    a.set("f", "user.a", "");
    assert_eq!(b.get("f", "user.a"), value(""));
}

fn an_attribute_of_64_kib(a: &Side, b: &Side) {
    a.write("f", "one");
    let large = crate::side::bytes(1, 64 << 10);
    a.set("f", "user.a", "small");
    assert_eq!(b.get("f", "user.a"), value("small"));
    a.set("f", "user.a", &large);
    assert!(b.get("f", "user.a") == Some(large));
}

fn an_attribute_becomes_shorter(a: &Side, b: &Side) {
    a.write("f", "one");
    a.set("f", "user.a", "a rather long value");
    assert_eq!(b.get("f", "user.a").unwrap().len(), 19);
    a.set("f", "user.a", "x");
    assert_eq!(b.get("f", "user.a"), value("x"));
}

fn an_attribute_of_a_name_that_is_not_utf8(a: &Side, b: &Side) {
    a.write("f", "one");
    let name = as_c(Path::new(OsStr::from_bytes(b"user.\xff\xfe")));
    setxattr(a.at("f"), name.as_c_str(), b"value", XattrFlags::empty()).unwrap();
    let mut got = [0; 10];
    assert_eq!(rustix::fs::getxattr(b.at("f"), name.as_c_str(), &mut got), Ok(5));
    removexattr(b.at("f"), name.as_c_str()).unwrap();
    let gone = rustix::fs::getxattr(a.at("f"), name.as_c_str(), &mut got);
    assert_eq!(gone, Err(Errno::NODATA));
}

fn an_attribute_that_the_other_has_made(a: &Side, b: &Side) {
    a.write("f", "one");
    assert_eq!(b.get("f", "user.a"), None);
    a.set("f", "user.a", "value");
    fails(setxattr(b.at("f"), "user.a", b"v", XattrFlags::CREATE), Errno::EXIST);
    setxattr(b.at("f"), "user.a", b"v", XattrFlags::REPLACE).unwrap();
    assert_eq!(a.get("f", "user.a"), value("v"));
}

fn an_attribute_that_the_other_has_removed(a: &Side, b: &Side) {
    a.write("f", "one");
    b.set("f", "user.a", "value");
    a.unset("f", "user.a");
    fails(removexattr(b.at("f"), "user.a"), Errno::NODATA);
    fails(setxattr(b.at("f"), "user.a", b"v", XattrFlags::REPLACE), Errno::NODATA);
    setxattr(b.at("f"), "user.a", b"v", XattrFlags::CREATE).unwrap();
    assert_eq!(a.get("f", "user.a"), value("v"));
}

fn attributes_go_along_with_a_rename(a: &Side, b: &Side) {
    a.write("f", "one");
    a.set("f", "user.a", "of f");
    a.write("g", "two");
    a.set("g", "user.b", "of g");
    let _open = warm(a, b);
    a.rename("f", "g");
    assert_eq!(b.get("g", "user.a"), value("of f"));
    assert_eq!(b.get("g", "user.b"), None);
}

fn attributes_of_a_file_made_anew(a: &Side, b: &Side) {
    a.write("f", "one");
    a.set("f", "user.a", "value");
    a.chmod("f", 0o711);
    let _open = warm(a, b);
    assert_eq!(b.get("f", "user.a"), value("value"));
    a.unlink("f");
    a.write("f", "one");
    assert_eq!(b.get("f", "user.a"), None);
    assert_eq!(b.mode("f"), 0o644);
}

fn fifty_attributes(a: &Side, b: &Side) {
    a.write("f", "one");
    let before = b.attributes("f").len();
    for number in 0..50 {
        a.set("f", &format!("user.{number}"), format!("value {number}"));
    }
    assert_eq!(b.attributes("f").len(), before + 50);
    for number in 0..50 {
        assert_eq!(b.get("f", &format!("user.{number}")), value(&format!("value {number}")));
    }
}

fn an_attribute_changes_by_turns(a: &Side, b: &Side) {
    a.write("f", "one");
    for round in 0..20 {
        let (one, other) = if round % 2 == 0 { (a, b) } else { (b, a) };
        let text = format!("value {round}");
        one.set("f", "user.a", &text);
        assert_eq!(other.get("f", "user.a"), value(&text));
    }
}

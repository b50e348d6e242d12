//! Space and where it lies: what `statfs` and blocks tell after the other has written, and the
//! striping that the other has set.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use sateen_testkit::cluster::until;

use crate::BINARY;
use crate::side::{PAGE, Side, bytes, cases, warm};

/// What is set aside to be seen by `statfs`, beside what others on the machine write meanwhile.
const SET_ASIDE: u64 = 1 << 30;

cases!(
    blocks_are_seen_after_a_write,
    blocks_are_given_back_by_a_cut,
    blocks_are_given_back_by_a_hole,
    statfs_is_the_same_of_both,
    statfs_tells_of_the_others_space,
    files_are_counted_for_both,
    striping_is_seen,
    striping_of_a_file_that_was_missing,
    striping_is_changed_before_the_first_write,
    striping_of_a_directory_is_inherited_by_the_other,
    striping_of_a_directory_that_changes,
    striped_content_is_read,
    a_fid_is_the_same,
    a_fid_leads_to_the_new_name,
);

/// Runs `lfs`; what it says, which must go well.
#[track_caller]
fn lfs(side: &Side, arguments: &[&str], name: &str) -> String {
    let mut command = Command::new(BINARY);
    let output = command.arg0("lfs").args(arguments).arg(side.at(name)).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Makes a file of this striping, or says how those in a directory are to be.
#[track_caller]
pub(crate) fn setstripe(side: &Side, name: &str, striping: &[&str]) {
    lfs(side, &[&["setstripe"], striping].concat(), name);
}

/// Stripes and their size.
#[track_caller]
fn striping(side: &Side, name: &str) -> [u64; 2] {
    ["-c", "-S"].map(|what| lfs(side, &["getstripe", "-d", what], name).trim().parse().unwrap())
}

/// The same of a file.
#[track_caller]
fn stripes(side: &Side, name: &str) -> [u64; 2] {
    ["-c", "-S"].map(|what| lfs(side, &["getstripe", what], name).trim().parse().unwrap())
}

fn blocks_are_seen_after_a_write(a: &Side, b: &Side) {
    a.write("f", "");
    let file = b.open("f");
    assert_eq!(b.stat("f").blocks(), 0);
    a.put("f", 0, bytes(1, 64 * PAGE));
    until("the blocks are seen", || b.stat("f").blocks() == 8 * 64);
    assert_eq!(file.metadata().unwrap().blocks(), 8 * 64);
}

fn blocks_are_given_back_by_a_cut(a: &Side, b: &Side) {
    a.write("f", bytes(1, 64 * PAGE));
    until("the blocks are seen", || b.stat("f").blocks() == 8 * 64);
    a.cut("f", 0);
    until("they are gone", || b.stat("f").blocks() == 0);
}

fn blocks_are_given_back_by_a_hole(a: &Side, b: &Side) {
    a.write("f", bytes(1, 64 * PAGE));
    until("the blocks are seen", || b.stat("f").blocks() == 8 * 64);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(a.open_rw("f"), punch, 0, 32 * PAGE as u64).unwrap();
    until("half of them are gone", || b.stat("f").blocks() == 8 * 32);
}

fn statfs_is_the_same_of_both(a: &Side, b: &Side) {
    until("both tell the same", || {
        let [one, other] = [a, b].map(|side| statvfs(&side.mount).unwrap());
        let whole = |one: &rustix::fs::StatVfs| (one.f_blocks, one.f_frsize, one.f_namemax);
        whole(&one) == whole(&other)
    });
}

fn free(side: &Side) -> u64 {
    let space = statvfs(&side.mount).unwrap();
    space.f_bfree * space.f_frsize
}

fn statfs_tells_of_the_others_space(a: &Side, b: &Side) {
    a.write("f", "");
    let before = free(b);
    fallocate(a.open_rw("f"), FallocateFlags::empty(), 0, SET_ASIDE).unwrap();
    // OSTs are asked, but not waited for for long, and others write to that disk, too.
    until("it is missed", || free(b) + SET_ASIDE / 2 < before);
    let taken = free(b);
    a.unlink("f");
    until("it is back", || free(b) > taken + SET_ASIDE / 2);
}

fn files_are_counted_for_both(a: &Side, b: &Side) {
    let used = |side: &Side| {
        let space = statvfs(&side.mount).unwrap();
        space.f_files - space.f_ffree
    };
    let before = used(b);
    for number in 0..20 {
        a.write(format!("f{number}"), "one");
    }
    until("they are counted", || used(b) >= before + 20);
}

fn striping_is_seen(a: &Side, b: &Side) {
    setstripe(a, "f", &["-c", "2", "-S", "128K"]);
    assert_eq!(stripes(b, "f"), [2, 128 << 10]);
    assert_eq!(lfs(a, &["getstripe", "-q"], "f"), lfs(b, &["getstripe", "-q"], "f"));
}

fn striping_of_a_file_that_was_missing(a: &Side, b: &Side) {
    b.missing("f");
    setstripe(a, "f", &["-c", "2", "-S", "64K"]);
    assert_eq!((b.size("f"), stripes(b, "f")), (0, [2, 64 << 10]));
    b.write("f", "one");
    a.holds("f", "one");
}

fn striping_is_changed_before_the_first_write(a: &Side, b: &Side) {
    setstripe(a, "f", &["-c", "2", "-S", "64K"]);
    assert_eq!(stripes(b, "f"), [2, 64 << 10]);
    setstripe(a, "f", &["-c", "1", "-S", "256K"]);
    assert_eq!(stripes(b, "f"), [1, 256 << 10]);
    let content = bytes(1, 300_000);
    b.put("f", 0, &content);
    a.holds("f", &content);
}

fn striping_of_a_directory_is_inherited_by_the_other(a: &Side, b: &Side) {
    a.mkdir("d");
    b.write("d/before", "");
    let _open = warm(a, b);
    setstripe(a, "d", &["-c", "2", "-S", "64K"]);
    assert_eq!(striping(b, "d"), [2, 64 << 10]);
    b.write("d/after", "one");
    b.mkdir("d/e");
    b.write("d/e/below", "one");
    assert_eq!([stripes(a, "d/after"), stripes(a, "d/e/below")], [[2, 64 << 10]; 2]);
    assert_ne!(stripes(a, "d/before"), [2, 64 << 10]);
}

fn striping_of_a_directory_that_changes(a: &Side, b: &Side) {
    a.mkdir("d");
    for size in [64, 128, 256] {
        let text = format!("{size}K");
        setstripe(a, "d", &["-c", "1", "-S", &text]);
        assert_eq!(striping(b, "d"), [1, size << 10]);
        let name = format!("d/f{size}");
        b.write(&name, "one");
        assert_eq!(stripes(a, &name), [1, size << 10]);
    }
}

fn striped_content_is_read(a: &Side, b: &Side) {
    setstripe(a, "f", &["-c", "2", "-S", "64K"]);
    let mut content = bytes(1, 500_000);
    a.put("f", 0, &content);
    b.holds("f", &content);
    b.put("f", 60_000, [7; 200_000]);
    content[60_000..260_000].fill(7);
    a.holds("f", &content);
    a.cut("f", 131_073);
    b.holds("f", &content[..131_073]);
}

fn a_fid_is_the_same(a: &Side, b: &Side) {
    a.write("f", "one");
    a.mkdir("d");
    for name in ["f", "d"] {
        assert_eq!(lfs(a, &["path2fid"], name), lfs(b, &["path2fid"], name));
    }
}

fn a_fid_leads_to_the_new_name(a: &Side, b: &Side) {
    a.mkdir("d");
    a.write("f", "one");
    let fid = lfs(b, &["path2fid"], "f");
    let path = || {
        let mut command = Command::new(BINARY);
        command.arg0("lfs").arg("fid2path").arg(&b.mount).arg(fid.trim());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(path().trim().ends_with("/f"), "{}", path());
    a.rename("f", "d/g");
    assert!(path().trim().ends_with("/d/g"), "{}", path());
}

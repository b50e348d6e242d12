//! Who may do what, and that it is another at once when the other mount says so: modes, owners,
//! ACLs, what new files inherit.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{Access, AtFlags, Mode, OFlags, accessat, mkdirat, renameat, unlinkat};
use rustix::io::Errno;

use crate::side::{Side, as_user, cases, fails, open_in, warm};

/// A user who is nobody else's, with a group of that number.
const SOMEBODY: u32 = 1000;
const ANOTHER: u32 = 1001;

cases!(
    a_mode_takes_reading_away,
    a_mode_gives_reading,
    a_mode_gives_writing,
    a_mode_of_a_directory_takes_the_way_away,
    a_mode_of_a_directory_gives_making,
    a_mode_counts_for_access,
    an_owner_gives_reading,
    a_group_gives_reading,
    who_makes_a_file_owns_it,
    a_set_group_id_directory_gives_its_group,
    a_set_group_id_directory_gives_it_on,
    a_directory_that_became_set_group_id,
    a_sticky_directory_keeps_others_files,
    a_directory_that_became_sticky,
    a_write_takes_set_id_away,
    an_acl_gives_reading,
    an_acl_takes_reading_away,
    an_acl_is_shown_the_same,
    an_acl_is_removed,
    an_acl_shows_its_mask_as_the_group,
    a_mode_is_the_mask_of_an_acl,
    a_default_acl_is_inherited_by_the_others_file,
    a_default_acl_is_inherited_by_the_others_directory,
    a_default_acl_that_is_gone_is_not_inherited,
    an_open_file_is_still_read_after_it_was_closed_to_others,
);

/// What `SOMEBODY` can open in the folder of a case.
fn opens(side: &Side, name: &str, flags: OFlags) -> Result<File, Errno> {
    let folder = side.open(".");
    as_user(SOMEBODY, || open_in(&folder, name, flags))
}

const READ: OFlags = OFlags::RDONLY;
const WRITE: OFlags = OFlags::WRONLY;
const MAKE: OFlags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL);

fn a_mode_takes_reading_away(a: &Side, b: &Side) {
    a.write("f", "one");
    let _open = warm(a, b);
    opens(b, "f", READ).unwrap();
    a.chmod("f", 0o600);
    fails(opens(b, "f", READ), Errno::ACCESS);
}

fn a_mode_gives_reading(a: &Side, b: &Side) {
    a.write("f", "one");
    a.chmod("f", 0o600);
    let _open = warm(a, b);
    fails(opens(b, "f", READ), Errno::ACCESS);
    a.chmod("f", 0o604);
    opens(b, "f", READ).unwrap();
}

fn a_mode_gives_writing(a: &Side, b: &Side) {
    a.write("f", "one");
    let _open = warm(a, b);
    fails(opens(b, "f", WRITE), Errno::ACCESS);
    a.chmod("f", 0o602);
    opens(b, "f", WRITE).unwrap();
    fails(opens(b, "f", READ), Errno::ACCESS);
}

fn a_mode_of_a_directory_takes_the_way_away(a: &Side, b: &Side) {
    a.mkdir("d");
    a.write("d/f", "one");
    let _open = warm(a, b);
    opens(b, "d/f", READ).unwrap();
    a.chmod("d", 0o700);
    fails(opens(b, "d/f", READ), Errno::ACCESS);
    a.chmod("d", 0o711);
    opens(b, "d/f", READ).unwrap();
    fails(opens(b, "d", READ | OFlags::DIRECTORY), Errno::ACCESS);
}

fn a_mode_of_a_directory_gives_making(a: &Side, b: &Side) {
    a.mkdir("d");
    let _open = warm(a, b);
    fails(opens(b, "d/f", MAKE), Errno::ACCESS);
    a.chmod("d", 0o777);
    opens(b, "d/f", MAKE).unwrap();
    a.holds("d/f", "");
}

fn a_mode_counts_for_access(a: &Side, b: &Side) {
    a.write("f", "one");
    let folder = b.open(".");
    let may =
        |access: Access| as_user(SOMEBODY, || accessat(&folder, "f", access, AtFlags::empty()));
    may(Access::READ_OK).unwrap();
    assert_eq!(may(Access::WRITE_OK), Err(Errno::ACCESS));
    a.chmod("f", 0o602);
    may(Access::WRITE_OK).unwrap();
    assert_eq!(may(Access::READ_OK), Err(Errno::ACCESS));
}

fn an_owner_gives_reading(a: &Side, b: &Side) {
    a.write("f", "one");
    a.chmod("f", 0o600);
    let _open = warm(a, b);
    fails(opens(b, "f", READ), Errno::ACCESS);
    a.chown("f", SOMEBODY, 0);
    opens(b, "f", READ).unwrap();
    a.chown("f", ANOTHER, 0);
    fails(opens(b, "f", READ), Errno::ACCESS);
}

fn a_group_gives_reading(a: &Side, b: &Side) {
    a.write("f", "one");
    a.chmod("f", 0o640);
    let _open = warm(a, b);
    fails(opens(b, "f", READ), Errno::ACCESS);
    a.chown("f", 0, SOMEBODY);
    opens(b, "f", READ).unwrap();
}

fn who_makes_a_file_owns_it(a: &Side, b: &Side) {
    a.chmod(".", 0o777);
    b.missing("f");
    b.missing("d");
    opens(a, "f", MAKE).unwrap();
    let folder = a.open(".");
    as_user(SOMEBODY, || mkdirat(&folder, "d", Mode::from_raw_mode(0o755))).unwrap();
    for name in ["f", "d"] {
        let meta = b.stat(name);
        assert_eq!((meta.uid(), meta.gid()), (SOMEBODY, SOMEBODY), "{name}");
    }
}

fn a_set_group_id_directory_gives_its_group(a: &Side, b: &Side) {
    a.mkdir("d");
    a.chown("d", 0, 2000);
    a.chmod("d", 0o2777);
    warm(a, b);
    b.write("d/f", "one");
    opens(b, "d/g", MAKE).unwrap();
    b.symlink("f", "d/l");
    for name in ["d/f", "d/g", "d/l"] {
        assert_eq!(a.stat(name).gid(), 2000, "{name}");
    }
}

fn a_set_group_id_directory_gives_it_on(a: &Side, b: &Side) {
    a.mkdir("d");
    a.chown("d", 0, 2000);
    a.chmod("d", 0o2755);
    warm(a, b);
    b.mkdir("d/e");
    assert_eq!((a.stat("d/e").gid(), a.mode("d/e")), (2000, 0o2755));
    a.mkdir("d/e/f");
    assert_eq!((b.stat("d/e/f").gid(), b.mode("d/e/f")), (2000, 0o2755));
}

fn a_directory_that_became_set_group_id(a: &Side, b: &Side) {
    a.mkdir("d");
    a.chown("d", 0, 2000);
    b.write("d/before", "");
    let _open = warm(a, b);
    a.chmod("d", 0o2755);
    b.write("d/after", "");
    assert_eq!((a.stat("d/before").gid(), a.stat("d/after").gid()), (0, 2000));
    a.chown("d", 0, 3000);
    a.chmod("d", 0o2755);
    b.write("d/later", "");
    assert_eq!(a.stat("d/later").gid(), 3000);
}

fn a_sticky_directory_keeps_others_files(a: &Side, b: &Side) {
    a.mkdir("d");
    a.chmod("d", 0o1777);
    opens(a, "d/mine", MAKE).unwrap();
    warm(a, b);
    let folder = b.open("d");
    let remove = || unlinkat(&folder, "mine", AtFlags::empty());
    let rename = || renameat(&folder, "mine", &folder, "yours");
    let removed = [as_user(ANOTHER, remove), as_user(ANOTHER, rename)];
    assert_eq!(removed, [Err(Errno::PERM), Err(Errno::PERM)]);
    as_user(SOMEBODY, remove).unwrap();
    a.missing("d/mine");
}

fn a_directory_that_became_sticky(a: &Side, b: &Side) {
    a.mkdir("d");
    a.chmod("d", 0o777);
    for name in ["one", "two"] {
        opens(a, &format!("d/{name}"), MAKE).unwrap();
    }
    let _open = warm(a, b);
    let folder = b.open("d");
    let remove = |name: &str| as_user(ANOTHER, || unlinkat(&folder, name, AtFlags::empty()));
    remove("one").unwrap();
    a.chmod("d", 0o1777);
    assert_eq!(remove("two"), Err(Errno::PERM));
    a.chmod("d", 0o777);
    remove("two").unwrap();
}

fn a_write_takes_set_id_away(a: &Side, b: &Side) {
    a.write("f", "one");
    a.chmod("f", 0o777);
    let mut file = opens(b, "f", WRITE).unwrap();
    a.chmod("f", 0o6777);
    assert_eq!(b.mode("f"), 0o6777);
    as_user(SOMEBODY, || file.write_all(b"two")).unwrap();
    assert_eq!((b.mode("f"), a.mode("f")), (0o777, 0o777));
}

const ACL: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// An ACL as the kernel takes it: the owner's rights, those of `SOMEBODY`, the group's, the mask,
/// and everybody else's.
fn acl([owner, somebody, group, mask, other]: [u16; 5]) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let entries = [
        (1, owner, NOBODY),
        (2, somebody, SOMEBODY),
        (4, group, NOBODY),
        (16, mask, NOBODY),
        (32, other, NOBODY),
    ];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, who) in entries {
        bytes.extend(u16::to_le_bytes(tag));
        bytes.extend(rights.to_le_bytes());
        bytes.extend(who.to_le_bytes());
    }
    bytes
}

fn an_acl_gives_reading(a: &Side, b: &Side) {
    a.write("f", "one");
    a.chmod("f", 0o600);
    let _open = warm(a, b);
    fails(opens(b, "f", READ), Errno::ACCESS);
    a.set("f", ACL, acl([6, 4, 0, 4, 0]));
    opens(b, "f", READ).unwrap();
    fails(opens(b, "f", WRITE), Errno::ACCESS);
}

fn an_acl_takes_reading_away(a: &Side, b: &Side) {
    a.write("f", "one");
    let _open = warm(a, b);
    opens(b, "f", READ).unwrap();
    a.set("f", ACL, acl([6, 0, 4, 4, 4]));
    fails(opens(b, "f", READ), Errno::ACCESS);
    a.set("f", ACL, acl([6, 4, 4, 4, 4]));
    opens(b, "f", READ).unwrap();
}

fn an_acl_is_shown_the_same(a: &Side, b: &Side) {
    a.write("f", "one");
    let _open = warm(a, b);
    assert_eq!(b.get("f", ACL), None);
    for rights in [[6, 4, 0, 4, 0], [7, 1, 2, 7, 4]] {
        a.set("f", ACL, acl(rights));
        assert_eq!(b.get("f", ACL), Some(acl(rights)));
    }
}

fn an_acl_is_removed(a: &Side, b: &Side) {
    a.write("f", "one");
    a.set("f", ACL, acl([6, 4, 0, 4, 0]));
    let _open = warm(a, b);
    opens(b, "f", READ).unwrap();
    a.unset("f", ACL);
    assert_eq!(b.get("f", ACL), None);
    assert_eq!(b.mode("f"), 0o640);
    fails(opens(b, "f", READ), Errno::ACCESS);
}

fn an_acl_shows_its_mask_as_the_group(a: &Side, b: &Side) {
    a.write("f", "one");
    let _open = warm(a, b);
    a.set("f", ACL, acl([7, 4, 0, 5, 1]));
    assert_eq!(b.mode("f"), 0o751);
}

fn a_mode_is_the_mask_of_an_acl(a: &Side, b: &Side) {
    a.write("f", "one");
    a.set("f", ACL, acl([6, 6, 0, 6, 0]));
    let _open = warm(a, b);
    opens(b, "f", WRITE).unwrap();
    a.chmod("f", 0o640);
    assert_eq!(b.get("f", ACL), Some(acl([6, 6, 0, 4, 0])));
    fails(opens(b, "f", WRITE), Errno::ACCESS);
    opens(b, "f", READ).unwrap();
}

fn a_default_acl_is_inherited_by_the_others_file(a: &Side, b: &Side) {
    a.mkdir("d");
    b.write("d/before", "");
    let _open = warm(a, b);
    a.set("d", DEFAULT, acl([7, 7, 5, 7, 0]));
    b.write("d/after", "one");
    // The mode that it was made with is 666.
    assert_eq!(a.get("d/after", ACL), Some(acl([6, 7, 5, 6, 0])));
    assert_eq!((a.mode("d/after"), a.get("d/before", ACL)), (0o660, None));
    opens(a, "d/after", WRITE).unwrap();
    fails(opens(a, "d/before", WRITE), Errno::ACCESS);
}

fn a_default_acl_is_inherited_by_the_others_directory(a: &Side, b: &Side) {
    a.mkdir("d");
    b.missing("d/e");
    let _open = warm(a, b);
    a.set("d", DEFAULT, acl([7, 7, 5, 7, 0]));
    b.mkdir("d/e");
    assert_eq!(a.get("d/e", DEFAULT), Some(acl([7, 7, 5, 7, 0])));
    assert_eq!(a.get("d/e", ACL), Some(acl([7, 7, 5, 7, 0])));
    a.write("d/e/f", "one");
    assert_eq!(b.get("d/e/f", ACL), Some(acl([6, 7, 5, 6, 0])));
}

fn a_default_acl_that_is_gone_is_not_inherited(a: &Side, b: &Side) {
    a.mkdir("d");
    a.set("d", DEFAULT, acl([7, 7, 5, 7, 0]));
    b.write("d/before", "");
    assert_eq!(a.get("d/before", ACL), Some(acl([6, 7, 5, 6, 0])));
    a.unset("d", DEFAULT);
    b.write("d/after", "");
    assert_eq!((a.get("d/after", ACL), a.mode("d/after")), (None, 0o644));
}

fn an_open_file_is_still_read_after_it_was_closed_to_others(a: &Side, b: &Side) {
    a.write("f", "one");
    let file = opens(b, "f", READ).unwrap();
    a.chmod("f", 0o600);
    fails(opens(b, "f", READ), Errno::ACCESS);
    as_user(SOMEBODY, || crate::side::shows(&file, "one"));
    a.put("f", 0, "two");
    as_user(SOMEBODY, || crate::side::shows(&file, "two"));
}

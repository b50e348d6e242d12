//! Names of extended attributes: which there may be, and who sees which.

use sateen_types::{Errno, Result};

/// Name spaces that users, or the kernel on their behalf, put names into.
const SPACES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
/// Names in the kernel's own name space.
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// Refuses what no file has, as ext4 does: FUSE sends every name.
pub(crate) fn check(name: &[u8]) -> Result<()> {
    if ACLS.contains(&name) {
        return Ok(());
    }
    match SPACES.iter().find_map(|space| name.strip_prefix(*space)) {
        None => Err(Errno::EOPNOTSUPP),
        Some(b"") => Err(Errno::EINVAL),
        Some(_) => Ok(()),
    }
}

/// Of a list of names, each ended by a NUL, those that this user may see. `trusted.` names are
/// the superuser's.
pub(crate) fn visible(list: &[u8], uid: u32) -> Vec<u8> {
    let mut seen = Vec::with_capacity(list.len());
    for name in list.split_inclusive(|byte| *byte == 0) {
        if uid == 0 || !name.starts_with(b"trusted.") {
            seen.extend_from_slice(name);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_and_listed_as_on_ext4() {
        for good in ["user.a", "trusted.overlay.opaque", "security.selinux"] {
            assert_eq!(check(good.as_bytes()), Ok(()));
        }
        assert_eq!(check(b"system.posix_acl_default"), Ok(()));
        for bad in ["user", "other.a", "system.posix_acl", "system.a", "sateen.a", ""] {
            assert_eq!(check(bad.as_bytes()), Err(Errno::EOPNOTSUPP), "{bad}");
        }
        assert_eq!(check(b"trusted."), Err(Errno::EINVAL));
        let list = b"user.a\0trusted.b\0security.c\0";
        assert_eq!(visible(list, 0), list);
        assert_eq!(visible(list, 7), b"user.a\0security.c\0");
    }
}

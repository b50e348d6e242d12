//! A file system that is nearly full looks for free blocks where it otherwise takes them, and
//! places new files on fewer targets.

use super::{Code, Pitfall};
use crate::io::Space;
use crate::size::human;

/// Fuller than this is nearly full.
const USED_SHARE_MAX: f64 = 0.8;

fn used(free: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { 1.0 - free as f64 / all as f64 }
}

/// Whether it is nearly full, or will be when so many bytes have come.
pub(super) fn full(space: &Space, bytes_to_come: u64) -> Option<Pitfall> {
    if space.bytes == 0 {
        return None;
    }
    let free = space.bytes_free.saturating_sub(bytes_to_come);
    let (bytes, inodes) = (used(free, space.bytes), used(space.inodes_free, space.inodes));
    let message = if bytes_to_come > space.bytes_free {
        let (need, have) = (human(bytes_to_come), human(space.bytes_free));
        format!("the run writes {need}, and the file system has {have} free")
    } else if bytes > USED_SHARE_MAX {
        let when = if bytes_to_come > 0 { "will be" } else { "is" };
        format!("the file system {when} {:.0} % full", bytes * 100.0)
    } else if inodes > USED_SHARE_MAX {
        format!("{:.0} % of the file system's inodes are used", inodes * 100.0)
    } else {
        return None;
    };
    Some(Pitfall::new(Code::Full, None, bytes.max(inodes), message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nearly_full_is_found() {
        let space = Space { bytes: 100 << 20, bytes_free: 50 << 20, inodes: 100, inodes_free: 50 };
        let said = |space, to_come| full(&space, to_come).map(|one| one.message);
        assert_eq!(said(space, 0), None);
        assert_eq!(said(space, 20 << 20), None);
        assert_eq!(said(space, 40 << 20).unwrap(), "the file system will be 90 % full");
        assert!(said(space, 60 << 20).unwrap().contains("writes 60 MiB"));
        let none = Space { bytes_free: 10 << 20, ..space };
        assert_eq!(said(none, 0).unwrap(), "the file system is 90 % full");
        let names = Space { inodes_free: 5, ..space };
        assert_eq!(said(names, 0).unwrap(), "95 % of the file system's inodes are used");
        assert_eq!(said(Space::default(), 1 << 40), None, "nothing is known of it");
    }
}

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

/// What a run makes: the most of it that is there at once.
#[derive(Debug, Clone, Copy, Default)]
pub struct ToCome {
    /// Bytes of files.
    pub bytes: u64,
    /// Files and directories.
    pub inodes: u64,
}

/// Whether it is nearly full, or will be when all that has come.
pub(super) fn full(space: &Space, to_come: ToCome) -> Option<Pitfall> {
    if space.bytes == 0 {
        return None;
    }
    let bytes = used(space.bytes_free.saturating_sub(to_come.bytes), space.bytes);
    let inodes = used(space.inodes_free.saturating_sub(to_come.inodes), space.inodes);
    let message = if to_come.bytes > space.bytes_free {
        let (need, have) = (human(to_come.bytes), human(space.bytes_free));
        format!("the run writes {need}, and the file system has {have} free")
    } else if space.inodes > 0 && to_come.inodes > space.inodes_free {
        let (need, have) = (to_come.inodes, space.inodes_free);
        format!("the run makes {need} files and directories, and {have} inodes are free")
    } else if bytes > USED_SHARE_MAX {
        let when = if to_come.bytes > 0 { "will be" } else { "is" };
        format!("the file system {when} {:.0} % full", bytes * 100.0)
    } else if inodes > USED_SHARE_MAX {
        let when = if to_come.inodes > 0 { "will be" } else { "are" };
        format!("{:.0} % of the file system's inodes {when} used", inodes * 100.0)
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
        let said = |space, bytes| full(&space, ToCome { bytes, inodes: 0 }).map(|one| one.message);
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

    #[test]
    fn inodes_to_come_count() {
        let space = Space { bytes: 100 << 20, bytes_free: 50 << 20, inodes: 100, inodes_free: 50 };
        let said = |space, inodes| full(&space, ToCome { bytes: 0, inodes }).map(|one| one.message);
        assert_eq!(said(space, 30), None);
        let most = said(space, 31).unwrap();
        assert_eq!(most, "81 % of the file system's inodes will be used");
        let more = said(space, 51).unwrap();
        assert_eq!(more, "the run makes 51 files and directories, and 50 inodes are free");
        let none = Space { inodes: 0, inodes_free: 0, ..space };
        assert_eq!(said(none, 51), None, "this one does not count them");
    }
}

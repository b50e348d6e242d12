//! POSIX access control lists: the rules by which they and the mode follow each other.
//!
//! The kernel of the mount decides by them who may do what; here they are checked, kept as
//! extended attributes in the kernel's own encoding, and changed with the mode:
//!
//! - Setting an access list sets the mode: owner and others from their entries, the group's
//!   bits from the mask. A list that says no more than a mode does is not kept.
//! - `chmod` sets those entries.
//! - What is created in a directory with a default list gets it, cut down by the mode that was
//!   asked for; the umask counts only where there is none. Directories pass it on.

use sateen_types::Errno;

/// The list that decides.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The list that new files in a directory get.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Version of the encoding.
const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// Most entries, so that a list always fits into an attribute.
const ENTRIES_MAX: usize = 4096;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// What entries that name nobody carry instead of an id.
const NOBODY: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    tag: u16,
    perm: u16,
    id: u32,
}

/// A list that is good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Acl {
    entries: Vec<Entry>,
}

impl Acl {
    /// Reads a list; `None` if it is empty, which means that there is none.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for another encoding, `EINVAL` for entries that make no sense.
    pub(crate) fn decode(value: &[u8]) -> Result<Option<Acl>, Errno> {
        if value.is_empty() {
            return Ok(None);
        }
        let (version, rest) = value.split_first_chunk::<HEADER_BYTES>().ok_or(Errno::EINVAL)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Errno::EOPNOTSUPP);
        }
        let (chunks, odd) = rest.as_chunks::<ENTRY_BYTES>();
        if !odd.is_empty() || chunks.len() > ENTRIES_MAX {
            return Err(Errno::EINVAL);
        }
        let entry = |bytes: &[u8; ENTRY_BYTES]| {
            let [t0, t1, p0, p1, id @ ..] = *bytes;
            let (tag, perm) = (u16::from_le_bytes([t0, t1]), u16::from_le_bytes([p0, p1]));
            Entry { tag, perm, id: u32::from_le_bytes(id) }
        };
        let acl = Acl { entries: chunks.iter().map(entry).collect() };
        if acl.entries.is_empty() {
            return Ok(None);
        }
        acl.check()?;
        Ok(Some(acl))
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES + self.entries.len() * ENTRY_BYTES);
        out.extend_from_slice(&VERSION.to_le_bytes());
        for entry in &self.entries {
            out.extend_from_slice(&entry.tag.to_le_bytes());
            out.extend_from_slice(&entry.perm.to_le_bytes());
            out.extend_from_slice(&entry.id.to_le_bytes());
        }
        out
    }

    /// One owner, one group, others, in that order with the named ones behind theirs; a mask
    /// where anybody is named.
    fn check(&self) -> Result<(), Errno> {
        let count = |tag| self.entries.iter().filter(|entry| entry.tag == tag).count();
        let once = [USER_OBJ, GROUP_OBJ, OTHER].iter().all(|tag| count(*tag) == 1);
        let named = count(USER) + count(GROUP) > 0;
        let mask = count(MASK);
        let sorted = self.entries.windows(2).all(|pair| match pair {
            // The order of those who are named is the program's.
            [a, b] => a.tag < b.tag || a.tag == b.tag && [USER, GROUP].contains(&a.tag),
            _ => false,
        });
        let known = self.entries.iter().all(|entry| {
            let tag = [USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER].contains(&entry.tag);
            let names = [USER, GROUP].contains(&entry.tag);
            tag && entry.perm <= 7 && (!names || entry.id != NOBODY)
        });
        let good = once && sorted && known && mask <= 1 && (!named || mask == 1);
        if good { Ok(()) } else { Err(Errno::EINVAL) }
    }

    fn perm(&self, tag: u16) -> Option<u32> {
        self.entries.iter().find(|entry| entry.tag == tag).map(|entry| u32::from(entry.perm))
    }

    /// The tag whose permissions are the group's bits of the mode.
    fn group_tag(&self) -> u16 {
        if self.perm(MASK).is_some() { MASK } else { GROUP_OBJ }
    }

    /// The mode's permission bits that belong to the list.
    pub(crate) fn mode_bits(&self) -> u32 {
        let bits = |tag| self.perm(tag).unwrap_or(0);
        bits(USER_OBJ) << 6 | bits(self.group_tag()) << 3 | bits(OTHER)
    }

    /// Whether a mode says all that it says.
    pub(crate) fn is_mode(&self) -> bool {
        self.entries.iter().all(|entry| [USER_OBJ, GROUP_OBJ, OTHER].contains(&entry.tag))
    }

    /// The mode was changed.
    pub(crate) fn set_mode(&mut self, mode: u32) {
        let group = self.group_tag();
        for entry in &mut self.entries {
            entry.perm = match entry.tag {
                USER_OBJ => (mode >> 6 & 7) as u16,
                tag if tag == group => (mode >> 3 & 7) as u16,
                OTHER => (mode & 7) as u16,
                _ => entry.perm,
            };
        }
    }

    /// As a default list it becomes a new inode's access list, which allows no more than the
    /// mode that was asked for; the mode that results.
    pub(crate) fn inherit(&mut self, mode: u32) -> u32 {
        let both = self.mode_bits() & mode;
        self.set_mode(both);
        mode & !0o777 | both
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16, u32)]) -> Acl {
        let entry = |&(tag, perm, id): &(u16, u16, u32)| Entry { tag, perm, id };
        Acl { entries: entries.iter().map(entry).collect() }
    }

    fn full() -> Acl {
        let none = NOBODY;
        acl(&[
            (USER_OBJ, 7, none),
            (USER, 6, 12),
            (USER, 4, 5),
            (GROUP_OBJ, 5, none),
            (GROUP, 7, 34),
            (MASK, 6, none),
            (OTHER, 1, none),
        ])
    }

    #[test]
    fn lists_round_trip_and_empty_ones_are_none() {
        assert_eq!(Acl::decode(&full().encode()).unwrap(), Some(full()));
        assert_eq!(Acl::decode(b"").unwrap(), None);
        assert_eq!(Acl::decode(&VERSION.to_le_bytes()).unwrap(), None);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let bad = |change: &dyn Fn(&mut Vec<Entry>)| {
            let mut acl = full();
            change(&mut acl.entries);
            assert_eq!(Acl::decode(&acl.encode()), Err(Errno::EINVAL), "{acl:?}");
        };
        for at in 0..full().entries.len() {
            if ![1, 2, 4].contains(&at) {
                bad(&|entries| {
                    entries.remove(at);
                });
            }
            bad(&|entries| entries[at].perm = 8);
            bad(&|entries| entries[at].tag = 3);
        }
        bad(&|entries| entries.swap(0, 1));
        bad(&|entries| entries.swap(3, 4));
        bad(&|entries| entries[1].id = NOBODY);
        bad(&|entries| entries.push(Entry { tag: OTHER, perm: 0, id: NOBODY }));
        let mut bytes = full().encode();
        bytes.push(0);
        assert_eq!(Acl::decode(&bytes), Err(Errno::EINVAL));
        bytes[0] = 1;
        assert_eq!(Acl::decode(&bytes), Err(Errno::EOPNOTSUPP));
    }

    #[test]
    fn the_mask_is_the_groups_bits() {
        let mut list = full();
        assert_eq!(list.mode_bits(), 0o761);
        assert!(!list.is_mode());
        list.set_mode(0o640);
        assert_eq!(
            (list.mode_bits(), list.perm(MASK), list.perm(GROUP_OBJ)),
            (0o640, Some(4), Some(5))
        );
        let mut plain = acl(&[(USER_OBJ, 6, NOBODY), (GROUP_OBJ, 4, NOBODY), (OTHER, 0, NOBODY)]);
        assert!(plain.is_mode());
        plain.set_mode(0o755);
        assert_eq!((plain.mode_bits(), plain.perm(GROUP_OBJ)), (0o755, Some(5)));
    }

    #[test]
    fn what_is_inherited_allows_no_more_than_was_asked_for() {
        let mut list = full();
        assert_eq!(list.inherit(0o100_644), 0o100_640);
        assert_eq!(list.mode_bits(), 0o640);
        assert_eq!(list.perm(USER), Some(6), "named ones are cut by the mask");
    }
}

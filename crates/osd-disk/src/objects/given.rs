//! Objects that were given away: a kernel reads and writes their files itself, and says nothing.
//!
//! Life of such an object:
//! 1. *Given*: its file stays open ([`super::files`]) and is taken for changed, so that each sync
//!    goes to the disk, by the descriptor that hears of its errors.
//! 2. *Back*: a file like others again, of which something may have been written that no sync has
//!    seen; that is noted here until one has.
//!
//! Who has a file open, or mapped, only the kernel knows, also of those that an earlier process has
//! left behind. It tells by a lease: [`nobody_else_has`].

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::sync::{Arc, Mutex};

use sateen_types::ObjectId;

use super::files::Open;
use crate::lock;

/// Most objects that are noted. Of more everything is synced that the file system below has.
const NOTED_MAX: usize = 1 << 17;

/// So many that are noted are looked for one by one when all are to be synced. Of more it takes less
/// time to have everything synced.
const ONE_BY_ONE_MAX: usize = 1 << 12;

/// Which signal a lease that is broken is told by; `libc` does not have it.
const F_SETSIG: libc::c_int = 10;

/// What the file of [`sateen_osd::Given`] is here.
#[derive(Debug)]
pub struct GivenFile(pub(super) Arc<Open>);

impl AsFd for GivenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let file: &File = &self.0;
        file.as_fd()
    }
}

/// Objects that were given, and not synced since they are back.
#[derive(Debug, Default)]
pub(super) struct Unseen {
    noted: Mutex<Noted>,
}

#[derive(Debug, Default)]
pub(super) struct Noted {
    objects: BTreeSet<ObjectId>,
    /// There were more than are noted.
    too_many: bool,
}

impl Unseen {
    /// Something may be written from now on that nobody tells of.
    pub(super) fn note(&self, object: ObjectId) {
        let mut noted = lock(&self.noted);
        noted.too_many |= noted.objects.len() >= NOTED_MAX;
        if !noted.too_many {
            noted.objects.insert(object);
        }
    }

    /// These are being synced; says which of them were noted. To be called before that begins, and
    /// with [`Unseen::note`] if it fails.
    pub(super) fn seen(
        &self,
        objects: &[ObjectId],
        is_given: impl Fn(ObjectId) -> bool,
    ) -> Vec<ObjectId> {
        let mut noted = lock(&self.noted);
        if noted.objects.is_empty() {
            return Vec::new();
        }
        let back = objects.iter().filter(|object| !is_given(**object));
        back.filter(|object| noted.objects.remove(object)).copied().collect()
    }

    /// All that are noted, and these that are given; `None` if there are too many.
    pub(super) fn all(&self, given: &[ObjectId]) -> Option<Vec<ObjectId>> {
        let noted = lock(&self.noted);
        if noted.too_many || noted.objects.len() + given.len() > ONE_BY_ONE_MAX {
            return None;
        }
        let mut all = noted.objects.clone();
        all.extend(given);
        Some(all.into_iter().collect())
    }

    /// Everything is being synced; says what was noted. Those that are given stay noted. To be called
    /// before that begins, and with [`Unseen::put_back`] if it fails.
    pub(super) fn take(&self, given: impl FnOnce() -> Vec<ObjectId>) -> Noted {
        let mut noted = lock(&self.noted);
        let objects = given().into_iter().collect();
        std::mem::replace(&mut *noted, Noted { objects, too_many: false })
    }

    pub(super) fn put_back(&self, seen: Noted) {
        lock(&self.noted).too_many |= seen.too_many;
        seen.objects.into_iter().for_each(|object| self.note(object));
    }
}

/// Whether the file system below knows leases, and grants them to us. Looked for with one file.
pub fn has_leases(file: &File) -> bool {
    nobody_else_has(file)
        .inspect_err(|error| {
            tracing::warn!(%error, "no leases here: no object is given away");
        })
        .is_ok()
}

/// Whether nobody but this descriptor has the file open or mapped.
///
/// # Errors
/// The file system's, if it knows no leases.
pub(super) fn nobody_else_has(file: &File) -> io::Result<bool> {
    // Whoever opens the file while the lease is there breaks it, and the holder gets a signal, which
    // would end the process. This one nobody hears who has not asked for it.
    // SAFETY: a system call on an open descriptor, without memory of ours.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG) })?;
    // SAFETY: as above.
    match checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) }) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
        Err(error) => return Err(error),
    }
    // SAFETY: as above.
    match checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) }) {
        // Another thread has asked the same, and given back the lease of both.
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(true),
    }
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(stripe: u32) -> ObjectId {
        ObjectId { stripe, ..ObjectId::default() }
    }

    #[test]
    fn what_is_given_is_noted_until_a_sync_when_it_is_back() {
        let unseen = Unseen::default();
        assert_eq!(unseen.seen(&[object(1)], |_| false), []);
        unseen.note(object(1));
        unseen.note(object(2));
        assert_eq!(unseen.seen(&[object(1), object(3)], |_| true), [], "it is given yet");
        assert_eq!(unseen.seen(&[object(1), object(3)], |_| false), [object(1)]);
        assert_eq!(unseen.all(&[object(0)]), Some(vec![object(0), object(2)]));
        for stripe in 0..NOTED_MAX as u32 + 1 {
            unseen.note(object(stripe));
        }
        assert_eq!(unseen.all(&[]), None, "too many");
        let seen = unseen.take(|| vec![object(5)]);
        assert_eq!(unseen.all(&[]), Some(vec![object(5)]), "it is given yet");
        unseen.put_back(seen);
        assert_eq!(unseen.all(&[]), None, "they are not synced");
    }
}

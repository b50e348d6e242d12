//! Where objects lie: `SEQ/GROUP/OID.STRIPE`, all in hexadecimal. A group is 512 object ids
//! of a sequence, so that no folder grows large and listings come in order.

use std::fmt::{self, Write as _};
use std::io;
use std::path::{Path, PathBuf};

use sateen_types::{Fid, ObjectId, Seq};

/// Object ids of one group, as a power of two.
const GROUP_BITS: u32 = 9;
/// Most bytes of a name below the store's folder: `/SEQ/GROUP/OID.STRIPE`.
const NAME_BYTES_MAX: usize = 17 + 9 + 9 + 9;

/// A folder of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Group {
    pub(super) seq: Seq,
    high: u32,
}

impl Group {
    pub(super) fn of(object: ObjectId) -> Self {
        Self { seq: object.fid.seq, high: object.fid.oid >> GROUP_BITS }
    }

    pub(super) fn path(self, folder: &Path) -> PathBuf {
        below(folder, format_args!("{:x}/{:x}", self.seq.0, self.high))
    }
}

pub(super) fn sequence_path(folder: &Path, seq: Seq) -> PathBuf {
    below(folder, format_args!("{:x}", seq.0))
}

pub(super) fn path(folder: &Path, object: ObjectId) -> PathBuf {
    let Group { seq, high } = Group::of(object);
    below(folder, format_args!("{:x}/{high:x}/{:x}.{:x}", seq.0, object.fid.oid, object.stripe))
}

/// A path with one piece of memory: each object that is born has one.
fn below(folder: &Path, name: fmt::Arguments<'_>) -> PathBuf {
    let mut path = PathBuf::with_capacity(folder.as_os_str().len() + NAME_BYTES_MAX);
    path.push(folder);
    // Nothing keeps a string from taking it.
    let _ = write!(path.as_mut_os_string(), "/{name}");
    path
}

/// The sequences that have folders, in order.
pub(super) fn sequences_in(folder: &Path) -> io::Result<Vec<Seq>> {
    names_in(folder, |name| u64::from_str_radix(name, 16).ok().map(Seq))
}

/// The groups of a sequence that have folders, in order.
pub(super) fn groups_in(folder: &Path, seq: Seq) -> io::Result<Vec<Group>> {
    names_in(&sequence_path(folder, seq), |name| {
        Some(Group { seq, high: u32::from_str_radix(name, 16).ok()? })
    })
}

/// The objects of a group, in order.
pub(super) fn objects_in(folder: &Path, group: Group) -> io::Result<Vec<ObjectId>> {
    names_in(&group.path(folder), |name| {
        let (oid, stripe) = name.split_once('.')?;
        let oid = u32::from_str_radix(oid, 16).ok()?;
        let stripe = u32::from_str_radix(stripe, 16).ok()?;
        let object = ObjectId { fid: Fid { seq: group.seq, oid, ver: 0 }, stripe };
        (Group::of(object) == group).then_some(object)
    })
}

/// The names in a folder that `parse` understands, sorted. Nothing if there is no folder.
fn names_in<T: Ord>(folder: &Path, parse: impl Fn(&str) -> Option<T>) -> io::Result<Vec<T>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        match name.to_str().and_then(&parse) {
            Some(parsed) => found.push(parsed),
            None => tracing::warn!(?folder, ?name, "not a name of the object store"),
        }
    }
    found.sort_unstable();
    Ok(found)
}

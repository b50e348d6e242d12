//! Directory entries in the store: chains of equal hashes, and the link-EA.
//!
//! Entries with the same hash form a chain of rising collision indices from 0; each says
//! whether the next index is in use, so that a lookup reads one key nearly always. An entry
//! that goes from the middle leaves a whiteout; the places of the others never change.

use sateen_osd::Batch;
use sateen_target::Fault;
use sateen_types::{COLLISION_MAX, Errno, Fid, FileKind, name_hash};
use sateen_wire::disk::mdt::{Entry, links, put_link};

use crate::keys;
use crate::view::View;

/// The place of an entry within its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) parent: Fid,
    pub(crate) hash: u64,
    pub(crate) collision: u16,
    /// The next index is in use.
    more: bool,
}

impl Place {
    /// The same place, once the next index is in use.
    pub(crate) const fn followed(self) -> Place {
        Place { more: true, ..self }
    }

    /// Whether it is the next one of the same chain.
    pub(crate) fn follows(&self, before: &Place) -> bool {
        let chained = (self.parent, self.hash) == (before.parent, before.hash);
        chained && self.collision == before.collision + 1
    }
}

/// What a lookup found.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Found {
    /// The entry.
    Entry { place: Place, fid: Fid, kind: FileKind },
    /// Nothing; it would go there, behind this predecessor (`extends`).
    Absent { place: Place, extends: bool },
}

impl Found {
    pub(crate) const fn place(&self) -> Place {
        match self {
            Found::Entry { place, .. } | Found::Absent { place, .. } => *place,
        }
    }
}

fn read<'a>(view: &View<'a>, place: &Place) -> Result<Option<Entry<'a>>, Fault> {
    let key = keys::entry(place.parent, place.hash, place.collision);
    let Some(bytes) = view.get(&key)? else { return Ok(None) };
    Ok(Some(Entry::decode(bytes).map_err(|_| {
        tracing::error!(parent = %place.parent, "directory entry is damaged");
        Errno::EIO
    })?))
}

/// Looks a name up.
pub(crate) fn find(view: &View<'_>, parent: Fid, name: &[u8]) -> Result<Found, Fault> {
    let hash = name_hash(view.hash_key, name);
    let mut place = Place { parent, hash, collision: 0, more: false };
    let mut vacant = None;
    loop {
        let Some(entry) = read(view, &place)? else {
            let extends = vacant.is_none() && place.collision > 0;
            return Ok(Found::Absent { place: vacant.unwrap_or(place), extends });
        };
        place.more = entry.more;
        match entry.target {
            Some((fid, kind)) if entry.name == name => {
                return Ok(Found::Entry { place, fid, kind });
            }
            Some(_) => {}
            None => vacant = vacant.or(Some(place)),
        }
        if !entry.more {
            break;
        }
        place.collision += 1;
    }
    if let Some(place) = vacant {
        return Ok(Found::Absent { place, extends: false });
    }
    if place.collision >= COLLISION_MAX {
        return Err(Errno::ENOSPC.into());
    }
    let place = Place { collision: place.collision + 1, ..place };
    Ok(Found::Absent { place, extends: true })
}

/// Writes an entry to a place: a new one, or another inode or name in place of the old.
pub(crate) fn put(tx: &mut Batch, place: &Place, name: &[u8], (fid, kind): (Fid, FileKind)) {
    let entry = Entry { more: place.more, target: Some((fid, kind)), name };
    tx.put_with(&keys::entry(place.parent, place.hash, place.collision), |out| entry.put(out));
}

/// Adds an entry where [`find`] found it absent.
pub(crate) fn insert(
    view: &View<'_>,
    tx: &mut Batch,
    (place, extends): (&Place, bool),
    name: &[u8],
    target: (Fid, FileKind),
) -> Result<(), Fault> {
    put(tx, place, name, target);
    if extends {
        let before = Place { collision: place.collision - 1, ..*place };
        if let Some(entry) = read(view, &before)? {
            let key = keys::entry(before.parent, before.hash, before.collision);
            tx.put_with(&key, |out| Entry { more: true, ..entry }.put(out));
        }
    }
    Ok(())
}

/// Leaves a whiteout in an entry's place. Always right; [`remove`] is tidier.
pub(crate) fn white_out(tx: &mut Batch, place: &Place) {
    let key = keys::entry(place.parent, place.hash, place.collision);
    tx.put_with(&key, |out| Entry { more: place.more, target: None, name: &[] }.put(out));
}

/// Removes an entry, and the whiteouts before it that nothing follows any more.
pub(crate) fn remove(view: &View<'_>, tx: &mut Batch, place: &Place) -> Result<(), Fault> {
    if place.more {
        white_out(tx, place);
        return Ok(());
    }
    let mut at = *place;
    tx.remove(&keys::entry(at.parent, at.hash, at.collision));
    while let Some(collision) = at.collision.checked_sub(1) {
        at.collision = collision;
        let key = keys::entry(at.parent, at.hash, at.collision);
        match read(view, &at)? {
            Some(entry) if entry.target.is_none() => tx.remove(&key),
            Some(entry) => {
                tx.put_with(&key, |out| Entry { more: false, ..entry }.put(out));
                break;
            }
            None => break,
        }
    }
    Ok(())
}

/// A link-EA without one link.
pub(crate) fn without_link(ea: &[u8], parent: Fid, name: &[u8], out: &mut Vec<u8>) {
    let mut dropped = false;
    for link in links(ea) {
        if !dropped && link == (parent, name) {
            dropped = true;
        } else {
            put_link(out, link.0, link.1);
        }
    }
}

/// A link-EA with one more link.
pub(crate) fn with_link(ea: &[u8], parent: Fid, name: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(ea);
    put_link(out, parent, name);
}

/// The directory that holds a directory; the root's is the root.
pub(crate) fn parent_of(ea: &[u8]) -> Fid {
    links(ea).next().map_or(Fid::ROOT, |(parent, _)| parent)
}

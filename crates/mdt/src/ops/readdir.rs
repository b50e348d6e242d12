//! `ReadDir`: a page of a directory, with attributes if they are wanted.

use sateen_osd::Key;
use sateen_target::Fault;
use sateen_types::{DirCookie, Errno, Fid, Name};
use sateen_wire::disk::mdt::Entry;
use sateen_wire::{DIR_ENTRIES_MAX, DirEntry, Grants, MdtReply};

use super::{is_regular, reads_size, shown};
use crate::keys;
use crate::mdt::Mdt;
use crate::names::parent_of;
use crate::op::{Op, Outcome};
use crate::view::View;

pub(super) fn run(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    fid: Fid,
    after: DirCookie,
    (count, plus): (u32, bool),
) -> Result<Outcome, Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let dir = view.dir(fid)?;
    let parent = parent_of(dir.links);
    let count = (count as usize).clamp(1, DIR_ENTRIES_MAX);
    let prefix = keys::entries(fid);
    let mut at = match after {
        before if before <= DirCookie::DOT_DOT => prefix,
        place => keys::entry(fid, place.hash(), place.collision()),
    };
    let mut entries = Vec::new();
    let mut damaged = false;
    // Only whiteouts on a page: the next one, until there is something to show.
    let end = loop {
        let more =
            view.store.scan(&prefix, &at, count, view.fetched, |key, value| {
                match decode(key, value) {
                    Some(Some(entry)) => entries.push(entry),
                    Some(None) => {}
                    None => damaged = true,
                }
            })?;
        match more {
            None => break true,
            Some(key) => at = key,
        }
        if !entries.is_empty() {
            break false;
        }
    };
    if damaged {
        tracing::error!(%fid, "a directory has damaged entries");
        return Err(Errno::EIO.into());
    }
    if plus {
        attributes(mdt, op, &mut entries)?;
    }
    Ok(Outcome::ok(MdtReply::Entries { entries, end, parent }, 0, Grants::NONE))
}

/// An entry; `Some(None)` for a whiteout.
fn decode(key: &Key, value: &[u8]) -> Option<Option<DirEntry>> {
    let entry = Entry::decode(value).ok()?;
    let Some((fid, kind)) = entry.target else { return Some(None) };
    let cookie = keys::cookie_of(key)?;
    let name = Name::new(entry.name).ok()?;
    Some(Some(DirEntry { cookie, fid, kind, name, attr: None }))
}

/// Adds attributes. A size that somebody else knows better is not worth a callback here: the
/// entry stays without.
fn attributes(mdt: &Mdt, op: &Op<'_>, entries: &mut [DirEntry]) -> Result<(), Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let mut missed = false;
    for entry in entries {
        let attr = match view.inode(entry.fid) {
            Ok(inode) => inode.map(|inode| inode.attr),
            Err(Fault::Miss) => {
                // All of them are wanted in one go.
                missed = true;
                continue;
            }
            Err(fault) => return Err(fault),
        };
        let known = attr.filter(|attr| {
            !is_regular(attr) || !mdt.locks.in_conflict(op.client, &reads_size(attr.fid))
        });
        entry.attr = known.map(|attr| shown(&mdt.opens, &mdt.locks, op.client, attr));
    }
    if missed { Err(Fault::Miss) } else { Ok(()) }
}

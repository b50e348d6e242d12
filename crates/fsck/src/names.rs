//! Every directory entry of an MDT: its place by the hash of its name, its chain of equal
//! hashes, the inode behind it, and that inode's link back; and per directory the counts.

use sateen_osd::Key;
use sateen_types::{Fid, FileKind, name_hash};
use sateen_wire::disk::mdt::{Entry, Inode, links, tag};

use crate::image::Image;
use crate::{Check, Kind, REMEMBERED_MAX, Step, Stop, keys};

const RESTORE: &str = "restore it from a backup";

/// The inode that a name stands for, looked up as an MDT does.
pub(crate) fn target(check: &Check<'_>, parent: Fid, name: &[u8]) -> Result<Option<Fid>, Stop> {
    let Some(mdt) = check.mdt_of(parent) else { return Ok(None) };
    let hash = name_hash(check.fs.hash_key, name);
    let mut records = mdt.scan(keys::chain(parent, hash));
    while let Some((_, value)) = records.next()? {
        let Ok(entry) = Entry::decode(&value) else { return Ok(None) };
        if let Some((fid, _)) = entry.target.filter(|_| entry.name == name) {
            return Ok(Some(fid));
        }
        if !entry.more {
            break;
        }
    }
    Ok(None)
}

/// The directory whose entries go by.
struct Directory {
    fid: Fid,
    entries: u64,
    subdirectories: u32,
}

/// The chain of equal hashes that goes by.
struct Chain {
    place: (Fid, u64, u16),
    more: bool,
    names: Vec<Vec<u8>>,
}

pub(crate) fn check<'a>(check: &mut Check<'a>, image: &'a Image) -> Step {
    let mut records = image.scan(Key::tag(tag::ENTRY));
    let mut directory: Option<Directory> = None;
    let mut chain: Option<Chain> = None;
    while let Some((key, value)) = records.next()? {
        check.tick();
        let Some((parent, hash, collision)) = keys::entry_parts(&key) else {
            check.damage(format!("an entry under the key {key:?}, which is none"), RESTORE);
            continue;
        };
        if directory.as_ref().is_none_or(|directory| directory.fid != parent) {
            if let Some(done) = directory.take() {
                counts(check, &done)?;
            }
            directory = Some(Directory { fid: parent, entries: 0, subdirectories: 0 });
        }
        let entry = match Entry::decode(&value) {
            Ok(entry) => entry,
            Err(error) => {
                check.damage(format!("an entry of directory {parent}: {error}"), RESTORE);
                continue;
            }
        };
        link_chain(check, &mut chain, (parent, hash, collision), &entry);
        let Some(found) = entry.target else { continue };
        check.counts.entries += 1;
        if let Some(directory) = &mut directory {
            directory.entries += 1;
            directory.subdirectories += u32::from(found.1 == FileKind::Directory);
        }
        one(check, (parent, hash), entry.name, found)?;
    }
    end_chain(check, chain);
    directory.map_or(Ok(()), |done| counts(check, &done))
}

/// Indices of a chain rise without a gap, and each entry says whether the next is in use.
fn link_chain(
    check: &mut Check<'_>,
    chain: &mut Option<Chain>,
    place: (Fid, u64, u16),
    entry: &Entry<'_>,
) {
    let (parent, hash, collision) = place;
    let same = |old: &Chain| (old.place.0, old.place.1) == (parent, hash);
    match chain.take() {
        Some(mut old) if same(&old) => {
            if old.place.2.checked_add(1) != Some(collision) || !old.more {
                broken(check, parent, entry.name);
            }
            let twice = entry.target.is_some() && old.names.iter().any(|name| name == entry.name);
            if twice {
                let name = entry.name.escape_ascii();
                let what = format!("directory {parent} has the name \"{name}\" twice");
                check.damage(what, "rename it, and see what is behind the other");
            }
            old.names.push(entry.name.to_vec());
            *chain = Some(Chain { place, more: entry.more, names: old.names });
        }
        old => {
            end_chain(check, old);
            if collision != 0 {
                broken(check, parent, entry.name);
            }
            *chain = Some(Chain { place, more: entry.more, names: vec![entry.name.to_vec()] });
        }
    }
}

fn broken(check: &mut Check<'_>, parent: Fid, name: &[u8]) {
    let name = name.escape_ascii();
    let what = format!("directory {parent}: the name \"{name}\" is listed but cannot be found");
    check.damage(what, "restore the file from a backup");
}

fn end_chain(check: &mut Check<'_>, chain: Option<Chain>) {
    let Some(chain) = chain.filter(|chain| chain.more) else { return };
    let parent = chain.place.0;
    let last = chain.names.last().map(|name| name.escape_ascii().to_string()).unwrap_or_default();
    let what = format!("directory {parent}: an entry behind \"{last}\" is missing");
    check.damage(what, "the file it named is lost: see a backup");
}

fn one(
    check: &mut Check<'_>,
    (parent, hash): (Fid, u64),
    name: &[u8],
    (fid, kind): (Fid, FileKind),
) -> Step {
    let shown = name.escape_ascii();
    if name_hash(check.fs.hash_key, name) != hash {
        let what = format!("directory {parent}: the name \"{shown}\" is in a wrong place");
        check.damage(what, "it is listed but cannot be found: restore the file from a backup");
    }
    let Some(bytes) = check.inode(fid)? else {
        let what =
            format!("directory {parent}: the name \"{shown}\" stands for {fid}, a lost file");
        check.damage(what, "restore the file from a backup under another name");
        if check.lost.len() < REMEMBERED_MAX {
            check.lost.insert(fid);
        } else {
            let what = format!("objects of {fid} may be called pending, and hold what it held");
            check.found(Kind::Note, what, "too many lost files: keep copies of all such objects");
        }
        return Ok(());
    };
    // What does not decode was reported with the inodes.
    let Ok(inode) = Inode::decode(&bytes) else { return Ok(()) };
    if FileKind::from_mode(inode.attr.mode) != Some(kind) {
        let what = format!(
            "directory {parent}: the name \"{shown}\" says {kind:?}, and {fid} has mode {:o}",
            inode.attr.mode
        );
        check.damage(what, RESTORE);
    }
    if links(inode.links).any(|link| link == (parent, name)) {
        return Ok(());
    }
    if kind != FileKind::Directory
        && let Some(left) = check.unrecorded.get_mut(&fid)
    {
        *left -= 1;
        return Ok(());
    }
    let what = format!("directory {parent}: \"{shown}\" is not among the links of {fid}");
    check.damage(what, "removing one name may destroy the file: copy it, remove all its names");
    Ok(())
}

/// A directory has gone by: its inode counts entries and subdirectories.
fn counts(check: &mut Check<'_>, seen: &Directory) -> Step {
    let fid = seen.fid;
    let Some(bytes) = check.inode(fid)? else {
        // Whiteouts go with their directory, too.
        let what = format!("{} entries of directory {fid}, which is lost", seen.entries);
        check.damage(what, "the files cannot be reached: see a backup");
        return Ok(());
    };
    let Ok(inode) = Inode::decode(&bytes) else { return Ok(()) };
    if !inode.attr.is_dir() {
        let what = format!("{} entries of {fid}, which is no directory", seen.entries);
        check.damage(what, RESTORE);
        return Ok(());
    }
    if inode.entries != seen.entries {
        let (says, has) = (inode.entries, seen.entries);
        let what = format!("directory {fid}: it counts {says} entries, and has {has}");
        check.damage(what, "it may refuse to be removed, or lose files: move them to a new one");
    }
    if inode.attr.nlink == 0 && seen.entries > 0 {
        let what = format!("directory {fid}: it was removed, and has {} entries", seen.entries);
        check.damage(what, "the next start removes it, and they are lost: copy this folder first");
    }
    let nlink = if inode.attr.nlink == 0 { 0 } else { 2 + seen.subdirectories };
    if inode.attr.nlink != nlink {
        let has = inode.attr.nlink;
        let what = format!("directory {fid}: link count {has} where it must be {nlink}");
        check.damage(what, "move its content to a new directory");
    }
    Ok(())
}

/// Names that were not in a link-EA, against the link counts.
pub(crate) fn check_unrecorded(check: &mut Check<'_>) {
    for (fid, left) in std::mem::take(&mut check.unrecorded) {
        if left != 0 {
            check.at = sateen_types::Endpoint::Mdt(sateen_types::seq::mdt_of(fid.seq));
            let (few, many) = (left.abs(), if left > 0 { "more" } else { "fewer" });
            let what = format!("inode {fid}: its link count is {few} {many} than it has names");
            check.damage(what, "copy it and put the copy in its place");
        }
    }
}

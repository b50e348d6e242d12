//! Every inode of an MDT: its record, its links, its layout, its orphan record; and for a
//! directory the way to the root. Counts of a directory's entries are checked where they are
//! streamed (`names`).

use sateen_types::{Fid, FileKind, Layout, NAME_MAX, seq};
use sateen_wire::codec::{DecodeError, Wire};
use sateen_wire::disk::mdt::{Counters, Inode, LINKS_BYTES_MAX, SeqState, links, tag};

use sateen_osd::Key;

use crate::image::Image;
use crate::{Check, REMEMBERED_MAX, Step, Stop, data, keys, names};

/// Deepest directory that is followed to the root.
const DEPTH_MAX: usize = 1 << 16;

/// Bytes of the longest link in a link-EA.
const LINK_BYTES_MAX: usize = 13 + NAME_MAX;

const RESTORE: &str = "restore it from a backup";

pub(crate) fn check<'a>(check: &mut Check<'a>, image: &'a Image) -> Step {
    let state = image.get(&Key::tag(tag::SEQ))?;
    let state = state.and_then(|bytes| SeqState::from_bytes(&bytes).ok());
    let mut records = image.scan(Key::tag(tag::INODE));
    let mut count = 0;
    while let Some((key, value)) = records.next()? {
        check.tick();
        count += 1;
        let Some(fid) = keys::fid_of(&key) else {
            check.damage(format!("an inode under the key {key:?}, which names no file"), RESTORE);
            continue;
        };
        match Inode::decode(&value) {
            Ok(inode) => one(check, image, (fid, &inode), state.as_ref())?,
            Err(error) => check.damage(format!("inode {fid}: its record: {error}"), RESTORE),
        }
    }
    check.counts.inodes += count;
    let is_first = check.mdt_of(Fid::ROOT).is_some_and(|home| std::ptr::eq(home, image));
    if is_first && image.last() > 0 && !image.has(&keys::inode(Fid::ROOT))? {
        check.damage("the root has no inode", "nothing can be reached: restore it from a backup");
    }
    counters(check, image, count)
}

fn counters(check: &mut Check<'_>, image: &Image, count: u64) -> Step {
    let known = image.get(&Key::tag(tag::COUNTERS))?;
    let known = match known.map(|bytes| Counters::from_bytes(&bytes)) {
        None if image.last() == 0 => return Ok(()),
        Some(Ok(counters)) => counters.inodes,
        _ => {
            check.damage("the counters are missing or make no sense", "df shows wrong numbers");
            return Ok(());
        }
    };
    if known != count {
        let what = format!("the counters say {known} inodes, and there are {count}");
        check.damage(what, "df shows a wrong number, nothing else");
    }
    Ok(())
}

fn one<'a>(
    check: &mut Check<'a>,
    image: &'a Image,
    (fid, inode): (Fid, &Inode<'_>),
    state: Option<&SeqState>,
) -> Step {
    if inode.attr.fid != fid {
        check.damage(format!("inode {fid}: its record is that of {}", inode.attr.fid), RESTORE);
    }
    if check.mdt_of(fid).is_none_or(|home| !std::ptr::eq(home, image)) {
        let home = seq::mdt_of(fid.seq);
        check.damage(format!("inode {fid}: it belongs on MDT{home:04x}"), RESTORE);
    }
    let granted = fid.seq < seq::NORMAL_FIRST || state.is_none_or(|state| fid.seq < state.next);
    if !granted {
        let what = format!("inode {fid}: its sequence was never granted, and will be again");
        check.damage(what, "copy its content elsewhere before the file system is used");
    }
    let kind = FileKind::from_mode(inode.attr.mode);
    if kind.is_none() || (kind == Some(FileKind::Symlink)) == inode.symlink.is_empty() {
        let mode = inode.attr.mode;
        check.damage(format!("inode {fid}: mode {mode:o} does not fit its content"), RESTORE);
    }
    match kind {
        Some(FileKind::Directory) => directory(check, image, fid, inode)?,
        _ => names_of(check, fid, inode)?,
    }
    if let Some(layout) = layout(check, fid, inode, kind) {
        data::check(check, fid, inode, &layout)?;
    }
    let orphan = image.has(&keys::orphan(fid))?;
    if inode.attr.nlink == 0 && !orphan {
        let what = format!("inode {fid}: it has no name and nobody will remove it");
        check.damage(what, "it takes space, nothing else");
    }
    if inode.xattrs > 0 && !image.any(keys::xattrs(fid))? {
        let what = format!("inode {fid}: its {} extended attributes are missing", inode.xattrs);
        check.damage(what, RESTORE);
    }
    Ok(())
}

/// Each link of the link-EA is a name, and there are as many as the link count says.
fn names_of(check: &mut Check<'_>, fid: Fid, inode: &Inode<'_>) -> Step {
    let mut known = 0;
    for (parent, name) in links(inode.links) {
        known += 1;
        if names::target(check, parent, name)? != Some(fid) {
            let name = name.escape_ascii();
            let what = format!("inode {fid}: its name \"{name}\" in directory {parent} is missing");
            check.damage(what, "the file may be reachable by another name, or lost: see a backup");
        }
    }
    let nlink = i64::from(inode.attr.nlink);
    if known > nlink {
        let what = format!("inode {fid}: link count {nlink}, and {known} links are recorded");
        check.damage(what, "unlinking may destroy it early: copy it, and remove all its names");
    } else if known < nlink {
        // A link-EA has room for some names only; the others are counted with the entries. Room
        // that came back when names were removed is not used for them.
        if inode.links.len() + LINK_BYTES_MAX <= LINKS_BYTES_MAX {
            let what = format!("inode {fid}: {} of its names are not recorded", nlink - known);
            let fix = "as it is with files that had hundreds of names once; else see a backup";
            check.found(crate::Kind::Note, what, fix);
        }
        if check.unrecorded.len() < REMEMBERED_MAX {
            check.unrecorded.insert(fid, nlink - known);
        } else {
            check.found(crate::Kind::Note, format!("inode {fid}: links not counted"), "too many");
        }
    }
    Ok(())
}

fn directory(check: &mut Check<'_>, image: &Image, fid: Fid, inode: &Inode<'_>) -> Step {
    let named = links(inode.links).count();
    let expected = usize::from(fid != Fid::ROOT && inode.attr.nlink > 0);
    if named != expected {
        let what = format!("directory {fid}: {named} names are recorded, not {expected}");
        check.damage(what, RESTORE);
    }
    for (parent, name) in links(inode.links) {
        if names::target(check, parent, name)? != Some(fid) {
            let name = name.escape_ascii();
            let what =
                format!("directory {fid}: its name \"{name}\" in directory {parent} is missing");
            check.damage(what, "it and all below it cannot be reached: see a backup");
        }
    }
    let empty = !image.any(keys::entries(fid))?;
    if empty && (inode.entries > 0 || inode.attr.nlink > 2) {
        let (entries, nlink) = (inode.entries, inode.attr.nlink);
        let what =
            format!("directory {fid}: {entries} entries and link count {nlink}, yet it is empty");
        check.damage(what, "restore its files from a backup");
    } else if empty && inode.attr.nlink == 1 {
        check.damage(format!("directory {fid}: link count 1"), "remove and make it anew");
    }
    if inode.attr.nlink > 0 && !leads_to_root(check, fid)? {
        let what = format!("directory {fid}: it is not connected to the root");
        check.damage(what, "it and all below it cannot be reached: see a backup");
    }
    Ok(())
}

/// Follows the parents. What is missing on the way is reported elsewhere.
fn leads_to_root(check: &mut Check<'_>, from: Fid) -> Result<bool, Stop> {
    let mut way = Vec::new();
    let mut at = from;
    while at != Fid::ROOT && !check.rooted.contains(&at) {
        if way.len() >= DEPTH_MAX || way.contains(&at) {
            return Ok(false);
        }
        way.push(at);
        let Some(bytes) = check.inode(at)? else { return Ok(at == from) };
        let Ok(inode) = Inode::decode(&bytes) else { return Ok(true) };
        match links(inode.links).next() {
            Some((parent, _)) => at = parent,
            // Above it, one that was removed, and below which nothing can be reached.
            None => return Ok(at == from),
        }
    }
    if check.rooted.len() < REMEMBERED_MAX {
        check.rooted.extend(way);
    }
    Ok(true)
}

/// Checks a layout. That of a file, if it can be read.
fn layout(
    check: &mut Check<'_>,
    fid: Fid,
    inode: &Inode<'_>,
    kind: Option<FileKind>,
) -> Option<Layout> {
    if inode.layout.is_empty() {
        return None;
    }
    // Of a directory it names the OSTs of new files, and holds nothing.
    let holds = kind == Some(FileKind::Regular);
    if !holds && kind != Some(FileKind::Directory) {
        check.damage(format!("inode {fid}: it is no file or directory and has a layout"), RESTORE);
        return None;
    }
    let layout = match Layout::from_bytes(inode.layout) {
        Ok(layout) => layout,
        Err(error @ DecodeError::Newer) => {
            let what = format!("inode {fid}: its layout is {error}, and was not checked");
            check.found(crate::Kind::Note, what, "check it with that one");
            return None;
        }
        Err(error) => {
            check.damage(format!("inode {fid}: its layout: {error}"), RESTORE);
            return None;
        }
    };
    if layout.generation != inode.attr.layout_gen {
        let (one, two) = (layout.generation, inode.attr.layout_gen);
        let what = format!("inode {fid}: layout generation {one} in the layout, {two} beside it");
        check.damage(what, "writes may be refused: copy it and put the copy in its place");
    }
    for (stripe, ost) in layout.objects().filter(|_| holds) {
        if !check.fs.osts.contains_key(&ost) {
            let what = format!("inode {fid}: stripe {stripe} lies on OST{ost:04x}, which is not");
            check.damage(what, "bring that OST back, or restore the file from a backup");
        }
    }
    holds.then_some(layout)
}

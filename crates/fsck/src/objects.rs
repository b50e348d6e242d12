//! Every object of an OST, and every record of one: each belongs to a stripe of a file that
//! exists, or something on an MDT or here says that it is about to go.

use sateen_osd::{Key, ObjectStat};
use sateen_types::{Fid, Layout, ObjectId, SEQ_OBJECTS_MAX};
use sateen_wire::codec::Wire;
use sateen_wire::disk::mdt::Inode;
use sateen_wire::disk::ost::{FenceRecord, ObjectState, Tombstone, WriterRecord, tag};
use sateen_wire::disk::stopped::{self, CleanRuns};

use crate::image::Image;
use crate::{Check, Kind, OstAtRest, Step, Stop, keys};

/// Objects listed at once.
const PAGE: usize = 1024;

const TARGET: &str = "the target may refuse to start: restore it from a backup";

/// What is known of the file whose objects go by.
struct File {
    fid: Fid,
    fate: Fate,
}

enum Stripes {
    Are(Layout),
    None,
}

enum Fate {
    /// It exists: size, whether that may be too small, whether it may have objects.
    Here { layout: Stripes, size: u64, size_uncertain: bool, maybe_objects: bool },
    /// Its inode cannot be read, which was reported.
    Unknown,
    /// It does not, and that is known.
    Going(&'static str),
    /// It does not, and nobody knows.
    Lost,
    /// It does not, and has a name: these are the only copies of its data.
    Named,
}

pub(crate) fn check(check: &mut Check<'_>, index: u32, ost: &OstAtRest) -> Step {
    let mut file: Option<File> = None;
    for seq in ost.objects.sequences()? {
        let mut from = 0;
        while from <= SEQ_OBJECTS_MAX {
            let page = ost.objects.list(seq, from, PAGE)?;
            let Some(last) = page.last() else { break };
            from = last.object.fid.oid.saturating_add(1);
            for stat in page {
                check.tick();
                check.counts.objects += 1;
                let fid = stat.object.fid;
                let known = file.take().filter(|file| file.fid == fid);
                let known = known.map_or_else(|| look_up(check, fid), Ok)?;
                one(check, index, &ost.image, &known.fate, stat)?;
                file = Some(known);
            }
        }
    }
    Ok(())
}

fn look_up(check: &Check<'_>, fid: Fid) -> Result<File, Stop> {
    let fate = match check.mdt_of(fid) {
        None => Fate::Lost,
        Some(mdt) => match check.inode(fid)? {
            Some(bytes) => here(check, fid, &bytes),
            // Before all that follows: the next start destroys these, too.
            None if check.lost.contains(&fid) => Fate::Named,
            None if mdt.has(&keys::unlink(fid))? => Fate::Going("its file was removed"),
            None if mdt.has(&keys::grant(fid.seq))? => {
                Fate::Going("its file was never made for good")
            }
            None => Fate::Lost,
        },
    };
    Ok(File { fid, fate })
}

fn here(check: &Check<'_>, fid: Fid, bytes: &[u8]) -> Fate {
    let Ok(inode) = Inode::decode(bytes) else { return Fate::Unknown };
    let layout = match Layout::from_bytes(inode.layout) {
        // Of a directory it says where new files lie.
        _ if inode.layout.is_empty() || inode.attr.is_dir() => Stripes::None,
        Ok(layout) => Stripes::Are(layout),
        Err(_) => return Fate::Unknown,
    };
    Fate::Here {
        layout,
        size: inode.attr.size,
        size_uncertain: inode.attr.size_stale || check.punched.contains(&fid),
        maybe_objects: inode.attr.maybe_objects,
    }
}

fn one(check: &mut Check<'_>, index: u32, image: &Image, fate: &Fate, stat: ObjectStat) -> Step {
    let object = stat.object;
    let state = image.get(&keys::object(object))?.map(|bytes| ObjectState::from_bytes(&bytes));
    if let Some(Ok(ObjectState::Dead(_))) = state {
        check.pending(format!("object {object}: it was removed, and its bytes are to go"));
        return Ok(());
    }
    let (layout, size, uncertain, maybe) = match fate {
        Fate::Here { layout, size, size_uncertain, maybe_objects } => {
            (layout, *size, *size_uncertain, *maybe_objects)
        }
        Fate::Unknown => return Ok(()),
        Fate::Going(why) => {
            check.pending(format!("object {object}: {why}, and it is to be destroyed"));
            return Ok(());
        }
        Fate::Named => {
            let bytes = stat.size;
            let what = format!("object {object} of {bytes} bytes is what a lost file held");
            check.damage(what, "keep a copy of it before the next start, which may destroy it");
            return Ok(());
        }
        Fate::Lost => {
            let bytes = stat.size;
            let what = format!("object {object} of {bytes} bytes belongs to no file");
            check.damage(what, "its bytes may be what a lost file held: keep a copy of the object");
            return Ok(());
        }
    };
    let Stripes::Are(layout) = layout else {
        let what = format!("object {object}: its file has no layout");
        check.damage(what, "nobody can read it: keep a copy of the object");
        return Ok(());
    };
    if !layout.objects().any(|place| place == (object.stripe, index)) {
        let what = format!("object {object}: its file's layout has no such stripe here");
        check.damage(what, "nobody can read it: keep a copy of the object");
        return Ok(());
    }
    if !maybe {
        let what = format!("object {object}: its file is marked as having no objects");
        check.damage(what, "it would stay behind: write something to the file before removing it");
    }
    let proven = layout.size_proven(object.stripe, stat.size);
    if proven > size && !uncertain {
        let what = format!(
            "object {object}: it proves that its file has {proven} bytes, and the MDT says {size}"
        );
        check.damage(what, "if data is missing at its end: truncate -s to the larger size");
    }
    Ok(())
}

pub(crate) fn check_records(check: &mut Check<'_>, ost: &OstAtRest) -> Step {
    let image = &ost.image;
    let known = [tag::OBJECT, tag::TOMBSTONE, tag::WRITER, tag::FENCE, stopped::TAG];
    let runs = image.get(&Key::tag(stopped::TAG))?;
    if runs.is_some_and(|runs| CleanRuns::from_bytes(&runs).is_err()) {
        check.damage("the record of runs that ended in good order makes no sense", TARGET);
    }
    for byte in (1..=u8::MAX).filter(|byte| !known.contains(byte)) {
        if let Some((key, _)) = image.scan(Key::tag(byte)).next()? {
            check.damage(format!("a record of an unknown kind, {key:?}"), "use a newer sateen");
        }
    }
    let mut leftover = 0u64;
    let mut records = image.scan(Key::tag(tag::OBJECT));
    while let Some((key, value)) = records.next()? {
        check.tick();
        match (keys::object_of(&key), ObjectState::from_bytes(&value)) {
            (Some(object), Ok(ObjectState::Dead(Tombstone { after }))) => {
                if !image.has(&keys::tombstone(after, object))? {
                    let what = format!("object {object} is refused for ever: no tombstone");
                    check.damage(what, "its file can never be written again; files are not reused");
                }
            }
            (Some(object), Ok(ObjectState::Live(record))) => {
                let (generation, version) = (record.layout_gen, record.version);
                leftover += u64::from(!live(check, object, generation, version)?);
            }
            _ => check.damage(format!("the object record {key:?} makes no sense"), TARGET),
        }
    }
    if leftover > 0 {
        let what = format!("{leftover} records of objects whose files are gone");
        check.found(Kind::Note, what, "they do no harm");
    }
    tombstones(check, image)?;
    let mut writers = image.scan(Key::tag(tag::WRITER));
    while let Some((key, value)) = writers.next()? {
        if keys::number_of(&key).is_none() || WriterRecord::from_bytes(&value).is_err() {
            check.damage(format!("the writer's record {key:?} makes no sense"), TARGET);
        }
    }
    let mut fences = image.scan(Key::tag(tag::FENCE));
    while let Some((key, value)) = fences.next()? {
        if keys::number_of(&key).is_none() || FenceRecord::from_bytes(&value).is_err() {
            check.damage(format!("the fence {key:?} makes no sense"), TARGET);
        }
    }
    Ok(())
}

/// The record of an object that exists or may be born. Whether its file exists.
fn live(
    check: &mut Check<'_>,
    object: ObjectId,
    generation: u32,
    version: u64,
) -> Result<bool, Stop> {
    let Some(mdt) = check.mdt_of(object.fid) else { return Ok(false) };
    if version > mdt.last() {
        let (last, mdt) = (mdt.last(), sateen_types::seq::mdt_of(object.fid.seq));
        let what = format!(
            "object {object}: it was cut by transaction {version}, and MDT{mdt:04x} has only {last}"
        );
        check.damage(what, "that MDT lost what it had acknowledged: restore it from a backup");
    }
    let Some(bytes) = check.inode(object.fid)? else { return Ok(false) };
    if let Ok(inode) = Inode::decode(&bytes)
        && generation > inode.attr.layout_gen
    {
        let known = inode.attr.layout_gen;
        let what =
            format!("object {object}: layout generation {generation}, and its file has {known}");
        check.damage(what, "writes are refused: copy the file and put the copy in its place");
    }
    Ok(true)
}

fn tombstones(check: &mut Check<'_>, image: &Image) -> Step {
    let mut records = image.scan(Key::tag(tag::TOMBSTONE));
    while let Some((key, _)) = records.next()? {
        check.tick();
        let Some((after, object)) = keys::tombstone_parts(&key) else {
            check.damage(format!("the tombstone {key:?} makes no sense"), TARGET);
            continue;
        };
        let state = image.get(&keys::object(object))?;
        let state = state.and_then(|bytes| ObjectState::from_bytes(&bytes).ok());
        if state != Some(ObjectState::Dead(Tombstone { after })) {
            let what = format!("the tombstone of object {object}, which is not dead");
            check.damage(what, "the object would be removed at the next start: copy it first");
        }
    }
    Ok(())
}

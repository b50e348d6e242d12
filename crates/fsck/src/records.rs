//! The other records of an MDT: extended attributes, orphans, llogs, sequences, reply slots.
//! Also gathers the truncates under way, which the objects' sizes are checked by.

use sateen_osd::Key;
use sateen_target::REPLAY_SLOT;
use sateen_types::{Fid, Layout, seq};
use sateen_wire::codec::Wire;
use sateen_wire::disk::mdt::{
    ClientRecord, Inode, PunchRecord, ReplySlot, SeqGrant, SeqState, UnlinkRecord, Xattr, tag,
};
use sateen_wire::disk::stopped::{self, StopMark, StoppedClient, StoppedSlot};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::image::Image;
use crate::{Check, Kind, REMEMBERED_MAX, Step, keys};

const RESTORE: &str = "restore it from a backup";
const TARGET: &str = "the target may refuse to start: restore it from a backup";
const KNOWN: [u8; 13] = [
    tag::INODE,
    tag::ENTRY,
    tag::XATTR,
    tag::ORPHAN,
    tag::UNLINK,
    tag::PUNCH,
    tag::GRANT,
    tag::SLOT,
    tag::CLIENT,
    tag::COUNTERS,
    tag::SEQ,
    tag::RUN,
    stopped::TAG,
];

pub(crate) fn check<'a>(check: &mut Check<'a>, image: &'a Image) -> Step {
    for byte in (1..=u8::MAX).filter(|byte| !KNOWN.contains(byte)) {
        if let Some((key, _)) = image.scan(Key::tag(byte)).next()? {
            check.damage(format!("a record of an unknown kind, {key:?}"), "use a newer sateen");
        }
    }
    xattrs(check, image)?;
    orphans(check, image)?;
    unlinks(check, image)?;
    punches(check, image)?;
    sequences(check, image)?;
    let mut slots = image.scan(Key::tag(tag::SLOT));
    while let Some((key, value)) = slots.next()? {
        check.tick();
        let slot = ReplySlot::from_bytes(&value).ok();
        // There it is no transaction but a run.
        let of_replay = key.as_bytes().ends_with(&REPLAY_SLOT.to_be_bytes());
        let known = |slot: ReplySlot| of_replay || slot.transno <= image.last();
        if key.as_bytes().len() != 11 || !slot.is_some_and(known) {
            check.damage(format!("the reply slot {key:?} makes no sense"), TARGET);
        }
    }
    let mut clients = image.scan(Key::tag(tag::CLIENT));
    while let Some((key, value)) = clients.next()? {
        check.tick();
        if keys::number_of(&key).is_none() || ClientRecord::from_bytes(&value).is_err() {
            check.damage(format!("the client {key:?} makes no sense"), TARGET);
        }
    }
    of_stop(check, image)
}

/// What was written down as the target stopped.
fn of_stop(check: &mut Check<'_>, image: &Image) -> Step {
    let mark = image.get(&Key::tag(stopped::TAG))?;
    if mark.is_some_and(|mark| StopMark::from_bytes(&mark).is_err()) {
        check.damage("the mark of a stop in good order makes no sense".to_owned(), TARGET);
    }
    let mut records = image.scan(Key::tag(stopped::TAG));
    while let Some((key, value)) = records.next()? {
        check.tick();
        let right = match key.as_bytes().len() {
            1 => true,
            9 => StoppedClient::from_bytes(&value).is_ok(),
            11 => StoppedSlot::from_bytes(&value).is_ok(),
            _ => false,
        };
        if !right {
            check.damage(
                format!("what was written down at a stop, {key:?}, makes no sense"),
                TARGET,
            );
        }
    }
    Ok(())
}

fn xattrs(check: &mut Check<'_>, image: &Image) -> Step {
    let mut records = image.scan(Key::tag(tag::XATTR));
    let mut owner: Option<(Fid, u32)> = None;
    while let Some((key, value)) = records.next()? {
        check.tick();
        let Some((fid, hash)) = keys::xattr_parts(&key) else {
            check.damage(format!("an extended attribute under {key:?}"), RESTORE);
            continue;
        };
        match &mut owner {
            Some((last, count)) if *last == fid => *count += 1,
            _ => {
                if let Some(done) = owner.replace((fid, 1)) {
                    count_xattrs(check, done)?;
                }
            }
        }
        match Xattr::decode(&value) {
            Ok(xattr) if xxh3_64_with_seed(xattr.name, check.fs.hash_key) == hash => {}
            Ok(xattr) => {
                let name = xattr.name.escape_ascii();
                let what = format!("inode {fid}: its attribute \"{name}\" is in a wrong place");
                check.damage(what, "set it anew");
            }
            Err(error) => check.damage(format!("an attribute of inode {fid}: {error}"), RESTORE),
        }
    }
    owner.map_or(Ok(()), |done| count_xattrs(check, done))
}

fn count_xattrs(check: &mut Check<'_>, (fid, count): (Fid, u32)) -> Step {
    let Some(bytes) = check.inode(fid)? else {
        let what = format!("{count} extended attributes of {fid}, which is lost");
        check.damage(what, "they take space, nothing else");
        return Ok(());
    };
    let Ok(inode) = Inode::decode(&bytes) else { return Ok(()) };
    if inode.xattrs != count {
        let says = inode.xattrs;
        let what = format!("inode {fid}: it counts {says} extended attributes, and has {count}");
        check.damage(what, "copy the file with its attributes and put the copy in its place");
    }
    Ok(())
}

fn orphans(check: &mut Check<'_>, image: &Image) -> Step {
    let mut records = image.scan(Key::tag(tag::ORPHAN));
    while let Some((key, _)) = records.next()? {
        check.tick();
        let Some(fid) = keys::fid_of(&key) else {
            check.damage(format!("an orphan under the key {key:?}"), TARGET);
            continue;
        };
        match image.get(&keys::inode(fid))?.as_deref().map(Inode::decode) {
            None => check.damage(format!("the orphan {fid} has no inode"), "it does no harm"),
            Some(Ok(inode)) if inode.attr.nlink > 0 => {
                check.damage(format!("inode {fid} is an orphan and has names"), TARGET);
            }
            Some(_) => check.pending(format!("{fid} has no name any more and is to be removed")),
        }
    }
    Ok(())
}

fn layout_makes_sense(check: &Check<'_>, layout: &Layout) -> bool {
    layout.check().is_ok() && layout.objects().all(|(_, ost)| check.fs.osts.contains_key(&ost))
}

fn unlinks(check: &mut Check<'_>, image: &Image) -> Step {
    let mut records = image.scan(Key::tag(tag::UNLINK));
    while let Some((key, value)) = records.next()? {
        check.tick();
        let (Some(fid), Ok(record)) = (keys::fid_of(&key), UnlinkRecord::from_bytes(&value)) else {
            check.damage(format!("the unlink llog's record {key:?} makes no sense"), TARGET);
            continue;
        };
        if !layout_makes_sense(check, &record.layout) {
            check.damage(format!("the unlink llog's record of {fid} names no OSTs"), TARGET);
        }
        if image.has(&keys::inode(fid))? {
            let what = format!("{fid} is to be destroyed, and its inode is still there");
            check.damage(what, "its data will be lost at the next start: copy this folder first");
        } else {
            check.pending(format!("the objects of {fid}, which was removed, are to be destroyed"));
        }
    }
    Ok(())
}

fn punches(check: &mut Check<'_>, image: &Image) -> Step {
    let mut records = image.scan(Key::tag(tag::PUNCH));
    while let Some((key, value)) = records.next()? {
        check.tick();
        let (number, record) = (keys::number_of(&key), PunchRecord::from_bytes(&value));
        let (Some(transno), Ok(record)) = (number, record) else {
            check.damage(format!("the punch llog's record {key:?} makes no sense"), TARGET);
            continue;
        };
        let PunchRecord { fid, size, layout } = record;
        if transno > image.last() || !layout_makes_sense(check, &layout) {
            check.damage(format!("the punch llog's record of {fid} makes no sense"), TARGET);
        }
        check.pending(format!("the objects of {fid} are to be cut to {size} bytes"));
        if check.punched.len() < REMEMBERED_MAX {
            check.punched.insert(fid);
        } else {
            check.found(Kind::Note, format!("the size of {fid} is not checked"), "too many");
        }
    }
    Ok(())
}

fn sequences(check: &mut Check<'_>, image: &Image) -> Step {
    let state = image.get(&Key::tag(tag::SEQ))?;
    let state = match state.map(|bytes| SeqState::from_bytes(&bytes)) {
        None if image.last() == 0 => return Ok(()),
        Some(Ok(state)) => state,
        _ => {
            check.damage("where granting sequences stands is lost", TARGET);
            return Ok(());
        }
    };
    let mdt = check.at;
    if sateen_types::Endpoint::Mdt(seq::mdt_of(state.next)) != mdt {
        check.damage("the next sequence to be granted is another MDT's", TARGET);
    }
    let mut records = image.scan(Key::tag(tag::GRANT));
    while let Some((key, value)) = records.next()? {
        check.tick();
        let seq = keys::number_of(&key).filter(|seq| *seq < state.next.0);
        if seq.is_none() || SeqGrant::from_bytes(&value).is_err() {
            check.damage(format!("the granted sequence {key:?} makes no sense"), TARGET);
        }
    }
    Ok(())
}

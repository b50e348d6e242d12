//! Keys of the records that the check looks up, built from the tables in `wire::disk`. Apart
//! from the targets' own, so that a mistake there is not repeated here.

use sateen_osd::Key;
use sateen_types::{Fid, ObjectId, Seq};
use sateen_wire::disk::{mdt, ost};

pub(crate) fn inode(fid: Fid) -> Key {
    Key::tag(mdt::tag::INODE).with(&fid.to_key())
}

pub(crate) fn entries(parent: Fid) -> Key {
    Key::tag(mdt::tag::ENTRY).with(&parent.to_key())
}

/// All entries of a directory with one hash.
pub(crate) fn chain(parent: Fid, hash: u64) -> Key {
    let [_, _, hash @ ..] = hash.to_be_bytes();
    entries(parent).with(&hash)
}

/// The parts of an entry's key: directory, hash, collision index.
pub(crate) fn entry_parts(key: &Key) -> Option<(Fid, u64, u16)> {
    let rest = key.as_bytes().get(1..)?;
    let (fid, place) = rest.split_at_checked(12)?;
    let [a, b, c, d, e, f, collision @ ..] = <[u8; 8]>::try_from(place).ok()?;
    let hash = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    Some((Fid::from_key(fid)?, hash, u16::from_be_bytes(collision)))
}

pub(crate) fn xattrs(fid: Fid) -> Key {
    Key::tag(mdt::tag::XATTR).with(&fid.to_key())
}

/// The parts of an extended attribute's key: its inode, the hash of its name.
pub(crate) fn xattr_parts(key: &Key) -> Option<(Fid, u64)> {
    let (fid, hash) = key.as_bytes().get(1..)?.split_at_checked(12)?;
    Some((Fid::from_key(fid)?, u64::from_be_bytes(hash.try_into().ok()?)))
}

pub(crate) fn orphan(fid: Fid) -> Key {
    Key::tag(mdt::tag::ORPHAN).with(&fid.to_key())
}

pub(crate) fn unlink(fid: Fid) -> Key {
    Key::tag(mdt::tag::UNLINK).with(&fid.to_key())
}

pub(crate) fn grant(seq: Seq) -> Key {
    Key::tag(mdt::tag::GRANT).with(&seq.0.to_be_bytes())
}

/// The FID that is all of a key behind its tag.
pub(crate) fn fid_of(key: &Key) -> Option<Fid> {
    let rest = key.as_bytes().get(1..).filter(|rest| rest.len() == 12)?;
    Fid::from_key(rest)
}

/// The number that is all of a key behind its tag.
pub(crate) fn number_of(key: &Key) -> Option<u64> {
    Some(u64::from_be_bytes(key.as_bytes().get(1..)?.try_into().ok()?))
}

pub(crate) fn object(object: ObjectId) -> Key {
    Key::tag(ost::tag::OBJECT).with(&object.fid.to_key()).with(&object.stripe.to_be_bytes())
}

fn object_from(bytes: &[u8]) -> Option<ObjectId> {
    let (fid, stripe) = bytes.split_at_checked(12)?;
    let stripe = u32::from_be_bytes(stripe.try_into().ok()?);
    Some(ObjectId { fid: Fid::from_key(fid)?, stripe })
}

pub(crate) fn object_of(key: &Key) -> Option<ObjectId> {
    object_from(key.as_bytes().get(1..)?)
}

pub(crate) fn tombstone(after: u64, object: ObjectId) -> Key {
    let key = Key::tag(ost::tag::TOMBSTONE).with(&after.to_be_bytes());
    key.with(&object.fid.to_key()).with(&object.stripe.to_be_bytes())
}

/// The parts of a tombstone's key.
pub(crate) fn tombstone_parts(key: &Key) -> Option<(u64, ObjectId)> {
    let (after, rest) = key.as_bytes().get(1..)?.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*after), object_from(rest)?))
}

//! Index keys of the MDT's records; the tags and the table stand in `wire::disk::mdt`.

use sateen_osd::Key;
use sateen_types::{ClientId, DirCookie, Fid, Seq};
use sateen_wire::disk::mdt::tag;
use sateen_wire::disk::stopped;
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub(crate) fn inode(fid: Fid) -> Key {
    Key::tag(tag::INODE).with(&fid.to_key())
}

pub(crate) fn entries(parent: Fid) -> Key {
    Key::tag(tag::ENTRY).with(&parent.to_key())
}

pub(crate) fn entry(parent: Fid, hash: u64, collision: u16) -> Key {
    let [_, _, hash @ ..] = hash.to_be_bytes();
    entries(parent).with(&hash).with(&collision.to_be_bytes())
}

/// The position of the entry that a key names.
pub(crate) fn cookie_of(key: &Key) -> Option<DirCookie> {
    let (_, place) = key.as_bytes().split_last_chunk::<8>()?;
    let [a, b, c, d, e, f, collision @ ..] = *place;
    let hash = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    Some(DirCookie::new(hash, u16::from_be_bytes(collision)))
}

pub(crate) fn xattrs(fid: Fid) -> Key {
    Key::tag(tag::XATTR).with(&fid.to_key())
}

pub(crate) fn xattr(fid: Fid, hash_key: u64, name: &[u8]) -> Key {
    xattrs(fid).with(&xxh3_64_with_seed(name, hash_key).to_be_bytes())
}

pub(crate) fn orphan(fid: Fid) -> Key {
    Key::tag(tag::ORPHAN).with(&fid.to_key())
}

pub(crate) fn unlink(fid: Fid) -> Key {
    Key::tag(tag::UNLINK).with(&fid.to_key())
}

pub(crate) fn punch(transno: u64) -> Key {
    Key::tag(tag::PUNCH).with(&transno.to_be_bytes())
}

pub(crate) fn grant(seq: Seq) -> Key {
    Key::tag(tag::GRANT).with(&seq.0.to_be_bytes())
}

pub(crate) fn slot(client: ClientId, slot: u16) -> Key {
    Key::tag(tag::SLOT).with(&client.0.to_be_bytes()).with(&slot.to_be_bytes())
}

pub(crate) fn client(client: ClientId) -> Key {
    Key::tag(tag::CLIENT).with(&client.0.to_be_bytes())
}

/// The mark of a stop in good order, and the tag of all that was written down then.
pub(crate) fn stopped() -> Key {
    Key::tag(stopped::TAG)
}

pub(crate) fn stopped_client(client: ClientId) -> Key {
    stopped().with(&client.0.to_be_bytes())
}

pub(crate) fn stopped_slot(client: ClientId, slot: u16) -> Key {
    stopped_client(client).with(&slot.to_be_bytes())
}

pub(crate) fn counters() -> Key {
    Key::tag(tag::COUNTERS)
}

pub(crate) fn seq_state() -> Key {
    Key::tag(tag::SEQ)
}

/// The run that there is.
pub(crate) fn run() -> Key {
    Key::tag(tag::RUN)
}

/// The client and the slot of a reply slot's key.
pub(crate) fn slot_of(key: &Key) -> Option<(ClientId, u16)> {
    let (client, slot) = key.as_bytes().get(1..)?.split_first_chunk::<8>()?;
    let slot = u16::from_be_bytes(slot.try_into().ok()?);
    Some((ClientId(u64::from_be_bytes(*client)), slot))
}

/// The FID behind the tag of a key.
pub(crate) fn fid_of(key: &Key) -> Option<Fid> {
    Fid::from_key(key.as_bytes().get(1..)?)
}

/// The number behind the tag of a key.
pub(crate) fn number_of(key: &Key) -> Option<u64> {
    let bytes = key.as_bytes().get(1..)?;
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_what_they_name() {
        let cookie = DirCookie::new(0xabcd_ef01_2345, 6);
        assert_eq!(cookie_of(&entry(Fid::ROOT, cookie.hash(), cookie.collision())), Some(cookie));
        assert_eq!(fid_of(&orphan(Fid::ROOT)), Some(Fid::ROOT));
        assert_eq!(number_of(&punch(77)), Some(77));
        assert_eq!(slot_of(&slot(ClientId(5), 1023)), Some((ClientId(5), 1023)));
        assert!(entry(Fid::ROOT, 1, 2).starts_with(&entries(Fid::ROOT)));
        assert!(entry(Fid::ROOT, 1, 2) < entry(Fid::ROOT, 2, 0));
    }
}

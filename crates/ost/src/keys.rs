//! Keys of an OST's metadata store; the tags and the table stand in `wire::disk::ost`.

use sateen_osd::Key;
use sateen_types::{ClientId, Fid, ObjectId};
use sateen_wire::disk::ost::tag;
use sateen_wire::disk::stopped;

/// Prefix of the writers' records.
pub(crate) const WRITERS: Key = Key::tag(tag::WRITER);
/// Prefix of the tombstones, by age.
pub(crate) const TOMBSTONES: Key = Key::tag(tag::TOMBSTONE);

/// Runs of which nothing is lost.
pub(crate) const CLEAN_RUNS: Key = Key::tag(stopped::TAG);

/// An object's state.
pub(crate) fn object(object: ObjectId) -> Key {
    Key::tag(tag::OBJECT).with(&object.fid.to_key()).with(&object.stripe.to_be_bytes())
}

/// A tombstone in the order of age: `after` is the number of the youngest writer when the
/// object was removed.
pub(crate) fn tombstone(after: u64, object: ObjectId) -> Key {
    TOMBSTONES
        .with(&after.to_be_bytes())
        .with(&object.fid.to_key())
        .with(&object.stripe.to_be_bytes())
}

/// The parts of a tombstone's key; `None` if it is damaged.
pub(crate) fn tombstone_parts(key: &Key) -> Option<(u64, ObjectId)> {
    let rest = key.as_bytes().strip_prefix(TOMBSTONES.as_bytes())?;
    let (after, rest) = rest.split_first_chunk::<8>()?;
    let (stripe, fid) = (rest.last_chunk::<4>()?, rest.get(..rest.len() - 4)?);
    let fid = Fid::from_key(fid)?;
    Some((u64::from_be_bytes(*after), ObjectId { fid, stripe: u32::from_be_bytes(*stripe) }))
}

/// A client incarnation that is refused for ever.
pub(crate) fn fence(client: ClientId) -> Key {
    Key::tag(tag::FENCE).with(&client.0.to_be_bytes())
}

/// A client incarnation that may write.
pub(crate) fn writer(client: ClientId) -> Key {
    WRITERS.with(&client.0.to_be_bytes())
}

/// The client of a writer's key.
pub(crate) fn writer_client(key: &Key) -> Option<ClientId> {
    let rest = key.as_bytes().strip_prefix(WRITERS.as_bytes())?;
    Some(ClientId(u64::from_be_bytes(rest.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sateen_types::Seq;

    #[test]
    fn keys_give_their_parts_back() {
        let object = ObjectId { fid: Fid::new(Seq(0x2_0000_0400), 9), stripe: 77 };
        assert_eq!(tombstone_parts(&tombstone(5, object)), Some((5, object)));
        assert!(tombstone(5, object) < tombstone(256, object));
        assert_eq!(writer_client(&writer(ClientId(3))), Some(ClientId(3)));
        assert_eq!(tombstone_parts(&WRITERS), None);
        assert_eq!(writer_client(&TOMBSTONES), None);
    }
}

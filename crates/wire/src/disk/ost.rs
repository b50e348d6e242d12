//! Records in an OST's metadata store. The OST builds the index keys from the tags here.
//!
//! | tag | key behind the tag | value |
//! |---|---|---|
//! | `o` | FID, stripe | [`ObjectState`] |
//! | `t` | number of the youngest writer, FID, stripe | nothing |
//! | `w` | client | [`WriterRecord`] |
//! | `f` | client | [`FenceRecord`] |
//! | `R` | nothing | [`CleanRuns`](crate::disk::stopped::CleanRuns) |
//!
//! The names of an object, its file's FID and its stripe number, are in the key. Object data
//! lie in the object store, not here. An OST keeps no reply slots: each of its requests may
//! be executed twice without harm (writes under the writer's lock, punches by version,
//! removals by nature), and connections never outlive a restart.

use crate::{wire_enum, wire_struct};

/// First bytes of index keys.
pub mod tag {
    /// Objects.
    pub const OBJECT: u8 = b'o';
    /// Tombstones, by age.
    pub const TOMBSTONE: u8 = b't';
    /// Writers.
    pub const WRITER: u8 = b'w';
    /// Fences.
    pub const FENCE: u8 = b'f';
}

wire_struct! {
    /// What an OST remembers of one object beside its bytes.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct ObjectRecord {
        /// Generation of the layout that the last writer went by; older ones are refused.
        pub layout_gen: u32,
        /// MDT transno of the last truncate that was done; 0 if there was none. Always durable
        /// after the cut itself.
        pub version: u64,
        /// Owner, for quota; 0 until quota exists.
        pub uid: u32,
        /// Group, for quota; 0 until quota exists.
        pub gid: u32,
        /// Project of the first writer, for quota.
        pub projid: u32,
        /// Where the checksums of the object's blocks stand; 0 until they are kept.
        pub checksum_map: u64,
        /// Snapshot epoch that the object was born in; 0 until there are snapshots.
        pub birth_epoch: u64,
    }
}

wire_struct! {
    /// What is left of an object that was removed while somebody might still write to it.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Tombstone {
        /// Number of the youngest writer at that moment: when no writer with this or a smaller
        /// number is left, nobody can know the object any more.
        pub after: u64,
    }
}

wire_enum! {
    /// The value of an object's key.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum ObjectState {
        /// It exists, or may be born.
        1 => Live(ObjectRecord),
        /// It is refused to writers.
        2 => Dead(Tombstone),
    }
}

wire_struct! {
    /// A client incarnation that may have something to write here.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct WriterRecord {
        /// Its number, rising with each incarnation that connects.
        pub number: u64,
    }
}

wire_struct! {
    /// A client incarnation that is refused for ever.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct FenceRecord {
        /// When it was fenced, in nanoseconds since the epoch, for administrators.
        pub wall_ns: i64,
    }
}

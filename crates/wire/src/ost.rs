//! Requests to an OST and its replies. Bulk data travels beside them, never inside.

use sateen_types::{ClientId, ObjectId, Seq, Timespec};

use crate::codec::{DecodeError, Input, Wire, put_vec, take_vec};
use crate::spans::Spans;
use crate::{wire_enum, wire_struct};

/// Most bytes of one bulk transfer: 16 MiB.
pub const BULK_MAX: usize = 16 << 20;
/// Most objects that one request or reply names.
pub const OBJECTS_PER_RPC_MAX: usize = 4096;

wire_struct! {
    /// Space and inodes of one target.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct StatFs {
        /// Bytes in all.
        pub bytes_total: u64,
        /// Bytes free, also for the superuser.
        pub bytes_free: u64,
        /// Bytes available to users.
        pub bytes_avail: u64,
        /// Inodes or objects in all.
        pub files_total: u64,
        /// Inodes or objects free.
        pub files_free: u64,
        /// Bytes that an object can have at most; 0 if that is not known, and of an MDT.
        pub object_bytes_max: u64,
    }
}

wire_struct! {
    /// What an OST knows of one object. An object that was never written has size 0, and times of 0.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct ObjectAttr {
        /// The object.
        pub object: ObjectId,
        /// Bytes.
        pub size: u64,
        /// 512-byte blocks in use.
        pub blocks: u64,
        /// Last change of its bytes, by the OST's clock, or what `SetTimes` has set.
        pub mtime: Timespec,
        /// Last change of anything.
        pub ctime: Timespec,
        /// What `SetTimes` has set, or the last look of whoever it was given to: reads by way of the
        /// OST do not count.
        pub atime: Timespec,
    }
}

/// A list of objects of at most [`OBJECTS_PER_RPC_MAX`].
impl Wire for Vec<ObjectId> {
    fn put(&self, out: &mut Vec<u8>) {
        put_vec(out, self);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        take_vec(input, OBJECTS_PER_RPC_MAX)
    }
}

impl Wire for Vec<ObjectAttr> {
    fn put(&self, out: &mut Vec<u8>) {
        put_vec(out, self);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        take_vec(input, OBJECTS_PER_RPC_MAX)
    }
}

wire_enum! {
    /// A request to an OST. 10 and 13 were requests that nobody sent.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum OstRequest {
        /// Writes the bulk at an offset; the object is born if it was not there. Refused with
        /// `ESTALE` from an evicted client, for an older layout generation, for an object with a
        /// tombstone; and for one that is not there if it comes in the slot
        /// [`CLAIM_SLOT`](crate::CLAIM_SLOT): that tells again what was answered before a crash, and
        /// the object may have been removed since. Answer: `Written`.
        1 => Write {
            /// The object.
            object: ObjectId,
            /// Generation of the layout that the writer went by.
            layout_gen: u32,
            /// Where, in the object.
            offset: u64,
            /// Granted bytes that this write uses up.
            grant_used: u64,
        },
        /// Reads into the bulk buffer; the answer is short at the object's end. Answer: `Read`.
        2 => Read {
            /// The object.
            object: ObjectId,
            /// Where, in the object.
            offset: u64,
            /// How many bytes, at most [`BULK_MAX`].
            len: u32,
        },
        /// Cuts an object to a size. Repeating one with the same or an older version does
        /// nothing. Answer: `Done`, when the cut is durable.
        3 => Punch {
            /// The object.
            object: ObjectId,
            /// The new size.
            size: u64,
            /// The MDT transno of the truncate.
            version: u64,
        },
        /// Removes objects. Answer: `Done`, when the removal is durable.
        4 => Destroy {
            /// The objects.
            objects: Vec<ObjectId>,
            /// A writer was lost rather than closed: keep tombstones against its late writes.
            late_writers: bool,
        },
        /// Makes objects durable. Fails with `EIO` if the target restarted since
        /// `boot_epoch`, because unsynced writes may be lost. Answer: `Done`.
        5 => Sync {
            /// The objects.
            objects: Vec<ObjectId>,
            /// The boot epoch that the writes were answered with; 0 does not care.
            boot_epoch: u64,
        },
        /// Sizes and times of objects. Answer: `Objects`, in the order asked.
        6 => GetAttr {
            /// The objects.
            objects: Vec<ObjectId>,
        },
        /// Objects that exist, by rising id. Answer: `Objects`.
        7 => List {
            /// Sequence of the files.
            seq: Seq,
            /// From this object id of the sequence on.
            from_oid: u32,
            /// Most objects wanted.
            count: u32,
        },
        /// Refuse whatever still comes from this client incarnation. Answer: `Done`, when
        /// that is durable.
        8 => Fence {
            /// The incarnation.
            client: ClientId,
        },
        /// Space. Answer: `StatFs`.
        9 => StatFs,
        /// Where the next data or hole begins (`SEEK_DATA`, `SEEK_HOLE`). Answer: `Offset`.
        11 => Seek {
            /// The object.
            object: ObjectId,
            /// From here.
            offset: u64,
            /// A hole rather than data.
            hole: bool,
        },
        /// Allocates (`fallocate`) or frees a range. Answer: `Done`.
        12 => Allocate {
            /// The object.
            object: ObjectId,
            /// Generation of the layout.
            layout_gen: u32,
            /// Where, in the object.
            offset: u64,
            /// How many bytes.
            len: u64,
            /// Free the range instead.
            punch_hole: bool,
            /// Do not let the object grow.
            keep_size: bool,
        },
        /// Makes a range read as zeros, and keeps space for it (`FALLOC_FL_ZERO_RANGE`).
        /// Answer: `Done`.
        14 => ZeroRange {
            /// The object.
            object: ObjectId,
            /// Generation of the layout.
            layout_gen: u32,
            /// Where, in the object.
            offset: u64,
            /// How many bytes.
            len: u64,
            /// Do not let the object grow.
            keep_size: bool,
        },
        /// Makes an object at least this large, with a hole at its end; it is born if it was not
        /// there. One that is larger stays as it is: `Punch` cuts. Refused as `Write` is. Nothing
        /// happens if a `Punch` of a later version was there: this came late. Answer: `Done`.
        /// The sender has changed the object by it, as by `Allocate`: he syncs it, and keeps cuts and
        /// writes of his own that it could meet out of its way.
        15 => SetSize {
            /// The object.
            object: ObjectId,
            /// Generation of the layout that the sender went by.
            layout_gen: u32,
            /// Its size.
            size: u64,
            /// The version of the inode whose size this is: an MDT transno, as in `Punch`.
            version: u64,
        },
        /// Sets the times of an object; nothing happens to one that is not there. Answer: `Done`. A
        /// `Sync` need not make them durable.
        16 => SetTimes {
            /// The object.
            object: ObjectId,
            /// If it is to be set.
            atime: Option<Timespec>,
            /// If it is to be set.
            mtime: Option<Timespec>,
        },
        /// Writes the bulk at the end of an object, which is born if it was not there. Refused as
        /// `Write` is. Answer: `Appended`.
        ///
        /// Done twice it would be there twice. In its slot it is done once, as everything is; on
        /// another connection, after a restart or where the target had forgotten the client, it may
        /// not be sent again if it may have been done before.
        17 => Append {
            /// The object.
            object: ObjectId,
            /// Generation of the layout that the writer went by.
            layout_gen: u32,
            /// Granted bytes that this write uses up.
            grant_used: u64,
        },
        /// Whether anybody but the OST still has an object open or mapped. Answer: `Alone`.
        18 => Alone {
            /// The object.
            object: ObjectId,
        },
        /// Writes several pieces of an object, which the bulk has one behind the other, as if each were a
        /// `Write`: in their order, all of them before or behind whatever else meets one of them. Only to
        /// who has [`MANY`](crate::MANY). Refused as `Write` is; if they are not as
        /// [`extent_of`](crate::spans::extent_of) wants them, or not as long as the bulk together; and in
        /// the slot [`CLAIM_SLOT`](crate::CLAIM_SLOT), where each is told as a `Write`. Answer: `Written`,
        /// with the sum of what there was room for: the first pieces whole, perhaps one in part, and
        /// nothing of those behind it.
        19 => WriteMany {
            /// The object.
            object: ObjectId,
            /// Generation of the layout that the writer went by.
            layout_gen: u32,
            /// Where each lies, in the object.
            pieces: Spans,
            /// Granted bytes that they use up together.
            grant_used: u64,
        },
    }
}

wire_enum! {
    /// What an OST answers. 6 was the answer to one that nobody sent.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum OstReply {
        /// Nothing to say.
        1 => Done,
        /// Answer to `Write` and `WriteMany`.
        2 => Written {
            /// Bytes written: all, or as many as there was room for; an error if that is none.
            len: u32,
            /// The target's boot epoch, for a later `Sync`.
            boot_epoch: u64,
            /// Bytes granted for further writes.
            granted: u64,
        },
        /// Answer to `Read`: the bulk holds the data.
        3 => Read {
            /// Bytes read.
            len: u32,
        },
        /// Objects and their sizes.
        4 => Objects(Vec<ObjectAttr>),
        /// Space.
        5 => StatFs(StatFs),
        /// An offset, or `None` where nothing follows.
        7 => Offset {
            /// In the object.
            offset: Option<u64>,
        },
        /// Answer to `Append`.
        8 => Appended {
            /// Where the bytes begin, in the object.
            offset: u64,
            /// Bytes written: all, or as many as there was room for. If that is none, `offset` says
            /// nothing.
            len: u32,
            /// The target's boot epoch, for a later `Sync`.
            boot_epoch: u64,
            /// Bytes granted for further writes.
            granted: u64,
        },
        /// Answer to `Alone`.
        9 => Alone {
            /// Nobody else has it, or there is no such object. `false` may be for a moment only.
            alone: bool,
        },
    }
}

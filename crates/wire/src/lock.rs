//! Locks as they appear in messages: modes, inode bits, grants and callbacks.

use sateen_types::Fid;

use crate::codec::{DecodeError, Input, Wire};
use crate::file_lock::WaitId;
use crate::wire_enum;

/// What part of an inode a lock covers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Ibits(pub u32);

impl Ibits {
    /// Nothing.
    pub const NONE: Ibits = Ibits(0);
    /// That the name leads to this inode.
    pub const LOOKUP: Ibits = Ibits(1);
    /// A directory's entries; any inode's nlink and times of change.
    pub const UPDATE: Ibits = Ibits(2);
    /// That the file is open somewhere. Granted to nobody: opens are kept under the other bits
    /// (docs/decisions/0008-ranges.md).
    pub const OPEN: Ibits = Ibits(4);
    /// The layout.
    pub const LAYOUT: Ibits = Ibits(8);
    /// Owner, group, mode and ACL.
    pub const PERM: Ibits = Ibits(16);
    /// Extended attributes.
    pub const XATTR: Ibits = Ibits(32);
    /// A file's bytes, its size and its times of access and modification. The lock is at the MDT,
    /// of the whole file but for [`LockMode::Part`]; OSTs have none.
    pub const DATA: Ibits = Ibits(64);
    /// Everything but the data: what a cached name or attribute stands under.
    pub const META: Ibits = Ibits(1 | 2 | 8 | 16 | 32);
    /// Every bit that exists.
    pub const ALL: Ibits = Ibits(127);

    /// Whether the two share a bit.
    pub const fn intersects(self, other: Ibits) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether all bits of `other` are here.
    pub const fn contains(self, other: Ibits) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both together.
    pub const fn union(self, other: Ibits) -> Ibits {
        Ibits(self.0 | other.0)
    }

    /// These without `other`.
    pub const fn without(self, other: Ibits) -> Ibits {
        Ibits(self.0 & !other.0)
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl Wire for Ibits {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let bits = Ibits(u32::take(input)?);
        if Ibits::ALL.contains(bits) { Ok(bits) } else { Err(DecodeError::Invalid) }
    }
}

/// How a lock may be shared, in the field's terms.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum LockMode {
    /// Concurrent read. On data: to read, in one piece at one OST each time, what others may be
    /// writing; nothing of it is kept. Whoever asks for it takes `Pr` as well, and gets that as long
    /// as the file is not contended. Not beside `Pw`, unlike in the field: who has that may keep what
    /// he writes.
    Cr = 1,
    /// Concurrent write. On data: shared with others who write, and read, in pieces that one OST does
    /// in order each, and who cache nothing. Whoever asks for it takes `Pw` as well, and gets that as
    /// long as the file is not contended.
    Cw = 2,
    /// Protected read: shared with readers.
    Pr = 3,
    /// Protected write: nobody else reads or writes.
    Pw = 4,
    /// Exclusive.
    Ex = 5,
    /// On data: shared with all who name the same group, and nobody else. They read and write as under
    /// `Cw`, in whatever pieces, and see to it themselves that these do not overlap. It is asked for
    /// with its group, and never asked back.
    Group = 6,
    /// On data: to write the records of a [`Comb`](sateen_types::Comb), and nothing else. What is written
    /// may be kept, since nobody else reads or writes there: it stands beside parts that have other
    /// records, which the table sees to, and beside nothing else, not even its own client's other locks.
    /// It is asked for with its comb.
    Part = 8,
}

impl LockMode {
    /// Whether two different owners may hold these at once.
    pub const fn compatible(self, other: LockMode) -> bool {
        use LockMode::{Cr, Cw, Ex, Group, Part, Pr, Pw};
        match (self, other) {
            // Of one group, and of combs that do not meet; otherwise the table sees to it.
            (Group, Group) | (Part, Part) => true,
            (Ex | Pw | Group | Part, _) | (_, Ex | Pw | Group | Part) => false,
            (Cr, _) | (_, Cr) => true,
            (Cw, Cw) | (Pr, Pr) => true,
            (Cw, Pr) | (Pr, Cw) => false,
        }
    }

    /// Whether others may write, or read what is written, at the same time: whoever holds it keeps
    /// nothing, but for what he writes to his records under `Part`.
    pub const fn is_shared(self) -> bool {
        matches!(self, LockMode::Cr | LockMode::Cw | LockMode::Group | LockMode::Part)
    }

    /// Whether holding `self` allows everything that `other` would. `Part` counts as `Cw` for what its
    /// holder says of the file: where he may write or read is another question, which its comb answers.
    pub const fn covers(self, other: LockMode) -> bool {
        use LockMode::{Cr, Cw, Ex, Group, Part, Pr, Pw};
        let same =
            matches!((self, other), (Pr, Pr) | (Cw, Cw) | (Group, Group | Cw) | (Part, Part | Cw));
        same || matches!((self, other), (Ex, _) | (_, Cr) | (Pw, Pw | Pr | Cw | Part))
    }
}

impl Wire for LockMode {
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u8).put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::take(input)? {
            1 => LockMode::Cr,
            2 => LockMode::Cw,
            3 => LockMode::Pr,
            4 => LockMode::Pw,
            5 => LockMode::Ex,
            6 => LockMode::Group,
            8 => LockMode::Part,
            _ => return Err(DecodeError::Invalid),
        })
    }
}

/// The server's name of one granted lock, never reused by one incarnation of a target.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LockId(pub u64);

impl Wire for LockId {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        u64::take(input).map(LockId)
    }
}

/// A lock that a reply brings along.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Its name, used by callbacks and cancels.
    pub id: LockId,
    /// The inode.
    pub fid: Fid,
    /// The mode.
    pub mode: LockMode,
    /// The parts covered.
    pub bits: Ibits,
}

impl Wire for Grant {
    fn put(&self, out: &mut Vec<u8>) {
        self.id.put(out);
        self.fid.put(out);
        self.mode.put(out);
        self.bits.put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        Ok(Grant {
            id: LockId::take(input)?,
            fid: Fid::take(input)?,
            mode: LockMode::take(input)?,
            bits: Ibits::take(input)?,
        })
    }
}

/// Most locks in one reply.
pub const GRANTS_MAX: usize = 3;

/// The locks of one reply, kept inline.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Grants([Option<Grant>; GRANTS_MAX]);

impl Grants {
    /// No lock.
    pub const NONE: Grants = Grants([None; GRANTS_MAX]);

    /// Adds one; false if there is no room.
    #[must_use]
    pub fn push(&mut self, grant: Grant) -> bool {
        match self.0.iter_mut().find(|slot| slot.is_none()) {
            Some(slot) => {
                *slot = Some(grant);
                true
            }
            None => false,
        }
    }

    /// The locks.
    pub fn iter(&self) -> impl Iterator<Item = &Grant> {
        self.0.iter().flatten()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }
}

impl Wire for Grants {
    fn put(&self, out: &mut Vec<u8>) {
        (self.iter().count() as u8).put(out);
        for grant in self.iter() {
            grant.put(out);
        }
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let mut grants = Grants::NONE;
        for _ in 0..u8::take(input)? {
            if !grants.push(Grant::take(input)?) {
                return Err(DecodeError::TooLong);
            }
        }
        Ok(grants)
    }
}

wire_enum! {
    /// What a server tells a client on its own account. One-way: the answer to a blocking
    /// callback is the request that cancels the lock, and that to a glimpse a request, too.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Callback {
        /// Somebody needs a conflicting lock: stop using this one, and cancel it.
        1 => Blocking {
            /// The inode.
            fid: Fid,
            /// The lock; perhaps one whose grant has not arrived yet.
            id: LockId,
        },
        /// The client was evicted: everything it holds here is void.
        2 => Evicted,
        /// Nobody is in the way of this wait for a program's lock any more, and nobody else gets
        /// it before: ask again, or leave. Sent again until one of them comes.
        3 => FileLockTurn {
            /// The file.
            fid: Fid,
            /// The wait; perhaps one whose request has not been answered yet.
            wait: WaitId,
        },
        /// Somebody looks at a file's size and times: say what they are now (`AnswerGlimpse`), and
        /// keep the lock; or give it back, if it is not needed any more. Sent again until one of
        /// them comes.
        4 => Glimpse {
            /// The file.
            fid: Fid,
            /// The lock for writing its data; perhaps one whose grant has not arrived yet.
            id: LockId,
            /// The question's name, never used twice.
            question: u64,
        },
    }
}

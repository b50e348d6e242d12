//! FIDs: the cluster-wide name of a file, and the inode number made from it.
//!
//! A FID is never reused. Its sequence says which MDT it belongs to, by arithmetic; an MDT grants
//! its sequences to clients durably before their first use, so that a client can name a new file
//! without asking.

use core::fmt;
use core::str::FromStr;

/// A FID sequence number; 47 bits at most, so that an inode number can hold it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Seq(pub u64);

/// Objects in one sequence: object ids run from 1 to this value (2^17 - 1).
pub const SEQ_OBJECTS_MAX: u32 = (1 << 17) - 1;

/// The sequences with a fixed meaning.
pub mod seq {
    use super::Seq;

    /// The root directory lives alone in this sequence, as `[0x200000007:0x1:0x0]`.
    pub const ROOT: Seq = Seq(0x2_0000_0007);
    /// First sequence that is ever granted to a client.
    pub const NORMAL_FIRST: Seq = Seq(0x2_0000_0400);
    /// Sequences of one super-sequence. They are dealt to the MDTs in turn, by arithmetic.
    pub const SUPER_WIDTH: u64 = 1 << 20;
    /// One past the last sequence: inode numbers keep 47 bits for it.
    pub const END: Seq = Seq(1 << 47);
    /// Most MDTs: super-sequences are dealt to them in turn, so that the FLDB is arithmetic.
    pub const MDTS_MAX: u32 = 256;

    /// The index of the MDT that a sequence belongs to.
    pub const fn mdt_of(seq: Seq) -> u32 {
        if seq.0 < NORMAL_FIRST.0 {
            return 0;
        }
        ((seq.0 - NORMAL_FIRST.0) / SUPER_WIDTH % MDTS_MAX as u64) as u32
    }

    /// The first sequence of the `round`-th super-sequence of an MDT; `None` beyond the last
    /// that an inode number can hold.
    pub const fn super_first(mdt: u32, round: u64) -> Option<Seq> {
        let number = round.saturating_mul(MDTS_MAX as u64).saturating_add(mdt as u64);
        let first = number.saturating_mul(SUPER_WIDTH).saturating_add(NORMAL_FIRST.0);
        if mdt < MDTS_MAX && first.saturating_add(SUPER_WIDTH) <= END.0 {
            Some(Seq(first))
        } else {
            None
        }
    }
}

/// A file identifier, printed `[0x200000400:0x1:0x0]`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Fid {
    /// The sequence, which names the MDT through the FLDB.
    pub seq: Seq,
    /// The object within the sequence, 1 to [`SEQ_OBJECTS_MAX`].
    pub oid: u32,
    /// Reserved, always 0 today.
    pub ver: u32,
}

/// An inode number as programs see it, and FUSE's nodeid: `seq << 17 | oid`.
pub type Ino = u64;

/// Why a FID was not understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FidError {
    /// The text is not `[0xSEQ:0xOID:0xVER]`.
    Syntax,
    /// A part lies outside what a FID can hold.
    Range,
}

impl fmt::Display for FidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FidError::Syntax => "not a FID; write it like [0x200000400:0x1:0x0]",
            FidError::Range => "a part of this FID is out of range",
        })
    }
}

impl core::error::Error for FidError {}

impl Fid {
    /// The root directory of every file system.
    pub const ROOT: Fid = Fid { seq: seq::ROOT, oid: 1, ver: 0 };

    /// A FID with version 0.
    pub const fn new(seq: Seq, oid: u32) -> Fid {
        Fid { seq, oid, ver: 0 }
    }

    /// Whether the parts lie within their limits; checked on everything from the wire or disk.
    pub const fn is_valid(self) -> bool {
        self.seq.0 >= seq::ROOT.0
            && self.seq.0 < seq::END.0
            && self.oid >= 1
            && self.oid <= SEQ_OBJECTS_MAX
            && self.ver == 0
    }

    /// The inode number. FUSE reserves 1 for the root, so the root is mapped there.
    pub const fn ino(self) -> Ino {
        if self.seq.0 == seq::ROOT.0 && self.oid == 1 {
            return 1;
        }
        self.seq.0 << 17 | self.oid as u64
    }

    /// The FID of an inode number; `None` if no file can have that number.
    pub const fn from_ino(ino: Ino) -> Option<Fid> {
        if ino == 1 {
            return Some(Fid::ROOT);
        }
        let fid = Fid::new(Seq(ino >> 17), (ino & SEQ_OBJECTS_MAX as u64) as u32);
        if fid.is_valid() { Some(fid) } else { None }
    }

    /// Twelve bytes that sort as (sequence, object): the form used in index keys.
    pub const fn to_key(self) -> [u8; 12] {
        let s = self.seq.0.to_be_bytes();
        let o = self.oid.to_be_bytes();
        [s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7], o[0], o[1], o[2], o[3]]
    }

    /// The inverse of [`Fid::to_key`]; `None` if the bytes are no valid FID.
    pub fn from_key(key: &[u8]) -> Option<Fid> {
        let (s, o) = key.split_first_chunk::<8>()?;
        let o: [u8; 4] = o.try_into().ok()?;
        let fid = Fid::new(Seq(u64::from_be_bytes(*s)), u32::from_be_bytes(o));
        fid.is_valid().then_some(fid)
    }
}

impl fmt::Display for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:#x}:{:#x}:{:#x}]", self.seq.0, self.oid, self.ver)
    }
}

impl fmt::Debug for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fid {
    type Err = FidError;

    fn from_str(text: &str) -> Result<Fid, FidError> {
        let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        let mut parts = inner.split(':');
        let mut next = || {
            let part = parts.next().ok_or(FidError::Syntax)?;
            let hex = part.strip_prefix("0x").ok_or(FidError::Syntax)?;
            u64::from_str_radix(hex, 16).map_err(|_| FidError::Syntax)
        };
        let (seq, oid, ver) = (next()?, next()?, next()?);
        if parts.next().is_some() {
            return Err(FidError::Syntax);
        }
        let oid = u32::try_from(oid).map_err(|_| FidError::Range)?;
        let ver = u32::try_from(ver).map_err(|_| FidError::Range)?;
        let fid = Fid { seq: Seq(seq), oid, ver };
        if fid.is_valid() { Ok(fid) } else { Err(FidError::Range) }
    }
}

/// An OST object: the file it belongs to, and which of its stripes it is. Stripe numbers
/// are unique over all components of a layout.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ObjectId {
    /// The file.
    pub fid: Fid,
    /// The stripe number within the file.
    pub stripe: u32,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.fid, self.stripe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_ino_round_trip() {
        let fid = Fid::new(Seq(0x2_0000_0400), 0x1_ffff);
        assert_eq!(fid.to_string(), "[0x200000400:0x1ffff:0x0]");
        assert_eq!(fid.to_string().parse(), Ok(fid));
        assert_eq!("0x200000400:0x1ffff:0x0".parse(), Ok(fid));
        assert_eq!(Fid::from_ino(fid.ino()), Some(fid));
        assert_eq!(Fid::from_ino(1), Some(Fid::ROOT));
        assert_eq!(Fid::from_key(&fid.to_key()), Some(fid));
    }

    #[test]
    fn super_sequences_are_dealt_in_turn() {
        assert_eq!(seq::mdt_of(seq::ROOT), 0);
        for (mdt, round) in [(0, 0), (1, 0), (255, 3)] {
            let first = seq::super_first(mdt, round).unwrap();
            assert_eq!(seq::mdt_of(first), mdt);
            assert_eq!(seq::mdt_of(Seq(first.0 + seq::SUPER_WIDTH - 1)), mdt);
        }
        assert_eq!(seq::super_first(256, 0), None);
        assert_eq!(seq::super_first(0, u64::MAX), None);
    }

    #[test]
    fn bad_fids_are_refused() {
        assert_eq!("[0x1]".parse::<Fid>(), Err(FidError::Syntax));
        assert_eq!("[0x200000400:0x20000:0x0]".parse::<Fid>(), Err(FidError::Range));
        assert_eq!(Fid::from_ino(2), None);
        assert_eq!(Fid::from_key(&[0; 11]), None);
    }
}

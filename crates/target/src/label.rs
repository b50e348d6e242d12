//! The label of a target: what a data directory says of itself, read before anything else.

use sateen_types::Endpoint;
use sateen_wire::codec::{DecodeError, Input, Wire};
use sateen_wire::disk::crc32c;

/// Version of the disk format that this build writes and reads.
pub const FORMAT_VERSION: u32 = 1;

const MAGIC: u64 = 0x314c_4142_4c54_4153;
/// Incompatible features that this build knows: none yet.
const INCOMPAT_KNOWN: u64 = 0;
/// Features whose ignorance forbids writing: none yet.
const RO_COMPAT_KNOWN: u64 = 0;

/// Feature that older builds may ignore: the NIDs of the MGS stand behind the other fields.
const COMPAT_MGS_NODES: u64 = 1;
/// Feature that older builds may ignore: the target was made to take the place of one that is
/// lost, and the MGS has not heard of it yet.
pub const COMPAT_REPLACES: u64 = 2;
/// Most bytes of the MGS's NIDs, as text.
pub const MGS_NODES_BYTES_MAX: usize = 1024;

/// What kind of target it is.
pub type TargetKind = Endpoint;

/// A target's label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Name of the file system, at most 8 bytes.
    pub fsname: String,
    /// Which target: kind and index.
    pub target: TargetKind,
    /// The target's own id, drawn when it was made.
    pub uuid: u64,
    /// Id of the file system, the same in all its targets; 0 in one that was made and has not
    /// met its MGS yet.
    pub fs_uuid: u64,
    /// Epoch of the journal.
    pub journal_epoch: u64,
    /// Key of the directory hash, the same in all targets.
    pub hash_key: u64,
    /// Features that older builds may ignore.
    pub compat: u64,
    /// Features without which nothing may be written. No build reads only, so an unknown one is
    /// refused like an incompatible one.
    pub ro_compat: u64,
    /// Features without which nothing may be touched.
    pub incompat: u64,
    /// NIDs of the MGS as the administrator wrote them; empty if it is in the same process.
    pub mgs_nodes: String,
}

/// Why a label was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelError {
    /// Not a label.
    NotALabel,
    /// Damaged.
    Damaged,
    /// Written by a newer build.
    Newer(u32),
    /// It needs features that this build does not have (their bits).
    Features(u64),
}

impl std::fmt::Display for LabelError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LabelError::NotALabel => f.write_str("this is not a Sateen target"),
            LabelError::Damaged => {
                f.write_str("the target's label is damaged: restore it from a backup")
            }
            LabelError::Newer(version) => write!(
                f,
                "the target has disk format {version}, and this build knows up to \
                 {FORMAT_VERSION}: use a newer sateen"
            ),
            LabelError::Features(bits) => write!(
                f,
                "the target uses features {bits:#x} that this build lacks: use a newer sateen"
            ),
        }
    }
}

impl std::error::Error for LabelError {}

impl From<DecodeError> for LabelError {
    fn from(_: DecodeError) -> LabelError {
        LabelError::Damaged
    }
}

impl Label {
    /// The bytes of the label file.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        MAGIC.put(&mut out);
        FORMAT_VERSION.put(&mut out);
        let mgs_nodes = if self.mgs_nodes.is_empty() { 0 } else { COMPAT_MGS_NODES };
        for number in [self.compat & !COMPAT_MGS_NODES | mgs_nodes, self.ro_compat, self.incompat] {
            number.put(&mut out);
        }
        sateen_wire::codec::put_block(&mut out, self.fsname.as_bytes());
        self.target.put(&mut out);
        for number in [self.uuid, self.fs_uuid, self.journal_epoch, self.hash_key] {
            number.put(&mut out);
        }
        if mgs_nodes != 0 {
            sateen_wire::codec::put_block(&mut out, self.mgs_nodes.as_bytes());
        }
        crc32c(&out).put(&mut out);
        out
    }

    /// Reads a label file.
    ///
    /// # Errors
    /// What is wrong with it, in an order that names a newer format before damage.
    pub fn decode(bytes: &[u8]) -> Result<Label, LabelError> {
        let mut input = Input::new(bytes);
        if u64::take(&mut input).map_err(|_| LabelError::NotALabel)? != MAGIC {
            return Err(LabelError::NotALabel);
        }
        let version = u32::take(&mut input)?;
        if version > FORMAT_VERSION {
            return Err(LabelError::Newer(version));
        }
        let (fields, crc) = bytes.split_last_chunk::<4>().ok_or(LabelError::Damaged)?;
        if crc32c(fields) != u32::from_le_bytes(*crc) {
            return Err(LabelError::Damaged);
        }
        let compat = u64::take(&mut input)?;
        let ro_compat = u64::take(&mut input)?;
        let incompat = u64::take(&mut input)?;
        let unknown = incompat & !INCOMPAT_KNOWN | ro_compat & !RO_COMPAT_KNOWN;
        if unknown != 0 {
            return Err(LabelError::Features(unknown));
        }
        let fsname =
            String::from_utf8(input.block(8)?.to_vec()).map_err(|_| LabelError::Damaged)?;
        let mut label = Label {
            fsname,
            target: Endpoint::take(&mut input)?,
            uuid: u64::take(&mut input)?,
            fs_uuid: u64::take(&mut input)?,
            journal_epoch: u64::take(&mut input)?,
            hash_key: u64::take(&mut input)?,
            compat: compat & !COMPAT_MGS_NODES,
            ro_compat,
            incompat,
            mgs_nodes: String::new(),
        };
        if compat & COMPAT_MGS_NODES != 0 {
            let nodes = input.block(MGS_NODES_BYTES_MAX)?.to_vec();
            label.mgs_nodes = String::from_utf8(nodes).map_err(|_| LabelError::Damaged)?;
        }
        Ok(label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_round_trip_and_newer_ones_are_named() {
        let label = Label {
            fsname: "demo".into(),
            target: Endpoint::Ost(3),
            uuid: 1,
            fs_uuid: 2,
            journal_epoch: 3,
            hash_key: 4,
            compat: 0,
            ro_compat: 0,
            incompat: 0,
            mgs_nodes: String::new(),
        };
        let remote = Label { mgs_nodes: "10.0.0.1@tcp:10.0.0.2@tcp".into(), ..label.clone() };
        assert_eq!(Label::decode(&remote.encode()), Ok(remote));
        let bytes = label.encode();
        assert_eq!(Label::decode(&bytes), Ok(label.clone()));
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x20;
            assert!(Label::decode(&bad).is_err(), "byte {at}");
            assert!(Label::decode(&bytes[..at]).is_err());
        }
        for (ro_compat, incompat) in [(0, 4), (8, 0), (8, 4)] {
            let newer = Label { ro_compat, incompat, ..label.clone() };
            let unknown = LabelError::Features(ro_compat | incompat);
            assert_eq!(Label::decode(&newer.encode()), Err(unknown));
        }
        // Those that may be ignored are kept, whoever knows them.
        let marked = Label { compat: COMPAT_REPLACES | 1 << 40, ..label };
        assert_eq!(Label::decode(&marked.encode()), Ok(marked));
        let mut version = bytes;
        version[8] = 2;
        assert_eq!(Label::decode(&version), Err(LabelError::Newer(2)));
    }
}

//! Requests to the MGS and its replies: which targets there are.

use sateen_types::{Endpoint, NIDS_MAX, Name, Nid, Nids, PORT_DEFAULT};

use crate::codec::{DecodeError, Input, Wire, put_vec, take_vec};
use crate::{wire_enum, wire_struct};

/// Most targets of one file system.
pub const TARGETS_MAX: usize = 1 << 16;

/// Stands where a NID's kind would, before a list of several.
const SEVERAL: u8 = 3;

/// One is written as itself.
impl Wire for Nids {
    fn put(&self, out: &mut Vec<u8>) {
        if self.are_several() {
            SEVERAL.put(out);
            (self.iter().count() as u8).put(out);
        }
        self.iter().for_each(|nid| nid.put(out));
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let mut one = input.clone();
        if u8::take(&mut one)? != SEVERAL {
            return Ok(Nid::take(input)?.into());
        }
        *input = one;
        let count = usize::from(u8::take(input)?);
        if !(2..=NIDS_MAX).contains(&count) {
            return Err(DecodeError::Invalid);
        }
        let nids: Result<Vec<Nid>, _> = (0..count).map(|_| Nid::take(input)).collect();
        Nids::new(&nids?).ok_or(DecodeError::Invalid)
    }
}

impl Wire for Nid {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Nid::Lo => 0u8.put(out),
            Nid::Tcp { addr, port: PORT_DEFAULT, net } => {
                1u8.put(out);
                out.extend_from_slice(&addr.octets());
                net.put(out);
            }
            Nid::Tcp { addr, port, net } => {
                2u8.put(out);
                out.extend_from_slice(&addr.octets());
                port.put(out);
                net.put(out);
            }
            Nid::Shm { addr, port } => {
                4u8.put(out);
                out.extend_from_slice(&addr.octets());
                port.put(out);
            }
        }
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::take(input)? {
            0 => Nid::Lo,
            1 => {
                let addr = input.array::<4>()?.into();
                Nid::Tcp { addr, port: PORT_DEFAULT, net: u16::take(input)? }
            }
            2 => {
                let addr = input.array::<4>()?.into();
                match u16::take(input)? {
                    // One way to write each.
                    0 | PORT_DEFAULT => return Err(DecodeError::Invalid),
                    port => Nid::Tcp { addr, port, net: u16::take(input)? },
                }
            }
            4 => {
                let addr = input.array::<4>()?.into();
                match u16::take(input)? {
                    0 => return Err(DecodeError::Invalid),
                    port => Nid::Shm { addr, port },
                }
            }
            _ => return Err(DecodeError::Invalid),
        })
    }
}

wire_struct! {
    /// One target of the file system.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct TargetInfo {
        /// Which.
        pub target: Endpoint,
        /// Where it is reached.
        pub nids: Nids,
        /// Taken out of use by the administrator.
        pub inactive: bool,
    }
}

/// Most bytes of a file system's name.
pub const FSNAME_BYTES_MAX: usize = 8;

/// A file system's name: 1 to 8 letters, digits, `_` and `-`, as Lustre has them; or empty, if
/// it is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FsName([u8; FSNAME_BYTES_MAX]);

impl FsName {
    /// The name, if it is one.
    pub fn new(name: &str) -> Option<FsName> {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if name.len() > FSNAME_BYTES_MAX || !name.bytes().all(good) {
            return None;
        }
        let mut bytes = [0; FSNAME_BYTES_MAX];
        for (to, from) in bytes.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        Some(FsName(bytes))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(FSNAME_BYTES_MAX);
        core::str::from_utf8(self.0.get(..len).unwrap_or_default()).unwrap_or_default()
    }
}

impl Wire for FsName {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let name = FsName(input.array()?);
        match FsName::new(name.as_str()) {
            Some(good) if good == name => Ok(name),
            _ => Err(DecodeError::Invalid),
        }
    }
}

impl Wire for Vec<TargetInfo> {
    fn put(&self, out: &mut Vec<u8>) {
        put_vec(out, self);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        take_vec(input, TARGETS_MAX)
    }
}

/// Most parameters that an MGS keeps.
pub const PARAMS_MAX: usize = 255;
/// Bytes of the shortest parameter: two names of a length and a letter.
const PARAM_BYTES_MIN: usize = 4;

wire_struct! {
    /// A parameter that everybody whom it fits is to set.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct ParamInfo {
        /// Its name, perhaps with wildcards, as `osc.*-OST0001*.active`.
        pub name: Name,
        /// What it is set to.
        pub value: Name,
    }
}

impl Wire for Vec<ParamInfo> {
    fn put(&self, out: &mut Vec<u8>) {
        put_vec(out, self);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let count = u32::take(input)? as usize;
        if count > PARAMS_MAX {
            return Err(DecodeError::TooLong);
        }
        // Names are large in memory: room for as many as there can be, and no growing on top.
        let mut params = Vec::with_capacity(count.min(input.remaining() / PARAM_BYTES_MIN));
        for _ in 0..count {
            params.push(ParamInfo::take(input)?);
        }
        Ok(params)
    }
}

wire_enum! {
    /// A request to the MGS.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum MgsRequest {
        /// The configuration. Answer: `Config`.
        1 => GetConfig,
        /// A target announces itself. Refused with `EEXIST` if the index is taken by another
        /// target. Answer: `Config`.
        2 => Register {
            /// The target.
            info: TargetInfo,
            /// The target's own id, written when it was made.
            uuid: u64,
        },
        /// Which file system this is. Asked before anything is believed or told. Answer:
        /// `FileSystem`.
        3 => GetFileSystem,
        /// The configuration as soon as it is newer than this one. Answer: `Config`.
        4 => WaitConfig {
            /// What the asker has.
            version: u64,
        },
        /// The parameters, which are part of the configuration. Answer: `Params`.
        5 => GetParams,
        /// Keeps a parameter under its name, or none any more. `ENOSPC` if there are too many.
        /// Answer: `Empty`, when it is durable.
        6 => SetParam {
            /// Its name.
            name: Name,
            /// What it is set to.
            value: Option<Name>,
        },
        /// The same as `Register`, from an OST that was made to take the place of one that is
        /// lost. Answer: `Config`.
        7 => Replace {
            /// The target.
            info: TargetInfo,
            /// The target's own id.
            uuid: u64,
        },
    }
}

wire_enum! {
    /// What the MGS answers.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum MgsReply {
        /// All that a client must know to mount.
        1 => Config {
            /// Grows with every change.
            version: u64,
            /// The targets, by kind and index.
            targets: Vec<TargetInfo>,
        },
        /// Which file system it is.
        2 => FileSystem {
            /// Its name.
            fsname: FsName,
            /// Its id, the same in all its targets; 0 if it is not known.
            uuid: u64,
            /// Key of the directory hash, the same in all its targets.
            hash_key: u64,
        },
        /// The parameters.
        3 => Params {
            /// The configuration's.
            version: u64,
            /// By name.
            params: Vec<ParamInfo>,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nids_of_a_target_round_trip_and_one_is_written_as_before() {
        let nid = |last: u8| Nid::Tcp { addr: [10, 0, 0, last].into(), port: 7988, net: 1 };
        assert_eq!(Nids::from(nid(1)).to_vec(), nid(1).to_vec());
        for count in 1..=NIDS_MAX as u8 {
            let all: Vec<Nid> = (0..count).map(nid).collect();
            let nids = Nids::new(&all).unwrap();
            assert_eq!(Nids::from_bytes(&nids.to_vec()), Ok(nids));
        }
        for bad in [&[3, 0][..], &[3, 1, 0], &[3, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[3, 2, 0]] {
            assert!(Nids::from_bytes(bad).is_err(), "{bad:?}");
        }
    }
}

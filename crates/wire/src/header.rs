//! The header in front of every message.

use sateen_types::{ClientId, Endpoint};

use crate::codec::{DecodeError, Input, Wire};

/// Version of the protocol; peers of another version are refused at connect.
pub const PROTOCOL_VERSION: u16 = 9;
/// Feature: the client says something to this MDT at least every 4 s. One of which nothing is
/// heard for much longer is dead, or cut off.
pub const SPEAKS: u64 = 1;
/// Feature: group locks. Who is in the way of one for as long as people like is told so, and asks again.
pub const GROUPS: u64 = 2;
/// Feature: an OST writes several pieces of an object that come in one request. 4 is kept for
/// another.
pub const MANY: u64 = 16;
/// Feature: parts of a file's data, each a comb. Who has it not asks for whole locks.
pub const COMBS: u64 = 8;
/// Feature: who is slow with giving a lock back says that he goes on, and has more time.
pub const PROGRESS: u64 = 32;
/// Features this build can do.
pub const FEATURES: u64 = SPEAKS | GROUPS | COMBS | MANY | PROGRESS;
/// The slot, the last one that a target knows, in which one that was started again is told what the run
/// before has lost: an MDT what is held, an OST what was written. No other request has it.
pub const CLAIM_SLOT: u16 = 1023;
/// Bytes of an encoded header.
pub const HEADER_BYTES: usize = 128;

const MAGIC: u32 = 0x4e54_4153;
/// Where the lengths stand: behind magic, version, kind, flags and features.
const LENGTHS_AT: usize = 16;
/// The only flag so far: [`Header::direct`]. Others are passed over.
const FLAG_DIRECT: u8 = 1;
/// Flag in an extension's tag: a receiver that does not know it must refuse the message.
const MANDATORY: u16 = 0x8000;
/// Tag of the extension with the bulk's CRC-32C.
const BULK_CRC: u16 = 1;

/// What kind of message a header stands before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A request.
    Request = 1,
    /// A reply.
    Reply = 2,
    /// A callback.
    Callback = 3,
}

/// The header as services see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Who sent it.
    pub from: Endpoint,
    /// For whom it is.
    pub to: Endpoint,
    /// The incarnation on whose export it travels: the client's own, also in replies and
    /// callbacks to it.
    pub client: ClientId,
    /// Generation of the connection; older ones are dropped.
    pub generation: u32,
    /// Reply slot within the incarnation.
    pub slot: u16,
    /// Sequence within the slot, from 1, rising by one with each new request.
    pub seq: u64,
    /// How long the sender will wait, in milliseconds; 0 means for ever.
    pub deadline_ms: u32,
    /// Project on whose account the work is done.
    pub project: u32,
    /// Credential, once servers verify them; 0 today.
    pub credential: u32,
    /// Id that follows one user operation through all its messages; 0 if not traced.
    pub trace: u64,
    /// Job that caused it, padded with NULs.
    pub job: [u8; 16],
    /// Id of the file system that it is about; 0 if the sender does not know yet.
    pub file_system: u64,
    /// Of a request to an OST: its data is to go past the page cache there (`O_DIRECT`), if that can
    /// be. An OST that does not know of this takes it as any other.
    pub direct: bool,
}

/// Why a header was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderError {
    /// The bytes are no message of ours.
    Magic,
    /// Another version of the protocol.
    Version(u16),
    /// Checksum of the header or of the body does not match.
    Checksum,
    /// A field is out of range.
    Decode(DecodeError),
    /// A mandatory extension that this version does not know.
    Extension(u16),
}

impl core::fmt::Display for HeaderError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            HeaderError::Magic => f.write_str("no message of ours"),
            HeaderError::Version(theirs) => write!(
                f,
                "the peer speaks version {theirs} of the protocol, this sateen version \
                 {PROTOCOL_VERSION}: update the older one"
            ),
            HeaderError::Checksum => f.write_str("the checksum does not match"),
            HeaderError::Decode(error) => write!(f, "{error}"),
            HeaderError::Extension(tag) => write!(f, "a mandatory extension {tag:#x}"),
        }
    }
}

impl core::error::Error for HeaderError {}

impl From<DecodeError> for HeaderError {
    fn from(error: DecodeError) -> HeaderError {
        HeaderError::Decode(error)
    }
}

/// Lengths and checksum of what follows an encoded header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lengths {
    /// Bytes of extensions.
    pub extensions: u16,
    /// Bytes of the body.
    pub body: u32,
    /// Bytes of bulk.
    pub bulk: u32,
    /// CRC-32C of extensions and body together.
    pub body_crc: u32,
}

impl Header {
    /// A header that says only who, to whom, and on whose export.
    pub const fn between(from: Endpoint, to: Endpoint, client: ClientId) -> Header {
        Header {
            from,
            to,
            client,
            generation: 0,
            slot: 0,
            seq: 0,
            deadline_ms: 0,
            project: 0,
            credential: 0,
            trace: 0,
            job: [0; 16],
            file_system: 0,
            direct: false,
        }
    }

    /// The header of the answer: the same slot and sequence, the other way.
    pub const fn reply(&self) -> Header {
        Header { from: self.to, to: self.from, direct: false, ..*self }
    }

    /// Encodes the header for a message whose parts have these lengths.
    pub fn encode(&self, kind: Kind, lengths: Lengths) -> [u8; HEADER_BYTES] {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        self.put(kind, lengths, &mut out);
        let mut fixed = [0; HEADER_BYTES];
        fixed.copy_from_slice(&out);
        fixed
    }

    /// Appends the header, [`HEADER_BYTES`] long.
    pub(crate) fn put(&self, kind: Kind, lengths: Lengths, out: &mut Vec<u8>) {
        let at = out.len();
        MAGIC.put(out);
        PROTOCOL_VERSION.put(out);
        (kind as u8).put(out);
        (if self.direct { FLAG_DIRECT } else { 0 }).put(out);
        FEATURES.put(out);
        lengths.extensions.put(out);
        self.slot.put(out);
        lengths.body.put(out);
        lengths.bulk.put(out);
        lengths.body_crc.put(out);
        self.from.put(out);
        self.to.put(out);
        self.client.put(out);
        self.generation.put(out);
        self.seq.put(out);
        self.deadline_ms.put(out);
        self.project.put(out);
        self.credential.put(out);
        self.trace.put(out);
        out.extend_from_slice(&self.job);
        self.file_system.put(out);
        let crc_at = at + HEADER_BYTES - 4;
        debug_assert!(out.len() <= crc_at, "the fixed fields fit");
        out.resize(crc_at, 0);
        crate::disk::crc32c(out.get(at..).unwrap_or_default()).put(out);
    }

    /// What a header says of the lengths of extensions, body and bulk, with nothing checked;
    /// `None` for what is too short to be one.
    pub(crate) fn claimed_lengths(bytes: &[u8]) -> Option<(u16, u32, u32)> {
        let mut input = Input::new(bytes);
        input.bytes(LENGTHS_AT).ok()?;
        let extensions = u16::take(&mut input).ok()?;
        let _slot = u16::take(&mut input).ok()?;
        Some((extensions, u32::take(&mut input).ok()?, u32::take(&mut input).ok()?))
    }

    /// Decodes and checks a header. The lengths are the sender's claim: the receiver holds
    /// them against its limits before it reserves anything.
    ///
    /// # Errors
    /// Whatever is wrong first.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<(Kind, Header, Lengths), HeaderError> {
        match Header::decode_any(bytes)? {
            (PROTOCOL_VERSION, kind, header, lengths) => Ok((kind, header, lengths)),
            (version, ..) => Err(HeaderError::Version(version)),
        }
    }

    /// The same for a header of any version of the protocol, which is returned, too: what is
    /// fixed for ever is where a header's fields stand, so that peers of two versions can tell
    /// each other so.
    ///
    /// # Errors
    /// As [`Header::decode`], but for the version.
    pub fn decode_any(
        bytes: &[u8; HEADER_BYTES],
    ) -> Result<(u16, Kind, Header, Lengths), HeaderError> {
        let (fixed, crc) = bytes.split_last_chunk::<4>().ok_or(HeaderError::Magic)?;
        let mut input = Input::new(fixed);
        if u32::take(&mut input)? != MAGIC {
            return Err(HeaderError::Magic);
        }
        let version = u16::take(&mut input)?;
        if crate::disk::crc32c(fixed) != u32::from_le_bytes(*crc) {
            return Err(HeaderError::Checksum);
        }
        let kind = match u8::take(&mut input)? {
            1 => Kind::Request,
            2 => Kind::Reply,
            3 => Kind::Callback,
            _ => return Err(HeaderError::Decode(DecodeError::Invalid)),
        };
        let flags = u8::take(&mut input)?;
        let _features = u64::take(&mut input)?;
        let extensions = u16::take(&mut input)?;
        let slot = u16::take(&mut input)?;
        let body = u32::take(&mut input)?;
        let bulk = u32::take(&mut input)?;
        let body_crc = u32::take(&mut input)?;
        let header = Header {
            slot,
            from: Endpoint::take(&mut input)?,
            to: Endpoint::take(&mut input)?,
            client: ClientId::take(&mut input)?,
            generation: u32::take(&mut input)?,
            seq: u64::take(&mut input)?,
            deadline_ms: u32::take(&mut input)?,
            project: u32::take(&mut input)?,
            credential: u32::take(&mut input)?,
            trace: u64::take(&mut input)?,
            job: input.array()?,
            file_system: u64::take(&mut input)?,
            direct: flags & FLAG_DIRECT != 0,
        };
        Ok((version, kind, header, Lengths { extensions, body, bulk, body_crc }))
    }
}

/// Appends the extension that carries the bulk's checksum.
pub(crate) fn put_bulk_crc(crc: u32, out: &mut Vec<u8>) {
    BULK_CRC.put(out);
    4u16.put(out);
    crc.put(out);
}

/// Walks the extensions that follow a header: unknown skippable ones are skipped, an unknown
/// mandatory one is refused. The bulk's checksum, if it is there.
///
/// # Errors
/// [`HeaderError::Extension`] for a mandatory one, or a decoding error.
pub(crate) fn bulk_crc(extensions: &[u8]) -> Result<Option<u32>, HeaderError> {
    let mut input = Input::new(extensions);
    let mut crc = None;
    while !input.is_empty() {
        let tag = u16::take(&mut input)?;
        let len = usize::from(u16::take(&mut input)?);
        let bytes = input.bytes(len)?;
        match tag {
            BULK_CRC => crc = Some(u32::take(&mut Input::new(bytes))?),
            tag if tag & MANDATORY != 0 => return Err(HeaderError::Extension(tag)),
            _ => {}
        }
    }
    Ok(crc)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Header, Lengths) {
        let header = Header {
            from: Endpoint::Client(ClientId(7)),
            to: Endpoint::Mdt(1),
            client: ClientId(7),
            generation: 3,
            slot: 5,
            seq: 99,
            deadline_ms: 1000,
            project: 4,
            credential: 0,
            trace: 42,
            job: *b"cp.1000\0\0\0\0\0\0\0\0\0",
            file_system: 77,
            direct: false,
        };
        (header, Lengths { extensions: 0, body: 10, bulk: 20, body_crc: 30 })
    }

    #[test]
    fn header_round_trips() {
        let (header, lengths) = sample();
        let bytes = header.encode(Kind::Request, lengths);
        assert_eq!(Header::decode(&bytes), Ok((Kind::Request, header, lengths)));
        let direct = Header { direct: true, ..header };
        let bytes = direct.encode(Kind::Request, lengths);
        assert_eq!(Header::decode(&bytes), Ok((Kind::Request, direct, lengths)));
        assert!(!direct.reply().direct, "an answer asks for nothing");
    }

    #[test]
    fn lengths_stand_where_they_are_looked_for() {
        let (header, lengths) = sample();
        let bytes = header.encode(Kind::Request, Lengths { extensions: 9, ..lengths });
        assert_eq!(Header::claimed_lengths(&bytes), Some((9, lengths.body, lengths.bulk)));
        assert_eq!(Header::claimed_lengths(&bytes[..27]), None);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let (header, lengths) = sample();
        let bytes = header.encode(Kind::Reply, lengths);
        for bit in 0..HEADER_BYTES * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&bad).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_header_of_another_version_is_read_and_refused_in_words() {
        let (header, lengths) = sample();
        let mut bytes = header.encode(Kind::Request, lengths);
        let other = PROTOCOL_VERSION + 1;
        bytes[4..6].copy_from_slice(&other.to_le_bytes());
        let crc = crate::disk::crc32c(&bytes[..HEADER_BYTES - 4]);
        bytes[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(Header::decode_any(&bytes), Ok((other, Kind::Request, header, lengths)));
        let refused = Header::decode(&bytes).unwrap_err();
        assert_eq!(refused, HeaderError::Version(other));
        let (said, ours) = (refused.to_string(), format!("version {PROTOCOL_VERSION}"));
        assert!(said.contains(&format!("version {other}")) && said.contains(&ours), "{said}");
    }

    #[test]
    fn extensions_are_skippable_or_mandatory() {
        assert_eq!(bulk_crc(&[2, 0, 2, 0, 9, 9]), Ok(None));
        assert_eq!(bulk_crc(&[2, 0, 0, 0, 1, 0, 4, 0, 7, 0, 0, 0]), Ok(Some(7)));
        assert_eq!(bulk_crc(&[1, 0x80, 0, 0]), Err(HeaderError::Extension(0x8001)));
        assert!(bulk_crc(&[2, 0, 9, 0, 0]).is_err(), "cut off");
        assert!(bulk_crc(&[1, 0, 2, 0, 9, 9]).is_err(), "too short for a checksum");
    }
}

//! A whole message: header, body and bulk.

use bytes::{Bytes, BytesMut};
use sateen_types::{Errno, Timespec};

use crate::codec::{DecodeError, Input, Wire};
use crate::header::{
    HEADER_BYTES, Header, HeaderError, Kind, Lengths, PROTOCOL_VERSION, bulk_crc, put_bulk_crc,
};
use crate::lock::{Callback, Grants};
use crate::mdt::{MdtReply, MdtRequest};
use crate::mgs::{MgsReply, MgsRequest};
use crate::ost::{OstReply, OstRequest};
use crate::{wire_enum, wire_struct};

wire_enum! {
    /// What a party asks of a target.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Request {
        /// Opens an export. The header names the incarnation; the answer's body is
        /// `Connected`.
        1 => Connect {
            /// Features the sender can do; the answer names those that both can.
            features: u64,
        },
        /// Closes the export in good order: locks, opens and reply slots go.
        2 => Disconnect,
        /// Are you there.
        3 => Ping,
        /// To an MDT.
        4 => Mdt(MdtRequest),
        /// To an OST.
        5 => Ost(OstRequest),
        /// To the MGS.
        6 => Mgs(MgsRequest),
    }
}

wire_enum! {
    /// The content of an answer.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum ReplyBody {
        /// Nothing.
        1 => Empty,
        /// Answer to `Connect`.
        2 => Connected {
            /// Features of this connection.
            features: u64,
            /// Changes with every start of the target.
            boot_epoch: u64,
            /// The connection's generation, to be put into every header from now on.
            generation: u32,
            /// The boot epoch of the run before, if this client may go on with what it had of it;
            /// 0 otherwise.
            follows: u64,
            /// Its transactions up to this one are there. All of them, and nothing else is lost, if
            /// it is `u64::MAX`: the run ended in good order.
            durable: u64,
        },
        /// From an MDT.
        3 => Mdt(MdtReply),
        /// From an OST.
        4 => Ost(OstReply),
        /// From the MGS.
        5 => Mgs(MgsReply),
    }
}

wire_struct! {
    /// An answer.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Reply {
        /// What went wrong, if anything. Locks and numbers below hold all the same.
        pub error: Option<Errno>,
        /// The transaction that the request became; 0 if it changed nothing.
        pub transno: u64,
        /// The time that it was given.
        pub time: Timespec,
        /// Everything up to this transno is durable.
        pub last_committed: u64,
        /// Locks that come along.
        pub grants: Grants,
        /// The content.
        pub body: ReplyBody,
    }
}

impl Reply {
    /// An answer that only says what went wrong.
    pub const fn error(errno: Errno) -> Reply {
        Reply {
            error: Some(errno),
            transno: 0,
            time: Timespec::from_ns(0),
            last_committed: 0,
            grants: Grants::NONE,
            body: ReplyBody::Empty,
        }
    }

    /// A good answer that changed nothing.
    pub const fn ok(body: ReplyBody) -> Reply {
        let time = Timespec::from_ns(0);
        Reply { error: None, transno: 0, time, last_committed: 0, grants: Grants::NONE, body }
    }
}

/// What a message says.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(clippy::large_enum_variant, reason = "names are inline so that no request allocates")]
pub enum Body {
    /// A request; a reply follows.
    Request(Request),
    /// The reply to the request with the same slot and sequence.
    Reply(Reply),
    /// From a server on its own account.
    Callback(Callback),
}

/// Data that travels beside a message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Bulk {
    /// None.
    #[default]
    None,
    /// Data to be written, or data read by a peer: sent with the message.
    Data(Bytes),
    /// A reader's buffer with its wanted capacity: over `lo` it goes to the server, is filled
    /// and comes back in the reply; over a network it stays at home and is filled there.
    Buffer(BytesMut),
}

/// A whole message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// Who, to whom, which slot.
    pub header: Header,
    /// What.
    pub body: Body,
    /// The data.
    pub bulk: Bulk,
}

impl HeaderError {
    /// What a message is refused with that came whole, but is of another version: who sent it,
    /// or waits for it, is told. `None` for what is no reason to go on listening.
    pub const fn refusal(&self) -> Option<Errno> {
        match self {
            HeaderError::Version(_) => Some(Errno::EPROTONOSUPPORT),
            HeaderError::Decode(DecodeError::Newer) => Some(Errno::EOPNOTSUPP),
            _ => None,
        }
    }
}

impl Body {
    /// Whether this is a request for whose answer no program waits: it may be kept back for a
    /// moment, to travel with others. Whoever waits for it in the end says so to the network. A
    /// `Cancel` is none of them: somebody waits for the lock, or whoever gives many back does so
    /// with one request.
    pub const fn is_patient(&self) -> bool {
        matches!(self, Body::Request(Request::Mdt(MdtRequest::Close { .. })))
    }
}

impl Wire for Body {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Body::Request(request) => {
                1u8.put(out);
                request.put(out);
            }
            Body::Reply(reply) => {
                2u8.put(out);
                reply.put(out);
            }
            Body::Callback(callback) => {
                3u8.put(out);
                callback.put(out);
            }
        }
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::take(input)? {
            1 => Body::Request(Request::take(input)?),
            2 => Body::Reply(Reply::take(input)?),
            3 => Body::Callback(Callback::take(input)?),
            _ => return Err(DecodeError::Invalid),
        })
    }
}

/// Most bytes of an encoded body: a page of directory entries is the largest.
pub const BODY_MAX: usize = 4 << 20;

fn check_lengths(lengths: &Lengths) -> Result<(), HeaderError> {
    if lengths.body as usize > BODY_MAX || lengths.bulk as usize > crate::ost::BULK_MAX {
        return Err(HeaderError::Decode(DecodeError::TooLong));
    }
    Ok(())
}

/// The bulk that follows a message on a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BulkHead {
    /// Its length in bytes.
    pub len: u32,
    /// Its CRC-32C, if the sender has made one.
    pub crc: Option<u32>,
}

impl Message {
    /// Header, extensions and body as they go onto a network; the bulk follows on its own,
    /// uncopied. Its checksum is in an extension.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(2 * HEADER_BYTES);
        self.encode_into(&mut out);
        out
    }

    /// The same in place of what a buffer holds.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        out.clear();
        out.resize(HEADER_BYTES, 0);
        let bulk = match &self.bulk {
            Bulk::Data(data) => data.as_ref(),
            Bulk::None | Bulk::Buffer(_) => &[],
        };
        if !bulk.is_empty() {
            put_bulk_crc(crate::disk::crc32c(bulk), out);
        }
        let extensions = out.len() - HEADER_BYTES;
        self.body.put(out);
        let rest = out.get(HEADER_BYTES..).unwrap_or_default();
        let lengths = Lengths {
            extensions: extensions as u16,
            body: (rest.len() - extensions) as u32,
            bulk: bulk.len() as u32,
            body_crc: crate::disk::crc32c(rest),
        };
        let kind = match self.body {
            Body::Request(_) => Kind::Request,
            Body::Reply(_) => Kind::Reply,
            Body::Callback(_) => Kind::Callback,
        };
        // Made behind the body, of which the lengths are known now.
        let end = out.len();
        self.header.put(kind, lengths, out);
        out.copy_within(end.., 0);
        out.truncate(end);
    }

    /// How many bytes of extensions and body follow a header on a stream, of whatever version
    /// of the protocol, at most [`BODY_MAX`] and the extensions' own limit.
    ///
    /// # Errors
    /// Whatever is wrong first.
    pub fn rest_len(header: &[u8; HEADER_BYTES]) -> Result<usize, HeaderError> {
        Ok(Front::decode(header)?.rest_len())
    }

    /// Whether bytes of a stream begin with all of a message that has no bulk, if what its header
    /// says of that is true: it can be read without waiting for the peer.
    pub fn is_whole(bytes: &[u8]) -> bool {
        let Some((extensions, body, bulk)) = Header::claimed_lengths(bytes) else { return false };
        let len = HEADER_BYTES as u64 + u64::from(extensions) + u64::from(body);
        bulk == 0 && bytes.len() as u64 >= len
    }

    /// Whether the message has a bulk with which bytes of a stream begin, if what its header says is
    /// true.
    pub fn has_bulk(bytes: &[u8]) -> bool {
        Header::claimed_lengths(bytes).is_some_and(|(_, _, bulk)| bulk > 0)
    }

    /// How many bytes of a stream the message has that begins there, with its bulk, if what its
    /// header says of that is true.
    pub fn claimed_len(bytes: &[u8]) -> Option<u64> {
        let (extensions, body, bulk) = Header::claimed_lengths(bytes)?;
        Some(HEADER_BYTES as u64 + u64::from(extensions) + u64::from(body) + u64::from(bulk))
    }

    /// The inverse of [`Message::encode`], for bytes that hold exactly one header, its
    /// extensions and its body. The message comes without bulk; what follows is in the second
    /// value, and at most [`BULK_MAX`](crate::BULK_MAX) bytes long.
    ///
    /// # Errors
    /// Whatever is wrong first.
    pub fn decode(bytes: &[u8]) -> Result<(Message, BulkHead), HeaderError> {
        let short = HeaderError::Decode(DecodeError::Short);
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(short)?;
        Front::decode(header)?.with(rest)
    }

    /// The reply to a request, addressed back to its sender in the same slot.
    pub fn reply_to(header: &Header, reply: Reply, bulk: Bulk) -> Message {
        Message { header: header.reply(), body: Body::Reply(reply), bulk }
    }
}

/// A message of which the header has come, of whatever version of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Front {
    version: u16,
    /// What kind of message it is.
    pub kind: Kind,
    /// The header.
    pub header: Header,
    lengths: Lengths,
}

impl Front {
    /// Decodes a header, and holds what follows against the limits.
    ///
    /// # Errors
    /// Whatever is wrong first; a version is not.
    pub fn decode(header: &[u8; HEADER_BYTES]) -> Result<Front, HeaderError> {
        let (version, kind, header, lengths) = Header::decode_any(header)?;
        check_lengths(&lengths)?;
        Ok(Front { version, kind, header, lengths })
    }

    /// How many bytes of extensions and body follow, at most [`BODY_MAX`] and the extensions' own
    /// limit.
    pub fn rest_len(&self) -> usize {
        usize::from(self.lengths.extensions) + self.lengths.body as usize
    }

    /// How many bytes of bulk follow behind that, at most [`BULK_MAX`](crate::BULK_MAX).
    pub fn bulk_len(&self) -> u32 {
        self.lengths.bulk
    }

    /// The message with these extensions and this body, without its bulk; what follows is in the
    /// second value.
    ///
    /// # Errors
    /// Whatever is wrong first.
    pub fn with(&self, rest: &[u8]) -> Result<(Message, BulkHead), HeaderError> {
        let short = HeaderError::Decode(DecodeError::Short);
        let Front { version, kind, header, lengths } = *self;
        if version != PROTOCOL_VERSION {
            return Err(HeaderError::Version(version));
        }
        if crate::disk::crc32c(rest) != lengths.body_crc {
            return Err(HeaderError::Checksum);
        }
        let (extensions, body) =
            rest.split_at_checked(usize::from(lengths.extensions)).ok_or(short)?;
        if body.len() != lengths.body as usize {
            return Err(short);
        }
        let crc = bulk_crc(extensions)?;
        let body = Body::from_bytes(body)?;
        let fits = matches!(
            (kind, &body),
            (Kind::Request, Body::Request(_))
                | (Kind::Reply, Body::Reply(_))
                | (Kind::Callback, Body::Callback(_))
        );
        if !fits {
            return Err(HeaderError::Decode(DecodeError::Invalid));
        }
        let bulk = BulkHead { len: lengths.bulk, crc };
        Ok((Message { header, body, bulk: Bulk::None }, bulk))
    }
}

//! The codec under messages and disk records: little-endian numbers, lengths before bytes.
//!
//! [`Wire`] is written once per type by [`wire_struct!`] and [`wire_enum!`]. Decoding never
//! panics and never allocates more than the bytes at hand justify: every sequence has a
//! limit, and a claimed length larger than the rest of the buffer is an error.

use bytes::Bytes;
use sateen_types::{
    Attr, ClientId, Comb, Component, DirCookie, Endpoint, Errno, Extent, Fid, FileKind, Layout,
    Name, NoPattern, ObjectId, Pattern, Seq, StripePolicy, Timespec,
};

/// Why bytes were not understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// The bytes end before the value does.
    Short,
    /// A tag, flag or number that this version does not know or that cannot be.
    Invalid,
    /// A length above its limit.
    TooLong,
    /// Bytes are left over after the value.
    Trailing,
    /// A number that is reserved for a newer version: nothing is damaged, but not understood.
    Newer,
}

impl core::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            DecodeError::Short => "truncated",
            DecodeError::Invalid => "invalid value",
            DecodeError::TooLong => "length above its limit",
            DecodeError::Trailing => "trailing bytes",
            DecodeError::Newer => "of a newer version",
        })
    }
}

impl core::error::Error for DecodeError {}

impl From<DecodeError> for Errno {
    fn from(error: DecodeError) -> Errno {
        match error {
            DecodeError::Newer => Errno::EOPNOTSUPP,
            _ => Errno::EPROTO,
        }
    }
}

/// A value with one encoding.
pub trait Wire: Sized {
    /// Appends the encoding.
    fn put(&self, out: &mut Vec<u8>);
    /// Takes one value off the front.
    ///
    /// # Errors
    /// Whatever is wrong with the bytes; `input` is then in no defined position.
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError>;

    /// Decodes a buffer that holds exactly one value.
    ///
    /// # Errors
    /// As [`Wire::take`], or [`DecodeError::Trailing`].
    fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Input::new(bytes);
        let value = Self::take(&mut input)?;
        if input.is_empty() { Ok(value) } else { Err(DecodeError::Trailing) }
    }

    /// The encoding alone.
    fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(&mut out);
        out
    }
}

/// Bytes being decoded.
#[derive(Debug, Clone)]
pub struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// Starts at the front of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { rest: bytes }
    }

    /// Whether everything was taken.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Bytes not yet taken.
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Short)?;
        self.rest = rest;
        Ok(head)
    }

    /// A fixed number of bytes.
    ///
    /// # Errors
    /// [`DecodeError::Short`].
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(DecodeError::Short)?;
        self.rest = rest;
        Ok(*head)
    }

    /// Bytes behind a `u32` length of at most `max`.
    ///
    /// # Errors
    /// [`DecodeError::TooLong`] or [`DecodeError::Short`].
    pub fn block(&mut self, max: usize) -> Result<&'a [u8], DecodeError> {
        let len = u32::take(self)? as usize;
        if len > max {
            return Err(DecodeError::TooLong);
        }
        self.bytes(len)
    }
}

/// Appends bytes behind a `u32` length.
pub fn put_block(out: &mut Vec<u8>, bytes: &[u8]) {
    debug_assert!(u32::try_from(bytes.len()).is_ok(), "blocks are far below 4 GiB");
    (bytes.len() as u32).put(out);
    out.extend_from_slice(bytes);
}

/// Takes a sequence of at most `max` values behind a `u32` count.
///
/// # Errors
/// As the elements' decoder, or [`DecodeError::TooLong`].
pub fn take_vec<T: Wire>(input: &mut Input<'_>, max: usize) -> Result<Vec<T>, DecodeError> {
    let count = u32::take(input)? as usize;
    if count > max {
        return Err(DecodeError::TooLong);
    }
    // A lying count reserves no more memory than there are bytes; elements that are smaller
    // encoded than in memory make it grow as they turn out to exist.
    let fits = input.remaining() / size_of::<T>().max(1);
    let mut out = Vec::with_capacity(count.min(fits));
    for _ in 0..count {
        out.push(T::take(input)?);
    }
    Ok(out)
}

/// Appends a sequence behind a `u32` count.
pub fn put_vec<T: Wire>(out: &mut Vec<u8>, values: &[T]) {
    (values.len() as u32).put(out);
    for value in values {
        value.put(out);
    }
}

macro_rules! wire_numbers {
    ($($t:ty),*) => {$(
        impl Wire for $t {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
                Ok(<$t>::from_le_bytes(input.array()?))
            }
        }
    )*};
}
wire_numbers!(u8, u16, u32, u64, i32, i64);

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        match u8::take(input)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Invalid),
        }
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        if bool::take(input)? { T::take(input).map(Some) } else { Ok(None) }
    }
}

impl Wire for Bytes {
    fn put(&self, out: &mut Vec<u8>) {
        put_block(out, self);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        Ok(Bytes::copy_from_slice(input.block(BYTES_MAX)?))
    }
}

/// Most bytes of one opaque value in a body: an xattr value, a symlink target.
pub const BYTES_MAX: usize = 1 << 20;

/// Implements [`Wire`] for a struct by encoding its fields in order, and declares it.
#[macro_export]
macro_rules! wire_struct {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$fmeta:meta])* pub $field:ident : $ty:ty,)* }) => {
        $(#[$meta])*
        pub struct $name { $($(#[$fmeta])* pub $field: $ty,)* }
        impl $crate::codec::Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                let _ = &out;
                $($crate::codec::Wire::put(&self.$field, out);)*
            }
            fn take(input: &mut $crate::codec::Input<'_>) -> Result<Self, $crate::codec::DecodeError> {
                let _ = &input;
                Ok($name { $($field: $crate::codec::Wire::take(input)?,)* })
            }
        }
    };
}

/// Implements [`Wire`] for an enum of unit, tuple-of-one and struct variants behind a `u16`
/// tag, and declares it.
#[macro_export]
macro_rules! wire_enum {
    ($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$vmeta:meta])* $tag:literal => $variant:ident
            $({ $($(#[$fmeta:meta])* $field:ident : $ty:ty,)* })?
            $(( $inner:ty ))? ,)*
    }) => {
        $(#[$meta])*
        #[allow(clippy::large_enum_variant, reason = "names are inline so that no message allocates")]
        pub enum $name {
            $($(#[$vmeta])* $variant $({ $($(#[$fmeta])* $field: $ty,)* })? $(($inner))?,)*
        }
        impl $name {
            /// The names of all variants.
            pub const VARIANTS: &'static [&'static str] = &[$(stringify!($variant)),*];
            /// Their numbers on the wire.
            pub const TAGS: &'static [u16] = &[$($tag),*];
            /// The name of this variant.
            pub const fn variant(&self) -> &'static str {
                match self {
                    $($name::$variant { .. } => stringify!($variant),)*
                }
            }
            /// The number of this variant on the wire.
            pub const fn tag(&self) -> u16 {
                match self {
                    $($name::$variant { .. } => $tag,)*
                }
            }
        }
        impl $crate::codec::Wire for $name {
            #[allow(irrefutable_let_patterns, reason = "an enum may have one variant")]
            fn put(&self, out: &mut Vec<u8>) {
                $($crate::wire_enum!(@put self, out, $name, $variant, $tag, $({ $($field)* })? $(( $inner ))?);)*
            }
            fn take(input: &mut $crate::codec::Input<'_>) -> Result<Self, $crate::codec::DecodeError> {
                match <u16 as $crate::codec::Wire>::take(input)? {
                    $($tag => Ok($name::$variant
                        $({ $($field: $crate::codec::Wire::take(input)?,)* })?
                        $((<$inner as $crate::codec::Wire>::take(input)?))?),)*
                    _ => Err($crate::codec::DecodeError::Invalid),
                }
            }
        }
    };
    (@put $self:ident, $out:ident, $name:ident, $variant:ident, $tag:literal, { $($field:ident)* }) => {
        if let $name::$variant { $($field),* } = $self {
            <u16 as $crate::codec::Wire>::put(&$tag, $out);
            $($crate::codec::Wire::put($field, $out);)*
            return;
        }
    };
    (@put $self:ident, $out:ident, $name:ident, $variant:ident, $tag:literal, ( $inner:ty )) => {
        if let $name::$variant(inner) = $self {
            <u16 as $crate::codec::Wire>::put(&$tag, $out);
            $crate::codec::Wire::put(inner, $out);
            return;
        }
    };
    (@put $self:ident, $out:ident, $name:ident, $variant:ident, $tag:literal, ) => {
        if let $name::$variant = $self {
            <u16 as $crate::codec::Wire>::put(&$tag, $out);
            return;
        }
    };
}

/// Implements [`Wire`] for a newtype around a number.
macro_rules! wire_newtype {
    ($($t:ty: $inner:ty),*) => {$(
        impl Wire for $t {
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }
            fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
                Ok(Self(<$inner>::take(input)?))
            }
        }
    )*};
}
wire_newtype!(ClientId: u64, Seq: u64);

impl Wire for Fid {
    fn put(&self, out: &mut Vec<u8>) {
        self.seq.put(out);
        self.oid.put(out);
        self.ver.put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let fid = Fid { seq: Seq::take(input)?, oid: u32::take(input)?, ver: u32::take(input)? };
        if fid.is_valid() { Ok(fid) } else { Err(DecodeError::Invalid) }
    }
}

impl Wire for Comb {
    fn put(&self, out: &mut Vec<u8>) {
        self.start().put(out);
        self.record_len().put(out);
        self.stride().put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let (start, record_len) = (u64::take(input)?, u64::take(input)?);
        Comb::new(start, record_len, u64::take(input)?).ok_or(DecodeError::Invalid)
    }
}

impl Wire for ObjectId {
    fn put(&self, out: &mut Vec<u8>) {
        self.fid.put(out);
        self.stripe.put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        Ok(ObjectId { fid: Fid::take(input)?, stripe: u32::take(input)? })
    }
}

impl Wire for Name {
    fn put(&self, out: &mut Vec<u8>) {
        let bytes = self.as_bytes();
        out.push(bytes.len() as u8);
        out.extend_from_slice(bytes);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let len = usize::from(u8::take(input)?);
        Name::new(input.bytes(len)?).map_err(|_| DecodeError::Invalid)
    }
}

impl Wire for Timespec {
    fn put(&self, out: &mut Vec<u8>) {
        self.sec.put(out);
        self.nsec.put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let time = Timespec { sec: i64::take(input)?, nsec: u32::take(input)? };
        if time.nsec < 1_000_000_000 { Ok(time) } else { Err(DecodeError::Invalid) }
    }
}

impl Wire for Errno {
    fn put(&self, out: &mut Vec<u8>) {
        self.raw().put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        Ok(Errno::from_raw(i32::take(input)?))
    }
}

impl Wire for DirCookie {
    fn put(&self, out: &mut Vec<u8>) {
        self.raw().put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let raw = u64::take(input)?;
        if i64::try_from(raw).is_ok() {
            Ok(DirCookie::from_raw(raw))
        } else {
            Err(DecodeError::Invalid)
        }
    }
}

impl Wire for FileKind {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        FileKind::from_dtype(u8::take(input)?).ok_or(DecodeError::Invalid)
    }
}

impl Wire for Endpoint {
    fn put(&self, out: &mut Vec<u8>) {
        let (tag, value) = match *self {
            Endpoint::Mgs => (0u8, 0),
            Endpoint::Mdt(index) => (1, u64::from(index)),
            Endpoint::Ost(index) => (2, u64::from(index)),
            Endpoint::Client(id) => (3, id.0),
        };
        tag.put(out);
        value.put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let tag = u8::take(input)?;
        let value = u64::take(input)?;
        let index = u32::try_from(value).map_err(|_| DecodeError::Invalid);
        match tag {
            0 if value == 0 => Ok(Endpoint::Mgs),
            1 => Ok(Endpoint::Mdt(index?)),
            2 => Ok(Endpoint::Ost(index?)),
            3 => Ok(Endpoint::Client(ClientId(value))),
            _ => Err(DecodeError::Invalid),
        }
    }
}

impl Wire for StripePolicy {
    fn put(&self, out: &mut Vec<u8>) {
        self.stripe_count.put(out);
        self.stripe_size.put(out);
        self.stripe_offset.put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let policy = StripePolicy {
            stripe_count: i32::take(input)?,
            stripe_size: u32::take(input)?,
            stripe_offset: Wire::take(input)?,
        };
        policy.check().map_err(|_| DecodeError::Invalid)?;
        Ok(policy)
    }
}

/// OSTs, one for each stripe.
impl Wire for Vec<u32> {
    fn put(&self, out: &mut Vec<u8>) {
        put_vec(out, self);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        take_vec(input, sateen_types::STRIPE_COUNT_MAX as usize)
    }
}

impl Wire for Component {
    fn put(&self, out: &mut Vec<u8>) {
        self.id.put(out);
        self.flags.put(out);
        self.extent.start.put(out);
        self.extent.end.put(out);
        (self.pattern as u8).put(out);
        self.stripe_size.put(out);
        self.stripe_base.put(out);
        put_vec(out, &self.osts);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        Ok(Component {
            id: u32::take(input)?,
            flags: u32::take(input)?,
            extent: Extent { start: u64::take(input)?, end: u64::take(input)? },
            pattern: Pattern::from_raw(u8::take(input)?).map_err(|no| match no {
                NoPattern::Newer => DecodeError::Newer,
                NoPattern::Unknown => DecodeError::Invalid,
            })?,
            stripe_size: u32::take(input)?,
            stripe_base: u32::take(input)?,
            osts: take_vec(input, sateen_types::STRIPE_COUNT_MAX as usize)?,
        })
    }
}

impl Wire for Layout {
    fn put(&self, out: &mut Vec<u8>) {
        self.generation.put(out);
        put_vec(out, &self.components);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let layout = Layout { generation: u32::take(input)?, components: take_vec(input, 64)? };
        layout.check().map_err(|_| DecodeError::Invalid)?;
        Ok(layout)
    }
}

impl<T: Wire> Wire for std::sync::Arc<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_ref().put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        T::take(input).map(std::sync::Arc::new)
    }
}

impl Wire for Attr {
    fn put(&self, out: &mut Vec<u8>) {
        self.fid.put(out);
        for number in [self.mode, self.nlink, self.uid, self.gid, self.projid, self.rdev] {
            number.put(out);
        }
        self.size.put(out);
        self.blocks.put(out);
        for time in [self.atime, self.mtime, self.ctime, self.btime] {
            time.put(out);
        }
        self.version.put(out);
        self.layout_gen.put(out);
        self.size_stale.put(out);
        self.maybe_objects.put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self, DecodeError> {
        let fid = Fid::take(input)?;
        let mode = u32::take(input)?;
        if mode > 0xffff || FileKind::from_mode(mode).is_none() {
            return Err(DecodeError::Invalid);
        }
        Ok(Attr {
            fid,
            mode,
            nlink: u32::take(input)?,
            uid: u32::take(input)?,
            gid: u32::take(input)?,
            projid: u32::take(input)?,
            rdev: u32::take(input)?,
            size: u64::take(input)?,
            blocks: u64::take(input)?,
            atime: Timespec::take(input)?,
            mtime: Timespec::take(input)?,
            ctime: Timespec::take(input)?,
            btime: Timespec::take(input)?,
            version: u64::take(input)?,
            layout_gen: u32::take(input)?,
            size_stale: bool::take(input)?,
            maybe_objects: bool::take(input)?,
        })
    }
}

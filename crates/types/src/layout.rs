//! Layouts: which object holds which byte of a file. Arithmetic only.
//!
//! A layout is composite from the first format on: a list of components, each covering one
//! extent of the file and striping it over objects. A plain file has one component that
//! covers everything. Stripe numbers are unique over all components, because objects are
//! named by (file FID, stripe).

use core::fmt;

/// Smallest stripe size, and what every stripe size is a multiple of: 64 KiB.
pub const STRIPE_SIZE_MIN: u32 = 64 << 10;
/// Stripe size where nobody chose one: 1 MiB, which is also the largest FUSE request, so
/// that an aligned request goes to one OST.
pub const STRIPE_SIZE_DEFAULT: u32 = 1 << 20;
/// Most stripes of one component.
pub const STRIPE_COUNT_MAX: u32 = 2000;
/// "As many as there are OSTs", as `lfs setstripe -c -1` says it.
pub const STRIPE_COUNT_ALL: i32 = -1;
/// Highest OST index.
pub const OST_INDEX_MAX: u32 = 0xfff0;
/// Most components of one layout.
const COMPONENTS_MAX: usize = 64;

/// Number reserved for a pattern to come: striped, with parity in further objects.
pub const ERASURE_CODED: u8 = 3;
/// Number reserved for a pattern to come: striped, each file encrypted with a key of its own.
pub const ENCRYPTED: u8 = 4;

/// Why a number is no [`Pattern`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoPattern {
    /// It is reserved: a newer version has written it, and nothing is damaged.
    Newer,
    /// Nobody writes it.
    Unknown,
}

/// How a component stores its bytes. Values are the disk format; unknown ones are refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Pattern {
    /// Striped over OST objects.
    Raid0 = 1,
    /// In the MDT's own inode.
    Mdt = 2,
}

impl Pattern {
    /// From the stored number.
    ///
    /// # Errors
    /// Whether it is of a newer version, or cannot be.
    pub const fn from_raw(raw: u8) -> Result<Pattern, NoPattern> {
        match raw {
            1 => Ok(Pattern::Raid0),
            2 => Ok(Pattern::Mdt),
            ERASURE_CODED | ENCRYPTED => Err(NoPattern::Newer),
            _ => Err(NoPattern::Unknown),
        }
    }

    /// As `lfs getstripe` prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Pattern::Raid0 => "raid0",
            Pattern::Mdt => "mdt",
        }
    }
}

/// A range of a file's bytes; `end` is exclusive and `u64::MAX` means "to the end of file".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl Extent {
    /// The whole file.
    pub const ALL: Extent = Extent { start: 0, end: u64::MAX };
}

/// One component of a layout.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Component {
    /// The component's id, unique within the layout, from 1.
    pub id: u32,
    /// Component flags, none defined yet; kept as they are.
    pub flags: u32,
    /// The bytes of the file that it covers.
    pub extent: Extent,
    /// How they are stored.
    pub pattern: Pattern,
    /// Bytes of one stripe chunk; a multiple of [`STRIPE_SIZE_MIN`].
    pub stripe_size: u32,
    /// The stripe number of the first object.
    pub stripe_base: u32,
    /// The OST of each object, in stripe order. The same OST may stand more than once.
    pub osts: Vec<u32>,
}

/// The layout of one file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Grows with every change of the layout; object writes of older generations are refused.
    pub generation: u32,
    /// The components, by rising extent.
    pub components: Vec<Component>,
}

/// What a directory hands to new files, or `lfs setstripe` asks for one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StripePolicy {
    /// Stripes: [`STRIPE_COUNT_ALL`], or 0 for the file system's default.
    pub stripe_count: i32,
    /// Bytes of one stripe; 0 for the file system's default.
    pub stripe_size: u32,
    /// Index of the first OST, if the user asked for one.
    pub stripe_offset: Option<u32>,
}

impl StripePolicy {
    /// What a file system starts with: over all OSTs in 1 MiB stripes. Objects are born at
    /// their first write, so a small file costs one object however wide its layout is.
    pub const DEFAULT: StripePolicy =
        StripePolicy { stripe_count: STRIPE_COUNT_ALL, stripe_size: 0, stripe_offset: None };
}

/// Why a layout or a policy cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayoutError {
    /// Stripe size not a multiple of 64 KiB, or zero, or above 4 GiB - 64 KiB.
    StripeSize,
    /// Stripe count zero or above the limit.
    StripeCount,
    /// An OST index above the limit.
    OstIndex,
    /// No component, too many, or extents that leave a gap or overlap.
    Extents,
    /// Stripe numbers that overlap or overflow.
    StripeNumbers,
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LayoutError::StripeSize => "stripe size must be a multiple of 64 KiB, below 4 GiB",
            LayoutError::StripeCount => "stripe count must be -1, or 1 to 2000",
            LayoutError::OstIndex => "OST index out of range",
            LayoutError::Extents => "components must cover the file without gap or overlap",
            LayoutError::StripeNumbers => "stripe numbers of two components overlap",
        })
    }
}

impl core::error::Error for LayoutError {}

impl StripePolicy {
    /// Checks what a user asked for.
    ///
    /// # Errors
    /// The first thing that is impossible, whatever OSTs exist.
    pub fn check(&self) -> Result<(), LayoutError> {
        if !self.stripe_size.is_multiple_of(STRIPE_SIZE_MIN) {
            return Err(LayoutError::StripeSize);
        }
        if self.stripe_count < STRIPE_COUNT_ALL || self.stripe_count > STRIPE_COUNT_MAX as i32 {
            return Err(LayoutError::StripeCount);
        }
        if self.stripe_offset.is_some_and(|index| index > OST_INDEX_MAX) {
            return Err(LayoutError::OstIndex);
        }
        Ok(())
    }
}

/// A piece of a file range that lies in one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// Stripe number of the object.
    pub stripe: u32,
    /// OST that holds it.
    pub ost: u32,
    /// Where the piece starts in the file.
    pub file_offset: u64,
    /// Where it starts in the object.
    pub object_offset: u64,
    /// Its length in bytes, never 0.
    pub len: u64,
}

impl Component {
    fn width(&self) -> u64 {
        self.osts.len() as u64
    }

    /// Where byte `offset` of the file lies: (index of the object, offset in it).
    fn locate(&self, offset: u64) -> (u64, u64) {
        let size = u64::from(self.stripe_size);
        let number = offset / size;
        let round = number / self.width();
        (number % self.width(), round * size + offset % size)
    }

    /// The first byte of the file that a byte of object `index` at `object_offset` stands for.
    fn file_offset(&self, index: u64, object_offset: u64) -> u64 {
        let size = u64::from(self.stripe_size);
        let number = (object_offset / size).saturating_mul(self.width()).saturating_add(index);
        number.saturating_mul(size).saturating_add(object_offset % size)
    }

    /// How long object `index` is when the file has `file_size` bytes, all written.
    fn object_size(&self, index: u64, file_size: u64) -> u64 {
        let size = u64::from(self.stripe_size);
        let full = file_size / size;
        let rounds = full / self.width();
        let last = full % self.width();
        let tail = match index.cmp(&last) {
            core::cmp::Ordering::Less => size,
            core::cmp::Ordering::Equal => file_size % size,
            core::cmp::Ordering::Greater => 0,
        };
        rounds * size + tail
    }
}

impl Layout {
    /// A layout of one component over the whole file.
    ///
    /// # Errors
    /// As [`Layout::check`].
    pub fn raid0(stripe_size: u32, osts: Vec<u32>) -> Result<Layout, LayoutError> {
        let component = Component {
            id: 1,
            flags: 0,
            extent: Extent::ALL,
            pattern: Pattern::Raid0,
            stripe_size,
            stripe_base: 0,
            osts,
        };
        let layout = Layout { generation: 1, components: vec![component] };
        layout.check()?;
        Ok(layout)
    }

    /// Checks a layout that came from the wire, a disk or a user. The arithmetic below is
    /// only right for layouts that passed.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), LayoutError> {
        if self.components.is_empty() || self.components.len() > COMPONENTS_MAX {
            return Err(LayoutError::Extents);
        }
        let mut covered = 0;
        let mut stripes = 0;
        for c in &self.components {
            if c.extent.start != covered || c.extent.end <= c.extent.start {
                return Err(LayoutError::Extents);
            }
            covered = c.extent.end;
            if c.stripe_size == 0 || !c.stripe_size.is_multiple_of(STRIPE_SIZE_MIN) {
                return Err(LayoutError::StripeSize);
            }
            let objects = c.pattern == Pattern::Raid0;
            if c.osts.len() > STRIPE_COUNT_MAX as usize || c.osts.is_empty() == objects {
                return Err(LayoutError::StripeCount);
            }
            if c.osts.iter().any(|&index| index > OST_INDEX_MAX) {
                return Err(LayoutError::OstIndex);
            }
            if c.stripe_base < stripes {
                return Err(LayoutError::StripeNumbers);
            }
            stripes =
                c.stripe_base.checked_add(c.osts.len() as u32).ok_or(LayoutError::StripeNumbers)?;
        }
        if covered == u64::MAX { Ok(()) } else { Err(LayoutError::Extents) }
    }

    /// Cuts `len` bytes from `offset` into pieces that each lie in one object, in file order.
    /// Bytes of components without objects are left out.
    pub fn chunks(&self, offset: u64, len: u64) -> Chunks<'_> {
        Chunks { layout: self, offset, end: offset.saturating_add(len) }
    }

    /// Every object the file may have: (stripe number, OST), in stripe order.
    pub fn objects(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.components
            .iter()
            .flat_map(|c| c.osts.iter().zip(c.stripe_base..).map(|(&ost, stripe)| (stripe, ost)))
    }

    /// The file size that an object of `object_size` bytes proves: the file is at least that
    /// long. 0 for an empty object or a stripe number that the layout does not have.
    pub fn size_proven(&self, stripe: u32, object_size: u64) -> u64 {
        let Some(last) = object_size.checked_sub(1) else { return 0 };
        let Some(c) = self.component_of(stripe) else { return 0 };
        c.file_offset(u64::from(stripe - c.stripe_base), last).saturating_add(1)
    }

    /// How long object `stripe` may be in a file of `file_size` bytes: what a truncate cuts
    /// it to.
    pub fn object_size(&self, stripe: u32, file_size: u64) -> u64 {
        let Some(c) = self.component_of(stripe) else { return 0 };
        if file_size <= c.extent.start {
            return 0;
        }
        c.object_size(u64::from(stripe - c.stripe_base), file_size.min(c.extent.end))
    }

    /// The first byte of object `stripe` that stands for byte `offset` of the file or for one
    /// behind it; `None` if none does.
    pub fn object_offset(&self, stripe: u32, offset: u64) -> Option<u64> {
        let c = self.component_of(stripe)?;
        let index = u64::from(stripe - c.stripe_base);
        (offset < c.extent.end).then(|| c.object_size(index, offset.max(c.extent.start)))
    }

    /// The byte of the file that a byte of object `stripe` stands for; `None` behind the part
    /// of the file that its component covers.
    pub fn file_offset(&self, stripe: u32, object_offset: u64) -> Option<u64> {
        let c = self.component_of(stripe)?;
        let offset = c.file_offset(u64::from(stripe - c.stripe_base), object_offset);
        (offset < c.extent.end).then_some(offset)
    }

    fn component_of(&self, stripe: u32) -> Option<&Component> {
        self.components
            .iter()
            .find(|c| stripe >= c.stripe_base && u64::from(stripe - c.stripe_base) < c.width())
    }
}

/// Iterator of [`Layout::chunks`].
#[derive(Debug, Clone)]
pub struct Chunks<'a> {
    layout: &'a Layout,
    offset: u64,
    end: u64,
}

impl Iterator for Chunks<'_> {
    type Item = Chunk;

    fn next(&mut self) -> Option<Chunk> {
        while self.offset < self.end {
            let offset = self.offset;
            let c = self
                .layout
                .components
                .iter()
                .find(|c| offset >= c.extent.start && offset < c.extent.end)?;
            let end = self.end.min(c.extent.end);
            if c.osts.is_empty() {
                self.offset = end;
                continue;
            }
            let (index, object_offset) = c.locate(offset);
            let left = u64::from(c.stripe_size) - offset % u64::from(c.stripe_size);
            let len = left.min(end - offset);
            let ost = *c.osts.get(usize::try_from(index).ok()?)?;
            self.offset = offset + len;
            let stripe = c.stripe_base + index as u32;
            return Some(Chunk { stripe, ost, file_offset: offset, object_offset, len });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Layout {
        Layout::raid0(STRIPE_SIZE_MIN, vec![4, 5, 6]).unwrap()
    }

    #[test]
    fn chunks_cover_the_range_once() {
        let s = u64::from(STRIPE_SIZE_MIN);
        let chunks: Vec<_> = three().chunks(s - 10, 3 * s).collect();
        assert_eq!(chunks.iter().map(|c| c.len).sum::<u64>(), 3 * s);
        assert_eq!(
            chunks[0],
            Chunk { stripe: 0, ost: 4, file_offset: s - 10, object_offset: s - 10, len: 10 }
        );
        assert_eq!(
            chunks[1],
            Chunk { stripe: 1, ost: 5, file_offset: s, object_offset: 0, len: s }
        );
        assert_eq!(chunks[3].object_offset, s);
        assert_eq!(chunks[3].stripe, 0);
    }

    #[test]
    fn sizes_agree_with_chunks() {
        let layout = three();
        for size in (0..2_000_000u64).step_by(7919) {
            let mut objects = [0u64; 3];
            for c in layout.chunks(0, size) {
                objects[c.stripe as usize] =
                    objects[c.stripe as usize].max(c.object_offset + c.len);
            }
            let proven = (0..3).map(|i| layout.size_proven(i, objects[i as usize])).max();
            assert_eq!(proven, Some(size));
            for i in 0..3 {
                assert_eq!(layout.object_size(i, size), objects[i as usize]);
            }
        }
    }

    #[test]
    fn every_byte_is_found_from_its_object_and_back() {
        let s = u64::from(STRIPE_SIZE_MIN);
        let mut two = three();
        two.components.push(Component {
            id: 2,
            extent: Extent { start: 6 * s, end: u64::MAX },
            stripe_base: 3,
            osts: vec![7, 8],
            ..two.components[0].clone()
        });
        two.components[0].extent.end = 6 * s;
        two.check().unwrap();
        for layout in [three(), two] {
            for offset in (0..12 * s).step_by(7919) {
                let at = layout.chunks(offset, 1).next().unwrap();
                assert_eq!(layout.file_offset(at.stripe, at.object_offset), Some(offset));
                for (stripe, _) in layout.objects() {
                    let object = layout.object_offset(stripe, offset);
                    let next = object.and_then(|object| layout.file_offset(stripe, object));
                    let right = layout.chunks(offset, 18 * s).find(|c| c.stripe == stripe);
                    assert_eq!(next, right.map(|c| c.file_offset), "{stripe} from {offset}");
                }
            }
        }
        assert_eq!(three().file_offset(9, 0), None);
    }

    #[test]
    fn numbers_of_patterns_are_taken_reserved_or_unknown() {
        for pattern in [Pattern::Raid0, Pattern::Mdt] {
            assert_eq!(Pattern::from_raw(pattern as u8), Ok(pattern));
        }
        for reserved in [ERASURE_CODED, ENCRYPTED] {
            assert_eq!(Pattern::from_raw(reserved), Err(NoPattern::Newer));
        }
        for unknown in [0, 5, 255] {
            assert_eq!(Pattern::from_raw(unknown), Err(NoPattern::Unknown));
        }
    }

    #[test]
    fn impossible_layouts_are_refused() {
        assert_eq!(Layout::raid0(1000, vec![0]), Err(LayoutError::StripeSize));
        assert_eq!(Layout::raid0(STRIPE_SIZE_MIN, vec![]), Err(LayoutError::StripeCount));
        assert_eq!(
            Layout::raid0(STRIPE_SIZE_MIN, vec![OST_INDEX_MAX + 1]),
            Err(LayoutError::OstIndex)
        );
        let mut gap = three();
        gap.components[0].extent.end = 10;
        assert_eq!(gap.check(), Err(LayoutError::Extents));
    }

    #[test]
    fn huge_offsets_do_not_overflow() {
        let layout = three();
        assert!(layout.chunks(u64::MAX - 5, u64::MAX).count() <= 2);
        assert!(layout.size_proven(2, u64::MAX) > 0);
        assert!(layout.object_size(0, u64::MAX) > 0);
    }
}

//! Objects that were given away ([`super::given`]) and are read: what of them is to be read ahead.
//!
//! A kernel that reads a file itself says nothing, but it tells on request how much of a part of the file
//! it has in memory (cachestat(2), Linux 6.5; earlier ones are left alone). So whoever reads a cold one is
//! watched: parts of which more and more is in memory are read whole, as [`super::dense`] says, and behind
//! parts that follow each other those that come next.
//!
//! Life of a watch:
//! 1. It begins when an object is given of which something is not in memory.
//! 2. It looks every [`SOON`], and half as often after each time that nothing has changed.
//! 3. It ends when all is in memory or on its way, when somebody writes (what is written needs no reading),
//!    after [`QUIET_MAX`] looks that found nothing, and when the object is taken back.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use sateen_types::ObjectId;

use super::dense::{PART_BYTES, WAITS_MAX};
use super::files::Files;
use super::reads::ask_for;

/// The first look comes so long after the object was given.
const SOON: Duration = Duration::from_millis(5);
/// And they are never further apart.
const LATE: Duration = Duration::from_secs(1);
/// Looks take this part of the time at most.
const TIME_PART: u32 = 20;
/// Looks in vain after which nobody reads, it seems: 5 ms to 1 s apart they take some 10 s.
const QUIET_MAX: u32 = 16;
/// Objects that are watched at most; who comes then reads as without this.
const WATCHED_MAX: usize = 64;
/// Larger objects are not watched, 1 GiB: to look takes a call for each part.
const BYTES_MAX: u64 = 1 << 30;
/// Parts that are read ahead of who reads forward.
const AHEAD_PARTS: usize = 8;
const PAGE_BYTES: u64 = 4096;
/// The same number on all machines; `libc` does not have it of all.
const SYS_CACHESTAT: libc::c_long = 451;

/// What a kernel has of a part of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cached {
    /// Pages in memory.
    pub(super) pages: u64,
    /// Of those, what is not on the disk yet.
    pub(super) unwritten: u64,
}

/// Asks the kernel.
///
/// # Errors
/// `ENOSYS` of a kernel that cannot tell.
pub(super) fn cached(file: &File, range: Range<u64>) -> io::Result<Cached> {
    // `struct cachestat_range` of linux/mman.h: from where, and how many bytes.
    let range: [u64; 2] = [range.start, range.end.saturating_sub(range.start)];
    // `struct cachestat`: pages cached, dirty, under writeback, evicted, recently evicted.
    let mut told = [0_u64; 5];
    let (fd, flags): (_, libc::c_uint) = (file.as_raw_fd(), 0);
    // SAFETY: the kernel reads two numbers of 64 bits and writes five, which is what there is.
    let result =
        unsafe { libc::syscall(SYS_CACHESTAT, fd, range.as_ptr(), told.as_mut_ptr(), flags) };
    let [pages, dirty, writeback, ..] = told;
    match result {
        0 => Ok(Cached { pages, unwritten: dirty + writeback }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether something of a file is missing in memory, by its middle and its end. Cheap, and has nothing
/// read; says yes too rarely rather than too often.
pub(super) fn is_cold(file: &File) -> bool {
    let size = file.metadata().map_or(0, |about| about.len());
    let is_missing = |at: u64| {
        let page = at / PAGE_BYTES * PAGE_BYTES;
        cached(file, page..page + PAGE_BYTES).is_ok_and(|cached| cached.pages == 0)
    };
    (PART_BYTES..=BYTES_MAX).contains(&size) && (is_missing(size / 2) || is_missing(size - 1))
}

/// All that are watched.
#[derive(Debug, Default)]
pub(super) struct Watched(Vec<Watch>);

#[derive(Debug)]
struct Watch {
    object: ObjectId,
    parts: Parts,
    /// Looks in vain since somebody has read.
    quiet: u32,
    next: Instant,
}

impl Watched {
    /// An object was given.
    pub(super) fn begin(&mut self, object: ObjectId) {
        let next = Instant::now() + SOON;
        if let Some(watch) = self.0.iter_mut().find(|watch| watch.object == object) {
            (watch.quiet, watch.next) = (0, next);
        } else if self.0.len() < WATCHED_MAX {
            self.0.push(Watch { object, parts: Parts::default(), quiet: 0, next });
        }
    }

    /// How long nothing is to be done; `None` if nothing is watched.
    pub(super) fn rest(&self) -> Option<Duration> {
        let next = self.0.iter().map(|watch| watch.next).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Looks at those that are due, and has read what is to be.
    pub(super) fn look(&mut self, files: &Files) {
        let now = Instant::now();
        self.0.retain_mut(|watch| watch.next > now || watch.look(files));
    }
}

impl Watch {
    /// False if that was the last time.
    fn look(&mut self, files: &Files) -> bool {
        let file = files.known(self.object).filter(|_| files.is_pinned(self.object));
        let Some(file) = file else { return false };
        let begun = Instant::now();
        let size = file.metadata().map_or(0, |about| about.len());
        let Ok(looked) = self.parts.look(size, |range| cached(&file, range)) else { return false };
        match looked {
            Looked::Over => return false,
            Looked::Quiet => self.quiet += 1,
            Looked::Grown(wanted) => {
                self.quiet = 0;
                wanted.into_iter().for_each(|range| ask_for(&file, range));
            }
        }
        let pause = SOON.saturating_mul(1 << self.quiet.min(16)).min(LATE);
        let now = Instant::now();
        self.next = now + pause.max((now - begun).saturating_mul(TIME_PART));
        self.quiet < QUIET_MAX
    }
}

/// What a look has found.
#[derive(Debug, PartialEq, Eq)]
enum Looked {
    /// There is no more to be done.
    Over,
    /// Nobody has read.
    Quiet,
    /// Somebody has, and this is to be read.
    Grown(Vec<Range<u64>>),
}

/// Pages in memory of each part of a file, or [`Parts::WHOLE`].
#[derive(Debug, Default)]
struct Parts(Vec<u16>);

impl Parts {
    /// All of a part is in memory, or was asked for.
    const WHOLE: u16 = u16::MAX;

    /// Looks at a file of so many bytes, through `cached`.
    ///
    /// # Errors
    /// That of `cached`.
    fn look(
        &mut self,
        size: u64,
        mut cached: impl FnMut(Range<u64>) -> io::Result<Cached>,
    ) -> io::Result<Looked> {
        if size > BYTES_MAX {
            return Ok(Looked::Over);
        }
        let is_first = self.0.is_empty();
        let count = usize::try_from(size.div_ceil(PART_BYTES)).unwrap_or_default();
        self.0.resize(count, 0);
        let mut wanted: Vec<Range<u64>> = Vec::new();
        let mut grown = false;
        // Parts behind the one before that are to be read for who comes forward.
        let mut ahead = 0;
        for (at, known) in self.0.iter_mut().enumerate() {
            let from = at as u64 * PART_BYTES;
            let range = from..(from + PART_BYTES).min(size);
            if *known == Parts::WHOLE {
                continue;
            }
            let Cached { pages, unwritten } = cached(range.clone())?;
            if unwritten > 0 {
                return Ok(Looked::Over);
            }
            let before = std::mem::replace(known, u16::try_from(pages).unwrap_or(Parts::WHOLE - 1));
            let is_read = *known > before && !is_first;
            grown |= is_read;
            let is_whole = pages * PAGE_BYTES >= range.end - range.start;
            if is_read && (is_whole || pages >= WAITS_MAX.into()) {
                // Who reads forward has all of what lies before, or the kernel is at it.
                ahead = if is_whole { AHEAD_PARTS } else { ahead };
            } else if ahead == 0 && !is_whole {
                continue;
            } else {
                ahead = ahead.saturating_sub(1);
            }
            *known = Parts::WHOLE;
            if !is_whole {
                match wanted.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ => wanted.push(range),
                }
            }
        }
        Ok(match self.0.iter().all(|known| *known == Parts::WHOLE) {
            _ if grown => Looked::Grown(wanted),
            true => Looked::Over,
            false => Looked::Quiet,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    const PART_PAGES: u64 = PART_BYTES / PAGE_BYTES;
    const DENSE: u64 = WAITS_MAX as u64;
    const SIZE: u64 = 12 * PART_BYTES;

    /// Somebody has read, and these bytes are to be.
    fn grown(range: Range<u64>) -> Looked {
        Looked::Grown(iter::once(range).collect())
    }

    /// A look at a file of which so many pages of each part are in memory.
    fn look(parts: &mut Parts, pages: &[u64]) -> Looked {
        let cached = |range: Range<u64>| {
            let pages = pages[(range.start / PART_BYTES) as usize];
            Ok(Cached { pages, unwritten: 0 })
        };
        parts.look(pages.len() as u64 * PART_BYTES, cached).unwrap()
    }

    #[test]
    fn what_was_there_before_is_no_reading() {
        let (mut parts, pages) = (Parts::default(), [DENSE + 1; 12]);
        assert_eq!(look(&mut parts, &pages), Looked::Quiet);
        assert_eq!(look(&mut parts, &pages), Looked::Quiet);
        assert_eq!(look(&mut Parts::default(), &[PART_PAGES; 12]), Looked::Over);
    }

    #[test]
    fn a_part_that_is_read_here_and_there_is_read_whole_once() {
        let mut parts = Parts::default();
        let mut pages = [0; 12];
        look(&mut parts, &pages);
        (pages[3], pages[7]) = (DENSE - 1, DENSE);
        let wanted = grown(7 * PART_BYTES..8 * PART_BYTES);
        assert_eq!(look(&mut parts, &pages), wanted);
        pages[7] = 20;
        assert_eq!(look(&mut parts, &pages), Looked::Quiet, "it was asked for");
        pages[3] += 1;
        assert_eq!(look(&mut parts, &pages), grown(3 * PART_BYTES..4 * PART_BYTES));
    }

    #[test]
    fn parts_that_lie_together_are_asked_for_together() {
        let mut parts = Parts::default();
        look(&mut parts, &[0; 12]);
        assert_eq!(look(&mut parts, &[DENSE; 12]), grown(0..SIZE));
        assert_eq!(look(&mut parts, &[DENSE; 12]), Looked::Over);
    }

    #[test]
    fn who_reads_forward_is_read_ahead_of() {
        let mut parts = Parts::default();
        let mut pages = [0; 12];
        look(&mut parts, &pages);
        (pages[0], pages[1]) = (PART_PAGES, 3);
        let behind = PART_BYTES..(1 + AHEAD_PARTS as u64) * PART_BYTES;
        assert_eq!(look(&mut parts, &pages), grown(behind));
        pages[9] = PART_PAGES;
        assert_eq!(look(&mut parts, &pages), grown(10 * PART_BYTES..SIZE));
        assert_eq!(look(&mut parts, &pages), Looked::Over, "all is there or on its way");
    }

    #[test]
    fn the_last_part_may_be_short() {
        let mut parts = Parts::default();
        let size = PART_BYTES + 3 * PAGE_BYTES;
        let mut has = [PART_PAGES, 0];
        let cached = |has: [u64; 2]| {
            move |range: Range<u64>| {
                Ok(Cached { pages: has[(range.start / PART_BYTES) as usize], unwritten: 0 })
            }
        };
        assert_eq!(parts.look(size, cached(has)).unwrap(), Looked::Quiet);
        has[1] = 3;
        assert_eq!(parts.look(size, cached(has)).unwrap(), Looked::Grown(vec![]));
        assert_eq!(parts.look(size, cached(has)).unwrap(), Looked::Over);
    }

    #[test]
    fn nothing_is_read_for_who_writes_nor_of_what_is_too_large() {
        let mut parts = Parts::default();
        look(&mut parts, &[0; 12]);
        let written = |_| Ok(Cached { pages: 20, unwritten: 1 });
        assert_eq!(parts.look(SIZE, written).unwrap(), Looked::Over);
        let never = |_| unreachable!("nobody asks");
        assert_eq!(parts.look(BYTES_MAX + 1, never).unwrap(), Looked::Over);
        assert_eq!(Parts::default().look(0, never).unwrap(), Looked::Over);
    }

    #[test]
    fn a_file_that_is_cut_or_grows_is_looked_at_as_it_is() {
        let mut parts = Parts::default();
        look(&mut parts, &[0; 12]);
        assert_eq!(look(&mut parts, &[0; 2]), Looked::Quiet);
        assert_eq!(look(&mut parts, &[0, 0, 0]), Looked::Quiet);
        let wanted = grown(2 * PART_BYTES..3 * PART_BYTES);
        assert_eq!(look(&mut parts, &[0, 0, DENSE]), wanted);
    }

    #[test]
    fn the_kernel_tells_what_it_has() {
        let scratch = crate::testing::Scratch::new("watch");
        let path = scratch.path().join("file");
        std::fs::write(&path, [7; 3 * PAGE_BYTES as usize]).unwrap();
        let file = File::open(&path).unwrap();
        match cached(&file, 0..PART_BYTES) {
            Ok(Cached { pages, unwritten }) => {
                assert_eq!(pages, 3);
                assert!(unwritten <= 3);
                assert_eq!(cached(&file, PAGE_BYTES..2 * PAGE_BYTES).unwrap().pages, 1);
            }
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOSYS)),
        }
        assert!(!is_cold(&file), "it is small");
        let large = File::options().write(true).open(&path).unwrap();
        large.set_len(4 * PART_BYTES).unwrap();
        assert_eq!(is_cold(&file), cached(&file, 0..1).is_ok(), "nobody has read its middle");
    }
}

//! Objects that were given away ([`super::given`]) and are read: what of them is to be read ahead.
//!
//! A kernel that reads a file itself says nothing, but it tells on request how much of a part of the file
//! it has in memory (cachestat(2), Linux 6.5; earlier ones are left alone). So whoever reads a cold one is
//! watched: parts of which more and more is in memory are read whole, as [`super::dense`] does with those
//! that were waited for, and behind parts that follow each other those that come next. How often somebody
//! waited is not known here, only how many pages came, of which one wait may bring as many as a kernel
//! reads ahead: so it takes [`DENSE_BYTES`].
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

use super::dense::PART_BYTES;

/// The first look comes so long after the object was given.
const SOON: Duration = Duration::from_millis(5);
/// And they are never further apart.
const LATE: Duration = Duration::from_secs(1);
/// Looks take this part of the time at most, whatever is watched.
const TIME_PART: u32 = 20;
/// Looks in vain after which nobody reads, it seems: 5 ms to 1 s apart they take some 10 s.
const QUIET_MAX: u32 = 16;
/// Objects that are watched at most; who comes then reads as without this.
const WATCHED_MAX: usize = 64;
/// Larger objects are not watched, 1 GiB: to look takes a call for each part.
const BYTES_MAX: u64 = 1 << 30;
/// So much of a part that came since its watch began has the rest read, 192 KiB: half as much again as a
/// kernel mostly reads ahead.
const DENSE_BYTES: u64 = 192 << 10;
/// Parts that are read ahead of who reads forward.
const AHEAD_PARTS: usize = 8;
/// So much is asked for with one look, 16 MiB: others wait for the thread, and so does who ends it.
const ASK_BYTES_MAX: u64 = 16 << 20;
/// The same number on all machines that have io_uring, but alpha and MIPS; `libc` does not have it of all.
const SYS_CACHESTAT: libc::c_long = 451;

/// What a kernel has of a part of a file, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cached {
    /// In memory.
    pub(super) bytes: u64,
    /// Of those, what is not on the disk yet.
    pub(super) unwritten: u64,
}

fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
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
        0 => Ok(Cached {
            bytes: pages * page_bytes(),
            unwritten: (dirty + writeback) * page_bytes(),
        }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether something of a file is missing in memory, by its middle and its end. Cheap, and has nothing
/// read; says yes too rarely rather than too often.
pub(super) fn is_cold(file: &File) -> bool {
    let size = file.metadata().map_or(0, |about| about.len());
    let is_missing = |at: u64| {
        let page = at / page_bytes() * page_bytes();
        cached(file, page..page + page_bytes()).is_ok_and(|cached| cached.bytes == 0)
    };
    (PART_BYTES..=BYTES_MAX).contains(&size) && (is_missing(size / 2) || is_missing(size - 1))
}

/// All that are watched.
#[derive(Debug, Default)]
pub(super) struct Watched {
    all: Vec<Watch>,
    /// Nobody is looked at before: looks have their part of the time.
    not_before: Option<Instant>,
}

#[derive(Debug)]
struct Watch {
    object: ObjectId,
    parts: Parts,
    /// Looks in vain since somebody has read.
    quiet: u32,
    next: Instant,
}

impl Watched {
    /// An object was given. What is known of one that was before may be of another file, or long past.
    pub(super) fn begin(&mut self, object: ObjectId, now: Instant) {
        self.all.retain(|watch| watch.object != object);
        if self.all.len() < WATCHED_MAX {
            let (parts, next) = (Parts::default(), now + SOON);
            self.all.push(Watch { object, parts, quiet: 0, next });
        }
    }

    /// How long nothing is to be done; `None` if nothing is watched.
    pub(super) fn rest(&self, now: Instant) -> Option<Duration> {
        let next = self.all.iter().map(|watch| watch.next).min()?;
        let next = self.not_before.map_or(next, |not_before| next.max(not_before));
        Some(next.saturating_duration_since(now))
    }

    /// Looks at those that are due. `look` does it for an object: what it found and how long that took,
    /// or nothing if it is not given any more or cannot be looked at. What is to be read, in order.
    pub(super) fn look(
        &mut self,
        now: Instant,
        mut look: impl FnMut(ObjectId, &mut Parts) -> Option<(Looked, Duration)>,
    ) -> Vec<(ObjectId, Range<u64>)> {
        let mut wanted = Vec::new();
        if self.not_before.is_some_and(|not_before| now < not_before) {
            return wanted;
        }
        let mut took = Duration::ZERO;
        self.all.retain_mut(|watch| {
            if watch.next > now {
                return true;
            }
            let Some((looked, time)) = look(watch.object, &mut watch.parts) else { return false };
            took += time;
            match looked {
                Looked::Over => return false,
                Looked::Quiet => watch.quiet += 1,
                Looked::Grown(parts) => {
                    watch.quiet = 0;
                    wanted.extend(parts.into_iter().map(|part| (watch.object, part)));
                }
            }
            watch.next = now + SOON.saturating_mul(1 << watch.quiet.min(16)).min(LATE);
            watch.quiet < QUIET_MAX
        });
        self.not_before = Some(now + took.saturating_mul(TIME_PART));
        wanted
    }
}

/// What a look has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Looked {
    /// There is no more to be done.
    Over,
    /// Nobody has read.
    Quiet,
    /// Somebody has, and this is to be read.
    Grown(Vec<Range<u64>>),
}

/// How much is in memory of each part of a file.
#[derive(Debug, Default)]
pub(super) struct Parts(Vec<Part>);

#[derive(Debug, Clone, Copy, Default)]
struct Part {
    /// When the watch began, and at the last look.
    first: u64,
    last: u64,
    /// All of it is in memory, or was asked for.
    is_whole: bool,
}

impl Parts {
    /// Looks at a file.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn look_at(&mut self, file: &File) -> io::Result<Looked> {
        self.look(file.metadata()?.len(), |range| cached(file, range))
    }

    /// Looks at one of so many bytes, through `cached`.
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
        let known = self.0.len();
        let count = usize::try_from(size.div_ceil(PART_BYTES)).unwrap_or_default();
        self.0.resize(count, Part::default());
        let (mut wanted, mut asked): (Vec<Range<u64>>, u64) = (Vec::new(), 0);
        let mut grown = false;
        // Parts behind the one before that are to be read for who comes forward.
        let (mut ahead, mut before_is_whole) = (0, false);
        for (at, part) in self.0.iter_mut().enumerate() {
            let from = at as u64 * PART_BYTES;
            let range = from..(from + PART_BYTES).min(size);
            let before_was_whole = std::mem::replace(&mut before_is_whole, part.is_whole);
            if part.is_whole {
                continue;
            }
            let Cached { bytes, unwritten } = cached(range.clone())?;
            if unwritten > 0 {
                return Ok(Looked::Over);
            }
            if at >= known {
                (part.first, part.last) = (bytes, bytes);
            }
            let is_read = bytes > part.last;
            grown |= is_read;
            let is_there = bytes >= range.end - range.start;
            let is_dense = is_read && bytes >= part.first + DENSE_BYTES;
            if is_read && is_there && before_was_whole {
                ahead = AHEAD_PARTS;
            } else if !is_there && !is_dense {
                if ahead == 0 {
                    part.last = bytes;
                    continue;
                }
                ahead -= 1;
            }
            if !is_there {
                if asked >= ASK_BYTES_MAX {
                    // With the next look, for which it has grown since the last one.
                    continue;
                }
                asked += range.end - range.start;
                match wanted.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ => wanted.push(range),
                }
            }
            (part.last, part.is_whole, before_is_whole) = (bytes, true, true);
        }
        Ok(match self.0.iter().all(|part| part.is_whole) {
            _ if grown => Looked::Grown(wanted),
            true => Looked::Over,
            false => Looked::Quiet,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use sateen_types::{Fid, Seq};

    use super::*;

    const PAGE: u64 = 4096;
    const SIZE: u64 = 12 * PART_BYTES;

    /// Somebody has read, and these bytes are to be.
    fn grown(range: Range<u64>) -> Looked {
        Looked::Grown(iter::once(range).collect())
    }

    /// A look at a file of which so many bytes of each part are in memory.
    fn look(parts: &mut Parts, bytes: &[u64]) -> Looked {
        let cached = |range: Range<u64>| {
            let bytes = bytes[(range.start / PART_BYTES) as usize];
            Ok(Cached { bytes, unwritten: 0 })
        };
        parts.look(bytes.len() as u64 * PART_BYTES, cached).unwrap()
    }

    #[test]
    fn what_was_there_before_is_no_reading() {
        let (mut parts, mut bytes) = (Parts::default(), [DENSE_BYTES + PAGE; 12]);
        assert_eq!(look(&mut parts, &bytes), Looked::Quiet);
        assert_eq!(look(&mut parts, &bytes), Looked::Quiet);
        bytes[3] += PAGE;
        assert_eq!(look(&mut parts, &bytes), Looked::Grown(vec![]), "one page more is none");
        assert_eq!(look(&mut Parts::default(), &[PART_BYTES; 12]), Looked::Over);
    }

    #[test]
    fn a_part_that_is_read_here_and_there_is_read_whole_once() {
        let mut parts = Parts::default();
        let mut bytes = [0; 12];
        look(&mut parts, &bytes);
        (bytes[3], bytes[7]) = (DENSE_BYTES - PAGE, DENSE_BYTES);
        assert_eq!(look(&mut parts, &bytes), grown(7 * PART_BYTES..8 * PART_BYTES));
        bytes[7] += PAGE;
        assert_eq!(look(&mut parts, &bytes), Looked::Quiet, "it was asked for");
        bytes[3] += PAGE;
        assert_eq!(look(&mut parts, &bytes), grown(3 * PART_BYTES..4 * PART_BYTES));
    }

    #[test]
    fn a_look_asks_for_no_more_than_others_can_wait_for() {
        let mut parts = Parts::default();
        let count = 2 * (ASK_BYTES_MAX / PART_BYTES) as usize + 3;
        look(&mut parts, &vec![0; count]);
        let read = vec![DENSE_BYTES; count];
        let ends = [ASK_BYTES_MAX, 2 * ASK_BYTES_MAX, count as u64 * PART_BYTES];
        let mut from = 0;
        for end in ends {
            assert_eq!(look(&mut parts, &read), grown(from..end));
            from = end;
        }
        assert_eq!(look(&mut parts, &read), Looked::Over);
    }

    #[test]
    fn who_reads_forward_is_read_ahead_of() {
        let mut parts = Parts::default();
        let mut bytes = [0; 12];
        look(&mut parts, &bytes);
        (bytes[0], bytes[1]) = (PART_BYTES, 3 * PAGE);
        assert_eq!(look(&mut parts, &bytes), Looked::Grown(vec![]), "one part is no way forward");
        bytes[1] = PART_BYTES;
        let behind = 2 * PART_BYTES..(2 + AHEAD_PARTS as u64) * PART_BYTES;
        assert_eq!(look(&mut parts, &bytes), grown(behind));
        bytes[10] = PART_BYTES;
        assert_eq!(look(&mut parts, &bytes), grown(11 * PART_BYTES..SIZE));
        assert_eq!(look(&mut parts, &bytes), Looked::Over, "all is there or on its way");
    }

    #[test]
    fn of_who_reads_a_part_here_and_one_there_nothing_is_read_ahead() {
        let mut parts = Parts::default();
        let mut bytes = [0; 12];
        look(&mut parts, &bytes);
        for at in [9, 2, 6, 0] {
            bytes[at] = PART_BYTES;
            assert_eq!(look(&mut parts, &bytes), Looked::Grown(vec![]), "{at}");
        }
    }

    #[test]
    fn the_last_part_may_be_short() {
        let mut parts = Parts::default();
        let size = PART_BYTES + 3 * PAGE - 1;
        let cached = |has: [u64; 2]| {
            move |range: Range<u64>| {
                Ok(Cached { bytes: has[(range.start / PART_BYTES) as usize], unwritten: 0 })
            }
        };
        assert_eq!(parts.look(size, cached([PART_BYTES, 0])).unwrap(), Looked::Quiet);
        let all = [PART_BYTES, 3 * PAGE];
        assert_eq!(parts.look(size, cached(all)).unwrap(), Looked::Grown(vec![]));
        assert_eq!(parts.look(size, cached(all)).unwrap(), Looked::Over);
    }

    #[test]
    fn nothing_is_read_for_who_writes_nor_of_what_is_too_large() {
        let mut parts = Parts::default();
        look(&mut parts, &[0; 12]);
        let written = |_| Ok(Cached { bytes: DENSE_BYTES, unwritten: 1 });
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
        assert_eq!(look(&mut parts, &[0, 0, DENSE_BYTES]), Looked::Quiet, "it was there at once");
        let bytes = [0, 0, 2 * DENSE_BYTES];
        assert_eq!(look(&mut parts, &bytes), grown(2 * PART_BYTES..3 * PART_BYTES));
    }

    #[test]
    fn the_kernel_tells_what_it_has() {
        let scratch = crate::testing::Scratch::new("watch");
        let path = scratch.path().join("file");
        let page = page_bytes();
        std::fs::write(&path, vec![7; 3 * page as usize]).unwrap();
        let file = File::open(&path).unwrap();
        match cached(&file, 0..PART_BYTES) {
            Ok(Cached { bytes, unwritten }) => {
                assert_eq!(bytes, 3 * page);
                assert!(unwritten <= bytes);
                assert_eq!(cached(&file, page..2 * page).unwrap().bytes, page);
            }
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOSYS)),
        }
        assert!(!is_cold(&file), "it is small");
        let large = File::options().write(true).open(&path).unwrap();
        large.set_len(4 * PART_BYTES).unwrap();
        assert_eq!(is_cold(&file), cached(&file, 0..1).is_ok(), "nobody has read its middle");
    }

    fn object(oid: u32) -> ObjectId {
        ObjectId { fid: Fid { seq: Seq(7), oid, ver: 0 }, stripe: 0 }
    }

    const QUICK: Duration = Duration::from_micros(10);

    #[test]
    fn who_does_not_read_is_looked_at_less_and_less_and_then_no_more() {
        let (mut watched, begun) = (Watched::default(), Instant::now());
        assert_eq!(watched.rest(begun), None);
        watched.begin(object(1), begun);
        let (mut now, mut looks, mut pause) = (begun, 0, Duration::ZERO);
        let mut read = Some(3);
        while let Some(rest) = watched.rest(now) {
            assert!(rest >= pause.min(LATE) && rest <= LATE, "{rest:?}");
            now += rest;
            looks += 1;
            let found = if read == Some(looks) { grown(0..7) } else { Looked::Quiet };
            let wanted = watched.look(now, |_, _| Some((found.clone(), QUICK)));
            pause = rest;
            if read == Some(looks) {
                assert_eq!(wanted, [(object(1), 0..7)]);
                assert_eq!(watched.rest(now), Some(SOON), "soon again");
                (read, pause) = (None, Duration::ZERO);
            }
        }
        assert_eq!(looks, 3 + QUIET_MAX);
        assert!(now - begun > Duration::from_secs(5) && now - begun < Duration::from_secs(20));
    }

    #[test]
    fn a_watch_ends_with_what_it_is_about() {
        let (mut watched, now) = (Watched::default(), Instant::now());
        (0..3).for_each(|oid| watched.begin(object(oid), now));
        let later = now + SOON;
        watched.look(later, |which, _| {
            let found = if which == object(1) { Looked::Over } else { Looked::Quiet };
            (which != object(0)).then_some((found, QUICK))
        });
        let left: Vec<ObjectId> = watched.all.iter().map(|watch| watch.object).collect();
        assert_eq!(left, [object(2)]);
    }

    #[test]
    fn one_that_is_given_again_is_known_anew() {
        let (mut watched, now) = (Watched::default(), Instant::now());
        watched.begin(object(1), now);
        watched.all[0].parts.0.push(Part::default());
        watched.begin(object(1), now + SOON);
        assert_eq!(watched.all.len(), 1);
        assert!(watched.all[0].parts.0.is_empty());
        assert_eq!(watched.rest(now), Some(2 * SOON));
    }

    #[test]
    fn no_more_are_watched_than_can_be() {
        let (mut watched, now) = (Watched::default(), Instant::now());
        (0..1000).for_each(|oid| watched.begin(object(oid), now));
        assert_eq!(watched.all.len(), WATCHED_MAX);
    }

    #[test]
    fn looks_take_their_part_of_the_time_all_together() {
        let (mut watched, now) = (Watched::default(), Instant::now());
        (0..10).for_each(|oid| watched.begin(object(oid), now));
        let (now, slow) = (now + SOON, Duration::from_millis(3));
        watched.look(now, |_, _| Some((grown(0..1), slow)));
        assert_eq!(watched.rest(now), Some(10 * slow * TIME_PART));
        watched.begin(object(10), now);
        assert_eq!(watched.rest(now), Some(10 * slow * TIME_PART), "whoever comes");
        let never = |_: ObjectId, _: &mut Parts| unreachable!("not before");
        assert!(watched.look(now + SOON, never).is_empty());
    }
}

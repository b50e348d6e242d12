//! The journal of a target on disk: where group commits become durable.
//!
//! Who calls it: the one thread that runs a target's group commits ([`JournalDevice`]), and
//! whoever starts the target ([`DiskJournal::open`]). What it must never do: put other
//! bytes in the place of any that were acknowledged, or start a target whose log is damaged in its middle.
//!
//! Life of a segment, a file of fixed length in the folder `journal`:
//! 1. *Made*: written full of zeros and synced with its name, ahead of its use, so that
//!    later syncs need not commit any metadata of the file system below.
//! 2. *Begun*: its header is written and synced. It says which segment of the log this is
//!    and what the log's last transno was then.
//! 3. *Filled*: each group commit is one write behind the last frame, on a page of its own,
//!    and one `fdatasync`. A frame never spans segments. Each start of the target begins a
//!    new segment, so that a torn frame stays as it is.
//! 4. *Free*: the index durably holds all of it. The next segment reuses the file; what is
//!    left in it is older than the segment's header says and is not believed.
//!
//! Only one frame is under way at a time. Therefore, at the first place where no next frame
//! stands, either the log ends (a write was cut off, or nothing was written), or something
//! acknowledged is damaged, and then newer frames or segments lie behind it: recovery looks
//! for them, and refuses. What it believes it writes anew and syncs before anything is built
//! upon it.

mod header;
mod scan;
mod shelf;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use sateen_journal::{FRAME_HEADER_BYTES, FRAME_PAYLOAD_MAX};
use sateen_osd::{Flush, JournalDevice};
use sateen_types::Errno;

use header::{Header, HeaderRead};
use shelf::{DirShelf, Shelf};

/// For fuzzers: reads bytes as the first page of a segment. True if they are believed, and then
/// they are what would be written again.
///
/// # Panics
/// If they are believed to be something else.
#[doc(hidden)]
pub fn header_is_believed(page: &[u8]) -> bool {
    let HeaderRead::Header(header) = Header::decode(page) else { return false };
    assert_eq!(Header::decode(&header.encode()), HeaderRead::Header(header));
    true
}

/// Frames begin on pages: the smallest unit that a device or the page cache rewrites whole.
const PAGE: u64 = 4096;
/// Smallest segment that holds a header and the largest frame.
pub const SEGMENT_BYTES_MIN: u64 =
    2 * PAGE + (FRAME_HEADER_BYTES as u64 + FRAME_PAYLOAD_MAX as u64).next_multiple_of(PAGE);
/// Most segments of one journal: far more than checkpoints let come together.
const SEGMENTS_MAX: usize = 4096;

/// Sizes of a journal.
#[derive(Debug, Clone, Copy)]
pub struct JournalOptions {
    /// Length of a segment, at least [`SEGMENT_BYTES_MIN`]. A journal keeps the length it was
    /// made with.
    pub segment_bytes: u64,
    /// Segments that are made at once and kept.
    pub segments_min: usize,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self { segment_bytes: 32 << 20, segments_min: 2 }
    }
}

/// Why a journal was not opened.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The device's.
    #[error("journal: {0}")]
    Io(#[from] io::Error),
    /// The folder holds no journal.
    #[error("the journal is missing: restore the target from a backup")]
    Absent,
    /// A place that was acknowledged cannot be read.
    #[error(
        "the journal is damaged in segment {segment} at byte {offset}: transactions after {last} \
         were acknowledged and cannot be read; restore the target from a backup"
    )]
    Damaged {
        /// Number of the segment's file.
        segment: u64,
        /// Where the next frame should stand.
        offset: u64,
        /// The last transaction that can be read.
        last: u64,
    },
    /// Segments are missing.
    #[error(
        "the journal has a gap: transaction {expected} is missing before {found}: restore the \
         target from a backup"
    )]
    Gap {
        /// The transno that should have followed.
        expected: u64,
        /// The first transno behind the gap.
        found: u64,
    },
    /// A segment belongs to another journal.
    #[error("segment {0} belongs to another journal: move it out of the target")]
    Foreign(u64),
    /// Written by a newer build.
    #[error("the journal has format {0}: use a newer sateen")]
    Newer(u32),
    /// Two segments claim the same place, or there are too many.
    #[error("the journal's segments contradict one another at segment {0}")]
    Contradiction(u64),
}

/// Bytes of the pages that a frame takes.
fn pages(frame: &[u8]) -> u64 {
    (frame.len() as u64).next_multiple_of(PAGE)
}

/// A segment in use.
#[derive(Debug)]
struct Used {
    file: u64,
    /// Transno of its last frame, or of the log's last before it.
    last: u64,
}

/// The open journal of one target. See the module.
#[derive(Debug)]
pub struct DiskJournal {
    inner: Journal<DirShelf>,
}

impl DiskJournal {
    /// Makes the journal of a new target in `folder`, which is created.
    ///
    /// # Errors
    /// The device's; the folder must not hold a journal.
    pub fn create(folder: &Path, epoch: u64, options: JournalOptions) -> Result<(), JournalError> {
        if options.segment_bytes < SEGMENT_BYTES_MIN {
            return Err(io::Error::from_raw_os_error(Errno::EINVAL.raw()).into());
        }
        Journal::create(&DirShelf::create(folder)?, epoch, options)
    }

    /// Opens a journal: gives the payload of every frame that the index, checkpointed at
    /// `checkpointed`, may lack to `replay`, in order.
    ///
    /// # Errors
    /// See [`JournalError`]; what `replay` returns ends it, too. The target must not start.
    pub fn open<E: From<JournalError>>(
        folder: &Path,
        epoch: u64,
        checkpointed: u64,
        options: JournalOptions,
        replay: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let shelf = DirShelf::open(folder).map_err(JournalError::Io)?;
        let inner = Journal::open(shelf, epoch, checkpointed, options, true, replay)?;
        Ok(Self { inner })
    }

    /// Bytes of the segments that are in use. A start begins a new one, however little is in the
    /// one before.
    pub fn bytes_used(&self) -> u64 {
        self.inner.used.len() as u64 * self.inner.options.segment_bytes
    }

    /// Reads a journal at rest as [`DiskJournal::open`] does, and changes nothing.
    ///
    /// # Errors
    /// As [`DiskJournal::open`].
    pub fn read<E: From<JournalError>>(
        folder: &Path,
        epoch: u64,
        checkpointed: u64,
        mut replay: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let shelf = DirShelf::open(folder).map_err(JournalError::Io)?;
        Journal::recover(&shelf, epoch, checkpointed, &mut replay)?;
        Ok(())
    }
}

impl JournalDevice for DiskJournal {
    fn write(&mut self, flush: &Flush) -> io::Result<()> {
        self.inner.write(flush.first, flush.upto, &flush.frame)
    }

    fn trim(&mut self, upto: u64) -> io::Result<()> {
        self.inner.trim(upto);
        Ok(())
    }
}

/// The journal over anything that keeps files; tests let that forget.
#[derive(Debug)]
struct Journal<S> {
    shelf: Arc<S>,
    epoch: u64,
    options: JournalOptions,
    /// Oldest first; the last one is written to.
    used: VecDeque<Used>,
    free: Vec<u64>,
    /// A spare that is being made by another thread.
    making: Option<JoinHandle<io::Result<u64>>>,
    in_background: bool,
    next_file: u64,
    next_seq: u64,
    /// Where the next frame goes in the current segment.
    at: u64,
    /// Transno of the last durable frame.
    last: u64,
    poisoned: bool,
}

/// What of a segment may stand in the page cache alone, although that takes it for written:
/// the bytes of the last write.
#[derive(Debug)]
struct Doubtful {
    file: u64,
    pages: Vec<(u64, Vec<u8>)>,
}

/// A segment as recovery found it.
struct Found {
    file: u64,
    header: Header,
}

/// All files of a journal.
#[derive(Default)]
struct Survey {
    /// Segments of the log, in order.
    found: Vec<Found>,
    /// Files that were never used, as it seems: their first page is empty.
    blank: Vec<u64>,
    /// Files whose headers make no sense.
    unreadable: Vec<u64>,
}

/// A journal as recovery leaves it.
struct Recovered {
    used: VecDeque<Used>,
    last: u64,
    doubtful: Option<Doubtful>,
    free: Vec<u64>,
    next_file: u64,
    next_seq: u64,
    segment_bytes: u64,
}

impl<S: Shelf> Journal<S> {
    fn create(shelf: &S, epoch: u64, options: JournalOptions) -> Result<(), JournalError> {
        if !shelf.list()?.is_empty() {
            return Err(io::Error::from_raw_os_error(Errno::EEXIST.raw()).into());
        }
        for file in 0..options.segments_min.max(1) as u64 {
            shelf.create(file, options.segment_bytes)?;
        }
        let header = Header { epoch, seq: 1, before: 0, bytes: options.segment_bytes };
        shelf.write(0, 0, &header.encode())?;
        shelf.sync(0)?;
        Ok(())
    }

    fn open<E: From<JournalError>>(
        shelf: S,
        epoch: u64,
        checkpointed: u64,
        mut options: JournalOptions,
        in_background: bool,
        mut replay: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let Recovered { used, last, doubtful, free, next_file, next_seq, segment_bytes } =
            Self::recover(&shelf, epoch, checkpointed, &mut replay)?;
        options.segment_bytes = segment_bytes;
        let mut journal = Self {
            shelf: Arc::new(shelf),
            epoch,
            options,
            used,
            free: Vec::new(),
            making: None,
            in_background,
            next_file,
            next_seq,
            at: options.segment_bytes,
            last: last.max(checkpointed),
            poisoned: false,
        };
        journal.keep(free).map_err(JournalError::Io)?;
        journal.make_durable(doubtful).map_err(JournalError::Io)?;
        Ok(journal)
    }

    /// Makes what was found as durable as it will be taken for. A process that was killed
    /// between a write and its sync leaves a frame, or a spare and its name, that only the
    /// page cache has; the next segment's header would vouch for it.
    ///
    /// After a sync that failed the kernel keeps what was written, takes it for clean, and lets
    /// the next sync succeed. So what the last process wrote last is written once more, whatever
    /// became of it: that is the last frame or, if there is none behind it, the last header, for
    /// a journal whose write failed writes nothing any more. On the disk the same bytes come to
    /// lie where they lie already.
    fn make_durable(&self, doubtful: Option<Doubtful>) -> io::Result<()> {
        if let Some(Doubtful { file, pages }) = doubtful {
            for (at, bytes) in pages {
                self.shelf.write(file, at, &bytes)?;
            }
        }
        for file in self.used.iter().map(|used| &used.file).chain(&self.free) {
            self.shelf.sync(*file)?;
        }
        self.shelf.sync_names()
    }

    /// Reads what the index may lack. Changes nothing.
    fn recover<E: From<JournalError>>(
        shelf: &S,
        epoch: u64,
        checkpointed: u64,
        replay: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<Recovered, E> {
        let Survey { found, blank, unreadable } = Self::survey(shelf, epoch)?;
        let next_file = blank.iter().chain(&unreadable).chain(found.iter().map(|f| &f.file)).max();
        let next_file = next_file.map_or(0, |file| file + 1);
        let segment_bytes = found.last().ok_or(JournalError::Absent)?.header.bytes;
        let next_seq = found.last().map_or(1, |found| found.header.seq + 1);

        // The index holds what lies before the last segment that begins within it.
        let first = found.iter().rposition(|found| found.header.before <= checkpointed);
        let Some(first) = first else {
            let begins = found.first().map_or(0, |found| found.header.before);
            return Err(JournalError::Gap { expected: checkpointed + 1, found: begins + 1 }.into());
        };
        let (old, needed) = found.split_at(first);
        let mut free: Vec<u64> = old.iter().map(|found| found.file).collect();

        let (used, last, doubtful) = Self::replay(shelf, epoch, needed, replay)?;
        for (file, may_be_cut_off) in blank
            .iter()
            .map(|file| (*file, true))
            .chain(unreadable.iter().map(|file| (*file, false)))
        {
            // A header that was being replaced when the power went; or one that was damaged, or
            // that the disk lost altogether, and then the segment holds what the log lacks, or
            // is no longer whole. A spare that was being made is not, either.
            let len = shelf.len(file).map_err(JournalError::Io)?;
            let is_whole = len == segment_bytes || may_be_cut_off && len < segment_bytes;
            if !is_whole
                || scan::holds_newer_file(shelf, (file, len), epoch, last)
                    .map_err(JournalError::Io)?
            {
                return Err(JournalError::Damaged { segment: file, offset: 0, last }.into());
            }
            free.push(file);
        }
        Ok(Recovered { used, last, doubtful, free, next_file, next_seq, segment_bytes })
    }

    /// Reads all headers.
    fn survey(shelf: &S, epoch: u64) -> Result<Survey, JournalError> {
        let Survey { mut found, mut blank, mut unreadable } = Survey::default();
        let files = shelf.list()?;
        if files.len() > SEGMENTS_MAX {
            return Err(JournalError::Contradiction(SEGMENTS_MAX as u64));
        }
        for file in files {
            let mut page = vec![0; PAGE as usize];
            shelf.read(file, 0, &mut page)?;
            match Header::decode(&page) {
                HeaderRead::Header(header) if header.epoch != epoch => {
                    return Err(JournalError::Foreign(file));
                }
                HeaderRead::Header(header) => found.push(Found { file, header }),
                HeaderRead::Newer(version) => return Err(JournalError::Newer(version)),
                HeaderRead::Zeros => blank.push(file),
                HeaderRead::Unreadable => unreadable.push(file),
            }
        }
        found.sort_by_key(|found| found.header.seq);
        for pair in found.windows(2) {
            if let [one, two] = pair
                && one.header.seq == two.header.seq
            {
                return Err(JournalError::Contradiction(two.file));
            }
        }
        Ok(Survey { found, blank, unreadable })
    }

    /// Reads the frames of the needed segments, which must follow each other without a gap.
    fn replay<E: From<JournalError>>(
        shelf: &S,
        epoch: u64,
        needed: &[Found],
        replay: &mut impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(VecDeque<Used>, u64, Option<Doubtful>), E> {
        let mut used = VecDeque::new();
        let mut doubtful = None;
        let mut last = needed.first().map_or(0, |found| found.header.before);
        let mut bytes = Vec::new();
        let mut seq = None;
        for (found, next) in needed.iter().zip((1..).map(|next| needed.get(next))) {
            let Header { before, bytes: len, .. } = found.header;
            if before != last || seq.is_some_and(|seq| found.header.seq != seq + 1) {
                return Err(JournalError::Gap { expected: last + 1, found: before + 1 }.into());
            }
            seq = Some(found.header.seq);
            bytes.resize(usize::try_from(len).unwrap_or(usize::MAX), 0);
            let read = shelf.read(found.file, 0, &mut bytes).map_err(JournalError::Io)?;
            let cut_off = (read as u64) < len;
            bytes.truncate(read);
            let (last_frame, end) = scan::frames(epoch, &bytes, &mut last, replay)?;
            let newer_segment = next.is_some_and(|next| next.header.before > last);
            if cut_off || newer_segment || scan::holds_newer(epoch, &bytes, end, last) {
                let segment = found.file;
                return Err(JournalError::Damaged { segment, offset: end as u64, last }.into());
            }
            used.push_back(Used { file: found.file, last });
            if next.is_none() {
                let whole = |from: usize, to| bytes.get(from..to).unwrap_or_default().to_vec();
                let header = (0, whole(0, PAGE as usize));
                let frame = (last_frame as u64, whole(last_frame, end));
                doubtful = Some(Doubtful { file: found.file, pages: vec![header, frame] });
            }
        }
        Ok((used, last, doubtful))
    }

    /// Takes over free files of the right length, up to the number to be kept and always one,
    /// for the disk may have no room for another; removes the others, which are left from a time
    /// of many segments or were not made completely.
    fn keep(&mut self, files: Vec<u64>) -> io::Result<()> {
        for file in files {
            let whole = self.shelf.len(file)? == self.options.segment_bytes;
            let too_few = self.used.len() + self.free.len() < self.options.segments_min.max(2);
            if whole && (too_few || self.free.is_empty()) {
                self.free.push(file);
            } else {
                self.shelf.remove(file)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, first: u64, upto: u64, frame: &[u8]) -> io::Result<()> {
        if self.poisoned {
            return Err(io::Error::from_raw_os_error(Errno::EIO.raw()));
        }
        let fits = PAGE + pages(frame) <= self.options.segment_bytes;
        if first != self.last + 1 || upto < first || !fits {
            return Err(io::Error::from_raw_os_error(Errno::EINVAL.raw()));
        }
        let result = self.append(frame);
        match &result {
            Ok(()) => {
                self.last = upto;
                if let Some(current) = self.used.back_mut() {
                    current.last = upto;
                }
            }
            Err(_) => self.poisoned = true,
        }
        result
    }

    fn append(&mut self, frame: &[u8]) -> io::Result<()> {
        if self.at + pages(frame) > self.options.segment_bytes {
            self.begin_segment()?;
        }
        let Some(current) = self.used.back() else {
            return Err(io::Error::from_raw_os_error(Errno::EIO.raw()));
        };
        self.shelf.write(current.file, self.at, frame)?;
        self.shelf.sync(current.file)?;
        self.at += pages(frame);
        Ok(())
    }

    fn begin_segment(&mut self) -> io::Result<()> {
        let file = match (self.free.pop(), self.making.take()) {
            (Some(file), making) => {
                self.making = making;
                file
            }
            (None, Some(making)) => match making.join() {
                Ok(Ok(file)) => file,
                // There may be room by now; if not, the error is this one's.
                _ => self.make()?,
            },
            (None, None) => self.make()?,
        };
        let header = Header {
            epoch: self.epoch,
            seq: self.next_seq,
            before: self.last,
            bytes: self.options.segment_bytes,
        };
        // Synced before the first frame follows, so that an unreadable header says that no
        // frame behind it was acknowledged.
        self.shelf.write(file, 0, &header.encode())?;
        self.shelf.sync(file)?;
        self.next_seq += 1;
        self.at = PAGE;
        self.used.push_back(Used { file, last: self.last });
        if self.free.is_empty() && self.making.is_none() {
            self.make_ahead();
        }
        Ok(())
    }

    fn next_name(&mut self) -> u64 {
        let file = self.next_file;
        self.next_file += 1;
        file
    }

    fn make(&mut self) -> io::Result<u64> {
        let file = self.next_name();
        self.shelf.create(file, self.options.segment_bytes)?;
        Ok(file)
    }

    /// Makes a spare. If that fails, whoever needs it tries again, and then it matters.
    fn make_ahead(&mut self) {
        if !self.in_background {
            let made = self.make();
            self.free.extend(made);
            return;
        }
        let (shelf, file, len) = (self.shelf.clone(), self.next_name(), self.options.segment_bytes);
        let make = move || shelf.create(file, len).map(|()| file);
        self.making = std::thread::Builder::new().name("journal-spare".into()).spawn(make).ok();
    }

    fn trim(&mut self, upto: u64) {
        while self.used.len() > 1
            && let Some(oldest) = self.used.front()
            && oldest.last <= upto
        {
            self.free.push(oldest.file);
            self.used.pop_front();
        }
    }
}

impl<S> Drop for Journal<S> {
    fn drop(&mut self) {
        if let Some(making) = self.making.take()
            && !matches!(making.join(), Ok(Ok(_)))
        {
            tracing::debug!("the journal's next segment was not made");
        }
    }
}

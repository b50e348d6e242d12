//! Files that the kernel reads and writes itself (decision 0007): what an inode is as long as it has
//! been given away, and when that begins and ends.
//!
//! The file has one object, which lies with an OST of this process. From the first open that is *given*
//! until the last close
//! 1. **all opens are given or asked beside**: [`Client::way_of`] says which, before the kernel hears
//!    that an open has succeeded. It begins with an open that finds no other: opens that are under way,
//!    or whose close is, count as others, because the kernel may have them still. An open that comes
//!    meanwhile waits until it is decided.
//! 2. **the object is the truth** about size, space and times: the kernel changes it without a word, so
//!    that nothing is known of them from one moment to the next, and nobody may keep them. When it
//!    begins the object is made as long as the file; whatever makes the file longer makes the object so.
//! 3. **it counts as written**: each sync syncs the object, whatever is known.
//! 4. **who may write has a session** at the MDT that is durable before the kernel may write. So a
//!    crash leaves a size that is known to be stale, and whoever asks next finds it in the object. Who
//!    closes a file that he could write tells what the object says; as long as that cannot be found out
//!    the session does not end, and it is asked again.
//!
//! It ends when nobody has it open any more, closes it, or is about to learn that an open has failed, and
//! not before all that the kernel wrote is told: a report of it has arrived. Else what is answered at
//! that moment would have the size from before, and be believed. An open that comes meanwhile waits.
//! Opens that were lost with an eviction tell in the same way, only not with their close.
//!
//! An object grows with its file, and not before what made the file longer is durable at the MDT:
//! who only reads has no session, and a crash that took that back would leave an object that reaches
//! behind the end.
//!
//! What was told is `told`: times and sizes of the object that are the MDT's as well, because a report
//! with them has arrived, or the MDT answered them. Where the object says something else it is news. So
//! nothing that was only seen is ever taken for told: it may be that of a write in between.
//!
//! A mapping outlives its open. As long as the object is mapped after the last close the file stays given,
//! without an open at the MDT: a store makes no file longer. A task asks, and tells of it in the end. So
//! before the last look it is asked whether a mapping is left, and nothing is told for good before that.
//!
//! Programs of a run that was killed go on with what it has given them. Such files are *left open*: they
//! are given whoever opens them, and by whoever starts, until nobody has them any more.
//!
//! The last close drops the kernel's pages: those that it has read ahead for nobody are older than what
//! was written past them.

mod ending;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use sateen_types::{Attr, Errno, Fid, FileKind, Layout, ObjectId, Result, Timespec};
use sateen_wire::{Cred, Ibits, ObjectAttr, SetAttr, SizeReport};

use crate::atime::AtimePolicy;
use crate::client::Client;
use crate::ended::EndedWell;
use crate::inode::{Inode, InodeState, Unsynced};
use crate::llite::{Cutting, File, OpenHow};
use crate::locks::Access;
use crate::loss::Asker;
use crate::patience::{self, to_the_end};
use crate::port::KernelInval;
use crate::stats::Verb;
use crate::sync::{lock, until};

/// Nothing is given away.
const NOTHING: u64 = u64::MAX;

/// How an open is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// As ever: reads and writes are asked for.
    Ordinary,
    /// The kernel has the object.
    Given,
    /// The kernel has the object, and reads and writes of this open are asked for.
    Beside,
}

/// Whether anything is given away, and from which size on.
#[derive(Debug)]
pub(crate) struct Passthrough {
    now: AtomicU64,
    /// What it is when it is switched on.
    on: AtomicU64,
    /// Files that programs of an earlier run have open or mapped still.
    left: Mutex<BTreeSet<Fid>>,
    /// Whether there are any, and whether there ever were.
    has_left: AtomicBool,
    had_left: AtomicBool,
}

impl Default for Passthrough {
    fn default() -> Passthrough {
        Passthrough {
            now: AtomicU64::new(NOTHING),
            on: AtomicU64::new(NOTHING),
            left: Mutex::default(),
            has_left: AtomicBool::new(false),
            had_left: AtomicBool::new(false),
        }
    }
}

impl Passthrough {
    /// Whether files are given away at all: their OSTs are of this process, and go by its clock.
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed) != NOTHING || self.had_left.load(Ordering::Relaxed)
    }

    /// Whether a program of an earlier run may have it still.
    fn is_left(&self, fid: Fid) -> bool {
        self.has_left.load(Ordering::SeqCst) && lock(&self.left).contains(&fid)
    }

    /// Nobody has it any more but by opens of this run.
    fn let_go(&self, fid: Fid) {
        if self.has_left.load(Ordering::SeqCst) {
            let mut left = lock(&self.left);
            left.remove(&fid);
            self.has_left.store(!left.is_empty(), Ordering::SeqCst);
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It is being made ready: it is an inode like others still.
    Begins,
    /// The kernel has it.
    On,
    /// Nobody has it open any more, and the rest is being told.
    Ends,
}

/// An inode that is given away, or about to be.
#[derive(Debug)]
pub(crate) struct GivenAway {
    phase: Phase,
    object: ObjectId,
    layout_gen: u32,
    /// Where it lies; with the run of the OST, for syncs.
    at: Unsynced,
    /// What was found when it was last looked at.
    seen: Option<ObjectAttr>,
    /// When it was read last by who is asked beside, if that sets the atime. Of such reads the object
    /// does not know.
    read_at: Option<Timespec>,
    /// What the MDT knows as well of the object.
    told: Option<ObjectAttr>,
    /// The mtime of the last report that has arrived; and whether the MDT may have lost that.
    reported: Option<Timespec>,
    is_doubtful: bool,
    /// What the MDT knows once the report that is on its way has arrived.
    telling: Option<Telling>,
    /// Opens that are being closed.
    closing: u32,
    /// How many opens the kernel was answered so far, and of how many of these it is told what it did
    /// by them.
    answered: u32,
    told_of: u32,
    /// By how many of these nobody has it mapped, who could still store into it.
    unmapped_of: u32,
    /// Somebody asks whether it is mapped still.
    watched: bool,
}

/// A report that is on its way.
#[derive(Debug, Clone, Copy)]
struct Telling {
    object: ObjectAttr,
    /// All of them, if nobody had it open any more who was not closing it when the object was looked at.
    told_of: Option<u32>,
}

impl GivenAway {
    fn begins(fid: Fid) -> GivenAway {
        GivenAway {
            phase: Phase::Begins,
            object: ObjectId { fid, stripe: 0 },
            layout_gen: 0,
            at: Unsynced { ost: 0, boot_epoch: 0 },
            seen: None,
            read_at: None,
            told: None,
            reported: None,
            is_doubtful: false,
            telling: None,
            closing: 0,
            answered: 0,
            told_of: 0,
            unmapped_of: 0,
            watched: false,
        }
    }

    /// Of so many opens all is told.
    fn is_told_of(&mut self, told_of: Option<u32>) {
        self.told_of = self.told_of.max(told_of.unwrap_or_default());
    }
}

impl InodeState {
    fn away(&self) -> Option<&GivenAway> {
        self.given.as_deref().filter(|given| given.phase != Phase::Begins)
    }

    /// Whether the kernel has it.
    pub(crate) fn is_given(&self) -> bool {
        self.away().is_some()
    }

    /// Whether it can begin with the open that there is, if files are given from this size on. Small ones
    /// are not, whoever opens them: to look at the object, and to wait until the session of who writes is
    /// durable, costs more than is gained with a few requests less. Nor is one without an object.
    fn may_begin(&self, from: u64) -> bool {
        let is_large = |attr: Attr| {
            attr.kind() == FileKind::Regular && attr.maybe_objects && attr.size >= from
        };
        let is_alone = self.opens == 1 && self.setting == 0 && self.group.is_none();
        is_alone && self.attr.is_some_and(is_large)
    }

    /// The object, if it may be changed at any moment.
    pub(crate) fn given_object(&self) -> Option<(u32, Unsynced)> {
        self.away().map(|given| (given.object.stripe, given.at))
    }

    /// The same, with the layout's generation.
    fn given_at(&self) -> Option<(u32, ObjectId, u32)> {
        self.away().map(|given| (given.at.ost, given.object, given.layout_gen))
    }

    /// A report has arrived, or has not: then what it said is news as before.
    pub(crate) fn reported_given(&mut self, arrived: bool) {
        let Some(rare) = self.rare_if_any() else { return };
        let Some(given) = &mut rare.given else { return };
        let Some(telling) = given.telling.take().filter(|_| arrived) else { return };
        if given.told.is_none_or(|told| told.mtime != telling.object.mtime) {
            given.reported = Some(telling.object.mtime);
        }
        given.told = Some(telling.object);
        given.is_told_of(telling.told_of);
        // The attributes that are kept are those from before.
        self.meta_known = false;
    }

    /// The MDT has answered with these: those of them that were changed are the object's, too.
    pub(crate) fn answered_given(&mut self, attr: &Attr, (size, atime, mtime): (bool, bool, bool)) {
        let Some(rare) = self.rare_if_any() else { return };
        let Some(given) = &mut rare.given else { return };
        let Some(told) = &mut given.told else { return };
        if size {
            told.size = attr.size;
        }
        if atime {
            told.atime = attr.atime;
            given.read_at = None;
        }
        if mtime {
            told.mtime = attr.mtime;
        }
    }

    /// Its object was looked at, in this run of its OST. What another has lost of the kernel's writes
    /// the next sync tells, once.
    fn saw_object(
        &mut self,
        mut now: ObjectAttr,
        boot_epoch: u64,
        ended: &EndedWell,
    ) -> ObjectAttr {
        let rare = self.rare_if_any().and_then(|rare| rare.given.as_mut());
        let Some(given) = rare.filter(|given| given.object == now.object) else { return now };
        now.atime = now.atime.max(given.read_at.unwrap_or(now.atime));
        given.seen = Some(now);
        if given.phase != Phase::Begins && boot_epoch > given.at.boot_epoch {
            given.at.boot_epoch = boot_epoch;
            let at = given.at;
            self.changed_object(now.object.stripe, at, ended);
        }
        now
    }

    /// It was read by who is asked beside, when it was as it was just seen.
    pub(crate) fn read_given(&mut self, policy: AtimePolicy, now: Timespec) {
        let Some(attr) = self.attr else { return };
        let Some(given) = self.rare_if_any().and_then(|rare| rare.given.as_mut()) else { return };
        let seen = given.seen.map(|seen| shown(attr, &seen, given.told.as_ref()));
        if given.phase != Phase::Begins && seen.is_some_and(|seen| policy.sets(&seen, now)) {
            given.read_at = Some(now);
        }
    }

    /// What its object is compared with, which must be as old as the attributes that it is added to.
    fn basis(&self) -> Option<Basis> {
        let given = self.away()?;
        let at = (given.at.ost, given.object);
        Some(Basis { at, told: given.told })
    }

    /// Its size was set after it was written at this time.
    fn cut_given(&mut self, mtime: Timespec) {
        let Some(given) = self.rare_if_any().and_then(|rare| rare.given.as_mut()) else { return };
        if let Some(told) = &mut given.told {
            told.mtime = mtime;
        }
    }

    /// The MDT has given this client up, and if it was restarted it may not know any more what it was told
    /// last: that is not told again by itself.
    pub(crate) fn forgotten_given(&mut self) {
        if let Some(rare) = self.rare_if_any()
            && let Some(given) = &mut rare.given
        {
            (given.telling, given.told_of) = (None, 0);
            given.is_doubtful = given.reported.is_some();
        }
    }

    fn is_given_doubtful(&self) -> bool {
        self.away().is_some_and(|given| given.is_doubtful)
    }

    /// What the MDT says since then: if it has not heard the last report, all is news.
    fn doubted_given(&mut self, attr: &Attr, stamp: u64) {
        self.learn(*attr, stamp);
        let Some(given) = self.rare_if_any().and_then(|rare| rare.given.as_mut()) else { return };
        // Whoever tells an mtime sets the ctime.
        if given.is_doubtful && given.reported.is_some_and(|mtime| attr.ctime < mtime) {
            given.told = None;
        }
        given.is_doubtful = false;
    }

    /// An open is being closed. If all who have it open are, how many were answered so far.
    fn closes(&mut self) -> Option<u32> {
        let opens = self.opens;
        let given = self.rare_if_any().and_then(|rare| rare.given.as_mut())?;
        given.closing += 1;
        (opens == given.closing).then_some(given.answered)
    }

    /// How many opens were answered, if all of these are closed or being closed, and nobody has it mapped
    /// by them: what a look finds from now on is all that the kernel did by them.
    fn all_closed(&self) -> Option<u32> {
        let given = self.away()?;
        let closed = given.phase == Phase::Ends || given.closing == self.opens;
        (closed && given.unmapped_of == given.answered).then_some(given.answered)
    }

    /// If nobody has it open any more or closes it, it ends now.
    fn begins_to_end(&mut self) -> bool {
        let is_left = self.opens == 0;
        let Some(rare) = self.rare_if_any() else { return false };
        let given = rare.given.as_mut().filter(|given| given.phase == Phase::On && is_left);
        given.map(|given| given.phase = Phase::Ends).is_some()
    }

    /// Whether the MDT knows all that the kernel did.
    fn is_all_told(&self) -> bool {
        self.away().is_none_or(|given| given.told_of == given.answered)
    }

    /// Whether it is to be asked still whether it is mapped: not if somebody has it open again.
    fn is_watched(&mut self) -> bool {
        let is_open = self.opens > 0;
        let Some(given) = self.rare_if_any().and_then(|rare| rare.given.as_mut()) else {
            return false;
        };
        given.watched &= !is_open;
        given.watched
    }

    /// One of those who close it has closed it.
    fn has_closed(&mut self) {
        if let Some(rare) = self.rare_if_any()
            && let Some(given) = &mut rare.given
        {
            given.closing = given.closing.saturating_sub(1);
        }
    }
}

/// What a file is whose object has been given away.
fn shown(attr: Attr, object: &ObjectAttr, told: Option<&ObjectAttr>) -> Attr {
    let mut attr = Attr { size: object.size, blocks: object.blocks, ..attr };
    let is_news =
        |time: fn(&ObjectAttr) -> Timespec| told.is_none_or(|told| time(told) != time(object));
    if is_news(|object| object.mtime) {
        attr.mtime = object.mtime;
        // By itself it is that of a change which the MDT knows of: it has its own ctime then.
        attr.ctime = attr.ctime.max(object.mtime).max(object.ctime);
    }
    if is_news(|object| object.atime) {
        attr.atime = attr.atime.max(object.atime);
    }
    attr
}

/// What the MDT is to be told of an object, if that is news: what was written, or only read. Neither its
/// ctime nor its blocks are by themselves, because whoever is told of an mtime takes the file for written.
fn news(attr: Attr, now: &ObjectAttr, told: Option<&ObjectAttr>) -> Option<SizeReport> {
    let written = told.is_none_or(|told| (told.size, told.mtime) != (now.size, now.mtime));
    let shown = shown(attr, now, told);
    // The MDT keeps the later one.
    let read = told.is_none_or(|told| told.atime != now.atime) && now.atime >= shown.atime;
    let atime = read.then_some(shown.atime);
    if written {
        let mtime = Some(shown.mtime);
        return Some(SizeReport { size: now.size, blocks: now.blocks, mtime, atime });
    }
    atime.map(|_| SizeReport { size: 0, blocks: 0, mtime: None, atime })
}

/// The one object that a layout has.
fn only_object(layout: &Layout) -> Option<(u32, u32)> {
    let [component] = &layout.components[..] else { return None };
    let [_] = &component.osts[..] else { return None };
    layout.objects().next()
}

/// It is being made ready; it stays as it was on drop.
struct Beginning<'a>(&'a Inode);

impl Drop for Beginning<'_> {
    fn drop(&mut self) {
        self.0.update(|state| {
            let begins = |given: &GivenAway| given.phase == Phase::Begins;
            if let Some(rare) = state.rare_if_any()
                && rare.given.as_deref().is_some_and(begins)
            {
                rare.given = None;
            }
        });
    }
}

/// The right to make a report; nobody else makes one meanwhile.
pub(crate) struct Reporting<'a>(&'a Inode);

impl Drop for Reporting<'_> {
    fn drop(&mut self) {
        self.0.update(|state| state.reporting = false);
    }
}

/// See [`Client::setting`].
pub(crate) struct Setting<'a>(&'a Inode);

impl Drop for Setting<'_> {
    fn drop(&mut self) {
        self.0.update(|state| state.setting -= 1);
    }
}

/// Where the object of a given inode lies, and what of it the MDT knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Basis {
    at: (u32, ObjectId),
    told: Option<ObjectAttr>,
}

/// What an open finds.
enum Found {
    Away,
    Begins,
    Nothing,
}

impl Client {
    /// Files that are as large as this are given away from now on; or no more are.
    pub fn set_passthrough(&self, bytes_min: Option<u64>) {
        let from = bytes_min.map_or(NOTHING, |bytes| bytes.min(NOTHING - 1));
        self.passthrough.on.store(from, Ordering::Relaxed);
        self.passthrough.now.store(from, Ordering::Relaxed);
    }

    /// From how many bytes on files are given away, if that is switched on; `None` if there is nothing
    /// to give away.
    pub fn passthrough_min(&self) -> Option<u64> {
        Some(self.passthrough.on.load(Ordering::Relaxed)).filter(|from| *from != NOTHING)
    }

    /// Sets that. What is given stays so until it is closed.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if there is nothing to give away.
    pub fn set_passthrough_min(&self, bytes: u64) -> Result<()> {
        self.passthrough_min().ok_or(Errno::EOPNOTSUPP)?;
        let gives = self.gives_files();
        self.set_passthrough(Some(bytes));
        self.switch_passthrough(gives)
    }

    /// Programs of an earlier run, which did not end well, have these files open or mapped still, and read
    /// and write their objects without a word: so they are given, whoever opens them, or not opened at
    /// all. To be called before anybody opens anything.
    pub fn left_open(&self, files: impl IntoIterator<Item = Fid>) {
        let mut left = lock(&self.passthrough.left);
        left.extend(files);
        self.passthrough.has_left.store(!left.is_empty(), Ordering::SeqCst);
        self.passthrough.had_left.fetch_or(!left.is_empty(), Ordering::Relaxed);
    }

    /// How many files programs of an earlier run may have still.
    pub fn left_count(&self) -> usize {
        lock(&self.passthrough.left).len()
    }

    /// Has a file given that a program of an earlier run may have: it stays so until that has let go of it,
    /// and what it wrote is told then.
    ///
    /// # Errors
    /// As opens have them; `EBUSY` if it cannot be given.
    pub async fn take_over_left(self: &Arc<Client>, fid: Fid) -> Result<()> {
        let how = OpenHow { read: true, ..OpenHow::default() };
        let opened = match self.open(fid, how, Cred::default()).await {
            Ok(opened) => opened,
            Err(errno) => {
                if matches!(errno, Errno::ENOENT | Errno::ESTALE) {
                    // It has no name any more, and went with the run that had it open.
                    self.passthrough.let_go(fid);
                }
                return Err(errno);
            }
        };
        let way = self.way_of(opened.handle, false).await;
        let closed = self.close(opened.handle).await;
        way.and(closed)
    }

    /// Whether files are given away.
    pub fn gives_files(&self) -> bool {
        self.passthrough.now.load(Ordering::Relaxed) != NOTHING
    }

    /// Has no more files given away, or again those that [`Client::set_passthrough`] said. What is given
    /// stays so until it is closed.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if there is nothing to give away.
    pub fn switch_passthrough(&self, on: bool) -> Result<()> {
        let all = self.passthrough_min();
        if on && all.is_none() {
            return Err(Errno::EOPNOTSUPP);
        }
        let now = all.filter(|_| on).unwrap_or(NOTHING);
        self.passthrough.now.store(now, Ordering::Relaxed);
        Ok(())
    }

    /// How an open is to be answered, which has succeeded and which the kernel has not heard of. With
    /// `begins` it may be the first that is given.
    ///
    /// # Errors
    /// `EIO` if the open is lost, `EINTR` if nobody waits any more; `EBUSY` if a program of an earlier run
    /// has it, and it cannot be given. It is to be closed then.
    pub async fn way_of(self: &Arc<Client>, handle: u64, begins: bool) -> Result<Way> {
        let file = self.file(handle)?;
        let (inode, how) = (&file.inode, file.how);
        let from = self.begins_from(how).filter(|_| begins);
        let is_left = || self.passthrough.is_left(inode.fid);
        let found = until(
            &inode.state,
            |state| &mut state.waiters,
            |state| match &state.given {
                Some(given) if given.phase == Phase::On => Some(Ok(Found::Away)),
                Some(_) => patience::is_over().then_some(Err(Errno::EINTR)),
                // Others are as little answered as this one.
                None if state.setting > 0 && is_left() => {
                    patience::is_over().then_some(Err(Errno::EINTR))
                }
                None if is_left() || from.is_some_and(|from| state.may_begin(from)) => {
                    state.given = Some(Box::new(GivenAway::begins(inode.fid)));
                    // What the kernel writes nobody hears of.
                    state.drop_ahead();
                    Some(Ok(Found::Begins))
                }
                None => Some(Ok(Found::Nothing)),
            },
        );
        match found.await? {
            Found::Nothing => return Ok(Way::Ordinary),
            Found::Begins => {
                let begun = {
                    let _beginning = Beginning(inode);
                    Box::pin(self.begin_giving(&file, from.is_some())).await
                };
                match begun {
                    Ok(true) => {}
                    begun if is_left() => {
                        let fid = inode.fid;
                        tracing::warn!(%fid, ?begun, "a program of an earlier run has a file still");
                        return Err(begun.err().unwrap_or(Errno::EBUSY));
                    }
                    Ok(false) => return Ok(Way::Ordinary),
                    Err(error) => {
                        tracing::debug!(fid = %inode.fid, %error, "a file is not given away");
                        return Ok(Way::Ordinary);
                    }
                }
            }
            Found::Away if how.write => self.recorded(inode).await?,
            Found::Away => {}
        }
        // This open keeps it given.
        if let Some(given) = &mut lock(&inode.state).given {
            given.answered += 1;
        }
        Ok(if how.direct || how.sync { Way::Beside } else { Way::Given })
    }

    /// From which size on a file begins to be given with such an open, if it can with one.
    fn begins_from(&self, how: OpenHow) -> Option<u64> {
        let from = self.passthrough.now.load(Ordering::Relaxed);
        let never = from == NOTHING || how.direct || how.sync || how.truncate || how.exec;
        (!never).then_some(from)
    }

    /// Makes object and file the same, and gives it away. Whether it did. If it is not one that an earlier
    /// run has left open after all, only if it `begins`.
    async fn begin_giving(self: &Arc<Client>, file: &File, begins: bool) -> Result<bool> {
        let inode = &file.inode;
        let era = self.era();
        let used = self.use_data(inode, Access::Write, None).await?;
        if used.is_group() {
            self.passthrough.let_go(inode.fid);
            return Ok(false);
        }
        // Nobody makes another size of it meanwhile.
        let cutting = Cutting::begin(self, inode).await?;
        self.recorded(inode).await?;
        // What was not told would not be known any more.
        self.tell_size_with(inode, true).await?;
        let size = self.size_now(inode, &used).await?;
        let layout = self.layout_of(inode).await?;
        let only = layout.as_ref().and_then(|layout| Some((layout, only_object(layout)?)));
        let Some((layout, (stripe, ost))) = only else {
            self.passthrough.let_go(inode.fid);
            return Ok(false);
        };
        let object = ObjectId { fid: inode.fid, stripe };
        let was_left = self.passthrough.is_left(inode.fid);
        let is_left = was_left && self.is_left_open(inode.fid, (ost, object)).await;
        // Who was waiting for that has asked by another rule.
        let begins = begins && (!was_left || lock(&inode.state).opens == 1);
        if !is_left && !begins {
            return Ok(false);
        }
        let (mut now, boot_epoch) = self.ost_look(ost, object).await?;
        // One that was never written has no object, and if nothing is written now it must have none.
        if now.ctime == Timespec::default() {
            return Ok(false);
        }
        if now.size < size {
            let version = lock(&inode.state).attr.map_or(0, |attr| attr.version);
            self.grow_given((ost, object, layout.generation), (size, version)).await?;
            (now, _) = self.ost_look(ost, object).await?;
        }
        // Nothing should lie behind the end of the file: then it is better left alone. But who had it in an
        // earlier run has written on, and of that the MDT was not told.
        let mut told = ObjectAttr { size, ..now };
        let settled = |attr: Attr| attr.mtime == now.mtime && attr.ctime <= now.mtime;
        let is_settled = lock(&inode.state).attr.is_some_and(settled);
        if is_left || is_settled {
            // Nor perhaps of what was found out after a crash, because others could still write.
            let (attr, _) = self.fetch_attr(inode.fid, Ibits::NONE).await?;
            told.mtime = if now.mtime > attr.ctime { attr.mtime } else { now.mtime };
        }
        let is_like_that = now.size == size || is_left && now.size > size;
        if !is_like_that || !self.port.give(inode.fid.ino(), (ost, object)).await {
            return Ok(false);
        }
        let at = Unsynced { ost, boot_epoch };
        let untold = inode.update(|state| {
            // Who is about to set times or a size has not asked whether it is given.
            if !used.is_there(state) || era != self.era() || state.setting > 0 {
                return None;
            }
            state.changed_object(stripe, at, &self.ended);
            state.size_known = false;
            let given = state.given.as_mut()?;
            given.phase = Phase::On;
            (given.object, given.layout_gen) = (object, layout.generation);
            (given.at, given.told) = (at, Some(told));
            Some(core::mem::take(&mut state.told))
        });
        let Some(untold) = untold else {
            self.port.take_back(inode.fid.ino(), (ost, object));
            return Ok(false);
        };
        self.unstable.miss(inode.fid);
        drop(cutting);
        drop(used);
        if untold {
            self.port.invalidate(KernelInval::Attr(inode.fid.ino())).await;
        }
        Ok(true)
    }

    /// Whether a program of an earlier run has a file still.
    async fn is_left_open(&self, fid: Fid, at: (u32, ObjectId)) -> bool {
        let is_left = !self.port.alone(at).await;
        if !is_left {
            self.passthrough.let_go(fid);
        }
        is_left
    }

    /// What the object of a given inode says; `None` if it is not given.
    async fn given_now(&self, inode: &Inode) -> Result<Option<ObjectAttr>> {
        let Some((ost, object, _)) = lock(&inode.state).given_at() else { return Ok(None) };
        Ok(Some(self.look_given(inode, (ost, object)).await?))
    }

    async fn look_given(
        &self,
        inode: &Inode,
        (ost, object): (u32, ObjectId),
    ) -> Result<ObjectAttr> {
        let (now, boot_epoch) = self.ost_look(ost, object).await?;
        Ok(lock(&inode.state).saw_object(now, boot_epoch, &self.ended))
    }

    /// A sync of a given inode has failed, perhaps because its OST was restarted. That was told: what is
    /// written from now on is that of the run that is there.
    pub(crate) async fn renew_given(&self, inode: &Inode, asker: Asker) {
        let Some((ost, object, _)) = lock(&inode.state).given_at() else { return };
        let Ok((_, boot_epoch)) = self.ost_look(ost, object).await else { return };
        let mut state = lock(&inode.state);
        if let Some(given) = state.rare_if_any().and_then(|rare| rare.given.as_mut()) {
            given.at.boot_epoch = given.at.boot_epoch.max(boot_epoch);
        }
        if let Some((stripe, at)) = state.given_object() {
            state.unsynced.insert(stripe, at);
            // Also by who has looked meanwhile.
            state.loss.tell(asker);
        }
    }

    /// Somebody sets times or the size of an inode: it does not begin to be given until that is dropped.
    pub(crate) fn setting<'a>(&self, inode: &'a Inode) -> Option<Setting<'a>> {
        if !self.passthrough.is_on() {
            return None;
        }
        lock(&inode.state).setting += 1;
        Some(Setting(inode))
    }

    /// The size of an inode that is given; `None` if it is not.
    pub(crate) async fn given_size(&self, inode: &Inode) -> Result<Option<u64>> {
        Ok(self.given_now(inode).await?.map(|now| now.size))
    }

    /// Attributes of a given inode, as its object has them. `None` if they are not to be compared with
    /// it any more: it is not given now, or the MDT was told of it meanwhile.
    async fn as_given(&self, inode: &Inode, attr: Attr, basis: Basis) -> Result<Option<Attr>> {
        let now = self.look_given(inode, basis.at).await?;
        let same = lock(&inode.state).basis() == Some(basis);
        Ok(same.then(|| shown(attr, &now, basis.told.as_ref())))
    }

    /// Attributes of an inode that may be given, from the answer to a request sent at `stamp`; `None` if
    /// it is not.
    pub(crate) async fn know_given(
        &self,
        inode: &Inode,
        (mut attr, mut stamp): (Attr, u64),
    ) -> Result<Option<Attr>> {
        loop {
            let basis = {
                let mut state = lock(&inode.state);
                if state.is_given_doubtful() {
                    state.doubted_given(&attr, stamp);
                }
                let Some(basis) = state.basis() else { return Ok(None) };
                state.learn(attr, stamp);
                let newer = state.attr.filter(|own| state.meta_known && own.version > attr.version);
                attr = newer.unwrap_or(attr);
                // What was asked before a report has arrived may be from before.
                (newer.is_some() || stamp >= state.changed_at).then_some(basis)
            };
            if let Some(basis) = basis
                && let Some(attr) = self.as_given(inode, attr, basis).await?
            {
                return Ok(Some(attr));
            }
            (attr, stamp) = self.attr_after_cancels(inode, Ibits::META.union(Ibits::DATA)).await?;
        }
    }

    /// Attributes of a given inode of which everything else is known; `None` if it is not given, or if
    /// the MDT has to be asked.
    pub(crate) async fn known_given(&self, inode: &Inode) -> Result<Option<Attr>> {
        let known = {
            let state = lock(&inode.state);
            let known = state.meta_known && state.covers(Ibits::META);
            state.basis().filter(|_| known).zip(state.attr)
        };
        let Some((basis, attr)) = known else { return Ok(None) };
        self.count(Verb::LockHit);
        self.as_given(inode, attr, basis).await
    }

    /// The size or the times of a given inode were changed at the MDT, which says how it is now: so is
    /// the object. Nobody cuts or writes it meanwhile.
    pub(crate) async fn changed_given(
        &self,
        inode: &Inode,
        set: &SetAttr,
        attr: &Attr,
    ) -> Result<()> {
        let Some((ost, object, layout_gen)) = lock(&inode.state).given_at() else { return Ok(()) };
        if let Some(size) = set.size {
            let mut now = self.look_given(inode, (ost, object)).await?;
            if now.size < size {
                self.grow_given((ost, object, layout_gen), (size, attr.version)).await?;
                now = self.look_given(inode, (ost, object)).await?;
            }
            // What was written before is no news any more, also where the object had to be left as it is;
            // else its mtime is that of the cut. An open that empties it may be beside a write.
            if now.size <= size {
                inode.update(|state| state.cut_given(now.mtime));
            }
        }
        let (atime, mtime) = (set.atime.map(|_| attr.atime), set.mtime.map(|_| attr.mtime));
        if atime.is_some() || mtime.is_some() {
            self.ost_set_times(ost, object, (atime, mtime)).await?;
        }
        let changed = (set.size.is_some(), atime.is_some(), mtime.is_some());
        inode.update(|state| state.answered_given(attr, changed));
        Ok(())
    }

    /// The same by an open. It succeeds whatever becomes of that.
    pub(crate) async fn emptied_given(&self, inode: &Inode, attr: &Attr) {
        let set = SetAttr { size: Some(0), ..SetAttr::default() };
        let changed = Box::pin(self.changed_given(inode, &set, attr));
        if let Err(error) = to_the_end(changed).await {
            tracing::debug!(fid = %inode.fid, %error, "when it was emptied is not known");
        }
    }

    /// Makes an object as large as its file is at this version. Not before that is durable: else a crash
    /// could leave an object that reaches behind the end of a file that nobody had open for writing.
    async fn grow_given(
        &self,
        (ost, object, layout_gen): (u32, ObjectId, u32),
        (size, version): (u64, u64),
    ) -> Result<()> {
        self.mdt_sync(object.fid, version).await?;
        self.ost_set_size(ost, (object, layout_gen), (size, version)).await
    }

    /// What the MDT is to be told of a given inode, if that is news. Nobody else tells it anything until
    /// [`Client::reported`]. With `cutting` the caller keeps others from cutting it, and holds the lock.
    ///
    /// # Errors
    /// The OST's; the MDT's, which may be asked for the lock; `EINTR` if nobody waits any more.
    pub(crate) async fn given_report(
        self: &Arc<Client>,
        inode: &Arc<Inode>,
        cutting: bool,
    ) -> Result<Option<SizeReport>> {
        // Who does not hold it is not believed.
        let _used = match cutting {
            true => None,
            false => Some(self.use_data(inode, Access::Write, None).await?),
        };
        let reporting = self.turn_to_report(inode, cutting).await?;
        // Who is answered while it is looked at may write behind that.
        let told_of = lock(&inode.state).all_closed();
        let Some(now) = self.given_now(inode).await? else { return Ok(None) };
        if lock(&inode.state).is_given_doubtful() {
            let (attr, stamp) = self.fetch_attr(inode.fid, Ibits::NONE).await?;
            inode.update(|state| state.doubted_given(&attr, stamp));
        }
        let report = inode.update(|state| {
            let known = state.given.as_ref().and_then(|given| given.told);
            let report = state.attr.and_then(|attr| news(attr, &now, known.as_ref()));
            let Some(report) = report else {
                if let Some(given) = &mut state.given {
                    given.is_told_of(told_of);
                }
                return None;
            };
            // Of what is not in the report nothing is told.
            let mut telling = known.unwrap_or(now);
            if report.mtime.is_some() {
                (telling.size, telling.mtime) = (now.size, now.mtime);
            }
            if report.atime.is_some() {
                telling.atime = now.atime;
            }
            if let Some(given) = &mut state.given {
                given.telling = Some(Telling { object: telling, told_of });
            }
            state.reporting_atime = report.mtime.is_none();
            Some(report)
        });
        if report.is_some() {
            core::mem::forget(reporting);
        }
        Ok(report)
    }

    /// Waits until nobody else tells the MDT anything of this inode, and nobody does until that is
    /// dropped. With `cutting` the caller keeps others from cutting it.
    ///
    /// # Errors
    /// `EINTR` if nobody waits any more.
    pub(crate) async fn turn_to_report<'a>(
        &self,
        inode: &'a Inode,
        cutting: bool,
    ) -> Result<Reporting<'a>> {
        let (reporting, emptying) = {
            let state = lock(&inode.state);
            (state.reporting, state.emptying)
        };
        if reporting {
            // A close, perhaps, for which nobody waited so far.
            self.port.hurry();
        }
        if emptying && !cutting {
            // Whoever does it may wait for a slot, and has seen no lock in use.
            self.look_for_slots(inode.fid);
        }
        let turn = |state: &mut InodeState| {
            // What is told must not arrive behind a cut.
            let others = state.reporting || !state.cancels.is_empty();
            if others || state.emptying && !cutting {
                return patience::is_over().then_some(Err(Errno::EINTR));
            }
            state.reporting = true;
            Some(Ok(()))
        };
        until(&inode.state, |state| &mut state.waiters, turn).await?;
        Ok(Reporting(inode))
    }

    /// Writes at the end of a given inode's object, as one request carries it; how much there was room
    /// for.
    ///
    /// # Errors
    /// The OST's; `EIO` if it may have been done.
    pub(crate) async fn append_given(
        &self,
        inode: &Inode,
        layout: &Layout,
        data: Bytes,
        era: u64,
    ) -> Result<usize> {
        let (ost, object, layout_gen) = lock(&inode.state).given_at().ok_or(Errno::EIO)?;
        debug_assert_eq!(layout_gen, layout.generation, "what has an object keeps its layout");
        let most = usize::try_from(self.rpc_bytes_max(ost)).unwrap_or(usize::MAX);
        let mut done = 0;
        while done < data.len() {
            let piece = data.slice(done..data.len().min(done + most));
            let len = piece.len();
            self.room_for(ost).await?;
            let written = self.ost_append(ost, (object, layout_gen), piece, era).await;
            let (written, boot_epoch) = match written {
                Ok(written) => written,
                // As a write that ends in the middle.
                Err(_) if done > 0 => break,
                Err(errno) => return Err(errno),
            };
            self.unstable.miss(inode.fid);
            self.changed_object(inode, object.stripe, Unsynced { ost, boot_epoch });
            done += written;
            if written < len {
                break;
            }
        }
        if done == 0 { Err(Errno::ENOSPC) } else { Ok(done) }
    }
}

#[cfg(test)]
mod tests;

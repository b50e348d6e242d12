//! Open files: open, create, close, fsync.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use sateen_types::{Attr, Endpoint, Errno, Fid, FileKind, Layout, Result, seq};
use sateen_wire::{Cred, Ibits, MdtReply, MdtRequest, OpenFlags, OpenId, SetAttr, SizeReport};

use super::data::{Writes, file_writes_ended, writes_ended};
use super::names::{Made, Make};
use super::space::ANSWER_NS;
use super::{Entry, Known};
use crate::atime::AtimePolicy;
use crate::client::Client;
use crate::comb::Strides;
use crate::dirty::LateErrors;
use crate::group::InGroup;
use crate::inode::{Inode, InodeState};
use crate::locks::DataUse;
use crate::loss::{Asker, Loss};
use crate::outsiders::Pauses;
use crate::patience::{self, to_the_end};
use crate::readahead::Pattern;
use crate::sync::{join_all, lock, until};
use crate::unstable::Barred;
use crate::unsynced::UnsyncedObjects;

/// A part of an fsync.
type Part<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// How often a file is made again that has gone with a crash of its MDT, or after it, which crashes again
/// before this client hears of the next.
const MADE_AGAIN_MAX: u32 = 16;

/// How a program opens a file.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenHow {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// `O_APPEND`.
    pub append: bool,
    /// `O_TRUNC`.
    pub truncate: bool,
    /// `O_EXCL`, with create.
    pub exclusive: bool,
    /// `O_SYNC` or `O_DSYNC`.
    pub sync: bool,
    /// `O_DIRECT`.
    pub direct: bool,
    /// To be executed.
    pub exec: bool,
    /// `O_NONBLOCK`: groups are not waited for.
    pub nonblock: bool,
    /// What reading does to the atime.
    pub atime: AtimePolicy,
}

/// An open file of this client.
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) inode: Arc<Inode>,
    pub(crate) id: OpenId,
    pub(crate) how: OpenHow,
    /// When the MDT was asked for it.
    pub(crate) asked_at: u64,
    /// This open has made the file.
    pub(crate) made: bool,
    /// The MDT no longer knows of it.
    pub(crate) lost: AtomicBool,
    /// So far as it was lost with data that may not have been saved.
    unsaved: AtomicBool,
    /// A close has said so.
    told_lost: AtomicBool,
    /// Writes through it may be kept: a close can say then that some could not be written out.
    pub(super) keeps: bool,
    /// Of how many such errors it has heard.
    late_told: AtomicU32,
    /// And of how many its closes have said so.
    late_closed: AtomicU32,
    /// Those that are under way through it.
    pub(super) writes: Writes,
    /// How it is read.
    pub(super) pattern: Mutex<Pattern>,
    /// How it is written.
    pub(super) strides: Mutex<Strides>,
    /// Whether it is a member of a group.
    pub(crate) group: InGroup,
}

impl File {
    /// The MDT has forgotten it. To be called before its inode forgets what was written.
    pub(crate) fn lose(&self, left: &UnsyncedObjects) {
        let unsaved =
            self.how.write && (lock(&self.inode.state).is_unsaved() || left.has(self.inode.fid));
        self.unsaved.fetch_or(unsaved, Ordering::Relaxed);
        self.lost.store(true, Ordering::SeqCst);
    }

    /// The last error of writing out that this open was not told of.
    fn late_error_by(
        &self,
        tell: impl FnOnce(&mut LateErrors, &mut u32) -> Result<()>,
    ) -> Result<()> {
        let mut state = lock(&self.inode.state);
        // As a rule there was none.
        if state.late.count() == 0 {
            return Ok(());
        }
        let mut told = self.late_told.load(Ordering::Relaxed);
        let news = tell(&mut state.late, &mut told);
        self.late_told.store(told, Ordering::Relaxed);
        news
    }
}

/// Nothing is reported of an inode's size, and nothing written, by nobody here: while this client
/// cuts a file to nothing, a report of what the size was must not arrive after the cut, nor must
/// bytes that are written behind it be taken for cut, nor a write that was given up, and goes on all
/// the same, bring back what it was to have lost.
struct Quiet<'a> {
    inode: Arc<Inode>,
    /// Nothing is written again behind the cut.
    barred: Option<Barred<'a>>,
    /// Only the holder of the lock for writing reports, also when it gives the lock back. Who
    /// has no such lock must not keep others waiting for the one it has: they may be emptying the
    /// file as well.
    used: Option<DataUse>,
    /// It is this that keeps others from reporting.
    reports: bool,
}

impl<'a> Quiet<'a> {
    /// Waits until writes under way have ended and the MDT has heard everything that it will hear.
    /// From then on nobody begins to write.
    ///
    /// # Errors
    /// `EINTR` if nobody waits any more: it must not be emptied long after its program was killed.
    async fn begin(client: &'a Client, inode: &Arc<Inode>) -> Result<Quiet<'a>> {
        let told = |state: &InodeState| !state.reporting && state.cancels.is_empty();
        // With the lock in use from the moment that nobody begins to write: it is not given back
        // before those who use it have written, and who comes now waits for this to be over.
        if lock(&inode.state).reporting {
            // A close, perhaps, for which nobody waited so far.
            client.port.hurry();
        }
        let held = Quiet::when(inode, |state| {
            let free = !state.emptying && told(state);
            let held = free.then(|| state.use_quietly()).flatten()?;
            state.emptying = true;
            state.drop_ahead();
            Some(held)
        });
        let used = held.await?.map(|id| DataUse::new(inode, id));
        let mut quiet = Quiet { inode: inode.clone(), barred: None, used, reports: false };
        writes_ended(inode).await?;
        // As long as nobody begins to write nothing is kept, either.
        drop(client.settle(inode).await?);
        quiet.barred = client.bar(inode).await?;
        // What they have written was perhaps told of meanwhile.
        let reports = quiet.used.is_some();
        let told = Quiet::when(inode, |state| {
            let told = told(state);
            state.reporting |= told && reports;
            told.then_some(())
        });
        told.await?;
        quiet.reports = reports;
        Ok(quiet)
    }

    async fn when<T>(
        inode: &Inode,
        mut ready: impl FnMut(&mut InodeState) -> Option<T>,
    ) -> Result<T> {
        until(
            &inode.state,
            |state| &mut state.waiters,
            |state| {
                if patience::is_over() {
                    return Some(Err(Errno::EINTR));
                }
                ready(state).map(Ok)
            },
        )
        .await
    }

    /// The file is cut: what was written before, and was not reported, is gone. Nobody writes
    /// yet, and the lock is in use.
    fn emptied(&mut self) {
        let reports = core::mem::take(&mut self.reports);
        self.inode.update(|state| {
            if let Some(rare) = state.rare_if_any() {
                rare.unreported_mtime = None;
            }
            state.reporting &= !reports;
        });
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        drop(self.barred.take());
        self.inode.update(|state| {
            state.emptying = false;
            state.reporting &= !self.reports;
        });
    }
}

/// An open that succeeded.
#[derive(Debug, Clone, Copy)]
pub struct Opened {
    /// Its handle.
    pub handle: u64,
    /// The inode.
    pub known: Known,
}

/// Whether others may write what this client opens for writing: what it was answered does not tell
/// the size, nor do the OSTs, as long as a holder of the data keeps something. Who wants it has to look.
fn inode_is_written(inode: &Inode, attr: &Attr) -> bool {
    let state = lock(&inode.state);
    attr.size_stale && !state.size_known && !state.owns_size() && !state.is_given()
}

impl Client {
    fn next_open_id(&self) -> OpenId {
        OpenId { id: self.next_open.fetch_add(1, Ordering::Relaxed) }
    }

    /// Opens an existing file.
    ///
    /// # Errors
    /// As `open`.
    pub async fn open(self: &Arc<Client>, fid: Fid, how: OpenHow, cred: Cred) -> Result<Opened> {
        let inode = self.inode(fid);
        if let Some((kept, attr)) = self.take_kept_open(&inode, how) {
            let of = (&inode, kept.id, false);
            return Ok(self.opened(of, how, (attr, true), kept.asked_at));
        }
        let id = self.next_open_id();
        if how.truncate && !how.write && lock(&inode.state).exec_opens > 0 {
            // Of those who open it for writing the kernel keeps it; this open it would let cut
            // a running program before it looks.
            self.retire(inode);
            return Err(Errno::ETXTBSY);
        }
        self.begin_open(&inode, how);
        let flags = OpenFlags { write: how.write, truncate: how.truncate, exec: how.exec };
        let want = Ibits::META.union(Ibits::DATA);
        // A report of the size that was must not arrive after the size is none.
        let opened = async {
            let mut pauses = Pauses::default();
            loop {
                let begins = Quiet::begin(self, &inode);
                let quiet = if how.truncate { Some(begins.await?) } else { None };
                let request = MdtRequest::Open { fid, flags, open_id: id, cred, want };
                let in_use = || lock(&inode.state).is_in_use();
                let answer = self.mdt_unless_it_runs(fid, request, &in_use).await?;
                match answer.body {
                    MdtReply::Opened { attr, layout } => {
                        return Ok((quiet, attr, layout, answer.stamp));
                    }
                    // Members of it that are of this client write on meanwhile.
                    MdtReply::Grouped => drop(quiet),
                    _ => return Err(Errno::EPROTO),
                }
                self.pause(&mut pauses).await?;
            }
        };
        let (quiet, attr, layout, sent) = match opened.await {
            Ok(opened) => opened,
            Err(errno) => {
                self.end_open(&inode, how);
                self.leave_given(&inode).await;
                self.retire(inode);
                return Err(errno);
            }
        };
        if let Some(mut quiet) = quiet {
            let is_given = lock(&inode.state).is_given();
            if is_given {
                self.emptied_given(&inode, &attr).await;
            }
            quiet.emptied();
            self.own_data_change(&inode, attr, sent).await;
        }
        inode.update(|state| {
            state.layout = layout.clone().or(state.layout.take());
            if how.write {
                state.will_write(attr.version);
            }
        });
        let opened = self.finish_open(&inode, (id, false), how, (attr, sent)).await;
        if opened.is_err() {
            Box::pin(self.drop_open(inode, id, how)).await;
        }
        opened
    }

    /// Creates and opens a file, or opens the one that is there.
    ///
    /// # Errors
    /// As `open` with `O_CREAT`.
    pub async fn create(
        self: &Arc<Client>,
        parent: Fid,
        name: &[u8],
        mode: u32,
        how: OpenHow,
        cred: Cred,
    ) -> Result<(Entry, Opened)> {
        // Which file it is, if there is one, is not known before: it is emptied afterwards,
        // under its lock.
        let flags = OpenFlags { write: how.write, truncate: false, exec: false };
        let mode = FileKind::Regular.mode_bits() | mode & 0o7777;
        let mut again = MADE_AGAIN_MAX;
        let (id, made) = loop {
            let id = self.next_open_id();
            let make = Make {
                mode,
                rdev: 0,
                symlink: b"",
                open: Some((flags, id)),
                exclusive: how.exclusive,
                cred,
            };
            match self.make(parent, name, make).await {
                // It was made, the MDT has crashed before this client heard of it, and somebody has
                // removed it. Whoever wanted to be the one that makes it has been.
                Err(Errno::ESTALE) if again > 0 && !patience::is_over() => {
                    if how.exclusive {
                        let opened =
                            Box::pin(self.tmpfile(parent, mode & 0o7777, how, cred)).await?;
                        return Ok((Entry::nameless(opened.known), opened));
                    }
                    again -= 1;
                }
                made => break (id, made?),
            }
        };
        if made.attr.kind() != FileKind::Regular {
            // Another client has made something else of this name, which the MDT does not open.
            // The kernel looks the name up again.
            return Err(Errno::ESTALE);
        }
        let inode = self.inode(made.attr.fid);
        self.begin_open(&inode, how);
        inode.update(|state| {
            state.layout = made.layout.clone();
            if !made.existed {
                state.is_new();
            } else if how.write {
                state.will_write(made.attr.version);
            }
        });
        debug_assert!(made.grants.iter().count() <= sateen_wire::GRANTS_MAX, "inline grants");
        match self.finish_create((parent, name), &inode, (id, how, cred), &made).await {
            Ok(created) => Ok(created),
            Err(errno) => {
                self.files.of(id.id).remove(&id.id);
                Box::pin(self.drop_open(inode, id, how)).await;
                Err(errno)
            }
        }
    }

    async fn finish_create(
        self: &Arc<Client>,
        (parent, name): (Fid, &[u8]),
        inode: &Arc<Inode>,
        (id, how, cred): (OpenId, OpenHow, Cred),
        made: &Made,
    ) -> Result<(Entry, Opened)> {
        let mut answer = (made.attr, made.stamp);
        let mut opened = self.finish_open(inode, (id, !made.existed), how, answer).await?;
        // It is shown, and the open has not settled it: others write it.
        let written = made.existed && how.write && inode_is_written(inode, &opened.known.attr);
        if written && !how.truncate {
            let asked = self.fetch_attr(inode.fid, Ibits::META.union(Ibits::DATA));
            answer = Box::pin(asked).await?;
            opened.known = self.know(inode, answer.0, answer.1).await?;
        }
        if made.existed && how.truncate {
            let set = SetAttr { size: Some(0), ..SetAttr::default() };
            opened.known = Box::pin(self.setattr(inode.fid, set, cred)).await?;
        }
        let mut entry = self.entry((parent, name), answer.0, made.stamp).await?;
        entry.inode = Some(opened.known);
        Ok((entry, opened))
    }

    /// Makes a file without a name in the directory `parent`, and opens it. Unless `how` is
    /// exclusive, a link may give it a name.
    ///
    /// # Errors
    /// As `open` with `O_TMPFILE`.
    pub async fn tmpfile(
        self: &Arc<Client>,
        parent: Fid,
        mode: u32,
        how: OpenHow,
        cred: Cred,
    ) -> Result<Opened> {
        let mut again = MADE_AGAIN_MAX;
        let (fid, open_id, answer) = loop {
            let era = self.era();
            let open_id = self.next_open_id();
            let fid = self.new_fid(parent, era).await?;
            let flags = OpenFlags { write: how.write, truncate: false, exec: false };
            let want = Ibits::META.union(Ibits::DATA);
            let linkable = !how.exclusive;
            let request =
                MdtRequest::Tmpfile { parent, fid, mode, cred, flags, open_id, linkable, want };
            match self.mdt_in(era, parent, request).await {
                // It was made, and has gone with the MDT's crash before this client heard of it.
                Err(Errno::ESTALE) if again > 0 && !patience::is_over() => again -= 1,
                answer => break (fid, open_id, answer?),
            }
        };
        let MdtReply::Created { attr, layout, .. } = answer.body else { return Err(Errno::EPROTO) };
        let inode = self.inode(fid);
        self.begin_open(&inode, how);
        inode.update(|state| {
            state.layout = layout;
            state.nameless = true;
            state.is_new();
        });
        let opened = self.finish_open(&inode, (open_id, true), how, (attr, answer.stamp)).await;
        if opened.is_err() {
            Box::pin(self.drop_open(inode, open_id, how)).await;
        }
        opened
    }

    fn begin_open(&self, inode: &Inode, how: OpenHow) {
        inode.update(|state| state.begin_open(how));
    }

    fn end_open(&self, inode: &Inode, how: OpenHow) {
        inode.update(|state| state.end_open(how));
    }

    async fn drop_open(self: &Arc<Client>, inode: Arc<Inode>, id: OpenId, how: OpenHow) {
        self.end_open(&inode, how);
        if let Err(error) = to_the_end(self.close_at_mdt(inode.fid, id, None, None)).await {
            tracing::debug!(fid = %inode.fid, %error, "a close did not reach the MDT");
        }
        self.leave_given(&inode).await;
        self.retire(inode);
    }

    async fn finish_open(
        self: &Arc<Client>,
        inode: &Arc<Inode>,
        (id, made): (OpenId, bool),
        how: OpenHow,
        (attr, sent): (Attr, u64),
    ) -> Result<Opened> {
        if how.write && attr.kind() == FileKind::Regular {
            Box::pin(self.leave_read_locks(inode)).await;
        }
        let Known { attr, held } = if how.write && inode_is_written(inode, &attr) {
            inode.update(|state| state.learn(attr, sent));
            Client::unheld(attr)
        } else {
            self.know(inode, attr, sent).await?
        };
        Ok(self.opened((inode, id, made), how, (attr, held), sent))
    }

    /// The MDT has it open, as was asked at `asked_at`.
    fn opened(
        &self,
        (inode, id, made): (&Arc<Inode>, OpenId, bool),
        how: OpenHow,
        (attr, held): (Attr, bool),
        asked_at: u64,
    ) -> Opened {
        let late = lock(&inode.state).late.count();
        let file = File {
            inode: inode.clone(),
            id,
            how,
            asked_at,
            made,
            lost: AtomicBool::new(false),
            unsaved: AtomicBool::new(false),
            told_lost: AtomicBool::new(false),
            keeps: how.write && !how.sync && !how.direct && self.may_keep_writes(),
            late_told: AtomicU32::new(late),
            late_closed: AtomicU32::new(late),
            writes: Writes::default(),
            pattern: Mutex::default(),
            strides: Mutex::default(),
            group: InGroup::default(),
        };
        file.group.set_nonblock(how.nonblock);
        let mut files = self.files.of(id.id);
        // Whoever loses the opens marks those in the table, after having set this.
        file.lost.store(asked_at < self.lost_at(inode.fid), Ordering::SeqCst);
        files.insert(id.id, Arc::new(file));
        Opened { handle: id.id, known: Known { attr, held } }
    }

    /// From the first writable open on, all pages of the inode stand under a write lock: what
    /// stands under a read lock alone is dropped.
    async fn leave_read_locks(self: &Arc<Client>, inode: &Arc<Inode>) {
        let read_only: Vec<_> = {
            let mut state = lock(&inode.state);
            state.forbid_pages();
            state.read_locks().map(|held| held.id).collect()
        };
        for id in read_only {
            self.give_back(inode, id).await;
        }
        // Also those that somebody else is giving back.
        until(
            &inode.state,
            |state| &mut state.waiters,
            |state| state.read_locks().next().is_none().then_some(()),
        )
        .await;
    }

    /// Whether what is open under this handle is still so at the MDT.
    ///
    /// # Errors
    /// `EIO` if it was lost with an eviction, and `EBADF` if it never was.
    pub fn still_open(&self, handle: u64) -> Result<()> {
        self.file(handle).map(drop)
    }

    pub(crate) fn file(&self, handle: u64) -> Result<Arc<File>> {
        let file = self.files.of(handle).get(&handle).cloned().ok_or(Errno::EBADF)?;
        if file.lost.load(Ordering::SeqCst) {
            return Err(Errno::EIO);
        }
        Ok(file)
    }

    /// The last descriptor of an open is gone.
    ///
    /// # Errors
    /// The MDT's; those of what could not be written out, unless they were told; `EIO` if the
    /// client was evicted, and with it what was written may be lost. The file is closed all the
    /// same.
    pub async fn close(self: &Arc<Client>, handle: u64) -> Result<()> {
        let era = self.era();
        let file = self.files.of(handle).get(&handle).cloned().ok_or(Errno::EBADF)?;
        // Until then it may be lost like any other.
        to_the_end(file_writes_ended(&file)).await;
        if self.files.of(handle).remove(&handle).is_none() {
            return Err(Errno::EBADF);
        }
        self.leave_group_of(&file);
        // The handle is gone, and with it whoever else could say so to the MDT.
        let closed = to_the_end(self.close_file(&file, era)).await;
        // The kernel may have forgotten the inode meanwhile, because it waits for no close.
        let inode = file.inode.clone();
        drop(file);
        self.retire(inode);
        closed
    }

    async fn close_file(self: &Arc<Client>, file: &File, era: u64) -> Result<()> {
        let inode = &file.inode;
        if lock(&inode.state).is_given() {
            return Box::pin(self.close_given_file(file, era)).await;
        }
        if file.lost.load(Ordering::SeqCst) {
            self.end_open(inode, file.how);
            // One may have been granted just before the client was lost, and noted after.
            self.forget_file_locks(inode.fid, file.id);
            let unsaved = file.unsaved.load(Ordering::Relaxed);
            return if unsaved { Err(Errno::EIO) } else { Ok(()) };
        }
        let reports = file.how.write || lock(&inode.state).unreported_atime.is_some();
        if !reports && self.keep_open(file, era) {
            return Ok(());
        }
        // Who closes a file has written to it, and the MDT takes it for done with that. Or who gets
        // a lock next is to find what was written under it, through whichever open.
        let looks = reports || self.has_file_locks(inode.fid, file.id);
        let looking = looks.then(|| self.look(inode));
        if let Some(looking) = &looking {
            // It is closed in any case.
            looking.settled().await.unwrap_or_default();
        }
        self.count_blocks(inode).await;
        let mut report = if reports { inode.next_report().await.unwrap_or_default() } else { None };
        // A kernel waits for nobody here, but others do. The next sync of the file says it, too.
        let late = || {
            if file.keeps { file.late_error_by(|late, told| late.whisper(told)) } else { Ok(()) }
        };
        if reports && self.may_keep_open(file) {
            report = Box::pin(self.tell_instead(inode, report, era)).await;
            if report.is_none() && self.keep_open(file, era) {
                drop(looking);
                return late();
            }
        }
        // Not before: whoever removes the file meanwhile must not forget what is to be told, or
        // the MDT would not know that there are objects.
        inode.update(|state| {
            state.was_open |= !file.made;
            state.end_open(file.how);
        });
        let closed = self.close_with(file, era, report).await;
        drop(looking);
        closed.and(late())
    }

    /// Tells the MDT in a report of its own what a close was to tell, so that the open can be kept.
    /// Returns what is still to be told.
    async fn tell_instead(
        &self,
        inode: &Inode,
        report: Option<SizeReport>,
        era: u64,
    ) -> Option<SizeReport> {
        let report = report?;
        let fid = inode.fid;
        let tell = MdtRequest::ReportSize { fid, report, glimpsed: false, version: 0 };
        let told = self.mdt_in(era, fid, tell).await;
        self.reported(inode, report, told.is_ok());
        if told.is_ok() { None } else { inode.next_report().await.unwrap_or_default() }
    }

    /// One of an inode that the kernel has. It counts as open until the MDT has heard everything.
    async fn close_given_file(self: &Arc<Client>, file: &File, era: u64) -> Result<()> {
        let inode = &file.inode;
        let report = self.close_given(file).await;
        let closed = if file.lost.load(Ordering::SeqCst) {
            if let Some(report) = report {
                // It had the turn to report, and others wait for that.
                self.reported(inode, report, false);
            }
            self.forget_file_locks(inode.fid, file.id);
            let unsaved = file.unsaved.load(Ordering::Relaxed);
            if unsaved { Err(Errno::EIO) } else { Ok(()) }
        } else {
            self.close_with(file, era, report).await
        };
        self.closed_given(inode, file.how).await;
        closed
    }

    /// Closes it at the MDT, with a report.
    async fn close_with(&self, file: &File, era: u64, report: Option<SizeReport>) -> Result<()> {
        let inode = &file.inode;
        let mut closing = pin!(self.close_at_mdt(inode.fid, file.id, report, Some(era)));
        // What is locked through it goes with it.
        let waited_for = self.has_file_locks(inode.fid, file.id);
        let closed = poll_fn(|context| {
            let closed = closing.as_mut().poll(context);
            if waited_for && closed.is_pending() {
                self.port.hurry();
            }
            closed
        })
        .await;
        self.forget_file_locks(inode.fid, file.id);
        if let Some(report) = report {
            self.reported(inode, report, closed.is_ok());
        }
        closed
    }

    pub(crate) async fn close_at_mdt(
        &self,
        fid: Fid,
        open_id: OpenId,
        report: Option<SizeReport>,
        era: Option<u64>,
    ) -> Result<()> {
        let taken_up = self.taken_up(fid);
        let close = |report| self.mdt_of(era, fid, MdtRequest::Close { fid, open_id, report });
        let closed = close(report).await.map(|_| ());
        let mut before = taken_up;
        // The MDT was told meanwhile that it is open, though an earlier run may have executed this
        // very close: see `crate::recover`. That it knows of no such open is as good.
        while closed.is_ok() && before != self.taken_up(fid) {
            before = self.taken_up(fid);
            if let Err(error) = close(None).await {
                tracing::debug!(%fid, %error, "it was closed before");
            }
        }
        closed
    }

    /// Asks the OSTs for the space that a file takes up, if it was overwritten, and is to be
    /// reported by a close. Nobody waits for one, and without an answer the guess has to do.
    async fn count_blocks(&self, inode: &Inode) {
        let asks = |state: &InodeState| {
            state.blocks_doubtful && state.unreported_mtime.is_some() && state.owns_size()
        };
        if !asks(&lock(&inode.state)) {
            return;
        }
        let Ok(Some(layout)) = self.layout_of(inode).await else { return };
        let glimpse = self.not_longer_than(ANSWER_NS, self.glimpse(inode.fid, &layout));
        if let Some(Ok((_, blocks))) = Box::pin(glimpse).await {
            inode.update(|state| {
                if asks(state) {
                    state.takes_up(blocks)
                }
            });
        }
    }

    /// Makes an open file durable.
    ///
    /// # Errors
    /// As [`Client::fsync`]; `EIO` if the MDT has forgotten that it is open.
    pub async fn fsync_file(self: &Arc<Client>, handle: u64) -> Result<()> {
        let file = self.files.of(handle).get(&handle).cloned().ok_or(Errno::EBADF)?;
        let synced = self.sync_file(&file).await;
        self.and_lost_changes(file.inode.fid, synced)
    }

    /// What an fsync of an inode answers: one `EIO` tells of data and of changes that are lost,
    /// else the next fsync would say so once more of what this one has told.
    fn and_lost_changes(&self, fid: Fid, synced: Result<()>) -> Result<()> {
        match synced {
            Ok(()) => self.tell_lost_changes(fid),
            Err(Errno::EIO) => self.tell_lost_changes(fid).and(synced),
            Err(_) => synced,
        }
    }

    /// A write is to be as durable as one with `O_SYNC` (`RWF_DSYNC`), whatever the file was
    /// opened with.
    ///
    /// # Errors
    /// As [`Client::fsync_file`].
    pub async fn sync_written(self: &Arc<Client>, handle: u64) -> Result<()> {
        let file = self.file(handle)?;
        // Then the write has seen to that.
        if file.how.sync { Ok(()) } else { self.sync_file(&file).await }
    }

    /// The program that an fsync said `EIO` to did not hear it: the next one says so again.
    pub fn not_told(&self, fid: Fid) {
        let inode = self.inode(fid);
        let kind = {
            let mut state = lock(&inode.state);
            state.loss.add(Loss::New);
            state.attr.map(|attr| attr.kind())
        };
        if kind != Some(FileKind::Regular)
            && let Some(import) = self.import(Endpoint::Mdt(seq::mdt_of(fid.seq)))
        {
            import.lose_change(fid);
        }
    }

    /// What a write with `O_SYNC` promises: its data, and nothing of changes before it.
    ///
    /// # Errors
    /// As [`Client::fsync_file`].
    pub(crate) async fn sync_file(self: &Arc<Client>, file: &File) -> Result<()> {
        if file.lost.load(Ordering::SeqCst) {
            // What is lost is told here, and what is there is made durable: whoever opens the
            // file anew has nothing to do with either.
            lock(&file.inode.state).late.hear();
            return self.sync_own(&file.inode, Asker::Owner).await.and(Err(Errno::EIO));
        }
        let synced = self.fsync_inode(&file.inode).await;
        if synced == Err(Errno::EINTR) {
            // Nobody hears more than that.
            return synced;
        }
        // One error tells of all; also of what no program has heard of, before this one opened it.
        let late = |late: &mut LateErrors, told: &mut u32| {
            *told = late.heard().min(*told);
            late.tell(told)
        };
        synced.and(file.late_error_by(late))?;
        if file.lost.load(Ordering::SeqCst) { Err(Errno::EIO) } else { Ok(()) }
    }

    /// A descriptor of an open file is closed: whoever closes it hears what could not be written
    /// out so far, and waits for nothing. With the last one the rest is written out, too. The end
    /// of a program closes as well, and nobody hears that: so it takes nothing from what syncs and
    /// renames tell.
    ///
    /// # Errors
    /// The OSTs', once for each open; `EIO` if the client was evicted, and with it what was
    /// written may be lost.
    pub fn flush_file(&self, handle: u64) -> Result<()> {
        let file = self.files.of(handle).get(&handle).cloned().ok_or(Errno::EBADF)?;
        if !file.keeps {
            return Ok(());
        }
        if file.lost.load(Ordering::SeqCst) {
            let unsaved = file.unsaved.load(Ordering::Relaxed);
            let first = unsaved && !file.told_lost.swap(true, Ordering::Relaxed);
            return if first { Err(Errno::EIO) } else { Ok(()) };
        }
        let closed = file.late_closed.load(Ordering::Relaxed);
        let mut told = closed.max(file.late_told.load(Ordering::Relaxed));
        let news = lock(&file.inode.state).late.whisper(&mut told);
        file.late_closed.store(told, Ordering::Relaxed);
        news
    }

    /// Whether writes through an open may be kept, so that its closes may have something to say.
    pub fn keeps_writes(&self, handle: u64) -> bool {
        self.files.of(handle).get(&handle).is_some_and(|file| file.keeps)
    }

    /// Whether a close of an open may have something to say, and so is worth a question.
    pub fn tells_closes(&self, handle: u64) -> bool {
        !self.osts_are_here.load(Ordering::Relaxed) && self.keeps_writes(handle)
    }

    /// All OSTs are in this process. Closes tell nothing of late errors then, which wait for an fsync:
    /// such an OST's writes fail late in any case, when the disk is written. And the first write of an
    /// open is not kept: most small files have no other, and to copy it costs more than it saves.
    pub fn set_osts_are_here(&self) {
        self.osts_are_here.store(true, Ordering::Relaxed);
    }

    /// Makes a file or directory durable: its data, and beside that its size and whatever else
    /// the MDT has. Neither needs the other to be first; only both together are believed.
    ///
    /// # Errors
    /// `EIO` if acknowledged writes may be lost, or an MDT that restarted has lost the inode, or
    /// may have lost changes of it.
    pub async fn fsync(self: &Arc<Client>, fid: Fid) -> Result<()> {
        let inode = self.inode(fid);
        let synced = self.fsync_inode(&inode).await;
        let unheard = if synced == Err(Errno::EINTR) {
            Ok(())
        } else {
            let mut state = lock(&inode.state);
            let mut told = state.late.heard();
            state.late.tell(&mut told)
        };
        self.retire(inode);
        self.and_lost_changes(fid, synced.and(unheard))
    }

    async fn fsync_inode(self: &Arc<Client>, inode: &Arc<Inode>) -> Result<()> {
        let fid = inode.fid;
        let lost_at = self.lost_at(fid);
        drop(self.settle(inode).await?);
        if lock(&inode.state).doubtful {
            match self.fetch_attr(fid, Ibits::NONE).await {
                Ok(_) => lock(&inode.state).doubtful = false,
                Err(Errno::ENOENT | Errno::ESTALE) => return Err(Errno::EIO),
                Err(errno) => return Err(errno),
            }
        }
        let regular = lock(&inode.state).attr.is_none_or(|attr| attr.kind() == FileKind::Regular);
        let data: Part<'_> =
            Box::pin(async { if regular { self.sync_data(inode).await } else { Ok(()) } });
        let size: Part<'_> = Box::pin(async {
            self.tell_size(inode).await?;
            self.mdt_sync(fid, 0).await
        });
        join_all(vec![data, size]).await.into_iter().collect::<Result<()>>()?;
        // An MDT that restarted meanwhile has synced what it still had.
        let same = lost_at == self.lost_at(fid);
        if same { Ok(()) } else { Err(Errno::EIO) }
    }

    /// Makes everything that this client has written durable.
    ///
    /// # Errors
    /// The first one met; the rest is synced all the same.
    pub async fn sync_all(self: &Arc<Client>) -> Result<()> {
        let inodes = self.inodes.all();
        let mut result = Ok(());
        self.write_out_all();
        for inode in inodes {
            let unsaved = lock(&inode.state).is_unsaved();
            if unsaved {
                let settled = self.settle(&inode).await.map(drop);
                result = result.and(settled).and(self.sync_own(&inode, Asker::Everybody).await);
                result = result.and(self.tell_size(&inode).await);
                result = result.and(lock(&inode.state).late.show());
            }
            self.retire(inode);
        }
        // After the inodes: one that is dropped meanwhile is here then.
        result = result.and(self.sync_left().await);
        result = result.and(self.mdt_sync(Fid::ROOT, 0).await);
        for (_, import) in self.all_imports() {
            if import.take_lost_changes(None) {
                result = result.and(Err(Errno::EIO));
            }
        }
        result
    }

    /// The layout of a regular file; `None` if it has none yet.
    pub(crate) async fn layout_of(&self, inode: &Inode) -> Result<Option<Arc<Layout>>> {
        self.layout_since(inode, 0).await
    }

    /// The same of this generation at least, as attributes say that are not the inode's yet.
    pub(crate) async fn layout_since(
        &self,
        inode: &Inode,
        generation: u32,
    ) -> Result<Option<Arc<Layout>>> {
        {
            // Another client may have chosen other stripes before there was any object.
            let state = lock(&inode.state);
            let known = state.attr.map_or(0, |attr| attr.layout_gen);
            let right = generation.max(known);
            let layout = state.layout.as_ref();
            if let Some(layout) = layout.filter(|layout| right <= layout.generation) {
                return Ok(Some(layout.clone()));
            }
        }
        let fid = inode.fid;
        match Box::pin(self.mdt(fid, MdtRequest::GetStripe { fid })).await?.body {
            MdtReply::Striped { layout, .. } => {
                lock(&inode.state).layout.clone_from(&layout);
                Ok(layout)
            }
            _ => Err(Errno::EPROTO),
        }
    }
}

//! The io_uring transport: one queue per possible CPU, each with its own ring,
//! entries and thread.
//!
//! Started by the session before INIT is answered, because a kernel that was
//! promised io_uring serves nothing until every queue is there. A request comes
//! as the completion of a command; its answer is the next command of the same
//! entry, which also fetches the next request. Answers completed on the queue's
//! own thread wait for the next `io_uring_enter`, which submits them all and
//! waits: one system call a request, or fewer. Answers from other threads go
//! onto a list, and an eventfd that the ring polls wakes the queue if it sleeps.
//! While requests come one soon after the other the queue looks for the next
//! one for a moment before it sleeps (`sateen_polling`).
//!
//! The life of an entry:
//!
//! 1. *with the kernel*: the kernel may write to its header and payload.
//! 2. *out*: a request is being served; the payload is lent to it.
//! 3. *deferred*: answered, but somebody still holds a part of the payload.
//! 4. back to 1 by COMMIT_AND_FETCH; or *dead*, when the connection ends.

use crate::abi::{self, EntInOut, UringHeader, opcode};
use crate::buffer::LoanBuffer;
use crate::classic::{guarded, room};
use crate::decode::decode_parts;
use crate::op::{Op, Request};
use crate::opcode_names::opcode_name;
use crate::reply::{Channel, Reply, copied_of_file};
use crate::session::EndReason;
use crate::{Filesystem, Look};
use bytes::BytesMut;
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode as io_op, types};
use sateen_meter::{Begun, Part, begin};
use sateen_polling::Polling;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of an entry's buffer beyond the payload: room for the answer of a
/// WRITE, whose data takes the payload.
const SPARE: usize = 64;
/// Longest answer that is kept aside while the payload is taken back.
const SMALL_MAX: usize = SPARE;
/// How often a payload that somebody still holds is looked at.
const DEFER_POLL: Duration = Duration::from_micros(100);
/// How long a queue waits for the kernel to give its entries back at the end.
const END_WAIT: Duration = Duration::from_secs(10);
/// Marks the completions of the eventfd's poll.
const WAKE_TOKEN: u64 = u64::MAX;

const CMD_REGISTER: u32 = 1;
const CMD_COMMIT_AND_FETCH: u32 = 2;

thread_local! {
    /// The queue this thread serves.
    static CURRENT: Cell<*const QueueShared> = const { Cell::new(std::ptr::null()) };
}

/// A queue as replies and the session see it.
#[derive(Debug)]
pub(crate) struct QueueShared {
    answers: Mutex<Vec<Answer>>,
    wake: OwnedFd,
    sleeping: AtomicBool,
    stop: AtomicBool,
    /// Entries that are out for as long as people like, and how many may be.
    long_waits: AtomicU32,
    long_waits_max: u32,
}

/// A completed reply.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) entry: u32,
    pub(crate) errno: i32,
    pub(crate) body: BytesMut,
}

impl QueueShared {
    fn new(depth: u32) -> io::Result<QueueShared> {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        Ok(QueueShared {
            answers: Mutex::default(),
            wake: rustix::event::eventfd(0, flags)?,
            sleeping: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            long_waits: AtomicU32::new(0),
            long_waits_max: depth / 2,
        })
    }

    /// One more entry is out for as long as people like, unless too many are: the others could
    /// not do what those wait for.
    pub(crate) fn begins_long_wait(&self) -> bool {
        let one_more = |waits: u32| (waits < self.long_waits_max).then_some(waits + 1);
        self.long_waits.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    pub(crate) fn ends_long_wait(&self) {
        self.long_waits.fetch_sub(1, Ordering::Relaxed);
    }

    /// Hands an answer to the queue.
    pub(crate) fn complete(&self, answer: Answer) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).push(answer);
        if !std::ptr::eq(CURRENT.get(), self) && self.sleeping.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// The connection has ended.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        if let Err(error) = rustix::io::write(&self.wake, &1u64.to_ne_bytes()) {
            tracing::error!(%error, "a queue cannot be woken");
        }
    }

    fn has_answers(&self) -> bool {
        !self.answers.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// Number of queues the kernel wants: one per CPU there may ever be.
pub(crate) fn queue_count() -> io::Result<u16> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<u16>().ok());
    last.and_then(|last| last.checked_add(1)).ok_or(io::ErrorKind::InvalidData.into())
}

/// An answer's bytes while the entry's payload is taken back.
#[derive(Debug)]
enum Body {
    /// In the payload already.
    InPlace(usize),
    Small([u8; SMALL_MAX], usize),
    Elsewhere(BytesMut),
}

/// Where an entry is in its life.
#[derive(Debug)]
enum State {
    WithKernel,
    Out,
    Deferred { errno: i32, body: Body },
    Dead,
}

/// One request slot.
#[derive(Debug)]
struct Entry {
    header: *mut UringHeader,
    payload: LoanBuffer,
    state: State,
    /// The request that it has, and when that came, if it is measured.
    opcode: u32,
    begun: Begun,
}

impl Entry {
    fn new(payload: usize) -> Entry {
        let header = Box::into_raw(Box::new(UringHeader::default()));
        let payload = LoanBuffer::new(payload + SPARE);
        Entry { header, payload, state: State::Dead, opcode: 0, begun: Begun::NEVER }
    }

    /// The header, while the kernel does not write to it.
    fn header(&mut self) -> &mut UringHeader {
        debug_assert!(!matches!(self.state, State::WithKernel));
        // SAFETY: the pointer comes from a Box that lives until `drop`; the
        // kernel writes there only between a submitted command and its
        // completion, when `state` is WithKernel and this is not called; the
        // borrow of `self` excludes other users in this process.
        unsafe { &mut *self.header }
    }

    /// Takes note of an answer; it may be committed once the payload is whole.
    fn answered(&mut self, errno: i32, body: BytesMut) {
        let (start, len) = (self.payload.base() as usize, body.len());
        let at = body.as_ptr() as usize;
        let mut small = [0; SMALL_MAX];
        let body = if at == start {
            Body::InPlace(len)
        } else if let Some(room) = small.get_mut(..len) {
            copied_of_file(self.opcode, len);
            room.copy_from_slice(&body);
            Body::Small(small, len)
        } else if (start..start + self.payload.capacity()).contains(&at) {
            // A later part of the payload itself: it would wait for itself.
            copied_of_file(self.opcode, len);
            Body::Elsewhere(BytesMut::from(&*body))
        } else {
            Body::Elsewhere(body)
        };
        self.state = State::Deferred { errno, body };
    }

    /// Writes the answer where the kernel looks for it; false while somebody
    /// still holds a part of the payload.
    fn prepare_commit(&mut self, payload_max: usize) -> bool {
        let State::Deferred { errno, body } = &self.state else { return false };
        if !self.payload.recover() {
            return false;
        }
        let mut errno = *errno;
        let source: Option<&[u8]> = match body {
            Body::InPlace(_) => None,
            Body::Small(bytes, len) => bytes.get(..*len),
            Body::Elsewhere(bytes) => Some(bytes),
        };
        let mut len = match (body, source) {
            (Body::InPlace(len), _) => *len,
            (_, source) => source.map_or(0, <[u8]>::len),
        };
        if len > payload_max {
            tracing::error!(len, payload_max, "answer larger than the payload");
            (errno, len) = (libc::EIO, 0);
        } else if let (Some(source), Some(room)) = (source, self.payload.memory().get_mut(..len)) {
            copied_of_file(self.opcode, source.len());
            room.copy_from_slice(source);
        }
        let header = self.header();
        let unique = abi::InHeader::read_from_prefix(&header.in_out).map_or(0, |(h, _)| h.unique);
        let out = abi::OutHeader {
            len: (size_of::<abi::OutHeader>() + len) as u32,
            error: -errno,
            unique,
        };
        if let Some(room) = header.in_out.get_mut(..size_of::<abi::OutHeader>()) {
            room.copy_from_slice(out.as_bytes());
        }
        header.ent.payload_sz = if errno == 0 { len as u32 } else { 0 };
        true
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // SAFETY: made by Box::into_raw and dropped once; the queue drops its
        // entries only when none is with the kernel (see `Queue::drop`).
        drop(unsafe { Box::from_raw(self.header) });
    }
}

/// A queue as its own thread has it.
pub(crate) struct Queue {
    ring: IoUring<Entry128, cqueue::Entry>,
    shared: Arc<QueueShared>,
    entries: Vec<Entry>,
    /// Entries in state Deferred whose payload somebody holds.
    deferred: Vec<u32>,
    /// Reused for taking the list of answers.
    spare: Vec<Answer>,
    completions: Vec<(u64, i32, u32)>,
    polling: Polling,
    looker: Option<Box<dyn Look>>,
    id: u16,
    payload_max: usize,
}

impl Queue {
    /// Makes the ring and its buffers; on the thread that will serve it.
    pub(crate) fn new(id: u16, depth: u32, payload: usize, device: &OwnedFd) -> io::Result<Queue> {
        pin(id);
        let mut builder = IoUring::builder();
        builder.setup_cqsize((depth + 2) * 2).setup_submit_all();
        // The kernel's part of a request runs in this thread's own wait, not in
        // whatever it happens to do; other settings measured no better. That there is some is
        // seen in the ring's memory, without a system call.
        builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
        let ring = builder.build(depth + 2)?;
        ring.submitter().register_files(&[device.as_raw_fd()])?;
        let entries = (0..depth).map(|_| Entry::new(payload)).collect();
        Ok(Queue {
            ring,
            shared: Arc::new(QueueShared::new(depth)?),
            entries,
            deferred: Vec::new(),
            spare: Vec::new(),
            completions: Vec::new(),
            polling: Polling::of_process(),
            looker: None,
            id,
            payload_max: payload,
        })
    }

    /// The part that replies and the session use.
    pub(crate) fn shared(&self) -> Arc<QueueShared> {
        self.shared.clone()
    }

    /// Offers every entry to the kernel; at least one must be taken.
    pub(crate) fn register(&mut self) -> io::Result<()> {
        self.arm_wake()?;
        for index in 0..self.entries.len() {
            let Some(entry) = self.entries.get_mut(index) else { break };
            let iov = [
                libc::iovec { iov_base: entry.header.cast(), iov_len: size_of::<UringHeader>() },
                libc::iovec {
                    iov_base: entry.payload.base().cast(),
                    iov_len: entry.payload.capacity(),
                },
            ];
            let sqe = command(self.id, index as u32, CMD_REGISTER, 0, Some(&iov));
            entry.state = State::WithKernel;
            self.push(&sqe)?;
            // The kernel reads the two descriptors while it takes the command.
            self.ring.submit()?;
        }
        self.reap();
        let mut refused = None;
        for (token, result, _) in std::mem::take(&mut self.completions) {
            match self.entries.get_mut(token as usize) {
                Some(entry) if result < 0 => {
                    entry.state = State::Dead;
                    refused = Some(io::Error::from_raw_os_error(-result));
                }
                // A request, already.
                _ => self.completions.push((token, result, 0)),
            }
        }
        match refused {
            Some(error) if self.entries.iter().all(|e| matches!(e.state, State::Dead)) => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Serves requests until the connection ends.
    /// The reader of /dev/fuse knows why it ended, unless this queue failed.
    pub(crate) fn serve(&mut self, fs: &dyn Filesystem) -> Option<EndReason> {
        CURRENT.set(Arc::as_ptr(&self.shared));
        self.looker = fs.looker();
        let result = self.run(fs);
        CURRENT.set(std::ptr::null());
        let error = result.err()?;
        tracing::error!(%error, queue = self.id, "queue failed");
        Some(EndReason::Failed(error.raw_os_error().unwrap_or(libc::EIO)))
    }

    fn run(&mut self, fs: &dyn Filesystem) -> io::Result<()> {
        let mut stopping: Option<Instant> = None;
        loop {
            let mut completions = std::mem::take(&mut self.completions);
            for (token, result, flags) in completions.drain(..) {
                self.completed(fs, token, result, flags)?;
            }
            // Its memory, for those that come next.
            self.completions = completions;
            self.commit_answers()?;
            if self.shared.stop.load(Ordering::SeqCst) {
                let since = *stopping.get_or_insert_with(Instant::now);
                let held = self.entries.iter().any(|e| matches!(e.state, State::WithKernel));
                if !held || since.elapsed() > END_WAIT {
                    return Ok(());
                }
            }
            self.wait(stopping.is_some())?;
        }
    }

    /// Submits what is queued and waits for completions, answers or, if some
    /// payload is still held, a little while.
    fn wait(&mut self, stopping: bool) -> io::Result<()> {
        let idle_since = Instant::now();
        let patient = self.deferred.is_empty() && !stopping;
        if patient && self.polling.is_on() && self.look(idle_since)? {
            return Ok(());
        }
        self.shared.sleeping.store(true, Ordering::SeqCst);
        let want = usize::from(!self.shared.has_answers());
        let waited = if patient {
            self.ring.submit_and_wait(want)
        } else {
            let nap = types::Timespec::from(DEFER_POLL);
            let args = types::SubmitArgs::new().timespec(&nap);
            self.ring.submitter().submit_with_args(want, &args)
        };
        self.shared.sleeping.store(false, Ordering::SeqCst);
        unless_transient(waited)?;
        self.reap();
        self.polling.waited(idle_since.elapsed());
        Ok(())
    }

    /// Submits what is queued, and looks for completions and answers for a moment. Whoever
    /// completes an answer meanwhile need not wake anybody.
    fn look(&mut self, idle_since: Instant) -> io::Result<bool> {
        unless_transient(self.ring.submit())?;
        let Queue { ring, shared, completions, polling, looker, .. } = self;
        // Where others want the processor those are kept waiting who rely on this thread's looking.
        let mut looker = match looker {
            Some(looker) if !polling.is_crowded() => looker.begin().then_some(looker),
            _ => None,
        };
        let found = polling.look(idle_since, || {
            if let Some(looker) = &mut looker {
                unless_it_panics(|| looker.look());
            }
            if ring.submission().taskrun() {
                unless_transient(ring.submit())?;
            }
            completions.extend(ring.completion().map(completion));
            Ok(!completions.is_empty() || shared.has_answers())
        });
        if let Some(looker) = looker {
            unless_it_panics(|| looker.end());
        }
        Ok(found? || shared.has_answers())
    }

    fn reap(&mut self) {
        self.completions.extend(self.ring.completion().map(completion));
    }

    fn completed(
        &mut self,
        fs: &dyn Filesystem,
        token: u64,
        result: i32,
        flags: u32,
    ) -> io::Result<()> {
        if token == WAKE_TOKEN {
            return if cqueue::more(flags) { Ok(()) } else { self.arm_wake() };
        }
        let index = token as u32;
        let Some(entry) = self.entries.get_mut(index as usize) else { return Ok(()) };
        if result < 0 {
            // ENOTCONN and its like: the connection has ended. ENOENT: the
            // request is gone, and the kernel has dropped the entry with it.
            entry.state = State::Dead;
            if !matches!(-result, libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED) {
                let error = io::Error::from_raw_os_error(-result);
                tracing::error!(%error, queue = self.id, index, "entry lost");
            }
            return Ok(());
        }
        entry.state = State::Out;
        entry.begun = begin(Part::Fuse);
        if let Some((request, reply)) = receive(&self.shared, entry, index, self.payload_max) {
            guarded(fs, request, reply);
        }
        Ok(())
    }

    /// Queues the commit of every answer whose payload is free.
    fn commit_answers(&mut self) -> io::Result<()> {
        let mut answers = std::mem::take(&mut self.spare);
        {
            let mut list = self.shared.answers.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::swap(&mut *list, &mut answers);
        }
        for answer in answers.drain(..) {
            if let Some(entry) = self.entries.get_mut(answer.entry as usize) {
                entry.answered(answer.errno, answer.body);
                self.deferred.push(answer.entry);
            }
        }
        self.spare = answers;
        let mut at = 0;
        while let Some(index) = self.deferred.get(at).copied() {
            let ready = match self.entries.get_mut(index as usize) {
                Some(entry) => entry.prepare_commit(self.payload_max),
                None => false,
            };
            if ready {
                self.deferred.swap_remove(at);
                self.commit(index)?;
            } else {
                at += 1;
            }
        }
        Ok(())
    }

    fn commit(&mut self, index: u32) -> io::Result<()> {
        let Some(entry) = self.entries.get_mut(index as usize) else { return Ok(()) };
        let commit_id = entry.header().ent.commit_id;
        entry.state = State::WithKernel;
        let opcode = entry.opcode;
        entry.begun.end(Part::Fuse, || opcode_name(opcode));
        let sqe = command(self.id, index, CMD_COMMIT_AND_FETCH, commit_id, None);
        self.push(&sqe)
    }

    fn arm_wake(&mut self) -> io::Result<()> {
        let fd = types::Fd(self.shared.wake.as_fd().as_raw_fd());
        let poll = io_op::PollAdd::new(fd, libc::POLLIN as u32).multi(true).build();
        self.push(&Entry128::from(poll.user_data(WAKE_TOKEN)))
    }

    fn push(&mut self, sqe: &Entry128) -> io::Result<()> {
        // SAFETY: commands refer to an entry's header and payload, which live
        // until the queue is dropped, which is when none is with the kernel;
        // the poll refers to the eventfd, which `shared` keeps open.
        let pushed = unsafe { self.ring.submission().push(sqe) };
        if pushed.is_ok() {
            return Ok(());
        }
        // Full only if the kernel left something of the last submission.
        self.ring.submit()?;
        // SAFETY: as above.
        unsafe { self.ring.submission().push(sqe) }.map_err(io::Error::other)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.entries.iter().any(|entry| matches!(entry.state, State::WithKernel)) {
            // The kernel may still write there: better lost than reused.
            tracing::error!(queue = self.id, "buffers left to the kernel");
            std::mem::take(&mut self.entries).into_iter().for_each(std::mem::forget);
        }
    }
}

/// A panic costs what was looked for, and not this thread, without which others would hang.
fn unless_it_panics(look: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(look)).is_err() {
        tracing::error!("who looks for answers panicked");
    }
}

/// What of a completion is used.
fn completion(cqe: cqueue::Entry) -> (u64, i32, u32) {
    (cqe.user_data(), cqe.result(), cqe.flags())
}

/// Whatever has kept the kernel from all that it was asked for goes on at the next time.
fn unless_transient(entered: io::Result<usize>) -> io::Result<()> {
    match entered.map_err(|error| error.raw_os_error()) {
        Ok(_) | Err(Some(libc::EINTR | libc::ETIME | libc::EAGAIN | libc::EBUSY)) => Ok(()),
        Err(code) => Err(io::Error::from_raw_os_error(code.unwrap_or(libc::EIO))),
    }
}

/// Decodes the request in `entry`; what cannot be served is answered here.
fn receive(
    shared: &Arc<QueueShared>,
    entry: &mut Entry,
    index: u32,
    payload_max: usize,
) -> Option<(Request, Reply)> {
    let (header, arg, payload_len) = {
        let header = entry.header();
        let in_header = abi::InHeader::read_from_prefix(&header.in_out);
        let in_header = in_header.map(|(header, _)| header).unwrap_or_default();
        (in_header, header.op_in, header.ent.payload_sz as usize)
    };
    entry.opcode = header.opcode;
    let refuse = |errno| shared.complete(Answer { entry: index, errno, body: BytesMut::new() });
    if payload_len > payload_max {
        tracing::error!(payload_len, "payload longer than its buffer");
        refuse(libc::EIO);
        return None;
    }
    let payload = entry.payload.memory().get(..payload_len).unwrap_or_default();
    let decoded = match decode_parts(&header, &arg, payload) {
        Ok(decoded) => decoded,
        Err(error) => {
            if error.errno() != libc::ENOSYS {
                tracing::error!(%error, payload_len, "request not understood");
            }
            refuse(error.errno());
            return None;
        }
    };
    let mut request = decoded.request;
    let mut lent = entry.payload.lend();
    if let (Op::Write { data, .. }, Some(len)) = (&mut request.op, decoded.write_len) {
        let rest = lent.split_off(payload_max);
        lent.truncate(len);
        *data = std::mem::replace(&mut lent, rest).freeze();
    }
    let channel = Channel::Ring { queue: shared.clone(), entry: index, buffer: Some(lent) };
    debug_assert!(header.opcode != opcode::FORGET);
    let reply = Reply::new(request.unique, header.opcode, room(&request.op), channel);
    Some((request, reply))
}

/// A command for the kernel's FUSE device; REGISTER comes with the two pieces
/// of an entry's memory.
fn command(
    queue: u16,
    index: u32,
    op: u32,
    commit_id: u64,
    iov: Option<&[libc::iovec; 2]>,
) -> Entry128 {
    /// Where a submission entry has the number of its iovecs, a u32.
    const LEN_AT: usize = 24;
    const { assert!(size_of::<Entry128>() == 128) };
    let request = abi::UringCmdReq { flags: 0, commit_id, qid: queue, padding: [0; 6] };
    let mut area = [0; 80];
    area.iter_mut().zip(request.as_bytes()).for_each(|(to, from)| *to = *from);
    let mut sqe = io_op::UringCmd80::new(types::Fixed(0), op)
        .cmd(area)
        .addr(iov.map(|iov| iov.as_ptr() as u64))
        .build()
        .user_data(u64::from(index));
    if let Some(iov) = iov {
        let bytes = std::ptr::from_mut(&mut sqe).cast::<u8>();
        // SAFETY: Entry128 is the kernel's 128-byte submission entry, which has
        // `len` (u32, any bits are valid) there; the library has no setter for it.
        unsafe { bytes.add(LEN_AT).cast::<u32>().write_unaligned(iov.len() as u32) };
    }
    sqe
}

/// Binds the thread to its CPU, for speed alone; one that is offline has no requests either.
fn pin(cpu: u16) {
    let mut set = rustix::thread::CpuSet::new();
    if usize::from(cpu) < rustix::thread::CpuSet::MAX_CPU {
        set.set(usize::from(cpu));
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}

const _: () = assert!(size_of::<EntInOut>() == 32 && size_of::<UringHeader>() == 288);

//! The answer to one request: owned, completed exactly once, from any thread.
//!
//! Made by the transports, consumed by file systems. A reply that is dropped
//! unanswered tells the kernel EIO, so that no process waits for ever.
use crate::abi::{self, opcode};
use crate::attr::{Attr, EntryOut, StatfsOut, Time};
use crate::backing::Backing;
use crate::buffer::LoanBuffer;
use crate::classic::Device;
use crate::dir::DirBuffer;
use crate::op::FileLock;
use crate::opcode_names::opcode_name;
use crate::open_flags;
use crate::ring::{Answer, QueueShared};
use bytes::BytesMut;
use sateen_meter::{Begun, Part};
use sateen_types::{Copied, copied};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use zerocopy::IntoBytes;

/// The answer to one request. Every method that consumes it completes it.
#[must_use = "an unanswered request gets EIO"]
#[derive(Debug)]
pub struct Reply {
    unique: u64,
    opcode: u32,
    /// Most bytes the kernel takes as data.
    room: usize,
    channel: Channel,
}

/// Where the answer goes.
#[derive(Debug)]
pub(crate) enum Channel {
    /// Nowhere: the kernel expects none, or it is given.
    None,
    /// To /dev/fuse, written at once.
    Classic { device: Arc<Device>, lease: Option<LoanBuffer>, begun: Begun },
    /// To a queue of the io_uring transport; `buffer` is what is left of the
    /// entry's payload.
    Ring { queue: Arc<QueueShared>, entry: u32, buffer: Option<BytesMut> },
    /// To the one in the cell, unless the answer was given from elsewhere: [`Reply::revocable`].
    Revocable(Arc<Mutex<Channel>>),
    /// To whoever called [`Reply::capture`].
    Capture(Arc<Mutex<Option<Captured>>>),
}

/// The way to answer a request before the one who works on it does.
#[derive(Debug, Clone)]
pub struct Revoker {
    unique: u64,
    opcode: u32,
    cell: Arc<Mutex<Channel>>,
}

impl Revoker {
    /// Answers with an error, unless the request is answered already, or the one who works on
    /// it is about to. False if so.
    pub fn revoke(&self, errno: i32) -> bool {
        let channel = take(&self.cell);
        if matches!(channel, Channel::None) {
            return false;
        }
        Reply::new(self.unique, self.opcode, 0, channel).error(errno);
        true
    }
}

/// An answer that may take for as long as people like: [`Reply::waits_long`].
#[derive(Debug)]
pub struct LongWait(Option<Arc<QueueShared>>);

impl Drop for LongWait {
    fn drop(&mut self) {
        if let Some(queue) = &self.0 {
            queue.ends_long_wait();
        }
    }
}

fn take(cell: &Mutex<Channel>) -> Channel {
    std::mem::replace(&mut cell.lock().unwrap_or_else(PoisonError::into_inner), Channel::None)
}

/// What a reply made by [`Reply::capture`] was completed with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// 0, or the errno.
    pub errno: i32,
    /// The answer's bytes as the kernel would get them, without the header.
    pub body: Vec<u8>,
}

impl Reply {
    pub(crate) fn new(unique: u64, opcode: u32, room: usize, channel: Channel) -> Reply {
        Reply { unique, opcode, room, channel }
    }

    /// A reply without a kernel, for tests of file systems: what it is
    /// completed with appears in the cell. `room` is the size the request asks
    /// for, in bytes.
    pub fn capture(room: usize) -> (Reply, Arc<Mutex<Option<Captured>>>) {
        let cell = Arc::new(Mutex::new(None));
        (Reply::new(1, 0, room, Channel::Capture(cell.clone())), cell)
    }

    /// The kernel's number of the request.
    pub fn unique(&self) -> u64 {
        self.unique
    }

    /// The number of the operation in the kernel's protocol: [`crate::opcode_name`].
    pub fn opcode(&self) -> u32 {
        self.opcode
    }

    /// Whether the data of a WRITE lies in memory that the answer gives back to the kernel.
    pub fn lends_payload(&self) -> bool {
        matches!(self.channel, Channel::Ring { .. })
    }

    /// Whether whoever waits for the answer may get a signal without an INTERRUPT that tells of it.
    /// Over io_uring the kernel sends none for a signal that comes between giving the request to a
    /// queue and the moment in which the queue's thread takes it.
    pub fn may_miss_interrupts(&self) -> bool {
        matches!(self.channel, Channel::Ring { .. })
    }

    /// The answer may take for as long as people like, and needs no room. Over io_uring it holds
    /// one of the entries of its processor meanwhile, so that there can be half as many as entries:
    /// `None` if there are. To be kept until the answer is given.
    pub fn waits_long(&mut self) -> Option<LongWait> {
        match &mut self.channel {
            Channel::Ring { queue, .. } => {
                queue.begins_long_wait().then(|| LongWait(Some(queue.clone())))
            }
            Channel::Classic { device, lease, .. } => {
                device.pool.put(lease.take());
                Some(LongWait(None))
            }
            _ => Some(LongWait(None)),
        }
    }

    /// Allows that the request is answered from elsewhere before this reply is completed, which
    /// then does nothing. It lends none of the transport's memory that the answer gives back to
    /// the kernel ([`Reply::take_buffer`]). `spare` is of a request that was answered: its memory is
    /// used again, if nobody else has it still.
    pub fn revocable(mut self, spare: Option<Revoker>) -> (Reply, Revoker) {
        let unused = spare.map(|spare| spare.cell).filter(|cell| Arc::strong_count(cell) == 1);
        let cell = unused.unwrap_or_else(|| Arc::new(Mutex::new(Channel::None)));
        let channel = std::mem::replace(&mut self.channel, Channel::Revocable(cell.clone()));
        *cell.lock().unwrap_or_else(PoisonError::into_inner) = channel;
        let revoker = Revoker { unique: self.unique, opcode: self.opcode, cell };
        (self, revoker)
    }

    /// From here on nobody else answers the request; `None` if somebody has. For those who
    /// must not take back what the kernel was not told of.
    pub fn claim(mut self) -> Option<Reply> {
        if let Channel::Revocable(cell) = &self.channel {
            self.channel = take(cell);
            if matches!(self.channel, Channel::None) {
                return None;
            }
        }
        Some(self)
    }

    /// Failed. `errno` is positive; anything else becomes EIO.
    pub fn error(self, errno: i32) {
        // The kernel rejects values from 512 on.
        let errno = if (1..512).contains(&errno) { errno } else { libc::EIO };
        self.send(errno, &[]);
    }

    /// Done; there is nothing to tell.
    pub fn ok(self) {
        self.send(0, &[]);
    }

    /// A name's inode: LOOKUP, MKDIR, MKNOD, SYMLINK, LINK.
    pub fn entry(self, entry: &EntryOut) {
        self.send(0, &[entry.wire().as_bytes()]);
    }

    /// The name does not exist, and may be cached as such for `valid`.
    pub fn no_entry(self, valid: Duration) {
        if valid.is_zero() {
            return self.error(libc::ENOENT);
        }
        self.entry(&EntryOut { entry_valid: valid, ..EntryOut::default() });
    }

    /// Attributes that the kernel may cache for `valid`: GETATTR, SETATTR.
    pub fn attr(self, attr: &Attr, valid: Duration) {
        self.send(0, &[attr.wire_out(valid).as_bytes()]);
    }

    /// Attributes and the time of creation: STATX.
    pub fn statx(self, attr: &Attr, btime: Option<Time>, valid: Duration) {
        self.send(0, &[attr.wire_statx(valid, btime).as_bytes()]);
    }

    /// An open file or directory; `flags` are [`crate::open_flags`].
    pub fn opened(self, fh: u64, flags: u32) {
        self.send(0, &[abi::OpenOut { fh, open_flags: flags, backing_id: 0 }.as_bytes()]);
    }

    /// A new file and its open handle: CREATE, TMPFILE.
    pub fn created(self, entry: &EntryOut, fh: u64, flags: u32) {
        let open = abi::OpenOut { fh, open_flags: flags, backing_id: 0 };
        self.send(0, &[entry.wire().as_bytes(), open.as_bytes()]);
    }

    /// An open file that the kernel reads and writes itself. `backing` has to live until the
    /// RELEASE: the program's own thread looks for it after the answer has been given.
    pub fn opened_backed(self, fh: u64, flags: u32, backing: &Backing) {
        self.send(0, &[open_backed(fh, flags, backing).as_bytes()]);
    }

    /// A new file likewise: CREATE, TMPFILE.
    pub fn created_backed(self, entry: &EntryOut, fh: u64, flags: u32, backing: &Backing) {
        let open = open_backed(fh, flags, backing);
        self.send(0, &[entry.wire().as_bytes(), open.as_bytes()]);
    }

    /// The transport's own buffer, `len` bytes long with arbitrary content:
    /// fill it, cut off what was not filled, and give it to [`Reply::data`],
    /// and the bytes travel without another copy. Drop it before completing
    /// the reply in any other way.
    pub fn take_buffer(&mut self, len: usize) -> BytesMut {
        let lent = match &mut self.channel {
            Channel::Classic { device, lease, .. } if lease.is_none() => {
                let mut buffer = device.pool.take();
                let lent = buffer.lend();
                *lease = Some(buffer);
                lent
            }
            Channel::Ring { buffer, .. } => buffer.take().unwrap_or_default(),
            // Of one that may be answered from elsewhere: the memory is nobody else's.
            _ => BytesMut::new(),
        };
        fit(lent, len)
    }

    /// The same, empty, with room for `len` bytes.
    pub fn take_room(&mut self, len: usize) -> BytesMut {
        if matches!(self.channel, Channel::Revocable(_)) {
            return BytesMut::with_capacity(len);
        }
        let mut buffer = self.take_buffer(len);
        buffer.clear();
        buffer
    }

    /// The data of a READ, READLINK or ioctl; at most what was asked for.
    pub fn data(self, mut data: BytesMut) {
        let Some(mut reply) = self.claim() else { return };
        data.truncate(reply.room);
        reply.complete_with(data);
    }

    fn complete_with(&mut self, data: BytesMut) {
        match std::mem::replace(&mut self.channel, Channel::None) {
            Channel::Classic { device, lease, begun } => {
                device.answer(self.unique, 0, &[&data]);
                begun.end(Part::Fuse, || opcode_name(self.opcode));
                drop(data);
                device.pool.put(lease);
            }
            // The buffer was taken: most likely this is it.
            Channel::Ring { queue, entry, buffer: None } => {
                queue.complete(Answer { entry, errno: 0, body: data });
            }
            channel => {
                self.channel = channel;
                self.complete(0, &[&data]);
            }
        }
    }

    /// Like [`Reply::data`] for bytes that lie elsewhere; one more copy on
    /// io_uring. An attribute's value longer than was asked for becomes ERANGE.
    pub fn bytes(self, data: &[u8]) {
        let xattr = matches!(self.opcode, opcode::GETXATTR | opcode::LISTXATTR);
        match data.get(..self.room) {
            Some(cut) if cut.len() < data.len() && xattr => self.error(libc::ERANGE),
            Some(cut) => self.send(0, &[cut]),
            None => self.send(0, &[data]),
        }
    }

    /// How many bytes a WRITE took.
    pub fn written(self, size: u32) {
        self.send(0, &[abi::WriteOut { size, padding: 0 }.as_bytes()]);
    }

    /// How many bytes were copied: COPY_FILE_RANGE.
    pub fn copied(self, bytes: u64) {
        match self.opcode {
            opcode::COPY_FILE_RANGE_64 => self.send(0, &[abi::CopyOut { bytes }.as_bytes()]),
            _ => self.written(u32::try_from(bytes).unwrap_or(u32::MAX)),
        }
    }

    /// Statistics of the file system.
    pub fn statfs(self, statfs: &StatfsOut) {
        self.send(0, &[statfs.wire().as_bytes()]);
    }

    /// Length of an attribute's value or of the list of names, asked for with
    /// size 0.
    pub fn xattr_size(self, size: u32) {
        self.send(0, &[abi::GetxattrOut { size, padding: 0 }.as_bytes()]);
    }

    /// Where data or the hole begins.
    pub fn lseek(self, offset: u64) {
        self.send(0, &[abi::LseekOut { offset }.as_bytes()]);
    }

    /// The lock in the way; F_UNLCK if none.
    pub fn lk(self, lock: &FileLock) {
        let FileLock { start, end, kind, pid } = *lock;
        self.send(0, &[abi::LockWire { start, end, kind, pid }.as_bytes()]);
    }

    /// The result of an ioctl and the bytes it gives back.
    pub fn ioctl(self, result: i32, data: &[u8]) {
        let head = abi::IoctlOut { result, ..abi::IoctlOut::default() };
        self.send(0, &[head.as_bytes(), data]);
    }

    /// An empty buffer for directory entries as large as was asked for.
    pub fn dir_buffer(&mut self) -> DirBuffer {
        let room = self.room;
        DirBuffer::over(self.take_buffer(room), room)
    }

    /// The entries of READDIR and READDIRPLUS; none at the end.
    pub fn directory(self, entries: DirBuffer) {
        self.data(entries.into_bytes());
    }

    fn send(mut self, errno: i32, parts: &[&[u8]]) {
        self.complete(errno, parts);
    }

    fn complete(&mut self, errno: i32, parts: &[&[u8]]) {
        match std::mem::replace(&mut self.channel, Channel::None) {
            Channel::None => {}
            Channel::Revocable(cell) => {
                self.channel = take(&cell);
                self.complete(errno, parts);
            }
            Channel::Classic { device, lease, begun } => {
                device.answer(self.unique, errno, parts);
                begun.end(Part::Fuse, || opcode_name(self.opcode));
                device.pool.put(lease);
            }
            Channel::Ring { queue, entry, buffer } => {
                let mut body = buffer.unwrap_or_default();
                body.clear();
                for part in parts {
                    copied_of_file(self.opcode, part.len());
                    body.extend_from_slice(part);
                }
                queue.complete(Answer { entry, errno, body });
            }
            Channel::Capture(cell) => {
                let captured = Captured { errno, body: parts.concat() };
                *cell.lock().unwrap_or_else(PoisonError::into_inner) = Some(captured);
            }
        }
    }
}

/// An answer was copied, of which what a READ has is bytes of a file.
pub(crate) fn copied_of_file(number: u32, bytes: usize) {
    if number == opcode::READ {
        copied(Copied::FuseAnswer, bytes);
    }
}

fn open_backed(fh: u64, flags: u32, backing: &Backing) -> abi::OpenOut {
    abi::OpenOut { fh, open_flags: flags | open_flags::PASSTHROUGH, backing_id: backing.id() }
}

/// `lent` if it is large enough, else fresh memory; `len` bytes long.
fn fit(mut lent: BytesMut, len: usize) -> BytesMut {
    if lent.len() < len {
        return BytesMut::zeroed(len);
    }
    lent.truncate(len);
    lent
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Channel::Revocable(cell) = &self.channel {
            self.channel = take(cell);
        }
        if !matches!(self.channel, Channel::None) {
            let (unique, opcode) = (self.unique, self.opcode);
            tracing::error!(unique, opcode, "request dropped without an answer");
            self.complete(libc::EIO, &[]);
        }
    }
}

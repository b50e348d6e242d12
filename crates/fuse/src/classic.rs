//! The classic transport: threads that read requests from /dev/fuse, and
//! answers written back to it.
//!
//! Run by the session; with io_uring one such thread remains, for FORGET and
//! INTERRUPT: it waits a little after each FORGET, so that the kernel hands over
//! many at once. Each thread has its own clone of the device, so that the kernel's
//! lists of requests in flight are not shared.
use crate::Filesystem;
use crate::abi::{self, opcode};
use crate::buffer::LoanBuffer;
use crate::decode::{DecodeError, decode_contiguous};
use crate::notify::write_message;
use crate::op::{Op, Request};
use crate::reply::{Channel, Reply};
use crate::session::EndReason;
use bytes::Buf;
use rustix::io::Errno;
use sateen_meter::{Part, begin};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use zerocopy::FromBytes;

/// Most read buffers of one thread that may be lent at once; more are dropped
/// and made anew.
const LENT_MAX: usize = 4;
/// So many bytes of them, unless that is less than one.
const LENT_BYTES_MAX: usize = 8 << 20;
/// Most reply buffers kept for reuse.
const POOL_MAX: usize = 32;
/// So many bytes of them, unless that is less than one for each of a few threads.
const POOL_BYTES_MAX: usize = 64 << 20;
const POOL_LARGE_MIN: usize = 4;

/// Bytes of a WRITE before its data.
const BEFORE_DATA: usize = size_of::<abi::InHeader>() + size_of::<abi::WriteIn>();

/// How long FORGETs are left to gather, where nothing that anybody waits for comes
/// this way: only an INTERRUPT may be as late.
const GATHER: Duration = Duration::from_millis(2);

/// One open /dev/fuse.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) fd: Arc<OwnedFd>,
    pub(crate) pool: Arc<Pool>,
}

/// Buffers for the data of READs, shared by a mount's threads.
#[derive(Debug)]
pub(crate) struct Pool {
    capacity: usize,
    free: Mutex<Vec<LoanBuffer>>,
}

impl Pool {
    pub(crate) fn new(capacity: usize) -> Pool {
        Pool { capacity, free: Mutex::new(Vec::new()) }
    }

    pub(crate) fn take(&self) -> LoanBuffer {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.unwrap_or_else(|| LoanBuffer::new(self.capacity))
    }

    pub(crate) fn put(&self, buffer: Option<LoanBuffer>) {
        let Some(mut buffer) = buffer else { return };
        if buffer.recover() {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            let fit = (POOL_BYTES_MAX / self.capacity.max(1)).max(POOL_LARGE_MIN);
            if free.len() < fit.min(POOL_MAX) {
                free.push(buffer);
            }
        }
    }
}

impl Device {
    /// Opens /dev/fuse.
    pub(crate) fn open() -> std::io::Result<File> {
        File::options().read(true).write(true).open("/dev/fuse")
    }

    /// Another file for the same connection.
    pub(crate) fn clone_of(first: &OwnedFd) -> std::io::Result<OwnedFd> {
        /// FUSE_DEV_IOC_CLONE: _IOR(229, 0, u32).
        const CLONE: libc::c_ulong = 0x8004_e500;
        let clone = OwnedFd::from(Device::open()?);
        let source = first.as_raw_fd().cast_unsigned();
        // SAFETY: the request reads one u32, which `source` is.
        let done = unsafe { libc::ioctl(clone.as_raw_fd(), CLONE, &raw const source) };
        if done < 0 { Err(std::io::Error::last_os_error()) } else { Ok(clone) }
    }

    /// Writes the answer to a request.
    pub(crate) fn answer(&self, unique: u64, errno: i32, parts: &[&[u8]]) {
        match write_message(self.fd.as_ref(), unique, -errno, parts) {
            // The request was interrupted, or the connection is gone.
            Ok(()) | Err(Errno::NOENT | Errno::NODEV | Errno::NOTCONN) => {}
            Err(error) => tracing::warn!(unique, errno, %error, "answer refused by the kernel"),
        }
    }
}

/// Serves requests until the connection ends, and says why it did. With `forgets` they
/// are FORGETs and INTERRUPTs alone.
pub(crate) fn serve(
    device: &Arc<Device>,
    fs: &dyn Filesystem,
    capacity: usize,
    forgets: bool,
) -> EndReason {
    let mut buffer = LoanBuffer::behind(BEFORE_DATA, capacity);
    let mut lent: Vec<LoanBuffer> = Vec::new();
    let lent_max = (LENT_BYTES_MAX / capacity.max(1)).clamp(1, LENT_MAX);
    loop {
        let len = match rustix::io::read(device.fd.as_ref(), buffer.memory()) {
            Ok(len) => len,
            // ENOENT: the request was withdrawn while it was being read.
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => continue,
            Err(Errno::NODEV) => return EndReason::Unmounted,
            Err(Errno::CONNABORTED) => return EndReason::Aborted,
            Err(error) => return EndReason::Failed(error.raw_os_error()),
        };
        let mut gathers = false;
        if let Some((request, reply)) = receive(device, &mut buffer, len) {
            gathers = forgets && matches!(request.op, Op::Forget { .. } | Op::BatchForget { .. });
            guarded(fs, request, reply);
        }
        if gathers {
            std::thread::sleep(GATHER);
        }
        if !buffer.recover() {
            let next = match lent.iter_mut().position(LoanBuffer::recover) {
                Some(found) => lent.swap_remove(found),
                None => LoanBuffer::behind(BEFORE_DATA, capacity),
            };
            lent.push(std::mem::replace(&mut buffer, next));
            if lent.len() > lent_max {
                lent.remove(0);
            }
        }
    }
}

/// Dispatches; a panic of the file system costs one request (its reply answers
/// EIO when it is dropped) and not the thread, without which others would hang.
pub(crate) fn guarded(fs: &dyn Filesystem, request: Request, reply: Reply) {
    let unique = request.unique;
    let run = AssertUnwindSafe(|| fs.dispatch(request, reply));
    if std::panic::catch_unwind(run).is_err() {
        tracing::error!(unique, "the file system panicked");
    }
}

/// Decodes the message of `len` bytes in `buffer`; what cannot be served is
/// answered here.
fn receive(device: &Arc<Device>, buffer: &mut LoanBuffer, len: usize) -> Option<(Request, Reply)> {
    let begun = begin(Part::Fuse);
    let message = buffer.memory().get(..len).unwrap_or_default();
    let (decoded, payload) = match decode_contiguous(message) {
        Ok(decoded) => decoded,
        Err(error) => {
            refuse(device, message, error);
            return None;
        }
    };
    let op = abi::InHeader::read_from_prefix(message).map_or(0, |(header, _)| header.opcode);
    let mut request = decoded.request;
    if let (Op::Write { data, .. }, Some(write_len)) = (&mut request.op, decoded.write_len) {
        let mut lent = buffer.lend();
        lent.advance(payload.min(lent.len()));
        lent.truncate(write_len);
        *data = lent.freeze();
    }
    let channel = match op {
        opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => Channel::None,
        _ => Channel::Classic { device: device.clone(), lease: None, begun },
    };
    let reply = Reply::new(request.unique, op, room(&request.op), channel);
    Some((request, reply))
}

/// Most bytes of data in the answer to an operation.
pub(crate) fn room(op: &Op) -> usize {
    match op {
        Op::Read { size, .. }
        | Op::Readdir { size, .. }
        | Op::Readdirplus { size, .. }
        | Op::Getxattr { size, .. }
        | Op::Listxattr { size, .. } => *size as usize,
        Op::Ioctl { arg, .. } => arg.out_size as usize,
        Op::Readlink { .. } => abi::NAME_MAX - 1,
        _ => 0,
    }
}

fn refuse(device: &Device, message: &[u8], error: DecodeError) {
    if !matches!(error, DecodeError::Unsupported { .. }) {
        tracing::error!(%error, len = message.len(), "request not understood");
    }
    let Ok((header, _)) = abi::InHeader::read_from_prefix(message) else { return };
    // A FORGET expects no answer even when it is broken.
    if !matches!(header.opcode, opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT) {
        device.answer(header.unique, error.errno(), &[]);
    }
}

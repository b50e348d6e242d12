//! `Read`: bytes of an object into the reader's buffer. What was never written reads as
//! nothing; the reader knows the file's size and fills up with zeros.

use bytes::{Buf as _, BytesMut};
use sateen_osd::{ObjectDone, ObjectOp};
use sateen_target::Fault;
use sateen_types::{DIRECT_ALIGN, Errno, suits_direct, to_direct_align};
use sateen_wire::{BULK_MAX, Bulk, OstReply, OstRequest};

use super::{OBJECT_BYTES_MAX, unexpected};
use crate::op::{Op, Step, Work, good};
use crate::ost::Ost;

/// Most bytes of buffers for readers who bring none; further ones wait.
const READ_BUFFERS_MAX: usize = 256 << 20;

pub(super) fn begin(ost: &mut Ost, op: &mut Op) -> Result<Step, Fault> {
    let Work::Request { header, request, bulk } = &mut op.work else { return Err(unexpected()) };
    let OstRequest::Read { object, offset, len } = *request else { return Err(unexpected()) };
    let beyond = OBJECT_BYTES_MAX.checked_sub(offset).ok_or(Fault::Errno(Errno::EINVAL))?;
    // No object reaches further.
    let len = (len as usize).min(usize::try_from(beyond).unwrap_or(usize::MAX));
    if len > BULK_MAX {
        return Err(Fault::Errno(Errno::EINVAL));
    }
    let direct = header.direct && suits_direct(offset, len);
    // The bulk keeps its kind, so that the answer goes back in the same shape.
    let buffer = match bulk {
        Bulk::Buffer(buffer) => core::mem::take(buffer),
        Bulk::None => {
            if ost.buffered > 0 && ost.buffered + len > READ_BUFFERS_MAX {
                return Err(Fault::Blocked);
            }
            ost.buffered += len;
            op.buffered = len;
            if direct { aligned(len) } else { BytesMut::with_capacity(len) }
        }
        Bulk::Data(_) => return Err(Fault::Errno(Errno::EPROTO)),
    };
    Ok(Step::Io(ObjectOp::Read { object, offset, len, buffer, direct }))
}

/// A buffer as a read past the page cache wants it.
fn aligned(len: usize) -> BytesMut {
    let mut buffer = BytesMut::with_capacity(len + DIRECT_ALIGN);
    let skip = to_direct_align(buffer.as_ptr().addr());
    buffer.resize(skip, 0);
    buffer.advance(skip);
    buffer
}

pub(super) fn done(op: &mut Op, done: ObjectDone) -> Result<Step, Fault> {
    let ObjectDone::Read { buffer, len } = done else { return Err(unexpected()) };
    let len = u32::try_from(len).map_err(|_| unexpected())?;
    let bulk = match &op.work {
        Work::Request { bulk: Bulk::Buffer(_), .. } => Bulk::Buffer(buffer),
        _ => Bulk::Data(buffer.freeze()),
    };
    Ok(Step::Answer(good(OstReply::Read { len }, 0), bulk))
}

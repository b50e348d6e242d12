//! Typed requests to OSTs. The grants that go with writes are [`crate::grants`]'s.

use bytes::{Bytes, BytesMut};
use sateen_types::{Endpoint, Errno, ObjectId, Result, Timespec};
use sateen_wire::{Bulk, ObjectAttr, OstReply, OstRequest, Reply, ReplyBody, Request, Span, Spans};

use crate::client::Client;
use crate::import::{Answer, Call, WAITED_FOR};

/// How data goes to an OST.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Passage {
    /// The era in which the lock was taken that allows it.
    pub(crate) era: u64,
    /// Past the OST's page cache, if that can be.
    pub(crate) direct: bool,
}

/// Where data goes in an object.
#[derive(Debug, Clone)]
pub(crate) enum Places {
    /// All of it from here on.
    At(u64),
    /// In pieces, which it has one behind the other.
    Pieces(Spans),
}

impl Places {
    /// The ranges (offset, length) of so much of the data from its beginning.
    pub(crate) fn ranges(&self, len: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let (one, many) = match self {
            Places::At(offset) => (Some((*offset, len)), &[][..]),
            Places::Pieces(spans) => (None, &spans[..]),
        };
        let mut left = len;
        one.into_iter().chain(many.iter().map(Span::range)).map_while(move |(offset, len)| {
            let some = len.min(left);
            left -= some;
            (some > 0).then_some((offset, some))
        })
    }
}

impl Client {
    /// The answer, with the OST's boot epoch when it gave it.
    async fn ost(
        &self,
        index: u32,
        request: OstRequest,
        (bulk, direct): (Bulk, bool),
        era: Option<u64>,
    ) -> Result<(OstReply, Bulk, u64)> {
        let import = self.ost_import(index).await?;
        let request = Request::Ost(request);
        let called = request.called();
        let call = Call { request, bulk, direct };
        let port = self.port.as_ref();
        let call = import.call(port, call, WAITED_FOR, (|| 0, false), era);
        let Answer { reply, bulk, boot_epoch, .. } = call.await?;
        match (reply.error, reply.body) {
            (Some(errno), _) => Err(errno),
            (None, ReplyBody::Ost(body)) => Ok((body, bulk, boot_epoch)),
            (None, _) => {
                tracing::error!(ost = index, request = called, "an answer of another kind");
                Err(Errno::EPROTO)
            }
        }
    }

    /// Waits until there is room for what is to be synced at an OST, if it is in use.
    ///
    /// # Errors
    /// `EINTR` if nobody waits any more.
    pub(crate) async fn room_for(&self, index: u32) -> Result<()> {
        let import = self.import(Endpoint::Ost(index));
        let in_use = || import.as_ref().is_some_and(|import| import.is_active());
        self.unsynced.room(index, in_use).await
    }

    /// A request without bulk.
    ///
    /// # Errors
    /// The OST's, or `EIO` if the connection was lost.
    pub(crate) async fn ost_call(&self, index: u32, request: OstRequest) -> Result<OstReply> {
        self.ost_call_in(None, index, request).await.map(|(reply, _)| reply)
    }

    /// The same for what goes by a lock of an era, with the OST's boot epoch at the answer.
    ///
    /// # Errors
    /// As [`Client::ost_call`].
    pub(crate) async fn ost_call_in(
        &self,
        era: Option<u64>,
        index: u32,
        request: OstRequest,
    ) -> Result<(OstReply, u64)> {
        loop {
            match self.ost(index, request.clone(), (Bulk::None, false), era).await {
                Err(Errno::EAGAIN) => self.port.sleep(1_000_000).await,
                answer => return answer.map(|(body, _, boot_epoch)| (body, boot_epoch)),
            }
        }
    }

    /// Writes data to an object, using up a grant taken before; how much of it
    /// there was room for, from its beginning, and the boot epoch of the OST that has it now. If there was room for
    /// nothing, the object may have been born all the same.
    ///
    /// # Errors
    /// As [`Client::ost_call`].
    pub(crate) async fn ost_write(
        &self,
        index: u32,
        (object, layout_gen): (ObjectId, u32),
        places: Places,
        (data, mut grant_used): (Bytes, u64),
        Passage { era, direct }: Passage,
    ) -> Result<(u64, u64)> {
        let connection = || self.import(Endpoint::Ost(index)).map(|import| import.generation());
        loop {
            let request = match &places {
                Places::At(offset) => {
                    OstRequest::Write { object, layout_gen, offset: *offset, grant_used }
                }
                Places::Pieces(pieces) => {
                    let pieces = pieces.clone();
                    OstRequest::WriteMany { object, layout_gen, pieces, grant_used }
                }
            };
            match self.ost(index, request, (Bulk::Data(data.clone()), direct), Some(era)).await {
                Ok((OstReply::Written { len, boot_epoch, granted }, _, _)) => {
                    self.add_grant(index, granted);
                    if len as usize > data.len() {
                        return Err(Errno::EPROTO);
                    }
                    return Ok((u64::from(len), boot_epoch));
                }
                Ok(_) => return Err(Errno::EPROTO),
                Err(Errno::EAGAIN) => {
                    let before = connection();
                    self.port.sleep(1_000_000).await;
                    if connection() != before {
                        grant_used = 0;
                    }
                }
                Err(errno) => {
                    // It was not sent, and used up nothing.
                    let left = errno == Errno::EINTR
                        && self.import(Endpoint::Ost(index)).is_some_and(|import| import.is_open());
                    if left {
                        self.add_grant(index, grant_used);
                    }
                    return Err(errno);
                }
            }
        }
    }

    /// Reads behind what the buffer holds; how many bytes came.
    ///
    /// # Errors
    /// As [`Client::ost_call`].
    pub(crate) async fn ost_read(
        &self,
        index: u32,
        object: ObjectId,
        offset: u64,
        len: u32,
        (buffer, direct): (BytesMut, bool),
    ) -> Result<(BytesMut, u32)> {
        let request = OstRequest::Read { object, offset, len };
        match self.ost(index, request, (Bulk::Buffer(buffer), direct), None).await? {
            (OstReply::Read { len }, Bulk::Buffer(buffer), _) => Ok((buffer, len)),
            // It came over another connection than that on which the buffer waits.
            (OstReply::Read { len }, Bulk::Data(data), _) if data.len() == len as usize => {
                Ok((BytesMut::from(&data[..]), len))
            }
            (OstReply::Read { len: 0 }, Bulk::None, _) => Ok((BytesMut::new(), 0)),
            _ => {
                tracing::error!(ost = index, "a read was answered with something else");
                Err(Errno::EPROTO)
            }
        }
    }

    /// Where the next data or hole of an object begins; `None` where nothing follows.
    ///
    /// # Errors
    /// As [`Client::ost_call`].
    pub(crate) async fn ost_seek(
        &self,
        index: u32,
        object: ObjectId,
        offset: u64,
        hole: bool,
    ) -> Result<Option<u64>> {
        match self.ost_call(index, OstRequest::Seek { object, offset, hole }).await? {
            // An answer that goes back would lead a program in circles.
            OstReply::Offset { offset: found } if found.is_none_or(|found| found >= offset) => {
                Ok(found)
            }
            _ => Err(Errno::EPROTO),
        }
    }

    /// Makes objects of one OST durable. `None` if the connection was lost on the way.
    pub(crate) async fn ost_sync(
        &self,
        index: u32,
        objects: &[ObjectId],
        boot_epoch: u64,
    ) -> Option<Result<()>> {
        let import = self.ost_import(index).await.ok()?;
        loop {
            let request = OstRequest::Sync { objects: objects.to_vec(), boot_epoch };
            let (port, request) = (self.port.as_ref(), Request::Ost(request));
            let call = import.call(port, (request, Bulk::None), WAITED_FOR, (|| 0, false), None);
            match call.await.ok()?.reply {
                Reply { error: Some(Errno::EAGAIN), .. } => self.port.sleep(1_000_000).await,
                Reply { error: Some(errno), .. } => return Some(Err(errno)),
                Reply { body: ReplyBody::Ost(OstReply::Done), .. } => return Some(Ok(())),
                _ => return Some(Err(Errno::EPROTO)),
            }
        }
    }

    /// Size, space and times of one object, and the boot epoch of the OST that has it.
    ///
    /// # Errors
    /// As [`Client::ost_call`].
    pub(crate) async fn ost_look(&self, index: u32, object: ObjectId) -> Result<(ObjectAttr, u64)> {
        let request = OstRequest::GetAttr { objects: vec![object] };
        match self.ost_call_in(None, index, request).await? {
            (OstReply::Objects(objects), boot_epoch) => {
                let found = objects.first().filter(|found| found.object == object);
                found.map(|found| (*found, boot_epoch)).ok_or(Errno::EPROTO)
            }
            _ => Err(Errno::EPROTO),
        }
    }

    /// Makes an object at least as large as this, which is the size of its file at this version.
    ///
    /// # Errors
    /// As [`Client::ost_call`].
    pub(crate) async fn ost_set_size(
        &self,
        index: u32,
        (object, layout_gen): (ObjectId, u32),
        (size, version): (u64, u64),
    ) -> Result<()> {
        let request = OstRequest::SetSize { object, layout_gen, size, version };
        match self.ost_call(index, request).await? {
            OstReply::Done => Ok(()),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Sets the times of an object.
    ///
    /// # Errors
    /// As [`Client::ost_call`].
    pub(crate) async fn ost_set_times(
        &self,
        index: u32,
        object: ObjectId,
        (atime, mtime): (Option<Timespec>, Option<Timespec>),
    ) -> Result<()> {
        match self.ost_call(index, OstRequest::SetTimes { object, atime, mtime }).await? {
            OstReply::Done => Ok(()),
            _ => Err(Errno::EPROTO),
        }
    }

    /// Writes at the end of an object, under a lock of this era; how much there was room for, and the
    /// boot epoch of the OST that has it now.
    ///
    /// # Errors
    /// As [`Client::ost_call`]; `EIO` if it may have been done on a connection that was lost.
    pub(crate) async fn ost_append(
        &self,
        index: u32,
        (object, layout_gen): (ObjectId, u32),
        data: Bytes,
        era: u64,
    ) -> Result<(usize, u64)> {
        loop {
            let request = OstRequest::Append { object, layout_gen, grant_used: 0 };
            match self.ost(index, request, (Bulk::Data(data.clone()), false), Some(era)).await {
                Ok((OstReply::Appended { len, boot_epoch, granted, .. }, _, _)) => {
                    self.add_grant(index, granted);
                    let len = len as usize;
                    return if len > data.len() {
                        Err(Errno::EPROTO)
                    } else {
                        Ok((len, boot_epoch))
                    };
                }
                Ok(_) => return Err(Errno::EPROTO),
                Err(Errno::EAGAIN) => self.port.sleep(1_000_000).await,
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Sizes of objects of one OST.
    ///
    /// # Errors
    /// As [`Client::ost_call`].
    pub(crate) async fn ost_getattr(
        &self,
        index: u32,
        objects: Vec<ObjectId>,
    ) -> Result<Vec<ObjectAttr>> {
        match self.ost_call(index, OstRequest::GetAttr { objects }).await? {
            OstReply::Objects(objects) => Ok(objects),
            _ => Err(Errno::EPROTO),
        }
    }
}

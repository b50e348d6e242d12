//! Typed requests to MDTs.

use std::sync::Arc;

use sateen_types::{Errno, Fid, Result, seq};
use sateen_wire::{
    Bulk, COMBS, GROUPS, Grants, MdtReply, MdtRequest, PROGRESS, ReplyBody, Request,
};

use crate::client::Client;
use crate::fids::Draw;
use crate::import::{Answer, Import, InUse, WAITED_FOR};
use crate::outsiders::Pauses;

/// How long, and how often, it is waited for that a program which has ended is closed: 500 ms.
const RUNNING_PAUSE_NS: u64 = 10_000_000;
const RUNNING_TRIES: u32 = 50;

/// Who is told himself that a group is in the way, because he has something to let go of meanwhile, or
/// does not want to wait, or may get a lock otherwise.
const fn hears_of_groups(request: &MdtRequest) -> bool {
    match request {
        MdtRequest::EnqueueGroup { .. }
        | MdtRequest::EnqueuePart { .. }
        | MdtRequest::Enqueue { .. } => true,
        MdtRequest::Open { flags, .. } => flags.truncate,
        _ => false,
    }
}

/// A good answer of an MDT.
#[derive(Debug)]
pub(crate) struct MdtAnswer {
    pub(crate) body: MdtReply,
    pub(crate) grants: Grants,
    /// The client's stamp when the request was sent.
    pub(crate) stamp: u64,
}

/// What becomes of an answer.
#[expect(clippy::large_enum_variant, reason = "it is taken apart where it is made")]
enum Answered {
    Done(core::result::Result<MdtAnswer, (Errno, u64)>),
    /// It was not executed, asked at this stamp: the target had too much to do.
    Busy(u64),
    /// Nor was this: nobody waits for people at the MDT.
    Grouped(u64),
}

fn answered(request: &MdtRequest, answer: Answer) -> Answered {
    let Answer { reply, stamp, .. } = answer;
    match (reply.error, reply.body) {
        (Some(Errno::EAGAIN), _) => Answered::Busy(stamp),
        (Some(errno), _) => Answered::Done(Err((errno, stamp))),
        (None, ReplyBody::Mdt(MdtReply::Grouped)) if !hears_of_groups(request) => {
            Answered::Grouped(stamp)
        }
        (None, ReplyBody::Mdt(body)) => {
            Answered::Done(Ok(MdtAnswer { body, grants: reply.grants, stamp }))
        }
        (None, _) => {
            tracing::error!(request = request.called(), "an answer of another kind");
            Answered::Done(Err((Errno::EPROTO, stamp)))
        }
    }
}

impl Client {
    /// The import of the MDT that owns a FID.
    fn import_of(&self, fid: Fid) -> Result<Arc<Import>> {
        self.import(sateen_types::Endpoint::Mdt(seq::mdt_of(fid.seq))).ok_or(Errno::ESTALE)
    }

    /// A request about `fid`.
    ///
    /// # Errors
    /// The MDT's, or `EIO` if the connection was lost.
    pub(crate) async fn mdt(&self, fid: Fid, request: MdtRequest) -> Result<MdtAnswer> {
        self.mdt_call(fid, request, WAITED_FOR, false, None).await.map_err(|(errno, _)| errno)
    }

    /// The same. What the MDT answers comes with the stamp of the request also if it is an error.
    ///
    /// # Errors
    /// As [`Client::mdt`].
    pub(crate) async fn mdt_stamped(
        &self,
        fid: Fid,
        request: MdtRequest,
    ) -> core::result::Result<MdtAnswer, (Errno, u64)> {
        self.mdt_call(fid, request, WAITED_FOR, false, None).await
    }

    /// A request that writes to a file: while it is being executed elsewhere, it is refused. A
    /// program that has just ended may not be closed yet: no kernel waits for that. It has a slot
    /// that others have not while locks are `in_use` that others may want.
    ///
    /// # Errors
    /// As [`Client::mdt`]; `ETXTBSY` if the program goes on running.
    pub(crate) async fn mdt_unless_it_runs(
        &self,
        fid: Fid,
        request: MdtRequest,
        in_use: InUse<'_>,
    ) -> Result<MdtAnswer> {
        let mut tries = 0;
        loop {
            let answer = self.mdt_call(fid, request.clone(), in_use, false, None).await;
            match answer.map_err(|(errno, _)| errno) {
                Err(Errno::ETXTBSY) if tries < RUNNING_TRIES => {
                    self.port.sleep(RUNNING_PAUSE_NS).await;
                }
                answer => return answer,
            }
            tries += 1;
        }
    }

    /// A request that goes by what the client was given in this era.
    ///
    /// # Errors
    /// As [`Client::mdt`]; `EIO` in any other era.
    pub(crate) async fn mdt_in(
        &self,
        era: u64,
        fid: Fid,
        request: MdtRequest,
    ) -> Result<MdtAnswer> {
        self.mdt_of(Some(era), fid, request).await
    }

    /// The same, if it goes by anything that was given.
    ///
    /// # Errors
    /// As [`Client::mdt_in`].
    pub(crate) async fn mdt_of(
        &self,
        era: Option<u64>,
        fid: Fid,
        request: MdtRequest,
    ) -> Result<MdtAnswer> {
        self.mdt_call(fid, request, WAITED_FOR, false, era).await.map_err(|(errno, _)| errno)
    }

    /// A request whose data lock is in use from the moment it arrives.
    ///
    /// # Errors
    /// As [`Client::mdt`].
    pub(crate) async fn mdt_pinned(&self, fid: Fid, request: MdtRequest) -> Result<MdtAnswer> {
        self.mdt_call(fid, request, WAITED_FOR, true, None).await.map_err(|(errno, _)| errno)
    }

    /// A lock on this file is in use, and others may have to wait for it: who waits for a slot at
    /// its MDT looks whether that gives him one.
    pub(crate) fn look_for_slots(&self, fid: Fid) {
        if let Ok(import) = self.import_of(fid) {
            import.look_for_slots();
        }
    }

    /// Whether an MDT may be about to add a name to this directory, asked by this client.
    pub(crate) fn may_add_names(&self, dir: Fid) -> bool {
        self.mdt_imports().iter().any(|import| import.may_add_names(dir))
    }

    /// The same of one that adds or removes a name.
    pub(crate) fn may_change_names(&self, dir: Fid) -> bool {
        self.mdt_imports().iter().any(|import| import.may_change_names(dir))
    }

    /// Slots at the MDT of `fid` for requests that nobody waits for, of which so many were `asked`.
    pub(crate) fn slots_to_spare(&self, fid: Fid, asked: usize) -> usize {
        self.import_of(fid).map_or(0, |import| import.slots_to_spare(asked))
    }

    async fn mdt_call(
        &self,
        fid: Fid,
        request: MdtRequest,
        in_use: InUse<'_>,
        pin: bool,
        era: Option<u64>,
    ) -> core::result::Result<MdtAnswer, (Errno, u64)> {
        let unasked = |errno| (errno, 0);
        let import = self.import_of(fid).map_err(unasked)?;
        let mut pauses = Pauses::default();
        loop {
            let again = Request::Mdt(request.clone());
            let stamp = || self.stamp();
            let port = self.port.as_ref();
            let call = import.call(port, (again, Bulk::None), in_use, (stamp, pin), era);
            let answer = call.await.map_err(unasked)?;
            // What waits below is not to have the answer, which is large.
            let (group, stamp) = match answered(&request, answer) {
                Answered::Done(done) => return done,
                Answered::Busy(stamp) => (false, stamp),
                Answered::Grouped(stamp) => (true, stamp),
            };
            if group {
                self.pause(&mut pauses).await.map_err(|errno| (errno, stamp))?;
            } else {
                self.port.sleep(1_000_000).await;
            }
        }
    }

    /// Whether the MDT of `fid` has group locks.
    pub(crate) fn has_groups(&self, fid: Fid) -> bool {
        self.import_of(fid).is_ok_and(|import| import.agrees(GROUPS))
    }

    /// Whether the MDT of `fid` knows parts.
    pub(crate) fn has_combs(&self, fid: Fid) -> bool {
        self.import_of(fid).is_ok_and(|import| import.agrees(COMBS))
    }

    /// Whether the MDT of `fid` gives more time to who gives a lock back slowly, and says so.
    pub(crate) fn hears_of_progress(&self, fid: Fid) -> bool {
        self.import_of(fid).is_ok_and(|import| import.agrees(PROGRESS))
    }

    /// Waits until a transno of the MDT of `fid` is durable; 0 waits for all there is.
    ///
    /// # Errors
    /// As [`Client::mdt`].
    pub(crate) async fn mdt_sync(&self, fid: Fid, upto: u64) -> Result<()> {
        if upto > 0 && self.import_of(fid)?.last_committed() >= upto {
            return Ok(());
        }
        Box::pin(self.mdt(fid, MdtRequest::Sync { upto })).await.map(|_| ())
    }

    /// Tells, once, that a restart of the MDT may have lost changes of this inode that it had
    /// answered for.
    ///
    /// # Errors
    /// `EIO`.
    pub(crate) fn tell_lost_changes(&self, fid: Fid) -> Result<()> {
        let import = self.import_of(fid)?;
        if import.take_lost_changes(Some(fid)) { Err(Errno::EIO) } else { Ok(()) }
    }

    /// A FID for a new file in the directory `parent`, to be made in this era.
    ///
    /// # Errors
    /// As [`Client::mdt_in`].
    pub(crate) async fn new_fid(self: &Arc<Client>, parent: Fid, era: u64) -> Result<Fid> {
        loop {
            match self.fids.draw().await {
                Draw::Fid(fid) => return Ok(fid),
                Draw::Last(fid, life) => {
                    let client = self.clone();
                    self.port.spawn(Box::pin(async move {
                        if let Err(error) = client.ask_sequence(parent, era, life).await {
                            tracing::debug!(%error, "no sequence of FIDs ahead of need");
                        }
                    }));
                    return Ok(fid);
                }
                Draw::Ask(life) => Box::pin(self.ask_sequence(parent, era, life)).await?,
            }
        }
    }

    async fn ask_sequence(&self, parent: Fid, era: u64, life: u64) -> Result<()> {
        let granted = match self.mdt_in(era, parent, MdtRequest::GrantSeq).await {
            Ok(MdtAnswer { body: MdtReply::Sequence(seq), .. }) => Ok(seq),
            Ok(_) => Err(Errno::EPROTO),
            Err(errno) => Err(errno),
        };
        self.fids.refill(life, granted.ok());
        granted.map(|_| ())
    }
}

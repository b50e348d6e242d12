//! How the giving of a file ends: what a close tells, who may still have it mapped, and who tells the rest.
//!
//! 1. A close that finds no other open asks whether the file is mapped, and then looks at the object; so does
//!    each writer's. What it finds goes to the MDT with the close.
//! 2. Whoever leaves last, a close or an open that has failed, asks about mappings again. If there is one the
//!    file stays given, and a task asks from time to time.
//! 3. Else he tells what is left to be told, and takes the file back from the kernel.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use sateen_types::Errno;
use sateen_wire::SizeReport;

use super::Phase;
use crate::client::Client;
use crate::inode::{Inode, InodeState};
use crate::llite::{File, OpenHow};
use crate::patience::to_the_end;
use crate::port::KernelInval;
use crate::sync::lock;

/// After so long it is asked again what an object says that could not be looked at, and whether a mapping is
/// left: 1 ms, because the kernel lets go of an open's file a moment after it has told of the close; and
/// then after twice as long each time, 1 s at most.
const ASK_AGAIN_NS: u64 = 1_000_000;
const ASK_AGAIN_MAX_NS: u64 = 1_000_000_000;

impl Client {
    /// One of those who have a given inode open closes it: what the MDT is to be told, for which nobody
    /// else tells it anything then. To be followed by [`Client::closed_given`], when the MDT has heard it.
    ///
    /// As long as it cannot be found out what was written it is asked again: the session must not end
    /// without it. Who could only read does not wait for that, nor who was lost: see
    /// [`Client::leave_given`].
    pub(crate) async fn close_given(self: &Arc<Client>, file: &File) -> Option<SizeReport> {
        let inode = &file.inode;
        let all_close = inode.update(InodeState::closes);
        if let Some(answered) = all_close {
            // Before the look, so that what was stored through a mapping is seen.
            self.ask_unmapped(inode, answered).await;
        }
        let mut pause_ns = ASK_AGAIN_NS;
        while (all_close.is_some() || file.how.write) && !file.lost.load(Ordering::SeqCst) {
            match self.given_report(inode, false).await {
                Ok(report) => return report,
                Err(_) if !file.how.write => break,
                Err(error) if self.is_in_vain(error) => break,
                Err(error) => tracing::debug!(fid = %inode.fid, %error, "a close asks again"),
            }
            self.port.sleep(pause_ns).await;
            pause_ns = (2 * pause_ns).min(ASK_AGAIN_MAX_NS);
        }
        None
    }

    /// Whether it will never be known what an object says, or nobody is there any more to be told.
    fn is_in_vain(&self, error: Errno) -> bool {
        let is_gone = matches!(error, Errno::ENOENT | Errno::ESTALE);
        is_gone || self.left.load(Ordering::Relaxed)
    }

    /// Asks whether a mapping of a given inode is left that outlives so many opens, of which the kernel has
    /// none any more. What a look found before that is not all that was stored through one.
    async fn ask_unmapped(&self, inode: &Inode, answered: u32) -> bool {
        let at = {
            let state = lock(&inode.state);
            let asked = state.away().is_none_or(|given| given.unmapped_of == answered);
            state.given_at().filter(|_| !asked)
        };
        let Some((ost, object, _)) = at else { return true };
        let alone = self.port.alone((ost, object)).await;
        if alone && let Some(given) = &mut lock(&inode.state).given {
            // Of two who ask one may be late.
            given.unmapped_of = given.unmapped_of.max(answered);
        }
        alone
    }

    /// It has closed it, or tried to.
    pub(crate) async fn closed_given(self: &Arc<Client>, inode: &Arc<Inode>, how: OpenHow) {
        inode.update(|state| {
            state.end_open(how);
            state.has_closed();
        });
        self.leave_given(inode).await;
    }

    /// An open has ended, or failed: it was perhaps what kept an inode given. Whatever the kernel did
    /// that was not told with a close is told now: what was read, and of opens that were lost, or whose
    /// close has not arrived, what was written.
    pub(crate) async fn leave_given(self: &Arc<Client>, inode: &Arc<Inode>) {
        if inode.update(InodeState::begins_to_end) {
            to_the_end(Box::pin(self.end_giving(inode))).await;
        }
    }

    /// Asks again and again, until it is given no more, or somebody has it open again, whose close asks
    /// then. Who unmounts tells what is given without that.
    fn watch_left(self: &Arc<Client>, inode: &Arc<Inode>) {
        let (client, inode) = (self.clone(), inode.clone());
        let mut pause_ns = ASK_AGAIN_NS;
        self.port.spawn(Box::pin(async move {
            loop {
                client.port.sleep(pause_ns).await;
                pause_ns = (2 * pause_ns).min(ASK_AGAIN_MAX_NS);
                if client.is_stopped() || !inode.update(InodeState::is_watched) {
                    break;
                }
                to_the_end(client.leave_given(&inode)).await;
            }
            client.retire(inode);
        }));
    }

    /// If it is mapped still it stays given, and is asked after. Else tells what is left to be told; then the
    /// kernel has it no more, and drops what it has read of it.
    async fn end_giving(self: &Arc<Client>, inode: &Arc<Inode>) {
        let answered = lock(&inode.state).away().map_or(0, |given| given.answered);
        if !self.ask_unmapped(inode, answered).await {
            // Who has it mapped needs no open. Stores through that are told when it is gone.
            let is_watched = inode.update(|state| {
                state.given.as_mut().is_none_or(|given| {
                    given.phase = Phase::On;
                    core::mem::replace(&mut given.watched, true)
                })
            });
            if !is_watched {
                self.watch_left(inode);
            }
            return;
        }
        let (ino, mut pause_ns) = (inode.fid.ino(), ASK_AGAIN_NS);
        while !lock(&inode.state).is_all_told() {
            match self.tell_size(inode).await {
                Ok(()) => continue,
                Err(error) if self.is_in_vain(error) => break,
                Err(error) => tracing::debug!(fid = %inode.fid, %error, "not told yet"),
            }
            self.port.sleep(pause_ns).await;
            pause_ns = (2 * pause_ns).min(ASK_AGAIN_MAX_NS);
        }
        self.port.invalidate(KernelInval::Data(ino)).await;
        let at = lock(&inode.state).given_at();
        if let Some((ost, object, _)) = at {
            self.port.take_back(ino, (ost, object));
        }
        inode.update(|state| state.given = None);
        self.passthrough.let_go(inode.fid);
    }
}

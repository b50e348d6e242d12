//! Who finds a slot when others have to wait; and that whoever wants something changed waits while no
//! more changes can be kept that an MDT may lose.

use sateen_wire::{Bulk, FileLockMode, Ibits, MdtRequest, Request};

use super::{Import, SLOTS_KEPT};
use crate::port::Port;
use crate::sync::lock;

/// Whether others may be kept waiting for locks until a request is answered. Looked at whenever it
/// could be sent, because that changes.
pub(crate) type InUse<'a> = &'a (dyn Fn() -> bool + Send + Sync);
/// They may be.
pub(crate) const WAITED_FOR: InUse<'static> = &|| true;

/// Slots that a request finds beside those for everybody.
pub(super) fn slots_kept_for(request: &Request, in_use: InUse<'_>) -> usize {
    match request {
        Request::Ping | Request::Disconnect | Request::Mdt(MdtRequest::Cancel { .. }) => {
            2 * SLOTS_KEPT
        }
        // Nor do these, and others wait for what they give back, or tell.
        Request::Mdt(MdtRequest::LeaveFileLock { .. } | MdtRequest::AnswerGlimpse { .. }) => {
            2 * SLOTS_KEPT
        }
        Request::Mdt(MdtRequest::SetFileLock { lock, .. }) => match lock.mode {
            FileLockMode::Unlock => 2 * SLOTS_KEPT,
            // Others are kept waiting by a turn that is not taken.
            FileLockMode::Read | FileLockMode::Write => SLOTS_KEPT,
        },
        // It empties the file under a data lock in use, which others may want meanwhile. Those
        // that do so without a lock, or set a mode, wait for others as any request does, and
        // many at once would leave no slot to give locks back in.
        Request::Mdt(MdtRequest::Open { flags, .. }) if flags.truncate && in_use() => SLOTS_KEPT,
        Request::Mdt(MdtRequest::SetAttr { .. }) if in_use() => SLOTS_KEPT,
        Request::Mdt(
            MdtRequest::ReportSize { .. }
            | MdtRequest::Close { .. }
            | MdtRequest::Sync { .. }
            | MdtRequest::GetStripe { .. }
            | MdtRequest::NoRoom { .. }
            | MdtRequest::GetAttr { want: Ibits::NONE, .. },
        ) => SLOTS_KEPT,
        _ => 0,
    }
}

impl Import {
    /// Waits until a further change can be kept that the MDT may lose: has it commit those that are.
    pub(super) async fn has_room(&self, port: &dyn Port, era: Option<u64>) {
        let full = || lock(&self.state).uncommitted.full();
        while let Some(upto) = full() {
            let request = (Request::Mdt(MdtRequest::Sync { upto }), Bulk::None);
            // No change itself: it does not come by here again.
            let synced = Box::pin(self.call(port, request, WAITED_FOR, (|| 0, false), era));
            if synced.await.is_err() {
                // Whoever asks hears what has become of the connection.
                return;
            }
        }
    }
}

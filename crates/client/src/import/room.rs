//! Whoever wants something changed waits while no more changes can be kept that an MDT may lose.

use sateen_wire::{Bulk, MdtRequest, Request};

use super::{Import, WAITED_FOR};
use crate::port::Port;
use crate::sync::lock;

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

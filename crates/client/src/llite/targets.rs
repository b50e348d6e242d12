//! The targets as a mount sees them: which are in use, which answer.

use std::sync::Arc;

use sateen_types::{Endpoint, Errno, Result};
use sateen_wire::{Bulk, MgsRequest, Request};

use crate::client::Client;
use crate::import::{Import, WAITED_FOR};
use crate::sync::lock;

/// One target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetState {
    /// Which.
    pub target: Endpoint,
    /// Whether it is in use.
    pub active: bool,
    /// Whether there is a connection to it.
    pub connected: bool,
}

impl Client {
    /// The targets, with the MGS, as far as is known without asking them.
    pub fn target_states(&self) -> Vec<TargetState> {
        let state = |(target, import): (Endpoint, Arc<Import>)| TargetState {
            target,
            active: import.is_active(),
            connected: import.is_open(),
        };
        self.all_imports().into_iter().map(state).collect()
    }

    /// The same, after each was asked something that it can answer at once. One that does not
    /// within a second is not connected, whatever it may seem.
    pub async fn check_targets(self: &Arc<Client>) -> Vec<TargetState> {
        self.ask_all(|_| true).await;
        let spaces = lock(&self.spaces);
        let mut states = self.target_states();
        for state in &mut states {
            state.connected = spaces.answered(state.target);
        }
        states
    }

    /// Whether the MGS is there.
    pub(crate) async fn ask_mgs(&self) -> Result<()> {
        let import = self.import(Endpoint::Mgs).ok_or(Errno::EINVAL)?;
        let request = Request::Mgs(MgsRequest::GetFileSystem);
        let call =
            import.call(self.port.as_ref(), (request, Bulk::None), WAITED_FOR, (|| 0, false), None);
        call.await.map(drop)
    }
}

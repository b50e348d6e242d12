//! What a client asks of a target.

use sateen_wire::{Bulk, Request};

/// What is asked of a target.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) request: Request,
    pub(crate) bulk: Bulk,
    /// See [`Header::direct`](sateen_wire::Header::direct).
    pub(crate) direct: bool,
}

impl From<(Request, Bulk)> for Call {
    fn from((request, bulk): (Request, Bulk)) -> Call {
        Call { request, bulk, direct: false }
    }
}

//! Networks: what carries messages between processes.
//!
//! A network knows peers by their addresses and endpoints by where they were heard of. It
//! promises little: messages on one connection arrive whole and in order, or the connection
//! ends. Whoever needs more (an answer to each request, exactly one execution) has it from
//! imports and exports, which send again what was not answered.

pub mod shm;
mod tcp;

pub use tcp::{
    Address, BULK_BYTES_MAX, COMPANY_WAIT, CONNECTIONS_MAX, Counts, Deliver, ENDPOINTS_MAX,
    HEALTH_MAX, Limits, Looker, Net, Peer, QUEUE_BYTES_FAIR, QUEUE_BYTES_MAX, RailState,
    SPEAKS_FOR_MAX, Tcp, WAITING_BYTES_MAX, Ways,
};

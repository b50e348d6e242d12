//! Who talks to whom: the targets and the clients of one file system.

use core::fmt;

/// One incarnation of a client. A client that restarts or was evicted comes back under a
/// new id, so that whatever its predecessor still has in the network can be refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ClientId(pub u64);

/// One party of a file system. Where it is reached is the network's to know.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Endpoint {
    /// The management target.
    Mgs,
    /// A metadata target by index.
    Mdt(u32),
    /// An object target by index.
    Ost(u32),
    /// A client, under the name of its first incarnation, whatever it is called now.
    Client(ClientId),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Mgs => f.write_str("MGS"),
            Endpoint::Mdt(i) => write!(f, "MDT{i:04x}"),
            Endpoint::Ost(i) => write!(f, "OST{i:04x}"),
            Endpoint::Client(c) => write!(f, "client-{:x}", c.0),
        }
    }
}

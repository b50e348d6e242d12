//! How often what was done, by all clients and by each. Plain counters: the MDT has one owner
//! at a time.

use sateen_types::{ClientId, ClientStats, FileKind, StatName, Stats};
use sateen_wire::{MdtReply, MdtRequest, Reply, ReplyBody};

/// How many kinds of operations are counted.
const KINDS: usize = 22;

/// What an MDT counts.
pub type MdStats = Stats<KINDS>;

/// The names of what is counted, as the field's `md_stats` has them.
pub const MD_STATS: [StatName; KINDS] = [
    StatName::reqs("open"),
    StatName::reqs("close"),
    StatName::reqs("mknod"),
    StatName::reqs("link"),
    StatName::reqs("unlink"),
    StatName::reqs("mkdir"),
    StatName::reqs("rmdir"),
    StatName::reqs("rename"),
    StatName::reqs("getattr"),
    StatName::reqs("setattr"),
    StatName::reqs("getxattr"),
    StatName::reqs("setxattr"),
    StatName::reqs("statfs"),
    StatName::reqs("sync"),
    StatName::reqs("samedir_rename"),
    StatName::reqs("crossdir_rename"),
    StatName::reqs("readdir"),
    StatName::reqs("evict_callback"),
    StatName::reqs("evict_silent"),
    StatName::reqs("evict_succeeded"),
    StatName::reqs("evict_admin"),
    StatName::reqs("evict_recovery"),
];

/// Their places.
#[derive(Clone, Copy)]
enum Kind {
    Open,
    Close,
    Mknod,
    Link,
    Unlink,
    Mkdir,
    Rmdir,
    Rename,
    Getattr,
    Setattr,
    Getxattr,
    Setxattr,
    Statfs,
    Sync,
    SamedirRename,
    CrossdirRename,
    Readdir,
    EvictCallback,
    EvictSilent,
    EvictSucceeded,
    EvictAdmin,
    EvictRecovery,
}

/// Why a client is evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// It did not give back a lock in time.
    Late,
    /// Nothing is heard of it.
    Silent,
    /// It goes on as another.
    Succeeded,
    /// It was asked for.
    Asked,
    /// It did not come back after a restart, or did not tell everything in time.
    Absent,
    /// What it said it had cannot be.
    Claims,
}

impl Why {
    /// For the log.
    pub(crate) const fn said(self) -> &'static str {
        match self {
            Why::Late => "it does not give a lock back",
            Why::Silent => "nothing is heard of it",
            Why::Succeeded => "it goes on as another",
            Why::Asked => "somebody asked for that",
            Why::Absent => "it has not come back after the restart",
            Why::Claims => "it cannot have had what it says it had before the restart",
        }
    }
}

/// The counters of an MDT.
pub(crate) type Counters = ClientStats<KINDS>;

/// What one request that went well counts as: mostly one thing, two if it opened what it made.
fn kinds(request: &MdtRequest, reply: &Reply) -> [Option<Kind>; 2] {
    let one = |kind| [Some(kind), None];
    match request {
        MdtRequest::Create { mode, open, .. } => {
            let made = match FileKind::from_mode(*mode) {
                Some(FileKind::Directory) => Kind::Mkdir,
                _ => Kind::Mknod,
            };
            let existed =
                matches!(reply.body, ReplyBody::Mdt(MdtReply::Created { existed: true, .. }));
            [(!existed).then_some(made), open.map(|_| Kind::Open)]
        }
        MdtRequest::Open { .. } => one(Kind::Open),
        MdtRequest::Close { .. } => one(Kind::Close),
        MdtRequest::Link { .. } => one(Kind::Link),
        MdtRequest::Unlink { directory, .. } => {
            one(if *directory { Kind::Rmdir } else { Kind::Unlink })
        }
        MdtRequest::Rename { parent, new_parent, .. } => {
            let how = if parent == new_parent { Kind::SamedirRename } else { Kind::CrossdirRename };
            [Some(Kind::Rename), Some(how)]
        }
        MdtRequest::GetAttr { .. } | MdtRequest::Lookup { .. } => one(Kind::Getattr),
        MdtRequest::SetAttr { .. } => one(Kind::Setattr),
        MdtRequest::GetXattr { .. } | MdtRequest::ListXattr { .. } => one(Kind::Getxattr),
        MdtRequest::SetXattr { .. } | MdtRequest::RemoveXattr { .. } => one(Kind::Setxattr),
        MdtRequest::StatFs => one(Kind::Statfs),
        MdtRequest::Sync { .. } => one(Kind::Sync),
        MdtRequest::ReadDir { .. } => one(Kind::Readdir),
        _ => [None, None],
    }
}

/// A request went well.
pub(crate) fn done(counters: &mut Counters, client: ClientId, request: &MdtRequest, reply: &Reply) {
    for kind in kinds(request, reply).into_iter().flatten() {
        counters.count(client, kind as usize);
    }
}

/// A client was evicted. What it has had done is forgotten with it, but not that.
pub(crate) fn evicted(counters: &mut Counters, client: ClientId, why: Why) {
    let kind = match why {
        Why::Late => Kind::EvictCallback,
        Why::Silent => Kind::EvictSilent,
        Why::Succeeded => Kind::EvictSucceeded,
        Why::Asked => Kind::EvictAdmin,
        Why::Absent | Why::Claims => Kind::EvictRecovery,
    };
    counters.count(client, kind as usize);
}

/// How often that was because nothing was heard of one.
pub(crate) fn evicted_silent(counters: &Counters) -> u64 {
    counters.all().samples(Kind::EvictSilent as usize)
}

//! The client: POSIX verbs over MDTs and OSTs.
//!
//! Pure: it knows time, the network, randomness and the kernel only through its [`Port`].
//! Verbs are futures, polled by whoever drives the client; over `0@lo` they mostly run to
//! their end in one poll. The rooms are the field's own:
//!
//! | module | is |
//! |---|---|
//! | `llite` | the verbs, inodes and open files |
//! | `locks` | which lock covers what, and how one is given back |
//! | `lov` | striping: a file range over objects |
//! | `mdc`, `osc` | typed requests to MDTs and OSTs |
//! | `atime` | when reading sets the atime |
//! | `import`, `imports` | connections: slots, resends, reconnects; all of them, by target |
//! | `open_cache` | opens that are kept at MDTs |
//! | `recover` | an MDT that was restarted in good order: telling it what is held |
//! | `ended` | runs of OSTs that ended in good order |
//! | `inodes`, `apart` | all inodes; tables in parts with a lock each |
//! | `held`, `rare` | the locks on one inode; what only some inodes need |
//! | `lru` | limits to what is kept: by number, by age |
//! | `dir_pages` | pages of directories that stay under their lock |
//! | `kept_xattrs` | targets of symbolic links and extended attributes that stay under their lock |
//! | `known_names` | what cannot be in a directory that this client has made or read |
//! | `fids` | FIDs out of granted sequences |
//! | `given` | files that the kernel reads and writes itself |
//! | `comb` | parts of a file: what is written in turns with others |
//! | `group`, `outsiders` | group locks: the data of a file for those who work together, and who waits |
//! | `glimpse` | others look at what is written from here |
//! | `file_locks` | locks of programs: flock(2) and fcntl(2) |
//! | `stats`, `inspect` | what was counted, and what can be set, from outside |
//! | `uncommitted` | changes that a restart of an MDT may lose |
//! | `patience` | verbs that nobody waits for any more |
//! | `loss` | who has been told of what may be lost |
//! | `readahead`, `statahead` | what programs will read, or look up, next |
//! | `dirty` | what programs have written and OSTs do not have yet |
//! | `grants` | what OSTs have promised room for |
//! | `unstable` | what OSTs have answered and may lose, to be written again then |
//! | `unsynced` | what dropped inodes leave to be synced |
//! | `by_stripe` | what is remembered of objects of one file |

mod apart;
mod atime;
mod by_stripe;
mod client;
mod comb;
mod dir_pages;
mod dirty;
mod ended;
mod fids;
mod file_locks;
mod given;
mod glimpse;
mod grants;
mod group;
mod held;
mod import;
mod imports;
mod inode;
mod inodes;
mod inspect;
mod kept_xattrs;
mod known_names;
mod llite;
mod locks;
mod loss;
mod lov;
mod lru;
mod mdc;
mod open_cache;
mod osc;
mod outsiders;
mod patience;
mod port;
mod rare;
mod readahead;
mod recover;
mod statahead;
mod stats;
mod sync;
#[cfg(test)]
mod testing;
mod uncommitted;
mod unstable;
mod unsynced;

pub use atime::AtimePolicy;
pub use client::{Client, ClientConfig, Connection, TargetSpace};
pub use dir_pages::{DIR_PAGES_MAX, DirPagesStats};
pub use given::Way;
pub use inspect::{Census, ImportInfo, ImportState, OwnLock};
pub use llite::{Entry, Known, Listing, OpenHow, Opened, SpaceTotal, Striping, TargetState};
pub use lru::{INODES_DEFAULT, LRU_MAX_AGE_MS, LruInfo};
pub use patience::{Patience, hearing};
pub use port::{KernelInval, Port, Task};
pub use readahead::{CLEAN_MAX, CleanStats, READ_AHEAD_MAX, ReadAheadStats};
pub use statahead::{STATAHEAD_MAX, StataheadStats};
pub use stats::{LLITE_STATS, MDC_STATS, OSC_STATS, RequestStats, Verb, VerbStats};

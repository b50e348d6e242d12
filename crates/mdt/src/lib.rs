//! The metadata target: name space, attributes, layouts, locks, and the fate of objects.
//!
//! [`Mdt`] is a [`sateen_target::Service`]: messages, ticks and finished reads come in,
//! effects go out. A request runs as one synchronous function (`ops/`, one file each) over
//! the store. Either it stops before it has changed anything, because something has to be
//! fetched or somebody's lock has to go first, and is started again later; or it makes one
//! batch of changes, with its reply slot in it, and becomes a transaction.
//!
//! What happens outside of requests: the MDT is itself a client of the OSTs (`osp`), which it
//! sends what its llogs say (`llog`: objects to be destroyed or cut), and whom it tells of
//! lost clients. At its start it finishes what the last run left (`startup`), and the clients of
//! that go on with what they had (`recovery`), whether it ended in good order (`stop`) or crashed: then
//! they have the changes made again that are missing (`replays`).

mod acl;
mod alloc;
mod clients;
mod config;
mod destroy;
mod inspect;
mod keys;
mod layouts;
mod llog;
mod mdt;
mod names;
mod op;
mod opens;
mod ops;
mod osp;
mod recovery;
mod replays;
mod room;
mod seqs;
mod sharing;
mod startup;
mod stats;
mod stop;
mod view;
mod work;

pub use clients::OPENS_PER_CLIENT_MAX;
pub use config::{DESTROY_DELAY_NS, MdtConfig, OstConfig, PATIENCE, RECOVERY_TIME_SOFT_NS};
pub use mdt::{HELD_MAX, Mdt};
pub use osp::{OSP_QUEUE_SLOTS, RESEND_NS};
pub use recovery::RecoveryStatus;
pub use sateen_ldlm::{CALLBACK_LIMIT_NS, Parts};
pub use seqs::SEQS_PER_CLIENT_MAX;
pub use stats::{MD_STATS, MdStats};

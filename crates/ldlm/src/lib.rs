//! The lock table of a metadata target: who may cache what of which inode.
//!
//! Pure: the MDT asks, and carries out what the table says. Nobody holds a lock while an
//! operation runs; an operation only needs the conflicting locks of *other* clients gone.
//!
//! Life of a lock: it is granted along with a reply ([`LockTable::try_grant`]) or for its own
//! sake ([`LockTable::enqueue`]); somebody else's operation needs it gone, so its holder is
//! called back ([`LockTable::take_callbacks`]); the holder cancels it
//! ([`LockTable::cancel`]), or is evicted when it does not ([`LockTable::overdue`]).
//!
//! After a restart in good order a client tells what it had ([`LockTable::reclaim`]); such a lock
//! keeps its name, so that a cancel which is under way is one of the same lock.
//!
//! Life of a ticket: an operation that finds conflicting locks gets a [`Ticket`], which
//! reserves what it needs: nobody else gets a conflicting lock from then on, so it cannot
//! starve. When the last conflicting lock goes it is woken ([`LockTable::take_woken`]) and
//! starts again; it may find that it needs more, and waits again under the same ticket.
//! [`LockTable::finish`] ends the reservations. Tickets that want locks are served in order.
//!
//! Whoever only looks at a file's size and times does not need the lock of its writer gone
//! ([`LockTable::look`]): the holder is asked, and keeps it.
//!
//! A shared lock on data stands beside other such locks, one for reading
//! ([`LockMode::Cr`](sateen_wire::LockMode::Cr)) also beside those of readers, one for writing
//! ([`LockMode::Cw`](sateen_wire::LockMode::Cw)) not: whatever else is done with the data has to wait
//! for it to be given back, also at its own client. [`Contention`] says when such locks are granted.
//!
//! A group lock ([`LockMode::Group`](sateen_wire::LockMode::Group)) keeps everybody out who does not name
//! the same group, for as long as its holders like ([`LockTable::join_group`]): it is never asked back.
//!
//! A part ([`LockMode::Part`](sateen_wire::LockMode::Part)) is a lock on the records of a comb, and stands
//! beside other parts that have other records, and nothing else ([`LockTable::enqueue_part`]).
//!
//! Beside it stands [`FileLocks`], the table of programs' locks: flock(2) and fcntl(2).

mod bounds;
mod breaks;
mod contention;
mod file_locks;
mod ranges;
mod slab;
mod table;
mod waiting;

pub use bounds::{Bounds, LOCK_BYTES, LOCK_LIMIT_BYTES, LOCK_RECLAIM_BYTES};
pub use breaks::Break;
pub use contention::{CONTENDED_LOCKS, CONTENTION_NS, Contention, Parts};
pub use file_locks::{
    FILE_LOCKS_PER_CLIENT_MAX, FileLockAnswer, FileLockTurn, FileLocks, RANGES_PER_FILE_MAX,
    WAITS_PER_FILE_MAX,
};
pub use ranges::{Owner, Range, Ranges};
pub use table::{
    CALLBACK_LIMIT_NS, CALLBACK_MAX_NS, CALLBACK_REPEAT_NS, CalledBack, Held, Joined, LockTable,
    Look, PARTS_PER_FILE_MAX, Question,
};
pub use waiting::{Need, Ticket};

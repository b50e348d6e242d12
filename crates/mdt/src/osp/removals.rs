//! Objects of removed files that an OST is to destroy. They are gathered: an OST makes the removals of
//! each request durable, a flush of its folders that costs the same for one object and for many, and
//! under a stream of small removals there would be such a request for each group commit of the MDT.
//!
//! 1. An object comes when the removal of its file is durable.
//! 2. It waits until the first of those that wait is old enough, or one of them, or the OST, is such
//!    that they must not ([`Removals::look`]). Nothing is to be done meanwhile, and no tick is asked for:
//!    that of a target that rests comes soon enough.
//! 3. Then all of them go, with those that come meanwhile, until none is left.
//!
//! A crash forgets them, and the next run finds their records.

use std::collections::VecDeque;

use sateen_types::ObjectId;
use sateen_types::units::MIB;
use sateen_wire::{OstRequest, StatFs};

/// Objects that are removed by one request. Each may take a disk some time, and an OST that has not
/// answered for long counts as away; a group commit answers many such requests.
pub(super) const DESTROYED_MAX: usize = 64;
/// So many do not wait: a second of more than any MDT removes, so that what is kept in memory and
/// comes over an OST at once has a bound. Gathering more would spare nothing: these are 128 requests.
const GATHERED_MAX: usize = 128 * DESTROYED_MAX;
/// Nor does what has so many bytes, or somebody would miss them who looks how much is free, or needs
/// it. A request for that is cheap.
const GATHERED_BYTES_MAX: u64 = 64 * MIB;
/// Nor anything where less than this part of an OST is left: somebody may need it now.
const TIGHT_PART: u64 = 8;

/// One object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Removal {
    pub(crate) object: ObjectId,
    /// Somebody may still be writing to it.
    pub(crate) late_writers: bool,
    /// How long it is, as far as that is known; very long, if it is not to wait.
    pub(crate) bytes: u64,
}

/// Those of one OST.
#[derive(Debug, Default)]
pub(super) struct Removals {
    waiting: VecDeque<(ObjectId, bool)>,
    /// How long they are together.
    bytes: u64,
    /// When the first of them was seen.
    since_ns: Option<u64>,
    /// They wait no longer.
    is_due: bool,
}

impl Removals {
    /// One that somebody may still be writing to does not wait: until it is gone, and its OST knows
    /// that, it could grow.
    pub(super) fn push(&mut self, removal: Removal) {
        let Removal { object, late_writers, bytes } = removal;
        self.waiting.push_back((object, late_writers));
        self.bytes = self.bytes.saturating_add(bytes);
        self.is_due |= late_writers;
    }

    /// Whether they are to wait for longer. To be asked before they are taken.
    pub(super) fn look(&mut self, now_ns: u64, age_ns: u64, is_tight: bool) {
        if self.waiting.is_empty() {
            return;
        }
        let since_ns = *self.since_ns.get_or_insert(now_ns);
        self.is_due |= is_tight
            || self.waiting.len() >= GATHERED_MAX
            || self.bytes >= GATHERED_BYTES_MAX
            || now_ns.saturating_sub(since_ns) >= age_ns;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether there is something to be sent.
    pub(super) fn are_due(&self) -> bool {
        self.is_due
    }

    /// The next request, if they are due.
    pub(super) fn take(&mut self) -> Option<OstRequest> {
        if !self.is_due {
            return None;
        }
        let (first, late_writers) = self.waiting.pop_front()?;
        let mut objects = vec![first];
        while objects.len() < DESTROYED_MAX
            && let Some((object, _)) =
                self.waiting.front().copied().filter(|next| next.1 == late_writers)
        {
            self.waiting.pop_front();
            objects.push(object);
        }
        if self.waiting.is_empty() {
            (self.bytes, self.since_ns, self.is_due) = (0, None, false);
        }
        Some(OstRequest::Destroy { objects, late_writers })
    }
}

/// Whether an OST that says so has little room, for bytes or for objects.
pub(super) fn is_tight(space: &StatFs) -> bool {
    // Nothing is known of one without a size, and a file system that makes inodes as it needs them
    // tells of none.
    space.bytes_avail < space.bytes_total / TIGHT_PART
        || space.files_free < space.files_total / TIGHT_PART
}

#[cfg(test)]
mod tests;

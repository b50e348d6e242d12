//! Objects of removed files that an OST is to destroy. They wait until no more come: to destroy them is
//! nothing that anybody waits for, and under a stream of removals it would take the time of those who do,
//! most of it in the file system below. And an OST makes the removals of each request durable, a flush
//! of its folders that costs the same for one object and for many.
//!
//! 1. An object comes when the removal of its file is durable.
//! 2. It waits until none has come for the delay that is set, and ten times that at the most, or until
//!    one of those that wait, or the OST, is such that they must not ([`Removals::look`]). Nothing is to
//!    be done meanwhile, and no tick is asked for: that of a target that rests comes soon enough.
//! 3. Then they go, until others come; or, if they must not wait, all that are there then.
//!
//! A crash forgets them, and the next run finds their records.

use std::collections::VecDeque;

use sateen_types::ObjectId;
use sateen_types::units::MIB;
use sateen_wire::{OstRequest, StatFs};

/// Objects that are removed by one request. Each may take a disk some time, and an OST that has not
/// answered for long counts as away; a group commit answers many such requests.
pub(super) const DESTROYED_MAX: usize = 64;
/// So many do not wait: some seconds of what an MDT removes. What is kept of them in memory has a bound.
const GATHERED_MAX: usize = 1024 * DESTROYED_MAX;
/// Nor does what has so many bytes, or somebody would miss them who looks how much is free, or needs
/// it. A request for that is cheap.
const GATHERED_BYTES_MAX: u64 = 256 * MIB;
/// Nor what has waited for so many delays: others come all the time.
const DELAYS_MAX: u64 = 10;
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
    waiting: VecDeque<Removal>,
    /// How long they are together.
    bytes: u64,
    /// Since when they wait, but for those that must go, and when the last of them was seen.
    seen_ns: Option<(u64, u64)>,
    /// Others have come since.
    came: bool,
    /// None has come for long, as of the last look.
    is_quiet: bool,
    /// So many of the first must not wait any longer.
    must_go: usize,
}

impl Removals {
    /// One that somebody may still be writing to does not wait, nor do those before it: until it is
    /// gone, and its OST knows that, it could grow.
    pub(super) fn push(&mut self, removal: Removal) {
        let removal = Removal { bytes: removal.bytes.min(GATHERED_BYTES_MAX), ..removal };
        self.bytes += removal.bytes;
        self.came = true;
        self.waiting.push_back(removal);
        if removal.late_writers {
            self.must_go = self.waiting.len();
        }
    }

    /// Whether they are to wait for longer. To be asked before they are taken.
    pub(super) fn look(&mut self, now_ns: u64, delay_ns: u64, is_tight: bool) {
        if self.waiting.is_empty() {
            return;
        }
        let (mut first_ns, mut last_ns) = self.seen_ns.unwrap_or((now_ns, now_ns));
        if core::mem::take(&mut self.came) {
            last_ns = now_ns;
        }
        let must_go = is_tight
            || self.waiting.len() >= GATHERED_MAX
            || self.bytes >= GATHERED_BYTES_MAX
            || now_ns.saturating_sub(first_ns) >= delay_ns.saturating_mul(DELAYS_MAX);
        if must_go {
            // Those that come from now on wait anew.
            (self.must_go, first_ns) = (self.waiting.len(), now_ns);
        }
        self.is_quiet = now_ns.saturating_sub(last_ns) >= delay_ns;
        self.seen_ns = Some((first_ns, last_ns));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether there is something to be sent.
    pub(super) fn are_due(&self) -> bool {
        self.must_go > 0 || self.is_quiet && !self.waiting.is_empty()
    }

    /// The next request, if they are due.
    pub(super) fn take(&mut self) -> Option<OstRequest> {
        if !self.are_due() {
            return None;
        }
        let late_writers = self.waiting.front()?.late_writers;
        let mut objects = Vec::new();
        while objects.len() < DESTROYED_MAX
            && let Some(next) = self.waiting.pop_front_if(|next| next.late_writers == late_writers)
        {
            self.bytes -= next.bytes;
            objects.push(next.object);
        }
        self.must_go = self.must_go.saturating_sub(objects.len());
        if self.waiting.is_empty() {
            *self = Removals { waiting: core::mem::take(&mut self.waiting), ..Removals::default() };
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

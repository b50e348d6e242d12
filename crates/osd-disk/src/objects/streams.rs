//! Who reads an object from its front to its back, and what the kernel is to be asked for ahead.
//!
//! All readers of an object share one descriptor, so the kernel's own read-ahead takes several for
//! one that jumps; and it asks for no more than a disk's `read_ahead_kb`. Whoever
//! jumps is left to the kernel, which then reads what was asked for and no more, until he has waited often
//! in one place ([`super::dense`]).
//!
//! Life of a stream:
//! 1. Its first request is like any other.
//! 2. *Forward*: further requests begin near where the last ended. They come from several threads,
//!    so not quite in order.
//! 3. *Ahead*, once one of them has to wait for the disk: the kernel is asked for that request and
//!    the next ones, for twice as many each time. Half a window before its end that goes on; but
//!    as long as what comes is in memory already nothing is asked for.
//! 4. *Forgotten* when others have been read since.

use std::ops::Range;

/// Readers of one object that are told apart.
const STREAMS_MAX: usize = 4;
/// A request belongs to a stream that has come at most so many requests further than where it
/// begins, or so many less.
const BEHIND_REQUESTS: u64 = 4;
const BEFORE_REQUESTS: u64 = 2;
/// Requests of a stream for which the kernel is asked ahead: at first, and at most.
const AHEAD_REQUESTS: u64 = 2;
const AHEAD_REQUESTS_MAX: u64 = 4;
/// And bytes: for small requests more, for large ones less.
const AHEAD_BYTES_MIN: u64 = 512 << 10;
const AHEAD_BYTES_MAX: u64 = 16 << 20;

/// The readers of one object, the last one first.
#[derive(Debug, Default)]
pub(super) struct Streams([Stream; STREAMS_MAX]);

/// What a request is that has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Passed {
    /// One of a stream that goes forward.
    pub(super) forward: bool,
    /// More is to be asked for, from here on, if it is not in memory.
    pub(super) due: Option<u64>,
}

#[derive(Debug, Default)]
struct Stream {
    /// Where its furthest request ended.
    end: u64,
    /// The length of its last request; 0 if there was none.
    len: u64,
    /// Whether it has come forward.
    forward: bool,
    /// So many bytes are asked for beyond a request.
    window: u64,
    /// The kernel was asked for all up to here.
    ahead: u64,
    /// A request that ends here or beyond brings on more.
    due: u64,
}

impl Stream {
    fn takes(&self, offset: u64, len: u64) -> bool {
        let reach = self.len.max(len);
        self.len > 0
            && offset.saturating_add(BEHIND_REQUESTS.saturating_mul(reach)) >= self.end
            && offset <= self.end.saturating_add(BEFORE_REQUESTS.saturating_mul(reach))
    }
}

impl Streams {
    /// A request comes.
    pub(super) fn pass(&mut self, offset: u64, len: u64) -> Passed {
        let known = self.0.iter().position(|stream| stream.takes(offset, len));
        let at = known.unwrap_or(STREAMS_MAX - 1);
        let (Some(latest), end) = (self.0.get_mut(..=at), offset.saturating_add(len)) else {
            return Passed::default();
        };
        latest.rotate_right(1);
        let Some(stream) = latest.first_mut() else { return Passed::default() };
        if known.is_none() {
            *stream = Stream { end, len, ..Stream::default() };
            return Passed::default();
        }
        stream.len = len;
        stream.forward |= end > stream.end;
        stream.end = stream.end.max(end);
        let due = (stream.window > 0 && stream.end >= stream.due).then_some(stream.ahead);
        Passed { forward: stream.forward, due }
    }

    /// What was to be asked for from here on is in memory: so is what is behind it, probably.
    pub(super) fn is_there(&mut self, ahead: u64) {
        if let Some(stream) = self.0.iter_mut().find(|stream| stream.ahead == ahead) {
            let step = stream.window / 2;
            stream.ahead = stream.ahead.saturating_add(step);
            stream.due = stream.due.saturating_add(step);
        }
    }

    /// A request that has passed waits for the disk, of an object of so many bytes: what the kernel
    /// is to be asked for.
    pub(super) fn wait(&mut self, offset: u64, len: u64, size: u64) -> Option<Range<u64>> {
        let stream = self.0.iter_mut().find(|stream| stream.takes(offset, len))?;
        let end = offset.saturating_add(len);
        let on_its_way = stream.end < stream.due && end <= stream.ahead;
        if !stream.forward || on_its_way {
            return None;
        }
        let most = AHEAD_REQUESTS_MAX.saturating_mul(len).clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX);
        let more =
            AHEAD_REQUESTS.saturating_mul(if stream.window > 0 { stream.window } else { len });
        stream.window = more.min(most);
        // Others may have read since what it was once asked for.
        let from = stream.ahead.max(offset).min(stream.end.max(offset).saturating_add(most));
        stream.ahead = stream.end.max(end).saturating_add(stream.window).min(size);
        stream.due = match stream.ahead < size {
            true => stream.ahead - stream.window / 2,
            // Until it has grown, and somebody reads that.
            false => u64::MAX,
        };
        (from < stream.ahead).then_some(from..stream.ahead)
    }
}

#[cfg(test)]
mod tests;

//! The journal device as a port: where group commits become durable.
//!
//! Called by drivers only, never by services, and by one caller at a time. What a device
//! found when it was opened goes to `Recovery` (crate `target`) before the first write; how
//! it is opened is each backend's own matter, because only it knows what it lies on.

use std::io;

use crate::Flush;

/// An append-only log of frames.
pub trait JournalDevice: Send {
    /// Appends the frame of a group commit and returns once it is durable: its bytes, its
    /// length, and the name of the file it lies in. Frames come in transno order without a
    /// gap.
    ///
    /// # Errors
    /// The device's. The frame may or may not be there then, so the target is poisoned and
    /// the device is not written again; a full disk counts too, because what it would have
    /// made durable has already been answered.
    fn write(&mut self, flush: &Flush) -> io::Result<()>;

    /// Everything up to this transno is durably in the index: its space may be used again.
    /// Frames that reach beyond it stay whole. Called between writes, which wait for it, so
    /// it must not take long.
    ///
    /// # Errors
    /// The device's; the target is poisoned then.
    fn trim(&mut self, upto: u64) -> io::Result<()>;
}

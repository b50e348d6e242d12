//! The ways in which a range of a file is allocated or emptied.

/// What `fallocate` does with a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Falloc {
    /// Space is kept for it.
    Allocate,
    /// Its space is freed, and it reads as zeros.
    PunchHole,
    /// It reads as zeros, and space is kept for it.
    ZeroRange,
}

//! What a command says when it cannot do what it was asked: what is wrong, and what to do.

use std::fmt;
use std::io;

/// A refusal, for the user to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// What is wrong, in one sentence without a full stop.
    pub what: String,
    /// What the user can do about it.
    pub hint: String,
    /// Nobody need do anything but wait: a server that is missed may be starting.
    pub may_pass: bool,
    /// It will be refused again until somebody does something about it, here or elsewhere.
    pub lasts: bool,
}

/// What to do about a mount that answers `ENOTCONN`.
pub(crate) const PROCESS_GONE: &str =
    "the process of that mount is gone: unmount it (umount), and mount it again";

/// What commands return.
pub(crate) type Outcome<T> = Result<T, Refusal>;

impl Refusal {
    /// A refusal.
    pub(crate) fn new(what: impl Into<String>, hint: impl Into<String>) -> Refusal {
        Refusal { what: what.into(), hint: hint.into(), may_pass: false, lasts: false }
    }

    /// What somebody has ended before it was done.
    pub(crate) fn told_to_end() -> Refusal {
        Refusal::new("it was told to end", "start it again")
    }

    /// The same, of something that may be over in a while.
    #[must_use]
    pub(crate) fn that_may_pass(self) -> Refusal {
        Refusal { may_pass: true, ..self }
    }

    /// The same, of something that trying again does not change.
    #[must_use]
    pub(crate) fn that_lasts(self) -> Refusal {
        Refusal { lasts: true, ..self }
    }

    /// A failed system call. The hints for the errors that users meet are here, once.
    pub(crate) fn io(doing: impl fmt::Display, error: &io::Error) -> Refusal {
        use io::ErrorKind::{
            NotADirectory, NotConnected, NotFound, PermissionDenied, ReadOnlyFilesystem,
            StorageFull,
        };
        let hint = match error.kind() {
            StorageFull => "free space on that disk, or choose another with --data",
            PermissionDenied => "run it as root (sudo), or choose a place that is yours",
            ReadOnlyFilesystem => "that disk is mounted read-only: remount it, or choose another",
            NotADirectory => "a part of the path is a file: choose another path",
            NotFound => "check the path",
            NotConnected => PROCESS_GONE,
            _ if error.raw_os_error() == Some(rustix::io::Errno::DQUOT.raw_os_error()) => {
                "your disk quota is used up: free space, or choose another disk with --data"
            }
            _ => "look at the disk and the kernel's log (dmesg), then try again",
        };
        Refusal::new(format!("cannot {doing}: {error}"), hint)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  what to do: {}", self.what, self.hint)
    }
}

impl std::error::Error for Refusal {}

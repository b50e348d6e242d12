//! The one error that crosses boundaries: an errno as POSIX programs expect it.
//!
//! Crates keep their own richer errors (`thiserror`) and map them to an [`Errno`] where a
//! reply or a system call result is made, logging the story there.

use core::fmt;

/// A Linux errno (x86-64 and arm64 numbering, which agree for all values used here).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(i32);

/// What nearly every operation of a service or of the client returns.
pub type Result<T> = core::result::Result<T, Errno>;

macro_rules! errnos {
    ($($name:ident = $num:literal, $text:literal;)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Errno = Errno($num);)*

            /// The symbolic name, `"E?"` for a number that Sateen itself never produces.
            pub const fn name(self) -> &'static str {
                match self.0 { $($num => stringify!($name),)* _ => "E?" }
            }

            /// What the number means, in words.
            pub const fn text(self) -> &'static str {
                match self.0 { $($num => $text,)* _ => "unknown error" }
            }
        }
    };
}

errnos! {
    EPERM = 1, "operation not permitted";
    ENOENT = 2, "no such file or directory";
    EINTR = 4, "interrupted system call";
    EIO = 5, "input/output error";
    ENXIO = 6, "no such device or address";
    E2BIG = 7, "argument list too long";
    EBADF = 9, "bad file descriptor";
    EAGAIN = 11, "try again";
    ENOMEM = 12, "out of memory";
    EACCES = 13, "permission denied";
    EBUSY = 16, "device or resource busy";
    EEXIST = 17, "file exists";
    EXDEV = 18, "invalid cross-device link";
    ENODEV = 19, "no such device";
    ENOTDIR = 20, "not a directory";
    EISDIR = 21, "is a directory";
    EINVAL = 22, "invalid argument";
    ENFILE = 23, "too many open files in system";
    ENOTTY = 25, "inappropriate ioctl for device";
    ETXTBSY = 26, "text file busy";
    EFBIG = 27, "file too large";
    ENOSPC = 28, "no space left on device";
    EROFS = 30, "read-only file system";
    EMLINK = 31, "too many links";
    ERANGE = 34, "result out of range";
    EDEADLK = 35, "resource deadlock avoided";
    ENAMETOOLONG = 36, "file name too long";
    ENOLCK = 37, "no record locks available";
    ENOSYS = 38, "function not implemented";
    ENOTEMPTY = 39, "directory not empty";
    ELOOP = 40, "too many levels of symbolic links";
    ENODATA = 61, "no data available";
    EPROTO = 71, "protocol error";
    EOVERFLOW = 75, "value too large for defined data type";
    EPROTONOSUPPORT = 93, "protocol not supported";
    EOPNOTSUPP = 95, "operation not supported";
    ECONNRESET = 104, "connection reset by peer";
    ESHUTDOWN = 108, "endpoint has shut down";
    ETIMEDOUT = 110, "connection timed out";
    ESTALE = 116, "stale file handle";
    EREMOTEIO = 121, "remote input/output error";
    EDQUOT = 122, "disk quota exceeded";
}

impl Errno {
    /// From a raw positive errno; anything else becomes `EIO`, because a zero or negative
    /// "error" from a peer must never be taken for success.
    pub const fn from_raw(raw: i32) -> Errno {
        if raw > 0 && raw < 4096 { Errno(raw) } else { Errno::EIO }
    }

    /// The positive number.
    pub const fn raw(self) -> i32 {
        self.0
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for Errno {}

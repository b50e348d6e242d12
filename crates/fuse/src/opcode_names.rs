//! Names of the kernel's operations, for who counts or measures them: the words of a mount's
//! statistics, where they have one.
use crate::abi::opcode;

/// What an operation is called, by its number in the kernel's protocol; variants of one go by its
/// name.
pub const fn opcode_name(number: u32) -> &'static str {
    match number {
        opcode::LOOKUP => "lookup",
        opcode::FORGET | opcode::BATCH_FORGET => "forget",
        opcode::GETATTR | opcode::STATX => "getattr",
        opcode::SETATTR => "setattr",
        opcode::READLINK => "readlink",
        opcode::SYMLINK => "symlink",
        opcode::MKNOD => "mknod",
        opcode::MKDIR => "mkdir",
        opcode::UNLINK => "unlink",
        opcode::RMDIR => "rmdir",
        opcode::RENAME | opcode::RENAME2 => "rename",
        opcode::LINK => "link",
        opcode::OPEN => "open",
        opcode::READ => "read",
        opcode::WRITE => "write",
        opcode::STATFS => "statfs",
        opcode::RELEASE => "close",
        opcode::FSYNC | opcode::FSYNCDIR => "fsync",
        opcode::SETXATTR => "setxattr",
        opcode::GETXATTR => "getxattr",
        opcode::LISTXATTR => "listxattr",
        opcode::REMOVEXATTR => "removexattr",
        opcode::FLUSH => "flush",
        opcode::INIT => "init",
        opcode::OPENDIR => "opendir",
        opcode::READDIR | opcode::READDIRPLUS => "readdir",
        opcode::RELEASEDIR => "closedir",
        opcode::GETLK | opcode::SETLK | opcode::SETLKW => "flock",
        opcode::ACCESS => "access",
        opcode::CREATE => "create",
        opcode::TMPFILE => "tmpfile",
        opcode::INTERRUPT => "interrupt",
        opcode::IOCTL => "ioctl",
        opcode::FALLOCATE => "fallocate",
        opcode::LSEEK => "seek",
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => "copy_file_range",
        opcode::SYNCFS => "syncfs",
        _ => "other",
    }
}

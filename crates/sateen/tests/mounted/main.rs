//! What programs see on a mount, each with all servers in one process and with separate servers
//! over TCP. Real programs come from Debian, two from crates.io; `scripts/test.sh` installs
//! them. Needs root and /dev/fuse.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, clippy::indexing_slicing)]

mod calls;
mod file_locks;
mod fsx;
mod given;
mod posix;
mod programs;
mod rig;
mod rows;
mod times;
mod transport;
mod two_mounts;

const BINARY: &str = env!("CARGO_BIN_EXE_sateen");

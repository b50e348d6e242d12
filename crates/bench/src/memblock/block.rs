//! Memory that is taken and locked, piece by piece.

use std::fs;

use rustix::mm::{MlockAllFlags, mlockall};

use crate::error::{Error, Result};
use crate::size;

/// A piece: large enough that the C library maps it for itself, small enough that what others
/// need is seen in time.
const PIECE: u64 = 64 << 20;
/// What pages are filled with: not the zeros that the kernel may keep nowhere.
const FILL: u8 = 0xa5;

/// Memory that is locked as long as this exists.
#[derive(Debug)]
pub(super) struct Block {
    pieces: Vec<Vec<u8>>,
}

impl Block {
    /// Takes so many bytes, asking before each piece whether to go on.
    pub(super) fn take(bytes: u64, mut go_on: impl FnMut() -> Result<()>) -> Result<Self> {
        // From here on every page is locked as it is written; of what was there before nothing
        // needs to be.
        mlockall(MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)
            .map_err(|error| Error::system("lock memory", error))?;
        let mut block = Self { pieces: Vec::new() };
        let mut left = bytes;
        while left > 0 {
            go_on()?;
            let len = usize::try_from(left.min(PIECE)).unwrap_or(usize::MAX);
            let mut piece = Vec::new();
            if piece.try_reserve_exact(len).is_err() {
                return Err(Error::Failed(format!(
                    "the system gave {} of {}, and no more (overcommit, or a limit on this \
                     process: ulimit -a); all was let go",
                    size::human(bytes - left),
                    size::human(bytes)
                )));
            }
            piece.resize(len, FILL);
            block.pieces.push(piece);
            left -= len as u64;
        }
        block.verify(bytes)?;
        Ok(block)
    }

    /// How much it is.
    pub(super) fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }

    /// Asks the kernel whether it is locked.
    fn verify(&self, bytes: u64) -> Result<()> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
        let locked = locked.and_then(|text| text.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        match locked.map(|kib| kib << 10) {
            Some(locked) if locked >= bytes => Ok(()),
            locked => Err(Error::Failed(format!(
                "the kernel has locked {} of {}; all was let go",
                size::human(locked.unwrap_or(0)),
                size::human(bytes)
            ))),
        }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.pieces.clear();
        // Nothing of this process is locked from here on; it has no other locked memory.
        let _ = rustix::mm::munlockall();
    }
}

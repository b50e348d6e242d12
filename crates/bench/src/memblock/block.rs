//! Memory that is taken and locked, piece by piece.

use std::fs;
use std::io;

use crate::error::{Error, Result};
use crate::size;
use crate::sys::{Locked, page_bytes};

/// A piece: small enough that what others need is seen in time.
const PIECE: u64 = 64 << 20;

/// Memory that is locked as long as this exists.
#[derive(Debug)]
pub(super) struct Block {
    pieces: Vec<Locked>,
}

impl Block {
    /// Takes so many bytes in whole pages, asking before each piece whether to go on.
    pub(super) fn take(bytes: u64, mut go_on: impl FnMut() -> Result<()>) -> Result<Self> {
        let all = in_pages(bytes);
        let mut block = Self { pieces: Vec::new() };
        while block.bytes() < all {
            go_on()?;
            let so_far = block.bytes();
            let len = usize::try_from((all - so_far).min(PIECE)).unwrap_or(usize::MAX);
            let mut piece = Locked::map(len).map_err(|error| no_more(so_far, all, &error))?;
            piece.lock().map_err(|error| not_locked(so_far, all, &error))?;
            block.pieces.push(piece);
        }
        block.verify()?;
        Ok(block)
    }

    /// How much it is.
    pub(super) fn bytes(&self) -> u64 {
        self.pieces.iter().map(Locked::bytes).sum()
    }

    /// Asks the kernel whether all of it is in memory and locked. The process has locked nothing
    /// else.
    fn verify(&self) -> Result<()> {
        let locked = locked()?;
        if locked >= self.bytes() {
            return Ok(());
        }
        Err(Error::Failed(format!(
            "the kernel says that {} of {} are locked and in memory, and caches could have the \
             rest; all was let go: take less (-m), and look into the kernel's log (dmesg)",
            size::human(locked),
            size::human(self.bytes())
        )))
    }
}

/// The bytes of whole pages that so many are in.
pub(super) fn in_pages(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(page_bytes()).unwrap_or(bytes)
}

fn no_more(got: u64, all: u64, why: &io::Error) -> Error {
    Error::Failed(format!(
        "the system gave {} of {}, and no more ({why}); all was let go: take less (-m), or raise \
         what limits it (ulimit -v, vm.overcommit_memory)",
        size::human(got),
        size::human(all)
    ))
}

fn not_locked(got: u64, all: u64, why: &io::Error) -> Error {
    Error::Failed(format!(
        "the kernel locked {} of {}, and no more ({why}); all was let go: take less (-m), raise \
         the limit on locked memory (ulimit -l), or run this as root",
        size::human(got),
        size::human(all)
    ))
}

/// Bytes of this process that are in memory and locked. `VmLck` counts what is mapped, also where
/// nothing is in memory yet; kernels before 4.14 have nothing better.
fn locked() -> Result<u64> {
    let field = |file: &str, name: &str| {
        let said = fs::read_to_string(file).unwrap_or_default();
        let text = said.lines().find_map(|line| line.strip_prefix(name))?;
        text.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    let kib = field("/proc/self/smaps_rollup", "Locked:")
        .or_else(|| field("/proc/self/status", "VmLck:"));
    kib.map(|kib| kib << 10).ok_or_else(|| {
        Error::Failed(
            "/proc does not say how much of this process is locked; all was let go: mount /proc"
                .into(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_whole_pages_and_all_of_it_is_locked() {
        let page = page_bytes();
        assert_eq!((in_pages(1), in_pages(page), in_pages(page + 1)), (page, page, 2 * page));
        // As many as anybody may lock.
        let block = Block::take(40_000, || Ok(())).unwrap();
        assert_eq!(block.bytes(), in_pages(40_000));
        assert!(locked().unwrap() >= block.bytes());
        assert!(Block::take(1, || Err(Error::Stopped)).is_err());
    }

    #[test]
    fn who_gets_less_is_told_what_to_do() {
        let why = io::Error::from(io::ErrorKind::OutOfMemory);
        let said = not_locked(64 << 20, 1 << 30, &why).to_string();
        assert!(said.contains("64 MiB of 1 GiB") && said.contains("ulimit -l"), "{said}");
        let said = no_more(0, 1 << 30, &why).to_string();
        assert!(said.contains("0 bytes of 1 GiB") && said.contains("-m"), "{said}");
    }
}

//! The communicator of a run with one rank: there is nobody to wait for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::Communicator;
use crate::error::{Error, Result};

/// One rank.
#[derive(Debug)]
pub struct Solo {
    stopped: Arc<AtomicBool>,
    done: AtomicU64,
    over: AtomicU64,
}

/// A flag that is set by the signals that end programs, so that a run ends in good order.
pub fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stopped))
            .map_err(|error| Error::system("handle signals", error))?;
    }
    Ok(stopped)
}

impl Solo {
    /// This process.
    pub fn new() -> Result<Self> {
        Ok(Self { stopped: stop_on_signals()?, done: AtomicU64::new(0), over: AtomicU64::new(0) })
    }
}

impl Communicator for Solo {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn barrier(&self) -> Result<()> {
        self.check()
    }

    fn all_gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.check()?;
        Ok(vec![mine.to_vec()])
    }

    #[inline]
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn abort(&self, why: &str) {
        eprintln!("sateen-bench: {why}");
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn done(&self, rank: usize) -> Option<&AtomicU64> {
        (rank == 0).then_some(&self.done)
    }

    fn over(&self, rank: usize) -> Option<&AtomicU64> {
        (rank == 0).then_some(&self.over)
    }
}

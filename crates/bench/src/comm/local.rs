//! A rank that `launch` started on this host. Its standard input is the memory that all share;
//! it dies with the process that started it.

use std::sync::atomic::AtomicU64;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::board::{BOX_BYTES, Board};
use super::{Communicator, RANKS_MAX};
use crate::error::{Error, Result};

/// Tells a process that it is a rank: `RANK:SIZE:PID`, with the launcher's process.
pub(super) const VARIABLE: &str = "SATEEN_BENCH_RANK";

/// One of the processes of a run.
#[derive(Debug)]
pub struct Local {
    board: Board,
    rank: usize,
}

impl Local {
    /// What this process was started as, if it is a rank.
    pub fn attach() -> Result<Option<Self>> {
        let Ok(text) = std::env::var(VARIABLE) else { return Ok(None) };
        let strange = || Error::Failed(format!("{VARIABLE}={text} makes no sense"));
        let mut numbers = text.split(':').map(str::parse::<usize>);
        let mut next = || numbers.next().and_then(|number| number.ok()).ok_or_else(strange);
        let (rank, size, launcher) = (next()?, next()?, next()?);
        if rank >= size || size > RANKS_MAX {
            return Err(strange());
        }
        set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(|error| Error::system("tie the rank to its launcher", error))?;
        // It may have died before that.
        let parent = getppid().map_or(0, |pid| pid.as_raw_pid());
        if usize::try_from(parent) != Ok(launcher) {
            return Err(Error::Failed("the launcher is gone".into()));
        }
        let board = Board::map(rustix::stdio::stdin(), size)
            .map_err(|error| Error::system("map the memory of the ranks", error))?;
        Ok(Some(Self { board, rank }))
    }

    #[cfg(test)]
    fn of(board: Board, rank: usize) -> Self {
        Self { board, rank }
    }
}

impl Communicator for Local {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.board.size()
    }

    fn barrier(&self) -> Result<()> {
        self.board.barrier()
    }

    fn all_gather(&self, mine: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut all = vec![Vec::new(); self.size()];
        let mut rest = mine;
        loop {
            self.board.put(self.rank, rest);
            self.board.barrier()?;
            let mut more = false;
            for (rank, bytes) in all.iter_mut().enumerate() {
                more |= self.board.take(rank, bytes) > BOX_BYTES;
            }
            // Nobody fills a box again before all have looked into it.
            self.board.barrier()?;
            if !more {
                return Ok(all);
            }
            rest = rest.get(BOX_BYTES..).unwrap_or_default();
        }
    }

    #[inline]
    fn is_stopped(&self) -> bool {
        self.board.is_stopped()
    }

    fn abort(&self, why: &str) {
        let size = self.size();
        let why = if size == 1 { why.to_owned() } else { format!("rank {}: {why}", self.rank) };
        self.board.stop(&why);
    }

    fn fails(&self, why: &str) {
        self.abort(why);
    }

    fn done(&self, rank: usize) -> Option<&AtomicU64> {
        self.board.done(rank)
    }

    fn over(&self, rank: usize) -> Option<&AtomicU64> {
        self.board.over(rank)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::comm::Reduce;

    /// Runs `work` as so many ranks, threads here, each with a mapping of its own.
    pub(crate) fn ranks<T: Send>(size: usize, work: impl Fn(&Local) -> T + Sync) -> Vec<T> {
        let fd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, Board::bytes(size) as u64).unwrap();
        let (fd, work) = (&fd, &work);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..size)
                .map(|rank| {
                    scope.spawn(move || work(&Local::of(Board::map(fd, size).unwrap(), rank)))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn all_ranks_hear_all_ranks() {
        let bytes = |rank: usize| vec![rank as u8; [0, 1, BOX_BYTES, BOX_BYTES * 3 + 5][rank % 4]];
        let heard = ranks(5, |comm| comm.all_gather(&bytes(comm.rank())).unwrap());
        let wanted: Vec<_> = (0..5).map(bytes).collect();
        assert!(heard.iter().all(|all| *all == wanted));
    }

    #[test]
    fn values_of_all_become_one() {
        let found = ranks(4, |comm| {
            let value = comm.rank() as f64 - 1.5;
            let how = |how| comm.reduce_f64(value, how).unwrap();
            let sum = comm.reduce_u64(comm.rank() as u64, Reduce::Sum).unwrap();
            let root = comm.broadcast_u64(comm.rank() as u64 + 7).unwrap();
            (how(Reduce::Min), how(Reduce::Max), how(Reduce::Sum), sum, root)
        });
        assert!(found.iter().all(|all| *all == (-1.5, 1.5, 0.0, 6, 7)), "{found:?}");
    }

    #[test]
    fn nobody_passes_a_barrier_before_all_are_there() {
        use std::sync::atomic::{AtomicU32, Ordering};
        let here = AtomicU32::new(0);
        ranks(3, |comm| {
            for round in 1..=200 {
                here.fetch_add(1, Ordering::SeqCst);
                comm.barrier().unwrap();
                assert_eq!(here.load(Ordering::SeqCst), 3 * round);
                comm.barrier().unwrap();
            }
        });
    }

    #[test]
    fn an_aborted_run_keeps_nobody_waiting() {
        let ends = ranks(3, |comm| {
            if comm.rank() == 1 {
                comm.abort("it broke");
            }
            let end = comm.barrier();
            (matches!(end, Err(Error::Stopped)), comm.board.reason())
        });
        let wanted = (true, Some("rank 1: it broke".to_owned()));
        assert!(ends.iter().all(|end| *end == wanted), "{ends:?}");
    }
}

//! Threads for jobs that may each wait for ever, and that must not wait for each other.
//!
//! The kernel drops an inode's pages only when READs of them have ended, and those may wait for a
//! target that is away. So a job that finds no thread free gets one of its own; there is a job
//! per inode that is being dropped at most.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Threads that are kept though there is nothing to do.
const KEPT: usize = 4;
/// Threads at most: as many inodes can be stuck at once.
const MAX: usize = 1024;
/// How long any other waits for a job before it ends.
const IDLE: Duration = Duration::from_secs(10);
/// Of a thread's stack: it makes one system call.
const STACK_BYTES: usize = 256 << 10;

/// The threads; they end, when all jobs are done, once this is dropped.
pub(super) struct Drops<J>(Arc<Shared<J>>);

struct Shared<J> {
    line: Mutex<Line<J>>,
    came: Condvar,
    work: Box<dyn Fn(J) + Send + Sync>,
}

struct Line<J> {
    waiting: VecDeque<J>,
    threads: usize,
    /// Those of them that wait for a job, or have not noticed yet that there is one.
    free: usize,
    closed: bool,
}

impl<J: Send + 'static> Drops<J> {
    /// Threads that do this with each job.
    ///
    /// # Errors
    /// If they cannot be started.
    pub(super) fn start(work: impl Fn(J) + Send + Sync + 'static) -> io::Result<Drops<J>> {
        let line = Line { waiting: VecDeque::new(), threads: KEPT, free: 0, closed: false };
        let (line, came, work) = (Mutex::new(line), Condvar::new(), Box::new(work));
        let drops = Drops(Arc::new(Shared { line, came, work }));
        for _ in 0..KEPT {
            drops.spawn()?;
        }
        Ok(drops)
    }

    /// A further job.
    pub(super) fn push(&self, job: J) {
        let more = {
            let mut line = self.0.lock();
            line.waiting.push_back(job);
            // Those that wait are for who is free, and for threads that were just started.
            let more = line.free < line.waiting.len() && line.threads < MAX;
            line.threads += usize::from(more);
            more
        };
        if !more {
            self.0.came.notify_one();
        } else if let Err(error) = self.spawn() {
            // The job waits for another to end.
            self.0.lock().threads -= 1;
            self.0.came.notify_one();
            tracing::warn!(%error, "no thread to drop pages with");
        }
    }

    fn spawn(&self) -> io::Result<()> {
        let shared = self.0.clone();
        let thread = std::thread::Builder::new().name("notify".to_owned()).stack_size(STACK_BYTES);
        thread.spawn(move || shared.serve()).map(drop)
    }
}

impl<J> Drop for Drops<J> {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.came.notify_all();
    }
}

impl<J> Shared<J> {
    fn lock(&self) -> MutexGuard<'_, Line<J>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of the threads.
    fn serve(&self) {
        let mut line = self.lock();
        let mut idle = false;
        loop {
            while let Some(job) = line.waiting.pop_front() {
                drop(line);
                (self.work)(job);
                line = self.lock();
                idle = false;
                // A burst leaves no threads behind, however often there is a job afterwards.
                if line.free >= KEPT && line.threads > KEPT && line.waiting.is_empty() {
                    idle = true;
                }
            }
            if line.closed || idle && line.threads > KEPT {
                line.threads -= 1;
                return;
            }
            line.free += 1;
            if line.threads > KEPT {
                let woken = self.came.wait_timeout(line, IDLE);
                let (woken, waited) = woken.unwrap_or_else(PoisonError::into_inner);
                (line, idle) = (woken, waited.timed_out());
            } else {
                line = self.came.wait(line).unwrap_or_else(PoisonError::into_inner);
            }
            line.free -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc::channel;

    use super::*;

    /// So many jobs that cannot end, and then one that can.
    #[test]
    fn no_job_waits_for_another() {
        const STUCK: usize = 3 * KEPT;
        let (done, is_done) = channel();
        let over = Arc::new(Barrier::new(STUCK + 1));
        let wait = over.clone();
        let drops = Drops::start(move |job: usize| {
            if job < STUCK {
                wait.wait();
            }
            let _ = done.send(job);
        })
        .unwrap();
        (0..=STUCK).for_each(|job| drops.push(job));
        let patience = Duration::from_secs(120);
        assert_eq!(is_done.recv_timeout(patience), Ok(STUCK), "nobody waits for its READs");
        over.wait();
        let mut others: Vec<usize> = is_done.iter().take(STUCK).collect();
        others.sort_unstable();
        assert_eq!(others, (0..STUCK).collect::<Vec<_>>());
        // All are free again: they take what comes, and end with their work.
        drops.push(STUCK);
        assert_eq!(is_done.recv(), Ok(STUCK));
        drop(drops);
        assert!(is_done.recv().is_err(), "the last of them has ended");
    }
}

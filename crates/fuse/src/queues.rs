//! Starting and ending the io_uring queues of a session.
//!
//! Called by the session only. The order matters: every queue is made before
//! INIT is answered (so that the kernel is promised nothing that cannot be
//! had), and registered after it (because the kernel takes no command before).
use crate::ring::{Queue, QueueShared, queue_count};
use crate::session::Shared;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Root can switch FUSE over io_uring on here.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Queues that were made and wait for the kernel's readiness.
pub(crate) struct Prepared {
    queues: Vec<Waiting>,
}

struct Waiting {
    shared: Arc<QueueShared>,
    /// Sending lets the queue register; dropping lets it end.
    go: Sender<()>,
    registered: Receiver<io::Result<()>>,
}

/// Why requests cannot come over io_uring.
#[derive(Debug, thiserror::Error)]
pub enum NoUring {
    /// The module's parameter says no.
    #[error("the fuse module has FUSE over io_uring switched off (EOPNOTSUPP)")]
    SwitchedOff,
    /// The kernel has no such parameter.
    #[error("this kernel has no FUSE over io_uring (EOPNOTSUPP)")]
    Absent,
    /// The kernel would run over the end of an entry, which it lets have too few pages.
    #[error("fs.fuse.max_pages_limit is too low for FUSE over io_uring (EINVAL)")]
    FewPages,
    /// The queues are not to be had.
    #[error("the kernel refuses queues of FUSE over io_uring: {0}")]
    Queues(#[source] io::Error),
}

impl NoUring {
    /// Why the kernel, which knows of FUSE over io_uring if it has its switch, does not offer it.
    pub(crate) fn not_offered() -> NoUring {
        let value = std::fs::read_to_string(SWITCH);
        let is_off = value.is_ok_and(|value| value.trim() == "N");
        if is_off { NoUring::SwitchedOff } else { NoUring::Absent }
    }

    /// The errno for it.
    pub fn errno(&self) -> i32 {
        match self {
            NoUring::SwitchedOff | NoUring::Absent => libc::EOPNOTSUPP,
            NoUring::FewPages => libc::EINVAL,
            NoUring::Queues(error) => error.raw_os_error().unwrap_or(libc::EIO),
        }
    }

    /// What has them come over it.
    pub fn what_to_do(&self) -> String {
        match self {
            NoUring::SwitchedOff => format!("as root: echo Y > {SWITCH}"),
            NoUring::Absent => {
                "take a kernel that has it: Linux 6.14, with CONFIG_FUSE_IO_URING".to_owned()
            }
            NoUring::FewPages => "as root: sysctl fs.fuse.max_pages_limit=256".to_owned(),
            NoUring::Queues(_) if self.errno() == libc::EPERM => {
                "as root: sysctl kernel.io_uring_disabled=0; in a container, let its seccomp \
                 profile pass io_uring"
                    .to_owned()
            }
            NoUring::Queues(_) => "see the kernel's log (dmesg)".to_owned(),
        }
    }
}

/// Makes one queue per CPU, each on its own thread.
pub(crate) fn prepare(
    session: &Arc<Shared>,
    device: &Arc<OwnedFd>,
    depth: u32,
    payload: usize,
) -> io::Result<Prepared> {
    let mut starting = Vec::new();
    for id in 0..queue_count()? {
        let (made, is_made) = channel();
        let (go, may_go) = channel::<()>();
        let (told, registered) = channel();
        let device = device.clone();
        session.spawn(format!("fuse-ring-{id}"), move |fs| {
            let queue = Queue::new(id, depth, payload, &device);
            drop(device);
            let mut queue = match queue {
                Ok(queue) => queue,
                // Who does not listen any more has given up; what it waits for ends with this thread.
                Err(error) => {
                    let _ = made.send(Err(error));
                    return None;
                }
            };
            let _ = made.send(Ok(queue.shared()));
            may_go.recv().ok()?;
            #[cfg(not(test))]
            let result = queue.register();
            #[cfg(test)]
            let result = tests::refuse(id).and_then(|()| queue.register());
            let _ = told.send(result);
            // Also if not all went well: until the kernel has given back what it has taken.
            queue.serve(fs)
        })?;
        starting.push((is_made, go, registered));
    }
    let mut queues = Vec::new();
    for (made, go, registered) in starting {
        let shared = made.recv().map_err(|_| io::Error::other("a queue's thread ended"))??;
        queues.push(Waiting { shared, go, registered });
    }
    Ok(Prepared { queues })
}

impl Prepared {
    /// Registers every queue; the kernel uses them from when all have answered.
    /// On an error it uses none, and the connection is good for nothing.
    pub(crate) fn register(self) -> (Vec<Arc<QueueShared>>, io::Result<()>) {
        let mut result = Ok(());
        for queue in &self.queues {
            // A thread that has ended is noticed when it does not answer.
            let _ = queue.go.send(());
        }
        let mut all = Vec::new();
        for queue in self.queues {
            let answer = queue.registered.recv();
            let answer = answer.unwrap_or_else(|_| Err(io::Error::other("a queue's thread ended")));
            all.push(queue.shared);
            result = result.and(answer);
        }
        (all, result)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// The last queue is not to be had.
    pub(crate) static REFUSING: AtomicBool = AtomicBool::new(false);

    pub(super) fn refuse(id: u16) -> io::Result<()> {
        let refused = REFUSING.load(Ordering::SeqCst) && id + 1 == queue_count()?;
        if refused { Err(io::Error::from_raw_os_error(libc::ENOMEM)) } else { Ok(()) }
    }
}

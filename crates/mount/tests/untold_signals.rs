//! Signals of which the kernel tells nobody: whoever waits is let go all the same.
//!
//! Over io_uring a request goes to a queue first, and to the queue's thread when that looks. Of a
//! signal that comes between the two there is no INTERRUPT, neither then nor later, and the kernel
//! waits for the answer: for ever, if that is one of a server that is gone.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test")]

use std::future::{pending, poll_fn, ready};
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::pin::Pin;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use sateen_client::{Client, ClientConfig, KernelInval, Port, Task};
use sateen_fuse::{
    Caps, Filesystem, KernelOffer, MountOptions, Op, Reply, Request, Session, Transport,
    UnmountMode,
};
use sateen_mount::{KernelFs, Sleep};
use sateen_reactor::Executor;
use sateen_testkit::cluster::until;
use sateen_testkit::{can_mount, skipped};
use sateen_types::{ClientId, Endpoint, Fid, Ino, Nid, Timestamp};
use sateen_wire::{Message, TargetInfo};

const EINTR: i32 = 4;

/// Nobody answers.
struct Alone;

impl Port for Alone {
    fn now(&self) -> Timestamp {
        Timestamp::default()
    }
    fn send(&self, _: Message) {}
    fn spawn(&self, _: Task) {}
    fn sleep(&self, _: u64) -> Task {
        Box::pin(pending())
    }
    fn invalidate(&self, _: KernelInval) -> Pin<Box<dyn Future<Output = bool> + Send>> {
        Box::pin(ready(true))
    }
    fn can_prune(&self) -> bool {
        false
    }
    fn prune(&self, _: Vec<Ino>) {}
}

/// Ends after so many nanoseconds.
fn sleep(ns: u64) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let state: Arc<Mutex<(bool, Option<Waker>)>> = Arc::default();
    let over = state.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_nanos(ns));
        let waker = {
            let mut state = over.lock().unwrap();
            state.0 = true;
            state.1.take()
        };
        waker.into_iter().for_each(Waker::wake);
    });
    Box::pin(poll_fn(move |context| {
        let mut state = state.lock().unwrap();
        if state.0 {
            return Poll::Ready(());
        }
        state.1 = Some(context.waker().clone());
        Poll::Pending
    }))
}

/// A file system whose queue is busy with a request for as long as a test likes.
struct Busy {
    fs: KernelFs,
    /// Says that one has come, and then waits.
    gate: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl Filesystem for Busy {
    fn init(&self, offer: &KernelOffer) -> Caps {
        self.fs.init(offer)
    }

    fn dispatch(&self, request: Request, reply: Reply) {
        if matches!(request.op, Op::Getattr { .. } | Op::Statx { .. }) {
            let gate = self.gate.lock().unwrap().take();
            if let Some((has_come, go_on)) = gate {
                has_come.send(()).unwrap();
                // Whoever has closed it is gone, as is the test.
                let _ = go_on.recv();
            }
        }
        self.fs.dispatch(request, reply);
    }
}

/// A program that handles SIGINT, and looks at a file. It ends with the errno.
fn look_at(path: &Path) -> Child {
    let script = "$SIG{INT} = sub {}; $| = 1; print qq(ready\\n); \
        stat($ARGV[0]) or exit($! + 0); exit 99";
    let mut command = Command::new("perl");
    let mut child = command.arg("-e").arg(script).arg(path).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

/// Waits until a program sleeps so, by the letter that /proc has for it.
fn sleeps(child: &Child, how: char) {
    until(&format!("it sleeps: {how}"), || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with(how)
    });
}

fn end(child: &mut Child, what: &str) -> ExitStatus {
    let mut status = None;
    until(what, || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

/// Unmounts, also if the test fails: else its programs would wait on.
struct Unmounted(Session);

impl Drop for Unmounted {
    fn drop(&mut self) {
        let _ = self.0.unmount(UnmountMode::Force);
    }
}

#[test]
fn a_signal_that_the_kernel_does_not_tell_of_ends_the_waiting() {
    if !can_mount() {
        return;
    }
    let path = std::env::temp_dir().join(format!("sateen-untold-{}", std::process::id()));
    std::fs::create_dir(&path).unwrap();
    let client = Client::new(ClientConfig { id: ClientId(1), file_system: 0 }, Arc::new(Alone));
    let target = Endpoint::Mdt(0);
    client.learn(&[TargetInfo { target, nids: Nid::Lo.into(), inactive: false }]);
    let asleep: Sleep = Arc::new(sleep);
    let fs = KernelFs::new(client, Executor::default(), false).interruptible(asleep);
    let fs = Arc::new(Busy { fs: fs.below(Fid::ROOT), gate: Mutex::default() });
    let session = Unmounted(Session::mount(MountOptions::new(&path), fs.clone()).unwrap());
    if session.0.transport() != Transport::Uring {
        return skipped("needs FUSE over io_uring");
    }
    // The queue that a request goes to is that of the processor on which the program runs.
    let first = (0..CpuSet::MAX_CPU).find(|cpu| sched_getaffinity(None).unwrap().is_set(*cpu));
    let mut one = CpuSet::new();
    one.set(first.unwrap());
    sched_setaffinity(None, &one).unwrap();
    for (signal, after) in [(Signal::KILL, None), (Signal::INT, Some(EINTR))] {
        let (has_come, come) = channel();
        let (open, go_on) = channel();
        *fs.gate.lock().unwrap() = Some((has_come, go_on));
        let mut before = look_at(&path);
        come.recv().unwrap();
        // The queue has it, but its thread does not look.
        let mut child = look_at(&path);
        sleeps(&child, 'S');
        kill_process(Pid::from_child(&child), signal).unwrap();
        // From here on the kernel waits for the answer, and tells nobody.
        sleeps(&child, 'D');
        open.send(()).unwrap();
        let status = end(&mut child, "nobody waits for it");
        assert_eq!((status.code(), status.code().is_none()), (after, after.is_none()), "{status}");
        before.kill().unwrap();
        assert_eq!(end(&mut before, "the kernel tells of this").signal(), Some(9));
    }
    drop(session);
    std::fs::remove_dir(&path).unwrap();
}

//! Shard locks against owner cores.
//!
//! Two threads, each bound to a processor, as the queues of FUSE are, create files in one or
//! two shards (here: targets) in turn. *Lock*: whoever has a request executes it under its
//! shard's lock. *Hand-off*: each shard belongs to one thread; requests of the other are
//! sent to it, and answered by a message back. A thread that waits serves its own shard
//! meanwhile, and then sleeps (`park`) or looks again and again (`spin`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Instant;

use sateen_wire::Message;

use crate::cost::Cost;
use crate::server::{Caller, FileJournal, Server};

const THREADS: usize = 2;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu % std::thread::available_parallelism().map_or(1, usize::from));
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        eprintln!("not bound to a processor: {error}");
    }
}

fn targets(shards: usize) -> (Vec<Server>, Vec<Vec<Caller>>) {
    let mut servers: Vec<Server> =
        (0..shards).map(|_| Server::new(FileJournal::nowhere())).collect();
    let callers = (0..THREADS as u64)
        .map(|thread| servers.iter_mut().map(|server| Caller::connect(server, thread)).collect());
    let callers = callers.collect();
    (servers, callers)
}

/// Every request under its shard's lock.
pub(crate) fn locked(shards: usize, each: u64) -> Cost {
    let (servers, callers) = targets(shards);
    let servers: Arc<Vec<Mutex<Server>>> = Arc::new(servers.into_iter().map(Mutex::new).collect());
    Cost::of(each * THREADS as u64, || {
        std::thread::scope(|scope| {
            for (thread, mut callers) in callers.into_iter().enumerate() {
                let servers = servers.clone();
                scope.spawn(move || {
                    pin(thread);
                    for turn in 0..each as usize {
                        let shard = turn % shards;
                        let (Some(caller), Some(server)) =
                            (callers.get_mut(shard), servers.get(shard))
                        else {
                            unreachable!("a shard")
                        };
                        loop {
                            let mut server = lock(server);
                            server.execute(caller.next());
                            let answer = server.answers.first().expect("an answer");
                            if caller.take(answer) {
                                break;
                            }
                        }
                    }
                });
            }
        });
    })
}

/// What is sent to a thread.
enum Parcel {
    Request(Message),
    Answer(Message),
}

#[derive(Default)]
struct Inbox {
    parcels: Mutex<VecDeque<Parcel>>,
    /// Counts parcels, so that a thread that spins need not take the lock.
    sent: AtomicU64,
    thread: Mutex<Option<Thread>>,
    sleeping: AtomicBool,
}

impl Inbox {
    fn send(&self, parcel: Parcel) {
        lock(&self.parcels).push_back(parcel);
        self.sent.fetch_add(1, Ordering::SeqCst);
        if self.sleeping.swap(false, Ordering::SeqCst)
            && let Some(thread) = &*lock(&self.thread)
        {
            thread.unpark();
        }
    }
}

struct Owner<'a> {
    me: usize,
    shards: usize,
    spin: bool,
    server: Server,
    inboxes: &'a [Inbox],
    seen: u64,
    answer: Option<Message>,
}

impl Owner<'_> {
    fn inbox(&self, of: usize) -> &Inbox {
        self.inboxes.get(of).expect("an inbox")
    }

    /// Serves what is in the inbox; the number of parcels.
    fn serve(&mut self) -> u64 {
        let mut count = 0;
        loop {
            let parcel = lock(&self.inbox(self.me).parcels).pop_front();
            match parcel {
                None => break,
                Some(Parcel::Answer(answer)) => self.answer = Some(answer),
                Some(Parcel::Request(request)) => {
                    self.server.execute(request);
                    let answer = self.server.answers.pop().expect("an answer");
                    // With two threads it comes from the other one.
                    self.inbox(1 - self.me).send(Parcel::Answer(answer));
                }
            }
            count += 1;
        }
        self.seen += count;
        count
    }

    /// Waits until something is in the inbox.
    fn wait(&self) {
        let inbox = self.inbox(self.me);
        let nothing = || inbox.sent.load(Ordering::SeqCst) == self.seen;
        while nothing() {
            if self.spin {
                std::hint::spin_loop();
                continue;
            }
            inbox.sleeping.store(true, Ordering::SeqCst);
            if nothing() {
                std::thread::park();
            }
        }
    }

    fn call(&mut self, owner: usize, request: Message) -> Message {
        if owner == self.me {
            self.server.execute(request);
            return self.server.answers.pop().expect("an answer");
        }
        self.inbox(owner).send(Parcel::Request(request));
        loop {
            self.serve();
            if let Some(answer) = self.answer.take() {
                return answer;
            }
            self.wait();
        }
    }

    fn work(&mut self, callers: &mut [Caller], each: u64, left: &AtomicU64) {
        for turn in 0..each as usize {
            let shard = turn % self.shards;
            let caller = callers.get_mut(shard).expect("a connection");
            loop {
                let answer = self.call(shard, caller.next());
                if caller.take(&answer) {
                    break;
                }
            }
            self.serve();
        }
        left.fetch_sub(1, Ordering::SeqCst);
        // The other one may still need this shard; its end is a parcel for nobody.
        while left.load(Ordering::SeqCst) > 0 {
            self.serve();
            std::thread::yield_now();
        }
    }
}

/// Every request on the thread that owns its shard.
pub(crate) fn handed_off(shards: usize, each: u64, spin: bool) -> Cost {
    let (servers, callers) = targets(shards);
    let mut servers: Vec<Option<Server>> = servers.into_iter().map(Some).collect();
    servers.resize_with(THREADS, || None);
    let inboxes: Vec<Inbox> = (0..THREADS).map(|_| Inbox::default()).collect();
    let left = AtomicU64::new(THREADS as u64);
    let begun = Instant::now();
    let cost = Cost::of(each * THREADS as u64, || {
        std::thread::scope(|scope| {
            let threads = servers.into_iter().zip(callers).enumerate();
            for (me, (server, mut callers)) in threads {
                let (inboxes, left) = (&inboxes[..], &left);
                scope.spawn(move || {
                    pin(me);
                    let server = server.unwrap_or_else(|| Server::new(FileJournal::nowhere()));
                    if let Some(inbox) = inboxes.get(me) {
                        *lock(&inbox.thread) = Some(std::thread::current());
                    }
                    let answer = None;
                    let mut owner = Owner { me, shards, spin, server, inboxes, seen: 0, answer };
                    owner.work(&mut callers, each, left);
                });
            }
        });
    });
    assert!(begun.elapsed().as_secs() < 600, "it ended");
    cost
}

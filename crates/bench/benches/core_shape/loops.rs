//! Our reactor, tokio and compio as the run loop: each request is a task, as a request of the
//! kernel is, that sends a message to the target and sleeps until the answer is there.
//!
//! *Ours*: the task, the target and the answer take turns on the thread that had the request.
//! *tokio* (one thread; two workers) and *compio*: the target is a task of its own behind a
//! channel, a group commit a blocking job or an operation of the ring.

use std::future::poll_fn;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use compio::io::AsyncWriteAtExt;
use sateen_mdt::Mdt;
use sateen_osd::memory::MemoryIndex;
use sateen_reactor::{HostParts, Reactor, Receiver, TargetHost};
use sateen_target::Outbox;
use sateen_types::{ClientId, Endpoint};
use sateen_wire::*;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::cost::Cost;
use crate::server::{Caller, FileJournal, Server, message, new_mdt};

/// What is measured with each loop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// Creates.
    pub(crate) count: u64,
    /// Each waits for a group commit of its own.
    pub(crate) durable: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const CLIENT: ClientId = ClientId(1);

/// The slot that an answer is put into.
#[derive(Default)]
struct Slot {
    answer: Option<Message>,
    waker: Option<Waker>,
}

/// Takes our reactor's answers.
#[derive(Default)]
struct Answers(Mutex<Slot>);

impl Receiver for Answers {
    fn receive(self: Arc<Self>, message: Message) {
        let waker = {
            let mut slot = lock(&self.0);
            slot.answer = Some(message);
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Answers {
    async fn next(&self) -> Message {
        poll_fn(|context| {
            let mut slot = lock(&self.0);
            if let Some(answer) = slot.answer.take() {
                return Poll::Ready(answer);
            }
            slot.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// Where a task leaves its answer for the thread that started it; it is mostly there when
/// that looks.
#[derive(Default)]
struct Done {
    answer: Mutex<Option<Message>>,
    changed: Condvar,
}

impl Done {
    fn give(&self, answer: Message) {
        *lock(&self.answer) = Some(answer);
        self.changed.notify_one();
    }

    fn wait(&self) -> Message {
        let mut answer = lock(&self.answer);
        loop {
            match answer.take() {
                Some(answer) => return answer,
                None => {
                    answer = self.changed.wait(answer).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

fn sync_request(caller: &Caller, seq: u64) -> Message {
    let sync = Request::Mdt(MdtRequest::Sync { upto: 0 });
    message(caller.client, caller.generation, 1, seq, sync)
}

fn generation_of(answer: &Message) -> u32 {
    match &answer.body {
        Body::Reply(Reply { body: ReplyBody::Connected { generation, .. }, .. }) => *generation,
        other => unreachable!("connected, not {other:?}"),
    }
}

/// Our reactor.
pub(crate) fn ours(load: Load, journal: FileJournal) -> Cost {
    let reactor = Arc::new(Reactor::default());
    reactor.start().expect("threads");
    let mut first = Outbox::new();
    let service = new_mdt(reactor.clock.now(), &mut first);
    let host: Arc<TargetHost<Mdt>> = TargetHost::start(
        &reactor,
        HostParts {
            me: Endpoint::Mdt(0),
            service,
            index: Arc::new(MemoryIndex::default()),
            objects: None,
            journal: Box::new(journal),
            journal_bytes: 0,
            first,
        },
    )
    .expect("one target");
    let answers = Arc::new(Answers::default());
    reactor.router.add(Endpoint::Client(CLIENT), answers.clone());
    let done = Arc::new(Done::default());
    let run = |message: Message| {
        let (router, answers, given) = (reactor.router.clone(), answers.clone(), done.clone());
        reactor.executor.spawn(Box::pin(async move {
            router.send(message);
            given.give(answers.next().await);
        }));
        done.wait()
    };
    let hello = run(message(CLIENT, 0, 0, 1, Request::Connect { features: 0 }));
    let mut caller = Caller::new(CLIENT, generation_of(&hello), 0);
    let cost = Cost::of(load.count, || {
        let (mut done, mut syncs) = (0, 0);
        while done < load.count {
            let request = caller.next();
            if !caller.take(&run(request)) {
                continue;
            }
            done += 1;
            if load.durable {
                syncs += 1;
                run(sync_request(&caller, syncs));
            }
        }
    });
    drop(host);
    reactor.stop();
    cost
}

type Mail = (Message, oneshot::Sender<Message>);

/// The target as a task: executes what comes, and commits when asked to.
async fn serve(
    mut server: Server,
    mut inbox: UnboundedReceiver<Mail>,
    commit: impl AsyncFn(FileJournal, Vec<u8>) -> FileJournal,
) {
    while let Some((request, answer)) = inbox.recv().await {
        server.execute_uncommitted(request);
        if let Some(flush) = server.wanted_commit() {
            let mut flush = flush;
            let frame = std::mem::take(&mut flush.frame);
            let journal = server.take_journal();
            let journal = commit(journal, frame).await;
            server.give_journal(journal);
            server.end_commit(flush);
        }
        let reply = server.answers.pop().expect("an answer");
        // Nobody listens only if the run is over.
        let _ = answer.send(reply);
    }
}

async fn ask(to: &UnboundedSender<Mail>, request: Message) -> Message {
    let (answer, answered) = oneshot::channel();
    to.send((request, answer)).expect("the target lives");
    answered.await.expect("an answer")
}

/// Creates one after the other, each in a task of its own that `spawn` runs.
async fn create_all(
    to: UnboundedSender<Mail>,
    caller: Arc<Mutex<Caller>>,
    load: Load,
    spawn: impl AsyncFn(UnboundedSender<Mail>, Message) -> Message,
) {
    let syncs = AtomicU64::new(0);
    let mut done = 0;
    while done < load.count {
        let request = lock(&caller).next();
        let answer = spawn(to.clone(), request).await;
        if !lock(&caller).take(&answer) {
            continue;
        }
        done += 1;
        if load.durable {
            let seq = syncs.fetch_add(1, Ordering::Relaxed) + 1;
            let sync = sync_request(&lock(&caller), seq);
            spawn(to.clone(), sync).await;
        }
    }
}

fn connected(journal: FileJournal) -> (Server, Arc<Mutex<Caller>>) {
    let mut server = Server::new(journal);
    let caller = Caller::connect(&mut server, 0);
    (server, Arc::new(Mutex::new(caller)))
}

/// tokio; `workers` 0 is its loop of one thread.
pub(crate) fn tokio(load: Load, journal: FileJournal, workers: usize) -> Cost {
    let mut builder = match workers {
        0 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(workers.max(1)).build().expect("a runtime");
    let (server, caller) = connected(journal);
    let (to, inbox) = unbounded_channel();
    runtime.spawn(serve_moving(server, inbox, load));
    Cost::of(load.count, || {
        let spawn = async |to: UnboundedSender<Mail>, request: Message| {
            tokio::spawn(async move { ask(&to, request).await }).await.expect("an answer")
        };
        runtime.block_on(create_all(to, caller, load, spawn));
    })
}

/// As [`serve`], for loops whose tasks move between threads.
async fn serve_moving(mut server: Server, mut inbox: UnboundedReceiver<Mail>, load: Load) {
    while let Some((request, answer)) = inbox.recv().await {
        server.execute_uncommitted(request);
        if let Some(mut flush) = server.wanted_commit() {
            let frame = std::mem::take(&mut flush.frame);
            let journal = server.take_journal();
            let job = move || journal.written(&frame);
            let journal = if load.durable {
                tokio::task::spawn_blocking(job).await.expect("a journal")
            } else {
                job()
            };
            server.give_journal(journal);
            server.end_commit(flush);
        }
        let reply = server.answers.pop().expect("an answer");
        let _ = answer.send(reply);
    }
}

/// compio: one thread, group commits through its ring.
pub(crate) fn compio(load: Load, journal: FileJournal) -> Cost {
    let runtime = compio::runtime::Runtime::new().expect("a runtime");
    let descriptor =
        journal.file.as_ref().map(|file| format!("/proc/self/fd/{}", file.as_raw_fd()));
    let (server, caller) = connected(journal);
    let (to, inbox) = unbounded_channel();
    Cost::of(load.count, || {
        runtime.block_on(async {
            let file = match &descriptor {
                None => None,
                Some(path) => Some(
                    compio::fs::OpenOptions::new().write(true).open(path).await.expect("the file"),
                ),
            };
            let commit = async move |mut journal: FileJournal, frame: Vec<u8>| {
                let at = journal.place(frame.len());
                if let Some(mut file) = file.as_ref() {
                    file.write_all_at(frame, at).await.0.expect("a frame");
                    file.sync_data().await.expect("a sync");
                }
                journal
            };
            let target = compio::runtime::spawn(serve(server, inbox, commit));
            let spawn = async |to: UnboundedSender<Mail>, request: Message| {
                let task = compio::runtime::spawn(async move { ask(&to, request).await });
                task.await.expect("an answer")
            };
            create_all(to, caller, load, spawn).await;
            target.await.expect("the target ends");
        });
    })
}

/// A journal for a load.
pub(crate) fn journal(load: Load, folder: &Path) -> FileJournal {
    if load.durable {
        FileJournal::in_folder(folder).expect("a file for the journal")
    } else {
        FileJournal::nowhere()
    }
}

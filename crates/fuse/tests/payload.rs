//! Data through every way a reply can carry it, on and off the queue's thread,
//! with payloads that the file system holds longer than it should. Needs root
//! and /dev/fuse.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test helpers")]
#[path = "common/transport.rs"]
mod transport;

use bytes::{Buf, Bytes, BytesMut};
use sateen_fuse::{
    Attr, EntryOut, Filesystem, MountOptions, Op, ROOT_INO, Reply, Request, Session,
    TransportChoice, open_flags,
};
use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SIZE: usize = 8 << 20;
const WRITERS: u64 = 4;
const ROUNDS: u64 = 16;

type Job = Box<dyn FnOnce() + Send>;

/// One file whose data is in memory; every second request is served elsewhere.
struct OneFile {
    data: Arc<Mutex<Vec<u8>>>,
    worker: Mutex<Sender<Job>>,
    turn: AtomicU64,
}

fn attr(ino: u64) -> Attr {
    let mode = if ino == ROOT_INO { 0o40755 } else { 0o100644 };
    Attr { ino, mode, nlink: 1, size: SIZE as u64, ..Attr::default() }
}

fn read(data: &Mutex<Vec<u8>>, turn: u64, at: usize, size: usize, mut reply: Reply) {
    let data = data.lock().unwrap();
    let part = &data[at.min(SIZE)..(at + size).min(SIZE)];
    match turn % 4 {
        0 => {
            let mut buffer = reply.take_buffer(part.len());
            buffer.copy_from_slice(part);
            reply.data(buffer);
        }
        // Not at the beginning of the transport's buffer, where there is room.
        1 => {
            let mut buffer = reply.take_buffer(part.len() + 7);
            buffer[7..].copy_from_slice(part);
            buffer.advance(7);
            reply.data(buffer);
        }
        2 => reply.data(BytesMut::from(part)),
        _ => reply.bytes(part),
    }
}

fn write(store: &Mutex<Vec<u8>>, at: usize, data: Bytes, hold: bool, reply: Reply) {
    let held = data.clone();
    store.lock().unwrap()[at..at + data.len()].copy_from_slice(&data);
    let copy = Bytes::from(data.to_vec());
    drop(data);
    reply.written(copy.len() as u32);
    if hold {
        std::thread::sleep(Duration::from_millis(1));
        assert!(held == copy, "a payload changed while it was held");
    }
}

impl Filesystem for OneFile {
    fn dispatch(&self, request: Request, reply: Reply) {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let data = self.data.clone();
        let job: Job = match request.op {
            Op::Lookup { .. } => Box::new(|| {
                reply.entry(&EntryOut { ino: 2, attr: attr(2), ..EntryOut::default() });
            }),
            Op::Getattr { ino, .. } => Box::new(move || reply.attr(&attr(ino), Duration::ZERO)),
            Op::Open { .. } => Box::new(|| {
                let parallel = open_flags::PARALLEL_DIRECT_WRITES;
                reply.opened(0, open_flags::DIRECT_IO | parallel);
            }),
            Op::Read { offset, size, .. } => {
                Box::new(move || read(&data, turn / 2, offset as usize, size as usize, reply))
            }
            Op::Write { offset, data: bytes, .. } => {
                let hold = turn % 2 == 1;
                Box::new(move || write(&data, offset as usize, bytes, hold, reply))
            }
            _ => Box::new(|| reply.ok()),
        };
        if turn.is_multiple_of(2) { job() } else { self.worker.lock().unwrap().send(job).unwrap() }
    }
}

fn work(choice: TransportChoice) {
    let dir =
        std::env::temp_dir().join(format!("sateen-payload-{choice:?}-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let (worker, jobs) = channel::<Job>();
    let pool = std::thread::spawn(move || jobs.into_iter().for_each(|job| job()));
    let fs = OneFile {
        data: Arc::new(Mutex::new(vec![0; SIZE])),
        worker: Mutex::new(worker),
        turn: AtomicU64::new(0),
    };
    let options =
        MountOptions { transport: transport::asked(choice), threads: 2, ..MountOptions::new(&dir) };
    let session = Session::mount(options, Arc::new(fs)).unwrap();
    transport::check(&session, choice);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let path = dir.join("file");
            scope.spawn(move || {
                let file = fs::File::options().read(true).write(true).open(path).unwrap();
                let (base, span) = (writer * (SIZE as u64) / WRITERS, SIZE as u64 / WRITERS);
                for round in 0..ROUNDS {
                    // Sizes from a byte to whole megabytes, at odd offsets.
                    let len = 1 + (round * round * round * 16_411 + writer * 31) % (span - 4096);
                    let at = base + (round * 131) % 4096;
                    let data: Vec<u8> = (0..len).map(|i| (i * 7 + round + writer) as u8).collect();
                    file.write_all_at(&data, at).unwrap();
                    let mut back = vec![0; data.len()];
                    file.read_exact_at(&mut back, at).unwrap();
                    assert!(back == data, "writer {writer}, round {round}");
                }
            });
        }
    });
    drop(session);
    pool.join().unwrap();
    fs::remove_dir(&dir).unwrap();
}

#[test]
fn classic() {
    work(TransportChoice::Classic);
}

#[test]
fn uring() {
    work(TransportChoice::Uring);
}

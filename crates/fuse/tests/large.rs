//! Requests that are larger than 1 MiB, where root has raised the kernel's limit: over each
//! transport a write of 4 MiB is one request, with its data in order. Needs root and /dev/fuse.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test helpers")]
#[path = "common/transport.rs"]
mod transport;

use bytes::BytesMut;
use sateen_fuse::{
    Attr, EntryOut, Filesystem, MountError, MountOptions, Op, REQUEST_MAX, ROOT_INO, Reply,
    Request, Session, TransportChoice, open_flags,
};
use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sateen_fuse::Transport;
use sateen_testkit::fuse_limit::FuseLimit;

const SIZE: usize = 32 << 20;
const MIB: usize = 1 << 20;
const PAGE_BYTES: usize = 4096;

/// One file in memory, and the lengths of what was asked.
#[derive(Default)]
struct OneFile {
    data: Mutex<Vec<u8>>,
    writes: Mutex<Vec<usize>>,
    reads: Mutex<Vec<usize>>,
    values: Mutex<Vec<usize>>,
}

fn attr(ino: u64) -> Attr {
    let mode = if ino == ROOT_INO { 0o40755 } else { 0o100644 };
    Attr { ino, mode, nlink: 1, size: SIZE as u64, ..Attr::default() }
}

impl Filesystem for OneFile {
    fn dispatch(&self, request: Request, mut reply: Reply) {
        match request.op {
            Op::Lookup { .. } => {
                reply.entry(&EntryOut { ino: 2, attr: attr(2), ..EntryOut::default() });
            }
            Op::Getattr { ino, .. } => reply.attr(&attr(ino), Duration::ZERO),
            Op::Open { .. } => {
                let parallel = open_flags::PARALLEL_DIRECT_WRITES;
                reply.opened(0, open_flags::DIRECT_IO | parallel);
            }
            Op::Read { offset, size, .. } => {
                let (at, size) = (offset as usize, size as usize);
                self.reads.lock().unwrap().push(size);
                let data = self.data.lock().unwrap();
                let part = &data[at..(at + size).min(SIZE)];
                if at.is_multiple_of(2 * MIB) {
                    let mut buffer = reply.take_buffer(part.len());
                    buffer.copy_from_slice(part);
                    reply.data(buffer);
                } else {
                    reply.data(BytesMut::from(part));
                }
            }
            Op::Write { offset, data, .. } => {
                let at = offset as usize;
                self.writes.lock().unwrap().push(data.len());
                self.data.lock().unwrap()[at..at + data.len()].copy_from_slice(&data);
                reply.written(data.len() as u32);
            }
            Op::Setxattr { value, .. } => {
                self.values.lock().unwrap().push(value.len());
                reply.ok();
            }
            _ => reply.ok(),
        }
    }
}

/// Memory that begins a page, so that the kernel needs no page more for it.
struct Pages(Vec<u8>);

impl Pages {
    fn new(bytes: usize) -> Pages {
        Pages(vec![0; bytes + PAGE_BYTES])
    }

    fn all(&mut self) -> &mut [u8] {
        let skew = self.0.as_ptr().align_offset(PAGE_BYTES);
        let bytes = self.0.len() - PAGE_BYTES;
        &mut self.0[skew..skew + bytes]
    }
}

/// Asks for requests of `asked` bytes, and gets `given`.
fn work(choice: TransportChoice, (asked, given): (u32, u32)) {
    let name = format!("sateen-large-{choice:?}-{asked}-{given}-{}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    fs::create_dir_all(&dir).unwrap();
    let asked_over = transport::asked(choice);
    let mut options = MountOptions { transport: asked_over, ..MountOptions::new(&dir) };
    options.ask_for(asked);
    let fs = Arc::new(OneFile { data: Mutex::new(vec![0; SIZE]), ..OneFile::default() });
    let session = Session::mount(options, fs.clone()).unwrap();
    transport::check(&session, choice);
    assert_eq!(session.max_request(), given);
    let file = fs::File::options().read(true).write(true).open(dir.join("file")).unwrap();
    let mut pages = Pages::new(4 * MIB);
    for round in 0..8_usize {
        let buffer = pages.all();
        for (at, byte) in buffer.iter_mut().enumerate() {
            *byte = (at * 7 + at / 5003 + round) as u8;
        }
        let at = (round * 3 * MIB) as u64;
        assert_eq!(file.write_at(buffer, at).unwrap(), 4 * MIB);
        let written = buffer.to_vec();
        buffer.fill(0);
        assert_eq!(file.read_at(buffer, at).unwrap(), 4 * MIB);
        assert!(buffer == written, "round {round}");
    }
    // The largest value with the longest name is one request, however small those with data are.
    let name = format!("user.{}", "n".repeat(250));
    rustix::fs::fsetxattr(&file, &name, &[7; 65_536], rustix::fs::XattrFlags::empty()).unwrap();
    drop((file, session));
    assert_eq!(*fs.values.lock().unwrap(), [65_536]);
    let each = (4 * MIB).min(given as usize);
    let want = vec![each; 8 * 4 * MIB / each];
    assert_eq!(*fs.writes.lock().unwrap(), want, "{choice:?}");
    let reads: usize = fs.reads.lock().unwrap().iter().sum();
    assert_eq!(reads, 8 * 4 * MIB, "{choice:?}");
    if given >= 128 << 10 {
        assert!(fs.reads.lock().unwrap().iter().all(|len| *len == each), "{choice:?}");
    }
    fs::remove_dir(&dir).unwrap();
}

/// One test, because the limit is one for all.
#[test]
fn they_come_whole_where_the_kernel_lets_them() {
    if !sateen_testkit::can_mount() {
        return;
    }
    let both = [TransportChoice::Classic, TransportChoice::Uring];
    let Some(limit) = FuseLimit::set(4096).unwrap() else { return };
    for choice in both {
        work(choice, (4 << 20, 4 << 20));
        work(choice, (REQUEST_MAX, REQUEST_MAX));
        work(choice, (256 << 10, 256 << 10));
        work(choice, (4096, 4096));
    }
    limit.change(256).unwrap();
    for choice in both {
        work(choice, (4 << 20, 1 << 20));
    }
    // Too few for what else a request has: nothing can be asked for over io_uring then.
    limit.change(8).unwrap();
    work(TransportChoice::Classic, (4 << 20, 32 << 10));
    let dir = std::env::temp_dir().join(format!("sateen-large-few-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let mount = |transport| {
        let options = MountOptions { transport, ..MountOptions::new(&dir) };
        Session::mount(options, Arc::new(OneFile::default()))
    };
    let refused = mount(TransportChoice::Uring);
    assert!(matches!(&refused, Err(MountError::Uring(_))), "{refused:?}");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "nothing is mounted there");
    let session = mount(TransportChoice::Auto).unwrap();
    assert_eq!(session.transport(), Transport::Classic);
    drop(session);
    fs::remove_dir(&dir).unwrap();
}

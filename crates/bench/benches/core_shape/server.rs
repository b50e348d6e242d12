//! A metadata target behind the pure seam, driven by whoever holds it: messages in, effects
//! out, group commits into a file or nowhere.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use sateen_mdt::{Mdt, MdtConfig};
use sateen_osd::memory::MemoryIndex;
use sateen_osd::{Flush, JournalDevice, Prefetched, Store, StoreLimits};
use sateen_target::{CoreConfig, Effect, Outbox, Service};
use sateen_types::{ClientId, Endpoint, Fid, Name, Seq, Timestamp};
use sateen_wire::*;

/// Creates between two group commits, if nobody asks for one.
pub(crate) const FLUSH_EVERY: u64 = 1000;

/// What a target is told of itself.
pub(crate) fn core_config() -> CoreConfig {
    CoreConfig { me: Endpoint::Mdt(0), boot_epoch: 5, hash_key: 42 }
}

/// A new MDT and its first effects.
pub(crate) fn new_mdt(now: Timestamp, out: &mut Outbox) -> Mdt {
    let limits = StoreLimits { memtable_bytes_max: 1 << 30, ..StoreLimits::default() };
    Mdt::new(core_config(), Store::new(1, 0, limits), MdtConfig::new(0, 0..4), now, out)
}

/// A journal of one file that is written from its start again and again, or of none.
pub(crate) struct FileJournal {
    pub(crate) file: Option<File>,
    pub(crate) at: u64,
}

impl FileJournal {
    /// Length of the file, written beforehand so that a sync is only that.
    const BYTES: u64 = 16 << 20;

    pub(crate) fn in_folder(folder: &Path) -> io::Result<FileJournal> {
        let path = folder.join("core_shape.journal");
        let file =
            File::options().create(true).truncate(true).read(true).write(true).open(&path)?;
        std::fs::remove_file(&path)?;
        file.write_all_at(&vec![0; Self::BYTES as usize], 0)?;
        file.sync_all()?;
        Ok(FileJournal { file: Some(file), at: 0 })
    }

    /// Itself, with a frame written and synced.
    pub(crate) fn written(mut self, frame: &[u8]) -> FileJournal {
        let at = self.place(frame.len());
        if let Some(file) = &self.file {
            file.write_all_at(frame, at).expect("a frame");
            file.sync_data().expect("a sync");
        }
        self
    }

    pub(crate) const fn nowhere() -> FileJournal {
        FileJournal { file: None, at: 0 }
    }

    /// Where the next frame goes.
    pub(crate) fn place(&mut self, len: usize) -> u64 {
        let len = (len as u64).next_multiple_of(4096);
        let at = if self.at + len > Self::BYTES { 0 } else { self.at };
        self.at = at + len;
        at
    }
}

impl JournalDevice for FileJournal {
    fn write(&mut self, flush: &Flush) -> io::Result<()> {
        let at = self.place(flush.frame.len());
        let Some(file) = &self.file else { return Ok(()) };
        file.write_all_at(&flush.frame, at)?;
        file.sync_data()
    }

    fn trim(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

/// The request of one create: a file in the root, not opened.
pub(crate) fn create(fid: Fid, number: u64) -> Request {
    let mut text = *b"file.0000000000000000";
    for (at, byte) in text.iter_mut().rev().take(16).enumerate() {
        *byte = b"0123456789abcdef".get((number >> (4 * at) & 15) as usize).copied().unwrap_or(0);
    }
    Request::Mdt(MdtRequest::Create {
        parent: Fid::ROOT,
        name: Name::new(&text).expect("a name"),
        fid,
        mode: 0o100_644,
        rdev: 0,
        cred: Cred { uid: 1, gid: 1, umask: 0 },
        symlink: Bytes::new(),
        policy: None,
        open: None,
        open_id: OpenId { id: 0 },
        exclusive: true,
        want: Ibits::NONE,
    })
}

/// A message of a client.
pub(crate) fn message(
    client: ClientId,
    generation: u32,
    slot: u16,
    seq: u64,
    request: Request,
) -> Message {
    let header = Header {
        generation,
        slot,
        seq,
        ..Header::between(Endpoint::Client(client), Endpoint::Mdt(0), client)
    };
    Message { header, body: Body::Request(request), bulk: Bulk::None }
}

/// A target with its loop, for whoever holds it.
pub(crate) struct Server {
    mdt: Mdt,
    index: MemoryIndex,
    out: Outbox,
    again: Outbox,
    now: Timestamp,
    executed: u64,
    /// Answers of the last event.
    pub(crate) answers: Vec<Message>,
    flush: bool,
    journal: FileJournal,
}

impl Server {
    pub(crate) fn new(journal: FileJournal) -> Server {
        let now = Timestamp { mono_ns: 1, wall_ns: 1 };
        let mut out = Outbox::new();
        let mdt = new_mdt(now, &mut out);
        let (index, again, answers) = (MemoryIndex::default(), Outbox::new(), Vec::new());
        Server { mdt, index, out, again, now, executed: 0, answers, flush: false, journal }
    }

    /// Executes a message and commits if that is due; its answers are in `answers` then.
    pub(crate) fn execute(&mut self, message: Message) {
        self.execute_uncommitted(message);
        if let Some(flush) = self.wanted_commit() {
            self.journal.write(&flush).expect("the journal's file can be written");
            self.end_commit(flush);
        }
    }

    /// Executes a message; whoever waits for a commit has no answer yet.
    pub(crate) fn execute_uncommitted(&mut self, message: Message) {
        self.answers.clear();
        self.now.mono_ns += 1000;
        self.now.wall_ns += 1000;
        self.mdt.on_message(self.now, message, &mut self.out);
        self.effects();
        self.executed += 1;
        if self.executed.is_multiple_of(FLUSH_EVERY) {
            self.flush = true;
        }
    }

    /// The group commit that is due, if any.
    pub(crate) fn wanted_commit(&mut self) -> Option<Flush> {
        if std::mem::take(&mut self.flush) { self.mdt.store().begin_flush() } else { None }
    }

    pub(crate) fn take_journal(&mut self) -> FileJournal {
        std::mem::replace(&mut self.journal, FileJournal::nowhere())
    }

    pub(crate) fn give_journal(&mut self, journal: FileJournal) {
        self.journal = journal;
    }

    pub(crate) fn end_commit(&mut self, flush: Flush) {
        self.mdt.store().flush_done(flush);
        self.mdt.on_flushed(self.now, &mut self.out);
        self.effects();
    }

    fn effects(&mut self) {
        while !self.out.is_empty() {
            std::mem::swap(&mut self.out, &mut self.again);
            for effect in self.again.drain() {
                match effect {
                    // It would talk to OSTs, too, which nobody plays here.
                    Effect::Send(message) if matches!(message.body, Body::Reply(_)) => {
                        self.answers.push(message);
                    }
                    Effect::Send(_) => {}
                    Effect::Flush => self.flush = true,
                    Effect::Prefetch { id, wants, generation } => {
                        let view = Prefetched::read(&self.index, &wants, generation);
                        let view = view.expect("memory does not fail");
                        self.mdt.on_prefetched(self.now, id, view, &mut self.out);
                    }
                    Effect::Object { .. } => unreachable!("an MDT has no objects"),
                }
            }
        }
    }
}

/// A client's side of a connection: what it needs to make the next request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) client: ClientId,
    pub(crate) generation: u32,
    slot: u16,
    seq: u64,
    fids: Seq,
    next: u32,
    created: u64,
}

/// Files of one sequence that are used; then another is asked for.
const FIDS_MAX: u32 = 100_000;

impl Caller {
    /// Connects to a server.
    pub(crate) fn connect(server: &mut Server, number: u64) -> Caller {
        let client = ClientId(number + 1);
        server.execute(message(client, 0, 0, 1, Request::Connect { features: 0 }));
        let generation = match server.answers.first().map(|message| &message.body) {
            Some(Body::Reply(Reply { body: ReplyBody::Connected { generation, .. }, .. })) => {
                *generation
            }
            other => unreachable!("connected, not {other:?}"),
        };
        Caller::new(client, generation, number)
    }

    pub(crate) fn new(client: ClientId, generation: u32, number: u64) -> Caller {
        let created = number << 40;
        Caller { client, generation, slot: 0, seq: 0, fids: Seq(0), next: FIDS_MAX, created }
    }

    /// The next request: mostly a create, now and then for FIDs.
    pub(crate) fn next(&mut self) -> Message {
        self.seq += 1;
        let request = if self.next >= FIDS_MAX {
            Request::Mdt(MdtRequest::GrantSeq)
        } else {
            self.next += 1;
            self.created += 1;
            create(Fid::new(self.fids, self.next), self.created)
        };
        message(self.client, self.generation, self.slot, self.seq, request)
    }

    /// Takes an answer. Whether it was a create's.
    pub(crate) fn take(&mut self, answer: &Message) -> bool {
        let Body::Reply(reply) = &answer.body else { unreachable!("an answer") };
        match &reply.body {
            ReplyBody::Mdt(MdtReply::Sequence(seq)) => {
                self.fids = *seq;
                self.next = 0;
                false
            }
            ReplyBody::Mdt(MdtReply::Created { .. }) => true,
            other => unreachable!("created, not {:?} {other:?}", reply.error),
        }
    }
}

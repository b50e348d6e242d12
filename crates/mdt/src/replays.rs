//! Changes that a crash has taken, and that the clients who were answered for them ask to be made again.
//!
//! 1. Each client that is expected back tells those of its that are not there (`Replay`), or comes at
//!    once with what it had (`Reclaim`) if there are none. They are kept, in memory.
//! 2. When everybody has told, or has had time enough, all are made again in the order that they had,
//!    one transaction each ([`crate::ops`]' `replay`). The last of them that is made is noted in
//!    the same transaction for each client: a crash in between makes nothing twice.
//!    So many are looked at in one event; the next come when these are durable. Meanwhile others are
//!    heard, if only to be held or told that they are connected.
//! 3. When they are durable the clients are answered, and only then is anything taken up of what they
//!    had in memory: locks, opens, sequences, programs' locks. By then what these are on is there.
//!
//! A change that cannot be made, or would be another than the one that was answered for, costs its
//! client everything: it builds on what somebody has lost who has not come back, or who had not been
//! answered yet.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use sateen_osd::Prefetched;
use sateen_target::{Fault, Outbox};
use sateen_types::{Attr, ClientId, Errno, FileKind, Layout, Timespec, Timestamp};
use sateen_wire::codec::Wire;
use sateen_wire::{Grants, Header, MdtReply, MdtRequest, Message, Replayed};

use crate::layouts::Made;
use crate::mdt::Mdt;
use crate::op::reply;
use crate::recovery::Place;
use crate::stats::Why;
use crate::work::Work;

/// Most changes of one client. In a commit's time it makes far fewer.
const CHANGES_MAX: usize = 1 << 16;
/// Most bytes of them, as they came.
const BYTES_MAX: usize = 64 << 20;
/// Most bytes of all clients' changes: what a commit's time can bring is far less.
const ALL_BYTES_MAX: usize = 512 << 20;
/// So many are made in one event.
const BATCH: usize = 1000;
/// A change from further ahead of the MDT's clock than this no MDT has made: clocks of servers that
/// stand in for each other differ by less.
const TIME_AHEAD_S: i64 = 86_400;
/// No layout is changed so often.
const GENERATION_MAX: u32 = 1 << 30;

/// A change that is to be made again, and what was decided the first time.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// The run in which it was made first, and its number there.
    pub(crate) run: u64,
    pub(crate) transno: u64,
    pub(crate) time: Timespec,
    pub(crate) request: MdtRequest,
    pub(crate) answer: MdtReply,
    /// What it takes here.
    bytes: usize,
}

impl Change {
    /// One that came from a client.
    pub(crate) fn read(run: u64, now: Timestamp, told: &Replayed) -> Result<Change, Errno> {
        let bad = |_| Errno::EINVAL;
        if told.time.sec > now.wall().sec.saturating_add(TIME_AHEAD_S) {
            return Err(Errno::EINVAL);
        }
        let request = MdtRequest::from_bytes(&told.request).map_err(bad)?;
        let answer = MdtReply::from_bytes(&told.answer).map_err(bad)?;
        let layout = match &answer {
            MdtReply::Created { layout, .. }
            | MdtReply::Opened { layout, .. }
            | MdtReply::Striping { layout, .. } => layout.as_ref(),
            _ => None,
        };
        if layout.is_some_and(|layout| layout.generation > GENERATION_MAX) {
            return Err(Errno::EINVAL);
        }
        let Replayed { transno, time, .. } = *told;
        let bytes = told.request.len() + told.answer.len() + size_of::<Change>();
        Ok(Change { run, transno, time, request, answer, bytes })
    }

    /// Whether a new file is as it was answered.
    pub(crate) fn makes(&self, made: &Attr) -> bool {
        let MdtReply::Created { attr, existed: false, .. } = &self.answer else { return false };
        (attr.fid, attr.mode, attr.rdev) == (made.fid, made.mode, made.rdev)
            && (attr.uid, attr.gid, attr.projid) == (made.uid, made.gid, made.projid)
    }

    /// The layout that a file or directory was given by its owner.
    pub(crate) fn striping(&self) -> Option<Made> {
        match &self.answer {
            MdtReply::Striping { layout, .. } => made(layout.as_ref()),
            _ => None,
        }
    }

    /// The layout that a new file was given.
    pub(crate) fn layout(&self, kind: FileKind) -> Option<Made> {
        let MdtReply::Created { layout: Some(layout), .. } = &self.answer else { return None };
        (kind == FileKind::Regular).then(|| Made::new(Layout::clone(layout)))
    }
}

/// The layout in an answer, as it is stored.
pub(crate) fn made(layout: Option<&Arc<Layout>>) -> Option<Made> {
    layout.map(|layout| Made::new(Layout::clone(layout)))
}

/// Those of one client.
#[derive(Debug, Default)]
struct OfClient {
    changes: BTreeMap<u64, Change>,
    bytes: usize,
    told: bool,
}

/// How far it has come.
#[derive(Debug, Default)]
enum Stage {
    /// Not all clients have told theirs.
    #[default]
    Waiting,
    /// These are still to be made.
    Making(Making),
    /// All are, up to this transaction.
    Made(u64),
}

/// Those that are still to be made.
#[derive(Debug, Default)]
struct Making {
    left: VecDeque<(ClientId, Change)>,
    /// How many were looked at since the last pause.
    looked: usize,
    /// It goes on when everything up to this transaction is durable.
    pause: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Replays {
    stage: Stage,
    clients: BTreeMap<ClientId, OfClient>,
    /// Bytes of all of them.
    bytes: usize,
    /// Whom to answer when they are made.
    answers: Vec<Header>,
    /// What clients have told beyond that meanwhile.
    early: Vec<Message>,
    /// Those that were made: whose, the number that each had, and has.
    log: Vec<(ClientId, u64, u64)>,
}

impl Replays {
    /// A client has told some. Told once more they are the same.
    pub(crate) fn add(&mut self, client: ClientId, told: Vec<Change>) -> bool {
        if !matches!(self.stage, Stage::Waiting) {
            // They are under way already.
            return true;
        }
        let known = self.clients.entry(client).or_default();
        for change in told {
            let bytes = change.bytes;
            let before = known.changes.insert(change.transno, change);
            let before = before.map_or(0, |change| change.bytes);
            known.bytes = (known.bytes + bytes).saturating_sub(before);
            self.bytes = (self.bytes + bytes).saturating_sub(before);
        }
        known.changes.len() <= CHANGES_MAX
            && known.bytes <= BYTES_MAX
            && self.bytes <= ALL_BYTES_MAX
    }

    /// That was all; the client waits.
    pub(crate) fn told(&mut self, header: Header) {
        if matches!(self.stage, Stage::Waiting) {
            self.clients.entry(header.client).or_default().told = true;
        }
        // Who asks again under another number does not wait for the first answer.
        self.answers.retain(|other| other.client != header.client);
        self.answers.push(header);
    }

    /// A client is further than that already: there were none left to be told.
    pub(crate) fn came_early(&mut self, message: Message) {
        let client = message.header.client;
        self.clients.entry(client).or_default().told = true;
        self.early.retain(|other| other.header.client != client);
        self.early.push(message);
    }

    fn has_told(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_some_and(|known| known.told)
    }

    /// Whether all are made, and the last transaction that one became.
    pub(crate) const fn made(&self) -> Option<u64> {
        match self.stage {
            Stage::Made(upto) => Some(upto),
            Stage::Waiting | Stage::Making(_) => None,
        }
    }

    /// A client is gone, or has gone on as another.
    pub(crate) fn forget(&mut self, client: ClientId) {
        let known = self.clients.remove(&client).unwrap_or_default();
        self.bytes = self.bytes.saturating_sub(known.bytes);
        self.answers.retain(|header| header.client != client);
        self.early.retain(|message| message.header.client != client);
    }

    fn begin(&mut self) {
        let told = core::mem::take(&mut self.clients).into_iter();
        let all = told.flat_map(|(client, known)| {
            known.changes.into_values().map(move |change| (client, change))
        });
        let mut all: Vec<(ClientId, Change)> = all.collect();
        all.sort_by_key(|(_, change)| change.transno);
        self.stage = Stage::Making(Making { left: all.into(), looked: 0, pause: 0 });
    }

    fn next(&self) -> Option<&(ClientId, Change)> {
        match &self.stage {
            Stage::Making(making) => making.left.front(),
            Stage::Waiting | Stage::Made(_) => None,
        }
    }

    fn step(&mut self) {
        if let Stage::Making(making) = &mut self.stage {
            making.left.pop_front();
            making.looked += 1;
        }
    }

    /// Whether what was made has to be durable before it goes on.
    fn pauses(&mut self, (last, committed): (u64, u64)) -> bool {
        let Stage::Making(making) = &mut self.stage else { return false };
        if making.looked >= BATCH {
            (making.looked, making.pause) = (0, last);
        }
        making.pause > committed
    }
}

impl Mdt {
    /// Makes the next one.
    pub(crate) fn replay_step(
        &mut self,
        now: Timestamp,
        fetched: &Prefetched,
    ) -> Result<(), Fault> {
        let Some((client, change)) = self.recovery.replays.next().cloned() else { return Ok(()) };
        if self.recovery.place(client) == Place::Expected && !self.recovery.is_refused(client) {
            match crate::ops::again(self, now, (client, &change), fetched) {
                Err(Fault::Miss) => return Err(Fault::Miss),
                Ok(Some(transno)) => {
                    let log = &mut self.recovery.replays.log;
                    if log.len() < CHANGES_MAX {
                        log.push((client, change.transno, transno));
                    }
                    self.recovery.count_replayed();
                }
                Ok(None) => {}
                Err(fault) => {
                    tracing::warn!(
                        client = format_args!("{:x}", client.0),
                        request = change.request.variant(),
                        transno = change.transno,
                        ?fault,
                        "a change that the crash has taken cannot be made again"
                    );
                    self.recovery.refuse(client);
                }
            }
        }
        self.recovery.replays.step();
        Ok(())
    }

    /// Goes on with them, as far as it gets. Whether all are made.
    pub(crate) fn look_at_replays(
        &mut self,
        now: Timestamp,
        is_late: bool,
        out: &mut Outbox,
    ) -> bool {
        if self.recovery.replays.made().is_some() {
            return true;
        }
        if matches!(self.recovery.replays.stage, Stage::Waiting) {
            let absent = self.recovery.expected_clients();
            let absent: Vec<ClientId> =
                absent.filter(|client| !self.recovery.replays.has_told(*client)).collect();
            if !absent.is_empty() && !is_late {
                return false;
            }
            for client in absent {
                self.evict(client, Why::Absent, out);
            }
            self.recovery.replays.begin();
        }
        let replays = |work: &Work| matches!(work, Work::Replay);
        while self.recovery.replays.next().is_some() {
            let store = &self.core.store;
            let pauses = self.recovery.replays.pauses((store.transno(), store.committed()));
            if pauses || store.must_wait() {
                out.push(sateen_target::Effect::Flush);
                return false;
            }
            if self.working.values().any(|(work, _)| replays(work)) {
                return false;
            }
            self.works.push_front(Work::Replay);
            self.run_works(now, out);
        }
        self.evict_refused(out);
        let upto = self.core.store.transno();
        self.recovery.replays.stage = Stage::Made(upto);
        for header in core::mem::take(&mut self.recovery.replays.answers) {
            let done = reply(MdtReply::Done, 0, Grants::NONE);
            self.core.answer_durable(&header, done, upto, out);
        }
        self.recovery.opens_anew(self.core.clock_ns());
        for message in core::mem::take(&mut self.recovery.replays.early) {
            self.execute(now, (message, Prefetched::default()), None, out);
        }
        true
    }

    /// Changes that were made again since this was asked last, for whoever looks in from outside:
    /// whose, the number that each had in the run that it was made in first, and the one that it has.
    pub fn take_replayed(&mut self) -> Vec<(ClientId, u64, u64)> {
        core::mem::take(&mut self.recovery.replays.log)
    }
}

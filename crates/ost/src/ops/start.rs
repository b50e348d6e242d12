//! The start: reads back who may write, and which objects are dead, before anything else
//! runs. What is left of a dead object's bytes is removed once more.

use sateen_osd::{Key, ObjectOp, Prefetched};
use sateen_target::Fault;
use sateen_types::Errno;
use sateen_wire::codec::Wire;
use sateen_wire::disk::ost::WriterRecord;
use sateen_wire::disk::stopped::CleanRuns;

use super::unexpected;
use crate::keys;
use crate::op::{Op, Step, Work};
use crate::ost::Ost;

/// Records read at once.
const PAGE: usize = 1024;

/// How far the start has come.
#[derive(Debug)]
pub(crate) struct Start {
    runs_done: bool,
    writers_done: bool,
    tombstones_done: bool,
    after: Key,
}

impl Start {
    pub(crate) fn new() -> Start {
        Start { runs_done: false, writers_done: false, tombstones_done: false, after: Key::EMPTY }
    }
}

pub(super) fn begin(ost: &mut Ost, op: &mut Op) -> Result<Step, Fault> {
    let Work::Start(start) = &mut op.work else { return Err(unexpected()) };
    if !start.runs_done {
        start.runs_done = true;
        match ost
            .core
            .store
            .get(&keys::CLEAN_RUNS, &op.fetched)
            .map(|runs| runs.map(CleanRuns::from_bytes))
        {
            Ok(None) if ost.survived.is_empty() => {}
            Ok(None) => ost.take_up(Vec::new()),
            Ok(Some(Ok(runs))) => ost.take_up(runs.epochs),
            Ok(Some(Err(error))) => {
                tracing::error!(%error, "the record of runs that ended in good order is damaged");
                return Err(Fault::Errno(Errno::EIO));
            }
            Err(miss) => {
                start.runs_done = false;
                return Err(miss.into());
            }
        }
    }
    let store = &ost.core.store;
    let mut page = Vec::new();
    while !start.writers_done {
        page.clear();
        let more = store.scan(&keys::WRITERS, &start.after, PAGE, &op.fetched, |key, value| {
            page.push((keys::writer_client(key), WriterRecord::from_bytes(value)));
        })?;
        for (client, record) in page.drain(..) {
            let (Some(client), Ok(record)) = (client, record) else {
                tracing::error!("damaged writer record");
                return Err(Fault::Errno(Errno::EIO));
            };
            ost.writers.restore(client, record.number);
        }
        start.writers_done = more.is_none();
        start.after = more.unwrap_or(Key::EMPTY);
    }
    if start.tombstones_done {
        ost.sweep_wanted = ost.tombstones > 0;
        return Ok(Step::End);
    }
    let mut dead = Vec::new();
    let more = store.scan(&keys::TOMBSTONES, &start.after, PAGE, &op.fetched, |key, _| {
        dead.push(keys::tombstone_parts(key));
    })?;
    let mut objects = Vec::with_capacity(dead.len());
    for parts in dead {
        let Some((after, object)) = parts else {
            tracing::error!("damaged tombstone");
            return Err(Fault::Errno(Errno::EIO));
        };
        ost.writers.reached(after);
        ost.tombstones += 1;
        objects.push(object);
    }
    start.tombstones_done = more.is_none();
    start.after = more.unwrap_or(Key::EMPTY);
    op.fetched = Prefetched::default();
    if objects.is_empty() {
        return Ok(Step::Again);
    }
    Ok(Step::Io(ObjectOp::Remove { objects }))
}

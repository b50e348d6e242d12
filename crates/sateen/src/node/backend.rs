//! A target's store on the disk: making a new one, and opening one with what its journal
//! holds beyond its index.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::sync::Arc;

use sateen_osd::{Checkpoint, Index, IndexError, JournalDevice, ObjectStore, Store, StoreLimits};
use sateen_osd_disk::folder::{FolderError, TargetFolder};
use sateen_osd_disk::index::{DiskIndex, IndexOptions};
use sateen_osd_disk::journal::{DiskJournal, JournalError, JournalOptions, SEGMENT_BYTES_MIN};
use sateen_osd_disk::objects::{DiskObjects, ObjectOptions};
use sateen_target::{Label, Recovery, RecoveryError};
use sateen_types::Endpoint;
use sateen_types::units::MIB;

use super::space_of;
use crate::data_dir::write_durably;
use crate::refusal::{Outcome, Refusal};
use crate::targets::Target;

/// A start that finds more segments in its journal than these makes a checkpoint at once.
const JOURNAL_SEGMENTS_KEPT: u64 = 4;
/// So does one that finds more than one, where the disk has room for fewer than these.
const ROOM_FOR_SEGMENTS: u64 = 8;

/// The file in a target's folder with the parameters that it was made with, until the MGS has them.
pub(crate) const PARAMS: &str = "params";
/// The same, being written.
pub(crate) const PARAMS_NEW: &str = "params.new";

/// An open store.
pub(crate) struct Opened {
    /// Its metadata, recovered.
    pub store: Store,
    /// Its index.
    pub index: Arc<dyn Index>,
    /// Its journal.
    pub journal: Box<dyn JournalDevice>,
    /// Bytes that it takes on the disk.
    pub journal_bytes: u64,
    /// Its objects, on an OST.
    pub objects: Option<Arc<dyn ObjectStore>>,
    /// Its folder, locked.
    pub folder: TargetFolder,
    /// The number of the run that begins.
    pub boot_epoch: u64,
    /// Those of earlier ones of which, on an OST, nothing is lost.
    pub survived: Vec<u64>,
}

/// Sizes of one target.
struct Sizes {
    store: StoreLimits,
    index: IndexOptions,
    journal: JournalOptions,
}

/// The memory that all targets of one process may use for their metadata is divided here: an
/// MDT's working set is large, an OST keeps little about each object, the MGS nearly nothing.
fn sizes(target: Endpoint) -> Sizes {
    let sizes = |memtable: u64, cache: u64, blocks: u64| Sizes {
        store: StoreLimits {
            memtable_bytes_max: (memtable * MIB) as usize,
            cache_bytes_max: (cache * MIB) as usize,
            ..StoreLimits::default()
        },
        index: IndexOptions { cache_bytes: blocks * MIB, ..IndexOptions::default() },
        // Little more than the largest frame: two of them are written when it is made.
        journal: JournalOptions { segment_bytes: SEGMENT_BYTES_MIN, ..JournalOptions::default() },
    };
    match target {
        Endpoint::Mdt(_) => sizes(48, 32, 96),
        Endpoint::Ost(_) => sizes(8, 4, 8),
        Endpoint::Mgs | Endpoint::Client(_) => sizes(1, 1, 1),
    }
}

/// Makes the folder of a new target, with its label last, all durable.
pub(crate) fn make(path: &Path, label: &Label, params: &str) -> Outcome<()> {
    let failed = |error: &dyn std::fmt::Display| refuse("make", path, error);
    let folder = TargetFolder::open(path).map_err(|error| failed(&error))?;
    let options = sizes(label.target).journal;
    DiskJournal::create(&folder.journal(), label.journal_epoch, options).map_err(|error| {
        match error {
            JournalError::Io(error) => Refusal::io(format!("make {}", path.display()), &error),
            other => failed(&other),
        }
    })?;
    let io = |error| Refusal::io(format!("make {}", path.display()), &error);
    if matches!(label.target, Endpoint::Ost(_)) {
        DiskObjects::create(&folder.objects()).map_err(io)?;
    }
    if !params.is_empty() {
        let mut file = File::create(path.join(PARAMS)).map_err(io)?;
        file.write_all(params.as_bytes()).and_then(|()| file.sync_all()).map_err(io)?;
    }
    // The last of all, with which the folder is synced.
    folder.set_label(&label.encode()).map_err(io)
}

/// The parameters, one a line, that a target was made with and the MGS has not got yet.
pub(crate) fn params(path: &Path) -> io::Result<Vec<String>> {
    match fs::read_to_string(path.join(PARAMS)) {
        Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The MGS has got the parameters but for these.
pub(crate) fn leave_params(path: &Path, left: &[String]) -> io::Result<()> {
    if !left.is_empty() {
        return write_durably(&path.join(PARAMS), (left.join("\n") + "\n").as_bytes());
    }
    fs::remove_file(path.join(PARAMS))?;
    File::open(path)?.sync_all()
}

/// Why a store was not opened.
enum StartError {
    Journal(JournalError),
    Recovery(RecoveryError),
}

impl From<JournalError> for StartError {
    fn from(error: JournalError) -> StartError {
        StartError::Journal(error)
    }
}

/// Opens a target.
pub(crate) fn open(target: &Target, options: ObjectOptions) -> Outcome<Opened> {
    let path = &target.path;
    let failed = |error: &dyn std::fmt::Display| refuse("open", path, error);
    let folder = TargetFolder::open(path).map_err(|error| match error {
        FolderError::InUse { .. } => Refusal::new(
            error.to_string(),
            "end that process, or wait until it has ended; then try again",
        ),
        other => failed(&other),
    })?;
    let me = target.label.target;
    let epoch = target.label.journal_epoch;
    let sizes = sizes(me);
    let index = DiskIndex::open(&folder.index(), sizes.index).map_err(|error| failed(&error))?;
    let mut recovery = Recovery::new(epoch, index.checkpointed(), sizes.store);
    let replay = |payload: &[u8]| recovery.frame(payload).map_err(StartError::Recovery);
    let checkpointed = index.checkpointed();
    let mut journal =
        DiskJournal::open(&folder.journal(), epoch, checkpointed, sizes.journal, replay).map_err(
            |error| match error {
                StartError::Journal(error) => failed(&error),
                StartError::Recovery(error) => failed(&error),
            },
        )?;
    let (mut store, replayed) = recovery.finish();
    if replayed > 0 {
        tracing::info!(target_name = %me, transactions = replayed, "replayed the journal");
    }
    let segments = journal.bytes_used() / sizes.journal.segment_bytes;
    let room = space_of(path).map_or(u64::MAX, |space| space.bytes_avail);
    let is_tight = room < ROOM_FOR_SEGMENTS * sizes.journal.segment_bytes;
    if segments > JOURNAL_SEGMENTS_KEPT || segments > 1 && is_tight {
        // Its space comes back before anything new is written: on a full disk there would be no
        // room for another segment, and the target would stop soon.
        shorten(&mut store, &index, &mut journal).map_err(|error| failed(&error))?;
    }
    let (boot_epoch, mut survived) = (sateen_reactor::random(), Vec::new());
    let objects: Option<Arc<dyn ObjectStore>> = match me {
        Endpoint::Ost(_) => {
            if store.transno() == 0 {
                // Older builds left this to the first start.
                DiskObjects::create(&folder.objects()).map_err(|error| failed(&error))?;
            }
            let begun = DiskObjects::begin(&folder, options, boot_epoch);
            let (objects, runs) = begun.map_err(|error| failed(&error))?;
            survived = runs;
            Some(Arc::new(objects))
        }
        _ => None,
    };
    #[cfg(test)]
    let objects = objects.map(|objects| super::tests::slow_disk::over(path, objects));
    let journal_bytes = journal.bytes_used();
    let (index, journal) = (Arc::new(index), Box::new(journal));
    Ok(Opened { store, index, journal, journal_bytes, objects, folder, boot_epoch, survived })
}

/// Writes what the journal holds into the index, and gives its segments back. Where there is no
/// room for that the journal stays as it is: it has a spare segment, and room may come.
fn shorten(
    store: &mut Store,
    index: &DiskIndex,
    journal: &mut DiskJournal,
) -> Result<(), Box<dyn std::error::Error>> {
    let Some(Checkpoint { table, upto }) = store.begin_checkpoint() else { return Ok(()) };
    match index.checkpoint(&table, upto) {
        Ok(()) => store.checkpoint_done(),
        Err(IndexError::Io(error))
            if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) =>
        {
            tracing::warn!(%error, "no room for a checkpoint: the journal stays long");
            drop(table);
            store.checkpoint_given_up();
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    }
    journal.trim(upto)?;
    Ok(())
}

fn refuse(doing: &str, path: &Path, error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(
        format!("cannot {doing} {}: {error}", path.display()),
        "look at the disk (space, dmesg); a damaged target has to be restored from a backup",
    )
}

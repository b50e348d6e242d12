//! `sateen fsck`: the offline cross-check of a file system that does not run.
//!
//! Opens every target under the data folder's lock, replays its journal in memory, and has
//! `sateen_fsck` compare them. Nothing but the locks' own files is written.
//!
//! Exit codes: 0 nothing is damaged, 1 damage was found, 2 it could not be checked.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sateen_fsck::{Counts, FileSystem, Finding, Image, Kind, OstAtRest, Sink};
use sateen_osd::{Index, ObjectStore};
use sateen_osd_disk::folder::TargetFolder;
use sateen_osd_disk::index::{DiskIndex, IndexOptions};
use sateen_osd_disk::journal::{DiskJournal, JournalError};
use sateen_osd_disk::objects::{DiskObjects, ObjectOptions};
use sateen_target::{Label, RecoveryError};
use sateen_types::Endpoint;
use serde::Serialize;

use crate::cli::FsckArgs;
use crate::data_dir::DataDir;
use crate::refusal::{Outcome, Refusal};
use crate::targets::{self, Target};

/// Exit code if damage was found.
const DAMAGED: u8 = 1;
/// Exit code if nothing can be said.
const NOT_CHECKED: u8 = 2;
/// Findings that are shown or kept of each kind; the others are counted.
const FINDINGS_MAX: usize = 1000;
/// Nothing is said of progress before this, nor more often than each step.
const PROGRESS_AFTER: Duration = Duration::from_secs(2);
const PROGRESS_STEP: Duration = Duration::from_millis(200);
const RESTORE: &str = "restore the target from a backup";

/// Runs the command.
pub(crate) fn run(args: &FsckArgs) -> ExitCode {
    match check(args) {
        Ok(code) => code,
        Err(refusal) => {
            eprintln!("sateen: {refusal}");
            ExitCode::from(NOT_CHECKED)
        }
    }
}

fn check(args: &FsckArgs) -> Outcome<ExitCode> {
    let mut report = Report::new(args.json);
    let mut lock = None;
    let targets = if args.targets.is_empty() {
        let data = DataDir::at(&args.data.data)?;
        data.require()?;
        lock = Some(data.open_to_check()?);
        targets::existing(&data)?
    } else {
        let at = |path: &PathBuf| {
            // Nobody who checks wants to make one.
            let advice =
                "name the folder of each target: the one that it was made in, on this host";
            targets::at(path).map_err(|refusal| match refusal.lasts {
                true => refusal,
                false => Refusal { hint: advice.to_owned(), ..refusal },
            })
        };
        args.targets.iter().map(at).collect::<Outcome<Vec<_>>>()?
    };
    if lock.is_none() {
        require_whole(&targets)?;
    }
    labels(&targets, &mut report);
    missing(&targets, lock.is_some(), &mut report);
    let mut fs =
        FileSystem { hash_key: 0, mgs: None, mdts: BTreeMap::new(), osts: BTreeMap::new() };
    let mut folders = Vec::new();
    let mut whole = true;
    for target in &targets {
        let folder = TargetFolder::open(&target.path).map_err(|error| {
            Refusal::new(error.to_string(), "stop it, or look at the disk; then check again")
        })?;
        if was_served(target) {
            fs.hash_key = target.label.hash_key;
            whole &= open(target, &folder, &mut fs, &mut report)?;
        } else {
            // There is nothing in it, and nobody knows of it.
            report.note(target.label.target, "it was made and never served");
        }
        folders.push(folder);
    }
    let counts = if whole {
        let unread = |error: sateen_fsck::CheckError| {
            Refusal::new(error.to_string(), "look at the disk and the kernel's log (dmesg)")
        };
        let missing = fs.missing().map_err(unread)?;
        if !missing.is_empty() && lock.is_none() {
            return Err(not_named(&missing));
        }
        sateen_fsck::check(&fs, &mut report).map_err(unread)?
    } else {
        Counts::default()
    };
    report.end(&counts)?;
    drop(lock);
    Ok(if report.damaged > 0 { ExitCode::from(DAMAGED) } else { ExitCode::SUCCESS })
}

/// Whether the target has met its MGS: before that it is of no file system but by name.
fn was_served(target: &Target) -> bool {
    target.label.fs_uuid != 0
}

/// All labels are of one file system, and no target is there twice.
fn labels(targets: &[Target], report: &mut Report) {
    let first = targets.iter().find(|target| was_served(target)).or(targets.first());
    let Some(Target { label: first, .. }) = first else { return };
    let mut uuids = BTreeMap::new();
    for target in targets {
        let label = &target.label;
        let same = |other: &Label| {
            let born = (other.hash_key, other.fs_uuid) == (first.hash_key, first.fs_uuid);
            other.fsname == first.fsname && (born || !was_served(target))
        };
        if !same(label) {
            let what = "its label is not that of the same file system";
            report.damage(label.target, what, "restore the label from a backup");
        }
        if let Some(other) = uuids.insert(label.uuid, label.target) {
            let what = format!("it is a copy of {other}");
            report.damage(label.target, what, "move the copy away and bring the original back");
        }
    }
}

/// Refuses folders that are not those of a whole file system: what is missing would be taken for
/// lost, and what it knows for damage.
fn require_whole(targets: &[Target]) -> Outcome<()> {
    let has = |wanted: Endpoint| targets.iter().any(|target| target.label.target == wanted);
    let lacking: Vec<&str> = [(Endpoint::Mgs, "the MGS's"), (Endpoint::Mdt(0), "MDT0000's")]
        .into_iter()
        .filter_map(|(wanted, name)| (!has(wanted)).then_some(name))
        .collect();
    if lacking.is_empty() {
        return Ok(());
    }
    let given: Vec<String> = targets.iter().map(|target| target.label.target.to_string()).collect();
    Err(Refusal::new(
        format!(
            "a target is checked against all others of its file system: of {}, {} folder is not \
             among those that were named",
            given.join(" and "),
            lacking.join(" and ")
        ),
        "name the folders of all targets: of the MGS, each MDT and each OST, on one host, none of \
         them served",
    ))
}

/// The MGS knows of targets that were not named: what lies on them would be taken for lost.
fn not_named(missing: &[Endpoint]) -> Refusal {
    let names: Vec<String> = missing.iter().map(Endpoint::to_string).collect();
    Refusal::new(
        format!(
            "of this file system's targets {} {} not named",
            names.join(", "),
            match names.len() {
                1 => "was",
                _ => "were",
            }
        ),
        "name the folders of all its targets, on one host; of a target that is lost for good make \
         another with mkfs.sateen --replace, and serve it once",
    )
}

/// The MGT and the root's MDT are there; so are all others, if their numbers have no gaps.
fn missing(targets: &[Target], gapless: bool, report: &mut Report) {
    let has = |wanted: Endpoint| targets.iter().any(|target| target.label.target == wanted);
    let count = |which: fn(Endpoint) -> bool| {
        targets.iter().filter(|target| gapless && which(target.label.target)).count() as u32
    };
    let mdts = count(|target| matches!(target, Endpoint::Mdt(_)));
    let osts = count(|target| matches!(target, Endpoint::Ost(_)));
    let all = (0..mdts.max(1)).map(Endpoint::Mdt).chain((0..osts).map(Endpoint::Ost));
    for wanted in all.chain([Endpoint::Mgs]).filter(|wanted| !has(*wanted)) {
        report.damage(wanted, "it is missing", "bring its folder back, or restore it");
    }
}

enum Reading {
    Journal(JournalError),
    Records(RecoveryError),
}

impl From<JournalError> for Reading {
    fn from(error: JournalError) -> Reading {
        Reading::Journal(error)
    }
}

/// Opens one target. False if it is so damaged that nothing can be compared.
fn open(
    target: &Target,
    folder: &TargetFolder,
    fs: &mut FileSystem,
    report: &mut Report,
) -> Outcome<bool> {
    let me = target.label.target;
    let unreadable = |error: &dyn std::fmt::Display| {
        Refusal::new(format!("{me} cannot be read: {error}"), "look at the disk, then check again")
    };
    let index = match open_index(folder) {
        Ok(index) => index,
        Err(sateen_osd::IndexError::Corrupt(what)) => {
            report.damage(me, format!("its index is damaged: {what}"), RESTORE);
            return Ok(false);
        }
        Err(sateen_osd::IndexError::Io(error)) => return Err(unreadable(&error)),
    };
    let checkpointed = index.checkpointed();
    let mut image = Image::new(me, index);
    let epoch = target.label.journal_epoch;
    let read = DiskJournal::read(&folder.journal(), epoch, checkpointed, |payload| {
        image.replay(payload).map_err(Reading::Records)
    });
    match read {
        Ok(()) => {}
        Err(Reading::Journal(JournalError::Io(error))) => return Err(unreadable(&error)),
        Err(Reading::Journal(error)) => {
            report.damage(me, error.to_string(), RESTORE);
            return Ok(false);
        }
        Err(Reading::Records(error)) => {
            report.damage(me, error.to_string(), RESTORE);
            return Ok(false);
        }
    }
    add(fs, me, image, folder, report).map_err(|error| unreadable(&error))
}

/// A target that was made and never started has no index yet; then its journal says all.
fn open_index(folder: &TargetFolder) -> Result<Arc<dyn Index>, sateen_osd::IndexError> {
    if !folder.index().exists() {
        return Ok(Arc::new(sateen_osd::memory::MemoryIndex::default()));
    }
    let options = IndexOptions { cache_bytes: 32 << 20, ..IndexOptions::default() };
    Ok(Arc::new(DiskIndex::open_at_rest(&folder.index(), options)?))
}

/// False if the rest cannot be compared with it.
fn add(
    fs: &mut FileSystem,
    me: Endpoint,
    image: Image,
    folder: &TargetFolder,
    report: &mut Report,
) -> std::io::Result<bool> {
    match me {
        Endpoint::Mdt(index) => drop(fs.mdts.insert(index, image)),
        Endpoint::Ost(index) => {
            let objects: Arc<dyn ObjectStore> = if folder.objects().exists() {
                Arc::new(DiskObjects::open(&folder.objects(), ObjectOptions::default())?)
            } else {
                if image.last() > 0 {
                    report.damage(me, "the folder `objects` is missing", RESTORE);
                    return Ok(false);
                }
                // An older build has made it, and it was never started.
                Arc::new(sateen_osd::memory::MemoryObjects::new(0))
            };
            fs.osts.insert(index, OstAtRest { image, objects });
        }
        Endpoint::Mgs => fs.mgs = Some(image),
        Endpoint::Client(_) => {}
    }
    Ok(true)
}

fn finding(kind: Kind, target: Endpoint, what: impl Into<String>, fix: &str) -> Finding {
    Finding { kind, target: target.to_string(), what: what.into(), fix: fix.to_owned() }
}

/// What was found, shown as it comes or kept for the JSON.
struct Report {
    json: bool,
    damaged: u64,
    pending: u64,
    notes: u64,
    kept: Vec<Finding>,
    started: Instant,
    shown: Option<Instant>,
    terminal: bool,
}

/// The JSON. Its names are an interface.
#[derive(Serialize)]
struct Summary<'a> {
    clean: bool,
    damaged: u64,
    pending: u64,
    notes: u64,
    checked: &'a Counts,
    findings: &'a [Finding],
}

impl Report {
    fn new(json: bool) -> Report {
        Report {
            json,
            damaged: 0,
            pending: 0,
            notes: 0,
            kept: Vec::new(),
            started: Instant::now(),
            shown: None,
            terminal: std::io::stderr().is_terminal(),
        }
    }

    fn damage(&mut self, target: Endpoint, what: impl Into<String>, fix: &str) {
        self.finding(finding(Kind::Damage, target, what, fix));
    }

    fn note(&mut self, target: Endpoint, what: &str) {
        self.finding(finding(Kind::Note, target, what, "nothing has to be done"));
    }

    fn wipe(&mut self) {
        if self.shown.take().is_some() {
            eprint!("\r\x1b[K");
        }
    }

    fn end(&mut self, counts: &Counts) -> Outcome<()> {
        self.wipe();
        let Report { damaged, pending, notes, .. } = *self;
        if self.json {
            let clean = damaged == 0;
            let findings = &self.kept;
            let summary = Summary { clean, damaged, pending, notes, checked: counts, findings };
            let text = serde_json::to_string_pretty(&summary)
                .map_err(|error| Refusal::io("print JSON", &error.into()))?;
            println!("{text}");
            return Ok(());
        }
        let Counts { inodes, entries, objects } = counts;
        let verdict = if damaged == 0 { "clean".to_owned() } else { format!("{damaged} damaged") };
        println!("{verdict}: {inodes} inodes, {entries} entries, {objects} objects checked");
        if pending > 0 {
            println!("{pending} things that a crash left are cleaned up by the next start");
        }
        Ok(())
    }
}

impl Sink for Report {
    fn finding(&mut self, finding: Finding) {
        self.wipe();
        let count = match finding.kind {
            Kind::Damage => &mut self.damaged,
            Kind::Pending => &mut self.pending,
            Kind::Note => &mut self.notes,
        };
        *count += 1;
        match usize::try_from(*count) {
            Ok(count) if count <= FINDINGS_MAX => {}
            Ok(count) if count == FINDINGS_MAX + 1 && !self.json => {
                println!("... more of this kind are only counted");
                return;
            }
            _ => return,
        }
        if self.json {
            self.kept.push(finding);
        } else {
            println!("{finding}");
        }
    }

    fn progress(&mut self, target: Endpoint, what: &'static str, done: u64) {
        let recent = |shown: Instant| shown.elapsed() < PROGRESS_STEP;
        if !self.terminal
            || self.started.elapsed() < PROGRESS_AFTER
            || self.shown.is_some_and(recent)
        {
            return;
        }
        eprint!("\r\x1b[K{target}: {done} {what} checked");
        // A terminal that is gone needs no progress.
        let _ = std::io::stderr().flush();
        self.shown = Some(Instant::now());
    }
}

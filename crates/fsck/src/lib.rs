//! The offline cross-check of a file system: what its MDTs say held against itself, and
//! against the objects that its OSTs have.
//!
//! Who calls it: `sateen fsck`, and tests after every crash. It reads targets at rest, through
//! the storage ports and their journals, and must never write. What a crash may leave and the
//! next start cleans up (llogs, orphans, objects under sequences that were granted) is
//! reported as pending, not as damage.
//!
//! Memory is bounded: records are streamed in key order, and what belongs together is found by
//! its key. An inode's names are counted through its link-EA, and each name points back, so no
//! table of all inodes is needed.

mod config;
mod data;
mod image;
mod inodes;
mod keys;
mod names;
mod objects;
mod records;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sateen_osd::{IndexError, ObjectError, ObjectStore};
use sateen_types::{Endpoint, Fid, seq};
use serde::Serialize;

pub use image::Image;
use image::Unread;

/// Most inodes whose names are not all in their link-EA that are counted one by one, most
/// truncates in flight, and most lost files that are remembered.
const REMEMBERED_MAX: usize = 1 << 20;
/// Records between two reports of progress.
const PROGRESS_STEP: u64 = 1024;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Something is lost or contradictory.
    Damage,
    /// The next start of the file system cleans it up.
    Pending,
    /// Harmless.
    Note,
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub kind: Kind,
    /// The target that it was found on, like "MDT0000".
    pub target: String,
    /// What is wrong, and where.
    pub what: String,
    /// What to do about it.
    pub fix: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            Kind::Damage => "damage",
            Kind::Pending => "pending",
            Kind::Note => "note",
        };
        write!(f, "{}: {kind}: {}; {}", self.target, self.what, self.fix)
    }
}

/// Takes what the check has to say while it runs.
pub trait Sink {
    /// Something was found.
    fn finding(&mut self, finding: Finding);
    /// So many records of this kind were looked at, called now and then.
    fn progress(&mut self, target: Endpoint, what: &'static str, done: u64);
}

/// What was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// Inodes.
    pub inodes: u64,
    /// Directory entries.
    pub entries: u64,
    /// Objects on OSTs.
    pub objects: u64,
}

/// An OST at rest.
pub struct OstAtRest {
    /// Its metadata.
    pub image: Image,
    /// Its objects.
    pub objects: Arc<dyn ObjectStore>,
}

/// A file system at rest. All its MDTs and OSTs must be there.
pub struct FileSystem {
    /// Key of the directory hash.
    pub hash_key: u64,
    /// The MGS, if it is checked, too.
    pub mgs: Option<Image>,
    /// MDTs by index.
    pub mdts: BTreeMap<u32, Image>,
    /// OSTs by index.
    pub osts: BTreeMap<u32, OstAtRest>,
}

impl FileSystem {
    /// The targets that its MGS knows of and that are not there.
    ///
    /// # Errors
    /// The MGS's disk cannot be read.
    pub fn missing(&self) -> Result<Vec<Endpoint>, CheckError> {
        let Some(mgs) = &self.mgs else { return Ok(Vec::new()) };
        let mut known = match config::registered(mgs) {
            Ok(known) => known,
            // Which is damage, and found by the check.
            Err(Unread { error: IndexError::Corrupt(_), .. }) => return Ok(Vec::new()),
            Err(Unread { target, error }) => {
                return Err(CheckError { target, why: error.to_string() });
            }
        };
        known.retain(|target| match target {
            Endpoint::Mdt(index) => !self.mdts.contains_key(index),
            Endpoint::Ost(index) => !self.osts.contains_key(index),
            Endpoint::Mgs | Endpoint::Client(_) => false,
        });
        Ok(known)
    }
}

/// The check could not go on: a disk cannot be read.
#[derive(Debug)]
pub struct CheckError {
    /// The target.
    pub target: Endpoint,
    /// Why.
    pub why: String,
}

impl std::fmt::Display for CheckError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} cannot be read: {}", self.target, self.why)
    }
}

impl std::error::Error for CheckError {}

/// Why a step stopped.
#[derive(Debug)]
enum Stop {
    Index(Unread),
    Objects(ObjectError),
}

impl From<Unread> for Stop {
    fn from(error: Unread) -> Stop {
        Stop::Index(error)
    }
}

impl From<ObjectError> for Stop {
    fn from(error: ObjectError) -> Stop {
        Stop::Objects(error)
    }
}

type Step = Result<(), Stop>;

/// A check under way.
struct Check<'a> {
    fs: &'a FileSystem,
    sink: &'a mut dyn Sink,
    counts: Counts,
    /// The target being looked at.
    at: Endpoint,
    phase: &'static str,
    done: u64,
    /// Targets whose index is damaged, which has been said.
    unreadable: BTreeSet<Endpoint>,
    /// Inodes with more names than their link-EA holds, and how many more.
    unrecorded: BTreeMap<Fid, i64>,
    /// Files with a truncate that is not through.
    punched: BTreeSet<Fid>,
    /// Files that have a name and no inode.
    lost: BTreeSet<Fid>,
    /// Directories that lead to the root.
    rooted: BTreeSet<Fid>,
}

/// Checks a file system.
///
/// # Errors
/// If a disk cannot be read. Damage is no error: it is found.
pub fn check(fs: &FileSystem, sink: &mut dyn Sink) -> Result<Counts, CheckError> {
    let mut check = Check {
        fs,
        sink,
        counts: Counts::default(),
        at: Endpoint::Mdt(0),
        phase: "",
        done: 0,
        unreadable: BTreeSet::new(),
        unrecorded: BTreeMap::new(),
        punched: BTreeSet::new(),
        lost: BTreeSet::new(),
        rooted: BTreeSet::new(),
    };
    if let Some(image) = &fs.mgs {
        check.begin(Endpoint::Mgs, "configuration");
        let step = config::check(&mut check, image);
        check.end(step)?;
    }
    type Phase<'a> = fn(&mut Check<'a>, &'a Image) -> Step;
    let of_mdts: [(&'static str, Phase<'_>); 3] =
        [("inodes", inodes::check), ("entries", names::check), ("other records", records::check)];
    for (name, phase) in of_mdts {
        for (index, image) in &fs.mdts {
            check.begin(Endpoint::Mdt(*index), name);
            let step = phase(&mut check, image);
            check.end(step)?;
        }
    }
    names::check_unrecorded(&mut check);
    for (index, ost) in &fs.osts {
        check.begin(Endpoint::Ost(*index), "objects");
        let step = objects::check(&mut check, *index, ost);
        check.end(step)?;
        check.begin(Endpoint::Ost(*index), "object records");
        let step = objects::check_records(&mut check, ost);
        check.end(step)?;
    }
    Ok(check.counts)
}

impl<'a> Check<'a> {
    fn begin(&mut self, at: Endpoint, phase: &'static str) {
        (self.at, self.phase, self.done) = (at, phase, 0);
    }

    /// An index that contradicts itself is damage; the other steps can still be done.
    fn end(&mut self, step: Step) -> Result<(), CheckError> {
        let target = self.at;
        match step {
            Ok(()) => Ok(()),
            Err(Stop::Index(Unread { target, error: IndexError::Corrupt(what) })) => {
                if self.unreadable.insert(target) {
                    self.at = target;
                    let what = format!("the metadata index is damaged: {what}");
                    self.damage(what, "restore the target from a backup");
                }
                Ok(())
            }
            Err(Stop::Index(Unread { target, error })) => {
                Err(CheckError { target, why: error.to_string() })
            }
            Err(Stop::Objects(error)) => Err(CheckError { target, why: error.to_string() }),
        }
    }

    fn tick(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(PROGRESS_STEP) {
            self.sink.progress(self.at, self.phase, self.done);
        }
    }

    fn found(&mut self, kind: Kind, what: impl Into<String>, fix: &str) {
        let (target, what, fix) = (self.at.to_string(), what.into(), fix.to_owned());
        self.sink.finding(Finding { kind, target, what, fix });
    }

    fn damage(&mut self, what: impl Into<String>, fix: &str) {
        self.found(Kind::Damage, what, fix);
    }

    fn pending(&mut self, what: impl Into<String>) {
        self.found(Kind::Pending, what, "the next start does it");
    }

    /// The MDT that a FID belongs to.
    fn mdt_of(&self, fid: Fid) -> Option<&'a Image> {
        self.fs.mdts.get(&seq::mdt_of(fid.seq))
    }

    /// An inode's record.
    fn inode(&self, fid: Fid) -> Result<Option<Vec<u8>>, Unread> {
        self.mdt_of(fid).map_or(Ok(None), |mdt| mdt.get(&keys::inode(fid)))
    }
}

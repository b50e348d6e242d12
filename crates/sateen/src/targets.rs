//! The targets in a data folder: which there are, which are to be made, and their labels.
//!
//! A target is a folder with a file `label`. It is made under another name (`ost0003.new`)
//! and gets its own when all in it is durable; so a folder with a target's name is whole, and
//! nothing in it is ever removed or made anew here. The MGT is made last: without one the
//! making of a file system was cut off, and goes on where it was.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sateen_target::{Label, LabelError};
use sateen_types::Endpoint;

use crate::data_dir::{DataDir, sync_dir};
use crate::node::backend;
use crate::refusal::{Outcome, Refusal};

/// Name of file systems made by `up`.
pub(crate) const FSNAME: &str = "sateen";
/// Metadata targets if nothing is said.
const MDTS_DEFAULT: u32 = 1;
/// Object targets if nothing is said.
const OSTS_DEFAULT: u32 = 4;
/// Longest label file that is read.
const LABEL_BYTES_MAX: u64 = 4096;
/// What the name of a folder ends with while a target is being made in it.
const NEW: &str = ".new";
/// Free space without which no target is made: its journal, and as much again.
const SPACE_PER_TARGET_MIN: u64 = 64 << 20;

/// A target that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    /// Its folder.
    pub path: PathBuf,
    /// Its label.
    pub label: Label,
}

impl Target {
    /// Its index, if it is an OST.
    pub(crate) fn ost_index(&self) -> Option<u32> {
        ost_index(self.label.target)
    }
}

/// How many targets are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Metadata targets.
    pub mdts: u32,
    /// Object targets.
    pub osts: u32,
}

/// Name of a target's folder.
pub(crate) fn folder_name(target: Endpoint) -> String {
    match target {
        Endpoint::Mdt(index) => format!("mdt{index:04x}"),
        Endpoint::Ost(index) => format!("ost{index:04x}"),
        Endpoint::Mgs | Endpoint::Client(_) => "mgt".to_owned(),
    }
}

/// All targets of the counts, in the order they are made.
fn all(counts: Counts) -> impl Iterator<Item = Endpoint> {
    let mdts = (0..counts.mdts).map(Endpoint::Mdt);
    let osts = (0..counts.osts).map(Endpoint::Ost);
    mdts.chain(osts).chain([Endpoint::Mgs])
}

/// The targets of a file system, opened or made as `up` was asked.
pub(crate) fn open_or_make(
    data: &DataDir,
    mdts: Option<u32>,
    osts: Option<u32>,
) -> Outcome<Vec<Target>> {
    let existing = existing(data)?;
    let counts = if has(&existing, Endpoint::Mgs) {
        counts_of_existing(&existing, mdts, osts)?
    } else {
        let (mdts_now, osts_now) = (indexes(&existing, mdt_index), indexes(&existing, ost_index));
        Counts {
            mdts: mdts.unwrap_or(MDTS_DEFAULT).max(end(&mdts_now)),
            osts: osts.unwrap_or(OSTS_DEFAULT).max(end(&osts_now)),
        }
    };
    let template = existing.first().map_or_else(new_file_system, |target| target.label.clone());
    let wanted: Vec<Endpoint> = all(counts).collect();
    let missing = wanted.iter().filter(|target| !has(&existing, **target)).count();
    require_space(data.path(), missing as u64)?;
    let mut targets = Vec::new();
    for target in wanted {
        let found = existing.iter().find(|found| found.label.target == target);
        targets.push(match found {
            Some(found) => found.clone(),
            None => make(data, target, &template)?,
        });
    }
    Ok(targets)
}

fn mdt_index(target: Endpoint) -> Option<u32> {
    if let Endpoint::Mdt(index) = target { Some(index) } else { None }
}

fn ost_index(target: Endpoint) -> Option<u32> {
    if let Endpoint::Ost(index) = target { Some(index) } else { None }
}

fn indexes(targets: &[Target], kind: fn(Endpoint) -> Option<u32>) -> Vec<u32> {
    targets.iter().filter_map(|target| kind(target.label.target)).collect()
}

/// One more than the highest index.
fn end(indexes: &[u32]) -> u32 {
    indexes.iter().max().map_or(0, |highest| highest + 1)
}

fn has(targets: &[Target], wanted: Endpoint) -> bool {
    targets.iter().any(|target| target.label.target == wanted)
}

/// The targets that are there, in the order of their folders' names. Folders without a
/// label are not.
pub(crate) fn existing(data: &DataDir) -> Outcome<Vec<Target>> {
    let reading = |error: &io::Error| Refusal::io(format!("read {}", data.path().display()), error);
    let mut targets = Vec::new();
    for entry in fs::read_dir(data.path()).map_err(|error| reading(&error))? {
        let path = entry.map_err(|error| reading(&error))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let named = ["mgt", "mdt", "ost"].iter().any(|kind| name.starts_with(kind));
        if !path.is_dir() || path == data.default_mount() || name.ends_with(NEW) {
            continue;
        }
        match read_label(&path)? {
            Some(label) => targets.push(Target { path, label }),
            None if named => {
                return Err(Refusal::new(
                    format!("the target {} has lost its label", path.display()),
                    "bring the file `label` back from a backup, or move the folder away",
                ));
            }
            None => {}
        }
    }
    targets.sort_by(|a, b| a.path.cmp(&b.path));
    check(&targets)?;
    Ok(targets)
}

/// The target in a folder.
pub(crate) fn at(path: &Path) -> Outcome<Target> {
    match read_label(path)? {
        Some(label) => Ok(Target { path: path.to_owned(), label }),
        None => Err(Refusal::new(
            format!("{} holds no target", path.display()),
            "make one there with mkfs.sateen, or name the right folder",
        )),
    }
}

fn read_label(folder: &Path) -> Outcome<Option<Label>> {
    let path = folder.join("label");
    let mut bytes = Vec::new();
    let read =
        File::open(&path).and_then(|file| file.take(LABEL_BYTES_MAX).read_to_end(&mut bytes));
    match read {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Refusal::io(format!("read {}", path.display()), &error)),
    }
    let label = Label::decode(&bytes).map_err(|error| {
        let hint = match error {
            LabelError::Newer(_) | LabelError::Features(_) => {
                "run the newer sateen that wrote this data"
            }
            LabelError::NotALabel | LabelError::Damaged => "restore that file from a backup",
        };
        Refusal::new(format!("cannot use {}: {error}", folder.display()), hint).that_lasts()
    })?;
    Ok(Some(label))
}

/// Targets of one file system that stand where they belong.
fn check(targets: &[Target]) -> Outcome<()> {
    let first = targets.first().map(|target| &target.label);
    for Target { path, label } in targets {
        let name = path.file_name().unwrap_or_default();
        if name != folder_name(label.target).as_str() {
            return Err(Refusal::new(
                format!("{} holds the target {}", path.display(), label.target),
                "give the folder the name that it was made with",
            ));
        }
        if first.is_some_and(|first| first.fs_uuid != label.fs_uuid) {
            return Err(Refusal::new(
                format!("{} belongs to another file system", path.display()),
                "move that folder back to the data folder that it came from",
            ));
        }
    }
    Ok(())
}

fn counts_of_existing(
    existing: &[Target],
    mdts: Option<u32>,
    osts: Option<u32>,
) -> Outcome<Counts> {
    let (mdts_there, osts_there) = (indexes(existing, mdt_index), indexes(existing, ost_index));
    let (mdts_now, osts_now) = (end(&mdts_there), end(&osts_there));
    let gap = (0..mdts_now.max(1)).find(|index| !mdts_there.contains(index)).map(Endpoint::Mdt);
    let gap = gap.or((0..osts_now.max(1)).find(|i| !osts_there.contains(i)).map(Endpoint::Ost));
    if let Some(missing) = gap {
        return Err(Refusal::new(
            format!("the folder of {missing} is missing: {}", folder_name(missing)),
            "bring it back from where it was moved to, or from a backup",
        ));
    }
    if mdts.is_some_and(|wanted| wanted != mdts_now) {
        return Err(Refusal::new(
            format!("this file system was made with {mdts_now} metadata targets"),
            format!("leave --mdts away, or say --mdts {mdts_now}"),
        ));
    }
    if osts.is_some_and(|wanted| wanted < osts_now) {
        return Err(Refusal::new(
            format!("this file system has {osts_now} object targets, and files lie on them"),
            format!("leave --osts away, or say --osts {osts_now} or more"),
        ));
    }
    Ok(Counts { mdts: mdts_now, osts: osts.unwrap_or(osts_now) })
}

fn new_file_system() -> Label {
    Label {
        fsname: FSNAME.to_owned(),
        target: Endpoint::Mgs,
        uuid: 0,
        fs_uuid: sateen_reactor::random(),
        journal_epoch: 0,
        hash_key: sateen_reactor::random(),
        compat: 0,
        ro_compat: 0,
        incompat: 0,
        mgs_nodes: String::new(),
    }
}

/// Refuses a disk on which so many new targets do not fit. The folder need not exist.
pub(crate) fn require_space(folder: &Path, targets: u64) -> Outcome<()> {
    let there = folder.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."));
    let there = if there.as_os_str().is_empty() { Path::new(".") } else { there };
    let space = rustix::fs::statvfs(there).map_err(|error| {
        Refusal::io(format!("look at the space of {}", folder.display()), &error.into())
    })?;
    let (free, need) = (space.f_bavail * space.f_frsize, targets * SPACE_PER_TARGET_MIN);
    if free >= need {
        return Ok(());
    }
    let size = sateen_types::units::format_size;
    Err(Refusal::new(
        format!(
            "the disk of {} has {} free, and {} {}",
            folder.display(),
            size(free),
            if targets == 1 {
                "a new target needs".to_owned()
            } else {
                format!("{targets} new targets need")
            },
            size(need)
        ),
        "free space on that disk, or choose a folder on another",
    ))
}

fn make(data: &DataDir, target: Endpoint, template: &Label) -> Outcome<Target> {
    let path = data.join(&folder_name(target));
    let label = Label {
        target,
        uuid: sateen_reactor::random(),
        journal_epoch: sateen_reactor::random(),
        ..template.clone()
    };
    let being_made = path.with_extension(NEW.trim_start_matches('.'));
    let failed = |error: &io::Error| Refusal::io(format!("make {}", path.display()), error);
    if being_made.exists() {
        fs::remove_dir_all(&being_made).map_err(|error| failed(&error))?;
    }
    backend::make(&being_made, &label, "")?;
    fs::rename(&being_made, &path)
        .and_then(|()| sync_dir(data.path()))
        .map_err(|error| failed(&error))?;
    tracing::info!(target_name = %target, path = %path.display(), "made a target");
    Ok(Target { path, label })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    fn names(targets: &[Target]) -> Vec<String> {
        targets.iter().map(|target| folder_name(target.label.target)).collect()
    }

    #[test]
    fn targets_are_made_once_and_added_to() {
        let scratch = Scratch::new("targets");
        let data = DataDir::at(scratch.path()).unwrap();
        let first = open_or_make(&data, None, Some(2)).unwrap();
        assert_eq!(names(&first), ["mdt0000", "ost0000", "ost0001", "mgt"]);
        assert_eq!(open_or_make(&data, None, None).unwrap(), first);
        let more = open_or_make(&data, Some(1), Some(3)).unwrap();
        assert_eq!(names(&more), ["mdt0000", "ost0000", "ost0001", "ost0002", "mgt"]);
        assert_eq!(more[0..3], first[0..3]);
        assert!(more.iter().all(|target| target.label.fs_uuid == first[0].label.fs_uuid));
        assert!(open_or_make(&data, None, Some(2)).unwrap_err().hint.contains("--osts 3"));
        assert!(open_or_make(&data, Some(2), None).unwrap_err().hint.contains("--mdts 1"));
    }

    #[test]
    fn a_making_that_was_cut_off_goes_on() {
        let scratch = Scratch::new("cut");
        let data = DataDir::at(scratch.path()).unwrap();
        let first = open_or_make(&data, None, Some(3)).unwrap();
        fs::remove_dir_all(data.join("mgt")).unwrap();
        fs::rename(data.join("ost0002"), data.join("ost0002.new")).unwrap();
        let again = open_or_make(&data, None, Some(3)).unwrap();
        assert_eq!(again[..3], first[..3]);
        assert_eq!(again[3].label.fs_uuid, first[3].label.fs_uuid);
        assert!(!data.join("ost0002.new").exists());
        fs::remove_file(data.join("ost0002/label")).unwrap();
        let refused = open_or_make(&data, None, Some(3)).unwrap_err();
        assert!(refused.what.contains("lost its label"), "{refused}");
    }

    #[test]
    fn newer_damaged_missing_and_foreign_targets_are_refused() {
        let scratch = Scratch::new("bad");
        let data = DataDir::at(scratch.path()).unwrap();
        open_or_make(&data, None, Some(2)).unwrap();
        let path = data.join("ost0001/label");
        let good = fs::read(&path).unwrap();
        let refused = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            open_or_make(&data, None, None).unwrap_err()
        };
        let mut newer = good.clone();
        newer[8] = 77;
        let newer = refused(&newer);
        assert!(newer.what.contains("77") && newer.hint.contains("newer sateen"), "{newer}");
        let mut damaged = good.clone();
        damaged[40] ^= 1;
        assert!(refused(&damaged).hint.contains("backup"));
        let label = Label { fs_uuid: 1, ..Label::decode(&good).unwrap() };
        assert!(refused(&label.encode()).what.contains("another file system"));
        fs::write(&path, &good).unwrap();
        fs::rename(data.join("ost0000"), data.join("elsewhere")).unwrap();
        assert!(open_or_make(&data, None, None).unwrap_err().what.contains("elsewhere"));
        fs::remove_dir_all(data.join("elsewhere")).unwrap();
        assert!(open_or_make(&data, None, None).unwrap_err().what.contains("ost0000"));
    }
}

//! `/run/sateen`: where the processes of this host that serve or mount something are found.
//!
//! | entry | is |
//! |---|---|
//! | `mnt-data` | the folder of the process behind the mount `/mnt/data`; names are made as systemd makes those of mount units |
//! | `serve:srv-ost0` | the folder of the server whose first target is `/srv/ost0` |
//! | `up:home-me-data` | a link to the data folder `/home/me/data` of a file system in one process |
//!
//! Each folder is a [`DataDir`]: its lock says whether the process lives, its control socket
//! is where that takes commands. Users other than root have a place of their own: in
//! `$XDG_RUNTIME_DIR`, or else in the folder for temporary files, where anybody may have made it
//! before; one that is not theirs alone is not used.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};

use crate::data_dir::{DataDir, User, make_durably};
use crate::mounts;
use crate::refusal::{Outcome, Refusal};
use crate::state::State;

/// Names another place, for hosts on which `/run` cannot be used.
const VARIABLE: &str = "SATEEN_RUN";
/// Whose folder it is, before the name.
const SERVE: &str = "serve:";
const UP: &str = "up:";
/// For how long the folder of a process that has ended is kept: for whoever asks how it ended.
const KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// What is in the folder of a mount or a server.
const FILES: [&str; 7] =
    ["lock", "guard.lock", "state.json", "state.new", "control.sock", "log", "log.old"];

/// The place.
pub(crate) fn root() -> PathBuf {
    let path = place().0;
    // A process that is left behind does not stay where it was started.
    std::path::absolute(&path).unwrap_or(path)
}

/// The place, and whether it lies where everybody may make something.
fn place() -> (PathBuf, bool) {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = named(VARIABLE) {
        return (path.into(), false);
    }
    let user = rustix::process::geteuid();
    match (user.is_root(), named("XDG_RUNTIME_DIR")) {
        (true, _) => ("/run/sateen".into(), false),
        (false, Some(path)) => (PathBuf::from(path).join("sateen"), false),
        (false, None) => (std::env::temp_dir().join(format!("sateen-{}", user.as_raw())), true),
    }
}

/// The place, made if need be, for whoever is to write there.
fn made() -> Outcome<PathBuf> {
    let (root, shared) = (root(), place().1);
    let failed = |error: &io::Error| Refusal::io(format!("make {}", root.display()), error);
    if !shared {
        make_durably(&root).map_err(|error| failed(&error))?;
        return Ok(root);
    }
    match DirBuilder::new().mode(0o700).create(&root) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(&error)),
        _ => is_own(&root).map(|()| root),
    }
}

/// Refuses a folder that is not this user's, or in which others may write.
fn is_own(path: &Path) -> Outcome<()> {
    let failed = |error: &io::Error| Refusal::io(format!("look at {}", path.display()), error);
    let found = fs::symlink_metadata(path).map_err(|error| failed(&error))?;
    let mine = found.uid() == rustix::process::geteuid().as_raw();
    if !found.is_dir() || !mine || found.mode() & 0o022 != 0 {
        return Err(Refusal::new(
            format!("{} is not a folder of yours alone", path.display()),
            format!("somebody else has made it: name another place, with {VARIABLE}=DIR"),
        ));
    }
    if found.mode() & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(|e| failed(&e))?;
    }
    Ok(())
}

/// An absolute path as a name, as systemd makes the names of mount units.
fn name_of(path: &Path) -> String {
    let mut name = String::new();
    for byte in path.as_os_str().as_encoded_bytes().iter().skip(1) {
        match byte {
            b'/' => name.push('-'),
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' => name.push(char::from(*byte)),
            other => name.push_str(&format!("\\x{other:02x}")),
        }
    }
    if name.is_empty() { "-".to_owned() } else { name }
}

/// The folder of the process behind a mount, by the absolute path of its mount point.
pub(crate) fn of_mount(point: &Path) -> Outcome<DataDir> {
    DataDir::at(&made()?.join(name_of(point)))
}

/// The folder of a server, by its first target.
pub(crate) fn of_server(target: &Path) -> Outcome<DataDir> {
    let path = target
        .canonicalize()
        .map_err(|error| Refusal::io(format!("use {}", target.display()), &error))?;
    DataDir::at(&made()?.join(format!("{SERVE}{}", name_of(&path))))
}

/// A link to the data folder of a file system in one process; gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Entered(PathBuf);

impl Drop for Entered {
    fn drop(&mut self) {
        // One that stays leads to a folder that nobody has locked, which is not shown.
        let _ = fs::remove_file(&self.0);
    }
}

/// Makes a file system in one process known; nothing depends on it but `lctl` without `--data`.
pub(crate) fn enter(data: &DataDir) -> Option<Entered> {
    let link = root().join(format!("{UP}{}", name_of(data.path())));
    // Of a process that was killed, if there is one.
    let _ = fs::remove_file(&link);
    let entered = made().and_then(|_| {
        std::os::unix::fs::symlink(data.path(), &link)
            .map_err(|error| Refusal::io(format!("make {}", link.display()), &error))
    });
    match entered {
        Ok(()) => Some(Entered(link)),
        Err(refusal) => {
            tracing::warn!("{}: lctl will need --data", refusal.what);
            None
        }
    }
}

/// Forgets a file system in one process that was killed.
pub(crate) fn forget(data: &DataDir) {
    // There is none as a rule.
    let _ = fs::remove_file(root().join(format!("{UP}{}", name_of(data.path()))));
}

/// Removes folders of mounts and servers that ended so long ago that nobody asks for them any more:
/// one for each mount point that there ever was would fill up the disk, which is memory as a rule.
/// For whoever has just got a folder there.
pub(crate) fn clear_old() {
    for entry in fs::read_dir(root()).into_iter().flatten().flatten() {
        // A link is of a data folder.
        if entry.file_type().is_ok_and(|kind| kind.is_dir())
            && let Err(error) = clear_if_old(&entry.path())
        {
            tracing::warn!(%error, folder = %entry.path().display(), "cannot remove it");
        }
    }
}

fn clear_if_old(path: &Path) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let known = entry.file_name().to_str().is_some_and(|name| FILES.contains(&name));
        let age = entry.metadata()?.modified()?.elapsed().unwrap_or_default();
        if !known || age < KEPT {
            return Ok(());
        }
        files.push(entry.path());
    }
    let lock = path.join("lock");
    let Ok(data) = DataDir::at(path) else { return Ok(()) };
    if !files.contains(&lock) || data.require().is_err() {
        return Ok(());
    }
    // Held until it is gone: nobody may begin to use it meanwhile.
    let held = File::open(&lock)?;
    if flock(&held, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(());
    }
    // By its note `down` clears away what a process that was killed has left in the tree.
    let state = State::load(&data);
    let is_cut_off = state.as_ref().is_some_and(|state| state.ended.is_none());
    if state.is_some_and(|state| state.mounts.iter().any(|mount| mounts::is_mounted(mount))) {
        return Ok(());
    }
    // One that was killed has not said when it ended: from now on it counts as seen. The note is
    // written after the lock, as a rule.
    let modified = |file: &Path| fs::metadata(file)?.modified();
    if is_cut_off && modified(&lock)? <= modified(&path.join("state.json"))? {
        return held.set_modified(SystemTime::now());
    }
    // Cut off, it is still one that can be removed.
    files.sort_by_key(|file| *file == lock);
    files.iter().try_for_each(fs::remove_file)?;
    fs::remove_dir(path)
}

/// The folders of all processes that live, by name.
pub(crate) fn all() -> Outcome<Vec<DataDir>> {
    let root = root();
    if place().1 && root.symlink_metadata().is_ok() {
        is_own(&root)?;
    }
    let entries = match fs::read_dir(&root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(|e| Refusal::io(format!("list {}", root.display()), &e))?,
    };
    let mut names: Vec<OsString> =
        entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
    names.sort();
    let folders = names.into_iter().filter_map(|name| DataDir::at(&root.join(name)).ok());
    let lives = |data: &DataDir| data.user().is_ok_and(|user| user != User::Nobody);
    Ok(folders.filter(lives).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_somebody_else_is_refused() {
        let scratch = crate::testing::Scratch::new("own");
        let path = scratch.path().join("run");
        DirBuilder::new().mode(0o700).create(&path).unwrap();
        let with = |mode: u32| {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            is_own(&path)
        };
        assert_eq!(with(0o700), Ok(()));
        assert_eq!(with(0o755), Ok(()), "it is made this user's alone");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        for mode in [0o720, 0o702] {
            let said = with(mode).unwrap_err();
            assert!(said.what.contains("yours alone") && said.hint.contains("SATEEN_RUN"));
        }
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(with(0o700), Ok(()));
        assert!(is_own(&link).is_err(), "whoever made the link may have it lead elsewhere");
    }

    #[test]
    fn names_are_those_of_mount_units() {
        for (path, name) in
            [("/", "-"), ("/mnt/data", "mnt-data"), ("/srv/a-b c", "srv-a\\x2db\\x20c")]
        {
            assert_eq!(name_of(Path::new(path)), name);
        }
        let mount = of_mount(Path::new("/serve/x")).unwrap();
        assert!(mount.path().ends_with("serve-x"), "no mount has a server's name");
    }
}

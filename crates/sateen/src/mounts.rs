//! Mount points: whether FUSE can be used here at all, what is mounted where, what a mount
//! point must look like, and who uses one.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use sateen_fuse::fusectl;
use sateen_fuse::mountinfo::{self, Mount};

use crate::refusal::{Outcome, Refusal};

/// The file system type of our mounts, as the kernel names it.
pub(crate) const FS_TYPE: &str = "fuse.sateen";
/// Most processes that are named as users of a mount.
const USERS_SHOWN_MAX: usize = 8;

/// Refuses who may not mount anything.
pub(crate) fn require_root() -> Outcome<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(Refusal::new(
            "mounting needs root",
            "run it with sudo, or in a container that may mount (CAP_SYS_ADMIN)",
        ));
    }
    Ok(())
}

/// Refuses a machine on which nothing can be mounted.
pub(crate) fn require_fuse() -> Outcome<()> {
    require_root()?;
    match fs::File::options().read(true).write(true).open("/dev/fuse") {
        Ok(_) => Ok(()),
        Err(error) => Err(match error.kind() {
            io::ErrorKind::NotFound => Refusal::new(
                "there is no /dev/fuse",
                "load the module (modprobe fuse); in a container, start it with --device /dev/fuse",
            ),
            io::ErrorKind::PermissionDenied => Refusal::new(
                format!("/dev/fuse cannot be opened: {error}"),
                "the container forbids it: start it with --device /dev/fuse --cap-add SYS_ADMIN",
            ),
            _ => Refusal::new(
                format!("/dev/fuse cannot be opened: {error}"),
                "load the module: modprobe fuse",
            ),
        }),
    }
}

/// Makes a mount point ready: it exists, is an empty folder, and nothing is mounted on it. A
/// mount of ours that a dead process left behind is cleared away. Returns the path as the
/// kernel will show it.
pub(crate) fn prepare(wanted: &Path) -> Outcome<PathBuf> {
    let shown = wanted.display();
    let failed = |error: &io::Error| Refusal::io(format!("use the mount point {shown}"), error);
    let absolute = std::path::absolute(wanted).map_err(|error| failed(&error))?;
    clear_dead_mounts(&absolute)?;
    DirBuilder::new().recursive(true).mode(0o755).create(&absolute).map_err(|error| match error
        .kind()
    {
        io::ErrorKind::AlreadyExists => Refusal::new(
            format!("the mount point {shown} is not a folder"),
            "choose a folder: mount -t sateen NID:/FSNAME DIR, or sateen up --mount DIR",
        ),
        _ => failed(&error),
    })?;
    let path = absolute.canonicalize().map_err(|error| failed(&error))?;
    clear_dead_mounts(&path)?;
    let all = mountinfo::all().map_err(|error| failed(&error))?;
    if let Some(mount) = all.iter().rfind(|mount| mount.point == path) {
        return Err(Refusal::new(
            format!("something is mounted on {shown} already ({})", mount.fs_type),
            format!(
                "unmount it (umount {shown}), or choose another folder: mount -t sateen \
                 NID:/FSNAME DIR, or sateen up --mount DIR"
            ),
        ));
    }
    let mut entries = fs::read_dir(&path).map_err(|error| failed(&error))?;
    if entries.next().is_some() {
        return Err(Refusal::new(
            format!("the mount point {shown} is not empty, and its content would be hidden"),
            "choose an empty folder: mount -t sateen NID:/FSNAME DIR, or sateen up --mount DIR",
        ));
    }
    Ok(path)
}

/// Takes mounts of ours out of the tree whose process is dead. Those that answer stay.
/// Returns how many there were.
pub(crate) fn clear_dead_mounts(path: &Path) -> Outcome<usize> {
    let mut cleared = 0;
    loop {
        let all =
            mountinfo::all().map_err(|error| Refusal::io("read /proc/self/mountinfo", &error))?;
        let ours = all.iter().rfind(|mount| mount.point == path);
        if ours.is_none_or(|mount| mount.fs_type != FS_TYPE) || !is_dead(path) {
            return Ok(cleared);
        }
        unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).map_err(|error| {
            Refusal::new(
                format!("a dead mount on {} cannot be cleared away: {error}", path.display()),
                format!("unmount it as root: umount -l {}", path.display()),
            )
        })?;
        tracing::warn!(mount = %path.display(), "cleared a mount whose process had died");
        cleared += 1;
    }
}

/// Whether the process behind a FUSE mount is gone. The kernel answers at once then.
fn is_dead(path: &Path) -> bool {
    // statfs is never answered from a cache.
    let dead = [Errno::NOTCONN, Errno::CONNABORTED];
    rustix::fs::statfs(path).is_err_and(|errno| dead.contains(&errno))
}

/// Ends the connection of a mount of ours that does not end by itself, and leaves the mount in the
/// tree, answering with errors, so that nothing is written into the folder below by mistake.
///
/// By fusectl, which asks nothing of anybody; where that cannot be had, by a forced unmount, which
/// must find the mount in the tree.
pub(crate) fn abort(device: (u32, u32)) -> io::Result<()> {
    let all = mountinfo::all()?;
    let mut places = all.iter().filter(|mount| mount.device == device).peekable();
    if places.peek().is_some_and(|mount| mount.fs_type != FS_TYPE) {
        return Err(io::Error::other("its number is another's by now"));
    }
    let refused = match fusectl::abort(device) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => error,
        // It is over, or was already.
        _ => return Ok(()),
    };
    let is_on_top = |mount: &&Mount| {
        mountinfo::last_at(&all, &mount.point).is_some_and(|last| last.device == device)
    };
    let place = places.find(is_on_top).ok_or(refused)?;
    // Held, so that the forced unmount can only abort: it finds the mount in use.
    let held = rustix::fs::open(&place.point, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let forced = unmount(&place.point, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW);
    drop(held);
    match forced {
        Ok(()) | Err(Errno::BUSY) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// A mounted file system of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ours {
    /// Where.
    pub point: PathBuf,
    /// Name of the file system.
    pub fsname: String,
    /// What is mounted, as it was named.
    pub source: String,
}

impl Ours {
    fn of(mount: Mount) -> Ours {
        Ours { fsname: fsname_of(&mount.source), point: mount.point, source: mount.source }
    }
}

/// All mounts of ours, in the order they were mounted.
pub(crate) fn ours() -> io::Result<Vec<Ours>> {
    let all = mountinfo::all()?.into_iter().filter(|mount| mount.fs_type == FS_TYPE);
    Ok(all.map(Ours::of).collect())
}

/// The mount of ours that a path lies in, if it lies in one. Symbolic links are not followed.
pub(crate) fn ours_of(path: &Path) -> io::Result<Option<Ours>> {
    let device = fs::symlink_metadata(path)?.dev();
    let device = (rustix::fs::major(device), rustix::fs::minor(device));
    let all = mountinfo::all()?;
    let found = all.into_iter().rfind(|mount| mount.device == device && mount.fs_type == FS_TYPE);
    Ok(found.map(Ours::of))
}

/// Name of the file system in what is mounted: `NID:/FSNAME[/SUBDIR]`, or the name alone.
fn fsname_of(source: &str) -> String {
    let path = source.split_once(":/").map_or(source, |(_, path)| path.trim_matches('/'));
    path.split_once('/').map_or(path, |(name, _)| name).to_owned()
}

/// Whether a path is a mount of ours now.
pub(crate) fn is_mounted(path: &Path) -> bool {
    mountinfo::all().is_ok_and(|all| {
        all.iter().rfind(|mount| mount.point == path).is_some_and(|m| m.fs_type == FS_TYPE)
    })
}

/// The device of the mount of ours at a path, if it is one.
pub(crate) fn device_of(path: &Path) -> Option<(u32, u32)> {
    let all = mountinfo::all().ok()?;
    all.iter().rfind(|mount| mount.point == path && mount.fs_type == FS_TYPE).map(|m| m.device)
}

/// Whether a mount of ours with this device is anywhere. True where that cannot be told.
pub(crate) fn has_device(device: (u32, u32)) -> bool {
    mountinfo::all().map_or(true, |all| all.iter().any(|mount| mount.device == device))
}

/// Processes that have something open below a mount point, as "name (pid)".
pub(crate) fn users(mount: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let Ok(processes) = fs::read_dir("/proc") else { return found };
    for process in processes.flatten() {
        let name = process.file_name();
        if !name.as_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        if uses(&process.path(), mount) {
            let comm = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            found.push(format!("{} ({})", comm.trim(), name.to_string_lossy()));
            if found.len() == USERS_SHOWN_MAX {
                found.push("...".to_owned());
                break;
            }
        }
    }
    found
}

fn uses(process: &Path, mount: &Path) -> bool {
    let below = |link: &Path| fs::read_link(link).is_ok_and(|target| target.starts_with(mount));
    let links = ["cwd", "root", "exe"];
    if links.iter().any(|link| below(&process.join(link))) {
        return true;
    }
    let listed = |folder: &str| fs::read_dir(process.join(folder)).into_iter().flatten().flatten();
    listed("fd").chain(listed("map_files")).any(|entry| below(&entry.path()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn mount_points_are_checked() {
        let scratch = Scratch::new("mounts");
        let new = scratch.path().join("a/mnt");
        let path = prepare(&new).unwrap();
        assert_eq!(path, new.canonicalize().unwrap());
        fs::write(path.join("file"), b"").unwrap();
        assert!(prepare(&new).unwrap_err().what.contains("not empty"));
        assert!(prepare(&path.join("file")).unwrap_err().what.contains("not a folder"));
        assert!(prepare(Path::new("/proc")).unwrap_err().what.contains("already"));
    }

    #[test]
    fn users_of_a_folder_are_named() {
        let scratch = Scratch::new("users");
        let path = scratch.path().canonicalize().unwrap();
        assert!(users(&path).is_empty());
        let _open = fs::File::create(path.join("file")).unwrap();
        let me = format!("({})", std::process::id());
        assert!(users(&path).iter().any(|user| user.ends_with(&me)));
    }
}

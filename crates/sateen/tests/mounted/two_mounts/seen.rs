//! What can be seen of files: by their paths, by descriptors, and of all that is below a folder.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{lgetxattr, llistxattr};

use super::ops::{LONG_AGO_S, Op, Place};

/// Owner, mode, links, and the time if it was set by a step.
fn attributes(meta: &Metadata) -> String {
    let (mode, nlink) = (meta.mode(), meta.nlink());
    let (uid, gid) = (meta.uid(), meta.gid());
    let time = match meta.mtime() {
        seconds if seconds < LONG_AGO_S => format!("{seconds}.{:09}", meta.mtime_nsec()),
        _ => "now".to_owned(),
    };
    format!("{mode:o} x{nlink} {uid}:{gid} {time}")
}

/// The content as a checksum of a sort.
fn content(bytes: &[u8]) -> String {
    let sum =
        bytes.iter().fold(7_u64, |sum, byte| sum.wrapping_mul(0x0100_0000_01b3) ^ u64::from(*byte));
    format!("{} bytes {sum:x}", bytes.len())
}

/// What can be seen of one path.
fn look(full: &Path) -> io::Result<String> {
    let meta = fs::symlink_metadata(full)?;
    let kind = meta.file_type();
    assert!(!kind.is_socket(), "nobody makes sockets");
    let xattrs = xattrs(full)?;
    let inside = if kind.is_symlink() {
        format!("-> {}", fs::read_link(full)?.display())
    } else if kind.is_file() {
        let bytes = fs::read(full)?;
        assert_eq!(bytes.len() as u64, meta.len(), "size of {}", full.display());
        content(&bytes)
    } else {
        String::new()
    };
    Ok(format!("{} {xattrs} {inside}", attributes(&meta)))
}

/// What can be seen by a descriptor, whether the file has a name or not.
fn look_into(file: &File) -> io::Result<String> {
    let meta = file.metadata()?;
    // One byte more, which must not be there.
    let mut bytes = vec![0; meta.len() as usize + 1];
    let mut at = 0;
    while at < bytes.len() {
        match file.read_at(&mut bytes[at..], at as u64)? {
            0 => break,
            read => at += read,
        }
    }
    assert_eq!(at as u64, meta.len(), "size of an open file");
    Ok(format!("{} {}", attributes(&meta), content(&bytes[..at])))
}

/// The extended attributes of users, by name.
fn xattrs(full: &Path) -> io::Result<String> {
    let mut names = vec![0; 4096];
    let len = llistxattr(full, &mut names)?;
    let names = names[..len].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user."));
    let names: BTreeSet<&str> = names.map(|name| std::str::from_utf8(name).unwrap()).collect();
    let mut text = String::new();
    for name in names {
        let mut value = [0; 256];
        let len = lgetxattr(full, name, &mut value[..])?;
        text.push_str(&format!("{name}={:02x?}", &value[..len]));
    }
    Ok(text)
}

/// When paths were changed, their content and, unless that was what the step did, all else, to the
/// nanosecond: of those that are there.
pub(super) fn times(place: &Place, op: &Op, paths: &[String]) -> Vec<Option<[i64; 4]>> {
    let times = |path: &String| {
        let meta = fs::symlink_metadata(place.root.join(path)).ok()?;
        let changed = if op.writes() { [0, 0] } else { [meta.ctime(), meta.ctime_nsec()] };
        Some([meta.mtime(), meta.mtime_nsec(), changed[0], changed[1]])
    };
    paths.iter().map(times).collect()
}

/// What can be seen of the paths that a step was about.
pub(super) fn touched(place: &Place, paths: &[String]) -> Vec<Result<String, Option<i32>>> {
    let look = |path| look(&place.root.join(path)).map_err(|error| error.raw_os_error());
    paths.iter().map(look).collect()
}

/// What can be seen by one descriptor.
pub(super) fn seen_by(place: &Place, number: usize) -> Option<String> {
    Some(look_into(place.held[number].as_ref()?).unwrap())
}

/// Everything that can be seen below a folder, one line each.
pub(super) fn seen(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let names: BTreeSet<_> =
            fs::read_dir(root.join(&folder)).unwrap().map(|e| e.unwrap().file_name()).collect();
        for name in names {
            let path = folder.join(name);
            let full = root.join(&path);
            lines.push(format!("{} {}", path.display(), look(&full).unwrap()));
            if fs::symlink_metadata(&full).unwrap().is_dir() {
                folders.push(path);
            }
        }
    }
    lines.sort();
    lines
}

/// How many files below a folder have more than so many bytes.
pub(super) fn larger_than(root: &Path, bytes: u64) -> u64 {
    let mut found = 0;
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let meta = entry.metadata().unwrap();
            if meta.is_dir() {
                folders.push(entry.path());
            }
            found += u64::from(meta.is_file() && meta.len() > bytes);
        }
    }
    found
}

//! What is mounted where, as /proc/self/mountinfo tells: nothing is asked of a file system that
//! may be dead.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One line of /proc/self/mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Major and minor number.
    pub device: (u32, u32),
    /// Where it is mounted.
    pub point: PathBuf,
    /// What holds there, as `rw,nosuid,relatime`.
    pub options: String,
    /// Such as `ext4`, or `fuse.sateen`.
    pub fs_type: String,
    /// What it was called when it was mounted, such as a device.
    pub source: String,
    /// What holds of the file system, wherever it is mounted.
    pub super_options: String,
}

/// All mounts that this process sees, in the order they were mounted.
///
/// # Errors
/// Where there is no /proc.
pub fn all() -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?))
}

/// What was mounted last at a path, and covers what was mounted there before.
pub fn last_at<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts.iter().rfind(|mount| mount.point == path)
}

fn parse(text: &[u8]) -> Vec<Mount> {
    let line = |line: &[u8]| {
        let mut words = line.split(|byte| *byte == b' ');
        let device = String::from_utf8_lossy(words.by_ref().nth(2)?).into_owned();
        let (major, minor) = device.split_once(':')?;
        let device = (major.parse().ok()?, minor.parse().ok()?);
        let point = words.by_ref().nth(1)?;
        let options = String::from_utf8_lossy(words.by_ref().next()?).into_owned();
        // Optional fields end with a lone dash.
        words.by_ref().find(|word| *word == b"-")?;
        let fs_type = String::from_utf8_lossy(words.next()?).into_owned();
        let source = String::from_utf8_lossy(&unescape(words.next()?)).into_owned();
        let super_options = String::from_utf8_lossy(words.next()?).into_owned();
        let point = PathBuf::from(OsString::from_vec(unescape(point)));
        Some(Mount { device, point, options, fs_type, source, super_options })
    };
    text.split(|byte| *byte == b'\n').filter_map(line).collect()
}

/// The kernel writes blanks, tabs, newlines and backslashes as three octal digits.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, after)) = rest.split_first() {
        let octal = (*first == b'\\').then(|| after.split_at_checked(3)).flatten().and_then(
            |(digits, tail)| {
                let number = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()?;
                Some((number, tail))
            },
        );
        let (byte, tail) = octal.unwrap_or((*first, after));
        out.push(byte);
        rest = tail;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_what_is_mounted_at_a_path_counts() {
        let mounts = parse(
            b"21 1 8:1 / / ro,noatime shared:1 - ext4 /dev/sda1 rw,sync\n\
            40 21 0:50 / /mnt/a\\040b rw - fuse.sateen sateen rw\n\
            41 40 8:2 / /mnt/a\\040b rw - ext4 /dev/sdb rw\n\
            42 21 0:51 / /mnt rw - fuse.sateen sateen rw\n\
            bad line\n",
        );
        assert_eq!(mounts.len(), 4);
        assert_eq!((&*mounts[3].fs_type, &*mounts[2].source), ("fuse.sateen", "/dev/sdb"));
        assert_eq!((&*mounts[0].options, &*mounts[0].super_options), ("ro,noatime", "rw,sync"));
        let device = |path: &str| last_at(&mounts, Path::new(path)).map(|mount| mount.device);
        assert_eq!(device("/mnt/a b"), Some((8, 2)));
        assert_eq!(device("/mnt"), Some((0, 51)));
        assert_eq!(device("/mnt/a"), None);
        assert!(all().unwrap().iter().any(|mount| mount.point == Path::new("/proc")));
    }
}

//! What a program may rely on when the file system dies under it: a file that was written,
//! synced and renamed, and whose folder was synced, is there afterwards, whole and under its
//! new name alone.
//!
//! Life of a file: written as `N.part`, synced, renamed to `N`, its folder synced; then its
//! number is noted. The content follows from the number, so that the check needs only numbers.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// Largest file.
const FILE_BYTES_MAX: u64 = 256 << 10;
/// Files in one folder.
const FILES_PER_FOLDER: u64 = 100;

fn folder(dir: &Path, n: u64) -> PathBuf {
    dir.join(format!("{:05}", n / FILES_PER_FOLDER))
}

/// The content of file `n`: its length and its bytes look arbitrary and follow from `n`.
fn content(n: u64) -> Vec<u8> {
    let mut state = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let words = next() % (FILE_BYTES_MAX / 8);
    (0..=words).flat_map(|_| next().to_le_bytes()).collect()
}

/// Writes until the file system fails; that is the expected end, and no error.
pub fn write(dir: &Path, notes: &Path) -> Result<()> {
    let mut notes = File::options().append(true).create(true).open(notes)?;
    for n in 0.. {
        match write_one(dir, n) {
            Ok(()) => notes.write_all(format!("{n}\n").as_bytes())?,
            Err(error) => {
                println!("the file system failed while file {n} was written: {error}");
                return Ok(());
            }
        }
    }
    bail!("the numbers are used up")
}

fn write_one(dir: &Path, n: u64) -> io::Result<()> {
    let folder = folder(dir, n);
    if n.is_multiple_of(FILES_PER_FOLDER) {
        fs::create_dir(&folder)?;
        File::open(dir)?.sync_all()?;
    }
    let part = folder.join(format!("{n}.part"));
    let mut file = File::create_new(&part)?;
    file.write_all(&content(n))?;
    file.sync_all()?;
    drop(file);
    fs::rename(&part, folder.join(n.to_string()))?;
    File::open(&folder)?.sync_all()
}

/// Checks what was noted.
pub fn check(dir: &Path, notes: &Path) -> Result<()> {
    let mut checked = 0;
    let mut bytes = 0;
    for line in BufReader::new(File::open(notes)?).lines() {
        let n: u64 = line?.parse().context("the notes hold numbers")?;
        let path = folder(dir, n).join(n.to_string());
        let found = fs::read(&path).with_context(|| format!("{} is lost", path.display()))?;
        ensure!(found == content(n), "{} is not what was synced", path.display());
        let part = path.with_extension("part");
        ensure!(!part.try_exists()?, "{} came back", part.display());
        checked += 1;
        bytes += found.len();
    }
    ensure!(checked > 0, "nothing was noted");
    println!("{checked} synced files, {} MiB: all there, byte for byte", bytes >> 20);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_or_changed_is_noticed() {
        let dir = std::env::temp_dir().join(format!("sateen-bench-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let notes = dir.join("notes");
        for n in 0..3 {
            write_one(&dir, n).unwrap();
        }
        fs::write(&notes, "0\n1\n2\n").unwrap();
        check(&dir, &notes).unwrap();
        let file = dir.join("00000/1");
        let good = fs::read(&file).unwrap();
        fs::write(&file, good.get(1..).unwrap()).unwrap();
        assert!(check(&dir, &notes).is_err());
        fs::remove_file(&file).unwrap();
        assert!(check(&dir, &notes).is_err());
        fs::write(&file, &good).unwrap();
        check(&dir, &notes).unwrap();
        fs::write(dir.join("00000/1.part"), "").unwrap();
        assert!(check(&dir, &notes).is_err());
        fs::remove_dir_all(&dir).unwrap();
    }
}

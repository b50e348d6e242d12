//! What file system a folder is on, and an ext4 for tests that have to have one.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};

/// The type of the file system that a folder is on, as `findmnt` names it.
///
/// # Errors
/// It cannot be found out.
pub fn type_of(folder: &Path) -> Result<String> {
    let found = Command::new("findmnt").args(["-n", "-o", "FSTYPE", "-T"]).arg(folder).output()?;
    ensure!(found.status.success(), "findmnt of {}: {found:?}", folder.display());
    Ok(String::from_utf8(found.stdout)?.trim().to_owned())
}

/// An ext4 in a loop device, which is unmounted in the end; its folders are the caller's.
#[derive(Debug)]
pub struct LoopedExt4 {
    point: PathBuf,
}

impl LoopedExt4 {
    /// Makes an ext4 of so many MiB in a file in a folder, and mounts it beside that.
    ///
    /// # Errors
    /// There is no `mkfs.ext4`, or no loop device for us.
    pub fn below(folder: &Path, mib: u64) -> Result<LoopedExt4> {
        LoopedExt4::made_with(folder, mib, &[])
    }

    /// The same with options of `mkfs.ext4`.
    ///
    /// # Errors
    /// As [`LoopedExt4::below`].
    pub fn made_with(folder: &Path, mib: u64, options: &[&str]) -> Result<LoopedExt4> {
        let (image, point) = (folder.join("ext4.image"), folder.join("ext4"));
        File::create(&image).and_then(|file| file.set_len(mib << 20)).context("make the image")?;
        fs::create_dir(&point)?;
        done(Command::new("mkfs.ext4").args(["-q", "-F", "-b", "4096"]).args(options).arg(&image))?;
        done(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&point))?;
        Ok(LoopedExt4 { point })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.point
    }
}

impl Drop for LoopedExt4 {
    fn drop(&mut self) {
        // Whoever removes the folder finds out if it is still mounted.
        let _ = Command::new("umount").arg("-l").arg(&self.point).status();
    }
}

fn done(command: &mut Command) -> Result<()> {
    let output: Output = command.output().with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{command:?}: {said}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ext4_is_made_and_goes() {
        if !rustix::process::geteuid().is_root() {
            return crate::skipped("needs root");
        }
        let folder = std::env::temp_dir().join(format!("sateen-looped-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let disk = LoopedExt4::below(&folder, 16).unwrap();
        assert_eq!(type_of(disk.path()).unwrap(), "ext4");
        fs::write(disk.path().join("file"), b"file").unwrap();
        let device = |path: &Path| {
            let mut found = Command::new("findmnt");
            let found = found.args(["-n", "-o", "SOURCE", "-T"]).arg(path).output().unwrap();
            String::from_utf8(found.stdout).unwrap()
        };
        assert!(device(disk.path()).starts_with("/dev/loop"));
        let point = disk.path().to_owned();
        drop(disk);
        assert!(!device(&point).starts_with("/dev/loop") && !point.join("file").exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}

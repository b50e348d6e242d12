//! That no run is overwritten by the report about it: a run may have taken hours.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::{Error, Result};
use crate::read::Source;

/// Refuses to write into files of runs, whatever they are called there: links, and other names of
/// the same file.
pub(crate) fn check<'a>(
    runs: &[Source],
    files: impl Iterator<Item = &'a Path>,
    prints: bool,
) -> Result<()> {
    for file in files {
        // What is not there yet is no run.
        if let Ok(there) = fs::metadata(file) {
            refuse(runs, &there, &file.display().to_string())?;
        }
    }
    if prints && let Ok(there) = printed(io::stdout()) {
        refuse(runs, &there, "standard output")?;
    }
    Ok(())
}

/// What is known of an open file.
fn printed(file: impl AsFd) -> io::Result<Metadata> {
    File::from(file.as_fd().try_clone_to_owned()?).metadata()
}

fn refuse(runs: &[Source], there: &Metadata, name: &str) -> Result<()> {
    // A terminal or /dev/null may be read and written.
    let same = |run: &&Source| {
        there.is_file()
            && fs::metadata(&run.file)
                .is_ok_and(|run| (run.dev(), run.ino()) == (there.dev(), there.ino()))
    };
    let Some(run) = runs.iter().find(same) else { return Ok(()) };
    let run = run.file.display().to_string();
    let what = if run == name { run } else { format!("{name} is the same file as {run}, which") };
    Err(Error::Usage(format!(
        "{what} is one of the runs and would be overwritten: write the report elsewhere (-o FILE, \
         --csv DIR, or another file behind >); nothing was written"
    )))
}

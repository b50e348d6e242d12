//! Files of MPI (MPI-IO), for `ior -a MPIIO`.
//!
//! Calls that several ranks make together wait for all of them. So nothing here makes such a
//! call that the engine has not asked for, and a file that a failed rank has open stays so until
//! MPI_Abort ends it.

mod raw;

use std::ffi::{CString, c_int};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sateen_bench::io::{Open, ParallelFile, ParallelFiles, Usage, View};

use self::raw::{Mode, Raw};

/// MPI-IO as one of the ranks sees it.
#[derive(Debug)]
pub(crate) struct Mpiio {
    /// Whether this rank speaks for all.
    pub(crate) root: bool,
    /// Whether there are others.
    pub(crate) alone: bool,
}

/// An open file.
#[derive(Debug)]
struct File {
    raw: Raw,
    collective: bool,
    view: Option<View>,
}

impl ParallelFiles for Mpiio {
    fn name(&self) -> &'static str {
        "MPIIO"
    }

    fn version(&self) -> String {
        let (version, subversion) = raw::version();
        format!("({version}.{subversion})")
    }

    fn open(&self, path: &Path, how: Open, usage: &Usage) -> io::Result<Box<dyn ParallelFile>> {
        let shown = usage.show_hints && self.root;
        if shown {
            show("passed to MPI_File_open()", &usage.hints);
        }
        let mode = Mode {
            write: how.write,
            create: how.create,
            // Readers that -Z has chosen by chance may open a file of another at the same time.
            unique: how.write || usage.shared,
            alone: !usage.shared || self.alone,
        };
        let raw = Raw::open(&name(path)?, mode, &usage.hints)?;
        if shown {
            show("returned from opened file", &raw.hints()?);
        }
        if let Some(bytes) = usage.preallocate.filter(|_| how.write) {
            raw.preallocate(offset(bytes)?)?;
        }
        if let Some(view) = usage.view {
            raw.set_view(&parts(view, how.part)?)?;
        }
        Ok(Box::new(File { raw, collective: usage.collective, view: usage.view }))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        raw::delete(&name(path)?)
    }
}

impl File {
    /// Where a call begins: in a view, counted in transfers of the part.
    fn at(&self, place: u64) -> io::Result<i64> {
        offset(self.view.map_or(place, |view| view.transfer_at(place)))
    }

    /// A call that others take part in, or that a view counts as one, cannot be gone on with.
    fn whole(&self, moved: usize, of: usize) -> io::Result<usize> {
        if moved < of && (self.collective || self.view.is_some()) {
            short(moved, of)
        } else {
            Ok(moved)
        }
    }
}

impl ParallelFile for File {
    fn write_at(&self, bytes: &[u8], place: u64) -> io::Result<usize> {
        let moved = self.raw.write_at(self.at(place)?, bytes, self.collective)?;
        // OpenMPI 4 says no more of an error of the system.
        if moved == 0 && !bytes.is_empty() {
            return short(moved, bytes.len());
        }
        self.whole(moved, bytes.len())
    }

    fn read_at(&self, bytes: &mut [u8], place: u64) -> io::Result<usize> {
        let moved = self.raw.read_at(self.at(place)?, bytes, self.collective)?;
        self.whole(moved, bytes.len())
    }

    fn sync(&self) -> io::Result<()> {
        self.raw.sync()
    }

    fn close(self: Box<Self>) -> io::Result<()> {
        self.raw.close()
    }
}

fn short(moved: usize, of: usize) -> io::Result<usize> {
    Err(io::Error::other(format!("MPI has moved {moved} of {of} bytes, and does not say why")))
}

/// A name as C has it, with a directory in any case: OpenMPI 4 cannot share a file whose name
/// has none.
fn name(path: &Path) -> io::Result<CString> {
    let bare = path.parent().is_some_and(|dir| dir.as_os_str().is_empty());
    let path = if bare { &Path::new(".").join(path) } else { path };
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// An offset as MPI has it.
fn offset(bytes: u64) -> io::Result<i64> {
    i64::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

/// A rank's part of a file, in numbers that MPI counts with.
fn parts(view: View, part: u64) -> io::Result<raw::Parts> {
    let many = |_| io::Error::other("a segment has too many transfers for a view (-V)");
    let int = |number: u64| c_int::try_from(number).map_err(many);
    let per_block = view.block / view.transfer;
    // One that has a file alone has all of it.
    let part = if view.ranks == 1 { 0 } else { part };
    Ok(raw::Parts {
        transfer: int(view.transfer)?,
        per_block: int(per_block)?,
        per_segment: int(per_block.saturating_mul(view.ranks))?,
        first: int(per_block.saturating_mul(part))?,
    })
}

/// Shows hints in IOR's form.
fn show(which: &str, hints: &[(String, String)]) {
    let lines = hints.iter().map(|(name, value)| format!("\t{name} = {value}\n"));
    eprintln!("\nhints {which} {{\n{}}}", lines.collect::<String>());
}

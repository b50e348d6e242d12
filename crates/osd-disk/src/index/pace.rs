//! Tables go to the disk while they grow, piece by piece.
//!
//! The engine writes a table into the page cache and syncs it when it is complete: tens of
//! megabytes at once, which the journal's next group commit and everybody's reads stand
//! behind, and which, where memory is short, whoever needs a page waits for. So the thread
//! that writes tables calls [`Pacer::wrote`] all the time, and at every piece waits until the
//! piece before is written out: never more than two are dirty or under way. The engine's own
//! sync then finds little left to do, and is as necessary as before.
//!
//! This is a courtesy: where it does not work, tables are written without it.
//!
//! The engine does not say which files it writes. They are those that appear: tables have
//! rising numbers. That a checkpoint and a merge find each other's tables does no harm.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use sateen_types::Errno;

use crate::writeback;

/// Bytes of a piece: on a disk that writes 200 MB/s, a sync waits 5 ms behind one.
const PIECE_BYTES: usize = 1 << 20;

/// What is written out of the tables of one step. See the module.
pub(super) struct Pacer {
    folder: PathBuf,
    /// Tables with lower numbers were there before.
    first: u64,
    /// Those that appeared since, also the complete ones: a step writes tens of them.
    growing: BTreeMap<u64, Growing>,
    /// Bytes since the last piece.
    bytes: usize,
    /// It did not work.
    stopped: bool,
}

struct Growing {
    table: File,
    /// All before this is written out.
    written: u64,
    /// Writing out was started up to here.
    started: u64,
}

impl Pacer {
    /// Paces what will be written into the folder of tables from now on.
    pub(super) fn new(folder: PathBuf) -> Pacer {
        let before = numbers(&folder);
        let growing = BTreeMap::new();
        let mut pacer = Pacer { folder, first: 0, growing, bytes: 0, stopped: false };
        match before {
            Ok(numbers) => pacer.first = numbers.into_iter().max().map_or(0, |last| last + 1),
            Err(error) => pacer.stop(&error),
        }
        pacer
    }

    /// So many bytes were written, roughly.
    ///
    /// # Errors
    /// Something of a table could not be written out.
    pub(super) fn wrote(&mut self, bytes: usize) -> io::Result<()> {
        self.bytes += bytes;
        if self.bytes < PIECE_BYTES || self.stopped {
            return Ok(());
        }
        self.bytes = 0;
        let mut paced = self.look_for_new();
        for growing in self.growing.values_mut() {
            paced = paced.and_then(|()| growing.next_piece());
        }
        match paced {
            Err(error) if is_loss(&error) => return Err(error),
            Err(error) => self.stop(&error),
            Ok(()) => {}
        }
        Ok(())
    }

    fn stop(&mut self, error: &io::Error) {
        tracing::warn!(%error, "tables are written without a pace");
        self.stopped = true;
        self.growing.clear();
    }

    fn look_for_new(&mut self) -> io::Result<()> {
        for number in numbers(&self.folder)? {
            if number >= self.first && !self.growing.contains_key(&number) {
                let table = match File::open(self.folder.join(number.to_string())) {
                    // A step that failed has cleaned up, or a merge is through with it.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    other => other?,
                };
                self.growing.insert(number, Growing { table, written: 0, started: 0 });
            }
        }
        Ok(())
    }
}

/// Whether an error says that written bytes did not reach the disk. The table's own sync
/// meets that, too, and the step is over.
fn is_loss(error: &io::Error) -> bool {
    let loss = [Errno::EIO.raw(), Errno::ENOSPC.raw(), Errno::EDQUOT.raw()];
    error.raw_os_error().is_some_and(|raw| loss.contains(&raw))
}

impl Growing {
    fn next_piece(&mut self) -> io::Result<()> {
        if self.written < self.started {
            writeback::wait(&self.table, self.written..self.started)?;
            self.written = self.started;
        }
        let len = self.table.metadata()?.len();
        if len > self.started {
            writeback::start(&self.table, self.started..len);
            self.started = len;
        }
        Ok(())
    }
}

fn numbers(folder: &Path) -> io::Result<Vec<u64>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        all.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u64>().ok()));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    /// Tables that grow in turn are written out one piece behind; one that was there before
    /// is left alone.
    #[test]
    fn new_tables_are_written_out_and_old_ones_left_alone() {
        const PIECE: u64 = PIECE_BYTES as u64;
        let folder = crate::testing::Scratch::new("pace");
        let grow = |number: u64| {
            let path = folder.path().join(number.to_string());
            let mut table = File::options().create(true).append(true).open(path).unwrap();
            table.write_all(&vec![7; PIECE_BYTES]).unwrap();
        };
        grow(6);
        File::create(folder.path().join("other")).unwrap();
        let mut pacer = Pacer::new(folder.path().to_path_buf());
        let state = |pacer: &Pacer| -> Vec<(u64, u64, u64)> {
            let each = |(number, growing): (&u64, &Growing)| {
                (*number, growing.written / PIECE, growing.started / PIECE)
            };
            pacer.growing.iter().map(each).collect()
        };
        let mut step = |number| {
            grow(number);
            pacer.wrote(PIECE_BYTES / 2).unwrap();
            pacer.wrote(PIECE_BYTES / 2).unwrap();
            state(&pacer)
        };
        assert_eq!(step(7), [(7, 0, 1)]);
        assert_eq!(step(7), [(7, 1, 2)]);
        assert_eq!(step(9), [(7, 2, 2), (9, 0, 1)]);
        assert_eq!(step(7), [(7, 2, 3), (9, 1, 1)]);
        fs::remove_file(folder.path().join("9")).unwrap();
        assert_eq!(step(6), [(7, 3, 3), (9, 1, 1)]);
    }

    /// Tables that cannot be found or opened are the engine's to complain of.
    #[test]
    fn where_pacing_does_not_work_there_is_none() {
        let scratch = crate::testing::Scratch::new("pace-not");
        let folder = scratch.path().join("tables");
        let mut absent = Pacer::new(folder.clone());
        absent.wrote(PIECE_BYTES).unwrap();
        fs::create_dir(&folder).unwrap();
        let mut pacer = Pacer::new(folder.clone());
        // A link to itself cannot be opened, even by root.
        std::os::unix::fs::symlink("7", folder.join("7")).unwrap();
        pacer.wrote(PIECE_BYTES).unwrap();
        pacer.wrote(PIECE_BYTES).unwrap();
        assert!(pacer.stopped && pacer.growing.is_empty());
    }
}

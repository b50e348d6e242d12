//! The measuring loop: one record after the other. Between two of them it allocates nothing,
//! formats nothing and takes no lock.

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use super::data::Data;
use super::pattern::{Call, Order};
use crate::clock::now_ns;
use crate::comm::Communicator;
use crate::engine::whole;
use crate::error::{Error, Result};
use crate::io::FileInterface;
use crate::pattern::{Pattern, Wrong};
use crate::stats::Latencies;

/// Records with wrong data that a rank describes; the others are counted.
const DESCRIBED_MAX: u64 = 10;

/// Bytes of a record whose marks are written or compared in less time than a reading of the clock
/// takes.
const FEW_MARKS: usize = 16 << 10;

/// What is compared of what is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compare {
    /// Nothing: there is no data, or it is somebody else's.
    Nothing,
    /// The first word of each 4 KiB, which tells whose they are and of which place. IOzone, too,
    /// looks at one word of each page unless it is told otherwise, so that it belongs to its
    /// rates, though not to the time of an operation.
    Marks,
    /// Every byte.
    All,
}

/// One rank's work in a test.
#[derive(Debug)]
pub struct Work<'a, I: FileInterface> {
    /// The target.
    pub io: &'a I,
    /// The file, open.
    pub file: &'a I::File,
    /// Its path, for errors.
    pub path: &'a Path,
    /// By which calls.
    pub call: Call,
    /// Whether records are written.
    pub write: bool,
    /// Which record comes next.
    pub order: &'a Order,
    /// Records.
    pub count: u64,
    /// What files hold.
    pub data: Data,
    /// A record.
    pub buffer: &'a mut [u8],
    /// What is compared of what is read.
    pub compare: Compare,
    /// How long each took.
    pub latencies: &'a mut Latencies,
    /// Records that held other data than was written.
    pub wrong: u64,
}

/// A file as the standard library's buffers want it.
struct Stream<'a, I: FileInterface>(&'a I, &'a I::File);

impl<I: FileInterface> Write for Stream<'_, I> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_next(self.1, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<I: FileInterface> Read for Stream<'_, I> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read_next(self.1, bytes)
    }
}

impl<I: FileInterface> Work<'_, I> {
    /// Goes through the file.
    pub fn run(&mut self, comm: &dyn Communicator) -> Result<()> {
        let (io, file) = (self.io, self.file);
        match (self.call, self.write) {
            (Call::Next, true) => self.all(comm, |bytes, _| whole::write_next(io, file, bytes)),
            (Call::Next, false) => self.all(comm, |bytes, _| whole::read_next(io, file, bytes)),
            (Call::Seek, true) => self.all(comm, |bytes, offset| {
                io.seek(file, offset)?;
                whole::write_next(io, file, bytes)
            }),
            (Call::Seek, false) => self.all(comm, |bytes, offset| {
                io.seek(file, offset)?;
                whole::read_next(io, file, bytes)
            }),
            (Call::At, true) => {
                self.all(comm, |bytes, offset| whole::write_at(io, file, bytes, offset))
            }
            (Call::At, false) => {
                self.all(comm, |bytes, offset| whole::read_at(io, file, bytes, offset))
            }
            (Call::Buffered, true) => {
                let mut out = BufWriter::with_capacity(self.buffer.len(), Stream(io, file));
                self.all(comm, |bytes, _| out.write_all(bytes))?;
                out.flush().map_err(|error| Error::io("write", self.path, error))
            }
            (Call::Buffered, false) => {
                let mut from = BufReader::with_capacity(self.buffer.len(), Stream(io, file));
                self.all(comm, |bytes, _| from.read_exact(bytes))
            }
        }
    }

    /// Moves all records by a call.
    #[inline]
    fn all(
        &mut self,
        comm: &dyn Communicator,
        mut call: impl FnMut(&mut [u8], u64) -> io::Result<()>,
    ) -> Result<()> {
        let record = self.buffer.len() as u64;
        let compares = !self.write && self.compare != Compare::Nothing;
        let whole = compares && self.compare == Compare::All;
        let between = whole || (self.write || compares) && self.buffer.len() > FEW_MARKS;
        let mut now = now_ns();
        for at in 0..self.count {
            let offset = self.order.record(at) * record;
            if self.write {
                self.data.place(self.buffer, offset);
            } else if self.compare == Compare::All {
                // Marks need not be spoiled: those of the record before are of another place.
                Pattern::spoil(self.buffer);
            }
            // One reading of the clock ends an operation and begins the next, unless more than a
            // few words are made or compared between them.
            let before = if between { now_ns() } else { now };
            let done = call(self.buffer, offset);
            now = now_ns();
            self.latencies.note(now - before);
            if let Err(error) = done {
                let what = if self.write { "write" } else { "read" };
                let what = format!("{what} {} at {offset}", self.path.display());
                return Err(Error::Io { what, source: error });
            }
            if !self.write {
                self.look(offset);
            }
            comm.note_done(at + 1);
            comm.check()?;
        }
        Ok(())
    }

    #[inline]
    fn look(&mut self, offset: u64) {
        let looked = match self.compare {
            Compare::Nothing => Ok(()),
            Compare::Marks => self.data.check_marks(self.buffer, offset),
            Compare::All => self.data.check(self.buffer, offset),
        };
        if let Err(wrong) = looked {
            self.describe(offset, wrong);
        }
    }

    #[cold]
    fn describe(&mut self, offset: u64, wrong: Wrong) {
        self.wrong += 1;
        if self.wrong <= DESCRIBED_MAX {
            eprintln!(
                "sateen-bench: wrong data in {} at {}: {:#018x} expected, {:#018x} found",
                self.path.display(),
                offset + wrong.at as u64,
                wrong.expected,
                wrong.found
            );
        }
    }
}

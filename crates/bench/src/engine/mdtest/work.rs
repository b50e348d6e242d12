//! The measuring loop: one kind of operation on one item after the other. Between two of them
//! it allocates nothing, takes no lock, and writes of the path only the number's digits.

use std::io;
use std::path::{Path, PathBuf};

use super::names::Paths;
use crate::clock::now_ns;
use crate::comm::Communicator;
use crate::engine::whole;
use crate::error::{Error, Result};
use crate::io::{FileInterface, Open};
use crate::pattern::Pattern;
use crate::stats::Latencies;

/// Files with wrong data that a rank describes; the others are counted.
const DESCRIBED_MAX: u64 = 10;

/// What is done with each item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// mkdir
    MakeDir,
    /// stat of a directory
    StatDir,
    /// rename of a directory to the one before
    RenameDir,
    /// rmdir
    RemoveDir,
    /// creat, write, close
    CreateFile,
    /// mknod
    MakeNode,
    /// stat of a file
    StatFile,
    /// open, read, close
    ReadFile,
    /// unlink
    RemoveFile,
}

/// An operation and its data.
#[derive(Debug)]
pub struct Operation<'a> {
    /// What is done.
    pub kind: Kind,
    /// What is written or read, and who writes it.
    pub pattern: Pattern,
    /// The bytes of a file.
    pub buffer: &'a mut [u8],
    /// Whether files are made durable.
    pub fsync: bool,
    /// Whether what is read is compared.
    pub verify: bool,
}

/// One rank's work in a phase.
#[derive(Debug)]
pub struct Work<'a, I> {
    /// The target.
    pub io: &'a I,
    /// The items.
    pub paths: Paths<'a>,
    /// What is done with them.
    pub operation: Operation<'a>,
    /// How long each took.
    pub latencies: &'a mut Latencies,
    /// Files that held other data than was written.
    pub wrong: u64,
}

impl<I: FileInterface> Work<'_, I> {
    /// Works on items `from` to `to`, or until a time; the first that was not worked on.
    pub fn run(
        &mut self,
        comm: &dyn Communicator,
        (from, to): (u64, u64),
        deadline: Option<u64>,
    ) -> Result<u64> {
        let deadline = deadline.unwrap_or(u64::MAX);
        let mut now = now_ns();
        for at in from..to {
            now = self.one(at, now)?;
            comm.note_done(at + 1);
            comm.check()?;
            if now >= deadline {
                return Ok(at + 1);
            }
        }
        Ok(to)
    }

    /// Renames the directories in a ring, so that in the end all names are there again.
    pub fn rename_all(&mut self, comm: &dyn Communicator, count: u64) -> Result<()> {
        if count < 2 {
            return Ok(());
        }
        let first = self.paths.item(0).0.to_owned();
        let aside = PathBuf::from(format!("{}-aside", first.display()));
        let mut free = aside.clone();
        for at in 0..count {
            let path = if at == count - 1 { aside.as_path() } else { self.paths.item(at).0 };
            let before = now_ns();
            let done = self.io.rename(path, &free);
            self.latencies.note(now_ns() - before);
            done.map_err(|error| Error::io("rename", path, error))?;
            path.clone_into(&mut free);
            comm.note_done(at + 1);
            comm.check()?;
        }
        Ok(())
    }

    /// Works on an item, after one that was over at a time; the time when that was over. One
    /// reading of the clock ends an operation and begins the next: between them only the name
    /// is made.
    #[inline]
    fn one(&mut self, at: u64, before: u64) -> Result<u64> {
        let (path, number) = self.paths.item(at);
        let done = self.operation.make(self.io, path, number);
        let after = now_ns();
        self.latencies.note(after - before);
        match done {
            Ok(()) => {}
            Err(Trouble::Io(what, error)) => return Err(Error::io(what, path, error)),
            Err(Trouble::WrongData) => {
                self.wrong += 1;
                if self.wrong <= DESCRIBED_MAX {
                    eprintln!("sateen-bench: {} holds other data than was written", path.display());
                }
            }
        }
        Ok(after)
    }
}

/// What an operation meets.
enum Trouble {
    Io(&'static str, io::Error),
    WrongData,
}

impl Operation<'_> {
    #[inline]
    fn make<I: FileInterface>(
        &mut self,
        io: &I,
        path: &Path,
        number: u64,
    ) -> std::result::Result<(), Trouble> {
        let (what, done) = match self.kind {
            Kind::MakeDir => ("create the directory", io.make_dir(path)),
            Kind::StatDir | Kind::StatFile => ("stat", io.stat(path).map(drop)),
            Kind::RemoveDir => ("remove the directory", io.remove_dir(path)),
            Kind::MakeNode => ("create (mknod)", io.make_node(path)),
            Kind::RemoveFile => ("remove", io.remove_file(path)),
            Kind::CreateFile => ("create", self.create(io, path, number)),
            Kind::ReadFile => return self.read(io, path, number),
            Kind::RenameDir => return Ok(()),
        };
        done.map_err(|error| Trouble::Io(what, error))
    }

    fn create<I: FileInterface>(&mut self, io: &I, path: &Path, number: u64) -> io::Result<()> {
        let file = io.open(path, Open { write: true, create: true, ..Open::default() })?;
        if !self.buffer.is_empty() {
            self.pattern.place(self.buffer, number);
            whole::put(io, &file, self.buffer, 0)?;
        }
        if self.fsync {
            io.sync(&file)?;
        }
        io.close(file)
    }

    fn read<I: FileInterface>(
        &mut self,
        io: &I,
        path: &Path,
        number: u64,
    ) -> std::result::Result<(), Trouble> {
        let failed = |error| Trouble::Io("read", error);
        // For writing, too: mdtest does, and what that costs is in its rates.
        let how = Open { write: true, ..Open::default() };
        let file = io.open(path, how).map_err(|error| Trouble::Io("open", error))?;
        if self.verify {
            Pattern::spoil(self.buffer);
        }
        if !self.buffer.is_empty() {
            whole::get(io, &file, self.buffer, 0).map_err(failed)?;
        }
        let right = !self.verify || self.pattern.check(self.buffer, number).is_ok();
        io.close(file).map_err(|error| Trouble::Io("close", error))?;
        if right { Ok(()) } else { Err(Trouble::WrongData) }
    }
}

//! A file that the programs of all clients have to do with for a while: some look at it, by its
//! names and as they have it open, and others change what those see. Lock files are such, backups
//! that share what has not changed, and stores that link an object before its first name goes.
//!
//! Without it programs seldom meet, and what a client may remember of a file is mostly gone for
//! another reason before anybody asks it again.

use sateen_types::Fid;

use super::World;
use crate::kernel::Handle;
use crate::names::Node;
use crate::random::Random;
use crate::work::Op;
use crate::work::chooser::Chooser;

/// Operations between two such files, on average.
const OPERATIONS_PER_SHARED: u64 = 350;
/// Operations that end while it is shared.
const SHARED_OPERATIONS: u64 = 40;
/// So many turns of a program one has to do with it.
const TURNS_PER_OPERATION: u64 = 2;

/// The file, and its own randomness: the choices of everything else go on as without it.
#[derive(Debug)]
pub(super) struct Shared {
    random: Random,
    file: Option<Fid>,
    /// When it is shared no more, and when the next one is: after so many operations.
    until: u64,
    next: u64,
}

impl Shared {
    pub(super) fn new(seed: u64) -> Shared {
        let random = Random::new(seed.rotate_left(29) ^ 0x3a7c);
        Shared { random, file: None, until: 0, next: OPERATIONS_PER_SHARED }
    }
}

impl World {
    /// A file is shared from now on, or no longer, if it is time for that.
    pub(super) fn maybe_share(&mut self) {
        let operations = self.report.operations;
        if operations >= self.shared.until {
            self.shared.file = None;
        }
        if operations < self.shared.next {
            return;
        }
        let files = self.model.now.inodes.iter().filter(|(_, inode)| inode.node == Node::File);
        let files: Vec<Fid> = files.map(|(fid, _)| *fid).collect();
        let Some(file) = self.shared.random.pick(&files).copied() else { return };
        self.report.count("file shared", 1);
        self.note(|| format!("{file} is shared"));
        let pause = self.shared.random.within(1, 2 * OPERATIONS_PER_SHARED);
        self.shared.file = Some(file);
        self.shared.until = operations + SHARED_OPERATIONS;
        self.shared.next = self.shared.until + pause;
    }

    /// What a program with these open files does with the file that is shared, if it does.
    pub(super) fn share(&mut self, open: &[(Handle, u64, bool)]) -> Option<Op> {
        let file = self.shared.file?;
        if !self.shared.random.one_in(TURNS_PER_OPERATION) {
            return None;
        }
        let (random, names) = (&mut self.shared.random, &self.model.now);
        let given = self.config.given;
        Chooser { random, names, osts: self.shape.osts, given }.share(file, open)
    }
}

//! Programs of the full world that write one file in turns, each its own records at a distance, through
//! crashes of all kinds: what parts of a file are for.
//!
//! They meet at one file, which is another after a while, and of which others do with it what they do with
//! any. What programs find that write at the same moment, the world of contention looks at
//! ([`super::combs`]); here it is what becomes of what is kept in parts when clients, MDTs and OSTs are lost.

use sateen_client::OpenHow;
use sateen_types::Fid;

use super::{WORKERS, World};
use crate::kernel::Handle;
use crate::names::Node;
use crate::random::Random;
use crate::work::Op;
use crate::work::chooser::Chooser;

/// Operations while programs meet at one file, on average.
const OPERATIONS_PER_FILE: u64 = 400;
/// So many turns of a program one has to do with it.
const TURNS_PER_OPERATION: u64 = 3;
/// And so many operations one looks at it, or closes it.
const OPERATIONS_PER_ELSE: u64 = 25;
/// Bytes of a record at most, and from one to the next.
const RECORD_BYTES: u64 = 280;
const SPACING: u64 = 300;
/// Records of each program.
const RECORDS: u64 = 40;

/// The file, and its own randomness.
#[derive(Debug)]
pub(super) struct Rowing {
    random: Random,
    file: Option<Fid>,
    next: u64,
    /// How far each program is.
    at: Vec<u64>,
}

impl Rowing {
    pub(super) fn new(seed: u64) -> Rowing {
        let random = Random::new(seed.rotate_left(17) ^ 0xc0b5);
        Rowing { random, file: None, next: 0, at: Vec::new() }
    }
}

impl World {
    /// Another file, if it is time for that.
    fn row_elsewhere(&mut self) {
        if self.report.operations < self.rowing.next {
            return;
        }
        let inodes = &self.model.now.inodes;
        let files = inodes.iter().filter(|(_, inode)| inode.node == Node::File);
        let files: Vec<Fid> = files.map(|(fid, _)| *fid).collect();
        let programs = self.nodes.len() * WORKERS;
        let rowing = &mut self.rowing;
        rowing.file = rowing.random.pick(&files).copied();
        rowing.at = vec![0; programs];
        let some = rowing.random.within(1, 2 * OPERATIONS_PER_FILE);
        rowing.next = self.report.operations + some;
    }

    /// What a program of this node with these open files does about it, if it does.
    pub(super) fn row(
        &mut self,
        (node, worker): (usize, usize),
        open: &[(Handle, u64, bool)],
    ) -> Option<Op> {
        if self.config.given {
            return None;
        }
        self.row_elsewhere();
        let (file, me) = (self.rowing.file?, node * WORKERS + worker);
        let random = &mut self.rowing.random;
        if !random.one_in(TURNS_PER_OPERATION) {
            return None;
        }
        let writes = |handle: &Handle| handle.fid == file && handle.how.write && !handle.how.append;
        let Some((handle, ..)) = open.iter().find(|(handle, ..)| writes(handle)) else {
            let (names, osts) = (&self.model.now, self.shape.osts);
            let at = Chooser { random, names, osts, given: false }.named(file)?;
            let how = OpenHow { read: true, write: true, ..OpenHow::default() };
            return Some(Op::Open { at, create: None, how });
        };
        let handle = *handle;
        if random.one_in(OPERATIONS_PER_ELSE) {
            let (offset, len) = (random.below(RECORDS * SPACING), RECORD_BYTES);
            return Some(match random.below(4) {
                0 => Op::Close { handle },
                1 => Op::Read { handle, offset, len },
                2 => Op::Fstat { handle },
                _ => Op::Fsync { handle },
            });
        }
        let programs = self.rowing.at.len() as u64;
        let at = self.rowing.at.get_mut(me)?;
        let offset = (*at * programs + me as u64) * SPACING;
        *at = (*at + 1) % RECORDS;
        self.model.data.entry(file).or_default().is_in_turns = true;
        let byte = 1 + self.rowing.random.below(255) as u8;
        Some(Op::Write { handle, offset, data: vec![byte; RECORD_BYTES as usize] })
    }
}

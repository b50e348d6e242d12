//! One program of each client of the full world, which write one file in turns, each its own records at a distance, through
//! crashes of all kinds: what parts of a file are for.
//!
//! For a while these do hardly anything else, or they would not meet often enough to share the file; then
//! they go on with other things, and meet later at another one. What programs find that write at the same moment, the world of contention looks at
//! ([`super::combs`]); here it is what becomes of what is kept in parts when clients, MDTs and OSTs are lost.

use sateen_client::OpenHow;
use sateen_types::Fid;

use super::World;
use crate::kernel::Handle;
use crate::names::Node;
use crate::random::Random;
use crate::work::Op;
use crate::work::chooser::Chooser;

/// Operations while programs meet at one file, and until they do again, on average.
const OPERATIONS_PER_FILE: u64 = 200;
const OPERATIONS_PER_PAUSE: u64 = 300;
/// So many turns one has nothing to do with it meanwhile.
const TURNS_PER_OTHER: u64 = 10;
/// And so many operations one looks at it, or closes it.
const OPERATIONS_PER_ELSE: u64 = 40;
/// Bytes of a record at most, and from one to the next.
const RECORD_BYTES: u64 = 280;
const SPACING: u64 = 300;
/// Records of each program.
const RECORDS: u64 = 60;

/// The file, and its own randomness.
#[derive(Debug)]
pub(super) struct Rowing {
    random: Random,
    file: Option<Fid>,
    /// When that is over, and when the next one is: after so many operations.
    until: u64,
    next: u64,
    /// How far each program is.
    at: Vec<u64>,
}

impl Rowing {
    pub(super) fn new(seed: u64) -> Rowing {
        let random = Random::new(seed.rotate_left(17) ^ 0xc0b5);
        Rowing { random, file: None, until: 0, next: OPERATIONS_PER_PAUSE / 2, at: Vec::new() }
    }
}

impl World {
    /// Another file, if it is time for that.
    fn row_elsewhere(&mut self) {
        let operations = self.report.operations;
        if operations >= self.rowing.until {
            self.rowing.file = None;
        }
        if operations < self.rowing.next {
            return;
        }
        let inodes = &self.model.now.inodes;
        let files = inodes.iter().filter(|(_, inode)| inode.node == Node::File);
        let files: Vec<Fid> = files.map(|(fid, _)| *fid).collect();
        let clients = self.nodes.len();
        let rowing = &mut self.rowing;
        rowing.file = rowing.random.pick(&files).copied();
        rowing.at = vec![0; clients];
        rowing.until = operations + rowing.random.within(1, 2 * OPERATIONS_PER_FILE);
        rowing.next = rowing.until + rowing.random.within(1, 2 * OPERATIONS_PER_PAUSE);
    }

    /// What a program of this node with these open files does about it, if it does.
    pub(super) fn row(
        &mut self,
        (node, worker): (usize, usize),
        open: &[(Handle, u64, bool)],
    ) -> Option<Op> {
        if self.config.given || worker > 0 {
            return None;
        }
        self.row_elsewhere();
        let file = self.rowing.file?;
        let random = &mut self.rowing.random;
        if random.one_in(TURNS_PER_OTHER) {
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
        let all = self.rowing.at.len() as u64;
        let at = self.rowing.at.get_mut(node)?;
        let offset = (*at * all + node as u64) * SPACING;
        *at = (*at + 1) % RECORDS;
        self.model.data.entry(file).or_default().is_in_turns = true;
        let byte = 1 + self.rowing.random.below(255) as u8;
        Some(Op::Write { handle, offset, data: vec![byte; RECORD_BYTES as usize] })
    }
}

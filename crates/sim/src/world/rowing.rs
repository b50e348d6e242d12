//! One program of each client of the full world, which write one file in turns, each its own records at a
//! distance, through crashes of all kinds: what parts of a file are for. The others now and then look at
//! it, add to it, or cut it, and go on with whatever else they do.
//!
//! For a while these do hardly anything else, or they would not meet often enough to share the file; then
//! they go on with other things, and meet later at another one. What programs find that write at the same
//! moment, the world of contention looks at ([`super::combs`]); here it is what becomes of what is kept in
//! parts when clients, MDTs and OSTs are lost.

use sateen_client::OpenHow;
use sateen_types::Fid;

use super::World;
use crate::kernel::Handle;
use crate::names::Node;
use crate::random::Random;
use crate::work::Op;
use crate::work::chooser::Chooser;

/// What programs do at one file, on average, and operations until they meet again.
const STEPS_PER_FILE: u64 = 400;
const OPERATIONS_PER_PAUSE: u64 = 200;
/// So many turns one has nothing to do with it meanwhile.
const TURNS_PER_OTHER: u64 = 10;
/// And so many one looks at it, or closes it.
const TURNS_PER_ELSE: u64 = 40;
/// The programs beside them have to do with it in one turn of so many.
const TURNS_PER_MEDDLING: u64 = 100;
/// Bytes of a record, and from one to the next: some lie in two objects.
const RECORD_BYTES: u64 = 280;
const SPACING: u64 = 700;
/// Records of each program.
const RECORDS: u64 = 60;

/// The file, and its own randomness.
#[derive(Debug)]
pub(super) struct Rowing {
    random: Random,
    /// This is the full world.
    is_here: bool,
    file: Option<Fid>,
    /// So many steps it goes on, and after so many operations there is another one.
    steps: u64,
    next: u64,
    /// How far each program is.
    at: Vec<u64>,
}

impl Rowing {
    pub(super) fn new(seed: u64) -> Rowing {
        let random = Random::new(seed.rotate_left(17) ^ 0xc0b5);
        let (is_here, next) = (false, OPERATIONS_PER_PAUSE / 3);
        Rowing { random, is_here, file: None, steps: 0, next, at: Vec::new() }
    }
}

impl Rowing {
    /// Whether this is the full world.
    pub(super) fn is_here(&self) -> bool {
        self.is_here
    }

    /// Whether there is a file that is written in turns now.
    pub(super) fn is_at_it(&self) -> bool {
        self.file.is_some()
    }
}

impl World {
    /// Whether this is a world of such programs: where writes are kept, and a quarter of the others.
    pub(super) fn has_rowers(&self) -> bool {
        self.rowing.is_here && (self.keeps_writes || self.config.seed % 4 == 2)
    }

    /// There may be such programs.
    pub(super) fn rows(&mut self) {
        self.rowing.is_here = !self.config.given;
    }

    /// Another file, if it is time for that.
    fn row_elsewhere(&mut self) {
        let operations = self.report.operations;
        let rowing = &mut self.rowing;
        let names = &self.model.now;
        if rowing.steps == 0 || rowing.file.is_some_and(|fid| !names.inodes.contains_key(&fid)) {
            rowing.file = None;
        }
        if rowing.file.is_some() || operations < rowing.next {
            return;
        }
        let files = names.inodes.iter().filter(|(_, inode)| inode.node == Node::File);
        let files: Vec<Fid> = files.map(|(fid, _)| *fid).collect();
        rowing.file = rowing.random.pick(&files).copied();
        rowing.at = vec![0; self.nodes.len()];
        rowing.steps = rowing.random.within(1, 2 * STEPS_PER_FILE);
        rowing.next = operations + rowing.steps + rowing.random.within(1, 2 * OPERATIONS_PER_PAUSE);
        self.report.count("file written in turns", 1);
    }

    /// What a program of this node with these open files does about it, if it does.
    pub(super) fn row(
        &mut self,
        (node, worker): (usize, usize),
        open: &[(Handle, u64, bool)],
    ) -> Option<Op> {
        if !self.has_rowers() {
            return None;
        }
        self.row_elsewhere();
        let file = self.rowing.file?;
        if worker > 0 {
            return self.meddle(file, open);
        }
        let random = &mut self.rowing.random;
        if random.one_in(TURNS_PER_OTHER) {
            return None;
        }
        let writes = |handle: &Handle| handle.fid == file && handle.how.write && !handle.how.append;
        let Some((handle, ..)) = open.iter().find(|(handle, ..)| writes(handle)) else {
            let sync = random.one_in(8);
            let how = OpenHow { read: true, write: true, sync, ..OpenHow::default() };
            return self.open_rows(file, how);
        };
        let handle = *handle;
        let all = self.rowing.at.len() as u64;
        if random.one_in(TURNS_PER_ELSE) {
            let (offset, len) = (random.below(all * RECORDS * SPACING), RECORD_BYTES);
            return Some(match random.below(4) {
                0 => Op::Close { handle },
                1 => Op::Read { handle, offset, len },
                2 => Op::Fstat { handle },
                _ => Op::Fsync { handle },
            });
        }
        let byte = 1 + random.below(255) as u8;
        let at = *self.rowing.at.get(node)?;
        let offset = (at * all + node as u64) * SPACING;
        self.model.data.entry(file).or_default().is_in_turns = true;
        Some(Op::Write { handle, offset, data: vec![byte; RECORD_BYTES as usize] })
    }

    /// Something that such a program is to do has begun. If it `writes`, the next record comes next.
    pub(super) fn rowed(&mut self, node: usize, writes: bool) {
        self.rowing.steps = self.rowing.steps.saturating_sub(1);
        if let Some(at) = self.rowing.at.get_mut(node).filter(|_| writes) {
            *at = (*at + 1) % RECORDS;
            self.ends_behind_parts();
        }
    }

    fn open_rows(&mut self, file: Fid, how: OpenHow) -> Option<Op> {
        let (random, names, osts) = (&mut self.rowing.random, &self.model.now, self.shape.osts);
        let at = Chooser { random, names, osts, given: false }.named(file)?;
        Some(Op::Open { at, create: None, how })
    }

    /// What one does with the file who writes no records of it, if anything.
    fn meddle(&mut self, file: Fid, open: &[(Handle, u64, bool)]) -> Option<Op> {
        let all = self.rowing.at.len() as u64;
        let random = &mut self.rowing.random;
        if !random.one_in(TURNS_PER_MEDDLING) {
            return None;
        }
        let (what, size) = (random.below(6), random.below(all * RECORDS * SPACING));
        let byte = 1 + random.below(255) as u8;
        let reads = OpenHow { read: true, ..OpenHow::default() };
        let adds = OpenHow { write: true, append: true, ..OpenHow::default() };
        let its = |append: bool| {
            let mut its = open.iter().filter(|(handle, ..)| handle.fid == file);
            its.find(|(handle, ..)| handle.how.append == append).copied()
        };
        let (names, osts) = (&self.model.now, self.shape.osts);
        let mut chooser = Chooser { random, names, osts, given: false };
        match what {
            0 => Some(Op::Stat { at: chooser.named(file)? }),
            1 => Some(Op::Truncate { at: chooser.named(file)?, size }),
            2 => match its(false) {
                Some((handle, ..)) => Some(Op::Read { handle, offset: size, len: 20_000 }),
                None => self.open_rows(file, reads),
            },
            3 => chooser.write_to(file, open),
            _ => match its(true) {
                Some((handle, offset, true)) => {
                    let data = vec![byte; RECORD_BYTES as usize];
                    Some(Op::Write { handle, offset, data })
                }
                Some(_) => None,
                None => self.open_rows(file, adds),
            },
        }
    }
}

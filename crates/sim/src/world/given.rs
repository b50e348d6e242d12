//! The world of a file system in one process (`sateen up`): all targets and the one client share it,
//! the network between them is memory, and the client's kernel is given files that it reads and writes
//! itself (decision 0007), without a word to anybody.
//!
//! What happens here happens to all of them: their process is killed, which takes nothing from the disk's
//! cache, or their machine loses its power. Nothing is told, lost or repeated on the way.

use sateen_types::Endpoint;

use super::{Shape, World};

/// From so many bytes on a file is given away.
const BYTES_MIN: [u64; 3] = [0, 50_000, 300_000];
/// How long all of it is down at most: 300 ms.
const DOWN_NS: u64 = 300_000_000;

impl Shape {
    /// Such a file system: one of a few OSTs.
    pub(super) fn of_one_process(seed: u64) -> Shape {
        Shape { mdts: 1, osts: 1 + (seed % 3) as u32, clients: 1 }
    }
}

impl World {
    /// What a client of this world gives to its kernel.
    pub(super) fn passthrough(&mut self) -> Option<u64> {
        if !self.config.given {
            return None;
        }
        self.random.pick(&BYTES_MIN).copied()
    }

    /// All of it crashes at once.
    pub(super) fn crash_all(&mut self) {
        self.takes_power = self.random.one_in(2);
        let kind = if self.takes_power { "machine loses its power" } else { "process is killed" };
        self.report.count(kind, 1);
        self.note(|| kind.to_owned());
        let down_ns = self.random.within(1_000_000, DOWN_NS);
        self.crash_client(0, DOWN_NS);
        let osts: Vec<Endpoint> = self.shape.osts().collect();
        let others = self.shape.mdts().chain([Endpoint::Mgs]);
        for target in osts.into_iter().chain(others) {
            self.crash_target(target, down_ns);
        }
        self.takes_power = true;
        self.model.data.values_mut().for_each(|data| data.times.forget());
    }
}

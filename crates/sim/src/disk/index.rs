//! The index: durable at checkpoints only, and a checkpoint that is cut off may leave any
//! part of itself behind.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sateen_osd::{Index, IndexError, Key, Memtable};

use crate::random::Random;

#[derive(Debug, Default)]
struct State {
    pairs: BTreeMap<Key, Vec<u8>>,
    upto: u64,
}

/// An index on a simulated disk.
#[derive(Debug, Default)]
pub struct SimIndex {
    state: Mutex<State>,
}

impl State {
    fn set(&mut self, key: Key, value: Option<&[u8]>) {
        match value {
            Some(value) => self.pairs.insert(key, value.to_vec()),
            None => self.pairs.remove(&key),
        };
    }
}

impl SimIndex {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A checkpoint that a crash cut off: any part of it is there, its end is not.
    pub fn tear(&self, table: &Memtable, random: &mut Random) {
        let mut state = self.state();
        let share = random.below(1001);
        for (key, value) in table.range(Bound::Unbounded) {
            if random.permille(share) {
                state.set(key, value);
            }
        }
    }
}

impl Index for SimIndex {
    fn get(&self, key: &Key) -> Result<Option<Vec<u8>>, IndexError> {
        Ok(self.state().pairs.get(key).cloned())
    }

    fn scan(
        &self,
        prefix: &Key,
        after: &Key,
        limit: usize,
    ) -> Result<Vec<(Key, Vec<u8>)>, IndexError> {
        let start = if after < prefix { Bound::Included(*prefix) } else { Bound::Excluded(*after) };
        let state = self.state();
        let range = state.pairs.range((start, Bound::Unbounded));
        let within = range.take_while(|(key, _)| key.starts_with(prefix)).take(limit);
        Ok(within.map(|(key, value)| (*key, value.clone())).collect())
    }

    fn checkpoint(&self, table: &Memtable, upto: u64) -> Result<(), IndexError> {
        let mut state = self.state();
        for (key, value) in table.range(Bound::Unbounded) {
            state.set(key, value);
        }
        state.upto = upto;
        Ok(())
    }

    fn checkpointed(&self) -> u64 {
        self.state().upto
    }
}

//! A checkpoint that there is no room for.
#![allow(clippy::unwrap_used, reason = "test code")]

use sateen_osd::memory::MemoryIndex;
use sateen_osd::{Batch, Checkpoint, Index, Key, Prefetched, Store, StoreLimits};

#[test]
fn a_checkpoint_that_was_given_up_can_be_made_later() {
    let (index, key) = (MemoryIndex::default(), Key::tag(b'k'));
    let mut store = Store::new(1, 0, StoreLimits::default());
    let mut batch = Batch::new();
    batch.put(&key, &7u32);
    store.commit(&batch);
    drop(store.begin_checkpoint().unwrap());
    store.checkpoint_given_up();
    let fetched = Prefetched::default();
    assert_eq!(store.get(&key, &fetched).unwrap(), Some(&7u32.to_le_bytes()[..]));
    let Checkpoint { table, upto } = store.begin_checkpoint().unwrap();
    index.checkpoint(&table, upto).unwrap();
    store.checkpoint_done();
    assert_eq!(index.get(&key).unwrap().unwrap(), 7u32.to_le_bytes());
}

//! Forgets tombstones that were made for writers who are all gone, oldest first.

use sateen_osd::Prefetched;
use sateen_target::Fault;

use super::unexpected;
use crate::keys;
use crate::op::{Op, Step, Work};
use crate::ost::Ost;

/// Tombstones forgotten in one transaction.
const PAGE: usize = 256;

pub(super) fn begin(ost: &mut Ost, op: &mut Op) -> Result<Step, Fault> {
    let Work::Sweep(position) = &mut op.work else { return Err(unexpected()) };
    ost.room()?;
    let oldest = ost.writers.oldest();
    let mut page = Vec::new();
    let more = ost.core.store.scan(&keys::TOMBSTONES, position, PAGE, &op.fetched, |key, _| {
        page.extend(keys::tombstone_parts(key));
    })?;
    op.fetched = Prefetched::default();
    let found = page.len();
    page.retain(|(after, _)| *after < oldest);
    let needed = page.len() < found;
    if !page.is_empty() {
        ost.batch.clear();
        for (after, object) in &page {
            ost.batch.remove(&keys::object(*object));
            ost.batch.remove(&keys::tombstone(*after, *object));
        }
        ost.tombstones = ost.tombstones.saturating_sub(page.len() as u64);
        ost.commit();
    }
    match more {
        // They are sorted by age: behind one that is needed there are only others.
        Some(key) if !needed => {
            *position = key;
            Ok(Step::Again)
        }
        _ => Ok(Step::End),
    }
}

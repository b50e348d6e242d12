//! Tests of what stays of directories, and for how long.

use sateen_types::Seq;
use sateen_wire::{LockId, LockMode};

use super::*;
use crate::held::{Granted, Held};

const NAME: usize = 8;
/// What a directory of ten names takes up.
const OF_TEN: u64 = DIR_BYTES + PAGE_BYTES + 10 * (ENTRY_BYTES + NAME as u64);

/// A directory, and the lock on it.
fn dir(oid: u32) -> Arc<Inode> {
    let fid = Fid::new(Seq(0x2_0000_0400), oid);
    let inode = Arc::new(Inode::new(fid, 0, Arc::default()));
    let held = Held::new(LockId(1), (LockMode::Pr, Ibits::META), Granted::new(0, 0));
    lock(&inode.state).locks.push(held);
    inode
}

fn place(number: u64) -> DirCookie {
    if number == 0 { DirCookie::START } else { DirCookie::new(number, 0) }
}

fn entries(numbers: impl Iterator<Item = u64>) -> Vec<DirEntry> {
    let entry = |number| DirEntry {
        cookie: place(number),
        fid: Fid::new(Seq(0x2_0000_0400), number as u32),
        kind: FileKind::Regular,
        name: Name::new(format!("{number:NAME$}").as_bytes()).unwrap(),
        attr: None,
    };
    numbers.map(entry).collect()
}

/// The names `after + 1` to `last` were read; nothing follows them if that is the `end`.
fn reads(cache: &DirCache, inode: &Arc<Inode>, (after, last): (u64, u64), end: bool) {
    reads_at(cache, inode, (after, last), end, 0);
}

fn reads_at(cache: &DirCache, inode: &Arc<Inode>, (after, last): (u64, u64), end: bool, now: u32) {
    let entries = entries(after + 1..=last);
    let answer = Answer { after: place(after), entries: &entries, end, parent: Fid::ROOT };
    cache.keep(inode, answer, (10, 10), now);
}

/// What is listed from a position on: the numbers of the first and the last, and whether it is the end.
fn lists(inode: &Inode, after: u64, count: usize) -> Option<(u64, u64, bool)> {
    let (found, end, parent) = lock(&inode.state).kept_listing(place(after), count)?;
    assert_eq!(parent, Fid::ROOT);
    let numbers = found.iter().map(|entry| u64::from(entry.fid.oid));
    let [first, last] = [found.first(), found.last()]
        .map(|entry| entry.map_or(0, |entry| u64::from(entry.fid.oid)));
    assert_eq!(found, entries(numbers));
    assert!(found.is_empty() || last + 1 == first + found.len() as u64, "{found:?}");
    Some((first, last, end))
}

#[test]
fn pages_answer_from_any_position_and_across_each_other() {
    let (cache, inode) = (DirCache::default(), dir(1));
    assert_eq!(lists(&inode, 0, 5), None);
    reads(&cache, &inode, (0, 10), false);
    assert_eq!(lists(&inode, 0, 5), Some((1, 5, false)));
    assert_eq!(lists(&inode, 7, 5), Some((8, 10, false)), "as far as is known");
    assert_eq!(lists(&inode, 10, 5), None);
    // There is a gap.
    reads(&cache, &inode, (20, 30), true);
    assert_eq!(lists(&inode, 0, 50), Some((1, 10, false)));
    assert_eq!(lists(&inode, 15, 50), None);
    assert_eq!(lists(&inode, 25, 50), Some((26, 30, true)));
    assert_eq!(lists(&inode, 30, 50), Some((0, 0, true)));
    assert_eq!(lists(&inode, 99, 50), Some((0, 0, true)));
    // What fills it is cut off where the next begins.
    let before = cache.stats().bytes;
    reads(&cache, &inode, (10, 27), false);
    assert_eq!(cache.stats().bytes - before, PAGE_BYTES + 10 * (ENTRY_BYTES + NAME as u64));
    assert_eq!(lists(&inode, 0, 50), Some((1, 30, true)));
    for (after, count) in [(0, 30), (3, 27), (19, 11), (20, 10)] {
        assert_eq!(lists(&inode, after, count), Some((after + 1, 30, true)));
        assert_eq!(lists(&inode, after, count - 1), Some((after + 1, 29, false)));
    }
    // Another who read the same adds nothing.
    let before = cache.stats().bytes;
    reads(&cache, &inode, (5, 30), true);
    assert_eq!(cache.stats().bytes, before);
    lock(&inode.state).drop_dir_pages();
    assert_eq!((lists(&inode, 0, 5), cache.stats().bytes), (None, 0));
}

#[test]
fn an_empty_directory_is_known_and_what_is_in_no_order_is_not() {
    let (cache, inode) = (DirCache::default(), dir(1));
    let keep = |after, entries: &[DirEntry], end| {
        let answer = Answer { after: place(after), entries, end, parent: Fid::ROOT };
        cache.keep(&inode, answer, (10, 10), 0);
    };
    keep(0, &[], false);
    keep(0, &entries([2, 1].into_iter()), true);
    keep(5, &entries([5, 6].into_iter()), true);
    assert_eq!((lists(&inode, 0, 5), lists(&inode, 5, 5), cache.stats().bytes), (None, None, 0));
    keep(0, &[], true);
    assert_eq!(lists(&inode, 0, 5), Some((0, 0, true)));
}

#[test]
fn pages_go_with_any_lock_on_the_directory_and_with_its_own_changes() {
    let known = || {
        let (cache, inode) = (DirCache::default(), dir(1));
        reads(&cache, &inode, (0, 3), true);
        assert!(lists(&inode, 0, 5).is_some());
        (cache, inode)
    };
    let gone = |cache: &DirCache, inode: &Arc<Inode>| {
        assert_eq!((lists(inode, 0, 5), cache.stats().bytes), (None, 0));
    };
    let (cache, inode) = known();
    lock(&inode.state).locks[0].cancelling = true;
    assert_eq!(lists(&inode, 0, 5), None, "also while it goes");
    lock(&inode.state).locks.clear();
    lock(&inode.state).lost_locks();
    gone(&cache, &inode);
    reads(&cache, &inode, (0, 3), true);
    gone(&cache, &inode);
    // A change begins, and ends.
    let (cache, inode) = known();
    lock(&inode.state).dir_pages.begin_change();
    gone(&cache, &inode);
    reads(&cache, &inode, (0, 3), true);
    gone(&cache, &inode);
    lock(&inode.state).dir_pages.end_change(10);
    reads(&cache, &inode, (0, 3), true);
    gone(&cache, &inode);
    // What is asked after that is as good as ever.
    let entries = entries(1..=2);
    let answer = Answer { after: place(0), entries: &entries, end: true, parent: Fid::ROOT };
    cache.keep(&inode, answer, (11, 12), 0);
    assert_eq!(lists(&inode, 0, 5), Some((1, 2, true)));
    // It is somewhere else by now.
    let answer = Answer { parent: Fid::new(Seq(5), 5), after: place(2), ..answer };
    cache.keep(&inode, Answer { entries: &[], ..answer }, (13, 13), 0);
    let listing = lock(&inode.state).kept_listing(place(2), 5);
    assert_eq!(listing, Some((Vec::new(), true, Fid::new(Seq(5), 5))));
    assert!(lock(&inode.state).kept_listing(place(0), 5).is_none());
}

#[test]
fn the_more_is_kept_the_more_is_asked_for() {
    let (cache, inode) = (DirCache::default(), dir(1));
    let asks = |count| cache.asks(&lock(&inode.state), count);
    assert_eq!(asks(100), 100);
    reads(&cache, &inode, (0, 300), false);
    assert_eq!((asks(100), asks(400)), (300, 400));
    reads(&cache, &inode, (300, 9000), false);
    assert_eq!((asks(100), asks(4096)), (ASKED_MAX, 4096));
    // More than it may have.
    let kept = DIR_BYTES + 9000 * (ENTRY_BYTES + NAME as u64) + 2 * PAGE_BYTES;
    cache.set_max(DIR_PART * (kept + 5000), 0).unwrap();
    assert_eq!(asks(10), 10);
}

#[test]
fn there_is_a_limit_to_each_and_to_all_and_the_least_used_goes() {
    let (cache, all) = (DirCache::default(), [1, 2, 3, 4, 5].map(dir));
    cache.set_max(4 * OF_TEN, 0).unwrap();
    let [first, second, third, fourth, fifth] = &all;
    reads(&cache, first, (0, 10), false);
    reads(&cache, first, (10, 20), false);
    assert_eq!(cache.stats().bytes, OF_TEN, "no more of one");
    assert_eq!(lists(first, 0, 20), Some((1, 10, false)));
    for inode in [second, third, fourth] {
        reads(&cache, inode, (0, 10), true);
    }
    let stats = || (cache.stats().bytes, cache.stats().reclaimed);
    assert_eq!(stats(), (4 * OF_TEN, 0));
    // The first was read again: it passes, which does not count.
    reads(&cache, fifth, (0, 10), true);
    assert_eq!(stats(), (4 * OF_TEN, 1));
    let there = |inode: &Arc<Inode>| lists(inode, 0, 20).is_some();
    assert_eq!([first, second, third, fourth, fifth].map(there), [true, false, true, true, true]);
    assert_eq!(cache.set_max(DIR_PAGES_MAX + 1, 0), Err(Errno::ERANGE));
    // Nothing stays, nor begins anew, whoever has read it.
    cache.set_max(0, 0).unwrap();
    assert_eq!(stats(), (0, 5));
    assert!(lock(&cache.all.listed).all.is_empty());
    reads(&cache, first, (0, 10), false);
    assert!(!there(first));
}

/// Whoever lists by pieces is answered from the pages that came for himself.
#[test]
fn who_lists_once_has_not_used_it_however_small_his_pieces_are() {
    let (cache, all) = (DirCache::default(), [1, 2, 3].map(dir));
    cache.set_max(2 * DIR_PART * OF_TEN, 7).unwrap();
    let [once, twice, empty] = &all;
    for inode in [once, twice] {
        reads(&cache, inode, (0, 10), true);
        for after in [3, 6, 9, 10] {
            assert!(lists(inode, after, 3).is_some());
        }
    }
    // After `..` of a directory without names, too.
    reads(&cache, empty, (0, 0), true);
    let found = lock(&empty.state).kept_listing(DirCookie::DOT_DOT, 9);
    assert!(found.is_some_and(|(names, end, _)| names.is_empty() && end));
    assert!(lists(twice, 0, 20).is_some());
    // One passes, and the two others go.
    cache.set_max(OF_TEN, 8).unwrap();
    let there = |inode: &Arc<Inode>| lock(&inode.state).dir_pages.kept.is_some();
    assert_eq!(all.each_ref().map(there), [false, true, false]);
    assert_eq!((cache.stats().bytes, cache.stats().reclaimed), (OF_TEN, 2));
    // Its age is that of when it was looked at.
    cache.drop_old(8 + IDLE_TICKS - 1);
    assert!(there(twice));
    cache.drop_old(8 + IDLE_TICKS);
    assert!(!there(twice));
    assert_eq!((cache.stats().bytes, cache.stats().reclaimed), (0, 2), "for nobody else");
}

#[test]
fn what_nobody_reads_goes_by_age_and_an_inode_that_is_gone_counts_no_more() {
    let (cache, one, other) = (DirCache::default(), dir(1), dir(2));
    reads_at(&cache, &one, (0, 10), true, 5);
    reads_at(&cache, &other, (0, 10), true, 5);
    cache.drop_old(5 + IDLE_TICKS - 1);
    assert!(lists(&other, 0, 5).is_some());
    cache.drop_old(5 + IDLE_TICKS);
    assert!(lists(&one, 0, 5).is_none() && lists(&other, 0, 5).is_some());
    drop(other);
    assert_eq!(cache.stats().bytes, 0);
    cache.drop_old(u32::MAX);
    assert!(lock(&cache.all.listed).all.is_empty());
}

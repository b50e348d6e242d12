//! Who is told of what was not written out, and what makes room for more.

use super::*;
use crate::loss::Loss;

/// Four bytes of a file.
pub(crate) fn some_kept() -> Box<Dirty> {
    let mut extents = Extents::new(RUN_BYTES_MIN);
    extents.put(0, b"kept");
    Box::new(Dirty {
        fid: Fid { seq: sateen_types::Seq(1), oid: 1, ver: 0 },
        id: 1,
        extents,
        in_flight: Vec::new(),
        layout: Arc::new(Layout::raid0(64 << 10, vec![0]).unwrap()),
        era: 1,
        granted: Granted::default(),
        overhead: Overhead::default(),
        since_ns: 0,
        is_running: false,
        all: false,
        client: Weak::new(),
        inode: Weak::new(),
    })
}

#[test]
fn an_error_is_told_once_to_each() {
    let mut late = LateErrors::default();
    let (mut first, mut other) = (late.heard(), late.heard());
    assert!(late.tell(&mut first).is_ok() && late.is_shown());
    late.add(Errno::ENOSPC);
    let (mut nobody, mut early) = (late.heard(), late.heard());
    assert_eq!(late.whisper(&mut nobody), Err(Errno::ENOSPC));
    assert_eq!(late.left(), Loss::New);
    assert_eq!(late.tell(&mut first), Err(Errno::ENOSPC));
    assert_eq!(late.left(), Loss::None);
    let mut later = late.heard();
    assert_eq!(late.tell(&mut early), Err(Errno::ENOSPC), "nobody had heard of it then");
    assert_eq!(late.tell(&mut first), Ok(()));
    assert_eq!(late.tell(&mut later), Ok(()), "it was opened after that");
    assert!(!late.is_shown());
    assert_eq!(late.show(), Err(Errno::ENOSPC));
    late.add(Errno::EIO);
    assert_eq!(late.tell(&mut other), Err(Errno::EIO), "one error tells of all");
    assert_eq!((late.show(), late.show()), (Err(Errno::EIO), Ok(())));
    assert_eq!(late.rename(), Ok(()), "it was heard");
    late.add(Errno::EIO);
    assert_eq!((late.rename(), late.rename()), (Err(Errno::EIO), Ok(())));
    assert_eq!((late.left(), late.tell(&mut first)), (Loss::New, Err(Errno::EIO)));
}

#[test]
fn grants_of_an_earlier_connection_are_not_used() {
    let mut granted = Granted::default();
    granted.add(0, 1, 100);
    granted.add(0, 1, 50);
    assert_eq!((granted.take(0, 1, 120), granted.take(1, 1, 1)), (120, 0));
    granted.add(0, 2, 7);
    assert_eq!((granted.take(0, 1, 9), granted.take(0, 2, 9), granted.take(0, 2, 9)), (0, 7, 0));
}

#[test]
fn what_is_lost_counts_no_more() {
    let (table, mut state) = (DirtyTable::default(), InodeState::default());
    let mut kept = some_kept();
    let more = kept.overhead.of_more(1);
    kept.overhead.add(0, 1);
    table.set(|table| table.come(0, 4, more));
    state.dirty = Some(kept);
    state.lose_dirty(&table).wake();
    let table = lock(&table.table);
    assert_eq!((table.osts[&0].in_all(), table.in_all), (0, 0));
}

#[test]
fn room_is_that_of_each_ost() {
    let mut table = Table { bytes_max: 10, in_all_max: 16, ..Table::default() };
    table.come(1, 3, 0);
    table.set_bytes_max(1, 4);
    assert_eq!(table.room(&[(0, 10), (1, 1)]), Room::Now);
    assert_eq!(table.room(&[(0, 10), (1, 2)]), Room::Later);
    assert_eq!(table.room(&[(0, 11)]), Room::Never);
    table.come(2, 9, 0);
    // Seven are left for those for which nothing was set, and the one of the other.
    assert_eq!(table.room(&[(0, 6), (2, 1), (1, 1)]), Room::Now);
    assert_eq!(table.room(&[(0, 7), (2, 1)]), Room::Later);
    assert_eq!(table.room(&[(0, 8), (2, 9)]), Room::Never);
    assert_eq!(table.room(&[(1, 5)]), Room::Never);
}

#[test]
fn who_keeps_nothing_waits_for_nobody_elses_room() {
    let mut table = Table { bytes_max: 10, in_all_max: 16, ..Table::default() };
    table.come(1, 10, 0);
    table.come(2, 6, 0);
    assert_eq!(table.room(&[(0, 1)]), Room::Never, "others have all of it");
    table.gone(2, 1, 0);
    assert_eq!([1, 2].map(|bytes| table.room(&[(0, bytes)])), [Room::Now, Room::Never]);
    table.come(0, 1, 0);
    assert_eq!(table.room(&[(0, 1)]), Room::Later, "its own goes");
    // One that has a bound of its own gives back nothing to the others.
    table.set_bytes_max(0, 10);
    table.come(3, 1, 0);
    table.gone(2, 1, 0);
    assert_eq!(table.room(&[(0, 1), (4, 2)]), Room::Never);
    assert_eq!(table.room(&[(0, 1), (3, 2)]), Room::Later);
}

/// Of a file that lies on a healthy OST and on one that is away the round has not ended.
#[test]
fn what_waits_for_others_makes_nobody_wait() {
    let (healthy, away) = (1, 2);
    let mut table = Table { bytes_max: 1000, in_all_max: 10_000, ..Table::default() };
    table.come(healthy, 0, 990);
    assert_eq!(table.room(&[(healthy, 100)]), Room::Never);
    table.come(healthy, 5, 0);
    assert_eq!(table.room(&[(healthy, 100)]), Room::Later, "these go");
    table.gone(healthy, 5, 0);
    table.bytes_max = 20_000;
    table.come(away, 9000, 0);
    assert_eq!(table.room(&[(healthy, 100)]), Room::Never);
    table.come(healthy, 5, 0);
    assert_eq!(table.room(&[(healthy, 100)]), Room::Later);
}

//! Who gives a lock back slowly, and says that he goes on: how long others wait for him.

#![allow(clippy::unwrap_used, reason = "this is a test")]

use std::collections::BTreeSet;

use sateen_ldlm::{CALLBACK_LIMIT_NS, CALLBACK_MAX_NS, LockTable, Need};
use sateen_types::{ClientId, Fid, Seq};
use sateen_wire::{Grant, Ibits, LockId, LockMode};

const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000_000;

fn fid() -> Fid {
    Fid::new(Seq(0x2_0000_0400), 1)
}

/// A has been asked at the beginning for what B wants.
fn called() -> (LockTable, Grant) {
    let mut table = LockTable::new();
    let grant = table.try_grant(A, fid(), LockMode::Pw, Ibits::DATA).unwrap();
    let need = Need::of(fid(), LockMode::Pr, Ibits::DATA);
    assert!(table.enqueue(0, B, &mut None, &need).is_none());
    (table, grant)
}

#[test]
fn who_goes_on_has_his_time_anew_and_who_stops_is_evicted() {
    let (mut table, a) = called();
    let his = (A, fid(), a.id);
    assert!(table.goes_on(19 * SECOND, his, MIB));
    assert_eq!(table.overdue(38 * SECOND), None);
    // The same once more, as it comes when a message comes twice, and less.
    assert!(!table.goes_on(38 * SECOND, his, MIB) && !table.goes_on(38 * SECOND, his, 1));
    assert_eq!(table.overdue(39 * SECOND), Some(A));
    assert!(table.goes_on(38 * SECOND, his, 2 * MIB));
    assert_eq!((table.overdue(57 * SECOND), table.overdue(58 * SECOND)), (None, Some(A)));
    table.cancel(A, fid(), a.id).unwrap();
    assert!(!table.goes_on(58 * SECOND, his, 3 * MIB), "it is gone");
}

#[test]
fn a_little_buys_little() {
    let (mut table, a) = called();
    // 20 KiB in a second are too slow, 40 are not.
    for (at, done) in (1..52_u64).map(|at| (at, 20 << 10)).chain((52..200).map(|at| (at, 40 << 10)))
    {
        table.goes_on(at * SECOND, (A, fid(), a.id), at * done);
        assert_eq!(table.overdue(at * SECOND), None, "{at}");
    }
    let (mut table, a) = called();
    let late = (1..200_u64).find(|at| {
        table.goes_on(at * SECOND, (A, fid(), a.id), at * (20 << 10));
        table.overdue(at * SECOND).is_some()
    });
    // 20 s, and 20/32 of all the time.
    assert_eq!(late, Some(54));
}

#[test]
fn nobody_keeps_others_for_ever() {
    let (mut table, a) = called();
    let late = (1_u64..).find(|at| {
        assert!(table.goes_on(at * SECOND, (A, fid(), a.id), at << 40));
        table.overdue(at * SECOND).is_some()
    });
    assert_eq!(late, Some(CALLBACK_MAX_NS / SECOND));
    // A limit that is longer yet is not cut.
    table.set_callback_limit(2 * CALLBACK_MAX_NS);
    assert_eq!(table.overdue(2 * CALLBACK_MAX_NS - 1), None);
    assert_eq!(table.overdue(2 * CALLBACK_MAX_NS), Some(A));
}

#[test]
fn only_the_holder_is_believed_and_of_what_is_called_back() {
    let (mut table, a) = called();
    let other = Fid::new(Seq(0x2_0000_0400), 2);
    let free = table.try_grant(A, other, LockMode::Pw, Ibits::DATA).unwrap();
    let wrong =
        [(B, fid(), a.id), (A, other, a.id), (A, fid(), LockId(a.id.0 + 999)), (A, other, free.id)];
    assert!(wrong.iter().all(|of| !table.goes_on(10 * SECOND, *of, MIB)));
    assert_eq!(table.overdue(CALLBACK_LIMIT_NS), Some(A));
}

#[test]
fn while_an_ost_is_away_all_of_the_time_stands() {
    let (mut table, a) = called();
    let his = (A, fid(), a.id);
    assert!(table.goes_on(10 * SECOND, his, MIB));
    let spared = BTreeSet::from([fid()]);
    table.give_time(2 * CALLBACK_MAX_NS, &spared, Ibits::DATA);
    assert_eq!(table.overdue(2 * CALLBACK_MAX_NS + 19 * SECOND), None);
    assert!(table.goes_on(2 * CALLBACK_MAX_NS + 19 * SECOND, his, 2 * MIB));
    assert_eq!(table.overdue(2 * CALLBACK_MAX_NS + 38 * SECOND), None);
}

#[test]
fn who_has_nothing_to_write_out_gets_no_time_for_it() {
    let mut table = LockTable::new();
    let grant = table.try_grant(A, fid(), LockMode::Pr, Ibits::META).unwrap();
    let need = Need::all_gone(fid(), Ibits::META);
    assert!(!table.require(0, B, &mut None, &[need]));
    assert!(!table.goes_on(SECOND, (A, fid(), grant.id), MIB));
    assert_eq!(table.overdue(CALLBACK_LIMIT_NS), Some(A));
}

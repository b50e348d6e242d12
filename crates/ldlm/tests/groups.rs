//! Group locks: who joins one, whom it keeps out, and that it is never asked back.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

use sateen_ldlm::{Bounds, CALLBACK_LIMIT_NS, Joined, LOCK_BYTES, LockTable, Look, Need, Ticket};
use sateen_types::{ClientId, Fid, Seq};
use sateen_wire::{Grant, Ibits, LockMode};

const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const C: ClientId = ClientId(3);
const FILE: Fid = Fid::new(Seq(0x2_0000_0400), 1);
const DATA: Ibits = Ibits::DATA;

fn need(mode: LockMode) -> Need {
    Need::of(FILE, mode, DATA)
}

fn join(table: &mut LockTable, client: ClientId, gid: u64) -> Joined {
    table.join_group(0, client, &mut None, (FILE, gid))
}

fn joined(table: &mut LockTable, client: ClientId, gid: u64) -> Grant {
    match join(table, client, gid) {
        Joined::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

fn called(table: &mut LockTable) -> usize {
    table.take_callbacks().count()
}

#[test]
fn the_first_has_others_give_back_and_the_next_come_past_all_who_wait() {
    let mut table = LockTable::new();
    let pw = table.enqueue(0, B, &mut None, &need(LockMode::Pw)).unwrap();
    let mut first = None;
    assert_eq!(table.join_group(0, A, &mut first, (FILE, 7)), Joined::Wait);
    assert_eq!(called(&mut table), 1);
    // Whoever comes behind the first waits behind it.
    assert!(table.try_grant(C, FILE, LockMode::Pr, DATA).is_none());
    table.cancel(B, FILE, pw.id);
    assert_eq!(table.take_woken(), first);
    let Joined::Granted(a) = table.join_group(0, A, &mut first, (FILE, 7)) else { panic!() };
    table.finish(first.unwrap());
    assert_eq!((a.mode, table.group_of(FILE)), (LockMode::Group, Some(7)));
    // One who knows nothing of groups waits for them here.
    let mut old: Option<Ticket> = None;
    assert!(table.enqueue(0, C, &mut old, &need(LockMode::Pw)).is_none());
    let b = joined(&mut table, B, 7);
    assert_eq!(join(&mut table, B, 8), Joined::Taken);
    assert_eq!(joined(&mut table, B, 7).id, b.id, "it has it already");
    assert_eq!(called(&mut table), 0, "nobody asks for it");
    for mode in [LockMode::Pr, LockMode::Pw, LockMode::Cr, LockMode::Cw] {
        assert!(table.is_grouped(&need(mode)), "{mode:?}");
        assert!(table.try_grant(A, FILE, mode, DATA).is_none() || mode.is_shared(), "{mode:?}");
    }
    assert!(!table.is_grouped(&Need::of(FILE, LockMode::Pr, Ibits::META)));
    table.cancel(A, FILE, a.id);
    assert_eq!((table.take_woken(), table.group_of(FILE)), (old, Some(7)));
    assert!(table.enqueue(0, C, &mut old, &need(LockMode::Pw)).is_none(), "B has it yet");
    table.cancel(B, FILE, b.id);
    assert_eq!((table.take_woken(), table.group_of(FILE)), (old, None));
    assert!(table.enqueue(0, C, &mut old, &need(LockMode::Pw)).is_some());
}

#[test]
fn it_is_never_asked_back_whoever_wants_the_data_and_however_many_locks_there_are() {
    let mut table = LockTable::new();
    table.set_bounds(Bounds::of_bytes(40 * LOCK_BYTES, LOCK_BYTES));
    let a = joined(&mut table, A, 7);
    assert!(!table.require(0, B, &mut None, &[Need::all_gone(FILE, DATA)]));
    table.call_back_shared(0, FILE);
    for oid in 2..9 {
        let other = Fid::new(FILE.seq, oid);
        assert!(table.try_grant(A, other, LockMode::Pr, Ibits::META).is_some());
    }
    table.ask_back_surplus(0);
    assert!(table.take_callbacks().all(|called| called.id != a.id));
    // Nor is it waited for to see how long the file is.
    let mut ticket = None;
    assert_eq!(table.look(0, C, &mut ticket, (&need(LockMode::Pr), 1)), Look::Free);
    assert!(table.take_questions().is_empty() && ticket.is_none());
    assert_ne!(table.overdue(2 * CALLBACK_LIMIT_NS), Some(B));
}

#[test]
fn members_are_in_no_members_way_and_whoever_opens_in_none() {
    let mut table = LockTable::new();
    joined(&mut table, A, 7);
    joined(&mut table, B, 7);
    let gone = Need::all_gone(FILE, DATA);
    assert!(table.require(0, A, &mut None, &[gone]), "a member cuts it");
    assert!(!table.is_outside(A, &gone) && table.is_outside(C, &gone));
    assert!(!table.require(0, C, &mut None, &[gone]));
    assert!(table.require_beside_groups(0, C, &mut None, &gone));
    // While it is cut nobody begins.
    let hold = table.hold(&gone).unwrap();
    assert!(!table.require_beside_groups(0, C, &mut None, &gone));
    let mut ticket = None;
    assert_eq!(table.join_group(0, C, &mut ticket, (FILE, 7)), Joined::Wait);
    table.release(FILE, hold);
    assert!(table.take_woken().is_some());
    assert!(matches!(table.join_group(0, C, &mut ticket, (FILE, 7)), Joined::Granted(_)));
}

#[test]
fn that_of_a_lost_client_stays_until_it_can_do_nothing_any_more() {
    let mut table = LockTable::new();
    joined(&mut table, A, 7);
    let mut lost = Vec::new();
    table.drop_client(A, |fid| lost.push(fid));
    assert_eq!((lost, table.group_of(FILE)), (vec![FILE], Some(7)));
    assert!(!table.is_member(A, FILE));
    let b = joined(&mut table, B, 7);
    assert_eq!(join(&mut table, C, 8), Joined::Taken);
    table.cancel(B, FILE, b.id);
    assert_eq!(join(&mut table, C, 8), Joined::Taken, "A may be writing yet");
    table.release_client(A);
    joined(&mut table, C, 8);
}

#[test]
fn who_tells_of_it_after_a_restart_keeps_it_with_its_group() {
    let mut before = LockTable::of_boot(1);
    let [a, b] = [joined(&mut before, A, 7), joined(&mut before, B, 7)];
    let mut table = LockTable::of_boot(2);
    assert!(table.reclaim_group(A, (FILE, 7), a.id));
    assert!(table.reclaim_group(A, (FILE, 7), a.id), "it is told once more");
    assert!(!table.reclaim_group(B, (FILE, 8), b.id) && !table.reclaim_group(B, (FILE, 0), b.id));
    assert!(table.reclaim_group(B, (FILE, 7), b.id));
    assert!(!table.reclaim(C, &need(LockMode::Pw), b.id));
    table.cancel(A, FILE, a.id);
    table.cancel(B, FILE, b.id);
    assert!(table.is_empty() && table.grouped() == 0);
}

#[test]
fn where_there_are_too_many_locks_nobody_waits_for_another() {
    let mut table = LockTable::new();
    table.set_bounds(Bounds::of_bytes(4 * LOCK_BYTES, LOCK_BYTES));
    let a = joined(&mut table, A, 7);
    let full = (2..40).find(|oid| {
        let other = Need::of(Fid::new(FILE.seq, *oid), LockMode::Pr, DATA);
        table.enqueue(0, C, &mut None, &other).is_none()
    });
    let mut ticket = None;
    let other = Fid::new(FILE.seq, full.unwrap());
    assert_eq!(table.join_group(0, B, &mut ticket, (other, 7)), Joined::Full, "the first of it");
    assert_eq!(table.join_group(0, B, &mut ticket, (FILE, 7)), Joined::Full, "one more");
    assert!(ticket.is_none());
    assert_eq!(joined(&mut table, A, 7).id, a.id, "it has it already");
}

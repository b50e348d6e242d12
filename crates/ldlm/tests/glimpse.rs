//! Looks at what somebody writes: who is asked, whom an answer is for, and what becomes of those who
//! wait when the lock goes.

#![allow(clippy::panic, clippy::unwrap_used, reason = "this is a test")]

use sateen_ldlm::{CALLBACK_LIMIT_NS, CALLBACK_REPEAT_NS, LockTable, Look, Need, Question, Ticket};
use sateen_types::{ClientId, Fid, Seq, Timespec};
use sateen_wire::{Grant, Ibits, LockMode, SizeReport};

const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const C: ClientId = ClientId(3);
const VERSION: u64 = 7;

fn fid() -> Fid {
    Fid::new(Seq(0x2_0000_0400), 1)
}

fn reads() -> Need {
    Need::of(fid(), LockMode::Pr, Ibits::DATA)
}

fn size(size: u64) -> SizeReport {
    SizeReport { size, blocks: 8, mtime: Some(Timespec { sec: 9, nsec: 0 }), atime: None }
}

/// A table in which A writes.
fn written() -> (LockTable, Grant) {
    let mut table = LockTable::of_boot(5);
    let grant = table.try_grant(A, fid(), LockMode::Pw, Ibits::DATA).unwrap();
    (table, grant)
}

fn look(table: &mut LockTable, client: ClientId, ticket: &mut Option<Ticket>) -> Look {
    table.look(0, client, ticket, (&reads(), VERSION))
}

fn waits(table: &mut LockTable, client: ClientId) -> Option<Ticket> {
    let mut ticket = None;
    assert_eq!(look(table, client, &mut ticket), Look::Wait);
    ticket
}

fn asked(table: &mut LockTable) -> Question {
    let [question] = table.take_questions()[..] else { panic!("one question") };
    question
}

fn answer(table: &mut LockTable, question: &Question, told: Option<SizeReport>) {
    table.answered((question.client, question.fid, question.number), told, VERSION);
}

#[test]
fn the_holder_is_asked_and_keeps_his_lock() {
    let (mut table, grant) = written();
    assert_eq!(look(&mut table, A, &mut None), Look::Free, "it is his own");
    let mut ticket = waits(&mut table, B);
    let question = asked(&mut table);
    assert_eq!((question.client, question.fid, question.id), (A, fid(), grant.id));
    assert!(table.take_callbacks().next().is_none() && table.has_called());
    // What is not the answer to this is none.
    table.answered((B, fid(), question.number), Some(size(1)), VERSION);
    table.answered((A, fid(), question.number + 1), Some(size(1)), VERSION);
    assert_eq!(table.take_woken(), None);
    answer(&mut table, &question, Some(size(100)));
    assert_eq!(table.take_woken(), ticket);
    assert_eq!(look(&mut table, B, &mut ticket), Look::Told(size(100)));
    // He may need to read the index first, and look once more.
    assert_eq!(look(&mut table, B, &mut ticket), Look::Told(size(100)));
    table.finish(ticket.unwrap());
    assert!(table.covers(A, &reads().in_mode(LockMode::Pw)));
    assert!(!table.has_called() && table.glimpses() == (1, 1));
}

#[test]
fn an_answer_is_for_those_who_came_before_it_was_asked_for() {
    let (mut table, _) = written();
    let (mut b, mut c) = (waits(&mut table, B), waits(&mut table, C));
    let first = asked(&mut table);
    // It may have been answered by now.
    let mut late = [waits(&mut table, B), waits(&mut table, C)];
    assert!(table.take_questions().is_empty());
    answer(&mut table, &first, Some(size(100)));
    let woken: Vec<_> = std::iter::from_fn(|| table.take_woken()).collect();
    assert_eq!(woken, [b, c, late[0], late[1]].map(Option::unwrap));
    assert_eq!(look(&mut table, B, &mut b), Look::Told(size(100)));
    assert_eq!(look(&mut table, C, &mut c), Look::Told(size(100)));
    for ticket in &mut late {
        assert_eq!(look(&mut table, B, ticket), Look::Wait);
    }
    // They share the next question.
    let second = asked(&mut table);
    assert_ne!(second.number, first.number);
    answer(&mut table, &first, Some(size(100)));
    assert_eq!(table.take_woken(), None, "a duplicate");
    answer(&mut table, &second, Some(size(130)));
    for ticket in &mut late {
        assert_eq!(table.take_woken(), *ticket);
        assert_eq!(look(&mut table, B, ticket), Look::Told(size(130)));
    }
    assert_eq!(table.glimpses(), (2, 2));
}

#[test]
fn what_was_told_is_not_mixed_with_a_younger_inode() {
    let (mut table, _) = written();
    let mut ticket = waits(&mut table, B);
    let question = asked(&mut table);
    answer(&mut table, &question, Some(size(100)));
    assert_eq!(table.take_woken(), ticket);
    assert_eq!(table.look(0, B, &mut ticket, (&reads(), VERSION + 1)), Look::Wait);
    let again = asked(&mut table);
    table.answered((A, fid(), again.number), Some(size(130)), VERSION + 1);
    assert_eq!(table.take_woken(), ticket);
    assert_eq!(table.look(0, B, &mut ticket, (&reads(), VERSION + 1)), Look::Told(size(130)));
}

#[test]
fn a_lock_that_is_given_back_has_brought_what_was_asked_for() {
    let (mut table, grant) = written();
    let (mut b, mut late) = (waits(&mut table, B), None);
    asked(&mut table);
    assert_eq!(look(&mut table, C, &mut late), Look::Wait);
    table.cancel(A, fid(), grant.id).unwrap();
    assert_eq!((table.take_woken(), table.take_woken()), (b, late));
    // Nobody has it, or another who has told nothing yet.
    assert_eq!(look(&mut table, B, &mut b), Look::Free);
    table.try_grant(A, fid(), LockMode::Pw, Ibits::DATA).unwrap();
    assert_eq!(look(&mut table, C, &mut late), Look::Passed);
    assert!(table.take_questions().is_empty() && !table.has_called());
}

#[test]
fn who_cannot_say_or_is_lost_has_the_lock_called_back() {
    let (mut table, grant) = written();
    let mut ticket = waits(&mut table, B);
    let question = asked(&mut table);
    answer(&mut table, &question, None);
    assert_eq!(table.take_woken(), ticket);
    assert_eq!(look(&mut table, B, &mut ticket), Look::Wait);
    assert_eq!(table.take_callbacks().map(|called| called.id).collect::<Vec<_>>(), [grant.id]);
    table.cancel(A, fid(), grant.id).unwrap();
    assert_eq!(table.take_woken(), ticket);
    assert_eq!(look(&mut table, B, &mut ticket), Look::Free);
    table.finish(ticket.unwrap());

    let (mut table, _) = written();
    let mut ticket = waits(&mut table, B);
    asked(&mut table);
    assert!(table.drop_client(A, |_| ()).is_empty());
    assert_eq!(table.take_woken(), ticket);
    // It may be writing until all OSTs refuse it.
    assert_eq!(look(&mut table, B, &mut ticket), Look::Wait);
    assert!(table.take_questions().is_empty() && table.take_callbacks().next().is_none());
    table.release_client(A);
    assert_eq!(table.take_woken(), ticket);
    assert_eq!(look(&mut table, B, &mut ticket), Look::Free);
}

#[test]
fn a_question_is_put_again_and_has_its_time() {
    let (mut table, _) = written();
    let ticket = waits(&mut table, B);
    let question = asked(&mut table);
    assert_eq!(table.overdue(CALLBACK_REPEAT_NS - 1), None);
    assert!(table.take_questions().is_empty());
    assert_eq!(table.overdue(CALLBACK_REPEAT_NS), None);
    assert_eq!(table.take_questions(), [question]);
    assert_eq!(table.overdue(CALLBACK_LIMIT_NS), Some(A));
    // With nobody who waits for it nobody is late.
    table.finish(ticket.unwrap());
    assert_eq!(table.overdue(CALLBACK_LIMIT_NS), None);
    assert!(!table.has_called());
}

#[test]
fn one_that_is_being_called_back_is_asked_and_shared_ones_are_called_back() {
    let (mut table, _) = written();
    let mut writer = None;
    let writes = reads().in_mode(LockMode::Pw);
    assert!(table.enqueue(0, C, &mut writer, &writes).is_none());
    assert_eq!(table.take_callbacks().count(), 1);
    let mut ticket = waits(&mut table, B);
    let question = asked(&mut table);
    answer(&mut table, &question, Some(size(100)));
    assert_eq!(look(&mut table, B, &mut ticket), Look::Told(size(100)));
    // Who looks keeps nobody from writing.
    let mut shared = LockTable::new();
    shared.try_grant(A, fid(), LockMode::Cw, Ibits::DATA).unwrap();
    waits(&mut shared, B);
    assert!(shared.take_questions().is_empty());
    assert_eq!(shared.take_callbacks().count(), 1);
}

#[test]
fn who_was_woken_for_something_else_waits_on() {
    let (mut table, grant) = written();
    // It has waited for a shared lock first, and reserved what it needs.
    table.cancel(A, fid(), grant.id).unwrap();
    let shared = table.try_grant(A, fid(), LockMode::Cw, Ibits::DATA).unwrap();
    let mut ticket = waits(&mut table, B);
    let mut writer = None;
    let writes = reads().in_mode(LockMode::Pw);
    table.finish(ticket.unwrap());
    ticket = None;
    assert!(table.enqueue(0, C, &mut writer, &writes).is_none());
    assert_eq!(look(&mut table, B, &mut ticket), Look::Wait);
    table.cancel(A, fid(), shared.id).unwrap();
    assert!(table.enqueue(0, C, &mut writer, &writes).is_some());
    table.finish(writer.unwrap());
    let woken: Vec<_> = std::iter::from_fn(|| table.take_woken()).collect();
    assert!(woken.contains(&ticket.unwrap()));
    assert_eq!(look(&mut table, B, &mut ticket), Look::Wait);
    let question = asked(&mut table);
    // Another lock comes and goes meanwhile.
    let meta = table.try_grant(A, fid(), LockMode::Pr, Ibits::META).unwrap();
    table.cancel(A, fid(), meta.id).unwrap();
    while let Some(woken) = table.take_woken() {
        assert_eq!(Some(woken), ticket);
        assert_eq!(look(&mut table, B, &mut ticket), Look::Wait);
    }
    answer(&mut table, &question, Some(size(100)));
    assert_eq!(table.take_woken(), ticket);
    assert_eq!(look(&mut table, B, &mut ticket), Look::Told(size(100)));
}

/// A name may stand for another file when whoever came by it looks again.
#[test]
fn what_one_file_was_told_of_is_not_taken_for_anothers() {
    let other = Fid::new(Seq(0x2_0000_0400), 2);
    let reads_other = Need::of(other, LockMode::Pr, Ibits::DATA);
    // Both were changed at once, so that their versions are the same.
    let (mut table, _) = written();
    let mut ticket = waits(&mut table, B);
    let question = asked(&mut table);
    answer(&mut table, &question, Some(size(100)));
    assert_eq!(table.take_woken(), ticket);
    assert_eq!(table.look(0, B, &mut ticket, (&reads_other, VERSION)), Look::Free);
    // Nor does that its writer has given his lock back say anything of the other's writer.
    let (mut table, grant) = written();
    table.try_grant(C, other, LockMode::Pw, Ibits::DATA).unwrap();
    let mut ticket = waits(&mut table, B);
    asked(&mut table);
    table.cancel(A, fid(), grant.id);
    assert_eq!(table.take_woken(), ticket);
    assert_eq!(table.look(0, B, &mut ticket, (&reads_other, VERSION)), Look::Wait);
    assert_eq!(asked(&mut table).client, C, "he is asked");
}

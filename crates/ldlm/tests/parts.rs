//! Parts of a file's data: what stands beside what, what goes for whom, and what waking costs.

#![allow(clippy::indexing_slicing, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

use sateen_ldlm::{Joined, LockTable, Look, Need, Ticket};
use sateen_types::{ClientId, Comb, Fid, Seq};
use sateen_wire::{Grant, Ibits, LockMode};

const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const C: ClientId = ClientId(3);
const FILE: Fid = Fid::new(Seq(0x2_0000_0400), 1);
const DATA: Ibits = Ibits::DATA;

fn need(mode: LockMode) -> Need {
    Need::of(FILE, mode, DATA)
}

/// The records of writer `number` of ten.
fn comb(number: u64) -> Comb {
    Comb::new(number * 10, 10, 100).unwrap()
}

fn ask(table: &mut LockTable, client: ClientId, comb: Comb) -> Result<Grant, Ticket> {
    let mut ticket = None;
    table.enqueue_part(0, client, &mut ticket, (FILE, comb)).ok_or_else(|| ticket.unwrap())
}

fn part(table: &mut LockTable, client: ClientId, number: u64) -> Grant {
    let grant = ask(table, client, comb(number)).unwrap();
    assert_eq!((grant.mode, grant.bits), (LockMode::Part, DATA));
    grant
}

/// Waits as an operation does that wants this lock.
fn wait(table: &mut LockTable, client: ClientId, mode: LockMode) -> Ticket {
    let mut ticket = None;
    assert!(table.enqueue(0, client, &mut ticket, &need(mode)).is_none(), "{mode:?}");
    ticket.unwrap()
}

fn called(table: &mut LockTable) -> Vec<ClientId> {
    let mut called: Vec<ClientId> = table.take_callbacks().map(|back| back.client).collect();
    called.sort_unstable();
    called
}

#[test]
fn combs_that_do_not_meet_are_had_at_once_and_who_meets_one_waits_for_that_alone() {
    let mut table = LockTable::new();
    let a = part(&mut table, A, 0);
    let b = part(&mut table, B, 1);
    assert_eq!(table.parts_of(FILE), 2);
    assert!(called(&mut table).is_empty());
    let own = part(&mut table, A, 0);
    assert_eq!(own.id, a.id, "it has it already");
    // Of one client they do not conflict, wherever they lie.
    let wide = ask(&mut table, A, Comb::new(0, 7, 50).unwrap()).unwrap();
    assert_ne!(wide.id, a.id);
    table.cancel(A, FILE, wide.id);
    let ticket = ask(&mut table, C, Comb::new(5, 10, 200).unwrap()).unwrap_err();
    assert_eq!(called(&mut table), [A, B]);
    table.cancel(A, FILE, a.id);
    assert_eq!(table.take_woken(), None);
    table.cancel(B, FILE, b.id);
    assert_eq!(table.take_woken(), Some(ticket));
    let waited = (FILE, Comb::new(5, 10, 200).unwrap());
    assert!(table.enqueue_part(0, C, &mut Some(ticket), waited).is_some());
    table.finish(ticket);
    assert_eq!((table.parts_of(FILE), table.parts()), (1, 1));
}

#[test]
fn nothing_else_on_the_data_stands_beside_a_part_also_of_the_same_client() {
    for mode in [LockMode::Cr, LockMode::Cw, LockMode::Pr, LockMode::Pw, LockMode::Ex] {
        for whose in [A, B] {
            let mut table = LockTable::new();
            let a = part(&mut table, A, 0);
            let c = part(&mut table, C, 3);
            assert!(table.try_grant(whose, FILE, mode, DATA).is_none(), "{mode:?}");
            assert!(table.breaks_parts(whose, &need(mode)));
            let ticket = wait(&mut table, whose, mode);
            assert_eq!(called(&mut table), [A, C], "{mode:?} of {whose:?}");
            // It bars those that come later, and those who have one and ask for another.
            for client in [A, B, C] {
                let later = ask(&mut table, client, comb(7)).unwrap_err();
                table.finish(later);
            }
            table.cancel(A, FILE, a.id);
            assert_eq!(table.take_woken(), None);
            table.cancel(C, FILE, c.id);
            assert_eq!(table.take_woken(), Some(ticket));
            let grant = table.enqueue(0, whose, &mut Some(ticket), &need(mode)).unwrap();
            assert_eq!(grant.mode, mode, "never a part");
            assert!(!table.breaks_parts(whose, &need(mode)));
            table.finish(ticket);
            // And the other way round: it goes for a part, but for what may do all of that anyway.
            let back = ask(&mut table, whose, comb(2));
            match mode {
                LockMode::Pw | LockMode::Ex => assert_eq!(back.unwrap().id, grant.id),
                _ => assert!(back.is_err() && called(&mut table) == [whose], "{mode:?}"),
            }
        }
    }
}

#[test]
fn other_bits_and_other_files_are_not_concerned() {
    let mut table = LockTable::new();
    part(&mut table, A, 0);
    let other = Fid::new(FILE.seq, 2);
    for client in [A, B] {
        assert!(table.try_grant(client, FILE, LockMode::Pr, Ibits::META).is_some());
        assert!(table.try_grant(client, other, LockMode::Cw, DATA).is_some());
    }
    assert!(!table.breaks_parts(B, &Need::all_gone(FILE, Ibits::META)));
    assert!(table.require(0, B, &mut None, &[Need::of(FILE, LockMode::Ex, Ibits::OPEN)]));
    assert!(called(&mut table).is_empty());
}

#[test]
fn it_counts_as_a_writer_and_only_as_that() {
    let mut table = LockTable::new();
    part(&mut table, A, 0);
    assert!(table.has_other_writer(B, FILE) && !table.has_other_writer(A, FILE));
    assert!(table.covers(A, &need(LockMode::Cw)) && table.covers(A, &need(LockMode::Cr)));
    assert!(!table.covers(A, &need(LockMode::Pw)) && !table.covers(A, &need(LockMode::Pr)));
    // Who looks has no holder to ask: all go.
    let (mut ticket, reads) = (None, need(LockMode::Pr));
    assert_eq!(table.look(0, B, &mut ticket, (&reads, 1)), Look::Wait);
    assert!(table.take_questions().is_empty());
    assert_eq!(called(&mut table), [A]);
    // What is shared goes by the clock, parts do not.
    let mut table = LockTable::new();
    part(&mut table, A, 0);
    table.call_back_shared(0, FILE);
    assert!(called(&mut table).is_empty());
}

#[test]
fn a_part_goes_for_a_group_and_never_the_other_way_round() {
    let mut table = LockTable::new();
    let a = part(&mut table, A, 0);
    let mut ticket = None;
    assert_eq!(table.join_group(0, A, &mut ticket, (FILE, 7)), Joined::Wait, "its own, too");
    assert_eq!(called(&mut table), [A]);
    table.cancel(A, FILE, a.id);
    assert_eq!(table.take_woken(), ticket);
    let Joined::Granted(_) = table.join_group(0, A, &mut ticket, (FILE, 7)) else { panic!() };
    table.finish(ticket.unwrap());
    assert!(table.is_grouped(&Need::part(FILE, comb(0))));
    for client in [A, B] {
        let ticket = ask(&mut table, client, comb(0)).unwrap_err();
        assert!(called(&mut table).is_empty());
        table.finish(ticket);
    }
}

#[test]
fn a_lost_client_keeps_its_records_to_itself_and_nothing_else() {
    let mut table = LockTable::new();
    part(&mut table, A, 0);
    part(&mut table, B, 1);
    let mut lost = Vec::new();
    table.drop_client(A, |fid| lost.push(fid));
    assert_eq!(lost, [FILE]);
    part(&mut table, B, 2);
    let same = ask(&mut table, B, comb(0)).unwrap_err();
    let whole = wait(&mut table, C, LockMode::Pr);
    assert!(called(&mut table).is_empty(), "who comes behind another waits for him to call back");
    assert_eq!(table.take_woken(), None);
    table.release_client(A);
    assert_eq!(table.take_woken(), Some(same));
    assert!(table.enqueue_part(0, B, &mut Some(same), (FILE, comb(0))).is_some());
    table.finish(same);
    assert_eq!(table.take_woken(), Some(whole), "to call them back");
    assert!(table.enqueue(0, C, &mut Some(whole), &need(LockMode::Pr)).is_none());
    assert_eq!(called(&mut table), [B, B, B]);
}

#[test]
fn a_slot_that_is_used_again_inherits_no_comb() {
    let mut table = LockTable::new();
    for _ in 0..3 {
        let a = part(&mut table, A, 0);
        table.cancel(A, FILE, a.id);
        let b = part(&mut table, B, 1);
        let c = part(&mut table, C, 0);
        assert_eq!(table.combs(FILE).collect::<Vec<_>>(), [(C, comb(0)), (B, comb(1))]);
        table.cancel(B, FILE, b.id);
        table.cancel(C, FILE, c.id);
        let whole = table.enqueue(0, A, &mut None, &need(LockMode::Cw)).unwrap();
        assert_eq!((table.combs(FILE).count(), table.parts_of(FILE)), (0, 0));
        table.cancel(A, FILE, whole.id);
    }
    part(&mut table, A, 0);
    table.forget(FILE);
    assert_eq!((table.parts(), table.parts_of(FILE)), (0, 0));
}

#[test]
fn a_part_of_the_run_before_is_kept_with_its_comb() {
    let mut table = LockTable::of_boot(1);
    let (a, b) = (part(&mut table, A, 0), part(&mut table, B, 1));
    let mut next = LockTable::of_boot(2);
    assert!(next.reclaim_part(A, (FILE, comb(0)), a.id));
    assert!(next.reclaim_part(A, (FILE, comb(0)), a.id), "told twice");
    assert!(!next.reclaim_part(A, (FILE, comb(1)), a.id), "another comb");
    assert!(!next.reclaim_part(B, (FILE, comb(0)), b.id), "somebody else's records");
    assert!(
        !next.reclaim(B, &need(LockMode::Cw), b.id)
            && !next.reclaim(B, &need(LockMode::Part), b.id)
    );
    assert!(next.reclaim_part(B, (FILE, comb(1)), b.id));
    assert_eq!(next.parts_of(FILE), 2);
    // Its cancel is one of the same lock, and wakes who meets it.
    let ticket = ask(&mut next, C, comb(1)).unwrap_err();
    assert!(next.cancel(B, FILE, b.id).is_some());
    assert_eq!(next.take_woken(), Some(ticket));
}

/// N writers of a file, all called back by one who reads it whole, and all asking anew behind him.
#[test]
fn waking_does_not_look_at_everybody_for_everybody() {
    let writers = 512;
    let comb = |number: u64| Comb::new(number * 10, 10, writers * 10).unwrap();
    let client = |number: u64| ClientId(10 + number);
    let mut table = LockTable::new();
    let mut had = Vec::new();
    for number in 0..writers {
        had.push(ask(&mut table, client(number), comb(number)).unwrap());
    }
    assert_eq!(table.looks(), 0);
    let reader = wait(&mut table, A, LockMode::Pr);
    let mut waiting = Vec::new();
    for (number, grant) in (0..).zip(&had) {
        waiting.push(ask(&mut table, client(number), comb(number)).unwrap_err());
        table.cancel(client(number), FILE, grant.id);
    }
    // The reader alone, for each.
    assert_eq!((table.take_woken(), table.looks()), (Some(reader), writers));
    let read = table.enqueue(0, A, &mut Some(reader), &need(LockMode::Pr)).unwrap();
    table.finish(reader);
    let woken = |table: &mut LockTable| -> Vec<Ticket> {
        std::iter::from_fn(|| table.take_woken()).collect()
    };
    // All of them, to call the reader back; and once more when he has given it back.
    assert_eq!(woken(&mut table), waiting);
    for (number, ticket) in (0..).zip(&waiting) {
        let asked = (FILE, comb(number));
        assert!(table.enqueue_part(0, client(number), &mut Some(*ticket), asked).is_none());
    }
    table.cancel(A, FILE, read.id);
    assert_eq!(woken(&mut table), waiting);
    for (number, ticket) in (0..).zip(&waiting) {
        let asked = (FILE, comb(number));
        assert!(table.enqueue_part(0, client(number), &mut Some(*ticket), asked).is_some());
        table.finish(*ticket);
    }
    assert!(woken(&mut table).is_empty());
    assert!(table.looks() <= 4 * writers, "{}", table.looks());
}

#[test]
fn a_range_is_cut_for_all_others_and_for_nobody_who_has_its_first_byte() {
    let range = |start, len| Comb::range(start, len).unwrap();
    let mut table = LockTable::new();
    for (client, start, len) in [(A, 1000, 100), (B, 3000, 100), (B, 500, 10), (C, 2500, 10)] {
        assert!(ask(&mut table, client, range(start, len)).is_ok());
    }
    let fitted = |client, start, len| table.fitted(client, (FILE, range(start, len)));
    assert_eq!(fitted(C, 1100, 5000), range(1100, 1900));
    assert_eq!(fitted(A, 1100, 5000), range(1100, 1400));
    assert_eq!(fitted(A, 900, 50), range(900, 50));
    assert_eq!(fitted(C, 1050, 5000), range(1050, 1950), "A's has to go, and B's is left alone");
    assert_eq!(fitted(A, 10_000, 5000), range(10_000, 5000));
    let fitted = table.fitted(A, (FILE, range(1100, 5000)));
    assert!(ask(&mut table, A, fitted).is_ok());
}

//! The lock table by example, and against an oracle: whatever clients do, no two of them
//! hold conflicting locks, and whoever waits is served once the others have cancelled.

#![allow(clippy::indexing_slicing, clippy::panic, reason = "this is a test")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use sateen_ldlm::{
    Bounds, CALLBACK_LIMIT_NS, CALLBACK_REPEAT_NS, CalledBack, LOCK_BYTES, LockTable, Need, Ticket,
};
use sateen_types::{ClientId, Comb, Fid, Seq};
use sateen_wire::{Ibits, LockId, LockMode};

const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const C: ClientId = ClientId(3);

fn fid(oid: u32) -> Fid {
    Fid::new(Seq(0x2_0000_0400), oid)
}

fn need(oid: u32, mode: LockMode, bits: Ibits) -> Need {
    Need::of(fid(oid), mode, bits)
}

fn callbacks(table: &mut LockTable) -> Vec<CalledBack> {
    table.take_callbacks().collect()
}

#[test]
fn a_change_waits_for_the_readers_and_nobody_slips_in() {
    let mut table = LockTable::new();
    let a = table.try_grant(A, fid(1), LockMode::Pr, Ibits::META).unwrap();
    let b = table.try_grant(B, fid(1), LockMode::Pr, Ibits::META).unwrap();
    let change = [Need::all_gone(fid(1), Ibits::UPDATE)];
    let mut ticket = None;
    assert!(!table.require(0, C, &mut ticket, &change));
    assert_eq!(callbacks(&mut table).len(), 2);
    // Waiting: no new lock for A's other friends, but C's own is fine later.
    assert!(table.try_grant(ClientId(9), fid(1), LockMode::Pr, Ibits::META).is_none());
    assert!(table.try_grant(ClientId(9), fid(1), LockMode::Pr, Ibits::XATTR).is_some());
    table.cancel(A, fid(1), a.id).unwrap();
    assert_eq!(table.take_woken(), None);
    assert!(table.cancel(A, fid(1), b.id).is_none(), "not A's");
    table.cancel(B, fid(1), b.id).unwrap();
    assert_eq!(table.take_woken(), ticket);
    assert!(table.require(0, C, &mut ticket, &change));
    assert!(table.try_grant(A, fid(1), LockMode::Pr, Ibits::META).is_none(), "still reserved");
    table.finish(ticket.unwrap());
    assert!(table.try_grant(A, fid(1), LockMode::Pr, Ibits::META).is_some());
}

#[test]
fn own_locks_never_conflict_and_grow_instead_of_doubling() {
    let mut table = LockTable::new();
    let one = table.try_grant(A, fid(1), LockMode::Pr, Ibits::LOOKUP).unwrap();
    let two = table.try_grant(A, fid(1), LockMode::Pr, Ibits::UPDATE).unwrap();
    assert_eq!(one.id, two.id);
    assert_eq!(two.bits, Ibits::LOOKUP.union(Ibits::UPDATE));
    let data = table.try_grant(A, fid(1), LockMode::Pw, Ibits::DATA).unwrap();
    assert_ne!(data.id, one.id);
    let read = table.try_grant(A, fid(1), LockMode::Pr, Ibits::DATA).unwrap();
    assert_eq!((read.id, read.mode), (data.id, LockMode::Pw), "covered");
    assert!(table.require(0, A, &mut None, &[Need::all_gone(fid(1), Ibits::ALL)]));
    assert_eq!(table.len(), 2);
    table.forget(fid(1));
    assert!(table.is_empty());
    assert!(table.cancel(A, fid(1), one.id).is_none());
}

#[test]
fn lock_ids_are_not_used_twice() {
    let mut table = LockTable::new();
    let mut seen = BTreeSet::new();
    for _ in 0..100 {
        let grant = table.try_grant(A, fid(1), LockMode::Pr, Ibits::META).unwrap();
        assert!(seen.insert(grant.id));
        table.cancel(A, fid(1), grant.id).unwrap();
    }
}

#[test]
fn writers_take_turns_in_order() {
    let mut table = LockTable::new();
    let data = need(1, LockMode::Pw, Ibits::DATA);
    let a = table.enqueue(0, A, &mut None, &data).unwrap();
    let (mut b, mut c) = (None, None);
    assert!(table.enqueue(0, B, &mut b, &data).is_none());
    assert!(table.enqueue(0, C, &mut c, &data).is_none());
    assert_eq!(callbacks(&mut table), [CalledBack { client: A, fid: fid(1), id: a.id }]);
    table.cancel(A, fid(1), a.id).unwrap();
    assert_eq!(table.take_woken(), b);
    assert_eq!(table.take_woken(), None, "C is behind B");
    let granted = table.enqueue(0, B, &mut b, &data).unwrap();
    table.finish(b.unwrap());
    assert_eq!(table.take_woken(), c, "to call B back");
    assert!(table.enqueue(0, C, &mut c, &data).is_none());
    assert_eq!(callbacks(&mut table), [CalledBack { client: B, fid: fid(1), id: granted.id }]);
    table.cancel(B, fid(1), granted.id).unwrap();
    assert_eq!(table.take_woken(), c);
    assert!(table.enqueue(0, C, &mut c, &data).is_some());
}

#[test]
fn silence_is_asked_again_and_then_evicted() {
    let mut table = LockTable::new();
    let a = table.try_grant(A, fid(1), LockMode::Pw, Ibits::DATA).unwrap();
    table.try_grant(A, fid(1), LockMode::Pr, Ibits::META).unwrap();
    let mut ticket = None;
    let change = [Need::all_gone(fid(1), Ibits::ALL)];
    assert!(!table.require(5, B, &mut ticket, &change));
    assert_eq!(callbacks(&mut table).len(), 2);
    assert_eq!(table.overdue(6), None);
    assert!(callbacks(&mut table).is_empty());
    assert_eq!(table.overdue(5 + CALLBACK_REPEAT_NS), None);
    assert_eq!(callbacks(&mut table).len(), 2);
    assert_eq!(table.overdue(5 + CALLBACK_LIMIT_NS), Some(A));
    let mut lost = Vec::new();
    assert!(table.drop_client(A, |fid| lost.push(fid)).is_empty());
    assert_eq!(lost, [fid(1)]);
    assert_eq!(table.take_woken(), None, "A could still write");
    assert_eq!(table.overdue(5 + 2 * CALLBACK_LIMIT_NS), None);
    assert!(table.cancel(B, fid(1), a.id).is_none());
    table.release_client(A);
    assert_eq!(table.take_woken(), ticket);
    assert!(table.is_empty());
}

#[test]
fn another_limit_evicts_sooner_and_who_gives_back_is_known() {
    let mut table = LockTable::new();
    table.set_callback_limit(100);
    table.try_grant(A, fid(1), LockMode::Pw, Ibits::DATA).unwrap();
    let meta = table.try_grant(A, fid(2), LockMode::Pr, Ibits::META).unwrap();
    assert!(!table.has_called() && table.called_on(Ibits::ALL).is_empty());
    assert!(!table.require(5, B, &mut None, &[Need::all_gone(fid(2), Ibits::UPDATE)]));
    assert!(table.has_called());
    assert_eq!(table.called_on(Ibits::META), BTreeSet::from([fid(2)]));
    assert!(table.called_on(Ibits::DATA).is_empty());
    assert!(table.gives_back(A, fid(2), Ibits::UPDATE));
    let others = [(B, fid(2), Ibits::UPDATE), (A, fid(1), Ibits::DATA), (A, fid(2), Ibits::DATA)];
    assert!(others.iter().all(|(client, fid, bits)| !table.gives_back(*client, *fid, *bits)));
    assert_eq!((table.overdue(104), table.overdue(105)), (None, Some(A)));
    // He could not do it until now.
    table.give_time(50, &BTreeSet::from([fid(1)]), Ibits::ALL);
    table.give_time(50, &BTreeSet::from([fid(2)]), Ibits::DATA);
    assert_eq!(table.overdue(105), Some(A), "others' time");
    table.give_time(50, &BTreeSet::from([fid(2)]), Ibits::META);
    assert_eq!((table.overdue(149), table.overdue(150)), (None, Some(A)));
    table.cancel(A, fid(2), meta.id).unwrap();
    assert!(!table.has_called() && table.overdue(150).is_none());
}

#[test]
fn lock_ids_of_another_boot_are_others() {
    let grant = |boot| {
        let mut table = LockTable::of_boot(boot);
        table.try_grant(A, fid(1), LockMode::Pr, Ibits::META).unwrap().id
    };
    assert_eq!(grant(1), grant(1));
    assert!(grant(1) != grant(2) && grant(1) != grant(0));
}

#[test]
fn another_writer_is_who_may_write_the_data() {
    let mut table = LockTable::new();
    table.try_grant(A, fid(1), LockMode::Pr, Ibits::ALL).unwrap();
    table.try_grant(A, fid(2), LockMode::Pw, Ibits::META).unwrap();
    table.try_grant(A, fid(3), LockMode::Pw, Ibits::DATA).unwrap();
    table.try_grant(A, fid(4), LockMode::Cw, Ibits::DATA).unwrap();
    let found = |client| [1, 2, 3, 4].map(|oid| table.has_other_writer(client, fid(oid)));
    assert_eq!(found(B), [false, false, true, true]);
    assert_eq!(found(A), [false; 4], "its own");
    let covers = |mode, bits| table.covers(A, &need(3, mode, bits));
    assert!(covers(LockMode::Pr, Ibits::DATA) && !covers(LockMode::Ex, Ibits::DATA));
    assert!(!covers(LockMode::Pr, Ibits::META) && !covers(LockMode::Pr, Ibits::ALL));
    assert!(!table.covers(B, &need(3, LockMode::Pr, Ibits::DATA)));
}

#[test]
fn the_targets_own_hold_stops_everybody_and_is_never_called_back() {
    let mut table = LockTable::new();
    let data = need(1, LockMode::Pw, Ibits::DATA);
    let grant = table.enqueue(0, A, &mut None, &data).unwrap();
    let hold = table.hold(&Need::all_gone(fid(1), Ibits::DATA)).unwrap();
    let mut ticket = None;
    assert!(table.enqueue(0, A, &mut ticket, &data).is_none());
    assert!(callbacks(&mut table).is_empty());
    table.release(fid(1), hold);
    assert_eq!(table.take_woken(), ticket);
    assert_eq!(table.enqueue(0, A, &mut ticket, &data), Some(grant));
}

#[test]
fn a_lost_clients_requests_are_given_up() {
    let mut table = LockTable::new();
    let a = table.try_grant(A, fid(1), LockMode::Pr, Ibits::META).unwrap();
    let (mut b, mut c) = (None, None);
    let change = [Need::all_gone(fid(1), Ibits::UPDATE)];
    assert!(!table.require(0, B, &mut b, &change));
    assert!(!table.require(0, C, &mut c, &change));
    table.cancel(A, fid(1), a.id).unwrap();
    assert_eq!(table.drop_client(B, |_| ()), [b.unwrap()]);
    assert_eq!(table.take_woken(), c);
    assert_eq!(table.take_woken(), None);
}

#[derive(Debug, Clone)]
enum Step {
    TryGrant(u8, u8, LockMode, Ibits),
    Require(u8, u8, u8, Ibits),
    Enqueue(u8, u8, LockMode, Ibits),
    Part(u8, u8, Comb),
    Answer(u8),
    GiveBack(u8),
    Lose(u8),
}

fn modes() -> impl Strategy<Value = LockMode> {
    use LockMode::{Cr, Cw, Ex, Pr, Pw};
    prop_oneof![Just(Pr), Just(Pw), Just(Cr), Just(Cw), Just(Ex)]
}

fn bits() -> impl Strategy<Value = Ibits> {
    prop_oneof![Just(Ibits::META), Just(Ibits::DATA), Just(Ibits::UPDATE), Just(Ibits::ALL)]
}

fn combs() -> impl Strategy<Value = Comb> {
    let stride = prop_oneof![4 => Just(40u64), 1 => Just(60), 1 => Just(7)];
    (0..4u64, stride)
        .prop_map(|(n, stride)| Comb::new(n * 10, 10.min(stride - 1), stride).expect("a comb"))
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4u8, 0..3u8, modes(), bits()).prop_map(|(c, f, m, b)| Step::TryGrant(c, f, m, b)),
        3 => (0..4u8, 0..3u8, 0..3u8, bits()).prop_map(|(c, f, g, b)| Step::Require(c, f, g, b)),
        3 => (0..4u8, 0..3u8, modes(), bits()).prop_map(|(c, f, m, b)| Step::Enqueue(c, f, m, b)),
        3 => (0..4u8, 0..3u8, combs()).prop_map(|(c, f, comb)| Step::Part(c, f, comb)),
        5 => any::<u8>().prop_map(Step::Answer),
        1 => any::<u8>().prop_map(Step::GiveBack),
        1 => (0..4u8).prop_map(Step::Lose),
    ]
}

/// One operation on its way.
#[derive(Debug, Clone)]
struct Op {
    client: ClientId,
    needs: Vec<Need>,
    lock: bool,
    order: u32,
}

#[derive(Default)]
struct World {
    table: LockTable,
    ops: BTreeMap<Ticket, Op>,
    called: Vec<CalledBack>,
    granted: Vec<CalledBack>,
    started: u32,
}

impl World {
    fn run(&mut self, mut ticket: Option<Ticket>, op: Op) {
        let before = ticket;
        let done = if op.lock {
            let grant = self.table.enqueue(0, op.client, &mut ticket, &op.needs[0]);
            if let Some(grant) = grant {
                let held = CalledBack { client: op.client, fid: grant.fid, id: grant.id };
                self.granted.push(held);
            }
            grant.is_some()
        } else {
            self.table.require(0, op.client, &mut ticket, &op.needs)
        };
        match (done, ticket) {
            (true, Some(ticket)) => {
                // An operation finds nothing in its way when it runs.
                for need in &op.needs {
                    assert!(op.lock || !self.table.in_conflict(op.client, need));
                }
                self.table.finish(ticket);
            }
            (true, None) => {}
            (false, Some(ticket)) => {
                assert!(before.is_none_or(|before| before == ticket), "a ticket keeps its place");
                self.ops.insert(ticket, op);
            }
            (false, None) => panic!("blocked without a ticket"),
        }
    }

    fn settle(&mut self) {
        while let Some(ticket) = self.table.take_woken() {
            let op = self.ops.remove(&ticket).expect("woken tickets wait");
            self.run(Some(ticket), op);
        }
        self.called.extend(self.table.take_callbacks());
        for oid in 1..=3 {
            let combs: Vec<_> = self.table.combs(fid(oid)).collect();
            for (i, (one, comb)) in combs.iter().enumerate() {
                for (two, other) in &combs[i + 1..] {
                    assert!(one == two || !comb.meets(other), "{combs:?}");
                }
            }
            let held: Vec<_> = self.table.holders(fid(oid)).collect();
            let on_data = held.iter().filter(|held| held.bits.intersects(Ibits::DATA)).count();
            assert!(combs.is_empty() || combs.len() == on_data, "{held:?}");
            for (i, one) in held.iter().enumerate() {
                for two in &held[i + 1..] {
                    assert!(
                        one.client == two.client
                            || one.mode.compatible(two.mode)
                            || !one.bits.intersects(two.bits),
                        "{one:?} {two:?}"
                    );
                }
            }
        }
    }

    fn start(&mut self, client: u8, needs: Vec<Need>, lock: bool) {
        self.started += 1;
        let op = Op { client: ClientId(client.into()), needs, lock, order: self.started };
        self.run(None, op);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::TryGrant(c, f, mode, bits) => {
                let client = ClientId(c.into());
                let fid = fid(u32::from(f) + 1);
                if let Some(grant) = self.table.try_grant(client, fid, mode, bits) {
                    assert!(grant.bits.contains(bits) && grant.mode.covers(mode));
                    self.granted.push(CalledBack { client, fid, id: grant.id });
                }
            }
            Step::Require(c, f, g, bits) => {
                let oids = BTreeSet::from([f, g]);
                let need = |oid| Need::all_gone(fid(u32::from(oid) + 1), bits);
                self.start(c, oids.into_iter().map(need).collect(), false);
            }
            Step::Enqueue(c, f, mode, bits) => {
                self.start(c, vec![need(u32::from(f) + 1, mode, bits)], true);
            }
            Step::Part(c, f, comb) => {
                self.start(c, vec![Need::part(fid(u32::from(f) + 1), comb)], true);
            }
            Step::Answer(n) if !self.called.is_empty() => {
                let callback = self.called.remove(usize::from(n) % self.called.len());
                self.table.cancel(callback.client, callback.fid, callback.id);
            }
            Step::GiveBack(n) if !self.granted.is_empty() => {
                let held = self.granted.remove(usize::from(n) % self.granted.len());
                self.table.cancel(held.client, held.fid, held.id);
            }
            Step::Lose(c) => {
                let client = ClientId(c.into());
                for ticket in self.table.drop_client(client, |_| ()) {
                    self.ops.remove(&ticket).expect("it waited");
                }
                self.called.retain(|callback| callback.client != client);
                self.table.release_client(client);
            }
            Step::Answer(_) | Step::GiveBack(_) => {}
        }
        self.settle();
    }
}

fn runner(cases: u32) -> TestRunner {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&sateen_testkit::seed().to_le_bytes());
    let cases = sateen_testkit::cases(cases);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

fn check(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut world = World::default();
    for step in steps {
        world.step(step);
    }
    // From here on holders answer their callbacks, and nothing new comes.
    let mut rounds = 0;
    let mut served = Vec::new();
    while let Some(callback) = world.called.pop() {
        let before: BTreeMap<Ticket, Op> = world.ops.clone();
        world.table.cancel(callback.client, callback.fid, callback.id);
        world.settle();
        served.extend(before.into_iter().filter(|(t, _)| !world.ops.contains_key(t)));
        rounds += 1;
        prop_assert!(rounds < 10_000, "no end of callbacks");
    }
    prop_assert!(world.ops.is_empty(), "still waiting: {:?}", world.ops);
    // Of one client's equal requests for a lock the earlier is never served later.
    for (i, (_, one)) in served.iter().enumerate() {
        for (_, two) in &served[i + 1..] {
            let equal = one.lock && two.lock && one.client == two.client && one.needs == two.needs;
            prop_assert!(!equal || one.order < two.order);
        }
    }
    Ok(())
}

#[test]
fn nobody_conflicts_and_everybody_is_served() {
    let steps = prop::collection::vec(steps(), 1..80);
    runner(400).run(&steps, check).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_lock_of_the_run_before_keeps_its_name() {
    let mut before = LockTable::of_boot(5);
    let names: Vec<LockId> = (1..=3)
        .map(|oid| before.try_grant(A, fid(oid), LockMode::Pr, Ibits::META).unwrap().id)
        .collect();
    let mut table = LockTable::of_boot(6);
    // It takes the place of no lock that is new here.
    let new = table.try_grant(B, fid(9), LockMode::Pr, Ibits::META).unwrap();
    for (oid, id) in (1..).zip(&names) {
        let need = need(oid, LockMode::Pr, Ibits::META);
        assert!(table.reclaim(A, &need, *id));
        assert!(table.reclaim(A, &need, *id), "once more");
        assert!(!table.reclaim(B, &need, *id), "another's");
        assert!(!table.reclaim(A, &Need::of(need.fid, need.mode, Ibits::LOOKUP), *id));
    }
    assert_eq!(table.len(), 4);
    assert!(!table.reclaim(A, &need(9, LockMode::Pr, Ibits::META), new.id), "a name of this boot");
    assert!(!table.reclaim(A, &need(8, LockMode::Pr, Ibits::NONE), LockId(77)));
    assert!(!table.reclaim(B, &need(1, LockMode::Pw, Ibits::META), LockId(77)), "in A's way");
    // A grant is of the same lock; a callback names it, and a cancel finds it.
    let grown = table.try_grant(A, fid(1), LockMode::Pr, Ibits::XATTR).unwrap();
    assert_eq!(grown.id, names[0]);
    let mut ticket = None;
    let change = [need(1, LockMode::Ex, Ibits::UPDATE)];
    assert!(!table.require(1, B, &mut ticket, &change));
    let called = CalledBack { client: A, fid: fid(1), id: names[0] };
    assert_eq!(callbacks(&mut table), [called]);
    assert_eq!(table.overdue(1 + CALLBACK_REPEAT_NS), None);
    assert_eq!(callbacks(&mut table), [called]);
    assert_eq!(table.cancel(A, fid(2), names[0]), None, "of another inode");
    assert!(table.cancel(A, fid(1), names[0]).is_some());
    assert_eq!(table.cancel(A, fid(1), names[0]), None);
    assert_eq!(table.take_woken(), ticket);
    assert!(table.require(1, B, &mut ticket, &change));
    // The next in its place has a name of its own, and is not found by the old one.
    let next = table.try_grant(B, fid(1), LockMode::Pr, Ibits::META).unwrap();
    assert!(!names.contains(&next.id));
    assert_eq!(table.cancel(B, fid(1), names[0]), None);
    table.forget(fid(2));
    assert_eq!(table.cancel(A, fid(2), names[1]), None);
    table.drop_client(A, |_| ());
    assert_eq!(table.cancel(A, fid(3), names[2]), None);
    assert!(
        table.cancel(B, fid(1), next.id).is_some() && table.cancel(B, fid(9), new.id).is_some()
    );
    assert!(table.is_empty());
}

#[test]
fn shared_locks_stand_beside_each_other_alone_also_of_one_client() {
    let mut table = LockTable::new();
    let shared = need(1, LockMode::Cw, Ibits::DATA);
    let [a, b] = [A, B].map(|client| table.enqueue(0, client, &mut None, &shared).unwrap());
    assert_ne!(a.id, b.id);
    assert_eq!(table.enqueue(0, A, &mut None, &shared).unwrap().id, a.id);
    assert!(table.has_other_writer(A, fid(1)) && !table.has_other_writer(A, fid(2)));
    assert!(table.try_grant(A, fid(1), LockMode::Pr, Ibits::DATA).is_none(), "its own is shared");
    assert!(table.try_grant(A, fid(1), LockMode::Pr, Ibits::META).is_some());
    // Whoever needs the data has to wait for his own, too, and nobody gets another one meanwhile.
    let (mut ticket, alone) = (None, need(1, LockMode::Pw, Ibits::DATA));
    assert!(table.enqueue(0, A, &mut ticket, &alone).is_none());
    let called: BTreeSet<_> = callbacks(&mut table).iter().map(|called| called.id).collect();
    assert_eq!(called, BTreeSet::from([a.id, b.id]));
    let (mut second, mut third) = (None, None);
    assert!(table.enqueue(0, A, &mut second, &shared).is_none());
    assert!(table.enqueue(0, B, &mut third, &shared).is_none());
    table.cancel(B, fid(1), b.id).unwrap();
    assert_eq!(table.take_woken(), None);
    table.cancel(A, fid(1), a.id).unwrap();
    assert_eq!(table.take_woken(), ticket);
    let held = table.enqueue(0, A, &mut ticket, &alone).unwrap();
    table.finish(ticket.unwrap());
    assert_eq!(table.take_woken(), second, "it has more than it asks for");
    let more = table.enqueue(0, A, &mut second, &shared).unwrap();
    assert_eq!((more.id, more.mode), (held.id, LockMode::Pw));
    table.finish(second.unwrap());
    assert!(table.enqueue(0, B, &mut third, &shared).is_none());
    assert_eq!(callbacks(&mut table).len(), 1);
    // What is called back is no more than it asks for: it must not have both.
    let mut fourth = None;
    assert!(table.enqueue(0, A, &mut fourth, &shared).is_none());
    table.finish(fourth.unwrap());
    table.cancel(A, fid(1), held.id).unwrap();
    let b = table.enqueue(0, B, &mut third, &shared).unwrap();
    // It is asked for also when nobody waits.
    table.call_back_shared(0, fid(1));
    assert_eq!(callbacks(&mut table)[..], [CalledBack { client: B, fid: fid(1), id: b.id }]);
}

#[test]
fn shared_locks_for_reading_stand_beside_readers_and_shared_writers_and_not_beside_one_who_keeps() {
    let mut table = LockTable::new();
    let [look, share] = [LockMode::Cr, LockMode::Cw].map(|mode| need(1, mode, Ibits::DATA));
    let [read, alone] = [LockMode::Pr, LockMode::Pw].map(|mode| need(1, mode, Ibits::DATA));
    let a = table.enqueue(0, A, &mut None, &look).unwrap();
    let b = table.enqueue(0, B, &mut None, &share).unwrap();
    assert_eq!((a.mode, b.mode), (LockMode::Cr, LockMode::Cw));
    assert!(table.has_other_writer(A, fid(1)) && !table.has_other_writer(B, fid(1)));
    // Whoever shares it for writing may read as well; who reads beside others is not in the way of a
    // reader who keeps, his own neither.
    assert_eq!(table.enqueue(0, B, &mut None, &look).unwrap().id, b.id);
    table.cancel(B, fid(1), b.id).unwrap();
    let c = table.enqueue(0, C, &mut None, &read).unwrap();
    assert_eq!(c.mode, LockMode::Pr);
    assert_eq!(table.enqueue(0, C, &mut None, &look).unwrap().id, c.id, "he has more");
    let own = table.enqueue(0, A, &mut None, &read).unwrap();
    assert_ne!(own.id, a.id);
    assert!(callbacks(&mut table).is_empty());
    // Who may keep what he writes is alone with it, also at his own client.
    let (mut ticket, mut second) = (None, None);
    assert!(table.enqueue(0, A, &mut ticket, &alone).is_none());
    let called: BTreeSet<_> = callbacks(&mut table).iter().map(|called| called.id).collect();
    assert_eq!(called, BTreeSet::from([a.id, c.id]), "a reader's own lock may stay");
    table.cancel(C, fid(1), c.id).unwrap();
    assert!(table.enqueue(0, B, &mut second, &look).is_none(), "nobody comes in between");
    assert_eq!(table.take_woken(), None);
    table.cancel(A, fid(1), a.id).unwrap();
    assert_eq!(table.take_woken(), ticket);
    let held = table.enqueue(0, A, &mut ticket, &alone).unwrap();
    table.finish(ticket.unwrap());
    assert_eq!(table.take_woken(), second);
    assert!(table.enqueue(0, B, &mut second, &look).is_none());
    assert_eq!(callbacks(&mut table).iter().map(|called| called.id).collect::<Vec<_>>(), [held.id]);
    // What is being given back is no more than it asks for.
    let mut third = None;
    assert!(table.enqueue(0, C, &mut third, &look).is_none());
    table.cancel(A, fid(1), held.id).unwrap();
    let b = table.enqueue(0, B, &mut second, &look).unwrap();
    table.finish(second.unwrap());
    assert_eq!((b.mode, own.mode), (LockMode::Cr, LockMode::Pr));
    table.call_back_shared(0, fid(1));
    assert_eq!(callbacks(&mut table).iter().map(|called| called.id).collect::<Vec<_>>(), [b.id]);
    // Nothing can have been written under it: it goes with its client, whoever has seen to that.
    table.drop_client(B, |fid| panic!("{fid} was not written"));
    assert!(!table.holders(fid(1)).any(|held| held.client == B));
}

/// A table of ten locks, of which eight are nobody's business.
fn small() -> LockTable {
    let mut table = LockTable::new();
    table.set_bounds(Bounds { reclaim: 8, limit: 10 });
    table
}

fn reads(table: &mut LockTable, client: ClientId, oid: u32) -> Option<LockId> {
    table.try_grant(client, fid(oid), LockMode::Pr, Ibits::META).map(|grant| grant.id)
}

#[test]
fn a_full_table_gives_along_nothing_and_some_more_to_those_who_wait() {
    let mut table = small();
    for oid in 0..10 {
        assert!(reads(&mut table, A, oid).is_some());
    }
    assert_eq!(reads(&mut table, A, 10), None, "one client may have all, and no more");
    assert_eq!(reads(&mut table, B, 10), None);
    assert!(reads(&mut table, B, 9).is_none());
    // What waits is served beyond that, up to a quarter more.
    let wait = |table: &mut LockTable, oid| {
        let mut ticket = None;
        let grant = table.enqueue(0, B, &mut ticket, &need(oid, LockMode::Pr, Ibits::DATA));
        assert_eq!(ticket, None);
        grant.is_some()
    };
    assert_eq!(table.bounds().waited(), 13);
    assert!((20..23).all(|oid| wait(&mut table, oid)) && !wait(&mut table, 23));
    // The target's own locks, and what clients had before a restart, have room in any case.
    assert!(table.hold(&need(30, LockMode::Ex, Ibits::DATA)).is_some());
    assert!(table.reclaim(C, &need(31, LockMode::Pr, Ibits::META), LockId(7)));
    assert_eq!(table.len(), 15);
}

#[test]
fn what_was_granted_first_to_whoever_has_most_is_asked_back() {
    let mut table = small();
    let held: Vec<_> = (0..6).map(|oid| reads(&mut table, A, oid).unwrap()).collect();
    assert!((10..12).all(|oid| reads(&mut table, B, oid).is_some()));
    table.ask_back_surplus(0);
    assert!(!table.is_crowded() && callbacks(&mut table).is_empty(), "eight are no trouble");
    assert!((12..14).all(|oid| reads(&mut table, B, oid).is_some()));
    assert!(table.is_crowded());
    table.ask_back_surplus(0);
    let asked = callbacks(&mut table);
    let named = |at: usize| CalledBack { client: A, fid: fid(at as u32), id: held[at] };
    assert_eq!(asked, [named(0), named(1)]);
    table.ask_back_surplus(0);
    assert!(callbacks(&mut table).is_empty(), "two are on their way");
    // Nobody waits for them; the client goes like any other that does not answer.
    table.cancel(A, fid(0), held[0]).unwrap();
    table.ask_back_surplus(0);
    assert!(table.is_crowded() && callbacks(&mut table).is_empty());
    assert_eq!(table.overdue(CALLBACK_LIMIT_NS), Some(A));
    table.cancel(A, fid(1), held[1]).unwrap();
    assert!(!table.is_crowded() && table.take_woken().is_none());
    // The one that was granted last is not the first to go when others have gone around it.
    table.cancel(A, fid(2), held[2]).unwrap();
    table.cancel(A, fid(5), held[5]).unwrap();
    let again = reads(&mut table, A, 2).unwrap();
    assert!((14..17).all(|oid| reads(&mut table, C, oid).is_some()));
    table.set_bounds(Bounds { reclaim: 0, limit: 10 });
    table.ask_back_surplus(0);
    let asked: Vec<_> = callbacks(&mut table).iter().map(|back| back.id).collect();
    assert_eq!(asked.len(), 4, "of B alone, who has most");
    table.drop_client(B, |_| {});
    table.drop_client(C, |_| {});
    table.ask_back_surplus(0);
    let asked: Vec<_> = callbacks(&mut table).iter().map(|back| back.id).collect();
    assert_eq!(asked, [held[3], held[4], again]);
    assert_eq!(table.reclaimed(), 9);
}

#[test]
fn not_all_are_asked_at_once() {
    let mut table = LockTable::new();
    table.set_bounds(Bounds::of_bytes(10_000 * LOCK_BYTES, 0));
    assert_eq!(table.bounds(), Bounds { reclaim: 0, limit: 10_000 });
    for oid in 0..2000 {
        assert!(reads(&mut table, A, oid).is_some());
    }
    let mut asked = Vec::new();
    for _ in 0..100 {
        table.ask_back_surplus(0);
        asked.extend(callbacks(&mut table));
    }
    assert!((512..600).contains(&asked.len()), "{}", asked.len());
    for back in asked {
        table.cancel(A, back.fid, back.id).unwrap();
    }
    table.ask_back_surplus(0);
    assert_eq!(callbacks(&mut table).len(), 64);
}

#[test]
fn bounds_are_of_memory_and_of_slots() {
    let least = Bounds::of_bytes(0, 1 << 30);
    assert_eq!((least.reclaim, least.limit, least.waited()), (0, 0, 1));
    let most = Bounds::of_bytes(u64::MAX, u64::MAX);
    assert_eq!(most.reclaim, most.limit);
    assert!(most.waited() < 1 << 26 && most.limit > 50_000_000);
    // One client may have four million without being asked for any.
    assert!(Bounds::default().reclaim > 4_000_000);
}

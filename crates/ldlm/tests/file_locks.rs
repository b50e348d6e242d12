//! The table of programs' locks by example, and against a model that keeps each byte by itself.

#![allow(clippy::indexing_slicing, clippy::panic, reason = "this is a test")]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use sateen_ldlm::{
    CALLBACK_LIMIT_NS, CALLBACK_REPEAT_NS, FILE_LOCKS_PER_CLIENT_MAX, FileLockAnswer, FileLockTurn,
    FileLocks, Owner, WAITS_PER_FILE_MAX,
};
use sateen_types::{ClientId, Errno, Fid, Seq};
use sateen_wire::FileLockMode::{Read, Unlock, Write};
use sateen_wire::{FILE_LOCK_END_MAX, FileLock, FileLockMode, OpenId, WaitId};

const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const C: ClientId = ClientId(3);

fn fid(oid: u32) -> Fid {
    Fid::new(Seq(0x2_0000_0400), oid)
}

fn lock(owner: u64, mode: FileLockMode, (start, end): (u64, u64)) -> FileLock {
    FileLock { owner, flock: false, mode, start, end, pid: 7 }
}

fn flock(owner: u64, mode: FileLockMode) -> FileLock {
    FileLock { flock: true, ..lock(owner, mode, (0, FILE_LOCK_END_MAX)) }
}

fn open(id: u64) -> OpenId {
    OpenId { id }
}

const fn wait(id: u64) -> Option<WaitId> {
    Some(WaitId { id })
}

fn turn(client: ClientId, oid: u32, id: u64) -> FileLockTurn {
    FileLockTurn { client, fid: fid(oid), wait: WaitId { id } }
}

type Set = Result<FileLockAnswer, Errno>;
const GRANTED: Set = Ok(FileLockAnswer::Granted);
const QUEUED: Set = Ok(FileLockAnswer::Queued);

#[test]
fn whoever_waits_is_offered_the_lock_and_nobody_slips_in() {
    let mut table = FileLocks::default();
    let all = (0, FILE_LOCK_END_MAX);
    assert_eq!(table.set((A, open(1)), fid(1), &lock(1, Write, all), None), GRANTED);
    let busy = table.set((B, open(1)), fid(1), &lock(1, Read, (5, 5)), None);
    assert!(matches!(busy, Ok(FileLockAnswer::Busy(held)) if held.owner.client == A));
    assert_eq!(table.set((B, open(1)), fid(1), &lock(1, Write, (0, 9)), wait(4)), QUEUED);
    assert_eq!(table.set((B, open(1)), fid(1), &lock(1, Write, (0, 9)), wait(4)), QUEUED, "again");
    assert!(table.take_turns(1).is_empty());
    assert_eq!(table.set((A, open(1)), fid(1), &lock(1, Unlock, (0, 3)), None), GRANTED);
    assert!(table.take_turns(1).is_empty(), "only a part is free");
    assert_eq!(table.set((A, open(1)), fid(1), &lock(1, Unlock, all), None), GRANTED);
    assert_eq!(table.take_turns(1), [turn(B, 1, 4)]);
    // It counts as held.
    let busy = table.set((C, open(1)), fid(1), &lock(1, Read, (9, 20)), None);
    assert!(matches!(busy, Ok(FileLockAnswer::Busy(held)) if held.owner.client == B));
    assert_eq!(table.test(C, fid(1), &lock(1, Write, (9, 9))).map(|held| held.mode), Some(Write));
    assert_eq!(table.test(C, fid(1), &lock(1, Write, (10, 20))), None);
    assert_eq!(table.set((B, open(1)), fid(1), &lock(1, Write, (0, 9)), wait(4)), GRANTED);
    assert_eq!((table.len(), table.waits(fid(1)).count()), (1, 0));
    table.closed(B, fid(1), open(2));
    assert_eq!(table.len(), 1, "another open");
    table.closed(B, fid(1), open(1));
    assert!(table.is_empty());
    table.closed(A, fid(1), open(1));
    assert!(table.files().is_empty() && !table.knows(A));
}

#[test]
fn a_turn_is_told_again_and_one_that_is_not_taken_evicts() {
    let mut table = FileLocks::default();
    assert_eq!(table.set((A, open(1)), fid(1), &flock(1, Write), None), GRANTED);
    assert_eq!(table.set((B, open(1)), fid(1), &flock(1, Read), wait(1)), QUEUED);
    assert_eq!(table.set((C, open(1)), fid(1), &flock(1, Write), wait(1)), QUEUED);
    assert_eq!(table.overdue(0), None, "nobody has been asked anything");
    table.drop_client(A);
    assert_eq!(table.take_turns(5), [turn(B, 1, 1)]);
    assert_eq!(table.overdue(5 + CALLBACK_REPEAT_NS), None);
    assert_eq!(table.take_turns(5 + CALLBACK_REPEAT_NS), [turn(B, 1, 1)]);
    assert_eq!(table.overdue(5 + CALLBACK_LIMIT_NS), Some(B));
    table.drop_waits(B);
    assert_eq!(table.take_turns(9), [turn(C, 1, 1)]);
    table.leave(C, fid(1), WaitId { id: 1 });
    table.leave(C, fid(1), WaitId { id: 1 });
    assert!(table.is_empty());
}

#[test]
fn what_a_lost_client_has_stays_until_it_can_do_nothing_any_more() {
    let mut table = FileLocks::default();
    assert_eq!(table.set((A, open(1)), fid(1), &flock(1, Write), None), GRANTED);
    assert_eq!(table.set((B, open(1)), fid(1), &flock(1, Write), wait(1)), QUEUED);
    table.drop_waits(A);
    assert!(table.take_turns(1).is_empty());
    table.drop_client(A);
    assert_eq!(table.take_turns(1), [turn(B, 1, 1)]);
}

#[test]
fn two_who_share_a_flock_and_want_it_alone_get_it_in_turn() {
    let mut table = FileLocks::default();
    for client in [A, B] {
        assert_eq!(table.set((client, open(1)), fid(1), &flock(1, Read), None), GRANTED);
    }
    assert_eq!(table.set((A, open(1)), fid(1), &flock(1, Write), wait(1)), QUEUED);
    // A has let go, as flock(2) says. So the other has it alone, before A does.
    assert_eq!(table.set((B, open(1)), fid(1), &flock(1, Write), wait(1)), GRANTED);
    table.closed(B, fid(1), open(1));
    assert_eq!(table.take_turns(1), [turn(A, 1, 1)]);
}

#[test]
fn waits_count_as_locks_do() {
    let mut table = FileLocks::default();
    assert!(table.is_empty() && !table.has_offered());
    for oid in [1, 2] {
        assert_eq!(table.set((A, open(1)), fid(oid), &lock(1, Write, (0, 9)), None), GRANTED);
    }
    assert_eq!(table.set((B, open(1)), fid(1), &lock(1, Read, (0, 0)), wait(1)), QUEUED);
    assert_eq!(table.set((B, open(1)), fid(2), &flock(1, Write), None), GRANTED);
    assert_eq!(table.set((C, open(1)), fid(1), &lock(1, Read, (9, 9)), wait(1)), QUEUED);
    assert_eq!((table.len(), table.is_empty()), (5, false));
    assert_eq!(table.files(), BTreeSet::from([fid(1), fid(2)]));
    assert!(table.knows(A) && table.knows(B) && table.knows(C));
    table.leave(C, fid(1), WaitId { id: 1 });
    assert!(table.len() == 4 && !table.knows(C));
    table.drop_waits(B);
    assert!(table.len() == 3 && table.knows(B), "its flock stays");
    table.drop_client(A);
    assert_eq!((table.len(), table.files()), (1, BTreeSet::from([fid(2)])));
    assert!(!table.has_offered());
}

#[test]
fn a_turn_goes_with_its_wait_alone() {
    let holds = || {
        let mut table = FileLocks::default();
        for oid in [1, 2, 3] {
            assert_eq!(table.set((A, open(1)), fid(oid), &lock(1, Write, (0, 9)), None), GRANTED);
        }
        for (client, oid, id) in [(B, 1, 1), (B, 2, 2), (C, 1, 2), (C, 3, 1)] {
            let read = lock(1, Read, (0, 9));
            assert_eq!(table.set((client, open(1)), fid(oid), &read, wait(id)), QUEUED);
        }
        table.drop_client(A);
        assert!(table.has_offered());
        table
    };
    let turns = [turn(B, 1, 1), turn(C, 1, 2), turn(B, 2, 2), turn(C, 3, 1)];
    assert_eq!(holds().take_turns(1), turns);
    let mut one_left = holds();
    one_left.leave(B, fid(1), WaitId { id: 1 });
    assert_eq!(one_left.take_turns(1), turns[1..]);
    let mut none_of_one = holds();
    none_of_one.drop_waits(B);
    assert_eq!(none_of_one.take_turns(1), [turns[1], turns[3]]);
}

#[test]
fn rings_of_waits_are_found_over_files_and_clients() {
    let mut table = FileLocks::default();
    let one = (0, 0);
    for (at, client) in [A, B, C].into_iter().enumerate() {
        let fid = fid(at as u32 + 1);
        assert_eq!(table.set((client, open(1)), fid, &lock(9, Write, one), None), GRANTED);
    }
    assert_eq!(table.set((A, open(2)), fid(2), &lock(9, Read, one), wait(1)), QUEUED);
    assert_eq!(table.set((B, open(2)), fid(3), &lock(9, Read, one), wait(1)), QUEUED);
    let ring = table.set((C, open(2)), fid(1), &lock(9, Read, one), wait(1));
    assert_eq!(ring, Err(Errno::EDEADLK));
    assert_eq!(table.set((C, open(2)), fid(1), &lock(8, Read, one), wait(2)), QUEUED, "another");
    // Who is told so has to let go.
    assert_eq!(table.set((C, open(1)), fid(3), &lock(9, Unlock, one), None), GRANTED);
    assert_eq!(table.take_turns(1), [turn(B, 3, 1)]);
}

/// As those of two MDTs.
#[test]
fn rings_over_two_tables_are_not_found() {
    let [mut one, mut two] = [FileLocks::default(), FileLocks::default()];
    let byte = (0, 0);
    assert_eq!(one.set((A, open(1)), fid(1), &lock(9, Write, byte), None), GRANTED);
    assert_eq!(two.set((B, open(1)), fid(2), &lock(9, Write, byte), None), GRANTED);
    assert_eq!(one.set((B, open(2)), fid(1), &lock(9, Write, byte), wait(1)), QUEUED);
    assert_eq!(two.set((A, open(2)), fid(2), &lock(9, Write, byte), wait(1)), QUEUED);
}

#[test]
fn too_many_are_told() {
    let mut table = FileLocks::default();
    let byte = (0, 0);
    assert_eq!(table.set((A, open(1)), fid(1), &lock(1, Write, byte), None), GRANTED);
    for owner in 0..WAITS_PER_FILE_MAX as u64 {
        let asked = table.set((B, open(1)), fid(1), &lock(owner, Write, byte), wait(owner + 1));
        assert_eq!(asked, QUEUED);
    }
    let many = Err(Errno::ENOLCK);
    assert_eq!(table.set((C, open(1)), fid(1), &lock(1, Write, byte), wait(1)), many);
    // Those who wait already do not hear of it.
    assert_eq!(table.set((B, open(1)), fid(1), &lock(3, Write, byte), wait(4)), QUEUED);
    table.leave(B, fid(1), WaitId { id: 5 });
    assert_eq!(table.set((C, open(1)), fid(1), &lock(1, Write, byte), wait(1)), QUEUED);
    // Of one client, over all files.
    let has = WAITS_PER_FILE_MAX - 1;
    for oid in 0..(FILE_LOCKS_PER_CLIENT_MAX - has) as u32 {
        let locked = table.set((B, open(1)), fid(10 + oid), &lock(1, Write, byte), None);
        assert_eq!(locked, GRANTED);
    }
    assert_eq!(table.set((B, open(1)), fid(5), &lock(1, Write, byte), None), many);
    assert_eq!(table.set((C, open(1)), fid(5), &lock(1, Write, byte), None), GRANTED);
    assert_eq!(table.set((B, open(1)), fid(10), &lock(1, Unlock, byte), None), GRANTED);
    assert_eq!(table.set((B, open(1)), fid(6), &lock(1, Write, byte), None), GRANTED);
}

const OWNERS: u64 = 5;
const BYTES: u64 = 12;
const FILES: u32 = 2;

#[derive(Debug, Clone)]
enum Step {
    Set {
        owner: u64,
        file: u32,
        open: u64,
        flock: bool,
        mode: FileLockMode,
        at: (u64, u64),
        waits: bool,
    },
    Again(u8),
    Leave(u8),
    Close {
        owner: u64,
        file: u32,
        open: u64,
    },
    LoseWaits(u64),
    Lose(u64),
}

fn steps() -> impl Strategy<Value = Step> {
    let mode = prop_oneof![2 => Just(Read), 3 => Just(Write), 2 => Just(Unlock)];
    let set =
        (0..OWNERS, 1..=FILES, 0..2u64, any::<bool>(), mode, 0..BYTES, 0..BYTES, any::<bool>());
    prop_oneof![
        12 => set.prop_map(|(owner, file, open, flock, mode, a, b, waits)| {
            let at = if flock { (0, BYTES - 1) } else { (a.min(b), a.max(b)) };
            Step::Set { owner, file, open, flock, mode, at, waits }
        }),
        4 => any::<u8>().prop_map(Step::Again),
        1 => any::<u8>().prop_map(Step::Leave),
        1 => (0..OWNERS, 1..=FILES, 0..2u64)
            .prop_map(|(owner, file, open)| Step::Close { owner, file, open }),
        1 => (0..3u64).prop_map(Step::LoseWaits),
        1 => (0..3u64).prop_map(Step::Lose),
    ]
}

fn client_of(owner: u64) -> ClientId {
    ClientId(owner % 3)
}

/// An open of this owner alone.
fn open_of(owner: u64, which: u64) -> OpenId {
    open(owner * 2 + which)
}

#[derive(Debug, Clone)]
struct Wait {
    id: WaitId,
    owner: u64,
    file: u32,
    open: OpenId,
    lock: FileLock,
    offered: bool,
}

/// Who has a byte, how, and through which open.
type Holders = BTreeMap<u64, (FileLockMode, OpenId)>;

/// Each byte of each file, by kind.
#[derive(Debug, Default)]
struct Model {
    bytes: BTreeMap<(u32, bool, u64), Holders>,
    waits: Vec<Wait>,
}

impl Model {
    /// The owners in the way, in no order.
    fn in_way(&self, owner: u64, file: u32, lock: &FileLock) -> BTreeSet<u64> {
        let mut all = BTreeSet::new();
        for byte in lock.start..=lock.end {
            let held = self.bytes.get(&(file, lock.flock, byte)).into_iter().flatten();
            all.extend(held.filter(|(_, (mode, _))| !mode.compatible(lock.mode)).map(|(o, _)| *o));
        }
        for wait in self.waits.iter().filter(|wait| wait.offered && wait.file == file) {
            let theirs = &wait.lock;
            if theirs.flock == lock.flock
                && !theirs.mode.compatible(lock.mode)
                && theirs.start <= lock.end
                && lock.start <= theirs.end
            {
                all.insert(wait.owner);
            }
        }
        all.remove(&owner);
        all
    }

    fn put(&mut self, owner: u64, file: u32, open: OpenId, lock: &FileLock) {
        for byte in lock.start..=lock.end {
            let held = self.bytes.entry((file, lock.flock, byte)).or_default();
            match lock.mode {
                Unlock => held.remove(&owner),
                mode => held.insert(owner, (mode, open)),
            };
        }
    }

    fn is_ring(&self, owner: u64, file: u32, lock: &FileLock) -> bool {
        let mut reached = self.in_way(owner, file, lock);
        loop {
            let mut more = reached.clone();
            for wait in self.waits.iter().filter(|w| !w.lock.flock && !w.offered) {
                if reached.contains(&wait.owner) {
                    more.extend(self.in_way(wait.owner, wait.file, &wait.lock));
                }
            }
            if more == reached {
                return reached.contains(&owner);
            }
            reached = more;
        }
    }

    fn drop_those(&mut self, gone: impl Fn(u64, u32, OpenId) -> bool) {
        for ((file, ..), held) in &mut self.bytes {
            held.retain(|owner, (_, open)| !gone(*owner, *file, *open));
        }
        self.waits.retain(|wait| !gone(wait.owner, wait.file, wait.open));
    }

    /// Offers what is free, in order; to whom.
    fn offer(&mut self) -> BTreeSet<(ClientId, u32, WaitId)> {
        let mut offered = BTreeSet::new();
        for at in 0..self.waits.len() {
            let wait = self.waits[at].clone();
            if !wait.offered && self.in_way(wait.owner, wait.file, &wait.lock).is_empty() {
                self.waits[at].offered = true;
                offered.insert((client_of(wait.owner), wait.file, wait.id));
            }
        }
        offered
    }
}

#[derive(Default)]
struct World {
    table: FileLocks,
    model: Model,
    started: u64,
}

impl World {
    fn ask(&mut self, owner: u64, file: u32, open: OpenId, lock: &FileLock, wait: Option<WaitId>) {
        let by = (client_of(owner), open);
        let said = self.table.set(by, fid(file), lock, wait);
        let in_way = self.model.in_way(owner, file, lock);
        let known = self.model.waits.iter().any(|w| wait == Some(w.id));
        if lock.mode == Unlock || in_way.is_empty() {
            assert_eq!(said, GRANTED);
            self.model.put(owner, file, open, lock);
            self.model.waits.retain(|w| wait != Some(w.id));
            return;
        }
        if lock.flock {
            self.model.put(owner, file, open, &FileLock { mode: Unlock, ..*lock });
        }
        match wait {
            None => {
                let Ok(FileLockAnswer::Busy(held)) = said else { panic!("{said:?}") };
                assert!(in_way.contains(&held.owner.id), "{held:?} is not of {in_way:?}");
            }
            Some(_) if known => assert_eq!(said, QUEUED),
            Some(_) if !lock.flock && self.model.is_ring(owner, file, lock) => {
                assert_eq!(said, Err(Errno::EDEADLK));
            }
            Some(id) => {
                assert_eq!(said, QUEUED);
                let lock = *lock;
                self.model.waits.push(Wait { id, owner, file, open, lock, offered: false });
            }
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Set { owner, file, open, flock, mode, at: (start, end), waits } => {
                self.started += 1;
                let wait = (waits && mode != Unlock).then_some(WaitId { id: self.started });
                let lock = FileLock { owner, flock, mode, start, end, pid: 1 };
                self.ask(owner, file, open_of(owner, open), &lock, wait);
            }
            Step::Again(n) if !self.model.waits.is_empty() => {
                let at = usize::from(n) % self.model.waits.len();
                let wait = self.model.waits[at].clone();
                self.ask(wait.owner, wait.file, wait.open, &wait.lock, Some(wait.id));
                let is_over = self.model.waits.iter().all(|w| w.id != wait.id);
                assert!(!wait.offered || is_over, "what was offered is granted");
            }
            Step::Leave(n) if !self.model.waits.is_empty() => {
                let wait = self.model.waits.remove(usize::from(n) % self.model.waits.len());
                self.table.leave(client_of(wait.owner), fid(wait.file), wait.id);
            }
            Step::Close { owner, file, open } => {
                let open = open_of(owner, open);
                self.table.closed(client_of(owner), fid(file), open);
                self.model.drop_those(|_, of, through| of == file && through == open);
            }
            Step::LoseWaits(client) => {
                self.table.drop_waits(ClientId(client));
                self.model.waits.retain(|wait| client_of(wait.owner) != ClientId(client));
            }
            Step::Lose(client) => {
                self.table.drop_client(ClientId(client));
                self.model.drop_those(|owner, _, _| client_of(owner) == ClientId(client));
            }
            Step::Again(_) | Step::Leave(_) => {}
        }
        let offered = self.model.offer();
        let turns = self.table.take_turns(1).into_iter();
        let turns: BTreeSet<_> = turns.map(|t| (t.client, t.fid.oid, t.wait)).collect();
        assert_eq!(turns, offered);
        self.is_like_the_model();
    }

    fn is_like_the_model(&self) {
        let mut bytes: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        let mut ranges = 0;
        for file in 1..=FILES {
            for (flock, held) in self.table.holders(fid(file)) {
                ranges += 1;
                let Owner { client, id } = held.owner;
                assert_eq!(client, client_of(id));
                for byte in held.start..=held.end {
                    let of = bytes.entry((file, flock, byte)).or_default();
                    assert_eq!(of.insert(id, (held.mode, held.open)), None, "twice: {held:?}");
                }
            }
            let waits: Vec<_> =
                self.table.waits(fid(file)).map(|(_, w, o)| (w.owner.id, o)).collect();
            let right = self.model.waits.iter().filter(|wait| wait.file == file);
            assert_eq!(waits, right.map(|w| (w.owner, w.offered)).collect::<Vec<_>>());
        }
        let right = self.model.bytes.iter().filter(|(_, held)| !held.is_empty());
        assert_eq!(bytes, right.map(|(at, held)| (*at, held.clone())).collect());
        assert_eq!(self.table.len(), ranges + self.model.waits.len());
    }
}

fn check(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut world = World::default();
    steps.iter().for_each(|step| world.step(step));
    for client in 0..3 {
        world.step(&Step::Lose(client));
    }
    prop_assert!(world.table.is_empty() && world.table.files().is_empty());
    Ok(())
}

#[test]
fn it_is_as_if_each_byte_were_kept_by_itself() {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&sateen_testkit::seed().to_le_bytes());
    let cases = sateen_testkit::cases(600);
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner =
        TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let steps = prop::collection::vec(steps(), 1..120);
    runner.run(&steps, check).unwrap_or_else(|error| panic!("{error}"));
}

//! Tests of the state of one inode: which lock serves what, and when each of them may go.

use super::*;

/// A lock for writing data that is being given back.
fn cancelling() -> InodeState {
    let mut held = Held::new(LockId(1), (LockMode::Pw, Ibits::DATA), Granted::new(0, 0));
    (held.readable, held.pages, held.cancelling, held.users) = (true, true, true, 1);
    held.busy().rounds = 1;
    let mut state = InodeState::default();
    state.locks.push(held);
    state
}

fn find(state: &mut InodeState, range: Range, tired: Tired) -> &'static str {
    match find_data(state, &Wanted::of(Access::Read, range), tired) {
        Found::Use(_) => "use",
        Found::Drains => "drains",
        Found::Wait => "wait",
        Found::None => "none",
    }
}

#[test]
fn nobody_comes_in_while_those_before_go_out() {
    let mut state = cancelling();
    let (some, fresh) = (Some((4096, 8192)), Tired::default());
    // The kernel drops pages, perhaps those of this very read.
    assert_eq!(find(&mut state, some, fresh), "use");
    assert_eq!(state.locks[0].busy().served, Served::Ranges(vec![(4096, 8192)]));
    state.locks[0].busy().draining = true;
    assert_eq!(find(&mut state, some, fresh), "drains");
    assert_eq!(find(&mut state, some, Tired { drains: false, waits: true }), "drains");
    assert_eq!((state.locks[0].users, find(&mut state, some, Tired::OF_ALL)), (2, "use"));
    state.locks[0].busy().draining = false;
    state.locks[0].busy().rounds = 2;
    assert_eq!(find(&mut state, some, Tired { drains: true, waits: false }), "wait");
    assert_eq!(find(&mut state, None, Tired::OF_ALL), "use");
    assert_eq!(state.locks[0].busy().served, Served::All);
}

#[test]
fn a_lock_goes_when_nobody_uses_it_and_no_page_came_under_it() {
    let mut state = cancelling();
    assert!(state.let_go(LockId(1)).is_none(), "it is in use");
    assert!(state.locks[0].is_draining(), "nobody else begins to use it");
    state.locks[0].users = 0;
    state.locks[0].busy().draining = false;
    state.reporting = true;
    assert!(state.let_go(LockId(1)).is_none(), "a report says what the size is");
    assert!(state.locks[0].is_draining());
    state.reporting = false;
    // So does the cancel of another that was given back just before.
    state.cancels.push(Leaving { tells: true, ..Leaving::new(LockId(2), None) });
    assert!(state.let_go(LockId(1)).is_none());
    state.cancels.clear();
    state.locks[0].busy().served.add(Some((0, 1)));
    assert!(matches!(state.let_go(LockId(1)), Some(LetGo::Served(_))));
    state.locks[0].busy().served = Served::Nothing;
    assert!(matches!(state.let_go(LockId(1)), Some(LetGo::Gone(None))));
    assert!(state.locks.is_empty());
}

#[test]
fn a_part_goes_when_nothing_is_kept_and_the_last_one_tells() {
    let mut state = InodeState::default();
    for (id, start) in [(1, 0), (2, 50)] {
        let comb = Comb::new(start, 10, 100).expect("a comb");
        let mut held = Held::part(LockId(id), comb, Granted::new(0, 0));
        held.cancelling = id == 1;
        state.locks.push(held);
    }
    state.wrote_shared(110, 10, sateen_types::Timespec { sec: 5, nsec: 0 });
    state.dirty = Some(crate::dirty::tests::some_kept());
    assert!(state.let_go(LockId(1)).is_none(), "what is kept may be of either");
    state.dirty = None;
    assert!(matches!(state.let_go(LockId(1)), Some(LetGo::Gone(None))));
    state.cancels.clear();
    assert!(
        state
            .let_go(LockId(2))
            .is_some_and(|gone| matches!(gone, LetGo::Gone(Some(report)) if report.size == 110))
    );
    assert!(state.locks.is_empty() && !state.may_write());
}

#[test]
#[should_panic(expected = "nothing outlives the lock")]
fn nothing_that_is_kept_outlives_its_lock() {
    let mut state = cancelling();
    state.dirty = Some(crate::dirty::tests::some_kept());
    state.lost_locks();
    state.locks.clear();
    state.lost_locks();
}

#[test]
fn who_has_a_shared_lock_gives_it_back_before_he_asks_for_a_part_and_no_other_way_round() {
    let comb = Comb::new(0, 10, 100).expect("a comb");
    let share = Wanted::of(Access::Share, Some((100, 10)));
    let part = Wanted { comb: Some(comb), apart: true, ..share };
    let mut state = InodeState::default();
    let shared = (LockMode::Cw, Ibits::DATA);
    state.locks.push(Held::new(LockId(1), shared, Granted::new(0, 0)));
    assert_eq!(state.asks(&share), Some(Ask::Nothing));
    assert_eq!(state.asks(&part), Some(Ask::Back(LockId(1))));
    state.locks[0].cancelling = true;
    assert!(state.asks(&part).is_none(), "somebody is at it");
    assert_eq!(state.asks(&share), Some(Ask::Whole(LockMode::Cw)));
    state.locks.clear();
    assert_eq!(state.asks(&part), Some(Ask::Part(comb)));
    state.locks.push(Held::part(LockId(2), comb, Granted::new(0, 0)));
    assert_eq!(state.asks(&part), Some(Ask::Nothing));
    let elsewhere = Wanted::of(Access::Share, Some((50, 10)));
    assert_eq!(state.asks(&elsewhere), Some(Ask::Whole(LockMode::Cw)));
    for id in 3..=1 + PARTS_MAX as u64 {
        state.locks.push(Held::part(LockId(id), comb, Granted::new(0, 0)));
    }
    let more = Wanted { comb: Comb::new(50, 10, 100), ..elsewhere };
    assert_eq!(state.asks(&more), Some(Ask::Whole(LockMode::Cw)), "it has enough");
}

#[test]
fn ranges_that_are_too_many_are_all() {
    let mut served = Served::Nothing;
    (0..64).for_each(|at| served.add(Some((at, 1))));
    assert!(matches!(&served, Served::Ranges(all) if all.len() == 64));
    served.add(Some((64, 1)));
    assert_eq!(served, Served::All);
    served.add(Some((65, 1)));
    assert_eq!(served, Served::All);
}

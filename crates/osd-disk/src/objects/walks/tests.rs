//! When the next small files are asked for, and when not.

use sateen_types::Fid;

use super::*;

const SEQ: Seq = Seq(0x2_0000_0400);

fn object(oid: u32) -> ObjectId {
    ObjectId { fid: Fid { seq: SEQ, oid, ver: 0 }, stripe: 0 }
}

fn cold(oids: impl IntoIterator<Item = u32>) -> Asked {
    Asked { oids: oids.into_iter().collect(), was_cold: true }
}

/// Walks in which these were read, all of which had to wait.
fn after(oids: impl IntoIterator<Item = u32>) -> (Walks, Option<Ask>) {
    let (mut walks, mut ask) = (Walks::new(2048), None);
    for oid in oids {
        ask = ask.or(walks.read(object(oid), true));
    }
    (walks, ask)
}

#[test]
fn the_next_ones_are_asked_for_twice_as_many_each_time() {
    let (mut walks, ask) = after([10, 14, 18, 22]);
    assert_eq!(ask, None, "three steps may be chance");
    let first = walks.read(object(26), true).unwrap();
    assert_eq!(first, Ask { seq: SEQ, behind: 26, count: 8 });
    assert_eq!(walks.read(object(30), true), None, "it is being asked for");
    let left = walks.asked(first, cold((30..62).step_by(4)));
    assert_eq!(left, None);
    assert_eq!(walks.read(object(34), false), None, "more than half of them are left");
    assert_eq!(walks.read(object(38), false), None);
    let second = Ask { seq: SEQ, behind: 58, count: 12 };
    assert_eq!(walks.read(object(42), false), Some(second));
    assert_eq!(walks.asked(second, cold((62..110).step_by(4))), None);
    assert!((46..74).step_by(4).all(|oid| walks.read(object(oid), false).is_none()));
    let third = Ask { seq: SEQ, behind: 106, count: 32 - 8 };
    assert_eq!(walks.read(object(74), false), Some(third));
}

#[test]
fn what_was_read_before_the_answer_came_makes_the_next_due() {
    let (mut walks, ask) = after(0..9);
    let ask = ask.unwrap();
    assert_eq!((ask.behind, ask.count), (4, 8));
    assert_eq!(walks.asked(ask, cold(5..13)), Some(Ask { seq: SEQ, behind: 12, count: 12 }));
}

#[test]
fn what_is_in_memory_is_not_asked_for() {
    let mut walks = Walks::new(2048);
    assert!((0..100).all(|oid| walks.read(object(oid), false).is_none()));
    let ask = walks.read(object(100), true).unwrap();
    let warm = Asked { oids: (101..109).collect(), was_cold: false };
    assert_eq!(walks.asked(ask, warm), None);
    assert!((101..200).all(|oid| walks.read(object(oid), false).is_none()));
    assert!(walks.read(object(200), true).is_some());
}

#[test]
fn nobody_walks_who_jumps() {
    let mut oid = 7;
    let (_, ask) = after((0..1000).map(|_| {
        oid = (oid * 75 + 74) % 65_537;
        oid
    }));
    assert_eq!(ask, None);
    let (_, ask) = after((0..1000).rev());
    assert_eq!(ask, None, "nobody goes back");
}

#[test]
fn several_walk_side_by_side_and_two_may_share_a_walk() {
    let (mut walks, mut asks) = (Walks::new(2048), Vec::new());
    for step in 0..6 {
        for begin in [1000, 5000, 9000] {
            asks.extend(walks.read(object(begin + step), true));
        }
    }
    asks.sort_by_key(|ask| ask.behind);
    assert_eq!(asks.iter().map(|ask| ask.behind).collect::<Vec<_>>(), [1004, 5004, 9004]);
    let (_, ask) = after([10, 12, 11, 13, 16, 14, 18, 15]);
    assert_eq!(ask, Some(Ask { seq: SEQ, behind: 18, count: 8 }));
}

#[test]
fn what_nobody_wants_is_asked_for_no_more() {
    let mut walks = Walks::new(2048);
    let (mut asked, mut oid) = (0, 0);
    // He takes every hundredth, and all of them are there.
    for _ in 0..1000 {
        oid += 100;
        if let Some(ask) = walks.read(object(oid), true) {
            let all = ask.behind + 1..=ask.behind + ask.count as u32;
            asked += ask.count;
            assert_eq!(walks.asked(ask, cold(all)), None);
        }
    }
    assert!((1..=200).contains(&asked), "{asked}");
}

#[test]
fn further_stripes_and_stores_with_few_files_are_left_alone() {
    let mut walks = Walks::new(2048);
    let stripe = |oid| ObjectId { stripe: 1, ..object(oid) };
    assert!((0..100).all(|oid| walks.read(stripe(oid), true).is_none()));
    let mut few = Walks::new(63);
    assert!((0..100).all(|oid| few.read(object(oid), true).is_none()));
}

#[test]
fn an_answer_that_comes_when_others_have_walked_is_dropped() {
    let (mut walks, ask) = after(10..15);
    for begin in [10_000, 20_000, 30_000, 40_000] {
        walks.read(object(begin), true);
    }
    assert_eq!(walks.asked(ask.unwrap(), cold(15..23)), None);
    assert!((10..14).all(|oid| walks.read(object(oid), true).is_none()));
    assert!(walks.read(object(14), true).is_some(), "it begins anew");
}

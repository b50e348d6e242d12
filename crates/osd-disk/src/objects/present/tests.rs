//! What is said to be absent is absent, whatever comes and goes meanwhile.

use std::io::{Error, ErrorKind};

use sateen_types::{Fid, Seq};

use super::*;

fn object(oid: u32) -> ObjectId {
    ObjectId { fid: Fid { seq: Seq(0x2_0000_0400), oid, ver: 0 }, stripe: 0 }
}

/// With the folder of the first objects about to be listed.
fn about_to_list() -> Present {
    let present = Present::default();
    for turn in 1..REMOVALS_MIN {
        assert_eq!(present.removes(object(turn)), Known::Perhaps, "{turn}");
        assert!(present.removed(object(turn)), "who knows");
    }
    assert_eq!(present.removes(object(100)), Known::List);
    assert_eq!(present.removes(object(101)), Known::Perhaps, "another is at it");
    present
}

#[test]
fn a_listed_folder_says_what_is_absent_and_when_it_is_empty() {
    let present = about_to_list();
    present.listed(Group::of(object(0)), Ok(vec![object(100), object(102)]));
    assert_eq!(present.removes(object(101)), Known::Absent);
    assert_eq!(present.removes(object(100)), Known::Perhaps);
    assert!(!present.removed(object(100)));
    assert_eq!(present.removes(object(100)), Known::Absent);
    assert!(present.removed(object(102)), "the last one");
}

#[test]
fn what_is_born_is_there_also_while_its_folder_is_listed() {
    let present = about_to_list();
    present.born(object(7));
    present.listed(Group::of(object(0)), Ok(vec![object(100)]));
    assert_eq!(present.removes(object(7)), Known::Perhaps);
    present.born(object(8));
    assert_eq!(present.removes(object(8)), Known::Perhaps);
    // One that goes while its folder is listed may be found, and be born again.
    let present = about_to_list();
    for oid in [100, 101] {
        present.removed(object(oid));
    }
    present.born(object(101));
    present.listed(Group::of(object(0)), Ok(vec![object(100), object(101)]));
    assert_eq!(present.removes(object(100)), Known::Absent);
    assert_eq!(present.removes(object(101)), Known::Perhaps);
    assert!(present.removed(object(101)), "its folder does not stay for what is gone");
}

#[test]
fn a_folder_that_cannot_be_listed_or_is_too_large_is_not_known() {
    for found in [
        Err(Error::from(ErrorKind::PermissionDenied)),
        Ok((0..=NAMES_MAX as u32).map(|stripe| ObjectId { stripe, ..object(1) }).collect()),
    ] {
        let present = about_to_list();
        present.listed(Group::of(object(0)), found);
        assert_eq!(present.removes(object(101)), Known::Perhaps);
    }
    let present = about_to_list();
    present.listed(Group::of(object(0)), Ok(vec![]));
    for stripe in 0..=NAMES_MAX as u32 {
        present.born(ObjectId { stripe, ..object(1) });
    }
    assert_eq!(present.removes(object(101)), Known::Perhaps);
}

#[test]
fn folders_that_were_not_used_are_forgotten_but_not_while_they_are_listed() {
    let present = about_to_list();
    for group in 1..=2 * FOLDERS_MAX as u32 {
        assert_eq!(present.removes(object(group << 9)), Known::Perhaps);
    }
    present.listed(Group::of(object(0)), Ok(vec![]));
    assert_eq!(present.removes(object(0)), Known::Absent);
    for group in 1..=2 * FOLDERS_MAX as u32 {
        present.removes(object(group << 9));
    }
    assert_eq!(present.removes(object(0)), Known::Perhaps, "forgotten");
}

//! Pieces are held against an OST that is one object: bytes that are there, and those that are durable.

use sateen_types::Seq;

use super::*;
use crate::testing::Random;

const FILE_BYTES: usize = 64;
const OST: u32 = 3;

fn fid(oid: u32) -> Fid {
    Fid::new(Seq(0x2_0000_0400), oid)
}

fn object(oid: u32) -> ObjectId {
    ObjectId { fid: fid(oid), stripe: 0 }
}

fn unstable(bytes: u64) -> Unstable {
    let unstable = Unstable::default();
    unstable.set_max(bytes, 1 << 20);
    unstable
}

fn write(unstable: &Unstable, oid: u32, run: u64, offset: u64, data: &[u8]) {
    let admitted = unstable.admit(fid(oid), OST, true);
    let data = Bytes::copy_from_slice(data);
    unstable.wrote((OST, run), (object(oid), 1, offset), &data);
    drop(admitted);
}

/// Whether nothing of a file is missing.
fn is_whole(unstable: &Unstable, oid: u32) -> bool {
    lock(&unstable.table).files.get(&fid(oid)).is_none_or(|file| file.missing.is_none())
}

/// Tells a run of the OST what it has not, but no more than so many pieces.
fn tell(unstable: &Unstable, run: u64, most: usize, mut put: impl FnMut(Piece)) -> bool {
    let mut told = 0;
    for _ in 0..most {
        let Some((number, piece)) = unstable.next_due(OST, run, told) else {
            unstable.has_all(OST, run);
            return true;
        };
        told = number;
        put(piece);
        unstable.is_told((OST, run), number, true).wake();
    }
    unstable.cut_off(OST).wake();
    false
}

/// The OST: each write has a higher byte than those before it, so that the younger is the greater.
struct Plain {
    now: [u8; FILE_BYTES],
    durable: [u8; FILE_BYTES],
}

impl Plain {
    fn put(&mut self, offset: u64, data: &[u8]) {
        self.now[offset as usize..offset as usize + data.len()].copy_from_slice(data);
    }

    /// Of what was not synced each byte may be there or not.
    fn crash(&mut self, random: &mut Random) {
        for (now, durable) in self.now.iter_mut().zip(&mut self.durable) {
            if random.below(2) == 0 {
                *now = *durable;
            }
            *durable = *now;
        }
    }
}

#[test]
fn what_was_lost_comes_back_in_order_and_nothing_older_over_it() {
    let (mut whole, mut partly) = (0, 0);
    for seed in 0..400 {
        let mut random = Random(seed);
        let unstable = unstable([40, 1000][random.below(2) as usize]);
        let mut disk = Plain { now: [0; FILE_BYTES], durable: [0; FILE_BYTES] };
        // What there would be had the OST lost nothing, and the run that writes were answered by.
        let (mut right, mut run) = ([0; FILE_BYTES], 1);
        // What the inode knows.
        let mut unsynced: Option<u64> = None;
        for byte in 1..=200 {
            match random.below(14) {
                0 => {
                    unsynced = None;
                    disk.durable = disk.now;
                    unstable.synced(fid(1), unstable.mark(fid(1)));
                }
                1 => {
                    // Others write, or the file is cut: both leave higher bytes.
                    match random.below(2) {
                        0 => unstable.forget(fid(1)),
                        _ => drop(unstable.bar(fid(1))),
                    }
                    unsynced = Some(run);
                    disk.put(0, &[byte; FILE_BYTES / 2]);
                    right[..FILE_BYTES / 2].fill(byte);
                }
                2 => {
                    let before = disk.now;
                    disk.crash(&mut random);
                    let left = disk.now;
                    run += 1;
                    while !tell(&unstable, run, 1 + random.below(6) as usize, |piece| {
                        disk.put(piece.offset, &piece.data);
                    }) {
                        // The connection is lost in the middle of it, or the OST once more.
                        if random.below(3) == 0 {
                            disk.crash(&mut random);
                            run += 1;
                        }
                    }
                    for (place, byte) in disk.now.iter().enumerate() {
                        assert!(*byte <= before[place], "seed {seed}: what nobody wrote");
                        let durable = left[place].min(before[place]);
                        assert!(*byte >= durable || *byte == right[place], "seed {seed}: {place}");
                    }
                    let covered = unsynced.is_none_or(|at| unstable.now(fid(1), (OST, at)) == run);
                    if covered && is_whole(&unstable, 1) {
                        assert_eq!(disk.now, right, "seed {seed}");
                        whole += 1;
                    } else {
                        // It is told, and what there is now is right.
                        unsynced = None;
                        (right, disk.durable) = (disk.now, disk.now);
                        unstable.synced(fid(1), unstable.mark(fid(1)));
                        partly += 1;
                    }
                    if unsynced.is_some() {
                        unsynced = Some(run);
                    }
                }
                _ => {
                    let offset = random.below(FILE_BYTES as u64);
                    let len = 1 + random.below(12.min(FILE_BYTES as u64 - offset));
                    let data = vec![byte; len as usize];
                    let admitted = unstable.admit(fid(1), OST, unsynced.is_none());
                    disk.put(offset, &data);
                    right[offset as usize..][..len as usize].copy_from_slice(&data);
                    unstable.wrote((OST, run), (object(1), 1, offset), &data.into());
                    drop(admitted);
                    unsynced = Some(unsynced.unwrap_or(run));
                }
            }
        }
    }
    assert!(whole > 500 && partly > 100, "{whole} times all of it came back, {partly} times not");
}

#[test]
fn the_oldest_goes_first_and_is_missed() {
    let unstable = unstable(100);
    for oid in 1..=3 {
        write(&unstable, oid, 1, 0, &[7; 40]);
    }
    assert_eq!([1, 2, 3].map(|oid| is_whole(&unstable, oid)), [false, true, true]);
    unstable.set_max_of(OST, 40);
    assert_eq!([1, 2, 3].map(|oid| is_whole(&unstable, oid)), [false, false, true]);
    write(&unstable, 3, 1, 0, &[7; 41]);
    assert!(!is_whole(&unstable, 3), "it is too long");
    assert_eq!(lock(&unstable.table).osts[&OST].bytes, 0);
}

#[test]
fn all_osts_have_a_bound_together() {
    let unstable = Unstable::default();
    unstable.set_max(100, 100);
    for (oid, ost) in [(1, 1), (2, 2)] {
        let admitted = unstable.admit(fid(oid), ost, true);
        unstable.wrote((ost, 1), (object(oid), 1, 0), &vec![7; 60].into());
        drop(admitted);
    }
    assert_eq!([1, 2].map(|oid| is_whole(&unstable, oid)), [false, true]);
}

#[test]
fn a_file_that_was_written_before_is_not_taken_for_whole() {
    let unstable = unstable(100);
    let admitted = unstable.admit(fid(1), OST, false);
    let mark = unstable.mark(fid(1));
    unstable.wrote((OST, 1), (object(1), 1, 0), &vec![7; 10].into());
    assert!(tell(&unstable, 2, 9, |_| ()));
    assert_eq!(unstable.now(fid(1), (OST, 1)), 1, "that is not all");
    unstable.synced(fid(1), mark);
    assert!(is_whole(&unstable, 1));
    assert!(tell(&unstable, 3, 9, |_| ()));
    assert_eq!(unstable.now(fid(1), (OST, 1)), 3);
    drop(admitted);
}

#[test]
fn what_ended_well_is_not_told() {
    let unstable = unstable(100);
    write(&unstable, 1, 1, 0, &[7; 10]);
    write(&unstable, 1, 2, 0, &[8; 10]);
    unstable.are_durable(OST, |run| run == 2);
    let mut told = Vec::new();
    assert!(tell(&unstable, 3, 9, |piece| told.push(piece.data[0])));
    assert_eq!(told, [7]);
}

/// Or older bytes would be written over younger ones, which are durable, while the sync of the file waits
/// for another OST.
#[test]
fn what_one_ost_has_synced_it_is_not_told_again_before_the_others_have() {
    let unstable = unstable(100);
    write(&unstable, 1, 1, 0, b"older");
    write(&unstable, 1, 1, 0, b"newer");
    let mark = unstable.mark(fid(1));
    write(&unstable, 1, 1, 2, b"later");
    unstable.are_synced(OST + 1, &[object(1)], mark);
    unstable.are_synced(OST, &[object(2)], mark);
    unstable.are_synced(OST, &[object(1)], mark);
    let mut told = Vec::new();
    assert!(tell(&unstable, 2, 9, |piece| told.push(piece.data)));
    assert_eq!(told, [&b"later"[..]]);
    assert!(is_whole(&unstable, 1));
    unstable.synced(fid(1), unstable.mark(fid(1)));
    assert!(tell(&unstable, 3, 9, |_| panic!("it is durable")));
}

#[test]
fn a_sync_that_failed_elsewhere_leaves_nothing_of_a_file_of_which_all_is_durable() {
    let unstable = unstable(100);
    write(&unstable, 1, 1, 0, b"bytes");
    write(&unstable, 2, 1, 0, b"bytes");
    let mark = unstable.mark(fid(1));
    unstable.are_synced(OST, &[object(1)], mark);
    assert!(unstable.keeps(fid(1)), "the sync is not over");
    unstable.synced_in_part(fid(1));
    unstable.synced_in_part(fid(2));
    assert!(!unstable.keeps(fid(1)));
    assert!(unstable.keeps(fid(2)), "its OST has not answered");
}

#[test]
fn a_piece_on_its_way_is_waited_for() {
    use core::pin::pin;
    use core::task::{Context, Waker};
    let unstable = unstable(100);
    write(&unstable, 1, 1, 0, &[7; 10]);
    let (number, _) = unstable.next_due(OST, 2, 0).unwrap();
    unstable.forget(fid(1));
    let arrives = |fid| {
        let mut arrived = pin!(unstable.arrived(fid, || false));
        arrived.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    };
    assert!(!arrives(fid(1)) && arrives(fid(2)));
    unstable.is_told((OST, 2), number, true).wake();
    assert!(arrives(fid(1)));
    assert!(unstable.next_due(OST, 2, 0).is_none());
}

#[test]
fn what_is_answered_and_not_noted_yet_no_sync_takes_for_durable() {
    let unstable = unstable(100);
    // Its OST has answered the first write; whoever wrote it has not come to note that.
    let first = unstable.admit(fid(1), OST, true);
    unstable.wrote((OST, 1), (object(1), 1, 0), &Bytes::from_static(b"first"));
    let mark = unstable.mark(fid(1));
    unstable.synced(fid(1), mark);
    drop(first);
    let mut put = Vec::new();
    assert!(tell(&unstable, 2, 9, |piece| put.push(piece.data)));
    assert_eq!(put, [&b"first"[..]]);
    unstable.synced(fid(1), unstable.mark(fid(1)));
    assert!(tell(&unstable, 3, 9, |_| panic!("it is durable")));
}

#[test]
fn where_something_is_now_is_known_after_a_stop_in_good_order_too() {
    let unstable = unstable(100);
    write(&unstable, 1, 1, 0, b"bytes");
    assert!(tell(&unstable, 2, 9, drop));
    unstable.are_durable(OST, |run| run == 2);
    assert_eq!(unstable.now(fid(1), (OST, 1)), 2, "the next fsync would say that it is lost");
    unstable.forget(fid(1));
    assert_eq!(unstable.now(fid(1), (OST, 1)), 1);
}

#[test]
fn what_is_answered_when_others_may_write_is_not_kept() {
    let unstable = unstable(100);
    let admitted = unstable.admit(fid(1), OST, true);
    unstable.forget(fid(1));
    unstable.wrote((OST, 1), (object(1), 1, 0), &Bytes::from_static(b"late"));
    assert!(tell(&unstable, 2, 9, |_| panic!("somebody's younger bytes")));
    drop(admitted);
    write(&unstable, 1, 2, 0, b"under the next lock");
    let mut told = 0;
    assert!(tell(&unstable, 3, 9, |_| told += 1));
    assert_eq!(told, 1);
}

#[test]
fn what_is_refused_is_missed() {
    let unstable = unstable(100);
    write(&unstable, 1, 1, 0, &[7; 10]);
    let (number, _) = unstable.next_due(OST, 2, 0).unwrap();
    unstable.is_told((OST, 2), number, false).wake();
    unstable.has_all(OST, 2);
    assert_eq!(unstable.now(fid(1), (OST, 1)), 1);
}

//! Pieces of an object that are kept, and go to its OST in one request.

use super::*;

/// Offsets and lengths of the pieces that an OST is asked to write next, and the grant.
fn take_pieces(rig: &Rig) -> (Vec<(u64, u64)>, u64) {
    let (header, len, request) = rig.take_with_data();
    LAST.set(Some(header));
    let Request::Ost(OstRequest::WriteMany { pieces, grant_used, .. }) = request else {
        panic!("{request:?}")
    };
    let pieces: Vec<(u64, u64)> = pieces.iter().map(|piece| piece.range()).collect();
    assert_eq!(len, pieces.iter().map(|(_, len)| len).sum::<u64>());
    (pieces, grant_used)
}

#[test]
fn pieces_with_gaps_go_in_one_request() {
    let (rig, handle, _) = keeper_of_many();
    for piece in [5, 1, 3] {
        keep(&rig, handle, piece * PAGE, 100);
    }
    rig.later(AGE_NS);
    let right = vec![(PAGE, 100), (3 * PAGE, 100), (5 * PAGE, 100)];
    assert_eq!(take_pieces(&rig), (right, 300), "with the grants of all");
    assert!(rig.is_silent());
    assert_eq!(rig.client.dirty_bytes(0), 300);
    written_last(&rig, 300, 7);
    assert_eq!((rig.client.dirty_bytes(0), flush(&rig, handle)), (0, Ok(())));
    // One alone is a write as ever.
    keep(&rig, handle, PAGE, 100);
    rig.later(AGE_NS);
    assert_eq!(take_write(&rig), (PAGE, 100, 100));
    written_last(&rig, 100, 0);
}

/// What there was room for is there, and so is what has room by itself; each descriptor hears of the rest, once.
/// Until then nothing more is kept: a write is to say what its OST says.
#[test]
fn of_pieces_that_were_written_in_part_the_rest_is_told() {
    for short in [0, 99, 100, 150] {
        let (rig, handle, _) = keeper_of_many();
        let (other, _) = open_with(&rig, WRITE, &[0]);
        for piece in 0..3 {
            keep(&rig, handle, piece * 2 * PAGE, 100);
        }
        rig.later(AGE_NS);
        take_pieces(&rig);
        written_last(&rig, short, 0);
        // Those that are not whole are written one by one: the last one has room.
        for piece in short / 100..3 {
            assert_eq!(take_write(&rig), (piece * 2 * PAGE, 100, 0), "{short}");
            written_last(&rig, if piece == 2 { 100 } else { 0 }, 0);
        }
        assert!(rig.is_silent());
        assert_eq!(rig.client.dirty_bytes(0), 0, "{short}");
        let mut write = start_write(&rig, handle, 9 * PAGE, 100);
        assert_eq!(take_write(&rig).0, 9 * PAGE);
        written_last(&rig, 100, 1000);
        assert_eq!(rig.poll(&mut write), Some(Ok(100)));
        for handle in [handle, other] {
            assert_eq!(flush(&rig, handle), Err(Errno::ENOSPC));
            assert_eq!(flush(&rig, handle), Ok(()));
        }
    }
}

#[test]
fn an_answer_of_more_than_all_pieces_is_none() {
    let (rig, handle, _) = keeper_of_many();
    keep(&rig, handle, 0, 100);
    keep(&rig, handle, PAGE, 100);
    rig.later(AGE_NS);
    take_pieces(&rig);
    written_last(&rig, 201, 0);
    assert_eq!((rig.client.dirty_bytes(0), flush(&rig, handle)), (0, Err(Errno::EPROTO)));
}

/// A record over the end of a stripe is two pieces, in two objects.
#[test]
fn pieces_go_to_the_objects_that_they_lie_in() {
    let (rig, stripe) = (Rig::with_features(1, 2, GROUPS | MANY), 64 << 10);
    rig.client.set_dirty_max(4 * MIB, 8 * MIB);
    let (handle, _) = open_with(&rig, WRITE, &[0, 1]);
    for ost in [0, 1] {
        let mut write = start_write(&rig, handle, ost * stripe, PAGE);
        assert_eq!(take_write(&rig), (0, PAGE, 0));
        written_last(&rig, PAGE, 8 * MIB);
        assert_eq!(rig.poll(&mut write), Some(Ok(PAGE as usize)));
    }
    for end in [1, 2] {
        keep(&rig, handle, end * stripe - 50, 100);
    }
    rig.later(AGE_NS);
    let of = |offsets: [u64; 2]| (offsets.map(|offset| (offset, 50)).to_vec(), 100);
    assert_eq!(take_pieces(&rig), of([stripe - 50, stripe]));
    assert_eq!(LAST.get().unwrap().to, Endpoint::Ost(0));
    assert_eq!(take_pieces(&rig), of([0, stripe - 50]));
    assert_eq!(LAST.get().unwrap().to, Endpoint::Ost(1));
    assert!(rig.is_silent());
}

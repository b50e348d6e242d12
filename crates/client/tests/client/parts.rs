//! Parts of a file: who writes records in turns with others asks for all of his at once, keeps what he
//! writes of them, and gives a part back when that is written out.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sateen_client::OpenHow;
use sateen_types::{Attr, Comb, Errno, Layout, Result};
use sateen_wire::{
    COMBS, GROUPS, Header, HeldPart, Ibits, LockId, LockMode, MANY, MdtReply, MdtRequest, OstReply,
    OstRequest, Reply, ReplyBody, Request, SizeReport,
};

use crate::rig::{CRED, FILE, Rig, Verb, WRITE, attr, grant, reply};

const DATA: Ibits = Ibits::DATA;
const MIB: u64 = 1 << 20;
const STRIPE: u64 = 64 << 10;
/// Records of 1000 bytes; the 16th lies in two objects.
const FIRST: u64 = 600;
const RECORD: u64 = 1000;
const STEP: u64 = 4000;
const ACROSS: u64 = 16;
const SECOND_NS: u64 = 1_000_000_000;

fn record(number: u64) -> u64 {
    FIRST + number * STEP
}

fn comb(first: u64) -> Comb {
    Comb::new(first, RECORD, STEP).unwrap()
}

fn rig() -> Rig {
    let rig = Rig::with_features(1, 2, GROUPS | MANY | COMBS);
    rig.client.set_dirty_max(4 * MIB, 8 * MIB);
    rig
}

fn opened(rig: &Rig, how: OpenHow) -> u64 {
    let client = rig.client.clone();
    let mut open = rig.start(async move { client.open(FILE, how, CRED).await });
    let layout = Some(Arc::new(Layout::raid0(STRIPE as u32, vec![0, 1]).unwrap()));
    rig.answer(&rig.take(), reply(MdtReply::Opened { attr: attr(0, 10), layout }, &[]));
    rig.poll(&mut open).unwrap().unwrap().handle
}

fn writes(rig: &Rig, handle: u64, at: u64, len: u64) -> Verb<Result<usize>> {
    let (client, bytes) = (rig.client.clone(), Bytes::from(vec![7; len as usize]));
    rig.begin(async move { client.write(handle, at, bytes, false).await })
}

/// A write that is answered at once, without any request.
fn keep(rig: &Rig, handle: u64, at: u64) {
    let kept = rig.poll(&mut writes(rig, handle, at, RECORD));
    assert_eq!((kept, rig.is_silent()), (Some(Ok(RECORD as usize)), true), "{at}");
}

/// Everything that OSTs are asked to write is written: records of a length, or pieces.
fn osts_write(rig: &Rig) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    while let Some((header, request)) = rig.take_if_any() {
        let len = match request {
            Request::Ost(OstRequest::Write { offset, .. }) => {
                all.push((offset, 0));
                None
            }
            Request::Ost(OstRequest::WriteMany { pieces, .. }) => {
                all.extend(pieces.iter().map(|piece| piece.range()));
                Some(pieces.iter().map(|piece| piece.range().1).sum::<u64>())
            }
            other => panic!("{other:?}"),
        };
        let len = len.unwrap_or(RECORD) as u32;
        let body = OstReply::Written { len, boot_epoch: 5, granted: 4 * MIB };
        rig.answer(&header, Reply::ok(ReplyBody::Ost(body)));
        rig.run();
    }
    all
}

/// The lock that is asked for is one on everything.
fn take_whole(rig: &Rig) -> (Header, LockMode) {
    match rig.take_mdt() {
        (header, MdtRequest::Enqueue { mode, bits: DATA, .. }) => (header, mode),
        other => panic!("{other:?}"),
    }
}

/// It is a part.
fn take_part(rig: &Rig) -> (Header, Comb) {
    match rig.take_mdt() {
        (header, MdtRequest::EnqueuePart { fid: FILE, comb }) => (header, comb),
        other => panic!("{other:?}"),
    }
}

fn stale() -> Attr {
    Attr { size_stale: true, ..attr(3, 10) }
}

fn grants(rig: &Rig, to: &Header, id: u64, mode: LockMode) {
    rig.answer(to, reply(MdtReply::Inode { attr: stale() }, &[grant(id, mode, DATA)]));
}

fn grants_part(rig: &Rig, to: &Header, id: u64, comb: Comb) {
    let part = grant(id, LockMode::Part, DATA);
    rig.answer(to, reply(MdtReply::Parted { attr: stale(), comb }, &[part]));
}

/// The first so many records, one after the other, under a lock that others share.
fn under_shared(rig: &Rig, handle: u64, records: u64, id: u64) -> Header {
    under_shared_with(rig, handle, (records, STEP), id)
}

fn under_shared_with(rig: &Rig, handle: u64, (records, step): (u64, u64), id: u64) -> Header {
    let mut asked = None;
    for number in 0..records {
        let mut write = writes(rig, handle, FIRST + number * step, RECORD);
        assert!(rig.poll(&mut write).is_none());
        if number == 0 {
            let (header, mode) = take_whole(rig);
            assert_eq!(mode, LockMode::Cw);
            grants(rig, &header, id, LockMode::Cw);
            asked = Some(header);
            assert!(rig.poll(&mut write).is_none());
        }
        assert_eq!(osts_write(rig).len(), 1, "nothing is kept: {number}");
        assert_eq!(rig.poll(&mut write), Some(Ok(RECORD as usize)));
    }
    asked.unwrap()
}

/// A lock is called back, and goes.
fn cancelled(rig: &Rig) -> (u64, Option<SizeReport>) {
    let (header, request) = rig.take_mdt();
    let MdtRequest::Cancel { id, report, .. } = request else { panic!("{request:?}") };
    rig.answer(&header, reply(MdtReply::Done, &[]));
    (id.0, report)
}

fn loses(rig: &Rig, id: u64, like: &Header) -> Option<SizeReport> {
    rig.call_back(id, like);
    rig.kernel_is_done();
    let (gone, report) = cancelled(rig);
    assert_eq!(gone, id);
    report
}

/// A file of which a part is held, and nothing kept. Its first OST has promised room.
fn parted() -> (Rig, u64, Header) {
    let rig = rig();
    let handle = opened(&rig, WRITE);
    let asked = under_shared(&rig, handle, 5, 1);
    assert!(loses(&rig, 1, &asked).is_some());
    let mut write = writes(&rig, handle, record(5), RECORD);
    assert!(rig.poll(&mut write).is_none());
    let (header, asked) = take_part(&rig);
    assert_eq!(asked, comb(record(0)));
    grants_part(&rig, &header, 2, asked);
    assert_eq!(rig.poll(&mut write), Some(Ok(RECORD as usize)), "it is kept");
    assert!(rig.is_silent());
    rig.later(SECOND_NS);
    assert_eq!(osts_write(&rig).len(), 1);
    assert_eq!(rig.client.dirty_bytes(0), 0);
    (rig, handle, header)
}

#[test]
fn who_has_seen_his_records_asks_for_all_of_them_and_keeps_what_he_writes() {
    let (rig, handle, header) = parted();
    for number in 6..10 {
        keep(&rig, handle, record(number));
    }
    assert_eq!(rig.client.dirty_bytes(0), 4 * RECORD);
    // Called back, it goes when they are written out, which begins at once.
    rig.client.introduce(FILE);
    rig.call_back(2, &header);
    let invals = rig.kernel_says(true);
    assert!(invals.iter().all(|what| !format!("{what:?}").contains("Data")), "{invals:?}");
    rig.kernel_is_done();
    let (many, request) = rig.take_request();
    assert!(matches!(request, Request::Ost(OstRequest::WriteMany { .. })), "{request:?}");
    assert!(rig.is_silent(), "not before they are written");
    let body = OstReply::Written { len: 4 * RECORD as u32, boot_epoch: 5, granted: 0 };
    rig.answer(&many, Reply::ok(ReplyBody::Ost(body)));
    rig.run();
    let (gone, report) = cancelled(&rig);
    let report = report.map(|report| (report.size, report.mtime.is_some()));
    assert_eq!((gone, report), (2, Some((record(9) + RECORD, true))));
    // Who has seen his records asks for them at once.
    assert!(rig.poll(&mut writes(&rig, handle, record(10), RECORD)).is_none());
    assert_eq!(take_part(&rig).1, comb(record(0)));
}

#[test]
fn a_record_in_two_objects_is_kept_like_others_and_goes_in_two() {
    let (rig, handle, header) = parted();
    for number in 6..ACROSS {
        keep(&rig, handle, record(number));
    }
    // The other OST has promised nothing so far: what is kept goes first, then this.
    let mut write = writes(&rig, handle, record(ACROSS), RECORD);
    assert!(rig.poll(&mut write).is_none());
    let (many, request) = rig.take_request();
    assert!(matches!(request, Request::Ost(OstRequest::WriteMany { .. })), "{request:?}");
    assert!(rig.is_silent());
    let len = (ACROSS - 6) * RECORD;
    let body = OstReply::Written { len: len as u32, boot_epoch: 5, granted: 4 * MIB };
    rig.answer(&many, Reply::ok(ReplyBody::Ost(body)));
    assert!(rig.poll(&mut write).is_none());
    let (mut parts, mut done) = (0, None);
    while let Some((header, request)) = rig.take_if_any() {
        let Request::Ost(OstRequest::Write { object, .. }) = request else { panic!("{request:?}") };
        let first = STRIPE - record(ACROSS);
        let len = if object.stripe == 0 { first } else { RECORD - first };
        let body = OstReply::Written { len: len as u32, boot_epoch: 5, granted: 4 * MIB };
        rig.answer(&header, Reply::ok(ReplyBody::Ost(body)));
        parts += 1;
        done = done.or_else(|| rig.poll(&mut write));
    }
    assert_eq!((parts, done), (2, Some(Ok(RECORD as usize))));
    // Now both have. It lies in two objects once more, and is kept.
    keep(&rig, handle, record(ACROSS));
    assert_eq!(rig.client.dirty_bytes(0) + rig.client.dirty_bytes(1), RECORD);
    let report = {
        rig.call_back(2, &header);
        rig.kernel_is_done();
        let mut left = 2;
        while left > 0 {
            let (header, request) = rig.take_request();
            let Request::Ost(OstRequest::Write { object, .. }) = request else {
                panic!("{request:?}")
            };
            let first = STRIPE - record(ACROSS);
            let len = if object.stripe == 0 { first } else { RECORD - first };
            let body = OstReply::Written { len: len as u32, boot_epoch: 5, granted: 0 };
            rig.answer(&header, Reply::ok(ReplyBody::Ost(body)));
            left -= 1;
        }
        rig.run();
        cancelled(&rig).1
    };
    assert_eq!(report.map(|report| report.size), Some(record(ACROSS) + RECORD));
}

/// Reads, foreign records, and what is longer than a record, need more than the part.
#[test]
fn what_is_not_in_the_part_is_asked_for_as_ever() {
    let (rig, handle, _) = parted();
    let asks = |offset, len, mode| {
        assert!(rig.poll(&mut writes(&rig, handle, offset, len)).is_none());
        assert_eq!(take_whole(&rig).1, mode, "{offset} {len}");
    };
    asks(record(7) + 2000, RECORD, LockMode::Cw);
    asks(record(8), RECORD + 1, LockMode::Cw);
    asks(0, 1, LockMode::Cw);
    asks(record(ACROSS) - 500, RECORD + 600, LockMode::Pw);
    let (client, buffer) = (rig.client.clone(), BytesMut::new());
    let at = record(7);
    let mut look = rig.begin(async move { client.read_past_cache(handle, at, 10, buffer).await });
    assert!(rig.poll(&mut look).is_none());
    assert_eq!(take_whole(&rig).1, LockMode::Cw);
    let (client, buffer) = (rig.client.clone(), BytesMut::new());
    let mut read = rig.begin(async move { client.read(handle, at, 10, buffer).await });
    assert!(rig.poll(&mut read).is_none());
    assert_eq!(take_whole(&rig).1, LockMode::Pw);
    let (client, data) = (rig.client.clone(), Bytes::from_static(b"at the end"));
    let mut append = rig.begin(async move { client.write(handle, 0, data, true).await });
    assert!(rig.poll(&mut append).is_none());
    assert_eq!(take_whole(&rig).1, LockMode::Pw);
}

#[test]
fn what_goes_past_what_is_kept_waits_for_it() {
    let (rig, handle, _) = parted();
    let through = opened(&rig, OpenHow { sync: true, ..WRITE });
    keep(&rig, handle, record(6));
    keep(&rig, handle, record(7));
    let mut write = writes(&rig, through, record(6), RECORD);
    assert!(rig.poll(&mut write).is_none());
    let (many, request) = rig.take_request();
    assert!(matches!(request, Request::Ost(OstRequest::WriteMany { .. })), "{request:?}");
    assert!(rig.poll(&mut write).is_none() && rig.is_silent(), "older bytes would come last");
    let body = OstReply::Written { len: 2 * RECORD as u32, boot_epoch: 5, granted: 0 };
    rig.answer(&many, Reply::ok(ReplyBody::Ost(body)));
    assert!(rig.poll(&mut write).is_none());
    let (_, request) = rig.take_request();
    assert!(matches!(request, Request::Ost(OstRequest::Write { .. })), "{request:?}");
}

/// Two ranks of one mount: while one part goes nothing is kept under the other, and the last one tells.
#[test]
fn before_any_part_goes_all_is_written_out_and_the_last_tells() {
    let (rig, handle, header) = parted();
    let other = opened(&rig, WRITE);
    // Under the first part nothing else may be written, and so it is asked for a whole one; what comes is
    // another part, as if four of its records had been written before.
    for number in 0..4 {
        let at = record(number) + 2000;
        let mut write = writes(&rig, other, at, RECORD);
        assert!(rig.poll(&mut write).is_none());
        assert_eq!(take_whole(&rig).1, LockMode::Cw);
        drop(write);
    }
    let mut write = writes(&rig, other, record(4) + 2000, RECORD);
    assert!(rig.poll(&mut write).is_none());
    let (asked, second) = take_part(&rig);
    assert_eq!(second, comb(record(0) + 2000));
    grants_part(&rig, &asked, 3, second);
    assert_eq!(rig.poll(&mut write), Some(Ok(RECORD as usize)));
    keep(&rig, handle, record(6));
    rig.call_back(2, &header);
    rig.kernel_is_done();
    let (many, request) = rig.take_request();
    let Request::Ost(OstRequest::WriteMany { pieces, .. }) = request else { panic!("{request:?}") };
    assert_eq!(pieces.len(), 2, "of both");
    // Meanwhile what is written under the other goes to its OST, when that is done.
    let mut through = writes(&rig, other, record(5) + 2000, RECORD);
    assert!(rig.poll(&mut through).is_none() && rig.is_silent());
    let body = OstReply::Written { len: 2 * RECORD as u32, boot_epoch: 5, granted: 0 };
    rig.answer(&many, Reply::ok(ReplyBody::Ost(body)));
    rig.run();
    let mut cancel = None;
    let mut written = 0;
    assert!(rig.poll(&mut through).is_none());
    while let Some((header, request)) = rig.take_if_any() {
        match request {
            Request::Mdt(MdtRequest::Cancel { id, report, .. }) => {
                cancel = Some((id, report.is_some()));
                rig.answer(&header, reply(MdtReply::Done, &[]));
            }
            Request::Ost(OstRequest::Write { .. }) => {
                let len = RECORD as u32;
                let body = OstReply::Written { len, boot_epoch: 5, granted: 0 };
                rig.answer(&header, Reply::ok(ReplyBody::Ost(body)));
                written += 1;
            }
            other => panic!("{other:?}"),
        }
        rig.run();
    }
    assert_eq!((cancel, written), (Some((LockId(2), false)), 1), "the other knows it, too");
    assert_eq!(rig.poll(&mut through), Some(Ok(RECORD as usize)));
    let last = record(6) + RECORD;
    assert_eq!(loses(&rig, 3, &header).map(|report| report.size), Some(last));
}

#[test]
fn who_has_a_shared_lock_gives_it_back_when_others_have_seen_their_records_too() {
    let rig = rig();
    let handle = opened(&rig, WRITE);
    under_shared(&rig, handle, 16, 1);
    // The record in two objects would need a whole lock as it is: a part is as good.
    let mut write = writes(&rig, handle, record(16), RECORD);
    assert!(rig.poll(&mut write).is_none());
    rig.kernel_is_done();
    let (gone, report) = cancelled(&rig);
    assert_eq!((gone, report.map(|report| report.size)), (1, Some(record(15) + RECORD)));
    let (asked, all) = take_part(&rig);
    assert_eq!(all, comb(record(0)));
    grants_part(&rig, &asked, 2, all);
    assert!(rig.poll(&mut write).is_none());
    assert!(matches!(rig.take_ost().1, OstRequest::Write { .. }), "nothing is promised there");
}

#[test]
fn who_asked_in_vain_asks_for_no_part_for_a_while() {
    let (rig, handle, header) = parted();
    let ask_in_vain = |number: u64, id: u64| {
        let mut write = writes(&rig, handle, record(number), RECORD);
        assert!(rig.poll(&mut write).is_none());
        grants(&rig, &take_part(&rig).0, id, LockMode::Cw);
        assert!(rig.poll(&mut write).is_none());
        osts_write(&rig);
        assert_eq!(rig.poll(&mut write), Some(Ok(RECORD as usize)));
        loses(&rig, id, &header);
    };
    loses(&rig, 2, &header);
    ask_in_vain(6, 3);
    rig.pass(2 * SECOND_NS - 1);
    assert!(rig.poll(&mut writes(&rig, handle, record(7), RECORD)).is_none());
    let (whole, mode) = take_whole(&rig);
    assert_eq!(mode, LockMode::Cw);
    grants(&rig, &whole, 4, LockMode::Cw);
    loses(&rig, 4, &header);
    rig.pass(1);
    ask_in_vain(8, 5);
    rig.pass(2 * SECOND_NS);
    assert!(rig.poll(&mut writes(&rig, handle, record(9), RECORD)).is_none());
    take_part(&rig);
}

#[test]
fn who_writes_a_segment_asks_for_a_range_and_goes_by_what_he_is_given() {
    let rig = rig();
    let handle = opened(&rig, WRITE);
    let at = |number: u64| FIRST + number * RECORD;
    let shared = under_shared_with(&rig, handle, (5, RECORD), 1);
    assert!(loses(&rig, 1, &shared).is_some());
    let asks = |number: u64, len: u64, id: u64| {
        let mut write = writes(&rig, handle, at(number), RECORD);
        assert!(rig.poll(&mut write).is_none());
        let (header, asked) = take_part(&rig);
        assert_eq!(Some(asked), Comb::range(at(0), 16 * MIB), "from the first one on");
        grants_part(&rig, &header, id, Comb::range(at(0), len).unwrap());
        write
    };
    assert_eq!(rig.poll(&mut asks(5, 7 * RECORD, 2)), Some(Ok(RECORD as usize)));
    keep(&rig, handle, at(6));
    assert_eq!(rig.client.dirty_bytes(0), 2 * RECORD);
    // Another one's begins in the middle of the next record, so that this is of no use.
    let mut write = asks(7, 7 * RECORD + 500, 3);
    assert!(rig.poll(&mut write).is_none());
    let (whole, mode) = take_whole(&rig);
    assert_eq!(mode, LockMode::Cw);
    for id in [2, 3] {
        rig.call_back(id, &whole);
    }
    rig.kernel_is_done();
    let (kept, _) = rig.take_request();
    let body = OstReply::Written { len: 2 * RECORD as u32, boot_epoch: 5, granted: 4 * MIB };
    rig.answer(&kept, Reply::ok(ReplyBody::Ost(body)));
    rig.run();
    assert_eq!([cancelled(&rig).0, cancelled(&rig).0], [2, 3]);
    // It was asked for before that: as ever it goes, and the next one is believed.
    grants(&rig, &whole, 4, LockMode::Cw);
    assert_eq!(cancelled(&rig).0, 4);
    assert!(rig.poll(&mut write).is_none());
    let (whole, mode) = take_whole(&rig);
    assert_eq!(mode, LockMode::Cw);
    grants(&rig, &whole, 5, LockMode::Cw);
    assert!(rig.poll(&mut write).is_none());
    assert_eq!(osts_write(&rig).first(), Some(&(at(7), 0)));
    assert_eq!(rig.poll(&mut write), Some(Ok(RECORD as usize)));
    // Nor is any asked for soon after.
    for number in 8..30 {
        let mut write = writes(&rig, handle, at(number), RECORD);
        assert!(rig.poll(&mut write).is_none());
        assert!(osts_write(&rig).contains(&(at(number), 0)));
        assert_eq!(rig.poll(&mut write), Some(Ok(RECORD as usize)));
    }
}

/// One that comes with other records than it says, or without any, is nothing that may be used.
#[test]
fn a_part_without_its_records_is_not_believed() {
    let rig = rig();
    let handle = opened(&rig, WRITE);
    let mut write = writes(&rig, handle, record(0), RECORD);
    assert!(rig.poll(&mut write).is_none());
    grants(&rig, &take_whole(&rig).0, 1, LockMode::Part);
    assert_eq!(rig.poll(&mut write), Some(Err(Errno::EPROTO)));
    let mut write = writes(&rig, handle, record(0), RECORD);
    assert!(rig.poll(&mut write).is_none());
    assert_eq!(take_whole(&rig).1, LockMode::Cw, "none is held");
}

#[test]
fn an_mdt_that_does_not_know_parts_is_asked_for_none() {
    let rig = Rig::with_features(1, 2, GROUPS | MANY);
    let handle = opened(&rig, WRITE);
    let asked = under_shared(&rig, handle, 16, 1);
    loses(&rig, 1, &asked);
    assert!(rig.poll(&mut writes(&rig, handle, record(16), RECORD)).is_none());
    assert_eq!(take_whole(&rig).1, LockMode::Pw);
}

#[test]
fn after_a_restart_parts_are_told_also_one_that_is_being_given_back() {
    let (rig, handle, _) = parted();
    keep(&rig, handle, record(6));
    let restarts = |boot_epoch: u64, generation: u32, follows: u64, asked: &Header| {
        rig.answer(asked, Reply::error(Errno::ESTALE));
        let (connect, request) = rig.take_request();
        assert!(matches!(request, Request::Connect { .. }), "{request:?}");
        let durable = u64::MAX;
        let features = GROUPS | COMBS;
        let says = ReplyBody::Connected { features, boot_epoch, generation, follows, durable };
        rig.answer(&connect, Reply::ok(says));
    };
    let told = || {
        let (claim, request) = rig.take_mdt();
        let MdtRequest::ReclaimParts { parts } = request else { panic!("{request:?}") };
        assert_eq!(parts, [HeldPart { fid: FILE, id: LockId(2), comb: comb(record(0)) }]);
        rig.answer(&claim, reply(MdtReply::Done, &[]));
        let (claim, request) = rig.take_mdt();
        let MdtRequest::Reclaim { locks, last: true, .. } = request else { panic!("{request:?}") };
        assert!(locks.is_empty(), "{locks:?}");
        rig.answer(&claim, reply(MdtReply::Done, &[]));
    };
    let client = rig.client.clone();
    let _asks = rig.start(async move { client.listxattr(FILE).await });
    let asked = rig.take();
    restarts(6, 9, 5, &asked);
    told();
    // What was kept is there yet, and may be added to.
    let again = rig.take();
    keep(&rig, handle, record(7));
    assert_eq!(rig.client.dirty_bytes(0), 2 * RECORD);
    rig.answer(&again, reply(MdtReply::Bytes(Bytes::new()), &[]));
    rig.call_back(2, &again);
    rig.kernel_is_done();
    let (many, request) = rig.take_request();
    assert!(matches!(request, Request::Ost(OstRequest::WriteMany { .. })), "{request:?}");
    let body = OstReply::Written { len: 2 * RECORD as u32, boot_epoch: 5, granted: 0 };
    rig.answer(&many, Reply::ok(ReplyBody::Ost(body)));
    rig.run();
    let (cancel, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Cancel { report: Some(_), .. }), "{request:?}");
    restarts(7, 10, 6, &cancel);
    let (_, request) = rig.take_mdt();
    let left: &[HeldPart] = match &request {
        MdtRequest::ReclaimParts { parts } => parts,
        MdtRequest::Reclaim { .. } => &[],
        other => panic!("{other:?}"),
    };
    assert_eq!(left.len(), 1, "whether it was given back nobody knows");
}

#[test]
fn what_an_evicted_client_kept_of_its_part_is_lost_and_told() {
    let (rig, handle, header) = parted();
    keep(&rig, handle, record(6));
    rig.evict(&header);
    assert_eq!(rig.client.dirty_bytes(0), 0);
    assert_eq!(rig.client.flush_file(handle), Err(Errno::EIO));
}

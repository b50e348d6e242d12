//! What is to be destroyed waits until no more comes, and not where somebody may wait for it.

use sateen_types::{Fid, Timestamp};
use sateen_wire::{Body, Header, Message, OstReply, Reply, ReplyBody, Request};

use super::*;
use crate::osp::tests::{FENCED, answer, connected, osp, sent};
use crate::osp::{Done, Job, Osp};

const DELAY_NS: u64 = 1_000_000_000;
/// When the first of them came.
const BEGIN_NS: u64 = 7;

fn object(oid: u32) -> ObjectId {
    ObjectId { fid: Fid { oid, ..Fid::ROOT }, stripe: 0 }
}

fn small(oid: u32) -> Removal {
    Removal { object: object(oid), late_writers: false, bytes: 4096 }
}

/// One that waits for a second, over one OST that was asked for its space.
fn gathering() -> (Osp, Header) {
    let mut osp = osp();
    let connect = sent(&mut osp, 1)[0].header;
    answer(&mut osp, &connect, connected(10, 100));
    let statfs = sent(&mut osp, 2)[0].header;
    osp.set_destroy_delay(DELAY_NS);
    assert_eq!(destroyed(&sent(&mut osp, 3)), [] as [usize; 0]);
    assert!(!osp.asks());
    (osp, statfs)
}

/// How many objects each of the requests is to destroy.
fn destroyed(sent: &[Message]) -> Vec<usize> {
    let count = |message: &Message| match &message.body {
        Body::Request(Request::Ost(OstRequest::Destroy { objects, .. })) => Some(objects.len()),
        _ => None,
    };
    sent.iter().filter_map(count).collect()
}

/// Whether this one waits, and is then sent when no other has come.
#[track_caller]
fn waits(osp: &mut Osp, removal: Removal) {
    assert!(osp.destroy(3, removal));
    assert_eq!(destroyed(&sent(osp, BEGIN_NS)), [] as [usize; 0]);
    assert!(!osp.asks() && osp.destroys());
    assert_eq!(destroyed(&sent(osp, BEGIN_NS + DELAY_NS)), [1]);
}

/// Whether all go now that wait.
#[track_caller]
fn go_at_once(osp: &mut Osp, count: usize) {
    assert_eq!(destroyed(&sent(osp, BEGIN_NS)), [count]);
    assert!(osp.asks());
}

fn space(avail: u64, files_free: u64) -> StatFs {
    let (bytes_total, files_total) = (8000, 800);
    let (bytes_free, bytes_avail) = (avail, avail);
    StatFs { bytes_total, bytes_free, bytes_avail, files_total, files_free, object_bytes_max: 0 }
}

fn told(osp: &mut Osp, statfs: &Header, space: StatFs) {
    let body = ReplyBody::Ost(OstReply::StatFs(space));
    assert!(matches!(answer(osp, statfs, body), Some(Done::StatFs { ost: 3, .. })));
}

#[test]
fn they_wait_until_no_more_come() {
    let (mut osp, _) = gathering();
    let mut now_ns = BEGIN_NS;
    for oid in 0..100 {
        assert!(osp.destroy(3, small(oid)));
        // The group commits that bring them.
        now_ns += DELAYS_MAX * DELAY_NS / 200;
        assert_eq!(destroyed(&sent(&mut osp, now_ns)), [] as [usize; 0]);
        assert!(!osp.asks(), "there is nothing to be done");
    }
    assert!(osp.destroys(), "and yet it is not over");
    assert_eq!(destroyed(&sent(&mut osp, now_ns + DELAY_NS - 1)), [] as [usize; 0]);
    now_ns += DELAY_NS;
    let all = sent(&mut osp, now_ns);
    assert_eq!(destroyed(&all), [DESTROYED_MAX, 100 - DESTROYED_MAX]);
    assert!(osp.asks(), "they are to be answered");
    // The next ones have all of their time.
    assert!(osp.destroy(3, small(100)));
    assert_eq!(destroyed(&sent(&mut osp, now_ns + 1)), [] as [usize; 0]);
    let done = all.iter().filter_map(|to| answer(&mut osp, &to.header, ReplyBody::Empty));
    assert_eq!(done.filter(|done| matches!(done, Done::Destroyed(_))).count(), 2);
    assert_eq!(destroyed(&sent(&mut osp, now_ns + DELAY_NS)), [] as [usize; 0]);
    assert!(!osp.asks() && osp.destroys());
    assert_eq!(destroyed(&sent(&mut osp, now_ns + 1 + DELAY_NS)), [1]);
}

#[test]
fn others_that_come_stop_them_for_ten_delays_at_most() {
    let (mut osp, _) = gathering();
    let many = 20 * DESTROYED_MAX as u32;
    for oid in 0..many {
        osp.destroy(3, small(oid));
    }
    assert_eq!(destroyed(&sent(&mut osp, BEGIN_NS)), [] as [usize; 0]);
    let begun = sent(&mut osp, BEGIN_NS + DELAY_NS);
    assert_eq!(destroyed(&begun), [DESTROYED_MAX; 6], "as many as there are slots for");
    osp.destroy(3, small(many));
    for message in &begun {
        answer(&mut osp, &message.header, ReplyBody::Empty);
    }
    let mut oid = many;
    for at_ns in (DELAY_NS + 1..DELAYS_MAX * DELAY_NS).step_by(DELAY_NS as usize / 2) {
        assert_eq!(destroyed(&sent(&mut osp, BEGIN_NS + at_ns)), [] as [usize; 0], "{at_ns}");
        oid += 1;
        osp.destroy(3, small(oid));
    }
    let there = (oid + 1) as usize - 6 * DESTROYED_MAX;
    let mut now_ns = BEGIN_NS + DELAYS_MAX * DELAY_NS;
    let (mut gone, mut behind) = (0, 0);
    while gone < there {
        let sent = sent(&mut osp, now_ns);
        // Those that come meanwhile wait anew, but where there is room in a request.
        for _ in 0..DESTROYED_MAX {
            oid += 1;
            osp.destroy(3, small(oid));
            behind += 1;
        }
        let count: usize = destroyed(&sent).into_iter().sum();
        assert!(count > 0);
        gone += count;
        for message in &sent {
            answer(&mut osp, &message.header, ReplyBody::Empty);
        }
        now_ns += 1;
    }
    assert!(gone - there < DESTROYED_MAX && behind > 2 * DESTROYED_MAX);
    assert_eq!(destroyed(&sent(&mut osp, now_ns + DELAY_NS - 2)), [] as [usize; 0]);
    let rest = destroyed(&sent(&mut osp, now_ns + 2 * DELAY_NS)).into_iter().sum::<usize>();
    assert_eq!(rest, (there + behind - gone).min(6 * DESTROYED_MAX));
}

/// What has gone is not counted with those that come later.
#[test]
fn what_is_gone_makes_nobody_go() {
    let (mut osp, _) = gathering();
    let mut now_ns = BEGIN_NS;
    for oid in 0..10 {
        osp.destroy(3, Removal { bytes: GATHERED_BYTES_MAX / 2, ..small(2 * oid) });
        assert_eq!(destroyed(&sent(&mut osp, now_ns)), [] as [usize; 0]);
        now_ns += DELAY_NS;
        let all = sent(&mut osp, now_ns);
        assert_eq!(destroyed(&all), [1]);
        for message in &all {
            answer(&mut osp, &message.header, ReplyBody::Empty);
        }
        assert!(!osp.destroys());
        // A long time without any.
        now_ns += 20 * DELAY_NS;
    }
}

#[test]
fn what_somebody_may_write_to_takes_the_others_along() {
    let (mut osp, _) = gathering();
    osp.destroy(3, small(0));
    osp.destroy(3, Removal { late_writers: true, ..small(1) });
    // In the order of their coming, each with its kind.
    assert_eq!(destroyed(&sent(&mut osp, BEGIN_NS)), [1, 1]);
    assert!(osp.destroys());
}

#[test]
fn where_little_room_is_left_nothing_waits() {
    for tight in [space(999, 800), space(8000, 99)] {
        let (mut osp, statfs) = gathering();
        told(&mut osp, &statfs, tight);
        osp.destroy(3, small(0));
        go_at_once(&mut osp, 1);
    }
    let (mut osp, statfs) = gathering();
    told(&mut osp, &statfs, space(1000, 100));
    waits(&mut osp, small(0));
    // A file system that makes inodes as it needs them.
    let (mut osp, statfs) = gathering();
    told(&mut osp, &statfs, StatFs { files_total: 0, ..space(1000, 0) });
    waits(&mut osp, small(0));
    let (mut osp, _) = gathering();
    waits(&mut osp, small(0));
}

/// Whoever was refused may have removed something before, and tries again.
#[test]
fn what_waits_goes_when_somebody_found_no_room() {
    let (mut osp, statfs) = gathering();
    osp.destroy(3, small(0));
    assert_eq!(destroyed(&sent(&mut osp, BEGIN_NS)), [] as [usize; 0]);
    osp.had_no_room(3);
    assert!(osp.asks(), "a tick is to come");
    go_at_once(&mut osp, 1);
    osp.destroy(3, small(1));
    go_at_once(&mut osp, 1);
    // Now it has room.
    told(&mut osp, &statfs, space(8000, 800));
    osp.destroy(3, small(2));
    assert_eq!(destroyed(&sent(&mut osp, BEGIN_NS)), [] as [usize; 0]);
}

#[test]
fn much_does_not_wait() {
    let (mut osp, _) = gathering();
    osp.destroy(3, Removal { bytes: GATHERED_BYTES_MAX - 4096, ..small(0) });
    assert_eq!(destroyed(&sent(&mut osp, BEGIN_NS)), [] as [usize; 0]);
    osp.destroy(3, small(1));
    go_at_once(&mut osp, 2);
    // What is not known to be short.
    let (mut osp, _) = gathering();
    osp.destroy(3, Removal { bytes: u64::MAX, ..small(0) });
    osp.destroy(3, Removal { bytes: u64::MAX, ..small(1) });
    go_at_once(&mut osp, 2);
}

#[test]
fn many_do_not_wait() {
    let (mut osp, _) = gathering();
    let empty = |oid| Removal { bytes: 0, ..small(oid) };
    for oid in 1..GATHERED_MAX as u32 {
        osp.destroy(3, empty(oid));
    }
    assert_eq!(destroyed(&sent(&mut osp, BEGIN_NS)), [] as [usize; 0]);
    osp.destroy(3, empty(0));
    // As many as there are slots for, and the others behind them, without waiting anew.
    let mut all = sent(&mut osp, BEGIN_NS);
    let mut count = 0;
    while !all.is_empty() {
        count += destroyed(&all).into_iter().sum::<usize>();
        for message in all {
            answer(&mut osp, &message.header, ReplyBody::Empty);
        }
        all = sent(&mut osp, BEGIN_NS);
    }
    assert_eq!(count, GATHERED_MAX);
    assert!(!osp.asks() && !osp.destroys());
}

#[test]
fn another_delay_holds_for_those_that_wait() {
    let (mut osp, _) = gathering();
    osp.destroy(3, small(0));
    assert_eq!(destroyed(&sent(&mut osp, BEGIN_NS)), [] as [usize; 0]);
    osp.set_destroy_delay(0);
    assert!(osp.asks(), "a tick is to come");
    go_at_once(&mut osp, 1);
}

#[test]
fn they_wait_for_the_ost_and_for_fences_as_ever() {
    let (mut osp, _) = gathering();
    osp.destroy(3, small(0));
    osp.fence(FENCED);
    osp.push(3, Job::Punch { version: 1, object: object(9), size: 0 });
    let fence = sent(&mut osp, BEGIN_NS);
    assert_eq!(fence.len(), 1, "the fence alone");
    assert!(sent(&mut osp, BEGIN_NS + DELAY_NS).is_empty());
    answer(&mut osp, &fence[0].header, ReplyBody::Empty);
    assert_eq!(destroyed(&sent(&mut osp, BEGIN_NS + DELAY_NS)), [1]);
    // What it refused is tried again, and its end waits for that no longer.
    let (mut osp, _) = gathering();
    osp.set_destroy_delay(0);
    osp.destroy(3, small(0));
    let asked = sent(&mut osp, BEGIN_NS)[0].header;
    assert!(osp.destroys());
    let refused = Reply::error(sateen_types::Errno::EIO);
    assert!(osp.on_reply(Timestamp::default(), &asked.reply(), refused).is_none());
    assert!(!osp.destroys() && osp.asks());
}

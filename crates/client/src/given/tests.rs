//! What of a given file is shown, told and known.

use super::*;
use crate::testing::attr;

fn at(sec: i64) -> Timespec {
    Timespec { sec, nsec: 0 }
}

fn object(size: u64, mtime: i64) -> ObjectAttr {
    let object = ObjectId { fid: Fid::ROOT, stripe: 0 };
    ObjectAttr { object, size, blocks: 8, mtime: at(mtime), ctime: at(mtime), atime: at(mtime) }
}

fn given(told: ObjectAttr) -> InodeState {
    let mut state = InodeState::default();
    let away = GivenAway {
        phase: Phase::On,
        object: told.object,
        layout_gen: 1,
        at: Unsynced { ost: 0, boot_epoch: 1 },
        told: Some(told),
        ..GivenAway::begins(told.object.fid)
    };
    state.given = Some(Box::new(away));
    state
}

fn told(state: &InodeState) -> ObjectAttr {
    state.basis().and_then(|basis| basis.told).expect("it is given")
}

#[test]
fn a_file_that_was_only_read_is_not_told_to_be_written() {
    let (told, own) = (object(70, 50), Attr { size: 70, ..attr(Fid::ROOT, 5) });
    assert_eq!(news(own, &told, Some(&told)), None);
    let other = ObjectAttr { blocks: 16, ctime: at(60), ..told };
    assert_eq!(news(own, &other, Some(&told)), None);
    assert_eq!(shown(own, &other, Some(&told)).ctime, own.ctime);
    let read = ObjectAttr { atime: at(i64::MAX / 2), ..other };
    let report = SizeReport { size: 0, blocks: 0, mtime: None, atime: Some(read.atime) };
    assert_eq!(news(own, &read, Some(&told)), Some(report));
}

#[test]
fn what_was_written_is_told_with_its_mtime_also_if_the_size_is_as_it_was() {
    let (told, own) = (object(70, 50), Attr { size: 70, ..attr(Fid::ROOT, 5) });
    let now = ObjectAttr { mtime: at(60), ..told };
    let report = news(own, &now, Some(&told)).map(|report| (report.size, report.mtime));
    assert_eq!(report, Some((70, Some(at(60)))));
    let report = news(own, &ObjectAttr { size: 90, ..told }, Some(&told));
    assert_eq!(report.map(|report| (report.size, report.mtime)), Some((90, Some(own.mtime))));
}

#[test]
fn what_the_mdt_answers_is_told_and_nothing_else() {
    let mut state = given(object(70, 50));
    // A write that came behind the answer is news still, whatever its size and time are.
    let answer = Attr { size: 10, mtime: at(7), atime: at(8), ..attr(Fid::ROOT, 5) };
    state.answered_given(&answer, (true, false, false));
    assert_eq!(told(&state), ObjectAttr { size: 10, ..object(70, 50) });
    state.answered_given(&answer, (false, true, true));
    assert_eq!(told(&state), ObjectAttr { size: 10, mtime: at(7), atime: at(8), ..object(70, 50) });
}

#[test]
fn a_report_is_told_when_it_has_arrived() {
    let (before, now) = (object(70, 50), object(90, 60));
    for arrived in [false, true] {
        let mut state = given(before);
        state.meta_known = true;
        let telling = Telling { object: now, told_of: None };
        state.given.as_mut().expect("it is given").telling = Some(telling);
        assert_eq!(told(&state), before, "not before");
        state.reported_given(arrived);
        assert_eq!(told(&state), if arrived { now } else { before });
        assert_eq!(state.meta_known, !arrived, "its mtime is that of before");
    }
}

//! A lock that is called back, and what was written under it goes out slowly.

use sateen_types::Endpoint;
use sateen_wire::{
    GROUPS, Header, LockId, MdtReply, MdtRequest, OstReply, OstRequest, PROGRESS, Request,
};

use super::{MIB, PAGE, keep, keeper, keeper_at, ost};
use crate::rig::{FILE, Rig, reply};

/// Two runs are kept, and their lock is called back: both are on their way.
fn called(rig: &Rig, handle: u64, opened: &Header) -> [Header; 2] {
    rig.client.set_rpc_pages_max(Endpoint::Ost(0), 16).unwrap();
    for page in [0, 1, 32] {
        keep(rig, handle, page * PAGE, PAGE);
    }
    rig.call_back(1, opened);
    rig.kernel_is_done();
    [(); 2].map(|()| {
        let (header, request) = rig.take_request();
        assert!(matches!(request, Request::Ost(OstRequest::Write { .. })), "{request:?}");
        header
    })
}

fn written(rig: &Rig, header: &Header, len: u64) {
    let body = OstReply::Written { len: len as u32, boot_epoch: 5, granted: MIB };
    rig.answer(header, ost(body));
}

#[test]
fn who_is_called_back_again_says_what_was_done_if_anything_was() {
    let (rig, handle, opened) = keeper_at(Rig::with_features(1, 1, GROUPS | PROGRESS));
    let [first, second] = called(&rig, handle, &opened);
    rig.call_back(1, &opened);
    assert!(rig.is_silent(), "nothing was done");
    written(&rig, &first, 2 * PAGE);
    assert!(rig.is_silent(), "it is not asked");
    rig.call_back(1, &opened);
    let (header, request) = rig.take_mdt();
    assert_eq!(request, MdtRequest::GoesOn { fid: FILE, id: LockId(1), done: MIB }, "at least");
    rig.answer(&header, reply(MdtReply::Done, &[]));
    rig.call_back(1, &opened);
    assert!(rig.is_silent(), "nothing more");
    written(&rig, &second, PAGE);
    rig.kernel_is_done();
    let (_, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Cancel { id: LockId(1), .. }), "{request:?}");
    rig.call_back(1, &opened);
    assert!(rig.is_silent(), "the cancel says it");
}

#[test]
fn an_mdt_that_does_not_know_it_is_told_nothing() {
    let (rig, handle, opened) = keeper();
    let [first, _] = called(&rig, handle, &opened);
    written(&rig, &first, 2 * PAGE);
    rig.call_back(1, &opened);
    assert!(rig.is_silent());
}

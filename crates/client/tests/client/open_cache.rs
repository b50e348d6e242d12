//! Opens that are kept: when the MDT hears of a close, and when it need not be asked for an open.

use sateen_client::{Client, OpenHow};
use sateen_types::{Errno, Layout, Result};
use sateen_wire::{Header, Ibits, LockMode, MdtReply, MdtRequest, OpenId};
use std::sync::Arc;

use crate::rig::{CRED, FILE, Rig, WRITE, attr, grant, reply};

const META: Ibits = Ibits::META;
const DATA: Ibits = Ibits::DATA;
const READ: OpenHow = OpenHow { read: true, write: false, ..WRITE };

/// Opens the file, which the MDT is asked for.
fn open(rig: &Rig, how: OpenHow) -> (u64, Header) {
    let client = rig.client.clone();
    let mut open = rig.start(async move { client.open(FILE, how, CRED).await });
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Open { .. }), "{request:?}");
    let layout = Some(Arc::new(Layout::raid0(1 << 20, vec![0]).unwrap()));
    let locks = [grant(1, LockMode::Pr, DATA), grant(2, LockMode::Pr, META)];
    rig.answer(&header, reply(MdtReply::Opened { attr: attr(1, 10), layout }, &locks));
    (rig.poll(&mut open).unwrap().unwrap().handle, header)
}

/// Opens it, which asks nobody.
fn open_again(rig: &Rig) -> Result<u64> {
    let client = rig.client.clone();
    let opened = rig.now(async move { client.open(FILE, READ, CRED).await });
    assert!(rig.is_silent());
    opened.map(|opened| opened.handle)
}

/// Closes it, of which the MDT hears: by that number.
fn close(rig: &Rig, handle: u64) -> OpenId {
    let client = rig.client.clone();
    let mut closing = rig.start(async move { client.close(handle).await });
    let closed = is_closed(rig);
    assert_eq!(rig.poll(&mut closing), Some(Ok(())));
    closed
}

fn is_closed(rig: &Rig) -> OpenId {
    let (header, request) = rig.take_mdt();
    let MdtRequest::Close { open_id, .. } = request else { panic!("{request:?}") };
    rig.answer(&header, reply(MdtReply::Done, &[]));
    open_id
}

/// Closes it, of which nobody hears.
fn close_here(rig: &Rig, handle: u64) {
    let client = rig.client.clone();
    assert_eq!(rig.now(async move { client.close(handle).await }), Ok(()));
    assert!(rig.is_silent());
}

/// The file was opened and closed twice, and is kept.
fn kept() -> (Rig, u64, Header) {
    let rig = Rig::with_osts(1);
    let (first, _) = open(&rig, READ);
    assert!(rig.client.introduce(FILE), "the kernel knows it");
    close(&rig, first);
    let (second, header) = open(&rig, READ);
    close_here(&rig, second);
    assert_eq!((rig.client.census().files, rig.client.census().opens_kept), (0, 1));
    (rig, second, header)
}

#[test]
fn the_second_close_is_kept_back_and_the_next_open_asks_nobody() {
    let (rig, second, _) = kept();
    for round in 1..=3 {
        let handle = open_again(&rig).unwrap();
        assert_eq!(handle, second, "the MDT has it open under this number");
        let census = rig.client.census();
        assert_eq!((census.files, census.opens_kept, census.opens_reused), (1, 0, round));
        close_here(&rig, handle);
    }
    // Two at a time are two for the MDT, and one of them is kept.
    let third = open_again(&rig).unwrap();
    let (fourth, _) = open(&rig, READ);
    close_here(&rig, fourth);
    assert_eq!(close(&rig, third), OpenId { id: third });
}

#[test]
fn who_writes_or_executes_asks_for_an_open_of_its_own() {
    for how in [WRITE, OpenHow { exec: true, ..READ }, OpenHow { truncate: true, ..READ }] {
        let (rig, ..) = kept();
        let client = rig.client.clone();
        let opening = rig.start(async move { client.open(FILE, how, CRED).await });
        let (_, request) = rig.take_mdt();
        assert!(matches!(request, MdtRequest::Open { .. }), "{how:?}: {request:?}");
        drop(opening);
    }
}

#[test]
fn who_takes_the_names_lock_back_has_it_closed() {
    let (rig, second, header) = kept();
    rig.call_back(2, &header);
    rig.kernel_is_done();
    let mut asked = Vec::new();
    while let Some((header, request)) = rig.take_if_any() {
        asked.push(request);
        rig.answer(&header, reply(MdtReply::Done, &[]));
    }
    let closes = |request: &sateen_wire::Request| {
        matches!(request, sateen_wire::Request::Mdt(MdtRequest::Close { open_id, .. })
            if *open_id == OpenId { id: second })
    };
    assert!(asked.len() == 2 && asked.iter().any(closes), "a cancel and a close: {asked:?}");
    assert_eq!(rig.client.census().opens_kept, 0);
    open(&rig, READ);
}

#[test]
fn what_the_kernel_forgets_is_closed() {
    let (rig, second, _) = kept();
    rig.client.forget(FILE, 1);
    rig.run();
    assert_eq!(is_closed(&rig), OpenId { id: second });
    assert_eq!(rig.client.census().opens_kept, 0);
}

#[test]
fn what_was_kept_open_ends_with_an_eviction() {
    let (rig, _, header) = kept();
    rig.evict(&header);
    rig.kernel_is_done();
    for target in [
        sateen_types::Endpoint::Mgs,
        sateen_types::Endpoint::Mdt(0),
        sateen_types::Endpoint::Ost(0),
    ] {
        rig.accept(target);
    }
    assert_eq!(rig.client.census().opens_kept, 0);
    let (handle, _) = open(&rig, READ);
    let client: &Client = &rig.client;
    assert_ne!(client.still_open(handle), Err(Errno::EIO));
}

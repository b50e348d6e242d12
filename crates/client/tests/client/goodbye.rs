//! Goodbyes: who is told that a client goes, and told again.

#![allow(clippy::indexing_slicing)]

use sateen_types::{Endpoint, Errno};
use sateen_wire::{Header, MdtReply, MdtRequest, Reply, ReplyBody, Request};

use crate::network::{open, start_write, take_write, written};
use crate::rig::{CRED, FILE, Rig, Verb, WRITE, attr, reply};

const SECOND_NS: u64 = 1_000_000_000;

/// The client leaves; the goodbyes that it says at once.
fn leave(rig: &Rig) -> (Verb<()>, Vec<Header>) {
    let client = rig.client.clone();
    let leaving = rig.start(async move { client.unmount().await });
    (leaving, take_goodbyes(rig))
}

fn take_goodbyes(rig: &Rig) -> Vec<Header> {
    let mut goodbyes = Vec::new();
    while let Some((header, request)) = rig.take_if_any() {
        assert_eq!(request, Request::Disconnect);
        goodbyes.push(header);
    }
    goodbyes.sort_by_key(|header| header.to);
    goodbyes
}

fn targets(headers: &[Header]) -> Vec<Endpoint> {
    headers.iter().map(|header| header.to).collect()
}

#[test]
fn a_goodbye_to_nobody_is_said() {
    let rig = Rig::with_osts(2);
    let (mut leaving, to_osts) = leave(&rig);
    assert_eq!(targets(&to_osts), [Endpoint::Ost(0), Endpoint::Ost(1)], "the OSTs first");
    for goodbye in &to_osts {
        assert!(rig.poll(&mut leaving).is_none() && rig.is_silent());
        rig.answer(goodbye, Reply::error(Errno::ESHUTDOWN));
    }
    assert!(rig.poll(&mut leaving).is_none());
    let others = take_goodbyes(&rig);
    assert_eq!(targets(&others), [Endpoint::Mgs, Endpoint::Mdt(0)]);
    rig.answer(&others[0], Reply::error(Errno::ESHUTDOWN));
    assert!(rig.poll(&mut leaving).is_none());
    // That is known of who does not listen, not of one whose connection broke.
    rig.answer(&others[1], Reply::error(Errno::ECONNRESET));
    assert!(rig.poll(&mut leaving).is_none());
    rig.tick();
    assert_eq!(take_goodbyes(&rig), [others[1]]);
    // It had heard it, and has forgotten us; or it was restarted, and waits for us.
    rig.answer(&others[1], Reply::error(Errno::ESTALE));
    assert!(rig.poll(&mut leaving).is_none());
    rig.accept(Endpoint::Mdt(0));
    // Either way it knows that connection now: to it goodbye is said, too, or it would wait for
    // us until we are silent for too long.
    assert!(rig.poll(&mut leaving).is_none());
    let again = take_goodbyes(&rig);
    assert_eq!(targets(&again), [Endpoint::Mdt(0)]);
    rig.answer(&again[0], Reply::ok(ReplyBody::Empty));
    assert!(rig.poll(&mut leaving).is_some() && rig.is_silent());
}

#[test]
fn who_was_given_something_says_goodbye_again_too() {
    let rig = Rig::with_osts(0);
    let client = rig.client.clone();
    let mut making = rig.start(async move { client.open(FILE, WRITE, CRED).await });
    let opened = MdtReply::Opened { attr: attr(0, 0), layout: None };
    rig.answer(&rig.take(), reply(opened, &[]));
    rig.poll(&mut making).unwrap().unwrap();
    let (mut leaving, others) = leave(&rig);
    assert_eq!(targets(&others), [Endpoint::Mgs, Endpoint::Mdt(0)]);
    rig.answer(&others[0], Reply::ok(ReplyBody::Empty));
    rig.answer(&others[1], Reply::error(Errno::ESTALE));
    rig.accept(Endpoint::Mdt(0));
    // It has lost what it had given; nothing is left to be forgotten, and it connects at once.
    assert!(rig.poll(&mut leaving).is_none());
    rig.accept(Endpoint::Mdt(0));
    assert!(rig.poll(&mut leaving).is_none());
    let again = take_goodbyes(&rig);
    assert_eq!(targets(&again), [Endpoint::Mdt(0)]);
    rig.answer(&again[0], Reply::ok(ReplyBody::Empty));
    assert!(rig.poll(&mut leaving).is_some() && rig.is_silent());
}

#[test]
fn a_goodbye_to_one_that_has_restarted_is_said() {
    let rig = Rig::with_osts(1);
    let (mut leaving, to_osts) = leave(&rig);
    rig.answer(&to_osts[0], Reply::error(Errno::ESTALE));
    assert!(rig.poll(&mut leaving).is_none());
    let others = take_goodbyes(&rig);
    assert_eq!(targets(&others), [Endpoint::Mgs, Endpoint::Mdt(0)], "the others hear it");
    for goodbye in &others {
        rig.answer(goodbye, Reply::ok(ReplyBody::Empty));
    }
    assert!(rig.poll(&mut leaving).is_some());
}

#[test]
fn a_goodbye_is_repeated_and_not_waited_for_long() {
    let rig = Rig::with_osts(1);
    let (mut leaving, to_osts) = leave(&rig);
    // The answer was lost.
    rig.pass(SECOND_NS);
    rig.tick();
    assert_eq!(rig.take(), to_osts[0]);
    // It never comes, and whoever waits at most so long has waited.
    rig.time_passes();
    assert!(rig.poll(&mut leaving).is_none());
    assert_eq!(take_goodbyes(&rig).len(), 2);
    rig.time_passes();
    assert!(rig.poll(&mut leaving).is_some());
}

#[test]
fn what_was_written_is_told_before_the_goodbye() {
    for closed in [false, true] {
        let rig = Rig::with_osts(1);
        let handle = open(&rig, 0);
        rig.client.introduce(FILE);
        let mut writing = start_write(&rig, handle);
        rig.answer(&take_write(&rig), written(5));
        assert_eq!(rig.poll(&mut writing), Some(Ok(10)));
        let client = rig.client.clone();
        let mut closing = closed.then(|| {
            let close = rig.start(async move { client.close(handle).await });
            (close, rig.take_mdt())
        });
        let client = rig.client.clone();
        let mut leaving = rig.start(async move { client.unmount().await });
        let header = match &mut closing {
            Some((_, (header, MdtRequest::Close { report: Some(_), .. }))) => {
                assert!(rig.is_silent(), "it is on its way");
                *header
            }
            Some((_, (_, other))) => panic!("{other:?}"),
            None => {
                let (header, request) = rig.take_mdt();
                assert!(matches!(request, MdtRequest::ReportSize { .. }), "{request:?}");
                header
            }
        };
        rig.answer(&header, reply(MdtReply::Done, &[]));
        if let Some((closing, _)) = &mut closing {
            assert_eq!(rig.poll(closing), Some(Ok(())));
        }
        assert!(rig.poll(&mut leaving).is_none());
        assert_eq!(take_goodbyes(&rig).len(), 1);
    }
}

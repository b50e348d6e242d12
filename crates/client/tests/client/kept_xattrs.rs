//! Extended attributes and targets of symbolic links that were asked for before.

use bytes::Bytes;
use sateen_types::{Errno, Result};
use sateen_wire::{
    Header, Ibits, LockMode, MdtReply, MdtRequest, Reply, Request, SetAttr, XattrMode,
};

use crate::rig::{CRED, FILE, Rig, Verb, attr, grant, reply};

type Ask = fn(&Rig) -> Verb<Result<Bytes>>;

const ALL: [Ask; 3] = [target, names, value];

fn target(rig: &Rig) -> Verb<Result<Bytes>> {
    let client = rig.client.clone();
    rig.begin(async move { client.readlink(FILE).await })
}

fn names(rig: &Rig) -> Verb<Result<Bytes>> {
    let client = rig.client.clone();
    rig.begin(async move { client.listxattr(FILE).await })
}

fn value(rig: &Rig) -> Verb<Result<Bytes>> {
    let client = rig.client.clone();
    rig.begin(async move { client.getxattr(FILE, b"user.a").await })
}

/// A mount whose kernel knows the file, with a lock on its names and attributes.
fn known() -> (Rig, Header) {
    let rig = Rig::mounted();
    rig.client.introduce(FILE);
    let client = rig.client.clone();
    let mut look = rig.start(async move { client.getattr(FILE).await });
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::GetAttr { .. }), "{request:?}");
    let bits = Ibits::META.union(Ibits::DATA);
    let body = MdtReply::Inode { attr: attr(3, 10) };
    rig.answer(&header, reply(body, &[grant(1, LockMode::Pr, bits)]));
    assert!(rig.poll(&mut look).unwrap().is_ok());
    (rig, header)
}

/// Asks, of which the MDT hears.
fn asks(rig: &Rig, ask: Ask, answer: Reply) -> Result<Bytes> {
    let mut asking = ask(rig);
    assert!(rig.poll(&mut asking).is_none());
    let (header, _) = rig.take_mdt();
    rig.answer(&header, answer);
    rig.poll(&mut asking).unwrap()
}

fn bytes(of: &'static [u8]) -> Reply {
    reply(MdtReply::Bytes(Bytes::from_static(of)), &[])
}

/// Asks nobody.
fn knows(rig: &Rig, ask: Ask) -> Result<Bytes> {
    let mut asking = ask(rig);
    let known = rig.poll(&mut asking);
    assert!(rig.is_silent());
    known.unwrap()
}

/// Something that one side does to the attributes.
type Change = fn(&Rig) -> Verb<Result<()>>;

#[test]
fn what_was_asked_once_is_known_until_the_lock_is_called_back() {
    for ask in ALL {
        let (rig, header) = known();
        assert_eq!(asks(&rig, ask, bytes(b"one")), Ok(Bytes::from_static(b"one")));
        for _ in 0..3 {
            assert_eq!(knows(&rig, ask), Ok(Bytes::from_static(b"one")));
        }
        rig.call_back(1, &header);
        rig.kernel_is_done();
        let Some((header, Request::Mdt(MdtRequest::Cancel { .. }))) = rig.take_if_any() else {
            panic!("no cancel")
        };
        assert_eq!(asks(&rig, ask, bytes(b"two")), Ok(Bytes::from_static(b"two")));
        rig.answer(&header, reply(MdtReply::Done, &[]));
        assert_eq!(asks(&rig, ask, bytes(b"two")), Ok(Bytes::from_static(b"two")), "no lock");
    }
}

/// The MDT may have answered before it granted the lock, and another have changed it in between.
#[test]
fn what_was_asked_before_the_lock_was_there_is_not_kept() {
    for (ask, is_first) in ALL.into_iter().flat_map(|ask| [(ask, true), (ask, false)]) {
        let rig = Rig::mounted();
        rig.client.introduce(FILE);
        let mut asking = ask(&rig);
        let client = rig.client.clone();
        let mut look = rig.begin(async move { client.getattr(FILE).await });
        if is_first {
            assert!(rig.poll(&mut asking).is_none() && rig.poll(&mut look).is_none());
        } else {
            assert!(rig.poll(&mut look).is_none() && rig.poll(&mut asking).is_none());
        }
        let requests = [rig.take_mdt(), rig.take_mdt()];
        let (looks, asks_it): (Vec<_>, Vec<_>) = requests
            .into_iter()
            .partition(|(_, request)| matches!(request, MdtRequest::GetAttr { .. }));
        let bits = Ibits::META.union(Ibits::DATA);
        let body = MdtReply::Inode { attr: attr(3, 10) };
        rig.answer(&looks[0].0, reply(body, &[grant(1, LockMode::Pr, bits)]));
        assert!(rig.poll(&mut look).unwrap().is_ok());
        rig.answer(&asks_it[0].0, bytes(b"old"));
        assert_eq!(rig.poll(&mut asking), Some(Ok(Bytes::from_static(b"old"))));
        assert_eq!(asks(&rig, ask, bytes(b"new")), Ok(Bytes::from_static(b"new")));
        assert_eq!(knows(&rig, ask), Ok(Bytes::from_static(b"new")));
    }
}

#[test]
fn that_there_is_none_is_known_too_and_no_other_error() {
    let (rig, _) = known();
    assert_eq!(asks(&rig, value, Reply::error(Errno::ENOSPC)), Err(Errno::ENOSPC));
    assert_eq!(asks(&rig, value, Reply::error(Errno::ENODATA)), Err(Errno::ENODATA));
    assert_eq!(knows(&rig, value), Err(Errno::ENODATA));
}

#[test]
fn own_changes_and_those_that_may_be_are_asked_for_anew() {
    for succeeds in [true, false] {
        let changes: [Change; 3] = [
            |rig| {
                let client = rig.client.clone();
                let (value, mode) = (Bytes::from_static(b"new"), XattrMode::Any);
                rig.begin(async move { client.setxattr(FILE, b"user.a", value, mode).await })
            },
            |rig| {
                let client = rig.client.clone();
                rig.begin(async move { client.removexattr(FILE, b"user.a").await })
            },
            |rig| {
                let client = rig.client.clone();
                let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
                rig.begin(async move { client.setattr(FILE, set, CRED).await.map(drop) })
            },
        ];
        // A chmod that fails is no change of these.
        for change in changes.into_iter().take(if succeeds { 3 } else { 2 }) {
            let (rig, _) = known();
            asks(&rig, value, bytes(b"old")).unwrap();
            let mut changing = change(&rig);
            assert!(rig.poll(&mut changing).is_none());
            let (header, request) = rig.take_mdt();
            let answer = match request {
                MdtRequest::SetAttr { .. } => reply(MdtReply::Inode { attr: attr(4, 10) }, &[]),
                _ => reply(MdtReply::Done, &[]),
            };
            rig.answer(&header, if succeeds { answer } else { Reply::error(Errno::EIO) });
            rig.kernel_is_done();
            let _ = rig.poll(&mut changing);
            assert!(asks(&rig, value, bytes(b"new")).is_ok());
        }
    }
}

#[test]
fn a_capability_goes_with_the_next_write_and_is_not_known() {
    let (rig, _) = known();
    let ask: Ask = |rig| {
        let client = rig.client.clone();
        rig.begin(async move { client.getxattr(FILE, b"security.capability").await })
    };
    for _ in 0..2 {
        asks(&rig, ask, bytes(b"all")).unwrap();
        asks(&rig, names, bytes(b"security.capability\0user.a\0")).unwrap();
    }
    asks(&rig, ask, Reply::error(Errno::ENODATA)).unwrap_err();
    assert_eq!(knows(&rig, ask), Err(Errno::ENODATA));
}

//! What cannot be in a directory that this client has made, or has read: a create there asks once.

use sateen_client::Entry;
use sateen_types::{Attr, DirCookie, Errno, Fid, FileKind, Name, Result, Seq};
use sateen_wire::{
    Body, Bulk, Callback, DirEntry, Grant, Header, Ibits, LockId, LockMode, MdtReply, MdtRequest,
    Message, Reply, ReplyBody,
};

use crate::rig::{CRED, Rig, Verb, attr, reply};

const SEQ: Seq = Seq(0x2_0000_0500);

fn mknod(rig: &Rig, parent: Fid, name: &'static [u8], mode: u32) -> Verb<Result<Entry>> {
    let client = rig.client.clone();
    rig.start(async move { client.mknod(parent, name, mode, 0, b"", CRED).await })
}

/// Something is made, under this lock of it; the request's header.
fn made(rig: &Rig, parent: Fid, name: &'static [u8], mode: u32, lock: u64) -> (Fid, Header) {
    let mut making = mknod(rig, parent, name, mode);
    let (mut header, mut request) = rig.take_mdt();
    if request == MdtRequest::GrantSeq {
        rig.answer(&header, reply(MdtReply::Sequence(SEQ), &[]));
        assert!(rig.poll(&mut making).is_none());
        (header, request) = rig.take_mdt();
    }
    let MdtRequest::Create { fid, .. } = request else { panic!("{request:?}") };
    let attr = Attr { fid, mode, nlink: 2, ..attr(3, 0) };
    let lock = Grant { id: LockId(lock), fid, mode: LockMode::Pr, bits: Ibits::META };
    let body = MdtReply::Created { attr, layout: None, existed: false, parent: None };
    rig.answer(&header, reply(body, &[lock]));
    // The kernel is to forget the attributes of the directory that it is made in.
    let entry = rig.poll(&mut making).or_else(|| {
        rig.kernel_is_done();
        rig.poll(&mut making)
    });
    entry.unwrap().unwrap();
    assert!(rig.is_silent());
    (fid, header)
}

/// Looks a name up that is not there; whether the MDT was asked.
fn asks(rig: &Rig, parent: Fid, name: &[u8]) -> bool {
    let name = name.to_vec();
    let client = rig.client.clone();
    let mut looking = rig.begin(async move { client.lookup(parent, &name).await });
    let (found, asked) = match rig.poll(&mut looking) {
        Some(found) => (found, false),
        None => {
            let (header, request) = rig.take_mdt();
            assert!(matches!(request, MdtRequest::Lookup { .. }), "{request:?}");
            rig.answer(&header, Reply::error(Errno::ENOENT));
            (rig.poll(&mut looking).unwrap(), true)
        }
    };
    assert!(found.unwrap().inode.is_none());
    asked
}

/// Another client wants to change the directory.
fn call_back(rig: &Rig, fid: Fid, id: u64, like: &Header) {
    let body = Body::Callback(Callback::Blocking { fid, id: LockId(id) });
    rig.client.on_message(Message { header: like.reply(), body, bulk: Bulk::None });
    rig.run();
    rig.kernel_is_done();
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Cancel { .. }), "{request:?}");
    rig.answer(&header, Reply::ok(ReplyBody::Mdt(MdtReply::Done)));
}

#[test]
fn what_was_never_put_there_is_not_looked_up() {
    let rig = Rig::with_osts(1);
    let (dir, _) = made(&rig, Fid::ROOT, b"dir", 0o040_755, 1);
    assert!(!asks(&rig, dir, b"a"));
    made(&rig, dir, b"a", 0o040_755, 2);
    assert!(asks(&rig, dir, b"a"), "another may have removed it, but not another client");
    assert!(!asks(&rig, dir, b"b"));
    assert!(asks(&rig, Fid::ROOT, b"b"), "nobody knows what is there");
}

#[test]
fn names_that_come_by_link_and_rename_are_known() {
    let rig = Rig::with_osts(1);
    let (dir, _) = made(&rig, Fid::ROOT, b"dir", 0o040_755, 1);
    let (other, _) = made(&rig, Fid::ROOT, b"other", 0o040_755, 2);
    let client = rig.client.clone();
    let flags = sateen_wire::RenameFlags::default();
    let mut moving =
        rig.start(async move { client.rename((other, b"x"), (dir, b"moved"), flags).await });
    // Before the answer, too: it may have happened already.
    let (header, _) = rig.take_mdt();
    assert!(asks(&rig, dir, b"moved"));
    rig.answer(&header, Reply::error(Errno::ENOENT));
    assert_eq!(rig.poll(&mut moving), Some(Err(Errno::ENOENT)));
    let client = rig.client.clone();
    let _linking = rig.start(async move { client.link(other, dir, b"linked").await });
    let (_, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Link { .. }), "{request:?}");
    assert!(asks(&rig, dir, b"linked") && !asks(&rig, dir, b"else"));
}

#[test]
fn who_had_to_give_the_lock_back_looks() {
    let rig = Rig::with_osts(1);
    let (dir, header) = made(&rig, Fid::ROOT, b"dir", 0o040_755, 1);
    call_back(&rig, dir, 1, &header);
    assert!(asks(&rig, dir, b"a"));
    // A lock that comes later says nothing of what others have put there meanwhile.
    locks(&rig, dir, 3);
    assert!(asks(&rig, dir, b"a"));
}

/// The directory's attributes are asked for, and its lock comes with them.
fn locks(rig: &Rig, dir: Fid, id: u64) -> Header {
    let client = rig.client.clone();
    let mut looking = rig.start(async move { client.getattr(dir).await });
    let (header, _) = rig.take_mdt();
    let attr = Attr { fid: dir, mode: 0o040_755, ..attr(4, 0) };
    let lock = Grant { id: LockId(id), fid: dir, mode: LockMode::Pr, bits: Ibits::META };
    rig.answer(&header, reply(MdtReply::Inode { attr }, &[lock]));
    rig.poll(&mut looking).unwrap().unwrap();
    header
}

/// A directory of others, and its lock; two names were looked up there in vain, and it is about to
/// be read: the request.
fn is_read(rig: &Rig, dir: Fid, id: u64) -> Header {
    locks(rig, dir, id);
    assert!(asks(rig, dir, b"one"));
    assert!(asks(rig, dir, b"two"));
    rig.run();
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::ReadDir { fid, .. } if fid == dir), "{request:?}");
    header
}

fn listing(names: &[&[u8]], end: bool) -> Reply {
    let entry = |(number, name): (usize, &&[u8])| DirEntry {
        cookie: DirCookie::from_raw(number as u64 + 1),
        fid: Fid { seq: SEQ, oid: 77, ver: 0 },
        kind: FileKind::Regular,
        name: Name::new(name).unwrap(),
        attr: None,
    };
    let entries = names.iter().enumerate().map(entry).collect();
    reply(MdtReply::Entries { entries, end, parent: Fid::ROOT }, &[])
}

const DIR: Fid = Fid { seq: Seq(0x2_0000_0600), oid: 9, ver: 0 };

#[test]
fn a_directory_of_others_is_read_after_some_names_that_were_not_there() {
    let rig = Rig::with_osts(1);
    let reading = is_read(&rig, DIR, 1);
    // What is asked for meanwhile is not in what the MDT has read.
    let mut making = mknod(&rig, DIR, b"mine", 0o040_755);
    let (mut header, mut request) = rig.take_mdt();
    if request == MdtRequest::GrantSeq {
        rig.answer(&header, reply(MdtReply::Sequence(SEQ), &[]));
        assert!(rig.poll(&mut making).is_none());
        (header, request) = rig.take_mdt();
    }
    assert!(matches!(request, MdtRequest::Create { .. }), "{request:?}");
    rig.answer(&header, Reply::error(Errno::ENOSPC));
    assert!(rig.poll(&mut making).unwrap().is_err());
    assert!(asks(&rig, DIR, b"three"), "it is not known yet");
    rig.answer(&reading, listing(&[b"theirs"], true));
    rig.run();
    assert!(!asks(&rig, DIR, b"three") && !asks(&rig, DIR, b"one"));
    assert!(asks(&rig, DIR, b"theirs") && asks(&rig, DIR, b"mine"));
    assert!(rig.is_silent());
}

#[test]
fn a_directory_whose_lock_went_while_it_was_read_is_not_known() {
    let rig = Rig::with_osts(1);
    let reading = is_read(&rig, DIR, 1);
    call_back(&rig, DIR, 1, &reading);
    locks(&rig, DIR, 2);
    rig.answer(&reading, listing(&[], true));
    rig.run();
    assert!(asks(&rig, DIR, b"three"));
}

#[test]
fn a_directory_that_one_request_does_not_tell_is_not_known() {
    let rig = Rig::with_osts(1);
    let reading = is_read(&rig, DIR, 1);
    rig.answer(&reading, listing(&[b"theirs"], false));
    rig.run();
    for name in [&b"a"[..], b"b", b"c"] {
        assert!(asks(&rig, DIR, name));
        rig.run();
        assert!(rig.is_silent(), "nor is it read again at once");
    }
}

/// The MDT may do it behind the listing, although nobody waits for it any more.
#[test]
fn a_directory_is_not_read_while_a_name_that_was_given_up_may_come() {
    let rig = Rig::with_osts(1);
    made(&rig, Fid::ROOT, b"dir", 0o040_755, 7);
    locks(&rig, DIR, 1);
    let making = mknod(&rig, DIR, b"late", 0o040_755);
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Create { .. }), "{request:?}");
    for name in [&b"a"[..], b"b", b"c"] {
        assert!(asks(&rig, DIR, name));
        rig.run();
        assert!(rig.is_silent());
    }
    drop(making);
    for name in [&b"d"[..], b"e", b"f"] {
        assert!(asks(&rig, DIR, name));
        rig.run();
        assert!(rig.is_silent());
    }
    rig.answer(&header, Reply::error(Errno::ENOSPC));
    rig.run();
    assert!(asks(&rig, DIR, b"g"));
    assert!(asks(&rig, DIR, b"h"));
    rig.run();
    let (_, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::ReadDir { .. }), "{request:?}");
}

/// Nothing was known of the directory when the call began, and it is not sent before it has a FID.
#[test]
fn a_directory_is_not_read_while_a_call_that_adds_a_name_has_yet_to_be_sent() {
    let rig = Rig::with_osts(1);
    let mut making = mknod(&rig, DIR, b"mine", 0o040_755);
    let (header, request) = rig.take_mdt();
    assert_eq!(request, MdtRequest::GrantSeq);
    locks(&rig, DIR, 1);
    for name in [&b"a"[..], b"b", b"c"] {
        assert!(asks(&rig, DIR, name));
        rig.run();
        assert!(rig.is_silent(), "a listing of now lacks what is about to be made");
    }
    rig.answer(&header, reply(MdtReply::Sequence(SEQ), &[]));
    assert!(rig.poll(&mut making).is_none());
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Create { .. }), "{request:?}");
    rig.answer(&header, Reply::error(Errno::ENOSPC));
    assert!(rig.poll(&mut making).unwrap().is_err());
    assert!(asks(&rig, DIR, b"d"));
    rig.run();
    let (_, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::ReadDir { .. }), "{request:?}");
}

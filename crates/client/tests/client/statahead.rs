//! Names that are looked up ahead of a program which lists a directory, and whether what was found
//! is believed.

use bytes::Bytes;
use sateen_client::{AtimePolicy, Entry, Listing};
use sateen_types::{Attr, DirCookie, Endpoint, Errno, Fid, FileKind, Name, Result, Seq};
use sateen_wire::{
    Body, Bulk, Callback, DirEntry, Grant, Header, Ibits, LockId, LockMode, MdtReply, MdtRequest,
    Message, Reply, ReplyBody, Request, XattrMode,
};

use crate::rig::{Rig, Verb, attr, reply};

const DIR: Fid = Fid { seq: Seq(0x2_0000_0600), oid: 9, ver: 0 };
const MDT: Endpoint = Endpoint::Mdt(0);

/// The file of a name of one letter.
fn file_of(name: &[u8]) -> Fid {
    Fid { seq: Seq(0x2_0000_0700), oid: u32::from(*name.last().unwrap()), ver: 0 }
}

fn lock_of(name: &[u8]) -> u64 {
    1000 + u64::from(file_of(name).oid)
}

fn meta(fid: Fid, id: u64, bits: Ibits) -> Grant {
    Grant { id: LockId(id), fid, mode: LockMode::Pr, bits }
}

fn done() -> Reply {
    Reply::ok(ReplyBody::Mdt(MdtReply::Done))
}

/// The directory is known, and locked.
fn locks_dir(rig: &Rig) -> Header {
    let client = rig.client.clone();
    let mut looking = rig.start(async move { client.getattr(DIR).await });
    let (header, _) = rig.take_mdt();
    let attr = Attr { fid: DIR, mode: 0o040_755, ..attr(4, 0) };
    let body = MdtReply::Inode { attr };
    rig.answer(&header, reply(body, &[meta(DIR, 1, Ibits::META)]));
    rig.poll(&mut looking).unwrap().unwrap();
    rig.client.introduce(DIR);
    header
}

fn reads(rig: &Rig) -> Verb<Result<Listing>> {
    let client = rig.client.clone();
    rig.begin(async move { client.readdir(DIR, DirCookie::START, 100, AtimePolicy::Never).await })
}

/// It is read from its beginning.
fn lists(rig: &Rig, names: &[&[u8]], end: bool) {
    let mut reading = reads(rig);
    assert!(rig.poll(&mut reading).is_none());
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::ReadDir { .. }), "{request:?}");
    rig.answer(&header, page(names, 0, end));
    assert_eq!(rig.poll(&mut reading).unwrap().unwrap().entries.len(), names.len());
}

/// The same once more, for which nobody is asked.
fn lists_again(rig: &Rig, names: &[&[u8]]) {
    let listing = rig.poll(&mut reads(rig)).unwrap().unwrap();
    assert!(rig.is_silent() && listing.end);
    assert_eq!(listing.entries.len(), names.len());
}

fn page(names: &[&[u8]], after: u64, end: bool) -> Reply {
    let entry = |(number, name): (usize, &&[u8])| DirEntry {
        cookie: DirCookie::from_raw(after + number as u64 + 10),
        fid: file_of(name),
        kind: FileKind::Regular,
        name: Name::new(name).unwrap(),
        attr: None,
    };
    let entries = names.iter().enumerate().map(entry).collect();
    reply(MdtReply::Entries { entries, end, parent: Fid::ROOT }, &[])
}

fn looks(rig: &Rig, name: &'static [u8]) -> Verb<Result<Entry>> {
    let client = rig.client.clone();
    rig.begin(async move { client.lookup(DIR, name).await })
}

/// Answers the oldest request, which is for a name; which.
fn answer_name(rig: &Rig) -> Vec<u8> {
    let (header, request) = rig.take_mdt();
    let MdtRequest::Lookup { name, .. } = request else { panic!("{request:?}") };
    let (fid, id) = (file_of(name.as_bytes()), lock_of(name.as_bytes()));
    let bits = Ibits::META.union(Ibits::DATA);
    let body = MdtReply::Inode { attr: Attr { fid, ..attr(5, 7) } };
    rig.answer(&header, reply(body, &[meta(fid, id, bits)]));
    name.as_bytes().to_vec()
}

/// A name is looked up; whether it was asked for, and what was found.
fn asks(rig: &Rig, name: &'static [u8]) -> (bool, Entry) {
    let mut looking = looks(rig, name);
    if let Some(found) = rig.poll(&mut looking) {
        rig.run();
        return (false, found.unwrap());
    }
    assert_eq!(answer_name(rig), name);
    (true, rig.poll(&mut looking).unwrap().unwrap())
}

/// A listing of these names, two of which were looked up, with the answers to what was asked ahead.
fn begun(rig: &Rig, names: &[&'static [u8]], end: bool) -> Header {
    let header = locks_dir(rig);
    lists(rig, names, end);
    let [first, second, ..] = names else { panic!("it takes two") };
    assert!(asks(rig, first).0 && rig.is_silent());
    assert!(asks(rig, second).0);
    header
}

/// All that was asked is answered, if it is for names; these.
fn answer_names(rig: &Rig) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    while !rig.is_silent() {
        names.push(answer_name(rig));
    }
    names
}

/// Another client wants a lock.
fn call_back(rig: &Rig, fid: Fid, id: u64, like: &Header) {
    let body = Body::Callback(Callback::Blocking { fid, id: LockId(id) });
    rig.client.on_message(Message { header: like.reply(), body, bulk: Bulk::None });
    rig.run();
    rig.kernel_is_done();
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Cancel { .. }), "{request:?}");
    rig.answer(&header, done());
}

const LETTERS: [&[u8]; 8] = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"];

#[test]
fn who_looks_at_what_is_listed_finds_the_next_names() {
    let rig = Rig::with_osts(1);
    begun(&rig, &LETTERS, true);
    assert_eq!(answer_names(&rig), [b"c", b"d", b"e", b"f"]);
    let (asked, entry) = asks(&rig, b"c");
    assert!(!asked && entry.held);
    let known = entry.inode.unwrap();
    assert!(known.held && known.attr.fid == file_of(b"c") && known.attr.size == 7);
    // Each that is taken makes it look further.
    assert_eq!(answer_names(&rig), [b"g", b"h"]);
    for name in &LETTERS[3..] {
        assert!(!asks(&rig, name).0, "{name:?}");
    }
    assert!(rig.is_silent());
    let stats = rig.client.statahead_stats();
    assert_eq!((stats.begun, stats.wrong, stats.hits, stats.misses), (1, 0, 6, 0));
}

#[test]
fn who_comes_before_the_answer_waits_for_it() {
    let rig = Rig::with_osts(1);
    begun(&rig, &LETTERS, true);
    let mut looking = looks(&rig, b"c");
    assert!(rig.poll(&mut looking).is_none());
    assert_eq!(answer_names(&rig), [b"c", b"d", b"e", b"f"]);
    let entry = rig.poll(&mut looking).unwrap().unwrap();
    assert_eq!(entry.inode.unwrap().attr.fid, file_of(b"c"));
}

/// The oldest request, which is for this name, is answered without locks.
fn answer_without_locks(rig: &Rig, wanted: &[u8]) {
    let (header, request) = rig.take_mdt();
    let MdtRequest::Lookup { name, .. } = request else { panic!("{request:?}") };
    assert_eq!(name.as_bytes(), wanted);
    let body = MdtReply::Inode { attr: Attr { fid: file_of(wanted), ..attr(5, 7) } };
    rig.answer(&header, reply(body, &[]));
}

#[test]
fn a_file_that_another_had_to_give_back_is_asked_for_once_more() {
    let rig = Rig::with_osts(1);
    begun(&rig, &LETTERS[..4], true);
    answer_without_locks(&rig, b"c");
    answer_without_locks(&rig, b"d");
    assert_eq!(answer_name(&rig), b"c");
    // It has got another writer.
    answer_without_locks(&rig, b"d");
    assert!(rig.is_silent());
    assert!(!asks(&rig, b"c").0 && asks(&rig, b"d").0);
}

#[test]
fn whose_program_is_there_already_is_not_asked_for_once_more() {
    let rig = Rig::with_osts(1);
    begun(&rig, &LETTERS[..4], true);
    let mut looking = looks(&rig, b"c");
    assert!(rig.poll(&mut looking).is_none());
    answer_without_locks(&rig, b"c");
    assert!(rig.poll(&mut looking).is_none());
    answer_without_locks(&rig, b"d");
    // The program's own question, and none beside it.
    assert_eq!(answer_names(&rig), [b"c", b"d"]);
    assert_eq!(rig.poll(&mut looking).unwrap().unwrap().inode.unwrap().attr.fid, file_of(b"c"));
}

#[test]
fn it_goes_on_until_the_last_who_lists_has_closed_the_directory() {
    let rig = Rig::with_osts(1);
    begun(&rig, &LETTERS, true);
    assert_eq!(answer_names(&rig).len(), 4);
    lists_again(&rig, &LETTERS);
    rig.client.close_dir(DIR);
    rig.run();
    assert!(rig.is_silent() && !asks(&rig, b"c").0);
    answer_names(&rig);
    rig.client.close_dir(DIR);
    rig.run();
    let (_, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Cancel { .. }), "what was not taken goes: {request:?}");
}

#[test]
fn what_there_were_no_slots_for_is_no_wrong_guess() {
    let rig = Rig::with_osts(1);
    rig.client.set_rpcs_max(MDT, 1).unwrap();
    let names: Vec<Vec<u8>> = (0..20).map(|n| format!("n{}", (b'A' + n) as char).into()).collect();
    let names: Vec<&'static [u8]> = names.into_iter().map(|name| &*name.leak()).collect();
    begun(&rig, &names, true);
    for name in &names[2..14] {
        assert!(rig.is_silent() && asks(&rig, name).0);
    }
    let stats = rig.client.statahead_stats();
    assert_eq!((stats.begun, stats.wrong, stats.hits, stats.misses), (1, 0, 0, 12));
    rig.client.set_rpcs_max(MDT, 8).unwrap();
    let mut looking = looks(&rig, names[14]);
    assert!(rig.poll(&mut looking).is_none());
    assert!(answer_names(&rig).len() > 1);
    assert!(!asks(&rig, names[15]).0);
}

#[test]
fn the_names_that_follow_are_read() {
    let rig = Rig::with_osts(1);
    begun(&rig, &LETTERS[..3], false);
    let (header, request) = rig.take_mdt();
    let MdtRequest::ReadDir { fid: DIR, after, .. } = request else { panic!("{request:?}") };
    assert_eq!(after, DirCookie::from_raw(12));
    assert_eq!(answer_names(&rig), [b"c"]);
    rig.answer(&header, page(&LETTERS[3..], 3, true));
    assert_eq!(answer_names(&rig), [b"d", b"e", b"f"]);
    assert!(!asks(&rig, b"c").0 && answer_names(&rig).len() == 2);
}

#[test]
fn whoever_only_lists_or_opens_one_file_costs_nothing_more() {
    let rig = Rig::with_osts(1);
    locks_dir(&rig);
    lists(&rig, &LETTERS, true);
    for name in [&b"a"[..], b"c", b"h", b"b"] {
        assert!(asks(&rig, name).0 && rig.is_silent(), "{name:?}");
    }
    rig.client.close_dir(DIR);
    assert!(asks(&rig, b"d").0 && asks(&rig, b"e").0);
    assert!(rig.is_silent());
    assert_eq!(rig.client.statahead_stats().begun, 0);
}

#[test]
fn it_can_be_switched_off() {
    let rig = Rig::with_osts(1);
    assert_eq!(rig.client.set_statahead_max(513), Err(Errno::ERANGE));
    begun(&rig, &LETTERS, true);
    assert_eq!(answer_names(&rig).len(), 4);
    rig.client.set_statahead_max(0).unwrap();
    rig.run();
    // What was found and not taken goes.
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Cancel { .. }), "{request:?}");
    rig.answer(&header, done());
    assert!(rig.is_silent());
    assert!(asks(&rig, b"c").0);
    lists_again(&rig, &LETTERS);
    assert!(asks(&rig, b"d").0 && asks(&rig, b"e").0 && rig.is_silent());
}

#[test]
fn hidden_names_are_left_out_like_the_program_does() {
    let rig = Rig::with_osts(1);
    let names: [&[u8]; 8] = [b".a", b"b", b"c", b".d", b"e", b"f", b".g", b"h"];
    locks_dir(&rig);
    lists(&rig, &names, true);
    assert!(asks(&rig, b"b").0 && asks(&rig, b"c").0);
    assert_eq!(answer_names(&rig), [b"e", b"f", b"h"]);
}

#[test]
fn what_a_callback_has_taken_is_asked_for() {
    let rig = Rig::with_osts(1);
    let like = begun(&rig, &LETTERS, true);
    assert_eq!(answer_names(&rig).len(), 4);
    // The file alone: it was renamed, perhaps.
    call_back(&rig, file_of(b"c"), lock_of(b"c"), &like);
    assert!(asks(&rig, b"c").0);
    answer_names(&rig);
    // The directory: each name stands under its own lock.
    call_back(&rig, DIR, 1, &like);
    let (asked, entry) = asks(&rig, b"d");
    assert!(!asked && entry.held);
    answer_names(&rig);
    call_back(&rig, file_of(b"e"), lock_of(b"e"), &like);
    assert!(asks(&rig, b"e").0);
}

#[test]
fn what_this_client_has_removed_is_not_believed() {
    let rig = Rig::with_osts(1);
    begun(&rig, &LETTERS, true);
    assert_eq!(answer_names(&rig).len(), 4);
    let client = rig.client.clone();
    let mut removing = rig.start(async move { client.unlink(DIR, b"d", false).await });
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Unlink { .. }), "{request:?}");
    // It may have happened, and others may know; of other names it says nothing.
    assert!(!asks(&rig, b"c").0);
    answer_names(&rig);
    removed(&rig, &mut removing, &header);
    assert!(asks(&rig, b"d").0, "its own locks have not kept it from that");
    assert!(!asks(&rig, b"e").0);
}

/// A removal is answered.
fn removed(rig: &Rig, removing: &mut Verb<Result<()>>, header: &Header) {
    rig.answer(header, reply(MdtReply::Removed { attr: None, parent: None }, &[]));
    let done = rig.poll(removing).or_else(|| {
        rig.kernel_is_done();
        rig.poll(removing)
    });
    done.unwrap().unwrap();
}

#[test]
fn what_is_on_its_way_while_this_client_removes_the_name_is_not_believed() {
    let rig = Rig::with_osts(1);
    begun(&rig, &LETTERS, true);
    let mut waiting = looks(&rig, b"c");
    assert!(rig.poll(&mut waiting).is_none());
    // Asked for before, answered during the removal, and looked up after it.
    let client = rig.client.clone();
    let mut removing = rig.begin(async move { client.unlink(DIR, b"c", false).await });
    assert!(rig.poll(&mut removing).is_none());
    for name in [b"c", b"d", b"e", b"f"] {
        assert_eq!(answer_name(&rig), name);
    }
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Unlink { .. }), "{request:?}");
    removed(&rig, &mut removing, &header);
    assert!(rig.poll(&mut waiting).is_none(), "he asks for himself");
    while !rig.is_silent() {
        let (header, request) = rig.take_mdt();
        match request {
            MdtRequest::Lookup { .. } => rig.answer(&header, Reply::error(Errno::ENOENT)),
            MdtRequest::Cancel { .. } => rig.answer(&header, done()),
            other => panic!("{other:?}"),
        }
    }
    assert!(rig.poll(&mut waiting).unwrap().unwrap().inode.is_none());
}

#[test]
fn who_removes_what_he_lists_asks_for_no_name_twice() {
    let rig = Rig::with_osts(1);
    locks_dir(&rig);
    lists(&rig, &LETTERS, true);
    let (mut waited, mut ahead) = (0, 0);
    for name in LETTERS {
        waited += usize::from(asks(&rig, name).0);
        ahead += answer_names(&rig).len();
        let client = rig.client.clone();
        let mut removing = rig.start(async move { client.unlink(DIR, name, false).await });
        let (header, request) = rig.take_mdt();
        assert!(matches!(request, MdtRequest::Unlink { .. }), "{request:?}");
        removed(&rig, &mut removing, &header);
    }
    assert_eq!((waited, ahead), (2, 6));
    let stats = rig.client.statahead_stats();
    assert_eq!((stats.begun, stats.wrong, stats.hits, stats.misses), (1, 0, 6, 0));
}

#[test]
fn who_looks_for_other_names_ends_it() {
    let rig = Rig::with_osts(1);
    let names: Vec<Vec<u8>> = (0..40).map(|n| format!("n{}", (b'A' + n) as char).into()).collect();
    let names: Vec<&'static [u8]> = names.into_iter().map(|name| &*name.leak()).collect();
    begun(&rig, &names, true);
    assert_eq!(answer_names(&rig).len(), 4);
    for other in [&b"1"[..], b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9"] {
        let mut looking = looks(&rig, other);
        assert!(rig.poll(&mut looking).is_none());
        let (header, request) = rig.take_mdt();
        assert!(matches!(request, MdtRequest::Lookup { .. }), "{request:?}");
        rig.answer(&header, Reply::error(Errno::ENOENT));
        assert!(rig.poll(&mut looking).unwrap().unwrap().inode.is_none());
        // A name that is not there may have the whole directory read.
        while let Some((header, request)) = rig.take_if_any() {
            let body = MdtReply::Entries { entries: Vec::new(), end: false, parent: Fid::ROOT };
            match request {
                Request::Mdt(MdtRequest::ReadDir { .. }) => {
                    rig.answer(&header, reply(body, &[]));
                }
                Request::Mdt(MdtRequest::Cancel { .. }) => rig.answer(&header, done()),
                other => panic!("{other:?}"),
            }
        }
    }
    let stats = rig.client.statahead_stats();
    assert_eq!((stats.begun, stats.wrong, stats.hits, stats.misses), (1, 1, 0, 9));
    assert!(asks(&rig, names[2]).0 && rig.is_silent());
}

#[test]
fn half_of_the_slots_are_left_to_others() {
    let rig = Rig::with_osts(1);
    rig.client.set_rpcs_max(MDT, 6).unwrap();
    locks_dir(&rig);
    lists(&rig, &LETTERS, true);
    assert!(asks(&rig, b"a").0);
    let mut looking = looks(&rig, b"b");
    assert!(rig.poll(&mut looking).is_none());
    // The program's own, and three ahead.
    assert_eq!(rig.client.import_info(MDT).unwrap().in_flight, 4);
    assert_eq!(answer_names(&rig).len(), 5, "another one for each that is answered");
}

fn xattr(rig: &Rig, name: &'static [u8]) -> Verb<Result<Bytes>> {
    let client = rig.client.clone();
    let fid = file_of(name);
    rig.begin(async move { client.getxattr(fid, b"security.selinux").await })
}

/// All that was asked is answered, if it is for the names of extended attributes: there are none.
fn answer_xattrs(rig: &Rig) -> usize {
    let mut times = 0;
    while let Some((header, request)) = rig.take_if_any() {
        let Request::Mdt(MdtRequest::ListXattr { .. }) = request else { panic!("{request:?}") };
        rig.answer(&header, reply(MdtReply::Bytes(Bytes::new()), &[]));
        times += 1;
    }
    times
}

/// Whether the MDT is asked for an extended attribute.
fn asks_xattr(rig: &Rig, name: &'static [u8]) -> bool {
    let mut looking = xattr(rig, name);
    let found = rig.poll(&mut looking).or_else(|| {
        let (header, request) = rig.take_mdt();
        assert!(matches!(request, MdtRequest::GetXattr { .. }), "{request:?}");
        rig.answer(&header, Reply::error(Errno::ERANGE));
        rig.poll(&mut looking)
    });
    match found.unwrap() {
        Err(Errno::ENODATA) => false,
        Err(Errno::ERANGE) => true,
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_asks_for_extended_attributes_learns_ahead_that_there_are_none() {
    let rig = Rig::with_osts(1);
    let more: [&[u8]; 6] = [b"i", b"j", b"k", b"l", b"m", b"n"];
    let names: Vec<&[u8]> = LETTERS.into_iter().chain(more).collect();
    let like = begun(&rig, &names, true);
    assert_eq!(answer_names(&rig).len(), 4);
    assert!(!asks(&rig, b"c").0);
    assert_eq!(answer_names(&rig).len(), 5);
    assert!(asks_xattr(&rig, b"c") && !asks(&rig, b"d").0);
    for name in [b"l", b"m", b"n"] {
        assert_eq!(answer_name(&rig), name);
    }
    assert_eq!(answer_xattrs(&rig), 3);
    assert!(!asks(&rig, b"l").0 && !asks(&rig, b"m").0 && rig.is_silent());
    assert!(!asks_xattr(&rig, b"l") && !asks_xattr(&rig, b"m"));
    // It is believed no longer than the lock is held, and not while it is changed from here.
    call_back(&rig, file_of(b"m"), lock_of(b"m"), &like);
    assert!(asks_xattr(&rig, b"m"));
    let client = rig.client.clone();
    let mut setting = rig.start(async move {
        let value = Bytes::from_static(b"1");
        client.setxattr(file_of(b"l"), b"user.a", value, XattrMode::Any).await
    });
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::SetXattr { .. }), "{request:?}");
    assert!(asks_xattr(&rig, b"l"));
    rig.answer(&header, done());
    let set = rig.poll(&mut setting).or_else(|| {
        rig.kernel_is_done();
        rig.poll(&mut setting)
    });
    set.unwrap().unwrap();
    assert!(asks_xattr(&rig, b"l"));
}

//! Directories that were listed before.

use sateen_client::{AtimePolicy, DIR_PAGES_MAX, Entry, Listing};
use sateen_types::{Attr, DirCookie, Errno, Fid, FileKind, Name, Result, Seq};
use sateen_wire::{
    Body, Bulk, Callback, DirEntry, Grant, Header, Ibits, LockId, LockMode, MdtReply, MdtRequest,
    Message, RenameFlags, Reply, ReplyBody, Request,
};

use crate::rig::{CRED, Rig, Verb, attr, reply};

const SEQ: Seq = Seq(0x2_0000_0500);
const DIR: Fid = Fid { seq: Seq(0x2_0000_0600), oid: 9, ver: 0 };
const OTHER: Fid = Fid { seq: Seq(0x2_0000_0600), oid: 10, ver: 0 };

fn place(number: u64) -> DirCookie {
    if number == 0 { DirCookie::START } else { DirCookie::new(number, 0) }
}

fn entries(numbers: &[u64]) -> Vec<DirEntry> {
    let entry = |number: &u64| DirEntry {
        cookie: place(*number),
        fid: Fid { seq: SEQ, oid: *number as u32, ver: 0 },
        kind: FileKind::Regular,
        name: Name::new(format!("name{number}").as_bytes()).unwrap(),
        attr: None,
    };
    numbers.iter().map(entry).collect()
}

fn page(numbers: &[u64], end: bool) -> Reply {
    let entries = entries(numbers);
    reply(MdtReply::Entries { entries, end, parent: Fid::ROOT }, &[])
}

/// The attributes of a directory are asked for, and its lock comes with them.
fn locks(rig: &Rig, dir: Fid, id: u64, bits: Ibits) -> Header {
    let client = rig.client.clone();
    let mut looking = rig.start(async move { client.getattr(dir).await });
    let (header, _) = rig.take_mdt();
    let attr = Attr { fid: dir, mode: 0o040_755, ..attr(4, 0) };
    let lock = Grant { id: LockId(id), fid: dir, mode: LockMode::Pr, bits };
    rig.answer(&header, reply(MdtReply::Inode { attr }, &[lock]));
    rig.poll(&mut looking).unwrap().unwrap();
    header
}

/// A mount whose kernel knows a directory, with its lock.
fn known() -> (Rig, Header) {
    let rig = Rig::with_osts(1);
    rig.client.introduce(DIR);
    let header = locks(&rig, DIR, 1, Ibits::META);
    (rig, header)
}

fn listing(rig: &Rig, after: u64, count: usize) -> Verb<Result<Listing>> {
    let client = rig.client.clone();
    let after = place(after);
    rig.begin(async move { client.readdir(DIR, after, count, AtimePolicy::Never).await })
}

fn is_listed(found: Result<Listing>, numbers: &[u64], end: bool) {
    let Listing { entries: found, end: found_end, parent } = found.unwrap();
    assert_eq!((found, found_end, parent), (entries(numbers), end, Fid::ROOT));
}

/// The MDT is asked for so many entries, and says this.
fn asks(rig: &Rig, (after, count): (u64, usize), asked: u32, answer: (&[u64], bool)) {
    let mut listing = listing(rig, after, count);
    assert!(rig.poll(&mut listing).is_none(), "it is known");
    let (header, request) = rig.take_mdt();
    let plus = false;
    assert_eq!(request, MdtRequest::ReadDir { fid: DIR, after: place(after), count: asked, plus });
    let (numbers, end) = answer;
    rig.answer(&header, page(numbers, end));
    let all = numbers.len() <= count;
    let told = numbers.get(..count).unwrap_or(numbers);
    is_listed(rig.poll(&mut listing).unwrap(), told, end && all);
}

/// The whole of it is asked for.
fn asks_all(rig: &Rig, numbers: &[u64]) {
    asks(rig, (0, 100), 100, (numbers, true));
}

/// Nobody is asked.
fn knows(rig: &Rig, (after, count): (u64, usize), numbers: &[u64], end: bool) {
    let mut listing = listing(rig, after, count);
    let found = rig.poll(&mut listing);
    assert!(rig.is_silent());
    is_listed(found.unwrap(), numbers, end);
}

/// Another client wants the directory's lock.
fn call_back(rig: &Rig, id: u64, like: &Header) {
    let body = Body::Callback(Callback::Blocking { fid: DIR, id: LockId(id) });
    rig.client.on_message(Message { header: like.reply(), body, bulk: Bulk::None });
    rig.run();
}

#[test]
fn what_was_listed_is_known_until_the_lock_is_called_back() {
    let (rig, header) = known();
    asks_all(&rig, &[1, 2, 3]);
    for _ in 0..2 {
        knows(&rig, (0, 100), &[1, 2, 3], true);
        knows(&rig, (1, 1), &[2], false);
        knows(&rig, (2, 100), &[3], true);
        knows(&rig, (3, 100), &[], true);
    }
    let stats = rig.client.dir_pages_stats();
    assert!(stats.hits == 8 && stats.bytes > 0 && stats.reclaimed == 0, "{stats:?}");
    // From the callback on, though the kernel has yet to hear of it.
    call_back(&rig, 1, &header);
    assert_eq!(rig.client.dir_pages_stats().bytes, 0);
    asks_all(&rig, &[1, 2, 3]);
    rig.kernel_is_done();
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Cancel { .. }), "{request:?}");
    asks_all(&rig, &[1, 2, 3, 4]);
    rig.answer(&header, Reply::ok(ReplyBody::Mdt(MdtReply::Done)));
    asks_all(&rig, &[1, 2, 3, 4]);
    asks_all(&rig, &[1, 2, 3, 4]);
    // A new lock, and what is listed from then on.
    locks(&rig, DIR, 3, Ibits::META);
    asks_all(&rig, &[1, 3]);
    knows(&rig, (0, 100), &[1, 3], true);
    assert_eq!(rig.client.set_dir_pages_max(DIR_PAGES_MAX + 1), Err(Errno::ERANGE));
    rig.client.set_dir_pages_max(0).unwrap();
    for _ in 0..2 {
        asks_all(&rig, &[1, 3]);
    }
}

#[test]
fn part_of_the_locks_is_not_enough_and_an_eviction_takes_all() {
    let rig = Rig::with_osts(1);
    rig.client.introduce(DIR);
    let header = locks(&rig, DIR, 1, Ibits::UPDATE);
    asks_all(&rig, &[1]);
    asks_all(&rig, &[1]);
    locks(&rig, DIR, 2, Ibits::META);
    asks_all(&rig, &[1]);
    knows(&rig, (0, 100), &[1], true);
    rig.evict(&header);
    assert_eq!(rig.client.dir_pages_stats().bytes, 0);
}

#[test]
fn what_was_asked_under_another_lock_does_not_stay() {
    let (rig, like) = known();
    let mut early = listing(&rig, 0, 100);
    assert!(rig.poll(&mut early).is_none());
    let (listed, _) = rig.take_mdt();
    call_back(&rig, 1, &like);
    rig.kernel_is_done();
    let (cancelled, _) = rig.take_mdt();
    rig.answer(&cancelled, Reply::ok(ReplyBody::Mdt(MdtReply::Done)));
    locks(&rig, DIR, 2, Ibits::META);
    rig.answer(&listed, page(&[1], true));
    is_listed(rig.poll(&mut early).unwrap(), &[1], true);
    asks_all(&rig, &[1, 2]);
    knows(&rig, (0, 100), &[1, 2], true);
}

/// Programs read by small pieces, and the more they have read the more is asked for.
#[test]
fn who_goes_on_finds_what_was_asked_for_ahead() {
    let (rig, _) = known();
    asks(&rig, (0, 2), 2, (&[1, 2], false));
    asks(&rig, (2, 2), 2, (&[3, 4], false));
    asks(&rig, (4, 2), 4, (&[5, 6, 7, 8], false));
    knows(&rig, (6, 2), &[7, 8], false);
    asks(&rig, (8, 2), 8, (&[9, 10, 11], true));
    knows(&rig, (10, 2), &[11], true);
    // From the beginning.
    knows(&rig, (0, 100), &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], true);
    knows(&rig, (3, 4), &[4, 5, 6, 7], false);
}

type Change = fn(&Rig) -> Verb<Result<()>>;

fn entry(made: Result<Entry>) -> Result<()> {
    made.map(drop)
}

const CHANGES: [Change; 11] = [
    |rig| {
        let client = rig.client.clone();
        rig.begin(async move { entry(client.mknod(DIR, b"new", 0o040_755, 0, b"", CRED).await) })
    },
    |rig| {
        let client = rig.client.clone();
        rig.begin(async move { entry(client.link(OTHER, DIR, b"new").await) })
    },
    |rig| {
        let client = rig.client.clone();
        rig.begin(async move { client.unlink(DIR, b"name1", false).await })
    },
    |rig| {
        let client = rig.client.clone();
        rig.begin(async move { client.unlink(DIR, b"name1", true).await })
    },
    |rig| moves(rig, ((DIR, b"name1"), (OTHER, b"to")), How::Alone),
    |rig| moves(rig, ((OTHER, b"one"), (DIR, b"to")), How::Alone),
    |rig| moves(rig, ((DIR, b"name1"), (OTHER, b"to")), How::Exchange),
    |rig| moves(rig, ((OTHER, b"one"), (DIR, b"name2")), How::Exchange),
    |rig| moves(rig, ((DIR, b"name1"), (OTHER, b"to")), How::Whiteout),
    |rig| moves(rig, ((OTHER, b"one"), (DIR, b"to")), How::Whiteout),
    // The directory itself: `..` is another.
    |rig| moves(rig, ((Fid::ROOT, b"dir"), (OTHER, b"dir")), How::Alone),
];

/// A directory, and a name in it.
type At = (Fid, &'static [u8]);

/// What a rename leaves where it takes a name from.
#[derive(Clone, Copy, PartialEq)]
enum How {
    Alone,
    Exchange,
    Whiteout,
}

fn moves(rig: &Rig, (from, to): (At, At), how: How) -> Verb<Result<()>> {
    let client = rig.client.clone();
    let flags = RenameFlags { no_replace: false, exchange: how == How::Exchange };
    rig.begin(async move {
        match how {
            How::Whiteout => client.rename_whiteout(from, to, false, CRED).await,
            How::Alone | How::Exchange => client.rename(from, to, flags).await,
        }
    })
}

/// The request of a change, and what it is answered if it is done.
fn begun(rig: &Rig, changing: &mut Verb<Result<()>>) -> (Header, Reply) {
    assert!(rig.poll(changing).is_none());
    let (mut header, mut request) = rig.take_mdt();
    if request == MdtRequest::GrantSeq {
        rig.answer(&header, reply(MdtReply::Sequence(SEQ), &[]));
        assert!(rig.poll(changing).is_none());
        (header, request) = rig.take_mdt();
    }
    let (layout, existed, parent) = (None, false, None);
    let body = match request {
        MdtRequest::Create { fid, .. } => {
            let attr = Attr { fid, mode: 0o040_755, ..attr(5, 0) };
            MdtReply::Created { attr, layout, existed, parent }
        }
        // Of a file its size would be asked for.
        MdtRequest::Link { fid, .. } => {
            MdtReply::Inode { attr: Attr { fid, mode: 0o120_777, ..attr(5, 0) } }
        }
        MdtRequest::Unlink { .. } => MdtReply::Removed { attr: None, parent },
        MdtRequest::Rename { parent: from, .. }
        | MdtRequest::RenameWhiteout { parent: from, .. } => {
            let moved = if from == Fid::ROOT { DIR } else { Fid { ver: 7, ..OTHER } };
            let (swapped, replaced, new_parent) = (None, None, None);
            MdtReply::Renamed { moved, swapped, replaced, parent, new_parent }
        }
        other => panic!("{other:?}"),
    };
    (header, reply(body, &[]))
}

fn ended(rig: &Rig, changing: &mut Verb<Result<()>>) -> Result<()> {
    let ended = (0..4).find_map(|_| {
        let ended = rig.poll(changing);
        // It is to forget the attributes of each that is changed.
        rig.kernel_is_done();
        ended
    });
    ended.unwrap()
}

/// Own changes take no lock back.
#[test]
fn own_changes_are_listed_and_what_was_asked_before_they_ended_does_not_stay() {
    for (number, change) in CHANGES.into_iter().enumerate() {
        for succeeds in [true, false] {
            let of_itself = number == CHANGES.len() - 1;
            if of_itself && !succeeds {
                continue;
            }
            let (rig, _) = known();
            asks_all(&rig, &[1, 2]);
            let mut early = None;
            if of_itself {
                knows(&rig, (0, 100), &[1, 2], true);
            }
            let mut changing = change(&rig);
            let (header, answer) = begun(&rig, &mut changing);
            if !of_itself {
                // It may have been done already.
                asks_all(&rig, &[1, 2]);
                let mut listing = listing(&rig, 0, 100);
                assert!(rig.poll(&mut listing).is_none());
                early = Some((rig.take(), listing));
            }
            rig.answer(&header, if succeeds { answer } else { Reply::error(Errno::EIO) });
            assert_eq!(ended(&rig, &mut changing).is_ok(), succeeds);
            if let Some((header, mut listing)) = early {
                rig.answer(&header, page(&[1, 2], true));
                is_listed(rig.poll(&mut listing).unwrap(), &[1, 2], true);
            }
            asks_all(&rig, &[1, 2, 3]);
            knows(&rig, (0, 100), &[1, 2, 3], true);
        }
    }
}

/// The MDT may do it behind the listing, although nobody waits for it any more.
#[test]
fn nothing_stays_while_a_change_that_was_given_up_may_be_done() {
    for change in &CHANGES[..CHANGES.len() - 1] {
        let (rig, _) = known();
        let mut changing = change(&rig);
        let (header, answer) = begun(&rig, &mut changing);
        drop(changing);
        asks_all(&rig, &[1]);
        let mut early = listing(&rig, 0, 100);
        assert!(rig.poll(&mut early).is_none());
        let listed = rig.take();
        rig.answer(&header, answer);
        rig.answer(&listed, page(&[1], true));
        is_listed(rig.poll(&mut early).unwrap(), &[1], true);
        asks_all(&rig, &[1, 2]);
        knows(&rig, (0, 100), &[1, 2], true);
    }
}

/// Who lists by pieces finds each name that stays once, and after `rewinddir` what is there then.
#[test]
fn who_is_at_a_listing_goes_on_where_he_was_through_changes() {
    let (rig, _) = known();
    asks(&rig, (0, 3), 3, (&[1, 2, 3], false));
    asks(&rig, (3, 3), 3, (&[4, 5, 6], false));
    knows(&rig, (0, 3), &[1, 2, 3], false);
    let mut removing = CHANGES[2](&rig);
    let (header, answer) = begun(&rig, &mut removing);
    rig.answer(&header, answer);
    ended(&rig, &mut removing).unwrap();
    asks(&rig, (3, 3), 3, (&[4, 5, 6], false));
    asks(&rig, (6, 3), 3, (&[7], true));
    knows(&rig, (3, 9), &[4, 5, 6, 7], true);
    // What was before it is not known: as much is asked for as is known, and what is known stays.
    asks(&rig, (0, 3), 4, (&[2, 3, 4, 5], false));
    knows(&rig, (0, 9), &[2, 3, 4, 5, 6, 7], true);
}

/// The MDT, which this client was connected to in run 5, was started again: it does not know the
/// connection on which something was asked, and then says which run it follows, and up to which
/// transaction it has everything.
fn restarts(rig: &Rig, asked: &Header, (follows, durable): (u64, u64)) {
    rig.answer(asked, Reply::error(Errno::ESTALE));
    let (connect, request) = rig.take_request();
    assert!(matches!(request, Request::Connect { .. }), "{request:?}");
    let (features, boot_epoch, generation) = (0, 6, 9);
    let says = ReplyBody::Connected { features, boot_epoch, generation, follows, durable };
    rig.answer(&connect, Reply::ok(says));
}

/// It is told what it has to know. How many locks; and the listing that is asked for once more.
fn is_taken_up(rig: &Rig) -> (usize, Header) {
    rig.kernel_is_done();
    let mut held = 0;
    loop {
        let (header, request) = rig.take_mdt();
        match request {
            MdtRequest::Replay { .. } => {}
            MdtRequest::Reclaim { locks, .. } => held += locks.len(),
            MdtRequest::ReadDir { .. } => return (held, header),
            other => panic!("{other:?}"),
        }
        rig.answer(&header, reply(MdtReply::Done, &[]));
    }
}

/// Another directory is listed.
fn lists_another(rig: &Rig) -> Verb<Result<Listing>> {
    let client = rig.client.clone();
    rig.start(async move { client.readdir(OTHER, DirCookie::START, 9, AtimePolicy::Never).await })
}

/// The directory was changed last by transaction 4, as is known.
#[test]
fn a_crash_of_the_mdt_takes_what_it_may_have_lost_and_leaves_what_is_durable() {
    for (durable, stays) in [(u64::MAX, true), (4, true), (3, false)] {
        let (rig, _) = known();
        asks_all(&rig, &[1, 2]);
        let mut other = lists_another(&rig);
        restarts(&rig, &rig.take(), (5, durable));
        // Before anybody can have changed anything in the new run.
        assert_eq!(rig.client.dir_pages_stats().bytes > 0, stays, "{durable}");
        let (held, again) = is_taken_up(&rig);
        assert_eq!(held, usize::from(stays), "{durable}");
        rig.answer(&again, page(&[], true));
        is_listed(rig.poll(&mut other).unwrap(), &[], true);
        if !stays {
            asks_all(&rig, &[1, 3]);
            asks_all(&rig, &[1, 3]);
            locks(&rig, DIR, 2, Ibits::META);
            asks_all(&rig, &[1, 2]);
        }
        knows(&rig, (0, 100), &[1, 2], true);
    }
}

/// It is answered by the run that follows.
#[test]
fn what_was_asked_before_a_crash_stays_only_under_a_lock_that_does() {
    for (durable, stays) in [(4, true), (3, false)] {
        let (rig, _) = known();
        let mut early = listing(&rig, 0, 100);
        assert!(rig.poll(&mut early).is_none());
        restarts(&rig, &rig.take(), (5, durable));
        let (_, again) = is_taken_up(&rig);
        if !stays {
            locks(&rig, DIR, 2, Ibits::META);
        }
        rig.answer(&again, page(&[1], true));
        is_listed(rig.poll(&mut early).unwrap(), &[1], true);
        if !stays {
            asks_all(&rig, &[1]);
        }
        knows(&rig, (0, 100), &[1], true);
    }
}

/// The MDT makes it again; how far it is with that nobody knows here.
#[test]
fn an_own_change_that_a_crash_has_taken_takes_what_was_listed_after_it() {
    let (rig, _) = known();
    let mut removing = CHANGES[2](&rig);
    let (header, answer) = begun(&rig, &mut removing);
    rig.answer(&header, Reply { transno: 5, ..answer });
    ended(&rig, &mut removing).unwrap();
    asks_all(&rig, &[2]);
    knows(&rig, (0, 100), &[2], true);
    let _other = lists_another(&rig);
    restarts(&rig, &rig.take(), (5, 4));
    assert_eq!(rig.client.dir_pages_stats().bytes, 0);
    assert_eq!(is_taken_up(&rig).0, 0);
    asks_all(&rig, &[2]);
    asks_all(&rig, &[2]);
}

#[test]
fn an_mdt_that_has_forgotten_the_client_takes_all() {
    let (rig, _) = known();
    asks_all(&rig, &[1]);
    let mut other = lists_another(&rig);
    restarts(&rig, &rig.take(), (0, u64::MAX));
    assert_eq!(rig.client.dir_pages_stats().bytes, 0);
    assert_eq!(rig.poll(&mut other).map(|listing| listing.err()), Some(Some(Errno::EIO)));
}

#[test]
fn names_that_are_looked_up_ahead_are_read_from_what_is_known() {
    let (rig, _) = known();
    // More than a listing notes of its own.
    let numbers: Vec<u64> = (1..=200).collect();
    asks(&rig, (0, 300), 300, (&numbers, true));
    knows(&rig, (0, 300), &numbers, true);
    let (mut looked, mut ahead) = (0, 0);
    for number in 1..=70 {
        let (client, name) = (rig.client.clone(), format!("name{number}"));
        let mut looking =
            rig.begin(async move { entry(client.lookup(DIR, name.as_bytes()).await) });
        let mut found = rig.poll(&mut looking);
        looked += usize::from(found.is_none());
        rig.run();
        while let Some((header, request)) = rig.take_if_any() {
            let Request::Mdt(MdtRequest::Lookup { name, .. }) = request else {
                panic!("{request:?}")
            };
            let text = std::str::from_utf8(name.as_bytes()).unwrap();
            let oid: u32 = text.strip_prefix("name").unwrap().parse().unwrap();
            let fid = Fid { seq: SEQ, oid, ver: 0 };
            let (mode, bits) = (LockMode::Pr, Ibits::META.union(Ibits::DATA));
            let lock = Grant { id: LockId(1000 + u64::from(oid)), fid, mode, bits };
            rig.answer(
                &header,
                reply(MdtReply::Inode { attr: Attr { fid, ..attr(3, 5) } }, &[lock]),
            );
            ahead += 1;
        }
        found = found.or_else(|| rig.poll(&mut looking));
        found.unwrap().unwrap();
    }
    assert!(looked == 2 && ahead > 70, "{looked} {ahead}");
}

//! Which OSTs are asked for what, and in which order.

use bytes::Bytes;
use sateen_client::{OpenHow, Opened};
use sateen_types::{Attr, Endpoint, Errno, Layout};
use sateen_wire::{
    Grant, Header, Ibits, LockMode, MdtReply, MdtRequest, ObjectAttr, OstReply, OstRequest, Reply,
    ReplyBody, Request,
};

use crate::rig::{CRED, FILE, Rig, Verb, attr, grant, reply};

const STRIPE: u64 = 64 << 10;

fn ost(body: OstReply) -> Reply {
    Reply::ok(ReplyBody::Ost(body))
}

fn written(granted: u64) -> Reply {
    ost(OstReply::Written { len: STRIPE as u32, boot_epoch: 5, granted })
}

/// The test's file, of two stripes, is open for writing, and nothing is to be waited for.
fn open(rig: &Rig, locks: &[Grant]) -> Opened {
    let client = rig.client.clone();
    let how = OpenHow { read: true, write: true, ..OpenHow::default() };
    let mut open = rig.start(async move { client.open(FILE, how, CRED).await });
    let (header, _) = rig.take_mdt();
    let layout = Some(std::sync::Arc::new(Layout::raid0(STRIPE as u32, vec![0, 1]).unwrap()));
    rig.answer(&header, reply(MdtReply::Opened { attr: attr(4, 0), layout }, locks));
    rig.poll(&mut open).unwrap().unwrap()
}

/// The MDT says that everything is durable.
fn mdt_syncs(rig: &Rig) {
    let (header, request) = rig.take_mdt();
    assert!(matches!(request, MdtRequest::Sync { .. }), "{request:?}");
    rig.answer(&header, reply(MdtReply::Done, &[]));
}

/// A write of two stripes begins.
fn start_write(rig: &Rig, handle: u64, at: u64) -> Verb<sateen_types::Result<usize>> {
    let (client, both) = (rig.client.clone(), Bytes::from(vec![1; 2 * STRIPE as usize]));
    rig.start(async move { client.write(handle, at, both, false).await })
}

fn take_write(rig: &Rig, from: u32) -> (Header, u64) {
    let (header, request) = rig.take_ost();
    assert_eq!(header.to, Endpoint::Ost(from));
    let OstRequest::Write { grant_used, .. } = request else { panic!("{request:?}") };
    (header, grant_used)
}

#[test]
fn without_grants_a_refused_piece_is_the_last_one() {
    let rig = Rig::with_osts(2);
    let locks = [grant(1, LockMode::Pw, Ibits::DATA), grant(2, LockMode::Pr, Ibits::META)];
    let handle = open(&rig, &locks).handle;
    let start = |at: u64| start_write(&rig, handle, at);
    let mut write = start(0);
    mdt_syncs(&rig);
    assert!(rig.poll(&mut write).is_none());
    let (first, granted) = take_write(&rig, 0);
    assert_eq!(granted, 0);
    assert!(rig.is_silent(), "the second piece waits for the first");
    rig.answer(&first, Reply::error(Errno::ENOSPC));
    assert!(rig.poll(&mut write).is_none());
    // It has to lie there.
    rig.answer(&takes_no_room(&rig, true), lies_on(&[0, 1], 1));
    assert_eq!(rig.poll(&mut write), Some(Err(Errno::ENOSPC)));
    assert!(rig.is_silent(), "nothing lies behind the end of the file");
    // The first has room, the second has not: a short write.
    let mut write = start(0);
    rig.answer(&take_write(&rig, 0).0, written(4 * STRIPE));
    assert!(rig.poll(&mut write).is_none());
    rig.answer(&take_write(&rig, 1).0, Reply::error(Errno::ENOSPC));
    assert_eq!(rig.poll(&mut write), Some(Ok(STRIPE as usize)));
    let client = rig.client.clone();
    let size = async move { client.getattr(FILE).await.unwrap().attr.size };
    assert_eq!(rig.now(size), STRIPE);
}

/// The MDT is told that the first OST had no room.
fn takes_no_room(rig: &Rig, first: bool) -> Header {
    let (header, request) = rig.take_mdt();
    assert_eq!(request, MdtRequest::NoRoom { fid: FILE, ost: 0, unwritten: first });
    header
}

/// The file lies on these OSTs now, by transaction 9.
fn lies_on(osts: &[u32], generation: u32) -> Reply {
    let mut layout = Layout::raid0(STRIPE as u32, osts.to_vec()).unwrap();
    layout.generation = generation;
    let attr = Attr { layout_gen: generation, ..attr(9, 0) };
    reply(MdtReply::Opened { attr, layout: Some(layout.into()) }, &[])
}

#[test]
fn a_file_whose_first_write_finds_no_room_goes_elsewhere() {
    let rig = Rig::with_osts(2);
    let locks = [grant(1, LockMode::Pw, Ibits::DATA), grant(2, LockMode::Pr, Ibits::META)];
    let handle = open(&rig, &locks).handle;
    let mut write = start_write(&rig, handle, 0);
    mdt_syncs(&rig);
    assert!(rig.poll(&mut write).is_none());
    let mut beside = start_write(&rig, handle, 0);
    let (first, second) = (take_write(&rig, 0).0, take_write(&rig, 0).0);
    rig.answer(&first, Reply::error(Errno::ENOSPC));
    assert!(rig.poll(&mut write).is_none());
    assert!(rig.is_silent(), "another write is still under way by the old layout");
    rig.answer(&second, Reply::error(Errno::ENOSPC));
    assert!(rig.poll(&mut beside).is_none());
    assert!(rig.poll(&mut write).is_none());
    let asked = takes_no_room(&rig, true);
    let mut third = start_write(&rig, handle, 0);
    assert!(rig.poll(&mut third).is_none());
    assert!(rig.is_silent(), "nobody writes, and nobody else asks");
    rig.answer(&asked, lies_on(&[1, 1], 2));
    let mut all = [Some(write), Some(beside), Some(third)];
    let poll = |all: &mut [Option<Verb<_>>]| {
        for verb in all {
            if verb.as_mut().is_some_and(|verb| rig.poll(verb).is_some()) {
                *verb = None;
            }
        }
    };
    poll(&mut all);
    // Not before the new layout is durable.
    let mut writes = 0;
    while writes < 6 {
        match rig.take_request() {
            (header, Request::Mdt(MdtRequest::Sync { upto })) => {
                assert!(upto == 9 && writes == 0, "{upto} {writes}");
                rig.answer(&header, reply(MdtReply::Done, &[]));
            }
            (header, Request::Ost(OstRequest::Write { layout_gen, .. })) => {
                assert_eq!((header.to, layout_gen), (Endpoint::Ost(1), 2));
                rig.answer(&header, written(0));
                writes += 1;
            }
            other => panic!("{other:?}"),
        }
        poll(&mut all);
    }
    assert!(all.iter().all(Option::is_none), "all of them are done");
    // It was written now: the MDT hears that there is no room, and that is all.
    let mut write = start_write(&rig, handle, 0);
    rig.answer(&take_write(&rig, 1).0, Reply::error(Errno::ENOSPC));
    assert!(rig.poll(&mut write).is_none());
    let (header, request) = rig.take_mdt();
    assert_eq!(request, MdtRequest::NoRoom { fid: FILE, ost: 1, unwritten: false });
    rig.answer(&header, lies_on(&[1, 1], 2));
    assert_eq!(rig.poll(&mut write), Some(Err(Errno::ENOSPC)));
    let mut write = start_write(&rig, handle, 0);
    rig.answer(&take_write(&rig, 1).0, Reply::error(Errno::ENOSPC));
    assert_eq!(rig.poll(&mut write), Some(Err(Errno::ENOSPC)), "not for each of them");
    assert!(rig.is_silent());
}

#[test]
fn a_request_carries_no_more_pages_than_is_set() {
    let rig = Rig::with_osts(2);
    let locks = [grant(1, LockMode::Pw, Ibits::DATA), grant(2, LockMode::Pr, Ibits::META)];
    let handle = open(&rig, &locks).handle;
    let first = Endpoint::Ost(0);
    for pages in [0, 4097] {
        assert_eq!(rig.client.set_rpc_pages_max(first, pages), Err(Errno::ERANGE));
    }
    rig.client.set_rpc_pages_max(first, 8).unwrap();
    let half = STRIPE / 2;
    let pieces = [(0, 0, half), (0, half, half), (1, 0, STRIPE)];
    let mut write = start_write(&rig, handle, 0);
    mdt_syncs(&rig);
    for (index, at, len) in pieces {
        assert!(rig.poll(&mut write).is_none());
        let (header, request) = rig.take_ost();
        let OstRequest::Write { offset, .. } = request else { panic!("{request:?}") };
        assert_eq!((header.to, offset), (Endpoint::Ost(index), at));
        let answer = OstReply::Written { len: len as u32, boot_epoch: 5, granted: 0 };
        rig.answer(&header, ost(answer));
    }
    assert_eq!(rig.poll(&mut write), Some(Ok(2 * STRIPE as usize)));
    assert!(rig.is_silent());
}

/// An OST's disk is fuller than it thought.
#[test]
fn a_piece_that_fits_in_part_ends_the_write_where_it_ends() {
    let rig = Rig::with_osts(2);
    let locks = [grant(1, LockMode::Pw, Ibits::DATA), grant(2, LockMode::Pr, Ibits::META)];
    let handle = open(&rig, &locks).handle;
    let mut write = start_write(&rig, handle, 0);
    mdt_syncs(&rig);
    assert!(rig.poll(&mut write).is_none());
    let in_part = |len| ost(OstReply::Written { len, boot_epoch: 5, granted: 0 });
    rig.answer(&take_write(&rig, 0).0, in_part(1000));
    assert_eq!(rig.poll(&mut write), Some(Ok(1000)));
    assert!(rig.is_silent(), "nothing lies behind the end of the file");
    let client = rig.client.clone();
    let size = async move { client.getattr(FILE).await.unwrap().attr.size };
    assert_eq!(rig.now(size), 1000);

    let mut write = start_write(&rig, handle, 0);
    rig.answer(&take_write(&rig, 0).0, in_part(STRIPE as u32 + 1));
    assert_eq!(rig.poll(&mut write), Some(Err(Errno::EPROTO)));
}

#[test]
fn pieces_that_have_grants_go_side_by_side() {
    let rig = Rig::with_osts(2);
    let locks = [grant(1, LockMode::Pw, Ibits::DATA), grant(2, LockMode::Pr, Ibits::META)];
    let handle = open(&rig, &locks).handle;
    let start = |at: u64| start_write(&rig, handle, at);
    let mut write = start(0);
    mdt_syncs(&rig);
    for index in 0..2 {
        assert!(rig.poll(&mut write).is_none());
        let (header, _) = take_write(&rig, index);
        rig.answer(&header, written(STRIPE + u64::from(index)));
    }
    assert_eq!(rig.poll(&mut write), Some(Ok(2 * STRIPE as usize)));
    let mut write = start(2 * STRIPE);
    let (first, second) = (take_write(&rig, 0), take_write(&rig, 1));
    assert_eq!((first.1, second.1), (STRIPE, STRIPE), "both claim their grants");
    // Refused by a full queue, it comes again with the same claim: it was not used up.
    rig.answer(&second.0, Reply::error(Errno::EAGAIN));
    assert!(rig.poll(&mut write).is_none());
    rig.time_passes();
    assert!(rig.poll(&mut write).is_none());
    let again = take_write(&rig, 1);
    assert_eq!(again.1, STRIPE);
    rig.answer(&first.0, written(0));
    rig.answer(&again.0, written(0));
    assert_eq!(rig.poll(&mut write), Some(Ok(2 * STRIPE as usize)));
}

#[test]
fn a_sync_covers_what_others_may_have_written() {
    let rig = Rig::with_osts(2);
    let locks = [grant(1, LockMode::Pw, Ibits::DATA), grant(2, LockMode::Pr, Ibits::META)];
    open(&rig, &locks);
    let start = || {
        let client = rig.client.clone();
        rig.start(async move { client.fsync(FILE).await })
    };
    let mut sync = start();
    for _ in 0..2 {
        let (header, request) = rig.take_ost();
        assert!(matches!(request, OstRequest::Sync { boot_epoch: 0, .. }), "{request:?}");
        rig.answer(&header, ost(OstReply::Done));
    }
    assert!(rig.poll(&mut sync).is_none());
    mdt_syncs(&rig);
    assert_eq!(rig.poll(&mut sync), Some(Ok(())));
    // Under the lock for writing nobody else has written since.
    let mut sync = start();
    mdt_syncs(&rig);
    assert_eq!(rig.poll(&mut sync), Some(Ok(())));
}

#[test]
fn a_sync_that_finds_another_under_way_ends_no_sooner_and_no_better() {
    let rig = Rig::with_osts(2);
    let locks = [grant(1, LockMode::Pw, Ibits::DATA), grant(2, LockMode::Pr, Ibits::META)];
    let handle = open(&rig, &locks).handle;
    let client = rig.client.clone();
    let data = Bytes::from_static(&[1; 100]);
    let mut write = rig.start(async move { client.write(handle, 0, data, false).await });
    mdt_syncs(&rig);
    assert!(rig.poll(&mut write).is_none());
    rig.answer(
        &take_write(&rig, 0).0,
        ost(OstReply::Written { len: 100, boot_epoch: 5, granted: 0 }),
    );
    assert_eq!(rig.poll(&mut write), Some(Ok(100)));
    let start = || {
        let client = rig.client.clone();
        rig.start(async move { client.fsync(FILE).await })
    };
    let mut first = start();
    let mut second = start();
    // The MDT is quick.
    let mut syncs = Vec::new();
    loop {
        while !rig.is_silent() {
            match rig.take_request() {
                (header, Request::Mdt(_)) => rig.answer(&header, reply(MdtReply::Done, &[])),
                (header, Request::Ost(OstRequest::Sync { .. })) => syncs.push(header),
                other => panic!("{other:?}"),
            }
        }
        assert!(rig.poll(&mut first).is_none() && rig.poll(&mut second).is_none());
        if rig.is_silent() {
            break;
        }
    }
    assert_eq!(syncs.len(), 2, "one for each OST");
    for header in syncs {
        rig.answer(&header, Reply::error(Errno::EIO));
    }
    assert_eq!(rig.poll(&mut first), Some(Err(Errno::EIO)));
    let mut ended = rig.poll(&mut second);
    while ended.is_none() {
        match rig.take_request() {
            (header, Request::Mdt(_)) => rig.answer(&header, reply(MdtReply::Done, &[])),
            (header, Request::Ost(_)) => rig.answer(&header, ost(OstReply::Done)),
            other => panic!("{other:?}"),
        }
        ended = rig.poll(&mut second);
    }
    assert_eq!(ended, Some(Err(Errno::EIO)), "its bytes were among those that failed");
}

/// The client wants to know where something begins in the objects of the test's file.
fn answer_seeks(rig: &Rig, answers: [(u64, Option<u64>); 2]) {
    let mut asked: Vec<_> = (0..2).map(|_| rig.take_ost()).collect();
    asked.sort_by_key(|(header, _)| header.to);
    for ((header, request), (from, found)) in asked.into_iter().zip(answers) {
        let OstRequest::Seek { offset, .. } = request else { panic!("{request:?}") };
        assert_eq!(offset, from, "{:?}", header.to);
        rig.answer(&header, ost(OstReply::Offset { offset: found }));
    }
}

#[test]
fn data_and_holes_are_found_over_the_stripes() {
    let rig = Rig::with_osts(2);
    let locks = [grant(1, LockMode::Pr, Ibits::DATA), grant(2, LockMode::Pr, Ibits::META)];
    let client = rig.client.clone();
    let how = OpenHow { read: true, ..OpenHow::default() };
    let mut open = rig.start(async move { client.open(FILE, how, CRED).await });
    let layout = Some(std::sync::Arc::new(Layout::raid0(STRIPE as u32, vec![0, 1]).unwrap()));
    let size = 4 * STRIPE + 10;
    let opened = MdtReply::Opened { attr: attr(4, size), layout };
    rig.answer(&rig.take(), reply(opened, &locks));
    let handle = rig.poll(&mut open).unwrap().unwrap().handle;
    let seek = |from: u64, hole: bool, answers| {
        let client = rig.client.clone();
        let mut seek = rig.start(async move { client.seek(handle, from, hole).await });
        answer_seeks(&rig, answers);
        rig.poll(&mut seek).unwrap()
    };
    let s = STRIPE;
    // In the second stripe of the file, which is the first of the second object.
    assert_eq!(seek(s + 5, false, [(s, None), (5, Some(7))]), Ok(s + 7));
    assert_eq!(seek(s + 5, false, [(s, Some(s)), (5, Some(s))]), Ok(2 * s));
    assert_eq!(seek(s + 5, false, [(s, None), (5, None)]), Err(Errno::ENXIO));
    // The first object goes on, the second ends in the middle of the file.
    assert_eq!(seek(0, true, [(0, Some(2 * s + 10)), (0, Some(s + 9))]), Ok(3 * s + 9));
    assert_eq!(seek(0, true, [(0, Some(2 * s + 10)), (0, Some(2 * s))]), Ok(size));
    assert_eq!(seek(2 * s, true, [(s, Some(2 * s)), (s, None)]), Ok(3 * s));
    // Bytes behind the end of the file are none of its data.
    assert_eq!(seek(3 * s, false, [(2 * s, Some(2 * s + 10)), (s, None)]), Err(Errno::ENXIO));
    let client = rig.client.clone();
    assert_eq!(rig.now(async move { client.seek(handle, size, true).await }), Err(Errno::ENXIO));
    assert!(rig.is_silent());
}

#[test]
fn what_was_stored_through_a_mapping_is_no_hole() {
    let rig = Rig::with_osts(2);
    let locks = [grant(1, LockMode::Pw, Ibits::DATA), grant(2, LockMode::Pr, Ibits::META)];
    let handle = open(&rig, &locks).handle;
    let mut write = start_write(&rig, handle, 0);
    mdt_syncs(&rig);
    for index in 0..2 {
        assert!(rig.poll(&mut write).is_none());
        rig.answer(&take_write(&rig, index).0, written(0));
    }
    assert!(rig.poll(&mut write).unwrap().is_ok());
    let start = |from: u64| {
        let client = rig.client.clone();
        rig.start(async move { client.seek(handle, from, false).await })
    };
    let mut seek = start(0);
    answer_seeks(&rig, [(0, Some(0)), (0, Some(0))]);
    assert_eq!(rig.poll(&mut seek), Some(Ok(0)), "there is nothing to be asked of the kernel");
    let mut seek = start(10);
    answer_seeks(&rig, [(10, None), (0, Some(5))]);
    assert!(rig.poll(&mut seek).is_none() && rig.is_silent(), "the kernel writes its pages out");
    rig.kernel_goes_on();
    assert!(rig.poll(&mut seek).is_none());
    answer_seeks(&rig, [(10, Some(20)), (0, Some(5))]);
    assert_eq!(rig.poll(&mut seek), Some(Ok(20)));
}

/// Another client has chosen other stripes since the layout was learned: the size is proven by
/// its objects as they are laid out now.
#[test]
fn a_size_is_asked_for_by_the_layout_that_the_attributes_speak_of() {
    let rig = Rig::with_osts(2);
    open(&rig, &[]);
    let client = rig.client.clone();
    let mut stat = rig.start(async move { client.getattr(FILE).await });
    let (header, _) = rig.take_mdt();
    let changed = Attr { layout_gen: 2, size_stale: true, maybe_objects: true, ..attr(5, 0) };
    rig.answer(&header, reply(MdtReply::Inode { attr: changed }, &[]));
    assert!(rig.poll(&mut stat).is_none());
    let (header, request) = rig.take_mdt();
    assert_eq!(request, MdtRequest::GetStripe { fid: FILE });
    let mut layout = Layout::raid0(2 * STRIPE as u32, vec![1]).unwrap();
    layout.generation = 2;
    let striping = MdtReply::Striped {
        layout: Some(layout.into()),
        policy: None,
        default: sateen_types::StripePolicy::DEFAULT,
    };
    rig.answer(&header, reply(striping, &[]));
    assert!(rig.poll(&mut stat).is_none());
    let (header, request) = rig.take_ost();
    assert_eq!(header.to, Endpoint::Ost(1));
    let OstRequest::GetAttr { objects } = request else { panic!("{request:?}") };
    let found =
        ObjectAttr { object: objects[0], size: 100_000, blocks: 200, ..ObjectAttr::default() };
    rig.answer(&header, ost(OstReply::Objects(vec![found])));
    assert!(rig.poll(&mut stat).is_none());
    let (_, request) = rig.take_mdt();
    let MdtRequest::ReportSize { report, .. } = request else { panic!("{request:?}") };
    assert_eq!(report.size, 100_000);
}

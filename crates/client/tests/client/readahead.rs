//! What is read ahead of programs that read backward, by steps or forward, and when it is believed.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use sateen_client::OpenHow;
use sateen_types::{Endpoint, Errno, Layout, Result};
use sateen_wire::{
    Bulk, Header, Ibits, LockMode, MdtReply, MdtRequest, OstReply, OstRequest, Reply, ReplyBody,
};

use crate::rig::{CRED, FILE, Rig, Verb, WRITE, attr, grant, reply};

const MIB: u64 = 1 << 20;
const PAGE: u32 = 4096;
/// Of the file.
const SIZE: u64 = 64 * MIB;
const LOCK: u64 = 5;

fn reads() -> OpenHow {
    OpenHow { read: true, ..OpenHow::default() }
}

/// A file on one OST, which is open, with a lock on it.
fn opened(how: OpenHow) -> (Rig, u64, Header) {
    let rig = Rig::with_osts(1);
    // No time passes here.
    rig.client.set_read_ahead_slow_ns(0).unwrap();
    rig.client.introduce(FILE);
    let client = rig.client.clone();
    let mut open = rig.start(async move { client.open(FILE, how, CRED).await });
    let layout = Some(Arc::new(Layout::raid0(MIB as u32, vec![0]).unwrap()));
    let mode = if how.write { LockMode::Pw } else { LockMode::Pr };
    let header = rig.take();
    let bits = Ibits::META.union(Ibits::DATA);
    rig.answer(
        &header,
        reply(MdtReply::Opened { attr: attr(0, SIZE), layout }, &[grant(LOCK, mode, bits)]),
    );
    let handle = rig.poll(&mut open).unwrap().unwrap().handle;
    (rig, handle, header)
}

/// What the file has there: by its turns it can be told.
fn bytes(offset: u64, len: u64, turn: u8) -> Vec<u8> {
    (offset..offset + len).map(|at| (at / 512) as u8 ^ turn).collect()
}

struct Reader {
    rig: Rig,
    handle: u64,
    like: Header,
    /// Requests for what is read ahead that were not answered: where, and how much.
    ahead: VecDeque<(Header, u64, u32)>,
    turn: u8,
}

impl Reader {
    fn new(how: OpenHow) -> Reader {
        let (rig, handle, like) = opened(how);
        Reader { rig, handle, like, ahead: VecDeque::new(), turn: 0 }
    }

    fn begin(&self, offset: u64) -> Verb<Result<BytesMut>> {
        let (client, handle) = (self.rig.client.clone(), self.handle);
        let read = async move { client.read(handle, offset, PAGE, BytesMut::new()).await };
        self.rig.begin(read)
    }

    fn answer(&self, (header, offset, len): (Header, u64, u32)) {
        let data = bytes(offset, u64::from(len), self.turn);
        let reply = Reply::ok(ReplyBody::Ost(OstReply::Read { len }));
        self.rig.answer_with(&header, reply, Bulk::Buffer(BytesMut::from(&data[..])));
    }

    /// What was asked of the OST and not taken yet.
    fn asked(&self) -> VecDeque<(Header, u64, u32)> {
        let mut asked = VecDeque::new();
        while !self.rig.is_silent() {
            let (header, request) = self.rig.take_ost();
            let OstRequest::Read { offset, len, .. } = request else { panic!("{request:?}") };
            asked.push_back((header, offset, len));
        }
        asked
    }

    /// A page is read; whether the OST was asked for it. What is asked for beside it waits.
    fn reads(&mut self, offset: u64) -> bool {
        let mut read = self.begin(offset);
        let mut done = self.rig.poll(&mut read);
        self.rig.run();
        let mut own = false;
        for (header, at, len) in self.asked() {
            if done.is_none() && !own && (at, len) == (offset, PAGE) {
                own = true;
                self.answer((header, at, len));
            } else {
                self.ahead.push_back((header, at, len));
            }
        }
        done = done.or_else(|| self.rig.poll(&mut read));
        let data = done.expect("nobody else is waited for").unwrap();
        assert_eq!(data[..], bytes(offset, u64::from(PAGE), self.turn), "at {offset}");
        own
    }

    /// The places that were asked for ahead, which are answered now.
    fn comes(&mut self) -> Vec<(u64, u32)> {
        let ahead = core::mem::take(&mut self.ahead);
        let places = ahead.iter().map(|(_, offset, len)| (*offset, *len)).collect();
        ahead.into_iter().for_each(|ask| self.answer(ask));
        places
    }

    /// Reads by steps of a MiB until the next two pieces are read ahead.
    fn strides(&mut self) {
        for number in 0..4 {
            assert!(self.reads(number * MIB));
        }
        assert_eq!(self.comes(), [(4 * MIB, PAGE), (5 * MIB, PAGE)]);
    }
}

#[test]
fn who_reads_by_steps_finds_the_next_pieces_and_waits_for_what_is_on_its_way() {
    let mut reader = Reader::new(reads());
    reader.strides();
    assert!(!reader.reads(4 * MIB));
    let places: Vec<u64> = reader.comes().iter().map(|(at, _)| at / MIB).collect();
    assert_eq!(places, [6, 7, 8], "twice as far");
    assert!(!reader.reads(5 * MIB) && !reader.reads(6 * MIB));
    // What is on its way is not asked for again.
    let last = reader.ahead.iter().map(|(_, at, _)| at / MIB).max().unwrap();
    let mut waiting = reader.begin(7 * MIB);
    assert!(reader.rig.poll(&mut waiting).is_some(), "it is there");
    let mut waiting = reader.begin(last * MIB);
    assert!(reader.rig.poll(&mut waiting).is_none());
    reader.comes();
    assert!(reader.rig.poll(&mut waiting).unwrap().is_ok());
    let stats = reader.rig.client.read_ahead_stats();
    assert_eq!((stats.hits, stats.misses), (5, 1), "the fourth page was not there yet");
}

#[test]
fn who_reads_backward_has_all_before_it_read() {
    let mut reader = Reader::new(reads());
    let page = u64::from(PAGE);
    for number in 1..=4 {
        assert!(reader.reads(8 * MIB - number * page));
    }
    let from = 8 * MIB - 4 * page;
    assert_eq!(
        reader.comes(),
        [(7 * MIB, (MIB - 4 * page) as u32), (7 * MIB - 4 * page, 4 * PAGE)]
    );
    for number in 1..=200 {
        assert!(!reader.reads(from - number * page), "{number}");
    }
}

#[test]
fn who_reads_forward_or_anywhere_is_left_to_his_kernel() {
    let mut reader = Reader::new(reads());
    for number in 0..64 {
        assert!(reader.reads(number * u64::from(PAGE)));
    }
    for number in [9, 44, 3, 27, 60, 13, 31, 50, 2] {
        assert!(reader.reads(number * MIB));
    }
    assert!(reader.ahead.is_empty());
    // But for whose servers are far.
    reader.rig.client.set_read_ahead_forward(true);
    for number in 0..3 {
        assert!(reader.reads(20 * MIB + number * u64::from(PAGE)));
    }
    assert_eq!(reader.comes()[0], (20 * MIB + 3 * 4096, (MIB - 3 * 4096) as u32));
    assert!(!reader.reads(20 * MIB + 3 * u64::from(PAGE)));
}

#[test]
fn what_is_read_ahead_of_who_reads_forward_is_as_much_as_he_would_wait_for() {
    let furthest = |waits: bool| {
        let mut reader = Reader::new(reads());
        reader.rig.client.set_read_ahead_forward(true);
        let mut furthest = 0;
        for page in 0..24 * MIB / u64::from(PAGE) {
            let at = page * u64::from(PAGE);
            if !waits {
                reader.reads(at);
                reader.comes();
                continue;
            }
            // What is ahead comes when it is waited for, and not before.
            let mut read = reader.begin(at);
            let mut done = reader.rig.poll(&mut read);
            reader.rig.run();
            let asked = reader.asked();
            reader.ahead.extend(asked);
            while done.is_none() {
                let ask = reader.ahead.pop_front().expect("something is on its way");
                reader.answer(ask);
                reader.rig.run();
                done = reader.rig.poll(&mut read);
            }
            done.unwrap().unwrap();
            let ends = reader.ahead.iter().map(|(_, offset, len)| offset + u64::from(*len));
            furthest = furthest.max(ends.max().unwrap_or(0).saturating_sub(at));
        }
        let stats = reader.rig.client.read_ahead_stats();
        assert!(stats.hits > 23 * MIB / u64::from(PAGE), "{stats:?}");
        furthest
    };
    assert_eq!(furthest(false), 0);
    let far = furthest(true);
    assert!(far >= 4 * MIB, "{far} bytes ahead of who waits");
}

#[test]
fn a_small_file_is_read_whole_once_it_is_read_here_and_there() {
    let mut reader = Reader::new(reads());
    reader.rig.client.set_read_ahead_forward(true);
    reader.rig.client.set_read_ahead_whole(SIZE).unwrap();
    reader.rig.client.set_rpcs_max(Endpoint::Ost(0), 8).unwrap();
    for number in [40, 7] {
        assert!(reader.reads(number * MIB) && reader.ahead.is_empty());
    }
    assert!(reader.reads(23 * MIB));
    let places = reader.comes();
    assert_eq!(places[0], (0, MIB as u32));
    assert_eq!(places.len(), 4, "half of the slots");
    assert!(!reader.reads(MIB + 4096));
}

#[test]
fn what_others_may_write_is_not_believed() {
    let mut reader = Reader::new(reads());
    reader.strides();
    // Somebody waits for what is on its way.
    assert!(!reader.reads(4 * MIB));
    let mut waiting = reader.begin(7 * MIB);
    assert!(reader.rig.poll(&mut waiting).is_none());
    let more = reader.asked();
    assert!(more.iter().all(|(_, at, _)| *at > 8 * MIB), "it is on its way");
    reader.ahead.extend(more);
    // From the callback on it is gone, and he asks for himself.
    reader.rig.call_back(LOCK, &reader.like);
    assert!(reader.rig.poll(&mut waiting).is_none());
    let mut asked = reader.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!((asked[0].1, asked[0].2), (7 * MIB, PAGE));
    reader.answer(asked.pop_front().unwrap());
    assert!(reader.rig.poll(&mut waiting).unwrap().is_ok());
    reader.rig.kernel_is_done();
    let (cancel, request) = reader.rig.take_mdt();
    assert!(matches!(request, MdtRequest::Cancel { .. }), "{request:?}");
    reader.rig.answer(&cancel, Reply::ok(ReplyBody::Mdt(MdtReply::Done)));
    // What comes now was read before others wrote.
    reader.comes();
    reader.turn = 1;
    let mut read = reader.begin(5 * MIB);
    assert!(reader.rig.poll(&mut read).is_none());
    let (enqueue, _) = reader.rig.take_mdt();
    let body = MdtReply::Inode { attr: attr(9, SIZE) };
    reader.rig.answer(&enqueue, reply(body, &[grant(LOCK + 1, LockMode::Pr, Ibits::DATA)]));
    assert!(reader.rig.poll(&mut read).is_none());
    let own = reader.asked().into_iter().find(|(_, at, _)| *at == 5 * MIB).unwrap();
    reader.answer(own);
    assert_eq!(reader.rig.poll(&mut read).unwrap().unwrap()[..], bytes(5 * MIB, 4096, 1));
}

#[test]
fn an_own_write_is_seen_at_once() {
    let mut reader = Reader::new(OpenHow { write: true, ..reads() });
    reader.strides();
    let (client, handle) = (reader.rig.client.clone(), reader.handle);
    let data = Bytes::from(bytes(4 * MIB, 4096, 7));
    let mut write =
        reader.rig.start(async move { client.write(handle, 4 * MIB, data, false).await });
    let (header, request) = reader.rig.take_ost();
    assert!(matches!(request, OstRequest::Write { .. }), "{request:?}");
    // While it is under way its bytes are asked of the OST, and nothing is read ahead.
    let mut read = reader.begin(4 * MIB);
    assert!(reader.rig.poll(&mut read).is_none());
    assert_eq!(reader.asked().len(), 1);
    let written = OstReply::Written { len: PAGE, boot_epoch: 5, granted: 0 };
    reader.rig.answer(&header, Reply::ok(ReplyBody::Ost(written)));
    assert_eq!(reader.rig.poll(&mut write), Some(Ok(4096)));
    // The other piece is still there.
    assert!(!reader.reads(5 * MIB));
}

#[test]
fn what_is_kept_of_writes_is_not_read_ahead() {
    let rig = Reader::new(WRITE);
    rig.rig.client.set_dirty_max(4 * MIB, 4 * MIB);
    let mut reader = rig;
    // It has to be promised room first, which a write brings.
    let (client, handle) = (reader.rig.client.clone(), reader.handle);
    let data = Bytes::from(bytes(40 * MIB, 4096, 0));
    let mut write =
        reader.rig.start(async move { client.write(handle, 40 * MIB, data, false).await });
    let (header, _) = reader.rig.take_ost();
    let written = OstReply::Written { len: PAGE, boot_epoch: 5, granted: MIB };
    reader.rig.answer(&header, Reply::ok(ReplyBody::Ost(written)));
    assert_eq!(reader.rig.poll(&mut write), Some(Ok(4096)));
    let client = reader.rig.client.clone();
    let mut open = reader.rig.start(async move { client.open(FILE, WRITE, CRED).await });
    let header = reader.rig.take();
    let layout = Some(Arc::new(Layout::raid0(MIB as u32, vec![0]).unwrap()));
    reader.rig.answer(&header, reply(MdtReply::Opened { attr: attr(0, SIZE), layout }, &[]));
    reader.handle = reader.rig.poll(&mut open).unwrap().unwrap().handle;
    let (client, handle) = (reader.rig.client.clone(), reader.handle);
    let data = Bytes::from(bytes(4 * MIB, 4096, 3));
    assert_eq!(
        reader.rig.now(async move { client.write(handle, 4 * MIB, data, false).await }),
        Ok(4096)
    );
    for number in 0..4 {
        assert!(reader.reads(number * MIB));
    }
    assert_eq!(reader.comes(), [(5 * MIB, PAGE)]);
    let read = reader.rig.poll(&mut reader.begin(4 * MIB)).unwrap().unwrap();
    assert_eq!(read[..], bytes(4 * MIB, 4096, 3));
}

#[test]
fn a_file_that_is_cut_has_nothing_ahead() {
    let mut reader = Reader::new(OpenHow { write: true, ..reads() });
    reader.strides();
    let client = reader.rig.client.clone();
    let set = sateen_wire::SetAttr { size: Some(MIB), ..Default::default() };
    let mut cut = reader.rig.start(async move { client.setattr(FILE, set, CRED).await });
    let (header, request) = reader.rig.take_mdt();
    assert!(matches!(request, MdtRequest::SetAttr { .. }), "{request:?}");
    reader.rig.answer(&header, reply(MdtReply::Inode { attr: attr(8, MIB) }, &[]));
    reader.rig.kernel_is_done();
    assert!(reader.rig.poll(&mut cut).unwrap().is_ok());
    let set = sateen_wire::SetAttr { size: Some(SIZE), ..Default::default() };
    let client = reader.rig.client.clone();
    let mut grow = reader.rig.start(async move { client.setattr(FILE, set, CRED).await });
    while let Some((header, request)) = reader.rig.take_if_any() {
        match request {
            sateen_wire::Request::Mdt(MdtRequest::SetAttr { .. }) => {
                reader.rig.answer(&header, reply(MdtReply::Inode { attr: attr(9, SIZE) }, &[]));
            }
            other => panic!("{other:?}"),
        }
    }
    reader.rig.kernel_is_done();
    assert!(reader.rig.poll(&mut grow).unwrap().is_ok());
    reader.turn = 1;
    assert!(reader.reads(4 * MIB), "there is a hole now");
}

#[test]
fn what_fails_is_silent_and_who_reads_is_told() {
    let mut reader = Reader::new(reads());
    for number in 0..4 {
        assert!(reader.reads(number * MIB));
    }
    for (header, ..) in core::mem::take(&mut reader.ahead) {
        reader.rig.answer(&header, Reply::error(Errno::EIO));
    }
    let mut read = reader.begin(4 * MIB);
    assert!(reader.rig.poll(&mut read).is_none());
    let own = reader.asked().into_iter().find(|(_, at, _)| *at == 4 * MIB).unwrap();
    reader.rig.answer(&own.0, Reply::error(Errno::ENXIO));
    assert_eq!(reader.rig.poll(&mut read).unwrap().map(|_| ()), Err(Errno::ENXIO));
}

#[test]
fn half_of_the_slots_are_left_to_others_and_nothing_is_asked_of_who_is_not_there() {
    let mut reader = Reader::new(reads());
    reader.rig.client.set_rpcs_max(Endpoint::Ost(0), 2).unwrap();
    for number in 0..4 {
        assert!(reader.reads(number * MIB));
    }
    assert_eq!(reader.ahead.len(), 1);
    reader.rig.client.set_read_ahead_max(0).unwrap();
    reader.comes();
    assert!(reader.reads(4 * MIB) && reader.ahead.is_empty());
}

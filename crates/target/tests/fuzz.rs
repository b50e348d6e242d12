//! Every decoder of bytes from a peer or a disk, fed with damaged encodings of right values:
//! none panics, none allocates out of proportion, and what is accepted is encoded and decoded
//! to the same value again.
//!
//! Runs for a fixed number of inputs, or for `FUZZ_SECONDS`. `SEED` repeats a run.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "test code")]

#[macro_use]
#[path = "../../wire/tests/common/mod.rs"]
mod common;

use std::alloc::System;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use common::{Any, Entropy, EntryRecord, InodeRecord, Random, XattrRecord, mutate, put_u32};
use sateen_journal::{Appender, Decoded, decode_frame, records};
use sateen_osd::{Batch, Key};
use sateen_target::Label;
use sateen_types::Endpoint;
use sateen_wire::codec::Wire;
use sateen_wire::disk::crc32c;
use sateen_wire::disk::mdt::{
    ClientRecord, Counters, PunchRecord, ReplySlot, RunRecord, SeqGrant, SeqState, UnlinkRecord,
};
use sateen_wire::disk::mgs::{ConfigRecord, ParamsRecord, TargetRecord};
use sateen_wire::disk::ost::{FenceRecord, ObjectState, WriterRecord};
use sateen_wire::disk::stopped::{CleanRuns, StopMark, StoppedClient, StoppedSlot};
use sateen_wire::{
    Body, Callback, HEADER_BYTES, MdtReply, MdtRequest, Message, MgsReply, MgsRequest, OstReply,
    OstRequest, Reply, ReplyBody, Request,
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Inputs of each decoder when no time is given.
const INPUTS: u64 = 4000;
const EPOCH: u64 = 9;

/// Runs a decoder and holds what it allocated against the size of its input: a value in
/// memory is at most so much larger than its encoding.
fn measured<T>(bytes: &[u8], decode: impl FnOnce(&[u8]) -> T) -> T {
    let region = Region::new(ALLOCATOR);
    let value = decode(bytes);
    let change = region.change();
    let allocated = change.bytes_allocated + usize::try_from(change.bytes_reallocated).unwrap_or(0);
    assert!(allocated <= 1024 + 128 * bytes.len(), "{allocated} bytes for {}", bytes.len());
    value
}

/// One kind of input.
struct Decoder {
    name: &'static str,
    make: fn(&mut Random) -> Vec<u8>,
    /// Makes checksums right again, so that what lies behind them is reached.
    mend: fn(&mut [u8]),
    /// Whether the bytes were accepted.
    run: fn(&[u8]) -> bool,
}

fn make<T: Wire + Any>(random: &mut Random) -> Vec<u8> {
    T::any(&mut Entropy::new(&random.bytes(300))).to_vec()
}

fn run<T: Wire + PartialEq + Debug>(bytes: &[u8]) -> bool {
    let Ok(value) = measured(bytes, T::from_bytes) else { return false };
    assert_eq!(T::from_bytes(&value.to_vec()), Ok(value));
    true
}

fn make_message(random: &mut Random) -> Vec<u8> {
    Message::any(&mut Entropy::new(&random.bytes(300))).encode()
}

fn mend_message(bytes: &mut [u8]) {
    let Some(body) = bytes.get(HEADER_BYTES..) else { return };
    let (len, crc) = (body.len(), crc32c(body));
    let extensions = usize::from(u16::from_le_bytes([bytes[16], bytes[17]]));
    put_u32(bytes, 20, len.saturating_sub(extensions) as u32);
    put_u32(bytes, 28, crc);
    let crc = crc32c(&bytes[..HEADER_BYTES - 4]);
    put_u32(bytes, HEADER_BYTES - 4, crc);
}

fn run_message(bytes: &[u8]) -> bool {
    let Ok((message, _)) = measured(bytes, Message::decode) else { return false };
    let again = Message::decode(&message.encode()).map(|(message, _)| message);
    assert_eq!(again, Ok(message));
    true
}

fn make_frame(random: &mut Random) -> Vec<u8> {
    let mut appender = Appender::new(EPOCH, random.next() >> 20);
    for _ in 0..random.below(4) + 1 {
        let record = make_batch(random);
        appender.append(&record);
    }
    appender.take().unwrap().bytes
}

fn mend_frame(bytes: &mut [u8]) {
    let Some(payload) = bytes.get(40..) else { return };
    let (len, crc) = (payload.len() as u32, crc32c(payload));
    put_u32(bytes, 4, len);
    put_u32(bytes, 32, crc);
    let crc = crc32c(&bytes[..36]);
    put_u32(bytes, 36, crc);
}

fn run_frame(bytes: &[u8]) -> bool {
    measured(bytes, |bytes| {
        let Decoded::Frame { payload, len, first, last } = decode_frame(EPOCH, bytes) else {
            return false;
        };
        assert!(len <= bytes.len() && first <= last);
        for record in records(payload) {
            let Ok((_, record)) = record else { return false };
            if Batch::changes(record).any(|change| change.is_err()) {
                return false;
            }
        }
        true
    })
}

fn make_batch(random: &mut Random) -> Vec<u8> {
    let mut batch = Batch::new();
    for _ in 0..random.below(5) {
        let len = random.below(20);
        let key = Key::tag(b'k').with(&random.bytes(len));
        if random.below(3) == 0 {
            batch.remove(&key);
        } else {
            let len = random.below(60);
            let value = random.bytes(len);
            batch.put_with(&key, |out| out.extend_from_slice(&value));
        }
    }
    batch.as_bytes().to_vec()
}

fn run_batch(bytes: &[u8]) -> bool {
    if measured(bytes, |bytes| Batch::changes(bytes).any(|change| change.is_err())) {
        return false;
    }
    let mut again = Batch::new();
    for change in Batch::changes(bytes).map(Result::unwrap) {
        match change.value {
            Some(value) => again.put_with(&change.key, |out| out.extend_from_slice(value)),
            None => again.remove(&change.key),
        }
    }
    assert_eq!(again.as_bytes(), bytes);
    true
}

fn make_label(random: &mut Random) -> Vec<u8> {
    let target = Endpoint::any(&mut Entropy::new(&random.bytes(20)));
    let fsname = "sateenfs".chars().take(random.below(9)).collect();
    let mgs_nodes = "10.0.0.1@tcp".chars().take(random.below(13)).collect();
    let mut next = || random.next();
    Label {
        fsname,
        target,
        uuid: next(),
        fs_uuid: next(),
        journal_epoch: next(),
        hash_key: next(),
        compat: next(),
        ro_compat: 0,
        incompat: 0,
        mgs_nodes,
    }
    .encode()
}

fn mend_label(bytes: &mut [u8]) {
    let Some(at) = bytes.len().checked_sub(4) else { return };
    let crc = crc32c(&bytes[..at]);
    put_u32(bytes, at, crc);
}

fn run_label(bytes: &[u8]) -> bool {
    let Ok(label) = measured(bytes, Label::decode) else { return false };
    assert_eq!(Label::decode(&label.encode()), Ok(label));
    true
}

fn decoders() -> Vec<Decoder> {
    let mut all = vec![
        Decoder { name: "Message", make: make_message, mend: mend_message, run: run_message },
        Decoder { name: "journal frame", make: make_frame, mend: mend_frame, run: run_frame },
        Decoder { name: "Batch", make: make_batch, mend: |_| {}, run: run_batch },
        Decoder { name: "Label", make: make_label, mend: mend_label, run: run_label },
    ];
    macro_rules! add {
        ($t:ident) => {
            all.push(Decoder {
                name: stringify!($t),
                make: make::<$t>,
                mend: |_| {},
                run: run::<$t>,
            });
        };
    }
    for_every_type!(add);
    for_every_open_ended_type!(add);
    all
}

/// Prints the input if the decoder panics.
struct Story<'a> {
    name: &'a str,
    bytes: &'a [u8],
}

impl Drop for Story<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let hex: String = self.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            println!("{} of {hex}", self.name);
        }
    }
}

/// One test only: the allocator counts for all threads together.
#[test]
fn damaged_bytes_do_no_harm() {
    let mut random = Random::new(sateen_testkit::seed());
    let seconds = std::env::var("FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let decoders = decoders();
    let mut accepted = vec![0u64; decoders.len()];
    let mut round = 0;
    while end.map_or(round < INPUTS, |end| Instant::now() < end) {
        for (decoder, accepted) in decoders.iter().zip(&mut accepted) {
            let mut bytes = (decoder.make)(&mut random);
            let right = round % 16 == 0;
            if !right {
                let other = (decoder.make)(&mut random);
                mutate(&mut random, &mut bytes, &other);
                if random.below(4) > 0 {
                    (decoder.mend)(&mut bytes);
                }
            }
            let story = Story { name: decoder.name, bytes: &bytes };
            let taken = (decoder.run)(&bytes);
            assert!(taken || !right, "{} refuses what it made", story.name);
            *accepted += u64::from(taken);
        }
        round += 1;
    }
    println!("shown: {round} inputs for each of {} decoders", decoders.len());
    for (decoder, accepted) in decoders.iter().zip(accepted) {
        println!("{}: {accepted} accepted", decoder.name);
        assert!(accepted < round || round < 16, "{}: damage is never noticed", decoder.name);
    }
}

//! What is encoded is decoded to the same value, for every message and every record; and
//! nothing shorter is.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "test code")]

mod common;

use std::collections::BTreeSet;
use std::fmt::Debug;

use bytes::Bytes;
use common::{Any, Entropy, EntryRecord, InodeRecord, Random, Variants, XattrRecord};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use sateen_testkit::{cases, seed};
use sateen_types::{ENCRYPTED, ERASURE_CODED, Endpoint, Errno, Layout, STRIPE_SIZE_MIN};
use sateen_wire::codec::{DecodeError, Wire};
use sateen_wire::disk::crc32c;
use sateen_wire::disk::mdt::{
    ClientRecord, Counters, PunchRecord, ReplySlot, RunRecord, SeqGrant, SeqState, UnlinkRecord,
};
use sateen_wire::disk::mgs::{ConfigRecord, ParamsRecord, TargetRecord};
use sateen_wire::disk::ost::{FenceRecord, ObjectState, WriterRecord};
use sateen_wire::disk::stopped::{CleanRuns, StopMark, StoppedClient, StoppedSlot};
use sateen_wire::{
    Body, Bulk, BulkHead, Callback, MdtReply, MdtRequest, Message, MgsReply, MgsRequest, OstReply,
    OstRequest, Reply, ReplyBody, Request, TimeSet,
};

/// Runs a property over random strings of bytes, which proptest shrinks.
fn each(mut property: impl FnMut(&[u8])) {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed().to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &key);
    let config = Config { cases: cases(400), failure_persistence: None, ..Config::default() };
    let property = std::cell::RefCell::new(&mut property);
    TestRunner::new_with_rng(config, rng)
        .run(&vec(any::<u8>(), 0..400), |bytes| {
            (property.borrow_mut())(&bytes);
            Ok(())
        })
        .unwrap();
}

fn round_trip<T: Wire + Any + PartialEq + Debug>(entropy: &[u8]) {
    let value = T::any(&mut Entropy::new(entropy));
    let bytes = value.to_vec();
    assert_eq!(T::from_bytes(&bytes).as_ref(), Ok(&value));
    for cut in [0, bytes.len() / 2, bytes.len().saturating_sub(1)] {
        if cut < bytes.len() {
            assert!(T::from_bytes(&bytes[..cut]).is_err(), "{value:?} cut at {cut}");
        }
    }
    let mut longer = bytes;
    longer.push(0);
    assert!(T::from_bytes(&longer).is_err(), "{value:?} with a byte behind it");
}

#[test]
fn every_type_round_trips() {
    macro_rules! check {
        ($t:ident) => {
            each(round_trip::<$t>);
        };
    }
    for_every_type!(check);
    macro_rules! check_whole {
        ($t:ident) => {
            each(|entropy| {
                let value = $t::any(&mut Entropy::new(entropy));
                assert_eq!($t::from_bytes(&value.to_vec()), Ok(value));
            });
        };
    }
    for_every_open_ended_type!(check_whole);
    each(round_trip::<Endpoint>);
    each(round_trip::<TimeSet>);
}

#[test]
fn messages_round_trip() {
    each(|entropy| {
        let mut message = Message::any(&mut Entropy::new(entropy));
        let bytes = message.encode();
        assert_eq!(Message::decode(&bytes), Ok((message.clone(), BulkHead::default())));
        for cut in 0..bytes.len() {
            assert!(Message::decode(&bytes[..cut]).is_err(), "cut at {cut}");
            assert!(!Message::is_whole(&bytes[..cut]), "cut at {cut}");
        }
        assert!(Message::is_whole(&bytes) && Message::is_whole(&[&bytes[..], &[1]].concat()));
        message.bulk = Bulk::Data(Bytes::from_static(b"12345"));
        let with_bulk = [&message.encode()[..], b"12345"].concat();
        assert!(!Message::is_whole(&with_bulk), "bulk has to be waited for");
        let (decoded, bulk) = Message::decode(&message.encode()).unwrap();
        assert_eq!((decoded.header, decoded.body), (message.header, message.body));
        assert_eq!(bulk, BulkHead { len: 5, crc: Some(crc32c(b"12345")) });
    });
}

#[test]
fn every_changed_bit_of_a_message_is_noticed() {
    let mut random = Random::new(seed());
    for _ in 0..30 {
        let message = Message::any(&mut Entropy::new(&random.bytes(300)));
        let bytes = message.encode();
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << random.below(8);
            assert!(Message::decode(&bad).is_err(), "byte {at} of {message:?}");
        }
    }
}

#[test]
fn every_variant_is_made() {
    let mut random = Random::new(seed());
    macro_rules! check {
        ($t:ident) => {
            let mut seen = BTreeSet::new();
            for _ in 0..3000 {
                let entropy = random.bytes(200);
                seen.insert($t::any(&mut Entropy::new(&entropy)).variant());
            }
            let all: BTreeSet<_> = $t::NAMES.iter().copied().collect();
            assert_eq!(seen, all, stringify!($t));
        };
    }
    for_every_enum!(check);
}

#[test]
fn a_layout_of_a_reserved_pattern_is_of_a_newer_version() {
    let layout = Layout::raid0(STRIPE_SIZE_MIN, vec![0, 1]).unwrap();
    let mut bytes = layout.to_vec();
    let component = bytes.len() - layout.components[0].to_vec().len();
    let pattern = component + 4 + 4 + 8 + 8;
    for reserved in [ERASURE_CODED, ENCRYPTED] {
        bytes[pattern] = reserved;
        let refused = Layout::from_bytes(&bytes).unwrap_err();
        assert_eq!(refused, DecodeError::Newer);
        assert_eq!(Errno::from(refused), Errno::EOPNOTSUPP);
        assert_eq!(refused.to_string(), "of a newer version");
    }
    bytes[pattern] = 9;
    assert_eq!(Layout::from_bytes(&bytes), Err(DecodeError::Invalid));
}

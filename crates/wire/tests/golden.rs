//! The encoding of every variant of every enum, of a header and of every record, as it was
//! when it was first written down: none may change unnoticed.
//!
//! Each line of `golden.txt` has a name, the bytes in hex, and the value as Rust prints it,
//! separated by tabs. A variant without a line fails the test and is added with
//! `UPDATE_GOLDEN=1`, which never changes a line that exists.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "test code")]

mod common;

use std::collections::BTreeMap;
use std::fmt::Debug;

use common::{Any, Entropy, EntryRecord, InodeRecord, Random, Variants, XattrRecord};
use sateen_types::{ClientId, Endpoint};
use sateen_wire::codec::Wire;
use sateen_wire::disk::mdt::{
    ClientRecord, Counters, PunchRecord, ReplySlot, RunRecord, SeqGrant, SeqState, UnlinkRecord,
};
use sateen_wire::disk::mgs::{ConfigRecord, ParamsRecord, TargetRecord};
use sateen_wire::disk::ost::{FenceRecord, ObjectState, WriterRecord};
use sateen_wire::disk::stopped::{CleanRuns, StopMark, StoppedClient, StoppedSlot};
use sateen_wire::{
    Body, Bulk, BulkHead, Callback, Header, MdtReply, MdtRequest, Message, MgsReply, MgsRequest,
    OstReply, OstRequest, Reply, ReplyBody, Request, TimeSet,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
        .collect()
}

fn path() -> String {
    format!("{}/tests/golden.txt", env!("CARGO_MANIFEST_DIR"))
}

#[derive(Default)]
struct Golden {
    lines: BTreeMap<String, (String, String)>,
    missing: Vec<String>,
}

impl Golden {
    fn load() -> Golden {
        let mut golden = Golden::default();
        for line in std::fs::read_to_string(path()).unwrap_or_default().lines() {
            let parts: Vec<&str> = line.splitn(3, '\t').collect();
            let [name, hex, value] = parts[..] else { panic!("golden line {line:?}") };
            golden.lines.insert(name.into(), (hex.into(), value.into()));
        }
        golden
    }

    /// Checks the line of a name; a missing one is made of the first random value that `fits`.
    fn check<T: Wire + Any + PartialEq + Debug>(&mut self, name: &str, fits: impl Fn(&T) -> bool) {
        if let Some((bytes, value)) = self.lines.get(name) {
            let decoded = T::from_bytes(&unhex(bytes)).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(fits(&decoded), "{name} is now {decoded:?}");
            assert_eq!(format!("{decoded:?}"), *value, "{name}");
            assert_eq!(hex(&decoded.to_vec()), *bytes, "{name}");
            return;
        }
        let mut random = Random::new(name.len() as u64);
        let value = (0..10_000)
            .map(|_| T::any(&mut Entropy::new(&random.bytes(120))))
            .find(fits)
            .unwrap_or_else(|| panic!("no value for {name}"));
        let line = (hex(&value.to_vec()), format!("{value:?}"));
        self.lines.insert(name.into(), line);
        self.missing.push(name.into());
    }
}

#[test]
fn encodings_are_as_they_were() {
    let mut golden = Golden::load();
    macro_rules! variants {
        ($t:ident) => {
            for variant in $t::NAMES {
                let name = format!("{}.{variant}", stringify!($t));
                golden.check::<$t>(&name, |value| value.variant() == *variant);
            }
        };
    }
    for_every_enum!(variants);
    macro_rules! whole {
        ($t:ident) => {
            golden.check::<$t>(stringify!($t), |_| true);
        };
    }
    for_every_type!(whole);
    for_every_open_ended_type!(whole);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let line = |(name, (hex, value)): (&String, &(String, String))| {
            format!("{name}\t{hex}\t{value}\n")
        };
        std::fs::write(path(), golden.lines.iter().map(line).collect::<String>()).unwrap();
    }
    assert!(
        golden.missing.is_empty() || std::env::var_os("UPDATE_GOLDEN").is_some(),
        "no golden bytes for {:?}: add them with UPDATE_GOLDEN=1",
        golden.missing
    );
}

#[test]
fn a_whole_message_is_as_it_was() {
    let header = Header {
        from: Endpoint::Client(ClientId(0x1122_3344_5566_7788)),
        to: Endpoint::Ost(3),
        client: ClientId(0x1122_3344_5566_7788),
        generation: 0x0a0b_0c0d,
        slot: 0x0102,
        seq: 5,
        deadline_ms: 1000,
        project: 6,
        credential: 7,
        trace: 8,
        job: *b"cp.1000\0\0\0\0\0\0\0\0\0",
        file_system: 0,
        direct: false,
    };
    let message =
        Message { header, body: Body::Request(Request::Connect { features: 9 }), bulk: Bulk::None };
    let expected = concat!(
        "5341544e0900",                         // magic, version
        "0100",                                 // kind, flags
        "3b00000000000000",                     // features
        "00000201",                             // bytes of extensions, slot
        "0b00000000000000",                     // bytes of body, of bulk
        "6143f1fd",                             // checksum of extensions and body
        "038877665544332211",                   // from
        "020300000000000000",                   // to
        "8877665544332211",                     // client
        "0d0c0b0a",                             // generation
        "0500000000000000",                     // sequence
        "e8030000",                             // deadline
        "0600000007000000",                     // project, credential
        "0800000000000000",                     // trace
        "63702e31303030000000000000000000",     // job
        "000000000000000000000000000000000000", // room
        "c99432a8",                             // checksum of the header
        "010100",                               // a request, to connect
        "0900000000000000",                     // features
    );
    let bytes = message.encode();
    assert_eq!(hex(&bytes), expected);
    assert_eq!(Message::decode(&bytes), Ok((message, BulkHead::default())));
}

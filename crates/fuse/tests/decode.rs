//! The decoder against well-formed, cut, and mutated requests.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test helpers")]
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestRunner};
use sateen_fuse::{DecodeError, Op, arg_len, decode, decode_contiguous};

fn header(opcode: u32, len: usize, ext: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&(len as u32).to_ne_bytes());
    bytes.extend_from_slice(&opcode.to_ne_bytes());
    for word in [7u64, 42] {
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    for word in [1000u32, 100, 4321] {
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    bytes.extend_from_slice(&((ext / 8) as u16).to_ne_bytes());
    bytes.extend_from_slice(&[0, 0]);
    bytes
}

fn message(opcode: u32, arg: &[u8], payload: &[u8], ext: &[u8]) -> Vec<u8> {
    let len = 40 + arg.len() + payload.len() + ext.len();
    [header(opcode, len, ext.len()), arg.to_vec(), payload.to_vec(), ext.to_vec()].concat()
}

fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// One well-formed message of each kind that has a payload, and one with an
/// empty header for every other operation.
fn samples() -> Vec<Vec<u8>> {
    let mut all = vec![
        message(1, &[], b"name\0", &[]),
        message(6, &[], b"link\0target\0", &[]),
        message(9, &words(&[0o755, 0o22]), b"dir\0", &words(&[16, 32, 1, 77])),
        message(12, &7u64.to_ne_bytes(), b"old\0new\0", &[]),
        message(45, &words(&[7, 0, 1, 0]), b"old\0new\0", &[]),
        message(16, &words(&[1, 0, 4096, 0, 5, 0, 0, 0, 0x8001, 0]), b"hello", &[]),
        message(21, &words(&[5, 0, 0, 0]), b"user.a\0value", &[]),
        message(39, &words(&[1, 0, 0, 9, 0, 0, 3, 8]), b"abc", &[]),
        message(42, &words(&[2, 0]), &words(&[5, 0, 1, 0, 6, 0, 2, 0]), &[]),
    ];
    for opcode in 0..60 {
        if let Some(len) = arg_len(opcode) {
            all.push(message(opcode, &vec![0; len], &[], &[]));
            all.push(message(opcode, &vec![0; len], b"x\0", &[]));
        }
    }
    all
}

#[test]
fn well_formed_requests() {
    let (lookup, _) = decode_contiguous(&message(1, &[], b"name\0", &[])).unwrap();
    assert_eq!(lookup.request.unique, 7);
    assert_eq!((lookup.request.uid, lookup.request.gid, lookup.request.pid), (1000, 100, 4321));
    let Op::Lookup { parent: 42, name } = lookup.request.op else { panic!() };
    assert_eq!(&*name, b"name");

    let mkdir = message(9, &words(&[0o755, 0o22]), b"dir\0", &words(&[16, 32, 1, 77]));
    assert_eq!(decode_contiguous(&mkdir).unwrap().0.request.supp_group, Some(77));

    let write = message(16, &words(&[1, 0, 4096, 0, 5, 0, 0, 0, 0x8001, 0]), b"hello", &[]);
    let (write, payload) = decode_contiguous(&write).unwrap();
    assert_eq!((write.write_len, payload), (Some(5), 80));
    assert!(matches!(write.request.op, Op::Write { offset: 4096, flags: 0x8001, .. }));

    let long = [vec![b'n'; 300], vec![0]].concat();
    let (lookup, _) = decode_contiguous(&message(1, &[], &long, &[])).unwrap();
    assert!(matches!(lookup.request.op, Op::Lookup { name, .. } if name.len() == 300));
}

#[test]
fn malformed_requests_are_refused() {
    let short =
        |m: Vec<u8>| assert!(matches!(decode_contiguous(&m), Err(DecodeError::Short { .. })));
    let malformed =
        |m: Vec<u8>| assert!(matches!(decode_contiguous(&m), Err(DecodeError::Malformed { .. })));
    short(vec![0; 39]);
    short(message(16, &[0; 39], &[], &[]));
    malformed(message(1, &[], b"no end", &[]));
    malformed(message(1, &[], b"\0", &[]));
    malformed(message(12, &[0; 8], b"only one\0", &[]));
    malformed(message(16, &words(&[1, 0, 0, 0, 6, 0, 0, 0, 0, 0]), b"hello", &[]));
    malformed(message(42, &words(&[u32::MAX, 0]), &[0; 32], &[]));
    malformed(message(9, &[0; 8], b"dir\0", &words(&[0, 32, 1, 77])));
    malformed(message(9, &[0; 8], b"dir\0", &words(&[4096, 32, 1, 77])));
    malformed([message(1, &[], b"name\0", &[]), vec![0]].concat());
    let unknown = decode_contiguous(&message(4000, &[], &[], &[]));
    assert_eq!(unknown, Err(DecodeError::Unsupported { opcode: 4000 }));
    assert_eq!(unknown.unwrap_err().errno(), libc::ENOSYS);
}

/// What is decoded never says more than there is, and both layouts agree.
fn check(bytes: &[u8]) {
    let apart = bytes.split_at_checked(40).and_then(|(header, body)| {
        let opcode = u32::from_ne_bytes(header[4..8].try_into().unwrap());
        let (arg, payload) = body.split_at_checked(arg_len(opcode)?)?;
        Some(decode(header, arg, payload))
    });
    match decode_contiguous(bytes) {
        Ok((decoded, payload)) => {
            assert!(payload <= bytes.len());
            if let Some(len) = decoded.write_len {
                assert!(payload + len <= bytes.len());
            }
            if let Op::BatchForget { items } = &decoded.request.op {
                assert!(items.len() * 16 <= bytes.len());
            }
            assert_eq!(apart, Some(Ok(decoded)));
        }
        Err(error) => assert!(error.errno() > 0),
    }
}

#[test]
fn mutated_requests_never_panic() {
    let config = Config {
        cases: sateen_testkit::cases(20_000),
        rng_algorithm: RngAlgorithm::ChaCha,
        rng_seed: RngSeed::Fixed(sateen_testkit::seed()),
        failure_persistence: None,
        ..Config::default()
    };
    let edit = (any::<prop::sample::Index>(), any::<u8>(), 0..4u8);
    let strategy = (
        prop::sample::select(samples()),
        prop::collection::vec(edit, 0..8),
        any::<prop::sample::Index>(),
        any::<bool>(),
    );
    let run = TestRunner::new(config).run(&strategy, |(mut bytes, edits, cut, honest)| {
        for (at, value, how) in edits {
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = value,
                1 => bytes[at] ^= 1 << (value % 8),
                2 => bytes.insert(at, value),
                _ => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][value as usize % 5],
            }
        }
        if cut.index(3) == 0 {
            bytes.truncate(cut.index(bytes.len()));
        }
        if honest && bytes.len() >= 4 {
            let len = bytes.len() as u32;
            bytes[..4].copy_from_slice(&len.to_ne_bytes());
        }
        check(&bytes);
        Ok(())
    });
    run.unwrap();
}

//! How often our own code copies data on its way: 1 MiB written, and read again, embedded, over TCP and
//! over shared memory. The figures are ceilings, which only go down; whoever brings one down writes
//! the new one here. They are for all processes together, which are one here. Needs root and
//! /dev/fuse.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use sateen_testkit::can_mount;
use sateen_types::{clear_copies, copies, count_copies};

use super::alone::alone;
use super::world::{Way, mounted};
use crate::node::Node;

const BYTES: usize = 1 << 20;
/// Messages, which are copied with the data where memory is shared, and what is read ahead of it.
const TOLERANCE: f64 = 0.1;

/// Copies of each byte: written and made durable, and read.
const CEILINGS: [(Way, f64, f64); 3] =
    [(Way::Embedded, 0.0, 0.0), (Way::Tcp, 1.0, 2.0), (Way::Shm, 3.0, 4.0)];

#[test]
fn data_is_copied_no_more_often_than_it_was() {
    if can_mount() {
        alone("node::tests::copies::data_is_copied_no_more_often_than_it_was", || {
            let found = CEILINGS.map(|(way, ..)| {
                let mut found = (0.0, 0.0);
                mounted(way, |point, node| found = written_and_read(way, point, node));
                found
            });
            for ((way, write, read), found) in CEILINGS.into_iter().zip(found) {
                for (what, ceiling, found) in [("write", write, found.0), ("read", read, found.1)] {
                    let is_it = (found - ceiling).abs() < TOLERANCE;
                    assert!(is_it, "{way:?}, {what}: {found:.2} copies, and {ceiling} so far");
                }
            }
        });
    }
}

/// How often each byte was copied since that was asked last.
fn counted(way: Way, what: &str) -> f64 {
    let some = copies().into_iter().filter(|(_, tally)| tally.samples > 0);
    let times = |sum: u64| sum as f64 / BYTES as f64;
    let all: Vec<_> = some.map(|(name, tally)| (name.name, times(tally.sum))).collect();
    println!("{way:?}, {what}: {all:.2?}");
    clear_copies();
    all.iter().map(|(_, times)| times).sum()
}

fn written_and_read(way: Way, point: &Path, _: &Node) -> (f64, f64) {
    count_copies(true);
    clear_copies();
    let counts = |what: &str| counted(way, what);
    let found = write_and_read(&point.join("counted"), counts);
    count_copies(false);
    let nobody_counts = write_and_read(&point.join("uncounted"), counts);
    assert_eq!(nobody_counts, (0.0, 0.0), "what is off counts nothing");
    found
}

/// Writes a file, makes it durable and reads it. Returns what was counted of each.
fn write_and_read(path: &Path, counted: impl Fn(&str) -> f64) -> (f64, f64) {
    let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    let data = vec![7; BYTES];
    file.write_all_at(&data, 0).unwrap();
    file.sync_all().unwrap();
    let written = counted("write");
    let mut again = vec![0; BYTES];
    file.read_exact_at(&mut again, 0).unwrap();
    let read = counted("read");
    assert!(again == data, "it is what was written");
    (written, read)
}

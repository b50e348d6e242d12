//! What reports of several workloads have in common: the form of their JSON, and the lines about
//! the path and its file system's room.

use std::path::Path;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::io::Space;
use crate::size::{GIB, MIB, TIB};

pub(crate) use sateen_report::{put, putln};

/// This program's own version. Where an original has its version, the one stands there whose
/// form it is: digits alone, since that is what parsers take.
pub(crate) const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

/// What marks a JSON document as one of ours, so that `report` knows what it reads.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Mark {
    /// Changes when an older `report` would read it wrongly.
    format: u32,
    program: &'static str,
    version: &'static str,
}

impl Mark {
    /// Of a workload.
    pub fn of(program: &'static str) -> Self {
        Self { format: 1, program, version: OWN_VERSION }
    }
}

/// A report as one JSON document, with its last line ended.
///
/// # Errors
/// [`Error::Failed`] if it cannot be written as JSON.
pub fn document(whole: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(whole);
    text.map(|text| text + "\n").map_err(|error| Error::Failed(format!("no JSON: {error}")))
}

/// A number with an exponent, as programs in C print it with `%.10e`.
pub(crate) fn exponential(number: f64) -> String {
    let text = format!("{number:.10e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |e| ('-', e));
            format!("{digits}e{sign}{exponent:0>2}")
        }
        // No number: NaN, inf.
        None => text,
    }
}

/// Room of a file system, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    /// Its size: `7.2 TiB`.
    pub capacity: String,
    /// How much is used: `35.3%`.
    pub used: String,
    /// Its inodes: `100.0 Mi`.
    pub inodes: String,
    /// How many are used.
    pub inodes_used: String,
}

fn share_used(free: u64, all: u64) -> String {
    let used = if all == 0 { 0.0 } else { (1.0 - free as f64 / all as f64) * 100.0 };
    format!("{used:.1}%")
}

impl Room {
    /// In words.
    pub fn of(space: &Space) -> Self {
        let gib = space.bytes as f64 / GIB as f64;
        let capacity = if gib > 1024.0 {
            format!("{:.1} TiB", space.bytes as f64 / TIB as f64)
        } else {
            format!("{gib:.1} GiB")
        };
        Self {
            capacity,
            used: share_used(space.bytes_free, space.bytes),
            inodes: format!("{:.1} Mi", space.inodes as f64 / MIB as f64),
            inodes_used: share_used(space.inodes_free, space.inodes),
        }
    }

    /// The two lines about a path.
    pub fn lines(&self, path: &Path) -> String {
        let Self { capacity, used, inodes, inodes_used } = self;
        format!(
            "{:<20}: {}\n{:<20}: {capacity}   Used FS: {used}   Inodes: {inodes}   Used Inodes: \
             {inodes_used}\n",
            "Path",
            path.display(),
            "FS"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_those_of_c() {
        assert_eq!(exponential(1234.5), "1.2345000000e+03");
        assert_eq!(exponential(0.000_25), "2.5000000000e-04");
        assert_eq!(exponential(3e120), "3.0000000000e+120");
        assert_eq!(exponential(0.0), "0.0000000000e+00");
    }

    #[test]
    fn room_is_shown_as_ior_shows_it() {
        let space =
            Space { bytes: 100 << 30, bytes_free: 75 << 30, inodes: 3 << 20, inodes_free: 0 };
        let lines = Room::of(&space).lines(Path::new("/x"));
        let wanted = "Path                : /x\n\
                      FS                  : 100.0 GiB   Used FS: 25.0%   Inodes: 3.0 Mi   Used \
                      Inodes: 100.0%\n";
        assert_eq!(lines, wanted);
        assert_eq!(Room::of(&Space { bytes: 3 << 40, ..space }).capacity, "3.0 TiB");
        assert_eq!(Room::of(&Space::default()).used, "0.0%");
    }
}

//! IO500's hashes, by which its `--verify` tells whether a result was changed: of words, and of
//! pairs of a name and a value that are joined in any order.

/// A hash grows by a character: two bits to the left, around, and the character added.
pub(super) fn text(start: u32, text: &str) -> u32 {
    text.bytes().fold(start, |hash, byte| hash.rotate_left(2).wrapping_add(u32::from(byte)))
}

/// A name with its value; pairs are joined by exclusive or.
pub(super) fn pair(name: &str, value: &str) -> u32 {
    text(text(0, name), value)
}

/// A name with a number as it is printed.
pub(super) fn number(name: &str, value: f64) -> u32 {
    pair(name, &format!("{value:.6}"))
}

/// The signature of a phase's data: the same in all phases of a run that use it.
pub(super) fn signature(phase: &str, stamp: &str) -> u32 {
    match text(text(0, phase), stamp) {
        // Values with a meaning of their own.
        0 | u32::MAX => 4711,
        hash => hash,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_published_runs() {
        // Submission 703 of the list of 2024: its result.txt says 94620B18.
        let scores = [
            ("ior-easy-write", "90.518305"),
            ("mdtest-easy-write", "1283.701416"),
            ("ior-hard-write", "48.087384"),
            ("mdtest-hard-write", "450.497469"),
            ("find", "2881.264049"),
            ("ior-easy-read", "71.368873"),
            ("mdtest-easy-stat", "3894.997663"),
            ("ior-hard-read", "57.505494"),
            ("mdtest-hard-stat", "3787.388936"),
            ("mdtest-easy-delete", "736.179489"),
            ("mdtest-hard-read", "3190.894658"),
            ("mdtest-hard-delete", "822.070343"),
            ("MD", "1620.126639"),
            ("BW", "65.012435"),
            ("SCORE", "324.543338"),
        ];
        let all = scores
            .iter()
            .fold(pair("version", "io500-isc24_v3"), |all, (name, value)| all ^ pair(name, value));
        assert_eq!(format!("{all:X}"), "94620B18");
        assert_eq!(number("BW", 65.012_435_2), pair("BW", "65.012435"));
        // Its signature is printed with a sign there: -329321348.
        let signed = signature("ior-easy", "2024.04.10-11.25.16").cast_signed();
        assert_eq!(signed, -329_321_348);
        assert_eq!(signature("mdtest-easy", "2024.04.10-11.25.16"), 556_856_447);
    }
}

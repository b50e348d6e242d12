//! Sizes as these benchmarks write them: `4k`, `1m`, `2g` on the way in (powers of two), and
//! `1 MiB` on the way out.

/// Bytes of a KiB.
pub const KIB: u64 = 1 << 10;
/// Bytes of a MiB.
pub const MIB: u64 = 1 << 20;
/// Bytes of a GiB.
pub const GIB: u64 = 1 << 30;
/// Bytes of a TiB.
pub const TIB: u64 = 1 << 40;

/// Parses a number with an optional suffix k, m, g, t or p (powers of two; `KiB` and `kb` mean
/// the same).
pub fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, suffix) = text.split_at_checked(digits).unwrap_or((text, ""));
    let number: u64 = number.parse().map_err(|_| format!("{text} is no size, such as 4k or 1m"))?;
    let suffix = suffix.trim().to_ascii_lowercase();
    let shift = match suffix.trim_end_matches('b').trim_end_matches('i') {
        "" if matches!(suffix.as_str(), "" | "b") => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        _ => return Err(format!("{text} is no size: k, m, g, t or p may follow the number")),
    };
    let bytes = number.checked_mul(1 << shift).filter(|bytes| i64::try_from(*bytes).is_ok());
    bytes.ok_or_else(|| format!("{text} is too large"))
}

/// A size as IOR shows it: in the largest unit of MiB, GiB and TiB that is not larger, else in
/// bytes; two decimals unless it divides evenly.
pub fn human(bytes: u64) -> String {
    let (unit, name) = match bytes {
        TIB.. => (TIB, "TiB"),
        GIB.. => (GIB, "GiB"),
        MIB.. => (MIB, "MiB"),
        _ => return format!("{bytes} bytes"),
    };
    if bytes.is_multiple_of(unit) {
        format!("{} {name}", bytes / unit)
    } else {
        format!("{:.2} {name}", bytes as f64 / unit as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two() {
        for (text, bytes) in [
            ("0", 0),
            ("8", 8),
            ("4k", 4096),
            ("4K", 4096),
            ("2m", 2 << 20),
            ("1g", 1 << 30),
            ("3t", 3 << 40),
            ("1p", 1 << 50),
            ("1MiB", 1 << 20),
            ("1mb", 1 << 20),
            ("16b", 16),
            ("47008", 47008),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for bad in ["", "k", "-1", "1x", "1.5m", "9999999p", "1 2", "4i"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_shown_as_ior_shows_them() {
        assert_eq!(human(47008), "47008 bytes");
        assert_eq!(human(1 << 20), "1 MiB");
        assert_eq!(human(3 << 19), "1.50 MiB");
        assert_eq!(human(4 << 30), "4 GiB");
        assert_eq!(human(5 << 40), "5 TiB");
    }
}

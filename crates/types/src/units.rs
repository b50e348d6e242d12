//! Sizes with units, as users type and read them.

/// Bytes in a kibibyte.
pub const KIB: u64 = 1 << 10;
/// Bytes in a mebibyte.
pub const MIB: u64 = 1 << 20;
/// Bytes in a gibibyte.
pub const GIB: u64 = 1 << 30;

/// Reads `4096`, `64k`, `4M`, `1G`, `2T` (powers of 1024; an optional `B`/`iB` is accepted).
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        "p" | "pb" | "pib" => 50,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// One decimal and a unit of 1024, as `df -h` prints: `472.5G`.
pub fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let mut value = bytes as f64;
    let mut units = UNITS.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    while value >= 1024.0 {
        let Some(next) = units.next() else { break };
        unit = next;
        value /= 1024.0;
    }
    format!("{value:.1}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_round_trip() {
        assert_eq!(parse_size("64k"), Some(65536));
        assert_eq!(parse_size("4MiB"), Some(4 * MIB));
        assert_eq!(parse_size("17"), Some(17));
        assert_eq!(parse_size(""), None);
        assert_eq!(parse_size("4x"), None);
        assert_eq!(parse_size("99999999999999999999"), None);
        assert_eq!(parse_size("16384P"), None);
        assert_eq!(format_size(472 * GIB + GIB / 2), "472.5G");
        assert_eq!(format_size(0), "0.0");
    }
}

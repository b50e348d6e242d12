//! Text of others inside HTML and SVG, and numbers as people read them.

/// Adds to a String as `write!` does, which cannot fail there.
#[macro_export]
macro_rules! put {
    ($to:expr, $($what:tt)*) => {{
        use std::fmt::Write as _;
        let _ = write!($to, $($what)*);
    }};
}

/// The same with the end of the line.
#[macro_export]
macro_rules! putln {
    ($to:expr, $($what:tt)*) => {{
        use std::fmt::Write as _;
        let _ = writeln!($to, $($what)*);
    }};
}

pub(crate) use {put, putln};

/// Text that can stand in an element or in a quoted attribute. Characters that no document may
/// hold become the sign for such.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for one in text.chars() {
        match one {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(' '),
            one if one.is_control() => out.push('\u{fffd}'),
            one => out.push(one),
        }
    }
    out
}

/// A number with as many digits as it is worth: `12,345`, `87.3`, `0.0042`.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return "–".to_owned();
    }
    if size >= 1e15 {
        return format!("{value:.2e}");
    }
    if size >= 1000.0 {
        return grouped(value);
    }
    let decimals = match size {
        _ if size >= 100.0 => 1,
        _ if size >= 1.0 => 2,
        _ if size >= 0.01 => 3,
        _ if size == 0.0 => 0,
        _ => 6,
    };
    format!("{value:.decimals$}")
}

fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if value < 0.0 { format!("-{out}") } else { out }
}

/// A number at an axis: `1.5 M`, `20 k`, `0.5`.
pub(crate) fn short(value: f64) -> String {
    let units = [(1e12, " T"), (1e9, " G"), (1e6, " M"), (1e4, " k")];
    for (unit, name) in units {
        if value.abs() >= unit {
            let by = if name == " k" { 1e3 } else { unit };
            return format!("{}{name}", trimmed(value / by));
        }
    }
    trimmed(value)
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.is_empty() || text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// A size: `64 KiB`, `1 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    let units = [(1_u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    for (unit, name) in units {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{} {name}", bytes / unit);
        }
    }
    format!("{} B", grouped(bytes as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_is_markup() {
        let text = "<script>\"a\" & 'b'</script>\u{0}\n";
        let wanted = "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;\u{fffd} ";
        assert_eq!(escape(text), wanted);
    }

    #[test]
    fn numbers_are_as_people_read_them() {
        let all =
            [(1_234_567.8, "1,234,568"), (999.96, "1000.0"), (87.256, "87.26"), (0.5, "0.500")];
        for (value, text) in all {
            assert_eq!(number(value), text);
        }
        assert_eq!((number(0.0).as_str(), number(f64::NAN).as_str()), ("0", "–"));
        let all = [
            (1_500_000.0, "1.5 M"),
            (20_000.0, "20 k"),
            (5000.0, "5000"),
            (0.5, "0.5"),
            (0.0, "0"),
        ];
        for (value, text) in all {
            assert_eq!(short(value), text);
        }
        assert_eq!((size(65536).as_str(), size(47008).as_str()), ("64 KiB", "47,008 B"));
    }
}

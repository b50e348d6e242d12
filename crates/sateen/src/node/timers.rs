//! What was measured of the parts of this process, as parameters: `fuse.timers`, `llite.timers` and so
//! on. They are of the whole process, whatever it has mounted and serves: its threads do the work
//! of all of it.

use std::fmt::{self, Write};

use sateen_meter::{Measured, Part, clear, is_on, read, switch_off, switch_on};

use crate::params::{CLEAR, Param, TIMERS, stats_text};

/// Those of all parts.
pub(super) fn params(out: &mut Vec<Param<'static>>) {
    out.extend(Part::ALL.map(|part| {
        let shown = move || stats_text(|out| write(part, out));
        Param::shown(format!("{}/{TIMERS}", part.name()), shown).set_by(move |value| {
            set(part, value);
            Ok(())
        })
    }));
}

/// The value was checked.
fn set(part: Part, value: &str) {
    match value.trim() {
        CLEAR => clear(part),
        "0" => {
            switch_off(part);
            clear(part);
        }
        _ => switch_on(part),
    }
}

fn write(part: Part, out: &mut impl Write) -> fmt::Result {
    writeln!(out, "{TIMERS:<25} {}", u8::from(is_on(part)))?;
    let rows: Vec<Row> = read(part).iter().map(|(name, all)| row(name, all)).collect();
    write_rows(&rows, out)
}

/// Numbers of a row: samples, min, max, sum, sumsq, p50, p99.
const NUMBERS: usize = 7;
type Row = (&'static str, [String; NUMBERS]);

fn row(name: &'static str, measured: &Measured) -> Row {
    let Measured { samples, min, max, sum, sumsq, .. } = *measured;
    let [half, most] = [50, 99].map(|percent| measured.percentile(percent));
    (name, [samples, min, max, sum, sumsq, half, most].map(|number| number.to_string()))
}

/// In the format of other statistics, with what half and 99 of a hundred did not exceed behind it, and
/// numbers below each other: people compare them.
fn write_rows(rows: &[Row], out: &mut impl Write) -> fmt::Result {
    let mut widths = [0; NUMBERS];
    for (_, numbers) in rows {
        for (width, number) in widths.iter_mut().zip(numbers) {
            *width = number.len().max(*width);
        }
    }
    let [a, b, c, d, e, f, g] = widths;
    for (name, [samples, min, max, sum, sumsq, half, most]) in rows {
        write!(out, "{name:<25} {samples:>a$} samples [nsecs] {min:>b$} {max:>c$} {sum:>d$}")?;
        writeln!(out, " {sumsq:>e$} p50 {half:>f$} p99 {most:>g$}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_below_each_other() {
        let row = |name, numbers: [u64; NUMBERS]| (name, numbers.map(|one| one.to_string()));
        let rows = [
            row("getattr", [7, 900, 1100, 7000, 7_000_000, 1024, 1100]),
            row("mds_reint_create", [1000, 12, 1_000_000, 1_500_000, 1_000_000_000_000, 16, 2048]),
        ];
        let mut text = String::new();
        write_rows(&rows, &mut text).unwrap();
        let getattr = "getattr                      7 samples [nsecs] 900    1100    7000       \
                       7000000 p50 1024 p99 1100\n";
        let create = "mds_reint_create          1000 samples [nsecs]  12 1000000 1500000 \
                      1000000000000 p50   16 p99 2048\n";
        assert_eq!(text, format!("{getattr}{create}"));
        write_rows(&[], &mut text).unwrap();
    }
}

//! The table of `lfs df`: its columns, their widths, and how numbers are written.

use std::fmt::Write as _;

use sateen_mount::SpaceRow;

use super::{DfArgs, Field, kind_and_index};
use crate::mounts::Ours;

const BYTES: [Field; 6] =
    [Field::Source, Field::Size, Field::Used, Field::Avail, Field::Pcent, Field::Target];
const INODES: [Field; 6] =
    [Field::Source, Field::Itotal, Field::Iused, Field::Iavail, Field::Ipcent, Field::Target];

/// Total, free and available.
#[derive(Debug, Clone, Copy, Default)]
struct Amount {
    total: u64,
    free: u64,
    avail: u64,
}

/// What one line shows.
struct Line {
    source: String,
    place: String,
    bytes: Amount,
    files: Amount,
}

pub(super) fn table(args: &DfArgs, ours: &Ours, rows: &[SpaceRow]) -> String {
    let only_summary = sum_alone(args);
    let framed = args.single().next().is_none() && !args.no_header && !only_summary;
    let point = ours.point.display();
    let mut out = String::new();
    // Writing to a string does not fail.
    if framed {
        let _ = writeln!(out, "{}", header(args));
    }
    for row in rows.iter().filter(|_| !only_summary) {
        if !row.active {
            let _ = writeln!(out, "{:<20}: inactive device", row.target);
            continue;
        }
        if !row.answers {
            let _ = writeln!(out, "{:<20}: Resource temporarily unavailable", row.target);
            continue;
        }
        let (kind, index) = kind_and_index(&row.target);
        let shown = Line {
            source: format!("{}-{}_UUID", ours.fsname, row.target),
            place: format!("{point}[{kind}:{index}]"),
            bytes: bytes_of(row),
            files: files_of(row),
        };
        let _ = writeln!(out, "{}", line(args, &shown));
    }
    let sum = Line {
        source: "filesystem_summary:".to_owned(),
        place: point.to_string(),
        bytes: sum(rows, ["OST", "MDT"], bytes_of),
        files: sum(rows, ["MDT", "OST"], files_of),
    };
    if framed {
        let _ = writeln!(out, "\n{}\n", line(args, &sum));
    } else if only_summary {
        let _ = writeln!(out, "{}", line(args, &sum));
    }
    out
}

/// Of single targets there is no sum that could be shown alone.
fn sum_alone(args: &DfArgs) -> bool {
    args.only_summary && args.single().next().is_none()
}

fn bytes_of(row: &SpaceRow) -> Amount {
    Amount { total: row.bytes_total, free: row.bytes_free, avail: row.bytes_avail }
}

fn files_of(row: &SpaceRow) -> Amount {
    Amount { total: row.files_total, free: row.files_free, avail: row.files_free }
}

/// Files lie on OSTs and inodes on MDTs: the other kind counts only where this one is not shown.
fn sum(rows: &[SpaceRow], kinds: [&str; 2], of: fn(&SpaceRow) -> Amount) -> Amount {
    let is = |row: &SpaceRow, kind: &str| row.target.starts_with(kind);
    let kind = kinds.into_iter().find(|kind| rows.iter().any(|row| is(row, kind)));
    let mut sum = Amount::default();
    let counts = |row: &&SpaceRow| row.active && row.answers && kind.is_some_and(|k| is(row, k));
    for one in rows.iter().filter(counts).map(of) {
        sum.total += one.total;
        sum.free += one.free;
        sum.avail += one.avail;
    }
    sum
}

fn fields(args: &DfArgs) -> &[Field] {
    match (args.output.as_slice(), args.inodes) {
        ([], true) => &INODES,
        ([], false) => &BYTES,
        (chosen, _) => chosen,
    }
}

fn joined(args: &DfArgs, cell: impl Fn(Field) -> String) -> String {
    let cells: Vec<String> = fields(args).iter().map(|field| cell(*field)).collect();
    cells.join(" ").trim_end().to_owned()
}

/// In the field's newer forms the mount point stands two spaces behind.
fn gap(args: &DfArgs) -> &'static str {
    if sum_alone(args) || !args.output.is_empty() { " " } else { "" }
}

fn header(args: &DfArgs) -> String {
    let with_units = args.human || args.si;
    joined(args, |field| {
        let (title, width) = match field {
            Field::Source => return format!("{:<20}", "UUID"),
            Field::Target => return format!("{}Mounted on", gap(args)),
            Field::Pcent => ("Use%", 4),
            Field::Ipcent => ("IUse%", 4),
            Field::Size if with_units => ("bytes", 11),
            Field::Size => ("1K-blocks", 11),
            Field::Used => ("Used", 11),
            Field::Free => ("Free", 11),
            Field::Avail if with_units => ("Avail", 11),
            Field::Avail => ("Available", 11),
            Field::Itotal => ("Inodes", 11),
            Field::Iused => ("IUsed", 11),
            Field::Iavail => ("IFree", 11),
        };
        format!("{title:>width$}")
    })
}

fn line(args: &DfArgs, Line { source, place, bytes, files }: &Line) -> String {
    let used = |amount: &Amount| amount.total.saturating_sub(amount.free);
    joined(args, |field| {
        let text = match field {
            Field::Source => return format!("{source:<20}"),
            Field::Target => return format!("{}{place}", gap(args)),
            Field::Pcent => return format!("{:>3}%", percent(used(bytes), bytes.avail)),
            Field::Ipcent => return format!("{:>3}%", percent(used(files), files.avail)),
            Field::Size => of_bytes(args, bytes.total),
            Field::Used => of_bytes(args, used(bytes)),
            Field::Free => of_bytes(args, bytes.free),
            Field::Avail => of_bytes(args, bytes.avail),
            Field::Itotal => number(args, files.total),
            Field::Iused => number(args, used(files)),
            Field::Iavail => number(args, files.avail),
        };
        format!("{text:>11}")
    })
}

/// Rounded up, as by df(1).
fn percent(used: u64, avail: u64) -> u128 {
    let full = u128::from(used) + u128::from(avail);
    (u128::from(used) * 100).div_ceil(full.max(1))
}

fn of_bytes(args: &DfArgs, bytes: u64) -> String {
    if args.human || args.si { number(args, bytes) } else { (bytes >> 10).to_string() }
}

/// With a unit if that was asked for, and if the number is large enough for one.
fn number(args: &DfArgs, number: u64) -> String {
    let (base, units) = match (args.human, args.si) {
        (false, false) => return number.to_string(),
        (_, true) => (1000.0, "kMGTPE"),
        (true, false) => (1024.0, "KMGTPE"),
    };
    let (mut value, mut unit) = (number as f64, None);
    for next in units.chars() {
        if value < base {
            break;
        }
        value /= base;
        unit = Some(next);
    }
    unit.map_or_else(|| number.to_string(), |unit| format!("{value:.1}{unit}"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{args, row};
    use super::*;

    fn shown(line: &str) -> String {
        let rows = [
            row("MDT0000", 1 << 30, 1 << 29),
            row("OST0000", 4 << 40, 1 << 40),
            row("OST0001", 0, 0),
            SpaceRow { active: false, ..row("OST0002", 0, 0) },
        ];
        let args = args(line);
        let ours = Ours { point: "/mnt".into(), fsname: "testfs".into(), source: "testfs".into() };
        let meant: Vec<SpaceRow> =
            rows.into_iter().filter(|row| super::super::is_meant(&args, row)).collect();
        table(&args, &ours, &meant)
    }

    #[test]
    fn tables_look_as_in_the_field() {
        let text = "\
UUID                   1K-blocks        Used   Available Use% Mounted on
testfs-MDT0000_UUID      1048576      524288      524288  50% /mnt[MDT:0]
testfs-OST0000_UUID   4294967296  3221225472  1073741824  75% /mnt[OST:0]
OST0001             : Resource temporarily unavailable
OST0002             : inactive device

filesystem_summary:   4294967296  3221225472  1073741824  75% /mnt

";
        assert_eq!(shown(""), text);
        assert_eq!(shown("-v"), text);
        let human = shown("-h");
        assert!(human.contains("testfs-OST0000_UUID         4.0T        3.0T        1.0T  75%"));
        let inodes = shown("-i");
        assert!(
            inodes.starts_with("UUID                      Inodes       IUsed       IFree IUse%")
        );
        assert!(inodes.contains("filesystem_summary:         1000         100         900  10%"));
    }

    #[test]
    fn units_are_of_1024_or_of_1000() {
        let line = |options: &str| {
            let text = shown(options);
            let line = text.lines().find(|line| line.starts_with("filesystem_summary"));
            line.unwrap().split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(line("-h"), ["4.0T", "3.0T", "1.0T", "75%", "/mnt"]);
        assert_eq!(line("-H"), ["4.4T", "3.3T", "1.1T", "75%", "/mnt"]);
        assert_eq!(line("-hi"), ["1000", "100", "900", "10%", "/mnt"], "too few for a unit");
        assert_eq!(line("-Hi"), ["1.0k", "100", "900", "10%", "/mnt"]);
        assert!(
            shown("-H").starts_with("UUID                       bytes        Used       Avail")
        );
    }

    #[test]
    fn one_kind_has_a_sum_of_its_own_and_one_target_none() {
        let mdts = "\
UUID                   1K-blocks        Used   Available Use% Mounted on
testfs-MDT0000_UUID      1048576      524288      524288  50% /mnt[MDT:0]

filesystem_summary:      1048576      524288      524288  50% /mnt

";
        assert_eq!(shown("-m"), mdts);
        let objects = "filesystem_summary:         1000         100         900  10%";
        assert!(shown("-io").contains(objects));
        let row = "testfs-OST0000_UUID   4294967296  3221225472  1073741824  75% /mnt[OST:0]\n";
        assert_eq!(shown("-o0"), row);
        assert_eq!(shown("-o0 -s"), row);
        assert_eq!(shown("-lN -o"), row);
    }

    #[test]
    fn the_sum_alone_and_chosen_fields_look_as_in_the_field() {
        assert_eq!(
            shown("-s"),
            "filesystem_summary:   4294967296  3221225472  1073741824  75%  /mnt\n"
        );
        assert_eq!(
            shown("-sH -m"),
            "filesystem_summary:         1.1G      536.9M      536.9M  50%  /mnt\n"
        );
        let text = "\
Use%   Available        Used   1K-blocks  Mounted on
 50%      524288      524288     1048576  /mnt[MDT:0]
 75%  1073741824  3221225472  4294967296  /mnt[OST:0]

 75%  1073741824  3221225472  4294967296  /mnt

";
        assert_eq!(shown("-l --output=pcent,avail,used,size,target"), text);
        let text = "\
UUID                        Free       IFree IUse%
testfs-MDT0000_UUID       524288         900  10%
testfs-OST0000_UUID   1073741824         900  10%

filesystem_summary:   1073741824         900  10%

";
        assert_eq!(shown("-l -u device,bfree,ifree,ipct"), text);
        assert_eq!(shown("-u avail --ost=0"), " 1073741824\n");
        assert_eq!(shown("-hu itotal,iused --ost=0"), "       1000         100\n");
    }

    #[test]
    fn per_cents_are_rounded_up() {
        assert_eq!([percent(1664, 112_156), percent(0, 5), percent(0, 0)], [2, 0, 0]);
        assert_eq!([percent(1, u64::MAX), percent(7, 0), percent(1, 1)], [1, 100, 50]);
    }
}

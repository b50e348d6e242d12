//! `lfs df`: the space or the inodes of every target, in the field's format.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{ArgAction, Args};
use sateen_mount::{SPACE_XATTR, SpaceRow};
use sateen_types::units::format_size;
use serde::Serialize;

use super::{Failure, Rows, answer, mounts_of};
use crate::mounts::Ours;

#[derive(Debug, Clone, Args)]
#[command(disable_help_flag = true)]
pub(super) struct DfArgs {
    /// Inodes in place of bytes.
    #[arg(short = 'i', long = "inodes")]
    inodes: bool,
    /// Numbers with units.
    #[arg(short = 'h', long = "human-readable")]
    human: bool,
    /// Print help.
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,
    /// As JSON, for programs: all numbers in bytes.
    #[arg(long)]
    json: bool,
    /// A path on the file system, or its name [default: all that are mounted].
    path: Option<PathBuf>,
}

/// A row, for programs.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    mount: &'a Path,
    fsname: &'a str,
    #[serde(flatten)]
    row: &'a SpaceRow,
}

pub(super) fn run(args: &DfArgs) -> Vec<Failure> {
    let all = match mounts_of(args.path.as_deref()) {
        Ok(all) => all,
        Err(failure) => return vec![failure],
    };
    let mut failures = Vec::new();
    let mut out = Rows::new(args.json);
    for ours in all {
        let doing = format!("cannot get the space of '{}'", ours.point.display());
        match answer::<Vec<SpaceRow>>(&ours.point, SPACE_XATTR, &doing) {
            Ok(rows) if args.json => {
                for row in &rows {
                    let shown = Shown { mount: &ours.point, fsname: &ours.fsname, row };
                    out.row(String::new(), &shown);
                }
            }
            Ok(rows) => print!("{}", table(args, &ours, &rows)),
            Err(failure) => failures.push(failure),
        }
    }
    if args.json {
        out.print();
    }
    failures
}

/// Total, free and available.
type Space = [u64; 3];

fn space_of(args: &DfArgs, row: &SpaceRow) -> Space {
    if args.inodes {
        [row.files_total, row.files_free, row.files_free]
    } else {
        [row.bytes_total, row.bytes_free, row.bytes_avail]
    }
}

fn table(args: &DfArgs, ours: &Ours, rows: &[SpaceRow]) -> String {
    let labels = match (args.inodes, args.human) {
        (true, _) => ["Inodes", "IUsed", "IFree", "IUse%"],
        (false, true) => ["bytes", "Used", "Avail", "Use%"],
        (false, false) => ["1K-blocks", "Used", "Available", "Use%"],
    };
    let [total, used, avail, percent] = labels;
    let mut out =
        format!("{:<20} {total:>11} {used:>11} {avail:>11} {percent:>4} Mounted on\n", "UUID");
    let (mut sum, point) = ([0; 3], ours.point.display());
    for row in rows {
        if !row.active {
            let _ = writeln!(out, "{:<20}: inactive device", row.target);
            continue;
        }
        if !row.answers {
            let _ = writeln!(out, "{:<20}: Resource temporarily unavailable", row.target);
            continue;
        }
        let space = space_of(args, row);
        // Files lie on OSTs, inodes on MDTs.
        if row.target.starts_with("OST") != args.inodes {
            for (sum, one) in sum.iter_mut().zip(space) {
                *sum += one;
            }
        }
        let uuid = format!("{}-{}_UUID", ours.fsname, row.target);
        let place = place(&row.target);
        let _ = writeln!(out, "{} {point}{place}", line(args, &uuid, space));
    }
    let _ = writeln!(out, "\n{} {point}\n", line(args, "filesystem_summary:", sum));
    out
}

/// `[OST:1]` of `OST0001`.
fn place(target: &str) -> String {
    let (kind, index) = target.split_at_checked(3).unwrap_or((target, ""));
    format!("[{kind}:{}]", u32::from_str_radix(index, 16).unwrap_or(0))
}

fn line(args: &DfArgs, name: &str, [total, free, avail]: Space) -> String {
    let used = total.saturating_sub(free);
    let number = |value: u64| match (args.human, args.inodes) {
        (true, _) => format_size(value),
        (false, true) => value.to_string(),
        (false, false) => (value >> 10).to_string(),
    };
    let full = u128::from(used) + u128::from(avail);
    let percent = (u128::from(used) * 100 + full / 2) / full.max(1);
    let [total, used, avail] = [total, used, avail].map(number);
    format!("{name:<20} {total:>11} {used:>11} {avail:>11} {percent:>3}%")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(target: &str, total: u64, free: u64) -> SpaceRow {
        SpaceRow {
            target: target.into(),
            active: true,
            answers: total > 0,
            bytes_total: total,
            bytes_free: free,
            bytes_avail: free,
            files_total: 1000,
            files_free: 900,
        }
    }

    #[test]
    fn tables_look_as_in_the_field() {
        let rows = [
            row("MDT0000", 1 << 30, 1 << 29),
            row("OST0000", 4 << 40, 1 << 40),
            row("OST0001", 0, 0),
            SpaceRow { active: false, ..row("OST0002", 0, 0) },
        ];
        let ours = Ours { point: "/mnt".into(), fsname: "testfs".into(), source: "testfs".into() };
        let args = DfArgs { inodes: false, human: false, help: None, json: false, path: None };
        let text = "\
UUID                   1K-blocks        Used   Available Use% Mounted on
testfs-MDT0000_UUID      1048576      524288      524288  50% /mnt[MDT:0]
testfs-OST0000_UUID   4294967296  3221225472  1073741824  75% /mnt[OST:0]
OST0001             : Resource temporarily unavailable
OST0002             : inactive device

filesystem_summary:   4294967296  3221225472  1073741824  75% /mnt

";
        assert_eq!(table(&args, &ours, &rows), text);
        let human = table(&DfArgs { human: true, ..args.clone() }, &ours, &rows);
        assert!(human.contains("testfs-OST0000_UUID         4.0T        3.0T        1.0T  75%"));
        let inodes = table(&DfArgs { inodes: true, ..args }, &ours, &rows);
        assert!(
            inodes.starts_with("UUID                      Inodes       IUsed       IFree IUse%")
        );
        assert!(inodes.contains("filesystem_summary:         1000         100         900  10%"));
    }
}

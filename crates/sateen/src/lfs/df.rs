//! `lfs df`: the space or the inodes of targets, in the field's format. What a line looks like
//! is in `table`.

mod table;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{ArgAction, Args, ValueEnum};
use sateen_mount::{CONNECTED_SPACE_XATTR, SPACE_XATTR, SpaceRow};
use serde::Serialize;

use super::{Failure, Rows, answer, mounts_of, no_target, silent_target};
use crate::mounts::Ours;

#[derive(Debug, Clone, Args)]
#[command(disable_help_flag = true)]
pub(super) struct DfArgs {
    /// Inodes in place of bytes.
    #[arg(short = 'i', long = "inodes")]
    inodes: bool,
    /// Numbers with units of 1024.
    #[arg(short = 'h', long = "human-readable", overrides_with = "si")]
    human: bool,
    /// Numbers with units of 1000.
    #[arg(short = 'H', long = "si", overrides_with = "human")]
    si: bool,
    /// Only targets that are in use and answer; those without a connection are not waited for.
    #[arg(short = 'l', long = "lazy")]
    lazy: bool,
    /// Only MDTs, or the one with this index, which stands right behind: -m0 or --mdt=0. With
    /// -o as well both kinds.
    #[arg(
        short = 'm',
        long = "mdt",
        value_name = "IDX",
        num_args = 0..=1,
        require_equals = true,
        value_parser = index
    )]
    mdt: Option<Option<u32>>,
    /// Only OSTs, or the one with this index: -o1 or --ost=1. Of a single target there is
    /// neither a header nor a sum.
    #[arg(
        short = 'o',
        long = "ost",
        value_name = "IDX",
        num_args = 0..=1,
        require_equals = true,
        value_parser = index
    )]
    ost: Option<Option<u32>>,
    /// Neither a header nor a sum.
    #[arg(short = 'N', long = "no-header")]
    no_header: bool,
    /// Only the sum.
    #[arg(short = 's', long = "only-summary", conflicts_with = "json")]
    only_summary: bool,
    /// Only these fields, in this order, with commas between.
    #[arg(
        short = 'u',
        long = "output",
        value_name = "FIELDS",
        value_delimiter = ',',
        conflicts_with = "json"
    )]
    output: Vec<Field>,
    /// Also targets that are out of use, which are left out only with -l.
    #[arg(short = 'v', long = "verbose")]
    verbose: bool,
    /// Print help.
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,
    /// As JSON, for programs: all numbers in bytes.
    #[arg(long)]
    json: bool,
    /// A path on the file system, or its name [default: all that are mounted].
    path: Option<PathBuf>,
}

/// What can be shown of a target, under all names of the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Field {
    /// The target.
    #[value(aliases = ["uuid", "device"])]
    Source,
    /// Its space in all.
    #[value(aliases = ["btotal", "total"])]
    Size,
    /// What is used of it.
    #[value(alias = "bused")]
    Used,
    /// What is free.
    #[value(alias = "bfree")]
    Free,
    /// What is available to users.
    #[value(alias = "bavail")]
    Avail,
    /// What is used, in per cent.
    #[value(aliases = ["bpct", "usepct", "pct"])]
    Pcent,
    /// Inodes or objects in all.
    #[value(alias = "inodes")]
    Itotal,
    /// Those in use.
    Iused,
    /// Those that are free.
    #[value(alias = "ifree")]
    Iavail,
    /// Those in use, in per cent.
    #[value(aliases = ["ipct", "iusepct"])]
    Ipcent,
    /// Where it is mounted.
    Target,
}

/// Arguments of `df` as clap can read them: in `-m0` and `-o3` an index follows at once, and what
/// follows `-m` behind a blank is something else.
pub(super) fn arguments(words: &mut [OsString]) {
    const FLAGS: &str = "hHilvNs";
    for word in words.iter_mut().take_while(|word| **word != *"--") {
        let Some(flags) = word.to_str().and_then(|text| text.strip_prefix('-')) else { continue };
        let before = flags.trim_start_matches(|flag| FLAGS.contains(flag));
        let Some(attached) = before.strip_prefix(['m', 'o']) else { continue };
        if attached.starts_with(|first: char| first.is_ascii_digit()) {
            let known = flags.strip_suffix(attached).unwrap_or(flags);
            *word = format!("-{known}={attached}").into();
        }
    }
}

/// An index, as the field reads one.
fn index(text: &str) -> Result<u32, String> {
    let read = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    read.map_err(|_| "an index is a number, as in -o3 or --ost=3".to_owned())
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
    let attribute = if args.lazy { CONNECTED_SPACE_XATTR } else { SPACE_XATTR };
    for ours in all {
        let doing = format!("cannot get the space of '{}'", ours.point.display());
        let rows = match answer::<Vec<SpaceRow>>(&ours.point, attribute, &doing) {
            Ok(rows) => rows,
            Err(failure) => {
                failures.push(failure);
                continue;
            }
        };
        failures.extend(missing(args, &ours, &rows));
        let rows: Vec<SpaceRow> = rows.into_iter().filter(|row| is_meant(args, row)).collect();
        if args.json {
            for row in &rows {
                let shown = Shown { mount: &ours.point, fsname: &ours.fsname, row };
                out.row(String::new(), &shown);
            }
        } else {
            print!("{}", table::table(args, &ours, &rows));
        }
        // What is shown is not all that there is, and a sum is too small.
        let silent = rows.iter().filter(|row| row.active && !row.answers);
        failures.extend(silent.map(|row| silent_target(&ours, &row.target)));
    }
    if args.json {
        failures.extend(out.print());
    }
    failures
}

/// `OST` and 3 of `OST0003`.
fn kind_and_index(target: &str) -> (&str, u32) {
    let (kind, index) = target.split_at_checked(3).unwrap_or((target, ""));
    (kind, u32::from_str_radix(index, 16).unwrap_or(0))
}

impl DfArgs {
    /// Single targets that were asked for.
    fn single(&self) -> impl Iterator<Item = (&'static str, u32)> {
        let one = |kind, which: Option<Option<u32>>| Some((kind, which??));
        [one("MDT", self.mdt), one("OST", self.ost)].into_iter().flatten()
    }
}

/// Single targets that were asked for and that there are not.
fn missing(args: &DfArgs, ours: &Ours, rows: &[SpaceRow]) -> Vec<Failure> {
    let is_there =
        |wanted: &(&str, u32)| rows.iter().any(|row| kind_and_index(&row.target) == *wanted);
    let failure = |(kind, index): (&str, u32)| no_target(&ours.fsname, kind, index);
    args.single().filter(|wanted| !is_there(wanted)).map(failure).collect()
}

/// Whether a target is to be shown.
fn is_meant(args: &DfArgs, row: &SpaceRow) -> bool {
    let (kind, index) = kind_and_index(&row.target);
    let wanted = if kind == "OST" { args.ost } else { args.mdt };
    let of_kind = match wanted {
        None => args.mdt.is_none() && args.ost.is_none(),
        Some(which) => which.is_none_or(|which| which == index),
    };
    let shown = match (row.active, row.answers) {
        _ if !args.lazy => true,
        (false, _) => args.verbose,
        (true, answers) => answers,
    };
    of_kind && shown
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{Command, Lfs};
    use super::*;

    /// The arguments of a command line.
    pub(super) fn args(line: &str) -> DfArgs {
        let words = std::iter::once("lfs df").chain(line.split_whitespace());
        let mut words: Vec<OsString> = words.flat_map(|w| w.split(' ')).map(Into::into).collect();
        arguments(&mut words);
        match Lfs::try_parse_from(words).map(|lfs| lfs.command) {
            Ok(Command::Df(args)) => args,
            other => panic!("{line}: {other:?}"),
        }
    }

    pub(super) fn row(target: &str, total: u64, free: u64) -> SpaceRow {
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

    fn meant(line: &str) -> Vec<String> {
        let rows = [
            row("MDT0000", 1 << 30, 1 << 29),
            row("OST0000", 4 << 40, 1 << 40),
            row("OST0001", 0, 0),
            SpaceRow { active: false, ..row("OST001a", 0, 0) },
        ];
        let args = args(line);
        rows.into_iter().filter(|row| is_meant(&args, row)).map(|row| row.target).collect()
    }

    #[test]
    fn targets_are_chosen_by_kind_and_index() {
        let all = ["MDT0000", "OST0000", "OST0001", "OST001a"];
        for (line, targets) in [
            ("", &all[..]),
            ("-v", &all),
            ("-m -o", &all),
            ("-m /mnt", &all[..1]),
            ("--mdt", &all[..1]),
            ("-o /mnt", &all[1..]),
            ("-o0 /mnt", &all[1..2]),
            ("-o=0", &all[1..2]),
            ("-hio26", &all[3..]),
            ("--ost=0x1a", &all[3..]),
            ("-m0 -o1", &["MDT0000", "OST0001"]),
            ("-o -m7", &all[1..]),
            ("-l", &all[..2]),
            ("-lv", &["MDT0000", "OST0000", "OST001a"]),
            ("-l -o1", &[]),
        ] {
            assert_eq!(meant(line), targets, "{line}");
        }
        assert_eq!(args("-m /mnt").path, Some("/mnt".into()), "an index stands right behind");
        assert_eq!(args("-o 0").path, Some("0".into()));
    }

    #[test]
    fn a_single_target_that_there_is_not_is_named() {
        let ours = Ours { point: "/mnt".into(), fsname: "testfs".into(), source: "testfs".into() };
        let rows = [row("MDT0000", 1, 1), row("OST0000", 1, 1)];
        let said = |line| {
            let failures = missing(&args(line), &ours, &rows);
            failures.into_iter().map(|failure| failure.what).collect::<Vec<_>>()
        };
        assert!(said("-m0 -o").is_empty());
        assert_eq!(said("-o26"), ["testfs has no OST001a (see: lfs osts)"]);
        assert_eq!(said("-m1 -o0"), ["testfs has no MDT0001 (see: lfs mdts)"]);
    }

    #[test]
    fn the_last_unit_counts() {
        let units = |line| (args(line).human, args(line).si);
        assert_eq!([units("-hH"), units("-H -h")], [(false, true), (true, false)]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (line, says) in [
            ("lfs df --ost=many", "an index is a number"),
            ("lfs df -u source,nothing", "ipcent"),
            ("lfs df -u state", "[possible values: source, size"),
            ("lfs df -s --json", "cannot be used with"),
            ("lfs df -u used --json", "cannot be used with"),
        ] {
            let said = Lfs::try_parse_from(line.split(' ')).unwrap_err().to_string();
            assert!(said.contains(says), "{line}: {said}");
        }
    }
}

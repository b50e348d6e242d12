//! `lfs osts`, `lfs mdts` and `lfs check`: the targets of mounted file systems.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use sateen_mount::{CHECK_XATTR, TARGETS_XATTR, TargetRow};
use serde::Serialize;

use super::{Failure, Rows, answer, mounts_of, silent_target};
use crate::mounts::Ours;

#[derive(Debug, Clone, Args)]
pub(super) struct ListArgs {
    /// As JSON, for programs.
    #[arg(long)]
    json: bool,
    /// A path on the file system, or its name [default: all that are mounted].
    path: Option<PathBuf>,
}

/// Which targets are to be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    /// The object targets.
    Osts,
    /// The metadata targets.
    #[value(alias = "mds")]
    Mdts,
    /// The management target.
    #[value(alias = "mgs")]
    Mgts,
    /// All of them.
    #[value(alias = "servers")]
    All,
}

#[derive(Debug, Clone, Args)]
pub(super) struct CheckArgs {
    /// Which targets.
    which: Which,
    /// As JSON, for programs.
    #[arg(long)]
    json: bool,
    /// A path on the file system, or its name [default: all that are mounted].
    path: Option<PathBuf>,
}

impl Which {
    fn prefix(self) -> &'static str {
        match self {
            Which::Osts => "OST",
            Which::Mdts => "MDT",
            Which::Mgts => "MGS",
            Which::All => "",
        }
    }
}

/// A target, for programs.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    mount: &'a Path,
    fsname: &'a str,
    target: &'a str,
    active: bool,
    connected: bool,
}

fn rows_of(ours: &Ours, attribute: &str, prefix: &str) -> Result<Vec<TargetRow>, Failure> {
    let doing = format!("cannot list the targets of '{}'", ours.point.display());
    let mut rows: Vec<TargetRow> = answer(&ours.point, attribute, &doing)?;
    rows.retain(|row| row.target.starts_with(prefix));
    Ok(rows)
}

fn shown<'a>(ours: &'a Ours, row: &'a TargetRow) -> Shown<'a> {
    Shown {
        mount: &ours.point,
        fsname: &ours.fsname,
        target: &row.target,
        active: row.active,
        connected: row.connected,
    }
}

/// `lfs osts`.
pub(super) fn osts(args: &ListArgs) -> Vec<Failure> {
    list(args, "OBDS:", "OST")
}

/// `lfs mdts`.
pub(super) fn mdts(args: &ListArgs) -> Vec<Failure> {
    list(args, "MDTS:", "MDT")
}

fn list(args: &ListArgs, title: &str, prefix: &str) -> Vec<Failure> {
    let mut out = Rows::new(args.json);
    let mut failures = for_each_mount(args.path.as_deref(), |ours| {
        let rows = rows_of(ours, TARGETS_XATTR, prefix)?;
        out.add(title.to_owned());
        for row in &rows {
            out.row(line(&ours.fsname, row), &shown(ours, row));
        }
        Ok(())
    });
    failures.extend(out.print());
    failures
}

fn index_of(target: &str) -> u32 {
    target.get(3..).and_then(|index| u32::from_str_radix(index, 16).ok()).unwrap_or(0)
}

fn line(fsname: &str, row: &TargetRow) -> String {
    let state = if row.active { "ACTIVE" } else { "INACTIVE" };
    format!("{}: {fsname}-{}_UUID {state}", index_of(&row.target), row.target)
}

/// `lfs check`.
pub(super) fn check(args: &CheckArgs) -> Vec<Failure> {
    let mut out = Rows::new(args.json);
    let mut silent = Vec::new();
    let several = mounts_of(args.path.as_deref()).is_ok_and(|all| all.len() > 1);
    let mut failures = for_each_mount(args.path.as_deref(), |ours| {
        for row in rows_of(ours, CHECK_XATTR, args.which.prefix())? {
            let name = match row.target.as_str() {
                "MGS" => "MGS".to_owned(),
                target => format!("{}-{target}", ours.fsname),
            };
            // Of one file system there may be more mounts than one.
            let name = if several { format!("{name} on {}", ours.point.display()) } else { name };
            match (row.active, row.connected) {
                (false, _) => out.row(format!("{name} inactive."), &shown(ours, &row)),
                (true, true) => out.row(format!("{name} active."), &shown(ours, &row)),
                (true, false) => {
                    silent.push(silent_target(ours, &row.target));
                    if args.json {
                        out.row(String::new(), &shown(ours, &row));
                    }
                }
            }
        }
        Ok(())
    });
    failures.extend(out.print());
    failures.append(&mut silent);
    failures
}

fn for_each_mount(
    path: Option<&Path>,
    mut each: impl FnMut(&Ours) -> Result<(), Failure>,
) -> Vec<Failure> {
    match mounts_of(path) {
        Ok(all) => all.iter().filter_map(|ours| each(ours).err()).collect(),
        Err(failure) => vec![failure],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_look_as_in_the_field() {
        let row = |target: &str, active| TargetRow {
            target: target.to_owned(),
            active,
            connected: active,
        };
        assert_eq!(line("testfs", &row("OST001f", true)), "31: testfs-OST001f_UUID ACTIVE");
        assert_eq!(line("testfs", &row("MDT0000", false)), "0: testfs-MDT0000_UUID INACTIVE");
    }
}

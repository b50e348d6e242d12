//! `lfs fid2path`: the names of a FID. Each inode says in its link-EA in which directories it
//! stands under which names; a directory stands in one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use sateen_mount::LINKS_XATTR;
use sateen_types::{Fid, FidError};
use sateen_wire::disk::mdt::links;

use super::{Failure, ask, mounts_of, with_bytes};

/// Deepest path that is followed: a loop in damaged directories must end.
const DEPTH_MAX: usize = 4096;
/// "No such file or directory", "invalid argument", "operation not permitted", "too many levels".
const ENOENT: u8 = 2;
const EINVAL: u8 = 22;
const EPERM: u8 = 1;
const ELOOP: u8 = 40;

#[derive(Debug, Clone, Args)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub(super) struct Fid2PathArgs {
    /// Show the FID before each path.
    #[arg(short = 'f', long = "print-fid")]
    fid: bool,
    /// Show the number of the link before each path.
    #[arg(short = 'c', long = "print-link")]
    count: bool,
    /// Show this link only, from 0.
    #[arg(short = 'l', long, value_name = "N")]
    link: Option<usize>,
    /// Show the last part of each path only.
    #[arg(short = 'n', long)]
    name: bool,
    /// End each path with a NUL rather than a new line.
    #[arg(short = '0', long = "print0")]
    nul: bool,
    /// As JSON, for programs.
    #[arg(long, conflicts_with_all = ["fid", "count", "nul"])]
    json: bool,
    /// The mount point, or the name of the file system.
    #[arg(value_name = "MOUNT|FSNAME")]
    mount: PathBuf,
    /// FIDs, as `lfs path2fid` shows them; the brackets may be left out.
    #[arg(required = true, value_name = "FID")]
    fids: Vec<String>,
}

pub(super) fn run(args: &Fid2PathArgs) -> Vec<Failure> {
    let mounts = match mounts_of(Some(&args.mount)) {
        Ok(mounts) => mounts,
        Err(failure) => return vec![failure],
    };
    let Some(ours) = mounts.first() else { return Vec::new() };
    let root = match root_of(&ours.point) {
        Ok(root) => root,
        Err(failure) => return vec![failure],
    };
    let mut paths = Paths { point: &ours.point, root, directories: BTreeMap::new() };
    let (mut values, mut failures) = (Vec::new(), Vec::new());
    for text in &args.fids {
        if let Err(failure) = show(args, &mut paths, text, &mut values) {
            failures.push(failure);
        }
    }
    if args.json {
        println!("{:#}", serde_json::Value::Array(values));
    }
    failures
}

/// What is mounted: all of the file system, or a directory of it.
fn root_of(point: &Path) -> Result<Fid, Failure> {
    let failed = |error| Failure::io(format!("cannot look at {}", point.display()), &error);
    let ino = fs::metadata(point).map_err(failed)?.ino();
    Ok(Fid::from_ino(ino).unwrap_or(Fid::ROOT))
}

fn show(
    args: &Fid2PathArgs,
    paths: &mut Paths<'_>,
    text: &str,
    values: &mut Vec<serde_json::Value>,
) -> Result<(), Failure> {
    let fid: Fid = text.parse().map_err(|error| match error {
        FidError::Range => {
            Failure { what: format!("no file can have the FID '{text}'"), code: ENOENT }
        }
        FidError::Syntax => Failure {
            what: format!("'{text}' is no FID: it looks like [0x200000007:0x1:0x0]"),
            code: EINVAL,
        },
    })?;
    let mut out = io::stdout().lock();
    for (number, path) in paths.of(fid)?.into_iter().enumerate() {
        if args.link.is_some_and(|link| link != number) {
            continue;
        }
        let shown = if args.name { path.file_name().unwrap_or_default() } else { path.as_os_str() };
        if args.json {
            let path = shown.to_string_lossy();
            let value = serde_json::json!({ "fid": fid.to_string(), "link": number, "path": path });
            values.push(with_bytes(value, Path::new(shown)));
            continue;
        }
        let mut line = Vec::new();
        if args.fid {
            line.extend_from_slice(format!("{fid} ").as_bytes());
        }
        if args.count {
            line.extend_from_slice(format!("{number} ").as_bytes());
        }
        line.extend_from_slice(shown.as_encoded_bytes());
        line.push(if args.nul { 0 } else { b'\n' });
        out.write_all(&line).map_err(|error| Failure::io("cannot print", &error))?;
    }
    Ok(())
}

/// Paths of one mount.
struct Paths<'a> {
    point: &'a Path,
    /// What is mounted there.
    root: Fid,
    /// Those of directories that were asked for already.
    directories: BTreeMap<Fid, PathBuf>,
}

impl Paths<'_> {
    fn links(&self, fid: Fid) -> Result<Vec<(Fid, OsString)>, Failure> {
        let answer =
            ask(self.point, &format!("{LINKS_XATTR}{fid}")).map_err(|error| {
                match error.raw_os_error() {
                    Some(1) => Failure {
                        what: format!("cannot get the names of {fid}: only root may"),
                        code: EPERM,
                    },
                    _ => Failure::io(format!("cannot get the names of {fid}"), &error),
                }
            })?;
        let named = |(parent, name): (Fid, &[u8])| (parent, OsString::from_vec(name.to_vec()));
        Ok(links(&answer).map(named).collect())
    }

    /// All paths of an inode.
    fn of(&mut self, fid: Fid) -> Result<Vec<PathBuf>, Failure> {
        if fid == self.root {
            return Ok(vec![self.point.to_owned()]);
        }
        let mut paths = Vec::new();
        for (parent, name) in self.links(fid)? {
            paths.extend(self.directory(parent)?.map(|path| path.join(name)));
        }
        if paths.is_empty() {
            let what = format!("{fid} is not below what is mounted at {}", self.point.display());
            return Err(Failure { what, code: ENOENT });
        }
        Ok(paths)
    }

    /// The path of a directory, if it is below what is mounted.
    fn directory(&mut self, fid: Fid) -> Result<Option<PathBuf>, Failure> {
        let mut names = Vec::new();
        let mut at = fid;
        let mut path = loop {
            if at == self.root {
                break self.point.to_owned();
            }
            if at == Fid::ROOT {
                return Ok(None);
            }
            if let Some(known) = self.directories.get(&at) {
                break known.clone();
            }
            let Some((parent, name)) = self.links(at)?.into_iter().next() else {
                return Err(Failure { what: format!("{at} stands in no directory"), code: ENOENT });
            };
            names.push(name);
            if names.len() > DEPTH_MAX {
                let what = format!("{fid} lies deeper than {DEPTH_MAX} directories");
                return Err(Failure { what, code: ELOOP });
            }
            at = parent;
        };
        path.extend(names.into_iter().rev());
        self.directories.insert(fid, path.clone());
        Ok(Some(path))
    }
}

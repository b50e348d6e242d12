//! `lfs`: striping and space of a mounted file system, with the commands and the output that
//! users of the field know. It speaks to the mount alone, through attributes that every file
//! of a mount answers (`sateen_mount`).
//!
//! Messages begin with `lfs COMMAND:`, and the exit code is the errno of the last failure, as
//! in the field.

mod df;
mod fid2path;
mod getstripe;
mod setstripe;
mod targets;

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use sateen_client::Striping;
use sateen_mount::STRIPE_XATTR;
use sateen_types::{Fid, StripePolicy};
use sateen_wire::codec::{DecodeError, Input, Wire};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) use self::setstripe::{count_of, size_of};
use crate::mounts::{self, Ours};
use crate::refusal::PROCESS_GONE;

/// Largest answer of a mount to one question.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// "No such file or directory".
const ENOENT: u8 = 2;
/// "Resource temporarily unavailable": a target that does not answer.
const EAGAIN: u8 = 11;
/// "No such device": a target that there is not.
const ENODEV: u8 = 19;
/// "Inappropriate ioctl": what tools of the field return for files elsewhere.
const ENOTTY: u8 = 25;

/// Striping and space of mounted files.
#[derive(Debug, Parser)]
#[command(name = "lfs", version, disable_help_subcommand = true)]
pub(crate) struct Lfs {
    /// The command.
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Makes a file with a striping, or sets what new files of a directory get.
    Setstripe(setstripe::SetStripeArgs),
    /// Shows the striping of files and directories.
    Getstripe(getstripe::GetStripeArgs),
    /// Shows the space of every target.
    Df(df::DfArgs),
    /// Lists the object targets, and whether they are in use.
    Osts(targets::ListArgs),
    /// Lists the metadata targets, and whether they are in use.
    Mdts(targets::ListArgs),
    /// Asks targets whether they are there.
    Check(targets::CheckArgs),
    /// Shows the FIDs of files.
    Path2fid(Path2FidArgs),
    /// Shows the paths of FIDs, all hard links of each.
    Fid2path(fid2path::Fid2PathArgs),
}

#[derive(Debug, Clone, Args)]
struct Path2FidArgs {
    /// As JSON, for programs.
    #[arg(long)]
    json: bool,
    /// The files.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

/// What went wrong with one path.
#[derive(Debug)]
struct Failure {
    what: String,
    code: u8,
}

impl Failure {
    fn io(doing: impl fmt::Display, error: &io::Error) -> Failure {
        let code = error.raw_os_error().and_then(|raw| u8::try_from(raw).ok()).unwrap_or(1);
        let known = rustix::io::Errno::from_io_error(error);
        let text = if known.is_some() { strip_code(&error.to_string()) } else { error.to_string() };
        let advice = match known {
            Some(rustix::io::Errno::NOTCONN) => format!(": {PROCESS_GONE}"),
            _ => String::new(),
        };
        Failure { what: format!("{doing}: {text}{advice}"), code }
    }
}

/// A target that there is not.
fn no_target(fsname: &str, kind: &str, index: u32) -> Failure {
    let list = format!("lfs {}s", kind.to_ascii_lowercase());
    Failure { what: format!("{fsname} has no {kind}{index:04x} (see: {list})"), code: ENODEV }
}

/// A target that does not answer a mount.
fn silent_target(ours: &Ours, target: &str) -> Failure {
    let name =
        if target == "MGS" { target.to_owned() } else { format!("{}-{target}", ours.fsname) };
    // Only OSTs can be done without.
    let or = match target.starts_with("OST") {
        true => format!(", or take it out of use with lctl set_param 'osc.*-{target}*.active=0'"),
        false => String::new(),
    };
    let point = ours.point.display();
    let what = format!(
        "{name} does not answer on {point}: see whether its server runs (sateen status){or}"
    );
    Failure { what, code: EAGAIN }
}

/// "No such file or directory (os error 2)" without its end.
fn strip_code(text: &str) -> String {
    text.split(" (os error").next().unwrap_or(text).to_owned()
}

/// Arguments as clap can read them, of `lfs` itself and of `sateen lfs`.
pub(crate) fn arguments(all: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut all: Vec<OsString> = all.into_iter().collect();
    let command = if all.get(1).is_some_and(|word| word == "lfs") { 2 } else { 1 };
    if all.get(command).is_some_and(|word| word == "df") {
        df::arguments(all.get_mut(command..).unwrap_or_default());
    }
    all
}

/// Runs a command line.
pub(crate) fn run(lfs: &Lfs) -> ExitCode {
    let (name, done) = match &lfs.command {
        Command::Setstripe(args) => ("setstripe", setstripe::run(args)),
        Command::Getstripe(args) => ("getstripe", getstripe::run(args)),
        Command::Df(args) => ("df", df::run(args)),
        Command::Osts(args) => ("osts", targets::osts(args)),
        Command::Mdts(args) => ("mdts", targets::mdts(args)),
        Command::Check(args) => ("check", targets::check(args)),
        Command::Path2fid(args) => ("path2fid", path2fid(args)),
        Command::Fid2path(args) => ("fid2path", fid2path::run(args)),
    };
    let mut code = ExitCode::SUCCESS;
    for failure in done {
        eprintln!("lfs {name}: {}", failure.what);
        code = ExitCode::from(failure.code);
    }
    code
}

/// Refuses a path that is not on a file system of ours.
fn require_ours(path: &Path) -> Result<(), Failure> {
    let found = mounts::ours_of(path)
        .map_err(|error| Failure::io(format!("cannot look at '{}'", path.display()), &error))?;
    match found {
        Some(_) => Ok(()),
        None => Err(Failure {
            what: format!(
                "'{}' is not on a Sateen file system; name a path below its mount (see: sateen \
                 status)",
                path.display()
            ),
            code: ENOTTY,
        }),
    }
}

/// What a mount answers to an attribute of its own.
fn ask(path: &Path, attribute: &str) -> io::Result<Vec<u8>> {
    let mut answer = vec![0; ANSWER_BYTES_MAX];
    let len = rustix::fs::lgetxattr(path, attribute, &mut answer)?;
    answer.truncate(len);
    Ok(answer)
}

/// The same, as JSON that it answers.
fn answer<T: DeserializeOwned>(path: &Path, attribute: &str, doing: &str) -> Result<T, Failure> {
    let answer = ask(path, attribute).map_err(|error| Failure::io(doing, &error))?;
    serde_json::from_slice(&answer).map_err(|error| Failure::io(doing, &error.into()))
}

/// What to do about a mount that is not there; which there are, with their file systems.
fn instead_of_unknown(mounted: &[String]) -> String {
    match mounted {
        [] => "mount one with mount -t sateen NID:/FSNAME DIR, or sateen up --mount DIR".to_owned(),
        _ => format!("name one of {}", mounted.join(", ")),
    }
}

/// The mount that a path lies in, those of the file system with this name, or all there are.
fn mounts_of(path: Option<&Path>) -> Result<Vec<Ours>, Failure> {
    let all = mounts::ours().map_err(|error| Failure::io("cannot list mounts", &error))?;
    let Some(path) = path else {
        if all.is_empty() {
            let what = format!("no Sateen file system is mounted: {}", instead_of_unknown(&[]));
            return Err(Failure { what, code: ENOENT });
        }
        return Ok(all);
    };
    let mounted: Vec<String> =
        all.iter().map(|ours| format!("{} on {}", ours.fsname, ours.point.display())).collect();
    let named: Vec<Ours> = all.into_iter().filter(|ours| Path::new(&ours.fsname) == path).collect();
    if !named.is_empty() && !path.exists() {
        return Ok(named);
    }
    let shown = path.display();
    let failed = |error: &io::Error| match error.kind() {
        io::ErrorKind::NotFound => Failure {
            what: format!(
                "'{shown}' is neither a path nor the name of a file system that is mounted here: {}",
                instead_of_unknown(&mounted)
            ),
            code: ENOENT,
        },
        _ => Failure::io(format!("cannot look at '{shown}'"), error),
    };
    let path = path.canonicalize().map_err(|error| failed(&error))?;
    require_ours(&path)?;
    let found = mounts::ours_of(&path).map_err(|error| failed(&error))?;
    Ok(found.into_iter().collect())
}

/// What a command shows: lines for people, or one JSON array for programs.
struct Rows {
    json: bool,
    lines: Vec<Vec<u8>>,
    values: Vec<serde_json::Value>,
}

impl Rows {
    fn new(json: bool) -> Rows {
        Rows { json, lines: Vec::new(), values: Vec::new() }
    }

    /// Something for people alone.
    fn add(&mut self, line: String) {
        self.lines.push(line.into());
    }

    fn row(&mut self, line: impl Into<Vec<u8>>, value: &impl Serialize) {
        self.lines.push(line.into());
        self.values.extend(serde_json::to_value(value));
    }

    /// Prints them. What there is of a failure: the disk behind it may be full.
    fn print(self) -> Option<Failure> {
        let mut all = Vec::new();
        if self.json {
            all.extend(format!("{:#}\n", serde_json::Value::Array(self.values)).into_bytes());
        }
        for line in self.lines.iter().filter(|_| !self.json) {
            all.extend_from_slice(line);
            all.push(b'\n');
        }
        let mut out = io::stdout().lock();
        let printed = out.write_all(&all).and_then(|()| out.flush());
        printed.err().map(|error| Failure::io("cannot print", &error))
    }
}

/// A value about a path; if that is not UTF-8, and what JSON says of it another name, with its bytes.
fn with_bytes(mut value: serde_json::Value, path: &Path) -> serde_json::Value {
    if let (None, Some(fields)) = (path.to_str(), value.as_object_mut()) {
        fields.insert("path_bytes".to_owned(), path.as_os_str().as_encoded_bytes().into());
    }
    value
}

/// The layout of a file; the policy of a directory, and the OSTs that it names, if it does; what
/// the file system says where neither does.
fn striping(path: &Path) -> Result<Striping, Failure> {
    require_ours(path)?;
    let failed = |error: &io::Error| {
        Failure::io(format!("cannot get the striping of '{}'", path.display()), error)
    };
    let answer = ask(path, STRIPE_XATTR).map_err(|error| failed(&error))?;
    let mut input = Input::new(&answer);
    let mut said = || -> Result<Striping, DecodeError> {
        let (layout, policy) = (Wire::take(&mut input)?, Wire::take(&mut input)?);
        // A mount of a build before this one says nothing of its file system.
        let default = match input.is_empty() {
            true => StripePolicy::DEFAULT,
            false => Wire::take(&mut input)?,
        };
        Ok(Striping { layout, policy, default })
    };
    said().map_err(|error| failed(&io::Error::new(io::ErrorKind::InvalidData, error.to_string())))
}

/// The FID that a file's inode number stands for.
fn fid_of(path: &Path) -> Result<Fid, Failure> {
    require_ours(path)?;
    let doing = format!("cannot get the FID of '{}'", path.display());
    let meta = std::fs::symlink_metadata(path).map_err(|error| Failure::io(&doing, &error))?;
    let ino = meta.ino();
    Fid::from_ino(ino)
        .ok_or_else(|| Failure { what: format!("{doing}: its inode number is {ino}"), code: 22 })
}

fn path2fid(args: &Path2FidArgs) -> Vec<Failure> {
    let (mut rows, mut failures) = (Rows::new(args.json), Vec::new());
    for path in &args.paths {
        match fid_of(path) {
            Ok(fid) => {
                let mut line = Vec::new();
                if args.paths.len() > 1 {
                    line.extend_from_slice(path.as_os_str().as_encoded_bytes());
                    line.extend_from_slice(b": ");
                }
                line.extend_from_slice(fid.to_string().as_bytes());
                let value = serde_json::json!({
                    "path": path.to_string_lossy(),
                    "fid": fid.to_string(),
                });
                rows.row(line, &with_bytes(value, path));
            }
            Err(failure) => failures.push(failure),
        }
    }
    failures.extend(rows.print());
    failures
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn arguments_are_consistent() {
        Lfs::command().debug_assert();
    }

    #[test]
    fn an_index_behind_an_option_is_read_under_every_name() {
        for line in ["lfs df -o1 /mnt", "sateen lfs df -o1 /mnt"] {
            let words = arguments(line.split(' ').map(OsString::from));
            assert!(words.contains(&"-o=1".into()), "{words:?}");
        }
        let others = "lfs setstripe -o1 /mnt";
        let words = arguments(others.split(' ').map(OsString::from));
        assert!(others.split(' ').eq(words.iter().map(|word| word.to_str().unwrap())));
    }

    #[test]
    fn paths_elsewhere_are_refused() {
        let failure = striping(Path::new("/proc")).unwrap_err();
        assert!(failure.what.contains("not on a Sateen"), "{}", failure.what);
        assert_eq!(failure.code, ENOTTY);
        let failure = striping(Path::new("/nowhere")).unwrap_err();
        assert!(failure.what.ends_with("No such file or directory"), "{}", failure.what);
        assert_eq!(failure.code, 2);
    }
}

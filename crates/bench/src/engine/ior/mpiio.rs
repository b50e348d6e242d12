//! `-a MPIIO`: how files are used, the hints that the MPI library is given, and what of it makes
//! no sense.
//!
//! Hints come where IOR finds them: `IOR_HINT__MPI__name=value` in the environment, and lines
//! of that form in a file, which override it. The root reads them for all: MPI wants them the
//! same everywhere, and the environment need not reach every node.

use std::path::Path;

use super::options::Ior;
use super::validate::first;
use crate::comm::Communicator;
use crate::engine::{Api, NEEDS_MPI};
use crate::error::{Error, Result};
use crate::io::{Parallel, Usage, View};

/// How names of hints begin.
const PREFIX: &str = "IOR_HINT__MPI__";
/// Longest transfer: MPI counts its bytes in a C int.
const TRANSFER_MAX: u64 = i32::MAX as u64;
/// What MPI libraries take before a name to say what file system it is on.
const FILE_SYSTEMS: [&str; 8] =
    ["ufs:", "nfs:", "lustre:", "gpfs:", "panfs:", "pvfs2:", "xfs:", "testfs:"];

/// Refuses what makes no sense.
pub(super) fn check(test: &Ior) -> Result<()> {
    if test.api != Api::Mpiio {
        let asked = test.preallocate || test.show_hints || test.file_view || test.strided;
        return first([(
            asked || test.hints_file.is_some(),
            "-p, -U, -H, -V, -S (--mpiio.*): they are options of -a MPIIO",
        )]);
    }
    let shared = !test.file_per_rank;
    let names_system = |name: &str| FILE_SYSTEMS.iter().any(|prefix| name.starts_with(prefix));
    // Calls that all ranks make together must be equally many.
    let uneven =
        test.deadline > 0 && !test.collective || test.random_offset == 1 || test.more.time_min > 0;
    first([
        (
            test.strided,
            "-S, --mpiio.useStridedDatatype: not here: each transfer is a call of its own",
        ),
        (
            test.direct,
            "-B, -a MPIIO: the MPI library opens the file; ask it with hints (direct_read, \
             direct_write)",
        ),
        (test.transfer > TRANSFER_MAX, "-t: with -a MPIIO a transfer has less than 2 GiB"),
        (
            test.file.split('@').any(names_system),
            "-o: a name says nothing of its file system here; set ROMIO_FSTYPE_FORCE",
        ),
        (
            shared && test.file.contains('@'),
            "-o, -a MPIIO: ranks open a file together, under one name: give each its own (-F)",
        ),
        (
            test.file_view && test.random_offset > 0,
            "-V, --mpiio.useFileView, -z: a view has its rank's transfers in order",
        ),
        (
            shared && test.collective && uneven,
            "-c, -a MPIIO: ranks that transfer together must make equally many, without -z and \
             -O minTimeDuration",
        ),
        (
            shared && test.fsync_per_write && uneven,
            "-Y, -a MPIIO: MPI makes a file's data durable for all ranks together, which must \
             write equally often: with -F, or -c, and without -z and -O minTimeDuration",
        ),
    ])
}

/// The files of these ranks, as a run uses them.
pub(super) fn files<'a>(test: &Ior, comm: &'a dyn Communicator) -> Result<Parallel<'a>> {
    let files = comm.files().ok_or(Error::usage(NEEDS_MPI))?;
    let shared = !test.file_per_rank;
    let ranks = if shared { comm.size() as u64 } else { 1 };
    let usage = Usage {
        shared,
        collective: test.collective,
        preallocate: test.preallocate.then(|| test.block * test.segments * ranks),
        hints: agreed(comm, test.hints_file.as_deref())?,
        show_hints: test.show_hints,
        view: test.file_view.then_some(View { block: test.block, transfer: test.transfer, ranks }),
    };
    Ok(Parallel::new(files, usage))
}

/// A hint: its name and its value.
type Hint = (String, String);

/// The root's hints, at all ranks; what is wrong with them, too.
fn agreed(comm: &dyn Communicator, file: Option<&Path>) -> Result<Vec<Hint>> {
    let said = match comm.is_root().then(|| found(std::env::vars_os(), file)) {
        None => Vec::new(),
        Some(Ok(hints)) => {
            let lines = hints.iter().map(|(name, value)| format!("{name}={value}\n"));
            format!("+{}", lines.collect::<String>()).into_bytes()
        }
        Some(Err(error)) => format!("-{error}").into_bytes(),
    };
    let said = comm.broadcast(&said)?;
    let said = String::from_utf8_lossy(&said);
    if let Some(why) = said.strip_prefix('-') {
        return Err(Error::usage(why));
    }
    let lines = said.trim_start_matches('+').lines();
    let split = lines.filter_map(|line| line.split_once('='));
    Ok(split.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// Those of the environment and of a file. A later one of the same name counts.
fn found(
    variables: impl Iterator<Item = (std::ffi::OsString, std::ffi::OsString)>,
    file: Option<&Path>,
) -> Result<Vec<Hint>> {
    let mut hints = Vec::new();
    for (name, value) in variables {
        let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
        if let Some(name) = name.strip_prefix(PREFIX) {
            add(&mut hints, name, &value);
        }
    }
    // Those of the environment have no order.
    hints.sort();
    let Some(file) = file else { return Ok(hints) };
    let text = std::fs::read_to_string(file).map_err(|error| {
        Error::usage(format!("-U, --mpiio.hintsFileName {}: {error}", file.display()))
    })?;
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let hint = line.split_once('=').map(|(name, value)| (name.trim(), value.trim()));
        let hint = hint.and_then(|(name, value)| Some((name.strip_prefix(PREFIX)?, value)));
        let Some((name, value)) = hint.filter(|(name, _)| !name.is_empty()) else {
            return Err(Error::usage(format!(
                "{}:{}: a hint has the form {PREFIX}NAME=VALUE",
                file.display(),
                number + 1
            )));
        };
        add(&mut hints, name, value);
    }
    Ok(hints)
}

fn add(hints: &mut Vec<Hint>, name: &str, value: &str) {
    hints.retain(|(known, _)| known != name);
    hints.push((name.to_owned(), value.to_owned()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ior::options::tests::ior;

    #[test]
    fn hints_come_from_the_environment_and_a_file() {
        let name = format!("sateen-bench-hints-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let variables = || {
            let all = [("IOR_HINT__MPI__cb_nodes", "4"), ("PATH", "x"), ("IOR_HINT__MPI__b", "1")];
            all.into_iter().map(|(name, value)| (name.into(), value.into()))
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let of = |text: &str| {
            std::fs::write(&path, text).unwrap();
            found(variables(), Some(&path))
        };
        assert_eq!(found(variables(), None).unwrap(), [pair("b", "1"), pair("cb_nodes", "4")]);
        let both = of("# of the file\n\n IOR_HINT__MPI__cb_nodes = 8 # more\n").unwrap();
        assert_eq!(both, [pair("b", "1"), pair("cb_nodes", "8")]);
        for bad in ["cb_nodes=8", "IOR_HINT__MPI__=8", "IOR_HINT__MPI__cb_nodes 8"] {
            let error = of(&format!("\n{bad}\n")).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(":2: a hint has the form"), "{error}");
        }
        std::fs::remove_file(&path).unwrap();
        let error = found(variables(), Some(&path)).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("No such file"), "{error}");
    }

    #[test]
    fn what_mpi_cannot_do_is_refused() {
        for line in [
            "-p",
            "-U hints",
            "--mpiio.showHints",
            "-a MPIIO --mpiio.useStridedDatatype",
            "-a MPIIO -B",
            "-a MPIIO -b 2g -t 2g",
            "-a MPIIO -o ufs:/x/f",
            "-a MPIIO -o /x/f@/y/f",
            "-a MPIIO -V -F -z",
            "-a MPIIO -c -z",
            "-a MPIIO -c -O minTimeDuration=1",
            "-a MPIIO -Y -D 1",
            "-a MPIIO -Y -z",
        ] {
            let error = check(&ior(line).resolved().unwrap()).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(error.to_string().starts_with('-'), "{line}: {error}");
        }
        for line in [
            "-a MPIIO -c -D 1",
            "-a MPIIO -r -p",
            "-a MPIIO -c -zz",
            "-a MPIIO -F -Y -D 1 -z",
            "-a MPIIO -c -Y -D 1",
            "-a mpiio -w -p -U hints -H -V -o /x/ufs:f",
        ] {
            check(&ior(line).resolved().unwrap()).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }
}

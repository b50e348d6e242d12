//! `-O name=value,...`: IOR's second way to give options, and the only one for some.

use std::path::PathBuf;

use clap::ValueEnum;

use super::options::{Ior, SummaryFormat};
use crate::engine::Api;
use crate::error::{Error, Result};
use crate::pattern::Packet;
use crate::size;

/// Follows a list of directives. Names are not case-sensitive.
pub(super) fn follow(test: &mut Ior, list: &str) -> Result<()> {
    for directive in list.split(',').map(str::trim).filter(|one| !one.is_empty()) {
        let Some((name, value)) = directive.split_once('=') else {
            return Err(Error::usage(format!("-O {directive}: it has the form NAME=VALUE")));
        };
        let (name, value) = (name.trim(), value.trim());
        one(test, &name.to_ascii_lowercase(), value)
            .map_err(|why| Error::usage(format!("-O {name}={value}: {why}")))?;
    }
    Ok(())
}

/// Why a value makes no sense.
type Why = String;

fn flag(value: &str) -> std::result::Result<bool, Why> {
    match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err("0 or 1 is expected".into()),
    }
}

fn count<T: std::str::FromStr>(value: &str) -> std::result::Result<T, Why> {
    value.parse().map_err(|_| "a number is expected".into())
}

fn choice<T: ValueEnum>(value: &str) -> std::result::Result<T, Why> {
    T::from_str(value, true)
}

fn one(test: &mut Ior, name: &str, value: &str) -> std::result::Result<(), Why> {
    match name {
        "stonewallingwearout" => test.more.wear_out = flag(value)?,
        "stonewallingwearoutiterations" => test.more.wear_out_iterations = count(value)?,
        "stonewallingstatusfile" => test.more.status_file = Some(PathBuf::from(value)),
        "mintimeduration" => test.more.time_min = count(value)?,
        "summaryformat" => test.more.format = Some(choice::<SummaryFormat>(value)?),
        "summaryfile" => test.more.summary_file = Some(PathBuf::from(value)),
        "saverankperformancedetailscsv" => test.more.ranks_file = Some(PathBuf::from(value)),
        "numnodes" => test.more.nodes = Some(count(value)?),
        "numtasksonnode0" => test.more.ranks_on_root = Some(count(value)?),
        "api" => test.api = choice::<Api>(value)?,
        "datapackettype" => test.packet = choice::<Packet>(value)?,
        "testfile" => value.clone_into(&mut test.file),
        "blocksize" => test.block = size::parse(value)?,
        "transfersize" => test.transfer = size::parse(value)?,
        "segmentcount" => test.segments = size::parse(value)?,
        "deadlineforstonewalling" => test.deadline = count(value)?,
        "repetitions" => test.repetitions = count(value)?,
        "intertestdelay" => test.delay = count(value)?,
        "taskpernodeoffset" => test.node_offset = count(value)?,
        "reordertasksrandomseed" => test.reorder_seed = count(value)?,
        "settimestampsignature" => test.signature = Some(count(value)?),
        "refnum" => test.reference = count(value)?,
        "reordertasksrandom" => test.reorder_random = count(value)?,
        "randomoffset" => test.random_offset = count(value)?,
        "hintsfilename" => test.hints_file = Some(PathBuf::from(value)),
        "verbose" => test.verbose = count(value)?,
        _ => return switch(test, name, value),
    }
    Ok(())
}

fn switch(test: &mut Ior, name: &str, value: &str) -> std::result::Result<(), Why> {
    let option = match name {
        "readfile" => &mut test.read,
        "writefile" => &mut test.write,
        "checkwrite" => &mut test.check_write,
        "checkread" => &mut test.check_read,
        "fileperproc" => &mut test.file_per_rank,
        "keepfile" => &mut test.keep,
        "keepfilewitherror" => &mut test.keep_wrong,
        "multifile" => &mut test.multi_file,
        "uniquedir" => &mut test.unique_dir,
        "useexistingtestfile" => &mut test.existing,
        "intratestbarriers" => &mut test.barriers,
        "collective" => &mut test.collective,
        "fsync" => &mut test.fsync,
        "fsyncperwrite" => &mut test.fsync_per_write,
        "preallocate" => &mut test.preallocate,
        "showhints" => &mut test.show_hints,
        "usefileview" => &mut test.file_view,
        "usestrideddatatype" => &mut test.strided,
        "useo_direct" => &mut test.direct,
        "reordertasks" | "reordertasksconstant" => &mut test.reorder,
        _ => return Err("there is no such directive".into()),
    };
    *option = flag(value)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ior::options::tests::ior;

    #[test]
    fn directives_say_what_options_say() {
        let test = ior("-O stoneWallingWearOut=1,summaryFormat=JSON -O BlockSize=4m,fsync=1");
        let test = test.resolved().unwrap();
        assert!(test.more.wear_out && test.fsync);
        assert_eq!(test.more.format, Some(SummaryFormat::Json));
        assert_eq!(test.block, 4 << 20);
    }

    #[test]
    fn strange_directives_are_refused() {
        for bad in ["nothing=1", "fsync", "fsync=2", "summaryFormat=XML", "blockSize=4x", "api=S3"]
        {
            let error = ior(&format!("-O {bad}")).resolved().unwrap_err();
            assert!(error.to_string().starts_with("-O "), "{error}");
            assert_eq!(error.exit_code(), 2);
        }
    }
}

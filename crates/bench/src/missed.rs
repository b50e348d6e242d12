//! Options that users of the original tools know and that are not here: that the original has
//! them, and what to do in their place. The parser only says that they are unexpected.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// A command, options of the original that are not here, and what to do instead; a `*` stands for
/// any ending.
type Missed = (&'static str, &'static [&'static str], &'static str);

const IOR: [Missed; 16] = [
    ("ior", &["-f"], "give the options of each test of the script as a line of its own"),
    ("ior", &["-N"], "start as many ranks as are to work: -np N, or mpirun -np N"),
    ("ior", &["-M"], "lock the memory away: sateen-bench memblock 90% -- COMMAND"),
    ("ior", &["-T"], "end each phase with -D SECONDS, or the whole with timeout(1)"),
    ("ior", &["-j"], "leave it out: ranks that lag are always named (W-STRAGGLER)"),
    (
        "ior",
        &["-J", "-n", "-I"],
        "leave it out: it is HDF5's, and files are POSIX's and MPI's here",
    ),
    ("ior", &["-P"], "leave it out: ranks have file pointers of their own, as in IOR since 3.1"),
    ("ior", &["-q"], "leave it out: a call that fails always ends the run"),
    ("ior", &["-x"], "leave it out: a transfer that fails is never tried again"),
    (
        "ior",
        &["-y"],
        "write in one run, read in another through the other mount: -w -k -o A/file, -r -o B/file",
    ),
    ("ior", &["-h"], "use --help"),
    ("ior", &["--dryRun"], "leave it out: options are checked before anything is done"),
    ("ior", &["--warningAsErrors"], "use --json and look whether `pitfalls` is empty"),
    ("ior", &["--posix.lustre*"], "use lfs setstripe on the directory, before the run"),
    (
        "ior",
        &[
            "--posix*",
            "--hdf5*",
            "--ncmpi*",
            "--mmap*",
            "--dummy*",
            "--gpu*",
            "--allocateBufferOnGPU",
        ],
        "leave it out: there are -a POSIX, MPIIO and DUMMY without it, and buffers are in memory",
    ),
    ("ior", &["--randomPrefill"], "write the whole file in a run before, without -z, and use -E"),
];

const MDTEST: [Missed; 11] = [
    (
        "mdtest",
        &["-R", "--random-seed"],
        "leave it out: items are visited in order; -N takes another rank's",
    ),
    ("mdtest", &["-B"], "leave it out: all ranks meet between phases"),
    ("mdtest", &["-c"], "leave it out: each rank creates its own; with -S all share files"),
    (
        "mdtest",
        &["-f", "-l", "-s"],
        "make a run for each number of ranks: for n in 1 2 4; do sateen-bench -np $n ...",
    ),
    ("mdtest", &["-V"], "use -v"),
    ("mdtest", &["-h"], "use --help"),
    ("mdtest", &["--verify-write"], "use -E -X: what is read is compared with what was written"),
    (
        "mdtest",
        &["--run-cmd-before-phase", "--run-cmd-after-phase"],
        "make a run for each phase (-C, -T, -E, -r); --drop-caches drops caches before those that read",
    ),
    (
        "mdtest",
        &["--print-all-procs", "--showRankStatistics"],
        "use --saveRankPerformanceDetails FILE, or --json",
    ),
    ("mdtest", &["--warningAsErrors"], "leave it out: an operation that fails ends the run"),
    (
        "mdtest",
        &["--posix*", "--dummy*", "--allocateBufferOnGPU"],
        "leave it out: there are -a POSIX and DUMMY without it",
    ),
];

const IOZONE: [Missed; 21] = [
    (
        "iozone",
        &["-a", "-A", "-z"],
        "say what is to be measured, for its throughput mode: -r 64k,1m -s 4g -t 1,2,4",
    ),
    ("iozone", &["-R", "-b"], "use --json, and sateen-bench report --csv DIR of that"),
    ("iozone", &["-g", "-n"], "use -s SIZE, in a run for each size"),
    ("iozone", &["-q", "-y"], "use -r with commas between: -r 4k,64k,1m"),
    ("iozone", &["-l", "-u"], "use -t with commas between: -t 1,2,4"),
    ("iozone", &["-T"], "leave it out: ranks are processes (-np N)"),
    ("iozone", &["-U", "-p"], "use --drop-caches"),
    ("iozone", &["-S", "-L"], "leave it out: what processors cache is not purged"),
    (
        "iozone",
        &["-o"],
        "use -e, which has data durable at the end of each test, or ior -Y, after each write",
    ),
    ("iozone", &["-B", "-D", "-G", "-Z"], "leave it out: mapped files are not measured"),
    (
        "iozone",
        &["-H", "-k"],
        "leave it out: asynchronous calls are not measured; more ranks have more under way",
    ),
    ("iozone", &["-E"], "use -i 9 -i 10: pwrite and pread"),
    ("iozone", &["-V"], "use -+d: every byte is compared"),
    ("iozone", &["-N"], "use --json, which has latencies in microseconds"),
    ("iozone", &["-Q"], "use --json, which has latencies and the rate over time"),
    ("iozone", &["-J", "-K", "-d"], "leave it out: nothing is waited for between records"),
    ("iozone", &["-P"], "leave it to who starts the ranks: mpirun --bind-to core"),
    (
        "iozone",
        &["-m", "-W", "-M"],
        "leave it out: a rank has one buffer, locks nothing, and hosts are named in --json",
    ),
    ("iozone", &["-X", "-Y"], "leave it out: the patterns are those of -i"),
    ("iozone", &["-h", "-v"], "use --help or --version"),
    ("iozone", &["-+*"], "leave it out: there are -+n, -+d, -+p and -+E"),
];

/// The command among words that call the program, and whose options it has.
fn original(args: &[OsString]) -> Option<(&'static str, &'static str)> {
    let tools = [("ior", "IOR"), ("mdtest", "mdtest"), ("iozone", "IOzone")];
    args.iter().skip(1).find_map(|word| tools.into_iter().find(|tool| word == tool.0))
}

/// What to say of arguments that were not understood, if the original would have.
pub fn said(error: &clap::Error, args: &[OsString]) -> Option<String> {
    if error.kind() != ErrorKind::UnknownArgument {
        return None;
    }
    let (command, tool) = original(args)?;
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    // IOzone's are written so for the parser's sake.
    let option = if option.starts_with("--+") { option.get(1..)? } else { option };
    let is = |word: &&str| match word.strip_suffix('*') {
        Some(begin) => option.starts_with(begin),
        None => option == *word,
    };
    let all = IOR.iter().chain(&MDTEST).chain(&IOZONE);
    let (.., instead) =
        all.into_iter().find(|(of, words, _)| *of == command && words.iter().any(is))?;
    Some(format!(
        "{option}: {tool} has it, {command} here has not: {instead} (all that there is: {command} \
         --help)"
    ))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::{Program, arguments};

    fn said_of(line: &str) -> Option<String> {
        let words = format!("sateen-bench {line}");
        let args = arguments(words.split(' ').map(OsString::from));
        said(&Program::try_parse_from(&args).expect_err(line), &args)
    }

    #[test]
    fn what_the_originals_have_is_known_with_what_to_do_instead() {
        for (line, wanted) in [
            (
                "-np 4 ior -w -f script",
                "-f: IOR has it, ior here has not: give the options of each test",
            ),
            ("ior -wrN 4", "-np N"),
            ("ior -M 90%", "memblock"),
            ("ior -T 5 -w", "-D SECONDS"),
            ("ior --posix.lustre.stripecount=4", "lfs setstripe"),
            ("mdtest -n 5 -R", "-R: mdtest has it, mdtest here has not"),
            ("mdtest -n 5 --run-cmd-before-phase=sync", "--drop-caches"),
            ("iozone -a", "-a: IOzone has it, iozone here has not: say what is to be measured"),
            ("iozone -Ra -b out.xls", "report --csv DIR"),
            ("iozone -+u", "-+u: IOzone has it"),
        ] {
            let found = said_of(line).unwrap_or_else(|| panic!("{line}: nothing is said"));
            assert!(found.contains(wanted), "{line}: {found}");
        }
        // What nobody has is the parser's to tell.
        assert_eq!(said_of("ior --frobnicate"), None);
        assert_eq!(said_of("io500 -f"), None);
        assert_eq!(said_of("ior -b x"), None);
    }

    #[test]
    fn no_option_is_called_missing_that_is_there() {
        for (command, options, _) in IOR.iter().chain(&MDTEST).chain(&IOZONE) {
            let program = Program::command();
            let command = program.find_subcommand(command).unwrap();
            for option in options.iter().filter(|option| **option != "-h") {
                let there = command.get_arguments().any(|one| {
                    let short =
                        one.get_short().is_some_and(|short| format!("-{short}") == **option);
                    short || one.get_long().is_some_and(|long| format!("--{long}") == **option)
                });
                assert!(!there, "{} {option}", command.get_name());
            }
        }
    }
}

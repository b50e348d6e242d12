//! What is measured: command lines that the original tools and ours take alike.

/// Which tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    /// Bandwidth.
    Ior,
    /// Rates of files.
    Mdtest,
    /// Throughput of access patterns; it starts its processes itself.
    Iozone,
}

impl Tool {
    /// Its name, which is our command, too.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ior => "ior",
            Self::Mdtest => "mdtest",
            Self::Iozone => "iozone",
        }
    }

    /// Whether it can be told to measure nothing but itself (`-a DUMMY`).
    pub(crate) fn has_dummy(self) -> bool {
        self != Self::Iozone
    }

    /// Whether its runs are repeated by an option of its own.
    pub(crate) fn iterates(self) -> bool {
        self != Self::Iozone
    }
}

/// A command line, and which of the rates that it leads to are compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    /// Its name.
    pub(crate) name: &'static str,
    /// Whose command line it is.
    pub(crate) tool: Tool,
    /// Through what a folder is measured; IOzone asks for nothing.
    api: &'static str,
    /// Options; `{}` is the count, `{4k}` and `{64k}` so many KiB of each, `{ranks}` how many work.
    options: &'static str,
    /// Transfers or files of each rank, if nothing else is said.
    pub(crate) count: u64,
    /// What is measured, by the names that the tools print.
    pub(crate) rates: &'static [&'static str],
    /// What an operation moves, in the unit of the rates without the second.
    pub(crate) operation: f64,
}

/// What a run measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// A folder.
    Folder,
    /// Nothing: what is left is the program's own time.
    Nothing,
}

/// Operations of a rank by which a program's own time is told: their clocks have microseconds.
const OWN_COUNT_MIN: u64 = 100_000;

const POSIX: &str = "POSIX";
const ACCESSES: &[&str] = &["write", "read"];
const TESTS: &[&str] =
    &["initial writers", "rewriters", "readers", "re-readers", "random readers", "random writers"];
const PHASES: &[&str] = &["File creation", "File stat", "File read", "File removal"];
const DIRECTORIES: &[&str] =
    &["Directory creation", "Directory stat", "Directory rename", "Directory removal"];
/// Of the tests that others need before them, the rates are compared, too: processor time is
/// that of the whole run.
const PATTERNS: &[&str] =
    &["initial writers", "rewriters", "reverse readers", "stride readers", "mixed workload"];
const POSITIONED: &[&str] = &["initial writers", "rewriters", "pwrite writers", "pread readers"];
const STREAMS: &[&str] = &["initial writers", "rewriters", "fwriters", "freaders"];

/// All of them: streams, small transfers at random, IO500's odd size in one file, files of each
/// that another reads, one file through MPI-IO; files that are empty in folders of their own, the
/// same in a tree, IO500's small ones in one folder, directories; IOzone's throughput mode with
/// large records and with small ones, and its other patterns.
pub(crate) const CASES: [Case; 14] = [
    Case {
        name: "ior-1m",
        tool: Tool::Ior,
        api: POSIX,
        options: "-w -r -F -e -t 1m -b {}m",
        count: 256,
        rates: ACCESSES,
        operation: 1.0,
    },
    Case {
        name: "ior-4k-random",
        tool: Tool::Ior,
        api: POSIX,
        options: "-w -r -F -z -t 4k -b {4k}k",
        count: 131_072,
        rates: ACCESSES,
        operation: 4.0 / 1024.0,
    },
    Case {
        name: "ior-47008-shared",
        tool: Tool::Ior,
        api: POSIX,
        options: "-w -r -e -t 47008 -b 47008 -s {}",
        count: 4000,
        rates: ACCESSES,
        operation: 47_008.0 / 1_048_576.0,
    },
    Case {
        name: "ior-64k-own",
        tool: Tool::Ior,
        api: POSIX,
        options: "-w -r -F -C -t 64k -b {64k}k",
        count: 8192,
        rates: ACCESSES,
        operation: 64.0 / 1024.0,
    },
    Case {
        name: "ior-mpiio",
        tool: Tool::Ior,
        api: "MPIIO",
        options: "-w -r -e -t 1m -b {}m",
        count: 256,
        rates: ACCESSES,
        operation: 1.0,
    },
    Case {
        name: "mdtest-empty",
        tool: Tool::Mdtest,
        api: POSIX,
        options: "-F -u -n {}",
        count: 100_000,
        rates: PHASES,
        operation: 1.0,
    },
    Case {
        name: "mdtest-3901",
        tool: Tool::Mdtest,
        api: POSIX,
        options: "-F -w 3901 -e 3901 -n {}",
        count: 40_000,
        rates: PHASES,
        operation: 1.0,
    },
    Case {
        name: "mdtest-dirs",
        tool: Tool::Mdtest,
        api: POSIX,
        options: "-D -u -n {}",
        count: 40_000,
        rates: DIRECTORIES,
        operation: 1.0,
    },
    // 21 directories of each rank, among which the files are dealt out.
    Case {
        name: "mdtest-tree",
        tool: Tool::Mdtest,
        api: POSIX,
        options: "-F -u -z 2 -b 4 -n {}",
        count: 84_000,
        rates: PHASES,
        operation: 1.0,
    },
    Case {
        name: "iozone-1m",
        tool: Tool::Iozone,
        api: "",
        options: "-i 0 -i 1 -i 2 -e -c -x -t {ranks} -r 1m -s {}m",
        count: 1024,
        rates: TESTS,
        operation: 1024.0,
    },
    Case {
        name: "iozone-4k",
        tool: Tool::Iozone,
        api: "",
        options: "-i 0 -i 1 -i 2 -e -c -x -t {ranks} -r 4k -s {4k}k",
        count: 262_144,
        rates: TESTS,
        operation: 4.0,
    },
    Case {
        name: "iozone-patterns",
        tool: Tool::Iozone,
        api: "",
        options: "-i 0 -i 3 -i 5 -i 8 -e -c -x -t {ranks} -r 64k -s {64k}k",
        count: 16_384,
        rates: PATTERNS,
        operation: 64.0,
    },
    Case {
        name: "iozone-pwrite",
        tool: Tool::Iozone,
        api: "",
        options: "-i 0 -i 9 -i 10 -e -c -x -t {ranks} -r 64k -s {64k}k",
        count: 16_384,
        rates: POSITIONED,
        operation: 64.0,
    },
    Case {
        name: "iozone-stdio",
        tool: Tool::Iozone,
        api: "",
        options: "-i 0 -i 6 -i 7 -e -c -x -t {ranks} -r 64k -s {64k}k",
        count: 16_384,
        rates: STREAMS,
        operation: 64.0,
    },
];

impl Case {
    /// Its arguments for so many iterations by so many ranks below a folder, of which nothing is
    /// used if nothing is measured.
    pub(crate) fn arguments(
        &self,
        target: Target,
        iterations: u32,
        ranks: u32,
        dir: &str,
    ) -> Vec<String> {
        let count = match target {
            Target::Folder => self.count,
            Target::Nothing => self.count.max(OWN_COUNT_MIN),
        };
        let api = match target {
            Target::Nothing => "DUMMY",
            Target::Folder => self.api,
        };
        let api = if self.tool.has_dummy() { format!("-a {api} ") } else { String::new() };
        let options = format!("{api}{}", self.options)
            .replace("{}", &count.to_string())
            .replace("{64k}", &(64 * count).to_string())
            .replace("{4k}", &(4 * count).to_string())
            .replace("{ranks}", &ranks.to_string());
        let target = match self.tool {
            Tool::Ior => ["-o".to_owned(), format!("{dir}/file")],
            Tool::Mdtest => ["-d".to_owned(), format!("{dir}/tree")],
            // A file for each rank, by name: what they are called otherwise is not the same.
            Tool::Iozone => {
                let words = options.split_whitespace().map(str::to_owned);
                let files = (0..ranks).map(|rank| format!("{dir}/file.{rank}"));
                return words.chain(["-F".to_owned()]).chain(files).collect();
            }
        };
        let words = options.split_whitespace().map(str::to_owned);
        words.chain(["-i".to_owned(), iterations.to_string()]).chain(target).collect()
    }

    /// Iterations of a run: the mean of all is its rate.
    pub(crate) fn iterations(&self, asked: u32) -> u32 {
        if self.tool.iterates() { asked } else { 1 }
    }

    /// Operations of all ranks in a run: each rate's.
    pub(crate) fn operations(&self, ranks: u32, iterations: u32) -> f64 {
        self.count as f64
            * self.rates.len() as f64
            * f64::from(ranks)
            * f64::from(self.iterations(iterations))
    }

    /// The unit of its rates.
    pub(crate) fn unit(&self) -> &'static str {
        match self.tool {
            Tool::Ior => "MiB/s",
            Tool::Mdtest => "1/s",
            Tool::Iozone => "kB/s",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_reach_the_command_lines() {
        let case = |name: &str, count: u64| {
            let found = CASES.iter().find(|case| case.name == name).copied();
            Case { count, ..found.unwrap_or_else(|| panic!("no case {name}")) }
        };
        let of = |target, name: &str| case(name, 300).arguments(target, 3, 2, "/d").join(" ");
        let line = |name| of(Target::Folder, name);
        assert_eq!(line("ior-1m"), "-a POSIX -w -r -F -e -t 1m -b 300m -i 3 -o /d/file");
        assert_eq!(line("ior-4k-random"), "-a POSIX -w -r -F -z -t 4k -b 1200k -i 3 -o /d/file");
        assert_eq!(line("ior-mpiio"), "-a MPIIO -w -r -e -t 1m -b 300m -i 3 -o /d/file");
        assert_eq!(line("mdtest-empty"), "-a POSIX -F -u -n 300 -i 3 -d /d/tree");
        assert_eq!(line("mdtest-dirs"), "-a POSIX -D -u -n 300 -i 3 -d /d/tree");
        let nothing = |name| of(Target::Nothing, name);
        assert_eq!(nothing("mdtest-empty"), "-a DUMMY -F -u -n 100000 -i 3 -d /d/tree");
        let wanted = "-a DUMMY -w -r -e -t 1m -b 100000m -i 3 -o /d/file";
        assert_eq!(nothing("ior-mpiio"), wanted, "without MPI-IO");
        let iozone = "-i 0 -i 1 -i 2 -e -c -x -t 2 -r 4k -s 1200k -F /d/file.0 /d/file.1";
        assert_eq!(line("iozone-4k"), iozone);
        let iozone = "-i 0 -i 9 -i 10 -e -c -x -t 2 -r 64k -s 19200k -F /d/file.0 /d/file.1";
        assert_eq!(line("iozone-pwrite"), iozone);
        assert_eq!(case("mdtest-empty", 10).operations(2, 3), 240.0);
        assert_eq!(case("iozone-1m", 10).operations(2, 3), 120.0, "it is run once");
    }

    #[test]
    fn cases_have_names_of_their_own_that_fit_the_table() {
        let names: std::collections::BTreeSet<&str> = CASES.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), CASES.len());
        assert!(names.iter().all(|name| name.len() < 17), "{names:?}");
    }
}

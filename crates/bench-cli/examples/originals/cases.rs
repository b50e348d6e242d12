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
    /// Options; `{}` is the count, `{4k}` four KiB of each, `{ranks}` how many work.
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

const ACCESSES: &[&str] = &["write", "read"];
const TESTS: &[&str] =
    &["initial writers", "rewriters", "readers", "re-readers", "random readers", "random writers"];
const PHASES: &[&str] = &["File creation", "File stat", "File read", "File removal"];

/// All of them: streams, small transfers at random, IO500's odd size in one file; files that are
/// empty in folders of their own, and IO500's small ones in one folder; IOzone's throughput mode
/// with large records and with small ones.
pub(crate) const CASES: [Case; 7] = [
    Case {
        name: "ior-1m",
        tool: Tool::Ior,
        options: "-w -r -F -e -t 1m -b {}m",
        count: 256,
        rates: ACCESSES,
        operation: 1.0,
    },
    Case {
        name: "ior-4k-random",
        tool: Tool::Ior,
        options: "-w -r -F -z -t 4k -b {4k}k",
        count: 131_072,
        rates: ACCESSES,
        operation: 4.0 / 1024.0,
    },
    Case {
        name: "ior-47008-shared",
        tool: Tool::Ior,
        options: "-w -r -e -t 47008 -b 47008 -s {}",
        count: 4000,
        rates: ACCESSES,
        operation: 47_008.0 / 1_048_576.0,
    },
    Case {
        name: "mdtest-empty",
        tool: Tool::Mdtest,
        options: "-F -u -n {}",
        count: 100_000,
        rates: PHASES,
        operation: 1.0,
    },
    Case {
        name: "mdtest-3901",
        tool: Tool::Mdtest,
        options: "-F -w 3901 -e 3901 -n {}",
        count: 40_000,
        rates: PHASES,
        operation: 1.0,
    },
    Case {
        name: "iozone-1m",
        tool: Tool::Iozone,
        options: "-i 0 -i 1 -i 2 -e -c -x -t {ranks} -r 1m -s {}m",
        count: 1024,
        rates: TESTS,
        operation: 1024.0,
    },
    Case {
        name: "iozone-4k",
        tool: Tool::Iozone,
        options: "-i 0 -i 1 -i 2 -e -c -x -t {ranks} -r 4k -s {4k}k",
        count: 262_144,
        rates: TESTS,
        operation: 4.0,
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
        let api = if target == Target::Nothing { "-a DUMMY " } else { "-a POSIX " };
        let api = if self.tool.has_dummy() { api } else { "" };
        let options = format!("{api}{}", self.options)
            .replace("{}", &count.to_string())
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
        let of = |target, at: usize| {
            Case { count: 300, ..CASES[at] }.arguments(target, 3, 2, "/d").join(" ")
        };
        let line = |at| of(Target::Folder, at);
        assert_eq!(line(0), "-a POSIX -w -r -F -e -t 1m -b 300m -i 3 -o /d/file");
        assert_eq!(line(1), "-a POSIX -w -r -F -z -t 4k -b 1200k -i 3 -o /d/file");
        assert_eq!(line(3), "-a POSIX -F -u -n 300 -i 3 -d /d/tree");
        assert_eq!(of(Target::Nothing, 3), "-a DUMMY -F -u -n 100000 -i 3 -d /d/tree");
        let nothing = of(Target::Nothing, 0);
        assert_eq!(nothing, "-a DUMMY -w -r -F -e -t 1m -b 100000m -i 3 -o /d/file");
        let iozone = "-i 0 -i 1 -i 2 -e -c -x -t 2 -r 4k -s 1200k -F /d/file.0 /d/file.1";
        assert_eq!(line(6), iozone);
        assert_eq!(Case { count: 10, ..CASES[3] }.operations(2, 3), 240.0);
        assert_eq!(Case { count: 10, ..CASES[5] }.operations(2, 3), 120.0, "it is run once");
    }
}

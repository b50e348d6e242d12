//! The phases of a run, in their order, and the command line of each.

use std::path::Path;

use clap::Parser;

use super::hash;
use super::place::Plan;
use crate::engine::Engine;
use crate::engine::ior::Ior;
use crate::engine::mdtest::Mdtest;
use crate::error::{Error, Result};

/// A phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    IorEasyWrite,
    MdtestEasyWrite,
    Timestamp,
    IorHardWrite,
    MdtestHardWrite,
    Find,
    IorEasyRead,
    MdtestEasyStat,
    IorHardRead,
    MdtestHardStat,
    MdtestEasyDelete,
    MdtestHardRead,
    MdtestHardDelete,
    IorRnd4kEasyRead,
}

/// Which score a phase counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    None,
    Metadata,
    Bandwidth,
}

/// What runs a phase.
#[derive(Debug, Clone)]
pub(super) enum Work {
    Ior(Box<Ior>),
    Mdtest(Box<Mdtest>),
    Timestamp,
    Find,
}

impl Phase {
    /// All, in the order of a run.
    pub(super) const ALL: [Self; 14] = [
        Self::IorEasyWrite,
        Self::MdtestEasyWrite,
        Self::Timestamp,
        Self::IorHardWrite,
        Self::MdtestHardWrite,
        Self::Find,
        Self::IorEasyRead,
        Self::MdtestEasyStat,
        Self::IorHardRead,
        Self::MdtestHardStat,
        Self::MdtestEasyDelete,
        Self::MdtestHardRead,
        Self::MdtestHardDelete,
        Self::IorRnd4kEasyRead,
    ];

    /// IO500's name of it, which is that of its section, too.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::IorEasyWrite => "ior-easy-write",
            Self::MdtestEasyWrite => "mdtest-easy-write",
            Self::Timestamp => "timestamp",
            Self::IorHardWrite => "ior-hard-write",
            Self::MdtestHardWrite => "mdtest-hard-write",
            Self::Find => "find",
            Self::IorEasyRead => "ior-easy-read",
            Self::MdtestEasyStat => "mdtest-easy-stat",
            Self::IorHardRead => "ior-hard-read",
            Self::MdtestHardStat => "mdtest-hard-stat",
            Self::MdtestEasyDelete => "mdtest-easy-delete",
            Self::MdtestHardRead => "mdtest-hard-read",
            Self::MdtestHardDelete => "mdtest-hard-delete",
            Self::IorRnd4kEasyRead => "ior-rnd4K-easy-read",
        }
    }

    /// The phase of a name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.name() == name)
    }

    /// The section that it has in common with others, which is its directory's name, too.
    pub(super) fn family(self) -> Option<&'static str> {
        let families = ["ior-easy", "ior-hard", "mdtest-easy", "mdtest-hard"];
        match self {
            Self::IorRnd4kEasyRead => Some("ior-easy"),
            _ => families.into_iter().find(|family| self.name().starts_with(family)),
        }
    }

    /// Which score it counts for.
    pub(super) fn group(self) -> Group {
        match self {
            Self::Timestamp | Self::IorRnd4kEasyRead => Group::None,
            _ if self.name().starts_with("ior") => Group::Bandwidth,
            _ => Group::Metadata,
        }
    }

    /// The unit of its score.
    pub(super) fn unit(self) -> &'static str {
        if self.name().starts_with('i') { "GiB/s" } else { "kIOPS" }
    }

    /// Whether it writes, and so has to last until the stonewall.
    pub(super) fn writes(self) -> bool {
        self.name().ends_with("-write")
    }

    /// Whether it removes what others need.
    pub(super) fn removes(self) -> bool {
        self.name().ends_with("-delete")
    }
}

/// A command line of ior.
#[derive(Debug, Parser)]
struct IorLine {
    #[command(flatten)]
    ior: Ior,
}

/// A command line of mdtest.
#[derive(Debug, Parser)]
struct MdtestLine {
    #[command(flatten)]
    mdtest: Mdtest,
}

/// The arguments of a program.
struct Words(Vec<String>);

impl Words {
    fn add<const N: usize>(&mut self, words: [&str; N]) {
        self.0.extend(words.map(str::to_owned));
    }

    fn add_if<const N: usize>(&mut self, wanted: bool, words: [&str; N]) {
        if wanted {
            self.add(words);
        }
    }
}

impl Plan {
    /// Whether a phase is run.
    pub(super) fn runs(&self, phase: Phase) -> bool {
        let family = phase.family().is_none_or(|family| self.config.flag(family, "run"));
        let own = phase == Phase::Timestamp || self.config.flag(phase.name(), "run");
        family && own && self.chosen.contains(&phase)
    }

    /// What a phase is, in words: its command line. `segments` is how many blocks of 4 KiB there
    /// are to read at random.
    pub(super) fn words(&self, phase: Phase, segments: u64) -> Vec<String> {
        match phase {
            Phase::Timestamp => Vec::new(),
            Phase::Find => self.find_words(),
            _ if phase.group() == Group::Metadata => self.mdtest_words(phase).0,
            _ => self.ior_words(phase, segments).0,
        }
    }

    /// The same as it is understood.
    pub(super) fn work(&self, phase: Phase, segments: u64) -> Result<Work> {
        let words = self.words(phase, segments);
        let wrong = |error: clap::Error| {
            let said = error.to_string();
            let line = said.lines().next().unwrap_or_default().trim_start_matches("error: ");
            Error::usage(format!("[{}]: {line}", phase.name()))
        };
        Ok(match phase {
            Phase::Timestamp => Work::Timestamp,
            Phase::Find => Work::Find,
            _ if phase.group() == Group::Metadata => {
                let line = MdtestLine::try_parse_from(words).map_err(wrong)?;
                Work::Mdtest(Box::new(line.mdtest))
            }
            _ => Work::Ior(Box::new(IorLine::try_parse_from(words).map_err(wrong)?.ior)),
        })
    }

    /// Refuses what makes no sense for so many ranks.
    pub(super) fn check(&self, phase: Phase, ranks: usize) -> Result<()> {
        let named = |error: Error| match error {
            Error::Usage(why) => Error::usage(format!("[{}]: {why}", phase.name())),
            other => other,
        };
        match self.work(phase, 1)? {
            _ if !self.runs(phase) => Ok(()),
            Work::Ior(ior) => ior.validate(ranks).map_err(named),
            Work::Mdtest(mdtest) => mdtest.validate(ranks).map_err(named),
            Work::Timestamp | Work::Find => Ok(()),
        }
    }

    /// Whether only ranks of MPI can run a phase.
    pub(super) fn needs_mpi(&self, phase: Phase) -> bool {
        matches!(self.work(phase, 1), Ok(Work::Ior(ior)) if ior.needs_mpi())
    }

    /// `-a` with the API's name and its options: the phase's, its family's or that of all.
    fn api(&self, phase: Phase, words: &mut Words) {
        let own = self.config.text(phase.name(), "API");
        let family = || self.config.text(phase.family()?, "API");
        let api = own.or_else(family).or_else(|| self.config.text("global", "api"));
        words.add(["-a"]);
        words.0.extend(api.unwrap_or("POSIX").split_whitespace().map(str::to_owned));
    }

    fn ior_words(&self, phase: Phase, segments: u64) -> Words {
        let family = phase.family().unwrap_or_default();
        let easy = family == "ior-easy";
        let random = phase == Phase::IorRnd4kEasyRead;
        let option = |name| self.config.text(family, name).unwrap_or_default();
        let packet = self.config.text("global", "dataPacketType").unwrap_or_default();
        let mut words = Words(vec!["./ior".into(), format!("--dataPacketType={packet}")]);
        for _ in 0..self.config.number(family, "verbosity") {
            words.add(["-v"]);
        }
        let own = self.config.flag("ior-easy", "filePerProc");
        let shift = if random { "2" } else { "1" };
        words.add_if(!random || own, ["-C", "-Q", shift]);
        words.add([
            "-g",
            "-G",
            &hash::signature(family, self.files_stamp()).to_string(),
            "-k",
            "-e",
        ]);
        // What is read has been made durable by the phase that wrote.
        words.0.truncate(words.0.len() - usize::from(!phase.writes()));
        words.add(["-o", &self.ior_file(family)]);
        let status = self.status_file(family);
        words.add_if(!random, ["-O", &format!("stoneWallingStatusFile={}", status.display())]);
        match (easy, random) {
            (_, true) => words.add(["-t", "4096", "-b", "4096", "-s", &segments.to_string()]),
            (true, _) => words.add(["-t", option("transferSize"), "-b", option("blockSize")]),
            _ => words.add(["-t", "47008", "-b", "47008", "-s", option("segmentCount")]),
        }
        words.add_if(easy && self.config.flag(family, "uniqueDir"), ["-u"]);
        words.add_if(easy && own, ["-F"]);
        let stonewall = self.stonewall.to_string();
        match phase {
            _ if phase.writes() => {
                words.add(["-w", "-D", &stonewall, "-O", "stoneWallingWearOut=1"]);
            }
            _ if random => {
                words.add(["-r", "-D", &stonewall, "-z", "-z", "-O", "stoneWallingWearOut=1"]);
            }
            _ => words.add(["-r", "-R"]),
        }
        if !easy {
            let own = self.config.text(phase.name(), "collective");
            let all = self.config.text(family, "collective");
            words.add_if(own.or(all) == Some("TRUE"), ["-c"]);
        }
        self.api(phase, &mut words);
        words
    }

    /// The file that ior is told, whose ranks add their numbers if each has one.
    pub(super) fn ior_file(&self, family: &str) -> String {
        let name = if family == "ior-easy" { "ior_file_easy" } else { "file" };
        self.datadir.join(family).join(name).display().to_string()
    }

    fn mdtest_words(&self, phase: Phase) -> Words {
        let family = phase.family().unwrap_or_default();
        let packet = self.config.text("global", "dataPacketType").unwrap_or_default();
        let mut words = Words(vec!["./mdtest".into(), format!("--dataPacketType={packet}")]);
        words.add(["-n", self.config.text(family, "n").unwrap_or("0")]);
        let easy = family == "mdtest-easy";
        let per_dir = if easy { 0 } else { self.config.number(family, "files-per-dir") };
        words.add_if(easy, ["-u", "-L"]);
        words.add_if(!easy, ["-t", "-w", "3901", "-e", "3901"]);
        words.add_if(per_dir > 0, ["-I", &per_dir.to_string()]);
        words.add([
            "-F",
            "-P",
            "-G",
            &hash::signature(family, self.files_stamp()).to_string(),
            "-N",
            "1",
        ]);
        words.add(["-d", &self.datadir.join(family).display().to_string()]);
        // A stonewall does not go with a number of files in each directory.
        words.add_if(per_dir == 0, ["-x", &self.status_file(family).display().to_string()]);
        let operation = phase.name().rsplit('-').next();
        match operation {
            Some("write") => {
                words.add(["-C", "-Y"]);
                words.add_if(per_dir == 0, ["-W", &self.stonewall.to_string()]);
            }
            Some("stat") => words.add(["-T"]),
            Some("read") => words.add(["-E", "-X"]),
            _ => words.add(["-r"]),
        }
        self.api(phase, &mut words);
        words
    }

    fn find_words(&self) -> Vec<String> {
        let mut words = Words(Vec::new());
        let external = |name| self.config.text("find", name).unwrap_or_default();
        match self.config.text("find", "external-script") {
            Some(script) => {
                let parts =
                    [external("external-mpi-args"), script, external("external-extra-args")];
                words
                    .0
                    .extend(parts.iter().filter(|part| !part.is_empty()).map(|p| (*p).to_owned()));
            }
            None => words.add(["./pfind"]),
        }
        let newer = self.timestamp_file();
        words.add([&self.datadir.display().to_string(), "-newer", &newer.display().to_string()]);
        words.add(["-size", "3901c", "-name", "*01*"]);
        words.0
    }

    /// Refuses a program that cannot find, before others have worked for hours.
    pub(super) fn check_script(&self) -> Result<()> {
        let script = self.config.text("find", "external-script");
        let Some(script) = script.filter(|_| self.runs(Phase::Find)) else { return Ok(()) };
        let runs = |path: &Path| {
            path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
        };
        // As a shell looks for it; what stands before it may look here, too.
        let path = std::env::var_os("PATH").unwrap_or_default();
        let before = self.config.text("find", "external-mpi-args").unwrap_or_default();
        let here = script.contains('/') || !before.is_empty();
        let anywhere = || std::env::split_paths(&path).any(|dir| runs(&dir.join(script)));
        if (here && runs(Path::new(script))) || (!script.contains('/') && anywhere()) {
            return Ok(());
        }
        Err(Error::usage(format!("[find]: external-script: {script} is no program that runs here")))
    }

    /// The file of a rank that reads at random.
    pub(super) fn ior_easy_file(&self, rank: usize) -> std::path::PathBuf {
        let file = self.ior_file("ior-easy");
        let file = Path::new(&file);
        if !self.config.flag("ior-easy", "filePerProc") {
            return file.to_owned();
        }
        let mut dir = self.datadir.join("ior-easy");
        if self.config.flag("ior-easy", "uniqueDir") {
            dir.push(rank.to_string());
        }
        dir.join(format!("ior_file_easy.{rank:08}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::Config;
    use super::*;

    fn line(config: &str, phase: Phase) -> String {
        let path =
            std::env::temp_dir().join(format!("io500-{}-{}", std::process::id(), phase.name()));
        std::fs::write(&path, config).unwrap();
        let (config, _) = Config::read(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        Plan::example(config).words(phase, 77).join(" ")
    }

    #[test]
    fn phases_have_the_parameters_that_the_rules_fix() {
        let easy = line("", Phase::IorEasyWrite);
        for part in [
            "-C -Q 1 -g -G ",
            " -k -e -o /data/T/ior-easy/ior_file_easy -O \
             stoneWallingStatusFile=/results/T/ior-easy.stonewall -t 2m -b 9920000m -F -w -D 300 \
             -O stoneWallingWearOut=1 -a POSIX",
        ] {
            assert!(easy.contains(part), "{easy}");
        }
        let hard = line("[ior-hard]\ncollective = 1\n", Phase::IorHardRead);
        assert!(hard.contains("-t 47008 -b 47008 -s 10000000 -r -R -c -a POSIX"), "{hard}");
        assert!(!hard.contains("-F") && !hard.contains("-D"), "{hard}");
        let random = line("", Phase::IorRnd4kEasyRead);
        assert!(
            random.contains("-C -Q 2")
                && random.contains("-t 4096 -b 4096 -s 77 -F -r -D 300 -z -z")
        );
        let create = line("", Phase::MdtestEasyWrite);
        assert!(
            create.starts_with("./mdtest --dataPacketType=timestamp -n 1000000 -u -L -F -P -G "),
            "{create}"
        );
        assert!(create.ends_with("-x /results/T/mdtest-easy.stonewall -C -Y -W 300 -a POSIX"));
        let read = "[global]\napi = POSIX --x y\ndataPacketType = random\n";
        let read = line(read, Phase::MdtestHardRead);
        assert!(read.starts_with("./mdtest --dataPacketType=random "), "{read}");
        assert!(read.contains("-t -w 3901 -e 3901 -F -P -G"), "{read}");
        assert!(read.ends_with("-E -X -a POSIX --x y"), "{read}");
        let find = line("", Phase::Find);
        assert_eq!(find, "./pfind /data/T -newer /results/T/timestampfile -size 3901c -name *01*");
    }

    #[test]
    fn every_line_is_understood() {
        let plan = Plan::example(Config::standard());
        for phase in Phase::ALL {
            plan.check(phase, 2).unwrap_or_else(|error| panic!("{}: {error}", phase.name()));
            assert_eq!(Phase::named(phase.name()), Some(phase));
        }
    }
}

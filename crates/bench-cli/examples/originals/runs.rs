//! One run of one tool under the launcher: what its output says, read by the same parsers
//! whoever printed it, and the processor time that the launcher and all ranks have used.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::cases::{Case, Target, Tool};
use super::parsers;

/// Ticks of a second in /proc.
const TICKS: f64 = 100.0;

/// Who is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The tool's own program.
    Original,
    /// `sateen-bench`.
    Ours,
}

/// What a run has shown.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    /// A rate for each of the case's: the mean of the iterations.
    pub(crate) rates: Vec<f64>,
    /// The same where nothing is measured; empty if the program cannot do that.
    pub(crate) own: Vec<f64>,
    /// The program's name and version, as it prints them.
    pub(crate) version: String,
    /// Of the launcher and all ranks.
    pub(crate) cpu: Cpu,
}

/// Seconds of processors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cpu {
    /// In programs.
    pub(crate) user_s: f64,
    /// In the kernel for them.
    pub(crate) system_s: f64,
}

/// Programs and places.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The launcher and its options.
    pub(crate) launcher: Vec<String>,
    /// The original programs.
    pub(crate) ior: Option<PathBuf>,
    /// The same.
    pub(crate) mdtest: Option<PathBuf>,
    /// The same.
    pub(crate) iozone: Option<PathBuf>,
    /// Ours.
    pub(crate) ours: PathBuf,
    /// The folder that is measured.
    pub(crate) dir: PathBuf,
    /// Iterations of a run.
    pub(crate) iterations: u32,
}

impl Place {
    /// Runs a case with so many ranks, and again with nothing to measure if the program can.
    pub(crate) fn run(&self, side: Side, case: &Case, ranks: u32) -> Result<Shown, String> {
        let mut shown = self.once(side, case, Target::Folder, ranks)?;
        if case.tool.has_dummy() {
            shown.own = self.once(side, case, Target::Nothing, ranks)?.rates;
        }
        Ok(shown)
    }

    fn once(&self, side: Side, case: &Case, target: Target, ranks: u32) -> Result<Shown, String> {
        let dir = self.dir.join("originals");
        clear(&dir)?;
        fs::create_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        // What was written before is not written back while this is measured.
        rustix::fs::sync();
        let place = dir.display().to_string();
        let arguments = case.arguments(target, self.iterations, ranks, &place);
        let mut command = self.command(side, case.tool, ranks)?;
        command.args(&arguments).stdin(Stdio::null());
        let before = children_cpu()?;
        let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
        let after = children_cpu()?;
        let cpu = Cpu {
            user_s: after.user_s - before.user_s,
            system_s: after.system_s - before.system_s,
        };
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{command:?}: {}\n{text}{errors}", output.status));
        }
        let rates = self.rates(case, ranks, &text)?;
        clear(&dir)?;
        Ok(Shown { rates, own: Vec::new(), version: version(side, &text), cpu })
    }

    fn command(&self, side: Side, tool: Tool, ranks: u32) -> Result<Command, String> {
        let original = |program: &Option<PathBuf>| {
            program.clone().ok_or_else(|| format!("where is the original {}?", tool.name()))
        };
        if tool == Tool::Iozone {
            let mut command = match side {
                Side::Original => Command::new(original(&self.iozone)?),
                Side::Ours => Command::new(&self.ours),
            };
            if side == Side::Ours {
                let ranks = ranks.to_string();
                command.args(["--quiet", "-np", &ranks, tool.name(), "--no-self-check"]);
            }
            return Ok(command);
        }
        let (program, options) = self.launcher.split_first().ok_or("no launcher")?;
        let mut command = Command::new(program);
        command.args(options).args(["-np", &ranks.to_string()]);
        // Open MPI refuses root otherwise.
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        match (side, tool) {
            (Side::Original, Tool::Ior) => command.arg(original(&self.ior)?),
            (Side::Original, _) => command.arg(original(&self.mdtest)?),
            // What the original does not do at all is left out: a look at the nodes beforehand.
            (Side::Ours, _) => {
                command.arg(&self.ours).args(["--quiet", tool.name(), "--no-self-check"])
            }
        };
        Ok(command)
    }

    /// The case's rates in what was printed.
    fn rates(&self, case: &Case, ranks: u32, text: &str) -> Result<Vec<f64>, String> {
        let lacks = |what: &str| format!("{}: {what} in\n{text}", case.name);
        let mean = |rate: &&str| match case.tool {
            Tool::Ior => {
                let out = parsers::ior(text);
                let rows = out.rows.iter().filter(|row| row.access == **rate);
                let all: Vec<f64> =
                    rows.filter_map(|row| row.values.get("bw(MiB/s)").copied()).collect();
                let whole = all.len() == self.iterations as usize
                    && out.options.get("tasks").is_some_and(|tasks| *tasks == ranks.to_string());
                whole.then(|| all.iter().sum::<f64>() / all.len() as f64)
            }
            Tool::Mdtest => {
                let out = parsers::mdtest(text);
                let whole =
                    (out.tasks, out.iterations) == (ranks as usize, self.iterations as usize);
                let [_, _, mean, _] = out.rates.get(*rate).copied().filter(|_| whole)?;
                Some(mean)
            }
            // What the parent sees: all bytes over the time of all.
            Tool::Iozone => parsers::iozone(text)
                .into_iter()
                .find(|row| row.test == **rate && row.ranks == ranks as usize)
                .map(|row| row.parent),
        };
        let found = case.rates.iter().map(|rate| mean(rate).ok_or_else(|| lacks(rate)));
        found.collect()
    }
}

/// What a program calls itself in its output: `IOR-4.0.0`, `mdtest-4.0.0`, `Version ...`. Ours has
/// the form of another version and says its own as well.
fn version(side: Side, text: &str) -> String {
    let ours = ["sateen-bench        : ", "This is sateen-bench "];
    let theirs = ["IOR-", "mdtest-", "Version "];
    let line = |begins: &[&str]| {
        let mut lines = text.lines().map(str::trim);
        lines.find(|line| begins.iter().any(|begin| line.starts_with(begin))).map(str::to_owned)
    };
    let found = match side {
        Side::Ours => line(&ours).map(|line| {
            let words = line.trim_start_matches("This is ").replacen(':', " ", 1);
            let words = words.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
            words.trim_end_matches(',').to_owned()
        }),
        Side::Original => line(&theirs).map(|line| {
            let end = [": MPI", " was launched"].iter().filter_map(|end| line.find(end)).min();
            end.and_then(|end| line.get(..end)).unwrap_or(&line).to_owned()
        }),
    };
    found.unwrap_or_else(|| "unknown".to_owned())
}

/// Removes what an interrupted run has left.
fn clear(dir: &Path) -> Result<(), String> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", dir.display()))
        }
        _ => Ok(()),
    }
}

/// Seconds of processors that this process's children, and theirs, have used until they ended.
fn children_cpu() -> Result<Cpu, String> {
    let text = fs::read_to_string("/proc/self/stat").map_err(|error| error.to_string())?;
    // The name may hold anything but ends with the last bracket; 13 fields are between it and
    // the children's.
    let fields = text.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().skip(13));
    let ticks: Option<Vec<f64>> =
        fields.and_then(|fields| fields.take(2).map(|word| word.parse().ok()).collect());
    match ticks.as_deref() {
        Some([user, system]) => Ok(Cpu { user_s: user / TICKS, system_s: system / TICKS }),
        _ => Err("/proc/self/stat has no times of children".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_say_what_they_are() {
        for (text, wanted) in [
            ("WARNING: x\nIOR-4.0.0: MPI Coordinated Test of Parallel I/O\n", "IOR-4.0.0"),
            (
                "-- started\n\nmdtest-4.1.0+dev was launched with 1 total task(s)",
                "mdtest-4.1.0+dev",
            ),
            (
                "\tIozone: Performance\n\t        Version $Revision: 3.506 $\n",
                "Version $Revision: 3.506 $",
            ),
            ("", "unknown"),
        ] {
            assert_eq!(version(Side::Original, text), wanted);
        }
        for text in [
            "IOR-4.1.0: MPI\nsateen-bench        : 0.1.0\n",
            "mdtest-4.0.0 was launched\nThis is sateen-bench 0.1.0, in mdtest's form\n",
            "\tThis is sateen-bench 0.1.0, in Iozone's form\n",
        ] {
            assert_eq!(version(Side::Ours, text), "sateen-bench 0.1.0");
        }
    }

    #[test]
    fn the_time_of_children_is_seen_when_they_have_ended() {
        let before = children_cpu().unwrap();
        let busy = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        // A child of a child, as ranks are.
        let line = format!("sh -c '{busy}'; true");
        assert!(Command::new("sh").args(["-c", &line]).status().unwrap().success());
        assert!(children_cpu().unwrap().user_s > before.user_s);
        let before = children_cpu().unwrap();
        // Each read of this is the kernel's work.
        let line = "dd if=/dev/zero of=/dev/null bs=1M count=3000";
        let quiet = format!("{line} 2>/dev/null");
        assert!(Command::new("sh").args(["-c", &quiet]).status().unwrap().success());
        let after = children_cpu().unwrap();
        let (user, system) = (after.user_s - before.user_s, after.system_s - before.system_s);
        assert!(system > user, "{user} {system}");
    }
}

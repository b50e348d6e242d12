//! The command `report`, for a program that mounts it.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use crate::error::{Error, Result};
use crate::read::{self, RUNS_MAX, Source};
use crate::{data, outputs, page};

/// Where the page goes if nothing is said.
const PAGE: &str = "report.html";

/// One HTML file with tables and figures from one or more runs; CSV and JSON.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Runs are files that ior (-O summaryFormat=JSON, or --json), mdtest --json and iozone --json have \
written, or IO500's result.txt. Runs of one NAME belong together: their values become lines. \
Runs without one are told apart by where they measured and by what they say of themselves.\n\n\
  sateen-bench --json -np 4 ior -w -r -F -e -i 3 -o /mnt/a/f >a.json\n  \
  sateen-bench report sateen=a.json ext4=b.json -o both.html")]
pub struct Report {
    /// Runs.
    #[arg(required = true, value_name = "[NAME=]RUN", value_parser = read::source)]
    pub runs: Vec<Source>,
    /// The page [default: report.html, unless --csv or --json is given].
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write the numbers into CSV files in this directory.
    #[arg(long, value_name = "DIR")]
    pub csv: Option<PathBuf>,
    /// Title of the page.
    #[arg(long, default_value = "Benchmark report")]
    pub title: String,
}

impl Report {
    /// Writes what is asked for; with `json` the numbers go to `out` as JSON.
    pub fn run(&self, json: bool, out: &mut dyn Write) -> Result<()> {
        if self.runs.len() > RUNS_MAX {
            return Err(Error::Usage(format!("a report has at most {RUNS_MAX} runs")));
        }
        let nothing = self.output.is_none() && self.csv.is_none() && !json;
        let page = self.output.clone().or_else(|| nothing.then(|| PAGE.into()));
        let csv = self.csv.as_deref().map(data::files);
        let files = page.iter().chain(csv.iter().flatten()).map(PathBuf::as_path);
        outputs::check(&self.runs, files, json || page.is_some())?;
        // All of them are read before anything is written.
        let runs = read::runs(&self.runs)?;
        if let Some(file) = page {
            let html = page::html(&self.title, &runs);
            std::fs::write(&file, html).map_err(|error| Error::output(&file, error))?;
            if !json {
                let said = writeln!(out, "{}", file.display());
                said.map_err(|error| Error::output("standard output".as_ref(), error))?;
            }
        }
        if let Some(dir) = &self.csv {
            data::csv(dir, &runs)?;
        }
        if json {
            let said = data::json(out, &runs);
            said.map_err(|error| Error::output("standard output".as_ref(), error))?;
        }
        Ok(())
    }
}

//! What a run says, in the three forms that IOR has. Only the root has a report.
//!
//! Text and CSV are written as results come; JSON at the end, so that it is always whole.

mod json;
mod text;

use std::fs::File;
use std::io::Write;
use std::path::Path;

use super::options::{Ior, SummaryFormat};
use super::results::{Measured, Point, Total};
use crate::comm::Nodes;
use crate::engine::Setting;
use crate::engine::shown::{Room, exponential};
use crate::error::{Error, Result};
use crate::guard::{Pitfall, Spread};
use crate::progress::Series;
use crate::size::{KIB, MIB};
use crate::stats::Quantiles;
use crate::when;

/// The version of IOR whose form it is.
pub(super) const VERSION: &str = "4.1.0";

/// Reading or writing, for reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Write,
    Read,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

/// What is the same for the whole run.
#[derive(Debug)]
pub(super) struct About<'a> {
    pub(super) test: &'a Ior,
    pub(super) ranks: usize,
    pub(super) nodes: &'a Nodes,
    pub(super) command_line: &'a [String],
    pub(super) place: &'a Path,
    pub(super) room: Option<Room>,
    pub(super) signature: u32,
    pub(super) api_version: String,
    /// What the interface was told about files.
    pub(super) hints: String,
    /// Whether caches are dropped before reading.
    pub(super) drops_caches: bool,
}

/// A result with where it belongs.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) kind: Kind,
    pub(super) repetition: usize,
    pub(super) point: Point,
    /// The ranks beside each other.
    pub(super) spread: Spread,
    /// Transfers a second while it lasted.
    pub(super) series: Series,
}

/// Everything that was measured.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub(super) rows: Vec<Row>,
    /// Seconds of each removal.
    pub(super) removals: Vec<f64>,
    /// Latencies of all repetitions.
    pub(super) latencies: Vec<(Kind, Quantiles)>,
    pub(super) warnings: Vec<String>,
    pub(super) pitfalls: Vec<Pitfall>,
}

impl Results {
    /// The repetitions of a kind, summed up.
    pub(super) fn total(&self, kind: Kind, about: &About) -> Option<Total> {
        let rows = self.rows.iter().filter(|row| row.kind == kind);
        let points: Vec<Point> = rows.map(|row| row.point).collect();
        Total::of(&points, about.test.transfer, about.ranks)
    }
}

/// The report of the root.
pub(super) struct Report<'a> {
    about: About<'a>,
    format: SummaryFormat,
    out: Box<dyn Write + 'a>,
    /// Where the ranks' times and rates go, if they are to be kept.
    ranks: Option<File>,
    pub(super) results: Results,
    began: u64,
}

impl<'a> Report<'a> {
    /// Begins it.
    pub(super) fn begin(about: About<'a>, setting: &Setting) -> Result<Self> {
        let asked = if setting.json { SummaryFormat::Json } else { SummaryFormat::Default };
        let format = about.test.more.format.unwrap_or(asked);
        let out: Box<dyn Write> = match &about.test.more.summary_file {
            Some(path) => {
                println!("Writing output to {}", path.display());
                let made = File::create(path);
                Box::new(made.map_err(|error| Error::io("write the summary to", path, error))?)
            }
            None => setting.sink()?,
        };
        let began = when::unix_seconds();
        let ranks = match &about.test.more.ranks_file {
            Some(path) => {
                let mut file =
                    File::create(path).map_err(|error| Error::io("create", path, error))?;
                let said = file.write_all(RANKS_HEADER.as_bytes());
                said.map_err(|error| Error::io("write", path, error))?;
                Some(file)
            }
            None => None,
        };
        let mut report = Self { about, format, out, ranks, results: Results::default(), began };
        report.say(|about, format| match format {
            SummaryFormat::Default => text::header(about, began),
            SummaryFormat::Csv => CSV_HEADER.to_owned(),
            SummaryFormat::Json => String::new(),
        })?;
        Ok(report)
    }

    fn say(&mut self, what: impl FnOnce(&About, SummaryFormat) -> String) -> Result<()> {
        let text = what(&self.about, self.format);
        let said = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
        said.map_err(|error| Error::system("write the report", error))
    }

    /// A phase of a repetition.
    pub(super) fn row(&mut self, row: Row) -> Result<()> {
        self.say(|about, format| match format {
            SummaryFormat::Default => text::row(about, &row),
            SummaryFormat::Csv => csv_row(about, &row),
            SummaryFormat::Json => String::new(),
        })?;
        self.results.rows.push(row);
        Ok(())
    }

    /// What each rank has measured in a phase.
    pub(super) fn ranks(&mut self, kind: Kind, all: &[Measured], bytes: u64) -> Result<()> {
        let (Some(file), Some(path)) = (&mut self.ranks, &self.about.test.more.ranks_file) else {
            return Ok(());
        };
        let said = file.write_all(ranks_rows(kind, all, bytes).as_bytes());
        said.map_err(|error| Error::io("write", path, error))
    }

    /// Files were removed.
    pub(super) fn removed(&mut self, repetition: usize, seconds: f64) -> Result<()> {
        self.results.removals.push(seconds);
        self.say(|about, format| match format {
            SummaryFormat::Default if about.test.verbose > 0 => text::removed(repetition, seconds),
            _ => String::new(),
        })
    }

    /// Something that whoever reads the numbers should know.
    pub(super) fn warn(&mut self, warning: String) -> Result<()> {
        let line = format!("WARNING: {warning}\n");
        self.results.warnings.push(warning);
        match self.format {
            SummaryFormat::Default => self.say(|_, _| line),
            _ => {
                eprint!("{line}");
                Ok(())
            }
        }
    }

    /// A line that only the text has.
    pub(super) fn line(&mut self, line: &str) -> Result<()> {
        self.say(|_, format| match format {
            SummaryFormat::Default => format!("{line}\n"),
            _ => String::new(),
        })
    }

    /// Ends it.
    pub(super) fn finish(mut self) -> Result<()> {
        let results = std::mem::take(&mut self.results);
        let began = self.began;
        let json = match self.format {
            SummaryFormat::Json => json::whole(&self.about, &results, began)?,
            _ => String::new(),
        };
        self.say(|about, format| match format {
            SummaryFormat::Default => text::summary(about, &results),
            SummaryFormat::Csv => String::new(),
            SummaryFormat::Json => json,
        })
    }
}

/// What IOR writes of ranks: seconds with open and close, and of the transfers alone, then bytes a
/// second over each. As there, a rank's bytes are its share of all, whatever it has moved.
const RANKS_HEADER: &str =
    "access,rank,runtime-with-openclose,runtime,throughput-withopenclose,throughput\n";

fn ranks_rows(kind: Kind, all: &[Measured], bytes: u64) -> String {
    let share = bytes as f64 / all.len().max(1) as f64;
    let row = |(rank, one): (usize, &Measured)| {
        let (whole, moving) = (one.close.1 - one.open.0, one.transfer.1 - one.transfer.0);
        let [a, b, c, d] = [whole, moving, share / whole, share / moving].map(exponential);
        format!("{},{rank},{a},{b},{c},{d}\n", kind.name())
    };
    all.iter().enumerate().map(row).collect()
}

const CSV_HEADER: &str = "access,bw(MiB/s),IOPS,Latency,block(KiB),xfer(KiB),open(s),wr/rd(s),close(s),\
                          total(s),numTasks,iter\n";

fn csv_row(about: &About, row: &Row) -> String {
    let point = &row.point;
    format!(
        "{},{:.4},{:.4},{:.4},{:.4},{:.4},{:.4},{:.4},{:.4},{:.4},{},{}\n",
        row.kind.name(),
        point.bandwidth / MIB as f64,
        point.iops,
        point.latency_s,
        about.test.block as f64 / KIB as f64,
        about.test.transfer as f64 / KIB as f64,
        point.open_s,
        point.transfer_s,
        point.close_s,
        point.total_s,
        about.ranks,
        row.repetition
    )
}

//! The subcommands `predict` and `plan`, for a program that mounts them.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;

use crate::example;
use crate::hardware::Hardware;
use crate::plan::{Request, plan};
use crate::predict::predict;
use crate::profile::PROFILES;
use crate::report::report;
use crate::units::{Rate, Size};

/// Predicts bandwidth and metadata rates from a description of hardware.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
A description is a TOML file; `--example NAME` prints one to begin from. `plan` needs the nodes' cores \
and memory as well, which not all of them say: `plan --example NAME` prints one that does.")]
pub struct Predict {
    /// The description of the system.
    #[arg(value_name = "HARDWARE.toml", required_unless_present_any = ["tables", "example", "profiles"])]
    pub hardware: Option<PathBuf>,
    /// Print what was fitted to the published tables, with errors.
    #[arg(long)]
    pub tables: bool,
    /// Print a description that is carried along, to predict from: lfs12, data-accelerator, vxflex,
    /// lfs09.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["hardware", "tables"])]
    pub example: Option<String>,
    /// List the profiles.
    #[arg(long, conflicts_with_all = ["hardware", "tables", "example"])]
    pub profiles: bool,
    /// Print JSON: rates in bytes or operations a second, times in seconds.
    #[arg(long)]
    pub json: bool,
}

impl Predict {
    /// Writes what is asked for.
    pub fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        if let Some(name) = &self.example {
            out.write_all(named(name)?.as_bytes())?;
            return Ok(());
        }
        if self.profiles {
            for (name, what) in PROFILES {
                writeln!(out, "{name:<22} {what}")?;
            }
            return Ok(());
        }
        let fitted = self.tables.then(report).transpose()?;
        let prediction =
            self.hardware.as_ref().map(|path| predict(&Hardware::read(path)?)).transpose()?;
        if self.json {
            let all = serde_json::json!({ "prediction": prediction, "tables": fitted });
            return json(out, &all);
        }
        if let Some(prediction) = &prediction {
            out.write_all(prediction.text().as_bytes())?;
        }
        if let Some(fitted) = &fitted {
            if prediction.is_some() {
                writeln!(out)?;
            }
            out.write_all(fitted.text().as_bytes())?;
        }
        Ok(())
    }
}

/// Sizes a test: nodes, threads, bytes per node and hours, with the reasoning.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
A description is a TOML file; `--example lfs09` prints one to begin from, with the nodes' cores and \
memory. Where it does not say these, --cores and --memory do.")]
pub struct Plan {
    /// The description of the system, with `clients.cores` and `clients.memory`.
    #[arg(value_name = "HARDWARE.toml", required_unless_present = "example")]
    pub hardware: Option<PathBuf>,
    /// Print a description that is carried along and has all that is needed here: lfs09.
    #[arg(long, value_name = "NAME", conflicts_with = "hardware")]
    pub example: Option<String>,
    /// What one thread does in the slowest of the tests.
    #[arg(long, value_name = "RATE", default_value = "50 MB/s")]
    pub thread_rate: Rate,
    /// What one node does in practice, all its threads together.
    #[arg(long, value_name = "RATE")]
    pub node_ceiling: Option<Rate>,
    /// Cores of a node, instead of the description's.
    #[arg(long, value_name = "N")]
    pub cores: Option<u32>,
    /// Memory of a node, instead of the description's.
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,
    /// Percentage of a node's memory that is locked away from its caches.
    #[arg(long, value_name = "PERCENT", default_value_t = 90.0)]
    pub lock: f64,
    /// How many patterns are tested.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub tests: u32,
    /// How often each is repeated.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub repeats: u32,
    /// Print JSON: sizes in bytes, rates in bytes a second, times in seconds.
    #[arg(long)]
    pub json: bool,
}

impl Plan {
    /// Writes the plan.
    pub fn run(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        if let Some(name) = &self.example {
            out.write_all(complete(name)?.as_bytes())?;
            return Ok(());
        }
        let file = self.hardware.as_deref().context("no description: give HARDWARE.toml")?;
        let hardware = Hardware::read(file)?;
        let request = Request {
            thread_rate: self.thread_rate,
            node_rate: self.node_ceiling,
            cores: self.cores,
            memory: self.memory,
            lock: self.lock / 100.0,
            tests: self.tests,
            repeats: self.repeats,
        };
        let sized =
            plan(&hardware, &request).with_context(|| format!("no plan for {}", file.display()))?;
        if self.json {
            return json(out, &sized);
        }
        out.write_all(sized.text(&hardware.name).as_bytes())?;
        Ok(())
    }
}

/// The text of an example.
fn named(name: &str) -> anyhow::Result<&'static str> {
    let found = example::ALL.iter().find(|example| example.0 == name);
    let names: Vec<&str> = example::ALL.iter().map(|example| example.0).collect();
    let Some((_, text)) = found else {
        bail!("--example {name}: there is none of this name, only {}", names.join(", "));
    };
    Ok(text)
}

/// The same of one that a test can be planned with.
fn complete(name: &str) -> anyhow::Result<&'static str> {
    let whole = |text| {
        example::read(text)
            .is_ok_and(|it| it.clients.cores.is_some() && it.clients.memory.is_some())
    };
    let text = named(name)?;
    if !whole(text) {
        let names = example::ALL.iter().filter(|example| whole(example.1));
        let names: Vec<&str> = names.map(|example| example.0).collect();
        bail!(
            "--example {name}: it does not say what cores and memory nodes have, which a plan needs; {} \
             does",
            names.join(", ")
        );
    }
    Ok(text)
}

fn json(out: &mut dyn Write, value: &impl Serialize) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)?;
    Ok(())
}

//! What was fitted and how far it is off: every parameter with its meaning, errors per table, and the runs
//! that were never fitted.

use anyhow::Context;
use serde::Serialize;

use crate::bandwidth::{IorForm, TransferForm, fit_ior};
use crate::disks::{CollapseForm, PlateauForm, Rows};
use crate::fit::{Summary, at, errors, fit, leave_one_out};
use crate::hardware::Hardware;
use crate::metadata::{Cost, MdtestForm};
use crate::predict::{missing_metadata, predict_as};
use crate::profile::{LUSTRE_DIRECT, Profile, ShareForm};
use crate::published::{PUBLISHED, Published};
use crate::scaling::{ScalingForm, patterns};
use crate::table::{self, DIRECTIONS, DacRow, Direction, OPERATIONS, Operation};
use crate::units::{KIB, MIB, Rate, digits, operations, time};
use crate::{example, hardware};

/// A fitted number.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Parameter {
    /// Of what: a direction, a pattern, a number of MDTs.
    pub of: String,
    /// Its letter in the form.
    pub symbol: &'static str,
    /// What it is.
    pub meaning: String,
    /// In `unit`.
    pub value: f64,
    /// Its unit; empty for a plain number.
    pub unit: &'static str,
}

/// One table's fit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TableReport {
    /// What it is called.
    pub name: String,
    /// Where it is from.
    pub source: &'static str,
    /// The form that was fitted.
    pub form: &'static str,
    /// What came out.
    pub parameters: Vec<Parameter>,
    /// Errors of the points that were fitted.
    pub errors: Summary,
    /// Errors of points that were left out of the fit, in turn.
    pub unseen: Option<Summary>,
    /// What was left out of turn, or why nothing was.
    pub left_out: &'static str,
    /// Errors of some of the points that were fitted.
    pub part: Option<Part>,
}

/// Some of a table's points.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// Which.
    pub name: &'static str,
    /// Their errors.
    pub errors: Summary,
}

/// A run of the Data Accelerator that was predicted, not fitted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunReport {
    /// Which.
    pub run: String,
    /// On which file system.
    pub software: String,
    /// Client nodes.
    pub nodes: u32,
    /// Which way.
    pub direction: Direction,
    /// Bytes a second.
    pub measured: f64,
    /// From hardware and profile alone.
    pub predicted: f64,
    /// Predicted over measured, less one.
    pub error: f64,
    /// The same once a client's ceiling, of the ten-node run of ISC19, is given.
    pub error_with_ceiling: Option<f64>,
    /// The inputs that the prediction said it lacked.
    pub missing: Vec<String>,
}

/// Metadata rates of other systems, predicted from LFS12's costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ElsewhereReport {
    /// Where and when.
    pub run: String,
    /// What is done.
    pub operation: Operation,
    /// Operations a second.
    pub measured: f64,
    /// From LFS12's costs.
    pub predicted: f64,
    /// Predicted over measured, less one.
    pub error: f64,
    /// What `predict` calls missing.
    pub missing: Vec<String>,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// What was fitted.
    pub tables: Vec<TableReport>,
    /// What was predicted without fitting: bandwidth.
    pub runs: Vec<RunReport>,
    /// What was predicted without fitting: metadata.
    pub elsewhere: Vec<ElsewhereReport>,
    /// What each published table has become, and what of it is not reproduced.
    pub published: &'static [Published],
}

/// Fits every table.
pub fn report() -> anyhow::Result<Report> {
    let mut tables = vec![lfs12_ior().context("lfs12_ior")?];
    for operation in OPERATIONS {
        tables.push(lfs12_mdtest(operation).context("lfs12_mdtest")?);
    }
    tables.push(lfs09().context("lfs09_iozone")?);
    tables.push(disks_reading().context("disks_iozone")?);
    tables.push(disks_writing().context("disks_iozone")?);
    tables.push(vxflex().context("vxflex_ior")?);
    tables.push(data_accelerator().context("dac_ior_easy")?);
    Ok(Report { tables, runs: runs()?, elsewhere: elsewhere()?, published: &PUBLISHED })
}

fn parameter(
    of: impl Into<String>,
    symbol: &'static str,
    meaning: impl Into<String>,
    (value, unit): (f64, &'static str),
) -> Parameter {
    Parameter { of: of.into(), symbol, meaning: meaning.into(), value, unit }
}

fn rate(bytes_a_second: f64) -> (f64, &'static str) {
    (bytes_a_second / 1e9, "GB/s")
}

fn lfs12_ior() -> anyhow::Result<TableReport> {
    let rows = table::lfs12_ior()?;
    let limit = example::read(example::LFS12)?;
    let (mut parameters, mut seen, mut unseen) = (Vec::new(), Vec::new(), Vec::new());
    let mut bound = Vec::new();
    for direction in DIRECTIONS {
        let of: Vec<_> = rows.iter().filter(|row| row.direction == direction).cloned().collect();
        let (found, raw) = fit_ior(direction, &of)?;
        let name = direction.name();
        for series in &found.series {
            let of = format!("{name} {} {} MiB", series.api.name(), digits(series.transfer / MIB));
            parameters.push(parameter(
                of.clone(),
                "c",
                "a client node with one process",
                rate(series.node_rate),
            ));
            let share = series.ceiling / limit.servers_limit(direction);
            let meaning = format!(
                "all servers together, {} % of the hardware's limit",
                digits(100.0 * share)
            );
            parameters.push(parameter(of, "S", meaning, rate(series.ceiling)));
        }
        let of_gains = "times a node with one process";
        parameters.push(parameter(
            name,
            "g(2)",
            format!("two processes, {of_gains}"),
            (found.gains.two, ""),
        ));
        parameters.push(parameter(
            name,
            "g(4)",
            format!("four processes, {of_gains}"),
            (found.gains.four, ""),
        ));
        parameters.push(parameter(
            name,
            "q",
            "sharpness of the bend from clients' to servers' limit",
            (found.softness, ""),
        ));
        seen.extend(errors(&IorForm, &raw, &of));
        let servers: Vec<_> =
            of.iter().filter(|row| IorForm::asks_too_much(&raw, row)).cloned().collect();
        bound.extend(errors(&IorForm, &raw, &servers));
        unseen.extend(leave_one_out(&IorForm, &of, |row| (row.nodes, row.ppn))?);
    }
    Ok(TableReport {
        name: "LFS12 IOR".to_string(),
        source: "Intel CRT-DC, LFS12: IOR, 180 points (192 less 12 that clients' caches answered)",
        form: "B(n,p) = ((n c g(p))^-q + S^-q)^(-1/q), n nodes of p processes",
        parameters,
        errors: Summary::of(&seen),
        unseen: Some(Summary::of(&unseen)),
        left_out: "each (nodes, processes) in turn",
        part: Some(Part { name: "bound by the servers", errors: Summary::of(&bound) }),
    })
}

fn lfs12_mdtest(operation: Operation) -> anyhow::Result<TableReport> {
    let rows = table::lfs12_mdtest()?;
    let (mut parameters, mut seen, mut unseen) = (Vec::new(), Vec::new(), Vec::new());
    for mdts in [1, 8] {
        let is_of = |row: &&table::MdtestRow| row.mdts == mdts && row.operation == operation;
        let of: Vec<_> = rows.iter().filter(is_of).cloned().collect();
        let found = fit(&MdtestForm, &of)?;
        let name = if mdts == 1 { "1 MDT".to_string() } else { format!("{mdts} MDTs") };
        let cost = Cost { delay: at(&found, 0), service: at(&found, 1) };
        let outside = "an operation's time outside of the MDT";
        parameters.push(parameter(name.clone(), "Z", outside, (cost.delay * 1e6, "us")));
        let inside = format!(
            "its time at the MDT, one at a time: {} ops/s at most",
            operations(cost.ceiling(mdts))
        );
        parameters.push(parameter(name, "D", inside, (cost.service * 1e6, "us")));
        seen.extend(errors(&MdtestForm, &found, &of));
        unseen.extend(leave_one_out(&MdtestForm, &of, |row| row.processes)?);
    }
    Ok(TableReport {
        name: format!("LFS12 mdtest {}", operation.name()),
        source: "Intel CRT-DC, LFS12: mdtest with 4 KiB files in one directory, on 1 MDT and striped over 8",
        form: "exact mean-value analysis: N processes, delay Z, M MDTs of service D; R = D (1 + Q/M)",
        parameters,
        errors: Summary::of(&seen),
        unseen: Some(Summary::of(&unseen)),
        left_out: "each number of processes in turn",
        part: None,
    })
}

fn lfs09() -> anyhow::Result<TableReport> {
    let (mut parameters, mut seen, mut unseen) = (Vec::new(), Vec::new(), Vec::new());
    for (test, rows) in patterns(&table::lfs09_iozone()?) {
        let found = fit(&ScalingForm, &rows)?;
        parameters.push(parameter(test.clone(), "c", "a node among few", rate(at(&found, 0))));
        let cost = "of a node's rate lost with each further node";
        parameters.push(parameter(test, "s", cost, (100.0 * at(&found, 1), "%")));
        seen.extend(errors(&ScalingForm, &found, &rows));
        unseen.extend(leave_one_out(&ScalingForm, &rows, |row| row.nodes)?);
    }
    Ok(TableReport {
        name: "lfs09 IOzone".to_string(),
        source: "Intel CRT-DC, talk of 2014, lfs09: IOzone in cluster mode on SSDs, 4 to 128 nodes (a node alone \
                 does more than each of four, and no such curve follows both)",
        form: "B(n) = c n / (1 + s (n - 1))",
        parameters,
        errors: Summary::of(&seen),
        unseen: Some(Summary::of(&unseen)),
        left_out: "each number of nodes in turn, the ends of the curve too",
        part: None,
    })
}

/// What disks that do not seek are taken to give: the network's limit of the talk's other system.
const DISKS_PLATEAU: f64 = 48e9;

fn disks_reading() -> anyhow::Result<TableReport> {
    let reads = Rows::of(&table::disks_iozone()?, false);
    let form = CollapseForm { of: &reads, plateau: DISKS_PLATEAU };
    let found = fit(&form, &reads.rows)?;
    let mut parameters = Vec::new();
    for (place, test) in reads.patterns.iter().enumerate() {
        parameters.push(parameter(test, "c", "a node among few", rate(at(&found, place))));
        let half = at(&found, form.halves_at() + place);
        parameters.push(parameter(
            test,
            "h",
            "nodes at which half of the plateau is lost",
            (half, ""),
        ));
    }
    let seeking = (at(&found, form.seeking_at()), at(&found, form.seeking_at() + 1));
    parameters.push(parameter("all", "D", "disks that do little but seek", rate(seeking.0)));
    parameters.push(parameter("all", "k", "steepness of the way there", (seeking.1, "")));
    let meaning = "disks that do not seek: given, not identifiable (from 10 GB/s on none is better by much, \
                   and h goes with it)";
    parameters.push(parameter("all", "S", meaning, rate(DISKS_PLATEAU)));
    let unseen = leave_one_out(&form, &reads.rows, |row| (row.test.clone(), row.nodes))?;
    Ok(TableReport {
        name: "Disks IOzone, reading".to_string(),
        source: "Intel CRT-DC, talk of 2014: IOzone in cluster mode on a system of disks that is not described, \
                 1 to 128 nodes",
        form: "B(n) = min(c n, D + (S - D) / (1 + (n/h)^k))",
        parameters,
        errors: Summary::of(&errors(&form, &found, &reads.rows)),
        unseen: Some(Summary::of(&unseen)),
        left_out: "each point in turn",
        part: None,
    })
}

fn disks_writing() -> anyhow::Result<TableReport> {
    let writes = Rows::of(&table::disks_iozone()?, true);
    let form = PlateauForm(&writes);
    let found = fit(&form, &writes.rows)?;
    let mut parameters = Vec::new();
    for (place, test) in writes.patterns.iter().enumerate() {
        parameters.push(parameter(test, "c", "a node among few", rate(at(&found, place))));
    }
    let plateau = at(&found, writes.patterns.len());
    parameters.push(parameter("all", "S", "what all disks take", rate(plateau)));
    Ok(TableReport {
        name: "Disks IOzone, writing".to_string(),
        source: "the same system",
        form: "B(n) = min(c n, S)",
        parameters,
        errors: Summary::of(&errors(&form, &found, &writes.rows)),
        unseen: Some(Summary::of(&leave_one_out(&form, &writes.rows, |row| row.nodes)?)),
        left_out: "each number of nodes in turn",
        part: None,
    })
}

fn vxflex() -> anyhow::Result<TableReport> {
    let rows = table::vxflex_ior()?;
    let (mut parameters, mut seen) = (Vec::new(), Vec::new());
    for direction in DIRECTIONS {
        let of: Vec<_> = rows.iter().filter(|row| row.direction == direction).cloned().collect();
        let found = fit(&TransferForm, &of)?;
        let name = direction.name();
        parameters.push(parameter(name, "b", "a server with large calls", rate(at(&found, 0))));
        let half = "bytes a call at which half of that is left";
        parameters.push(parameter(name, "x0", half, (at(&found, 1) / KIB, "KiB")));
        seen.extend(errors(&TransferForm, &found, &of));
    }
    Ok(TableReport {
        name: "VxFlex IOR".to_string(),
        source: "Lustre on Dell EMC VxFlex OS: the six IOR rates that the paper states in words",
        form: "B(m,x) = m b / (1 + x0/x), m servers, x bytes a call",
        parameters,
        errors: Summary::of(&seen),
        unseen: None,
        left_out: "nothing: three points a direction settle two parameters only together",
        part: None,
    })
}

fn data_accelerator() -> anyhow::Result<TableReport> {
    let form = ShareForm::new()?;
    let mut rows = table::dac_ior_easy()?;
    rows.retain(DacRow::is_fitted);
    let found = fit(&form, &rows)?;
    let meaning = "share of the hardware's limit: ports when reading, drives when writing";
    Ok(TableReport {
        name: "Data Accelerator".to_string(),
        source: "Cambridge Data Accelerator, IO500 of May and June 2019: ior_easy, 502 and 512 nodes, O_DIRECT",
        form: "B = e min(ports, drives)",
        parameters: vec![parameter("both", "e", meaning, (at(&found, 0), ""))],
        errors: Summary::of(&errors(&form, &found, &rows)),
        unseen: Some(Summary::of(&leave_one_out(&form, &rows, |row| row.run.clone())?)),
        left_out: "each run in turn",
        part: None,
    })
}

/// The machine as a run used it, with what hardware says and nothing else.
pub fn machine_of(row: &DacRow) -> anyhow::Result<Hardware> {
    let mut machine = example::read(example::DATA_ACCELERATOR)?;
    machine.software = Some(row.software.clone());
    machine.clients = hardware::Clients {
        nodes: row.nodes,
        processes: row.ppn,
        ceiling_read: None,
        ceiling_write: None,
        ..machine.clients
    };
    Ok(machine)
}

/// What a client node did where only ten shared the machine: the ceiling that other runs lack.
fn ceiling_of_ten(rows: &[DacRow], direction: Direction) -> Option<Rate> {
    let ten = rows.iter().find(|row| row.run == CEILING_RUN && row.direction == direction)?;
    Some(Rate(ten.rate() / f64::from(ten.nodes)))
}

const CEILING_RUN: &str = "ISC19, 10 nodes";

/// An error beyond this is not the scatter of runs.
const UNEXPLAINED: f64 = 0.2;

fn runs() -> anyhow::Result<Vec<RunReport>> {
    let rows = table::dac_ior_easy()?;
    let profile = Profile::named(LUSTRE_DIRECT)?;
    let mut runs = Vec::new();
    for row in rows.iter().filter(|row| !row.is_fitted()) {
        let of = |machine: &Hardware| -> anyhow::Result<(f64, Vec<String>)> {
            let prediction = predict_as(machine, &profile);
            let found = prediction.bandwidth.iter().find(|found| found.direction == row.direction);
            let suffix = format!("_{}", row.direction.name());
            let share = format!("efficiency.{}", row.direction.name());
            let names = prediction.missing.into_iter().map(|missing| missing.input);
            let names = names.filter(|input| input.ends_with(&suffix) || *input == share);
            Ok((found.context("no such direction")?.rate, names.collect()))
        };
        let mut machine = machine_of(row)?;
        let (predicted, missing) = of(&machine)?;
        let ceilings = [Direction::Read, Direction::Write].map(|way| ceiling_of_ten(&rows, way));
        [machine.clients.ceiling_read, machine.clients.ceiling_write] = ceilings;
        // A ceiling is of one client software, and explains nothing of the run it is taken from.
        let applies = row.software == "Lustre" && row.run != CEILING_RUN;
        let with_ceiling = applies.then(|| of(&machine)).transpose()?;
        runs.push(RunReport {
            run: row.run.clone(),
            software: row.software.clone(),
            nodes: row.nodes,
            direction: row.direction,
            measured: row.rate(),
            predicted,
            error: predicted / row.rate() - 1.0,
            error_with_ceiling: with_ceiling.map(|(rate, _)| rate / row.rate() - 1.0),
            missing,
        });
    }
    Ok(runs)
}

fn elsewhere() -> anyhow::Result<Vec<ElsewhereReport>> {
    // Nothing of the costs that are carried there is of the machine but its MDTs and directories.
    let profile = Profile::named(LUSTRE_DIRECT)?;
    let costs = profile.costs.as_ref().context("no costs")?;
    let mut machine = example::read(example::DATA_ACCELERATOR)?;
    let mut found = Vec::new();
    for elsewhere in table::other_mdtest()? {
        let row = elsewhere.measured;
        let cost = costs
            .of(row.operation, elsewhere.directories, row.mdts)
            .context("no such operation")?;
        let predicted = cost.rate(row.processes, row.mdts);
        machine.metadata = Some(hardware::Metadata {
            mdts: row.mdts,
            directories: elsewhere.directories,
            one_process: None,
            one_mdt: None,
        });
        let missing = missing_metadata(&machine, &profile).into_iter();
        found.push(ElsewhereReport {
            run: elsewhere.run,
            operation: row.operation,
            measured: row.ops_s,
            predicted,
            error: predicted / row.ops_s - 1.0,
            missing: missing.map(|missing| missing.input).collect(),
        });
    }
    Ok(found)
}

/// A share as a percentage.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A share as a percentage, with its sign.
pub(crate) fn signed_percent(share: f64) -> String {
    format!("{:+.1} %", 100.0 * share)
}

impl Report {
    /// As text.
    pub fn text(&self) -> String {
        let mut lines = vec!["Errors, predicted against measured".to_string()];
        lines.push(format!(
            "  {:<21} {:>6}  {:>8} {:>8} {:>8}   {:>8} {:>8}  {}",
            "table",
            "points",
            "median",
            "p90",
            "worst",
            "unseen",
            "worst",
            "what was left out of the fit to be unseen"
        ));
        for table in &self.tables {
            let (median, worst) = table.unseen.map_or(("-".into(), "-".into()), |unseen| {
                (percent(unseen.median), percent(unseen.worst))
            });
            lines.push(format!(
                "  {:<21} {:>6}  {:>8} {:>8} {:>8}   {median:>8} {worst:>8}  {}",
                table.name,
                table.errors.points,
                percent(table.errors.median),
                percent(table.errors.p90),
                percent(table.errors.worst),
                table.left_out
            ));
            lines.extend(table.part.iter().map(|part| {
                format!(
                    "    {:<19} {:>6}  {:>8} {:>8} {:>8}",
                    part.name,
                    part.errors.points,
                    percent(part.errors.median),
                    percent(part.errors.p90),
                    percent(part.errors.worst)
                )
            }));
        }
        for table in &self.tables {
            lines.extend(parameter_lines(table));
        }
        lines.extend(self.run_lines());
        lines.extend(self.elsewhere_lines());
        lines.extend(self.published_lines());
        lines.join("\n") + "\n"
    }

    fn run_lines(&self) -> Vec<String> {
        let mut lines = vec![
            String::new(),
            "Predicted, not fitted: other runs of the Data Accelerator, from hardware and profile alone".to_string(),
            format!(
                "  {:<22} {:<17} {:>5} {:<5} {:>9} {:>9} {:>9} {:>13}  {}",
                "run", "software", "nodes", "", "measured", "predicted", "error", "with ceiling", "missing input"
            ),
        ];
        lines.extend(self.runs.iter().map(|run| {
            format!(
                "  {:<22} {:<17} {:>5} {:<5} {:>9} {:>9} {:>9} {:>13}  {}",
                run.run,
                run.software,
                run.nodes,
                run.direction.name(),
                Rate(run.measured),
                Rate(run.predicted),
                signed_percent(run.error),
                run.error_with_ceiling.map_or("-".to_string(), signed_percent),
                run.missing.join(", ")
            )
        }));
        lines.push(format!(
            "  Hardware alone does not predict these. `with ceiling`: with what a node did in {CEILING_RUN}."
        ));
        for run in &self.runs {
            let Some(left) = run.error_with_ceiling.filter(|error| error.abs() > UNEXPLAINED)
            else {
                continue;
            };
            lines.push(format!(
                "  {}, {}: {} remain with a ceiling; no input here explains them.",
                run.run,
                run.direction.name(),
                signed_percent(left)
            ));
        }
        lines
    }

    fn elsewhere_lines(&self) -> Vec<String> {
        let mut lines = vec![
            String::new(),
            "Predicted, not fitted: metadata rates elsewhere, from what operations cost LFS12's MDTs".to_string(),
            format!(
                "  {:<31} {:<7} {:>12} {:>12} {:>9}  {}",
                "run", "", "measured/s", "predicted/s", "error", "missing input"
            ),
        ];
        lines.extend(self.elsewhere.iter().map(|row| {
            format!(
                "  {:<31} {:<7} {:>12} {:>12} {:>9}  {}",
                row.run,
                row.operation.name(),
                operations(row.measured),
                operations(row.predicted),
                signed_percent(row.error),
                row.missing.join(", ")
            )
        }));
        lines.push(
            "  Hardware alone does not predict these, either: how fast an MDT is no data sheet says."
                .to_string(),
        );
        lines
    }
}

impl Report {
    fn published_lines(&self) -> Vec<String> {
        let mut lines = vec![
            String::new(),
            "Published tables, or parts of them, that are not reproduced".to_string(),
        ];
        for (table, not) in
            self.published.iter().filter_map(|one| Some((one.table, one.not.as_ref()?)))
        {
            lines.push(format!("  {table}: {}", not.what));
            lines.push(format!("    why: {}", not.why));
            lines.push(format!("    missing input: {}", not.missing));
        }
        lines
    }
}

fn parameter_lines(table: &TableReport) -> Vec<String> {
    let mut lines = vec![
        String::new(),
        table.name.clone(),
        format!("  {}", table.source),
        format!("  {}", table.form),
    ];
    lines.extend(table.parameters.iter().map(|one| {
        let value = match one.unit {
            "us" => time(one.value / 1e6),
            unit => format!("{} {unit}", digits(one.value)),
        };
        format!("    {:<20} {:<5} {:>12}  {}", one.of, one.symbol, value.trim_end(), one.meaning)
    }));
    lines
}

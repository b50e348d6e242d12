//! What a file system makes of its hardware: profiles, each fitted from a published table when asked for.
//!
//! A profile holds shares, not rates: the servers' ceiling that a table shows is divided by the limit of
//! the hardware it was measured on, which the crate's own description of that system gives. What a client
//! node moves, and what an operation costs an MDT, are properties of software and processors together and
//! are kept as they are.

use anyhow::{Context, bail};
use serde::Serialize;

use crate::bandwidth::{Gains, TransferForm, fit_ior};
use crate::example;
use crate::fit::{Form, at, fit};
use crate::hardware::Hardware;
use crate::metadata::{Cost, fit_mdtest};
use crate::table::{self, Api, DIRECTIONS, DacRow, Direction, Directories, OPERATIONS, Operation};

/// The profile of hardware without software.
pub const IDEAL: &str = "ideal";
/// Lustre 2.10 with buffered I/O, from LFS12.
pub const LUSTRE_BUFFERED: &str = "lustre-2.10-buffered";
/// Lustre 2.12 with direct I/O, from the Data Accelerator.
pub const LUSTRE_DIRECT: &str = "lustre-2.12-direct";
/// Lustre on VxFlex OS.
pub const VXFLEX: &str = "vxflex";

/// All, and what they are.
pub const PROFILES: [(&str, &str); 4] = [
    (LUSTRE_BUFFERED, "Lustre 2.10, buffered I/O, file per process; LFS12 (32 OSS, 8 MDTs)"),
    (
        LUSTRE_DIRECT,
        "Lustre 2.12, O_DIRECT with 16 MiB RPCs; the Data Accelerator's ior_easy, May and June 2019",
    ),
    (VXFLEX, "Lustre 2.10, O_DIRECT on mirrored volumes; VxFlex OS (4 and 8 OSS)"),
    (IDEAL, "no software at all: every limit of the hardware is reached"),
];

/// Refuses a profile that there is not.
pub fn check_name(name: &str) -> anyhow::Result<()> {
    if PROFILES.iter().any(|profile| profile.0 == name) {
        return Ok(());
    }
    let names: Vec<&str> = PROFILES.iter().map(|profile| profile.0).collect();
    bail!("profile = \"{name}\": there is none of this name, only {}", names.join(", "))
}

/// A client node's rate through the client software.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NodeRate {
    /// Bytes a second with one process.
    pub rate: f64,
    /// What several processes add.
    pub gains: Gains,
}

/// One direction, for one interface and transfer size if the table tells them apart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DataPath {
    /// Which way.
    pub direction: Direction,
    /// POSIX or MPI-IO; none: either.
    pub api: Option<Api>,
    /// Bytes a call; none: any.
    pub transfer: Option<f64>,
    /// The share of the servers' limit that is reached.
    pub efficiency: f64,
    /// What a client node moves, if the table shows it.
    pub node: Option<NodeRate>,
    /// The most that a client node was seen to move.
    pub node_seen: Option<f64>,
    /// The softness of the bend; none: sharp.
    pub softness: Option<f64>,
    /// Bytes whose time a call costs in itself.
    pub half_point: Option<f64>,
}

/// From the least to the most that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Span {
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Span {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let none = Self { least: f64::INFINITY, most: 0.0 };
        values.fold(none, |span, value| Self {
            least: span.least.min(value),
            most: span.most.max(value),
        })
    }

    /// Whether a value was among what was measured.
    pub fn contains(&self, value: f64) -> bool {
        self.least <= value && value <= self.most
    }
}

/// Where the profile was held against measurements.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Range {
    /// Client nodes.
    pub nodes: Span,
    /// Processes on a node.
    pub processes: Span,
    /// Bytes a call, if the table says it.
    pub transfer: Option<Span>,
    /// Object servers.
    pub servers: Span,
}

/// What operations cost LFS12's MDTs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Costs {
    /// In a directory on one MDT.
    pub one: Vec<(Operation, Cost)>,
    /// In a directory striped over several.
    pub striped: Vec<(Operation, Cost)>,
    /// Over how many.
    pub striped_mdts: u32,
    /// Processes that were measured.
    pub processes: Span,
}

impl Costs {
    /// What an operation costs.
    pub fn of(&self, operation: Operation, directories: Directories, mdts: u32) -> Option<Cost> {
        let costs = match directories {
            Directories::Striped if mdts > 1 => &self.striped,
            _ => &self.one,
        };
        costs.iter().find(|cost| cost.0 == operation).map(|cost| cost.1)
    }
}

/// What a file system makes of its hardware.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Profile {
    /// As descriptions name it.
    pub name: &'static str,
    /// What it was fitted from.
    pub what: &'static str,
    /// The software it stands for.
    pub software: &'static [&'static str],
    /// Its data paths.
    pub paths: Vec<DataPath>,
    /// What operations cost; none: unknown.
    pub costs: Option<Costs>,
    /// Where it was held against measurements; none: nowhere.
    pub range: Option<Range>,
}

impl Profile {
    /// Fits the profile of a name.
    pub fn named(name: &str) -> anyhow::Result<Self> {
        let fitted = match name {
            LUSTRE_BUFFERED => lustre_buffered(),
            LUSTRE_DIRECT => lustre_direct(),
            VXFLEX => vxflex(),
            IDEAL => Ok(ideal()),
            other => {
                return check_name(other).and_then(|()| bail!("profile {other} is not fitted"));
            }
        };
        fitted.with_context(|| format!("profile {name}"))
    }

    /// The data path nearest to an interface and transfer size.
    pub fn path(&self, direction: Direction, api: Api, transfer: f64) -> Option<&DataPath> {
        let distance =
            |path: &&DataPath| path.transfer.map_or(0.0, |of| (of / transfer).ln().abs());
        self.paths
            .iter()
            .filter(|path| path.direction == direction && path.api.is_none_or(|of| of == api))
            .min_by(|a, b| distance(a).total_cmp(&distance(b)))
    }
}

fn what(name: &str) -> &'static str {
    PROFILES.iter().find(|profile| profile.0 == name).map_or("", |profile| profile.1)
}

/// The profile of the system whose MDTs' costs all profiles have.
pub(crate) const COSTS_OF: &str = LUSTRE_BUFFERED;

/// Fits what operations cost LFS12's MDTs.
pub fn lfs12_costs() -> anyhow::Result<Costs> {
    let rows = table::lfs12_mdtest()?;
    let striped_mdts = rows.iter().map(|row| row.mdts).max().unwrap_or(1);
    let of = |mdts: u32| -> anyhow::Result<Vec<(Operation, Cost)>> {
        let fitted = OPERATIONS.into_iter().map(|operation| {
            let is_of = |row: &&table::MdtestRow| row.mdts == mdts && row.operation == operation;
            let rows: Vec<_> = rows.iter().filter(is_of).cloned().collect();
            Ok((operation, fit_mdtest(&rows)?))
        });
        fitted.collect()
    };
    Ok(Costs {
        one: of(1)?,
        striped: of(striped_mdts)?,
        striped_mdts,
        processes: Span::of(rows.iter().map(|row| f64::from(row.processes))),
    })
}

fn lustre_buffered() -> anyhow::Result<Profile> {
    let measured_on = example::read(example::LFS12)?;
    let rows = table::lfs12_ior()?;
    let mut paths = Vec::new();
    for direction in DIRECTIONS {
        let of: Vec<_> = rows.iter().filter(|row| row.direction == direction).cloned().collect();
        let (found, _) = fit_ior(direction, &of)?;
        let seen = of.iter().map(|row| row.rate() / f64::from(row.nodes)).fold(0.0, f64::max);
        paths.extend(found.series.iter().map(|series| DataPath {
            direction,
            api: Some(series.api),
            transfer: Some(series.transfer),
            efficiency: series.ceiling / measured_on.servers_limit(direction),
            node: Some(NodeRate { rate: series.node_rate, gains: found.gains }),
            node_seen: Some(seen),
            softness: Some(found.softness),
            half_point: None,
        }));
    }
    Ok(Profile {
        name: LUSTRE_BUFFERED,
        what: what(LUSTRE_BUFFERED),
        software: &["Lustre", "Lustre, buffered"],
        paths,
        costs: Some(lfs12_costs()?),
        range: Some(Range {
            nodes: Span::of(rows.iter().map(|row| f64::from(row.nodes))),
            processes: Span::of(rows.iter().map(|row| f64::from(row.ppn))),
            transfer: Some(Span::of(rows.iter().map(|row| row.transfer()))),
            servers: Span::of([f64::from(measured_on.servers.count)].into_iter()),
        }),
    })
}

/// The form of the Data Accelerator's fitted runs: a share of the hardware's limit. Parameter: the share.
pub struct ShareForm {
    machine: Hardware,
}

impl ShareForm {
    /// On the crate's description of the machine.
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self { machine: example::read(example::DATA_ACCELERATOR)? })
    }
}

impl Form<DacRow> for ShareForm {
    fn measured(&self, row: &DacRow) -> f64 {
        row.rate()
    }

    fn predicted(&self, parameters: &[f64], row: &DacRow) -> f64 {
        at(parameters, 0) * self.machine.servers_limit(row.direction)
    }

    fn start(&self) -> Vec<f64> {
        vec![0.5]
    }
}

fn lustre_direct() -> anyhow::Result<Profile> {
    let form = ShareForm::new()?;
    let mut rows = table::dac_ior_easy()?;
    rows.retain(DacRow::is_fitted);
    let efficiency = at(&fit(&form, &rows)?, 0);
    let paths = DIRECTIONS.map(|direction| DataPath {
        direction,
        api: None,
        transfer: None,
        efficiency,
        node: None,
        node_seen: Some(
            rows.iter()
                .filter(|row| row.direction == direction)
                .map(|row| row.rate() / f64::from(row.nodes))
                .fold(0.0, f64::max),
        ),
        softness: None,
        half_point: None,
    });
    Ok(Profile {
        name: LUSTRE_DIRECT,
        what: what(LUSTRE_DIRECT),
        software: &["Lustre"],
        paths: paths.to_vec(),
        costs: Some(lfs12_costs()?),
        range: Some(Range {
            nodes: Span::of(rows.iter().map(|row| f64::from(row.nodes))),
            processes: Span::of(rows.iter().map(|row| f64::from(row.ppn))),
            transfer: None,
            servers: Span::of([f64::from(form.machine.servers.count)].into_iter()),
        }),
    })
}

fn vxflex() -> anyhow::Result<Profile> {
    let measured_on = example::read(example::VXFLEX)?;
    let rows = table::vxflex_ior()?;
    let mut paths = Vec::new();
    for direction in DIRECTIONS {
        let of: Vec<_> = rows.iter().filter(|row| row.direction == direction).cloned().collect();
        let found = fit(&TransferForm, &of)?;
        let server = measured_on.servers_limit(direction) / f64::from(measured_on.servers.count);
        paths.push(DataPath {
            direction,
            api: None,
            transfer: None,
            efficiency: at(&found, 0) / server,
            node: None,
            node_seen: Some(
                of.iter().map(|row| row.rate() / f64::from(row.nodes)).fold(0.0, f64::max),
            ),
            softness: None,
            half_point: Some(at(&found, 1)),
        });
    }
    let ppn = rows.iter().map(|row| f64::from(row.processes) / f64::from(row.nodes));
    Ok(Profile {
        name: VXFLEX,
        what: what(VXFLEX),
        software: &["Lustre"],
        paths,
        costs: Some(lfs12_costs()?),
        range: Some(Range {
            nodes: Span::of(rows.iter().map(|row| f64::from(row.nodes))),
            processes: Span::of(ppn),
            transfer: Some(Span::of(rows.iter().map(|row| row.transfer()))),
            servers: Span::of(rows.iter().map(|row| f64::from(row.oss))),
        }),
    })
}

fn ideal() -> Profile {
    let paths = DIRECTIONS.map(|direction| DataPath {
        direction,
        api: None,
        transfer: None,
        efficiency: 1.0,
        node: None,
        node_seen: None,
        softness: None,
        half_point: None,
    });
    Profile {
        name: IDEAL,
        what: what(IDEAL),
        software: &[],
        paths: paths.to_vec(),
        costs: None,
        range: None,
    }
}

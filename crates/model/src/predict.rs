//! Rates of a described system: the limits of servers and clients, which of them binds, and what the
//! answer depends on that the description does not say.
//!
//! A prediction is as good as its inputs. So beside the rates stand two lists: how the system differs from
//! those that the profile was ever held against, and which inputs are missing, each with why it matters
//! here and how it is measured.

use serde::Serialize;

use crate::bandwidth::{call_share, soft_min};
use crate::hardware::{Hardware, Metadata};
use crate::metadata::Cost;
use crate::profile::{COSTS_OF, DataPath, IDEAL, Profile, Span};
use crate::table::{DIRECTIONS, Direction, Directories, OPERATIONS, Operation};
use crate::units::{Rate, Size, digits};

/// How much more than was ever seen of a client node may be asked of it before its ceiling must be known.
const NODE_SEEN_SLACK: f64 = 1.05;

/// Clients and servers both slow a soft bend where they are this near.
const NEAR: f64 = 2.0;

/// Which resource a limit is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    /// The servers' ports.
    ServersNetwork,
    /// The servers' drives.
    Drives,
    /// The clients' ports.
    ClientsNetwork,
    /// What client nodes move through their software.
    ClientsSoftware,
}

impl Resource {
    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::ServersNetwork => "servers' network",
            Self::Drives => "drives",
            Self::ClientsNetwork => "clients' network",
            Self::ClientsSoftware => "clients' software",
        }
    }

    fn is_clients(self) -> bool {
        matches!(self, Self::ClientsNetwork | Self::ClientsSoftware)
    }
}

/// One limit of a direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// Of what.
    pub resource: Resource,
    /// What the hardware has, bytes a second.
    pub hardware: f64,
    /// The share of it that is reached.
    pub share: f64,
    /// How the hardware's rate comes about.
    pub how: String,
}

impl Limit {
    /// What is reached, bytes a second.
    pub fn reached(&self) -> f64 {
        self.hardware * self.share
    }
}

/// One direction's prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bandwidth {
    /// Which way.
    pub direction: Direction,
    /// Bytes a second, all clients together.
    pub rate: f64,
    /// Of one node.
    pub per_node: f64,
    /// Of one process.
    pub per_process: f64,
    /// The limit that binds.
    pub bound_by: Resource,
    /// The other side's limit, if it is near enough to cost something too.
    pub near: Option<Resource>,
    /// All limits.
    pub limits: Vec<Limit>,
}

/// One operation's prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetadataRate {
    /// What is done.
    pub operation: Operation,
    /// Operations a second, all clients together.
    pub rate: f64,
    /// Of one process.
    pub per_process: f64,
    /// What the MDTs in use end at.
    pub ceiling: f64,
    /// Whether the MDTs bind, or the round trips of the processes.
    pub bound_by: &'static str,
}

/// An input that the answer depends on and that is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// Its key in the description.
    pub input: String,
    /// Why it matters here.
    pub because: String,
    /// How to get it.
    pub measure: String,
}

/// What a described system will do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// The system.
    pub hardware: Hardware,
    /// The profile's source.
    pub profile: &'static str,
    /// Reading and writing.
    pub bandwidth: Vec<Bandwidth>,
    /// Creation, attributes, removal; empty where costs or MDTs are unknown.
    pub metadata: Vec<MetadataRate>,
    /// How the system differs from those the profile was held against.
    pub outside: Vec<String>,
    /// What is missing.
    pub missing: Vec<Missing>,
}

/// Predicts what a described system will do.
pub fn predict(hardware: &Hardware) -> anyhow::Result<Prediction> {
    Ok(predict_as(hardware, &Profile::named(&hardware.profile)?))
}

/// Predicts with a profile that is fitted already.
pub fn predict_as(hardware: &Hardware, profile: &Profile) -> Prediction {
    let mut missing = Vec::new();
    let mut bandwidth = Vec::new();
    for direction in DIRECTIONS {
        let api = hardware.clients.api;
        let Some(path) = profile.path(direction, api, hardware.clients.transfer.0) else {
            continue;
        };
        let found = bandwidth_of(hardware, path);
        missing.extend(missing_of(hardware, profile, path, &found));
        bandwidth.push(found);
    }
    missing.extend(missing_metadata(hardware, profile));
    Prediction {
        hardware: hardware.clone(),
        profile: profile.what,
        bandwidth,
        metadata: metadata_of(hardware, profile),
        outside: outside(hardware, profile),
        missing,
    }
}

fn limits_of(hardware: &Hardware, path: &DataPath) -> Vec<Limit> {
    let direction = path.direction;
    let servers = &hardware.servers;
    let clients = &hardware.clients;
    let efficiency = hardware.efficiency(direction).unwrap_or(path.efficiency);
    let calls = path.half_point.map_or(1.0, |x0| call_share(clients.transfer.0, x0));
    let passes = hardware.passes(direction);
    let over = if passes > 1.0 { format!(" / {passes} copies") } else { String::new() };
    let nodes = f64::from(clients.nodes);

    let mut limits = vec![Limit {
        resource: Resource::ServersNetwork,
        hardware: hardware.servers_network(direction),
        share: efficiency * calls,
        how: format!("{} servers x {} x {:#}{over}", servers.count, servers.nics, servers.nic_rate),
    }];
    if let Some(devices) = hardware.devices(direction) {
        let count = u64::from(servers.count) * hardware.devices_per_server();
        let copies = match direction {
            Direction::Write if servers.copies > 1 => format!(" / {} copies", servers.copies),
            _ => String::new(),
        };
        let each = match direction {
            Direction::Read => servers.device_read,
            Direction::Write => servers.device_write,
        };
        let each = each.map_or(String::new(), |rate| format!("{rate:#}"));
        limits.push(Limit {
            resource: Resource::Drives,
            hardware: devices,
            share: efficiency * calls,
            how: format!("{count} drives x {each}{copies}"),
        });
    }
    limits.push(Limit {
        resource: Resource::ClientsNetwork,
        hardware: nodes * hardware.node_network(direction),
        share: efficiency,
        how: format!("{} nodes x {} x {:#}{over}", clients.nodes, clients.nics, clients.nic_rate),
    });
    if let Some(ceiling) = hardware.ceiling(direction) {
        limits.push(Limit {
            resource: Resource::ClientsSoftware,
            hardware: nodes * ceiling.0,
            share: 1.0,
            how: format!("{} nodes x {ceiling:#}, their stated ceiling", clients.nodes),
        });
    } else if let Some(node) = path.node {
        let rate = Rate(node.rate * node.gains.of(clients.processes));
        limits.push(Limit {
            resource: Resource::ClientsSoftware,
            hardware: nodes * rate.0,
            share: 1.0,
            how: format!("{} nodes x {rate}, as the profile's nodes did", clients.nodes),
        });
    }
    limits
}

fn bandwidth_of(hardware: &Hardware, path: &DataPath) -> Bandwidth {
    let limits = limits_of(hardware, path);
    let least = |clients: bool| {
        limits
            .iter()
            .filter(|limit| limit.resource.is_clients() == clients)
            .map(|limit| (limit.reached(), limit.resource))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .unwrap_or((f64::INFINITY, Resource::ServersNetwork))
    };
    let (servers, clients) = (least(false), least(true));
    let rate = soft_min(clients.0, servers.0, path.softness);
    let (binding, other) =
        if clients.0 < servers.0 { (clients, servers) } else { (servers, clients) };
    let is_near = path.softness.is_some() && other.0 < NEAR * binding.0;
    Bandwidth {
        direction: path.direction,
        rate,
        per_node: rate / f64::from(hardware.clients.nodes),
        per_process: rate / hardware.processes() as f64,
        bound_by: binding.1,
        near: is_near.then_some(other.1),
        limits,
    }
}

fn metadata_of(hardware: &Hardware, profile: &Profile) -> Vec<MetadataRate> {
    let Some(metadata) = hardware.metadata else { return Vec::new() };
    let processes = u32::try_from(hardware.processes()).unwrap_or(u32::MAX);
    let in_use = match metadata.directories {
        Directories::One => 1,
        Directories::Striped | Directories::Unique => metadata.mdts,
    };
    let rates = OPERATIONS.into_iter().filter_map(|operation| {
        let known = profile.costs.as_ref();
        let known = known.and_then(|all| all.of(operation, metadata.directories, metadata.mdts));
        let (process, mdt) = (metadata.of_process(operation), metadata.of_mdt(operation));
        let cost = Cost::measured(process, mdt, known)?;
        let rate = cost.rate(processes, in_use);
        let ceiling = cost.ceiling(in_use);
        // Without any waiting the processes alone would reach this.
        let alone = f64::from(processes) / (cost.delay + cost.service);
        Some(MetadataRate {
            operation,
            rate,
            per_process: rate / f64::from(processes),
            ceiling,
            bound_by: if alone < ceiling { "round trips of the processes" } else { "MDTs in use" },
        })
    });
    rates.collect()
}

fn missing_of(
    hardware: &Hardware,
    profile: &Profile,
    path: &DataPath,
    found: &Bandwidth,
) -> Vec<Missing> {
    let name = path.direction.name();
    let mut missing = Vec::new();
    let stated = hardware.efficiency(path.direction).is_some();
    if !stated && let Some(because) = doubt_of_efficiency(hardware, profile) {
        missing.push(Missing {
            input: format!("efficiency.{name}"),
            because,
            measure: format!(
                "{name} with ior from more and more nodes until the rate stands still; divide by the servers' limit, {}",
                Rate(hardware.servers_limit(path.direction))
            ),
        });
    }
    if hardware.devices(path.direction).is_none() {
        missing.push(Missing {
            input: format!("servers.device_{name}"),
            because: "without the drives' rate they count as never in the way".to_string(),
            measure: format!("the data sheet, or {name} of one drive past its cache (fio, direct)"),
        });
    }
    let asked = found.per_node;
    let known = path.node_seen.map_or(0.0, |seen| seen * NODE_SEEN_SLACK);
    if path.node.is_none() && hardware.ceiling(path.direction).is_none() && asked > known {
        let seen = match path.node_seen {
            Some(seen) => format!("the profile has seen {} of a node at most", Rate(seen)),
            None => "the profile has never seen a node".to_string(),
        };
        missing.push(Missing {
            input: format!("clients.ceiling_{name}"),
            because: format!("each of {} nodes would have to move {}, and {seen}", hardware.clients.nodes, Rate(asked)),
            measure: format!(
                "{name} with ior from one node, {} processes, data beyond its memory: the best of three",
                hardware.clients.processes
            ),
        });
    }
    missing
}

/// Why the profile's share may not be this system's.
fn doubt_of_efficiency(hardware: &Hardware, profile: &Profile) -> Option<String> {
    if profile.name == IDEAL {
        return Some(
            "the ideal profile takes all of the hardware, which no software does".to_string(),
        );
    }
    let software = hardware.software.as_ref()?;
    let is_known = profile.software.iter().any(|known| known.eq_ignore_ascii_case(software));
    (!is_known).then(|| format!("{software} is not what {} was fitted to", profile.name))
}

/// What of the metadata rates neither the description nor the profile says of this system.
pub(crate) fn missing_metadata(hardware: &Hardware, profile: &Profile) -> Vec<Missing> {
    let Some(metadata) = hardware.metadata else {
        return vec![Missing {
            input: "metadata.mdts".to_string(),
            because: "without MDTs no metadata rates are predicted".to_string(),
            measure: "count them; `directories` says how the work lies on them".to_string(),
        }];
    };
    let Some(because) = doubt_of_costs(hardware, &metadata, profile) else { return Vec::new() };
    let lacks = |input: &str, of: Seen, measure: &str| {
        let lacking = OPERATIONS.into_iter().filter(|one| of(&metadata, *one).is_none());
        let lacking: Vec<&str> = lacking.map(Operation::name).collect();
        (!lacking.is_empty()).then(|| Missing {
            input: input.to_string(),
            because: format!("{because} ({})", lacking.join(", ")),
            measure: measure.to_string(),
        })
    };
    let process = lacks(
        "metadata.one_process",
        Metadata::of_process,
        "mdtest with one process in such directories: operations a second",
    );
    let mdt = lacks(
        "metadata.one_mdt",
        Metadata::of_mdt,
        "mdtest with more and more processes until the rate stands still; divide by the MDTs in use",
    );
    process.into_iter().chain(mdt).collect()
}

/// What was seen of an operation, if it was.
type Seen = fn(&Metadata, Operation) -> Option<f64>;

/// Why what operations cost in the profile may not be what they cost this system.
fn doubt_of_costs(hardware: &Hardware, metadata: &Metadata, profile: &Profile) -> Option<String> {
    let Some(costs) = &profile.costs else {
        return Some(format!(
            "{} knows no costs of operations, so metadata rates are not predicted",
            profile.name
        ));
    };
    if profile.name != COSTS_OF {
        return Some(
            "hardware alone does not predict them: the costs are those of LFS12's MDTs, and no data sheet says \
             how fast others are"
                .to_string(),
        );
    }
    if let Some(doubt) = doubt_of_efficiency(hardware, profile) {
        return Some(doubt);
    }
    match metadata.directories {
        Directories::Unique => Some("costs were measured in one shared directory".to_string()),
        Directories::Striped if metadata.mdts > 1 && metadata.mdts != costs.striped_mdts => Some(
            format!("costs of striped directories were measured over {} MDTs", costs.striped_mdts),
        ),
        _ => None,
    }
}

fn outside(hardware: &Hardware, profile: &Profile) -> Vec<String> {
    let mut outside = Vec::new();
    let Some(range) = &profile.range else { return outside };
    let clients = &hardware.clients;
    let mut check = |what: &str, value: f64, span: &Span, show: &dyn Fn(f64) -> String| {
        if span.contains(value) {
            return;
        }
        let known = if span.least == span.most {
            show(span.least)
        } else {
            format!("{} to {}", show(span.least), show(span.most))
        };
        outside.push(format!("{what}: {}, measured were {known}", show(value)));
    };
    check("client nodes", f64::from(clients.nodes), &range.nodes, &digits);
    check("processes per node", f64::from(clients.processes), &range.processes, &digits);
    check("servers", f64::from(hardware.servers.count), &range.servers, &digits);
    if let Some(span) = &range.transfer {
        check("bytes a call", clients.transfer.0, span, &|bytes| Size(bytes).to_string());
    }
    if let (Some(metadata), Some(costs)) = (hardware.metadata, &profile.costs) {
        check("processes at the MDTs", hardware.processes() as f64, &costs.processes, &digits);
        match metadata.directories {
            Directories::Unique => outside.push(
                "directories of their own for processes: costs were measured in one shared directory; \
                 `predict --tables` shows how far that carried elsewhere"
                    .to_string(),
            ),
            Directories::Striped if metadata.mdts > 1 && metadata.mdts != costs.striped_mdts => outside.push(
                format!("MDTs under a striped directory: {}, measured were {}", metadata.mdts, costs.striped_mdts),
            ),
            _ => {}
        }
    }
    outside
}

//! The description of a system: a TOML file in which every rate has its unit.
//!
//! What is described is what can be counted and read off data sheets. What the software makes of it comes
//! from a profile or from `[efficiency]`, which says it outright. Unknown keys and impossible values are
//! refused by name: a misspelt ceiling that is silently ignored would be a wrong answer.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::table::{Api, Direction, Directories, OPERATIONS, Operation};
use crate::units::{Rate, Size};

/// No system has more of anything that is counted here; more is a slip of the keyboard.
const COUNT_MAX: u32 = 1_000_000;

/// The most processes over all nodes: the metadata model takes a step for each.
const PROCESSES_MAX: u64 = 10_000_000;

/// A described system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// What it is called in reports.
    pub name: String,
    /// What the file system makes of it; `ideal` where nothing is said.
    #[serde(default = "ideal")]
    pub profile: String,
    /// The file system that runs there, if it is not the one of the profile.
    pub software: Option<String>,
    /// Shares of the hardware's limit, instead of the profile's.
    pub efficiency: Option<Efficiency>,
    /// Object servers.
    pub servers: Servers,
    /// Metadata targets; without them no metadata rates are predicted.
    pub metadata: Option<Metadata>,
    /// Clients.
    pub clients: Clients,
    /// How much there is room for.
    pub storage: Option<Storage>,
}

fn ideal() -> String {
    crate::profile::IDEAL.to_string()
}

/// Shares of the hardware's limit that the software reaches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Efficiency {
    /// When reading.
    pub read: Option<f64>,
    /// When writing.
    pub write: Option<f64>,
}

/// Object servers; all alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Servers {
    /// How many.
    pub count: u32,
    /// Network ports of each.
    #[serde(default = "one")]
    pub nics: u32,
    /// Rate of a port.
    pub nic_rate: Rate,
    /// OSTs of each.
    pub osts: u32,
    /// Drives under an OST.
    #[serde(default = "one")]
    pub devices_per_ost: u32,
    /// What a drive reads.
    pub device_read: Option<Rate>,
    /// What a drive writes.
    pub device_write: Option<Rate>,
    /// How many drives every byte is written to.
    #[serde(default = "one")]
    pub copies: u32,
    /// Who sends the copies.
    #[serde(default)]
    pub copied_by: CopiedBy,
}

fn one() -> u32 {
    1
}

/// Who sends the copies of a mirrored file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CopiedBy {
    /// The client, to every server: each byte passes the file system's network once a copy.
    #[default]
    Clients,
    /// The storage behind the servers, over a network of its own.
    Storage,
}

/// Metadata targets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metadata {
    /// How many.
    pub mdts: u32,
    /// How the directories that are worked in lie on them.
    pub directories: Directories,
    /// What one process alone does in them, where it was measured.
    pub one_process: Option<Operations>,
    /// What one MDT ends at with many processes, where it was measured.
    pub one_mdt: Option<Operations>,
}

/// Operations a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operations {
    /// Creation.
    pub create: Option<f64>,
    /// Attributes by name.
    pub stat: Option<f64>,
    /// Removal.
    pub remove: Option<f64>,
}

impl Operations {
    /// Of one operation.
    pub fn of(&self, operation: Operation) -> Option<f64> {
        match operation {
            Operation::Create => self.create,
            Operation::Stat => self.stat,
            Operation::Remove => self.remove,
        }
    }
}

impl Metadata {
    /// What one process was seen to do.
    pub fn of_process(&self, operation: Operation) -> Option<f64> {
        self.one_process?.of(operation)
    }

    /// What one MDT was seen to end at.
    pub fn of_mdt(&self, operation: Operation) -> Option<f64> {
        self.one_mdt?.of(operation)
    }
}

/// Client nodes; all alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clients {
    /// How many.
    pub nodes: u32,
    /// Processes on each.
    pub processes: u32,
    /// Network ports of each.
    #[serde(default = "one")]
    pub nics: u32,
    /// Rate of a port.
    pub nic_rate: Rate,
    /// The most that one node was seen to read through this client software.
    pub ceiling_read: Option<Rate>,
    /// The most that one node was seen to write.
    pub ceiling_write: Option<Rate>,
    /// Bytes a call.
    #[serde(default = "transfer")]
    pub transfer: Size,
    /// System calls or MPI-IO.
    #[serde(default = "posix")]
    pub api: Api,
    /// Cores of a node, for `plan`.
    pub cores: Option<u32>,
    /// Memory of a node, for `plan`.
    pub memory: Option<Size>,
}

fn transfer() -> Size {
    Size(crate::units::MIB)
}

fn posix() -> Api {
    Api::Posix
}

/// How much there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Storage {
    /// All of it.
    pub capacity: Size,
    /// What is taken already.
    pub used: Option<Size>,
}

impl Hardware {
    /// Reads a description from a file.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the description {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("description {}", path.display()))
    }

    /// Reads a description.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let hardware: Self = toml::from_str(text)?;
        hardware.check()?;
        Ok(hardware)
    }

    fn check(&self) -> anyhow::Result<()> {
        let clients = &self.clients;
        let servers = &self.servers;
        ensure!(!self.name.trim().is_empty(), "name: a system needs one");
        let counts = [
            ("servers.count", servers.count),
            ("servers.nics", servers.nics),
            ("servers.osts", servers.osts),
            ("servers.devices_per_ost", servers.devices_per_ost),
            ("servers.copies", servers.copies),
            ("clients.nodes", clients.nodes),
            ("clients.processes", clients.processes),
            ("clients.nics", clients.nics),
            ("clients.cores", clients.cores.unwrap_or(1)),
            ("metadata.mdts", self.metadata.map_or(1, |metadata| metadata.mdts)),
        ];
        for (name, count) in counts {
            ensure!(count >= 1, "{name} = 0: there must be at least one");
            ensure!(count <= COUNT_MAX, "{name} = {count}: more than {COUNT_MAX} is not believed");
        }
        ensure!(
            self.processes() <= PROCESSES_MAX,
            "clients.processes = {} on {} nodes: more than {PROCESSES_MAX} processes in all",
            clients.processes,
            clients.nodes
        );
        self.check_shares()?;
        self.check_rates()?;
        self.check_operations()?;
        let devices = u64::from(servers.count) * self.devices_per_server();
        ensure!(
            u64::from(servers.copies) <= devices,
            "servers.copies = {}: there are only {devices} drives to copy to",
            servers.copies
        );
        if let Some(Storage { capacity, used: Some(used) }) = self.storage {
            ensure!(
                used <= capacity,
                "storage.used = {used} is more than storage.capacity = {capacity}"
            );
        }
        crate::profile::check_name(&self.profile)
    }

    fn check_shares(&self) -> anyhow::Result<()> {
        for direction in crate::table::DIRECTIONS {
            let Some(share) = self.efficiency(direction) else { continue };
            let name = direction.name();
            // Also refuses what is not a number.
            if !(share > 0.0 && share <= 1.0) {
                bail!(
                    "efficiency.{name} = {share}: a share of the hardware's limit lies above 0 and up to 1"
                );
            }
        }
        Ok(())
    }

    fn check_rates(&self) -> anyhow::Result<()> {
        let port = f64::from(self.clients.nics) * self.clients.nic_rate.0;
        for direction in crate::table::DIRECTIONS {
            let Some(ceiling) = self.ceiling(direction) else { continue };
            let name = direction.name();
            ensure!(
                ceiling.0 <= port,
                "clients.ceiling_{name} = {ceiling}: more than the node's network, {}; \
                 was it measured through a cache?",
                Rate(port)
            );
        }
        Ok(())
    }

    fn check_operations(&self) -> anyhow::Result<()> {
        let Some(metadata) = self.metadata else { return Ok(()) };
        for operation in OPERATIONS {
            let name = operation.name();
            let (process, mdt) = (metadata.of_process(operation), metadata.of_mdt(operation));
            for (input, rate) in [("one_process", process), ("one_mdt", mdt)] {
                // Also refuses what is not a number.
                ensure!(
                    rate.is_none_or(|rate| rate > 0.0 && rate.is_finite()),
                    "metadata.{input}.{name} = {}: operations a second, more than none",
                    rate.unwrap_or(0.0)
                );
            }
            if let Some((process, mdt)) = process.zip(mdt) {
                ensure!(
                    process <= mdt,
                    "metadata.one_process.{name} = {process} is more than metadata.one_mdt.{name} = \
                     {mdt}: many processes do no less than one"
                );
            }
        }
        Ok(())
    }

    /// Drives of a server.
    pub fn devices_per_server(&self) -> u64 {
        u64::from(self.servers.osts) * u64::from(self.servers.devices_per_ost)
    }

    /// Processes over all nodes.
    pub fn processes(&self) -> u64 {
        u64::from(self.clients.nodes) * u64::from(self.clients.processes)
    }

    /// The share that the description states outright.
    pub fn efficiency(&self, direction: Direction) -> Option<f64> {
        let efficiency = self.efficiency?;
        match direction {
            Direction::Read => efficiency.read,
            Direction::Write => efficiency.write,
        }
    }

    /// The most that a client node was seen to move.
    pub fn ceiling(&self, direction: Direction) -> Option<Rate> {
        match direction {
            Direction::Read => self.clients.ceiling_read,
            Direction::Write => self.clients.ceiling_write,
        }
    }

    /// How often a byte passes the file system's network.
    pub fn passes(&self, direction: Direction) -> f64 {
        match (direction, self.servers.copied_by) {
            (Direction::Write, CopiedBy::Clients) => f64::from(self.servers.copies),
            _ => 1.0,
        }
    }

    /// What all servers' ports carry, in bytes of files.
    pub fn servers_network(&self, direction: Direction) -> f64 {
        let ports = f64::from(self.servers.count) * f64::from(self.servers.nics);
        ports * self.servers.nic_rate.0 / self.passes(direction)
    }

    /// What all drives move, in bytes of files, if their rate is given.
    pub fn devices(&self, direction: Direction) -> Option<f64> {
        let count = f64::from(self.servers.count) * self.devices_per_server() as f64;
        match direction {
            Direction::Read => Some(count * self.servers.device_read?.0),
            Direction::Write => {
                Some(count * self.servers.device_write?.0 / f64::from(self.servers.copies))
            }
        }
    }

    /// The lesser of the servers' ports and drives.
    pub fn servers_limit(&self, direction: Direction) -> f64 {
        let network = self.servers_network(direction);
        self.devices(direction).map_or(network, |devices| devices.min(network))
    }

    /// What a client node's ports carry, in bytes of files.
    pub fn node_network(&self, direction: Direction) -> f64 {
        f64::from(self.clients.nics) * self.clients.nic_rate.0 / self.passes(direction)
    }
}

//! Which rank is on which node, for everything that is said of single nodes.

use crate::comm::Communicator;
use crate::error::Result;

/// Nodes by number, in the order of their first ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    names: Vec<String>,
    of: Vec<usize>,
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

impl Placement {
    /// By the host names of all ranks.
    pub fn find(comm: &dyn Communicator) -> Result<Self> {
        let hosts = comm.all_gather(host_name().as_bytes())?;
        let hosts: Vec<_> = hosts.iter().map(|name| String::from_utf8_lossy(name)).collect();
        Ok(Self::of_hosts(&hosts))
    }

    fn of_hosts(hosts: &[impl AsRef<str>]) -> Self {
        let mut names: Vec<String> = Vec::new();
        let mut of = Vec::with_capacity(hosts.len());
        for host in hosts.iter().map(AsRef::as_ref) {
            let known = names.iter().position(|name| name == host);
            of.push(known.unwrap_or(names.len()));
            if known.is_none() {
                names.push(host.to_owned());
            }
        }
        Self { names, of }
    }

    /// As somebody says it is: so many ranks on each node, one after the other.
    pub fn said(nodes: usize, ranks_each: usize, ranks: usize) -> Self {
        let last = nodes.max(1) - 1;
        Self {
            names: (0..=last).map(|node| format!("node{node}")).collect(),
            of: (0..ranks).map(|rank| (rank / ranks_each.max(1)).min(last)).collect(),
        }
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.names.len()
    }

    /// The name of a node.
    pub fn name(&self, node: usize) -> &str {
        self.names.get(node).map_or("unknown", String::as_str)
    }

    /// The node of a rank.
    pub fn of(&self, rank: usize) -> usize {
        self.of.get(rank).copied().unwrap_or(0)
    }

    /// Whether a rank is the first of its node, which looks at the node for all of them.
    pub fn leads(&self, rank: usize) -> bool {
        self.of.iter().position(|node| *node == self.of(rank)) == Some(rank)
    }

    /// The first rank of each node.
    pub fn leaders(&self) -> Vec<usize> {
        (0..self.of.len()).filter(|rank| self.leads(*rank)).collect()
    }

    /// Values of the ranks, added up by node.
    pub fn sums(&self, of: impl Iterator<Item = (usize, u64)>) -> Vec<u64> {
        let mut sums = vec![0_u64; self.nodes()];
        for (rank, value) in of {
            if let Some(sum) = sums.get_mut(self.of(rank)) {
                *sum = sum.saturating_add(value);
            }
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_where_their_hosts_are() {
        let placement = Placement::of_hosts(&["b", "b", "a", "b"]);
        assert_eq!((placement.nodes(), placement.name(0), placement.of(2)), (2, "b", 1));
        assert_eq!(placement.leaders(), [0, 2]);
        assert_eq!(placement.sums((0..4).map(|rank| (rank, 10))), [30, 10]);
    }

    #[test]
    fn what_is_said_of_nodes_is_believed() {
        let placement = Placement::said(2, 2, 5);
        assert_eq!((0..5).map(|rank| placement.of(rank)).collect::<Vec<_>>(), [0, 0, 1, 1, 1]);
    }
}

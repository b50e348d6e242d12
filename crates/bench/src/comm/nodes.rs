//! Which ranks are on which node: ranks with the same host name share one.

use std::collections::BTreeSet;

use super::Communicator;
use crate::error::Result;

/// What the engines want to know of it, in IOR's terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nodes {
    /// How many nodes there are.
    pub count: usize,
    /// Ranks on the root's node.
    pub ranks_on_root: usize,
    /// Whether neighbouring ranks share a node (by slot), rather than being dealt out.
    pub by_slot: bool,
    /// The root's host name.
    pub root: String,
    /// Of each rank, whether it is on the root's node.
    pub with_root: Vec<bool>,
}

/// The name of this host.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "unknown".to_owned() } else { name.to_owned() }
}

impl Nodes {
    /// Asks all ranks where they are.
    pub fn find(comm: &dyn Communicator) -> Result<Self> {
        let names = comm.all_gather(host_name().as_bytes())?;
        Ok(Self::of(&names.iter().map(|name| String::from_utf8_lossy(name)).collect::<Vec<_>>()))
    }

    fn of(names: &[impl AsRef<str>]) -> Self {
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        let root = names.first().copied().unwrap_or_default();
        Self {
            count: names.iter().collect::<BTreeSet<_>>().len(),
            ranks_on_root: names.iter().filter(|name| **name == root).count(),
            with_root: names.iter().map(|name| *name == root).collect(),
            by_slot: names.get(1).is_none_or(|second| *second == root),
            root: root.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_counted_by_host() {
        let nodes = Nodes::of(&["a", "a", "b", "b", "c"]);
        let with_root = vec![true, true, false, false, false];
        let wanted =
            Nodes { count: 3, ranks_on_root: 2, by_slot: true, root: "a".into(), with_root };
        assert_eq!(nodes, wanted);
        let dealt = Nodes::of(&["a", "b", "a", "b"]);
        assert_eq!((dealt.count, dealt.ranks_on_root, dealt.by_slot), (2, 2, false));
        assert!(Nodes::of(&["a"]).by_slot);
    }
}

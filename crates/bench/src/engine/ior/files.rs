//! Which file a rank uses: its own, or for reading what another has written.

use std::path::{Path, PathBuf};

use super::options::Ior;
use crate::comm::Nodes;
use crate::pattern::mix;

/// The names of a run's files.
#[derive(Debug)]
pub(super) struct Files<'a> {
    pub(super) test: &'a Ior,
    pub(super) ranks: usize,
}

impl Files<'_> {
    fn named(&self, rank: usize) -> PathBuf {
        let names: Vec<&str> = self.test.file.split('@').collect();
        PathBuf::from(names.get(rank % names.len().max(1)).copied().unwrap_or_default())
    }

    /// The directory that a rank's file has for itself, with -u.
    pub(super) fn directory(&self, rank: usize) -> Option<PathBuf> {
        let own = self.test.unique_dir && self.test.file_per_rank;
        own.then(|| beside(&self.named(rank)).join(rank.to_string()))
    }

    /// The file with a rank's data, in a repetition.
    pub(super) fn path(&self, rank: usize, repetition: usize) -> PathBuf {
        let mut path = self.named(rank);
        if let (Some(dir), Some(name)) = (self.directory(rank), path.file_name()) {
            path = dir.join(name);
        }
        let mut path = path.into_os_string();
        if self.test.file_per_rank {
            path.push(format!(".{rank:08}"));
        }
        if self.test.multi_file {
            path.push(format!(".{repetition}"));
        }
        path.into()
    }

    /// All files of a repetition.
    pub(super) fn all(&self, repetition: usize) -> Vec<PathBuf> {
        let ranks = if self.test.file_per_rank { self.ranks } else { 1 };
        (0..ranks).map(|rank| self.path(rank, repetition)).collect()
    }

    /// The directories that files are in, and how their names begin there.
    pub(super) fn places(&self) -> Vec<(PathBuf, String)> {
        let named = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into());
        if self.directory(0).is_some() {
            let of = |rank| Some((self.directory(rank)?, named(&self.named(rank))?));
            return (0..self.ranks).filter_map(of).collect();
        }
        let names = self.test.file.split('@').map(PathBuf::from);
        names.filter_map(|path| Some((beside(&path), named(&path)?))).collect()
    }

    /// Files of a repetition, and the directories that are made for them.
    pub(super) fn count(&self) -> u64 {
        let ranks = self.ranks as u64;
        let dirs = if self.directory(0).is_some() { ranks } else { 0 };
        let files = if self.test.file_per_rank { ranks } else { 1 };
        files.saturating_add(dirs)
    }

    /// Where the file system is whose room is shown.
    pub(super) fn place(&self) -> PathBuf {
        beside(&self.named(0))
    }
}

/// The directory that a name is in.
fn beside(path: &Path) -> PathBuf {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// What a reader is told.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader {
    pub(super) rank: usize,
    pub(super) ranks: usize,
    pub(super) repetition: usize,
    /// Whether it is the check after writing, which goes two nodes on whatever -Q says.
    pub(super) checks: bool,
}

impl Reader {
    /// The rank whose data this rank reads.
    pub(super) fn reads(&self, test: &Ior, nodes: &Nodes) -> usize {
        let (rank, ranks) = (self.rank, self.ranks);
        if test.reorder {
            let shift = if nodes.by_slot { nodes.ranks_on_root } else { 1 };
            let nodes = if self.checks { 2 } else { test.node_offset };
            return (rank + nodes * shift) % ranks;
        }
        if test.reorder_random == 0 || self.checks {
            return rank;
        }
        let repetition = i64::try_from(self.repetition).unwrap_or(0);
        let seed = test.reorder_seed;
        let seed = if seed < 0 { seed.saturating_neg() + repetition } else { seed };
        let mut state = seed.cast_unsigned();
        if test.reorder_random > 1 {
            return shuffled(ranks, &mut state).get(rank).copied().unwrap_or(rank);
        }
        // As many nodes away as -Q says, but there has to be such a rank.
        let away = test.node_offset.min(nodes.count.saturating_sub(1)) * nodes.ranks_on_root;
        let away = away.min(ranks - 1);
        state = state.wrapping_add(rank as u64);
        let chance = usize::try_from(mix(&mut state) % (ranks - away) as u64).unwrap_or(0);
        (rank + away + chance) % ranks
    }
}

/// The numbers below `count` in an order by chance.
fn shuffled(count: usize, state: &mut u64) -> Vec<usize> {
    let mut all: Vec<usize> = (0..count).collect();
    for at in (1..count).rev() {
        let other = usize::try_from(mix(state) % (at as u64 + 1)).unwrap_or(0);
        all.swap(at, other);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ior::options::tests::ior;

    fn path(line: &str, rank: usize) -> String {
        let test = ior(line);
        Files { test: &test, ranks: 4 }.path(rank, 2).display().to_string()
    }

    #[test]
    fn leftovers_are_where_files_are() {
        let places = |line: &str| {
            let test = ior(line);
            let all = Files { test: &test, ranks: 2 }.places().into_iter();
            all.map(|(dir, name)| format!("{} {name}", dir.display())).collect::<Vec<_>>()
        };
        assert_eq!(places("-o /x/f"), ["/x f"]);
        assert_eq!(places("-o /x/f@/y/g -F"), ["/x f", "/y g"]);
        assert_eq!(places("-o /x/f -F -u"), ["/x/0 f", "/x/1 f"], "each in a directory");
    }

    #[test]
    fn files_are_named_as_ior_names_them() {
        assert_eq!(path("-o /x/f", 3), "/x/f");
        assert_eq!(path("-o /x/f -m", 3), "/x/f.2");
        assert_eq!(path("-o /x/f -F", 3), "/x/f.00000003");
        assert_eq!(path("-o /x/f -F -m", 3), "/x/f.00000003.2");
        assert_eq!(path("-o /x/f -F -u", 3), "/x/3/f.00000003");
        assert_eq!(path("-o f -F -u", 3), "./3/f.00000003");
        assert_eq!(path("-o /a/f@/b/f@/c/f -F", 3), "/a/f.00000003");
        assert_eq!(path("-o /a/f@/b/f@/c/f -F", 2), "/c/f.00000002");
    }

    fn reads(line: &str, nodes: &Nodes, ranks: usize, checks: bool) -> Vec<usize> {
        let test = ior(line);
        let reader = |rank| Reader { rank, ranks, repetition: 0, checks };
        (0..ranks).map(|rank| reader(rank).reads(&test, nodes)).collect()
    }

    #[test]
    fn readers_move_by_whole_nodes() {
        let slots = Nodes {
            count: 2,
            ranks_on_root: 2,
            by_slot: true,
            root: "a".into(),
            with_root: vec![],
        };
        let dealt = Nodes { by_slot: false, ..slots.clone() };
        assert_eq!(reads("", &slots, 4, false), [0, 1, 2, 3]);
        assert_eq!(reads("-C", &slots, 4, false), [2, 3, 0, 1]);
        assert_eq!(reads("-C", &dealt, 4, false), [1, 2, 3, 0]);
        assert_eq!(reads("-C -Q 3", &dealt, 4, false), [3, 0, 1, 2]);
        assert_eq!(reads("-C", &dealt, 4, true), [2, 3, 0, 1], "the check after writing");
        assert_eq!(reads("-C -Q 3", &dealt, 4, true), [2, 3, 0, 1], "whatever -Q says");
        let one = Nodes { count: 1, ranks_on_root: 4, ..slots };
        assert_eq!(reads("-C", &one, 4, false), [0, 1, 2, 3], "there is no other node");
    }

    #[test]
    fn readers_by_chance_stay_away_from_their_node() {
        let nodes = Nodes {
            count: 4,
            ranks_on_root: 2,
            by_slot: true,
            root: "a".into(),
            with_root: vec![],
        };
        for seed in 0..20 {
            let found = reads(&format!("-Z -X {seed}"), &nodes, 8, false);
            assert!(found.iter().enumerate().all(|(rank, reads)| (reads + 8 - rank) % 8 >= 2));
            let mut each = reads(&format!("-ZZ -X {seed}"), &nodes, 8, false);
            each.sort_unstable();
            assert_eq!(each, [0, 1, 2, 3, 4, 5, 6, 7]);
        }
        let all: std::collections::BTreeSet<_> =
            (0..20).map(|seed| reads(&format!("-Z -X {seed}"), &nodes, 8, false)).collect();
        assert!(all.len() > 10, "chance differs");
        let far = reads("-Z -Q 9", &nodes, 8, false);
        assert!(far.iter().enumerate().all(|(rank, reads)| (reads + 8 - rank) % 8 >= 6));
    }
}

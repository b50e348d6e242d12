//! How many items a rank has, and in which directories of the tree they are.
//!
//! The directories of a tree have numbers: 0 is the root, the children of `d` are
//! `d * branches + 1` to `d * branches + branches`. The items have numbers, too: those of
//! directory `d` begin at `d * items_per_dir`.

use super::options::Mdtest;
use crate::error::{Error, Result};

/// Most directories of a tree, and most items of a rank.
const COUNT_MAX: u64 = 1 << 40;

/// The numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Branches of each directory.
    pub branches: u64,
    /// Directories of a tree.
    pub dirs: u64,
    /// The first directory that has items: 0, or the first leaf.
    pub first_dir: u64,
    /// Items in each directory that has any.
    pub per_dir: u64,
    /// Items of a rank in one tree.
    pub per_tree: u64,
    /// Trees, one after the other: more than one if both -n and -I are given.
    pub trees: u64,
}

/// Where an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Which tree.
    pub tree: u64,
    /// Which directory of it.
    pub dir: u64,
    /// The item's number.
    pub number: u64,
}

impl Shape {
    /// What options ask for.
    pub(super) fn of(test: &Mdtest) -> Result<Self> {
        let wide = || Error::usage("-z, -b, -I: the tree would be too large");
        let branches = test.branches.max(1);
        let leaves = branches.checked_pow(test.depth).ok_or_else(wide)?;
        let dirs = if branches == 1 {
            u64::from(test.depth) + 1
        } else {
            let all = branches.checked_pow(test.depth + 1).ok_or_else(wide)?;
            (all - 1) / (branches - 1)
        };
        let (first_dir, with_items) =
            if test.leaf_only { (dirs - leaves, leaves) } else { (0, dirs) };
        let both = test.items > 0 && test.items_per_dir > 0;
        let per_dir =
            if test.items_per_dir > 0 { test.items_per_dir } else { test.items / with_items };
        if per_dir == 0 {
            return Err(Error::usage("-n: there are fewer items than directories to put them in"));
        }
        let per_tree = per_dir.checked_mul(with_items).ok_or_else(wide)?;
        let trees = if both { test.items / per_dir } else { 1 };
        let all = per_tree.checked_mul(trees).filter(|all| *all <= COUNT_MAX && dirs <= COUNT_MAX);
        all.ok_or_else(wide)?;
        Ok(Self { branches, dirs, first_dir, per_dir, per_tree, trees })
    }

    /// Items of a rank.
    pub fn items(&self) -> u64 {
        self.per_tree * self.trees
    }

    /// Where the `at`th item of a rank is.
    #[inline]
    pub fn place(&self, at: u64) -> Place {
        let number = at % self.per_tree + self.first_dir * self.per_dir;
        Place { tree: at / self.per_tree, dir: number / self.per_dir, number }
    }

    /// The directories above one, from the top; without the root, and with itself.
    pub(super) fn way_to(&self, dir: u64) -> Vec<u64> {
        let mut way = Vec::new();
        let mut at = dir;
        while at > 0 {
            way.push(at);
            at = (at - 1) / self.branches;
        }
        way.reverse();
        way
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::mdtest::options::tests::mdtest;

    fn shape(line: &str) -> Shape {
        Shape::of(&mdtest(line)).unwrap()
    }

    #[test]
    fn items_are_spread_over_the_tree() {
        let flat = shape("-n 10");
        assert_eq!((flat.dirs, flat.items(), flat.trees), (1, 10, 1));
        let tree = shape("-n 25 -z 2 -b 2");
        assert_eq!((tree.dirs, tree.per_dir, tree.items()), (7, 3, 21), "whole directories only");
        let chain = shape("-I 5 -z 3");
        assert_eq!((chain.dirs, chain.items()), (4, 20));
        let leaves = shape("-I 5 -z 2 -b 3 -L");
        assert_eq!((leaves.dirs, leaves.first_dir, leaves.items()), (13, 4, 45));
        let several = shape("-n 6 -I 2 -z 1 -b 2");
        assert_eq!((several.trees, several.per_tree, several.items()), (3, 6, 18));
    }

    #[test]
    fn every_item_has_a_place_of_its_own() {
        for line in ["-n 10", "-I 5 -z 2 -b 3 -L", "-n 6 -I 2 -z 1 -b 2", "-I 2 -z 3"] {
            let shape = shape(line);
            let places: std::collections::BTreeSet<_> = (0..shape.items())
                .map(|at| shape.place(at))
                .inspect(|place| {
                    assert!(place.dir >= shape.first_dir && place.dir < shape.dirs, "{line}");
                    assert_eq!(place.number / shape.per_dir, place.dir, "{line}");
                })
                .map(|place| (place.tree, place.number))
                .collect();
            assert_eq!(places.len() as u64, shape.items(), "{line}");
        }
    }

    #[test]
    fn directories_are_below_their_parents() {
        let shape = shape("-I 1 -z 3 -b 3");
        assert_eq!(shape.way_to(0), [0; 0]);
        assert_eq!(shape.way_to(3), [3]);
        assert_eq!(shape.way_to(4), [1, 4]);
        assert_eq!(shape.way_to(39), [3, 12, 39]);
        assert_eq!(Shape { branches: 1, ..shape }.way_to(3), [1, 2, 3]);
    }
}

//! The memtable's tree: keys in order, each with a place in the value blocks.
//!
//! A B+tree whose nodes lie in blocks and name each other by numbers. Keys only ever come
//! (a removed key stays, marked), so nothing is merged or moved back, and all nodes are
//! given up together: emptying the tree keeps the blocks for the next one. In steady state
//! it therefore allocates nothing.

use std::ops::Bound;

use crate::Key;
use crate::key::Words;

/// Keys in a leaf.
const LEAF_KEYS: usize = 32;
/// Keys in an inner node, which has one child more.
const INNER_KEYS: usize = 32;
/// A leaf with fewer keys is nearly empty: no other such leaf is made before it.
const LEAF_KEYS_FEW: usize = LEAF_KEYS / 4;
/// Bytes of a block of nodes, roughly: what one allocation brings.
const BLOCK_BYTES: usize = 1 << 20;
/// No such node.
const NONE: u32 = u32::MAX;

/// Where the value of a key lies, or that it was removed; the memtable's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) start: u32,
    pub(super) len: u32,
}

const NOWHERE: Place = Place { start: 0, len: 0 };

#[derive(Clone, Copy)]
struct Leaf {
    keys: [Words; LEAF_KEYS],
    places: [Place; LEAF_KEYS],
    len: usize,
    /// The leaf with the keys that follow.
    next: u32,
}

const EMPTY_LEAF: Leaf =
    Leaf { keys: [[0; 2]; LEAF_KEYS], places: [NOWHERE; LEAF_KEYS], len: 0, next: NONE };

#[derive(Clone, Copy)]
struct Inner {
    /// The smallest key that belongs to the child behind it.
    keys: [Words; INNER_KEYS],
    children: [u32; INNER_KEYS + 1],
    len: usize,
}

const EMPTY_INNER: Inner =
    Inner { keys: [[0; 2]; INNER_KEYS], children: [NONE; INNER_KEYS + 1], len: 0 };

/// Nodes of one kind, in blocks that are never moved.
struct Nodes<T> {
    blocks: Vec<Vec<T>>,
    len: u32,
}

impl<T> Default for Nodes<T> {
    fn default() -> Nodes<T> {
        Nodes { blocks: Vec::new(), len: 0 }
    }
}

#[expect(clippy::indexing_slicing, reason = "the tree asks for nodes that it was given")]
impl<T: Copy> Nodes<T> {
    const PER_BLOCK: usize = BLOCK_BYTES / size_of::<T>();

    fn push(&mut self, node: T) -> u32 {
        let at = self.len as usize / Self::PER_BLOCK;
        if at == self.blocks.len() {
            self.blocks.push(Vec::with_capacity(Self::PER_BLOCK));
        }
        self.blocks[at].push(node);
        self.len += 1;
        self.len - 1
    }

    fn at(&self, number: u32) -> &T {
        &self.blocks[number as usize / Self::PER_BLOCK][number as usize % Self::PER_BLOCK]
    }

    fn at_mut(&mut self, number: u32) -> &mut T {
        &mut self.blocks[number as usize / Self::PER_BLOCK][number as usize % Self::PER_BLOCK]
    }

    /// Forgets all nodes and keeps the blocks.
    fn clear(&mut self) {
        self.blocks.iter_mut().for_each(Vec::clear);
        self.len = 0;
    }
}

/// A sorted map from keys to places. Keys are never taken out one by one.
#[derive(Default)]
pub(super) struct Tree {
    leaves: Nodes<Leaf>,
    inners: Nodes<Inner>,
    /// An inner node, or leaf 0 if the height is 0.
    root: u32,
    /// Inner nodes on the way to each leaf.
    height: u32,
    len: usize,
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Where a key stands in a leaf: its place, or where it would go.
fn position(leaf: &Leaf, key: &Words) -> Result<usize, usize> {
    let keys = leaf.keys.get(..leaf.len).unwrap_or_default();
    let at = keys.partition_point(|least| is_below(least, key));
    if keys.get(at) == Some(key) { Ok(at) } else { Err(at) }
}

/// The order of keys, without a loop.
fn is_below(one: &Words, two: &Words) -> bool {
    let ([one, one_rest], [two, two_rest]) = (one, two);
    one < two || (one == two && one_rest < two_rest)
}

#[expect(
    clippy::indexing_slicing,
    reason = "positions come from searches in the very node, and a node that is full is split \
              before anything is put into it"
)]
impl Tree {
    /// Number of keys.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of all nodes but the first leaf, which is there however few keys it has.
    pub(super) fn bytes(&self) -> usize {
        let leaves = self.leaves.len.saturating_sub(1) as usize * size_of::<Leaf>();
        leaves + self.inners.len as usize * size_of::<Inner>()
    }

    /// Forgets all keys and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.leaves.clear();
        self.inners.clear();
        (self.root, self.height, self.len) = (0, 0, 0);
    }

    /// The leaf where a key is, if it is anywhere. There must be one.
    fn leaf_of(&self, key: &Words) -> u32 {
        let mut at = self.root;
        for _ in 0..self.height {
            let inner = self.inners.at(at);
            at = inner.children[inner.child_of(key)];
        }
        at
    }

    /// The place of a key.
    pub(super) fn get(&self, key: &Key) -> Option<Place> {
        if self.len == 0 {
            return None;
        }
        let key = key.words();
        let leaf = self.leaves.at(self.leaf_of(&key));
        position(leaf, &key).ok().map(|at| leaf.places[at])
    }

    /// The place of a key, to be changed. A new key gets `new`.
    pub(super) fn entry(&mut self, key: &Key, new: Place) -> &mut Place {
        let key = key.words();
        if self.leaves.len == 0 {
            self.root = self.leaves.push(EMPTY_LEAF);
        }
        if self.is_full(self.root, self.height) {
            let mut above = EMPTY_INNER;
            above.children[0] = self.root;
            self.root = self.inners.push(above);
            self.height += 1;
        }
        let mut at = self.root;
        for height in (0..self.height).rev() {
            let inner = self.inners.at(at);
            let mut child = inner.child_of(&key);
            if self.is_full(inner.children[child], height) {
                self.split(at, child, height, &key);
                child = self.inners.at(at).child_of(&key);
            }
            at = self.inners.at(at).children[child];
        }
        let leaf = self.leaves.at_mut(at);
        let at = match position(leaf, &key) {
            Ok(at) => at,
            Err(at) => {
                leaf.keys.copy_within(at..leaf.len, at + 1);
                leaf.places.copy_within(at..leaf.len, at + 1);
                leaf.keys[at] = key;
                leaf.places[at] = new;
                leaf.len += 1;
                self.len += 1;
                at
            }
        };
        &mut leaf.places[at]
    }

    fn is_full(&self, node: u32, height: u32) -> bool {
        match height {
            0 => self.leaves.at(node).len == LEAF_KEYS,
            _ => self.inners.at(node).len == INNER_KEYS,
        }
    }

    /// Makes two of a full child of an inner node that is not full.
    fn split(&mut self, parent: u32, child: usize, height: u32, key: &Words) {
        let left = self.inners.at(parent).children[child];
        let (middle, right) = match height {
            0 => self.split_leaf(left, key),
            _ => self.split_inner(left),
        };
        let parent = self.inners.at_mut(parent);
        parent.keys.copy_within(child..parent.len, child + 1);
        parent.children.copy_within(child + 1..=parent.len, child + 2);
        parent.keys[child] = middle;
        parent.children[child + 1] = right;
        parent.len += 1;
    }

    fn split_leaf(&mut self, number: u32, key: &Words) -> (Words, u32) {
        let next = self.leaves.at(number).next;
        let before_few = next != NONE && self.leaves.at(next).len < LEAF_KEYS_FEW;
        let left = self.leaves.at_mut(number);
        // Keys often come in ascending order: then the left leaf stays full, and the right one
        // begins with the new key alone. If those that follow descend, they come to the left
        // leaf again, and must not get such a leaf each.
        let ascending = is_below(&left.keys[LEAF_KEYS - 1], key) && !before_few;
        let keep = if ascending { LEAF_KEYS } else { LEAF_KEYS / 2 };
        let mut right = EMPTY_LEAF;
        right.len = LEAF_KEYS - keep;
        right.keys[..right.len].copy_from_slice(&left.keys[keep..]);
        right.places[..right.len].copy_from_slice(&left.places[keep..]);
        right.next = left.next;
        left.len = keep;
        let middle = if ascending { *key } else { right.keys[0] };
        let right = self.leaves.push(right);
        self.leaves.at_mut(number).next = right;
        (middle, right)
    }

    fn split_inner(&mut self, number: u32) -> (Words, u32) {
        const KEEP: usize = INNER_KEYS / 2;
        let left = self.inners.at_mut(number);
        let mut right = EMPTY_INNER;
        right.len = INNER_KEYS - KEEP - 1;
        right.keys[..right.len].copy_from_slice(&left.keys[KEEP + 1..]);
        right.children[..=right.len].copy_from_slice(&left.children[KEEP + 1..]);
        left.len = KEEP;
        let middle = left.keys[KEEP];
        (middle, self.inners.push(right))
    }

    /// Keys from `from` on.
    pub(super) fn range(&self, from: Bound<Key>) -> Range<'_> {
        if self.len == 0 {
            return Range { tree: self, leaf: NONE, at: 0 };
        }
        // Splits put keys to the right, so the first leaf stays the leftmost.
        let (leaf, at) = match from.map(|key| key.words()) {
            Bound::Unbounded => (0, 0),
            Bound::Included(key) => {
                let leaf = self.leaf_of(&key);
                (leaf, position(self.leaves.at(leaf), &key).unwrap_or_else(|at| at))
            }
            Bound::Excluded(key) => {
                let leaf = self.leaf_of(&key);
                (leaf, position(self.leaves.at(leaf), &key).map_or_else(|at| at, |at| at + 1))
            }
        };
        Range { tree: self, leaf, at }
    }
}

impl Inner {
    /// The child where a key belongs.
    fn child_of(&self, key: &Words) -> usize {
        self.keys.get(..self.len).unwrap_or_default().partition_point(|least| !is_below(key, least))
    }
}

/// Keys in order, with their places.
pub(super) struct Range<'a> {
    tree: &'a Tree,
    leaf: u32,
    at: usize,
}

impl Iterator for Range<'_> {
    type Item = (Key, Place);

    fn next(&mut self) -> Option<(Key, Place)> {
        while self.leaf != NONE {
            let leaf = self.tree.leaves.at(self.leaf);
            if self.at < leaf.len {
                let (key, place) = (leaf.keys.get(self.at)?, leaf.places.get(self.at)?);
                self.at += 1;
                return Some((Key::from_words(*key), *place));
            }
            (self.leaf, self.at) = (leaf.next, 0);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn key(n: u64) -> Key {
        Key::tag(b'k').with(&n.to_be_bytes())
    }

    /// Against the standard library's map, with keys in several orders, in a tree that is
    /// emptied and used again.
    #[test]
    fn a_tree_is_a_sorted_map() {
        let mut tree = Tree::default();
        let orders: [fn(u64) -> u64; 4] = [
            |n| n,
            |n| u64::MAX - n,
            |n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            // Runs that ascend in the midst of others, as FIDs do beside names.
            |n| (n % 7) << 32 | n,
        ];
        for (round, order) in orders.into_iter().enumerate() {
            let mut model = BTreeMap::new();
            for n in 0..50_000u32 {
                let place = Place { start: n, len: n };
                assert!(tree.get(&key(order(n.into()))).is_none(), "round {round} {n}");
                *tree.entry(&key(order(n.into())), NOWHERE) = place;
                model.insert(key(order(n.into())), place);
                let again = order(u64::from(n / 2));
                *tree.entry(&key(again), NOWHERE) = place;
                model.insert(key(again), place);
                let known = order(u64::from(n / 3));
                assert_eq!(tree.get(&key(known)), model.get(&key(known)).copied());
            }
            assert_eq!(tree.len(), model.len());
            let all: Vec<_> = model.iter().map(|(key, place)| (*key, *place)).collect();
            assert!(tree.range(Bound::Unbounded).eq(all.iter().copied()), "round {round}");
            for n in (0..50_000).step_by(997) {
                for from in [order(n), order(n).wrapping_add(1)] {
                    for bound in [Bound::Included(key(from)), Bound::Excluded(key(from))] {
                        let found: Vec<_> = tree.range(bound).take(80).collect();
                        let range = model.range((bound, Bound::Unbounded)).take(80);
                        let wanted: Vec<_> = range.map(|(key, place)| (*key, *place)).collect();
                        assert_eq!(found, wanted, "round {round} {n}");
                    }
                }
            }
            tree.clear();
            assert_eq!(tree.range(Bound::Unbounded).count(), 0);
            assert_eq!(tree.range(Bound::Included(key(3))).count(), 0);
        }
    }

    /// Runs that descend behind a full leaf, also several of them in turn.
    #[test]
    fn keys_that_descend_between_leaves_share_them() {
        for runs in [1, 7] {
            let mut tree = Tree::default();
            for n in 0..32u64 {
                tree.entry(&key(n), NOWHERE);
            }
            for n in 0..20_000u64 {
                tree.entry(&key((1 + n % runs) * 1_000_000 - n), NOWHERE);
            }
            let least = tree.len().div_ceil(LEAF_KEYS) as u32;
            assert!(tree.leaves.len <= 3 * least, "{runs} runs: {} leaves", tree.leaves.len);
        }
    }

    #[test]
    fn keys_in_order_fill_their_leaves() {
        let mut tree = Tree::default();
        for n in 0..32_000u64 {
            tree.entry(&key(n), NOWHERE);
        }
        assert_eq!(tree.leaves.len, 1000);
    }
}

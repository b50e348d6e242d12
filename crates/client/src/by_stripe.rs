//! What is remembered of objects of one file, by the number of their stripe.
//!
//! A mount remembers it of each of very many files, of which most have one object or few: in a
//! tree each would take the room of eleven.

use smallvec::SmallVec;

/// Values by stripe, in order. One alone, as in most cases, takes no memory beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ByStripe<T>(SmallVec<[(u32, T); 1]>);

impl<T> Default for ByStripe<T> {
    fn default() -> ByStripe<T> {
        ByStripe(SmallVec::new())
    }
}

impl<T> ByStripe<T> {
    fn find(&self, stripe: u32) -> Result<usize, usize> {
        self.0.binary_search_by_key(&stripe, |(known, _)| *known)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn has(&self, stripe: u32) -> bool {
        self.find(stripe).is_ok()
    }

    /// The value there from now on; what was there before.
    pub(crate) fn insert(&mut self, stripe: u32, value: T) -> Option<T> {
        match self.find(stripe) {
            Ok(at) => self.0.get_mut(at).map(|(_, old)| core::mem::replace(old, value)),
            Err(at) => {
                self.0.insert(at, (stripe, value));
                None
            }
        }
    }

    /// Keeps those for which this holds.
    pub(crate) fn retain(&mut self, kept: impl Fn(&T) -> bool) {
        self.0.retain(|(_, value)| kept(value));
    }

    /// Changes all of them.
    pub(crate) fn change(&mut self, change: impl Fn(&mut T)) {
        self.0.iter_mut().for_each(|(_, value)| change(value));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(u32, T)> {
        self.0.iter()
    }
}

impl<T: Copy> ByStripe<T> {
    pub(crate) fn get(&self, stripe: u32) -> Option<T> {
        self.0.get(self.find(stripe).ok()?).map(|(_, value)| *value)
    }
}

impl<T> FromIterator<(u32, T)> for ByStripe<T> {
    fn from_iter<I: IntoIterator<Item = (u32, T)>>(values: I) -> ByStripe<T> {
        let mut all = ByStripe::default();
        for (stripe, value) in values {
            all.insert(stripe, value);
        }
        all
    }
}

impl<T> IntoIterator for ByStripe<T> {
    type Item = (u32, T);
    type IntoIter = smallvec::IntoIter<[(u32, T); 1]>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_are_found_whatever_came_first() {
        let mut all = ByStripe::default();
        assert!(all.is_empty() && !all.has(0));
        for stripe in [7, 0, 3] {
            assert_eq!(all.insert(stripe, stripe * 10), None);
        }
        assert_eq!(all.insert(3, 31), Some(30));
        assert_eq!((all.get(3), all.get(4)), (Some(31), None));
        assert_eq!(all.insert(4, 1), None);
        let order: Vec<(u32, u32)> = all.iter().copied().collect();
        assert_eq!(order, [(0, 0), (3, 31), (4, 1), (7, 70)]);
        all.retain(|value| *value > 1);
        assert!(!all.has(0) && !all.has(4));
        assert_eq!(all.into_iter().collect::<Vec<_>>(), [(3, 31), (7, 70)]);
    }
}

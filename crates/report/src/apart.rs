//! What tells measurements apart beside their place, scale and sizes: options that change what a
//! rate means. Measurements that differ in one are no repetitions of each other, and figures and
//! tables name those in which they differ, and no others.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::markup::size;
use crate::run::Outcome;

/// A kind of option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Aspect {
    /// Through which calls: POSIX, MPIIO.
    Interface,
    /// Whether ranks make their transfers together.
    Collective,
    /// What the interface is told about files.
    Hints,
    /// Whether each rank sees its part of the file alone.
    FileView,
    /// Whether a file has its size before it is written.
    Preallocated,
    /// Through the page cache or past it.
    PageCache,
    /// In which order transfers are.
    Order,
    /// Records from one access to the next.
    Stride,
    /// How many parts of each rank a file of all has.
    Segments,
    /// Whose data is read, or whose items are looked at.
    Readers,
    /// Whether caches were dropped before.
    Dropped,
    /// What is durable within the time.
    Durable,
    /// Whether closing is within the time.
    Closed,
    /// Whether files are there before.
    Existing,
    /// How files are made.
    Made,
    /// What is written.
    Data,
    /// Whether what is read is compared.
    Compared,
    /// When it ends early.
    Stonewall,
    /// Whether ranks wait for each other between opening, moving and closing.
    Barriers,
    /// Whether each rank has a directory of its own.
    Directories,
    /// Whether each rank has files of its own.
    Sharing,
    /// The tree that items are in.
    Tree,
    /// Bytes of a small file.
    FileBytes,
    /// What is read of each small file.
    ReadBytes,
    /// How many ranks read where some read and others write.
    Mixture,
}

/// All of them, in the order in which they are named.
const ALL: [Aspect; 25] = [
    Aspect::Interface,
    Aspect::Collective,
    Aspect::Hints,
    Aspect::FileView,
    Aspect::Preallocated,
    Aspect::PageCache,
    Aspect::Order,
    Aspect::Stride,
    Aspect::Segments,
    Aspect::Readers,
    Aspect::Dropped,
    Aspect::Durable,
    Aspect::Closed,
    Aspect::Existing,
    Aspect::Made,
    Aspect::Data,
    Aspect::Compared,
    Aspect::Stonewall,
    Aspect::Barriers,
    Aspect::Directories,
    Aspect::Sharing,
    Aspect::Tree,
    Aspect::FileBytes,
    Aspect::ReadBytes,
    Aspect::Mixture,
];

/// Those that are known of a measurement and matter to it, in words that stand for themselves.
pub type Aspects = BTreeMap<Aspect, String>;

/// Notes an aspect if it is known.
pub(crate) fn note(all: &mut Aspects, aspect: Aspect, words: Option<impl Into<String>>) {
    if let Some(words) = words {
        all.insert(aspect, words.into());
    }
}

/// One of two words, if it is known which.
pub(crate) fn either(is: Option<bool>, yes: &str, no: &str) -> Option<String> {
    is.map(|is| if is { yes } else { no }.to_owned())
}

/// Which amount is the same while the number of processes grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Amount {
    /// That of each process.
    Each,
    /// That of all together.
    All,
}

impl Amount {
    /// The one in which measurements differ less.
    pub(crate) fn of<'a>(outcomes: impl Iterator<Item = &'a Outcome> + Clone) -> Self {
        let count = |of: fn(&Outcome) -> Option<u64>| {
            outcomes.clone().filter_map(of).collect::<BTreeSet<u64>>().len()
        };
        let all = count(|one| Some(one.bytes_per_rank?.saturating_mul(one.ranks)));
        if all < count(|one| one.bytes_per_rank) { Self::All } else { Self::Each }
    }

    fn words(self, one: &Outcome) -> Option<String> {
        let bytes = one.bytes_per_rank?;
        Some(match self {
            Self::Each => format!("{} each", size(bytes)),
            Self::All => format!("{} in all", size(bytes.saturating_mul(one.ranks))),
        })
    }
}

/// What things may differ in, always in the same order; nothing where it is not known or does not
/// matter.
pub(crate) type Parts = Vec<Option<String>>;

/// Where it stands among the parts how files are shared.
pub(crate) const ACCESS: usize = 0;

/// How files are shared, how much is moved, and all aspects.
pub(crate) fn parts(one: &Outcome, amount: Amount) -> Parts {
    let first = [Some(one.access.clone()), amount.words(one)];
    first.into_iter().chain(ALL.iter().map(|aspect| one.aspects.get(aspect).cloned())).collect()
}

/// The places in which things differ: those that have several values, and if these do not tell
/// all of them apart, those that some have and others have not.
pub(crate) fn differing(all: &[&Parts]) -> Vec<usize> {
    let values = |at: usize| -> BTreeSet<Option<&String>> {
        all.iter().map(|parts| parts.get(at).and_then(Option::as_ref)).collect()
    };
    let count = all.first().map_or(0, |parts| parts.len());
    let known = |at: &usize| values(*at).iter().flatten().count() > 1;
    let shown: Vec<usize> = (0..count).filter(known).collect();
    let names: BTreeSet<String> = all.iter().map(|parts| words(parts, &shown)).collect();
    if names.len() == all.iter().collect::<BTreeSet<_>>().len() {
        return shown;
    }
    (0..count).filter(|at| values(*at).len() > 1).collect()
}

/// The same of parts that belong to something else each, an operation of somebody, by which they
/// are told apart anyway.
pub(crate) fn differing_of(all: &[(String, &Parts)]) -> Vec<usize> {
    let whole = |(of, parts): &(String, &Parts)| -> Parts {
        std::iter::once(Some(of.clone())).chain(parts.iter().cloned()).collect()
    };
    let all: Vec<Parts> = all.iter().map(whole).collect();
    let places = differing(&all.iter().collect::<Vec<_>>());
    places.into_iter().filter_map(|at| at.checked_sub(1)).collect()
}

/// What stands in some places, in words.
pub(crate) fn words(parts: &Parts, places: &[usize]) -> String {
    let words = places.iter().filter_map(|at| parts.get(*at)?.as_deref());
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::a_run;

    fn of(all: &[[Option<&str>; 3]]) -> (Vec<usize>, Vec<String>) {
        let all: Vec<Parts> =
            all.iter().map(|one| one.map(|word| word.map(str::to_owned)).to_vec()).collect();
        let shown = differing(&all.iter().collect::<Vec<_>>());
        let names = all.iter().map(|parts| words(parts, &shown)).collect();
        (shown, names)
    }

    #[test]
    fn only_what_differs_is_named() {
        let (shown, names) = of(&[
            [Some("POSIX"), None, Some("fsync")],
            [Some("MPIIO"), Some("independent"), Some("fsync")],
        ]);
        assert_eq!((shown, names), (vec![0], vec!["POSIX".into(), "MPIIO".into()]));
        let (shown, names) = of(&[[Some("a"), None, None], [Some("a"), None, None]]);
        assert_eq!((shown, names), (vec![], vec![String::new(), String::new()]));
    }

    #[test]
    fn what_is_unknown_of_some_is_named_where_nothing_else_tells_them_apart() {
        let (shown, names) = of(&[[Some("write"), None, None], [Some("write"), Some("new"), None]]);
        assert_eq!((shown, names), (vec![1], vec![String::new(), "new".into()]));
    }

    #[test]
    fn what_only_some_operations_have_is_no_difference() {
        let parts = |word: Option<&str>| vec![word.map(str::to_owned)];
        let (write, read) = (parts(Some("fsync")), parts(None));
        assert!(differing_of(&[("write".into(), &write), ("read".into(), &read)]).is_empty());
        let other = parts(Some("no fsync"));
        let all = [("write".into(), &write), ("read".into(), &read), ("write".into(), &other)];
        assert_eq!(differing_of(&all), [0]);
    }

    #[test]
    fn the_amount_is_the_one_that_stays_the_same() {
        let run = |ranks: u64, bytes: u64| {
            let mut run = a_run("", &["write"], ranks, 4096);
            run.outcomes[0].bytes_per_rank = Some(bytes);
            run.outcomes.remove(0)
        };
        let amount = |all: &[Outcome]| Amount::of(all.iter());
        assert_eq!(amount(&[run(1, 64), run(2, 64), run(4, 64)]), Amount::Each);
        assert_eq!(amount(&[run(1, 64), run(2, 32), run(4, 16)]), Amount::All);
        assert_eq!(Amount::All.words(&run(4, 16 << 10)).unwrap(), "64 KiB in all");
        assert_eq!(Amount::Each.words(&run(4, 16 << 10)).unwrap(), "16 KiB each");
    }

    #[test]
    fn every_aspect_has_a_place() {
        assert!(ALL.windows(2).all(|two| two[0] < two[1]), "none twice, none out of order");
        assert_eq!(ALL.len(), Aspect::Mixture as usize + 1, "none left out");
    }
}

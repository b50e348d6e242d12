//! Which OSTs a new file lies on: round-robin while they are equally full, by free space
//! when they are not; full and silent ones are avoided. Nothing random: weights are worked
//! off smoothly, so that the same history gives the same layouts.

use std::collections::BTreeMap;
use std::sync::Arc;

use sateen_types::units::MIB;
use sateen_types::{Errno, Layout, STRIPE_COUNT_MAX, STRIPE_SIZE_DEFAULT, StripePolicy};
use sateen_wire::StatFs;

use crate::config::OstConfig;
use crate::layouts::Made;

/// The difference in free space, in per cent, beyond which files are placed by it, unless that
/// is set otherwise.
const BALANCED_PERCENT: u64 = 17;
/// An OST with less than this part of its space free counts as full: 1/1000; or with less than
/// so many bytes, unless that is much of a small one. A file over all OSTs would soon meet its
/// end there.
const FULL_PART: u64 = 1000;
const FULL_BYTES: u64 = 64 * MIB;
const FULL_PART_SMALL: u64 = 32;
/// Most layouts kept ready.
const READY_MAX: usize = 4096;

#[derive(Debug)]
struct Target {
    index: u32,
    statfs: Option<StatFs>,
    silent: bool,
    /// It answers, but only that its disk has failed.
    failed: bool,
    /// Taken out of use by the administrator.
    inactive: bool,
    /// It had no room for a write, and has not said since how much it has.
    refused: bool,
    /// Weighted placement: who has waited longest in proportion to its free space.
    credit: i128,
}

impl Target {
    fn new(ost: &OstConfig) -> Target {
        Target {
            index: ost.index,
            statfs: ost.statfs,
            silent: false,
            failed: false,
            inactive: false,
            refused: false,
            credit: 0,
        }
    }

    fn works(&self) -> bool {
        !self.inactive && !self.silent && !self.failed
    }

    fn is_full(&self) -> bool {
        self.refused
            || self.statfs.is_some_and(|s| {
                let little = FULL_BYTES.min(s.bytes_total / FULL_PART_SMALL);
                let few = s.files_total / FULL_PART;
                // A file system that makes inodes as it needs them tells of none.
                s.bytes_avail <= little.max(s.bytes_total / FULL_PART)
                    || s.files_total > 0 && s.files_free <= few
            })
    }
}

/// What a directory says of its new files.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inherited {
    pub(crate) policy: Option<StripePolicy>,
    /// The OSTs, if they were named one by one.
    pub(crate) osts: Option<Arc<Layout>>,
}

/// Chooses OSTs.
#[derive(Debug)]
pub(crate) struct Allocator {
    targets: Vec<Target>,
    /// Beyond this difference in free space, in per cent, files are placed by free space.
    balanced_percent: u64,
    /// What files get of which neither they nor their directories say anything.
    default: StripePolicy,
    /// Positions in `targets` that new files may use.
    usable: Vec<usize>,
    balanced: bool,
    start: usize,
    ready: BTreeMap<(u32, usize, usize), Made>,
}

/// What is said on top, and of what is not said there what is said below.
fn over(top: StripePolicy, base: StripePolicy) -> StripePolicy {
    StripePolicy {
        stripe_count: if top.stripe_count == 0 { base.stripe_count } else { top.stripe_count },
        stripe_size: if top.stripe_size == 0 { base.stripe_size } else { top.stripe_size },
        stripe_offset: top.stripe_offset.or(base.stripe_offset),
    }
}

/// What a file and its directory say together.
pub(crate) fn joined(
    wish: Option<StripePolicy>,
    inherited: Option<StripePolicy>,
) -> Option<StripePolicy> {
    match (wish, inherited) {
        (Some(wish), Some(inherited)) => Some(over(wish, inherited)),
        (said, other) => said.or(other),
    }
}

impl Allocator {
    pub(crate) fn new(osts: &[OstConfig], default: StripePolicy) -> Allocator {
        let mut allocator = Allocator {
            targets: osts.iter().map(Target::new).collect(),
            balanced_percent: BALANCED_PERCENT,
            default: over(default, StripePolicy::DEFAULT),
            usable: Vec::new(),
            balanced: true,
            start: 0,
            ready: BTreeMap::new(),
        };
        allocator.refresh();
        allocator
    }

    /// Another OST, which new files may use at once.
    pub(crate) fn add(&mut self, ost: &OstConfig) {
        if !self.has(ost.index) {
            self.targets.push(Target::new(ost));
            self.targets.sort_by_key(|target| target.index);
            // Positions mean others now.
            self.usable.clear();
            self.refresh();
        }
    }

    /// What an OST said of its space.
    pub(crate) fn set_statfs(&mut self, index: u32, statfs: StatFs) {
        if let Some(target) = self.targets.iter_mut().find(|target| target.index == index) {
            (target.statfs, target.refused) = (Some(statfs), false);
        }
        self.refresh();
    }

    /// Whether an OST answers and is not full.
    pub(crate) fn has_room(&self, index: u32) -> bool {
        self.targets
            .iter()
            .any(|target| target.index == index && target.works() && !target.is_full())
    }

    /// An OST had no room for a write: new files go elsewhere until it says how much it has.
    pub(crate) fn had_no_room(&mut self, index: u32) {
        if let Some(target) = self.targets.iter_mut().find(|target| target.index == index) {
            target.refused = true;
        }
        self.refresh();
    }

    /// Whether an OST answers, and if so, whether it answers more than that it has failed: nobody
    /// waits for one that does not, which for locks makes a difference.
    pub(crate) fn set_health(&mut self, index: u32, (silent, failed): (bool, bool)) {
        let Some(target) = self.targets.iter_mut().find(|target| target.index == index) else {
            return;
        };
        if (target.silent, target.failed) != (silent, failed) {
            (target.silent, target.failed) = (silent, failed);
            self.refresh();
        }
    }

    /// Takes an OST out of use, or back into it; false if it was so, or there is none.
    pub(crate) fn set_active(&mut self, index: u32, active: bool) -> bool {
        let target = self.targets.iter_mut().find(|target| target.index == index);
        let Some(target) = target.filter(|target| target.inactive == active) else { return false };
        target.inactive = !active;
        self.refresh();
        true
    }

    /// Whether there is such an OST, and it is in use.
    pub(crate) fn is_active(&self, index: u32) -> bool {
        self.targets.iter().any(|target| target.index == index && !target.inactive)
    }

    /// The most bytes that an object can have on an OST, as far as it has said so.
    pub(crate) fn object_bytes_max(&self, index: u32) -> Option<u64> {
        let target = self.targets.iter().find(|target| target.index == index)?;
        target.statfs.map(|statfs| statfs.object_bytes_max).filter(|max| *max > 0)
    }

    /// Whether an OST is in use and does not answer.
    pub(crate) fn has_away(&self) -> bool {
        self.targets.iter().any(|target| target.silent && !target.inactive)
    }

    /// OSTs that are in use and do not answer.
    pub(crate) fn away(&self) -> Vec<u32> {
        let away = self.targets.iter().filter(|target| target.silent && !target.inactive);
        away.map(|target| target.index).collect()
    }

    /// What files get of which neither they nor their directories say anything.
    pub(crate) fn default_policy(&self) -> StripePolicy {
        self.default
    }

    /// The same for files made from now on; what is not said becomes as it is at first.
    pub(crate) fn set_default_policy(&mut self, policy: StripePolicy) {
        self.default = over(policy, StripePolicy::DEFAULT);
    }

    /// What a file gets: its own wish, then its directory's, then the file system's.
    pub(crate) fn resolve(
        &self,
        wish: Option<StripePolicy>,
        inherited: Option<StripePolicy>,
    ) -> StripePolicy {
        joined(wish, inherited).map_or(self.default, |said| over(said, self.default))
    }

    pub(crate) fn balanced_percent(&self) -> u64 {
        self.balanced_percent
    }

    pub(crate) fn set_balanced_percent(&mut self, percent: u64) {
        self.balanced_percent = percent;
        self.refresh();
    }

    /// Whether there is such an OST at all.
    pub(crate) fn has(&self, index: u32) -> bool {
        self.targets.iter().any(|target| target.index == index)
    }

    fn refresh(&mut self) {
        let among = |allowed: &dyn Fn(&Target) -> bool| -> Vec<usize> {
            let all = self.targets.iter().enumerate();
            all.filter(|(_, target)| allowed(target)).map(|(at, _)| at).collect()
        };
        let mut usable = among(&|target| target.works() && !target.is_full());
        if usable.is_empty() {
            usable = among(&Target::works);
        }
        if usable.is_empty() {
            usable = among(&|target| !target.inactive);
        }
        if usable != self.usable {
            self.usable = usable;
            self.ready.clear();
        }
        let free = || {
            let targets = self.usable.iter().filter_map(|at| self.targets.get(*at));
            targets.filter_map(|target| target.statfs).map(|statfs| statfs.bytes_avail)
        };
        let (most, least) = (free().max().unwrap_or(0), free().min().unwrap_or(0));
        self.balanced =
            (most - least).saturating_mul(100) <= most.saturating_mul(self.balanced_percent);
    }

    /// A layout for a file, by its own wish and what its directory says; `None` while there is no
    /// OST. A wish that says how many stripes, or where they begin, sets the directory's OSTs
    /// aside.
    pub(crate) fn place(
        &mut self,
        wish: Option<StripePolicy>,
        inherited: &Inherited,
        generation: u32,
    ) -> Result<Option<Made>, Errno> {
        let policy = self.resolve(wish, inherited.policy);
        let says = |wish: StripePolicy| wish.stripe_count != 0 || wish.stripe_offset.is_some();
        match &inherited.osts {
            Some(osts) if !wish.is_some_and(says) => {
                self.among(policy.stripe_size, osts, generation).map(Some)
            }
            _ => self.choose(&policy, generation),
        }
    }

    /// A layout over those of these OSTs that can take something: others are not wanted.
    fn among(&self, size: u32, osts: &Layout, generation: u32) -> Result<Made, Errno> {
        let fit = |fits: &dyn Fn(&Target) -> bool| -> Vec<u32> {
            let fits = |index: u32| self.targets.iter().any(|t| t.index == index && fits(t));
            osts.objects().map(|(_, index)| index).filter(|index| fits(*index)).collect()
        };
        let mut among = fit(&|target| target.works() && !target.is_full());
        if among.is_empty() {
            among = fit(&Target::works);
        }
        if among.is_empty() {
            among = fit(&|target| !target.inactive);
        }
        if among.is_empty() { Err(Errno::ENOSPC) } else { self.on(size, &among, generation) }
    }

    /// A layout after a policy that [`Allocator::resolve`] completed; `None` while there is no OST.
    pub(crate) fn choose(
        &mut self,
        policy: &StripePolicy,
        generation: u32,
    ) -> Result<Option<Made>, Errno> {
        policy.check().map_err(|_| Errno::EINVAL)?;
        let width = self.usable.len();
        if width == 0 {
            return Ok(None);
        }
        let size = match policy.stripe_size {
            0 => STRIPE_SIZE_DEFAULT,
            size => size,
        };
        let count = usize::try_from(policy.stripe_count).unwrap_or(width);
        let count = count.clamp(1, width).min(STRIPE_COUNT_MAX as usize);
        let osts = match policy.stripe_offset {
            Some(first) => self.starting_at(first, count)?,
            None if !self.balanced && count < width => self.by_weight(count),
            None => return self.in_turn(size, count, generation).map(Some),
        };
        Self::make(size, osts, generation).map(Some)
    }

    /// A layout over just these OSTs, full or silent as they may be.
    pub(crate) fn on(&self, size: u32, osts: &[u32], generation: u32) -> Result<Made, Errno> {
        if !osts.iter().all(|index| self.is_active(*index)) {
            return Err(Errno::EINVAL);
        }
        let size = if size == 0 { STRIPE_SIZE_DEFAULT } else { size };
        Self::make(size, osts.to_vec(), generation)
    }

    fn make(size: u32, osts: Vec<u32>, generation: u32) -> Result<Made, Errno> {
        let mut layout = Layout::raid0(size, osts).map_err(|_| Errno::EINVAL)?;
        layout.generation = generation;
        Ok(Made::new(layout))
    }

    fn in_turn(&mut self, size: u32, count: usize, generation: u32) -> Result<Made, Errno> {
        let width = self.usable.len();
        let start = self.start % width;
        // A layout over all OSTs starts one further each time: small files lie in its first
        // stripe.
        self.start = (start + if count == width { 1 } else { count }) % width;
        let key = (size, count, start);
        if generation == 1
            && let Some(made) = self.ready.get(&key)
        {
            return Ok(made.clone());
        }
        let turn = self.usable.iter().cycle().skip(start).take(count);
        let osts = turn.filter_map(|at| self.targets.get(*at)).map(|t| t.index).collect();
        let made = Self::make(size, osts, generation)?;
        if generation == 1 {
            if self.ready.len() >= READY_MAX {
                self.ready.clear();
            }
            self.ready.insert(key, made.clone());
        }
        Ok(made)
    }

    fn starting_at(&self, first: u32, count: usize) -> Result<Vec<u32>, Errno> {
        if !self.has(first) {
            return Err(Errno::EINVAL);
        }
        let others = self.usable.iter().filter_map(|at| self.targets.get(*at)).map(|t| t.index);
        let others: Vec<u32> = others.filter(|index| *index != first).collect();
        let split = others.iter().position(|index| *index > first).unwrap_or(0);
        let turn = others.iter().cycle().skip(split).take(others.len()).copied();
        // Whoever asked for a full one must have it; one that is not in use nobody gets.
        let head = self.is_active(first).then_some(first);
        Ok(head.into_iter().chain(turn).take(count).collect())
    }

    fn by_weight(&mut self, count: usize) -> Vec<u32> {
        let mut total = 0;
        for at in &self.usable {
            if let Some(target) = self.targets.get_mut(*at) {
                let free = i128::from(target.statfs.map_or(1, |s| s.bytes_avail.max(1)));
                target.credit += free;
                total += free;
            }
        }
        let mut osts: Vec<u32> = Vec::with_capacity(count);
        for _ in 0..count {
            let free = self.usable.iter().copied().filter(|at| {
                self.targets.get(*at).is_some_and(|target| !osts.contains(&target.index))
            });
            let best = free.max_by_key(|at| {
                self.targets.get(*at).map(|target| (target.credit, core::cmp::Reverse(*at)))
            });
            let Some(target) = best.and_then(|at| self.targets.get_mut(at)) else { break };
            // A file has one object on each: one that cannot be given its whole share saves up no
            // more of it than one round's, and the others, which get the rest, owe no more.
            target.credit = (target.credit - total / count as i128).clamp(-total, total);
            osts.push(target.index);
        }
        osts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(free: u64) -> Option<StatFs> {
        let bytes_total = 1000 << 30;
        Some(StatFs { bytes_total, bytes_free: free, bytes_avail: free, ..StatFs::default() })
    }

    fn osts(free: &[u64]) -> Allocator {
        let osts = free.iter().zip(0..);
        let osts: Vec<_> =
            osts.map(|(free, index)| OstConfig { index, statfs: space(free << 30) }).collect();
        Allocator::new(&osts, StripePolicy::DEFAULT)
    }

    fn firsts(allocator: &mut Allocator, policy: &StripePolicy, files: usize) -> Vec<u32> {
        let mut out = Vec::new();
        for _ in 0..files {
            let made = allocator.choose(policy, 1).unwrap().unwrap();
            out.push(made.layout.components[0].osts[0]);
        }
        out
    }

    const ONE: StripePolicy = StripePolicy { stripe_count: 1, stripe_size: 0, stripe_offset: None };

    #[test]
    fn equal_osts_take_turns() {
        let mut allocator = osts(&[500, 500, 500]);
        assert_eq!(firsts(&mut allocator, &ONE, 6), [0, 1, 2, 0, 1, 2]);
        let all = allocator.resolve(None, None);
        assert_eq!(firsts(&mut allocator, &all, 3), [0, 1, 2]);
        let made = allocator.choose(&all, 1).unwrap().unwrap();
        assert_eq!(made.layout.components[0].osts.len(), 3);
    }

    #[test]
    fn unequal_osts_are_filled_by_their_free_space() {
        let mut allocator = osts(&[300, 100]);
        let taken = firsts(&mut allocator, &ONE, 400);
        let first = taken.iter().filter(|index| **index == 0).count();
        assert!((295..=305).contains(&first), "{first}");
    }

    #[test]
    fn what_an_ost_could_not_be_given_is_not_made_up_for_later() {
        let mut allocator = osts(&[800, 10, 10, 10]);
        let two = StripePolicy { stripe_count: 2, ..ONE };
        firsts(&mut allocator, &two, 10_000);
        // Now it is the fullest.
        for (index, free) in (0..).zip([100, 500, 500, 500]) {
            allocator.set_statfs(index, space(free << 30).unwrap());
        }
        let mut on_it = 0;
        for _ in 0..100 {
            let made = allocator.choose(&two, 1).unwrap().unwrap();
            on_it += usize::from(made.layout.components[0].osts.contains(&0));
        }
        assert!(on_it < 30, "{on_it} of 100 files");
    }

    #[test]
    fn an_ost_without_inodes_is_full() {
        let inodes = |files_free| {
            space(500 << 30).map(|room| StatFs { files_total: 1 << 20, files_free, ..room })
        };
        let osts: Vec<_> = [inodes(1000), inodes(1 << 19), space(500 << 30)]
            .into_iter()
            .zip(0..)
            .map(|(statfs, index)| OstConfig { index, statfs })
            .collect();
        let mut allocator = Allocator::new(&osts, StripePolicy::DEFAULT);
        assert_eq!(firsts(&mut allocator, &ONE, 4), [1, 2, 1, 2], "one that counts none has some");
    }

    #[test]
    fn full_and_silent_osts_are_avoided_while_others_can_be_had() {
        let mut allocator = osts(&[0, 500, 500]);
        allocator.set_health(2, (true, false));
        assert_eq!(firsts(&mut allocator, &ONE, 2), [1, 1]);
        allocator.set_health(1, (true, false));
        assert_eq!(firsts(&mut allocator, &ONE, 1), [0], "full is better than silent");
        allocator.set_health(1, (false, true));
        assert_eq!(firsts(&mut allocator, &ONE, 1), [0], "and than failed");
        assert_eq!(allocator.away(), [2], "one that answers is not waited for");
        allocator.set_health(1, (false, false));
        assert_eq!(firsts(&mut allocator, &ONE, 2), [1, 1]);
        assert!(Allocator::new(&[], StripePolicy::DEFAULT).choose(&ONE, 1).unwrap().is_none());
    }

    #[test]
    fn an_ost_that_is_not_in_use_gets_nothing() {
        let mut allocator = osts(&[500, 500, 500]);
        assert!(allocator.set_active(1, false) && !allocator.set_active(1, false));
        assert_eq!(firsts(&mut allocator, &ONE, 4), [0, 2, 0, 2]);
        let all = allocator.choose(&StripePolicy::DEFAULT, 1).unwrap().unwrap();
        assert_eq!(all.layout.components[0].osts.len(), 2);
        // A directory may ask for it: its files lie elsewhere then.
        let at = StripePolicy { stripe_count: 2, stripe_size: 0, stripe_offset: Some(1) };
        let made = allocator.choose(&at, 1).unwrap().unwrap();
        assert_eq!(made.layout.components[0].osts, [2, 0]);
        assert_eq!(allocator.on(0, &[0, 1], 1).unwrap_err(), Errno::EINVAL);
        for index in [0, 2] {
            allocator.set_active(index, false);
        }
        assert!(allocator.choose(&ONE, 1).unwrap().is_none(), "not even as a last resort");
        allocator.set_active(1, true);
        assert_eq!(firsts(&mut allocator, &ONE, 2), [1, 1]);
    }

    #[test]
    fn a_full_ost_is_for_those_who_must_have_it() {
        let mut allocator = osts(&[0, 500, 500]);
        assert!(!firsts(&mut allocator, &ONE, 20).contains(&0));
        let at = StripePolicy { stripe_count: 1, stripe_size: 0, stripe_offset: Some(0) };
        assert_eq!(firsts(&mut allocator, &at, 1), [0]);
        assert_eq!(allocator.on(0, &[0], 1).unwrap().layout.components[0].osts, [0]);
    }

    #[test]
    fn an_ost_that_had_no_room_is_full_until_it_says_otherwise() {
        let mut allocator = osts(&[500, 500, 500]);
        allocator.had_no_room(1);
        allocator.had_no_room(9);
        assert_eq!(firsts(&mut allocator, &ONE, 4), [0, 2, 0, 2]);
        assert!(allocator.has_room(0) && !allocator.has_room(1) && !allocator.has_room(9));
        allocator.set_statfs(1, space(500 << 30).unwrap());
        assert!(firsts(&mut allocator, &ONE, 3).contains(&1));
    }

    #[test]
    fn of_the_osts_that_a_directory_names_those_are_used_that_can_be() {
        let mut allocator = osts(&[500, 500, 0, 500]);
        let named = |osts: &[u32]| Inherited {
            policy: Some(StripePolicy { stripe_size: 1 << 16, ..ONE }),
            osts: Some(Layout::raid0(1 << 16, osts.to_vec()).unwrap().into()),
        };
        let got = |allocator: &mut Allocator, wish: Option<StripePolicy>, osts: &[u32]| {
            let made = allocator.place(wish, &named(osts), 1)?.unwrap();
            let component = &made.layout.components[0];
            Ok((component.osts.clone(), component.stripe_size))
        };
        assert_eq!(got(&mut allocator, None, &[3, 0]), Ok((vec![3, 0], 1 << 16)));
        assert_eq!(got(&mut allocator, None, &[3, 0]), Ok((vec![3, 0], 1 << 16)), "no turns");
        assert_eq!(got(&mut allocator, None, &[2, 1]), Ok((vec![1], 1 << 16)), "one is full");
        assert_eq!(got(&mut allocator, None, &[2]), Ok((vec![2], 1 << 16)), "it must be that");
        let size = StripePolicy { stripe_count: 0, stripe_size: 1 << 17, stripe_offset: None };
        assert_eq!(got(&mut allocator, Some(size), &[3, 0]), Ok((vec![3, 0], 1 << 17)));
        let other = StripePolicy { stripe_offset: Some(1), ..ONE };
        assert_eq!(got(&mut allocator, Some(other), &[3, 0]), Ok((vec![1], 1 << 16)));
        allocator.set_health(3, (true, false));
        assert_eq!(got(&mut allocator, None, &[3, 0]), Ok((vec![0], 1 << 16)), "one is silent");
        assert_eq!(got(&mut allocator, None, &[3]), Ok((vec![3], 1 << 16)), "perhaps it returns");
        assert_eq!(got(&mut allocator, None, &[2, 3]), Ok((vec![2], 1 << 16)));
        allocator.set_active(3, false);
        assert_eq!(got(&mut allocator, None, &[3]), Err(Errno::ENOSPC));
        assert_eq!(got(&mut allocator, None, &[3, 2]), Ok((vec![2], 1 << 16)));
    }

    #[test]
    fn stripes_and_files_are_balanced_by_free_space() {
        let mut allocator = osts(&[800, 400, 200, 200]);
        let two = StripePolicy { stripe_count: 2, ..ONE };
        let mut counts = [0u32; 4];
        for _ in 0..800 {
            let made = allocator.choose(&two, 1).unwrap().unwrap();
            let osts = &made.layout.components[0].osts;
            assert!(osts.len() == 2 && osts[0] != osts[1], "{osts:?}");
            osts.iter().for_each(|ost| counts[*ost as usize] += 1);
        }
        // The emptiest can have one stripe of each file at most.
        assert!(counts[0] >= 780 && counts[1] > counts[2] + 100, "{counts:?}");
        assert!(counts[2].abs_diff(counts[3]) <= 8, "{counts:?}");
        // By how much they may differ can be set.
        let mut allocator = osts(&[500, 450, 400]);
        allocator.set_balanced_percent(100);
        assert_eq!(firsts(&mut allocator, &ONE, 6), [0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn an_ost_that_comes_later_is_used() {
        let mut allocator = osts(&[500, 500]);
        allocator.add(&OstConfig { index: 7, statfs: None });
        allocator.add(&OstConfig { index: 5, statfs: None });
        allocator.add(&OstConfig { index: 5, statfs: None });
        assert_eq!(firsts(&mut allocator, &ONE, 5), [0, 1, 5, 7, 0]);
        let mut none = Allocator::new(&[], StripePolicy::DEFAULT);
        none.add(&OstConfig { index: 3, statfs: None });
        assert_eq!(firsts(&mut none, &ONE, 1), [3]);
    }

    #[test]
    fn the_first_ost_can_be_asked_for() {
        let mut allocator = osts(&[500, 500, 500]);
        let at =
            |index| StripePolicy { stripe_count: 2, stripe_size: 0, stripe_offset: Some(index) };
        let made = allocator.choose(&at(1), 1).unwrap().unwrap();
        assert_eq!(made.layout.components[0].osts, [1, 2]);
        let made = allocator.choose(&at(2), 3).unwrap().unwrap();
        assert_eq!(made.layout.components[0].osts, [2, 0]);
        assert_eq!(made.layout.generation, 3);
        assert_eq!(allocator.choose(&at(7), 1).unwrap_err(), Errno::EINVAL);
    }

    #[test]
    fn wishes_go_before_inheritance() {
        let parent = StripePolicy { stripe_count: 4, stripe_size: 1 << 20, stripe_offset: None };
        let wish = StripePolicy { stripe_count: 0, stripe_size: 1 << 16, stripe_offset: Some(1) };
        let mut allocator = osts(&[500, 500, 500]);
        let both = allocator.resolve(Some(wish), Some(parent));
        assert_eq!((both.stripe_count, both.stripe_size), (4, 1 << 16));
        assert_eq!(both.stripe_offset, Some(1));
        assert_eq!(allocator.resolve(None, None), StripePolicy::DEFAULT);
        // Below both there is what the file system says.
        allocator.set_default_policy(ONE);
        assert_eq!(allocator.resolve(None, None), ONE);
        assert_eq!(allocator.resolve(None, Some(parent)), parent);
        let size = StripePolicy { stripe_count: 0, stripe_size: 1 << 17, stripe_offset: None };
        let expected = StripePolicy { stripe_count: 1, ..size };
        assert_eq!(allocator.resolve(Some(size), None), expected);
        assert_eq!(allocator.resolve(None, Some(size)), expected);
        allocator.set_default_policy(size);
        let expected = StripePolicy { stripe_count: -1, ..size };
        assert_eq!(allocator.resolve(None, None), expected, "no count is all OSTs");
    }
}

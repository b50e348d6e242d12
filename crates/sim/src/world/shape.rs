//! How large a world is: so many targets and clients. Two of three are small, because what goes
//! wrong between few goes wrong there sooner, and the events that led to it can be read. Some are as
//! large as any: what needs three MDTs or five clients would hardly ever meet them by chance.

use sateen_types::Endpoint;

use crate::random::Random;

/// The golden ratio's fraction, and its sixth power, of 2⁶⁴.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
const LARGEST_BELOW: u64 = 0x0e44_3234_05ac_2180;

/// How many there are of whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// MDTs.
    pub(crate) mdts: u32,
    /// OSTs.
    pub(crate) osts: u32,
    /// Clients, with [`super::WORKERS`] programs each.
    pub(crate) clients: usize,
}

impl Shape {
    /// Most worlds.
    const SMALL: Shape = Shape { mdts: 2, osts: 3, clients: 2 };
    /// The largest.
    pub(crate) const LARGEST: Shape = Shape { mdts: 3, osts: 4, clients: 5 };

    /// That of a seed of the full world: one in eighteen is the largest. Multiples of the golden ratio hit
    /// a span of this length after 13 or 21 each, so that no long row of seeds is without one.
    pub(super) fn of_full(seed: u64) -> Shape {
        match seed.wrapping_mul(GOLDEN) < LARGEST_BELOW {
            true => Shape::LARGEST,
            false => Shape::of(seed),
        }
    }

    /// That of a seed. What else the seed decides does not depend on how it is found.
    pub(crate) fn of(seed: u64) -> Shape {
        let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9));
        if !random.one_in(3) {
            return Shape::SMALL;
        }
        Shape {
            mdts: random.within(1, Shape::LARGEST.mdts.into()) as u32,
            osts: random.within(1, Shape::LARGEST.osts.into()) as u32,
            clients: random.within(1, Shape::LARGEST.clients as u64) as usize,
        }
    }

    pub(crate) fn mdts(self) -> impl Iterator<Item = Endpoint> {
        (0..self.mdts).map(Endpoint::Mdt)
    }

    pub(crate) fn osts(self) -> impl Iterator<Item = Endpoint> {
        (0..self.osts).map(Endpoint::Ost)
    }

    /// All targets.
    pub(crate) fn endpoints(self) -> Vec<Endpoint> {
        [Endpoint::Mgs].into_iter().chain(self.osts()).chain(self.mdts()).collect()
    }

    /// What it is counted as in a report.
    pub(crate) fn shown(self) -> &'static str {
        match self {
            Shape::SMALL => "small world",
            Shape::LARGEST => "largest world",
            _ => "world of another size",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_world_comes_again_and_again_whatever_else_a_seed_decides() {
        let is_largest = |seed: &u64| Shape::of_full(*seed) == Shape::LARGEST;
        for first in [1, 1 << 40, u64::MAX - 5000] {
            let largest: Vec<u64> = (first..first + 4000).filter(is_largest).collect();
            let hit = |seed: &u64| seed.wrapping_mul(GOLDEN) < LARGEST_BELOW;
            let hits: Vec<u64> = (first..first + 4000).filter(hit).collect();
            assert!(hits.windows(2).all(|two| matches!(two, [a, b] if b - a <= 21)), "{first}");
            assert!(largest.len() > 4000 / 20, "{first}: {}", largest.len());
            for (of, least) in [(3, 60), (4, 45), (20, 7)] {
                let each = |rest| hits.iter().filter(|seed| **seed % of == rest).count();
                assert!((0..of).all(|rest| each(rest) > least), "{first}: {of}");
            }
        }
    }
}

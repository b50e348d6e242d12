//! How large a world is: so many targets and clients. Two of three are small, because what goes
//! wrong between few goes wrong there sooner, and the events that led to it can be read.

use sateen_types::Endpoint;

use crate::random::Random;

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

//! The imports by target. They only come: a client keeps each to its end. So whoever asks for one that is
//! there, as a request does several times, waits for nobody.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use sateen_types::Endpoint;

use crate::import::Import;
use crate::sync::lock;

/// Targets that are found without a lock, by their numbers; what has a higher one is looked for under it.
const MDTS: usize = 16;
const OSTS: usize = 256;

type Place = OnceLock<Arc<Import>>;
type All = BTreeMap<Endpoint, Arc<Import>>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Imports {
    mdts: [Place; MDTS],
    osts: Box<[Place]>,
    all: Mutex<All>,
}

impl Default for Imports {
    fn default() -> Imports {
        Imports {
            mdts: Default::default(),
            osts: (0..OSTS).map(|_| Place::new()).collect(),
            all: Mutex::default(),
        }
    }
}

impl Imports {
    fn place(&self, target: Endpoint) -> Option<&Place> {
        match target {
            Endpoint::Mdt(index) => self.mdts.get(index as usize),
            Endpoint::Ost(index) => self.osts.get(index as usize),
            Endpoint::Mgs | Endpoint::Client(_) => None,
        }
    }

    /// That of a target, if there is one.
    pub(crate) fn get(&self, target: Endpoint) -> Option<Arc<Import>> {
        match self.place(target) {
            Some(place) => place.get().cloned(),
            None => self.all().get(&target).cloned(),
        }
    }

    /// That of a target, which is made if there is none.
    pub(crate) fn get_or_make(
        &self,
        target: Endpoint,
        make: impl FnOnce() -> Arc<Import>,
    ) -> Arc<Import> {
        let mut all = self.all();
        let import = all.entry(target).or_insert_with(make);
        if let Some(place) = self.place(target) {
            place.get_or_init(|| import.clone());
        }
        import.clone()
    }

    /// All there are, to which none comes meanwhile.
    pub(crate) fn all(&self) -> MutexGuard<'_, All> {
        lock(&self.all)
    }
}

#[cfg(test)]
mod tests {
    use sateen_types::ClientId;

    use super::*;

    #[test]
    fn each_target_has_one_wherever_it_is_kept() {
        let imports = Imports::default();
        let new = |target| {
            let runs = (Arc::default(), Arc::default());
            let address = Endpoint::Client(ClientId(1));
            Arc::new(Import::new(address, (target, 0), (ClientId(1), 0), runs))
        };
        let many = OSTS as u32;
        let targets = [Endpoint::Mgs, Endpoint::Mdt(0), Endpoint::Ost(0), Endpoint::Ost(many)];
        for target in targets {
            assert!(imports.get(target).is_none());
            let made = imports.get_or_make(target, || new(target));
            let again = imports.get_or_make(target, || panic!("there is one"));
            let found = imports.get(target);
            assert!(Arc::ptr_eq(&made, &again) && found.is_some_and(|it| Arc::ptr_eq(&made, &it)));
        }
        assert_eq!(imports.all().keys().copied().collect::<Vec<_>>(), targets);
        assert!(imports.get(Endpoint::Ost(1)).is_none());
    }
}

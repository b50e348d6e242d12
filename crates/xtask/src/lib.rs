//! Reads the source tree for the tests in `tests/`, which hold it to the rules of the house:
//! layers, purity, `unsafe`, sizes, words, explained dependencies (docs/sourcetree.md). Used by
//! those tests alone, but for [`mutants`], which `scripts/mutants.sh` tries. It must never change a
//! file of the repository.

mod functions;
pub mod mutants;
mod tree;

pub use functions::{Function, functions};
pub use tree::{Dependency, Package, Source, packages, repository, sources};

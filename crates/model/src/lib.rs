//! `sateen-model`: what hardware will do, and how large a test of it must be.
//!
//! Two questions are asked before a file system is bought or measured: what rates can these machines
//! give, and how long and wide must a test be that shows it. `predict` answers the first from a
//! description of the hardware and a profile of the file system; every number of a profile is fitted
//! when it is asked for, from the published tables that the crate carries. `plan` answers the second.
//! What the model cannot know it names as a missing input, with the way to measure it.
//!
//! | file | is |
//! |---|---|
//! | `units` | sizes, rates and times with units |
//! | `table` | the published tables, as typed rows |
//! | `fit` | least squares on logarithms, errors, leave-one-out |
//! | `bandwidth`, `metadata`, `scaling`, `disks` | the forms that are fitted |
//! | `hardware`, `example` | the description of a system, and the ones the crate carries |
//! | `profile` | what a file system makes of its hardware |
//! | `predict`, `show` | rates, the limit that binds, what is missing; as text |
//! | `report` | fitted parameters and errors per table |
//! | `published` | what each published table has become here, and what is not reproduced |
//! | `plan` | test sizing |
//! | `command` | the subcommands that a program mounts |

pub mod bandwidth;
pub mod command;
pub mod disks;
pub mod example;
pub mod fit;
pub mod hardware;
pub mod metadata;
pub mod plan;
pub mod predict;
pub mod profile;
pub mod published;
pub mod report;
pub mod scaling;
mod show;
pub mod table;
pub mod units;

//! Measures file systems from outside, by the methods that the field compares them with.
//!
//! | module | is |
//! |---|---|
//! | [`cli`] | the commands, for the program `sateen-bench` and for `sateen bench` |
//! | [`comm`] | ranks and how they talk: one process, local processes, or what a program brings (MPI) |
//! | [`io`] | what is measured, behind one interface: a directory, what ranks bring with them (MPI-IO), or nothing at all |
//! | [`engine`] | the workloads: IOR, mdtest, IOzone, IO500 |
//! | [`guard`] | the pitfalls of measuring, each with a warning |
//! | [`pattern`] | data that proves on reading who wrote it where |
//! | [`stats`] | repetitions summed up, latencies in HDR histograms |
//! | [`progress`] | how far a run is |
//! | [`missed`] | options of the original tools that are not here |
//! | [`memblock`] | memory that caches cannot use |
//! | [`rates`], [`crash`] | a quick table of rates, and proof of what a crash must not lose |
//!
//! It knows nothing of Sateen's insides, so that the same program measures any file system.
//! `unsafe` stands in `sys` alone.

pub mod cli;
pub mod clock;
pub mod comm;
pub mod crash;
pub mod engine;
pub mod error;
pub mod guard;
pub mod io;
pub mod memblock;
pub mod missed;
pub mod pattern;
pub mod processor;
pub mod progress;
pub mod rates;
pub mod size;
pub mod stats;
mod sys;
pub mod when;

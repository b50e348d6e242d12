//! The program as users run it: several ranks, real folders, and output that parsers written
//! for the original tools read.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod broken;
mod data;
mod forms;
mod io500;
mod ior;
mod iozone;
mod labels;
mod mdtest;
mod memblock;
mod model;
mod originals;
mod pitfalls;
mod real;
mod report;
mod rig;

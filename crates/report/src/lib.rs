//! Reports of benchmark runs: what `sateen-bench` (or IOR) has written as JSON becomes one HTML
//! file that needs nothing else, and tables for other programs.
//!
//! | module | is |
//! |---|---|
//! | [`command`] | the command `report` |
//! | [`read`] | the JSON of each workload, read and checked |
//! | [`run`] | what a run says, whatever measured it |
//! | [`apart`] | what tells measurements apart, so that none is taken for a repetition of another |
//! | [`figures`] | which figures there are: rates over nodes, processes, transfer sizes and files; ranks; time |
//! | [`plot`] | a figure as SVG |
//! | [`tables`] | the tables that papers print |
//! | [`page`] | all of it as HTML |
//! | [`data`] | the same numbers as CSV and JSON |
//!
//! It measures nothing, and knows of `sateen-bench` only what that writes.

pub mod apart;
pub mod command;
pub mod data;
pub mod error;
pub mod figures;
mod markup;
mod outputs;
pub mod page;
pub mod plot;
pub mod read;
pub mod run;
pub mod tables;

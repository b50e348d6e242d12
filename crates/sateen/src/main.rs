//! `sateen`: one program that plays every role.
//!
//! | file | is |
//! |---|---|
//! | `cli` | the arguments |
//! | `up`, `serve`, `guard`, `down`, `status` | the commands |
//! | `embedded` | a whole file system in one process |
//! | `data_dir`, `targets`, `mounts`, `state`, `control` | what they share |
//!
//! Every refusal says what is wrong and what to do, on standard error, with exit code 1.

mod cli;
mod control;
mod data_dir;
mod down;
mod embedded;
mod guard;
mod logging;
mod mounts;
mod refusal;
mod report;
mod serve;
mod state;
mod status;
mod targets;
#[cfg(test)]
mod testing;
mod up;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Up(args) => up::run(&args),
        Command::Down(args) => down::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Guard(args) => guard::run(&args),
    };
    done.unwrap_or_else(|refusal| {
        eprintln!("sateen: {refusal}");
        ExitCode::FAILURE
    })
}

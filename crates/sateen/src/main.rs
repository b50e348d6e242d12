//! `sateen`: one program that plays every role.
//!
//! | file | is |
//! |---|---|
//! | `cli` | the arguments |
//! | `up`, `serve`, `guard`, `down`, `status`, `sync` | the commands |
//! | `embedded` | a whole file system in one process |
//! | `fill` | a measurement of it with very many files |
//! | `data_dir`, `targets`, `mounts`, `state`, `control` | what they share |
//!
//! Every refusal says what is wrong and what to do, on standard error, with exit code 1.

mod cli;
mod control;
mod data_dir;
mod down;
mod embedded;
mod fill;
mod fsck;
mod guard;
mod lfs;
mod logging;
mod mounts;
mod refusal;
mod report;
mod serve;
mod state;
mod status;
mod sync;
mod targets;
#[cfg(test)]
mod testing;
mod up;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    let name = std::env::args_os().next().map(PathBuf::from);
    if name.as_deref().and_then(Path::file_name).is_some_and(|name| name == "lfs") {
        return lfs::run(&lfs::Lfs::parse());
    }
    let done = match Cli::parse().command {
        Command::Up(args) => up::run(&args),
        Command::Down(args) => down::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Sync(args) => sync::run(&args),
        Command::Fsck(args) => return fsck::run(&args),
        Command::Lfs(args) => return lfs::run(&args),
        Command::Guard(args) => guard::run(&args),
        Command::Fill(args) => fill::run(&args),
    };
    done.unwrap_or_else(|refusal| {
        eprintln!("sateen: {refusal}");
        ExitCode::FAILURE
    })
}

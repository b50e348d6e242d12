//! `sateen`: one program that plays every role.
//!
//! | file | is |
//! |---|---|
//! | `cli` | the arguments |
//! | `cluster` | `status` of one whose servers are elsewhere |
//! | `up`, `guard`, `down`, `status`, `sync` | the commands for a file system in one process |
//! | `mkfs`, `serve`, `mount_helper` | the commands for one whose servers are elsewhere |
//! | `daemon`, `background`, `notify` | the process behind mounts or targets, and how others hear of it |
//! | `node` | what one process runs: targets, clients, or both |
//! | `lfs`, `lctl`, `params` | the field's tools: striping and space; devices and parameters |
//! | `generate` | manual pages and completions |
//! | `fill` | a measurement of it with very many files |
//! | `usage` | arguments that make no sense |
//! | `data_dir`, `run_dir`, `targets`, `mounts`, `state`, `control` | what they share |
//!
//! `bench` is the room of that name. Every refusal says what is wrong and what to do, on standard error, with exit code 1
//! (or another that the command's manual page names).

mod background;
mod cli;
mod cluster;
mod control;
mod daemon;
mod data_dir;
mod down;
mod fill;
mod fsck;
mod generate;
mod guard;
mod killed;
mod lctl;
mod lfs;
mod logging;
mod mkfs;
mod mount_helper;
mod mounts;
mod nids;
mod node;
mod notify;
mod params;
mod refusal;
mod report;
mod requests;
mod run_dir;
mod serve;
mod state;
mod status;
mod sync;
mod targets;
#[cfg(test)]
mod testing;
mod up;
mod usage;
mod waking;
mod ways;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::SIGPIPE;

use crate::cli::{Cli, Command};

/// The C library's keeps what short-lived threads have freed, connection for connection, and a
/// server's memory grew with every client that had ever been there.
#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let called = std::env::args_os().next().map(PathBuf::from);
    let name = called.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
    let command = match name {
        Some("lfs") => Command::Lfs(usage::parse(lfs::arguments(std::env::args_os()))),
        Some("lctl") => Command::Lctl(usage::parse(std::env::args_os())),
        Some("sateen-bench") => {
            Command::Bench(Box::new(sateen_bench::cli::parse(std::env::args_os()).bench))
        }
        Some("mkfs.sateen") => Command::Mkfs(usage::parse(std::env::args_os())),
        Some("mount.sateen" | "mount.fuse.sateen") => {
            Command::Mount(usage::parse_or(std::env::args_os(), mount_helper::USAGE))
        }
        _ => {
            let args = sateen_bench::cli::arguments(std::env::args_os());
            usage::parse::<Cli>(lfs::arguments(args)).command
        }
    };
    if command.only_asks() {
        end_with_the_reader();
    }
    // Who is told otherwise does so himself.
    ways::Net::default().apply();
    let done = match command {
        Command::Mkfs(args) => mkfs::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Mount(args) => return mount_helper::run(&args),
        Command::Up(args) => up::run(&args),
        Command::Down(args) => down::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Sync(args) => sync::run(&args),
        Command::Fsck(args) => return fsck::run(&args),
        Command::Lfs(args) => return lfs::run(&args),
        Command::Lctl(args) => return lctl::run(&args),
        Command::Bench(args) => return ExitCode::from(sateen_bench::cli::run(&args, None)),
        Command::Guard(args) => guard::run(&args),
        Command::Fill(args) => fill::run(&args),
        Command::Generate(args) => generate::run(&args),
    };
    done.unwrap_or_else(|refusal| {
        eprintln!("sateen: {refusal}");
        ExitCode::FAILURE
    })
}

/// Ends quietly, as other tools do, when nobody reads on: `lctl list_param '*' | head`.
fn end_with_the_reader() {
    // Without it the first line too many is an error message, and no harm.
    let always = Arc::new(AtomicBool::new(true));
    let _ = signal_hook::flag::register_conditional_default(SIGPIPE, always);
}

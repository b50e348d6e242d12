//! `sateen-bench`: the benchmarks as a program of their own, and, with the feature `mpi`, as
//! ranks of MPI. What it does is in the library; `sateen bench` is the same without MPI.

#[cfg(feature = "mpi")]
mod mpiio;
#[cfg(feature = "mpi")]
mod world;

use std::process::ExitCode;

use sateen_bench::cli;

fn main() -> ExitCode {
    let program = cli::parse(std::env::args_os());
    #[cfg(feature = "mpi")]
    if cli::started_by_mpi() {
        return ExitCode::from(world::run(&program.bench));
    }
    ExitCode::from(cli::run(&program.bench, None))
}

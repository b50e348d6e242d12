//! The shape of the core: what create, journal and reply cost through the pure seam, with
//! shard locks and with owner cores, under three run loops, and behind FUSE with both
//! transports. The numbers and what follows from them: docs/decisions/0002-core-shape.md.
//!
//! `cargo bench -p sateen-bench --features core-shape [--bench core_shape -- FOLDER [ROUNDS [PART]]]`,
//! as root. FOLDER is where the journal of the durable rows lies, and the mount. Variants take
//! turns, and of the rounds of each the median is printed. PART chooses the tables whose titles
//! contain it. Ends with 1 if the seam alone costs more than a create may.

mod cost;
mod loops;
mod server;
mod shards;
mod through_fuse;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cost::Cost;
use loops::Load;
use server::{Caller, FileJournal, Server};

/// Creates in one run.
const COUNT: u64 = 100_000;
/// The same where each waits for the disk.
const COUNT_DURABLE: u64 = 300;
/// The same through FUSE.
const COUNT_FUSE: u64 = 10_000;

/// One thread, nothing between it and the target.
fn alone() -> Cost {
    let mut server = Server::new(FileJournal::nowhere());
    let mut caller = Caller::connect(&mut server, 0);
    let mut create = |count: u64| {
        let mut done = 0;
        while done < count {
            server.execute(caller.next());
            done += u64::from(caller.take(server.answers.first().expect("an answer")));
        }
    };
    // Warm: buffers have their size then.
    create(COUNT / 10);
    Cost::of(COUNT, || create(COUNT))
}

type Variant<'a> = (&'a str, Box<dyn Fn() -> Cost + 'a>);

/// How often each variant runs, and which tables are wanted.
struct Wanted {
    rounds: usize,
    part: String,
}

/// Prints what the variants cost; the costs, if the table is wanted.
fn table(title: &str, wanted: &Wanted, variants: &[Variant<'_>]) -> Vec<Cost> {
    let Wanted { rounds, part } = wanted;
    if !title.contains(part.as_str()) {
        return Vec::new();
    }
    let mut all = vec![Vec::new(); variants.len()];
    for _ in 0..*rounds {
        for ((_, run), costs) in variants.iter().zip(&mut all) {
            costs.push(run());
        }
    }
    println!("\n{title:<46} {:>9} {:>9} {:>12}", "wall us", "CPU us", "allocations");
    let medians: Vec<Cost> = all.into_iter().map(Cost::median).collect();
    for ((what, _), Cost { wall_us, cpu_us, allocations }) in variants.iter().zip(&medians) {
        println!("{what:<46} {wall_us:>9.2} {cpu_us:>9.2} {allocations:>12.3}");
    }
    medians
}

fn main() -> anyhow::Result<ExitCode> {
    // cargo adds --bench.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if let [mode, folder, count] = args.as_slice()
        && mode == "load"
    {
        through_fuse::load(Path::new(folder), count.parse()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let folder = args.first().map_or_else(std::env::temp_dir, PathBuf::from);
    let rounds = args.get(1).map_or(Ok(5), |text| text.parse())?;
    let rounds = &Wanted { rounds, part: args.get(2).cloned().unwrap_or_default() };
    let folder = folder.as_path();
    let seam = table("the seam alone", rounds, &[("one thread, one shard", Box::new(alone))]);
    let passes = seam.iter().all(Cost::passes);
    table(
        "two threads; per create of both",
        rounds,
        &[
            ("lock, 1 shard", Box::new(|| shards::locked(1, COUNT))),
            ("lock, 2 shards", Box::new(|| shards::locked(2, COUNT))),
            ("hand-off, sleeping, 1 shard", Box::new(|| shards::handed_off(1, COUNT, false))),
            ("hand-off, sleeping, 2 shards", Box::new(|| shards::handed_off(2, COUNT, false))),
            ("hand-off, spinning, 1 shard", Box::new(|| shards::handed_off(1, COUNT, true))),
            ("hand-off, spinning, 2 shards", Box::new(|| shards::handed_off(2, COUNT, true))),
        ],
    );
    for (title, load) in [
        ("run loops: a task per create", Load { count: COUNT, durable: false }),
        ("run loops: each create synced", Load { count: COUNT_DURABLE, durable: true }),
    ] {
        let journal = || loops::journal(load, folder);
        table(
            title,
            rounds,
            &[
                ("ours", Box::new(|| loops::ours(load, journal()))),
                ("tokio, one thread", Box::new(|| loops::tokio(load, journal(), 0))),
                ("tokio, two workers", Box::new(|| loops::tokio(load, journal(), 2))),
                ("compio", Box::new(|| loops::compio(load, journal()))),
            ],
        );
    }
    let fuse = |uring, null| {
        move || match through_fuse::create(folder, uring, null, COUNT_FUSE) {
            Ok(cost) => cost,
            Err(error) => {
                eprintln!("not measured: {error:#}");
                Cost::default()
            }
        }
    };
    table(
        "behind FUSE, one process; both sides",
        rounds,
        &[
            ("/dev/fuse, null", Box::new(fuse(false, true))),
            ("/dev/fuse, target", Box::new(fuse(false, false))),
            ("io_uring, null", Box::new(fuse(true, true))),
            ("io_uring, target", Box::new(fuse(true, false))),
        ],
    );
    Ok(if passes { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

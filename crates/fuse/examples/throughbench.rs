//! What passthrough costs and brings: `throughbench DIR [SECONDS_PER_CELL] [ROUNDS]`, as root.
//!
//! The same operations on a file in `DIR` itself, through a mount that gives the kernel that file,
//! through one that reads and writes it when asked, and on a file system without data; in turns,
//! and the median of the rounds. One program; the processors' time is that of program and daemon
//! together.
#![allow(unsafe_code, reason = "getrusage")]
#[path = "common/null.rs"]
mod null;
#[path = "common/through.rs"]
mod through;

use sateen_fuse::{MountOptions, Session};
use std::fs::{self, File};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of the file that is read and written.
const FILE: u64 = 128 << 20;
/// As IO500's hard pattern has them.
const RECORD: u64 = 47_008;

/// What is measured: name, bytes of a call, whether it writes, whether it goes here and there.
const CALLS: [(&str, u64, bool, bool); 6] = [
    ("read 4 KiB here and there", 4096, false, true),
    ("write 4 KiB here and there", 4096, true, true),
    ("read 1 MiB", 1 << 20, false, false),
    ("write 1 MiB", 1 << 20, true, false),
    ("read 47008", RECORD, false, false),
    ("write 47008", RECORD, true, false),
];

/// One measurement, per operation, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    wall: f64,
    cpu: f64,
}

fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().init();
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().ok_or(anyhow::anyhow!("which folder?"))?);
    let time = Duration::from_secs_f64(args.next().map_or(Ok(0.2), |text| text.parse())?);
    let rounds: usize = args.next().map_or(Ok(5), |text| text.parse())?;
    let base = dir.join(format!("throughbench-{}", std::process::id()));
    let ground = base.join("ground");
    let mounts = ["through", "asked", "null"].map(|name| base.join(name));
    fs::create_dir_all(&ground)?;
    mounts.iter().try_for_each(fs::create_dir_all)?;
    fs::write(ground.join("file"), vec![1; FILE as usize])?;
    fs::write(ground.join("small"), [1; 4096])?;
    let sessions = mount(&ground, &mounts)?;
    let [through, asked, null] = &mounts;
    for (name, len) in [("file", FILE), ("small", 4096)] {
        fs::write(null.join(name), vec![1; len as usize])?;
    }
    let places = [&ground, through, asked, null];
    println!(
        "{:28} {:>18} {:>18} {:>18} {:>18}",
        "us: wall (cpu)", "below", "through", "asked", "null"
    );
    for (name, len, write, random) in CALLS {
        row(name, rounds, &places, |dir| {
            let file = File::options().read(true).write(true).open(dir.join("file"))?;
            let mut data = vec![2; len as usize];
            let mut at = 0x9e37_79b9_7f4a_7c15_u64;
            repeat(time, |count| {
                at = at.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                let place = if random { at >> 33 } else { count } % (FILE / len) * len;
                match write {
                    true => file.write_all_at(&data, place)?,
                    false => file.read_exact_at(&mut data, place)?,
                }
                black_box(&data);
                Ok(())
            })
        })?;
    }
    row("open, close", rounds, &places, |dir| {
        repeat(time, |_| Ok(File::options().write(true).open(dir.join("small")).map(drop)?))
    })?;
    row("open, read 4 KiB, close", rounds, &places, |dir| {
        repeat(time, |_| Ok(File::open(dir.join("small"))?.read_exact_at(&mut [0; 4096], 0)?))
    })?;
    row("open, write 4 KiB, close", rounds, &places, |dir| {
        repeat(time, |_| {
            let file = File::options().write(true).open(dir.join("small"))?;
            Ok(file.write_all_at(&[3; 4096], 0)?)
        })
    })?;
    let next = std::cell::Cell::new(0_u64);
    let create = |dir: &Path| -> anyhow::Result<File> {
        next.set(next.get() + 1);
        Ok(File::create_new(dir.join(format!("f{}", next.get())))?)
    };
    row("create, close", rounds, &places, |dir| repeat(time, |_| create(dir).map(drop)))?;
    row("create, write 4 KiB, close", rounds, &places, |dir| {
        repeat(time, |_| Ok(create(dir)?.write_all_at(&[3; 4096], 0)?))
    })?;
    row("create, write 4 MiB, close", rounds, &places, |dir| {
        let data = vec![4; 1 << 20];
        let start = next.get();
        let cell = repeat(time, |_| {
            let file = create(dir)?;
            (0..4).try_for_each(|part| Ok(file.write_all_at(&data, part << 20)?))
        });
        // Or the disk would be full soon.
        (start + 1..=next.get()).for_each(|at| {
            let _ = fs::remove_file(dir.join(format!("f{at}")));
        });
        cell
    })?;
    register(&ground, &sessions, time)?;
    drop(sessions);
    fs::remove_dir_all(base)?;
    Ok(())
}

fn mount(ground: &Path, [through, asked, null]: &[PathBuf; 3]) -> anyhow::Result<Vec<Session>> {
    let given = Arc::new(through::ThroughFs::new(ground, true));
    let given_session = Session::mount(MountOptions::new(through), given.clone())?;
    given.mounted(given_session.backings());
    let asked_fs = Arc::new(through::ThroughFs::new(ground, false));
    let asked_session = Session::mount(MountOptions::new(asked), asked_fs)?;
    let null_session = Session::mount(MountOptions::new(null), Arc::new(null::NullFs::new(true)))?;
    println!("transport {}, {:?}", given_session.transport().name(), given_session.caps());
    Ok(vec![given_session, asked_session, null_session])
}

/// What the two calls cost by themselves, without any open.
fn register(ground: &Path, sessions: &[Session], time: Duration) -> anyhow::Result<()> {
    let Some(session) = sessions.first() else { return Ok(()) };
    let (file, backings) = (File::open(ground.join("small"))?, session.backings());
    let cell = repeat(time, |_| Ok(backings.open(&file).map(drop)?))?;
    println!("register and give up: {:.2} us", cell.wall);
    Ok(())
}

fn row(
    name: &str,
    rounds: usize,
    places: &[&PathBuf],
    measure: impl Fn(&Path) -> anyhow::Result<Cell>,
) -> anyhow::Result<()> {
    let mut samples = vec![Vec::new(); places.len()];
    for _ in 0..rounds {
        for (place, samples) in places.iter().zip(&mut samples) {
            samples.push(measure(place)?);
        }
    }
    print!("{name:28}");
    for samples in &mut samples {
        samples.sort_by(|a, b| a.wall.total_cmp(&b.wall));
        let Cell { wall, cpu } = samples.get(rounds / 2).copied().unwrap_or_default();
        print!(" {:>18}", format!("{wall:.2} ({cpu:.2})"));
    }
    println!();
    Ok(())
}

/// Does something again and again for some time.
fn repeat(time: Duration, mut body: impl FnMut(u64) -> anyhow::Result<()>) -> anyhow::Result<Cell> {
    let (start, used) = (Instant::now(), cpu());
    let mut count = 0;
    while start.elapsed() < time {
        body(count)?;
        count += 1;
    }
    let per = |time: Duration| time.as_secs_f64() * 1e6 / count as f64;
    Ok(Cell { wall: per(start.elapsed()), cpu: per(cpu().saturating_sub(used)) })
}

/// Processors' time of this process so far, user and system.
fn cpu() -> Duration {
    // SAFETY: rusage is plain data for which zeroes are valid, and the call
    // fills in exactly one.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

//! Measures the transports against each other on a file system without data:
//! `fusebench [SECONDS_PER_CELL] [ROUNDS]`, as root.
//!
//! All mounts live in this process; the load runs in one or two processes of
//! its own, so that the CPU time of both sides can be told apart. Cells are
//! interleaved over transports, and the median of the rounds is printed.
#![allow(unsafe_code, reason = "getrusage")]
#[path = "common/null.rs"]
mod null;

use sateen_fuse::{MountOptions, Session, TransportChoice};
use std::fs::{self, File};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const OPS: [&str; 7] = ["create", "stat", "unlink", "write4k", "read4k", "write1m", "read1m"];

/// One measurement, per operation.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    wall_us: f64,
    load_cpu_us: f64,
    serve_cpu_us: f64,
}

fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().init();
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, op, dir, seconds] = args.as_slice()
        && mode == "load"
    {
        let count = load(op, Path::new(dir), Duration::from_secs_f64(seconds.parse()?))?;
        println!("{count}");
        return Ok(());
    }
    let seconds: f64 = args.first().map_or(Ok(0.5), |text| text.parse())?;
    let rounds: usize = args.get(1).map_or(Ok(3), |text| text.parse())?;
    let base = std::env::temp_dir().join(format!("fusebench-{}", std::process::id()));
    let choices = [("classic", TransportChoice::Classic), ("io_uring", TransportChoice::Uring)];
    let mut sessions = Vec::new();
    for (name, transport) in choices {
        let dir = base.join(name);
        fs::create_dir_all(&dir)?;
        let options = MountOptions { transport, threads: 2, ..MountOptions::new(dir) };
        let session = Session::mount(options, Arc::new(null::NullFs::new(true)))?;
        println!("{name}: {}", session.transport().name());
        sessions.push(session);
    }
    for processes in [1, 2] {
        println!("\n{processes} process(es); microseconds per operation and process");
        println!(
            "{:9} {:>26} {:>26} {:>7} {:>7}",
            "", "classic: wall, cpu l+s", "io_uring: wall, cpu l+s", "wall x", "cpu x"
        );
        // Removal needs what creation leaves; so the operations go around together.
        let mut cells = vec![vec![Vec::new(); sessions.len()]; OPS.len()];
        for _ in 0..rounds {
            for (op, row) in OPS.iter().zip(&mut cells) {
                for (session, samples) in sessions.iter().zip(row) {
                    let dir = &session.options().mountpoint;
                    samples.push(measure(op, dir, processes, seconds)?);
                }
            }
        }
        for (op, row) in OPS.iter().zip(&cells) {
            let medians: Vec<Cell> = row.iter().map(|samples| median(samples)).collect();
            let [classic, ring] = medians.as_slice() else { continue };
            let cpu = |cell: &Cell| cell.load_cpu_us + cell.serve_cpu_us;
            let show = |c: &Cell| {
                format!("{:9.2} {:7.2} +{:7.2}", c.wall_us, c.load_cpu_us, c.serve_cpu_us)
            };
            println!(
                "{op:9} {:>26} {:>26} {:7.2} {:7.2}",
                show(classic),
                show(ring),
                classic.wall_us / ring.wall_us,
                cpu(classic) / cpu(ring)
            );
        }
    }
    drop(sessions);
    fs::remove_dir_all(base)?;
    Ok(())
}

fn measure(op: &str, dir: &Path, processes: usize, seconds: f64) -> anyhow::Result<Cell> {
    let (serve, load) = (cpu(libc::RUSAGE_SELF), cpu(libc::RUSAGE_CHILDREN));
    let start = Instant::now();
    let mut children = Vec::new();
    for index in 0..processes {
        let own = dir.join(index.to_string());
        if !own.exists() {
            fs::create_dir(&own)?;
        }
        let child = Command::new(std::env::current_exe()?)
            .args(["load", op, &own.to_string_lossy(), &seconds.to_string()])
            .stdout(Stdio::piped())
            .spawn()?;
        children.push(child);
    }
    let (mut count, mut wall) = (0.0, 0.0);
    for child in children {
        let output = child.wait_with_output()?;
        anyhow::ensure!(output.status.success(), "the load failed");
        let text = String::from_utf8(output.stdout)?;
        let done = text.trim().parse::<f64>()?;
        count += done;
        // Removal ends when nothing is left.
        wall += if op == "unlink" { start.elapsed().as_secs_f64() } else { seconds };
    }
    let per = |duration: Duration| duration.as_secs_f64() * 1e6 / count;
    Ok(Cell {
        wall_us: wall * 1e6 / count,
        load_cpu_us: per(cpu(libc::RUSAGE_CHILDREN).saturating_sub(load)),
        serve_cpu_us: per(cpu(libc::RUSAGE_SELF).saturating_sub(serve)),
    })
}

/// CPU time used so far, user and system.
fn cpu(whose: libc::c_int) -> Duration {
    // SAFETY: rusage is plain data for which zeroes are valid, and the call
    // fills in exactly one.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(whose, &raw mut usage);
        usage
    };
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

fn median(samples: &[Cell]) -> Cell {
    let mut sorted = samples.to_vec();
    sorted.sort_by(|a, b| a.wall_us.total_cmp(&b.wall_us));
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// Repeats an operation for some time; returns how often.
fn load(op: &str, dir: &Path, time: Duration) -> anyhow::Result<u64> {
    let end = Instant::now() + time;
    let name = |index: u64| -> PathBuf { dir.join(format!("f{index}")) };
    let file = || {
        File::options().read(true).write(true).create(true).truncate(false).open(dir.join("data"))
    };
    let until = |body: &mut dyn FnMut(u64) -> anyhow::Result<()>| -> anyhow::Result<u64> {
        let mut count = 0;
        while Instant::now() < end {
            body(count)?;
            count += 1;
        }
        Ok(count)
    };
    let write = |len: usize| {
        let (file, data) = (file()?, vec![1; len]);
        until(&mut |count| Ok(file.write_all_at(&data, count % 64 * len as u64)?))
    };
    let read = |len: usize| {
        let (file, mut data) = (file()?, vec![0; len]);
        until(&mut |count| {
            file.read_exact_at(&mut data, count % 64 * len as u64)?;
            black_box(&data);
            Ok(())
        })
    };
    match op {
        "create" => until(&mut |count| {
            File::create_new(name(count))?;
            Ok(())
        }),
        "stat" => {
            let path = name(0);
            until(&mut |_| {
                black_box(fs::metadata(&path)?);
                Ok(())
            })
        }
        "unlink" => {
            let mut count = 0;
            while fs::remove_file(name(count)).is_ok() {
                count += 1;
            }
            Ok(count)
        }
        "write4k" => write(4096),
        "read4k" => read(4096),
        "write1m" => write(1 << 20),
        "read1m" => read(1 << 20),
        other => anyhow::bail!("no operation {other}"),
    }
}

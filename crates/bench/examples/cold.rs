//! Reads of what is not in memory, in several folders turn by turn: `cold DIR…`, the first of which
//! the others are compared with. As root, for the kernel is to forget what it has.
//!
//! Say the folder of the disk itself first, and then mounts whose servers keep their data on the
//! same disk. Each turn reads a large file from front to back in pieces of 1 MiB, then 4 KiB at a
//! time here and there, alone and by eight at once, all with nothing in memory, and that again with all of it there. What is
//! told is the median of the ratios within a turn, so that whoever uses the machine meanwhile
//! disturbs all alike, and the medians themselves.
//!
//! `--mib N` is the size of the file, `--turns N` how often.
#![allow(missing_docs, reason = "a program")]

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;

const MIB: usize = 1 << 20;
const BLOCK: usize = 4096;
/// Single blocks that are read cold, and warm.
const JUMPS: u64 = 400;
const WARM_JUMPS: u64 = 20_000;

/// Measures cold reads.
#[derive(Debug, Parser)]
struct Options {
    /// Folders, the one to compare with first.
    #[arg(required = true)]
    folders: Vec<PathBuf>,
    /// Size of the file in each.
    #[arg(long, default_value_t = 256)]
    mib: usize,
    /// How often each is measured.
    #[arg(long, default_value_t = 5)]
    turns: usize,
}

/// Who reads single blocks at the same time.
const READERS: u64 = 8;

/// What is measured, with its unit.
const ROWS: [(&str, &str); 5] = [
    ("cold, 1 MiB after the other", "MiB/s"),
    ("cold, 4 KiB here and there", "reads/s"),
    ("cold, 4 KiB here and there, by eight at once", "reads/s"),
    ("warm, 1 MiB after the other", "MiB/s"),
    ("warm, 4 KiB here and there", "reads/s"),
];

fn main() -> Result<()> {
    let options = Options::parse();
    ensure!(options.mib > 0 && options.turns > 0, "nothing to measure");
    let files: Vec<PathBuf> = options.folders.iter().map(|dir| dir.join("cold-reads")).collect();
    for file in &files {
        make(file, options.mib)?;
    }
    let mut turns = Vec::new();
    for turn in 0..options.turns {
        let mut measured = Vec::new();
        for file in &files {
            let rates = measure(file, options.mib, turn as u64);
            measured.push(rates.with_context(|| file.display().to_string())?);
        }
        turns.push(measured);
    }
    for file in &files {
        fs::remove_file(file)?;
    }
    for (row, (name, unit)) in ROWS.iter().enumerate() {
        println!("{name} ({unit})");
        for (nth, folder) in options.folders.iter().enumerate() {
            let rate = |turn: &Vec<[f64; ROWS.len()]>, nth: usize| {
                turn.get(nth).and_then(|rates| rates.get(row)).copied().unwrap_or(f64::NAN)
            };
            let rates = turns.iter().map(|turn| rate(turn, nth)).collect();
            let ratios = turns.iter().map(|turn| rate(turn, nth) / rate(turn, 0)).collect();
            let (rate, ratio) = (median(rates), median(ratios));
            println!("    {rate:>12.0}  {ratio:>6.2}  {}", folder.display());
        }
    }
    Ok(())
}

fn make(file: &Path, mib: usize) -> Result<()> {
    let doing = || format!("make {}", file.display());
    let mut out = File::create(file).with_context(doing)?;
    let mut piece = vec![0; MIB];
    for at in 0..mib {
        // Nothing that a file system could leave out.
        let mut word = at as u64 + 1;
        for bytes in piece.chunks_exact_mut(8) {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        out.write_all(&piece).with_context(doing)?;
    }
    out.sync_all().with_context(doing)
}

fn measure(path: &Path, mib: usize, seed: u64) -> Result<[f64; ROWS.len()]> {
    forget()?;
    let cold = sequential(path, mib)?;
    forget()?;
    let jumps = random(path, (mib, JUMPS), seed)?;
    forget()?;
    let together = at_once(path, mib, seed)?;
    sequential(path, mib)?;
    Ok([cold, jumps, together, sequential(path, mib)?, random(path, (mib, WARM_JUMPS), seed)?])
}

/// MiB in a second.
fn sequential(path: &Path, mib: usize) -> Result<f64> {
    let (file, mut piece) = (File::open(path)?, vec![0; MIB]);
    let began = Instant::now();
    for at in 0..mib {
        file.read_exact_at(&mut piece, (at * MIB) as u64)?;
    }
    Ok(rate(mib as u64, began.elapsed()))
}

/// Reads in a second.
fn random(path: &Path, (mib, count): (usize, u64), seed: u64) -> Result<f64> {
    let (file, mut block) = (File::open(path)?, vec![0; BLOCK]);
    let blocks = (mib * MIB / BLOCK) as u64;
    let mut word = seed + 1;
    let began = Instant::now();
    for _ in 0..count {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        file.read_exact_at(&mut block, (word >> 20) % blocks * BLOCK as u64)?;
    }
    Ok(rate(count, began.elapsed()))
}

/// Reads in a second of all readers.
fn at_once(path: &Path, mib: usize, seed: u64) -> Result<f64> {
    std::thread::scope(|scope| {
        let seeds = (0..READERS).map(|reader| seed * READERS + reader + (1 << 32));
        let readers: Vec<_> =
            seeds.map(|seed| scope.spawn(move || random(path, (mib, JUMPS), seed))).collect();
        let rates = readers.into_iter().map(|reader| match reader.join() {
            Ok(rate) => rate,
            Err(_) => bail!("a reader has failed"),
        });
        rates.sum()
    })
}

fn rate(count: u64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}

/// Has the kernel forget what it has of all files.
fn forget() -> Result<()> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").context("drop the caches, which root may")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

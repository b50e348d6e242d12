//! Rates of single operations, one process and one thread, the same calls on every folder.
//! Reads and stats come after the kernel's caches were dropped, so that the file system
//! answers and not its page cache; without permission to drop them the table says so.
//!
//! Folders are measured in turns, each kind of operation on all of them right after each
//! other and several times over, so that what else the machine does meanwhile meets all of
//! them. The table shows medians, and the median of the ratios within a turn.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

/// Bytes of one read or write.
const CHUNK_BYTES: usize = 1 << 20;
/// Files in one folder.
const FILES_PER_FOLDER: u32 = 5000;

/// A folder with the title of its column.
#[derive(Debug, Clone)]
pub struct Column {
    title: String,
    dir: PathBuf,
}

/// Parses `TITLE=DIR`.
pub fn column(text: &str) -> Result<Column> {
    let (title, dir) = text.split_once('=').context("it has the form TITLE=DIR")?;
    Ok(Column { title: title.to_owned(), dir: dir.into() })
}

/// What is measured, in the order it is done.
const ROWS: [(&str, &str); 7] = [
    ("create an empty file", "files/s"),
    ("stat, uncached", "files/s"),
    ("stat again", "files/s"),
    ("unlink", "files/s"),
    ("write 1 MiB blocks and fsync", "MiB/s"),
    ("read 1 MiB blocks, uncached", "MiB/s"),
    ("create, write 4 KiB, fsync", "files/s"),
];

/// Files of the last row: every one of them waits for the disk.
const SYNCED_FILES: u32 = 300;
/// Turns.
const ROUNDS: u32 = 5;

/// Rates of one row: of each turn, of each folder.
type Turns = Vec<Vec<f64>>;

/// Measures all folders and prints the table.
pub fn run(files: u32, mib: u32, columns: &[Column]) -> Result<()> {
    let dirs: Vec<_> = columns.iter().map(|column| column.dir.join("rates")).collect();
    let mut rows: Vec<Turns> = vec![Vec::new(); ROWS.len()];
    let mut dropped = true;
    for round in 0..ROUNDS {
        for dir in &dirs {
            fs::create_dir(dir).with_context(|| format!("create {}", dir.display()))?;
        }
        let measured = turn(round, &dirs, (files / ROUNDS, mib.div_ceil(ROUNDS)), &mut rows);
        for dir in &dirs {
            fs::remove_dir_all(dir)?;
        }
        dropped &= measured?;
    }
    print(columns, &rows);
    if !dropped {
        println!("(the kernel's caches could not be dropped: uncached rows are cached ones)");
    }
    Ok(())
}

/// One turn: all operations on all folders. Whether caches were dropped where they should be.
fn turn(
    round: u32,
    dirs: &[PathBuf],
    (files, mib): (u32, u32),
    rows: &mut [Turns],
) -> Result<bool> {
    let mut dropped = true;
    for dir in dirs {
        for folder in 0..=files / FILES_PER_FOLDER {
            fs::create_dir(dir.join(format!("d{folder}")))?;
        }
    }
    for (at, (row, (what, _))) in rows.iter_mut().zip(ROWS).enumerate() {
        if what.ends_with("uncached") {
            dropped &= drop_caches();
        }
        let mut rates = vec![0.0; dirs.len()];
        let mut order: Vec<_> = dirs.iter().zip(&mut rates).collect();
        // Nobody is always the first.
        if round % 2 == 1 {
            order.reverse();
        }
        for (dir, measured) in order {
            *measured = operation(at, dir, files, mib)
                .with_context(|| format!("{what} in {}", dir.display()))?;
        }
        row.push(rates);
    }
    Ok(dropped)
}

/// The rate of a row's operation in one folder, per second.
fn operation(row: usize, dir: &Path, files: u32, mib: u32) -> Result<f64> {
    let path = |n: u32| dir.join(format!("d{}/f{n}", n / FILES_PER_FOLDER));
    let big = dir.join("big");
    match row {
        0 => rate(files, || (0..files).try_for_each(|n| File::create_new(path(n)).map(drop))),
        1 | 2 => rate(files, || {
            (0..files).try_for_each(|n| {
                let attr = fs::symlink_metadata(path(n))?;
                ensure!(attr.len() == 0, "an empty file is not empty");
                Ok(())
            })
        }),
        3 => rate(files, || (0..files).try_for_each(|n| fs::remove_file(path(n)))),
        4 => rate(mib, || write(&big, mib)),
        5 => rate(mib, || read(&big, mib)),
        _ => rate(SYNCED_FILES / ROUNDS, || {
            (0..SYNCED_FILES / ROUNDS).try_for_each(|n| {
                let mut file = File::create_new(dir.join(format!("s{n}")))?;
                file.write_all(&[7; 4096])?;
                file.sync_all()
            })
        }),
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn print(columns: &[Column], rows: &[Turns]) {
    let cell = |text: &str| format!("{text:>18}");
    let ratio = if columns.len() > 1 { "ratio" } else { "" };
    let titles: String = columns.iter().map(|column| cell(&column.title)).collect();
    println!("{:<42}{titles}{ratio:>10}", "one process, one thread");
    for ((what, unit), turns) in ROWS.iter().zip(rows) {
        let of = |at: usize| turns.iter().filter_map(move |rates| rates.get(at).copied());
        let rates = (0..columns.len()).map(|at| cell(&format!("{:.0}", median(of(at)))));
        let rates: String = rates.collect();
        let ratios = of(columns.len() - 1).zip(of(0)).map(|(last, first)| last / first);
        let ratio =
            if columns.len() > 1 { format!("{:.2}", median(ratios)) } else { String::new() };
        println!("{:<42}{rates}{ratio:>10}", format!("{what} ({unit})"));
    }
}

fn rate<E: Into<anyhow::Error>>(count: u32, work: impl FnOnce() -> Result<(), E>) -> Result<f64> {
    let start = Instant::now();
    work().map_err(Into::into)?;
    Ok(f64::from(count) / start.elapsed().as_secs_f64())
}

/// Block number `n` of the large file: no two are alike, no file system can squeeze them much.
fn fill(block: &mut [u8], n: u32) {
    let mut state = u64::from(n) << 32 | 1;
    for word in block.chunks_exact_mut(8) {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        word.copy_from_slice(&state.to_le_bytes());
    }
}

fn write(path: &Path, mib: u32) -> Result<()> {
    let mut block = vec![0; CHUNK_BYTES];
    fill(&mut block, 0);
    let mut file = File::create_new(path)?;
    for n in 0..mib {
        // A number in each block is enough to tell them apart when they are read.
        if let Some(head) = block.first_chunk_mut() {
            *head = n.to_le_bytes();
        }
        file.write_all(&block)?;
    }
    Ok(file.sync_all()?)
}

fn read(path: &Path, mib: u32) -> Result<()> {
    let mut block = vec![0; CHUNK_BYTES];
    let mut file = File::open(path)?;
    for n in 0..mib {
        file.read_exact(&mut block)?;
        ensure!(block.first_chunk() == Some(&n.to_le_bytes()), "block {n} is another one");
    }
    ensure!(file.read(&mut block)? == 0, "more was read than was written");
    Ok(())
}

/// Makes the kernel forget clean pages and names of all file systems.
fn drop_caches() -> bool {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

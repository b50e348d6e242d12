//! Rates of single operations, one process and one thread, the same calls on every folder.
//! Reads and stats come after the kernel's caches were dropped, so that the file system
//! answers and not its page cache; without permission to drop them the table says so.

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
pub(crate) struct Column {
    title: String,
    dir: PathBuf,
}

/// Parses `TITLE=DIR`.
pub(crate) fn column(text: &str) -> Result<Column> {
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

/// Measures all folders and prints the table.
pub(crate) fn run(files: u32, mib: u32, columns: &[Column]) -> Result<()> {
    let mut results = Vec::new();
    let mut dropped = true;
    for column in columns {
        let dir = column.dir.join("rates");
        fs::create_dir(&dir).with_context(|| format!("create {}", dir.display()))?;
        let measured = measure(&dir, files, mib, &mut dropped);
        fs::remove_dir_all(&dir)?;
        results.push(measured?);
    }
    let title = |text: &str| format!("{text:>18}");
    let titles: String = columns.iter().map(|column| title(&column.title)).collect();
    println!("{:<42}{titles}", "one process, one thread");
    for (at, (what, unit)) in ROWS.iter().enumerate() {
        let cells = results.iter().filter_map(|column| column.get(at));
        let cells: String = cells.map(|rate| title(&format!("{rate:.0}"))).collect();
        println!("{:<42}{cells}", format!("{what} ({unit})"));
    }
    if !dropped {
        println!("(the kernel's caches could not be dropped: uncached rows are cached ones)");
    }
    Ok(())
}

fn measure(dir: &Path, files: u32, mib: u32, dropped: &mut bool) -> Result<Vec<f64>> {
    let mut rates = Vec::new();
    let path = |n: u32| dir.join(format!("d{}/f{n}", n / FILES_PER_FOLDER));
    for folder in 0..=files / FILES_PER_FOLDER {
        fs::create_dir(dir.join(format!("d{folder}")))?;
    }
    rates.push(rate(files, || (0..files).try_for_each(|n| File::create_new(path(n)).map(drop)))?);
    *dropped &= drop_caches();
    let stat = || {
        (0..files).try_for_each(|n| {
            fs::symlink_metadata(path(n)).map(|attr| assert_eq!(attr.len(), 0, "an empty file"))
        })
    };
    rates.push(rate(files, stat)?);
    rates.push(rate(files, stat)?);
    rates.push(rate(files, || (0..files).try_for_each(|n| fs::remove_file(path(n))))?);
    let big = dir.join("big");
    rates.push(rate(mib, || write(&big, mib))?);
    *dropped &= drop_caches();
    rates.push(rate(mib, || read(&big, mib))?);
    fs::remove_file(&big)?;
    rates.push(rate(SYNCED_FILES, || {
        (0..SYNCED_FILES).try_for_each(|n| {
            let mut file = File::create_new(dir.join(format!("s{n}")))?;
            file.write_all(&[7; 4096])?;
            file.sync_all()
        })
    })?);
    Ok(rates)
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

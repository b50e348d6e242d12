//! Decides the metadata index: docs/decisions/0003-metadata-index.md.
//!
//! `index_bench fill ENGINE DIR [inodes N] [cache MIB] [memtable MIB] [dirs N] [rate OPS] [mixed SECONDS]`
//! creates N inodes (with some stats and unlinks), then mixes create, stat and
//! unlink; `index_bench open ENGINE DIR ...` opens what `fill` left and reads
//! it cold. Give the process its memory limit from outside (a cgroup).
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a benchmark"
)]

mod engines;
mod hist;
mod store;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hist::Hist;
use store::Store;

struct Options {
    engine: String,
    dir: PathBuf,
    inodes: u64,
    cache: u64,
    memtable: u64,
    dirs: u64,
    rate: u64,
    mixed: u64,
}

fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Eight clients draw FIDs from their own sequences of 2^17 objects.
fn inode_key(i: u64) -> [u8; 13] {
    let (client, n) = (i % 8, i / 8);
    let mut key = [1; 13];
    key[1..9].copy_from_slice(&(0x2_0000_0400 + client + 8 * (n >> 17)).to_be_bytes());
    key[9..13].copy_from_slice(&((n & 0x1_ffff) as u32).to_be_bytes());
    key
}

fn dir_key(dir: u64) -> [u8; 13] {
    let mut key = [1; 13];
    key[1..9].copy_from_slice(&0x2_0000_0007u64.to_be_bytes());
    key[9..13].copy_from_slice(&(dir as u32).to_be_bytes());
    key
}

/// Entries of a directory stand in the order of a hash of their names.
fn entry_key(i: u64, dirs: u64) -> [u8; 21] {
    let mut key = [2; 21];
    key[1..13].copy_from_slice(&dir_key(mix(i) % dirs)[1..]);
    key[13..21].copy_from_slice(&(mix(i ^ 0x5a5a) >> 1).to_be_bytes());
    key
}

fn value<const N: usize>(i: u64) -> [u8; N] {
    let mut value = [0; N];
    let mut x = i;
    for chunk in value.chunks_mut(8) {
        chunk.copy_from_slice(&x.to_le_bytes()[..chunk.len()]);
        x = mix(x) & 0xffff_ffff;
    }
    value
}

struct Run {
    store: Store,
    o: Options,
    created: u64,
    live: u64,
    bits: Vec<u64>,
    rng: u64,
    creates: Hist,
    recent_creates: Hist,
    stats: Hist,
    unlinks: Hist,
    reads: Hist,
    reads_checkpoint: Hist,
}

impl Run {
    fn random(&mut self) -> u64 {
        self.rng = self.rng.wrapping_add(1);
        mix(self.rng)
    }

    fn is_live(&self, i: u64) -> bool {
        self.bits[(i / 64) as usize] >> (i % 64) & 1 == 1
    }

    fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let during = self.store.shared.checkpointing.load(Relaxed);
        let (value, ns) = self.store.get(key)?;
        if let Some(ns) = ns {
            let hist = if during { &mut self.reads_checkpoint } else { &mut self.reads };
            hist.add(ns);
        }
        Ok(value)
    }

    fn create(&mut self) -> Result<()> {
        let i = self.created;
        let entry = entry_key(i, self.o.dirs);
        ensure!(self.get(&entry)?.is_none(), "entry {i} exists");
        self.store.put(&entry, Some(&value::<45>(i)));
        self.store.put(&inode_key(i), Some(&value::<110>(i)));
        self.store.put(&dir_key(mix(i) % self.o.dirs), Some(&value::<110>(i)));
        self.created += 1;
        self.live += 1;
        if self.bits.len() as u64 * 64 <= i {
            self.bits.push(0);
        }
        self.bits[(i / 64) as usize] |= 1 << (i % 64);
        Ok(())
    }

    fn stat(&mut self) -> Result<()> {
        let i = self.random() % self.created;
        let entry = self.get(&entry_key(i, self.o.dirs))?;
        ensure!(entry.is_some() == self.is_live(i), "stat {i}: entry");
        if entry.is_some() {
            let inode = self.get(&inode_key(i))?.context("no inode")?;
            ensure!(inode == value::<110>(i), "stat {i}: inode");
        }
        Ok(())
    }

    fn unlink(&mut self) -> Result<()> {
        let i = self.random() % self.created;
        let entry = entry_key(i, self.o.dirs);
        if self.get(&entry)?.is_some() {
            self.get(&inode_key(i))?.context("no inode")?;
            self.store.put(&entry, None);
            self.store.put(&inode_key(i), None);
            self.store.put(&dir_key(mix(i) % self.o.dirs), Some(&value::<110>(i)));
            self.bits[(i / 64) as usize] &= !(1 << (i % 64));
            self.live -= 1;
        }
        Ok(())
    }

    /// One operation in 20 each is a stat and an unlink, or one in three.
    fn step(&mut self, filling: bool) -> Result<()> {
        let begin = Instant::now();
        let dice = self.random() % if filling { 20 } else { 3 };
        let dice = if self.created == 0 { 2 } else { dice };
        match dice {
            0 => self.stat()?,
            1 => self.unlink()?,
            _ => self.create()?,
        }
        self.store.breathe()?;
        let hist = match dice {
            0 => &mut self.stats,
            1 => &mut self.unlinks,
            _ => &mut self.creates,
        };
        let ns = begin.elapsed().as_nanos() as u64;
        hist.add(ns);
        if dice > 1 {
            self.recent_creates.add(ns);
        }
        Ok(())
    }

    fn report(&mut self, since: Instant, n: u64) {
        let shared = &self.store.shared;
        println!(
            "live {:5.2} M  {:7.0} op/s  create {}  waited {:.1} s  checkpoints {} avg {} max {} ms  journal max {} ms  locks max {} ms  sleep max {} ms  {}  mem {} MB",
            self.live as f64 / 1e6,
            n as f64 / since.elapsed().as_secs_f64(),
            self.recent_creates.short(),
            self.store.waited.as_secs_f64(),
            shared.checkpoints.load(Relaxed),
            shared.checkpoint_ms.load(Relaxed) / shared.checkpoints.load(Relaxed).max(1),
            shared.checkpoint_ms_max.swap(0, Relaxed),
            shared.journal_us_max.swap(0, Relaxed) / 1000,
            shared.lock_us_max.swap(0, Relaxed) / 1000,
            shared.sleep_us_max.swap(0, Relaxed) / 1000,
            shared.engine.note(),
            anonymous_mb(),
        );
        self.store.waited = Duration::ZERO;
        self.recent_creates = Hist::default();
    }

    fn report_latency(&mut self, what: &str) {
        println!("{what}: create {}", self.creates.line());
        println!("{what}: stat   {}", self.stats.line());
        println!("{what}: unlink {}", self.unlinks.line());
        println!("{what}: index reads {}", self.reads.line());
        println!("{what}: index reads during checkpoints {}", self.reads_checkpoint.line());
        self.creates = Hist::default();
        self.stats = Hist::default();
        self.unlinks = Hist::default();
        self.reads = Hist::default();
        self.reads_checkpoint = Hist::default();
    }
}

/// Anonymous memory of this process in megabytes.
fn anonymous_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("RssAnon")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) / 1000
}

fn disk_mb(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(meta) = std::fs::symlink_metadata(path) else { return 0 };
    if !meta.is_dir() {
        return meta.blocks() * 512 / 1_000_000;
    }
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|e| disk_mb(&e.path())).sum()
}

fn fill(o: Options) -> Result<()> {
    std::fs::create_dir_all(&o.dir)?;
    let engine = engines::open(&o.engine, &o.dir.join("index"), o.cache << 20)?;
    let store = Store::new(engine, o.memtable << 20, &o.dir.join("journal"))?;
    let mut run = Run {
        store,
        o,
        created: 0,
        live: 0,
        bits: Vec::new(),
        rng: 1,
        creates: Hist::default(),
        recent_creates: Hist::default(),
        stats: Hist::default(),
        unlinks: Hist::default(),
        reads: Hist::default(),
        reads_checkpoint: Hist::default(),
    };
    let start = Instant::now();
    let (mut since, mut n, mut next) = (Instant::now(), 0, 0);
    while run.live < run.o.inodes {
        run.step(true)?;
        n += 1;
        if run.live >= next + run.o.inodes / 20 {
            run.report(since, n);
            (since, n, next) = (Instant::now(), 0, run.live);
        }
    }
    println!("filled in {:.1} s", start.elapsed().as_secs_f64());
    run.report_latency("fill");
    (since, n) = (Instant::now(), 0);
    let end = Instant::now() + Duration::from_secs(run.o.mixed);
    while Instant::now() < end {
        run.step(false)?;
        n += 1;
        if let Some(ns) = (n * 1_000_000_000).checked_div(run.o.rate)
            && let Some(wait) =
                (since + Duration::from_nanos(ns)).checked_duration_since(Instant::now())
            && wait > Duration::from_micros(100)
        {
            std::thread::sleep(wait);
        }
    }
    run.report(since, n);
    run.report_latency("mixed");
    let Run { store, created, live, bits, o, .. } = run;
    let begin = Instant::now();
    store.close()?;
    println!(
        "closed in {:.1} s, {} MB on disk",
        begin.elapsed().as_secs_f64(),
        disk_mb(&o.dir.join("index"))
    );
    let mut state = Vec::new();
    for word in [created, live].iter().chain(&bits) {
        state.extend_from_slice(&word.to_le_bytes());
    }
    std::fs::write(o.dir.join("state"), state)?;
    Ok(())
}

fn reopen(o: &Options) -> Result<()> {
    let state = std::fs::read(o.dir.join("state"))?;
    let words: Vec<u64> =
        state.chunks(8).map(|c| u64::from_le_bytes(c.try_into().expect("8 bytes"))).collect();
    let (created, live, bits) = (words[0], words[1], &words[2..]);
    let begin = Instant::now();
    let engine = engines::open(&o.engine, &o.dir.join("index"), o.cache << 20)?;
    let lsn = engine.lsn()?;
    println!("opened in {:.3} s, lsn {lsn:?}", begin.elapsed().as_secs_f64());
    let mut cold = Hist::default();
    let mut x = 77;
    for _ in 0..20_000 {
        x = mix(x);
        let i = x % created;
        let begin = Instant::now();
        let entry = engine.get(&entry_key(i, o.dirs))?;
        cold.add(begin.elapsed().as_nanos() as u64);
        ensure!(entry.is_some() == (bits[(i / 64) as usize] >> (i % 64) & 1 == 1), "entry {i}");
        let begin = Instant::now();
        let inode = engine.get(&inode_key(i))?;
        cold.add(begin.elapsed().as_nanos() as u64);
        ensure!(inode.is_some() == entry.is_some(), "inode {i}");
    }
    println!("cold reads: {}", cold.line());
    let mut total = 0;
    for round in ["cold", "again"] {
        let begin = Instant::now();
        let mut n = 0u64;
        let (from, mut to) = ([2; 21], [2; 21]);
        let (mut from, dir) = (from, dir_key(3));
        from[1..13].copy_from_slice(&dir[1..]);
        from[13..].fill(0);
        to[1..13].copy_from_slice(&dir[1..]);
        to[13..].fill(0xff);
        engine.scan(&from, &to, &mut |_, _| n += 1)?;
        let rate = n as f64 / begin.elapsed().as_secs_f64();
        println!("scan of a directory of {n} entries, {round}: {rate:.0} entries/s");
        total = n;
    }
    ensure!(total > 0 && live > 0);
    Ok(())
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [mode, engine, dir, rest @ ..] = args.as_slice() else {
        anyhow::bail!("index_bench fill|open ENGINE DIR [OPTION VALUE]...");
    };
    let option = |name: &str, default: u64| -> Result<u64> {
        match rest.chunks(2).find(|pair| pair[0] == name) {
            Some([_, n]) => n.parse().context("not a number"),
            _ => Ok(default),
        }
    };
    let o = Options {
        engine: engine.clone(),
        dir: PathBuf::from(dir),
        inodes: option("inodes", 1_000_000)?,
        cache: option("cache", 192)?,
        memtable: option("memtable", 96)?,
        dirs: option("dirs", 16)?,
        rate: option("rate", 0)?,
        mixed: option("mixed", 30)?,
    };
    match mode.as_str() {
        "fill" => fill(o),
        "open" => reopen(&o),
        other => anyhow::bail!("no mode {other}"),
    }
}

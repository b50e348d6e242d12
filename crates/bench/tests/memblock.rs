//! What `memblock` takes is locked to the last byte, also where the allocator (here the one that
//! `sateen` has) gives out memory that it has mapped long before.
#![allow(clippy::unwrap_used, reason = "test code")]

use sateen_bench::cli;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// KiB that were locked while this much was held.
fn locked_kib(share: &str) -> u64 {
    let notes =
        std::env::temp_dir().join(format!("sateen-memblock-{}-{share}", std::process::id()));
    let script = "grep ^Locked: /proc/$PPID/smaps_rollup >\"$0\"";
    let words = ["sateen-bench", "--quiet", "memblock", share, "--", "sh", "-c", script];
    let words = words.map(Into::into).into_iter().chain([notes.clone().into()]);
    let code = cli::run(&cli::parse(words).bench, None);
    let said = std::fs::read_to_string(&notes).unwrap_or_default();
    let _ = std::fs::remove_file(&notes);
    assert_eq!(code, 0, "{share}: {said}");
    said.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn every_byte_is_locked_and_nothing_else_is() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).maximum;
    let most = limit.filter(|_| !rustix::process::geteuid().is_root()).unwrap_or(u64::MAX) >> 10;
    for (share, kib) in [("1", 4), ("40k", 40), ("3m", 3 << 10), ("150m", 150 << 10)] {
        if kib > most {
            eprintln!("{share}: only {most} KiB may be locked");
            continue;
        }
        // In whole pages, of 64 KiB at most.
        let found = locked_kib(share);
        assert!((kib..kib + 64).contains(&found), "{share}: {found} KiB");
    }
}

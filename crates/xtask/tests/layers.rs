//! Who may use whom, what the deterministic core may use at all, and where `unsafe` may stand:
//! the rooms of docs/sourcetree.md, enforced.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use sateen_xtask::{Package, Source, packages, sources};

/// What kind of room it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Events in, effects out; what both sides share.
    Shared,
    /// The same, of the servers alone.
    Server,
    /// The same, of the client alone.
    Client,
    /// A backend, seen only through the ports.
    Backend,
    /// It has threads, clocks, sockets or files.
    Driver,
    /// It proves the others; nothing that a user runs may use it.
    Proof,
}

/// Every room with its height: a room may use lower ones only.
const ROOMS: [(&str, u32, Kind); 26] = [
    ("types", 0, Kind::Shared),
    ("wire", 1, Kind::Shared),
    ("journal", 2, Kind::Shared),
    ("ldlm", 2, Kind::Shared),
    ("osd", 4, Kind::Server),
    ("osd-disk", 5, Kind::Backend),
    ("target", 5, Kind::Server),
    ("mdt", 6, Kind::Server),
    ("mgs", 6, Kind::Server),
    ("ost", 6, Kind::Server),
    ("client", 6, Kind::Client),
    ("meter", 6, Kind::Driver),
    ("polling", 6, Kind::Driver),
    ("fsck", 7, Kind::Driver),
    ("lnd", 7, Kind::Driver),
    ("reactor", 8, Kind::Driver),
    ("fuse", 9, Kind::Driver),
    ("model", 10, Kind::Driver),
    ("mount", 10, Kind::Driver),
    ("report", 10, Kind::Driver),
    ("bench", 11, Kind::Driver),
    ("bench-cli", 12, Kind::Driver),
    ("sateen", 12, Kind::Driver),
    ("testkit", 13, Kind::Proof),
    ("sim", 14, Kind::Proof),
    ("xtask", 15, Kind::Proof),
];

/// Rooms that may name a backend: the command line chooses one.
const CHOOSES_BACKEND: [&str; 1] = ["sateen"];

/// Crates of others that the deterministic core may use: they do nothing but compute.
const PURE_CRATES: [&str; 8] = [
    "bytes",
    "crc-fast",
    "pin-project-lite",
    "smallvec",
    "thiserror",
    "tracing",
    "xxhash-rust",
    "zerocopy",
];

/// What the core must not touch, since it would then not repeat.
const IMPURE: [&str; 13] = [
    "std::fs",
    "std::net",
    "std::thread",
    "std::process",
    "std::env",
    "std::os",
    "Instant",
    "SystemTime",
    "rand::",
    "getrandom",
    "RandomState",
    "HashMap",
    "HashSet",
];

/// The one place that may name a hash map: it gives it a fixed hasher.
const FIXED_HASHER: &str = "crates/types/src/hash.rs";

/// The one room that may use MPI, as a feature.
const LINKS_MPI: &str = "bench-cli";

/// Rooms that may say `unsafe`.
const UNSAFE: [&str; 6] = ["bench", "bench-cli", "fuse", "lnd", "osd-disk", "reactor"];

/// The only file of a room that may, where it is one.
const UNSAFE_ONLY_IN: [(&str, &str); 3] = [
    ("bench", "crates/bench/src/sys.rs"),
    ("bench-cli", "crates/bench-cli/src/mpiio/raw.rs"),
    ("lnd", "crates/lnd/src/shm/mapping.rs"),
];

/// How far above an `unsafe` block its argument may begin.
const SAFETY_LINES_MAX: usize = 12;

fn room(name: &str) -> (u32, Kind) {
    let found = ROOMS.iter().find(|room| room.0 == name);
    let found = found.unwrap_or_else(|| {
        panic!("crates/{name} has no layer: give it one here and in docs/sourcetree.md")
    });
    (found.1, found.2)
}

fn is_pure(name: &str) -> bool {
    matches!(room(name).1, Kind::Shared | Kind::Server | Kind::Client)
}

fn none(broken: &[String]) {
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
}

/// Why a package may not use a room of ours, if it may not.
fn refusal(user: &Package, used: &str, dev: bool) -> Option<&'static str> {
    let (height, kind) = room(&user.room);
    let (used_height, used_kind) = room(used);
    let proof = dev || kind == Kind::Proof;
    match (kind, used_kind) {
        (_, Kind::Proof) if !proof => Some("nothing that a user runs stands on proofs"),
        (_, Kind::Proof) => None,
        (Kind::Client, Kind::Server) => Some("servers and client meet in wire and ldlm"),
        (Kind::Server, Kind::Client) => Some("servers and client meet in wire and ldlm"),
        (_, Kind::Backend) if !proof && !CHOOSES_BACKEND.contains(&user.room.as_str()) => {
            Some("backends are seen only through osd")
        }
        _ if used_height >= height => Some("a room uses lower ones only"),
        _ => None,
    }
}

#[test]
fn rooms_use_lower_ones_only() {
    let mut broken = Vec::new();
    let packages = packages();
    assert!(packages.len() > 10, "the workspace was found");
    for package in &packages {
        for dependency in &package.dependencies {
            let Some(used) = &dependency.room else { continue };
            if let Some(why) = refusal(package, used, dependency.dev) {
                broken.push(format!("crates/{} uses crates/{used}: {why}", package.room));
            }
        }
    }
    // A room that is not there would be believed to be one.
    for (name, ..) in ROOMS {
        if !packages.iter().any(|package| package.room == name) {
            broken.push(format!("there is no crates/{name}"));
        }
    }
    none(&broken);
}

#[test]
fn the_core_uses_crates_that_only_compute() {
    let mut broken = Vec::new();
    for package in packages().iter().filter(|package| is_pure(&package.room)) {
        for dependency in package.dependencies.iter().filter(|one| !one.dev) {
            if dependency.room.is_none() && !PURE_CRATES.contains(&dependency.name.as_str()) {
                broken.push(format!("crates/{} uses {}", package.room, dependency.name));
            }
        }
    }
    none(&broken);
}

#[test]
fn mpi_is_a_choice_of_one_program() {
    let mut broken = Vec::new();
    let mut there = false;
    for package in packages() {
        for one in package.dependencies.iter().filter(|one| one.name.starts_with("mpi")) {
            there |= package.room == LINKS_MPI;
            if package.room != LINKS_MPI {
                broken.push(format!("crates/{} uses {}", package.room, one.name));
            } else if !one.optional {
                broken.push(format!("crates/{} cannot be without {}", package.room, one.name));
            }
        }
    }
    assert!(there, "what uses it was found");
    none(&broken);
}

/// The files of the deterministic core that a user runs.
fn core() -> Vec<Source> {
    let mut all = sources(&[".rs"]);
    all.retain(|source| source.is_production() && source.room().is_some_and(is_pure));
    assert!(all.len() > 50, "the core was found");
    all
}

#[test]
fn the_core_has_no_clock_thread_file_or_chance() {
    let mut broken = Vec::new();
    for source in core() {
        for (at, line) in source.code() {
            for word in IMPURE {
                if line.contains(word) && source.path != FIXED_HASHER {
                    broken.push(format!("{}:{at}: {word}", source.path));
                }
            }
        }
    }
    none(&broken);
}

/// Names that a file declares as hash maps with the fixed hasher: `name: FastMap<...`.
fn hash_maps(source: &Source) -> Vec<&str> {
    let declared = source.code().filter_map(|(_, line)| {
        let (name, _) = line.split_once(": FastMap<").or_else(|| line.split_once(": FastSet<"))?;
        name.rsplit(|c: char| !c.is_alphanumeric() && c != '_').next()
    });
    declared.filter(|name| !name.is_empty()).collect()
}

#[test]
fn the_core_walks_no_hash_map() {
    let mut broken = Vec::new();
    for source in core() {
        for name in hash_maps(&source) {
            let walks =
                [".iter()", ".iter_mut()", ".keys()", ".values()", ".values_mut()", ".drain("]
                    .map(|walk| format!("{name}{walk}"));
            let loops = [format!("in &self.{name} "), format!("in self.{name} ")];
            for (at, line) in source.code() {
                if walks.iter().chain(&loops).any(|walk| line.contains(walk)) {
                    broken.push(format!("{}:{at}: the order of {name} is chance", source.path));
                }
            }
        }
    }
    none(&broken);
}

#[test]
fn unsafe_stands_where_it_may_and_is_argued() {
    let mut broken = Vec::new();
    for source in sources(&[".rs"]) {
        let elsewhere =
            |room| UNSAFE_ONLY_IN.iter().any(|(one, file)| *one == room && *file != source.path);
        let may = |room| UNSAFE.contains(&room) && !elsewhere(room);
        let allowed = source.room().is_some_and(may);
        let lines: Vec<&str> = source.text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let block = code.contains("unsafe {") || code.contains("unsafe impl");
            if code.contains('"') || !(block || code.contains("unsafe fn")) {
                continue;
            }
            let before = &lines[at.saturating_sub(SAFETY_LINES_MAX)..=at];
            if !allowed {
                broken.push(format!("{}:{}: unsafe is not for this room", source.path, at + 1));
            } else if block && !before.iter().any(|line| line.contains("SAFETY:")) {
                broken.push(format!("{}:{}: no SAFETY argument", source.path, at + 1));
            }
        }
    }
    none(&broken);
}

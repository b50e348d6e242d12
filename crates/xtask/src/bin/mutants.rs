//! Tries a sample of mutants on the tests, for `scripts/mutants.sh`, which makes their list:
//!     mutants LIST TREE OUT
//! TREE is a copy of the repository that may be changed, and the current folder is in a clone of
//! it. First the tests of the mutant's own room are run, then those of the rooms beside it, at last
//! seeds of the simulator, until something fails, or comes to no end. OUT keeps what was found:
//! who is ended goes on there when it is started again.
#![allow(clippy::panic, clippy::expect_used, reason = "it serves tests only")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use sateen_xtask::mutants::{Mutant, SWITCH, listed, rank, shares, woven};
use serde_json::Value;

/// Whose code is mutated.
const ROOMS: [&str; 4] = ["journal", "target", "ldlm", "client"];
/// Whose tests run, besides the mutant's own. In this order.
const BESIDE: [&str; 5] = ["osd", "ost", "mgs", "mdt", "client"];
/// Tests that count allocations, which a choice between copies of a function makes some of.
const COUNTING: [&str; 2] = ["allocations", "memory"];
/// Who notices a mutant that no test does, and one that is none.
const NOBODY: &str = "nobody";
const BROKEN: &str = "the compiler";
/// Stages: tests of its own room, of those beside it, seeds.
const LAST: usize = 2;
/// So many of each room are tried at least.
const ROOM_MIN: usize = 30;
/// So many of a hundred must be noticed.
const KILLED_PERCENT_MIN: usize = 80;
/// What takes longer than without a mutant by so much comes to no end.
const SECONDS_MORE: u64 = 20;
/// What needs more memory fails.
const MEMORY_KIB_MAX: u64 = 8 << 20;

fn number(name: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name}={text}: a number is needed"))
}

/// A program that tests something.
#[derive(Clone)]
struct Test {
    room: String,
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
    folder: PathBuf,
    limit: Duration,
}

impl Test {
    /// What failed with this mutant, if anything did.
    fn fails(&self, mutant: u32, log: &Path) -> Option<String> {
        let out = fs::File::create(log).expect("a log can be made");
        let errors = out.try_clone().expect("a second handle");
        let limit = format!("ulimit -v {MEMORY_KIB_MAX}; exec \"$0\" \"$@\"");
        let mut command = Command::new("bash");
        command.args(["-c", &limit]).arg(&self.program).args(&self.arguments);
        command.current_dir(&self.folder).env("SATEEN_MUTANT", mutant.to_string());
        command.stdin(Stdio::null()).stdout(out).stderr(errors);
        let began = Instant::now();
        let mut child = command.spawn().expect("bash runs");
        loop {
            if let Some(status) = child.try_wait().expect("a child can be waited for") {
                return (!status.success()).then(|| failed(log, &status.to_string()));
            }
            let late = began.elapsed() > self.limit;
            // One that failed is enough: others may go on for long.
            let failed = first_failed(log);
            if late || failed.is_some() {
                child.kill().expect("a child can be killed");
                child.wait().expect("a child can be waited for");
                return failed
                    .or_else(|| Some(format!("no end within {} s", self.limit.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// What failed, of a program that has ended so.
fn failed(log: &Path, status: &str) -> String {
    let text = fs::read(log).expect("a log can be read");
    let text = String::from_utf8_lossy(&text);
    let panicked = || text.lines().skip_while(|line| !line.contains(" panicked at ")).nth(1);
    let found = first_failed(log).or_else(|| panicked().map(|line| format!("a panic: {line}")));
    found.unwrap_or_else(|| status.to_owned())
}

/// The first that a log calls failed so far: a test, or a seed of the simulator.
fn first_failed(log: &Path) -> Option<String> {
    let text = fs::read(log).expect("a log can be read");
    let text = String::from_utf8_lossy(&text);
    let seed = |line: &str| line.starts_with("seed ") && line.contains(" FAILED: ");
    text.lines().find_map(|line| {
        let test = line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED"));
        test.or_else(|| seed(line).then_some(line)).map(str::to_owned)
    })
}

/// The copy of the repository in which the mutants are.
struct Tree {
    root: PathBuf,
    /// Which mutant stands on which lines of which file.
    lines: BTreeMap<String, Vec<(u32, RangeInclusive<usize>)>>,
}

impl Tree {
    fn original(&self, file: &str) -> String {
        let mut git = Command::new("git");
        git.args(["show", &format!("HEAD:{file}")]).current_dir(&self.root);
        let shown = git.output().expect("git runs");
        assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
        String::from_utf8(shown.stdout).expect("sources are UTF-8")
    }

    /// Puts these mutants into the tree, and no others.
    fn weave(&mut self, all: &[(u32, &Mutant)], files: &BTreeSet<&str>) {
        self.lines.clear();
        // A constant function of another room calls one of these.
        let caller = "crates/mdt/src/ops/unlink.rs";
        let text = self.original(caller).replace("const fn ", "fn ");
        if fs::read_to_string(self.root.join(caller)).expect("a source can be read") != text {
            fs::write(self.root.join(caller), text).expect("a source can be written");
        }
        for room in ROOMS {
            let listed = Command::new("git")
                .args(["ls-files", &format!("crates/{room}/src/*.rs")])
                .current_dir(&self.root)
                .output()
                .expect("git runs");
            for file in String::from_utf8_lossy(&listed.stdout).lines() {
                let here: Vec<_> =
                    all.iter().filter(|(_, one)| one.file == file).copied().collect();
                let (mut text, lines) = woven(&self.original(file), &here);
                // A switch is nothing that a constant can ask.
                if files.contains(file) {
                    text = text.replace("const fn ", "fn ");
                }
                if file == format!("crates/{room}/src/lib.rs") {
                    text.push_str(SWITCH);
                }
                self.lines.insert(file.to_owned(), lines);
                let path = self.root.join(file);
                // What has not changed is not built again.
                if fs::read_to_string(&path).expect("a source can be read") != text {
                    fs::write(&path, text).expect("a source can be written");
                }
            }
        }
    }

    /// What cargo says in JSON, and whether it was content.
    fn cargo(&self, arguments: &[&str], rooms: &[&str]) -> (Vec<Value>, bool) {
        let mut cargo = Command::new("cargo");
        cargo.args(arguments).args(["--locked", "--profile", "ci", "--message-format=json", "-q"]);
        for room in rooms {
            cargo.args(["-p", &format!("sateen-{room}")]);
        }
        cargo.current_dir(&self.root).env("RUSTFLAGS", "--cap-lints=allow").stderr(Stdio::null());
        let said = cargo.output().expect("cargo runs");
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        (lines.collect(), said.status.success())
    }

    /// Mutants that do not compile; empty if all do.
    fn broken(&self) -> BTreeSet<u32> {
        let (said, content) = self.cargo(&["check"], &ROOMS);
        if content {
            return BTreeSet::new();
        }
        let mut found = BTreeSet::new();
        let mut others = Vec::new();
        for message in said.iter().filter_map(|line| line.get("message")) {
            if message.get("level").and_then(Value::as_str) != Some("error") {
                continue;
            }
            let spans = message.get("spans").and_then(Value::as_array);
            let before = found.len();
            for span in spans.into_iter().flatten() {
                let line = span.get("line_start").and_then(Value::as_u64).unwrap_or(0) as usize;
                let file = span.get("file_name").and_then(Value::as_str).unwrap_or_default();
                let here = self.lines.get(file).into_iter().flatten();
                found.extend(here.filter(|(_, lines)| lines.contains(&line)).map(|(n, _)| *n));
            }
            if found.len() == before {
                others.push(message.get("rendered").and_then(Value::as_str).unwrap_or_default());
            }
        }
        assert!(
            !found.is_empty(),
            "it does not compile, for no mutant's sake: {}",
            others.join("\n")
        );
        found
    }

    /// The programs that test these rooms.
    fn tests(&self, rooms: &[&str]) -> Vec<Test> {
        let (said, content) = self.cargo(&["test", "--no-run"], rooms);
        let root = self.root.display();
        assert!(content, "the tests do not compile: cargo test --no-run in {root}");
        let tests = said.iter().filter_map(program);
        tests.filter(|test| !COUNTING.contains(&test.name.as_str())).collect()
    }

    /// Seeds of the simulator's worlds.
    fn seeds(&self) -> Vec<Test> {
        let (said, content) = self.cargo(&["build"], &["sim"]);
        assert!(content, "the simulator does not compile in {}", self.root.display());
        let simulator = said.iter().find_map(program).expect("the simulator is a program");
        let seeds = number("MUTANT_SEEDS", 40);
        let worlds = [
            (seeds, ""),
            (seeds / 4, "--contention"),
            (seeds / 4, "--file-locks"),
            (seeds / 4, "--long-partitions"),
        ];
        let test = |(seeds, world): (u64, &str)| {
            let seeds = format!("1..{}", seeds + 1);
            let words = ["--seeds", &seeds, world].map(str::to_owned);
            let arguments = words.into_iter().filter(|word| !word.is_empty()).collect();
            let name = format!("{} {world}", simulator.name);
            Test { name, arguments, ..simulator.clone() }
        };
        worlds.into_iter().map(test).collect()
    }
}

/// A program that cargo says it has built.
fn program(said: &Value) -> Option<Test> {
    let folder = Path::new(said.get("manifest_path")?.as_str()?).parent()?.to_owned();
    Some(Test {
        room: folder.file_name()?.to_str()?.to_owned(),
        name: said.get("target")?.get("name")?.as_str()?.to_owned(),
        program: PathBuf::from(said.get("executable")?.as_str()?),
        arguments: Vec::new(),
        folder,
        limit: Duration::from_secs(600),
    })
}

/// What has been found, one line for each mutant: its name, who noticed it, and what failed.
struct Found {
    path: PathBuf,
    all: BTreeMap<String, (String, String)>,
}

impl Found {
    fn read(path: PathBuf) -> Found {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let line = |line: &str| {
            let (name, rest) = line.split_once('\t')?;
            let (who, what) = rest.split_once('\t')?;
            Some((name.to_owned(), (who.to_owned(), what.to_owned())))
        };
        Found { all: text.lines().filter_map(line).collect(), path }
    }

    fn add(&mut self, name: &str, who: &str, what: &str) {
        let file = fs::OpenOptions::new().append(true).create(true).open(&self.path);
        let what = what.replace(['\t', '\n'], " ");
        let mut file = file.expect("results can be kept");
        writeln!(file, "{name}\t{who}\t{what}").expect("results are kept");
        self.all.insert(name.to_owned(), (who.to_owned(), what));
    }

    /// Which stage is next for a mutant that nobody has noticed yet.
    fn stage(&self, name: &str) -> Option<usize> {
        self.who(name).map_or(Some(0), |who| who.parse().ok())
    }

    fn who(&self, name: &str) -> Option<&str> {
        self.all.get(name).map(|(who, _)| who.as_str())
    }
}

/// The sample: of each room its part, without those that do not compile.
fn sample<'a>(all: &'a [Mutant], found: &Found) -> Vec<(u32, &'a Mutant)> {
    let seed = number("MUTANT_SEED", 1);
    let mut rooms: Vec<Vec<(u32, &Mutant)>> = ROOMS.map(|_| Vec::new()).to_vec();
    for (number, one) in (1..).zip(all) {
        let room = ROOMS.iter().zip(&mut rooms).find(|(room, _)| **room == one.room);
        room.expect("a room that is mutated").1.push((number, one));
    }
    let sizes: Vec<usize> = rooms.iter().map(Vec::len).collect();
    let shares = shares(&sizes, number("MUTANTS", 200) as usize, ROOM_MIN);
    let mut taken = Vec::new();
    for (mut room, share) in rooms.into_iter().zip(shares) {
        room.sort_by_key(|(_, one)| rank(seed, one));
        let viable = room.into_iter().filter(|(_, one)| found.who(&one.name) != Some(BROKEN));
        taken.extend(viable.take(share));
    }
    taken
}

/// Builds the sample, without those that do not compile, which others replace.
fn build<'a>(tree: &mut Tree, all: &'a [Mutant], found: &mut Found) -> Vec<(u32, &'a Mutant)> {
    let files = all.iter().map(|one| one.file.as_str()).collect();
    loop {
        let chosen = sample(all, found);
        tree.weave(&chosen, &files);
        let broken = tree.broken();
        if broken.is_empty() {
            return chosen;
        }
        println!("{} of {} mutants do not compile", broken.len(), chosen.len());
        for (_, one) in chosen.iter().filter(|(number, _)| broken.contains(number)) {
            found.add(&one.name, BROKEN, "");
        }
    }
}

/// Runs tests, each of which must pass without a mutant, on those mutants that nobody has noticed
/// yet, and that a stage before this one has been at.
fn stage(
    (stage, tests): (usize, Vec<Test>),
    chosen: &[(u32, &Mutant)],
    found: &mut Found,
    log: &Path,
) {
    let mut tests = tests;
    for test in &mut tests {
        let began = Instant::now();
        let failed = test.fails(0, log);
        assert!(failed.is_none(), "without a mutant, {} of {}: {failed:?}", test.name, test.room);
        let took = began.elapsed();
        println!("{} of {}: {} ms", test.name, test.room, took.as_millis());
        test.limit = took * 5 + Duration::from_secs(SECONDS_MORE);
    }
    for (at, (number, one)) in chosen.iter().enumerate() {
        if found.stage(&one.name) != Some(stage) {
            continue;
        }
        // The tests of its room are not built yet.
        if stage == 0 && !tests.iter().any(|test| test.room == one.room) {
            continue;
        }
        let fit = |test: &&Test| match stage {
            0 => test.room == one.room,
            1 => test.room != one.room,
            _ => true,
        };
        let failed = tests.iter().filter(fit).find_map(|test| {
            let what = test.fails(*number, log)?;
            Some((test.room.clone(), format!("{}: {what}", test.name)))
        });
        let next = || if stage == LAST { NOBODY.to_owned() } else { (stage + 1).to_string() };
        let (who, what) = failed.unwrap_or_else(|| (next(), String::new()));
        println!("{} of {}: {}: {who}: {what}", at + 1, chosen.len(), one.name);
        found.add(&one.name, &who, &what);
    }
}

/// Prints what was found, as Markdown; how many of a hundred were noticed.
fn table(chosen: &[(u32, &Mutant)], all: &[Mutant], found: &Found) -> usize {
    println!(
        "\n| room | mutants | tried | noticed by its own tests | by those beside it | by seeds | by nobody |"
    );
    println!("|---|---|---|---|---|---|---|");
    let (mut killed, mut tried) = (0, 0);
    for room in ROOMS {
        let here = || chosen.iter().filter(|(_, one)| one.room == room);
        let by = |which: &dyn Fn(&str) -> bool| {
            here().filter(|(_, one)| found.who(&one.name).is_some_and(which)).count()
        };
        let (own, seeds, nobody) =
            (by(&|who| who == room), by(&|who| who == "sim"), by(&|who| who == NOBODY));
        let number = here().count();
        let beside = number - own - seeds - nobody;
        let listed = all.iter().filter(|one| one.room == room).count();
        println!("| `{room}` | {listed} | {number} | {own} | {beside} | {seeds} | {nobody} |");
        killed += number - nobody;
        tried += number;
    }
    println!();
    for (_, one) in chosen.iter().filter(|(_, one)| found.who(&one.name) == Some(NOBODY)) {
        println!("noticed by nobody: {}", one.name);
    }
    let percent = killed * 100 / tried.max(1);
    println!("{killed} of {tried} mutants are noticed, {percent} %");
    percent
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [list, root, out] = words.as_slice() else { panic!("mutants LIST TREE OUT") };
    let out = Path::new(out);
    let all = listed(&fs::read_to_string(list).expect("a list can be read"));
    let mut found = Found::read(out.join("found.tsv"));
    let mut tree = Tree { root: PathBuf::from(root), lines: BTreeMap::new() };
    let chosen = build(&mut tree, &all, &mut found);
    let log = out.join("log");
    for at in 0..=LAST {
        let left = |room: &str| {
            let here = |(_, one): &&(u32, &Mutant)| one.room == room;
            chosen.iter().filter(here).any(|(_, one)| found.stage(&one.name) == Some(at))
        };
        let rooms: Vec<&str> = ROOMS.into_iter().filter(|room| left(room)).collect();
        match at {
            // One after the other: something is known when one is built.
            0 => rooms.iter().for_each(|room| {
                stage((at, tree.tests(&[room])), &chosen, &mut found, &log);
            }),
            _ if rooms.is_empty() => {}
            1 => stage((at, tree.tests(&BESIDE)), &chosen, &mut found, &log),
            _ => stage((at, tree.seeds()), &chosen, &mut found, &log),
        }
    }
    let percent = table(&chosen, &all, &found);
    if percent < KILLED_PERCENT_MIN {
        std::process::exit(1);
    }
}

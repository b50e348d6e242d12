//! Ranks that MPI has started: the same workloads, the same output; and files of MPI.
//!
//! `MPIRUN` names the launcher, for a program that was built with another MPI than the usual one.
#![cfg(feature = "mpi")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "runs/labels.rs"]
#[allow(dead_code, reason = "what tests of local ranks need")]
mod labels;
#[path = "runs/originals.rs"]
mod originals;
#[path = "runs/rig.rs"]
#[allow(dead_code, reason = "what tests of local ranks need")]
mod rig;

use std::process::{Command, Output};
use std::sync::OnceLock;

use rig::{Folder, children, runs, text, until};

const PROGRAM: &str = env!("CARGO_BIN_EXE_sateen-bench");

fn launcher_name() -> String {
    std::env::var("MPIRUN").unwrap_or_else(|_| "mpirun".to_owned())
}

/// Whether the launcher is Open MPI's.
fn openmpi() -> bool {
    static OPENMPI: OnceLock<bool> = OnceLock::new();
    *OPENMPI.get_or_init(|| {
        let output = Command::new(launcher_name()).arg("--version").output().unwrap();
        text(&output.stdout).contains("Open MPI")
    })
}

/// The launcher, for so many ranks of what follows.
fn launcher(folder: &Folder, ranks: usize) -> Command {
    let mut command = Command::new(launcher_name());
    if openmpi() {
        // It refuses root, and more ranks than cores; others ask nobody.
        command.args(["--allow-run-as-root", "--oversubscribe"]);
    }
    command.args(["-np", &ranks.to_string()]).current_dir(&folder.0);
    command
}

/// mpirun with so many ranks of this line.
fn mpirun(folder: &Folder, ranks: usize, line: &str) -> Command {
    let mut command = launcher(folder, ranks);
    command.arg(PROGRAM).arg("--quiet").args(line.split_whitespace());
    command
}

/// The ranks that a launcher has started; some start them through a process of their own.
fn ranks_of(launcher: u32) -> Vec<u32> {
    let below = |pid: &u32| Some(children(*pid)).filter(|ranks| !ranks.is_empty());
    children(launcher).iter().flat_map(|pid| below(pid).unwrap_or(vec![*pid])).collect()
}

fn works(folder: &Folder, ranks: usize, line: &str) -> String {
    let Output { status, stdout, stderr } = mpirun(folder, ranks, line).output().unwrap();
    assert!(status.success(), "{line}: {status}\n{}", text(&stderr));
    text(&stdout)
}

#[test]
fn ior_runs_over_mpi() {
    let folder = Folder::new();
    let out = works(&folder, 3, "ior -w -W -R -b 256k -t 64k -s 2 -i 2 -o file -e -g");
    let out = originals::ior(&out);
    assert!(out.max["Write"] > 0.0);
    assert_eq!((out.options["tasks"].as_str(), out.options["nodes"].as_str()), ("3", "1"));
    let kinds: Vec<&str> = out.rows.iter().map(|row| row.access.as_str()).collect();
    assert_eq!(kinds, ["write", "read", "write", "read"]);
    assert!(out.rows.iter().all(|row| row.values["bw(MiB/s)"] > 0.0), "{:?}", out.rows);
    assert_eq!(out.summary["write"]["aggs(MiB)"], "1.5");
    assert_eq!(folder.all(), [""; 0]);
}

#[test]
fn the_root_says_how_many_are_done_of_all_hosts() {
    let folder = Folder::new();
    let line = "ior -w -a DUMMY -b 1024g -t 4k -s 1024 -D 4 -o f";
    // What is shown when all ranks still work: whoever says so may be kept from running until
    // later, and what others tell it, too.
    let shown = |mut command: Command, wanted: &str| {
        let mut said = String::new();
        let found = (0..8).find_map(|_| {
            said = text(&command.output().unwrap().stderr);
            let mut lines = said.lines().filter(|line| line.contains("write 1/1: "));
            lines.find(|line| line.contains(wanted)).map(str::to_owned)
        });
        found.unwrap_or_else(|| panic!("{said}"))
    };
    let mut command = launcher(&folder, 2);
    command.arg(PROGRAM).args(line.split_whitespace());
    let here = shown(command, ", 0 of 2 ranks done, ");
    assert!(here.contains(" left"), "{here}");
    if let Some(boots) = other_boots(&folder) {
        let away = shown(on_two_hosts(&folder, 4, boots, line), ", 0 of 4 ranks done, ");
        assert!(away.contains(", mean ") && away.contains(" left"), "{away}");
    }
}

#[test]
fn rates_over_time_count_each_rank_once() {
    let folder = Folder::new();
    let line = "ior -w -a DUMMY -b 1024g -t 4k -s 1024 -D 2 -o f";
    for more in [Some(""), other_boots(&folder)].into_iter().flatten() {
        let json = json_of_two(&folder, 4, more, line);
        let row = &json["tests"][0]["Results"][0];
        let numbers = |value: &serde_json::Value| -> Vec<f64> {
            value.as_array().unwrap().iter().map(|one| one.as_f64().unwrap()).collect()
        };
        let (until, rates) = (&row["seriesMiB"]["seconds"], &row["seriesMiB"]["rates"]);
        let mut before = 0.0;
        let mut moved = 0.0;
        for (until, rate) in numbers(until).into_iter().zip(numbers(rates)) {
            moved += (until - before) * rate;
            before = until;
        }
        let all = row["bwMiB"].as_f64().unwrap() * row["totalTime"].as_f64().unwrap();
        assert!((moved / all - 1.0).abs() < 0.05, "{more}: {moved} of {all} MiB: {row}");
    }
}

#[test]
fn mdtest_runs_over_mpi() {
    let folder = Folder::new();
    let out = works(&folder, 3, "mdtest -n 30 -N 1 -u -w 100 -e 100 -X -i 2 -d x");
    let out = originals::mdtest(&out);
    assert_eq!((out.tasks, out.nodes, out.iterations), (3, 1, 2));
    assert_eq!((out.rates.len(), out.times.len()), (10, 0));
    assert!(out.rates["File creation"][1] > 0.0);
    assert_eq!(folder.all(), [""; 0]);
}

#[test]
fn iozone_and_io500_run_over_mpi() {
    let folder = Folder::new();
    let out = works(&folder, 3, "iozone -r 64k -s 1m -t 1,3 -+d");
    assert!(out.contains("iozone test complete.") && out.contains("\nfreaders "), "{out}");
    let rows = originals::iozone(&out);
    assert_eq!(rows.iter().map(|row| row.ranks).collect::<Vec<_>>(), [[1; 13], [3; 13]].concat());
    assert!(rows.iter().all(|row| row.test.len() > 1 && row.children >= row.parent * 0.999));
    let config = "[global]\ndatadir = data\ndrop-caches = 1\ndrop-caches-cmd = env >> env\n[debug]\nstonewall-time = 250\n[ior-easy]\n\
                  blockSize = 4m\n[ior-hard]\nsegmentCount = 20\n[mdtest-easy]\nn = 300\n\
                  [mdtest-hard]\nn = 300\n";
    std::fs::write(folder.0.join("c.ini"), config).unwrap();
    let out = works(&folder, 3, "io500 c.ini --timestamp T");
    assert_eq!(out.matches("[RESULT]").count(), 12, "{out}");
    assert!(!out.contains(" 0.000000 GiB/s"), "{out}");
    assert_eq!(folder.all().iter().filter(|name| name.starts_with("data")).count(), 1);
    // What the user's command gets: it is no rank.
    let variables = std::fs::read_to_string(folder.0.join("env")).unwrap();
    let of_ranks = ["OMPI_COMM_WORLD_", "PMIX_", "PMI_", "MPI_LOCAL", "SATEEN_BENCH_RANK"];
    let told = |line: &&str| of_ranks.iter().any(|name| line.starts_with(name));
    assert_eq!(variables.lines().filter(told).collect::<Vec<_>>(), [""; 0]);
    assert!(variables.contains("PATH="), "{variables}");
    // What is wrong is said once, whichever rank reads it.
    let output = mpirun(&folder, 3, "io500 no.ini").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    std::fs::write(folder.0.join("c.ini"), "[nothing]\n").unwrap();
    let output = mpirun(&folder, 3, "io500 c.ini").output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(text(&output.stderr).matches("there is no section nothing").count(), 1);
}

#[test]
fn what_mpi_ranks_write_local_ranks_read() {
    let folder = Folder::new();
    works(&folder, 2, "ior -w -b 64k -t 16k -s 3 -o f -k -G 4");
    folder.works("-np 2 ior -R -b 64k -t 16k -s 3 -o f -k -G 4");
    folder.fails("-np 2 ior -R -b 64k -t 16k -s 3 -o f -k -G 5", 3);
}

#[test]
fn senseless_options_are_refused_once() {
    let folder = Folder::new();
    for (line, wanted) in [("ior -C -Z -o f", "-C, -Z: "), ("--np 2 ior -o f", "-np: MPI")] {
        let output = mpirun(&folder, 2, line).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}");
        let said = text(&output.stderr);
        assert_eq!(said.matches("sateen-bench: ").count(), 1, "{said}");
        assert!(said.contains(wanted), "{said}");
    }
}

#[test]
fn a_failed_rank_ends_all() {
    let folder = Folder::new();
    let output = mpirun(&folder, 2, "ior -w -F -o no/f").output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("No such file or directory"), "{said}");
    // The second rank's part begins where files must not reach. What the first has written goes.
    let limited =
        format!("trap '' XFSZ; ulimit -f 1000000; exec {PROGRAM} --quiet ior -w -b 2g -t 64k -o f");
    let output = launcher(&folder, 2).args(["sh", "-c", &limited]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("rank 1: write f at 2147483648: "), "{said}");
    assert_eq!(folder.all(), [""; 0], "{said}");
}

#[test]
fn a_killed_rank_ends_all() {
    let folder = Folder::new();
    let mut command = launcher(&folder, 2);
    if openmpi() {
        // Who is left has 5 s instead of one to remove the files; mpirun waits that long twice.
        command.args(["--mca", "odls_base_sigkill_timeout", "5"]);
    }
    // Small files, over and over: there is little to be removed.
    let line = "ior -w -F -b 1m -t 4k -O minTimeDuration=600 -o f";
    command.arg(PROGRAM).arg("--quiet").args(line.split_whitespace());
    let mut child = command.spawn().unwrap();
    until("the files of all ranks", || folder.all().len() == 2);
    let ranks = ranks_of(child.id());
    assert_eq!(ranks.len(), 2);
    let pid = rustix::process::Pid::from_raw(ranks[1].try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    assert!(!child.wait().unwrap().success());
    until("the end of the ranks", || ranks.iter().all(|rank| !runs(*rank)));
    // Hydra, MPICH's launcher, kills the others at once.
    if openmpi() {
        assert_eq!(folder.all(), [""; 0], "who is left removes the files of all");
    }
}

/// Ranks of two see themselves on a host of their own, as if there were several: by its name,
/// and by its clock, which is 100 000 s ahead of the host's before (where the kernel has time
/// namespaces). `more` is done there first, with the host's number in `$node`.
fn on_hosts_of_two(folder: &Folder, ranks: usize, more: &str, line: &str) -> Command {
    on_two_hosts(folder, ranks, more, &format!("--quiet {line}"))
}

/// The same, and it may say how far it is.
fn on_two_hosts(folder: &Folder, ranks: usize, more: &str, line: &str) -> Command {
    let allowed = Command::new("unshare").args(["--uts", "--mount", "true"]).output().unwrap();
    assert!(
        allowed.status.success(),
        "hosts within a host need root with CAP_SYS_ADMIN (unshare --uts --mount): {}",
        text(&allowed.stderr)
    );
    let clocks = std::path::Path::new("/proc/self/ns/time").exists();
    let clock = if clocks { "--time --monotonic $(( node * 100000 ))" } else { "" };
    let script = format!(
        "export node=$(( ${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}} / 2 )); \
         exec unshare --uts --mount --fork --kill-child {clock} \
         sh -c 'hostname n$node; {more} exec {PROGRAM} {line}'"
    );
    let mut command = launcher(folder, ranks);
    command.args(["sh", "-c", &script]);
    command
}

/// What makes ranks of two such hosts see no memory of each other. Not with MPICH, which sees it,
/// too, and takes them for hosts that have nothing but TCP in common: over that any program may
/// stand still in `MPI_Finalize` (MPICH 4.0.2 with UCX 1.13), one that gathers a byte as well.
fn other_boots(folder: &Folder) -> Option<&'static str> {
    for node in [0, 1] {
        std::fs::write(folder.0.join(format!("boot{node}")), format!("{node}\n")).unwrap();
    }
    openmpi().then_some("mount --bind boot$node /proc/sys/kernel/random/boot_id &&")
}

/// Much less than clocks of hosts differ by, and much more than anything takes.
const CLOCKS_S: f64 = 1000.0;

#[test]
fn two_nodes_on_one_host() {
    let folder = Folder::new();
    let works = |line: &str| {
        let output = on_hosts_of_two(&folder, 4, "", line).output().unwrap();
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let text = works("ior -w -W -r -R -C -F -e -b 256k -t 64k -i 2 -o f");
    assert!(!text.contains("WARNING"), "-C has another node to go to: {text}");
    let out = originals::ior(&text);
    assert_eq!(
        (out.options["nodes"].as_str(), out.options["clients per node"].as_str()),
        ("2", "2")
    );
    for row in &out.rows {
        let value = |name| row.values[name];
        let parts = value("open(s)").max(value("wr/rd(s)")).max(value("close(s)"));
        assert!(parts > 0.0 && parts <= value("total(s)") + 1e-6, "{row:?}");
        assert!(value("total(s)") < CLOCKS_S, "clocks of nodes are those of one time: {row:?}");
    }
    // What the user says of nodes does not keep their clocks from being compared.
    let said = originals::ior(&works("ior -w -F -b 64k -t 64k -o f -O numNodes=1"));
    assert_eq!(said.options["nodes"], "1");
    assert!(said.rows[0].values["total(s)"] < CLOCKS_S, "{:?}", said.rows);

    let text = works("mdtest -n 20 -N 1 -u -w 100 -e 100 -X -i 2 -d x -P");
    assert!(text.contains("was launched with 4 total task(s) on 2 node(s)"), "{text}");
    assert!(text.contains("\nNodemap: 1100\n"), "{text}");
    assert!(text.contains("\nShifting ranks by 2 for each phase.\n"), "{text}");
    let out = originals::mdtest(&text);
    assert_eq!(out.rates.len(), 10);
    let all = out.times.values().flatten();
    assert!(all.clone().all(|seconds| (0.0..CLOCKS_S).contains(seconds)), "{:?}", out.times);
    assert_eq!(folder.all(), [""; 0]);
}

/// The values of a name in a `result.txt` or `config.ini`, in their order.
fn values<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let lines = text.lines().filter_map(|line| line.split_once('='));
    lines.filter(|line| line.0.trim() == name).map(|line| line.1.trim()).collect()
}

#[test]
fn io500_on_two_nodes() {
    let folder = Folder::new();
    let config = "[global]\ndatadir = data\nresultdir = results\ndrop-caches = TRUE\n\
                  drop-caches-cmd = echo $node >> dropped\n[debug]\nstonewall-time = 250\n\
                  [ior-easy]\nblockSize = 1m\ntransferSize = 256k\n\
                  [ior-hard]\nsegmentCount = 20\n[mdtest-easy]\nn = 150\n[mdtest-hard]\nn = 150\n";
    std::fs::write(folder.0.join("c.ini"), config).unwrap();
    let line = "io500 c.ini --timestamp T";
    let output = on_hosts_of_two(&folder, 4, "", line).output().unwrap();
    // Wrong data would end it with another code: what is read is what the rank that it falls to
    // by whole nodes has written.
    assert!(output.status.success(), "{}", text(&output.stderr));
    let read = |name: &str| std::fs::read_to_string(folder.0.join("results/T").join(name)).unwrap();
    let result = read("result.txt");
    assert_eq!(values(&result, "procs"), ["4"], "{result}");
    let scores: Vec<f64> =
        values(&result, "score").iter().map(|score| score.parse().unwrap()).collect();
    assert_eq!(scores.len(), 13, "{result}");
    assert!(scores.iter().all(|score| *score > 0.0), "{result}");
    assert_eq!(values(&result, "total-files"), [(4 * 300 + 4 + 1).to_string()], "{result}");
    // By whole nodes, whose clocks are those of one time.
    for phase in ["mdtest-easy-stat", "mdtest-hard-stat", "mdtest-hard-read"] {
        let said = read(&format!("{phase}.txt"));
        assert!(said.contains("\nNodemap: 1100\n"), "{said}");
        assert!(said.contains("\nShifting ranks by 2 for each phase.\n"), "{said}");
    }
    for phase in ["ior-easy-write", "ior-easy-read", "ior-hard-read"] {
        let said = originals::ior(&read(&format!("{phase}.txt")));
        let option = |name: &str| said.options[name].as_str();
        assert_eq!((option("nodes"), option("clients per node")), ("2", "2"), "{phase}");
        assert!(said.rows.iter().all(|row| row.values["total(s)"] < CLOCKS_S), "{:?}", said.rows);
    }
    // One rank of each node drops its caches, before each phase but the timestamp.
    let dropped = std::fs::read_to_string(folder.0.join("dropped")).unwrap();
    for node in ["0", "1"] {
        assert_eq!(dropped.lines().filter(|line| *line == node).count(), 13, "{dropped}");
    }
    let left: Vec<String> =
        folder.all().into_iter().filter(|name| name.starts_with("data")).collect();
    assert_eq!(left, ["data"]);
}

/// The JSON of a run on two hosts.
fn json_of_two(folder: &Folder, ranks: usize, more: &str, line: &str) -> serde_json::Value {
    let line = format!("--json {line}");
    let output = on_hosts_of_two(folder, ranks, more, &line).output().unwrap();
    assert!(output.status.success(), "{line}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What was said under a code.
fn messages<'a>(json: &'a serde_json::Value, code: &str) -> Vec<&'a str> {
    let all = json["pitfalls"].as_array().unwrap().iter().filter(|one| one["code"] == code);
    all.map(|one| one["message"].as_str().unwrap()).collect()
}

#[test]
fn a_node_with_a_slow_link_is_named_and_held_against_its_own() {
    let folder = Folder::new();
    // One has a card of 100 Tb/s, the other one of 1 Mb/s, and both a file system whose servers
    // are elsewhere.
    for (node, megabits) in [(0, 100_000_000), (1, 1)] {
        let card = folder.0.join(format!("net{node}/card0"));
        std::fs::create_dir_all(card.join("device")).unwrap();
        std::fs::write(card.join("speed"), format!("{megabits}\n")).unwrap();
    }
    let mounts = "22 1 0:50 / / rw - fuse.sateen sateen rw\n";
    std::fs::write(folder.0.join("mounts"), mounts).unwrap();
    let more = "mount --bind net$node /sys/class/net && mount --bind mounts /proc/$$/mountinfo &&";
    let json = json_of_two(&folder, 4, more, "ior -w -r -F -b 1m -t 64k -o f");
    let said = messages(&json, "W-NODE").join("; ");
    assert!(said.contains("n1: ") && said.contains("it is linked at 0 % of the median"), "{said}");
    let [fast] = messages(&json, "W-FAST")[..] else { panic!("of one node: {json}") };
    assert!(fast.starts_with("n1 read "), "{fast}");
    assert!(fast.contains(", and its network links can deliver 125000 bytes/s"), "{fast}");
}

#[test]
fn nodes_with_unequal_work_in_iozone() {
    let folder = Folder::new();
    let line = "iozone -i 0 -r 4k -s 64k";
    let uneven = json_of_two(&folder, 3, "", line);
    let said = messages(&uneven, "W-UNEQUAL").join("; ");
    assert!(said.starts_with("nodes moved between "), "{said}");
    let even = json_of_two(&folder, 4, "", line);
    assert!(messages(&even, "W-UNEQUAL").is_empty(), "{even}");
}

#[test]
fn a_node_that_may_not_drop_caches_ends_all() {
    let folder = Folder::new();
    let closed = "[ $node = 0 ] || mount --bind /proc/sys/vm /proc/sys/vm && \
                  { [ $node = 0 ] || mount -o remount,bind,ro /proc/sys/vm; };";
    let line = "--drop-caches ior -w -r -F -b 64k -t 64k -o f";
    let mut command = on_hosts_of_two(&folder, 4, closed, line);
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let pid = rustix::process::Pid::from_raw(child.id().try_into().unwrap()).unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while child.try_wait().unwrap().is_none() {
        if std::time::Instant::now() > end {
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            child.wait().unwrap();
            panic!("the ranks wait for each other");
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let wanted = "sateen-bench: n1: --drop-caches: /proc/sys/vm/drop_caches cannot be written";
    assert_eq!(said.matches(wanted).count(), 1, "{said}");
    assert_eq!(said.matches("--drop-caches").count(), 1, "{said}");
    assert_eq!(folder.all(), [""; 0]);
}

#[test]
fn files_of_mpi_hold_what_was_written() {
    let folder = Folder::new();
    let sizes = "ior -a MPIIO -w -W -r -R -b 256k -t 64k -s 2 -o file";
    for options in ["-i 2 -e", "-c -C", "-F -C", "-F -c -Y", "-z", "-V", "-V -c", "-p -m -i 2"] {
        let out = originals::ior(&works(&folder, 3, &format!("{sizes} {options}")));
        let said = |name: &str| out.options[name].as_str();
        assert_eq!((said("api"), said("tasks")), ("MPIIO", "3"), "{options}");
        assert!(said("apiVersion").starts_with('('), "{}", said("apiVersion"));
        let kind = if options.contains("-c") { "collective" } else { "independent" };
        assert_eq!(said("type"), kind);
        assert_eq!(out.summary["write"]["aggs(MiB)"], "1.5", "{options}");
        assert!(out.rows.len() >= 2, "{options}: {:?}", out.rows);
        assert_eq!(folder.all(), [""; 0], "{options}");
    }
    // All stop together.
    let line = "ior -a MPIIO -c -D 1 -w -r -R -b 64m -t 4k -s 100 -o file";
    let output = mpirun(&folder, 2, line).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn files_of_mpi_are_files_of_the_file_system() {
    let folder = Folder::new();
    let sizes = "-b 64k -t 16k -s 3 -o f";
    let size = |name: &String| std::fs::metadata(folder.0.join(name)).unwrap().len();
    for how in ["", "-F", "-c", "-V", "-F -V -c"] {
        let posix = if how.contains("-F") { "-F" } else { "" };
        works(&folder, 2, &format!("ior -a MPIIO -w -k -G 4 {sizes} {how}"));
        let bytes: u64 = folder.all().iter().map(size).sum();
        assert_eq!(bytes, 2 * 3 * (64 << 10), "{how}");
        folder.works(&format!("-np 2 ior -R -k -G 4 {sizes} {posix}"));
        folder.fails(&format!("-np 2 ior -R -G 5 {sizes} {posix}"), 3);
        folder.works(&format!("-np 2 ior -w -k -G 6 {sizes} {posix}"));
        works(&folder, 2, &format!("ior -a MPIIO -R -k -G 6 {sizes} {how}"));
        let output = mpirun(&folder, 2, &format!("ior -a MPIIO -R -G 7 {sizes} {how}")).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(3), "{how}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains("wrong data in f"), "{how}");
        assert_eq!(folder.all(), [""; 0], "{how}");
    }
}

#[test]
fn files_of_mpi_are_reported_as_by_the_original() {
    let theirs = include_str!("originals/ior-4.0.0-mpiio.txt");
    let line = theirs.lines().find_map(|line| line.strip_prefix("Command line        : ")).unwrap();
    let folder = Folder::new();
    let ours = works(&folder, 2, line);
    labels::in_order(&labels::ior(&ours), &labels::ior(theirs), &labels::MORE_OF_IOR, line);
    let (ours, theirs) = (originals::ior(&ours), originals::ior(theirs));
    for name in theirs.options.keys() {
        assert!(ours.options.contains_key(name), "{name}");
    }
    // The version of the standard that the library has: the original was run with Open MPI.
    let (our_version, their_version) = (&ours.options["apiVersion"], &theirs.options["apiVersion"]);
    let likewise = |version: &str| version.starts_with('(') && version.ends_with(".0)");
    assert!(our_version == their_version || !openmpi() && likewise(our_version), "{our_version}");
    assert_eq!(ours.summary["read"]["API"], "MPIIO");

    let theirs: serde_json::Value =
        include_str!("originals/ior-4.0.0-collective.json").parse().unwrap();
    let line = theirs["Command line"].as_str().unwrap();
    let ours: serde_json::Value = works(&folder, 2, line).parse().unwrap();
    let (mine, original) = (labels::json(&ours), labels::json(&theirs));
    let lacks: Vec<&String> = original.difference(&mine).collect();
    assert!(lacks.is_empty(), "{lacks:?}");
}

/// A small io500, whose sections of ior have these lines more.
fn io500_of(global: &str, easy: &str, hard: &str) -> String {
    format!(
        "[global]\ndatadir = data\nresultdir = results\n{global}[debug]\nstonewall-time = 250\n\
         [ior-easy]\nblockSize = 4m\n{easy}[ior-hard]\nsegmentCount = 20\n{hard}[mdtest-easy]\n\
         n = 30\n[mdtest-hard]\nn = 300\n"
    )
}

#[test]
fn io500_runs_over_files_of_mpi() {
    let folder = Folder::new();
    let shared = "API = MPIIO\nfilePerProc = FALSE\n";
    let of = [("T", "API = MPIIO\n", "API = MPIIO\ncollective = TRUE\n"), ("S", shared, "")];
    for (stamp, easy, hard) in of {
        std::fs::write(folder.0.join("c.ini"), io500_of("", easy, hard)).unwrap();
        let out = works(&folder, 2, &format!("io500 c.ini --timestamp {stamp}"));
        assert_eq!(out.matches("[RESULT]").count(), 12, "{out}");
        let read = |name: &str| {
            std::fs::read_to_string(folder.0.join(format!("results/{stamp}/{name}"))).unwrap()
        };
        let json: serde_json::Value = serde_json::from_str(&read("result.json")).unwrap();
        // By the rules, since it was short, and for nothing else.
        assert_eq!(json["valid"], false);
        let why = json["invalid_because"].as_array().unwrap().iter();
        let mut why = why.map(|why| why.as_str().unwrap());
        assert!(why.all(|why| why.contains("the stonewall") || why.contains("300 s")), "{json}");
        let phases = json["summary"].as_array().unwrap();
        let transfers = |name: &str| {
            let one = phases.iter().find(|one| one["operation"] == name).unwrap();
            assert_eq!(one["valid"], !name.ends_with("-write"), "{one}");
            assert!(one["score"].as_f64().unwrap() > 0.0, "{one}");
            assert_eq!(one["ranks"].as_array().unwrap().len(), 2, "{one}");
            one["latency"]["count"].as_u64().unwrap()
        };
        for (family, count) in [("easy", 4), ("hard", 40)] {
            assert_eq!(transfers(&format!("ior-{family}-write")), count);
            assert_eq!(transfers(&format!("ior-{family}-read")), count);
            let said = originals::ior(&read(&format!("ior-{family}-read.txt")));
            let mpi = family == "easy" || !hard.is_empty();
            assert_eq!(said.options["api"], if mpi { "MPIIO" } else { "POSIX" }, "{family}");
            let kind = if mpi && family == "hard" { "collective" } else { "independent" };
            assert_eq!(said.options["type"], kind, "{family}");
        }
        assert_eq!(transfers("ior-rnd4K-easy-read"), 2 * (4 << 20) / 4096);
        let details = read("result.txt");
        assert!(
            details.contains(" -a MPIIO\n") && details.contains(" -c -a MPIIO") == (stamp == "T")
        );
        let data = folder.all().into_iter().filter(|name| name.starts_with("data"));
        assert_eq!(data.collect::<Vec<_>>(), ["data"], "files are gone");
    }
    // mdtest measures no files of MPI, which is said before anything is done.
    std::fs::write(folder.0.join("c.ini"), io500_of("api = MPIIO\n", "", "")).unwrap();
    let output = mpirun(&folder, 2, "io500 c.ini --timestamp G").output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let wanted = "[mdtest-easy-write]: MPIIO: only ior measures files of MPI";
    assert_eq!(said.matches(wanted).count(), 1, "{said}");
    assert!(!folder.0.join("results/G").exists());
    let posix = "API = POSIX\n";
    let mixed = io500_of("api = MPIIO\n", "", "").replace("n = 30", &format!("{posix}n = 30"));
    std::fs::write(folder.0.join("c.ini"), mixed).unwrap();
    let out = works(&folder, 2, "io500 c.ini --timestamp M");
    assert_eq!(out.matches("[RESULT]").count(), 12, "{out}");
}

#[test]
fn files_of_mpi_fail_in_its_words() {
    let folder = Folder::new();
    for (line, at) in [("-w -o no/f", "open no/f: "), ("-w -F -o no/f", "open no/f.0000000")] {
        let output = mpirun(&folder, 2, &format!("ior -a MPIIO {line}")).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {said}");
        let found = said.split(at).nth(1).unwrap_or_else(|| panic!("{line}: {said}"));
        let words = found.lines().next().unwrap().to_lowercase();
        let known = ["no such file", "does not exist"].iter().any(|one| words.contains(one));
        assert!(known, "{line}: {said}");
    }
    // The second rank's part begins where files must not reach. What the first has written goes.
    let limited = format!(
        "trap '' XFSZ; ulimit -f 1000000; \
         exec {PROGRAM} --quiet ior -a MPIIO -w -b 2g -t 64k -o f"
    );
    let output = launcher(&folder, 2).args(["sh", "-c", &limited]).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("rank 1: write f at 2147483648: "), "{said}");
    assert_eq!(folder.all(), [""; 0], "{said}");
}

#[test]
fn hints_reach_mpi() {
    let folder = Folder::new();
    std::fs::write(folder.0.join("hints"), "IOR_HINT__MPI__cb_nodes = 2 # of two\n").unwrap();
    let line = "ior -a MPIIO -w -c -b 64k -t 64k -o f --mpiio.showHints -U hints";
    let mut command = mpirun(&folder, 2, line);
    let output = command.env("IOR_HINT__MPI__cb_buffer_size", "1048576").output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let passed = "hints passed to MPI_File_open() {\n\tcb_buffer_size = 1048576\n\tcb_nodes = 2\n}";
    assert_eq!(said.matches(passed).count(), 1, "{said}");
    let used = said.split("hints returned from opened file {\n").nth(1).unwrap();
    assert!(used.contains('='), "{said}");
    std::fs::write(folder.0.join("hints"), "cb_nodes=2\n").unwrap();
    let output = mpirun(&folder, 2, line).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stderr).matches("hints:1: a hint has the form").count(), 1);
    assert_eq!(folder.all(), ["hints"]);
}

#[test]
fn files_of_mpi_meet_the_same_pitfalls() {
    let folder = Folder::new();
    let cached = |options: &str| {
        let line = format!("--json ior {options} -w -r -b 1m -t 64k -o f");
        let json: serde_json::Value = serde_json::from_str(&works(&folder, 2, &line)).unwrap();
        let mut all = rig::pitfalls(&json);
        all.retain(|(code, _)| code == "W-CACHE");
        all
    };
    let posix = cached("");
    assert!(!posix.is_empty(), "what was just written is read from memory");
    assert_eq!(cached("-a MPIIO"), posix);
    assert_eq!(cached("-a MPIIO -c -C"), posix);
    assert_eq!(cached("-a MPIIO -e -F"), cached("-e -F"));
}

//! The subcommands as a program mounts them: what they print, and how they refuse.

use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser, Subcommand};
use sateen_model::command::{Plan, Predict};

#[derive(Parser)]
struct Program {
    /// A program may have its own, for all of its subcommands.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Predict(Predict),
    Plan(Plan),
}

fn example(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name).display().to_string()
}

fn run(arguments: &[&str]) -> Result<String, String> {
    let all = std::iter::once("program").chain(arguments.iter().copied());
    let program = Program::try_parse_from(all).map_err(|refusal| refusal.to_string())?;
    let mut out = Vec::new();
    let done = match program.command {
        Command::Predict(predict) => predict.run(&mut out),
        Command::Plan(plan) => plan.run(&mut out),
    };
    done.map_err(|refusal| format!("{refusal:#}"))?;
    String::from_utf8(out).map_err(|refusal| refusal.to_string())
}

/// A description in a file of its own, gone with it.
struct Description(PathBuf);

impl Description {
    fn new(name: &str, text: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("sateen-model-{}-{name}.toml", std::process::id()));
        std::fs::write(&path, text).expect("a description is written");
        Self(path)
    }

    fn path(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_programs_own_json_is_the_subcommands() {
    for words in [["--json", "predict", "--tables"], ["predict", "--tables", "--json"]] {
        let text = run(&words).unwrap();
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{words:?}: {text}");
    }
}

#[test]
fn arguments_are_sound() {
    Program::command().debug_assert();
    assert!(run(&["predict"]).unwrap_err().contains("HARDWARE.toml"));
}

#[test]
fn every_example_is_predicted() {
    for name in ["lfs12.toml", "data-accelerator.toml", "vxflex.toml", "lfs09.toml"] {
        let text = run(&["predict", &example(name)]).unwrap();
        for word in ["read", "write", "bound by", "servers' network", "GB/s"] {
            assert!(text.contains(word), "{name}: no {word} in\n{text}");
        }
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}

#[test]
fn the_tables_are_printed_with_their_parameters_and_errors() {
    let text = run(&["predict", "--tables"]).unwrap();
    for word in [
        "LFS12 IOR",
        "LFS12 mdtest create",
        "lfs09 IOzone",
        "VxFlex IOR",
        "Data Accelerator",
        "median",
        "p90",
        "worst",
        "unseen",
        "a client node with one process",
        "clients.ceiling_read",
        "efficiency.write",
        "no input here explains",
        "Disks IOzone, reading",
        "not identifiable",
        "bound by the servers",
        "seed003_claims.csv: all",
        "missing input: ",
    ] {
        assert!(text.contains(word), "no {word} in\n{text}");
    }
}

#[test]
fn json_holds_prediction_and_tables() {
    let text = run(&["predict", &example("lfs12.toml"), "--tables", "--json"]).unwrap();
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(all["prediction"]["bandwidth"].as_array().unwrap().len(), 2);
    assert!(all["prediction"]["bandwidth"][0]["rate"].as_f64().unwrap() > 1e11);
    assert_eq!(all["tables"]["tables"].as_array().unwrap().len(), 9);
    let published = all["tables"]["published"].as_array().unwrap();
    assert!(published.iter().any(|one| one["not"]["missing"].is_string()), "{published:?}");
    assert!(all["tables"]["tables"][0]["unseen"]["median"].as_f64().unwrap() > 0.0);
    let text = run(&["plan", &example("lfs09.toml"), "--json"]).unwrap();
    let all: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(all["threads"], 960);
}

#[test]
fn a_printed_example_can_be_predicted() {
    let text = run(&["predict", "--example", "lfs12"]).unwrap();
    let mine = Description::new("mine", &text);
    assert!(run(&["predict", &mine.path()]).is_ok());
    assert!(run(&["predict", "--example", "lfs13"]).unwrap_err().contains("lfs09"));
    assert!(run(&["predict", "--profiles"]).unwrap().contains("lustre-2.12-direct"));
}

#[test]
fn a_printed_example_can_be_planned() {
    let text = run(&["plan", "--example", "lfs09"]).unwrap();
    let mine = Description::new("planned", &text);
    assert!(run(&["plan", &mine.path()]).unwrap().contains("960"));
    assert!(run(&["plan", "--example", "lfs12"]).unwrap_err().contains("lfs09 does"));
    assert!(run(&["plan", "--example", "lfs13"]).unwrap_err().contains("none of this name"));
    assert!(run(&["plan"]).unwrap_err().contains("HARDWARE.toml"));
    // What `predict` prints need not be whole; then it is said where a whole one is.
    let said = run(&["plan", &example("lfs12.toml")]).unwrap_err();
    assert!(said.contains("clients.cores") && said.contains("plan --example lfs09"), "{said}");
}

#[test]
fn what_is_wrong_with_a_description_is_named() {
    let good = std::fs::read_to_string(example("data-accelerator.toml")).unwrap();
    let wrong = [
        ("count = 24", "count = 0", "servers.count"),
        ("count = 24", "count = -3", "count"),
        ("count = 24", "count = 4000000", "servers.count"),
        ("count = 24", "cuont = 24", "cuont"),
        ("nodes = 512", "nodes = 0", "clients.nodes"),
        ("processes = 16", "processes = 900000", "clients.processes"),
        ("nic_rate = \"12.5 GB/s\"", "nic_rate = \"12.5\"", "nic_rate"),
        ("nic_rate = \"12.5 GB/s\"", "nic_rate = \"-1 GB/s\"", "nic_rate"),
        ("transfer = \"16 MiB\"", "transfer = \"16 MiB/s\"", "transfer"),
        ("ceiling_read = \"13.3 GB/s\"", "ceiling_read = \"133 GB/s\"", "clients.ceiling_read"),
        ("mdts = 24", "mdts = 0", "metadata.mdts"),
        ("directories = \"unique\"", "directories = \"spread\"", "spread"),
        ("[clients]", "[metadata.one_mdt]\ncreate = 0\n[clients]", "metadata.one_mdt.create"),
        (
            "[clients]",
            "[metadata.one_process]\nstat = 9\n[metadata.one_mdt]\nstat = 8\n[clients]",
            "metadata.one_process.stat",
        ),
        ("profile = \"lustre-2.12-direct\"", "profile = \"lustre\"", "lustre-2.12-direct"),
        ("capacity = \"450 TiB\"", "capacity = \"1 TB\"\nused = \"2 TB\"", "storage.used"),
        ("osts = 12", "osts = 12\ncopies = 400", "servers.copies"),
        ("[servers]", "[efficiency]\nread = 1.2\n[servers]", "efficiency.read"),
        ("[servers]", "[efficiency]\nwrite = nan\n[servers]", "efficiency.write"),
        ("[servers]", "[server]", "server"),
    ];
    for (place, (from, to, named)) in wrong.into_iter().enumerate() {
        assert!(good.contains(from), "{from}");
        let bad = Description::new(&format!("bad-{place}"), &good.replacen(from, to, 1));
        let refusal = run(&["predict", &bad.path()]).expect_err(to);
        assert!(refusal.contains(named) && refusal.contains(&bad.path()), "{to}: {refusal}");
    }
    let refusal = run(&["predict", "/nonexistent/mine.toml"]).unwrap_err();
    assert!(refusal.contains("/nonexistent/mine.toml"), "{refusal}");
}

#[test]
fn a_plan_is_printed_with_its_reasoning() {
    let text = run(&["plan", &example("lfs09.toml"), "--node-ceiling", "509 MB/s"]).unwrap();
    for word in [
        "48 GB/s",
        "8 servers x 1 x 6 GB/s",
        "960",
        "24 cores",
        "128",
        "10 GB",
        "100 GB",
        "12.8 TB",
    ] {
        assert!(text.contains(word), "no {word} in\n{text}");
    }
}

#[test]
fn impossible_plans_are_refused_by_name() {
    let lfs09 = example("lfs09.toml");
    let wrong: [(&[&str], &str); 7] = [
        (&["--lock", "100"], "--lock"),
        (&["--lock", "nan"], "--lock"),
        (&["--tests", "0"], "--tests"),
        (&["--repeats", "0"], "--repeats"),
        (&["--cores", "0"], "--cores"),
        (&["--thread-rate", "fast"], "--thread-rate"),
        (&["--thread-rate", "1 GB/s", "--node-ceiling", "500 MB/s"], "--node-ceiling"),
    ];
    for (arguments, named) in wrong {
        let mut all = vec!["plan", &lfs09];
        all.extend(arguments);
        let refusal = run(&all).unwrap_err();
        assert!(refusal.contains(named), "{arguments:?}: {refusal}");
    }
}

#[test]
fn every_example_is_planned_or_it_is_said_what_is_missing() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut planned = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let file = path.display().to_string();
        match run(&["plan", &file]) {
            Ok(said) => {
                assert!(!said.is_empty());
                planned.push(path.file_stem().unwrap().to_string_lossy().into_owned());
            }
            Err(refusal) => assert!(refusal.contains("clients.cores"), "{file}: {refusal}"),
        }
        let told = run(&["plan", &file, "--cores", "24", "--memory", "64 GB"]);
        assert!(told.is_ok(), "{file}: {told:?}");
    }
    assert_eq!(planned, ["lfs09"]);
}

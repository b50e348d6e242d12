//! The published tables are reproduced within their gates, and where hardware does not predict, it is said.

use sateen_model::example;
use sateen_model::fit::Summary;
use sateen_model::hardware::Hardware;
use sateen_model::plan::{Request, plan};
use sateen_model::predict::{Resource, predict};
use sateen_model::profile::Profile;
use sateen_model::published::{ELSEWHERE, PLAN, RUNS};
use sateen_model::report::{Report, TableReport, machine_of, report};
use sateen_model::table::{self, Api, Direction, Directories, Operation};
use sateen_model::units::{MIB, Rate, Size};

fn of<'a>(report: &'a Report, name: &str) -> &'a TableReport {
    report.tables.iter().find(|table| table.name == name).expect("there is such a table")
}

fn close(a: f64, b: f64, share: f64) -> bool {
    (a / b - 1.0).abs() < share
}

#[test]
fn tables_are_reproduced_within_their_gates() {
    let report = report().unwrap();
    let ior = of(&report, "LFS12 IOR");
    let unseen = ior.unseen.unwrap();
    assert_eq!((ior.errors.points, unseen.points), (180, 180));
    assert!(ior.errors.median < 0.05, "{:?}", ior.errors);
    assert!(ior.errors.worst < 0.28, "{:?}", ior.errors);
    assert!(unseen.median < 0.07, "{unseen:?}");
    // What was not seen is predicted worse than what was: else the fit did see it.
    assert!(unseen.median > ior.errors.median && unseen.worst > ior.errors.worst);

    let servers = ior.part.as_ref().unwrap().errors;
    assert!(servers.points > 20 && servers.points < 180, "{servers:?}");
    assert!(servers.median < 0.02 && servers.worst < 0.18, "{servers:?}");

    for (name, median, worst) in [
        ("LFS12 mdtest create", 0.04, 0.12),
        ("LFS12 mdtest remove", 0.06, 0.23),
        ("LFS12 mdtest stat", 0.09, 0.65),
    ] {
        let table = of(&report, name);
        assert_eq!(table.errors.points, 14);
        assert!(table.errors.median < median, "{name}: {:?}", table.errors);
        assert!(table.errors.worst < worst, "{name}: {:?}", table.errors);
    }
    let lfs09 = of(&report, "lfs09 IOzone");
    assert_eq!(lfs09.errors.points, 40);
    assert!(lfs09.errors.median < 0.05, "{:?}", lfs09.errors);
    assert!(lfs09.unseen.unwrap().median < 0.07, "{:?}", lfs09.unseen);
    let reading = of(&report, "Disks IOzone, reading");
    assert_eq!((reading.errors.points, reading.parameters.len()), (36, 15));
    assert!(reading.errors.median < 0.035 && reading.errors.worst < 0.7, "{:?}", reading.errors);
    let writing = of(&report, "Disks IOzone, writing");
    assert_eq!((writing.errors.points, writing.parameters.len()), (18, 4));
    assert!(writing.errors.median < 0.071 && writing.errors.worst < 0.31, "{:?}", writing.errors);
    // Where nothing was left out of the fit, it is said why.
    for table in report.tables.iter().filter(|table| table.unseen.is_none()) {
        assert!(table.left_out.starts_with("nothing: "), "{}: {}", table.name, table.left_out);
    }
    let dac = of(&report, "Data Accelerator");
    assert!(dac.errors.median < 0.03 && dac.errors.worst < 0.04, "{:?}", dac.errors);
    let vxflex = of(&report, "VxFlex IOR");
    assert!(vxflex.errors.median < 0.02 && vxflex.errors.worst < 0.1, "{:?}", vxflex.errors);
}

#[test]
fn every_published_table_is_reproduced_or_said_not_to_be() {
    let report = report().unwrap();
    let mut known = [
        "normalized_headlines.csv",
        "seed000_hardware_and_claims.csv",
        "seed000_table1_ior_long.csv",
        "seed000_table1_ior_wide.csv",
        "seed000_table2_mdtest_1mdt.csv",
        "seed000_table3_mdtest_8mdt.csv",
        "seed001_hardware_and_tuning.csv",
        "seed001_ior.csv",
        "seed001_mdtest.csv",
        "seed001_scaling_claims.csv",
        "seed002_config.csv",
        "seed002_hardware_and_tuning.csv",
        "seed002_io500_runs.csv",
        "seed003_claims.csv",
        "seed004_iozone.csv",
        "seed004_iozone_long.csv",
        "seed004_sizing.csv",
    ];
    known.sort_unstable();
    let mut listed: Vec<&str> = report.published.iter().map(|one| one.table).collect();
    listed.sort_unstable();
    assert_eq!(listed, known);
    let text = report.text();
    for one in report.published {
        assert!(!one.used.is_empty() || one.not.is_some(), "{}", one.table);
        for name in one.used {
            let fitted = report.tables.iter().any(|table| table.name == *name);
            let predicted = (*name == RUNS && !report.runs.is_empty())
                || (*name == ELSEWHERE && !report.elsewhere.is_empty());
            let example = example::ALL.iter().any(|(example, _)| example == name);
            assert!(fitted || predicted || example || *name == PLAN, "{}: {name}", one.table);
        }
        let said = text.contains(&format!("  {}: ", one.table));
        assert_eq!(said, one.not.is_some(), "{}", one.table);
    }
}

#[test]
fn fitted_parameters_are_physical() {
    let report = report().unwrap();
    for table in &report.tables {
        assert!(!table.parameters.is_empty());
        for one in &table.parameters {
            assert!(
                one.value.is_finite() && one.value >= 0.0 && !one.meaning.is_empty(),
                "{one:?}"
            );
        }
    }
    let dac = &of(&report, "Data Accelerator").parameters;
    assert!(dac.len() == 1 && close(dac[0].value, 0.935, 0.01), "{dac:?}");
    // A node's rate stays below its port, the servers' ceiling below theirs.
    for one in &of(&report, "LFS12 IOR").parameters {
        assert!(one.symbol != "c" || one.value < 12.0, "{one:?}");
        assert!(one.symbol != "S" || one.value < 384.0, "{one:?}");
    }
}

#[test]
fn runs_that_hardware_does_not_predict_name_what_is_missing() {
    let report = report().unwrap();
    assert_eq!(report.runs.len(), 10);
    for run in &report.runs {
        let way = run.direction.name();
        let ceiling = format!("clients.ceiling_{way}");
        let efficiency = format!("efficiency.{way}");
        assert!(!run.missing.is_empty(), "{run:?}");
        if run.nodes < 500 {
            assert!(run.missing.contains(&ceiling), "{run:?}");
        }
        assert_eq!(run.missing.contains(&efficiency), run.software != "Lustre", "{run:?}");
    }
    let ten = |direction: Direction| {
        report
            .runs
            .iter()
            .find(|run| run.run == "SC19, 10 nodes" && run.direction == direction)
            .unwrap()
    };
    for (direction, bare) in [(Direction::Write, 0.5), (Direction::Read, 1.0)] {
        let run = ten(direction);
        assert!(run.error > bare, "hardware alone: {run:?}");
        assert!(run.error_with_ceiling.unwrap().abs() < 0.17, "with the missing input: {run:?}");
    }
}

#[test]
fn the_runs_that_were_fitted_lack_nothing() {
    for row in table::dac_ior_easy().unwrap().iter().filter(|row| row.is_fitted()) {
        let prediction = predict(&machine_of(row).unwrap()).unwrap();
        // Of metadata nothing was fitted there.
        let mut missing = prediction.missing.iter();
        assert!(missing.all(|one| one.input.starts_with("metadata.")), "{:?}", prediction.missing);
        let found = prediction.bandwidth.iter().find(|one| one.direction == row.direction).unwrap();
        assert!(close(found.rate, row.rate(), 0.04), "{row:?}: {}", found.rate);
        let drives_bind = row.direction == Direction::Write;
        assert_eq!(found.bound_by == Resource::Drives, drives_bind, "{found:?}");
    }
}

#[test]
fn another_efficiency_predicts_another_file_system() {
    let row =
        table::dac_ior_easy().unwrap().into_iter().find(|row| row.software == "BeeGFS").unwrap();
    let mut machine = machine_of(&row).unwrap();
    let share = row.rate() / machine.servers_limit(row.direction);
    let text = format!("read = {share}\nwrite = {share}");
    machine.efficiency = Some(toml::from_str(&text).unwrap());
    let prediction = predict(&machine).unwrap();
    assert!(prediction.missing.iter().all(|missing| !missing.input.starts_with("efficiency")));
    let found = prediction.bandwidth.iter().find(|one| one.direction == row.direction).unwrap();
    assert!(close(found.rate, row.rate(), 1e-9), "{found:?}");
}

#[test]
fn lfs12_is_predicted_as_it_was_measured() {
    let hardware = example::read(example::LFS12).unwrap();
    let prediction = predict(&hardware).unwrap();
    let measured = table::lfs12_ior().unwrap();
    for found in &prediction.bandwidth {
        let row = measured
            .iter()
            .find(|row| {
                (row.direction, row.api, row.nodes, row.ppn)
                    == (found.direction, Api::Posix, 256, 4)
                    && row.transfer() == 4.0 * MIB
            })
            .unwrap();
        assert!(close(found.rate, row.rate(), 0.1), "{found:?}, measured {}", row.rate());
        assert_eq!(found.bound_by, Resource::ServersNetwork);
    }
    assert!(prediction.missing.is_empty() && prediction.outside.is_empty(), "{prediction:?}");
    let create = prediction.metadata.iter().find(|one| one.operation == Operation::Create).unwrap();
    assert!(create.rate > 120e3 && create.rate < create.ceiling, "{create:?}");
    assert_eq!(create.bound_by, "MDTs in use");
}

#[test]
fn few_clients_bind_where_they_are_few() {
    let mut hardware = example::read(example::LFS12).unwrap();
    hardware.clients.nodes = 4;
    hardware.clients.processes = 1;
    let prediction = predict(&hardware).unwrap();
    for found in &prediction.bandwidth {
        assert_eq!(found.bound_by, Resource::ClientsSoftware);
        assert!(found.per_node > 1e9 && found.per_node < 2e9, "{found:?}");
    }
    assert!(prediction.metadata.iter().all(|one| one.bound_by.contains("processes")));
    assert!(prediction.outside.iter().any(|text| text.contains("processes at the MDTs")));
}

#[test]
fn vxflex_loses_what_its_paper_says_with_small_calls() {
    let mut hardware = example::read(example::VXFLEX).unwrap();
    hardware.clients.transfer = Size(131_072.0);
    let prediction = predict(&hardware).unwrap();
    for (found, measured) in prediction.bandwidth.iter().zip([37.4e9, 13.2e9]) {
        assert!(close(found.rate, measured, 0.1), "{found:?}");
    }
    hardware.clients.transfer = Size(4096.0);
    let prediction = predict(&hardware).unwrap();
    assert!(prediction.outside.iter().any(|text| text.contains("bytes a call")));
}

#[test]
fn lfs09_reached_most_of_its_ideal_and_what_is_missing_is_said() {
    let prediction = predict(&example::read(example::LFS09).unwrap()).unwrap();
    let read = &prediction.bandwidth[0];
    assert_eq!(read.rate, 48e9);
    let best = table::lfs09_iozone().unwrap().iter().map(|row| row.rate()).fold(0.0, f64::max);
    assert!(best < read.rate && best > 0.9 * read.rate);
    let missing: Vec<&str> = prediction.missing.iter().map(|one| one.input.as_str()).collect();
    for input in ["efficiency.read", "servers.device_write", "clients.ceiling_read"] {
        assert!(missing.contains(&input), "no {input} in {missing:?}");
    }
    for input in ["metadata.one_process", "metadata.one_mdt"] {
        assert!(missing.contains(&input), "no {input} in {missing:?}");
    }
    assert!(prediction.metadata.is_empty());
}

/// The inputs of metadata that a prediction calls missing.
fn missing_of_metadata(hardware: &Hardware) -> Vec<String> {
    let missing =
        predict(hardware).expect("it can be predicted").missing.into_iter().map(|one| one.input);
    missing.filter(|input| input.starts_with("metadata")).collect()
}

#[test]
fn metadata_of_other_machines_want_what_was_measured_there() {
    let both = ["metadata.one_process", "metadata.one_mdt"];
    let mut lfs12 = example::read(example::LFS12).unwrap();
    assert_eq!(missing_of_metadata(&lfs12), [""; 0]);
    let mut metadata = lfs12.metadata.unwrap();
    metadata.directories = Directories::Unique;
    lfs12.metadata = Some(metadata);
    assert_eq!(missing_of_metadata(&lfs12), both, "its costs are those of a shared directory");
    for example in [example::DATA_ACCELERATOR, example::VXFLEX] {
        assert_eq!(missing_of_metadata(&example::read(example).unwrap()), both);
    }
    // Once they are said, they are what is predicted from: alone, and without an end to clients.
    let text = example::DATA_ACCELERATOR.replace(
        "directories = \"unique\"",
        "directories = \"unique\"\n[metadata.one_process]\ncreate = 1000\nstat = 2000\nremove = 500\n\
         [metadata.one_mdt]\ncreate = 20e3\nstat = 100e3\nremove = 10e3",
    );
    let mut said = Hardware::parse(&text).unwrap();
    assert_eq!(missing_of_metadata(&said), [""; 0]);
    let rates = |hardware: &Hardware| -> Vec<f64> {
        predict(hardware).unwrap().metadata.iter().map(|one| one.rate).collect()
    };
    let close_to = |found: &[f64], wanted: [f64; 3]| {
        assert_eq!(found.len(), 3);
        assert!(found.iter().zip(wanted).all(|(a, b)| close(*a, b, 0.02)), "{found:?}");
    };
    (said.clients.nodes, said.clients.processes) = (1, 1);
    close_to(&rates(&said), [1000.0, 2000.0, 500.0]);
    (said.clients.nodes, said.clients.processes) = (1000, 100);
    close_to(&rates(&said), [480e3, 2400e3, 240e3]);
    // A profile without costs predicts from them, too.
    said.profile = "ideal".to_string();
    close_to(&rates(&said), [480e3, 2400e3, 240e3]);
}

#[test]
fn metadata_elsewhere_are_called_unpredicted_by_hardware() {
    let report = report().unwrap();
    assert!(report.elsewhere.iter().any(|row| row.error.abs() > 0.2));
    for row in &report.elsewhere {
        assert_eq!(row.missing, ["metadata.one_process", "metadata.one_mdt"], "{}", row.run);
    }
    let text = report.text();
    assert!(text.contains("how fast an MDT is no data sheet says"), "{text}");
}

#[test]
fn more_of_anything_never_predicts_less() {
    for name in ["lustre-2.10-buffered", "lustre-2.12-direct", "vxflex", "ideal"] {
        let profile = Profile::named(name).unwrap();
        let mut hardware = example::read(example::LFS12).unwrap();
        let rate = |hardware: &Hardware| {
            let prediction = sateen_model::predict::predict_as(hardware, &profile);
            prediction.bandwidth.iter().map(|one| one.rate).fold(0.0, f64::max)
        };
        let mut before = 0.0;
        for nodes in [1, 2, 3, 5, 17, 100, 256, 1000, 100_000] {
            hardware.clients.nodes = nodes;
            let now = rate(&hardware);
            assert!(now >= before, "{name}: {nodes} nodes");
            before = now;
        }
        hardware.servers.count *= 2;
        assert!(rate(&hardware) > before, "{name}: twice the servers");
    }
}

#[test]
fn copies_cost_those_who_send_them() {
    let mut hardware = example::read(example::LFS12).unwrap();
    hardware.profile = "ideal".to_string();
    let plain = predict(&hardware).unwrap();
    hardware.servers.copies = 2;
    let mirrored = predict(&hardware).unwrap();
    assert_eq!(plain.bandwidth[0].rate, mirrored.bandwidth[0].rate, "reading");
    assert_eq!(plain.bandwidth[1].rate, 2.0 * mirrored.bandwidth[1].rate, "writing");
    let network = |prediction: &sateen_model::predict::Prediction| {
        prediction.bandwidth[1]
            .limits
            .iter()
            .find(|limit| limit.resource == Resource::ServersNetwork)
            .unwrap()
            .hardware
    };
    assert_eq!(network(&plain), 2.0 * network(&mirrored));
    hardware.servers.copied_by = sateen_model::hardware::CopiedBy::Storage;
    assert_eq!(network(&predict(&hardware).unwrap()), network(&plain));
}

fn talk() -> Request {
    // The rate of one node that the talk's own table shows: half of its tests do less.
    let alone = table::lfs09_iozone().expect("the table is read");
    let mut rates: Vec<f64> =
        alone.iter().filter(|row| row.nodes == 1).map(|row| row.rate()).collect();
    rates.sort_by(f64::total_cmp);
    let (low, high) = rates.split_at(rates.len() / 2);
    let median = low.last().zip(high.first()).map(|(a, b)| (a + b) / 2.0);
    let median = median.expect("the table has rows of one node");
    Request {
        thread_rate: Rate(50e6),
        node_rate: Some(Rate(median)),
        cores: None,
        memory: None,
        lock: 0.9,
        tests: 8,
        repeats: 3,
    }
}

#[test]
fn the_talks_inputs_give_the_talks_numbers() {
    let hardware = example::read(example::LFS09).unwrap();
    let sized = plan(&hardware, &talk()).unwrap();
    assert_eq!(sized.servers_limit, Rate(48e9));
    assert_eq!(sized.nodes_by_network, 8);
    assert_eq!(sized.threads, 960);
    assert_eq!(sized.nodes_by_cores, 40);
    assert_eq!(sized.nodes, 128);
    assert!(close(sized.locked.cache.0, 6.4e9, 1e-9), "{:?}", sized.locked);
    assert_eq!(sized.locked.per_node, Size(10e9));
    assert_eq!(sized.unlocked.per_node, Size(100e9));
    assert_eq!(sized.unlocked.total, Size(12.8e12));
    assert_eq!(sized.node_counts, [1, 2, 4, 8, 16, 32, 64, 128]);
    assert!(close(sized.unlocked.seconds, 10.0 * sized.locked.seconds, 1e-9));
    assert_eq!(sized.warnings.len(), 1, "{:?}", sized.warnings);
    assert!(sized.warnings[0].contains("storage.capacity"));
}

#[test]
fn a_plan_warns_of_what_would_spoil_it() {
    let mut hardware = example::read(example::LFS09).unwrap();
    hardware.clients.nodes = 32;
    hardware.storage = Some(toml::from_str("capacity = \"10 TB\"\nused = \"6 TB\"").unwrap());
    let mut request = talk();
    request.repeats = 1;
    let sized = plan(&hardware, &request).unwrap();
    assert_eq!(sized.nodes, 32);
    let has = |text: &str| sized.warnings.iter().any(|warning| warning.contains(text));
    assert!(has("only 32 of"), "{:?}", sized.warnings);
    assert!(has("without the lock the data fill the file system to 92"), "{:?}", sized.warnings);
    assert!(!has("with the lock the data fill"), "{:?}", sized.warnings);
    assert!(has("1 repeats"), "{:?}", sized.warnings);
    request.node_rate = None;
    request.memory = Some(Size(1e9));
    let sized = plan(&hardware, &request).unwrap();
    let has = |text: &str| sized.warnings.iter().any(|warning| warning.contains(text));
    assert!(has("--node-ceiling") && has("the shortest run"), "{:?}", sized.warnings);
}

#[test]
fn errors_are_summed_up_over_both_signs() {
    assert_eq!(Summary::of(&[-0.5, 0.1, 0.2]).worst, 0.5);
}

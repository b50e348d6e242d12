//! IOR's JSON: its names, as one valid document; beside them what IOR does not have, the
//! latencies of single transfers and the warnings.

use serde::Serialize;

use super::{About, Kind, Results, Row, VERSION, text};
use crate::engine::shown::Mark;
use crate::error::{Error, Result};
use crate::guard::Pitfall;
use crate::pattern::Packet;
use crate::progress::Series;
use crate::size::{KIB, MIB, human};
use crate::stats::Quantiles;
use crate::when;

#[derive(Serialize)]
struct Whole<'a> {
    #[serde(rename = "sateenBench")]
    mark: Mark,
    #[serde(rename = "Version")]
    version: &'a str,
    #[serde(rename = "Began")]
    began: String,
    #[serde(rename = "Command line")]
    command_line: String,
    #[serde(rename = "Machine")]
    machine: String,
    tests: [Test<'a>; 1],
    summary: Vec<Summary<'a>>,
    warnings: &'a [String],
    pitfalls: &'a [Pitfall],
    #[serde(rename = "Finished")]
    finished: String,
}

#[derive(Serialize)]
struct Test<'a> {
    #[serde(rename = "TestID")]
    id: u32,
    #[serde(rename = "StartTime")]
    start: String,
    #[serde(rename = "Path")]
    path: String,
    #[serde(rename = "Capacity")]
    capacity: &'a str,
    #[serde(rename = "Used Capacity")]
    used: &'a str,
    #[serde(rename = "Inodes")]
    inodes: &'a str,
    #[serde(rename = "Used Inodes")]
    inodes_used: &'a str,
    #[serde(rename = "Parameters")]
    parameters: Parameters<'a>,
    #[serde(rename = "Options")]
    options: Options<'a>,
    #[serde(rename = "Results")]
    results: Vec<Outcome<'a>>,
    max: Max,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Parameters<'a> {
    #[serde(rename = "testID")]
    test_id: u32,
    refnum: u64,
    api: &'a str,
    platform: String,
    test_file_name: &'a str,
    deadline_for_stonewall: u64,
    #[serde(rename = "stoneWallingWearOut")]
    stone_wall_wear_out: u8,
    max_time_duration: u64,
    outlier_threshold: u64,
    options: String,
    dry_run: u8,
    nodes: usize,
    memory_per_task: u64,
    memory_per_node: u64,
    tasks_per_node: usize,
    repetitions: usize,
    multi_file: u8,
    inter_test_delay: u64,
    fsync: u8,
    fsyncperwrite: u8,
    use_existing_test_file: u8,
    unique_dir: u8,
    single_xfer_attempt: u8,
    read_file: u8,
    write_file: u8,
    file_per_proc: u8,
    reorder_tasks: u8,
    reorder_tasks_random: u8,
    reorder_tasks_random_seed: i64,
    random_offset: u8,
    check_write: u8,
    check_read: u8,
    data_packet_type: u8,
    keep_file: u8,
    keep_file_with_error: u8,
    warning_as_errors: u8,
    verbose: u8,
    #[serde(rename = "data packet type")]
    packet: &'a str,
    #[serde(rename = "setTimeStampSignature/incompressibleSeed")]
    signature: u32,
    collective: u8,
    segment_count: u64,
    transfer_size: u64,
    block_size: u64,
}

#[derive(Serialize)]
struct Options<'a> {
    api: &'a str,
    #[serde(rename = "apiVersion")]
    api_version: &'a str,
    #[serde(rename = "test filename")]
    file: &'a str,
    access: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    segments: u64,
    #[serde(rename = "ordering in a file")]
    ordering: &'a str,
    #[serde(rename = "ordering inter file")]
    readers: &'a str,
    #[serde(rename = "task offset", skip_serializing_if = "Option::is_none")]
    offset: Option<usize>,
    #[serde(rename = "reorder random seed", skip_serializing_if = "Option::is_none")]
    seed: Option<i64>,
    nodes: usize,
    tasks: usize,
    #[serde(rename = "clients per node")]
    clients: usize,
    #[serde(rename = "memoryBuffer")]
    memory: &'a str,
    #[serde(rename = "dataAccess")]
    data_access: &'a str,
    #[serde(rename = "GPUDirect")]
    gpu_direct: &'a str,
    repetitions: usize,
    xfersize: String,
    blocksize: String,
    #[serde(rename = "aggregate filesize")]
    aggregate: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    verbose: Option<u8>,
    #[serde(rename = "stonewallingTime", skip_serializing_if = "Option::is_none")]
    deadline: Option<u64>,
    #[serde(rename = "stoneWallingWearOut", skip_serializing_if = "Option::is_none")]
    wear_out: Option<u8>,
    // What IOR's JSON says nowhere, and a rate depends on.
    #[serde(rename = "posix.odirect")]
    direct: bool,
    #[serde(rename = "mpiio.preallocate")]
    preallocate: bool,
    #[serde(rename = "mpiio.useFileView")]
    file_view: bool,
    #[serde(rename = "mpiio.hints")]
    hints: &'a str,
    #[serde(rename = "intraTestBarriers")]
    barriers: bool,
    #[serde(rename = "caches dropped")]
    drops_caches: bool,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Outcome<'a> {
    Moved {
        access: &'a str,
        #[serde(rename = "bwMiB")]
        bandwidth: f64,
        #[serde(rename = "blockKiB")]
        block: f64,
        #[serde(rename = "xferKiB")]
        transfer: f64,
        iops: f64,
        latency: f64,
        #[serde(rename = "openTime")]
        open: f64,
        #[serde(rename = "wrRdTime")]
        moving: f64,
        #[serde(rename = "closeTime")]
        close: f64,
        #[serde(rename = "totalTime")]
        total: f64,
        #[serde(rename = "wrongTransfers")]
        wrong: u64,
        iteration: usize,
        #[serde(rename = "sumOfRanksMiB")]
        sum_of_ranks: f64,
        #[serde(rename = "startSkew")]
        start_skew: f64,
        #[serde(rename = "endSkew")]
        end_skew: f64,
        #[serde(rename = "ranksMiB")]
        ranks: Vec<f64>,
        #[serde(rename = "seriesMiB")]
        series: Series,
    },
    Removed {
        access: &'a str,
        #[serde(rename = "totalTime")]
        total: f64,
    },
}

#[derive(Serialize, Default)]
struct Max {
    #[serde(rename = "writeMiB", skip_serializing_if = "Option::is_none")]
    write_mib: Option<f64>,
    #[serde(rename = "writeMB", skip_serializing_if = "Option::is_none")]
    write_mb: Option<f64>,
    #[serde(rename = "readMiB", skip_serializing_if = "Option::is_none")]
    read_mib: Option<f64>,
    #[serde(rename = "readMB", skip_serializing_if = "Option::is_none")]
    read_mb: Option<f64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Summary<'a> {
    operation: &'a str,
    #[serde(rename = "API")]
    api: &'a str,
    #[serde(rename = "TestID")]
    test_id: u32,
    #[serde(rename = "ReferenceNumber")]
    reference: u64,
    segment_count: u64,
    block_size: u64,
    transfer_size: u64,
    num_tasks: usize,
    tasks_per_node: usize,
    repetitions: usize,
    file_per_proc: u8,
    reorder_tasks: u8,
    task_per_node_offset: usize,
    reorder_tasks_random: u8,
    reorder_tasks_random_seed: i64,
    #[serde(rename = "bwMaxMIB")]
    max: f64,
    #[serde(rename = "bwMinMIB")]
    min: f64,
    #[serde(rename = "bwMedianMIB")]
    median: f64,
    #[serde(rename = "bwMeanMIB")]
    mean: f64,
    #[serde(rename = "bwStdMIB")]
    deviation: f64,
    #[serde(rename = "OPsMax")]
    operations_max: f64,
    #[serde(rename = "OPsMin")]
    operations_min: f64,
    #[serde(rename = "OPsMean")]
    operations_mean: f64,
    #[serde(rename = "OPsSD")]
    operations_deviation: f64,
    #[serde(rename = "MeanTime")]
    mean_s: f64,
    #[serde(rename = "StoneWallTime", skip_serializing_if = "Option::is_none")]
    stonewall_s: Option<f64>,
    #[serde(rename = "StoneWallbwMeanMIB", skip_serializing_if = "Option::is_none")]
    stonewall_mib: Option<f64>,
    #[serde(rename = "xsizeMiB")]
    mib: f64,
    latency: Option<Quantiles>,
}

/// The whole document.
pub(super) fn whole(about: &About, results: &Results, began: u64) -> Result<String> {
    let document = Whole {
        mark: Mark::of("ior"),
        version: VERSION,
        began: when::ctime(began),
        command_line: about.command_line.join(" "),
        machine: format!("Linux {}", about.nodes.root),
        tests: [test(about, results, began)],
        summary: [Kind::Write, Kind::Read]
            .into_iter()
            .filter_map(|kind| summary(about, results, kind))
            .collect(),
        warnings: &results.warnings,
        pitfalls: &results.pitfalls,
        finished: when::ctime(when::unix_seconds()),
    };
    let text = serde_json::to_string_pretty(&document);
    text.map(|text| text + "\n").map_err(|error| Error::Failed(format!("no JSON: {error}")))
}

fn test<'a>(about: &'a About, results: &'a Results, began: u64) -> Test<'a> {
    let room = about.room.as_ref();
    let total = |kind| results.total(kind, about).map(|total| total.bandwidth.max);
    let (write, read) = (total(Kind::Write), total(Kind::Read));
    let removals = results.removals.iter();
    Test {
        id: 0,
        start: when::ctime(began),
        path: about.place.display().to_string(),
        capacity: room.map_or("", |room| &room.capacity),
        used: room.map_or("", |room| &room.used),
        inodes: room.map_or("", |room| &room.inodes),
        inodes_used: room.map_or("", |room| &room.inodes_used),
        parameters: parameters(about),
        options: options(about),
        results: (results.rows.iter().map(|row| outcome(about, row)))
            .chain(removals.map(|seconds| Outcome::Removed { access: "remove", total: *seconds }))
            .collect(),
        max: Max {
            write_mib: write.map(|rate| rate / MIB as f64),
            write_mb: write.map(|rate| rate / 1e6),
            read_mib: read.map(|rate| rate / MIB as f64),
            read_mb: read.map(|rate| rate / 1e6),
        },
    }
}

fn outcome<'a>(about: &About, row: &'a Row) -> Outcome<'a> {
    let (point, spread) = (&row.point, &row.spread);
    // Infinity, of a phase without transfers, is nothing that JSON knows.
    let latency = if point.latency_s.is_finite() { point.latency_s } else { 0.0 };
    Outcome::Moved {
        access: row.kind.name(),
        bandwidth: point.bandwidth / MIB as f64,
        block: about.test.block as f64 / KIB as f64,
        transfer: about.test.transfer as f64 / KIB as f64,
        iops: point.iops,
        latency,
        open: point.open_s,
        moving: point.transfer_s,
        close: point.close_s,
        total: point.total_s,
        wrong: point.wrong,
        iteration: row.repetition,
        sum_of_ranks: spread.sum_of_ranks / MIB as f64,
        start_skew: spread.start_skew_s,
        end_skew: spread.end_skew_s,
        ranks: spread.ranks.iter().map(|rate| rate / MIB as f64).collect(),
        series: row.series.scaled(about.test.transfer as f64 / MIB as f64),
    }
}

fn parameters<'a>(about: &'a About) -> Parameters<'a> {
    let test = about.test;
    Parameters {
        test_id: 0,
        refnum: test.reference,
        api: text::api(about),
        platform: platform(&about.nodes.root),
        test_file_name: &test.file,
        deadline_for_stonewall: test.deadline,
        stone_wall_wear_out: test.more.wear_out.into(),
        // What is 0 here is an option of IOR that is not here.
        max_time_duration: 0,
        outlier_threshold: 0,
        options: test.directives.join(","),
        dry_run: 0,
        nodes: about.nodes.count,
        memory_per_task: 0,
        memory_per_node: 0,
        tasks_per_node: about.nodes.ranks_on_root,
        repetitions: test.repetitions,
        multi_file: test.multi_file.into(),
        inter_test_delay: test.delay,
        fsync: test.fsync.into(),
        fsyncperwrite: test.fsync_per_write.into(),
        use_existing_test_file: test.existing.into(),
        unique_dir: test.unique_dir.into(),
        single_xfer_attempt: 0,
        read_file: test.read.into(),
        write_file: test.write.into(),
        file_per_proc: test.file_per_rank.into(),
        reorder_tasks: test.reorder.into(),
        reorder_tasks_random: test.reorder_random,
        reorder_tasks_random_seed: test.reorder_seed,
        random_offset: test.random_offset,
        check_write: test.check_write.into(),
        check_read: test.check_read.into(),
        data_packet_type: packet(test.packet).0,
        keep_file: test.keep.into(),
        keep_file_with_error: test.keep_wrong.into(),
        warning_as_errors: 0,
        verbose: test.verbose,
        packet: packet(test.packet).1,
        signature: about.signature,
        collective: test.collective.into(),
        segment_count: test.segments,
        transfer_size: test.transfer,
        block_size: test.block,
    }
}

/// IOR's name of a kind of machine: the host's without its number, and the system's.
fn platform(host: &str) -> String {
    format!("{}(Linux)", host.trim_end_matches(|one: char| one.is_ascii_digit()))
}

/// IOR's number and letter of what is written. The letters are one place off there, and are
/// here, so that files of both programs can be told apart by them alike.
fn packet(packet: Packet) -> (u8, &'static str) {
    match packet {
        Packet::Timestamp => (0, "g"),
        Packet::Offset => (1, "t"),
        Packet::Incompressible => (2, "o"),
        Packet::Random => (3, "i"),
    }
}

fn options<'a>(about: &'a About) -> Options<'a> {
    let test = about.test;
    let own = test.file_per_rank;
    let moved = test.reorder || test.reorder_random > 0;
    let by_chance = !test.reorder && test.reorder_random > 0;
    let walled = test.deadline > 0;
    Options {
        api: text::api(about),
        api_version: &about.api_version,
        file: &test.file,
        access: if own { "file-per-process" } else { "single-shared-file" },
        kind: if test.collective { "collective" } else { "independent" },
        segments: test.segments,
        ordering: if test.random_offset > 0 { "random" } else { "sequential" },
        readers: text::readers(test),
        offset: moved.then_some(test.node_offset),
        seed: by_chance.then_some(test.reorder_seed),
        nodes: about.nodes.count,
        tasks: about.ranks,
        clients: about.nodes.ranks_on_root,
        memory: "CPU",
        data_access: "CPU",
        gpu_direct: "0",
        repetitions: test.repetitions,
        xfersize: human(test.transfer),
        blocksize: human(test.block),
        aggregate: human(test.expected_bytes(about.ranks)),
        verbose: (test.verbose > 0).then_some(test.verbose),
        deadline: walled.then_some(test.deadline),
        wear_out: walled.then(|| test.more.wear_out.into()),
        direct: test.direct,
        preallocate: test.preallocate,
        file_view: test.file_view,
        hints: &about.hints,
        barriers: test.barriers,
        drops_caches: about.drops_caches,
    }
}

fn summary<'a>(about: &'a About, results: &Results, kind: Kind) -> Option<Summary<'a>> {
    let test = about.test;
    let total = results.total(kind, about)?;
    let scaled = |rate: f64| rate / MIB as f64;
    let latency = results.latencies.iter().find(|one| one.0 == kind).map(|one| one.1);
    Some(Summary {
        operation: kind.name(),
        api: text::api(about),
        test_id: 0,
        reference: test.reference,
        segment_count: test.segments,
        block_size: test.block,
        transfer_size: test.transfer,
        num_tasks: about.ranks,
        tasks_per_node: about.nodes.ranks_on_root,
        repetitions: test.repetitions,
        file_per_proc: test.file_per_rank.into(),
        reorder_tasks: test.reorder.into(),
        task_per_node_offset: test.node_offset,
        reorder_tasks_random: test.reorder_random,
        reorder_tasks_random_seed: test.reorder_seed,
        max: scaled(total.bandwidth.max),
        min: scaled(total.bandwidth.min),
        median: scaled(total.bandwidth.median),
        mean: scaled(total.bandwidth.mean),
        deviation: scaled(total.bandwidth.deviation),
        operations_max: total.operations.max,
        operations_min: total.operations.min,
        operations_mean: total.operations.mean,
        operations_deviation: total.operations.deviation,
        mean_s: total.mean_s,
        stonewall_s: total.stonewall.map(|wall| wall.0),
        stonewall_mib: total.stonewall.map(|wall| scaled(wall.1)),
        mib: total.bytes as f64 / MIB as f64,
        latency,
    })
}

//! OSTs with disks so slow that what a client keeps takes longer to be written out than it may take to give a
//! lock back. Another reads the file all the same. Nobody is evicted for that, and everything is there.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use sateen_client::OpenHow;
use sateen_types::{Endpoint, Errno, Fid};

use super::{Config, Failure, World};
use crate::executor::lock;
use crate::kernel::Kernel;
use crate::net::Weather;
use crate::report::Report;

/// Bytes of one write, and of one request: 64 KiB.
const RUN_BYTES: u64 = 64 << 10;
const RUN_PAGES: u32 = 16;
/// Writes for each OST, and how long its disk is at one: 1.5 s. All together take three times as long as a
/// holder has that says nothing.
const RUNS: u64 = 40;
const SLOW_NS: u64 = 1_500_000_000;
/// What clients keep for each OST.
const KEPT_BYTES: u64 = 64 << 20;
/// The name of the file.
const NAME: &[u8] = b"slow";

/// What has happened.
#[derive(Debug, Default)]
struct Done {
    ended: usize,
    operations: u64,
    failure: Option<String>,
}

fn said(what: &'static str) -> impl Fn(Errno) -> String {
    move |errno| format!("{what}: {}", errno.name())
}

/// One writes all of the file, the other reads it.
async fn turn(
    (writer, reader): (&Kernel, &Kernel),
    (runs, with): (u64, u8),
    done: &Mutex<Done>,
) -> Result<(), String> {
    let writes = OpenHow { read: true, write: true, ..OpenHow::default() };
    let file = writer.open(Fid::ROOT, NAME, Some(0o600), writes).await.map_err(said("open"))?;
    let run = Bytes::from(vec![with; RUN_BYTES as usize]);
    for at in 0..runs {
        writer.write(file, at * RUN_BYTES, run.clone()).await.map_err(said("write"))?;
        lock(done).operations += 1;
    }
    let reads = OpenHow { read: true, direct: true, ..OpenHow::default() };
    let look = reader.open(Fid::ROOT, NAME, None, reads).await.map_err(said("open to read"))?;
    for at in 0..runs {
        let got = reader.read(look, at * RUN_BYTES, RUN_BYTES).await.map_err(said("read"))?;
        if got != run {
            return Err(format!("write {at} of {with} is not there"));
        }
        lock(done).operations += 1;
    }
    reader.close(look).await.map_err(said("close"))?;
    writer.close(file).await.map_err(said("close"))
}

async fn work(kernels: Vec<Arc<Kernel>>, (runs, turns): (u64, u64), done: Arc<Mutex<Done>>) {
    let mut result = Ok(());
    for with in 0..turns {
        let (first, second) = (with as usize % kernels.len(), (with as usize + 1) % kernels.len());
        let (Some(writer), Some(reader)) = (kernels.get(first), kernels.get(second)) else { break };
        result = turn((writer, reader), (runs, with as u8 | 1 << 7), &done).await;
        if result.is_err() {
            break;
        }
    }
    let mut done = lock(&done);
    (done.failure, done.ended) = (result.err(), 1);
}

impl World {
    /// Runs one seed with slow disks, in which as many `operations` are turns of a writer and a reader.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn run_slow(config: Config) -> Result<Report, Box<Failure>> {
        let turns = config.operations;
        World::run_programs(config, |world| world.go_slowly(turns))
    }

    fn go_slowly(&mut self, turns: u64) {
        if self.nodes.len() < 2 {
            let node = self.nodes.len();
            self.new_client(node);
            let is_there = |world: &World| world.nodes.get(node).is_some_and(|node| node.mounted);
            while !is_there(self) && self.step() {}
        }
        for ost in self.shape.osts() {
            if let Some(host) = self.hosts.get_mut(&ost) {
                host.slow_ns = SLOW_NS;
            }
            for node in &self.nodes {
                node.client.set_dirty_max(KEPT_BYTES, 8 * KEPT_BYTES);
                let set = node.client.set_rpc_pages_max(ost, RUN_PAGES);
                assert!(set.is_ok() && matches!(ost, Endpoint::Ost(_)), "it takes writes");
            }
        }
        let done = Arc::<Mutex<Done>>::default();
        let kernels = self.nodes.iter().map(|node| node.kernel.clone()).collect();
        let Some(owner) = self.nodes.first().map(|node| node.id.0) else { return };
        let runs = RUNS * u64::from(self.shape.osts);
        self.executor.spawn(owner, Box::pin(work(kernels, (runs, turns), done.clone())));
        self.until_ended(1, |_| {
            let mut done = lock(&done);
            (done.ended, done.operations, done.failure.take())
        });
        self.network.weather = Weather::default();
        self.report.operations = lock(&done).operations;
        let told = self.report.traffic.sent_of("request MDT GoesOn");
        self.report.count("told that it goes on", told);
        let evicted = self.report.get("client evicted");
        if evicted > 0 || told == 0 {
            self.fail(format!("{evicted} clients were evicted, and it was told {told} times"));
        }
    }
}

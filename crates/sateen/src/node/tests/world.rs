//! A file system with one MDT, mounted, for tests of what a process measures: embedded, or with servers
//! of their own, over TCP or shared memory.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use sateen_fuse::{TransportChoice, UnmountMode};
use sateen_lnd::Ways;
use sateen_testkit::cluster::PATIENCE;
use sateen_types::Nid;

use super::LIMIT_NS;
use crate::cli::RequestArgs;
use crate::data_dir::DataDir;
use crate::node::mgc::Stop;
use crate::node::{How, Node, Source, set_ways};
use crate::targets;
use crate::testing::Scratch;

/// Servers may take their time to start.
const START: Duration = Duration::from_secs(120);

/// How mount and servers are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Embedded,
    /// The same, whose requests come over /dev/fuse.
    Classic,
    Tcp,
    Shm,
}

/// A mount and what it is of.
#[derive(Clone, Copy)]
pub(super) struct World<'a> {
    pub point: &'a Path,
    /// What has the mount.
    pub node: &'a Node,
    /// What has the targets: the same, where they are embedded.
    pub servers: &'a Node,
}

/// Runs a test on a mount of a file system with one OST, with the node that has it. The process must
/// be the test's alone.
pub(super) fn mounted(way: Way, test: impl FnOnce(&Path, &Node)) {
    mounted_with((way, 1), How::new(false), |world| test(world.point, world.node));
}

/// The same, with so many OSTs, mounted so.
pub(super) fn mounted_with((way, osts): (Way, u32), how: How, test: impl FnOnce(World<'_>)) {
    let scratch = Scratch::new("world");
    let data = DataDir::at(&scratch.path().join("data")).unwrap();
    let lock = data.open().unwrap();
    let targets = targets::open_or_make(&data, Some(1), Some(osts)).unwrap();
    let point = scratch.path().join("m");
    fs::create_dir(&point).unwrap();
    if matches!(way, Way::Embedded | Way::Classic) {
        let node = Node::embedded_with(&targets, LIMIT_NS).unwrap();
        let world = World { point: &point, node: &node, servers: &node };
        on_a_mount(world, (way, how), test);
        node.close().unwrap();
    } else {
        let folder = (way == Way::Shm).then(|| scratch.path().join("shm"));
        set_ways(Ways { folder, tcp: true });
        let (mgs, stop) = (nid(), Arc::new(AtomicBool::new(false)));
        let servers = Node::serve(targets, Vec::new(), &[mgs], &stop).unwrap();
        let node = remote(mgs);
        let world = World { point: &point, node: &node, servers: &servers };
        on_a_mount(world, (way, how), test);
        node.close().unwrap();
        servers.close().unwrap();
    }
    drop(lock);
}

fn on_a_mount(world: World<'_>, (way, how): (Way, How), test: impl FnOnce(World<'_>)) {
    let tried_until = Some(Instant::now() + START);
    let transport = match way {
        Way::Classic => TransportChoice::Classic,
        _ => TransportChoice::Auto,
    };
    let requests = RequestArgs { transport, ..RequestArgs::default() };
    let how = How { tried_until, requests, ..how };
    let mounted = world.node.mount(world.point, how).unwrap();
    test(world);
    mounted.session.unmount(UnmountMode::Clean).unwrap();
    mounted.session.join_timeout(PATIENCE).unwrap();
    mounted.leave();
}

/// A NID on this host that nobody listens on.
fn nid() -> Nid {
    let [b, c, d, ..] = sateen_reactor::random().to_le_bytes();
    // Neither the address of all nor the usual one.
    let addr = Ipv4Addr::new(127, 1 + b % 250, c, d);
    let port = TcpListener::bind((addr, 0)).unwrap().local_addr().unwrap().port();
    Nid::Tcp { addr, port, net: 0 }
}

fn remote(mgs: Nid) -> Node {
    let until = Instant::now() + START;
    loop {
        match Node::remote(&[mgs], "sateen", Source::all("sateen"), &Stop::default()) {
            Ok(node) => return node,
            Err(refusal) => assert!(refusal.may_pass && Instant::now() < until, "{refusal}"),
        }
    }
}

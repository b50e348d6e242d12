//! How a world begins: its targets, its clients, and the stripes of its files; and how each of
//! them is started later, over what its disk holds or as another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use sateen_client::{Client, ClientConfig, Port};
use sateen_target::TICK_NS;
use sateen_types::{ClientId, Endpoint, Fid, STRIPE_SIZE_MIN, StripePolicy};

use super::leave::Leaving;
use super::{Event, HANG_NS, Node, WORKERS, World, silence};
use crate::disk::Disk;
use crate::executor::lock;
use crate::host::Host;
use crate::kernel::Kernel;
use crate::names::Mutation;
use crate::port::SimPort;
use crate::random::Random;

/// Inodes that a client may keep, in one world of four.
const INODES_FEW: usize = 8;
/// How long a client keeps locks that nobody uses, in another: 3 s. There it keeps as many locks.
const LRU_AGE_MS: u64 = 3000;
/// What clients keep of writes for each OST, in worlds where they do.
const KEPT_BYTES: [u64; 3] = [50_000, 300_000, 64 << 20];
/// Space of a disk.
const DISK_BYTES: u64 = 1 << 30;
/// Space of an OST in the worlds that are short of it: from here to there.
const SMALL_BYTES: (u64, u64) = (300_000, 1_500_000);
/// Idle clients ask their MDTs after this whether they are there: 400 ms, or 2 s; and some never.
const PING_NS: [u64; 4] = [400_000_000, 0, 400_000_000, 2_000_000_000];

impl World {
    pub(super) fn start(&mut self) {
        let faulty = self.config.network_faults && self.config.crashes;
        self.is_small = faulty && self.random.one_in(4);
        self.report.count(self.shape.shown(), 1);
        self.report.count("world short of space", u64::from(self.is_small));
        self.keeps_writes = self.config.seed / 4 % 2 == 1 && !self.is_small;
        self.report.count("world of kept writes", u64::from(self.keeps_writes));
        self.is_hunting = faulty && !self.random.one_in(3);
        self.report.count("world of hunted messages", u64::from(self.is_hunting));
        self.network.is_seeking = self.config.network_faults;
        for me in self.shape.endpoints() {
            let bytes_max = match me {
                Endpoint::Ost(_) if self.is_small => {
                    self.random.within(SMALL_BYTES.0, SMALL_BYTES.1)
                }
                _ => DISK_BYTES,
            };
            let disk = Disk::new(self.random.any(), bytes_max);
            let patience_ns = self.config.crashes.then_some(silence::PATIENCE_NS);
            let mut host = Host::new(me, self.shape.osts, disk, patience_ns);
            host.has_rowers = self.has_rowers();
            self.hosts.insert(me, host);
            self.start_host(me);
        }
        while !self.all_registered() && self.step() {
            if self.now_ns > HANG_NS {
                self.fail("the targets do not get registered".to_owned());
            }
        }
        for node in 0..self.shape.clients {
            self.new_client(node);
        }
        while lock(&self.mounted).len() < self.shape.clients && self.step() {}
        self.stripe();
        self.after(0, Event::Work);
    }

    /// Stripes are so small that many files have several.
    pub(super) fn stripe(&mut self) {
        let Some(client) = self.nodes.first().map(|node| node.client.clone()) else { return };
        let owner = mounting_id(&client).0;
        let mut policy = StripePolicy { stripe_size: STRIPE_SIZE_MIN, ..StripePolicy::DEFAULT };
        if self.config.given {
            policy.stripe_count = 1;
        }
        let done = Arc::new(Mutex::new(None));
        let answer = done.clone();
        self.executor.spawn(
            owner,
            Box::pin(async move {
                let set = client.setstripe(Fid::ROOT, policy).await;
                *lock(&answer) = Some(set);
            }),
        );
        while lock(&done).is_none() && self.step() {}
        if *lock(&done) != Some(Ok(())) {
            self.fail("the stripes' size cannot be set".to_owned());
        }
        let mutation = Mutation::Policy { fid: Fid::ROOT, policy: Some(policy), osts: Vec::new() };
        self.model.change(ClientId(0), 0, mutation);
    }

    /// Starts a target over what its disk holds.
    pub(crate) fn start_host(&mut self, me: Endpoint) {
        let now = self.now();
        self.links.is_back(me);
        let Some(host) = self.hosts.get_mut(&me) else { return };
        match host.start(now, &mut self.random) {
            Ok((replayed, wants)) => {
                if let Endpoint::Ost(ost) = me
                    && self.config.given
                {
                    lock(&self.stores).insert(ost, host.disk.objects.clone());
                }
                let boots = host.boots;
                self.report.count("transactions replayed", replayed);
                self.perform(me, wants);
                self.after(TICK_NS, Event::Tick(me, boots));
                self.registers(me, boots);
            }
            Err(error) => self.fail(error),
        }
    }

    pub(crate) fn new_client(&mut self, node: usize) {
        let id = ClientId(self.next_client);
        self.next_client += 1;
        self.clock.set(self.now_ns);
        let port = Arc::new(SimPort::new(self.clock.clone(), self.stores.clone()));
        let as_port: Arc<dyn Port> = port.clone();
        let client = Client::new(ClientConfig { id, file_system: 0 }, as_port);
        if self.config.seed % 4 == 1 {
            client.set_inodes_max(INODES_FEW);
        }
        if self.config.seed % 4 == 2 {
            for target in self.shape.mdts() {
                let set = client.set_lru_size(target, INODES_FEW);
                let set = set.and(client.set_lru_max_age(target, LRU_AGE_MS));
                assert!(set.is_ok(), "it gives locks");
            }
        }
        let mut ping_ns = self.random.pick(&PING_NS).copied().unwrap_or_default();
        // Who does not speak is not waited for, and never has parts of a file claimed.
        if ping_ns == 0 && self.has_rowers() && self.config.seed / 8 % 2 == 1 {
            ping_ns = PING_NS[0];
        }
        // As where the servers are in its process.
        if self.random.one_in(2) {
            client.set_closes_first();
        }
        client.ping_every(ping_ns);
        if ping_ns == 0 {
            self.silence.is_mute(id);
        }
        if self.keeps_writes {
            let kept = self.random.pick(&KEPT_BYTES).copied().unwrap_or_default();
            client.set_dirty_max(kept, 2 * kept);
            if !self.config.given {
                client.set_unstable_max(kept, 2 * kept);
            }
        } else if self.config.seed % 3 == 1 && !self.config.given {
            let kept = self.random.pick(&KEPT_BYTES).copied().unwrap_or_default();
            client.set_unstable_max(kept, 2 * kept);
        }
        client.set_read_ahead_forward(self.config.seed % 2 == 1);
        // Also where servers answer at once, but in some worlds.
        if self.config.seed % 4 != 3 {
            let set = client.set_read_ahead_slow_ns(0);
            debug_assert_eq!(set, Ok(()));
        }
        // Some have none above, and their programs call them as they please.
        let keeps_apart = self.config.seed % 5 != 4;
        let mut kernel = Kernel::new(client.clone(), keeps_apart, self.config.trace > 0);
        if let Some(from) = self.passthrough() {
            client.set_passthrough(Some(from));
            kernel.is_given_files(port.clone(), Random::new(self.random.any()));
        }
        let kernel = Arc::new(kernel);
        let mounting = client.clone();
        let mounted = self.mounted.clone();
        self.executor.spawn(
            id.0,
            Box::pin(async move {
                let done = mounting.mount().await;
                lock(&mounted).push((mounting_id(&mounting), done));
            }),
        );
        let new = Node {
            id,
            client,
            kernel,
            port,
            mounted: false,
            dead: false,
            speaks: ping_ns > 0,
            open: vec![Vec::new(); WORKERS],
            busy: vec![false; WORKERS],
            dirty: BTreeSet::new(),
            before_crash: None,
            offered: BTreeMap::new(),
            leaving: Leaving::No,
            forgetting: Vec::new(),
            forgot_ns: 0,
        };
        match self.nodes.get_mut(node) {
            Some(place) => {
                self.report.count("answer from a kernel cache", place.kernel.hits());
                let kept = place.client.census().kept_in_parts;
                self.report.count("write kept in a part", kept);
                let ahead = place.client.statahead_stats().hits;
                self.report.count("name looked up ahead", ahead);
                let pages = place.client.read_ahead_stats().hits;
                self.report.count("page read ahead", pages);
                let listed = place.client.dir_pages_stats().hits;
                self.report.count("listing answered from pages", listed);
                let reused = place.client.census().opens_reused;
                self.report.count("open that an MDT had kept", reused);
                let first = place.client.census().opens_closed_first;
                self.report.count("open closed before a last name went", first);
                for (kind, count) in place.kernel.counts() {
                    self.report.count(kind, count);
                }
                *place = new;
            }
            None => self.nodes.push(new),
        }
    }
}

fn mounting_id(client: &Client) -> ClientId {
    match client.endpoint() {
        Endpoint::Client(id) => id,
        _ => ClientId(0),
    }
}

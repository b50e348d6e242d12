//! The world: all targets and clients, the network between them, and time.
//!
//! One thread; whatever happens is an event at a virtual time, and what one event brings
//! about is put behind it in the queue. The seed decides all delays and all choices.

mod again;
mod contention;
mod counters;
mod faults;
mod hunt;
mod judge;
mod late;
mod leave;
mod links;
pub(crate) mod locking;
mod orderly;
mod registers;
mod registry;
mod rest;
mod returns;
mod shape;
mod shared;
mod silence;
mod turns;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use sateen_client::{Client, ClientConfig, KernelInval, Port};
use sateen_target::TICK_NS;
use sateen_types::{
    ClientId, Endpoint, Errno, Fid, Ino, Layout, Result as Answer, STRIPE_SIZE_MIN, StripePolicy,
    Timestamp,
};
use sateen_wire::{
    Body, Callback, Header, MdtReply, MdtRequest, Message, OstRequest, ParamInfo, ReplyBody,
    Request, TargetInfo,
};

use crate::data::Data;
use crate::disk::Disk;
use crate::executor::{Executor, Signal, lock};
use crate::file_locks::Alarm;
use crate::host::{Host, Want};
use crate::kernel::{Handle, Kernel};
use crate::mgc::{Mgc, Setting};
use crate::model::Model;
use crate::names::{Mutation, Names};
use crate::net::Network;
use crate::port::{Clock, SimPort, Wish};
use crate::queue::Queue;
use crate::random::Random;
use crate::report::Report;
use crate::work::chooser::Chooser;
use crate::work::{Op, Out, Touched};
use late::Late;
use leave::Leaving;
use links::Links;
use locking::Locking;
use orderly::Orderly;
pub(crate) use orderly::WINDOW_NS;
pub(crate) use shape::Shape;
use shared::Shared;
use silence::Silence;

/// Programs on each client.
const WORKERS: usize = 3;
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
/// An operation that takes longer than this hangs, if the first MDT does not crash meanwhile: 150 s of
/// virtual time. After each crash it may wait for clients for 20 s.
const HANG_NS: u64 = 150_000_000_000;
/// Time between two looks whether a program has a turn: 2 ms.
pub(crate) const WORK_NS: u64 = 2_000_000;
/// Faults that 2000 operations of the full world must have met.
const FAULTS_MIN: u64 = 20;
/// Idle clients ask their MDTs after this whether they are there: 400 ms, or 2 s; and some never.
const PING_NS: [u64; 4] = [400_000_000, 0, 400_000_000, 2_000_000_000];

/// What a run is to be.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// The seed.
    pub seed: u64,
    /// Operations to be done.
    pub operations: u64,
    /// The network loses, repeats and delays messages.
    pub network_faults: bool,
    /// Processes crash.
    pub crashes: bool,
    /// Clients are cut off from the MDT until it evicts them.
    pub long_partitions: bool,
    /// How many of the last events are told when something is wrong.
    pub trace: usize,
}

impl Config {
    /// The full world.
    pub fn full(seed: u64) -> Config {
        Config {
            seed,
            operations: 2000,
            network_faults: true,
            crashes: true,
            long_partitions: false,
            trace: 0,
        }
    }
}

/// What went wrong, and what came before.
#[derive(Debug)]
pub struct Failure {
    /// What is wrong.
    pub what: String,
    /// The last events.
    pub trace: Vec<String>,
    /// Counts up to here.
    pub report: Report,
}

pub(crate) enum Event {
    /// Whether a crash has cut it.
    Deliver(Box<Message>, bool),
    Disk(Endpoint, u64),
    Tick(Endpoint, u64),
    Wake(Arc<Signal<()>>),
    Invalidate(ClientId, KernelInval, Arc<Signal<bool>>),
    Prune(ClientId, Vec<Ino>),
    Crash(Endpoint, u64),
    CrashClient(ClientId),
    Restart(Endpoint),
    /// A target that was stopped in good order is started.
    Start(Endpoint),
    Mend(Endpoint, Endpoint),
    Evict(ClientId, u32),
    NewClient(usize),
    Calm,
    /// A program that waits for a lock gets a signal.
    Alarm(Arc<Alarm>),
    /// What was asked behind a late OST is over.
    Late,
    /// Whoever sent a request hears that it reached nobody, or perhaps did not.
    Refused(Box<Header>, Errno),
    Work,
}

/// A node with a client.
pub(crate) struct Node {
    id: ClientId,
    client: Arc<Client>,
    kernel: Arc<Kernel>,
    port: Arc<SimPort>,
    mounted: bool,
    /// Its process has died: what still arrives is not heard.
    dead: bool,
    /// It has promised its MDTs to.
    speaks: bool,
    /// Open files of each program; whether a crash may have lost them.
    open: Vec<Vec<(Handle, bool)>>,
    busy: Vec<bool>,
    /// Targets that may not know this client any more.
    dirty: BTreeSet<Endpoint>,
    /// What it was when the first MDT crashed, until it is known whether it goes on as that.
    before_crash: Option<returns::Before>,
    /// Generations of connections to running targets that were offered to it.
    offered: BTreeMap<Endpoint, u32>,
    leaving: Leaving,
    /// What its kernel is still to forget, and when it was last seen to be at that.
    forgetting: Vec<Arc<Signal<bool>>>,
    forgot_ns: u64,
}

impl Node {
    /// Whether it is mounted, and does not leave.
    fn stays(&self) -> bool {
        self.mounted && !self.dead && self.leaving == Leaving::No
    }

    /// Whether its kernel has forgotten all that it was told to. One invalidation may follow
    /// another at the same moment.
    fn has_forgotten(&mut self, now_ns: u64) -> bool {
        if !self.forgetting.is_empty() {
            self.forgot_ns = now_ns;
            self.forgetting.retain(|signal| !signal.is_raised());
        }
        self.forgetting.is_empty() && now_ns > self.forgot_ns
    }
}

/// An operation that runs.
pub(crate) struct Running {
    op: Op,
    client: ClientId,
    /// As what its client began it.
    incarnation: ClientId,
    /// It goes by an open that may be lost.
    lost: bool,
    node: usize,
    worker: usize,
    began_ns: u64,
    /// Its number.
    id: u64,
    /// Its client lost its connection to the MDT meanwhile, or did not know yet: it may fail,
    /// may have happened all the same, and may go by what a cache held before.
    mdt_hit: bool,
    /// Likewise an OST: it may fail, and write in part.
    ost_hit: bool,
    /// Its client is dead, and its last messages are on their way.
    dead: bool,
    transno: u64,
    /// The transno that it makes durable, if it is an fsync.
    floor: u64,
    touched: Vec<(Touched, bool)>,
}

/// An operation that ended in a crash: what came of it is seen once the MDT has settled.
pub(crate) struct Settling {
    running: Running,
    result: Answer<Out>,
    /// The incarnation that must not be able to have it executed any more before it is looked
    /// at.
    dead_client: Option<ClientId>,
    durable_from: Option<(u64, u64)>,
}

/// A mount that ended, and its answer.
type Mounted = (ClientId, Answer<()>);

/// An operation that ended, and its answer.
type Ended = (u64, Answer<Out>);

/// A file that programs should look at for a while.
#[derive(Debug, Clone, Copy)]
struct Favourite {
    fid: Fid,
    until_ns: u64,
    /// Where the write began in which somebody died: whoever takes his work over does it again.
    again_at: Option<u64>,
}

/// See the module.
pub struct World {
    pub(crate) config: Config,
    pub(crate) shape: Shape,
    pub(crate) random: Random,
    now_ns: u64,
    /// Whoever has events happen need not look at the world after each, but at this time. If not set
    /// he looks each time.
    pause_ns: Option<u64>,
    /// The time, as clients see it.
    clock: Arc<Clock>,
    queue: Queue,
    network: Network,
    pub(crate) hosts: BTreeMap<Endpoint, Host>,
    nodes: Vec<Node>,
    executor: Executor,
    next_client: u64,
    /// Which operation a task runs, and which operation a request belongs to.
    tasks: BTreeMap<u64, u64>,
    requests: BTreeMap<(ClientId, u32, u16, u64), u64>,
    running: BTreeMap<u64, Running>,
    settling: Vec<Settling>,
    next_op: u64,
    done: Arc<Mutex<Vec<Ended>>>,
    mounted: Arc<Mutex<Vec<Mounted>>>,
    layouts: BTreeMap<Fid, Arc<Layout>>,
    /// A file got another layout since it was looked.
    moved: bool,
    pub(crate) model: Model,
    /// In which run of the MDT a client was told that a change of an inode may be lost.
    told_in: BTreeMap<(ClientId, Fid), u64>,
    /// The name spaces before the last crashes of the MDT, as caches may still have them.
    before_crashes: VecDeque<Names>,
    pub(crate) report: Report,
    trace: VecDeque<String>,
    failure: Option<String>,
    /// Who registers each running target, and the ports where they are reached.
    mgcs: BTreeMap<Endpoint, Mgc>,
    ports: BTreeMap<Endpoint, u16>,
    /// None of them asks again before.
    registrars_ns: u64,
    next_registrar: u64,
    /// Every configuration that the MGS has told of.
    configs: BTreeMap<u64, Vec<TargetInfo>>,
    params: BTreeMap<u64, Vec<ParamInfo>>,
    /// The parameters of targets that are down.
    settings: BTreeMap<Endpoint, Setting>,
    unmounted: Arc<Mutex<Vec<ClientId>>>,
    /// Incarnations that have left in good order.
    left: BTreeSet<ClientId>,
    next_leave: u64,
    /// Crashes strike while messages of kinds are under way that were not cut yet.
    is_hunting: bool,
    next_hunt: u64,
    next_fault: u64,
    /// OSTs are so small that they get full.
    is_small: bool,
    /// Clients keep writes, and answer them before OSTs have them.
    keeps_writes: bool,
    /// Files of which clients have promised to tell of no loss.
    promises: BTreeSet<Fid>,
    /// When an OST crashed last: what was asked before, and answered afterwards, says nothing of
    /// what it has now.
    ost_crashed_ns: u64,
    /// When the first MDT crashed last.
    mdt_crashed_ns: u64,
    /// The next punch that the MDT sends is to be followed by a crash.
    is_lurking: bool,
    /// The first MDT has crashed, and what it has of sizes since is not looked at yet.
    sizes_unseen: bool,
    /// Clients that an MDT has thrown out.
    thrown_out: BTreeSet<ClientId>,
    /// The next client whose write arrives is to crash while the OST is at it.
    is_stalking: bool,
    favourite: Option<Favourite>,
    late: Late,
    links: Links,
    locking: Locking,
    shared: Shared,
    silence: Silence,
    orderly: Orderly,
    /// When a client was lost last.
    lost_ns: u64,
}

impl World {
    fn new(config: Config) -> World {
        World {
            config,
            shape: Shape::of(config.seed),
            random: Random::new(config.seed),
            now_ns: 1_000_000,
            pause_ns: None,
            clock: Arc::default(),
            queue: Queue::default(),
            network: Network::default(),
            hosts: BTreeMap::new(),
            nodes: Vec::new(),
            executor: Executor::default(),
            next_client: 0x100,
            tasks: BTreeMap::new(),
            requests: BTreeMap::new(),
            running: BTreeMap::new(),
            settling: Vec::new(),
            next_op: 1,
            done: Arc::default(),
            mounted: Arc::default(),
            layouts: BTreeMap::new(),
            moved: false,
            model: Model::default(),
            told_in: BTreeMap::new(),
            before_crashes: VecDeque::new(),
            report: Report::default(),
            trace: VecDeque::new(),
            failure: None,
            mgcs: BTreeMap::new(),
            ports: BTreeMap::new(),
            registrars_ns: u64::MAX,
            next_registrar: 0,
            configs: BTreeMap::new(),
            params: BTreeMap::new(),
            settings: BTreeMap::new(),
            unmounted: Arc::default(),
            left: BTreeSet::new(),
            next_leave: 100,
            is_hunting: false,
            next_hunt: 40,
            next_fault: 40,
            is_small: false,
            keeps_writes: false,
            promises: BTreeSet::new(),
            ost_crashed_ns: 0,
            mdt_crashed_ns: 0,
            is_lurking: false,
            sizes_unseen: false,
            thrown_out: BTreeSet::new(),
            is_stalking: false,
            favourite: None,
            late: Late::new(config.seed),
            links: Links::new(config.seed),
            locking: Locking::new(config.seed),
            shared: Shared::new(config.seed),
            silence: Silence::new(config.seed),
            orderly: Orderly::new(config.seed),
            lost_ns: 0,
        }
    }

    /// Runs one seed to its end.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn run(config: Config) -> Result<Report, Box<Failure>> {
        let mut world = World::new(config);
        world.start();
        world.work();
        world.end();
        world.report.virtual_ns = world.now_ns;
        let last = world.now_ns.to_le_bytes();
        world.report.mix(&last);
        if world.failure.is_none() {
            world.enough();
        }
        match world.failure.take() {
            None => Ok(world.report),
            Some(what) => Err(Box::new(Failure {
                what,
                trace: world.trace.into_iter().collect(),
                report: world.report,
            })),
        }
    }

    /// A run that did too little proves nothing.
    fn enough(&mut self) {
        let (operations, faults) = (self.report.operations, self.report.faults());
        let faulty = self.config.network_faults && self.config.crashes;
        if operations < self.config.operations {
            self.fail(format!("only {operations} operations"));
        } else if faulty && faults < FAULTS_MIN * operations / 2000 {
            self.fail(format!("only {faults} faults"));
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        timestamp(self.now_ns)
    }

    pub(crate) fn fail(&mut self, what: String) {
        if self.failure.is_none() {
            self.failure = Some(what);
        }
    }

    pub(crate) fn note(&mut self, text: impl FnOnce() -> String) {
        if self.config.trace == 0 {
            return;
        }
        if self.trace.len() == self.config.trace {
            self.trace.pop_front();
        }
        self.trace.push_back(format!("{:>14} {}", self.now_ns, text()));
    }

    pub(crate) fn after(&mut self, ns: u64, event: Event) {
        self.queue.after(self.now_ns, ns, event);
    }

    fn start(&mut self) {
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
            self.hosts.insert(me, Host::new(me, self.shape.osts, disk, patience_ns));
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
    fn stripe(&mut self) {
        let Some(client) = self.nodes.first().map(|node| node.client.clone()) else { return };
        let owner = mounting_id(&client).0;
        let policy = StripePolicy { stripe_size: STRIPE_SIZE_MIN, ..StripePolicy::DEFAULT };
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
        let port = Arc::new(SimPort::new(self.clock.clone()));
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
        let ping_ns = self.random.pick(&PING_NS).copied().unwrap_or_default();
        client.ping_every(ping_ns);
        if ping_ns == 0 {
            self.silence.is_mute(id);
        }
        if self.keeps_writes {
            let kept = self.random.pick(&KEPT_BYTES).copied().unwrap_or_default();
            client.set_dirty_max(kept, 2 * kept);
            client.set_unstable_max(kept, 2 * kept);
        } else if self.config.seed % 3 == 1 {
            let kept = self.random.pick(&KEPT_BYTES).copied().unwrap_or_default();
            client.set_unstable_max(kept, 2 * kept);
        }
        let kernel = Arc::new(Kernel::new(client.clone()));
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
                let reused = place.client.census().opens_reused;
                self.report.count("open that an MDT had kept", reused);
                *place = new;
            }
            None => self.nodes.push(new),
        }
    }

    /// What a target wants from the world.
    fn perform(&mut self, me: Endpoint, wants: Vec<Want>) {
        self.evictions_are_right(me, &wants);
        self.thrown_out.extend(wants.iter().filter_map(silence::evicted).map(|(_, client)| client));
        self.changes_come_back(me);
        self.absences_are_right(me, &wants);
        for want in wants {
            match want {
                Want::Send(message) => {
                    self.snoop(&message);
                    self.send(*message);
                }
                Want::Disk(token, after) => self.after(after, Event::Disk(me, token)),
            }
        }
    }

    /// Looks at what a target sends: transnos, layouts, evictions.
    fn snoop(&mut self, message: &Message) {
        let header = message.header;
        match &message.body {
            Body::Reply(reply) => {
                self.configuration_told(reply);
                if let ReplyBody::Mdt(
                    MdtReply::Created { attr, layout: Some(layout), .. }
                    | MdtReply::Opened { attr, layout: Some(layout) },
                ) = &reply.body
                {
                    let known = self.layouts.insert(attr.fid, layout.clone());
                    self.moved |= known.is_some_and(|known| known != *layout);
                }
                let key = (header.client, header.generation, header.slot, header.seq);
                if header.from == Endpoint::Mdt(0)
                    && let Some(op) = self.requests.get(&key)
                    && let Some(running) = self.running.get_mut(op)
                {
                    running.transno = running.transno.max(reply.transno);
                }
                // The MDT that had it refused there has crashed, and may not know that any more; or it
                // has crashed, and does not take the client back.
                let is_refused = reply.error == Some(Errno::ESTALE) && header.generation == 0;
                if is_refused && matches!(header.from, Endpoint::Ost(_) | Endpoint::Mdt(_)) {
                    self.hears_that_it_is_lost(header);
                }
            }
            Body::Request(Request::Ost(OstRequest::Punch { object, .. }))
                if header.from == Endpoint::Mdt(0) && self.is_lurking =>
            {
                self.crash_behind_truncate(object.fid, header.to);
            }
            Body::Callback(Callback::Evicted) => {
                self.report.count("client evicted", 1);
                self.hears_that_it_is_lost(header);
            }
            _ => {}
        }
    }

    /// Whom a client that has gone on was before does not matter to it any more.
    fn hears_that_it_is_lost(&mut self, header: Header) {
        let Endpoint::Client(at) = header.to else { return };
        let current = |node: &Node| node.id == at && node.client.incarnation() == header.client;
        if self.nodes.iter().any(current) {
            self.goes_on_as_another(at);
        }
    }

    /// A client that is thrown out goes on as another, at all MDTs.
    fn goes_on_as_another(&mut self, client: ClientId) {
        self.remember_names();
        for mdt in self.shape.mdts() {
            self.client_is_dirty(client, mdt);
        }
        self.lost_ns = self.now_ns;
        let (settles_ns, last_op) = (self.all_arrived_ns(), self.next_op - 1);
        for data in self.model.data.values_mut() {
            data.writer_lost(client, settles_ns, Some(last_op));
        }
    }

    fn client_is_dirty(&mut self, client: ClientId, target: Endpoint) {
        if matches!(target, Endpoint::Mdt(_)) {
            self.locking.known.lost(client, self.now_ns);
        }
        for node in self.nodes.iter_mut().filter(|node| node.id == client) {
            node.dirty.insert(target);
            node.offered.remove(&target);
            if matches!(target, Endpoint::Mdt(_)) {
                node.open.iter_mut().flatten().for_each(|(_, lost)| *lost = true);
            }
        }
        for running in self.running.values_mut().filter(|running| running.client == client) {
            match target {
                Endpoint::Mdt(_) => running.mdt_hit = true,
                _ => running.ost_hit = true,
            }
        }
    }

    pub(crate) fn send(&mut self, message: Message) {
        self.note(|| format!("sent {}", shown_message(&message)));
        self.links.carries(&message);
        self.claims(&message);
        match self.network.send(&message, self.now_ns, &mut self.random, &mut self.report) {
            Ok(arrivals) => {
                // What comes late does so after the next has been lost, perhaps.
                if arrivals.iter().all(|(after, _)| *after > silence::LATE_NS) {
                    self.silence.lost(&message, self.now_ns);
                }
                for (after, message) in arrivals {
                    self.hunt(&message, after);
                    self.after(after, Event::Deliver(message, false));
                }
            }
            Err(error) => self.fail(error),
        }
    }

    fn deliver(&mut self, message: Message, is_cut: bool) {
        self.note(|| format!("came {}", shown_message(&message)));
        self.links.carried(&message);
        let now = self.now();
        match message.header.to {
            Endpoint::Client(client) => {
                let alive = |node: &Node| node.id == client && !node.dead;
                let Some(index) = self.nodes.iter().position(alive) else {
                    return self.unheard(&message, is_cut);
                };
                self.is_offered(index, &message);
                let Some(node) = self.nodes.get(index) else { return };
                self.clock.set(self.now_ns);
                node.client.clone().on_message(message);
                self.wishes(client, None);
            }
            target => {
                if self.hosts.get(&target).is_none_or(|host| host.process.is_none()) {
                    self.nobody_hears(&message);
                    return self.unheard(&message, is_cut);
                }
                if message.header.from == Endpoint::Mgs {
                    return self.registrar_hears(&message);
                }
                self.stalk(&message);
                let random = &mut self.random;
                let Some(host) = self.hosts.get_mut(&target) else { return };
                let wants =
                    host.event(random, |service, out| service.on_message(now, message, out));
                self.perform(target, wants);
            }
        }
    }

    fn is_offered(&mut self, index: usize, message: &Message) {
        let from = message.header.from;
        let Body::Reply(reply) = &message.body else { return };
        let ReplyBody::Connected { boot_epoch, generation, .. } = reply.body else { return };
        let current = self
            .hosts
            .get(&from)
            .is_some_and(|host| host.process.is_some() && host.boot_epoch == boot_epoch);
        if current && let Some(node) = self.nodes.get_mut(index) {
            node.offered.insert(from, generation);
            let id = node.id;
            self.has_heard(id, from);
        }
    }

    /// A client that uses a connection has accepted it; its kernel may still have to forget
    /// what it knew under the one before.
    fn is_clean_again(&mut self, message: &Message) {
        self.is_told_again(message);
        let Header { from, to, generation, .. } = message.header;
        let now_ns = self.now_ns;
        if matches!(&message.body, Body::Request(Request::Mdt(MdtRequest::Replay { .. }))) {
            // It has changes made again first, and goes by them.
            return;
        }
        let mine = |node: &&mut Node| Endpoint::Client(node.id) == from;
        if let Some(node) = self.nodes.iter_mut().find(mine)
            && node.offered.get(&to) == Some(&generation)
            && node.has_forgotten(now_ns)
            && node.dirty.remove(&to)
        {
            let id = node.id;
            self.report.count("client reconnected", 1);
            if to == Endpoint::Mdt(0) {
                self.is_back(id);
            }
        }
    }

    /// The operation that had an MDT asked this before, on the connection to its last run.
    fn asked_again(&self, message: &Message) -> Option<u64> {
        let Header { client, to, slot, seq, .. } = message.header;
        let asks = to == Endpoint::Mdt(0) && matches!(message.body, Body::Request(Request::Mdt(_)));
        if !asks || self.requests.contains_key(&(client, message.header.generation, slot, seq)) {
            return None;
        }
        let is_it = |key: &(ClientId, u32, u16, u64)| (key.0, key.2, key.3) == (client, slot, seq);
        let mut before = self.requests.iter().filter(|(key, _)| is_it(key)).map(|(_, op)| *op);
        before.find(|op| self.running.contains_key(op))
    }

    /// Takes what a client wished for during the last poll, of this task if there was one.
    fn wishes(&mut self, client: ClientId, task: Option<u64>) {
        let Some(node) = self.nodes.iter().find(|node| node.id == client) else { return };
        let op = task.and_then(|task| self.tasks.get(&task)).copied();
        for wish in node.port.take() {
            match wish {
                Wish::Send(message) => {
                    // The size that is found on the way is a transaction of its own.
                    let is_report = matches!(
                        &message.body,
                        Body::Request(Request::Mdt(MdtRequest::ReportSize { .. }))
                    );
                    let op = op.or_else(|| self.asked_again(&message));
                    // Slots of other targets count by themselves.
                    let asks = message.header.to == Endpoint::Mdt(0) && !is_report;
                    if let Some(op) = op.filter(|_| asks) {
                        let header = message.header;
                        let key = (header.client, header.generation, header.slot, header.seq);
                        self.requests.insert(key, op);
                    }
                    self.is_clean_again(&message);
                    self.send(*message);
                }
                Wish::Spawn(task) => {
                    self.executor.spawn(client.0, task);
                }
                Wish::Sleep(ns, signal) => self.after(ns, Event::Wake(signal)),
                Wish::Prune(inodes) => {
                    self.report.count("inodes to be forgotten", inodes.len() as u64);
                    let after = self.random.within(1_000, 20_000_000);
                    self.after(after, Event::Prune(client, inodes));
                }
                Wish::Invalidate(what, signal) => {
                    // The kernel may be at something else.
                    let most = if self.random.one_in(8) { 20_000_000 } else { 200_000 };
                    let after = self.random.within(1_000, most);
                    let mine = |node: &&mut Node| node.id == client;
                    if let Some(node) = self.nodes.iter_mut().find(mine) {
                        node.forgetting.push(signal.clone());
                    }
                    self.after(after, Event::Invalidate(client, what, signal));
                }
            }
        }
    }

    /// Runs everything that is ready, then the next event. False when something is wrong or
    /// nothing is left.
    fn step(&mut self) -> bool {
        let mut is_idle = true;
        loop {
            self.clock.set(self.now_ns);
            let Some((owner, task)) = self.executor.step(&mut self.random) else { break };
            is_idle = false;
            self.wishes(ClientId(owner), Some(task));
            self.finished();
        }
        if self.failure.is_some() {
            return false;
        }
        // Else whoever waits for what has just been done is to see it before time goes by.
        if let Some(pause_ns) = self.pause_ns.filter(|_| is_idle) {
            self.rests(pause_ns);
            self.clock.set(self.now_ns);
            if self.now_ns >= pause_ns {
                return true;
            }
        }
        let Some((at, event)) = self.queue.pop() else { return false };
        self.time_is(at);
        self.happen(event);
        self.failure.is_none()
    }

    /// Something happens now.
    fn time_is(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.report.events += 1;
        self.report.mix(&now_ns.to_le_bytes());
    }

    fn happen(&mut self, event: Event) {
        self.promises_end();
        let Some(event) = self.waits(event) else { return };
        let now = self.now();
        match event {
            Event::Deliver(message, is_cut) => self.deliver(*message, is_cut),
            Event::Disk(target, token) => {
                let Some(host) = self.hosts.get_mut(&target) else { return };
                let wants = host.finish(token, now, &mut self.random);
                self.perform(target, wants);
                self.commit_model(target);
            }
            Event::Tick(target, boots) => {
                let Some(host) = self.hosts.get_mut(&target) else { return };
                if host.boots != boots || host.process.is_none() {
                    return;
                }
                if let Some(wants) = host.tick(now, &mut self.random) {
                    self.perform(target, wants);
                }
                self.after(TICK_NS, Event::Tick(target, boots));
                self.registrar_ticks(target);
                self.goes_on_ending(target);
                if target == Endpoint::Mdt(0) {
                    self.settle();
                }
            }
            Event::Wake(signal) => signal.raise(()),
            Event::Alarm(alarm) => alarm.ring(),
            Event::Invalidate(client, what, signal) => {
                let alive = |node: &&Node| node.id == client && !node.dead;
                if let Some(node) = self.nodes.iter().find(alive) {
                    node.kernel.invalidate(what, signal);
                }
            }
            Event::Prune(client, inodes) => {
                let alive = |node: &&Node| node.id == client && !node.dead;
                if let Some(node) = self.nodes.iter().find(alive) {
                    node.kernel.prune(&inodes);
                }
            }
            Event::Work => {
                self.give_work();
                self.after(WORK_NS, Event::Work);
            }
            other => self.fault_event(other),
        }
    }

    fn commit_model(&mut self, target: Endpoint) {
        if target == Endpoint::Mdt(0)
            && let Some(host) = self.hosts.get_mut(&target)
        {
            let durable = host.durable();
            self.model.committed(durable);
        }
    }

    fn work(&mut self) {
        self.pause_ns = Some(u64::MAX);
        while self.next_op <= self.config.operations || !self.running.is_empty() {
            if !self.step() {
                return;
            }
        }
    }
}

/// A moment of the virtual time.
pub(crate) const fn timestamp(now_ns: u64) -> Timestamp {
    Timestamp { mono_ns: now_ns, wall_ns: 1_700_000_000_000_000_000 + now_ns as i64 }
}

fn shown_message(message: &Message) -> String {
    let Header { from, to, generation, slot, seq, .. } = message.header;
    format!("{from} to {to} {generation:x}.{slot}.{seq} {:?}", message.body)
}

fn mounting_id(client: &Client) -> ClientId {
    match client.endpoint() {
        Endpoint::Client(id) => id,
        _ => ClientId(0),
    }
}

//! The world: all targets and clients, the network between them, and time.
//!
//! One thread; whatever happens is an event at a virtual time, and what one event brings
//! about is put behind it in the queue. The seed decides all delays and all choices.

mod again;
mod combs;
mod contention;
mod counters;
mod doubt;
mod faults;
mod given;
mod givers;
mod grouping;
mod hunt;
mod judge;
mod late;
mod leave;
mod links;
pub(crate) mod locking;
mod messages;
mod orderly;
mod owners;
mod parts;
mod registers;
mod registry;
mod rest;
mod returns;
mod rowing;
mod sessions;
mod shape;
mod shared;
mod silence;
mod slow;
mod start;
mod teams;
mod turns;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use sateen_client::{Client, KernelInval};
use sateen_target::TICK_NS;
use sateen_types::{ClientId, Endpoint, Errno, Fid, Ino, Layout, Result as Answer, Timestamp};
use sateen_wire::{Header, Message, ParamInfo, TargetInfo};

use crate::data::Data;
use crate::executor::{Executor, Signal, lock};
use crate::file_locks::Alarm;
use crate::host::Host;
use crate::kernel::{Handle, Kernel};
use crate::mgc::{Mgc, Setting};
use crate::model::Model;
use crate::names::Names;
use crate::net::Network;
use crate::port::{Clock, SimPort, Stores};
use crate::queue::Queue;
use crate::random::Random;
use crate::report::Report;
use crate::work::chooser::Chooser;
use crate::work::{Op, Out, Touched};
use doubt::Doubt;
use givers::Givers;
use grouping::Grouping;
use late::Late;
use leave::Leaving;
use links::Links;
use locking::Locking;
use orderly::Orderly;
pub(crate) use orderly::WINDOW_NS;
use parts::Parts;
use rowing::Rowing;
pub(crate) use shape::Shape;
use shared::Shared;
use silence::Silence;

/// Programs on each client.
const WORKERS: usize = 3;
/// An operation that takes longer than this hangs, if the first MDT does not crash meanwhile: 150 s of
/// virtual time. After each crash it may wait for clients for 20 s.
const HANG_NS: u64 = 150_000_000_000;
/// Time between two looks whether a program has a turn: 2 ms.
pub(crate) const WORK_NS: u64 = 2_000_000;
/// Faults that 2000 operations of the full world must have met.
const FAULTS_MIN: u64 = 20;

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
    /// All of it is one process, and the kernel is given files: see [`given`].
    pub given: bool,
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
            given: false,
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
    /// Disks of OSTs are slow no longer.
    Quick,
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
    /// It is a write of which its client cannot know whether it was done: it may fail.
    in_doubt: bool,
    /// It appends, and this was the end when a crash first left that open.
    end_then: Option<u64>,
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
    telling: again::Telling,
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
    doubt: Doubt,
    links: Links,
    locking: Locking,
    grouping: Grouping,
    rowing: Rowing,
    parts: Parts,
    givers: Givers,
    shared: Shared,
    silence: Silence,
    orderly: Orderly,
    /// When a client was lost last.
    lost_ns: u64,
    /// Crashes are of machines: disks lose what was not synced.
    takes_power: bool,
    /// The objects of OSTs, for a client of their process.
    stores: Stores,
}

impl World {
    fn new(config: Config) -> World {
        World {
            config,
            shape: match config.given {
                true => Shape::of_one_process(config.seed),
                false => Shape::of(config.seed),
            },
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
            telling: again::Telling::new(),
            ost_crashed_ns: 0,
            mdt_crashed_ns: 0,
            is_lurking: false,
            sizes_unseen: false,
            thrown_out: BTreeSet::new(),
            is_stalking: false,
            favourite: None,
            late: Late::new(config.seed),
            doubt: Doubt::default(),
            links: Links::new(config.seed),
            locking: Locking::new(config.seed),
            grouping: Grouping::new(config.seed),
            rowing: Rowing::new(config.seed),
            parts: Parts::new(config.seed),
            givers: Givers::new(config.seed),
            shared: Shared::new(config.seed),
            silence: Silence::new(config.seed),
            orderly: Orderly::new(config.seed),
            lost_ns: 0,
            takes_power: true,
            stores: Stores::default(),
        }
    }

    /// Runs one seed to its end.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn run(config: Config) -> Result<Report, Box<Failure>> {
        let mut world = World::new(config);
        if !config.given {
            world.shape = Shape::of_full(config.seed);
        }
        world.rows();
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
                    let kernel = node.kernel.clone();
                    let drops = async move { signal.raise(kernel.invalidate(what).await) };
                    self.executor.spawn(client.0, Box::pin(drops));
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

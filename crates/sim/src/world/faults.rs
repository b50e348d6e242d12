//! Faults: bad networks, partitions, crashes of targets and of clients; and what is held
//! against the model right after them.

use std::collections::{BTreeMap, BTreeSet};

use sateen_types::{ClientId, Endpoint, Errno, Fid, ObjectId};
use sateen_wire::{Body, Header, Message, OstRequest, Request};

use super::again::keepers_of;
use super::silence::NOTICED_NS;
use super::{Event, Favourite, Node, Running, Settling, World};
use crate::host::Host;
use crate::invariants::{self, Records};
use crate::net::Weather;
use crate::work::{Op, Out, Touched};

/// Operations between two faults, on average.
const OPERATIONS_PER_FAULT: u64 = 45;
/// Name spaces that a client may go by which has not heard of a crash of the MDT: those before it, and
/// before other crashes and lost clients since. One that is cut off may miss many.
pub(super) const BEFORE_CRASHES_MAX: usize = 40;
/// How long a target is down at most, if nothing else is said: 3 s.
const DOWN_NS: u64 = 3_000_000_000;
/// More than a client may take to give a lock back: 21 s.
const LONG_NS: u64 = 21_000_000_000;
/// Within this time the MDTs hear of a client that dies at a message of its: 20 ms. Others may
/// wait for it by then.
const MISSED_NS: u64 = 20_000_000;
/// How long the end waits for the cluster to come to rest: 60 s.
const REST_NS: u64 = 60_000_000_000;
/// What a lost client has sent arrives within this time, or never: 4 s. At a target that stands
/// still when that goes on.
pub(super) const LATE_NS: u64 = 4_000_000_000;

impl World {
    pub(super) fn maybe_fault(&mut self) {
        if self.report.operations < self.next_fault || self.next_op > self.config.operations {
            return;
        }
        self.next_fault = self.report.operations + self.random.within(1, 2 * OPERATIONS_PER_FAULT);
        self.check_now();
        if self.config.given {
            if self.config.crashes && self.random.one_in(3) {
                self.crash_all();
            }
            return;
        }
        let all = self.shape.endpoints();
        match self.random.below(10) {
            0..=3 if self.config.network_faults => {
                self.network.weather = Weather {
                    drop: self.random.below(60),
                    duplicate: self.random.below(100),
                    delay: self.random.below(100),
                };
                let for_ns = self.random.within(50_000_000, 2_000_000_000);
                self.after(for_ns, Event::Calm);
            }
            4 if self.config.network_faults => self.partition(),
            5..=8 if self.config.crashes => match self.random.below(12) {
                0 => self.crash_two(),
                2 | 3 => self.crash_with_client(),
                1 => self.is_lurking = true,
                _ => {
                    if let Some(target) = self.random.pick(&all).copied() {
                        let down_ns = self.random.within(1_000_000, DOWN_NS);
                        self.crash_target(target, down_ns);
                    }
                }
            },
            9 if self.config.crashes => {
                if self.random.one_in(3) {
                    self.is_stalking = true;
                } else {
                    let node = self.random.index(self.nodes.len());
                    self.crash_client(node, 2_000_000_000);
                }
            }
            _ => {}
        }
    }

    /// A client and the MDT do not hear each other for longer than a client may take to give a
    /// lock back: if anybody wants one of its locks it is evicted, and comes back as another.
    pub(super) fn long_partition(&mut self) {
        let node = self.random.index(self.nodes.len());
        let Some(client) = self.nodes.get(node).map(|node| Endpoint::Client(node.id)) else {
            return;
        };
        let mdt = Endpoint::Mdt(0);
        self.report.count("long partition", 1);
        self.note(|| format!("{client} and {mdt} do not hear each other for long"));
        self.network.cut(client, mdt);
        let for_ns = self.random.within(LONG_NS, 2 * LONG_NS);
        self.after(for_ns, Event::Mend(client, mdt));
    }

    fn partition(&mut self) {
        if self.config.long_partitions && self.random.one_in(2) {
            return self.long_partition();
        }
        let clients = self.nodes.iter().map(|node| Endpoint::Client(node.id));
        let everybody: Vec<Endpoint> = clients.chain(self.shape.endpoints()).collect();
        let a = self.random.pick(&everybody).copied();
        let b = self.random.pick(&everybody).copied();
        if let (Some(a), Some(b)) = (a, b)
            && a != b
        {
            self.report.count("partition", 1);
            self.note(|| format!("{a} and {b} do not hear each other"));
            self.network.cut(a, b);
            let for_ns = self.random.within(10_000_000, 6_000_000_000);
            self.after(for_ns, Event::Mend(a, b));
        }
    }

    /// The MDT and an OST crash together; the OST may be away when the MDT is back.
    fn crash_two(&mut self) {
        let ost = Endpoint::Ost(self.random.below(self.shape.osts.into()) as u32);
        self.report.count("two targets crash at once", 1);
        for target in [Endpoint::Mdt(0), ost] {
            let down_ns = self.random.within(1_000_000, DOWN_NS);
            self.crash_target(target, down_ns);
        }
    }

    /// A client dies with the MDT: nobody tells of what it has changed and is not durable. The others
    /// go on, whatever they have seen of that.
    fn crash_with_client(&mut self) {
        self.report.count("client and MDT0000 crash at once", 1);
        let down_ns = self.random.within(1_000_000, DOWN_NS);
        let node = self.random.index(self.nodes.len());
        self.crash_client(node, 2_000_000_000);
        self.crash_target(Endpoint::Mdt(0), down_ns);
    }

    /// The MDT is about to have a file's objects cut: it crashes before or after the OST has
    /// heard of it, and the OST is away for longer. Programs go on with the file.
    pub(super) fn crash_behind_truncate(&mut self, fid: Fid, ost: Endpoint) {
        self.is_lurking = false;
        self.report.count("crash behind a truncate", 1);
        let mdt_ns = self.random.within(1_000_000, DOWN_NS / 2);
        let ost_ns = mdt_ns + self.random.within(1_000_000, 2 * DOWN_NS);
        for (target, down_ns) in [(Endpoint::Mdt(0), mdt_ns), (ost, ost_ns)] {
            let after = self.random.below(150_000);
            self.after(after, Event::Crash(target, down_ns));
        }
        let until_ns = self.now_ns + ost_ns + 2 * DOWN_NS;
        self.favourite = Some(Favourite { fid, until_ns, again_at: None });
    }

    /// A client crashes, and is thrown out, while an OST is still at a write of it. Programs
    /// go on with the file, and some do what it was at once more.
    pub(super) fn stalk(&mut self, message: &Message) {
        let Header { from, to, .. } = message.header;
        let Body::Request(Request::Ost(
            OstRequest::Write { object, .. } | OstRequest::WriteMany { object, .. },
        )) = &message.body
        else {
            return;
        };
        let is_up = |node: &&Node| Endpoint::Client(node.id) == from && node.mounted;
        let Some(client) = self.nodes.iter().find(is_up).map(|node| node.id) else { return };
        // Without anybody who could go on at once nobody would see what comes of the write.
        let goes_on = |node: &Node| {
            node.id != client && node.stays() && node.dirty.is_empty() && node.busy.contains(&false)
        };
        if !self.is_stalking || !self.nodes.iter().any(goes_on) {
            return;
        }
        self.is_stalking = false;
        self.report.count("crash behind a write", 1);
        if let Some(host) = self.hosts.get_mut(&to) {
            host.is_stalling = true;
        }
        let after = self.random.below(300_000);
        self.after(after, Event::CrashClient(client));
        let (fid, until_ns) = (object.fid, self.now_ns + DOWN_NS);
        let mut writes = self.running.values().filter(|running| running.client == client);
        let again_at = writes.find_map(|running| match running.op {
            Op::Write { handle, offset, .. } if handle.fid == fid => Some(offset),
            _ => None,
        });
        self.favourite = Some(Favourite { fid, until_ns, again_at });
    }

    pub(super) fn fault_event(&mut self, event: Event) {
        match event {
            Event::CrashClient(client) => {
                let node = self.nodes.iter().position(|node| node.id == client);
                if let Some(node) = node {
                    self.crash_client(node, MISSED_NS);
                }
            }
            Event::Crash(target, down_ns) => self.crash_target(target, down_ns),
            Event::Restart(target) => {
                self.report.count(restarted(target), 1);
                self.note(|| format!("{target} starts"));
                self.sizes_unseen |= target == Endpoint::Mdt(0);
                self.start_host(target);
            }
            Event::Start(target) => self.starts_again(target),
            Event::Mend(a, b) => {
                self.note(|| format!("{a} and {b} hear each other"));
                self.network.mend(a, b);
            }
            Event::Refused(header, errno) => self.is_refused_by_network(&header, errno),
            Event::Late => self.late_is_over(),
            Event::Quick => self.are_quick(),
            Event::Calm => self.network.weather = Weather::default(),
            Event::NewClient(node) => self.new_client(node),
            Event::Evict(client, index) => {
                let now = self.now();
                let target = Endpoint::Mdt(index);
                let Some(host) = self.hosts.get_mut(&target) else { return };
                if host.process.is_none() {
                    return self.after(100_000_000, Event::Evict(client, index));
                }
                let wants = host.evict(client, now, &mut self.random);
                self.perform(target, wants);
            }
            _ => {}
        }
    }

    pub(super) fn crash_target(&mut self, target: Endpoint, down_ns: u64) {
        self.parts_of_a_run(target);
        let Some(host) = self.hosts.get_mut(&target) else { return };
        if host.process.is_none() {
            return;
        }
        let kind = match target {
            Endpoint::Mdt(0) => "crash MDT0000",
            // It has no files: its crashes are not worth those of the first.
            Endpoint::Mdt(_) => "crash another MDT",
            Endpoint::Ost(_) => "crash OST",
            _ => "crash MGS",
        };
        host.crash(self.takes_power, &mut self.random, &mut self.report);
        self.silence.ends(target);
        self.registrar_dies(target);
        self.cut_off(target);
        self.dies_loudly(target);
        self.report.count(kind, 1);
        self.note(|| format!("{target} crashes"));
        self.after(down_ns, Event::Restart(target));
        // Whoever has talked to an MDT that was stopped in good order is one of its clients from
        // then on, and thrown out when it crashes, if it has not promised to speak.
        if matches!(target, Endpoint::Mdt(1..)) && self.has_stopped(target) {
            let mute = self.nodes.iter().filter(|node| !node.speaks);
            let clients: Vec<_> = mute.map(|node| node.id).collect();
            clients.into_iter().for_each(|client| self.goes_on_as_another(client));
        }
        // Nobody talks to the MGS after mounting, nor to an MDT that has no files.
        if !matches!(target, Endpoint::Mdt(0) | Endpoint::Ost(_)) {
            return;
        }
        if target == Endpoint::Mdt(0) {
            self.mdt_crashed_ns = self.now_ns;
            self.remember_names();
            self.remember_clients();
        }
        let clients: Vec<_> = self.nodes.iter().map(|node| node.id).collect();
        for client in clients {
            self.client_is_dirty(client, target);
        }
        match target {
            Endpoint::Mdt(0) => self.roll_back(),
            Endpoint::Ost(index) => self.objects_survived(index),
            _ => {}
        }
    }

    /// The MDT keeps a prefix of its transactions, and all that it promised.
    fn roll_back(&mut self) {
        let Some(host) = self.hosts.get_mut(&Endpoint::Mdt(0)) else { return };
        // What a torn frame holds is not there.
        host.disk.journal.recover();
        let upto = host.disk_transno();
        if upto < self.model.promised {
            let promised = self.model.promised;
            return self.fail(format!("transno {promised} was durable, now {upto} is the last"));
        }
        let before: BTreeSet<Fid> = self.model.now.inodes.keys().copied().collect();
        let (lost, losers) = self.model.rolled_back(upto);
        self.cannot_go_on(&losers);
        let now = &self.model.now.inodes;
        let back = self.model.data.iter_mut();
        back.filter(|(fid, _)| now.contains_key(fid) && !before.contains(fid))
            .for_each(|(_, data)| data.is_back());
        self.note(|| {
            format!("MDT0000 has all up to {upto}; {lost} changes, of {losers:?}, are lost")
        });
        self.report.count("transaction lost in a crash", lost);
        self.report.count("MDT recovered to a prefix", 1);
        for settling in &mut self.settling {
            settling.durable_from = None;
        }
        // What is made again is durable, by another number.
        for running in self.running.values_mut() {
            running.floor = running.floor.min(upto);
        }
        self.running_may_have_written();
        let settles_ns = self.all_arrived_ns();
        for data in self.model.data.values_mut() {
            data.mdt_lost(upto, settles_ns);
        }
        // Files that were gone may be there again.
        let unseen = self.model.data.iter().filter(|(_, data)| !data.unseen.is_empty());
        let back: Vec<Fid> = unseen.map(|(fid, _)| *fid).collect();
        for fid in back {
            self.look_again(fid);
        }
    }

    /// The MDT is back: what its disk says of sizes is held against what it may say.
    pub(super) fn sizes_survived(&mut self) {
        self.layouts_changed();
        let settles_ns = self.all_arrived_ns();
        let Some(host) = self.hosts.get_mut(&Endpoint::Mdt(0)) else { return };
        let records = Records::of(host);
        let mut wrong = None;
        for (fid, data) in &mut self.model.data {
            let Some(record) = records.inodes.get(fid) else { continue };
            // A name that a program opened may have become a directory's, which it then synced.
            if record.attr.is_dir() {
                continue;
            }
            let (size, stale) = (record.attr.size, record.attr.size_stale);
            if !data.mdt_back(size, stale, settles_ns) {
                wrong = Some(format!("{fid} has {size} bytes after a crash of the MDT"));
            }
        }
        if let Some(what) = wrong {
            self.fail(what);
        }
    }

    /// Writes and truncates that run now have happened, in part, or have not.
    fn running_may_have_written(&mut self) {
        let now_ns = self.now_ns;
        for running in self.running.values_mut() {
            match &running.op {
                Op::Write { handle, offset, data: bytes } => {
                    let data = self.model.data.entry(handle.fid).or_default();
                    let offset = if handle.how.append { data.size() } else { *offset };
                    if handle.how.append && data.is_certain() {
                        running.end_then = Some(offset);
                    }
                    data.may_have_written(running.client, (offset, bytes), now_ns, false);
                }
                Op::Allocate { handle, offset, len, how } => {
                    let data = self.model.data.entry(handle.fid).or_default();
                    let (at, zeros) = data.zeroed_by((*offset, *len), *how);
                    if !zeros.is_empty() {
                        data.may_have_written(running.client, (at, &zeros), now_ns, false);
                    }
                }
                Op::Truncate { at, size } => {
                    if let Some(fid) = self.model.now.find_file(at.dir(), &at.name) {
                        self.model.data.entry(fid).or_default().may_be_cut(*size, now_ns);
                    }
                }
                Op::Open { at, how, .. } if how.truncate => {
                    if let Some(fid) = self.model.now.find_file(at.dir(), &at.name) {
                        self.model.data.entry(fid).or_default().may_be_cut(0, now_ns);
                    }
                }
                _ => {}
            }
        }
    }

    /// Files that may be going, or have gone, with an operation that is not judged yet.
    fn going(&self) -> BTreeSet<Fid> {
        let settling = self.settling.iter().map(|settling| &settling.running);
        let all = self.running.values().chain(settling);
        let going = all.filter(|running| match &running.op {
            Op::Remove { .. } | Op::Rename { .. } => true,
            // The last one of a file without a name.
            Op::Close { handle } => {
                let fid = handle.fid;
                !self.model.now.inodes.contains_key(&fid) && self.well_opens(fid) < 2
            }
            _ => false,
        });
        going.flat_map(touched_inodes).collect()
    }

    /// How often programs have a file open, as the MDT knows.
    fn well_opens(&self, fid: Fid) -> usize {
        let open = self.nodes.iter().flat_map(|node| node.open.iter().flatten());
        open.filter(|(handle, lost)| handle.fid == fid && !lost).count()
    }

    /// Whether a file should be there.
    fn is_there(&self, fid: Fid) -> bool {
        self.model.now.inodes.contains_key(&fid) || self.well_opens(fid) > 0
    }

    fn open_files(&self) -> BTreeSet<Fid> {
        let open = self.nodes.iter().flat_map(|node| node.open.iter().flatten());
        open.map(|(handle, _)| handle.fid).collect()
    }

    fn objects_survived(&mut self, index: u32) {
        self.ost_crashed_ns = self.now_ns;
        let going = self.going();
        self.running_may_have_written();
        // A file whose creation a crash of the MDT has met may be found to be there, with what
        // was written to it meanwhile.
        let perhaps = self.settling.iter().filter_map(|settling| match settling.result {
            Ok(Out::Opened(handle)) => Some(handle.fid),
            _ => None,
        });
        let kept: BTreeSet<Fid> = self.open_files().into_iter().chain(perhaps).collect();
        self.model.collect(&kept);
        let last_op = self.next_op - 1;
        let fids: Vec<Fid> = self.model.data.keys().copied().collect();
        let alive = self.nodes.iter().filter(|node| !node.dead);
        let have_none: Vec<(ClientId, ClientId)> = alive
            .filter(|node| node.client.census().dirty_bytes == 0)
            .map(|node| (node.id, node.client.incarnation()))
            .collect();
        for fid in fids {
            let there = self.is_there(fid);
            let Some(data) = self.model.data.get_mut(&fid) else { continue };
            // Who keeps nothing at all now has to tell what is lost.
            for (client, incarnation) in &have_none {
                data.is_now(*client, *incarnation, last_op);
                data.wrote_out(*client);
            }
            let keepers = keepers_of(&self.nodes, fid);
            let promised = data.everybody_may_hear_of_a_loss(last_op, &keepers);
            self.report
                .count("client that has all that an OST has lost of a file", promised as u64);
            if promised > 0 {
                self.promises.insert(fid);
            }
            if going.contains(&fid) || !there {
                data.unseen.insert(index);
            } else {
                self.object_survived(fid, index, self.takes_power);
            }
        }
        for running in self.running.values() {
            if let Op::Write { handle, .. } | Op::Allocate { handle, .. } = &running.op {
                let data = self.model.data.entry(handle.fid).or_default();
                data.let_hear(running.client, last_op);
            }
        }
        self.report.count("OST held against what was synced", 1);
    }

    /// Holds a file's objects on an OST that has crashed, just now if `at_once`, against what
    /// they may be.
    fn object_survived(&mut self, fid: Fid, index: u32, at_once: bool) {
        let Some(host) = self.hosts.get(&Endpoint::Ost(index)) else { return };
        let Some(data) = self.model.data.get_mut(&fid) else { return };
        let objects = &host.disk.objects;
        let mut images: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for (stripe, ost) in data.layout.iter().flat_map(|layout| layout.objects()) {
            if ost == index {
                let image = objects.image(ObjectId { fid, stripe });
                images.insert(stripe, image.unwrap_or_default());
            }
        }
        data.unseen.remove(&index);
        let keepers = keepers_of(&self.nodes, fid);
        if let Err(what) = data.survived(index, &images, (at_once, &keepers)) {
            self.fail(format!("{fid}: {what}"));
        }
    }

    /// A file that might have gone has stayed: what a crash left of its objects is looked at
    /// now.
    pub(super) fn look_again(&mut self, fid: Fid) {
        if self.going().contains(&fid) || !self.is_there(fid) {
            return;
        }
        let unseen = self.model.data.get(&fid).map(|data| data.unseen.clone());
        for index in unseen.into_iter().flatten() {
            self.object_survived(fid, index, false);
        }
    }

    /// Whether nobody tells the MDTs of a client that dies: they notice it themselves, if it has
    /// promised to speak. `soon` are those for whom others should not have to wait.
    fn goes_unnoticed(&mut self, index: usize, soon: bool) -> bool {
        let speaks = self.nodes.get(index).is_some_and(|node| node.speaks);
        let unnoticed = if soon { self.random.one_in(4) } else { !self.random.one_in(4) };
        speaks && unnoticed
    }

    /// A client dies; the MDTs hear of it within `heard_ns`, or not at all.
    pub(super) fn crash_client(&mut self, index: usize, heard_ns: u64) {
        // One that is still mounting may die, too.
        let Some(node) = self.nodes.get_mut(index).filter(|node| !node.dead) else { return };
        (node.mounted, node.dead) = (false, true);
        node.open.iter_mut().for_each(Vec::clear);
        let dead = node.id;
        let unnoticed = self.goes_unnoticed(index, heard_ns == MISSED_NS);
        self.report.count("crash client, and nobody tells", u64::from(unnoticed));
        let Some(node) = self.nodes.get(index) else { return };
        self.model.must_hear.retain(|(client, _)| *client != dead);
        let (client, incarnation) = (node.id, node.client.incarnation());
        self.report.count("crash client", 1);
        self.note(|| format!("client-{:x} crashes", client.0));
        self.executor.kill(client.0);
        self.cut_off(Endpoint::Client(client));
        self.links.forget(Endpoint::Client(client));
        self.lost_ns = self.now_ns;
        // What waits at an MDT may be done for as long as the client is one of it.
        let late_ns = self.all_arrived_ns() + if unnoticed { NOTICED_NS } else { 0 };
        self.locking.known.lost(client, self.now_ns);
        self.is_told_no_more(client, late_ns);
        for data in self.model.data.values_mut() {
            data.writer_lost(client, late_ns, None);
        }
        let mine = self.running.iter().filter(|(_, running)| running.client == client);
        let caught: Vec<u64> = mine.map(|(id, _)| *id).collect();
        for id in caught {
            let Some(mut running) = self.running.remove(&id) else { continue };
            running.dead = true;
            self.report.operations += 1;
            let result = Err(Errno::EIO);
            self.may_get_objects(&running, &result);
            self.judge_failed(&running, &result, late_ns);
            // Nobody leaves a file alone because somebody has died who was writing to it: who
            // comes now waits for the locks of the dead.
            if let Op::Write { .. } = running.op {
                continue;
            }
            // Its requests may still be on their way.
            let (dead_client, durable_from) = (Some(incarnation), None);
            self.settling.push(Settling { running, result, dead_client, durable_from });
        }
        for mdt in (0..self.shape.mdts).filter(|_| !unnoticed) {
            let after = self.random.within(1_000_000, heard_ns);
            self.after(after, Event::Evict(incarnation, mdt));
        }
        let after = self.random.within(1_000_000, 500_000_000);
        self.report.count("client replaced", 1);
        self.after(after, Event::NewClient(index));
    }

    /// All work is done: no more faults, and after a while everything must be in order.
    pub(super) fn end(&mut self) {
        if self.failure.is_some() {
            return;
        }
        self.network.weather = Weather::default();
        self.network.is_seeking = false;
        let until = self.now_ns + REST_NS;
        while self.now_ns < until && !self.at_rest() {
            let pause_ns = self.now_ns + 1_000_000_000;
            self.pause_ns = Some(pause_ns);
            self.end_kept_sessions(|| ());
            // There may be nobody left who speaks.
            self.hosts.values_mut().for_each(Host::hears_somebody);
            while self.now_ns < pause_ns {
                if !self.step() {
                    return;
                }
            }
        }
        self.pause_ns = None;
        if !self.at_rest() {
            let who = self.not_at_rest();
            return self.fail(format!("the cluster does not come to rest: {who}"));
        }
        let open = self.open_files();
        let reused = self.nodes.iter().map(|node| node.client.census().opens_reused).sum();
        self.report.count("open that an MDT had kept", reused);
        let first = self.nodes.iter().map(|node| node.client.census().opens_closed_first).sum();
        self.report.count("open closed before a last name went", first);
        let ahead = self.nodes.iter().map(|node| node.client.statahead_stats().hits).sum();
        self.report.count("name looked up ahead", ahead);
        let pages = self.nodes.iter().map(|node| node.client.read_ahead_stats().hits).sum();
        self.report.count("page read ahead", pages);
        let again = self.nodes.iter().map(|node| node.client.clean_stats().hits).sum();
        self.report.count("read again of what stays", again);
        let listed = self.nodes.iter().map(|node| node.client.dir_pages_stats().hits).sum();
        self.report.count("listing answered from pages", listed);
        let hits = self.nodes.iter().map(|node| node.kernel.hits()).sum();
        self.report.count("answer from a kernel cache", hits);
        let kept = self.nodes.iter().map(|node| node.client.census().kept_in_parts).sum();
        self.report.count("write kept in a part", kept);
        self.parts_of_a_run(Endpoint::Mdt(0));
        let given = self.nodes.iter().flat_map(|node| node.kernel.counts());
        for (kind, count) in given.collect::<Vec<_>>() {
            self.report.count(kind, count);
        }
        if let Err(what) = invariants::check_all(&mut self.hosts, &self.model, &open) {
            self.fail(format!("at the end: {what}"));
        }
        if self.config.crashes {
            self.nothing_leaks();
        }
        self.locks_have_owners();
        self.contents_are_right();
    }

    /// The objects of every file hold what readers would have to find.
    fn contents_are_right(&mut self) {
        let now_ns = self.now_ns;
        let mut wrong = None;
        for (fid, data) in &mut self.model.data {
            if !self.model.now.inodes.contains_key(fid) || !data.unseen.is_empty() {
                continue;
            }
            let Some(layout) = data.layout.clone() else { continue };
            let mut there = vec![0; data.size() as usize];
            for chunk in layout.chunks(0, data.size()) {
                let Some(host) = self.hosts.get(&Endpoint::Ost(chunk.ost)) else { continue };
                let object = ObjectId { fid: *fid, stripe: chunk.stripe };
                let image = host.disk.objects.image(object).unwrap_or_default();
                let from = (chunk.object_offset as usize).min(image.len());
                let to = ((chunk.object_offset + chunk.len) as usize).min(image.len());
                let at = chunk.file_offset as usize;
                if let Some(place) = there.get_mut(at..at + (to - from)) {
                    place.copy_from_slice(image.get(from..to).unwrap_or_default());
                }
            }
            self.report.count("file looked at in the end", 1);
            if let Err(what) = data.check_read((0, there.len() as u64), &there, Some(now_ns)) {
                wrong = Some(format!("in the end {fid}: {what}"));
            }
        }
        if let Some(what) = wrong {
            self.fail(what);
        }
    }

    /// Whether the OSTs have everything that programs have written.
    fn nothing_is_kept(&self) -> bool {
        let mut alive = self.nodes.iter().filter(|node| !node.dead);
        alive.all(|node| node.client.census().dirty_bytes == 0)
    }

    /// Why the cluster is not at rest, for whoever reads of it.
    fn not_at_rest(&mut self) -> String {
        let mut who = Vec::new();
        for (target, host) in &mut self.hosts {
            let durable = host.process.is_some() && host.durable() >= host.transno();
            if !durable || host.mdt().is_some_and(|mdt| !mdt.is_idle()) {
                who.push(target.to_string());
            }
        }
        let all = [
            ("writes are kept", !self.nothing_is_kept()),
            ("somebody ends", !self.nobody_ends()),
            (
                "a client is to be evicted",
                self.queue.iter().any(|(_, e)| matches!(e, Event::Evict(..))),
            ),
            ("the dead are connected", self.config.crashes && self.knows_the_dead()),
            ("an operation settles", !self.settling.is_empty()),
            ("a target is not registered", !self.all_registered()),
        ];
        who.extend(all.iter().filter(|(_, is)| *is).map(|(what, _)| (*what).to_owned()));
        who.extend(self.session_left());
        who.join(", ")
    }

    fn at_rest(&mut self) -> bool {
        let hosts_rest = self.hosts.values_mut().all(|host| {
            let durable = host.process.is_some() && host.durable() >= host.transno();
            durable && host.mdt().is_none_or(|mdt| mdt.is_idle())
        });
        // A client that died last still has to be missed by the MDTs.
        let missed = !self.queue.iter().any(|(_, event)| matches!(event, Event::Evict(..)));
        // In other worlds nobody dies, and a goodbye that is not heard leaves much behind.
        let missed = missed && !(self.config.crashes && self.knows_the_dead());
        hosts_rest
            && self.nothing_is_kept()
            && self.nobody_ends()
            && missed
            && self.settling.is_empty()
            && self.all_registered()
            && self.session_left().is_none()
    }

    /// Invariants that hold at any moment.
    fn check_now(&mut self) {
        if let Err(what) = invariants::check_always(&mut self.hosts) {
            self.fail(what);
        }
    }
}

fn restarted(target: Endpoint) -> &'static str {
    match target {
        Endpoint::Mdt(_) => "MDT restarted",
        Endpoint::Ost(_) => "OST restarted",
        _ => "MGS restarted",
    }
}

pub(super) fn touched_inodes(running: &Running) -> impl Iterator<Item = Fid> + '_ {
    running.touched.iter().filter_map(|(touched, _)| match touched {
        Touched::Inode(fid) => Some(*fid),
        _ => None,
    })
}

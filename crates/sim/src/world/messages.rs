//! What is said in a world, between targets and clients, and what follows from it: who was lost,
//! who is back, which answer belongs to which operation.

use sateen_types::{ClientId, Endpoint, Errno};
use sateen_wire::{
    Body, Callback, Header, MdtReply, MdtRequest, Message, OstRequest, ReplyBody, Request,
};

use super::{Event, Node, World, silence};
use crate::host::Want;
use crate::port::Wish;

impl World {
    /// What a target wants from the world.
    pub(super) fn perform(&mut self, me: Endpoint, wants: Vec<Want>) {
        self.evictions_are_right(me, &wants);
        self.evicted_are_not_stuck(me, &wants);
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
    pub(super) fn snoop(&mut self, message: &Message) {
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
    pub(super) fn hears_that_it_is_lost(&mut self, header: Header) {
        let Endpoint::Client(at) = header.to else { return };
        let current = |node: &Node| node.id == at && node.client.incarnation() == header.client;
        if self.nodes.iter().any(current) {
            self.goes_on_as_another(at);
        }
    }

    /// A client that is thrown out goes on as another, at all MDTs.
    pub(super) fn goes_on_as_another(&mut self, client: ClientId) {
        self.remember_names();
        for mdt in self.shape.mdts() {
            self.client_is_dirty(client, mdt);
        }
        self.locking.known.is_back(client, false);
        self.lost_ns = self.now_ns;
        let (settles_ns, last_op) = (self.all_arrived_ns(), self.next_op - 1);
        self.is_told_no_more(client, settles_ns);
        for data in self.model.data.values_mut() {
            data.writer_lost(client, settles_ns, Some(last_op));
        }
    }

    pub(super) fn client_is_dirty(&mut self, client: ClientId, target: Endpoint) {
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
        self.may_be_in_doubt(&message);
        self.claims(&message);
        self.tells_of_parts(&message);
        self.makes_slow(&message);
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

    pub(super) fn deliver(&mut self, message: Message, is_cut: bool) {
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
                self.puts_in_doubt(&message);
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

    pub(super) fn is_offered(&mut self, index: usize, message: &Message) {
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
    pub(super) fn is_clean_again(&mut self, message: &Message) {
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
    pub(super) fn asked_again(&self, message: &Message) -> Option<u64> {
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
    pub(super) fn wishes(&mut self, client: ClientId, task: Option<u64>) {
        let Some(node) = self.nodes.iter().find(|node| node.id == client) else { return };
        let (port, told) = (node.port.clone(), node.kernel.told());
        for told in told {
            self.note(|| format!("kernel of client-{:x}: {told}", client.0));
        }
        let op = task.and_then(|task| self.tasks.get(&task)).copied();
        for wish in port.take() {
            match wish {
                Wish::Send(message) => {
                    // The size that is found on the way is a transaction of its own. So is the end of an
                    // orphan: a removal closes first, and the network may turn the two round.
                    let is_own = matches!(
                        &message.body,
                        Body::Request(Request::Mdt(
                            MdtRequest::ReportSize { .. }
                                | MdtRequest::Close { .. }
                                | MdtRequest::Cancel { .. }
                        ))
                    );
                    let op = op.or_else(|| self.asked_again(&message));
                    // Slots of other targets count by themselves.
                    let asks = message.header.to == Endpoint::Mdt(0) && !is_own;
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
}

fn shown_message(message: &Message) -> String {
    let Header { from, to, generation, slot, seq, .. } = message.header;
    format!("{from} to {to} {generation:x}.{slot}.{seq} {:?}", message.body)
}

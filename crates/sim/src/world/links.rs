//! Connections that break, and targets that have stopped on hosts that have not: what the network
//! answers in the place of a target ([protocol.md](../../../../docs/protocol.md)).
//!
//! - `ECONNRESET` for what was sent over a connection that broke before the answer came. What was
//!   under way arrives up to some message, and what follows it does not.
//! - `ESHUTDOWN` or `ENODEV` for what is sent to a target whose process has ended, unless its host
//!   has, too: then nobody answers.

use std::collections::{BTreeMap, BTreeSet};

use sateen_types::{ClientId, Endpoint, Errno};
use sateen_wire::{Body, Bulk, Header, Message, Reply};

use super::{Event, World};
use crate::queue::Key;
use crate::random::Random;

/// Operations between two breaks, on average.
const OPERATIONS_PER_BREAK: u64 = 30;
/// How long it takes until whoever sent something hears that it was in vain: from here to there.
const HEARD_NS: (u64, u64) = (5_000, 300_000);

/// A request: from whom, to whom, and its incarnation, generation, slot and sequence.
type Asked = (Endpoint, Endpoint, ClientId, u32, u16, u64);

/// All connections, and randomness of their own.
#[derive(Debug)]
pub(super) struct Links {
    random: Random,
    next: u64,
    /// Requests that are not answered.
    asked: BTreeMap<Asked, Header>,
    /// Targets without a process whose hosts say so.
    refused_at: BTreeSet<Endpoint>,
}

/// What names a request by its own header.
fn asked(header: &Header) -> Asked {
    let Header { from, to, client, generation, slot, seq, .. } = *header;
    (from, to, client, generation, slot, seq)
}

/// What names it by its answer's.
fn answered(header: &Header) -> Asked {
    asked(&Header { from: header.to, to: header.from, ..*header })
}

impl Links {
    pub(super) fn new(seed: u64) -> Links {
        let random = Random::new(seed.rotate_left(29) ^ 0x7c9);
        Links { random, next: 10, asked: BTreeMap::new(), refused_at: BTreeSet::new() }
    }

    /// A message is sent.
    pub(super) fn carries(&mut self, message: &Message) {
        if matches!(message.body, Body::Request(_)) {
            self.asked.insert(asked(&message.header), message.header);
        }
    }

    /// A message has arrived.
    pub(super) fn carried(&mut self, message: &Message) {
        if matches!(message.body, Body::Reply(_)) {
            self.asked.remove(&answered(&message.header));
        }
    }

    /// Somebody has died: nothing that it asked will be answered.
    pub(super) fn forget(&mut self, who: Endpoint) {
        self.asked.retain(|(from, ..), _| *from != who);
    }

    /// A target's process starts.
    pub(super) fn is_back(&mut self, who: Endpoint) {
        self.refused_at.remove(&who);
    }
}

impl World {
    /// Breaks a connection now and then; `operations` were done so far.
    pub(super) fn maybe_break(&mut self, operations: u64) {
        if operations < self.links.next {
            return;
        }
        let random = &mut self.links.random;
        self.links.next = operations + random.within(1, 2 * OPERATIONS_PER_BREAK);
        // One over which somebody waits for an answer.
        let at = random.index(self.links.asked.len());
        let Some((one, other, ..)) = self.links.asked.keys().nth(at).copied() else { return };
        self.report.count("connection broken", 1);
        self.note(|| format!("the connection between {one} and {other} breaks"));
        self.break_connection(one, other);
    }

    /// Of what is under way some arrives; who waits for an answer that does not hears that none
    /// will come.
    fn break_connection(&mut self, one: Endpoint, other: Endpoint) {
        let mut arrives = BTreeSet::new();
        let mut lost = Vec::new();
        for (from, to) in [(one, other), (other, one)] {
            let on_the_way: Vec<Key> = self
                .queue
                .iter()
                .filter_map(|(key, event)| match event {
                    Event::Deliver(message, _) => {
                        let header = &message.header;
                        ((header.from, header.to) == (from, to)).then_some(*key)
                    }
                    _ => None,
                })
                .collect();
            let kept = self.links.random.within(0, on_the_way.len() as u64) as usize;
            let (first, rest) = on_the_way.split_at(kept);
            lost.extend(rest.iter().copied());
            for key in first {
                if let Some(Event::Deliver(message, _)) = self.queue.get(key)
                    && let Body::Reply(_) = message.body
                {
                    arrives.insert(answered(&message.header));
                }
            }
        }
        self.report.count("message lost with its connection", lost.len() as u64);
        for key in lost {
            self.queue.remove(&key);
        }
        self.reset(|(from, to, ..)| [(one, other), (other, one)].contains(&(*from, *to)), &arrives);
    }

    /// These requests are answered by the network, but for those whose answers arrive.
    fn reset(&mut self, which: impl Fn(&Asked) -> bool, arrives: &BTreeSet<Asked>) {
        let gone: Vec<Asked> = self
            .links
            .asked
            .keys()
            .filter(|asked| which(asked) && !arrives.contains(asked))
            .copied()
            .collect();
        for asked in gone {
            if let Some(header) = self.links.asked.remove(&asked) {
                self.refuse(header, Errno::ECONNRESET);
            }
        }
    }

    fn refuse(&mut self, header: Header, errno: Errno) {
        let counted = match errno {
            Errno::ECONNRESET => "request whose connection broke",
            Errno::ESHUTDOWN => "request that no host took",
            _ => "request to a process without the target",
        };
        self.report.count(counted, 1);
        let after = self.links.random.within(HEARD_NS.0, HEARD_NS.1);
        self.after(after, Event::Refused(Box::new(header), errno));
    }

    /// Whoever sent a request hears from the network.
    pub(super) fn is_refused_by_network(&mut self, header: &Header, errno: Errno) {
        let message = Message::reply_to(header, Reply::error(errno), Bulk::None);
        self.deliver(message, true);
    }

    /// A target dies. Half of them leave hosts behind that tell whoever waits, and whoever comes.
    pub(super) fn dies_loudly(&mut self, target: Endpoint) {
        self.links.forget(target);
        if !self.links.random.one_in(2) {
            return self.links.asked.retain(|(_, to, ..), _| *to != target);
        }
        self.links.refused_at.insert(target);
        // Answers that are under way go on as they did.
        let arrives = self.queue.iter().filter_map(|(_, event)| match event {
            Event::Deliver(message, _) if message.header.from == target => {
                Some(answered(&message.header))
            }
            _ => None,
        });
        let arrives: BTreeSet<Asked> = arrives.collect();
        self.reset(|(_, to, ..)| *to == target, &arrives);
    }

    /// A message has come to a target that has no process.
    pub(super) fn nobody_hears(&mut self, message: &Message) {
        let header = message.header;
        if !self.links.refused_at.contains(&header.to) || !matches!(message.body, Body::Request(_))
        {
            return;
        }
        self.links.asked.remove(&asked(&header));
        let errno = if self.links.random.one_in(2) { Errno::ESHUTDOWN } else { Errno::ENODEV };
        self.refuse(header, errno);
    }
}

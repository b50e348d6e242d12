//! Crashes that strike while a message is under way: each kind is to be cut by some, also those
//! that no crash at a random time would ever meet.

use sateen_types::Endpoint;
use sateen_wire::Message;

use super::{Event, World};
use crate::traffic::{Fault, Traffic};

/// As often in a run a message of each kind is to be cut.
const CUTS: u64 = 3;
/// Of a thousand messages of a kind that was not cut so often yet so many are.
const HUNT_PERMILLE: u64 = 350;
/// And of the rarest kinds, without a pause.
const RAREST_PERMILLE: u64 = 500;
/// Operations between two crashes of this sort, on average. Those of the MGS, which hold up
/// nobody who is mounted, do not count.
const PAUSE_OPERATIONS: u64 = 22;
/// How long a target is down then at most: 400 ms.
const DOWN_NS: u64 = 400_000_000;

impl World {
    /// A message was sent, and arrives after so long. Its sender or receiver may die before.
    pub(super) fn hunt(&mut self, message: &Message, arrives_ns: u64) {
        let kind = message.body.kind();
        let works = self.report.operations > 0 && self.next_op <= self.config.operations;
        if !self.is_hunting || !works || self.report.traffic.met(kind, Fault::Cut) >= CUTS {
            return;
        }
        let sent = self.report.traffic.of(kind).sent;
        let is_rarest = Traffic::is_rarest(sent, self.report.operations);
        let (from, to) = (message.header.from, message.header.to);
        let by_mgs = [from, to].contains(&Endpoint::Mgs) && !self.random.one_in(8);
        if !by_mgs && !is_rarest && self.report.operations < self.next_hunt {
            return;
        }
        if !self.random.permille(if is_rarest { RAREST_PERMILLE } else { HUNT_PERMILLE }) {
            return;
        }
        let victim = match (by_mgs, self.random.one_in(2)) {
            (true, _) => Endpoint::Mgs,
            (false, true) => from,
            (false, false) => to,
        };
        if !by_mgs {
            self.next_hunt = self.report.operations + self.random.within(1, 2 * PAUSE_OPERATIONS);
        }
        self.report.count("crash around a message", 1);
        let after = self.random.below(arrives_ns);
        let down_ns = self.random.within(1_000_000, DOWN_NS);
        let crash = match victim {
            Endpoint::Client(client) => Event::CrashClient(client),
            target => Event::Crash(target, down_ns),
        };
        self.after(after, crash);
    }

    /// Somebody has died. What it had sent and what was to come to it is cut: some of it
    /// arrives all the same, at its receiver or at its successor.
    pub(super) fn cut_off(&mut self, who: Endpoint) {
        let mut lost = Vec::new();
        for (key, event) in self.queue.iter_mut() {
            let Event::Deliver(message, is_cut) = event else { continue };
            if message.header.from != who && message.header.to != who {
                continue;
            }
            if !core::mem::replace(is_cut, true) {
                self.report.traffic.meets(message.body.kind(), Fault::Cut);
            }
            if self.random.one_in(2) {
                lost.push(*key);
            }
        }
        self.report.count("message lost in a crash", lost.len() as u64);
        for key in lost {
            self.queue.remove(&key);
        }
    }

    /// A message has come to somebody who is dead.
    pub(super) fn unheard(&mut self, message: &Message, is_cut: bool) {
        if !is_cut {
            self.report.traffic.meets(message.body.kind(), Fault::Cut);
        }
    }
}

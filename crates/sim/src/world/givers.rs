//! Who gives a lock back slowly in the full world: the disks of OSTs are slow for a while from the moment on at
//! which a lock is called back from a client that keeps writes. It is called back once more after a second,
//! and its client says that it goes on. In a world of its own ([`super::slow`]) all disks are slow for ever,
//! and nobody crashes.

use sateen_types::{ClientId, Endpoint};
use sateen_wire::{Body, Callback, Ibits, LockMode, MdtRequest, Message, Request};

use super::{Event, Favourite, Running, World};
use crate::host::Host;
use crate::random::Random;
use crate::work::Op;

/// Operations between two times at which disks are slow, on average.
const OPERATIONS_PER_SLOW: u64 = 8;
/// How long the disk of an OST is at each write then, one after the other: from here to there, and of all
/// OSTs but one a second more. So where a client has several requests to write out, one has been answered when
/// it is called back once more, and others have not.
const SLOW_NS: (u64, u64) = (200_000_000, 900_000_000);
const SLOWER_NS: u64 = 1_000_000_000;
/// Pages of one request from then on, so that there are several.
const REQUEST_PAGES: u32 = 4;
/// And for how long they are slow: 2 s.
const FOR_NS: u64 = 2_000_000_000;

/// Others turn to what was written after so many writes, for 1 s.
const WRITES_PER_WANT: u64 = 5;
const WANTED_NS: u64 = 1_000_000_000;

/// The fault, and its own randomness: the choices of everything else go on as without it.
#[derive(Debug)]
pub(super) struct Givers {
    random: Random,
    next: u64,
    are_slow: bool,
}

impl Givers {
    pub(super) fn new(seed: u64) -> Givers {
        let random = Random::new(seed.rotate_left(23) ^ 0x61fe);
        Givers { random, next: OPERATIONS_PER_SLOW, are_slow: false }
    }
}

impl World {
    /// A message is sent that may be about a lock that is to be given back.
    pub(super) fn makes_slow(&mut self, message: &Message) {
        match &message.body {
            Body::Request(Request::Mdt(MdtRequest::GoesOn { .. })) => {
                self.report.count("told that it goes on", u64::from(self.rowing.is_here()));
            }
            Body::Callback(Callback::Blocking { fid, .. }) if self.keeps_writes => {
                let Endpoint::Client(client) = message.header.to else { return };
                let mdt = self.hosts.get(&message.header.from).and_then(Host::running_mdt);
                let keeps = mdt.is_some_and(|mdt| {
                    let mut held = mdt.lock_holders(*fid);
                    held.any(|held| {
                        held.client == message.header.client
                            && held.bits.contains(Ibits::DATA)
                            && matches!(held.mode, LockMode::Pw | LockMode::Part)
                    })
                });
                if keeps {
                    self.are_slow_for(client);
                }
            }
            _ => {}
        }
    }

    /// Whether there may be such clients now. In every second world those who write in turns
    /// are held up half as often.
    fn has_slow_givers(&mut self) -> bool {
        let works = self.report.operations > 0 && self.next_op <= self.config.operations;
        let faulty = self.config.network_faults && self.config.crashes;
        let is_here = works && faulty && self.rowing.is_here() && self.keeps_writes;
        let spares = self.config.seed / 8 % 2 == 1 && self.rowing.is_at_it();
        is_here && !(spares && self.givers.random.one_in(2))
    }

    /// An operation has ended: others turn to what was written now and then, before it is written out.
    pub(super) fn is_wanted_elsewhere(&mut self, running: &Running) {
        let Op::Write { handle, .. } = &running.op else { return };
        let is_free = self.favourite.is_none_or(|favourite| favourite.until_ns < self.now_ns);
        if self.has_slow_givers() && is_free && self.givers.random.one_in(WRITES_PER_WANT) {
            let until_ns = self.now_ns + WANTED_NS;
            self.favourite = Some(Favourite { fid: handle.fid, until_ns, again_at: None });
        }
    }

    fn are_slow_for(&mut self, client: ClientId) {
        if !self.has_slow_givers() || self.givers.are_slow {
            return;
        }
        if self.report.operations < self.givers.next {
            return;
        }
        let Some(node) = self.nodes.iter().find(|node| node.id == client) else { return };
        let of: Vec<u32> =
            (0..self.shape.osts).filter(|ost| node.client.dirty_bytes(*ost) > 0).collect();
        let Some(first) = self.givers.random.pick(&of).copied() else { return };
        for ost in of {
            let set = node.client.set_rpc_pages_max(Endpoint::Ost(ost), REQUEST_PAGES);
            debug_assert_eq!(set, Ok(()), "it takes writes");
        }
        let random = &mut self.givers.random;
        self.givers.next = self.report.operations + random.within(1, 2 * OPERATIONS_PER_SLOW);
        self.givers.are_slow = true;
        self.report.count("disks slow for who gives a lock back", 1);
        for ost in self.shape.osts() {
            let more_ns = if ost == Endpoint::Ost(first) { 0 } else { SLOWER_NS };
            let slow_ns = random.within(SLOW_NS.0, SLOW_NS.1) + more_ns;
            if let Some(host) = self.hosts.get_mut(&ost) {
                host.slow_ns = slow_ns;
            }
        }
        self.after(FOR_NS, Event::Quick);
    }

    /// Disks are as quick as ever.
    pub(super) fn are_quick(&mut self) {
        self.givers.are_slow = false;
        for ost in self.shape.osts() {
            if let Some(host) = self.hosts.get_mut(&ost) {
                host.slow_ns = 0;
            }
        }
    }
}

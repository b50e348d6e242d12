//! What went through connections that were broken: which requests were under way when it
//! happened, which of them were made again, and which of those had been executed already, because
//! an answer was seen that did not arrive. Without many of the last a test of broken connections
//! shows nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use sateen_testkit::cutter::{Watch, Way};
use sateen_types::{ClientId, Endpoint};
use sateen_wire::{HEADER_BYTES, Header, Message, MessageKind};

/// What names a request, however often it is made.
type Key = (ClientId, Endpoint, u32, u16, u64);

fn key(header: &Header, target: Endpoint) -> Key {
    (header.client, target, header.generation, header.slot, header.seq)
}

/// Where in the stream of messages a way ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Between,
    Header,
    Body,
    Bulk,
}

/// One way of a connection.
#[derive(Debug, Default)]
struct Stream {
    /// What there is of the message's header and body.
    head: Vec<u8>,
    /// Bytes of bulk that are still to come.
    bulk_left: usize,
    message: Option<(Header, MessageKind)>,
    /// Where it was when the first bytes did not arrive.
    lost_at: Option<Place>,
}

/// What is to be noted of a piece of a stream.
enum Seen {
    /// All but the bulk.
    Head(Header, MessageKind),
    Whole(Header, MessageKind),
}

impl Stream {
    fn place(&self) -> Place {
        match self.head.len() {
            0 => Place::Between,
            _ if self.bulk_left > 0 => Place::Bulk,
            1..HEADER_BYTES => Place::Header,
            _ => Place::Body,
        }
    }

    /// What the next bytes complete.
    fn take(&mut self, mut bytes: &[u8], mut note: impl FnMut(Seen)) {
        while !bytes.is_empty() {
            if self.bulk_left == 0 {
                let header = self.head.first_chunk::<HEADER_BYTES>();
                let rest = header.map_or(0, |header| Message::rest_len(header).unwrap());
                let wanted = HEADER_BYTES + rest;
                let (now, later) = bytes.split_at((wanted - self.head.len()).min(bytes.len()));
                self.head.extend_from_slice(now);
                bytes = later;
                let header = self.head.first_chunk::<HEADER_BYTES>();
                let rest = header.map(|header| Message::rest_len(header).unwrap());
                if rest.is_none_or(|rest| self.head.len() < HEADER_BYTES + rest) {
                    continue;
                }
                let (message, bulk) = Message::decode(&self.head).unwrap();
                let what = (message.header, message.body.kind());
                note(Seen::Head(what.0, what.1));
                self.message = Some(what);
                self.bulk_left = bulk.len as usize;
            } else {
                let now = self.bulk_left.min(bytes.len());
                self.bulk_left -= now;
                bytes = &bytes[now..];
            }
            if self.bulk_left == 0 {
                self.head.clear();
                if let Some((header, kind)) = self.message.take() {
                    note(Seen::Whole(header, kind));
                }
            }
        }
    }
}

/// A request that was not answered yet.
#[derive(Debug)]
struct Asked {
    connection: u64,
    kind: MessageKind,
    /// There was an answer, all or part of which did not arrive.
    is_answered: bool,
}

#[derive(Debug, Default)]
struct State {
    streams: HashMap<(u64, bool), Stream>,
    asked: HashMap<Key, Asked>,
    sums: Sums,
}

/// What happened.
#[derive(Debug, Default, Clone)]
pub(super) struct Sums {
    /// Requests that arrived.
    pub(super) requests: u64,
    /// Connections that broke while a request had arrived and its answer had not.
    pub(super) met: u64,
    /// Those requests.
    pub(super) under_way: u64,
    /// Where in its messages a way of a broken connection ended.
    pub(super) places: BTreeMap<Place, u64>,
    /// Requests that arrived again.
    pub(super) again: u64,
    /// Those that arrived again although they had been executed: a target that executes them once
    /// more, or gives another answer, is found out.
    pub(super) executed: BTreeMap<MessageKind, u64>,
    /// Those that were another request when they came again.
    pub(super) mistaken: Vec<String>,
}

/// Looks at everything that goes through a cutter.
#[derive(Debug, Default)]
pub(super) struct Traffic(Mutex<State>);

impl Traffic {
    pub(super) fn sums(&self) -> Sums {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).sums.clone()
    }
}

impl Watch for Traffic {
    fn saw(&self, connection: u64, way: Way, bytes: &[u8], arrive: bool) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let State { streams, asked, sums } = &mut *state;
        let stream = streams.entry((connection, way == Way::There)).or_default();
        if !arrive && stream.lost_at.is_none() {
            stream.lost_at = Some(stream.place());
        }
        stream.take(bytes, |seen| match seen {
            Seen::Whole(header, kind) if kind.side == "request" && arrive => {
                let request = Asked { connection, kind, is_answered: false };
                sums.requests += 1;
                if let Some(before) = asked.insert(key(&header, header.to), request) {
                    if before.kind != kind && header.to != Endpoint::Mgs {
                        sums.mistaken.push(format!("{header:?}: {}, then {kind}", before.kind));
                    }
                    sums.again += 1;
                    if before.is_answered {
                        *sums.executed.entry(kind).or_default() += 1;
                    }
                }
            }
            Seen::Head(header, kind) if kind.side == "reply" => {
                if let Some(asked) = asked.get_mut(&key(&header, header.from)) {
                    asked.is_answered = true;
                }
            }
            Seen::Whole(header, kind) if kind.side == "reply" && arrive => {
                asked.remove(&key(&header, header.from));
            }
            _ => {}
        });
    }

    fn broke(&self, connection: u64) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let State { streams, asked, sums } = &mut *state;
        let under_way = asked.values().filter(|asked| asked.connection == connection).count();
        sums.under_way += under_way as u64;
        sums.met += u64::from(under_way > 0);
        for way in [true, false] {
            if let Some(stream) = streams.remove(&(connection, way)) {
                *sums.places.entry(stream.lost_at.unwrap_or(stream.place())).or_default() += 1;
            }
        }
    }
}

//! The network: messages as bytes, with delays, losses, duplicates and partitions.

use std::collections::{BTreeMap, BTreeSet};

use bytes::BytesMut;
use sateen_types::Endpoint;
use sateen_wire::{Body, Bulk, MdtRequest, Message, OstRequest, Request};

use crate::random::Random;
use crate::report::Report;
use crate::traffic::{Fault, Tally, Traffic};

/// As often in a run each kind of message is to meet each fault, if it is sent often enough.
const RARE_FAULTS: u64 = 3;
/// Of a thousand first messages of a kind so many meet a fault that is still to be met. The
/// more of the kind were sent the rarer it is, because the weather will do.
const RARE_PERMILLE: u64 = 250;
/// After so many messages half as many of a kind meet it.
const RARE_HALF: u64 = 12;
/// Of the rarest kinds so many of a thousand do.
const RAREST_PERMILLE: u64 = 400;

/// How bad the network is, in a thousand messages each.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Weather {
    pub(crate) drop: u64,
    pub(crate) duplicate: u64,
    /// So late that others overtake it.
    pub(crate) delay: u64,
}

/// Of messages in order so many come late, by up to this: 4 ms.
const LATE_PERMILLE: u64 = 100;
const LATE_NS: u64 = 4_000_000;

/// The network between all parties.
#[derive(Debug, Default)]
pub(crate) struct Network {
    pub(crate) weather: Weather,
    /// Whether it also seeks out messages of rare kinds, which the weather hardly ever meets.
    pub(crate) is_seeking: bool,
    /// Whether messages between two arrive in the order in which they were sent, as over one
    /// connection, which loses none, but for those that the weather delays. One that comes late, because nobody
    /// was awake to read it, keeps those behind it waiting.
    pub(crate) is_ordered: bool,
    /// Pairs that do not hear each other.
    cut: BTreeSet<(Endpoint, Endpoint)>,
    /// When the last message on each way arrives.
    last_ns: BTreeMap<(Endpoint, Endpoint), u64>,
}

fn pair(a: Endpoint, b: Endpoint) -> (Endpoint, Endpoint) {
    if a < b { (a, b) } else { (b, a) }
}

/// The message as the other side gets it: encoded, decoded, with its bulk beside it.
fn carried(message: &Message) -> Result<Box<Message>, String> {
    let bytes = message.encode();
    let (decoded, head) = Message::decode(&bytes).map_err(|e| format!("{message:?}: {e:?}"))?;
    if decoded.header != message.header || decoded.body != message.body {
        return Err(format!("decoded as something else: {message:?}"));
    }
    let bulk = match &message.bulk {
        Bulk::None => Bulk::None,
        Bulk::Data(data) if data.len() == head.len as usize => Bulk::Data(data.clone()),
        Bulk::Data(_) => return Err(format!("bulk of another length: {message:?}")),
        Bulk::Buffer(buffer) => {
            let room = match &message.body {
                Body::Request(Request::Ost(OstRequest::Read { len, .. })) => *len as usize,
                _ => 0,
            };
            let mut copy = BytesMut::with_capacity(buffer.len() + room);
            copy.extend_from_slice(buffer);
            Bulk::Buffer(copy)
        }
    };
    Ok(Box::new(Message { bulk, ..decoded }))
}

/// What the report calls a fault of the network.
const fn counted_as(fault: Fault) -> &'static str {
    match fault {
        Fault::Dropped => "message dropped",
        Fault::Duplicated => "message duplicated",
        Fault::Delayed => "message delayed",
        Fault::Cut => "message cut by a crash",
    }
}

impl Network {
    pub(crate) fn cut(&mut self, a: Endpoint, b: Endpoint) {
        self.cut.insert(pair(a, b));
    }

    pub(crate) fn mend(&mut self, a: Endpoint, b: Endpoint) {
        self.cut.remove(&pair(a, b));
    }

    /// What arrives of a message, and after how many nanoseconds.
    ///
    /// # Errors
    /// If it does not survive its own encoding.
    pub(crate) fn send(
        &mut self,
        message: &Message,
        now_ns: u64,
        random: &mut Random,
        report: &mut Report,
    ) -> Result<Vec<(u64, Box<Message>)>, String> {
        let mut arrivals = Vec::new();
        let kind = message.body.kind();
        let Tally { sent, mut faults } = report.traffic.sent(kind);
        if let Body::Request(Request::Mdt(MdtRequest::AnswerGlimpse { told, .. })) = &message.body {
            report.count("size told to who looks", u64::from(told.is_some()));
        }
        if self.cut.contains(&pair(message.header.from, message.header.to)) {
            report.count("message cut off", 1);
            return Ok(arrivals);
        }
        // What is dropped cannot be duplicated: of the rarest one is tried first as often as the other.
        let twice_first = random.one_in(2);
        let is_rarest = self.is_seeking && Traffic::is_rarest(sent, report.operations);
        let sought_permille = match is_rarest {
            true => RAREST_PERMILLE,
            false => RARE_PERMILLE * RARE_HALF / (RARE_HALF + sent),
        };
        let mut strikes = |fault: Fault, by_weather: u64, report: &mut Report| {
            let sought = self.is_seeking && {
                let met = faults.get(fault as usize).copied().unwrap_or_default();
                met < RARE_FAULTS && random.permille(sought_permille)
            };
            let strikes = sought || random.permille(by_weather);
            if strikes {
                report.count("message sought out", u64::from(sought));
                report.count(counted_as(fault), 1);
                report.traffic.meets(kind, fault);
                faults.iter_mut().skip(fault as usize).take(1).for_each(|met| *met += 1);
            }
            strikes
        };
        let mut copies = 1;
        let twice_first = is_rarest && twice_first;
        if twice_first && strikes(Fault::Duplicated, self.weather.duplicate, report) {
            copies = 2;
        } else if !self.is_ordered && strikes(Fault::Dropped, self.weather.drop, report) {
            copies = 0;
        } else if !twice_first && strikes(Fault::Duplicated, self.weather.duplicate, report) {
            copies = 2;
        }
        let delayed: Vec<bool> =
            (0..copies).map(|_| strikes(Fault::Delayed, self.weather.delay, report)).collect();
        for delayed in delayed {
            let mut after = random.within(5_000, 150_000);
            if delayed {
                after += random.below(3_000_000_000);
            }
            let last = self.last_ns.entry((message.header.from, message.header.to)).or_default();
            if self.is_ordered && !delayed {
                if random.permille(LATE_PERMILLE) {
                    after += random.below(LATE_NS);
                }
                after = after.max((*last + 1).saturating_sub(now_ns));
            }
            report.count("message reordered", u64::from(now_ns + after < *last));
            // In order nobody waits for what the weather delays.
            if !(self.is_ordered && delayed) {
                *last = (*last).max(now_ns + after);
            }
            arrivals.push((after, carried(message)?));
        }
        Ok(arrivals)
    }
}

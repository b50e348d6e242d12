//! The network: messages as bytes, with delays, losses, duplicates and partitions.

use std::collections::{BTreeMap, BTreeSet};

use bytes::BytesMut;
use sateen_types::Endpoint;
use sateen_wire::{Body, Bulk, Message, OstRequest, Request};

use crate::random::Random;
use crate::report::Report;

/// How bad the network is, in a thousand messages each.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Weather {
    pub(crate) drop: u64,
    pub(crate) duplicate: u64,
    /// So late that others overtake it.
    pub(crate) delay: u64,
}

/// The network between all parties.
#[derive(Debug, Default)]
pub(crate) struct Network {
    pub(crate) weather: Weather,
    /// Pairs that do not hear each other.
    cut: BTreeSet<(Endpoint, Endpoint)>,
    /// When the last message on each way arrives.
    last_ns: BTreeMap<(Endpoint, Endpoint), u64>,
}

fn pair(a: Endpoint, b: Endpoint) -> (Endpoint, Endpoint) {
    if a < b { (a, b) } else { (b, a) }
}

/// The message as the other side gets it: encoded, decoded, with its bulk beside it.
fn carried(message: &Message) -> Result<Message, String> {
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
    Ok(Message { bulk, ..decoded })
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
    ) -> Result<Vec<(u64, Message)>, String> {
        let mut arrivals = Vec::new();
        if self.cut.contains(&pair(message.header.from, message.header.to)) {
            report.count("message cut off", 1);
            return Ok(arrivals);
        }
        let mut copies = 1;
        if random.permille(self.weather.drop) {
            report.count("message dropped", 1);
            copies = 0;
        } else if random.permille(self.weather.duplicate) {
            report.count("message duplicated", 1);
            copies = 2;
        }
        for _ in 0..copies {
            let mut after = random.within(5_000, 150_000);
            if random.permille(self.weather.delay) {
                report.count("message delayed", 1);
                after += random.below(3_000_000_000);
            }
            let last = self.last_ns.entry((message.header.from, message.header.to)).or_default();
            report.count("message reordered", u64::from(now_ns + after < *last));
            *last = (*last).max(now_ns + after);
            arrivals.push((after, carried(message)?));
        }
        Ok(arrivals)
    }
}

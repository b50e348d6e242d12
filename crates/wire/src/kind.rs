//! What sort of message a body is: the names of its variants, down to the last enum.
//!
//! For those who count messages by sort. The names come from [`wire_enum!`](crate::wire_enum),
//! so that a variant that is added is a kind of its own without being entered anywhere.

use crate::lock::Callback;
use crate::mdt::{MdtReply, MdtRequest};
use crate::message::{Body, Reply, ReplyBody, Request};
use crate::mgs::{MgsReply, MgsRequest};
use crate::ost::{OstReply, OstRequest};

/// A kind of message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MessageKind {
    /// Differs for each, so that they are told apart without their names.
    number: u32,
    /// `request`, `reply` or `callback`.
    pub side: &'static str,
    /// The kind of target that it is to or from; empty where all have it.
    pub target: &'static str,
    /// The variant. Replies that only say what went wrong are `Error`.
    pub name: &'static str,
}

const REQUEST: &str = "request";
const REPLY: &str = "reply";
const CALLBACK: &str = "callback";
const MDT: &str = "MDT";
const OST: &str = "OST";
const MGS: &str = "MGS";
const ERROR: &str = "Error";
/// No variant's.
const ERROR_TAG: u16 = u16::MAX;

/// Names, and the numbers beside them.
type Variants<'a> = (&'a [&'static str], &'a [u16]);

impl core::fmt::Display for MessageKind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let MessageKind { side, target, name, .. } = self;
        let space = if target.is_empty() { "" } else { " " };
        // By way of a string, so that a width is kept to.
        f.pad(&format!("{side} {target}{space}{name}"))
    }
}

impl MessageKind {
    const fn new(
        side: &'static str,
        target: &'static str,
        (name, tag): (&'static str, u16),
    ) -> MessageKind {
        // The lengths of both tell the groups apart, but for targets, whose last letters do.
        let last = match target.as_bytes() {
            [.., last] => *last,
            [] => 0,
        };
        let group = (side.len() as u32) << 24 | (last as u32) << 16;
        MessageKind { number: group | tag as u32, side, target, name }
    }

    /// All kinds there are.
    pub fn all() -> Vec<MessageKind> {
        let mut all = Vec::new();
        let mut add = |side, target, (names, tags): Variants, inner: &[&str]| {
            let own = names.iter().zip(tags).filter(|(name, _)| !inner.contains(name));
            all.extend(own.map(|(name, tag)| MessageKind::new(side, target, (name, *tag))));
        };
        // What holds another of these enums is no kind itself.
        let inner = ["Mdt", "Ost", "Mgs"];
        add(REQUEST, "", (Request::VARIANTS, Request::TAGS), &inner);
        add(REQUEST, MDT, (MdtRequest::VARIANTS, MdtRequest::TAGS), &[]);
        add(REQUEST, OST, (OstRequest::VARIANTS, OstRequest::TAGS), &[]);
        add(REQUEST, MGS, (MgsRequest::VARIANTS, MgsRequest::TAGS), &[]);
        add(REPLY, "", (&[ERROR], &[ERROR_TAG]), &[]);
        add(REPLY, "", (ReplyBody::VARIANTS, ReplyBody::TAGS), &inner);
        add(REPLY, MDT, (MdtReply::VARIANTS, MdtReply::TAGS), &[]);
        add(REPLY, OST, (OstReply::VARIANTS, OstReply::TAGS), &[]);
        add(REPLY, MGS, (MgsReply::VARIANTS, MgsReply::TAGS), &[]);
        add(CALLBACK, "", (Callback::VARIANTS, Callback::TAGS), &[]);
        all
    }

    const fn request(request: &Request) -> MessageKind {
        let (target, name, tag) = match request {
            Request::Mdt(inner) => (MDT, inner.variant(), inner.tag()),
            Request::Ost(inner) => (OST, inner.variant(), inner.tag()),
            Request::Mgs(inner) => (MGS, inner.variant(), inner.tag()),
            own => ("", own.variant(), own.tag()),
        };
        MessageKind::new(REQUEST, target, (name, tag))
    }

    const fn reply(reply: &Reply) -> MessageKind {
        let (target, name, tag) = match &reply.body {
            ReplyBody::Mdt(inner) => (MDT, inner.variant(), inner.tag()),
            ReplyBody::Ost(inner) => (OST, inner.variant(), inner.tag()),
            ReplyBody::Mgs(inner) => (MGS, inner.variant(), inner.tag()),
            ReplyBody::Empty if reply.error.is_some() => ("", ERROR, ERROR_TAG),
            own => ("", own.variant(), own.tag()),
        };
        MessageKind::new(REPLY, target, (name, tag))
    }
}

impl Body {
    /// What kind of message this is.
    pub const fn kind(&self) -> MessageKind {
        match self {
            Body::Request(request) => MessageKind::request(request),
            Body::Reply(reply) => MessageKind::reply(reply),
            Body::Callback(callback) => {
                MessageKind::new(CALLBACK, "", (callback.variant(), callback.tag()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use sateen_types::Errno;

    use super::*;

    #[test]
    fn every_message_is_of_a_kind_that_is_listed_once() {
        let all = MessageKind::all();
        let each: BTreeSet<_> = all.iter().copied().collect();
        assert_eq!(each.len(), all.len());
        let bodies = [
            (Body::Request(Request::Ping), "request Ping"),
            (Body::Request(Request::Mdt(MdtRequest::GrantSeq)), "request MDT GrantSeq"),
            (Body::Request(Request::Ost(OstRequest::StatFs)), "request OST StatFs"),
            (Body::Request(Request::Mgs(MgsRequest::GetConfig)), "request MGS GetConfig"),
            (Body::Reply(Reply::error(Errno::EIO)), "reply Error"),
            (Body::Reply(Reply::ok(ReplyBody::Empty)), "reply Empty"),
            (Body::Reply(Reply::ok(ReplyBody::Mdt(MdtReply::Done))), "reply MDT Done"),
            (Body::Reply(Reply::ok(ReplyBody::Ost(OstReply::Done))), "reply OST Done"),
            (Body::Callback(Callback::Evicted), "callback Evicted"),
        ];
        for (body, name) in bodies {
            assert_eq!(body.kind().to_string(), name);
            assert!(each.contains(&body.kind()), "{name}");
        }
        let ping = Body::Request(Request::Ping).kind();
        assert_eq!(format!("[{ping:>14}]"), "[  request Ping]");
    }
}

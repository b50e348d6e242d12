//! A request under way: what is kept of it until its answer.

use bytes::BytesMut;
use sateen_types::{Errno, Fid};
use sateen_wire::{
    Body, Bulk, Header, MdtRequest, Message, OstReply, OstRequest, Reply, ReplyBody, Request,
};

use super::{RESEND_MAX_NS, RESEND_NS};

/// What is kept of a request until its answer.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) message: Message,
    /// Length of a reader's buffer, to make another for a resend.
    pub(super) buffer_len: usize,
    pub(super) sent_ns: u64,
    pub(super) resend_after_ns: u64,
    /// The client's stamp when it was sent; see [`crate::locks`].
    pub(super) stamp: u64,
    pub(super) pin: bool,
    /// Nobody waits for the answer: a ping.
    pub(super) unheard: bool,
    /// Whoever asked has not waited for the answer.
    pub(super) left: bool,
    /// It was asked on a connection before this one, and may have been executed there.
    pub(super) asked_before: bool,
    /// It was under way when its MDT crashed, which was not told of what it may have given back.
    pub(super) at_crash: bool,
    /// How often it was sent on this one.
    pub(super) copies: u32,
    /// The target did not know the connection when its only copy came: it was not executed.
    pub(super) refused: bool,
}

impl Pending {
    /// One that nobody waits for, in the slot of what a target that was started again is told.
    pub(super) fn claim(message: Message, now_ns: u64) -> Pending {
        Pending {
            message,
            buffer_len: 0,
            sent_ns: now_ns,
            resend_after_ns: RESEND_NS,
            stamp: 0,
            pin: false,
            unheard: true,
            left: false,
            asked_before: false,
            at_crash: false,
            copies: 1,
            refused: false,
        }
    }

    /// Whether an answer is from the network, which could not deliver it: it is sent again.
    pub(super) fn was_not_delivered(&mut self, reply: &Reply) -> bool {
        let unknown = super::is_unknown(reply);
        match reply.error {
            Some(Errno::ESHUTDOWN | Errno::ENODEV) if unknown => self.resend_after_ns = RESEND_NS,
            Some(Errno::ECONNRESET) if unknown => self.resend_after_ns = 0,
            _ => return false,
        }
        true
    }

    /// Whether it is to be sent again.
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.sent_ns + self.resend_after_ns
    }

    /// Whether it adds a name to a directory.
    pub(super) fn may_add_names(&self, dir: Fid) -> bool {
        let Body::Request(Request::Mdt(request)) = &self.message.body else { return false };
        match request {
            MdtRequest::Create { parent, .. } | MdtRequest::Link { parent, .. } => *parent == dir,
            // An exchange adds one to both.
            MdtRequest::Rename { parent, new_parent, .. }
            | MdtRequest::RenameWhiteout { parent, new_parent, .. } => {
                *parent == dir || *new_parent == dir
            }
            _ => false,
        }
    }

    /// The message once more, at `now_ns`.
    pub(super) fn again(&mut self, now_ns: u64) -> Message {
        self.sent_ns = now_ns;
        self.copies += 1;
        let mut message = self.message.clone();
        if self.buffer_len > 0 {
            message.bulk = Bulk::Buffer(BytesMut::with_capacity(self.buffer_len));
        }
        message
    }

    /// The same, after which the next one comes later.
    pub(super) fn patiently_again(&mut self, now_ns: u64) -> Message {
        self.resend_after_ns = (2 * self.resend_after_ns).clamp(RESEND_NS, RESEND_MAX_NS);
        self.again(now_ns)
    }

    /// The target does not know a connection that something was sent on; if it was this, an earlier
    /// copy may have been executed; if there is none it was not.
    pub(super) fn refused(&mut self, header: &Header) {
        let own = &self.message.header;
        if (own.seq, own.generation) == (header.seq, header.generation) {
            self.refused = self.copies == 1;
        }
    }

    /// The connection that it was sent on is gone, and there is another: it belongs to that. If the
    /// target has `restarted` an earlier run may have executed it, whoever refused it.
    pub(super) fn move_to(&mut self, generation: u32, seq: u64, restarted: bool) {
        self.asked_before |= restarted || !core::mem::take(&mut self.refused);
        self.copies = 0;
        (self.message.header.generation, self.message.header.seq) = (generation, seq);
        self.resend_after_ns = RESEND_NS;
        if let Body::Request(request) = &mut self.message.body {
            without_grant(request);
        }
    }

    pub(super) fn is_goodbye(&self) -> bool {
        matches!(self.message.body, Body::Request(Request::Disconnect))
    }

    /// A write that is refused now, or for which there is only some room, may have been done
    /// before: it did not simply not happen, as the program would conclude from the answer.
    pub(super) fn is_doubtful(&self, reply: &Reply) -> bool {
        let write =
            matches!(self.message.body, Body::Request(Request::Ost(OstRequest::Write { .. })));
        if !self.asked_before || !write {
            return false;
        }
        match (reply.error, &reply.body, &self.message.bulk) {
            (Some(errno), ..) => errno != Errno::EAGAIN,
            (None, ReplyBody::Ost(OstReply::Written { len, .. }), Bulk::Data(data)) => {
                (*len as usize) < data.len()
            }
            _ => false,
        }
    }
}

/// A new connection begins without a grant, and what comes on top of none is others'.
pub(super) fn without_grant(request: &mut Request) {
    if let Request::Ost(OstRequest::Write { grant_used, .. }) = request {
        *grant_used = 0;
    }
}

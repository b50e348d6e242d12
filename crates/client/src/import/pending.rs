//! A request under way: what is kept of it until its answer.

use bytes::BytesMut;
use sateen_types::{Errno, Fid};
use sateen_wire::{
    Body, Bulk, Header, MdtRequest, Message, OstReply, OstRequest, Reply, ReplyBody, Request,
};

use super::{RESEND_MAX_NS, RESEND_NS};

/// A target that has too much to do is asked again after this time: 1 ms.
const BUSY_NS: u64 = 1_000_000;

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

    /// Whether an answer is from the network, which could not deliver it: it is sent again until
    /// the target can be reached.
    pub(super) fn was_not_delivered(&mut self, reply: &Reply) -> bool {
        if !super::answers::is_unknown(reply) {
            return false;
        }
        self.resend_after_ns = match reply.error {
            // Who is not there has forgotten us.
            Some(Errno::ESHUTDOWN | Errno::ENODEV) if self.is_goodbye() => return false,
            Some(Errno::ESHUTDOWN | Errno::ENODEV) => RESEND_NS,
            // It may have arrived, but the answer cannot any more. Whoever has not heard a goodbye
            // keeps our locks from others until it evicts us.
            Some(Errno::ECONNRESET) => 0,
            _ => return false,
        };
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

    /// Whether it removes a name of a directory.
    pub(super) fn removes_from(&self, dir: Fid) -> bool {
        matches!(&self.message.body, Body::Request(Request::Mdt(MdtRequest::Unlink { parent, .. }))
            if *parent == dir)
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

    /// It would be done twice, and may have been done on a connection before this one.
    pub(super) fn must_not_be_repeated(&self) -> bool {
        let append =
            matches!(self.message.body, Body::Request(Request::Ost(OstRequest::Append { .. })));
        append && self.asked_before
    }

    /// Nobody wants to hear what becomes of it, but its slot has to go on counting.
    pub(super) fn ask_something_harmless(&mut self) {
        self.message.body = Body::Request(Request::Ping);
        self.message.bulk = Bulk::None;
        self.buffer_len = 0;
        self.unheard = true;
    }

    pub(super) fn is_goodbye(&self) -> bool {
        matches!(self.message.body, Body::Request(Request::Disconnect))
    }

    /// Whether it is a write that may have been done on a connection before this one.
    fn may_be_written(&self) -> bool {
        let write = matches!(
            self.message.body,
            Body::Request(Request::Ost(OstRequest::Write { .. } | OstRequest::WriteMany { .. }))
        );
        write && self.asked_before
    }

    /// Whether the target has too much to do for a write that may have been done before. Whoever asked for
    /// it would begin another, of which nobody knows that: so it is due again itself soon, as the next of
    /// its slot, whose answer to this one is no other.
    pub(super) fn comes_again(&mut self, reply: &Reply, now_ns: u64) -> bool {
        let again = reply.error == Some(Errno::EAGAIN) && self.may_be_written();
        if again {
            self.message.header.seq += 1;
            (self.copies, self.sent_ns, self.resend_after_ns) = (0, now_ns, BUSY_NS);
        }
        again
    }

    /// A write that is refused now, or for which there is only some room, may have been done
    /// before: it did not simply not happen, as the program would conclude from the answer.
    pub(super) fn is_doubtful(&self, reply: &Reply) -> bool {
        if !self.may_be_written() {
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
    if let Request::Ost(
        OstRequest::Write { grant_used, .. }
        | OstRequest::WriteMany { grant_used, .. }
        | OstRequest::Append { grant_used, .. },
    ) = request
    {
        *grant_used = 0;
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sateen_types::{ClientId, Endpoint, ObjectId};

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn header(seq: u64, generation: u32) -> Header {
        let client = ClientId(1);
        let between = Header::between(Endpoint::Client(client), Endpoint::Ost(0), client);
        Header { seq, generation, ..between }
    }

    fn request(request: Request) -> Pending {
        let (body, bulk) = (Body::Request(request), Bulk::None);
        Pending::claim(Message { header: header(4, 7), body, bulk }, 10)
    }

    /// A write of ten bytes.
    fn write() -> Pending {
        let object = ObjectId { fid: Fid::ROOT, stripe: 0 };
        let write = OstRequest::Write { object, layout_gen: 1, offset: 0, grant_used: 9 };
        let mut pending = request(Request::Ost(write));
        pending.message.bulk = Bulk::Data(Bytes::from_static(&[7; 10]));
        pending
    }

    fn written(len: u32) -> Reply {
        let body = OstReply::Written { len, boot_epoch: 5, granted: 0 };
        Reply::ok(ReplyBody::Ost(body))
    }

    #[test]
    fn what_is_not_answered_is_due_later_each_time() {
        let mut pending = request(Request::Ping);
        let mut sent_ns = 10;
        for seconds in [1, 2, 4, 4] {
            let due_ns = sent_ns + seconds * SECOND_NS;
            assert!(!pending.is_due(due_ns - 1) && pending.is_due(due_ns), "{seconds} s");
            pending.patiently_again(due_ns);
            sent_ns = due_ns;
        }
        assert_eq!(pending.copies, 5);
    }

    #[test]
    fn what_the_network_could_not_deliver_is_asked_again_soon_and_no_answer_else() {
        let mut pending = request(Request::Ping);
        pending.patiently_again(10);
        for (errno, after_ns) in
            [(Errno::ESHUTDOWN, RESEND_NS), (Errno::ECONNRESET, 0), (Errno::ENODEV, RESEND_NS)]
        {
            assert!(pending.was_not_delivered(&Reply::error(errno)));
            assert_eq!(pending.resend_after_ns, after_ns, "{errno:?}");
            // A target that says so has been reached: it tells of itself at the same time.
            for known in [
                Reply { last_committed: 3, ..Reply::error(errno) },
                Reply { transno: 3, ..Reply::error(errno) },
                Reply { body: written(1).body, ..Reply::error(errno) },
            ] {
                pending.resend_after_ns = 77;
                assert!(!pending.was_not_delivered(&known), "{known:?}");
                assert_eq!(pending.resend_after_ns, 77);
            }
        }
        assert!(!pending.was_not_delivered(&Reply::error(Errno::ENOENT)));
        assert!(!pending.was_not_delivered(&Reply::ok(ReplyBody::Empty)));
    }

    #[test]
    fn a_reader_gets_a_buffer_with_each_copy() {
        let mut reads = request(Request::Ping);
        reads.buffer_len = 4096;
        let again = reads.again(20);
        let Bulk::Buffer(buffer) = &again.bulk else { panic!("{:?}", again.bulk) };
        assert!(buffer.capacity() >= 4096);
        let again = write().again(20);
        assert!(matches!(&again.bulk, Bulk::Data(data) if data.len() == 10), "{:?}", again.bulk);
    }

    #[test]
    fn on_another_connection_it_has_no_grant_and_may_have_been_done_before() {
        let mut pending = write();
        pending.patiently_again(10);
        pending.patiently_again(10);
        pending.move_to(8, 1, false);
        let again = pending.again(20);
        assert_eq!((again.header.generation, again.header.seq), (8, 1));
        let Body::Request(Request::Ost(OstRequest::Write { grant_used, .. })) = again.body else {
            panic!("{again:?}")
        };
        assert_eq!((grant_used, pending.copies, pending.resend_after_ns), (0, 1, RESEND_NS));
        assert!(pending.asked_before);
    }

    #[test]
    fn one_whose_only_copy_was_refused_was_not_done_unless_the_target_has_restarted() {
        let moved = |copies: u32, refused: Header, restarted: bool| {
            let mut pending = write();
            (1..copies).for_each(|_| drop(pending.again(20)));
            pending.refused(&refused);
            pending.move_to(8, 1, restarted);
            pending.asked_before
        };
        assert!(!moved(1, header(4, 7), false));
        assert!(moved(2, header(4, 7), false), "an earlier copy");
        assert!(moved(1, header(5, 7), false) && moved(1, header(4, 6), false), "another's");
        assert!(moved(1, header(4, 7), true), "a run before that");
        let mut pending = write();
        pending.move_to(8, 1, false);
        pending.again(20);
        pending.refused(&header(1, 8));
        pending.move_to(9, 1, false);
        assert!(pending.asked_before, "on the first connection");
    }

    #[test]
    fn an_append_is_repeated_only_if_it_was_not_done_for_sure() {
        let object = ObjectId { fid: Fid::ROOT, stripe: 0 };
        let append = OstRequest::Append { object, layout_gen: 1, grant_used: 9 };
        let moved = |refused: bool, restarted: bool| {
            let mut pending = request(Request::Ost(append.clone()));
            assert!(!pending.must_not_be_repeated());
            if refused {
                pending.refused(&header(4, 7));
            }
            pending.move_to(8, 1, restarted);
            let Body::Request(Request::Ost(OstRequest::Append { grant_used: 0, .. })) =
                pending.message.body
            else {
                panic!("{pending:?}")
            };
            pending.must_not_be_repeated()
        };
        assert!(!moved(true, false));
        assert!(moved(true, true) && moved(false, false) && moved(false, true));
        let mut write = write();
        write.move_to(8, 1, true);
        assert!(!write.must_not_be_repeated());
    }

    #[test]
    fn a_write_that_is_refused_or_short_the_second_time_is_doubtful() {
        let mut pending = write();
        let no_room = Reply::error(Errno::ENOSPC);
        assert!(!pending.is_doubtful(&no_room) && !pending.is_doubtful(&written(3)), "the first");
        pending.move_to(8, 1, false);
        assert!(pending.is_doubtful(&no_room) && pending.is_doubtful(&written(9)));
        assert!(!pending.is_doubtful(&written(10)));
        let busy = Reply::error(Errno::EAGAIN);
        assert!(!pending.is_doubtful(&busy), "asked again");
        assert!(pending.comes_again(&busy, 20) && !pending.comes_again(&no_room, 20));
        assert_eq!((pending.message.header.generation, pending.message.header.seq), (8, 2));
        assert!(!pending.is_due(19 + BUSY_NS) && pending.is_due(20 + BUSY_NS));
        assert!(pending.is_doubtful(&no_room), "it may have been done all the same");
        assert!(!write().comes_again(&busy, 20), "who asked knows as much");
        let mut ping = request(Request::Ping);
        ping.move_to(8, 1, true);
        assert!(!ping.is_doubtful(&no_room), "nothing is lost by it");
        assert!(!ping.is_goodbye() && request(Request::Disconnect).is_goodbye());
    }
}

//! Tells the MGS which targets there are, as targets on other hosts would do themselves.

use std::sync::mpsc::{Receiver as Inbox, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sateen_reactor::{Reactor, Receiver};
use sateen_types::{ClientId, Endpoint, Errno, Nid};
use sateen_wire::{
    Body, Bulk, FEATURES, Header, Message, MgsRequest, Reply, ReplyBody, Request, TargetInfo,
};

use crate::refusal::{Outcome, Refusal};
use crate::targets::Target;

/// How long the MGS may take for one answer; its disk may be busy.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Takes the answers.
struct Answers(Mutex<Sender<Reply>>);

impl Receiver for Answers {
    fn receive(self: Arc<Self>, message: Message) {
        if let Body::Reply(reply) = message.body {
            // Nobody listens any more only after a timeout, which was reported.
            let _ = self.0.lock().unwrap_or_else(PoisonError::into_inner).send(reply);
        }
    }
}

/// A connection to the MGS, with one request at a time.
struct Connection<'a> {
    reactor: &'a Reactor,
    header: Header,
    answers: Inbox<Reply>,
}

impl Connection<'_> {
    fn ask(&mut self, request: Request) -> Outcome<Reply> {
        self.header.seq += 1;
        let body = Body::Request(request);
        self.reactor.router.send(Message { header: self.header, body, bulk: Bulk::None });
        self.answers.recv_timeout(ANSWER_TIMEOUT).map_err(|_| {
            Refusal::new("the MGS does not answer", "look at the disk: it may be hanging")
        })
    }
}

/// Registers the targets.
pub(crate) fn register(reactor: &Reactor, targets: &[Target]) -> Outcome<()> {
    let client = ClientId(sateen_reactor::random());
    let me = Endpoint::Client(client);
    let (sender, answers) = channel();
    reactor.router.add(me, Arc::new(Answers(Mutex::new(sender))));
    let header = Header::between(me, Endpoint::Mgs, client);
    let mut connection = Connection { reactor, header, answers };
    let registered = register_all(&mut connection, targets);
    reactor.router.remove(me);
    registered
}

fn register_all(connection: &mut Connection<'_>, targets: &[Target]) -> Outcome<()> {
    let connected = connection.ask(Request::Connect { features: FEATURES })?;
    let ReplyBody::Connected { generation, .. } = connected.body else {
        return Err(Refusal::new("the MGS refused to talk", "look at the log"));
    };
    connection.header.generation = generation;
    connection.header.seq = 0;
    for target in targets.iter().filter(|target| target.label.target != Endpoint::Mgs) {
        let info = TargetInfo { target: target.label.target, nid: Nid::Lo, inactive: false };
        let uuid = target.label.uuid;
        let reply = connection.ask(Request::Mgs(MgsRequest::Register { info, uuid }))?;
        match reply.error {
            None => {}
            Some(Errno::EEXIST) => {
                return Err(Refusal::new(
                    format!("{} is not the target that this file system knows", info.target),
                    format!("bring back the folder that was {} before", target.path.display()),
                ));
            }
            Some(errno) => {
                return Err(Refusal::new(
                    format!("the MGS refused {}: {errno}", info.target),
                    "look at the log",
                ));
            }
        }
    }
    connection.ask(Request::Disconnect)?;
    Ok(())
}

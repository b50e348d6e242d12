//! The MGS's client: who it is, registering targets, and the configuration as it changes.
//!
//! One request at a time, sent again until it is answered, over any number of connections: an
//! MGS that is not there yet, or not any more, is waited for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver as Inbox, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use sateen_mgs::FileSystem;
use sateen_reactor::{Reactor, Receiver};
use sateen_target::COMPAT_REPLACES;
use sateen_types::{ClientId, Endpoint, Errno, Name, Nid, Nids};
use sateen_wire::{
    Body, Bulk, FEATURES, Header, Message, MgsReply, MgsRequest, ParamInfo, Reply, ReplyBody,
    Request, TargetInfo,
};

use super::network::{Network, why_silent};
use crate::notify;
use crate::refusal::{Outcome, Refusal};
use crate::targets::Target;

/// A request without an answer is sent again after this.
const RESEND: Duration = Duration::from_secs(1);
/// One that waits for something to happen, after this: a connection that breaks is told of, and
/// many thousand clients wait. A third of what the MGS takes for a client that is lost.
const RESEND_WAIT: Duration = Duration::from_secs(20);
/// So often in a row somebody says nothing when asked to connect before another NID is tried.
const SILENCES_MAX: u32 = 2;
/// For so long an MGS is asked that is refused outright, or is something else: its server may be
/// starting.
const REFUSED_PATIENCE: Duration = Duration::from_secs(3);
/// How long to wait before asking an MGS again that could not be reached.
const PAUSE: Duration = Duration::from_millis(200);
/// How often to say that the MGS does not answer.
const COMPLAIN: Duration = Duration::from_secs(60);

/// Takes the answers.
struct Answers(Mutex<Sender<(Header, Reply)>>);

impl Receiver for Answers {
    fn receive(self: Arc<Self>, message: Message) {
        if let Body::Reply(reply) = message.body {
            let sender = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Nobody listens any more only after a timeout, which was reported.
            let _ = sender.send((message.header, reply));
        }
    }
}

/// Has an [`Mgc`] that waits for something to happen look at its [`Stop`].
pub(super) struct Waker {
    answers: Sender<(Header, Reply)>,
    me: Header,
}

impl Waker {
    /// Wakes it, if it is still there.
    pub(super) fn wake(&self) {
        // To no request of its: of generation 0 there are only attempts to connect, from 1 on.
        let nothing = Header { generation: 0, seq: 0, ..self.me };
        let _ = self.answers.send((nothing, Reply::error(Errno::EINTR)));
    }
}

fn nonsense() -> Refusal {
    Refusal::new("the MGS speaks nonsense", "update it")
}

/// Tells an [`Mgc`] that waits that it shall not.
pub(crate) type Stop = Arc<AtomicBool>;

/// A client of the MGS.
pub(crate) struct Mgc {
    reactor: Arc<Reactor>,
    /// Where the MGS is; nowhere, if it is in this process.
    nids: Vec<Nid>,
    /// What has these NIDs, and may be told to try another.
    network: Weak<Network>,
    /// How often in a row nothing was said to a connect.
    silences: u32,
    /// Nothing was said to something of what is being asked.
    heard_nothing: bool,
    header: Header,
    /// The run of the MGS that the requests are counted for.
    boot_epoch: u64,
    attempt: u64,
    /// At its address is the MGS of another file system.
    foreign: bool,
    /// The MGS speaks another version of the protocol.
    other_version: bool,
    answers: Inbox<(Header, Reply)>,
    /// Where answers are put.
    answered: Sender<(Header, Reply)>,
    stop: Stop,
    /// What the service manager shows of the server that this is of.
    doing: Option<String>,
}

/// A configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Config {
    pub version: u64,
    pub targets: Vec<TargetInfo>,
}

/// How one attempt at a request ended.
enum Attempt {
    Answered(Box<Reply>),
    /// Nobody is there, or it does not know us: to be tried from the start.
    Nobody,
    /// Somebody is there, but no MGS.
    Another,
    Silence,
}

/// Whether a request is answered only when something happens.
fn is_wait(request: &Request) -> bool {
    matches!(request, Request::Mgs(MgsRequest::WaitConfig { .. }))
}

impl Mgc {
    /// One that is not connected yet. `stop` ends every waiting.
    pub(crate) fn new(reactor: &Arc<Reactor>, nids: Vec<Nid>, stop: Stop) -> Mgc {
        let client = ClientId(sateen_reactor::random());
        let me = Endpoint::Client(client);
        let (sender, answers) = channel();
        reactor.router.add(me, Arc::new(Answers(Mutex::new(sender.clone()))));
        let header = Header::between(me, Endpoint::Mgs, client);
        Mgc {
            reactor: reactor.clone(),
            nids,
            network: Weak::new(),
            silences: 0,
            heard_nothing: false,
            header,
            boot_epoch: 0,
            attempt: 0,
            foreign: false,
            other_version: false,
            answers,
            answered: sender,
            stop,
            doing: None,
        }
    }

    /// Over this network it reaches its NIDs, of which each may be the MGS's.
    pub(super) fn over(mut self, network: &Arc<Network>) -> Mgc {
        self.network = Arc::downgrade(network);
        self
    }

    /// From now on the service manager is told what its server does, and while the MGS does not
    /// answer also that.
    pub(super) fn tell(&mut self, doing: String) {
        notify::tell(&format!("STATUS={doing}"));
        self.doing = Some(doing);
    }

    /// Says that the MGS is waited for.
    fn complain(&self) {
        let why = self.why_silent();
        tracing::warn!(
            "the MGS does not answer, waiting for it ({why}): see whether its server runs \
             (sateen serve) and listens on that NID"
        );
        if let Some(doing) = &self.doing {
            // A line is all there is room for.
            let why = why.replace('\n', " ");
            notify::tell(&format!("STATUS={doing}; the MGS does not answer, waiting ({why})"));
        }
    }

    /// What wakes it when it shall stop.
    pub(super) fn waker(&self) -> Waker {
        Waker { answers: self.answered.clone(), me: self.header }
    }

    /// Who it is to the MGS.
    pub(super) fn id(&self) -> ClientId {
        self.header.client
    }

    /// Sends one message and waits for its answer, a while.
    fn once(&self, header: Header, request: Request) -> Attempt {
        let waits = is_wait(&request);
        let body = Body::Request(request);
        self.reactor.router.send(Message { header, body, bulk: Bulk::None });
        let until = Instant::now() + if waits { RESEND_WAIT } else { RESEND };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.answers.recv_timeout(left) {
                Ok((answer, reply)) => {
                    if (answer.generation, answer.seq) != (header.generation, header.seq) {
                        if waits && self.stop.load(Ordering::Relaxed) {
                            return Attempt::Silence;
                        }
                        continue;
                    }
                    return match reply.error {
                        Some(Errno::ESHUTDOWN | Errno::ECONNRESET | Errno::ESTALE) => {
                            Attempt::Nobody
                        }
                        Some(Errno::ENODEV) => Attempt::Another,
                        _ => Attempt::Answered(Box::new(reply)),
                    };
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Attempt::Silence;
                }
            }
        }
    }

    fn connect(&mut self) -> bool {
        self.attempt += 1;
        self.header.generation = 0;
        let header = Header { seq: self.attempt, ..self.header };
        let attempt = self.once(header, Request::Connect { features: FEATURES });
        let is_silent = matches!(attempt, Attempt::Silence);
        self.heard_nothing |= is_silent;
        self.silences = if is_silent { self.silences + 1 } else { 0 };
        let reply = match attempt {
            Attempt::Answered(reply) => reply,
            // The network goes on to the next by itself.
            Attempt::Nobody => return false,
            Attempt::Silence if self.silences < SILENCES_MAX => return false,
            Attempt::Another | Attempt::Silence => {
                self.try_next();
                return false;
            }
        };
        self.foreign = reply.error == Some(Errno::EXDEV);
        self.other_version = reply.error == Some(Errno::EPROTONOSUPPORT);
        let ReplyBody::Connected { generation, boot_epoch, .. } = reply.body else {
            self.try_next();
            return false;
        };
        self.header.generation = generation;
        // The same run of the MGS goes on counting our requests.
        if self.boot_epoch != boot_epoch {
            (self.boot_epoch, self.header.seq) = (boot_epoch, 0);
        }
        true
    }

    fn try_next(&mut self) {
        self.silences = 0;
        if let Some(network) = self.network.upgrade() {
            network.try_next(Endpoint::Mgs);
        }
    }

    /// Asks until there is an answer, `patience` is over, or it is told to stop. Who waits for
    /// something to happen has no reason to complain.
    fn ask(&mut self, request: &Request, patience: Option<Duration>) -> Outcome<Reply> {
        let begun = Instant::now();
        self.heard_nothing = false;
        let mut complained: Option<Instant> = None;
        let mut sent = false;
        let waits = is_wait(request);
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Refusal::told_to_end());
            }
            if self.header.generation == 0 && !self.connect() {
                if self.is_over(begun, patience) || patience.is_some() && self.other_version {
                    return Err(self.silent());
                }
                if complained.is_none_or(|at| at.elapsed() >= COMPLAIN) {
                    complained = Some(Instant::now());
                    self.complain();
                }
                std::thread::sleep(PAUSE);
                continue;
            }
            if complained.take().is_some() {
                tracing::info!("the MGS answers");
                if let Some(doing) = &self.doing {
                    notify::tell(&format!("STATUS={doing}"));
                }
            }
            // Another run of the MGS counts from the start. The same one may not have got it, and
            // waits for this number.
            if !sent || self.header.seq == 0 {
                self.header.seq += 1;
                sent = true;
            }
            match self.once(self.header, request.clone()) {
                Attempt::Answered(reply) if reply.error == Some(Errno::EAGAIN) => {
                    // It was not executed.
                    sent = false;
                    if self.is_over(begun, patience) {
                        return Err(Refusal::new(
                            "the MGS has too much to do",
                            "try again in a while",
                        ));
                    }
                    std::thread::sleep(PAUSE);
                }
                Attempt::Answered(reply) => return Ok(*reply),
                Attempt::Nobody | Attempt::Another => {
                    self.header.generation = 0;
                    if self.is_over(begun, patience) {
                        return Err(self.silent());
                    }
                    std::thread::sleep(PAUSE);
                }
                Attempt::Silence if waits => {}
                Attempt::Silence => {
                    self.heard_nothing = true;
                    if self.is_over(begun, patience) {
                        return Err(self.silent());
                    }
                }
            }
        }
    }

    /// Whether what began then has been asked for long enough.
    fn is_over(&self, begun: Instant, patience: Option<Duration>) -> bool {
        let Some(patience) = patience else { return false };
        let enough = match (self.nids.len() as u32, self.heard_nothing) {
            (0, _) => patience,
            (_, false) => patience.min(REFUSED_PATIENCE),
            // Each of its NIDs gets its turn.
            (nids, true) => patience.max(RESEND * SILENCES_MAX * nids),
        };
        begun.elapsed() >= enough
    }

    fn why_silent(&self) -> String {
        if self.foreign {
            return "at its address is the MGS of another file system".to_owned();
        }
        why_silent(&self.nids, "an MGS")
    }

    fn silent(&self) -> Refusal {
        if self.nids.is_empty() {
            return Refusal::new("the MGS does not answer", "look at the disk: it may be hanging");
        }
        Refusal::new(
            format!("the MGS does not answer ({})", self.why_silent()),
            "see whether its server runs (sateen serve) and listens on that NID",
        )
        .that_may_pass()
    }

    fn mgs(&mut self, request: MgsRequest, patience: Option<Duration>) -> Outcome<MgsReply> {
        let reply = self.ask(&Request::Mgs(request), patience)?;
        match (reply.error, reply.body) {
            (None, ReplyBody::Mgs(reply)) => Ok(reply),
            (error, _) => {
                let error = error.unwrap_or(Errno::EPROTO);
                Err(Refusal::new(format!("the MGS refused: {error}"), "look at its log"))
            }
        }
    }

    /// Which file system the MGS manages.
    pub(crate) fn file_system(&mut self, patience: Option<Duration>) -> Outcome<FileSystem> {
        match self.mgs(MgsRequest::GetFileSystem, patience)? {
            MgsReply::FileSystem { fsname, uuid, hash_key } => {
                // Another one at the same address is not believed from now on.
                self.header.file_system = uuid;
                Ok(FileSystem { fsname, uuid, hash_key })
            }
            MgsReply::Config { .. } | MgsReply::Params { .. } => Err(nonsense()),
        }
    }

    fn config_of(reply: MgsReply) -> Outcome<Config> {
        match reply {
            MgsReply::Config { version, targets } => Ok(Config { version, targets }),
            MgsReply::FileSystem { .. } | MgsReply::Params { .. } => Err(nonsense()),
        }
    }

    /// The configuration, now.
    pub(crate) fn config(&mut self, patience: Option<Duration>) -> Outcome<Config> {
        Mgc::config_of(self.mgs(MgsRequest::GetConfig, patience)?)
    }

    /// The parameters that were set for good.
    pub(crate) fn params(&mut self, patience: Option<Duration>) -> Outcome<Vec<ParamInfo>> {
        match self.mgs(MgsRequest::GetParams, patience)? {
            MgsReply::Params { params, .. } => Ok(params),
            MgsReply::FileSystem { .. } | MgsReply::Config { .. } => Err(nonsense()),
        }
    }

    /// Sets a parameter for good, or no more. Returns all there are then.
    pub(crate) fn set_param(
        &mut self,
        name: Name,
        value: Option<Name>,
        patience: Duration,
    ) -> Outcome<Vec<ParamInfo>> {
        let request = Request::Mgs(MgsRequest::SetParam { name, value });
        let reply = self.ask(&request, Some(patience))?;
        match (reply.error, reply.body) {
            (None, ReplyBody::Empty) => self.params(Some(patience)),
            (Some(Errno::ENOSPC), _) => Err(Refusal::new(
                "the MGS keeps as many parameters as it can",
                "take some back with lctl set_param -P -d NAME",
            )),
            (error, _) => {
                let error = error.unwrap_or(Errno::EPROTO);
                Err(Refusal::new(format!("the MGS refused: {error}"), "look at its log"))
            }
        }
    }

    /// The configuration once it is newer than this; only a stop ends the waiting.
    pub(crate) fn newer(&mut self, version: u64) -> Outcome<Config> {
        Mgc::config_of(self.mgs(MgsRequest::WaitConfig { version }, None)?)
    }

    /// Registers targets, which are reached at `nids`.
    pub(crate) fn register(
        &mut self,
        targets: &[Target],
        nids: Nids,
        patience: Option<Duration>,
    ) -> Outcome<()> {
        for target in targets.iter().filter(|target| target.label.target != Endpoint::Mgs) {
            let info = TargetInfo { target: target.label.target, nids, inactive: false };
            let uuid = target.label.uuid;
            let replaces = target.label.compat & COMPAT_REPLACES != 0;
            let request = Request::Mgs(match replaces {
                true => MgsRequest::Replace { info, uuid },
                false => MgsRequest::Register { info, uuid },
            });
            match self.ask(&request, patience)?.error {
                None => {}
                Some(Errno::EEXIST) => {
                    return Err(Refusal::new(
                        format!("{} is not the target that this file system knows", info.target),
                        format!(
                            "bring back the folder that was {} before, or make this one with \
                             another --index{}",
                            target.path.display(),
                            match info.target {
                                Endpoint::Ost(_) => {
                                    "; if the one before is lost for good, make this one with \
                                     --replace"
                                }
                                _ => "",
                            }
                        ),
                    )
                    .that_lasts());
                }
                Some(errno) => {
                    return Err(Refusal::new(
                        format!("the MGS refused {}: {errno}", info.target),
                        "look at its log",
                    ));
                }
            }
        }
        Ok(())
    }

    /// Says goodbye, if there is anybody to hear it.
    pub(crate) fn leave(mut self) {
        if self.header.generation != 0 {
            self.header.seq += 1;
            // An MGS that is gone has forgotten us already.
            let _ = self.once(self.header, Request::Disconnect);
        }
    }
}

impl Drop for Mgc {
    fn drop(&mut self) {
        self.reactor.router.remove(self.header.from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_dir::DataDir;
    use crate::node::Node;
    use crate::targets;
    use crate::testing::Scratch;

    /// For an answer that comes, however slow the machine.
    const PATIENCE: Option<Duration> = Some(Duration::from_secs(120));

    #[test]
    fn a_second_connection_to_the_same_run_goes_on_counting() {
        let scratch = Scratch::new("mgc");
        let data = DataDir::at(&scratch.path().join("data")).unwrap();
        let _lock = data.open().unwrap();
        let targets = targets::open_or_make(&data, Some(1), Some(1)).unwrap();
        let node = Node::embedded(&targets).unwrap();
        let mut mgc = Mgc::new(&node.reactor, Vec::new(), Stop::default());
        let before = mgc.config(PATIENCE).unwrap();
        assert_eq!(before.targets.len(), 2);
        // As when the network broke it.
        mgc.header.generation = 0;
        assert_eq!(mgc.config(PATIENCE).unwrap().version, before.version);
        mgc.leave();
        node.close().unwrap();
    }

    /// An MGS that the first request does not reach.
    struct Unreached {
        reactor: Arc<Reactor>,
        asked: Mutex<Vec<u64>>,
    }

    impl Receiver for Unreached {
        fn receive(self: Arc<Self>, message: Message) {
            let mut asked = self.asked.lock().unwrap();
            let reply = match message.body {
                Body::Request(Request::Connect { features, .. }) => {
                    let generation = message.header.seq as u32;
                    Reply::ok(ReplyBody::Connected {
                        features,
                        boot_epoch: 4,
                        generation,
                        follows: 0,
                        durable: 0,
                    })
                }
                _ => {
                    asked.push(message.header.seq);
                    let told = MgsReply::Config { version: 3, targets: Vec::new() };
                    match asked.len() {
                        1 => Reply::error(Errno::ESHUTDOWN),
                        _ => Reply::ok(ReplyBody::Mgs(told)),
                    }
                }
            };
            let answer = Message::reply_to(&message.header, reply, Bulk::None);
            self.reactor.router.send(answer);
        }
    }

    /// An MGS that was restarted: to a connect its earlier run answers as well, and later.
    struct Restarted {
        reactor: Arc<Reactor>,
        asked: Mutex<Vec<(u32, u64)>>,
    }

    impl Receiver for Restarted {
        fn receive(self: Arc<Self>, message: Message) {
            let header = message.header;
            let answer = |reply| {
                self.reactor.router.send(Message::reply_to(&header, reply, Bulk::None));
            };
            match message.body {
                Body::Request(Request::Connect { features, .. }) => {
                    for (boot_epoch, generation) in [(4, 40), (3, 30)] {
                        let body = ReplyBody::Connected {
                            features,
                            boot_epoch,
                            generation,
                            follows: 0,
                            durable: 0,
                        };
                        answer(Reply::ok(body));
                    }
                }
                _ => {
                    self.asked.lock().unwrap().push((header.generation, header.seq));
                    let told = MgsReply::Config { version: 3, targets: Vec::new() };
                    answer(Reply::ok(ReplyBody::Mgs(told)));
                }
            }
        }
    }

    /// An MGS that always has too much to do.
    struct Busy(Arc<Reactor>);

    impl Receiver for Busy {
        fn receive(self: Arc<Self>, message: Message) {
            let reply = match message.body {
                Body::Request(Request::Connect { features }) => Reply::ok(ReplyBody::Connected {
                    features,
                    boot_epoch: 4,
                    generation: 1,
                    follows: 0,
                    durable: 0,
                }),
                _ => Reply::error(Errno::EAGAIN),
            };
            self.0.router.send(Message::reply_to(&message.header, reply, Bulk::None));
        }
    }

    #[test]
    fn an_mgs_with_too_much_to_do_is_not_asked_for_ever() {
        let reactor = Arc::new(Reactor::default());
        reactor.router.add(Endpoint::Mgs, Arc::new(Busy(reactor.clone())));
        let mut mgc = Mgc::new(&reactor, Vec::new(), Stop::default());
        let refused = mgc.config(Some(Duration::ZERO)).unwrap_err();
        assert_eq!(refused.what, "the MGS has too much to do");
    }

    #[test]
    fn an_answer_to_a_connect_is_believed_once() {
        let reactor = Arc::new(Reactor::default());
        let mgs = Arc::new(Restarted { reactor: reactor.clone(), asked: Mutex::default() });
        reactor.router.add(Endpoint::Mgs, mgs.clone());
        let mut mgc = Mgc::new(&reactor, Vec::new(), Stop::default());
        for _ in 0..2 {
            assert_eq!(mgc.config(PATIENCE).unwrap().version, 3);
        }
        assert_eq!(*mgs.asked.lock().unwrap(), [(40, 1), (40, 2)]);
    }

    #[test]
    fn what_did_not_arrive_is_sent_again_under_its_number() {
        let reactor = Arc::new(Reactor::default());
        let mgs = Arc::new(Unreached { reactor: reactor.clone(), asked: Mutex::default() });
        reactor.router.add(Endpoint::Mgs, mgs.clone());
        let mut mgc = Mgc::new(&reactor, Vec::new(), Stop::default());
        assert_eq!(mgc.config(PATIENCE).unwrap().version, 3);
        // The run that was connected to before waits for this number and no other.
        assert_eq!(*mgs.asked.lock().unwrap(), [1, 1]);
    }
}

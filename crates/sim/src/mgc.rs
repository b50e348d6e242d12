//! The client of the MGS in the process of a target: it registers the target, and then waits
//! for every newer configuration, for as long as the process lives.
//!
//! It says on the network what the one of the servers' processes says, which stands in
//! threads and sockets of its own (`sateen`); here it is a state machine. Asked in this order:
//! `Connect`, `GetFileSystem`, `Register` or `Replace`, and `GetParams` and `WaitConfig` again and again.
//! Before it waits an administrator may set or take back the target's parameter.

use sateen_types::{ClientId, Endpoint, Errno, Name};
use sateen_wire::{
    Body, Bulk, FEATURES, FsName, Header, Message, MgsReply, MgsRequest, ParamInfo, Reply,
    ReplyBody, Request, TargetInfo,
};

/// What is not answered is asked again after this: 1 s.
const RESEND_NS: u64 = 1_000_000_000;
/// Most attempts of one process.
const ATTEMPTS_MAX: u64 = 1 << 20;
/// The id of the file system.
pub(crate) const UUID: u64 = 0x5a7e;

/// The name of the file system.
pub(crate) fn fsname() -> FsName {
    FsName::new("sim").unwrap_or_default()
}

/// The parameter of one target, which nobody else sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    /// What the MGS may have: the last value that was answered, and those under way since.
    possible: Vec<Option<Name>>,
    /// Values are numbers, each used once.
    next: u64,
}

impl Default for Setting {
    fn default() -> Setting {
        Setting { possible: vec![None], next: 1 }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Mgc {
    me: Endpoint,
    /// Who it is to the MGS: another in each process.
    id: ClientId,
    info: TargetInfo,
    /// Attempts to connect, of all processes of the target: what an earlier one has sent, and
    /// comes late, must not count any more.
    attempts: u64,
    generation: u32,
    boot_epoch: u64,
    /// Sequence of the last request in the one slot.
    seq: u64,
    asked: Request,
    sent_ns: u64,
    is_registered: bool,
    /// Version of the configuration that it has.
    version: u64,
    setting: Setting,
}

impl Mgc {
    /// Of a process that starts; with the message that it begins with.
    pub(crate) fn new(
        me: Endpoint,
        id: ClientId,
        (info, boots): (TargetInfo, u64),
        setting: Setting,
        now_ns: u64,
    ) -> (Mgc, Message) {
        let mut mgc = Mgc {
            me,
            id,
            info,
            attempts: boots * ATTEMPTS_MAX,
            generation: 0,
            boot_epoch: 0,
            seq: 0,
            asked: Request::Ping,
            sent_ns: 0,
            is_registered: false,
            version: 0,
            setting,
        };
        let connect = mgc.connect(now_ns);
        (mgc, connect)
    }

    /// Whether its target is registered, and it knows the configuration of this version.
    pub(crate) fn knows(&self, version: u64) -> bool {
        self.is_registered && self.version == version
    }

    /// What the next process of the target goes by.
    pub(crate) fn into_setting(self) -> Setting {
        self.setting
    }

    fn connect(&mut self, now_ns: u64) -> Message {
        self.attempts += 1;
        self.generation = 0;
        self.asked = Request::Connect { features: FEATURES };
        self.again(now_ns)
    }

    fn ask(&mut self, request: MgsRequest, now_ns: u64) -> Message {
        self.seq += 1;
        self.asked = Request::Mgs(request);
        self.again(now_ns)
    }

    fn again(&mut self, now_ns: u64) -> Message {
        self.sent_ns = now_ns;
        let header = Header::between(self.me, Endpoint::Mgs, self.id);
        let (generation, seq) = self.expected();
        let header = Header { generation, seq, ..header };
        Message { header, body: Body::Request(self.asked.clone()), bulk: Bulk::None }
    }

    /// Generation and sequence of the request that is under way.
    fn expected(&self) -> (u32, u64) {
        let connects = matches!(self.asked, Request::Connect { .. });
        (self.generation, if connects { self.attempts } else { self.seq })
    }

    /// When it asks once more if it is not answered.
    pub(crate) fn asks_again_ns(&self) -> u64 {
        self.sent_ns + RESEND_NS
    }

    /// Time goes by.
    pub(crate) fn tick(&mut self, now_ns: u64) -> Option<Message> {
        (now_ns >= self.asks_again_ns()).then(|| self.again(now_ns))
    }

    /// A reply of the MGS has arrived; what is asked next. `sets`: the administrator is at it.
    ///
    /// # Errors
    /// If it is none that the MGS may give.
    pub(crate) fn on_reply(
        &mut self,
        header: &Header,
        reply: &Reply,
        sets: bool,
        now_ns: u64,
    ) -> Result<Option<Message>, String> {
        if header.client != self.id || (header.generation, header.seq) != self.expected() {
            return Ok(None);
        }
        match (&self.asked, reply.error, &reply.body) {
            (Request::Connect { .. }, None, body) => {
                let ReplyBody::Connected { generation, boot_epoch, .. } = *body else {
                    return Err(format!("a connect answered with {body:?}"));
                };
                self.generation = generation;
                // The same run of the MGS goes on counting our requests.
                if self.boot_epoch != boot_epoch {
                    (self.boot_epoch, self.seq) = (boot_epoch, 0);
                }
                let next = if self.is_registered {
                    MgsRequest::WaitConfig { version: self.version }
                } else {
                    MgsRequest::GetFileSystem
                };
                Ok(Some(self.ask(next, now_ns)))
            }
            // It does not know us (any more), and has not executed this.
            (Request::Mgs(_), Some(Errno::ESTALE), _) => {
                self.seq -= 1;
                Ok(Some(self.connect(now_ns)))
            }
            // From the network: the MGS could not be reached, and is asked again at a later tick.
            (_, Some(Errno::ECONNRESET | Errno::ESHUTDOWN | Errno::ENODEV), ReplyBody::Empty) => {
                Ok(None)
            }
            // It had no room for it just now.
            (Request::Mgs(asked), Some(Errno::EAGAIN), _) => {
                let again = asked.clone();
                Ok(Some(self.ask(again, now_ns)))
            }
            (Request::Mgs(MgsRequest::SetParam { value, .. }), None, ReplyBody::Empty) => {
                self.setting.possible = vec![value.clone()];
                Ok(Some(self.ask(MgsRequest::WaitConfig { version: self.version }, now_ns)))
            }
            (Request::Mgs(asked), None, ReplyBody::Mgs(answer)) => {
                let asked = asked.clone();
                self.answered(&asked, answer, sets, now_ns).map(Some)
            }
            (asked, error, body) => {
                Err(format!("{asked:?} of {} answered with {error:?} {body:?}", self.me))
            }
        }
    }

    fn answered(
        &mut self,
        asked: &MgsRequest,
        answer: &MgsReply,
        sets: bool,
        now_ns: u64,
    ) -> Result<Message, String> {
        let next = match (asked, answer) {
            (MgsRequest::GetFileSystem, MgsReply::FileSystem { fsname: name, uuid, .. })
                if *name == fsname() && *uuid == UUID =>
            {
                let (info, uuid) = (self.info, uuid_of(self.me));
                // An OST that was made to take a lost one's place says so until it is heard.
                let number = self.attempts / ATTEMPTS_MAX + self.attempts;
                if matches!(self.me, Endpoint::Ost(_)) && !number.is_multiple_of(4) {
                    MgsRequest::Replace { info, uuid }
                } else {
                    MgsRequest::Register { info, uuid }
                }
            }
            (
                MgsRequest::Register { .. } | MgsRequest::Replace { .. },
                MgsReply::Config { version, targets },
            ) if targets.contains(&self.info) => {
                (self.is_registered, self.version) = (true, *version);
                MgsRequest::GetParams
            }
            (MgsRequest::WaitConfig { version: old }, MgsReply::Config { version, targets })
                if version > old && targets.contains(&self.info) =>
            {
                self.version = *version;
                MgsRequest::GetParams
            }
            (MgsRequest::GetParams, MgsReply::Params { version, params })
                if *version >= self.version =>
            {
                let value = self.value_in(params)?;
                self.setting.possible = vec![value];
                if sets { self.set()? } else { MgsRequest::WaitConfig { version: self.version } }
            }
            _ => return Err(format!("{asked:?} of {} answered with {answer:?}", self.me)),
        };
        Ok(self.ask(next, now_ns))
    }
}

impl Mgc {
    /// The name of the target's parameter.
    fn param(&self) -> Result<Name, String> {
        let text = format!("sim.{}.number", self.me);
        Name::new(text.as_bytes()).map_err(|_| format!("{text} is no name"))
    }

    /// The value of the target's parameter, which must be one that it may have.
    fn value_in(&self, params: &[ParamInfo]) -> Result<Option<Name>, String> {
        let name = self.param()?;
        let value = params.iter().find(|param| param.name == name).map(|param| &param.value);
        let possible = &self.setting.possible;
        if possible.iter().any(|possible| possible.as_ref() == value) {
            return Ok(value.cloned());
        }
        Err(format!("the parameter of {} is {value:?}, not one of {possible:?}", self.me))
    }

    /// Another value, or none any more.
    fn set(&mut self) -> Result<MgsRequest, String> {
        let number = self.setting.next;
        self.setting.next += 1;
        let value =
            Name::new(number.to_string().as_bytes()).ok().filter(|_| !number.is_multiple_of(4));
        self.setting.possible.push(value.clone());
        Ok(MgsRequest::SetParam { name: self.param()?, value })
    }
}

/// The id that a target was made with.
fn uuid_of(target: Endpoint) -> u64 {
    match target {
        Endpoint::Mdt(index) => 0x100 + u64::from(index),
        Endpoint::Ost(index) => 0x200 + u64::from(index),
        Endpoint::Mgs | Endpoint::Client(_) => 0,
    }
}

//! The client as a whole: imports, inodes, and what arrives from the network.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;

use sateen_types::{ClientId, Endpoint, Errno, Fid, Result, seq};
use sateen_wire::{
    Body, Bulk, Callback, Header, Message, MgsReply, MgsRequest, Reply, ReplyBody, Request, StatFs,
    TargetInfo,
};

use crate::apart::Apart;
use crate::dir_pages::DirCache;
use crate::dirty::DirtyTable;
use crate::ended::EndedWell;
use crate::fids::Fids;
use crate::file_locks::FileLocks;
use crate::given::Passthrough;
use crate::grants::OstGrants;
use crate::import::{Arrival, Import, RESEND_MAX_NS, WAITED_FOR};
use crate::imports::Imports;
use crate::inode::Inode;
use crate::inodes::Inodes;
use crate::kept_xattrs::XattrCache;
use crate::llite::Spaces;
use crate::lru::{Lru, Retiring};
use crate::open_cache::OpenCache;
use crate::outsiders::Outsiders;
use crate::port::{KernelInval, Port};
use crate::readahead::ReadAhead;
use crate::recover::AtMdt;
use crate::statahead::Statahead;
use crate::stats::Verbs;
use crate::sync::{join_all, lock};
use crate::unstable::Unstable;
use crate::unsynced::UnsyncedObjects;

/// How often connections are looked after: 250 ms.
pub(crate) const TICK_NS: u64 = 250_000_000;
/// How long and how often an OST is waited for that a layout names and the MGS has not told of
/// yet: 10 s.
const LEARN_TRIES: u32 = 200;
const LEARN_PAUSE_NS: u64 = 50_000_000;
/// How long a client that has lost its locks waits for the kernel to drop pages: 1 s.
const FORGET_NS: u64 = 1_000_000_000;
/// How long a client that goes waits for targets to hear its goodbye: 5 s for the OSTs, and as
/// long again for the others; and before that as long for the MDTs to hear of sizes. One that
/// hears none evicts it when somebody wants its locks.
const GOODBYE_NS: u64 = 5_000_000_000;
/// And before all that, so long for the OSTs to take anything of what is kept of writes: 5 s.
const WRITE_OUT_NS: u64 = 5_000_000_000;
/// Inodes looked at in one tick: the search holds up the others for some 10 µs.
const SCRUB_MAX: usize = 1024;

/// What a client is started with.
#[derive(Debug, Clone, Copy)]
pub struct ClientConfig {
    /// Its address, and its first incarnation, drawn at random: never used before.
    pub id: ClientId,
    /// Id of the file system; 0 if it is not known. Targets of others refuse the client.
    pub file_system: u64,
}

/// The incarnation that follows one that was evicted: as good as drawn at random, by the
/// finalizer of SplitMix64. The highest bit is that of MDTs.
fn next_incarnation(old: ClientId) -> ClientId {
    let mut z = old.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ClientId((z ^ z >> 31) & (u64::MAX >> 1))
}

/// Space of one target, as `lfs df` shows it.
#[derive(Debug, Clone, Copy)]
pub struct TargetSpace {
    /// The target.
    pub target: Endpoint,
    /// Its space; `None` if it does not answer or is inactive.
    pub space: Option<StatFs>,
}

/// How a connection to a target stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connection {
    /// There is one.
    Open,
    /// The target does not answer, or has not yet.
    Waiting,
    /// It has stopped after a disk error.
    Failed,
    /// At its address is a target of another file system.
    Foreign,
}

/// A client of one file system.
pub struct Client {
    pub(crate) config: ClientConfig,
    pub(crate) port: Arc<dyn Port>,
    /// Who it is to the targets, until one of them evicts it, and the era that its imports
    /// belong to. Locked before the imports.
    incarnation: Mutex<(ClientId, u64)>,
    /// How many incarnations there were before: whatever goes by a lock belongs to the era that
    /// it was taken in, and is not done in another.
    era: AtomicU64,
    imports: Imports,
    pub(crate) inodes: Inodes,
    /// Locked before the inodes.
    pub(crate) lru: Mutex<Lru>,
    /// How often connections were looked after: the time by which inodes get old.
    pub(crate) ticks: AtomicU32,
    pub(crate) retiring: Mutex<Retiring>,
    pub(crate) files: Apart<BTreeMap<u64, Arc<crate::llite::File>>>,
    pub(crate) open_cache: OpenCache,
    pub(crate) xattr_cache: XattrCache,
    pub(crate) dir_cache: DirCache,
    pub(crate) file_locks: Mutex<FileLocks>,
    /// Some program has locked a file: before that no close has to look for locks.
    pub(crate) locks_files: AtomicBool,
    pub(crate) fids: Fids,
    pub(crate) unsynced: UnsyncedObjects,
    pub(crate) unstable: Arc<Unstable>,
    pub(crate) ended: Arc<EndedWell>,
    /// What MDTs have open for this client, from the moment that they have answered.
    pub(crate) at_mdts: Apart<BTreeMap<u64, AtMdt>>,
    /// Names in directories that this client has made.
    pub(crate) known_names: Arc<AtomicUsize>,
    pub(crate) grants: Mutex<OstGrants>,
    /// What is kept of writes, by OST.
    pub(crate) dirty: DirtyTable,
    /// When an MDT was last told of an OST that it is full, for nothing but that.
    pub(crate) told_full: Mutex<BTreeMap<u32, u64>>,
    pub(crate) passthrough: Passthrough,
    pub(crate) outsiders: Outsiders,
    pub(crate) spaces: Mutex<Spaces>,
    pub(crate) next_open: AtomicU64,
    pub(crate) statahead: Statahead,
    pub(crate) read_ahead: ReadAhead,
    pub(crate) verbs: Verbs,
    /// Stamps of the last time that each MDT forgot this client: opens answered before are void.
    lost_at: Mutex<BTreeMap<u32, u64>>,
    /// One has: before that no open has to look.
    has_lost: AtomicBool,
    clock: AtomicU64,
    /// How long an MDT may hear nothing; 0 is for ever.
    ping_ns: AtomicU64,
    /// All OSTs are in this process.
    pub(crate) osts_are_here: AtomicBool,
    /// An MDT has said that parts are switched off there: until when none is asked for.
    pub(crate) no_parts_until_ns: AtomicU64,
    stopped: AtomicBool,
    /// It has said goodbye.
    pub(crate) left: AtomicBool,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("id", &self.config.id).finish_non_exhaustive()
    }
}

impl Client {
    /// A client that is not connected yet.
    pub fn new(config: ClientConfig, port: Arc<dyn Port>) -> Arc<Client> {
        Arc::new(Client {
            config,
            port,
            incarnation: Mutex::new((config.id, 0)),
            era: AtomicU64::new(0),
            imports: Imports::default(),
            inodes: Inodes::default(),
            lru: Mutex::default(),
            ticks: AtomicU32::new(0),
            retiring: Mutex::default(),
            files: Apart::default(),
            open_cache: OpenCache::default(),
            xattr_cache: XattrCache::default(),
            dir_cache: DirCache::default(),
            file_locks: Mutex::default(),
            locks_files: AtomicBool::new(false),
            fids: Fids::default(),
            unsynced: UnsyncedObjects::default(),
            unstable: Arc::default(),
            ended: Arc::default(),
            at_mdts: Apart::default(),
            known_names: Arc::default(),
            grants: Mutex::default(),
            dirty: DirtyTable::default(),
            told_full: Mutex::default(),
            passthrough: Passthrough::default(),
            outsiders: Outsiders::default(),
            spaces: Mutex::default(),
            next_open: AtomicU64::new(1),
            statahead: Statahead::default(),
            read_ahead: ReadAhead::default(),
            verbs: Verbs::default(),
            lost_at: Mutex::default(),
            has_lost: AtomicBool::new(false),
            clock: AtomicU64::new(1),
            ping_ns: AtomicU64::new(0),
            osts_are_here: AtomicBool::new(false),
            no_parts_until_ns: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            left: AtomicBool::new(false),
        })
    }

    /// Its name: that of its first incarnation.
    pub fn id(&self) -> ClientId {
        self.config.id
    }

    /// The endpoint that messages to this client name.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::Client(self.config.id)
    }

    /// Who it is to the targets at the moment.
    pub fn incarnation(&self) -> ClientId {
        lock(&self.incarnation).0
    }

    /// The era, to be asked for before any lock is looked at.
    pub(crate) fn era(&self) -> u64 {
        self.era.load(Ordering::SeqCst)
    }

    /// Learns from the MGS which targets there are, and connects to all of them.
    ///
    /// # Errors
    /// The MGS's; `EIO` if the root's MDT has stopped after a disk error. If it does not answer,
    /// it is waited for; other targets are by whoever uses them.
    pub async fn mount(self: &Arc<Client>) -> Result<()> {
        let mgs = self.add_import(Endpoint::Mgs);
        self.spawn_ticker();
        mgs.connect(self.port.as_ref());
        mgs.opened().await?;
        let request = Request::Mgs(MgsRequest::GetConfig);
        let call =
            mgs.call(self.port.as_ref(), (request, Bulk::None), WAITED_FOR, (|| 0, false), None);
        let reply = call.await?.reply;
        if let Some(errno) = reply.error {
            return Err(errno);
        }
        let ReplyBody::Mgs(MgsReply::Config { targets, .. }) = reply.body else {
            return Err(Errno::EPROTO);
        };
        self.learn(&targets);
        for import in self.imports_of(|target| target == Endpoint::Mdt(0)) {
            import.opened().await?;
        }
        Ok(())
    }

    /// MDTs that heard nothing for so long are asked whether they are there. Over a network this
    /// is how an idle client finds out that one has restarted, and with it that its caches are
    /// void; and how it stays within reach of callbacks when a connection broke. MDTs that are
    /// connected to from now on are promised it, and evict the client when they hear nothing.
    pub fn ping_every(&self, ns: u64) {
        self.ping_ns.store(ns, Ordering::Relaxed);
        for (target, import) in self.all_imports() {
            import.promise_to_speak(self.speaks_to(target));
        }
    }

    /// Whether a target hears something all the time: what asks it is sent again before it could
    /// believe otherwise.
    fn speaks_to(&self, target: Endpoint) -> bool {
        let ping_ns = self.ping_ns.load(Ordering::Relaxed);
        matches!(target, Endpoint::Mdt(_)) && ping_ns > 0 && ping_ns + TICK_NS <= RESEND_MAX_NS
    }

    /// How the connections to its targets stand.
    pub fn connections(&self) -> Vec<(Endpoint, Connection)> {
        let all = self.all_imports();
        all.into_iter().map(|(target, import)| (target, import.stands())).collect()
    }

    /// Connects to those of these targets that are new, when the MGS says that there are more.
    pub fn learn(&self, targets: &[TargetInfo]) {
        let active = targets.iter().filter(|info| !info.inactive && info.target != Endpoint::Mgs);
        for info in active {
            if self.import(info.target).is_none() {
                self.add_import(info.target).connect(self.port.as_ref());
            }
        }
    }

    pub(crate) fn all_imports(&self) -> Vec<(Endpoint, Arc<Import>)> {
        self.imports.all().iter().map(|(target, import)| (*target, import.clone())).collect()
    }

    /// Those of MDTs: there may be very many OSTs.
    pub(crate) fn mdt_imports(&self) -> Vec<Arc<Import>> {
        let imports = self.imports.all();
        let mdts = imports.range(Endpoint::Mdt(0)..=Endpoint::Mdt(u32::MAX));
        mdts.map(|(_, import)| import.clone()).collect()
    }

    /// Whether there is such an OST.
    pub(crate) fn any_ost(&self, which: impl Fn(u32) -> bool) -> bool {
        let imports = self.imports.all();
        imports.keys().any(|target| matches!(target, Endpoint::Ost(index) if which(*index)))
    }

    fn imports_of(&self, which: impl Fn(Endpoint) -> bool) -> Vec<Arc<Import>> {
        let imports = self.imports.all();
        imports.iter().filter(|(target, _)| which(**target)).map(|(_, i)| i.clone()).collect()
    }

    /// Gives everything back and closes the connections. Files that are still open are lost.
    pub async fn unmount(self: &Arc<Client>) {
        self.stopped.store(true, Ordering::Relaxed);
        // What programs were answered for, and after it its size: nobody has waited for the closes.
        self.write_out_for_good(WRITE_OUT_NS).await;
        self.not_longer_than(GOODBYE_NS, self.tell_all_sizes()).await;
        self.not_longer_than(GOODBYE_NS, self.close_kept_writes()).await;
        let is_ost = |target: Endpoint| matches!(target, Endpoint::Ost(_));
        // Others may write from now on: no OST that comes back is told anything any more.
        self.not_longer_than(GOODBYE_NS, self.unstable.end()).await;
        // The OSTs before the MDTs: those give the locks to others at once.
        self.say_goodbye(self.imports_of(is_ost)).await;
        self.say_goodbye(self.imports_of(|target| !is_ost(target))).await;
        self.left.store(true, Ordering::Relaxed);
    }

    /// Tells the MDTs of everything written that they have not heard of, and waits for what is on
    /// its way: each of them in turn, beside the others.
    async fn tell_all_sizes(self: &Arc<Client>) {
        let inodes = self.inodes.all();
        let mut by_mdt: BTreeMap<u32, Vec<Arc<Inode>>> = BTreeMap::new();
        for inode in inodes {
            let state = lock(&inode.state);
            // What an OST has not taken by now is not waited for once more. What the kernel has written
            // itself only the object says.
            if (state.is_untold() || state.is_given()) && state.dirty.is_none() {
                drop(state);
                by_mdt.entry(seq::mdt_of(inode.fid.seq)).or_default().push(inode);
            }
        }
        let tells = by_mdt.into_values().map(|inodes| {
            let tells: std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>> =
                Box::pin(async move {
                    for inode in inodes {
                        if let Err(error) = self.tell_size(&inode).await {
                            tracing::debug!(fid = %inode.fid, %error, "a size was not told");
                        }
                    }
                });
            tells
        });
        join_all(tells.collect()).await;
    }

    /// To all of these at once; those that do not hear it are not waited for long.
    async fn say_goodbye(&self, imports: Vec<Arc<Import>>) {
        let goodbyes = imports.iter().filter(|import| import.is_open()).map(|import| {
            let goodbye: std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>> =
                Box::pin(self.say_goodbye_to(import));
            goodbye
        });
        self.not_longer_than(GOODBYE_NS, join_all(goodbyes.collect())).await;
    }

    async fn say_goodbye_to(&self, import: &Import) {
        let (era, port) = (self.era(), self.port.as_ref());
        loop {
            let request = (Request::Disconnect, Bulk::None);
            match import.call(port, request, WAITED_FOR, (|| 0, false), Some(era)).await {
                // An MDT that had forgotten us: it had heard a goodbye that it could not answer,
                // or was restarted. That was learnt by connecting anew, of which it knows.
                Err(Errno::EIO) if import.is_mdt() && self.era() == era => {
                    if import.opened().await.is_err() {
                        return;
                    }
                }
                // The connection may be gone already, which is as good.
                Err(error) => {
                    return tracing::debug!(%error, "a target did not hear the goodbye");
                }
                Ok(_) => {
                    let (answers, line) = import.is_left();
                    answers.wake();
                    return line.wake();
                }
            }
        }
    }

    /// Waits for something, but not longer than this; whether it has ended.
    pub(crate) async fn not_longer_than<T>(
        &self,
        limit_ns: u64,
        what: impl Future<Output = T>,
    ) -> Option<T> {
        let mut what = core::pin::pin!(what);
        let mut limit = self.port.sleep(limit_ns);
        poll_fn(|context| {
            if let Poll::Ready(value) = what.as_mut().poll(context) {
                return Poll::Ready(Some(value));
            }
            limit.as_mut().poll(context).map(|()| None)
        })
        .await
    }

    fn add_import(&self, target: Endpoint) -> Arc<Import> {
        let me = lock(&self.incarnation);
        let about = (target, self.config.file_system);
        let new = || {
            let runs = (self.ended.clone(), self.unstable.clone());
            let import = Import::new(self.endpoint(), about, *me, runs);
            import.promise_to_speak(self.speaks_to(target));
            Arc::new(import)
        };
        self.imports.get_or_make(target, new)
    }

    fn spawn_ticker(self: &Arc<Client>) {
        let weak = Arc::downgrade(self);
        let port = self.port.clone();
        self.port.spawn(Box::pin(async move {
            loop {
                port.sleep(TICK_NS).await;
                let Some(client) = weak.upgrade() else { return };
                if client.left.load(Ordering::Relaxed) {
                    return;
                }
                let ping_ns = client.ping_ns.load(Ordering::Relaxed);
                for (target, import) in client.all_imports() {
                    let ping_ns = if matches!(target, Endpoint::Mdt(_)) { ping_ns } else { 0 };
                    import.tick(client.port.as_ref(), ping_ns);
                }
                client.write_out_old();
                client.end_old_listings();
                client.drop_old_ahead();
                client.dir_cache.drop_old(client.ticks.load(Ordering::Relaxed));
                client.scrub();
                client.prune();
            }
        }));
    }

    /// Looks at some inodes, others each time, and lets go of those that nobody needs. Most are
    /// let go by whoever was the last to need them; this is for those that were met by a request
    /// and never told to the kernel, and for two who were both the last.
    fn scrub(self: &Arc<Client>) {
        let mut idle = Vec::new();
        self.inodes.look(&mut lock(&self.lru).scrubbing, SCRUB_MAX, |inode| {
            // A request that is using it may be about to tell the kernel of it.
            if Arc::strong_count(inode) == 1 && lock(&inode.state).is_idle() {
                idle.push(inode.clone());
            }
            true
        });
        for inode in idle {
            self.retire(inode);
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    pub(crate) fn import(&self, target: Endpoint) -> Option<Arc<Import>> {
        self.imports.get(target)
    }

    /// The import of an OST that a layout names. The MDT may have heard of it before us.
    ///
    /// # Errors
    /// `EIO` if nobody tells of it.
    pub(crate) async fn ost_import(&self, index: u32) -> Result<Arc<Import>> {
        for _ in 0..LEARN_TRIES {
            if let Some(import) = self.import(Endpoint::Ost(index)) {
                return Ok(import);
            }
            self.port.sleep(LEARN_PAUSE_NS).await;
        }
        tracing::warn!(ost = index, "a file lies on an OST that the MGS does not tell of");
        Err(Errno::EIO)
    }

    /// The targets of the mounted file system.
    pub(crate) fn targets(&self) -> Vec<Endpoint> {
        self.imports.all().keys().copied().collect()
    }

    /// A stamp above all given before.
    pub(crate) fn stamp(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn inode(&self, fid: Fid) -> Arc<Inode> {
        let inode = self.inodes.get(fid);
        self.is_used(&inode);
        inode
    }

    /// The same, if it is there.
    pub(crate) fn known_inode(&self, fid: Fid) -> Option<Arc<Inode>> {
        let inode = self.inodes.find(fid)?;
        self.is_used(&inode);
        Some(inode)
    }

    pub(crate) fn is_used(&self, inode: &Inode) {
        inode.used.store(true, Ordering::Relaxed);
        inode.used_at.store(self.ticks.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// A message for this client arrived.
    pub fn on_message(self: &Arc<Client>, message: Message) {
        let header = message.header;
        match message.body {
            Body::Reply(reply) => self.on_reply(&header, reply, message.bulk),
            Body::Callback(Callback::Blocking { fid, id }) => {
                if self.import(header.from).is_some_and(|import| import.is_current(&header)) {
                    self.on_blocking(fid, id);
                }
            }
            Body::Callback(Callback::Glimpse { fid, id, question }) => {
                if self.import(header.from).is_some_and(|import| import.is_current(&header)) {
                    self.on_glimpse(fid, (id, question));
                }
            }
            Body::Callback(Callback::FileLockTurn { fid, wait }) => {
                if self.import(header.from).is_some_and(|import| import.is_current(&header)) {
                    self.on_file_lock_turn(fid, wait);
                }
            }
            Body::Callback(Callback::Evicted) => self.on_evicted(header.from, header.client),
            Body::Request(_) => tracing::debug!(from = %header.from, "a request to a client"),
        }
    }

    fn on_reply(self: &Arc<Client>, header: &Header, reply: Reply, bulk: Bulk) {
        let Some(import) = self.import(header.from) else { return };
        let arrived = |request: &Request, reply: &Reply, sent: (u64, bool)| {
            self.take_over(request, reply, sent);
        };
        match import.on_reply(self.port.as_ref(), header, (reply, bulk), arrived) {
            Arrival::Answer | Arrival::Ignored => {}
            Arrival::Failed => {
                let target = header.from;
                tracing::warn!(%target, "it has stopped after a disk error: who needs it gets EIO");
            }
            Arrival::Foreign => {
                let target = header.from;
                tracing::warn!(%target, "its address belongs to another file system now: waiting");
            }
            Arrival::Connected { restarted, follows } => {
                if restarted {
                    tracing::warn!(target = %header.from, "the target has restarted");
                }
                if let (true, Endpoint::Ost(ost)) = (follows, header.from) {
                    self.ost_ended_well(ost);
                }
            }
            Arrival::Recovering(generation, sure) => {
                self.on_recovering(header, (generation, sure));
            }
            Arrival::Recovered => {
                tracing::info!(target = %header.from, "it has taken up what was held");
            }
            Arrival::Unknown => import.try_connect(self.port.as_ref()),
            Arrival::Forgotten => self.on_forgotten(header),
            Arrival::Lost => self.on_lost(header),
            Arrival::Refused(incarnation) => self.on_evicted(header.from, incarnation),
        }
    }

    /// A target has thrown an incarnation of this client out, or will not have it after a
    /// restart: it is refused everywhere, or soon will be. Whatever it holds is void, and the
    /// client goes on as another.
    fn on_evicted(self: &Arc<Client>, target: Endpoint, incarnation: ClientId) {
        let (imports, woken): (Vec<_>, Vec<_>) = {
            let mut me = lock(&self.incarnation);
            if me.0 != incarnation {
                return;
            }
            // Also of imports that are made from now on.
            *me = (next_incarnation(incarnation), me.1 + 1);
            let imports = self.imports.all();
            imports.values().map(|import| (import.clone(), import.renew(me.0, me.1))).unzip()
        };
        for (answers, line) in woken {
            answers.wake();
            line.wake();
        }
        tracing::warn!(%target, "evicted: what was open is lost, connecting anew");
        let stale = self.drop_everything(None);
        lock(&self.grants).drop_all();
        // Only now can what stands under the locks of before be told from what will.
        self.era.fetch_add(1, Ordering::SeqCst);
        if !self.stopped.load(Ordering::Relaxed) {
            self.connect_without(stale, imports);
        }
    }

    /// An OST or the MGS does not know us any more: what was asked waits for the next connection,
    /// or fails.
    fn on_lost(self: &Arc<Client>, header: &Header) {
        let target = header.from;
        let Some(import) = self.import(target) else { return };
        if !import.lost(header) {
            return;
        }
        if self.stopped.load(Ordering::Relaxed) {
            return;
        }
        tracing::warn!(%target, "connection lost: connecting again");
        if let Endpoint::Ost(index) = target {
            self.drop_grant(index);
        }
        import.connect(self.port.as_ref());
    }

    /// Connects once the kernel has forgotten the names, and what it knows of these inodes.
    /// Their pages may be waiting for reads that wait for the connection, and one of which it has
    /// yet to hear may never get there: not for long.
    pub(crate) fn connect_without(
        self: &Arc<Client>,
        stale: Vec<(Fid, Weak<Inode>)>,
        imports: Vec<Arc<Import>>,
    ) {
        let (client, port) = (self.clone(), self.port.clone());
        self.port.spawn(Box::pin(async move {
            client.kernel_forgets(&stale, true).await;
            for import in imports {
                import.connect(port.as_ref());
            }
        }));
    }

    /// Has the kernel forget all names, and what it knows of these inodes, also of their data if
    /// `pages`; not for long.
    pub(crate) async fn kernel_forgets(&self, stale: &[(Fid, Weak<Inode>)], pages: bool) {
        self.port.invalidate(KernelInval::Names).await;
        let forgets = stale.iter().map(|(fid, inode)| {
            // Whoever drops it meanwhile is not kept from it.
            let gone = || inode.upgrade().is_none_or(|i| lock(&i.state).lookups == 0);
            let ino = fid.ino();
            let forgets: std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>> =
                Box::pin(async move {
                    self.invalidate_unless(KernelInval::Attr(ino), gone).await;
                    if pages {
                        self.invalidate_unless(KernelInval::Data(ino), gone).await;
                    }
                });
            forgets
        });
        self.not_longer_than(FORGET_NS, join_all(forgets.collect())).await;
    }

    /// Stamp of the last time that the MDT of `fid` forgot this client.
    pub(crate) fn lost_at(&self, fid: Fid) -> u64 {
        if !self.has_lost.load(Ordering::SeqCst) {
            return 0;
        }
        lock(&self.lost_at).get(&seq::mdt_of(fid.seq)).copied().unwrap_or_default()
    }

    /// One MDT has forgotten this client, or all have. Opens at the others stay.
    fn loses_opens(&self, mdt: Option<u32>) {
        let stamp = self.stamp();
        let mut lost_at = lock(&self.lost_at);
        // Whoever sees this waits for what stands there then.
        self.has_lost.store(true, Ordering::SeqCst);
        for target in self.targets() {
            if let Endpoint::Mdt(index) = target
                && mdt.is_none_or(|mdt| mdt == index)
            {
                lost_at.insert(index, stamp);
            }
        }
    }

    /// All locks are void, and so are the opens: files that are open answer `EIO` from now on.
    /// Those of one MDT, or all. Returns the inodes of which the kernel may know something.
    pub(crate) fn drop_everything(self: &Arc<Client>, mdt: Option<u32>) -> Vec<(Fid, Weak<Inode>)> {
        let concerned = |fid: Fid| mdt.is_none_or(|mdt| mdt == seq::mdt_of(fid.seq));
        self.fids.forget(mdt);
        self.closed_at(mdt);
        self.loses_opens(mdt);
        self.inodes.begin_anew(|| self.stamp());
        let inodes = self.inodes.those(|inode| concerned(inode.fid));
        let mut files = Vec::new();
        self.files.all().for_each(|part| files.extend(part.values().cloned()));
        for file in files.iter().filter(|file| concerned(file.inode.fid)) {
            file.lose(&self.unsynced);
        }
        self.lose_file_locks(mdt);
        let mut stale = Vec::new();
        for inode in &inodes {
            let stamp = self.stamp();
            let (held, woken) = inode.update(|state| {
                state.cancelled_at = stamp;
                let woken = state.lose_dirty(&self.dirty);
                state.follow_runs(inode.fid, &self.unstable);
                state.forgotten();
                let held = state.locks.clear();
                state.lost_locks();
                (held, woken)
            });
            woken.wake();
            if held {
                stale.push((inode.fid, Arc::downgrade(inode)));
            }
        }
        // Whoever the locks go to writes without hearing of this client.
        self.unstable.forget_those(concerned);
        stale
    }
}

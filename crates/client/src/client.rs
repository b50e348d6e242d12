//! The client as a whole: imports, inodes, and what arrives from the network.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use sateen_types::{ClientId, Endpoint, Errno, Fid, Result};
use sateen_wire::{
    Body, Bulk, Callback, Message, MgsReply, MgsRequest, Reply, ReplyBody, Request, StatFs,
};

use crate::fids::Fids;
use crate::import::{Arrival, Import};
use crate::inode::Inode;
use crate::port::{KernelInval, Port};
use crate::sync::lock;

/// How often connections are looked after: 250 ms.
const TICK_NS: u64 = 250_000_000;

/// What a client is started with.
#[derive(Debug, Clone, Copy)]
pub struct ClientConfig {
    /// Its incarnation, drawn at random: never used before.
    pub id: ClientId,
}

/// Space of one target, as `lfs df` shows it.
#[derive(Debug, Clone, Copy)]
pub struct TargetSpace {
    /// The target.
    pub target: Endpoint,
    /// Its space; `None` if it does not answer or is inactive.
    pub space: Option<StatFs>,
}

#[derive(Debug, Default)]
pub(crate) struct Inodes {
    pub(crate) all: BTreeMap<Fid, Arc<Inode>>,
    /// Stamp of the last time that an inode was dropped.
    pub(crate) dropped_at: u64,
}

impl Inodes {
    pub(crate) fn get(&mut self, fid: Fid) -> Arc<Inode> {
        let dropped_at = self.dropped_at;
        self.all.entry(fid).or_insert_with(|| Arc::new(Inode::new(fid, dropped_at))).clone()
    }
}

/// A client of one file system.
pub struct Client {
    pub(crate) config: ClientConfig,
    pub(crate) port: Arc<dyn Port>,
    imports: Mutex<BTreeMap<Endpoint, Arc<Import>>>,
    pub(crate) inodes: Mutex<Inodes>,
    pub(crate) files: Mutex<BTreeMap<u64, Arc<crate::llite::File>>>,
    pub(crate) fids: Fids,
    pub(crate) grants: Mutex<BTreeMap<u32, u64>>,
    pub(crate) next_open: AtomicU64,
    /// Stamp of the last time that the MDT forgot this client: opens answered before are void.
    pub(crate) lost_at: AtomicU64,
    clock: AtomicU64,
    stopped: AtomicBool,
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
            imports: Mutex::default(),
            inodes: Mutex::default(),
            files: Mutex::default(),
            fids: Fids::default(),
            grants: Mutex::default(),
            next_open: AtomicU64::new(1),
            lost_at: AtomicU64::new(0),
            clock: AtomicU64::new(1),
            stopped: AtomicBool::new(false),
        })
    }

    /// The endpoint that messages to this client name.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::Client(self.config.id)
    }

    /// Learns from the MGS which targets there are, and connects to all of them.
    ///
    /// # Errors
    /// The MGS's. A target that does not answer is waited for.
    pub async fn mount(self: &Arc<Client>) -> Result<()> {
        let mgs = self.add_import(Endpoint::Mgs);
        self.spawn_ticker();
        mgs.connect(self.port.as_ref());
        mgs.opened().await;
        let request = Request::Mgs(MgsRequest::GetConfig);
        let call = mgs.call(self.port.as_ref(), request, Bulk::None, || 0, false);
        let reply = call.await?.reply;
        if let Some(errno) = reply.error {
            return Err(errno);
        }
        let ReplyBody::Mgs(MgsReply::Config { targets, .. }) = reply.body else {
            return Err(Errno::EPROTO);
        };
        let active = targets.iter().filter(|info| !info.inactive && info.target != Endpoint::Mgs);
        let imports: Vec<_> = active.map(|info| self.add_import(info.target)).collect();
        for import in &imports {
            import.connect(self.port.as_ref());
        }
        for import in &imports {
            import.opened().await;
        }
        Ok(())
    }

    /// Gives everything back and closes the connections. Files that are still open are lost.
    pub async fn unmount(self: &Arc<Client>) {
        self.stopped.store(true, Ordering::Relaxed);
        let imports: Vec<_> = lock(&self.imports).values().cloned().collect();
        for import in imports {
            let bye = import.call(self.port.as_ref(), Request::Disconnect, Bulk::None, || 0, false);
            // The connection may be gone already, which is as good.
            if let Err(error) = bye.await {
                tracing::debug!(%error, "a target did not hear the goodbye");
            }
        }
    }

    fn add_import(&self, target: Endpoint) -> Arc<Import> {
        let mut imports = lock(&self.imports);
        let new = || Arc::new(Import::new(self.config.id, target));
        imports.entry(target).or_insert_with(new).clone()
    }

    fn spawn_ticker(self: &Arc<Client>) {
        let weak = Arc::downgrade(self);
        let port = self.port.clone();
        self.port.spawn(Box::pin(async move {
            loop {
                port.sleep(TICK_NS).await;
                let Some(client) = weak.upgrade() else { return };
                if client.stopped.load(Ordering::Relaxed) {
                    return;
                }
                let imports: Vec<_> = lock(&client.imports).values().cloned().collect();
                for import in imports {
                    import.tick(client.port.as_ref());
                }
            }
        }));
    }

    pub(crate) fn import(&self, target: Endpoint) -> Option<Arc<Import>> {
        lock(&self.imports).get(&target).cloned()
    }

    /// The targets of the mounted file system.
    pub(crate) fn targets(&self) -> Vec<Endpoint> {
        lock(&self.imports).keys().copied().collect()
    }

    /// A stamp above all given before.
    pub(crate) fn stamp(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn inode(&self, fid: Fid) -> Arc<Inode> {
        lock(&self.inodes).get(fid)
    }

    /// A message for this client arrived.
    pub fn on_message(self: &Arc<Client>, message: Message) {
        let header = message.header;
        match message.body {
            Body::Reply(reply) => self.on_reply(&header, reply, message.bulk),
            Body::Callback(Callback::Blocking { fid, id }) => {
                let current = self.import(header.from).map(|import| import.generation());
                if current == Some(header.generation) {
                    self.on_blocking(fid, id);
                }
            }
            Body::Callback(Callback::Evicted) => self.on_lost(header.from, header.generation),
            Body::Request(_) => tracing::debug!(from = %header.from, "a request to a client"),
        }
    }

    fn on_reply(self: &Arc<Client>, header: &sateen_wire::Header, reply: Reply, bulk: Bulk) {
        let Some(import) = self.import(header.from) else { return };
        let install = |reply: &Reply, stamp: u64, pin: bool| {
            for grant in reply.grants.iter() {
                self.install(grant, stamp, pin);
            }
        };
        match import.on_reply(header, reply, bulk, install) {
            Arrival::Answer | Arrival::Ignored => {}
            Arrival::Connected { restarted } => {
                if restarted {
                    tracing::warn!(target = %header.from, "the target has restarted");
                }
            }
            Arrival::Lost => self.on_lost(header.from, header.generation),
        }
    }

    /// A target does not know us any more: requests in flight fail, and what stood under its
    /// locks is dropped.
    fn on_lost(self: &Arc<Client>, target: Endpoint, generation: u32) {
        let Some(import) = self.import(target) else { return };
        if !import.lost(generation) {
            return;
        }
        tracing::warn!(%target, "connection lost: connecting again");
        match target {
            Endpoint::Mdt(_) => self.drop_everything(),
            Endpoint::Ost(index) => self.drop_grant(index),
            Endpoint::Mgs | Endpoint::Client(_) => {}
        }
        import.connect(self.port.as_ref());
    }

    /// All locks are void, and so are the opens: files that are open answer `EIO` from now on.
    fn drop_everything(self: &Arc<Client>) {
        self.fids.forget();
        self.lost_at.store(self.stamp(), Ordering::Relaxed);
        let inodes: Vec<_> = {
            let mut inodes = lock(&self.inodes);
            inodes.dropped_at = self.stamp();
            inodes.all.values().cloned().collect()
        };
        for file in lock(&self.files).values() {
            file.lost.store(true, Ordering::Relaxed);
        }
        let mut stale = Vec::new();
        for inode in inodes {
            let stamp = self.stamp();
            let held = inode.update(|state| {
                state.cancelled_at = stamp;
                state.unreported_mtime = None;
                let held = !core::mem::take(&mut state.locks).is_empty();
                state.lost_locks();
                held
            });
            if held {
                stale.push(inode.fid);
            }
        }
        let port = self.port.clone();
        self.port.spawn(Box::pin(async move {
            port.invalidate(KernelInval::Names).await;
            for fid in stale {
                port.invalidate(KernelInval::Data(fid.ino())).await;
            }
        }));
    }
}

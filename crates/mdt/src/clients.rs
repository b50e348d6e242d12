//! What the MDT keeps per client incarnation, and what becomes of it when the client goes.
//!
//! Life of an incarnation: its first request that may bring it locks is recorded, and nothing
//! is answered before that is durable; it says good-bye, or is evicted, or the MDT restarts and it
//! does not come back. In the last two cases the record says so, and the OSTs have to refuse it before
//! anybody else gets at what it could still be writing to; the record then says that they do, and
//! stays: it is refused for ever. Nobody gets what it had before it is durable that it is lost, or an
//! MDT that restarts would expect it back.

use std::collections::{BTreeMap, BTreeSet};

use sateen_target::{Outbox, SLOTS_MAX};
use sateen_types::{ClientId, Endpoint, Errno, Fid, Seq};
use sateen_wire::disk::mdt::ClientRecord;
use sateen_wire::{Callback, MdtRequest, Message, OpenId, SPEAKS};

use crate::keys;
use crate::mdt::Mdt;
use crate::opens::Purpose;
use crate::stats::{self, Why};
use crate::stop::Trace;
use crate::work::Work;

/// Most files that one client has open.
pub const OPENS_PER_CLIENT_MAX: usize = 1 << 20;

#[derive(Debug, Default)]
struct Client {
    opens: BTreeMap<OpenId, (Fid, Purpose)>,
    seqs: Vec<Seq>,
    /// One past the highest slot used.
    slots: u16,
    /// In each slot, what of its last request must be known in another run.
    traces: Vec<(u64, Trace)>,
    /// The transaction that recorded it.
    since: u64,
}

/// All clients.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    all: BTreeMap<ClientId, Client>,
    /// Lost clients, and the OSTs that have yet to refuse them, so long as that is waited for.
    fencing: BTreeMap<ClientId, BTreeSet<u32>>,
    /// The same with the OSTs that are out of use, which nobody waits for: until they have done
    /// so, too, the clients are on record as not refused.
    owed: BTreeMap<ClientId, BTreeSet<u32>>,
    /// The transactions that say of them that they are lost.
    lost_in: BTreeMap<ClientId, u64>,
    /// Those among them that the last run had: which locks they held is not known.
    old: BTreeSet<ClientId>,
    /// Those that an administrator wants out.
    unwanted: BTreeSet<ClientId>,
    /// Those that are thrown out as soon as it is known who was a client of the last run.
    to_evict: BTreeSet<ClientId>,
}

impl Clients {
    /// A request came in a slot. Returns the transaction that recorded the client; `None` if
    /// there is none yet.
    pub(crate) fn used_slot(&mut self, client: ClientId, slot: u16) -> Option<u64> {
        let client = self.all.get_mut(&client)?;
        client.slots = client.slots.max(slot.saturating_add(1));
        Some(client.since)
    }

    /// A client of the run before may come back.
    pub(crate) fn take_up(&mut self, client: ClientId, slots: u16) {
        self.all.insert(client, Client { slots, ..Client::default() });
    }

    /// A request is executed in a slot.
    pub(crate) fn leave_trace(&mut self, client: ClientId, (slot, seq): (u16, u64), trace: Trace) {
        let Some(client) = self.all.get_mut(&client).filter(|_| slot < SLOTS_MAX) else { return };
        let slot = usize::from(slot);
        if client.traces.len() <= slot {
            client.traces.resize(slot + 1, (0, Trace::Answer));
        }
        if let Some(last) = client.traces.get_mut(slot) {
            *last = (seq, trace);
        }
    }

    /// What must be known of a request in another run.
    pub(crate) fn trace(&self, client: ClientId, slot: u16, seq: u64) -> Trace {
        let traces = self.all.get(&client).map(|client| &client.traces);
        let last = traces.and_then(|traces| traces.get(usize::from(slot)));
        last.filter(|(of, _)| *of == seq).map_or(Trace::Answer, |(_, trace)| *trace)
    }

    /// Whether all clients of the last run are refused by all OSTs.
    pub(crate) fn old_are_fenced(&self) -> bool {
        self.old.is_empty()
    }

    /// Whether no OST in use has a client to refuse.
    pub(crate) fn all_are_fenced(&self) -> bool {
        self.fencing.is_empty()
    }

    /// Whether one of these OSTs has a client to refuse, also one that nobody waits for any more.
    pub(crate) fn owes(&self, any: impl Fn(u32) -> bool) -> bool {
        self.owed.values().flatten().any(|ost| any(*ost))
    }

    /// Whether a client may open a file under this name.
    pub(crate) fn may_open(&self, client: ClientId, id: OpenId) -> Result<(), Errno> {
        let Some(client) = self.all.get(&client) else { return Ok(()) };
        if client.opens.contains_key(&id) {
            return Err(Errno::EINVAL);
        }
        if client.opens.len() >= OPENS_PER_CLIENT_MAX { Err(Errno::ENFILE) } else { Ok(()) }
    }

    /// A client is thrown out as soon as that can be.
    pub(crate) fn evict_soon(&mut self, client: ClientId) {
        self.to_evict.insert(client);
    }

    /// Whether an administrator wants somebody out.
    pub(crate) fn are_unwanted(&self) -> bool {
        !self.unwanted.is_empty()
    }

    pub(crate) fn open(&mut self, client: ClientId, id: OpenId, file: (Fid, Purpose)) {
        self.all.entry(client).or_default().opens.insert(id, file);
    }

    /// The file of an open, and what for.
    pub(crate) fn opened(&self, client: ClientId, id: OpenId) -> Option<(Fid, Purpose)> {
        self.all.get(&client)?.opens.get(&id).copied()
    }

    /// How often a client has a file open for writing.
    pub(crate) fn writers(&self, client: ClientId, fid: Fid) -> u32 {
        let opens = self.all.get(&client).into_iter().flat_map(|client| client.opens.values());
        opens.map(|(of, purpose)| u32::from(*of == fid && purpose.write)).sum()
    }

    pub(crate) fn close(&mut self, client: ClientId, id: OpenId) {
        if let Some(client) = self.all.get_mut(&client) {
            client.opens.remove(&id);
        }
    }

    /// Who has files open, and how many.
    pub(crate) fn open_files(&self) -> impl Iterator<Item = (ClientId, usize)> + '_ {
        let opens = self.all.iter().map(|(client, of)| (*client, of.opens.len()));
        opens.filter(|(_, files)| *files > 0)
    }

    /// The opens for writing.
    pub(crate) fn writing(&self) -> impl Iterator<Item = (ClientId, OpenId, Fid)> + '_ {
        self.all.iter().flat_map(|(client, of)| {
            let writing = of.opens.iter().filter(|(_, (_, purpose))| purpose.write);
            writing.map(|(id, (fid, _))| (*client, *id, *fid))
        })
    }

    pub(crate) fn seqs(&self, client: ClientId) -> usize {
        self.all.get(&client).map_or(0, |client| client.seqs.len())
    }

    pub(crate) fn granted(&mut self, client: ClientId, seq: Seq) {
        self.all.entry(client).or_default().seqs.push(seq);
    }
}

impl Mdt {
    /// A request came. Returns how far the journal must be durable before it is answered: an
    /// MDT that restarts has to know who may be writing.
    pub(crate) fn record_client(
        &mut self,
        client: ClientId,
        slot: u16,
        request: &MdtRequest,
    ) -> u64 {
        if !request.is_noted() {
            return 0;
        }
        if let Some(since) = self.clients.used_slot(client, slot) {
            return since;
        }
        self.batch.clear();
        let record = self.client_record(client);
        self.batch.put(&keys::client(client), &record);
        let since = self.core.commit(&self.batch);
        let slots = slot.saturating_add(1);
        self.clients.all.insert(client, Client { slots, since, ..Client::default() });
        since
    }

    fn client_record(&self, client: ClientId) -> ClientRecord {
        let export = self.core.exports.reached(client);
        let (peer, attempt) = export.unwrap_or((Endpoint::Client(client), 0));
        let features = self.core.exports.features(client).unwrap_or_default();
        let speaks = features & SPEAKS != 0;
        ClientRecord { refused: false, lost: false, speaks, peer, attempt }
    }

    /// A client connects, perhaps as the successor of one that it does not trust any more.
    pub(crate) fn connect(&mut self, message: Message, out: &mut Outbox) {
        let header = message.header;
        self.core.admit(message, out);
        while let Some(old) = self.core.exports.predecessor(header.client, header.from) {
            self.evict(old, Why::Succeeded, out);
        }
    }

    /// A client of the last run, or of one before: it is refused here, and if it is not yet by
    /// the OSTs, it shall be.
    pub(crate) fn fence_old(&mut self, client: ClientId, record: ClientRecord) {
        self.core.exports.fence(client);
        if record.refused {
            return;
        }
        let osts = self.fence_everywhere(client);
        if !osts.is_empty() {
            self.clients.fencing.insert(client, osts);
            self.clients.old.insert(client);
        }
    }

    /// A client is lost: it loses everything here, and the OSTs refuse it from now on.
    pub(crate) fn evict(&mut self, client: ClientId, why: Why, out: &mut Outbox) {
        let heard = self.core.exports.heard(client).unwrap_or_default();
        tracing::warn!(
            client = format_args!("{:x}", client.0),
            heard_ms_ago = heard.ago_ns / 1_000_000,
            "evicting a client: {}",
            why.said()
        );
        stats::evicted(&mut self.counters, client, why);
        if let Some(message) = self.core.callback(client, Callback::Evicted) {
            out.send(message);
        }
        let record = ClientRecord { lost: true, ..self.client_record(client) };
        self.core.exports.fence(client);
        self.batch.clear();
        self.batch.put(&keys::client(client), &record);
        let lost_in = self.core.commit(&self.batch);
        self.clients.lost_in.insert(client, lost_in);
        let expected = self.recovery.forget(client);
        let osts = self.fence_everywhere(client);
        self.gone(client);
        let nowhere = osts.is_empty();
        self.clients.fencing.insert(client, osts);
        if expected {
            // It may not have told all that it had.
            self.clients.old.insert(client);
        }
        if nowhere {
            self.let_go(client);
        }
        if !self.clients.owed.contains_key(&client) {
            self.refused(client);
        }
    }

    /// Throws out those who are to be. Not before the start has noted which run it follows: if the MDT
    /// crashed once more before that, the next start would take this transaction for one of the last
    /// run, and a client believe that a lost change of its own with that number is there.
    pub(crate) fn evict_those(&mut self, out: &mut Outbox) {
        while let Some(client) = self.clients.to_evict.pop_first() {
            self.evict(client, Why::Asked, out);
        }
    }

    /// Has a client refused by all OSTs; those that are waited for. One that is not in use is told
    /// as soon as it can be.
    fn fence_everywhere(&mut self, client: ClientId) -> BTreeSet<u32> {
        self.osp.fence(client);
        let osts: BTreeSet<u32> = self.osp.indices().into_iter().collect();
        let waited = osts.iter().copied().filter(|ost| self.alloc.is_active(*ost)).collect();
        if !osts.is_empty() {
            self.clients.owed.insert(client, osts);
        }
        waited
    }

    /// An OST refuses an evicted client from now on.
    pub(crate) fn fenced(&mut self, ost: u32, client: ClientId) {
        self.not_waited_for(ost, client);
        let Some(left) = self.clients.owed.get_mut(&client) else { return };
        left.remove(&ost);
        if left.is_empty() {
            self.clients.owed.remove(&client);
            self.doubt_glimpses();
            self.refused(client);
        }
    }

    fn not_waited_for(&mut self, ost: u32, client: ClientId) {
        let Some(left) = self.clients.fencing.get_mut(&client) else { return };
        left.remove(&ost);
        if left.is_empty() {
            self.let_go(client);
        }
    }

    /// Takes an OST out of use, or back into it: out of use it gets no new objects, and nobody
    /// waits for it. What it has to remove it is told when it can be reached.
    pub fn set_ost_active(&mut self, ost: u32, active: bool) {
        if !self.alloc.set_active(ost, active) {
            return;
        }
        self.look_at_cuttings = true;
        if active {
            let owed = &self.clients.owed;
            let owes = |client: &ClientId| owed.get(client).is_some_and(|all| all.contains(&ost));
            for (_, left) in self.clients.fencing.iter_mut().filter(|(client, _)| owes(client)) {
                left.insert(ost);
            }
            return;
        }
        let waiting: Vec<ClientId> = self.clients.fencing.keys().copied().collect();
        for client in waiting {
            self.not_waited_for(ost, client);
        }
    }

    /// All OSTs that are in use refuse a lost client: others may have what it had, as soon as another
    /// run would know that it is lost.
    fn let_go(&mut self, client: ClientId) {
        let lost_in = self.clients.lost_in.get(&client);
        if lost_in.is_some_and(|transno| *transno > self.core.store.committed()) {
            return;
        }
        self.clients.lost_in.remove(&client);
        self.clients.fencing.remove(&client);
        self.clients.old.remove(&client);
        self.doubt_glimpses();
        self.locks.release_client(client);
        // Not before, whatever they are on: whoever has such a lock next counts on that nobody
        // writes late to anything that it stands for.
        self.file_locks.drop_client(client);
    }

    /// Those of whom it is durable by now that they are lost.
    pub(crate) fn let_go_of_lost(&mut self) {
        if self.clients.lost_in.is_empty() {
            return;
        }
        let committed = self.core.store.committed();
        let Clients { fencing, lost_in, .. } = &self.clients;
        let nobody_else = |client: &ClientId| fencing.get(client).is_none_or(BTreeSet::is_empty);
        let due = lost_in.iter().filter(|(_, transno)| **transno <= committed);
        let due: Vec<ClientId> = due.map(|(client, _)| *client).filter(nobody_else).collect();
        for client in due {
            self.let_go(client);
        }
    }

    /// Has a client thrown out at the next tick, as an administrator does.
    ///
    /// # Errors
    /// `ENOENT` if it is not connected.
    pub fn want_out(&mut self, client: ClientId) -> Result<(), Errno> {
        if !self.is_connected(client) {
            return Err(Errno::ENOENT);
        }
        self.clients.unwanted.insert(client);
        Ok(())
    }

    /// Throws out whoever has been silent for too long, and who is not wanted. Not while requests
    /// are held: nobody is served then, and the last thing heard of a client may be its goodbye.
    pub(crate) fn evict_silent(&mut self, out: &mut Outbox) -> bool {
        let patience = self.config.patience;
        if !self.held.is_empty() || self.must_hold() {
            return false;
        }
        let mut unwanted = core::mem::take(&mut self.clients.unwanted);
        unwanted.retain(|client| self.is_connected(*client));
        for client in &unwanted {
            self.evict(*client, Why::Asked, out);
        }
        let silent = self.core.silent(&patience);
        for client in &silent {
            self.evict(*client, Why::Silent, out);
        }
        !silent.is_empty() || !unwanted.is_empty()
    }

    /// A lost client writes nothing any more. Whoever has looked at objects until now may have done
    /// so before its last write: he has to look once more.
    pub(crate) fn doubt_glimpses(&mut self) {
        self.glimpse_floor = self.core.store.transno();
    }

    /// All OSTs refuse a lost client.
    fn refused(&mut self, client: ClientId) {
        let record = ClientRecord { refused: true, lost: true, ..self.client_record(client) };
        self.batch.clear();
        self.batch.put(&keys::client(client), &record);
        self.core.commit(&self.batch);
    }

    /// A client said good-bye.
    pub(crate) fn disconnected(&mut self, client: ClientId) {
        self.gone(client);
        self.locks.release_client(client);
        self.file_locks.drop_client(client);
        if !self.clients.owed.contains_key(&client) {
            self.llog.remove(keys::client(client));
        }
    }

    fn gone(&mut self, client: ClientId) {
        self.counters.gone(client);
        self.recovery.forget(client);
        let opens = &mut self.opens;
        for ticket in self.locks.drop_client(client, |fid| opens.lost(fid)) {
            self.parked.remove(&ticket);
            self.tickets.retain(|_, other| *other != ticket);
        }
        self.file_locks.drop_waits(client);
        self.held.retain(|message| message.header.client != client);
        self.unfenced.retain(|(message, _)| message.header.client != client);
        let Some(gone) = self.clients.all.remove(&client) else { return };
        for (fid, purpose) in gone.opens.into_values() {
            if self.opens.close(fid, client, purpose) {
                self.works.push_back(Work::Orphan(fid));
            }
        }
        // Whatever the client created is in earlier transactions, so once the removal of the
        // grant is durable no object can be without its inode.
        self.batch.clear();
        for seq in &gone.seqs {
            self.seqs.forget(*seq);
            self.batch.remove(&keys::grant(*seq));
        }
        for slot in 0..gone.slots {
            self.batch.remove(&keys::slot(client, slot));
        }
        if !self.batch.is_empty() {
            self.core.commit(&self.batch);
        }
    }
}

//! One request on its way: what it came with, and how it may end.

use std::sync::Arc;

use sateen_ldlm::{LockTable, Need, Ticket};
use sateen_osd::{Batch, Prefetched};
use sateen_target::{Core, Fault};
use sateen_types::{Attr, ClientId, Errno, Fid, Layout, Timespec, Timestamp};
use sateen_wire::disk::mdt::ReplySlot;
use sateen_wire::{Grants, Header, Ibits, LockMode, MdtReply, Reply, ReplyBody};

use crate::keys;
use crate::replays::Change;
use crate::room::Room;
use crate::view::Stamp;

/// A request being executed.
pub(crate) struct Op<'a> {
    pub(crate) now: Timestamp,
    pub(crate) header: &'a Header,
    pub(crate) client: ClientId,
    pub(crate) fetched: &'a Prefetched,
    /// Its place among those that wait for locks; having one means that it met contention.
    pub(crate) ticket: Option<Ticket>,
    /// Nobody who is not known here can be writing.
    pub(crate) fenced: bool,
    /// It waits for that.
    pub(crate) waits_for_fences: bool,
    /// It moves a directory to another.
    pub(crate) moves_tree: bool,
    /// The holder of a file's data has told what he knows: nobody had to give anything back.
    pub(crate) told: bool,
    /// Its client knows what it means that a group is in its way.
    pub(crate) asks_again: bool,
    /// A group has what it wants, and nobody knows for how long.
    pub(crate) grouped: bool,
    /// It is made again: what was decided the first time.
    pub(crate) again: Option<&'a Change>,
}

/// Objects that have to be cut before a request can be answered.
#[derive(Debug, Clone)]
pub(crate) struct Punch {
    pub(crate) fid: Fid,
    pub(crate) size: u64,
    pub(crate) layout: Arc<Layout>,
}

/// How a request ended.
pub(crate) enum Outcome {
    /// With this answer.
    Reply(Reply),
    /// With this answer once everything up to the transno is durable.
    Durable(Reply, u64),
    /// With this answer once the objects are cut.
    Punch(Reply, Punch),
    /// With this answer once the objects are cut that this transaction of an earlier run cuts, if it
    /// does.
    WhenCut(Reply, u64),
}

impl Op<'_> {
    /// Goes on only if no other client holds anything in conflict; `EIO` if nobody knows for how
    /// long, because an OST that is out of use has to cut the file first.
    pub(crate) fn need(&mut self, locks: &mut LockTable, needs: &[Need]) -> Result<(), Fault> {
        if self.again.is_some() {
            // Nobody has been granted anything yet.
            Ok(())
        } else if needs.iter().any(|need| locks.is_stuck(need)) {
            Err(Errno::EIO.into())
        } else if needs.iter().any(|need| locks.is_outside(self.client, need)) && self.asks_again {
            self.leave_to_group()
        } else if locks.require(self.now.mono_ns, self.client, &mut self.ticket, needs) {
            Ok(())
        } else {
            Err(Fault::Blocked)
        }
    }

    /// The same for who is a member of no group, whatever his client has.
    pub(crate) fn need_as_outsider(
        &mut self,
        locks: &mut LockTable,
        need: &Need,
    ) -> Result<(), Fault> {
        if self.again.is_none() && self.asks_again && locks.is_grouped(need) {
            return self.leave_to_group();
        }
        self.need(locks, core::slice::from_ref(need))
    }

    /// The same, but that a group may have what is needed: its members go on as they are.
    pub(crate) fn need_beside_groups(
        &mut self,
        locks: &mut LockTable,
        need: &Need,
    ) -> Result<(), Fault> {
        if self.again.is_some() {
            return Ok(());
        }
        if locks.is_stuck(need) {
            return Err(Errno::EIO.into());
        }
        let now_ns = self.now.mono_ns;
        let free = locks.require_beside_groups(now_ns, self.client, &mut self.ticket, need);
        if free { Ok(()) } else { Err(Fault::Blocked) }
    }

    /// A group has what is wanted: that may last, and nobody waits here for people. Nothing was done yet;
    /// the client hears that, and asks again.
    pub(crate) fn leave_to_group<T>(&mut self) -> Result<T, Fault> {
        self.grouped = true;
        Err(Fault::Blocked)
    }

    /// Goes on only if no client of the last run can be writing any more: for whatever opens
    /// data to others, or makes a size the truth.
    pub(crate) fn need_fences(&mut self) -> Result<(), Fault> {
        if self.again.is_some() {
            return Ok(());
        }
        self.waits_for_fences = !self.fenced;
        if self.fenced { Ok(()) } else { Err(Fault::Blocked) }
    }

    /// Time and number of the transaction that this operation is about to become.
    pub(crate) fn stamp(&self, core: &Core) -> Stamp {
        let time = self.again.map_or(self.now.wall(), |again| again.time);
        Stamp { time, transno: core.store.transno() + 1 }
    }

    /// Goes on only if the disk has room for more; what was done before has its room.
    pub(crate) fn need_room(&self, room: &Room) -> Result<(), Errno> {
        if self.again.is_some() { Ok(()) } else { room.require() }
    }

    /// Makes the batch a transaction, with the reply slot in it.
    pub(crate) fn commit(&self, core: &mut Core, tx: &mut Batch) -> u64 {
        let transno = core.store.transno() + 1;
        let slot = match self.again {
            None => ReplySlot { seq: self.header.seq, transno },
            // How far it has come with what it makes again, of which run.
            Some(again) => ReplySlot { seq: again.transno, transno: again.run },
        };
        tx.put(&keys::slot(self.client, self.header.slot), &slot);
        core.commit(tx)
    }

    /// Adds locks to a reply where nobody is in the way; never after contention, but for that with a
    /// holder who has told what was wanted of him.
    pub(crate) fn grant(
        &self,
        locks: &mut LockTable,
        grants: &mut Grants,
        fid: Fid,
        (mode, bits): (LockMode, Ibits),
    ) {
        if self.ticket.is_none() || self.told {
            self.grant_free(locks, grants, fid, (mode, bits));
        }
    }

    fn grant_free(
        &self,
        locks: &mut LockTable,
        grants: &mut Grants,
        fid: Fid,
        (mode, bits): (LockMode, Ibits),
    ) {
        // What a holder has told is shown, and not to be kept, even if he is lost meanwhile.
        let bits = if self.fenced && !self.told { bits } else { bits.without(Ibits::DATA) };
        if bits.is_empty() {
            return;
        }
        if let Some(grant) = locks.try_grant(self.client, fid, mode, bits) {
            let fits = grants.push(grant);
            debug_assert!(fits, "a reply has room for a directory's and an inode's locks");
        }
    }

    /// The locks wanted on one inode: its data in `data_mode`, the rest for reading.
    pub(crate) fn grant_inode(
        &self,
        locks: &mut LockTable,
        grants: &mut Grants,
        fid: Fid,
        (want, data_mode): (Ibits, LockMode),
    ) {
        self.grant(locks, grants, fid, (LockMode::Pr, want.without(Ibits::DATA)));
        if want.intersects(Ibits::DATA) {
            self.grant(locks, grants, fid, (data_mode, Ibits::DATA));
        }
    }
}

impl Op<'_> {
    /// The same on an inode that this request has made: whomever it met in the directory, nobody
    /// waits for this.
    pub(crate) fn grant_new(
        &self,
        locks: &mut LockTable,
        grants: &mut Grants,
        fid: Fid,
        (want, data_mode): (Ibits, LockMode),
    ) {
        self.grant_free(locks, grants, fid, (LockMode::Pr, want.without(Ibits::DATA)));
        let data = if want.intersects(Ibits::DATA) { Ibits::DATA } else { Ibits::NONE };
        self.grant_free(locks, grants, fid, (data_mode, data));
    }
}

impl Outcome {
    /// A good answer.
    pub(crate) fn ok(body: MdtReply, transno: u64, grants: Grants) -> Outcome {
        Outcome::Reply(reply(body, transno, grants))
    }

    /// A report has changed the inode.
    pub(crate) fn noted(attr: Attr, transno: u64) -> Outcome {
        Outcome::ok(MdtReply::Noted { attr }, transno, Grants::NONE)
    }

    /// "Nothing to say."
    pub(crate) fn done(transno: u64) -> Outcome {
        Outcome::ok(MdtReply::Done, transno, Grants::NONE)
    }
}

/// A good reply.
pub(crate) const fn reply(body: MdtReply, transno: u64, grants: Grants) -> Reply {
    let time = Timespec::from_ns(0);
    Reply { error: None, transno, time, last_committed: 0, grants, body: ReplyBody::Mdt(body) }
}

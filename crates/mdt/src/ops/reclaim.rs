//! `Reclaim`: what a client had of the run before.
//!
//! It is held against the index as a whole before anything of it is taken back. Told once more
//! it changes nothing, since it may come in several messages, over several connections.
//!
//! After a crash an open for writing may be one of a file whose session has not begun: it stands on
//! an earlier one that had begun it, whose transaction is lost, and is not made again because it was
//! never answered. Nothing was written then, since the first write waits until that transaction is
//! durable; so the session begins here, in another.

use sateen_ldlm::{FileLockAnswer, Need};
use sateen_osd::Prefetched;
use sateen_target::Fault;
use sateen_types::{Attr, ClientId, Errno, Fid, Seq};
use sateen_wire::codec::Wire;
use sateen_wire::disk::mdt::SeqGrant;
use sateen_wire::{
    FileLockMode, HeldFileLock, HeldLock, HeldOpen, Ibits, LockId, LockMode, MdtRequest,
};

use super::file_lock;
use super::open::{begin_anew, has_begun};
use crate::keys;
use crate::mdt::Mdt;
use crate::op::{Op, Outcome};
use crate::recovery::Place;
use crate::view::View;

/// The value of the record of an orphan that may be given a name.
pub(crate) const LINKABLE: u8 = 1;

pub(super) fn run(mdt: &mut Mdt, op: &mut Op<'_>, request: &MdtRequest) -> Result<Outcome, Fault> {
    let MdtRequest::Reclaim { locks, opens, seqs, file_locks, last } = request else {
        return Err(Errno::EINVAL.into());
    };
    match mdt.recovery.place(op.client) {
        Place::Stranger => return Err(Errno::ESTALE.into()),
        // It has heard of the end of the window on a connection that is gone.
        Place::Back => return Ok(Outcome::done(0)),
        Place::Expected => {}
    }
    let (mut opens, mut seqs) = (opens.clone(), seqs.clone());
    if *last {
        let (more_opens, more_seqs) = mdt.recovery.of_slots(op.client);
        opens.extend(more_opens);
        seqs.extend(more_seqs);
    }
    opens.retain(|open| !mdt.recovery.has_closed(op.client, open.open_id));
    let mut locks = locks.clone();
    locks.retain(|lock| !mdt.recovery.has_cancelled(op.client, lock.id));
    let file_locks = mdt.recovery.known_file_locks(op.client, file_locks, *last);
    let claims =
        !(locks.is_empty() && opens.is_empty() && seqs.is_empty() && file_locks.is_empty());
    let taken = if claims && mdt.recovery.had_nothing(op.client) {
        Err(Errno::ESTALE.into())
    } else {
        take_back(mdt, op, (&locks, &opens), &seqs, &file_locks)
    };
    match taken {
        Ok(()) if *last => {
            mdt.recovery.told(*op.header);
            // Answered when the window ends.
            Err(Fault::Blocked)
        }
        Ok(()) => Ok(Outcome::done(0)),
        // There is no room in memory for what has to begin anew: it asks again.
        Err(fault @ Fault::Errno(Errno::EAGAIN)) => Err(fault),
        Err(Fault::Errno(error)) => {
            tracing::warn!(client = format_args!("{:x}", op.client.0), %error, "a wrong claim");
            mdt.recovery.refuse(op.client);
            Err(Errno::ESTALE.into())
        }
        Err(fault) => Err(fault),
    }
}

/// Takes back locks of a kind that is told of in a message of its own: all of them, or the client has made
/// a wrong claim.
pub(super) fn take_each<T>(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    claims: impl Iterator<Item = (Fid, LockId, T)>,
    take: impl Fn(&mut Mdt, ClientId, (Fid, LockId, T)) -> bool,
) -> Result<Outcome, Fault> {
    match mdt.recovery.place(op.client) {
        Place::Stranger => return Err(Errno::ESTALE.into()),
        // It has heard of the end of the window on a connection that is gone.
        Place::Back => return Ok(Outcome::done(0)),
        Place::Expected => {}
    }
    let mut taken = !mdt.recovery.had_nothing(op.client);
    for (fid, id, what) in claims {
        View::new(&mdt.core, op.fetched, mdt.config.index).check(fid)?;
        if mdt.recovery.has_cancelled(op.client, id) {
            continue;
        }
        taken &= take(mdt, op.client, (fid, id, what));
    }
    if taken {
        return Ok(Outcome::done(0));
    }
    tracing::warn!(client = format_args!("{:x}", op.client.0), "a wrong claim to a lock");
    mdt.recovery.refuse(op.client);
    Err(Errno::ESTALE.into())
}

/// The file of an open.
struct File {
    attr: Attr,
    /// It may be given its first name.
    linkable: bool,
    /// It is open for writing, and its session has to begin anew.
    begins: bool,
}

/// Takes everything back, or nothing if something is not in memory.
fn take_back(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    (locks, opens): (&[HeldLock], &[HeldOpen]),
    seqs: &[Seq],
    file_locks: &[HeldFileLock],
) -> Result<(), Fault> {
    let files = look_up(mdt, op.fetched, opens);
    let granted = are_granted(mdt, op, seqs);
    let (files, ()) = match (files, granted) {
        (Err(Fault::Miss), Ok(()) | Err(Fault::Miss)) | (Ok(_), Err(Fault::Miss)) => {
            return Err(Fault::Miss);
        }
        (files, granted) => (files?, granted?),
    };
    if files.iter().flatten().any(|file| file.begins) && mdt.core.store.must_wait() {
        return Err(Errno::EAGAIN.into());
    }
    for lock in locks {
        View::new(&mdt.core, op.fetched, mdt.config.index).check(lock.fid)?;
    }
    for (open, file) in opens.iter().zip(&files) {
        match file {
            Some(File { attr, linkable, begins }) => {
                let attr = if *begins { begin_anew(mdt, op, open.fid)? } else { *attr };
                mdt.reopen(op.client, open, (&attr, *linkable))?;
            }
            None => mdt.recovery.was_closed(op.client, open.open_id),
        }
    }
    for seq in seqs {
        mdt.regrant(op.client, *seq)?;
    }
    for HeldLock { fid, id, mode, bits } in locks.iter().copied() {
        // Of a group lock it is to be told for which group, and of a part with which records.
        let is_apart = matches!(mode, LockMode::Group | LockMode::Part);
        if is_apart || !mdt.locks.reclaim(op.client, &Need::of(fid, mode, bits), id) {
            return Err(Errno::ESTALE.into());
        }
        if mode.is_shared() && bits.intersects(Ibits::DATA) {
            mdt.contention.goes_on(op.now.mono_ns, fid);
        }
    }
    for HeldFileLock { fid, open_id, lock } in file_locks {
        let (client, id) = (op.client, *open_id);
        if mdt.recovery.has_closed(client, id) || mdt.recovery.is_closed(client, id) {
            continue;
        }
        file_lock::check(mdt, op, (*fid, *open_id), lock)?;
        let set = lock.mode != FileLockMode::Unlock
            && mdt.file_locks.set((op.client, *open_id), *fid, lock, None)?
                == FileLockAnswer::Granted;
        if !set {
            return Err(Errno::ESTALE.into());
        }
    }
    Ok(())
}

/// The open files; `None` for one that has gone, or whose session has ended, with the close that its
/// client has not heard of.
fn look_up(
    mdt: &Mdt,
    fetched: &Prefetched,
    opens: &[HeldOpen],
) -> Result<Vec<Option<File>>, Fault> {
    let view = View::new(&mdt.core, fetched, mdt.config.index);
    let mut missed = false;
    let mut files = Vec::with_capacity(opens.len());
    for open in opens {
        let file = view.file(open.fid).and_then(|inode| {
            let attr = inode.attr;
            let begins = open.flags.write && super::is_regular(&attr) && !has_begun(&attr);
            // Of one that is being closed the close may have ended it.
            let may_begin = mdt.recovery.follows_crash() && !open.closing;
            if begins && (!may_begin || inode.layout.is_empty()) {
                return Err(Errno::ESTALE.into());
            }
            let nameless = attr.nlink == 0;
            let value = if nameless { view.get(&keys::orphan(open.fid))? } else { None };
            let linkable = value.is_some_and(|value| value == [LINKABLE]);
            Ok(File { attr, linkable, begins })
        });
        match file {
            Ok(file) => files.push(Some(file)),
            Err(Fault::Errno(_)) if open.closing => files.push(None),
            Err(Fault::Miss) => missed = true,
            Err(fault) => return Err(fault),
        }
    }
    if missed { Err(Fault::Miss) } else { Ok(files) }
}

/// Whether the sequences were granted to this client.
fn are_granted(mdt: &Mdt, op: &Op<'_>, seqs: &[Seq]) -> Result<(), Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let mut missed = false;
    for seq in seqs {
        match view.get(&keys::grant(*seq)) {
            Ok(Some(value)) => {
                let grant = SeqGrant::from_bytes(value).map_err(|_| Errno::EIO)?;
                if grant.client != op.client {
                    return Err(Errno::ESTALE.into());
                }
            }
            Ok(None) => return Err(Errno::ESTALE.into()),
            Err(Fault::Miss) => missed = true,
            Err(fault) => return Err(fault),
        }
    }
    if missed { Err(Fault::Miss) } else { Ok(()) }
}

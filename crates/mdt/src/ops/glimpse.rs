//! Looking at a file whose data another client has for writing: he is asked for size and times, and
//! keeps his lock (docs/protocol.md, *Looking at what is being written*).

use sateen_ldlm::{LockTable, Look};
use sateen_target::Fault;
use sateen_types::{Attr, ClientId, Errno, Fid};
use sateen_wire::SizeReport;

use super::{FILE_SIZE_MAX, reads_size, shown};
use crate::mdt::Mdt;
use crate::op::{Op, Outcome};
use crate::opens::Opens;
use crate::view::View;

/// What there is to be known of an inode's size beside what is stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen(Look);

impl Op<'_> {
    /// Goes on only if the size of an inode is known, or its holder has told it.
    pub(super) fn look(&mut self, locks: &mut LockTable, attr: &Attr) -> Result<Seen, Fault> {
        let need = reads_size(attr.fid);
        if locks.is_stuck(&need) {
            return Err(Errno::EIO.into());
        }
        let now_ns = self.now.mono_ns;
        match locks.look(now_ns, self.client, &mut self.ticket, (&need, attr.version)) {
            Look::Wait => Err(Fault::Blocked),
            look => {
                self.told = matches!(look, Look::Told(_));
                Ok(Seen(look))
            }
        }
    }
}

impl Seen {
    /// Nobody was asked.
    pub(super) const NOTHING: Seen = Seen(Look::Free);

    /// Attributes as they are shown. What the holder told is as good as his own look, but for the
    /// ctime: it is never later than the one that his report will be given.
    pub(super) fn shown(
        self,
        (opens, locks): (&Opens, &LockTable),
        (op, attr): (&Op<'_>, Attr),
    ) -> Attr {
        match self.0 {
            Look::Told(told) => with(attr, &told, op),
            // What he knew has come with the lock; whoever has it now has told nothing yet.
            Look::Passed => {
                let known = opens.get(attr.fid).is_some_and(|file| file.known);
                Attr { size_stale: attr.size_stale && !known, ..attr }
            }
            Look::Free | Look::Wait => shown(opens, locks, op.client, attr),
        }
    }
}

fn with(attr: Attr, told: &SizeReport, op: &Op<'_>) -> Attr {
    let mtime = told.mtime.unwrap_or(attr.mtime);
    // Of what he has reported before the ctime is known.
    let ctime =
        if mtime == attr.mtime { attr.ctime } else { attr.ctime.max(mtime.min(op.now.wall())) };
    Attr {
        size: told.size.min(FILE_SIZE_MAX),
        blocks: told.blocks,
        mtime,
        atime: attr.atime.max(told.atime.unwrap_or(attr.atime)),
        ctime,
        size_stale: false,
        ..attr
    }
}

/// A holder answers.
pub(super) fn answer(
    mdt: &mut Mdt,
    op: &Op<'_>,
    (fid, question): (Fid, u64),
    told: Option<SizeReport>,
) -> Result<Outcome, Fault> {
    let client: ClientId = op.client;
    // Of a question that was put again, or by the run before.
    if mdt.locks.is_asked(client, fid, question) {
        let view = View::new(&mdt.core, op.fetched, mdt.config.index);
        let version = view.inode(fid)?.map(|inode| inode.attr.version);
        let told = told.filter(|told| told.mtime.is_some() && version.is_some());
        mdt.locks.answered((client, fid, question), told, version.unwrap_or_default());
    }
    Ok(Outcome::done(0))
}

//! `ReportSize`, and what a report in a cancel or close does: the size comes home.

use sateen_ldlm::{Held, LockTable, Need};
use sateen_target::Fault;
use sateen_types::{Attr, Errno, Fid, Timespec};
use sateen_wire::{Ibits, SizeReport};

use super::xattr::drop_capabilities;
use super::{FILE_SIZE_MAX, put_inode, reads_data, reads_size, shares_data, writes_data};
use crate::mdt::Mdt;
use crate::op::{Op, Outcome};
use crate::view::{Stamp, View};

/// Whether a report would change anything.
pub(super) fn changes(attr: &Attr, report: &SizeReport) -> bool {
    report.size != attr.size
        || report.blocks != attr.blocks
        || report.mtime.is_some()
        || report.atime.is_some_and(|at| at > attr.atime)
}

/// Takes a report over into the attributes. The times are the reporter's: it has seen the
/// writes.
pub(super) fn apply(attr: &mut Attr, report: &SizeReport, stamp: &Stamp) {
    attr.size = report.size.min(FILE_SIZE_MAX);
    attr.blocks = report.blocks;
    attr.atime = attr.atime.max(report.atime.unwrap_or(attr.atime));
    attr.version = stamp.transno;
    if let Some(mtime) = report.mtime {
        attr.mtime = mtime;
        stamp.touch(attr);
    }
}

/// The same from one of several who write at a time: how far and when he has written, and how many
/// blocks; of others he knows nothing. A file becomes shorter only when nobody holds a shared lock,
/// and what was told before: so the furthest that anybody tells is its end.
pub(super) fn shared(attr: &mut Attr, report: &SizeReport, stamp: &Stamp) {
    attr.size = attr.size.max(report.size.min(FILE_SIZE_MAX));
    let all = attr.size.div_ceil(4096).saturating_mul(8);
    attr.blocks = attr.blocks.saturating_add(report.blocks).min(all.max(attr.blocks));
    attr.atime = attr.atime.max(report.atime.unwrap_or(attr.atime));
    attr.version = stamp.transno;
    if let Some(mtime) = report.mtime {
        // One in the future was set by somebody, and it is written since.
        let before = if attr.mtime > stamp.time { mtime } else { attr.mtime };
        attr.mtime = before.max(mtime);
        stamp.touch(attr);
    }
}

/// Takes over what [`read_at`] has found.
pub(super) fn accessed(attr: &mut Attr, read_at: Option<Timespec>, stamp: &Stamp) {
    if let Some(at) = read_at {
        attr.atime = attr.atime.max(at);
        attr.version = stamp.transno;
    }
}

/// A report that tells the size. One of a reader tells when he read, and what comes along may be
/// older than a truncation that is under way.
pub(super) fn of_size(report: &SizeReport) -> bool {
    report.mtime.is_some()
}

/// Whether a report says that something was written.
pub(super) fn wrote(report: &SizeReport) -> bool {
    report.mtime.is_some() || report.size > 0
}

/// The atime that a reader reports, if it is news. Who does not hold a file's data any more may
/// be telling what is older than the atime that somebody has set since.
///
/// Others may show the old one only as long as they hold both the attributes and the data, and
/// a reader does not take their data away: it is the attributes that they have to give back.
pub(super) fn read_at(
    locks: &mut LockTable,
    op: &mut Op<'_>,
    attr: &Attr,
    report: Option<&SizeReport>,
) -> Result<Option<Timespec>, Fault> {
    let Some(at) = report.and_then(|report| report.atime).filter(|at| *at > attr.atime) else {
        return Ok(None);
    };
    let fid = attr.fid;
    if attr.is_dir() {
        // All who look names up there hold its attributes: they are left in peace.
        return Ok(Some(at));
    }
    if !locks.covers(op.client, &reads_data(fid)) {
        return Ok(None);
    }
    // Who has to give the data back must not wait for others meanwhile: as with a cancel, nobody
    // is asked to forget the old one.
    let leaves = locks.gives_back(op.client, fid, Ibits::DATA);
    // Who shares the data shows nothing of what he knows.
    let shows = |held: Held| {
        held.client != op.client && held.bits.intersects(Ibits::DATA) && !held.mode.is_shared()
    };
    if !leaves && locks.holders(fid).any(shows) {
        op.need(locks, &[Need::all_gone(fid, Ibits::UPDATE)])?;
    }
    Ok(Some(at))
}

pub(super) fn run(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    fid: Fid,
    report: &SizeReport,
    glimpsed: Option<u64>,
) -> Result<Outcome, Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let mut inode = view.file(fid)?;
    if report.size > FILE_SIZE_MAX {
        return Err(Errno::EFBIG.into());
    }
    let may_write = || mdt.clients.owes(|ost| mdt.alloc.is_active(ost));
    if glimpsed.is_some() && (!op.fenced || may_write()) {
        // It is right for now. What a client of the last run, or one that an OST which was out of
        // use has not refused yet, may still write, who asks once it is fenced will find.
        return for_now(mdt, op, fid, (report, glimpsed));
    }
    let mut report = *report;
    let mut holder = mdt.locks.covers(op.client, &writes_data(fid));
    let mut settles = false;
    if let Some(version) = glimpsed {
        let in_time = version == inode.attr.version && inode.attr.size_stale;
        settles = in_time
            && !holder
            && mdt.opens.writers(fid) == 0
            && !mdt.locks.in_conflict(op.client, &reads_size(fid));
        // Once a holder has said what he knows, a glimpse made before that is outdated.
        holder &= in_time && !mdt.opens.get(fid).is_some_and(|file| file.known);
        if (settles || holder) && version <= mdt.glimpse_floor {
            // By the new version whoever asks sees that he has to look once more.
            inode.attr.version = op.stamp(&mdt.core).transno;
            mdt.batch.clear();
            put_inode(&mut mdt.batch, &inode);
            let attr = inode.attr;
            return Ok(Outcome::noted(attr, op.commit(&mut mdt.core, &mut mdt.batch)));
        }
        // Beyond what the objects prove lies a hole: only truncates make files smaller.
        report.size = report.size.max(inode.attr.size);
    }
    holder &= glimpsed.is_some() || of_size(&report);
    let shares = !holder
        && glimpsed.is_none()
        && of_size(&report)
        && mdt.locks.covers(op.client, &shares_data(fid));
    let told = shares || holder && changes(&inode.attr, &report);
    let read_at = if glimpsed.is_none() {
        read_at(&mut mdt.locks, op, &inode.attr, Some(&report))?
    } else {
        None
    };
    if !settles && !told && read_at.is_none() {
        if holder {
            mdt.opens.reported(fid, wrote(&report));
        }
        return Ok(Outcome::done(0));
    }
    let stamp = op.stamp(&mdt.core);
    mdt.batch.clear();
    if settles || told {
        drop_capabilities(&view, &mut mdt.batch, &mut inode)?;
        if shares {
            shared(&mut inode.attr, &report, &stamp);
        } else {
            apply(&mut inode.attr, &report, &stamp);
        }
        inode.attr.size_stale &= !settles;
    } else {
        accessed(&mut inode.attr, read_at, &stamp);
    }
    put_inode(&mut mdt.batch, &inode);
    let attr = inode.attr;
    let transno = op.commit(&mut mdt.core, &mut mdt.batch);
    if holder {
        mdt.opens.reported(fid, wrote(&report));
    } else if shares {
        mdt.opens.shared_wrote(fid);
    }
    Ok(Outcome::noted(attr, transno))
}

/// Somebody has asked the objects while others may still write them. When they were written is not
/// found again once the inode is changed, because nobody tells a time from before its ctime: that is
/// noted, and the size as little known as before.
fn for_now(
    mdt: &mut Mdt,
    op: &Op<'_>,
    fid: Fid,
    (report, version): (&SizeReport, Option<u64>),
) -> Result<Outcome, Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let mut inode = view.file(fid)?;
    let in_time = version == Some(inode.attr.version) && inode.attr.size_stale;
    // Not twice, and no time that is still to come, if the clock of an OST is ahead: the ctime would be
    // older, and what somebody sets meanwhile be undone. And whoever may be writing tells it himself.
    let now = op.stamp(&mdt.core).time;
    let mtime = report.mtime.filter(|mtime| in_time && *mtime != inode.attr.mtime && *mtime <= now);
    let mtime = mtime.filter(|_| {
        mdt.opens.writers(fid) == 0
            && !mdt.locks.covers(op.client, &writes_data(fid))
            && !mdt.locks.in_conflict(op.client, &reads_size(fid))
    });
    let Some(mtime) = mtime else { return Ok(Outcome::done(0)) };
    let stamp = op.stamp(&mdt.core);
    mdt.batch.clear();
    drop_capabilities(&view, &mut mdt.batch, &mut inode)?;
    inode.attr.mtime = mtime;
    // No later: what is written from now on is to be found as well.
    inode.attr.ctime = inode.attr.ctime.max(mtime.min(stamp.time));
    inode.attr.version = stamp.transno;
    put_inode(&mut mdt.batch, &inode);
    let attr = inode.attr;
    Ok(Outcome::noted(attr, op.commit(&mut mdt.core, &mut mdt.batch)))
}

//! `ReportSize`, and what a report in a cancel or close does: the size comes home.

use sateen_target::Fault;
use sateen_types::{Attr, Errno, Fid};
use sateen_wire::SizeReport;

use super::{FILE_SIZE_MAX, put_inode, reads_size, writes_data};
use crate::mdt::Mdt;
use crate::op::{Op, Outcome};
use crate::view::{Stamp, View};

/// Whether a report would change anything.
pub(super) fn changes(attr: &Attr, report: &SizeReport) -> bool {
    report.size != attr.size
        || report.blocks != attr.blocks
        || report.mtime.is_some()
        || report.atime.is_some()
}

/// Takes a report over into the attributes. The times are the reporter's: it has seen the
/// writes.
pub(super) fn apply(attr: &mut Attr, report: &SizeReport, stamp: &Stamp) {
    attr.size = report.size.min(FILE_SIZE_MAX);
    attr.blocks = report.blocks;
    attr.atime = report.atime.unwrap_or(attr.atime);
    attr.version = stamp.transno;
    if let Some(mtime) = report.mtime {
        attr.mtime = mtime;
        stamp.touch(attr);
    }
}

/// Whether a report says that something was written.
pub(super) fn wrote(report: &SizeReport) -> bool {
    report.mtime.is_some() || report.size > 0
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
    if glimpsed.is_some() {
        op.need_fences()?;
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
        // Beyond what the objects prove lies a hole: only truncates make files smaller.
        report.size = report.size.max(inode.attr.size);
    }
    if !settles && (!holder || !changes(&inode.attr, &report)) {
        if holder {
            mdt.opens.reported(fid, wrote(&report));
        }
        return Ok(Outcome::done(0));
    }
    let stamp = op.stamp(&mdt.core);
    apply(&mut inode.attr, &report, &stamp);
    inode.attr.size_stale &= !settles;
    mdt.batch.clear();
    put_inode(&mut mdt.batch, &inode);
    let transno = op.commit(&mut mdt.core, &mut mdt.batch);
    if holder {
        mdt.opens.reported(fid, wrote(&report));
    }
    Ok(Outcome::done(transno))
}

//! Whether the objects of a file can hold what its MDT has noted of them.
//!
//! A file without an object reads as zeros there, as any hole does, so an object that is gone is
//! seen here alone. It is no proof: what was written and not synced before an OST crashed is as
//! gone, and room that was set aside behind the end of an object is noted and has no bytes.

use sateen_types::{Fid, Layout, ObjectId};
use sateen_wire::disk::mdt::Inode;

use crate::{Check, Kind, Step};

/// What an object may take beyond its bytes: the last block, and what a disk needs to find the
/// others.
const OBJECT_MORE_BYTES: u64 = 64 << 10;
const BLOCK_BYTES: u64 = 512;

/// Holds the space that the MDT has noted against the sizes of the objects.
pub(crate) fn check(check: &mut Check<'_>, fid: Fid, inode: &Inode<'_>, layout: &Layout) -> Step {
    let noted = inode.attr.blocks.saturating_mul(BLOCK_BYTES);
    if noted == 0 || inode.attr.size_stale {
        return Ok(());
    }
    let (mut bytes, mut gone) = (0u64, Vec::new());
    for (stripe, index) in layout.objects() {
        // That a whole OST is missing is known.
        let Some(ost) = check.fs.osts.get(&index) else { return Ok(()) };
        let stat = ost.objects.stat(&[ObjectId { fid, stripe }])?;
        let size = stat.first().map_or(0, |stat| stat.size);
        bytes = bytes.saturating_add(size).saturating_add(size / 16 + OBJECT_MORE_BYTES);
        if size == 0 {
            gone.push(format!("{stripe} on OST{index:04x}"));
        }
    }
    if noted <= bytes {
        return Ok(());
    }
    let empty = match gone.is_empty() {
        true => String::new(),
        false => format!("; objects without bytes: {}", gone.join(", ")),
    };
    let what = format!(
        "inode {fid}: the MDT has noted {noted} bytes of data, and its objects are too small for \
         them{empty}"
    );
    let fix = "if no OST has crashed before it was synced, objects are lost: compare the file with \
               a copy (lfs fid2path names it)";
    check.found(Kind::Note, what, fix);
    Ok(())
}

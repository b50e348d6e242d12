//! `ReadLink`: the target of a symbolic link.

use bytes::Bytes;
use sateen_target::Fault;
use sateen_types::{Errno, Fid, FileKind};
use sateen_wire::{Grants, MdtReply};

use crate::mdt::Mdt;
use crate::op::{Op, Outcome};
use crate::view::View;

pub(super) fn run(mdt: &Mdt, op: &Op<'_>, fid: Fid) -> Result<Outcome, Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let inode = view.file(fid)?;
    if inode.attr.kind() != FileKind::Symlink {
        return Err(Errno::EINVAL.into());
    }
    let target = Bytes::copy_from_slice(inode.symlink);
    Ok(Outcome::ok(MdtReply::Bytes(target), 0, Grants::NONE))
}

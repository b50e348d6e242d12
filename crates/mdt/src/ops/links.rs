//! `GetLinks`: under which names an inode stands. The link-EA is short: of very many hard
//! links it holds the first ones.

use bytes::Bytes;
use sateen_target::Fault;
use sateen_types::{Errno, Fid};
use sateen_wire::{Grants, MdtReply};

use crate::mdt::Mdt;
use crate::op::{Op, Outcome};
use crate::view::View;

pub(super) fn run(mdt: &Mdt, op: &Op<'_>, fid: Fid) -> Result<Outcome, Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let inode = view.inode(fid)?.ok_or(Errno::ENOENT)?;
    if inode.attr.nlink == 0 {
        return Err(Errno::ENOENT.into());
    }
    let links = Bytes::copy_from_slice(inode.links);
    Ok(Outcome::ok(MdtReply::Bytes(links), 0, Grants::NONE))
}

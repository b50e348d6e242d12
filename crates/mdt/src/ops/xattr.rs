//! Extended attributes. How many an inode has stands in its record, so that the question for
//! one that is not there, which kernels ask all the time, needs no other record.

use bytes::{Bytes, BytesMut};
use sateen_ldlm::Need;
use sateen_target::Fault;
use sateen_types::{Errno, Fid};
use sateen_wire::disk::mdt::Xattr;
use sateen_wire::{Grants, Ibits, MdtReply, XATTR_VALUE_MAX, XattrMode};

use super::put_inode;
use crate::destroy::XATTRS_MAX;
use crate::keys;
use crate::mdt::Mdt;
use crate::op::{Op, Outcome};
use crate::view::View;

/// Most bytes of all names of one inode, each with its NUL: what `listxattr` can return.
const LIST_BYTES_MAX: usize = 65536;

/// The value of an attribute. Two names with one hash cannot both be stored.
fn find<'a>(view: &View<'a>, fid: Fid, name: &[u8]) -> Result<Option<&'a [u8]>, Fault> {
    let Some(bytes) = view.get(&keys::xattr(fid, view.hash_key, name))? else { return Ok(None) };
    let xattr = Xattr::decode(bytes).map_err(|_| Errno::EIO)?;
    if xattr.name == name { Ok(Some(xattr.value)) } else { Err(Errno::ENOSPC.into()) }
}

pub(super) fn get(mdt: &Mdt, op: &Op<'_>, fid: Fid, name: &[u8]) -> Result<Outcome, Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    if view.file(fid)?.xattrs == 0 {
        return Err(Errno::ENODATA.into());
    }
    let found = match find(&view, fid, name) {
        Err(Fault::Errno(Errno::ENOSPC)) => None,
        other => other?,
    };
    let value = Bytes::copy_from_slice(found.ok_or(Errno::ENODATA)?);
    Ok(Outcome::ok(MdtReply::Bytes(value), 0, Grants::NONE))
}

/// All names, each with a NUL.
fn names(view: &View<'_>, fid: Fid) -> Result<BytesMut, Fault> {
    let mut list = BytesMut::new();
    let prefix = keys::xattrs(fid);
    let limit = XATTRS_MAX as usize + 1;
    let mut after = Some(prefix);
    while let Some(at) = after {
        after = view.store.scan(&prefix, &at, limit, view.fetched, |_, value| {
            if let Ok(xattr) = Xattr::decode(value) {
                list.extend_from_slice(xattr.name);
                list.extend_from_slice(&[0]);
            }
        })?;
    }
    Ok(list)
}

pub(super) fn list(mdt: &Mdt, op: &Op<'_>, fid: Fid) -> Result<Outcome, Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let list = if view.file(fid)?.xattrs == 0 { BytesMut::new() } else { names(&view, fid)? };
    Ok(Outcome::ok(MdtReply::Bytes(list.freeze()), 0, Grants::NONE))
}

pub(super) fn set(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    fid: Fid,
    name: &[u8],
    (value, mode): (&Bytes, XattrMode),
) -> Result<Outcome, Fault> {
    if value.len() > XATTR_VALUE_MAX {
        return Err(Errno::E2BIG.into());
    }
    mdt.room.require()?;
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let mut inode = view.file(fid)?;
    let exists = find(&view, fid, name)?.is_some();
    match mode {
        XattrMode::Create if exists => return Err(Errno::EEXIST.into()),
        XattrMode::Replace if !exists => return Err(Errno::ENODATA.into()),
        _ => {}
    }
    if !exists {
        let full = inode.xattrs >= XATTRS_MAX
            || inode.xattrs > 0 && names(&view, fid)?.len() + name.len() + 1 > LIST_BYTES_MAX;
        if full {
            return Err(Errno::ENOSPC.into());
        }
    }
    op.need(&mut mdt.locks, &[Need::all_gone(fid, Ibits::UPDATE.union(Ibits::XATTR))])?;
    let stamp = op.stamp(&mdt.core);
    mdt.batch.clear();
    let key = keys::xattr(fid, view.hash_key, name);
    mdt.batch.put_with(&key, |out| Xattr { name, value }.put(out));
    inode.xattrs += u32::from(!exists);
    stamp.touch(&mut inode.attr);
    put_inode(&mut mdt.batch, &inode);
    Ok(Outcome::done(op.commit(&mut mdt.core, &mut mdt.batch)))
}

pub(super) fn remove(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    fid: Fid,
    name: &[u8],
) -> Result<Outcome, Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let mut inode = view.file(fid)?;
    let found = match find(&view, fid, name) {
        Err(Fault::Errno(Errno::ENOSPC)) => None,
        other => other?,
    };
    if inode.xattrs == 0 || found.is_none() {
        return Err(Errno::ENODATA.into());
    }
    op.need(&mut mdt.locks, &[Need::all_gone(fid, Ibits::UPDATE.union(Ibits::XATTR))])?;
    let stamp = op.stamp(&mdt.core);
    mdt.batch.clear();
    mdt.batch.remove(&keys::xattr(fid, view.hash_key, name));
    inode.xattrs -= 1;
    stamp.touch(&mut inode.attr);
    put_inode(&mut mdt.batch, &inode);
    Ok(Outcome::done(op.commit(&mut mdt.core, &mut mdt.batch)))
}

//! Extended attributes. How many an inode has stands in its record, so that the question for
//! one that is not there, which kernels ask all the time, needs no other record.

use bytes::{Bytes, BytesMut};
use sateen_ldlm::Need;
use sateen_osd::Batch;
use sateen_target::Fault;
use sateen_types::{Attr, Errno, Fid, FileKind};
use sateen_wire::disk::mdt::{Inode, Xattr};
use sateen_wire::{Grants, Ibits, MdtReply, XATTR_VALUE_MAX, XattrMode};

use super::put_inode;
use crate::acl::{self, Acl};
use crate::destroy::XATTRS_MAX;
use crate::keys;
use crate::mdt::Mdt;
use crate::op::{Op, Outcome};
use crate::view::View;

/// Most bytes of all names of one inode, each with its NUL: what `listxattr` can return.
const LIST_BYTES_MAX: usize = 65536;

/// Most bytes of all values of one inode: 1 MiB. So much is read to list or count them, or to take
/// them away.
const VALUES_BYTES_MAX: usize = 1 << 20;

/// What a program may do beyond what its user may.
const CAPABILITIES: &[u8] = b"security.capability";

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

/// A list of permissions that an inode has.
pub(super) fn acl(view: &View<'_>, inode: &Inode<'_>, name: &[u8]) -> Result<Option<Acl>, Fault> {
    if inode.xattrs == 0 {
        return Ok(None);
    }
    match find(view, inode.attr.fid, name) {
        Err(Fault::Errno(Errno::ENOSPC)) => Ok(None),
        Err(fault) => Err(fault),
        // It was checked when it was set.
        Ok(value) => Ok(Acl::decode(value.unwrap_or_default()).map_err(|_| Errno::EIO)?),
    }
}

/// Puts a list into the batch; whether the inode has it already is the caller's to count.
pub(super) fn put_acl(tx: &mut Batch, hash_key: u64, fid: Fid, (name, acl): (&[u8], &Acl)) {
    let value = acl.encode();
    let key = keys::xattr(fid, hash_key, name);
    tx.put_with(&key, |out| Xattr { name, value: &value }.put(out));
}

/// A program whose content or owner changes has no more capabilities. The kernel leaves that to
/// the file system (`FUSE_HANDLE_KILLPRIV_V2`).
pub(super) fn drop_capabilities(
    view: &View<'_>,
    tx: &mut Batch,
    inode: &mut Inode<'_>,
) -> Result<(), Fault> {
    if inode.xattrs == 0 || inode.attr.kind() != FileKind::Regular {
        return Ok(());
    }
    match find(view, inode.attr.fid, CAPABILITIES) {
        Ok(None) | Err(Fault::Errno(Errno::ENOSPC)) => {}
        Err(fault) => return Err(fault),
        Ok(Some(_)) => {
            tx.remove(&keys::xattr(inode.attr.fid, view.hash_key, CAPABILITIES));
            inode.xattrs -= 1;
        }
    }
    Ok(())
}

/// What setting an attribute means if it is a list of permissions.
enum AsAcl {
    /// It is none.
    Other,
    /// It is kept, and the mode gets these bits, if any.
    Keep(Option<u32>),
    /// It is not there any more, and the mode gets these bits, if any.
    Drop(Option<u32>),
}

fn as_acl(attr: &Attr, name: &[u8], value: &[u8]) -> Result<AsAcl, Errno> {
    let access = name == acl::ACCESS;
    if !access && name != acl::DEFAULT {
        return Ok(AsAcl::Other);
    }
    if attr.kind() == FileKind::Symlink {
        return Err(Errno::EOPNOTSUPP);
    }
    let list = Acl::decode(value)?;
    if !access && !attr.is_dir() {
        return if list.is_some() { Err(Errno::EACCES) } else { Ok(AsAcl::Drop(None)) };
    }
    Ok(match list {
        None => AsAcl::Drop(None),
        Some(list) if access && list.is_mode() => AsAcl::Drop(Some(list.mode_bits())),
        Some(list) => AsAcl::Keep(access.then(|| list.mode_bits())),
    })
}

/// All names, each with a NUL, and how many bytes their values have.
fn names(view: &View<'_>, fid: Fid) -> Result<(BytesMut, usize), Fault> {
    let (mut list, mut bytes) = (BytesMut::new(), 0);
    let prefix = keys::xattrs(fid);
    let limit = XATTRS_MAX as usize + 1;
    let mut after = Some(prefix);
    while let Some(at) = after {
        after = view.store.scan(&prefix, &at, limit, view.fetched, |_, value| {
            if let Ok(xattr) = Xattr::decode(value) {
                list.extend_from_slice(xattr.name);
                list.extend_from_slice(&[0]);
                bytes += xattr.value.len();
            }
        })?;
    }
    Ok((list, bytes))
}

/// Whether an inode may have this value in the place of another, or of none.
fn has_room(
    view: &View<'_>,
    inode: &Inode<'_>,
    (name, old): (&[u8], Option<&[u8]>),
    value: &[u8],
) -> Result<bool, Fault> {
    // A first one always fits.
    if inode.xattrs == 0 || old.is_some_and(|old| value.len() <= old.len()) {
        return Ok(true);
    }
    if old.is_none() && inode.xattrs >= XATTRS_MAX {
        return Ok(false);
    }
    let (list, bytes) = names(view, inode.attr.fid)?;
    let names = if old.is_some() { list.len() } else { list.len() + name.len() + 1 };
    let bytes = bytes + value.len() - old.map_or(0, <[u8]>::len);
    Ok(names <= LIST_BYTES_MAX && bytes <= VALUES_BYTES_MAX)
}

pub(super) fn list(mdt: &Mdt, op: &Op<'_>, fid: Fid) -> Result<Outcome, Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let list = if view.file(fid)?.xattrs == 0 { BytesMut::new() } else { names(&view, fid)?.0 };
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
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let inode = view.file(fid)?;
    let (keep, bits) = match as_acl(&inode.attr, name, value)? {
        AsAcl::Other => (true, None),
        AsAcl::Keep(bits) => (true, bits),
        AsAcl::Drop(bits) => (false, bits),
    };
    let old = find(&view, fid, name)?;
    let exists = old.is_some();
    match mode {
        XattrMode::Create if exists => return Err(Errno::EEXIST.into()),
        XattrMode::Replace if !exists => return Err(Errno::ENODATA.into()),
        _ => {}
    }
    if keep {
        if !has_room(&view, &inode, (name, old), value)? {
            return Err(Errno::ENOSPC.into());
        }
        op.need_room(&mdt.room)?;
    }
    change(mdt, op, (fid, name), (exists, keep.then_some(&value[..])), bits)
}

/// Puts a value in the place of another, or of nothing; the mode gets new permission bits.
fn change(
    mdt: &mut Mdt,
    op: &mut Op<'_>,
    (fid, name): (Fid, &[u8]),
    (exists, value): (bool, Option<&[u8]>),
    bits: Option<u32>,
) -> Result<Outcome, Fault> {
    let view = View::new(&mdt.core, op.fetched, mdt.config.index);
    let mut inode = view.file(fid)?;
    let mut gone = Ibits::UPDATE.union(Ibits::XATTR);
    if name == acl::ACCESS || name == acl::DEFAULT {
        gone = gone.union(Ibits::PERM);
    }
    op.need(&mut mdt.locks, &[Need::all_gone(fid, gone)])?;
    let stamp = op.stamp(&mdt.core);
    mdt.batch.clear();
    let key = keys::xattr(fid, view.hash_key, name);
    match value {
        Some(value) => mdt.batch.put_with(&key, |out| Xattr { name, value }.put(out)),
        None if exists => mdt.batch.remove(&key),
        None => {}
    }
    inode.xattrs = inode.xattrs + u32::from(value.is_some()) - u32::from(exists);
    if let Some(bits) = bits {
        inode.attr.mode = inode.attr.mode & !0o777 | bits;
    }
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
    let inode = view.file(fid)?;
    let found = match find(&view, fid, name) {
        Err(Fault::Errno(Errno::ENOSPC)) => None,
        other => other?,
    };
    if inode.xattrs == 0 || found.is_none() {
        // As ext4: to take a list away that is not there is no error.
        let list = name == acl::ACCESS || name == acl::DEFAULT;
        return if list { Ok(Outcome::done(0)) } else { Err(Errno::ENODATA.into()) };
    }
    change(mdt, op, (fid, name), (true, None), None)
}

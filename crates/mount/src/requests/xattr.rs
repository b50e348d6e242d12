//! Extended attributes.

use sateen_fuse::{Op, Reply};
use sateen_types::{Errno, Fid, Result};
use sateen_wire::{Cred, SetAttr};

use super::Call;
use crate::convert;
use crate::virtual_xattr;
use crate::xattr_names;

impl Call {
    pub(super) async fn xattr(&self, op: Op, uid: u32, reply: Reply) {
        let (value, size) = match op {
            Op::Getxattr { ino, name, size } => {
                (self.get_xattr(ino, (name.as_bytes(), uid)).await, size)
            }
            Op::Listxattr { ino, size } => {
                let names = match convert::fid_of(ino) {
                    Ok(fid) => {
                        let names = self.client.listxattr(fid).await;
                        names.map(|names| xattr_names::visible(&names, uid))
                    }
                    Err(errno) => Err(errno),
                };
                (names, size)
            }
            _ => (Err(Errno::ENOSYS), 0),
        };
        match value {
            Ok(value) if size == 0 => reply.xattr_size(value.len() as u32),
            Ok(value) => reply.bytes(&value),
            Err(errno) => reply.error(errno.raw()),
        }
    }

    async fn get_xattr(&self, ino: u64, named: (&[u8], u32)) -> Result<Vec<u8>> {
        let fid = convert::fid_of(ino)?;
        if let Some(value) = virtual_xattr::get(&self.client, fid, named).await {
            return value;
        }
        xattr_names::check(named.0)?;
        Ok(self.client.getxattr(fid, named.0).await?.to_vec())
    }

    /// An ACL set by somebody outside the file's group takes the set-group-id bit away.
    pub(super) async fn kill_sgid(&self, fid: Fid) -> Result<()> {
        let mode = self.client.getattr(fid).await?.attr.mode & 0o7777;
        if mode & 0o2000 != 0 {
            let set = SetAttr { mode: Some(mode & !0o2000), ..SetAttr::default() };
            self.client.setattr(fid, set, Cred::default()).await?;
        }
        Ok(())
    }
}

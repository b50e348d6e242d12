//! The MDT's name space is the one that was promised.

use super::Records;
use crate::model::Model;

pub(super) fn check(records: &Records, model: &Model) -> Result<(), String> {
    let found = records.names();
    for (fid, inode) in &model.now.inodes {
        match found.inodes.get(fid) {
            None => return Err(format!("{fid} is missing: {inode:?}")),
            Some(other) if other != inode => {
                return Err(format!("{fid} is {other:?} instead of {inode:?}"));
            }
            Some(_) => {}
        }
    }
    match found.inodes.iter().find(|(fid, _)| !model.now.inodes.contains_key(fid)) {
        Some((fid, inode)) => Err(format!("{fid} should not be: {inode:?}")),
        None => Ok(()),
    }
}

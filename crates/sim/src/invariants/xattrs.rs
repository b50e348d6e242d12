//! Every inode has as many extended attributes as it says.

use super::Records;

pub(super) fn check(records: &Records) -> Result<(), String> {
    for (fid, record) in &records.inodes {
        let (counted, there) = &record.xattrs;
        if *counted as usize != there.len() {
            return Err(format!("{fid} counts {counted} extended attributes of {}", there.len()));
        }
    }
    Ok(())
}

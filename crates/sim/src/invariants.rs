//! What must always be true, one file each.

mod entries;
mod locks;
mod model;
mod objects;
mod orphans;
mod sessions;
mod sizes;
mod xattrs;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sateen_types::{Attr, Endpoint, Fid, FileKind, Layout, StripePolicy};
use sateen_wire::codec::Wire;
use sateen_wire::disk::mdt::{Entry, Inode, Xattr, tag};

use crate::host::Host;
use crate::model::Model;
use crate::names::{self, Names, Node};
pub(crate) use locks::TARGET;
pub(crate) use sessions::{Writing, left as session_left};
pub(crate) use sizes::{proven_size, size_covers_objects};

/// An inode of an MDT.
#[derive(Debug, Clone)]
pub struct InodeRecord {
    /// Attributes.
    pub attr: Attr,
    /// Number of entries of a directory.
    pub entries: u64,
    /// The layout of a regular file; in that of a directory, the OSTs of its new files.
    pub layout: Option<Arc<Layout>>,
    /// The striping of a directory's new files.
    pub policy: Option<StripePolicy>,
    /// The target of a symbolic link.
    pub symlink: Vec<u8>,
    /// How many extended attributes it says it has, and those that there are.
    pub xattrs: (u32, BTreeMap<Vec<u8>, Vec<u8>>),
}

/// The records of an MDT.
#[derive(Debug, Default)]
pub struct Records {
    /// Inodes.
    pub inodes: BTreeMap<Fid, InodeRecord>,
    /// Entries: (directory, name) and where they lead.
    pub entries: BTreeMap<(Fid, Vec<u8>), (Fid, FileKind)>,
    /// Orphans.
    pub orphans: BTreeSet<Fid>,
    /// Files whose objects are still to be destroyed.
    pub unlinked: BTreeSet<Fid>,
}

pub(crate) fn fid_of(key: &[u8]) -> Option<Fid> {
    Fid::from_key(key.get(1..13)?)
}

impl Records {
    /// What an MDT holds now. What does not decode is left out, and missed by the checks.
    pub fn of(host: &mut Host) -> Records {
        let mut records = Records::default();
        for (key, value) in host.records(tag::INODE) {
            let Some(fid) = fid_of(&key) else { continue };
            let Ok(inode) = Inode::decode(&value) else { continue };
            records.inodes.insert(
                fid,
                InodeRecord {
                    attr: inode.attr,
                    entries: inode.entries,
                    layout: Layout::from_bytes(inode.layout).ok().map(Arc::new),
                    policy: inode.policy,
                    symlink: inode.symlink.to_vec(),
                    xattrs: (inode.xattrs, BTreeMap::new()),
                },
            );
        }
        for (key, value) in host.records(tag::XATTR) {
            let record = fid_of(&key).and_then(|fid| records.inodes.get_mut(&fid));
            if let (Some(record), Ok(xattr)) = (record, Xattr::decode(&value)) {
                record.xattrs.1.insert(xattr.name.to_vec(), xattr.value.to_vec());
            }
        }
        for (key, value) in host.records(tag::ENTRY) {
            let Some(parent) = fid_of(&key) else { continue };
            let Ok(entry) = Entry::decode(&value) else { continue };
            if let Some(target) = entry.target {
                records.entries.insert((parent, entry.name.to_vec()), target);
            }
        }
        records.orphans = host.records(tag::ORPHAN).iter().filter_map(|r| fid_of(&r.0)).collect();
        records.unlinked = host.records(tag::UNLINK).iter().filter_map(|r| fid_of(&r.0)).collect();
        records
    }

    /// The name space that they make.
    pub fn names(&self) -> Names {
        let mut names = Names { inodes: BTreeMap::new() };
        for (fid, record) in self.inodes.iter().filter(|(_, record)| record.attr.nlink > 0) {
            let node = match record.attr.kind() {
                FileKind::Directory => Node::Dir(BTreeMap::new()),
                FileKind::Symlink => Node::Symlink(record.symlink.clone()),
                FileKind::CharDevice => Node::Device,
                _ => Node::File,
            };
            let mut inode = names::Inode::new(record.attr.mode & 0o7777, record.attr.nlink, node);
            inode.xattrs = record.xattrs.1.clone();
            // A file has its policy for when it gets a layout.
            inode.policy = record.policy.filter(|_| record.attr.is_dir());
            if let Some(layout) = record.layout.as_ref().filter(|_| record.attr.is_dir()) {
                inode.osts = layout.objects().map(|(_, ost)| ost).collect();
            }
            names.inodes.insert(*fid, inode);
        }
        for ((parent, name), (fid, _)) in &self.entries {
            if let Some(names::Inode { node: Node::Dir(entries), .. }) =
                names.inodes.get_mut(parent)
            {
                entries.insert(name.clone(), *fid);
            }
        }
        names
    }
}

/// Checks that hold between any two events.
///
/// # Errors
/// What is wrong.
pub fn check_always(hosts: &mut BTreeMap<Endpoint, Host>) -> Result<(), String> {
    for host in hosts.values_mut() {
        if matches!(host.me, Endpoint::Mdt(_)) && host.process.is_some() {
            let records = Records::of(host);
            entries::check(&records, host.me == Endpoint::Mdt(0))?;
            xattrs::check(&records)?;
            locks::check(host, &records)?;
            host.running_mdt().map_or(Ok(()), sessions::check)?;
        }
    }
    Ok(())
}

/// Checks of a cluster at rest.
///
/// # Errors
/// What is wrong.
pub fn check_all(
    hosts: &mut BTreeMap<Endpoint, Host>,
    model: &Model,
    open: &BTreeSet<Fid>,
) -> Result<(), String> {
    check_always(hosts)?;
    let Some(host) = hosts.get_mut(&Endpoint::Mdt(0)) else { return Ok(()) };
    let records = Records::of(host);
    model::check(&records, model)?;
    orphans::check(&records, open)?;
    locks::check_rest(host)?;
    objects::check(&records, hosts)?;
    sizes::check(&records, hosts, model)
}

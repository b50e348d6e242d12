//! The name space as it should be: what POSIX says that each operation does and answers.

use std::collections::BTreeMap;

use sateen_types::{Errno, Fid, FileKind, Result, StripePolicy};
use sateen_wire::XattrMode;

/// What an inode is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A directory: its entries.
    Dir(BTreeMap<Vec<u8>, Fid>),
    /// A regular file; its bytes stand in `data`.
    File,
    /// A symbolic link.
    Symlink(Vec<u8>),
    /// A character device 0:0, which a rename has left behind.
    Device,
}

/// An inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inode {
    /// Permission bits.
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// What it is.
    pub node: Node,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The striping of a directory's new files, if it has its own.
    pub policy: Option<StripePolicy>,
    /// The OSTs of a directory's new files, if they were named one by one.
    pub osts: Vec<u32>,
}

impl Inode {
    /// An inode without extended attributes.
    pub const fn new(mode: u32, nlink: u32, node: Node) -> Inode {
        Inode { mode, nlink, node, xattrs: BTreeMap::new(), policy: None, osts: Vec::new() }
    }

    /// Whether nothing differs but entries.
    pub fn is_like(&self, other: &Inode) -> bool {
        (self.mode, self.nlink, &self.xattrs, self.policy, &self.osts)
            == (other.mode, other.nlink, &other.xattrs, other.policy, &other.osts)
    }

    /// Its kind.
    pub fn kind(&self) -> FileKind {
        match self.node {
            Node::Dir(_) => FileKind::Directory,
            Node::File => FileKind::Regular,
            Node::Symlink(_) => FileKind::Symlink,
            Node::Device => FileKind::CharDevice,
        }
    }
}

/// A change of the name space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mutation {
    /// A new inode.
    Make {
        /// Directory.
        parent: Fid,
        /// Name.
        name: Vec<u8>,
        /// The new inode.
        fid: Fid,
        /// What it is.
        inode: Inode,
    },
    /// A further name.
    Link {
        /// The file.
        fid: Fid,
        /// Directory.
        parent: Fid,
        /// Name.
        name: Vec<u8>,
    },
    /// A name less.
    Remove {
        /// Directory.
        parent: Fid,
        /// Name.
        name: Vec<u8>,
    },
    /// A rename, perhaps over something.
    Rename {
        /// Old directory.
        parent: Fid,
        /// Old name.
        name: Vec<u8>,
        /// New directory.
        new_parent: Fid,
        /// New name.
        new_name: Vec<u8>,
        /// Swap the two.
        exchange: bool,
        /// The device that is left under the old name.
        whiteout: Option<Fid>,
    },
    /// New permission bits.
    Mode {
        /// The inode.
        fid: Fid,
        /// The bits.
        mode: u32,
    },
    /// Another value of an extended attribute, or none.
    Xattr {
        /// The inode.
        fid: Fid,
        /// The attribute.
        name: Vec<u8>,
        /// Its value.
        value: Option<Vec<u8>>,
    },
    /// Another striping of a directory's new files.
    Policy {
        /// The directory.
        fid: Fid,
        /// The striping.
        policy: Option<StripePolicy>,
        /// The OSTs, if they are named one by one.
        osts: Vec<u32>,
    },
}

impl Mutation {
    /// The inodes whose fsync promises that it is there.
    pub fn about(&self) -> Vec<Fid> {
        match self {
            Mutation::Make { parent, .. } | Mutation::Remove { parent, .. } => vec![*parent],
            Mutation::Rename { parent, new_parent, .. } => vec![*parent, *new_parent],
            Mutation::Link { fid, parent, .. } => vec![*fid, *parent],
            Mutation::Mode { fid, .. }
            | Mutation::Xattr { fid, .. }
            | Mutation::Policy { fid, .. } => vec![*fid],
        }
    }

    /// Whether an inode has what this gives it, and had not before: that tells of it also if others
    /// have changed the inode as well. Of what changes names the names tell.
    pub fn is_set(&self, before: &Names, found: &Names) -> bool {
        let of = |fid: &Fid| Some((before.inodes.get(fid)?, found.inodes.get(fid)?));
        match self {
            Mutation::Mode { fid, mode } => {
                of(fid).is_some_and(|(was, is)| was.mode != *mode && is.mode == *mode)
            }
            Mutation::Xattr { fid, name, value } => of(fid).is_some_and(|(was, is)| {
                was.xattrs.get(name) != value.as_ref() && is.xattrs.get(name) == value.as_ref()
            }),
            Mutation::Policy { fid, policy, osts } => of(fid).is_some_and(|(was, is)| {
                let wanted = (*policy, osts);
                (was.policy, &was.osts) != wanted && (is.policy, &is.osts) == wanted
            }),
            _ => false,
        }
    }
}

/// A name space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// All inodes that have a name.
    pub inodes: BTreeMap<Fid, Inode>,
}

impl Default for Names {
    fn default() -> Names {
        let root = Inode::new(0o755, 2, Node::Dir(BTreeMap::new()));
        Names { inodes: BTreeMap::from([(Fid::ROOT, root)]) }
    }
}

impl Names {
    /// The entries of a directory.
    pub fn entries(&self, dir: Fid) -> Option<&BTreeMap<Vec<u8>, Fid>> {
        match &self.inodes.get(&dir)?.node {
            Node::Dir(entries) => Some(entries),
            _ => None,
        }
    }

    fn entries_mut(&mut self, dir: Fid) -> Option<&mut BTreeMap<Vec<u8>, Fid>> {
        match &mut self.inodes.get_mut(&dir)?.node {
            Node::Dir(entries) => Some(entries),
            _ => None,
        }
    }

    /// The inode of a name.
    pub fn find(&self, dir: Fid, name: &[u8]) -> Option<Fid> {
        self.entries(dir)?.get(name).copied()
    }

    /// These, with one name as it was in others: what somebody sees who knows that name only.
    pub fn with_name_of(&self, others: &Names, dir: Fid, name: &[u8]) -> Names {
        let mut both = self.clone();
        if let Some(entries) = both.entries_mut(dir) {
            entries.remove(name);
            if let Some(fid) = others.find(dir, name) {
                entries.insert(name.to_vec(), fid);
                if let Some(inode) = others.inodes.get(&fid) {
                    both.inodes.entry(fid).or_insert_with(|| inode.clone());
                }
            }
        }
        both
    }

    /// The file of this name. A crash may have given the name to something that has no bytes.
    pub fn find_file(&self, dir: Fid, name: &[u8]) -> Option<Fid> {
        let fid = self.find(dir, name)?;
        matches!(self.inodes.get(&fid)?.node, Node::File).then_some(fid)
    }

    /// Whether an inode is a directory.
    pub fn is_dir(&self, fid: Fid) -> bool {
        self.entries(fid).is_some()
    }

    fn links(&mut self, fid: Fid, by: i64) {
        let gone = match self.inodes.get_mut(&fid) {
            Some(inode) => {
                inode.nlink = (i64::from(inode.nlink) + by) as u32;
                inode.nlink == 0
            }
            None => false,
        };
        if gone {
            self.inodes.remove(&fid);
        }
    }

    fn detach(&mut self, parent: Fid, name: &[u8]) -> Option<Fid> {
        let fid = self.entries_mut(parent)?.remove(name)?;
        if self.is_dir(fid) {
            self.links(parent, -1);
        }
        Some(fid)
    }

    fn attach(&mut self, parent: Fid, name: &[u8], fid: Fid) {
        if self.is_dir(fid) {
            self.links(parent, 1);
        }
        if let Some(entries) = self.entries_mut(parent) {
            entries.insert(name.to_vec(), fid);
        }
    }

    fn lost_name(&mut self, fid: Fid) {
        let links = if self.is_dir(fid) { -2 } else { -1 };
        self.links(fid, links);
    }

    /// Makes a change.
    pub fn apply(&mut self, mutation: &Mutation) {
        match mutation {
            Mutation::Make { parent, name, fid, inode } => {
                self.inodes.insert(*fid, inode.clone());
                self.attach(*parent, name, *fid);
            }
            Mutation::Link { fid, parent, name } => {
                self.links(*fid, 1);
                self.attach(*parent, name, *fid);
            }
            Mutation::Remove { parent, name } => {
                if let Some(fid) = self.detach(*parent, name) {
                    self.lost_name(fid);
                }
            }
            Mutation::Rename { parent, name, new_parent, new_name, exchange, whiteout } => {
                let Some(fid) = self.find(*parent, name) else { return };
                let target = self.find(*new_parent, new_name);
                if target == Some(fid) {
                    return;
                }
                self.detach(*parent, name);
                if target.is_some() {
                    self.detach(*new_parent, new_name);
                }
                self.attach(*new_parent, new_name, fid);
                match target {
                    Some(target) if *exchange => self.attach(*parent, name, target),
                    Some(target) => self.lost_name(target),
                    None => {}
                }
                if let Some(device) = whiteout {
                    self.inodes.insert(*device, Inode::new(0, 1, Node::Device));
                    self.attach(*parent, name, *device);
                }
            }
            Mutation::Mode { fid, mode } => {
                if let Some(inode) = self.inodes.get_mut(fid) {
                    inode.mode = *mode;
                }
            }
            Mutation::Xattr { fid, name, value } => {
                let Some(inode) = self.inodes.get_mut(fid) else { return };
                match value {
                    Some(value) => inode.xattrs.insert(name.clone(), value.clone()),
                    None => inode.xattrs.remove(name),
                };
            }
            Mutation::Policy { fid, policy, osts } => {
                if let Some(inode) = self.inodes.get_mut(fid) {
                    inode.policy = *policy;
                    inode.osts.clone_from(osts);
                }
            }
        }
    }

    /// All names of an inode.
    pub fn names_of(&self, fid: Fid) -> Vec<(Fid, Vec<u8>)> {
        let dirs = self.inodes.keys().copied();
        let all = dirs.flat_map(|dir| {
            self.entries(dir).into_iter().flatten().map(move |(name, to)| (dir, name, *to))
        });
        all.filter(|(.., to)| *to == fid).map(|(dir, name, _)| (dir, name.clone())).collect()
    }

    /// Whether `dir` is `above` or lies below it.
    pub fn is_below(&self, dir: Fid, above: Fid) -> bool {
        if dir == above {
            return true;
        }
        let children = self.entries(above).into_iter().flatten().map(|(_, fid)| *fid);
        children.filter(|fid| self.is_dir(*fid)).any(|fid| self.is_below(dir, fid))
    }

    /// What setting an extended attribute of an inode that is there answers.
    ///
    /// # Errors
    /// As `setxattr`.
    pub fn may_set_xattr(&self, fid: Fid, name: &[u8], mode: XattrMode) -> Result<()> {
        let there = self.inodes.get(&fid).is_some_and(|inode| inode.xattrs.contains_key(name));
        match mode {
            XattrMode::Create if there => Err(Errno::EEXIST),
            XattrMode::Replace if !there => Err(Errno::ENODATA),
            _ => Ok(()),
        }
    }

    /// What removing a name answers.
    ///
    /// # Errors
    /// As `unlink` and `rmdir`.
    pub fn may_remove(&self, parent: Fid, name: &[u8], directory: bool) -> Result<()> {
        let fid = self.find(parent, name).ok_or(Errno::ENOENT)?;
        match (self.entries(fid), directory) {
            (Some(_), false) => Err(Errno::EISDIR),
            (None, true) => Err(Errno::ENOTDIR),
            (Some(entries), true) if !entries.is_empty() => Err(Errno::ENOTEMPTY),
            _ => Ok(()),
        }
    }

    /// What a rename answers.
    ///
    /// # Errors
    /// As `renameat2`.
    pub fn may_rename(
        &self,
        (parent, name): (Fid, &[u8]),
        (new_parent, new_name): (Fid, &[u8]),
        exchange: bool,
        no_replace: bool,
    ) -> Result<()> {
        let fid = self.find(parent, name).ok_or(Errno::ENOENT)?;
        let target = self.find(new_parent, new_name);
        if exchange && target.is_none() {
            return Err(Errno::ENOENT);
        }
        if no_replace && target.is_some() {
            return Err(Errno::EEXIST);
        }
        if target == Some(fid) {
            return Ok(());
        }
        if self.is_dir(fid) && self.is_below(new_parent, fid) {
            return Err(Errno::EINVAL);
        }
        let Some(target) = target else { return Ok(()) };
        if self.is_dir(target) && self.is_below(parent, target) {
            return Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY });
        }
        if exchange {
            return Ok(());
        }
        match (self.is_dir(fid), self.entries(target)) {
            (true, None) => Err(Errno::ENOTDIR),
            (false, Some(_)) => Err(Errno::EISDIR),
            (true, Some(entries)) if !entries.is_empty() => Err(Errno::ENOTEMPTY),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(inode: Inode) -> Names {
        Names { inodes: [(Fid::ROOT, inode)].into() }
    }

    #[test]
    fn what_an_inode_has_tells_who_gave_it_whatever_others_did() {
        let inode = Inode {
            mode: 0o352,
            nlink: 4,
            node: Node::File,
            xattrs: BTreeMap::new(),
            policy: None,
            osts: Vec::new(),
        };
        let before = with(inode.clone());
        let fid = Fid::ROOT;
        let chmod = Mutation::Mode { fid, mode: 0o144 };
        let done = with(Inode { mode: 0o144, nlink: 3, ..inode.clone() });
        assert!(chmod.is_set(&before, &done));
        assert!(!chmod.is_set(&done, &done), "it was so before");
        assert!(!chmod.is_set(&before, &with(Inode { nlink: 3, ..inode.clone() })));
        assert!(!chmod.is_set(&before, &Names { inodes: BTreeMap::new() }));
        let value = Some(b"value".to_vec());
        let named = [(b"name".to_vec(), b"value".to_vec())].into();
        let has = with(Inode { xattrs: named, ..inode });
        let set = Mutation::Xattr { fid, name: b"name".to_vec(), value };
        assert!(set.is_set(&before, &has) && !set.is_set(&has, &has));
        let gone = Mutation::Xattr { fid, name: b"name".to_vec(), value: None };
        assert!(gone.is_set(&has, &before) && !gone.is_set(&before, &before));
    }
}

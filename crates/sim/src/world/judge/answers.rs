//! What an answer says of the names: where its paths led, what it made, and whether it fits.

use std::collections::BTreeSet;

use sateen_types::{Attr, Fid, FileKind, Result as Answer};

use crate::names::{Inode, Names, Node};
use crate::work::{At, Op, Out, Touched};

/// So many operations are looked at that may have changed what another one sees: 16 name spaces.
const OTHERS_MAX: usize = 4;

/// Where the first path of an operation leads that leads somewhere else than it should, or
/// nowhere.
pub(super) fn led_astray(names: &Names, op: &Op) -> Option<Option<Fid>> {
    op.paths().into_iter().find_map(|at| {
        let mut to = Some(Fid::ROOT);
        for name in &at.path {
            to = to.and_then(|dir| names.find(dir, name));
        }
        (to != Some(at.dir())).then_some(to)
    })
}

/// Whether an open finds a symbolic link, which the kernel here does not follow.
pub(super) fn opens_symlink(names: &Names, op: &Op) -> bool {
    let Op::Open { at, .. } = op else { return false };
    let inode = names.find(at.dir(), &at.name).and_then(|fid| names.inodes.get(&fid));
    inode.is_some_and(|inode| matches!(inode.node, Node::Symlink(_)))
}

/// The inode that was changed under a name: a client that has not heard of a crash may have
/// gone by a name that is another's now.
pub(super) fn strayed_to(op: &Op, result: &Answer<Out>) -> Option<Fid> {
    match (op, result) {
        (Op::Chmod { .. } | Op::Truncate { .. } | Op::Link { .. }, Ok(Out::Attr(attr))) => {
            Some(attr.fid)
        }
        (_, Ok(Out::Changed(fid))) => Some(*fid),
        _ => None,
    }
}

/// The names after an operation that was answered, if it can have been among these.
pub(super) fn after_answer(names: &Names, op: &Op, result: &Answer<Out>) -> Option<Names> {
    let made = made_by(op, result.as_ref().ok()?);
    op.verdict(names).ok()?;
    let mutation = op.mutation(names, made)?;
    let mut after = names.clone();
    after.apply(&mutation);
    Some(after)
}

/// What the names may be while others are at what is looked at: each of them has happened, or has not.
pub(super) fn with_any_of<'a>(names: &Names, others: impl Iterator<Item = &'a Op>) -> Vec<Names> {
    let mut all = vec![names.clone()];
    for op in others.take(OTHERS_MAX) {
        let happened = |names: &Names| {
            op.verdict(names).ok()?;
            let mut after = names.clone();
            // What is made nobody meets before its name is known.
            after.apply(&op.mutation(names, None)?);
            Some(after)
        };
        all.extend(all.iter().filter_map(happened).collect::<Vec<_>>());
    }
    all
}

pub(super) fn touched_alone(fid: Fid) -> (Touched, bool) {
    (Touched::Inode(fid), true)
}

/// What an operation that makes or opens something made or opened.
pub(super) fn made_by(op: &Op, out: &Out) -> Option<Fid> {
    match (op, out) {
        (Op::Open { .. }, Out::Opened(handle)) => Some(handle.fid),
        (Op::Mkdir { .. } | Op::Symlink { .. }, Out::Attr(attr)) => Some(attr.fid),
        (Op::Rename { .. }, Out::Attr(attr)) if attr.kind() == FileKind::CharDevice => {
            Some(attr.fid)
        }
        _ => None,
    }
}

/// Whether an answer is of a name from then, and what the MDT says now of its inode.
pub(super) fn is_of_both((then, now): (&Names, &Names), op: &Op, result: &Answer<Out>) -> bool {
    let is_known = |at: &At, fid: Fid| then.find(at.dir(), &at.name) == Some(fid);
    match (op, result) {
        (Op::Stat { at }, Ok(Out::Attr(attr))) => {
            let inode = now.inodes.get(&attr.fid);
            let of = |inode: &Inode| (inode.mode, inode.nlink, inode.kind());
            let got = (attr.mode & 0o7777, attr.nlink, attr.kind());
            // Without a name it is only there for those who have it open.
            let nameless = || attr.nlink == 0 && attr.kind() == FileKind::Regular;
            is_known(at, attr.fid) && inode.map_or_else(nameless, |inode| got == of(inode))
        }
        (Op::GetLinks { at }, Ok(Out::Links(fid, links))) => {
            let mut links = links.clone();
            links.sort_unstable();
            is_known(at, *fid) && links == now.names_of(*fid)
        }
        (Op::GetXattr { at, .. } | Op::GetStripe { at }, Ok(out)) => {
            judge_names(&now.with_name_of(then, at.dir(), &at.name), op, out).is_ok()
        }
        _ => false,
    }
}

/// Holds an extended attribute, or the list of all, against what the inode should have.
fn judge_xattr(
    names: &Names,
    (right, fid): (Option<Fid>, Fid),
    name: Option<&[u8]>,
    bytes: &[u8],
) -> Result<(), String> {
    let inode = right.filter(|right| *right == fid).and_then(|fid| names.inodes.get(&fid));
    let inode = inode.ok_or_else(|| format!("{fid} instead of {right:?}"))?;
    let fits = match name {
        Some(name) => inode.xattrs.get(name).is_some_and(|value| value == bytes),
        None => {
            let listed: BTreeSet<&[u8]> =
                bytes.split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
            listed.len() == inode.xattrs.len()
                && inode.xattrs.keys().all(|name| listed.contains(name.as_slice()))
        }
    };
    if fits { Ok(()) } else { Err(format!("{bytes:?} instead of {:?}", inode.xattrs)) }
}

/// Holds the attributes of an open file, which may have lost its names, against a name space.
fn judge_open(names: &Names, fid: Fid, attr: &Attr) -> Result<(), String> {
    let got = (attr.fid, attr.nlink);
    match names.inodes.get(&fid) {
        None if got == (fid, 0) => Ok(()),
        None => Err(format!("{got:?}, but it has no name")),
        Some(inode) => {
            let got = (got, attr.mode & 0o7777, attr.kind());
            let right = ((fid, inode.nlink), inode.mode, inode.kind());
            if got == right { Ok(()) } else { Err(format!("{got:x?} instead of {right:x?}")) }
        }
    }
}

/// Holds an answer against a name space.
pub(super) fn judge_names(names: &Names, op: &Op, out: &Out) -> Result<(), String> {
    if let Out::Strayed(fid) = out {
        return Err(format!("the path leads to {fid}"));
    }
    let expected = |at: &At| names.find(at.dir(), &at.name);
    match (op, out) {
        (Op::Open { at, .. } | Op::Mkdir { at } | Op::Symlink { at, .. }, _) => {
            let fid = made_by(op, out).ok_or("no inode")?;
            match expected(at) {
                Some(right) if right != fid => Err(format!("{fid} instead of {right}")),
                _ => Ok(()),
            }
        }
        (Op::Stat { at } | Op::Truncate { at, .. } | Op::Chmod { at, .. }, Out::Attr(attr)) => {
            let fid = if at.name.is_empty() { Some(at.dir()) } else { expected(at) };
            let inode = fid.and_then(|fid| names.inodes.get(&fid)).ok_or("gone")?;
            let mut right = (fid, inode.mode, inode.nlink, Some(inode.kind()));
            if let Op::Chmod { mode, .. } = op {
                right.1 = *mode;
            }
            let kind = Some(attr.kind());
            let got = (Some(attr.fid), attr.mode & 0o7777, attr.nlink, kind);
            if got != right {
                return Err(format!("{got:x?} instead of {right:x?}"));
            }
            Ok(())
        }
        (Op::Fstat { handle }, Out::Attr(attr)) => judge_open(names, handle.fid, attr),
        (Op::SetXattr { at, .. } | Op::SetStripe { at, .. }, Out::Changed(fid)) => {
            let right = expected(at);
            if Some(*fid) == right { Ok(()) } else { Err(format!("{fid} instead of {right:?}")) }
        }
        (Op::GetXattr { at, name }, Out::Xattr(fid, bytes)) => {
            judge_xattr(names, (expected(at), *fid), name.as_deref(), bytes)
        }
        (Op::GetStripe { at }, Out::Striping(fid, layout, policy)) => {
            let right = expected(at);
            let inode = right.and_then(|fid| names.inodes.get(&fid)).ok_or("gone")?;
            let is_file = inode.node == Node::File;
            let osts = layout.iter().filter(|_| !is_file).flat_map(|layout| layout.objects());
            let osts: Vec<u32> = osts.map(|(_, ost)| ost).collect();
            let got = (Some(*fid), layout.is_some(), *policy, &osts);
            let right = (right, is_file || !osts.is_empty(), inode.policy, &inode.osts);
            if got == right { Ok(()) } else { Err(format!("{got:?} instead of {right:?}")) }
        }
        (Op::GetLinks { at }, Out::Links(fid, links)) => {
            let right = expected(at).map(|fid| (fid, names.names_of(fid)));
            let mut links = links.clone();
            links.sort_unstable();
            let got = Some((*fid, links));
            if got == right { Ok(()) } else { Err(format!("{got:?} instead of {right:?}")) }
        }
        // Two names of one file stay as they are.
        (Op::Rename { from, to, .. }, Out::Attr(attr)) if expected(from) == expected(to) => {
            let right = expected(from);
            if Some(attr.fid) == right { Ok(()) } else { Err(format!("not {right:?}")) }
        }
        (Op::Rename { .. }, Out::Attr(attr)) => {
            let got = (attr.kind(), attr.mode & 0o7777, attr.nlink, attr.rdev);
            let right = (FileKind::CharDevice, 0, 1, 0);
            if got == right { Ok(()) } else { Err(format!("{got:?} instead of a whiteout")) }
        }
        (Op::Readlink { at }, Out::Bytes(bytes)) => {
            let inode = expected(at).and_then(|fid| names.inodes.get(&fid));
            match inode.map(|inode| &inode.node) {
                Some(Node::Symlink(target)) if target == bytes => Ok(()),
                other => Err(format!("{bytes:?} instead of {other:?}")),
            }
        }
        (Op::Readdir { at }, Out::Entries(entries)) => {
            let mut got: Vec<(&[u8], Fid)> =
                entries.iter().map(|entry| (entry.name.as_bytes(), entry.fid)).collect();
            got.sort_unstable();
            let there = names.entries(at.dir()).into_iter().flatten();
            let right: Vec<(&[u8], Fid)> =
                there.map(|(name, fid)| (name.as_slice(), *fid)).collect();
            if got == right { Ok(()) } else { Err(format!("{got:?} instead of {right:?}")) }
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Mutation;

    fn at(name: &[u8]) -> At {
        At { path: Vec::new(), dirs: vec![Fid::ROOT], name: name.to_vec() }
    }

    /// A file with two names, of which each program knows another.
    #[test]
    fn who_looks_by_one_name_sees_what_another_does_by_the_other_or_not_yet() {
        let (fid, parent) = (Fid { oid: 7, ..Fid::ROOT }, Fid::ROOT);
        let mut names = Names::default();
        let inode = Inode::new(0o600, 1, Node::File);
        names.apply(&Mutation::Make { parent, name: b"one".to_vec(), fid, inode });
        names.apply(&Mutation::Link { fid, parent, name: b"two".to_vec() });
        let chmod = Op::Chmod { at: at(b"one"), mode: 0o640 };
        let unlink = Op::Remove { at: at(b"one"), directory: false };
        let cannot = Op::Remove { at: at(b"none"), directory: false };
        let met = with_any_of(&names, [&chmod, &cannot, &unlink].into_iter());
        let seen = |names: &Names| {
            let inode = names.find(parent, b"two").and_then(|fid| names.inodes.get(&fid)).unwrap();
            (inode.mode, inode.nlink)
        };
        let seen: Vec<_> = met.iter().map(seen).collect();
        assert_eq!(seen, [(0o600, 2), (0o640, 2), (0o600, 1), (0o640, 1)]);
        assert_eq!(with_any_of(&names, core::iter::empty()), [names]);
    }
}

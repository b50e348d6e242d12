//! The whole index held against what must be true of it, read straight from the journal.

use std::collections::{BTreeMap, BTreeSet};

use sateen_journal::{Decoded, decode_frame, records};
use sateen_osd::Batch;
use sateen_types::{Fid, FileKind};
use sateen_wire::codec::Wire;
use sateen_wire::disk::mdt::{Counters, Entry, Inode, links, tag};

use crate::harness::{EPOCH, World};

pub type Image = BTreeMap<Vec<u8>, Vec<u8>>;

/// What the first group commits add up to.
pub fn image(frames: &[(Vec<u8>, u64)]) -> Image {
    let mut image = Image::new();
    for (frame, _) in frames {
        let Decoded::Frame { payload, .. } = decode_frame(EPOCH, frame) else { panic!("a frame") };
        for record in records(payload) {
            for change in Batch::changes(record.unwrap().1) {
                let change = change.unwrap();
                let key = change.key.as_bytes().to_vec();
                match change.value {
                    Some(value) => image.insert(key, value.to_vec()),
                    None => image.remove(&key),
                };
            }
        }
    }
    image
}

pub fn of(image: &Image, tag: u8) -> impl Iterator<Item = (&[u8], &[u8])> {
    let all = image.range(vec![tag]..vec![tag + 1]);
    all.map(|(key, value)| (&key[1..], value.as_slice()))
}

fn fid(key: &[u8]) -> Fid {
    Fid::from_key(key).unwrap()
}

/// Every inode by FID.
pub fn inodes(image: &Image) -> BTreeMap<Fid, Inode<'_>> {
    of(image, tag::INODE).map(|(key, value)| (fid(key), Inode::decode(value).unwrap())).collect()
}

/// Panics at the first thing that is wrong.
pub fn check(image: &Image) {
    let inodes = inodes(image);
    let mut names: BTreeMap<Fid, Vec<(Fid, Vec<u8>)>> = BTreeMap::new();
    let mut held: BTreeMap<Fid, (u64, u32)> = BTreeMap::new();
    for (key, value) in of(image, tag::ENTRY) {
        let entry = Entry::decode(value).unwrap();
        let parent = fid(&key[..12]);
        let collision = u16::from_be_bytes([key[18], key[19]]);
        let neighbour = |collision: u16| {
            let mut other = vec![tag::ENTRY];
            other.extend_from_slice(&key[..18]);
            other.extend_from_slice(&collision.to_be_bytes());
            image.get(&other).map(|value| Entry::decode(value).unwrap())
        };
        if collision > 0 {
            let before = neighbour(collision - 1).expect("a chain has no gap");
            assert!(before.more, "a chain says that it goes on");
        }
        let Some((target, kind)) = entry.target else { continue };
        let inode = inodes.get(&target).expect("an entry's inode exists");
        assert_eq!(inode.attr.kind(), kind);
        assert!(inodes[&parent].attr.is_dir() && inodes[&parent].attr.nlink > 0);
        names.entry(target).or_default().push((parent, entry.name.to_vec()));
        let held = held.entry(parent).or_default();
        held.0 += 1;
        held.1 += u32::from(kind == FileKind::Directory);
    }
    let orphans: BTreeSet<Fid> = of(image, tag::ORPHAN).map(|(key, _)| fid(key)).collect();
    for (fid, inode) in &inodes {
        let names = names.get(fid).cloned().unwrap_or_default();
        let (entries, subdirs) = held.get(fid).copied().unwrap_or_default();
        assert_eq!(inode.attr.fid, *fid);
        assert_eq!(inode.entries, entries, "{fid} counts its entries");
        let nlink = match inode.attr.kind() {
            FileKind::Directory if *fid == Fid::ROOT || !names.is_empty() => 2 + subdirs,
            _ => names.len() as u32,
        };
        assert_eq!(inode.attr.nlink, nlink, "{fid} counts its links");
        assert_eq!(orphans.contains(fid), inode.attr.nlink == 0, "{fid}");
        for (parent, name) in links(inode.links) {
            assert!(names.contains(&(parent, name.to_vec())), "{fid} has a link that is none");
        }
        assert_eq!(links(inode.links).count(), names.len(), "{fid} knows its links");
        let xattrs = of(image, tag::XATTR).filter(|(key, _)| key.starts_with(&fid.to_key()));
        assert_eq!(xattrs.count(), inode.xattrs as usize);
    }
    for orphan in orphans {
        assert!(inodes.contains_key(&orphan));
    }
    for (key, _) in of(image, tag::XATTR) {
        assert!(inodes.contains_key(&fid(&key[..12])), "an attribute of nothing");
    }
    if let Some(counters) = image.get(&vec![tag::COUNTERS]) {
        assert_eq!(Counters::from_bytes(counters).unwrap().inodes, inodes.len() as u64);
    }
}

/// Everything ends well, and so it does once more after a crash.
pub fn finish(mut world: World) {
    world.rest();
    check(&image(&world.frames));
    let frames = world.frames.len();
    world.crash(frames);
    world.rest();
    check(&image(&world.frames));
}

//! ACLs and modes follow each other, and directories pass their lists on.

use bytes::Bytes;
use sateen_types::{Errno, Fid};
use sateen_wire::*;

use crate::fsck;
use crate::harness::*;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// Owner, user 12, group, mask and others, in the kernel's encoding.
fn list(perms: [u16; 5]) -> Bytes {
    let mut out = vec![2, 0, 0, 0];
    for (tag, perm) in [0x01u16, 0x02, 0x04, 0x10, 0x20].into_iter().zip(perms) {
        let id = if tag == 0x02 { 12 } else { u32::MAX };
        out.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
        out.extend(id.to_le_bytes());
    }
    out.into()
}

/// What a mode says, too.
fn plain(perms: [u16; 3]) -> Bytes {
    let mut out = vec![2, 0, 0, 0];
    for (tag, perm) in [0x01u16, 0x04, 0x20].into_iter().zip(perms) {
        out.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
        out.extend(u32::MAX.to_le_bytes());
    }
    out.into()
}

fn set(fid: Fid, text: &str, value: Bytes) -> MdtRequest {
    MdtRequest::SetXattr { fid, name: name(text), value, mode: XattrMode::Any }
}

fn get(world: &mut World, fid: Fid, text: &str) -> Option<Bytes> {
    let reply = world.call(A, MdtRequest::GetXattr { fid, name: name(text) });
    match reply.body {
        ReplyBody::Mdt(MdtReply::Bytes(value)) => Some(value),
        _ => {
            assert_eq!(reply.error, Some(Errno::ENODATA));
            None
        }
    }
}

fn mode(world: &mut World, fid: Fid) -> u32 {
    world.stat(A, fid).mode & 0o7777
}

fn chmod(fid: Fid, mode: u32) -> MdtRequest {
    let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
    MdtRequest::SetAttr { fid, set, cred: Cred::default() }
}

fn finish(mut world: World) {
    world.rest();
    fsck::check(&fsck::image(&world.frames));
}

#[test]
fn a_list_sets_the_mode_and_chmod_the_list() {
    let mut world = World::with_clients(1);
    let f = world.mknod(A, ROOT, "f");
    world.ok(A, set(f, ACCESS, list([6, 7, 4, 5, 0])));
    assert_eq!(mode(&mut world, f), 0o650, "the group's bits are the mask");
    assert_eq!(get(&mut world, f, ACCESS), Some(list([6, 7, 4, 5, 0])));
    world.ok(A, chmod(f, 0o4731));
    assert_eq!(mode(&mut world, f), 0o4731);
    assert_eq!(get(&mut world, f, ACCESS), Some(list([7, 7, 4, 3, 1])));
    world.ok(A, set(f, ACCESS, plain([6, 4, 0])));
    assert_eq!((mode(&mut world, f), get(&mut world, f, ACCESS)), (0o4640, None));
    // To take away what is not there is no error, unlike with other attributes.
    for text in [ACCESS, DEFAULT] {
        world.ok(A, MdtRequest::RemoveXattr { fid: f, name: name(text) });
    }
    finish(world);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let mut world = World::with_clients(1);
    let f = world.mknod(A, ROOT, "f");
    assert_eq!(world.err(A, set(f, ACCESS, list([9, 0, 0, 0, 0]))), Errno::EINVAL);
    assert_eq!(world.err(A, set(f, ACCESS, Bytes::from_static(b"xx"))), Errno::EINVAL);
    assert_eq!(world.err(A, set(f, DEFAULT, list([7; 5]))), Errno::EACCES);
    assert_eq!(mode(&mut world, f), 0o644);
    finish(world);
}

#[test]
fn directories_pass_their_list_on_and_it_takes_the_umasks_place() {
    let mut world = World::with_clients(1);
    let d = world.mkdir(A, ROOT, "d");
    let create = |world: &mut World, dir: Fid, text: &str, mode: u32, umask: u32| {
        let mut request = world.create_request(A, dir, text, mode);
        if let MdtRequest::Create { cred, .. } = &mut request {
            cred.umask = umask;
        }
        let MdtReply::Created { attr, .. } = world.ok(A, request) else { panic!() };
        attr.fid
    };
    let f = create(&mut world, d, "before", 0o100_666, 0o027);
    assert_eq!((mode(&mut world, f), get(&mut world, f, ACCESS)), (0o640, None));
    world.ok(A, set(d, DEFAULT, list([7, 7, 5, 7, 5])));
    assert_eq!(mode(&mut world, d), 0o755, "a default list says nothing of its directory");
    let f = create(&mut world, d, "file", 0o100_666, 0o077);
    assert_eq!(mode(&mut world, f), 0o664);
    assert_eq!(get(&mut world, f, ACCESS), Some(list([6, 7, 5, 6, 4])));
    assert_eq!(get(&mut world, f, DEFAULT), None);
    let below = create(&mut world, d, "below", 0o040_750, 0o077);
    assert_eq!(mode(&mut world, below), 0o750);
    assert_eq!(get(&mut world, below, ACCESS), Some(list([7, 7, 5, 5, 0])));
    assert_eq!(get(&mut world, below, DEFAULT), Some(list([7, 7, 5, 7, 5])));
    world.ok(A, set(d, DEFAULT, plain([7, 5, 0])));
    let f = create(&mut world, d, "plain", 0o100_666, 0);
    assert_eq!((mode(&mut world, f), get(&mut world, f, ACCESS)), (0o640, None));
    finish(world);
}

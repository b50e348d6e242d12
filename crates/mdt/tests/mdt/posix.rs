//! Errors and side effects, as ext4 has them.

use sateen_types::{Attr, Errno, Fid, StripePolicy, Timespec};
use sateen_wire::*;

use crate::fsck::{self, finish};
use crate::harness::*;

const NO_REPLACE: RenameFlags = RenameFlags { no_replace: true, exchange: false };
const EXCHANGE: RenameFlags = RenameFlags { no_replace: false, exchange: true };

fn tree() -> (World, Fid, Fid, Fid) {
    let mut world = World::with_clients(1);
    let a = world.mkdir(A, ROOT, "a");
    let b = world.mkdir(A, a, "b");
    let f = world.mknod(A, a, "f");
    (world, a, b, f)
}

#[test]
fn renames_obey_every_rule() {
    let (mut world, a, b, f) = tree();
    let go = World::rename_request;
    assert_eq!(world.err(A, go((a, "x"), (a, "y"))), Errno::ENOENT);
    assert_eq!(world.err(A, go((ROOT, "a"), (b, "c"))), Errno::EINVAL, "below itself");
    assert_eq!(world.err(A, go((ROOT, "a"), (a, "c"))), Errno::EINVAL);
    assert_eq!(world.err(A, go((a, "b"), (ROOT, "a"))), Errno::ENOTEMPTY, "onto its parent");
    assert_eq!(world.err(A, go((a, "f"), (a, "b"))), Errno::EISDIR);
    assert_eq!(world.err(A, go((a, "b"), (a, "f"))), Errno::ENOTDIR);
    assert_eq!(world.err(A, go((f, "x"), (a, "y"))), Errno::ENOTDIR);
    let both = RenameFlags { no_replace: true, exchange: true };
    assert_eq!(world.err(A, World::rename2((a, "f"), (a, "b"), both)), Errno::EINVAL);
    assert_eq!(world.err(A, World::rename2((a, "f"), (a, "b"), NO_REPLACE)), Errno::EEXIST);
    assert_eq!(world.err(A, World::rename2((a, "f"), (a, "x"), EXCHANGE)), Errno::ENOENT);
    assert_eq!(world.err(A, World::rename2((a, "b"), (ROOT, "a"), EXCHANGE)), Errno::EINVAL);
    // A directory moves up: links and parents follow.
    world.ok(A, go((a, "b"), (ROOT, "b")));
    assert_eq!((world.stat(A, a).nlink, world.stat(A, ROOT).nlink), (2, 4));
    let page = MdtRequest::ReadDir { fid: b, after: Default::default(), count: 9, plus: false };
    let MdtReply::Entries { parent, .. } = world.ok(A, page) else { panic!() };
    assert_eq!(parent, ROOT);
    // And now the other may go below it.
    world.ok(A, go((ROOT, "a"), (b, "a")));
    assert_eq!((world.stat(A, b).nlink, world.stat(A, ROOT).nlink), (3, 3));
    // Swapping a file with a directory across directories.
    let g = world.mknod(A, ROOT, "g");
    let swapped = world.ok(A, World::rename2((ROOT, "g"), (b, "a"), EXCHANGE));
    let dirs = (Some(world.stat(A, ROOT)), Some(world.stat(A, b)));
    assert_eq!(swapped, renamed(g, Some(a), dirs));
    assert_eq!(world.lookup(A, b, "a").unwrap().fid, g);
    assert_eq!(world.lookup(A, ROOT, "g").unwrap().fid, a);
    assert_eq!((world.stat(A, b).nlink, world.stat(A, ROOT).nlink), (2, 4));
    // An empty directory replaces an empty one.
    let e = world.mkdir(A, ROOT, "e");
    let h = world.mkdir(A, ROOT, "h");
    let replaced = world.ok(A, go((ROOT, "e"), (ROOT, "h")));
    let MdtReply::Renamed { moved, swapped: None, replaced: Some(gone), parent, new_parent } =
        replaced
    else {
        panic!()
    };
    assert_eq!((moved, gone.fid, gone.nlink), (e, h, 0));
    assert_eq!((parent, new_parent), (Some(world.stat(A, ROOT)), None));
    assert_eq!(world.lookup(A, ROOT, "h").unwrap().fid, e);
    finish(world);
}

/// The answer to a rename that has replaced nothing, with both directories.
fn renamed(
    moved: Fid,
    swapped: Option<Fid>,
    (parent, new_parent): (Option<Attr>, Option<Attr>),
) -> MdtReply {
    MdtReply::Renamed { moved, swapped, replaced: None, parent, new_parent }
}

#[test]
fn a_rename_over_a_file_removes_it_and_links_count() {
    let (mut world, a, _, f) = tree();
    let g = world.mknod(A, ROOT, "g");
    world.ok(A, MdtRequest::Link { fid: g, parent: a, name: name("g2") });
    assert_eq!(world.stat(A, g).nlink, 2);
    // Two names of one inode: nothing happens.
    let same = world.ok(A, World::rename_request((ROOT, "g"), (a, "g2")));
    assert_eq!(same, renamed(g, None, (None, None)));
    assert_eq!(world.lookup(A, ROOT, "g").unwrap().fid, g);
    let MdtReply::Renamed { replaced: Some(old), .. } =
        world.ok(A, World::rename_request((a, "f"), (a, "g2")))
    else {
        panic!()
    };
    assert_eq!((old.fid, old.nlink), (g, 1));
    assert_eq!(world.lookup(A, a, "g2").unwrap().fid, f);
    let MdtReply::Renamed { replaced: Some(old), .. } =
        world.ok(A, World::rename_request((a, "g2"), (ROOT, "g")))
    else {
        panic!()
    };
    assert_eq!((old.fid, old.nlink), (g, 0));
    finish(world);
}

#[test]
fn links_and_removals_refuse_what_ext4_refuses() {
    let (mut world, a, b, f) = tree();
    let link = |fid, text: &str| MdtRequest::Link { fid, parent: ROOT, name: name(text) };
    assert_eq!(world.err(A, link(a, "x")), Errno::EPERM);
    assert_eq!(world.err(A, link(f, "a")), Errno::EEXIST);
    assert_eq!(world.err(A, World::unlink_request(a, "b", false)), Errno::EISDIR);
    assert_eq!(world.err(A, World::unlink_request(a, "f", true)), Errno::ENOTDIR);
    assert_eq!(world.err(A, World::unlink_request(ROOT, "a", true)), Errno::ENOTEMPTY);
    assert_eq!(world.err(A, World::unlink_request(f, "x", false)), Errno::ENOTDIR);
    world.ok(A, World::unlink_request(a, "b", true));
    let late = world.create_request(A, b, "x", 0o100_644);
    assert_eq!(world.err(A, late), Errno::ENOENT, "a directory that is gone");
    assert_eq!(world.lookup(A, f, "x"), Err(Errno::ENOTDIR));
    let other = Fid::new(sateen_types::seq::super_first(1, 0).unwrap(), 1);
    let away = MdtRequest::GetAttr { fid: other, want: Ibits::NONE };
    assert_eq!(world.err(A, away), Errno::EREMOTEIO);
    let unknown = world.fid(A);
    let gone = MdtRequest::GetAttr { fid: unknown, want: Ibits::NONE };
    assert_eq!(world.err(A, gone), Errno::ESTALE);
    finish(world);
}

#[test]
fn a_file_has_so_many_names_and_no_more() {
    let (mut world, _, _, f) = tree();
    let link = |text: &str| MdtRequest::Link { fid: f, parent: ROOT, name: name(text) };
    for number in 1..65_000 {
        world.ok(A, link(&format!("link{number}")));
    }
    assert_eq!(world.stat(A, f).nlink, 65_000);
    assert_eq!(world.err(A, link("one more")), Errno::EMLINK);
    world.ok(A, World::unlink_request(ROOT, "link7", false));
    world.ok(A, link("one more"));
}

#[test]
fn creates_inherit_groups_and_refuse_nonsense() {
    let (mut world, a, ..) = tree();
    let set = SetAttr { mode: Some(0o2775), gid: Some(77), ..SetAttr::default() };
    world.ok(A, MdtRequest::SetAttr { fid: a, set, cred: Cred::default() });
    assert_eq!(world.stat(A, a).mode, 0o042_775);
    let dir = world.mkdir(A, a, "sub");
    let file = world.mknod(A, a, "file");
    let (dir, file) = (world.stat(A, dir), world.stat(A, file));
    assert_eq!((dir.gid, dir.mode), (77, 0o042_755));
    assert_eq!((file.gid, file.mode, file.uid), (77, 0o100_644, 1000));
    // O_CREAT finds a directory, a file, nothing it may have.
    let (reply, _) = world.creat(A, ROOT, "a", Ibits::NONE);
    assert_eq!(reply.error, Some(Errno::EISDIR));
    let (reply, _) = world.creat(B, a, "f", Ibits::NONE);
    let ReplyBody::Mdt(MdtReply::Created { existed: true, .. }) = reply.body else { panic!() };
    let mut exclusive = world.create_request(A, a, "f", 0o100_644);
    if let MdtRequest::Create { open, .. } = &mut exclusive {
        *open = Some(OpenFlags::default());
    }
    assert_eq!(world.err(A, exclusive), Errno::EEXIST);
    let nonsense = world.create_request(A, a, "n", 0o644);
    assert_eq!(world.err(A, nonsense), Errno::EINVAL, "a mode without a type");
    let mut link = world.create_request(A, a, "l", 0o120_777);
    assert_eq!(world.err(A, link.clone()), Errno::ENOENT, "an empty target");
    if let MdtRequest::Create { symlink, .. } = &mut link {
        *symlink = bytes::Bytes::from_static(b"over/there");
    }
    let MdtReply::Created { attr, .. } = world.ok(A, link) else { panic!() };
    assert_eq!(attr.size, 10);
    let target = world.ok(A, MdtRequest::ReadLink { fid: attr.fid });
    assert_eq!(target, MdtReply::Bytes(bytes::Bytes::from_static(b"over/there")));
    assert_eq!(world.err(A, MdtRequest::ReadLink { fid: a }), Errno::EINVAL);
    finish(world);
}

#[test]
fn times_move_forward_and_set_id_bits_go() {
    let (mut world, a, _, f) = tree();
    let root = Cred::default();
    let user = Cred { uid: 5, gid: 5, umask: 0 };
    let set = |fid, set, cred| MdtRequest::SetAttr { fid, set, cred };
    world.tick(1_000);
    let before = world.stat(A, a);
    world.mknod(A, a, "new");
    let after = world.stat(A, a);
    assert!(after.mtime > before.mtime && after.ctime == after.mtime);
    assert!(after.version > before.version);
    // The clock goes back: the inode's time does not.
    world.now.wall_ns -= 10_000_000_000;
    world.mknod(A, a, "newer");
    assert_eq!(world.stat(A, a).ctime, after.ctime);
    let old = Timespec::from_ns(3);
    let times =
        SetAttr { mtime: Some(TimeSet::At(old)), atime: Some(TimeSet::Now), ..SetAttr::default() };
    world.ok(A, set(f, times, root));
    assert_eq!(world.stat(A, f).mtime, old);

    let with = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    world.ok(A, set(f, with(0o6755), root));
    world.ok(A, set(f, SetAttr { uid: Some(9), ..SetAttr::default() }, root));
    assert_eq!(world.stat(A, f).mode, 0o100_755, "chown drops both");
    world.ok(A, set(f, with(0o6745), root));
    let size = SetAttr { size: Some(10), ..SetAttr::default() };
    world.ok(A, set(f, size, user));
    assert_eq!(world.stat(A, f).mode, 0o102_745, "without group execution it means locking");
    world.ok(A, set(f, with(0o4755), root));
    world.ok(A, set(f, SetAttr { kill_suid: true, ..SetAttr::default() }, user));
    assert_eq!(world.stat(A, f).mode, 0o100_755);

    assert_eq!(world.err(A, set(a, size, root)), Errno::EISDIR);
    let huge = SetAttr { size: Some(1 << 63), ..SetAttr::default() };
    assert_eq!(world.err(A, set(f, huge, root)), Errno::EFBIG);
    finish(world);
}

#[test]
fn a_file_grows_as_far_as_its_objects_can() {
    let mut world = World::with_clients(2);
    world.rest();
    let set = |fid, size| {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        MdtRequest::SetAttr { fid, set, cred: Cred::default() }
    };
    for stripes in [1, 2] {
        let (fid, most) =
            (world.mknod(A, ROOT, &format!("f{stripes}")), stripes * OBJECT_BYTES_MAX);
        let policy = StripePolicy { stripe_count: stripes as i32, ..StripePolicy::DEFAULT };
        world.ok(A, MdtRequest::SetStripe { fid, policy });
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let (open_id, cred) = (world.open_id(A), Cred::default());
        world.ok(A, MdtRequest::Open { fid, flags, open_id, cred, want: Ibits::NONE });
        assert_eq!(world.err(A, set(fid, most + 1)), Errno::EFBIG, "{stripes}");
        world.ok(A, set(fid, most));
        assert_eq!(world.stat(B, fid).size, most);
        world.ok(A, set(fid, most - 1));
    }
    finish(world);
}

#[test]
fn extended_attributes_come_and_go() {
    for cold in [false, true] {
        let (mut world, _, _, fid) = tree();
        world.cold = cold;
        let set = |text: &str, value: &'static [u8], mode| MdtRequest::SetXattr {
            fid,
            name: name(text),
            value: value.into(),
            mode,
        };
        let get = |text: &str| MdtRequest::GetXattr { fid, name: name(text) };
        assert_eq!(world.err(A, get("user.a")), Errno::ENODATA);
        assert_eq!(world.err(A, set("user.a", b"1", XattrMode::Replace)), Errno::ENODATA);
        world.ok(A, set("user.a", b"1", XattrMode::Create));
        assert_eq!(world.err(A, set("user.a", b"2", XattrMode::Create)), Errno::EEXIST);
        world.ok(A, set("user.b", b"", XattrMode::Any));
        world.ok(A, set("user.a", b"22", XattrMode::Replace));
        assert_eq!(world.ok(B, get("user.a")), MdtReply::Bytes(b"22".as_slice().into()));
        let MdtReply::Bytes(list) = world.ok(B, MdtRequest::ListXattr { fid }) else { panic!() };
        let mut names: Vec<_> = list.split(|b| *b == 0).filter(|n| !n.is_empty()).collect();
        names.sort();
        assert_eq!(names, [b"user.a", b"user.b"]);
        let big = MdtRequest::SetXattr {
            fid,
            name: name("user.c"),
            value: vec![0; XATTR_VALUE_MAX + 1].into(),
            mode: XattrMode::Any,
        };
        assert_eq!(world.err(A, big), Errno::E2BIG);
        world.ok(A, MdtRequest::RemoveXattr { fid, name: name("user.b") });
        let again = MdtRequest::RemoveXattr { fid, name: name("user.b") };
        assert_eq!(world.err(A, again), Errno::ENODATA);
        let a = world.lookup(A, ROOT, "a").unwrap().fid;
        world.ok(A, World::unlink_request(a, "f", false));
        world.rest();
        assert_eq!(fsck::of(&fsck::image(&world.frames), b'X').count(), 0);
        world.cold = false;
        fsck::check(&fsck::image(&world.frames));
    }
}

#[test]
fn all_values_of_an_inode_together_have_a_limit() {
    for cold in [false, true] {
        let (mut world, _, _, fid) = tree();
        world.cold = cold;
        let set = |text: &str, len: usize| MdtRequest::SetXattr {
            fid,
            name: name(text),
            value: vec![7; len].into(),
            mode: XattrMode::Any,
        };
        world.ok(A, set("user.short", 10));
        for at in 1..16 {
            world.ok(A, set(&format!("user.{at}"), XATTR_VALUE_MAX));
        }
        assert_eq!(world.err(A, set("user.new", XATTR_VALUE_MAX)), Errno::ENOSPC);
        // In the place of another it counts for that.
        world.ok(A, set("user.short", XATTR_VALUE_MAX));
        assert_eq!(world.err(A, set("user.new", 1)), Errno::ENOSPC);
        world.ok(A, set("user.new", 0));
        world.ok(A, set("user.short", 10));
        assert_eq!(world.err(A, set("user.short", XATTR_VALUE_MAX + 1)), Errno::E2BIG);
        world.ok(A, set("user.new", XATTR_VALUE_MAX - 10));
        assert_eq!(world.err(A, set("user.short", 11)), Errno::ENOSPC, "not even one byte more");
        world.ok(A, set("user.1", XATTR_VALUE_MAX));
        world.ok(A, MdtRequest::RemoveXattr { fid, name: name("user.1") });
        world.ok(A, set("user.short", 11));
        world.cold = false;
        fsck::check(&fsck::image(&world.frames));
    }
}

#[test]
fn capabilities_go_with_what_had_them() {
    // By a write, a chown, a truncation, and an open that truncates; cold, too.
    for (cold, how) in [(false, 0), (true, 0), (false, 1), (false, 2), (true, 3), (false, 4)] {
        let mut world = World::with_clients(1);
        let (made, open_id) = world.creat(A, ROOT, "f", Ibits::META.union(Ibits::DATA));
        let fid = made.grants.iter().next().unwrap().fid;
        world.cold = cold;
        let (name, value) = (name("security.capability"), "all".into());
        let mode = XattrMode::Any;
        world.ok(A, MdtRequest::SetXattr { fid, name: name.clone(), value, mode });
        let written = Timespec { sec: 9, nsec: 0 };
        let report = SizeReport { size: 5, blocks: 8, mtime: Some(written), atime: None };
        let (size, uid) = (Some(0), Some(7));
        let set = |set| MdtRequest::SetAttr { fid, set, cred: Cred::default() };
        match how {
            0 => world.close(A, fid, open_id, Some(report)),
            1 => drop(world.ok(A, set(SetAttr { uid, ..SetAttr::default() }))),
            2 => drop(world.ok(A, set(SetAttr { size, ..SetAttr::default() }))),
            3 => {
                let flags = OpenFlags { write: true, truncate: true, exec: false };
                let (open_id, cred) = (world.open_id(A), Cred::default());
                world.ok(A, MdtRequest::Open { fid, flags, open_id, cred, want: Ibits::NONE });
            }
            _ => {
                let tell = MdtRequest::ReportSize { fid, report, glimpsed: false, version: 0 };
                drop(world.ok(A, tell));
            }
        }
        assert_eq!(world.err(A, MdtRequest::GetXattr { fid, name }), Errno::ENODATA, "{how}");
        finish(world);
    }
}

/// What a file system says of its stripes if it is told nothing.
const ALL: StripePolicy = StripePolicy::DEFAULT;

#[test]
fn striping_is_chosen_inherited_and_fixed_once_written() {
    let mut world = World::with_clients(4);
    let dir = world.mkdir(A, ROOT, "wide");
    let policy = StripePolicy { stripe_count: 2, stripe_size: 1 << 16, stripe_offset: None };
    world.ok(A, MdtRequest::SetStripe { fid: dir, policy });
    let sub = world.mkdir(A, dir, "sub");
    let get = |fid| MdtRequest::GetStripe { fid };
    assert_eq!(
        world.ok(A, get(sub)),
        MdtReply::Striped { layout: None, policy: Some(policy), default: ALL }
    );
    let file = world.mknod(A, sub, "f");
    let MdtReply::Striped { layout: Some(layout), .. } = world.ok(A, get(file)) else { panic!() };
    assert_eq!((layout.components[0].osts.len(), layout.components[0].stripe_size), (2, 1 << 16));
    let at = StripePolicy { stripe_count: 1, stripe_size: 0, stripe_offset: Some(3) };
    world.ok(A, MdtRequest::SetStripe { fid: file, policy: at });
    let MdtReply::Striped { layout: Some(layout), .. } = world.ok(A, get(file)) else { panic!() };
    assert_eq!((layout.generation, layout.components[0].osts.as_slice()), (2, &[3][..]));
    let open = MdtRequest::Open {
        fid: file,
        flags: OpenFlags { write: true, ..OpenFlags::default() },
        open_id: OpenId { id: 50 },
        cred: Cred::default(),
        want: Ibits::NONE,
    };
    let MdtReply::Opened { layout: Some(opened), .. } = world.ok(A, open) else { panic!() };
    assert_eq!(opened, layout);
    assert_eq!(world.err(A, MdtRequest::SetStripe { fid: file, policy: at }), Errno::EEXIST);
    let nothing = StripePolicy { stripe_count: 0, stripe_size: 0, stripe_offset: None };
    world.ok(A, MdtRequest::SetStripe { fid: dir, policy: nothing });
    assert_eq!(
        world.ok(A, get(dir)),
        MdtReply::Striped { layout: None, policy: None, default: ALL }
    );
    let bad = StripePolicy { stripe_count: 1, stripe_size: 0, stripe_offset: Some(99) };
    assert_eq!(world.err(A, MdtRequest::SetStripe { fid: sub, policy: bad }), Errno::EINVAL);
    finish(world);
}

#[test]
fn the_file_systems_own_stripes_are_for_those_of_whom_nothing_is_said() {
    let mut world = World::with_clients(4);
    let get = |fid| MdtRequest::GetStripe { fid };
    let lies = |world: &mut World, fid| match world.ok(A, get(fid)) {
        MdtReply::Striped { layout: Some(layout), .. } => {
            (layout.components[0].osts.len(), layout.components[0].stripe_size)
        }
        other => panic!("{other:?}"),
    };
    let (before, wide) = (world.mknod(A, ROOT, "before"), world.mkdir(A, ROOT, "wide"));
    let three = StripePolicy { stripe_count: 3, stripe_size: 0, stripe_offset: None };
    world.ok(A, MdtRequest::SetStripe { fid: wide, policy: three });
    let one = StripePolicy { stripe_count: 1, stripe_size: 1 << 17, stripe_offset: None };
    world.mdt.set_default_policy(one);
    let after = world.mknod(A, ROOT, "after");
    let said = world.mknod(A, wide, "said");
    assert_eq!(lies(&mut world, before), (4, 1 << 20));
    assert_eq!(lies(&mut world, after), (1, 1 << 17));
    assert_eq!(lies(&mut world, said), (3, 1 << 17), "what is not said there");
    let told = MdtReply::Striped { layout: None, policy: Some(three), default: one };
    assert_eq!(world.ok(A, get(wide)), told);
    finish(world);
}

#[test]
fn files_lie_where_their_owner_says_and_know_their_names() {
    let mut world = World::with_clients(4);
    let dir = world.mkdir(A, ROOT, "dir");
    let policy = StripePolicy { stripe_count: 2, stripe_size: 1 << 17, stripe_offset: None };
    world.ok(A, MdtRequest::SetStripe { fid: dir, policy });
    let file = world.mknod(A, dir, "f");
    let set = |osts: &[u32]| MdtRequest::SetLayout { fid: file, stripe_size: 0, osts: osts.into() };
    let get = MdtRequest::GetStripe { fid: file };
    world.ok(A, set(&[3, 0, 1]));
    let MdtReply::Striped { layout: Some(layout), .. } = world.ok(A, get.clone()) else { panic!() };
    let component = &layout.components[0];
    assert_eq!((component.osts.as_slice(), component.stripe_size), (&[3, 0, 1][..], 1 << 17));
    // What is not said comes from the directory.
    let wish = StripePolicy { stripe_count: 1, stripe_size: 0, stripe_offset: None };
    world.ok(A, MdtRequest::SetStripe { fid: file, policy: wish });
    let MdtReply::Striped { layout: Some(layout), .. } = world.ok(A, get) else { panic!() };
    let component = &layout.components[0];
    assert_eq!((component.osts.len(), component.stripe_size), (1, 1 << 17));
    assert_eq!(world.err(A, set(&[0, 9])), Errno::EINVAL);
    assert_eq!(world.err(A, set(&[])), Errno::EINVAL);

    world.ok(A, MdtRequest::Link { fid: file, parent: ROOT, name: name("g") });
    let links = |world: &mut World, fid| match world.ok(A, MdtRequest::GetLinks { fid }) {
        MdtReply::Bytes(links) => links,
        other => panic!("{other:?}"),
    };
    let ea = links(&mut world, file);
    let names: Vec<_> = disk::mdt::links(&ea).collect();
    assert_eq!(names, [(dir, &b"f"[..]), (ROOT, b"g")]);
    world.ok(A, World::unlink_request(dir, "f", false));
    let ea = links(&mut world, file);
    assert_eq!(disk::mdt::links(&ea).collect::<Vec<_>>(), [(ROOT, &b"g"[..])]);
    world.ok(A, World::unlink_request(ROOT, "g", false));
    assert_eq!(world.err(A, MdtRequest::GetLinks { fid: file }), Errno::ENOENT);
    finish(world);
}

#[test]
fn new_files_lie_on_the_osts_that_their_directory_names() {
    let mut world = World::with_clients(4);
    let dir = world.mkdir(A, ROOT, "dir");
    let set = |fid, stripe_size, osts: &[u32]| MdtRequest::SetLayout {
        fid,
        stripe_size,
        osts: osts.into(),
    };
    let get = |fid| MdtRequest::GetStripe { fid };
    let lies = |world: &mut World, fid| match world.ok(A, get(fid)) {
        MdtReply::Striped { layout: Some(layout), .. } => {
            let component = &layout.components[0];
            (component.osts.clone(), component.stripe_size, layout.generation)
        }
        other => panic!("{other:?}"),
    };
    world.ok(A, set(dir, 1 << 17, &[3, 1]));
    assert_eq!(world.err(A, set(dir, 0, &[0, 9])), Errno::EINVAL);
    assert_eq!(world.err(A, set(dir, 0, &[])), Errno::EINVAL);
    let policy = StripePolicy { stripe_count: 2, stripe_size: 1 << 17, stripe_offset: Some(3) };
    let MdtReply::Striped { policy: own, .. } = world.ok(A, get(dir)) else { panic!() };
    assert_eq!(own, Some(policy));
    assert_eq!(lies(&mut world, dir), (vec![3, 1], 1 << 17, 0));
    // Files and directories made in it inherit it, also further below.
    let sub = world.mkdir(A, dir, "sub");
    assert_eq!(world.ok(A, get(sub)), world.ok(A, get(dir)));
    for parent in [dir, sub] {
        for file in ["f", "g"] {
            let file = world.mknod(A, parent, file);
            assert_eq!(lies(&mut world, file), (vec![3, 1], 1 << 17, 1));
        }
    }
    // A file that says less than where its stripes lie keeps what its directory says of that.
    let wish =
        |stripe_count, stripe_size| StripePolicy { stripe_count, stripe_size, stripe_offset: None };
    let file = world.mknod(A, sub, "own");
    world.ok(A, MdtRequest::SetStripe { fid: file, policy: wish(0, 1 << 16) });
    assert_eq!(lies(&mut world, file), (vec![3, 1], 1 << 16, 2));
    world.ok(A, MdtRequest::SetStripe { fid: file, policy: wish(1, 0) });
    assert_eq!(lies(&mut world, file), (vec![3], 1 << 17, 3));
    world.ok(A, set(file, 0, &[0]));
    assert_eq!(lies(&mut world, file), (vec![0], 1 << 17, 4));
    // Another striping takes its place, or none.
    world.ok(A, MdtRequest::SetStripe { fid: sub, policy: wish(1, 0) });
    let rest = MdtReply::Striped { layout: None, policy: Some(wish(1, 0)), default: ALL };
    assert_eq!(world.ok(A, get(sub)), rest);
    world.ok(A, MdtRequest::SetStripe { fid: dir, policy: wish(0, 0) });
    assert_eq!(
        world.ok(A, get(dir)),
        MdtReply::Striped { layout: None, policy: None, default: ALL }
    );
    let file = world.mknod(A, dir, "free");
    assert_eq!(lies(&mut world, file).0.len(), 4);
    // A directory with a list is removed like any other.
    world.ok(A, set(dir, 0, &[2]));
    let gone = world.mkdir(A, dir, "gone");
    assert_eq!(lies(&mut world, gone).0, [2]);
    world.ok(A, World::unlink_request(dir, "gone", true));
    finish(world);
}

#[test]
fn opens_truncate_and_refuse_what_cannot_be_opened() {
    let (mut world, a, _, f) = tree();
    let flags = OpenFlags { write: true, truncate: true, exec: false };
    let open = |fid, flags, id| MdtRequest::Open {
        fid,
        flags,
        open_id: OpenId { id },
        cred: Cred { uid: 1, gid: 1, umask: 0 },
        want: Ibits::DATA,
    };
    assert_eq!(world.err(A, open(a, flags, 100)), Errno::EISDIR);
    world.ok(A, open(a, OpenFlags::default(), 101));
    let MdtReply::Opened { layout: Some(layout), attr } = world.ok(A, open(f, flags, 102)) else {
        panic!()
    };
    assert!(attr.maybe_objects && !attr.size_stale);
    assert_eq!(world.err(A, open(f, flags, 102)), Errno::EINVAL, "a name of an open in use");
    world.write(&layout, f, 5000);
    world.close(A, f, OpenId { id: 102 }, Some(report(5000, true)));
    assert_eq!(
        world.err(A, MdtRequest::Close { fid: f, open_id: OpenId { id: 102 }, report: None }),
        Errno::EBADF
    );
    let MdtReply::Opened { attr, .. } = world.ok(B, open(f, flags, 1)) else { panic!() };
    assert_eq!(attr.size, 0);
    assert_eq!(world.osts[&0].objects.values().sum::<u64>(), 0);
    world.close(B, f, OpenId { id: 1 }, None);
    assert_eq!(world.stat(A, f).size, 0);
    finish(world);
}

#[test]
fn a_program_that_runs_is_written_by_nobody_else() {
    let (mut world, _, _, f) = tree();
    let open = |flags, id| MdtRequest::Open {
        fid: f,
        flags,
        open_id: OpenId { id },
        cred: Cred::default(),
        want: Ibits::META,
    };
    let exec = OpenFlags { exec: true, ..OpenFlags::default() };
    let write = OpenFlags { write: true, ..OpenFlags::default() };
    let cut = OpenFlags { truncate: true, ..OpenFlags::default() };
    let set = SetAttr { size: Some(3), ..SetAttr::default() };
    let size = MdtRequest::SetAttr { fid: f, set, cred: Cred::default() };
    world.ok(A, open(exec, 1));
    world.ok(A, open(exec, 2));
    assert_eq!(world.err(B, open(write, 1)), Errno::ETXTBSY);
    assert_eq!(world.err(B, open(cut, 1)), Errno::ETXTBSY);
    assert_eq!(world.err(B, size.clone()), Errno::ETXTBSY);
    world.ok(B, open(OpenFlags::default(), 1));
    // The kernel that runs it knows best whether it still does.
    world.ok(A, open(write, 3));
    world.close(A, f, OpenId { id: 3 }, None);
    world.close(A, f, OpenId { id: 1 }, None);
    assert_eq!(world.err(B, open(write, 2)), Errno::ETXTBSY);
    world.close(A, f, OpenId { id: 2 }, None);
    world.ok(B, open(write, 2));
    world.ok(B, size);
    // It goes with whoever ran it.
    world.ok(A, open(exec, 4));
    assert_eq!(world.err(B, open(write, 3)), Errno::ETXTBSY);
    let (now, mut out) = (world.now, sateen_target::Outbox::new());
    world.mdt.evict_client(now, A, &mut out);
    world.rest();
    world.ok(B, open(write, 3));
}

fn whiteout(world: &mut World, from: (Fid, &str), to: (Fid, &str)) -> MdtRequest {
    MdtRequest::RenameWhiteout {
        parent: from.0,
        name: name(from.1),
        new_parent: to.0,
        new_name: name(to.1),
        no_replace: false,
        fid: world.fid(A),
        cred: Cred { uid: 3, gid: 4, umask: 0 },
    }
}

#[test]
fn a_rename_leaves_a_whiteout_if_it_is_told_to() {
    let (mut world, a, b, f) = tree();
    let is_whiteout = |world: &mut World, dir, text: &str| {
        let left = world.lookup(B, dir, text).unwrap();
        assert_eq!((left.mode, left.rdev, left.nlink, left.uid), (0o020_000, 0, 1, 3));
    };
    let entries = world.list(A, a, 9).len();
    let request = whiteout(&mut world, (a, "f"), (ROOT, "g"));
    let moved = world.ok(A, request);
    let dirs = (Some(world.stat(A, a)), Some(world.stat(A, ROOT)));
    assert_eq!(moved, renamed(f, None, dirs));
    is_whiteout(&mut world, a, "f");
    assert_eq!(world.lookup(A, ROOT, "g").unwrap().fid, f);
    assert_eq!(world.list(A, a, 9).len(), entries);
    // A directory, over an empty one of the same parent.
    let c = world.mkdir(A, a, "c");
    let request = whiteout(&mut world, (a, "b"), (a, "c"));
    let MdtReply::Renamed { moved, replaced: Some(gone), .. } = world.ok(A, request) else {
        panic!()
    };
    assert_eq!((moved, gone.fid), (b, c));
    is_whiteout(&mut world, a, "b");
    assert_eq!((world.stat(A, a).nlink, world.list(A, a, 9).len()), (3, entries + 1));
    let mut taken = whiteout(&mut world, (ROOT, "g"), (a, "f"));
    if let MdtRequest::RenameWhiteout { no_replace, .. } = &mut taken {
        *no_replace = true;
    }
    assert_eq!(world.err(A, taken), Errno::EEXIST);
    let mut used = whiteout(&mut world, (ROOT, "g"), (ROOT, "h"));
    if let MdtRequest::RenameWhiteout { fid, .. } = &mut used {
        *fid = f;
    }
    assert_eq!(world.err(A, used), Errno::EEXIST, "a FID that is in use");
    // Back over the whiteout.
    world.ok(A, World::rename_request((ROOT, "g"), (a, "f")));
    assert_eq!(world.lookup(A, a, "f").unwrap().fid, f);
    world.ok(A, World::unlink_request(a, "b", false));
    finish(world);
}

/// Two names with one 48-bit hash under the file system key 42, found by search.
#[test]
fn names_with_one_hash_live_side_by_side() {
    let pairs = crate::model::colliding_names(42);
    let (mut world, a, ..) = tree();
    for (one, two) in &pairs {
        let first = world.mknod(A, a, one);
        assert_eq!(world.lookup(A, a, two), Err(Errno::ENOENT));
        let second = world.mknod(A, a, two);
        assert_eq!(world.lookup(A, a, one).unwrap().fid, first);
        assert_eq!(world.lookup(A, a, two).unwrap().fid, second);
        // The first goes: the second stays where it was.
        world.ok(A, World::unlink_request(a, one, false));
        assert_eq!(world.lookup(A, a, one), Err(Errno::ENOENT));
        assert_eq!(world.lookup(A, a, two).unwrap().fid, second);
        // Back under the old name, and over each other.
        world.ok(A, World::rename_request((a, two), (a, one)));
        assert_eq!(world.lookup(A, a, one).unwrap().fid, second);
        assert_eq!(world.lookup(A, a, two), Err(Errno::ENOENT));
        let third = world.mknod(A, a, two);
        world.ok(A, World::rename2((a, one), (a, two), EXCHANGE));
        assert_eq!(world.lookup(A, a, one).unwrap().fid, third);
        world.ok(A, World::rename_request((a, one), (a, two)));
        assert_eq!(world.lookup(A, a, two).unwrap().fid, third);
        assert_eq!(world.lookup(A, a, one), Err(Errno::ENOENT));
        world.rest();
        fsck::check(&fsck::image(&world.frames));
        world.ok(A, World::unlink_request(a, two, false));
        // A whiteout stays in its place, before or behind the new name.
        for (one, two) in [(one, two), (two, one)] {
            let file = world.mknod(A, a, one);
            let request = whiteout(&mut world, (a, one), (a, two));
            world.ok(A, request);
            assert_eq!(world.lookup(A, a, two).unwrap().fid, file);
            assert_eq!(world.lookup(A, a, one).unwrap().mode, 0o020_000);
            // Over each other.
            let request = whiteout(&mut world, (a, two), (a, one));
            world.ok(A, request);
            assert_eq!(world.lookup(A, a, one).unwrap().fid, file);
            assert_eq!(world.lookup(A, a, two).unwrap().mode, 0o020_000);
            world.rest();
            fsck::check(&fsck::image(&world.frames));
            world.ok(A, World::unlink_request(a, one, false));
            assert_eq!(world.lookup(A, a, two).unwrap().mode, 0o020_000);
            world.ok(A, World::unlink_request(a, two, false));
        }
    }
    finish(world);
}

#[test]
fn names_have_the_time_of_the_mdt_and_data_that_of_who_wrote_it() {
    let mut world = World::with_clients(2);
    // The writer's clock is far behind.
    let written = Timespec { sec: 5, nsec: 0 };
    world.now.wall_ns = 1_000_000_000_000;
    let now = |world: &World| Timespec::from_ns(world.now.wall_ns);
    let (made, open_id) = world.creat(A, ROOT, "f", Ibits::META.union(Ibits::DATA));
    let fid = made.grants.iter().next().unwrap().fid;
    let attr = world.stat(B, fid);
    assert_eq!((attr.mtime, attr.ctime), (now(&world), now(&world)));
    assert_eq!(world.stat(B, ROOT).mtime, now(&world));
    world.now.wall_ns += 1_000_000_000_000;
    let read = Timespec { sec: 9_999, nsec: 0 };
    let report = SizeReport { size: 5, blocks: 8, mtime: Some(written), atime: Some(read) };
    world.close(A, fid, open_id, Some(report));
    let attr = world.stat(B, fid);
    assert_eq!((attr.mtime, attr.atime), (written, read));
    world.now.wall_ns += 1_000_000_000_000;
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    world.ok(A, MdtRequest::SetAttr { fid, set, cred: Cred::default() });
    let attr = world.stat(B, fid);
    assert_eq!((attr.mtime, attr.ctime), (written, now(&world)));
    finish(world);
}

#[test]
fn what_a_kernel_has_allowed_is_not_checked_again() {
    let mut world = World::with_clients(1);
    let mut request = world.create_request(A, ROOT, "d", 0o040_700);
    let MdtRequest::Create { cred, .. } = &mut request else { panic!() };
    *cred = Cred::default();
    let MdtReply::Created { attr, .. } = world.ok(A, request) else { panic!() };
    assert_eq!((attr.uid, attr.mode), (0, 0o040_700));
    // Others than root have no way into that; their mount's kernel knows.
    let f = world.mknod(A, attr.fid, "f");
    assert_eq!(world.stat(A, f).uid, 1000);
    let cred = Cred { uid: 1000, gid: 1000, umask: 0 };
    let set = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    world.ok(A, MdtRequest::SetAttr { fid: attr.fid, set, cred });
    world.ok(A, World::unlink_request(attr.fid, "f", false));
    finish(world);
}

//! Nobody is answered by what another client's change has made before that is durable, and who
//! looks at nothing of it does not wait.

use sateen_target::Service;
use sateen_types::{ClientId, Errno, Fid};
use sateen_wire::*;

use crate::harness::*;

const WRITE: OpenFlags = OpenFlags { write: true, truncate: false, exec: false };

/// Two clients that speak; A's `dir` with `old` in it is durable, and so is B's `empty`.
fn world() -> (World, Fid, Fid) {
    let mut world = World::new(2);
    world.features = SPEAKS;
    world.connect(A);
    world.connect(B);
    let dir = world.mkdir(A, ROOT, "dir");
    let old = world.mknod(A, dir, "old");
    world.mkdir(B, ROOT, "empty");
    world.rest();
    world.keeps_flushes = true;
    (world, dir, old)
}

/// A change of A's that is answered at once, and not durable.
fn changes(world: &mut World, request: MdtRequest) -> u64 {
    let reply = answered(world, A, request);
    assert!(reply.transno > reply.last_committed);
    reply.transno
}

fn answered(world: &mut World, client: ClientId, request: MdtRequest) -> Reply {
    let shown = format!("{request:?}");
    let call = world.start(client, request);
    world.reply(call).unwrap_or_else(|| panic!("{shown} waits"))
}

/// It is answered when that is durable, and a group commit is asked for.
fn waits(world: &mut World, client: ClientId, request: MdtRequest, transno: u64) -> Reply {
    let shown = format!("{request:?}");
    let call = world.start(client, request);
    assert_eq!(world.reply(call), None, "{shown} does not wait");
    assert!(world.wants_flush, "{shown} asks for no group commit");
    world.keeps_flushes = false;
    world.flush();
    world.keeps_flushes = true;
    let reply = world.reply(call).unwrap_or_else(|| panic!("{shown} is not answered"));
    assert!(reply.last_committed >= transno, "{shown}");
    reply
}

fn lookup(parent: Fid, text: &str) -> MdtRequest {
    let name = name(text);
    MdtRequest::Lookup { parent, name, want_parent: Ibits::NONE, want: Ibits::NONE }
}

const fn stat(fid: Fid) -> MdtRequest {
    MdtRequest::GetAttr { fid, want: Ibits::NONE }
}

fn list(fid: Fid) -> MdtRequest {
    MdtRequest::ReadDir { fid, after: sateen_types::DirCookie::START, count: 100, plus: true }
}

fn set(fid: Fid, set: SetAttr) -> MdtRequest {
    MdtRequest::SetAttr { fid, set, cred: Cred::default() }
}

fn chmod(fid: Fid) -> MdtRequest {
    set(fid, SetAttr { mode: Some(0o700), ..SetAttr::default() })
}

fn create(world: &mut World, client: ClientId, parent: Fid, text: &str) -> MdtRequest {
    world.create_request(client, parent, text, 0o100_644)
}

fn xattr(fid: Fid) -> MdtRequest {
    let value = bytes::Bytes::from_static(b"v");
    MdtRequest::SetXattr { fid, name: name("user.a"), value, mode: XattrMode::Any }
}

fn open(world: &mut World, client: ClientId, fid: Fid) -> MdtRequest {
    let open_id = world.open_id(client);
    let (flags, cred, want) = (WRITE, Cred::default(), Ibits::NONE);
    MdtRequest::Open { fid, flags, open_id, cred, want }
}

#[test]
fn a_name_that_another_has_made_is_durable_before_it_is_told() {
    for how in 0..4 {
        let (mut world, dir, _) = world();
        let request = create(&mut world, A, dir, "new");
        let made = changes(&mut world, request);
        assert_eq!(answered(&mut world, A, lookup(dir, "new")).error, None, "its own");
        let asks = match how {
            0 => lookup(dir, "new"),
            1 => list(dir),
            2 => World::unlink_request(dir, "new", false),
            _ => World::rename_request((dir, "new"), (ROOT, "mine")),
        };
        assert_eq!(waits(&mut world, B, asks, made).error, None, "{how}");
    }
}

#[test]
fn a_name_that_another_has_taken_away_is_gone_for_good() {
    let (mut world, dir, _) = world();
    let gone = changes(&mut world, World::unlink_request(dir, "old", false));
    assert_eq!(waits(&mut world, B, lookup(dir, "old"), gone).error, Some(Errno::ENOENT));

    let (mut world, dir, _) = self::world();
    let gone = changes(&mut world, World::rename_request((dir, "old"), (dir, "moved")));
    let asks = create(&mut world, B, dir, "old");
    assert_eq!(waits(&mut world, B, asks, gone).error, None);
}

#[test]
fn makers_of_different_names_in_one_directory_do_not_wait() {
    let (mut world, dir, old) = world();
    for round in 0..20 {
        for client in [A, B] {
            let request = create(&mut world, client, dir, &format!("{}.{round}", client.0));
            let reply = answered(&mut world, client, request);
            assert!(reply.transno > reply.last_committed);
        }
        answered(&mut world, B, stat(dir));
        answered(&mut world, B, lookup(dir, "old"));
        answered(&mut world, B, lookup(dir, &format!("2.{round}")));
        // Times are nothing that anybody builds upon.
        let at = SetAttr { mtime: Some(TimeSet::Now), ..SetAttr::default() };
        changes(&mut world, set(old, at));
        answered(&mut world, B, stat(old));
        let gone = World::unlink_request(dir, &format!("{}.{round}", B.0), false);
        answered(&mut world, B, gone);
    }
    assert!(!world.wants_flush);
}

#[test]
fn what_decides_who_may_do_what_is_durable_before_it_is_told() {
    for (change, ask) in [(0, 0), (0, 1), (0, 2), (1, 3), (2, 0), (2, 4)] {
        let (mut world, dir, old) = world();
        let made = match change {
            0 => changes(&mut world, chmod(dir)),
            1 => changes(&mut world, xattr(dir)),
            _ => {
                let (parent, name) = (ROOT, name("link"));
                changes(&mut world, MdtRequest::Link { fid: old, parent, name })
            }
        };
        let of = if change == 2 { old } else { dir };
        let asks = match ask {
            0 => stat(of),
            1 => create(&mut world, B, dir, "b"),
            2 => lookup(ROOT, "dir"),
            3 => MdtRequest::GetXattr { fid: dir, name: name("user.a") },
            _ => World::unlink_request(dir, "old", false),
        };
        assert_eq!(waits(&mut world, B, asks, made).error, None, "{change} {ask}");
    }
}

#[test]
fn who_opens_a_file_that_another_has_begun_to_write_waits() {
    let (mut world, _, old) = world();
    let request = open(&mut world, A, old);
    let begun = changes(&mut world, request);
    answered(&mut world, B, stat(old));
    let request = open(&mut world, B, old);
    assert_eq!(waits(&mut world, B, request, begun).error, None);
}

#[test]
fn a_directory_that_another_has_emptied_is_removed_when_that_is_durable() {
    let (mut world, dir, _) = world();
    let emptied = changes(&mut world, World::unlink_request(dir, "old", false));
    let request = World::unlink_request(ROOT, "dir", true);
    assert_eq!(waits(&mut world, B, request, emptied).error, None);

    let (mut world, dir, _) = self::world();
    let emptied = changes(&mut world, World::unlink_request(dir, "old", false));
    let request = World::rename_request((ROOT, "empty"), (ROOT, "dir"));
    assert_eq!(waits(&mut world, B, request, emptied).error, None);
}

#[test]
fn moves_of_directories_come_one_after_the_other() {
    let (mut world, dir, _) = world();
    let mut request = create(&mut world, A, dir, "below");
    if let MdtRequest::Create { mode, .. } = &mut request {
        *mode = 0o040_755;
    }
    let reply = answered(&mut world, A, request);
    let ReplyBody::Mdt(MdtReply::Created { attr, .. }) = reply.body else { panic!() };
    let below = attr.fid;
    world.keeps_flushes = false;
    world.rest();
    world.keeps_flushes = true;
    let moved = changes(&mut world, World::rename_request((dir, "below"), (ROOT, "above")));
    // It knows the directory under another name than the one that it has now.
    let request = World::rename_request((ROOT, "dir"), (below, "dir"));
    assert_eq!(waits(&mut world, B, request, moved).error, None);
}

/// Its own change hides that of another.
#[test]
fn a_change_on_top_of_anothers_waits_for_both() {
    let (mut world, dir, _) = world();
    let request = create(&mut world, A, dir, "new");
    let made = changes(&mut world, request);
    let removed = world.start(B, World::unlink_request(dir, "new", false));
    assert_eq!(world.reply(removed), None);
    let reply = waits(&mut world, B, lookup(dir, "new"), made);
    assert_eq!(reply.error, Some(Errno::ENOENT));
    let removed = world.reply(removed).unwrap();
    assert!(removed.error.is_none() && removed.last_committed >= removed.transno);
    // All of that is durable now, and forgotten.
    world.wants_flush = false;
    answered(&mut world, A, lookup(dir, "new"));
    assert!(!world.wants_flush);
}

#[test]
fn nobody_waits_who_dies_with_the_mdt_and_none_if_that_is_not_wanted() {
    let mut world = World::new(2);
    world.connect(A);
    world.connect(B);
    world.rest();
    world.keeps_flushes = true;
    let request = create(&mut world, A, ROOT, "new");
    changes(&mut world, request);
    assert_eq!(answered(&mut world, B, lookup(ROOT, "new")).error, None);

    let (mut world, dir, _) = self::world();
    world.mdt.set_commit_on_sharing(false);
    let request = create(&mut world, A, dir, "new");
    changes(&mut world, request);
    assert_eq!(answered(&mut world, B, lookup(dir, "new")).error, None);
    assert!(!world.wants_flush && !world.mdt.commit_on_sharing());
    // What was changed meanwhile may be of anybody.
    world.mdt.set_commit_on_sharing(true);
    let upto = world.mdt.store().transno();
    let reply = waits(&mut world, B, lookup(dir, "old"), upto);
    assert_eq!(reply.error, None);
}

/// The author dies with the MDT; who has built on what it has made comes back.
#[test]
fn who_builds_on_the_change_of_one_who_dies_with_the_mdt_loses_nothing() {
    let (mut world, dir, _) = world();
    let mut request = create(&mut world, A, dir, "folder");
    if let MdtRequest::Create { mode, .. } = &mut request {
        *mode = 0o040_755;
    }
    let made = changes(&mut world, request);
    let reply = waits(&mut world, B, lookup(dir, "folder"), made);
    let ReplyBody::Mdt(MdtReply::Inode { attr }) = reply.body else { panic!("{reply:?}") };
    world.keeps_flushes = false;
    let request = create(&mut world, B, attr.fid, "file");
    let built = answered(&mut world, B, request.clone());
    world.crash_under_clients();
    for client in [A, B] {
        assert!(world.reconnect(client).is_some_and(|run| run != 0));
    }
    let claim = |world: &World, client: ClientId| MdtRequest::Reclaim {
        locks: Vec::new(),
        opens: Vec::new(),
        seqs: vec![world.clients[&client].fids.unwrap().0],
        file_locks: Vec::new(),
        last: true,
    };
    // The first knows nothing any more of what it did.
    let nothing = claim(&world, A);
    world.start(A, nothing);
    let changes = vec![replayed(&request, &built)];
    let told = world.start(B, MdtRequest::Replay { changes, last: true });
    world.rest();
    assert_eq!(world.reply(told).unwrap().error, None);
    let last = claim(&world, B);
    world.ok(B, last);
    assert_eq!(world.mdt.recovery_status().replayed, 1);
    world.lookup(B, attr.fid, "file").unwrap();
}

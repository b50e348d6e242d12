//! Answers that a crash has taken, of requests with which others have gone on since: each is made
//! again, as if they had come right after it, and nobody is thrown out.

use sateen_types::{ClientId, Errno, Fid};
use sateen_wire::*;

use crate::fsck;
use crate::harness::*;
use crate::returning::Had;
use crate::silent::listen;

const WRITE: OpenFlags = OpenFlags { write: true, truncate: false, exec: false };

/// Carried out and durable, and not answered before the crash; both clients are back then.
fn lost(world: &mut World, requests: &[MdtRequest]) -> Vec<Call> {
    let calls = (10..).zip(requests).map(|(slot, request)| world.ask_in(slot, request).0).collect();
    world.flush();
    world.crash_under([A, B].map(|client| (client, Had::default())));
    calls
}

fn create(world: &mut World, text: &str, mode: u32, open: Option<OpenFlags>) -> MdtRequest {
    MdtRequest::Create {
        parent: ROOT,
        name: name(text),
        fid: world.fid(A),
        mode,
        rdev: 0,
        cred: Cred { uid: 5, gid: 6, umask: 0o22 },
        symlink: bytes::Bytes::new(),
        policy: None,
        open,
        open_id: world.open_id(A),
        exclusive: open.is_none(),
        want: Ibits::DATA,
    }
}

fn tmpfile(world: &mut World, linkable: bool) -> MdtRequest {
    MdtRequest::Tmpfile {
        parent: ROOT,
        fid: world.fid(A),
        mode: 0o666,
        cred: Cred::default(),
        flags: WRITE,
        open_id: world.open_id(A),
        linkable,
        want: Ibits::NONE,
    }
}

/// Opens it by its FID.
fn opens(world: &mut World, client: ClientId, fid: Fid, flags: OpenFlags) -> OpenId {
    let (open_id, cred) = (world.open_id(client), Cred::default());
    world.ok(client, MdtRequest::Open { fid, flags, open_id, cred, want: Ibits::DATA });
    open_id
}

/// The FID that a request makes, and its open.
fn of(request: &MdtRequest) -> (Fid, OpenId) {
    match request {
        MdtRequest::Create { fid, open_id, .. } | MdtRequest::Tmpfile { fid, open_id, .. } => {
            (*fid, *open_id)
        }
        other => panic!("{other:?}"),
    }
}

/// How many names the file has that it says it has made.
fn made(reply: &Reply) -> u32 {
    let ReplyBody::Mdt(MdtReply::Created { attr, existed: false, .. }) = &reply.body else {
        panic!("{reply:?}")
    };
    attr.nlink
}

fn inodes(world: &World) -> usize {
    fsck::of(&fsck::image(&world.frames), b'I').count()
}

/// Closes what was opened, written; nothing is left but the root.
fn ends_with_nothing(world: &mut World, opens: &[(Fid, OpenId)]) {
    for (fid, open_id) in opens {
        world.close(A, *fid, *open_id, Some(report(0, true)));
    }
    world.rest();
    fsck::check(&fsck::image(&world.frames));
    assert_eq!((inodes(world), world.objects()), (1, 0));
}

#[test]
fn a_file_without_a_name_is_there_or_another_is_made() {
    let mut world = World::of_speakers(2);
    let gone = tmpfile(&mut world, true);
    let call = lost(&mut world, std::slice::from_ref(&gone))[0];
    let reply = world.ask_again(call, &gone);
    // Of its FID nothing is made: what was written to it might be on its way out.
    assert_eq!(reply.error, Some(Errno::ESTALE));
    assert_eq!(world.ask_again(call, &gone), reply, "it is kept");
    let another = tmpfile(&mut world, true);
    let reply = world.call(A, another.clone());
    assert_eq!((reply.error, made(&reply)), (None, 0));
    ends_with_nothing(&mut world, &[of(&another)]);
}

/// Removed by somebody else before it was asked again.
#[test]
fn what_was_made_and_removed_is_told_as_it_was() {
    let mut world = World::of_speakers(2);
    let shut = create(&mut world, "shut", 0o100_666, None);
    let dir = create(&mut world, "dir", 0o040_777, None);
    let requests = [shut, dir];
    let calls = lost(&mut world, &requests);
    world.ok(B, World::unlink_request(ROOT, "shut", false));
    world.ok(B, World::unlink_request(ROOT, "dir", true));
    for (call, request) in calls.into_iter().zip(&requests) {
        let reply = world.ask_again(call, request);
        assert_eq!((reply.error, made(&reply)), (None, 0), "{request:?}");
    }
    ends_with_nothing(&mut world, &[]);
}

/// As if that had come first.
#[test]
fn what_was_made_and_removed_with_its_directory_is_not_made() {
    let mut world = World::of_speakers(2);
    let dir = world.mkdir(A, ROOT, "dir");
    world.flush();
    let mut shut = create(&mut world, "shut", 0o100_666, None);
    let MdtRequest::Create { parent, .. } = &mut shut else { panic!() };
    *parent = dir;
    let call = lost(&mut world, std::slice::from_ref(&shut))[0];
    world.ok(B, World::unlink_request(dir, "shut", false));
    world.ok(B, World::unlink_request(ROOT, "dir", true));
    assert_eq!(world.ask_again(call, &shut).error, Some(Errno::ENOENT));
    ends_with_nothing(&mut world, &[]);
}

/// Somebody else has made another of that name since: who wanted to be the one that makes it has not
/// opened that.
#[test]
fn an_exclusive_open_is_of_the_own_file_or_none() {
    let mut world = World::of_speakers(2);
    let mut exclusive = create(&mut world, "lock", 0o100_644, Some(WRITE));
    let MdtRequest::Create { exclusive: is_so, .. } = &mut exclusive else { panic!() };
    *is_so = true;
    let call = lost(&mut world, std::slice::from_ref(&exclusive))[0];
    world.ok(B, World::unlink_request(ROOT, "lock", false));
    world.mknod(B, ROOT, "lock");
    let reply = world.ask_again(call, &exclusive);
    assert_eq!((reply.error, reply.transno), (Some(Errno::ESTALE), 0));
    // Its client goes on: what it has made is a file without a name by now.
    let another = tmpfile(&mut world, false);
    let reply = world.call(A, another.clone());
    assert_eq!((reply.error, made(&reply)), (None, 0));
    world.ok(B, World::unlink_request(ROOT, "lock", false));
    ends_with_nothing(&mut world, &[of(&another)]);
}

/// Nobody has anything of that name now: it is made again, of another FID, and nobody is thrown out.
#[test]
fn an_open_of_what_was_made_and_removed_makes_another() {
    let mut world = World::of_speakers(2);
    let open = create(&mut world, "open", 0o100_644, Some(WRITE));
    let call = lost(&mut world, std::slice::from_ref(&open))[0];
    world.ok(B, World::unlink_request(ROOT, "open", false));
    let reply = world.ask_again(call, &open);
    assert_eq!((reply.error, reply.transno), (Some(Errno::ESTALE), 0));
    let again = create(&mut world, "open", 0o100_644, Some(WRITE));
    let reply = world.call(A, again.clone());
    assert_eq!((reply.error, made(&reply)), (None, 1));
    world.ok(B, World::unlink_request(ROOT, "open", false));
    ends_with_nothing(&mut world, &[of(&again)]);
}

/// Removed while another has it open.
#[test]
fn what_has_lost_its_name_and_is_there_is_open_as_well() {
    let mut world = World::of_speakers(2);
    let open = create(&mut world, "open", 0o100_644, Some(WRITE));
    let (fid, open_id) = of(&open);
    let call = lost(&mut world, std::slice::from_ref(&open))[0];
    let others = world.open_id(B);
    let cred = Cred::default();
    world.ok(B, MdtRequest::Open { fid, flags: WRITE, open_id: others, cred, want: Ibits::NONE });
    world.ok(B, World::unlink_request(ROOT, "open", false));
    assert_eq!(made(&world.ask_again(call, &open)), 0);
    world.close(B, fid, others, Some(report(0, true)));
    world.rest();
    assert_eq!(inodes(&world), 2, "the first one has it open still");
    ends_with_nothing(&mut world, &[(fid, open_id)]);
}

/// Another has opened it by its name, written and closed it meanwhile: that has ended its session.
fn ended(world: &mut World) -> (MdtRequest, Call) {
    let open = create(world, "open", 0o100_644, Some(WRITE));
    let call = lost(world, std::slice::from_ref(&open))[0];
    let fid = of(&open).0;
    let others = opens(world, B, fid, WRITE);
    world.close(B, fid, others, Some(report(7, true)));
    assert!(!world.stat(B, fid).size_stale);
    world.flush();
    (open, call)
}

#[test]
fn a_session_that_another_has_ended_begins_anew() {
    let mut world = World::of_speakers(2);
    let (open, call) = ended(&mut world);
    let (fid, open_id) = of(&open);
    // The other has what it wrote under its lock still.
    world.clients.get_mut(&B).unwrap().obliging = false;
    world.keeps_flushes = true;
    world.send_again(call, &open);
    assert_eq!(world.reply(call), None);
    let called = world.clients.get_mut(&B).unwrap().callbacks.pop_front();
    let Some(Callback::Blocking { id, .. }) = called else { panic!("{called:?}") };
    world.start(B, MdtRequest::Cancel { fid, id, report: None, more: vec![] });
    assert!(world.mdt.open_files().any(|(client, _)| client == A));
    assert_eq!(world.reply(call), None, "nobody writes before that is durable");
    world.keeps_flushes = false;
    world.flush();
    let reply = world.reply(call).expect("an answer");
    assert_eq!(made(&reply), 1);
    world.ok(B, World::unlink_request(ROOT, "open", false));
    ends_with_nothing(&mut world, &[(fid, open_id)]);
}

/// Its client is lost in the next crash, and what it has written then nobody knows.
#[test]
fn a_session_that_has_begun_anew_is_found_after_the_next_crash() {
    let mut world = World::of_speakers(2);
    let (open, call) = ended(&mut world);
    let fid = of(&open).0;
    assert_eq!(made(&world.ask_again(call, &open)), 1);
    world.crash_under([A, B].map(|client| (client, Had::default())));
    assert!(world.stat(B, fid).size_stale);
}

#[test]
fn no_session_begins_anew_before_who_was_lost_in_a_crash_is_refused() {
    const C: ClientId = ClientId(3);
    let mut world = World::of_speakers(2);
    let (open, call) = ended(&mut world);
    world.connect(C);
    world.rest();
    // No OST can be told to refuse it.
    world.gone.extend([0, 1]);
    world.crash_under_clients();
    let told = [A, B].map(|client| {
        assert!(world.reconnect(client).is_some_and(|run| run != 0));
        let claim = world.claim(client, Had::default());
        world.start(client, claim)
    });
    listen(&mut world, 65_000, &[A, B]);
    assert!(told.iter().all(|call| world.reply(*call).is_some_and(|reply| reply.error.is_none())));
    world.send_again(call, &open);
    listen(&mut world, 3_000, &[A, B]);
    assert_eq!(world.reply(call), None);
    world.gone.clear();
    listen(&mut world, 5_000, &[A, B]);
    world.rest();
    assert_eq!(made(&world.reply(call).expect("an answer")), 1);
}

#[test]
fn no_session_begins_anew_while_another_executes_the_file() {
    let mut world = World::of_speakers(2);
    let (open, call) = ended(&mut world);
    let fid = of(&open).0;
    let exec = OpenFlags { write: false, truncate: false, exec: true };
    let runs = opens(&mut world, B, fid, exec);
    assert_eq!(world.ask_again(call, &open).error, Some(Errno::ETXTBSY));
    assert!(!world.stat(B, fid).size_stale);
    world.ok(B, World::unlink_request(ROOT, "open", false));
    world.close(B, fid, runs, None);
    ends_with_nothing(&mut world, &[]);
}

/// Another has written to it since.
#[test]
fn what_was_emptied_is_not_emptied_once_more() {
    for by_name in [false, true] {
        let mut world = World::of_speakers(2);
        let fid = world.mknod(A, ROOT, "f");
        let first = opens(&mut world, A, fid, WRITE);
        world.close(A, fid, first, Some(report(5, true)));
        let flags = OpenFlags { truncate: true, ..WRITE };
        let (open_id, cred) = (world.open_id(A), Cred::default());
        let mut request = MdtRequest::Open { fid, flags, open_id, cred, want: Ibits::NONE };
        if by_name {
            request = create(&mut world, "f", 0o100_644, Some(flags));
        }
        let call = lost(&mut world, std::slice::from_ref(&request))[0];
        assert_eq!(world.stat(B, fid).size, 0);
        let others = opens(&mut world, B, fid, WRITE);
        world.close(B, fid, others, Some(report(7, true)));
        let reply = world.ask_again(call, &request);
        let (attr, open_id) = match reply.body {
            ReplyBody::Mdt(MdtReply::Opened { attr, .. }) => (attr, open_id),
            ReplyBody::Mdt(MdtReply::Created { attr, existed: true, .. }) => (attr, of(&request).1),
            body => panic!("{body:?}"),
        };
        assert_eq!((attr.fid, attr.size), (fid, 7));
        world.close(A, fid, open_id, None);
        assert_eq!(world.stat(B, fid).size, 7);
        world.ok(B, World::unlink_request(ROOT, "f", false));
        ends_with_nothing(&mut world, &[]);
    }
}

#[test]
fn what_was_moved_or_changed_may_have_gone_on_since() {
    let mut world = World::of_speakers(2);
    let [old, set] = ["old", "set"].map(|text| world.mknod(A, ROOT, text));
    world.flush();
    let rename = World::rename_request((ROOT, "old"), (ROOT, "new"));
    let cred = Cred::default();
    let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let change = MdtRequest::SetAttr { fid: set, set: mode, cred };
    let calls = lost(&mut world, &[rename.clone(), change.clone()]);
    world.ok(B, World::rename_request((ROOT, "new"), (ROOT, "newer")));
    world.ok(B, World::unlink_request(ROOT, "set", false));
    let reply = world.ask_again(calls[0], &rename);
    assert_eq!(reply.error, None);
    assert!(matches!(reply.body, ReplyBody::Mdt(MdtReply::Renamed { .. })), "{reply:?}");
    assert_eq!(world.lookup(B, ROOT, "newer").unwrap().fid, old);
    // As if the removal had come first.
    assert_eq!(world.ask_again(calls[1], &change).error, Some(Errno::ENOENT));
    world.mknod(A, ROOT, "goes on");
}

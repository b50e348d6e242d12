//! The space of targets: who is asked for it.

use sateen_types::{Endpoint, Errno};
use sateen_wire::{Header, MdtReply, OstReply, Reply, ReplyBody, StatFs};

use crate::rig::{Rig, reply};

/// A target says how much space it has.
fn say(rig: &Rig, to: &Header) {
    let space = StatFs::default();
    let said = match to.to {
        Endpoint::Mdt(_) => reply(MdtReply::StatFs(space), &[]),
        _ => Reply::ok(ReplyBody::Ost(OstReply::StatFs(space))),
    };
    rig.answer(to, said);
}

#[test]
fn of_connected_targets_the_others_are_not_asked() {
    let rig = Rig::with_osts(2);
    let client = rig.client.clone();
    let mut all = rig.start(async move { client.target_spaces().await });
    let lost = loop {
        let header = rig.take();
        if header.to == Endpoint::Ost(1) {
            break header;
        }
        say(&rig, &header);
    };
    rig.answer(&lost, Reply::error(Errno::ESTALE));
    assert_eq!(rig.take().to, Endpoint::Ost(1), "a new connection is wanted");
    assert!(rig.poll(&mut all).is_none(), "it is waited for a while");

    let client = rig.client.clone();
    let mut connected = rig.start(async move { client.connected_spaces().await });
    for target in [Endpoint::Mdt(0), Endpoint::Ost(0)] {
        let header = rig.take();
        assert_eq!(header.to, target);
        say(&rig, &header);
    }
    assert!(rig.is_silent());
    let rows = rig.poll(&mut connected).expect("nobody else is waited for");
    let said: Vec<_> = rows.iter().map(|row| (row.target, row.space.is_some())).collect();
    let expected = [(Endpoint::Mdt(0), true), (Endpoint::Ost(0), true), (Endpoint::Ost(1), false)];
    assert_eq!(said, expected);
}

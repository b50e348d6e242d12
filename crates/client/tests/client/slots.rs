//! How many requests may change something at a time.

use sateen_types::{Endpoint, Errno, Fid, Seq};
use sateen_wire::{MdtRequest, Reply};

use crate::rig::Rig;

const DIR: Fid = Fid { seq: Seq(0x2_0000_0600), oid: 9, ver: 0 };
const MDT: Endpoint = Endpoint::Mdt(0);

#[test]
fn what_changes_something_leaves_slots_to_others() {
    let rig = Rig::with_osts(1);
    for (max, errno) in [(0, Errno::ERANGE), (512, Errno::ERANGE)] {
        assert_eq!(rig.client.set_mod_rpcs_max(MDT, max), Err(errno));
    }
    assert_eq!(rig.client.set_mod_rpcs_max(Endpoint::Ost(0), 1), Err(Errno::EOPNOTSUPP));
    let shown = || rig.client.import_info(MDT).unwrap().mod_rpcs_max;
    assert_eq!(shown(), 64);
    rig.client.set_mod_rpcs_max(MDT, 511).unwrap();
    assert_eq!(shown(), 63, "fewer than all");
    rig.client.set_rpcs_max(MDT, 1).unwrap();
    assert_eq!(shown(), 1);
    rig.client.set_rpcs_max(MDT, 8).unwrap();
    rig.client.set_mod_rpcs_max(MDT, 2).unwrap();
    assert_eq!(shown(), 2);
    let remove = |name: &'static [u8]| {
        let client = rig.client.clone();
        rig.start(async move { client.unlink(DIR, name, false).await })
    };
    let _removing = [remove(b"a"), remove(b"b"), remove(b"c"), remove(b"d")];
    let (first, _) = rig.take_mdt();
    rig.take();
    assert!(rig.is_silent(), "two are in flight");
    // Who only looks goes past them.
    let client = rig.client.clone();
    let _looking = rig.start(async move { client.getattr(DIR).await });
    assert!(matches!(rig.take_mdt().1, MdtRequest::GetAttr { .. }));
    // It takes effect at once.
    rig.client.set_mod_rpcs_max(MDT, 3).unwrap();
    let [_, _, mut third, mut fourth] = _removing;
    assert!(rig.poll(&mut third).is_none() && rig.poll(&mut fourth).is_none());
    assert!(matches!(rig.take_mdt().1, MdtRequest::Unlink { .. }));
    assert!(rig.is_silent());
    rig.answer(&first, Reply::error(Errno::ENOENT));
    assert!(rig.poll(&mut fourth).is_none());
    assert!(matches!(rig.take_mdt().1, MdtRequest::Unlink { .. }));
}

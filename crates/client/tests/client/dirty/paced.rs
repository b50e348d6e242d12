//! What is kept for an OST that takes little, and what goes past what is kept.

use super::*;

#[test]
fn no_more_is_kept_for_a_slow_ost_than_it_takes_soon() {
    let (rig, handle, _) = keeper();
    rig.client.set_rpc_pages_max(OST, 256).unwrap();
    for page in 0..256 {
        keep(&rig, handle, page * PAGE, PAGE);
    }
    assert_eq!(rig.client.dirty_limit(0), 4 * MIB);
    assert_eq!(take_write(&rig), (0, MIB, MIB));
    rig.pass(3_000_000_000);
    written_last(&rig, MIB, 8 * MIB);
    rig.run();
    assert_eq!(rig.client.dirty_limit(0), 3 * MIB);
    let mut kept = 0;
    let mut waiting = loop {
        let (client, bytes) = (rig.client.clone(), Bytes::from(vec![7; PAGE as usize]));
        let write = async move { client.write(handle, MIB + kept, bytes, false).await };
        let mut write = rig.begin(write);
        match rig.poll(&mut write) {
            Some(done) => assert_eq!(done, Ok(PAGE as usize)),
            None => break write,
        }
        kept += PAGE;
    };
    assert!((2 * MIB..3 * MIB).contains(&kept), "{kept}");
    // It goes on when some of it was written out.
    assert_eq!(take_write(&rig), (MIB, MIB, MIB));
    written_last(&rig, MIB, 0);
    assert_eq!(rig.poll(&mut waiting), Some(Ok(PAGE as usize)));
}

#[test]
fn what_is_direct_says_so_to_the_ost() {
    for direct in [true, false] {
        let (rig, _, _) = keeper();
        let (handle, _) = open_with(&rig, OpenHow { sync: true, direct, ..WRITE }, &[0]);
        let _write = start_write(&rig, handle, 0, PAGE);
        let (header, request) = rig.take_ost();
        assert!(matches!(request, OstRequest::Write { .. }), "{request:?}");
        assert_eq!(header.direct, direct);
    }
}

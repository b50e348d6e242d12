//! Over what the mounts of these tests are served: what `SATEEN_TEST_FUSE` says, and else io_uring
//! where the kernel has it. All other tests here are for both.

use std::fs;

use sateen_testkit::transport;

use crate::rig::{Rig, Servers, on_both};

on_both!(each_mount_is_served_over_what_was_asked_for);

fn each_mount_is_served_over_what_was_asked_for(servers: Servers) {
    let Some(rig) = Rig::start(servers, "transport", 2, false) else { return };
    assert_eq!(rig.transports(), vec![transport::expected(); 2]);
    let bytes: Vec<u8> = (0..3_000_001_u32).map(|at| (at % 251) as u8).collect();
    let [one, other] = [0, 1].map(|number| rig.mounts()[number].join("file"));
    fs::write(&one, &bytes).unwrap();
    assert!(fs::read(&other).unwrap() == bytes);
    rig.end();
}

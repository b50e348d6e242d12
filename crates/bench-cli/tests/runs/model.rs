//! What needs no file system: predictions, and the size of a test.

use crate::rig::Folder;

#[test]
fn a_described_system_is_predicted_and_a_test_of_it_planned() {
    let folder = Folder::new();
    for name in ["lfs12", "lfs09"] {
        std::fs::write(folder.0.join(name), folder.works(&format!("predict --example {name}")))
            .unwrap();
    }
    let said = folder.works("predict lfs12");
    assert!(said.contains("write") && said.contains("create"), "{said}");
    // Before the command, as of all of them, or behind it.
    for line in ["--json predict lfs12", "predict lfs12 --json"] {
        let json: serde_json::Value = serde_json::from_str(&folder.works(line)).unwrap();
        assert!(json.is_object(), "{json}");
    }
    let said = folder.works("plan lfs09");
    assert!(said.contains("960"), "{said}");
    // Every option of it does something.
    for line in [
        "--thread-rate 25MB/s",
        "--node-ceiling 1GB/s",
        "--cores 2",
        "--memory 4GB",
        "--lock 10",
        "--tests 3",
        "--repeats 9",
    ] {
        assert_ne!(folder.works(&format!("plan lfs09 {line}")), said, "{line}");
    }
    assert!(folder.fails("--node-rate 1g plan lfs09", 2).contains("--node-rate: nothing is read"));
    assert!(folder.fails("plan nothing", 2).contains("nothing"));
    assert!(folder.fails("predict", 2).contains("HARDWARE.toml"));
}

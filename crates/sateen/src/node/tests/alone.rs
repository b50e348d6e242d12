//! Tests that count what all of their process does: each runs in a process of its own.

use std::process::Command;

/// Set in the process that has the test for itself.
const ALONE: &str = "SATEEN_TEST_ALONE";
/// What it says at its end.
const DONE: &str = "done, alone";

/// Runs a test, which is called `me`, in a process of its own.
pub(super) fn alone(me: &str, test: fn()) {
    if std::env::var_os(ALONE).is_some() {
        test();
        return println!("{DONE}");
    }
    let mut alone = Command::new(std::env::current_exe().unwrap());
    let output = alone.args(["--exact", me, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    // Its own sum would be taken for one of all tests.
    println!(
        "{}{}",
        text.replace("test result", "result"),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success() && text.contains(DONE), "see above");
}

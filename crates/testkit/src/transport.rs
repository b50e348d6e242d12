//! Over what the kernel's requests come in tests of the whole program: what `SATEEN_TEST_FUSE` says
//! (`classic` or `io_uring`), where a test says nothing itself. Every mount is then asked whether it
//! is so: a pass over another transport would prove nothing.

use serde_json::Value;

/// What is said of it.
const FUSE: &str = "SATEEN_TEST_FUSE";
/// Where the kernel says whether it serves FUSE over io_uring.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// The transport that mounts are told to use, if one is.
pub fn asked() -> Option<String> {
    std::env::var(FUSE).ok().filter(|name| !name.is_empty())
}

/// The transport of a mount for which nothing else is said.
pub fn expected() -> String {
    let has_io_uring = || std::fs::read_to_string(SWITCH).is_ok_and(|value| value.trim() == "Y");
    asked().unwrap_or_else(|| if has_io_uring() { "io_uring" } else { "classic" }.to_owned())
}

/// The transports of all mounts that a report of `sateen status --json` is of.
pub fn of_mounts(status: &[u8]) -> Vec<String> {
    let status: Value = serde_json::from_slice(status).unwrap_or_default();
    let mounts = status.get("mounts").and_then(Value::as_array).cloned().unwrap_or_default();
    let name = |mount: &Value| mount.get("transport").and_then(Value::as_str).map(str::to_owned);
    mounts.iter().map(|mount| name(mount).unwrap_or_default()).collect()
}

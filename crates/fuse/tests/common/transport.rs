//! Whether a test runs over the transport that it is named after.
use sateen_fuse::{Session, Transport, TransportChoice};

/// A mount falls back to /dev/fuse where the kernel offers no queues; a test of io_uring must not
/// where it is switched on, and CI has to have it.
pub(crate) fn check(session: &Session, choice: TransportChoice) {
    if choice == TransportChoice::Classic {
        return assert_eq!(session.transport(), Transport::Classic);
    }
    let switch = "/sys/module/fuse/parameters/enable_uring";
    let on = std::fs::read_to_string(switch).is_ok_and(|value| value.trim() == "Y");
    let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    if on || ci {
        let needs = format!("CI needs FUSE over io_uring: Linux 6.14 and Y in {switch}");
        assert_eq!(session.transport(), Transport::Uring, "{needs}");
    } else {
        println!(
            "FUSE over io_uring is switched off: this runs over {}",
            session.transport().name()
        );
    }
}

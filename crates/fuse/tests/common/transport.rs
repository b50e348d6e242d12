//! Whether a test runs over the transport that it is named after.
use sateen_fuse::{Session, Transport, TransportChoice};

/// Where the kernel says whether it serves FUSE over io_uring.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// A test of io_uring has it where it is switched on, and CI has to have it.
fn has_to_be_had() -> bool {
    let on = std::fs::read_to_string(SWITCH).is_ok_and(|value| value.trim() == "Y");
    on || std::env::var("CI").is_ok_and(|ci| ci == "true")
}

/// What a test of this transport asks for. Elsewhere it runs over /dev/fuse.
pub(crate) fn asked(choice: TransportChoice) -> TransportChoice {
    let perhaps = choice == TransportChoice::Uring && !has_to_be_had();
    if perhaps { TransportChoice::Auto } else { choice }
}

/// It runs over that, where it has to.
pub(crate) fn check(session: &Session, choice: TransportChoice) {
    if choice == TransportChoice::Classic {
        return assert_eq!(session.transport(), Transport::Classic);
    }
    if has_to_be_had() {
        let needs = format!("CI needs FUSE over io_uring: Linux 6.14 and Y in {SWITCH}");
        assert_eq!(session.transport(), Transport::Uring, "{needs}");
    } else {
        println!(
            "FUSE over io_uring is switched off: this runs over {}",
            session.transport().name()
        );
    }
}

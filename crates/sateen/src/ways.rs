//! Over what this process is connected with others: `--net`, and the option of a mount that says so.

use clap::ValueEnum;
use sateen_lnd::Ways;

use crate::node;
use crate::refusal::{Outcome, Refusal};
use crate::run_dir;

/// The option of a mount for `--net`.
const NET: &str = "net=";
/// Where processes of this host meet that share memory, in the folder of all of them.
const MEETING: &str = "shm";

/// Over what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Net {
    /// Shared memory with processes of this host, TCP with all others.
    #[default]
    Auto,
    /// TCP alone.
    Tcp,
    /// Shared memory alone.
    Shm,
}

impl Net {
    /// What a mount's options say; the last of them counts.
    ///
    /// # Errors
    /// Of `net=`, if what follows is nothing that can be.
    pub(crate) fn of_mount<'a>(options: impl Iterator<Item = &'a str>) -> Outcome<Net> {
        let mut said = Net::default();
        for option in options {
            said = match option.strip_prefix(NET) {
                None => said,
                Some("auto") => Net::Auto,
                Some("tcp") => Net::Tcp,
                Some("shm") => Net::Shm,
                Some(_) => {
                    return Err(Refusal::new(
                        format!("{option:?} names no way to servers"),
                        "say net=tcp, net=shm (memory shared with servers of this host), or \
                         net=auto for that with those of this host and TCP with others",
                    ));
                }
            };
        }
        Ok(said)
    }

    /// Whether it is an option of a mount that is about this.
    pub(crate) fn knows(option: &str) -> bool {
        option.starts_with(NET)
    }

    /// Has all connections go so that this process makes or takes from now on.
    pub(crate) fn apply(self) {
        let folder = (self != Net::Tcp).then(|| run_dir::root().join(MEETING));
        node::set_ways(Ways { folder, tcp: self != Net::Shm });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_says_over_what_it_goes() {
        let of = |options: &str| Net::of_mount(options.split(','));
        assert_eq!(of("ro,poll=3"), Ok(Net::Auto));
        assert_eq!(of("net=tcp"), Ok(Net::Tcp));
        assert_eq!(of("net=tcp,net=shm"), Ok(Net::Shm), "the last counts");
        assert_eq!(of("net=shm,net=auto"), Ok(Net::Auto));
        for bad in ["net=", "net=TCP", "net=o2ib"] {
            let refused = of(bad).unwrap_err();
            assert!(refused.what.contains(bad) && refused.to_string().contains("net=shm"));
        }
        assert!(Net::knows("net=x") && !Net::knows("network=tcp"));
    }
}

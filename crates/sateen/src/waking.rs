//! How long the threads of this process look for work before they sleep, and whether the processors
//! stay awake meanwhile: `--poll`, `--keep-cores-awake`, and the options of a mount that say so.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use sateen_polling::LIMIT_US;

use crate::cli::WakingArgs;
use crate::refusal::{Outcome, Refusal};

/// The option of a mount for `--poll`.
const POLL: &str = "poll=";
/// The option of a mount for `--keep-cores-awake`.
const KEEP: &str = "keep_cores_awake";
/// Most microseconds that threads look before they sleep.
pub(crate) const POLL_US_MAX: u16 = 1000;
/// Whoever has this open says what the processors may take to wake up (pm_qos_interface of the
/// kernel's documentation): for 0 microseconds they do not halt. It ends with the process.
const LATENCY_DEVICE: &str = "/dev/cpu_dma_latency";

/// Keeps the processors awake, if it is to, until it is dropped.
#[derive(Debug)]
pub(crate) struct Awake {
    _held: Option<File>,
}

impl WakingArgs {
    /// What a mount's options say, in their order.
    ///
    /// # Errors
    /// Of `poll=`, if no number of microseconds follows that can be.
    pub(crate) fn of_mount<'a>(options: impl Iterator<Item = &'a str>) -> Outcome<WakingArgs> {
        let mut said = WakingArgs::default();
        for option in options {
            if option == KEEP {
                said.keep_cores_awake = true;
            } else if let Some(text) = option.strip_prefix(POLL) {
                let us = text.parse().ok().filter(|us| *us <= POLL_US_MAX);
                said.poll = Some(us.ok_or_else(|| {
                    Refusal::new(
                        format!("{option:?} does not say for how long to look for work"),
                        format!("give it microseconds, 0 to {POLL_US_MAX}: poll={LIMIT_US}"),
                    )
                })?);
            }
        }
        Ok(said)
    }

    /// Whether it is an option of a mount that is about this.
    pub(crate) fn knows(option: &str) -> bool {
        option == KEEP || option.starts_with(POLL)
    }

    /// Has this process do so; before it starts any thread that looks for work.
    ///
    /// # Errors
    /// The processors are to be kept awake, and that cannot be had here.
    pub(crate) fn apply(&self) -> Outcome<Awake> {
        sateen_polling::set_limit(self.poll.unwrap_or(LIMIT_US));
        if !self.keep_cores_awake {
            return Ok(Awake { _held: None });
        }
        keep_awake(Path::new(LATENCY_DEVICE)).map(|held| Awake { _held: Some(held) })
    }
}

fn keep_awake(device: &Path) -> Outcome<File> {
    let opened = OpenOptions::new().write(true).open(device);
    let said = opened.and_then(|mut file| file.write_all(&0_i32.to_ne_bytes()).map(|()| file));
    said.map_err(|error| {
        Refusal::new(
            format!("cannot keep the processors awake: {}: {error}", device.display()),
            "give the process that device (it needs root, and a kernel with CONFIG_CPU_IDLE; in a \
             container, --device), or leave that out",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mounts_options_say_how_long_is_looked() {
        let of = |list: &'static str| WakingArgs::of_mount(list.split(','));
        assert_eq!(of("rw,noatime").unwrap(), WakingArgs::default());
        let said = of("poll=20,rw,keep_cores_awake,poll=0").unwrap();
        assert_eq!(said, WakingArgs { poll: Some(0), keep_cores_awake: true });
        for bad in ["poll=", "poll=-1", "poll=1001", "poll=50us"] {
            let refused = of(bad).unwrap_err();
            assert!(refused.what.contains(bad) && refused.to_string().contains("poll=50"));
            assert!(WakingArgs::knows(bad));
        }
        assert!(!WakingArgs::knows("keep_cores_awake=1") && !WakingArgs::knows("polls"));
    }

    #[test]
    fn processors_that_cannot_be_kept_awake_are_a_refusal() {
        let refused = keep_awake(Path::new("/dev/null/absent")).unwrap_err();
        assert!(refused.what.contains("/dev/null/absent"), "{refused}");
        let mut said = Vec::new();
        let scratch = crate::testing::Scratch::new("waking");
        let device = scratch.path().join("device");
        std::fs::write(&device, b"").unwrap();
        drop(keep_awake(&device).unwrap());
        std::io::Read::read_to_end(&mut File::open(&device).unwrap(), &mut said).unwrap();
        assert_eq!(said, [0; 4]);
    }
}

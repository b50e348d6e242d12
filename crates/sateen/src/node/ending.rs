//! The end of targets in good order, while they can still be reached: their clients may go on with
//! the next process.

use std::time::{Duration, Instant};

use sateen_target::Ending;
use sateen_types::Endpoint;

use super::Running;

/// How long all of it may take: 10 s. What is not done by then is as after a crash.
const LIMIT: Duration = Duration::from_secs(10);
/// How often it is asked how far it is.
const PAUSE: Duration = Duration::from_millis(5);

/// Ends MDTs, then all others: an MDT may wait for OSTs.
pub(super) fn end(targets: &[Running]) {
    let until = Instant::now() + LIMIT;
    let is_mdt = |running: &&Running| matches!(running.target, Endpoint::Mdt(_));
    let (mdts, others): (Vec<_>, Vec<_>) = targets.iter().partition(is_mdt);
    for those in [mdts, others] {
        for running in &those {
            running.host.begin_end();
        }
        for running in those {
            let target_name = running.target;
            match wait(running, until) {
                Ending::Clean => tracing::info!(%target_name, "ended in good order"),
                Ending::Lost | Ending::Working => tracing::warn!(
                    %target_name,
                    "not ended in good order: what its clients had is lost to them"
                ),
            }
        }
    }
}

fn wait(running: &Running, until: Instant) -> Ending {
    loop {
        let ending = running.host.ending();
        if ending != Ending::Working || Instant::now() >= until {
            return ending;
        }
        std::thread::sleep(PAUSE);
    }
}

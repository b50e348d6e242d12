//! Ticks of targets that rest: nearly all events are such, and none of them does anything.

use sateen_types::Endpoint;

use super::World;

impl World {
    /// Lets time go by until then as long as nothing but that comes next, as [`World::happen`] would.
    pub(super) fn rests(&mut self, pause_ns: u64) {
        if !self.promises.is_empty() || self.silence.is_any_still() || !self.nobody_ends() {
            return;
        }
        while let Some((at, target, boots)) = self.queue.next_tick() {
            // The first MDT's ticks are also those at which operations settle.
            let settles = target == Endpoint::Mdt(0) && !self.settling.is_empty();
            if settles || at >= self.registrars_ns || self.now_ns >= pause_ns {
                return;
            }
            let Some(host) = self.hosts.get(&target) else { return };
            if host.boots != boots || !host.rests(at, &mut self.random) {
                return;
            }
            self.queue.tick_again();
            self.time_is(at);
        }
    }
}

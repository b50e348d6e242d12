//! Room for metadata: below a low-water mark names and attributes may change and go, but not
//! grow. What is left then is for the journal and the checkpoints, without which the target
//! would have to stop.

use sateen_types::units::MIB;
use sateen_types::{Errno, Result};
use sateen_wire::StatFs;

/// The low-water mark: less than what an OST on the same disk keeps back, so that a disk full
/// of data still takes names.
const LOW_WATER_MAX: u64 = 192 * MIB;
/// The low-water mark is at most this part of a small disk.
const LOW_WATER_PART: u64 = 32;

/// What is known of the disk; nothing, and then there is room, where space is no concern.
#[derive(Debug, Default)]
pub(crate) struct Room {
    known: Option<StatFs>,
}

impl Room {
    pub(crate) fn learn(&mut self, space: StatFs) {
        self.known = Some(space);
    }

    /// Bytes of the disk, as `statfs` shows them.
    pub(crate) fn statfs(&self) -> StatFs {
        self.known.unwrap_or_default()
    }

    /// Asked by whatever makes metadata grow, before it changes anything.
    ///
    /// # Errors
    /// `ENOSPC`.
    pub(crate) fn require(&self) -> Result<()> {
        let low = |space: &StatFs| {
            space.bytes_avail < LOW_WATER_MAX.min(space.bytes_total / LOW_WATER_PART)
        };
        if self.known.as_ref().is_some_and(low) { Err(Errno::ENOSPC) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_room_is_for_what_must_go_on() {
        let mut room = Room::default();
        assert_eq!(room.require(), Ok(()), "nothing is known of a disk in memory");
        let space = |total: u64, avail: u64| StatFs {
            bytes_total: total,
            bytes_free: avail,
            bytes_avail: avail,
            ..StatFs::default()
        };
        room.learn(space(1 << 40, LOW_WATER_MAX - 1));
        assert_eq!(room.require(), Err(Errno::ENOSPC));
        room.learn(space(1 << 40, LOW_WATER_MAX));
        assert_eq!(room.require(), Ok(()));
        room.learn(space(320 * MIB, 9 * MIB));
        assert_eq!(room.require(), Err(Errno::ENOSPC));
        room.learn(space(320 * MIB, 10 * MIB));
        assert_eq!(room.require(), Ok(()));
    }
}

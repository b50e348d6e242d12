//! Starting a target: from what the journal device found to a store.

use sateen_journal::{Malformed, records};
use sateen_osd::{BatchError, Store, StoreLimits};

/// Rebuilds a store from frames in journal order.
#[derive(Debug)]
pub struct Recovery {
    store: Store,
    epoch: u64,
    replayed: u64,
}

/// The journal is damaged in a place that was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecoveryError {
    /// A frame with a right checksum holds records that make no sense.
    Malformed,
    /// Records are missing between the checkpoint and the journal, or within the journal.
    Gap {
        /// The transno that should have followed.
        expected: u64,
        /// The transno that was found.
        found: u64,
    },
}

impl std::fmt::Display for RecoveryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RecoveryError::Malformed => f.write_str("the journal holds records that make no sense"),
            RecoveryError::Gap { expected, found } => write!(
                f,
                "the journal has a gap: transno {expected} is missing before {found}; restore the \
                 target from a backup"
            ),
        }
    }
}

impl std::error::Error for RecoveryError {}

impl From<Malformed> for RecoveryError {
    fn from(_: Malformed) -> RecoveryError {
        RecoveryError::Malformed
    }
}

impl From<BatchError> for RecoveryError {
    fn from(_: BatchError) -> RecoveryError {
        RecoveryError::Malformed
    }
}

impl Recovery {
    /// Starts over an index checkpointed at `checkpointed`.
    pub fn new(epoch: u64, checkpointed: u64, limits: StoreLimits) -> Recovery {
        Recovery { store: Store::new(epoch, checkpointed, limits), epoch, replayed: 0 }
    }

    /// Applies one frame's payload.
    ///
    /// # Errors
    /// See [`RecoveryError`]; the target must not start then.
    pub fn frame(&mut self, payload: &[u8]) -> Result<(), RecoveryError> {
        for record in records(payload) {
            let (transno, bytes) = record?;
            let expected = self.store.committed() + 1;
            if transno > expected {
                return Err(RecoveryError::Gap { expected, found: transno });
            }
            self.store.replay(self.epoch, transno, bytes)?;
            self.replayed += u64::from(transno == expected);
        }
        Ok(())
    }

    /// The store, and how many transactions were replayed.
    pub fn finish(self) -> (Store, u64) {
        (self.store, self.replayed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sateen_osd::{Batch, Key};

    /// The payloads of frames of so many records each, of a store of epoch 3 from transno 1 on.
    fn frames(sizes: &[u32]) -> Vec<Vec<u8>> {
        let mut store = Store::new(3, 0, StoreLimits::default());
        let mut frame = |records: &u32| {
            for value in 0..*records {
                let mut batch = Batch::new();
                batch.put(&Key::tag(b'k'), &value);
                store.commit(&batch);
            }
            let flush = store.begin_flush().unwrap();
            let payload = flush.frame[sateen_journal::FRAME_HEADER_BYTES..].to_vec();
            store.flush_done(flush);
            payload
        };
        sizes.iter().map(&mut frame).collect()
    }

    #[test]
    fn what_the_checkpoint_has_is_passed_over_and_the_rest_is_counted() {
        let frames = frames(&[2, 3]);
        let mut recovery = Recovery::new(3, 1, StoreLimits::default());
        for frame in &frames {
            recovery.frame(frame).unwrap();
        }
        let (store, replayed) = recovery.finish();
        assert_eq!((store.committed(), replayed), (5, 4));
    }

    #[test]
    fn a_gap_is_named_and_so_is_what_makes_no_sense() {
        let frames = frames(&[2, 3]);
        let mut recovery = Recovery::new(3, 0, StoreLimits::default());
        let gap = RecoveryError::Gap { expected: 1, found: 3 };
        assert_eq!(recovery.frame(&frames[1]), Err(gap));
        recovery.frame(&frames[0]).unwrap();
        let cut = &frames[1][..frames[1].len() - 1];
        assert_eq!(recovery.frame(cut), Err(RecoveryError::Malformed));
        // A record that is whole, and no batch.
        let mut appender = sateen_journal::Appender::new(3, 4);
        appender.append(b"no batch");
        let frame = appender.take().unwrap();
        let payload = &frame.bytes[sateen_journal::FRAME_HEADER_BYTES..];
        assert_eq!(recovery.frame(payload), Err(RecoveryError::Malformed));
    }
}

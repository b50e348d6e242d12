//! The journal: frames that were synced, and what a crash leaves of one that was not.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sateen_journal::{Decoded, decode_frame};

use crate::random::Random;

/// Bytes that a disk writes as one.
const SECTOR_BYTES: usize = 512;

#[derive(Debug)]
struct Kept {
    last: u64,
    bytes: Vec<u8>,
}

/// A journal on a simulated disk. Clones are the same journal.
#[derive(Debug, Clone)]
pub struct SimJournal {
    /// Its epoch.
    pub epoch: u64,
    frames: Arc<Mutex<Vec<Kept>>>,
}

impl SimJournal {
    pub(crate) fn new(epoch: u64) -> SimJournal {
        SimJournal { epoch, frames: Arc::default() }
    }

    fn frames(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A frame was written and synced.
    pub fn write(&self, frame: &[u8], last: u64) {
        self.frames().push(Kept { last, bytes: frame.to_vec() });
    }

    /// Transno of the last frame that was synced.
    pub fn last(&self) -> u64 {
        self.frames().last().map_or(0, |kept| kept.last)
    }

    /// Everything up to `upto` is in the index.
    pub fn trim(&self, upto: u64) {
        self.frames().retain(|kept| kept.last > upto);
    }

    /// A crash met a frame that was being written: nothing of it is there, or all, or it is
    /// torn: cut at any byte, or with any of its sectors missing. Says whether it was torn.
    pub fn tear(&self, frame: &[u8], last: u64, random: &mut Random) -> bool {
        let mut bytes = frame.to_vec();
        match random.below(4) {
            0 => return false,
            1 => {
                self.write(frame, last);
                return false;
            }
            2 => bytes.truncate(random.index(frame.len())),
            _ => {
                for sector in bytes.chunks_mut(SECTOR_BYTES) {
                    if random.one_in(2) {
                        sector.fill(0);
                    }
                }
            }
        }
        self.frames().push(Kept { last, bytes });
        true
    }

    /// The payloads of all whole frames, in order, for recovery. What is torn ends the
    /// journal and is cut off.
    pub fn recover(&self) -> Vec<Vec<u8>> {
        let mut frames = self.frames();
        let mut payloads = Vec::new();
        for kept in frames.iter() {
            match decode_frame(self.epoch, &kept.bytes) {
                Decoded::Frame { payload, .. } => payloads.push(payload.to_vec()),
                Decoded::End => break,
            }
        }
        frames.truncate(payloads.len());
        payloads
    }
}

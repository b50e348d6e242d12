//! Who may still have something to write here, and since when.
//!
//! Every client incarnation gets a number when it first connects. A tombstone notes the
//! highest number of its moment, and is needed until no writer with that number or a smaller
//! one is left. The numbers are journaled, so that a restart forgets no writer: a tombstone
//! that survives a crash lies behind its writers' records in the same journal. A writer that
//! does not come back after a restart is given up after [`RECONNECT_NS`].
//!
//! MDTs and other targets write nothing and have no number.

use std::collections::BTreeMap;

use sateen_types::ClientId;

/// How long after a start the writers of before may take to come back: 5 minutes.
pub(crate) const RECONNECT_NS: u64 = 300_000_000_000;

#[derive(Debug)]
struct Writer {
    number: u64,
    /// It has connected since the start.
    back: bool,
}

/// All writers.
#[derive(Debug, Default)]
pub(crate) struct Writers {
    all: BTreeMap<ClientId, Writer>,
    last: u64,
}

impl Writers {
    /// A record from before the start.
    pub(crate) fn restore(&mut self, client: ClientId, number: u64) {
        self.all.insert(client, Writer { number, back: false });
        self.reached(number);
    }

    /// Numbers up to this one were given out.
    pub(crate) fn reached(&mut self, number: u64) {
        self.last = self.last.max(number);
    }

    /// The incarnation has connected; the number to be journaled if it is new.
    pub(crate) fn connected(&mut self, client: ClientId) -> Option<u64> {
        if let Some(writer) = self.all.get_mut(&client) {
            writer.back = true;
            return None;
        }
        self.last += 1;
        self.all.insert(client, Writer { number: self.last, back: true });
        Some(self.last)
    }

    /// The incarnation will not write any more; false if it was none of the writers.
    pub(crate) fn gone(&mut self, client: ClientId) -> bool {
        self.all.remove(&client).is_some()
    }

    /// The writers of before the start that have not come back.
    pub(crate) fn missing(&self) -> Vec<ClientId> {
        self.all.iter().filter(|(_, writer)| !writer.back).map(|(client, _)| *client).collect()
    }

    /// What a tombstone made now has to note; `None` if there is no writer to fear.
    pub(crate) fn youngest(&self) -> Option<u64> {
        (!self.all.is_empty()).then_some(self.last)
    }

    /// Tombstones that noted less than this are not needed any more.
    pub(crate) fn oldest(&self) -> u64 {
        self.all.values().map(|writer| writer.number).min().unwrap_or(self.last + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tombstone_outlives_all_writers_of_its_moment() {
        let mut writers = Writers::default();
        assert_eq!(writers.youngest(), None);
        assert_eq!(writers.connected(ClientId(8)), Some(1));
        assert_eq!(writers.connected(ClientId(9)), Some(2));
        assert_eq!(writers.connected(ClientId(8)), None);
        let noted = writers.youngest().unwrap();
        assert_eq!(writers.connected(ClientId(1)), Some(3));
        assert!(writers.gone(ClientId(8)) && !writers.gone(ClientId(8)));
        assert!(noted >= writers.oldest());
        writers.gone(ClientId(9));
        assert!(noted < writers.oldest());
        writers.restore(ClientId(5), 7);
        assert_eq!(writers.missing(), [ClientId(5)]);
        assert_eq!(writers.connected(ClientId(6)), Some(8));
        writers.gone(ClientId(1));
        assert_eq!(writers.oldest(), 7);
    }
}

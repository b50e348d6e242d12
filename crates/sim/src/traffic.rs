//! Messages by kind: how many were sent, and how many met which fault.
//!
//! The kinds are those of the wire, so that a message that is new there is missed here until
//! some program of the simulator has it sent.

use std::collections::BTreeMap;
use std::fmt;

use sateen_wire::MessageKind;

/// What can happen to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It never arrives.
    Dropped,
    /// It arrives twice.
    Duplicated,
    /// It arrives so late that others overtake it.
    Delayed,
    /// Sender or receiver died while it was under way, or it was sent to somebody dead.
    Cut,
}

impl Fault {
    /// All of them, in the order of [`Tally::faults`].
    pub const ALL: [Fault; 4] = [Fault::Dropped, Fault::Duplicated, Fault::Delayed, Fault::Cut];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Fault::Dropped => "dropped",
            Fault::Duplicated => "duplicated",
            Fault::Delayed => "delayed",
            Fault::Cut => "cut",
        }
    }
}

/// The counts of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Messages sent.
    pub sent: u64,
    /// Messages that met each of [`Fault::ALL`].
    pub faults: [u64; 4],
}

/// Kinds that no network can lose, since they go to an OST of the same process only: those of files that a
/// kernel is given to read and write itself (docs/hot-path.md, question A), which it is given by whoever has
/// their objects open. The world `--given` sends all but `Alone`; `ost/tests/given.rs` and `ost/tests/crash.rs`
/// send all.
/// - `SetSize` and `SetTimes` tell the OST what to make of an object that the kernel writes itself;
/// - `Append` and `Appended` are a write of such a file that is left to the client;
/// - `Alone` asks whether anybody but the OST has an object open or mapped, and says so.
const NEVER_LOST: [&str; 6] = [
    "request OST SetSize",
    "request OST SetTimes",
    "request OST Append",
    "request OST Alone",
    "reply OST Appended",
    "reply OST Alone",
];

/// Of the rarest kinds fewer were sent than one in so many operations.
const OPERATIONS_PER_RAREST: u64 = 150;

/// The counts of all kinds that were sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Traffic(BTreeMap<MessageKind, Tally>);

impl Traffic {
    /// The counts of a kind.
    pub fn of(&self, kind: MessageKind) -> Tally {
        self.0.get(&kind).copied().unwrap_or_default()
    }

    /// How many of a kind met a fault.
    pub fn met(&self, kind: MessageKind, fault: Fault) -> u64 {
        self.of(kind).faults.get(fault as usize).copied().unwrap_or_default()
    }

    /// How many were sent of the kind with this name.
    pub(crate) fn sent_of(&self, name: &str) -> u64 {
        let of = self.0.iter().filter(|(kind, _)| kind.to_string() == name);
        of.map(|(_, tally)| tally.sent).sum()
    }

    /// Whether a kind of which so many were sent by now is one of the rarest: a chance that is missed may be
    /// the last.
    pub(crate) fn is_rarest(sent: u64, operations: u64) -> bool {
        sent < operations / OPERATIONS_PER_RAREST
    }

    /// One more of a kind is sent; the counts of the kind with it.
    pub(crate) fn sent(&mut self, kind: MessageKind) -> Tally {
        let tally = self.0.entry(kind).or_default();
        tally.sent += 1;
        *tally
    }

    pub(crate) fn meets(&mut self, kind: MessageKind, fault: Fault) {
        if let Some(count) = self.0.entry(kind).or_default().faults.get_mut(fault as usize) {
            *count += 1;
        }
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Traffic) {
        for (kind, theirs) in &other.0 {
            let ours = self.0.entry(*kind).or_default();
            ours.sent += theirs.sent;
            for (count, more) in ours.faults.iter_mut().zip(theirs.faults) {
                *count += more;
            }
        }
    }

    /// Kinds that met a fault less often than `least` times: those that nobody sends, too, for what
    /// nobody sends has no place on the wire, but for [`NEVER_LOST`].
    pub fn missing(&self, least: u64) -> Vec<String> {
        let mut out = Vec::new();
        let wanted = |kind: &MessageKind| !NEVER_LOST.contains(&kind.to_string().as_str());
        for kind in MessageKind::all().into_iter().filter(wanted) {
            for fault in Fault::ALL {
                let met = self.met(kind, fault);
                if met < least {
                    out.push(format!("{kind} {}: {met} of {least}", fault.name()));
                }
            }
        }
        out
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {:<26}{:>9}", "message", "sent")?;
        for fault in Fault::ALL {
            write!(f, "{:>12}", fault.name())?;
        }
        writeln!(f)?;
        for kind in MessageKind::all() {
            let Tally { sent, faults } = self.of(kind);
            write!(f, "  {kind:<26}{sent:>9}")?;
            for count in faults {
                write!(f, "{count:>12}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::panic, clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn a_kind_that_met_too_few_faults_is_missed() {
        let mut traffic = Traffic::default();
        for kind in MessageKind::all() {
            traffic.sent(kind);
            Fault::ALL.into_iter().for_each(|fault| traffic.meets(kind, fault));
        }
        assert_eq!(traffic.missing(1), Vec::<String>::new());
        let mut twice = traffic.clone();
        twice.add(&traffic);
        assert_eq!(twice.missing(2), Vec::<String>::new());
        for name in NEVER_LOST {
            assert!(MessageKind::all().iter().any(|kind| kind.to_string() == name), "{name}");
        }
        let [first, ..] = MessageKind::all()[..] else { panic!("no kinds") };
        traffic.0.remove(&first);
        assert_eq!(traffic.missing(1).len(), Fault::ALL.len());
    }
}

//! What a run says, whatever measured it.

use serde::Serialize;

use crate::apart::Aspects;

/// A run: one file.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    /// What its user calls it: runs of one name belong together. May be empty.
    pub label: String,
    /// The name of its file.
    pub source: String,
    /// What measured it.
    pub program: &'static str,
    /// What else is known of it, in words: (name, value).
    pub facts: Vec<(&'static str, String)>,
    /// What was measured.
    pub outcomes: Vec<Outcome>,
    /// What whoever reads the numbers should know.
    pub warnings: Vec<Warning>,
}

/// A warning of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Warning {
    /// Its code, if it has one.
    pub code: String,
    /// The phase that it is about, if it is about one.
    pub phase: String,
    /// What it says.
    pub message: String,
}

/// What rates count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Unit {
    /// MiB a second.
    #[serde(rename = "MiB/s")]
    Mib,
    /// Operations a second.
    #[serde(rename = "ops/s")]
    Operations,
    /// GiB a second, as IO500 counts.
    #[serde(rename = "GiB/s")]
    Gib,
    /// Thousands of operations a second, likewise.
    #[serde(rename = "kIOPS")]
    Kiops,
    /// A score.
    #[serde(rename = "score")]
    Score,
}

impl Unit {
    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mib => "MiB/s",
            Self::Operations => "ops/s",
            Self::Gib => "GiB/s",
            Self::Kiops => "kIOPS",
            Self::Score => "score",
        }
    }
}

/// One kind of operation, measured in the same way once or several times.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// What was done: `write`, `File creation`.
    pub operation: String,
    /// What its rates count.
    pub unit: Unit,
    /// Nodes, if it is known how many.
    pub nodes: Option<u64>,
    /// Processes on all of them.
    pub ranks: u64,
    /// Bytes of a transfer or a record.
    pub transfer_bytes: Option<u64>,
    /// Files or directories of each process.
    pub files: Option<u64>,
    /// How files are shared: `file-per-process`.
    pub access: String,
    /// Bytes that each process moves.
    pub bytes_per_rank: Option<u64>,
    /// Options that tell it apart from other measurements.
    pub aspects: Aspects,
    /// Each time that it was measured.
    pub repetitions: Vec<Repetition>,
    /// How long single operations took.
    pub latency: Option<Latency>,
}

/// Once measured.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Repetition {
    /// All that was done over the longest time.
    pub rate: f64,
    /// How long it took, if it is known.
    pub seconds: Option<f64>,
    /// The ranks' own rates added up, which is no rate of anything.
    pub sum_of_ranks: Option<f64>,
    /// Seconds between the first start and the last.
    pub start_skew_s: Option<f64>,
    /// Rates of the ranks.
    pub ranks: Vec<f64>,
    /// Until when each of the following rates was reached, in seconds.
    pub series_s: Vec<f64>,
    /// Rates over time.
    pub series: Vec<f64>,
}

/// Latencies of single operations, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, serde::Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Latency {
    pub count: u64,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
}

/// Repetitions summed up.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Summary {
    /// The best.
    pub best: f64,
    /// The worst.
    pub worst: f64,
    /// The middle one, or between the two.
    pub median: f64,
    /// The mean.
    pub mean: f64,
    /// The standard deviation of the sample; 0 of one.
    pub deviation: f64,
}

impl Summary {
    /// Of some values.
    pub fn of(values: &[f64]) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |at: usize| sorted.get(at).copied().unwrap_or_default();
        let count = sorted.len();
        let median = match count % 2 {
            1 => at(count / 2),
            _ => f64::midpoint(at(count / 2 - 1), at(count / 2)),
        };
        let mean = sorted.iter().sum::<f64>() / count as f64;
        let squares: f64 = sorted.iter().map(|value| (value - mean).powi(2)).sum();
        Self {
            best: at(count - 1),
            worst: at(0),
            median,
            mean,
            deviation: (squares / (count - 1).max(1) as f64).sqrt(),
        }
    }
}

impl Outcome {
    /// Its repetitions summed up.
    pub fn summary(&self) -> Summary {
        Summary::of(&self.repetitions.iter().map(|one| one.rate).collect::<Vec<_>>())
    }

    /// The best repetition.
    pub fn best(&self) -> Option<&Repetition> {
        self.repetitions.iter().max_by(|a, b| a.rate.total_cmp(&b.rate))
    }

    /// Processes on each node, if they are as many on each.
    pub fn ranks_per_node(&self) -> Option<u64> {
        self.nodes.map(|nodes| self.ranks / nodes.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_summed_up() {
        let all = Summary::of(&[3.0, 1.0, 2.0]);
        let wanted = Summary { best: 3.0, worst: 1.0, median: 2.0, mean: 2.0, deviation: 1.0 };
        assert_eq!(all, wanted);
        assert_eq!(Summary::of(&[1.0, 2.0]).median, 1.5);
        assert_eq!(Summary::of(&[5.0]).deviation, 0.0);
        assert_eq!(Summary::of(&[]), Summary::default());
    }
}

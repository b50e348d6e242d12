//! Statistics and timers in the values of parameters, for programs: each line that has samples is an
//! object, so that nobody has to take lines apart.

use serde_json::{Map, Value};

/// What stands behind the unit, in this order. What comes then has its name before it.
const SIZES: [&str; 4] = ["min", "max", "sum", "sumsq"];

/// The lines of a value that have samples; `None` if it is not statistics.
pub(super) fn of(value: &str) -> Option<Value> {
    value.starts_with("snapshot_time").then(|| value.lines().filter_map(line).collect())
}

/// `NAME COUNT samples [UNIT]`, perhaps with sizes, and with more behind them.
fn line(line: &str) -> Option<Value> {
    let (counted, rest) = line.split_once(" samples [")?;
    let (name, samples) = counted.trim_end().rsplit_once(char::is_whitespace)?;
    let (unit, rest) = rest.split_once(']')?;
    let number = |word: &str| word.parse::<u64>().ok().map(Value::from);
    let mut all = Map::new();
    all.insert("name".to_owned(), name.trim_end().into());
    all.insert("samples".to_owned(), number(samples)?);
    all.insert("unit".to_owned(), unit.into());
    let mut words = rest.split_whitespace();
    // The fields first: of the words none is taken that is not one of them.
    for (field, word) in SIZES.iter().zip(words.by_ref()) {
        all.insert((*field).to_owned(), number(word)?);
    }
    while let (Some(field), Some(word)) = (words.next(), words.next()) {
        all.insert(field.to_owned(), number(word)?);
    }
    Some(Value::Object(all))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_with_samples_are_objects() {
        let value = "snapshot_time             1800000000.000000001 secs.nsecs\n\
                     timers                    1\n\
                     open                      5 samples [reqs]\n\
                     read_bytes                2 samples [bytes] 50 100 150 12500\n\
                     read but discarded        3 samples [pages]\n\
                     create                    20 samples [nsecs]  900 1100 21000 2200000 \
                     p50 1024 p99  1100\n";
        let all = json!([
            { "name": "open", "samples": 5, "unit": "reqs" },
            { "name": "read_bytes", "samples": 2, "unit": "bytes",
              "min": 50, "max": 100, "sum": 150, "sumsq": 12500 },
            { "name": "read but discarded", "samples": 3, "unit": "pages" },
            { "name": "create", "samples": 20, "unit": "nsecs", "min": 900, "max": 1100,
              "sum": 21000, "sumsq": 2_200_000, "p50": 1024, "p99": 1100 },
        ]);
        assert_eq!(of(value), Some(all));
        assert_eq!(of("snapshot_time 1 secs.nsecs\n"), Some(json!([])));
        assert_eq!(of("64"), None);
    }
}

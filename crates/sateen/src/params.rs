//! Parameters: names with a value that can be looked at, and some that can be set, as `lctl`
//! knows them.
//!
//! Within this program the parts of a name are separated by `/`, because a part may have dots
//! of its own (`obdfilter/scratch-OST0000/exports/10.0.0.1@tcp/stats`); people see and type
//! dots for both. In a pattern `*` and `?` stand for anything within one part.

use std::fmt::Write as _;

use sateen_client::{CLEAN_MAX, DIR_PAGES_MAX, READ_AHEAD_MAX, STATAHEAD_MAX};
use sateen_types::ClientId;
use serde::{Deserialize, Serialize};

use crate::lfs::{count_of, size_of};

/// What shows a parameter.
type Get<'a> = Box<dyn Fn() -> String + 'a>;
/// What sets one; what is wrong with the value, if it is not set.
type Set<'a> = Box<dyn Fn(&str) -> Result<(), String> + 'a>;

/// One parameter.
pub(crate) struct Param<'a> {
    /// Its name, with `/`.
    pub name: String,
    /// Whether the two first parts of its name are another name of something.
    pub is_link: bool,
    get: Get<'a>,
    set: Option<Set<'a>>,
}

impl<'a> Param<'a> {
    /// One that can be looked at.
    pub(crate) fn shown(name: String, get: impl Fn() -> String + 'a) -> Param<'a> {
        Param { name, is_link: false, get: Box::new(get), set: None }
    }

    /// Perhaps one of something that has another name.
    pub(crate) fn link(self, is_link: bool) -> Param<'a> {
        Param { is_link, ..self }
    }

    /// One that can be set. The value was checked against [`TUNABLES`].
    pub(crate) fn set_by(self, set: impl Fn(&str) -> Result<(), String> + 'a) -> Param<'a> {
        Param { set: Some(Box::new(set)), ..self }
    }

    /// Its value.
    pub(crate) fn value(&self) -> String {
        (self.get)()
    }

    /// Whether it can be set.
    pub(crate) fn writable(&self) -> bool {
        self.set.is_some()
    }

    /// Sets it.
    ///
    /// # Errors
    /// What is wrong with the value.
    pub(crate) fn set(&self, value: &str) -> Result<(), String> {
        match &self.set {
            Some(set) => {
                check(&self.name, value)?;
                set(value)
            }
            None => Err(fixed(&self.name).unwrap_or_else(|| "it cannot be set".to_owned())),
        }
    }
}

/// A parameter, as it is told to `lctl`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shown {
    /// Its name, with `/`.
    pub name: String,
    /// Its value, if that was asked for; of what was set, `None` if it was.
    pub value: Option<String>,
    /// Whether it can be set.
    pub writable: bool,
    /// Whether the two first parts of its name are another name of something.
    #[serde(default)]
    pub is_link: bool,
}

/// What becomes of setting one parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WasSet {
    /// Its name, with `/`.
    pub name: String,
    /// Why it was not.
    pub error: Option<String>,
}

/// What went over a NID: messages, their bytes, and those that were lost with a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LinkCounts {
    pub send_count: u64,
    pub recv_count: u64,
    pub send_bytes: u64,
    pub recv_bytes: u64,
    pub drop_count: u64,
}

/// A NID of a process, as `lctl net show` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NetShown {
    pub nid: String,
    /// `up`: the field's word.
    pub status: String,
    /// Connections that are open.
    pub connections: usize,
    #[serde(flatten)]
    pub counts: LinkCounts,
}

/// A NID of a peer, as `lctl peer show` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeerShown {
    pub nid: String,
    /// `idle`, `up`, `suspect` or `down`.
    pub state: String,
    /// What has to stay in order goes there.
    pub primary: bool,
    /// 0 to 1000.
    pub health: u32,
    /// Connections that failed since there was one.
    pub retries: u32,
    /// Connections that are open.
    pub connections: usize,
    #[serde(flatten)]
    pub counts: LinkCounts,
    /// Who is reached there, or has come from there.
    pub peers: Vec<String>,
}

/// A device, as `lctl dl` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Device {
    /// `UP`, or `IN` if it is not in use.
    pub status: String,
    /// Its kind.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its id.
    pub uuid: String,
    /// How many use it.
    pub refcount: usize,
    /// Of a connection to a target: where that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nid: Option<String>,
}

/// What can be set: the last part of its name, its smallest and largest value, and the value
/// with a meaning of its own.
const TUNABLES: [(&str, u64, u64); 32] = [
    ("active", 0, 1),
    ("max_rpcs_in_flight", 1, 512),
    // Always fewer than those.
    ("max_mod_rpcs_in_flight", 1, 511),
    ("max_pages_per_rpc", 1, 4096),
    // None is kept with 0: every write waits for its OST.
    ("max_dirty_mb", 0, 65_536),
    // With 0 nothing is written again that an OST loses in a crash.
    ("max_unstable_mb", 0, 65_536),
    ("qos_threshold_rr", 0, 100),
    ("ldlm_timeout", 1, 3600),
    // More than the 4 s within which a mount that nobody answers speaks again: else idle ones are
    // evicted.
    ("at_min", 5, 3600),
    ("at_max", 5, 86_400),
    // With 0 no file is ever shared by those who write it.
    ("contended_locks", 0, 1_000_000),
    ("contention_seconds", 1, 3600),
    ("parts", 0, 1),
    ("recovery_time_soft", 1, 3600),
    ("commit_on_sharing", 0, 1),
    ("commit_age_ms", 1, 60_000),
    // With 0 OSTs are asked as soon as a removal is durable.
    ("destroy_delay_ms", 0, 60_000),
    // With 0 as many locks as belong to the inodes that a mount keeps.
    (LRU_SIZE, 0, 100_000_000),
    // With 0 no name is looked up ahead.
    ("statahead_max", 0, STATAHEAD_MAX as u64),
    ("statahead_agl", 0, 1),
    ("passthrough", 0, 1),
    // With 0 files of any size are given.
    ("passthrough_min_kb", 0, PASSTHROUGH_MIN_KB_MAX),
    // With 0 nothing is read ahead, and no file whole.
    ("max_read_ahead_mb", 0, READ_AHEAD_MAX >> 20),
    ("max_read_ahead_per_file_mb", 0, READ_AHEAD_MAX >> 20),
    ("max_read_ahead_whole_mb", 0, READ_AHEAD_MAX >> 20),
    // With 0 no data stays.
    ("max_cached_mb", 0, CLEAN_MAX >> 20),
    // Nor pages of directories.
    ("max_cached_dirs_mb", 0, DIR_PAGES_MAX >> 20),
    // With 0 also where servers answer at once.
    ("read_ahead_slow_us", 0, 10_000_000),
    ("lock_limit_mb", 1, 1_048_576),
    ("lock_reclaim_threshold_mb", 0, 1_048_576),
    // With 0 nothing is measured, and what was is forgotten.
    (TIMERS, 0, 1),
    // Likewise.
    (COPIES, 0, 1),
];
/// 1 TiB.
const PASSTHROUGH_MIN_KB_MAX: u64 = 1 << 30;
/// How many locks a mount keeps; can be cleared, too.
const LRU_SIZE: &str = "lru_size";
/// How long it keeps those that nobody uses: milliseconds, or with a unit.
const LRU_MAX_AGE: &str = "lru_max_age";
/// 30 days.
const LRU_MAX_AGE_MS_MAX: u64 = 30 * 86_400_000;
/// What new files get where neither they nor their directories say anything: how many stripes,
/// with -1 for all OSTs, and how long each is.
const STRIPE_COUNT: &str = "stripecount";
const STRIPE_SIZE: &str = "stripesize";
/// Whether a part of the program is measured; can be cleared, too.
pub(crate) const TIMERS: &str = "timers";
/// Whether it is counted what of data is copied; can be cleared, too.
pub(crate) const COPIES: &str = "copies";
/// Values that can be cleared as well.
const ALSO_CLEARED: [&str; 3] = [LRU_SIZE, TIMERS, COPIES];
/// What clears.
pub(crate) const CLEAR: &str = "clear";

/// Those that can be cleared, and nothing else.
const CLEARED: [&str; 4] = ["stats", "md_stats", "statahead_stats", "read_ahead_stats"];
/// The one that is no value but something to be done, with a client.
const EVICT: &str = "evict_client";

/// Whether a value of this name can be kept: there is nothing to keep of having cleared something,
/// or thrown somebody out.
pub(crate) fn can_be_kept(name: &str, value: &str) -> bool {
    let leaf = leaf(name);
    !CLEARED.contains(&leaf) && leaf != EVICT && !(ALSO_CLEARED.contains(&leaf) && value == CLEAR)
}

/// Those that can be set in the field, and not here.
const FIXED: [&str; 2] = ["checksums", "checksum_type"];

/// Why a parameter can only be looked at that could be set in the field.
fn fixed(name: &str) -> Option<String> {
    let leaf = leaf(name);
    FIXED.contains(&leaf).then(|| {
        format!("'{leaf}' cannot be set: all that goes over a network has its checksum (crc32c)")
    })
}

fn leaf(name: &str) -> &str {
    name.rsplit(['/', '.']).next().unwrap_or(name)
}

/// Checks a value against what any parameter of this name takes.
///
/// # Errors
/// What would be right.
pub(crate) fn check(name: &str, value: &str) -> Result<(), String> {
    let leaf = leaf(name);
    if CLEARED.contains(&leaf) {
        return match value {
            "clear" | "0" => Ok(()),
            _ => Err(format!("bad value '{value}': statistics can only be cleared, with: clear")),
        };
    }
    if leaf == EVICT {
        let wrong = || {
            format!("bad value '{value}': use the id of a client, as mdt.*.exports.*.uuid has them")
        };
        return client_id(value).map(drop).ok_or_else(wrong);
    }
    if let Some(why) = fixed(name) {
        return Err(why);
    }
    if ALSO_CLEARED.contains(&leaf) && value == CLEAR {
        return Ok(());
    }
    if leaf == LRU_MAX_AGE {
        let right = age_ms(value).is_some_and(|ms| (1..=LRU_MAX_AGE_MS_MAX).contains(&ms));
        let wrong =
            || format!("bad value '{value}': use milliseconds, or 5s, 65min, 2h, 30d at most");
        return right.then_some(()).ok_or_else(wrong);
    }
    if leaf == STRIPE_COUNT {
        return stripe_count(value).map(drop);
    }
    if leaf == STRIPE_SIZE {
        return stripe_size(value).map(drop);
    }
    let Some((_, least, most)) = TUNABLES.iter().find(|(known, ..)| *known == leaf) else {
        let known = TUNABLES.iter().map(|(known, ..)| *known);
        let known: Vec<&str> =
            known.chain([LRU_MAX_AGE, STRIPE_COUNT, STRIPE_SIZE, EVICT]).collect();
        return Err(format!(
            "there is no parameter that ends so and can be set; these can: {}",
            known.join(", ")
        ));
    };
    match number(value) {
        Some(number) if (*least..=*most).contains(&number) => Ok(()),
        _ if ALSO_CLEARED.contains(&leaf) => {
            Err(format!("bad value '{value}': use {least} to {most}, or {CLEAR}"))
        }
        _ => Err(format!("bad value '{value}': use {least} to {most}")),
    }
}

/// How many stripes.
///
/// # Errors
/// What would be right.
pub(crate) fn stripe_count(value: &str) -> Result<i32, String> {
    count_of(value.trim())
}

/// Bytes of one stripe.
///
/// # Errors
/// What would be right.
pub(crate) fn stripe_size(value: &str) -> Result<u32, String> {
    size_of(value.trim())
}

/// A number, perhaps with the sign of per cent.
pub(crate) fn number(value: &str) -> Option<u64> {
    let value = value.trim();
    value.strip_suffix('%').unwrap_or(value).parse().ok()
}

/// A time in milliseconds, which are meant without a unit.
pub(crate) fn age_ms(value: &str) -> Option<u64> {
    let value = value.trim();
    let end = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at_checked(end)?;
    let ms = match unit.trim() {
        "" | "ms" => 1,
        "s" | "sec" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(ms)
}

/// The id of a client, as it is shown.
pub(crate) fn client_id(value: &str) -> Option<ClientId> {
    let digits = value.trim();
    let hex = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    hex.then(|| u64::from_str_radix(digits, 16).ok().map(ClientId)).flatten()
}

/// Whether a name fits a pattern. `.` in the pattern stands for a dot or for the end of a part.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    let one = |wanted: u8, byte: u8| {
        wanted == byte || wanted == b'?' && byte != b'/' || wanted == b'.' && byte == b'/'
    };
    // Which beginnings of the name fit the beginning of the pattern so far, the empty one first.
    let mut ends = vec![false; name.len()];
    ends.insert(0, true);
    for wanted in pattern.bytes() {
        let (mut before, mut last) = (false, false);
        let bytes = std::iter::once(None).chain(name.bytes().map(Some));
        for (end, byte) in ends.iter_mut().zip(bytes) {
            let was = *end;
            last = match (wanted, byte) {
                (b'*', None) => was,
                (b'*', Some(byte)) => was || last && byte != b'/',
                (_, None) => false,
                (wanted, Some(byte)) => before && one(wanted, byte),
            };
            (*end, before) = (last, was);
        }
    }
    ends.last() == Some(&true)
}

/// Whether a name, or what it lies below, fits a pattern.
pub(crate) fn reaches(pattern: &str, name: &str) -> bool {
    let above = name.match_indices('/').filter_map(|(end, _)| name.get(..end));
    above.chain([name]).any(|part| fits(pattern, part))
}

/// As people see it.
pub(crate) fn dotted(name: &str) -> String {
    name.replace('/', ".")
}

/// Statistics as the field shows them: with the time.
pub(crate) fn stats_text(write: impl FnOnce(&mut String) -> std::fmt::Result) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.unwrap_or_default();
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "{:<25} {}.{:09} secs.nsecs",
        "snapshot_time",
        now.as_secs(),
        now.subsec_nanos()
    );
    let _ = write(&mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stay_within_parts() {
        let name = "obdfilter/fs-OST0000/exports/10.0.0.1@tcp/stats";
        for good in [
            "obdfilter.fs-OST0000.exports.10.0.0.1@tcp.stats",
            "obdfilter.*.exports.*.stats",
            "obdfilter.*OST*.exports.10.0.0.?@tcp.stats",
            "*.*.*.*.*",
            "obdfilter.fs-*0.exports.*tcp.s*",
        ] {
            assert!(fits(good, name), "{good}");
        }
        for bad in
            ["obdfilter.*.stats", "*", "*.*.*.*", "obdfilter.*.exports.*.stat", "osc.*.*.*.*"]
        {
            assert!(!fits(bad, name), "{bad}");
        }
        assert!(fits("osc.*-OST0001*.active", "osc/fs-OST0001-osc-2f/active"));
        assert!(fits("version", "version") && !fits("", "version") && fits("*", "version"));
        assert!(!fits("osc.*", "osc/a/b"));
    }

    #[test]
    fn patterns_reach_what_lies_below() {
        let name = "obdfilter/fs-OST0000/exports/10.0.0.1@tcp/stats";
        for good in ["obdfilter", "obdf*", "obdfilter.*", "*.*.exports", "*.*.*.*.stats", "*"] {
            assert!(reaches(good, name), "{good}");
        }
        for bad in ["obd", "obdfilter.*.stats", "*.*.*.10", "*.*.*.*.stat", "osc.*"] {
            assert!(!reaches(bad, name), "{bad}");
        }
    }

    #[test]
    fn values_are_checked_before_anything_is_set() {
        assert_eq!(check("osc.*.active", "0"), Ok(()));
        assert_eq!(check("osc.*.max_dirty_mb", "0"), Ok(()));
        assert_eq!(check("lod/x/qos_threshold_rr", "17%"), Ok(()));
        for good in ["-1", "0", "1", "2000"] {
            assert_eq!(check("lod.*.stripecount", good), Ok(()));
        }
        assert_eq!(check("lod.*.stripesize", "4M"), Ok(()));
        assert_eq!(stripe_size("4M"), Ok(4 << 20));
        assert_eq!(check("mdt.*.md_stats", "clear"), Ok(()));
        assert_eq!(check("mdt.*.at_min", "5"), Ok(()));
        assert_eq!(check("mdt.*.evict_client", "00000000000000fF"), Ok(()));
        assert!(can_be_kept("mdt.*.at_min", "9") && !can_be_kept("mdt.*.evict_client", "9"));
        for good in ["0", "4000000", "clear"] {
            assert_eq!(check("ldlm.namespaces.*.lru_size", good), Ok(()));
        }
        for good in ["0", "1", "clear"] {
            assert_eq!(check("*.timers", good), Ok(()));
        }
        assert!(can_be_kept("*.timers", "1") && !can_be_kept("*.timers", "clear"));
        let lru = "ldlm.namespaces.*.lru_size";
        assert!(can_be_kept(lru, "4000000") && !can_be_kept(lru, "clear"));
        for (good, ms) in
            [("3900000", 3_900_000), ("5s", 5000), ("65min", 3_900_000), ("2 h", 7_200_000)]
        {
            assert_eq!(check("ldlm.namespaces.*.lru_max_age", good), Ok(()));
            assert_eq!(age_ms(good), Some(ms));
        }
        for (name, value, says) in [
            ("osc.*.active", "2", "0 to 1"),
            ("osc.*.max_rpcs_in_flight", "0", "1 to 512"),
            ("osc.*.max_rpcs_in_flight", "many", "1 to 512"),
            ("osc.*.max_pages_per_rpc", "4097", "1 to 4096"),
            ("osc.*.max_dirty_mb", "65537", "0 to 65536"),
            ("osc.*.checksums", "0", "cannot be set"),
            ("osc.*.stats", "7", "clear"),
            ("osc.*.acttive", "1", "max_rpcs_in_flight"),
            ("ldlm.namespaces.*.lru_size", "100000001", "0 to 100000000, or clear"),
            ("ldlm.namespaces.*.lru_size", "clean", "or clear"),
            ("fuse.timers", "2", "0 to 1, or clear"),
            ("ldlm.namespaces.*.lru_max_age", "0", "use milliseconds"),
            ("ldlm.namespaces.*.lru_max_age", "31d", "30d at most"),
            ("ldlm.namespaces.*.lru_max_age", "5y", "use milliseconds"),
            ("ldlm.namespaces.*.lru_max_age", "99999999999999999h", "use milliseconds"),
            ("ldlm.namespaces.*.lock_limit_mb", "0", "1 to 1048576"),
            ("lod.*.stripecount", "-2", "-1 for all OSTs"),
            ("lod.*.stripecount", "2001", "1 to 2000"),
            ("lod.*.stripesize", "1000", "64K"),
            ("lod.*.stripesize", "4G", "below 4G"),
            ("mdt.*.at_min", "4", "5 to 3600"),
            ("mdt.*.at_max", "4", "5 to 86400"),
            ("mdt.*.evict_client", "+f", "the id of a client"),
            ("mdt.*.evict_client", "12345678123456781", "the id of a client"),
        ] {
            let wrong = check(name, value).unwrap_err();
            assert!(wrong.contains(says), "{wrong}");
        }
    }
}

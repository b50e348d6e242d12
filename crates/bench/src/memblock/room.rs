//! What memory there is and what of it can be had: of the host, or of the smallest control
//! group that this process is in.

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};
use crate::size;

/// What stays available at least, for the system and for a cache that lets it work.
const RESERVE_MIN: u64 = 256 << 20;
/// The same as a share of all: 2 %.
const RESERVE_PART: u64 = 50;

/// Memory of a host or a control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Room {
    /// All of it.
    pub(super) total: u64,
    /// What can be had without swapping.
    pub(super) available: u64,
    /// Who sets the limit.
    limit: String,
}

impl Room {
    /// As it is now.
    pub(super) fn look() -> Result<Self> {
        Self::of(&|path| fs::read_to_string(path).ok())
    }

    /// As files say it.
    fn of(read: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let said = read("/proc/meminfo").unwrap_or_default();
        let field = |name| number_after(&said, name).map(|kib: u64| kib << 10);
        let (Some(total), Some(available)) = (field("MemTotal:"), field("MemAvailable:")) else {
            return Err(Error::Failed(
                "/proc/meminfo does not say how much memory there is".into(),
            ));
        };
        let mut room = Self { total, available, limit: "this host".into() };
        for line in read("/proc/self/cgroup").unwrap_or_default().lines() {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(kinds), Some(path)) = (parts.next(), parts.next()) else { continue };
            let version: Option<&Version> = match kinds {
                "" => Some(&V2),
                _ if kinds.split(',').any(|kind| kind == "memory") => Some(&V1),
                _ => None,
            };
            let groups = Path::new(path).ancestors().filter_map(Path::to_str);
            for group in groups.filter(|_| version.is_some()) {
                if let Some(version) = version {
                    room.narrow(version, group, read);
                }
            }
        }
        Ok(room)
    }

    /// Takes a group's limit into account, if it has one.
    fn narrow(&mut self, version: &Version, group: &str, read: &dyn Fn(&str) -> Option<String>) {
        let dir = format!("{}{}", version.root, group.trim_end_matches('/'));
        let number = |name: &str| read(&format!("{dir}/{name}"))?.trim().parse::<u64>().ok();
        let limits = version.limits.iter().filter_map(|name| number(name));
        let Some(limit) = limits.min() else { return };
        let used = number(version.used).unwrap_or(0);
        let stat = read(&format!("{dir}/memory.stat")).unwrap_or_default();
        // What the group's cache holds is given back when memory is wanted.
        let cache: u64 = version.cache.iter().filter_map(|name| number_after(&stat, name)).sum();
        // Groups share what one above them may have, so that this may be scarcer than their own.
        self.available = self.available.min(limit.saturating_sub(used.saturating_sub(cache)));
        if limit < self.total {
            self.total = limit;
            self.limit = format!("the control group {group}");
        }
    }

    /// What has to stay.
    fn reserve(&self) -> u64 {
        (self.total / RESERVE_PART).max(RESERVE_MIN)
    }

    /// Refuses what would leave too little.
    pub(super) fn check(&self, bytes: u64) -> Result<()> {
        let most = self.available.saturating_sub(self.reserve());
        if bytes <= most {
            return Ok(());
        }
        let percent = most * 100 / self.total.max(1);
        let instead = if percent == 0 { String::new() } else { format!(" (-m {percent}%)") };
        Err(Error::usage(format!(
            "{} would be too much: {} has {}, of which {} are available and {} have to stay; at \
             most {} can be taken{instead}",
            size::human(bytes),
            self.limit,
            size::human(self.total),
            size::human(self.available),
            size::human(self.reserve()),
            size::human(most)
        )))
    }

    /// While memory is taken: whether others have taken what has to stay.
    pub(super) fn still_has(&self) -> Result<()> {
        if self.available >= self.reserve() {
            return Ok(());
        }
        Err(Error::Failed(format!(
            "others have taken memory meanwhile: of {} only {} are left; all was let go",
            self.limit,
            size::human(self.available)
        )))
    }
}

/// Where a version of control groups says what.
struct Version {
    root: &'static str,
    limits: &'static [&'static str],
    used: &'static str,
    cache: &'static [&'static str],
}

const V1: Version = Version {
    root: "/sys/fs/cgroup/memory",
    limits: &["memory.limit_in_bytes"],
    used: "memory.usage_in_bytes",
    cache: &["total_inactive_file", "total_active_file"],
};
const V2: Version = Version {
    root: "/sys/fs/cgroup",
    limits: &["memory.max", "memory.high"],
    used: "memory.current",
    cache: &["inactive_file", "active_file"],
};

/// The number behind a word that begins a line.
fn number_after(text: &str, word: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_whitespace);
    let mut words = lines.find_map(|mut words| (words.next()? == word).then_some(words))?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str =
        "MemTotal:       67108864 kB\nMemFree: 1 kB\nMemAvailable:   63963136 kB\n";

    fn room(files: &[(&str, &str)]) -> Room {
        let find = |path: &str| {
            let file = files.iter().find(|file| file.0 == path);
            file.map(|file| file.1.to_owned())
        };
        Room::of(&find).unwrap()
    }

    #[test]
    fn a_host_has_what_it_says() {
        let host = room(&[("/proc/meminfo", MEMINFO), ("/proc/self/cgroup", "0::/user/x\n")]);
        let wanted = Room { total: 64 << 30, available: 61 << 30, limit: "this host".into() };
        assert_eq!(host, wanted);
        assert!(Room::of(&|_| None).is_err());
    }

    #[test]
    fn the_smallest_group_limits() {
        let v2 = room(&[
            ("/proc/meminfo", MEMINFO),
            ("/proc/self/cgroup", "0::/a/b\n"),
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/b/memory.high", "8589934592\n"),
            ("/sys/fs/cgroup/a/b/memory.current", "6442450944\n"),
            ("/sys/fs/cgroup/a/b/memory.stat", "anon 1\nfile 5\ninactive_file 1073741824\n"),
            ("/sys/fs/cgroup/a/memory.max", "17179869184\n"),
        ]);
        let wanted =
            Room { total: 8 << 30, available: 3 << 30, limit: "the control group /a/b".into() };
        assert_eq!(v2, wanted);
        // Others in the group above have taken nearly all of it.
        let shared = room(&[
            ("/proc/meminfo", MEMINFO),
            ("/proc/self/cgroup", "0::/a/b\n"),
            ("/sys/fs/cgroup/a/b/memory.max", "8589934592\n"),
            ("/sys/fs/cgroup/a/memory.max", "8589934592\n"),
            ("/sys/fs/cgroup/a/memory.current", "7516192768\n"),
        ]);
        assert_eq!((shared.total, shared.available), (8 << 30, 1 << 30));
        let v1 = room(&[
            ("/proc/meminfo", MEMINFO),
            ("/proc/self/cgroup", "9:cpu:/a\n4:hugetlb,memory:/a\n0::/\n"),
            ("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "4294967296\n"),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "3221225472\n"),
            ("/sys/fs/cgroup/memory/memory.stat", "cache 9\ntotal_inactive_file 1073741824\n"),
        ]);
        let wanted =
            Room { total: 4 << 30, available: 2 << 30, limit: "the control group /".into() };
        assert_eq!(v1, wanted);
    }

    #[test]
    fn a_reserve_stays() {
        let host = room(&[("/proc/meminfo", MEMINFO)]);
        host.check((64 << 30) / 100 * 90).unwrap();
        let error = host.check((64 << 30) / 100 * 95).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        let said = error.to_string();
        assert!(said.starts_with("60.80 GiB would be too much: this host has 64 GiB"), "{said}");
        assert!(said.contains("at most 59.72 GiB can be taken (-m 93%)"), "{said}");
        host.check((64 << 30) / 100 * 93).unwrap();
        host.still_has().unwrap();
        let short = Room { available: 1 << 30, ..host };
        assert!(short.still_has().unwrap_err().to_string().contains("others have taken"));
    }
}

//! Reading from memory what a device or a network should deliver.
//!
//! What stands below a directory decides how that can be seen. Where it is a device of this
//! node, the kernel counts what it fetched from there for a process: if that is less than what
//! the process has read, memory gave the rest. Of a file system whose servers are elsewhere the
//! links of the node tell what can come over them at most. Where nothing can be counted, it is
//! enough that a node could have kept what it reads.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::{Code, Pitfall, Placement, Work};
use crate::error::{Error, Result};
use crate::size::human;
use crate::sys;

/// Where the kernel is told to drop its caches.
const DROP: &str = "/proc/sys/vm/drop_caches";
/// Pages, names and attributes.
const DROP_ALL: &str = "3";
/// A device must have delivered this share of what was read.
const DELIVERED_SHARE_MIN: f64 = 0.9;
/// Of what is to be read, no more than this share may be in memory before.
const RESIDENT_SHARE_MAX: f64 = 0.1;
/// What a device delivers of a name at least: inodes are larger, and lie beside each other.
const NAME_BYTES_MIN: u64 = 64;
/// No server elsewhere answers faster, its network's way there and back included.
const ANSWER_S_MIN: f64 = 5e-6;
/// Where the kernel counts what it has fetched from devices for this process.
const FETCHED: &str = "/proc/self/io";

/// File systems that are memory.
const MEMORY: [&str; 3] = ["tmpfs", "ramfs", "devtmpfs"];
/// File systems whose servers are, as a rule, elsewhere. FUSE's are, too.
const REMOTE: [&str; 12] = [
    "nfs",
    "nfs4",
    "lustre",
    "ceph",
    "glusterfs",
    "beegfs",
    "gpfs",
    "cifs",
    "smb3",
    "afs",
    "orangefs",
    "pvfs2",
];

/// What stands below a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    /// Nothing: no file system is measured.
    None,
    /// Memory itself.
    Memory(String),
    /// A device of this node.
    Device,
    /// Servers elsewhere.
    Remote,
    /// Something whose counters are not known.
    Unknown,
}

impl Source {
    /// Of a directory.
    pub(super) fn of(dir: &Path) -> Self {
        let Ok(path) = fs::canonicalize(dir) else { return Self::Unknown };
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Self::in_mounts(&path, &mounts)
    }

    /// By the mounts of this process.
    fn in_mounts(path: &Path, mounts: &str) -> Self {
        let lines = mounts.lines().filter_map(Mount::parse);
        let holds = lines.filter(|mount| path.starts_with(&mount.point));
        // Of those at the same place the last one covers the others.
        let Some(mount) = holds.max_by_key(|mount| mount.point.components().count()) else {
            return Self::Unknown;
        };
        let kind = mount.kind.as_str();
        if MEMORY.contains(&kind) {
            return Self::Memory(mount.kind);
        }
        if REMOTE.contains(&kind) || kind == "fuse" || kind.starts_with("fuse.") {
            return Self::Remote;
        }
        // A file system of several devices has a number of its own, and names one of them.
        let device = !mount.device.starts_with("0:") || mount.source.starts_with("/dev/");
        if device { Self::Device } else { Self::Unknown }
    }

    /// Bytes that devices have delivered to this process so far, if they are counted.
    pub(super) fn delivered(&self) -> Option<u64> {
        if *self == Self::Device { fetched(&fs::read_to_string(FETCHED).ok()?) } else { None }
    }
}

fn fetched(io: &str) -> Option<u64> {
    io.lines().find_map(|line| line.strip_prefix("read_bytes: "))?.parse().ok()
}

/// A line of mountinfo.
struct Mount {
    device: String,
    point: PathBuf,
    kind: String,
    source: String,
}

impl Mount {
    fn parse(line: &str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(2);
        let (device, point) = (before.next()?, before.nth(1)?);
        let mut after = after.split(' ');
        Some(Self {
            device: device.to_owned(),
            // A space is what happens in paths; the others that are escaped do not.
            point: PathBuf::from(point.replace("\\040", " ")),
            kind: after.next()?.to_owned(),
            source: after.next()?.to_owned(),
        })
    }
}

/// Whether caches may be dropped here.
pub(super) fn may_drop() -> Result<()> {
    rustix::fs::access(DROP, rustix::fs::Access::WRITE_OK)
        .map_err(|error| Error::usage(format!("--drop-caches: {DROP} cannot be written: {error}")))
}

/// Writes back what is not yet written and drops the caches of this node.
pub(super) fn drop_caches() -> Result<()> {
    rustix::fs::sync();
    fs::write(DROP, DROP_ALL)
        .map_err(|error| Error::io("drop the caches with", Path::new(DROP), error))
}

/// What devices had delivered to this rank before a phase.
#[derive(Debug)]
pub struct Before(pub(super) Option<u64>);

/// A phase that has read bytes.
#[derive(Debug, Clone, Copy)]
pub struct Reading<'a> {
    /// Its name.
    pub phase: &'static str,
    /// Bytes that each rank has read.
    pub bytes: &'a [u64],
    /// How long it took.
    pub seconds: f64,
    /// What devices have delivered to each rank; `u64::MAX` if unknown.
    pub delivered: &'a [u64],
    /// Past the page cache.
    pub direct: bool,
    /// Whether what is read was written by the same node in this run, and no cache dropped.
    pub own: bool,
}

/// What devices have delivered to all ranks, as if each had fetched what it has read: where some
/// fetch for others, a rank's own counter says nothing of what it read.
pub fn shared_out(delivered: &[u64], read: &[u64]) -> Vec<u64> {
    if delivered.contains(&u64::MAX) {
        return delivered.to_vec();
    }
    let sum = |all: &[u64]| all.iter().map(|one| u128::from(*one)).sum::<u128>();
    let (all, of) = (sum(delivered), sum(read).max(1));
    // No share is more than all.
    read.iter().map(|one| u64::try_from(all * u128::from(*one) / of).unwrap_or(0)).collect()
}

/// What could come at most.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits<'a> {
    /// Bytes a second of a node, as the user says.
    pub(super) asked: Option<u64>,
    /// Bytes a second of each node's links together, if they tell.
    pub(super) links: &'a [Option<u64>],
}

impl Limits<'_> {
    /// What the links of a node can carry.
    fn links_of(&self, node: usize) -> Option<u64> {
        self.links.get(node).copied().flatten()
    }
}

/// What is wrong with a phase that has read.
pub(super) fn found(
    reading: &Reading,
    placement: &Placement,
    source: &Source,
    limits: Limits,
    earlier: bool,
) -> Vec<Pitfall> {
    let sums = placement.sums(reading.bytes.iter().copied().enumerate());
    let delivered = placement.sums(reading.delivered.iter().copied().enumerate());
    // A sum with an unknown part is unknown.
    let counted = *source == Source::Device && !reading.delivered.contains(&u64::MAX);
    let mut found = Vec::new();
    for (node, (bytes, delivered)) in sums.iter().zip(delivered).enumerate() {
        let name = placement.name(node);
        let links = limits.links_of(node).filter(|_| *source == Source::Remote);
        found.extend(too_fast(reading, name, *bytes, limits.asked, links));
        if counted {
            found.extend(not_delivered(reading.phase, name, *bytes, delivered));
        }
    }
    if *source == Source::None || counted {
        return found;
    }
    if let Source::Memory(kind) = source {
        let message = format!("{kind} is memory: the rate says nothing of a device or a network");
        found.push(Pitfall::new(Code::Cache, Some(reading.phase), 1.0, message));
    } else if reading.own && !reading.direct {
        let most = sums.iter().copied().max().unwrap_or(0);
        let written = if earlier {
            "what an earlier run has written there"
        } else {
            "what it has just written"
        };
        let message = format!(
            "each node reads {written}, up to {}, and may have it in memory: read \
             another node's data (-C on several nodes), drop caches (--drop-caches), read past \
             the cache (-B), or block the memory (memblock)",
            human(most)
        );
        found.push(Pitfall::new(Code::Cache, Some(reading.phase), 0.5, message));
    }
    found
}

fn too_fast(
    reading: &Reading,
    name: &str,
    bytes: u64,
    asked: Option<u64>,
    links: Option<u64>,
) -> Option<Pitfall> {
    let (limit, why) = match (asked, links) {
        (Some(asked), _) => (asked, "--node-rate says that a node can have"),
        (None, Some(links)) => (links, "its network links can deliver"),
        (None, None) => return None,
    };
    let rate = bytes as f64 / reading.seconds.max(1e-9);
    (rate > limit as f64).then(|| {
        let message = format!(
            "{name} read {}/s, and {why} {}/s: the rest came from memory, or from servers on the \
             same node",
            human(rate as u64),
            human(limit)
        );
        Pitfall::new(Code::Fast, Some(reading.phase), rate, message)
    })
}

fn not_delivered(phase: &'static str, name: &str, bytes: u64, delivered: u64) -> Option<Pitfall> {
    let share = delivered as f64 / bytes.max(1) as f64;
    (bytes > 0 && share < DELIVERED_SHARE_MIN).then(|| {
        let (bytes, delivered) = (human(bytes), human(delivered));
        let message = format!(
            "{name} read {bytes}, and its device delivered {delivered}: the rest came from memory"
        );
        Pitfall::new(Code::Cache, Some(phase), 2.0 - share, message)
    })
}

/// A file that a rank is to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToRead {
    /// Which.
    pub file: PathBuf,
    /// The parts of it that it reads, or some of them; all of it if none are named.
    pub parts: Vec<Range<u64>>,
}

/// What of the files that a rank is to read is in its node's memory already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Resident {
    /// Bytes in memory.
    pub(super) bytes: u64,
    /// Bytes that were looked at.
    pub(super) of: u64,
}

impl Resident {
    /// Of files; nothing of those of which the kernel does not say.
    pub(super) fn of(files: &[ToRead]) -> Self {
        let all = files.iter().filter_map(Self::of_one);
        all.fold(Self::default(), |sum, one| Self {
            bytes: sum.bytes + one.bytes,
            of: sum.of + one.of,
        })
    }

    fn of_one(one: &ToRead) -> Option<Self> {
        let file = fs::File::open(&one.file).ok()?;
        let length = file.metadata().ok().filter(fs::Metadata::is_file)?.len();
        if one.parts.is_empty() {
            // The last page may be larger than what is left of the file.
            let bytes = sys::cached(&file, 0..length).ok()?.min(length);
            return Some(Self { bytes, of: length });
        }
        let page = sys::page_bytes();
        let mut sum = Self::default();
        for part in &one.parts {
            let (from, to) = (part.start.min(length), part.end.min(length));
            // The pages at its ends may be in memory for others' sake.
            let inner = from.next_multiple_of(page)..to - to % page;
            let looked = if inner.is_empty() { from..to } else { inner };
            let of = looked.end - looked.start;
            sum.bytes += sys::cached(&file, looked).ok()?.min(of);
            sum.of += of;
        }
        Some(sum)
    }
}

/// What is wrong with reading files of which so much is in memory before.
pub(super) fn resident(
    phase: &'static str,
    all: &[Resident],
    placement: &Placement,
) -> Option<Pitfall> {
    let sums = |part: fn(&Resident) -> u64| placement.sums(all.iter().map(part).enumerate());
    let nodes = sums(|one| one.bytes).into_iter().zip(sums(|one| one.of)).enumerate();
    let share = |(_, (bytes, of)): &(usize, (u64, u64))| *bytes as f64 / (*of).max(1) as f64;
    let worst = nodes.max_by(|a, b| share(a).total_cmp(&share(b)))?;
    let (share, (node, (bytes, of))) = (share(&worst), worst);
    (share > RESIDENT_SHARE_MAX).then(|| {
        let message = format!(
            "{} had {:.0} % of what it reads in memory before it began ({} of the {} that were \
             looked at): drop caches (--drop-caches), read past the cache (-B, iozone -I), or \
             block the memory (memblock)",
            placement.name(node),
            share * 100.0,
            human(bytes),
            human(of)
        );
        // It is known, and says more than what was delivered meanwhile.
        Pitfall::new(Code::Cache, Some(phase), 2.0 + share, message)
    })
}

/// A phase that looks at names.
#[derive(Debug, Clone, Copy)]
pub struct Looking<'a> {
    /// Its name.
    pub phase: &'static str,
    /// What each rank has looked at.
    pub works: &'a [Work],
    /// What devices have delivered to each rank; `u64::MAX` if unknown.
    pub delivered: &'a [u64],
}

/// What is wrong with a phase that looks at names of which nobody knows who has made them.
pub(super) fn names(looking: &Looking, placement: &Placement, source: &Source) -> Option<Pitfall> {
    let flagged =
        |severity, message| Some(Pitfall::new(Code::Cache, Some(looking.phase), severity, message));
    let works = looking.works.iter().filter(|one| one.amount > 0);
    match source {
        Source::None | Source::Unknown => None,
        Source::Memory(kind) => flagged(
            1.0,
            format!("{kind} is memory: the rate says nothing of a device or a network"),
        ),
        Source::Device if looking.delivered.contains(&u64::MAX) => None,
        Source::Device => {
            let looked = placement.sums(works.map(|one| (one.rank, one.amount)));
            let delivered = placement.sums(looking.delivered.iter().copied().enumerate());
            let all = looked.into_iter().zip(delivered).enumerate();
            let known = |(_, (looked, delivered)): &(usize, (u64, u64))| {
                *looked > 0 && *delivered < looked.saturating_mul(NAME_BYTES_MIN)
            };
            let (node, (looked, delivered)) = all.into_iter().find(known)?;
            let message = format!(
                "{} looked at {looked} names, and its device delivered {}: memory knew them; drop \
                 caches (--drop-caches)",
                placement.name(node),
                human(delivered)
            );
            flagged(1.5, message)
        }
        Source::Remote => {
            let each = |one: &Work| (one.end_s - one.begin_s) / one.amount as f64;
            let fastest = works.min_by(|a, b| each(a).total_cmp(&each(b)))?;
            let message = format!(
                "rank {} on {} looked at {} names in {:.1} µs each, and no server elsewhere \
                 answers within {:.0} µs: its node knew them; drop caches (--drop-caches)",
                fastest.rank,
                placement.name(placement.of(fastest.rank)),
                fastest.amount,
                each(fastest) * 1e6,
                ANSWER_S_MIN * 1e6
            );
            if each(fastest) < ANSWER_S_MIN { flagged(1.5, message) } else { None }
        }
    }
}

/// What was written need not have left memory.
pub(super) fn not_durable(phase: &'static str, source: &Source) -> Option<Pitfall> {
    if matches!(source, Source::Memory(_) | Source::None) {
        return None;
    }
    let message = "without an fsync (-e) writing ends when memory has taken the data".to_owned();
    Some(Pitfall::new(Code::Cache, Some(phase), 0.5, message))
}

/// A node knows the names that it has made.
pub(super) fn own_names(phase: &'static str) -> Pitfall {
    let message = "each node looks at names that it has made itself and may still know: look at \
                   another node's (-N on several nodes) or drop caches (--drop-caches)";
    Pitfall::new(Code::Cache, Some(phase), 0.5, message.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:25 / /dev/shm rw,nosuid - tmpfs tmpfs rw
31 22 0:40 / /mnt/with\\040space rw shared:5 master:2 - lustre 10.0.0.1@tcp:/fs rw
32 22 0:41 / /mnt/fuse rw - fuse.sateen sateen rw
33 22 0:42 / /overlay rw - overlay overlay rw,lowerdir=/a
34 33 8:17 / /overlay/disk rw - xfs /dev/sdb1 rw
35 22 0:43 /top /mnt/several rw - btrfs /dev/sdc rw
";

    #[test]
    fn what_stands_below_a_directory_is_found() {
        let of = |path: &str| Source::in_mounts(Path::new(path), MOUNTS);
        assert_eq!((of("/home/x"), of("/overlay/disk/x")), (Source::Device, Source::Device));
        assert_eq!(of("/mnt/several"), Source::Device);
        assert_eq!(of("/dev/shm"), Source::Memory("tmpfs".into()));
        assert_eq!(of("/mnt/with space/x"), Source::Remote);
        assert_eq!((of("/mnt/fuse"), of("/overlay")), (Source::Remote, Source::Unknown));
        assert_eq!(fetched("rchar: 9\nread_bytes: 4096\nwrite_bytes: 1\n"), Some(4096));
    }

    fn codes(reading: &Reading, source: &Source, limits: Limits) -> Vec<(Code, String)> {
        let placement = Placement::said(2, 1, 2);
        let found = found(reading, &placement, source, limits, false);
        found.into_iter().map(|one| (one.code, one.message)).collect()
    }

    const UNKNOWN: &[u64] = &[u64::MAX, u64::MAX];
    const READING: Reading = Reading {
        phase: "read",
        bytes: &[1 << 30, 1 << 30],
        seconds: 2.0,
        delivered: UNKNOWN,
        direct: false,
        own: false,
    };
    const NO: Limits = Limits { asked: None, links: &[] };

    #[test]
    fn a_device_that_delivered_less_than_was_read_shows_the_cache() {
        let device = Source::Device;
        let honest = Reading { delivered: &[1 << 30, 1 << 30], own: true, ..READING };
        assert_eq!(codes(&honest, &device, NO), []);
        let cached = Reading { delivered: &[1 << 30, 1 << 20], ..READING };
        let found = codes(&cached, &device, NO);
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].1,
            "node1 read 1 GiB, and its device delivered 1 MiB: the rest came from memory"
        );
    }

    #[test]
    fn what_some_fetch_for_others_is_shared_out() {
        let read = [1 << 30, 1 << 30];
        assert_eq!(shared_out(&[2 << 30, 0], &read), read);
        assert_eq!(shared_out(&[1 << 20, 0], &read), [1 << 19, 1 << 19]);
        assert_eq!(shared_out(&[1 << 30, u64::MAX], &read), [1 << 30, u64::MAX]);
        assert_eq!(shared_out(&[0, 0], &[0, 0]), [0, 0]);
        let fetched = shared_out(&[2 << 30, 0], &read);
        let pooled = Reading { delivered: &fetched, ..READING };
        assert_eq!(codes(&pooled, &Source::Device, NO), []);
    }

    #[test]
    fn what_links_cannot_carry_came_from_elsewhere() {
        let slow = Some(100 << 20);
        let links = Limits { links: &[slow, slow], ..NO };
        let found = codes(&READING, &Source::Remote, links);
        assert_eq!((found.len(), found[0].0), (2, Code::Fast));
        assert!(
            found[0]
                .1
                .starts_with("node0 read 512 MiB/s, and its network links can deliver 100 MiB/s")
        );
        let enough = Limits { links: &[Some(1 << 30), None], ..NO };
        assert_eq!(codes(&READING, &Source::Remote, enough), [], "or nothing is known");
        let one = codes(&READING, &Source::Remote, Limits { links: &[Some(1 << 30), slow], ..NO });
        assert_eq!(one.len(), 1);
        assert!(one[0].1.starts_with("node1 read "), "each by its own links: {one:?}");
        assert_eq!(codes(&READING, &Source::Unknown, links), [], "nothing comes over them");
        let asked = Limits { asked: Some(1 << 20), ..NO };
        assert_eq!(codes(&READING, &Source::Unknown, asked)[0].0, Code::Fast);
    }

    #[test]
    fn nodes_that_read_their_own_data_are_found_where_nothing_counts() {
        let own = Reading { own: true, ..READING };
        for source in [Source::Remote, Source::Unknown] {
            assert_eq!(codes(&own, &source, NO)[0].0, Code::Cache);
            assert_eq!(codes(&Reading { direct: true, ..own }, &source, NO), []);
            assert_eq!(codes(&READING, &source, NO), []);
        }
        assert!(
            codes(&READING, &Source::Memory("tmpfs".into()), NO)[0].1.contains("tmpfs is memory")
        );
        assert_eq!(codes(&own, &Source::None, NO), []);
        let just_now = &codes(&own, &Source::Remote, NO)[0].1;
        assert!(just_now.contains("what it has just written"), "{just_now}");
        let old = found(&own, &Placement::said(2, 1, 2), &Source::Remote, NO, true);
        assert!(old[0].message.contains("what an earlier run has written there"), "{old:?}");
    }

    #[test]
    fn files_that_are_in_memory_before_are_found() {
        let placement = Placement::said(2, 2, 4);
        let found = |all: &[(u64, u64)]| {
            let all: Vec<Resident> =
                all.iter().map(|(bytes, of)| Resident { bytes: *bytes, of: *of }).collect();
            resident("read", &all, &placement).map(|one| one.message)
        };
        let mib = 1 << 20;
        assert_eq!(found(&[(0, 0); 4]), None, "nothing is known");
        assert_eq!(found(&[(mib, 10 * mib); 4]), None, "a tenth may be");
        // A rank of the second node has all of its file there, the other none.
        let said = found(&[(0, mib), (0, mib), (mib, mib), (0, mib)]).unwrap();
        let wanted =
            "node1 had 50 % of what it reads in memory before it began (1 MiB of the 2 MiB";
        assert!(said.starts_with(wanted), "{said}");
        let of = |file: &str| Resident::of(&[ToRead { file: file.into(), parts: Vec::new() }]);
        assert_eq!(of("/no/such/file"), Resident::default());
        assert_eq!(of("/"), Resident::default(), "no file");
    }

    #[test]
    fn names_that_memory_knows_are_found_by_what_was_delivered_or_how_fast_it_was() {
        let placement = Placement::said(2, 1, 2);
        let found = |source: &Source, seconds: f64, delivered: &[u64]| {
            let work = |rank, amount| Work { rank, begin_s: 1.0, end_s: 1.0 + seconds, amount };
            let works = [work(0, 1000), work(1, 1000)];
            let looking = Looking { phase: "File stat", works: &works, delivered };
            names(&looking, &placement, source).map(|one| one.message)
        };
        let device = |delivered: &[u64]| found(&Source::Device, 0.001, delivered);
        assert_eq!(device(&[256_000, 256_000]), None);
        let said = device(&[256_000, 4096]).unwrap();
        assert!(
            said.starts_with("node1 looked at 1000 names, and its device delivered 4096 bytes")
        );
        assert_eq!(device(UNKNOWN), None);
        assert_eq!(found(&Source::Remote, 0.02, UNKNOWN), None, "20 us each");
        let said = found(&Source::Remote, 0.001, UNKNOWN).unwrap();
        assert!(said.starts_with("rank 0 on node0 looked at 1000 names in 1.0 µs each"), "{said}");
        assert_eq!(found(&Source::Unknown, 0.001, UNKNOWN), None);
        assert!(found(&Source::Memory("tmpfs".into()), 0.02, UNKNOWN).is_some());
        let none = Looking { phase: "File stat", works: &[], delivered: &[0, 0] };
        assert!(names(&none, &placement, &Source::Remote).is_none());
        assert!(names(&none, &placement, &Source::Device).is_none());
    }

    #[test]
    fn writing_without_an_fsync_is_found() {
        assert!(not_durable("write", &Source::Unknown).is_some());
        assert_eq!(not_durable("write", &Source::Memory("tmpfs".into())), None);
    }
}

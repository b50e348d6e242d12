//! Counts of ranks that something else has started (MPI), in memory which the first rank of each
//! host shares with the others there, so that it sees how far they are.
//!
//! 1. All say on which host they are. The first one of each makes memory without a name and tells
//!    where it is: a descriptor of its process.
//! 2. The others of that host open it there, and all learn who has.
//! 3. Each counts in its own words; who has not got the memory, in words that it alone sees.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU64;

use rustix::fs::MemfdFlags;

use super::Communicator;
use crate::error::Result;
use crate::sys::{HEAD_BYTES, Shared};

/// Words of a rank: a line of the processors' caches, so that none slows another.
const RANK_WORDS: usize = 8;
/// Which of them is what.
const DONE: usize = 0;
const OVER: usize = 1;

/// The counts as one rank sees them.
#[derive(Debug)]
pub struct Counts {
    rank: usize,
    shared: Option<Shared>,
    /// Who has the memory that this rank has.
    joined: Vec<bool>,
    own: [AtomicU64; 2],
}

impl Counts {
    /// Those of this rank alone.
    pub fn alone(rank: usize) -> Self {
        Self { rank, shared: None, joined: Vec::new(), own: Default::default() }
    }

    /// Shares them, as far as this goes; all ranks together.
    pub fn share(comm: &dyn Communicator) -> Result<Self> {
        let (rank, size, host) = (comm.rank(), comm.size(), host());
        let hosts = comm.all_gather(host.as_deref().unwrap_or_default().as_bytes())?;
        let first = first_of(&hosts, rank);
        let offered = if first == rank { offer(size) } else { None };
        let place = offered.as_ref().map_or("", |offered| &offered.place);
        let places = comm.all_gather(place.as_bytes())?;
        // The descriptor stays open until all have looked.
        let (_open, shared) = match offered {
            Some(offered) => (Some(offered.file), Some(offered.shared)),
            None => {
                let place = places.get(first).map(|place| String::from_utf8_lossy(place));
                (None, place.and_then(|place| join(&place, host.as_deref(), size)))
            }
        };
        let of = if shared.is_some() { first as u64 } else { u64::MAX };
        let joined = comm.all_gather_u64(of)?;
        let joined = joined.into_iter().map(|theirs| theirs == first as u64).collect();
        Ok(Self { shared, joined, ..Self::alone(comm.rank()) })
    }

    /// What a rank has done in the current phase, if it is seen from here.
    #[inline]
    pub fn done(&self, rank: usize) -> Option<&AtomicU64> {
        self.word(rank, DONE)
    }

    /// Whether that is all (then it is not 0), likewise.
    #[inline]
    pub fn over(&self, rank: usize) -> Option<&AtomicU64> {
        self.word(rank, OVER)
    }

    fn word(&self, rank: usize, which: usize) -> Option<&AtomicU64> {
        match &self.shared {
            Some(shared) if self.joined.get(rank) == Some(&true) => {
                shared.body().get(rank * RANK_WORDS + which)
            }
            _ if rank == self.rank => self.own.get(which),
            _ => None,
        }
    }
}

/// The first rank on the host of this one; itself if it does not know its host.
fn first_of(hosts: &[Vec<u8>], rank: usize) -> usize {
    let mine = hosts.get(rank).filter(|host| !host.is_empty());
    mine.and_then(|mine| hosts.iter().position(|host| host == mine)).unwrap_or(rank)
}

/// Memory that a rank has made.
struct Offer {
    file: File,
    shared: Shared,
    /// The host, and where it is found there.
    place: String,
}

fn bytes(size: usize) -> usize {
    HEAD_BYTES + (size * RANK_WORDS * 8).next_multiple_of(HEAD_BYTES)
}

/// What tells apart hosts, and whose numbers of processes are not the same; not every one says
/// it.
fn host() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let processes = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{}/{}", boot.trim(), processes.display()))
}

/// Where this does not work, all of the host see themselves alone.
fn offer(size: usize) -> Option<Offer> {
    let file: File = rustix::fs::memfd_create("counts", MemfdFlags::CLOEXEC).ok()?.into();
    file.set_len(bytes(size) as u64).ok()?;
    let shared = Shared::map(&file, bytes(size)).ok()?;
    let place = format!("{} /proc/{}/fd/{}", host()?, std::process::id(), file.as_raw_fd());
    Some(Offer { file, shared, place })
}

/// The memory at a place, if it is on this host and may be opened.
fn join(place: &str, host: Option<&str>, size: usize) -> Option<Shared> {
    let (there, path) = place.rsplit_once(' ')?;
    if host != Some(there) {
        return None;
    }
    let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
    let whole = file.metadata().ok()?.len() == bytes(size) as u64;
    if whole { Shared::map(&file, bytes(size)).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::comm::Solo;

    /// What ranks see, of which those count that have joined.
    fn ranks(joined: [bool; 3]) -> Vec<Counts> {
        let offered = offer(3).unwrap();
        let mapped = |rank: usize| match rank {
            0 => join(&offered.place, host().as_deref(), 3),
            _ if joined[rank] => join(&offered.place, host().as_deref(), 3),
            _ => join(&offered.place, Some("another"), 3),
        };
        let of =
            |rank| Counts { shared: mapped(rank), joined: joined.to_vec(), ..Counts::alone(rank) };
        (0..3).map(of).collect()
    }

    #[test]
    fn the_root_sees_the_ranks_of_its_host() {
        let all = ranks([true, true, false]);
        for (rank, counts) in (1..).zip(&all) {
            let done = counts.done(usize::try_from(rank).unwrap() - 1).unwrap();
            done.store(rank * 10, Ordering::Relaxed);
        }
        all[1].over(1).unwrap().store(1, Ordering::Relaxed);
        let seen = |counts: &Counts| -> Vec<Option<u64>> {
            (0..3).map(|rank| Some(counts.done(rank)?.load(Ordering::Relaxed))).collect()
        };
        assert_eq!(seen(&all[0]), [Some(10), Some(20), None], "not that of another host");
        assert_eq!(seen(&all[1]), [Some(10), Some(20), None]);
        assert_eq!(seen(&all[2]), [None, None, Some(30)], "itself alone");
        let over = |rank| Some(all[0].over(rank)?.load(Ordering::Relaxed));
        assert_eq!([over(0), over(1), over(2)], [Some(0), Some(1), None]);
    }

    #[test]
    fn the_first_of_each_host_has_the_memory() {
        let hosts = ["a", "b", "a", "", "b", ""].map(|host| host.as_bytes().to_vec());
        let firsts: Vec<usize> = (0..6).map(|rank| first_of(&hosts, rank)).collect();
        assert_eq!(firsts, [0, 1, 0, 3, 1, 5], "who knows no host is alone");
    }

    #[test]
    fn ranks_of_a_host_see_each_other_through_it() {
        let counts = crate::comm::local::tests::ranks(3, |comm| {
            let counts = Counts::share(comm).unwrap();
            counts.done(comm.rank()).unwrap().store(comm.rank() as u64 + 1, Ordering::Relaxed);
            comm.barrier().unwrap();
            let seen = (0..3).map(|rank| counts.done(rank).unwrap().load(Ordering::Relaxed));
            seen.collect::<Vec<u64>>()
        });
        assert_eq!(counts, [(); 3].map(|()| vec![1, 2, 3]));
    }

    #[test]
    fn who_has_not_got_it_counts_alone() {
        let alone = Counts::alone(1);
        assert!(alone.done(0).is_none() && alone.done(1).is_some() && alone.over(1).is_some());
        let host = host().unwrap();
        for place in [
            "",
            "x",
            "x /proc/self/fd/0",
            &format!("{host} /no/such"),
            &format!("{host} /proc/self/stat"),
        ] {
            assert!(join(place, Some(&host), 3).is_none(), "{place}");
        }
        let solo = Solo::new().unwrap();
        let counts = Counts::share(&solo).unwrap();
        assert!(counts.shared.is_some() && counts.done(0).is_some() && counts.done(1).is_none());
    }
}

//! The file systems that are compared: what each is, what it keeps, and what of it is durable.
//! Another one needs a row here, rules in `gates.rs` if it has any, and what starts it in
//! `scripts/compare.sh`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// What decides how much is done on a file system in a turn: enough to be measured, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Of the kernel alone.
    Local,
    /// FUSE with nothing behind it.
    Null,
    /// Sateen.
    Sateen,
    /// Another one with servers.
    Peer,
}

/// What is known of a file system before it runs.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) name: &'static str,
    /// What a table calls it.
    pub(crate) title: &'static str,
    pub(crate) kind: Kind,
    /// Whether what was written is there to be read.
    pub(crate) keeps_data: bool,
    pub(crate) set_up: &'static str,
    /// What is on the disk when a write row ends: each file was synced within the time.
    pub(crate) data: &'static str,
    /// What is on the disk when a row of creates or removals ends: nothing was waited for.
    pub(crate) names: &'static str,
}

const SECONDS: &str = "in memory; its journal commits every 5 s";
const SYNCED: &str = "data, size and name on the disk";

pub(crate) const KNOWN: [Known; 10] = [
    Known {
        name: "ext4",
        title: "ext4",
        kind: Kind::Local,
        keeps_data: true,
        set_up: "the ext4 that all others (but tmpfs and null) have below them",
        data: SYNCED,
        names: SECONDS,
    },
    Known {
        name: "tmpfs",
        title: "tmpfs",
        kind: Kind::Local,
        keeps_data: true,
        set_up: "memory",
        data: "nothing, ever",
        names: "nothing, ever",
    },
    Known {
        name: "null-uring",
        title: "null, io_uring",
        kind: Kind::Null,
        keeps_data: false,
        set_up: "`nullfs` (an example of `sateen-fuse`) over io_uring: names and sizes in memory, answered on the thread that asks; of what is written the size alone, and what is read means nothing",
        data: "nothing, ever",
        names: "nothing, ever",
    },
    Known {
        name: "null-classic",
        title: "null, /dev/fuse",
        kind: Kind::Null,
        keeps_data: false,
        set_up: "the same over /dev/fuse",
        data: "nothing, ever",
        names: "nothing, ever",
    },
    Known {
        name: "sateen",
        title: "Sateen embedded",
        kind: Kind::Sateen,
        keeps_data: true,
        set_up: "`sateen up`: one process, 1 MDT, 4 OSTs; the kernel reads and writes files from 1 MiB on itself that have one stripe and are there",
        data: "data, size and name on the ext4 below",
        names: "in the server's memory; the journal is on the disk some milliseconds later",
    },
    Known {
        name: "sateen-no-passthrough",
        title: "Sateen no passthrough",
        kind: Kind::Sateen,
        keeps_data: true,
        set_up: "the same with `--no-passthrough`: the kernel asks for all that it has no pages of",
        data: "data, size and name on the ext4 below",
        names: "in the server's memory; the journal is on the disk some milliseconds later",
    },
    Known {
        name: "sateen-tcp",
        title: "Sateen tcp",
        kind: Kind::Sateen,
        keeps_data: true,
        set_up: "five server processes (MGS with MDT, 4 OSTs) and a mount, over TCP on loopback",
        data: "data, size and name on the ext4 below",
        names: "in the server's memory; the journal is on the disk some milliseconds later",
    },
    Known {
        name: "sateen-shm",
        title: "Sateen shm",
        kind: Kind::Sateen,
        keeps_data: true,
        set_up: "the same processes, over memory that they share (`net=shm`)",
        data: "data, size and name on the ext4 below",
        names: "in the server's memory; the journal is on the disk some milliseconds later",
    },
    Known {
        name: "gluster",
        title: "GlusterFS",
        kind: Kind::Peer,
        keeps_data: true,
        set_up: "four bricks, no replicas, Debian's settings; over TCP in a network namespace",
        data: "data, size and name on the ext4 of the brick",
        names: "in memory of the bricks' ext4, which commits every 5 s",
    },
    Known {
        name: "moosefs",
        title: "MooseFS",
        kind: Kind::Peer,
        keeps_data: true,
        set_up: "a master and four chunk servers, one copy; over TCP in a network namespace",
        data: "sent to the chunk server, which does not sync by default",
        names: "in the master's memory and its change log, which is not synced",
    },
];

/// What is known of the file system of this name.
pub(crate) fn known(name: &str) -> Result<&'static Known> {
    let names = || KNOWN.map(|one| one.name).join(", ");
    let found = KNOWN.iter().find(|one| one.name == name);
    found.with_context(|| format!("{name} is none of {}", names()))
}

/// A file system that is mounted.
#[derive(Debug, Clone)]
pub(crate) struct System {
    pub(crate) known: &'static Known,
    /// A folder of it.
    pub(crate) dir: PathBuf,
    /// The same folder on other mounts of it.
    pub(crate) others: Vec<PathBuf>,
    /// Processes of its servers, or of all of it where that is one process.
    pub(crate) servers: Vec<u32>,
    /// The process behind its mount, where that is another.
    pub(crate) client: Vec<u32>,
}

/// Parses `NAME=DIR[,others=DIR:DIR…][,servers=PID:PID…][,client=PID:PID…]`.
pub(crate) fn system(text: &str) -> Result<System> {
    let (name, rest) = text.split_once('=').context("it has the form NAME=DIR")?;
    let mut words = rest.split(',');
    let dir = PathBuf::from(words.next().unwrap_or_default());
    let (known, others) = (known(name)?, Vec::new());
    let mut system = System { known, dir, others, servers: Vec::new(), client: Vec::new() };
    for word in words {
        let (whose, pids) = word.split_once('=').context("no value")?;
        if whose == "others" {
            system.others = pids.split(':').map(PathBuf::from).collect();
            continue;
        }
        let pids = pids.split(':').filter(|pid| !pid.is_empty());
        let pids = pids.map(|pid| pid.parse().with_context(|| format!("{pid} is no process")));
        let pids = pids.collect::<Result<Vec<u32>>>()?;
        match whose {
            "servers" => system.servers = pids,
            "client" => system.client = pids,
            other => bail!("{other} is none of others, servers, client"),
        }
    }
    Ok(system)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_system_has_a_folder_and_processes() {
        let one = system("sateen-tcp=/mnt/x,others=/y:/z,servers=7:9,client=11").unwrap();
        assert_eq!(one.others, [Path::new("/y"), Path::new("/z")]);
        assert_eq!((one.known.title, one.dir.to_str()), ("Sateen tcp", Some("/mnt/x")));
        assert_eq!((one.servers, one.client), (vec![7, 9], vec![11]));
        assert!(system("ext4=/mnt").unwrap().servers.is_empty());
        for wrong in ["ext4", "floppy=/mnt", "ext4=/mnt,servers=x", "ext4=/mnt,other=1"] {
            assert!(system(wrong).is_err(), "{wrong}");
        }
    }
}

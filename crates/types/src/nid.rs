//! NIDs: where a node is reached, as `ADDRESS@NETWORK`, for instance `10.0.0.7@tcp` or `0@lo`;
//! with a port of its own, where several servers share an address, `10.0.0.7:7988@tcp`.
//!
//! `10.0.0.7:7988@shm` is the server that listens there, over memory that it shares with processes
//! of its host, and for them alone. A NID of TCP means that way, too, wherever it can be had; this
//! one means no other.
//!
//! A colon between NIDs, as in `--mgsnode=NID:NID` and `NID:/FSNAME`, comes after the network's
//! name, and so is never taken for one before a port.

use core::fmt;
use core::net::Ipv4Addr;
use core::str::FromStr;

/// The port that servers listen on if nothing else is said: Lustre's.
pub const PORT_DEFAULT: u16 = 988;

/// A network identifier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Nid {
    /// The process itself: `0@lo`.
    Lo,
    /// A TCP network: `10.0.0.7@tcp1`.
    Tcp {
        /// IPv4 address.
        addr: Ipv4Addr,
        /// TCP port; [`PORT_DEFAULT`] is not written.
        port: u16,
        /// Network number; `@tcp` means 0.
        net: u16,
    },
    /// Memory shared with a server of this host: `10.0.0.7@shm`.
    Shm {
        /// IPv4 address at which it listens, or would.
        addr: Ipv4Addr,
        /// Its TCP port; [`PORT_DEFAULT`] is not written.
        port: u16,
    },
}

/// Most NIDs of one target.
pub const NIDS_MAX: usize = 8;

/// The NIDs of one target, in the order in which they are to be tried; at least one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Nids {
    first: Nid,
    /// Those behind it; `Lo` where there is none.
    others: [Nid; NIDS_MAX - 1],
    count: u8,
}

impl From<Nid> for Nids {
    fn from(first: Nid) -> Nids {
        Nids { first, others: [Nid::Lo; NIDS_MAX - 1], count: 1 }
    }
}

impl Nids {
    /// These NIDs; `None` if there are none, or too many.
    pub fn new(all: &[Nid]) -> Option<Nids> {
        let (first, others) = all.split_first()?;
        let mut nids = Nids::from(*first);
        if others.len() >= NIDS_MAX {
            return None;
        }
        for (to, from) in nids.others.iter_mut().zip(others) {
            *to = *from;
        }
        nids.count += others.len() as u8;
        Some(nids)
    }

    /// The one to be tried first.
    pub const fn first(&self) -> Nid {
        self.first
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Nid> + '_ {
        let others = self.others.iter().take(usize::from(self.count).saturating_sub(1));
        core::iter::once(self.first).chain(others.copied())
    }

    /// Whether there are more than one.
    pub const fn are_several(&self) -> bool {
        self.count > 1
    }
}

impl fmt::Debug for Nids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.are_several() {
            f.debug_list().entries(self.iter()).finish()
        } else {
            fmt::Debug::fmt(&self.first, f)
        }
    }
}

/// As they are written on command lines, with colons between.
impl fmt::Display for Nids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, nid) in self.iter().enumerate() {
            if at > 0 {
                f.write_str(":")?;
            }
            write!(f, "{nid}")?;
        }
        Ok(())
    }
}

/// A text that is no NID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NidError;

impl fmt::Display for NidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a NID; write it like 10.0.0.7@tcp, 10.0.0.7@shm or 0@lo")
    }
}

impl core::error::Error for NidError {}

impl fmt::Display for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Nid::Lo => f.write_str("0@lo"),
            Nid::Tcp { addr, port, .. } | Nid::Shm { addr, port } => {
                write!(f, "{addr}")?;
                if *port != PORT_DEFAULT {
                    write!(f, ":{port}")?;
                }
                match self {
                    Nid::Tcp { net: 0, .. } => f.write_str("@tcp"),
                    Nid::Tcp { net, .. } => write!(f, "@tcp{net}"),
                    _ => f.write_str("@shm"),
                }
            }
        }
    }
}

impl FromStr for Nid {
    type Err = NidError;

    fn from_str(text: &str) -> Result<Nid, NidError> {
        let (addr, net) = text.split_once('@').ok_or(NidError)?;
        if net == "lo" {
            return if addr == "0" { Ok(Nid::Lo) } else { Err(NidError) };
        }
        let net = match net.strip_prefix("tcp") {
            Some("") => Some(0),
            Some(number) => Some(number.parse().map_err(|_| NidError)?),
            None if net == "shm" => None,
            None => return Err(NidError),
        };
        let (addr, port) = match addr.split_once(':') {
            None => (addr, PORT_DEFAULT),
            Some((addr, port)) => match port.parse() {
                Ok(port) if port > 0 => (addr, port),
                _ => return Err(NidError),
            },
        };
        let addr = addr.parse().map_err(|_| NidError)?;
        Ok(net.map_or(Nid::Shm { addr, port }, |net| Nid::Tcp { addr, port, net }))
    }
}

/// Several NIDs with colons between them, in the order in which they are to be tried.
///
/// # Errors
/// One of them is no NID.
pub fn parse_nids(text: &str) -> Result<Vec<Nid>, NidError> {
    let mut nids = Vec::new();
    let mut rest = text;
    loop {
        let at = rest.find('@').ok_or(NidError)?;
        let network = rest.get(at..).unwrap_or_default();
        match network.find([':', ',']) {
            None => {
                nids.push(rest.parse()?);
                return Ok(nids);
            }
            Some(end) => {
                nids.push(rest.get(..at + end).unwrap_or_default().parse()?);
                rest = rest.get(at + end + 1..).unwrap_or_default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nids_round_trip() {
        for text in [
            "0@lo",
            "10.0.0.7@tcp",
            "192.168.0.1@tcp3",
            "10.0.0.7:7988@tcp2",
            "10.0.0.7@shm",
            "127.0.0.1:7988@shm",
        ] {
            assert_eq!(text.parse::<Nid>().map(|nid| nid.to_string()), Ok(text.to_owned()));
        }
        for bad in [
            "",
            "1@lo",
            "10.0.0@tcp",
            "10.0.0.1",
            "10.0.0.1@o2ib",
            "10.0.0.1@tcpx",
            "10.0.0.1@shm1",
            "0@shm",
            "10.0.0.1:0@shm",
            "10.0.0.1:@tcp",
            "10.0.0.1:0@tcp",
            "10.0.0.1:70000@tcp",
        ] {
            assert_eq!(bad.parse::<Nid>(), Err(NidError));
        }
        assert_eq!("10.0.0.7:988@tcp".parse::<Nid>(), "10.0.0.7@tcp".parse());
    }

    #[test]
    fn a_target_has_one_nid_or_a_few() {
        let nids = |text| Nids::new(&parse_nids(text).unwrap());
        let text = "10.0.0.7:7988@tcp:10.0.0.8@tcp1";
        assert_eq!(nids(text).map(|nids| nids.to_string()), Some(text.to_owned()));
        assert_eq!(nids("10.0.0.7@tcp"), Some("10.0.0.7@tcp".parse::<Nid>().unwrap().into()));
        assert_eq!(Nids::new(&[]), None);
        assert!(
            Nids::new(&[Nid::Lo; NIDS_MAX]).is_some_and(|nids| nids.iter().count() == NIDS_MAX)
        );
        assert_eq!(Nids::new(&[Nid::Lo; NIDS_MAX + 1]), None);
    }

    #[test]
    fn lists_of_nids_are_told_from_ports() {
        let show =
            |text| parse_nids(text).map(|nids| nids.iter().map(Nid::to_string).collect::<Vec<_>>());
        let several = "10.0.0.7:7988@tcp:10.0.0.8@tcp1,10.0.0.9:1@shm:10.0.0.9:1@tcp";
        let expected = ["10.0.0.7:7988@tcp", "10.0.0.8@tcp1", "10.0.0.9:1@shm", "10.0.0.9:1@tcp"];
        assert_eq!(show(several), Ok(expected.map(str::to_owned).to_vec()));
        for bad in ["", "10.0.0.7", "10.0.0.7@tcp:", "10.0.0.7@tcp:x", ":10.0.0.7@tcp"] {
            assert_eq!(show(bad), Err(NidError), "{bad}");
        }
    }
}

//! NIDs: where a node is reached, as `ADDRESS@NETWORK`, for instance `10.0.0.7@tcp` or `0@lo`;
//! with a port of its own, where several servers share an address, `10.0.0.7:7988@tcp`.
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
}

/// A text that is no NID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NidError;

impl fmt::Display for NidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a NID; write it like 10.0.0.7@tcp or 0@lo")
    }
}

impl core::error::Error for NidError {}

impl fmt::Display for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Nid::Lo => f.write_str("0@lo"),
            Nid::Tcp { addr, port, net } => {
                write!(f, "{addr}")?;
                if *port != PORT_DEFAULT {
                    write!(f, ":{port}")?;
                }
                f.write_str("@tcp")?;
                if *net == 0 { Ok(()) } else { write!(f, "{net}") }
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
        let number = net.strip_prefix("tcp").ok_or(NidError)?;
        let net = if number.is_empty() { 0 } else { number.parse().map_err(|_| NidError)? };
        let (addr, port) = match addr.split_once(':') {
            None => (addr, PORT_DEFAULT),
            Some((addr, port)) => match port.parse() {
                Ok(port) if port > 0 => (addr, port),
                _ => return Err(NidError),
            },
        };
        Ok(Nid::Tcp { addr: addr.parse().map_err(|_| NidError)?, port, net })
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
        for text in ["0@lo", "10.0.0.7@tcp", "192.168.0.1@tcp3", "10.0.0.7:7988@tcp2"] {
            assert_eq!(text.parse::<Nid>().map(|nid| nid.to_string()), Ok(text.to_owned()));
        }
        for bad in [
            "",
            "1@lo",
            "10.0.0@tcp",
            "10.0.0.1",
            "10.0.0.1@o2ib",
            "10.0.0.1@tcpx",
            "10.0.0.1:@tcp",
            "10.0.0.1:0@tcp",
            "10.0.0.1:70000@tcp",
        ] {
            assert_eq!(bad.parse::<Nid>(), Err(NidError));
        }
        assert_eq!("10.0.0.7:988@tcp".parse::<Nid>(), "10.0.0.7@tcp".parse());
    }

    #[test]
    fn lists_of_nids_are_told_from_ports() {
        let show =
            |text| parse_nids(text).map(|nids| nids.iter().map(Nid::to_string).collect::<Vec<_>>());
        let several = "10.0.0.7:7988@tcp:10.0.0.8@tcp1,10.0.0.9:1@tcp";
        let expected = ["10.0.0.7:7988@tcp", "10.0.0.8@tcp1", "10.0.0.9:1@tcp"];
        assert_eq!(show(several), Ok(expected.map(str::to_owned).to_vec()));
        for bad in ["", "10.0.0.7", "10.0.0.7@tcp:", "10.0.0.7@tcp:x", ":10.0.0.7@tcp"] {
            assert_eq!(show(bad), Err(NidError), "{bad}");
        }
    }
}

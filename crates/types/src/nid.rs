//! NIDs: where a node is reached, as `ADDRESS@NETWORK`, for instance `10.0.0.7@tcp` or `0@lo`.

use core::fmt;
use core::net::Ipv4Addr;
use core::str::FromStr;

/// A network identifier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Nid {
    /// The process itself: `0@lo`.
    Lo,
    /// A TCP network: `10.0.0.7@tcp1`.
    Tcp {
        /// IPv4 address.
        addr: Ipv4Addr,
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
            Nid::Tcp { addr, net: 0 } => write!(f, "{addr}@tcp"),
            Nid::Tcp { addr, net } => write!(f, "{addr}@tcp{net}"),
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
        Ok(Nid::Tcp { addr: addr.parse().map_err(|_| NidError)?, net })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nids_round_trip() {
        for text in ["0@lo", "10.0.0.7@tcp", "192.168.0.1@tcp3"] {
            assert_eq!(text.parse::<Nid>().map(|nid| nid.to_string()), Ok(text.to_owned()));
        }
        for bad in ["", "1@lo", "10.0.0@tcp", "10.0.0.1", "10.0.0.1@o2ib", "10.0.0.1@tcpx"] {
            assert_eq!(bad.parse::<Nid>(), Err(NidError));
        }
    }
}

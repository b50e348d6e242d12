//! NIDs as users write them: names of hosts may stand in the place of addresses.

use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};

use sateen_types::{Nid, PORT_DEFAULT, parse_nids};

/// The NIDs of a list. Names are looked up now, so that a host may move between two starts.
///
/// # Errors
/// Why it is no list of NIDs.
pub(crate) fn resolve(list: &str) -> Result<Vec<Nid>, String> {
    let mut text = String::new();
    for part in list.split_inclusive([':', ',', '@']) {
        let word = part.trim_end_matches([':', ',', '@']);
        // What stands behind an @ is a network; ports and addresses have no letters.
        let is_network = text.ends_with('@');
        if is_network || !word.contains(|c: char| c.is_ascii_alphabetic()) {
            text.push_str(part);
        } else {
            text.push_str(&address_of(word)?);
            text.push_str(part.get(word.len()..).unwrap_or_default());
        }
    }
    parse_nids(&text).map_err(|error| error.to_string())
}

/// One NID, for command lines.
///
/// # Errors
/// As [`resolve`].
pub(crate) fn resolve_one(text: &str) -> Result<Nid, String> {
    match resolve(text)?.as_slice() {
        [nid] => Ok(*nid),
        _ => Err("one NID at a time".to_owned()),
    }
}

/// The first IPv4 address of a host.
fn address_of(host: &str) -> Result<String, String> {
    if host == "localhost" {
        // By definition (RFC 6761), also where no file says so.
        return Ok(Ipv4Addr::LOCALHOST.to_string());
    }
    let found = (host, PORT_DEFAULT).to_socket_addrs();
    let found = found.map_err(|error| format!("the host {host} is not known: {error}"))?;
    let mut addresses = found.filter_map(|address| match address {
        SocketAddr::V4(address) => Some(address.ip().to_string()),
        SocketAddr::V6(_) => None,
    });
    addresses.next().ok_or_else(|| format!("the host {host} has no IPv4 address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(list: &str) -> Result<String, String> {
        let nids = resolve(list)?;
        Ok(nids.iter().map(Nid::to_string).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn names_are_looked_up_and_the_rest_is_left_alone() {
        assert_eq!(shown("localhost@tcp").as_deref(), Ok("127.0.0.1@tcp"));
        assert_eq!(
            shown("localhost:7988@tcp2:10.0.0.8@tcp,localhost@tcp").as_deref(),
            Ok("127.0.0.1:7988@tcp2 10.0.0.8@tcp 127.0.0.1@tcp")
        );
        assert_eq!(shown("0@lo").as_deref(), Ok("0@lo"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let unknown = resolve("no-such-host.invalid@tcp").unwrap_err();
        assert!(unknown.contains("no-such-host.invalid"), "{unknown}");
        for bad in ["", "localhost", "@tcp", "10.0.0.1@o2ib", "localhost@tcp:"] {
            assert!(resolve(bad).is_err(), "{bad}");
        }
        assert_eq!(resolve_one("10.0.0.1@tcp:10.0.0.2@tcp"), Err("one NID at a time".to_owned()));
    }
}

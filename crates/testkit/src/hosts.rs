//! Hosts of a test: networks of their own, all plugged into one switch. Whatever leaves one goes over
//! a cable, as between machines; only folders and the kernel are shared.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed; where it did says more than an error"
)]

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use crate::network::{Door, Network};

/// A switch, and the hosts that are plugged into it.
#[derive(Debug)]
pub struct Hosts {
    switch: Network,
    hosts: BTreeMap<u8, Network>,
}

/// Name of the switch, in a network where nobody else is.
const SWITCH: &str = "switch";
/// What each host calls its own end of the cable.
const CARD: &str = "card";

impl Default for Hosts {
    fn default() -> Hosts {
        Hosts::new()
    }
}

impl Hosts {
    /// A switch alone.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn new() -> Hosts {
        let switch = Network::new();
        switch.ip(&["link", "add", "name", SWITCH, "type", "bridge"]);
        switch.ip(&["link", "set", SWITCH, "up"]);
        Hosts { switch, hosts: BTreeMap::new() }
    }

    /// The address of the host with this number, whether it is there or not.
    pub fn address(number: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 97, 0, number)
    }

    /// Plugs in a host, if it is not there.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn plug_in(&mut self, number: u8) {
        if self.hosts.contains_key(&number) {
            return;
        }
        let host = Network::new();
        let (port, there) = (format!("port{number}"), host.id().to_string());
        let cable = ["link", "add", &port, "type", "veth", "peer", "name", CARD, "netns", &there];
        self.switch.ip(&cable);
        self.switch.ip(&["link", "set", &port, "master", SWITCH, "up"]);
        host.ip(&["addr", "add", &format!("{}/24", Hosts::address(number)), "dev", CARD]);
        host.ip(&["link", "set", CARD, "up"]);
        self.hosts.insert(number, host);
    }

    /// The way into a host.
    ///
    /// # Panics
    /// If it is not plugged in.
    pub fn door(&self, number: u8) -> Door {
        self.hosts.get(&number).unwrap().door()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn hosts_reach_each_other_and_nobody_else() {
        if !crate::network::has_ip() {
            return;
        }
        let mut hosts = Hosts::new();
        hosts.plug_in(1);
        hosts.plug_in(2);
        let server = hosts.door(1).within(|| TcpListener::bind((Hosts::address(1), 0)).unwrap());
        let at = server.local_addr().unwrap();
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| {
                let (mut guest, from) = server.accept().unwrap();
                guest.write_all(b"here").unwrap();
                from.ip()
            });
            let mut heard = String::new();
            let mut guest = hosts.door(2).within(|| TcpStream::connect(at).unwrap());
            guest.read_to_string(&mut heard).unwrap();
            assert_eq!((heard.as_str(), asked.join().unwrap()), ("here", Hosts::address(2).into()));
        });
        // Who is on none of them has no way there.
        assert!(TcpStream::connect_timeout(&at, std::time::Duration::from_secs(1)).is_err());
    }
}

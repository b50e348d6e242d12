//! What people are shown of the network: peers by their addresses, and the addresses of this
//! process, with what went over each. Connections that are gone count on.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use sateen_types::Endpoint;

use super::connection::Connection;
use super::rails::{Counts, HEALTH_MAX, RailState};
use super::stream::Address;
use super::{Routes, Tcp};

/// Most peers that are remembered when their connections are gone.
const GONE_MAX: usize = 4096;

/// An address at which somebody is reached, or from which somebody has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its address; without a port (0), if it has come from there.
    pub address: Address,
    /// The address of this process by which it is reached, if it is.
    pub local: Option<IpAddr>,
    /// Who is reached there.
    pub who: Vec<Endpoint>,
    /// All that is no data goes there, to some of them.
    pub is_first: bool,
    /// How the way there stands.
    pub state: RailState,
    /// 0 to 1000.
    pub health: u32,
    /// Connections that failed since one was open.
    pub failures: u32,
    /// Connections that are open.
    pub connections: usize,
    /// What went over it.
    pub counts: Counts,
}

/// An address of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Net {
    /// The address.
    pub local: IpAddr,
    /// Connections that are open.
    pub connections: usize,
    /// What went over it.
    pub counts: Counts,
}

/// What went over connections that are gone.
#[derive(Debug, Default)]
pub(super) struct Gone {
    peers: BTreeMap<Address, Counts>,
    nets: BTreeMap<IpAddr, Counts>,
}

/// Under which address a connection is shown.
fn shown_at(connection: &Connection) -> Address {
    let mut address = connection.peer;
    if connection.accepted {
        address.at.set_port(0);
    }
    address
}

impl Gone {
    /// A connection is gone.
    pub(super) fn add(&mut self, connection: &Connection) {
        let (counts, peer) = (connection.counts.take(), shown_at(connection));
        if self.peers.len() < GONE_MAX || self.peers.contains_key(&peer) {
            self.peers.entry(peer).or_default().add(counts);
        }
        if let Some(local) = connection.local.get() {
            self.nets.entry(local.ip()).or_default().add(counts);
        }
    }
}

impl Routes {
    fn accepted_from(&self, address: Address) -> Vec<Endpoint> {
        let heard = self.heard.iter().chain(self.beside.rails());
        let here = heard.filter(|(_, on)| on.accepted && shown_at(on) == address);
        let mut who: Vec<Endpoint> = here.map(|(endpoint, _)| *endpoint).collect();
        who.sort_unstable();
        who.dedup();
        who
    }
}

impl Tcp {
    fn all_connections(&self) -> Vec<Arc<Connection>> {
        let mut all: Vec<Arc<Connection>> = {
            let routes = self.shared.routes();
            routes.dialled.values().chain(routes.accepted.values()).cloned().collect()
        };
        all.extend(self.shared.rails().own().cloned());
        all
    }

    /// Everybody who is reached, or has come, by address.
    pub fn peers(&self) -> Vec<Peer> {
        let now_ms = self.shared.now_ms();
        let mut peers: BTreeMap<Address, Peer> = BTreeMap::new();
        let new = |address| Peer {
            address,
            local: None,
            who: Vec::new(),
            is_first: false,
            state: RailState::Idle,
            health: HEALTH_MAX,
            failures: 0,
            connections: 0,
            counts: Counts::default(),
        };
        let gone = self.shared.gone().peers.clone();
        for connection in self.all_connections() {
            let address = shown_at(&connection);
            let peer = peers.entry(address).or_insert_with(|| new(address));
            peer.counts.add(connection.counts.now());
            if connection.is_open() {
                peer.connections += 1;
                peer.local = connection.local.get().map(SocketAddr::ip);
            }
        }
        for (address, counts) in gone {
            peers.entry(address).or_insert_with(|| new(address)).counts.add(counts);
        }
        let routes = self.shared.routes();
        for (endpoint, all) in &routes.told {
            for (at, address) in all.iter().enumerate() {
                let peer = peers.entry(*address).or_insert_with(|| new(*address));
                peer.who.push(*endpoint);
                peer.is_first |= at == 0;
            }
        }
        for peer in peers.values_mut().filter(|peer| peer.address.at.port() == 0) {
            peer.who = routes.accepted_from(peer.address);
            peer.is_first = peer.connections > 0;
            peer.state = if peer.connections > 0 { RailState::Up } else { RailState::Down };
        }
        drop(routes);
        let rails = self.shared.rails();
        for peer in peers.values_mut().filter(|peer| peer.address.at.port() != 0) {
            (peer.state, peer.health, peer.failures) = rails.standing(peer.address, now_ms);
        }
        // Who is not looked for there any more, and was not there, is of no interest.
        peers.retain(|_, peer| !peer.who.is_empty() || peer.counts != Counts::default());
        peers.into_values().collect()
    }

    /// The addresses of this process: those that it listens on, and those that connections have.
    pub fn nets(&self) -> Vec<Net> {
        let mut nets: BTreeMap<IpAddr, (usize, Counts)> = BTreeMap::new();
        for address in self.listening().iter().filter(|address| !address.ip().is_unspecified()) {
            nets.entry(address.ip()).or_default();
        }
        let gone = self.shared.gone().nets.clone();
        for connection in self.all_connections() {
            if let Some(local) = connection.local.get() {
                let (connections, counts) = nets.entry(local.ip()).or_default();
                *connections += usize::from(connection.is_open());
                counts.add(connection.counts.now());
            }
        }
        for (local, more) in gone {
            nets.entry(local).or_default().1.add(more);
        }
        let shown = |(local, (connections, counts))| Net { local, connections, counts };
        nets.into_iter().map(shown).collect()
    }
}

//! The network of this process, over TCP and memory that is shared within its host, as the uplink of
//! its router.
//!
//! Messages to endpoints of this process never come here. What comes in from others is for
//! somebody here or for nobody; nothing is passed on from one process to another.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sateen_fuse::Look;
use sateen_lnd::{Address, Counts, Deliver, Limits, Looker, RailState, Tcp, Ways};
use sateen_mount::Lookers;
use sateen_reactor::{Receiver, Router};
use sateen_types::{ClientId, Endpoint, Errno, Nid, PORT_DEFAULT};
use sateen_wire::{
    Body, Bulk, HEADER_BYTES, Header, HeaderError, Message, PROTOCOL_VERSION, Reply, ReplyBody,
    Request,
};

use crate::params::{LinkCounts, NetShown, PeerShown};
use crate::refusal::{Outcome, Refusal};

/// How long to try a connection only to say why there is no answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// An address that is never reached: no packet is sent to it, but there is a route.
const ELSEWHERE: &str = "192.0.2.1:9";

/// Over what all networks of this process go; TCP alone if nothing was said.
static WAYS: Mutex<Ways> = Mutex::new(Ways { folder: None, tcp: true });

/// Says it for all that start from now on.
pub(crate) fn set_ways(ways: Ways) {
    *WAYS.lock().unwrap_or_else(PoisonError::into_inner) = ways;
}

fn ways() -> Ways {
    WAYS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// A network that only asks.
fn asking(deliver: Deliver) -> std::io::Result<Tcp> {
    Tcp::start_over(&[], deliver, Limits::default(), ways())
}

/// The network. Dropping it ends all connections.
pub(crate) struct Network {
    tcp: Arc<Tcp>,
    /// NIDs by their addresses: of the process itself, and those that others have.
    own: Vec<Nid>,
    told: Mutex<BTreeMap<Address, Nid>>,
    router: Arc<Router>,
}

struct Uplink(Arc<Tcp>);

impl Receiver for Uplink {
    fn receive(self: Arc<Self>, message: Message) {
        self.0.send(message);
    }

    fn hurry(&self) {
        self.0.hurry();
    }

    fn before_disk(&self) {
        self.0.send_gathered();
    }

    fn heard(&self, within: Duration) -> Vec<Endpoint> {
        self.0.heard(within)
    }
}

/// Who looks for answers, for one thread of a mount.
struct Looking(Looker);

impl Look for Looking {
    fn begin(&mut self) -> bool {
        self.0.begin()
    }

    fn look(&mut self) {
        self.0.look();
    }

    fn end(&mut self) {
        self.0.end();
    }
}

/// Those who look for the answers of a network.
pub(super) fn lookers(network: &Arc<Network>) -> Lookers {
    // Who is mounted does not keep it.
    let tcp = Arc::downgrade(&network.tcp);
    Box::new(move || Some(Box::new(Looking(tcp.upgrade()?.looker()))))
}

fn counted(counts: Counts) -> LinkCounts {
    LinkCounts {
        send_count: counts.sent,
        recv_count: counts.received,
        send_bytes: counts.sent_bytes,
        recv_bytes: counts.received_bytes,
        drop_count: counts.dropped,
    }
}

/// Where a NID is reached; `None` for the process itself.
pub(crate) fn address(nid: Nid) -> Option<Address> {
    match nid {
        Nid::Lo => None,
        Nid::Tcp { addr, port, .. } => Some(Address { at: (addr, port).into(), shm: false }),
        Nid::Shm { addr, port } => Some(Address { at: (addr, port).into(), shm: true }),
    }
}

/// The NID of whoever is at an address, on the TCP network of this number.
fn nid_at(address: Address, net: u16) -> Option<Nid> {
    match address.at {
        SocketAddr::V4(at) if address.shm => Some(Nid::Shm { addr: *at.ip(), port: at.port() }),
        SocketAddr::V4(at) => Some(Nid::Tcp { addr: *at.ip(), port: at.port(), net }),
        SocketAddr::V6(_) => None,
    }
}

/// Looks whether a server can be reached at all, over what this process may use.
fn probe(address: Address) -> std::io::Result<Option<TcpStream>> {
    let ways = ways();
    if ways.tcp && !address.shm {
        return TcpStream::connect_timeout(&address.at, PROBE_TIMEOUT).map(Some);
    }
    sateen_lnd::shm::meet(&ways, address.at).map(|()| None)
}

impl Network {
    /// Listens on these NIDs, on none for a client, and takes what the router has for others.
    pub(crate) fn start(router: &Arc<Router>, nids: &[Nid], limits: Limits) -> Outcome<Network> {
        let listen: Vec<Address> = nids.iter().copied().filter_map(address).collect();
        let inward = Arc::downgrade(router);
        let deliver = Box::new(move |message| {
            if let Some(router) = inward.upgrade() {
                router.deliver(message);
            }
        });
        let tcp = Tcp::start_over(&listen, deliver, limits, ways()).map_err(|error| {
            let shown: Vec<String> = nids.iter().map(Nid::to_string).collect();
            let hint = match error.kind() {
                std::io::ErrorKind::AddrNotAvailable => {
                    "give an address of this host (ip address shows them) with --nid \
                     ADDRESS[:PORT]@tcp"
                }
                std::io::ErrorKind::Unsupported => {
                    "leave out --net=tcp, or give an address of TCP with --nid ADDRESS[:PORT]@tcp"
                }
                _ => {
                    "end the server that listens there, or give another address or port of this \
                     host with --nid ADDRESS[:PORT]@tcp"
                }
            };
            Refusal::new(format!("cannot listen on {}: {error}", shown.join(" and ")), hint)
        })?;
        let tcp = Arc::new(tcp);
        router.set_uplink(Some(Arc::new(Uplink(tcp.clone()))));
        Ok(Network { tcp, own: nids.to_vec(), told: Mutex::default(), router: router.clone() })
    }

    fn told(&self) -> MutexGuard<'_, BTreeMap<Address, Nid>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the network that an address of this process is on.
    fn number_of(&self, local: IpAddr) -> u16 {
        let of = |nid: &Nid| match nid {
            Nid::Tcp { addr, net, .. } if IpAddr::V4(*addr) == local => Some(*net),
            _ => None,
        };
        self.own.iter().find_map(of).unwrap_or_default()
    }

    /// The NIDs of this process, and what went over them.
    pub(crate) fn nets(&self) -> Vec<NetShown> {
        let peers = self.tcp.peers();
        let told = self.told();
        let shown = self.tcp.nets().into_iter().filter_map(|net| {
            let IpAddr::V4(addr) = net.local else { return None };
            let own = self
                .own
                .iter()
                .copied()
                .find(|nid| matches!(nid, Nid::Tcp { addr: own, .. } if *own == addr));
            // One that listens nowhere is on the networks of those that it has connected to.
            let towards = || {
                let to = peers.iter().find(|peer| peer.local == Some(net.local))?;
                match told.get(&to.address)? {
                    Nid::Tcp { net, .. } => Some(*net),
                    Nid::Lo | Nid::Shm { .. } => None,
                }
            };
            let new = || {
                let net = towards().unwrap_or_default();
                Nid::Tcp { addr, port: PORT_DEFAULT, net }
            };
            Some(NetShown {
                nid: own.unwrap_or_else(new).to_string(),
                status: "up".to_owned(),
                connections: net.connections,
                counts: counted(net.counts),
            })
        });
        shown.collect()
    }

    /// The NIDs of others, and what went over them.
    pub(crate) fn peers(&self) -> Vec<PeerShown> {
        let told = self.told().clone();
        let shown = self.tcp.peers().into_iter().filter_map(|peer| {
            let mut address = peer.address;
            if address.at.port() == 0 {
                address.at.set_port(PORT_DEFAULT);
            }
            let net = peer.local.map_or(0, |local| self.number_of(local));
            let new = nid_at(address, net)?;
            let state = match peer.state {
                RailState::Idle => "idle",
                RailState::Up => "up",
                RailState::Suspect => "suspect",
                RailState::Down => "down",
            };
            Some(PeerShown {
                nid: told.get(&peer.address).copied().unwrap_or(new).to_string(),
                state: state.to_owned(),
                primary: peer.is_first,
                health: peer.health,
                retries: peer.failures,
                connections: peer.connections,
                counts: counted(peer.counts),
                peers: peer.who.iter().map(Endpoint::to_string).collect(),
            })
        });
        shown.collect()
    }

    /// The NID, without its port, of whoever speaks as this endpoint; of the process itself, if it
    /// was never heard of.
    pub(crate) fn nid_of(&self, endpoint: Endpoint) -> Nid {
        let Some(mut peer) = self.tcp.peer(endpoint) else { return Nid::Lo };
        peer.at.set_port(PORT_DEFAULT);
        let local = self.tcp.local(endpoint);
        let net = local.map_or(0, |local| self.number_of(local.ip()));
        nid_at(peer, net).unwrap_or(Nid::Lo)
    }

    /// The NID at which an endpoint is tried next, or is reached; of several it is one.
    pub(crate) fn route_to(&self, endpoint: Endpoint) -> Option<Nid> {
        let to = self.tcp.route(endpoint)?;
        self.told().get(&to).copied().or_else(|| nid_at(to, 0))
    }

    /// Says where an endpoint is reached: at one of these NIDs after the other, with data at all.
    pub(crate) fn set_route(&self, endpoint: Endpoint, nids: &[Nid]) {
        let known = nids.iter().filter_map(|nid| Some((address(*nid)?, *nid)));
        self.told().extend(known);
        self.tcp.set_route(endpoint, nids.iter().copied().filter_map(address).collect::<Vec<_>>());
    }

    /// What answers for an endpoint is not it, or nothing does: its next NID is tried.
    pub(crate) fn try_next(&self, endpoint: Endpoint) {
        self.tcp.try_next(endpoint);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.router.set_uplink(None);
    }
}

/// The NIDs by which a host that listens nowhere is seen by these peers. What leads to its own
/// servers alone is left out if there is another: nobody else knows it.
pub(crate) fn own_nids(towards: &[Nid]) -> Vec<Nid> {
    let mut all: Vec<Nid> = Vec::new();
    for nid in towards.iter().filter_map(|peer| own_nid(Some(*peer)).ok()) {
        if !all.contains(&nid) {
            all.push(nid);
        }
    }
    let within = |nid: &Nid| matches!(nid, Nid::Tcp { addr, .. } if addr.is_loopback());
    if !all.iter().all(within) {
        all.retain(|nid| !within(nid));
    }
    all
}

/// The NID that a host has towards a peer, or towards the world if the peer is itself.
pub(crate) fn own_nid(towards: Option<Nid>) -> Outcome<Nid> {
    let peer = towards.and_then(address).map_or_else(|| ELSEWHERE.to_owned(), |a| a.at.to_string());
    let own = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect(peer)?;
        socket.local_addr()
    });
    match own {
        Ok(SocketAddr::V4(own)) => {
            let net = match towards {
                Some(Nid::Tcp { net, .. }) => net,
                Some(Nid::Lo | Nid::Shm { .. }) | None => 0,
            };
            Ok(Nid::Tcp { addr: *own.ip(), port: PORT_DEFAULT, net })
        }
        _ => Err(Refusal::new(
            "it is not clear by which address this host is reached",
            "say it with --nid ADDRESS@tcp",
        )),
    }
}

/// Asks whether a server of ours listens on a NID: whatever it serves, it answers.
///
/// # Errors
/// Why there is no answer.
pub(crate) fn ping(nid: Nid) -> Result<(), String> {
    let Some(address) = address(nid) else { return Ok(()) };
    probe(address).map_err(|error| error.to_string())?;
    let (sender, answers) = channel();
    let sender = Mutex::new(sender);
    let deliver = Box::new(move |message: Message| {
        // Nobody listens any more only after the first answer, or none.
        let _ = sender.lock().unwrap_or_else(PoisonError::into_inner).send(message.body);
    });
    let tcp = asking(deliver).map_err(|error| error.to_string())?;
    tcp.set_route(Endpoint::Mgs, vec![address]);
    let client = ClientId(sateen_reactor::random());
    let header =
        Header { seq: 1, ..Header::between(Endpoint::Client(client), Endpoint::Mgs, client) };
    tcp.send(Message { header, body: Body::Request(Request::Ping), bulk: Bulk::None });
    match answers.recv_timeout(PROBE_TIMEOUT) {
        // From this side of the network: the connection ended.
        Ok(Body::Reply(reply))
            if matches!(reply.error, Some(Errno::ESHUTDOWN | Errno::ECONNRESET)) =>
        {
            Err("what listens there is no Sateen server".to_owned())
        }
        Ok(Body::Reply(reply)) if reply.error == Some(Errno::EPROTONOSUPPORT) => {
            let other = probe(address).ok().flatten().and_then(other);
            Err(other.map_or_else(|| "it speaks another protocol".to_owned(), |v| v.to_string()))
        }
        Ok(_) => Ok(()),
        Err(_) => Err("what listens there does not answer".to_owned()),
    }
}

/// Whether a target of this file system is served at a NID: it takes a connection, which is given
/// back at once. One that says nothing for a while is not.
pub(super) fn serves(nid: Nid, target: Endpoint, file_system: u64) -> bool {
    let Some(address) = address(nid) else { return false };
    let (sender, answers) = channel();
    let sender = Mutex::new(sender);
    let deliver = Box::new(move |message: Message| {
        // Nobody listens any more only after the first answer, or none.
        let _ = sender.lock().unwrap_or_else(PoisonError::into_inner).send(message.body);
    });
    let Ok(tcp) = asking(deliver) else { return false };
    tcp.set_route(target, vec![address]);
    let client = ClientId(sateen_reactor::random());
    let header =
        Header { file_system, ..Header::between(Endpoint::Client(client), target, client) };
    let ask = |header, request| {
        tcp.send(Message { header, body: Body::Request(request), bulk: Bulk::None });
        match answers.recv_timeout(PROBE_TIMEOUT) {
            Ok(Body::Reply(Reply { body: ReplyBody::Connected { generation, .. }, .. })) => {
                Some(generation)
            }
            _ => None,
        }
    };
    let header = Header { seq: 1, ..header };
    let Some(generation) = ask(header, Request::Connect { features: 0 }) else { return false };
    ask(Header { generation, ..header }, Request::Disconnect);
    true
}

/// Whether a server of ours listens there that speaks another version of the protocol.
fn other(mut stream: TcpStream) -> Option<HeaderError> {
    let client = ClientId(sateen_reactor::random());
    let header =
        Header { seq: 1, ..Header::between(Endpoint::Client(client), Endpoint::Mgs, client) };
    let ping = Message { header, body: Body::Request(Request::Ping), bulk: Bulk::None };
    stream.set_read_timeout(Some(PROBE_TIMEOUT)).ok()?;
    stream.write_all(&ping.encode()).ok()?;
    let mut answer = [0; HEADER_BYTES];
    stream.read_exact(&mut answer).ok()?;
    let (version, ..) = Header::decode_any(&answer).ok()?;
    (version != PROTOCOL_VERSION).then_some(HeaderError::Version(version))
}

/// Why `who` does not answer at these NIDs, as far as can be seen from here.
pub(crate) fn why_silent(nids: &[Nid], who: &str) -> String {
    let probe = &|nid: &Nid| {
        let Some(address) = address(*nid) else { return format!("{nid} is this process") };
        match probe(address) {
            Ok(stream) => match stream.and_then(other) {
                Some(version) => format!("{nid}: {version}"),
                None => format!("{nid} takes connections, but does not answer as {who}"),
            },
            Err(error) => format!("{nid}: {error}"),
        }
    };
    // At once: whoever is told has waited.
    let found = std::thread::scope(|scope| {
        let probes: Vec<_> = nids.iter().map(|nid| scope.spawn(move || probe(nid))).collect();
        let found = nids.iter().zip(probes).map(|(nid, probe)| {
            probe.join().unwrap_or_else(|_| format!("{nid} could not be tried"))
        });
        found.collect::<Vec<_>>()
    });
    found.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_has_the_nids_that_its_servers_see() {
        let nid = |text: &str| sateen_types::parse_nids(text).unwrap()[0];
        let (here, there) = (nid("127.0.0.9@tcp"), nid("127.0.0.1@tcp"));
        assert_eq!(own_nids(&[here]), [there]);
        assert_eq!(own_nids(&[here, nid("127.0.0.8@tcp")]), [there], "once");
        // A host that has another address is seen by that.
        let Ok(outside) = own_nid(None) else { return };
        if outside != there {
            assert_eq!(own_nids(&[here, outside]), [outside]);
        }
    }
}

//! What the tests of connections go over: the same bodies for sockets of TCP and for shared memory.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sateen_lnd::shm;
use sateen_lnd::{Address, Deliver, Limits, Tcp, Ways};

/// How long a peer that a test plays waits where nothing else is said.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// Makes a test for each way of each body that is named.
#[macro_export]
macro_rules! both {
    ($($name:ident)*) => {
        mod tcp {
            $(#[test] fn $name() { super::$name($crate::over::Over::Tcp) })*
        }
        mod shm {
            $(#[test] fn $name() { super::$name($crate::over::Over::Shm) })*
        }
    };
}

/// Over what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    Tcp,
    Shm,
}

pub(crate) fn any_port() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("shm")
}

impl Over {
    fn ways(self, listens: bool) -> Ways {
        match self {
            Over::Tcp => Ways::default(),
            // Who listens has a port of its own by that.
            Over::Shm => Ways { folder: Some(folder()), tcp: listens },
        }
    }

    /// A network that listens nowhere.
    pub(crate) fn client(self, deliver: Deliver) -> Tcp {
        Tcp::start_over(&[], deliver, Limits::default(), self.ways(false)).unwrap()
    }

    /// A network that listens somewhere.
    pub(crate) fn server(self, deliver: Deliver, limits: Limits) -> Tcp {
        let listen = [Address::from(any_port())];
        let server = Tcp::start_over(&listen, deliver, limits, self.ways(true)).unwrap();
        assert_eq!(server.listening().len(), 1);
        server
    }

    /// A peer that listens, and is played by the test.
    pub(crate) fn listen(self) -> Listener {
        let tcp = TcpListener::bind(any_port()).unwrap();
        let at = tcp.local_addr().unwrap();
        let shm = (self == Over::Shm).then(|| shm::Listener::bind(&folder(), at).unwrap());
        Listener { tcp, shm }
    }

    /// A peer that comes, and is played by the test.
    pub(crate) fn connect(self, at: SocketAddr) -> Peer {
        match self {
            Over::Tcp => Peer::of(TcpStream::connect(at).unwrap()),
            Over::Shm => Peer::shm(shm::dial(&folder(), at).unwrap()),
        }
    }
}

pub(crate) struct Listener {
    tcp: TcpListener,
    shm: Option<shm::Listener>,
}

impl Listener {
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    pub(crate) fn accept(&self) -> Peer {
        match &self.shm {
            None => Peer::of(self.tcp.accept().unwrap().0),
            Some(shm) => Peer::shm(shm::welcome(shm.accept().unwrap()).unwrap()),
        }
    }
}

#[derive(Clone)]
enum Way {
    Tcp(Arc<TcpStream>),
    Shm(Arc<shm::Stream>),
}

/// One end of a connection, as the test reads and writes it.
#[derive(Clone)]
pub(crate) struct Peer {
    way: Way,
    patience: Duration,
    /// What was looked at.
    ahead: Vec<u8>,
}

impl Peer {
    fn of(stream: TcpStream) -> Peer {
        Peer { way: Way::Tcp(Arc::new(stream)), patience: LONG, ahead: Vec::new() }
    }

    fn shm(stream: shm::Stream) -> Peer {
        Peer { way: Way::Shm(Arc::new(stream)), patience: LONG, ahead: Vec::new() }
    }

    pub(crate) fn waits_for(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Whether anything can be read now.
    pub(crate) fn has_something(&mut self) -> bool {
        match &self.way {
            _ if !self.ahead.is_empty() => true,
            Way::Tcp(stream) => {
                stream.set_nonblocking(true).unwrap();
                let peeked = stream.peek(&mut [0]);
                stream.set_nonblocking(false).unwrap();
                match peeked {
                    Ok(bytes) => bytes > 0,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::WouldBlock);
                        false
                    }
                }
            }
            Way::Shm(stream) => {
                let mut byte = [0; 1];
                let found = stream.try_read(&mut byte).unwrap();
                self.ahead.extend(&byte[..found.unwrap_or(0)]);
                found.is_some()
            }
        }
    }

    /// Nothing more is written.
    pub(crate) fn finish(&self) {
        match &self.way {
            // The other end may be gone.
            Way::Tcp(stream) => drop(stream.shutdown(Shutdown::Write)),
            Way::Shm(stream) => stream.finish(),
        }
    }
}

impl Read for Peer {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if !self.ahead.is_empty() {
            let count = self.ahead.len().min(bytes.len());
            self.ahead.drain(..count).zip(bytes).for_each(|(from, to)| *to = from);
            return Ok(count);
        }
        match &self.way {
            Way::Tcp(stream) => {
                stream.set_read_timeout(Some(self.patience))?;
                (&**stream).read(bytes)
            }
            Way::Shm(stream) => stream.read(bytes, self.patience),
        }
    }
}

impl Write for Peer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let stream = match &self.way {
            Way::Tcp(stream) => return (&**stream).write(bytes),
            Way::Shm(stream) => stream,
        };
        let since = Instant::now();
        loop {
            // As a network finds out, which reads beside that.
            if stream.is_left() {
                return Err(ErrorKind::BrokenPipe.into());
            }
            match stream.write(&[IoSlice::new(bytes)], Some(Duration::from_millis(100))) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    assert!(since.elapsed() < LONG, "nothing is taken");
                }
                other => return other,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

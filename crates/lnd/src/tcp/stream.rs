//! What a connection's bytes travel on: a socket, or shared memory. Everything above is the same.

use std::io::{self, IoSlice, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};

use super::frame::{LOOK, STALL};
use crate::shm;

/// Where somebody is, or is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The address at which it listens, or from which it came.
    pub at: SocketAddr,
    /// Over shared memory: of whom there is a connection to, whether that is; of whom is looked for,
    /// whether in no other way.
    pub shm: bool,
}

/// Over TCP; or over shared memory, if it turns out to be on this host and lets us.
impl From<SocketAddr> for Address {
    fn from(at: SocketAddr) -> Address {
        Address { at, shm: false }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.at, if self.shm { "@shm" } else { "" })
    }
}

/// One or the other.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Shm(shm::Stream),
}

impl Stream {
    /// Reads what has come; nothing, if there is nothing.
    pub(super) fn try_read(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self {
            Stream::Tcp(stream) => match recv(stream, buffer, RecvFlags::DONTWAIT) {
                Ok((count, _)) => Ok(Some(count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                Err(error) => Err(error.into()),
            },
            Stream::Shm(stream) => stream.try_read(buffer),
        }
    }

    /// Reads, and sleeps until something comes.
    ///
    /// # Errors
    /// `WouldBlock` if that takes longer than [`STALL`].
    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&*stream).read(buffer),
            Stream::Shm(stream) => stream.read(buffer, STALL),
        }
    }

    /// Sends some of these bytes; how many.
    ///
    /// # Errors
    /// `WouldBlock` if nothing is taken: now, if it must not block, and for [`LOOK`], if it may.
    pub(super) fn send(&self, parts: &[IoSlice<'_>], blocking: bool) -> io::Result<usize> {
        let stream = match self {
            Stream::Tcp(stream) => stream,
            Stream::Shm(stream) => return stream.write(parts, blocking.then_some(LOOK)),
        };
        let mut flags = SendFlags::NOSIGNAL;
        flags.set(SendFlags::DONTWAIT, !blocking);
        loop {
            match sendmsg(stream, parts, &mut SendAncillaryBuffer::default(), flags) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => return Ok(sent),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Nothing comes and goes any more.
    pub(super) fn shutdown(&self) {
        match self {
            // It may be closed already, which is as good.
            Stream::Tcp(stream) => drop(stream.shutdown(Shutdown::Both)),
            Stream::Shm(stream) => stream.shutdown(),
        }
    }

    /// Bytes that lie in shared memory and can be read now.
    ///
    /// # Errors
    /// What there is is nonsense.
    pub(super) fn there(&self) -> Result<u64, io::ErrorKind> {
        match self {
            Stream::Tcp(_) => Ok(0),
            Stream::Shm(stream) => {
                stream.there().map(|there| there as u64).map_err(|error| error.kind())
            }
        }
    }

    /// Wakes the thread that sleeps until something comes over shared memory.
    pub(super) fn wake_reader(&self) {
        if let Stream::Shm(stream) = self {
            stream.wake_reader();
        }
    }

    /// The memory, if it is shared.
    pub(super) fn shm(&self) -> Option<&shm::Stream> {
        match self {
            Stream::Tcp(_) => None,
            Stream::Shm(stream) => Some(stream),
        }
    }

    pub(super) fn is_shm(&self) -> bool {
        matches!(self, Stream::Shm(_))
    }
}

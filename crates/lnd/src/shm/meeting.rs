//! Where processes of one host meet to share memory: unix sockets in one folder.
//!
//! The socket of whoever listens at an address is named after that address and after the network
//! namespace in which it is one: `4026531840-10.0.0.1:988`. So who finds it would reach the same
//! process over TCP, and who is in another namespace, in a container with another folder, or on
//! another host finds nothing, and goes over TCP. Whether its owner lives is told by a lock on a
//! file beside it, which the kernel gives back however a process ends.
//!
//! Each side lets in root and its own user only. Whoever listens makes the memory and two bells,
//! and hands them over with the first bytes; from then on the socket only shows that both are there.

use std::fs::{DirBuilder, File};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{Mode, OFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use super::mapping::Mapping;
use super::ring::BOTH_BYTES;
use super::{End, Stream};

/// What whoever listens says first: which memory it is. Another layout has another word.
const HELLO: [u8; 16] = *b"sateen-shm 2x2M\n";
/// How long somebody who has come waits for that.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// The memory, the bell of who listens, and the other's.
const HANDED: usize = 3;
/// Where it is known in which network namespace a thread is.
const NAMESPACE: &str = "/proc/thread-self/ns/net";

/// Where a socket is, by a path that is short enough for one whatever the folder's is.
#[derive(Debug)]
struct Place {
    folder: OwnedFd,
    name: String,
}

impl Place {
    fn of(folder: &Path, at: SocketAddr) -> io::Result<Place> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(folder, flags, Mode::empty())?;
        let namespace = std::fs::metadata(NAMESPACE)?.ino();
        Ok(Place { folder, name: format!("{namespace}-{at}") })
    }

    fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}/{}", self.folder.as_raw_fd(), self.name).into()
    }

    fn lock(&self) -> PathBuf {
        self.path().with_added_extension("lock")
    }
}

/// Locks the file at a path, which is there as long as somebody has it locked.
fn own(path: &Path) -> io::Result<File> {
    loop {
        let lock = File::options().create(true).append(true).open(path)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(io::ErrorKind::AddrInUse.into()),
            Err(std::fs::TryLockError::Error(error)) => return Err(error),
        }
        // Whoever had it may have removed it meanwhile: then it is not the one that others find.
        let found = std::fs::metadata(path).map(|found| found.ino()).ok();
        if found == Some(lock.metadata()?.ino()) {
            return Ok(lock);
        }
    }
}

/// Whoever listens.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    place: Place,
    /// Held while the socket is ours.
    lock: Mutex<Option<File>>,
}

impl Listener {
    /// Listens in a folder, which is made if need be, for whoever looks for this address.
    ///
    /// # Errors
    /// `AddrInUse` if somebody does already.
    pub fn bind(folder: &Path, at: SocketAddr) -> io::Result<Listener> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let place = Place::of(folder, at)?;
        let path = place.path();
        let lock = own(&place.lock())?;
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            // Of one that was killed.
            _ => {}
        }
        let socket = UnixListener::bind(&path)?;
        Ok(Listener { socket, place, lock: Mutex::new(Some(lock)) })
    }

    /// Waits for the next who comes.
    ///
    /// # Errors
    /// None has come, or it is closed.
    pub fn accept(&self) -> io::Result<UnixStream> {
        self.socket.accept().map(|(stream, _)| stream)
    }

    /// Is found by nobody any more.
    pub fn close(&self) {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        // Once only: then it is another's.
        if let Some(lock) = lock.take() {
            // One that is left is not answered at, and removed by the next.
            let _ = std::fs::remove_file(self.place.path());
            let _ = std::fs::remove_file(self.place.lock());
            let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
            drop(lock);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.close();
    }
}

/// Refuses whoever is neither root nor of this process's user.
fn know(socket: &UnixStream) -> io::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(socket)?.uid;
    if peer.is_root() || peer == rustix::process::geteuid() {
        return Ok(());
    }
    let what = format!("user {} may not share memory with this process", peer.as_raw());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}

/// Shares memory with somebody who has come.
///
/// # Errors
/// It may not, or there is not enough memory.
pub fn welcome(socket: UnixStream) -> io::Result<Stream> {
    know(&socket)?;
    let (mapping, file) = Mapping::make(BOTH_BYTES)?;
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let [own, theirs] = [eventfd(0, flags)?, eventfd(0, flags)?];
    let handed = [file.as_fd(), own.as_fd(), theirs.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(HANDED))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let fits = beside.push(SendAncillaryMessage::ScmRights(&handed));
    debug_assert!(fits);
    let sent = sendmsg(&socket, &[IoSlice::new(&HELLO)], &mut beside, SendFlags::NOSIGNAL)?;
    if sent < HELLO.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    Ok(Stream::new(End::Listens, socket, mapping, [own, theirs]))
}

/// Takes the memory that is shared by whoever listens.
///
/// # Errors
/// Nothing is handed out, or not what is known here.
pub(super) fn come(socket: UnixStream) -> io::Result<Stream> {
    know(&socket)?;
    socket.set_read_timeout(Some(HELLO_TIMEOUT))?;
    let mut hello = [0; HELLO.len()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(HANDED))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(&socket, &mut [IoSliceMut::new(&mut hello)], &mut beside, flags)?;
    let mut handed = Vec::with_capacity(HANDED);
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(all) = message {
            handed.extend(all);
        }
    }
    let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    if got.bytes == 0 {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    if got.bytes != HELLO.len() || hello != HELLO {
        return Err(wrong("it shares memory in another way"));
    }
    let handed: [OwnedFd; HANDED] =
        handed.try_into().map_err(|_| wrong("it does not hand over what it says"))?;
    let [file, theirs, own] = handed;
    let mapping = Mapping::of(&file, BOTH_BYTES)?;
    Ok(Stream::new(End::Came, socket, mapping, [own, theirs]))
}

/// Meets whoever listens at an address.
///
/// # Errors
/// Nobody of this host does so, or it lets nobody in.
pub fn dial(folder: &Path, at: SocketAddr) -> io::Result<Stream> {
    come(UnixStream::connect(Place::of(folder, at)?.path())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        // Longer than the path of a socket may be.
        let folder = std::env::temp_dir().join(format!("sateen-shm-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder.join("x".repeat(120))
    }

    #[test]
    fn an_address_is_met_while_somebody_listens_and_by_one_at_a_time() {
        let (folder, at) = (folder("one"), "10.0.0.1:988".parse().unwrap());
        assert!(dial(&folder, at).is_err(), "there is no folder");
        let listener = Listener::bind(&folder, at).unwrap();
        let twice = Listener::bind(&folder, at).err().map(|error| error.kind());
        assert_eq!(twice, Some(io::ErrorKind::AddrInUse));
        let other = "10.0.0.1:989".parse().unwrap();
        assert_eq!(dial(&folder, other).unwrap_err().kind(), io::ErrorKind::NotFound);
        drop(Listener::bind(&folder, other).unwrap());

        std::thread::scope(|scope| {
            let met = scope.spawn(|| welcome(listener.accept().unwrap()).unwrap());
            let came = dial(&folder, at).unwrap();
            came.write(&[IoSlice::new(b"hello")], None).unwrap();
            let mut bytes = [0; 9];
            assert_eq!(met.join().unwrap().read(&mut bytes, HELLO_TIMEOUT).unwrap(), 5);
            // Who comes to somebody who wants nobody hears so.
            let refusing = scope.spawn(|| drop(listener.accept().unwrap()));
            assert!(dial(&folder, at).is_err());
            refusing.join().unwrap();
            let waiting = scope.spawn(|| listener.accept().is_err());
            std::thread::sleep(Duration::from_millis(20));
            listener.close();
            assert!(waiting.join().unwrap(), "nobody is waited for any more");
        });
        assert!(dial(&folder, at).is_err());
        // Another takes it over, also from one that was killed, and what the first does then is
        // nothing to it.
        let next = Listener::bind(&folder, at).unwrap();
        drop(listener);
        assert!(next.place.path().exists());
        let path = next.place.path();
        let left = UnixListener::bind(path.with_added_extension("left")).unwrap();
        std::fs::rename(path.with_added_extension("left"), folder.join("left")).unwrap();
        drop((left, next));
        let namespace = std::fs::metadata(NAMESPACE).unwrap().ino();
        std::fs::rename(folder.join("left"), folder.join(format!("{namespace}-{at}"))).unwrap();
        let refused = dial(&folder, at).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        drop(Listener::bind(&folder, at).unwrap());
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "nothing is left");
        std::fs::remove_dir_all(folder.parent().unwrap()).unwrap();
    }

    #[test]
    fn who_hands_over_something_else_is_not_believed() {
        let said = |bytes: &[u8], handed: &[&dyn AsFd]| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let handed: Vec<_> = handed.iter().map(|one| one.as_fd()).collect();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(HANDED))];
            let mut beside = SendAncillaryBuffer::new(&mut space);
            assert!(handed.is_empty() || beside.push(SendAncillaryMessage::ScmRights(&handed)));
            sendmsg(&ours, &[IoSlice::new(bytes)], &mut beside, SendFlags::empty()).unwrap();
            come(theirs).unwrap_err().kind()
        };
        let bell = eventfd(0, EventfdFlags::empty()).unwrap();
        assert_eq!(said(b"HTTP/1.1 400 Bad", &[]), io::ErrorKind::InvalidData);
        assert_eq!(said(&HELLO, &[]), io::ErrorKind::InvalidData);
        assert_eq!(said(&HELLO, &[&bell, &bell]), io::ErrorKind::InvalidData);
        assert_eq!(said(&HELLO, &[&bell, &bell, &bell]), io::ErrorKind::InvalidData, "no memory");
        let (_, small) = Mapping::make(4096).unwrap();
        assert_eq!(said(&HELLO, &[&small, &bell, &bell]), io::ErrorKind::InvalidData);
        let (_mapping, right) = Mapping::make(BOTH_BYTES).unwrap();
        assert_eq!(said(&HELLO[1..], &[&right, &bell, &bell]), io::ErrorKind::InvalidData);
    }
}

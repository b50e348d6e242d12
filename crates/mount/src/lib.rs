//! A client behind a FUSE mount.
//!
//! Kernel requests become verbs of the client ([`KernelFs`]); what the client wants the
//! kernel to forget goes through a thread of its own ([`MountPort`]), because such a call may
//! wait for requests that this very process has to answer. [`Mount`] puts the parts together.

mod convert;
mod fs;
mod notify;
mod port;
mod requests;
mod virtual_xattr;

use std::io;
use std::sync::Arc;

use sateen_client::{Client, ClientConfig};
use sateen_fuse::{MountError, MountOptions, Session, UnmountMode};
use sateen_reactor::{Reactor, Receiver};
use sateen_types::{ClientId, Errno};
use sateen_wire::Message;

pub use fs::KernelFs;
pub use port::MountPort;
pub use virtual_xattr::{SPACE_XATTR, STRIPE_XATTR, SpaceRow};

/// A mounted client.
pub struct Mount {
    client: Arc<Client>,
    session: Session,
    port: Arc<MountPort>,
    reactor: Arc<Reactor>,
}

/// Why a mount did not come about.
#[derive(Debug)]
pub enum MountFailure {
    /// The servers refused or are not there.
    Servers(Errno),
    /// The kernel refused.
    Kernel(MountError),
    /// No thread could be started.
    Thread(io::Error),
}

impl std::fmt::Display for MountFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MountFailure::Servers(errno) => write!(f, "the servers answered: {errno}"),
            MountFailure::Kernel(error) => write!(f, "{error}"),
            MountFailure::Thread(error) => write!(f, "no thread can be started: {error}"),
        }
    }
}

impl std::error::Error for MountFailure {}

struct Inbox(Arc<Client>);

impl Receiver for Inbox {
    fn receive(self: Arc<Self>, message: Message) {
        self.0.on_message(message);
    }
}

impl Mount {
    /// Connects a new client incarnation and mounts it. With `direct_io` reads bypass the
    /// page cache as well.
    ///
    /// # Errors
    /// See [`MountFailure`]; nothing is left behind.
    pub fn start(
        reactor: &Arc<Reactor>,
        options: MountOptions,
        direct_io: bool,
    ) -> Result<Mount, MountFailure> {
        let port = Arc::new(MountPort::new(reactor.clone()).map_err(MountFailure::Thread)?);
        let config = ClientConfig { id: ClientId(sateen_reactor::random()) };
        let client = Client::new(config, port.clone());
        let endpoint = client.endpoint();
        reactor.router.add(endpoint, Arc::new(Inbox(client.clone())));
        let connecting = client.clone();
        let mounted = port.block_on(async move { connecting.mount().await });
        if let Err(errno) = mounted {
            reactor.router.remove(endpoint);
            return Err(MountFailure::Servers(errno));
        }
        let fs = Arc::new(KernelFs::new(client.clone(), reactor.executor.clone(), direct_io));
        match Session::mount(options, fs) {
            Ok(session) => {
                port.attach(session.notifier());
                Ok(Mount { client, session, port, reactor: reactor.clone() })
            }
            Err(error) => {
                let leaving = client.clone();
                port.block_on(async move { leaving.unmount().await });
                reactor.router.remove(endpoint);
                Err(MountFailure::Kernel(error))
            }
        }
    }

    /// The kernel session.
    pub const fn session(&self) -> &Session {
        &self.session
    }

    /// Unmounts and says goodbye to the servers. What programs have written is with the
    /// servers; they make it durable when they close.
    ///
    /// # Errors
    /// `EBUSY` while files are open, unless the mode takes the mount away all the same.
    pub fn stop(&self, mode: UnmountMode) -> io::Result<()> {
        if self.session.ended().is_none() {
            self.session.unmount(mode)?;
        }
        self.leave();
        Ok(())
    }

    /// Says goodbye to the servers after the kernel session has ended by itself.
    pub fn leave(&self) {
        self.session.join();
        let client = self.client.clone();
        self.port.block_on(async move {
            if let Err(errno) = client.sync_all().await {
                tracing::error!(%errno, "some writes could not be made durable");
            }
            client.unmount().await;
        });
        self.reactor.router.remove(self.client.endpoint());
        self.port.stop();
    }
}

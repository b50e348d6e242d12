//! A network of its own for some processes: whoever is inside reaches nobody but who is inside,
//! and has all addresses of `lo` for himself.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed; where it did says more than an error"
)]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::cluster::ok;

/// A network of its own, as long as its process lives.
#[derive(Debug)]
pub struct Network {
    holder: Child,
    door: Door,
}

/// The way into a network for a thread. Whoever has it keeps the network.
#[derive(Debug, Clone)]
pub struct Door(Arc<File>);

impl Door {
    /// Has a thread of its own do something inside: the sockets that it opens stay there.
    ///
    /// # Panics
    /// If one cannot go there.
    pub fn within<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            self.enter();
            act()
        };
        std::thread::scope(|scope| scope.spawn(inside).join().unwrap())
    }

    /// Moves this thread, and no other, inside for ever.
    ///
    /// # Panics
    /// If one cannot go there.
    pub fn enter(&self) {
        move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    }
}

impl Default for Network {
    fn default() -> Network {
        Network::new()
    }
}

impl Network {
    /// One in which there is nobody yet.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn new() -> Network {
        let hold = "ip link set lo up && echo ready && exec sleep infinity";
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", hold]);
        let mut holder = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let door = Door(Arc::new(File::open(format!("/proc/{}/ns/net", holder.id())).unwrap()));
        Network { holder, door }
    }

    /// The way in for threads.
    pub fn door(&self) -> Door {
        self.door.clone()
    }

    /// The process that holds it.
    pub fn id(&self) -> u32 {
        self.holder.id()
    }

    /// The same command, in there; its program is known by its own name.
    pub fn inside(&self, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside.arg(format!("--net=/proc/{}/ns/net", self.holder.id()));
        inside.arg(command.get_program()).args(command.get_args());
        inside
    }

    /// Runs `ip` in there.
    ///
    /// # Panics
    /// If it fails.
    pub fn ip(&self, args: &[&str]) {
        ok(&mut self.inside(Command::new("ip").args(args)));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Whether networks of their own can be made here. In CI they must.
///
/// # Panics
/// As [`crate::skipped`].
pub fn has_ip() -> bool {
    let found = Command::new("ip").arg("-V").output().is_ok();
    if !found {
        crate::skipped("there is no ip");
    }
    found
}

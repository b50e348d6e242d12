//! The seam behind FUSE: a file system that knows nothing but to create. LOOKUP finds
//! nothing, CREATE goes to the target under its lock, or is answered at once (*null*).

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sateen_fuse::{
    Attr, Caps, EntryOut, Filesystem, KernelOffer, MountOptions, Op, Reply, Request, Session,
    TransportChoice, open_flags,
};

use crate::cost::{Cost, cpu};
use crate::server::{Caller, FileJournal, Server};

const LONG: Duration = Duration::from_secs(3600);

struct CreateFs {
    target: Option<Mutex<(Server, Caller)>>,
    next: std::sync::atomic::AtomicU64,
}

fn folder(ino: u64) -> Attr {
    Attr { ino, mode: 0o40_777, nlink: 2, ..Attr::default() }
}

impl CreateFs {
    fn create(&self) {
        let Some(target) = &self.target else { return };
        let mut target = target.lock().unwrap_or_else(PoisonError::into_inner);
        let (server, caller) = &mut *target;
        loop {
            server.execute(caller.next());
            if caller.take(server.answers.first().expect("an answer")) {
                return;
            }
        }
    }
}

impl Filesystem for CreateFs {
    fn init(&self, offer: &KernelOffer) -> Caps {
        offer.recommended() - Caps::DO_READDIRPLUS - Caps::READDIRPLUS_AUTO
    }

    fn dispatch(&self, request: Request, reply: Reply) {
        match request.op {
            Op::Lookup { .. } => reply.error(libc::ENOENT),
            Op::Getattr { ino, .. } => reply.attr(&folder(ino), LONG),
            Op::Create { .. } => {
                self.create();
                let ino = 2 + self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let attr = Attr { ino, mode: 0o100_644, nlink: 1, ..Attr::default() };
                let (entry_valid, attr_valid) = (Duration::ZERO, LONG);
                let entry = EntryOut { ino, generation: 0, entry_valid, attr_valid, attr };
                reply.created(&entry, 0, open_flags::DIRECT_IO | open_flags::NOFLUSH);
            }
            Op::Release { .. } | Op::Forget { .. } | Op::BatchForget { .. } => reply.ok(),
            _ => reply.error(libc::ENOSYS),
        }
    }
}

/// Creates through a mount, from another process. Its processor time is part of the cost.
pub(crate) fn create(folder: &Path, uring: bool, null: bool, count: u64) -> anyhow::Result<Cost> {
    let target = (!null).then(|| {
        let mut server = Server::new(FileJournal::nowhere());
        let caller = Caller::connect(&mut server, 0);
        Mutex::new((server, caller))
    });
    let mountpoint = folder.join("core_shape.mnt");
    std::fs::create_dir_all(&mountpoint)?;
    let transport = if uring { TransportChoice::Uring } else { TransportChoice::Classic };
    let options = MountOptions { transport, threads: 2, ..MountOptions::new(&mountpoint) };
    let session = Session::mount(options, Arc::new(CreateFs { target, next: Default::default() }))?;
    let program = std::env::current_exe()?;
    let (start, cpu_start) = (Instant::now(), cpu());
    let child = Command::new(program)
        .args(["load", &mountpoint.to_string_lossy(), &count.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.wait_with_output()?;
    let (wall, served) = (start.elapsed(), cpu() - cpu_start);
    drop(session);
    std::fs::remove_dir(&mountpoint)?;
    anyhow::ensure!(output.status.success(), "the load failed");
    let text = String::from_utf8(output.stdout)?;
    let (_, own_us) = text.trim().split_once(' ').unwrap_or_default();
    let per = |time: Duration| time.as_secs_f64() * 1e6 / count as f64;
    let allocations = 0.0;
    Ok(Cost { wall_us: per(wall), cpu_us: per(served) + own_us.parse::<f64>()?, allocations })
}

/// The other process.
pub(crate) fn load(folder: &Path, count: u64) -> anyhow::Result<()> {
    for number in 0..count {
        drop(std::fs::File::create_new(folder.join(format!("f{number}")))?);
    }
    println!("created {}", cpu().as_secs_f64() * 1e6 / count as f64);
    Ok(())
}

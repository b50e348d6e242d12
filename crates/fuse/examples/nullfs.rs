//! Mounts a file system without data: `nullfs MOUNTPOINT [classic|uring] [direct]`.
//! It runs until it is unmounted.
#[path = "common/null.rs"]
mod null;

use sateen_fuse::{MountOptions, Session, TransportChoice};
use std::sync::Arc;

fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().init();
    let mut args = std::env::args().skip(1);
    let mountpoint = args.next().ok_or(anyhow::anyhow!("which mount point?"))?;
    let mut options = MountOptions::new(mountpoint);
    let mut direct = false;
    for word in args {
        match word.as_str() {
            "classic" => options.transport = TransportChoice::Classic,
            "uring" => options.transport = TransportChoice::Uring,
            "direct" => direct = true,
            other => anyhow::ensure!(options.flags.set(other), "unknown option {other}"),
        }
    }
    let session = Session::mount(options, Arc::new(null::NullFs::new(direct)))?;
    println!("mounted, transport {}, {:?}", session.transport().name(), session.caps());
    println!("ended: {:?}", session.join());
    Ok(())
}

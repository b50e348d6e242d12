//! `sateen sync`: everything that was written on a mount becomes durable.

use std::process::ExitCode;

use rustix::fs::{XattrFlags, lsetxattr};
use sateen_mount::SYNC_XATTR;

use crate::cli::SyncArgs;
use crate::mounts;
use crate::refusal::{Outcome, Refusal};

/// Runs the command.
pub(crate) fn run(args: &SyncArgs) -> Outcome<ExitCode> {
    for path in &args.paths {
        let doing = || format!("sync the mount of {}", path.display());
        let mount = mounts::ours_of(path).map_err(|error| Refusal::io(doing(), &error))?;
        let Some(mount) = mount else {
            return Err(Refusal::new(
                format!("{} is not on a Sateen file system", path.display()),
                "name a path below its mount (see: sateen status)",
            ));
        };
        lsetxattr(&mount.point, SYNC_XATTR, b"", XattrFlags::empty())
            .map_err(|errno| Refusal::io(doing(), &errno.into()))?;
    }
    Ok(ExitCode::SUCCESS)
}

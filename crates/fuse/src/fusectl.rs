//! fusectl: the kernel's own knob that ends a FUSE connection, whoever serves it, wherever it is
//! mounted, and also if it is out of the tree.
//!
//! Called by whoever ends a mount by force, above all when the process that served it has died
//! with a thread in the kernel that waits for an answer of its own. Nothing is asked of the
//! connection, and no path of it is walked, so that this never waits.
//!
//! fusectl has a folder for each connection, with the minor number of its device as its name. Where
//! nobody has mounted it, it is mounted for the moment, and nowhere: only this process has a
//! descriptor of it. That needs Linux 5.2 and CAP_SYS_ADMIN.
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

/// Where systems mount it.
const USUAL: &str = "/sys/fs/fuse/connections";

/// Ends the connection with this device: who waits for an answer has an error, and so has who asks
/// later. It stays where it is mounted.
///
/// The number of a connection that is over may be another's by now: call it only for one that is
/// known to be there.
///
/// # Errors
/// `ENOENT` if there is no such connection (any more); any other says that fusectl cannot be had.
pub fn abort(device: (u32, u32)) -> io::Result<()> {
    let (major, minor) = device;
    if major != 0 {
        return Err(Errno::NOENT.into());
    }
    let knob = format!("{minor}/abort");
    let usual = File::options().write(true).open(format!("{USUAL}/{knob}"));
    let mut knob = match usual {
        Ok(file) => file,
        Err(_) => {
            let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            File::from(openat(mounted_nowhere()?, knob, flags, Mode::empty())?)
        }
    };
    knob.write_all(b"1")
}

/// All of fusectl, for as long as the descriptor is open.
fn mounted_nowhere() -> io::Result<OwnedFd> {
    let made = || {
        let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
    };
    // That no such connection is there is for the lookup to say.
    made().map_err(|errno| match errno {
        Errno::NOENT => io::Error::from(Errno::OPNOTSUPP),
        errno => errno.into(),
    })
}

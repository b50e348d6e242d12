//! Where io_uring is not to be had a mount that asked for it by name is refused, and one that did
//! not is served over /dev/fuse. Needs root and /dev/fuse.
#![allow(clippy::unwrap_used, reason = "test helpers")]
#![allow(unsafe_code, reason = "a filter of system calls")]
use sateen_fuse::{
    Filesystem, MountError, MountOptions, Reply, Request, Session, Transport, TransportChoice,
};
use std::sync::Arc;
use std::{fs, io, thread};

/// Answers everything with an error.
struct Nothing;

impl Filesystem for Nothing {
    fn dispatch(&self, _: Request, _: Reply) {}
}

/// From now on this thread, and those that it starts, may make no io_uring.
fn without_io_uring() {
    let step = |code, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut steps = [
        // The number of the call is what its description begins with.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_io_uring_setup as u32),
        step(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the kernel reads the filter, which is there until it has returned.
    let set =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) };
    assert_eq!(set, 0, "{}", io::Error::last_os_error());
}

#[test]
fn by_name_it_is_io_uring_or_no_mount() {
    if !sateen_testkit::can_mount() {
        return;
    }
    let dir = std::env::temp_dir().join(format!("sateen-refused-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let mount = |transport| {
        let options = MountOptions { transport, ..MountOptions::new(&dir) };
        Session::mount(options, Arc::new(Nothing))
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            without_io_uring();
            let Err(MountError::Uring(why)) = mount(TransportChoice::Uring) else {
                panic!("it is not refused");
            };
            // Where it is switched off as well that is what is said.
            assert!([libc::EPERM, libc::EOPNOTSUPP].contains(&why.errno()), "{why}");
            assert!(why.what_to_do().starts_with("as root: "), "{}", why.what_to_do());
            assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "nothing is mounted there");
            for transport in [TransportChoice::Auto, TransportChoice::Classic] {
                let session = mount(transport).unwrap();
                assert_eq!(session.transport(), Transport::Classic);
                assert!(fs::metadata(dir.join("file")).is_err(), "somebody serves it");
            }
        });
    });
    fs::remove_dir(&dir).unwrap();
}

//! What this kernel does with files that it was given to read and write itself (passthrough),
//! asked one question at a time.
//!
//! What Sateen would rely on is asserted; the rest is printed, since a later kernel may do better.
//! Needs root and /dev/fuse. Decision 0007 says what follows.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub,
    reason = "test helpers"
)]
#![allow(unsafe_code, reason = "mappings and system calls that have no safe form")]
#[path = "common/patience.rs"]
mod patience;
#[path = "passthrough/probe.rs"]
mod probe;
#[path = "common/transport.rs"]
mod transport;

use patience::comes;
use probe::{Choices, How, INO, Mapping, Mounted, counted, has_others};
use sateen_fuse::{SetattrIn, TransportChoice};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().map(|error| error.raw_os_error().unwrap())
}

fn byte_at(file: &File, offset: u64) -> u8 {
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    byte[0]
}

const EIO: Option<i32> = Some(libc::EIO);

#[test]
fn both_transports_give_the_kernel_a_file() {
    for transport in [TransportChoice::Classic, TransportChoice::Uring] {
        let name = format!("transport-{transport:?}");
        let m = Mounted::with(&name, Choices { transport, ..Choices::default() });
        if !m.can() {
            return;
        }
        let file = m.open(How::Through).unwrap();
        // The first write of an inode asks whether it has capabilities.
        file.write_all_at(b"first..", 0).unwrap();
        let (_, asked) = m.asked(|| {
            file.write_all_at(b"through", 0).unwrap();
            assert_eq!(byte_at(&file, 1), b'h');
        });
        assert_eq!(asked, [""; 0], "nobody is asked");
        assert_eq!(fs::read(&m.under).unwrap(), b"through");
        m.close(file);
        let created = File::options().write(true).create_new(true).open(m.dir.join("new")).unwrap();
        created.write_all_at(b"t", 0).unwrap();
        let (_, asked) = m.asked(|| created.write_all_at(b"T", 0).unwrap());
        assert_eq!(asked, [""; 0], "nor by whoever has just made it");
        assert_eq!(fs::read(&m.under).unwrap(), b"Through");
    }
}

/// While one open has the file, all others must have the same.
#[test]
fn opens_beside_one_that_has_the_file() {
    let m = Mounted::new("beside");
    if !m.can() {
        return;
    }
    let first = m.open(How::Through).unwrap();
    first.write_all_at(b"through", 0).unwrap();
    let refused = [How::Cached, How::Kept, How::Direct, How::DirectParallel, How::ThroughAgain];
    for how in refused.into_iter().chain([How::ThroughKept]) {
        let (got, asked) = m.asked(|| errno(m.open(how)));
        println!("{how:?} beside passthrough: {got:?}, asked {asked:?}");
        assert_eq!(got, EIO, "{how:?}");
        assert!(comes(|| m.probe.count("release") == 1), "a refused open is released");
    }
    let second = m.open(How::Through).unwrap();
    let asking = m.open(How::ThroughDirect).unwrap();
    let (byte, asked) = m.asked(|| byte_at(&asking, 0));
    assert_eq!((byte, asked), (b't', vec!["read"]), "such an open is asked for");
    let (_, asked) = m.asked(|| asking.write_all_at(b"T", 0).unwrap());
    assert_eq!((byte_at(&first, 0), asked), (b'T', vec!["write"]));
    let (mapping, asked) = m.asked(|| Mapping::new(&asking, true, true).unwrap());
    mapping.store(b'M');
    assert_eq!((byte_at(&first, 0), asked), (b'M', vec![]), "but mapped from the file");
    drop(mapping);
    m.close(first);
    assert_eq!(errno(m.open(How::Cached)), EIO, "as long as there is any");
    m.close(second);
    assert_eq!(errno(m.open(How::Cached)), EIO, "also such a one");
    m.close(asking);
    m.open(How::Cached).unwrap();
}

/// A page that is read for a mapping, or by `sendfile`, can be told from a read: nobody owns it.
#[test]
fn pages_of_direct_opens_are_asked_for_by_nobody() {
    let m = Mounted::new("owners");
    m.probe.file().write_all_at(&[1; 4096], 0).unwrap();
    for how in [How::Direct, How::DirectParallel] {
        let file = m.open(how).unwrap();
        assert_eq!(byte_at(&file, 0), 1);
        assert_eq!(m.probe.take_owned(), [true], "a read has an owner");
        for shared in [true, false] {
            let mapping = Mapping::new(&file, shared, false).unwrap();
            assert_eq!(mapping.byte(), 1);
            assert_eq!(m.probe.take_owned(), [false], "a mapping (shared {shared}) has none");
            drop(mapping);
            m.notifier().inval_inode(INO, 0, 0).unwrap();
        }
        let to = File::options().write(true).open("/dev/null").unwrap();
        // SAFETY: no offset is given.
        unsafe { libc::sendfile(at(&to), at(&file), std::ptr::null_mut(), 4096) };
        println!("sendfile from a {how:?} open: owners {:?}", m.probe.take_owned());
        m.notifier().inval_inode(INO, 0, 0).unwrap();
    }
}

/// The kernel asks before a write whether capabilities have to go: where set-uid bits are the file
/// system's to clear, once for an inode; where they are not, at each write.
#[test]
fn capabilities_are_asked_for() {
    for (killpriv, expected) in [(true, 1), (false, 10)] {
        let choices = Choices { killpriv, ..Choices::default() };
        let m = Mounted::with(&format!("capabilities-{killpriv}"), choices);
        if !m.can() {
            return;
        }
        let file = m.open(How::Through).unwrap();
        let (_, asked) =
            m.asked(|| (0..10).for_each(|_| file.write_all_at(b"written", 0).unwrap()));
        println!("HANDLE_KILLPRIV_V2 {killpriv}, ten writes: {:?}", counted(&asked));
        assert_eq!(asked, vec!["getxattr"; expected]);
    }
}

/// What the inode may have been before. A mapping of a direct open keeps pages of its own, and the
/// kernel does not see that of a private one: it shows what was, for ever. So the daemon must not
/// give a file away of which any other open is left.
#[test]
fn opens_that_were_there_before() {
    let m = Mounted::new("before");
    if !m.can() {
        return;
    }
    m.probe.file().write_all_at(&[1; 4096], 0).unwrap();
    for how in [How::Cached, How::Kept] {
        let cached = m.open(how).unwrap();
        assert_eq!(errno(m.open(How::Through)), EIO, "{how:?} is open");
        let mapping = Mapping::new(&cached, true, false).unwrap();
        drop(cached);
        assert_eq!(errno(m.open(How::Through)), EIO, "{how:?} is mapped");
        drop(mapping);
        assert!(comes(|| m.open(How::Through).is_ok()), "{how:?} is gone");
    }
    for how in [How::Direct, How::DirectParallel] {
        let direct = m.open(how).unwrap();
        let private = Mapping::new(&direct, false, false).unwrap();
        let before = private.byte();
        let through = m.open(How::Through).unwrap();
        let page = private.byte();
        through.write_all_at(&[2], 0).unwrap();
        println!("a private mapping of before: {before}, {page}, then {} (2)", private.byte());
        assert_eq!(page, before);
        drop(private);
        let (byte, asked) = m.asked(|| byte_at(&direct, 0));
        assert_eq!((byte, asked), (2, vec!["read"]), "a {how:?} open goes on");
        let shared = errno(Mapping::new(&direct, true, false));
        println!("a shared mapping of a {how:?} open, beside passthrough: {shared:?}");
        assert!(shared.is_some(), "a shared mapping would have pages of its own");
        let private = errno(Mapping::new(&direct, false, false));
        println!("a private mapping of it: {private:?}");
        assert!(private.is_some(), "so would a private one");
        m.close(through);
        let mapping = Mapping::new(&direct, true, false).unwrap();
        assert_eq!(errno(m.open(How::Through)), EIO, "{how:?} is mapped");
        drop(mapping);
        let after = errno(m.open(How::Through));
        println!("passthrough beside a {how:?} open that was mapped once: {after:?}");
        m.close(direct);
        m.open(How::Through).unwrap();
    }
}

/// When the daemon hears of the last RELEASE the kernel has taken note of it, too: whoever counts
/// opens and RELEASEs knows when a file can be given, and when it is nobody's any more.
#[test]
fn with_the_release_the_inode_is_free() {
    for transport in [TransportChoice::Classic, TransportChoice::Uring] {
        let name = format!("free-{transport:?}");
        let m = Mounted::with(&name, Choices { transport, ..Choices::default() });
        if !m.can() {
            return;
        }
        m.probe.file().write_all_at(&[1; 4096], 0).unwrap();
        let at_once = |how: How| {
            let released = m.probe.count("release");
            let file = m.open(how).unwrap();
            let mapping = Mapping::new(&file, true, false).unwrap();
            assert_eq!(mapping.byte(), 1);
            drop(file);
            drop(mapping);
            // Without a pause, to be there before anything that the kernel had still to do.
            assert!(comes_soon(|| m.probe.count("release") > released));
        };
        for _ in 0..200 {
            [How::Cached, How::Through, How::Direct, How::Through].into_iter().for_each(at_once);
        }
    }
}

/// Waits without sleeping.
fn comes_soon(mut done: impl FnMut() -> bool) -> bool {
    (0..1_000_000).any(|_| {
        std::thread::yield_now();
        done()
    }) || comes(done)
}

/// The program's thread looks for the number after the answer was given.
#[test]
fn a_file_given_up_with_the_answer_is_not_always_found() {
    let m = Mounted::new("hasty");
    if !m.can() {
        return;
    }
    m.probe.be_hasty();
    let tries = 500;
    let lost = (0..tries).filter(|_| errno(m.open(How::Through)) == EIO).count();
    println!("of {tries} opens whose file was given up with the answer {lost} got EIO");
}

/// An open that has the file keeps it, but no other one can get it then.
#[test]
fn a_file_given_up_later_is_still_read() {
    let m = Mounted::new("later");
    if !m.can() {
        return;
    }
    let first = m.open(How::Through).unwrap();
    m.probe.forget_backings();
    first.write_all_at(b"kept", 0).unwrap();
    assert_eq!(byte_at(&first, 0), b'k');
    assert_eq!(errno(m.open(How::Through)), EIO, "registered anew, it is another");
    m.close(first);
    m.probe.forget_backings();
    m.open(How::Through).unwrap();
}

fn at(file: &File) -> libc::c_int {
    file.as_raw_fd()
}

/// One call on an open file, and what the daemon is asked by it.
type Asked = (&'static str, fn(&File), &'static [&'static str]);

fn calls() -> Vec<Asked> {
    vec![
        ("read", |f| assert_ne!(byte_at(f, 0), 0), &[]),
        ("write", |f| f.write_all_at(&[5; 4096], 0).unwrap(), &[]),
        ("fstat", |f| assert!(f.metadata().unwrap().is_file()), &["getattr"]),
        ("fstat again", |f| assert!(f.metadata().unwrap().is_file()), &[]),
        (
            "read, fstat",
            |f| assert!(byte_at(f, 0) > 0 && f.metadata().unwrap().is_file()),
            &["getattr"],
        ),
        ("write behind the end", |f| f.write_all_at(&[5; 4096], 65536).unwrap(), &[]),
        (
            "lseek to the end",
            |mut f| assert_eq!(f.seek(SeekFrom::End(0)).unwrap(), 69632),
            &["getattr"],
        ),
        (
            "SEEK_DATA",
            |f| {
                // SAFETY: takes numbers.
                unsafe { libc::lseek(at(f), 0, libc::SEEK_DATA) };
            },
            &["lseek"],
        ),
        ("fsync", |f| f.sync_all().unwrap(), &["fsync"]),
        ("fdatasync", |f| f.sync_data().unwrap(), &["fsync"]),
        ("ftruncate", |f| f.set_len(8192).unwrap(), &["setattr"]),
        (
            "fallocate",
            |f| {
                // SAFETY: takes numbers.
                assert_eq!(unsafe { libc::fallocate(at(f), 0, 0, 16384) }, 0);
            },
            &["fallocate"],
        ),
        ("fcntl lock", |f| f.lock_shared().unwrap(), &["setlk"]),
        (
            "sendfile from it",
            |f| {
                let to = File::options().write(true).open("/dev/null").unwrap();
                // SAFETY: no offset is given.
                assert!(unsafe { libc::sendfile(at(&to), at(f), std::ptr::null_mut(), 4096) } >= 0);
            },
            &[],
        ),
        (
            "copy_file_range within it",
            |f| {
                let (mut from, mut to) = (0, 8192);
                // SAFETY: the offsets live for the length of the call.
                let done = unsafe {
                    libc::copy_file_range(at(f), &raw mut from, at(f), &raw mut to, 4096, 0)
                };
                assert_eq!(done, 4096);
            },
            &["copy_file_range"],
        ),
        (
            "mapped, read, stored, msync",
            |f| {
                let mapping = Mapping::new(f, true, true).unwrap();
                mapping.store(mapping.byte() + 1);
                mapping.sync();
            },
            &[],
        ),
        (
            "FIEMAP",
            |f| {
                let mut map = [0_u64; 4];
                // SAFETY: FS_IOC_FIEMAP with room for no extents; 32 bytes.
                unsafe { libc::ioctl(at(f), 0xc020_660b, map.as_mut_ptr()) };
            },
            &[],
        ),
    ]
}

#[test]
fn what_the_daemon_is_asked_for() {
    let m = Mounted::new("asked");
    if !m.can() {
        return;
    }
    let file = m.open(How::Through).unwrap();
    file.write_all_at(&[1; 4096], 0).unwrap();
    for (what, call, expected) in calls() {
        let (_, mut asked) = m.asked(|| call(&file));
        println!("{what}: {:?}", counted(&asked));
        // Whether there are capabilities is asked anew whenever attributes were told.
        asked.retain(|name| *name != "getxattr");
        assert_eq!(asked, expected, "{what}");
    }
    for (what, advice) in
        [("WILLNEED", libc::POSIX_FADV_WILLNEED), ("DONTNEED", libc::POSIX_FADV_DONTNEED)]
    {
        let (done, asked) = m.asked(|| {
            // SAFETY: takes numbers.
            let done = unsafe { libc::posix_fadvise(at(&file), 0, 0, advice) };
            // What it begins it does not wait for.
            std::thread::sleep(Duration::from_millis(50));
            done
        });
        println!("posix_fadvise {what}: {done}, {:?}", counted(&asked));
    }
    let direct = File::options().read(true).write(true).custom_flags(libc::O_DIRECT).clone();
    let direct = m.open_with(How::Through, &direct).unwrap();
    let (odd, asked) = m.asked(|| errno(direct.read_at(&mut [0; 100], 1)));
    println!("O_DIRECT, not aligned: {odd:?}, {asked:?}");
    assert_eq!(asked, [""; 0]);
    m.close(direct);
    let (_, asked) = m.asked(|| m.close(file));
    println!("close: {:?}", counted(&asked));
    assert_eq!(asked, ["flush", "release"]);
}

/// The kernel believes attributes that it was told for as long as it was told, but for its own
/// reads and writes.
#[test]
fn sizes_and_times() {
    let m = Mounted::new("sizes");
    if !m.can() {
        return;
    }
    let file = m.open(How::Through).unwrap();
    file.write_all_at(&[1; 4096], 0).unwrap();
    let (stat, asked) = m.asked(|| file.metadata().unwrap());
    assert_eq!((stat.len(), asked), (4096, vec!["getattr"]), "asked after a write");
    assert_eq!(stat.mtime_nsec(), fs::metadata(&m.under).unwrap().mtime_nsec(), "the file's");
    // Somebody else makes it longer.
    m.probe.file().write_all_at(&[2; 4096], 4096).unwrap();
    assert_eq!(byte_at(&file, 4096), 2, "read at once");
    let ((), asked) = m.asked(|| assert!(file.metadata().unwrap().len() == 8192));
    println!("fstat after a read of what another has added: asked {asked:?}");
    m.probe.file().write_all_at(&[2; 4096], 8192).unwrap();
    let (stat, asked) = m.asked(|| file.metadata().unwrap());
    println!("fstat without any read: {} bytes, asked {asked:?}", stat.len());
    assert_eq!((stat.len(), asked), (8192, vec![]), "believed");
    let whole = (&file).read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(whole, 12288, "but it is read to its true end");
    m.notifier().inval_inode(INO, -1, 0).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 12288);
    // Stores do not tell.
    let mapping = Mapping::new(&file, true, true).unwrap();
    file.metadata().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    mapping.store(9);
    let (stat, asked) = m.asked(|| file.metadata().unwrap());
    let under = fs::metadata(&m.under).unwrap();
    println!(
        "fstat after a store: asked {asked:?}, mtime {}, the file's {}",
        stat.mtime_nsec(),
        under.mtime_nsec()
    );
    assert_eq!(asked, [""; 0], "so attributes of such an inode must not be believed");
    assert_ne!(stat.mtime_nsec(), under.mtime_nsec());
}

#[test]
fn appends_go_to_the_true_end() {
    let m = Mounted::new("append");
    if !m.can() {
        return;
    }
    let append = File::options().append(true).clone();
    let (mut one, mut two) =
        (m.open_with(How::Through, &append).unwrap(), m.open_with(How::Through, &append).unwrap());
    one.write_all(b"one").unwrap();
    two.write_all(b"two").unwrap();
    let mut other = OpenOptions::new().append(true).open(&m.under).unwrap();
    other.write_all(b"other").unwrap();
    one.write_all(b"again").unwrap();
    assert_eq!(fs::read(&m.under).unwrap(), b"onetwootheragain");
    assert_eq!(one.stream_position().unwrap(), 16, "and whoever appends knows where");
    // The same of three at once, one of them past the mount.
    drop((one, two, other));
    let start = m.probe.file();
    start.set_len(0).unwrap();
    let record = |byte: u8| [byte; 1000];
    std::thread::scope(|scope| {
        for byte in 1..=3_u8 {
            let (m, append) = (&m, &append);
            scope.spawn(move || {
                let mut file = match byte {
                    3 => append.open(&m.under).unwrap(),
                    _ => m.open_with(How::Through, append).unwrap(),
                };
                (0..500).for_each(|_| file.write_all(&record(byte)).unwrap());
            });
        }
    });
    let whole = fs::read(&m.under).unwrap();
    assert_eq!(whole.len(), 1_500_000, "none was overwritten");
    assert!(whole.chunks(1000).all(|chunk| chunk == record(chunk[0])), "each is whole");
}

/// A mapping is of the file itself, and outlives the RELEASE, of which the daemon hears nothing.
#[test]
fn mappings_outlive_the_release() {
    let m = Mounted::new("mapped");
    if !m.can() {
        return;
    }
    m.probe.file().write_all_at(&[1; 4096], 0).unwrap();
    let file = m.open(How::Through).unwrap();
    let mapping = Mapping::new(&file, true, true).unwrap();
    m.probe.file().write_all_at(&[2], 0).unwrap();
    assert_eq!(mapping.byte(), 2, "others' writes are seen at once");
    m.close(file);
    m.probe.forget_backings();
    mapping.store(3);
    assert_eq!(fs::read(&m.under).unwrap()[0], 3, "and it is written after the RELEASE");
    assert!(has_others(m.probe.file()), "which a lease finds out");
    let (cached, _) = m.asked(|| m.open(How::Cached));
    println!("an open through the page cache beside it: {:?}", cached.as_ref().err());
    if let Ok(cached) = cached {
        let before = byte_at(&cached, 0);
        mapping.store(4);
        println!("it reads {before}, and after a store of 4 {}", byte_at(&cached, 0));
    }
    let can_prune = m.session.as_ref().unwrap().offer().has_prune();
    let (_, asked) = m.asked(|| {
        if can_prune {
            m.notifier().prune(&[INO]).unwrap();
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    println!("prune ({can_prune}) with a mapping: {asked:?}");
    assert!(!asked.contains(&"forget"), "the mapping holds the inode");
    drop(mapping);
    assert!(comes(|| !has_others(m.probe.file())), "gone with the mapping");
    if can_prune {
        m.notifier().prune(&[INO]).unwrap();
        assert!(comes(|| m.probe.count("forget") > 0), "nothing holds the inode now");
    }
    // One for reading alone sees what is written.
    let file = m.open_with(How::Through, File::options().read(true)).unwrap();
    let mapping = Mapping::new(&file, true, false).unwrap();
    m.close(file);
    m.probe.forget_backings();
    m.probe.file().write_all_at(&[7], 0).unwrap();
    assert_eq!(mapping.byte(), 7);
    assert!(has_others(m.probe.file()), "and is found out as well");
}

#[test]
fn notifications() {
    let m = Mounted::new("notify");
    if !m.can() {
        return;
    }
    m.probe.file().write_all_at(&[1; 4096], 0).unwrap();
    let file = m.open(How::Through).unwrap();
    let mapping = Mapping::new(&file, true, true).unwrap();
    mapping.store(2);
    assert!(m.notifier().inval_inode(INO, 0, 0).unwrap());
    assert_eq!((mapping.byte(), byte_at(&file, 0)), (2, 2), "there are no pages to drop");
    let stored = m.notifier().store(INO, 0, &[9; 4096]);
    println!("notify_store beside passthrough: {stored:?}, it reads {}", byte_at(&file, 0));
    assert_eq!(byte_at(&file, 0), 2, "which never looks there");
    drop(mapping);
    m.close(file);
    let kept = m.open_with(How::Kept, File::options().read(true)).unwrap();
    println!("whoever comes after it with KEEP_CACHE reads {}", byte_at(&kept, 0));
    m.close(kept);
    let fresh = m.open_with(How::Cached, File::options().read(true)).unwrap();
    assert_eq!(byte_at(&fresh, 0), 2, "without, what is there");
}

/// Pages from before do not survive; such as come in between do.
#[test]
fn pages_of_before_and_of_between() {
    let m = Mounted::new("pages");
    if !m.can() {
        return;
    }
    m.probe.file().write_all_at(&[1; 4096], 0).unwrap();
    let read = File::options().read(true).clone();
    let cached = m.open_with(How::Kept, &read).unwrap();
    assert_eq!(byte_at(&cached, 0), 1);
    m.close(cached);
    let file = m.open(How::Through).unwrap();
    file.write_all_at(&[2], 0).unwrap();
    m.close(file);
    m.probe.forget_backings();
    let cached = m.open_with(How::Kept, &read).unwrap();
    let byte = byte_at(&cached, 0);
    assert_eq!(byte, 2, "the open that has the file drops them");
    m.close(cached);
    // Whoever asks for pages ahead brings them back.
    let file = m.open(How::Through).unwrap();
    // SAFETY: takes numbers.
    let ahead = || unsafe { libc::posix_fadvise(at(&file), 0, 0, libc::POSIX_FADV_WILLNEED) };
    let (_, asked) = m.asked(|| {
        ahead();
        std::thread::sleep(Duration::from_millis(50));
    });
    file.write_all_at(&[3], 0).unwrap();
    m.close(file);
    m.probe.forget_backings();
    let cached = m.open_with(How::Kept, &read).unwrap();
    let byte = byte_at(&cached, 0);
    println!("WILLNEED asks for {asked:?}, whoever comes after with KEEP_CACHE reads {byte} (3)");
    m.close(cached);
    m.notifier().inval_inode(INO, 0, 0).unwrap();
    let cached = m.open_with(How::Kept, &read).unwrap();
    assert_eq!(byte_at(&cached, 0), 3, "so they have to be dropped at the end, too");
}

#[test]
fn limits_of_the_program_hold() {
    let m = Mounted::new("limit");
    if !m.can() {
        return;
    }
    m.probe.answer_opens(How::Through);
    let script = format!("ulimit -f 8; head -c 100000 /dev/zero > {}", m.path().display());
    let status = Command::new("bash").args(["-c", &script]).status().unwrap();
    assert!(!status.success(), "SIGXFSZ");
    assert_eq!(fs::metadata(&m.under).unwrap().len(), 8192);
}

/// Set-uid bits are those of the file that the program sees, and go when the kernel says so, one way
/// or the other.
#[test]
fn set_uid_bits() {
    for killpriv in [true, false] {
        let choices = Choices { killpriv, mode: 0o104_777, ..Choices::default() };
        let m = Mounted::with(&format!("rights-{killpriv}"), choices);
        if !m.can() {
            return;
        }
        let nobody_may = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(&m.under, nobody_may).unwrap();
        m.probe.answer_opens(How::Through);
        // From where the file is: others may not pass through the folders above it.
        let name = m.path().file_name().unwrap().to_string_lossy().into_owned();
        let script = format!("exec 3>>{name}; echo one >&3; echo two >&3");
        let (status, asked) = m.asked(|| {
            let mut shell = Command::new("setpriv");
            shell.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", &script]);
            shell.current_dir(m.path().parent().unwrap()).status().unwrap()
        });
        assert!(status.success());
        assert_eq!(fs::read(&m.under).unwrap(), b"one\ntwo\n");
        let changes = m.probe.changes();
        println!("HANDLE_KILLPRIV_V2 {killpriv}: {:?}", counted(&asked));
        println!("... {changes:?}");
        if killpriv {
            // Whoever has agreed to clear the bits at each write is not told of these.
            assert_eq!(changes, [SetattrIn::default()], "but by a change of nothing");
        }
        m.notifier().inval_inode(INO, -1, 0).unwrap();
        let mode = fs::metadata(m.path()).unwrap().mode();
        println!("... mode afterwards {mode:o}");
        assert_eq!(mode & 0o4000, 0, "a write of somebody else takes the set-uid bit");
    }
}

/// The kernel opens the file anew for each open, for writing, too, and asks nobody's rights: neither
/// those of the descriptor that was registered, nor those of whoever did so, nor the program's.
#[test]
fn rights_are_asked_for_by_the_mount_alone() {
    let m = Mounted::new("nobody");
    if !m.can() {
        return;
    }
    let root_may = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&m.under, root_may).unwrap();
    m.probe.register_as_nobody(&File::open(&m.under).unwrap());
    let file = m.open(How::Through).unwrap();
    file.write_all_at(b"written", 0).unwrap();
    assert_eq!(fs::read(&m.under).unwrap(), b"written");
}

#[test]
fn flags_beside_passthrough() {
    use sateen_fuse::open_flags as of;
    let m = Mounted::new("flags");
    if !m.can() {
        return;
    }
    for good in [of::NOFLUSH, of::DIRECT_IO, of::PARALLEL_DIRECT_WRITES, of::PASSTHROUGH] {
        m.close(m.open(How::ThroughWith(good)).unwrap());
    }
    for bad in [of::KEEP_CACHE, of::NONSEEKABLE, of::STREAM, of::CACHE_DIR] {
        assert_eq!(errno(m.open(How::ThroughWith(bad))), EIO, "{bad:#x}");
    }
}

#[test]
fn what_can_be_given_to_the_kernel() {
    let m = Mounted::new("kinds");
    if !m.can() {
        return;
    }
    let dev_shm = Path::new("/dev/shm");
    if dev_shm.is_dir() {
        let name = dev_shm.join(format!("sateen-kinds-{}", std::process::id()));
        m.probe.register(&File::create(&name).unwrap()).unwrap();
        fs::remove_file(&name).unwrap();
    }
    println!("a directory: {:?}", errno(m.probe.register(&File::open("/").unwrap())));
    println!("/dev/null: {:?}", errno(m.probe.register(&File::open("/dev/null").unwrap())));
    let own = m.open(How::Cached).unwrap();
    let own = errno(m.probe.register(&own));
    assert_eq!(own, Some(libc::ELOOP), "no file of such a mount itself");
    let path_only = File::options().read(true).custom_flags(libc::O_PATH).open(&m.under).unwrap();
    println!("a path (O_PATH): {:?}", errno(m.probe.register(&path_only)));
}

/// Mounts an overlay; false where the kernel has none.
fn overlay(lower: &Path, base: &Path) -> Result<(), i32> {
    let (upper, work, at) = (base.join("upper"), base.join("work"), base.join("at"));
    [&upper, &work, &at].into_iter().for_each(|dir| fs::create_dir_all(dir).unwrap());
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        upper.display(),
        work.display()
    );
    let options = std::ffi::CString::new(options).unwrap();
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("overlay", &at, "overlay", flags, options.as_c_str())
        .map_err(|errno| errno.raw_os_error())
}

#[test]
fn stacks() {
    let base = std::env::temp_dir().join(format!("sateen-stacks-{}", std::process::id()));
    let lower = base.join("lower");
    fs::create_dir_all(&lower).unwrap();
    let unmount = |base: &Path| {
        let _ = rustix::mount::unmount(base.join("at"), rustix::mount::UnmountFlags::DETACH);
    };
    let below = overlay(&lower, &base);
    if below.is_err() {
        println!("no overlay can be mounted here: {below:?}");
    }
    for stack_depth in [1, 2] {
        let choices = Choices { stack_depth, ..Choices::default() };
        let m = Mounted::with(&format!("stack-{stack_depth}"), choices);
        if !m.can() || below.is_err() {
            break;
        }
        let name = base.join("at").join("file");
        let on_overlay = errno(m.probe.register(&File::create(name).unwrap()));
        println!("depth {stack_depth}: a file of an overlay: {on_overlay:?}");
        assert_eq!(on_overlay, if stack_depth == 1 { Some(libc::ELOOP) } else { None });
        let over = base.join(format!("over-{stack_depth}"));
        let above = overlay(&m.dir, &over);
        println!("depth {stack_depth}: an overlay over the mount: {above:?}");
        assert_eq!(above.is_ok(), stack_depth == 1);
        unmount(&over);
    }
    unmount(&base);
    fs::remove_dir_all(&base).unwrap();
}

/// The daemon of the next test; does nothing when run as a test.
#[test]
fn killed_daemon() {
    let Ok(dir) = std::env::var("KILLED_THROUGH") else { return };
    let under = format!("{dir}.under");
    let m = Mounted::at(dir.into(), under.into(), Choices::default());
    m.probe.file().write_all_at(&[1; 4096], 0).unwrap();
    if m.can() {
        println!("\nready");
    } else {
        println!("\ncannot");
    }
    std::thread::sleep(Duration::from_secs(3600));
}

/// Whoever has the file reads and writes on when the daemon is dead, and when the mount is gone.
#[test]
fn programs_write_on_without_a_daemon() {
    let dir = std::env::temp_dir().join(format!("sateen-through-dead-{}", std::process::id()));
    let under = std::path::PathBuf::from(format!("{}.under", dir.display()));
    let mut daemon = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed_daemon", "--nocapture"])
        .env("KILLED_THROUGH", &dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(daemon.stdout.take().unwrap()).lines();
    let told = lines.find(|line| matches!(line.as_deref(), Ok("ready" | "cannot")));
    let flags = rustix::mount::UnmountFlags::FORCE | rustix::mount::UnmountFlags::DETACH;
    if told.unwrap().unwrap() == "cannot" {
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        rustix::mount::unmount(&dir, flags).unwrap();
        return sateen_testkit::skipped("this kernel has no FUSE passthrough (6.9)");
    }
    let file = File::options().read(true).write(true).open(dir.join("file")).unwrap();
    let mapping = Mapping::new(&file, true, true).unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let own = File::options().read(true).write(true).open(&under).unwrap();
    for gone in [false, true] {
        if gone {
            rustix::mount::unmount(&dir, flags).unwrap();
        }
        let byte = if gone { 3 } else { 2 };
        let written = errno(file.write_all_at(&[byte; 2], 0));
        println!("unmounted {gone}: write {written:?}, fstat {:?}", errno(file.metadata()));
        println!("... fsync {:?}", errno(file.sync_all()));
        assert_eq!((written, fs::read(&under).unwrap()[1]), (None, byte));
        mapping.store(byte + 10);
        assert_eq!(fs::read(&under).unwrap()[0], byte + 10);
        assert!(has_others(&own), "which a lease finds out");
    }
    drop((file, mapping));
    assert!(comes(|| !has_others(&own)));
    let _ = fs::remove_dir(&dir);
    let _ = fs::remove_file(&under);
}

//! Programs whose results show that each of their calls was carried out, once, and answered so.
//! What they expect is what a file system says whose connections never break: no call may fail,
//! not even with an error that a program could explain to itself, and what is there in the end is
//! what they have counted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, RenameFlags, XattrFlags};
use rustix::fs::{getxattr, mknodat, removexattr, renameat_with, setxattr};
use sateen_testkit::random::Random;

const O_DIRECT: i32 = 0o40000;

/// A program's place: the same folder by two mounts, of which it works by the first.
pub(super) struct Work {
    pub(super) here: PathBuf,
    pub(super) there: PathBuf,
    pub(super) random: Random,
    pub(super) stop: Arc<AtomicBool>,
}

/// A program; it says how many calls it made that change something.
pub(super) type Program = fn(Work) -> u64;

/// Those that run alone in their folders.
pub(super) const PROGRAMS: [(&str, Program); 7] = [
    ("names", names),
    ("moves", moves),
    ("links", links),
    ("folders", folders),
    ("attributes", attributes),
    ("contents", contents),
    ("direct", direct),
];

/// A call that must succeed.
fn done<T, E: Debug>(what: &str, path: &Path, result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{what} {}: {error:?}", path.display()),
    }
}

fn listed(folder: &Path) -> BTreeSet<String> {
    let entries = done("list", folder, fs::read_dir(folder));
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

impl Work {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Both mounts list what there must be.
    fn holds(&self, names: &BTreeSet<String>) {
        assert_eq!(&listed(&self.here), names, "{}", self.here.display());
        assert_eq!(&listed(&self.there), names, "{}", self.there.display());
    }

    /// One of the two views, the other one rarely.
    fn view(&mut self, name: &str) -> PathBuf {
        if self.random.one_in(6) { self.there.join(name) } else { self.here.join(name) }
    }
}

/// Names that are made once and removed once, of all kinds of files.
fn names(mut work: Work) -> u64 {
    let (mut kept, mut calls) = (BTreeSet::new(), 0);
    while work.goes_on() {
        let name = format!("name{calls}");
        let path = work.here.join(&name);
        match work.random.below(8) {
            0 => done("symlink", &path, symlink("somewhere", &path)),
            1 => {
                let mode = Mode::RUSR | Mode::WUSR;
                done("mkfifo", &path, mknodat(CWD, &path, FileType::Fifo, mode, 0));
            }
            kind => {
                let mut file = done("create", &path, File::create_new(&path));
                if kind < 4 {
                    done("write", &path, file.write_all(name.as_bytes()));
                    drop(file);
                    let seen = work.view(&name);
                    assert_eq!(done("read", &seen, fs::read(&seen)), name.as_bytes());
                }
            }
        }
        kept.insert(name);
        calls += 1;
        if work.random.below(10) < 7 {
            let gone = kept.iter().nth(work.random.below(kept.len() as u64) as usize).cloned();
            let gone = kept.take(&gone.unwrap()).unwrap();
            let path = work.here.join(&gone);
            done("unlink", &path, fs::remove_file(&path));
            calls += 1;
            let seen = work.view(&gone);
            let found = fs::symlink_metadata(&seen).map(|_| ()).unwrap_err();
            assert_eq!(found.kind(), ErrorKind::NotFound, "{}", seen.display());
        }
    }
    work.holds(&kept);
    calls
}

fn inode(path: &Path) -> u64 {
    done("stat", path, fs::symlink_metadata(path)).ino()
}

/// Files that go there and back, and pairs that change places: twice is not once.
fn moves(mut work: Work) -> u64 {
    const FILES: u64 = 12;
    for side in ["left", "right"] {
        fs::create_dir(work.here.join(side)).unwrap();
    }
    let mut places = BTreeMap::new();
    for number in 0..FILES {
        let name = format!("left/{number}");
        File::create_new(work.here.join(&name)).unwrap();
        places.insert(number, (name, inode(&work.here.join(format!("left/{number}")))));
    }
    let mut calls = 0;
    while work.goes_on() {
        calls += 1;
        let one = work.random.below(FILES);
        let (name, ino) = places[&one].clone();
        let from = work.here.join(&name);
        if work.random.one_in(2) {
            let side = if name.starts_with("left") { "right" } else { "left" };
            let new = format!("{side}/{one}.{calls}");
            let to = work.here.join(&new);
            let moved = renameat_with(CWD, &from, CWD, &to, RenameFlags::NOREPLACE);
            done("rename", &from, moved);
            places.insert(one, (new, ino));
            continue;
        }
        let two = (one + 1 + work.random.below(FILES - 1)) % FILES;
        let (other, other_ino) = places[&two].clone();
        let to = work.here.join(&other);
        let swapped = renameat_with(CWD, &from, CWD, &to, RenameFlags::EXCHANGE);
        done("exchange", &from, swapped);
        places.insert(one, (other.clone(), ino));
        places.insert(two, (name.clone(), other_ino));
        for (name, ino) in [(other, ino), (name, other_ino)] {
            let seen = work.view(&name);
            assert_eq!(inode(&seen), ino, "{}", seen.display());
        }
    }
    for (name, ino) in places.values() {
        for view in [&work.here, &work.there] {
            assert_eq!(inode(&view.join(name)), *ino, "{name}");
        }
    }
    let number = |side| listed(&work.there.join(side)).len();
    assert_eq!(number("left") + number("right"), places.len());
    calls
}

/// Names of one file, which counts them.
fn links(mut work: Work) -> u64 {
    const MAX: usize = 30;
    let file = work.here.join("file");
    File::create_new(&file).unwrap();
    let (mut kept, mut calls) = (BTreeSet::from(["file".to_owned()]), 0);
    while work.goes_on() {
        calls += 1;
        let other = kept.iter().find(|name| *name != "file").cloned();
        match other {
            Some(other) if kept.len() > MAX || work.random.one_in(2) => {
                let path = work.here.join(&other);
                done("unlink", &path, fs::remove_file(&path));
                kept.remove(&other);
            }
            _ => {
                let name = format!("link{calls}");
                let path = work.here.join(&name);
                done("link", &path, fs::hard_link(&file, &path));
                kept.insert(name);
            }
        }
        let seen = work.view("file");
        let links = done("stat", &seen, fs::metadata(&seen)).nlink();
        assert_eq!(links, kept.len() as u64, "links of {}", seen.display());
    }
    work.holds(&kept);
    calls
}

/// Folders with something in them.
fn folders(mut work: Work) -> u64 {
    let (mut kept, mut calls) = (BTreeSet::new(), 0);
    while work.goes_on() {
        let name = format!("folder{calls}");
        let path = work.here.join(&name);
        done("mkdir", &path, fs::create_dir(&path));
        done("mkdir", &path, fs::create_dir(path.join("inner")));
        kept.insert(name);
        calls += 2;
        if work.random.below(10) < 8 {
            let gone = kept.pop_first().unwrap();
            let path = work.here.join(&gone);
            let full = fs::remove_dir(&path).unwrap_err();
            assert_eq!(full.kind(), ErrorKind::DirectoryNotEmpty, "{}", path.display());
            done("rmdir", &path, fs::remove_dir(path.join("inner")));
            done("rmdir", &path, fs::remove_dir(&path));
            calls += 2;
        }
        let seen = work.view("");
        let links = done("stat", &seen, fs::metadata(&seen)).nlink();
        assert_eq!(links, 2 + kept.len() as u64, "links of {}", seen.display());
    }
    work.holds(&kept);
    calls
}

/// Attributes that are made where there is none, and replaced and removed where there is one;
/// and modes.
fn attributes(mut work: Work) -> u64 {
    let file = work.here.join("file");
    File::create_new(&file).unwrap();
    let (mut values, mut calls) = (BTreeMap::new(), 0_u64);
    while work.goes_on() {
        calls += 1;
        let name = format!("user.{}", work.random.below(6));
        let value = format!("value {calls}").into_bytes();
        match values.remove(&name) {
            None => {
                done(&name, &file, setxattr(&file, &name, &value, XattrFlags::CREATE));
                values.insert(name.clone(), value);
            }
            Some(_) if work.random.one_in(2) => {
                done(&name, &file, setxattr(&file, &name, &value, XattrFlags::REPLACE));
                values.insert(name.clone(), value);
            }
            Some(_) => done(&name, &file, removexattr(&file, &name)),
        }
        let seen = work.view("file");
        let mut found = [0; 64];
        let len = getxattr(&seen, &name, &mut found).ok();
        assert_eq!(len.map(|len| found[..len].to_vec()), values.get(&name).cloned(), "{name}");
    }
    calls
}

fn contents(work: Work) -> u64 {
    written(work, 0)
}

fn direct(work: Work) -> u64 {
    written(work, O_DIRECT)
}

fn same(path: &Path, found: &[u8], wanted: &[u8]) {
    if found == wanted {
        return;
    }
    let at = found.iter().zip(wanted).position(|(one, other)| one != other);
    let (found, wanted) = (found.len(), wanted.len());
    panic!("{}: {found} bytes of {wanted}, other ones at {at:?}", path.display());
}

/// A file whose bytes are written over and over, cut off and appended to, at once one after the
/// other: a write that is carried out late, or again, is in the way of the next.
fn written(mut work: Work, flags: i32) -> u64 {
    const BYTES_MAX: u64 = 3 << 20;
    const PIECE_MAX: u64 = 300 << 10;
    let unit = if flags == 0 { 1 } else { 4096 };
    let path = work.here.join("file");
    let open =
        File::options().read(true).write(true).create_new(true).custom_flags(flags).open(&path);
    let file = done("create", &path, open);
    let appending =
        done("open", &path, File::options().append(true).custom_flags(flags).open(&path));
    let (mut model, mut calls) = (Vec::new(), 0_u64);
    while work.goes_on() {
        calls += 1;
        let len = (1 + work.random.below(PIECE_MAX / unit)) * unit;
        let piece = crate::bytes(len as usize, work.random.number());
        let at = work.random.below((BYTES_MAX - len) / unit) * unit;
        match work.random.below(8) {
            0 => {
                done("truncate", &path, file.set_len(at));
                model.resize(at as usize, 0);
            }
            1 if (model.len() as u64) < BYTES_MAX => {
                done("append", &path, (&appending).write_all(&piece));
                model.extend_from_slice(&piece);
            }
            2 => done("fsync", &path, file.sync_all()),
            3 => {
                let seen = work.view("file");
                same(&seen, &done("read", &seen, fs::read(&seen)), &model);
            }
            _ => {
                let end = (at + len) as usize;
                model.resize(model.len().max(end), 0);
                let mut again = piece.clone();
                again.reverse();
                done("write", &path, file.write_all_at(&again, at));
                done("write", &path, file.write_all_at(&piece, at));
                model[at as usize..end].copy_from_slice(&piece);
                let mut found = vec![0; piece.len()];
                done("read", &path, file.read_exact_at(&mut found, at));
                same(&path, &found, &piece);
            }
        }
    }
    for view in [&path, &work.there.join("file")] {
        same(view, &done("read", view, fs::read(view)), &model);
    }
    calls
}

/// Takes turns with others, on all mounts, by a file that only one can make: whoever has made it
/// counts, and removes it. How often it did.
pub(super) fn turns(work: Work) -> u64 {
    let (lock, counter) = (work.here.join("lock"), work.here.join("counter"));
    let mut turns = 0;
    while work.goes_on() {
        match File::create_new(&lock) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                std::thread::sleep(Duration::from_millis(3));
                continue;
            }
            Err(error) => panic!("create {}: {error}", lock.display()),
        }
        let before = counted(&work.here);
        done("write", &counter, fs::write(&counter, format!("{}\n", before + 1)));
        done("unlink", &lock, fs::remove_file(&lock));
        turns += 1;
    }
    turns
}

/// How many turns there were, as the programs have counted.
pub(super) fn counted(folder: &Path) -> u64 {
    let counter = folder.join("counter");
    match fs::read_to_string(&counter) {
        Ok(text) => done("parse", &counter, text.trim_end().parse()),
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(error) => panic!("read {}: {error}", counter.display()),
    }
}

/// A process that appends numbered records to a file that others append to, until `stop` is
/// there; then it says how many.
pub(super) fn appender(file: &Path, number: usize, stop: &Path) -> Child {
    let script = "use Fcntl; my ($f, $w, $stop) = @ARGV; my $n = 0; \
         sysopen(my $o, $f, O_WRONLY | O_APPEND | O_CREAT) or die \"open: $!\"; \
         until (-e $stop) { \
             my $r = \"$w $n \" . chr(97 + $n % 26) x (20 + $n * 7919 % 3000) . \"\\n\"; \
             my $d = syswrite($o, $r); \
             defined $d or die \"write: $!\"; $d == length $r or die \"$d bytes\"; $n++ } \
         close($o) or die \"close: $!\"; print \"$n\\n\"";
    let mut command = Command::new("perl");
    command.args(["-e", script]).arg(file).arg(number.to_string()).arg(stop);
    command.stdout(Stdio::piped()).spawn().unwrap()
}

/// How many records an appender has written.
pub(super) fn appended(appender: Child) -> u64 {
    let output = appender.wait_with_output().unwrap();
    assert!(output.status.success(), "an appender failed");
    String::from_utf8(output.stdout).unwrap().trim_end().parse().unwrap()
}

/// Each record is there, whole, once, and those of one process in order.
pub(super) fn check_records(file: &Path, numbers: &[u64]) {
    let text = done("read", file, fs::read_to_string(file));
    let mut next = vec![0; numbers.len()];
    for line in text.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [writer, number, filling] = fields[..] else { panic!("a torn record: {line:?}") };
        let (writer, number): (usize, u64) = (writer.parse().unwrap(), number.parse().unwrap());
        assert_eq!(number, next[writer], "the next record of process {writer}");
        next[writer] += 1;
        assert_eq!(filling.len() as u64, 20 + number * 7919 % 3000, "record {number}");
    }
    assert_eq!(next, numbers, "records of each process");
}

//! Mappings: what a program sees in its memory of what the other mount writes, and what it stores
//! there. A program of its own maps, since that is nothing for safe code.

use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::fs::{FallocateFlags, OFlags, fallocate};

use crate::side::{PAGE, Side, bytes, cases, modified, same_bytes};

cases!(
    a_mapping_sees_a_write,
    a_mapping_sees_single_bytes_change,
    a_mapping_sees_a_direct_write,
    a_mapping_sees_a_hole,
    a_mapping_sees_a_cut_and_what_comes_after,
    a_mapping_sees_what_is_appended,
    a_mapping_outlives_the_name,
    a_store_is_read_after_msync,
    a_store_is_read_without_msync,
    a_store_is_seen_by_the_others_mapping,
    stores_by_turns_in_one_page,
    stores_in_two_pages_of_one_file,
    a_store_meets_a_write_in_another_page,
    a_store_changes_the_mtime,
    a_private_mapping_keeps_its_own,
    a_read_only_mapping_of_a_read_file,
);

/// Maps so many bytes of a file and does what it is told on its input: 24 bytes of a letter, an
/// offset and a length. It shows a piece, or stores the bytes that follow, or syncs.
const PROGRAM: &str = r#"
use Fcntl;
my ($path, $len, $protection, $flags) = @ARGV;
my ($map, $sync, $read, $write) = `uname -m` =~ /x86_64/ ? (9, 26, 0, 1) : (222, 227, 63, 64);
sysopen(my $f, $path, $protection == 1 || $flags == 2 ? O_RDONLY : O_RDWR) or die "open: $!";
my $at = syscall($map, 0, $len + 0, $protection + 0, $flags + 0, fileno($f), 0);
$at > 0 or die "mmap: $!";
syswrite(STDOUT, 'm');
while (sysread(STDIN, my $told, 24) == 24) {
    my ($what, $offset, $bytes) = unpack('A8 Q Q', $told);
    if ($what eq 'show') {
        # Behind the end of the file this is an error and not a signal.
        my $done = syscall($write, 1, $at + $offset, $bytes);
        syswrite(STDOUT, 'E' x $bytes) if $done < 0;
    } elsif ($what eq 'store') {
        for (my $done = 0; $done < $bytes;) {
            my $more = syscall($read, 0, $at + $offset + $done, $bytes - $done);
            $more > 0 or die "read: $!";
            $done += $more;
        }
        syswrite(STDOUT, 'd');
    } else {
        syswrite(STDOUT, syscall($sync, $at, $len + 0, 4) == 0 ? 'd' : 'E');
    }
}
"#;

const READ: u32 = 1;
const READ_WRITE: u32 = 3;
const SHARED: u32 = 1;
const PRIVATE: u32 = 2;

/// A program that has a file mapped.
struct Mapping(Child);

impl Mapping {
    #[track_caller]
    fn of(path: &Path, pages: usize, protection: u32, flags: u32) -> Mapping {
        let mut perl = Command::new("perl");
        perl.args(["-e", PROGRAM]).arg(path).arg((pages * PAGE).to_string());
        perl.args([protection.to_string(), flags.to_string()]);
        let mut mapping =
            Mapping(perl.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        assert_eq!(mapping.answer(1), b"m", "it maps");
        mapping
    }

    fn shared(path: &Path, pages: usize) -> Mapping {
        Mapping::of(path, pages, READ_WRITE, SHARED)
    }

    #[track_caller]
    fn answer(&mut self, len: usize) -> Vec<u8> {
        let mut answer = vec![0; len];
        self.0.stdout.as_mut().unwrap().read_exact(&mut answer).unwrap();
        answer
    }

    #[track_caller]
    fn tell(&mut self, what: &str, offset: usize, len: usize, bytes: &[u8]) {
        let mut told = format!("{what:8}").into_bytes();
        told.extend((offset as u64).to_le_bytes());
        told.extend((len as u64).to_le_bytes());
        let stdin = self.0.stdin.as_mut().unwrap();
        stdin.write_all(&told).unwrap();
        stdin.write_all(bytes).unwrap();
    }

    /// What is in memory there, twice.
    #[track_caller]
    fn shows(&mut self, offset: usize, content: impl AsRef<[u8]>) {
        for _ in 0..2 {
            self.tell("show", offset, content.as_ref().len(), b"");
            let seen = self.answer(content.as_ref().len());
            same_bytes(&seen, content.as_ref());
        }
    }

    #[track_caller]
    fn store(&mut self, offset: usize, bytes: &[u8]) {
        self.tell("store", offset, bytes.len(), bytes);
        assert_eq!(self.answer(1), b"d", "it stores");
    }

    #[track_caller]
    fn sync(&mut self) {
        self.tell("sync", 0, 0, b"");
        assert_eq!(self.answer(1), b"d", "msync");
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A file of so many pages that `b` has mapped and looked at.
fn mapped(a: &Side, b: &Side, pages: usize) -> (Vec<u8>, Mapping) {
    let content = bytes(1, pages * PAGE);
    a.write("f", &content);
    let mut mapping = Mapping::shared(&b.at("f"), pages);
    mapping.shows(0, &content);
    (content, mapping)
}

fn a_mapping_sees_a_write(a: &Side, b: &Side) {
    let (_, mut mapping) = mapped(a, b, 4);
    for round in 2..6 {
        let content = bytes(round, 4 * PAGE);
        a.put("f", 0, &content);
        mapping.shows(0, &content);
    }
}

fn a_mapping_sees_single_bytes_change(a: &Side, b: &Side) {
    let (mut content, mut mapping) = mapped(a, b, 2);
    for at in [0, PAGE - 1, PAGE, 2 * PAGE - 1] {
        content[at] = 255;
        a.put("f", at, [255]);
        mapping.shows(0, &content);
    }
}

fn a_mapping_sees_a_direct_write(a: &Side, b: &Side) {
    let (mut content, mut mapping) = mapped(a, b, 4);
    let flags = OFlags::WRONLY | OFlags::DIRECT;
    a.opened("f", flags).write_all_at(&[9; PAGE], PAGE as u64).unwrap();
    content[PAGE..2 * PAGE].fill(9);
    mapping.shows(0, &content);
}

fn a_mapping_sees_a_hole(a: &Side, b: &Side) {
    let (mut content, mut mapping) = mapped(a, b, 4);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(a.open_rw("f"), punch, PAGE as u64, 2 * PAGE as u64).unwrap();
    content[PAGE..3 * PAGE].fill(0);
    mapping.shows(0, &content);
}

fn a_mapping_sees_a_cut_and_what_comes_after(a: &Side, b: &Side) {
    let (content, mut mapping) = mapped(a, b, 4);
    a.cut("f", PAGE);
    mapping.shows(0, &content[..PAGE]);
    // Behind the end there is nothing to be seen any more.
    mapping.shows(2 * PAGE, [b'E'; 10]);
    a.cut("f", 4 * PAGE);
    // The kernel of `b` believes the old end until it asks: docs/semantics.md.
    assert_eq!(b.size("f"), 4 * PAGE as u64);
    mapping.shows(PAGE, [0; 3 * PAGE]);
    a.put("f", 2 * PAGE, "new");
    mapping.shows(2 * PAGE, "new\0");
}

fn a_mapping_sees_what_is_appended(a: &Side, b: &Side) {
    a.write("f", "one");
    let mut mapping = Mapping::shared(&b.at("f"), 4);
    mapping.shows(0, "one\0\0");
    a.append("f", "two");
    mapping.shows(0, "onetwo\0");
    let more = bytes(1, 2 * PAGE);
    a.append("f", &more);
    assert_eq!(b.size("f"), 6 + 2 * PAGE as u64);
    mapping.shows(6, &more);
}

fn a_mapping_outlives_the_name(a: &Side, b: &Side) {
    let (content, mut mapping) = mapped(a, b, 2);
    let file = a.open_rw("f");
    a.unlink("f");
    b.missing("f");
    mapping.shows(0, &content);
    mapping.store(5, b"stored");
    mapping.sync();
    assert_eq!(crate::side::piece(&file, 5, 6), b"stored");
}

fn a_store_is_read_after_msync(a: &Side, b: &Side) {
    let (mut content, mut mapping) = mapped(a, b, 3);
    a.holds("f", &content);
    mapping.store(PAGE - 3, b"stored");
    mapping.sync();
    content[PAGE - 3..PAGE + 3].copy_from_slice(b"stored");
    a.holds("f", &content);
}

fn a_store_is_read_without_msync(a: &Side, b: &Side) {
    let (mut content, mut mapping) = mapped(a, b, 3);
    let reader = a.open("f");
    for (at, new) in [(0, "first"), (2 * PAGE, "second"), (5, "third")] {
        mapping.store(at, new.as_bytes());
        content[at..at + new.len()].copy_from_slice(new.as_bytes());
        crate::side::shows(&reader, &content);
    }
}

fn a_store_is_seen_by_the_others_mapping(a: &Side, b: &Side) {
    let (mut content, mut there) = mapped(a, b, 2);
    let mut here = Mapping::shared(&a.at("f"), 2);
    here.shows(0, &content);
    here.store(100, b"from here");
    content[100..109].copy_from_slice(b"from here");
    there.shows(0, &content);
    there.store(PAGE, b"from there");
    content[PAGE..PAGE + 10].copy_from_slice(b"from there");
    here.shows(0, &content);
}

fn stores_by_turns_in_one_page(a: &Side, b: &Side) {
    let (mut content, there) = mapped(a, b, 1);
    let mut both = [Mapping::shared(&a.at("f"), 1), there];
    for round in 0..20 {
        let at = round * 100;
        both[round % 2].store(at, &[round as u8; 50]);
        content[at..at + 50].fill(round as u8);
        both[1 - round % 2].shows(0, &content);
    }
}

fn stores_in_two_pages_of_one_file(a: &Side, b: &Side) {
    let (mut content, mut there) = mapped(a, b, 2);
    let mut here = Mapping::shared(&a.at("f"), 2);
    here.store(0, b"here");
    there.store(PAGE, b"there");
    content[..4].copy_from_slice(b"here");
    content[PAGE..PAGE + 5].copy_from_slice(b"there");
    a.holds("f", &content);
    b.holds("f", &content);
}

fn a_store_meets_a_write_in_another_page(a: &Side, b: &Side) {
    let (mut content, mut mapping) = mapped(a, b, 3);
    mapping.store(2 * PAGE, b"stored");
    a.put("f", 0, "written");
    content[..7].copy_from_slice(b"written");
    content[2 * PAGE..2 * PAGE + 6].copy_from_slice(b"stored");
    mapping.shows(0, &content);
    a.holds("f", &content);
}

fn a_store_changes_the_mtime(a: &Side, b: &Side) {
    let (_, mut mapping) = mapped(a, b, 1);
    let before = modified(&a.stat("f"));
    mapping.store(0, b"stored");
    mapping.sync();
    assert!(modified(&a.stat("f")) > before);
}

fn a_private_mapping_keeps_its_own(a: &Side, b: &Side) {
    let content = bytes(1, 2 * PAGE);
    a.write("f", &content);
    let mut mapping = Mapping::of(&b.at("f"), 2, READ_WRITE, PRIVATE);
    mapping.shows(0, &content);
    mapping.store(10, b"mine");
    a.holds("f", &content);
    a.put("f", PAGE, "changed");
    // Of the page that it has not changed it sees what is written, as on Linux; not of the other.
    mapping.shows(PAGE, "changed");
    mapping.shows(10, "mine");
}

fn a_read_only_mapping_of_a_read_file(a: &Side, b: &Side) {
    let content = bytes(1, 2 * PAGE);
    a.write("f", &content);
    let mut mapping = Mapping::of(&b.at("f"), 2, READ, SHARED);
    mapping.shows(0, &content);
    for round in 2..6 {
        let content = bytes(round, 2 * PAGE);
        a.write("f", &content);
        mapping.shows(0, &content);
    }
}

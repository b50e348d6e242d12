//! Wrong data that was planted in files is found, and said whose it is.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use crate::rig::{Folder, text};

/// Overwrites a part of a file.
fn plant(folder: &Folder, name: &str, offset: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(folder.0.join(name)).unwrap();
    file.write_all_at(bytes, offset).unwrap();
}

fn part(folder: &Folder, name: &str, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let file = std::fs::File::open(folder.0.join(name)).unwrap();
    file.read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

#[test]
fn a_changed_byte_is_found_by_every_kind_of_data() {
    for kind in ["timestamp", "offset", "incompressible", "random"] {
        let folder = Folder::new();
        let with = format!("-b 64k -t 16k -s 2 -o f -k -G 77 -l {kind}");
        folder.works(&format!("-np 2 ior -w -W -R {with}"));
        folder.works(&format!("-np 2 ior -R {with}"));
        // Rank 1's second segment, its third transfer.
        let place = 3 * 65536 + 2 * 16384 + 4104;
        let byte = part(&folder, "f", place, 1)[0];
        plant(&folder, "f", place, &[byte ^ 0x10]);
        let said = folder.fails(&format!("-np 2 ior -R {with}"), 3);
        assert!(said.contains(&format!("wrong data in f at {place}: ")), "{kind}: {said}");
        assert!(said.contains("written by rank 1"), "{kind}: {said}");
        folder.fails(&format!("-np 2 ior -W {with}"), 3);
    }
}

#[test]
fn another_ranks_data_is_found_and_named() {
    let folder = Folder::new();
    folder.works("-np 3 ior -w -b 64k -t 16k -o f -k -G 7");
    let theirs = part(&folder, "f", 2 * 65536, 4096);
    plant(&folder, "f", 16384, &theirs);
    let said = folder.fails("-np 3 ior -R -b 64k -t 16k -o f -k -G 7", 3);
    assert!(said.contains("wrong data in f at 16384: "), "{said}");
    assert!(said.contains("written by rank 0") && said.contains("which is rank 2's"), "{said}");
}

#[test]
fn data_of_another_place_is_found_with_offsets() {
    let folder = Folder::new();
    let with = "-F -b 64k -t 16k -o f -k -G 7 -l offset";
    folder.works(&format!("-np 2 ior -w {with}"));
    let theirs = part(&folder, "f.00000001", 16384, 16384);
    plant(&folder, "f.00000001", 32768, &theirs);
    let said = folder.fails(&format!("-np 2 ior -R {with}"), 3);
    assert!(said.contains("wrong data in f.00000001 at 32768: "), "{said}");
}

#[test]
fn wrong_files_are_kept_if_asked_for() {
    let folder = Folder::new();
    folder.works("-np 2 ior -w -b 64k -t 16k -o f -k -G 7");
    folder.fails("-np 2 ior -R -b 64k -t 16k -o f -G 8 -K", 3);
    assert_eq!(folder.all(), ["f"]);
    let output = folder.run("-np 2 ior -R -b 64k -t 16k -o f -G 8");
    assert!(text(&output.stdout).contains("WARNING: read check: 8 transfers hold other data"));
    assert_eq!(folder.all(), [""; 0]);
}

#[test]
fn a_wrong_small_file_is_found() {
    let folder = Folder::new();
    let with = "-np 2 mdtest -F -n 10 -d x -G 9";
    folder.works(&format!("{with} -C -w 3901"));
    folder.works(&format!("{with} -E -e 3901 -X -N 1"));
    folder.works(&format!("{with} -E -e 100 -X"));
    let name = "x/test-dir.0-0/mdtest_tree.0/file.mdtest.1.6";
    plant(&folder, name, 3900, &[0]);
    let said = folder.fails(&format!("{with} -E -e 3901 -X -N 1"), 3);
    assert!(said.contains("file.mdtest.1.6 holds other data than was written"), "{said}");
    // Two files that have changed places.
    let one = folder.0.join(name);
    let other = one.with_file_name("file.mdtest.1.7");
    std::fs::rename(&other, &one).unwrap();
    std::fs::copy(&one, &other).unwrap();
    let said = folder.fails(&format!("{with} -E -e 3901 -X"), 3);
    assert!(said.contains("file.mdtest.1.6 holds"), "{said}");
}

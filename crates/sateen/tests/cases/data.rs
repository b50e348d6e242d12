//! What is in files: written, appended, cut, emptied and copied by one, read by the other through
//! pages that its kernel has kept and by descriptors that stay open.

use std::fs::File;
use std::io::{IoSlice, Read, Seek, SeekFrom as At, Write};
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, OFlags, SeekFrom, copy_file_range, fallocate, seek};
use rustix::io::Errno;

use crate::side::{PAGE, Side, bytes, cases, changed, modified, piece, same_bytes, shows, warm};

cases!(
    a_write_is_read_by_name,
    a_write_is_read_by_an_open_descriptor,
    a_write_is_read_before_its_descriptor_is_closed,
    a_write_in_the_middle_of_kept_pages,
    a_write_of_one_byte,
    a_write_over_the_border_of_two_pages,
    a_write_over_the_border_of_two_stripes,
    a_write_of_some_megabytes,
    a_write_behind_the_end_leaves_a_hole,
    a_write_very_far_behind_the_end,
    a_write_of_several_buffers,
    a_write_through_dsync,
    a_write_by_a_descriptor_of_both,
    one_page_is_written_by_both,
    single_bytes_are_written_by_turns,
    a_counter_goes_to_and_fro,
    a_reader_at_the_end_reads_on,
    a_reader_in_the_middle_reads_on,
    a_position_is_that_of_its_descriptor,
    the_end_is_sought_after_a_write,
    the_end_is_sought_after_a_cut,
    an_append_is_read,
    an_append_is_read_by_an_open_descriptor,
    appends_by_turns,
    an_append_after_a_cut,
    an_append_after_the_others_write_behind_the_end,
    a_pwrite_of_an_appender_goes_to_the_end,
    a_cut_is_seen,
    a_cut_to_nothing_is_seen,
    a_cut_within_a_page_is_seen,
    a_cut_that_makes_longer_is_seen,
    a_cut_there_and_back_leaves_zeros,
    a_cut_by_an_open_descriptor,
    cuts_by_turns,
    a_rewrite_by_open_and_truncate,
    a_write_where_the_other_has_cut,
    a_punched_hole_is_read,
    a_punched_hole_within_a_page,
    a_zeroed_range_is_read,
    a_zeroed_range_behind_the_end,
    space_set_aside_makes_it_longer,
    space_set_aside_keeps_the_size,
    a_write_into_the_others_hole,
    holes_are_sought,
    data_is_sought_after_a_write,
    nothing_is_sought_behind_the_end,
    a_copy_in_the_kernel_is_read,
    a_copy_of_what_the_other_wrote,
    a_copy_within_a_file,
    a_direct_write_is_read,
    a_write_is_read_directly,
    direct_writes_of_both,
    a_direct_write_without_alignment,
    the_size_is_seen_while_it_is_written,
    the_size_is_seen_by_an_open_descriptor,
    the_mtime_of_a_write_is_seen,
    the_mtime_of_a_cut_is_seen,
    the_ctime_of_a_write_moves_on,
    times_do_not_change_by_fsync_and_close,
    many_small_files_written_by_one,
    the_end_of_a_file_is_read_as_such,
    pages_kept_by_many_descriptors,
    read_ahead_sees_what_is_new,
);

/// A file that both know and `b` has open for reading.
fn known(a: &Side, b: &Side, content: impl AsRef<[u8]>) -> File {
    a.write("f", &content);
    let file = b.open("f");
    shows(&file, &content);
    warm(a, b);
    file
}

fn a_write_is_read_by_name(a: &Side, b: &Side) {
    known(a, b, "one");
    a.write("f", "two");
    b.holds("f", "two");
    a.write("f", "something longer");
    b.holds("f", "something longer");
}

fn a_write_is_read_by_an_open_descriptor(a: &Side, b: &Side) {
    let file = known(a, b, "one");
    a.put("f", 0, "two");
    shows(&file, "two");
    a.put("f", 3, "three");
    shows(&file, "twothree");
}

fn a_write_is_read_before_its_descriptor_is_closed(a: &Side, b: &Side) {
    let file = known(a, b, "one");
    let writer = a.open_rw("f");
    for round in 0..10 {
        let content = bytes(round, 100 * (round + 1));
        writer.write_all_at(&content, 0).unwrap();
        shows(&file, &content);
        b.holds("f", &content);
    }
}

fn a_write_in_the_middle_of_kept_pages(a: &Side, b: &Side) {
    let mut content = bytes(1, 20 * PAGE);
    let file = known(a, b, &content);
    for page in [3, 19, 0, 11] {
        let new = bytes(page + 7, PAGE);
        a.put("f", page * PAGE, &new);
        content[page * PAGE..][..PAGE].copy_from_slice(&new);
        shows(&file, &content);
    }
}

fn a_write_of_one_byte(a: &Side, b: &Side) {
    let mut content = bytes(1, 3 * PAGE);
    let file = known(a, b, &content);
    for at in [0, PAGE - 1, PAGE, 3 * PAGE - 1] {
        content[at] = 255;
        a.put("f", at, [255]);
        shows(&file, &content);
    }
}

fn a_write_over_the_border_of_two_pages(a: &Side, b: &Side) {
    let mut content = bytes(1, 3 * PAGE);
    let file = known(a, b, &content);
    a.put("f", PAGE - 10, [7; 20]);
    content[PAGE - 10..PAGE + 10].fill(7);
    shows(&file, &content);
}

fn a_write_over_the_border_of_two_stripes(a: &Side, b: &Side) {
    crate::space::setstripe(a, "f", &["-c", "2", "-S", "64K"]);
    let mut content = bytes(1, 300_000);
    a.put("f", 0, &content);
    let file = b.open("f");
    shows(&file, &content);
    a.put("f", 65_000, [7; 70_000]);
    content[65_000..135_000].fill(7);
    shows(&file, &content);
}

fn a_write_of_some_megabytes(a: &Side, b: &Side) {
    let file = known(a, b, bytes(1, 3 << 20));
    let content = bytes(2, (3 << 20) + 17);
    a.put("f", 0, &content);
    shows(&file, &content);
}

fn a_write_behind_the_end_leaves_a_hole(a: &Side, b: &Side) {
    let file = known(a, b, "begin");
    a.put("f", 3 * PAGE, "end");
    let mut content = vec![0; 3 * PAGE + 3];
    content[..5].copy_from_slice(b"begin");
    content[3 * PAGE..].copy_from_slice(b"end");
    shows(&file, &content);
}

fn a_write_very_far_behind_the_end(a: &Side, b: &Side) {
    const FAR: usize = 1 << 32;
    let file = known(a, b, "begin");
    a.put("f", FAR, "end");
    assert_eq!(file.metadata().unwrap().len(), FAR as u64 + 3);
    assert_eq!(piece(&file, FAR - 2, 10), b"\0\0end");
    a.cut("f", 5);
    b.holds("f", "begin");
}

fn a_write_of_several_buffers(a: &Side, b: &Side) {
    let file = known(a, b, "one");
    let mut writer = a.open_rw("f");
    let parts = [IoSlice::new(b"several "), IoSlice::new(b""), IoSlice::new(b"buffers")];
    assert_eq!(writer.write_vectored(&parts).unwrap(), 15);
    shows(&file, "several buffers");
}

fn a_write_through_dsync(a: &Side, b: &Side) {
    let file = known(a, b, "one");
    for flags in [OFlags::DSYNC, OFlags::SYNC] {
        let content = format!("{flags:?}");
        a.opened("f", OFlags::WRONLY | OFlags::TRUNC | flags)
            .write_all(content.as_bytes())
            .unwrap();
        shows(&file, &content);
    }
}

fn a_write_by_a_descriptor_of_both(a: &Side, b: &Side) {
    a.write("f", "");
    let [one, other] = [a, b].map(|side| side.open_rw("f"));
    one.write_all_at(b"one", 0).unwrap();
    other.write_all_at(b"other", 3).unwrap();
    shows(&one, "oneother");
    shows(&other, "oneother");
}

fn one_page_is_written_by_both(a: &Side, b: &Side) {
    let mut content = bytes(1, PAGE);
    a.write("f", &content);
    let [one, other] = [a, b].map(|side| side.open_rw("f"));
    for round in 0..10 {
        one.write_all_at(&[round; 100], 0).unwrap();
        other.write_all_at(&[round + 100; 100], 100).unwrap();
        content[..100].fill(round);
        content[100..200].fill(round + 100);
        shows(&one, &content);
        shows(&other, &content);
    }
}

fn single_bytes_are_written_by_turns(a: &Side, b: &Side) {
    a.write("f", [0; 64]);
    let files = [a, b].map(|side| side.open_rw("f"));
    for at in 0..64 {
        let (one, other) = (&files[at % 2], &files[1 - at % 2]);
        one.write_all_at(&[at as u8 + 1], at as u64).unwrap();
        assert_eq!(piece(other, at, 1), [at as u8 + 1]);
    }
    b.holds("f", (1..=64).collect::<Vec<u8>>());
}

fn a_counter_goes_to_and_fro(a: &Side, b: &Side) {
    a.write("f", 0_u64.to_le_bytes());
    for _ in 0..20 {
        for side in [a, b] {
            let file = side.open_rw("f");
            let number = u64::from_le_bytes(piece(&file, 0, 8).try_into().unwrap());
            file.write_all_at(&(number + 1).to_le_bytes(), 0).unwrap();
        }
    }
    b.holds("f", 40_u64.to_le_bytes());
}

fn a_reader_at_the_end_reads_on(a: &Side, b: &Side) {
    a.write("f", "one");
    let mut reader = b.open("f");
    let mut read = || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    };
    assert_eq!((read(), read()), ("one".to_owned(), String::new()));
    for text in ["two", "three and more", "4"] {
        a.append("f", text);
        assert_eq!((read(), read()), (text.to_owned(), String::new()));
    }
}

fn a_reader_in_the_middle_reads_on(a: &Side, b: &Side) {
    a.write("f", "old old old");
    let mut reader = b.open("f");
    reader.read_exact(&mut [0; 4]).unwrap();
    a.put("f", 0, "new new new and more");
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "new new and more");
}

fn a_position_is_that_of_its_descriptor(a: &Side, b: &Side) {
    a.write("f", "0123456789");
    let [mut one, mut other] = [a, b].map(|side| side.open_rw("f"));
    one.seek(At::Start(4)).unwrap();
    other.write_all(b"ab").unwrap();
    one.write_all(b"cd").unwrap();
    assert_eq!((one.stream_position().unwrap(), other.stream_position().unwrap()), (6, 2));
    b.holds("f", "ab23cd6789");
}

fn the_end_is_sought_after_a_write(a: &Side, b: &Side) {
    let mut file = known(a, b, "one");
    assert_eq!(file.seek(At::End(0)).unwrap(), 3);
    a.append("f", bytes(1, 10_000));
    assert_eq!(file.seek(At::End(0)).unwrap(), 10_003);
    assert_eq!(file.seek(At::End(-10_002)).unwrap(), 1);
}

fn the_end_is_sought_after_a_cut(a: &Side, b: &Side) {
    let mut file = known(a, b, bytes(1, 10_000));
    assert_eq!(file.seek(At::End(0)).unwrap(), 10_000);
    a.cut("f", 7);
    assert_eq!(file.seek(At::End(0)).unwrap(), 7);
}

fn an_append_is_read(a: &Side, b: &Side) {
    known(a, b, "one");
    a.append("f", "two");
    b.holds("f", "onetwo");
    b.append("f", "three");
    a.holds("f", "onetwothree");
}

fn an_append_is_read_by_an_open_descriptor(a: &Side, b: &Side) {
    let mut content = bytes(1, PAGE - 3);
    let file = known(a, b, &content);
    let mut writer = a.opened("f", OFlags::WRONLY | OFlags::APPEND);
    for round in 0..5 {
        let more = bytes(round, 7 + round * PAGE);
        writer.write_all(&more).unwrap();
        content.extend(&more);
        shows(&file, &content);
    }
}

fn appends_by_turns(a: &Side, b: &Side) {
    a.write("f", "");
    let mut files = [a, b].map(|side| side.opened("f", OFlags::RDWR | OFlags::APPEND));
    let mut content = Vec::new();
    for round in 0..30 {
        let record = bytes(round, 1 + round * 37);
        files[round % 2].write_all(&record).unwrap();
        content.extend(&record);
        shows(&files[1 - round % 2], &content);
    }
}

fn an_append_after_a_cut(a: &Side, b: &Side) {
    let file = known(a, b, bytes(1, 10_000));
    let mut appender = b.opened("f", OFlags::WRONLY | OFlags::APPEND);
    appender.write_all(b"more").unwrap();
    a.cut("f", 5);
    appender.write_all(b"after").unwrap();
    let mut content = bytes(1, 5);
    content.extend(b"after");
    a.holds("f", &content);
    shows(&file, &content);
}

fn an_append_after_the_others_write_behind_the_end(a: &Side, b: &Side) {
    let file = known(a, b, "one");
    let mut appender = b.opened("f", OFlags::WRONLY | OFlags::APPEND);
    a.put("f", 10, "far");
    appender.write_all(b"end").unwrap();
    a.holds("f", b"one\0\0\0\0\0\0\0farend");
    shows(&file, b"one\0\0\0\0\0\0\0farend");
}

fn a_pwrite_of_an_appender_goes_to_the_end(a: &Side, b: &Side) {
    let appender = b.opened("f", OFlags::CREATE | OFlags::WRONLY | OFlags::APPEND);
    a.write("f", "one");
    // As Linux does it, whatever POSIX says.
    appender.write_all_at(b"two", 0).unwrap();
    a.holds("f", "onetwo");
}

fn a_cut_is_seen(a: &Side, b: &Side) {
    let content = bytes(1, 5 * PAGE);
    let file = known(a, b, &content);
    a.cut("f", 2 * PAGE);
    shows(&file, &content[..2 * PAGE]);
    b.holds("f", &content[..2 * PAGE]);
}

fn a_cut_to_nothing_is_seen(a: &Side, b: &Side) {
    let file = known(a, b, bytes(1, 5 * PAGE));
    a.cut("f", 0);
    shows(&file, "");
    b.holds("f", "");
}

fn a_cut_within_a_page_is_seen(a: &Side, b: &Side) {
    let content = bytes(1, 2 * PAGE);
    let file = known(a, b, &content);
    for size in [PAGE + 100, PAGE, PAGE - 1, 1] {
        a.cut("f", size);
        shows(&file, &content[..size]);
    }
}

fn a_cut_that_makes_longer_is_seen(a: &Side, b: &Side) {
    let mut content = bytes(1, 100);
    let file = known(a, b, &content);
    for size in [101, PAGE, 3 * PAGE + 1] {
        a.cut("f", size);
        content.resize(size, 0);
        shows(&file, &content);
    }
}

fn a_cut_there_and_back_leaves_zeros(a: &Side, b: &Side) {
    let mut content = bytes(1, 3 * PAGE);
    let file = known(a, b, &content);
    a.cut("f", PAGE + 10);
    a.cut("f", 3 * PAGE);
    content[PAGE + 10..].fill(0);
    shows(&file, &content);
    b.holds("f", &content);
}

fn a_cut_by_an_open_descriptor(a: &Side, b: &Side) {
    let content = bytes(1, 3 * PAGE);
    let file = known(a, b, &content);
    let writer = a.open_rw("f");
    writer.write_all_at(&content, 0).unwrap();
    writer.set_len(10).unwrap();
    shows(&file, &content[..10]);
    writer.set_len(20).unwrap();
    assert_eq!(piece(&file, 10, 100), [0; 10]);
}

fn cuts_by_turns(a: &Side, b: &Side) {
    let mut content = bytes(1, 2 * PAGE);
    let file = known(a, b, &content);
    for (round, size) in [5000, 9000, 100, 4096, 4097, 0, 8192, 1].into_iter().enumerate() {
        let (one, other) = if round % 2 == 0 { (a, b) } else { (b, a) };
        one.cut("f", size);
        content.resize(size, 0);
        other.holds("f", &content);
        shows(&file, &content);
    }
}

fn a_rewrite_by_open_and_truncate(a: &Side, b: &Side) {
    let file = known(a, b, bytes(1, 5 * PAGE));
    let writer = a.opened("f", OFlags::WRONLY | OFlags::TRUNC);
    shows(&file, "");
    writer.write_all_at(b"new", 0).unwrap();
    shows(&file, "new");
}

fn a_write_where_the_other_has_cut(a: &Side, b: &Side) {
    let old = bytes(1, 3 * PAGE);
    let file = known(a, b, &old);
    let writer = b.open_rw("f");
    a.cut("f", 10);
    writer.write_all_at(b"end", 2 * PAGE as u64).unwrap();
    let mut content = vec![0; 2 * PAGE + 3];
    content[..10].copy_from_slice(&old[..10]);
    content[2 * PAGE..].copy_from_slice(b"end");
    a.holds("f", &content);
    shows(&file, &content);
}

/// Changes the space of a file by the one, and the same of `content`; both show it then.
fn emptied(a: &Side, b: &Side, flags: FallocateFlags, offset: usize, len: usize) {
    let mut content = bytes(1, 8 * PAGE);
    let file = known(a, b, &content);
    fallocate(a.open_rw("f"), flags, offset as u64, len as u64).unwrap();
    if !flags.contains(FallocateFlags::KEEP_SIZE) && offset + len > content.len() {
        content.resize(offset + len, 0);
    }
    let end = content.len();
    content[offset.min(end)..(offset + len).min(end)].fill(0);
    shows(&file, &content);
    b.holds("f", &content);
    a.holds("f", &content);
}

const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

fn a_punched_hole_is_read(a: &Side, b: &Side) {
    emptied(a, b, PUNCH, 2 * PAGE, 3 * PAGE);
}

fn a_punched_hole_within_a_page(a: &Side, b: &Side) {
    emptied(a, b, PUNCH, PAGE + 100, 200);
}

fn a_zeroed_range_is_read(a: &Side, b: &Side) {
    emptied(a, b, FallocateFlags::ZERO_RANGE, 100, 3 * PAGE);
}

fn a_zeroed_range_behind_the_end(a: &Side, b: &Side) {
    emptied(a, b, FallocateFlags::ZERO_RANGE, 7 * PAGE, 3 * PAGE);
}

fn space_set_aside_makes_it_longer(a: &Side, b: &Side) {
    let file = known(a, b, "one");
    fallocate(a.open_rw("f"), FallocateFlags::empty(), 0, 3 * PAGE as u64).unwrap();
    let mut content = vec![0; 3 * PAGE];
    content[..3].copy_from_slice(b"one");
    shows(&file, &content);
}

fn space_set_aside_keeps_the_size(a: &Side, b: &Side) {
    let file = known(a, b, "one");
    fallocate(a.open_rw("f"), FallocateFlags::KEEP_SIZE, 0, 64 * PAGE as u64).unwrap();
    shows(&file, "one");
}

fn a_write_into_the_others_hole(a: &Side, b: &Side) {
    let mut content = bytes(1, 8 * PAGE);
    let file = known(a, b, &content);
    let writer = b.open_rw("f");
    fallocate(a.open_rw("f"), PUNCH, PAGE as u64, 4 * PAGE as u64).unwrap();
    writer.write_all_at(&[9; 10], 2 * PAGE as u64).unwrap();
    content[PAGE..5 * PAGE].fill(0);
    content[2 * PAGE..2 * PAGE + 10].fill(9);
    a.holds("f", &content);
    shows(&file, &content);
}

fn holes_are_sought(a: &Side, b: &Side) {
    let file = known(a, b, bytes(1, 16 * PAGE));
    let page = PAGE as u64;
    assert_eq!(seek(&file, SeekFrom::Hole(0)), Ok(16 * page));
    fallocate(a.open_rw("f"), PUNCH, 4 * page, 8 * page).unwrap();
    assert_eq!(seek(&file, SeekFrom::Hole(0)), Ok(4 * page));
    assert_eq!(seek(&file, SeekFrom::Data(4 * page)), Ok(12 * page));
    a.cut("f", 2 * PAGE);
    assert_eq!(seek(&file, SeekFrom::Hole(0)), Ok(2 * page));
}

fn data_is_sought_after_a_write(a: &Side, b: &Side) {
    a.write("f", "");
    let file = b.open("f");
    let page = PAGE as u64;
    a.cut("f", 16 * PAGE);
    assert_eq!(seek(&file, SeekFrom::Data(0)), Err(Errno::NXIO));
    a.put("f", 8 * PAGE, bytes(1, PAGE));
    assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(8 * page));
    assert_eq!(seek(&file, SeekFrom::Hole(8 * page)), Ok(9 * page));
}

fn nothing_is_sought_behind_the_end(a: &Side, b: &Side) {
    let file = known(a, b, bytes(1, PAGE));
    a.cut("f", 10);
    assert_eq!(seek(&file, SeekFrom::Data(10)), Err(Errno::NXIO));
    assert_eq!(seek(&file, SeekFrom::Hole(10)), Err(Errno::NXIO));
    a.append("f", "more");
    assert_eq!(seek(&file, SeekFrom::Data(10)), Ok(10));
}

fn a_copy_in_the_kernel_is_read(a: &Side, b: &Side) {
    let file = known(a, b, "something that is overwritten");
    let content = bytes(1, 50_000);
    a.write("from", &content);
    let (from, to) = (a.open("from"), a.opened("f", OFlags::WRONLY | OFlags::TRUNC));
    let mut left = content.len();
    while left > 0 {
        left -= copy_file_range(&from, None, &to, None, left).unwrap();
    }
    shows(&file, &content);
}

fn a_copy_of_what_the_other_wrote(a: &Side, b: &Side) {
    let from = known(a, b, "old content");
    a.write("f", "new content that is longer");
    b.write("g", "");
    let to = b.open_rw("g");
    // The kernel of `b` believes the old end until it asks: docs/semantics.md.
    assert_eq!(from.metadata().unwrap().len(), 26);
    let copied = copy_file_range(&from, Some(&mut 0), &to, Some(&mut 0), 1000).unwrap();
    assert_eq!(copied, 26);
    a.holds("g", "new content that is longer");
}

fn a_copy_within_a_file(a: &Side, b: &Side) {
    let mut content = bytes(1, 4 * PAGE);
    let file = known(a, b, &content);
    let same = a.open_rw("f");
    let (mut from, mut to) = (0, 3 * PAGE as u64);
    assert_eq!(copy_file_range(&same, Some(&mut from), &same, Some(&mut to), PAGE), Ok(PAGE));
    content.copy_within(..PAGE, 3 * PAGE);
    shows(&file, &content);
}

fn a_direct_write_is_read(a: &Side, b: &Side) {
    let mut content = bytes(1, 8 * PAGE);
    let file = known(a, b, &content);
    let writer = a.opened("f", OFlags::WRONLY | OFlags::DIRECT);
    writer.write_all_at(&[7; 2 * PAGE], 2 * PAGE as u64).unwrap();
    content[2 * PAGE..4 * PAGE].fill(7);
    shows(&file, &content);
}

fn a_write_is_read_directly(a: &Side, b: &Side) {
    let mut content = bytes(1, 8 * PAGE);
    known(a, b, &content);
    let reader = b.opened("f", OFlags::RDONLY | OFlags::DIRECT);
    shows(&reader, &content);
    a.put("f", PAGE, [7; PAGE]);
    content[PAGE..2 * PAGE].fill(7);
    shows(&reader, &content);
}

fn direct_writes_of_both(a: &Side, b: &Side) {
    let mut content = vec![0; 8 * PAGE];
    a.write("f", &content);
    let files = [a, b].map(|side| side.opened("f", OFlags::RDWR | OFlags::DIRECT));
    let kept = b.open("f");
    for round in 0..16 {
        let at = (round * 5 % 8) * PAGE;
        let new = bytes(round, PAGE);
        files[round % 2].write_all_at(&new, at as u64).unwrap();
        content[at..at + PAGE].copy_from_slice(&new);
        same_bytes(&piece(&files[1 - round % 2], at, PAGE), &new);
        shows(&kept, &content);
    }
}

fn a_direct_write_without_alignment(a: &Side, b: &Side) {
    let mut content = bytes(1, 3 * PAGE);
    let file = known(a, b, &content);
    let writer = a.opened("f", OFlags::WRONLY | OFlags::DIRECT);
    writer.write_all_at(&[7; 777], 4000).unwrap();
    content[4000..4777].fill(7);
    shows(&file, &content);
}

fn the_size_is_seen_while_it_is_written(a: &Side, b: &Side) {
    let mut writer = a.opened("f", OFlags::CREATE | OFlags::WRONLY);
    for round in 1..20 {
        writer.write_all(&[7; 1000]).unwrap();
        assert_eq!(b.size("f"), round * 1000);
    }
}

fn the_size_is_seen_by_an_open_descriptor(a: &Side, b: &Side) {
    let file = known(a, b, "one");
    let mut writer = a.opened("f", OFlags::WRONLY | OFlags::APPEND);
    for round in 1..10 {
        writer.write_all(&[7; 1000]).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 3 + round * 1000);
    }
}

fn the_mtime_of_a_write_is_seen(a: &Side, b: &Side) {
    let file = known(a, b, "one");
    let mut last = modified(&b.stat("f"));
    let writer = a.open_rw("f");
    for _ in 0..5 {
        writer.write_all_at(b"x", 0).unwrap();
        let now = modified(&b.stat("f"));
        assert!(now > last, "{now:?} after {last:?}");
        assert_eq!(modified(&file.metadata().unwrap()), now);
        assert_eq!(modified(&a.stat("f")), now);
        last = now;
    }
}

fn the_mtime_of_a_cut_is_seen(a: &Side, b: &Side) {
    let file = known(a, b, "one");
    let before = b.stat("f");
    a.cut("f", 1);
    let after = b.stat("f");
    assert!(modified(&after) > modified(&before) && changed(&after) > changed(&before));
    assert_eq!(modified(&file.metadata().unwrap()), modified(&after));
    assert_eq!(modified(&a.stat("f")), modified(&after));
}

fn the_ctime_of_a_write_moves_on(a: &Side, b: &Side) {
    known(a, b, "one");
    let before = b.stat("f");
    a.put("f", 0, "two");
    assert!(changed(&b.stat("f")) > changed(&before));
}

fn times_do_not_change_by_fsync_and_close(a: &Side, b: &Side) {
    known(a, b, "one");
    let writer = a.open_rw("f");
    writer.write_all_at(b"two", 0).unwrap();
    let written = modified(&b.stat("f"));
    writer.sync_all().unwrap();
    assert_eq!(modified(&b.stat("f")), written);
    drop(writer);
    assert_eq!((modified(&b.stat("f")), modified(&a.stat("f"))), (written, written));
}

fn many_small_files_written_by_one(a: &Side, b: &Side) {
    for number in 0..30 {
        b.missing(format!("f{number}"));
        a.write(format!("f{number}"), bytes(number, number * 100));
    }
    for number in 0..30 {
        b.holds(format!("f{number}"), bytes(number, number * 100));
    }
}

fn the_end_of_a_file_is_read_as_such(a: &Side, b: &Side) {
    let file = known(a, b, bytes(1, PAGE));
    assert_eq!(piece(&file, PAGE, 10), b"");
    a.append("f", "x");
    assert_eq!(piece(&file, PAGE, 10), b"x");
    a.cut("f", PAGE - 1);
    assert_eq!(piece(&file, PAGE - 1, 10), b"");
    assert_eq!(piece(&file, PAGE, 10), b"");
}

fn pages_kept_by_many_descriptors(a: &Side, b: &Side) {
    let first = known(a, b, bytes(1, 5 * PAGE));
    let mut files: Vec<File> = (0..8).map(|_| b.open("f")).collect();
    files.push(first);
    for round in 0..4 {
        let content = bytes(round + 2, (round + 3) * PAGE + round);
        a.write("f", &content);
        for file in &files {
            shows(file, &content);
        }
    }
}

fn read_ahead_sees_what_is_new(a: &Side, b: &Side) {
    const LEN: usize = 2 << 20;
    a.write("f", bytes(1, LEN));
    let file = b.open("f");
    // The kernel reads ahead of this.
    for page in 0..16 {
        piece(&file, page * PAGE, PAGE);
    }
    let content = bytes(2, LEN);
    a.put("f", 0, &content);
    same_bytes(&piece(&file, 16 * PAGE, LEN), &content[16 * PAGE..]);
}

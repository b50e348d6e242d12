//! Real programs on a mount: dbench, fio, bonnie++, SQLite, rsync, tar, git, cargo, ACLs, and what
//! editors do.
//!
//! How much some do: `DBENCH_SECONDS`, `FIO_MIB` of the largest file (others in proportion),
//! `BONNIE_MIB`, `SQLITE_TRANSACTIONS` of each writer, `RSYNC_FILES`, `GIT_COMMITS`.

use std::fs;
use std::path::Path;
use std::sync::PoisonError;

use sateen_testkit::env_number;

use crate::rig::{KERNEL_CACHES, Rig, Servers, on_both, on_given, tools};

on_both!(
    dbench,
    fio,
    bonnie,
    sqlite,
    rsync_there_and_back,
    tar_and_git,
    cargo_builds,
    editors_save,
    space_set_aside_is_written,
    acls,
);
on_given!(fio, sqlite, tar_and_git, space_set_aside_is_written);

fn dbench(servers: Servers) {
    if !tools(&["dbench"]) {
        return;
    }
    let Some(rig) = Rig::start(servers, "dbench", 1, false) else { return };
    let seconds = env_number("DBENCH_SECONDS", 5);
    let text = rig.shell(&format!("dbench -s -t {seconds} -D . -c /usr/share/dbench/client.txt 4"));
    let last = text.lines().find(|line| line.starts_with("Throughput"));
    assert!(last.is_some(), "{text}");
    assert!(!text.contains("ERROR"), "{text}");
    let operations = text.lines().filter_map(|line| {
        // A table of each operation, how often, and how long that took.
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, times, mean, max] = words[..] else { return None };
        (mean.parse::<f64>().is_ok() && max.parse::<f64>().is_ok())
            .then(|| times.parse::<u64>().ok())
            .flatten()
    });
    let operations: u64 = operations.sum();
    assert!(operations > 0, "{text}");
    println!(
        "shown: dbench {servers:?}: {seconds} s with 4 clients, {operations} operations, no error"
    );
    rig.end();
}

/// A crate with a library, a build script and a test, built where it lies, and built again after a
/// change.
fn cargo_builds(servers: Servers) {
    let Some(rig) = Rig::start(servers, "cargo", 1, false) else { return };
    // That of the toolchain: rustup's would look for its own things in the test's home.
    let cargo = env!("CARGO");
    let text = rig.shell(&format!("tools=$(dirname {cargo}){SCRIPT}"));
    assert_eq!(text, "1\n42\n43\n0\n", "what is up to date is not built again");
    rig.end();
    const SCRIPT: &str = r#"
        cargo() { RUSTC=$tools/rustc RUSTDOC=$tools/rustdoc "$tools/cargo" "$@"; }
        mkdir -p one/src && cd one
        cat >Cargo.toml <<'END'
[package]
name = "one"
version = "0.1.0"
edition = "2021"
[workspace]
END
        echo 'fn main() {
            let out = std::path::Path::new(&std::env::var("OUT_DIR").unwrap()).join("made.rs");
            std::fs::write(out, "pub const MADE: u32 = 41;").unwrap();
        }' >build.rs
        echo 'include!(concat!(env!("OUT_DIR"), "/made.rs"));
            #[test] fn holds() { assert_eq!(MADE, 41) }' >src/lib.rs
        echo 'fn main() { println!("{}", one::MADE + 1) }' >src/main.rs
        export CARGO_TARGET_DIR=$MNT/one/target
        cargo test --offline --lib -q >$LOCAL/tested
        grep -c '1 passed' $LOCAL/tested
        cargo run --offline -q
        sed -i 's/+ 1/+ 2/' src/main.rs
        cargo run --offline -q
        cargo run --offline 2>&1 | grep -c Compiling || true
        "#;
}

/// The ways in which editors save: a new file renamed over the old one, a backup by a link or a
/// rename before the file is written anew, and a lock beside it.
fn editors_save(servers: Servers) {
    let Some(rig) = Rig::start(servers, "editors", 1, false) else { return };
    let text = rig.shell(
        r#"
        save() { dd of="$1" conv=fsync status=none; }
        echo 1 | save text; chmod 640 text; inode=$(stat -c %i text)
        # By rename, with the mode of the old file.
        for n in $(seq 2 30); do
            ln -s "user@host.$$" .#text
            cp -p text .text.tmp; echo $n | save .text.tmp; mv .text.tmp text; rm .#text
            [ "$(cat text) $(stat -c %a text)" = "$n 640" ] || echo "$n: $(cat text)"
        done
        [ "$(stat -c %i text)" = "$inode" ] || echo renamed
        # In place, the backup being a link: the backup changes along.
        ln -f text text~; echo 31 | save text; cat text~
        # In place, the backup being a copy that takes the name of the older one.
        cp -p text new~; mv new~ text~; echo 32 | save text; cat text~ text
        # The backup takes the name; the file is made anew.
        mv text text~; echo 33 >text; cat text~ text; stat -c %h text text~
        ls -A
        "#,
    );
    assert_eq!(text, "renamed\n31\n31\n32\n32\n33\n1\n1\ntext\ntext~\n");
    rig.end();
}

/// Every block is written with a checksum of its own and read again: one after the other and at
/// random, by several jobs, through the page cache and past it.
fn fio(servers: Servers) {
    if !tools(&["fio"]) {
        return;
    }
    let Some(rig) = Rig::start(servers, "fio", 1, false) else { return };
    let most = env_number("FIO_MIB", 48).max(12);
    let text = rig.shell(&format!(
        "most={most}
        verified() {{
            fio --name=$1 --directory=$MNT --filename_format='$jobname.$jobnum' --verify=crc32c \
                --verify_fatal=1 --randrepeat=0 --fallocate=none --minimal \"${{@:2}}\" >$LOCAL/$1
            rm $MNT/$1.*
            echo $1
        }}
        verified sequential --rw=write --bs=1M --size=${{most}}M --end_fsync=1
        verified direct --rw=write --bs=256k --size=$((most * 2 / 3))M --direct=1
        verified random --rw=randwrite --bs=4k-64k --bs_unaligned --size=$((most / 3))M --numjobs=3
        verified random-direct --rw=randwrite --bs=4k --size=$((most / 12))M --numjobs=3 --direct=1
        verified mixed --rw=randrw --bs=8k --size=$((most / 3))M --ioengine=mmap
        verified queued --rw=randwrite --bs=16k --size=$((most / 3))M --ioengine=libaio \
            --iodepth=16 --direct=1
        "
    ));
    assert_eq!(text, "sequential\ndirect\nrandom\nrandom-direct\nmixed\nqueued\n");
    let all = most + most * 2 / 3 + 5 * (most / 3) + 3 * (most / 12);
    println!("shown: fio {servers:?}: six ways, {all} MiB written and verified (crc32c), no error");
    rig.end();
}

/// Blocks, seeks, and thousands of files made, looked up and removed.
fn bonnie(servers: Servers) {
    if !tools(&["bonnie++"]) {
        return;
    }
    let Some(rig) = Rig::start(servers, "bonnie", 1, false) else { return };
    // A file, 2048 files of up to 1000 bytes in 4 folders; its result is the last line. It wants to
    // be told of half as much memory.
    let mib = env_number("BONNIE_MIB", 64);
    let text = rig.shell(&format!(
        "bonnie++ -q -f -d $MNT -u root -s {mib}M -r {}M -n 2:1000:0:4 -x 1",
        mib / 2
    ));
    let fields = text.lines().last().unwrap_or_default().split(',').count();
    assert!(fields > 40, "{text}");
    assert_eq!(rig.shell("ls"), "", "it removes what it made");
    println!("shown: bonnie++ {servers:?}: {mib} MiB in blocks, 2048 files, no error");
    rig.end();
}

/// A rollback journal, and a write-ahead log whose index two processes share as a mapping.
fn sqlite(servers: Servers) {
    if !tools(&["sqlite3"]) {
        return;
    }
    let Some(rig) = Rig::start(servers, "sqlite", 1, false) else { return };
    let transactions = env_number("SQLITE_TRANSACTIONS", 15);
    let rows = 2 * transactions * 40;
    for mode in ["delete", "wal"] {
        let script = format!(
            "
            db=$MNT/{mode}.db
            sqlite3 $db 'pragma journal_mode={mode}; create table t(a integer primary key, b)'
            work() {{
                for i in $(seq {transactions}); do
                    echo \"begin immediate; insert into t(b) select hex(randomblob(500)) from
                        (with recursive n(x) as (select 1 union all select x+1 from n where x<40)
                        select x from n); update t set b=hex(randomblob(300)) where a%7=$i%7;
                        commit;\"
                done | sqlite3 -cmd '.timeout 600000' -cmd 'pragma mmap_size=1000000' $db >/dev/null
            }}
            work & one=$!
            work & two=$!
            wait $one; wait $two
            sqlite3 $db 'pragma integrity_check; select count(*) from t'
            "
        );
        assert_eq!(rig.shell(&script), format!("{mode}\nok\n{rows}\n"));
    }
    println!(
        "shown: SQLite {servers:?}: rollback journal and WAL, {transactions} transactions by each \
         of two writers, {rows} rows, integrity ok"
    );
    rig.end();
}

/// Owner, modes, times, links, attributes and ACLs survive a copy there and back.
fn rsync_there_and_back(servers: Servers) {
    if !tools(&["rsync", "setfacl", "setfattr"]) {
        return;
    }
    let Some(rig) = Rig::start(servers, "rsync", 1, false) else { return };
    let files = env_number("RSYNC_FILES", 200).max(6);
    let text = rig.shell(&format!(
        "
        mkdir $LOCAL/from $LOCAL/back; cd $LOCAL/from
        mkdir -p a/b/c empty; chmod 2750 a; chmod 1777 empty
        for i in $(seq {files}); do head -c $((i * 777 % 1000000)) /dev/urandom >a/b/f$i; done
        head -c 9M /dev/urandom >a/large; truncate -s 5M a/sparse
        ln a/b/f1 a/hard; ln -s ../nowhere a/soft; mkfifo a/fifo; mknod a/null c 1 3
        chown 12:34 a/b/f2; chmod 4755 a/b/f3; touch -d '2001-02-03 04:05:06.789' a/b/f4
        setfattr -n user.colour -v blue a/b/f5; setfattr -n trusted.secret -v x a/b
        setfacl -m u:12:rw,g:34:r,m::rw a/b/f6; setfacl -m u:99:rwx a; setfacl -d -m u:7:rx a/b/c
        rsync -aHAX --numeric-ids . $MNT/copy/
        rsync -aHAX --numeric-ids --checksum --delete --itemize-changes . $MNT/copy/
        "
    ));
    assert_eq!(text, "", "the second run finds nothing to do");
    {
        let _alone = KERNEL_CACHES.write().unwrap_or_else(PoisonError::into_inner);
        fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    }
    let text = rig.shell(
        "
        cd $LOCAL/from
        rsync -aHAX --numeric-ids --checksum --itemize-changes --dry-run $MNT/copy/ .
        rsync -aHAX --numeric-ids $MNT/copy/ $LOCAL/back/
        rsync -aHAX --numeric-ids --checksum --itemize-changes --dry-run . $LOCAL/back/
        ",
    );
    assert_eq!(text, "", "all is the same, there and back");
    println!("shown: rsync {servers:?}: {files} files there and back, nothing differs");
    rig.end();
}

/// The sources of this repository, unpacked, compared, and put under git.
fn tar_and_git(servers: Servers) {
    if !tools(&["tar", "git"]) {
        return;
    }
    let Some(rig) = Rig::start(servers, "git", 1, false) else { return };
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let commits = env_number("GIT_COMMITS", 2).max(2);
    let text = rig.shell(&format!(
        "
            mkdir $LOCAL/tree tree
            tar -C {} -cf $LOCAL/tree.tar --exclude=target .
            tar -C $LOCAL/tree -xf $LOCAL/tree.tar
            tar -C tree -xf $LOCAL/tree.tar
            diff -r $LOCAL/tree tree
            tar -C tree -df $LOCAL/tree.tar
            cd tree; git init -q; git config user.name n; git config user.email e
            git add .; git commit -qm one; git mv osd moved; git commit -qam two
            for i in $(seq 3 {commits}); do
                echo $i >>moved/Cargo.toml; cp -r moved/src copy$i; git add .; git commit -qm $i
            done
            git gc -q; git fsck --strict >$LOCAL/fsck; git rev-list --count HEAD
            git checkout -q HEAD~$(({commits} - 1)); git status --porcelain >$LOCAL/status
            test ! -s $LOCAL/status
            rm -r .git; diff -r $LOCAL/tree .
            ",
        crates.display()
    ));
    assert_eq!(text, format!("{commits}\n"));
    println!(
        "shown: tar and git {servers:?}: an archive, {commits} commits, gc, fsck, the same tree"
    );
    rig.end();
}

/// Space that was set aside is written and synced like any other.
fn space_set_aside_is_written(servers: Servers) {
    let Some(rig) = Rig::start(servers, "fallocate", 1, false) else { return };
    let text = rig.shell(
        "
        fallocate -l 5M file
        dd if=/dev/zero of=file bs=1M count=3 conv=notrunc,fsync status=none
        fallocate -p -o 1M -l 1M file
        dd if=/dev/urandom of=file bs=1M seek=1 count=1 conv=notrunc,fsync status=none
        stat -c %s file
        ",
    );
    assert_eq!(text, "5242880\n");
    rig.end();
}

/// The kernel decides by ACLs, on every mount, and they follow the mode as on ext4.
fn acls(servers: Servers) {
    if !tools(&["setfacl", "getfacl", "setpriv"]) {
        return;
    }
    let Some(rig) = Rig::start(servers, "acl", 2, false) else { return };
    // By a way that leads through no folder of somebody else's, such as TMPDIR.
    let other = format!("../{}", rig.mounts()[1].file_name().unwrap().display());
    let text = rig.shell(&format!(
        "
            as() {{ setpriv --reuid=$1 --regid=$1 --clear-groups \"${{@:2}}\"; }}
            echo secret >f; chmod 600 f
            ! as 12 cat f 2>/dev/null; ! as 12 cat {other}/f 2>/dev/null
            setfacl -m u:12:r f; stat -c %a f; as 12 cat f; as 12 cat {other}/f
            ! as 13 cat f 2>/dev/null
            chmod 600 f; getfacl -cE f; ! as 12 cat f 2>/dev/null; ! as 12 cat {other}/f 2>/dev/null
            chmod g+r f; as 12 cat {other}/f; setfacl -b f; getfacl -c f
            mkdir d; setfacl -d -m u:12:rwx d; umask 077; touch d/f; mkdir d/below; touch g
            stat -c %a d/f d/below g; getfacl -cE d/f; getfacl -cE d/below
            "
    ));
    let expected = "640 secret secret user::rw- user:12:r-- group::--- mask::--- other::--- \
        secret user::rw- group::--- other::--- 664 775 600 \
        user::rw- user:12:rwx group::r-x mask::rw- other::r-- \
        user::rwx user:12:rwx group::r-x mask::rwx other::r-x default:user::rwx \
        default:user:12:rwx default:group::r-x default:mask::rwx default:other::r-x";
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&text), words(expected));
    rig.end();
}

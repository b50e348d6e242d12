//! Real programs on a mount: fsx, pjdfstest, dbench, SQLite, rsync, tar, git. They come from
//! Debian, and the first two from crates.io; `scripts/test.sh` installs them. `FSX_OPERATIONS` operations of fsx,
//! `SEED` repeats them. Needs root and /dev/fuse.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, clippy::indexing_slicing)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sateen_testkit::program::Program;
use sateen_testkit::{can_mount, env_number};

/// Where a program is, or nothing if it is missing and need not be there.
fn tool(name: &str) -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(cache.map(|cache| cache.join("sateen-tools/bin")));
    let found = folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(found.is_some() || !ci, "CI must have {name}");
    if found.is_none() {
        eprintln!("skipped: there is no {name}");
    }
    found
}

fn started(name: &str, options: &[&str]) -> Option<Program> {
    if !can_mount() {
        return None;
    }
    let program = Program::new(env!("CARGO_BIN_EXE_sateen"), name, 1, options).unwrap();
    program.up().unwrap();
    Some(program)
}

/// Ends it, and checks what the work has left.
fn ended(program: &Program) {
    program.down().unwrap();
    program.fsck().unwrap();
}

/// Runs a shell script in a folder, with `$MNT` and `$LOCAL`; its output if it went well.
fn shell(program: &Program, script: &str) -> String {
    let local = program.scratch().join("local");
    fs::create_dir_all(&local).unwrap();
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", script])
        .env("MNT", program.mnt())
        .env("LOCAL", &local)
        .env("HOME", &local)
        .current_dir(program.mnt())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}\n{text}{errors}");
    text
}

fn fsx(name: &str, options: &[&str]) {
    let Some(fsx) = tool("fsx") else { return };
    let Some(program) = started(name, options) else { return };
    let operations = env_number("FSX_OPERATIONS", 20_000);
    let seed = env_number("SEED", u64::from(std::process::id()));
    println!("{name}: SEED={seed} FSX_OPERATIONS={operations}");
    let config = program.scratch().join("fsx.toml");
    fs::write(&config, FSX_CONFIG).unwrap();
    let output = Command::new(fsx)
        .args(["-N", &operations.to_string(), "-S", &seed.to_string(), "-P"])
        .arg(program.scratch())
        .arg("-f")
        .arg(&config)
        .arg(program.mnt().join("file"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = errors.lines().collect();
    let last = lines[lines.len().saturating_sub(60)..].join("\n");
    assert!(output.status.success(), "SEED={seed}: {text}\n{last}");
    ended(&program);
}

/// What fsx does, and how often beside other things.
const FSX_CONFIG: &str = "
flen = 3000000
[opsize]
max = 200000
[weights]
close_open = 1.0
invalidate = 1.0
truncate = 10.0
fsync = 1.0
fdatasync = 1.0
read = 10.0
write = 10.0
mapread = 10.0
mapwrite = 10.0
punch_hole = 2.0
posix_fallocate = 2.0
copy_file_range = 2.0
";

#[test]
fn fsx_through_the_page_cache() {
    fsx("fsx", &[]);
}

#[test]
fn fsx_with_direct_io() {
    fsx("fsx-direct", &["--direct-io"]);
}

/// What pjdfstest makes of a folder: how many of its tests passed, and which failed.
fn pjdfstest(program: &Program, folder: &Path) -> (usize, Vec<String>) {
    let config = program.scratch().join("pjdfstest.toml");
    fs::write(&config, PJDFSTEST_CONFIG).unwrap();
    // Some tests act as another user, who must get at the folder, whatever lies above it.
    let script = "mount --bind \"$1\" /mnt && cd / && exec \"$2\" -c \"$3\" -p /mnt";
    let output = Command::new("unshare")
        .args(["--mount", "bash", "-euc", script, "pjdfstest"])
        .arg(folder)
        .arg(tool("pjdfstest").unwrap())
        .arg(&config)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = text.lines().filter_map(|line| line.strip_suffix("FAILED"));
    let failed: Vec<String> = failed.map(|name| name.trim().to_owned()).collect();
    let passed = text.lines().filter(|line| line.trim_end().ends_with(" ok")).count();
    let summary = format!("Summary: {} failed", failed.len());
    assert!(text.contains(&summary), "{text}{}", String::from_utf8_lossy(&output.stderr));
    (passed, failed)
}

/// Two users that every Debian has.
const PJDFSTEST_CONFIG: &str = "
[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}
[settings]
naptime = 0.01
[dummy_auth]
entries = [ [\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"] ]
";

/// It has 398 tests. Some are for other systems, and one for those with few hard links.
const PJDFSTEST_PASSED_MIN: usize = 370;

#[test]
fn posix_calls_do_what_they_do_on_the_local_disk() {
    if tool("pjdfstest").is_none() {
        return;
    }
    let Some(program) = started("pjdfstest", &[]) else { return };
    let local = program.scratch().join("local");
    fs::create_dir_all(&local).unwrap();
    let (_, there) = pjdfstest(&program, &local);
    let (passed, here) = pjdfstest(&program, program.mnt());
    println!("pjdfstest: {passed} passed");
    let only_here: Vec<_> = here.iter().filter(|name| !there.contains(name)).collect();
    assert!(only_here.is_empty(), "{only_here:?}");
    assert!(passed >= PJDFSTEST_PASSED_MIN, "{passed} of pjdfstest's tests were executed");
    ended(&program);
}

#[test]
fn dbench() {
    if tool("dbench").is_none() {
        return;
    }
    let Some(program) = started("dbench", &["--mdts", "2"]) else { return };
    let text = shell(&program, "dbench -s -t 5 -D . -c /usr/share/dbench/client.txt 4");
    assert!(text.contains("Throughput"), "{text}");
    assert!(!text.contains("ERROR"), "{text}");
    ended(&program);
}

/// A rollback journal, and a write-ahead log whose index two processes share as a mapping.
#[test]
fn sqlite() {
    if tool("sqlite3").is_none() {
        return;
    }
    let Some(program) = started("sqlite", &[]) else { return };
    for mode in ["delete", "wal"] {
        let script = format!(
            "
            db=$MNT/{mode}.db
            sqlite3 $db 'pragma journal_mode={mode}; create table t(a integer primary key, b)'
            work() {{
                for i in $(seq 15); do
                    echo \"begin immediate; insert into t(b) select hex(randomblob(500)) from
                        (with recursive n(x) as (select 1 union all select x+1 from n where x<40)
                        select x from n); update t set b=hex(randomblob(300)) where a%7=$i%7;
                        commit;\"
                done | sqlite3 -cmd '.timeout 60000' -cmd 'pragma mmap_size=1000000' $db >/dev/null
            }}
            work & one=$!
            work & two=$!
            wait $one; wait $two
            sqlite3 $db 'pragma integrity_check; select count(*) from t'
            "
        );
        assert_eq!(shell(&program, &script), format!("{mode}\nok\n1200\n"));
    }
    ended(&program);
}

/// Owner, modes, times, links, attributes and ACLs survive a copy there and back.
#[test]
fn rsync_there_and_back() {
    let tools = ["rsync", "setfacl", "setfattr"].map(tool);
    if tools.iter().any(Option::is_none) {
        return;
    }
    let Some(program) = started("rsync", &[]) else { return };
    let text = shell(
        &program,
        "
        mkdir $LOCAL/from $LOCAL/back; cd $LOCAL/from
        mkdir -p a/b/c empty; chmod 2750 a; chmod 1777 empty
        for i in $(seq 200); do head -c $((i * 777)) /dev/urandom >a/b/f$i; done
        head -c 9M /dev/urandom >a/large; truncate -s 5M a/sparse
        ln a/b/f1 a/hard; ln -s ../nowhere a/soft; mkfifo a/fifo; mknod a/null c 1 3
        chown 12:34 a/b/f2; chmod 4755 a/b/f3; touch -d '2001-02-03 04:05:06.789' a/b/f4
        setfattr -n user.colour -v blue a/b/f5; setfattr -n trusted.secret -v x a/b
        setfacl -m u:12:rw,g:34:r,m::rw a/b/f6; setfacl -m u:99:rwx a; setfacl -d -m u:7:rx a/b/c
        rsync -aHAX --numeric-ids . $MNT/copy/
        rsync -aHAX --numeric-ids --checksum --delete --itemize-changes . $MNT/copy/
        echo 3 >/proc/sys/vm/drop_caches
        rsync -aHAX --numeric-ids --checksum --itemize-changes --dry-run $MNT/copy/ .
        rsync -aHAX --numeric-ids $MNT/copy/ $LOCAL/back/
        rsync -aHAX --numeric-ids --checksum --itemize-changes --dry-run . $LOCAL/back/
        ",
    );
    assert_eq!(text, "", "the second run finds nothing to do");
    ended(&program);
}

/// The sources of this repository, unpacked, compared, and put under git.
#[test]
fn tar_and_git() {
    if ["tar", "git"].map(tool).iter().any(Option::is_none) {
        return;
    }
    let Some(program) = started("git", &[]) else { return };
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    shell(
        &program,
        &format!(
            "
            mkdir $LOCAL/tree tree
            tar -C {} -cf $LOCAL/tree.tar --exclude=target .
            tar -C $LOCAL/tree -xf $LOCAL/tree.tar
            tar -C tree -xf $LOCAL/tree.tar
            diff -r $LOCAL/tree tree
            tar -C tree -df $LOCAL/tree.tar
            cd tree; git init -q; git config user.name n; git config user.email e
            git add .; git commit -qm one; git mv osd moved; git commit -qam two
            git gc -q; git fsck --strict; git checkout -q HEAD^; git status --porcelain >$LOCAL/status
            test ! -s $LOCAL/status
            rm -r .git; diff -r $LOCAL/tree .
            ",
            crates.display()
        ),
    );
    ended(&program);
}

/// Space that was set aside is written and synced like any other.
#[test]
fn space_set_aside_is_written() {
    let Some(program) = started("fallocate", &[]) else { return };
    let text = shell(
        &program,
        "
        fallocate -l 5M file
        dd if=/dev/zero of=file bs=1M count=3 conv=notrunc,fsync status=none
        fallocate -p -o 1M -l 1M file
        dd if=/dev/urandom of=file bs=1M seek=1 count=1 conv=notrunc,fsync status=none
        stat -c %s file
        ",
    );
    assert_eq!(text, "5242880\n");
    ended(&program);
}

/// The kernel decides by ACLs, on every mount, and they follow the mode as on ext4.
#[test]
fn acls() {
    if ["setfacl", "getfacl", "setpriv"].map(tool).iter().any(Option::is_none) || !can_mount() {
        return;
    }
    let program = Program::new(env!("CARGO_BIN_EXE_sateen"), "acl", 2, &[]).unwrap();
    program.up().unwrap();
    // By a way that leads through no folder of somebody else's, such as TMPDIR.
    let other = format!("../{}", program.mounts()[1].file_name().unwrap().display());
    let text = shell(
        &program,
        &format!(
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
        ),
    );
    let expected = "640 secret secret user::rw- user:12:r-- group::--- mask::--- other::--- \
        secret user::rw- group::--- other::--- 664 775 600 \
        user::rw- user:12:rwx group::r-x mask::rw- other::r-- \
        user::rwx user:12:rwx group::r-x mask::rwx other::r-x default:user::rwx \
        default:user:12:rwx default:group::r-x default:mask::rwx default:other::r-x";
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&text), words(expected));
    ended(&program);
}

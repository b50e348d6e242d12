//! Mounts as an administrator makes them: by mount(8) and by a line of fstab, which find
//! `mount.sateen` in /sbin, and nowhere else; and mounts that are given other options.

use std::fs;
use std::process::Command;

use sateen_testkit::can_mount;
use sateen_testkit::cluster::{Cluster, ok};

use crate::BINARY;

/// Runs where all that it mounts is seen by nobody else: there /sbin holds nothing but the helper.
const COMMON: &str = r#"
set -euo pipefail
mount -t tmpfs none "$(realpath /sbin)"
ln -s "$SATEEN" /sbin/mount.sateen

shown() { awk -v at="$MNT" '$2 == at { print $1, $3, $4 }' /proc/self/mounts; }
# is OPTION...: it is mounted, from where it should be, with these options among others.
is() {
    local source type options
    read -r source type options < <(shown) || { echo "not mounted for: $*"; exit 1; }
    [[ $source == "$SOURCE" && $type == fuse.sateen ]] || { echo "it is $(shown)"; exit 1; }
    for option; do
        [[ ,$options, == *,$option,* ]] || { echo "no $option in $options"; exit 1; }
    done
}
gone() {
    umount "$MNT"
    [[ -z $(shown) ]] || { echo "still there: $(shown)"; exit 1; }
}
# refused CODE WORD COMMAND...: it fails with this exit code, and says why; nothing is as it was not.
refused() {
    local code=$1 word=$2 before said is=0
    before=$(shown)
    shift 2
    said=$("$@" 2>&1) || is=$?
    [[ $is == "$code" && $said == *"$word"* && $before == "$(shown)" ]] ||
        { echo "$*: $is, $said; $(shown)"; exit 1; }
}
line() { printf '%s %s sateen %s,retry=2 0 0\n' "$SOURCE" "$MNT" "$1" >"$FSTAB"; }
"#;

const MOUNTED: &str = r#"
# Servers may stand still for a moment.
mount -t sateen -o retry=2 "$SOURCE" "$MNT"
is rw
echo written >"$MNT/file"
gone

mount -t sateen -o ro,noatime,nosuid,_netdev,retry=2 "$SOURCE" "$MNT"
is ro noatime nosuid
[[ $(<"$MNT/file") == written ]]
(echo more >"$MNT/file") 2>/dev/null && { echo "it is not read-only"; exit 1; }
gone
mount -r -t sateen -o nodev,noexec,sync,retry=2 "$SOURCE" "$MNT"
is ro nodev noexec sync
gone
# As mount(8) has it: 1 for what makes no sense, 32 for what was not to be had.
refused 1 frobnicate mount -t sateen -o rw,frobnicate "$SOURCE" "$MNT"
refused 1 "names no file system" mount -t sateen "${SOURCE%:/*}" "$MNT"
refused 1 "needs root" setpriv --reuid=nobody --clear-groups /sbin/mount.sateen "$SOURCE" "$MNT"
refused 32 "manages scratch" mount -t sateen -o retry=2 "${SOURCE%:/*}:/other" "$MNT"
[[ $(/sbin/mount.sateen --help) == *FSNAME* ]]

line defaults,noatime,nosuid,_netdev,nofail,x-systemd.mount-timeout=30,comment=ours
mount -T "$FSTAB" "$MNT"
is rw noatime nosuid
[[ $(<"$MNT/file") == written ]]
gone
line noauto,user,ro,_netdev
mount -a -T "$FSTAB"
[[ -z $(shown) ]] || { echo "noauto: $(shown)"; exit 1; }
mount -T "$FSTAB" "$SOURCE"
is ro nosuid nodev noexec
gone
line nodiratime,nodev,_netdev
mount -a -T "$FSTAB" -O _netdev
is rw nodiratime nodev
mount -a -T "$FSTAB" -O _netdev
[[ $(shown | wc -l) == 1 ]] || { echo "mounted twice"; exit 1; }
echo again >"$MNT/file"
gone
"#;

const REMOUNTED: &str = r#"
# sets yes|no: reading sets the time of it.
sets() {
    local is=yes
    touch -a -d @1000 "$MNT/file"
    cat "$MNT/file" >/dev/null
    [[ $(stat -c %X "$MNT/file") != 1000 ]] || is=no
    [[ $is == "$1" ]] || { echo "the time of reading is set: $is"; exit 1; }
}
refused 32 "nothing is mounted" /sbin/mount.sateen -o remount,ro "$SOURCE" "$MNT"

# By a line of fstab, whose options come first.
line noatime,nodev,_netdev,exclude=scratch-OST0007,x-ours
mount -T "$FSTAB" "$MNT"
echo once >"$MNT/file"
sets no
mount -T "$FSTAB" -o remount,ro "$MNT"
is ro noatime nodev nosuid
(echo more >"$MNT/file") 2>/dev/null && { echo "it is not read-only"; exit 1; }
refused 32 "is none of Sateen's" mount -t sateen -o remount,ro "$SOURCE" /proc
mount -T "$FSTAB" -o remount,rw "$MNT"
is rw noatime
echo more >"$MNT/file"
line noexec,relatime,sync,_netdev
mount -T "$FSTAB" -o remount "$MNT"
is rw noexec relatime nosuid sync
sets yes

# What is open for writing, what is decided by mounting it, and what is something else.
exec 9>>"$MNT/file"
refused 32 "open for writing" mount -T "$FSTAB" -o remount,ro "$MNT"
exec 9>&-
refused 32 "umount $MNT, and mount it again" mount -T "$FSTAB" -o remount,direct_io "$MNT"
refused 32 "umount $MNT, and mount it again" mount -T "$FSTAB" -o remount,dirsync "$MNT"
refused 32 "exclude" mount -T "$FSTAB" -o remount,ro,exclude=scratch-OST0001 "$MNT"
refused 32 "is mounted on $MNT, not" /sbin/mount.sateen "$SOURCE/below" "$MNT" -o remount,ro
refused 1 frobnicate mount -T "$FSTAB" -o remount,frobnicate "$MNT"
/sbin/mount.sateen -f "$SOURCE" "$MNT" -o remount,ro
is rw
gone

# Without one, by what the kernel calls it.
ln -s "$SATEEN" /sbin/mount.fuse.sateen
: >"$FSTAB"
mount -t sateen -o nodev,noatime,direct_io,retry=2 "$SOURCE" "$MNT"
mount -T "$FSTAB" -o remount,ro "$MNT"
is ro noatime nodev nosuid
mount -T "$FSTAB" -o remount,rw,relatime,direct_io "$MNT"
is rw relatime nosuid
sets yes
mount -T "$FSTAB" -o remount,noatime "$MNT"
is rw noatime
sets no
mount -T "$FSTAB" -o remount,strictatime "$MNT"
sets yes
gone
mount -t fuse.sateen -o ro,retry=2 "$SOURCE" "$MNT"
is ro
mount -T "$FSTAB" -o remount,rw "$MNT"
is rw
sets yes
gone

# In another namespace.
unshare --mount --propagation private sleep 1000 &
until [[ $(readlink /proc/$!/ns/mnt) != "$(readlink /proc/self/ns/mnt)" ]]; do sleep 0.1; done
mount -N $! -t sateen -o retry=2 "$SOURCE" "$MNT"
[[ -z $(shown) ]] || { echo "mounted here: $(shown)"; exit 1; }
[[ $(nsenter -t $! -m cat "$MNT/file") == more ]]
umount -N $! "$MNT"
kill $!
"#;

/// Runs a script with a cluster, for whose servers `MNT` is empty afterwards.
fn run(cluster: &Cluster, script: &str) {
    let point = cluster.path("mnt");
    fs::create_dir(&point).unwrap();
    let script = format!("{COMMON}{script}");
    let mut bash = Command::new("unshare");
    bash.args(["--mount", "--propagation", "private", "bash", "-c", &script]);
    bash.env("SATEEN", BINARY).env("SOURCE", cluster.source());
    bash.env("MNT", &point).env("FSTAB", cluster.path("fstab"));
    ok(&mut bash);
    assert_eq!(fs::read_dir(&point).unwrap().count(), 0, "nobody else has seen it");
}

#[test]
fn a_mount_is_given_other_options() {
    if !can_mount() {
        return;
    }
    let cluster = Cluster::new(BINARY, "remount");
    let (mds, oss) = cluster.start();
    run(&cluster, REMOUNTED);
    cluster.finish([oss, mds]);
}

#[test]
fn mount_and_fstab_find_the_helper() {
    if !can_mount() {
        return;
    }
    let mut cluster = Cluster::new(BINARY, "mount8");
    let (mds, oss) = cluster.start();
    run(&cluster, MOUNTED);
    let mnt = cluster.mount("mnt");
    assert_eq!(fs::read(mnt.join("file")).unwrap(), b"again\n");
    cluster.finish([oss, mds]);
}
